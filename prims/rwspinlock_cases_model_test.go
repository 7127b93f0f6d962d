//go:build linux

package prims

import "testing"

var rwAll = []uint8{vRead, vWrite, vUpgrade}

// TestModelRWSpinLock explores all holds, all changes from one hold to another, and waits that give up.
func TestModelRWSpinLock(t *testing.T) {
	two := rwSpinModel{wants: [][]uint8{rwAll, rwAll}, cancel: true}
	three := rwSpinModel{wants: [][]uint8{{vRead}, {vWrite}, {vUpgrade}}}
	cancel := rwSpinModel{wants: [][]uint8{{vRead}, {vWrite}, {vUpgrade}}, cancel: true}
	every := rwSpinModel{wants: [][]uint8{{vRead}, {vWrite}, rwAll}, cancel: true}
	writers := rwSpinModel{wants: [][]uint8{{vWrite}, {vUpgrade}, {vWrite}}, cancel: true}
	readers := rwSpinModel{wants: [][]uint8{{vRead}, {vRead}, {vWrite}}}
	opens := rwSpinModel{wants: [][]uint8{rwAll, rwAll}, cancel: true, opens: true}
	open := rwSpinModel{wants: [][]uint8{{vRead}, {vRead}, {vWrite}}, opens: true}
	requireModels(t, []exploration{
		{"two that open it", small, opens.explore, []bug{rwRecordLate, rwListFirst, rwLookFirst, rwNoRescan}},
		{"three that open it", large, open.explore, []bug{rwRecordLate, rwListFirst}},
		{"two", small, two.explore, []bug{rwLookFirst, rwExitSilent, rwNoRescan, rwGiveUpSilent, rwUpgradeResets}},
		{"three", large, three.explore, []bug{rwLookFirst, rwReleaseFirst, rwExitSilent}},
		{"three, some give up", large, cancel.explore, []bug{rwLookFirst, rwReleaseFirst, rwExitSilent}},
		{"three, one of every kind, some give up", large, every.explore, []bug{rwLookFirst, rwReleaseFirst, rwExitSilent}},
		{"three that exclude each other", large, writers.explore, []bug{rwTookSilent, rwLeaveSilent}},
		{"readers", small, readers.explore, []bug{rwGateOne, rwExitSilent, rwLookFirst}},
	})
}

// TestModelRWSpinLockDeath explores models in which a thread may die at every step: as a reader, while it waits for
// readers, while it holds the lock exclusively, after a wake, or after it has freed the lock and before it wakes a
// waiter.
func TestModelRWSpinLockDeath(t *testing.T) {
	var all []exploration
	// The policy concerns only the exclusive hold. The holds of dead readers are taken back with every policy.
	for p, two := range map[Policy]size{PolicyReport: small, PolicyRelease: large} {
		pair := rwSpinModel{wants: [][]uint8{rwAll, rwAll}, cancel: true, kills: 1, policy: p}
		opens := rwSpinModel{wants: [][]uint8{rwAll, rwAll}, opens: true, kills: 1, policy: p}
		three := rwSpinModel{wants: [][]uint8{{vRead}, {vWrite}, {vUpgrade}}, kills: 1, policy: p}
		readers := rwSpinModel{wants: [][]uint8{{vRead}, {vRead}, {vWrite}}, kills: 1, policy: p}
		all = append(all,
			exploration{"two, " + p.String(), two, pair.explore, []bug{rwCountsOfDead, rwSpinNoFence, rwLookFirst}},
			exploration{"two that open it, " + p.String(), two, opens.explore, []bug{rwRecordLate, rwListFirst, rwCountsOfDead}},
			exploration{"three, " + p.String(), large, three.explore, []bug{rwReapSilent, rwExitSilent}},
			exploration{"readers, " + p.String(), large, readers.explore, []bug{rwReapSilent, rwCountsOfDead}})
	}
	requireModels(t, all)
}
