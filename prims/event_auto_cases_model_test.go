//go:build linux

package prims

import "testing"

// Mistakes that an Event with automatic reset could have.
const (
	eventNoSecondCheck bug = "who waits does not look again after it has announced itself"
	eventUnattributed  bug = "a token that is handed out is not attributed"
	eventHandsUntaken  bug = "who hands a token out does not take it in hand before"
)

// Sets, waits, and abandoned waits: every token is taken once, or is still
// there.
func TestModelAutoEvent(t *testing.T) {
	bugs := []bug{eventNoSecondCheck, eventHandsUntaken}
	one := eventModel{setters: 1, sets: 2}
	two := eventModel{setters: 2, sets: 2}
	all := eventModel{setters: 2, sets: 3, giveUp: true}
	requireModels(t, []exploration{
		{"two and one", small, one.explore, bugs},
		{"two and two", large, two.explore, bugs},
		{"two and two, giving up", large, all.explore, nil},
	})
}

// Setters and waiters die at each step.
func TestModelAutoEventDeath(t *testing.T) {
	bugs := []bug{eventUnattributed}
	one := eventModel{setters: 1, sets: 2, kills: 1}
	two := eventModel{setters: 1, sets: 2, kills: 2}
	requireModels(t, []exploration{
		{"two and one", small, one.explore, bugs},
		{"two and one, two deaths", large, two.explore, nil},
	})
}
