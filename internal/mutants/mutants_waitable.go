package main

// waitableMutants are mistakes in the Waitable.
var waitableMutants = []mutant{
	{
		name: "claims die with their owner",
		file: "prims/waitable_reap.go",
		old:  "if h.free() || !x.absent(h.participant()) {\n",
		new:  "if h.free() || x.held() || !x.absent(h.participant()) {\n",
		pkg:  "prims", run: "TestWaitableTakesBackFromTheDead",
	},
	{
		name: "a claim that the dead never knew of is undone",
		file: "prims/waitable_rules.go",
		old:  "x.setGranted(c, index, valueIn(&h.granted)+1)",
		new:  "x.setGranted(c, index, valueIn(&h.granted))",
		pkg:  "prims", run: "TestGrantsToTheStoppedAndKilledPassOn",
	},
	{
		name: "a rule that panics leaves the Waitable usable",
		file: "prims/waitable_lost.go",
		old:  "\t\t\tif !x.marked {\n\t\t\t\tx.markLost(c, b, v)\n\t\t\t}\n\t\t\tx.refuseAll(c, b)\n",
		new:  "",
		pkg:  "prims", run: "TestWaitableRuleThatFailsEndsItsCallerOnly",
	},
	{
		name: "waits that end after a rule has failed run rules",
		file: "prims/waitable_lost.go",
		old:  "\t\t\t}\n\t\t\tx.refuseAll(c, b)\n\t\t\tif v != nil {",
		new:  "\t\t\t}\n\t\t\tx.serve(c, b)\n\t\t\tif v != nil {",
		pkg:  "prims", run: "TestWaitableRecoveredBeforeItsWaitsEnd", tags: withPoints,
	},
	{
		name: "a copy of the state is not checked",
		file: "prims/waitable_state.go",
		old:  "\t\tcase recordedWord(x.words.current.Load()) != w:\n",
		new:  "",
		pkg:  "prims", run: "TestWaitableStateIsWhole",
	},
	{
		name: "a change overwrites the valid image",
		file: "prims/waitable_core.go",
		old:  "\tif c.get(&x.words.current) == first {\n\t\treturn first + 1\n\t}\n\treturn first\n",
		new:  "\treturn first + c.get(&x.words.current)&1\n",
		pkg:  "prims", run: "TestWaitableStateIsWhole",
	},
	{
		name: "reap by a handle that ends meanwhile",
		file: "prims/waitable_reap.go",
		old:  "x != nil && x.opened().stayIfOpen() {\n\t\tdefer x.opened().leave()\n",
		new:  "x != nil {\n",
		pkg:  "prims", run: "TestWaitableClosedWhileReapingKeepsItsWords",
	},
	{
		name: "a rule that ends its goroutine is marked twice",
		file: "prims/waitable_lost.go",
		old:  "\t\t\tx.marked = v == nil",
		new:  "\t\t\t_ = v == nil",
		pkg:  "prims", run: "TestWaitableRecoveredWhileAGoroutineEnds", tags: withPoints,
	},
	{
		name: "a wait with Before joins at the end of the queue",
		file: "prims/waitable_order.go",
		old:  "\tif x.rules.Before == nil {\n",
		new:  "\tif true {\n",
		pkg:  "prims", run: "TestWaitablePriority$",
	},
	{
		name: "a walk along the queue begins at its end",
		file: "prims/waitable_order.go",
		old:  "\t\tat = x.begins(c, e)\n",
		new:  "\t\tat = last\n",
		pkg:  "prims", run: "TestWaitablePriorityCrowd",
	},
	{
		name: "a waiter does not complete the grant of a stopped process",
		file: "prims/waitable_reap.go",
		old:  "\tx.completeBare() // the last change may be",
		new:  "\t// the last change may be",
		pkg:  "prims", run: "TestWaitableGrantOfAStoppedProcess", tags: withPoints,
	},
	{
		name: "calls do not let a slow call go first",
		file: "prims/waitable_yield.go",
		old:  "\tif x.words.yieldUntil.Load() == 0 {\n",
		new:  "\tif true {\n",
		pkg:  "prims", run: "TestWaitableSlowUpdateIsNotStarved",
	},
}
