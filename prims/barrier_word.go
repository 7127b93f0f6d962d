package prims

import (
	"fmt"
	"math"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// barrierMax is the highest number of parties.
const barrierMax = 1<<31 - 1

// barrierState is the state of a Barrier at one moment. It does not say how many parties belong to each process; see
// barrierShare. The methods compute changes in a copy of the state, and have no other effect. A call publishes the
// difference between two states as one change, by means of a recordLog.
//
//	completer  broken           pending  meaning                              what ends this state
//	0          no               > 0      this phase takes arrivals            an arrival; a death
//	0          the next phase   > 0      this phase takes arrivals; a party   an arrival; a death
//	                                     that has arrived is dead
//	n          no, or the next  0        all have arrived, and n runs the     the completion returns or
//	                                     completion                           panics; n dies
//	0          this phase       any      this phase is broken: arrivals do    Reset
//	                                     not count
//
// If all parties have left by ArriveAndDrop, the next phase takes 0 arrivals and never ends.
type barrierState struct {
	phase     uint64
	reset     uint64 // the first phase after the last Reset
	pending   uint64
	expected  uint64
	lost      uint64
	skipped   uint64
	completer arenakernel.ParticipantID
	broken    barrierBroken
}

// barrierBroken says which phase a death leaves incomplete.
//
//	bits 0..28   dead    the participant that died
//	bit  29      broken
//	bit  30      parity  the lowest bit of the number of the broken phase
//	bit  31      0
//
// All bits are 0 if no phase is broken. Only this phase or the next phase can be broken, because a broken phase does
// not end until Reset. So the lowest bit of its number is enough to tell which of the two it is.
type barrierBroken uint32

const (
	barrierIsBroken    barrierBroken = 1 << 29
	barrierParityShift               = 30
)

func barrierBrokenBy(phase uint64, dead arenakernel.ParticipantID) barrierBroken {
	return barrierBroken(dead) | barrierIsBroken | barrierBroken(phase&1)<<barrierParityShift
}

func (b barrierBroken) any() bool { return b&barrierIsBroken != 0 }

func (b barrierBroken) dead() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(b & arenakernel.ParticipantIDMask)
}

// isBroken reports whether this phase is broken.
func (s *barrierState) isBroken() bool {
	return s.broken.any() && uint64(s.broken>>barrierParityShift&1) == s.phase&1
}

// sequence returns the number that waiters sleep on. Each change of the state that ends a wait also changes this
// number.
func (s *barrierState) sequence() uint32 {
	n := uint32(s.phase) << 1
	if s.isBroken() {
		n++
	}
	return n
}

// barrierShare says how many of the parties belong to a participant. A phase is full when all its arrivals have
// come. The field phase is the number of a phase. For that phase, the field parties says how many parties the
// participant has, and the field left says how many of these have not arrived. Later phases do not rewrite these
// fields. The table says what the fields mean for the present phase:
//
//	value of the field phase     parties that it has   parties that have not arrived
//	the present phase            parties               left
//	a phase before, but after    parties               all: each phase since then broke before it was full
//	the last full phase
//	the last full phase          parties - left        all: other processes arrived in place of as many
//	                                                   parties as left says, and have these parties now
//	a phase before that          0                     0: a full phase has passed without the participant
//
// The field gone has the ID of the last participant of the slot that died as a party. The next Reset makes the field
// void: it is valid only while the field goneIn equals the low half of barrierState.reset.
type barrierShare struct {
	name          arenakernel.ParticipantID
	gone          arenakernel.ParticipantID
	phase         uint64
	parties, left uint64
	goneIn        uint64
}

// The method in returns two numbers of the share h for this phase: how many parties it has, and how many of them have
// not arrived yet.
func (s *barrierState) in(h *barrierShare) (parties, left uint64) {
	switch ago := s.phase - h.phase; {
	case ago == 0:
		return h.parties, min(h.left, h.parties)
	case ago <= s.skipped:
		return h.parties, h.parties
	case ago == s.skipped+1:
		parties = h.parties - min(h.left, h.parties) // other processes arrived instead
		return parties, parties
	}
	return 0, 0
}

