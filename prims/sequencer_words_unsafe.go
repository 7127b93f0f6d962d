package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// sequenceWords is the body of a Sequencer, 768 bytes. The
// words that every count writes and reads have cache lines to themselves.
type sequenceWords struct {
	_   structs.HostLayout
	mon monitorWords
	// root is the heap of the waits, by token: the offset of its first node, 0 if it is empty.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   rebuilt from the nodes
	root atomic.Uint64
	// doomed is the heap of the waits that were cancelled and have not ended yet.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   rebuilt from the nodes: those with a stamp up to canceled
	doomed atomic.Uint64
	// canceled is the stamp of the last wait that was cancelled. All waits before it were
	// cancelled, too.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   one store
	canceled atomic.Uint64
	_        [104]byte
	// value is the counter of a Sequencer, or the tokenState of an auto-reset Event.
	//   writers: all participants, by atomic addition or CAS, without the queue lock
	//   readers: all participants
	//   order:   seq-cst, against next
	//   futex:   none
	//   crash:   a process that counted may not have ended the waits; see next
	value atomic.Uint64
	_     [120]byte
	// next tells a counting process whether its count may end a wait. It is the complement of the smallest
	// token of a wait, or of a smaller number. 0 stands for no wait, or for the token MaxUint64. In an
	// auto-reset Event it is 0 if there are no waiters.
	//   writers: the holder of the queue lock
	//   readers: counting processes, periodic checks
	//   order:   seq-cst, against value
	//   futex:   none
	//   crash:   may stand for a smaller token, which costs one look
	next    atomic.Uint64
	stopped atomic.Uint32 // 1 after Stop; the holder of the queue lock writes it, all read it; never cleared
	_       [116]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.root)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.doomed)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.canceled)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.value)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.next)-640]
	_ = [1]struct{}{}[unsafe.Offsetof(sequenceWords{}.stopped)-648]
	_ = [1]struct{}{}[unsafe.Sizeof(sequenceWords{})-768]
)

const sequenceBytes = uint64(unsafe.Sizeof(sequenceWords{}))

// sequenceBody views the private body of a Sequencer that is being made.
func sequenceBody(b []byte) *sequenceWords {
	_ = b[sequenceBytes-1]
	return (*sequenceWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
