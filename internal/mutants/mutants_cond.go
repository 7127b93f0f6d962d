package main

// These are mistakes in the Cond. The document docs/design/0058 describes how a Cond works.
func init() {
	mutants = append(mutants, []mutant{
		{
			name: "a signal dies with its receiver",
			file: "prims/cond_rules.go",
			old:  "\t\t\tif has {\n\t\t\t\tk.give(x, to, extra)\n",
			new:  "\t\t\tif false {\n\t\t\t\tk.give(x, to, extra)\n",
			pkg:  "prims", run: "TestCondSignalledThenDied",
		},
		{
			name: "a signal passes on to a wait that came later",
			file: "prims/cond_rules.go",
			old:  "\t\t\thas = has && to.number() <= condBound(extra&^condSignal, x.c.version())\n",
			new:  "",
			pkg:  "prims", run: "TestCondSignalledThenDied",
		},
		{
			name: "signals pass on in the order of their nodes",
			file: "prims/cond_repair.go",
			old:  "\tslices.SortStableFunc(all, func(p, q condDebt) int { return cmp.Compare(p.bound, q.bound) })\n",
			new:  "\tslices.SortStableFunc(all, func(p, q condDebt) int { return cmp.Compare(q.bound, p.bound) })\n",
			pkg:  "prims", run: "TestCondSignalsPassOnInTheirOrder",
		},
		{
			name: "the turn of a dead waiter counts for ever",
			file: "prims/cond_rules.go",
			old:  "max(x.get(&k.words.flying), 1)-1)\n",
			new:  "x.get(&k.words.flying))\n",
			pkg:  "prims", run: "TestCondBroadcastTurnsOfTheDead",
		},
		{
			name: "a join leaves the boundary where it was",
			file: "prims/record_wait.go",
			old:  "\tif q.boundary != nil && x.get(q.boundary) == 0 {\n",
			new:  "\tif false {\n",
			pkg:  "prims", run: "TestCondNotifyOneWakesOneAtATime",
		},
		{
			name: "the boundary stays at a wait that has left",
			file: "prims/record_wait.go",
			old:  "\tif q.boundary != nil && x.get(q.boundary) == w.index() {\n",
			new:  "\tif false {\n",
			pkg:  "prims", run: "TestCondNotifyOneWakesOneAtATime",
		},
		{
			name: "a node is freed while it owes",
			file: "internal/arenakernel/node_record.go",
			old:  "v == RecordedLast || v == RecordedOwes || v >= RecordedFirst",
			new:  "v == RecordedLast || v >= RecordedFirst",
			pkg:  "internal/arenakernel", run: "TestNodeThatOwesIsKept",
		},
		{
			name: "a node is freed while it may still be pushed on a ready stack",
			file: "internal/arenakernel/node_record.go",
			old:  " && (n.State() != NodeResolved || a.allTold())",
			new:  "",
			pkg:  "internal/arenakernel", run: "TestNodeThatOwesIsKept",
		},
		{
			name: "a wait that gives up does not see that a broadcast came first",
			file: "prims/cond_rules.go",
			old:  "!ok || w.number() < first.number()",
			new:  "false && (!ok || w.number() < first.number())",
			pkg:  "prims", run: "TestCondCoveredWaitGivesUp",
		},
		{
			name: "a reaper that has not opened a Cond leaves it alone",
			file: "prims/cond_repair.go",
			old:  "if len(nodes) > 0 && k.slots.makeRecord() {",
			new:  "if false {",
			pkg:  "prims", run: "TestCondSignalledDiesBesideStrangers",
		},
		{
			name: "a Cond does not ask whether participants are dead",
			file: "internal/arenakernel/node_dead.go",
			old:  "\t\tif age != 0 {\n",
			new:  "\t\tif false {\n",
			pkg:  "prims", run: "TestCondDeathThatNobodyCounts",
		},
		{
			name: "a Cond does not take back the wakes of a process that leaves",
			file: "internal/arenakernel/node_dead.go",
			old:  "|| leaving && owner == a.self",
			new:  "",
			pkg:  "prims", run: "TestCondLeaverLeavesNoNode",
		},
		{
			name: "checks give up on the batch although waiters come back",
			file: "prims/cond_repair.go",
			old:  "\t\tflying = k.words.flying.Load()\n",
			new:  "\t\tflying = uint64(valueIn(&k.words.flying))\n",
			pkg:  "prims", run: "TestCondBatchHolds",
		},
		{
			name: "damage of the queue ends waits that are over with an error",
			file: "prims/cond_rules.go",
			old:  "\t\t\tx.torn = false // the turns",
			new:  "\t\t\t// the turns",
			pkg:  "prims", run: "TestCondDamagedQueueConcernsWaitsInTheQueue",
		},
		{
			name: "checks never give up on the batch",
			file: "prims/cond_repair.go",
			old:  "\t\tk.serve(x, b, math.MaxUint32)\n",
			new:  "\t\t_ = math.MaxUint32\n",
			pkg:  "prims", run: "TestCondBroadcastBehindHolder",
		},
	}...)
}
