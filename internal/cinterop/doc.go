// Package cinterop tests that Go and C programs share the same objects. Agents of both
// languages, each in a process of its own, do what a test tells them.
package cinterop
