//go:build linux

package prims

import "testing"

// Mistakes that a Barrier could have. The model must find each of them.
const (
	barBlind        bug = "a change is published over another one"
	barStateFirst   bug = "the state is read before the events"
	barTellOnce     bug = "only the process that changed the state tells"
	barWakeFirst    bug = "a process wakes before it changes the events"
	barSleepsAnyway bug = "a waiter sleeps without a look at the events that it has announced"
	barNoCheck      bug = "waiters do not look by themselves"
	barNoReap       bug = "waiters do not look for the dead"
	barBreakLast    bug = "Reset ends a phase before it has remembered it"
)

// TestModelBarrier checks all interleavings of three processes that arrive, wait, and reset broken phases. One of the
// processes dies or stops for ever at any step, and a newcomer may get the ID of a dead process. Each wait for a
// phase must report how that phase ended. A wait may last for ever only if a party of its phase does not arrive.
func TestModelBarrier(t *testing.T) {
	two := [barProcs]uint8{2, 2, 0}
	requireModels(t, []exploration{
		{"two parties", small, barModel{parties: 2, turns: two}.explore, []bug{barSleepsAnyway, barWakeFirst, barBlind}},
		{"three processes, two parties", large, barModel{parties: 2, turns: [barProcs]uint8{2, 2, 2}}.explore, []bug{barStateFirst}},
		{"a completion", small, barModel{parties: 2, turns: two, completion: true}.explore, []bug{barBlind}},
		{"a death", large, barModel{parties: 2, turns: two, kills: true, completion: true}.explore, []bug{barNoReap, barNoCheck}},
		{"a death, and two that reset", large, barModel{parties: 3, turns: [barProcs]uint8{1, 2, 2}, kills: true}.explore, []bug{barBreakLast}},
		{"an ID that comes back", large, barModel{parties: 3, turns: [barProcs]uint8{1, 2, 2}, kills: true, comesBack: true}.explore, nil},
		{"a stop", large, barModel{parties: 2, turns: [barProcs]uint8{1, 2, 0}, stops: true}.explore, []bug{barNoCheck, barTellOnce}},
	})
}
