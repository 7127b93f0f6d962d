//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newOnce(t testing.TB, a *arena.Arena, name string) *prims.Once {
	t.Helper()
	o, err := prims.OpenOnce(a, name, nil)
	require.NoError(t, err)
	return o
}

func TestOnceInOneProcess(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	require.False(t, o.Done())
	n := 0
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			o.Do(func() { n++ })
			if n != 1 {
				t.Error("it has not returned")
			}
		})
	}
	wg.Wait()
	require.True(t, o.Done())
	require.Equal(t, prims.OnceState{Done: true}, o.State())
	require.NoError(t, o.Close())
}

// TestOncePanics: a function that panics, or ends its goroutine, counts as returned.
func TestOncePanics(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	require.PanicsWithValue(t, "once", func() { o.Do(func() { panic("once") }) })
	o.Do(func() { t.Error("a second time") })
	p := newOnce(t, a, "p")
	var wg sync.WaitGroup
	wg.Go(func() { p.Do(runtime.Goexit) })
	wg.Wait()
	p.Do(func() { t.Error("a second time") })
	x := gateActor(t, a, "x")
	require.Equal(t, "as told", x.do(t, order{Op: "once.do", Object: "q", N: 1}).Panic)
	newOnce(t, a, "q").Do(func() { t.Error("a second time") })
}

// TestOnceBetweenProcesses: calls of other processes wait until the function has returned, or until
// their context ends.
func TestOnceBetweenProcesses(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	x.must(t, order{Op: "block"})
	running := x.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
	require.Equal(t, "x", o.State().Runner.Label)
	id := gateBlocked(t, a, y, o.Offset(), order{Op: "once.do", Object: "o"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, o.DoContext(ctx, func() { t.Error("a second one") }))
	require.False(t, o.Done())
	stillQueued(t, a, o.Offset(), 1)
	x.must(t, order{Op: "unblock"})
	require.True(t, x.wait(t, running).OK)
	require.False(t, y.wait(t, id).OK, "run twice")
	require.NoError(t, o.DoContext(ctx, func() { t.Error("a second time") }))
	require.True(t, y.must(t, order{Op: "once.done", Object: "o"}).OK)
	// If no process runs a function, DoContext runs one even though its context has ended.
	ran := false
	require.NoError(t, newOnce(t, a, "").DoContext(ctx, func() { ran = true }))
	require.True(t, ran)
}

// TestOnceRunnerDies: if the runner is killed, one of the waiters runs its own function.
func TestOnceRunnerDies(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	victim, y, z := gateActor(t, a, "victim"), gateActor(t, a, "y"), gateActor(t, a, "z")
	victim.must(t, order{Op: "block"})
	victim.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return tr.Count[0] == 1 })
	one := gateBlocked(t, a, y, o.Offset(), order{Op: "once.do", Object: "o"})
	two := gateBlocked(t, a, z, o.Offset(), order{Op: "once.doctx", Object: "o"})
	victim.proc.Kill(t)
	ran := []bool{y.wait(t, one).OK, z.wait(t, two).OK}
	require.ElementsMatch(t, []bool{true, false}, ran)
	require.EqualValues(t, 2, tr.Count[0])
	o.Do(func() { t.Error("a third time") })

	// Here no process waits when the runner dies. The next call runs its function.
	victim = gateActor(t, a, "victim")
	victim.must(t, order{Op: "block"})
	victim.start(order{Op: "once.do", Object: "late", Token: 1})
	eventually(t, "it runs", o.String, func() bool { return tr.Count[1] == 1 })
	victim.proc.Kill(t)
	done := false
	newOnce(t, a, "late").Do(func() { done = true })
	require.True(t, done)
}

// TestOnceRace makes two processes call Do on the same Onces, one Once after the other. It checks that one function
// of each Once runs, and that no call returns before that function has returned.
func TestOnceRace(t *testing.T) {
	n := proctest.Rounds(200, 2000)
	a := newArena(t, nil)
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	one := x.start(order{Op: "once.race", Object: "o", N: n})
	gateSmooth(t, y.do(t, order{Op: "once.race", Object: "o", N: n}))
	gateSmooth(t, x.wait(t, one))
	require.EqualValues(t, n, tr.Count[0])
}

func TestOnceStoppedRunner(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "block"})
	id := x.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
	x.proc.Stop(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, o.DoContext(ctx, func() { t.Error("beside the stopped") }))
	x.proc.Cont(t)
	x.must(t, order{Op: "unblock"})
	require.True(t, x.wait(t, id).OK)
	require.True(t, o.Done())
}

// TestOnceStoppedWaiterKeepsNobody checks that another call can run its function if the runner dies while a waiter is
// stopped.
func TestOnceStoppedWaiterKeepsNobody(t *testing.T) {
	a := newArena(t, nil)
	o := newOnce(t, a, "o")
	runner, stopped := gateActor(t, a, "runner"), gateActor(t, a, "stopped")
	runner.must(t, order{Op: "block"})
	runner.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
	id := gateBlocked(t, a, stopped, o.Offset(), order{Op: "once.do", Object: "o", Token: 1})
	stopped.proc.Stop(t)
	runner.proc.Kill(t)
	ran := false
	o.Do(func() { ran = true })
	require.True(t, ran)
	stopped.proc.Cont(t)
	ans := stopped.wait(t, id)
	gateSmooth(t, ans)
	require.False(t, ans.OK, "it has run twice")
	sound(t, a)
}
