package park

import "github.com/shmsync/shmsync/internal/arenakernel"

// deliver wakes the first parked goroutine of the queue, or all of them if the parameter all is true. If no
// goroutine is parked and all is false, deliver passes the wake on to another queue.
//
// If goroutines stay parked, deliver marks the poller node as waiting before it wakes a goroutine.
// The woken goroutine may at once take the lock, release it, and search for the next waiter.
// Without the mark, it would not find the next waiter.
func (q *Queue) deliver(all bool) {
	q.mu.Lock()
	woken := q.takeOff(all)
	q.mu.Unlock()
	notify(woken)
	if woken == nil && !all && q.config.Miss != nil {
		q.alive(q.config.Miss)
	}
}

// takeOff takes the first parked goroutine off the queue, or all of them if the parameter all is true. It returns
// them, linked by next. The caller calls notify with them, without mu.
func (q *Queue) takeOff(all bool) (woken *waiter) { // guarded by: mu
	for me := q.first; me != nil; me = q.first {
		q.unlink(me)
		me.next, woken = woken, me
		if !all && !q.config.All {
			break
		}
	}
	// Releasers find the node only while a goroutine is parked. Otherwise a releaser could choose this node after the
	// last goroutine has left, and a goroutine of another process would not get the wake.
	if q.first != nil {
		q.setWaiting()
	} else {
		q.setIdle()
	}
	q.tellPeople()
	return woken
}

// notify wakes the waiters that takeOff has returned.
func notify(woken *waiter) {
	for woken != nil {
		me := woken
		woken, me.next = me.next, nil
		if me.notify != nil {
			me.notify()
			continue
		}
		me.wake <- struct{}{}
	}
}

// DeliverAllAsOne wakes all waiters of all processes. It first wakes the goroutines of this queue directly, without
// the poller, so no process has to ring the doorbell of this process.
func (q *Queue) DeliverAllAsOne() {
	q.deliver(true)
	q.DeliverAll()
}

// ReleaseAsOne does what b.Release does, for the wake word b of this queue. But it wakes a goroutine of this queue
// directly, without the poller, so no process has to ring the doorbell of this process.
func (q *Queue) ReleaseAsOne(b *WakeWord) {
	if b.Announced() {
		b.release(q.DeliverOneAsOne)
	}
}

// DeliverOneAsOne does what DeliverOne does, but wakes a goroutine of this queue directly, without the poller.
func (q *Queue) DeliverOneAsOne(turn uint32) {
	if turn&1 == 0 && q.wakeOne(turn) > 0 || q.deliverHere(turn>>1) || q.readyOne(turn) {
		return
	}
	if turn&1 != 0 {
		q.wakeOne(turn)
	}
}

// deliverHere wakes a goroutine of this queue, and reports whether it did. If goroutines of other queues are parked as
// well, deliverHere wakes one of this queue only every second time.
//
// It keeps the lock mu from the moment at which it finds the goroutine until it has taken the goroutine off the queue.
// So the wake always finds a goroutine, and Config.Miss is not called. A call from Config.Check relies on this, because
// Config.Miss would lock q.life, which is already locked during Config.Check.
func (q *Queue) deliverHere(turn uint32) bool {
	q.mu.Lock()
	here := q.first != nil
	if here && turn&1 == 0 {
		q.Arena.EachPollerNode(q.Poller, func(off arenakernel.Offset, n *arenakernel.Node) bool {
			here = off == q.node || n.State() != arenakernel.NodeWaiting
			return here
		})
	}
	var woken *waiter
	if here {
		woken = q.takeOff(false)
	}
	q.mu.Unlock()
	notify(woken)
	return here
}
