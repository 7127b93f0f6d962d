package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// condWords is the body of a Cond, 512 bytes.
//
// Each node of a Cond is in one of three queues, and its contents say in which. If its wait is over, the node
// is in woken. Otherwise it is in covered if its stamp is at most upTo, and in waiting if its stamp is above
// upTo. The stamp is the number that orders the waits by arrival. A node whose wait is over keeps its stamp
// until its owner has locked L again and has recorded that.
type condWords struct {
	_   structs.HostLayout
	mon monitorWords
	// upTo is the stamp of the last wait that the last Broadcast covers.
	//   writers: the holder of the queue lock
	//   readers: the same; a waiter that gives up, to see whether a Broadcast came first
	//   order:   seq-cst, against the node's word
	//   futex:   none
	//   crash:   the Broadcast has happened; a process that replays the log goes on with it
	upTo atomic.Uint64
	// flying is how many waits in woken were ended by a Broadcast.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   counted anew when the queues are rebuilt
	flying atomic.Uint64
	// landed counts the waiters that have locked L again after a Broadcast. It is a hint that the
	// Broadcast makes progress.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   relaxed
	//   futex:   none
	//   crash:   any value is right
	landed  atomic.Uint64
	batch   atomic.Uint64 // how many waiters of a Broadcast compete for L at once; 0: condBatch. Immutable after init
	waiting listWords     // waits that no call has woken yet
	covered listWords     // waits that a Broadcast will wake
	woken   listWords     // waits that were woken, and whose owner has not locked L again yet
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

// condBody returns the words of a Cond that is being made, whose body no other process can reach
// yet.
func condBody(b []byte) *condWords {
	_ = b[condBytes-1]
	return (*condWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
