package prims

import "github.com/shmsync/shmsync/internal/park"

// stays reports whether the hold o must stay as it is for now. That is so if two conditions hold:
// the participant is dead but not gone, so its system calls may still store; and the policy passes
// the hold on only after the participant is gone.
func (m *Mutex) stays(o ownerWord) bool {
	return !m.internal && o.held() && (m.log != nil || o.ownerDied(policyOf(m.words.policy)).free()) && !m.a.Gone(o.participant())
}

// mayTake reports whether a lock that is owner-dead with the word o may be taken for a repair. User
// data may be repaired only when the dead process cannot write to it any more.
func (m *Mutex) mayTake(o ownerWord) bool {
	return m.internal || o.kind() != kindOwnerDead || m.a.Gone(o.participant())
}

// sleepUntilGone sleeps for a moment on a lock that is owner-dead with the word o, because the dead
// process is not gone yet.
func (w *waiter) sleepUntilGone(o ownerWord) park.Result {
	m := w.m
	v := m.wakeWord.Announce()
	if ownerWord(m.owner.Load()) != o {
		return park.Again
	}
	w.slept = true
	return m.queue.Sleep(uint32(v), park.SleepSpec{Bounded: w.exit.next(), Since: w.since}, &w.cancel)
}
