package arenakernel

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.ready.marked")
	_ = crashpoint.Register("arena.ready.pushed")
)

// ReadyOne makes one of the waiting poller nodes of a list ready and tells its
// owner, and reports whether there was one. turn spreads the choice over the
// processes that wait.
func (a *Arena) ReadyOne(head *atomic.Uint64, turn uint32) bool {
	for range 3 {
		count := uint32(0)
		a.EachPollerNode(head, func(_ Offset, n *Node) bool {
			if n.State() == NodeWaiting && a.isCurrent(n.Owner()) {
				count++
			}
			return true
		})
		if count == 0 {
			return false
		}
		skip, done := turn%count, false
		a.EachPollerNode(head, func(off Offset, n *Node) bool {
			if n.State() != NodeWaiting || !a.isCurrent(n.Owner()) {
				return true
			}
			if skip > 0 {
				skip--
				return true
			}
			done = a.ready(off, n)
			return !done
		})
		if done {
			return true
		}
		turn = 0
	}
	return false
}

// ReadyAll makes all waiting poller nodes of a list ready.
func (a *Arena) ReadyAll(head *atomic.Uint64) {
	a.EachPollerNode(head, func(off Offset, n *Node) bool {
		a.ready(off, n)
		return true
	})
}

// ReadyOf makes the poller node of one participant ready.
func (a *Arena) ReadyOf(head *atomic.Uint64, who ParticipantID) (done bool) {
	a.EachPollerNode(head, func(off Offset, n *Node) bool {
		if n.Owner() == who {
			done = a.ready(off, n)
		}
		return !done
	})
	return done
}

// ready moves a node from waiting to ready, puts it on its owner's stack and
// rings. A death in between leaves a ready node that is on no stack, which its
// owner finds when it looks.
func (a *Arena) ready(off Offset, n *Node) bool {
	if n.State() != NodeWaiting {
		return false
	}
	a.beginTell()
	defer a.endTell()
	if !a.isCurrent(n.Owner()) || !n.swapState(NodeWaiting, NodeReady) {
		return false
	}
	// The node may have got another owner before the swap. It gets none while it is ready.
	owner := n.Owner()
	if !a.isCurrent(owner) {
		return false
	}
	crashpoint.Hit("arena.ready.marked")
	a.pushReady(off, n, owner)
	return true
}

// Tell puts a node that was parked and is resolved on the stack of the owner that it had
// then, and rings. Only the granter that resolved the node calls it, once, between
// BeginTell, which it has called before it resolved the node, and EndTell. Until the node
// is off the stack the owner does not use it again. If the owner has died, the node may
// have a new owner by now, and nobody is told.
func (a *Arena) Tell(off Offset, n *Node, owner ParticipantID) {
	if a.isCurrent(owner) {
		a.pushReady(off, n, owner)
	}
}

func (a *Arena) pushReady(off Offset, n *Node, owner ParticipantID) {
	s := a.slot(owner.Slot())
	head := a.u64(s + slotReady)
	for {
		// The loop ends: each failure of the CAS is another push's success,
		// or the owner's emptying.
		next := head.Load()
		n.readyNext.Store(next)
		// sync(poller.ready): release
		if head.CompareAndSwap(next, uint64(off)) {
			break
		}
	}
	crashpoint.Hit("arena.ready.pushed")
	a.ring(s + slotDoorbell)
}

// TakeReady empties this participant's stack and calls f for each node: a poller
// node, which is idle by then, or one whose wait is over. orphaned nodes says that
// something else was on the stack: then a node may have fallen off it, and has to
// be looked for.
func (a *Arena) TakeReady(f func(node Offset)) (orphans bool) {
	// Or a node could be taken over from the dead that is yet to be passed here.
	a.beginTell()
	defer a.endTell()
	// sync(poller.ready): acquire
	off := Offset(a.u64(a.slot(a.mySlot) + slotReady).Swap(0))
	// A node that was taken without its stack (TakeReadyNode) may be on it a
	// second time, and its second push cuts off what was under it. There is one
	// push too many then, so sooner or later one is met that is not ready.
	stale := 0
	for off != 0 && stale < staleMax {
		n, err := a.nodeAt(off)
		if err != nil {
			return true
		}
		next := Offset(n.readyNext.Load())
		if n.Owner() == a.self && (n.swapState(NodeReady, NodeIdle) || n.State() == NodeResolved) {
			f(off)
		} else {
			stale++
		}
		off = next
	}
	return stale > 0
}

// staleMax bounds the walk of a stack that a peer may have made endless.
const staleMax = 1000

// SetWaiting says on this participant's poller node that goroutines wait. The
// caller then looks at the state that they wait for once more.
func (a *Arena) SetWaiting(node Offset) {
	if n, err := a.nodeAt(node); err == nil {
		n.swapState(NodeIdle, NodeWaiting)
	}
}

// SetIdle says on this participant's poller node that no goroutine waits, unless a wake has
// been given to the node already.
func (a *Arena) SetIdle(node Offset) {
	if n, err := a.nodeAt(node); err == nil {
		n.swapState(NodeWaiting, NodeIdle)
	}
}

// NodeReady reports whether a node is ready.
func (a *Arena) NodeReady(node Offset) bool {
	n, err := a.nodeAt(node)
	return err == nil && n.State() == NodeReady
}

// TakeReadyNode makes a ready node idle, and reports whether it was ready. A slow releaser
// may push the node on the stack after that. So the participant that took it keeps it: that
// push would cut off the stack of another participant.
func (a *Arena) TakeReadyNode(node Offset) bool {
	n, err := a.nodeAt(node)
	return err == nil && n.swapState(NodeReady, NodeIdle)
}

// Doorbell is the word that tells this participant's poller of ready nodes, and
// its value: the poller looks at the nodes and then sleeps while it is unchanged.
func (a *Arena) Doorbell() (doorbell *uint32, rung uint32) {
	w := a.u32(a.slot(a.mySlot) + slotDoorbell)
	return wordPtr(w), w.Load()
}

// RingSelf rings this participant's doorbell.
func (a *Arena) RingSelf() { a.ring(a.slot(a.mySlot) + slotDoorbell) }

// Deaths counts the reaps of participants that may have left something in an object or wait, as a
// sequence that wraps.
func (a *Arena) Deaths() uint32 { return a.u32(hdrDeaths).Load() }
