package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// The owner word of a recordLock is a recordedWord whose value is an ownerWord. The owner word of a FairMutex is
// described at fairWord, and that of a MultiLock at keyHold.

// ownerOpen reports whether the owner word v is open, that is, whether fast paths may change it.
func ownerOpen(v recordedWord) bool { return ownerWord(v.value()).kind() == kindBiased }

// ownerState returns the state of the lock that the owner word v describes. The state does not depend on whether the
// word is open or closed.
func ownerState(v recordedWord) ownerWord {
	o := ownerWord(v.value())
	if o.kind() == kindBiased {
		return makeOwner(kindHeld, o.participant())
	}
	return o
}

// ownerOpened returns the value of an open owner word with the state o. Only a lock that is free or held can have an
// open word; for any other state ownerOpened returns o.
func ownerOpened(o ownerWord) ownerWord {
	if o.kind() != kindHeld {
		return o
	}
	return makeOwner(kindBiased, o.participant())
}

// ownerAccepted returns the value that lockWords.accepted gets when the participant n accepts the grant in the owner
// word v.
func ownerAccepted(v recordedWord, n arenakernel.ParticipantID) uint64 {
	return uint64(makeRecorded(uint32(n), v.tag()))
}

// granted reports whether the owner word w grants the lock to a participant. The participant may have accepted
// the grant or not.
func (w ownerWord) granted() bool { return w.kind() == kindReserved && w.participant() != 0 }

// holder returns the participant that holds a lock with the owner word w, or that was granted the lock. It
// returns 0 if there is no such participant.
func (w ownerWord) holder() arenakernel.ParticipantID {
	if w.held() || w.granted() {
		return w.participant()
	}
	return 0
}

// lockWords are the words of one lock that say who holds it.
type lockWords struct {
	owner    *atomic.Uint64 // see fairWord and keyHold
	accepted *atomic.Uint64 // the last grant that was accepted; see fairMutexWords
}

// stateOf returns the state of the lock for the owner word v. If v grants the lock to a participant and that
// participant has accepted the grant, the lock counts as held.
func (w lockWords) stateOf(v recordedWord) ownerWord {
	o := ownerState(v)
	if o.granted() && w.accepted.Load() == ownerAccepted(v, o.participant()) {
		return makeOwner(kindHeld, o.participant())
	}
	return o
}

// state returns the state of the lock. It may be out of date when state returns.
func (w lockWords) state() ownerWord { return w.stateOf(recordedWord(w.owner.Load())) }

// accept makes the participant n the holder of the lock that was granted to it. A process that dies before it accepts
// has never held the lock. v is the owner word. ok is false if v does not grant the lock to n.
func (w lockWords) accept(n arenakernel.ParticipantID) (v recordedWord, ok bool) {
	was, v := w.accepted.Load(), recordedWord(w.owner.Load())
	// lin: the lock is taken here.
	return v, ownerState(v) == makeOwner(kindReserved, n) && w.accepted.CompareAndSwap(was, ownerAccepted(v, n))
}
