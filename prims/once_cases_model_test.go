//go:build linux

package prims

import "testing"

// Faults that a Once could have.
const (
	onNoTurn         bug = "a change does not compare the turn"
	onTakesFromDead  bug = "a call takes the turn of a dead process that is not gone"
	onTakeForgets    bug = "a call that takes the turn of a dead process clears the announcement"
	onSleepsAnyway   bug = "a waiter sleeps although the word has changed since its announcement"
	onWakesFirst     bug = "the runner wakes before it sets done"
	onStores         bug = "the runner sets done by a store"
	onWokenIsDone    bug = "a waiter that is woken returns without reading the word"
	onReapSilent     bug = "a reaper does not wake"
	onReapWakesFirst bug = "a reaper wakes before it changes the word"
	onNoCheck        bug = "waiters make no periodic checks"
)

// TestModelOnce explores calls of Do by two or three processes. At any step a process may die or stop for ever. Two
// reapers reap a dead process, and one reaper may die or stop, too. A process may join with the ID of a dead one.
// Only one function runs at a time. Each call ends, unless the process that runs the function is stopped.
func TestModelOnce(t *testing.T) {
	lives := onModel{callers: 3, cancel: true}
	dies := onModel{callers: 3, kills: 1}
	stops := onModel{callers: 2, stops: true, kills: 1}
	reaper := onModel{callers: 2, kills: 2, reaper: true}
	three := onModel{callers: 3, stops: true, kills: 1}
	requireModels(t, []exploration{
		{"no death", small, lives.explore, []bug{onSleepsAnyway, onWakesFirst, onStores}},
		{"a stop and a death", small, stops.explore, []bug{onNoCheck, onNoTurn}},
		{"two deaths, also of a reaper", large, reaper.explore, []bug{onTakesFromDead, onReapSilent, onReapWakesFirst, onNoTurn}},
		{"a death", large, dies.explore, []bug{onTakesFromDead, onTakeForgets, onSleepsAnyway, onWakesFirst, onReapSilent, onReapWakesFirst, onWokenIsDone}},
		{"three callers, a stop and a death", large, three.explore, []bug{onNoCheck, onNoTurn}},
	})
}
