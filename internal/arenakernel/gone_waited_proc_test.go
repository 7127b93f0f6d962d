//go:build linux

package arenakernel

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// "open without a byte lock" joins as in a sandbox that does not let the process open the file again, so it gets no byte
	// lock.
	agentOrders["open without a byte lock"] = func(s *agent, o order, a *answer) (err error) {
		before := reopen
		defer func() { reopen = before }()
		reopen = func(*shm.Segment) (*os.File, error) { return nil, shmsync.ErrNotSupported }
		s.arena, err = Open(o.Arena, o.Opts)
		return err
	}
	agentOrders["is gone"] = func(s *agent, o order, a *answer) error {
		if s.arena.Gone(o.Name) {
			a.N = 1
		}
		return nil
	}
}

// TestReaperWithoutAByteLockAsksForTheByte checks that a reaper without a byte lock waits until the byte lock of the
// dead participant is free, as other reapers do. The reaper could not open its descriptor again, so it has no byte
// lock. But it can ask for the byte locks of others.
func TestReaperWithoutAByteLockAsksForTheByte(t *testing.T) {
	ta := newTestArena(t, 3)
	ta.opts.KernelIO = KernelIOAsynchronous // so that only the byte lock can show that a process is gone
	first := ta.join(t, "first")
	s := ta.start(t)
	s.self = s.must(t, order{Do: "open without a byte lock", Arena: ta.name, Opts: &ta.opts}).Self
	first.close(t)
	a := ta.peek(t)
	require.False(t, a.slotState(s.self.Slot()).hasByte())
	v := ta.join(t, "victim")
	v.must(t, order{Do: "fenced"})
	v.must(t, order{Do: "lock", Text: "held"})
	end := v.KeepFile(t, ta.path()) // as if the kernel still had the memory of the process
	v.Kill(t)
	i := v.self.Slot()
	pollFor(t, a, func() bool { return a.slotState(i).phase() == phaseDead && a.hasDeathRecord(v.self) })
	for range 20 {
		require.Zero(t, s.must(t, order{Do: "is gone", Name: v.self}).N)
		s.must(t, order{Do: "use", Text: "x"})
	}
	require.True(t, a.slotState(i).is(phaseDead, v.self.Generation()), "%v", a.slotState(i))
	end()
	pollFor(t, a, func() bool { return a.slotState(i).phase() == phaseFree })
	require.NotZero(t, s.must(t, order{Do: "is gone", Name: v.self}).N)
}

// TestWaitedForIsGone checks that a dead process is gone as soon as its parent has waited for it, even if the kernel
// still has its memory and therefore its byte lock. It also checks that a process does not count as gone if a peer
// has changed a word of its identity in the slot.
func TestWaitedForIsGone(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	v, m := startMany(t, ta, manyThreads{Threads: 3, KernelIO: KernelIOAsynchronous})
	i := m.Name.Slot()
	s := a.slot(i)
	// Copies of the descriptors of the victim keep its byte lock held after the death. The kernel
	// does the same while it still has the memory of a process that has ended.
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
	pollFor(t, a, detached) // after a check by the death watcher, detached returns false for a moment
	require.False(t, a.Gone(m.Name), "asynchronous")
	require.False(t, a.byteFree(i, a.slotState(i)))
	a.u32(s + slotCaps).And(^uint32(capAsyncIO))
	pollFor(t, a, func() bool { return a.Gone(m.Name) })
	require.Equal(t, a.goneMark(i, w), goneOf(a.u64(s+slotGone).Load()))
	require.False(t, a.byteFree(i, a.slotState(i)))
}
