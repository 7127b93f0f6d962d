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

// nodeLocal is a mutex that lets only one goroutine of this process at a time take or release
// poller nodes.
type nodeLocal struct{ sync.Mutex }

// ClaimNode returns an unused wait node. The node is idle and belongs to this participant and to no
// object. If this process dies, its reaper frees the node; once the node belongs to an object, the
// Repair of the object's kind frees it.
func (a *Arena) ClaimNode() (Offset, error) { return a.claimNode() }

// FreeNode frees a node that ClaimNode returned. The caller makes sure that the node is on no list
// and that no participant is about to wake it.
func (a *Arena) FreeNode(off Offset) error { return a.freeNode(off) }

// NodeAt returns the node at off, an offset that may have come from a peer. If there is no node,
// the error Is [shmsync.ErrCorrupt]. The node may be unused.
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

// newNode claims a block for a node, and makes this participant its owner. The node is not
// published yet.
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

// freeNode frees a node, whichever participant owns it.
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

// ReapNode frees a node of a dead participant that the caller has just taken off its queue. w is
// the word that the node had while it was on the queue. If several participants try this, only the
// first frees the node.
func (a *Arena) ReapNode(off Offset, dead ParticipantID, w NodeWord) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, dead, func() bool { return n.sameUse(w) && n.stamp.Load() == 0 && !a.current(dead) })
	}
}

// FreeEntryNode frees a node in which an object keeps some of its state, whichever participant owns
// the node. The caller holds the lock of that state, so no other participant frees the node.
func (a *Arena) FreeEntryNode(off Offset, owner ParticipantID) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, owner, nil)
	}
}

// reapNode frees a node that is on no list and whose owner does not use it any more. The
// participant that makes itself the owner by CAS frees the node; if it dies first, its own reaper
// does. still checks the node once more, while no participant can get the ID of owner. still is nil
// if nothing else can happen to the node.
//
// The owner may be a reaper that died while it freed the node. Or the node may be freed and claimed
// again while this process is stopped. So reapNode frees the node only if it is in use, and has not
// been freed since.
func (c *core) reapNode(off Offset, n *Node, owner ParticipantID, still func() bool) {
	if owner == 0 {
		return // another participant is about to free it, or it is free
	}
	w := n.Load()
	if still != nil && owner != c.self {
		defer c.beginAct(owner).end()
		if !still() {
			return
		}
	}
	if b, ok := c.locate(off); ok {
		c.touch(b.chunk) // so that the reaper of this participant would look for the node
	}
	if n.Owner() == owner && n.owner.CompareAndSwap(uint32(owner), uint32(c.self)) {
		crashpoint.Hit("arena.node.inherited")
		if b, ok := c.locate(off); ok && b.load() == makeBlock(blockNode, 0) && n.sameUse(w) {
			c.freeNode(off)
		}
	}
}

// sameUse reports whether the node has not been freed since its word was w.
func (n *Node) sameUse(w NodeWord) bool { return n.Load().Generation() == w.Generation() }

// TakeNode makes this participant the owner of a node that its owner does not use any more. From
// then on, the reaper of this participant would free the node. TakeNode reports whether it
// succeeded.
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

// ReclaimNode frees a node that its owner does not use any more, unless it was freed since its word
// was w. Both the owner and the participant that takes the node off its queue call this when they
// have done their part.
func (a *Arena) ReclaimNode(off Offset, w NodeWord) {
	n, err := a.nodeAt(off)
	if err != nil {
		return
	}
	if n.Owner() != a.self {
		// The node may be freed meanwhile, but no participant gets the ID of its owner.
		a.beginTell()
		defer a.endTell()
	}
	owner := n.Owner()
	// If the CAS fails because the owner has died, the owner's reaper frees the node.
	if n.Swap(w.With(NodeSpent), w.Freed()) && a.TakeNode(off, owner) {
		a.freeNode(off)
	}
}

// EachNode calls f for every node in use that is on a queue of the object.
func (a *Arena) EachNode(object Offset, f func(Offset, *Node)) {
	a.eachNode(func(off Offset, n *Node) {
		if n.Object() == object && n.list.Load() == 0 && n.stamp.Load() != 0 {
			f(off, n)
		}
	})
}

// wakeResolved wakes the sleepers on nodes whose wait is over, because a dead participant may have
// resolved such a wait without waking its owner.
func (c *core) wakeResolved() {
	c.eachNode(func(_ Offset, n *Node) {
		if n.State() == NodeResolved {
			shmsync.Wake(wordPtr(&n.word), allSleepers)
		}
	})
}

// resetNode writes the bytes of an unused node.
func (c *core) resetNode(off Offset) {
	n := c.node(off)
	n.owner.Store(0)
	n.object.Store(0)
	n.list.Store(0)
	n.stamp.Store(0)
	n.retire()
}

// retire moves the word to free, with the next generation. It returns false if the word was free
// already. The loop ends, because another participant can only move the word from waiting to ready.
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

