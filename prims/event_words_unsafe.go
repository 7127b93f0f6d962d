package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventWords is the body of an Event that is reset by hand, 128 bytes.
type eventWords struct {
	_     structs.HostLayout
	count eventcountWords // its state is an eventState
}

// autoEventWords is the body of an Event with automatic reset, 896 bytes; an eventShare for each
// slot of the arena follows, from slot 1.
type autoEventWords struct {
	_        structs.HostLayout
	sequence sequenceWords // its value is a tokenState
	mode     atomic.Uint32 // eventAuto; immutable after init
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
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.count)-0]
	_ = [1]struct{}{}[unsafe.Sizeof(eventWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.sequence)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.mode)-768]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.spare)-776]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.queue)-784]
	_ = [1]struct{}{}[unsafe.Sizeof(autoEventWords{})-896]
	_ = [1]struct{}{}[unsafe.Sizeof(eventShare{})-32]
)

const manualEventBytes = uint64(unsafe.Sizeof(eventWords{}))

// autoEventBytes is the length of the body of an auto-reset Event in an arena with that many slots.
func autoEventBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(autoEventWords{})) + uint64(slots)*uint64(unsafe.Sizeof(eventShare{}))
}

func eventBytes(mode eventMode, slots int) uint64 {
	if mode == eventAuto {
		return autoEventBytes(slots)
	}
	return manualEventBytes
}

// initEvent fills in the private body of an Event that is being made.
func initEvent(body []byte, mode eventMode, set bool, spin uint32) {
	_ = body[eventBytes(mode, 0)-1]
	first := uint64(0)
	if set {
		first = 1 // in each mode
	}
	if mode == eventAuto {
		w := (*autoEventWords)(unsafe.Pointer(unsafe.SliceData(body)))
		w.mode.Store(uint32(mode))
		w.sequence.value.Store(first)
		w.sequence.mon.spin.Store(spin)
		return
	}
	w := (*eventWords)(unsafe.Pointer(unsafe.SliceData(body)))
	w.count.state.Store(first | uint64(mode)<<eventModeShift)
	w.count.spin.Store(spin)
}

// eventShares are the shares of the slots of an arena, from slot 1.
func eventShares(a *arenakernel.Arena, body arenakernel.Offset) []*eventShare {
	s := make([]*eventShare, a.MaxParticipants())
	for i := range s {
		s[i] = arenakernel.At[eventShare](a, body+arenakernel.Offset(unsafe.Sizeof(autoEventWords{}))+arenakernel.Offset(i)*arenakernel.Offset(unsafe.Sizeof(eventShare{})))
	}
	return s
}
