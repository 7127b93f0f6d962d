//go:build linux

package prims_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

func TestMain(m *testing.M) { proctest.Main(m) }

// timeout is how long a test waits for something that must happen.
func timeout() time.Duration { return proctest.Scale(proctest.DefaultTimeout) }

// after returns a timer channel, for a limit that a passing test does not reach.
func after(d time.Duration) <-chan time.Time { return time.NewTimer(d).C }

// eventually waits until done returns true. It checks often at first and then every millisecond. If
// that takes too long, the test fails, and shows the text that the function words returns.
func eventually(t testing.TB, what string, words func() string, done func() bool) {
	t.Helper()
	if err := waitUntil(timeout(), done); err != nil {
		t.Fatalf("%s: %v\nwords: %s", what, err, words())
	}
}

func waitUntil(limit time.Duration, done func() bool) error {
	end := time.Now().Add(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !done() {
		if time.Now().After(end) {
			return fmt.Errorf("not within %v", limit)
		}
		<-tick.C
	}
	return nil
}

// words describes the objects of an arena and its participants.
func words(a *arena.Arena) string {
	s := ""
	for o := range a.Objects() {
		s += fmt.Sprintf("%v %v: %s\n", o.Kind, o, prims.Describe(a, arenakernel.Object(o)))
	}
	for p := range a.Participants() {
		s += fmt.Sprintf("%v %s, notice %s, fenced %v\n", p.Identity, p.State, p.Notice, p.Fenced)
	}
	return s
}

// needsCrashPoints skips a test in a build without crash points.
func needsCrashPoints(t testing.TB) {
	t.Helper()
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
}

// alone waits until n participants are left and all of them are alive, so that all dead
// participants are reaped.
func alone(t testing.TB, a *arena.Arena, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d participants", n), func() string { return words(a) }, func() bool {
		live, other := 0, 0
		for p := range a.Participants() {
			if p.State == "live" && p.Died.IsZero() {
				live++
			} else {
				other++
			}
		}
		return live == n && other == 0
	})
}

// ownNodes returns how many of the used wait nodes belong to waits. The other used nodes are poller
// nodes: each process whose goroutines have parked at a word of an object leaves one there.
func ownNodes(a *arena.Arena) uint64 {
	s := a.Stats()
	return s.Nodes - s.PollerNodes
}

// sound requires that a check of the whole arena finds no fault. It repeats the check, because one
// check may find a state that another process or goroutine is about to change.
func sound(t testing.TB, a *arena.Arena) {
	t.Helper()
	var err error
	eventually(t, "the arena is sound", func() string { return fmt.Sprint(err, "\n", words(a)) }, func() bool {
		err = a.Check()
		return err == nil
	})
}

// nameOf returns the name by which another process joins the arena.
func nameOf(a *arena.Arena) string { return filepath.Base(a.Path()) }

func offsetAt(b []byte, i int) arena.Offset {
	return arena.Offset(binary.LittleEndian.Uint64(b[8*i:]))
}

func putOffset(b []byte, i int, off arena.Offset) {
	binary.LittleEndian.PutUint64(b[8*i:], uint64(off))
}

// arenaName returns a name under /dev/shm for an arena that only this test uses.
func arenaName(t testing.TB) string {
	name := fmt.Sprintf("shmsync-test-%d-%s", os.Getpid(), randomName())
	t.Cleanup(func() { shm.Remove(name) })
	return name
}

func removeArena(name string) { shm.Remove(name) }
