package arenakernel

import "fmt"

// epochWord says whether an epoch of the arena has begun, and which participant is beginning an
// epoch.
//
//	bits 0..31   number of the epoch; 0 before the first
//	bits 32..60  claimant: the ParticipantID of the process that has the gate; 0 for a
//	             process that is no participant, and while there is no claimant
//	bits 61..63  phase
//
//	phase     meaning                            becomes       by
//	new       no epoch has begun                 claiming 1    a process that has the gate
//	open      epoch n has begun                  claiming n+1  a process that has the gate
//	claiming  the claimant asks whether any      claimed n     the claimant, if it has found no participant that is in
//	          participant is in                  open n-1      the claimant or a joiner, if it has found a participant
//	                                                           that is in; the phase is new if n is 1
//	                                             claimed n     a claimant that gives up because of a death, if the
//	                                                           phase was claimed before
//	                                             claiming n    the next process that has the gate
//	claimed   no participant is in: the          open n        the claimant, when OnFirst has returned
//	          claimant repairs, runs OnFirst     removed       the claimant
//	          or removes                         claiming n    the next process that has the gate
//	removed   the file has lost its name         -
//
// The gate is an exclusive OFD lock on byte [gateByte]. A process takes the gate only if it has
// found no participant in the arena. An ordinary joiner does not take it.
//
// A claimant that dies may leave the phase at claiming or claimed. The phase must be claiming while
// a claimant checks the slots, and claimed while the claimant is alone in the arena.
//
//	writers: the process that has the gate; a joiner that ends a claim
//	readers: joiners, after their slot is live; tools
//	order:   seq-cst; a claimant stores claiming before it reads the slots
//	futex:   none
//	crash:   the kernel releases the gate, and the next process that gets it claims anew
type epochWord uint64

type epochPhase uint32

const (
	epochNew epochPhase = iota
	epochOpen
	epochClaiming
	epochClaimed
	epochRemoved
)

func (p epochPhase) String() string {
	switch p {
	case epochNew:
		return "new"
	case epochOpen:
		return "open"
	case epochClaiming:
		return "claiming"
	case epochClaimed:
		return "claimed"
	case epochRemoved:
		return "removed"
	}
	return fmt.Sprintf("phase %d", uint32(p))
}

func makeEpochWord(p epochPhase, number uint32, claimant ParticipantID) epochWord {
	return epochWord(uint64(number) | uint64(claimant&ParticipantIDMask)<<32 | uint64(p)<<61)
}

func (w epochWord) phase() epochPhase       { return epochPhase(w >> 61) }
func (w epochWord) number() uint32          { return uint32(w) }
func (w epochWord) claimant() ParticipantID { return ParticipantID(w>>32) & ParticipantIDMask }
func (w epochWord) String() string {
	return fmt.Sprintf("%s %d by %s", w.phase(), w.number(), w.claimant())
}

// claim returns the epoch word with which a process claims the arena, to begin an epoch or to
// remove the arena, if the word was w before. If the epoch of w was open, the claim is for the next
// epoch number. Otherwise it is for the number of w.
func (w epochWord) claim(claimant ParticipantID) epochWord {
	n := w.number()
	if w.phase() == epochOpen || n == 0 {
		if n++; n == 0 {
			n = 2 // the largest number was reached; 1 would mean an arena that no participant has used
		}
	}
	return makeEpochWord(epochClaiming, n, claimant)
}

// untouched reports whether no participant can have changed the arena yet, not even in OnFirst.
func (w epochWord) untouched() bool {
	return w.number() == 0 || w.number() == 1 && w.phase() == epochClaiming
}

// end returns the epoch word before the claim w. Storing it ends the claim, if the claimant or a
// joiner has found that a participant is in the arena.
func (w epochWord) end() epochWord {
	if w.number() <= 1 {
		return 0
	}
	return makeEpochWord(epochOpen, w.number()-1, 0)
}

func (w epochWord) with(p epochPhase) epochWord { return makeEpochWord(p, w.number(), w.claimant()) }

// opened returns the epoch word of the epoch that w claims, in the phase open.
func (w epochWord) opened() epochWord { return makeEpochWord(epochOpen, w.number(), 0) }

// The admission word of a slot says whether the participant of the slot is in the arena.
//
//	bits 0..1  admission
//
//	admission  meaning                                   becomes
//	pending    its Open has not returned                 in or first, by the participant; refused, by a claimant
//	in         it is in, or has been                     pending, by the next joiner of the slot
//	refused    a claimant has visited the slot: the      pending, by the participant, which then reads the
//	           participant has to read the epoch again   epoch word again
//	first      it has claimed an epoch, and may change   in, by the participant; pending, by the next joiner of
//	           the arena                                 the slot
//
// A joiner stores pending before its slot is live, so the admission word of a live slot always
// belongs to the participant in the slot.
//
//	writers: the participant; the process that has the gate, from pending to refused only
//	readers: joiners, claimants, tools
//	order:   seq-cst
//	futex:   none
//	crash:   any value may be left; that of a dead participant says whether it may have changed the arena
const (
	admissionPending = iota
	admissionIn
	admissionRefused
	admissionFirst
)
