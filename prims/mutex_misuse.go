package prims

import "github.com/shmsync/shmsync"

const allSleepers = 1 << 30

// badUnlock ends an Unlock whose caller does not hold the lock. It returns for a queue lock: the
// library unlocks a queue lock only while it holds it, so a peer must have overwritten the word.
// The next caller that takes the queue lock gets the error.
func (m *Mutex) badUnlock(o ownerWord) {
	if m.queueLock {
		return
	}
	if !o.valid() {
		panic(m.fail("mutex.unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic(m.named("shmsync: Unlock of mutex ") + ", which this process does not hold: it is " + o.String())
}
