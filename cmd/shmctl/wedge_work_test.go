//go:build linux

package main

import (
	"fmt"
	"strings"
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

// TestHolderThatWaitsInAnotherArena checks a holder that waits for a lock in another arena. shmctl does not say that the
// holder may have forgotten to unlock: it names the lock, the other arena and the process that has the lock. If this
// process waits for the holder, the two are in a deadlock that no single arena shows.
func TestHolderThatWaitsInAnotherArena(t *testing.T) {
	name, other := testArena(t), testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.does("lock elsewhere", other+" index")
	alice.begins("lock elsewhere", other+" index")
	awaitWaits(t, other, 1)
	carol := newAgent(t, name, "carol")
	carol.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	find := func(in, text string) (f finding) {
		eventually(t, text, func() bool {
			_, d := shmctlJSON(t, "waits", "--older=1ns", in)
			for _, f = range d.Findings {
				if f.Kind == diagnose.LongHold && strings.Contains(f.Text, text) {
					return true
				}
			}
			return false
		})
		return f
	}
	f := find(name, fmt.Sprintf(" holds Mutex ledger, and itself waits for lock of index in the arena %s, which elsewhere (pid %d, ", other, bob.Pid()))
	require.NotContains(t, f.Text, "deadlock")
	require.Equal(t, "shmctl waits "+other, f.Command)
	sameFromInside(t, name, "waits", name, "--older", "1ns")
	shell := pasted(t)
	shell(t, f.Command)

	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 2)
	f = find(name, fmt.Sprintf("; bob (pid %d, %s) waits for it: a deadlock through two arenas", bob.Pid(), bob.name))
	require.Equal(t, fmt.Sprintf("kill %d", alice.Pid()), f.Command)
	g := find(other, "waits for it: a deadlock through two arenas")
	require.Equal(t, fmt.Sprintf("kill %d", bob.Pid()), g.Command)
	shell(t, f.Command)
	awaitFinding(t, diagnose.OwnerDead, "waits", name)
}
