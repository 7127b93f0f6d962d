//go:build linux

package arenakernel

import (
	"errors"
	"os"
	"runtime"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

// manyThreads is the program of a process with many threads.
type manyThreads struct {
	Arena    string
	Threads  int
	KernelIO KernelIO
	Unfenced bool // the process does not wait until it has registered for fences
}

// oneOfMany is what a process with the program manyThreads reports about itself.
type oneOfMany struct {
	Name ParticipantID
	TID  int // a thread that is neither the leader nor the death watcher
}

func init() {
	proctest.Register("arena/many threads", func(c *proctest.Child) {
		var p manyThreads
		c.Params(&p)
		a, err := Attach(p.Arena, &Options{Label: "victim", KernelIO: p.KernelIO})
		if err != nil {
			c.Fatal(err)
		}
		tids := make(chan int)
		for range p.Threads {
			go func() {
				runtime.LockOSThread()
				tids <- unix.Gettid()
				select {}
			}()
		}
		m := oneOfMany{Name: a.self}
		for range p.Threads {
			// Do not choose the first thread of the process. A goroutine of proctest waits for the process, and so
			// would compete with a tracer of this thread.
			if tid := <-tids; tid != os.Getpid() {
				m.TID = tid
			}
		}
		for !p.Unfenced && !a.Fenced() || a.u64(a.slot(a.mySlot)+slotStart).Load() == 0 {
			runtime.Gosched()
		}
		c.Say(m)
		c.Await()
	})
}

func startMany(t *testing.T, ta *testArena, p manyThreads, opts ...proctest.Option) (*proctest.Proc, oneOfMany) {
	t.Helper()
	p.Arena = ta.name
	opts = append([]proctest.Option{proctest.Params(p), proctest.Dump(func() string { return dumpWords(ta.path()) })}, opts...)
	v := proctest.Start(t, "arena/many threads", opts...)
	var m oneOfMany
	v.Recv(t, &m)
	return v, m
}

// needThreads skips the test if this host does not allow the threads of another process to be
// examined.
func needThreads(t *testing.T) {
	t.Helper()
	if err := shmsync.FeatureThreads.Check(); err != nil {
		t.Skipf("needs /proc/PID/task: %v", err)
	}
}

// TestLastThreadDecidesWhatIsGone checks that a participant is gone when the last thread of its process has
// dropped the memory, and not before. In the test, a tracer stops one thread during its exit. That thread keeps
// the memory, although the other threads have disappeared from the list of threads.
func TestLastThreadDecidesWhatIsGone(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	v, m := startMany(t, ta, manyThreads{Threads: 30})
	pid := int(a.u32(a.slot(m.Name.Slot()) + slotPID).Load())

	runtime.LockOSThread() // the tracer is this thread, not the process
	defer runtime.UnlockOSThread()
	killSlowly(t, v, m.TID)
	pollFor(t, a, func() bool { return a.Dead(m.Name) })
	pollFor(t, a, func() bool { return threadsOf(t, pid) == 2 }) // the leader, which is waiting, and the traced thread
	for range 20 {
		require.False(t, a.Gone(m.Name), "a thread of it has memory")
		lookAgain(a)
	}
	require.NoError(t, unix.PtraceDetach(m.TID))
	pollFor(t, a, func() bool { return a.Gone(m.Name) })
	v.Wait(t)
	pollFor(t, a, func() bool { return a.slotState(m.Name.Slot()).phase() == phaseFree })
}

// killSlowly kills a process, and stops its thread tid while the thread still has memory. The calling goroutine is locked
// to its thread, which is the tracer.
func killSlowly(t *testing.T, v *proctest.Proc, tid int) {
	t.Helper()
	seizeUntilExit(t, tid)
	v.Signal(t, os.Kill)
	var status unix.WaitStatus
	_, err := unix.Wait4(tid, &status, unix.WALL, nil)
	require.NoError(t, err)
	require.True(t, status.Stopped(), "%v", status)
}

// TestCallThatMeetsASlowDeathFreesTheSlot checks that the slot of a killed victim becomes free although one of its
// threads takes long to end. The test process calls Dead once, while that thread still runs. All watchers of the
// victim are stopped, so only the death watcher of the test process can mark the victim dead and free the slot. No
// event wakes this death watcher when the thread ends.
func TestCallThatMeetsASlowDeathFreesTheSlot(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 2+watchTargets)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	watchers := make([]*remote, watchTargets)
	for k := range watchers {
		watchers[k] = ta.join(t, "watcher")
		watchers[k].must(t, order{Do: "fenced"})
	}
	v, m := startMany(t, ta, manyThreads{Threads: 3, Unfenced: true}, without("membarrier"))
	pollFor(t, a, a.Fenced)
	for _, w := range watchers {
		w.Stop(t)
		defer w.Cont(t)
	}
	runtime.LockOSThread() // the tracer is this thread, not the process
	defer runtime.UnlockOSThread()
	killSlowly(t, v, m.TID)
	i := m.Name.Slot()
	w := a.slotState(i)
	pollFor(t, a, func() bool { return a.seenDead(i, w) })
	require.False(t, a.Dead(m.Name), "a thread of it has memory")
	require.NoError(t, unix.PtraceDetach(m.TID))
	v.Wait(t)
	pollFor(t, a, func() bool { return a.slotState(i).phase() == phaseFree })
}

