package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// rwSpinCount is how often one participant holds a RWSpinLock for reading. There
// is one for each slot.
//
//	bits 0..29   holds  the holds of all its goroutines, and those about to look
//	                    whether they may have one
//	bits 30..31  0
//	bits 32..60  name   of the participant, whose slot it is
//	bits 61..63  0
//
//	holds  name  meaning                                        left by
//	0      0     none (also all-zero memory)                    RUnlock
//	n      p     n of p, if p is current; else none: p died     RLock, Downgrade
//
// Every other value is corrupt. A reader first counts itself and then looks at the state
// word; if that is not 0 it takes itself off again. A process that takes the lock to itself
// first says so in the state word and then looks at the counts. So one of the two sees the
// other, and a count is never without its author.
//
//	writers: the participant of the slot; a process that finds its name dead (CAS to 0), its
//	         successor in the slot (CAS to 1 of its own)
//	readers: the waiter for readers to leave, people
//	order:   seq-cst against the state word, and on the way to 0 against drain; release
//	         on the way to 0, acquire where 0 is seen
//	futex:   none; the waiter for readers sleeps on drain
//	crash:   names the dead until a process looks: then it counts for nothing
type rwSpinCount uint64

const (
	rwSpinCountMask = 1<<30 - 1
	rwSpinNameShift = 32

	// rwSpinMost is how many holds for reading one process can have.
	rwSpinMost = rwSpinCountMask
)

func makeRWSpinCount(n arenakernel.ParticipantID, holds uint32) rwSpinCount {
	return rwSpinCount(n)<<rwSpinNameShift | rwSpinCount(holds)
}

func (w rwSpinCount) holds() uint32 { return uint32(w & rwSpinCountMask) }
func (w rwSpinCount) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w>>rwSpinNameShift) & arenakernel.ParticipantIDMask
}

// validIn reports whether the word can be that of a slot.
func (w rwSpinCount) validIn(slot int) bool {
	return w == 0 || w.participant().Slot() == slot && w.holds() != 0 && w == makeRWSpinCount(w.participant(), w.holds())
}

// plus is the word after one more hold of me, whose word it is or was that of
// whom it succeeds. It is false for a word that cannot be there.
func (w rwSpinCount) plus(me arenakernel.ParticipantID) (next rwSpinCount, ok bool) {
	switch {
	case w == 0:
		return makeRWSpinCount(me, 1), true
	case !w.validIn(me.Slot()):
		return w, false
	case w.participant() == me:
		return w + 1, w.holds() < rwSpinMost
	}
	return makeRWSpinCount(me, 1), me.Covers(w.participant())
}

// minus is the word after one hold less of me. It is false where there is none.
func (w rwSpinCount) minus(me arenakernel.ParticipantID) (next rwSpinCount, ok bool) {
	switch {
	case w.participant() != me || !w.validIn(me.Slot()):
		return w, false
	case w.holds() == 1:
		return 0, true
	}
	return w - 1, true
}

// String renders the word by the names of its parts.
func (w rwSpinCount) String() string {
	if w == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %v", w.holds(), w.participant())
}
