SHMI_FN int shmi_mutex_fail(shmi_mutex *m, int err, const char *op, shmi_participant_id who)
{
    return shmi_fail_who(m->a, err, op, m->called, who);
}
SHMI_FN shmi_participant_id shmi_mutex_died(shmi_mutex *m) { return shmi_ld32(&m->w->died) & SHMI_NAME_MASK; }

/* The owner word that replaces o after the participant that o names was found dead. With SHMI_POLICY_RELEASE the word
 * stays o until that participant is gone. */
SHMI_FN uint32_t shmi_owner_died(uint32_t o, int release, int gone)
{
    if (shmi_owner_kind(o) == SHMI_kindReserved)
        return 0;
    if (!shmi_owner_held(o))
        return o;
    if (release && shmi_owner_kind(o) != SHMI_kindRecovering)
        return gone ? 0 : o;
    return shmi_make_owner(SHMI_kindOwnerDead, shmi_owner_name(o));
}

SHMI_FN shmi_wait_list shmi_mutex_wait_list(shmi_mutex_words *w)
{
    shmi_wait_list l;
    l.word = &w->wake;
    l.poller = &w->poller;
    return l;
}

/* Ends the unfinished transaction of the dead holder that the owner word o names, and makes the mutex free. Returns 0
 * if that holder is not gone. If a peer has overwritten the log with impossible bytes, the mutex becomes not
 * recoverable. */
SHMI_FN int shmi_mutex_roll_back(shmsync_arena *a, shmi_mutex_words *w, uint32_t o, const shmi_log *log)
{
    shmi_participant_id dead = shmi_owner_name(o);
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, a->self);
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (!shmi_gone(a, dead))
        return 0; /* a system call of the holder may still write the bytes that the log would restore */
    if (shmi_owner_kind(o) != SHMI_kindRecovering)
        shmi_log_disown(a, log, &w->owner, o, dead);
    if (!shmi_take_from32(a, dead, &w->owner, o, recovering, 1))
        return 1;
    SHMSYNC_CRASHPOINT("tx.rollback.taken");
    if (shmi_log_end_dead(a, log) != 0) {
        shmi_st32(&w->died, dead);
        shmi_log_lose(log);
        shmi_cas32(&w->owner, recovering, SHMI_OWNER_NOT_RECOVERABLE);
        shmi_wake_word_wake_all(a, &l);
        return 1;
    }
    shmi_cas32(&w->owner, recovering, 0);
    SHMSYNC_CRASHPOINT("tx.rollback.released");
    shmi_wake_word_wake_one(a, &l);
    return 1;
}

/* Replaces the owner word o, whose participant was found dead. Returns 0 if the word must stay o until that participant
 * is gone, which is never the case for an internal mutex. */
SHMI_FN int shmi_mark_owner_dead(shmsync_arena *a, shmi_mutex_words *w, uint32_t o, int internal, const shmi_log *log)
{
    uint32_t policy = __atomic_load_n(&w->policy, __ATOMIC_RELAXED) & 0xff, next;
    int release = policy == SHMI_POLICY_RELEASE;
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (log != NULL && policy == SHMI_POLICY_ROLLBACK && shmi_owner_held(o))
        return shmi_mutex_roll_back(a, w, o, log);
    next = shmi_owner_died(o, release, internal || (release && shmi_gone(a, shmi_owner_name(o))));
    if (next == o)
        return 0;
    if (!shmi_take_from32(a, shmi_owner_name(o), &w->owner, o, next, !internal && next == 0 && shmi_owner_held(o)))
        return 1;
    SHMSYNC_CRASHPOINT("mutex.owner_dead.marked");
    if (shmi_owner_kind(next) == SHMI_kindOwnerDead)
        shmi_wake_word_wake_all(a, &l);
    else
        shmi_wake_word_wake_one(a, &l);
    return 1;
}

SHMI_FN void shmi_mutex_repair_words(shmsync_arena *a, shmi_mutex_words *w, shmi_participant_id dead, int internal, const shmi_log *log)
{
    uint32_t s = shmi_ld32(&w->starving), tries;
    if (shmi_reaps(a, dead, s & SHMI_NAME_MASK))
        shmi_cas32(&w->starving, s, 0);
    for (tries = 0; tries < 64; tries++) { /* bounded, because a peer may write the word again and again */
        uint32_t o = shmi_ld32(&w->owner);
        if (!shmi_reaps(a, dead, shmi_owner_name(o)) || (!shmi_owner_held(o) && shmi_owner_kind(o) != SHMI_kindReserved))
            return;
        if (!shmi_mark_owner_dead(a, w, o, internal, log))
            return;
    }
}

/* If the owner word ends all waits, the dead process may have been about to wake all waiters, so this function wakes
 * them all. One wake would not be enough: the woken waiter passes the wake on, but may be stopped before it does so. */
SHMI_FN void shmi_mutex_wake_words(shmsync_arena *a, shmi_mutex_words *w, int owed)
{
    uint32_t o = shmi_ld32(&w->owner);
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (shmi_owner_kind(o) == SHMI_kindReserved) {
        /* The dead process may have made the reservation for a waiter that has given up. A reservation is no hold, so
         * this process may take it back, and then wakes another waiter. */
        shmi_cas32(&w->owner, o, 0);
        if (owed < SHMI_OWED_ONE)
            owed = SHMI_OWED_ONE;
    } else if (shmi_owner_ends_waits(o)) {
        owed = SHMI_OWED_ALL;
    }
    if (owed == SHMI_OWED_ALL)
        shmi_wake_word_wake_all(a, &l);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&l))
        shmi_wake_word_wake_one(a, &l);
}