// put stores two numbers in the share h for this phase: how many parties it has, and how many of them have not
// arrived yet.
func (s *barrierState) put(h *barrierShare, parties, left uint64) {
	h.phase, h.parties, h.left = s.phase, min(parties, barrierMax), min(left, parties, barrierMax)
}

// take gives the share h of a slot to the participant me, which has the slot now. If the previous participant of the
// slot died as a party, its parties are lost.
func (s *barrierState) take(h *barrierShare, me arenakernel.ParticipantID) {
	if h.name != me {
		s.lose(h)
		h.name = me
		s.put(h, 0, 0)
	}
}

// breakBy records that the death of a participant breaks the given phase, which is this phase or the next. It does
// nothing if that phase is broken already.
func (s *barrierState) breakBy(phase uint64, dead arenakernel.ParticipantID) {
	if !s.broken.any() || phase == s.phase && !s.isBroken() {
		s.broken = barrierBrokenBy(phase, dead)
	}
}

// full reports whether all arrivals of this phase have come. If a phase is full, but some parties of a share have not
// arrived, other processes have arrived in their place and have these parties now. If a phase is both full and
// broken, it broke after its completion had begun.
func (s *barrierState) full() bool {
	return s.completer != 0 || s.isBroken() && s.pending == 0 && s.expected > 0
}

// lose breaks the phase that the death of the participant of h leaves incomplete: this phase, or the next. The
// parties of h are lost.
func (s *barrierState) lose(h *barrierShare) {
	parties, left := s.in(h)
	if s.full() {
		parties, left = parties-left, 0
	}
	phase := s.phase
	switch {
	case left > 0:
	case parties > 0:
		phase++
	default:
		h.parties, h.left = 0, 0 // the share has no parties in this phase, or other processes have them now
		return
	}
	s.breakBy(phase, h.name)
	s.lost = min(s.lost+parties, math.MaxUint32)
	h.parties, h.left, h.gone, h.goneIn = 0, 0, h.name, uint64(uint32(s.reset))
}

// giveUp breaks this phase because its completion cannot end: the process that ran the completion has died, or the
// completion has panicked.
func (s *barrierState) giveUp() {
	s.breakBy(s.phase, s.completer)
	s.completer = 0
}

// end ends this phase, which is not broken.
func (s *barrierState) end() {
	s.phase++
	s.pending, s.skipped, s.completer = s.expected, 0, 0
}

// count counts n arrivals of the participant of the share h, and then removes as many of its parties as drop says.
// The caller makes sure that the phase expects at least n arrivals. If these arrivals are the last of the phase, the
// participant completer has to run the completion. If completer is 0, the phase ends at once.
func (s *barrierState) count(h *barrierShare, n, drop uint64, completer arenakernel.ParticipantID) {
	parties, left := s.in(h)
	own := min(n, left)
	parties += n - own
	drop = min(drop, s.expected)
	s.expected -= drop
	s.put(h, parties-min(drop, parties), left-own)
	s.pending -= n
	switch {
	case s.pending > 0:
	case completer == 0:
		s.end()
	default:
		s.completer = completer
	}
}

// drop removes n parties from the share h while this phase is broken. Later phases expect n arrivals less.
func (s *barrierState) drop(h *barrierShare, n uint64) {
	parties, left := s.in(h)
	parties -= min(n, parties)
	s.expected -= min(n, s.expected)
	s.put(h, parties, min(parties, left))
}

// register gives the share h n more parties. If a completion runs, this phase takes no more arrivals, and the new
// parties arrive first in the next phase.
func (s *barrierState) register(h *barrierShare, n uint64) {
	parties, left := s.in(h)
	if s.completer == 0 {
		left += n
	}
	s.put(h, parties+n, left)
}

