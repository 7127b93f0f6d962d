//go:build linux

package prims

import "testing"

// TestModelWaitable: no rule sees a torn state, the state and the holds agree, waits are served in order, and each wait
// ends.
func TestModelWaitable(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, wtModel(1, "0W1R1", "1W1R1").explore, []bug{wtSplitGrant, wtNoServe, wtAcceptEarly}},
		{"tags", small, wtModel(1, "0T1R1T1", "1U0").explore, []bug{wtNoTags}},
		{"updates", small, wtModel(1, "0U0U0U0", "1U0").explore, []bug{wtNoLook, wtNoLookTag, wtRuleFirst}},
		{"the state", small, wtModel(1, "0U0U0U0", "1S0").explore, []bug{wtNoLook, wtNoLookTag}},
		{"an order", small, wtModel(2, "1W2", "1W1", "2W2").explore, []bug{wtLastPlace}},
		{"a place that leaves", small, wtModel(2, "1W2", "1C1", "2W1").explore, []bug{wtStaleWalk}},
		{"a try", small, wtModel(2, "0W1T1R1", "1W2R2").explore, []bug{wtBarges}},
		{"two claims", small, wtModel(2, "0W1W1", "1T1").explore, nil},
		{"a label first", small, wtModel(2, "0W1R1", "1W2R2").withLabels().explore, nil},
		{"a context", small, wtModel(2, "0W1", "1C2", "1W1").explore, []bug{wtLeavesQuiet}},
		{"in steps", large, wtModel(1, "0W1R1", "1W1R1").inSteps().explore, nil},
		{"tags in steps", large, wtModel(1, "0T1R1T1", "1U0").inSteps().explore, []bug{wtNoTags}},
		{"a label first, in steps", large, wtModel(2, "0W1R1", "1W2R2").withLabels().inSteps().explore, nil},
		{"an order of three", large, wtModel(2, "0W2", "1W1", "2W2").explore, []bug{wtLastPlace}},
		{"a place of three that leaves", large, wtModel(2, "0W2", "1C1", "2W1").explore, []bug{wtStaleWalk}},
		{"three", large, wtModel(2, "0W1R1", "1W2R2", "1W1R1").explore, nil},
		{"three and a context", large, wtModel(2, "0W2R2", "1C2R2", "1W1R1").explore, []bug{wtLastPlace}},
	})
}

// TestModelWaitableBlocks: a process needs more holds than there are, and pushes a block. Each claim is found again, in the
// slot record or in a block, also while other processes push blocks, die or stop.
func TestModelWaitableBlocks(t *testing.T) {
	requireModels(t, []exploration{
		{"one", small, wtModel(3, "0T1T2R2", "1U0").explore, []bug{wtLabelsUsed}},
		{"two", small, wtModel(6, "0T1T2R2", "1T1T2R2").explore, []bug{wtPushBlind}},
		{"a grant", small, wtModel(3, "0T2R2", "1T1W2R2").explore, []bug{wtWrongSlot, wtOwnBlocks, wtHelpsKnown}},
		{"threads", small, wtModel(6, "0T1T2", "0T2R2T1").explore, nil},
		{"no room", small, wtModel(3, "0T1T2T1", "1T2R2").withoutRoom().explore, nil},
		{"a grant and a label", large, wtModel(3, "0T2R2", "1T1W2R2").withLabels().inSteps().explore, []bug{wtHelpsKnown}},
		{"a grant to a thread", large, wtModel(3, "0T2R2", "1T1W2R2", "1T2R2").explore, []bug{wtEarlyLook}},
		{"a grant and a context", large, wtModel(3, "0T2R2", "1T1C2R2", "1U0").explore, nil},
		{"a death", small, wtModel(3, "0T1T2", "1W2R2").withKills(1).explore, []bug{wtNoReap, wtOwnBlocks}},
		{"a death and a grant", large, wtModel(3, "0T2R2U0", "1T1W2").withKills(1).explore, []bug{wtSwapsRules}},
		{"a death in steps", large, wtModel(6, "0T1T2", "1T1T2R2").withKills(1).inSteps().explore, nil},
		{"an heir", large, wtModel(3, "0T1", "1T1T2", "2T1T2").withHeir().withEnd().explore, nil},
		{"a stop", small, wtModel(6, "0T1T2R2", "1T1T2R2").withStop().explore, nil},
		{"a stop and a grant", large, wtModel(3, "0T2R2", "1T1W2R2").withStop().explore, nil},
		{"a stop and a death", large, wtModel(6, "0T1T2", "1T1T2R2").withStop().withKills(1).explore, nil},
	})
}

