package prims

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// This file estimates, for tools, how long a key of a MultiLock has been held. (recordQueue.dateFirst does the same
// for a FairMutex and a Semaphore.) A MultiLock serves its waits strictly in order. So no process can have got the
// key since the present first wait became the first, and the hold is at least as old. Design note 47 has the
// argument.
//
// Neither a lock nor a grant reads the clock for this purpose. Instead, the periodic check of a waiter's process
// stores the time at which it found a wait to be first. That time is called the date of the wait, and is stored in
// the upper half of the node's outcome, the part called aux.

// inOrder is implemented by the rules of a monitor that serves its waits strictly in order.
type inOrder interface {
	// undated reports whether the first wait of some queue has no date yet. The caller does not hold the queue
	// lock, so the answer may be wrong.
	undated() bool
	// firsts calls f for the first wait of each queue, with the offset of its node. The caller holds the queue
	// lock.
	firsts(f func(off arenakernel.Offset))
}

// dateFirsts stores the present time as the date of each wait that is first in its queue, if the
// rules serve waits in order. It does not wait for the queue lock.
func (m *monitor) dateFirsts() {
	r, ok := m.rules.(inOrder)
	if !ok || !r.undated() || !m.queueLock.TryLock() {
		return
	}
	date := uint64(firstDate(shmsync.Monotonic())) << 32
	r.firsts(func(off arenakernel.Offset) {
		if w, ok := m.node(off); ok && m.undated(off) {
			w.Extra().Store(w.Extra().Load() | date)
		}
	})
	m.leave(nil)
}

// undated reports whether the wait at off has no date yet. The caller need not hold the queue lock; without it, the
// answer may be wrong.
func (m *monitor) undated(off arenakernel.Offset) bool {
	if off == 0 {
		return false
	}
	n, err := m.a.NodeAt(off)
	return err == nil && n.Object() == m.object.Offset && queued(n.Load()) && outcome(n.Extra().Load()).aux() == 0
}

// firstDate converts a CLOCK_MONOTONIC time in ns to a date. A date is in milliseconds modulo 2^32, rounded up. It
// is never 0, because 0 means that there is no date.
func firstDate(ns int64) uint32 { return max(uint32(ns/int64(time.Millisecond)+1), 1) }

// firstSince converts the date of a first wait to a CLOCK_MONOTONIC time in ns, or to 0 if that time is unknown.
// The caller read the time now after the date was stored. Dates wrap around after 2^32 ms. A date more than 2^31 ms
// old looks like a date in the future, so the result is 0. A date more than 2^32 ms old looks like a later date. So
// the result is never earlier than the true date.
func firstSince(date uint32, now int64) int64 {
	ms := now/int64(time.Millisecond) + 1
	age := int32(uint32(ms) - date)
	if date == 0 || age < -1 { // -1: firstDate rounds up, and skips 0
		return 0
	}
	return (ms - int64(age)) * int64(time.Millisecond)
}

// dateBy sets the start of the given holds to the date of w, the first wait of its queue, and reports whether w has
// a date. The caller read the holds before w. No hold can have begun since w became the first wait, so the holds
// are at least as old as the date.
func (i *inspection) dateBy(w *arenakernel.Wait, holds []int) bool {
	n, err := i.a.NodeAt(w.Node)
	if err != nil {
		return false
	}
	s, end := n.Load(), outcome(n.Extra().Load())
	same := n.Object() == i.o.Offset && n.Stamp().Load() == w.Stamp && n.Owner() == w.Owner && n.Wanted().Load() == *w.Want
	if end.result() != 0 || !queued(s) || !same || n.Load() != s {
		return false // the wait has ended or is about to end, so the part aux may have another meaning
	}
	since := firstSince(end.aux(), i.a.Now())
	for _, h := range holds {
		if x := &i.Holds[h]; since != 0 && x.Since == 0 {
			x.Since, x.AtLeast = since, true
		}
	}
	return since != 0
}

func (q *fifo) undated() bool { return q.m.undated(arenakernel.Offset(q.words.first.Load())) }

func (q *fifo) firsts(f func(off arenakernel.Offset)) { f(arenakernel.Offset(q.words.first.Load())) }

func (k *multiBucket) undated() (found bool) {
	look := func(e keyEntry) {
		if !e.hold().free() {
			found = found || k.mon.undated(links(e.queue.Load()).next())
		}
	}
	for i := range k.words.entries {
		look(inlineEntry(&k.words.entries[i]))
	}
	k.peekSpilled(look)
	return found
}

func (k *multiBucket) firsts(f func(off arenakernel.Offset)) {
	k.eachEntry(func(e keyEntry) {
		if e.waitedFor() {
			f(links(e.queue.Load()).next())
		}
	})
}
