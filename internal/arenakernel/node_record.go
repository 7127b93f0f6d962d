package arenakernel

// A recorded queue is a queue of waits whose words change by records, without a lock. A record
// describes a change. After a participant has committed the record, any participant can complete
// the change.
//
// A wait node that is on a recorded queue, or may soon be put on a recorded queue, has a stamp: its field stamp is
// not 0. The words in the fields next and extra of the node are tagged: 32 bits of tag below 32 bits of value. The
// value in the field next is the state of the wait:
//
//	0                  about to be queued
//	RecordedLast       the last node of the queue
//	RecordedGranted    off the queue: the wait was granted
//	RecordedLeft       off the queue: the owner gave up
//	RecordedRemoved    off the queue: the owner is dead
//	RecordedRefused    off the queue: no process can get the object any more
//	RecordedOwes       off the queue: the wait was woken, and the owner has not used the wake yet
//	other              the next node of the queue, an offset divided by 64
//
// While a node is on a recorded queue, only records change the words next and extra of the node. In the state
// RecordedOwes, the owner of the node changes them, too. A participant may die after it has committed a record. Until
// the record is complete, the word next does not show whether the node is on the queue. So a process that knows the
// kind of the object completes the record before it frees the node; see offQueue.

// RecordedStamp is a bit that each stamp has. So a stamp is not 0 even if the number of the wait is 0.
const RecordedStamp = 1 << 63

// Values of the field next that do not name a node, because no node lies at these offsets.
const (
	RecordedLast    = 1
	RecordedGranted = 2
	RecordedLeft    = 3
	RecordedRemoved = 4
	RecordedRefused = 5
	RecordedOwes    = 6
	RecordedFirst   = 64 // the least value that can name a node
)

// RecordedNumber extracts the arrival number of a wait, modulo 2^31, from the stamp of its node.
func RecordedNumber(stamp uint64) uint64 { return max(stamp>>32&(1<<31-1), 1) }

// recorded reports whether the node has a stamp. Then its fields next and extra are tagged words.
func (n *Node) recorded() bool { return n.stamp.Load()&RecordedStamp != 0 }

// onQueue reports whether the node is on a queue of its object, or whether its owner was woken and
// has not used the wake yet. In the second case, the wake passes to another wait if the owner dies.
// In both cases, the node must not be reused or freed.
func (n *Node) onQueue() bool {
	if !n.recorded() {
		return false
	}
	v := n.next.Load() >> 32
	return v == RecordedLast || v == RecordedOwes || v >= RecordedFirst
}

// ReapRemoved frees a node of a dead participant that a record has taken off its recorded queue. The argument
// next is the value that the record has stored in the word next of the node. If several participants call
// ReapRemoved, only one of them frees the node.
//
// If the wait was already resolved, its granter may still be about to push the node on the ready
// stack of the dead participant. In this case, ReapRemoved does nothing, and freeNodesOf frees the
// node later.
func (a *Arena) ReapRemoved(off Offset, dead ParticipantID, next uint64) {
	if n, err := a.nodeAt(off); err == nil {
		a.reapNode(off, n, dead, func() bool {
			return n.recorded() && n.next.Load() == next && !a.current(dead) && (n.State() != NodeResolved || a.allTold())
		})
	}
}

// RecordedEnds reports whether v, a value of the word next of a node, says that the wait is over and that its
// owner may not know this yet.
func RecordedEnds(v uint32) bool {
	return v == RecordedGranted || v == RecordedRefused || v == RecordedOwes
}

// A waitProgress says how far the wait of a dead participant has come.
type waitProgress uint8

const (
	waitOff     waitProgress = iota // the node is on no queue
	waitOn                          // the node is on a queue, or its owner has not used the wake yet; see onQueue
	waitJoining                     // a record that is committed and not completed may still put the node on a queue
	waitEnding                      // a record has ended the wait, and the state of the node does not show that yet
)

// progress returns how far the wait of a node has come. Records of other participants may change the node meanwhile,
// so progress loads the word next only once. After that, it loads the state of the node, because a record changes the
// word next first.
func (n *Node) progress() waitProgress {
	if !n.recorded() {
		return waitOff
	}
	v := uint32(n.next.Load() >> 32)
	if RecordedEnds(v) {
		switch n.State() {
		case NodeQueued, NodeAsleep, NodeParked:
			return waitEnding
		}
	}
	switch {
	case v == 0:
		return waitJoining
	case v == RecordedLast, v == RecordedOwes, v >= RecordedFirst:
		return waitOn
	}
	return waitOff
}

// offQueue reports whether the node of a dead participant is on no queue, and whether no pending
// change of its object will put the node on a queue. A process cannot decide this if it does not
// know the kind of the object, or if it finds the object corrupt. In these cases, offQueue returns
// false, and another process frees the node later.
//
// Preconditions: the owner of the node is not current, so it changes nothing any more. The caller holds
// c.handles, and calls c.unguard later.
func (a *Arena) offQueue(n *Node) bool {
	// The first completion may put the node on a queue, and the record of another participant may
	// take the node off again at once. The second completion completes this later record.
	for completed := range 3 {
		switch p := n.progress(); {
		case p == waitOff, p == waitJoining && completed > 0:
			return true
		case p == waitOn:
			return false
		}
		object := n.Object()
		a.guard(object)
		h, err := a.headerAt(object)
		if n.Object() != object {
			return false
		}
		if object == 0 || err != nil || !h.load().there() {
			break // the object does not exist any more, so its queue does not exist either
		}
		ops, known := opsOf(h.Object)
		if !known {
			return false
		}
		if ops.Complete == nil {
			break
		}
		// If this process dies before it has woken the owners of the waits that it resolves, its reaper
		// wakes all owners.
		a.beginTell()
		done := ops.Complete(a, h.Object)
		a.endTell()
		if !done {
			return false
		}
	}
	return !n.onQueue()
}
