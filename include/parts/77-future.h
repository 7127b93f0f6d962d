
/* ---- Future: prims/future*.go in C ---- */

struct shmi_future {
    struct shmi_monitor m;
    shmi_future_words *w;
};

enum { SHMI_futureIsSet = 1, SHMI_futureIsAbandoned };

SHMI_FN uint64_t shmi_future_load(struct shmi_future *f) { return shmi_ld64(&f->w->state); }
SHMI_FN shmi_participant_id shmi_future_producer(uint64_t s) { return (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN int shmi_future_over(uint64_t s) { return (s & (SHMI_FUTURE_SET_MASK | SHMI_FUTURE_ABANDONED_MASK)) != 0; }
SHMI_FN int shmi_future_claimed(uint64_t s) { return !shmi_future_over(s) && shmi_future_producer(s) != 0; }
/* How waits end when the state is over. */
SHMI_FN uint64_t shmi_future_outcome(uint64_t s)
{
    if ((s & SHMI_FUTURE_SET_MASK) != 0)
        return shmi_outcome(0, SHMI_futureIsSet, (uint32_t)(s >> SHMI_FUTURE_ERRNO_SHIFT));
    return shmi_outcome(0, SHMI_futureIsAbandoned, shmi_future_producer(s));
}
SHMI_FN void shmi_future_abandon(struct shmi_future *f, uint64_t s)
{
    shmi_st64(&f->w->state, shmi_future_producer(s) | SHMI_FUTURE_ABANDONED_MASK);
    SHMSYNC_CRASHPOINT("future.reap.abandoned");
}

SHMI_FN void shmi_future_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f), end = shmi_future_outcome(s);
    if (shmi_future_over(s))
        shmi_mon_end_all(m, b, &f->w->queue, shmi_outcome_result(end), shmi_outcome_aux(end));
}
SHMI_FN void shmi_future_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_future *)m)->w->queue); }
SHMI_FN void shmi_future_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_future *)m)->w->queue, w); }
SHMI_FN void shmi_future_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_future *)m)->w->queue, w); }
SHMI_FN void shmi_future_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_future *)m)->w->queue); }
SHMI_FN void shmi_future_reap(struct shmi_monitor *m)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_mon_died(m, shmi_future_producer(s)))
        shmi_future_abandon(f, s);
}
SHMI_FN void shmi_future_holders(struct shmi_monitor *m)
{
    uint64_t s = shmi_future_load((struct shmi_future *)m);
    if (shmi_future_claimed(s))
        shmi_mon_heed(m, shmi_future_producer(s));
}

static const struct shmi_rules shmi_future_rules = {
    shmi_future_resolve, shmi_account_nothing, shmi_future_clear, shmi_future_requeue, shmi_future_detach,
    shmi_future_discard_dead, shmi_future_reap, shmi_future_holders, NULL,
};

SHMI_FN void shmi_future_init(struct shmi_future *f, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&f->m, a, o, o->body, &shmi_future_rules);
    f->w = (shmi_future_words *)shmi_ptr(a, o->body, sizeof(shmi_future_words), 8);
}
SHMI_FN void *shmi_future_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_future *f = (struct shmi_future *)shmi_new_thing(sizeof *f);
    (void)arg;
    if (f != NULL)
        shmi_future_init(f, a, o);
    return f;
}

SHMI_FN int shmi_open_future(int existing, shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_OPTIONS(shmsync_future_options, 16, "future.open", out->impl);
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_mon_spec(&spec, SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, name, sizeof(shmi_future_words));
    spec.arg = &spin;
    spec.flags = flags;
    err = shmi_mon_open(a, &spec, shmi_future_build, NULL, &created, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_future_open(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(0, a, name, opts, out));
}
int shmsync_future_attach(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(1, a, name, opts, out));
}
int shmsync_future_at(shmsync_arena *a, shmsync_offset off, shmsync_future *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "future.open", SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, sizeof(shmi_future_words), shmi_future_build, NULL, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_future_offset(const shmsync_future *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->m.o.off;
}
int shmsync_future_close(shmsync_future *f)
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

/* The state, with the queue lock held, after the death of its producer has been noticed. */
SHMI_FN uint64_t shmi_future_reaped(struct shmi_future *f, struct shmi_wakes *b)
{
    uint64_t s;
    shmi_mon_reap_if_due(&f->m, b);
    s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_future_producer(s) != f->m.a->self && shmi_dead(f->m.a, shmi_future_producer(s))) {
        shmi_future_abandon(f, s);
        shmi_future_resolve(&f->m, b);
    }
    return shmi_future_load(f);
}

