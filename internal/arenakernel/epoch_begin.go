package arenakernel

import "sync/atomic"

// Epoch describes an epoch of an arena to the participant that begins it. An epoch lasts from a
// join while no participant is in the arena until none is in again.
type Epoch struct {
	// Number counts the epochs of the arena from 1. An epoch whose OnFirst failed has the same
	// number as the next one.
	Number uint64
	// Clean reports that every participant of the last epoch left by Close, and that the file is as
	// these participants left it. It is true for a new arena. A process that died before its Open
	// returned matters only if it had begun an epoch.
	Clean bool
	// Reboot reports that the computer was started again since the last epoch began. It is
	// false for an arena on a tmpfs, whose files a reboot removes.
	Reboot bool
	// Dead are the participants that died since the last epoch began, at most the last 192.
	Dead []Participant
}

// beginning has what the first participant of an epoch finds out in addition to the Epoch.
type beginning struct {
	// torn says that pages of the file may be from different times: the computer was started again,
	// and the file had not been written back after the last epoch. The death of a process alone
	// never tears the file.
	torn   bool
	deaths uint64 // the value of hdrDeathRecordsTotal up to which the Epoch lists deaths
}

// epochDeaths returns the word with the number of death records at the time when the epoch of that
// number began. The deaths up to there were reported to the first participant of that epoch. There
// are two such words, one for even and one for odd numbers.
//
//	first participant of epoch n      the next first participant
//	writes the word of n              claims n, or n+1 if epoch n was opened
//	opens epoch n, by a CAS           reads the word of the epoch before the one that it claims
//
// So once the CAS has opened an epoch, the deaths in its word count as reported. If the first
// participant dies before that step, the next one claims n as well, and reads the word of epoch
// n-1.
//
//	writers: the claimant, for the epoch that it is about to open
//	readers: the claimant; tools
//	order:   relaxed; the epoch word carries the edge
//	futex:   none
//	crash:   the word of an epoch that was not opened may have any value
func (c *core) epochDeaths(number uint32) *atomic.Uint64 {
	if number%2 != 0 {
		return c.u64(hdrEpochDeathsOdd)
	}
	return c.u64(hdrEpochDeaths)
}

// beginEpoch describes the epoch that this process begins. No participant is in, and the dead are
// reaped, so each dead participant has a record. beginEpoch finds the deaths from these records
// alone.
func (a *Arena) beginEpoch(w epochWord) (e Epoch, b beginning) {
	e.Number = uint64(w.number())
	a.recordMissing()
	since, total := a.epochDeaths(w.number()-1).Load(), a.u64(hdrDeathRecordsTotal).Load()
	e.Clean = since <= total
	since = min(since, total)
	if total-since > deathRecordDeaths {
		since = total - deathRecordDeaths
		e.Clean = false
	}
	told := map[ParticipantID]bool{}
	for n := total - min(total, deathRecordDeaths); n < total; n++ {
		id, name, ok := a.readDeathRecord(deathRecordsOfDead, n)
		switch {
		case !ok && n >= since && n >= deathRecordDeaths:
			// A writer may have been stopped while the ring was filled once, and may then have
			// overwritten this record.
			e.Clean = false
		case !ok, told[name]:
			// This is the first time that the ring has a record at this index. Its writer was
			// stopped, or died while it wrote, and the participant has another record. Or two
			// processes have recorded one death. An ID with a record is not given to another
			// participant.
		default:
			told[name] = true
			if n >= since {
				e.Clean = e.Clean && a.recordsPending(n)
				e.Dead = append(e.Dead, Participant{Identity: id, State: phaseDead.String()})
			}
		}
	}
	e.Reboot = a.rebooted()
	b = beginning{torn: e.Reboot && a.u32(hdrSynced).Load() != w.number()-1, deaths: total}
	e.Clean = e.Clean && !b.torn
	return e, b
}

// nobodyBegan reports whether the records show that no participant that began an epoch has died or left. If
// two claimants die one after the other, the epoch word does not say what the first of them did.
//
// An incomplete record shows nothing: its writer was stopped, or died while it wrote, and the
// participant has another record.
func (a *Arena) nobodyBegan() bool {
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
