
/* ---- SpinLock and RWSpinLock: prims/spinlock*.go and prims/rwspinlock*.go in C ---- */

#define SHMI_SPIN_READ 16u /* a reader passes this instead of a kind; the state word never has this kind */
#define SHMI_SPIN_LOST (SHMI_SPIN_NOT_RECOVERABLE << 29)
#define SHMI_SPIN_OWNER_GONE (SHMI_SPIN_OWNER_DEAD << 29) /* see spinOwnerGone in prims/spinlock_word.go */
#define SHMI_RWSPIN_MOST ((UINT64_C(1) << 30) - 1)

struct shmi_spinlock {
    shmsync_arena *a;
    shmi_object o;
    shmi_spin_words *w;
    int readers; /* 0: it is a SpinLock; otherwise an RWSpinLock */
    uint64_t *mine; /* the count in the slot record of this process. In a reaper without a handle, mine and known are NULL */
    uint64_t **known; /* known[i]: the count of slot i + 1; NULL: the slot has none. Atomic. */
    uint64_t known_head; /* the start of the list of slot records when known was filled: see shmi_known_list. Atomic. */
    uint32_t most; /* the highest slot whose count is in known. Atomic. */
    int release;
    int (*repair)(void *);
    void *repair_arg;
    const char *called;
    shmi_wait_list next, gate, drained;
    int64_t looked, looked_gate, looked_drained;
};

SHMI_FN uint32_t shmi_spin_state(struct shmi_spinlock *l) { return shmi_ld32(&l->w->state); }
SHMI_FN uint32_t shmi_spin_ours(struct shmi_spinlock *l, uint32_t kind) { return shmi_make_owner(kind, l->a->self); }
SHMI_FN int shmi_spin_held(uint32_t o)
{
    uint32_t k = shmi_owner_kind(o);
    return shmi_owner_name(o) != 0 && (k == SHMI_SPIN_HELD || k == SHMI_SPIN_DRAINING || k == SHMI_SPIN_UPGRADE || k == SHMI_SPIN_RECOVERING || k == SHMI_SPIN_UPGRADING);
}
SHMI_FN int shmi_spin_valid(struct shmi_spinlock *l, uint32_t o)
{
    switch (shmi_owner_kind(o)) {
    case SHMI_SPIN_HELD: return 1;
    case SHMI_SPIN_OWNER_DEAD: return l->readers || shmi_owner_name(o) != 0;
    case SHMI_SPIN_RECOVERING: return shmi_owner_name(o) != 0;
    case SHMI_SPIN_DRAINING:
    case SHMI_SPIN_UPGRADE:
    case SHMI_SPIN_UPGRADING: return l->readers && shmi_owner_name(o) != 0;
    case SHMI_SPIN_NOT_RECOVERABLE: return o == SHMI_SPIN_LOST;
    }
    return 0;
}

/* Whether every wait for the lock ends with an error, until a recover has succeeded. */
SHMI_FN int shmi_spin_ends_waits(struct shmi_spinlock *l, uint32_t o)
{
    return !shmi_spin_valid(l, o) || shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD || o == SHMI_SPIN_LOST;
}

/* Wakes the waiters of the state word, even if none has announced itself: all readers, and either one or all of the
 * other waiters. */
SHMI_FN void shmi_spin_wake_waiters(struct shmi_spinlock *l, int all)
{
    if (l->readers)
        shmi_wake_word_wake_all(l->a, &l->gate);
    if (all)
        shmi_wake_word_wake_all(l->a, &l->next);
    else
        shmi_wake_word_wake_one(l->a, &l->next);
}
/* Whether the lock becomes free as soon as a dead process is gone. The state word o names this process. */
SHMI_FN int shmi_spin_released(struct shmi_spinlock *l, uint32_t o)
{
    uint32_t k = shmi_owner_kind(o);
    return l->release && shmi_spin_held(o) && k != SHMI_SPIN_DRAINING && k != SHMI_SPIN_RECOVERING;
}
/* Replaces the state word o, which names a dead process. Returns 0 if the word must stay until that process is gone. */
SHMI_FN int shmi_spin_mark_owner_dead(struct shmi_spinlock *l, uint32_t o)
{
    uint32_t next = shmi_make_owner(SHMI_SPIN_OWNER_DEAD, shmi_owner_name(o));
    if (!shmi_spin_held(o))
        return 1;
    if (shmi_owner_kind(o) == SHMI_SPIN_DRAINING) {
        next = 0; /* the process has written nothing */
    } else if (shmi_spin_released(l, o)) {
        if (!shmi_gone(l->a, shmi_owner_name(o)))
            return 0;
        next = 0;
    }
    if (!shmi_take_from32(l->a, shmi_owner_name(o), &l->w->state, o, next, shmi_spin_released(l, o)))
        return 1;
    SHMSYNC_CRASHPOINT("spinlock.owner_dead.marked");
    shmi_spin_wake_waiters(l, next != 0);
    return 1;
}
SHMI_FN shmi_participant_id shmi_spin_died(struct shmi_spinlock *l) { return shmi_ld32(&l->w->died) & SHMI_NAME_MASK; }
SHMI_FN int shmi_spin_trouble(struct shmi_spinlock *l, const char *op, uint32_t o)
{
    if (!shmi_spin_valid(l, o))
        return shmi_fail(EPROTO, op, l->called, "state word %#x", o);
    if (o == SHMI_SPIN_LOST)
        return shmi_fail_who(l->a, ENOTRECOVERABLE, op, l->called, shmi_spin_died(l));
    if (shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD)
        return shmi_fail_who(l->a, EOWNERDEAD, op, l->called, shmi_owner_name(o) != 0 ? shmi_owner_name(o) : shmi_spin_died(l));
    return 0;
}
SHMI_FN shmi_tuning shmi_spin_tuning(struct shmi_spinlock *l)
{
    shmi_tuning t;
    t.budget = &l->w->spin;
    t.pays = &l->w->pays;
    t.last_cpu = &l->w->lastCPU;
    t.slot = l->a->my_slot;
    return t;
}
SHMI_FN int shmi_spin_waited(struct shmi_spinlock *l) { return shmi_wake_word_announced(&l->next) || (l->readers && shmi_wake_word_announced(&l->gate)); }
SHMI_FN void shmi_spin_wake_waited(struct shmi_spinlock *l)
{
    shmi_tuning t = shmi_spin_tuning(l);
    shmi_note_cpu(&t);
    if (l->readers && shmi_wake_word_announced(&l->gate))
        shmi_wake_word_wake_all(l->a, &l->gate);
    shmi_wake_word_release(l->a, &l->next);
}
/* After a release, wakes all waiting readers and one of the other waiters. */
SHMI_FN void shmi_spin_pass_on(struct shmi_spinlock *l)
{
    SHMSYNC_CRASHPOINT("spinlock.unlock.before_wake");
    if (shmi_enter_late(l, l->a)) {
        shmi_spin_wake_waited(l);
        shmi_exit_for(l, l->a);
    }
}
/* Ends a hold of this process. The parameter from is the kind of the hold. The parameter to is the new state word: 0,
 * or another hold. */
