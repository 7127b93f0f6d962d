/* ---- Deaths in two stages, dead and gone: docs/design/0018-two-stages-of-a-death.md ----
 *
 * Words are repaired when no thread of the dead process executes instructions any more. The data that these words
 * protect passes on to others later, when the kernel, too, can write nothing for the process any more. */

#define SHMI_ASK_FIRST INT64_C(50000)
#define SHMI_ASK_MOST INT64_C(50000000)
#define SHMI_ASK_WAITER INT64_C(1000000)
#define SHMI_LOOK_FIRST INT64_C(30000)
#define SHMI_LOOK_MOST INT64_C(5000000)

/* Whether a process holds the byte lock of slot i; -1 if the kernel does not answer. A process that has no lock_fd asks
 * through the descriptor of the arena. */
SHMI_FN int shmi_ask_for_byte(shmsync_arena *a, uint32_t i)
{
    int fds[2], k;
    /* If other code of this program has closed a descriptor by mistake, its number may belong to another file now. An
     * answer 0 may then be about that file, so it counts only after shmi_is_file. */
    fds[0] = a->lock_fd;
    fds[1] = a->fd;
    for (k = 0; k < 2; k++) {
        int locked = fds[k] < 0 ? -1 : shmi_byte_locked(fds[k], shmi_slot(a, i));
        if (locked > 0 || (locked == 0 && shmi_is_file(fds[k], a->dev, a->ino)))
            return locked;
    }
    return -1;
}
/* Whether the participant in slot i, in state w, had the byte lock of the slot, and no process holds it any more. */
SHMI_FN int shmi_byte_free(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return i != a->my_slot && shmi_slot_has_byte(w) && shmi_ask_for_byte(a, i) == 0;
}
/* Whether this process is unable to ask for the byte lock of slot i. */
SHMI_FN int shmi_cannot_ask(shmsync_arena *a, uint32_t i) { return a->lock_fd < 0 && shmi_ask_for_byte(a, i) < 0; }

SHMI_FN int shmi_marked_by_kernel(shmsync_arena *a, uint32_t i, int all)
{
    unsigned k, marked = 0;
    for (k = 0; k < SHMI_aliveWords; k++)
        marked += (shmi_ld32(shmi_alive_word(a, i, k)) & SHMI_OWNER_DIED) != 0;
    return all ? marked == SHMI_aliveWords : marked != 0;
}

/* Whether the participant in slot i, in state w, is a joiner without a byte lock that has its alive words on its
 * robust list, so that the kernel marks its death: see shmi_link_alive. */
SHMI_FN int shmi_linked(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_slot_phase(w) == SHMI_phaseJoining && !shmi_slot_has_byte(w) && (shmi_slot_caps(a, i) & SHMI_capRobust) != 0;
}
/* Whether the participant that is in slot i in state w is dead and not marked dead yet. */
SHMI_FN int shmi_seen_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (i == a->my_slot || !shmi_slot_present(w))
        return 0;
    /* While a participant with a byte lock is joining, the alive words are still those of its predecessor in the slot.
     */
    if ((shmi_slot_phase(w) != SHMI_phaseJoining || shmi_linked(a, i, w)) && shmi_marked_by_kernel(a, i, 0))
        return shmi_slot_state(a, i) == w;
    if (shmi_slot_phase(w) == SHMI_phaseLive && (shmi_slot_caps(a, i) & SHMI_capRobust) != 0)
        return 0;
    return shmi_byte_free(a, i, w) && shmi_slot_state(a, i) == w;
}
/* The value that the low half of slotGone gets when a process finds the participant in slot i, in state w, gone: see
 * foundGone in internal/arenakernel/gone.go. */
SHMI_FN uint32_t shmi_gone_mark(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_slot_gen(w) | (uint32_t)(shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) >> 36) << 18;
}
SHMI_FN int shmi_found_gone(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return (uint32_t)shmi_ld64(shmi_slot64(a, i, SHMI_slotGone)) == shmi_gone_mark(a, i, w);
}
/* Records in slotGone that a participant is gone. mark is the result of shmi_gone_mark for it. Returns 0 if slotGone no
 * longer has the value of the parameter before. */
SHMI_FN int shmi_note_gone(shmsync_arena *a, uint32_t i, uint64_t before, uint32_t mark)
{
    return shmi_cas64(shmi_slot64(a, i, SHMI_slotGone), before, (before & ~(uint64_t)UINT32_MAX) | mark);
}
/* Records that the participant in slot i, in state w, is gone, if no process holds its byte lock. A joiner calls this
 * before it locks the byte itself: afterwards the byte no longer shows other processes that the participant is gone.
 * Returns 0 if the joiner cannot get the lock now. */
SHMI_FN int shmi_note_byte_free(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t before = shmi_ld64(shmi_slot64(a, i, SHMI_slotGone));
    uint32_t mark = shmi_gone_mark(a, i, w);
    if (a->lock_fd < 0)
        return 1;
    SHMSYNC_CRASHPOINT("arena.inherit.looking");
    if (!shmi_byte_free(a, i, w))
        return !shmi_slot_has_byte(w);
    SHMSYNC_CRASHPOINT("arena.inherit.unlocked");
    return shmi_slot_state(a, i) == w && ((uint32_t)before == mark || shmi_note_gone(a, i, before, mark));
}
/* As shmi_seen_dead, for a survey. A survey also asks for the byte locks of participants whose death the kernel would
 * mark: in a copied file, the kernel marks no death. */