SHMI_FN int shmi_mutex_kind_repair(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    shmi_log log;
    if (w == NULL)
        return 0;
    shmi_log_of(a, o, sizeof *w, &log);
    if (o->kind == SHMI_MUTEX_KIND && (shmi_ld32(&w->policy) & 0xff) == SHMI_POLICY_ROLLBACK && log.head == NULL)
        return 0; /* no process can open such an object */
    shmi_mutex_repair_words(a, w, dead, 0, o->kind == SHMI_MUTEX_KIND ? &log : NULL);
    return 1;
}
SHMI_FN int shmi_mutex_kind_unfinished(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    shmi_log log;
    if (w == NULL || (shmi_ld32(&w->policy) & 0xff) != SHMI_POLICY_ROLLBACK || !shmi_owner_held(shmi_ld32(&w->owner)))
        return 0;
    shmi_log_of(a, o, sizeof *w, &log);
    return shmi_log_names(a, &log, dead);
}
SHMI_FN void shmi_mutex_kind_wake(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    if (w != NULL)
        shmi_mutex_wake_words(a, w, owed);
}

SHMI_FN void shmi_mutex_note(shmi_mutex *m)
{
    shmi_tuning t;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    shmi_note_cpu(&t);
}

/* The state of a call that waits for the mutex. */
typedef struct shmi_mutex_wait {
    shmi_mutex *m;
    int64_t deadline;
    int64_t since; /* the time at which the first sleep began */
    int64_t ask;   /* see shmi_next_ask */
    int slept, starving;
} shmi_mutex_wait;

enum { SHMI_STEP_STAY, SHMI_STEP_TOOK, SHMI_STEP_CHANGED };

/* As shmi_mark_owner_dead, for a call through a handle and for the death watcher. A close of the arena does rollbacks,
 * too, and two rollbacks must not run at the same time. So this function counts itself as a call of the arena during a
 * rollback. If the arena is being closed, it does nothing and returns 0, because the close does the rollback.
 *
 * The function counts itself as a call of the arena only, and not as a call of the handle. Otherwise the death watcher
 * could become the thread that ends the opening, and shmi_await_look would wait for the watcher's own check. */
SHMI_FN int shmi_mutex_meet_dead(shmi_mutex *m, uint32_t o)
{
    int changed;
    if (!m->rollback)
        return shmi_mark_owner_dead(m->a, m->w, o, m->internal, NULL);
    if (shmi_enter(m->a, NULL) != 0)
        return 0;
    changed = shmi_mark_owner_dead(m->a, m->w, o, m->internal, &m->log);
    shmi_exit(m->a);
    return changed;
}

/* Whether the last reservation is so old that any waiter may take the lock, because the process for which the lock is
 * reserved may be stopped. */
SHMI_FN int shmi_mutex_expired(shmi_mutex *m)
{
    const int64_t most = 100000000; /* ns */
    int64_t ago = shmi_now() - (int64_t)(shmi_ld64(&m->w->handed) & ~SHMI_HANDED_LOCALLY);
    return ago < 0 || ago > most;
}

/* Makes one attempt to take the lock, whose owner word is o, without waiting. If the lock is reserved for this process,
 * only a waiter that has slept takes it. *err is set if the lock cannot become free before a process recovers it. */
SHMI_FN int shmi_mutex_step(shmi_mutex *m, uint32_t o, int slept, int *err)
{
    uint32_t kind = shmi_owner_kind(o);
    shmi_participant_id self = shmi_self(m->a), name = shmi_owner_name(o);
    *err = 0;
    if (o == 0)
        return shmi_cas32(m->own, 0, self | __atomic_load_n(&m->bias, __ATOMIC_RELAXED)) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    if (!shmi_owner_valid(o)) {
        *err = EPROTO;
    } else if (o == SHMI_OWNER_NOT_RECOVERABLE) {
        *err = ENOTRECOVERABLE;
    } else if (kind == SHMI_kindOwnerDead) {
        *err = EOWNERDEAD;
    } else if (kind == SHMI_kindReserved && shmi_mutex_expired(m)) {
        return shmi_cas32(m->own, o, self) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    } else if (kind == SHMI_kindReserved && name == self) {
        if (!slept)
            return SHMI_STEP_STAY;
        return shmi_cas32(m->own, o, self) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    } else if (shmi_dead(m->a, name) && shmi_mutex_meet_dead(m, o)) {
        return SHMI_STEP_CHANGED;
    }
    return SHMI_STEP_STAY;
}

SHMI_COLD int shmi_mutex_report(shmi_mutex *m, int err, uint32_t o)
{
    switch (err) {
    case EPROTO: return shmi_fail(EPROTO, "mutex.lock", m->called, "owner word %#010x", o);
    case ENOTRECOVERABLE: return shmi_mutex_fail(m, err, "mutex.lock", shmi_mutex_died(m));
    case EOWNERDEAD: return shmi_mutex_fail(m, err, "mutex.lock", shmi_owner_name(o));
    }
    return err;
}

