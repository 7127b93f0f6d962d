//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// The first functions of this file are three primitives in a few lines each.

// autoReset is an event whose Set lets one wait return. If nobody waits, the event stays set for the next wait.
func autoReset(a *arena.Arena, name string) (*prims.Waitable[bool, struct{}], error) {
	return prims.OpenWaitable(a, name, false, prims.Rules[bool, struct{}]{
		Claim: func(set *bool, _ struct{}) bool {
			was := *set
			*set = false
			return was
		},
		Undo: func(set *bool, _ struct{}) { *set = true },
	}, nil)
}

// sharedState is the state of a shared mutex: -1 for a writer, otherwise the number of readers.
type sharedState struct{ Holders int32 }

// shared is a shared mutex that does not let later callers overtake waiters. The argument of a wait is true for
// a writer.
func shared(a *arena.Arena, name string) (*prims.Waitable[sharedState, bool], error) {
	return prims.OpenWaitable(a, name, sharedState{}, prims.Rules[sharedState, bool]{
		Claim: func(s *sharedState, write bool) bool {
			switch {
			case write && s.Holders == 0:
				s.Holders = -1
			case !write && s.Holders >= 0:
				s.Holders++
			default:
				return false
			}
			return true
		},
		Release: func(s *sharedState, write bool) {
			if write {
				s.Holders = 0
			} else {
				s.Holders--
			}
		},
	}, nil)
}

// wish is the request of a wait for permits.
type wish struct{ Permits, Priority uint16 }

// priority is a semaphore that serves the request with the highest priority first.
func priority(a *arena.Arena, name string, permits uint32) (*prims.Waitable[uint32, wish], error) {
	return prims.OpenWaitable(a, name, permits, prims.Rules[uint32, wish]{
		Claim: func(free *uint32, w wish) bool {
			if *free < uint32(w.Permits) {
				return false
			}
			*free -= uint32(w.Permits)
			return true
		},
		Release: func(free *uint32, w wish) { *free += uint32(w.Permits) },
		Before:  func(x, y wish) bool { return x.Priority > y.Priority },
	}, nil)
}

func init() {
	addWorkload(workload{
		name:   "waitable",
		points: []string{"record.*", "waitable.state.*", "waitable.update.*", "waitable.wait.*", "park.waitnode.*"},
		open: func(a *arena.Arena) (worker, error) {
			rw, err := shared(a, "shared")
			if err != nil {
				return nil, err
			}
			p, err := priority(a, "priority", 7)
			if err != nil {
				return nil, err
			}
			return &waitableWorker{rw, p}, nil
		},
	})
}

type waitableWorker struct {
	rw       *prims.Waitable[sharedState, bool]
	priority *prims.Waitable[uint32, wish]
}

func (w *waitableWorker) turn(g int, r *rand.Rand) error {
	return ends(r, func(ctx context.Context) error {
		if r.IntN(2) == 0 {
			// The timeout ends the wait, which could last for ever if others are always served first.
			ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
			defer cancel()
			e := wish{uint16(1 + r.IntN(7)), uint16(g)}
			err := w.priority.WaitContext(ctx, e)
			if err == nil {
				w.priority.Release(e)
			} else if gaveUp(err) {
				err = nil
			}
			return err
		}
		write := r.IntN(4) == 0
		switch err := w.rw.WaitContext(ctx, write); {
		case gaveUp(err):
			return nil
		case err != nil:
			return err
		}
		if s := w.rw.State(); write && s.Holders != -1 || !write && s.Holders < 1 {
			return fmt.Errorf("inside, write %v, with %+v", write, s)
		}
		w.rw.Release(write)
		return nil
	})
}

func (w *waitableWorker) rest() error {
	if s, p := w.rw.State(), w.priority.State(); s.Holders != 0 || p != 7 {
		return fmt.Errorf("%w: %+v, %d", errLeft, s, p)
	}
	if err := w.rw.Close(); err != nil {
		return err
	}
	return w.priority.Close()
}

