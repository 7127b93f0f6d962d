// Package gosuite runs the tests that the Go distribution and x/sync have for their own primitives with the
// primitives of this library.
//
// The test files are not in this tree. The package reads them from the directories that the go command reports,
// replaces their imports by the shim, and leaves out tests that cannot pass. The table in the test gives the
// reason for each omission.
package gosuite