// begin ends a broken phase and begins the next phase with the given number of parties. If parties is 0, the next
// phase has the parties that are alive. It has at least one party, the process that called Reset.
func (s *barrierState) begin(parties uint64) {
	if parties == 0 {
		parties = max(s.expected-min(s.lost, s.expected), 1)
	}
	if s.skipped = min(s.skipped+1, math.MaxUint32); s.full() {
		s.skipped = 0
	}
	s.phase++
	s.reset, s.pending, s.expected = s.phase, parties, parties
	s.completer, s.broken, s.lost = 0, 0, 0
}

// barrierBreak records that a phase broke. The record of phase p is at index p modulo 32, so the record of a later
// broken phase replaces it. Reset writes the record before the phase ends.
//
//	bits 0..28   dead      the first party that died
//	bits 29..33  lost      how many parties died; 31 means 31 or more
//	bit  34      recorded  1 in each record, so that a word of 0 is not a record
//	bits 35..63  lap       the phase / 32, modulo 2^29
//
//	writers: Reset, by CAS
//	readers: waits for a phase before the last Reset, tools
//	order:   release by the CAS, acquire by a reader
//	futex:   none
//	crash:   until its phase ends, readers use the state and not the record; the next Reset writes the record again
type barrierBreak uint64

const (
	barrierLostShift               = 29
	barrierLostMost                = 31
	barrierRecorded   barrierBreak = 1 << 34
	barrierLapShift                = 35
	barrierLaps                    = 1 << 29
	barrierRemembered              = barrierLaps / 2 * barrierBreaks // older phases are forgotten
	barrierLapOfPhase              = 5                               // log2 of barrierBreaks
)

var _ = [1]struct{}{}[barrierBreaks-1<<barrierLapOfPhase]

// remembered returns the record to store for this phase, which is broken.
func (s *barrierState) remembered() barrierBreak {
	return barrierBreak(s.broken.dead()) | barrierBreak(min(s.lost, barrierLostMost))<<barrierLostShift | barrierRecorded |
		barrierBreak(s.phase>>barrierLapOfPhase)<<barrierLapShift
}

func (r barrierBreak) dead() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(r & arenakernel.ParticipantIDMask)
}
func (r barrierBreak) lost() uint64 { return uint64(r >> barrierLostShift & barrierLostMost) }

// laps returns by how many laps of 32 phases the phase of the record r is later than phase p. Both phases have their
// record in the same word, so they differ by whole laps. ok is false if r is not a record.
func (r barrierBreak) laps(p uint64) (after int32, ok bool) {
	d := (uint32(r>>barrierLapShift) - uint32(p>>barrierLapOfPhase)) << 3 // 29 bits, with their sign extended
	return int32(d) >> 3, r&barrierRecorded != 0
}

// barrierVerdict is how a wait for a phase ends.
type barrierVerdict struct {
	over, broken bool
	// dead is the participant that died first, if the phase broke. It is 0 if nobody knows how the phase ended.
	dead arenakernel.ParticipantID
	lost uint64
}

// verdict says how a wait for phase p ends. The parameter r is the word in which the record of phase p would be. The
// caller has read r after s.
func (s *barrierState) verdict(p uint64, r barrierBreak) barrierVerdict {
	if s.phase <= p {
		if !s.isBroken() {
			return barrierVerdict{}
		}
		// If a hostile peer has marked the phase as broken without the ID of a dead participant, the ID 1 stands for
		// that participant, because 0 would mean that nobody knows how the phase ended.
		return barrierVerdict{true, true, max(s.broken.dead(), 1), s.lost}
	}
	after, ok := r.laps(p)
	switch {
	case p >= s.reset:
	case s.phase-p >= barrierRemembered, ok && after > 0:
		return barrierVerdict{over: true, broken: true, lost: s.lost}
	case ok && after == 0:
		return barrierVerdict{true, true, max(r.dead(), 1), r.lost()}
	}
	return barrierVerdict{over: true}
}

// String renders the state on one line.
func (s *barrierState) String() string {
	text := fmt.Sprintf("phase %d, %d of %d to arrive", s.phase, s.pending, s.expected)
	if s.lost > 0 {
		text += fmt.Sprintf(", %d parties lost", s.lost)
	}
	return text
}