// TestCallThatWaitsForASlowEndFreesTheSlot checks that the slot of a victim becomes free although one of its threads
// ends long after the victim was marked dead. The test process calls Gone once, while that thread still runs. Then
// all watchers of the victim are stopped, so only the death watcher of the test process can free the slot. No event
// wakes this death watcher when the thread ends.
func TestCallThatWaitsForASlowEndFreesTheSlot(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 2+watchTargets)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	watchers := make([]*remote, watchTargets)
	for k := range watchers {
		watchers[k] = ta.join(t, "watcher")
		watchers[k].must(t, order{Do: "fenced"})
	}
	v, m := startMany(t, ta, manyThreads{Threads: 3})
	runtime.LockOSThread() // the tracer is this thread, not the process
	defer runtime.UnlockOSThread()
	killSlowly(t, v, m.TID)
	i := m.Name.Slot()
	pollFor(t, a, func() bool { return a.slotState(i).phase() == phaseDead })
	for _, w := range watchers {
		defer w.Cont(t)
	}
	// Stop the watchers at a moment at which none of them is the reaper of the slot. A stopped reaper would
	// prevent all other processes from freeing the slot.
	pollFor(t, a, func() bool {
		for _, w := range watchers {
			w.Cont(t)
		}
		for _, w := range watchers {
			w.Stop(t)
		}
		return a.u32(a.slot(i)+slotReaper).Load() == 0
	})
	require.False(t, a.Gone(m.Name), "a thread of it has memory")
	require.NoError(t, unix.PtraceDetach(m.TID))
	v.Wait(t)
	pollFor(t, a, func() bool { return a.slotState(i).phase() == phaseFree })
}

// lookAgain discards earlier results, so that the next call of Gone examines the threads of the
// dead process again.
func lookAgain(a *Arena) {
	a.endings.mu.Lock()
	defer a.endings.mu.Unlock()
	a.endings.since = nil
}

// TestLateLookLeavesTheNextDeathAlone checks that a goroutine with an old state of a slot does not change the notice
// of a later death. The goroutine is preempted while it checks whether a participant is gone. Meanwhile another
// participant takes the slot and dies. The later participant has another generation, or the same generation in
// another window. Without the notice of its death, the death watcher would not check the byte lock of the slot.
func TestLateLookLeavesTheNextDeathAlone(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	const slot = 3
	first, second := makeSlotWord(phaseDead, 1), makeSlotWord(phaseDead, 2)
	state, window := a.u32(a.slot(slot)+slotState), a.u64(a.windowWord(slot))
	a.endings.mu.Lock() // the death watcher must not clean up meanwhile
	defer a.endings.mu.Unlock()
	defer state.Store(0)
	defer window.Store(0)
	later := uint64(makeWindow(1, 100, 1))
	for _, c := range []struct {
		of, late             slotWord
		ofWindow, lateWindow uint64
	}{{second, first, 0, 0}, {first, first, later, 0}} {
		state.Store(uint32(c.of))
		window.Store(c.ofWindow)
		n, known := a.endings.find(&a.core, slot, c.of, c.ofWindow)
		require.False(t, known)
		n.free = 1
		late, known := a.endings.find(&a.core, slot, c.late, c.lateWindow)
		require.True(t, known, "the participant is not in the slot any more, so its death counts as known")
		require.NotSame(t, n, late)
		late.detached = true
		again, known := a.endings.find(&a.core, slot, c.of, c.ofWindow)
		require.True(t, known)
		require.Same(t, n, again)
		require.False(t, again.detached)
	}
}

// seizeUntilExit makes the calling thread the tracer of thread tid. Thread tid then stops during its exit. If this
// process may not trace another one, seizeUntilExit skips the test.
func seizeUntilExit(t *testing.T, tid int) {
	t.Helper()
	err := unix.PtraceSeize(tid)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOSYS) {
		t.Skipf("needs to be allowed to trace another process: %v", err)
	}
	require.NoError(t, err)
	require.NoError(t, unix.PtraceInterrupt(tid))
	_, err = unix.Wait4(tid, nil, unix.WALL, nil)
	require.NoError(t, err)
	require.NoError(t, unix.PtraceSetOptions(tid, unix.PTRACE_O_TRACEEXIT))
	require.NoError(t, unix.PtraceCont(tid, 0))
}

func threadsOf(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	require.NoError(t, err)
	return len(entries)
}

