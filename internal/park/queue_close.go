package park

import (
	"runtime"
	"time"
)

// Enter begins a call that may sleep here, and reports false when the handle is being
// closed or this process leaves the arena. Until Exit, the arena stays mapped and the
// object stays open.
func (q *Queue) Enter() bool {
	q.calls.Add(1)
	if q.refuses() {
		q.calls.Add(-1)
		return false
	}
	return true
}

// EnterNode is Enter for a call that waits in a WaitNode.
func (q *Queue) EnterNode() bool {
	q.calls.Add(1)
	if q.Closing() {
		q.calls.Add(-1)
		return false
	}
	return true
}

// EnterEnding is Enter for a call that Close waits for already, and that needs the object for
// longer.
func (q *Queue) EnterEnding() { q.calls.Add(1) }

// Empty reports whether the queue has no call that Shut would wait for.
func (q *Queue) Empty() bool { return q.calls.Load() == 0 }

// Exit ends the call.
func (q *Queue) Exit() { q.calls.Add(-1) }

// EnterLasting is Enter for a call that Shut does not wait for: only the end of the
// arena does.
func (q *Queue) EnterLasting() bool {
	q.lasting.Add(1)
	if q.refuses() {
		q.lasting.Add(-1)
		return false
	}
	return true
}

// ExitLasting ends such a call.
func (q *Queue) ExitLasting() {
	q.lasting.Add(-1)
}

// EnterStay is EnterLasting for a call that needs the object although its handle is being
// closed, or was: the caller keeps the object open. It reports false if this process leaves the
// arena.
func (q *Queue) EnterStay() bool {
	q.lasting.Add(1)
	if q.lot.closed.Load() {
		q.ExitLasting()
		return false
	}
	return true
}

// ServeToTheEnd makes Shut end only the waits in wait nodes. It is for the queue of a queue lock:
// a call whose wait has ended still needs that lock to clean up.
func (q *Queue) ServeToTheEnd() { q.serves.Store(true) }

// Closing reports whether the handle is being closed or this process leaves the arena.
func (q *Queue) Closing() bool { return q.lot.closed.Load() || q.shut.Load() }

// refuses reports whether the queue refuses new sleepers on the word of its WaitList.
func (q *Queue) refuses() bool {
	return q.lot.closed.Load() || q.shut.Load() && !q.serves.Load()
}

// Leaving reports whether this process leaves the arena.
func (q *Queue) Leaving() bool { return q.lot.closed.Load() }

// Shut ends the waits in the queues of a handle with the result Closed, and refuses new waits. It
// returns when all calls but the lasting ones have left.
func Shut(queues ...*Queue) {
	for _, q := range queues {
		q.shut.Store(true) // all of them first: a call in one may wait in another
	}
	for _, q := range queues {
		for tries := 0; q.calls.Load() > 0; tries++ {
			for _, q := range queues {
				q.sendAway()
				q.lot.nodePool.sendAway(q)
			}
			if tries < 10 {
				runtime.Gosched()
			} else {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// sendAway wakes the waiters in this queue. It also wakes sleepers of other processes and
// handles, which check their state and sleep again.
func (q *Queue) sendAway() {
	if q.Waiting() == 0 {
		return
	}
	q.DeliverAll()
	q.deliver(true)
}

// Close gives the queue's poller node back, for other queues. It comes after Shut. If the node is
// ready now, or loose, the process keeps it for its next queue of the object.
//
// The poller may have taken a wake from the node, or may take one later. The poller no longer
// passes such a wake on, since the object may be gone by then. So Close passes one on.
func (q *Queue) Close() {
	q.lot.remove(q)
	q.life.Lock()
	defer q.life.Unlock()
	q.closed = true
	q.mu.Lock()
	had := q.node != 0
	if had {
		q.lot.release(q.node)
		q.node = 0
	}
	q.mu.Unlock()
	if had && q.config.Miss != nil {
		q.config.Miss()
	}
}
