//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// featureBoard is the data that the two processes of a feature share.
type featureBoard struct {
	Made, Taken atomic.Int64
	Ready       int64     // guarded by the mutex, as are the following fields
	Woken       int64     // how many waits have ended
	Order       [64]int64 // the numbers of the waiters, in the order in which their waits ended
}

// feature is a test of an operation of docs/testing/features.md between two processes. The function peer runs in the
// other process. The function test runs in this process, and waits for the reports of peer.
type feature struct {
	peer func(c *proctest.Child, a *arena.Arena, b *featureBoard)
	test func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc)
}

const featureItems = 1000

// must returns v. The opening that returned v and err cannot fail in these tests.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// eventcount runs in both processes. It makes half of the items, and two goroutines take items that either process has
// made.
func eventcount(a *arena.Arena, b *featureBoard) {
	f := must(prims.OpenFutex(a, "f", nil))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for {
				token := f.Get() + 1
				made, taken := b.Made.Load(), b.Taken.Load()
				switch {
				case taken >= featureItems:
					return
				case taken == made:
					if err := f.Wait(token); err != nil {
						panic(err)
					}
				case b.Taken.CompareAndSwap(taken, taken+1) && taken+1 == featureItems:
					f.Post()
				}
			}
		})
	}
	for range featureItems / 2 {
		b.Made.Add(1)
		f.Post()
	}
	wg.Wait()
}

// predicateLoop does what eventcount does, with a lock and a Cond in place of the Futex.
func predicateLoop(a *arena.Arena, b *featureBoard) {
	m := must(prims.OpenMutex(a, "m", nil))
	c := must(prims.OpenCond(a, "c", m, nil))
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			m.Lock()
			defer m.Unlock()
			for b.Woken < featureItems {
				for b.Ready == 0 && b.Woken < featureItems {
					c.Wait()
				}
				if b.Ready > 0 {
					b.Ready--
					if b.Woken++; b.Woken == featureItems {
						c.Broadcast()
					}
				}
			}
		})
	}
	for range featureItems / 2 {
		m.Lock()
		b.Ready++
		m.Unlock()
		c.Signal()
	}
	wg.Wait()
}

// condWait waits once at the Cond, and then appends the number of the waiter to b.Order.
func condWait(m *prims.Mutex, c *prims.Cond, b *featureBoard, who int) {
	m.Lock()
	defer m.Unlock()
	c.Wait()
	b.Order[b.Woken] = int64(who)
	b.Woken++
}

// condPeer starts a waiting goroutine for each number that it receives.
func condPeer(c *proctest.Child, a *arena.Arena, b *featureBoard) {
	m := must(prims.OpenMutex(a, "m", nil))
	cond := must(prims.OpenCond(a, "c", m, nil))
	c.Ready()
	for {
		var who int
		c.Recv(&who)
		go condWait(m, cond, b, who)
	}
}

// condTest calls f with the Cond and the function wait. wait(i) makes waiter i wait. Waiters with odd numbers are in
// the other process.
func condTest(f func(t *testing.T, m *prims.Mutex, c *prims.Cond, b *featureBoard, wait func(i int))) func(*testing.T, *arena.Arena, *featureBoard, *proctest.Proc) {
	return func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
		p.Await(t)
		m := must(prims.OpenMutex(a, "m", nil))
		c := must(prims.OpenCond(a, "c", m, nil))
		var here sync.WaitGroup
		f(t, m, c, b, func(i int) {
			n := c.State().Waiting
			if i%2 == 1 {
				p.Send(i)
			} else {
				here.Go(func() { condWait(m, c, b, i) })
			}
			condWaits(t, c, n+1)
		})
		here.Wait()
	}
}

// woken waits until n waits have ended, and returns their numbers.
func woken(t *testing.T, m *prims.Mutex, b *featureBoard, n int) (who []int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are awake", n), m.String, func() bool {
		m.Lock()
		defer m.Unlock()
		return b.Woken >= int64(n)
	})
	m.Lock()
	defer m.Unlock()
	for _, i := range b.Order[:b.Woken] {
		who = append(who, int(i))
	}
	return who
}

