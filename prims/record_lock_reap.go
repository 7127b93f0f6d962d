package prims

import "github.com/shmsync/shmsync/internal/arenakernel"

// takeBack takes the lock back from a dead holder, as the policy says. It makes its changes in x, and collects the
// wakes that it owes in b. If other processes change the object all the time, takeBack leaves the lock to the next
// reap. The caller holds l.private.
func (l *recordLock) takeBack(x *recordedChange, b *wakes) error {
	for until := l.until(); l.overtaken < until; {
		// The loop repeats only after it has taken a wait off the queue, or after another call has changed the object.
		if err := l.begin(x, b); err != nil {
			return err
		}
		if !l.absent(ownerState(recordedWord(l.owner.Load())).holder()) {
			return nil
		}
		v := l.hooks.closeOwner()
		n := ownerState(v).holder()
		if !l.absent(n) {
			l.overtaken++ // a fast path has changed the owner word before it was closed
			continue
		}
		next, held, ok := l.afterDeath(v)
		if !ok {
			l.unreaped.Store(true) // so the next reap tries again
			return nil
		}
		key := l.hooks.lockKey()
		done, err := l.settle(x, b, next)
		if done && held {
			l.tellDeath(key, n, next)
		}
		if done || err != nil {
			return err
		}
	}
	l.unreaped.Store(true)
	return nil
}

// afterDeath returns the state that the lock gets when its dead holder is reaped. v is the owner word, which is
// closed: fast paths can no longer change it. held is false if the holder was granted the lock but did not accept it.
// ok is false if the lock would become free, but a system call of the holder may still write to the data that the
// lock guards.
//
// The holder is not current any more. So none of its threads can still accept the lock; see
// [arenakernel.Arena.Current].
func (l *recordLock) afterDeath(v recordedWord) (next ownerWord, held, ok bool) {
	o := l.stateOf(v)
	if o.granted() {
		return ownerFree, false, true
	}
	next = o.ownerDied(l.policy)
	return next, true, !next.free() || l.a.Gone(o.participant())
}

// takeOpenBack takes the lock back from a dead holder if the owner word is open. One compare-and-swap is enough then,
// because no wait is queued while the word is open. needsRecord is true if the word is closed and names a dead
// participant that holds the lock, or was granted it. Then only a record can take the lock back. The caller must not
// load the word again to find that out, because a record of another process may open the word at any time. A holder
// that has left the arena counts as dead, too.
func (l *recordLock) takeOpenBack() (needsRecord bool) {
	for range reapTries {
		v := recordedWord(l.owner.Load())
		n := ownerState(v).holder()
		switch {
		case !l.absent(n):
			return false
		case !ownerOpen(v):
			return true
		}
		key := l.hooks.lockKey() // if the compare-and-swap succeeds, this is the key of the dead holder's lock
		next, take := ownerState(v).ownerDied(l.policy), arenakernel.TakeFromDead[uint64]
		if next.free() {
			take = arenakernel.TakeFromGone
		}
		if take(l.a, n, l.owner, uint64(v), uint64(v.with(uint32(ownerOpened(next))))) {
			l.tellDeath(key, n, next)
			return false
		}
		if recordedWord(l.owner.Load()) == v {
			return false // the dead holder is not gone yet; the reap visits the lock again later
		}
	}
	return false
}

// unserved reports whether the first wait in the queue of the lock may end now. A process that ends waits has then died
// after it had changed the state of the lock, and before it has ended the wait. Only a record can end the wait. The
// caller holds l.private.
func (l *recordLock) unserved(x *recordedChange, b *wakes) bool {
	if valueIn(l.first) == 0 || l.begin(x, b) != nil {
		return false
	}
	w, ok := l.head(x)
	o := ownerState(recordedWord(l.owner.Load()))
	return ok && (!l.waiting(w) || o.free() || l.lost(o))
}

// recordReads bounds how often a call reads the words of a lock again because they have changed while it read them. A
// hostile peer may change them all the time, and the call must end nevertheless.
const recordReads = 64

// stateSeen returns the owner word and the state of the lock, which the function load reads from the words of the
// lock. If the state names a dead holder, stateSeen returns the state as a reap would leave it; see asReaped.
//
// A holder may unlock the lock and then leave the arena after load has returned. So stateSeen takes a holder for dead
// only if the owner word is still the same after stateSeen has found the death. If the word changes recordReads
// times, stateSeen returns what load has returned last.
func (l *recordLock) stateSeen(load func() (recordedWord, ownerWord)) (recordedWord, ownerWord) {
	v, o := load()
	for range recordReads {
		reaped := l.asReaped(o)
		if reaped == o {
			break
		}
		now, next := load()
		if now == v {
			return v, reaped
		}
		v, o = now, next
	}
	return v, o
}

// asReaped returns the state of the lock as a reap would leave it. o is the state that the words of the lock show. If
// o names a dead holder whose death makes the lock owner-dead, the result says so. The words may name a dead holder
// for long: a reaper that needs a slot record, and finds no room for one in the arena, leaves the lock to the next
// call.
//
// A participant that has left counts as dead, too. Before it left, it may have unlocked the lock. So the caller must
// check that the lock has not changed; see stateSeen.
func (l *recordLock) asReaped(o ownerWord) ownerWord {
	if next := o.ownerDied(l.policy); o.held() && !next.free() && l.a.Dead(o.participant()) {
		return next
	}
	return o
}

// tellDeath counts and reports the death of a holder. Only the process that has taken the lock from the holder calls
// tellDeath. key is the key of the lock, or nil if the object has only one lock.
func (l *recordLock) tellDeath(key *uint64, n arenakernel.ParticipantID, next ownerWord) {
	l.counts.add(countRecovery)
	tellDied(l.a, l.object, key, n, next.free())
}
