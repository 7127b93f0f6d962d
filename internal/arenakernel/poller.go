package arenakernel

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("arena.ready.marked")
	_ = crashpoint.Register("arena.ready.pushed")
)

// ReadyOne wakes the poller of one process, which then checks whether waiting goroutines of its process may go
// on. ReadyOne chooses a waiting poller node from the list at head, makes the node ready, and rings the
// doorbell of the node's owner. It reports whether there was a waiting node. The argument turn says which node
// to choose: if it grows by 1 from call to call, the calls choose one waiting process after the other.
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

// ReadyAll makes all waiting poller nodes of a list ready, and wakes the pollers of their owners.
func (a *Arena) ReadyAll(head *atomic.Uint64) {
	a.EachPollerNode(head, func(off Offset, n *Node) bool {
		a.ready(off, n)
		return true
	})
}

// ReadyOf searches the list for a waiting poller node of one participant, and makes the node ready. It
// reports whether it has made a node ready.
func (a *Arena) ReadyOf(head *atomic.Uint64, who ParticipantID) (done bool) {
	a.EachPollerNode(head, func(off Offset, n *Node) bool {
		if n.Owner() == who {
			done = a.ready(off, n)
		}
		return !done
	})
	return done
}

// ready moves a poller node from waiting to ready, pushes it on the ready stack of its owner, and rings the
// owner's doorbell. If this process dies in between, the node is ready but on no stack. The owner finds such a
// node by its periodic check.
func (a *Arena) ready(off Offset, n *Node) bool {
	if n.State() != NodeWaiting {
		return false
	}
	a.beginTell()
	defer a.endTell()
	if !a.isCurrent(n.Owner()) || !n.swapState(NodeWaiting, NodeReady) {
		return false
	}
	// Load the owner again: before the state was changed, the node may have got another owner. While the
	// node is ready, its owner does not change.
	owner := n.Owner()
	if !a.isCurrent(owner) {
		return false
	}
	crashpoint.Hit("arena.ready.marked")
	a.pushReady(off, n, owner)
	return true
}

// Tell tells the owner of a node that the wait of the node is over. The goroutine that waits is parked, so Tell
// pushes the node on the ready stack of its owner and rings the owner's doorbell. The argument owner is the
// participant that owned the node when the wait was decided.
//
// Only the granter that has resolved the node calls Tell, and only once. It calls BeginTell before it
// resolves the node, and EndTell after Tell. The owner does not reuse the node before it is off the
// stack. If the owner has died, the node may have a new owner by now, and Tell does nothing.
func (a *Arena) Tell(off Offset, n *Node, owner ParticipantID) {
	if a.isCurrent(owner) {
		a.pushReady(off, n, owner)
	}
}

func (a *Arena) pushReady(off Offset, n *Node, owner ParticipantID) {
	s := a.slot(owner.Slot())
	head := a.u64(s + slotReady)
	for {
		// The CAS fails only if another participant has pushed a node, or the owner has emptied the
		// stack. So the loop is lock-free.
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

// TakeReady empties this participant's ready stack and calls f for each node on it. Such a node is a poller
// node, which is idle when f is called, or a node whose wait is over. The result is true if something else was
// on the stack. In that case a node may be missing from the stack, and the caller has to search for this node.
func (a *Arena) TakeReady(f func(node Offset)) (orphans bool) {
	// Between beginTell and endTell, no other participant takes over a node of a dead participant
	// that is on the stack and that this loop has not reached yet.
	a.beginTell()
	defer a.endTell()
	// sync(poller.ready): acquire
	off := Offset(a.u64(a.slot(a.mySlot) + slotReady).Swap(0))
	// After TakeReadyNode, a releaser may push a node a second time while the node is still on the
	// stack. The second push overwrites readyNext of the node, so the walk does not find the nodes that
	// were below it. Instead, the walk meets the node a second time, and finds that it is not ready.
	stale, w := 0, a.newNodeWalk()
	for off != 0 && stale < staleMax {
		n, err := a.nodeAt(off)
		if err != nil || !w.step(off) {
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

// staleMax limits the walk of a ready stack: the walk ends after this many nodes that are not ready. A
// faulty peer may also make an endless stack of nodes that seem to be ready; nodeWalk ends the walk of
// such a stack.
const staleMax = 1000

// SetWaiting marks this participant's poller node as waiting, so that releasers can find it.
// Afterwards the caller checks once more whether its goroutines still have to wait.
func (a *Arena) SetWaiting(node Offset) {
	if n, err := a.nodeAt(node); err == nil {
		n.swapState(NodeIdle, NodeWaiting)
	}
}

// SetIdle marks this participant's poller node as idle, so that releasers pass over it, unless a
// releaser has made it ready already.
func (a *Arena) SetIdle(node Offset) {
	if n, err := a.nodeAt(node); err == nil {
		n.swapState(NodeWaiting, NodeIdle)
	}
}

// NodeReady reports whether a poller node is ready, that is, whether a releaser has chosen it and
// its owner has not seen that yet.
func (a *Arena) NodeReady(node Offset) bool {
	n, err := a.nodeAt(node)
	return err == nil && n.State() == NodeReady
}

// TakeReadyNode makes a ready node idle, and reports whether the node was ready. A slow releaser may still push
// the node on the stack of this participant. So this participant has to keep the node: a new owner could have
// the node on its own stack, and the late push would cut off nodes of that stack.
func (a *Arena) TakeReadyNode(node Offset) bool {
	n, err := a.nodeAt(node)
	return err == nil && n.swapState(NodeReady, NodeIdle)
}

// Doorbell returns the address of this participant's doorbell and its value. A releaser changes this
// word when it has made nodes of this participant ready. The poller checks the nodes after this call,
// and then sleeps for as long as the word has the returned value.
func (a *Arena) Doorbell() (doorbell *uint32, rung uint32) {
	w := a.u32(a.slot(a.mySlot) + slotDoorbell)
	return wordPtr(w), w.Load()
}

// RingSelf rings this participant's doorbell.
func (a *Arena) RingSelf() { a.ring(a.slot(a.mySlot) + slotDoorbell) }

// Deaths returns how many participants have been reaped that may have left something in an object
// or in a wait node. The count wraps around.
func (a *Arena) Deaths() uint32 { return a.u32(hdrDeaths).Load() }
