package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("monitor.sweep.entered")
	_ = crashpoint.Register("monitor.sweep.buried")
	_ = crashpoint.Register("monitor.tidy.entered")
)

// enterYields is how often who only tidies lets others run before it gives up on
// the latch: its holder may be preempted or stopped.
const enterYields = 20

// tryEnter takes the latch if that does not take long. It deals with a dead holder.
func (m *monitor) tryEnter() bool {
	for tries := 0; ; tries++ {
		if m.latch.TryLock() {
			return true
		}
		if m.opening.ended.Load() {
			return false
		}
		if took, err := m.latch.inherit(ownerWord(m.latch.owner.Load())); took {
			return true
		} else if err != nil || tries > enterYields {
			return false
		}
		if tries < enterYields/2 {
			asm.Pause(64)
		} else {
			shmsync.Yield()
		}
	}
}

// sweep takes back what the dead have, and the waits that nobody is there for, with
// the latch held.
func (m *monitor) sweep(b *wakes) {
	crashpoint.Hit("monitor.sweep.entered")
	m.deaths.Store(m.a.Deaths())
	m.unsettled.Store(false)
	m.rules.bury(m.absent)
	crashpoint.Hit("monitor.sweep.buried")
	m.rules.each(func(w wait) bool {
		if !m.waiting(w) {
			m.rules.detach(w)
			m.drop(w)
		}
		return true
	})
	m.rules.settle(b)
}

// absent reports whether a participant is dead, or has left.
func (m *monitor) absent(n arena.Name) bool { return n != 0 && !m.current(n) }

// leaveAfter calls f with the latch held and then leaves, even if a rule of a Waitable
// that f runs ends the goroutine.
func (m *monitor) leaveAfter(f func(b *wakes)) {
	b, done := takeWakes(), false
	defer func() {
		if !done {
			m.rules.settle(b)
		}
		m.leave(b)
	}()
	f(b)
	done = true
}

// tidy takes a wait off that this process has given up, unless somebody has done
// that. It does not wait for the latch.
func (m *monitor) tidy(w left) {
	if !m.tryEnter() {
		m.tidyLater()
		return
	}
	crashpoint.Hit("monitor.tidy.entered")
	m.leaveAfter(func(b *wakes) {
		if w.Load() == w.word && w.Stamp().Load() == w.stamp && w.Object() == m.object.Offset {
			m.rules.detach(w.wait)
			m.drop(w.wait)
			m.rules.settle(b)
		}
	})
}

// tidyLater has a goroutine wait for the latch, and sweep. The handle may be closed
// meanwhile; the object stays open.
func (m *monitor) tidyLater() {
	if m.tidying.Swap(true) {
		return
	}
	q := m.latch.queue
	if !q.EnterLasting() {
		return
	}
	m.opening.stay()
	go func() {
		defer q.ExitLasting()
		defer m.opening.leave()
		// Not enter, which enters the queue once more: Close would wait for the latch,
		// and so for whoever is stopped with it.
		err := m.latch.lockEntered(nil)
		m.tidying.Store(false)
		if err == nil {
			m.leaveAfter(m.sweep)
		}
	}()
}

// look is called ten times a second while a goroutine of this process waits. It
// finds what a death, a stopped undertaker, or one that gave up and was stopped has
// left.
func (m *monitor) look() {
	m.rules.holders(func(n arena.Name) {
		if n != 0 {
			m.a.Dead(n)
		}
	})
	switch {
	case m.sweepDue():
		if m.tryEnter() {
			m.leaveAfter(m.sweep)
		}
	case m.looks.Add(1)%settleEvery == 0 && m.latch.TryLock():
		m.leaveAfter(m.rules.settle)
	}
}

// settleEvery is at every how manieth look a waiter's process serves the queue: who
// has given up at its head, or has changed the state, may be stopped.
const settleEvery = 10

// repairMonitor takes back what dead has of an object. Who holds its latch for long
// may be stopped: then those who wait do it when they look, or the next call.
func repairMonitor(m *monitor, dead arena.Name) {
	repairMutexWords(m.a, &m.words.latch, dead, true)
	m.without = dead
	if m.tryEnter() {
		b := takeWakes()
		m.sweep(b)
		m.leave(b)
	}
}

// wakeMonitor makes up for wakes that a death swallowed. Those of resolved nodes
// the arena does.
func wakeMonitor(a *arena.Arena, o arena.Object, off arena.Offset, owed arena.Owed) {
	if w, err := arena.TryAt[monitorWords](a, off); err == nil {
		wakeMutexWords(a, &w.latch, owed)
	}
}

// sweepDead sweeps, with the latch held, if that is due.
func (m *monitor) sweepDead(b *wakes) {
	if m.sweepDue() {
		m.sweep(b)
	}
}

// sweepDue reports whether somebody has died since the last sweep, or was not gone then.
func (m *monitor) sweepDue() bool { return m.deaths.Load() != m.a.Deaths() || m.unsettled.Load() }

// wakeQueue is the Wake of objects that begin with a monitor.
func wakeQueue(a *arena.Arena, o arena.Object, owed arena.Owed) { wakeMonitor(a, o, o.Body, owed) }

// describeMonitor renders the part of an object that the monitor is.
func describeMonitor(m *monitor) string { return describeMonitorWords(m.a, m.object, m.words) }

func describeMonitorWords(a *arena.Arena, o arena.Object, w *monitorWords) string {
	s := fmt.Sprintf("; latch %v, %d arrivals, redo %d, accounted %d",
		ownerWord(w.latch.owner.Load()), w.arrivals.Load(), w.redone.Load(), w.accounted.Load())
	count := 0
	a.EachNode(o.Offset, func(off arena.Offset, n *arena.Node) {
		if count++; count <= describeMost {
			s += fmt.Sprintf("; node %v of %v: %v, stamp %d, wanted %d, extra %#x", off, n.Owner(), n.Load(), n.Stamp().Load(), n.Wanted().Load(), n.Extra().Load())
		}
	})
	if count > describeMost {
		s += fmt.Sprintf("; and %d more", count-describeMost)
	}
	return s
}

// describeMost is how many waits a description tells of.
const describeMost = 8
