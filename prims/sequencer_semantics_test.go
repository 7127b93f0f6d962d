//go:build linux

package prims_test

import (
	"context"
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestSequencerCatalogue has tests from another system, after whose sequencer the Sequencer is modelled. The tests keep
// their original names. Each test runs once with two processes, and once with one process.
func TestSequencerCatalogue(t *testing.T) {
	inc := order{Op: "increment", Object: "s"}
	sequencerTests(t, nil, map[string]func(*testing.T, *sequencerGroup){
		"incrementReturnValue": func(t *testing.T, x *sequencerGroup) {
			for n := uint64(1); n <= 10; n++ {
				who := []*actor{x.counter, x.waiter}[n%2]
				require.Equal(t, n, who.must(t, inc).N)
				require.Equal(t, n, x.s.Value())
			}
		},
		"waitAlreadySatisfied": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, order{Op: "increment", Object: "s", N: 5})
			for token := range uint64(6) {
				x.waiter.must(t, order{Op: "wait", Object: "s", Token: token})
				x.waiter.must(t, order{Op: "wait.ctx", Object: "s", Token: token, Done: true})
				x.waiter.ok(t, x.waiter.ended(x.waiter.must(t, order{Op: "async", Object: "s", Token: token}).ID))
			}
		},
		"waitForTokenZero": func(t *testing.T, x *sequencerGroup) {
			x.waiter.must(t, order{Op: "wait", Object: "s"})
			x.waiter.ok(t, x.waiter.ended(x.waiter.must(t, order{Op: "async", Object: "s"}).ID))
		},
		"waitSuspends": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "async", 2)
			end := x.waiter.ended(id)
			x.counter.must(t, inc)
			x.still(t, x.s.Offset(), 1)
			x.counter.must(t, inc)
			x.waiter.ok(t, end)
		},
		"waitBlockingSuspends": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "wait", 2)
			x.counter.must(t, inc)
			x.still(t, x.s.Offset(), 1)
			x.counter.must(t, inc)
			x.waiter.ok(t, id)
		},
		"multipleWaiters": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for i := range 20 {
				ids = append(ids, x.queued(t, []string{"wait", "wait.ctx"}[i%2], 1))
			}
			x.counter.must(t, inc)
			for _, id := range ids {
				x.waiter.ok(t, id)
			}
		},
		"differentTokens": func(t *testing.T, x *sequencerGroup) {
			ids := map[uint64]int{}
			for _, token := range []uint64{7, 3, 10, 1, 9, 2, 8, 4, 6, 5} {
				ids[token] = x.queued(t, "wait", token)
			}
			for n := uint64(1); n <= 10; n++ {
				x.counter.must(t, inc)
				x.waiter.ok(t, ids[n])
				// Only the waiter whose token was reached wakes.
				x.still(t, x.s.Offset(), int(10-n))
			}
		},
		"equalTokens": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for i := range 9 {
				ids = append(ids, x.queued(t, "async", uint64(1+i%3)))
			}
			for n := range uint64(3) {
				x.counter.must(t, inc)
				x.still(t, x.s.Offset(), int(6-3*n))
			}
			for _, id := range ids {
				x.waiter.ok(t, x.waiter.ended(id))
			}
		},
		"stopCancelsUnreachedWaiters": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, inc)
			blocked, async := x.queued(t, "wait", 2), x.queued(t, "async", 3)
			x.counter.must(t, order{Op: "stop", Object: "s"})
			x.still(t, x.s.Offset(), 0)
			x.waiter.isCanceled(t, blocked)
			x.waiter.isCanceled(t, x.waiter.ended(async))
			// After Stop, a wait for a reached token succeeds, and any other wait fails at once.
			require.True(t, x.waiter.must(t, order{Op: "stopped", Object: "s"}).OK)
			x.waiter.must(t, order{Op: "wait", Object: "s", Token: 1})
			x.waiter.isCanceled(t, x.waiter.start(order{Op: "wait", Object: "s", Token: 2}))
			x.waiter.isCanceled(t, x.waiter.ended(x.waiter.must(t, order{Op: "async", Object: "s", Token: 2}).ID))
			// The counter still works.
			require.EqualValues(t, 2, x.counter.must(t, inc).N)
			x.waiter.must(t, order{Op: "wait", Object: "s", Token: 2})
			x.counter.must(t, order{Op: "stop", Object: "s"})
		},
		"resetRebasesBelowCounter": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, order{Op: "increment", Object: "s", N: 100})
			x.counter.must(t, order{Op: "reset", Object: "s", Token: 7})
			require.EqualValues(t, 7, x.waiter.must(t, order{Op: "value", Object: "s"}).N)
			id := x.queued(t, "wait", 8)
			require.EqualValues(t, 8, x.counter.must(t, inc).N)
			x.waiter.ok(t, id)
		},
		"resetEndsWaits": func(t *testing.T, x *sequencerGroup) {
			blocked, async := x.queued(t, "wait", 5), x.queued(t, "async", 6)
			require.False(t, x.counter.must(t, order{Op: "reset", Object: "s"}).OK, "the counter was 0 already")
			x.waiter.isCanceled(t, blocked)
			x.waiter.isCanceled(t, x.waiter.ended(async))
			require.True(t, x.counter.must(t, order{Op: "reset", Object: "s", Token: 50}).OK)
			id := x.queued(t, "wait", 51)
			x.counter.must(t, inc)
			x.waiter.ok(t, id)
			// Set the counter back by almost 2^40. An announced token is at most 2^29 ahead of the counter.
			require.True(t, x.counter.must(t, order{Op: "reset", Object: "s", Token: 1 << 40}).OK)
			id = x.queued(t, "wait", 1<<40+3)
			require.True(t, x.counter.must(t, order{Op: "reset", Object: "s", Token: 3}).OK)
			x.waiter.isCanceled(t, id)
			id = x.queued(t, "wait", 5)
			x.counter.must(t, inc)
			x.still(t, x.s.Offset(), 1)
			x.counter.must(t, inc)
			x.waiter.ok(t, id)
		},
		"cancelDirectly": func(t *testing.T, x *sequencerGroup) {
			id := x.waiter.must(t, order{Op: "async", Object: "s", Token: 1}).ID
			require.True(t, x.waiter.must(t, order{Op: "pending.cancel", N: id}).OK)
			x.waiter.isCanceled(t, x.waiter.ended(id))
			require.False(t, x.waiter.must(t, order{Op: "pending.cancel", N: id}).OK, "a second Cancel")
			x.counter.must(t, inc)
			x.waiter.isCanceled(t, x.waiter.ended(id))
		},
		"cancelAfterInTable": func(t *testing.T, x *sequencerGroup) {
			// One of many waits is canceled, and the others stay.
			var ids []int
			for token := range uint64(20) {
				ids = append(ids, x.queued(t, "async", token+1))
			}
			for i, id := range ids {
				if i%3 == 1 {
					require.True(t, x.waiter.must(t, order{Op: "pending.cancel", N: id}).OK)
					x.waiter.isCanceled(t, x.waiter.ended(id))
				}
			}
			left := prims.Queued(x.a, x.s.Offset())
			require.Equal(t, 13, left)
			for i, id := range ids {
				x.counter.must(t, inc)
				if i%3 != 1 {
					left--
					x.waiter.ok(t, x.waiter.ended(id))
				}
				x.still(t, x.s.Offset(), left)
			}
		},
		"cancelAlreadySatisfied": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "async", 1)
			x.counter.must(t, inc)
			x.waiter.ok(t, x.waiter.ended(id))
			require.False(t, x.waiter.must(t, order{Op: "pending.cancel", N: id}).OK)
			x.waiter.ok(t, x.waiter.ended(id))
		},
		"cancelContext": func(t *testing.T, x *sequencerGroup) {
			id, stays := x.queued(t, "wait.ctx", 2), x.queued(t, "wait", 2)
			x.waiter.must(t, order{Op: "cancel", N: id})
			require.Equal(t, []string{"ctx-canceled"}, x.waiter.wait(t, id).Is)
			late := x.waiter.do(t, order{Op: "wait.ctx", Object: "s", Token: 2, Limit: time.Millisecond})
			require.Equal(t, []string{"ctx-deadline"}, late.Is)
			require.Equal(t, []string{"ctx-canceled"}, x.waiter.do(t, order{Op: "wait.ctx", Object: "s", Token: 2, Done: true}).Is)
			x.counter.must(t, order{Op: "increment", Object: "s", N: 2})
			x.waiter.ok(t, stays)
		},
		"cancelWaiters": func(t *testing.T, x *sequencerGroup) {
			blocked, async := x.queued(t, "wait", 1), x.queued(t, "async", 2)
			x.counter.must(t, order{Op: "cancel.waiters", Object: "s"})
			x.still(t, x.s.Offset(), 0)
			x.waiter.isCanceled(t, blocked)
			x.waiter.isCanceled(t, x.waiter.ended(async))
			// The Sequencer is still usable.
			id := x.queued(t, "wait", 1)
			x.counter.must(t, inc)
			x.waiter.ok(t, id)
		},
		"concurrentIncrement": func(t *testing.T, x *sequencerGroup) {
			last := x.queued(t, "wait", 800)
			var ids []int
			for range 8 {
				ids = append(ids, x.counter.start(order{Op: "increment", Object: "s", N: 100}))
			}
			for _, id := range ids {
				x.counter.ok(t, id)
			}
			x.waiter.ok(t, last)
			require.EqualValues(t, 800, x.s.Value())
		},
		"advanceNoOp": func(t *testing.T, x *sequencerGroup) {
			x.counter.must(t, order{Op: "increment", Object: "s", N: 5})
			for token := range uint64(6) {
				require.False(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: token}).OK)
			}
			require.EqualValues(t, 5, x.s.Value())
		},
		"advanceForward": func(t *testing.T, x *sequencerGroup) {
			require.True(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: 9}).OK)
			require.EqualValues(t, 9, x.waiter.must(t, order{Op: "value", Object: "s"}).N)
			require.EqualValues(t, 10, x.counter.must(t, inc).N)
		},
		"advanceWakesWaiter": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "wait", 5)
			require.True(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: 4}).OK)
			x.still(t, x.s.Offset(), 1)
			require.True(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: 5}).OK)
			x.waiter.ok(t, id)
		},
		"advancePastMultipleTokens": func(t *testing.T, x *sequencerGroup) {
			var ids []int
			for token := range uint64(20) {
				ids = append(ids, x.queued(t, []string{"wait", "async"}[token%2], token+1))
			}
			require.True(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: 15}).OK)
			x.still(t, x.s.Offset(), 5)
			x.counter.must(t, order{Op: "advance", Object: "s", Token: 100})
			for i, id := range ids {
				if i%2 == 1 {
					id = x.waiter.ended(id)
				}
				x.waiter.ok(t, id)
			}
		},
		"lastToken": func(t *testing.T, x *sequencerGroup) {
			id := x.queued(t, "wait", math.MaxUint64)
			require.EqualValues(t, 1, x.counter.must(t, inc).N)
			require.True(t, x.counter.must(t, order{Op: "advance", Object: "s", Token: math.MaxUint64 - 1}).OK)
			x.still(t, x.s.Offset(), 1)
			require.EqualValues(t, uint64(math.MaxUint64), x.counter.must(t, inc).N)
			x.waiter.ok(t, id)
			require.Zero(t, x.counter.must(t, inc).N, "the counter wraps to 0")
		},
	})
}

