package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// condWords is the body of a Cond, 512 bytes.
//
// Each node of a Cond is in one of three queues. The node itself tells which: if its wait is over, it is in
// woken; otherwise, if its stamp is not above upTo, it is in covered; otherwise it is in waiting. A node whose
// wait is over keeps its stamp until its owner has locked L again and recorded that.
type condWords struct {
	_   structs.HostLayout
	mon monitorWords
	// upTo is the stamp of the last wait that the last Broadcast was for.
	//   writers: the holder of the queue lock
	//   readers: the same; a waiter that gives up, to see whether a Broadcast came first
	//   order:   seq-cst, against the node's word
	//   futex:   none
	//   crash:   the Broadcast has happened; a process that replays the log goes on with it
	upTo atomic.Uint64
	// flying is how many of the woken waits were woken by a Broadcast.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   counted anew when the queues are rebuilt
	flying atomic.Uint64
	// landed counts the waiters that have come back from a Broadcast. It is a hint that the
	// Broadcast makes progress.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   relaxed
	//   futex:   none
	//   crash:   any value is right
	landed  atomic.Uint64
	batch   atomic.Uint64 // how many waiters of a Broadcast compete for the lock at a time; 0: condBatch. Immutable after init
	waiting listWords     // waits that were not woken yet
	covered listWords     // waits that a Broadcast will wake
	woken   listWords     // waits that were woken, and whose owner does not have the lock yet
	_       [48]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.upTo)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.flying)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.landed)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.batch)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.waiting)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.covered)-432]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.woken)-448]
	_ = [1]struct{}{}[unsafe.Sizeof(condWords{})-512]
)

const condBytes = unsafe.Sizeof(condWords{})

// condBody views the private body of a Cond that is being made.
func condBody(b []byte) *condWords {
	_ = b[condBytes-1]
	return (*condWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
