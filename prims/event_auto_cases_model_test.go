//go:build linux

package prims

import (
	"testing"

	"github.com/shmsync/shmsync/internal/model"
)

// Mistakes that an Event with automatic reset could have. The model must find each of them.
const (
	aeSetNoCountOff     bug = "Set does not count the wait off that has ended"
	aeWaitNoCountOff    bug = "a wait does not count the wait off that has ended"
	aeGiveUpNoCountOff  bug = "a wait that gives up does not count the wait off that has ended"
	aeInheritNoCountOff bug = "a participant does not count the last wait of the one before it off"
	aeInheritNewShare   bug = "a participant clears the whole share of the one before it"
	aeCountsOnce        bug = "a count reads the name of a share after the waits"
	aeNoWordCheck       bug = "a wait is counted off without a look at the word"
	aeBeginsSilently    bug = "a wait that begins does not change the word if it is announced"
	aeEndClears         bug = "a wait that ends clears announced although others wait"
	aeNoLookAgain       bug = "a call does not read the word again after it has counted the waits"
	aeGiveUpLeavesToken bug = "a wait that gives up leaves a token"
	aeGiveUpSilent      bug = "a wait that gives up does not pass the wake on"
	aeTakeSilent        bug = "a wait that takes a token does not pass the wake on"
	aeCountsDead        bug = "the waits of the dead count"
	aeWakesFirst        bug = "Set wakes before its change"
	aeSetSilent         bug = "Set does not wake"
	aeReapSilent        bug = "a reaper does not wake"
	aeNoCheck           bug = "waiters do not look by themselves"
	aeRestsAnyway       bug = "a queue rests although there is a token"
	aeUnbounded         bug = "a wait that leaves the token to others sleeps for ever"
	aeWatchUnbounded    bug = "a watch that leaves the token to others sleeps for ever"
)

// Steps without which an Event is still correct: it is slower or less fair, but it loses no token.
const (
	aeEndNoCountOff bug = "a wait that ends leaves its count to others"
	aeMissSilent    bug = "a wake that finds nobody is not passed on"
	aeBarges        bug = "a wait that has not slept takes a token"
)

// aeModel returns the model that has these threads.
func aeModel(threads ...string) autoEventModel { return autoEventModel{threads: threads} }

func (m autoEventModel) withKills(n uint8) autoEventModel { m.kills = n; return m }
func (m autoEventModel) withStop() autoEventModel         { m.stops = true; return m }
func (m autoEventModel) withChecks() autoEventModel       { m.checks = true; return m }
func (m autoEventModel) set() autoEventModel              { m.first = 1; return m }

// The method but returns a function that explores the model without one of its steps.
func (m autoEventModel) but(step bug) func(bug) model.Result {
	return func(bug) model.Result { return m.explore(step) }
}

// TestModelAutoEvent: each Set makes a token, unless there is already a token that no wait will take. Each
// token is taken once, or is still there at the end. No wait sleeps while there is a token.
func TestModelAutoEvent(t *testing.T) {
	requireModels(t, []exploration{
		{"two waits of a process, two sets", small, aeModel("0kw", "0kw", "1kSS").explore, []bug{
			aeSetNoCountOff, aeWaitNoCountOff, aeNoWordCheck, aeBeginsSilently, aeEndClears, aeNoLookAgain, aeWakesFirst, aeSetSilent, aeUnbounded,
		}},
		{"two waits that park", large, aeModel("0pw", "0pw", "1kSS").explore, []bug{aeTakeSilent, aeBeginsSilently, aeEndClears, aeWakesFirst}},
		{"one parks", small, aeModel("0pw", "0kw", "2kSS").explore, []bug{aeEndClears, aeUnbounded}},
		{"waits of two processes", small, aeModel("0kw", "1kw", "2kSS").explore, []bug{aeWaitNoCountOff, aeBeginsSilently, aeEndClears, aeNoLookAgain}},
		{"two processes that park", large, aeModel("0pw", "1pw", "2kSS").explore, []bug{aeBeginsSilently, aeEndClears}},
		{"three waits that park", large, aeModel("0pw", "0pw", "1pw", "2kS").explore, []bug{aeUnbounded}},
		{"as many sets as waits", large, aeModel("0Kw", "1Kw", "0Kw", "2kSS", "3kS").explore, []bug{aeEndClears, aeNoLookAgain, aeNoWordCheck}},
		{"as many sets as waits that park", small, aeModel("0Pw", "0Pw", "0Pw", "2kSSS").explore, []bug{aeEndClears, aeNoLookAgain, aeTakeSilent}},
		{"as many sets as waits, and one process does both", large, aeModel("0Pw", "1Pw", "0Pw", "0kSS", "1kS").explore, []bug{aeEndClears, aeTakeSilent}},
		{"a TryWait", small, aeModel("0kw", "0kT", "1kSS").explore, []bug{aeSetNoCountOff, aeNoLookAgain}},
		{"a TryWait, and it is set", small, aeModel("0kw", "1kT", "2kSS").set().explore, []bug{aeSetNoCountOff, aeNoLookAgain}},
		{"a Reset", small, aeModel("0kw", "1kS", "2kRS").explore, []bug{aeSetNoCountOff, aeNoLookAgain}},
		{"a Reset between sleepers", small, aeModel("0Kw", "1Kw", "2kSRS", "3kS").explore, []bug{aeEndClears, aeNoLookAgain}},
		{"a context", small, aeModel("0kw", "1kc", "2kS").explore, []bug{aeGiveUpNoCountOff, aeGiveUpLeavesToken, aeBeginsSilently}},
		{"a context, two sets", large, aeModel("0kw", "1kc", "2kS", "3kS").explore, []bug{aeGiveUpNoCountOff, aeGiveUpLeavesToken}},
		{"two Pendings", small, aeModel("0pa", "0pa", "1kS").explore, []bug{aeGiveUpNoCountOff, aeGiveUpLeavesToken, aeWatchUnbounded}},
		{"two Pendings, and only the checks end a pause", large, aeModel("0pa", "0pa", "1kS").withChecks().but(aeWatchUnbounded), nil},
		{"WaitAny", small, aeModel("0kw", "1ko", "2kS").explore, []bug{aeGiveUpSilent, aeGiveUpNoCountOff, aeEndClears}},
		{"WaitAny that parks", small, aeModel("0pw", "0po", "1kS").explore, []bug{aeGiveUpSilent, aeNoWordCheck}},
		{"tokens that WaitAny leaves", large, aeModel("0Ko", "1Ko", "2kSS", "3kT").explore, []bug{aeGiveUpNoCountOff}},
		{"WaitAny, two sets", large, aeModel("0pw", "0po", "2kSS").explore, []bug{aeBeginsSilently, aeEndClears}},
		{"a context, and three that park", large, aeModel("0Pw", "1Pc", "1pw", "2kSS").explore, []bug{aeEndClears, aeNoLookAgain}},
	})
}

