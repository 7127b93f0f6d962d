//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// These tests have the names that silk uses for its FiberFuture. They run in one process and
// between processes.

func newFuture(t testing.TB, a *arena.Arena) *prims.Future {
	t.Helper()
	f, err := prims.OpenFuture(a, "", nil)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func TestFutureWaitSignaled(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		require.False(t, x.must(t, task{Op: "isset", Name: "f"}).OK)
		require.True(t, y.must(t, task{Op: "set", Name: "f", Errno: 7}).OK)
		// The first Set counts.
		require.False(t, x.must(t, task{Op: "set", Name: "f", Errno: 8}).OK)
		for _, h := range []*hand{x, y} {
			require.EqualValues(t, 7, h.must(t, task{Op: "wait", Name: "f"}).N)
			// A set Future takes precedence over a context that has ended.
			require.EqualValues(t, 7, h.must(t, task{Op: "waitctx", Name: "f", Ended: true}).N)
			r := h.must(t, task{Op: "isset", Name: "f"})
			require.True(t, r.OK)
			require.EqualValues(t, 7, r.N)
			require.False(t, h.must(t, task{Op: "own", Name: "f"}).OK)
		}
	})
}

// As waitFromFiber and waitFromThread in silk: any number of goroutines wait, some on their own threads and some
// without a thread, through the poller.
func TestFutureWait(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		var xs, ys []int
		for range 20 {
			xs = append(xs, x.blocked(t, task{Op: "wait", Name: "f"}))
			ys = append(ys, y.blocked(t, task{Op: "waitctx", Name: "f"}))
		}
		require.True(t, y.must(t, task{Op: "own", Name: "f"}).OK)
		require.True(t, y.must(t, task{Op: "own", Name: "f"}).OK, "it is the producer")
		require.True(t, y.must(t, task{Op: "set", Name: "f", Errno: 0xffff_fffe}).OK)
		for i := range xs {
			require.EqualValues(t, uint32(0xffff_fffe), x.wait(t, xs[i]).N)
			require.EqualValues(t, uint32(0xffff_fffe), y.wait(t, ys[i]).N)
		}
	})
}

// As waitWithTimeout in silk: the timeout is zero, or it expires, or the wait ends before the timeout.
func TestFutureWaitWithTimeout(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		require.Equal(t, []string{"ctx-canceled"}, x.do(t, task{Op: "waitctx", Name: "f", Ended: true}).Is)
		r := x.do(t, task{Op: "waitctx", Name: "f", Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.GreaterOrEqual(t, r.Took, 20*time.Millisecond)
		var ids []int
		for range 20 {
			ids = append(ids, x.blocked(t, task{Op: "waitctx", Name: "f"}))
		}
		for _, id := range ids[:10] {
			x.must(t, task{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, x.wait(t, id).Is)
		}
		require.False(t, x.must(t, task{Op: "isset", Name: "f"}).OK, "untouched")
		y.must(t, task{Op: "set", Name: "f"})
		for _, id := range ids[10:] {
			require.Empty(t, x.wait(t, id).Err)
		}
	})
}

// As beforeSet and alreadySet of subscribe in silk. The test also cancels a subscription, and closes the arena. In
// each case the function runs exactly once.
func TestFutureSubscribe(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		var ids []int
		for range 20 {
			ids = append(ids, x.blocked(t, task{Op: "subscribe", Name: "f"}))
		}
		require.True(t, x.must(t, task{Op: "unsubscribe", Name: "f", N: ids[3]}).OK)
		require.Equal(t, []string{"canceled"}, x.wait(t, ids[3]).Is)
		y.must(t, task{Op: "set", Name: "f", Errno: 3})
		for i, id := range ids {
			if i != 3 {
				r := x.wait(t, id)
				require.Empty(t, r.Err)
				require.EqualValues(t, 3, r.N)
			}
		}
		require.False(t, x.must(t, task{Op: "unsubscribe", Name: "f", N: ids[4]}).OK)
		require.EqualValues(t, 3, x.must(t, task{Op: "subscribe", Name: "f"}).N)
	})
	t.Run("arena close", func(t *testing.T) {
		a := newArena(t, nil)
		x := remoteHand(t, a, "x")
		id := x.blocked(t, task{Op: "subscribe", Name: "f"})
		x.must(t, task{Op: "close-arena"})
		require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	})
}

