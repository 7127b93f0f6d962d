package prims

import (
	"context"
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("rwspinlock.drain.claimed")
	_ = crashpoint.Register("rwspinlock.drain.announced")
	_ = crashpoint.Register("rwspinlock.drain.given_up")
)

// rwSpinDrain describes a wait for readers to leave, which is called a drain. Its fields are values of the state word:
//
//	from     before the drain
//	pending  during the drain
//	to       after a drain that has succeeded
//	back     after a drain that has failed
type rwSpinDrain struct {
	from, pending, to, back spinWord
}

func drainForLock(n arenakernel.ParticipantID) rwSpinDrain {
	claimed := makeSpin(spinDraining, n)
	return rwSpinDrain{from: claimed, pending: claimed, to: makeSpin(spinHeld, n), back: spinFree}
}

func drainForUpgrade(n arenakernel.ParticipantID) rwSpinDrain {
	u := makeSpin(spinUpgrade, n)
	return rwSpinDrain{from: u, pending: makeSpin(spinUpgrading, n), to: makeSpin(spinHeld, n), back: u}
}

// drainForRecover returns the values of the state word for a Recover that waits for readers to leave. If the wait
// fails, the word gets a value that names no participant. The participant that died must not be named, because another
// participant may have got the same ID during the wait.
func drainForRecover(n arenakernel.ParticipantID, was spinWord) rwSpinDrain {
	r, back := makeSpin(spinRecovering, n), spinOwnerGone
	if was == spinLost {
		back = spinLost
	}
	return rwSpinDrain{from: r, pending: r, to: r, back: back}
}

// nobodyReads reports whether all counts of readers are 0. The count of a dead reader stays as it is until a
// process takes it back. If the list of slot records is corrupt, the result is false, because a reader may be missing
// from the list.
//
// No reader is missed. A reader has its record on the list before it counts itself, and then it reads the state word.
// A writer changes the state word before it loads the head of the list. So if the record of a reader is not on the list
// yet, that reader sees the state word of the writer.
func (l *RWSpinLock) nobodyReads() bool {
	known := l.readers.load()
	return known.err == nil && noneReads(known.all)
}

// noneReads reports whether these counts of readers are 0.
func noneReads(counts []rwSpinSlot) bool {
	for i := range counts {
		// sync(rwspinlock.drain): acquire
		if counts[i].count.Load() != 0 {
			return false
		}
	}
	return true
}

// reader returns a participant that holds the lock for reading, or 0. It takes back the holds of dead
// participants.
func (l *RWSpinLock) reader() (arenakernel.ParticipantID, error) {
	known := l.readers.load()
	if known.err != nil {
		return 0, l.core.fail("lock", shmsync.ErrCorrupt, nil, "its list of slot records")
	}
	for _, r := range known.all {
		for tries := 0; ; tries++ {
			// sync(rwspinlock.drain): acquire
			w := rwSpinCount(r.count.Load())
			if w == 0 {
				break
			}
			if !w.validIn(r.slot) {
				return 0, l.core.fail("lock", shmsync.ErrCorrupt, nil, l.corruptCount(r.slot, w))
			}
			if !l.core.a.Dead(w.participant()) {
				if l.core.a.Current(w.participant()) {
					return w.participant(), nil
				}
				break // the participant is no longer a reader
			}
			if tries == reapTries { // correct peers change the word of dead participants once or twice
				return 0, l.core.fail("lock", shmsync.ErrCorrupt, nil, l.corruptCount(r.slot, w)+", and keep changing")
			}
			if !l.drainQueue.Enter() {
				return w.participant(), nil // the handle is being closed, and perhaps Close does not wait for this call
			}
			// TakeFromDead fails if the next participant in the slot has changed the word by an RLock. The next
			// iteration then finds this participant, and ends the loop.
			arenakernel.TakeFromDead(l.core.a, w.participant(), r.count, uint64(w), 0)
			l.drainQueue.Exit()
		}
	}
	return 0, nil
}

func (l *RWSpinLock) corruptCount(slot int, w rwSpinCount) string {
	return fmt.Sprintf("the readers of slot %d are %#x", slot, uint64(w))
}

// drain waits until no reader is left. The caller has set the state word to d.from, which keeps new readers out. If
// drain fails, it sets the state word to d.back.
func (l *RWSpinLock) drain(ctx context.Context, d rwSpinDrain) error {
	crashpoint.Hit("rwspinlock.drain.claimed")
	who, err := l.reader()
	if who == 0 && err == nil {
		return l.turn(d.from, d.to)
	}
	if e := l.turn(d.from, d.pending); e != nil {
		return e
	}
	if err == nil {
		err = l.awaitReaders(ctx, who)
	}
	if err == nil {
		return l.turn(d.pending, d.to)
	}
	l.giveUp(d)
	return err
}

// turn changes the state word from one value to another. Only this process may change the word now. So if the
// change fails, a peer has overwritten the word.
func (l *RWSpinLock) turn(from, to spinWord) error {
	if from == to || l.core.state.CompareAndSwap(uint32(from), uint32(to)) {
		return nil
	}
	return l.core.fail("lock", shmsync.ErrCorrupt, nil,
		fmt.Sprintf("it was %v and became %v under its owner", from, spinWord(l.core.state.Load())))
}

// giveUp is called when the wait for readers to leave has failed. It sets the state word to d.back. Then it wakes
// the waiters that can get the lock now, or that have to return an error. After a failed upgrade it wakes no
// waiter, because the lock is still held.
func (l *RWSpinLock) giveUp(d rwSpinDrain) {
	// sync(spinlock.release): release
	if !l.core.state.CompareAndSwap(uint32(d.pending), uint32(d.back)) {
		return
	}
	crashpoint.Hit("rwspinlock.drain.given_up")
	switch {
	case d.back.free():
		if l.core.waited() {
			l.core.passOn()
		}
	case !d.back.held():
		wakeSpinWaiters(l.core.a, l.core.words, arenakernel.OwedAll, true)
	}
}

// awaitReaders waits until there are no readers. The argument who is a reader that the caller has found.
func (l *RWSpinLock) awaitReaders(ctx context.Context, who arenakernel.ParticipantID) error {
	if !l.drainQueue.Enter() {
		return l.core.closed()
	}
	defer l.drainQueue.Exit()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	for spun := false; ; {
		var err error
		if !spun {
			spun = true
			l.core.spinWhile(makeSpin(spinHeld, who), l.nobodyReads)
		}
		v := l.drained.Announce()
		crashpoint.Hit("rwspinlock.drain.announced")
		if who, err = l.reader(); who == 0 || err != nil {
			return err
		}
		switch l.drainQueue.Sleep(uint32(v), park.SleepSpec{Owner: who}, &cancel) {
		case park.Again:
			spun = false
		case park.Canceled:
			if who, err = l.reader(); who == 0 || err != nil {
				return err
			}
			return cancel.Err()
		case park.Closed:
			return l.core.closed()
		}
	}
}
