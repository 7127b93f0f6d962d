package prims

import (
	"context"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
	"github.com/shmsync/shmsync/internal/race"
)

var (
	_ = crashpoint.Register("once.wait.announced")
	_ = crashpoint.Register("once.wait.woken")
)

// join waits until a function has returned, or makes the caller the runner. In the latter case
// mine is true, and began is the word with the turn of the caller.
//
//	a waiter                               the runner
//	state: is it done?                     state: done, and was it announced?
//	state: announced, by CAS               if so, wake all
//	sleep while the low half is unchanged
//
// Both sides change the same word. So if the CAS of one side succeeds, the other side finds that change; if its
// CAS fails, the process loads the word again.
func (o *Once) join(ctx context.Context) (began onceWord, mine bool, err error) {
	if !o.queue.Enter() {
		return 0, false, o.closed()
	}
	defer o.queue.Exit()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	waits := false
	for {
		// The loop ends: a CAS fails only if another call, or a reaper, has changed the word, and
		// each death causes only a bounded number of changes.
		w := o.load()
		switch {
		case w.done():
			race.Acquire(o.key)
			o.counts.took()
			return 0, false, nil
		case o.free(w):
			if began = w.takenBy(o.name); o.swap(w, began) {
				return o.took(w, began)
			}
			continue
		case !waits:
			waits = true
			o.counts.add(countContended)
			if !w.announced() && o.spin() {
				o.counts.add(countSpin)
			}
			continue // the word may have changed meanwhile
		case !w.announced():
			if !o.swap(w, w|onceAnnounced) {
				continue
			}
			w |= onceAnnounced
		}
		crashpoint.Hit("once.wait.announced")
		o.counts.add(countSleep)
		switch ended := o.queue.Sleep(uint32(w), park.SleepSpec{}, &cancel); ended {
		case park.Again:
			crashpoint.Hit("once.wait.woken")
		case park.Canceled, park.Closed: // a function that has returned beats the end of the wait
			switch {
			case o.load().done():
				race.Acquire(o.key)
				return 0, false, nil
			case ended == park.Closed:
				return 0, false, o.closed()
			}
			return 0, false, cancel.Err()
		}
	}
}

// took is the end of a call that has taken the turn.
func (o *Once) took(was, began onceWord) (onceWord, bool, error) {
	o.counts.took()
	if was.turn() != 0 {
		o.counts.add(countRecovery)
	}
	race.Acquire(o.key) // what the dead runner has done may be visible
	// The words stay in place until the end of the function is noted there. Close does not
	// wait for it.
	if !o.opening.stayIfOpen() {
		return 0, false, o.closed() // the arena is being unmapped, and others see that we left
	}
	return began, true, nil
}

// free reports whether the next call may run its function: nobody runs one, or the runner is
// dead and gone.
func (o *Once) free(w onceWord) bool {
	n := w.runner()
	return n == 0 || !o.a.Current(n) && o.a.Gone(n)
}

// spin spins while another process runs its function.
func (o *Once) spin() bool {
	return o.tuning().Spin(func() bool {
		w := o.load()
		return w.done() || w.runner() == 0
	})
}

func (o *Once) tuning() park.Tuning {
	w := o.words
	return park.Tuning{Budget: &w.spin, Pays: &w.pays, LastCPU: &w.lastCPU, Slot: o.a.Self().Slot()}
}

// wakeAll wakes all waiters, so that they check the word again.
func (o *Once) wakeAll() {
	o.counts.add(countWake)
	if o.queue == nil {
		o.list.DeliverAll()
		return
	}
	o.queue.DeliverAllAsOne()
}

// check is called ten times a second while a goroutine of this process waits. It does what a stopped or dead
// process left undone, and finds a runner that died.
func (o *Once) check() {
	if w := o.load(); !w.done() && w.runner() != 0 && o.a.Dead(w.runner()) {
		o.reap(func(n arenakernel.ParticipantID) bool { return !o.a.Current(n) })
	}
	if w := o.load(); w.done() || w.runner() == 0 || !w.announced() {
		o.list.DeliverAll()
	}
}
