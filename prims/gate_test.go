//go:build linux

package prims_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// gate has the methods that WaitGroup, Latch, Barrier and Once have in common.
type gate interface {
	Offset() arena.Offset
	Close() error
	String() string
}

// gates opens a WaitGroup, a Latch, a Barrier and a Once.
func gates(t testing.TB, a *arena.Arena) map[string]gate {
	return map[string]gate{
		"waitgroup": newWaitGroup(t, a, "w"), "latch": newLatch(t, a, "l", 3),
		"barrier": newBarrier(t, a, "b", 2, nil), "once": newOnce(t, a, "o"),
	}
}

var errNotOpened = errors.New("not opened")

// gateAt opens an object by its offset.
func gateAt(kind string, a *arena.Arena, off arena.Offset) (gate, error) {
	switch kind {
	case "waitgroup":
		return prims.WaitGroupAt(a, off)
	case "latch":
		return prims.LatchAt(a, off)
	case "barrier":
		return prims.BarrierAt(a, off)
	case "once":
		return prims.OnceAt(a, off)
	}
	return nil, errNotOpened
}

func TestGateHandles(t *testing.T) {
	a := newArena(t, nil)
	all := gates(t, a)
	for kind, g := range all {
		same, err := gateAt(kind, a, g.Offset())
		require.NoError(t, err)
		require.False(t, same == g, "each opening is a handle of its own")
		require.Contains(t, g.String(), kind)
		require.NoError(t, same.Close())
		for other, o := range all {
			if other != kind {
				_, err := gateAt(kind, a, o.Offset())
				require.ErrorIs(t, err, shmsync.ErrIncompatible, "%s for %s", other, kind)
			}
		}
		_, err = gateAt(kind, a, 12345)
		require.Error(t, err)
	}
	_, err := prims.OpenOnce(a, "w", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.OpenLatch(a, "l", 4, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "began with 3, asked for 4")
	_, err = prims.OpenBarrier(a, "b", 5, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "began with 2 parties, asked for 5")
	l, err := prims.AttachLatch(a, "l", nil)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	for kind, g := range all {
		require.NoError(t, g.Close(), kind)
		require.ErrorIs(t, g.Close(), shmsync.ErrClosed)
	}
	for _, name := range []string{"w", "l", "b", "o"} {
		require.NoError(t, a.Delete(name), "nobody has it open any more")
	}
	spun, err := prims.OpenLatch(a, "", 1, &prims.LatchOptions{Spin: -1})
	require.NoError(t, err)
	spun.ArriveAndWait(1)
}

// TestGateArenaClosed: if a process closes the arena, the waits of its goroutines end.
func TestGateArenaClosed(t *testing.T) {
	name := arenaName(t)
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	g, l, b := newWaitGroup(t, a, "w"), newLatch(t, a, "l", 1), newBarrier(t, a, "b", 2, nil)
	g.Add(1)
	errs := make(chan error, 3)
	go func() { errs <- g.WaitContext(context.Background()) }()
	go func() { errs <- l.WaitContext(context.Background()) }()
	go func() { errs <- b.ArriveAndWaitContext(context.Background()) }()
	eventually(t, "they wait", func() string { return words(a) }, func() bool {
		return g.State().Waiting && l.State().Waiting && b.State().Waiting
	})
	require.NoError(t, a.Close())
	for range 3 {
		require.ErrorIs(t, <-errs, shmsync.ErrClosed)
	}
}

// TestGateNoSpace: in an arena without room, WaitGroup, Latch, Barrier and Once still work, because
// their waits need no memory of the arena.
func TestGateNoSpace(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20, MaxParticipants: 4})
	g, l, b, o := newWaitGroup(t, a, "w"), newLatch(t, a, "l", 1), newBarrier(t, a, "plain", 2, nil), newOnce(t, a, "o")
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "block"})
	running := x.start(order{Op: "once.do", Object: "o"})
	eventually(t, "it runs", o.String, func() bool { return o.State().Runner != nil })
	for size := uint64(64 << 10); size >= 64; size /= 2 {
		for {
			if _, err := a.Alloc(size, 8); err != nil {
				require.ErrorIs(t, err, shmsync.ErrNoSpace)
				break
			}
		}
	}
	g.Add(1)
	ctx := t.Context()
	soon, cancel := context.WithTimeout(ctx, time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, g.WaitContext(soon))
	require.Equal(t, context.DeadlineExceeded, l.WaitContext(soon))
	require.Equal(t, context.DeadlineExceeded, b.ArriveAndWaitContext(soon))
	require.Equal(t, context.DeadlineExceeded, o.DoContext(soon, func() { t.Error("a function runs beside that of the runner") }))
	require.Equal(t, int64(1), b.State().Pending, "the arrival stays")
	b.Arrive(1)
	require.NoError(t, b.WaitContext(ctx, 0))
	g.Done()
	require.NoError(t, g.WaitContext(ctx))
	l.ArriveAndWait(1)
	x.must(t, order{Op: "unblock"})
	x.wait(t, running)
	require.NoError(t, o.DoContext(ctx, nil))
}

