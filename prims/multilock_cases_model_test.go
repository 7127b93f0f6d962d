//go:build linux

package prims

import "testing"

// TestModelMultiLock: threads lock and unlock keys by CAS, while others do all that is done with
// the queue lock: they claim a key that they want, evict a key for another key, and queue.
// Processes die at every step.
func TestModelMultiLock(t *testing.T) {
	both, one := []uint8{1, 2}, []uint8{1}
	two := multiModel{threads: []int{0, 1}, wants: [][]uint8{both, both}, calls: []uint8{3, 2}}
	threads := multiModel{threads: []int{0, 0, 1}, wants: [][]uint8{one, both, one}, calls: []uint8{1, 2, 1}}
	queue := multiModel{threads: []int{0, 1, 1}, wants: [][]uint8{one, one, one}, calls: []uint8{2, 1, 1}}
	mortal := multiModel{threads: []int{0, 1}, wants: [][]uint8{both, both}, calls: []uint8{2, 2}, kills: 1}
	replays := multiModel{threads: []int{0, 0, 1}, wants: [][]uint8{one, both, both}, calls: []uint8{1, 1, 1}, kills: 1, mortal: 1}
	waits := multiModel{threads: []int{0, 1, 2}, wants: [][]uint8{one, one, one}, calls: []uint8{1, 1, 1}, kills: 1, mortal: 1}
	requireModels(t, []exploration{
		{"two processes", small, two.explore, []bug{mkClaimStore, mkUnlock, mkNoClaim}},
		{"two threads of a process, and one of another", large, threads.explore, []bug{mkNoStamp, mkKeyFirst, mkNoRaise, mkClaimStore, mkUnlock}},
		{"a queue", small, queue.explore, []bug{mkUnlock, mkNoClaim}},
		{"the process that has it dies", small, mortal.explore, []bug{mkForgets, mkUnlock}},
		{"who claims dies", large, replays.explore, []bug{mkReplayRaise}},
		{"who waits dies", large, waits.explore, []bug{mkUnlock, mkNoAccept, mkDoubt, mkGrantAgain}},
	})
}
