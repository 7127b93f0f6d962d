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
// poller nodes. A poller node is the record by which a releaser finds the goroutine that sleeps for
// all waiting goroutines of a process.
type nodeLocal struct{ sync.Mutex }

// ClaimNode returns an unused wait node, that is, a record of the arena for one wait. The node is idle, and belongs
// to this participant and to no object. If this process dies, its reaper frees the node. But if the node is on a
// queue at the death, the Repair of the object's kind frees it.
func (a *Arena) ClaimNode() (Offset, error) { return a.claimNode() }

// NodeAt returns the wait node at off. The offset may have come from a peer, so NodeAt checks it.
// If there is no node at off, the error Is [shmsync.ErrCorrupt]. The node may be unused.
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

// ReturnNode frees a wait node that this participant got from ClaimNode. The node is idle, and no queue
// and no list refers to it. If a peer has overwritten the node, ReturnNode leaves it to the reaper of
// this participant.
func (a *Arena) ReturnNode(off Offset) {
	n, err := a.nodeAt(off)
	if err == nil && n.Owner() == a.self && n.list.Load() == 0 && n.stamp.Load() == 0 && n.State() == NodeIdle {
		a.freeNode(off)
	}
}

// newNode claims a block for a node, and makes this participant its owner. The node is not
// published yet. It lies within reach of the links of queues, which have 32 bits.
func (c *core) newNode() (Offset, *Node, error) {
	off, err := c.claimBlock(classNode, roomOfLinked)
	if err != nil && isNoSpace(err) && c.geo.headroom.nodes > 0 {
		off, err = c.claimBlock(classNode, roomOfNodes)
	}
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

// freeNode frees the node at off. It does not check who owns the node.
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

// reapNode frees a wait node that is on no list and that its owner does not use any more. If several
// participants try to free the same node at the same time, only one of them makes itself the owner by CAS, and
// frees the node. If this participant dies first, its own reaper frees the node.
//
// reapNode first calls the function still, and frees the node only if still returns true. During this call, no
// participant can get the ID of the owner. still is nil if no other participant can change the node.
//
// The CAS can succeed although the node must not be freed. Either the owner is a reaper that died while it freed the
// node, or the node was freed and claimed again while this process was stopped. So after the CAS, reapNode checks
// that the node is in use, and that it was not freed since the call began.
func (c *core) reapNode(off Offset, n *Node, owner ParticipantID, still func() bool) {
	if owner == 0 {
		return // the node is free, or another participant is about to free it
	}
	w := n.Load()
	if still != nil && owner != c.self {
		defer c.beginAct(owner).end()
		if !still() {
			return
		}
	}
	if b, ok := c.locate(off); ok {
		c.touch(b.chunk) // if this participant dies, its reaper looks for the node in this chunk
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

// takeNode makes this participant the owner of a wait node that its previous owner does not use any
// more, and reports whether it succeeded. If this participant then dies, its reaper frees the node.
func (c *core) takeNode(n *Node, owner ParticipantID) bool {
	if !n.owner.CompareAndSwap(uint32(owner), uint32(c.self)) {
		return false
	}
	crashpoint.Hit("arena.node.reclaimed")
	return true
}

// EachNode calls f for every node in use that is on a queue of the object.
func (a *Arena) EachNode(object Offset, f func(Offset, *Node)) {
	a.eachNode(func(off Offset, n *Node) {
		if n.Object() == object && n.list.Load() == 0 && n.stamp.Load() != 0 {
			f(off, n)
		}
	})
}

// wakeResolved wakes the sleepers on all nodes whose wait is over. A participant may have decided
// such a wait, and died before it woke the owner of the node.
func (c *core) wakeResolved() {
	c.eachNode(func(_ Offset, n *Node) {
		if n.State() == NodeResolved {
			shmsync.Wake(wordPtr(&n.word), allSleepers)
		}
	})
}

// resetNode clears the fields of a node that is about to be freed.
func (c *core) resetNode(off Offset) {
	n := c.node(off)
	n.owner.Store(0)
	n.object.Store(0)
	n.list.Store(0)
	n.stamp.Store(0)
	n.retire()
}

// retire makes the node free and advances its generation. It returns false if the node was free
// already. The CAS can fail only once, because the only change that another participant can make to
// the word is to move it from waiting to ready.
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
	for i := c.chunkFrom(0); i < c.geo.chunkCount; i = c.chunkFrom(i + 1) {
		if !c.loadChunk(i).slabOf(classNode) {
			continue
		}
		c.work.Add(uint64(blocksOf(classNode)))
		words := c.words(c.placeOfBlockWord(i, 0), blocksOf(classNode)) // one check of the bounds for all of them
		for k := range words {
			if words[k].Load() == uint32(makeBlock(blockNode, 0)) {
				off := c.chunkOff(i) + Offset(k*nodeSize)
				f(off, c.node(off))
			}
		}
	}
}

// freeNodesOf frees the wait nodes of a dead participant, with these exceptions:
//
// A poller node stays on the list of its object. It loses its owner, so the next participant that needs
// a poller node can take it.
//
// A node on a queue stays. The code of the object's kind takes the node off its queue and frees it.
// If a participant takes the node off and then dies, freeNodesOf for that participant frees the
// node.
//
// A node that another participant may still push on the ready stack of the dead participant stays for now. A
// later call of freeNodesOf, for another participant, frees the node.
//
// Preconditions: as for reclaimBlocks.
func (a *Arena) freeNodesOf(dead ParticipantID) {
	c := &a.core
	c.handles.Lock()
	defer c.handles.Unlock()
	defer c.unguard()
	told := c.awaitTold()
	// untold reports whether a granter may still push the node n on the ready stack of its owner, because the wait is
	// over. If the owner is leaving and not dead, its wait can be granted even after awaitTold has returned. So
	// untold calls allTold again.
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
				// Another participant took the node off its queue after the death of the owner, but has not
				// freed it. This other participant is dead, or is about to free the node. The guard of the
				// object tells forgetWait that this process may free the node.
				c.guard(n.Object())
				c.reapNode(off, n, owner, func() bool { return n.sameUse(w) && !n.onQueue() && !c.current(owner) })
			}
			return
		}
		// Other participants free the nodes of an object only when they free the object. While the
		// object is guarded, it is not freed, so no other participant frees its nodes.
		object := n.Object()
		c.guard(object)
		w := n.Load()
		if n.Owner() != dead || n.Object() != object {
			return
		}
		there, list := object != 0 && c.isObject(object), Offset(n.list.Load())
		switch {
		case list == 0 && there && !a.offQueue(n):
			// The node is on a queue, or may still be put on one. The kind of the object takes the node
			// off and frees it.
		case list == 0 && untold(n):
			// The granter may still push the node on the ready stack of this slot. The node must
			// not end up on the stack of the next participant in the slot, so it is not freed now.
		case list == 0:
			c.reapNode(off, n, dead, nil)
		case there && !lists.has(list, off):
			c.freeNode(off)
		case there:
			// Free the poller node even if it is not on the ready stack, because the dead participant may have popped
			// it. If n.Swap fails, a granter has changed the word, and wakes the poller of the owner. If the owner is
			// leaving, a granter may have begun to change the word after the first call of awaitTold. So call
			// awaitTold again.
			if w.State() != NodeFree && (stacked[off] || told && (!c.current(dead) || c.awaitTold())) {
				n.Swap(w, w.Freed())
			}
			n.owner.CompareAndSwap(uint32(dead), 0)
		}
	})
	c.takeOrphans(orphans)
}