// TestModelWaitableLost: a rule panics. Then the state does not change, and waits end. Recover calls the repair with a
// state, and makes the Waitable usable with this state.
func TestModelWaitableLost(t *testing.T) {
	requireModels(t, []exploration{
		{"a wait", small, wtModel(1, "0P0X0", "1W1R1").explore, []bug{wtTextLate}},
		{"an update", small, wtModel(1, "0P0X0", "1U0").explore, []bug{wtIgnoresLost}},
		{"twice", small, wtModel(1, "0P0X0U0P0", "1X0").explore, []bug{wtNoLostTag}},
		{"a stop", small, wtModel(1, "0P0X0", "1W1R1").withStop().explore, nil},
		{"an heir", small, wtModel(1, "0P0", "1X0W1R1", "2P0").withHeir().explore, []bug{wtTextLate}},
		{"a stop and a death", large, wtModel(1, "0P0X0", "1W1R1").withStop().withKills(1).explore, nil},
		{"claims of the dead", large, wtModel(1, "0W1", "1P0X0", "2T1T1").withKills(1).explore, []bug{wtReapsLost}},
	})
}

// TestModelWaitableDeath: a process dies at each step. Its claims are undone once: by Undo if a wait had not accepted
// the claim, and otherwise by OnDeath. The next participant in its slot does not disturb the others.
func TestModelWaitableDeath(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, wtModel(1, "0W1", "1W1").withKills(1).explore, []bug{wtUndoTwice, wtNoReap}},
		{"two and a try", large, wtModel(1, "0W1R1T1", "1W1").withKills(1).explore, []bug{wtSwapsRules, wtNoChecks, wtHelperQuiet}},
		{"an end", small, wtModel(1, "0T1", "1T1T1").withKills(1).withEnd().explore, []bug{wtForgetsLate}},
		{"a wait and an end", small, wtModel(1, "0W1", "1W1").withKills(1).withEnd().explore, nil},
		{"an heir waits", small, wtModel(1, "0W1R1", "2W1R1").withHeir().explore, []bug{wtBlindSpare}},
		{"an heir updates", small, wtModel(1, "0U0", "1U0", "2U0U0").withHeir().explore, []bug{wtBlindSpare}},
		{"an heir and the state", small, wtModel(1, "0U0", "1S0S0", "2U0U0").withHeir().explore, []bug{wtBlindSpare}},
		{"an heir and a reap", small, wtModel(2, "0T1", "1U0", "2T2").withHeir().explore, []bug{wtExtraLate}},
		{"in steps", large, wtModel(1, "0W1R1", "1W1R1").withKills(1).inSteps().explore, nil},
		{"a context", large, wtModel(1, "0W1R1", "1C1R1").withKills(1).explore, nil},
		{"a label first", large, wtModel(2, "0W1R1", "1W2R2").withKills(1).withLabels().explore, nil},
		{"one behind the dead", large, wtModel(1, "0W1", "0W1", "1W1").withKills(1).explore, []bug{wtGrantsDead}},
		{"two reap", large, wtModel(2, "0W1", "1T1", "2T2").withKills(1).explore, nil},
		{"an heir behind another", large, wtModel(1, "0W1R1", "1W1R1", "2W1R1").withHeir().explore, nil},
	})
}

// TestModelWaitableStop: a process stops for ever at each step. Another process waits for it only if it needs a claim
// that the stopped process holds, or that was granted to a wait of the stopped process.
func TestModelWaitableStop(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, wtModel(1, "0W1R1", "1W1").withStop().explore, []bug{wtHelperQuiet, wtNoChecks, wtChecksFirst}},
		{"updates", small, wtModel(1, "0U0U0", "1U0W1").withStop().explore, nil},
		{"in steps", large, wtModel(1, "0W1R1", "1W1R1").withStop().inSteps().explore, nil},
		{"a stop and a death", large, wtModel(1, "0W1R1", "1W1R1").withStop().withKills(1).explore, nil},
	})
}
