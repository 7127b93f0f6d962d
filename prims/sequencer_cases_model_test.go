//go:build linux

package prims

import "testing"

// Mistakes that a Sequencer could have.
const (
	mqNoSecondLook       bug = "a waiter does not look at the counter after its announcement"
	mqForgetsTheNearer   bug = "a waiter does not check whether the counter has passed the nearer token that it has announced"
	mqSleepsAnyway       bug = "a waiter sleeps although the word has changed since its announcement"
	mqOverwrites         bug = "a waiter replaces an announced token that is nearer"
	mqNoHelp             bug = "a waiter announces over a word that is due"
	mqLooksFirst         bug = "a process looks at the cell and then counts"
	mqReachedOnly        bug = "a word is due only if the counter is exactly at the announced token"
	mqJumpLikeAny        bug = "a count that jumps further ahead than a token can be announced changes the word only if it is due"
	mqHitGivesUp         bug = "a count whose CAS fails leaves the cell to others"
	mqSilent             bug = "a count wakes nobody"
	mqWokenIsDone        bug = "a waiter that is woken returns without checking the counter"
	mqReapSilent         bug = "a reaper does not wake"
	mqReapsTheSleeping   bug = "a reaper wakes the sleepers, but does not change the word on which a waiter is about to sleep"
	mqNoCheck            bug = "waiters make no periodic checks"
	mqCheckTrustsTheWord bug = "a periodic check reads only the word, and not the waits of its process"
	mqCheckForgetsTurns  bug = "a periodic check does not read whether all waits were ended"
	mqJudgesCountFirst   bug = "a waiter reads the counter before turns to find out how its wait has ended"
)

// TestModelSequencer checks that a wait ends if its token is reached or all waits are ended, and only then. If
// the token is reached first, the wait is not cancelled. Some processes of the model count, end all waits, and set the
// counter back. Other processes wait for tokens of one cell. A process may die, or be stopped for ever, at any step.
func TestModelSequencer(t *testing.T) {
	requireModels(t, []exploration{
		{"a count, two tokens", small, sequencerModel{threads: []string{"1", "a", "c"}, cancel: true}.explore, []bug{
			mqNoSecondLook, mqSleepsAnyway, mqOverwrites, mqLooksFirst, mqSilent, mqWokenIsDone,
		}},
		{"two count", small, sequencerModel{threads: []string{"11", "1", "c"}}.explore, []bug{mqLooksFirst, mqNoSecondLook}},
		{"past a token", small, sequencerModel{threads: []string{"2", "a", "d"}}.explore, []bug{mqNoHelp, mqReachedOnly}},
		{"to a token and past one", small, sequencerModel{threads: []string{"2", "a", "b"}}.explore, []bug{mqHitGivesUp}},
		{"the field wraps", small, sequencerModel{threads: []string{"131", "j", "l"}, first: 7}.explore, []bug{mqSilent}},
		{"a jump beyond the field", small, sequencerModel{threads: []string{"9", "b", "k"}}.explore, []bug{mqJumpLikeAny}},
		{"a jump beyond the field, and one within it", small, sequencerModel{threads: []string{"62", "h"}}.explore, []bug{mqForgetsTheNearer}},
		{"a token is reached before the waits are ended", small, sequencerModel{threads: []string{"1C", "a", "b"}}.explore, []bug{mqJudgesCountFirst}},
		{"the waits are ended", small, sequencerModel{threads: []string{"C1", "b", "c"}}.explore, []bug{mqSleepsAnyway}},
		{"the counter is set back", small, sequencerModel{threads: []string{"1R1", "f", "a"}, first: 4}.explore, []bug{mqSleepsAnyway}},
		{"a death", small, sequencerModel{threads: []string{"1", "1", "b"}, kills: 1}.explore, []bug{mqReapSilent, mqReapsTheSleeping}},
		{"a stop", small, sequencerModel{threads: []string{"11", "1", "b"}, stops: true}.explore, []bug{mqNoCheck, mqCheckTrustsTheWord}},
		{"a stop in the end of the waits", small, sequencerModel{threads: []string{"C", "b", "c"}, stops: true}.explore, []bug{mqCheckForgetsTurns}},
		{"a stop, and back", large, sequencerModel{threads: []string{"1R", "2", "b"}, stops: true}.explore, []bug{mqNoCheck}},
		{"a stop, back, and beyond the field", large, sequencerModel{threads: []string{"R8", "8", "a"}, first: 2, stops: true}.explore, []bug{mqCheckTrustsTheWord}},
		{"a stop and a death", large, sequencerModel{threads: []string{"12", "1", "c"}, stops: true, kills: 1}.explore, []bug{mqNoCheck}},
	})
}