SHMI_COLD int shmi_mutex_trylock_slow(shmi_mutex *m)
{
    int tries, err, counted = 0, result = EBUSY;
    if (shmi_self(m->a) == 0)
        return shmi_fail(shmi_nameless(m->a), "mutex.trylock", m->called, "%s", "");
    for (tries = 0; tries < 1000; tries++) { /* bounded, because a hostile peer could change the word for ever */
        uint32_t o = shmi_ld32(m->own);
        shmi_participant_id n = shmi_owner_name(o);
        int step;
        if (!counted && n != 0 && n != m->a->self) {
            if (shmi_owner_kind(o) == SHMI_kindReserved || shmi_dead(m->a, n)) {
                /* This call may be the first to find the death, and may free the lock. Then the next holder may close
                 * the handle while this call still uses it. So this call counts itself until it returns. It also does
                 * so if the lock is reserved, because shmi_mutex_step may find a death then. */
                counted = shmi_enter_late(shmi_mutex_thing(m), m->a);
                if (!counted)
                    return EBUSY;
            } else if (shmi_owner_valid(o) && shmi_owner_held(o)) {
                return EBUSY; /* shmi_mutex_step would not take the lock either */
            }
        }
        step = shmi_mutex_step(m, o, 0, &err);
        if (step == SHMI_STEP_CHANGED)
            continue;
        if (step == SHMI_STEP_TOOK)
            result = 0;
        else if (err != 0)
            result = shmi_mutex_report(m, err, o);
        break;
    }
    if (counted)
        shmi_exit_for(shmi_mutex_thing(m), m->a);
    return result;
}

/* Whether o is a hold of a process that is dead but not gone, and the policy keeps the hold until the process is gone.
 */
SHMI_FN int shmi_mutex_kept(shmi_mutex *m, uint32_t o)
{
    if (!m->rollback && (!m->release || shmi_owner_kind(o) == SHMI_kindRecovering))
        return 0;
    return !m->internal && shmi_owner_valid(o) && shmi_owner_held(o) &&
           !shmi_current(m->a, shmi_owner_name(o)) && !shmi_gone(m->a, shmi_owner_name(o));
}
/* Whether a waiter may sleep while the owner word is o: either the next change of the word wakes the waiter, or a dead
 * process keeps the hold until it is gone. */
SHMI_FN int shmi_mutex_blocks(shmi_mutex *m, uint32_t o, int slept)
{
    if (!shmi_owner_valid(o))
        return 0;
    if (shmi_owner_held(o))
        return shmi_current(m->a, shmi_owner_name(o)) || shmi_mutex_kept(m, o);
    if (shmi_owner_kind(o) == SHMI_kindReserved)
        return (shmi_owner_name(o) != shmi_self(m->a) || !slept) && shmi_current(m->a, shmi_owner_name(o));
    return 0;
}

/* Records, for tools, a time at which the hold existed. The caller has announced itself, and has then seen the hold.
 * The owner word o and the announced wake word v identify the hold. *met_since only grows, so no reader mistakes the
 * time of an earlier hold for the time of this hold. */
SHMI_FN void shmi_meet_hold(uint64_t *met_since, uint64_t *met_hold, uint32_t o, uint32_t v)
{
    const uint64_t hold = (uint64_t)o << 32 | v;
    uint64_t now, old;
    int i;
    if (shmi_ld64(met_hold) == hold)
        return; /* another waiter has recorded a time for this hold */
    now = (uint64_t)shmi_now(); /* read after the caller saw the hold, which therefore began earlier */
    for (i = 0; i < 4; i++) { /* other waiters write the time, too; if all tries fail, the age of the hold stays unknown */
        old = shmi_ld64(met_since);
        if ((old >= now && old - now < SHMI_METFUTURE) || shmi_cas64(met_since, old, now)) {
            shmi_st64(met_hold, hold);
            return;
        }
    }
}
SHMI_FN void shmi_mutex_meet(shmi_mutex *m, uint32_t o, uint32_t v)
{
    if (shmi_owner_held(o))
        shmi_meet_hold(&m->w->metSince, &m->w->metHold, o, v);
}
/* Records the time of the present hold of m, as a waiter does. The caller does not wait for m, but for something else
 * that the holder of m has. Its announcement makes the next unlock send a wake, perhaps in vain. */
SHMI_FN void shmi_mutex_date_hold(shmi_mutex *m)
{
    uint32_t v = shmi_wake_word_announce(&m->line), o = shmi_ld32(m->own);
    if (shmi_ld64(&m->w->metHold) == ((uint64_t)o << 32 | v))
        return;
    if (shmi_owner_kind(o) == SHMI_kindBiased && shmi_owner_valid(o)) {
        /* Without this fence, the holder may release the mutex without seeing the announcement. */
        if (shmi_fence() != 0)
            return;
        o = shmi_ld32(m->own);
    }
    shmi_mutex_meet(m, o, v);
}

/* Ends a wait that has got the lock. The wake of this waiter has cleared the announcement, and other waiters may be
 * asleep, so this function announces them again. */
SHMI_FN void shmi_mutex_took(shmi_mutex_wait *w)
{
    if (w->slept)
        shmi_mutex_meet(w->m, shmi_ld32(w->m->own), shmi_wake_word_announce(&w->m->line)); /* for the other waiters */
    if (w->starving)
        shmi_cas32(&w->m->w->starving, shmi_self(w->m->a), 0);
}

/* Ends a wait that has not got the lock. This waiter may have used up a wake, so the call makes sure that another wake
 * reaches the remaining waiters. */
