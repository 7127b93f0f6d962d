package prims

import (
	"runtime"
	"time"

	"github.com/shmsync/shmsync"
)

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

// endPolls is how often the end of an opening looks for calls that have a queue lock, once a
// millisecond. A peer that overwrites the queue lock keeps it no longer than that.
const endPolls = 1000

// awaitCalls waits until no call of this process has m, a queue lock whose opening has ended, nor
// counts itself. A call counts itself while it waits, and while it wakes the waiters that
// it let go, but not for the few instructions for which it has a free queue lock.
//
//	a call                          the end of the opening
//	------                          ----------------------
//	takes the queue lock            the opening has ended, the fast paths have lost the words
//	counts itself                   no call is counted?
//	unlocks the queue lock          the queue lock is not this process's?
//	wakes, counts itself off        no call is counted?
//
// The second look finds a call that was before its unlocking at the first, and the third one a
// call that was before it at the second.
func (m *Mutex) awaitCalls() {
	for p := m.opening; !m.unused(); p.polls++ {
		switch {
		case p.polls >= endPolls:
			return
		case p.polls < 10:
			runtime.Gosched()
		default:
			time.Sleep(time.Millisecond)
		}
	}
}

func (m *Mutex) unused() bool {
	if !m.queue.Empty() {
		return false
	}
	o := ownerWord(m.owner.Load())
	return !(o.held() && o.participant() == m.name) && m.queue.Empty()
}