SHMI_FN int shmi_spin_release(struct shmi_spinlock *l, const char *op, uint32_t from, uint32_t to)
{
    int err = shmi_use(l->a, op);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("spinlock.unlock.before_release");
    if (!shmi_cas32(&l->w->state, shmi_spin_ours(l, from), to)) {
        uint32_t o = shmi_spin_state(l);
        return shmi_fail(shmi_spin_valid(l, o) ? EPERM : EPROTO, op, l->called, "%sstate word %#x", shmi_spin_valid(l, o) ? "this process has no such hold; " : "", o);
    }
    if (to == 0 && shmi_spin_waited(l))
        shmi_spin_pass_on(l);
    return 0;
}

/* ---- Counts: the holds for reading of each participant ---- */

SHMI_FN shmi_participant_id shmi_count_name(uint64_t c) { return (shmi_participant_id)(c >> 32) & SHMI_NAME_MASK; }
SHMI_FN uint64_t shmi_make_count(shmi_participant_id n, uint64_t holds) { return (uint64_t)n << 32 | holds; }
SHMI_FN int shmi_count_valid(uint64_t c, uint32_t slot)
{
    return c == 0 || (shmi_id_slot(shmi_count_name(c)) == slot && (c & SHMI_RWSPIN_MOST) != 0 && c == shmi_make_count(shmi_count_name(c), c & SHMI_RWSPIN_MOST));
}
SHMI_FN uint64_t *shmi_rwspin_count_in(struct shmi_spinlock *l, const shmi_record_walk *v)
{
    return &((shmi_rwspin_record *)shmi_ptr(l->a, v->b.off, sizeof(shmi_rwspin_record), 8))->count;
}
/* Finds the counts, which lie in slot records. A slot record stays until the object is deleted. So a handle keeps the
 * addresses of the counts, and reads the list of slot records again only when the list has changed. */
SHMI_COLD uint64_t shmi_rwspin_learn(struct shmi_spinlock *l, uint32_t head)
{
    shmi_record_walk v;
    uint32_t most;
    shmi_walk_records(l->a, &v, l->o.off, sizeof(shmi_rwspin_record));
    v.next = (shmi_off)head * SHMI_blockMin;
    while (shmi_next_record(l->a, &v)) {
        /* a known count stays known, even if a peer has overwritten the list */
        if (__atomic_load_n(&l->known[v.slot - 1], __ATOMIC_RELAXED) == NULL)
            __atomic_store_n(&l->known[v.slot - 1], shmi_rwspin_count_in(l, &v), __ATOMIC_RELEASE);
        for (most = shmi_ld32(&l->most); most < v.slot && !shmi_cas32(&l->most, most, v.slot); most = shmi_ld32(&l->most)) {
        }
    }
    shmi_st64(&l->known_head, shmi_known_list(head, &v));
    return shmi_known_list(head, &v);
}
/* Returns the highest slot that has a count in l->known. A writer that changes the state word and then calls this
 * function misses no reader. A reader puts its record on the list, then counts itself, and then reads the state word.
 */
SHMI_FN uint32_t shmi_rwspin_up_to(struct shmi_spinlock *l, int *bad)
{
    uint32_t head = shmi_records_head(l->a, &l->o);
    uint64_t known = shmi_ld64(&l->known_head);
    if (SHMI_UNLIKELY((uint32_t)known != head))
        known = shmi_rwspin_learn(l, head);
    *bad = shmi_known_bad(known);
    return shmi_ld32(&l->most);
}
/* Whether all counts of readers are 0. If the list of slot records is corrupt, the result is 0, because a reader may
 * be missing from the list. */
SHMI_FN int shmi_rwspin_nobody_reads(void *arg)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)arg;
    int bad;
    uint32_t i, n = shmi_rwspin_up_to(l, &bad);
    for (i = 0; i < n; i++) {
        const uint64_t *count = __atomic_load_n(&l->known[i], __ATOMIC_ACQUIRE);
        if (count != NULL && shmi_ld64(count) != 0)
            return 0;
    }
    return !bad;
}
/* Sets *who to a participant that holds the lock for reading, or to 0. Takes back the holds of dead participants. */
SHMI_FN int shmi_rwspin_reader(struct shmi_spinlock *l, shmi_participant_id *who)
{
    int bad, tries;
    uint32_t i, n = shmi_rwspin_up_to(l, &bad);
    *who = 0;
    if (bad)
        return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "its list of slot records");
    for (i = 0; i < n; i++) {
        uint64_t *count = __atomic_load_n(&l->known[i], __ATOMIC_ACQUIRE);
        for (tries = 0; count != NULL; tries++) {
            uint64_t c = shmi_ld64(count);
            shmi_participant_id name = shmi_count_name(c);
            if (c == 0)
                break;
            if (!shmi_count_valid(c, i + 1))
                return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "readers of slot %u: %#llx", i + 1, (unsigned long long)c);
            if (!shmi_dead(l->a, name)) {
                if (shmi_current(l->a, name)) {
                    *who = name;
                    return 0;
                }
                break; /* the participant has given its last hold back meanwhile, and has left */
            }
            if (tries == SHMI_REAP_TRIES) /* only a peer that breaks the rules changes the count of a dead participant so often */
                return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "readers of slot %u: %#llx, and it keeps changing", i + 1, (unsigned long long)c);
            shmi_take_from64(l->a, name, count, c, 0, 0);
        }
    }
    return 0;
}
/* Counts one more hold for reading of this process. */
SHMI_FN int shmi_rwspin_count(struct shmi_spinlock *l)
{
    shmi_participant_id self = l->a->self;
    for (;;) {
        uint64_t c = shmi_ld64(l->mine), to = shmi_make_count(self, 1);
        if (c != 0 && shmi_count_name(c) == self)
            to = c + 1;
        if (!shmi_count_valid(c, l->a->my_slot) || (c & SHMI_RWSPIN_MOST) == SHMI_RWSPIN_MOST || (c != 0 && to != c + 1 && !shmi_covers(self, shmi_count_name(c))))
            return shmi_fail((c & SHMI_RWSPIN_MOST) == SHMI_RWSPIN_MOST ? EINVAL : EPROTO, "rwspinlock.rdlock", l->called, "holds: %#llx", (unsigned long long)c);
        if (shmi_cas64(l->mine, c, to))
            return 0;
    }
}
/* Takes back one hold for reading of this process. If it was the last hold, wakes the process that waits for readers.
 * Returns 0 if this process has no such hold. */
