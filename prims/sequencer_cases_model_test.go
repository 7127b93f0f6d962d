//go:build linux

package prims

import "testing"

// Faults that a sequence could have.
const (
	sequenceNoSecondCheck bug = "a waiter does not look again after it has announced its token"
	sequencePlainNext     bug = "a waiter announces its token by a plain store"
	sequencePlainCount    bug = "a count is a plain store"
	sequenceLooksFirst    bug = "who counts looks for a token, and then counts"
	sequenceNextTooFar    bug = "who resolves forgets those who stay"
	sequenceReapSilent    bug = "a reap does not resolve"
	sequenceReapWakesNone bug = "a reap does not wake those whose wait is over"
)

// Counts, waiters for different tokens, and waits that are given up.
func TestModelSequence(t *testing.T) {
	bugs := []bug{sequenceNoSecondCheck, sequencePlainNext, sequencePlainCount, sequenceLooksFirst}
	one := sequenceModel{waiters: 1, counters: 1, tokens: 1}
	two := sequenceModel{waiters: 2, counters: 1, tokens: 2}
	quit := sequenceModel{waiters: 2, counters: 2, tokens: 2, giveUp: true}
	three := sequenceModel{waiters: 3, counters: 1, tokens: 3}
	requireModels(t, []exploration{
		{"one and one", small, one.explore, bugs},
		{"two and one", small, two.explore, append(bugs, sequenceNextTooFar)},
		{"two and two, giving up", medium, quit.explore, nil},
		{"three and one", large, three.explore, nil},
	})
}

// Deaths at each step of counters and of waiters.
func TestModelSequenceDeath(t *testing.T) {
	bugs := []bug{sequenceReapSilent, sequenceReapWakesNone}
	one := sequenceModel{waiters: 1, counters: 1, tokens: 1, kills: 1}
	two := sequenceModel{waiters: 2, counters: 1, tokens: 2, kills: 1, giveUp: true}
	both := sequenceModel{waiters: 2, counters: 2, tokens: 2, kills: 2}
	requireModels(t, []exploration{
		{"one and one", small, one.explore, nil},
		{"two and one", small, two.explore, bugs},
		{"two and two, two deaths", large, both.explore, bugs},
	})
}
