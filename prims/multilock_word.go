package prims

import (
	"fmt"
	"math/bits"

	"github.com/shmsync/shmsync/arena"
)

// keyHold says who has a key of a MultiLock: the one truth about it.
//
//	bits 0..31   an ownerWord that is never biased
//	bits 32..63  stamp of the hold; of a key that is not recoverable the name of whose death made it so
//
//	owner word      meaning                                              left by
//	free            0: the key is free, the entry is in no use           Unlock with nobody waiting
//	held            held; a Hold with this stamp can unlock it           Lock, who hands it on
//	reserved        let go, and on its way to the first who waits        Unlock, a sweep (policy Release)
//	ownerDead       its holder died; nobody has it                       a sweep
//	recovering      being recovered                                      Recover
//	notRecoverable  a repair failed                                      Recover
//
// Stamps are arrivals of the bucket's monitor, cut to 32 bits, so that a Hold that
// has been unlocked is not taken for the next one's.
//
//	writers: who holds the latch of the bucket; each change is one store
//	readers: the same, tools, looks
//	order:   the latch's
//	futex:   none
//	crash:   names the dead until a sweep; a key on its way is settled by who takes the latch
type keyHold uint64

func makeKeyHold(k ownerKind, n arena.Name, stamp uint32) keyHold {
	return keyHold(makeOwner(k, n)) | keyHold(stamp)<<32
}

func (h keyHold) owner() ownerWord { return ownerWord(h) }
func (h keyHold) stamp() uint32    { return uint32(h >> 32) }
func (h keyHold) free() bool       { return h == 0 }

// valid reports whether some state is encoded so.
func (h keyHold) valid() bool {
	o := h.owner()
	return o.valid() && o.kind() != kindBiased && (!o.free() || h == 0)
}

// passing is the hold when it is let go while others wait.
func (h keyHold) passing() keyHold {
	return h&^(1<<32-1) | keyHold(makeOwner(kindReserved, h.owner().name()))
}

// bereaved is the hold after its name was found dead.
func (h keyHold) bereaved(p Policy) keyHold {
	if next := h.owner().bereaved(p); !next.free() {
		return h&^(1<<32-1) | keyHold(next)
	}
	return h.passing()
}

// died is whose death made the key what it is.
func (h keyHold) died() arena.Name {
	if h.owner() == ownerNotRecoverable {
		return arena.Name(h.stamp() & arena.NameMask)
	}
	return h.owner().name()
}

// String renders the hold by the names of its parts.
func (h keyHold) String() string {
	switch {
	case h.free():
		return "free"
	case !h.valid():
		return fmt.Sprintf("corrupt (%#x)", uint64(h))
	}
	return h.owner().String()
}

// bucketOf is which of 1<<log buckets a key is in: Fibonacci hashing, after Knuth,
// of the key with its halves folded, so that keys that differ in any few bits are
// spread over all buckets. It is part of the ABI.
func bucketOf(key uint64, log uint) int {
	return int((key ^ key>>32) * multiHash >> 1 >> (63 - log&63))
}

const multiHash = 0x9e3779b97f4a7c15 // 2^64 divided by the golden ratio, odd

// multiLog is the logarithm of how many buckets hold n, and at least that of the
// default for 0.
func multiLog(n int) uint {
	if n == 0 {
		return multiLogDefault
	}
	return uint(bits.Len(uint(n - 1)))
}

const (
	// multiLogDefault is the logarithm of how many buckets a MultiLock has: enough
	// that 8 goroutines at work seldom meet at a latch, and 32 KiB.
	multiLogDefault = 6
	multiLogMost    = 16
)