func locked(m *prims.Mutex, f func()) {
	m.Lock()
	defer m.Unlock()
	f()
}

var features = map[string]feature{
	// As in silk: a waiter that tests its condition between Get and Wait misses no post.
	"futex eventcount": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			c.Ready()
			eventcount(a, b)
			c.Ready()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			eventcount(a, b)
			p.Await(t)
			require.EqualValues(t, featureItems, b.Taken.Load())
		},
	},
	// As in silk and flare: a waiter waits in a loop that tests the predicate.
	"cond predicate": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			c.Ready()
			predicateLoop(a, b)
			c.Ready()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			predicateLoop(a, b)
			p.Await(t)
			require.EqualValues(t, featureItems, b.Woken)
			require.Zero(t, b.Ready)
		},
	},
	// As in flare: if the predicate becomes true without a signal, the waiter sees that at its
	// deadline.
	"cond deadline": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			m := must(prims.OpenMutex(a, "m", nil))
			cond := must(prims.OpenCond(a, "c", m, nil))
			for cond.State().Waiting == 0 {
				runtime.Gosched()
			}
			locked(m, func() { b.Ready = 1 })
			c.Await()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			m := must(prims.OpenMutex(a, "m", nil))
			c := must(prims.OpenCond(a, "c", m, nil))
			m.Lock()
			defer m.Unlock()
			for b.Ready == 0 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				require.Equal(t, context.DeadlineExceeded, c.WaitContext(ctx))
				cancel()
			}
		},
	},
	// As in Go: each Signal wakes one waiter, the one that has waited longest.
	"cond signal": {condPeer, condTest(func(t *testing.T, m *prims.Mutex, c *prims.Cond, b *featureBoard, wait func(int)) {
		const n = 6
		var want []int
		for i := range n {
			wait(i)
		}
		for i := range n {
			locked(m, c.Signal)
			want = append(want, i)
			require.Equal(t, want, woken(t, m, b, i+1))
			condWaits(t, c, n-1-i)
		}
	})},
	// As in Go: the waiters of one generation are woken before the next generation begins to wait.
	"cond generations": {condPeer, condTest(func(t *testing.T, m *prims.Mutex, c *prims.Cond, b *featureBoard, wait func(int)) {
		var want []int
		for i := range 30 {
			wait(i)
			locked(m, c.Signal)
			want = append(want, i)
			require.Equal(t, want, woken(t, m, b, i+1))
		}
	})},
	// As in Go: each Broadcast wakes all goroutines that wait at that moment, round after round.
	"cond broadcast": {condPeer, condTest(func(t *testing.T, m *prims.Mutex, c *prims.Cond, b *featureBoard, wait func(int)) {
		var want []int
		for round := range 3 {
			for i := range 10 {
				wait(i)
				want = append(want, i)
			}
			locked(m, c.Broadcast)
			who := woken(t, m, b, len(want))
			require.ElementsMatch(t, want, who, "round %d", round)
			condWaits(t, c, 0)
		}
	})},
	// As in Go: a waiter that comes after the Signal does not take the Signal from a waiter that
	// came before it.
	"cond stealing": {condPeer, condTest(func(t *testing.T, m *prims.Mutex, c *prims.Cond, b *featureBoard, wait func(int)) {
		for round := range 15 {
			wait(1)
			m.Lock()
			c.Signal() // waiter 1 cannot come back while the lock is held
			var came sync.WaitGroup
			came.Go(func() { condWait(m, c, b, 0) })
			m.Unlock()
			require.Equal(t, 1, woken(t, m, b, 2*round+1)[2*round])
			condWaits(t, c, 1)
			locked(m, c.Signal)
			came.Wait()
		}
	})},
	// As in silk: waits of several processes end in the order of their tokens, and no wait ends
	// before its token is reached.
	"sequencer order": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			s := must(prims.OpenSequencer(a, "s", nil))
			c.Ready()
			for {
				var token uint64
				c.Recv(&token)
				p := s.WaitAsync(token)
				go func() {
					if err := p.Wait(); err != nil {
						c.Fatal(err)
					}
					b.Made.Add(1)
				}()
				c.Ready()
			}
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			s := must(prims.OpenSequencer(a, "s", nil))
			var here []*prims.Pending
			for i, token := range []uint64{3, 1, 2, 3, 1, 2, 2, 1, 3} {
				if i%2 == 0 {
					here = append(here, s.WaitAsync(token)) // the tokens of this process: 3, 2, 1, 2, 3
				} else {
					p.Send(token) // the tokens of the peer: 1, 3, 2, 1
					p.Await(t)
				}
			}
			for v, ends := range []struct{ here, there int }{{0, 0}, {1, 2}, {3, 3}, {5, 4}} {
				if v > 0 {
					s.Increment()
				}
				eventually(t, "the waits of the peer end", s.String, func() bool { return b.Made.Load() == int64(ends.there) })
				ended := 0
				for _, p := range here {
					select {
					case <-p.Done():
						ended++
					default:
					}
				}
				require.Equal(t, ends.here, ended)
			}
		},
	},
	// After Chen: an event that is set when it is created is set for every process, until it is
	// reset.
	"event initial state": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			must(prims.OpenEvent(a, "manual", &prims.EventOptions{InitiallySet: true}))
			must(prims.OpenEvent(a, "auto", &prims.EventOptions{InitiallySet: true, Mode: prims.EventAutoReset}))
			must(prims.OpenEvent(a, "unset", nil))
			c.Ready()
			c.Await()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			must(prims.AttachEvent(a, "manual", nil)).Wait()
			auto := must(prims.AttachEvent(a, "auto", nil))
			require.True(t, auto.TryWait())
			require.False(t, auto.TryWait())
			unset := must(prims.OpenEvent(a, "unset", &prims.EventOptions{InitiallySet: true}))
			require.False(t, unset.IsSet(), "another process has created the Event, so InitiallySet has no effect")
		},
	},
	// As in flare: an event is set at a deadline, unless it has been set before.
	"event timed": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			e := must(prims.OpenEvent(a, "e", nil))
			time.AfterFunc(10*time.Millisecond, e.Set)
			c.Ready()
			c.Await()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			e := must(prims.OpenEvent(a, "e", nil))
			e.Wait()
			e.Set()
			require.True(t, e.IsSet())
		},
	},
	// As in flare's Then: a process registers a function, and runs it when the result is there.
	"future then": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			then := must(prims.OpenFuture(a, "then", nil))
			then.Claim()
			must(prims.OpenFuture(a, "first", nil)).Subscribe(func(errno syscall.Errno, err error) {
				b.Made.Add(1)
				then.Set(errno + 1)
			})
			c.Ready()
			c.Await()
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			must(prims.OpenFuture(a, "first", nil)).Set(4)
			errno, err := must(prims.OpenFuture(a, "then", nil)).WaitContext(t.Context())
			require.NoError(t, err)
			require.EqualValues(t, 5, errno)
			require.EqualValues(t, 1, b.Made.Load())
		},
	},
	// As in silk: only keys that are held now use memory. Keys that either process held earlier use none.
	"multilock memory": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			x := must(prims.OpenMultiLock(a, "m", nil))
			for {
				c.Ready()
				var keys uint64
				c.Recv(&keys)
				for key := range keys {
					x.Lock(key * 0x9e3779b97f4a7c15).Unlock()
				}
			}
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			p.Await(t)
			x := must(prims.OpenMultiLock(a, "m", nil))
			before, nodes := a.Stats(), uint64(0)
			for _, keys := range []uint64{2000, 20_000} {
				before, nodes = a.Stats(), ownNodes(a) // from before round 2; some memory of round 1 stays
				p.Send(keys)
				for key := range keys {
					x.Lock(key * 0x9e3779b97f4a7c15).Unlock()
				}
				p.Await(t)
			}
			// Each process keeps a few wait nodes, for keys that both processes want. Memory for the 18,000 additional keys of
			// round 2 would be 400 KB.
			after := a.Stats()
			require.LessOrEqual(t, ownNodes(a), nodes+8)
			require.LessOrEqual(t, after.BytesUsed, before.BytesUsed+4096)
			require.LessOrEqual(t, after.PollerNodes, before.PollerNodes)
		},
	},
	// As in Go: the queue behaves like a channel, no matter which process sends and which receives.
	"queue and channel": {
		peer: func(c *proctest.Child, a *arena.Arena, b *featureBoard) {
			q := must(prims.AttachQueue[int](a, "q", nil))
			c.Ready()
			for {
				var op int
				c.Recv(&op)
				c.Say(queueStep(q, op))
			}
		},
		test: func(t *testing.T, a *arena.Arena, b *featureBoard, p *proctest.Proc) {
			const room = 4
			q, ch := must(prims.OpenQueue[int](a, "q", room, nil)), make(chan int, room)
			p.Await(t)
			r := rand.New(rand.NewPCG(1, 2))
			for i := range 400 {
				op := 0
				if r.IntN(2) == 0 {
					op = i + 1
				}
				var got int
				if r.IntN(2) == 0 {
					got = queueStep(q, op)
				} else {
					p.Send(op)
					p.Recv(t, &got)
				}
				require.Equal(t, channelStep(ch, op), got)
				require.Equal(t, []int{len(ch), cap(ch)}, []int{q.Len(), q.Cap()})
			}
			for channelStep(ch, 1) == 1 { // fills q and ch, so that the next Put waits for a Get of the other process
				queueStep(q, 1)
			}
			put := make(chan error, 1)
			go func() { put <- q.PutContext(context.Background(), 2) }()
			eventually(t, "it waits", q.String, func() bool { return queued(a, q.Offset()) == 1 })
			p.Send(0)
			var got int
			p.Recv(t, &got)
			require.NoError(t, <-put)
			q.Shutdown()
			for range room {
				v, err := q.Get()
				require.NoError(t, err)
				require.NotZero(t, v)
			}
			_, err := q.Get()
			require.ErrorIs(t, err, shmsync.ErrCanceled)
			p.Send(1)
			p.Recv(t, &got)
			require.Zero(t, got, "the queue is not shut down for the other process")
		},
	},
}

