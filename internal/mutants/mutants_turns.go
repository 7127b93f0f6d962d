package main

func init() {
	// These are mistakes in how waits inside one process take turns.
	mutants = append(mutants, []mutant{
		{
			name: "a wait is appended to its line too late", // after the private lock was released
			file: "prims/fairmutex_rules.go",
			old:  "\t\t\tturns.Append(s)\n",
			new:  "\t\t\tdefer f.private.Lock()\n\t\t\tf.private.Unlock()\n\t\t\tfor range 20_000 {\n\t\t\t}\n\t\t\tturns.Append(s)\n",
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
