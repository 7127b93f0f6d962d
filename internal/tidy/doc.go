// Package tidy tests the rules of this repository that no compiler and no vet checks. The rules say where
// unsafe may be imported, which package may import which other package, that sync points come in pairs and
// crash points are registered, and how files have to look.
//
// The package has only tests. Each rule is a function from the files of the tree to findings. Each rule has
// samples: a tree that obeys the rule, and trees that break it. One more test compares what the packages export
// with docs/api.
package tidy