SHMI_FN int shmi_survey_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_slot_present(w) && (shmi_seen_dead(a, i, w) || ((shmi_found_gone(a, i, w) || shmi_byte_free(a, i, w)) && shmi_slot_state(a, i) == w));
}

/* Whether the process of the dead participant in slot i has ended. A free byte lock of the slot proves it: the kernel
 * frees the lock after the last thread has left all other kernel code. If this process cannot ask for the byte lock,
 * the proof is that all alive words are marked. */
SHMI_FN int shmi_ended(shmsync_arena *a, uint32_t i)
{
    uint32_t w = shmi_slot_state(a, i);
    if (shmi_byte_free(a, i, w))
        return 1;
    if (shmi_slot_has_byte(w) && !shmi_cannot_ask(a, i))
        return 0;
    /* A joiner without a byte lock died before it was live: the kernel will never mark its alive words. */
    if (!shmi_slot_has_byte(w) && (shmi_slot_caps(a, i) & SHMI_capRobust) == 0 && shmi_slot_phase(w) == SHMI_phaseDead)
        return 1;
    return shmi_marked_by_kernel(a, i, 1);
}

/* Returns the notice for slot i: what this process knows about the end of the dead participant, whose state was w.
 * Returns NULL if the slot has another participant by now. The caller holds a->endings. */
SHMI_FN shmi_notice *shmi_ending(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_notice *n = &a->notices[i];
    uint64_t window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (shmi_slot_gen(shmi_slot_state(a, i)) != shmi_slot_gen(w))
        return NULL;
    if (n->began == 0 || n->ending_of != shmi_slot_gen(w) || n->ending_window != window) {
        n->ending_of = shmi_slot_gen(w);
        n->ending_window = window;
        n->began = shmi_now();
        n->looked = 0;
        n->detached = 0;
    }
    return n;
}

/* The checksum of the identity of a participant. A change of one word always changes the sum. */
SHMI_FN uint64_t shmi_identity_sum(uint32_t generation, uint32_t pid, uint64_t start, uint64_t ns, const unsigned char *boot)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325), w[5]; /* basis and prime are those of FNV-1a */
    int k;
    w[0] = (uint64_t)generation << 32 | pid;
    w[1] = start;
    w[2] = ns;
    memcpy(w + 3, boot, 16);
    for (k = 0; k < 5; k++) {
        h = (h ^ w[k]) * UINT64_C(0x100000001b3);
        h ^= h >> 32;
    }
    return h;
}
/* Whether the process with that pid and start time has ended, and its parent has waited for it. The process is that of
 * the dead participant in slot i, in state w. The kernel may still have its memory, and so hold its byte lock: see
 * waitedFor in internal/arenakernel/gone.go. */
SHMI_FN int shmi_waited_for(shmsync_arena *a, uint32_t i, uint32_t w, uint32_t pid, uint64_t start)
{
    if (shmi_ld64(shmi_slot64(a, i, SHMI_slotIdentitySum)) != shmi_identity_sum(shmi_slot_gen(w), pid, start, a->pid_ns, a->boot) || !shmi_no_process(pid))
        return 0;
    shmi_load_fence(); /* loads of what the threads of the process have stored come after the check above */
    return 1;
}

/* Whether all threads of the process in slot i, in state w, have given up its memory. Returns 0 if the slot does not
 * identify the process. A check costs 10 us or more, so the function also returns 0 if this process has just made one.
 */
SHMI_FN int shmi_threads_ended(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t pid = shmi_ld32(shmi_slot32(a, i, SHMI_slotPID));
    uint64_t start = shmi_ld64(shmi_slot64(a, i, SHMI_slotStart));
    const unsigned char *boot = shmi_bytes(a, shmi_slot(a, i) + SHMI_slotBootID, 16);
    static const unsigned char none[16] = {0};
    int64_t now = shmi_now(), pause;
    shmi_notice *n;
    int look = 0, detached = 0;
    if (pthread_mutex_trylock(&a->endings) != 0)
        return 0; /* another thread of this process is asking, or a signal handler has interrupted the thread that is asking */
    n = shmi_ending(a, i, w);
    if (n != NULL) {
        pause = (now - n->began) / 16;
        pause = pause < SHMI_LOOK_FIRST ? SHMI_LOOK_FIRST : pause;
        detached = n->detached;
        look = a->proc_dev != 0 && !detached && (n->looked == 0 || now - n->looked >= pause);
        if (look)
            n->looked = now;
    }
    pthread_mutex_unlock(&a->endings);
    if (!look)
        return detached;
    /* A pid is valid only in its own namespace, and until the next boot. */
    if (shmi_ld32(shmi_slot32(a, i, SHMI_slotDescribed)) != shmi_slot_gen(w) || pid == 0 || pid > INT32_MAX || start == 0 || a->pid_ns == 0 || shmi_ld64(shmi_slot64(a, i, SHMI_slotPIDNS)) != a->pid_ns ||
        memcmp(boot, a->boot, 16) != 0 || memcmp(boot, none, 16) == 0)
        return 0;
    if ((!shmi_detached(a->proc_dev, pid, start) && !shmi_waited_for(a, i, w, pid, start)) || shmi_slot_state(a, i) != w)
        return 0;
    if (pthread_mutex_trylock(&a->endings) == 0) {
        n = shmi_ending(a, i, w);
        if (n != NULL)
            n->detached = 1;
        pthread_mutex_unlock(&a->endings);
    }
    return 1;
}

