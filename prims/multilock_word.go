package prims

import (
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// keyHold is the state of a key of a MultiLock, in one word. Only this word says which participant holds the key.
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
// Biased and cached words are called fast, because the participant n in the word can change a biased word into a
// cached word and back by a CAS, without the queue lock. The holder of the queue lock changes a fast word only by a
// claim. A claim clears the bit that the two fast kinds have in common, which turns biased into held and cached
// into free. If the word of a key is fast, nobody waits for the key. The words in nodes are never fast. All other
// words are changed by the holder of the queue lock only, with one exception: a waiter that accepts a granted key
// makes the word held by a CAS. So no process may store over a granted word while its participant lives.
//
// The stamp is a value of the counter arrivals in the bucket's monitor, truncated to 32 bits. Because each hold has
// its own stamp, a Hold that has been unlocked cannot unlock a later hold. A Lock by CAS adds one to the stamp in
// the word, and a claim raises arrivals to the stamp in the word. So the stamps in an entry only grow, even if the
// entry is used for other keys. The stamps of a key also only grow.
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

// These kinds of a keyHold do not exist in an ownerWord, or mean something else there.
const (
	keyBiased  = kindBiased
	keyGranted = kindNotRecoverable // with a participant: granted; without: not recoverable
	keyFree    = kindNotRecoverable + 1
	keyCached  = kindNotRecoverable + 2

	// holdFast is the bit that the biased and the cached kind have in common. A claim clears it.
	holdFast = 1 << ownerKindShift
	// Adding holdLock turns a cached word into the biased word of the next hold, with the next stamp. Adding
	// holdUnlock turns that biased word into a cached word with the same stamp.
	holdLock   = uint64(1<<32) - holdUnlock
	holdUnlock = uint64(keyCached-keyBiased) << ownerKindShift
	// Adding holdFree turns a held word into the word of a free key.
	holdFree = uint64(keyFree) << ownerKindShift
)

func makeKeyHold(k ownerKind, n arenakernel.ParticipantID, stamp uint32) keyHold {
	return keyHold(makeOwner(k, n)) | keyHold(stamp)<<32
}

func (h keyHold) owner() ownerWord { return ownerWord(h) }
func (h keyHold) stamp() uint32    { return uint32(h >> 32) }
func (h keyHold) kind() ownerKind  { return h.owner().kind() }

// free reports whether the key is free, that is, whether no process has it or waits for it.
func (h keyHold) free() bool { return h == 0 || h.kind() >= keyFree }

// idle reports whether the entry with the hold h is unused. That is so if its key is free and not cached for a
// process.
func (h keyHold) idle() bool { return h == 0 || h.kind() == keyFree }

// fast reports whether the participant in the word may change it without the queue lock.
func (h keyHold) fast() bool { return h.kind() == keyBiased || h.kind() == keyCached }

// granted reports whether a waiter was granted the key and has not accepted it.
func (h keyHold) granted() bool { return h.kind() == keyGranted && h.owner().participant() != 0 }

// taken reports whether a participant, dead or alive, has the key exclusively, or was granted the key.
func (h keyHold) taken() bool { return h.owner().held() || h.granted() }

// accepted returns the hold that replaces the granted hold h when the waiter accepts the key.
func (h keyHold) accepted() keyHold {
	return makeKeyHold(kindHeld, h.owner().participant(), h.stamp())
}

// claimed returns the hold that replaces h when the holder of the queue lock calls the method claim.
func (h keyHold) claimed() keyHold {
	if h.fast() {
		h &^= holdFast
	}
	return h
}

// valid reports whether h is the word of some state of a key. Other words are damage.
func (h keyHold) valid() bool {
	o := h.owner()
	if o.kind() >= keyFree || h.granted() {
		return o.participant() != 0
	}
	return o.valid() && (!o.free() || h == 0)
}

// passing returns the hold of a key that was unlocked while others wait. Such a key is on its way to the first
// waiter.
func (h keyHold) passing() keyHold {
	return h&^(1<<32-1) | keyHold(makeOwner(kindReserved, h.owner().participant()))
}

// ownerDied returns the hold that replaces h after the participant in h was found dead, with the policy p.
func (h keyHold) ownerDied(p Policy) keyHold {
	if h.granted() {
		return h.passing() // the dead participant never held the key
	}
	if next := h.owner().ownerDied(p); !next.free() {
		return h&^(1<<32-1) | keyHold(next)
	}
	return h.passing()
}

// died returns the participant that the hold names. If the key is not recoverable, that is the dead holder whose
// death made it so.
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

// bucketOf returns the bucket of a key among 1<<log. It folds the halves of the key and uses
// Fibonacci hashing, after Knuth, so that keys which differ in any few bits are spread over all
// buckets. It is part of the ABI.
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
	// multiLogDefault is the logarithm of the default number of buckets. With 64 buckets, which
	// take 32 KiB, 8 busy goroutines seldom compete for the same queue lock.
	multiLogDefault = 6
	multiLogMost    = 16
)