SHMI_FN void shmi_mutex_leave_wait(shmi_mutex_wait *w)
{
    shmi_mutex *m = w->m;
    uint32_t self = m->a->self, reserved = shmi_make_owner(SHMI_kindReserved, self), o;
    int gave_back;
    SHMSYNC_CRASHPOINT("mutex.lock.leaving");
    if (w->starving)
        shmi_cas32(&m->w->starving, self, 0);
    gave_back = shmi_ld32(m->own) == reserved && shmi_cas32(m->own, reserved, 0);
    if (!w->slept && !gave_back)
        return;
    shmi_wake_word_announce(&m->line);
    o = shmi_ld32(m->own);
    if (shmi_owner_kind(o) == SHMI_kindBiased && shmi_owner_valid(o)) {
        shmi_fence();
        o = shmi_ld32(m->own);
    }
    if (!shmi_mutex_blocks(m, o, 1))
        shmi_wake_word_release(m->a, &m->line);
}

typedef struct shmi_mutex_spin {
    uint32_t *own;
    shmi_participant_id self;
    int slept;
} shmi_mutex_spin;
SHMI_FN int shmi_mutex_spun(void *arg)
{
    shmi_mutex_spin *s = (shmi_mutex_spin *)arg;
    uint32_t o = shmi_ld32(s->own);
    return !shmi_owner_held(o) && (shmi_owner_kind(o) != SHMI_kindReserved || (shmi_owner_name(o) == s->self && s->slept));
}
SHMI_FN int shmi_mutex_spin_while_held(shmi_mutex *m, int slept)
{
    shmi_mutex_spin s;
    shmi_tuning t;
    if (shmi_wake_word_announced(&m->line))
        return 0; /* other waiters are queued: spinning would only overtake them */
    s.own = m->own;
    s.self = m->a->self;
    s.slept = slept;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return shmi_spin(&t, shmi_mutex_spun, &s);
}

SHMI_FN void shmi_mutex_check_arg(void *m) { shmi_mutex_check((shmi_mutex *)m); }

/* Announces the waiter, reads the owner word again, and sleeps. */
SHMI_FN int shmi_mutex_sleep(shmi_mutex_wait *w)
{
    shmi_mutex *m = w->m;
    shmi_participant_id self = m->a->self;
    int64_t now = shmi_now(), ago;
    shmi_sleep_spec sleep_spec;
    uint32_t v, o;
    int r;
    if (w->since == 0)
        w->since = now;
    memset(&sleep_spec, 0, sizeof sleep_spec);
    sleep_spec.looked = &m->looked;
    ago = now - (int64_t)shmi_ld64(&m->w->handed);
    if ((shmi_ld64(&m->w->handed) & SHMI_HANDED_LOCALLY) != 0)
        ago = -1; /* after a handoff between threads of one process, the next handoff need not be delayed */
    if (w->slept && now - w->since > SHMI_STARVE_AFTER && (ago < 0 || ago > SHMI_HAND_OFF_EVERY)) {
        /* Only one process at a time can ask for the handoff. If another process asks, this waiter stays an ordinary
         * waiter. This waiter asks before each sleep, because another thread of this process may have got the handoff
         * for which this waiter asked. */
        w->starving = shmi_ld32(&m->w->starving) == self || shmi_cas32(&m->w->starving, 0, self);
        if (w->starving)
            SHMSYNC_CRASHPOINT("mutex.lock.starving");
    }
    if (w->starving) {
        sleep_spec.other = &m->w->handoff;
        sleep_spec.other_is = shmi_ld32(&m->w->handoff);
    }
    v = shmi_wake_word_announce(&m->line);
    SHMSYNC_CRASHPOINT("mutex.lock.announced");
    o = shmi_ld32(m->own);
    if (shmi_owner_kind(o) == SHMI_kindBiased && shmi_owner_valid(o)) {
        /* The holder may release without seeing the announcement. After the fence, either the holder sees the
         * announcement or this thread sees the release. */
        if (shmi_fence() != 0)
            sleep_spec.bounded = SHMI_UNFENCED_SLEEP;
        o = shmi_ld32(m->own);
    }
    if (!shmi_mutex_blocks(m, o, w->slept))
        return SHMI_AGAIN;
    w->slept = 1;
    shmi_mutex_meet(m, o, v);
    sleep_spec.word = m->wake;
    sleep_spec.val = v;
    sleep_spec.object = m->object;
    sleep_spec.wanted = v;
    sleep_spec.owner = shmi_owner_name(o);
    if (!shmi_current(m->a, sleep_spec.owner)) { /* no event wakes the waiter when the dead owner is gone, so the waiter checks that itself */
        shmi_follow(m->a);
        sleep_spec.bounded = shmi_next_ask(&w->ask);
        sleep_spec.owner = 0;
    }
    sleep_spec.deadline = w->deadline;
    sleep_spec.since = &w->since;
    sleep_spec.check = shmi_mutex_check_arg;
    sleep_spec.check_arg = m;
    r = shmi_sleep(m->a, &sleep_spec);
    SHMSYNC_CRASHPOINT("mutex.lock.woken");
    return r;
}

/* The periodic check, ten times a second. It makes up for wakes that a stopped or dead process has not sent. */
SHMI_FN void shmi_mutex_check(shmi_mutex *m)
{
    uint32_t o;
    if (!shmi_check_due(&m->looked))
        return;
    o = shmi_ld32(m->own);
    if (o == 0) {
        shmi_wake_word_wake_one(m->a, &m->line);
    } else if (shmi_owner_ends_waits(o)) {
        shmi_wake_word_wake_all(m->a, &m->line);
    } else if (shmi_dead(m->a, shmi_owner_name(o))) {
        shmi_mutex_meet_dead(m, o);
    } else if (shmi_owner_kind(o) == SHMI_kindReserved) {
        if (shmi_xchg32(&m->reserved, o) == o && shmi_cas32(m->own, o, 0))
            /* The last check found the same reservation, so the process that has it may be stopped. A reservation is
             * no hold, so this check takes it back. */
            shmi_wake_word_wake_one(m->a, &m->line);
        o = UINT32_MAX;
    } else {
        /* The waiter that was woken last should have announced the remaining waiters, but may have been stopped before
         * it could. So this process announces them. */
        shmi_wake_word_announce(&m->line);
    }
    if (o != UINT32_MAX)
        shmi_st32(&m->reserved, 0);
}