// TestWrongIdentityIsNotGone checks that a wrong identity in a slot does not prove that the participant is
// gone. A wrong identity names a living or dead process that did not have the slot, an impossible pid, another
// pid namespace, or another boot.
func TestWrongIdentityIsNotGone(t *testing.T) {
	needThreads(t)
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	// Make the zombie before the victim starts. The kernel may take long to end the zombie, and the victim lives only
	// for a limited time.
	zombie, err := os.StartProcess("/proc/self/exe", []string{"-", "-test.run=^$"}, &os.ProcAttr{})
	require.NoError(t, err)
	require.NoError(t, zombie.Kill())
	defer zombie.Wait()
	pollFor(t, a, func() bool { return isZombie(zombie.Pid) })

	v, m := startMany(t, ta, manyThreads{Threads: 3, KernelIO: KernelIOAsynchronous})
	i := m.Name.Slot()
	s := a.slot(i)
	pid := a.u32(s + slotPID).Load()

	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	seizeUntilExit(t, m.TID) // the thread keeps the memory, so the byte lock is not free
	v.Signal(t, os.Kill)
	pollFor(t, a, func() bool { return a.Dead(m.Name) })
	start := a.u64(s + slotStart).Load()
	startOf := func(pid int) uint64 {
		at, err := startTimeOf(strconv.Itoa(pid))
		require.NoError(t, err)
		return at
	}
	w := a.slotState(i)
	detached := func() bool {
		lookAgain(a)
		return a.detached(i, w)
	}
	type identity struct {
		pid   uint32
		start uint64
	}
	ids := map[string]identity{
		"it lives":              {pid, start},
		"none":                  {0, start},
		"negative":              {^uint32(0), start},
		"too great":             {1 << 30, start},
		"the process that asks": {uint32(os.Getpid()), startOf(os.Getpid())},
		"a stranger":            {uint32(os.Getppid()), start},
		// Do not use the exact start time here: a process that started in the same tick of 10 ms
		// may have it, too.
		"a dead stranger": {uint32(zombie.Pid), startOf(zombie.Pid) + 1},
		"no start":        {uint32(zombie.Pid), 0},
		"a thread of it":  {uint32(m.TID), start},
		"another start":   {pid, start + 1},
	}
	if at, err := startTimeOf("1"); err == nil { // with the mount option hidepid, only root sees init
		ids["init"] = identity{1, at}
	}
	for what, id := range ids {
		a.u32(s + slotPID).Store(id.pid)
		a.u64(s + slotStart).Store(id.start)
		require.False(t, detached(), what)
	}
	// The pid and the start time of an unrelated dead process would show that the participant is gone. So only
	// the changed pid namespace or boot can be the reason why detached returns false.
	a.u32(s + slotPID).Store(uint32(zombie.Pid))
	a.u64(s + slotStart).Store(startOf(zombie.Pid))
	for what, off := range map[string]Offset{"pid namespace": slotPIDNS, "boot": slotBootID} {
		word := a.u64(s + off)
		was := word.Load()
		for _, other := range []uint64{0, was + 1} {
			word.Store(other)
			require.False(t, detached(), what)
		}
		word.Store(was)
	}
	// After a check by the death watcher, detached returns false for a moment.
	pollFor(t, a, detached)
	a.u64(s + slotGone).Store(uint64(m.Name.Generation() + 1)) // recorded for another participant
	require.False(t, a.Gone(m.Name), "asynchronous")
	a.u64(s + slotGone).Store(uint64(m.Name.Generation() | 1<<generationBits)) // recorded in another window
	require.False(t, a.Gone(m.Name), "another window")
	a.u32(s + slotCaps).And(^uint32(capAsyncIO))
	pollFor(t, a, func() bool { return a.Gone(m.Name) })
	require.Equal(t, a.goneMark(i, w), goneOf(a.u64(s+slotGone).Load()))
	_, err = unix.Wait4(m.TID, nil, unix.WALL, nil)
	require.NoError(t, err)
	require.NoError(t, unix.PtraceDetach(m.TID))
	v.Wait(t)
}

// hasEnded reports whether a process, which is not a child of this one, is a zombie or no longer
// exists.
func hasEnded(pid int) bool { return unix.Kill(pid, 0) != nil || isZombie(pid) }

func isZombie(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := cutLast(string(b), ')')
	return len(rest) > 1 && rest[1] == 'Z'
}

// TestGoneIsForgottenByTheNextInTheSlot: a new participant does not inherit the gone mark of the
// previous participant in its slot.
func TestGoneIsForgottenByTheNextInTheSlot(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	for i := 2; i <= 4; i++ {
		a.u64(a.slot(i) + slotGone).Store(1)
	}
	v, m := startMany(t, ta, manyThreads{Threads: 1})
	require.Zero(t, goneOf(a.u64(a.slot(m.Name.Slot())+slotGone).Load()))
	v.Signal(t, os.Kill)
	v.Wait(t)
}
