package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// futureWords is the body of a Future, 512 bytes.
type futureWords struct {
	_     structs.HostLayout
	mon   monitorWords
	state atomic.Uint64 // see futureState
	queue listWords
	_     [104]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(futureWords{}.state)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(futureWords{}.queue)-392]
	_ = [1]struct{}{}[unsafe.Sizeof(futureWords{})-512]
)

const futureBytes = unsafe.Sizeof(futureWords{})

// futureBody views the private body of a Future that is being made.
func futureBody(b []byte) *futureWords {
	_ = b[futureBytes-1]
	return (*futureWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
