//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// sequencerStage has the objects that an actor uses, for Sequencers and Events. An actor carries out orders, in
// this process or in another one.
type sequencerStage struct {
	a *arena.Arena
	contexts

	mu      sync.Mutex
	pending map[int]*prims.Pending // indexed by the number of the order that began the wait
}

func init() {
	registerActor("sequencer/actor", func(a *arena.Arena) stageOf[order] {
		return &sequencerStage{a: a, pending: map[int]*prims.Pending{}}
	})
}

func sequencerActor(t testing.TB, a *arena.Arena, label string, opts ...proctest.Option) *actor {
	t.Helper()
	return actorOf(t, a, "sequencer/actor", label, opts...)
}

func (s *sequencerStage) note(id int, p *prims.Pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending[id] = p
}

// noted returns the wait that an order began. If necessary it waits until the actor has stored the wait in
// pending, which the actor does after the wait was queued.
func (s *sequencerStage) noted(id int) (p *prims.Pending) {
	err := waitUntil(timeout(), func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		p = s.pending[id]
		return p != nil
	})
	if err != nil {
		panic(fmt.Sprintf("order %d has begun no wait: %v", id, err))
	}
	return p
}

func (s *sequencerStage) context(o order) context.Context {
	return s.contexts.begin(o.ID, o.Limit, o.Done)
}

func (s *sequencerStage) perform(o order, a *answer) error {
	switch o.Op {
	case "cancel": // cancels the context of order number N
		s.contexts.end(o.N)
		return nil
	case "pending.wait":
		return s.noted(o.N).Wait()
	case "pending.cancel":
		a.OK = s.noted(o.N).Cancel()
		return nil
	case "close-arena":
		return s.a.Close()
	}
	if o.Op[0] == 'e' {
		return s.performEvent(o, a)
	}
	q, err := prims.OpenSequencer(s.a, o.Object, nil)
	if err != nil {
		return err
	}
	switch o.Op {
	case "value":
		a.N = q.Value()
	case "increment":
		for range max(o.N, 1) {
			a.N = q.Increment()
		}
	case "advance":
		a.OK = q.Advance(o.Token)
	case "wait":
		return q.Wait(o.Token)
	case "wait.ctx":
		return q.WaitContext(s.context(o), o.Token)
	case "async":
		s.note(o.ID, q.WaitAsync(o.Token))
	case "cancel.waiters":
		q.CancelWaiters()
	case "stop":
		q.Stop()
	case "stopped":
		a.OK = q.Stopped()
	case "reset":
		a.OK = q.ResetTo(o.Token)
	case "look":
		prims.LookAt(s.a, q.Offset())
	case "string":
		a.Text = q.String()
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

func (s *sequencerStage) performEvent(o order, a *answer) error {
	var opts *prims.EventOptions
	if o.Op == "e.auto" {
		opts = &prims.EventOptions{Mode: prims.EventAutoReset}
	}
	e, err := prims.OpenEvent(s.a, o.Object, opts)
	if err != nil {
		return err
	}
	switch o.Op {
	case "e.auto": // only opens the Event
	case "e.set":
		for range max(o.N, 1) {
			e.Set()
		}
	case "e.reset":
		a.OK = e.Reset()
	case "e.isset":
		a.OK = e.IsSet()
	case "e.try":
		a.OK = e.TryWait()
	case "e.wait":
		e.Wait()
	case "e.rests":
		return waitUntil(timeout(), func() bool { return prims.Resting(s.a) > 0 })
	case "e.wait.ctx":
		return e.WaitContext(s.context(o))
	case "e.async":
		s.note(o.ID, e.WaitAsync())
	case "e.wait.reset":
		e.WaitReset()
	case "e.wait.reset.ctx":
		return e.WaitResetContext(s.context(o))
	case "e.async.reset":
		s.note(o.ID, e.WaitResetAsync())
	default:
		panic("no such order: " + o.Op)
	}
	return nil
}

// queues starts an order, and returns when the object has one more queued wait.
func (x *actor) queues(t testing.TB, a *arena.Arena, off arena.Offset, o order) int {
	t.Helper()
	n := mostWaits(func() int { return prims.Queued(a, off) })
	id := x.start(o)
	eventually(t, fmt.Sprintf("%s of %s waits", o.Op, o.Object), x.dump, func() bool { return prims.Queued(a, off) > n })
	return id
}

// ok fails the test unless the order succeeds.
func (x *actor) ok(t testing.TB, id int) {
	t.Helper()
	r := x.wait(t, id)
	require.Empty(t, r.Err+r.Panic)
}

// isCanceled fails the test unless the order ends with ErrCanceled.
func (x *actor) isCanceled(t testing.TB, id int) {
	t.Helper()
	require.Equal(t, []string{"canceled"}, x.wait(t, id).Is)
}

// ended starts an order that waits for the end of the pending wait of order id. It returns the number of the
// new order.
func (x *actor) ended(id int) int { return x.start(order{Op: "pending.wait", N: id}) }

// sequencerGroup has the objects of a test and two actors: a waiter and a counter, each in a separate process
// or both in this one.
type sequencerGroup struct {
	a               *arena.Arena
	waiter, counter *actor
	s               *prims.Sequencer
	e               *prims.Event
}

// queued makes the waiter begin a wait, and returns when the wait is in the queue. The result is the number of the
// order that began the wait.
func (x *sequencerGroup) queued(t testing.TB, op string, token uint64) int {
	t.Helper()
	if op[0] == 'e' {
		return x.waiter.queues(t, x.a, x.e.Offset(), order{Op: op, Object: "e"})
	}
	return x.waiter.queues(t, x.a, x.s.Offset(), order{Op: op, Object: "s", Token: token})
}

// still fails the test unless n waits remain. It retries for a while, because a waiter may be awake for its periodic
// check and then sleep again.
func (x *sequencerGroup) still(t testing.TB, off arena.Offset, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d wait", n), func() string { return fmt.Sprint(x.s, x.e) }, func() bool { return prims.Queued(x.a, off) == n })
}

// sequencerTests runs each test with the waiter and the counter in two processes, and with both in one process.
func sequencerTests(t *testing.T, opts *prims.EventOptions, tests map[string]func(t *testing.T, x *sequencerGroup)) {
	for name, test := range tests {
		for _, where := range []string{"two processes", "one process"} {
			t.Run(name+"/"+where, func(t *testing.T) {
				x := &sequencerGroup{a: newArena(t, nil)}
				var err error
				x.s, err = prims.OpenSequencer(x.a, "s", nil)
				require.NoError(t, err)
				x.e, err = prims.OpenEvent(x.a, "e", opts)
				require.NoError(t, err)
				x.waiter = sequencerActor(t, x.a, "waiter")
				x.counter = x.waiter
				if where == "two processes" {
					x.counter = sequencerActor(t, x.a, "counter")
				}
				test(t, x)
				// No wait is left, whatever ended the waits.
				require.Zero(t, prims.Queued(x.a, x.s.Offset())+prims.Queued(x.a, x.e.Offset()), "%s", words(x.a))
				require.False(t, x.s.Overdue())
				sound(t, x.a)
			})
		}
	}
}
