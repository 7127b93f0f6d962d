package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// rwSpinCount says how many holds for reading one participant has on an RWSpinLock. The lock has such a word in the slot
// record of each slot whose participants have opened it.
//
//	bits 0..29   holds  the holds of the participant, and tries: goroutines that check
//	                    whether they may have a hold
//	bits 30..31  0
//	bits 32..60  name   of the participant in the slot
//	bits 61..63  0
//
//	holds  name  meaning                                        left by
//	0      0     none (also all-zero memory)                    RUnlock
//	n      p     n holds of p; none if p is dead                RLock, Downgrade
//
// Every other value is corrupt. A reader first counts itself and then reads the state word. If the state word is
// not 0, the reader takes its count back. A process that locks for writing or upgrade first writes the state word,
// then reads the list of slot records, and then the counts. So the reader sees the writer, or the writer sees the
// reader. Each count has the ID of the participant that made it, so the count of a dead participant can be recognized.
//
//	writers: the participant of the slot; a process that finds its name dead (CAS to 0); the
//	         next participant in the slot (CAS to a count of its own)
//	readers: the waiter for readers to leave, tools
//	order:   seq-cst against the state word, and against the word drain when the count becomes 0;
//	         release when the count becomes 0, acquire when a load finds 0
//	futex:   none; the waiter for readers sleeps on the word drain
//	crash:   names the dead participant until a process finds that and sets the word to 0
type rwSpinCount uint64

const (
	rwSpinCountMask = 1<<30 - 1
	rwSpinNameShift = 32

	// rwSpinMost is the largest number of holds for reading that one process can have.
	rwSpinMost = rwSpinCountMask
)

func makeRWSpinCount(n arenakernel.ParticipantID, holds uint32) rwSpinCount {
	return rwSpinCount(n)<<rwSpinNameShift | rwSpinCount(holds)
}

func (w rwSpinCount) holds() uint32 { return uint32(w & rwSpinCountMask) }
func (w rwSpinCount) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w>>rwSpinNameShift) & arenakernel.ParticipantIDMask
}

// validIn reports whether w is a possible value of the word of the given slot.
func (w rwSpinCount) validIn(slot int) bool {
	return w == 0 || w.participant().Slot() == slot && w.holds() != 0 && w == makeRWSpinCount(w.participant(), w.holds())
}

// plus returns the word after the participant with the ID me has got one more hold. The word w belongs to that
// participant, or to a dead participant that had the slot before. If w is impossible or cannot be incremented, ok is
// false.
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

// minus returns the word after the participant with the ID me has given up one hold. If that participant has no hold,
// ok is false.
func (w rwSpinCount) minus(me arenakernel.ParticipantID) (next rwSpinCount, ok bool) {
	switch {
	case w.participant() != me || !w.validIn(me.Slot()):
		return w, false
	case w.holds() == 1:
		return 0, true
	}
	return w - 1, true
}

// String renders the word as "none" or, for example, as "3 of P", where P is the participant.
func (w rwSpinCount) String() string {
	if w == 0 {
		return "none"
	}
	return fmt.Sprintf("%d of %v", w.holds(), w.participant())
}
