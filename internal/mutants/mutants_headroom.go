package main

// These are mistakes in the headroom, the part of the heap that users cannot fill.
func init() {
	const kernel, pkg = "internal/arenakernel/", "internal/arenakernel"
	mutants = append(mutants, []mutant{
		{
			name: "Alloc of a small block uses a chunk of the headroom",
			file: kernel + "heap.go",
			old:  "\t\tif !c.geo.serves(in, i) {\n\t\t\tcontinue\n\t\t}\n\t\tw := c.loadChunk(i)\n",
			new:  "\t\tif in != roomOfAll && !c.geo.serves(in, i) {\n\t\t\tcontinue\n\t\t}\n\t\tw := c.loadChunk(i)\n",
			pkg:  "prims", run: "TestFullArenaLosesNothing",
		},
		{
			name: "Alloc of a large block uses chunks of the headroom",
			file: kernel + "span.go",
			old:  "\t\tif !c.geo.serves(in, i-1) {\n\t\t\trun = 0\n\t\t\tcontinue\n\t\t}\n",
			new:  "",
			pkg:  pkg, run: "TestHeadroomIsForUsersOfObjects",
		},
		{
			name: "the first slot record of a new object uses the headroom",
			file: kernel + "slotrecord.go",
			old:  "init == nil && head.Load() != 0)",
			new:  "init == nil)",
			pkg:  pkg, run: "TestHeadroomIsForUsersOfObjects",
		},
		{
			name: "a wait node lies at an offset that a 32-bit link cannot name",
			file: kernel + "node.go",
			old:  "c.claimBlock(classNode, roomOfLinked)",
			new:  "c.claimBlock(classNode, roomOfAll)",
			pkg:  pkg, run: "TestWaitNodesLieWithinReach",
		},
		{
			name: "a slot record lies at an offset that a 32-bit link cannot name",
			file: kernel + "heap_headroom.go",
			old:  "c.claimOutside(size, 1, roomOfLinked)",
			new:  "c.claimOutside(size, 1, roomOfAll)",
			pkg:  pkg, run: "TestSlotRecordsLieWithinReach",
		},
		{
			name: "large slot records use the headroom that is reserved for small slot records",
			file: kernel + "heap_headroom.go",
			old:  "\treturn c.claimZeroed(class, roomOfLarge)\n",
			new:  "\tif class > classHeadroom {\n\t\treturn c.claimZeroed(class, roomOfRecords)\n\t}\n\treturn c.claimZeroed(class, roomOfLarge)\n",
			pkg:  "prims", run: "TestLargeSlotRecordsPreventNoRecovery",
		},
		{
			name: "goroutines that allocate at the same time each take a new chunk of the heap",
			file: kernel + "heap.go",
			old:  "\tc.heap.search[class].turn.Lock()\n\tdefer c.heap.search[class].turn.Unlock()\n",
			new:  "",
			pkg:  pkg, run: "TestCrowdSharesAFreshChunk",
		},
		{
			name: "a new process does not search the slabs of other processes for free blocks",
			file: kernel + "heap_search.go",
			old:  "\tcase s.passed < count:\n",
			new:  "\tcase s.passed > count:\n",
			pkg:  pkg, run: "TestShortLivedProcessesShareASlab",
		},
		{
			name: "C: an allocation of a small block uses a chunk of the headroom",
			file: "include/parts/31-heap.h",
			old:  "        if (!shmi_serves(a, in, i))\n            continue;\n        switch (shmi_chunk_kind(w)) {\n",
			new:  "        if (in != SHMI_roomOfAll && !shmi_serves(a, in, i))\n            continue;\n        switch (shmi_chunk_kind(w)) {\n",
			pkg:  "internal/cinterop", run: "TestRecoverAllInCUsesTheHeadroom",
		},
		{
			name: "C: large slot records use the headroom that is reserved for small slot records",
			file: "include/parts/33-object.h",
			old:  "            err = shmi_claim_zeroed(a, cls, SHMI_roomOfLarge, off);\n",
			new:  "            err = shmi_claim_zeroed(a, cls, small ? SHMI_roomOfLarge : SHMI_roomOfRecords, off);\n",
			pkg:  "internal/cinterop", run: "TestRecoverAllInCUsesTheHeadroom",
		},
	}...)
}
