package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventWords is the body of an Event, 896 bytes; in one with automatic reset an
// eventShare for each slot of the arena follows, from slot 1.
type eventWords struct {
	_        structs.HostLayout
	sequence sequenceWords
	mode     atomic.Uint32 // eventMode; immutable after init
	_        [4]byte
	// spare is how many tokens came back from the dead and have to be handed out.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   changes together with the token's source or target, by the redo log; void in state taken
	spare atomic.Uint64
	queue listWords // waits for the token
	_     [96]byte
}

// eventShare says how many tokens were handed to waits of a participant, and how many of those it
// has acked. The others come back when it dies.
//
//	writers: the holder of the queue lock; acked: the participant, without it
//	readers: the holder of the queue lock, periodic checks, tools
//	order:   the queue lock's; acked: release and acquire, or the reap's fence
//	futex:   none
//	crash:   the handed - acked tokens of a name that is not current are free
type eventShare struct {
	name   atomic.Uint64 // ID of the participant
	handed atomic.Uint64
	acked  atomic.Uint64
	_      [8]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.mode)-768]
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.spare)-776]
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.queue)-784]
	_ = [1]struct{}{}[unsafe.Sizeof(eventWords{})-896]
	_ = [1]struct{}{}[unsafe.Sizeof(eventShare{})-32]
)

// eventBytes is the length of the body in an arena with that many slots.
func eventBytes(mode eventMode, slots int) uint64 {
	n := uint64(unsafe.Sizeof(eventWords{}))
	if mode&eventAuto != 0 {
		n += uint64(slots) * uint64(unsafe.Sizeof(eventShare{}))
	}
	return n
}

// eventBody views the private body of an Event that is being made.
func eventBody(b []byte) *eventWords {
	_ = b[unsafe.Sizeof(eventWords{})-1]
	return (*eventWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// eventShares are the shares of the slots of an arena, from slot 1.
func eventShares(a *arenakernel.Arena, body arenakernel.Offset) []*eventShare {
	s := make([]*eventShare, a.MaxParticipants())
	for i := range s {
		s[i] = arenakernel.At[eventShare](a, body+arenakernel.Offset(unsafe.Sizeof(eventWords{}))+arenakernel.Offset(i)*arenakernel.Offset(unsafe.Sizeof(eventShare{})))
	}
	return s
}
