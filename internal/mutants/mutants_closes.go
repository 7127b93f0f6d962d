package main

// closeMutants are mistakes in calls that run while another goroutine closes their handle, and in RecoverAll.
var closeMutants = []mutant{
	{
		name: "the last Close of an ephemeral arena gives up if another process has the gate",
		file: "internal/arenakernel/remove.go",
		old:  "\t\tremoveUnused(a.label, a.seg.File())",
		new:  "\t\ttryRemove(a.label, a.seg.File())",
		pkg:  "internal/arenakernel", run: "TestLastCloseAwaits",
	},
	{
		name: "CloseObject clears a bit in an object that a peer has made in the same bytes",
		file: "internal/arenakernel/close.go",
		old:  "\ta.handles.left = true\n",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestCloseObjectBetweenTheStepsOfALeave", tags: withPoints,
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
	{
		name: "an Unlock wakes although its handle is closed",
		file: "prims/mutex_slow.go",
		old:  "\tif !enterLate(m.queue) {\n\t\treturn\n\t}\n\tdefer m.queue.Exit()\n",
		new:  "",
		pkg:  "prims", run: "TestLateCallChangesNoOtherObject/mutex", tags: withPoints,
	},
	{
		name: "an RUnlock wakes although its handle is closed",
		file: "prims/rwmutex_read.go",
		old:  " && enterLate(m.writer) {\n\t\tdefer m.writer.Exit()\n",
		new:  " {\n",
		pkg:  "prims", run: "TestLateCallChangesNoOtherObject/rwmutex", tags: withPoints,
	},
	{
		name: "an Unlock of a SpinLock wakes although its handle is closed",
		file: "prims/spinlock_core.go",
		old:  "\tif enterLate(c.queue) {\n\t\tdefer c.queue.Exit()\n",
		new:  "\tif true {\n",
		pkg:  "prims", run: "TestLateCallChangesNoOtherObject/spin", tags: withPoints,
	},
	{
		name: "Close does not make the wake that an Unlock has left to it",
		file: "prims/mutex_closed.go",
		old:  "\tif m.wakeWord.Announced() && ownerWord",
		new:  "\tif false && ownerWord",
		pkg:  "prims", run: "TestCloseMakesTheWakesOfLateCalls/mutex", tags: withPoints,
	},
	{
		name: "a Post that ends waits is not counted",
		file: "prims/futex.go",
		old:  "\tdefer f.opening.serve(f.queue).end()\n",
		new:  "",
		pkg:  "prims", run: "TestCloseWaitsForACallThatEndsWaits/futex", tags: withPoints,
	},
}
