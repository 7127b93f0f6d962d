package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// futureWords is the memory of a Future, 384 bytes.
type futureWords struct {
	_     structs.HostLayout
	count eventcountWords // its state is a futureState
	// results has the results of the last 32 rounds; see futureResult.
	results [futureRounds]atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(futureWords{}.count)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(futureWords{}.results)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(futureWords{})-384]
)

const futureBytes = uint64(unsafe.Sizeof(futureWords{}))

// futureBody returns the words of a Future that is being created and that no other process sees yet.
func futureBody(b []byte) *futureWords {
	_ = b[futureBytes-1]
	return (*futureWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
