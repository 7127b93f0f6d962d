//go:build linux && crashpoint

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// TestMultiLockReapStaysOnItsQueue: a reap walks along the queue of a key. While it reads a node, the
// owner of the node gives its wait up, and uses the node for a wait for another key. The reap does not go on along
// the queue of that key, from which it would remove waits without the right commit word.
func TestMultiLockReapStaysOnItsQueue(t *testing.T) {
	for hit, when := range []string{"before the reads", "between the reads"} {
		t.Run(when, func(t *testing.T) { reapWhileNodeMoves(t, hit+1) })
	}
}

func reapWhileNodeMoves(t *testing.T, hit int) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	ours, theirs := uint64(1), uint64(2)
	require.False(t, x.SameBucket(ours, theirs))
	holder, moves, dead, last := lockActor(t, a, "holder"), lockActor(t, a, "moves"), lockActor(t, a, "dead"), lockActor(t, a, "last")
	h := x.Lock(ours)
	holder.must(t, order{Op: "mlock", Object: "m", Token: theirs})
	id := multiQueued(t, x, moves, ours, order{Op: "mlockctx", Token: ours})
	node := x.QueuedNodes(ours)[0]
	var ids [3]int
	queued := func(i int, by *actor) {
		ids[i] = by.start(order{Op: "mlock", Object: "m", Token: theirs})
		eventually(t, "it waits", by.dump, func() bool { return len(x.QueuedNodes(theirs)) == i+1 })
	}
	crashpoint.ArmFunc("record.reap.visited", hit, func() {
		moves.must(t, order{Op: "cancel", N: id})
		require.Contains(t, moves.wait(t, id).Is, "ctx-canceled")
		queued(0, moves)
		queued(1, dead)
		queued(2, last)
	})
	var counted arenakernel.ParticipantID
	for p := range (*arenakernel.Arena)(a).Participants() {
		if p.Label == "dead" {
			counted = p.Name()
		}
	}
	require.NoError(t, x.RemoveDead(ours, counted))
	require.Same(t, node, x.QueuedNodes(theirs)[0], "it uses the same node")
	require.Len(t, x.QueuedNodes(theirs), 3)
	h.Unlock()
	for i, by := range []*actor{holder, moves, dead, last} {
		by.must(t, order{Op: "munlock", Object: "m", Token: theirs})
		if i < len(ids) {
			next := []*actor{moves, dead, last}[i]
			require.Empty(t, next.wait(t, ids[i]).Panic)
		}
	}
	_, ok := x.TryLock(theirs)
	require.True(t, ok)
	sound(t, a)
}
