//go:build linux && crashpoint

package prims_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// bigQueue makes a Queue with more slots than a few periodic checks examine. The first item is in a slot that is far
// from the first.
func bigQueue(t *testing.T) (*arena.Arena, *prims.Queue[queueTicket]) {
	const n = 30_000
	a := newArena(t, &arena.Options{Size: 8 << 20})
	q := newQueue[queueTicket](t, a, "q", n)
	queueFill(t, q, 1, n)
	for range n / 2 {
		_, ok := q.TryGet()
		require.True(t, ok)
	}
	return a, q
}

// TestQueueNotedReturn: a process is stopped after it has put an item back, and before it has set the bit that makes Gets
// search for the item. One periodic check of another process finds the item, however many slots there are.
func TestQueueNotedReturn(t *testing.T) {
	a, q := bigQueue(t)
	p := queueOther(t, a, proctest.Env("SHMSYNC_CRASHPOINT_STOP=queue.back.committed"))
	id := queueDo(t, p, queueOrder{Verb: "lease"}).IDs
	p.Send(queueOrder{Verb: "nack", IDs: id})
	p.AwaitStop(t)
	q.Look()
	v, ok := q.TryGet()
	require.True(t, ok)
	require.Equal(t, ticket(id[0]), v)
	require.Equal(t, 1, q.Returning())
	p.Cont(t)
	queueHear(t, p, 0)
	require.Zero(t, q.Returning())
	sound(t, a)
}

// TestQueueReturnOfTheDeadAfterASearch: this process has searched for items that came back, has taken the only one,
// and remembers that there are no more. Then another process puts an item back, and dies before it sets the bit that
// makes Gets search. This process must still find the item of the dead process.
func TestQueueReturnOfTheDeadAfterASearch(t *testing.T) {
	a, q, p := queueTest(t, 3)
	queueFill(t, q, 1, 2)
	l, ok := q.TryLease()
	require.True(t, ok)
	require.Equal(t, []uint64{2}, queueDo(t, p, queueOrder{Verb: "lease"}).IDs)
	l.Nack()
	v, ok := q.TryGet() // it searches for items that came back
	require.True(t, ok)
	require.Equal(t, ticket(1), v)
	queueDo(t, p, queueOrder{Verb: "arm", At: "queue.back.committed"})
	p.Send(queueOrder{Verb: "nack", IDs: []uint64{2}})
	p.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	v, ok = q.TryGet()
	require.True(t, ok, "no call finds the item: %+v", queueNow(q))
	require.Equal(t, ticket(2), v)
	_, ok = q.TryGet()
	require.False(t, ok)
	sound(t, a)
}

// TestQueueNoteOfTheDead: a process has noted that it is about to put an item back, and dies before it does so. The item
// comes back, and a periodic check frees the note.
func TestQueueNoteOfTheDead(t *testing.T) {
	a, q := bigQueue(t)
	p := queueOther(t, a)
	id := queueDo(t, p, queueOrder{Verb: "lease"}).IDs
	queueDo(t, p, queueOrder{Verb: "arm", At: "queue.back.noted"})
	p.Send(queueOrder{Verb: "nack", IDs: id})
	p.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	q.Look()
	require.Zero(t, q.Returning())
	v, ok := q.TryGet()
	require.True(t, ok)
	require.Equal(t, ticket(id[0]), v)
	sound(t, a)
}

// TestQueueHostileNotes: a peer overwrites the notes of returns. A periodic check frees them, and puts no item back.
func TestQueueHostileNotes(t *testing.T) {
	a, q := bigQueue(t)
	for _, v := range []uint64{1, 1 << 32, ^uint64(0), 15_001 << 32, 30_001<<32 | 7} {
		q.SetReturning(v)
		q.Look()
		require.Zero(t, q.Returning(), "%#x", v)
		require.Equal(t, prims.QueueState{Capacity: 30_000, Queued: 15_000}, queueNow(q))
	}
	sound(t, a)
}
