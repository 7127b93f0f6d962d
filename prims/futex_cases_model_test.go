//go:build linux

package prims

import "testing"

// Mistakes that a Futex could have.
const (
	announceOnce       bug = "a waiter announces itself once, and not for each value"
	sleepUnannounced   bug = "a waiter does not announce itself"
	postWakesFirst     bug = "a post wakes, and then counts"
	postWakesOne       bug = "a post wakes one"
	postClearsLate     bug = "a post takes the announcement down after the wake"
	stopDoesNotWakeAll bug = "Stop wakes one"
	futexReapSilent    bug = "a reap does not make up for wakes that died"
	futexReapByRecord  bug = "a reap wakes one of those that have a record"
)

// TestModelFutex explores posts, stops, and waiters for different tokens.
func TestModelFutex(t *testing.T) {
	bugs := []bug{announceOnce, sleepUnannounced, postWakesFirst, postWakesOne, postClearsLate}
	two := futexModel{waiters: 2, posters: 1, tokens: 2}
	stop := futexModel{waiters: 2, posters: 2, tokens: 2, stop: true}
	three := futexModel{waiters: 3, posters: 2, tokens: 3, stop: true}
	requireModels(t, []exploration{
		{"two and one", small, two.explore, bugs},
		{"two and two, stop", small, stop.explore, append(bugs, stopDoesNotWakeAll)},
		{"three and two, stop", large, three.explore, nil},
	})
}

// TestModelFutexDeath explores deaths of posters and of waiters.
func TestModelFutexDeath(t *testing.T) {
	bugs := []bug{futexReapSilent}
	two := futexModel{waiters: 2, posters: 1, tokens: 2, stop: true, kills: 1}
	both := futexModel{waiters: 2, posters: 2, tokens: 2, stop: true, kills: 2}
	requireModels(t, []exploration{
		{"two and one", small, two.explore, append(bugs, futexReapByRecord)},
		{"two and two, two deaths", large, both.explore, bugs},
	})
}
