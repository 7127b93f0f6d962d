//go:build linux

package prims_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// wide is a state that takes a while to copy. All its numbers are equal.
type wide [512]uint64

// openWide opens a Waitable with the state wide. Its rule stops the process if the argument of the wait is
// true.
func openWide(a *arena.Arena) (*prims.Waitable[wide, bool], error) {
	return prims.OpenWaitable(a, "wide", wide{}, prims.Rules[wide, bool]{Claim: func(s *wide, stop bool) bool {
		if stop {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			unix.Tgkill(unix.Getpid(), unix.Gettid(), unix.SIGSTOP) // a signal to this thread stops the process here, not a moment later
		}
		return true
	}}, nil)
}

func init() {
	proctest.Register("waitable/wide", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		x, err := openWide(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		var op string
		c.Recv(&op)
		if op == "stop" {
			x.TryWait(true)
		}
		for {
			x.Update(func(s *wide) {
				for i := range s {
					s[i]++
				}
			})
		}
	})
}

// TestWaitableStateDoesNotWaitForAStoppedProcess: State returns even if a stopped process holds the queue lock.
func TestWaitableStateDoesNotWaitForAStoppedProcess(t *testing.T) {
	a := newArena(t, nil)
	x, err := openWide(a)
	require.NoError(t, err)
	x.Update(func(s *wide) { s[7] = 7 })
	p := proctest.Start(t, "waitable/wide", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	p.Send("stop")
	p.AwaitStop(t)
	state := make(chan wide, 1)
	go func() {
		_ = x.String()
		state <- x.State()
	}()
	select {
	case s := <-state:
		require.Equal(t, wide{7: 7}, s)
	case <-after(timeout()):
		t.Fatalf("State waits for a stopped process\n%s", words(a))
	}
	require.NoError(t, x.Err())
	p.Cont(t)
	eventually(t, "it goes on", func() string { return words(a) }, func() bool { return x.State()[7] > 7 })
}

// TestWaitableStateIsWhole: State returns no torn copy while other goroutines change the state, although it
// does not take the queue lock.
func TestWaitableStateIsWhole(t *testing.T) {
	a := newArena(t, nil)
	x, err := openWide(a)
	require.NoError(t, err)
	p := proctest.Start(t, "waitable/wide", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	p.Send("update")
	eventually(t, "it changes", func() string { return words(a) }, func() bool { return x.State()[0] > 0 })
	before, changes := uint64(0), 0
	for end := time.Now().Add(timeout()); changes < 300; {
		if time.Now().After(end) {
			t.Fatalf("%d changes only\n%s", changes, words(a))
		}
		s, tries := x.StateTries()
		require.LessOrEqual(t, tries, 1000, "reads, of 10,000")
		for i := range s {
			if s[i] != s[0] {
				t.Fatalf("number %d is %d, the first %d", i, s[i], s[0])
			}
		}
		require.GreaterOrEqual(t, s[0], before)
		if s[0] != before {
			changes++
		}
		before = s[0]
	}
}

// TestWaitableStateIsReadAgainWhenOverwritten: State reads without a lock. If at most one change is made during
// the read, the copy is valid. A second change may overwrite the copy that is being read, so State reads again.
func TestWaitableStateIsReadAgainWhenOverwritten(t *testing.T) {
	a := newArena(t, nil)
	x, err := openWide(a)
	require.NoError(t, err)
	for n, whole := range []bool{true, true, false, false} {
		_, ok := x.ReadAtChange(uint64(n))
		require.Equal(t, whole, ok, "change %d", n)
	}
}
