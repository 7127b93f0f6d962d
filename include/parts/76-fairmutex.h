
/* ---- FairMutex: prims/fairmutex*.go in C, docs/design/0057-fairmutex-without-a-lock.md ---- */

/* While the owner word is open, lock and unlock keep its tag. A CAS that closes the word changes the tag. */

/* The words that records change, besides those of the queue. */
enum { SHMI_fairOwner = SHMI_rqOwnKinds, SHMI_fairDied };

struct shmi_fairmutex {
    struct shmi_rq q; /* first, so that a pointer to q also points to the FairMutex */
    shmi_fairmutex_words *w;
    int release; /* the policy is SHMSYNC_POLICY_RELEASE */
    int (*repair)(void *);
    void *repair_arg;
};

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_fair_bytes(shmsync_arena *a) { return sizeof(shmi_fairmutex_words) + (a->geo.counted ? 64 : 0); }

SHMI_FN struct shmi_fairmutex *shmi_fair_of(struct shmi_rq *q) { return (struct shmi_fairmutex *)(void *)q; }
SHMI_FN uint32_t shmi_fair_owner(const struct shmi_fairmutex *f) { return shmi_recorded_value(&f->w->owner); }
SHMI_FN shmi_participant_id shmi_fair_died(const struct shmi_fairmutex *f) { return shmi_recorded_value(&f->w->died) & SHMI_NAME_MASK; }
SHMI_FN int shmi_fair_valid(uint32_t o) { return shmi_state_valid(o, 0); }
SHMI_FN int shmi_fair_accepted(const struct shmi_fairmutex *f, uint64_t w) { return shmi_state_accepted(&f->w->accepted, w); }
SHMI_FN void shmi_fair_shut(struct shmi_fairmutex *f) { shmi_state_shut(&f->w->owner, 0); }
SHMI_FN struct shmi_record_lock shmi_fair_lock_of(struct shmi_fairmutex *f)
{
    struct shmi_record_lock l = {&f->q, &f->w->owner, &f->w->accepted, &f->w->died, SHMI_fairOwner, 0, f->release, 0};
    return l;
}

/* Takes a lock that is free and open. Returns 0 if the lock is held or closed. */
SHMI_FN int shmi_fair_lock_fast(struct shmi_fairmutex *f)
{
    uint64_t w = shmi_ld64(&f->w->owner);
    if (w >> 32 != SHMI_FAIR_OPEN || !shmi_cas64(&f->w->owner, w, w + ((uint64_t)f->q.a->self << 32)))
        return 0;
    SHMSYNC_CRASHPOINT("fairmutex.lock.taken");
    return 1;
}
SHMI_FN int shmi_fair_unlock_fast(struct shmi_fairmutex *f)
{
    uint64_t w = shmi_ld64(&f->w->owner);
    if (w >> 32 != (SHMI_FAIR_OPEN | f->q.a->self) || !shmi_cas64(&f->w->owner, w, w - ((uint64_t)f->q.a->self << 32)))
        return 0;
    SHMSYNC_CRASHPOINT("fairmutex.unlock.freed");
    return 1;
}

SHMI_FN uint64_t *shmi_fair_word_at(struct shmi_rq *q, uint32_t kind, uint32_t where)
{
    (void)where;
    switch (kind) {
    case SHMI_fairOwner:
        return &shmi_fair_of(q)->w->owner;
    case SHMI_fairDied:
        return &shmi_fair_of(q)->w->died;
    }
    return NULL;
}
SHMI_FN int shmi_fair_corrupt(struct shmi_rq *q, const char *how) { return shmi_fail(EPROTO, "fairmutex.change", shmi_called(&q->o), "%s", how); }

/* ---- The rules. The caller has the private lock. ---- */

