//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// leave makes b free its nodes as it does when it leaves, while its ID is still current. meanwhile
// is called when b has seen that all telling counts are 0, and has come to the first of its nodes.
func (p *neighbours) leave(t *testing.T, b *Arena, meanwhile func()) {
	t.Helper()
	live := makeSlotWord(phaseLive, b.self.Generation())
	b.casSlot(b.mySlot, live, live.with(phaseLeaving))
	called := false
	crashpoint.ArmFunc("arena.node.freeing", 1, func() {
		called = true
		meanwhile()
	})
	defer crashpoint.Disarm()
	b.freeNodesOf(b.self)
	require.True(t, called)
}

// TestWhoLeavesIsToldStill: a participant that leaves still learns of the end of its waits. If a
// wait is resolved after the participant has seen that all telling counts are 0, its node is kept
// until the participant has been told.
func TestWhoLeavesIsToldStill(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	_, err := b.ClaimNode()
	require.NoError(t, err)
	off, err := b.ClaimNode()
	require.NoError(t, err)
	n := b.node(off)
	p.leave(t, b, func() {
		c.beginTell()
		n.swapState(NodeIdle, NodeResolved)
	})
	require.EqualValues(t, 1, a.Stats().Nodes)
	require.Equal(t, b.self, n.Owner())
	c.Tell(off, n, b.self)
	c.endTell()
	p.reap(a, b.self)
	require.Zero(t, a.Stats().Nodes)
	requireSound(t, a)
}

// TestPollerNodeOfWhoLeavesIsToldStill: the same is true of a poller node that is made ready after
// that moment. No other participant gets the node before it has been pushed on its owner's stack.
func TestPollerNodeOfWhoLeavesIsToldStill(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, _ := withPoller(t, a, "x")
	_, err := b.ClaimNode()
	require.NoError(t, err)
	off, err := b.PollerNode(o, b.u64(o.Body), anyNode)
	require.NoError(t, err)
	n := a.node(off)
	b.SetWaiting(off)
	p.leave(t, b, func() {
		c.beginTell()
		require.True(t, n.swapState(NodeWaiting, NodeReady))
	})
	p.kill(b.self)
	b = p.join(2)
	again, err := b.PollerNode(o, b.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.NotEqual(t, off, again, "while it is on its way")
	c.pushReady(off, n, b.self)
	c.endTell()
	require.True(t, b.TakeReady(func(Offset) { t.Error("it is nobody's") }))
	v := p.join(4)
	p.reap(a, v.self)
	require.Equal(t, NodeFree, n.State())
	requireSound(t, a)
}
