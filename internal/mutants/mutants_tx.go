package main

// txMutants are known mistakes in the rollback of a transaction.
var txMutants = []mutant{
	{
		name: "a rollback of a Mutex begins before the dead holder is gone",
		file: "prims/mutex_tx.go",
		old: "\tif !o.held() || !a.Gone(dead) {\n\t\treturn false\n\t}\n\tif o.kind() != kindRecovering {\n\t\tl.disown(&w.owner, o)\n\t}\n" +
			"\trecovering := makeOwner(kindRecovering, a.Self())\n\tif !arenakernel.TakeFromGone(",
		new: "\tif !o.held() || !a.Dead(dead) {\n\t\treturn false\n\t}\n\tif o.kind() != kindRecovering {\n\t\tl.disown(&w.owner, o)\n\t}\n" +
			"\trecovering := makeOwner(kindRecovering, a.Self())\n\tif !arenakernel.TakeFromDead(",
		pkg: "internal/cinterop", run: "TestTxIsUndoneAfterTheLastStore/go",
	},
	{
		name: "a rollback of a Mutex undoes a log that does not belong to the dead holder",
		file: "prims/mutex_tx.go",
		old:  "\t\tl.disown(&w.owner, o)\n",
		new:  "",
		pkg:  "prims", run: "TestLogOfAnotherHolderIsNotUndone",
	},
	{
		name: "a late reaper of a Mutex changes the undo log without reading the owner word again",
		file: "internal/arenakernel/act.go",
		old:  "\tif w.Load() != old || acts && (c.current(n) || !c.gone(n)) {\n\t\treturn\n\t}\n\tf()\n",
		new:  "\tif acts && (c.current(n) || !c.gone(n)) {\n\t\treturn\n\t}\n\tf()\n",
		pkg:  "prims", run: "TestStaleReaperLeavesALivingTransaction",
	},
	{
		name: "an Update whose function has unlocked the Mutex leaves its undo log valid",
		file: "prims/mutex_tx.go",
		old:  "\t\tif tx.tail != 0 {\n",
		new:  "\t\tif false {\n",
		pkg:  "prims", run: "TestUpdateThatHasUnlockedLosesItsLog",
	},
	{
		name: "a Mutex that is not recoverable keeps a valid undo log",
		file: "prims/tx_log.go",
		old:  "\t\tl.storeState(logStateLost)\n",
		new:  "",
		pkg:  "prims", run: "TestRecoverThatDiesIsNotRolledBack",
	},
	{
		name: "a process looks for an undo log in objects that are no Mutex",
		file: "prims/mutex_tx.go",
		old:  "o.Kind != mutexKind || policyOf(w.policy) != PolicyRollback",
		new:  "policyOf(w.policy) != PolicyRollback",
		pkg:  "prims", run: "TestHoldsOfALogThatIsNotThereAreTakenBack",
	},
	{
		name: "a rollback marks the old bytes as restored before it has restored them",
		file: "prims/tx_log.go",
		old:  "\tif err := l.undoBytes(tail); err != nil {\n\t\treturn err\n\t}\n\thas, err := l.hasBlocks(tail)\n\tif err != nil {\n\t\treturn err\n\t}\n\tif has {\n\t\tl.storeState(makeLogState(logUndone, n, tail))\n",
		new:  "\thas, err := l.hasBlocks(tail)\n\tif err != nil {\n\t\treturn err\n\t}\n\tif has {\n\t\tl.storeState(makeLogState(logUndone, n, tail))\n\t}\n\tif err := l.undoBytes(tail); err != nil {\n\t\treturn err\n\t}\n\tif has {\n",
		pkg:  "internal/stepkill", run: "TestStepImages/mutex_rollback", env: txRollbackImages,
	},
	{
		name: "a rollback frees a block that the process of an earlier rollback already frees",
		file: "prims/tx_log.go",
		old:  "\t\t\tif commit {\n\t\t\t\tl.setKind(end, logAlloc)\n\t\t\t} else {\n\t\t\t\tl.setKind(end, logFree)\n\t\t\t}\n\t\t\treturn\n",
		new:  "\t\t\treturn\n",
		pkg:  "prims", run: "TestRollbackLeavesABlockThatAnEarlierOneGave",
	},
}

var txRollbackImages = []string{"SHMSYNC_TEST_STEPKILLS=50", "SHMSYNC_TEST_SCENE=mutex rollback/rolls back"}