SHMI_FN void shmi_fair_set_owner(struct shmi_fairmutex *f, struct shmi_rq_change *x, uint32_t o)
{
    struct shmi_record_lock l = shmi_fair_lock_of(f);
    shmi_lock_set(&l, x, o);
}
SHMI_FN void shmi_fair_remove(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome)
{
    struct shmi_record_lock l = shmi_fair_lock_of(shmi_fair_of(q));
    shmi_lock_remove(&l, x, w, outcome);
}
SHMI_FN shmi_participant_id shmi_fair_pass(struct shmi_fairmutex *f, struct shmi_rq_change *x)
{
    struct shmi_record_lock l = shmi_fair_lock_of(f);
    return shmi_lock_pass(&l, x);
}
SHMI_FN int shmi_fair_serve(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_record_lock l = shmi_fair_lock_of(shmi_fair_of(q));
    return shmi_lock_serve(&l, x, b);
}
SHMI_FN int shmi_fair_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_record_lock l = shmi_fair_lock_of(shmi_fair_of(q));
    int first = shmi_rq_begin_reap(q, x, b), err; /* reap the lock even after an error in the queue, which concerns only the waits */
    err = shmi_lock_reap(&l, x, b);
    return first != 0 ? first : err;
}
/* Whether the holder, or the participant to which the lock was granted, is dead. */
SHMI_FN int shmi_fair_dead(struct shmi_rq *q)
{
    uint32_t o = shmi_fair_owner(shmi_fair_of(q));
    return shmi_fair_taken(o) && shmi_dead(q->a, shmi_owner_name(o));
}

/* How an attempt to take the lock ended. */
enum { SHMI_fairTaken, SHMI_fairQueued, SHMI_fairNotNow, SHMI_fairRefused };

SHMI_FN int shmi_fair_take_locked(struct shmi_fairmutex *f, shmi_wait_node *wait_node, struct shmi_wakes *b, int *result, uint32_t *why)
{
    struct shmi_rq *q = &f->q;
    struct shmi_rq_change x;
    int tidied = 0;
    *result = SHMI_fairNotNow;
    for (;;) {
        /* The loop ends: each round follows a change by another call, or makes a change that can be made only once. */
        uint32_t o;
        int takes, dead, ok, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        o = shmi_fair_owner(f);
        if (o == SHMI_FAIR_OPEN) {
            if (!shmi_fair_lock_fast(f))
                continue;
            *result = SHMI_fairTaken;
            return 0;
        }
        dead = shmi_fair_dead(q);
        if (!tidied && (dead || shmi_rq_reap_due(q) || !shmi_rq_empty(q, &x))) {
            tidied = 1; /* a dead participant may have the lock, or the first wait may still need its grant */
            err = shmi_rq_tidy(q, &x, b, dead);
            if (err != 0)
                return err;
            continue;
        }
        if (shmi_fair_is_open(o) && wait_node == NULL)
            return 0; /* keep the word open, so that its holder can unlock by a CAS */
        shmi_fair_shut(f);
        o = shmi_rq_get(&x, &f->w->owner);
        if (shmi_state_refuses(o, 0)) {
            if (shmi_ld64(q->commit) != x.c)
                continue;
            *result = SHMI_fairRefused;
            *why = o;
            return 0;
        }
        takes = o == 0 && shmi_rq_empty(q, &x);
        if (takes)
            shmi_fair_set_owner(f, &x, q->a->self);
        else if (wait_node != NULL)
            shmi_rq_join(q, &x, wait_node);
        err = shmi_rq_end(q, &x, b, &ok);
        if (err == 0 && !ok)
            continue;
        if (takes && x.made) {
            SHMSYNC_CRASHPOINT("fairmutex.lock.taken");
            *result = SHMI_fairTaken;
        } else if (wait_node != NULL && x.made) {
            *result = SHMI_fairQueued;
        }
        return err;
    }
}
/* Takes the lock. If that is not possible now, queues a wait in wait_node, which the caller has prepared. If wait_node
 * is NULL, queues nothing. After an error, the wait may be queued if *result is SHMI_fairQueued. If *result is
 * SHMI_fairRefused, *why is the owner word. */
