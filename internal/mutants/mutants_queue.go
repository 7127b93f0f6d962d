package main

// queueMutants are mistakes of a Queue.
var queueMutants = []mutant{
	{
		name: "a reaper does not put the items that a dead process leased back into the Queue",
		file: "prims/queue_repair.go",
		old:  "\t\tcase queueTaken, queueLeased:\n\t\t\tif x.giveBack(i, st, swap) {\n",
		new:  "\t\tcase queueTaken, queueLeased:\n\t\t\tif false {\n",
		pkg:  "prims", run: "TestQueueLeasesOfTheDead",
	},
	{
		name: "a Put into a Queue wakes no Get",
		file: "prims/queue_wait.go",
		old:  "\tif n > 0 && side.wake.Announced() {\n",
		new:  "\tif false {\n",
		pkg:  "prims", run: "TestQueueBlockingDequeue", tags: withPoints, env: noLooks,
	},
	{
		name: "a Put stores the hint for the tail after its item is in the Queue",
		file: "prims/queue_items.go",
		old:  "\t\t\t\tcrashpoint.Hit(\"queue.add.committed\")\n",
		new:  "\t\t\t\tcrashpoint.Hit(\"queue.add.committed\")\n\t\t\t\tstoreWord(&x.words.tail, p+1)\n",
		pkg:  "prims", run: "TestQueueCallAfterItsEffect", tags: withPoints,
	},
	{
		name: "a Get from a Queue wakes a waiter through a handle that has been closed",
		file: "prims/queue_wait.go",
		old:  "\tif !ok {\n\t\treturn\n\t}\n\tdefer call.end()\n",
		new:  "\tif ok {\n\t\tdefer call.end()\n\t}\n",
		pkg:  "prims", run: "TestQueueCallAfterItsEffect", tags: withPoints,
	},
	{
		name: "Close of a Queue does not make the wake that an unfinished call has left to it",
		file: "prims/queue_core.go",
		old:  "\tx.wakeLast()\n",
		new:  "",
		pkg:  "prims", run: "TestQueueCloseWakes", tags: withPoints,
	},
	{
		name: "a Put that reserves a slot of a Queue after Close has read the slots keeps the slot",
		file: "prims/queue_items.go",
		old:  "\t\t\t\tif x.drained.Load() {\n\t\t\t\t\tx.unclaim(s)\n\t\t\t\t\treturn 0, nil\n\t\t\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestQueueCallBehindTheCloseOfTheArena/put", tags: withPoints,
	},
	{
		name: "a Lease that takes an item of a Queue after Close has read the slots keeps the item",
		file: "prims/queue_items.go",
		old:  "\t\t\t\tif x.drained.Load() {\n\t\t\t\t\treturn x.untake(queueItemTaken{f.i, f.s, st}), true\n\t\t\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestQueueCallBehindTheCloseOfTheArena/lease", tags: withPoints,
	},
	{
		name: "a Nack in a big Queue writes no note of the item that it puts back",
		file: "prims/queue_returned.go",
		old:  "\tif x.slots > checkMost {\n",
		new:  "\tif false {\n",
		pkg:  "prims", run: "TestQueueNotedReturn", tags: withPoints,
	},
	{
		name: "a woken Get from a Queue does not announce the waiters that still sleep",
		file: "prims/queue_wait.go",
		old:  "\t\t\tif slept {\n\t\t\t\tx.pass(side)\n",
		new:  "\t\t\tif slept && false {\n\t\t\t\tx.pass(side)\n",
		pkg:  "prims", run: "TestQueueWaitersGoOn", tags: withPoints, env: noLooks,
	},
	{
		name: "a process that waits to read an RWMutex does not note since when the writer holds it",
		file: "prims/rwmutex_repair.go",
		old:  "\t\tm.writers.dateHold()",
		new:  "\t\t_ = m.writers.dateHold",
		pkg:  "cmd/shmctl", run: "TestHoldAgeWithoutCounters/lock_rw",
	},
	{
		name: "the next lease of a Queue item gets the start time of a dead participant's lease",
		file: "prims/queue_items.go",
		old:  "\t\ts.endLease(w) //",
		new:  "\t\t_ = w //",
		pkg:  "prims", run: "TestLeaseIsNotDatedByThatOfTheDead",
	},
	{
		name: "two calls both end the same lease of a Queue item",
		file: "prims/queue_lease.go",
		old:  " && s.endLease(w)",
		new:  "",
		pkg:  "prims", run: "TestQueueMistakes",
	},
}
