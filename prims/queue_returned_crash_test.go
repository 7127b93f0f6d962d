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

// bigQueue makes a Queue with so many slots that a few periodic checks do not examine them all. The first item is in
// a slot far from slot 1.
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

// TestQueueNotedReturn checks that one periodic check finds an item that another process has put back, however many
// slots there are. That process is stopped before it has set the bit that makes Gets search for the item.
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

// TestQueueReturnOfTheDeadAfterASearch checks that a process finds an item that a dead process has put back. The dead
// process has not set the bit that makes Gets search. The living process has searched before, and remembers that no
// returned items were left.
func TestQueueReturnOfTheDeadAfterASearch(t *testing.T) {
	a, q, p := queueTest(t, 3)
	queueFill(t, q, 1, 2)
	l, ok := q.TryLease()
	require.True(t, ok)
	require.Equal(t, []uint64{2}, queueDo(t, p, queueOrder{Verb: "lease"}).IDs)
	l.Nack()
	v, ok := q.TryGet() // this Get searches for items that came back
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

// TestQueueNoteOfTheDead checks that an item comes back if a process dies in the Nack of the item, after it has noted
// the return and before the return. A periodic check frees the note.
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

// TestQueueHostileNotes overwrites the notes of returns, as a peer may do. A periodic check frees the notes, and puts
// no item back.
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