// freeNodesOf frees the nodes of a dead participant. Poller nodes stay on the lists of their
// objects, for the next participant that needs one. Nodes on a queue are left to the kind of the
// object. If a participant took such a node off and then died, freeNodesOf for that participant
// frees the node. If some participant may still push a node on the stack of the dead participant,
// the node stays until the next death, or leave, of a participant that has changed anything.
//
// Preconditions: as for reclaimBlocks.
func (a *Arena) freeNodesOf(dead ParticipantID) {
	c := &a.core
	c.handles.Lock()
	defer c.handles.Unlock()
	defer c.unguard()
	told := c.awaitTold()
	// A node may be resolved after the line above, if its owner is leaving. Then the granter may
	// not have told the poller of the owner yet.
	untold := func(n *Node) bool { return n.State() == NodeResolved && !(told && c.allTold()) }
	stacked, lists := c.readyOf(dead), c.newNodeLists()
	var orphans []orphan
	c.eachNode(func(off Offset, n *Node) {
		if owner := n.Owner(); owner != dead {
			list := n.list.Load()
			switch w := n.Load(); {
			case owner == 0 && list != 0 && w.State() != NodeFree && n.Owner() == 0:
				orphans = append(orphans, orphan{off, n, w})
			case owner != 0 && list == 0 && !n.onQueue() && !c.current(owner) && a.offQueue(n) && !untold(n):
				// The node was taken off its queue when its owner was reaped. The participant that
				// took it off has died before it could free the node, or is about to free the node.
				c.reapNode(off, n, owner, func() bool { return n.sameUse(w) && !n.onQueue() && !c.current(owner) })
			}
			return
		}
		// While the object is guarded, it is not freed. So its nodes do not change, because other
		// participants free them only together with the object.
		object := n.Object()
		c.guard(object)
		w := n.Load()
		if n.Owner() != dead || n.Object() != object {
			return
		}
		there, list := object != 0 && c.isObject(object), Offset(n.list.Load())
		switch {
		case list == 0 && there && !a.offQueue(n):
			// The node is on a queue, or may get there. The kind of the object takes it off and
			// frees it.
		case list == 0 && untold(n):
			// The granter may still push the node, and would push it on the stack of the next
			// participant in the slot.
		case list == 0:
			c.reapNode(off, n, dead, nil)
		case there && !lists.has(list, off):
			c.freeNode(off)
		case there:
			// A node that is not ready is freed, too: the dead participant may have popped it from
			// its stack. If the word of the node has changed, a granter is telling the poller of
			// the owner. That granter may still do so if the owner is leaving.
			if w.State() != NodeFree && (stacked[off] || told && (!c.current(dead) || c.awaitTold())) {
				n.Swap(w, w.Freed())
			}
			n.owner.CompareAndSwap(uint32(dead), 0)
		}
	})
	c.takeOrphans(orphans)
}

// orphan is a poller node without an owner that is ready, or was. Its owner died while the node was
// not on the ready stack, and a releaser may still be about to push the node.
type orphan struct {
	off  Offset
	node *Node
	word NodeWord
}

// takeOrphans frees those orphaned nodes that are on no stack and that no releaser can push any
// more.
func (c *core) takeOrphans(orphans []orphan) {
	if len(orphans) == 0 || !c.awaitTold() {
		return
	}
	on := map[Offset]bool{}
	for i := 1; i <= c.geo.slots; i++ {
		// The stack of a participant that joins is empty at first.
		if n := participantIn(i, c.slotState(i)); c.current(n) {
			maps.Copy(on, c.readyOf(n))
		}
	}
	if !c.allTold() {
		return // a releaser may still have a node of a stack that was emptied meanwhile
	}
	for _, s := range orphans {
		if !on[s.off] {
			s.node.Swap(s.word, s.word.Freed())
		}
	}
}

// awaitTold waits for allTold for a bounded time.
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

// freeNodesAt frees the nodes of an object that no process has open: poller nodes; idle nodes with
// a stamp, in which the object keeps some of its state; and waits of dead participants. It leaves
// such waits if no process that knows the kind of the object has examined them since the death.
func (c *core) freeNodesAt(object Offset) {
	c.eachNode(func(off Offset, n *Node) {
		switch {
		case n.Object() != object:
		case n.list.Load() != 0:
			c.freeNode(off)
		case n.stamp.Load() != 0 && (n.State() == NodeIdle || c.orphaned(n)):
			// The reaper of the owner may be about to free the node, too.
			c.reapNode(off, n, n.Owner(), func() bool { return n.Object() == object })
		case n.stamp.Load() != 0:
			c.forgetWait(off, n)
		}
	})
}

// forgetWait clears the stamp of a node whose object is deleted. The node was on a queue of the
// object, and its wait was over or its owner had given up. The participant that should have taken
// the node off died first. Now there is no queue. If the node kept its stamp, the next object at
// that offset would take the node for a wait of its own.
func (c *core) forgetWait(off Offset, n *Node) {
	c.beginTell() // so that no participant gets the ID of the owner
	defer c.endTell()
	w, owner := n.Load(), n.Owner()
	if !w.Over() && w.State() != NodeLeft {
		return
	}
	// This participant becomes the owner before it clears the stamp: if it dies in between, its
	// reaper frees the node.
	ours := w.State() == NodeLeft && c.takeNode(n, owner)
	// sync(waitnode.unqueue): release
	n.stamp.Store(0)
	// Otherwise the owner frees the node when it sees that the stamp is 0.
	if ours || n.Swap(w.With(NodeSpent), w.Freed()) && c.takeNode(n, owner) {
		c.freeNode(off)
	}
}

// orphaned reports whether the owner of a node is dead and no participant is about to tell the
// poller of the owner that the wait is over.
func (c *core) orphaned(n *Node) bool {
	owner := n.Owner()
	return owner != 0 && !c.current(owner) && (n.State() != NodeResolved || c.allTold())
}

// isObject reports whether there is an object at off.
func (c *core) isObject(off Offset) bool {
	w, _, ok := c.blockAt(off)
	return ok && w.kind() == blockObject
}

// readyOf returns the set of nodes on the ready stack of n.
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
