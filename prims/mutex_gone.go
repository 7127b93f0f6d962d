package prims

import "github.com/shmsync/shmsync/internal/park"

// stays reports whether the hold with the owner word o must stay unchanged for now. Under some policies, the hold
// of a dead participant passes on only after its system calls have ended, because they may store data. Until then
// the hold stays.
func (m *Mutex) stays(o ownerWord) bool {
	return !m.internal && o.held() && (m.log != nil || o.ownerDied(policyOf(m.words.policy)).free()) && !m.a.Gone(o.participant())
}

// mayTake reports whether a process may take a lock for a repair. The word o says that the lock is owner-dead. User
// data may be repaired only when the dead process cannot write to it any more.
func (m *Mutex) mayTake(o ownerWord) bool {
	return m.internal || o.kind() != kindOwnerDead || m.a.Gone(o.participant())
}

// sleepUntilGone sleeps for a moment before the next try to take a lock. The word o says that the lock is
// owner-dead. A system call of the dead process may still write to the data of the lock.
func (w *waiter) sleepUntilGone(o ownerWord) park.Result {
	m := w.m
	v := m.wakeWord.Announce()
	if ownerWord(m.owner.Load()) != o {
		return park.Again
	}
	w.slept = true
	return m.queue.Sleep(uint32(v), park.SleepSpec{Bounded: w.exit.next(), Exact: true, Since: w.since}, &w.cancel)
}

// canceled is called when the context of a wait has ended. It ends the wait, with the result err, unless the lock is
// owner-dead and may be repaired by now. A lock that is free, or that may be repaired,
// takes precedence over the end of the context.
func (w *waiter) canceled(mayRepair bool) (ended bool, err error) {
	if w.lastTry() {
		return true, nil
	}
	m := w.m
	if o := ownerWord(m.owner.Load()); mayRepair && m.repair != nil && o.valid() && o.kind() == kindOwnerDead && m.mayTake(o) {
		return false, nil
	}
	w.leave()
	return true, w.cancel.Err()
}
