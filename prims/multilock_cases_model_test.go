//go:build linux

package prims

import "testing"

const (
	mlNoBucket    bug = "the head of a record has no bucket"
	mlKeyFirst    bug = "a fast Lock reads the key before the hold, and not again"
	mlHalfKey     bug = "a fast Lock reads one half of the key"
	mlKeepsTag    bug = "a fast Lock keeps the tag"
	mlLocksAny    bug = "a fast Lock does not compare the tag"
	mlUnlocksAny  bug = "a fast Unlock does not compare the tag"
	mlAnyHold     bug = "an Unlock by a record does not compare the tag"
	mlHoldFirst   bug = "a record changes the hold before the key"
	mlOpensWait   bug = "a record opens the hold although a wait is queued"
	mlOpensHeld   bug = "a record opens the hold while the key stays with its holder"
	mlCloseTag    bug = "a close changes the tag"
	mlNoClose     bug = "an author reads the hold without closing it"
	mlEvictsOpen  bug = "a free entry gets another key, and its hold is not closed first"
	mlEvictsWaits bug = "an Unlock serves nobody, and an entry with waits gets another key"
	mlEvictsGrant bug = "an entry whose key was granted gets another key"
	mlEvictsDead  bug = "an entry whose key is owner-dead gets another key"
	mlEvictsHeld  bug = "an entry whose key is held gets another key"
	mlEvictsSame  bug = "an entry gets another key, and its hold keeps the tag"
	mlFindsFirst  bug = "a call searches for the key before it loads the commit word"
	mlLooksFirst  bug = "a call looks for new blocks before it loads the commit word"
	mlNewFirst    bug = "a new block comes before the older ones"
	mlNoInherit   bug = "a new participant does not complete the record that it inherits"
	mlInheritsOwn bug = "a new participant completes an inherited record only of the bucket of its call"
	mlInheritsAny bug = "a new participant carries out an inherited record that no commit word names"
	mlNoAccept    bug = "a waiter does not store that it has accepted the key"
	mlOldAccept   bug = "a waiter accepts with the tag of an earlier hold"
	mlSameTag     bug = "a second grant to the same participant has the same tag"
	mlKeepsGrant  bug = "a grant to a dead waiter is not taken back"
	mlReports     bug = "a grant that was not accepted counts as a hold"
	mlSilent      bug = "a reaper frees an accepted grant silently"
	mlDrops       bug = "an Unlock grants nothing, and nobody serves the queue"
	mlTryStale    bug = "TryLock does not complete the last change"
	mlNoComplete  bug = "an author does not complete the record before its own"
	mlNoHead      bug = "a process does not compare the head of a record after it has read the rest"
	mlNoTags      bug = "a process that carries a record out compares no tags"
	mlPlainTake   bug = "a reaper without a record takes an open key by a store"
	mlForgets     bug = "the death of a process that recovers a key frees the key"
	mlWasOpen     bug = "an author closes the hold, and its record expects the open word"
	mlBlind       bug = "a process that carries a record out does not look for new blocks"
	mlOldNumber   bug = "the number of a block is not computed again if the list has changed"
	mlGrantsLast  bug = "an Unlock grants the key to the last wait"
	mlNoRefusal   bug = "waits for an owner-dead key are not refused"
	mlHelperQuiet bug = "a process that completes a record of another resolves nobody"
	mlNoChecks    bug = "waiters make no periodic checks"
)

