//go:build linux

package prims

import "testing"

// TestModelTurns: a wait is both in the queue of all processes and on the line of its process. Each wait has
// exactly one outcome. Waits are granted in the order of arrival, and no wait is left without a wake.
func TestModelTurns(t *testing.T) {
	alone := turnsModel{process: []uint8{0, 0, 0}, calls: 1, cancels: true}
	two := turnsModel{process: []uint8{0, 0, 1}, calls: 1, cancels: true}
	pairs := turnsModel{process: []uint8{0, 0, 1, 1}, calls: 1, cancels: true}
	killed := turnsModel{process: []uint8{0, 0, 1}, calls: 1, cancels: true, mortal: 1}
	left := turnsModel{process: []uint8{0, 0, 1}, calls: 2, mortal: 2}
	requireModels(t, []exploration{
		{"three goroutines of a process", small, alone.explore, []bug{turnsAppendLate, turnsCancelKeeps, turnsNoEnd}},
		{"two goroutines, and one of another process", small, two.explore, []bug{turnsAppendLate, turnsCancelKeeps, turnsNoEnd}},
		{"two goroutines of each of two processes", large, pairs.explore, []bug{turnsAppendLate, turnsCancelKeeps, turnsNoEnd}},
		{"the process that has the turn dies", small, killed.explore, nil},
		{"the other process dies", small, left.explore, []bug{turnsAppendLate}},
	})
}