func TestFutureResetAndReuse(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		require.False(t, x.must(t, task{Op: "reset", Name: "f"}).OK, "it is not set")
		for n := range 5 {
			id := x.blocked(t, task{Op: "wait", Name: "f"})
			require.False(t, y.must(t, task{Op: "reset", Name: "f"}).OK, "somebody waits")
			y.must(t, task{Op: "own", Name: "f"})
			require.True(t, y.must(t, task{Op: "set", Name: "f", Errno: syscall.Errno(n)}).OK)
			require.True(t, y.must(t, task{Op: "reset", Name: "f"}).OK)
			// A waiter that began before the Reset still gets the result of its round.
			require.EqualValues(t, n, x.wait(t, id).N)
			require.False(t, x.must(t, task{Op: "isset", Name: "f"}).OK)
			// After the Reset no process has claimed the Future.
			require.True(t, x.must(t, task{Op: "own", Name: "f"}).OK)
			require.True(t, x.must(t, task{Op: "set", Name: "f"}).OK)
			require.True(t, x.must(t, task{Op: "reset", Name: "f"}).OK)
		}
	})
}

// As setAll in silk: one call sets many futures, of which some are set already.
func TestFutureSetAll(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		var names []string
		var ids []int
		for i := range 40 {
			names = append(names, fmt.Sprintf("f%d", i))
			ids = append(ids, x.blocked(t, task{Op: "wait", Name: names[i]}))
		}
		y.must(t, task{Op: "set", Name: "f7", Errno: 1})
		names = append(names, "f3") // f3 is in the list twice
		require.EqualValues(t, 39, y.must(t, task{Op: "setall", Names: names, Errno: 2}).N)
		for i, id := range ids {
			r := x.wait(t, id)
			require.Empty(t, r.Err)
			if i == 7 {
				require.EqualValues(t, 1, r.N)
			} else {
				require.EqualValues(t, 2, r.N)
			}
		}
		require.Zero(t, y.must(t, task{Op: "setall"}).N)
	})
}

// TestFutureProducerDies: the producer dies. All present and later waits report the death until
// Reset, and the Future cannot be set.
func TestFutureProducerDies(t *testing.T) {
	a := newArena(t, nil)
	x, y, here := remoteHand(t, a, "producer"), remoteHand(t, a, "y"), localHand(a)
	require.True(t, x.must(t, task{Op: "own", Name: "f"}).OK)
	require.False(t, y.must(t, task{Op: "own", Name: "f"}).OK, "another process is the producer")
	st := here.must(t, task{Op: "state", Name: "f"})
	require.Equal(t, "producer", st.Who.Label)
	var ids [2][]int
	for range 15 {
		ids[0] = append(ids[0], y.blocked(t, task{Op: "wait", Name: "f"}))
		ids[1] = append(ids[1], here.blocked(t, task{Op: "waitctx", Name: "f"}))
	}
	sub := y.blocked(t, task{Op: "subscribe", Name: "f"})
	any := here.blocked(t, task{Op: "any", Name: "f", Names: []string{"g", "f"}})
	x.proc.Kill(t)
	dead := func(r answer) {
		require.Equal(t, []string{"owner-dead"}, r.Is)
		require.NotNil(t, r.Who)
		require.Equal(t, "producer", r.Who.Label)
	}
	for i := range ids[0] {
		dead(y.wait(t, ids[0][i]))
		dead(here.wait(t, ids[1][i]))
	}
	dead(y.wait(t, sub))
	r := here.wait(t, any)
	dead(r)
	require.Equal(t, "1", r.Text)
	alone(t, a, 2)
	for _, h := range []*hand{y, here} {
		dead(h.do(t, task{Op: "wait", Name: "f"}))
		dead(h.do(t, task{Op: "subscribe", Name: "f"}))
		dead(h.do(t, task{Op: "all", Names: []string{"f"}}))
		require.False(t, h.must(t, task{Op: "set", Name: "f"}).OK)
		require.False(t, h.must(t, task{Op: "own", Name: "f"}).OK)
		require.False(t, h.must(t, task{Op: "isset", Name: "f"}).OK)
		require.Equal(t, []string{"owner-dead"}, h.do(t, task{Op: "state", Name: "f"}).Is)
	}
	require.True(t, here.must(t, task{Op: "reset", Name: "f"}).OK)
	id := y.blocked(t, task{Op: "wait", Name: "f"})
	require.True(t, here.must(t, task{Op: "set", Name: "f", Errno: 4}).OK)
	require.EqualValues(t, 4, y.wait(t, id).N)
	// A Future that was set before its producer died stays set.
	z := remoteHand(t, a, "z")
	z.must(t, task{Op: "own", Name: "h"})
	z.must(t, task{Op: "set", Name: "h", Errno: 5})
	z.proc.Kill(t)
	alone(t, a, 2)
	require.EqualValues(t, 5, here.must(t, task{Op: "wait", Name: "h"}).N)
	sound(t, a)
}