/* Runs a repair while this process is recovering m. If the repair fails, m becomes not recoverable. */
SHMI_FN int shmi_mutex_run_repair(shmi_mutex *m, int (*repair)(void *), void *arg)
{
    shmi_participant_id who = shmi_mutex_died(m);
    int bad = shmi_call_repair(repair, arg);
    SHMSYNC_CRASHPOINT("mutex.recover.repaired");
    if (bad == 0)
        return 0;
    shmi_cas32(m->own, shmi_make_owner(SHMI_kindRecovering, m->a->self), SHMI_OWNER_NOT_RECOVERABLE);
    SHMSYNC_CRASHPOINT("mutex.recover.lost");
    shmi_wake_word_wake_all(m->a, &m->line);
    return shmi_mutex_fail(m, ENOTRECOVERABLE, "mutex.recover", who);
}

/* Ends a repair that succeeded: the owner word gets the value of the parameter next. EPROTO: the owner word no longer
 * said that this process is recovering m, so another process may have repaired m, too, or may be using m. */
SHMI_FN int shmi_mutex_repaired(shmi_mutex *m, uint32_t next)
{
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, m->a->self), o = shmi_ld32(m->own);
    if (o == recovering) {
        shmi_st32(&m->w->died, 0);
        if (m->log.head != NULL)
            shmi_log_store(m->log.head, 0);
        if (shmi_cas32(m->own, recovering, next))
            return 0;
        o = shmi_ld32(m->own);
    }
    return shmi_fail(EPROTO, "mutex.recover", m->called, "it was overwritten during the repair, and is now %#010x", o);
}

/* Called when this process has taken the mutex in order to recover it. o is the owner word that it found. If o names a
 * dead process, the call stores the ID of that process in m->w->died. Only a process that has the mutex stores there:
 * see the function taken in prims/mutex_repair.go. */
SHMI_FN void shmi_mutex_taken(shmi_mutex *m, uint32_t o)
{
    SHMSYNC_CRASHPOINT("mutex.recover.taken");
    if (shmi_owner_name(o) != 0)
        shmi_st32(&m->w->died, shmi_owner_name(o));
    shmi_log_lose(&m->log);
}
SHMI_FN int shmi_mutex_inherit(shmi_mutex *m, uint32_t o, int *err)
{
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, m->a->self);
    *err = 0;
    if (shmi_owner_kind(o) != SHMI_kindOwnerDead || !shmi_owner_valid(o) ||
        !(m->internal ? shmi_cas32(m->own, o, recovering) : shmi_take_from32(m->a, shmi_owner_name(o), m->own, o, recovering, 1)))
        return 0;
    shmi_mutex_taken(m, o);
    *err = shmi_mutex_run_repair(m, m->repair, m->repair_arg);
    if (*err == 0)
        *err = shmi_mutex_repaired(m, m->a->self);
    return *err == 0;
}

/* Waits for the lock. The caller has called shmi_enter. */
SHMI_FN int shmi_mutex_acquire(shmi_mutex_wait *w, int may_repair)
{
    shmi_mutex *m = w->m;
    int spun = 0, err, tries;
    for (;;) {
        uint32_t o = shmi_ld32(m->own);
        int step = shmi_mutex_step(m, o, w->slept, &err);
        if (step == SHMI_STEP_TOOK) {
            shmi_mutex_took(w);
            return 0;
        }
        if (err != 0) {
            if (may_repair && m->repair != NULL && err == EOWNERDEAD) {
                err = m->internal ? 0 : shmi_await_gone32(m->a, shmi_owner_name(o), m->own, o, "mutex.lock", m->called, w->deadline);
                if (err == 0 && shmi_mutex_inherit(m, o, &err)) {
                    shmi_mutex_took(w);
                    return 0;
                }
                if (err == 0)
                    continue;
            } else {
                shmi_mutex_report(m, err, o);
            }
            shmi_mutex_leave_wait(w);
            return err;
        }
        if (step == SHMI_STEP_CHANGED)
            continue;
        if (!spun) {
            spun = 1;
            if (shmi_current(m->a, shmi_owner_name(o)) && shmi_mutex_spin_while_held(m, w->slept))
                continue;
        }
        switch (shmi_mutex_sleep(w)) {
        case SHMI_AGAIN:
            spun = 0;
            break;
        case SHMI_LOOK:
            shmi_mutex_check(m);
            spun = 0;
            break;
        case SHMI_LATE:
            /* A free lock takes precedence over the deadline: otherwise the wake that was sent to this waiter would be
             * lost. */
            for (tries = 0; tries < 1000; tries++) {
                step = shmi_mutex_step(m, shmi_ld32(m->own), w->slept, &err);
                if (step == SHMI_STEP_TOOK) {
                    shmi_mutex_took(w);
                    return 0;
                }
                if (step == SHMI_STEP_STAY)
                    break;
            }
            if (err == EOWNERDEAD && may_repair && m->repair != NULL)
                break; /* a lock that this call may repair takes precedence, too, if the dead holder is gone */
            shmi_mutex_leave_wait(w);
            return shmi_brief(ETIMEDOUT, "mutex.lock", m->called);
        case SHMI_CLOSED:
            shmi_mutex_leave_wait(w);
            return shmi_fail(EBADF, "mutex.lock", m->called, "this process closed the arena");
        }
    }
}

