//go:build linux

package prims

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The kinds of hold that Lock may take in a model.
var (
	anyHold  = []uint8{uint8(kindHeld), uint8(kindBiased)}
	noBiased = []uint8{uint8(kindHeld)}
)

// TestModelMutexBiased explores an Unlock by a plain store while other threads wait.
func TestModelMutexBiased(t *testing.T) {
	bugs := []bug{noFence, noLookAfterFence, wakeBeforeRelease, sleepOnOwner}
	two := mutexModel{threads: []int{0, 1}, modes: anyHold}
	three := mutexModel{threads: []int{0, 1, 2}, modes: anyHold}
	four := mutexModel{threads: []int{0, 1, 2, 3}, modes: anyHold}
	requireModels(t, []exploration{
		{"two", small, two.explore, bugs},
		{"three", small, three.explore, append(bugs, noAnnounceAfterSleep)},
		{"four", large, four.explore, nil},
	})
}

// TestModelMutexWakeOne explores releases that wake one waiter, with callers that barge and waiters
// that give up.
func TestModelMutexWakeOne(t *testing.T) {
	bugs := []bug{noAnnounceAfterSleep, leaveAtOnce, leaveDoesNotWake, leaveWithoutAnnounce, sleepOnOwner}
	three := mutexModel{threads: []int{0, 1, 2}, modes: anyHold, cancel: true}
	four := mutexModel{threads: []int{0, 1, 2, 3}, modes: noBiased, cancel: true}
	requireModels(t, []exploration{
		{"three", small, three.explore, bugs},
		{"four", small, four.explore, bugs},
	})
}

// TestModelMutexHandOff explores handoffs without deaths.
func TestModelMutexHandOff(t *testing.T) {
	bugs := []bug{sleepOnHandoffOnly, staleStarver, sleptForgotten, reserveBlindly, reservationStays, revokeDoesNotWake, handOffDoesNotWake}
	two := mutexModel{threads: []int{0, 1}, modes: anyHold, cancel: true, handoffs: true}
	three := mutexModel{threads: []int{0, 1, 2}, modes: noBiased, cancel: true, handoffs: true}
	mixed := mutexModel{threads: []int{0, 1, 2}, modes: anyHold, cancel: true, handoffs: true}
	one := mutexModel{threads: []int{0, 0, 1}, modes: noBiased, cancel: true, handoffs: true}
	requireModels(t, []exploration{
		{"two", small, two.explore, bugs},
		{"three", large, three.explore, append(bugs, wakeOneStarver)},
		{"three, some biased", large, mixed.explore, nil},
		{"two of one process", large, one.explore, append(bugs, wakeOneStarver)},
	})
}

// TestModelMutexDeath: a process dies at every step. It is the holder, a waiter, a waiter that was
// woken, a process that has unlocked and has not made the wake yet, or a process that deals with a
// death.
func TestModelMutexDeath(t *testing.T) {
	bugs := []bug{noFenceBeforeRepair, silentReaper, reapDoesNotWake, wakeByRecordOnly, wakeByAnnouncementOnly, notRegistered}
	two := mutexModel{threads: []int{0, 1}, modes: anyHold, kills: 1, policy: PolicyReport, recoverers: 1}
	release := mutexModel{threads: []int{0, 1}, modes: anyHold, kills: 1, policy: PolicyRelease}
	three := mutexModel{threads: []int{0, 1, 2}, modes: anyHold, kills: 1, policy: PolicyRelease}
	both := mutexModel{threads: []int{0, 1, 2}, modes: noBiased, kills: 2, policy: PolicyReport, cancel: true, recoverers: 1}
	told := mutexModel{threads: []int{0, 1, 2, 3}, modes: noBiased, kills: 1, policy: PolicyReport}
	toldTwice := mutexModel{threads: []int{0, 1, 2, 3}, modes: noBiased, kills: 2, policy: PolicyReport}
	requireModels(t, []exploration{
		{"two, report and recover", small, two.explore, bugs},
		{"two, release", small, release.explore, bugs},
		{"three, release", large, three.explore, bugs},
		{"three, two deaths", large, both.explore, bugs},
		{"four", large, told.explore, []bug{toldOnesKeepIt}},
		{"four, two deaths", large, toldTwice.explore, nil},
	})
}

// TestModelMutexHandOffDeath explores deaths of processes that hand the lock off, and of processes
// that wait for a handoff.
func TestModelMutexHandOffDeath(t *testing.T) {
	two := mutexModel{threads: []int{0, 1}, modes: anyHold, cancel: true, handoffs: true, kills: 1, policy: PolicyReport}
	three := mutexModel{threads: []int{0, 1, 2}, modes: noBiased, handoffs: true, kills: 1, policy: PolicyRelease}
	canceled := mutexModel{threads: []int{0, 1, 2}, modes: noBiased, cancel: true, handoffs: true, kills: 1, policy: PolicyRelease}
	requireModels(t, []exploration{
		{"two", small, two.explore, []bug{reapDoesNotWake, noFenceBeforeRepair}},
		{"three", large, three.explore, []bug{reapDoesNotWake, nobodyLooks}},
		{"three, canceled", large, canceled.explore, nil},
	})
}

// TestModelMutexBit: for the Mutex, a wake word that has only the announcement bit, and no sequence, would suffice.
// If the bit was cleared and is set again, another waiter has announced itself, and the next release makes a wake.
func TestModelMutexBit(t *testing.T) {
	m := mutexModel{threads: []int{0, 1, 2}, modes: anyHold, cancel: true, bitOnly: true}
	requireModels(t, []exploration{{"three", large, m.explore, nil}})
}

// TestModelSymmetry: each state that the search leaves out because of symmetry is the mirror image
// of a state that it visits.
func TestModelSymmetry(t *testing.T) {
	for _, m := range []mutexModel{
		{threads: []int{0, 1}, modes: anyHold, kills: 1, policy: PolicyReport, recoverers: 1},
		{threads: []int{0, 1}, modes: anyHold, cancel: true, handoffs: true},
	} {
		for _, b := range []bug{"", noFence, leaveAtOnce, reservationStays, wakeByRecordOnly} {
			with := m.explore(b)
			m := m
			m.distinct = true
			without := m.explore(b)
			require.Equal(t, with.Violation == nil, without.Violation == nil, "%s", b)
			if with.Violation != nil {
				require.ErrorIs(t, with.Violation, without.Violation.Err, "%s", b)
				require.Len(t, with.Violation.Trace, len(without.Violation.Trace), "%s", b)
				continue
			}
			require.Less(t, with.States, without.States, "%s", b)
			require.GreaterOrEqual(t, 2*with.States, without.States, "%s", b)
		}
	}
}
