package prims

import (
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// This file dates the holds of locks whose waits are served strictly in order: FairMutex,
// MultiLock and Semaphore. No process gets such a lock while a wait is first in its queue. So
// each hold is at least as old as the time for which the present first wait has been first.
// Design note 47 has the argument.
//
// The periodic check of a waiter's process writes that time into the node of the first wait, as
// the aux part of its outcome. Neither a lock nor a grant reads the clock.

// inOrder is implemented by the rules of a monitor whose waits are served strictly in order.
type inOrder interface {
	// undated reports whether the first wait of a queue seems to have no date. It is called
	// without the queue lock.
	undated() bool
	// firsts calls f for the first wait of each queue. The queue lock is held.
	firsts(f func(w wait))
}

// dateFirsts dates the waits that are first in their queues, if the rules serve them in order. It
// does not wait for the queue lock.
func (m *monitor) dateFirsts() {
	r, ok := m.rules.(inOrder)
	if !ok || !r.undated() || !m.queueLock.TryLock() {
		return
	}
	date := uint64(firstDate(shmsync.Monotonic())) << 32
	r.firsts(func(w wait) {
		if f := w.Extra().Load(); queued(w.Load()) && outcome(f).aux() == 0 {
			w.Extra().Store(f | date)
		}
	})
	m.leave(nil)
}

// undated reports whether the wait at off seems to have no date. It works without the queue lock.
func (m *monitor) undated(off arenakernel.Offset) bool {
	if off == 0 {
		return false
	}
	n, err := m.a.NodeAt(off)
	return err == nil && n.Object() == m.object.Offset && queued(n.Load()) && outcome(n.Extra().Load()).aux() == 0
}

// firstDate is the date of a first wait: milliseconds of CLOCK_MONOTONIC modulo 2^32, rounded up,
// and never 0.
func firstDate(ns int64) uint32 { return max(uint32(ns/int64(time.Millisecond)+1), 1) }

// firstSlack is how much earlier than its first sleep a wait may be dated: another process may
// find it first in its queue while it spins.
const firstSlack = uint32(time.Minute / time.Millisecond)

// firstSince converts a date of a wait that first slept at since, CLOCK_MONOTONIC ns, to
// CLOCK_MONOTONIC ns.
func firstSince(date uint32, since int64) int64 {
	from := uint32(since/int64(time.Millisecond)) - firstSlack
	later := int64(date-from) - int64(firstSlack)
	return (since/int64(time.Millisecond) + later) * int64(time.Millisecond)
}

// dateByFirst adds to the given holds a date at which they had begun: the date of the chosen
// waits that is first in its queue.
func (i *inspection) dateByFirst(holds []int, chosen func(w *arenakernel.Wait) bool) {
	for k := range i.Waits {
		w := &i.Waits[k]
		if w.Want == nil || w.Node == 0 || w.Since == 0 || !chosen(w) {
			continue
		}
		n, err := i.a.NodeAt(w.Node)
		if err != nil {
			continue
		}
		date := outcome(n.Extra().Load()).aux()
		if s := n.Load(); date == 0 || !queued(s) || n.Stamp().Load() != w.Stamp || n.Owner() != w.Owner || n.Load() != s {
			continue
		}
		for _, h := range holds {
			if x := &i.Holds[h]; x.Since == 0 {
				x.Since, x.AtLeast = firstSince(date, w.Since), true
			}
		}
		return
	}
}

func (q *fifo) undated() bool { return q.m.undated(arenakernel.Offset(q.words.first.Load())) }

func (q *fifo) firsts(f func(w wait)) {
	if w, ok := q.head(); ok {
		f(w)
	}
}

func (f *FairMutex) undated() bool         { return f.fifo.undated() }
func (f *FairMutex) firsts(g func(w wait)) { f.fifo.firsts(g) }
func (s *Semaphore) undated() bool         { return s.fifo.undated() }
func (s *Semaphore) firsts(g func(w wait)) { s.fifo.firsts(g) }

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

func (k *multiBucket) firsts(f func(w wait)) {
	k.eachEntry(func(e keyEntry) {
		if w, ok := k.head(e); ok {
			f(w)
		}
	})
}
