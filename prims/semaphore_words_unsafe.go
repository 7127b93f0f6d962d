package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
)

// semaphoreWords is the head of the body of a Semaphore, 512 bytes; a
// semaphoreShare for each slot of the arena follows, from slot 1.
type semaphoreWords struct {
	_   structs.HostLayout
	mon monitorWords
	// size is the most permits that there can be, and how they are counted.
	//
	//	bits 0..62  permits
	//	bit  63     transferable
	//
	// Immutable after init.
	size atomic.Uint64
	// free is how many permits can be had.
	//   writers: who holds the latch
	//   readers: the same, tools
	//   order:   the latch's
	//   futex:   none
	//   crash:   made anew from the shares; of a transferable semaphore, its one change is one store
	free  atomic.Uint64
	queue listWords
	_     [96]byte
}

// semaphoreShare is what a participant has of a semaphore.
//
//	writers: who holds the latch
//	readers: the same, tools, looks
//	order:   the latch's
//	futex:   none
//	crash:   permits of a name that is not current are free
type semaphoreShare struct {
	name    atomic.Uint64 // of the participant
	permits atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.size)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.free)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.queue)-400]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreWords{})-512]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreShare{})-16]
)

// semaphoreBytes is how long the body is in an arena with that many slots.
func semaphoreBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(semaphoreWords{})) + uint64(slots)*uint64(unsafe.Sizeof(semaphoreShare{}))
}

// semaphoreBody views the private body of a Semaphore that is being made.
func semaphoreBody(b []byte) *semaphoreWords {
	_ = b[unsafe.Sizeof(semaphoreWords{})-1]
	return (*semaphoreWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// semaphoreShares are the shares of the slots of an arena, from slot 1.
func semaphoreShares(a *arena.Arena, body arena.Offset) []*semaphoreShare {
	s := make([]*semaphoreShare, a.MaxParticipants())
	for i := range s {
		s[i] = arena.At[semaphoreShare](a, body+arena.Offset(unsafe.Sizeof(semaphoreWords{}))+arena.Offset(i)*arena.Offset(unsafe.Sizeof(semaphoreShare{})))
	}
	return s
}