/* Whether the participant that is dead in slot i, in state w, is gone. That is so if another process has found it
 * gone. It is also so if the participant had declared no asynchronous system calls, and all threads of its process
 * have given up their memory. */
SHMI_FN int shmi_find_gone(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t before = shmi_ld64(shmi_slot64(a, i, SHMI_slotGone));
    uint32_t mark = shmi_gone_mark(a, i, w);
    if ((uint32_t)before == mark)
        return 1;
    if ((shmi_slot_caps(a, i) & SHMI_capAsyncIO) != 0 || !shmi_threads_ended(a, i, w))
        return 0;
    shmi_note_gone(a, i, before, mark);
    return 1;
}

/* Whether nothing can write into the arena for n any more, not even the kernel in a system call of n. A participant
 * stores to words only while it is current, but may store to data that a lock protects until it is gone. The caller
 * asks about a participant that is not current, or about this process as it leaves. A yes is final. */
SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 1;
    w = shmi_slot_state(a, i);
    if (shmi_slot_gen(w) != shmi_id_gen(n) || !shmi_slot_taken(w))
        return 1; /* the slot is free or has another participant, which happens only after n is gone */
    if (n == a->self)
        return __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST);
    return shmi_slot_phase(w) == SHMI_phaseDead &&
           ((shmi_slot_caps(a, i) & SHMI_capNoKernelIO) != 0 || shmi_ended(a, i) || shmi_find_gone(a, i, w) || shmi_slot_state(a, i) != w);
}
/* Whether each participant that is dead is gone, too. */
SHMI_FN int shmi_all_gone(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (shmi_slot_phase(w) == SHMI_phaseDead && !shmi_gone(a, shmi_id_in(i, w)))
            return 0;
    }
    return 1;
}

/* Makes the watcher check soon whether dead participants are gone, because a call of this process waits for that. */
SHMI_FN void shmi_follow(shmsync_arena *a)
{
    if (shmi_ld32(&a->unfinished) == 0) {
        shmi_st32(&a->unfinished, 1);
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    }
}
/* Makes the watcher check again whether a dead participant is gone. The parameter since is the time when this process
 * found the death, or began the reap. The pause before the check is an eighth of the time that has passed since then,
 * so checks become rare if a process takes long to end. */
SHMI_FN void shmi_ask_after(shmsync_arena *a, int64_t since)
{
    int64_t now = shmi_now(), wait = (now - since) / 8, at;
    wait = wait < SHMI_ASK_FIRST ? SHMI_ASK_FIRST : wait > SHMI_ASK_MOST ? SHMI_ASK_MOST : wait;
    at = __atomic_load_n(&a->ask_at, __ATOMIC_RELAXED);
    if (at == 0 || now + wait < at)
        __atomic_store_n(&a->ask_at, now + wait, __ATOMIC_RELAXED);
    shmi_st32(&a->unfinished, 1);
}

/* How long a waiter sleeps before it checks itself whether a dead holder is gone. *ask is 0 before the first check. */
SHMI_FN int64_t shmi_next_ask(int64_t *ask)
{
    *ask = *ask == 0 ? SHMI_ASK_FIRST : *ask * 3 / 2 < SHMI_ASK_WAITER ? *ask * 3 / 2 : SHMI_ASK_WAITER;
    return *ask;
}
/* The time in ns after which a thread that waits for the dying participant n checks again whether n is dead: see
 * NextLook in internal/arenakernel/gone.go. */
SHMI_FN int64_t shmi_next_look(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n);
    int64_t age = 0;
    if (i >= 1 && i <= a->geo.slots && pthread_mutex_trylock(&a->endings) == 0) {
        if (a->notices[i].began != 0 && a->notices[i].ending_of == shmi_id_gen(n))
            age = (shmi_now() - a->notices[i].began) / 4;
        pthread_mutex_unlock(&a->endings);
    }
    return age < SHMI_ASK_FIRST ? SHMI_ASK_FIRST : age < SHMI_LOOK_MOST ? age : SHMI_LOOK_MOST;
}
/* A word that names a dead participant, whose ID is in the field name. The word names this participant as long as the
 * word is equal to the field is. */