func TestWaitableAutoReset(t *testing.T) {
	a := newArena(t, nil)
	e, err := autoReset(a, "e")
	require.NoError(t, err)
	set := func() { e.Update(func(s *bool) { *s = true }) }
	require.False(t, e.TryWait(struct{}{}))
	set()
	set() // has no effect, because the event is set
	require.True(t, e.TryWait(struct{}{}))
	require.False(t, e.TryWait(struct{}{}))
	got := make(chan int, 3)
	for i := range 3 {
		go func() {
			if e.Wait(struct{}{}) == nil {
				got <- i
			}
		}()
		eventually(t, "queued", func() string { return words(a) }, func() bool { return e.Queued() == i+1 })
	}
	for i := range 3 {
		set()
		require.Equal(t, i, <-got)
		require.False(t, e.State(), "the token went to the waiter, so the event is not set")
	}
	require.Panics(t, func() { e.Release(struct{}{}) })
	e.Stop()
	require.ErrorIs(t, e.Wait(struct{}{}), shmsync.ErrCanceled)
}

// TestWaitableReusesItsNodes: a wait that is over gives its wait node back, so that later waits use it.
func TestWaitableReusesItsNodes(t *testing.T) {
	a := newArena(t, nil)
	e, err := autoReset(a, "e")
	require.NoError(t, err)
	for range 100 {
		done := make(chan error, 1)
		go func() { done <- e.Wait(struct{}{}) }()
		eventually(t, "queued", func() string { return words(a) }, func() bool { return e.Queued() == 1 })
		e.Update(func(s *bool) { *s = true })
		require.NoError(t, <-done)
	}
	require.Less(t, int(a.Stats().Nodes), 10)
}

// TestWaitableShared: a reader that arrives after a waiting writer does not overtake the writer. When the
// writer gives up, the reader goes on.
func TestWaitableShared(t *testing.T) {
	a := newArena(t, nil)
	rw, err := shared(a, "rw")
	require.NoError(t, err)
	const read, write = false, true
	require.NoError(t, rw.Wait(read))
	require.True(t, rw.TryWait(read))
	require.False(t, rw.TryWait(write))
	ctx, cancel := context.WithCancel(context.Background())
	writer := make(chan error, 1)
	go func() { writer <- rw.WaitContext(ctx, write) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return rw.Queued() == 1 })
	require.False(t, rw.TryWait(read))
	reader := make(chan error, 1)
	go func() { reader <- rw.Wait(read) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return rw.Queued() == 2 })
	cancel()
	require.Equal(t, context.Canceled, <-writer)
	require.NoError(t, <-reader)
	require.Equal(t, int32(3), rw.State().Holders)
	require.PanicsWithValue(t, "shmsync: waitable rw: Release of a claim that this process does not have", func() { rw.Release(write) })
	for range 3 {
		rw.Release(read)
	}
	require.Panics(t, func() { rw.Update(func(s *sharedState) { s.Holders = 9; panic("no") }) })
	require.Zero(t, rw.State().Holders, "a panic changes nothing")
	require.True(t, rw.TryWait(write))
}

func TestWaitablePriority(t *testing.T) {
	a := newArena(t, nil)
	s, err := priority(a, "p", 1)
	require.NoError(t, err)
	require.True(t, s.TryWait(wish{1, 0}))
	got := make(chan uint16, 5)
	for i, p := range []uint16{2, 5, 1, 4, 5} {
		go func() {
			if s.Wait(wish{1, p}) == nil {
				got <- p
			}
		}()
		eventually(t, "queued", func() string { return words(a) }, func() bool { return s.Queued() == i+1 })
	}
	s.Release(wish{1, 0})
	for _, p := range []uint16{5, 5, 4, 2, 1} {
		require.Equal(t, p, <-got)
		s.Release(wish{1, p})
	}
}

