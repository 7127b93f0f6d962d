package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// barrierBreaks is the number of broken phases that a Barrier remembers.
const barrierBreaks = 32

// barrierWords is the body of a Barrier, 384 bytes. In an arena that counts the operations on its objects, a
// countWords follows. The number of parties of each participant is in slot records; see barrierSlot. A field
// with the remark Tagged is a tagged word: it holds a value and the version of the change that stored the
// value. For these fields:
//
//	writers: every process that completes the record that the commit word names, by CAS
//	readers: every call, after it completed that record; tools
//	order:   seq-cst
//	futex:   none
//	crash:   the next process completes the record
type barrierWords struct {
	_ structs.HostLayout
	// commit is a counterWord that names the record of the last change, or 0 before the first change. Every
	// change of a Barrier takes effect by one CAS of this word.
	//   writers: every call that changes the state, and reaping, by CAS
	//   readers: every call
	//   order:   seq-cst
	//   futex:   none; waiters sleep on events
	//   crash:   the next process completes the record that it names
	commit atomic.Uint64
	// tickets counts the version numbers that change records have got. Writers, readers, order and crash are as
	// for counterWords.tickets.
	tickets   atomic.Uint64
	phase     atomic.Uint64 // the low half of the number of this phase. Tagged
	era       atomic.Uint64 // the high half of the number of this phase. Tagged
	pending   atomic.Uint64 // how many arrivals this phase still takes. Tagged
	expected  atomic.Uint64 // how many arrivals the next phase takes. Tagged
	completer atomic.Uint64 // the participant that runs the completion of this phase, or 0. Tagged
	broken    atomic.Uint64 // see barrierBroken. Tagged
	// breaks are the records of broken phases that a Reset has ended; see barrierBreak.
	breaks [barrierBreaks]atomic.Uint64

	// The next cache line is an eventcountWords. The sequence in events is 2 x phase, plus 1 while the phase is
	// broken. Bits 33..63 of events are 0. If the sequence is older than the state, any process updates it.
	events atomic.Uint64
	// lastCPU, spin and pays are as in mutexWords.
	lastCPU  atomic.Uint32
	spin     atomic.Uint32
	pays     atomic.Uint32
	size     uint32        // number of parties at the creation. Immutable after init.
	poller   atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	lost     atomic.Uint64 // how many parties died since the last Reset. Tagged
	skipped  atomic.Uint64 // how many phases in a row, just before this one, broke before they were full. Tagged
	reset    atomic.Uint64 // the low half of the first phase after the last Reset. Tagged
	resetEra atomic.Uint64 // the high half of the same number. Tagged
}

// barrierSlot is the slot record of a Barrier, 232 bytes. It holds how many parties belong to one participant,
// and the record of the last change by that participant. The words before head are tagged words, with the same
// writers, readers, order and crash as those of barrierWords.
type barrierSlot struct {
	_       structs.HostLayout
	_       [32]byte      // the header of a slot record
	name    atomic.Uint64 // ID of the participant
	phase   atomic.Uint64 // the low half of the phase of the share; see barrierShare
	era     atomic.Uint64 // the high half of the phase of the share
	parties atomic.Uint64
	left    atomic.Uint64
	gone    atomic.Uint64 // the last participant of this slot that died as a party, or 0; see goneIn
	goneIn  atomic.Uint64 // gone counts only while goneIn is the low half of barrierWords.reset
	head    atomic.Uint64 // the version of the change record, as counterSlot.head
	entries [recordEntries]atomic.Uint64
}

// The indices by which a change record names the tagged words of a Barrier.
const (
	barrierPhase = 1 + iota
	barrierEra
	barrierPending
	barrierExpected
	barrierCompleter
	barrierBrokenWord
	barrierLost
	barrierSkipped
	barrierReset
	barrierResetEra
	barrierFirstShare = 16 // the index of the word name of slot 1; each slot has eight indices
)

