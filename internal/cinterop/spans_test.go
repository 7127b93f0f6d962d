//go:build linux

package cinterop

import "testing"

// An allocation in C of a span for which there is no memory tries two rows of chunks, and not one after the other.
func TestSpanInCWithoutMemoryTriesTwoRows(t *testing.T) {
	runC(t, "spans.c", unusedName(t))
}