SHMI_COLD int shmi_mutex_lock_slow(shmi_mutex *m, int64_t deadline)
{
    shmi_mutex_wait w;
    shmsync_arena *a = m->a;
    int err = shmi_enter_for(shmi_mutex_thing(m), a, "mutex.lock");
    if (err != 0)
        return err;
    memset(&w, 0, sizeof w);
    w.m = m;
    w.deadline = deadline;
    err = shmi_mutex_acquire(&w, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("mutex.lock.acquired");
    shmi_exit_for(shmi_mutex_thing(m), a);
    return err;
}

/* Hands the lock to a waiter that has waited for long and asks for a handoff. The parameter from is the owner word:
 * either 0, or a word that says that this process holds the lock. Returns 1 if it has handed the lock over. Returns 0
 * if no waiter asks, or if another process has taken the free lock first. Returns -1 if the owner word was not 0 and is
 * no longer from. */
SHMI_FN int shmi_mutex_reserve(shmi_mutex *m, uint32_t from)
{
    uint32_t asks = shmi_ld32(&m->w->starving), reserved;
    shmi_participant_id s = asks & SHMI_NAME_MASK;
    if (asks == 0)
        return 0;
    if (!shmi_current(m->a, s)) {
        shmi_cas32(&m->w->starving, asks, 0);
        return 0;
    }
    reserved = shmi_make_owner(SHMI_kindReserved, s);
    /* The time is stored before the owner word changes. In the other order, other processes could judge the new
     * reservation by an old time. */
    shmi_st64(&m->w->handed, (uint64_t)shmi_now() & ~SHMI_HANDED_LOCALLY);
    if (!shmi_cas32(m->own, from, reserved))
        return from == 0 ? 0 : -1;
    SHMSYNC_CRASHPOINT("mutex.unlock.reserved");
    if (!shmi_cas32(&m->w->starving, s, 0)) {
        /* The waiter has given up, perhaps before it could see the reservation. So this process takes the reservation
         * back. */
        shmi_cas32(m->own, reserved, 0);
        shmi_wake_word_release(m->a, &m->line);
        return 1;
    }
    shmi_mutex_note(m);
    shmi_add32(&m->w->handoff, 1);
    shmi_wake(&m->w->handoff, SHMI_ALL);
    /* The waiter may be a thread that is about to sleep: the change of the wake word keeps it awake. Or it may be a
     * goroutine that is parked while its poller sleeps: then its poller wakes it. */
    shmi_wake_word_touch(&m->line);
    shmi_ready_of(m->a, &m->w->poller, s);
    return 1;
}

/* Wakes a waiter after a release, or hands the lock to a waiter. */
SHMI_COLD void shmi_mutex_wake_after(shmi_mutex *m)
{
    SHMSYNC_CRASHPOINT("mutex.unlock.before_wake");
    if (!shmi_enter_late(shmi_mutex_thing(m), m->a))
        return;
    if (shmi_mutex_reserve(m, 0) == 0) {
        shmi_mutex_note(m);
        shmi_wake_word_release(m->a, &m->line);
    }
    shmi_exit_for(shmi_mutex_thing(m), m->a);
}
/* As shmi_mutex_reserve, for a lock that this process holds with the owner word o. The next holder may close the handle
 * as soon as it has the lock, while this call still uses the handle. So this call counts itself. */
SHMI_COLD int shmi_mutex_hand_on(shmi_mutex *m, uint32_t o)
{
    int result;
    if (!shmi_enter_late(shmi_mutex_thing(m), m->a))
        return 0;
    result = shmi_mutex_reserve(m, o);
    shmi_exit_for(shmi_mutex_thing(m), m->a);
    return result;
}
/* Sends the wakes that unlocks did not send because the opening was ending: see shmi_enter_late. */
SHMI_FN void shmi_mutex_wake_owed(shmi_mutex *m)
{
    if (!shmi_unmapped(m->a) && shmi_wake_word_announced(&m->line) && shmi_ld32(m->own) == 0)
        shmi_wake_word_release(m->a, &m->line);
}

/* Ends the release of a biased hold that found a waiter. The waiter has called shmi_fence, which is expensive. So the
 * next holds are not biased for a while. */
SHMI_SELDOM void shmi_mutex_lose_bias(shmi_mutex *m)
{
    uint32_t need = __atomic_load_n(&m->need, __ATOMIC_RELAXED);
    __atomic_store_n(&m->bias, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&m->need, 2 * need < SHMI_biasMost ? 2 * need : (uint32_t)SHMI_biasMost, __ATOMIC_RELAXED);
    shmi_mutex_wake_after(m);
}

SHMI_COLD int shmi_mutex_bad_unlock(shmi_mutex *m, uint32_t o)
{
    if (!shmi_owner_valid(o))
        return shmi_fail(EPROTO, "mutex.unlock", m->called, "owner word %#010x", o);
    if (o == 0)
        return shmi_fail(EPERM, "mutex.unlock", m->called, "no process holds it");
    return shmi_fail(EPERM, "mutex.unlock", m->called, "this process does not hold it (owner word %#010x)", o);
}

SHMI_COLD int shmi_mutex_unlock_slow(shmi_mutex *m, uint32_t o)
{
    shmi_participant_id self = shmi_self(m->a);
    if (self == 0)
        return shmi_fail(shmi_nameless(m->a), "mutex.unlock", m->called, "%s", "");
    if (o != self)
        return shmi_mutex_bad_unlock(m, o);
    SHMSYNC_CRASHPOINT("mutex.unlock.before_release");
    if (m->bias_most != 0) { /* while this process still holds the lock, it decides whether holds become biased again */
        int waited = shmi_wake_word_announced(&m->line);
        uint32_t quiet = waited ? 0 : __atomic_load_n(&m->quiet, __ATOMIC_RELAXED) + 1;
        if (quiet >= __atomic_load_n(&m->need, __ATOMIC_RELAXED) && __atomic_load_n(&m->a->fenced, __ATOMIC_ACQUIRE)) {
            quiet = 0;
            __atomic_store_n(&m->bias, m->bias_most, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&m->quiet, quiet, __ATOMIC_RELAXED);
    }
    switch (shmi_ld32(&m->w->starving) != 0 ? shmi_mutex_hand_on(m, o) : 0) {
    case 1: return 0;
    case -1: return shmi_mutex_bad_unlock(m, shmi_ld32(m->own));
    }
    if (!shmi_cas32(m->own, o, 0))
        return shmi_mutex_bad_unlock(m, shmi_ld32(m->own));
    if (shmi_wake_word_announced(&m->line))
        shmi_mutex_wake_after(m);
    return 0;
}

/* ---- The mutex of the API ---- */

SHMI_FN void shmi_mutex_init_body(unsigned char *body, const void *arg)
{
    const shmsync_mutex_options *o = (const shmsync_mutex_options *)arg;
    shmi_mutex_words *w = (shmi_mutex_words *)(void *)body;
    if (o == NULL)
        return;
    w->policy = shmi_policy_field(o->policy);
    w->spin = shmi_spin_field(o->spin_ns);
    if (w->policy == SHMI_POLICY_ROLLBACK)
        ((shmi_log_head *)(void *)(body + sizeof *w))->size = (uint32_t)shmi_log_size(o->log_bytes);
}

SHMI_FN void *shmi_mutex_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_mutex_options *opt = (const shmsync_mutex_options *)arg;
    shmi_mutex *m = (shmi_mutex *)shmi_new_thing(sizeof *m);
    if (m == NULL)
        return NULL;
    shmi_mutex_init(m, a, (shmi_mutex_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 64), o->off, "", 0);
    m->o = *o;
    m->called = shmi_called(&m->o);
    m->rollback = (shmi_ld32(&m->w->policy) & 0xff) == SHMI_POLICY_ROLLBACK;
    if (m->rollback) {
        shmi_log_of(a, o, sizeof(shmi_mutex_words), &m->log);
        m->rollback = m->log.head != NULL; /* the log is missing only if a peer has just changed the words */
    }
    if (opt != NULL) {
        m->repair = opt->repair;
        m->repair_arg = opt->repair_arg;
        if (opt->checked)
            m->bias = m->bias_most = 0;
    }
    return m;
}

SHMI_FN int shmi_open_mutex(int existing, shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    SHMI_OPTIONS(shmsync_mutex_options, 56, "mutex.open", out->impl);
    shmi_spec spec;
    shmi_object o;
    int created, err;
    if (opts != NULL) {
        err = shmi_check_policy("mutex.open", name, opts->policy, opts->log_bytes);
        if (err != 0)
            return err;
    }
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_MUTEX_KIND;
    spec.version = SHMI_mutexVersion;
    spec.name = name;
    spec.size = sizeof(shmi_mutex_words);
    spec.any_size = 1; /* the size of the body says how long the log is */
    if (opts != NULL && opts->policy == SHMSYNC_POLICY_ROLLBACK)
        spec.size += SHMI_logHead + shmi_log_size(opts->log_bytes);
    spec.init = shmi_mutex_init_body;
    spec.arg = opts;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0) {
        err = shmi_check_lock(a, &o, "mutex.open", sizeof(shmi_mutex_words), offsetof(shmi_mutex_words, policy),
                              created || opts == NULL ? 0 : opts->policy, opts == NULL ? 0 : opts->log_bytes);
        if (err != 0)
            shmi_close_object(a, o.off);
        else
            err = SHMI_HAND_OUT(out, shmi_mutex *, shmi_share(a, &o, shmi_mutex_build, opts));
        err = shmi_handed_out(a, &o, created, err);
    }
    shmi_exit(a);
    return err;
}
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_mutex(0, a, name, opts, out));
}
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_mutex(1, a, name, opts, out));
}

