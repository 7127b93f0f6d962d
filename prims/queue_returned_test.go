//go:build linux

package prims_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/prims"
)

// TestQueueReturnedInOrder checks that items that come back are taken in the order of their Puts, whichever process
// takes them, even if other items are put or come back in between.
func TestQueueReturnedInOrder(t *testing.T) {
	const n = 300
	a := newArena(t, nil)
	q := newQueue[queueTicket](t, a, "q", n)
	other := queueOther(t, a)
	var ids []uint64
	for id := range uint64(n) {
		require.True(t, q.TryPut(ticket(id+1)))
		ids = append(ids, id+1)
	}
	theirs := queueDo(t, other, queueOrder{Verb: "lease", N: n / 2}).IDs
	require.Equal(t, ids[:n/2], theirs)
	mine := map[uint64]prims.Lease[queueTicket]{}
	for range n / 2 {
		l, ok := q.TryLease()
		require.True(t, ok)
		mine[l.Item.ID] = l
	}
	_, ok := q.TryGet()
	require.False(t, ok)
	random := rand.New(rand.NewPCG(1, 2))
	random.Shuffle(len(theirs), func(i, j int) { theirs[i], theirs[j] = theirs[j], theirs[i] })
	require.True(t, queueDo(t, other, queueOrder{Verb: "nack", IDs: theirs}).OK)
	for _, l := range mine {
		l.Nack()
	}

	took := func(id uint64) {
		require.Equal(t, ids[0], id, q)
		ids = ids[1:]
	}
	for len(ids) > 0 {
		v, ok := q.TryGet()
		require.True(t, ok, q)
		took(v.ID)
		if len(ids) > 2 {
			took(queueDo(t, other, queueOrder{Verb: "tryget"}).IDs[0])
			l, ok := q.TryLease() // the first item comes back once more
			require.True(t, ok, q)
			require.Equal(t, ids[0], l.Item.ID)
			if len(ids)%7 == 0 {
				require.Equal(t, ids[1:2], queueDo(t, other, queueOrder{Verb: "tryget"}).IDs)
				ids = append(ids[:1], ids[2:]...)
			}
			l.Nack()
		}
	}
	_, ok = q.TryGet()
	require.False(t, ok)
	require.True(t, q.Consistent())
}
