package prims

import "github.com/shmsync/shmsync"

const allSleepers = 1 << 30

// badUnlock ends an Unlock whose caller does not hold the lock. The library unlocks a queue lock
// only while it holds it. So if this is a queue lock, a peer has overwritten its word, and the next
// caller that takes the lock gets the error.
func (m *Mutex) badUnlock(o ownerWord) {
	if m.queueLock {
		return
	}
	if !o.valid() {
		panic(m.fail("mutex.unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic(m.named("shmsync: Unlock of mutex ") + ", which this process does not hold: it is " + o.String())
}
