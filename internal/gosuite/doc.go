// Package gosuite runs tests of the Go distribution and of x/sync. It replaces the primitives for which the tests were
// written by the primitives of this library.
//
// The test files are not in this tree. The package reads them from the directories that the go command reports,
// replaces their imports by the shim, and leaves out tests that cannot pass. The table in the test gives the reason for
// each omission.
package gosuite
