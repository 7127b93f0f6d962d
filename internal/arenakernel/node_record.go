package arenakernel

// A wait node may be on a recorded queue: a queue whose words change by records, without a lock.
// Its stamp has RecordedStamp, and next and extra are tagged words: 32 bits of tag below 32 bits of
// value. The value of next is the state of the wait:
//
//	0             about to be queued
//	RecordedLast  the last one of the queue
//	RecordedGranted, RecordedLeft, RecordedRemoved, RecordedRefused
//	              off the queue: its wait was granted, its owner gave up, its owner is dead, or its wait
//	              ended because nobody can have the object
//	other         the next node of the queue, an offset divided by 64
//
// The words of a node that is on a recorded queue change by records only. So once the record that a
// dead participant has committed is complete, next says whether its node is on the queue. A process
// that knows the kind of the object completes it before it frees the node, see offQueue.

// RecordedStamp is the bit of a stamp that says that next and extra are tagged words.
const RecordedStamp = 1 << 63

// The values of next that name no node: no node lies at these offsets.
const (
	RecordedLast    = 1
	RecordedGranted = 2
	RecordedLeft    = 3
	RecordedRemoved = 4
	RecordedRefused = 5
	RecordedFirst   = 64 // the least value that may name a node
)

// RecordedNumber is the number of a wait in the order of arrival, modulo 2^31, from the stamp of its node.
func RecordedNumber(stamp uint64) uint64 { return max(stamp>>32&(1<<31-1), 1) }

// recorded reports whether next and extra of the node are tagged words.
func (n *Node) recorded() bool { return n.stamp.Load()&RecordedStamp != 0 }

// onQueue reports whether the node is on a queue of its object, and must not be reused or freed.
func (n *Node) onQueue() bool {
	switch stamp := n.stamp.Load(); {
	case stamp == 0:
		return false
	case stamp&RecordedStamp == 0:
		return true
	}
	v := n.next.Load() >> 32
	return v == RecordedLast || v >= RecordedFirst
}

// ReapRemoved frees a node of a dead participant that is off its recorded queue. next is the value that
// its word next got then. If several participants try, only one frees it.
func (a *Arena) ReapRemoved(off Offset, dead ParticipantID, next uint64) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, dead, func() bool { return n.recorded() && n.next.Load() == next && !a.current(dead) })
	}
}

// mayJoin reports whether a record that is committed and not complete may put the node on a recorded queue.
func (n *Node) mayJoin() bool { return n.recorded() && n.next.Load()>>32 == 0 }

// RecordedEnds reports whether a record that gives the value v to next ends the wait of a process that waits.
func RecordedEnds(v uint32) bool { return v == RecordedGranted || v == RecordedRefused }

// ending reports whether a record has granted or refused the wait of the node and has not resolved it.
func (n *Node) ending() bool {
	if !n.recorded() || !RecordedEnds(uint32(n.next.Load()>>32)) {
		return false
	}
	switch n.State() {
	case NodeQueued, NodeAsleep, NodeParked:
		return true
	}
	return false
}

// offQueue reports whether the node of a dead participant is on no queue, and no change of its object will
// put it on one. A process that does not know the kind of the object, or finds it corrupt, cannot tell. It
// leaves the node to one that can.
//
// Preconditions: the owner of the node is not current, so it makes no change any more. The caller holds
// c.handles, and calls c.unguard later.
func (a *Arena) offQueue(n *Node) bool {
	if n.mayJoin() || n.ending() {
		object := n.Object()
		a.guard(object)
		h, err := a.headerAt(object)
		switch {
		case n.Object() != object:
			return false
		case object == 0 || err != nil || !h.load().there():
			// The object is gone, and its queue with it.
		default:
			ops, known := opsOf(h.Object)
			if !known {
				return false
			}
			if ops.Complete != nil {
				// If this process dies before it has woken the owners of waits that it resolves, all are woken.
				a.beginTell()
				done := ops.Complete(a, h.Object)
				a.endTell()
				if !done {
					return false
				}
			}
		}
	}
	return !n.onQueue()
}
