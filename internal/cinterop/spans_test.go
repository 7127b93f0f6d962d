//go:build linux

package cinterop

import "testing"

// An allocation in C of a span for which there is no memory tries two rows of chunks, and not one after the other.
func TestSpanInCWithoutMemoryTriesTwoRows(t *testing.T) {
	runC(t, "spans.c", "full", unusedName(t))
}

// While signals interrupt each reservation of more than 64 KiB, a C program creates an arena and allocates a span.
func TestReservationsInCThatSignalsInterrupt(t *testing.T) {
	runC(t, "spans.c", "interrupted", unusedName(t))
}
