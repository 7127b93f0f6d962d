//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// condLitmus has the counts of several processes, guarded by one lock.
type condLitmus struct {
	Wakeups int64 // waits that returned nil
	Rounds  int64
	Done    int64 // goroutines that have ended
}

type condLitmusParams struct {
	Arena  string
	Rounds int64
	Seed   uint64
}

func init() {
	// This process makes waits whose deadlines are near the moment of the signal.
	proctest.Register("cond/litmus", func(c *proctest.Child) {
		var p condLitmusParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := condLitmusWait(a, p, 4); err != nil {
			c.Fatal(err)
		}
	})
	// This process makes waits of a microsecond, while another process calls Broadcast all the
	// time.
	proctest.Register("cond/storm", func(c *proctest.Child) {
		var p condLitmusParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		if err := condStormWait(a, p, 4); err != nil {
			c.Fatal(err)
		}
	})
}

func condLitmusOf(a *arena.Arena) (m *prims.Mutex, c *prims.Cond, v *condLitmus, err error) {
	if m, err = prims.OpenMutex(a, "m", nil); err != nil {
		return
	}
	if c, err = prims.OpenCond(a, "c", m, nil); err != nil {
		return
	}
	v, err = arena.Value[condLitmus](a, "v")
	return
}

func condLitmusWait(a *arena.Arena, p condLitmusParams, goroutines int) error {
	m, c, v, err := condLitmusOf(a)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	for g := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(p.Seed, uint64(g)))
			m.Lock()
			defer m.Unlock()
			for v.Rounds < p.Rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.IntN(60))*time.Microsecond)
				if r.IntN(8) == 0 {
					ctx, cancel = context.Background(), func() {}
				}
				err := c.WaitContext(ctx)
				cancel()
				switch {
				case err == nil:
					v.Wakeups++
				case !gaveUp(err):
					errs <- err
					return
				}
				v.Rounds++
			}
			v.Done++
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

func condRounds(normal int64) int64 {
	if n, err := strconv.ParseInt(os.Getenv("SHMSYNC_TEST_COND_ROUNDS"), 10, 64); err == nil {
		return n
	}
	return proctest.Rounds(normal/20, normal)
}

// TestCondTimeoutAgainstSignal: timeouts race with signals. Each signal that finds a waiter makes one wait return nil.
// The test gives the signals while it holds the lock, so no waiter returns meanwhile. It compares the state of the
// Cond before and after a signal to see whether the signal has found a waiter.
func TestCondTimeoutAgainstSignal(t *testing.T) {
	a := newArena(t, nil)
	m, c, v, err := condLitmusOf(a)
	require.NoError(t, err)
	p := condLitmusParams{nameOf(a), condRounds(50_000), rand.Uint64()}
	t.Logf("seed %#x", p.Seed)
	var procs []*proctest.Proc
	for range 2 {
		p.Seed++
		x := proctest.Start(t, "cond/litmus", proctest.Params(p), proctest.Dump(func() string { return words(a) }))
		x.Await(t)
		procs = append(procs, x)
	}
	r := rand.New(rand.NewPCG(p.Seed, 99))
	given, found := int64(0), int64(0)
	for done := false; !done; {
		m.Lock()
		if v.Rounds < p.Rounds {
			before := c.State()
			c.Signal()
			after := c.State()
			given++
			if after.Woken > before.Woken {
				found++
			}
		} else {
			c.Broadcast()
		}
		done = v.Done == 8
		rest := v.Rounds >= p.Rounds
		m.Unlock()
		if !rest {
			for range r.IntN(3000) {
			}
		}
	}
	for _, x := range procs {
		x.WaitExit(t)
	}
	t.Logf("%d rounds, %d signals, %d found somebody, %d wakeups", v.Rounds, given, found, v.Wakeups)
	require.Zero(t, c.State())
	require.Greater(t, found, int64(100))
	require.GreaterOrEqual(t, v.Wakeups, found)
	require.LessOrEqual(t, v.Wakeups, found+8, "more wakeups than the signals and the last broadcast can explain")
	sound(t, a)
}

