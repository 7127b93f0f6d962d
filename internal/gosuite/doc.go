// Package gosuite runs the tests that the Go distribution and x/sync have for their own
// primitives against those of this library.
//
// The files are not in this tree. The package reads them from the directories of the go
// command, turns their imports to the shim, and leaves out tests that cannot hold, each
// with its reason in the table of the test.
package gosuite
