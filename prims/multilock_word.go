package prims

import (
	"math/bits"
	"sync/atomic"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// keyHold is the hold word of a key of a MultiLock, in the field hold of its entry. It is a recordedWord, that is, 32
// bits of value with a tag. Its value is a keyState. Only the hold word and the field accepted of the entry say which
// participant holds the key.
//
//	bits 0..31   tag    names one hold of one key; see below
//	bits 32..63  value
//
//	kind  name  meaning                                              left by
//	1     0     free and open                                        Unlock; a record
//	1     n     held by n, and open                                  Lock; a record
//	0     0     free (also all-zero memory)                          everybody who closes the word
//	0     n     held by n                                            everybody who closes the word
//	2     n     granted to n; held by n once the field accepted      a record
//	            has n and the tag of this word
//	3     n     owner-dead: n died while it held; it is not held     a record; a reaper, if the word was open
//	4     n     being recovered by n                                 a record
//	5     n     not recoverable: a repair failed after n died        a record
//
// Every other value is corrupt. While the word is open, no wait for the key is queued, and Lock and Unlock change the
// word by one CAS. Any process may close the word. From then on only records change the word. A call that makes a
// record closes the word before it reads the word. So only another record can change the value that the call has
// read, and in that case the call's CAS of the commit word fails.
//
// The tag does not change while the key has the same holder. A Lock by CAS adds 1 to the tag. An Unlock by CAS, and a
// CAS that closes the word, keep it. A record that changes the word adds 1. A record opens the word only if it frees
// the key, or gives it to a new holder. So no later hold has the tag of a Hold that was unlocked, unless the word has
// changed 2^32 times meanwhile.
//
//	writers: everybody while it is open (CAS: Lock, Unlock, close, reapers); everybody who carries a record
//	         out (CAS)
//	readers: the same, tools
//	order:   seq-cst: from an Unlock to the next Lock
//	futex:   none
//	crash:   the word names the dead participant until a reap; if it is closed though nobody is queued, it stays
//	         closed until the next record that frees the key
type keyHold = recordedWord

// keyState is the state of a key: an ownerWord that is never biased. If the key is not recoverable, the state
// names the participant whose death is the reason.
type keyState ownerWord

// keyFree is the state of a free key.
const keyFree = keyState(ownerFree)

func makeKeyState(k ownerKind, n arenakernel.ParticipantID) keyState {
	return keyState(makeOwner(k, n))
}

// keyOpen reports whether the hold word v is open, that is, whether Lock and Unlock may change it by a CAS.
func keyOpen(v keyHold) bool { return ownerOpen(v) }

// keyStateOf returns the state that the hold word v describes. The word may be open or closed.
func keyStateOf(v keyHold) keyState { return keyState(ownerState(v)) }

// opened returns the value of an open word with the state s. If s is neither free nor held, the word cannot be
// open, and opened returns s.
func (s keyState) opened() uint32 { return uint32(ownerOpened(ownerWord(s))) }

// closeKey closes the hold word, so that from then on only records change it, and returns the word. The tag stays the
// same, since it names the hold.
func closeKey(w *atomic.Uint64) keyHold {
	for {
		// The loop repeats only after a Lock or an Unlock by another call.
		v := keyHold(w.Load())
		// sync(multilock.hold): acquire
		if !keyOpen(v) {
			return v
		}
		if closed := makeRecorded(uint32(keyStateOf(v)), v.tag()); w.CompareAndSwap(uint64(v), uint64(closed)) {
			return closed
		}
	}
}

func (s keyState) kind() ownerKind                        { return ownerWord(s).kind() }
func (s keyState) participant() arenakernel.ParticipantID { return ownerWord(s).participant() }
func (s keyState) free() bool                             { return s == keyFree }

// granted reports whether s grants the key to a participant. The participant may have accepted the grant or not.
func (s keyState) granted() bool { return ownerWord(s).granted() }

// holder returns the participant that holds or recovers the key, or that was granted it, or 0.
func (s keyState) holder() arenakernel.ParticipantID { return ownerWord(s).holder() }

// valid reports whether s is the state of some key. Other values are damage.
func (s keyState) valid() bool {
	if s.kind() == kindNotRecoverable {
		return s.participant() != 0
	}
	return ownerWord(s).valid()
}

// ownerDied returns the state of a key after its holder was found dead, with the policy p.
func (s keyState) ownerDied(p Policy) keyState { return keyState(ownerWord(s).ownerDied(p)) }

// String renders the state by the names of its parts.
func (s keyState) String() string {
	switch {
	case !s.valid():
		return ownerWord(s).corrupt()
	case s.kind() == kindNotRecoverable:
		return ownerNotRecoverable.String()
	case s.granted():
		return "granted to " + s.participant().String()
	}
	return ownerWord(s).String()
}

// bucketOf returns the bucket of a key among 1<<log buckets. It folds the halves of the key and uses
// Fibonacci hashing, after Knuth, so that keys that differ in only a few bits are spread over all
// buckets. This function is part of the ABI.
func bucketOf(key uint64, log uint) int {
	return int((key ^ key>>32) * multiHash >> 1 >> (63 - log&63))
}

const multiHash = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd

// multiLog returns the base-2 logarithm of n, rounded up. If n is 0, it returns multiLogDefault.
func multiLog(n int) uint {
	if n == 0 {
		return multiLogDefault
	}
	return uint(bits.Len(uint(n - 1)))
}

const (
	// multiLogDefault is the logarithm of the default number of buckets, which take 6 KiB.
	multiLogDefault = 5
	multiLogMost    = 16
)
