package main

// closeMutants are mistakes in calls that run while another goroutine closes their handle, and in RecoverAll.
var closeMutants = []mutant{
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
