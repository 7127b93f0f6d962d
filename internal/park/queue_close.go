package park

import "slices"

// Enter begins a call that may sleep in the queue. It returns false if the handle is being closed
// or this process is leaving the arena. Until Exit, the arena stays mapped and the object stays
// open.
func (q *Queue) Enter() bool {
	q.calls.Add(1)
	if q.Closing() {
		q.calls.Add(-1)
		return false
	}
	return true
}

// EnterEnding does what Enter does, but never refuses the call, even if the handle is being closed. The caller knows
// that another call or wait has kept the object open until now.
func (q *Queue) EnterEnding() { q.calls.Add(1) }

// Exit ends a call that Enter has begun.
func (q *Queue) Exit() { q.calls.Add(-1) }

// EnterStay does what Enter does, for a call that needs the object even while its handle is being closed, or after
// the handle was closed. The caller itself makes sure that the object stays open. Left does not count the call: Close
// of the handle does not wait for it, but Close of the arena does. EnterStay returns false if this process is leaving
// the arena.
func (q *Queue) EnterStay() bool {
	q.lasting.Add(1)
	if q.lot.closed.Load() {
		q.ExitLasting()
		return false
	}
	return true
}

// ExitLasting ends a call that EnterStay has begun.
func (q *Queue) ExitLasting() { q.lasting.Add(-1) }

// Closing reports whether the handle is being closed or this process is leaving the arena.
func (q *Queue) Closing() bool { return q.lot.closed.Load() || q.shut.Load() }

// Refuse makes the queues of a handle refuse new waits. A wait in progress returns Closed when a call of Left wakes it.
func Refuse(queues ...*Queue) {
	for _, q := range queues {
		q.shut.Store(true)
	}
}

// Left is called after Refuse. It reports whether all calls have left the queues, except those that EnterStay has
// begun. If they have not, Left wakes the calls that wait. The caller must then call Left again after a moment, because
// a call that was about to sleep may have missed the wake. Left examines all queues of a handle together, because a
// call in one queue may wait in another queue.
func Left(queues ...*Queue) bool {
	if !slices.ContainsFunc(queues, func(q *Queue) bool { return q.calls.Load() > 0 }) {
		return true
	}
	for _, q := range queues {
		q.sendAway()
		q.lot.nodePool.sendAway(q)
	}
	return false
}

// sendAway wakes the waiters in this queue, so that they end their waits. It also wakes sleepers of other processes
// and other handles, which check the state and sleep again.
func (q *Queue) sendAway() {
	if q.Waiting() == 0 {
		return
	}
	q.DeliverAll()
	q.deliver(true)
}

// Close gives up the queue's poller node, so that other queues can use it. A call of Left must have returned true
// before. If the node is ready, or if a releaser may still push it on the ready stack, this process keeps the node for
// its next queue of the object.
//
// The poller may have taken a wake from the node, or may take a wake later. After Close, the poller
// does not pass such a wake on, because the object may no longer exist. So Close itself passes one
// wake on.
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
