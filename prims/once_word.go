package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// onceWord is the one word of a Once. The state of a Once changes only by a compare-and-swap of this word.
//
//	bit  0       announced  a waiter may sleep, or be on the way to it; never cleared
//	bit  1       done       a function has returned; never cleared
//	bit  2       0
//	bits 3..31   runner     the participant that runs its function, or 0
//	bits 32..63  turn       how many calls have begun a function
//
//	done  runner  announced  meaning                            left by
//	0     0       0          no call has come (all-zero memory)  init
//	0     0       any        the runner died                     reaping
//	0     n       0          n runs; nobody waits                Do that takes the turn
//	0     n       1          n runs; a waiter may sleep          Do that waits; Do that takes the turn of a dead one
//	1     0       any        a function has returned             Do that ran it
//
// Waiters sleep on the low half of the word. A process that sets the bit done, or that removes a dead runner, wakes
// them. The bit announced is set while a waiter sleeps. No step clears it, so the process that sets the bit done
// learns of every waiter. If the waiter has given up, that costs one unnecessary wake.
//
// The turn keeps a process from changing the word on behalf of an earlier runner: it is another number even if the
// same participant becomes the runner again. A number comes back only after 2^32 deaths of runners.
//
//	writers: Do, reaping, periodic checks (any process), each by CAS
//	readers: Do, Done, tools
//	order:   release by the runner that sets done, acquire by a reader that finds it
//	futex:   WAIT on the low half by Do; WAKE all by the process that sets done, and by reaping
//	crash:   each value is a whole state. If the runner is not current, no call runs a function;
//	         a reaper or the next Do removes the runner when the runner is gone. If a process
//	         dies or stops after its change and before the wake, a reaper makes the wake, or
//	         the periodic check of a waiter
type onceWord uint64

const (
	onceAnnounced onceWord = 1
	onceDone      onceWord = 2
	onceIDShift            = 3
	onceIDs                = onceWord(arenakernel.ParticipantIDMask) << onceIDShift
	onceTurn      onceWord = 1 << 32
)

func (w onceWord) announced() bool { return w&onceAnnounced != 0 }
func (w onceWord) done() bool      { return w&onceDone != 0 }
func (w onceWord) turn() uint32    { return uint32(w >> 32) }

// runner returns the participant that runs a function now, or 0 if none does.
func (w onceWord) runner() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w & onceIDs >> onceIDShift)
}

// takenBy returns the word after the participant n has become the runner, that is, after it has begun to run a
// function.
func (w onceWord) takenBy(n arenakernel.ParticipantID) onceWord {
	return w&^onceIDs + onceTurn | onceWord(n)<<onceIDShift
}

// left returns the word after its runner has died or left, so that no participant runs a function.
func (w onceWord) left() onceWord { return w &^ onceIDs }

// finished returns the word after the runner's function has returned.
func (w onceWord) finished() onceWord { return w&^onceIDs | onceDone }

// runs reports whether the turn that began with the given word still lasts, that is, whether its function still runs.
func (w onceWord) runs(began onceWord) bool {
	return !w.done() && w.runner() == began.runner() && w.turn() == began.turn()
}

// String renders the word by the names of its parts.
func (w onceWord) String() string {
	str := "not done"
	switch {
	case w.done():
		str = "done"
	case w.runner() != 0:
		str = "run by " + w.runner().String()
	}
	if w.announced() {
		str += ", announced"
	}
	return str + fmt.Sprintf(", turn %d", w.turn())
}
