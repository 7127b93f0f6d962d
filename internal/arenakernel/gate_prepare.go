package arenakernel

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("arena.gate.preparing")

// preparation is the state of the reaps by a joiner that found no participant that is in. The
// joiner reaps before it takes the gate. So if it is stopped meanwhile, other joiners reap, too,
// and continue without it. When the joiner has the gate, it only checks that nothing is left to
// reap. If something is, it gives the gate back.
type preparation struct {
	end     int64                 // when to leave the rest of a reap to its reaper, CLOCK_MONOTONIC ns; 0 at first
	reaped  map[int]fullSlotState // dead slots in which nothing is left for the joiner to repair
	earlier map[int]fullSlotState // slots in which the joiner has repaired what earlier participants left
	waits   slotSet               // slots whose dead participant has not ended, or whose reap is not finished
	waiting bool                  // waits is not empty
	met     map[int]fullSlotState // the last death, or the last joiner that took the slot over, that was seen in a slot
	passes  int                   // passes over the slots
	news    int                   // changes of met after the first pass, plus claims that failed because of a death
}

// mostNews is how many deaths and joiners a process may meet after its first pass. After more of
// them, it no longer waits until participants that died pending have ended: joiners may die all the
// time, and each pass would find another one.
const mostNews = 16

// meet records that slot i is in state s.
func (p *preparation) meet(i int, s fullSlotState) {
	if p.met[i] == s {
		return
	}
	p.met[i] = s
	if p.passes > 1 {
		p.news++
	}
}

// late reports whether the joiner leaves participants that died pending to [Arena.repairLate].
func (p *preparation) late() bool { return p.news > mostNews }

// fullSlotState is the state of a slot, and the bytes of its window: in another window, another participant can have
// the same state word.
type fullSlotState struct {
	word   slotWord
	window uint64
}

func (a *Arena) fullState(i int, w slotWord) fullSlotState {
	_, window := a.windowOf(i)
	return fullSlotState{w, window}
}

// gateBusy reports whether another process has the gate.
func (a *Arena) gateBusy() bool {
	locked, err := shmsync.ByteLocked(a.lock, gateByte)
	return err == nil && locked
}

// prepare reaps all dead participants, and repairs what earlier ones left. It reports whether
// nothing is left to do. While it waits for the end of dead processes, it checks only their slots,
// because many joiners may wait at once, and checking a slot that is not dead costs a system call.
func (a *Arena) prepare(p *preparation) bool {
	crashpoint.Hit("arena.gate.preparing")
	if p.end == 0 {
		p.end = shmsync.Monotonic() + takeTimeout
		p.reaped, p.earlier, p.met = map[int]fullSlotState{}, map[int]fullSlotState{}, map[int]fullSlotState{}
	}
	for full := false; !full; {
		full = !p.waiting
		p.passes++
		only := p.waits
		p.waits, p.waiting = slotSet{}, false
		for i := 1; i <= a.geo.slots; i++ {
			if i != a.mySlot && (full || only.has(i)) && !a.prepareSlot(p, i) {
				p.waits[i/32] |= 1 << (i % 32)
				p.waiting = true
			}
		}
		if p.waiting {
			return false
		}
	}
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		s := a.fullState(i, w)
		if dead := a.leftByEarlier(i, w); dead != 0 && p.earlier[i] != s {
			p.meet(i, s)
			a.repairEarlier(i, w, dead)
			p.earlier[i] = s
		}
	}
	return true
}

// prepareSlot reaps the participant in slot i if it is dead. It reports whether nothing is left to do.
func (a *Arena) prepareSlot(p *preparation, i int) bool {
	w := a.slotState(i)
	dead := a.fullState(i, w.with(phaseDead))
	if w.phase() != phaseDead && !a.surveyDead(i, w) || p.reaped[i] == dead {
		return true
	}
	p.meet(i, dead)
	a.reap(i, w)
	if s := a.slotState(i); s == w || s == dead.word {
		if p.late() && a.diedPending(i, w) {
			return true
		}
		// A stopped participant may be in the rest of the reap, but the data is repaired already.
		// Gone makes system calls, so it is called last.
		if shmsync.Monotonic() < p.end || !a.Gone(participantIn(i, w)) {
			return false
		}
		p.reaped[i] = dead
	}
	return true
}

