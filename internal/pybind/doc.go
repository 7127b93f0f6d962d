// Package pybind tests the Python binding in bindings/python. It runs the tests there, and scenes in which Go and
// Python processes share an arena and are killed.
package pybind
