package main

// These are mistakes in how calls deal with a limit, a shortage, a panic, or a handle that is closed.
func init() {
	const kernel, pkg = "internal/arenakernel/", "internal/arenakernel"
	mutants = append(mutants, []mutant{
		{
			name: "if the kernel refuses to lock the arena gate, another process seems to have the gate",
			file: kernel + "gate.go",
			old:  "\t\treturn false, a.fail(\"arena.open\", err, \"could not take the gate, which is a byte lock\")\n",
			new:  "\t\treturn false, nil\n",
			pkg:  pkg, run: "TestRefusedGateEndsTheJoin",
		},
		{
			name: "a process that cannot open the arena file a second time joins without a byte lock",
			file: kernel + "enter.go",
			old:  "\tif errors.Is(err, shmsync.ErrNotSupported) {\n\t\treturn nil\n\t}\n\tif err != nil {\n",
			new:  "\tif err != nil {\n\t\treturn nil\n\t}\n\tif err != nil {\n",
			pkg:  pkg, run: "TestJoinWithTooFewFilesIsRefused",
		},
		{
			name: "a participant joins with an incomplete identity if a shortage hides parts of it",
			file: kernel + "identity.go",
			old:  "\t\tif isShortage(err) {\n",
			new:  "\t\tif false && isShortage(err) {\n",
			pkg:  pkg, run: "TestIdentityThatCouldNotBeReadIsReadLater",
		},
		{
			name: "a function for OnDeath is called after the close of the arena opening that registered it",
			file: kernel + "deathrecord.go",
			old:  "\ta.OnEnd(d, func() { a.offDeath(d) })\n",
			new:  "",
			pkg:  pkg, run: "TestOnDeathEndsWithItsOpening",
		},
		{
			name: "deaths still wake a process whose functions for OnDeath have all ended",
			file: kernel + "deathrecord.go",
			old:  "\t\ta.dropCap(capTold)\n",
			new:  "",
			pkg:  pkg, run: "TestOnEventEndsWithItsOpening",
		},
		{
			name: "a futex wait whose deadline is 292 years away ends at once",
			file: "futex_linux.go",
			old:  "min(int64(t.Sub(clockBase)), math.MaxInt64-clockOffset)",
			new:  "min(int64(t.Sub(clockBase)), math.MaxInt64)",
			pkg:  ".", run: "TestMonotonicOfFarTimes",
		},
		{
			name: "an RWMutex lets one goroutine more than the limit wait to read",
			file: "prims/rwmutex_read.go",
			old:  "if full = w.waiting() >= readerWaitMost; full {",
			new:  "if full = w.waiting() > readerWaitMost; full {",
			pkg:  "prims", run: "TestRWMutexRefusesTooManyReaders",
		},
		{
			name: "a SignalWaker accepts one worker or sleeper more than a process can have",
			file: "prims/signal_permit.go",
			old:  "have < 0 || have > most {",
			new:  "have < 0 || have > most+1 {",
			pkg:  "prims", run: "TestSignalCountsAreLimited",
		},
		{
			name: "a waiter of a SpinLock whose Repair panics still counts as a waiter",
			file: "prims/spinlock_core.go",
			old:  "\t\tif !ended { // Repair has panicked or ended the goroutine\n\t\t\tw.leave()\n",
			new:  "\t\tif false && !ended {\n\t\t\tw.leave()\n",
			pkg:  "prims", run: "TestRepairThatDoesNotReturnLeavesNothing", tags: withPoints,
		},
		{
			name: "if Repair panics in a Lock of a SpinLock, the Lock's function stays registered with the context",
			file: "prims/spinlock_core.go",
			old:  "\tdefer w.cancel.Stop() // also if a Repair panics or ends the goroutine\n\treturn w.acquire(ctx, mayRepair)\n",
			new:  "\terr := w.acquire(ctx, mayRepair)\n\tw.cancel.Stop()\n\treturn err\n",
			pkg:  "prims", run: "TestRepairThatDoesNotReturnLeavesNothing",
		},
		{
			name: "a lease of a Queue item cannot be ended after the Queue handle is closed",
			file: "prims/queue_lease.go",
			old:  "\t\tx = x.reopened()\n",
			new:  "\t\tpanic(x.opening.refusal)\n",
			pkg:  "prims", run: "TestLeaseOutlivesItsHandle",
		},
		{
			name: "TryWait of a Waitable does not look for dead processes that have claims",
			file: "prims/waitable.go",
			old:  "\tif !made && err == nil && x.tried.due() {\n",
			new:  "\tif false {\n",
			pkg:  "prims", run: "TestTryFindsTheDeathOfAHolder/waitable", tags: withPoints, env: []string{"SHMSYNC_TEST_TIMEOUT_SCALE=0.2"},
		},
	}...)
}
