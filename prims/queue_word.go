package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueState is the state word of a slot of a Queue: whose the item in it is. It is the truth,
// together with the ring: an item that was put is in the queue from the moment when the cell of
// its position names its slot. A position is the number of an item; its tag is its low 31 bits.
//
//	bits 0..28   name  the participant that has the slot; 0 of free slots; the count of returns
//	                   when a returned slot became that, so that it differs each time
//	bits 29..32  kind  below
//	bits 33..63  tag   of the position of the item; 0 of free and claimed slots
//
//	kind      name  meaning                                                left by
//	free      0     no item; all-zero memory                               Get, Ack, reap of a Put
//	claimed   p     p fills the slot                                       Put, by CAS from free
//	put       p     p has chosen that position; the item is in the queue   Put, once it has seen that
//	                once the cell of the position names the slot           the position is not filled
//	taken     c     a Get of c's has the item and copies it                Get, by CAS from put, returned
//	leased    c     c has the item on lease                                Lease, likewise
//	handing   g     g, with the queue lock, is about to give the item      the granter, likewise
//	                to a waiting Get
//	granted   c     the item was given to a waiting Get or Lease of c's    the granter, by CAS from handing
//	returned  n     an item that came back. It comes before all            Nack; reap of taken, granted,
//	                positions, in order of its number                      leased; a hand-over that failed
//
//	writers: any participant, by CAS from free, put, returned, handing; the named participant
//	         otherwise, and the reap of that participant
//	readers: the same; periodic checks and tools
//	order:   acquire and release
//	futex:   none
//	crash:   the name says who leaves the slot. The reap makes claimed slots free, and put ones
//	         that no cell names, and taken, granted and leased ones returned; handing slots the replay
//	         makes granted or returned
type queueState uint64

type queueSlotKind uint8

const (
	queueFree queueSlotKind = iota
	queueFull
	queueTaken
	queueLeased
	queueHanding
	queueGiven
	queueReturned
	queueClaimed
	queueKinds

	queueKindShift = 29
	queueTagShift  = 33
	queueTagMask   = 1<<31 - 1
)

func makeQueueState(k queueSlotKind, n arenakernel.ParticipantID, tag uint64) queueState {
	return queueState(n) | queueState(k)<<queueKindShift | queueState(tag&queueTagMask)<<queueTagShift
}

func (s queueState) kind() queueSlotKind { return queueSlotKind(s >> queueKindShift & 15) }
func (s queueState) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(s & arenakernel.ParticipantIDMask)
}

// tag is that of the position of the item.
func (s queueState) tag() uint64 { return uint64(s >> queueTagShift) }

// at reports whether the slot is that of position p and its item was put and not taken.
func (s queueState) at(p uint64) bool { return s.kind() == queueFull && s.tag() == p&queueTagMask }

// before reports whether the item of s was put before that of t, if they are less than 2^30
// positions apart.
func (s queueState) before(t queueState) bool { return int32((s.tag()-t.tag())<<1) < 0 }

// with is the state of the same item with another kind and participant.
func (s queueState) with(k queueSlotKind, n arenakernel.ParticipantID) queueState {
	return makeQueueState(k, n, s.tag())
}

// out reports whether a participant has the item, or is about to be given it.
func (s queueState) out() bool {
	switch s.kind() {
	case queueTaken, queueLeased, queueHanding, queueGiven:
		return true
	}
	return false
}

// valid reports whether a correct participant may have written s.
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
	names := [...]string{"free", "put by", "taken by", "leased to", "handed over by", "granted to", "returned", "claimed by"}
	if !s.valid() {
		return fmt.Sprintf("impossible (%#x)", uint64(s))
	}
	t := names[s.kind()]
	if n := s.participant(); n != 0 {
		t += " " + n.String()
	}
	return t
}

// queueCell is a word of the ring of a Queue. Position p has cell p modulo R, the number of
// cells, and is in lap p / R. It is filled once the lap of its cell is its own, or later.
//
//	bits 0..31   slot  number of the slot from 1; 0 in all-zero memory
//	bits 32..63  lap   of the position that the cell was filled for last; laps begin with 1
//
//	state               meaning                           left by
//	lap L-1, any slot   position (L, j) is not filled     the Put of (L-1, j); all-zero memory
//	lap L, slot s       position (L, j) was filled; its   the Put of (L, j)
//	                    item is in the queue while the
//	                    state of s is put with its tag
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

// queueFlags is a word of a Queue that says what a fast path has to know.
//
//	bit 0  stopped    after Shutdown
//	bit 1  irregular  items have been on lease, or have come back: the positions alone do not tell
//	                  how many items there are. It is never cleared
//	bit 2  closed     only in a word of this process: the handle is closed
//
//	writers: any participant, by an atomic or
//	readers: any
//	order:   seq-cst: irregular is set before what it tells of
//	futex:   none
//	crash:   any value is consistent; irregular may be set too early
const (
	queueStoppedFlag = 1 << iota
	queueIrregularFlag
	queueClosedFlag
)