func TestFutureOpen(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFuture(a, "f", &prims.FutureOptions{Spin: -1})
	require.NoError(t, err)
	g, err := prims.FutureAt(a, f.Offset())
	require.NoError(t, err)
	require.NotSame(t, f, g)
	require.Equal(t, "future f: unset", f.String())
	f.Claim()
	require.Contains(t, f.String(), "future f: claimed by 1.")
	f.Set(0)
	require.Equal(t, "future f: set", f.String())
	f.Reset()
	f.Set(12)
	require.Equal(t, "future f: set to errno 12", f.String())
	require.Equal(t, prims.FutureState{Set: true, Errno: 12}, f.State())
	_, err = prims.OpenMutex(a, "f", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.FutureAt(a, newMutex(t, a, nil).Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.NoError(t, f.Close())
	require.NoError(t, g.Close())
	require.ErrorIs(t, f.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("f"))
}

func TestFutureAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("needs a build without the race detector, which allocates")
	}
	a := newArena(t, nil)
	f, g := newFuture(t, a), newFuture(t, a)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		f.Claim()
		f.Set(1)
		f.IsSet()
		f.Wait()
		f.Reset()
	}))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			e, err := f.Wait()
			if err != nil || e == 1 {
				return
			}
			f.Reset()
			g.Set(0)
		}
	}()
	n := testing.AllocsPerRun(2000, func() {
		f.Set(0)
		g.Wait()
		g.Reset()
	})
	f.Set(1)
	<-ended
	require.Zero(t, n)
}

// These tests are about waits for several objects.

func TestWaitAnyOfNone(t *testing.T) {
	i, err := prims.WaitAny()
	require.Equal(t, -1, i)
	require.NoError(t, err)
	require.NoError(t, prims.WaitAll())
}

