package arenakernel

import (
	"strconv"
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.poller.before_take")
	_ = crashpoint.Register("arena.poller.taken")
	_ = crashpoint.Register("arena.poller.before_push")
	_ = crashpoint.Register("arena.poller.pushed")
	_ = crashpoint.Register("arena.poller.retired")
)

// PollerNode returns a poller node of o for this participant. Through this node, a releaser finds the poller of this
// process, the goroutine that sleeps in the kernel for all other goroutines. The argument head is the word of o's
// body at which the list of poller nodes begins. This word is 0 in a new object. PollerNode returns a node that this
// participant owns, if the function unused returns true for it. If there is no such node, PollerNode takes a node
// without an owner, or pushes a new node. Nodes leave the list only when the object is deleted.
//
// If this participant did not own the node before the call, the node is idle.
func (a *Arena) PollerNode(o Object, head *atomic.Uint64, unused func(Offset) bool) (Offset, error) {
	list, ok := a.offsetOf(head)
	if !ok || list < o.Body || uint64(list-o.Body)+8 > o.Size {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": PollerNode of " + strconv.Quote(o.String()) +
			": the head of the list is not in the object's body")
	}
	a.nodes.Lock()
	defer a.nodes.Unlock()
	var mine, taken Offset
	err := a.EachPollerNode(head, func(off Offset, n *Node) bool {
		if n.Owner() == a.self {
			if unused(off) {
				mine = off
			}
		} else if taken == 0 && a.takePollerNode(n) {
			taken = off
		}
		return mine == 0
	})
	switch {
	case err != nil:
		// If the walk took a node before it failed, the node is freed when this process leaves.
		return 0, err
	case mine != 0:
		if taken != 0 {
			a.node(taken).owner.Store(0)
		}
		return mine, nil
	case taken != 0:
		crashpoint.Hit("arena.poller.taken")
		a.node(taken).swapState(NodeFree, NodeIdle)
		return taken, nil
	}
	return a.pushPollerNode(o, list, head)
}

// takePollerNode makes this process the owner of a poller node that has no owner and is in state NodeFree. A
// node without an owner in another state belonged to a dead participant. A releaser may still be about to push
// this node on the ready stack of that participant.
func (c *core) takePollerNode(n *Node) bool {
	if n.State() != NodeFree || n.Owner() != 0 {
		return false
	}
	crashpoint.Hit("arena.poller.before_take")
	if !n.owner.CompareAndSwap(0, uint32(c.self)) {
		return false
	}
	if n.State() == NodeFree {
		return true
	}
	n.owner.Store(0)
	return false
}

// pushPollerNode makes a new poller node and pushes it on the list of the object. It publishes the
// block of the node before the push. Otherwise, if this process died after the push, the node would
// be freed although other participants already see it.
func (c *core) pushPollerNode(o Object, list Offset, head *atomic.Uint64) (Offset, error) {
	off, n, err := c.newNode()
	if err != nil {
		return 0, err
	}
	n.object.Store(uint64(o.Offset))
	n.list.Store(uint64(list))
	if err := c.publish(off, blockNode); err != nil {
		return 0, err
	}
	crashpoint.Hit("arena.poller.before_push")
	for {
		first := head.Load()
		n.next.Store(first)
		// sync(arena.poller): release
		if head.CompareAndSwap(first, uint64(off)) {
			crashpoint.Hit("arena.poller.pushed")
			return off, nil
		}
	}
}

// ReleasePollerNode makes a poller node of this participant available to other participants. If the
// node is ready, ReleasePollerNode returns false and the participant keeps the node: a releaser may
// still be about to push the node on the ready stack of this participant, which then has to pop it.
// If the node belongs to another participant, or if a peer has overwritten it, ReleasePollerNode
// does nothing and returns true.
func (a *Arena) ReleasePollerNode(off Offset) bool {
	a.nodes.Lock()
	defer a.nodes.Unlock()
	n, err := a.nodeAt(off)
	if err != nil || n.Owner() != a.self || n.list.Load() == 0 {
		return true
	}
	for {
		w := n.Load()
		if w.State() == NodeReady {
			return false
		}
		if w.State() == NodeFree || n.Swap(w, w.Freed()) {
			break
		}
	}
	crashpoint.Hit("arena.poller.retired")
	n.owner.CompareAndSwap(uint32(a.self), 0)
	return true
}

// EachPollerNode calls f for the nodes of the list at head, including unused nodes, until f returns
// false. If the list contains anything but nodes, or has no end, the error Is [shmsync.ErrCorrupt].
func (a *Arena) EachPollerNode(head *atomic.Uint64, f func(Offset, *Node) bool) error {
	return a.walk(head, f)
}

// nodeWalk ends the walk of a list of nodes if the list does not end. Brent's algorithm detects a cycle in the
// list. A peer may also keep changing the list, so a walk takes no more steps than the arena can have nodes.
type nodeWalk struct {
	anchor           Offset
	steps, lap, most uint64
}

func (c *core) newNodeWalk() nodeWalk { return nodeWalk{lap: 1, most: c.geo.chunkCount * blockWords} }

// step reports whether the walk may go on with the node at off.
func (w *nodeWalk) step(off Offset) bool {
	if off == w.anchor || w.steps > w.most {
		return false
	}
	if w.steps == w.lap {
		w.anchor, w.lap = off, w.lap*2
	}
	w.steps++
	return true
}

// walk visits a list of nodes.
func (c *core) walk(head *atomic.Uint64, f func(Offset, *Node) bool) error {
	w := c.newNodeWalk()
	// sync(arena.poller): acquire
	for off := Offset(head.Load()); off != 0; {
		n, err := c.nodeAt(off)
		if err != nil {
			return err
		}
		if !w.step(off) {
			return c.fail("arena.node", shmsync.ErrCorrupt, "a list of wait nodes does not end")
		}
		if !f(off, n) {
			return nil
		}
		off = Offset(n.next.Load())
	}
	return nil
}

// nodeLists finds out which nodes are on which lists. A node is on one list at most, so all lists
// together have no more entries than there are nodes. If they have more, a peer has forged a list.
type nodeLists struct {
	*core
	on   map[Offset]map[Offset]bool // the nodes of each list; the key is the offset of the list's head
	left uint64                     // how many steps all walks together may still take
	errs []error                    // errors of the lists that are damaged
}

func (c *core) newNodeLists() *nodeLists {
	l := &nodeLists{core: c, on: map[Offset]map[Offset]bool{}}
	for i := c.chunkFrom(0); i < c.geo.chunkCount; i = c.chunkFrom(i + 1) {
		if c.loadChunk(i).slabOf(classNode) {
			l.left += blocksOf(classNode)
		}
	}
	return l
}

// has reports whether the node at off is on a list. The parameter list is the offset of the head of that list.
// It may wrongly return true for a list that a peer has forged.
func (l *nodeLists) has(list, off Offset) bool {
	on, walked := l.on[list]
	if !walked {
		on = map[Offset]bool{}
		l.on[list] = on
		if b, ok := l.holding(list); ok && b.load().kind() == blockObject && l.within(list, 8, 8) {
			err := l.walk(l.u64(list), func(o Offset, _ *Node) bool {
				on[o] = true
				l.left -= min(l.left, 1)
				return l.left > 0
			})
			if err != nil {
				l.errs = append(l.errs, err)
			}
		}
	}
	return on[off] || l.left == 0
}
