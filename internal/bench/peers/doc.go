// Package peers has the subjects that are not this module's: those of Go, of the kernel, and of a
// helper in C.
//
// The sources of the helper are embedded. A Helper is the program that a compiler makes of them,
// in a directory that nobody else can write to. The subjects in C run in it; all others run in a
// worker of this program.
package peers
