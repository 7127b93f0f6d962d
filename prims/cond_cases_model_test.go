//go:build linux

package prims

import "testing"

const (
	cnTwoRecords    bug = "the two changes that pass a Signal on are made by two records"
	cnNoBound       bug = "a Signal passes on to any wait"
	cnNewBound      bug = "a Signal gets a new bound when it passes on"
	cnJoinsQuietly  bug = "a join leaves the boundary at 0"
	cnBoundaryStays bug = "the boundary stays at a wait that has left the queue"
	cnTurnUncounted bug = "a turn does not count in flying"
	cnKeepsFlying   bug = "the turn of a dead waiter is not subtracted from flying"
	cnNoTurns       bug = "a waiter that has the lock again gives no turn to others"
	cnFreesDebt     bug = "a node is freed while it owes"
	cnForgetsCover  bug = "a wait that is given up does not look whether a Broadcast has covered it"
	cnNodesFirst    bug = "a reap looks at the nodes of the dead before it removes their waits"
	cnLooksEarly    bug = "a reap looks at the nodes of the dead before it completes the last record"
	cnAnyOrder      bug = "a reap passes the last Signal on first"
	cnNoReap        bug = "nobody reaps"
	cnNoForce       bug = "periodic checks wait for waiters that were woken"
	cnLandsLate     bug = "a waiter lands although its process has left the arena"
	cnLandsBlind    bug = "a waiter lands without comparing the tag, and its node belongs to another process"
	cnNoComplete    bug = "an author does not complete the record before its own"
	cnHelperQuiet   bug = "a process that completes a record of another resolves nobody"
	cnNoTags        bug = "a process that carries a record out compares no tags"
	cnTagsAgain     bug = "the tags of a node begin anew with each wait"
)

// TestModelCond: a Signal ends one wait, the first of those that were queued. A Broadcast ends all waits that
// were queued, and no others.
func TestModelCond(t *testing.T) {
	requireModels(t, []exploration{
		{
			"two Signals", small, cnModel(1, "0W", "1W", "2SS").explore,
			[]bug{cnJoinsQuietly, cnBoundaryStays, cnNoComplete},
		},
		{"a second wait", small, cnModel(1, "0WW", "1S", "2S").explore, []bug{cnNoTags, cnTagsAgain}},
		{"a lock that nobody can get", small, cnModel(1, "0F", "1F", "2SW").explore, []bug{cnNoBound, cnNewBound}},
		{"a Broadcast", small, cnModel(1, "0W", "1W", "2BW").explore, []bug{cnTurnUncounted, cnNoTurns}},
		{"a context", small, cnModel(1, "0W", "1C", "2B").explore, []bug{cnForgetsCover}},
		{"a context, a Signal, a Broadcast", large, cnModel(1, "0C", "1F", "2SB").explore, nil},
		{"periodic checks", large, cnModel(2, "0W", "1W", "2B").withChecks().explore, nil},
		{"three waits", large, cnModel(2, "0F", "1C", "2W", "2SB").explore, nil},
	})
}

// TestModelCondDeath checks what TestModelCond checks, but a process dies, at any step. If a dead waiter had a Signal,
// the Signal passes on to a wait that was queued when the Signal was given.
func TestModelCondDeath(t *testing.T) {
	requireModels(t, []exploration{
		{
			"a Signal", small, cnModel(1, "0W", "1W", "2S").withKills(1).explore,
			[]bug{cnNodesFirst, cnLooksEarly, cnNoReap, cnHelperQuiet},
		},
		{"a Broadcast", small, cnModel(1, "0W", "1W", "2B").withKills(1).explore, []bug{cnKeepsFlying}},
		{"a lock that nobody can get", small, cnModel(1, "0F", "1W", "2S").withKills(1).explore, []bug{cnTwoRecords}},
		{"a node that is freed", small, cnModel(1, "0W", "1SW", "2X").withKills(1).explore, []bug{cnFreesDebt}},
		{"a second wait", large, cnModel(1, "0FW", "1FW", "2SS").withKills(1).explore, nil},
		{"a context", large, cnModel(1, "0C", "1W", "2SB").withKills(1).explore, nil},
		{"a stranger", large, cnModel(1, "0W", "1W", "2S", "3R").withKills(1).explore, []bug{cnLooksEarly}},
		{"two deaths", large, cnModel(1, "0F", "1W", "2SS").withKills(2).explore, nil},
		{"two Broadcasts", large, cnModel(2, "0WW", "1WW", "2BB").withKills(1).explore, nil},
		{
			"two Signals of the dead", large, cnModel(1, "0W", "0W", "1W", "1SS").withKills(1).explore,
			[]bug{cnAnyOrder},
		},
		{"three waits", large, cnModel(1, "0W", "0F", "1W", "2S").withKills(1).explore, nil},
	})
}

// TestModelCondStop checks what TestModelCond checks, but a process stops for ever, at any step. If a Signal has woken a
// wait of that process, no other wait gets the Signal. The process delays no other wait that a Broadcast has covered.
func TestModelCondStop(t *testing.T) {
	requireModels(t, []exploration{
		{"a Broadcast", small, cnModel(1, "0W", "1W", "2B").withStop().explore, []bug{cnNoForce}},
		{"a Signal", small, cnModel(1, "0F", "1W", "2S").withStop().explore, []bug{cnHelperQuiet}},
		{"a stop and a death", large, cnModel(1, "0C", "1W", "2BS").withStop().withKills(1).explore, nil},
		{"a stop, a death, a Signal", large, cnModel(1, "0F", "1W", "2SS").withStop().withKills(1).explore, nil},
	})
}

// TestModelCondLeave checks what TestModelCond checks, but a process leaves the arena while its waiters get the lock
// again. Their Waits end with an error, so the wakes that they got from a Signal or a Broadcast pass on to other waits.
func TestModelCondLeave(t *testing.T) {
	requireModels(t, []exploration{
		{"a Signal", small, cnModel(1, "0W", "0Q", "1W", "2S").explore, []bug{cnLandsLate}},
		{"a node that is used again", large, cnModel(1, "0W", "0Q", "1SW", "2S").explore, []bug{cnLandsBlind}},
		{"a Broadcast", large, cnModel(1, "0W", "0Q", "1W", "2B").explore, nil},
		{"a leave and a death", large, cnModel(1, "0W", "0Q", "1W", "2SW").withKills(1).explore, nil},
	})
}