SHMI_FN int shmi_rwspin_exit(struct shmi_spinlock *l)
{
    for (;;) {
        uint64_t c = shmi_ld64(l->mine), to;
        if (c == 0 || shmi_count_name(c) != l->a->self || !shmi_count_valid(c, l->a->my_slot))
            return 0;
        to = (c & SHMI_RWSPIN_MOST) == 1 ? 0 : c - 1;
        if (!shmi_cas64(l->mine, c, to))
            continue;
        if (to == 0 && shmi_wake_word_announced(&l->drained)) {
            SHMSYNC_CRASHPOINT("rwspinlock.runlock.before_wake");
            if (shmi_enter_late(l, l->a)) {
                shmi_wake_word_wake_all(l->a, &l->drained);
                shmi_exit_for(l, l->a);
            }
        }
        return 1;
    }
}
/* Counts one more hold for reading. If another process has the lock exclusively, *in is 0, and the hold does not count.
 */
SHMI_FN int shmi_rwspin_enter(struct shmi_spinlock *l, int *in)
{
    int err = shmi_rwspin_count(l);
    *in = 0;
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("rwspinlock.rlock.counted");
    if (shmi_spin_state(l) == 0)
        *in = 1;
    else
        shmi_rwspin_exit(l);
    return 0;
}

/* Takes the next step towards the lock, if that needs no wait. The caller has read the state word as o. *changed is 1
 * if the state word is no longer o. */
SHMI_FN int shmi_spin_step(struct shmi_spinlock *l, uint32_t o, uint32_t as, int *took, int *changed)
{
    int err;
    *took = *changed = 0;
    if (o == 0) {
        *changed = 1;
        if (as == SHMI_SPIN_READ)
            return shmi_rwspin_enter(l, took);
        *took = shmi_cas32(&l->w->state, 0, shmi_spin_ours(l, as));
        return 0;
    }
    err = shmi_spin_trouble(l, "spinlock.lock", o);
    if (err == 0 && shmi_dead(l->a, shmi_owner_name(o)))
        *changed = shmi_spin_mark_owner_dead(l, o);
    return err;
}
/* Takes the lock if that is possible without a wait. Returns 0, EBUSY or another errno. The parameter as is
 * SHMI_SPIN_READ for a hold for reading, or the kind that the state word gets. */
SHMI_FN int shmi_spin_try(struct shmi_spinlock *l, uint32_t as)
{
    int took, changed, err, counted = 0;
    do {
        uint32_t o = shmi_spin_state(l);
        shmi_participant_id n = shmi_owner_name(o);
        if (!counted && n != 0 && n != l->a->self) {
            if (shmi_dead(l->a, n)) {
                /* This call may be the first to find the death, and may free the lock. After that, the next holder may
                 * close the handle. So from now on, this call keeps the handle open until it returns. */
                counted = shmi_enter_late(l, l->a);
                if (!counted)
                    return EBUSY;
            } else if (shmi_spin_valid(l, o) && shmi_spin_held(o)) {
                return EBUSY; /* another process, which is alive, holds the lock */
            }
        }
        err = shmi_spin_step(l, o, as, &took, &changed);
    } while (!took && err == 0 && changed);
    if (counted)
        shmi_exit_for(l, l->a);
    return took ? 0 : err != 0 ? err : EBUSY;
}

SHMI_FN int shmi_spin_not_held(void *arg) { return !shmi_spin_held(shmi_spin_state((struct shmi_spinlock *)arg)); }
/* Spins while the result of done is 0. After that, yields the CPU a few times. */
SHMI_FN int shmi_spin_while(struct shmi_spinlock *l, int (*done)(void *))
{
    shmi_tuning t = shmi_spin_tuning(l);
    int i;
    if (shmi_spin(&t, done, l))
        return 1;
    for (i = 0; i < 4 && shmi_ld32(&l->w->spin) != 1; i++) {
        int64_t took;
        if (shmi_now() < __atomic_load_n(&shmi_no_yield_until, __ATOMIC_RELAXED))
            return 0;
        took = shmi_yield();
        if (done(l))
            return 1;
        if (shmi_note_yield(took))
            return 0;
    }
    return 0;
}
/* Whether a waiter may sleep while the state word is o. It may sleep while the owner lives, because the next change of
 * the word wakes it. It may also sleep while a dead owner that is not gone yet keeps the hold. */
SHMI_FN int shmi_spin_blocks(struct shmi_spinlock *l, uint32_t o)
{
    return shmi_spin_valid(l, o) && shmi_spin_held(o) &&
           (shmi_current(l->a, shmi_owner_name(o)) || (shmi_spin_released(l, o) && !shmi_gone(l->a, shmi_owner_name(o))));
}

