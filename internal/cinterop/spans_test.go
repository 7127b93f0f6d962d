//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// An allocation in C of a span for which there is no memory asks for memory for two rows of chunks at most. It does not
// try all rows.
func TestSpanInCWithoutMemoryTriesTwoRows(t *testing.T) {
	runC(t, "spans.c", "full", unusedName(t))
}

// While signals interrupt each reservation of more than 64 KiB, a C program creates an arena and allocates a span.
func TestReservationsInCThatSignalsInterrupt(t *testing.T) {
	runC(t, "spans.c", "interrupted", unusedName(t))
}

// TestFailedAllocationInCGivesMemoryBack: an allocation in C gets memory for a part of its chunks only. The file system gets
// this memory back.
func TestFailedAllocationInCGivesMemoryBack(t *testing.T) {
	runC(t, "spans.c", "partly", unusedName(t))
}

// TestWaitNodesInCLieWithinReach: in an arena of more than 256 GiB, the next free block may be out of reach of the 32-bit
// links of queues, and of the word objRecords. Then a wait node, a slot record or an additional block takes a block that is
// within reach.
func TestWaitNodesInCLieWithinReach(t *testing.T) {
	cmd := exec.Command(program(t, "far.c"), unusedName(t))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("needs an address space of 320 GiB: %s", out)
	}
	require.NoError(t, err, "%s", out)
}
