package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueState is the state word of a slot of a Queue. It says who has the item in the slot.
// Together with the slot's sequence number it is the truth; the order of the items and the list
// of free slots are an index of it.
//
//	bits 0..28   name   the participant that has the item; 0 in free and full slots
//	bits 29..31  kind   below
//	bits 32..63  times  how often the item was leased; 0 in free slots
//
//	kind     name  meaning                                          left by
//	free     0     no item; all-zero memory                         Get, Ack, creator
//	full     0     an item in the queue, at its sequence number     Put; Nack, and the reap of a death
//	granted  n     an item that a waiting Get of n's has been       Put, and its granter
//	               given and has not copied yet
//	leased   n     an item that n has on lease                      Lease; as granted
//
//	writers: the holder of the queue lock
//	readers: the same; periodic checks and tools
//	order:   the queue lock's
//	futex:   none
//	crash:   the state is one store, after the item and its number: without it there is
//	         no item, with it there is one; granted and leased slots of the dead become full
//	         again.
type queueState uint64

type queueSlotKind uint8

const (
	queueFree queueSlotKind = iota
	queueFull
	queueGiven
	queueLeased
	queueKinds

	queueKindShift  = 29
	queueTimesShift = 32
)

func makeQueueState(k queueSlotKind, n arenakernel.ParticipantID, times uint32) queueState {
	return queueState(n) | queueState(k)<<queueKindShift | queueState(times)<<queueTimesShift
}

func (s queueState) kind() queueSlotKind { return queueSlotKind(s >> queueKindShift & 7) }
func (s queueState) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(s & arenakernel.ParticipantIDMask)
}
func (s queueState) times() uint32 { return uint32(s >> queueTimesShift) }

// out reports whether a participant has the item.
func (s queueState) out() bool { return s.kind() == queueGiven || s.kind() == queueLeased }

// valid reports whether a correct participant may have written s.
func (s queueState) valid() bool {
	switch s.kind() {
	case queueFree:
		return s == 0
	case queueFull:
		return s.participant() == 0
	case queueGiven:
		return s.participant() != 0
	case queueLeased:
		return s.participant() != 0 && s.times() != 0
	}
	return false
}

// to is the state of a full slot after its item was given to n.
func (s queueState) to(class uint16, n arenakernel.ParticipantID) queueState {
	if class == queueLease {
		return makeQueueState(queueLeased, n, max(s.times()+1, 1))
	}
	return makeQueueState(queueGiven, n, s.times())
}

// back is the state after the item is in the queue again.
func (s queueState) back() queueState { return makeQueueState(queueFull, 0, s.times()) }

func (s queueState) String() string {
	names := [...]string{"free", "full", "granted to", "leased to"}
	if !s.valid() {
		return fmt.Sprintf("impossible (%#x)", uint64(s))
	}
	t := names[s.kind()]
	if s.out() {
		t += " " + s.participant().String()
	}
	if s.times() > 0 {
		t += fmt.Sprintf(", leased %d times", s.times())
	}
	return t
}

// queuePair is two 32-bit numbers in one word of a Queue. Positions of slots begin at 1; 0 means
// none.
//
//	word  bits 0..31                     bits 32..63
//	ends  position of the first item     position of the last
//	free  position of a free slot, the   number of items in the queue
//	      head of the list
//
//	writers: the holder of the queue lock
//	readers: the same; Len reads the number
//	order:   the queue lock's
//	futex:   none
//	crash:   rebuilt from the slots
type queuePair uint64

func makeQueuePair(low, high uint32) uint64 { return uint64(high)<<32 | uint64(low) }

func (p queuePair) low() uint32  { return uint32(p) }
func (p queuePair) high() uint32 { return uint32(p >> 32) }
