
/* ---- Once: prims/once.go in C ---- */

struct shmi_once {
    struct shmi_monitor m;
    shmi_once_words *w;
};

SHMI_FN void shmi_once_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_once *o = (struct shmi_once *)m;
    struct shmi_change c;
    c.n = 0;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_outcomeTurn && shmi_ld32(&o->w->done) == 0)
        shmi_change_set(&c, &o->w->runner, shmi_owner_of(w));
    shmi_mon_account(m, w, &c);
}
SHMI_FN void shmi_once_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_once *o = (struct shmi_once *)m;
    struct shmi_wait w;
    if (shmi_ld32(&o->w->done) != 0) {
        shmi_mon_end_all(m, b, &o->w->queue, SHMI_outcomeOpen, 0);
        return;
    }
    while (!shmi_is_broken(m) && shmi_get(&o->w->runner) == 0 && (w = shmi_fifo_head(m, &o->w->queue)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (shmi_mon_end(m, b, w, SHMI_outcomeTurn, 0))
            shmi_once_account(m, w);
    }
}
SHMI_FN void shmi_once_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_once *)m)->w->queue); }
SHMI_FN void shmi_once_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_once *)m)->w->queue, w); }
SHMI_FN void shmi_once_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_once *)m)->w->queue, w); }
SHMI_FN void shmi_once_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_once *)m)->w->queue); }
SHMI_FN void shmi_once_reap(struct shmi_monitor *m)
{
    struct shmi_once *o = (struct shmi_once *)m;
    if (shmi_mon_gone(m, shmi_name_of(&o->w->runner)))
        shmi_put(&o->w->runner, 0);
}
SHMI_FN void shmi_once_holders(struct shmi_monitor *m) { shmi_mon_heed(m, shmi_name_of(&((struct shmi_once *)m)->w->runner)); }

static const struct shmi_rules shmi_once_rules = {
    shmi_once_resolve, shmi_once_account, shmi_once_clear, shmi_once_requeue, shmi_once_detach,
    shmi_once_discard_dead, shmi_once_reap, shmi_once_holders, NULL,
};

SHMI_FN void shmi_once_init(struct shmi_once *x, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&x->m, a, o, o->body, &shmi_once_rules);
    x->w = (shmi_once_words *)shmi_ptr(a, o->body, sizeof(shmi_once_words), 8);
}
SHMI_FN void *shmi_once_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_once *x = (struct shmi_once *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x != NULL)
        shmi_once_init(x, a, o);
    return x;
}

SHMI_FN int shmi_open_once(int existing, shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_mon_spec(&spec, SHMI_KIND_ONCE, SHMI_VERSION_ONCE, name, sizeof(shmi_once_words));
    spec.arg = &spin;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_once_build, NULL, &created, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(0, a, name, opts, out));
}
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(1, a, name, opts, out));
}
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "once.open", SHMI_KIND_ONCE, SHMI_VERSION_ONCE, sizeof(shmi_once_words), shmi_once_build, NULL, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_once_offset(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return o->impl->m.o.off;
}
int shmsync_once_close(shmsync_once *o)
{
    SHMI_OPENED(o);
    int err;
    if (o->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&o->impl->m);
    if (err == 0)
        o->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_once_done(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return shmi_ld32(&o->impl->w->done) != 0;
}

SHMI_FN int shmi_once_over(struct shmi_monitor *m, void *mine)
{
    struct shmi_once *o = (struct shmi_once *)m;
    shmi_participant_id n;
    if (shmi_ld32(&o->w->done) != 0)
        return 1;
    n = shmi_name_of(&o->w->runner);
    if (n != 0 && !shmi_mon_gone(m, n))
        return 0;
    shmi_put(&o->w->runner, m->a->self);
    *(int *)mine = 1;
    return 1;
}

/* The rest of do, in a call that counts. */
SHMI_FN int shmi_once_do_slow(struct shmi_once *o, void (*f)(void *), void *arg, int64_t abs)
{
    struct shmi_monitor *m = &o->m;
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int mine = 0, err = shmi_mon_enter(m, abs);
    if (err == 0)
        err = shmi_mon_enqueue(m, abs, 0, shmi_once_over, &mine, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(m, wait_node, abs, &outcome);
        mine = err == 0 && shmi_outcome_result(outcome) == SHMI_outcomeTurn;
    }
    if (err != 0 || !mine)
        return err;
    SHMSYNC_CRASHPOINT("once.run.taken");
    SHMI_OUTSIDE(f(arg));
    SHMSYNC_CRASHPOINT("once.run.returned");
    err = shmi_mon_enter(m, 0);
    if (err != 0)
        return err;
    shmi_st32(&o->w->done, 1);
    SHMSYNC_CRASHPOINT("once.run.done");
    shmi_put(&o->w->runner, 0);
    if (shmi_fifo_empty(&o->w->queue))
        shmi_mon_leave(m, NULL);
    else
        shmi_mon_resolve_and_leave(m);
    return 0;
}
SHMI_FN int shmi_once_do(struct shmi_once *o, void (*f)(void *), void *arg, int64_t abs)
{
    int err;
    if (SHMI_LIKELY(shmi_ld32(&o->w->done) != 0))
        return 0;
    err = shmi_mon_begin(&o->m);
    if (err != 0)
        return err;
    err = shmi_once_do_slow(o, f, arg, abs);
    shmi_mon_finish(&o->m);
    return err;
}
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg)
{
    SHMI_OPENED(o);
    return SHMI_TELL(shmi_once_do(o->impl, f, arg, 0));
}
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(o);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_once_do(o->impl, f, arg, ns));
}

SHMI_FN void shmi_repair_once(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_once x;
    if (o->size < sizeof(shmi_once_words))
        return;
    shmi_once_init(&x, a, o);
    shmi_mon_repair(&x.m, dead);
}
