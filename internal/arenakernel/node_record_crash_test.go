//go:build linux && crashpoint

package arenakernel

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// removedNode makes a wait node that a record has taken off its queue because the node's owner is dead.
func removedNode(t *testing.T, dead *Arena) (off Offset, n *Node, next uint64) {
	off, err := dead.ClaimNode()
	require.NoError(t, err)
	n = dead.node(off)
	n.SetObject(64)
	n.Swap(n.Load(), n.Load().With(NodeQueued))
	n.Stamp().Store(RecordedStamp | 1<<32)
	next = RecordedRemoved<<32 | 7
	n.Next().Store(next)
	return off, n, next
}

// errStopped ends a function at the point where its process is stopped for ever, or killed.
var errStopped = errors.New("stopped")

func stopsIn(t *testing.T, f func()) {
	defer func() { require.Equal(t, errStopped, recover()) }()
	f()
}

// TestLateReaperLeavesNodeOfAnother checks that a process that completes a record late does not free the node of
// another participant. A reaper dies while it frees the node of a dead waiter. A second process completes the same
// record, makes itself the owner of the node, and is stopped. Meanwhile the node is freed, and a third process claims
// it. When the second process continues, the third process must keep the node.
func TestLateReaperLeavesNodeOfAnother(t *testing.T) {
	p := newNeighbours(2<<20, 6)
	waiter, reaper, late, next, third := p.join(1), p.join(2), p.join(3), p.join(4), p.join(5)
	off, n, word := removedNode(t, waiter)
	p.kill(waiter.self)
	crashpoint.ArmFunc("arena.node.freeing", 1, func() { panic(errStopped) })
	defer crashpoint.Disarm()
	stopsIn(t, func() { reaper.ReapRemoved(off, waiter.self, word) })
	p.kill(reaper.self)
	require.Equal(t, reaper.self, n.Owner())

	crashpoint.ArmFunc("arena.node.inherited", 1, func() { // late is stopped here
		p.reap(next, reaper.self)
		got, err := third.ClaimNode()
		require.NoError(t, err)
		require.Equal(t, off, got)
	})
	late.ReapRemoved(off, reaper.self, word)
	b, _ := third.locate(off)
	require.Equal(t, makeBlock(blockNode, 0), b.load(), "the node is in use")
	require.Equal(t, third.self, n.Owner())
	requireSound(t, third)
}

// TestLateReaperLeavesNodeOfNobody checks that a process that completes a record late does not change a node
// without an owner. Another process has completed the record before, and is stopped while it frees the node of
// the dead waiter. At this point the node has no owner.
func TestLateReaperLeavesNodeOfNobody(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	waiter, reaper, late := p.join(1), p.join(2), p.join(3)
	off, n, word := removedNode(t, waiter)
	p.kill(waiter.self)
	crashpoint.ArmFunc("arena.node.freeing", 1, func() {
		n.owner.Store(0) // resetNode does this first
		panic(errStopped)
	})
	defer crashpoint.Disarm()
	stopsIn(t, func() { reaper.ReapRemoved(off, waiter.self, word) })
	late.ReapRemoved(off, n.Owner(), word)
	require.Zero(t, n.Owner())
}