func condStormWait(a *arena.Arena, p condLitmusParams, goroutines int) error {
	m, c, v, err := condLitmusOf(a)
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		wg.Go(func() {
			for range p.Rounds {
				ctx, cancel := context.WithTimeout(context.Background(), time.Microsecond)
				m.Lock()
				v.Rounds++
				err := c.WaitContext(ctx)
				if err == nil {
					v.Wakeups++
				}
				m.Unlock()
				cancel()
				if err != nil && !gaveUp(err) {
					errs <- err
					return
				}
			}
			m.Lock()
			v.Done++
			m.Unlock()
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}

// TestCondWaitForCancellationRace: 8 waiters make 256 waits of a microsecond each while the test
// calls Broadcast all the time. Each wait returns exactly once, with the lock held.
func TestCondWaitForCancellationRace(t *testing.T) {
	a := newArena(t, nil)
	_, c, v, err := condLitmusOf(a)
	require.NoError(t, err)
	m, _ := prims.OpenMutex(a, "m", nil)
	var procs []*proctest.Proc
	for range 2 {
		x := proctest.Start(t, "cond/storm", proctest.Params(condLitmusParams{Arena: nameOf(a), Rounds: 256}), proctest.Dump(func() string { return words(a) }))
		x.Await(t)
		procs = append(procs, x)
	}
	eventually(t, "all waits end", func() string { return words(a) }, func() bool {
		for range 1000 {
			c.Broadcast()
		}
		m.Lock()
		defer m.Unlock()
		return v.Done == 8
	})
	for _, x := range procs {
		x.WaitExit(t)
	}
	require.EqualValues(t, 8*256, v.Rounds)
	require.Zero(t, c.State())
	sound(t, a)
}

// TestCondSignalledThenDied: a process that was woken by a signal dies before it has locked the
// lock again. The signal passes once to the next waiter, but not to a waiter that came after the
// signal.
func TestCondSignalledThenDied(t *testing.T) {
	for _, kill := range []string{"killed", "stopped and killed"} {
		for _, later := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, later %v", kill, later), func(t *testing.T) {
				a := newArena(t, nil)
				x, here := remoteHand(t, a, "victim"), localHand(a)
				x.blocked(t, task{Op: "cwait", Name: "c"})
				var second, third int
				if !later {
					second = here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
				}
				m, err := prims.OpenMutex(a, "lock of c", nil)
				require.NoError(t, err)
				m.Lock()
				if kill != "killed" {
					x.proc.Stop(t)
				}
				here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
				third = here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
				if later {
					x.proc.Kill(t)
					alone(t, a, 1)
					c := condAt(t, a, "c")
					require.Equal(t, prims.CondState{Waiting: 1}, c.State(), "only the waiter that came after the signal still waits")
				} else {
					stays(t, here, second)
					x.proc.Kill(t)
					require.Empty(t, here.wait(t, second).Err)
					alone(t, a, 1)
					c := condAt(t, a, "c")
					require.Equal(t, prims.CondState{Waiting: 1}, c.State(), "the signal has passed on once, so one waiter is left")
				}
				m.Unlock()
				here.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
				require.Empty(t, here.wait(t, third).Err)
				sound(t, a)
			})
		}
	}
}

// TestCondLockOwnerDies: the owner of the lock dies. The woken waiter gets the error and does not
// hold the lock. Its signal passes on to the next waiter.
func TestCondLockOwnerDies(t *testing.T) {
	a := newArena(t, nil)
	x, here := remoteHand(t, a, "owner"), localHand(a)
	first := here.blocked(t, task{Op: "cwaitctx", Name: "c"})
	second := here.blocked(t, task{Op: "cwait", Name: "c"})
	other := remoteHand(t, a, "other")
	third := other.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	fourth := other.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"})
	x.must(t, task{Op: "clock", Name: "c"})
	x.must(t, task{Op: "csignal", Name: "c"})
	x.proc.Kill(t)
	r := here.wait(t, first)
	require.Equal(t, []string{"owner-dead"}, r.Is)
	require.Equal(t, "owner", r.Who.Label)
	r = here.wait(t, second)
	require.Equal(t, []string{"owner-dead"}, r.Is)
	require.NotEmpty(t, r.Panic)
	require.Empty(t, other.wait(t, third).Err, "this waiter uses another lock")
	stays(t, other, fourth)
	m, err := prims.OpenMutex(a, "lock of c", nil)
	require.NoError(t, err)
	require.NoError(t, m.RecoverContext(t.Context(), func() error { return nil }))
	c := condAt(t, a, "c")
	require.Equal(t, prims.CondState{Waiting: 1}, c.State())
	other.must(t, task{Op: "csignal", Name: "c", Lock: "local"})
	require.Empty(t, other.wait(t, fourth).Err)
	sound(t, a)
}

// TestCondBroadcastThenDied: some waiters that a Broadcast has woken die before they have locked
// the lock. They do not delay the other waiters.
func TestCondBroadcastThenDied(t *testing.T) {
	a := newArena(t, nil)
	x, here := remoteHand(t, a, "victim"), localHand(a)
	for range 40 {
		x.blocked(t, task{Op: "cwait", Name: "c"})
	}
	var ids []int
	for range 40 {
		ids = append(ids, here.blocked(t, task{Op: "cwait", Name: "c", Lock: "local"}))
	}
	m, err := prims.OpenMutex(a, "lock of c", nil)
	require.NoError(t, err)
	m.Lock()
	here.must(t, task{Op: "cbroadcast", Name: "c", Lock: "local"})
	x.proc.Kill(t)
	for _, id := range ids {
		require.Empty(t, here.wait(t, id).Err)
	}
	alone(t, a, 1)
	c := condAt(t, a, "c")
	require.Zero(t, c.State())
	sound(t, a)
}
