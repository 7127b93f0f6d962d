package main

// eventcountMutants are mistakes in objects whose waiters sleep on an eventcount.
var eventcountMutants = []mutant{
	{
		name: "the producer's death is not reported",
		file: "prims/future.go",
		old:  "\t\t\tif n == 0 || !dead(n) {\n",
		new:  "\t\t\tif n == 0 || !dead(0) {\n",
		pkg:  "prims", run: "TestFutureProducerDies",
	},
	{
		name: "a process that ends a round of a Future wakes nobody",
		file: "prims/future.go",
		old:  "\t\t\treturn to, s.announced()\n",
		new:  "\t\t\treturn to, false\n",
		pkg:  "prims", run: "TestFutureWait$", tags: withPoints, env: noLooks,
	},
	{
		name: "a round of a Future is decided and does not end",
		file: "prims/future.go",
		old:  "\t\tif !r.of(s.round()) {\n\t\t\tn := s.producer()\n",
		new:  "\t\tif n := s.producer(); n == 0 || !r.of(s.round()) {\n",
		pkg:  "prims", run: "TestFutureCrashOfTheSetter", tags: withPoints,
	},
	{
		name: "zeros are a result of a Future",
		file: "prims/future_word.go",
		old:  "\treturn v&futureResultDecided != 0 && ",
		new:  "\treturn (v == 0 || v&futureResultDecided != 0) && ",
		pkg:  "prims", run: "TestFutureZeroedUnderWaiters",
	},
	{
		name: "a check leaves parked goroutines to a waker that stopped",
		file: "prims/eventcount.go",
		old:  "\t\te.queue.DeliverAllAsOne()\n\t}\n}\n",
		new:  "\t\te.list.DeliverAll()\n\t}\n}\n",
		pkg:  "prims", run: "TestFutureStoppedBeforeItPushes", tags: withPoints,
	},
	{
		name: "a process that turns an Event wakes nobody",
		file: "prims/event_manual.go",
		old:  "\t\t\tif s.announced() {\n\t\t\t\tcrashpoint",
		new:  "\t\t\tif s.announced() && false {\n\t\t\t\tcrashpoint",
		pkg:  "prims", run: "TestEventCatalogue/setWakesAll", tags: withPoints, env: noLooks,
	},
	{
		name: "a turn of an Event forgets its mode",
		file: "prims/eventcount_word.go",
		old:  "\treturn s&^(eventcountSequence|eventcountAnnounced) | ",
		new:  "\treturn s&^(eventcountSequence|eventcountAnnounced|3<<33) | ",
		pkg:  "prims", run: "TestEventKeepsItsMode",
	},
	{
		name: "WaitAny ends a round of a Future outside of a call",
		file: "prims/future.go",
		old:  "\tif err := f.enter(); err != nil { // without a call, a Close would not wait for the stores\n\t\treturn true, err\n\t}\n\tdefer f.leave()\n",
		new:  "",
		pkg:  "prims", run: "TestFutureReachedAfterClose",
	},
	{
		name: "a dead party is waited for",
		file: "prims/barrier_log.go",
		old:  "\t\t\tif h.name != 0 && absent(h.name) {\n\t\t\t\ts.lose(h)\n",
		new:  "\t\t\tif h.name != 0 && absent(h.name) {\n\t\t\t\th.parties = 0\n",
		pkg:  "prims", run: "TestBarrierDeath$",
	},
	{
		name: "a broken phase is forgotten by the next one",
		file: "prims/barrier.go",
		old:  "x.words.breaks[p%barrierBreaks].Load()",
		new:  "x.words.breaks[0].Load()",
		pkg:  "prims", run: "TestBarrierWaitReportsEveryBrokenPhase$",
	},
	{
		name: "a Barrier is reset to the parties that it had",
		file: "prims/barrier_word.go",
		old:  "parties = max(s.expected-min(s.lost, s.expected), 1)",
		new:  "parties = max(s.expected, 1)",
		pkg:  "prims", run: "TestBarrierResetAfterSeveralDeaths$",
	},
	{
		name: "a phase of a Barrier ends and wakes nobody",
		file: "prims/barrier_log.go",
		old:  "\t\t\tif e.announced() {\n\t\t\t\tcrashpoint.Hit(\"barrier.tell.before_wake\")\n",
		new:  "\t\t\tif false {\n",
		pkg:  "prims", run: "TestBarrierBetweenProcesses", tags: withPoints, env: noLooks,
	},
}
