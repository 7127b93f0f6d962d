package arenakernel

import "sync/atomic"

// An Epoch describes an epoch of an arena to the participant that begins it. An epoch begins with a
// join while no other participant is in the arena. It lasts until no participant is in the arena
// again.
type Epoch struct {
	// Number counts the epochs of the arena, beginning with 1. If OnFirst fails in an epoch, the
	// next epoch gets the same number.
	Number uint64
	// Clean reports whether every participant of the last epoch left by Close and the file is as they left it. It is
	// true for a new arena. A process that died before its Open had returned does not count, unless it had begun an
	// epoch.
	Clean bool
	// Reboot reports whether the computer was restarted since the last epoch began. It is false for
	// an arena on a tmpfs, whose files do not survive a reboot.
	Reboot bool
	// Dead lists the participants that died since the last epoch began, at most the last 192.
	Dead []Participant
}

// beginning is what the first participant of an epoch finds out about the arena, in addition to the
// Epoch.
type beginning struct {
	// torn means that pages of the file may be from different times: the computer was restarted,
	// and the file had not been written back after the last epoch. The death of a process never
	// tears the file.
	torn   bool
	deaths uint64 // the Epoch lists the deaths up to this value of hdrDeathRecordsTotal
}

// epochDeaths returns the word that contains the number of death records when the given epoch
// began. The deaths up to that number were reported to the first participant of the epoch. There
// are two such words, for even and for odd epoch numbers.
//
//	first participant of epoch n      the next first participant
//	writes the word of n              claims n, or n+1 if epoch n was opened
//	opens epoch n, by a CAS           reads the word of the epoch before the one that it claims
//
// So once the CAS has opened epoch n, the next first participant reads the word of n, and gets only
// the deaths after those that this word counts. If the first participant dies before the CAS, the next
// first participant also claims n. It reads the word of epoch n-1, and gets the same deaths.
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

// beginEpoch returns the description of the epoch that this process begins. No participant is in
// the arena, and all dead participants have been reaped, so each of them has a death record.
// beginEpoch finds the deaths from these records alone.
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
			// The writer of this record may have been stopped until the ring was full. It may then
			// have overwritten another record.
			e.Clean = false
		case !ok, told[name]:
			// Skip the record. If it is not complete, its writer was stopped or died, and another
			// process has recorded the same death. If its ID was found before, two processes have
			// recorded one death: no participant gets an ID that has a record, so both records are
			// about the same participant.
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

// nobodyBegan reports whether the records show that no participant that began an epoch has died or
// left. The epoch word is not enough: if two claimants in a row died, the word does not say what
// the first of them did.
//
// nobodyBegan ignores an incomplete record. The writer of such a record was stopped or died, and
// another process has recorded the same death.
func (a *Arena) nobodyBegan() bool {
	for _, r := range []deathRecordRing{deathRecordsOfDead, deathRecordsOfLeft} {
		total := a.u64(r.total).Load()
		if total > r.count {
			return false
		}
		for n := range total {
			// Load the number of the record before the flags. A pending participant may write the record at the same
			// time, and the flags are valid only once the record has its number.
			o := a.deathRecord(r, n)
			if whole := a.u64(o+deathRecordSeq).Load() == n+1; whole && a.u32(o+deathRecordFlags).Load()&deathRecordPending == 0 {
				return false
			}
		}
	}
	return true
}
