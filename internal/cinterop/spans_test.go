//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// An allocation in C of a span for which there is no memory tries two rows of chunks, and not one after the other.
func TestSpanInCWithoutMemoryTriesTwoRows(t *testing.T) {
	out, err := exec.Command(program(t, "spans.c"), unusedName(t)).CombinedOutput()
	require.NoError(t, err, "%s", out)
}
