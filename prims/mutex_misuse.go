package prims

import "github.com/shmsync/shmsync"

const allSleepers = 1 << 30

// badUnlock is called by an Unlock that finds that this process does not hold the lock. It panics, except for the local
// lock of a CohortMutex. The library unlocks a local lock only while this process holds it. So if this process does not
// hold the local lock, a peer must have overwritten its owner word. The next caller that takes the local lock then gets
// an error.
func (m *Mutex) badUnlock(o ownerWord) {
	if m.localLock || m.inner && m.opening.ended.Load() { // the end of the opening releases an inner mutex
		return
	}
	if !o.valid() {
		panic(m.fail("mutex.unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic(m.named("shmsync: Unlock of mutex ") + ", which this process does not hold: it is " + o.String())
}