// TestWaitablePriorityCrowd: many waits join, and are then served at once, in an order that the rules define. The
// test counts the comparisons. Their number is far less than the square of the number of waits.
func TestWaitablePriorityCrowd(t *testing.T) {
	const n = 10_000
	compared := 0
	took := func(before func(x, y uint32) bool) time.Duration {
		compared = 0
		a := newArena(t, nil)
		s, err := prims.OpenWaitable(a, "p", uint32(0), prims.Rules[uint32, uint32]{
			Claim: func(free *uint32, _ uint32) bool {
				if *free == 0 {
					return false
				}
				*free--
				return true
			},
			Before: before,
		}, nil)
		require.NoError(t, err)
		var wg sync.WaitGroup
		for _, i := range rand.Perm(n) {
			wg.Go(func() {
				if err := s.Wait(uint32(i)); err != nil {
					t.Error(err)
				}
			})
		}
		eventually(t, "queued", func() string { return words(a) }, func() bool { return s.Queued() == n })
		start := time.Now()
		s.Update(func(free *uint32) { *free = n })
		since := time.Since(start)
		wg.Wait()
		return since
	}
	if race.Enabled {
		t.Skip("needs a build without the race detector, which knows at most 8,128 goroutines")
	}
	fifo, priority := took(nil), took(func(x, y uint32) bool {
		compared++
		return x > y
	})
	require.Positive(t, compared)
	t.Logf("%d served in %v, by priority in %v after %d comparisons", n, fifo, priority, compared)
	require.Less(t, compared, n*n/50)
}

func init() {
	proctest.Register("waitable/hold", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		rw, err := shared(a, "rw")
		if err != nil {
			c.Fatal(err)
		}
		if err := rw.Wait(true); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await()
	})
}

// TestWaitableTakesBackFromTheDead: when a process dies, its claims are undone, and waiters for them go on.
func TestWaitableTakesBackFromTheDead(t *testing.T) {
	a := newArena(t, nil)
	p := proctest.Start(t, "waitable/hold", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	p.Await(t)
	rw, err := shared(a, "rw")
	require.NoError(t, err)
	require.Equal(t, int32(-1), rw.State().Holders)
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, rw.WaitContext(ctx, true))
	done := make(chan error, 1)
	go func() { done <- rw.Wait(true) }()
	eventually(t, "queued", func() string { return words(a) }, func() bool { return rw.Queued() == 1 })
	p.Kill(t)
	require.NoError(t, <-done)
}