// prepared reports whether p has reaped every participant that is dead, and repaired what earlier ones left.
func (a *Arena) prepared(p *preparation) bool {
	for i := 1; i <= a.geo.slots; i++ {
		if i != a.mySlot && !a.preparedSlot(p, i) {
			p.news++ // a death watcher may finish this reap before the next pass
			return false
		}
	}
	return true
}

// preparedSlot is prepared for slot i.
func (a *Arena) preparedSlot(p *preparation, i int) bool {
	w := a.slotState(i)
	if w.phase() == phaseDead || a.surveyDead(i, w) {
		return p.reaped[i] == a.fullState(i, w.with(phaseDead)) || p.late() && a.diedPending(i, w)
	}
	return a.leftByEarlier(i, w) == 0 || p.earlier[i] == a.fullState(i, w) || p.late()
}

// diedPending reports whether the participant in slot i, in state w, was never in, and did not begin an epoch.
func (a *Arena) diedPending(i int, w slotWord) bool {
	d := a.describe(i)
	return d.generation != w.generation() || d.flags&deathRecordPending != 0
}

// repairLate does the work that a late preparation has left out. This process has claimed the
// epoch, and OnFirst has not run yet. The work is done once for each participant that died pending,
// and for what that participant had taken over. Participants that die later do not matter. This
// process has the gate meanwhile, so if it is stopped, it delays all joiners, as in OnFirst.
func (a *Arena) repairLate(p *preparation) {
	for i := 1; p.late() && i <= a.geo.slots; i++ {
		w := a.slotState(i)
		switch {
		case i == a.mySlot:
		case w.phase() == phaseDead || a.surveyDead(i, w):
			if p.reaped[i] != a.fullState(i, w.with(phaseDead)) {
				a.reap(i, w)
			}
		case p.earlier[i] != a.fullState(i, w):
			if dead := a.leftByEarlier(i, w); dead != 0 {
				a.repairEarlier(i, w, dead)
			}
		}
	}
}

// leftByEarlier returns the last of the earlier participants of slot i, in state w, if they may
// have left something that is not reclaimed yet. Otherwise it returns 0.
func (a *Arena) leftByEarlier(i int, w slotWord) ParticipantID {
	last := w.generation()
	if w.taken() {
		last = max(last, 1) - 1
	}
	if i == a.mySlot || w.phase() == phaseDead || last == 0 || a.u32(a.slot(i)+slotReclaimed).Load() >= last {
		return 0
	}
	return makeParticipantID(i, last)
}

// repairEarlier repairs what dead, an earlier participant of slot i, has left. A joiner that takes
// over the slot of a dead participant does that, too, but it may be stopped. When it continues, it
// repairs what is left then.
func (a *Arena) repairEarlier(i int, w slotWord, dead ParticipantID) {
	a.repairAll(dead, w.phase() == phaseJoining && a.owesAnybody(dead))
}

// recordMissing writes missing death records of participants that were dead before this process
// claimed the epoch. They are missing if a reaper, or a joiner that has taken over the slot, is
// stopped. If it continues, it writes a second record, which readers skip.
func (a *Arena) recordMissing() {
	for i := 1; i <= a.geo.slots; i++ {
		for tries := 0; i != a.mySlot && !a.recordMissingOf(i) && tries < 8; tries++ {
		}
	}
}

// recordMissingOf is recordMissing for slot i. It returns false if the slot changed.
func (a *Arena) recordMissingOf(i int) bool {
	w := a.slotState(i)
	switch last := w.generation(); w.phase() {
	case phaseDead:
		return a.recordDeaths(i, w, last)
	case phaseJoining:
		// A joiner that takes the slot over describes itself only after it has recorded the death
		// of its predecessor.
		if d := a.u32(a.slot(i) + slotDescribed).Load(); d != 0 && d < last {
			return a.recordDeaths(i, w, last-1)
		}
	}
	return true
}