typedef struct shmi_naming {
    const uint32_t *word32; /* the word is at word32 or at word64, and the other pointer is NULL */
    const uint64_t *word64;
    uint64_t is;
    shmi_participant_id name;
} shmi_naming;
SHMI_FN int shmi_names(const shmi_naming *w) { return (w->word32 != NULL ? shmi_ld32(w->word32) : shmi_ld64(w->word64)) == w->is; }
/* Whether shmi_await can end its wait. The parameter was says whether the ID was current when the wait began. */
SHMI_FN int shmi_await_over(shmsync_arena *a, const shmi_naming *w, int was)
{
    if (w == NULL)
        return shmi_all_gone(a);
    return !shmi_names(w) || shmi_gone(a, w->name) || (!was && shmi_current(a, w->name)); /* in the last case another participant has got the ID */
}
/* Waits until the dead participant w->name is gone, or until the word no longer has the value w->is. After the call
 * another participant may have the ID, so the caller reads the word again. If w is NULL, waits until all dead
 * participants are gone. abs is the deadline; 0: none. Returns 0, ETIMEDOUT, EBADF or ENOTCONN. */
SHMI_FN int shmi_await(shmsync_arena *a, const shmi_naming *w, const char *op, const char *called, int64_t abs)
{
    int64_t ask = 0, now, wait, since = 0;
    int err;
    int was = w != NULL && shmi_current(a, w->name); /* can be 1 only if a peer has overwritten the word */
    if (shmi_await_over(a, w, 1))
        return 0;
    err = shmi_enter(a, op);
    if (err != 0)
        return err;
    shmi_follow(a);
    while (err == 0 && !shmi_await_over(a, w, was)) {
        now = shmi_now();
        since = since != 0 ? since : now;
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
            err = shmi_fail(EBADF, op, called, "this process closed the arena");
        } else if (abs != 0 && now >= abs) {
            err = shmi_fail(ETIMEDOUT, op, called, "%s", "who died has not ended");
        } else if (shmi_hook_ends(since, &now)) {
            abs = 1; /* a deadline in the past: the loop checks the condition once more, and then ends */
        } else {
            wait = shmi_next_ask(&ask);
            shmi_exact_nap(abs != 0 && abs - now < wait ? abs - now : wait);
        }
    }
    shmi_exit(a);
    return err;
}
SHMI_FN int shmi_await_all_gone(shmsync_arena *a, const char *op, const char *called) { return shmi_await(a, NULL, op, called, 0); }
SHMI_FN int shmi_await_gone32(shmsync_arena *a, shmi_participant_id n, const uint32_t *word, uint32_t is, const char *op, const char *called, int64_t abs)
{
    shmi_naming w = {NULL, NULL, 0, 0};
    w.word32 = word;
    w.is = is;
    w.name = n;
    return shmi_await(a, &w, op, called, abs);
}
SHMI_FN int shmi_await_gone64(shmsync_arena *a, shmi_participant_id n, const uint64_t *word, uint64_t is, const char *op, const char *called, int64_t abs)
{
    shmi_naming w = {NULL, NULL, 0, 0};
    w.word64 = word;
    w.is = is;
    w.name = n;
    return shmi_await(a, &w, op, called, abs);
}

/* Makes sure that no thread of the dying process in slot i executes a store to the arena any more. Returns 0 if this
 * process cannot be sure yet. */
SHMI_FN int shmi_fence_dying(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if ((shmi_slot_caps(a, i) & SHMI_capFence) != 0 && shmi_fence() == 0)
        return 1;
    return !shmi_slot_has_byte(w) || shmi_found_gone(a, i, w) || shmi_byte_free(a, i, w) || shmi_threads_ended(a, i, w) || shmi_cannot_ask(a, i);
}

/* Leaves the rest of the reap in slot i to the watcher of this process. Returns whether the caller has to ring the
 * watcher, which may be asleep; the watcher itself ignores the result. */
SHMI_FN int shmi_leave_for(shmsync_arena *a, uint32_t i)
{
    shmi_or32(&a->leftover[i / 32], UINT32_C(1) << (i % 32));
    return shmi_xchg32(&a->unfinished, 1) == 0;
}

/* Changes the state of slot i from w to dead, after a fence. Returns whether this call made the change. */
SHMI_FN int shmi_declare_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t now;
    if (!shmi_fence_dying(a, i, w))
        return 0;
    SHMSYNC_CRASHPOINT("arena.reap.fenced");
    now = (uint64_t)shmi_unix_now();
    if (!shmi_cas_slot(a, i, w, shmi_slot_with(w, SHMI_phaseDead)))
        return 0;
    /* The CAS fails if this thread was stopped before it, and slotDied has the generation of a later participant by
     * now: see dateDeath in internal/arenakernel/dead.go. */
    shmi_cas64(shmi_slot64(a, i, SHMI_slotDied), shmi_slot_gen(w), now);
    /* If the participant lives after all, it must learn that its locks belong to others now. */
    shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell));
    SHMSYNC_CRASHPOINT("arena.reap.marked");
    return 1;
}
/* Calls shmi_declare_dead for the participant in slot i, which was found dead in state w. First writes its ID to an act
 * word, and checks again that the participant is dead. Returns whether this call made the change. */
