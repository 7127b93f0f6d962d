package prims

import "github.com/shmsync/shmsync/internal/race"

// tryLockSlow continues a TryLock whose first try has failed.
func (m *Mutex) tryLockSlow() bool {
	if m.ended("TryLock") {
		return false
	}
	for {
		o := ownerWord(m.owner.Load())
		took, changed := m.tryStep(o)
		if took {
			race.Acquire(m.key)
			m.counts.holds(false)
			return true
		}
		if !changed {
			return false
		}
	}
}

// tryStep does what step does, for a call that is not counted. If step may take the lock from a dead process, the call
// counts itself, because the next holder may close the handle before step has returned.
func (m *Mutex) tryStep(o ownerWord) (took, changed bool) {
	if n := o.participant(); n != 0 && n != m.name && !m.a.Current(n) {
		if !m.queue.Enter() {
			return false, false
		}
		defer m.queue.Exit()
	}
	took, changed, _ = m.step(o, false)
	return took, changed
}
