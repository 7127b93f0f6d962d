package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// readerWord is the state of one participant as a reader of an RWMutex. Each participant has its
// own word on its own cache lines, so that readers of different processes write nothing that the
// others read.
//
//	bits 0..17   generation  of the participant whose word it is; together with the slot
//	                         of the word, this is the participant's ID
//	bits 18..40  waiting     goroutines that have registered to be let in
//	bits 41..63  reading     holds, and goroutines that check whether they have one
//
//	reading  waiting  meaning                                       left by
//	0        0        nothing (also all-zero memory)                RUnlock, back-out, reap
//	n        0        n hold, or try                                RLock, a grant
//	0        m        m wait for the gate to open                   RLock that found it closed
//	n        m        both                                          the same
//
// A word whose name is not current counts as 0, whatever its contents. No field can carry into
// the next: reading is the highest and wraps, and the count of waiting never exceeds the
// goroutines of a process.
//
// A grant turns all waiting goroutines into readers by one CAS. The writer that opens the gate
// makes it while it has the writers' mutex. So the hold exists before its goroutine knows of it,
// and no writer comes in between.
//
//	writers: its participant (add, CAS); the opener of the gate (CAS waiting to reading);
//	         reapers, and the next participant in the slot (CAS to 0)
//	readers: writers that wait for readers to leave, tools
//	order:   seq-cst against the gate: add, then look at the gate; close the gate, then look
//	         at the words
//	futex:   none; waiters sleep on the words of the wake words
//	crash:   counts of the dead have no meaning, and a reaper removes them
type readerWord uint64

const (
	readerGeneration            = 1<<18 - 1
	readerWaitShift             = 18
	readerShift                 = 41
	readerMost                  = 1<<23 - 1
	readerWait       readerWord = 1 << readerWaitShift
	readerOne        readerWord = 1 << readerShift
	// readerBack, when added, undoes the addition of a readerOne.
	readerBack = ^uint64(readerOne) + 1
	// readerBelow is the smallest word that shows more releases than holds.
	readerBelow = uint64(readerMost) << readerShift
)

func (w readerWord) generation() uint32 { return uint32(w & readerGeneration) }
func (w readerWord) waiting() uint32    { return uint32(w>>readerWaitShift) & readerMost }
func (w readerWord) reading() uint32    { return uint32(w >> readerShift) }

// name is the participant whose word it is, in the given slot.
func (w readerWord) name(slot int) arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w.generation()*(arenakernel.MaxSlots+1) + uint32(slot))
}

// registered is the word after a goroutine that tried waits instead.
func (w readerWord) registered() readerWord { return w - readerOne + readerWait }

// tried is the word after a goroutine that waited tries again.
func (w readerWord) tried() readerWord { return w - readerWait + readerOne }

// granted is the word after all waiting goroutines were let in.
func (w readerWord) granted() readerWord {
	return w.cleared() + readerWord(w.reading()+w.waiting())<<readerShift
}

// cleared is the word without counts.
func (w readerWord) cleared() readerWord { return w & readerGeneration }

// String renders the word by the names of its parts.
func (w readerWord) String() string {
	s := fmt.Sprintf("%d reading", w.reading())
	if w.reading() == readerMost {
		s = "given back too often"
	}
	if w.waiting() != 0 {
		s += fmt.Sprintf(", %d waiting", w.waiting())
	}
	return s
}

// gateWord is the gate of an RWMutex. Readers look at it, and it alone says who writes.
//
//	bits 0..28   name  slot and generation of a participant; 0 for nobody
//	bits 29..31  kind
//
//	kind  name  meaning                                              left by
//	0     0     open (also all-zero memory): readers come in         Unlock, a writer that gave up
//	0     n     held: n writes, no reader is in                      Lock, Upgrade, when the last reader
//	                                                                 has left
//	1     n     closed: n waits for the readers to leave             Lock, Upgrade
//	3     n     owner-dead: n died while it wrote                    a process that found the dead name
//	4     n     being recovered by n                                 Recover
//	5     0     not recoverable: a repair failed                     Recover
//
// Every other value is corrupt. The kinds have the same numbers as in the owner word of a Mutex. Only the
// process that has the writers' mutex closes the gate, and it opens the gate before it releases the mutex. An
// upgradable hold is no state of the gate: its process has the writers' mutex, and the gate is open. If the
// name is not current, a gate of kind 1 becomes open, because nothing was written. Kinds 0 and 4 become kind 3;
// under the policy PolicyRelease, kind 0 becomes open. Under the policy PolicyRollback, kinds 0 and 4 become
// kind 4 of the process that rolls back, which has the writers' mutex, and then open; see rollBackRWMutex.
//
//	writers: Lock, Upgrade, Unlock, the downgrades of a write hold, Recover, a process that
//	         finds a death (any process, each by CAS)
//	readers: every RLock and RUnlock
//	order:   release on the CAS that opens, acquire on the load that finds it open;
//	         seq-cst against the reader words
//	futex:   none; waiters sleep on the words of the wake words
//	crash:   names the dead until a process finds it; see docs/robustness.md
type gateWord uint32

const (
	gateHeld           = kindHeld
	gateClosed         = kindBiased
	gateOwnerDead      = kindOwnerDead
	gateRecovering     = kindRecovering
	gateNotRecoverable = gateWord(ownerNotRecoverable)
	gateOpen           = gateWord(0)
)

func makeGate(k ownerKind, n arenakernel.ParticipantID) gateWord { return gateWord(makeOwner(k, n)) }

func (g gateWord) kind() ownerKind                        { return ownerWord(g).kind() }
func (g gateWord) participant() arenakernel.ParticipantID { return ownerWord(g).participant() }

// taken reports whether a participant, dead or alive, keeps readers out.
func (g gateWord) taken() bool {
	switch g.kind() {
	case gateHeld, gateClosed, gateRecovering:
		return g.participant() != 0
	}
	return false
}

// valid reports whether g is the word of some state.
func (g gateWord) valid() bool { return g.kind() != kindReserved && ownerWord(g).valid() }

// ownerDied is the gate after its participant was found dead.
func (g gateWord) ownerDied(p Policy) gateWord {
	switch {
	case !g.taken():
		return g
	case g.kind() == gateClosed, g.kind() == gateHeld && p == PolicyRelease:
		return gateOpen
	}
	return makeGate(gateOwnerDead, g.participant())
}

// String renders the word by the names of its parts.
func (g gateWord) String() string {
	switch {
	case g == gateOpen:
		return "open"
	case g.valid() && g.kind() == gateClosed:
		return "closed by " + g.participant().String()
	case g.valid():
		return ownerWord(g).String()
	}
	return fmt.Sprintf("corrupt (%#08x)", uint32(g))
}
