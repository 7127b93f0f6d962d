//go:build linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestWaitedForIsGone: after its parent has waited for a dead process, the process is gone, even if
// the kernel still has its memory, and therefore its byte lock. This requires that the slot
// identifies the process beyond doubt. If a peer has changed a word of the identity, the identity
// proves nothing.
func TestWaitedForIsGone(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	v, m := startMany(t, ta, manyThreads{Threads: 3, KernelIO: KernelIOAsynchronous})
	i := m.Name.Slot()
	s := a.slot(i)
	// The copy of the file holds the byte lock after the death. The kernel does the same while it
	// still has the memory of a process that has ended.
	v.KeepFile(t, ta.path())
	v.Kill(t)
	pollFor(t, a, func() bool { return a.Dead(m.Name) })
	require.ErrorIs(t, unix.Kill(v.Pid(), 0), unix.ESRCH, "the parent has waited for it")
	w := a.slotState(i)
	detached := func() bool {
		lookAgain(a)
		return a.detached(i, w)
	}
	for what, off := range map[string]Offset{
		"start": slotStart, "pid namespace": slotPIDNS, "boot": slotBootID, "the rest of boot": slotBootID + 8, "sum": slotIdentitySum,
	} {
		word := a.u64(s + off)
		was := word.Load()
		require.NotZero(t, was, what)
		for _, other := range []uint64{0, was + 1} {
			word.Store(other)
			require.False(t, detached(), what)
		}
		word.Store(was)
	}
	pid := a.u32(s + slotPID)
	for _, other := range []uint32{0, ^uint32(0), 1 << 30, pid.Load() + 1} {
		was := pid.Load()
		pid.Store(other)
		require.False(t, detached(), "pid %d", other)
		pid.Store(was)
	}
	pollFor(t, a, detached) // the death watcher of this process may have checked a moment ago
	require.False(t, a.Gone(m.Name), "asynchronous")
	require.False(t, a.byteFree(i, a.slotState(i)))
	a.u32(s + slotCaps).And(^uint32(capAsyncIO))
	pollFor(t, a, func() bool { return a.Gone(m.Name) })
	require.Equal(t, a.goneMark(i, w), goneOf(a.u64(s+slotGone).Load()))
	require.False(t, a.byteFree(i, a.slotState(i)))
}
