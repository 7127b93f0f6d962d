package prims

import "github.com/shmsync/shmsync"

const allSleepers = 1 << 30

// badUnlock is where an Unlock ends whose caller does not hold the lock. Who has a
// latch does hold it: a peer has overwritten the word, and the next one to come is
// told.
func (m *Mutex) badUnlock(o ownerWord) {
	if m.latch {
		return
	}
	if !o.valid() {
		panic(m.fail("mutex.unlock", shmsync.ErrCorrupt, nil, o.String()))
	}
	panic(m.named("shmsync: Unlock of mutex ") + ", which this process does not hold: it is " + o.String())
}