// orphan is a poller node that has no owner and is not free. Its owner died after the node was made
// ready and while the node was not on the owner's ready stack. So a releaser may still be about to
// push the node on that stack.
type orphan struct {
	off  Offset
	node *Node
	word NodeWord
}

// takeOrphans frees the nodes in orphans that are on no ready stack, and that no releaser can push
// on a ready stack any more.
func (c *core) takeOrphans(orphans []orphan) {
	if len(orphans) == 0 || !c.awaitTold() {
		return
	}
	on := map[Offset]bool{}
	for i := 1; i <= c.geo.slots; i++ {
		// A participant that joins later needs no check, because its ready stack is empty at first.
		if n := participantIn(i, c.slotState(i)); c.current(n) {
			maps.Copy(on, c.readyOf(n))
		}
	}
	if !c.allTold() {
		return // a participant may have emptied its ready stack meanwhile, and still have the nodes
	}
	for _, s := range orphans {
		if !on[s.off] {
			s.node.Swap(s.word, s.word.Freed())
		}
	}
}

// awaitTold waits, for a limited time, until the method allTold returns true. It returns the last
// result of allTold.
func (c *core) awaitTold() bool {
	for range toldYields {
		if c.allTold() {
			return true
		}
		runtime.Gosched()
	}
	return c.allTold()
}

