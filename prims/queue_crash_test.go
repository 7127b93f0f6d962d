//go:build linux && crashpoint

package prims_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// Where a process dies decides what is in the queue afterwards: every point at which
// that changes, and those of the monitor in a hand-over.
func TestQueueCrash(t *testing.T) {
	resolves := []string{"monitor.resolve.resolved", "monitor.released", "monitor.leave.before_wake", "mutex.unlock.before_release"}
	for _, c := range []struct {
		points []string
		there  uint64     // tickets 1 to there are in the queue, of 3
		before queueOrder // of the victim
		order  queueOrder // over which it dies
		wait   string     // what this process waits in meanwhile: put, or get
		late   bool       // it waits behind the victim, which waits itself
		want   []uint64   // what is there then
		times  int        // how often the first was leased
	}{
		{points: []string{"queue.add.claimed", "queue.add.written"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1}},
		{points: []string{"queue.add.committed"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1, 2}},
		{points: []string{"queue.put.staged", "monitor.queue.stamped", "monitor.queue.linked"}, there: 3, order: queueOrder{Verb: "put", IDs: []uint64{4}}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.take.committed"}, there: 3, order: queueOrder{Verb: "get"}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.drop.committed"}, there: 3, order: queueOrder{Verb: "get"}, want: []uint64{2, 3}},
		{points: []string{"queue.take.committed"}, there: 3, order: queueOrder{Verb: "lease"}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.drop.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "ack", IDs: []uint64{1}}, want: []uint64{2, 3}},
		{points: []string{"queue.back.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "nack", IDs: []uint64{1}}, want: []uint64{1, 2, 3}, times: 1},
		// It dies while it lets us go on.
		{points: append([]string{"queue.put.copied", "queue.drop.committed", "queue.add.claimed", "queue.add.committed"}, resolves...), there: 3, order: queueOrder{Verb: "get"}, wait: "put", want: []uint64{2, 3, 4}},
		{points: append([]string{"queue.add.committed", "queue.take.committed", "queue.hand.claimed", "queue.hand.granted"}, resolves...), order: queueOrder{Verb: "put", IDs: []uint64{1}}, wait: "get"},
		{points: resolves, order: queueOrder{Verb: "shutdown"}, wait: "get stopped"},
		// It has been given an item.
		{points: []string{"queue.get.granted", "monitor.await.resolved"}, order: queueOrder{Verb: "get"}, late: true, want: []uint64{1}},
		{points: []string{"queue.get.granted", "monitor.await.resolved"}, order: queueOrder{Verb: "lease"}, late: true, want: []uint64{1}},
	} {
		for _, point := range c.points {
			t.Run(c.order.Verb+"/"+c.wait+"/"+point, func(t *testing.T) {
				a, q, p := queueTest(t, 3)
				queueFill(t, q, 1, c.there)
				if c.before.Verb != "" {
					queueDo(t, p, c.before)
				}
				done := make(chan error, 1)
				switch c.wait {
				case "put":
					go func() { done <- q.Put(ticket(4)) }()
					queueWaits(t, a, q, 0, 1)
				case "get", "get stopped":
					go func() {
						v, err := q.Get()
						if err == nil {
							require.Equal(t, ticket(1), v)
						}
						done <- err
					}()
					queueWaits(t, a, q, 1, 0)
				}
				queueDo(t, p, queueOrder{Verb: "arm", At: point})
				p.Send(c.order)
				if c.late {
					queueWaits(t, a, q, 1, 0)
					require.NoError(t, q.Put(ticket(1)))
				}
				p.WaitSignal(t, syscall.SIGKILL)
				switch c.wait {
				case "get stopped":
					require.ErrorIs(t, <-done, shmsync.ErrCanceled)
				case "":
				default:
					require.NoError(t, <-done)
				}
				alone(t, a, 1)
				require.Equal(t, prims.QueueState{Capacity: 3, Queued: len(c.want), Shutdown: c.wait == "get stopped"}, q.State())
				if c.times > 0 {
					l, err := q.Lease()
					require.NoError(t, err)
					require.Equal(t, c.times, l.Attempts)
					l.Nack()
				}
				require.Equal(t, c.want, queueDrain(t, q))
				require.True(t, q.Consistent())
				require.Equal(t, uint64(q.Stages()), a.Stats().Claimed)
				sound(t, a)
			})
		}
	}
}

// A reap that dies over what it brings back is ended by another: nothing is there twice.
// This process would reap too; it stays before its first step until the other one has died.
func TestQueueCrashInReap(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 4)
	queueFill(t, q, 1, 4)
	consumer, sweeper := queueOther(t, a), queueOther(t, a)
	queueDo(t, consumer, queueOrder{Verb: "lease", N: 3})
	queueDo(t, sweeper, queueOrder{Verb: "arm", At: "queue.back.committed"})
	crashpoint.ArmFunc("arena.reap.seen", 1, func() { <-sweeper.Done() })
	t.Cleanup(crashpoint.Disarm)
	consumer.Kill(t)
	sweeper.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	require.Equal(t, prims.QueueState{Capacity: 4, Queued: 4}, q.State())
	require.True(t, q.Consistent())
	for id := range uint64(4) {
		l, ok := q.TryLease()
		require.True(t, ok)
		require.Equal(t, ticket(id+1), l.Item)
		before := 0
		if id < 3 {
			before = 1 // the consumer's
		}
		require.Equal(t, before, l.Attempts)
		l.Ack()
	}
	sound(t, a)
}

