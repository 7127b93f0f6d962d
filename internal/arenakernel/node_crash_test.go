//go:build crashpoint && linux

package arenakernel

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

// leave makes b free its nodes, as a participant does when it leaves. The ID of b is still current. First b sees that
// no participant is in a telling section; see slotTelling. Just before b frees the first of its nodes, leave calls
// the function meanwhile.
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

// TestWhoLeavesIsToldStill checks that a participant that leaves keeps the node of a wait until the granter has
// pushed the node on the ready stack. The granter resolves the wait after the leaving participant has seen that
// no participant is in a telling section.
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

// TestPollerNodeOfWhoLeavesIsToldStill checks that no other participant gets a poller node of a participant
// that leaves, until a releaser has pushed the node on the ready stack of its owner. The releaser makes the
// node ready after the leaving participant has seen that no participant is in a telling section.
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
	require.NotEqual(t, off, again, "the releaser may still push the node")
	c.pushReady(off, n, b.self)
	c.endTell()
	require.True(t, b.TakeReady(func(Offset) { t.Error("the node belongs to no participant") }))
	v := p.join(4)
	p.reap(a, v.self)
	require.Equal(t, NodeFree, n.State())
	requireSound(t, a)
}

// TestReaperGuardsTheObjectOfANode: a reaper that frees the node of an earlier dead participant guards the
// object of the node. A participant that deletes the object then leaves the node to the reaper.
func TestReaperGuardsTheObjectOfANode(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, earlier, dead := p.join(1), p.join(2), p.join(3), p.join(4)
	o, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	off, err := earlier.ClaimNode()
	require.NoError(t, err)
	n := a.node(off)
	n.SetObject(o.Offset)
	n.enqueue()
	n.swapState(NodeIdle, NodeLeft)
	n.next.Store(RecordedRemoved << 32)
	p.kill(earlier.self)
	inherited := false
	crashpoint.ArmFunc("arena.node.inherited", 1, func() {
		inherited = true
		b.freeNodesAt(o.Offset)
		require.EqualValues(t, 1, a.Stats().Nodes)
	})
	defer crashpoint.Disarm()
	p.reap(a, dead.self)
	require.True(t, inherited)
	require.Zero(t, a.Stats().Nodes)
	requireSound(t, a)
}