SHMI_FN void shmi_spin_meet_again(struct shmi_spinlock *l)
{
    uint32_t next = shmi_ld32(&l->w->wake), gate = shmi_ld32(&l->w->gate), o = shmi_spin_state(l);
    if (!shmi_spin_held(o))
        return;
    if ((next & 1) != 0)
        shmi_meet_hold(&l->w->metSince, &l->w->metHold, o, next);
    if ((gate & 1) != 0)
        shmi_meet_hold(&l->w->gateMetSince, &l->w->gateMetHold, o, gate);
}
/* Makes up for wakes that a stopped or dead process has not sent to the waiters in a wait list. */
SHMI_FN void shmi_spin_check(struct shmi_spinlock *l, shmi_wait_list *waiters)
{
    uint32_t o = shmi_spin_state(l);
    if (o == 0) {
        shmi_spin_wake_waiters(l, 0);
    } else if (shmi_spin_ends_waits(l, o)) {
        shmi_spin_wake_waiters(l, 1);
    } else if (shmi_dead(l->a, shmi_owner_name(o))) {
        shmi_spin_mark_owner_dead(l, o);
    } else {
        /* A process that released the lock may have been stopped before its wake, or the waiter that it woke may be
         * stopped. So this process announces the waiters again. */
        shmi_wake_word_announce(waiters);
        shmi_spin_meet_again(l);
    }
}
SHMI_FN void shmi_spin_check_next(void *arg)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)arg;
    if (shmi_check_due(&l->looked))
        shmi_spin_check(l, &l->next);
}
/* The periodic check for waiting readers. Readers sleep on another word than writers, so l->looked_gate has the time of
 * their last check: see shmi_look_for. */
SHMI_FN void shmi_spin_check_gate(void *arg)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)arg;
    if (shmi_check_due(&l->looked_gate))
        shmi_spin_check(l, &l->gate);
}

SHMI_FN int shmi_spin_recover(struct shmi_spinlock *l, int64_t abs, int (*repair)(void *), void *arg);

/* Ends a wait without the lock. This waiter may have got a wake that another waiter needs, so it passes the wake on. */
SHMI_FN void shmi_spin_leave(struct shmi_spinlock *l, uint32_t as, int slept)
{
    SHMSYNC_CRASHPOINT("spinlock.lock.leaving");
    if (!slept || as == SHMI_SPIN_READ)
        return;
    shmi_wake_word_announce(&l->next);
    if (!shmi_spin_blocks(l, shmi_spin_state(l)))
        shmi_wake_word_release(l->a, &l->next);
}

/* Takes the lock, and waits until that is possible. The caller is within shmi_enter. For the parameter as, see
 * shmi_spin_try. */
SHMI_FN int shmi_spin_wait_entered(struct shmi_spinlock *l, uint32_t as, int64_t abs, int may_repair)
{
    shmi_wait_list *wake_word = as == SHMI_SPIN_READ ? &l->gate : &l->next;
    int took, changed, slept = 0, spun = 0, err;
    int64_t ask = 0, since = 0;
    for (;;) {
        uint32_t o = shmi_spin_state(l), v;
        shmi_sleep_spec sleep_spec;
        int r;
        err = shmi_spin_step(l, o, as, &took, &changed);
        if (took)
            break;
        if (err == EOWNERDEAD && may_repair && l->repair != NULL) {
            err = shmi_spin_recover(l, abs, l->repair, l->repair_arg);
            if (err == 0)
                continue;
        }
        if (err != 0) {
            shmi_spin_leave(l, as, slept);
            break;
        }
        if (changed)
            continue;
        if (!spun) {
            spun = 1;
            if (shmi_current(l->a, shmi_owner_name(o)) && shmi_spin_while(l, shmi_spin_not_held))
                continue;
        }
        v = shmi_wake_word_announce(wake_word);
        SHMSYNC_CRASHPOINT("spinlock.lock.announced");
        o = shmi_spin_state(l);
        if (!shmi_spin_blocks(l, o))
            continue;
        slept = 1;
        if (as == SHMI_SPIN_READ)
            shmi_meet_hold(&l->w->gateMetSince, &l->w->gateMetHold, o, v);
        else
            shmi_meet_hold(&l->w->metSince, &l->w->metHold, o, v);
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = as == SHMI_SPIN_READ ? &l->looked_gate : &l->looked;
        sleep_spec.check = as == SHMI_SPIN_READ ? shmi_spin_check_gate : shmi_spin_check_next;
        sleep_spec.check_arg = l;
        sleep_spec.word = wake_word->word;
        sleep_spec.val = v;
        sleep_spec.object = l->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_owner_name(o) != l->a->self ? shmi_owner_name(o) : 0;
        if (!shmi_current(l->a, shmi_owner_name(o))) { /* no wake comes when a dead owner is gone, so the waiter asks from time to time whether the owner is gone */
            shmi_follow(l->a);
            sleep_spec.bounded = shmi_next_ask(&ask);
            sleep_spec.owner = 0;
        }
        r = shmi_sleep(l->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("spinlock.lock.woken");
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            sleep_spec.check(l);
        } else if (r == SHMI_LATE && (err = shmi_spin_try(l, as)) == 0) {
            break; /* the lock became free in time, so this is no timeout */
        } else if (r == SHMI_LATE && err == EOWNERDEAD && may_repair && l->repair != NULL) {
            continue; /* a lock that this call may repair takes precedence over the deadline, too */
        } else {
            shmi_spin_leave(l, as, slept);
            err = r == SHMI_LATE ? ETIMEDOUT : shmi_fail(EBADF, "spinlock.lock", l->called, "this process closed the arena");
            break;
        }
    }
    /* The wake of this waiter has cleared the announcement, and other waiters may be asleep. */
    if (err == 0 && slept && as != SHMI_SPIN_READ) {
        uint32_t v = shmi_wake_word_announce(wake_word), o = shmi_spin_state(l);
        if (shmi_spin_held(o) && shmi_owner_name(o) == l->a->self)
            shmi_meet_hold(&l->w->metSince, &l->w->metHold, o, v);
    }
    return err;
}
SHMI_COLD int shmi_spin_wait(struct shmi_spinlock *l, uint32_t as, int64_t abs, int may_repair)
{
    shmsync_arena *a = l->a;
    int err = shmi_enter_for(l, a, "spinlock.lock");
    if (err != 0)
        return err;
    SHMI_REPAIRING(l->repair, err, shmi_spin_wait_entered(l, as, abs, may_repair));
    shmi_exit_for(l, a);
    return err;
}

/* ---- Drains: waiting for readers to leave ---- */

/* The values of the state word for a wait until all readers have left. from: when the wait starts; pending: while it
 * lasts; to: after its success; back: after its failure. */
typedef struct shmi_rwspin_drain {
    uint32_t from, pending, to, back;
} shmi_rwspin_drain;

