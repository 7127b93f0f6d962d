//go:build linux

package main

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// TestWaitForWorkIsGivenMoreTime checks that shmctl reports a wait for work only after LongWork. For a wait for a lock,
// the shorter time LongLock applies.
func TestWaitForWorkIsGivenMoreTime(t *testing.T) {
	defer func(d time.Duration) { diagnose.LongLock = d }(diagnose.LongLock)
	diagnose.LongLock = time.Millisecond // LongWork is an hour in tests
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("add group", "jobs", 2)
	alice.does("claim latch", "start", 2)
	alice.does("join barrier", "step", 1)
	alice.does("lock semaphore", "workers", 3)
	bob.begins("wait group", "jobs")
	bob.begins("wait latch", "start")
	bob.begins("wait barrier", "step")
	bob.begins("lock semaphore", "workers", 1)
	awaitThat(t, name, "dated waits", 4, func(d document) bool {
		for _, w := range d.Waits {
			if w.AgeNs == nil {
				return false
			}
		}
		return true
	})
	soon(t, exitOK, "waits", name)
	alice.does("claim future", "answer") // LongLock applies to bob, because only alice can set the result
	bob.begins("wait future", "answer")
	awaitFinding(t, diagnose.LeakedHold, "waits", name)
}

// TestStoppedProcessThatOthersWaitFor checks a wait that only stopped processes could end. shmctl names one of these
// processes, and the printed command continues it.
func TestStoppedProcessThatOthersWaitFor(t *testing.T) {
	for _, c := range []struct{ kind, ends string }{
		{"event", "set event"}, {"queue", "put queue"}, {"barrier", "wait barrier"}, {"latch", "count latch"}, {"future", "set future"},
		{"sequencer", "advance sequencer"}, {"futex", "post futex"},
	} {
		t.Run(c.kind, func(t *testing.T) {
			t.Parallel()
			name := testArena(t)
			alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
			object := "thing"
			verb := "wait "
			if c.kind == "queue" {
				verb = "get "
			}
			n := int64(1)
			if c.kind == "latch" {
				n = 2
			}
			alice.does("open "+c.kind, object)
			bob.begins(verb+c.kind, object, 1)
			awaitWaits(t, name, 1)
			soon(t, exitOK, "waits", name)
			alice.Stop(t)
			t.Cleanup(func() { syscall.Kill(alice.Pid(), syscall.SIGCONT) })
			alice.Send(agentOrder{Op: c.ends, Name: object, N: n, Later: true}) // alice reads it when she is continued
			f := awaitFinding(t, diagnose.MissingParties, "waits", "--older=1ms", name)
			require.Contains(t, f.Text, "open in alice (pid ")
			require.Contains(t, f.Text, ", which is stopped; 1 waits")
			require.Regexp(t, "^kill -CONT ", f.Command)
			pasted(t)(t, f.Command)
			eventually(t, "the wait is over", func() bool {
				_, d := shmctlJSON(t, "waits", name)
				return len(d.Waits) == 0
			})
		})
	}
}

// TestYoungCycleOfWorkIsNoDeadlock checks that shmctl reports a cycle of waits for work as a deadlock only after
// CycleOfWork. Before that, other goroutines of the same processes may still do the work.
func TestYoungCycleOfWorkIsNoDeadlock(t *testing.T) {
	defer func(d time.Duration) { diagnose.CycleOfWork = d }(diagnose.CycleOfWork)
	diagnose.CycleOfWork = time.Hour
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("join barrier", "a", 1)
	bob.does("join barrier", "b", 1)
	alice.begins("wait barrier", "b")
	bob.begins("wait barrier", "a")
	awaitThat(t, name, "dated waits", 2, func(d document) bool { return d.Waits[0].AgeNs != nil && d.Waits[1].AgeNs != nil })
	soon(t, exitOK, "waits", name)
	diagnose.CycleOfWork = time.Millisecond
	awaitFinding(t, diagnose.Deadlock, "waits", name)
}
