package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// spinWord is the state word of a SpinLock and of an RWSpinLock. It names the exclusive holder.
// The readers of an RWSpinLock are counted elsewhere; see rwSpinCount.
//
//	bits 0..28   name  slot and generation of a participant; 0 for nobody
//	bits 29..31  kind
//
//	kind  name  meaning                                             left by
//	0     0     free (also all-zero memory)                         Unlock, UnlockUpgradable, Downgrade
//	0     n     held by n                                           Lock, Upgrade
//	1     n     claimed by n, which waits for readers to leave      Lock
//	2     n     held by n for upgrade                               LockUpgradable, DowngradeToUpgradable
//	3     n     owner-dead: n died while it held; it is not held    a process that found the dead name
//	3     0     owner-dead, and the participant that died is gone   Recover of an RWSpinLock
//	4     n     being recovered by n                                Recover
//	5     0     not recoverable: a repair failed                    Recover
//	6     n     held by n for upgrade, which waits for readers to   Upgrade
//	            leave
//
// Every other value is corrupt, and so are kinds 1, 2 and 6 in a SpinLock. A process that finds a word whose
// name is not current changes the word. Kinds 0, 2 and 6 become kind 3 (policy PolicyReport) or 0 (policy
// PolicyRelease). Kind 4 becomes kind 3. Kind 1 becomes 0, because its owner never had the lock.
//
// A participant that has no hold gets one only while the word is 0. A hold for reading needs no change of the word.
// Every other hold is granted by a CAS of the value 0. A wake gives nothing to a waiter; it only makes the waiter try
// again.
//
//	writers: the locking and unlocking calls, Recover, reaper (any process)
//	readers: the same, and RLock
//	order:   acquire on the CAS that takes, release on the CAS that gives back; then
//	         seq-cst before the loads of the wake words; seq-cst against the counts
//	         of readers
//	futex:   none; waiters sleep on the wake words
//	crash:   names the dead participant until a process finds the death; see docs/robustness.md
type spinWord uint32

type spinKind uint32

const (
	spinHeld spinKind = iota
	spinDraining
	spinUpgrade
	spinOwnerDead
	spinRecovering
	spinNotRecoverable
	spinUpgrading

	// spinRead is the kind that a caller asks for if it wants to read. No state word contains this kind.
	spinRead
)

const (
	spinKindShift = 29

	spinFree spinWord = 0
	spinLost          = spinWord(spinNotRecoverable << spinKindShift)

	// spinOwnerGone is the state word that a Recover stores when it gives up. It says that a holder died, but does not
	// name the holder. While the Recover waited for readers, the word named the recovering process. So another
	// participant may have got the ID of the dead holder by now.
	spinOwnerGone = spinWord(spinOwnerDead << spinKindShift)
)

func makeSpin(k spinKind, n arenakernel.ParticipantID) spinWord {
	return spinWord(uint32(k)<<spinKindShift | uint32(n))
}

func (w spinWord) kind() spinKind { return spinKind(w >> spinKindShift) }
func (w spinWord) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w & arenakernel.ParticipantIDMask)
}
func (w spinWord) free() bool { return w == spinFree }

// held reports whether a participant, dead or alive, holds the lock exclusively or for upgrade.
func (w spinWord) held() bool {
	switch w.kind() {
	case spinHeld, spinDraining, spinUpgrade, spinRecovering, spinUpgrading:
		return w.participant() != 0
	}
	return false
}

// valid reports whether a correct process may have written w. readers is true if w is the word of an RWSpinLock.
func (w spinWord) valid(readers bool) bool {
	switch w.kind() {
	case spinHeld:
		return true
	case spinOwnerDead:
		return readers || w.participant() != 0
	case spinRecovering:
		return w.participant() != 0
	case spinDraining, spinUpgrade, spinUpgrading:
		return readers && w.participant() != 0
	case spinNotRecoverable:
		return w == spinLost
	}
	return false
}

// endsWaits reports whether every wait for the lock ends with an error, until a Recover has succeeded. The argument
// readers is that of valid.
func (w spinWord) endsWaits(readers bool) bool {
	return !w.valid(readers) || w.kind() == spinOwnerDead || w == spinLost
}

// ownerDied returns the word after the participant that it names was found dead.
func (w spinWord) ownerDied(p Policy) spinWord {
	switch {
	case !w.held():
		return w
	case w.kind() == spinDraining, p == PolicyRelease && w.kind() != spinRecovering:
		return spinFree
	}
	return makeSpin(spinOwnerDead, w.participant())
}

// String describes the word by the names of its parts.
func (w spinWord) String() string {
	switch {
	case w.free():
		return "free"
	case !w.valid(true):
		return fmt.Sprintf("corrupt (%#08x)", uint32(w))
	}
	if w == spinOwnerGone {
		return "owner-dead"
	}
	switch w.kind() {
	case spinHeld:
		return "held by " + w.participant().String()
	case spinDraining:
		return "claimed by " + w.participant().String() + ", which waits for readers"
	case spinUpgrade:
		return "held for upgrade by " + w.participant().String()
	case spinOwnerDead:
		return "owner-dead, held by " + w.participant().String()
	case spinRecovering:
		return "being recovered by " + w.participant().String()
	case spinUpgrading:
		return "being upgraded by " + w.participant().String() + ", which waits for readers"
	}
	return "not recoverable"
}