SHMI_FN int shmi_mark(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_act act;
    int blind = shmi_slot_phase(w) == SHMI_phaseJoining && !shmi_slot_has_byte(w) && !shmi_linked(a, i, w), marked;
    SHMSYNC_CRASHPOINT("arena.reap.seen");
    shmi_begin_act(a, &act, shmi_id_in(i, w)); /* a joiner that has no slot yet has no act word; instead it holds the byte lock of slot i */
    /* Checks once more whether the participant is dead. Another participant may have got the ID before the act word
     * contained it; now none can get it. */
    marked = (act.word == NULL || blind || shmi_survey_dead(a, i, w)) && shmi_declare_dead(a, i, w);
    shmi_end_act(a, &act);
    return marked;
}

/* As shmi_survey_dead, but at most once a second; between two checks the result is 0. The check finds a dead
 * participant whose robust list the kernel could not walk. */
SHMI_FN int shmi_found_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    int64_t now = shmi_now(), last = __atomic_load_n(&a->asked[i], __ATOMIC_RELAXED);
    return now - last > INT64_C(1000000000) &&
           __atomic_compare_exchange_n(&a->asked[i], &last, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && shmi_survey_dead(a, i, w);
}

/* Whether n is the ID of a participant that died or left. If this call is the first to see the death, it marks the
 * slot, and a reap begins. */
SHMI_FN int shmi_dead(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w, now;
    if (i < 1 || i > a->geo.slots)
        return 1;
    w = shmi_slot_state(a, i);
    if (shmi_id_in(i, w) != n || !shmi_slot_present(w))
        return 1;
    if (n == a->self || (!shmi_seen_dead(a, i, w) && !shmi_found_dead(a, i, w)))
        return 0;
    if (shmi_mark(a, i, w)) {
        /* The caller goes on with its own wait, so watchers do the rest of the reap. This call wakes the watchers that
         * sleep on the last alive word. It also rings the watcher of this process, in case those watchers do not run.
         */
        shmi_wake(shmi_alive_word(a, i, SHMI_aliveWords - 1), SHMI_ALL);
        shmi_leave_for(a, i);
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    } else if (((now = shmi_slot_state(a, i)) == w || now == shmi_slot_with(w, SHMI_phaseDead)) && shmi_leave_for(a, i)) {
        /* The watcher of this process goes on with the reap in two cases. The slot cannot be marked yet, and perhaps no
         * other process will mark it. Or another participant has marked it, and may be stopped or dead. */
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    }
    return !shmi_current(a, n);
}

/* Whether a participant is dying: the kernel is ending its process, but the participant is still current, and its
 * threads may still execute instructions. */
SHMI_FN int shmi_any_dying(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (shmi_seen_dead(a, i, w) && !shmi_dead(a, shmi_id_in(i, w)))
            return 1;
    }
    return 0;
}
/* Waits until shmi_any_dying finds no process. The caller is within shmi_enter. Returns 0 or EBADF. */
SHMI_FN int shmi_await_none_dying(shmsync_arena *a, const char *op, const char *called)
{
    int64_t ask = 0;
    while (shmi_any_dying(a)) {
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
            return shmi_fail(EBADF, op, called, "this process closed the arena");
        shmi_exact_nap(shmi_next_ask(&ask));
    }
    return 0;
}

/* Whether n is the ID of a participant that has neither died nor begun to leave. */
SHMI_FN int shmi_live(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 0;
    w = shmi_slot_state(a, i);
    return shmi_id_in(i, w) == n && shmi_slot_present(w) && shmi_slot_phase(w) != SHMI_phaseLeaving && !shmi_dead(a, n);
}

/* ---- Death records ---- */

/* The offset of death record number n or, if left is set, of the record of orderly leave number n. Deaths and leaves
 * have separate rings, so that a leave does not overwrite the record of a death that some process has not read yet. */
SHMI_FN shmi_off shmi_death_record(shmsync_arena *a, int left, uint64_t n)
{
    uint64_t k = left ? SHMI_deathRecordDeaths + n % (SHMI_deathRecordCount - SHMI_deathRecordDeaths) : n % SHMI_deathRecordDeaths;
    return a->geo.death_record_off + k * SHMI_deathRecordStride;
}
SHMI_FN uint64_t *shmi_death_records_total(shmsync_arena *a, int left) { return shmi_u64(a, left ? SHMI_hdrLeftTotal : SHMI_hdrDeathRecordsTotal); }

/* Labels are for people, and may change while a process reads them. They are read and written word by word, with
 * atomic operations, so that there is no data race. */
SHMI_FN void shmi_put_label(shmsync_arena *a, shmi_off off, const char *label)
{
    uint64_t words[(SHMI_labelBytes + 1) / 8];
    unsigned char *b = (unsigned char *)words;
    size_t n = strlen(label), k;
    if (n > SHMI_labelBytes)
        n = SHMI_labelBytes;
    memset(words, 0, sizeof words);
    b[0] = (unsigned char)n;
    memcpy(b + 1, label, n);
    for (k = 0; k < sizeof words / 8; k++)
        __atomic_store_n(shmi_u64(a, off + 8 * k), words[k], __ATOMIC_RELAXED);
}
SHMI_FN void shmi_get_label(shmsync_arena *a, shmi_off off, char out[SHMI_labelBytes + 1])
{
    uint64_t words[(SHMI_labelBytes + 1) / 8];
    const unsigned char *b = (const unsigned char *)words;
    size_t n, k;
    for (k = 0; k < sizeof words / 8; k++)
        words[k] = __atomic_load_n(shmi_u64(a, off + 8 * k), __ATOMIC_RELAXED);
    n = b[0];
    if (n > SHMI_labelBytes)
        n = SHMI_labelBytes;
    memcpy(out, b + 1, n);
    out[n] = 0;
}