SHMI_FN shmi_rwspin_drain shmi_drain_of(struct shmi_spinlock *l, uint32_t kind, uint32_t pending, uint32_t to, uint32_t back)
{
    shmi_rwspin_drain d;
    d.from = shmi_spin_ours(l, kind);
    d.pending = shmi_spin_ours(l, pending);
    d.to = shmi_spin_ours(l, to);
    d.back = back;
    return d;
}
SHMI_FN shmi_rwspin_drain shmi_drain_lock(struct shmi_spinlock *l) { return shmi_drain_of(l, SHMI_SPIN_DRAINING, SHMI_SPIN_DRAINING, SHMI_SPIN_HELD, 0); }
SHMI_FN shmi_rwspin_drain shmi_drain_upgrade(struct shmi_spinlock *l)
{
    return shmi_drain_of(l, SHMI_SPIN_UPGRADE, SHMI_SPIN_UPGRADING, SHMI_SPIN_HELD, shmi_spin_ours(l, SHMI_SPIN_UPGRADE));
}
SHMI_FN int shmi_rwspin_turn(struct shmi_spinlock *l, uint32_t from, uint32_t to)
{
    if (from == to || shmi_cas32(&l->w->state, from, to))
        return 0;
    return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "it was %#x and became %#x under its owner", from, shmi_spin_state(l));
}
/* Ends a drain that has failed. */
SHMI_FN void shmi_rwspin_give_up(struct shmi_spinlock *l, const shmi_rwspin_drain *d)
{
    if (!shmi_cas32(&l->w->state, d->pending, d->back))
        return;
    SHMSYNC_CRASHPOINT("rwspinlock.drain.given_up");
    if (d->back == 0) {
        if (shmi_spin_waited(l))
            shmi_spin_pass_on(l);
    } else if (!shmi_spin_held(d->back)) {
        shmi_spin_wake_waiters(l, 1);
    }
}
SHMI_FN void shmi_rwspin_check_drained(void *arg)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)arg;
    shmi_participant_id who = 0;
    if (shmi_check_due(&l->looked_drained) && (shmi_rwspin_reader(l, &who) != 0 || who == 0))
        shmi_wake_word_wake_all(l->a, &l->drained);
}
SHMI_FN int shmi_rwspin_await_readers(struct shmi_spinlock *l, int64_t abs)
{
    int spun = 0, err = shmi_enter_for(l, l->a, "rwspinlock.lock");
    int64_t since = 0;
    if (err != 0)
        return err;
    for (;;) {
        shmi_participant_id who = 0;
        shmi_sleep_spec sleep_spec;
        uint32_t v;
        int r;
        if (!spun) {
            spun = 1;
            shmi_spin_while(l, shmi_rwspin_nobody_reads);
        }
        v = shmi_wake_word_announce(&l->drained);
        SHMSYNC_CRASHPOINT("rwspinlock.drain.announced");
        err = shmi_rwspin_reader(l, &who);
        if (who == 0 || err != 0)
            break;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &l->looked_drained;
        sleep_spec.check = shmi_rwspin_check_drained;
        sleep_spec.check_arg = l;
        sleep_spec.word = l->drained.word;
        sleep_spec.val = v;
        sleep_spec.object = l->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = who != l->a->self ? who : 0;
        r = shmi_sleep(l->a, &sleep_spec);
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            shmi_rwspin_check_drained(l);
        } else {
            err = shmi_rwspin_reader(l, &who);
            if (err == 0 && (who != 0 || r == SHMI_CLOSED)) /* while the arena is closed, this call takes no lock, because the close would make it owner-dead */
                err = r == SHMI_LATE ? ETIMEDOUT : shmi_fail(EBADF, "rwspinlock.lock", l->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit_for(l, l->a);
    return err;
}
/* Waits until no reader has the lock. If this fails, the state word becomes d.back. */
SHMI_FN int shmi_rwspin_drained(struct shmi_spinlock *l, shmi_rwspin_drain d, int64_t abs)
{
    shmi_participant_id who = 0;
    int err, e;
    SHMSYNC_CRASHPOINT("rwspinlock.drain.claimed");
    err = shmi_rwspin_reader(l, &who);
    if (who == 0 && err == 0)
        return shmi_rwspin_turn(l, d.from, d.to);
    e = shmi_rwspin_turn(l, d.from, d.pending);
    if (e != 0)
        return e;
    if (err == 0)
        err = shmi_rwspin_await_readers(l, abs);
    if (err == 0)
        return shmi_rwspin_turn(l, d.pending, d.to);
    shmi_rwspin_give_up(l, &d);
    return err;
}

/* Gets the lock exclusively. In an RWSpinLock, the call keeps the handle open until all readers have left. */
SHMI_FN int shmi_spin_own(struct shmi_spinlock *l, int64_t abs, int may_repair)
{
    shmsync_arena *a = l->a;
    int err;
    if (!l->readers)
        return shmi_spin_wait(l, SHMI_SPIN_HELD, abs, may_repair);
    err = shmi_enter_for(l, a, "rwspinlock.lock");
    if (err != 0)
        return err;
    SHMI_REPAIRING(l->repair, err, shmi_spin_wait_entered(l, SHMI_SPIN_DRAINING, abs, may_repair));
    if (err == 0)
        err = shmi_rwspin_drained(l, shmi_drain_lock(l), abs);
    shmi_exit_for(l, a);
    return err;
}
SHMI_FN int shmi_spin_lock(struct shmi_spinlock *l, int64_t abs)
{
    int err = shmi_use(l->a, "spinlock.lock");
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (l->readers || SHMI_UNLIKELY(!shmi_cas32(&l->w->state, 0, l->a->self)))
        err = shmi_spin_own(l, abs, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("spinlock.lock.acquired");
    return err;
}

/* Releases the lock after a repair that succeeded. The parameter mine is the state word of this recovery. EPROTO: the
 * state word has changed. See shmi_mutex_repaired. */
SHMI_FN int shmi_spin_repaired(struct shmi_spinlock *l, uint32_t mine)
{
    uint32_t o = shmi_spin_state(l);
    if (o == mine) {
        shmi_st32(&l->w->died, 0);
        if (shmi_cas32(&l->w->state, mine, 0))
            return 0;
        o = shmi_spin_state(l);
    }
    return shmi_fail(EPROTO, "spinlock.recover", l->called, "it was overwritten during the repair, and is now %#x", o);
}
SHMI_FN int shmi_spin_recover_entered(struct shmi_spinlock *l, int64_t abs, int (*repair)(void *), void *arg)
{
    uint32_t mine = shmi_spin_ours(l, SHMI_SPIN_RECOVERING);
    for (;;) {
        uint32_t o = shmi_spin_state(l);
        int err;
        if (o != SHMI_SPIN_LOST && shmi_owner_kind(o) != SHMI_SPIN_OWNER_DEAD) {
            err = shmi_spin_own(l, abs, 0);
            if (err == 0)
                return shmi_spin_release(l, "spinlock.recover", SHMI_SPIN_HELD, 0);
            if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
                continue;
            return err;
        }
        if (shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD && shmi_owner_name(o) != 0) {
            err = shmi_await_gone32(l->a, shmi_owner_name(o), &l->w->state, o, "spinlock.recover", l->called, abs);
            if (err != 0)
                return err;
        }
        if (!shmi_take_from32(l->a, shmi_owner_name(o), &l->w->state, o, mine, 1))
            continue;
        SHMSYNC_CRASHPOINT("spinlock.recover.taken");
        if (shmi_owner_name(o) != 0) /* only a process that holds the lock stores in this word */
            shmi_st32(&l->w->died, shmi_owner_name(o));
        if (l->readers) {
            /* While this process waits for readers, the state word names this process. Meanwhile another participant
             * may get the ID of the dead one, so a wait that fails must not bring the old word back. The word then
             * becomes SHMI_SPIN_OWNER_GONE, which names no participant. */
            err = shmi_rwspin_drained(l, shmi_drain_of(l, SHMI_SPIN_RECOVERING, SHMI_SPIN_RECOVERING, SHMI_SPIN_RECOVERING, o == SHMI_SPIN_LOST ? SHMI_SPIN_LOST : SHMI_SPIN_OWNER_GONE), abs);
            if (err != 0)
                return err;
        }
        if (shmi_call_repair(repair, arg) != 0) {
            shmi_participant_id who = shmi_spin_died(l); /* read this while the state word still keeps other recoveries out */
            shmi_cas32(&l->w->state, mine, SHMI_SPIN_LOST);
            SHMSYNC_CRASHPOINT("spinlock.recover.lost");
            shmi_spin_wake_waiters(l, 1);
            return shmi_fail_who(l->a, ENOTRECOVERABLE, "spinlock.recover", l->called, who);
        }
        SHMSYNC_CRASHPOINT("spinlock.recover.repaired");
        err = shmi_spin_repaired(l, mine);
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("spinlock.recover.before_wake");
        if (shmi_spin_waited(l))
            shmi_spin_pass_on(l);
        return 0;
    }
}
SHMI_FN int shmi_spin_recover(struct shmi_spinlock *l, int64_t abs, int (*repair)(void *), void *arg)
{
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "spinlock.recover", l->called, "without a repair");
    err = shmi_enter_for(l, l->a, "spinlock.recover");
    if (err != 0)
        return err;
    err = shmi_spin_recover_entered(l, abs, repair, arg);
    shmi_exit_for(l, l->a);
    return err;
}

/* ---- Handles ---- */

SHMI_FN void shmi_spin_view(struct shmi_spinlock *l, shmsync_arena *a, const shmi_object *o)
{
    memset(l, 0, sizeof *l);
    l->a = a;
    l->o = *o;
    l->readers = o->kind == SHMI_KIND_RWSPIN_LOCK;
    l->called = o->name_len != 0 ? l->o.name : NULL;
    l->w = (shmi_spin_words *)shmi_ptr(a, o->body, sizeof(shmi_spin_words), 8);
    l->release = (shmi_ld32(&l->w->policy) & 0xff) == 1;
    l->next.word = &l->w->wake;
    l->next.poller = &l->w->poller;
    if (l->readers) {
        l->gate.word = &l->w->gate;
        l->gate.poller = &l->w->gatePoller;
        l->drained.word = &l->w->drain;
        l->drained.poller = &l->w->drainPoller;
    }
}
/* Ends an opening, and sends the wakes that earlier calls have left to this function: see shmi_enter_late. */
SHMI_FN void shmi_spin_end(void *handle)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)handle;
    if (!shmi_unmapped(l->a) && shmi_spin_waited(l) && shmi_spin_state(l) == 0)
        shmi_spin_wake_waited(l);
    if (!shmi_unmapped(l->a) && l->readers && shmi_wake_word_announced(&l->drained) && shmi_rwspin_nobody_reads(l))
        shmi_wake_word_wake_all(l->a, &l->drained);
    if (l->known != NULL)
        shmi_free_thing(l->known); /* a call that is under way may still read this memory, so it is kept for later handles */
    shmi_free_thing(l);
}
/* Finds the count of this process, and the counts of other participants. Returns 0 or an errno. */
SHMI_FN int shmi_rwspin_build(struct shmi_spinlock *l)
{
    shmi_off record = 0;
    int err = shmi_slot_record(l->a, &l->o, sizeof(shmi_rwspin_record), &record);
    if (err != 0)
        return err;
    l->known = (uint64_t **)shmi_new_thing(shmi_slot_places(l->a) * sizeof *l->known);
    if (l->known == NULL)
        return shmi_fail(ENOMEM, "rwspinlock.open", l->called, "%s", "");
    l->mine = &((shmi_rwspin_record *)shmi_ptr(l->a, record, sizeof(shmi_rwspin_record), 8))->count;
    l->known[l->a->my_slot - 1] = l->mine;
    l->most = l->a->my_slot;
    return 0;
}
SHMI_FN void *shmi_spin_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_spinlock_options *opts = (const shmsync_spinlock_options *)arg;
    struct shmi_spinlock *l = (struct shmi_spinlock *)shmi_new_thing(sizeof *l);
    if (l == NULL)
        return NULL;
    shmi_spin_view(l, a, o);
    if (l->readers) {
        if (shmi_rwspin_build(l) != 0) {
            shmi_free_thing(l);
            return NULL;
        }
        shmi_built_ends_with(a, o->off, shmi_spin_end);
    }
    if (opts != NULL) {
        l->repair = opts->repair;
        l->repair_arg = opts->repair_arg;
    }
    return l;
}
typedef struct shmi_spin_spec {
    uint32_t policy, spin;
} shmi_spin_spec;
SHMI_FN void shmi_spin_fill(unsigned char *body, const void *arg)
{
    shmi_spin_words *w = (shmi_spin_words *)(void *)body;
    const shmi_spin_spec *s = (const shmi_spin_spec *)arg;
    w->policy = s->policy;
    w->spin = s->spin;
}
SHMI_FN int shmi_spin_open(int existing, shmsync_arena *a, const char *op, uint32_t kind, uint16_t version, uint64_t size, const char *name, const shmsync_spinlock_options *opts, struct shmi_spinlock **out, uint64_t *serial)
{
    SHMI_OPTIONS(shmsync_spinlock_options, 40, op, *out);
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    shmi_spin_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    err = shmi_no_rollback(op, name, policy, "a spin lock");
    if (err != 0)
        return err;
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, kind, version, name, size);
    spec.init = shmi_spin_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_spin_build, opts, &created, &impl);
    *out = (struct shmi_spinlock *)impl;
    *serial = shmi_serial_of(impl);
    if (err == 0 && !created && policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != (*out)->release) {
        shmi_unshare(a, (*out)->o.off, shmi_spin_end);
        *out = NULL;
        err = shmi_fail(EINVAL, op, name, "it has another policy");
    }
    return err;
}
int shmsync_spinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(0, a, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_spinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(1, a, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_rwspinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(0, a, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_rwspinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(1, a, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_spinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_spinlock *out)
{
    SHMI_BEGIN_AT(a, "spinlock.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), shmi_spin_build, NULL, &impl);
    out->impl = (struct shmi_spinlock *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
int shmsync_rwspinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_rwspinlock *out)
{
    SHMI_BEGIN_AT(a, "rwspinlock.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, sizeof(shmi_spin_words), shmi_spin_build, NULL, &impl);
    out->impl = (struct shmi_spinlock *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_spinlock_offset(const shmsync_spinlock *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
shmsync_offset shmsync_rwspinlock_offset(const shmsync_rwspinlock *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
int shmsync_spinlock_close(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(l->impl->a, l->impl->o.off, shmi_spin_end);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_rwspinlock_close(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(l->impl->a, l->impl->o.off, shmi_spin_end);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}

int shmsync_spinlock_lock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_lock(l->impl, 0));
}
int shmsync_spinlock_timedlock(shmsync_spinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_spin_lock(l->impl, ns));
}
int shmsync_spinlock_trylock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "spinlock.trylock");
    return SHMI_DONE(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_HELD));
}
int shmsync_spinlock_unlock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_release(l->impl, "spinlock.unlock", SHMI_SPIN_HELD, 0));
}
int shmsync_spinlock_recover(shmsync_spinlock *l, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_recover(l->impl, 0, repair, arg));
}
int shmsync_spinlock_state(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "spinlock.state");
    return SHMI_DONE(err != 0 ? err : shmi_spin_trouble(l->impl, "spinlock.state", shmi_spin_state(l->impl)));
}

int shmsync_rwspinlock_lock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_lock(l->impl, 0));
}
int shmsync_rwspinlock_timedlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_spin_lock(l->impl, ns));
}
SHMI_FN int shmi_rwspin_trylock(struct shmi_spinlock *l)
{
    shmi_rwspin_drain d = shmi_drain_lock(l);
    shmi_participant_id who = 0;
    int err = shmi_rwspin_reader(l, &who);
    if (err == 0 && who != 0)
        err = EBUSY;
    if (err == 0)
        err = shmi_spin_try(l, SHMI_SPIN_DRAINING);
    if (err != 0)
        return err;
    err = shmi_rwspin_reader(l, &who);
    if (err == 0 && who == 0)
        return shmi_rwspin_turn(l, d.from, d.to);
    shmi_rwspin_give_up(l, &d);
    return err != 0 ? err : EBUSY;
}
int shmsync_rwspinlock_trylock(shmsync_rwspinlock *lock)
{
    SHMI_OPENED(lock);
    struct shmi_spinlock *l = lock->impl;
    shmsync_arena *a = l->a;
    /* keeps the handle open, because the call may take back holds of dead readers, and so let other processes go on */
    int err = shmi_enter_for(l, a, "rwspinlock.trylock");
    if (err == 0) {
        err = shmi_rwspin_trylock(l);
        shmi_exit_for(l, a);
    }
    return SHMI_DONE(err);
}
int shmsync_rwspinlock_unlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_release(l->impl, "rwspinlock.unlock", SHMI_SPIN_HELD, 0));
}
SHMI_FN int shmi_rwspin_rdlock(struct shmi_spinlock *l, int64_t abs)
{
    int in = 0, err = shmi_use(l->a, "rwspinlock.rdlock");
    if (err == 0 && shmi_spin_state(l) == 0)
        err = shmi_rwspin_enter(l, &in);
    if (err == 0 && !in)
        err = shmi_spin_wait(l, SHMI_SPIN_READ, abs, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("rwspinlock.rlock.acquired");
    return err;
}
int shmsync_rwspinlock_rdlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_rwspin_rdlock(l->impl, 0));
}
int shmsync_rwspinlock_timedrdlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rwspin_rdlock(l->impl, ns));
}
int shmsync_rwspinlock_tryrdlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.tryrdlock");
    return SHMI_DONE(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_READ));
}
int shmsync_rwspinlock_rdunlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.rdunlock");
    if (err != 0)
        return SHMI_DONE(err);
    SHMSYNC_CRASHPOINT("rwspinlock.runlock.before_release");
    return SHMI_DONE(shmi_rwspin_exit(l->impl) ? 0 : shmi_fail(EPERM, "rwspinlock.rdunlock", l->impl->called, "this process has no read hold"));
}
SHMI_FN int shmi_rwspin_uplock(struct shmi_spinlock *l, int64_t abs)
{
    int err = shmi_use(l->a, "rwspinlock.uplock");
    if (err != 0 || shmi_cas32(&l->w->state, 0, shmi_spin_ours(l, SHMI_SPIN_UPGRADE)))
        return err;
    return shmi_spin_wait(l, SHMI_SPIN_UPGRADE, abs, 1);
}
int shmsync_rwspinlock_uplock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_rwspin_uplock(l->impl, 0));
}
int shmsync_rwspinlock_timeduplock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rwspin_uplock(l->impl, ns));
}
int shmsync_rwspinlock_tryuplock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.tryuplock");
    return SHMI_DONE(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_UPGRADE));
}
int shmsync_rwspinlock_upunlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_release(l->impl, "rwspinlock.upunlock", SHMI_SPIN_UPGRADE, 0));
}
/* Returns EPERM if this process has no hold of the given kind. EPROTO: the state word is not valid. */
SHMI_FN int shmi_rwspin_has(struct shmi_spinlock *l, const char *op, uint32_t kind)
{
    uint32_t o = shmi_spin_state(l);
    int err = shmi_use(l->a, op);
    if (err == 0 && o != shmi_spin_ours(l, kind))
        err = shmi_fail(shmi_spin_valid(l, o) ? EPERM : EPROTO, op, l->called, "%sstate word %#x", shmi_spin_valid(l, o) ? "this process has no such hold; " : "", o);
    return err;
}
SHMI_FN int shmi_rwspin_upgrade(struct shmi_spinlock *l, int64_t abs)
{
    shmsync_arena *a = l->a;
    int err = shmi_rwspin_has(l, "rwspinlock.upgrade", SHMI_SPIN_UPGRADE);
    if (err == 0)
        err = shmi_enter_for(l, a, "rwspinlock.upgrade");
    if (err != 0)
        return err;
    err = shmi_rwspin_drained(l, shmi_drain_upgrade(l), abs);
    shmi_exit_for(l, a);
    return err;
}
int shmsync_rwspinlock_upgrade(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_rwspin_upgrade(l->impl, 0));
}
int shmsync_rwspinlock_timedupgrade(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rwspin_upgrade(l->impl, ns));
}
int shmsync_rwspinlock_tryupgrade(shmsync_rwspinlock *lock)
{
    SHMI_OPENED(lock);
    struct shmi_spinlock *l = lock->impl;
    shmi_rwspin_drain d = shmi_drain_upgrade(l);
    shmi_participant_id who = 0;
    int err = shmi_rwspin_has(l, "rwspinlock.tryupgrade", SHMI_SPIN_UPGRADE);
    if (err == 0)
        err = shmi_rwspin_reader(l, &who);
    if (err == 0)
        err = who != 0 ? EBUSY : shmi_rwspin_turn(l, d.from, d.to);
    return SHMI_DONE(err);
}
/* Turns a hold of this process into a hold for reading. The parameter from is the kind of the old hold. The new hold
 * counts before the old one ends, so no writer gets the lock in between. */
