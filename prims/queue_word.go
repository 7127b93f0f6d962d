package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueState is the state word of a slot of a Queue. A slot is a place for one item, and its state says which
// participant has it. The position of an item is the serial number of its Put, and the tag is the low 31 bits of the
// position. The item is in the queue from the moment when the cell of its position names the slot.
//
//	bits 0..28   name  the participant that has the slot; 0 in free slots; in a returned slot the
//	                   low bits of the count of returns, so that the word differs each time
//	bits 29..32  kind  below
//	bits 33..63  tag   of the position of the item; 0 in free and claimed slots
//
//	kind      name  meaning                                       left by
//	free      0     no item; all-zero memory                      Get, Ack, reaping of a Put
//	claimed   n     a Put of n's copies its item in               Put, by CAS from free
//	put       n     n has chosen a position. The item is in the   Put, after it saw that the position
//	                queue once the cell of the position names     is not filled
//	                the slot
//	taken     n     a Get of n's copies the item out              Get, by CAS from put or returned
//	leased    n     n has the item on lease                       Lease, by CAS from put or returned
//	returned  any   an item that came back. Gets take it before   Nack; reaping of taken, leased
//	                the items that the cells name
//
//	writers: any participant, by CAS from free, put, returned; else the named participant, and
//	         the reaping of that participant
//	readers: the same; periodic checks and tools
//	order:   acquire and release
//	futex:   none
//	crash:   reaping finds the slots of the dead by their names. It frees a claimed slot, and a slot
//	         of kind put that no cell names. It makes taken and leased slots returned. A process
//	         that is stopped keeps its slot, and others go on
type queueState uint64

type queueSlotKind uint8

const (
	queueFree queueSlotKind = iota
	queueClaimed
	queueFull
	queueTaken
	queueLeased
	queueReturned
	queueKinds

	queueKindShift = 29
	queueTagShift  = 33
	queueTagMask   = 1<<31 - 1
)

func makeQueueState(k queueSlotKind, n arenakernel.ParticipantID, tag uint64) queueState {
	return queueState(n) | queueState(k)<<queueKindShift | queueState(tag&queueTagMask)<<queueTagShift
}

func (s queueState) kind() queueSlotKind { return queueSlotKind(s >> queueKindShift & 15) }

// participant is the participant that has the slot, or 0.
func (s queueState) participant() arenakernel.ParticipantID {
	if s.kind() == queueReturned {
		return 0
	}
	return arenakernel.ParticipantID(s & arenakernel.ParticipantIDMask)
}

// tag returns the low 31 bits of the position of the item. The position is the serial number of its Put.
func (s queueState) tag() uint64 { return uint64(s >> queueTagShift) }

// at reports whether the slot has the item of position p, that is, of the Put with the serial number p. It returns
// false if a participant has taken the item.
func (s queueState) at(p uint64) bool { return s.kind() == queueFull && s.tag() == p&queueTagMask }

// before reports whether the item of s was put before the item of t. The parameter later is a position that is greater
// than the positions of both items, by less than 2^31. See queueCore.later.
func (s queueState) before(t queueState, later uint64) bool {
	return (later-s.tag())&queueTagMask > (later-t.tag())&queueTagMask
}

// with returns the state of the same item with the kind k and the participant n.
func (s queueState) with(k queueSlotKind, n arenakernel.ParticipantID) queueState {
	return makeQueueState(k, n, s.tag())
}

// out reports whether a participant has taken the item, by a Get or on lease.
func (s queueState) out() bool { return s.kind() == queueTaken || s.kind() == queueLeased }

// busy reports whether a call of the participant may be working with the slot. If the kind is queueFull, the call may
// also have finished, and the item may be in the queue.
func (s queueState) busy() bool {
	return s.kind() == queueClaimed || s.kind() == queueFull || s.kind() == queueTaken
}

// valid reports whether s is a state that a correct participant may have written.
func (s queueState) valid() bool {
	switch s.kind() {
	case queueFree:
		return s == 0
	case queueReturned:
		return true
	case queueClaimed:
		return s.participant() != 0 && s.tag() == 0
	}
	return s.kind() < queueKinds && s.participant() != 0
}

func (s queueState) String() string {
	names := [...]string{"free", "claimed by", "put by", "taken by", "leased to", "returned"}
	if !s.valid() {
		return fmt.Sprintf("impossible (%#x)", uint64(s))
	}
	t := names[s.kind()]
	if n := s.participant(); n != 0 {
		t += " " + n.String()
	}
	return t
}

// queueCell is a word of the ring of a Queue. Each Put has a serial number, called its position. If the ring has R
// cells, position p uses cell p modulo R, and p / R is called the lap of the position. A position is filled if its
// Put has succeeded. Then its cell has this lap or a later one.
//
//	bits 0..31   slot  number of the slot, from 1; 0 in all-zero memory
//	bits 32..63  lap   of the position for which the cell was filled last; laps begin with 1
//
//	state               meaning                                left by
//	lap L-1, any slot   position (L, j) is not filled          the Put of (L-1, j); all-zero memory
//	lap L, slot s       position (L, j) was filled; its item   the Put of (L, j)
//	                    is in the queue while the state of s
//	                    is put with its tag
//
//	writers: Put, by CAS from the word that it saw before it tagged its slot
//	readers: Put, Get, tools
//	order:   acquire and release
//	futex:   none
//	crash:   one CAS: the item is in the queue, or is not
type queueCell uint64

func makeQueueCell(lap, slot uint32) queueCell { return queueCell(lap)<<32 | queueCell(slot) }

