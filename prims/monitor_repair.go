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

// enterYields bounds how often a process that only cleans up yields while another process holds the queue lock.
// Then it gives up, because the holder may be stopped for long.
const enterYields = 20

// tryEnter tries to take the queue lock, and reports whether it did. It gives up if another living process holds
// the lock for long. If the holder is dead, tryEnter takes the lock over.
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

// sweep takes back what dead participants have. It removes from the queues the waits of owners that are dead or
// have given up, and then resolves the waits that can end. The caller holds the queue lock.
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

// absent reports whether n was a participant that is now dead or has left.
func (m *monitor) absent(n arenakernel.ParticipantID) bool { return n != 0 && !m.current(n) }

// leaveAfter calls f with the queue lock held and then releases the lock. It releases the lock even if f runs code
// of a user's Waitable that ends the goroutine.
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

// cleanUp takes the wait w, which this process has given up, off its queue. It does nothing if another process has
// taken the wait off already. It does not wait for the queue lock.
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

// cleanUpLater starts a goroutine that waits for the queue lock and then cleans up after dead participants. The
// handle may be closed meanwhile, but the memory of the object stays in use.
func (m *monitor) cleanUpLater() {
	if m.cleaningUp.Swap(true) {
		return
	}
	q := m.queueLock.queue
	if !q.EnterLasting() {
		return
	}
	if !m.opening.stayIfOpen() {
		// The handle has ended, so the words may belong to another object by now. If they still belong to this
		// object, the next process that takes the queue lock finds that the owner of the wait has given up.
		m.cleaningUp.Store(false)
		q.ExitLasting()
		return
	}
	go func() {
		defer q.ExitLasting()
		defer m.opening.leave()
		// The method enter would count this call among those for which Close waits. Then Close would wait for the
		// queue lock, and so for its holder, which may be stopped.
		err := m.queueLock.lockEntered(nil)
		m.cleaningUp.Store(false)
		if err == nil {
			m.leaveAfter(m.sweep)
		}
	}()
}

// check is called ten times a second while a goroutine of this process waits. It completes what another process has
// left undone, because that process died, or was stopped while it recovered an object, or was stopped after it gave
// up its wait.
func (m *monitor) check() {
	dead := false // a holder is marked dead, although the death may not have been counted yet
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
}

// resolveEvery is a number of periodic checks: every tenth check resolves the waits that can end. That is necessary
// because another process may have changed the state, or given up as the first wait, and then have been stopped
// before it resolved the waits.
const resolveEvery = 10

// reapDue reports whether rules.reap has to be called. That is so if a participant has died since its last call, or
// if that call had to leave something of a dead participant.
func (m *monitor) reapDue() bool { return m.deaths.Load() != m.a.Deaths() || m.unreaped.Load() }

// wakeQueue wakes waiters for the queue lock that a dead process did not wake. The monitor is at the beginning of the
// body of o. The argument owed says which wakes may be missing. The arena itself wakes the owners of resolved nodes.
func wakeQueue(a *arenakernel.Arena, o arenakernel.Object, owed arenakernel.Owed) {
	if w, err := arenakernel.TryAt[mutexWords](a, o.Body); err == nil {
		wakeMutexWords(a, w, owed)
	}
}
