//go:build linux

package prims

import "testing"

// TestModelMonitor explores waits in a queue, with deaths at every step of waiters and of granters.
func TestModelMonitor(t *testing.T) {
	bugs := []bug{
		monAccountsTwice, monLeftAsSpent, monKeepsStamped, monHasNoLog, monGrantsLeft, monWakesNobody, monDoesNotReap, monDropsFirst, monDoesNotCleanUp,
	}
	one := monModel{wants: []uint8{2, 1}, permits: 2, kills: 1}
	both := monModel{wants: []uint8{2, 1}, permits: 2, kills: 2}
	tries := monModel{wants: []uint8{2, 1}, permits: 2, kills: 2, tries: true}
	elsewhere := monModel{wants: []uint8{2, 1}, permits: 2, kills: 2, elsewhere: true}
	three := monModel{wants: []uint8{1, 2, 1}, permits: 2}
	dies := monModel{wants: []uint8{1, 2, 1}, permits: 2, kills: 1}
	requireModels(t, []exploration{
		{"two, one dies", small, one.explore, bugs},
		{"two, both die", small, both.explore, bugs},
		{"two, a reap that finds the queue lock taken", small, tries.explore, []bug{monReclaimsBlindly, monForgetsOrphans}},
		{"two, with waits elsewhere", small, elsewhere.explore, []bug{monReclaimsAnyUse, monLogNamesStamp, monReapsAnyUse}},
		{"three", large, three.explore, []bug{monGrantsLeft, monDoesNotCleanUp}},
		{"three, one dies", large, dies.explore, nil},
	})
}
