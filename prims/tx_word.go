package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// logState is the state word of an undo log, in which the holder of a lock saves data before it changes the data.
// The word alone describes the transaction of the lock's holder, and says which records of the log are valid.
//
//	bits 0..31   tail   bytes of valid records, a multiple of 8
//	bits 32..60  name   the process whose transaction it is, or was
//	bits 61..63  phase  see below
//
//	phase      tail  name  meaning                                          left by
//	idle       0     0     no transaction has changed anything              commit, the end of a rollback
//	active     n     D     a transaction of D may have changed what it      Save, Alloc, Free
//	                       has recorded
//	undone     n     D     all bytes are as before; the blocks of the       abort, a rollback
//	                       records are being undone
//	committed  n     D     all bytes are as D wants them; the blocks of     commit
//	                       the records are being committed
//	lost       0     0     the records have no meaning any more, and only   the process that makes the lock
//	                       repair makes the data whole                     not recoverable
//
// Every other value is corrupt. Only a transaction with records of blocks goes through undone
// or committed.
//
// The lock is a Mutex or an RWMutex. In an RWMutex, the owner word that this comment speaks of is the gate.
//
// Only the holder of the lock writes the word, with the two exceptions below. A process that rolls back the
// transaction of D holds the lock, and the owner word names that process. The log keeps the ID of D meanwhile.
//
//	idle -> active                         the first Save, Alloc or Free
//	active -> active, with more tail       the next one
//	active -> idle                         commit without blocks (the commit), abort without blocks
//	active -> committed -> idle            commit with blocks (the first step is the commit)
//	active -> undone -> idle               abort or rollback with blocks
//	any -> lost                            the log cannot be undone, or Recover begins
//	active -> lost                         without the lock, in the two cases below
//	lost -> idle                           Recover has repaired the data
//
// In two cases a process marks the log lost by a compare-and-swap, without the lock. In both cases the function
// of an Update of D has unlocked the lock before.
//
//   - D itself does so at the end of that Update, unless D has the lock again.
//   - A reaper of H does so before it takes the lock from H; see disown. H is a later holder that is gone.
//     (1) The reaper reads the owner word, which names H, and then the log state. (2) It puts the ID of H
//     into an act word, so no participant gets this ID from now on. (3) It checks that the owner word is
//     unchanged, and that H is gone. So H had the lock all the time from (1) to (3), and only H or another
//     reaper of H can have written the log state. Hence the log state that was read is not that of a living
//     holder. If another reaper of H stored lost first, the compare-and-swap of this reaper fails.
//     ABA: after a Recover, a living D may begin a transaction that saves the same number of bytes, so that
//     the log state has the same value again. A reaper that was stopped since (3) then marks the log of D
//     lost. D does not notice, and commits or undoes the transaction as always. The lock becomes not
//     recoverable only if D dies in this transaction, and calls then report that.
//
// The log is marked lost before the lock becomes not recoverable, and before a Recover calls the repair. Otherwise,
// if a process died during the repair, a rollback would overwrite the repaired data.
//
// Order of the stores. The records below tail are complete before the store of tail. The caller's stores to the
// bytes that Save recorded come after the store of active, and before the store that commits. The last byte is
// restored before the store of undone. In the phases undone and committed no byte is restored, because the blocks
// that contain the bytes may already belong to other processes.
//
//	writers: the holder of the lock, by a store that the compiler cannot move, see storeLogState and
//	         releaseLogState; D and a reaper, see above
//	readers: the next holder, after a death; a process that deletes an object or frees memory which D had
//	         open, see hasTransactionOf in package arenakernel; tools
//	order:   the store after a rollback is a release, and a load without the lock acquires; else relaxed:
//	         the lock carries the edge between holders; the stores of one thread are seen in their
//	         order by a process that found the thread gone
//	futex:   none
//	crash:   idle: nothing to do. active, undone: the next holder rolls back. committed: the next
//	         holder goes on with the commit. Each may be repeated from its beginning. lost: the
//	         next holder makes the lock not recoverable
type logState uint64

type logPhase uint8

const (
	logIdle logPhase = iota
	logActive
	logUndone
	logCommitted
	logLost
)

const (
	logNameShift  = 32
	logPhaseShift = 61
)

// logStateLost is the state of a log that cannot be used because the data of its lock needs a repair.
const logStateLost = logState(logLost) << logPhaseShift

func makeLogState(p logPhase, n arenakernel.ParticipantID, tail uint32) logState {
	return logState(tail) | logState(n)<<logNameShift | logState(p)<<logPhaseShift
}

func (s logState) phase() logPhase { return logPhase(s >> logPhaseShift) }
func (s logState) tail() uint32    { return uint32(s) }
func (s logState) participant() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(s>>logNameShift) & arenakernel.ParticipantIDMask
}

// valid reports whether s is idle, or is a state from which a log of the given size can be undone.
func (s logState) valid(size uint32) bool {
	if s == 0 {
		return true
	}
	return s.phase() >= logActive && s.phase() <= logCommitted && s.participant() != 0 &&
		s.tail() >= logFooter && s.tail() <= size && s.tail()%8 == 0
}

// String describes the word by the names of its parts.
func (s logState) String() string {
	if s == 0 {
		return "idle"
	}
	if s == logStateLost {
		return "lost: the data needs a repair"
	}
	name, bytes := s.participant(), s.tail()
	switch s.phase() {
	case logActive:
		return fmt.Sprintf("active for %v, %d bytes", name, bytes)
	case logUndone:
		return fmt.Sprintf("bytes of %v are undone, its blocks follow, %d bytes", name, bytes)
	case logCommitted:
		return fmt.Sprintf("bytes of %v are committed, its blocks follow, %d bytes", name, bytes)
	}
	return fmt.Sprintf("corrupt (%#016x)", uint64(s))
}

// Kinds of the records of a log.
const (
	logBytes     = iota // the record has the bytes that were at the offset
	logAlloc            // the transaction has allocated the block at the offset
	logFree             // the transaction frees the block at the offset if it commits
	logTemporary        // the transaction has allocated the block, and frees it in any case
	logGiven            // the block is freed as soon as the log is idle; see endBlocks
	logKinds
)

// logFooter is the size of the part of a record that follows the saved bytes: offset (8), length (4), kind (4).
const logFooter = 16
