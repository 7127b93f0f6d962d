package arenakernel

import (
	"maps"
	"runtime"
	"sync"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.node.claimed")
	_ = crashpoint.Register("arena.node.owned")
	_ = crashpoint.Register("arena.node.freeing")
	_ = crashpoint.Register("arena.node.reset")
	_ = crashpoint.Register("arena.node.inherited")
	_ = crashpoint.Register("arena.node.reclaimed")
)

// nodeLocal serialises how this process gets and gives back poller nodes.
type nodeLocal struct{ sync.Mutex }

// ClaimNode gives a wait node that is in no use. It is idle, belongs to this
// participant and to no object, and goes back when this process dies; once it
// belongs to an object, the Repair of the object's kind gives it back.
func (a *Arena) ClaimNode() (Offset, error) { return a.claimNode() }

// FreeNode gives back a node from ClaimNode. The caller makes sure that the node is on no
// list and that no participant is about to wake it.
func (a *Arena) FreeNode(off Offset) error { return a.freeNode(off) }

// NodeAt gives the node at off, an offset that may have come from a peer: where
// no node is, the error Is [shmsync.ErrCorrupt]. The node may be in no use.
func (a *Arena) NodeAt(off Offset) (*Node, error) { return a.nodeAt(off) }

func (c *core) nodeAt(off Offset) (*Node, error) {
	b, ok := c.locate(off)
	if !ok || b.class != classNode {
		return nil, c.fail("arena.node", shmsync.ErrCorrupt, "there is no wait node at "+off.String())
	}
	return c.node(off), nil
}

func (c *core) claimNode() (Offset, error) {
	off, n, err := c.newNode()
	if err != nil {
		return 0, err
	}
	n.object.Store(0)
	n.list.Store(0)
	return off, c.publish(off, blockNode)
}

// newNode claims a node and makes it ours; it is not published yet.
func (c *core) newNode() (Offset, *Node, error) {
	off, err := c.claimBlock(classNode)
	if err != nil {
		return 0, nil, err
	}
	crashpoint.Hit("arena.node.claimed")
	n := c.node(off)
	n.word.Store(uint32(n.Load().With(NodeIdle)))
	n.next.Store(0)
	n.readyNext.Store(0)
	n.wanted.Store(0)
	n.stamp.Store(0)
	n.extra.Store(0)
	n.owner.Store(uint32(c.self))
	crashpoint.Hit("arena.node.owned")
	return off, n, nil
}

// freeNode makes a node free, whatever participant owns it.
func (c *core) freeNode(off Offset) error {
	b, ok := c.locate(off)
	freeing := makeBlock(blockFreeing, c.self)
	if ok {
		c.touch(b.chunk)
	}
	if !ok || b.class != classNode || !b.swap(makeBlock(blockNode, 0), freeing) {
		return c.fail("arena.node", shmsync.ErrCorrupt, "there is no wait node in use at "+off.String())
	}
	crashpoint.Hit("arena.node.freeing")
	c.resetNode(off)
	crashpoint.Hit("arena.node.reset")
	c.release(b, freeing)
	return nil
}

// ReapNode gives back a node of a dead participant that has just been taken off the queue
// it was on, in the use that it had when its word was w. If several participants try, only the
// first does it.
func (a *Arena) ReapNode(off Offset, dead ParticipantID, w NodeWord) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, dead, func() bool { return n.sameUse(w) && n.stamp.Load() == 0 && !a.current(dead) })
	}
}

// FreeEntryNode gives back a node in which an object keeps some of its state, whatever
// participant owns it. The caller holds the lock of that state, so that no other does.
func (a *Arena) FreeEntryNode(off Offset, owner ParticipantID) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, owner, nil)
	}
}

// reapNode frees a node that is on no list and whose owner has no use for it any more. The
// participant that makes itself the owner by CAS may free it; if it dies over that, its own
// reaper frees the node. still is called when no participant can get the owner's ID; nil says
// that nothing else can happen to the node.
func (c *core) reapNode(off Offset, n *Node, owner ParticipantID, still func() bool) {
	if still != nil && owner != c.self {
		defer c.beginAct(owner).end()
		if !still() {
			return
		}
	}
	if b, ok := c.locate(off); ok {
		c.touch(b.chunk) // or the reaper of this participant would not look for the node
	}
	if n.Owner() == owner && n.owner.CompareAndSwap(uint32(owner), uint32(c.self)) {
		crashpoint.Hit("arena.node.inherited")
		c.freeNode(off)
	}
}

// sameUse reports whether the node has not been freed since its word was w.
func (n *Node) sameUse(w NodeWord) bool { return n.Load().Generation() == w.Generation() }