SHMI_FN int shmi_fair_take(struct shmi_fairmutex *f, shmi_wait_node *wait_node, int *result, uint32_t *why)
{
    struct shmi_wakes b;
    int err;
    shmi_wakes_init(&b);
    shmi_rq_lock(&f->q);
    err = shmi_fair_take_locked(f, wait_node, &b, result, why);
    shmi_rq_unlock(&f->q);
    shmi_rq_wake(&f->q, &b);
    return err;
}

/* Unlocks the lock by a record, which grants it to the first wait. If this process does not hold the lock, *held is 0
 * and *o is the owner word. */
SHMI_FN int shmi_fair_give_locked(struct shmi_fairmutex *f, struct shmi_wakes *b, int *held, uint32_t *o)
{
    struct shmi_rq *q = &f->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_participant_id granted;
        uint64_t w;
        int ok, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        w = shmi_ld64(&f->w->owner);
        *o = (uint32_t)(w >> 32);
        if (*o == (SHMI_FAIR_OPEN | q->a->self)) {
            if (shmi_fair_unlock_fast(f))
                return 0;
            continue;
        }
        *held = *o == q->a->self || (*o == shmi_make_owner(SHMI_kindReserved, q->a->self) && shmi_fair_accepted(f, w));
        if (!*held) {
            if (shmi_ld64(q->commit) == x.c)
                return 0;
            continue;
        }
        granted = shmi_fair_pass(f, &x);
        x.torn = 0; /* an error in the queue concerns only the waits */
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (!ok)
            continue;
        shmi_rq_reconsider(q, granted);
        SHMSYNC_CRASHPOINT("fairmutex.unlock.committed");
        if (shmi_recorded_value(q->first) != 0)
            shmi_fair_serve(q, &x, b);
        return 0;
    }
}

/* Makes this process the holder of a lock that was granted to one of its waits. */
SHMI_FN int shmi_fair_accept(struct shmi_fairmutex *f)
{
    uint64_t accepted = shmi_ld64(&f->w->accepted), w = shmi_ld64(&f->w->owner);
    if (w >> 32 != shmi_make_owner(SHMI_kindReserved, f->q.a->self) ||
        !shmi_cas64(&f->w->accepted, accepted, SHMI_RECORDED(f->q.a->self, (uint32_t)w)))
        return shmi_fail(EPROTO, "fairmutex.lock", shmi_called(&f->q.o), "owner word %#x", (uint32_t)(w >> 32));
    SHMSYNC_CRASHPOINT("fairmutex.lock.accepted");
    return 0;
}

/* ---- Handles ---- */

SHMI_FN void shmi_fair_init(struct shmi_rq *q)
{
    struct shmi_fairmutex *f = shmi_fair_of(q);
    f->w = (shmi_fairmutex_words *)shmi_ptr(q->a, q->o.body, sizeof(shmi_fairmutex_words), 8);
    q->commit = &f->w->commit;
    q->first = &f->w->first;
    q->last = &f->w->last;
    q->spin = &f->w->spin;
    q->pays = &f->w->pays;
    q->last_cpu = &f->w->lastCPU;
    f->release = (shmi_ld32(&f->w->policy) & 0xff) == SHMI_POLICY_RELEASE;
}
static const shmi_rq_kind shmi_fair_kind = {
    sizeof(shmi_fairmutex_record), offsetof(shmi_fairmutex_record, entries), 1, shmi_fair_init, shmi_fair_word_at, shmi_fair_corrupt,
    shmi_fair_remove, shmi_fair_serve, shmi_fair_reap, shmi_fair_dead,
};
SHMI_FN void *shmi_fair_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_fairmutex_options *opts = (const shmsync_fairmutex_options *)arg;
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)shmi_rq_build(&shmi_fair_kind, sizeof *f, a, o, "fairmutex.open");
    if (f != NULL && opts != NULL) {
        f->repair = opts->repair;
        f->repair_arg = opts->repair_arg;
    }
    return f;
}