// A putter that dies while its item is copied: its block may be another's by then, so
// the copy is not believed.
func TestQueuePutterDiesUnderCopy(t *testing.T) {
	a, q, p := queueTest(t, 3)
	queueFill(t, q, 1, 3)
	p.Send(queueOrder{Verb: "put", IDs: []uint64{4}})
	queueWaits(t, a, q, 0, 1)
	var putter arena.ParticipantID
	for part := range a.Participants() {
		if !part.Self {
			putter = arenakernel.Participant(part).Name()
		}
	}
	crashpoint.ArmFunc("queue.put.copied", 1, func() {
		p.Kill(t)
		eventually(t, "dead", func() string { return words(a) }, func() bool { return !a.Current(putter) })
	})
	v, err := q.Get()
	require.NoError(t, err)
	require.Equal(t, ticket(1), v)
	alone(t, a, 1)
	require.Equal(t, []uint64{2, 3}, queueDrain(t, q))
	require.True(t, q.Consistent())
	sound(t, a)
}

// A process that is stopped anywhere in a call delays nobody: Puts and Gets of others go on,
// those that wait when it stops, too, and items pass through the queue. When it goes on, no
// item is lost or there twice.
func TestQueueStoppedGranter(t *testing.T) {
	served := []string{"monitor.resolve.resolved", "monitor.released", "monitor.leave.before_wake", "mutex.unlock.before_release"}
	for _, c := range []struct {
		points []string
		there  uint64 // tickets 1 to there are in the queue, of 3
		order  queueOrder
		wait   string // what waits in this process when it is stopped: put or get
		takes  bool   // it has taken an item
	}{
		{points: []string{"queue.add.claimed", "queue.add.written", "queue.add.committed"}, order: queueOrder{Verb: "put", IDs: []uint64{50}}},
		{points: []string{"queue.take.committed"}, there: 3, order: queueOrder{Verb: "get"}, takes: true},
		{points: []string{"queue.drop.committed"}, there: 3, order: queueOrder{Verb: "get"}, takes: true},
		{points: []string{"queue.put.staged", "monitor.queue.stamped", "monitor.queue.linked"}, there: 3, order: queueOrder{Verb: "put", IDs: []uint64{50}}},
		{points: []string{"monitor.queue.stamped", "monitor.queue.linked"}, order: queueOrder{Verb: "get"}, takes: true},
		{points: append([]string{"queue.add.committed", "queue.take.committed", "queue.hand.claimed", "queue.hand.granted"}, served...), order: queueOrder{Verb: "put", IDs: []uint64{50}}, wait: "get"},
		{points: append([]string{"queue.put.copied", "queue.add.claimed", "queue.add.committed", "queue.drop.committed"}, served...), there: 3, order: queueOrder{Verb: "get"}, wait: "put", takes: true},
	} {
		for _, point := range c.points {
			t.Run(c.order.Verb+"/"+c.wait+"/"+point, func(t *testing.T) {
				a, q, p := queueTest(t, 3)
				queueFill(t, q, 1, c.there)
				want := map[uint64]bool{}
				for id := range c.there {
					want[id+1] = true
				}
				for _, id := range c.order.IDs {
					want[id] = true
				}
				got, first := make(chan queueTicket, 200), make(chan queueTicket, 1)
				put := make(chan error, 200)
				switch c.wait {
				case "get":
					go func() {
						v, _ := q.Get()
						first <- v
					}()
					queueWaits(t, a, q, 1, 0)
				case "put":
					want[60] = true
					go func() { put <- q.Put(ticket(60)) }()
					queueWaits(t, a, q, 0, 1)
				}
				queueDo(t, p, queueOrder{ID: 1, Verb: "armstop", At: point})
				p.Send(c.order)
				p.AwaitStop(t)
				const more = 12
				go func() {
					for id := range uint64(more) {
						put <- q.Put(ticket(100 + id))
					}
				}()
				go func() {
					for range more {
						v, _ := q.Get()
						got <- v
					}
				}()
				for id := range uint64(more) {
					want[100+id] = true
				}
				for range more - 3 {
					v := <-got
					require.True(t, v.whole() && want[v.ID], "%v", v)
					delete(want, v.ID)
					require.NoError(t, <-put)
				}
				if c.wait == "get" {
					want[90] = true
					go func() { put <- q.Put(ticket(90)) }()
					v := <-first // it goes on, although nobody serves its line
					require.True(t, v.whole() && want[v.ID], "%v", v)
					delete(want, v.ID)
				}
				p.Cont(t)
				if c.takes {
					if c.order.Verb == "get" && c.there == 0 {
						want[200] = true
						require.NoError(t, q.Put(ticket(200)))
					}
					ids := queueHear(t, p, 0).IDs
					require.Len(t, ids, 1)
					require.True(t, want[ids[0]])
					delete(want, ids[0])
				} else {
					require.True(t, queueHear(t, p, 0).OK)
				}
				for len(want) > 0 {
					var v queueTicket
					select {
					case v = <-got:
					default:
						var ok bool
						if v, ok = q.TryGet(); !ok {
							runtime.Gosched()
							continue
						}
					}
					require.True(t, v.whole() && want[v.ID], "%v", v)
					delete(want, v.ID)
				}
				q.Shutdown()
			})
		}
	}
}
