
/* ---- FairMutex: prims/fairmutex*.go in C ---- */

/* How a wait for a lock ends. */
enum { SHMI_lockGranted, SHMI_lockOwnerDead, SHMI_lockNotRecoverable, SHMI_lockCorrupt };

struct shmi_fairmutex {
    struct shmi_monitor m;
    shmi_fairmutex_words *w;
    int release; /* policy PolicyRelease */
    int (*repair)(void *);
    void *repair_arg;
};

#define SHMI_OWNER_CORRUPT UINT32_MAX

SHMI_FN uint32_t shmi_fair_owner(struct shmi_fairmutex *f)
{
    uint64_t v = shmi_get(&f->w->owner);
    return v >> 32 != 0 ? SHMI_OWNER_CORRUPT : (uint32_t)v;
}
/* Whether o may be the owner word of a FairMutex. A word of kind reserved says that the
 * lock was granted to a waiter of that process, which has not accepted it. */
SHMI_FN int shmi_fair_valid(uint32_t o)
{
    return shmi_owner_valid(o) && shmi_owner_kind(o) != SHMI_kindBiased;
}
SHMI_FN int shmi_fair_granted(uint32_t o) { return shmi_owner_kind(o) == SHMI_kindReserved && shmi_owner_name(o) != 0; }
SHMI_FN shmi_participant_id shmi_fair_died(struct shmi_fairmutex *f) { return shmi_ld32(&f->w->died) & SHMI_NAME_MASK; }
/* Whether a comer may have the lock now. The queue lock is held. */
SHMI_FN int shmi_fair_free(struct shmi_fairmutex *f) { return shmi_get(&f->w->owner) == 0 && shmi_fifo_empty(&f->w->queue); }
SHMI_FN void shmi_fair_take(struct shmi_fairmutex *f)
{
    shmi_put(&f->w->owner, f->m.a->self);
    SHMSYNC_CRASHPOINT("fairmutex.lock.taken");
}

/* Grants the lock to the process of a wait that was resolved so. The lock was free when the wait was resolved. If
 * the word is not free now, the grant was made already, and the waiter may even have accepted the lock since. */
SHMI_FN void shmi_fair_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_lockGranted && shmi_get(&f->w->owner) == 0) {
        shmi_put(&f->w->owner, shmi_make_owner(SHMI_kindReserved, shmi_owner_of(w) & SHMI_NAME_MASK));
        SHMSYNC_CRASHPOINT("fairmutex.grant.granted");
    }
    shmi_mon_release_node(m, w);
}

/* How often a waiter looks for the grant that follows the end of its wait by a few instructions. */
enum { SHMI_acceptTries = 100, SHMI_acceptPause = 2 };

SHMI_FN int shmi_fair_accept_at_once(struct shmi_fairmutex *f)
{
    const uint64_t granted = shmi_make_owner(SHMI_kindReserved, f->m.a->self);
    int i;
    for (i = 0; i < SHMI_acceptTries; i++) {
        if (shmi_cas64(&f->w->owner, granted, f->m.a->self)) {
            SHMSYNC_CRASHPOINT("fairmutex.lock.accepted");
            return 1;
        }
        shmi_pause(SHMI_acceptPause);
    }
    return 0;
}
/* Makes this process the holder of the lock that one of its waits was granted. A process
 * that dies before this step has not held the lock. */
SHMI_FN int shmi_fair_accept(struct shmi_fairmutex *f)
{
    int err, ok;
    if (shmi_fair_accept_at_once(f))
        return 0;
    /* The granter has resolved the wait and is not through: it runs, or it is stopped or dead. */
    err = shmi_mon_enter(&f->m, 0);
    if (err != 0)
        return err;
    ok = shmi_fair_accept_at_once(f);
    shmi_mon_leave(&f->m, NULL);
    return ok ? 0 : shmi_fail(EPROTO, "fairmutex.lock", f->m.queueLock.called, "owner word %#x", shmi_fair_owner(f));
}