SHMI_FN void shmi_put_death_record(shmsync_arena *a, int left, const shmsync_participant *p, uint32_t flags)
{
    uint64_t number = shmi_add64(shmi_death_records_total(a, left), 1);
    shmi_off o = shmi_death_record(a, left, number);
    SHMSYNC_CRASHPOINT("arena.record.numbered");
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordSeq), 0);
    shmi_full_fence(); /* no relaxed store of the label may take effect before the store above */
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordID), shmi_make_participant_id(p->slot, p->generation));
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordPID), p->pid);
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordDied), (uint64_t)p->died_ns);
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordFlags), flags | (left ? SHMI_deathRecordLeft : 0));
    shmi_put_label(a, o + SHMI_deathRecordLabel, p->label);
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordSeq), number + 1);
}
/* The date in the word slotDied, or 0 if it has none: see dateIn in internal/arenakernel/identity.go. */
SHMI_FN int64_t shmi_slot_died(shmsync_arena *a, uint32_t i)
{
    uint64_t died = shmi_ld64(shmi_slot64(a, i, SHMI_slotDied));
    return died <= SHMI_maxGeneration ? 0 : (int64_t)died;
}
/* Describes the participant in slot i: see describe in internal/arenakernel/identity.go. *flags are flags as in a
 * death record. The result is the generation, or 0 if the slot has no participant. */
SHMI_FN uint32_t shmi_describe(shmsync_arena *a, uint32_t i, shmsync_participant *p, uint32_t *flags)
{
    uint32_t *word = shmi_slot32(a, i, SHMI_slotDescribed), generation = shmi_ld32(word);
    uint32_t admission = shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission));
    memset(p, 0, sizeof *p);
    p->slot = i;
    p->generation = generation;
    p->pid = shmi_ld32(shmi_slot32(a, i, SHMI_slotPID));
    p->died_ns = shmi_slot_died(a, i);
    shmi_get_label(a, shmi_slot(a, i) + SHMI_slotLabel, p->label);
    *flags = admission == SHMI_admissionPending || admission == SHMI_admissionRefused ? SHMI_deathRecordPending : 0;
    shmi_load_fence(); /* the label is read by relaxed loads */
    if (generation != 0 && shmi_ld32(word) == generation)
        return generation;
    memset(p, 0, sizeof *p);
    return 0;
}
/* Begins a change of the words that describe a participant. */
SHMI_FN void shmi_describe_nobody(shmsync_arena *a, uint32_t i)
{
    shmi_st32(shmi_slot32(a, i, SHMI_slotDescribed), 0);
    shmi_full_fence(); /* no relaxed store of the label may take effect before the store above */
}
/* Writes the words that describe this joiner, in slot i with that generation. */
SHMI_FN void shmi_describe_self(shmsync_arena *a, uint32_t i, uint32_t generation, const char *label, uint64_t start)
{
    shmi_describe_nobody(a, i);
    shmi_st32(shmi_slot32(a, i, SHMI_slotAdmission), SHMI_admissionPending);
    shmi_st32(shmi_slot32(a, i, SHMI_slotPID), (uint32_t)getpid());
    shmi_st64(shmi_slot64(a, i, SHMI_slotStart), start);
    shmi_put_label(a, shmi_slot(a, i) + SHMI_slotLabel, label);
    shmi_st64(shmi_slot64(a, i, SHMI_slotDied), generation); /* a generation instead of a date, because this participant lives: see shmi_slot_died */
    shmi_st32(shmi_slot32(a, i, SHMI_slotDescribed), generation);
}
/* Records that this participant leaves. */
SHMI_FN void shmi_record_leave(shmsync_arena *a)
{
    shmsync_participant p;
    uint32_t flags;
    shmi_describe(a, a->my_slot, &p, &flags);
    p.slot = a->my_slot;
    p.generation = shmi_id_gen(a->self);
    shmi_put_death_record(a, 1, &p, flags);
}

/* Reads death record n, if it is in the ring. */
SHMI_FN int shmi_read_death_record(shmsync_arena *a, int left, uint64_t n, shmsync_participant *p, shmi_participant_id *name)
{
    shmi_off o = shmi_death_record(a, left, n);
    if (shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) != n + 1)
        return 0;
    *name = shmi_ld32(shmi_u32(a, o + SHMI_deathRecordID)) & SHMI_NAME_MASK;
    memset(p, 0, sizeof *p);
    p->slot = shmi_id_slot(*name);
    p->generation = shmi_id_gen(*name);
    p->pid = shmi_ld32(shmi_u32(a, o + SHMI_deathRecordPID));
    p->died_ns = (int64_t)shmi_ld64(shmi_u64(a, o + SHMI_deathRecordDied));
    shmi_get_label(a, o + SHMI_deathRecordLabel, p->label);
    shmi_load_fence(); /* the label is read by relaxed loads */
    return shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1;
}

