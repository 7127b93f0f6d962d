//go:build linux && amd64 && gc && !noasm

package asm

import (
	"runtime"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// onEachCPU runs f on each CPU on which this thread may run. It passes f the CPU and the node that the kernel
// reports.
func onEachCPU(t *testing.T, f func(cpu, node uint32)) {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var all unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &all))
	defer unix.SchedSetaffinity(0, &all)
	for i := range 8 * len(all) * int(unsafe.Sizeof(all[0])) {
		if !all.IsSet(i) {
			continue
		}
		var one unix.CPUSet
		one.Set(i)
		require.NoError(t, unix.SchedSetaffinity(0, &one))
		var cpu, node uint32
		// SAFETY: the kernel writes one word to each variable, and only during the call.
		_, _, errno := unix.RawSyscall(unix.SYS_GETCPU, uintptr(unsafe.Pointer(&cpu)), uintptr(unsafe.Pointer(&node)), 0)
		require.Zero(t, errno)
		require.EqualValues(t, i, cpu)
		f(cpu, node)
	}
}

func TestCPU(t *testing.T) {
	onEachCPU(t, func(wantCPU, wantNode uint32) {
		cpu, node, ok := CPU()
		require.True(t, ok)
		require.Equal(t, wantCPU, cpu)
		require.Equal(t, wantNode, node)
	})
}

// TestCPUWithoutRDPID checks that CPU works without the instruction RDPID, even on a machine that has RDPID.
func TestCPUWithoutRDPID(t *testing.T) {
	defer func(have bool) { haveRDPID = have }(haveRDPID)
	haveRDPID = false
	onEachCPU(t, func(wantCPU, wantNode uint32) {
		cpu, node, ok := CPU()
		require.True(t, ok)
		require.Equal(t, wantCPU, cpu)
		require.Equal(t, wantNode, node)
	})
}

// splitCPUNode is tested with fixed values, because this machine may have only one node.
func TestSplitCPUNode(t *testing.T) {
	for _, want := range [][2]uint32{{0, 0}, {1, 0}, {0, 1}, {4095, 0}, {0, 4095}, {300, 7}} {
		cpu, node := splitCPUNode(want[1]<<12 | want[0])
		require.Equal(t, want, [2]uint32{cpu, node})
	}
}

func TestCPUID(t *testing.T) {
	maxLeaf, ebx, ecx, edx := cpuid(0, 0)
	require.Positive(t, maxLeaf)
	for _, vendor := range []uint32{ebx, edx, ecx} {
		for shift := 0; shift < 32; shift += 8 {
			c := byte(vendor >> shift)
			require.True(t, ' ' <= c && c <= '~', "vendor string %x %x %x", ebx, edx, ecx)
		}
	}
}

func BenchmarkCPUSource(b *testing.B) {
	b.Run("source=rdpid", func(b *testing.B) {
		if !haveRDPID {
			b.Skip("needs a CPU with RDPID")
		}
		for b.Loop() {
			rdpid()
		}
	})
	b.Run("source=lsl", func(b *testing.B) {
		for b.Loop() {
			lslCPUNode()
		}
	})
}
