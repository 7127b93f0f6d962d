//go:build linux

package prims_test

import (
	"fmt"
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

// openWide opens a Waitable with the state wide. Its rule stops the process, once, if the argument of the wait is
// true.
func openWide(a *arena.Arena) (*prims.Waitable[wide, bool], error) {
	stopped := false
	return prims.OpenWaitable(a, "wide", wide{}, prims.Rules[wide, bool]{Claim: func(s *wide, stop bool) bool {
		if stop && !stopped {
			stopped = true // the rule runs again, because the state changes meanwhile
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
		update := func() {
			x.Update(func(s *wide) {
				for i := range s {
					s[i]++
				}
			})
		}
		if op == "slowly" || op == "slowly and fast" {
			if op == "slowly and fast" {
				go func() {
					for {
						update()
					}
				}()
			}
			for range 10 {
				runs := 0
				x.Update(func(s *wide) {
					runs++
					for begun := time.Now(); time.Since(begun) < 2*time.Millisecond; {
						s[0]++
					}
				})
				c.Say(runs)
			}
			return
		}
		if op == "stop" {
			x.TryWait(true)
		}
		for {
			update()
		}
	})
}

// TestWaitableDoesNotWaitForAStoppedProcess: a process is stopped in a rule. Other processes can still read the state
// and change it.
func TestWaitableDoesNotWaitForAStoppedProcess(t *testing.T) {
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
		x.Update(func(s *wide) { s[8] = 8 })
		if x.TryWait(false) {
			state <- x.State()
		}
	}()
	select {
	case s := <-state:
		require.Equal(t, wide{7: 7, 8: 8}, s)
	case <-after(timeout()):
		t.Fatalf("a call waits for a stopped process\n%s", words(a))
	}
	require.NoError(t, x.Err())
	p.Cont(t)
	eventually(t, "it goes on", func() string { return words(a) }, func() bool { return x.State()[7] > 7 })
}

// TestWaitableStateIsWhole: State returns no torn copy while another process changes the state.
func TestWaitableStateIsWhole(t *testing.T) {
	a := newArena(t, nil)
	x, err := openWide(a)
	require.NoError(t, err)
	p := proctest.Start(t, "waitable/wide", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	p.Send("update")
	eventually(t, "it changes", func() string { return words(a) }, func() bool { return x.State()[0] > 0 })
	before, changes := uint64(0), 0
	for end := time.Now().Add(timeout()); changes < 30_000; {
		if time.Now().After(end) {
			t.Fatalf("%d changes only\n%s", changes, words(a))
		}
		s := x.State()
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

// TestWaitableSlowUpdateIsNotStarved: a goroutine updates the state without a pause. Another goroutine, in the same
// process or in another one, needs much longer for each of its updates. The slow updates succeed, too.
func TestWaitableSlowUpdateIsNotStarved(t *testing.T) {
	for _, together := range []bool{false, true} {
		t.Run(fmt.Sprintf("one process %v", together), func(t *testing.T) {
			a := newArena(t, nil)
			x, err := openWide(a)
			require.NoError(t, err)
			dump := proctest.Dump(func() string { return words(a) })
			slow := proctest.Start(t, "waitable/wide", proctest.Params(nameOf(a)), dump)
			slow.Await(t)
			if together {
				slow.Send("slowly and fast")
			} else {
				fast := proctest.Start(t, "waitable/wide", proctest.Params(nameOf(a)), dump)
				fast.Await(t)
				fast.Send("update")
				eventually(t, "it changes", func() string { return words(a) }, func() bool { return x.State()[1] > 1000 })
				slow.Send("slowly")
			}
			total := 0
			for range 10 {
				var runs int
				slow.Recv(t, &runs)
				total += runs
			}
			t.Logf("%d runs for 10 updates", total)
			require.Less(t, total, 10*25)
			was := x.State()[1]
			eventually(t, "the other goes on", func() string { return words(a) }, func() bool { return together || x.State()[1] > was+1000 })
		})
	}
}
