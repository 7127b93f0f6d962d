package park

import (
	"sync/atomic"
	"unsafe"
)

// wordPtr returns w as the pointer that futex calls take.
func wordPtr(w *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(w)) }
