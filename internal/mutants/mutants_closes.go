package main

// closeMutants are mistakes in calls that run while another goroutine closes their handle, and in RecoverAll.
var closeMutants = []mutant{
	{
		name: "a call wakes by the words of a handle that has ended",
		file: "prims/mutex_slow.go",
		old:  "\t\tif m.opening.ended.Load() {\n\t\t\treturn // the close of the handle makes this wake instead\n\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestWakeAfterTheCloseTouchesNothing",
	},
	{
		name: "a call does not count itself while it wakes after a queue lock",
		file: "prims/mutex_slow.go",
		old:  "\t\tm.queue.EnterEnding() // so Close waits for this call until its wake is over, which comes after the release\n\t\tdefer m.queue.Exit()\n",
		new:  "",
		pkg:  "prims", run: "TestCloseWaitsForTheWakeAfterTheQueueLock", tags: withPoints,
	},
	{
		name: "RecoverAll resets what the repair has set",
		file: "prims/recoverall.go",
		old:  "\tif len(still) > 0 { // otherwise",
		new:  "\tif true { // otherwise",
		pkg:  "prims", run: "TestRecoverAllKeepsWhatRepairHasSet",
	},
	{
		name: "ArriveAndWait does not keep the handle open between its two steps",
		file: "prims/latch.go",
		old:  "\tdefer t.leave()\n\tif err := l.countDown(n); err != nil {\n",
		new:  "\tt.leave()\n\tif err := l.countDown(n); err != nil {\n",
		pkg:  "prims", run: "TestCloseDuringTheCall/latch.arriveandwait", tags: withPoints,
	},
	{
		name: "RUnlock panics when the writer that waited for it has closed the handle",
		file: "prims/rwmutex_read.go",
		old:  "\tif m.opening.ended.Load() {\n\t\tif w.generation() == 0 {",
		new:  "\tif m.opening.ended.Load() {\n\t\tif w.generation() != 0 {",
		pkg:  "prims", run: "TestCloseDuringTheCall/rwmutex.runlock", tags: withPoints,
	},
	{
		name: "Close does not wait for the Unlock that still has the writers' mutex",
		file: "prims/rwmutex.go",
		old:  "m.callsLeft, m.awaitUnlock, m.end",
		new:  "m.callsLeft, func() {}, m.end",
		pkg:  "prims", run: "TestCloseDuringTheCall/rwmutex.unlock", tags: withPoints,
	},
}
