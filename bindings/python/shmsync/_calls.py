"""The fast paths of Mutex and Semaphore: in C if the C module was built, otherwise in Python."""

from __future__ import annotations

import ctypes
import os
from typing import TYPE_CHECKING, Any, Callable, List

from . import _library

__all__: List[str] = []

if TYPE_CHECKING or os.environ.get("SHMSYNC_PURE"):
    built = False
else:
    try:
        from ._fast import Calls

        built = True
    except ImportError:
        built = False

if TYPE_CHECKING or not built:

    class Calls:
        """The base class of Mutex and Semaphore."""


_REPLACED = ("acquire", "release", "__enter__", "__exit__")


def use(kind: Any) -> None:
    """Replace the methods of a class by those of the C module, if it was built."""
    kind._acquire_given = kind.acquire
    kind._release_given = kind.release
    if built:
        for name in _REPLACED:
            setattr(kind, name, Calls.__dict__[name])


def begin(o: Any, acquire: str, release: str, takes_number: bool) -> None:
    """Tell the methods in C, if they are used, which functions of the library they call for an object."""
    if built:
        o._address = ctypes.addressof(o._handle)
        o._acquire_at = _address_of(acquire)
        o._release_at = _address_of(release)
        o._takes_number = takes_number


def _address_of(name: str) -> int:
    f: Callable[..., Any] = _library.kept["shmsync_" + name]
    address = ctypes.cast(f, ctypes.c_void_p).value  # type: ignore[arg-type]
    assert address is not None
    return address