typedef struct shmi_fair_spec {
    uint32_t policy, spin;
    int open_; /* the owner word of the new lock is open */
} shmi_fair_spec;
SHMI_FN void shmi_fair_fill(unsigned char *body, const void *arg)
{
    shmi_fairmutex_words *w = (shmi_fairmutex_words *)(void *)body;
    const shmi_fair_spec *s = (const shmi_fair_spec *)arg;
    w->owner = SHMI_RECORDED(s->open_ ? SHMI_FAIR_OPEN : 0, 0);
    w->policy = s->policy;
    w->spin = s->spin;
}
SHMI_FN int shmi_open_fairmutex(int existing, shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    SHMI_OPTIONS(shmsync_fairmutex_options, 40, "fairmutex.open", out->impl);
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    shmi_fair_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    err = shmi_no_rollback("fairmutex.open", name, policy, "a fair mutex");
    if (err != 0)
        return err;
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    init.open_ = !a->geo.counted;
    shmi_spec_of_kind(&spec, SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, name, shmi_fair_bytes(a));
    spec.init = shmi_fair_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_fair_build, opts, &created, &impl);
    out->impl = (struct shmi_fairmutex *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != out->impl->release) {
        shmsync_fairmutex_close(out);
        err = shmi_fail(EINVAL, "fairmutex.open", name, "it has another policy");
    }
    return err;
}
int shmsync_fairmutex_open(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_fairmutex(0, a, name, opts, out));
}
int shmsync_fairmutex_attach(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_fairmutex(1, a, name, opts, out));
}
int shmsync_fairmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_fairmutex *out)
{
    SHMI_BEGIN_AT(a, "fairmutex.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "fairmutex.open", SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, shmi_fair_bytes(a), shmi_fair_build, NULL, &impl);
    out->impl = (struct shmi_fairmutex *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->q.o.off;
}
int shmsync_fairmutex_close(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(f->impl->q.a, f->impl->q.o.off, shmi_rq_free);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

/* Returns the error for the owner word o if it lets no process get the lock; otherwise 0. */
SHMI_FN int shmi_fair_refusal(struct shmi_fairmutex *f, const char *op, uint32_t o)
{
    const char *called = shmi_called(&f->q.o);
    if (!shmi_fair_valid(o))
        return shmi_fail(EPROTO, op, called, "owner word %#x", o);
    if (shmi_owner_kind(o) == SHMI_kindOwnerDead)
        return shmi_fail_who(f->q.a, EOWNERDEAD, op, called, shmi_owner_name(o));
    if (o == SHMI_OWNER_NOT_RECOVERABLE)
        return shmi_fail_who(f->q.a, ENOTRECOVERABLE, op, called, shmi_fair_died(f));
    return 0;
}

/* The error of a wait that a record refused: see shmi_lock_refuse. */
SHMI_FN int shmi_fair_refused_by(struct shmi_fairmutex *f, const char *op, uint32_t why)
{
    int err;
    if (shmi_owner_kind(why) == SHMI_kindNotRecoverable)
        return shmi_fail_who(f->q.a, ENOTRECOVERABLE, op, shmi_called(&f->q.o), shmi_owner_name(why));
    err = shmi_fair_refusal(f, op, why != 0 ? why : shmi_fair_owner(f));
    /* err is 0 only if the record gave no reason, and another process has recovered the lock after the refusal. */
    return err != 0 ? err : shmi_fail_who(f->q.a, EOWNERDEAD, op, shmi_called(&f->q.o), shmi_fair_died(f));
}

/* Takes the lock, or waits in its queue. The caller is within shmi_enter. */
SHMI_FN int shmi_fair_arrive(struct shmi_fairmutex *f, const char *op, int64_t abs, int try_)
{
    shmi_wait_node *wait_node;
    shmi_rq_outcome outcome;
    uint32_t why = 0;
    int result, err = shmi_fair_take(f, NULL, &result, &why);
    if (err != 0 || result == SHMI_fairTaken)
        return err;
    if (result == SHMI_fairRefused)
        return shmi_fair_refusal(f, op, why);
    if (try_)
        return EBUSY;
    shmi_rq_learn(&f->q);
    if (SHMI_UNLIKELY(shmi_known_bad(shmi_ld64(&f->q.known_head))))
        return shmi_fail(EPROTO, op, shmi_called(&f->q.o), "its list of slot records");
    err = shmi_wait_node_take(f->q.a, &wait_node);
    if (err != 0)
        return err;
    shmi_rq_prepare(&f->q, wait_node, 0);
    err = shmi_fair_take(f, wait_node, &result, &why);
    if (err != 0 && result == SHMI_fairQueued) {
        shmi_wait_node_forget(wait_node);
        return err;
    }
    if (err != 0 || result != SHMI_fairQueued) {
        shmi_rq_hand_back(&f->q, wait_node);
        return err == 0 && result == SHMI_fairRefused ? shmi_fair_refusal(f, op, why) : err;
    }
    err = shmi_rq_await(&f->q, wait_node, abs == 0 || shmi_now() < abs, abs, op, &outcome);
    if (err != 0)
        return err;
    return outcome.how == SHMI_RECORDED_REFUSED ? shmi_fair_refused_by(f, op, outcome.why) : shmi_fair_accept(f);
}

/* Makes this process the recoverer if the lock is owner-dead. If ruined is not 0, also does so if the lock is not
 * recoverable. Sets *w to the owner word. If a dead participant must be gone first, this process does not become the
 * recoverer, and *waits is the ID of that participant. The caller has the private lock. */
SHMI_FN int shmi_fair_begin_locked(struct shmi_fairmutex *f, int ruined, struct shmi_wakes *b, int *took, uint64_t *w, shmi_participant_id *waits)
{
    struct shmi_rq *q = &f->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        uint32_t o;
        int ok, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        *w = shmi_ld64(&f->w->owner);
        o = (uint32_t)(*w >> 32);
        if (shmi_owner_kind(o) == SHMI_kindOwnerDead && shmi_owner_valid(o)) {
            if (!shmi_gone(q->a, shmi_owner_name(o))) {
                *waits = shmi_owner_name(o);
                return 0;
            }
            /* A process without a slot record can mark the lock owner-dead, but cannot change w->died. So set it here.
             */
            shmi_rq_set(&x, SHMI_fairDied, 0, &f->w->died, shmi_owner_name(o));
        } else if (!ruined || o != SHMI_OWNER_NOT_RECOVERABLE) {
            return 0;
        }
        shmi_rq_set(&x, SHMI_fairOwner, 0, &f->w->owner, shmi_make_owner(SHMI_kindRecovering, q->a->self));
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (ok) {
            SHMSYNC_CRASHPOINT("fairmutex.recover.taken");
            *took = 1;
            return 0;
        }
    }
}
/* Begins a recovery. The caller is within shmi_enter. */
SHMI_FN int shmi_fair_begin_recover(struct shmi_fairmutex *f, int64_t abs, int ruined, int *took)
{
    int err;
    *took = 0;
    do { /* repeat after a wait for the dead participant: until it is gone, a system call of it may still write to the data */
        shmi_participant_id waits = 0;
        struct shmi_wakes b;
        uint64_t w = 0;
        shmi_wakes_init(&b);
        shmi_rq_lock(&f->q);
        err = shmi_fair_begin_locked(f, ruined, &b, took, &w, &waits);
        shmi_rq_unlock(&f->q);
        shmi_rq_wake(&f->q, &b);
        if (err != 0 || waits == 0)
            return err;
        err = shmi_await_gone64(f->q.a, waits, &f->w->owner, w, "fairmutex.recover", shmi_called(&f->q.o), abs);
    } while (err == 0);
    return err;
}
/* Ends the recovery by this process. If the repair failed, the lock becomes not recoverable. Otherwise this process
 * holds the lock if hold is not 0, or the lock becomes free. */
SHMI_FN int shmi_fair_end_recover(struct shmi_fairmutex *f, int failed, int hold, struct shmi_wakes *b)
{
    struct shmi_rq *q = &f->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_participant_id granted = 0;
        uint32_t o;
        int ok, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        o = shmi_fair_owner(f);
        if (o != shmi_make_owner(SHMI_kindRecovering, q->a->self)) {
            if (shmi_ld64(q->commit) != x.c)
                continue;
            return shmi_fail(EPROTO, "fairmutex.recover", shmi_called(&q->o), "owner word %#x", o);
        }
        if (failed) {
            shmi_rq_set(&x, SHMI_fairOwner, 0, &f->w->owner, SHMI_OWNER_NOT_RECOVERABLE);
        } else {
            shmi_rq_set(&x, SHMI_fairDied, 0, &f->w->died, 0);
            if (hold)
                shmi_fair_set_owner(f, &x, q->a->self);
            else
                granted = shmi_fair_pass(f, &x);
        }
        x.torn = 0; /* end the recovery even after an error in the queue, which concerns only the waits */
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (!ok)
            continue;
        shmi_rq_reconsider(q, granted);
        shmi_fair_serve(q, &x, b);
        return 0;
    }
}
/* Runs repair while this process is recovering f. If the repair succeeds and hold is not 0, this process holds f
 * afterwards. The caller is within shmi_enter. */
SHMI_FN int shmi_fair_run_repair(struct shmi_fairmutex *f, int (*repair)(void *), void *arg, int hold)
{
    struct shmi_wakes b;
    int failed = shmi_call_repair(repair, arg), err;
    if (failed == 0)
        SHMSYNC_CRASHPOINT("fairmutex.recover.repaired");
    shmi_wakes_init(&b);
    shmi_rq_lock(&f->q);
    err = shmi_fair_end_recover(f, failed, hold, &b);
    shmi_rq_unlock(&f->q);
    shmi_rq_wake(&f->q, &b);
    if (err == 0 && failed)
        err = shmi_fail_who(f->q.a, ENOTRECOVERABLE, "fairmutex.recover", shmi_called(&f->q.o), shmi_fair_died(f));
    return err;
}

/* Takes the lock. The caller is within shmi_enter. If the lock is owner-dead and may_repair is not 0, the call recovers
 * the lock. If another process is already recovering it, the call waits again. */
SHMI_FN int shmi_fair_lock_slow(struct shmi_fairmutex *f, int64_t abs, int may_repair)
{
    int took = 0, err;
    do {
        err = shmi_fair_arrive(f, "fairmutex.lock", abs, 0);
        if (err != EOWNERDEAD || !may_repair || f->repair == NULL)
            return err;
        err = shmi_fair_begin_recover(f, abs, 0, &took);
        if (took)
            return shmi_fair_run_repair(f, f->repair, f->repair_arg, 1);
    } while (err == 0);
    return err;
}
SHMI_FN int shmi_fair_lock(struct shmi_fairmutex *f, int64_t abs, int may_repair)
{
    int err = shmi_use(f->q.a, "fairmutex.lock");
    if (err != 0)
        return err;
    if (SHMI_LIKELY(shmi_fair_lock_fast(f)))
        return 0;
    err = shmi_enter_for(f, f->q.a, "fairmutex.lock");
    if (err != 0)
        return err;
    SHMI_REPAIRING(f->repair, err, shmi_fair_lock_slow(f, abs, may_repair));
    shmi_exit_for(f, f->q.a);
    return err;
}
int shmsync_fairmutex_lock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_fair_lock(f->impl, 0, 1));
}
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_fair_lock(f->impl, ns, 1));
}
int shmsync_fairmutex_trylock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    int err = shmi_use(x->q.a, "fairmutex.trylock");
    if (err != 0)
        return SHMI_DONE(err);
    if (SHMI_LIKELY(shmi_fair_lock_fast(x)))
        return SHMI_DONE(0);
    err = shmi_enter(x->q.a, "fairmutex.trylock");
    if (err != 0)
        return SHMI_DONE(err);
    return SHMI_DONE(shmi_exit_with(x->q.a, shmi_fair_arrive(x, "fairmutex.trylock", 0, 1)));
}
SHMI_FN int shmi_fair_unlock(struct shmi_fairmutex *f)
{
    struct shmi_wakes b;
    uint32_t o = 0;
    int held = 1, err = shmi_use(f->q.a, "fairmutex.unlock");
    if (err != 0)
        return err;
    if (SHMI_LIKELY(shmi_fair_unlock_fast(f)))
        return 0;
    err = shmi_enter(f->q.a, "fairmutex.unlock");
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    shmi_rq_lock(&f->q);
    err = shmi_fair_give_locked(f, &b, &held, &o);
    shmi_rq_unlock(&f->q);
    shmi_rq_wake(&f->q, &b);
    if (err == 0 && !held)
        err = shmi_fail(shmi_fair_valid(o) ? EPERM : EPROTO, "fairmutex.unlock", shmi_called(&f->q.o), "%sowner word %#x", shmi_fair_valid(o) ? "this process does not hold it; " : "", o);
    return shmi_exit_with(f->q.a, err);
}
int shmsync_fairmutex_unlock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_fair_unlock(f->impl));
}
SHMI_FN int shmi_fair_recover(struct shmi_fairmutex *f, int (*repair)(void *), void *arg)
{
    for (;;) {
        int took, err = shmi_fair_begin_recover(f, 0, 1, &took);
        if (err != 0)
            return err;
        if (took)
            return shmi_fair_run_repair(f, repair, arg, 0);
        err = shmi_fair_lock(f, 0, 0);
        if (err == 0)
            return shmi_fair_unlock(f);
        if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
            return err;
    }
}
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "fairmutex.recover", shmi_called(&x->q.o), "without a repair");
    err = shmi_enter_for(x, x->q.a, "fairmutex.recover");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_fair_recover(x, repair, arg);
    shmi_exit_for(x, x->q.a);
    return SHMI_DONE(err);
}
/* Returns the state of the lock as an errno. It takes into account a death that no call has noticed yet, and a change
 * that is committed and not yet carried out. */
