package prims

import (
	"time"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// This file estimates, for tools, how long a FairMutex, permits of a Semaphore, or a key of a MultiLock have been
// held. These objects serve their waits strictly in order. While a wait is the first one, no other process gets the
// lock. So the present holds began before the present first wait became the first. Design note 47 has the argument.
//
// Neither a lock nor a grant reads the clock for this purpose. Instead, when the periodic check of a waiter's process
// finds that a wait is the first, it stores the time in the word stamp of the node; see recordQueue.dateFirst. That
// time is called the date of the wait.

// firstDate converts a CLOCK_MONOTONIC time in ns to a date. A date is in milliseconds modulo 2^32, rounded up. It
// is never 0, because 0 means that there is no date.
func firstDate(ns int64) uint32 { return max(uint32(ns/int64(time.Millisecond)+1), 1) }

// firstSince converts the date of a first wait to a CLOCK_MONOTONIC time in ns, or to 0 if that time is unknown. The
// parameter now is a time that the caller read after the date was stored. Dates wrap around after 2^32 ms. If a date is
// more than 2^31 ms old, it looks like a date in the future, and the result is 0. If it is more than 2^32 ms old, it
// looks younger than it is. So the result is never earlier than the true time.
func firstSince(date uint32, now int64) int64 {
	ms := now/int64(time.Millisecond) + 1
	age := int32(uint32(ms) - date)
	if date == 0 || age < -1 { // -1 is valid, because firstDate returns 1 instead of 0
		return 0
	}
	return (ms - int64(age)) * int64(time.Millisecond)
}

// dateByStamp dates each of the given holds that has no date yet. The date is the time at which the first wait in the
// queue of the object became the first. The holds had begun before that time.
func (i *inspection) dateByStamp(holds []int) {
	for k := range i.Waits {
		if w := &i.Waits[k]; inQueue(w) && i.dateByWait(w, holds) {
			return
		}
	}
}

// dateByWait does what dateByStamp does, for the given wait w, the first one of a queue. The caller reads the holds
// before this call. The result is false if w has ended, or is about to end, because its stamp may then be something
// other than a date.
func (i *inspection) dateByWait(w *arenakernel.Wait, holds []int) bool {
	n, err := i.a.NodeAt(w.Node)
	if err != nil {
		return false
	}
	s, stamp := n.Load(), n.Stamp().Load()
	same := n.Object() == i.o.Offset && arenakernel.RecordedNumber(stamp) == w.Stamp && n.Owner() == w.Owner && n.Wanted().Load() == *w.Want
	if !same || !queued(s) || !queuedValue(valueIn(n.Next())) || n.Load() != s {
		return false
	}
	since := firstSince(uint32(stamp), i.a.Now())
	for _, h := range holds {
		if x := &i.Holds[h]; since != 0 && x.Since == 0 {
			x.Since, x.AtLeast = since, true
		}
	}
	return true
}
