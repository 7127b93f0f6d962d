package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// ownerWord is the owner word of a Mutex. Only this word says which process holds the Mutex.
//
//	bits 0..28   name  slot and generation of a participant; 0 for nobody
//	bits 29..31  kind
//
//	kind  name  meaning                                           left by
//	0     0     free (also all-zero memory)                       Unlock
//	0     n     held by n                                         Lock
//	1     n     held by n, biased: n releases by a plain store    Lock
//	2     n     free, but reserved for a waiter of n that         Unlock
//	            has been losing for long
//	3     n     owner-dead: n died while it held; it is not held  a process that found the dead name
//	4     n     being recovered by n                              Recover
//	5     0     not recoverable: a repair failed                  Recover
//
// Every other value is corrupt. A word of kind 0, 1 or 4 whose participant is dead or has left counts as owner-dead.
// Under PolicyReport, a process that finds such a word changes it to kind 3. Under PolicyRelease, it changes a word
// of kind 0 or 1 to 0, and a word of kind 4 to kind 3. For PolicyRollback, see rollBackMutex. A word of kind 2 whose
// participant is dead or has left counts as free.
//
// A process gets the lock only by a CAS on this word. A process that was woken does not have the lock yet; it only
// tries that CAS.
//
//	writers: Lock, Unlock, Recover, reaper (any process)
//	readers: the same
//	order:   acquire on the CAS that takes, release on the store or CAS that gives back;
//	         then seq-cst before the load of the wake word, which a biased release
//	         leaves to the waiter's fence
//	futex:   none; waiters sleep on the wake word
//	crash:   the word names the dead participant until a process finds the death; see docs/robustness.md
type ownerWord uint32

type ownerKind uint32

const (
	kindHeld ownerKind = iota
	kindBiased
	kindReserved
	kindOwnerDead
	kindRecovering
	kindNotRecoverable
)

const (
	ownerKindShift = 29
	ownerBiased    = uint32(kindBiased) << ownerKindShift

	ownerFree           ownerWord = 0
	ownerNotRecoverable           = ownerWord(kindNotRecoverable << ownerKindShift)
)

func makeOwner(k ownerKind, n arenakernel.ParticipantID) ownerWord {
	return ownerWord(uint32(k)<<ownerKindShift | uint32(n))
}

func (w ownerWord) kind() ownerKind { return ownerKind(w >> ownerKindShift) }
func (w ownerWord) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w & arenakernel.ParticipantIDMask)
}
func (w ownerWord) free() bool { return w == ownerFree }

// held reports whether the word says that a participant, dead or alive, has the lock exclusively.
func (w ownerWord) held() bool {
	switch w.kind() {
	case kindHeld, kindBiased, kindRecovering:
		return w.participant() != 0
	}
	return false
}

// valid reports whether w is the owner word of some state of a Mutex. Every other word is corrupt.
func (w ownerWord) valid() bool {
	switch w.kind() {
	case kindHeld:
		return true
	case kindBiased, kindReserved, kindOwnerDead, kindRecovering:
		return w.participant() != 0
	case kindNotRecoverable:
		return w == ownerNotRecoverable
	}
	return false
}

// endsWaits reports whether every wait for the lock ends with an error, until a Recover has succeeded.
func (w ownerWord) endsWaits() bool {
	return !w.valid() || w.kind() == kindOwnerDead || w == ownerNotRecoverable
}

// ownerDied returns the word that replaces w when a process finds that the participant in w is dead. p is the policy
// of the lock.
func (w ownerWord) ownerDied(p Policy) ownerWord {
	switch {
	case w.kind() == kindReserved:
		return ownerFree
	case !w.held():
		return w
	case p == PolicyRelease && w.kind() != kindRecovering:
		return ownerFree
	}
	return makeOwner(kindOwnerDead, w.participant())
}

// String renders the word by the names of its parts.
func (w ownerWord) String() string {
	switch {
	case w.free():
		return "free"
	case !w.valid():
		return w.corrupt()
	}
	switch w.kind() {
	case kindHeld:
		return "held by " + w.participant().String()
	case kindBiased:
		return "held by " + w.participant().String() + ", biased"
	case kindReserved:
		return "reserved for " + w.participant().String()
	case kindOwnerDead:
		return "owner-dead, held by " + w.participant().String()
	case kindRecovering:
		return "being recovered by " + w.participant().String()
	}
	return "not recoverable"
}

// corrupt renders a corrupt word.
func (w ownerWord) corrupt() string { return fmt.Sprintf("corrupt (%#08x)", uint32(w)) }
