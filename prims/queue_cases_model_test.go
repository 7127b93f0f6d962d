//go:build linux

package prims

import "testing"

// Puts, Gets, Leases and Nacks on the ring of a Queue, with deaths and stops at every step.
func TestModelQueueRing(t *testing.T) {
	plain := ringModel{capacity: 1, slots: 2, shift: 1, putters: 1, getters: 2, puts: 3, gets: 2, stops: 1}
	both := ringModel{capacity: 1, slots: 2, shift: 1, putters: 2, getters: 2, puts: 3, gets: 2, stops: 1}
	slot := ringModel{capacity: 1, slots: 2, shift: 1, putters: 2, getters: 1, puts: 3, gets: 2}
	lag := ringModel{capacity: 2, slots: 2, shift: 1, putters: 1, getters: 2, puts: 3, gets: 3, stops: 1}
	race := ringModel{capacity: 2, slots: 3, shift: 2, putters: 2, getters: 1, puts: 3, gets: 2}
	dies := ringModel{capacity: 1, slots: 2, shift: 1, putters: 1, getters: 2, puts: 2, gets: 2, kills: 1}
	lease := ringModel{capacity: 1, slots: 3, shift: 2, putters: 1, getters: 2, leases: 1, puts: 2, gets: 3, kills: 1}
	leases := ringModel{capacity: 2, slots: 3, shift: 2, putters: 1, getters: 2, leases: 2, puts: 2, gets: 4}
	laps := ringModel{capacity: 1, slots: 1, putters: 2, getters: 1, puts: 5, gets: 4}
	requireModels(t, []exploration{
		{"a Put, two Gets, a stop", small, plain.explore, []bug{ringStores}},
		{"two Puts, a slot that is used again", small, slot.explore, []bug{ringTagsFirst}},
		{"two Puts, two Gets, a stop", large, both.explore, []bug{ringTagsFirst}},
		{"a lagging Get", small, lag.explore, []bug{ringJumpsFar, ringNoTag}},
		{"two Puts, a Get", small, race.explore, []bug{ringKeepsSlot}},
		{"a death", small, dies.explore, []bug{ringReapsPut, ringReapsNothing}},
		{"leases, a death", small, lease.explore, []bug{ringReadsBack, ringClearsBlind, ringTellsNobody, ringCountsNothing, ringDeviatesLate}},
		{"a Put that is passed by", medium, laps.explore, []bug{ringNarrowLaps}},
		{"two leases", small, leases.explore, []bug{ringNoCount}},
	})
}
