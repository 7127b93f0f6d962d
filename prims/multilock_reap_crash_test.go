//go:build linux && crashpoint

package prims_test

import (
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// idOf returns the ID of the participant with a label.
func idOf(a *arena.Arena, label string) (id arenakernel.ParticipantID) {
	for p := range (*arenakernel.Arena)(a).Participants() {
		if p.Label == label {
			id = p.Name()
		}
	}
	return id
}

// TestMultiLockReapStaysOnItsQueue: a reap walks along the queue of a key. While it reads a node, the owner of the
// node gives its wait up, and uses the node for a wait for another key, which is in another bucket. The reap must not
// go on along the queue of that key, because it makes its changes with the commit word of the first bucket.
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
	require.NoError(t, x.RemoveDead(ours, idOf(a, "dead")))
	require.Same(t, node, x.QueuedNodes(theirs)[0], "the next wait of the owner uses the same node")
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

// TestMultiLockReapOfAKeyThatMoved: a reap walks along the queue of a key to remove the waits of one process. While the
// reap reads a node, the process gives its wait up, and the key gets another entry. Then the process queues a wait for
// the key again, with the same node. The reap leaves this wait to the next reap, and does not report damage.
func TestMultiLockReapOfAKeyThatMoved(t *testing.T) {
	a := newArena(t, nil)
	x := openMulti(t, a, nil)
	keys := sameBucketWide(x, 4)
	key := keys[0]
	holder, dead := lockActor(t, a, "holder"), lockActor(t, a, "dead")
	lock := func(k uint64) { holder.must(t, order{Op: "mlock", Object: "m", Token: k}) }
	unlock := func(k uint64) { holder.must(t, order{Op: "munlock", Object: "m", Token: k}) }
	for _, k := range keys[:3] {
		lock(k)
	}
	id := multiQueued(t, x, dead, key, order{Op: "mlockctx", Token: key})
	node, again := x.QueuedNodes(key)[0], 0
	crashpoint.ArmFunc("record.reap.visited", 1, func() {
		dead.must(t, order{Op: "cancel", N: id})
		require.Contains(t, dead.wait(t, id).Is, "ctx-canceled")
		unlock(key)
		lock(keys[3]) // gets the entry of key
		unlock(keys[1])
		lock(key) // gets the entry of keys[1]
		again = dead.start(order{Op: "mlock", Object: "m", Token: key})
		eventually(t, "it waits", dead.dump, func() bool { return len(x.QueuedNodes(key)) == 1 })
	})
	require.NoError(t, x.RemoveDead(key, idOf(a, "dead")))
	require.Same(t, node, x.QueuedNodes(key)[0], "the next wait of the owner uses the same node")
	unlock(key)
	require.Empty(t, dead.wait(t, again).Panic)
	sound(t, a)
}

// TestMultiLockClosedDuringACheck: a handle is closed while its periodic check walks along the entries of a bucket
// with a block. The check still finds the entries.
func TestMultiLockClosedDuringACheck(t *testing.T) {
	s := newMultiScene(t, 3, true)
	s.y.must(t, s.order("mlock"))
	p := s.lockAsync()
	closed, inCheck := make(chan error, 1), make(chan struct{})
	var visit func()
	visit = func() {
		if stack := make([]byte, 1<<14); !strings.Contains(string(stack[:runtime.Stack(stack, false)]), "(*MultiLock).check") {
			crashpoint.ArmFunc("record.reap.visited", 1, visit) // another reap
			return
		}
		s.y.must(t, s.order("munlock"))
		<-p.done
		go func() { closed <- s.x.Close() }()
		eventually(t, "the handle is being closed", func() string { return words(s.a) }, s.x.Closing)
		for range 2000 { // the other goroutine runs Close as far as it can get
			runtime.Gosched()
		}
		close(inCheck)
	}
	crashpoint.ArmFunc("record.reap.visited", 1, visit)
	s.x.ReapAgain(s.key)
	<-inCheck
	require.NoError(t, <-closed)
	require.NoError(t, p.err)
}

// TestMultiLockReapFollowsLinksThatStay: a reap walks along the queue of a key to remove the wait of a dead process.
// Before the reap visits a node in front of that wait, the owner of the node gives its wait up, and waits for the key
// again, with the same node. So the node is now behind the wait of the dead process. The reap still finds that wait.
func TestMultiLockReapFollowsLinksThatStay(t *testing.T) {
	for before, name := range []string{"first wait", "wait behind another"} {
		t.Run(name, func(t *testing.T) {
			a := newArena(t, nil)
			x := openMulti(t, a, nil)
			const key = 1
			moves, dead := lockActor(t, a, "moves"), lockActor(t, a, "dead")
			h := x.Lock(key)
			for range before {
				multiQueued(t, x, lockActor(t, a, "another"), key, order{Op: "mlock", Token: key})
			}
			id := multiQueued(t, x, moves, key, order{Op: "mlockctx", Token: key})
			multiQueued(t, x, dead, key, order{Op: "mlock", Token: key})
			nodes := x.QueuedNodes(key)
			// A visit passes the point twice.
			crashpoint.ArmFunc("record.reap.visited", 2*before+1, func() {
				moves.must(t, order{Op: "cancel", N: id})
				require.Contains(t, moves.wait(t, id).Is, "ctx-canceled")
				moves.start(order{Op: "mlock", Object: "m", Token: key})
				eventually(t, "it waits", moves.dump, func() bool { return len(x.QueuedNodes(key)) == before+2 })
				require.Same(t, nodes[before], x.QueuedNodes(key)[before+1], "the next wait of the owner uses the same node")
			})
			require.NoError(t, x.RemoveDead(key, idOf(a, "dead")))
			left := x.QueuedNodes(key)
			require.False(t, slices.Contains(left, nodes[before+1]), "the wait of the dead process is in the queue")
			require.Len(t, left, before+1)
			dead.proc.Kill(t)
			h.Unlock()
		})
	}
}