// As waitForMultiple in silk: single, firstAlreadySet, middleAlreadySet, returnIndex. In addition,
// several processes wait, and the list has duplicates and objects of several kinds.
func TestWaitAny(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		names := []string{"f0", "f1", "e@1", "f2", "f1", "e@2"}
		for i, n := range []string{"f0", "f1", "e", "f2"} {
			id := x.blocked(t, task{Op: "any", Name: "f2", Names: names})
			op := task{Op: "set", Name: n}
			if n == "e" {
				op.Op = "post"
			}
			y.must(t, op)
			r := x.wait(t, id)
			require.Empty(t, r.Err)
			require.Equal(t, fmt.Sprint(i), r.Text)
			// WaitAny returns the lowest index at once.
			r = y.must(t, task{Op: "any", Names: []string{"g", "e@9", names[i], "f0", "f1"}, Ended: true})
			want := 2
			require.Equal(t, fmt.Sprint(want), r.Text)
			if n != "e" {
				require.True(t, y.must(t, task{Op: "reset", Name: n}).OK)
				continue
			}
			names[2] = "e@2"
			names[5] = "e@3"
		}
		// If no object of the list changes, WaitAny ends with its context. Then one post ends 20 calls of WaitAny.
		r := x.do(t, task{Op: "any", Names: names, Limit: 20 * time.Millisecond})
		require.Equal(t, []string{"ctx-deadline"}, r.Is)
		require.Equal(t, "-1", r.Text)
		require.Zero(t, waitersOf(a, "f0")+waitersOf(a, "f1")+waitersOf(a, "f2"))
		var ids []int
		for range 20 {
			ids = append(ids, x.blocked(t, task{Op: "any", Name: "f2", Names: names}))
		}
		y.must(t, task{Op: "post", Name: "e"})
		for _, id := range ids {
			require.Equal(t, "2", x.wait(t, id).Text)
		}
	})
}

func TestWaitAll(t *testing.T) {
	hands(t, func(t *testing.T, x, y *hand, a *arena.Arena) {
		names := []string{"f0", "e@2", "f1", "f0", "f2"}
		id := x.blocked(t, task{Op: "all", Name: "f2", Names: names})
		y.must(t, task{Op: "set", Name: "f2"})
		// The wait remembers the result of f2, although f2 is reset now.
		y.must(t, task{Op: "reset", Name: "f2"})
		y.must(t, task{Op: "post", Name: "e"})
		y.must(t, task{Op: "set", Name: "f0"})
		y.must(t, task{Op: "post", Name: "e"})
		stays(t, x, id)
		y.must(t, task{Op: "set", Name: "f1"})
		require.Empty(t, x.wait(t, id).Err)
		require.Equal(t, []string{"ctx-deadline"}, x.do(t, task{Op: "all", Names: names, Limit: 20 * time.Millisecond}).Is)
		y.must(t, task{Op: "set", Name: "f2"})
		x.must(t, task{Op: "all", Names: names, Ended: true})
	})
}

// As waitForMultipleConcurrent in silk: several goroutines set 16 futures at once, 1000 times.
func TestWaitAnyConcurrent(t *testing.T) {
	a := newArena(t, nil)
	rounds := proctest.Rounds(100, 1000)
	var futures [16]*prims.Future
	var list []prims.Awaitable
	for i := range futures {
		futures[i] = newFuture(t, a)
		list = append(list, futures[i])
	}
	for n := range rounds {
		var wg sync.WaitGroup
		var set atomic.Int32
		for w := range 4 {
			wg.Go(func() {
				for i := range 4 {
					if futures[w*4+i].Set(syscall.Errno(n)) {
						set.Add(1)
					}
				}
			})
		}
		i, err := prims.WaitAnyContext(t.Context(), list...)
		require.NoError(t, err)
		e, ok := futures[i].IsSet()
		require.True(t, ok)
		require.EqualValues(t, n, e)
		require.NoError(t, prims.WaitAllContext(t.Context(), list...))
		wg.Wait()
		require.EqualValues(t, 16, set.Load())
		for _, f := range futures {
			require.True(t, f.Reset())
		}
	}
	require.LessOrEqual(t, a.Stats().Nodes, uint64(40))
	sound(t, a)
}

