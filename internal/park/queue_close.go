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

// Empty reports whether no call is in the queue that Shut waits for.
func (q *Queue) Empty() bool { return q.calls.Load() <= q.lasting.Load() }

// Exit ends the call.
func (q *Queue) Exit() { q.calls.Add(-1) }

// EnterLasting is Enter for a call that Shut does not wait for: only the end of the
// arena does.
func (q *Queue) EnterLasting() bool {
	q.lasting.Add(1)
	if !q.Enter() {
		q.lasting.Add(-1)
		return false
	}
	return true
}

// ExitLasting ends such a call.
func (q *Queue) ExitLasting() {
	q.Exit()
	q.lasting.Add(-1)
}

// ServeToTheEnd makes Shut end only the waits in wait nodes: the queue is that of a queue lock,
// which a call needs to clean up after its wait has ended.
func (q *Queue) ServeToTheEnd() { q.serves.Store(true) }

// Closing reports whether the handle is being closed or this process leaves the arena.
func (q *Queue) Closing() bool { return q.lot.closed.Load() || q.shut.Load() }

// refuses reports whether nobody may sleep on the word of the WaitList any more.
func (q *Queue) refuses() bool {
	return q.lot.closed.Load() || q.shut.Load() && !q.serves.Load()
}

// Leaving reports whether this process leaves the arena.
func (q *Queue) Leaving() bool { return q.lot.closed.Load() }

// Shut ends the waits in the queues of a handle with the result Closed and refuses new
// ones. It returns when all calls have left, but for lasting ones.
func Shut(queues ...*Queue) {
	for _, q := range queues {
		q.shut.Store(true) // all of them first: a call in one may wait in another
	}
	for _, q := range queues {
		for tries := 0; q.calls.Load() > q.lasting.Load(); tries++ {
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

// sendAway wakes the waiters in this queue. It wakes sleepers of other processes and
// handles as well: they look, and sleep again.
func (q *Queue) sendAway() {
	if q.calls.Load() == 0 {
		return
	}
	q.DeliverAll()
	q.deliver(true)
}

// Close gives the queue's poller node back, for others to use. It comes after Shut. A node
// that is ready just now, or loose, stays this process's, and belongs to its next queue
// of the object.
//
// A wake that the poller has taken from the node, or will, is not passed on by it any
// more, since the object may be gone by then: so one is passed on here.
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