func (c queueCell) lap() uint32  { return uint32(c >> 32) }
func (c queueCell) slot() uint32 { return uint32(c) }

// The flags of a Queue.
//
//	bit 0  stopped    after Shutdown
//	bit 1  irregular  items have been on lease, or have come back, so the number of items cannot be
//	                  computed from the positions alone. It is never cleared
//
//	writers: any participant, by an atomic or
//	readers: any
//	order:   seq-cst: irregular is set before the lease or the return that makes it true
//	futex:   none
//	crash:   any value is consistent; irregular may be set too early
const (
	queueStoppedFlag   = 1
	queueIrregularFlag = 2
)

// queueReturns is the word that makes Gets search for returned slots, that is, slots whose items were put back.
//
//	bit  0      some   there may be returned slots
//	bits 1..63  count  how often a process has set bit 0 for a return
//
//	writers: a process that made a slot returned, after that; reaping; a Get that found no returned
//	         slot clears bit 0; all by CAS
//	readers: Get
//	order:   seq-cst: a Get reads it between the state of a slot and its CAS
//	futex:   none
//	crash:   reaping and periodic checks find the returned slots and set bit 0
type queueReturns uint64

func (r queueReturns) some() bool { return r&1 != 0 }

// count returns the low bits of the count. The state word of a returned slot has these bits in place of a
// participant.
func (r queueReturns) count() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(r >> 1 & arenakernel.ParticipantIDMask)
}

// told returns the word after one more item was put back.
func (r queueReturns) told() queueReturns { return r&^1 + 3 }

// queueReturning is a word in which a participant notes that it is about to put an item back. The participant removes
// the note when it has set the bit in queueReturns, so that Gets search for the item. If the participant is stopped
// before that, the next periodic check finds the item by the note.
//
// A Queue has four such words. Only a Queue with more than checkMost slots uses them, because in other Queues each
// check examines all slots anyway. If all four words are in use, a participant puts its item back without a note.
//
//	bits 0..28   name  the participant that puts an item back; 0 if the word is free
//	bits 32..63  slot  number of the slot of the item
//
//	writers: the participant, by CAS from a free word before the slot becomes returned, and back to 0
//	         after the change of queueReturns; periodic checks free the words of dead participants
//	readers: periodic checks
//	order:   seq-cst, before and after the change of the slot
//	futex:   none
//	crash:   periodic checks free the word
type queueReturning uint64

func makeQueueReturning(n arenakernel.ParticipantID, slot uint32) queueReturning {
	return queueReturning(slot)<<32 | queueReturning(n)
}

func (r queueReturning) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(r & arenakernel.ParticipantIDMask)
}
func (r queueReturning) slot() uint32 { return uint32(r >> 32) }

// queueLeaseWord numbers the leases of a slot. So only one call ends a lease, although the state word of the slot may
// be the same in a later lease. For tools, queueLeaseWord also has the date of a lease that lasts for some time. A
// periodic check stores the date, so that the fast path need not read the clock.
//
//	bits 0..15   times   how often the item of the slot was leased; stays at its maximum
//	bits 16..30  serial  how many leases the slot has had
//	bit  31      ended   an Ack or a Nack has begun, or the reaping of a participant that had the lease
//	bits 32..63  date    the lease had begun by then: milliseconds of CLOCK_MONOTONIC modulo 2^32,
//	                     rounded up, as in firstDate; 0: not known
//
//	writers: the Put that has claimed the slot; the participant that has leased it; Ack, Nack and
//	         reaping, by CAS; periodic checks set the date of a lease that is not ended, by CAS
//	readers: Lease, Ack, Nack, tools
//	order:   release and acquire of the state word
//	futex:   none
//	crash:   if a participant dies after it has set ended, the state word still says leased, and
//	         reaping puts the item back. Without a date the age of the lease is unknown
type queueLeaseWord uint64

const (
	queueLeaseSerial queueLeaseWord = 1 << 16
	queueLeaseTimes  queueLeaseWord = queueLeaseSerial - 1
	queueLeaseEnded  queueLeaseWord = 1 << 31
	queueLeaseDated  queueLeaseWord = 1 << queueLeaseDate // the least date

	queueLeaseDate = 32
)

// fresh returns the word w for a new item in the slot, which was never on lease.
func (w queueLeaseWord) fresh() queueLeaseWord { return w.undated() &^ queueLeaseTimes }

// next returns the word of the lease after w. The count of leases stops at its largest value.
func (w queueLeaseWord) next() queueLeaseWord {
	times := min(w&queueLeaseTimes, queueLeaseTimes-1) + 1
	return (w.undated()&^queueLeaseTimes&^queueLeaseEnded+queueLeaseSerial)&^queueLeaseEnded | times
}

func (w queueLeaseWord) times() uint32 { return uint32(w & queueLeaseTimes) }
func (w queueLeaseWord) ended() bool   { return w&queueLeaseEnded != 0 }

// noted reports whether w belongs to the present lease of the slot. The caller has read that the state has the kind
// queueLeased. The participant that has just taken the lease may not have written the lease word yet. Then w belongs
// to an earlier lease, which has ended, or to an item that was never leased.
func (w queueLeaseWord) noted() bool { return w.times() != 0 && !w.ended() }

// date returns the date of the lease, in the form of firstDate, or 0 if there is none.
func (w queueLeaseWord) date() uint32 { return uint32(w >> queueLeaseDate) }

// undated returns w without its date.
func (w queueLeaseWord) undated() queueLeaseWord { return w & (queueLeaseDated - 1) }