SHMI_FN int shmi_fair_state(struct shmi_fairmutex *f)
{
    shmsync_arena *a = f->q.a;
    if (shmi_self(a) != 0 && !__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST) && shmi_enter(a, "fairmutex.state") == 0) {
        if (shmi_fair_dead(&f->q))
            shmi_rq_check_now(&f->q);
        else
            shmi_rq_complete_last(&f->q);
        shmi_exit(a);
    }
    return shmi_fair_refusal(f, "fairmutex.state", shmi_fair_owner(f));
}
int shmsync_fairmutex_state(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    int err = shmi_use(f->impl->q.a, "fairmutex.state");
    return SHMI_DONE(err != 0 ? err : shmi_fair_state(f->impl));
}

SHMI_FN int shmi_fair_view(struct shmi_fairmutex *f, shmsync_arena *a, const shmi_object *o)
{
    memset(f, 0, sizeof *f);
    return o->size >= shmi_fair_bytes(a) && shmi_rq_init(&f->q, &shmi_fair_kind, a, o);
}
/* Takes back the hold of a dead participant if the owner word is open: a CAS is enough then, and w->died stays as it is.
 * If the owner word is closed, or a wait has to end, a record is needed, and the result is 1. */
SHMI_FN int shmi_fair_owes(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_record_lock l = shmi_fair_lock_of((struct shmi_fairmutex *)(void *)q);
    return shmi_lock_take_open(&l) || shmi_lock_unserved(&l, x, b);
}
SHMI_FN int shmi_repair_fairmutex(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_fairmutex f;
    return shmi_fair_view(&f, a, o) && shmi_rq_repair(&f.q, dead, shmi_fair_owes);
}
SHMI_FN void shmi_wake_first_of_fairmutex(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_fairmutex f;
    (void)owed;
    if (shmi_fair_view(&f, a, o))
        shmi_rq_wake_after(&f.q);
}
SHMI_FN int shmi_complete_fairmutex(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_fairmutex f;
    return shmi_fair_view(&f, a, o) && shmi_rq_complete_last(&f.q);
}
