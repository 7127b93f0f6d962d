//go:build linux && crashpoint

package prims_test

import (
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
	handOver := []string{
		"monitor.resolve.resolved", "monitor.commit.logged", "monitor.commit.begun", "monitor.account.committed",
		"monitor.released", "monitor.leave.before_wake", "mutex.unlock.before_release",
	}
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
		{points: []string{"queue.add.written"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1}},
		{points: []string{"queue.add.committed", "mutex.unlock.before_release"}, there: 1, order: queueOrder{Verb: "put", IDs: []uint64{2}}, want: []uint64{1, 2}},
		{points: []string{"queue.put.staged", "monitor.queue.stamped", "monitor.queue.linked"}, there: 3, order: queueOrder{Verb: "put", IDs: []uint64{4}}, want: []uint64{1, 2, 3}},
		{points: []string{"queue.drop.committed", "mutex.unlock.before_release"}, there: 3, order: queueOrder{Verb: "get"}, want: []uint64{2, 3}},
		{points: []string{"queue.take.committed", "mutex.unlock.before_release"}, there: 3, order: queueOrder{Verb: "lease"}, want: []uint64{1, 2, 3}, times: 1},
		{points: []string{"queue.drop.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "ack", IDs: []uint64{1}}, want: []uint64{2, 3}},
		{points: []string{"queue.back.committed"}, there: 3, before: queueOrder{Verb: "lease"}, order: queueOrder{Verb: "nack", IDs: []uint64{1}}, want: []uint64{1, 2, 3}, times: 1},
		// It dies while it lets us go on.
		{points: append([]string{"queue.put.copied", "queue.drop.committed"}, handOver...), there: 3, order: queueOrder{Verb: "get"}, wait: "put", want: []uint64{2, 3, 4}},
		{points: append([]string{"queue.add.committed"}, handOver...), order: queueOrder{Verb: "put", IDs: []uint64{1}}, wait: "get"},
		{points: handOver, order: queueOrder{Verb: "shutdown"}, wait: "get stopped"},
		// It has been given an item.
		{points: []string{"queue.get.granted", "monitor.await.resolved"}, order: queueOrder{Verb: "get"}, late: true, want: []uint64{1}},
		{points: []string{"queue.get.granted", "monitor.await.resolved"}, order: queueOrder{Verb: "lease"}, late: true, want: []uint64{1}, times: 1},
	} {
		for _, point := range c.points {
			if c.wait == "get stopped" && (point == "monitor.commit.logged" || point == "monitor.commit.begun" || point == "monitor.account.committed") {
				continue // a waiter that is turned away is given nothing
			}
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
