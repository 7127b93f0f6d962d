package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// semaphoreWords is the head of the body of a Semaphore, 512 bytes; a
// semaphoreShare for each slot of the arena follows, from slot 1.
type semaphoreWords struct {
	_   structs.HostLayout
	mon monitorWords
	// size is the total number of permits, and the mode.
	//
	//	bits 0..62  permits
	//	bit  63     transferable
	//
	// Immutable after init.
	size  atomic.Uint64
	free  atomic.Uint64 // see poolWord
	queue listWords
	// opened has a bit for each slot number modulo 64. The bit is set if the share of such a slot
	// may be open.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   set before a share is open, cleared after all are closed
	opened atomic.Uint64
	// last is a hint: the last participant that released under the queue lock.
	last atomic.Uint64
	_    [80]byte
}

// semaphoreShare is the permits of one participant, on its own cache line. In a transferable
// semaphore permits and fast are two counts: see semaphore_transfer.go.
//
//	writers: the holder of the queue lock; for fast see fastWord
//	readers: the same, tools, periodic checks
//	order:   the queue lock's
//	futex:   none
//	crash:   permits of a name that is not current are free
type semaphoreShare struct {
	name    atomic.Uint64 // ID of the participant
	permits atomic.Uint64
	fast    atomic.Uint64 // see fastWord
	_       [40]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.size)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.free)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.queue)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.opened)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.last)-424]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreWords{})-512]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreShare{}.fast)-16]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreShare{})-64]
)

// semaphoreBytes is the length of the body in an arena with that many slots.
func semaphoreBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(semaphoreWords{})) + uint64(slots)*uint64(unsafe.Sizeof(semaphoreShare{}))
}

// semaphoreBody views the private body of a Semaphore that is being made.
func semaphoreBody(b []byte) *semaphoreWords {
	_ = b[unsafe.Sizeof(semaphoreWords{})-1]
	return (*semaphoreWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// semaphoreShares are the shares of the slots of an arena, from slot 1.
func semaphoreShares(a *arenakernel.Arena, body arenakernel.Offset) []*semaphoreShare {
	s := make([]*semaphoreShare, a.MaxParticipants())
	for i := range s {
		s[i] = arenakernel.At[semaphoreShare](a, body+arenakernel.Offset(unsafe.Sizeof(semaphoreWords{}))+arenakernel.Offset(i)*arenakernel.Offset(unsafe.Sizeof(semaphoreShare{})))
	}
	return s
}