// TakeNode makes this participant the owner of a node whose owner has done with it.
// It goes with this participant's death from then on.
func (a *Arena) TakeNode(off Offset, owner ParticipantID) bool {
	n, err := a.nodeAt(off)
	return err == nil && a.takeNode(n, owner)
}

func (c *core) takeNode(n *Node, owner ParticipantID) bool {
	if !n.owner.CompareAndSwap(uint32(owner), uint32(c.self)) {
		return false
	}
	crashpoint.Hit("arena.node.reclaimed")
	return true
}

// ReclaimNode gives back a node that its owner has done with, in the use that it had when
// its word was w. The owner, and the participant that takes the node off its queue, both
// try when they have done their part.
func (a *Arena) ReclaimNode(off Offset, w NodeWord) {
	n, err := a.nodeAt(off)
	if err != nil {
		return
	}
	if n.Owner() != a.self {
		// The node may be freed meanwhile, but no participant gets its owner's ID.
		a.beginTell()
		defer a.endTell()
	}
	owner := n.Owner()
	// Or the owner has died meanwhile, and its reaper does it.
	if n.Swap(w.With(NodeSpent), w.Freed()) && a.TakeNode(off, owner) {
		a.freeNode(off)
	}
}

// EachNode calls f for every wait node in use that belongs to an object and is on
// one of its queues.
func (a *Arena) EachNode(object Offset, f func(Offset, *Node)) {
	a.eachNode(func(off Offset, n *Node) {
		if n.Object() == object && n.list.Load() == 0 && n.stamp.Load() != 0 {
			f(off, n)
		}
	})
}

// wakeResolved wakes the sleepers on nodes whose wait is over: a dead participant may have
// decided the wait and not woken its owner.
func (c *core) wakeResolved() {
	c.eachNode(func(_ Offset, n *Node) {
		if n.State() == NodeResolved {
			shmsync.Wake(wordPtr(&n.word), allSleepers)
		}
	})
}

// resetNode makes the node's bytes those of a node in no use.
func (c *core) resetNode(off Offset) {
	n := c.node(off)
	n.owner.Store(0)
	n.object.Store(0)
	n.list.Store(0)
	n.retire()
}

// retire moves the word to free, with the next generation. It reports false if
// that had been done. Others can move the word from waiting only.
func (n *Node) retire() bool {
	for {
		w := n.Load()
		if w.State() == NodeFree {
			return false
		}
		if n.Swap(w, w.Freed()) {
			return true
		}
	}
}

// eachNode calls f for every node in use.
func (c *core) eachNode(f func(off Offset, n *Node)) {
	for i := range c.geo.chunkCount {
		if !c.loadChunk(i).slabOf(classNode) {
			continue
		}
		c.work.Add(uint64(blocksOf(classNode)))
		for k := range blocksOf(classNode) {
			if b := c.blockIn(i, k, classNode); b.load() == makeBlock(blockNode, 0) {
				f(b.off, c.node(b.off))
			}
		}
	}
}

// freeNodesOf gives back the nodes of a dead participant. Poller nodes stay on the lists of
// their objects, for the next participant that needs one. Nodes that are on a queue are
// left to the kind of the object; if a participant dies after it has taken one off, the
// reap of that participant gives the node back here. A node that some participant may be
// about to put on the dead one's stack is left until the next death, or leave, of any participant
// that has touched anything.
//
// Preconditions: as for reclaimBlocks.
func (c *core) freeNodesOf(dead ParticipantID) {
	c.handles.Lock()
	defer c.handles.Unlock()
	defer c.unguard()
	told := c.awaitTold()
	// Nodes that were resolved after that: a participant that is leaving is told still.
	untold := func(n *Node) bool { return n.State() == NodeResolved && !(told && c.allTold()) }
	stacked, lists := c.readyOf(dead), c.newNodeLists()
	var orphans []orphan
	c.eachNode(func(off Offset, n *Node) {
		if owner := n.Owner(); owner != dead {
			list := n.list.Load()
			switch w := n.Load(); {
			case owner == 0 && list != 0 && w.State() != NodeFree && n.Owner() == 0:
				orphans = append(orphans, orphan{off, n, w})
			case owner != 0 && list == 0 && n.stamp.Load() == 0 && !c.current(owner) && !untold(n):
				// The participant that took it off its queue as its owner was reaped
				// has died before it could give it back, or is about to give it back.
				c.reapNode(off, n, owner, func() bool { return n.sameUse(w) && n.stamp.Load() == 0 && !c.current(owner) })
			}
			return
		}
		// Guarded, the object is not taken apart, so its nodes stay what they
		// are: others free them only with it.
		object := n.Object()
		c.guard(object)
		w := n.Load()
		if n.Owner() != dead || n.Object() != object {
			return
		}
		there, list := object != 0 && c.isObject(object), Offset(n.list.Load())
		switch {
		case list == 0 && there && n.stamp.Load() != 0:
			// It is on a queue. The object's kind takes it off and gives it back.
		case list == 0 && untold(n):
			// Its stack would be that of the slot's next participant.
		case list == 0:
			c.reapNode(off, n, dead, nil)
		case there && !lists.has(list, off):
			c.freeNode(off)
		case there:
			// Also a node that is not ready: the dead one may have taken it loose. If its
			// word has changed, its owner is being told: then a participant that is leaving
			// is told still.
			if w.State() != NodeFree && (stacked[off] || told && (!c.current(dead) || c.awaitTold())) {
				n.Swap(w, w.Freed())
			}
			n.owner.CompareAndSwap(uint32(dead), 0)
		}
	})
	c.takeOrphans(orphans)
}

