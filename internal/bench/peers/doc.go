// Package peers has the subjects that are not from this module: those of Go, of the kernel, and
// of a helper in C.
//
// The sources of the helper are embedded. A Helper is the program that a compiler builds from
// them, in a directory that nobody else can write to. The helper runs the subjects in C; a worker
// of this program runs all others.
package peers