SHMI_FN int shmi_rwspin_become_reader(struct shmi_spinlock *l, const char *op, uint32_t from)
{
    int err = shmi_rwspin_has(l, op, from);
    if (err == 0)
        err = shmi_rwspin_count(l);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("rwspinlock.downgrade.counted");
    return shmi_spin_release(l, op, from, 0);
}
int shmsync_rwspinlock_downgrade(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_rwspin_become_reader(l->impl, "rwspinlock.downgrade", SHMI_SPIN_HELD));
}
int shmsync_rwspinlock_downgrade_to_read(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_rwspin_become_reader(l->impl, "rwspinlock.downgrade_to_read", SHMI_SPIN_UPGRADE));
}
int shmsync_rwspinlock_downgrade_to_upgradable(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_release(l->impl, "rwspinlock.downgrade_to_upgradable", SHMI_SPIN_HELD, shmi_spin_ours(l->impl, SHMI_SPIN_UPGRADE)));
}
int shmsync_rwspinlock_recover(shmsync_rwspinlock *l, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_spin_recover(l->impl, 0, repair, arg));
}
int shmsync_rwspinlock_state(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int bad, err = shmi_use(l->impl->a, "rwspinlock.state");
    if (err == 0)
        err = shmi_spin_trouble(l->impl, "rwspinlock.state", shmi_spin_state(l->impl));
    if (err == 0 || err == EOWNERDEAD || err == ENOTRECOVERABLE) { /* as in Go, a corrupt list takes precedence over a death */
        (void)shmi_rwspin_up_to(l->impl, &bad);
        if (bad)
            err = shmi_fail(EPROTO, "rwspinlock.state", l->impl->called, "its list of slot records");
    }
    return SHMI_DONE(err);
}

