package arenakernel

import (
	"context"

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

// beginEpoch repairs what the dead have left, and describes the epoch. No participant is in.
func (a *Arena) beginEpoch(ctx context.Context, w epochWord) (e Epoch, b beginning, err error) {
	e.Number = uint64(w.number())
	dead, err := a.reapAll(ctx)
	if err != nil {
		return e, b, a.fail("arena.open", err, "the process of a participant that died does not end")
	}
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
	for _, p := range dead {
		if !known[p.Name()] {
			e.Clean = false
			e.Dead = append(e.Dead, p)
		}
	}
	e.Reboot = a.rebooted()
	b = beginning{torn: e.Reboot && a.u32(hdrSynced).Load() != w.number()-1, deaths: total}
	e.Clean = e.Clean && !b.torn
	return e, b, nil
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

// reapAll reaps all dead participants, and waits until their data has been handed over. It
// returns the participants that it found dead.
func (a *Arena) reapAll(ctx context.Context) (dead []Participant, err error) {
	seen := map[ParticipantID]bool{}
	end := shmsync.Monotonic() + takeTimeout
	for pause := minGatePause; ; pause = min(2*pause, maxGatePause) {
		left := false
		for i := 1; i <= a.geo.slots; i++ {
			w := a.slotState(i)
			if i == a.mySlot || w.phase() != phaseDead && !a.surveyDead(i, w) {
				continue
			}
			if n := participantIn(i, w); !seen[n] {
				seen[n] = true
				if p, ok := a.participant(i); ok {
					p.State = phaseDead.String()
					dead = append(dead, p)
				}
			}
			a.reap(i, w)
			// A stopped participant may hold the rest of the reap; the data is repaired already.
			if s := a.slotState(i); (s == w || s == w.with(phaseDead)) && (!a.Gone(participantIn(i, w)) || shmsync.Monotonic() < end) {
				left = true
			}
		}
		if !left {
			for i := 1; i <= a.geo.slots; i++ {
				a.repairEarlier(i)
			}
			return dead, nil
		}
		if err := sleepContext(ctx, pause); err != nil {
			return nil, err
		}
	}
}

// repairEarlier repairs what earlier participants of slot i have left. A joiner that takes over the slot of a
// dead participant repairs it, too, but the joiner may be stopped. If it has not recorded the death yet, this
// process does so.
//
// The joiner has found that the dead participant is gone. When it goes on, it repairs what is left then.
func (a *Arena) repairEarlier(i int) {
	w, s := a.slotState(i), a.slot(i)
	last := w.with(phaseDead)
	if w.taken() {
		last = makeSlotWord(phaseDead, w.generation()-1)
	}
	if i == a.mySlot || w.phase() == phaseDead || w.taken() && w.generation() <= 1 ||
		a.u32(s+slotReclaimed).Load() >= last.generation() {
		return
	}
	dead := participantIn(i, last)
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