/* Finds the last record of n in the ring of deaths, or of leaves. */
SHMI_FN int shmi_find_death_record(shmsync_arena *a, int left, shmi_participant_id n, shmsync_participant *out)
{
    uint64_t total = shmi_ld64(shmi_death_records_total(a, left)), back;
    uint64_t count = left ? SHMI_deathRecordCount - SHMI_deathRecordDeaths : SHMI_deathRecordDeaths;
    for (back = 1; back <= total && back <= count; back++) {
        shmi_participant_id name;
        if (shmi_read_death_record(a, left, total - back, out, &name) && name == n)
            return 1;
    }
    return 0;
}
/* Whether the death of n has a record. */
SHMI_FN int shmi_has_death_record(shmsync_arena *a, shmi_participant_id n)
{
    shmsync_participant p;
    return shmi_find_death_record(a, 0, n, &p);
}

/* The most deaths that one call records. If several joiners die while they take a slot over, one after the other, the
 * slot has several dead participants. The limit is for a hostile peer, which may write any generations. */
#define SHMI_MOST_HEIRS 256u
/* Writes a death record for each dead participant of slot i, up to the generation last, that has none: see recordDeaths
 * in internal/arenakernel/deathrecord.go. Returns 0 if the state of the slot is no longer w. */
SHMI_FN int shmi_record_deaths(shmsync_arena *a, uint32_t i, uint32_t w, uint32_t last)
{
    shmsync_participant described, p;
    uint32_t flags, of = shmi_describe(a, i, &described, &flags), g = last;
    int changed = 0;
    if (of != 0 && of < last && last - of < SHMI_MOST_HEIRS)
        g = of;
    for (; g <= last && !changed; g++) {
        shmi_participant_id n = shmi_make_participant_id(i, g);
        shmi_act act;
        if (a->self != 0) /* a joiner that takes the slot over has no ID yet, so a->self is 0 */
            shmi_begin_act(a, &act, n);
        if (!shmi_has_death_record(a, n)) {
            changed = shmi_slot_state(a, i) != w;
            if (of == g) {
                p = described;
            } else {
                memset(&p, 0, sizeof p);
                p.slot = i;
                p.generation = g;
            }
            if (p.died_ns == 0) /* the participant that marked the death has not stored the time yet, or died before it could */
                p.died_ns = shmi_unix_now();
            if (!changed)
                shmi_put_death_record(a, 0, &p, of == g ? flags : (uint32_t)SHMI_deathRecordPending);
        }
        if (a->self != 0)
            shmi_end_act(a, &act);
    }
    return !changed;
}

/* Describes the participant with that generation in slot i. Returns 0 if the slot has another participant now. If it is
 * a joiner that has not described itself yet, *p gets only its slot and generation. */
SHMI_FN int shmi_read_slot(shmsync_arena *a, uint32_t i, uint32_t generation, shmsync_participant *p)
{
    uint32_t flags;
    if (shmi_describe(a, i, p, &flags) != generation) {
        memset(p, 0, sizeof *p);
        p->slot = i;
        p->generation = generation;
    }
    return shmi_slot_gen(shmi_slot_state(a, i)) == generation;
}

enum { SHMI_whoTries = 8 }; /* how often shmi_who reads a slot whose state changes */
/* Describes the participant with ID n: from its slot or, if another participant has taken the slot since, from the
 * death records. ENOENT: neither the slot nor the records have it. */
SHMI_FN int shmi_who(shmsync_arena *a, shmi_participant_id n, shmsync_participant *out)
{
    uint32_t i = shmi_id_slot(n), w, of, flags, phase;
    shmsync_participant gone;
    int tries;
    if (i < 1 || i > a->geo.slots)
        return ENOENT;
    /* If the state of the slot changes during a round, n may have died, or a joiner may have taken the slot over. The
     * death record of n may not be written yet, so the loop reads the slot again. */
    for (tries = 0; tries < SHMI_whoTries; tries++) {
        w = shmi_slot_state(a, i);
        of = shmi_describe(a, i, out, &flags);
        if (!shmi_slot_taken(w) || ((of == 0 || of != shmi_id_gen(n)) && shmi_slot_gen(w) != shmi_id_gen(n)))
            break;
        if (shmi_slot_state(a, i) != w)
            continue;
        phase = shmi_slot_phase(w);
        if (of != shmi_id_gen(n)) /* a joiner has not described itself yet */
            memset(out, 0, sizeof *out);
        out->slot = i;
        out->generation = shmi_id_gen(n);
        /* A reaper writes the death record, then clears the words of the slot, then changes the state of the slot.
         * While a joiner takes the slot over, the words describe its predecessor until the predecessor has a death
         * record. */
        if ((phase == SHMI_phaseDead || phase == SHMI_phaseLeaving)
            && (shmi_find_death_record(a, 0, n, &gone) || shmi_find_death_record(a, 1, n, &gone)))
            *out = gone;
        return 0;
    }
    return shmi_find_death_record(a, 0, n, out) || shmi_find_death_record(a, 1, n, out) ? 0 : ENOENT;
}