/* ---- The functions of a reaper ---- */
SHMI_FN int shmi_spin_whole(const shmi_object *o) { return o->size >= sizeof(shmi_spin_words); }
SHMI_FN int shmi_repair_spin(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_spinlock l;
    shmi_record_walk v;
    uint32_t s;
    int tries;
    if (!shmi_spin_whole(o))
        return 0;
    shmi_spin_view(&l, a, o);
    for (shmi_walk_records(a, &v, o->off, sizeof(shmi_rwspin_record)); l.readers && shmi_next_record(a, &v);) {
        uint64_t *count, c;
        if (v.slot != shmi_id_slot(dead))
            continue;
        count = shmi_rwspin_count_in(&l, &v);
        for (tries = 0, c = shmi_ld64(count); tries < SHMI_REAP_TRIES && c != 0 && shmi_reaps(a, dead, shmi_count_name(c));
             tries++, c = shmi_ld64(count))
            if (shmi_take_from64(a, shmi_count_name(c), count, c, 0, 0)) {
                shmi_wake_word_wake_all(a, &l.drained);
                break;
            }
        break;
    }
    for (tries = 0, s = shmi_spin_state(&l);
         tries < SHMI_REAP_TRIES && shmi_spin_held(s) && shmi_reaps(a, dead, shmi_owner_name(s));
         tries++, s = shmi_spin_state(&l))
        if (!shmi_spin_mark_owner_dead(&l, s))
            break;
    return 1;
}
SHMI_FN void shmi_wake_spin(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_spinlock l;
    if (!shmi_spin_whole(o))
        return;
    shmi_spin_view(&l, a, o);
    if (owed == SHMI_OWED_ALL || shmi_spin_ends_waits(&l, shmi_spin_state(&l))) /* see shmi_mutex_wake_words */
        shmi_wake_word_wake_all(a, &l.next);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&l.next))
        shmi_wake_word_wake_one(a, &l.next);
    if (!l.readers)
        return;
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&l.gate))
        shmi_wake_word_wake_all(a, &l.gate);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&l.drained))
        shmi_wake_word_wake_all(a, &l.drained);
}
