package main

// closeMutants are known mistakes in calls that run while their handle is
// closed, and in RecoverAll.
var closeMutants = []mutant{
	{
		name: "a call wakes by the words of a handle that has ended",
		file: "prims/mutex_slow.go",
		old:  "\t\tif m.opening.ended.Load() {\n\t\t\treturn // the end of the opening wakes instead\n\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestWakeAfterTheCloseTouchesNothing",
	},
	{
		name: "a call does not count itself while it wakes after a queue lock",
		file: "prims/mutex_slow.go",
		old:  "\t\tm.queue.EnterEnding() // until the wake is over, which comes after the release\n\t\tdefer m.queue.Exit()\n",
		new:  "",
		pkg:  "prims", run: "TestCloseWaitsForTheWakeAfterTheQueueLock", tags: withPoints,
	},
	{
		name: "RecoverAll resets what the repair has set",
		file: "prims/recoverall.go",
		old:  "\tif len(still) > 0 { // else",
		new:  "\tif true { // else",
		pkg:  "prims", run: "TestRecoverAllKeepsWhatRepairHasSet",
	},
}
