package park

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("park.wake.before_bump")
	_ = crashpoint.Register("park.wake.bumped")
	_ = crashpoint.Register("park.wake.done")
)

// A WaitList says where a releaser, a process that wakes waiters, finds the waiters of an object: in the kernel's
// futex queue of a word, and in a list of poller nodes, the records of waiters that do not sleep in the kernel.
type WaitList struct {
	Arena  *arenakernel.Arena
	Word   *atomic.Uint32 // the word on which waiters sleep
	Raw    *uint32        // the same word, for system calls
	Poller *atomic.Uint64 // head of the list of poller nodes
	// Near makes wakes by this process prefer sleepers on its own NUMA node, and makes sleepers of this process say
	// on which NUMA node they are. Each process decides this for itself; see wakeOne.
	Near bool
}

// DeliverOne wakes one waiter. The parameter turn decides whether it first tries the kernel's queue or the poller
// nodes. The caller has already changed the word, so a waiter that is just about to sleep on the old value does not
// sleep.
func (l *WaitList) DeliverOne(turn uint32) {
	if turn&1 == 0 {
		if l.wakeOne(turn) == 0 {
			l.readyOne(turn)
		}
	} else if !l.readyOne(turn) {
		l.wakeOne(turn)
	}
}

func (l *WaitList) readyOne(turn uint32) bool {
	return l.Poller.Load() != 0 && l.Arena.ReadyOne(l.Poller, turn>>1)
}

// DeliverAll wakes all waiters.
func (l *WaitList) DeliverAll() {
	shmsync.Wake(l.Raw, allSleepers)
	if l.Poller.Load() != 0 {
		l.Arena.ReadyAll(l.Poller)
	}
}

const allSleepers = 1 << 30

// Word is the value of the wake word of a [WakeWord].
//
//	bit  0      announced  a waiter may be, or be on the way to being, asleep on the word
//	bits 1..31  sequence   bumped for each wake that is owed
//
//	announced  meaning                                              left by
//	0          nobody sleeps, or a wake is on its way to a waiter   the bump; all-zero memory
//	           that will announce again
//	1          a release must bump and wake                         a waiter
//
// The bit announced may be 1 although no waiter sleeps, which costs an unnecessary wake. While a
// waiter sleeps, the bit must be 1. There is one exception: after a bump, the bit may be 0 until
// the woken waiter announces itself again, or sees that this is not necessary.
//
// A waiter sleeps on the value of the whole word. The word cannot get the same value again before
// the waiter sleeps, because that would take 2^31 bumps.
//
//	writers: waiters (announce), releasers (bump), reapers (bump), any process
//	readers: the same, and every release
//	order:   seq-cst against the state that is released: announce, then look at
//	         the state; release, then look at the word
//	futex:   WAIT by waiters, WAKE 1 by the releaser that bumped
//	crash:   if a releaser dies between the bump and the wake, or the woken waiter dies, the
//	         others sleep until a reaper bumps and wakes every waiter that is announced in
//	         this word or in a slot, or until the periodic check of a sleeper's process
type Word uint32

const announced = 1

// Announced reports whether a release has to wake a waiter.
func (w Word) Announced() bool { return w&announced != 0 }

// Bumped returns the word after a release that has to wake a waiter: the sequence has changed, and no waiter is
// announced.
func (w Word) Bumped() Word { return (w + 2) &^ announced }

// turn returns a number that changes with each change of the sequence. Wakes use it to alternate between the
// kernel's queue and the poller nodes.
func (w Word) turn() uint32 { return uint32(w >> 1) }

// A WakeWord is a WaitList on whose word waiters announce themselves; see [Word].
type WakeWord struct{ WaitList }

// Announce sets the bit that makes the next release wake a waiter, and returns the value of the word on which the
// caller sleeps. The caller must check the state once more before it sleeps.
func (b *WakeWord) Announce() Word {
	for {
		w := Word(b.Word.Load())
		if w.Announced() {
			return w
		}
		// sync(waitlist.announce): release
		if b.Word.CompareAndSwap(uint32(w), uint32(w|announced)) {
			return w | announced
		}
	}
}

// Announced reports whether a waiter has announced itself.
func (b *WakeWord) Announced() bool {
	// sync(waitlist.announce): acquire
	return Word(b.Word.Load()).Announced()
}

// Release wakes one waiter if a waiter has announced itself. The caller has released the state
// before.
func (b *WakeWord) Release() { b.release(b.DeliverOne) }

// release changes the sequence of the word if a waiter has announced itself, and then calls deliver to wake one
// waiter.
func (b *WakeWord) release(deliver func(turn uint32)) {
	w := Word(b.Word.Load())
	for w.Announced() {
		crashpoint.Hit("park.wake.before_bump")
		// If the CAS fails, another thread has changed the sequence or announced a waiter. Each waiter announces
		// itself only once, so the loop ends.
		if b.Word.CompareAndSwap(uint32(w), uint32(w.Bumped())) {
			crashpoint.Hit("park.wake.bumped")
			deliver(w.turn())
			crashpoint.Hit("park.wake.done")
			return
		}
		w = Word(b.Word.Load())
	}
}

// bump changes the sequence and clears the announcement.
func (b *WakeWord) bump() Word {
	for {
		w := Word(b.Word.Load())
		if b.Word.CompareAndSwap(uint32(w), uint32(w.Bumped())) {
			return w
		}
	}
}

// Touch changes the word, so that a waiter that is just about to sleep on the old value does not sleep but checks
// the state again. Touch does not change the announcement.
func (b *WakeWord) Touch() { b.Word.Add(2) }

// WakeOne changes the sequence and wakes one waiter, whether or not a waiter has announced itself. It replaces a
// wake that may have been lost.
func (b *WakeWord) WakeOne() { b.DeliverOne(b.bump().turn()) }

// WakeAll changes the sequence and wakes all waiters.
func (b *WakeWord) WakeAll() {
	b.bump()
	b.DeliverAll()
}
