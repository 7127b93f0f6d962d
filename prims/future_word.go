package prims

import (
	"fmt"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// futureState is the word of a Future, which is an eventcountState. A Future goes through rounds; each round
// has one result. While there is no result yet, the sequence is even. The end of the round makes it odd, and
// Reset begins the next round with an even sequence.
//
//	bits 0..31   sequence   2 x round, plus 1 when the round is over; waiters sleep on it
//	bit  32      announced  a waiter may sleep, or be on the way to it
//	bit  33      abandoned  the round is over without a result: its producer died
//	bit  34      0
//	bits 35..63  producer   the participant that claimed the round, or 0
//
//	sequence  abandoned  producer  meaning                            left by
//	even      0          0         not claimed (also all-zero memory)  Reset
//	even      0          n         n will set it; n may be dead        Claim
//	odd       0          any       it is set                           the first process that finds the result
//	odd       1          n         n died: it cannot be set            the first process that finds the result
//
// The result of the round is stored elsewhere before the word changes: see futureResult. Any process that finds
// the result makes the sequence odd. So a process that stops between the two steps blocks no other process.
//
//	writers: all participants, by CAS
//	readers: the same, tools
//	order:   release by the change that makes the sequence odd, acquire by a call that finds it odd
//	futex:   WAIT on the low half; WAKE all by the process that made the sequence odd
//	crash:   each value is a whole state. A producer that is not current is dead; a reaper or
//	         the next call records that. If a process dies or stops after it has made the
//	         sequence odd and before the wake, a reaper or a periodic check makes the wake
type futureState eventcountState

const (
	futureAbandoned futureState = 1 << 33
	futureIDShift               = 35
	futureIDs                   = futureState(arenakernel.ParticipantIDMask) << futureIDShift
)

func (s futureState) sequence() uint32 { return eventcountState(s).sequence() }
func (s futureState) announced() bool  { return eventcountState(s).announced() }

// round is the number of the round.
func (s futureState) round() futureRound { return futureRound(s.sequence() >> 1) }

func (s futureState) producer() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(s >> futureIDShift)
}
func (s futureState) over() bool      { return s&1 != 0 }
func (s futureState) abandoned() bool { return s.over() && s&futureAbandoned != 0 }
func (s futureState) set() bool       { return s.over() && s&futureAbandoned == 0 }

// claimed reports whether a participant has claimed the round, and the round is not over.
func (s futureState) claimed() bool { return !s.over() && s.producer() != 0 }

func (s futureState) claimedBy(n arenakernel.ParticipantID) futureState {
	return s | futureState(n)<<futureIDShift
}

// ended returns the word after the present round has ended with the result r.
func (s futureState) ended(r futureResult) futureState {
	to := futureState(eventcountState(s).next()) &^ futureAbandoned
	if r.abandoned() {
		to |= futureAbandoned
	}
	return to
}

// reset returns the word at the beginning of the next round. All bits except those of the sequence are 0,
// including bit 34.
func (s futureState) reset() futureState {
	return futureState(eventcountState(s).next().sequence())
}

// String renders the state by the names of its parts.
func (s futureState) String() string {
	switch {
	case s.set():
		return "set"
	case s.abandoned():
		return fmt.Sprintf("abandoned by %v", s.producer())
	case s.claimed():
		return fmt.Sprintf("claimed by %v", s.producer())
	}
	return "unset"
}

// futureRound is the number of a round. It has 31 bits.
type futureRound uint32

// futureRounds is how many results a Future keeps. It must divide 2^31, the number of different rounds.
const futureRounds = 32

// slot returns the index of the slot that has the result of round r.
func (r futureRound) slot() int { return int(r % futureRounds) }

// The method named before returns the round that precedes r.
func (r futureRound) before() futureRound { return (r - 1) & (1<<31 - 1) }

// futureResult is the result of a round. The result of round r is in slot r mod 32. One CAS replaces the result of
// round r-32 by that of round r, and thereby decides how round r ends. Set, and processes that find the producer
// dead, compete to make this CAS.
//
//	bits 0..31   value      the errno, or the ID of the producer that died
//	bit  32      abandoned  the producer died before it set the Future
//	bit  33      decided    1 in each result, so all-zero memory is not a result
//	bits 34..37  0
//	bits 38..63  lap        the round / 32
//
//	decided  lap         meaning                                        left by
//	1        r / 32      how round r ended                              Set, or a process that found the death
//	1        r / 32 - 1  how round r-32 ended; round r has not ended    Set, or a process that found the death
//	0        0           round r of the first lap has not ended         (all-zero memory)
//
// If a process is stopped before its CAS, the CAS fails when it goes on after its round: another process has decided
// that round, and so has replaced the value that the CAS expects. The same value comes back only after 2^31 rounds.
//
//	writers: Set, and processes that find the producer dead, by CAS
//	readers: all participants
//	order:   release by the CAS, acquire by a reader that finds the lap
//	futex:   none
//	crash:   a round that is decided and whose sequence is even: the next call, or a waiter's
//	         periodic check, makes it odd
type futureResult uint64

const (
	futureResultAbandoned futureResult = 1 << 32
	futureResultDecided   futureResult = 1 << 33
	futureLapShift                     = 38
)

// decidedAs returns the result of round r with the given value.
func (r futureRound) decidedAs(value futureResult) futureResult {
	return value | futureResultDecided | futureResult(r/futureRounds)<<futureLapShift
}

func resultOf(r futureRound, e shmsync.Errno) futureResult {
	return r.decidedAs(futureResult(uint32(e)))
}

func abandonedBy(r futureRound, n arenakernel.ParticipantID) futureResult {
	return r.decidedAs(futureResult(n) | futureResultAbandoned)
}

// The method named of reports whether v is the result of round r. The caller has read v from the slot of r.
func (v futureResult) of(r futureRound) bool {
	return v&futureResultDecided != 0 && futureRound(v>>futureLapShift) == r/futureRounds
}

func (v futureResult) abandoned() bool      { return v&futureResultAbandoned != 0 }
func (v futureResult) errno() shmsync.Errno { return shmsync.Errno(uint32(v)) }
func (v futureResult) producer() arenakernel.ParticipantID {
	return arenakernel.ParticipantID(v & arenakernel.ParticipantIDMask)
}

// String says how the round was decided: set, set to an errno, or abandoned by a participant.
func (v futureResult) String() string {
	switch {
	case v.abandoned():
		return fmt.Sprintf("abandoned by %v", v.producer())
	case v.errno() == 0:
		return "set"
	}
	return fmt.Sprintf("set to errno %d", uint32(v))
}
