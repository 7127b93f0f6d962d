package prims

import "github.com/shmsync/shmsync"

// closed returns the error for a call through a handle that is closed or is being closed.
func (m *Mutex) closed() error {
	return m.fail("mutex.lock", shmsync.ErrClosed, nil, closedHandle)
}

// ended reports whether the handle is closed. A call of a closed handle by a user is a mistake, so ended panics if
// m is a lock of a user. But the library itself may use its own locks in a call that began before the handle was
// closed.
func (m *Mutex) ended(verb string) bool {
	if !m.opening.ended.Load() {
		return false
	}
	if !m.inner {
		m.opening.misused(verb)
	}
	return true
}

// wakeOwed makes the wakes that calls of Unlock have left to the Close of their handle; see enterLate.
func (m *Mutex) wakeOwed() {
	if m.wakeWord.Announced() && ownerWord(m.owner.Load()).free() {
		m.wakeWord.Release()
	}
}

// unlockBiased unlocks a biased hold, that is, one that is released by a plain store. This handle has the option
// Checked and takes no biased holds, so another handle of this process took the hold. unlockBiased returns false if
// o is not the owner word of a biased hold of this process.
func (m *Mutex) unlockBiased(o uint32) bool {
	if o != uint32(m.name)|ownerBiased {
		return false
	}
	if releaseBiased(wordPtr(m.owner), wordPtr(&m.words.wake)) {
		m.wakeAfter()
	}
	return true
}
