package arenakernel

import (
	"github.com/shmsync/shmsync"
)

// Epoch describes an epoch of an arena to the participant that begins it. An epoch lasts from a
// join while no participant is in the arena until none is in again.
type Epoch struct {
	// Number counts the epochs of the arena from 1. An epoch whose OnFirst failed has the same
	// number as the next one.
	Number uint64
	// Clean reports that every participant of the last epoch left by Close, and that the file is
	// as they left it. It is true for a new arena. A process that died before its Open returned
	// matters only if it had begun an epoch.
	Clean bool
	// Reboot reports that the computer was started again since the last epoch began. It is
	// false for an arena on a tmpfs, whose files a reboot removes.
	Reboot bool
	// Dead are the participants that died since the last epoch began, the last 192 at most.
	Dead []Participant
}

// beginning is what the first participant of an epoch finds out in addition to the Epoch.
type beginning struct {
	// torn says that pages of the file may be from different times: the computer was started again,
	// and the file was not written back after the last epoch. A death alone never tears the file.
	torn   bool
	deaths uint64 // the value of hdrDeathRecordsTotal up to which the Epoch lists deaths
}

// beginEpoch describes the epoch. No participant is in, and p has reaped the dead.
func (a *Arena) beginEpoch(p *preparation, w epochWord) (e Epoch, b beginning) {
	e.Number = uint64(w.number())
	since, total := a.u64(hdrEpochDeaths).Load(), a.u64(hdrDeathRecordsTotal).Load()
	if since > total {
		since = total
	}
	e.Clean = total == a.u64(hdrEpochDeaths).Load() || since < total
	if total-since > deathRecordDeaths {
		since = total - deathRecordDeaths
		e.Clean = false
	}
	known := map[ParticipantID]bool{}
	for n := since; n < total; n++ {
		id, name, ok := a.readDeathRecord(deathRecordsOfDead, n)
		if !ok {
			// Its writer was stopped or died over it. The participant has another record, or is
			// among the dead above.
			continue
		}
		e.Clean = e.Clean && a.diedPending(n)
		if !known[name] {
			known[name] = true
			e.Dead = append(e.Dead, Participant{Identity: id, State: phaseDead.String()})
		}
	}
	for _, d := range p.dead {
		if !known[d.Name()] {
			e.Clean = false
			e.Dead = append(e.Dead, d)
		}
	}
	e.Reboot = a.rebooted()
	b = beginning{torn: e.Reboot && a.u32(hdrSynced).Load() != w.number()-1, deaths: total}
	e.Clean = e.Clean && !b.torn
	return e, b
}

// nobodyBegan reports whether the records show that no participant that began an epoch has died or left. If
// two claimants die one after the other, the epoch word does not say what the first of them did. dead are
// those that this process has reaped, or found dead.
//
// A record that is not whole shows nothing: its writer was stopped or died over it, and the participant has
// another record, or is among the dead and has none.
func (a *Arena) nobodyBegan(dead []Participant) bool {
	for _, p := range dead {
		if !a.hasDeathRecord(p.Name()) {
			return false
		}
	}
	for _, r := range []deathRecordRing{deathRecordsOfDead, deathRecordsOfLeft} {
		total := a.u64(r.total).Load()
		if total > r.count {
			return false
		}
		for n := range total {
			o := a.deathRecord(r, n)
			pending := a.u32(o+deathRecordFlags).Load()&deathRecordPending != 0
			if whole := a.u64(o+deathRecordSeq).Load() == n+1; whole && !pending {
				return false
			}
		}
	}
	return true
}

// preparation is what a joiner that finds no participant in does before it begins an epoch: it reaps the dead.
// It does that without the gate. So if it is stopped meanwhile, other joiners do the same, and go on. With the gate it
// only checks that nothing is left to do, and gives the gate back if there is something.
type preparation struct {
	dead    []Participant // those that it found
	noted   map[ParticipantID]bool
	reaped  map[int]slotWord // the slots whose dead participant it has reaped, by their state
	earlier map[int]slotWord // those of which it has repaired what earlier participants left
	end     int64            // when it leaves the rest of a reap to another process, CLOCK_MONOTONIC ns; 0 before the first reap
	waits   bool             // the process of a dead participant has not ended, or a reap is not done
}

// complete reports whether p has reaped every participant that is dead, and repaired what earlier ones left.
func (a *Arena) complete(p *preparation) bool {
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		switch {
		case i == a.mySlot:
		case w.phase() == phaseDead || a.surveyDead(i, w):
			if p.reaped[i] != w.with(phaseDead) {
				return false
			}
		case a.leftByEarlier(i, w) != 0 && p.earlier[i] != w:
			return false
		}
	}
	return true
}

// prepare goes through the slots once. p.waits says whether another pass is needed.
func (a *Arena) prepare(p *preparation) {
	if p.end == 0 {
		p.end = shmsync.Monotonic() + takeTimeout
		p.noted, p.reaped, p.earlier = map[ParticipantID]bool{}, map[int]slotWord{}, map[int]slotWord{}
	}
	p.waits = false
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		if i == a.mySlot || w.phase() != phaseDead && !a.surveyDead(i, w) {
			continue
		}
		if n := participantIn(i, w); !p.noted[n] {
			p.noted[n] = true
			if d, ok := a.participant(i); ok {
				d.State = phaseDead.String()
				p.dead = append(p.dead, d)
			}
		}
		a.reap(i, w)
		// A participant that is stopped may have the rest of a reap; its data is repaired.
		if s := a.slotState(i); (s == w || s == w.with(phaseDead)) && (!a.Gone(participantIn(i, w)) || shmsync.Monotonic() < p.end) {
			p.waits = true
			continue
		}
		p.reaped[i] = w.with(phaseDead)
	}
	if p.waits {
		return
	}
	for i := 1; i <= a.geo.slots; i++ {
		w := a.slotState(i)
		a.repairEarlier(i)
		p.earlier[i] = w
	}
}

// leftByEarlier gives the last of the earlier participants of slot i, which has the state w, if they may have left
// something that is not reclaimed yet; else 0.
func (a *Arena) leftByEarlier(i int, w slotWord) ParticipantID {
	last := w.with(phaseDead)
	if w.taken() {
		last = makeSlotWord(phaseDead, w.generation()-1)
	}
	if i == a.mySlot || w.phase() == phaseDead || w.taken() && w.generation() <= 1 ||
		a.u32(a.slot(i)+slotReclaimed).Load() >= last.generation() {
		return 0
	}
	return participantIn(i, last)
}

// repairEarlier repairs what earlier participants of slot i have left. A joiner that takes over the slot of a
// dead participant repairs it, too, but the joiner may be stopped. If it has not recorded the death yet, this
// process does so.
//
// The joiner has found that the dead participant is gone. When it goes on, it repairs what is left then.
func (a *Arena) repairEarlier(i int) {
	w, s := a.slotState(i), a.slot(i)
	dead := a.leftByEarlier(i, w)
	if dead == 0 {
		return
	}
	joining := w.phase() == phaseJoining
	a.repairAll(dead, joining && a.owesAnybody(dead))
	pid, died, label := a.u32(s+slotPID).Load(), a.u64(s+slotDied).Load(), a.getLabel(s+slotLabel)
	flags := uint32(0)
	if a.wasPending(i) {
		flags = deathRecordPending
	}
	// The joiner writes the record before it overwrites these words with its own.
	if joining && pid != 0 && !a.hasDeathRecord(dead) && a.slotState(i) == w {
		a.putDeathRecord(deathRecordsOfDead, dead, flags, pid, died, label)
	}
}