/* Reports one death to the function of shmsync_arena_on_death. Returns 0 while the death record is not written yet. */
SHMI_FN int shmi_tell_death(shmsync_arena *a, uint64_t number)
{
    shmsync_participant p;
    shmi_participant_id name;
    unsigned k;
    int told = 0;
    if (!shmi_read_death_record(a, 0, number, &p, &name))
        return 0;
    if (p.slot < 1 || p.slot > a->geo.slots)
        return 1;
    /* Several processes may record the same death, and records of other deaths may lie between these records. Equal IDs
     * mean the same death, because no participant gets an ID that a record contains. */
    for (k = 0; k < SHMI_deathRecordDeaths; k++)
        told = told || a->told[k] == name;
    a->told[number % SHMI_deathRecordDeaths] = name;
    if (told)
        return 1;
    p.missed = (uint32_t)a->lost;
    a->lost = 0;
    SHMI_OUTSIDE(a->on_death(&p, a->on_death_arg));
    return 1;
}
/* Reports the deaths that were recorded since the last call. Returns whether the caller has to call again soon, because
 * a record is not written yet. */
SHMI_FN int shmi_deliver_deaths(shmsync_arena *a)
{
    uint64_t total, holes[SHMI_deathRecordDeaths];
    unsigned n, i;
    int again = 0;
    pthread_mutex_lock(&a->death_lock);
    if (a->on_death == NULL) {
        pthread_mutex_unlock(&a->death_lock);
        return 0;
    }
    total = shmi_ld64(shmi_u64(a, SHMI_hdrDeathRecordsTotal));
    n = a->n_holes;
    memcpy(holes, a->holes, sizeof holes);
    a->n_holes = 0;
    if (total < a->death_record_next) /* a peer has overwritten the counter */
        a->death_record_next = total < SHMI_deathRecordDeaths ? 0 : total - SHMI_deathRecordDeaths;
    if (total - a->death_record_next > SHMI_deathRecordDeaths) {
        a->lost += total - SHMI_deathRecordDeaths - a->death_record_next;
        a->death_record_next = total - SHMI_deathRecordDeaths;
    }
    for (i = 0; i < n; i++)
        if (total - holes[i] > SHMI_deathRecordDeaths)
            a->lost++; /* the record was overwritten before this process read it */
        else if (!shmi_tell_death(a, holes[i]))
            a->holes[a->n_holes++] = holes[i];
    for (; a->death_record_next < total; a->death_record_next++) {
        if (shmi_tell_death(a, a->death_record_next))
            continue;
        if (a->n_holes < SHMI_deathRecordDeaths)
            a->holes[a->n_holes++] = a->death_record_next;
        else
            a->lost++;
        again = 1;
    }
    pthread_mutex_unlock(&a->death_lock);
    return again || a->n_holes > 0;
}

int shmsync_arena_on_death(shmsync_arena *a, void (*f)(const shmsync_participant *, void *), void *arg)
{
    SHMI_BEGIN_IN(a, "arena.on_death");
    int err = shmi_enter(a, "arena.on_death"); /* the call writes into the slot, which after the close may belong to another process */
    if (err != 0)
        return SHMI_TELL(err);
    if (pthread_equal(a->watcher, pthread_self())) { /* the watcher calls on_death with death_lock held, so a lock would wait for ever */
        err = shmi_fail(EDEADLK, "arena.on_death", a->label, "a function that the helper thread calls cannot replace the function of on_death");
        shmi_exit(a);
        return SHMI_TELL(err);
    }
    pthread_mutex_lock(&a->death_lock);
    if (f != NULL && a->told == NULL)
        a->told = (shmi_participant_id *)calloc(SHMI_deathRecordDeaths, sizeof *a->told);
    if (f == NULL) {
        a->on_death = NULL;
        shmi_drop_cap(a, SHMI_capTold); /* a death need not wake this participant any more */
    } else if (a->told != NULL) {
        /* The capability is set before death_record_next is read. So a process that writes a later record rings this
         * participant. */
        shmi_or32(shmi_slot32(a, a->my_slot, SHMI_slotCaps), SHMI_capTold);
        if (a->on_death == NULL) {
            a->death_record_next = shmi_ld64(shmi_u64(a, SHMI_hdrDeathRecordsTotal));
            a->n_holes = 0; /* deaths that were recorded before this call are not reported */
            a->lost = 0;
            memset(a->told, 0, SHMI_deathRecordDeaths * sizeof *a->told);
        }
        a->on_death = f;
        a->on_death_arg = arg;
    } else
        err = shmi_fail(ENOMEM, "arena.on_death", a->label, "%s", "");
    pthread_mutex_unlock(&a->death_lock);
    shmi_exit(a);
    return SHMI_TELL(err);
}