/* Hands a free lock to the first in the queue, and tells all when nobody can have it. */
SHMI_FN void shmi_fair_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &f->w->queue)).n != NULL) {
        uint32_t o = shmi_fair_owner(f), result = SHMI_lockGranted, aux = 0;
        if (!shmi_mon_waiting(m, w)) { /* which has looked whether it lives */
            shmi_mon_discard(m, w);
            continue;
        }
        if (o == 0) {
        } else if (!shmi_fair_valid(o)) {
            result = SHMI_lockCorrupt;
        } else if (shmi_owner_kind(o) == SHMI_kindOwnerDead) {
            result = SHMI_lockOwnerDead;
            aux = shmi_owner_name(o);
        } else if (o == SHMI_OWNER_NOT_RECOVERABLE) {
            result = SHMI_lockNotRecoverable;
            aux = shmi_fair_died(f);
        } else {
            return;
        }
        if (shmi_mon_end(m, b, w, result, aux))
            shmi_fair_account(m, w);
    }
}
SHMI_FN void shmi_fair_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_fairmutex *)m)->w->queue); }
SHMI_FN void shmi_fair_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_fairmutex *)m)->w->queue, w); }
SHMI_FN void shmi_fair_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_fairmutex *)m)->w->queue, w); }
SHMI_FN void shmi_fair_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_fairmutex *)m)->w->queue); }
SHMI_FN void shmi_fair_reap(struct shmi_monitor *m)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    uint32_t o = shmi_fair_owner(f), next;
    int granted = shmi_fair_granted(o); /* then nobody has entered, and there is no data of the dead */
    if (!shmi_fair_valid(o) || !(shmi_owner_held(o) || granted) || !shmi_mon_died(m, shmi_owner_name(o)))
        return;
    next = shmi_owner_died(o, f->release, !granted && f->release && shmi_mon_gone(m, shmi_owner_name(o)));
    if (next == o)
        return;
    if (!granted)
        shmi_st32(&f->w->died, shmi_owner_name(o));
    shmi_put(&f->w->owner, next);
}
SHMI_FN void shmi_fair_holders(struct shmi_monitor *m)
{
    uint32_t o = shmi_fair_owner((struct shmi_fairmutex *)m);
    if (shmi_owner_held(o) || shmi_fair_granted(o))
        shmi_mon_heed(m, shmi_owner_name(o));
}
SHMI_FN void shmi_fair_look(struct shmi_monitor *m) { shmi_mon_date_first(m, &((struct shmi_fairmutex *)m)->w->queue); }

static const struct shmi_rules shmi_fair_rules = {
    shmi_fair_resolve, shmi_fair_account, shmi_fair_clear, shmi_fair_requeue, shmi_fair_detach,
    shmi_fair_discard_dead, shmi_fair_reap, shmi_fair_holders, shmi_fair_look,
};

SHMI_FN void shmi_fair_init(struct shmi_fairmutex *f, shmsync_arena *a, const shmi_object *o, const shmsync_fairmutex_options *opts)
{
    shmi_mon_init(&f->m, a, o, o->body, &shmi_fair_rules);
    f->m.one_spins = 1;
    f->w = (shmi_fairmutex_words *)shmi_ptr(a, o->body, sizeof(shmi_fairmutex_words), 8);
    f->release = (shmi_ld32(&f->w->policy) & 0xff) == 1;
    f->repair = opts != NULL ? opts->repair : NULL;
    f->repair_arg = opts != NULL ? opts->repair_arg : NULL;
}
SHMI_FN void *shmi_fair_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)shmi_new_thing(sizeof *f);
    if (f != NULL)
        shmi_fair_init(f, a, o, (const shmsync_fairmutex_options *)arg);
    return f;
}

typedef struct shmi_fair_spec {
    uint32_t policy, spin;
} shmi_fair_spec;
SHMI_FN void shmi_fair_fill(unsigned char *body, const void *arg)
{
    shmi_fairmutex_words *w = (shmi_fairmutex_words *)(void *)body;
    const shmi_fair_spec *s = (const shmi_fair_spec *)arg;
    w->policy = s->policy;
    w->mon.spin = s->spin;
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
    shmi_mon_spec(&spec, SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, name, sizeof(shmi_fairmutex_words));
    spec.init = shmi_fair_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_mon_open(a, &spec, shmi_fair_build, opts, &created, &impl);
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
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "fairmutex.open", SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, sizeof(shmi_fairmutex_words), shmi_fair_build, NULL, &impl);
    out->impl = (struct shmi_fairmutex *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->m.o.off;
}
int shmsync_fairmutex_close(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&f->impl->m);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

