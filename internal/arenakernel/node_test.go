//go:build linux

package arenakernel

import (
	"math/bits"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/stretchr/testify/require"
)

// withPoller makes an object whose poller list begins at the start of its body.
func withPoller(t testing.TB, a *Arena, name string) (Object, *atomic.Uint64) {
	o, _, err := a.OpenObject(spec(name))
	require.NoError(t, err)
	return o, a.u64(o.Body)
}

// enqueue makes the node the last one of a recorded queue.
func (n *Node) enqueue() {
	n.next.Store(RecordedLast << 32)
	n.stamp.Store(RecordedStamp | 1<<32)
}

func TestNodesComeBackClean(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	off, err := a.ClaimNode()
	require.NoError(t, err)
	n, err := a.NodeAt(off)
	require.NoError(t, err)
	require.Equal(t, a.self, n.Owner())
	require.Equal(t, NodeIdle, n.State())
	first := n.Load()
	n.SetObject(64)
	n.Next().Store(1)
	n.Wanted().Store(2)
	n.Stamp().Store(3)
	n.Extra().Store(4)
	require.NoError(t, a.freeNode(off))
	require.Equal(t, NodeFree, n.State())
	require.Zero(t, n.Owner())
	require.ErrorIs(t, a.freeNode(off), shmsync.ErrCorrupt)

	again, err := a.ClaimNode()
	require.NoError(t, err)
	require.Equal(t, off, again)
	require.NotEqual(t, first.Generation(), n.Load().Generation())
	require.Zero(t, n.Object())
	require.Zero(t, n.Next().Load()+n.Wanted().Load()+n.Stamp().Load()+n.Extra().Load())
	requireSound(t, a)
}

func TestWildOffsetsAreNoNodes(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	node, err := a.ClaimNode()
	require.NoError(t, err)
	wordPtr := mustAlloc(t, a, 64, 0)
	for _, wild := range []Offset{0, 64, node + 4, node + chunkSize*5, wordPtr, Offset(a.size), ^Offset(63)} {
		_, err := a.NodeAt(wild)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
		require.ErrorContains(t, err, wild.String())
		require.ErrorIs(t, a.freeNode(wild), shmsync.ErrCorrupt)
	}
}