// toldYields is how often a reaper yields the CPU while it waits until another participant has
// finished its telling section. In such a section, between beginTell and endTell, a participant ends
// waits of others.
const toldYields = 50

// freeNodesAt frees the nodes of an object that no process has open. These are poller nodes, and
// nodes of waits of dead participants. Normally the code of the object's kind cleans up such a
// wait, but perhaps no process that knows the kind has examined the object since the death.
func (c *core) freeNodesAt(object Offset) {
	c.eachNode(func(off Offset, n *Node) {
		owner := n.Owner() // load it only once: a reaper of the owner may make itself the owner
		// Load list before object. Meanwhile the node may be freed and become a poller node of another object. Its
		// new owner stores the field object before the field list. So if this process has loaded the new value of
		// list, n.Object() returns the new object.
		list := n.list.Load()
		switch {
		case n.Object() != object:
		case list != 0:
			c.freeNode(off)
		case n.stamp.Load() != 0 && c.orphaned(n, owner):
			// The reaper of the owner may be about to free the node, too.
			c.reapNode(off, n, owner, func() bool { return n.Object() == object && !c.current(owner) })
		case n.stamp.Load() != 0:
			c.forgetWait(off, n, object)
		}
	})
}

// forgetWait clears the stamp of a node whose object is being deleted. The owner discarded the node, because a peer
// had overwritten the queue and the queue might still have named the node. Now the queue does not exist any more. If
// the node kept its stamp, the next object at that offset would take the node for one of its own waits. forgetWait
// also frees the node, unless the wait was resolved. A resolved node stays until its owner leaves or dies.
//
// If the owner dies, its reaper may free the node at any time, and another participant may then use the node
// for another object. So forgetWait reads the object of the node after the owner, the stamp and the word. It
// changes the node only if it finds these three unchanged.
//
// The node may also have an owner that is about to free it. This owner is a reaper, or a participant that
// leaves:
//
//	participant that is about to free the node    forgetWait
//	guards the object                             loads the owner
//	makes itself the owner, by CAS                is the object guarded? is the node still in the same use?
//	frees the node                                makes itself the owner, by CAS
//	ends the guard                                is the object guarded? is the node still in the same use?
//	                                              frees the node
//
// If forgetWait executes its CAS first, the other CAS fails.
//
// The owner that forgetWait has loaded may be a reaper. This reaper guarded the object before it became the owner. So
// forgetWait finds the guard, or the reaper has freed the node and forgetWait finds another use. In both cases
// forgetWait does not free the node, because the reaper may have claimed the node again.
//
// If the owner leaves, it claims no nodes any more. So the second check of forgetWait is enough.
//
// A participant may guard the object for another reason, such as a short lookup. Then the node and its stamp
// stay until the owner of the node leaves or dies.
func (c *core) forgetWait(off Offset, n *Node, object Offset) {
	c.beginTell() // until the call of endTell, no participant gets the ID of the owner
	defer c.endTell()
	owner, stamp, w := n.Owner(), n.stamp.Load(), n.Load()
	// Check the guard first, and the use of the node last, as the table above requires.
	if owner == 0 || c.guarded(object) || n.Object() != object || !n.sameUse(w) {
		return // another participant is freeing the node, or the node has another wait now
	}
	switch w.State() {
	case NodeResolved:
		n.stamp.CompareAndSwap(stamp, 0)
	case NodeLeft:
		// If this participant dies after it has become the owner, its reaper frees the node.
		if !c.takeNode(n, owner) {
			return
		}
		if c.guarded(object) {
			n.stamp.CompareAndSwap(stamp, 0)
		} else if n.sameUse(w) {
			c.freeNode(off)
		}
	}
}

// orphaned reports whether the given owner of a node is dead, and no participant is still going to push
// the node on that owner's ready stack. The ready stack of a participant has the nodes at which its
// poller has to look.
func (c *core) orphaned(n *Node, owner ParticipantID) bool {
	return owner != 0 && !c.current(owner) && (n.State() != NodeResolved || c.allTold())
}

// isObject reports whether there is an object at off.
func (c *core) isObject(off Offset) bool {
	w, _, ok := c.blockAt(off)
	return ok && w.kind() == blockObject
}

// readyOf returns the set of nodes on the ready stack of the participant n, that is, of the nodes
// that the poller of n has to look at.
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