func init() {
	proctest.Register("waitable/leave", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		rw, err := shared(a, "rw")
		if err != nil {
			c.Fatal(err)
		}
		if err := rw.Wait(true); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		c.Await()
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

// TestWaitableTakesBackFromWhoLeaves: when a process leaves the arena, its claims are undone, too.
func TestWaitableTakesBackFromWhoLeaves(t *testing.T) {
	a := newArena(t, nil)
	rw, err := shared(a, "rw")
	require.NoError(t, err)
	for range 10 {
		p := proctest.Start(t, "waitable/leave", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
		p.Await(t)
		done := make(chan error, 1)
		go func() { done <- rw.Wait(true) }()
		eventually(t, "queued", func() string { return words(a) }, func() bool { return rw.Queued() == 1 })
		p.Send("leave")
		eventually(t, "granted", func() string { return words(a) }, func() bool { return len(done) == 1 })
		require.NoError(t, <-done)
		rw.Release(true)
		p.WaitExit(t)
	}
}

func TestWaitableOpen(t *testing.T) {
	a := newArena(t, nil)
	_, err := shared(a, "w")
	require.NoError(t, err)
	_, err = autoReset(a, "w")
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	type same struct{ N int32 }
	_, err = prims.OpenWaitable(a, "w", same{}, prims.Rules[same, bool]{Claim: func(*same, bool) bool { return true }}, nil)
	require.NoError(t, err, "other types of the same layout")
	rules := prims.Rules[[3]uint64, uint8]{Claim: func(*[3]uint64, uint8) bool { return true }}
	require.Panics(t, func() { prims.OpenWaitable(a, "x", [3]uint64{}, prims.Rules[[3]uint64, uint8]{}, nil) }, "no Claim")
	require.Panics(t, func() {
		prims.OpenWaitable(a, "x", new(int), prims.Rules[*int, uint8]{Claim: func(**int, uint8) bool { return true }}, nil)
	}, "a pointer")
	require.Panics(t, func() {
		prims.OpenWaitable(a, "x", 0, prims.Rules[int, [9]byte]{Claim: func(*int, [9]byte) bool { return true }}, nil)
	}, "nine bytes")
	x, err := prims.OpenWaitable(a, "x", [3]uint64{1, 2, 3}, rules, nil)
	require.NoError(t, err)
	require.Equal(t, [3]uint64{1, 2, 3}, x.State())
	at, err := prims.WaitableAt(a, x.Offset(), rules)
	require.NoError(t, err)
	require.Equal(t, x.Offset(), at.Offset())
	other := prims.Rules[[3]uint64, int16]{Claim: func(*[3]uint64, int16) bool { return true }}
	_, err = prims.WaitableAt(a, x.Offset(), other)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorContains(t, err, "field E is uint8 at 24 in the arena, and int16 at 24 in this program")
	_, err = prims.OpenWaitable(a, "x", [3]uint64{}, other, nil)
	require.ErrorContains(t, err, "field E is uint8 at 24 in the arena, and int16 at 24 in this program")
}

// outcomes is the state of a Waitable that counts what happens to claims.
type outcomes struct{ Free, Claimed, Released, Reaped, Undone int32 }

func openOutcomes(a *arena.Arena) (*prims.Waitable[outcomes, int8], error) {
	count := func(n func(s *outcomes) *int32) func(*outcomes, int8) {
		return func(s *outcomes, _ int8) { *n(s)++ }
	}
	return prims.OpenWaitable(a, "outcomes", outcomes{}, prims.Rules[outcomes, int8]{
		Claim: func(s *outcomes, _ int8) bool {
			s.Claimed++
			s.Free--
			return s.Free >= 0
		},
		Release: count(func(s *outcomes) *int32 { return &s.Released }),
		OnDeath: count(func(s *outcomes) *int32 { return &s.Reaped }),
		Undo:    count(func(s *outcomes) *int32 { return &s.Undone }),
	}, nil)
}

func init() {
	proctest.Register("waitable/outcomes", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		x, err := openOutcomes(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for {
			if err := x.Wait(5); err != nil {
				c.Fatal(err)
			}
			c.Say("claimed")
		}
	})
}

// TestWaitableUndoesWhatTheDeadNeverHad: a process dies. If its wait had returned, OnDeath undoes the claim of the
// wait. If its wait was granted a claim and never returned, Undo undoes the claim.
func TestWaitableUndoesWhatTheDeadNeverHad(t *testing.T) {
	a := newArena(t, nil)
	x, err := openOutcomes(a)
	require.NoError(t, err)
	free := func(n int32) { x.Update(func(s *outcomes) { s.Free += n }) }
	for i := range int32(2) { // the second victim gets the slot of the first
		p := proctest.Start(t, "waitable/outcomes", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
		p.Await(t)
		for range 2 {
			eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
			free(1)
			var claimed string
			p.Recv(t, &claimed)
		}
		eventually(t, "queued", func() string { return words(a) }, func() bool { return x.Queued() == 1 })
		p.Stop(t)
		free(1)
		require.Zero(t, x.Queued())
		p.Kill(t)
		want := outcomes{Claimed: 3 * (i + 1), Reaped: 2 * (i + 1), Undone: i + 1}
		eventually(t, "undone", func() string { return words(a) }, func() bool { return x.State() == want })
	}
	sound(t, a)
}