int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out)
{
    SHMI_BEGIN_AT(a, "mutex.open", out);
    shmi_object o;
    int err;
    err = shmi_object_at(a, off, "mutex.open", SHMI_MUTEX_KIND, SHMI_mutexVersion, sizeof(shmi_mutex_words), &o);
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_check_lock(a, &o, "mutex.open", sizeof(shmi_mutex_words), offsetof(shmi_mutex_words, policy), 0, 0);
    if (err != 0)
        shmi_close_object(a, o.off);
    else
        err = SHMI_HAND_OUT(out, shmi_mutex *, shmi_share(a, &o, shmi_mutex_build, NULL));
    return SHMI_TELL(shmi_exit_with(a, err));
}

shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}

SHMI_FN void shmi_mutex_end(void *handle) { shmi_free_thing(handle); }
SHMI_FN void shmi_mutex_end_waking(void *handle)
{
    shmi_mutex_wake_owed((shmi_mutex *)handle);
    shmi_free_thing(handle);
}
int shmsync_mutex_close(shmsync_mutex *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_mutex_end_waking);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}

/* A call that succeeds at once writes nothing for shmsync_error, because that would cost as much as the lock. If a call
 * does not succeed at once, a function whose name ends in _called does the work. */
SHMI_COLD int shmi_mutex_lock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_lock");
    return SHMI_DONE_AS(shmi_mutex_lock(m->impl, 0), "shmsync_mutex_lock");
}
int shmsync_mutex_lock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    const uint64_t serial = m->serial;
    if (SHMI_LIKELY(shmi_is_open(x, serial)) && SHMI_LIKELY(shmi_mutex_at_once(x)))
        return shmi_done(x, serial, 0, __func__);
    return shmi_mutex_lock_called(m);
}
SHMI_COLD int shmi_mutex_trylock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_trylock");
    return SHMI_DONE_AS(shmi_mutex_trylock(m->impl), "shmsync_mutex_trylock");
}
int shmsync_mutex_trylock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    const uint64_t serial = m->serial;
    if (SHMI_LIKELY(shmi_is_open(x, serial)) && SHMI_LIKELY(shmi_mutex_at_once(x)))
        return shmi_done(x, serial, 0, __func__);
    return shmi_mutex_trylock_called(m);
}
SHMI_COLD int shmi_mutex_unlock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_unlock");
    return SHMI_DONE_AS(shmi_mutex_unlock(m->impl), "shmsync_mutex_unlock");
}
/* The slow part of an unlock that has stored the owner word and has then found a waiter. It does not read the handle. */
SHMI_SELDOM int shmi_mutex_unlocked_called(shmi_mutex *x, uint64_t serial)
{
    shmi_mutex_lose_bias(x);
    return shmi_done(x, serial, 0, "shmsync_mutex_unlock");
}
int shmsync_mutex_unlock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    const uint64_t serial = m->serial;
    int done = SHMI_unlockedNot;
    if (SHMI_LIKELY(shmi_is_open(x, serial)))
        done = shmi_mutex_store_unlock(x, shmi_mutex_name(x), __atomic_load_n(x->own, __ATOMIC_RELAXED));
    if (SHMI_LIKELY(done == SHMI_unlocked))
        return shmi_done(x, serial, 0, __func__);
    return done == SHMI_unlockedNot ? shmi_mutex_unlock_called(m) : shmi_mutex_unlocked_called(x, serial);
}
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t deadline;
    if (shmi_mutex_at_once(m->impl))
        return SHMI_DONE(0);
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "mutex.timedlock", m->impl->called, "not a time");
    return SHMI_DONE(shmi_mutex_lock_slow(m->impl, deadline));
}

