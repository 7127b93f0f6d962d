"""Build the C module, if there is a compiler. The package works without the module."""

from setuptools import Extension, setup

setup(
    ext_modules=[Extension("shmsync._fast", ["shmsync/_fast.c"], py_limited_api=True, optional=True)],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
