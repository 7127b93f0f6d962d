//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestQueueLeasesOfTheDead checks that the items leased by a dead consumer come back exactly once, in the order of
// their Puts and before later items. Attempts shows that the items are delivered again.
func TestQueueLeasesOfTheDead(t *testing.T) {
	a, q, p := queueTest(t, 20)
	ctx := context.Background()
	queueFill(t, q, 1, 12)
	require.Equal(t, []uint64{1, 2, 3}, queueDo(t, p, queueOrder{ID: 1, Verb: "lease", N: 3}).IDs)
	l, err := q.LeaseContext(ctx)
	require.NoError(t, err)
	require.Equal(t, ticket(4), l.Item)
	r := queueDo(t, p, queueOrder{ID: 2, Verb: "lease", N: 3})
	require.Equal(t, []uint64{5, 6, 7}, r.IDs)
	require.Equal(t, []int{0, 0, 0}, r.Times)
	require.True(t, queueDo(t, p, queueOrder{ID: 3, Verb: "ack", IDs: []uint64{2, 6}}).OK)
	require.True(t, queueDo(t, p, queueOrder{ID: 4, Verb: "nack", IDs: []uint64{5}}).OK)
	require.Equal(t, []uint64{5}, queueDo(t, p, queueOrder{ID: 5, Verb: "lease"}).IDs)
	require.Equal(t, prims.QueueState{Capacity: 20, Queued: 5, Out: 5}, queueNow(q))
	p.Kill(t)
	alone(t, a, 1)
	want := map[uint64]int{1: 1, 3: 1, 5: 2, 7: 1}
	for _, id := range []uint64{1, 3, 5, 7, 8, 9} {
		again, err := q.LeaseContext(ctx)
		require.NoError(t, err)
		require.Equal(t, ticket(id), again.Item)
		require.Equal(t, want[id], again.Attempts)
		again.Ack()
	}
	l.Nack()
	require.Equal(t, []uint64{4, 10, 11, 12}, queueDrain(t, q))
	require.True(t, q.Consistent())
}

// TestQueueDeathLetsGettersGo checks that a waiting Get returns the item that comes back when another process dies.
func TestQueueDeathLetsGettersGo(t *testing.T) {
	a, q, p := queueTest(t, 2)
	queueFill(t, q, 1, 1)
	queueDo(t, p, queueOrder{Verb: "lease"})
	got := make(chan queueTicket, 1)
	go func() {
		v, _ := q.Get()
		got <- v
	}()
	queueWaits(t, a, q, 1, 0)
	p.Kill(t)
	require.Equal(t, ticket(1), <-got)
}

// TestQueueStoppedConsumerKeeps: a process that is stopped keeps its leases.
func TestQueueStoppedConsumerKeeps(t *testing.T) {
	_, q, p := queueTest(t, 2)
	queueFill(t, q, 1, 2)
	queueDo(t, p, queueOrder{Verb: "lease"})
	p.Stop(t)
	v, err := q.GetContext(t.Context())
	require.NoError(t, err)
	require.Equal(t, ticket(2), v, "Get takes the next item, not the one that the stopped process has on lease")
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	_, err = q.GetContext(ctx)
	require.Equal(t, context.DeadlineExceeded, err)
	p.Cont(t)
	require.True(t, queueDo(t, p, queueOrder{ID: 1, Verb: "ack", IDs: []uint64{1}}).OK)
	require.Zero(t, q.State().Out)
}

// TestQueueStoppedWaitersKeepNobody checks that Puts and Gets that wait in a stopped process block no other process:
// items and room go to the calls of other processes.
func TestQueueStoppedWaitersKeepNobody(t *testing.T) {
	a, q, p := queueTest(t, 1)
	queueFill(t, q, 1, 1)
	p.Send(queueOrder{ID: 1, Verb: "put", IDs: []uint64{2}})
	queueWaits(t, a, q, 0, 1)
	done := make(chan error, 1)
	go func() { done <- q.Put(ticket(3)) }()
	queueWaits(t, a, q, 0, 2)
	p.Stop(t)
	v, ok := q.TryGet()
	require.True(t, ok)
	require.Equal(t, ticket(1), v)
	require.NoError(t, <-done)
	v, err := q.Get()
	require.NoError(t, err)
	require.Equal(t, ticket(3), v)
	p.Cont(t)
	require.True(t, queueHear(t, p, 1).OK)
	require.Equal(t, []uint64{2}, queueDrain(t, q))

	for i := range 3 {
		p.Send(queueOrder{ID: 2 + i, Verb: []string{"get", "get", "lease"}[i]})
		queueWaits(t, a, q, i+1, 0)
	}
	p.Stop(t)
	for id := uint64(11); id < 15; id++ {
		require.NoError(t, q.Put(ticket(id)))
		v, err := q.Get()
		require.NoError(t, err)
		require.Equal(t, ticket(id), v)
	}
	got := make(chan queueTicket, 1)
	go func() {
		v, _ := q.Get()
		got <- v
	}()
	queueWaits(t, a, q, 4, 0)
	require.NoError(t, q.Put(ticket(15)))
	require.Equal(t, ticket(15), <-got, "the others before it are stopped")
	p.Kill(t)
	alone(t, a, 1)
	require.True(t, q.Consistent())
	sound(t, a)
}

