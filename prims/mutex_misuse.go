package prims

import "github.com/shmsync/shmsync"

const allSleepers = 1 << 30

// badUnlock ends an Unlock whose caller does not hold the lock. The library holds each
// queue lock that it unlocks. So a peer has overwritten the word of such a queue lock, and the next
// caller to take it is told.
func (m *Mutex) badUnlock(o ownerWord) {
	if m.queueLock {
		return
	}
	if !o.valid() {
		panic(m.fail("mutex.unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic(m.named("shmsync: Unlock of mutex ") + ", which this process does not hold: it is " + o.String())
}
