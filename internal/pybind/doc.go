// Package pybind tests the Python binding in bindings/python: by the tests there, and in scenes of Go and Python
// processes that share an arena and are killed.
package pybind
