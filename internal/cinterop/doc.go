// Package cinterop tests that Go and C programs share the same objects: agents of both
// languages, each in a process of its own, do as a test tells them.
package cinterop
