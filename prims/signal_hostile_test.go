//go:build linux

package prims_test

import (
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// guardedSignal runs f. It returns an error if f does not return, or if f panics. Two kinds of panic are allowed: f may
// have finished or released something that this process does not have, and there may be too many permits.
func guardedSignal(what string, words func() string, f func()) error {
	return guardedBy(func(r any) bool {
		s, ok := r.(string)
		return ok && (strings.Contains(s, "does not execute it") || strings.Contains(s, "without Register") || strings.Contains(s, "has not reserved") ||
			strings.Contains(s, "too many permits"))
	}, what, words, f)
}

func signalOps(w *prims.SignalWaker, ctx context.Context) map[string]func() {
	return map[string]func(){
		"Next":     func() { g, ok := w.Next(3); finishIf(&g, ok) },
		"Next 2":   func() { g, ok := w.Next(w.Queues() - 1); finishIf(&g, ok) },
		"Schedule": func() { w.Gate(1).Schedule() },
		"Begin":    func() { g := w.Gate(1); finishIf(g, g.Begin()) },
		"Inline":   func() { g := w.Gate(64); finishIf(g, g.TryBeginInline()) },
		"Again":    func() { g := w.Gate(1); g.Schedule(); g.Begin(); g.FinishAndSchedule() },
		"Acquire":  func() { w.AcquireContext(ctx) },
		"Acquire of two": func() {
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() { w.AcquireContext(ctx) })
			}
			wg.Wait()
		},
		"PolicyRelease": func() { w.Release(2) },
		"Mark":          func() { w.MarkActive(1); w.MarkActiveMask(5); w.TryUnmark(0); w.TryUnmarkIfEmpty(1) },
		"Status":        func() { w.MarkYield(); w.TryUnmarkYield(); w.MarkTasks(); w.TryUnmarkTasks() },
		"Sync":          func() { w.SyncPartitionSummary(0, 3, nil); w.MarkPartitionLeafActive(7); w.ClearPartitionLeaf(7) },
		"Tasks": func() {
			if q, ok := w.ReserveTask(); ok {
				w.ReleaseTask(q)
			}
		},
		"Workers": func() { w.RegisterWorker(); w.UnregisterWorker() },
		"Sleeper": func() { w.RegisterSleeper(); w.UnregisterSleeper() },
		"Health": func() {
			_ = w.Health()
			_ = w.String()
			_ = w.Stats()
			_ = w.Gate(0).State()
			_ = prims.CheckSignals(w)
		},
		"Repair": func() { w.Repair(1 | 1<<11); w.Repair(5 | 9<<11) },
	}
}

func finishIf(g *prims.Gate, ok bool) {
	if ok {
		g.Finish()
	}
}

func hostileSignals(t testing.TB, w *prims.SignalWaker, bytes []byte, words func() string) {
	ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
	defer cancel()
	for what, f := range signalOps(w, ctx) {
		w.Scribble(bytes)
		require.NoError(t, guardedSignal(what, words, f), "%x", bytes)
	}
	// After the damage the waker can be made valid again.
	w.Unscribble()
	w.Gate(3).Schedule()
	g, ok := w.Next(0)
	require.True(t, ok)
	require.False(t, g.Finish())
	w.Unscribble()
}

func signalSeed(r *rand.Rand) []byte {
	b := make([]byte, 8*(7+5*3))
	for k := 0; k < len(b); k += 8 {
		v := r.Uint64()
		switch r.IntN(4) {
		case 0:
			v = 0
		case 1:
			v &= r.Uint64() & r.Uint64()
		case 2:
			v = v&0x7 | 1<<11 | v&(3<<29)
		}
		binary.LittleEndian.PutUint64(b[k:], v)
	}
	return b
}

func TestHostileSignalWaker(t *testing.T) {
	a := newArena(t, nil)
	w, err := prims.OpenSignalWaker(a, "w", &prims.SignalWakerOptions{Signals: 3})
	require.NoError(t, err)
	defer w.Close()
	r := rand.New(rand.NewPCG(3, 4))
	rounds := proctest.Rounds(10, 60)
	describe := func() string { return words(a) }
	for range rounds {
		hostileSignals(t, w, signalSeed(r), describe)
	}
	ones := make([]byte, 8*22)
	for i := range ones {
		ones[i] = 0xff
	}
	hostileSignals(t, w, ones, describe)
	// The head claims more signals or rows than the object has room for, and opening fails.
	for _, head := range [][2]uint32{{4, 128}, {64, 128}, {255, 128}, {3, 1 << 31}, {3, 127}, {0, 128}} {
		config, rows := w.SetHead(head[0], head[1])
		require.ErrorIs(t, prims.CheckSignals(w), shmsync.ErrCorrupt)
		_ = words(a)
		w.Repair(1 | 1<<11)
		off := w.Offset()
		require.NoError(t, w.Close())
		_, err := prims.SignalWakerAt(a, off)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
		_, err = prims.OpenSignalWaker(a, "w", nil)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
		w.SetHead(config, rows)
		w, err = prims.OpenSignalWaker(a, "w", nil)
		require.NoError(t, err)
	}
}

// TestScribbledSignalWaker: a peer keeps changing the bytes while processes work. At the end the peer restores
// valid bytes, and the waker works.
func TestScribbledSignalWaker(t *testing.T) {
	a := newArena(t, nil)
	w, err := prims.OpenSignalWaker(a, "w", &prims.SignalWakerOptions{Signals: 3})
	require.NoError(t, err)
	defer w.Close()
	var stop atomic.Bool
	var wg sync.WaitGroup
	errs := make(chan error, 100)
	for range 3 {
		wg.Go(func() {
			for !stop.Load() {
				ctx, cancel := context.WithTimeout(context.Background(), hostileTimeout)
				for what, f := range signalOps(w, ctx) {
					if err := guardedSignal(what, func() string { return words(a) }, f); err != nil {
						errs <- err
						stop.Store(true)
					}
				}
				cancel()
			}
		})
	}
	d := proctest.Rounds(proctest.Scale(time.Second)/5, proctest.Scale(time.Second))
	r := rand.New(rand.NewPCG(5, 6))
	for end := time.Now().Add(d); time.Now().Before(end) && !stop.Load(); {
		w.Scribble(signalSeed(r)[:8*r.IntN(22)])
	}
	stop.Store(true)
	wg.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	require.NoError(t, errors.Join(all...))
	w.Unscribble()
	w.Gate(3).Schedule()
	g, ok := w.Next(0)
	require.True(t, ok)
	require.False(t, g.Finish())
	w.Unscribble()
	sound(t, a)
}

func FuzzSignalWaker(f *testing.F) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 8 {
		f.Add(signalSeed(r))
	}
	var a = newArena(f, nil)
	w, err := prims.OpenSignalWaker(a, "w", &prims.SignalWakerOptions{Signals: 3})
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, b []byte) { hostileSignals(t, w, b, func() string { return words(a) }) })
}
