package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// futureState is the one word of a Future.
//
//	bits 0..28   producer   ID of the participant that claimed it, or 0
//	bit  29      set        it has its result
//	bit  30      abandoned  its producer died before it was set
//	bit  31      reserved
//	bits 32..63  errno      the result, once it is set
//
//	set  abandoned  producer  meaning                             left by
//	0    0          0         not claimed (also all-zero memory)  Reset
//	0    0          n         n will set it; n may be dead        Claim
//	0    1          n         n died: it cannot be set            a process that found that, with the queue lock
//	1    0          any       it is set                           Set
//
// A correct peer never writes both bits. If both are set, the result counts.
//
//	writers: the holder of the queue lock
//	readers: all participants
//	order:   release by Set, acquire by a reader of set
//	futex:   none
//	crash:   each change is one store and takes effect; a producer that is not
//	         current is dead, and reap records that
type futureState uint64

const (
	futureSet       futureState = 1 << 29
	futureAbandoned futureState = 1 << 30
	futureShift                 = 32
)

func (s futureState) producer() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(s & arenakernel.ParticipantIDMask)
}
func (s futureState) set() bool            { return s&futureSet != 0 }
func (s futureState) abandoned() bool      { return s&(futureSet|futureAbandoned) == futureAbandoned }
func (s futureState) over() bool           { return s&(futureSet|futureAbandoned) != 0 }
func (s futureState) errno() shmsync.Errno { return shmsync.Errno(uint32(s >> futureShift)) }

// claimed reports whether a participant has claimed it and has not set it.
func (s futureState) claimed() bool { return !s.over() && s.producer() != 0 }

func (s futureState) claimedBy(n arenakernel.ParticipantID) futureState { return s | futureState(n) }

func (s futureState) setTo(e shmsync.Errno) futureState {
	return s.producerOnly() | futureSet | futureState(uint32(e))<<futureShift
}

func (s futureState) abandon() futureState { return s.producerOnly() | futureAbandoned }

func (s futureState) producerOnly() futureState { return futureState(s.producer()) }

// String renders the state by the names of its parts.
func (s futureState) String() string {
	switch {
	case s.set() && s.errno() == 0:
		return "set"
	case s.set():
		return fmt.Sprintf("set to errno %d", uint32(s.errno()))
	case s.abandoned():
		return fmt.Sprintf("abandoned by %v", s.producer())
	case s.claimed():
		return fmt.Sprintf("claimed by %v", s.producer())
	}
	return "unset"
}