// TestQueueDeadPutters checks that Puts have no effect if their process dies while they wait. The waiting Puts of
// other processes succeed.
func TestQueueDeadPutters(t *testing.T) {
	a, q, p := queueTest(t, 1)
	queueFill(t, q, 1, 1)
	for i := range 4 {
		p.Send(queueOrder{ID: i, Verb: "put", IDs: []uint64{uint64(10 + i)}})
		queueWaits(t, a, q, 0, i+1)
	}
	done := make(chan error, 1)
	go func() { done <- q.Put(ticket(2)) }()
	queueWaits(t, a, q, 0, 5)
	p.Kill(t)
	v, err := q.Get()
	require.NoError(t, err)
	require.Equal(t, ticket(1), v)
	for v != ticket(2) { // some Puts of the victim may succeed before the kill
		v, err = q.Get()
		require.NoError(t, err)
	}
	require.NoError(t, <-done)
	alone(t, a, 1)
	require.Zero(t, q.Len())
	sound(t, a)
}

// queueLedger is where the workers record which items they have put and got. If a worker dies inside a call, nobody
// knows whether that call had its effect.
type queueLedger struct {
	Put [1 << 16]atomic.Uint32 // 1: about to be put; 2: put
	Got [1 << 16]atomic.Uint32 // how often the item was got
}

func init() {
	// queue/ledger puts the tickets from From up to To-1, or calls Get for ever.
	proctest.Register("queue/ledger", func(c *proctest.Child) {
		var p struct {
			Arena    string
			From, To uint64 // the items to put; if both are 0, it calls Get
		}
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.AttachQueue[queueTicket](a, "q", nil)
		if err != nil {
			c.Fatal(err)
		}
		l, err := arena.Value[queueLedger](a, "ledger")
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		for id := p.From; id < p.To; id++ {
			l.Put[id].Store(1)
			if err := q.Put(ticket(id)); err != nil {
				c.Fatal(err)
			}
			l.Put[id].Store(2)
		}
		for p.To == 0 {
			v, err := q.Get()
			if err != nil {
				c.Fatal(err)
			}
			if !v.whole() {
				c.Fatal("torn", v)
			}
			l.Got[v.ID].Add(1)
		}
	})
}

// TestQueueKillConservation kills producers and consumers at random moments. It checks that every item that was put
// is got exactly once. The only exceptions are items that a consumer had just taken when it died, at most one for
// each dead consumer.
func TestQueueKillConservation(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 8)
	l, err := arena.Value[queueLedger](a, "ledger")
	require.NoError(t, err)
	kills := proctest.Rounds(8, 24)
	start := func(from, to uint64) *proctest.Proc {
		p := proctest.Start(t, "queue/ledger", proctest.Params(map[string]any{"Arena": nameOf(a), "From": from, "To": to}), proctest.Dump(func() string { return words(a) }))
		p.Await(t)
		return p
	}
	const each = 2000
	deadConsumers := 0
	for k := range kills {
		first := uint64(k*each + 1)
		producer, consumer := start(first, first+each-1), start(0, 0)
		eventually(t, "items are put", func() string { return words(a) }, func() bool { return l.Put[first+20].Load() == 2 })
		<-after(time.Duration(rand.IntN(8000)) * time.Microsecond)
		if k%2 == 0 {
			consumer.Kill(t)
			deadConsumers++
			<-after(time.Duration(rand.IntN(1000)) * time.Microsecond)
			producer.Kill(t)
			continue
		}
		producer.Kill(t)
		<-after(time.Duration(rand.IntN(1000)) * time.Microsecond)
		consumer.Kill(t)
		deadConsumers++
	}
	alone(t, a, 1)
	for _, id := range queueDrain(t, q) {
		l.Got[id].Add(1)
	}
	put, missing, open := 0, 0, 0
	for id := range l.Put {
		got, state := l.Got[id].Load(), l.Put[id].Load()
		require.LessOrEqual(t, got, uint32(1), "ticket %d came out twice", id)
		require.True(t, got == 0 || state != 0)
		switch {
		case state == 2:
			put++
			if got == 0 {
				missing++
			}
		case state == 1:
			open++
		}
	}
	t.Logf("%d put, %d missing, %d put or not", put, missing, open)
	require.LessOrEqual(t, open, kills)
	require.LessOrEqual(t, missing, deadConsumers)
	require.GreaterOrEqual(t, put, 20*kills)
	require.Equal(t, prims.QueueState{Capacity: 8}, queueNow(q))
	require.True(t, q.Consistent())
	sound(t, a)
}

// TestQueueLeavingGivesLeasesBack checks that the leased items of a process that leaves the arena come back, as after
// a death.
func TestQueueLeavingGivesLeasesBack(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 4)
	queueFill(t, q, 1, 3)
	p := proctest.Start(t, "queue/leave", proctest.Params(nameOf(a)))
	p.WaitExit(t)
	require.Equal(t, []uint64{1, 2, 3}, queueDrain(t, q), fmt.Sprint(q))
}

func init() {
	proctest.Register("queue/leave", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		q, err := prims.AttachQueue[queueTicket](a, "q", nil)
		if err != nil {
			c.Fatal(err)
		}
		if _, err := q.Lease(); err != nil {
			c.Fatal(err)
		}
		if err := q.Close(); err != nil {
			c.Fatal(err)
		}
		if q, err = prims.AttachQueue[queueTicket](a, "q", nil); err != nil {
			c.Fatal(err)
		}
		if n := q.State().Out; n != 1 {
			c.Fatal("Close of the handle gave the lease back:", n)
		}
		if err := a.Close(); err != nil {
			c.Fatal(err)
		}
	})
}