// TestModelMultiLock: one thread at a time has a key, no key is in two entries, no entry in use gets another key, each
// wait ends, and an old Hold unlocks nothing.
func TestModelMultiLock(t *testing.T) {
	requireModels(t, []exploration{
		{
			"two keys, one entry", small, mlModel(1, "0LaUaLbUb", "1LbUbLaUa").explore,
			[]bug{
				mlKeyFirst, mlLocksAny, mlCloseTag, mlNoClose, mlWasOpen, mlEvictsOpen, mlEvictsHeld, mlEvictsSame,
				mlNoComplete, mlNoTags,
			},
		},
		{
			"fine steps", small, mlModel(1, "0LbUbLaUa", "1LaUaLcUc").inFineSteps().explore,
			[]bug{mlHalfKey, mlKeyFirst, mlNoHead, mlFindsFirst, mlLooksFirst, mlEvictsOpen},
		},
		{
			"an old Hold", small, mlModel(1, "0LaUaDa", "0LaUa", "1LbUb").inFineSteps().explore,
			[]bug{mlKeepsTag, mlUnlocksAny, mlAnyHold, mlEvictsSame},
		},
		{
			"a context", small, mlModel(1, "0LaUa", "1CaUa", "1LbUb").explore,
			[]bug{mlOpensWait, mlOpensHeld, mlEvictsWaits, mlEvictsGrant, mlDrops},
		},
		{"a queue", small, mlModel(1, "0LaUa", "1LaUa", "2CaUa").explore, []bug{mlGrantsLast, mlOpensWait, mlDrops}},
		{"a try", small, mlModel(1, "0LaUa", "1LaUa", "2TaUa").inFineSteps().explore, []bug{mlTryStale}},
		{
			"blocks", small, mlModel(2, "0LaLb", "1LcUc", "2LcUc").explore,
			[]bug{mlNewFirst, mlBlind, mlOldNumber, mlEvictsHeld},
		},
		{
			"blocks for keys that are unlocked", large, mlModel(1, "0LaUaLbUb", "1LcUc", "2LcUc").inFineSteps().explore,
			[]bug{mlLooksFirst},
		},
		{"a queue and a second key", large, mlModel(1, "0LaUa", "1LaUa", "2CaUa", "2LbUb").explore, nil},
	})
}

// TestModelMultiLockDeath: a process dies at each step. If it had a key, the death is reported once. If it was granted
// a key and did not accept it, the death is not reported.
func TestModelMultiLockDeath(t *testing.T) {
	requireModels(t, []exploration{
		{
			"two keys, one entry", small, mlModel(1, "0LaUaLbUb", "1LaUaLbUb").withKills(1).explore,
			[]bug{mlEvictsDead, mlReports, mlNoRefusal, mlHelperQuiet, mlNoChecks, mlDrops},
		},
		{
			"a queue", small, mlModel(1, "0LaUa", "1LaUa", "2LaUa").withKills(1).explore,
			[]bug{mlNoAccept, mlOldAccept, mlSilent, mlKeepsGrant},
		},
		{
			"two grants to a process", small, mlModel(1, "0LaUaLaUa", "1LaUa", "1LaUa").withKills(1).explore,
			[]bug{mlSameTag},
		},
		{
			"a stranger", small, mlModel(1, "0LaUa", "1LaUaLbUb", "2Xa").withKills(1).inFineSteps().explore,
			[]bug{mlPlainTake},
		},
		{
			"a stranger, PolicyRelease", small,
			mlModel(1, "0LaUaLbUb", "1LaUaLbUb", "2Xa").withRelease().withKills(1).inFineSteps().explore,
			[]bug{mlHoldFirst},
		},
		{
			"a Recover", small, mlModel(1, "0LaUa", "1RaLaUa", "2RaLaUa").withKills(2).inFineSteps().explore,
			[]bug{mlForgets},
		},
		{
			"an old Hold", small, mlModel(1, "0LaUaDa", "0LaUa", "1LbUb").withKills(1).inFineSteps().explore,
			[]bug{mlKeepsTag},
		},
		{"a Recover and a queue", large, mlModel(1, "0LaUa", "1LaUa", "2RaLaUa").withKills(2).inFineSteps().explore, nil},
		{"PolicyRelease", large, mlModel(1, "0LaUa", "1CaUa", "2LaUaLbUb").withRelease().withKills(2).explore, nil},
		{"blocks", large, mlModel(1, "0LaUaLcUc", "1LbUb", "1LcUc").withKills(1).inFineSteps().explore, []bug{mlBlind}},
		{"two entries", large, mlModel(2, "0LaUaLcUc", "1LbUbLaUa", "2LcUc").withKills(1).explore, nil},
		{"three processes", large, mlModel(1, "0LaUaLbUb", "1LaUaLbUb", "2LbUb").withKills(1).explore, nil},
		{"a queue, two deaths", large, mlModel(1, "0LaUa", "1CaUa", "2LaUa").withKills(2).inFineSteps().explore, nil},
	})
}

