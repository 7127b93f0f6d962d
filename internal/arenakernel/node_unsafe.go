package arenakernel

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// Node is a wait node. Its 64 bytes remain a node for as long as the arena exists, even while the node
// is not in use. So a participant may read a node that has been freed meanwhile.
type Node struct {
	_ structs.HostLayout

	// word contains the state and the generation of the node; see NodeWord.
	//   writers: the owner, and by CAS a waker
	//   readers: all participants
	//   order:   acq_rel
	//   futex:   as the primitive says
	//   crash:   see NodeWord
	word atomic.Uint32
	// owner is the participant that owns the node, or 0.
	//   writers: PollerNode by CAS from 0, the owner, its reaper
	//   readers: all participants
	//   order:   acq_rel
	//   futex:   none
	//   crash:   names the dead until freeNodesOf
	owner atomic.Uint32
	// object is the offset of the object that the node belongs to, or 0.
	//   writers: the owner, before the node is on a list
	//   readers: all participants
	//   order:   relaxed, the push on a list carries the edge
	//   futex:   none
	//   crash:   stays until the node is freed
	object atomic.Uint64
	// next is, in a poller node, the offset of the next node of the same list. In a node for a recorded
	// queue it is the state of the wait, or the next node of the queue, with a tag; see node_record.go.
	//   writers: of a poller node: the owner, before it pushes the node. Otherwise the owner, before the
	//            node is queued and after it has left the queue, and participants that carry out records
	//   readers: all participants
	//   order:   of a poller node: relaxed before the push, acquire in walks. Otherwise seq-cst
	//   futex:   none
	//   crash:   of a poller node: immutable once pushed. Otherwise the next process carries the record out
	next atomic.Uint64
	// readyNext is the offset of the next node of the same ready stack. In a parked or queued node
	// it is the time when the wait began, CLOCK_MONOTONIC ns, for tools; 0 while the owner is
	// awake.
	//   writers: the releaser that made the node ready, until it is popped; the owner before it queues or parks
	//   readers: the owner
	//   order:   relaxed, the push carries the edge
	//   futex:   none
	//   crash:   any value is consistent, a stack is read with bounds
	readyNext atomic.Uint64
	// wanted says what the owner waits for: the key of a MultiLock, the number of permits of a Semaphore, the
	// value for which the owner waits at a Waitable, or the number of a wait for a Cond. In a poller node it is
	// the time when the first goroutine that the node stands for began to wait, CLOCK_MONOTONIC ns, for tools.
	//   writers: the owner before it waits
	//   readers: all participants
	//   order:   relaxed, the word carries the edge
	//   futex:   none
	//   crash:   any value is consistent
	wanted atomic.Uint64
	// stamp is 0, or consists of RecordedStamp, the number of the wait in the order of arrival, and a time for
	// tools, at which the wait was the first of its queue. The owner sets the stamp before the node is queued,
	// and clears it after it has seen that the node is off its queue.
	//   writers: the owner; by CAS a participant that adds the time; a participant that frees the object
	//   readers: all participants
	//   order:   relaxed, the record that queues the node carries the edge
	//   futex:   none
	//   crash:   tells a node that may be on a queue from one that is on none
	stamp atomic.Uint64
	// list is the offset of the head of the list that a poller node is on, or is about to be
	// pushed on; 0 in other nodes.
	//   writers: the owner, before the push
	//   readers: freeNodesOf
	//   order:   relaxed, the owner's death carries the edge
	//   futex:   none
	//   crash:   tells a node that was never pushed from one that was
	list atomic.Uint64
	// extra is, in a node for a recorded queue, the node before it in the queue, with a tag. After the
	// end of a wait, extra may say how the wait ended. In a poller node it is the number of
	// waiting goroutines that the node stands for, for tools.
	//   writers: the owner before it waits, then participants that carry out records
	//   readers: all participants
	//   order:   seq-cst
	//   futex:   none
	//   crash:   of a poller node: any value is consistent. Otherwise the next process carries the record out
	extra atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Sizeof(Node{})-nodeSize]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.owner)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.object)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.next)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.readyNext)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.wanted)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.stamp)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.list)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(Node{}.extra)-56]
)

// Word returns the node's futex word, a NodeWord.
func (n *Node) Word() *atomic.Uint32 { return &n.word }

// Load returns the value of the node's word.
func (n *Node) Load() NodeWord { return NodeWord(n.word.Load()) }

// Swap changes the node's word by a compare-and-swap, and reports whether it did.
func (n *Node) Swap(old, to NodeWord) bool {
	return n.word.CompareAndSwap(uint32(old), uint32(to))
}

// State returns the state of the node's word.
func (n *Node) State() NodeState { return n.Load().State() }

// swapState changes the state in the node's word and keeps the generation. It returns false if the
// node is in another state, or if another thread has changed the word.
func (n *Node) swapState(from, to NodeState) bool {
	w := n.Load()
	return w.State() == from && n.Swap(w, w.With(to))
}

// Owner returns the participant that owns the node, or 0.
func (n *Node) Owner() ParticipantID { return ParticipantID(n.owner.Load()) }

// Object returns the object that the node belongs to, or 0.
func (n *Node) Object() Offset { return Offset(n.object.Load()) }

// SetObject makes the node belong to an object. Only the owner of a node from ClaimNode calls SetObject.
func (n *Node) SetObject(off Offset) { n.object.Store(uint64(off)) }

// Next returns the field that contains the state of the wait, or the next node of the queue.
func (n *Node) Next() *atomic.Uint64 { return &n.next }

// Wanted returns the field that says what the owner waits for.
func (n *Node) Wanted() *atomic.Uint64 { return &n.wanted }

// Stamp returns the field with the number of the wait in the order of arrival; see RecordedStamp.
func (n *Node) Stamp() *atomic.Uint64 { return &n.stamp }

// Extra returns the field that contains the previous node of the queue, or how the wait ended.
func (n *Node) Extra() *atomic.Uint64 { return &n.extra }

// SetParkedSince records when the wait began. The owner calls it for a node that is about to be parked,
// and for a node that stays queued while its goroutine waits for other goroutines of the process. In a
// queued node, 0 means that the owner is awake.
func (n *Node) SetParkedSince(ns int64) { n.readyNext.Store(uint64(ns)) }

// SetBehind records, for tools, how many waiting goroutines a poller node stands for, and since when the first
// of them has waited, in CLOCK_MONOTONIC ns.
func (n *Node) SetBehind(count int, since int64) {
	n.wanted.Store(uint64(since))
	n.extra.Store(uint64(count))
}

// node returns the node at off, which the caller has validated.
func (c *core) node(off Offset) *Node {
	// SAFETY: a Node has no pointers, and its layout is that of the host. The method at has checked that its 64
	// bytes are in the arena and aligned.
	return (*Node)(c.at(off, nodeSize, nodeSize))
}

// offsetOf returns the offset of a word of the arena.
func (c *core) offsetOf(word *atomic.Uint64) (Offset, bool) {
	// SAFETY: the pointers are only compared, as numbers.
	p, base := uintptr(unsafe.Pointer(word)), uintptr(c.base)
	off := Offset(p - base)
	return off, p >= base && c.within(off, 8, 8)
}
