package main

// These are mistakes in parts of the C library that deal with shortages, with files of other programs, and with peers
// that join, die or break the rules.
func init() {
	const parts, pkg = "include/parts/", "internal/cinterop"
	mutants = append(mutants, []mutant{
		{
			name: "C: a joining participant is shown with the process ID and label of its predecessor",
			file: parts + "34-dead.h",
			old:  "    if (shmi_describe(a, i, p, &flags) != generation) {\n        memset(p, 0, sizeof *p);\n",
			new:  "    if (shmi_describe(a, i, p, &flags) != generation) {\n",
			pkg:  pkg, run: "TestChangesBetweenTheLoadsOfACallInC/rows",
		},
		{
			name: "C: an allocation in a full arena fails although the process has put off freeing blocks",
			file: parts + "31-heap.h",
			old:  "    if (err != ENOSPC || !shmi_flush_deferred(a))\n",
			new:  "    if (err != 0 || *off != 0)\n",
			pkg:  pkg, run: "TestScarceInC/guarded-block",
		},
		{
			name: "C: a reaper of a Once tries without limit while a peer changes the word",
			file: parts + "74-once.h",
			old:  "    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {\n        uint64_t w = shmi_once_load(o);\n",
			new:  "    for (tries = 0; tries < INT32_MAX; tries++) {\n        uint64_t w = shmi_once_load(o);\n",
			pkg:  pkg, run: "TestChangesBetweenTheLoadsOfACallInC/given_up",
		},
		{
			name: "C: a probe that fails for lack of resources counts as a missing kernel feature",
			file: parts + "22-sys.h",
			old:  "    if (err != 0 && shmi_support_errno(err) != ENOTSUP)\n        return; /* it stays unknown */\n",
			new:  "",
			pkg:  pkg, run: "TestScarceInC/probe",
		},
		{
			name: "C: the last close of an arena fails if another file is at its path",
			file: parts + "37-arena.h",
			old:  "        if (judged >= 0 && !shmi_same_entry(judged, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW))",
			new:  "        if (judged == INT32_MAX)",
			pkg:  pkg, run: "TestScarceInC/other-entry",
		},
		{
			name: "C: a process without free descriptors counts its threads in another namespace's /proc",
			file: parts + "34-threads.h",
			old:  "shmi_is_shortage(errno) && shmi_proc_is_own() && ",
			new:  "shmi_is_shortage(errno) && ",
			pkg:  pkg, run: "TestProcOfAnotherNamespaceInC",
		},
		{
			name: "C: a trywait of an Event does not look for dead waiters",
			file: parts + "71-event.h",
			old:  "(void)shmi_dead(e->a, (shmi_participant_id)(shmi_ld64(&h->name) & SHMI_NAME_MASK));",
			new:  "(void)h;",
			pkg:  pkg, run: "TestTryInCFindsTheDeathOfAHolder/find_event",
		},
		{
			name: "C: a close of an arena closes a foreign file that has its descriptor's number",
			file: parts + "22-sys.h",
			old:  "    if (fd >= 0 && shmi_is_file(fd, dev, ino))\n        syscall(SYS_close, fd);\n",
			new:  "    if (fd >= 0 && (dev | ino | 1) != 0)\n        syscall(SYS_close, fd);\n",
			pkg:  pkg, run: "TestStrayCloseInCSparesOtherFiles",
		},
		{
			name: "C: any error of a byte lock counts as held by another process",
			file: parts + "22-sys.h",
			old:  "        return EAGAIN;\n    return shmi_support_errno(err);\n",
			new:  "        return EAGAIN;\n    return err != 0 ? EAGAIN : 0;\n",
			pkg:  pkg, run: "TestScarceInC/no-locks",
		},
		{
			name: "C: an open of an arena fails if the kernel supports no byte locks",
			file: parts + "37-arena.h",
			old:  "    if (shmi_support_errno(shmi_byte_op(a->lock_fd, F_OFD_GETLK, F_WRLCK, shmi_slot(a, 1), NULL)) == ENOTSUP) {\n",
			new:  "    if (a->lock_fd == INT32_MAX) {\n",
			pkg:  pkg, run: "TestScarceInC/strange-file-system",
		},
		{
			name: "C: the creator of an arena removes temporary files of other programs",
			file: parts + "37-arena.h",
			old:  " || strspn(name + n - 21, \"0123456789abcdef\") != 16 || ",
			new:  " || ",
			pkg:  pkg, run: "TestScarceInC/sweep",
		},
		{
			name: "C: atexit handlers run on the thread of the death watcher",
			file: parts + "34-threads.h",
			old:  "        if (shmi_start_thread(&t, \"shmsync-exit\", shmi_end_process, NULL) == 0) {",
			new:  "        if (0 && shmi_start_thread(&t, \"shmsync-exit\", shmi_end_process, NULL) == 0) {",
			pkg:  pkg, run: "TestContract/last-thread-closes",
		},
	}...)
}
