package prims

import (
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// keyHold is the hold of a key of a MultiLock. It alone says who has the key.
//
//	bits 0..31   an ownerWord, or one of the additional kinds below
//	bits 32..63  stamp of the hold; for a key that is not recoverable, the ID of the dead holder
//
//	kind               meaning                                           left by
//	0  free, no name   0: the entry is in no use and never was           nobody
//	0  held            held; a Hold with this stamp can unlock it        Lock, a granter, a claim
//	1  biased          held by n, and n unlocks it by a CAS              Lock
//	2  reserved        let go, and on its way to the first waiter        Unlock, a reap (policy PolicyRelease)
//	3  ownerDead       its holder died; it is not held                   a reap
//	4  recovering      being recovered                                   Recover
//	5  notRecoverable  without a name: a repair failed                   Recover
//	5  granted         with the name n: handed to a waiter of n, which   a granter
//	                   has not accepted it
//	6  free            the entry is in no use; its key is free, and n    Unlock with nobody waiting, a claim
//	                   had it last
//	7  cached          the same, and n locks it by a CAS                 Unlock of a biased hold
//
// Biased and cached words are fast: n alone changes one into the other, by a CAS and without the
// queue lock. The holder of the queue lock changes a fast word only by a claim: the claim clears
// the bit that the two kinds have in common, which turns biased into held and cached into free.
// Only the holder of the queue lock changes other words. A key whose word is fast has no waiters,
// and the words of nodes are never fast. The waiter that accepts a granted key makes it held by a
// CAS, without the queue lock. No process stores over the granted word of a living participant.
//
// Stamps are arrivals of the bucket's monitor, truncated to 32 bits. They keep a Hold that has
// been unlocked from unlocking a later hold. A Lock by CAS adds one to the stamp, and a claim of
// a word raises arrivals to its stamp. So the stamps of an entry only grow, whatever keys it is
// used for, and so do the stamps of a key.
//
//	writers: the holder of the bucket's queue lock; of a fast or granted word the participant that it names, by a CAS
//	readers: the same, tools, periodic checks, TryLock
//	order:   of a fast word acquire on the CAS that takes, release on the one that gives
//	         back, both on a claim; otherwise the queue lock's
//	futex:   none
//	crash:   names the dead until a reap; the next holder of the queue lock resolves a key
//	         on its way; a cached key of the dead is free for all; a key granted to the dead
//	         goes to the next waiter
type keyHold uint64

// The kinds of a keyHold that an ownerWord does not have, or has with another meaning.
const (
	keyBiased  = kindBiased
	keyGranted = kindNotRecoverable // a granted key: the kind of a not recoverable key, but with a name
	keyFree    = kindNotRecoverable + 1
	keyCached  = kindNotRecoverable + 2

	// holdFast is the bit that a claim clears.
	holdFast = 1 << ownerKindShift
	// holdLock turns a cached word into the biased word of the next hold. holdUnlock turns that
	// one into a cached word.
	holdLock   = uint64(1<<32) - holdUnlock
	holdUnlock = uint64(keyCached-keyBiased) << ownerKindShift
	// holdFree turns a held word into the word of a key that was let go.
	holdFree = uint64(keyFree) << ownerKindShift
)

func makeKeyHold(k ownerKind, n arenakernel.ParticipantID, stamp uint32) keyHold {
	return keyHold(makeOwner(k, n)) | keyHold(stamp)<<32
}

func (h keyHold) owner() ownerWord { return ownerWord(h) }
func (h keyHold) stamp() uint32    { return uint32(h >> 32) }
func (h keyHold) kind() ownerKind  { return h.owner().kind() }

// free reports whether nobody has the key or waits for it.
func (h keyHold) free() bool { return h == 0 || h.kind() >= keyFree }

// idle is free without the fast words: the entry is unused.
func (h keyHold) idle() bool { return h == 0 || h.kind() == keyFree }

// fast reports whether the participant that the word names may change it without the queue lock.
func (h keyHold) fast() bool { return h.kind() == keyBiased || h.kind() == keyCached }

// granted reports whether a waiter was handed the key and has not accepted it.
func (h keyHold) granted() bool { return h.kind() == keyGranted && h.owner().participant() != 0 }

// taken reports whether a participant, dead or alive, has the key exclusively, or was handed it.
func (h keyHold) taken() bool { return h.owner().held() || h.granted() }

// accepted is a granted hold after its waiter has accepted it.
func (h keyHold) accepted() keyHold {
	return makeKeyHold(kindHeld, h.owner().participant(), h.stamp())
}

// claimed is the hold after a claim.
func (h keyHold) claimed() keyHold {
	if h.fast() {
		h &^= holdFast
	}
	return h
}

// valid reports whether h is the word of some state.
func (h keyHold) valid() bool {
	o := h.owner()
	if o.kind() >= keyFree || h.granted() {
		return o.participant() != 0
	}
	return o.valid() && (!o.free() || h == 0)
}

// passing is the hold after the key is let go while others wait.
func (h keyHold) passing() keyHold {
	return h&^(1<<32-1) | keyHold(makeOwner(kindReserved, h.owner().participant()))
}

// ownerDied is the hold after the participant that it names was found dead.
func (h keyHold) ownerDied(p Policy) keyHold {
	if h.granted() {
		return h.passing() // the dead participant never held the key
	}
	if next := h.owner().ownerDied(p); !next.free() {
		return h&^(1<<32-1) | keyHold(next)
	}
	return h.passing()
}

// died is the participant whose death caused this hold.
func (h keyHold) died() arenakernel.ParticipantID {
	if h.owner() == ownerNotRecoverable {
		return arenakernel.ParticipantID(h.stamp() & arenakernel.ParticipantIDMask)
	}
	return h.owner().participant()
}

// String renders the hold by the names of its parts.
func (h keyHold) String() string {
	switch {
	case h == 0:
		return "free"
	case !h.valid():
		return fmt.Sprintf("corrupt (%#x)", uint64(h))
	}
	switch n := h.owner().participant(); h.kind() {
	case keyBiased:
		return "held by " + n.String() + ", biased"
	case keyFree:
		return "free, last held by " + n.String()
	case keyCached:
		return "free, kept for " + n.String()
	case keyGranted:
		if n != 0 {
			return "granted to " + n.String()
		}
	}
	return h.owner().String()
}

// bucketOf is the bucket of a key among 1<<log. It uses Fibonacci hashing, after Knuth, of the
// key with its halves folded, so that keys that differ in any few bits are spread over all
// buckets. It is part of the ABI.
func bucketOf(key uint64, log uint) int {
	return int((key ^ key>>32) * multiHash >> 1 >> (63 - log&63))
}

const multiHash = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd

// multiLog is the logarithm of the smallest number of buckets that is at least n, and the default
// for 0.
func multiLog(n int) uint {
	if n == 0 {
		return multiLogDefault
	}
	return uint(bits.Len(uint(n - 1)))
}

const (
	// multiLogDefault is the logarithm of the default number of buckets: with 64 of them, 8 busy
	// goroutines seldom meet at a queue lock. They take 32 KiB.
	multiLogDefault = 6
	multiLogMost    = 16
)
