//go:build linux

package prims

import "testing"

// Mistakes that a manual-reset Event could have. The model must find each of them.
const (
	meSleepsAnyway    bug = "a waiter sleeps without a look at the word that it has announced"
	meWakesFirst      bug = "a process wakes before it turns the Event"
	meForgets         bug = "a turn loses an announcement"
	meSilent          bug = "a turn wakes nobody"
	meWokenIsDone     bug = "a waiter that is woken returns"
	meParity          bug = "a waiter asks whether the Event is set, and not whether it was turned"
	meReapSilent      bug = "a reaper does not wake"
	meNoCheck         bug = "waiters do not look by themselves"
	meChecksAnnounced bug = "a check trusts an announcement that came after the change"
)

// TestModelEvent checks that a wait ends if a process sets or resets the Event after the wait has begun, and only
// then. Some processes set and reset the Event. Others wait until it is set, or until it is reset. A process dies, or
// stops for ever, at any step.
func TestModelEvent(t *testing.T) {
	lives := []bug{meSleepsAnyway, meWakesFirst, meForgets, meSilent, meParity}
	requireModels(t, []exploration{
		{"a pulse, two waiters", small, meModel{threads: []string{"SR", "s", "r"}, cancel: true}.explore, lives},
		{"two turn it", small, meModel{threads: []string{"SR", "RS", "s"}}.explore, lives},
		{"a death", small, meModel{threads: []string{"SR", "s", "r"}, kills: 1}.explore, []bug{meReapSilent, meWokenIsDone, meParity}},
		{"a stop", small, meModel{threads: []string{"SRS", "R", "s"}, stops: true}.explore, []bug{meNoCheck}},
		{"a stop, two waiters", large, meModel{threads: []string{"SR", "RS", "s", "s"}, stops: true}.explore, []bug{meNoCheck, meChecksAnnounced}},
		{"a stop and a death", large, meModel{threads: []string{"SR", "R", "s", "r"}, stops: true, kills: 1}.explore, []bug{meNoCheck}},
	})
}
