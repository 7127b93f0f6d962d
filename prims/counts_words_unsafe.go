package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"
)

// countWords holds the counters of an object, 64 bytes, in an arena that counts the operations on its objects.
// In other arenas no process touches this cache line.
//
//	writers: every participant that does a counted operation, by atomic addition
//	readers: tools
//	order:   relaxed
//	futex:   none
//	crash:   an operation may not be counted
type countWords struct {
	_         structs.HostLayout
	acquired  atomic.Uint64
	contended atomic.Uint64
	spinsPaid atomic.Uint64
	slept     atomic.Uint64
	woken     atomic.Uint64
	recovered atomic.Uint64
	// since is when the present hold began, CLOCK_MONOTONIC ns, or 0 if that is not known. It has
	// no meaning while nobody holds the object.
	since atomic.Uint64
	_     [8]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.acquired)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.contended)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.spinsPaid)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.slept)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.woken)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.recovered)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(countWords{}.since)-48]
	_ = [1]struct{}{}[unsafe.Sizeof(countWords{})-64]
)
