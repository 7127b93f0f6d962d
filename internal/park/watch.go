package park

import "github.com/shmsync/shmsync"

// A Watch is a wait in a Queue that blocks no goroutine. It is only for queues whose wakes are
// always for all waiters.
type Watch struct {
	q     *Queue
	me    waiter
	since int64 // when the wait began, CLOCK_MONOTONIC ns
}

// Watch registers the function notify. If the word still has the value w, the next wake calls notify, once. If the word
// has another value, the handle is being closed, or this process is leaving the arena, Watch returns nil. The function
// notify must not block, and may be called before Watch returns.
//
// The caller has entered the queue, and must stay in it until it has called Leave of the Watch. The parameter before
// may be an earlier Watch, whose wait the new one continues. Tools then show when the earlier wait began.
func (q *Queue) Watch(w uint32, before *Watch, notify func()) *Watch {
	x := &Watch{q: q, me: waiter{notify: notify}}
	if before != nil {
		x.since = before.since
	} else {
		x.since = shmsync.Monotonic()
	}
	q.lot.checkPeriodically(q)
	if !q.enlist(w, &x.me, x.since) {
		return nil
	}
	return x
}

// Over reports whether the wake for which the Watch waits has come.
func (x *Watch) Over() bool {
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	return !x.me.queued
}

// StandFor sets how many waits the Watch represents, at least 1. Only tools show the number.
func (x *Watch) StandFor(n int) {
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	if x.me.queued {
		x.q.count += n - 1 - x.me.others
		x.me.others = n - 1
		x.q.tellPeople()
	}
}

// Leave ends the wait. notify may still run after Leave has returned.
func (x *Watch) Leave() {
	x.q.mu.Lock()
	defer x.q.mu.Unlock()
	if x.me.queued {
		x.q.unlink(&x.me)
		x.q.tellPeople()
		x.q.setIdle()
	}
}
