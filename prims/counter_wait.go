package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("counter.wait.watched")
	_ = crashpoint.Register("counter.wait.woken")
)

// waitOrPanic does what wait does without a context, but panics with the error.
//
//go:noinline
func (t *counter) waitOrPanic() {
	if err := t.wait(nil); err != nil {
		panic(err)
	}
}

// counterLooks bounds how many times a waiter checks the counter in a row while the counter changes all the time. A
// check is in vain if the counter changes before the waiter knows whether a participant died. After that many
// checks the waiter sleeps until the next periodic check.
const counterLooks = 16

// wait waits until the counter is 0. Once wait has set the watched bit of the commit word, it also ends if the counter
// has been 0 and has risen again.
func (t *counter) wait(ctx context.Context) error {
	if err := t.opening.error(t.op); err != nil {
		return err
	}
	if t.zero() {
		return nil
	}
	if err := t.enter(); err != nil {
		return err
	}
	defer t.leave()
	return t.waitEntered(ctx)
}

// waitEntered is the part of wait that uses the shared memory. The caller has called the method enter.
func (t *counter) waitEntered(ctx context.Context) error {
	// The ticket in the events word is a number that changes when waiters are told that the counter has become 0.
	// If the ticket changes from here on, the wait ends.
	began := counterEvents(t.words.events.Load()).ticket()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	t.counts.add(countContended)
	// looks counts the checks of the counter since the last sleep of this call. From the second check on, the
	// call also checks its context, and does not spin.
	for looks := 0; ; looks++ {
		e := counterEvents(t.words.events.Load())
		t.lookForDead(e)
		c := t.load()
		if c.zero() || e.ticket() != began {
			race.Acquire(t.key)
			t.counts.took()
			return nil
		}
		if looks > 0 {
			if t.queue.Closing() {
				return t.closed()
			}
			if err := cancel.Err(); err != nil {
				return err
			}
		}
		died, current, err := t.lostAt(c)
		switch {
		case err != nil:
			return err
		case died != 0 && current:
			return t.ownerDead(died)
		case !current && looks < counterLooks:
			continue
		case !c.watched():
			if looks == 0 && t.spin(began) {
				t.counts.add(countSpin)
				continue
			}
			if c = t.load(); c.zero() || c.watched() || !t.words.commit.CompareAndSwap(uint64(c), uint64(c|counterWatched)) {
				continue
			}
			// e was read before the watched bit was set. So if the events word changes after the bit was set, the
			// sleep ends at once.
		}
		crashpoint.Hit("counter.wait.watched")
		t.counts.add(countSleep)
		looks = -1
		switch ended := t.queue.Sleep(uint32(e), park.SleepSpec{}, &cancel); ended {
		case park.Again:
			crashpoint.Hit("counter.wait.woken")
		case park.Canceled, park.Closed: // if the counter has been 0, the wait succeeds all the same
			if t.load().zero() || counterEvents(t.words.events.Load()).ticket() != began {
				race.Acquire(t.key)
				return nil
			}
			if ended == park.Closed {
				return t.closed()
			}
			return cancel.Err()
		}
	}
}

// spin spins until the counter is or has been 0 or its owner is dead, or until spinning no longer pays. It
// reports whether it found such a reason to end the wait.
func (t *counter) spin(began uint32) bool {
	return t.tuning().Spin(func() bool {
		c := t.load()
		return c.zero() || c.lost() || counterEvents(t.words.events.Load()).ticket() != began
	})
}

func (t *counter) tuning() park.Tuning {
	w := t.words
	return park.Tuning{Budget: &w.spin, Pays: &w.pays, LastCPU: &w.lastCPU, Slot: t.a.Self().Slot()}
}

// check is called ten times a second while a goroutine of this process waits. It finishes what a stopped or
// dead process has left undone, and looks for participants that died.
func (t *counter) check() {
	e := t.words.events.Load()
	moved := t.looked.Swap(e) != e
	t.reapDead()
	c := t.load()
	if c.untold() {
		t.tellZero(c)
	}
	if died, current, err := t.lostAt(c); moved || c.zero() || died != 0 || !current || err != nil {
		t.list.DeliverAll()
	}
}
