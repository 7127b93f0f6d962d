//go:build linux

package prims

import "testing"

func rqModel(size uint8, threads ...string) recordQueueModel {
	return recordQueueModel{threads: threads, size: size}
}

// TestModelRecordQueue checks that no permit is lost or acquired twice, that waits are granted in order, that each wait
// ends, and that no change is carried out twice.
func TestModelRecordQueue(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, rqModel(1, "0A1R1", "1A1R1").explore, []bug{rqNoComplete, rqNoServe, rqNoWake, rqNoTags}},
		{"two, twice", large, rqModel(1, "0A1R1A1R1", "1A1R1A1R1").explore, []bug{rqNoTags, rqNoHead, rqRestFirst}},
		{"a share is opened", large, rqModel(2, "0A1R1A1R1A1R1", "1A2R2").explore, []bug{rqFoldsOpen, rqJoinsOpen, rqOpensQueued}},
		{"one acquires twice", small, rqModel(2, "0A1A1R1R1", "1A2R2").explore, []bug{rqBarges}},
		{"a context", large, rqModel(1, "0A1R1A1R1", "1C1R1C1R1").explore, []bug{rqNoTags, rqLosesGrant}},
		{"two shares", large, rqModel(1, "0A1R1A1R1A1R1", "1A1R1A1R1").explore, []bug{rqFoldsOpen, rqJoinsOpen}},
	})
}

// TestModelRecordQueueDeath checks what TestModelRecordQueue does, while a process may die at any step.
func TestModelRecordQueueDeath(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, rqModel(1, "0A1R1", "1A1R1").withKills(1).explore, []bug{rqNoReap, rqHelperQuiet, rqNoChecks}},
		{"a share is opened", large, rqModel(2, "0A1R1A1R1A1", "1A2R2").withKills(1).explore, []bug{rqNoReap}},
		{"a context", large, rqModel(1, "0A1R1", "1C1R1").withKills(1).explore, nil},
		{"one behind the dead", large, rqModel(1, "0A1R1", "0A1", "1A1").withKills(1).explore, []bug{rqGrantsDead}},
	})
}

// TestModelRecordQueueStop checks what TestModelRecordQueue does, while a process may stop for ever at any step.
func TestModelRecordQueueStop(t *testing.T) {
	requireModels(t, []exploration{
		{"two", small, rqModel(1, "0A1R1", "1A1R1").withStop().explore, []bug{rqHelperQuiet, rqNoChecks}},
		{"a share is opened", large, rqModel(2, "0A1R1A1R1", "1A2R2").withStop().explore, nil},
		{"a stop and a death", large, rqModel(1, "0A1R1", "1A1R1").withStop().withKills(1).explore, nil},
	})
}
