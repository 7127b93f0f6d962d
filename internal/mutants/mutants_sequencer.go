package main

// sequencerMutants are mistakes in the Sequencer.
var sequencerMutants = []mutant{
	{
		name: "an Increment of a Sequencer that reaches a token wakes no waiter",
		file: "prims/sequencer.go",
		old:  "\t\ts.counted(v)\n",
		new:  "",
		pkg:  "prims", run: "TestSequencerCatalogue/differentTokens", tags: withPoints, env: noLooks,
	},
	{
		name: "an increase of a Sequencer by several steps wakes the waiters of only one cell",
		file: "prims/sequencer.go",
		old:  "min(jump, sequencerCells)",
		new:  "min(jump, 1)",
		pkg:  "prims", run: "TestSequencerCatalogue/advancePastMultipleTokens", tags: withPoints, env: noLooks,
	},
	{
		name: "a waiter of a Sequencer announces a token too far ahead for the bits of the cell word",
		file: "prims/sequencer_word.go",
		old:  "\tif ahead > tokenFar {\n",
		new:  "\tif ahead > tokenFar && false {\n",
		pkg:  "prims", run: "TestSequencerNoSyscalls",
	},
	{
		name: "a process that ends some waits of a Sequencer does not announce its remaining waits",
		file: "prims/sequencer_heap.go",
		old:  "\t\tarmed := c.arm(&first, waits)\n",
		new:  "\t\tarmed := len(over) > 0 || c.arm(&first, waits)\n\t\tc.again = c.again && len(over) == 0\n",
		pkg:  "prims", run: "TestSequencerOrder",
	},
	{
		name: "a waiter of a Sequencer reads the counter before it reads whether waits were canceled",
		file: "prims/sequencer_wait.go",
		old:  "\tcrashpoint.Hit(\"sequencer.wait.judged\")\n\t// sync(sequencer.count): acquire\n\tswitch v := s.words.value.Load(); {\n",
		new:  "\tv := s.words.value.Load()\n\tcrashpoint.Hit(\"sequencer.wait.judged\")\n\tt = sequencerTurns(s.words.turns.Load())\n\tswitch {\n",
		pkg:  "prims", run: "TestSequencerTokenReachedBeforeTheEndOfWaits", tags: withPoints,
	},
	{
		name: "a periodic check of a Sequencer does not notice that all waits were canceled",
		file: "prims/sequencer_wait.go",
		old:  "(w.token <= v || w.turns != turns)",
		new:  "(w.token <= v || w.turns > turns)",
		pkg:  "prims", run: "TestSequencerCheckBeforeTheSleep", tags: withPoints,
	},
	{
		name: "a large increase of a Sequencer wakes the same cell again and again",
		file: "prims/sequencer_cell.go",
		old:  "jump > tokenFar) || c.hit(s) {\n",
		new:  "jump > tokenFar) || c.hit(s) && jump <= tokenFar {\n",
		pkg:  "prims", run: "TestSequencerCountChangesTheWordOnce",
	},
	{
		name: "a waiter for a far token of a Sequencer misses that the counter has passed a nearer token",
		file: "prims/sequencer_cell.go",
		old:  "case now-v >= uint64(to.ahead(v)):",
		new:  "case now < v:",
		pkg:  "prims", run: "TestSequencerPassedBeforeTheAnnouncement", tags: withPoints,
	},
	{
		name: "Close of a Sequencer does not wait for the goroutine that ends waits of the process",
		file: "prims/sequencer_heap.go",
		old:  "\tc.queue.EnterEnding()\n\tc.serving = true\n\tdefer func() {\n\t\tc.serving = false\n\t\tc.queue.Exit()\n\t}()\n",
		new:  "\tc.serving = true\n\tdefer func() {\n\t\tc.serving = false\n\t}()\n",
		pkg:  "prims", run: "TestSequencerServesBeforeClose", tags: withPoints,
	},
	{
		name: "a wait in the token heap of a Sequencer goes on after CancelWaiters",
		file: "prims/sequencer_heap.go",
		old:  "\t\tif w.turns == turns && !turns.stopped() {\n",
		new:  "\t\tif w.turns == turns || !turns.stopped() {\n",
		pkg:  "prims", run: "TestSequencerCatalogue/cancelWaiters",
	},
	{
		name: "Close of a Sequencer does not wait for a CancelWaiters that is between two cells",
		file: "prims/sequencer.go",
		old:  "func (s *Sequencer) CancelWaiters() {\n\ts.opening.use()\n\tdefer s.serve().end()\n",
		new:  "func (s *Sequencer) CancelWaiters() {\n\ts.opening.use()\n\ts.serve().end()\n",
		pkg:  "prims", run: "TestSequencerCloseByTheFirstOfManyWaiters", tags: withPoints,
	},
	{
		name: "the end of a Sequencer handle does not make the wakes that an unfinished Increment owes",
		file: "prims/sequencer_cell.go",
		old:  "for w := e.load(); tokenCellState(w).due(v); w = e.load() {",
		new:  "for w := e.load(); tokenCellState(w).due(v) && !s.shut; w = e.load() {",
		pkg:  "prims", run: "TestSequencerCloseBeforeTheCountIsLookedAt", tags: withPoints,
	},
}
