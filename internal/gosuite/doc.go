// Package gosuite runs the tests that the Go distribution and x/sync have for their
// own primitives against those of this library.
//
// The files are not in this tree: they are read from where the go command has them,
// their imports are turned to the shim, and tests that cannot hold are left out, each
// with its reason in the table of the test.
package gosuite
