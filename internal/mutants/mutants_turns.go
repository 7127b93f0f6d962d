package main

func init() {
	// These are mistakes in how waits inside one process take turns.
	mutants = append(mutants, []mutant{
		{
			name: "a process appends a wait to a FairMutex's line after it has released the private lock",
			file: "prims/fairmutex_rules.go",
			old:  "\t\t\tturns.Append(s)\n",
			new:  "\t\t\tdefer f.private.Lock()\n\t\t\tf.private.Unlock()\n\t\t\tfor range 20_000 {\n\t\t\t}\n\t\t\tturns.Append(s)\n",
			pkg:  "prims", run: "TestFairMutexTurnsKeepTheOrderOfArrival", tags: withPoints, env: noLooks, count: 3,
		},
		{
			name: "a canceled wait of a FairMutex does not give the turn to its process's next wait",
			file: "internal/park/turns.go",
			old:  "\t\tnext.giveTurn()\n",
			new:  "\t\t_ = next\n",
			pkg:  "prims", run: "TestFairMutexTurnPassesOn", tags: withPoints, env: noLooks,
		},
		{
			name: "Unlock of a FairMutex gives the turn to no wait of its process",
			file: "internal/park/turns.go",
			old:  "\tl.held.Store(false)\n\tif l.first != nil {\n",
			new:  "\tl.held.Store(false)\n\tif l.first == nil {\n",
			pkg:  "prims", run: "TestFairMutexTurnPassesOn", tags: withPoints, env: noLooks,
		},
	}...)
}
