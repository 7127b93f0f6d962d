package prims

import "github.com/shmsync/shmsync"

// closed is the error of a call by a handle that is closed, or is being closed.
func (m *Mutex) closed() error {
	return m.fail("mutex.lock", shmsync.ErrClosed, nil, closedHandle)
}

// ended reports whether the handle is closed, and panics for a lock that the caller of
// the library uses. The library's own locks may have a call that is still under way.
func (m *Mutex) ended(verb string) bool {
	if !m.opening.ended.Load() {
		return false
	}
	if !m.queueLock && !m.inner {
		m.opening.misused(verb)
	}
	return true
}

// unlockBiased unlocks a hold that another handle of this process took, in a way that
// this one, which is Checked, does not. It reports false if o is no such hold.
func (m *Mutex) unlockBiased(o uint32) bool {
	if o != uint32(m.name)|ownerBiased {
		return false
	}
	if releaseBiased(wordPtr(m.owner), wordPtr(&m.words.wake)) {
		m.wakeAfter()
	}
	return true
}
