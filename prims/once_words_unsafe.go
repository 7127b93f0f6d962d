package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// onceWords is the body of a Once, 512 bytes.
type onceWords struct {
	_   structs.HostLayout
	mon monitorWords
	// runner is the participant that has to run its function, or 0.
	//   writers: the holder of the queue lock
	//   readers: the same, tools, periodic checks
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   a name that is not current counts as 0, and the next call runs its function
	runner atomic.Uint64
	queue  listWords
	_      [40]byte
	// done is 1 once a function has returned, and stays so.
	//   writers: the runner, with the queue lock held
	//   readers: Do and Done, without the queue lock; tools
	//   order:   release by the runner, acquire by a reader without the queue lock
	//   futex:   none
	//   crash:   once it is 1, runner has no meaning
	done atomic.Uint32
	_    [60]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.runner)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.queue)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(onceWords{}.done)-448]
	_ = [1]struct{}{}[unsafe.Sizeof(onceWords{})-512]
)

const onceBytes = uint64(unsafe.Sizeof(onceWords{}))

// onceBody views the private body of a Once that is being made.
func onceBody(b []byte) *onceWords {
	_ = b[unsafe.Sizeof(onceWords{})-1]
	return (*onceWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