// TestWaitAnyEnds: a WaitAny ends when a Pending in its list ends or is canceled, when a Futex in its
// list is stopped, and when its process leaves the arena.
func TestWaitAnyEnds(t *testing.T) {
	a := newArena(t, nil)
	f, g := newFuture(t, a), newFuture(t, a)
	e, err := prims.OpenFutex(a, "", nil)
	require.NoError(t, err)
	var calls atomic.Int32
	p := g.Subscribe(func(syscall.Errno, error) { calls.Add(1) })
	got := make(chan answer, 1)
	start := func(list ...prims.Awaitable) {
		go func() {
			i, err := prims.WaitAnyContext(t.Context(), list...)
			r := answer{Text: fmt.Sprint(i)}
			r.fill(err)
			got <- r
		}()
		eventually(t, "it waits", f.String, func() bool { return f.State().Waiting })
	}
	start(f, p)
	g.Set(1)
	require.Equal(t, "1", (<-got).Text)
	require.NoError(t, prims.WaitAllContext(t.Context(), p, p))
	eventually(t, "it was called", g.String, func() bool { return calls.Load() == 1 })
	q := newFuture(t, a).Subscribe(func(_ syscall.Errno, err error) {
		if errors.Is(err, shmsync.ErrCanceled) {
			calls.Add(1)
		}
	})
	start(f, q)
	require.True(t, q.Cancel())
	require.Equal(t, []string{"canceled"}, (<-got).Is)
	start(f, e.At(3))
	e.Post()
	e.Stop()
	r := <-got
	require.Equal(t, "1", r.Text)
	require.Equal(t, []string{"canceled"}, r.Is)
	require.Panics(t, func() { e.At(1 << 63) })
	x := remoteHand(t, a, "x")
	id := x.blocked(t, task{Op: "any", Name: "f", Names: []string{"f", "other@1"}})
	x.must(t, task{Op: "close-arena"})
	require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
}

// TestWaitAllEndsWithTheArena: a process closes the arena while it waits for several objects. One WaitAll ends with
// ErrClosed for all of them.
func TestWaitAllEndsWithTheArena(t *testing.T) {
	for _, names := range [][]string{{"f", "g"}, {"e@1", "h@1"}, {"f", "e@1", "g", "h@1"}} {
		a := newArena(t, nil)
		x := remoteHand(t, a, "x")
		last := strings.TrimSuffix(names[len(names)-1], "@1")
		id := x.blocked(t, task{Op: "all", Name: last, Names: names})
		x.must(t, task{Op: "close-arena"})
		require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	}
}

// TestFutureValue: a process that has seen the Future set sees the value that was written before
// Set.
func TestFutureValue(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFuture(a, "f", nil)
	require.NoError(t, err)
	v, err := arena.Value[[64]uint64](a, "value of f")
	require.NoError(t, err)
	x := proctest.Start(t, "future/value", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	x.Await(t)
	for n := range uint64(1000) {
		e, err := f.Wait()
		require.NoError(t, err)
		require.EqualValues(t, n, e)
		for _, w := range v {
			require.Equal(t, n, w)
		}
		require.True(t, f.Reset())
		x.Send(n)
	}
	x.WaitExit(t)
}

func init() {
	proctest.Register("future/value", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		f, err := prims.OpenFuture(a, "f", nil)
		if err != nil {
			c.Fatal(err)
		}
		v, err := arena.Value[[64]uint64](a, "value of f")
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for n := range uint64(1000) {
			for i := range v {
				v[i] = n
			}
			f.Claim()
			f.Set(syscall.Errno(n))
			c.Await()
		}
	})
}

// TestFutureStoppedWaiter: a waiter that does not run for a while gets the result of its round. If
// the Future no longer keeps that result, the waiter gets a later one.
func TestFutureStoppedWaiter(t *testing.T) {
	for _, c := range []struct{ results, want int }{{1, 0}, {31, 0}, {40, 39}} {
		a := newArena(t, nil)
		x := remoteHand(t, a, "x")
		id := x.blocked(t, task{Op: "wait", Name: "f"})
		any := x.blocked(t, task{Op: "all", Name: "f", Names: []string{"f"}})
		x.proc.Stop(t)
		f, err := prims.OpenFuture(a, "f", nil)
		require.NoError(t, err)
		for n := range c.results {
			require.True(t, f.Set(syscall.Errno(n)))
			require.True(t, f.Reset())
		}
		x.proc.Cont(t)
		require.EqualValues(t, c.want, x.wait(t, id).N)
		require.Empty(t, x.wait(t, any).Err)
		require.NoError(t, f.Close())
	}
}
