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

// join waits until a function has returned, or makes the calling Do the runner, which then calls its function. mine
// is true if the caller is the runner; began is then the word with which its turn begins.
//
//	a waiter                               the runner
//	state: is it done?                     state: done, and was it announced?
//	state: announced, by CAS               if so, wake all
//	sleep while the low half is unchanged
//
// Both sides change the same word by CAS. If the CAS of one side succeeds first, the CAS of the
// other side fails, and that side loads the word again and finds the change.
func (o *Once) join(ctx context.Context) (began onceWord, mine bool, err error) {
	if !o.queue.Enter() {
		return 0, false, o.closed()
	}
	defer o.queue.Exit()
	// stayToRun makes Close of the arena wait until finish has recorded the end of the function; Close of the handle
	// does not wait. stayToRun may refuse, so it is called before this goroutine can become the runner.
	if !o.opening.stayToRun() {
		return 0, false, o.closed()
	}
	defer func() {
		if !mine {
			o.opening.leave()
		}
	}()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	ended := park.Again
	for waits := false; ; {
		// The loop repeats only if another call, or the recovery after a death, has changed the word. Each death
		// causes only a bounded number of changes.
		w := o.load()
		switch {
		case w.done():
			race.Acquire(o.key)
			o.counts.took()
			return 0, false, nil
		case ended == park.Closed:
			return 0, false, o.closed()
		case o.free(w): // a free turn takes precedence over a context that has ended
			if began = w.takenBy(o.name); o.swap(w, began) {
				o.took(w)
				return began, true, nil
			}
			continue
		case ended == park.Canceled:
			return 0, false, cancel.Err()
		case !waits:
			waits = true
			if w.runner() == o.name {
				o.opening.mustNotWaitForSelf(ctx, "Do")
			}
			o.counts.add(countContended)
			if !w.announced() && o.spin() {
				o.counts.add(countSpin)
			}
			continue // the word may have changed during the spin
		case !w.announced():
			if !o.swap(w, w|onceAnnounced) {
				continue
			}
			w |= onceAnnounced
		}
		crashpoint.Hit("once.wait.announced")
		o.counts.add(countSleep)
		if ended = o.queue.Sleep(uint32(w), park.SleepSpec{}, &cancel); ended == park.Again {
			crashpoint.Hit("once.wait.woken")
		}
	}
}

// took completes join for a call that has become the runner. The parameter is the word before the turn of this call.
func (o *Once) took(was onceWord) {
	o.counts.took()
	if was.turn() != 0 {
		o.counts.add(countRecovery)
	}
	race.Acquire(o.key) // this call sees everything that an earlier runner, which died, has stored
}

// free reports whether the next call may run its function. That is so if no process runs a function, or if the
// process that runs one is dead and gone.
func (o *Once) free(w onceWord) bool {
	n := w.runner()
	return n == 0 || !o.a.Current(n) && o.a.Gone(n)
}

// spin spins while a process runs its function. It reports whether the function returned or the runner was removed.
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

// check is called ten times a second while a goroutine of this process waits. It detects that the process which
// runs the function has died. It also makes the wakes that a stopped or dead process did not make.
func (o *Once) check() {
	if w := o.load(); !w.done() && w.runner() != 0 && o.a.Dead(w.runner()) {
		o.reap(func(n arenakernel.ParticipantID) bool { return !o.a.Current(n) })
	}
	if w := o.load(); w.done() || w.runner() == 0 || !w.announced() {
		o.list.DeliverAll()
	}
}
