package main

// txMutants are known mistakes in the rollback of a transaction.
var txMutants = []mutant{
	{
		name: "a rollback begins when the process is dead, not gone",
		file: "prims/mutex_tx.go",
		old: "\tif !o.held() || !a.Gone(dead) {\n\t\treturn false\n\t}\n\tif o.kind() != kindRecovering {\n\t\tl.disown(&w.owner, o)\n\t}\n" +
			"\trecovering := makeOwner(kindRecovering, a.Self())\n\tif !arenakernel.TakeFromGone(",
		new: "\tif !o.held() || !a.Dead(dead) {\n\t\treturn false\n\t}\n\tif o.kind() != kindRecovering {\n\t\tl.disown(&w.owner, o)\n\t}\n" +
			"\trecovering := makeOwner(kindRecovering, a.Self())\n\tif !arenakernel.TakeFromDead(",
		pkg: "internal/cinterop", run: "TestTxIsUndoneAfterTheLastStore/go",
	},
	{
		name: "the log of another process than the dead holder is undone",
		file: "prims/mutex_tx.go",
		old:  "\t\tl.disown(&w.owner, o)\n",
		new:  "",
		pkg:  "prims", run: "TestLogOfAnotherHolderIsNotUndone",
	},
	{
		name: "a stale reaper does not look at the owner word again",
		file: "internal/arenakernel/act.go",
		old:  "\tif w.Load() != old || acts && (c.current(n) || !c.gone(n)) {\n\t\treturn\n\t}\n\tf()\n",
		new:  "\tif acts && (c.current(n) || !c.gone(n)) {\n\t\treturn\n\t}\n\tf()\n",
		pkg:  "prims", run: "TestStaleReaperLeavesALivingTransaction",
	},
	{
		name: "an Update that its function has unlocked keeps its log",
		file: "prims/mutex_tx.go",
		old:  "\t\tif tx.tail != 0 {\n",
		new:  "\t\tif false {\n",
		pkg:  "prims", run: "TestUpdateThatHasUnlockedLosesItsLog",
	},
	{
		name: "a lock that is not recoverable keeps a valid log",
		file: "prims/tx_log.go",
		old:  "\t\tl.storeState(logStateLost)\n",
		new:  "",
		pkg:  "prims", run: "TestRecoverThatDiesIsNotRolledBack",
	},
	{
		name: "a log is sought in every object whose policy says so",
		file: "prims/mutex_tx.go",
		old:  "o.Kind != mutexKind || policyOf(w.policy) != PolicyRollback",
		new:  "policyOf(w.policy) != PolicyRollback",
		pkg:  "prims", run: "TestHoldsOfALogThatIsNotThereAreTakenBack",
	},
	{
		name: "a rollback says that the bytes are back before they are",
		file: "prims/tx_log.go",
		old:  "\tif err := l.undoBytes(tail); err != nil {\n\t\treturn err\n\t}\n\thas, err := l.hasBlocks(tail)\n\tif err != nil {\n\t\treturn err\n\t}\n\tif has {\n\t\tl.storeState(makeLogState(logUndone, n, tail))\n",
		new:  "\thas, err := l.hasBlocks(tail)\n\tif err != nil {\n\t\treturn err\n\t}\n\tif has {\n\t\tl.storeState(makeLogState(logUndone, n, tail))\n\t}\n\tif err := l.undoBytes(tail); err != nil {\n\t\treturn err\n\t}\n\tif has {\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_rollback", env: txRollbackImages,
	},
	{
		name: "a rollback takes a block for its own that an earlier one gave",
		file: "prims/tx_log.go",
		old:  "\t\t\tif commit {\n\t\t\t\tl.setKind(end, logAlloc)\n\t\t\t} else {\n\t\t\t\tl.setKind(end, logFree)\n\t\t\t}\n\t\t\treturn\n",
		new:  "\t\t\treturn\n",
		pkg:  "prims", run: "TestRollbackLeavesABlockThatAnEarlierOneGave",
	},
}

var txRollbackImages = []string{"SHMSYNC_TEST_STEPKILLS=50", "SHMSYNC_TEST_SCENE=mutex rollback/rolls back"}
