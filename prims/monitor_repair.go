package prims

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var (
	_ = crashpoint.Register("monitor.reap.entered")
	_ = crashpoint.Register("monitor.reap.reclaimed")
	_ = crashpoint.Register("monitor.cleanup.entered")
)

// enterYields bounds how often a process that only cleans up yields before it gives up taking the
// queue lock. The holder of the queue lock may be preempted or stopped.
const enterYields = 20

// tryEnter takes the queue lock, and reports whether it did. It gives up if another process holds
// the lock for long. If the holder is dead, it takes the lock over.
func (m *monitor) tryEnter() bool {
	for tries := 0; ; tries++ {
		if m.queueLock.TryLock() {
			return true
		}
		if m.opening.ended.Load() {
			return false
		}
		if took, err := m.queueLock.inherit(ownerWord(m.queueLock.owner.Load())); took {
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

// sweep takes back what dead participants have. It takes the waits off the queues whose owners are
// dead or have given up, and then resolves the waits that can end. The caller holds the queue lock.
func (m *monitor) sweep(b *wakes) {
	crashpoint.Hit("monitor.reap.entered")
	m.deaths.Store(m.a.Deaths())
	m.unreaped.Store(false)
	m.rules.reap(m.absent)
	crashpoint.Hit("monitor.reap.reclaimed")
	m.rules.each(func(w wait) bool {
		if !m.waiting(w) {
			m.rules.detach(w)
			m.releaseNode(w)
		}
		return true
	})
	m.rules.resolve(b)
}

// absent reports whether n is a participant that is dead or has left.
func (m *monitor) absent(n arenakernel.ParticipantID) bool { return n != 0 && !m.current(n) }

// leaveAfter calls f with the queue lock held and then releases the lock. It releases the lock even
// if f runs a rule of a Waitable that ends the goroutine.
func (m *monitor) leaveAfter(f func(b *wakes)) {
	b, done := takeWakes(), false
	defer func() {
		if !done {
			m.rules.resolve(b)
		}
		m.leave(b)
	}()
	f(b)
	done = true
}

// cleanUp takes a wait that this process has given up off its queue, unless another process has
// taken it off already. It does not wait for the queue lock.
func (m *monitor) cleanUp(w abandoned) {
	if !m.tryEnter() {
		m.cleanUpLater()
		return
	}
	crashpoint.Hit("monitor.cleanup.entered")
	m.leaveAfter(func(b *wakes) {
		if w.Load() == w.word && w.Stamp().Load() == w.stamp && w.Object() == m.object.Offset {
			m.rules.detach(w.wait)
			m.releaseNode(w.wait)
			m.rules.resolve(b)
		}
	})
}

// cleanUpLater starts a goroutine that waits for the queue lock and then reaps. The handle may be
// closed meanwhile, but the object stays open.
func (m *monitor) cleanUpLater() {
	if m.cleaningUp.Swap(true) {
		return
	}
	q := m.queueLock.queue
	if !q.EnterLasting() {
		return
	}
	if !m.opening.stayIfOpen() {
		// The handle has ended, so the words may belong to another object by now. The next process
		// that takes the queue lock finds that the owner of the wait has given up.
		m.cleaningUp.Store(false)
		q.ExitLasting()
		return
	}
	go func() {
		defer q.ExitLasting()
		defer m.opening.leave()
		// m.enter would enter the queue once more. Then Close would wait for the queue lock, and so
		// for its holder, which may be stopped.
		err := m.queueLock.lockEntered(nil)
		m.cleaningUp.Store(false)
		if err == nil {
			m.leaveAfter(m.sweep)
		}
	}()
}

// check is called ten times a second while a goroutine of this process waits. It completes what
// another process has left undone: a dead process, a reaper that was stopped, or a waiter that gave
// up and was stopped. It also stores the date of the first wait in each queue; see dateFirsts.
func (m *monitor) check() {
	dead := false // a holder is marked dead; the process that marked it may have been stopped before it counted the death
	m.rules.holders(func(n arenakernel.ParticipantID) {
		if n != 0 && m.a.Dead(n) {
			dead = true
		}
	})
	switch {
	case dead || m.reapDue():
		if m.tryEnter() {
			m.leaveAfter(m.sweep)
		}
	case m.checks.Add(1)%resolveEvery == 0 && m.queueLock.TryLock():
		m.leaveAfter(m.rules.resolve)
	}
	m.dateFirsts()
}

// resolveEvery is a number of periodic checks: one check in so many resolves the waits that can
// end. It makes up for another process that gave up at the head of the queue, or changed the state,
// and was stopped before it resolved the waits.
const resolveEvery = 10

// repairMonitor takes back what the participant dead has in an object. It gives up if another
// process holds the queue lock for long, since that process may be stopped. Then the periodic check
// of a waiter, or the next call, repairs the object.
func repairMonitor(m *monitor, dead arenakernel.ParticipantID) {
	repairMutexWords(m.a, m.object, m.words.queueLock, dead, true)
	if dead == m.a.Self() { // this participant leaves; any other dead ID is not current, or belongs to a new participant
		m.without = dead
	}
	if m.tryEnter() {
		b := takeWakes()
		m.sweep(b)
		m.leave(b)
	}
}

// wakeMonitor makes the wakes of the queue lock that a dead process did not make. The arena itself
// wakes the owners of resolved nodes.
func wakeMonitor(a *arenakernel.Arena, o arenakernel.Object, off arenakernel.Offset, owed arenakernel.Owed) {
	if w, err := arenakernel.TryAt[mutexWords](a, off); err == nil {
		wakeMutexWords(a, w, owed)
	}
}

// reapIfDue reaps if a reap is due. The caller holds the queue lock.
func (m *monitor) reapIfDue(b *wakes) {
	if m.reapDue() {
		m.sweep(b)
	}
}

// reapDue reports whether a participant has died since the last reap, or was not gone at that
// reap.
func (m *monitor) reapDue() bool { return m.deaths.Load() != m.a.Deaths() || m.unreaped.Load() }

// wakeQueue is the Wake function of objects whose body begins with a monitor.
func wakeQueue(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	wakeMonitor(a, o, o.Body, owed)
}
