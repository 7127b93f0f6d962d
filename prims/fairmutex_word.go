package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// fairWord is the owner word of a FairMutex. It is a recordedWord, that is, 32 bits of value with a tag that
// counts the changes. Its value is an ownerWord.
//
//	bits 0..31   tag    as in a recordedWord; it stays the same while the word is open
//	bits 32..63  value
//
//	kind  name  meaning                                              left by
//	1     0     free and open; a new FairMutex                       Unlock; a record
//	1     n     held by n, and open                                  Lock; a record
//	0     0     free (also all-zero memory)                          everybody who closes the word
//	0     n     held by n                                            everybody who closes the word; a record
//	2     n     granted to n; held by n once the field accepted      a record
//	            has n and the tag of this word
//	3     n     owner-dead: n died while it held; it is not held     a record; a reaper, if the word was open
//	4     n     being recovered by n                                 a record
//	5     0     not recoverable: a repair failed                     a record
//
// Every other value is corrupt. While the word is open, no wait is queued, and Lock and Unlock change the word
// by one CAS of its value. Any process may close the word, by a CAS that changes the tag. From then on only
// records change the word. A call that makes a record closes the word before it reads the word. So only another
// record can change the value that the call has read, and in that case the call's CAS of the commit word fails.
// A record opens the word again if it leaves the queue empty, and the lock free or held by a living holder.
//
//	writers: everybody while it is open (CAS: Lock, Unlock, close, reapers); everybody who carries a record
//	         out (CAS)
//	readers: the same, tools
//	order:   seq-cst: from an Unlock to the next Lock
//	futex:   none
//	crash:   names the dead participant until a reap; a word that is closed though nobody is queued stays so
//	         until the next record
type fairWord = recordedWord

// fairFree is the value of an owner word that fast paths may change, while the lock is free.
const fairFree = ownerBiased

// fairOpen reports whether an owner word is open, that is, whether fast paths may change it.
func fairOpen(v fairWord) bool { return ownerWord(v.value()).kind() == kindBiased }

// fairClosed returns the owner word v as it is after it is closed.
func fairClosed(v fairWord) fairWord { return v.with(uint32(fairState(v))) }

// fairState returns the state of the lock that an owner word describes. The state does not depend on whether
// the word is open or closed.
func fairState(v fairWord) ownerWord {
	o := ownerWord(v.value())
	if o.kind() == kindBiased {
		return makeOwner(kindHeld, o.participant())
	}
	return o
}

// fairOpened returns the value of an open owner word with the state o. Only a lock that is free or held can
// have an open word; for any other state fairOpened returns o.
func fairOpened(o ownerWord) ownerWord {
	if o.kind() != kindHeld {
		return o
	}
	return makeOwner(kindBiased, o.participant())
}

// closeFair closes an owner word, so that from then on only records change it, and returns the word.
func closeFair(w *atomic.Uint64) fairWord {
	for {
		v := fairWord(w.Load())
		// sync(fairmutex.owner): acquire
		if !fairOpen(v) {
			return v
		}
		if w.CompareAndSwap(uint64(v), uint64(fairClosed(v))) {
			return fairClosed(v)
		}
	}
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

// lost reports whether nobody can get a lock with the owner word w, because w is corrupt, owner-dead or not
// recoverable.
func (w ownerWord) lost() bool {
	return !w.valid() || w.kind() == kindOwnerDead || w.kind() == kindNotRecoverable
}

// fairAccepted returns the value that the field accepted gets when n accepts the grant in the owner word v.
func fairAccepted(v fairWord, n arenakernel.ParticipantID) uint64 {
	return uint64(makeRecorded(uint32(n), v.tag()))
}
