// Package subjects has the primitives of this module in the form in which cells measure them, and the list of all
// subjects.
//
// Each file adapts one family of primitives to the interfaces of the scenarios. The subjects in broken.go are wrong
// on purpose: tests use them to show that a cell detects a broken promise.
package subjects
