//go:build linux && crashpoint

package prims_test

import (
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestQueueCrash kills a process at a crash point of a call: while the call changes the queue, while it waits, or
// before it has made a wake. It checks that the queue then has the right items, and that a waiting call of this
// process returns.
func TestQueueCrash(t *testing.T) {
	wakes := []string{"park.wake.before_bump", "park.wake.bumped", "park.wake.done"}
	for _, c := range []struct {
		points []string
		there  uint64     // tickets 1 to there are in the queue, which has room for 3
		before queueOrder // the victim carries this out first
		order  queueOrder // the victim dies while it carries this out
		wait   string     // the call in which this process waits meanwhile: put, or get
		late   bool       // this process puts an item after the victim has begun to wait
		want   []uint64   // the items in the queue after the death
		times  int        // how often the first item had been leased before
	}{
		{points: []string{"queue.add.claimed", "queue.add.written"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1}},
		{points: []string{"queue.add.committed"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1, 2}},
		{points: []string{"queue.wait.announced"}, there: 3, order: queueOrder{Verb: "put", IDs: []uint64{4}}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.take.committed"}, there: 3, order: queueOrder{Verb: "get"}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.drop.committed"}, there: 3, order: queueOrder{Verb: "get"}, want: []uint64{2, 3}},
		{points: []string{"queue.wait.announced"}, order: queueOrder{Verb: "get"}},
		{points: []string{"queue.take.committed"}, there: 3, order: queueOrder{Verb: "lease"}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.lease.noted"}, there: 3, order: queueOrder{Verb: "lease"}, want: []uint64{1, 2, 3}, times: 1},
		{points: []string{"queue.lease.ended"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "ack", IDs: []uint64{1}}, want: []uint64{1, 2, 3}, times: 1},
		{points: []string{"queue.drop.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "ack", IDs: []uint64{1}}, want: []uint64{2, 3}},
		{points: []string{"queue.lease.ended", "queue.back.noted", "queue.back.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "nack", IDs: []uint64{1}}, want: []uint64{1, 2, 3}, times: 1},
		// The victim dies before it has woken this process.
		{points: append([]string{"queue.drop.committed"}, wakes...), there: 3, order: queueOrder{Verb: "get"}, wait: "put", want: []uint64{2, 3, 4}},
		{points: append([]string{"queue.add.committed"}, wakes...), order: queueOrder{Verb: "put", IDs: []uint64{1}}, wait: "get"},
		{points: []string{"queue.back.committed", "park.wake.bumped"}, there: 1, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "nack", IDs: []uint64{1}}, wait: "get"},
		{points: []string{"queue.shutdown.marked"}, order: queueOrder{Verb: "shutdown"}, wait: "get stopped"},
		// The victim dies after it was woken for an item.
		{points: []string{"queue.wait.woken"}, order: queueOrder{Verb: "get"}, late: true, want: []uint64{1}},
		{points: []string{"queue.wait.woken"}, order: queueOrder{Verb: "lease"}, late: true, want: []uint64{1}},
		{points: []string{"queue.lease.noted"}, order: queueOrder{Verb: "lease"}, late: true, want: []uint64{1}, times: 1},
		{points: []string{"queue.wait.passed"}, order: queueOrder{Verb: "get"}, late: true},
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
				require.Equal(t, prims.QueueState{Capacity: 3, Queued: len(c.want), Shutdown: c.wait == "get stopped"}, queueNow(q))
				if len(c.want) > 0 {
					l, err := q.Lease()
					require.NoError(t, err)
					require.Equal(t, c.times, l.Attempts)
					l.Nack()
				}
				require.Equal(t, c.want, queueDrain(t, q))
				require.True(t, q.Consistent())
				sound(t, a)
			})
		}
	}
}

// TestQueueCrashInReap checks that no item is in the queue twice after a reaper has died while it put leased items
// back, and another reaper has gone on. This process would reap, too. So it waits before the first step of its reap
// until the other reaper has died.
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
	require.Equal(t, prims.QueueState{Capacity: 4, Queued: 4}, queueNow(q))
	require.True(t, q.Consistent())
	for id := range uint64(4) {
		l, ok := q.TryLease()
		require.True(t, ok)
		require.Equal(t, ticket(id+1), l.Item)
		before := 0
		if id < 3 {
			before = 1 // the lease of the consumer
		}
		require.Equal(t, before, l.Attempts)
		l.Ack()
	}
	sound(t, a)
}

// TestQueueCrashInReapOfPuts checks that the queue has its full capacity after a reaper has died that had freed one
// slot of a dead process, and another reaper has gone on.
func TestQueueCrashInReapOfPuts(t *testing.T) {
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", 4)
	producer, sweeper := queueOther(t, a), queueOther(t, a)
	queueDo(t, producer, queueOrder{Verb: "arm", At: "queue.add.written"})
	queueDo(t, sweeper, queueOrder{Verb: "arm", At: "queue.reap.freed"})
	crashpoint.ArmFunc("arena.reap.seen", 1, func() { <-sweeper.Done() })
	t.Cleanup(crashpoint.Disarm)
	producer.Send(queueOrder{Verb: "put", IDs: []uint64{9}})
	producer.WaitSignal(t, syscall.SIGKILL)
	sweeper.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	require.Equal(t, prims.QueueState{Capacity: 4}, queueNow(q))
	queueFill(t, q, 1, 4)
	require.Equal(t, []uint64{1, 2, 3, 4}, queueDrain(t, q))
	require.True(t, q.Consistent())
	sound(t, a)
}

// TestQueueCloseWaitsForCalls checks that Close waits for a call that works with a slot, although no word counts such
// calls.
func TestQueueCloseWaitsForCalls(t *testing.T) {
	for _, point := range []string{"queue.add.claimed", "queue.add.written", "queue.take.committed"} {
		t.Run(point, func(t *testing.T) {
			a := newArena(t, nil)
			q, mine := newQueue[queueTicket](t, a, "q", 4), newQueue[queueTicket](t, a, "q", 4)
			queueFill(t, q, 1, 1)
			closed := make(chan error, 1)
			early := false
			crashpoint.ArmFunc(point, 1, func() {
				go func() { closed <- mine.Close() }()
				for tries := 0; tries < 2000 && len(closed) == 0; tries++ {
					runtime.Gosched()
				}
				early = len(closed) != 0
			})
			defer crashpoint.Disarm()
			if point == "queue.take.committed" {
				v, err := mine.Get()
				require.NoError(t, err)
				require.Equal(t, ticket(1), v)
			} else {
				require.NoError(t, mine.Put(ticket(2)))
			}
			require.NoError(t, <-closed)
			require.False(t, early, "Close has returned while the call used the slot")
			sound(t, a)
		})
	}
}
