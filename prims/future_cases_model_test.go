//go:build linux

package prims

import "testing"

// Faults that a Future could have.
const (
	fuNoRecheck     bug = "a process decides a round without a second look at the word"
	fuStores        bug = "a result is stored, whatever is there"
	fuSleepsAnyway  bug = "a waiter sleeps without a look at the word that it has announced"
	fuWakesFirst    bug = "a process wakes before it ends the round"
	fuReapSilent    bug = "a reaper does not end the round"
	fuReapByID      bug = "a reaper takes a participant with the same ID for the dead one"
	fuNoCheck       bug = "waiters do not look by themselves"
	fuLookOnce      bug = "nobody ends the round that another process has decided"
	fuResetsBeside  bug = "Reset does not wait until the dead process is gone"
	fuForgets       bug = "the end of a round loses an announcement"
	fuReapedAnyways bug = "a process takes a living producer for dead"
)

// TestModelFuture checks that each round has one result, and that each wait ends with the result of its round. If two
// more rounds have ended since then, the wait may get a later result, because the model keeps two results. One process
// claims and sets, another sets, one waits, and one resets and sets again. A process dies or stops for ever at any
// step. A dead process is reaped, and a participant with the same ID may join.
func TestModelFuture(t *testing.T) {
	requireModels(t, []exploration{
		{"two set, one waits", small, fuModel{claim: true, set: true, waits: true}.explore, []bug{fuSleepsAnyway, fuWakesFirst, fuStores, fuForgets}},
		{"a death", small, fuModel{claim: true, waits: true, kills: 1}.explore, []bug{fuReapSilent, fuSleepsAnyway}},
		{"a death, and rounds", large, fuModel{claim: true, rounds: 1, kills: 1, again: true}.explore, []bug{fuReapByID, fuResetsBeside, fuReapedAnyways}},
		{"a stop, and rounds", large, fuModel{set: true, waits: true, rounds: 2, stops: true}.explore, []bug{fuNoCheck, fuLookOnce}},
		{"two set, and rounds", large, fuModel{claim: true, set: true, rounds: 2}.explore, []bug{fuNoRecheck, fuStores}},
		{"a stop and a death", large, fuModel{claim: true, set: true, waits: true, kills: 1, stops: true}.explore, []bug{fuNoCheck, fuStores}},
	})
}

// stepCheck models the periodic check of the waiter. Only a model with stops has this step, and only where a process
// has left something undone. The other models show that without stops no wait depends on the check.
func (m *fuModel) stepCheck(s *fuState, do func(string, func(*fuState, *fuThread))) {
	t := &s.thread[fuWaiter]
	if !m.stops || m.bug == fuNoCheck || t.pc != fuAsleep {
		return
	}
	decided := s.results[s.w.round()%fuKept].of(s.w.round()) && m.bug != fuLookOnce
	if s.w.seq != 2*t.round || decided || m.dead(s, fuWaiter, s.w.producer) {
		do("finds what has come", func(to *fuState, _ *fuThread) { m.wake(to) })
	}
}
