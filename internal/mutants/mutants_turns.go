package main

func init() {
	// Mistakes in the turns of waits inside a process.
	mutants = append(mutants, []mutant{
		{
			name: "a wait is appended to its line too late", // after the queue lock was left
			file: "prims/fairmutex_queue.go",
			old:  "\tif turns != nil {\n\t\tturns.Append(waitNode)\n\t}\n\tm.leave(b)\n",
			new:  "\tm.leave(b)\n\tshmsync.Yield()\n\tif turns != nil {\n\t\tturns.Append(waitNode)\n\t}\n",
			pkg:  "prims", run: "TestFairMutexTurnsKeepTheOrderOfArrival", tags: withPoints, env: noLooks, count: 3,
		},
		{
			name: "a cancelled wait keeps the turn",
			file: "internal/park/turns.go",
			old:  "\t\tnext.giveTurn()\n",
			new:  "\t\t_ = next\n",
			pkg:  "prims", run: "TestFairMutexTurnPassesOn", tags: withPoints, env: noLooks,
		},
		{
			name: "the end of a hold passes no turn",
			file: "internal/park/turns.go",
			old:  "\tl.held.Store(false)\n\tif l.first != nil {\n",
			new:  "\tl.held.Store(false)\n\tif l.first == nil {\n",
			pkg:  "prims", run: "TestFairMutexTurnPassesOn", tags: withPoints, env: noLooks,
		},
	}...)
}
