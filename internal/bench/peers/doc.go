// Package peers has the subjects, that is, the measured primitives, that are not from this module. They come from Go,
// from the kernel, and from a C program, the helper.
//
// The sources of the helper are embedded. A Helper is the program that a compiler builds from them, in a directory that
// nobody else can write to. The helper runs the subjects in C; a worker of this program runs all others.
package peers
