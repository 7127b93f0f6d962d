package main

// deathMutants are mistakes in the two stages of a death, and in the wakes of a process's own waiters.
var deathMutants = []mutant{
	{
		name: "a dead process counts as gone at once",
		file: "internal/arenakernel/gone.go",
		old:  "capNoKernelIO != 0 || a.foundGone(i, w) || ",
		new:  "capNoKernelIO != 0 || true || ",
		pkg:  "prims", run: "TestDataIsHandedOverWhenTheDeadCannotWriteIt",
	},
	{
		name: "the first thread decides whether a process has memory",
		file: "threads_linux.go",
		old:  "\t\tif d.mayHaveMemory(thread) {\n\t\t\treturn false\n\t\t}\n",
		new:  "\t\t_ = thread\n",
		pkg:  "internal/arenakernel", run: "TestLastThreadDecidesWhatIsGone",
	},
	{
		name: "a walk that missed threads decides whether a process has memory",
		file: "threads_linux.go",
		old:  "\treturn count == 0\n",
		new:  "\treturn count >= 0\n",
		pkg:  ".", run: "TestDetachedWalkThatMissesThreads",
	},
	{
		name: "another process with the PID of the dead one decides",
		file: "threads_linux.go",
		old:  "!ok || started != startTime || count < 1",
		new:  "!ok || started == 0 || count < 1",
		pkg:  "internal/arenakernel", run: "TestWrongIdentityIsNotGone",
	},
	{
		name: "a PID of another pid namespace is looked up",
		file: "internal/arenakernel/gone.go",
		old:  "id.pidNS == 0 || id.pidNS != self.pidNS || ",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestWrongIdentityIsNotGone",
	},
	{
		name: "a PID of another boot is looked up",
		file: "internal/arenakernel/gone.go",
		old:  " || id.bootID != self.bootID || id.bootID == [16]byte{}",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestWrongIdentityIsNotGone",
	},
	{
		name: "asynchronous system calls end with the threads",
		file: "internal/arenakernel/gone.go",
		old:  "a.slotCaps(i)&capAsyncIO != 0 || !a.detached(i, w)",
		new:  "!a.detached(i, w)",
		pkg:  "internal/arenakernel", run: "TestWrongIdentityIsNotGone|TestReadsInFlightEndBeforeGone",
	},
	{
		name: "a participant inherits that its predecessor is gone",
		file: "internal/arenakernel/enter.go",
		old:  "\ta.u32(s + slotGone).Store(0)\n",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestGoneIsForgottenByTheNextInTheSlot",
	},
	{
		name: "data passes on when the process is dead", // under PolicyRelease
		file: "prims/mutex_repair.go",
		old:  "!internal && next.free() && o.held() && !a.Gone(o.participant())",
		new:  "!internal && next.free() && o.held() && false",
		pkg:  "internal/cinterop", run: "TestWordsBeforeData/go/mutex",
	},
	{
		name: "the second stage of a reap is left out",
		file: "internal/arenakernel/reap.go",
		old:  "\tif !b.data && gone {\n",
		new:  "\tif !b.data && gone && false {\n",
		pkg:  "internal/arenakernel", run: "TestLastThreadDecidesWhatIsGone",
	},
	{
		name: "the slot of a dead process is freed before it has ended",
		file: "internal/arenakernel/reap.go",
		old:  "\tif !b.data || !a.ended(i) || ",
		new:  "\tif !b.data || ",
		pkg:  "internal/cinterop", run: "TestSlotOfADeadOneIsKeptUntilItEnds",
	},
	{
		name: "the releaser of its own process wakes nobody",
		file: "internal/park/pool.go",
		old:  "\t\tgo notify()\n\t}\n}\n\n// untold is",
		new:  "\t}\n}\n\n// untold is",
		pkg:  "internal/park", run: "TestTellOwnNeedsNoPoller", env: noLooks,
	},
	{
		name: "a wait node that its own process told stays owed",
		file: "internal/park/pool.go",
		old:  "\ts.owed = false\n\tif !s.taken {\n\t\tb.keep(s) // its",
		new:  "\tif !s.taken {\n\t\tb.keep(s) // its",
		pkg:  "internal/park", run: "TestTellOwnNeedsNoPoller", env: noLooks,
	},
	{
		name: "Recover takes the lock before the dead process is gone",
		file: "prims/mutex_gone.go",
		old:  "return m.internal || o.kind() != kindOwnerDead || m.a.Gone(o.participant())",
		new:  "return true",
		pkg:  "prims", run: "TestDataIsHandedOverWhenTheDeadCannotWriteIt",
	},
}