/* Why nobody can wait for owner word o, or 0. */
SHMI_FN int shmi_lock_refusal(struct shmi_monitor *m, const char *op, uint32_t o, shmi_participant_id died)
{
    if (!shmi_fair_valid(o))
        return shmi_fail(EPROTO, op, m->queueLock.called, "owner word %#x", o);
    if (shmi_owner_kind(o) == SHMI_kindOwnerDead)
        return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, shmi_owner_name(o));
    if (o == SHMI_OWNER_NOT_RECOVERABLE)
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, died);
    return 0;
}
/* What the end of a wait for a lock means. */
SHMI_FN int shmi_lock_judge(struct shmi_monitor *m, const char *op, uint64_t outcome)
{
    shmi_participant_id who = shmi_outcome_aux(outcome) & SHMI_NAME_MASK;
    switch (shmi_outcome_result(outcome)) {
    case SHMI_lockGranted: return 0;
    case SHMI_lockOwnerDead: return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, who);
    case SHMI_lockNotRecoverable: return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, who);
    }
    return shmi_fail(EPROTO, op, m->queueLock.called, "%s", "");
}

/* Takes back what the dead have, with the queue lock held. */
SHMI_FN void shmi_fair_look_at_owner(struct shmi_fairmutex *f, struct shmi_wakes *b)
{
    uint32_t o = shmi_fair_owner(f);
    if ((shmi_owner_held(o) || shmi_fair_granted(o)) && shmi_dead(f->m.a, shmi_owner_name(o))) {
        shmi_mon_reap(&f->m, b);
        return;
    }
    shmi_mon_reap_if_due(&f->m, b);
    if (o == 0 && !shmi_fifo_empty(&f->w->queue))
        shmi_fair_resolve(&f->m, b);
}

