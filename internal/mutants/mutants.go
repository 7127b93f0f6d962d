package main

import "slices"

// noLooks turns off a periodic check for lost wakes, which each process makes every 100 ms. Without that check, a wake
// that is lost makes a test hang, so the test finds the mistake.
var noLooks = []string{"SHMSYNC_CHECK_EVERY=1h"}

// images makes a test examine more states: it lets a new process join most of the memory states that a death between
// two instructions can leave.
var images = []string{"SHMSYNC_TEST_STEPKILLS=20"}

var txImages = []string{"SHMSYNC_TEST_STEPKILLS=20", "SHMSYNC_TEST_SCENE=mutex rollback"}

const withPoints = "crashpoint"

var mutants = slices.Concat(generalMutants, deathMutants, recordMutants, synchronizedMutants, txMutants, closeMutants, eventcountMutants, eventMutants, sequencerMutants, queueMutants, adviceMutants, waitableMutants)

var generalMutants = []mutant{
	{
		name: "a woken waiter that locks a Mutex does not announce the waiters that still sleep", // the woken waiter does not announce the waiters that still sleep
		file: "prims/mutex_slow.go",
		old:  "\tif w.slept {\n\t\tv := w.m.wakeWord.Announce()\n\t\tw.m.meet(ownerWord(w.m.owner.Load()), uint32(v)) // the waiters that still sleep cannot date this hold\n\t}\n",
		new:  "",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: noLooks,
	},
	{
		name: "Unlock of a Mutex wakes no waiter",
		file: "prims/mutex_slow.go",
		old:  "\tif m.wakeWord.Announced() {\n\t\t// This call has already tried to hand the lock to a goroutine of this process.\n\t\tcrashpoint.Hit(\"mutex.unlock.before_wake\")\n\t\tif enterLate(m.queue) {\n\t\t\tdefer m.queue.Exit()\n\t\t\tm.wakeAny()\n\t\t}\n\t}\n}\n",
		new:  "}\n",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: append([]string{"SHMSYNC_DISABLE=membarrier"}, noLooks...),
	},
	{
		name: "a waiter of a Mutex does not read the owner word again after it has announced itself", // after the announcement; others run between it and the check before it
		file: "prims/mutex_slow.go",
		old:  "\tv := m.wakeWord.Announce()\n\tcrashpoint.Hit(\"mutex.lock.announced\")\n\to := ownerWord(m.owner.Load())\n",
		new:  "\to := ownerWord(m.owner.Load())\n\tshmsync.Yield()\n\tv := m.wakeWord.Announce()\n\tcrashpoint.Hit(\"mutex.lock.announced\")\n",
		pkg:  "prims", run: "TestMutexHammer$|TestMutexHammerElsewhere", tags: withPoints, env: append([]string{"SHMSYNC_DISABLE=membarrier"}, noLooks...), count: 3,
	},
	{
		name: "a waiter that gives up on a Mutex does not pass its wake to another waiter",
		file: "prims/mutex_slow.go",
		old:  "\tif !m.blocks(o, true) {\n\t\tm.wakeNext()\n\t}\n",
		new:  "\t_ = o\n",
		pkg:  "prims", run: "TestWithoutChecks/failed_repair", tags: withPoints, count: 3,
	},
	{
		name: "repair of a Mutex leaves a dead process as the holder",
		file: "prims/mutex_repair.go",
		old:  "\tnext := o.ownerDied(policyOf(w.policy))\n",
		new:  "\tnext := o\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_report/unlock$", env: images,
	},
	{
		name: "a Post of a Futex wakes the waiters before it changes the state",
		file: "prims/futex.go",
		old:  "\tif !f.state.CompareAndSwap(uint64(from), uint64(to)) {\n\t\treturn false\n\t}\n",
		new:  "\tf.queue.DeliverAll()\n\ttime.Sleep(time.Millisecond)\n\tif true {\n\t\treturn f.state.CompareAndSwap(uint64(from), uint64(to))\n\t}\n",
		pkg:  "prims", run: "TestFutexMultipleWaiters|TestFutexWaitSuspended", tags: withPoints, env: noLooks,
	},
	{
		name: "a waiter of a Futex does not announce itself again after a Post for other waiters", // after a post that was meant for other waiters
		file: "prims/futex.go",
		old:  "uint64(s|futexAnnounced)) {\n\t\t\t\tcontinue\n\t\t\t}\n\t\t\ts |= futexAnnounced\n",
		new:  "uint64(s)) {\n\t\t\t\tcontinue\n\t\t\t}\n",
		pkg:  "prims", run: "TestFutexMultipleWaiters|TestFutexWaitSuspended", tags: withPoints, env: noLooks,
	},
	{
		name: "a process forgets known slot records when a peer has taken them off the list",
		file: "prims/slotrecords.go",
		old:  "\tall := append(make([]R, 0, max(len(known), len(read))), known...)\n",
		new:  "\tclear(has)\n\tvar all []R\n",
		pkg:  "prims", run: "TestSemaphoreRemembersItsShares",
	},
	{
		name: "the runner of a Once wakes no waiter when its function has returned",
		file: "prims/once.go",
		old:  "\t\t\tif w.announced() {\n\t\t\t\to.wakeAll()\n\t\t\t}\n",
		new:  "",
		pkg:  "prims", run: "TestOnceBetweenProcesses", tags: withPoints, env: noLooks,
	},
	{
		name: "a process that becomes the runner of a Once clears the announcement of waiters",
		file: "prims/once_word.go",
		old:  "\treturn w&^onceIDs + onceTurn |",
		new:  "\treturn w&^(onceIDs|onceAnnounced) + onceTurn |",
		pkg:  "prims", run: "TestOnceWord$",
	},
	{
		name: "Unlock of a FairMutex frees the lock instead of granting it to the first waiter",
		file: "prims/record_lock.go",
		old:  "\tif waits {\n\t\talive := l.waiting(w)\n",
		new:  "\tif waits && !l.waiting(w) {\n\t\talive := false\n",
		pkg:  "prims", run: "TestFairMutexFIFO", tags: withPoints, env: noLooks,
	},
	{
		name: "a process that ends a wait of a peer does not wake the poller of the peer",
		file: "internal/arenakernel/poller.go",
		old:  "\ta.ring(s + slotDoorbell)\n}\n\n// TakeReady",
		new:  "\t_ = s\n}\n\n// TakeReady",
		pkg:  "prims", run: "TestMutexHammerElsewhere|TestWithoutChecks/cancel", tags: withPoints, env: noLooks,
	},
	{
		name: "a reaper does not repair the objects that the dead participant had open",
		file: "internal/arenakernel/reap.go",
		old:  "\t\t\tops.Repair(a, o, dead)\n",
		new:  "\t\t\t_ = dead\n",
		pkg:  "internal/stepkill", run: "TestStepKills/semaphore/unlock,_3", tags: withPoints, env: append([]string{"SHMSYNC_TEST_STEPKILLS=2"}, noLooks...),
	},
	{
		name: "a reaper does not free the heap blocks that the dead participant had claimed",
		file: "internal/arenakernel/reap.go",
		old:  "\t\ta.reclaimBlocks(n)\n",
		new:  "",
		pkg:  "internal/stepkill", run: "TestStepImages/arena/claim_and_unclaim", env: images,
	},
	{
		name: "participants in a copied arena file count as alive although their byte locks are free",
		file: "internal/arenakernel/dead.go",
		old:  "\treturn w.present() && (a.seenDead(i, w) || (a.foundGone(i, w) || a.byteFree(i, w)) && a.slotState(i) == w)\n",
		new:  "\treturn w.present() && a.seenDead(i, w)\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_report/lock$", env: images,
	},
	{
		name: "a participant is marked dead without a fence against late stores of its threads",
		file: "internal/arenakernel/dead.go",
		old:  "\tif !a.fenceDying(i, w) {\n\t\treturn false\n\t}\n",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestDeathIsDeclaredOnlyAfterAFence",
	},
	{
		name: "a participant is marked dead although the fence against its late stores has failed",
		file: "internal/arenakernel/dead.go",
		old:  "&& shmsync.Fence() == nil {",
		new:  "&& (shmsync.Fence() == nil || true) {",
		pkg:  "internal/arenakernel", run: "TestDeathIsDeclaredOnlyAfterAFence",
	},
	{
		name: "Claim of a WaitGroup takes counts that another goroutine of the process has claimed",
		file: "prims/counter_log.go",
		old:  "return own - min(valueOf(&s.claimed), own)",
		new:  "return own",
		pkg:  "prims", run: "TestWaitGroupClaim$",
	},
	{
		name: "an Attach creates the object if it does not exist",
		file: "internal/arenakernel/object_open.go",
		old:  "if err == nil && !found && spec.Existing {",
		new:  "if err == nil && !found && spec.Existing && spec.Size == 0 {",
		pkg:  "prims", run: "TestAttachOnlyFinds$",
	},
	{
		name: "a reaper ignores the counts of a WaitGroup or Latch that a dead participant owes",
		file: "prims/counter_repair.go",
		old:  "t.has(s) == 0 || !dead(s.holder())",
		new:  "t.has(s) < 1<<40 || !dead(s.holder())",
		pkg:  "prims", run: "TestWaitGroupDeath$|TestLatchDeath$",
	},
	{
		name: "a reaper that has not opened a WaitGroup ignores the share of the dead participant",
		file: "prims/counter_repair.go",
		old:  "if next == reapRecord && !t.join() {",
		new:  "if next == reapRecord {",
		pkg:  "prims", run: "TestWaitGroupReapedByOther$",
	},
	{
		name: "Wait of a WaitGroup does not look first for shares of dead participants",
		file: "prims/counter_repair.go",
		old:  "t.deaths.Load() != deaths || t.sought.Load() != uint64(e) {",
		new:  "false {",
		pkg:  "prims", run: "TestWaitGroupReapedByOther$", tags: withPoints, env: noLooks,
	},
	{
		name: "Wait of a WaitGroup trusts a corrupt list of slot records",
		file: "prims/counter_log.go",
		old:  "if t.slots.load().err != nil {",
		new:  "if t.slots.load() == nil {",
		pkg:  "prims", run: "TestWaitGroupTornList$",
	},
	{
		name: "a call of a WaitGroup commits before the record of another process is carried out",
		file: "prims/record_log.go",
		old:  "if head.Load() != version {",
		new:  "if head.Load() != version || c.slot() != t.slot {",
		pkg:  "prims", run: "TestWaitGroupCrash$", tags: withPoints,
	},
	{
		name: "an Add changes a WaitGroup from 0 before its waiters can see that it was 0",
		file: "prims/counter.go", old: "if e.ticket() == c.ticket() {",
		new: "if e.ticket() == c.ticket() || t.load() == c {",
		pkg: "prims", run: "TestWaitGroupZeroUntold", tags: withPoints,
	},
	{
		name: "a FairMutex granted to a process that died before it accepted counts as held",
		file: "prims/record_lock_reap.go",
		old:  "\tif o.granted() {\n\t\treturn ownerFree, false, true\n\t}\n",
		new:  "\tif o.granted() {\n\t\to = makeOwner(kindHeld, o.participant())\n\t}\n",
		pkg:  "prims", run: "TestGrantThatNobodyAcceptedPassesOn/fair",
	},
	{
		name: "a reaper does not schedule the queues of a SignalWaker whose executor died",
		file: "prims/signal_repair.go",
		old:  "\t\tcase s.executing() && gone(s.participant()):\n",
		new:  "\t\tcase s.executing() && gone(s.participant()) && false:\n",
		pkg:  "prims", run: "TestSignalDeath$",
	},
	{
		name: "a process begins an epoch of the arena while another participant is still dying",
		file: "internal/arenakernel/gate.go",
		old:  "\t\tdying = dying || is == isDying\n",
		new:  "",
		pkg:  "internal/cinterop", run: "TestFirstIsAloneUnderKills", env: []string{"SHMSYNC_TEST_LONG=1"},
	},
	{
		name: "the queues of a SignalWaker whose executors are killed at random stay unscheduled",
		file: "prims/signal_repair.go",
		old:  "\t\tcase s.executing() && gone(s.participant()):\n",
		new:  "\t\tcase s.executing() && gone(s.participant()) && false:\n",
		pkg:  "prims", run: "TestSignalRandomKills", env: []string{"SHMSYNC_TEST_LONG=1"},
	},
	{
		name: "the last RUnlock of an RWMutex wakes no writer",
		file: "prims/rwmutex_read.go",
		old:  "\tif w.reading() == 0 {\n\t\tm.left()\n\t}\n}\n\n// left wakes",
		new:  "}\n\n// left wakes",
		pkg:  "prims", run: "TestRWMutexWriterPriority", tags: withPoints, env: noLooks,
	},
	{
		name: "an Upgrade of an RWMutex that is given up wakes no reader",
		file: "prims/rwmutex_write.go",
		old:  "\tif m.gate.CompareAndSwap(uint32(m.closedByUs()), uint32(gateOpen)) {\n\t\tm.letIn()\n\t}\n",
		new:  "\tm.gate.CompareAndSwap(uint32(m.closedByUs()), uint32(gateOpen))\n",
		pkg:  "prims", run: "TestRWMutexUpgradeGivesUp", tags: withPoints, env: noLooks,
	},
	{
		name: "repair of a SpinLock leaves a dead process as the holder",
		file: "prims/spinlock_repair.go",
		old:  "\tnext := o.ownerDied(policyOf(w.policy))\n",
		new:  "\tnext := o\n",
		pkg:  "prims", run: "TestSpinLockHolderDies",
	},
	{
		name: "a writer of an RWSpinLock trusts a corrupt list of readers",
		file: "prims/rwspinlock_drain.go",
		old:  "\tif known.err != nil {\n",
		new:  "\tif false {\n",
		pkg:  "prims", run: "TestRWSpinLockRemembersItsReaders",
	},
	{
		name: "a reaper does not release the hold of a dead reader of an RWSpinLock",
		file: "prims/rwspinlock_repair.go",
		old:  "\tr, ok := slots.of(dead.Slot())\n",
		new:  "\tr, ok := slots.of(1)\n",
		pkg:  "prims", run: "TestRWSpinLockSize",
	},
	{
		name: "a leaving participant does not check again for wakes by peers before it frees wait nodes", // whether another process tells it of a wait
		file: "internal/arenakernel/node.go",
		old:  "n.State() == NodeResolved && !(told && c.allTold())",
		new:  "n.State() == NodeResolved && !told",
		pkg:  "internal/arenakernel", run: "TestWhoLeavesIsToldStill", tags: withPoints,
	},
	{
		name: "a leaving participant frees its poller node while a peer may still wake its poller",
		file: "internal/arenakernel/node.go",
		old:  "told && (!c.current(dead) || c.awaitTold())",
		new:  "told",
		pkg:  "internal/arenakernel", run: "TestPollerNodeOfWhoLeavesIsToldStill", tags: withPoints,
	},
	{
		name: "a wake for one NUMA node wakes nobody if no waiter sleeps on that node",
		file: "internal/park/near.go",
		old:  "\t\t\tif n := shmsync.WakeBitset(l.Raw, 1, nearBits(node)); n != 0 {\n\t\t\t\treturn n\n\t\t\t}\n",
		new:  "\t\t\treturn shmsync.WakeBitset(l.Raw, 1, nearBits(node))\n",
		pkg:  "prims", run: "TestMutexNearOrder/nobody_of_its_node", tags: withPoints, env: noLooks,
	},
	{
		name: "repair of a CohortMutex leaves the local lock with a dead process",
		file: "prims/cohortmutex_repair.go",
		old:  "func(localLock int, w *mutexWords) { repairMutexWords(a, o, w, dead, localLock >= 0) })",
		new:  "func(localLock int, w *mutexWords) {\n\t\tif localLock < 0 {\n\t\t\trepairMutexWords(a, o, w, dead, false)\n\t\t}\n\t})",
		pkg:  "prims", run: "TestCohortMutexStoppedWaiter/killed_true", tags: withPoints, env: noLooks,
	},
	{
		name: "a wait for the local lock of a CohortMutex has no timeout",
		file: "prims/cohortmutex_lock.go",
		old:  "timeout: c.timeout(), ",
		new:  "",
		pkg:  "prims", run: "TestCohortMutexStoppedWaiter", tags: withPoints,
	},
	{
		name: "a waiter of a CohortMutex lets other NUMA nodes go first without a time limit",
		file: "prims/cohortmutex_lock.go",
		old:  "\t\t\treturn inVain\n\t\t})\n",
		new:  "\t\t\treturn inVain\n\t\t})\n\t\tfor c.yields(node) {\n\t\t\tshmsync.Yield()\n\t\t}\n",
		pkg:  "prims", run: "TestCohortMutexUnresponsive", tags: withPoints,
	},
	{
		name: "a delayed reap uses the arena opening of its caller, which may be closed",
		file: "internal/arenakernel/dead.go",
		old:  "\t\t\ta := &Arena{membership: a.membership}\n",
		new:  "",
		pkg:  "internal/arenakernel", run: "TestReapingOutlivesTheOpeningThatMetTheDeath",
	},
	{
		name: "a slot is renewed without reading the act words after the search for used IDs",
		file: "internal/arenakernel/window.go",
		old:  "search.id(ParticipantID(a.actWord(i, k).Load() & ParticipantIDMask))",
		new:  "_ = a.actWord(i, k)",
		pkg:  "internal/arenakernel", run: "TestRenewalSeesWhatHappened",
	},
	{
		name: "a slot is renewed while a dead participant is not reaped yet",
		file: "internal/arenakernel/window.go",
		old:  "if i := a.deadSlot(); i != 0 {\n\t\treturn a.postpone(true,",
		new:  "if i := a.deadSlot(); i < 0 {\n\t\treturn a.postpone(true,",
		pkg:  "internal/arenakernel", run: "TestRenewalSeesWhatHappened",
	},
	{
		name: "a slot is renewed while a process is in the middle of ending a peer's wait",
		file: "internal/arenakernel/window.go",
		old:  "if n, ok := a.eachTold(); !ok {",
		new:  "if n, ok := a.eachTold(); n == 0 && !ok {",
		pkg:  "internal/arenakernel", run: "TestUsedUpSlotsThatCannotBeRenewed",
	},
	{
		name: "a process changes a word of a dead participant without checking its death again",
		file: "internal/arenakernel/act.go",
		old:  "if w.Load() != old || c.current(n) ||",
		new:  "if w.Load() != old ||",
		pkg:  "internal/arenakernel", run: "TestTakeFrom",
	},
	{
		name: "a process takes data of a dead participant whose system calls may still write",
		file: "internal/arenakernel/act.go",
		old:  "gone && !c.gone(n) {",
		new:  "gone && n == 0 {",
		pkg:  "internal/arenakernel", run: "TestTakeFrom",
	},
	{
		name: "a process waits for an act word of its own that a peer has overwritten",
		file: "internal/arenakernel/act.go",
		old:  "if c.acting[k].CompareAndSwap(false, true) {",
		new:  "if c.actWord(c.self.Slot(), k).Load() == 0 && c.acting[k].CompareAndSwap(false, true) {",
		pkg:  "internal/arenakernel", run: "TestHostileActWords",
	},
}