int shmsync_future_claim(shmsync_future *f)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if (!shmi_future_over(s) && shmi_future_producer(s) == 0) {
        shmi_st64(&x->w->state, s | x->m.a->self);
        SHMSYNC_CRASHPOINT("future.claim.claimed");
    } else if (shmi_future_over(s) || shmi_future_producer(s) != x->m.a->self) {
        err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_future_set(shmsync_future *f, int result)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if (shmi_future_over(s)) {
        err = EBUSY;
    } else {
        shmi_st64(&x->w->state, shmi_future_producer(s) | SHMI_FUTURE_SET_MASK | (uint64_t)(uint32_t)result << SHMI_FUTURE_ERRNO_SHIFT);
        SHMSYNC_CRASHPOINT("future.set.stored");
        shmi_future_resolve(&x->m, &b);
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_future_is_set(const shmsync_future *f, int *result)
{
    SHMI_OPENED_OR(f, 0);
    uint64_t s = shmi_future_load(f->impl);
    if ((s & SHMI_FUTURE_SET_MASK) == 0)
        return 0;
    if (result != NULL)
        *result = (int)(uint32_t)(s >> SHMI_FUTURE_ERRNO_SHIFT);
    return 1;
}
/* Why there is nothing to wait for: arg gets how a wait ends. */
SHMI_FN int shmi_future_is_over(struct shmi_monitor *m, void *arg)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_future_producer(s) != m->a->self && shmi_dead(m->a, shmi_future_producer(s))) {
        struct shmi_wakes b;
        shmi_future_abandon(f, s);
        shmi_wakes_init(&b);
        shmi_future_resolve(m, &b);
        shmi_mon_wake(m, &b);
        s = shmi_future_load(f);
    }
    if (!shmi_future_over(s))
        return 0;
    *(uint64_t *)arg = shmi_future_outcome(s);
    return 1;
}
SHMI_FN int shmi_future_wait(struct shmi_future *f, int *result, int64_t abs)
{
    struct shmi_monitor *m = &f->m;
    uint64_t s = shmi_future_load(f), outcome = 0;
    shmi_wait_node *wait_node = NULL;
    int err = shmi_use(m->a, "future.wait");
    if (err != 0)
        return err;
    if ((s & SHMI_FUTURE_SET_MASK) != 0) {
        outcome = shmi_future_outcome(s);
    } else {
        err = shmi_mon_begin(m);
        if (err != 0)
            return err;
        err = shmi_mon_enter(m, abs);
        if (err == 0)
            err = shmi_mon_enqueue(m, abs, 0, shmi_future_is_over, &outcome, &wait_node);
        if (err == 0 && wait_node != NULL)
            err = shmi_mon_await(m, wait_node, abs, &outcome);
        shmi_mon_finish(m);
        if (err != 0)
            return err;
    }
    switch (shmi_outcome_result(outcome)) {
    case SHMI_futureIsSet:
        if (result != NULL)
            *result = (int)shmi_outcome_aux(outcome);
        return 0;
    case SHMI_futureIsAbandoned: return shmi_fail_who(m->a, EOWNERDEAD, "future.wait", m->queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    }
    return shmi_fail(EPROTO, "future.wait", m->queueLock.called, "%s", "");
}
int shmsync_future_wait(shmsync_future *f, int *result)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_future_wait(f->impl, result, 0));
}
int shmsync_future_timedwait(shmsync_future *f, int *result, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_future_wait(f->impl, result, ns));
}
int shmsync_future_reset(shmsync_future *f)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if ((s & SHMI_FUTURE_ABANDONED_MASK) != 0 && !shmi_gone(x->m.a, shmi_future_producer(s))) {
        shmi_mon_leave(&x->m, &b);
        err = shmi_await_gone(x->m.a, shmi_future_producer(s), "future.reset", x->m.queueLock.called, 0);
        return SHMI_TELL(err != 0 ? err : shmsync_future_reset(f));
    }
    if (shmi_future_over(s)) {
        shmi_future_resolve(&x->m, &b);
        shmi_st64(&x->w->state, 0);
        SHMSYNC_CRASHPOINT("future.reset.stored");
    } else {
        err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}

SHMI_FN void shmi_repair_future(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_future f;
    if (o->size < sizeof(shmi_future_words))
        return;
    shmi_future_init(&f, a, o);
    shmi_mon_repair(&f.m, dead);
}
