// Package tidy tests the rules of this repository that no compiler and no vet
// knows: where unsafe may be imported, which package may import which, that sync
// points and crash points come in pairs, and a few matters of form.
//
// There is nothing in it but tests. Each rule is a function from the files of the
// tree to findings, and has samples beside it: a tree that it must find fault
// with and one that it must not. Besides, what the packages export is compared
// with docs/api.
package tidy