func TestPollerNodesAreTakenAgain(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, head := withPoller(t, a, "x")
	mine, err := a.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	same, err := a.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	require.Equal(t, mine, same)
	theirs, err := b.PollerNode(o, b.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.NotEqual(t, mine, theirs)
	requireSound(t, a)

	require.True(t, b.ReleasePollerNode(mine)) // b does not own the node
	require.Equal(t, a.self, a.node(mine).Owner())
	require.True(t, a.ReleasePollerNode(mine))
	require.True(t, a.ReleasePollerNode(mine))
	third, err := c.PollerNode(o, c.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.Equal(t, mine, third)
	n := a.node(third)
	require.Equal(t, c.self, n.Owner())
	require.Equal(t, NodeIdle, n.State())
	require.Equal(t, o.Offset, n.Object())
	require.EqualValues(t, 2, a.Stats().Nodes)
	requireSound(t, a)
}

func TestReadyPollerNodeIsKept(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	o, head := withPoller(t, a, "x")
	off, err := a.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	n := a.node(off)
	require.True(t, n.swapState(NodeIdle, NodeWaiting))
	require.False(t, n.swapState(NodeIdle, NodeWaiting))
	require.True(t, n.swapState(NodeWaiting, NodeReady))
	require.False(t, a.ReleasePollerNode(off))
	require.Equal(t, a.self, n.Owner())
	require.True(t, n.swapState(NodeReady, NodeIdle))
	require.True(t, a.ReleasePollerNode(off))
}

func TestPollerNodePanicsOnAHeadElsewhere(t *testing.T) {
	a := newNeighbours(2<<20, 4).join(1)
	o, _ := withPoller(t, a, "x")
	var local atomic.Uint64
	for _, head := range []*atomic.Uint64{&local, a.u64(o.Offset), a.u64(o.Body + 200)} {
		require.Panics(t, func() { a.PollerNode(o, head, anyNode) })
	}
}

func TestPollerNodesGoWithTheirObject(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	other, otherHead := withPoller(t, a, "other")
	_, err := a.PollerNode(other, otherHead, anyNode)
	require.NoError(t, err)
	o, head := withPoller(t, a, "x")
	mine, err := a.PollerNode(o, head, anyNode)
	require.NoError(t, err)
	_, err = b.PollerNode(o, b.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.True(t, a.ReleasePollerNode(mine))
	a.CloseObject(o)
	require.NoError(t, a.Delete("x"))
	require.EqualValues(t, 1, a.Stats().Nodes)
	require.EqualValues(t, 1, a.Stats().Objects)
	requireSound(t, a)
}

func TestPollerNodesOfTheDead(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	o, _ := withPoller(t, a, "x")
	states := map[string]struct {
		make func(n *Node, off Offset)
		free bool // whether the node may be taken again
	}{
		"idle":    {func(*Node, Offset) {}, true},
		"waiting": {func(n *Node, _ Offset) { n.swapState(NodeIdle, NodeWaiting) }, true},
		"ready, on the stack": {func(n *Node, off Offset) {
			n.swapState(NodeIdle, NodeReady)
			a.u64(a.slot(2) + slotReady).Store(uint64(off))
		}, true},
		"ready, taken off the stack": {func(n *Node, _ Offset) {
			n.swapState(NodeIdle, NodeReady)
			a.u64(a.slot(2) + slotReady).Store(0)
		}, true},
		"taken loose, on its way": {func(n *Node, off Offset) {
			n.swapState(NodeIdle, NodeReady)
			a.beginTell()
			b.TakeReadyNode(off)
		}, false},
		"ready, on its way": {func(n *Node, _ Offset) {
			n.swapState(NodeIdle, NodeReady)
			a.u64(a.slot(2) + slotReady).Store(0)
			a.beginTell()
		}, false},
	}
	for name, s := range states {
		t.Run(name, func(t *testing.T) {
			off, err := b.PollerNode(o, b.u64(o.Body), anyNode)
			require.NoError(t, err)
			n := a.node(off)
			s.make(n, off)
			p.reap(a, b.self)
			require.Zero(t, n.Owner())
			require.Equal(t, s.free, n.State() == NodeFree)
			requireSound(t, a)
			b = p.join(2)
			again, err := b.PollerNode(o, b.u64(o.Body), anyNode)
			require.NoError(t, err)
			require.Equal(t, s.free, again == off)
			if !s.free {
				a.endTell()
			}
			p.reap(a, b.self)
			require.Equal(t, NodeFree, n.State(), "the next death must free the node")
			b = p.join(2)
		})
	}
}

// TestOrphanPollerNodesAreTakenWhenTold: a poller node whose owner died is used again only if two conditions hold: no
// releaser can push the node on a stack any more, and the node is not on the stack of the participant that took over
// the owner's slot.
func TestOrphanPollerNodesAreTakenWhenTold(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, _ := withPoller(t, a, "x")
	off, err := b.PollerNode(o, b.u64(o.Body), anyNode)
	require.NoError(t, err)
	n := a.node(off)
	b.SetWaiting(off)
	c.beginTell()
	require.True(t, n.swapState(NodeWaiting, NodeReady))
	p.reap(a, b.self)
	b = p.join(2)
	orphan := func() bool { return n.State() == NodeReady && n.Owner() == 0 }
	died := func() {
		v := p.join(4)
		p.reap(a, v.self)
	}
	require.True(t, orphan())
	died()
	require.True(t, orphan(), "the releaser may still push the node")
	c.pushReady(off, n, b.self)
	c.endTell()
	died()
	require.True(t, orphan(), "the node is still on a stack")
	require.True(t, b.TakeReady(func(Offset) { t.Error("the node belongs to no participant") }))
	died()
	require.Equal(t, NodeFree, n.State())
	again, err := c.PollerNode(o, c.u64(o.Body), anyNode)
	require.NoError(t, err)
	require.Equal(t, off, again)
	require.EqualValues(t, 1, a.Stats().PollerNodes)
	requireSound(t, a)
}

// TestHostileReadyStackEnds: a peer has linked nodes of this participant to an endless ready stack. The wait of each
// of these nodes is over. The walk of the stack ends, and reports that nodes may be missing.
func TestHostileReadyStackEnds(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a := p.join(1)
	var ring []Offset
	for range 5 {
		off, err := a.ClaimNode()
		require.NoError(t, err)
		a.node(off).word.Store(uint32(a.node(off).Load().With(NodeResolved)))
		ring = append(ring, off)
	}
	ready := a.u64(a.slot(a.mySlot) + slotReady)
	for _, loop := range [][]Offset{ring[:1], ring[:2], ring} {
		for i, off := range loop {
			a.node(off).readyNext.Store(uint64(loop[(i+1)%len(loop)]))
		}
		ready.Store(uint64(loop[0]))
		taken := 0
		orphans := a.TakeReady(func(Offset) {
			taken++
			require.Less(t, taken, 1_000_000, "the walk does not end")
		})
		require.True(t, orphans)
	}
	// The peer changes the stack during the walk. The walk never comes back to the node that it remembers to
	// detect a cycle.
	at := func(step int) Offset { return ring[bits.Len(uint(max(step, 1)-1))%2*2+step%2] }
	a.node(at(0)).readyNext.Store(uint64(at(1)))
	ready.Store(uint64(at(0)))
	step := 0
	require.True(t, a.TakeReady(func(off Offset) {
		require.Equal(t, at(step), off)
		a.node(at(step + 1)).readyNext.Store(uint64(at(step + 2)))
		step++
		require.Less(t, step, 10_000_000, "the walk does not end")
	}))
	require.Greater(t, step, 1000)
}

// TestResolvedNodesOfTheDeadWaitForWhoTells checks that the resolved node of a dead participant is not freed
// while the granter may still push the node on a ready stack.
func TestResolvedNodesOfTheDeadWaitForWhoTells(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, _ := withPoller(t, a, "x")
	off, err := b.ClaimNode()
	require.NoError(t, err)
	n := b.node(off)
	n.SetObject(o.Offset)
	c.beginTell()
	n.swapState(NodeIdle, NodeResolved)
	p.reap(a, b.self)
	require.EqualValues(t, 1, a.Stats().Nodes)
	c.endTell()
	v := p.join(4)
	p.reap(a, v.self)
	require.Zero(t, a.Stats().Nodes)
	requireSound(t, a)
}

// waitFor makes a node of a wait of the participant a for the object o, in the given state.
func waitFor(t *testing.T, a *Arena, o Object, state NodeState) (off Offset, n *Node) {
	t.Helper()
	off, err := a.ClaimNode()
	require.NoError(t, err)
	n = a.node(off)
	n.SetObject(o.Offset)
	n.enqueue()
	n.swapState(NodeIdle, state)
	return off, n
}

// TestWaitsOfTheDeadGoWithTheirObject: normally the kind of an object cleans up the waits of a dead
// participant. If no process that knows the kind does so before the object is deleted, the deletion
// frees the nodes.
func TestWaitsOfTheDeadGoWithTheirObject(t *testing.T) {
	for _, state := range []NodeState{NodeQueued, NodeAsleep, NodeParked, NodeLeft, NodeResolved} {
		p := newNeighbours(2<<20, 4)
		a, b := p.join(1), p.join(2)
		o, _, err := a.OpenObject(ObjectSpec{Kind: KindOf("NOBO"), Version: 1, Name: "x", Size: 64})
		require.NoError(t, err)
		waitFor(t, b, o, state)
		p.reap(a, b.self)
		require.EqualValues(t, 1, a.Stats().Nodes, "the code of the kind has to take the node off its queue")
		a.CloseObject(o)
		require.NoError(t, a.Delete("x"))
		require.Zero(t, a.Stats().Nodes, "%v", state)
		requireSound(t, a)
	}
}

// TestWaitsGoWithTheirObject: a living participant has discarded a node, because a queue may still name
// the node. When the object is deleted, the node loses its stamp. Otherwise the next object at that
// offset would take the node for one of its own waits.
func TestWaitsGoWithTheirObject(t *testing.T) {
	for _, state := range []NodeState{NodeResolved, NodeLeft} {
		p := newNeighbours(2<<20, 4)
		a, b := p.join(1), p.join(2)
		o, _, err := a.OpenObject(spec("x"))
		require.NoError(t, err)
		waitFor(t, b, o, state)
		a.CloseObject(o)
		require.NoError(t, a.Delete("x"))
		next, _, err := a.OpenObject(spec("y"))
		require.NoError(t, err)
		require.Equal(t, o.Offset, next.Offset)
		a.EachNode(next.Offset, func(off Offset, n *Node) {
			t.Errorf("node %v, %v, is taken for a wait of the next object", off, n.Load())
		})
		if state == NodeResolved { // the owner may still read the node
			p.reap(a, b.self)
		}
		require.Zero(t, a.Stats().Nodes, "%v", state)
		requireSound(t, a)
	}
}

// TestNodeThatIsUsedAgainIsNotForgotten: while a participant deletes an object, the owner of a discarded
// node dies, its reaper frees the node, and another participant waits with the node for another object.
// The deleter leaves that wait alone.
func TestNodeThatIsUsedAgainIsNotForgotten(t *testing.T) {
	for _, state := range []NodeState{NodeResolved, NodeLeft} {
		p := newNeighbours(2<<20, 4)
		a, b := p.join(1), p.join(2)
		deleted, _, err := a.OpenObject(spec("x"))
		require.NoError(t, err)
		o, _, err := b.OpenObject(spec("y"))
		require.NoError(t, err)
		off, n := waitFor(t, b, o, state)
		stamp := n.stamp.Load()
		a.forgetWait(off, n, deleted.Offset)
		require.Equal(t, b.self, n.Owner(), "%v", state)
		require.Equal(t, stamp, n.stamp.Load(), "%v", state)
		require.EqualValues(t, 1, a.Stats().Nodes, "%v", state)
	}
}

// TestDeleterFreesNoNodeThatAnotherFrees checks that a participant that deletes an object does not free a node
// that another participant is about to free. The other participant is the reaper of the node's owner, or is the
// owner and leaves. It guards the object, or has already cleared the owner of the node.
func TestDeleterFreesNoNodeThatAnotherFrees(t *testing.T) {
	for name, begin := range map[string]func(b *Arena, n *Node, deleted Offset){
		"guards":           func(b *Arena, n *Node, deleted Offset) { b.guard(deleted) },
		"clears the owner": func(b *Arena, n *Node, deleted Offset) { n.owner.Store(0) },
	} {
		p := newNeighbours(2<<20, 4)
		a, b := p.join(1), p.join(2)
		deleted, _, err := a.OpenObject(spec("x"))
		require.NoError(t, err)
		off, n := waitFor(t, b, deleted, NodeLeft)
		begin(b, n, deleted.Offset)
		a.freeNodesAt(deleted.Offset)
		require.EqualValues(t, 1, a.Stats().Nodes, name)
		require.NoError(t, b.freeNode(off), name)
		b.unguard()
		require.Zero(t, a.Stats().Nodes, name)
	}
}

// TestDeleterTakesNoNodeFromAReaper checks that a participant that deletes an object does not free a node that a
// reaper frees. The deleter finds that the owner of the node is dead. Then the reaper makes itself the owner, before
// the deleter can do so.
func TestDeleterTakesNoNodeFromAReaper(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, reaper := p.join(1), p.join(2), p.join(3)
	deleted, _, err := a.OpenObject(spec("x"))
	require.NoError(t, err)
	off, n := waitFor(t, b, deleted, NodeQueued)
	p.kill(b.self)
	a.current = func(id ParticipantID) bool {
		if id == b.self {
			n.owner.CompareAndSwap(uint32(b.self), uint32(reaper.self))
		}
		return p.current(id)
	}
	a.freeNodesAt(deleted.Offset)
	require.Equal(t, reaper.self, n.Owner())
	require.NoError(t, reaper.freeNode(off))
	require.Zero(t, a.Stats().Nodes)
}

// TestCheckFindsWaitsInNoObject: Check finds a wait of a dead participant for an object that does
// not exist any more.
func TestCheckFindsWaitsInNoObject(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	p.reap(a, b.self)
	off, err := p.join(2).ClaimNode()
	require.NoError(t, err)
	n := a.node(off)
	n.owner.Store(uint32(b.self))
	n.enqueue()
	n.SetObject(Offset(a.geo.heapOff))
	n.swapState(NodeIdle, NodeQueued)
	require.ErrorContains(t, a.Check(), "that does not exist")
}

// TestNobodyIsToldOfTheDead: a granter resolves a wait and then finds that the owner is dead. The node
// is freed and claimed by the next participant in the slot. The granter must not push the node on the
// stack of that participant.
func TestNobodyIsToldOfTheDead(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	off, err := b.ClaimNode()
	require.NoError(t, err)
	n := b.node(off)
	owner := n.Owner()
	c.beginTell()
	n.swapState(NodeIdle, NodeResolved)
	p.reap(a, b.self)
	c.reapNode(off, n, owner, nil)
	b = p.join(2)
	next, err := b.ClaimNode()
	require.NoError(t, err)
	require.Equal(t, off, next)
	c.Tell(off, n, owner)
	c.endTell()
	require.Zero(t, b.u64(b.slot(2)+slotReady).Load())
	requireSound(t, a)
}

func TestNodesOfTheDeadOnAQueueAreLeft(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b := p.join(1), p.join(2)
	o, _ := withPoller(t, a, "x")
	free, err := b.ClaimNode()
	require.NoError(t, err)
	owned, err := b.ClaimNode()
	require.NoError(t, err)
	queued, err := b.ClaimNode()
	require.NoError(t, err)
	b.node(owned).SetObject(o.Offset)
	b.node(queued).SetObject(o.Offset)
	b.node(queued).enqueue()
	p.reap(a, b.self)
	require.Zero(t, a.node(free).Owner())
	require.Zero(t, a.node(owned).Owner())
	require.Equal(t, b.self, a.node(queued).Owner())
	require.EqualValues(t, 1, a.Stats().Nodes)
	// The kind of the object takes the node off the queue. Two calls of ReapRemoved then free the node
	// only once.
	const removed = RecordedRemoved << 32
	a.node(queued).Next().Store(removed)
	a.ReapRemoved(queued, b.self, removed)
	a.ReapRemoved(queued, b.self, removed)
	require.Zero(t, a.Stats().Nodes)
}

// TestNodesOfTheDeadGoWithWhoTookThemOff: a participant takes a node of a dead participant off its
// queue, and dies before it has freed the node. The reaper of the second participant frees the node.
func TestNodesOfTheDeadGoWithWhoTookThemOff(t *testing.T) {
	p := newNeighbours(2<<20, 4)
	a, b, c := p.join(1), p.join(2), p.join(3)
	o, _ := withPoller(t, a, "x")
	queued, err := b.ClaimNode()
	require.NoError(t, err)
	mine, err := a.ClaimNode()
	require.NoError(t, err)
	n := a.node(queued)
	n.SetObject(o.Offset)
	n.enqueue()
	p.reap(a, b.self)
	p.join(2) // another participant has taken the slot
	require.EqualValues(t, 2, a.Stats().Nodes)
	n.Next().Store(RecordedRemoved << 32) // as if c had taken the node off the queue
	p.reap(a, c.self)
	require.EqualValues(t, 1, a.Stats().Nodes)
	require.Equal(t, a.self, a.node(mine).Owner())
	requireSound(t, a)
}

func TestEachPollerNodeRefusesWhatIsNoList(t *testing.T) {
	a := newNeighbours(2<<20, 8).join(1)
	o, head := withPoller(t, a, "x")
	var nodes []Offset
	for range 5 {
		off, err := a.ClaimNode()
		require.NoError(t, err)
		nodes = append(nodes, off)
	}
	link := func(from int, to Offset) { a.node(nodes[from]).next.Store(uint64(to)) }
	all := func(Offset, *Node) bool { return true }
	for i := range 4 {
		link(i, nodes[i+1])
	}
	head.Store(uint64(nodes[0]))
	count := 0
	require.NoError(t, a.EachPollerNode(head, func(off Offset, _ *Node) bool {
		require.Equal(t, nodes[count], off)
		count++
		return true
	}))
	require.Equal(t, 5, count)
	for to := range nodes {
		link(4, nodes[to])
		require.ErrorIs(t, a.EachPollerNode(head, all), shmsync.ErrCorrupt)
		_, err := a.PollerNode(o, a.u64(o.Body+8), anyNode)
		require.NoError(t, err)
	}
	for _, wild := range []Offset{1, o.Offset, Offset(a.size), ^Offset(0)} {
		link(4, wild)
		require.ErrorIs(t, a.EachPollerNode(head, all), shmsync.ErrCorrupt)
		head.Store(uint64(wild))
		require.ErrorIs(t, a.EachPollerNode(head, all), shmsync.ErrCorrupt)
		head.Store(uint64(nodes[0]))
	}
}

// TestEachPollerNodeEndsOnAMovingList: a peer keeps changing the list, so that the walk never comes
// back to a node where it was before. The walk still ends.
func TestEachPollerNodeEndsOnAMovingList(t *testing.T) {
	a := newNeighbours(1<<20, 4).join(1)
	_, head := withPoller(t, a, "x")
	var nodes []Offset
	for range 3 {
		off, err := a.ClaimNode()
		require.NoError(t, err)
		nodes = append(nodes, off)
	}
	head.Store(uint64(nodes[0]))
	var anchor Offset
	steps := 0
	err := a.EachPollerNode(head, func(off Offset, n *Node) bool {
		if steps&(steps-1) == 0 {
			anchor = off
		}
		steps++
		for _, to := range nodes {
			if to != anchor && to != off {
				n.next.Store(uint64(to))
			}
		}
		return steps < 1<<20
	})
	require.ErrorIs(t, err, shmsync.ErrCorrupt)
}

func TestPollerNodesUnderChurn(t *testing.T) {
	const members = 6
	p := newNeighbours(4<<20, members)
	first := p.join(1)
	o, _ := withPoller(t, first, "x")
	rounds := proctest.Rounds(300, 2000)
	var wg sync.WaitGroup
	bad := make(chan string, members)
	for i := range members {
		a := first
		if i > 0 {
			a = p.join(i + 1)
		}
		wg.Go(func() {
			for range rounds {
				off, err := a.PollerNode(o, a.u64(o.Body), anyNode)
				if err != nil {
					bad <- err.Error()
					return
				}
				n := a.node(off)
				if n.Owner() != a.self || !n.swapState(NodeIdle, NodeWaiting) {
					bad <- "not ours: " + n.Owner().String() + " " + n.Load().String()
					return
				}
				if !a.ReleasePollerNode(off) {
					bad <- "not released"
					return
				}
			}
		})
	}
	wg.Wait()
	close(bad)
	for what := range bad {
		t.Error(what)
	}
	requireSound(t, first)
	require.LessOrEqual(t, first.Stats().Nodes, uint64(2*members))
}

// anyNode accepts every poller node that this participant has.
func anyNode(Offset) bool { return true }