// TestSequencerWatchAfterStop checks that the wait of a WaitAny ends with ErrCanceled if the Sequencer is stopped
// before the wait begins.
func TestSequencerWatchAfterStop(t *testing.T) {
	s := newSequencer(t, nil)
	s.Stop()
	for range 3 {
		reached, leave, err := s.WatchFor(1)
		require.NoError(t, err)
		over, err := reached()
		require.True(t, over)
		require.ErrorIs(t, err, shmsync.ErrCanceled)
		leave()
	}
}

// TestSequencerWaitsDuringReset: a ResetTo has ended all waits and has not set the counter back yet. Meanwhile
// other waits begin, and their tokens are reached. These waits also end, either without an error or with
// ErrCanceled.
func TestSequencerWaitsDuringReset(t *testing.T) {
	needsCrashPoints(t)
	s := newSequencer(t, nil)
	var reached func() (bool, error)
	var leave func()
	var pending *prims.Pending
	crashpoint.ArmFunc("sequencer.cancel.marked", 1, func() {
		var err error
		reached, leave, err = s.WatchFor(5)
		require.NoError(t, err)
		pending = s.WaitAsync(5)
		s.Advance(5)
	})
	defer crashpoint.Disarm()
	require.True(t, s.ResetTo(0))
	require.NoError(t, pending.Wait(), "it has ended before the counter went back")
	over, err := reached()
	require.True(t, over, "no other call would end this wait")
	require.ErrorIs(t, err, shmsync.ErrCanceled)
	leave()
}

