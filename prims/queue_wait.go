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

// queueLook is the number of slots that a spinning waiter examines.
const queueLook = 64

// itemThere reports whether a Get may find an item now.
func (x *queueCore) itemThere(uint32) bool {
	if queueReturns(x.words.returned.Load()).some() {
		return true
	}
	f, ok := x.front()
	return !ok || f.s != nil
}

// roomThere reports whether a Put may find room now. It examines at most that many slots.
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

// tell wakes a waiter of a side, if one has announced itself: n items or places have come. A
// waiter that goes on wakes the next one, if there is more.
func (x *queueCore) tell(side *queueSide, n int) {
	if n > 0 && side.wake.Announced() {
		x.counts.add(countWake)
		x.tuning(side).NoteCPU() // a waiter may look for this CPU
		side.release()
	}
}

// await calls try until it is done or fails, and sleeps in between.
//
//	a waiter                           a Put, for those that wait for an item; a Get for room
//	word: announced                    the ring, by CAS
//	the ring: is there something?      word: is a waiter announced?
//	sleep while the word is unchanged  if so, change the word and wake one
//
// At least one of the two finds what the other wrote. The change of the word clears the announcement. So the
// waiter that was woken announces the others again, and wakes the next one if there is more. If that waiter is
// stopped, or if it dies, periodic checks or reaping wake the others.
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
	for waits, announced, slept := false, false, false; ; {
		if done, err := try(); done || err != nil {
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
			continue // something may have come since the last check
		}
		crashpoint.Hit("queue.wait.announced")
		x.counts.add(countSleep)
		announced, slept = false, true
		if since == 0 {
			since = shmsync.Monotonic()
		}
		switch ended := side.queue.Sleep(uint32(word), park.SleepSpec{Since: since}, &cancel); ended {
		case park.Again:
			crashpoint.Hit("queue.wait.woken")
		case park.Canceled, park.Closed:
			x.pass(side) // a wake may have come for this waiter
			if ended == park.Closed {
				return x.closed(op)
			}
			return cancel.Err()
		}
	}
}

// awaitItem waits for an item, which it takes as k says and gives to use. use reports false if the
// item was taken back, since this process has left.
func (x *queueCore) awaitItem(ctx context.Context, k queueSlotKind, use func(queueItemTaken) bool) error {
	return x.await(ctx, &x.items, "queue.get", func() (bool, error) {
		// The flag comes before the ring: a Put that comes later sees the flag.
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

// pass is the last step of a waiter that may have been woken. The wake has cleared the
// announcement, and others may still sleep.
func (x *queueCore) pass(side *queueSide) {
	side.wake.Announce()
	crashpoint.Hit("queue.wait.passed")
	if side.there(x.slots) || x.stopped() {
		side.release()
	}
}

// release wakes a waiter, if one has announced itself.
func (side *queueSide) release() {
	if side.queue == nil {
		side.wake.Release()
		return
	}
	side.queue.ReleaseAsOne(&side.wake)
}

// check is called ten times a second while a goroutine of this process waits. It does what a stopped or dead
// process left undone.
func (x *queueCore) check(side *queueSide) {
	x.checkSlots()
	w := x.words
	sum := w.head.Load()*3 + w.tail.Load()*5 + w.returned.Load()*7 + 1
	moved := side.looked.Swap(sum) != sum
	if !moved {
		x.heal() // a peer may have written the hints
	}
	switch {
	case x.stopped():
		side.wake.WakeAll()
	case !side.there(x.slots):
	case moved:
		side.wake.WakeOne()
	default:
		// Since the last check nothing has moved: the waiters that were woken are stopped.
		side.wake.WakeAll()
	}
}

// checkMost is the number of slots that a periodic check examines.
const checkMost = 4096

// checkSlots finds participants that died, and items that came back without a message to the Gets. It also
// dates leases.
func (x *queueCore) checkSlots() {
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
			x.slot(i).state.CompareAndSwap(uint64(st), 0) // a peer wrote it
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
