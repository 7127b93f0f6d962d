// Package subjects has the primitives of this module in the form in which they are measured, and the list of all
// subjects.
//
// A subject is an implementation of a primitive that is measured. Each file adapts one family of primitives to the
// interfaces of the scenarios. The subjects in broken.go are wrong on purpose: tests use them to show that a
// measurement detects a broken promise.
package subjects
