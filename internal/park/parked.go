package park

// mayBeDirect reports whether the caller may sleep in the kernel instead of parking on a channel, and counts the caller
// if so. The parameter since is when the wait began. If it is 0, mayBeDirect returns true. Otherwise it returns false
// if a goroutine of this process is already parked in the queue, or if as many goroutines sleep in the kernel as can
// run at once. In these cases parking is better: Grant finds only parked goroutines, and wakes a goroutine sooner than
// the kernel does.
func (q *Queue) mayBeDirect(since int64) bool {
	if q.asleep.Add(1); since == 0 {
		return true
	}
	if q.Oldest() == 0 && q.asleep.Load() <= q.lot.procs {
		return true
	}
	q.asleep.Add(-1)
	return false
}

// link inserts the waiter me into the queue, which is ordered by the times in the field since. A
// waiter that was woken and waits again has usually waited longest of all, so link first tries the
// front.
func (q *Queue) link(me *waiter) { // guarded by: mu
	me.queued = true
	if me.since != 0 && q.first != nil && me.since < q.first.since {
		me.prev, me.next = nil, q.first
		q.first.prev, q.first = me, me
		q.oldest.Store(me.since)
		return
	}
	before := q.last
	for me.since != 0 && before != nil && before.since > me.since {
		before = before.prev
	}
	if me.prev = before; before == nil {
		me.next, q.first = q.first, me
	} else {
		me.next, before.next = before.next, me
	}
	if me.next == nil {
		q.last = me
	} else {
		me.next.prev = me
	}
	q.oldest.Store(q.first.since)
}

// Oldest returns when the waiter that has been parked longest began to wait, according to its
// SleepSpec. It returns 0 if no waiter is parked or if that time is unknown.
func (q *Queue) Oldest() int64 { return q.oldest.Load() }

// Parked returns how many waiters are parked.
func (q *Queue) Parked() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// Grant removes the waiter that has been parked longest from the queue. The Sleep of that waiter
// returns Granted. Grant returns false if no waiter is parked.
func (q *Queue) Grant() bool {
	q.mu.Lock()
	me := q.first
	if me == nil || me.notify != nil {
		q.mu.Unlock()
		return false
	}
	q.unlink(me)
	me.granted = true
	q.tellPeople()
	q.setIdle()
	q.mu.Unlock()
	me.wake <- struct{}{}
	return true
}

func (q *Queue) unlink(me *waiter) { // guarded by: mu
	if me.prev == nil {
		q.first = me.next
	} else {
		me.prev.next = me.next
	}
	if me.next == nil {
		q.last = me.prev
	} else {
		me.next.prev = me.prev
	}
	me.prev, me.next, me.queued = nil, nil, false
	q.count -= 1 + me.others
	oldest := int64(0)
	if q.first != nil {
		oldest = q.first.since
	}
	q.oldest.Store(oldest)
}
