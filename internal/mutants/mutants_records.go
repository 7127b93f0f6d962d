package main

// recordMutants are mistakes in changes by records, and in the Semaphore, which changes so.
var recordMutants = []mutant{
	{
		name: "wake nobody after a record",
		file: "prims/record_wait.go",
		old:  "\t\tfor _, u := range b.few[:b.n] {\n\t\t\tq.wakeOne(u)\n\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestSemaphoreIsFIFO", tags: withPoints, env: noLooks,
	},
	{
		name: "carry a record out whatever the tags are",
		file: "prims/record_queue.go",
		old:  "\t\tif w.Load() == was[i] && w.CompareAndSwap(was[i], uint64(recordedWord(was[i]).with(uint32(to[i])))) {\n",
		new:  "\t\tif w.Store(uint64(recordedWord(was[i]).with(uint32(to[i])))); true {\n",
		pkg:  "prims", run: "TestSemaphoreFastNeverExceeded",
	},
	{
		name: "permits die with their owner",
		file: "prims/semaphore_repair.go",
		old:  "\treturn h.permitsIn(x) > 0 || valueIn(&h.fast) != 0\n",
		new:  "\treturn valueIn(&h.fast) != 0\n",
		pkg:  "prims", run: "TestSemaphoreTakesBackFromTheDead",
	},
	{
		name: "permits of an open share die with their owner",
		file: "prims/semaphore_repair.go",
		old:  "\treturn h.permitsIn(x) > 0 || valueIn(&h.fast) != 0\n",
		new:  "\treturn h.permitsIn(x) > 0 && valueIn(&h.fast) == 0\n",
		pkg:  "prims", run: "TestSemaphoreTakesBackWhatIsOpen",
	},
	{
		name: "a waiter queues and closes no share",
		file: "prims/semaphore_rules.go",
		old:  "\tif s.moves || x.get(&s.words.opened) == 0 {\n",
		new:  "\tif true {\n",
		pkg:  "prims", run: "TestSemaphoreGathersWhatIsSpare",
	},
	{
		name: "permits that the dead never knew of come back",
		file: "prims/semaphore_rules.go",
		old:  "\th.setPermits(x, h.permitsIn(x)+n)\n\treturn true\n",
		new:  "\treturn true\n",
		pkg:  "prims", run: "TestGrantsToTheStoppedAndKilledPassOn",
	},
	{
		name: "a call does not complete the last change",
		file: "prims/record_queue.go",
		old:  "\treturn q.complete(c, b)\n}\n\n// end",
		new:  "\treturn nil\n}\n\n// end",
		pkg:  "prims", run: "TestSemaphorePassesByWhoGaveUp|TestSemaphoreWorkload|TestSemaphoreTwoDeaths", tags: withPoints,
	},
	{
		name: "a process that completes a grant does not resolve the wait",
		file: "prims/record_queue.go",
		old:  "\t\tif uint8(kinds>>(8*i)) == recordNext {\n",
		new:  "\t\tif false {\n",
		pkg:  "prims", run: "TestSemaphoreIsFIFO", tags: withPoints, env: noLooks,
	},
	{
		name: "a node is freed before its join is carried out",
		file: "internal/arenakernel/node_record.go",
		old:  "\tif n.mayJoin() || n.granting() {\n",
		new:  "\tif n.granting() {\n",
		pkg:  "prims", run: "TestSemaphoreTwoDeaths", tags: withPoints,
	},
	{
		name: "a wait that is granted while it is given up is lost",
		file: "prims/semaphore_rules.go",
		old:  "\t\tcase v == arenakernel.RecordedGranted && waitNode.Resolved():\n\t\t\treturn false\n",
		new:  "",
		pkg:  "prims", run: "TestSemaphore.*", tags: withPoints,
	},
}
