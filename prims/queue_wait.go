package prims

import (
	"context"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/park"
)

var (
	_ = crashpoint.Register("queue.wait.announced")
	_ = crashpoint.Register("queue.wait.woken")
	_ = crashpoint.Register("queue.wait.passed")
)

// queueLook bounds how many slots a waiter examines each time it checks the Queue while it spins.
const queueLook = 64

// itemThere reports whether a Get may find an item now.
func (x *queueCore) itemThere(uint32) bool {
	if queueReturns(x.words.returned.Load()).some() {
		return true
	}
	f, ok := x.front()
	return !ok || f.s != nil
}

// roomThere reports whether a Put may find room now. The argument most bounds how many slots roomThere examines.
func (x *queueCore) roomThere(most uint32) bool {
	p, _, ok := x.next()
	if !ok {
		return true // the Put finds the error
	}
	if full, ok := x.full(p); !ok || full {
		return !ok
	}
	i := uint32(p-x.firstPosition())%x.slots + 1
	for range min(most, x.slots) {
		if x.slot(i).state.Load() == 0 {
			return true
		}
		if i++; i > x.slots {
			i = 1
		}
	}
	return false
}

// done is the last step of a call that has put or taken n items. n is 0 if the call has only freed a slot. done wakes a
// waiter of the given side, if one has announced itself.
//
// Close does not wait for a call that has already taken effect. So another goroutine that has seen the effect may
// close the handle and delete the object. Therefore done first makes Close wait, and only then writes into the words.
// If the handle is already closed, its Close has made the wake; see the method wakeLast.
func (x *queueCore) done(side *queueSide, n int) {
	if x.counts != nil || side.wake.Announced() {
		x.doneCounted(side, n)
	}
}

func (x *queueCore) doneCounted(side *queueSide, n int) {
	call, ok := x.opening.tryServe(side.queue)
	if !ok {
		return
	}
	defer call.end()
	for range n {
		x.counts.took()
	}
	x.tell(side, 1)
}

// wakeLast makes the wakes of calls that have found the handle closed; see the method done. Close calls it when all
// calls of this process have taken effect, so wakeLast finds the items or the room that the wakes are for.
func (x *queueCore) wakeLast() {
	for _, side := range []*queueSide{&x.items, &x.room} {
		if side.wake.Announced() && (side.there(x.slots) || x.stopped()) {
			side.wake.WakeAll()
		}
	}
}

// tell wakes a waiter of the given side, if one has announced itself. n is the number of new items or of new places for
// items; if n is 0, tell does nothing. One wake is enough, because the woken waiter wakes the next one if there are
// further items or places.
func (x *queueCore) tell(side *queueSide, n int) {
	if n > 0 && side.wake.Announced() {
		x.counts.add(countWake)
		x.tuning(side).NoteCPU() // a hint for waiters that spin
		side.release()
	}
}

// await calls the function try until try returns true or an error, and sleeps in between. No wake is lost. The table
// shows a wait for an item. In a wait for room, a Get takes the steps of the Put:
//
//	a waiter                           a Put
//	word: announced                    the ring, by CAS
//	the ring: is there an item?        word: is a waiter announced?
//	sleep while the word is unchanged  if so, change the word and wake one
//
// So the waiter finds the change of the ring, or the Put finds the announcement. When the Put changes the word, it
// clears the announcement of all waiters. So the woken waiter announces the waiters that still sleep, and wakes the
// next of them if there are further items or places; see the method pass. If the woken waiter is stopped or dies, the
// periodic checks or the recovery after the death wake the remaining waiters.
//
// A waiter whose context has ended, or whose handle is being closed, tries once more: an item or a place that came
// first takes precedence over the end of the wait.
func (x *queueCore) await(ctx context.Context, side *queueSide, op string, try func() (bool, error)) error {
	if err := x.opening.error(op); err != nil {
		return err
	}
	if !side.queue.Enter() {
		return x.closed(op)
	}
	defer side.queue.Exit()
	cancel := park.CancelBy(ctx)
	defer cancel.Stop()
	var word park.Word
	var since int64
	ended := park.Again
	for waits, announced, slept := false, false, false; ; {
		done, err := try()
		switch {
		case done || err != nil:
		case ended == park.Closed:
			err = x.closed(op)
		case ended == park.Canceled:
			err = cancel.Err()
		}
		if done || err != nil {
			// This waiter may have used up a wake that another waiter needs.
			if slept {
				x.pass(side)
			}
			return err
		}
		switch {
		case !waits:
			waits = true
			x.counts.add(countContended)
			if x.tuning(side).Spin(func() bool { return side.there(queueLook) || x.stopped() }) {
				x.counts.add(countSpin)
			}
			continue
		case !announced:
			word, announced = side.wake.Announce(), true
			continue // an item or a place may have come since the last try
		}
		crashpoint.Hit("queue.wait.announced")
		x.counts.add(countSleep)
		announced, slept = false, true
		if since == 0 {
			since = shmsync.Monotonic()
		}
		if ended = side.queue.Sleep(uint32(word), park.SleepSpec{Since: since}, &cancel); ended == park.Again {
			crashpoint.Hit("queue.wait.woken")
		}
	}
}

