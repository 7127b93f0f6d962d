package arenakernel

import (
	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

var _ = crashpoint.Register("arena.gate.preparing")

// preparation is the state of a joiner that has found no participant in the arena and therefore
// reaps all dead participants. The joiner reaps before it takes the gate. So if it is stopped
// during a reap, other joiners can reap, too, and continue. Once the joiner has the gate, it only
// checks that nothing is left to reap. If there is a new death, it gives the gate back.
type preparation struct {
	end     int64                 // when to stop waiting for another reaper, CLOCK_MONOTONIC ns; 0 at first
	reaped  map[int]fullSlotState // slots of dead participants in which this joiner has nothing left to repair
	earlier map[int]fullSlotState // slots in which the joiner has repaired what earlier participants left
	waits   slotSet               // slots whose dead participant has not ended, or whose reap is not finished
	waiting bool                  // true if the field waits is not empty
	met     map[int]fullSlotState // for each slot, the last death seen, or the last joiner seen to take it over
	passes  int                   // how often the joiner has gone through the slots
	news    int                   // changes of met after the first pass, plus claims that failed because of a death
}

// mostNews is how many deaths and joiners a process may see after its first pass. If it sees more,
// it no longer waits for the end of participants that died before they were admitted. Otherwise
// joiners that keep dying could keep it waiting for ever, because each pass would find another
// death.
const mostNews = 16

// meet records that this joiner has seen slot i in state s. It counts news, that is, states that
// the joiner sees for the first time after its first pass.
func (p *preparation) meet(i int, s fullSlotState) {
	if p.met[i] == s {
		return
	}
	p.met[i] = s
	if p.passes > 1 {
		p.news++
	}
}

// late reports whether [Arena.repairLate], and not [Arena.prepare], does the repairs for participants
// that died before they were admitted.
func (p *preparation) late() bool { return p.news > mostNews }

// fullSlotState is the state word of a slot, together with its window: in another window, another
// participant can have the same state word.
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

// prepare reaps all dead participants, and repairs what earlier participants of each slot left. It
// reports whether nothing is left to do. While prepare waits for dead processes to end, it checks
// only their slots. Many joiners may wait at the same time, and the check of any other slot costs a
// system call.
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

// prepareSlot reaps the participant in slot i if the participant is dead. It reports whether
// nothing is left to do.
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
		// The process that has to finish the reap may be stopped, but the data is already repaired.
		// So do not wait for that process any longer. Gone makes system calls, so it comes last in
		// the condition.
		if shmsync.Monotonic() < p.end || !a.Gone(participantIn(i, w)) {
			return false
		}
		p.reaped[i] = dead
	}
	return true
}

// prepared reports whether p records that all dead participants are reaped, and that everything
// that earlier participants left is repaired.
func (a *Arena) prepared(p *preparation) bool {
	for i := 1; i <= a.geo.slots; i++ {
		if i != a.mySlot && !a.preparedSlot(p, i) {
			p.news++ // count this death now, because a death watcher may finish its reap before the next pass sees it
			return false
		}
	}
	return true
}

// preparedSlot reports what the method prepared reports, for the one slot i.
func (a *Arena) preparedSlot(p *preparation, i int) bool {
	w := a.slotState(i)
	if w.phase() == phaseDead || a.surveyDead(i, w) {
		return p.reaped[i] == a.fullState(i, w.with(phaseDead)) || p.late() && a.diedPending(i, w)
	}
	return a.leftByEarlier(i, w) == 0 || p.earlier[i] == a.fullState(i, w) || p.late()
}

// diedPending reports whether the participant in slot i, in state w, was never admitted and did not
// begin an epoch.
func (a *Arena) diedPending(i int, w slotWord) bool {
	d := a.describe(i)
	return d.generation != w.generation() || d.flags&deathRecordPending != 0
}

// repairLate does the work that the method prepare postpones when the method late returns true.
// This process has claimed the epoch and has not run OnFirst yet. For each participant that died
// before it was admitted, repairLate repairs once what that participant has left, and what it had
// taken over from earlier participants of its slot. repairLate ignores participants that die later.
// This process has the gate during repairLate and OnFirst, so if it is stopped, it delays all joiners.
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

// leftByEarlier returns the ID of the last participant that slot i, in state w, had before its present
// participant. It returns 0 if nothing that the earlier participants left has to be recovered, or if
// the present participant is marked dead.
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

// repairEarlier repairs what an earlier participant of slot i has left. The parameter named dead is
// the ID of that participant. A joiner that takes over the slot also does this repair, but that
// joiner may be stopped. When that joiner continues, it repairs only what is left.
func (a *Arena) repairEarlier(i int, w slotWord, dead ParticipantID) {
	a.repairAll(dead, w.phase() == phaseJoining && a.owesAnybody(dead))
}

// recordMissing writes the missing death records of participants that died before this process
// claimed the epoch. Such a record is missing if a reaper, or a joiner that has taken over the
// slot, is stopped. When that process continues, it writes a second record, which readers skip.
func (a *Arena) recordMissing() {
	for i := 1; i <= a.geo.slots; i++ {
		for tries := 0; i != a.mySlot && !a.recordMissingOf(i) && tries < 8; tries++ {
		}
	}
}

// recordMissingOf writes the missing death records of the participants of slot i. It returns false
// if the slot has changed.
func (a *Arena) recordMissingOf(i int) bool {
	w := a.slotState(i)
	switch last := w.generation(); w.phase() {
	case phaseDead:
		return a.recordDeaths(i, w, last)
	case phaseJoining:
		// A joiner that takes over the slot describes itself only after it has recorded the death
		// of its predecessor.
		if d := a.u32(a.slot(i) + slotDescribed).Load(); d != 0 && d < last {
			return a.recordDeaths(i, w, last-1)
		}
	}
	return true
}