// TestModelMultiLockStop: a process stops for ever at each step. Other processes wait for it only if they need a key
// that it has or was granted.
func TestModelMultiLockStop(t *testing.T) {
	requireModels(t, []exploration{
		{
			"two keys, one entry", small, mlModel(1, "0LaUaLbUb", "1LbUbLaUa").withStop().inFineSteps().explore,
			[]bug{mlDrops},
		},
		{
			"a queue and a second key", small, mlModel(1, "0LaUa", "1LaUa", "2LbUb").withStop().explore,
			[]bug{mlHelperQuiet, mlNoChecks},
		},
		{
			"a stop and a death", small, mlModel(1, "0LaUa", "1LaUa", "2LbUb").withStop().withKills(1).explore,
			[]bug{mlNoRefusal},
		},
		{"a context", large, mlModel(1, "0LaUaLbUb", "1CaUa", "2LbUb").withStop().withKills(1).explore, nil},
		{"blocks", large, mlModel(1, "0LaUaLbUb", "1LcUc", "2LcUc").withStop().withKills(1).explore, nil},
		{
			"a stop and a death in fine steps", large,
			mlModel(1, "0LaUa", "1LaUa", "2LbUb").withStop().withKills(1).inFineSteps().explore, nil,
		},
	})
}

// TestModelMultiLockBuckets: a participant makes its records for two buckets in the same memory. The next participant
// of its slot makes its own records there.
func TestModelMultiLockBuckets(t *testing.T) {
	requireModels(t, []exploration{
		{
			"two records in one place", small,
			mlModel(1, "0LaUaLdUd", "1LaUa", "1LdUd").withTwoBuckets().inFineSteps().explore, []bug{mlNoBucket, mlNoHead},
		},
		{"a death", small, mlModel(1, "0LaUaLdUd", "1LdUdLaUa", "2LaUa").withTwoBuckets().withKills(1).explore, nil},
		{
			"the next participant", small,
			mlModel(1, "0LaUa", "1LaUa", "3LdUdLaUa").withTwoBuckets().withDeathOf(0).inFineSteps().explore,
			[]bug{mlNoInherit, mlInheritsOwn, mlInheritsAny, mlNoBucket},
		},
		{
			"the next participant and a stop", small,
			mlModel(1, "0LaUa", "1LaUa", "3LdUdLaUa").withTwoBuckets().withDeathOf(0).withStop().inFineSteps().explore, nil,
		},
		{
			"the next participant, the same bucket", small,
			mlModel(1, "0LaUaLbUb", "1LaUa", "3LbUb").withDeathOf(0).inFineSteps().explore, nil,
		},
		{
			"the next participant and a queue", large,
			mlModel(1, "0LaUa", "1LaUa", "2LaUa", "3LdUd").withTwoBuckets().withDeathOf(0).inFineSteps().explore, nil,
		},
		{
			"a node in two queues", large,
			mlModel(1, "0LaLdUdUa", "1CaCdUd", "2TaUa").withTwoBuckets().withKills(1).inFineSteps().explore,
			[]bug{mlNoBucket},
		},
		{"a stop", large, mlModel(1, "0LaUaLdUd", "1LaUa", "1LdUd", "2LaUa").withTwoBuckets().withStop().explore, nil},
	})
}