// TestSequencerHeapGivesUp checks that no wait ends too early or is left behind, when many goroutines give up their
// waits and begin new ones while the process serves its token heaps.
func TestSequencerHeapGivesUp(t *testing.T) {
	s := newSequencer(t, nil)
	end := time.Now().Add(proctest.Rounds(proctest.Scale(time.Second)/5, proctest.Scale(time.Second)))
	var wg sync.WaitGroup
	for g := range 64 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 6))
			for time.Now().Before(end) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(50))*time.Microsecond)
				token := s.Value() + r.Uint64N(64)
				if err := s.WaitContext(ctx, token); err == nil && s.Value() < token || err != nil && err != ctx.Err() {
					t.Errorf("token %d: %v at %v", token, err, s)
				}
				cancel()
				if r.IntN(4) == 0 {
					s.Increment()
				}
			}
		})
	}
	wg.Wait()
	n, err := s.Heap()
	require.NoError(t, err)
	require.Zero(t, n)
	require.Zero(t, s.QueuedWaits())
}

// TestSequencerOrder: pending waits for tokens of one cell end in the order of their tokens. When the counter
// reaches a token, exactly the waits for this token and for lower ones have ended.
func TestSequencerOrder(t *testing.T) {
	s := newSequencer(t, nil)
	var waits []*prims.Pending
	tokens := []uint64{33, 1, 17, 33, 1, 17, 17, 1, 33} // tokens of one cell
	for _, token := range tokens {
		waits = append(waits, s.WaitAsync(token))
	}
	for _, v := range []uint64{1, 17, 33} {
		s.Advance(v)
		for i, p := range waits {
			if tokens[i] <= v {
				<-p.Done() // Advance may return before the wait has ended, if the periodic checker is about to end it
			}
		}
		for i, p := range waits {
			select {
			case <-p.Done():
				require.LessOrEqual(t, tokens[i], v)
			default:
				require.Greater(t, tokens[i], v)
			}
		}
		n, err := s.Heap()
		require.NoError(t, err)
		require.Equal(t, []int{6, 3, 0}[v/16], n)
	}
}

