package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// onceWord is the one word of a Once. Every change takes effect by one compare-and-swap of it.
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
// Waiters sleep on the low half, which each change but the first announcement ends. announced
// may be set with nobody asleep, which costs one wake. It must be set while a waiter sleeps:
// no step clears it, so the process that sets done knows of every waiter.
//
// turn keeps a process from a change on behalf of an earlier runner, because by then a participant with the
// same ID may be the runner. The same turn comes back after 2^32 deaths of runners.
//
//	writers: Do, reaping, periodic checks (any process), each by CAS
//	readers: Do, Done, tools
//	order:   release by the runner that sets done, acquire by a reader that finds it
//	futex:   WAIT on the low half by Do; WAKE all by the process that sets done, and by reaping
//	crash:   each value is a whole state. A runner that is not current is nobody: reaping, or the
//	         next Do, changes that when the runner is gone. A process that dies or stops after
//	         its change may owe the wake, which a reaper makes up for, or the waiters' own
//	         periodic check
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

// runner is the participant that runs its function, or 0.
func (w onceWord) runner() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w & onceIDs >> onceIDShift)
}

// takenBy is the word when n begins the next turn.
func (w onceWord) takenBy(n arenakernel.ParticipantID) onceWord {
	return w&^onceIDs + onceTurn | onceWord(n)<<onceIDShift
}

// left is the word after the turn was taken from its runner.
func (w onceWord) left() onceWord { return w &^ onceIDs }

// finished is the word when its runner's function has returned.
func (w onceWord) finished() onceWord { return w&^onceIDs | onceDone }

// runs reports whether the turn is still the one that began with the word began.
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
