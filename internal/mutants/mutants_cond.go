package main

// These are mistakes in the Cond. The document docs/design/0058 describes how a Cond works.
func init() {
	mutants = append(mutants, []mutant{
		{
			name: "a Signal of a Cond is lost if its receiver dies",
			file: "prims/cond_rules.go",
			old:  "\t\t\tif has {\n\t\t\t\tk.give(x, to, extra)\n",
			new:  "\t\t\tif false {\n\t\t\t\tk.give(x, to, extra)\n",
			pkg:  "prims", run: "TestCondSignalledThenDied",
		},
		{
			name: "a Signal of a dead waiter of a Cond passes on to a wait that began after the Signal",
			file: "prims/cond_rules.go",
			old:  "\t\t\thas = has && to.number() <= condBound(extra&^condSignal, x.c.version())\n",
			new:  "",
			pkg:  "prims", run: "TestCondSignalledThenDied",
		},
		{
			name: "a reaper passes Signals of dead waiters of a Cond on in the wrong order",
			file: "prims/cond_repair.go",
			old:  "\tslices.SortStableFunc(all, func(p, q condDebt) int { return cmp.Compare(p.bound, q.bound) })\n",
			new:  "\tslices.SortStableFunc(all, func(p, q condDebt) int { return cmp.Compare(q.bound, p.bound) })\n",
			pkg:  "prims", run: "TestCondSignalsPassOnInTheirOrder",
		},
		{
			name: "a Cond counts a dead waiter as a woken waiter that has not locked yet",
			file: "prims/cond_rules.go",
			old:  "max(x.get(&k.words.flying), 1)-1)\n",
			new:  "x.get(&k.words.flying))\n",
			pkg:  "prims", run: "TestCondBroadcastTurnsOfTheDead",
		},
		{
			name: "the first wait after a Broadcast of a Cond does not become the boundary",
			file: "prims/record_wait.go",
			old:  "\tif q.boundary != nil && x.get(q.boundary) == 0 {\n",
			new:  "\tif false {\n",
			pkg:  "prims", run: "TestCondNotifyOneWakesOneAtATime",
		},
		{
			name: "the boundary of a Cond still names a wait that has left the queue",
			file: "prims/record_wait.go",
			old:  "\tif q.boundary != nil && x.get(q.boundary) == w.index() {\n",
			new:  "\tif false {\n",
			pkg:  "prims", run: "TestCondNotifyOneWakesOneAtATime",
		},
		{
			name: "a wait node is freed while its Cond has not passed on its Signal",
			file: "internal/arenakernel/node_record.go",
			old:  "v == RecordedLast || v == RecordedOwes || v >= RecordedFirst",
			new:  "v == RecordedLast || v >= RecordedFirst",
			pkg:  "internal/arenakernel", run: "TestNodeThatOwesIsKept",
		},
		{
			name: "a dead participant's wait node is freed while a peer may push it on a ready stack",
			file: "internal/arenakernel/node_record.go",
			old:  " && (n.State() != NodeResolved || a.allTold())",
			new:  "",
			pkg:  "internal/arenakernel", run: "TestNodeThatOwesIsKept",
		},
		{
			name: "a wait of a Cond gives up although a Broadcast has already covered it",
			file: "prims/cond_rules.go",
			old:  "!ok || w.number() < first.number()",
			new:  "false && (!ok || w.number() < first.number())",
			pkg:  "prims", run: "TestCondCoveredWaitGivesUp",
		},
		{
			name: "a reaper that has not opened a Cond does not pass on the Signals of dead waiters",
			file: "prims/cond_repair.go",
			old:  "return len(nodes) > 0 },",
			new:  "return false },",
			pkg:  "prims", run: "TestCondSignalledDiesBesideStrangers",
		},
		{
			name: "the periodic check of a Cond does not look for participants that only the kernel marked dead",
			file: "internal/arenakernel/node_dead.go",
			old:  "\t\tif age != 0 {\n",
			new:  "\t\tif false {\n",
			pkg:  "prims", run: "TestCondDeathThatNobodyCounts",
		},
		{
			name: "a Cond does not pass on the Signals of a participant that leaves the arena",
			file: "internal/arenakernel/node_dead.go",
			old:  "|| leaving && owner == a.self",
			new:  "",
			pkg:  "prims", run: "TestCondLeaverLeavesNoNode",
		},
		{
			name: "periodic checks of a Cond wake all waiters although woken waiters still lock one by one",
			file: "prims/cond_repair.go",
			old:  "\t\tflying = k.words.flying.Load()\n",
			new:  "\t\tflying = uint64(valueIn(&k.words.flying))\n",
			pkg:  "prims", run: "TestCondBatchHolds",
		},
		{
			name: "damage of a Cond's queue makes waits fail that have already ended",
			file: "prims/cond_rules.go",
			old:  "\t\t\tx.torn = false // ",
			new:  "\t\t\t// ",
			pkg:  "prims", run: "TestCondDamagedQueueConcernsWaitsInTheQueue",
		},
		{
			name: "periodic checks of a Cond wait without limit for woken waiters that do not lock",
			file: "prims/cond_repair.go",
			old:  "\t\tk.serve(x, b, math.MaxUint32)\n",
			new:  "\t\t_ = math.MaxUint32\n",
			pkg:  "prims", run: "TestCondBroadcastBehindHolder",
		},
	}...)
}
