package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// fairWord is the owner word of a FairMutex: a recordedWord whose value is an ownerWord.
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
// Every other value is corrupt. While the word is open nobody is queued, and Lock and Unlock change it by one
// CAS of the value. Anybody may close it, by a CAS that changes the tag. An author of a record closes
// it before it reads it. So the word belongs to the state that the CAS of the commit word proves. A record
// opens it again if it leaves the queue empty, and the lock free or held by name.
//
//	writers: everybody while it is open (CAS: Lock, Unlock, close, reapers); everybody who carries a record
//	         out (CAS)
//	readers: the same, tools
//	order:   seq-cst: from an Unlock to the next Lock
//	futex:   none
//	crash:   names the dead participant until a reap; a word that is closed though nobody is queued stays so
//	         until the next record
type fairWord = recordedWord

// fairFree is the value of an owner word that is free and open.
const fairFree = ownerBiased

// fairOpen reports whether an owner word is open.
func fairOpen(v fairWord) bool { return ownerWord(v.value()).kind() == kindBiased }

// fairClosed is an owner word after it was closed.
func fairClosed(v fairWord) fairWord { return v.with(uint32(fairState(v))) }

// fairState is the state that an owner word has, open or not.
func fairState(v fairWord) ownerWord {
	o := ownerWord(v.value())
	if o.kind() == kindBiased {
		return makeOwner(kindHeld, o.participant())
	}
	return o
}

// fairOpened is the value of an owner word with the state o that is open, if that state can be open.
func fairOpened(o ownerWord) ownerWord {
	if o.kind() != kindHeld {
		return o
	}
	return makeOwner(kindBiased, o.participant())
}

// closeFair closes an owner word, so that from here on only records change it, and returns it.
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

// granted reports whether o is a grant, accepted or not.
func (w ownerWord) granted() bool { return w.kind() == kindReserved && w.participant() != 0 }

// holder is the participant that holds a lock with the owner word w, or was granted it; 0: none.
func (w ownerWord) holder() arenakernel.ParticipantID {
	if w.held() || w.granted() {
		return w.participant()
	}
	return 0
}

// lost reports whether nobody can get a lock with the state o.
func (w ownerWord) lost() bool {
	return !w.valid() || w.kind() == kindOwnerDead || w.kind() == kindNotRecoverable
}

// fairAccepted is the value of the field accepted after n has accepted the grant of the owner word v.
func fairAccepted(v fairWord, n arenakernel.ParticipantID) uint64 {
	return uint64(makeRecorded(uint32(n), v.tag()))
}
