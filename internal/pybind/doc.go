// Package pybind tests the Python binding in bindings/python. It runs the tests of the binding itself. It also runs
// scenes, in which Go and Python processes share an arena and some of these processes are killed.
package pybind
