package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// counterWord is the commit word of a WaitGroup or Latch. Every change of the counter takes
// effect by one compare-and-swap of this word. It has two forms.
//
// Sole: the word describes the whole state.
//
//	bit  0       watched  a waiter may sleep, or be on the way to it
//	bit  1       dead     the owner was reaped: the dead owe the whole count
//	bit  2       0
//	bits 3..31   owner    the participant whose share is the whole count, or 0: nobody's.
//	                      While the count is 0: the ticket of this zero, or 0
//	bits 32..62  count
//	bit  63      0
//
// Logged: the word names a record, and the state is in the words that the record changes.
// The count is not 0.
//
//	bit  0       watched
//	bits 1..11   slot     whose record it is
//	bits 12..62  version  of the record, a ticket
//	bit  63      1
//
//	form    count  owner, ticket  watched  dead  meaning                     left by
//	sole    0      0              0        0     nothing to do               Done; init; a process that told waiters
//	                                                                         of a zero
//	sole    0      ticket         1        0     waiters are not told yet    Done
//	sole    n      ID             any      0     ID's share is the count     Add
//	sole    n      ID             any      1     the dead ID owes the count  reaping of ID
//	sole    n      0              any      0     nobody's share              init of a Latch
//	logged  n      -              any      -     shares in the slots         any other change
//
// When the count becomes 0, the logged form ends, because there are no shares any more.
//
// The bit watched may be set while no waiter sleeps, which costs one wake. It must be set while a waiter sleeps
// and the counter is not 0.
//
// The same value of the sole form may come back. That does no harm, because a change from such a value depends on
// nothing but the value. The exceptions are the changes in reap and in zeroLost, which depend on the death of the
// owner. These calls first publish the ID of the owner in an act word, so that no other participant gets the ID. A
// ticket of a zero comes back only after 2^29 other tickets, and a version only after 2^51 other versions.
//
//	writers: every call, of any process, by CAS
//	readers: every call
//	order:   seq-cst
//	futex:   none; waiters sleep on counterWords.events
//	crash:   each value describes a whole state. The next call completes the record that the word
//	         names, and tells waiters of a zero that they have not been told of
type counterWord uint64

const (
	counterWatched  counterWord = 1
	counterDead     counterWord = 2
	counterIDShift              = 3
	counterOne      counterWord = 1 << 32
	counterLogged   counterWord = 1 << 63
	counterMax                  = 1<<31 - 1 // the highest count
	counterSlotMask             = 1<<11 - 1
	counterVerShift             = 12
	counterVersions             = 1<<51 - 1
	counterTickets              = 1<<29 - 1 // the greatest ticket of a zero
)

// counterOf returns the commit word, in the sole form, for a count that is all the share of owner.
func counterOf(count uint64, owner arenakernel.ParticipantID) counterWord {
	return counterWord(count)<<32 | counterWord(owner)<<counterIDShift
}

// counterZero returns the commit word for a counter that has become 0 and whose waiters have to be told.
func counterZero(ticket uint32) counterWord {
	return counterWord(ticket)<<counterIDShift | counterWatched
}

// counterNames returns the commit word, in the logged form, that names a record.
func counterNames(version uint64, slot int, watched counterWord) counterWord {
	return counterLogged | counterWord(version)<<counterVerShift | counterWord(slot)<<1 | watched
}

func (c counterWord) logged() bool      { return c&counterLogged != 0 }
func (c counterWord) watched() bool     { return c&counterWatched != 0 }
func (c counterWord) bare() counterWord { return c &^ counterWatched }
func (c counterWord) slot() int         { return int(c >> 1 & counterSlotMask) }
func (c counterWord) version() uint64   { return uint64(c>>counterVerShift) & counterVersions }
func (c counterWord) zero() bool        { return c>>32 == 0 }
func (c counterWord) untold() bool      { return c.zero() && c != 0 }
func (c counterWord) count() uint64     { return uint64(c >> 32) }
func (c counterWord) ticket() uint32    { return uint32(c) >> counterIDShift }
func (c counterWord) lost() bool        { return !c.logged() && !c.zero() && c&counterDead != 0 }
func (c counterWord) ownedBy(me uint64) bool {
	return !c.logged() && !c.zero() && uint64(uint32(c.bare())) == me
}

// owner returns the participant whose share is the whole count. It returns 0 if there is no such participant, or if
// the word has the logged form.
func (c counterWord) owner() arenakernel.ParticipantID {
	if c.logged() || c.zero() {
		return 0
	}
	return arenakernel.ParticipantID(uint32(c) >> counterIDShift)
}

// added returns the commit word after a participant has added n. me is the ID of the participant, shifted to
// the bits of the owner. ok is false if the sole form cannot express the new state.
func (c counterWord) added(n, me uint64) (to counterWord, ok bool) {
	if c == 0 {
		return counterWord(n)<<32 | counterWord(me), true
	}
	return c + counterWord(n)<<32, c.ownedBy(me)
}

// done returns the commit word after a participant has done n units of the work, which are fewer than the
// count. me is the ID of the participant, shifted to the bits of the owner. ok is false if the sole form cannot
// express the new state.
func (c counterWord) done(n, me uint64) (to counterWord, ok bool) {
	return c - counterWord(n)<<32, c.ownedBy(me) || c.ownedBy(0)
}

// String renders the word by the names of its parts.
func (c counterWord) String() string {
	var s string
	switch {
	case c.logged():
		s = fmt.Sprintf("record %d of slot %d", c.version(), c.slot())
	case c == 0:
		return "0"
	case c.zero():
		return fmt.Sprintf("0, waiters are to be told (ticket %d)", c.ticket())
	case c.owner() == 0:
		s = fmt.Sprintf("%d", c.count())
	case c.lost():
		s = fmt.Sprintf("%d, owed by the dead %v", c.count(), c.owner())
	default:
		s = fmt.Sprintf("%d, all of %v", c.count(), c.owner())
	}
	if c.watched() {
		s += ", watched"
	}
	return s
}

// taggedWord is a word that a record changes.
//
//	bits 0..31   tag    the low half of the version of the record that changed it last
//	bits 32..63  value
//
// Several processes may carry out the same record. Because of the tag, each change still happens only once: a
// process changes no word whose tag is already that of the record. A record takes a version that is not the tag
// of any word that it changes.
type taggedWord uint64

func (w taggedWord) value() uint32 { return uint32(w >> 32) }
func (w taggedWord) tag() uint32   { return uint32(w) }

func makeTagged(value, tag uint32) taggedWord { return taggedWord(value)<<32 | taggedWord(tag) }

// counterEvents is the word that waiters sleep on.
//
//	bits 0..31   sequence  counts the times that waiters have to check the counter again; the futex word
//	bits 32..63  ticket    of the last zero of which waiters were told
//
// If the ticket has changed during a wait, the counter has been 0 since the wait began, so the wait ends.
//
//	writers: a process that tells of a zero or of a death, by CAS
//	readers: waiters, Done at a zero, tools
//	order:   seq-cst, before the commit word by waiters; between two changes of the commit
//	         word by a process that tells of a zero
//	futex:   WAIT on the low half by waiters, WAKE all by a process that told of a zero or a death
//	crash:   if a process dies before its wake, a reaper or a periodic check makes the wake
type counterEvents uint64

func (e counterEvents) ticket() uint32 { return uint32(e >> 32) }
func (e counterEvents) next(ticket uint32) counterEvents {
	return counterEvents(ticket)<<32 | counterEvents(uint32(e)+1)
}
