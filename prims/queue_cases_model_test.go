//go:build linux

package prims

import "testing"

// TestModelQueueRing explores Put, Get, Lease and Nack on the ring of a Queue. A process may die or stop at
// every step.
func TestModelQueueRing(t *testing.T) {
	plain := ringModel{capacity: 1, slots: 2, shift: 1, putters: 1, getters: 2, puts: 3, gets: 2, stops: 1}
	both := ringModel{capacity: 1, slots: 2, shift: 1, putters: 2, getters: 2, puts: 3, gets: 2, stops: 1}
	slot := ringModel{capacity: 1, slots: 2, shift: 1, putters: 2, getters: 1, puts: 3, gets: 2}
	lag := ringModel{capacity: 2, slots: 2, shift: 1, putters: 1, getters: 2, puts: 3, gets: 3, stops: 1}
	race := ringModel{capacity: 2, slots: 3, shift: 2, putters: 2, getters: 1, puts: 3, gets: 2}
	dies := ringModel{capacity: 1, slots: 2, shift: 1, putters: 1, getters: 2, puts: 2, gets: 2, kills: 1}
	lease := ringModel{capacity: 1, slots: 3, shift: 2, putters: 1, getters: 2, leases: 1, puts: 2, gets: 3, kills: 1}
	leases := ringModel{capacity: 2, slots: 3, shift: 2, putters: 1, getters: 2, leases: 2, puts: 2, gets: 4}
	laps := ringModel{capacity: 1, slots: 1, putters: 2, getters: 1, puts: 6, gets: 5}
	requireModels(t, []exploration{
		{"a Put, two Gets, a stop", small, plain.explore, []bug{ringStores}},
		{"two Puts, a slot that is used again", small, slot.explore, []bug{ringTagsFirst}},
		{"two Puts, two Gets, a stop", large, both.explore, []bug{ringTagsFirst}},
		{"a lagging Get", small, lag.explore, []bug{ringJumpsFar, ringNoTag}},
		{"two Puts, a Get", small, race.explore, []bug{ringKeepsSlot, ringTailAhead}},
		{"a death", small, dies.explore, []bug{ringReapsPut, ringReapsNothing}},
		{"leases, a death", small, lease.explore, []bug{ringReadsBack, ringClearsBlind, ringTellsNobody, ringCountsNothing, ringDeviatesLate, ringReapTrusts}},
		{"a Put that is passed by", large, laps.explore, []bug{ringNarrowLaps}},
		{"two leases", small, leases.explore, []bug{ringNoCount}},
	})
}

// Faults of the waits of a Queue.
const (
	lineLooksFirst    bug = "a Put looks for waiters before it puts its item"
	lineSleepsAtOnce  bug = "a Get does not look again after it announced itself"
	lineSleepsAnyway  bug = "a Get sleeps although the word has changed since its announcement"
	lineKeepsSequence bug = "a wake does not change the sequence"
	lineForgetsWake   bug = "a Put changes the word and wakes nobody"
	lineNoPass        bug = "a Get that was woken does not announce the others"
	lineNoReannounce  bug = "a Get that was woken wakes others only if they are announced still"
	linePassBlind     bug = "a Get that was woken announces the others and does not look for more"
	lineLeaves        bug = "a Get whose context ends does not pass on a wake that may have come"
	lineReapSilent    bug = "a reaper does not wake"
	lineShutsSilent   bug = "Shutdown does not wake"
	lineNoCheck       bug = "waiters make no periodic checks"
)

// TestModelQueueWaits: a Get that waits returns if there is an item for it. At every step, a process may die or
// stop for ever, or a context may end.
func TestModelQueueWaits(t *testing.T) {
	plain := lineModel{puts: 2, gets: 2}
	many := lineModel{puts: 2, gets: 3}
	ends := lineModel{puts: 2, gets: 2, cancel: true}
	more := lineModel{puts: 2, gets: 3, cancel: true}
	dies := lineModel{puts: 2, gets: 2, kills: 1}
	stops := lineModel{puts: 2, gets: 2, stops: true}
	shut := lineModel{puts: 1, gets: 2, shutdown: true, cancel: true}
	both := lineModel{puts: 1, gets: 2, kills: 1, stops: true, shutdown: true}
	requireModels(t, []exploration{
		{"two Puts, two Gets", small, plain.explore, []bug{
			lineLooksFirst, lineSleepsAtOnce, lineSleepsAnyway, lineKeepsSequence, lineForgetsWake, lineNoPass, lineNoReannounce, linePassBlind,
		}},
		{"two Puts, three Gets", large, many.explore, []bug{lineNoPass, linePassBlind}},
		{"contexts end", small, ends.explore, nil}, // lineLeaves needs three Gets
		{"three Gets, contexts end", large, more.explore, []bug{lineLeaves}},
		{"a death", small, dies.explore, []bug{lineReapSilent}},
		{"a stop", small, stops.explore, []bug{lineNoCheck}},
		{"a Shutdown", small, shut.explore, []bug{lineShutsSilent}},
		{"a death, a stop and a Shutdown", large, both.explore, []bug{lineNoCheck}},
	})
}
