// Package tidy tests the rules of this repository that no compiler and no vet knows: where
// unsafe may be imported, which package may import which, that sync points and crash points
// come in pairs, and some matters of form.
//
// It has nothing but tests. Each rule is a function from the files of the tree to findings,
// and has samples beside it: a tree with a violation and one without. In addition, a test
// compares what the packages export with docs/api.
package tidy