// TestSequencerOpen: other processes that open the object find what this process has created.
func TestSequencerOpen(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSequencer(a, "s", &prims.SequencerOptions{Initial: 40, Spin: -1})
	require.NoError(t, err)
	require.EqualValues(t, 41, s.Increment())
	require.EqualValues(t, -1, s.Spin())
	s.SetSpin(time.Microsecond)
	same, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	require.NotSame(t, s, same)
	require.Equal(t, time.Microsecond, same.Spin())
	at, err := prims.SequencerAt(a, s.Offset())
	require.NoError(t, err)
	require.Equal(t, s.Offset(), at.Offset())
	_, err = prims.OpenEvent(a, "s", nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.EventAt(a, s.Offset())
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	_, err = prims.SequencerAt(a, s.Offset()+64)
	require.Error(t, err)
	p := s.WaitAsync(50)
	require.Equal(t, "sequencer s: value 41, waiting for 50 or more", s.String())
	require.Equal(t, prims.SequencerState{Value: 41, Waiting: true, Next: 50}, s.State())
	s.Stop()
	require.Equal(t, "sequencer s: value 41, stopped", s.String())
	err = p.Wait()
	require.ErrorIs(t, err, shmsync.ErrCanceled)
	require.ErrorContains(t, err, "stopped")
	for _, x := range []*prims.Sequencer{at, s, same} {
		require.NoError(t, x.Close())
	}
	require.ErrorIs(t, s.Close(), shmsync.ErrClosed)
	require.NoError(t, a.Delete("s"))
}

// TestSequencerArenaClose: when a process leaves the arena, its waits end, and those of other processes do not.
func TestSequencerArenaClose(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSequencer(a, "s", nil)
	require.NoError(t, err)
	x, stays := sequencerActor(t, a, "closer"), sequencerActor(t, a, "stays")
	var ids []int
	for i := range 20 {
		ids = append(ids, x.queues(t, a, s.Offset(), order{Op: []string{"wait", "wait.ctx"}[i%2], Object: "s", Token: 2}))
	}
	async := x.queues(t, a, s.Offset(), order{Op: "async", Object: "s", Token: 2})
	ids = append(ids, x.ended(async))
	id := stays.queues(t, a, s.Offset(), order{Op: "wait", Object: "s", Token: 2})
	x.must(t, order{Op: "close-arena"})
	for _, id := range ids {
		require.Equal(t, []string{"closed"}, x.wait(t, id).Is)
	}
	alone(t, a, 2)
	require.Equal(t, 1, prims.Queued(a, s.Offset()))
	s.Advance(2)
	stays.ok(t, id)
	sound(t, a)
}

// TestSequencerNoSpace: waits take no memory of the arena except one node for each cell on which a process
// waits. If there is no room for the node, the waits work without it.
func TestSequencerNoSpace(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 1 << 20})
	s, err := prims.OpenSequencer(a, "", nil)
	require.NoError(t, err)
	for {
		if _, err := a.Alloc(64, 64); err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			break
		}
	}
	var waits []*prims.Pending
	for i := range uint64(100) {
		waits = append(waits, s.WaitAsync(i+1))
	}
	s.Advance(50)
	for _, p := range waits[:50] {
		require.NoError(t, p.Wait())
	}
	for range 50 {
		s.Increment()
	}
	for _, p := range waits {
		require.NoError(t, p.Wait())
	}
	p := s.WaitAsync(math.MaxUint64)
	require.True(t, p.Cancel())
	require.Zero(t, prims.Queued(a, s.Offset()))
}

