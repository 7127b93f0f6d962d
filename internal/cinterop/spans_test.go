//go:build linux

package cinterop

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// An allocation in C of a span fails because the system has no memory. The allocation asks for memory for at most two
// rows of chunks, and does not try all rows.
func TestSpanInCWithoutMemoryTriesTwoRows(t *testing.T) {
	runC(t, "spans.c", "full", unusedName(t))
}

// A C program creates an arena and allocates a span while signals interrupt each reservation of more than 64 KiB. Both
// calls succeed, and ask the kernel only a little more often than once for each 64 KiB.
func TestReservationsInCThatSignalsInterrupt(t *testing.T) {
	runC(t, "spans.c", "interrupted", unusedName(t))
}

// TestFailedAllocationInCGivesMemoryBack: an allocation in C gets memory for a part of its chunks only. The file system gets
// this memory back.
func TestFailedAllocationInCGivesMemoryBack(t *testing.T) {
	runC(t, "spans.c", "partly", unusedName(t))
}

// TestWaitNodesInCLieWithinReach checks an arena of more than 256 GiB. The links to wait nodes, slot records and
// additional blocks have 32 bits, and do not reach the whole arena. So these records take a block that the links can
// reach, even if another block is the next free one.
func TestWaitNodesInCLieWithinReach(t *testing.T) {
	cmd := exec.Command(program(t, "far.c"), unusedName(t))
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState.ExitCode() == 77 {
		t.Skipf("needs an address space of 320 GiB: %s", out)
	}
	require.NoError(t, err, "%s", out)
}
