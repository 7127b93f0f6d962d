package main

// sequencerMutants are mistakes in the Sequencer.
var sequencerMutants = []mutant{
	{
		name: "a count that reaches a token wakes nobody",
		file: "prims/sequencer.go",
		old:  "\t\ts.wake(v, v, 1)\n",
		new:  "",
		pkg:  "prims", run: "TestSequencerCatalogue/differentTokens", tags: withPoints, env: noLooks,
	},
	{
		name: "a jump of the counter looks at one cell",
		file: "prims/sequencer.go",
		old:  "min(jump, sequencerCells)",
		new:  "min(jump, 1)",
		pkg:  "prims", run: "TestSequencerCatalogue/advancePastMultipleTokens", tags: withPoints, env: noLooks,
	},
	{
		name: "a token of a Sequencer that is too far is announced as it is",
		file: "prims/sequencer_word.go",
		old:  "\tif ahead > tokenFar {\n",
		new:  "\tif ahead > tokenFar && false {\n",
		pkg:  "prims", run: "TestSequencerNoSyscalls",
	},
	{
		name: "the process forgets to announce the waits in the token heap that go on",
		file: "prims/sequencer_heap.go",
		old:  "\t\tarmed := c.arm(&first, waits)\n",
		new:  "\t\tarmed := len(over) > 0 || c.arm(&first, waits)\n\t\tc.again = c.again && len(over) == 0\n",
		pkg:  "prims", run: "TestSequencerOrder",
	},
	{
		name: "a check does not ask whether all waits of a Sequencer were ended",
		file: "prims/sequencer_cell.go",
		old:  "|| c.lookedTurns.Swap(t) != t {",
		new:  "|| c.lookedTurns.Swap(t) != t && false {",
		pkg:  "prims", run: "TestSequencerEndOfWaitsIsLeft/cancel", tags: withPoints,
	},
	{
		name: "a check that finds the end of all waits does not change the word",
		file: "prims/sequencer_cell.go",
		old:  "\t\tc.makeLook()\n\t}\n\tc.eventcount.check()\n",
		new:  "\t\tc.wakeAll()\n\t}\n\tc.eventcount.check()\n",
		pkg:  "prims", run: "TestSequencerCheckBeforeTheSleep", tags: withPoints,
	},
	{
		name: "a wait in the token heap outlives the end of all waits",
		file: "prims/sequencer_heap.go",
		old:  "\t\tif w.turns == turns && !turns.stopped() {\n",
		new:  "\t\tif w.turns == turns || !turns.stopped() {\n",
		pkg:  "prims", run: "TestSequencerCatalogue/cancelWaiters",
	},
}
