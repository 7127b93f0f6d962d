package prims

import "github.com/shmsync/shmsync/internal/race"

// tryLockSlow continues a TryLock whose first try has failed.
func (m *Mutex) tryLockSlow() bool {
	if m.ended("TryLock") {
		return false
	}
	for counted := false; ; {
		o := ownerWord(m.owner.Load())
		switch n := o.participant(); {
		case counted, n == 0, n == m.name:
		case m.a.Dead(n), o.kind() == kindReserved: // this call may be the first that finds the death
			// From here on, Close of the handle waits for this call. Otherwise, after step has taken the lock from
			// the dead process, the next holder could close the handle, which this call still uses.
			if !m.queue.Enter() {
				return false
			}
			defer m.queue.Exit()
			counted = true
		case o.valid() && o.held():
			return false // step would change nothing either
		}
		took, changed, _ := m.step(o, false)
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