// orphan is a poller node without an owner that is ready, or was: its owner died when it
// was not on the stack, and a releaser may have been about to put it there.
type orphan struct {
	off  Offset
	node *Node
	word NodeWord
}

// takeOrphans makes orphaned nodes free that have no way left to get on a stack, and are on
// none.
func (c *core) takeOrphans(orphans []orphan) {
	if len(orphans) == 0 || !c.awaitTold() {
		return
	}
	on := map[Offset]bool{}
	for i := 1; i <= c.geo.slots; i++ {
		// A participant that joins begins with an empty stack.
		if n := participantIn(i, c.slotState(i)); c.current(n) {
			maps.Copy(on, c.readyOf(n))
		}
	}
	if !c.allTold() {
		return // a releaser may be on its way down a stack that was emptied meanwhile
	}
	for _, s := range orphans {
		if !on[s.off] {
			s.node.Swap(s.word, s.word.Freed())
		}
	}
}

// awaitTold is allTold with some timeout.
func (c *core) awaitTold() bool {
	for range toldYields {
		if c.allTold() {
			return true
		}
		runtime.Gosched()
	}
	return c.allTold()
}

// toldYields is how often a reaper yields to other goroutines while a participant is
// between beginTell and endTell.
const toldYields = 50

// freeNodesAt gives back the nodes of an object that no process has open: poller nodes;
// idle nodes with a stamp, in which the object keeps some of its state; and waits of the
// dead that were left to the object's kind, if no process that knows the kind has examined
// them since.
func (c *core) freeNodesAt(object Offset) {
	c.eachNode(func(off Offset, n *Node) {
		switch {
		case n.Object() != object:
		case n.list.Load() != 0:
			c.freeNode(off)
		case n.stamp.Load() != 0 && (n.State() == NodeIdle || c.orphaned(n)):
			// The reaper of its owner may be about to.
			c.reapNode(off, n, n.Owner(), func() bool { return n.Object() == object })
		case n.stamp.Load() != 0:
			c.forgetWait(off, n)
		}
	})
}

// forgetWait is for a node whose object is deleted. The node was on a queue of the object when
// its wait was over or its owner gave up, and the participant that was to take it off died over
// that. It is on no queue now. With its stamp it would be taken for a wait of the next object
// at that offset, which would account for it.
func (c *core) forgetWait(off Offset, n *Node) {
	c.beginTell() // no participant gets the owner's ID
	defer c.endTell()
	w, owner := n.Load(), n.Owner()
	if !w.Over() && w.State() != NodeLeft {
		return
	}
	// It is ours before the stamp is gone: a death in between takes it along.
	ours := w.State() == NodeLeft && c.takeNode(n, owner)
	// sync(waitnode.unqueue): release
	n.stamp.Store(0)
	// Or its owner gives it back, which sees that the stamp is gone.
	if ours || n.Swap(w.With(NodeSpent), w.Freed()) && c.takeNode(n, owner) {
		c.freeNode(off)
	}
}

// orphaned reports whether the owner of a node is dead and no participant is about to tell
// it that its wait is over.
func (c *core) orphaned(n *Node) bool {
	owner := n.Owner()
	return owner != 0 && !c.current(owner) && (n.State() != NodeResolved || c.allTold())
}

// isObject reports whether an object is at off.
func (c *core) isObject(off Offset) bool {
	w, _, ok := c.blockAt(off)
	return ok && w.kind() == blockObject
}

// readyOf is the set of nodes on the ready stack of n.
func (c *core) readyOf(n ParticipantID) map[Offset]bool {
	on := map[Offset]bool{}
	off := Offset(c.u64(c.slot(n.Slot()) + slotReady).Load())
	for off != 0 && !on[off] {
		node, err := c.nodeAt(off)
		if err != nil {
			break
		}
		on[off] = true
		off = Offset(node.readyNext.Load())
	}
	return on
}
