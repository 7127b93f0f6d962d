package prims

import (
	"fmt"
	"math"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// lostParties packs the ID of a dead process and a number of parties.
func lostParties(name, parties uint64) uint64 {
	return name&uint64(arenakernel.ParticipantIDMask) | min(parties, math.MaxUint32)<<32
}

// nameLost and partiesLost unpack what lostParties packed.
func nameLost(v uint64) arenakernel.ParticipantID {
	return arenakernel.ParticipantID(v & uint64(arenakernel.ParticipantIDMask))
}
func partiesLost(v uint64) uint64 { return v >> 32 }

// verdict says how a wait for the end of phase p ends, if the phase is over: with outcomeOpen, or
// with outcomeDead and the ID of the first party that died. The ID is 0 for a phase whose record
// a later broken phase has replaced: nobody knows how such a phase ended.
func (x *Barrier) verdict(p uint64) (end int, name uint32, over bool) {
	if x.words.phase.Load() <= p {
		if !x.isBroken() {
			return 0, 0, false
		}
		// A peer recorded a broken phase without an ID. The phase still counts as broken.
		return outcomeDead, max(uint32(x.words.dead.Load()), 1), true
	}
	r := &x.words.breaks[p%barrierBreaks]
	switch at := r.phase.Load(); {
	case at <= p:
		return outcomeOpen, 0, true
	case at == p+1:
		return outcomeDead, max(uint32(nameLost(r.dead.Load())), 1), true
	}
	return outcomeDead, 0, true
}

// lostIn is how many parties died in the broken phase p, as far as known. It needs no queue lock:
// what it reads may be newer than the caller's verdict.
func (x *Barrier) lostIn(p uint64) uint64 {
	r := &x.words.breaks[p%barrierBreaks]
	if v := r.dead.Load(); r.phase.Load() == p+1 {
		return partiesLost(v)
	}
	return x.words.lost.Load()
}

// remember records that the broken phase p is over. Doing it twice does no harm.
func (x *Barrier) remember(p uint64) {
	w := x.words
	r := &w.breaks[p%barrierBreaks]
	var c change
	c.set(&r.phase, p+1)
	c.set(&r.dead, lostParties(w.dead.Load(), w.lost.Load()))
	x.mon.commit(&c)
}

// left is how many of the expected parties are alive. It is at least one, for the process that
// asks.
func (x *Barrier) left() uint64 {
	expected, lost := x.words.expected.Load(), x.words.lost.Load()
	return max(expected-min(lost, expected), 1)
}

// ownerDead is the error of a wait for phase p. name is the ID in the verdict.
func (x *Barrier) ownerDead(op string, p uint64, name uint32) error {
	n := arenakernel.ParticipantID(name & arenakernel.ParticipantIDMask)
	lost := x.lostIn(p)
	var why string
	switch {
	case n == 0:
		return x.mon.fail(op, shmsync.ErrOwnerDead, nil,
			fmt.Sprintf("nobody knows how phase %d ended: more than %d phases ago, and a later one broke", p, barrierBreaks))
	case x.mon.current(n):
		why = "its completion panicked"
	default:
		why = "it was one of the parties and died"
	}
	if lost == 1 {
		why += "; 1 party was lost"
	} else {
		why += fmt.Sprintf("; %d parties were lost", lost)
	}
	return x.mon.fail(op, shmsync.ErrOwnerDead, x.a.Who(n), why)
}
