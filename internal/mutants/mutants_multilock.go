package main

// These are mistakes in the MultiLock. The document docs/design/0059 describes how a MultiLock works.
func init() {
	mutants = append(mutants, []mutant{
		{
			name: "goroutines that find a MultiLock bucket full at the same time each add a block",
			file: "internal/arenakernel/slotrecord.go",
			old:  "\t\tif init != nil {\n\t\t\tc.unclaim(off)\n\t\t\treturn 0, nil\n\t\t}\n",
			new:  "\t\tfirst = head.Load()\n",
			pkg:  "prims", run: "TestMultiLockOneBlock", tags: withPoints,
		},
		{
			name: "a reaper does not release the keys of a MultiLock that a dead process held",
			file: "prims/multilock_reap.go",
			old:  "\t\tif k.absent(k.at(i).state().holder()) {\n\t\t\tk.focus(i)\n",
			new:  "\t\tif false {\n\t\t\tk.focus(i)\n",
			pkg:  "prims", run: "TestMultiLockOwnerDeathRelease",
		},
		{
			name: "a MultiLock key counts as held after a grant to a process that died before accepting it",
			file: "prims/record_lock_reap.go",
			old:  "\tif o.granted() {\n\t\treturn ownerFree, false, true\n\t}\n",
			new:  "\tif o.granted() && l.several {\n\t\to = makeOwner(kindHeld, o.participant())\n\t} else if o.granted() {\n\t\treturn ownerFree, false, true\n\t}\n",
			pkg:  "prims", run: "TestGrantThatNobodyAcceptedPassesOn/multilock$",
		},
		{
			name: "a call that locks a MultiLock key without a record does not change the key's tag",
			file: "prims/multilock_entry.go",
			old:  "uint64(v.with(k.of.open))) {\n\t\treturn Hold{}\n\t}\n\tcrashpoint.Hit(\"multilock.lock.taken\")\n\treturn makeHold(k, e, key, i, v.tag()+1)\n",
			new:  "uint64(makeRecorded(k.of.open, v.tag()))) {\n\t\treturn Hold{}\n\t}\n\tcrashpoint.Hit(\"multilock.lock.taken\")\n\treturn makeHold(k, e, key, i, v.tag())\n",
			pkg:  "prims", run: "TestMultiLockOpenHold",
		},
		{
			name: "a record opens the word of a MultiLock key that is still held",
			file: "prims/multilock_rules.go",
			old:  "k.empty(x) && keyState(x.get(&k.entry.hold)).free() {\n\t\tx.set(multiHold, k.recordQueue.at, &k.entry.hold, keyFree.opened())\n",
			new:  "k.empty(x) {\n\t\tx.set(multiHold, k.recordQueue.at, &k.entry.hold, keyState(x.get(&k.entry.hold)).opened())\n",
			pkg:  "prims", run: "TestMultiLockWaiterGivesUp",
		},
		{
			name: "a process puts a new block of a MultiLock before the older blocks",
			file: "prims/multilock_entry.go",
			old:  "all := slices.Concat(k.added(), blocks)\n",
			new:  "all := slices.Concat(blocks, k.added())\n",
			pkg:  "prims", run: "TestMultiLockEvicts|TestMultiLockMemory",
		},
		{
			name: "a reap of a MultiLock key follows a wait that has moved to another key's queue",
			file: "prims/record_wait.go",
			old:  " && (!q.several || n.Wanted().Load() == q.chosen)\n",
			new:  "\n",
			pkg:  "prims", run: "TestMultiLockReapStaysOnItsQueue", tags: withPoints,
		},
		{
			name: "a record of a MultiLock does not name the bucket that it changes",
			file: "prims/record_queue.go",
			old:  "return c.version()&(1<<recordPartShift-1) | q.part\n",
			new:  "return c.version() & (1<<recordPartShift - 1)\n",
			pkg:  "prims", run: "TestMultiLockRecordOfAnotherBucket",
		},
		{
			name: "a participant overwrites the unfinished MultiLock record of its predecessor in the slot",
			file: "prims/multilock.go",
			old:  "\t\tx.bucketAt(int(i)).completeBare()\n",
			new:  "",
			pkg:  "prims", run: "TestMultiLockInheritedRecord",
		},
		{
			name: "Close of a MultiLock does not wait for an Unlock of several keys",
			file: "prims/multilock_all.go",
			old:  "defer k.queue.Exit()\n\t\t}\n\t}\n\tfor i := len(h) - 1;",
			new:  "k.queue.Exit()\n\t\t}\n\t}\n\tfor i := len(h) - 1;",
			pkg:  "prims", run: "TestCloseDuringTheCall/holds.unlock", tags: withPoints,
		},
	}...)
}
