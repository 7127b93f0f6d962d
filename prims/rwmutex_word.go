package prims

import (
	"fmt"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// readerWord is the state of one participant as a reader of an RWMutex. Each participant has its own word on
// its own cache lines, so that readers of different processes do not contend for a cache line.
//
//	bits 0..17   generation  of the participant whose word it is; together with the slot
//	                         of the word, this is the participant's ID
//	bits 18..40  waiting     goroutines that have registered to be let in
//	bits 41..63  reading     holds, and tries: goroutines that check whether they have a hold
//
//	reading  waiting  meaning                                       left by
//	0        0        nothing (also all-zero memory)                RUnlock, a failed try, reap
//	n        0        n holds or tries                              RLock, a grant
//	0        m        m goroutines wait for the gate to open        RLock that found the gate closed
//	n        m        n holds or tries, m goroutines wait           calls of both kinds
//
// If the participant of a word is dead or has left, the word counts as 0, whatever its contents. No field overflows
// into another: reading has the highest bits of the word, and waiting is at most readerWaitMost. If so many
// goroutines wait, a further call of RLock gets an error.
//
// When a writer opens the gate, it turns all waiting goroutines into readers with one CAS, which is called a grant.
// It does so while it still has the writers' mutex. So the holds exist before the next writer can close the gate,
// even if their goroutines do not know of them yet.
//
//	writers: its participant (add, CAS); the opener of the gate (CAS waiting to reading);
//	         reapers, and the next participant in the slot (CAS to 0)
//	readers: writers that wait for readers to leave, tools
//	order:   seq-cst against the gate: a reader adds and then reads the gate; a writer closes the
//	         gate and then reads the words
//	futex:   none; waiters sleep on the wake words
//	crash:   counts of a dead participant have no meaning, and a reaper removes them
type readerWord uint64

const (
	readerGeneration            = 1<<18 - 1
	readerWaitShift             = 18
	readerShift                 = 41
	readerMost                  = 1<<23 - 1
	readerWaitMost              = readerMost - 1 // the field reading has room for them after a grant
	readerWait       readerWord = 1 << readerWaitShift
	readerOne        readerWord = 1 << readerShift
	// Adding readerBack to a word undoes the addition of readerOne.
	readerBack = ^uint64(readerOne) + 1
	// readerBelow is the smallest word whose field reading has wrapped below 0, because there were more releases than
	// holds.
	readerBelow = uint64(readerMost) << readerShift
)

func (w readerWord) generation() uint32 { return uint32(w & readerGeneration) }
func (w readerWord) waiting() uint32    { return uint32(w>>readerWaitShift) & readerMost }
func (w readerWord) reading() uint32    { return uint32(w >> readerShift) }

// name returns the participant to which w belongs, if w is the word of the slot with the given number.
func (w readerWord) name(slot int) arenakernel.ParticipantID {
	return arenakernel.ParticipantID(w.generation()*(arenakernel.MaxSlots+1) + uint32(slot))
}

// registered returns the word after a goroutine has become a waiter. The count of readers included that goroutine
// until now; from now on, the count of waiters does.
func (w readerWord) registered() readerWord { return w - readerOne + readerWait }

// tried returns the word after a waiting goroutine has begun to check whether it has a hold. The count of readers
// then includes it.
func (w readerWord) tried() readerWord { return w - readerWait + readerOne }

// granted returns the word after all waiting goroutines were let in.
func (w readerWord) granted() readerWord {
	return w.cleared() + readerWord(w.reading()+w.waiting())<<readerShift
}

// cleared returns the word with both counts 0.
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

// gateWord is the gate of an RWMutex. Each reader checks it. Only this word says which process writes.
//
//	bits 0..28   name  slot and generation of a participant; 0 for nobody
//	bits 29..31  kind
//
//	kind  name  meaning                                              left by
//	0     0     open (also all-zero memory): readers come in         Unlock, a writer that gave up
//	0     n     held: n writes, no reader is in                      Lock, Upgrade, when the last reader
//	                                                                 has left
//	1     n     closed: n waits for the readers to leave             Lock, Upgrade
//	3     n     owner-dead: n died while it wrote                    a process that found n dead
//	4     n     being recovered by n                                 Recover
//	5     0     not recoverable: a repair failed                     Recover
//
// Every other value is corrupt. The kinds have the same numbers as in the owner word of a Mutex. Only the process
// that has the writers' mutex closes the gate, and that process opens the gate before it releases the mutex. An
// upgradable hold is not a state of the gate: its process has the writers' mutex, and the gate is open.
//
// If the participant in the gate is dead or has left, the next process that finds this changes the gate. Kind 1
// becomes open, because nothing was written. Kinds 0 and 4 become kind 3. Under PolicyRelease, kind 0 becomes open
// instead. Under PolicyRollback, the process that rolls back has the writers' mutex. It changes kinds 0 and 4 to
// kind 4 with its own ID, and then to open; see rollBackRWMutex.
//
//	writers: Lock, Upgrade, Unlock, the downgrades of a write hold, Recover, a process that
//	         finds a death (any process, each by CAS)
//	readers: every RLock and RUnlock
//	order:   release on the CAS that opens, acquire on the load that finds it open;
//	         seq-cst against the reader words
//	futex:   none; waiters sleep on the wake words
//	crash:   names the dead participant until a process finds that; see docs/robustness.md
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

// taken reports whether the gate names a participant, dead or alive, that keeps readers out.
func (g gateWord) taken() bool {
	switch g.kind() {
	case gateHeld, gateClosed, gateRecovering:
		return g.participant() != 0
	}
	return false
}

// valid reports whether g is a value that a correct process may have stored.
func (g gateWord) valid() bool { return g.kind() != kindReserved && ownerWord(g).valid() }

// ownerDied returns the word that replaces g after its participant was found dead, with the policy p.
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