int shmsync_mutex_state(shmsync_mutex *m)
{
    SHMI_OPENED(m);
    uint32_t o = shmi_ld32(m->impl->own);
    int err = shmi_use(m->impl->a, "mutex.state");
    if (err != 0)
        return SHMI_DONE(err);
    if (!shmi_owner_valid(o))
        return shmi_mutex_report(m->impl, EPROTO, o);
    if (shmi_owner_kind(o) == SHMI_kindOwnerDead)
        return shmi_mutex_report(m->impl, EOWNERDEAD, o);
    return o == SHMI_OWNER_NOT_RECOVERABLE ? shmi_mutex_report(m->impl, ENOTRECOVERABLE, o) : SHMI_DONE(0);
}

SHMI_FN int shmi_mutex_recover_entered(shmi_mutex *m, int (*repair)(void *), void *arg)
{
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, m->a->self);
    for (;;) {
        uint32_t o = shmi_ld32(m->own);
        int err;
        if (shmi_owner_kind(o) != SHMI_kindOwnerDead && o != SHMI_OWNER_NOT_RECOVERABLE) {
            /* A lock that needs no recovery is taken and given back, without running the repair function of the handle.
             */
            shmi_mutex_wait w;
            memset(&w, 0, sizeof w);
            w.m = m;
            err = shmi_mutex_acquire(&w, 0);
            if (err == 0)
                return shmi_mutex_unlock(m);
            if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
                return err;
            continue;
        }
        if (!shmi_owner_valid(o))
            return shmi_mutex_report(m, EPROTO, o);
        if (shmi_owner_kind(o) == SHMI_kindOwnerDead) {
            /* The call waits before it takes the lock. If this process dies during the wait, the owner word still names
             * the dead holder, whose system calls may still write. */
            err = shmi_await_gone32(m->a, shmi_owner_name(o), m->own, o, "mutex.recover", m->called, 0);
            if (err != 0)
                return err;
        }
        if (!shmi_take_from32(m->a, shmi_owner_name(o), m->own, o, recovering, 1))
            continue;
        shmi_mutex_taken(m, o);
        err = shmi_mutex_run_repair(m, repair, arg);
        if (err == 0)
            err = shmi_mutex_repaired(m, 0);
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("mutex.recover.before_wake");
        shmi_wake_word_release(m->a, &m->line);
        return 0;
    }
}
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    shmi_mutex *x = m->impl;
    shmsync_arena *a = x->a;
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "mutex.recover", x->called, "without a repair");
    err = shmi_enter_for(x, a, "mutex.recover");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_mutex_recover_entered(x, repair, arg);
    shmi_exit_for(x, a);
    return SHMI_DONE(err);
}