const (
	barrierShareName = iota
	barrierSharePhase
	barrierShareEra
	barrierShareParties
	barrierShareLeft
	barrierShareGone
	barrierShareGoneIn
	barrierShareWords = 8
)

// barrierShareAt returns the index by which a change record names a word of a slot. Slots are numbered from 1.
func barrierShareAt(slot int, which uint32) uint32 {
	return barrierFirstShare + uint32(slot-1)*barrierShareWords + which
}

// tagged returns the tagged word to which the index belongs, or nil if there is no such word.
func (x *Barrier) tagged(index uint32) *atomic.Uint64 {
	w := x.words
	if index >= barrierFirstShare {
		i := index - barrierFirstShare
		s := x.slotOf(int(i/barrierShareWords) + 1)
		if s == nil {
			return nil
		}
		return s.word(i % barrierShareWords)
	}
	switch index {
	case barrierPhase:
		return &w.phase
	case barrierEra:
		return &w.era
	case barrierPending:
		return &w.pending
	case barrierExpected:
		return &w.expected
	case barrierCompleter:
		return &w.completer
	case barrierBrokenWord:
		return &w.broken
	case barrierLost:
		return &w.lost
	case barrierSkipped:
		return &w.skipped
	case barrierReset:
		return &w.reset
	case barrierResetEra:
		return &w.resetEra
	}
	return nil
}

func (s *barrierSlot) word(which uint32) *atomic.Uint64 {
	switch which {
	case barrierShareName:
		return &s.name
	case barrierSharePhase:
		return &s.phase
	case barrierShareEra:
		return &s.era
	case barrierShareParties:
		return &s.parties
	case barrierShareLeft:
		return &s.left
	case barrierShareGone:
		return &s.gone
	case barrierShareGoneIn:
		return &s.goneIn
	}
	return nil
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.commit)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.tickets)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.phase)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.era)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.pending)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.expected)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.completer)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.broken)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.breaks)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.events)-320]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.lastCPU)-320-unsafe.Offsetof(eventcountWords{}.lastCPU)]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.spin)-320-unsafe.Offsetof(eventcountWords{}.spin)]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.pays)-320-unsafe.Offsetof(eventcountWords{}.pays)]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.size)-340]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.poller)-320-unsafe.Offsetof(eventcountWords{}.poller)]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.lost)-352]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.skipped)-360]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.reset)-368]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierWords{}.resetEra)-376]
	_ = [1]struct{}{}[unsafe.Sizeof(barrierWords{})-384]
	_ = [1]struct{}{}[unsafe.Offsetof(eventcountWords{}.counts)-(384-320)]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.name)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.phase)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.era)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.parties)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.left)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.gone)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.goneIn)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.head)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(barrierSlot{}.entries)-96]
	_ = [1]struct{}{}[unsafe.Sizeof(barrierSlot{})-barrierSlotBytes]
)

const (
	// barrierSlotBytes is the size of a slot record of a Barrier.
	barrierSlotBytes = 232
	barrierEventsOff = arenakernel.Offset(unsafe.Offsetof(barrierWords{}.events))
)

// barrierBytes is the size of the body of a Barrier.
func barrierBytes(a *arenakernel.Arena) uint64 {
	n := uint64(unsafe.Sizeof(barrierWords{}))
	if a.Counted() {
		n += uint64(unsafe.Sizeof(countWords{}))
	}
	return n
}

// barrierBody returns the words of a Barrier that is being made, whose body no other process can
// reach yet.
func barrierBody(b []byte) *barrierWords {
	_ = b[unsafe.Sizeof(barrierWords{})-1]
	return (*barrierWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// barrierEvents returns the eventcount of a Barrier. The counters of the eventcount exist only in an arena that
// counts operations.
func barrierEvents(w *barrierWords) *eventcountWords {
	// SAFETY: the words of an eventcountWords up to its counters are at events, by the assertions
	// above. The eventcount of an arena that does not count does not use the counters: see countsOf.
	return (*eventcountWords)(unsafe.Pointer(&w.events))
}
