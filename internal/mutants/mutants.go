package main

// noLooks has no process look for lost wakes, which it would do every 100 ms: so a wake
// that is lost is a hang.
var noLooks = []string{"SHMSYNC_LOOK_EVERY=1h"}

// images has a newcomer join most states of a scene.
var images = []string{"SHMSYNC_TEST_STEPKILLS=20"}

const withPoints = "crashpoint"

var mutants = []mutant{
	{
		name: "drop the waiters bit", // of those who stay asleep, by who was woken
		file: "prims/mutex_slow.go",
		old:  "\tif w.slept {\n\t\tw.m.bell.Announce()\n\t}\n",
		new:  "",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: noLooks,
	},
	{
		name: "unlock wakes nobody",
		file: "prims/mutex_slow.go",
		old:  "\tif m.bell.Announced() {\n\t\tm.wakeAfter()\n\t}\n}\n",
		new:  "}\n",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: append([]string{"SHMSYNC_DISABLE=membarrier"}, noLooks...),
	},
	{
		name: "skip the recheck", // after announcing; others run between it and the look before
		file: "prims/mutex_slow.go",
		old:  "\tv := m.bell.Announce()\n\tcrashpoint.Hit(\"mutex.lock.announced\")\n\to := ownerWord(m.owner.Load())\n",
		new:  "\to := ownerWord(m.owner.Load())\n\tshmsync.Yield()\n\tv := m.bell.Announce()\n\tcrashpoint.Hit(\"mutex.lock.announced\")\n",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: append([]string{"SHMSYNC_DISABLE=membarrier"}, noLooks...), count: 3,
	},
	{
		name: "cancel keeps the wake",
		file: "prims/mutex_slow.go",
		old:  "\tif !m.blocks(o, true) {\n\t\tm.wakeNext()\n\t}\n",
		new:  "\t_ = o\n",
		pkg:  "prims", run: "TestWithoutLooks/failed_repair", tags: withPoints, count: 3,
	},
	{
		name: "a dead holder stays",
		file: "prims/mutex_repair.go",
		old:  "\tnext := o.bereaved(policyOf(w.policy))\n",
		new:  "\tnext := o\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_report/unlock$", env: images,
	},
	{
		name: "wake before store",
		file: "prims/futex.go",
		old:  "\t\tif f.state.CompareAndSwap(uint64(s), uint64(s.posted())) {\n\t\t\tif s.announced() {\n",
		new:  "\t\tif s.announced() {\n\t\t\tf.queue.DeliverAll()\n\t\t\ttime.Sleep(time.Millisecond)\n\t\t}\n\t\tif f.state.CompareAndSwap(uint64(s), uint64(s.posted())) {\n\t\t\tif false {\n",
		pkg:  "prims", run: "TestFutexMultipleWaiters|TestFutexWaitSuspended", tags: withPoints, env: noLooks,
	},
	{
		name: "do not announce again", // after a post that was for others
		file: "prims/futex.go",
		old:  "uint64(s|futexAnnounced)) {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\ts |= futexAnnounced\n",
		new:  "uint64(s)) {\n\t\t\t\tcontinue\n\t\t\t}\n",
		pkg:  "prims", run: "TestFutexMultipleWaiters|TestFutexWaitSuspended", tags: withPoints, env: noLooks,
	},
	{
		name: "skip the redo log",
		file: "prims/monitor_redo.go",
		old:  "\t\tr.redone.Store(uint64(c.n))\n",
		new:  "",
		pkg:  "prims", run: "TestBarrierCrashOfTheLast|TestWaitGroupCrash$|TestLatchCrash", tags: withPoints,
	},
	{
		name: "wake nobody after a monitor",
		file: "prims/monitor.go",
		old:  "\tm.latch.Unlock()\n\tm.wake(b)\n}\n",
		new:  "\tm.latch.Unlock()\n}\n",
		pkg:  "prims", run: "TestSemaphoreIsFIFO", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait that is over stays in line",
		file: "prims/monitor.go",
		old:  "\tw.Stamp().Store(0)\n\tcrashpoint.Hit(\"monitor.released\")\n",
		new:  "\tcrashpoint.Hit(\"monitor.released\")\n",
		pkg:  "prims", run: "TestSemaphore",
	},
	{
		name: "account for nobody", // whose wait was resolved by one who died
		file: "prims/monitor_redo.go",
		old:  "\t\t\tm.rules.account(w)\n",
		new:  "\t\t\tm.drop(w)\n",
		pkg:  "prims", run: "TestQueueCrash$", tags: withPoints,
	},
	{
		name: "permits die with their owner",
		file: "prims/semaphore_rules.go",
		old:  "\t\tif h.total() > 0 && gone(n) {\n",
		new:  "\t\tif h.total() > 1<<40 && gone(n) {\n",
		pkg:  "prims", run: "TestSemaphoreTakesBackFromTheDead",
	},
	{
		name: "what an open share has dies with its owner",
		file: "prims/semaphore_rules.go",
		old:  "\t\t\tc.set(&s.words.free, s.words.free.Load()+h.permits.Load()+shut(h).permits())\n",
		new:  "\t\t\tc.set(&s.words.free, s.words.free.Load()+h.permits.Load()+shut(h).permits()*0)\n",
		pkg:  "prims", run: "TestSemaphoreTakesBackWhatIsOpen",
	},
	{
		name: "a waiter queues and closes no share",
		file: "prims/semaphore.go",
		old:  "\ts.gather()\n",
		new:  "",
		pkg:  "prims", run: "TestSemaphoreGathersWhatIsSpare",
	},
	{
		name: "items die with their lease",
		file: "prims/queue_slots.go",
		old:  "\t\tif gone(st.name()) {\n\t\t\tx.giveBack(i, s, st)\n\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestQueueLeasesOfTheDead",
	},
	{
		name: "tokens die with who was handed them",
		file: "prims/event_auto.go",
		old:  "\t\t\tc.set(&x.words.spare, x.words.spare.Load()+n)\n",
		new:  "",
		pkg:  "prims", run: "TestEventTokenOfTheDead|TestEventSpareOfTheDead", tags: withPoints,
	},
	{
		name: "the producer's death is not told",
		file: "prims/future_queue.go",
		old:  "\tif s := f.load(); s.claimed() && gone(s.producer()) {\n",
		new:  "\tif s := f.load(); s.claimed() && gone(0) {\n",
		pkg:  "prims", run: "TestFutureProducerDies",
	},
	{
		name: "the runner's death is not seen",
		file: "prims/once.go",
		old:  "\t\tput(&o.words.runner, 0)\n\t}\n}\n\nfunc (o *Once) holders",
		new:  "\t}\n}\n\nfunc (o *Once) holders",
		pkg:  "prims", run: "TestOnceRunnerDies",
	},
	{
		name: "free instead of hand over",
		file: "prims/fairmutex.go",
		old:  "\tb := takeWakes()\n\tf.settle(b)\n\tm.leave(b)\n}\n\nfunc (f *FairMutex) badUnlock",
		new:  "\tm.leave(nil)\n}\n\nfunc (f *FairMutex) badUnlock",
		pkg:  "prims", run: "TestFairMutexFIFO", tags: withPoints, env: noLooks,
	},
	{
		name: "the hub is not rung",
		file: "arena/hub.go",
		old:  "\ta.ring(s + slotDoorbell)\n}\n\n// TakeReady",
		new:  "\t_ = s\n}\n\n// TakeReady",
		pkg:  "prims", run: "TestMutexHammerElsewhere|TestWithoutLooks/cancel", tags: withPoints, env: noLooks,
	},
	{
		name: "burial repairs nothing",
		file: "arena/reap.go",
		old:  "\t\t\tops.Repair(a, o, dead)\n",
		new:  "\t\t\t_ = dead\n",
		pkg:  "internal/stepkill", run: "TestStepKills/semaphore/unlock,_3", tags: withPoints, env: append([]string{"SHMSYNC_TEST_STEPKILLS=2"}, noLooks...),
	},
	{
		name: "claimed blocks stay",
		file: "arena/reap.go",
		old:  "\t\ta.reclaimBlocks(n)\n",
		new:  "",
		pkg:  "internal/stepkill", run: "TestStepImages/arena/claim_and_unclaim", env: images,
	},
	{
		name: "a copied arena keeps its phantoms",
		file: "arena/dead.go",
		old:  "\treturn w.present() && (a.seenDead(i, w) || a.byteFree(i) && a.slotState(i) == w)\n",
		new:  "\treturn w.present() && a.seenDead(i, w)\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_report/lock$", env: images,
	},
	{
		name: "a dead party is waited for",
		file: "prims/barrier_state.go",
		old:  "\t\t\tx.lose(h)\n",
		new:  "\t\t\t_ = h\n",
		pkg:  "prims", run: "TestBarrierDeath$",
	},
	{
		name: "what the dead had to do is owed by nobody",
		file: "prims/tally.go",
		old:  "if t.has(h) != 0 && gone(",
		new:  "if t.has(h) > 1<<40 && gone(",
		pkg:  "prims", run: "TestWaitGroupDeath$|TestLatchDeath$",
	},
	{
		name: "claims die with their owner",
		file: "prims/waitable_rules.go",
		old:  "n > 0 && gone(",
		new:  "n > 1<<40 && gone(",
		pkg:  "prims", run: "TestWaitableTakesBackFromTheDead",
	},
	{
		name: "keys die with their owner",
		file: "prims/multilock_queue.go",
		old:  "!h.taken() || !gone(h.owner().name()) {",
		new:  "!h.taken() || gone != nil {",
		pkg:  "prims", run: "TestMultiLockOwnerDeathRelease",
	},
	{
		name: "a grant to the dead is a hold",
		file: "prims/fairmutex_queue.go",
		old:  "\tcase o.granted():\n\t\tput(&f.words.owner, 0)\n\t\treturn\n",
		new:  "\tcase o.granted():\n\t\to = makeOwner(kindHeld, o.name())\n",
		pkg:  "prims", run: "TestGrantThatNobodyAcceptedPassesOn/fair",
	},
	{
		name: "the grant of the dead keeps the key",
		file: "prims/multilock_word.go",
		old:  "\tif h.granted() {\n\t\treturn h.passing() // it never held the key\n\t}\n",
		new:  "",
		pkg:  "prims", run: "TestGrantThatNobodyAcceptedPassesOn/multilock$",
	},
	{
		name: "what the dead executed is over",
		file: "prims/signal_repair.go",
		old:  "\t\tcase s.executing() && gone(s.name()):\n",
		new:  "\t\tcase s.executing() && gone(s.name()) && false:\n",
		pkg:  "prims", run: "TestSignalDeath$",
	},
	{
		name: "the last reader wakes nobody",
		file: "prims/rwmutex_read.go",
		old:  "\tif w.reading() == 0 {\n\t\tm.left()\n\t}\n}\n\n// left wakes",
		new:  "}\n\n// left wakes",
		pkg:  "prims", run: "TestRWMutexWriterPriority", tags: withPoints, env: noLooks,
	},
	{
		name: "a dead one holds a spin lock",
		file: "prims/spinlock_repair.go",
		old:  "\tnext := o.bereaved(policyOf(w.policy))\n",
		new:  "\tnext := o\n",
		pkg:  "prims", run: "TestSpinLockHolderDies",
	},
	{
		name: "a signal dies with who was given it",
		file: "prims/cond_queue.go",
		old:  "if !passed && k.signal(",
		new:  "if !passed && false && k.signal(",
		pkg:  "prims", run: "TestCondSignalledThenDied",
	},
	{
		name: "a counter that is reached ends no wait",
		file: "prims/sequencer_sequence.go",
		old:  "\tcrashpoint.Hit(\"sequencer.count.counted\")\n\tq.mustFinish()\n",
		new:  "",
		pkg:  "prims", run: "TestSequencerCrowd$", tags: withPoints, env: noLooks,
	},
	{
		name: "who leaves is not asked for again", // whether somebody tells it of a wait
		file: "arena/node.go",
		old:  "n.State() == NodeResolved && !(told && c.AllTold())",
		new:  "n.State() == NodeResolved && !told",
		pkg:  "arena", run: "TestWhoLeavesIsToldStill", tags: withPoints,
	},
	{
		name: "a hub node of who leaves is free at once",
		file: "arena/node.go",
		old:  "told && (!c.current(dead) || c.awaitTold())",
		new:  "told",
		pkg:  "arena", run: "TestHubNodeOfWhoLeavesIsToldStill", tags: withPoints,
	},
	{
		name: "a near wake is for its node alone",
		file: "internal/park/near.go",
		old:  "\t\t\tif n := shmsync.WakeBitset(l.Raw, 1, nearBits(node)); n != 0 {\n\t\t\t\treturn n\n\t\t\t}\n",
		new:  "\t\t\treturn shmsync.WakeBitset(l.Raw, 1, nearBits(node))\n",
		pkg:  "prims", run: "TestMutexNearOrder/nobody_of_its_node", tags: withPoints, env: noLooks,
	},
	{
		name: "a door stays with the dead",
		file: "prims/cohortmutex_repair.go",
		old:  "func(door int, w *mutexWords) { repairMutexWords(a, w, dead, door >= 0) })",
		new:  "func(door int, w *mutexWords) {\n\t\tif door < 0 {\n\t\t\trepairMutexWords(a, w, dead, false)\n\t\t}\n\t})",
		pkg:  "prims", run: "TestCohortMutexStoppedWaiter/killed_true", tags: withPoints, env: noLooks,
	},
	{
		name: "who waits at a door waits for ever",
		file: "prims/cohortmutex_lock.go",
		old:  "patience: c.patience(), ",
		new:  "",
		pkg:  "prims", run: "TestCohortMutexStoppedWaiter", tags: withPoints,
	},
	{
		name: "others go first for ever",
		file: "prims/cohortmutex_lock.go",
		old:  "\t\t\treturn inVain\n\t\t})\n",
		new:  "\t\t\treturn inVain\n\t\t})\n\t\tfor c.yields(node) {\n\t\t\tshmsync.Yield()\n\t\t}\n",
		pkg:  "prims", run: "TestCohortMutexDeaf", tags: withPoints,
	},
}
