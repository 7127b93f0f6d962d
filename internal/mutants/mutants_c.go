package main

// rarely is the setting in which no periodic check of a C program makes up for a lost wake.
const rarely = "SHMSYNC_CINTEROP_CFLAGS=-DSHMI_CHECK_EVERY=INT64_C(3600000000000)"

// These are mistakes in the C library.
func init() {
	const parts, pkg = "include/parts/", "internal/cinterop"
	mutants = append(mutants, []mutant{
		{
			name: "C: an unlock of a biased mutex wakes nobody",
			file: parts + "50-mutex.h",
			old:  "        if (SHMI_UNLIKELY((__atomic_load_n(m->wake, __ATOMIC_SEQ_CST) & 1) != 0))\n",
			new:  "        if (0)\n",
			pkg:  pkg, run: "TestMutexPlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: an unlock wakes nobody",
			file: parts + "51-mutex-impl.h",
			old:  "    if (shmi_wake_word_announced(&m->line))\n        shmi_mutex_wake_after(m);\n    return 0;\n",
			new:  "    return 0;\n",
			pkg:  pkg, run: "TestMutexPlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: a waiter that got the lock does not announce the others",
			file: parts + "51-mutex-impl.h",
			old:  "    if (w->slept)\n        shmi_mutex_meet(w->m, shmi_ld32(w->m->own), shmi_wake_word_announce(&w->m->line)); /* for the other waiters */\n",
			new:  "",
			pkg:  pkg, run: "TestMutexCrowd", env: []string{rarely},
		},
		{
			name: "C: a post wakes nobody",
			file: parts + "52-futex.h",
			old:  "        if (stop || (s & SHMI_FUTEX_ANNOUNCED) != 0) {\n",
			new:  "        if (stop) {\n",
			pkg:  pkg, run: "TestFutexPlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: a waiter that was woken too early does not announce itself again",
			file: parts + "52-futex.h",
			old:  "        if ((s & SHMI_FUTEX_ANNOUNCED) == 0) {\n",
			new:  "        if ((s & SHMI_FUTEX_ANNOUNCED) == 0 && since == 0) {\n",
			pkg:  pkg, run: "TestFutexWaitsForALaterValue", env: []string{rarely}, count: 3,
		},
		{
			name: "C: the last reader wakes no writer",
			file: parts + "80-rwmutex.h",
			old:  "        shmi_note_cpu(&t);\n        shmi_wake_word_release(m->a, &m->writer_wake_word);\n",
			new:  "        shmi_note_cpu(&t);\n",
			pkg:  pkg, run: "TestRWMutexPlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: a turn of an Event wakes nobody",
			file: parts + "71-event.h",
			old:  "            SHMSYNC_CRASHPOINT(\"event.turn.before_wake\");\n            shmi_eventcount_wake_all(&e->count);\n",
			new:  "            SHMSYNC_CRASHPOINT(\"event.turn.before_wake\");\n",
			pkg:  pkg, run: "TestEventPlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: a put wakes nobody",
			file: parts + "72-queue.h",
			old:  "        shmi_queue_tell(x, c->side == &x->room ? &x->items : &x->room, n);\n",
			new:  "        shmi_queue_tell(x, c->side == &x->room ? &x->items : &x->room, c->side == &x->room ? 0 : n);\n",
			pkg:  pkg, run: "TestQueuePlain/^c.c$", env: []string{rarely},
		},
		{
			name: "C: a record is carried out although it is not the last any more",
			file: parts + "63-recordqueue.h",
			old:  "        if (shmi_ld64(q->commit) != c)\n            break;\n",
			new:  "",
			pkg:  pkg, run: "TestRecordIsCarriedOutWhileItIsTheLast",
		},
		{
			name: "C: a TryLock does not carry the last change out",
			file: parts + "63-recordqueue.h",
			old:  "    return shmi_rq_complete(q, x->c, b);\n",
			new:  "    (void)b;\n    return 0;\n",
			pkg:  pkg, run: "TestFairMutexTryLockCompletesUnlock$",
		},
		{
			name: "C: the boundary stays at a wait that has left",
			file: parts + "63-recordqueue.h",
			old:  "    if (q->boundary != NULL && shmi_rq_get(x, q->boundary) == me)\n",
			new:  "    if (0)\n",
			pkg:  pkg, run: "TestCondSignalsPassOnInTheirOrder",
		},
		{
			name: "C: a thread that waits does not examine its queue",
			file: parts + "64-recordobject.h",
			old:  "            torn = shmi_rq_is_torn(q, s);\n",
			new:  "",
			pkg:  pkg, run: "TestWaitsInATornQueueEnd/cond/c",
		},
		{
			name: "C: a wait does not look behind waits that were given up",
			file: parts + "64-recordobject.h",
			old:  "        if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeLeft)\n            return 0;\n",
			new:  "        return 0;\n",
			pkg:  pkg, run: "TestWaitsInATornQueueEnd/cond/c",
		},
		{
			name: "C: a grant to a dead process counts as a hold",
			file: parts + "74-recordlock.h",
			old:  "        if (!shmi_fair_granted(s) || shmi_state_accepted(l->accepted, w)) {\n",
			new:  "        {\n",
			pkg:  pkg, run: "TestFairMutexKilledGranted",
		},
		{
			name: "C: a torn queue keeps the lock",
			file: parts + "76-fairmutex.h",
			old:  "        x.torn = 0; /* an error in the queue is that of the waits */\n        err = shmi_rq_end(q, &x, b, &ok);\n        if (err != 0)\n            return err;\n        if (!ok)\n            continue;\n        shmi_rq_reconsider(q, granted);\n        SHMSYNC_CRASHPOINT(\"fairmutex.unlock.committed\");\n",
			new:  "        err = shmi_rq_end(q, &x, b, &ok);\n        if (err != 0)\n            return err;\n        if (!ok)\n            continue;\n        shmi_rq_reconsider(q, granted);\n        SHMSYNC_CRASHPOINT(\"fairmutex.unlock.committed\");\n",
			pkg:  pkg, run: "TestTornQueueKeepsNoLock/unlock.*/fair/c",
		},
		{
			name: "C: a torn wait of the dead keeps the permits of others",
			file: parts + "79-semaphore.h",
			old:  "    for (shmi_rq_walk_slots(q, &i); (r = shmi_sem_next(s, &i)) != NULL;) {\n        err = shmi_sem_reap_share",
			new:  "    for (shmi_rq_walk_slots(q, &i); first == 0 && (r = shmi_sem_next(s, &i)) != NULL;) {\n        err = shmi_sem_reap_share",
			pkg:  pkg, run: "TestTornWaitOfTheDeadKeepsNothingElse/^sem$/c",
		},
		{
			name: "C: a torn wait of the dead keeps the Signals of others",
			file: parts + "78-cond.h",
			old:  "    err = shmi_cond_settle_dead(shmi_cond_of(q), x, b);\n",
			new:  "    err = first != 0 ? first : shmi_cond_settle_dead(shmi_cond_of(q), x, b);\n",
			pkg:  pkg, run: "TestTornWaitOfTheDeadKeepsNothingElse/cond/c",
		},
		{
			name: "C: a Signal passes on to a wait that came later",
			file: parts + "78-cond.h",
			old:  "shmi_cond_uncovered(q, x, &to) && shmi_ld64(&to.n->wanted) <= shmi_cond_bound(x, extra);\n",
			new:  "shmi_cond_uncovered(q, x, &to);\n",
			pkg:  pkg, run: "TestCondSignalPassesToNoLaterWait",
		},
		{
			name: "C: a Lock by CAS keeps the tag of the last hold",
			file: parts + "84-multilock.h",
			old:  "held = SHMI_RECORDED(SHMI_FAIR_OPEN | k->q.a->self, (uint32_t)w + 1);\n",
			new:  "held = SHMI_RECORDED(SHMI_FAIR_OPEN | k->q.a->self, (uint32_t)w);\n",
			pkg:  pkg, run: "TestMultiLockOpen$",
		},
		{
			name: "C: a dead process counts as gone at once",
			file: parts + "34-dead.h",
			old:  "shmi_ended(a, i) || shmi_find_gone(a, i, w) || shmi_slot_state(a, i) != w);\n",
			new:  "shmi_ended(a, i) || shmi_find_gone(a, i, w) || w != 0);\n",
			pkg:  pkg, run: "TestDataIsHandedOverAfterTheLastStore",
		},
		{
			name: "C: the alive words are not on the robust list",
			file: parts + "36-watch.h",
			old:  "        r->next = (uintptr_t)&r->nodes[k];\n",
			new:  "        r->next = (uintptr_t)&r->next;\n",
			pkg:  pkg, run: "TestReapEachOther",
		},
		{
			name: "C: a joiner does not wait for a slot that is about to become free",
			file: parts + "37-arena.h",
			old:  "        if (!vacating || late)\n",
			new:  "        if (i != 0 || vacating)\n",
			pkg:  pkg, run: "TestFullArenaWaitsForADeadJoiner",
		},
	}...)
}