// awaitItem waits for an item, takes it, and calls the function use with it. The parameter k says whether the call is a
// Get or a Lease. The function use returns false if the item was put back because this process has left the arena.
func (x *queueCore) awaitItem(ctx context.Context, k queueSlotKind, use func(queueItemTaken) bool) error {
	return x.await(ctx, &x.items, "queue.get", func() (bool, error) {
		// Read the shutdown flag before the ring. If the flag is set now, a Put that fills the ring later sees it,
		// too, and retracts its item.
		stopped := x.stopped()
		if k == queueLeased {
			x.deviate()
		}
		t, ok := x.take(k)
		switch {
		case !ok:
			return false, x.corrupt("queue.get")
		case t.s != nil:
			if !use(t) {
				return false, x.closed("queue.get")
			}
			x.counts.took()
			return true, nil
		case stopped:
			return false, x.canceled("queue.get")
		}
		return false, nil
	})
}

// pass is called by a waiter that stops waiting, and that may have been woken. A wake has cleared the announcement,
// so pass announces the waiters that may still sleep. It also wakes the next waiter if there is an item or room for
// it.
func (x *queueCore) pass(side *queueSide) {
	side.wake.Announce()
	crashpoint.Hit("queue.wait.passed")
	if side.there(x.slots) || x.stopped() {
		side.release()
	}
}

// release wakes a waiter of this side, if one has announced itself.
func (side *queueSide) release() {
	if side.queue == nil {
		side.wake.Release()
		return
	}
	side.queue.ReleaseAsOne(&side.wake)
}

// check is called ten times a second while a goroutine of this process waits. It makes the wakes that a stopped
// or dead process did not make.
func (x *queueCore) check(side *queueSide) {
	x.checkSlots()
	w := x.words
	sum := w.head.Load()*3 + w.tail.Load()*5 + w.returned.Load()*7 + 1
	moved := side.looked.Swap(sum) != sum
	if !moved {
		x.heal() // a peer may have overwritten the hints
	}
	switch {
	case x.stopped():
		side.wake.WakeAll()
	case !side.there(x.slots):
	case moved:
		side.wake.WakeOne()
	default:
		// Nothing has changed since the last check, so the waiters that were woken are probably stopped.
		side.wake.WakeAll()
	}
}

// checkTry is called by a TryPut, TryGet or TryLease that has found no room or no item. If the last call of checkTry is
// long enough ago, it takes back the slots of dead participants. It then calls the given function, which repeats the
// try. Close waits until checkTry has returned. See tryCheck.
func (x *queueCore) checkTry(side *queueSide, again func()) {
	if !x.tried.due() {
		return
	}
	if call, ok := x.opening.tryServe(side.queue); ok {
		defer call.end()
		x.checkSlots()
		again()
	}
}

// checkMost is how many slots one periodic check examines.
const checkMost = 4096

// checkSlots examines some of the slots, and completes what other processes have left undone. It takes back the slots
// of dead participants. If an item was put back and the bit in queueReturns is not set, checkSlots sets it.
// checkSlots stores a date in each lease that has none. It examines all notes of returns each time; see
// queueReturning.
func (x *queueCore) checkSlots() {
	x.checkReturning()
	last, dead := x.name, false
	untold := false
	used := x.used()
	for range min(used, checkMost) {
		i := x.watched.Add(1)%used + 1
		st := queueState(x.slot(i).state.Load())
		switch {
		case st.kind() == queueReturned:
			untold = true
		case st.kind() == queueLeased:
			x.slot(i).dateLease()
		case !st.valid():
			x.slot(i).state.CompareAndSwap(uint64(st), 0) // only a peer that breaks the rules writes such a state
		}
		if n := st.participant(); n != 0 && n != last && (st.kind() != queueFull || !x.published(i, st)) {
			last = n
			dead = x.a.Dead(n) || dead
		}
	}
	if untold && !queueReturns(x.words.returned.Load()).some() {
		x.tellReturned()
	}
	if dead {
		x.reap(0)
	}
}