// TestGateHerd: thousands of goroutines wait at a WaitGroup, a Latch, a Barrier and a Once, and are
// released together.
func TestGateHerd(t *testing.T) {
	herd := proctest.Rounds(200, 1000)
	a := newArena(t, nil)
	g, l, b, o := newWaitGroup(t, a, "w"), newLatch(t, a, "l", 1), newBarrier(t, a, "b", int64(herd)+1, nil), newOnce(t, a, "o")
	g.Add(1)
	hold, held := make(chan bool), make(chan bool)
	go o.Do(func() { close(held); <-hold })
	<-held
	errs := make(chan error, 4*herd)
	ctx := t.Context()
	for range herd {
		go func() { errs <- g.WaitContext(ctx) }()
		go func() { errs <- l.WaitContext(ctx) }()
		go func() { errs <- b.ArriveAndWaitContext(ctx) }()
		go func() { errs <- o.DoContext(ctx, func() { t.Error("a second function runs") }) }()
	}
	eventually(t, "all wait", func() string { return words(a) }, func() bool {
		for _, x := range []gate{g, l, b, o} {
			if queued(a, x.Offset()) != herd {
				return false
			}
		}
		return true
	})
	require.Empty(t, errs)
	g.Done()
	l.CountDown(1)
	b.ArriveAndWait()
	close(hold)
	for range 4 * herd {
		require.NoError(t, <-errs)
	}
}

// TestGateAllocations: calls that do not block allocate nothing.
func TestGateAllocations(t *testing.T) {
	a := newArena(t, nil)
	g, l, b, o := newWaitGroup(t, a, ""), newLatch(t, a, "", 1<<30), newBarrier(t, a, "", 1, nil), newOnce(t, a, "")
	o.Do(func() {})
	ctx, open := t.Context(), newLatch(t, a, "", 1)
	open.CountDown(1)
	for what, f := range map[string]func(){
		"waitgroup": func() {
			g.Add(2)
			g.Done()
			g.Add(-1)
			g.Wait()
			g.WaitContext(ctx)
			g.Reset()
		},
		"latch":   func() { l.Claim(1); l.CountDown(2); l.TryWait(); open.Wait(); open.WaitContext(ctx) },
		"barrier": func() { b.ArriveAndWait(); b.Wait(b.Arrive(1)); b.ArriveAndWaitContext(ctx) },
		"once":    func() { o.Do(nil); o.DoContext(ctx, nil); o.Done() },
	} {
		require.Zero(t, testing.AllocsPerRun(1000, f), what)
	}
	if race.Enabled {
		return
	}
	// A wait that blocks allocates nothing either, once the process has a wait node.
	two := newBarrier(t, a, "", 2, nil)
	stop, end := make(chan bool), make(chan bool)
	go func() {
		defer close(end)
		for {
			two.ArriveAndWait()
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	n := testing.AllocsPerRun(2000, two.ArriveAndWait)
	close(stop)
	two.Arrive(1)
	eventually(t, "the other ends", two.String, func() bool {
		select {
		case <-end:
			return true
		default:
			if two.State().Pending == 1 {
				two.Arrive(1)
			}
			return false
		}
	})
	require.LessOrEqual(t, n, 1.0, "a wake allocates more than its list")
}

func BenchmarkWaitGroupAddDone(b *testing.B) {
	g := newWaitGroup(b, newArena(b, nil), "")
	b.ReportAllocs()
	for b.Loop() {
		g.Add(1)
		g.Done()
	}
}

// BenchmarkWaitGroupAddDoneBeside: another process has work of its own, so each change goes through a record.
func BenchmarkWaitGroupAddDoneBeside(b *testing.B) {
	a := newArena(b, nil)
	g := newWaitGroup(b, a, "g")
	gateActor(b, a, "x").must(b, order{Op: "wg.add", Object: "g", N: 1})
	for b.Loop() {
		g.Add(1)
		g.Done()
	}
}

func BenchmarkWaitGroupWait(b *testing.B) {
	g := newWaitGroup(b, newArena(b, nil), "")
	b.ReportAllocs()
	for b.Loop() {
		g.Wait()
	}
}

func BenchmarkLatchCountDown(b *testing.B) {
	l := newLatch(b, newArena(b, nil), "", 1<<31-1)
	b.ReportAllocs()
	for b.Loop() {
		l.CountDown(1)
	}
}

func BenchmarkOnceDone(b *testing.B) {
	o := newOnce(b, newArena(b, nil), "")
	o.Do(func() {})
	b.ReportAllocs()
	for b.Loop() {
		o.Do(nil)
	}
}

func BenchmarkBarrierAlone(b *testing.B) {
	x := newBarrier(b, newArena(b, nil), "", 1, nil)
	b.ReportAllocs()
	for b.Loop() {
		x.ArriveAndWait()
	}
}

// BenchmarkBarrierPhase measures a phase with two processes.
func BenchmarkBarrierPhase(b *testing.B) {
	a := newArena(b, nil)
	x := newBarrier(b, a, "plain", 2, nil)
	p := gateActor(b, a, "x")
	phases := b.N
	id := p.start(order{Op: "barrier.spin", Object: "plain", N: phases})
	b.ResetTimer()
	for range phases {
		x.ArriveAndWait()
	}
	b.StopTimer()
	gateSmooth(b, p.wait(b, id))
}

// BenchmarkBarrierPhaseC measures a phase of a barrier of the C library with two processes, for comparison. It needs
// a C compiler.
func BenchmarkBarrierPhaseC(b *testing.B) {
	cc := proctest.CCompiler(b)
	bin := filepath.Join(b.TempDir(), "barrier")
	out, err := exec.Command(cc, "-O2", "-pthread", "-o", bin, filepath.Join("testdata", "barrier.c")).CombinedOutput()
	require.NoError(b, err, "%s", out)
	b.ResetTimer()
	start := time.Now()
	require.NoError(b, exec.Command(bin, strconv.Itoa(b.N)).Run())
	b.ReportMetric(float64(time.Since(start).Nanoseconds())/float64(b.N), "ns/phase")
}