/* Takes the lock or waits in the queue for it, with the queue lock held, which it leaves. The call counts. */
SHMI_FN int shmi_fair_arrive(struct shmi_fairmutex *f, int64_t abs)
{
    struct shmi_monitor *m = &f->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int err, again;
    shmi_wakes_init(&b);
    do {
        int free_;
        shmi_fair_look_at_owner(f, &b);
        free_ = shmi_fair_free(f);
        err = free_ ? 0 : shmi_lock_refusal(m, "fairmutex.lock", shmi_fair_owner(f), shmi_fair_died(f));
        if (free_ || err != 0) {
            if (free_)
                shmi_fair_take(f);
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return err;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_mon_join(m, wait_node, 0, 0);
    shmi_mon_leave(m, &b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0)
        err = shmi_lock_judge(m, "fairmutex.lock", outcome);
    return err != 0 ? err : shmi_fair_accept(f);
}

/* Makes this process the recoverer, if the lock is owner-dead or, if ruined says so, not recoverable. */
SHMI_FN int shmi_fair_begin_recover(struct shmi_fairmutex *f, int64_t abs, int ruined, int *took)
{
    uint32_t o;
    int err;
    *took = 0;
    for (;;) { /* it is taken from one that is gone */
        err = shmi_mon_enter(&f->m, abs);
        if (err != 0)
            return err;
        o = shmi_fair_owner(f);
        if (shmi_owner_kind(o) != SHMI_kindOwnerDead || shmi_gone(f->m.a, shmi_owner_name(o)))
            break;
        shmi_mon_leave(&f->m, NULL);
        err = shmi_await_gone64(f->m.a, shmi_owner_name(o), &f->w->owner, o, "fairmutex.recover", f->m.queueLock.called, abs);
        if (err != 0)
            return err;
    }
    if ((shmi_owner_kind(o) == SHMI_kindOwnerDead && shmi_owner_valid(o)) || (ruined && o == SHMI_OWNER_NOT_RECOVERABLE)) {
        shmi_put(&f->w->owner, shmi_make_owner(SHMI_kindRecovering, f->m.a->self));
        SHMSYNC_CRASHPOINT("fairmutex.recover.taken");
        *took = 1;
    }
    shmi_mon_leave(&f->m, NULL);
    return 0;
}
/* Runs repair while this process recovers f, and holds it afterwards or not. */
SHMI_FN int shmi_fair_run_repair(struct shmi_fairmutex *f, int (*repair)(void *), void *arg, int hold)
{
    uint32_t next = SHMI_OWNER_NOT_RECOVERABLE, o;
    struct shmi_wakes b;
    int failed = shmi_call_repair(repair, arg), err;
    if (failed == 0) {
        SHMSYNC_CRASHPOINT("fairmutex.recover.repaired");
        next = hold ? f->m.a->self : 0;
    }
    err = shmi_mon_enter(&f->m, 0);
    if (err != 0)
        return err;
    o = shmi_fair_owner(f);
    if (o != shmi_make_owner(SHMI_kindRecovering, f->m.a->self)) {
        shmi_mon_leave(&f->m, NULL);
        return shmi_fail(EPROTO, "fairmutex.recover", f->m.queueLock.called, "owner word %#x", o);
    }
    if (failed == 0)
        shmi_st32(&f->w->died, 0);
    shmi_put(&f->w->owner, next);
    shmi_wakes_init(&b);
    shmi_fair_resolve(&f->m, &b);
    shmi_mon_leave(&f->m, &b);
    return failed == 0 ? 0 : shmi_fail_who(f->m.a, ENOTRECOVERABLE, "fairmutex.recover", f->m.queueLock.called, shmi_fair_died(f));
}

SHMI_FN int shmi_fair_lock(struct shmi_fairmutex *f, int64_t abs, int may_repair)
{
    int err, took = 0;
    /* A call that finds the lock free is not counted. Any other is, before it takes the queue lock: if it were
     * refused afterwards, it could not give the queue lock back. */
    if (shmi_get(&f->w->owner) == 0) {
        int free_;
        err = shmi_mon_enter(&f->m, abs);
        if (err != 0)
            return err;
        free_ = shmi_fair_free(f);
        if (free_)
            shmi_fair_take(f);
        shmi_mon_leave(&f->m, NULL);
        if (free_)
            return 0;
    }
    do {
        err = shmi_mon_begin(&f->m);
        if (err != 0)
            return err;
        err = shmi_mon_enter(&f->m, abs);
        if (err == 0)
            err = shmi_fair_arrive(f, abs);
        shmi_mon_finish(&f->m);
        if (err != EOWNERDEAD || !may_repair || f->repair == NULL)
            return err;
        err = shmi_fair_begin_recover(f, abs, 0, &took);
        if (took)
            return shmi_fair_run_repair(f, f->repair, f->repair_arg, 1);
    } while (err == 0);
    return err;
}
int shmsync_fairmutex_lock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_fair_lock(f->impl, 0, 1));
}
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_fair_lock(f->impl, ns, 1));
}
int shmsync_fairmutex_trylock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    struct shmi_wakes b;
    int err = shmi_use(x->m.a, "fairmutex.trylock");
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_mon_try_enter(&x->m))
        return SHMI_TELL(EBUSY);
    shmi_wakes_init(&b);
    if (!shmi_fair_free(x))
        shmi_fair_look_at_owner(x, &b);
    if (shmi_fair_free(x)) {
        shmi_fair_take(x);
    } else {
        err = shmi_lock_refusal(&x->m, "fairmutex.trylock", shmi_fair_owner(x), shmi_fair_died(x));
        if (err == 0)
            err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_fairmutex_unlock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    struct shmi_wakes b;
    uint32_t o;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    o = shmi_fair_owner(x);
    if (o != x->m.a->self) {
        shmi_mon_leave(&x->m, NULL);
        return shmi_fail(shmi_fair_valid(o) ? EPERM : EPROTO, "fairmutex.unlock", x->m.queueLock.called, "owner word %#x", o);
    }
    shmi_put(&x->w->owner, 0);
    shmi_wakes_init(&b);
    if (!shmi_fifo_empty(&x->w->queue)) {
        SHMSYNC_CRASHPOINT("fairmutex.unlock.freed");
        shmi_fair_resolve(&x->m, &b);
    }
    shmi_mon_leave(&x->m, &b);
    return 0;
}
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    if (repair == NULL)
        return shmi_fail(EINVAL, "fairmutex.recover", x->m.queueLock.called, "without a repair");
    for (;;) {
        int took, err = shmi_fair_begin_recover(x, 0, 1, &took);
        if (err != 0)
            return SHMI_TELL(err);
        if (took)
            return SHMI_TELL(shmi_fair_run_repair(x, repair, arg, 0));
        err = shmi_fair_lock(x, 0, 0);
        if (err == 0)
            return SHMI_TELL(shmsync_fairmutex_unlock(f));
        if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
            return SHMI_TELL(err);
    }
}
int shmsync_fairmutex_state(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_lock_refusal(&f->impl->m, "fairmutex.state", shmi_fair_owner(f->impl), shmi_fair_died(f->impl)));
}

SHMI_FN void shmi_repair_fairmutex(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_fairmutex f;
    if (o->size < sizeof(shmi_fairmutex_words))
        return;
    shmi_fair_init(&f, a, o, NULL);
    shmi_mon_repair(&f.m, dead);
}