// queueStep puts op if op is not 0; otherwise it gets an item. It does not wait. It returns the
// item, or 0 if there is none.
func queueStep(q *prims.Queue[int], op int) int {
	if op != 0 && q.TryPut(op) {
		return op
	}
	if op == 0 {
		v, _ := q.TryGet()
		return v
	}
	return 0
}

// channelStep is queueStep for a channel.
func channelStep(ch chan int, op int) int {
	if op != 0 {
		select {
		case ch <- op:
			return op
		default:
			return 0
		}
	}
	select {
	case v := <-ch:
		return v
	default:
		return 0
	}
}

func init() {
	proctest.Register("feature", func(c *proctest.Child) {
		var p struct{ Arena, Feature string }
		c.Params(&p)
		a := must(arena.Attach(p.Arena, nil))
		features[p.Feature].peer(c, a, must(arena.AttachValue[featureBoard](a, "board")))
	})
}

// TestFeaturesElsewhere runs operations of docs/testing/features.md with a peer in another process.
// The other tests of these operations run in one process.
func TestFeaturesElsewhere(t *testing.T) {
	for name, f := range features {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			b := must(arena.Value[featureBoard](a, "board"))
			if name == "queue and channel" { // the peer attaches to it
				must(prims.OpenQueue[int](a, "q", 4, nil))
			}
			p := proctest.Start(t, "feature", proctest.Params(struct{ Arena, Feature string }{nameOf(a), name}), proctest.Dump(func() string { return words(a) }))
			f.test(t, a, b, p)
		})
	}
}