// TestModelAutoEventDeath: a process may die at each step.
func TestModelAutoEventDeath(t *testing.T) {
	requireModels(t, []exploration{
		{"two waits", small, aeModel("0kw", "1kw", "2kS").withKills(1).explore, []bug{aeReapSilent, aeWaitNoCountOff, aeWakesFirst}},
		{"a TryWait", small, aeModel("0kw", "1kS", "2kST").withKills(1).explore, []bug{aeCountsDead, aeReapSilent}},
		{"another in the slot", small, aeModel("0kw", "0kIw", "1kSS").withKills(1).explore, []bug{aeInheritNoCountOff, aeInheritNewShare}},
		{"another in the slot, and a TryWait", small, aeModel("0kw", "0kIw", "1kST").withKills(1).explore, []bug{aeCountsOnce, aeCountsDead}},
		{"another in the slot, and one that helps", small, aeModel("0kw", "0kIw", "1kw", "2kS").withKills(1).explore, []bug{aeInheritNoCountOff, aeInheritNewShare}},
		{"WaitAny", small, aeModel("0Kw", "1Po", "2kS").withKills(1).explore, []bug{aeReapSilent}},
		{"two deaths", large, aeModel("0Kw", "1Kw", "2kS", "3kS").withKills(2).explore, []bug{aeReapSilent, aeEndClears}},
		{"three waits", large, aeModel("0Pw", "0pw", "1kw", "2kS").withKills(1).explore, []bug{aeReapSilent}},
	})
}

// TestModelAutoEventStop: a process may stop for ever at each step.
func TestModelAutoEventStop(t *testing.T) {
	requireModels(t, []exploration{
		{"two waits", small, aeModel("0kw", "1kw", "2kS").withStop().explore, []bug{aeNoCheck, aeWaitNoCountOff}},
		{"two that park", large, aeModel("0Pw", "1Pw", "2kS").withStop().explore, []bug{aeNoCheck}},
		{"three that sleep", large, aeModel("0Kw", "0Kw", "1Kw", "2kS").withStop().explore, []bug{aeNoCheck, aeRestsAnyway}},
		{"two setters", large, aeModel("0Kw", "1Kw", "2kS", "3kS").withStop().explore, []bug{aeNoCheck}},
		{"two begin to park", large, aeModel("0pw", "1pw", "2kS").withStop().explore, []bug{aeNoCheck}},
		{"a stop and a death", large, aeModel("0Kw", "1Pw", "2kS").withStop().withKills(1).explore, []bug{aeNoCheck}},
	})
}

// TestModelAutoEventLess: the correctness does not depend on some steps. No token is lost if one of
// these steps is left out.
func TestModelAutoEventLess(t *testing.T) {
	requireModels(t, []exploration{
		{"counts are left to others", small, aeModel("0kw", "0kw", "1kSS").but(aeEndNoCountOff), nil},
		{"counts are left to others, and one stops", small, aeModel("0Pw", "1Pw", "2kS").withStop().but(aeEndNoCountOff), nil},
		{"a wake for nobody ends", small, aeModel("0pw", "0po", "1kS").but(aeMissSilent), nil},
		{"a wake for nobody ends, three park", large, aeModel("0Pw", "1Pc", "1pw", "2kSS").but(aeMissSilent), nil},
		{"all barge", small, aeModel("0pw", "0pw", "1kSS").but(aeBarges), nil},
	})
}