func TestSequencerAllocatesNothing(t *testing.T) {
	s := newSequencer(t, nil)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		v := s.Increment()
		s.Advance(v + 1)
		s.Advance(v)
		s.Wait(v)
		s.WaitContext(ctx, v)
		s.Value()
		s.Stopped()
	}))
	// A wait that sleeps does not allocate either, once the process has wait nodes.
	var wg sync.WaitGroup
	turn := make(chan uint64)
	wg.Go(func() {
		for token := range turn {
			eventuallyQuiet(s, token)
			s.Advance(token)
		}
	})
	s.SetSpin(-1)
	allocs := testing.AllocsPerRun(100, func() {
		token := s.Value() + 2
		turn <- token
		if err := s.Wait(token); err != nil {
			t.Error(err)
		}
	})
	close(turn)
	wg.Wait()
	require.Less(t, allocs, 1.0)
}

// eventuallyQuiet returns when a waiter of s has announced itself.
func eventuallyQuiet(s *prims.Sequencer, token uint64) {
	for !s.Announced() {
	}
}

// TestSequencerHeap: after every insertion and every removal the token heaps are in order. Exactly the waits
// whose tokens are reached end.
func TestSequencerHeap(t *testing.T) {
	rounds := proctest.Rounds(2000, 20_000)
	s := newSequencer(t, nil)
	r := rand.New(rand.NewPCG(uint64(rounds), 1))
	waits := map[*prims.Pending]uint64{}
	for round := range rounds {
		switch n := r.IntN(10); {
		case n < 5 && len(waits) < 300:
			token := s.Value() + 1 + r.Uint64N(50)
			waits[s.WaitAsync(token)] = token
		case n < 9:
			for p := range waits { // any of the waits
				require.True(t, p.Cancel(), "round %d: it is at %v", round, s)
				delete(waits, p)
				break
			}
		default:
			v := s.Value() + r.Uint64N(3)
			s.Advance(v)
			for p, token := range waits {
				if token <= v {
					require.NoError(t, p.Wait())
					delete(waits, p)
				}
			}
		}
		n, err := s.Heap()
		require.NoError(t, err, "round %d", round)
		require.Equal(t, len(waits), n, "round %d", round)
	}
}
