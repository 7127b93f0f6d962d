package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// condWords is the body of a Cond, 512 bytes.
//
// The nodes of a Cond are in one of three queues, which the truth about a node
// tells: woken if its wait is over, covered if its stamp is not above upTo, and
// waiting otherwise. A node that is over keeps its stamp until its owner has the
// lock again and says so.
type condWords struct {
	_   structs.HostLayout
	mon monitorWords
	// upTo is the stamp of the last wait that the last Broadcast was for.
	//   writers: the holder of the queue lock
	//   readers: the same; a waiter that gives up, to see whether a Broadcast came before
	//   order:   seq-cst, against the node's word
	//   futex:   none
	//   crash:   the Broadcast has happened; a process that replays the log goes on with it
	upTo atomic.Uint64
	// flying is how many of the woken were woken by a Broadcast.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   counted anew when the queues are rebuilt
	flying atomic.Uint64
	// landed counts those that have come back from a Broadcast; a hint that it goes on.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   relaxed
	//   futex:   none
	//   crash:   any value is right
	landed  atomic.Uint64
	batch   atomic.Uint64 // how many of a Broadcast are on their way at a time; 0: condBatch. Immutable after init
	waiting listWords     // waits that were not woken yet
	covered listWords     // of a Broadcast, and not woken yet
	woken   listWords     // woken, and not back with the lock yet
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
