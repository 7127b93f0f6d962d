package prims

import (
	"runtime"
	"time"

	"github.com/shmsync/shmsync"
)

// closed returns the error for a call through a handle that is closed or is being closed.
func (m *Mutex) closed() error {
	return m.fail("mutex.lock", shmsync.ErrClosed, nil, closedHandle)
}

// ended reports whether the handle is closed. If it is closed and m is a lock of a user, ended panics, because to
// call a closed handle is a mistake. A lock that the library itself uses may still be used by a call that began
// before the handle was closed.
func (m *Mutex) ended(verb string) bool {
	if !m.opening.ended.Load() {
		return false
	}
	if !m.queueLock && !m.inner {
		m.opening.misused(verb)
	}
	return true
}

// unlockBiased unlocks a biased hold, that is, one that is released by a plain store. Another handle of this
// process took the hold; this handle has the option Checked and takes no biased holds. unlockBiased returns false
// if o is not the owner word of a biased hold of this process.
func (m *Mutex) unlockBiased(o uint32) bool {
	if o != uint32(m.name)|ownerBiased {
		return false
	}
	if releaseBiased(wordPtr(m.owner), wordPtr(&m.words.wake)) {
		m.wakeAfter()
	}
	return true
}

// endPolls is how often awaitCalls checks whether calls still hold a queue lock. It checks about once a
// millisecond. So a peer that overwrites the queue lock delays the close of a handle by at most about a second.
const endPolls = 1000

// awaitCalls waits, when a handle is closed, until no call of this process uses the queue lock m any more. A call
// counts itself while it waits, and while it wakes the waiters whose waits it has ended. It does not count itself
// during the few instructions for which it has a queue lock that was free. So awaitCalls waits until no call holds
// m and no call is counted. It runs after the opening has ended, that is, after the handle was marked as closed.
//
//	a call                          the end of the opening
//	------                          ----------------------
//	takes the queue lock            the opening has ended, the fast paths have lost the words
//	counts itself                   no call is counted?
//	unlocks the queue lock          the queue lock is not this process's?
//	wakes, is counted no more      no call is counted?
//
// The right column makes three checks. Assume that a call has the queue lock and has not counted
// itself at the first check. Then the second check finds the queue lock held, unless the call has
// unlocked it by then. In that case the third check finds the call counted, unless the call is
// over.
//
// A call that has ended no wait does not count itself before it unlocks the queue lock, as long as the opening has
// not ended. To count itself would cost each call as much as the queue lock does. If a waiter is announced at the
// queue lock, the call counts itself after the unlock, and then checks whether the opening has ended. There are two
// cases. Either awaitCalls finds the call counted. Or the call finds that the opening has ended and does not use
// the words any more; then the code that ends the opening wakes the waiter instead.
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
