package park

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("park.wake.before_bump")
	_ = crashpoint.Register("park.wake.bumped")
	_ = crashpoint.Register("park.wake.done")
)

// Word is the value of a wake word.
//
//	bit  0      announced  somebody may be, or be on the way to being, asleep on the word
//	bits 1..31  sequence   bumped for each wake that is owed
//
//	announced  meaning                                              left by
//	0          nobody sleeps, or a wake is on its way to somebody   the bump; all-zero memory
//	           who will announce again
//	1          a release must bump and wake                         a waiter
//
// announced may be 1 with nobody asleep (costs one wake). It must not be 0
// with a sleeper, except between a bump and the moment when the woken sleeper
// announces again or sees that it need not.
//
// A waiter sleeps on the whole word, so a value that it looked at cannot come
// back: it would take 2^31 bumps between its look and its sleep.
//
//	writers: waiters (announce), releasers (bump), reapers (bump), any process
//	readers: the same, and every release
//	order:   seq-cst against the state that is released: announce, then look at
//	         the state; release, then look at the word
//	futex:   WAIT by waiters, WAKE 1 by who bumped
//	crash:   a death between the bump and the wake, or of the woken, strands the
//	         sleepers until a reaper bumps and wakes everything that is announced
//	         in a slot, or until a sleeper's process looks (100 ms)
type Word uint32

const announced = 1

// Announced reports whether a release has to wake somebody.
func (w Word) Announced() bool { return w&announced != 0 }

// Bumped is the word after a release that owes a wake.
func (w Word) Bumped() Word { return (w + 2) &^ announced }

// turn alternates between the kernel's queue and the hubs.
func (w Word) turn() uint32 { return uint32(w >> 1) }

// Line is where to wake the waiters of an object. The zero Hub means that no
// hub nodes exist.
type Line struct {
	Arena *arena.Arena
	Word  *atomic.Uint32
	Raw   *uint32        // Word, for the kernel
	Hub   *atomic.Uint64 // head of the list of hub nodes
}

// Announce makes sure that the next release wakes, and returns the word to sleep
// on. The caller looks at the state once more before it sleeps.
func (l *Line) Announce() Word {
	for {
		w := Word(l.Word.Load())
		if w.Announced() {
			return w
		}
		// sync(line.announce): release
		if l.Word.CompareAndSwap(uint32(w), uint32(w|announced)) {
			return w | announced
		}
	}
}

// Announced reports whether somebody wants to be woken.
func (l *Line) Announced() bool {
	// sync(line.announce): acquire
	return Word(l.Word.Load()).Announced()
}

// Release wakes one waiter if somebody has announced itself. It is called after
// the state was released.
func (l *Line) Release() {
	w := Word(l.Word.Load())
	for w.Announced() {
		crashpoint.Hit("park.wake.before_bump")
		// The loop ends: a failed CAS means that somebody else bumped or
		// announced, and an announcement is made once.
		if l.Word.CompareAndSwap(uint32(w), uint32(w.Bumped())) {
			crashpoint.Hit("park.wake.bumped")
			l.wakeOne(w.turn())
			crashpoint.Hit("park.wake.done")
			return
		}
		w = Word(l.Word.Load())
	}
}

// wakeOne wakes one sleeper, of the kernel's queue and the hubs in turn.
func (l *Line) wakeOne(turn uint32) {
	if turn&1 == 0 {
		if shmsync.Wake(l.Raw, 1) == 0 {
			l.readyOne(turn)
		}
	} else if !l.readyOne(turn) {
		shmsync.Wake(l.Raw, 1)
	}
}

func (l *Line) readyOne(turn uint32) bool {
	return l.Hub != nil && l.Hub.Load() != 0 && l.Arena.ReadyOne(l.Hub, turn>>1)
}

// Bump changes the word so that whoever is about to sleep looks again, and
// takes the announcement down.
func (l *Line) Bump() {
	for {
		w := Word(l.Word.Load())
		if l.Word.CompareAndSwap(uint32(w), uint32(w.Bumped())) {
			return
		}
	}
}

// Touch changes the word so that whoever is about to sleep looks again, and
// leaves the announcement.
func (l *Line) Touch() { l.Word.Add(2) }

// WakeOne bumps and wakes one waiter whether or not one has announced itself:
// for wakes that may have been lost.
func (l *Line) WakeOne() {
	w := Word(l.Word.Load())
	l.Bump()
	l.wakeOne(w.turn())
}

// WakeAll bumps and wakes all waiters.
func (l *Line) WakeAll() {
	l.Bump()
	l.DeliverAll()
}

// DeliverAll wakes all waiters of a word that was changed already.
func (l *Line) DeliverAll() {
	shmsync.Wake(l.Raw, 1<<30)
	if l.Hub != nil && l.Hub.Load() != 0 {
		l.Arena.ReadyAll(l.Hub)
	}
}
