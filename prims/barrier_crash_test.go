//go:build crashpoint && linux

package prims_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// This process registers as a party, and closes its handle on the Barrier.
	proctest.Register("barrier/closed party", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "victim"})
		if err != nil {
			c.Fatal(err)
		}
		b, err := prims.OpenBarrier(a, "plain", 2, nil)
		if err != nil {
			c.Fatal(err)
		}
		b.Register(1)
		off := b.Offset()
		if err := b.Close(); err != nil {
			c.Fatal(err)
		}
		c.Say(off)
		c.Await()
	})
}

// TestBarrierDeathBesideStrangers checks that a waiter learns of the death of a party, even without a periodic check,
// if only participants that have never opened the Barrier watch the party. Such a participant has no slot record, so
// it cannot mark the dead party as lost. It only wakes the waiters, and a waiter marks the party as lost.
func TestBarrierDeathBesideStrangers(t *testing.T) {
	a := newArena(t, nil)
	x := gateActor(t, a, "x", proctest.Env("SHMSYNC_CHECK_EVERY=1h"))
	for i := range 3 { // each participant watches the next three, so only the three strangers watch the victim
		gateActor(t, a, fmt.Sprint("stranger ", i))
	}
	victim := proctest.Start(t, "barrier/closed party", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	var off arena.Offset
	victim.Recv(t, &off)
	id := gateBlocked(t, a, x, off, order{Op: "barrier.meet", Object: "plain"})
	eventually(t, "its threads sleep", x.dump, func() bool { return allAsleep(t, x.proc.Pid()) })
	victim.Kill(t)
	gateRefused(t, x.wait(t, id), "victim")
}

// TestBarrierCrashOfReaper checks that waiters learn of a death even if the reaper dies or is stopped after it has
// marked the parties of the dead participant as lost, and before it wakes the waiters.
func TestBarrierCrashOfReaper(t *testing.T) {
	for _, how := range []string{"SHMSYNC_CRASHPOINT", "SHMSYNC_CRASHPOINT_STOP"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			b := newBarrier(t, a, "plain", 3, nil)
			party := gateActor(t, a, "party")
			reaper := gateActor(t, a, "reaper", proctest.Env(how+"=barrier.reap.lost:1"))
			x := gateActor(t, a, "x")
			party.must(t, order{Op: "barrier.join", Object: "plain", N: 1})
			id := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
			asleep(t, a, "plain")
			reaper.start(order{Op: "barrier.reap", Object: "plain", N: 2})
			reaper.proc.AwaitPoint(t, how)
			gateRefused(t, x.wait(t, id), "party")
			require.EqualValues(t, 1, b.State().Lost)
		})
	}
}

// allAsleep reports whether all threads of a process sleep in the kernel.
func allAsleep(t *testing.T, pid int) bool {
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	require.NoError(t, err)
	for _, path := range threads {
		stat, err := os.ReadFile(path)
		if err != nil {
			continue // the thread has ended
		}
		if _, after, _ := strings.Cut(string(stat), ") "); !strings.HasPrefix(after, "S") {
			return false
		}
	}
	return len(threads) > 0
}
