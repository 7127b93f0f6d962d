
/* ---- Cond: prims/cond*.go in C ---- */

enum { SHMI_condSignalled = 1, SHMI_condBroadcast };
#define SHMI_COND_BATCH 16
#define SHMI_COND_ALL UINT64_C(0xffffffff)
#define SHMI_COND_SUCCESSOR (UINT32_C(1) << 31) /* in the aux of a wait whose signal was passed on to it */
#define SHMI_COND_NO_CHECK UINT64_MAX       /* no wait of a broadcast was left at the last check */

struct shmi_cond {
    struct shmi_monitor m;
    shmi_cond_words *w;
    uint64_t limit;  /* how many waits of a broadcast may be woken and not back at a time */
    int reap_woken;       /* some of the woken waiters may be dead; guarded by the queue lock */
    uint64_t before; /* the count of landed waits at the last check */
};

/* Takes a wait that was woken off the list of the woken waits: it has landed. */
SHMI_FN void shmi_cond_land(struct shmi_cond *k, struct shmi_wait w)
{
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_condBroadcast) {
        uint64_t flying = shmi_get(&k->w->flying);
        shmi_put(&k->w->flying, flying > 0 ? flying - 1 : 0);
        shmi_put(&k->w->landed, shmi_get(&k->w->landed) + 1);
    }
    shmi_fifo_detach(&k->m, &k->w->woken, w);
    shmi_mon_release_node(&k->m, w);
}

/* Notes a wait that was resolved. It keeps its stamp. */
SHMI_FN void shmi_cond_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_condBroadcast)
        shmi_put(&k->w->flying, shmi_get(&k->w->flying) + 1);
    shmi_fifo_requeue(m, &k->w->woken, w);
}

/* Wakes the first wait with a stamp up to bound, and returns whether there was one. */
SHMI_FN int shmi_cond_wake(struct shmi_cond *k, struct shmi_wakes *b, uint64_t bound, uint32_t from)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &k->w->waiting)).n != NULL && shmi_stamp_of(w) <= bound) {
        if (!shmi_mon_waiting(m, w)) {
            shmi_fifo_detach(m, &k->w->waiting, w);
            shmi_mon_release_node(m, w);
            continue;
        }
        shmi_put(&w.n->wanted, bound);
        if (shmi_mon_end(m, b, w, SHMI_condSignalled, from)) {
            SHMSYNC_CRASHPOINT("cond.grant.resolved");
            shmi_cond_account(m, w);
            return 1;
        }
    }
    return 0;
}

/* The next of the woken waits. The walk has a bound, as that of shmi_fifo_discard_dead. */
SHMI_FN struct shmi_wait shmi_fifo_after(struct shmi_monitor *m, struct shmi_wait w)
{
    return shmi_mon_node(m, shmi_link_next(shmi_get(&w.n->next)));
}

/* Passes the signal that has ended w on to the next wait, unless that has been done. */
SHMI_FN void shmi_cond_pass(struct shmi_cond *k, struct shmi_wakes *b, struct shmi_wait w)
{
    uint32_t from = (uint32_t)shmi_stamp_of(w) | SHMI_COND_SUCCESSOR;
    uint64_t left = k->m.a->size / 64;
    struct shmi_wait successor;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) != SHMI_condSignalled)
        return;
    for (successor = shmi_fifo_head(&k->m, &k->w->woken); successor.n != NULL; successor = shmi_fifo_after(&k->m, successor)) {
        if (shmi_outcome_aux(shmi_get(&successor.n->extra)) == from && successor.off != w.off)
            return;
        if (left-- == 0) {
            shmi_set_broken(&k->m, 1);
            return;
        }
    }
    if (shmi_cond_wake(k, b, shmi_get(&w.n->wanted), from))
        SHMSYNC_CRASHPOINT("cond.pass.resolved");
}

/* Wakes waits of a broadcast until limit of them are on their way. */
SHMI_FN void shmi_cond_wake_covered(struct shmi_cond *k, struct shmi_wakes *b, uint64_t limit)
{
    struct shmi_monitor *m = &k->m;
    while (!shmi_is_broken(m) && shmi_get(&k->w->flying) < limit) {
        struct shmi_wait w = shmi_fifo_head(m, &k->w->covered);
        if (w.n == NULL)
            return;
        if (!shmi_mon_waiting(m, w)) {
            shmi_fifo_detach(m, &k->w->covered, w);
            shmi_mon_release_node(m, w);
            continue;
        }
        if (shmi_mon_end(m, b, w, SHMI_condBroadcast, 0)) {
            SHMSYNC_CRASHPOINT("cond.grant.resolved");
            shmi_cond_account(m, w);
        }
    }
}

/* Passes on the signals that dead processes had, and wakes the waits of a broadcast whose turn it is. */
SHMI_FN void shmi_cond_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    if (k->reap_woken) {
        struct shmi_wait w = shmi_fifo_head(m, &k->w->woken);
        uint64_t left = m->a->size / 64;
        k->reap_woken = 0;
        while (w.n != NULL && !shmi_is_broken(m)) {
            struct shmi_wait next;
            int dead = !shmi_mon_current(m, shmi_owner_of(w));
            if (dead)
                shmi_cond_pass(k, b, w); /* the call may put a wait at the end */
            next = shmi_fifo_after(m, w);
            if (dead)
                shmi_cond_land(k, w);
            if (left-- == 0)
                shmi_set_broken(m, 1);
            w = next;
        }
    }
    shmi_cond_wake_covered(k, b, k->limit);
}

/* The queue of a wait that is not over. */
SHMI_FN shmi_list_words *shmi_cond_queue_of(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    return shmi_stamp_of(w) <= shmi_ld64(&k->w->upTo) ? &k->w->covered : &k->w->waiting;
}
SHMI_FN void shmi_cond_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, shmi_cond_queue_of(m, w), w); }
SHMI_FN void shmi_cond_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, shmi_cond_queue_of(m, w), w); }
SHMI_FN void shmi_cond_discard_dead(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    shmi_fifo_discard_dead(m, &k->w->covered);
    shmi_fifo_discard_dead(m, &k->w->waiting);
}
SHMI_FN void shmi_cond_clear(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    shmi_fifo_clear(&k->w->waiting);
    shmi_fifo_clear(&k->w->covered);
    shmi_fifo_clear(&k->w->woken);
    shmi_put(&k->w->flying, 0);
    k->reap_woken = 1;
}
SHMI_FN void shmi_cond_reap(struct shmi_monitor *m) { ((struct shmi_cond *)m)->reap_woken = 1; }

/* If no wait of a broadcast has come back since the last check, the waiters on their way are stopped, or their lock
 * is held for long. Then all remaining waits are woken. */
SHMI_FN void shmi_cond_check(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    uint64_t landed;
    if (shmi_fifo_empty(&k->w->covered)) {
        shmi_st64(&k->before, SHMI_COND_NO_CHECK);
        return;
    }
    landed = shmi_get(&k->w->landed);
    if (shmi_xchg64(&k->before, landed) == landed && shmi_mon_try_enter(m)) {
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_cond_wake_covered(k, &b, SHMI_COND_NO_CHECK);
        shmi_mon_leave(m, &b);
    }
}

SHMI_FN void shmi_cond_holders(struct shmi_monitor *m) { (void)m; } /* the reap finds the waits of the dead itself */

static const struct shmi_rules shmi_cond_rules = {
    shmi_cond_resolve, shmi_cond_account, shmi_cond_clear, shmi_cond_requeue, shmi_cond_detach,
    shmi_cond_discard_dead, shmi_cond_reap, shmi_cond_holders, shmi_cond_check,
};

SHMI_FN void shmi_cond_init(struct shmi_cond *k, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&k->m, a, o, o->body, &shmi_cond_rules);
    k->w = (shmi_cond_words *)shmi_ptr(a, o->body, sizeof(shmi_cond_words), 8);
    k->limit = shmi_ld64(&k->w->batch);
    if (k->limit == 0)
        k->limit = SHMI_COND_BATCH;
    k->reap_woken = 0;
    k->before = SHMI_COND_NO_CHECK;
}
SHMI_FN void *shmi_cond_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_cond *k = (struct shmi_cond *)shmi_new_thing(sizeof *k);
    (void)arg;
    if (k != NULL)
        shmi_cond_init(k, a, o);
    return k;
}

typedef struct shmi_cond_spec {
    uint64_t batch;
    uint32_t spin;
} shmi_cond_spec;
SHMI_FN void shmi_cond_fill(unsigned char *body, const void *arg)
{
    shmi_cond_words *w = (shmi_cond_words *)(void *)body;
    const shmi_cond_spec *s = (const shmi_cond_spec *)arg;
    w->batch = s->batch;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_cond(int existing, shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    SHMI_OPTIONS(shmsync_cond_options, 24, "cond.open", out->impl);
    shmi_cond_spec init;
    shmi_spec spec;
    void *impl;
    int created, err, batch = opts != NULL ? opts->batch : 0;
    init.batch = batch < 0 ? SHMI_COND_ALL : (uint64_t)batch;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_COND, SHMI_VERSION_COND, name, sizeof(shmi_cond_words));
    spec.init = shmi_cond_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_mon_open(a, &spec, shmi_cond_build, NULL, &created, &impl);
    out->impl = (struct shmi_cond *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && batch != 0 && shmi_ld64(&out->impl->w->batch) != init.batch) {
        shmsync_cond_close(out);
        err = shmi_fail(EINVAL, "cond.open", name, "its batch is another than %d", batch);
    }
    return err;
}
int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_cond(0, a, name, opts, out));
}
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_cond(1, a, name, opts, out));
}
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "cond.open", SHMI_KIND_COND, SHMI_VERSION_COND, sizeof(shmi_cond_words), shmi_cond_build, NULL, &impl);
    out->impl = (struct shmi_cond *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_cond_offset(const shmsync_cond *c)
{
    SHMI_OPENED_OR(c, 0);
    return c->impl->m.o.off;
}
int shmsync_cond_close(shmsync_cond *c)
{
    SHMI_OPENED(c);
    int err;
    if (c->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&c->impl->m);
    if (err == 0)
        c->impl = NULL;
    return SHMI_TELL(err);
}

/* Ends a wait after its owner got the lock again, or could not get it; in the second case the signal passes on. */
SHMI_FN int shmi_cond_finish(struct shmi_cond *k, shmi_wait_node *wait_node, int pass)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    struct shmi_wait w;
    int err = shmi_mon_enter(m, 0);
    if (err != 0)
        return err;
    w.off = wait_node->off;
    w.n = wait_node->node;
    shmi_wakes_init(&b);
    if (pass)
        shmi_cond_pass(k, &b, w);
    shmi_cond_land(k, w);
    shmi_cond_resolve(m, &b);
    shmi_mon_leave(m, &b);
    shmi_mon_collect(m, wait_node);
    return 0;
}

/* The part of a wait after the call has been counted. */
SHMI_FN int shmi_cond_wait_counted(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    shmi_wait_node *wait_node = NULL;
    uint64_t stamp;
    int err, lock_err;
    err = shmi_wait_node_take(m->a, &wait_node);
    if (err != 0)
        return err;
    err = shmi_mon_enter(m, abs);
    if (err != 0) {
        shmi_wait_node_return(m->a, wait_node);
        return err;
    }
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(m, &b);
    shmi_mon_join(m, wait_node, 0, 0);
    stamp = shmi_ld64(&wait_node->node->stamp);
    shmi_mon_leave(m, &b);
    SHMSYNC_CRASHPOINT("cond.wait.queued");
    SHMI_OUTSIDE(err = unlock(arg));
    if (err != 0) {
        if (!shmi_mon_give_up(m, wait_node))
            shmi_cond_finish(k, wait_node, 1);
        return err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.unlocked");
    err = shmi_mon_sleep(m, wait_node, abs);
    if (err != 0) {
        wait_node = NULL; /* the queue has it now */
        if (err == ETIMEDOUT && shmi_ld64(&k->w->upTo) >= stamp)
            err = 0; /* a broadcast came first */
    }
    SHMSYNC_CRASHPOINT("cond.wait.woken");
    SHMI_OUTSIDE(lock_err = lock(arg));
    if (lock_err != 0) {
        if (wait_node != NULL)
            shmi_cond_finish(k, wait_node, 1);
        return lock_err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.relocked");
    return wait_node != NULL ? shmi_cond_finish(k, wait_node, 0) : err;
}
SHMI_FN int shmi_cond_wait(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    int err;
    if (abs != 0 && shmi_now() >= abs)
        return ETIMEDOUT;
    err = shmi_mon_begin(&k->m);
    if (err != 0)
        return err;
    err = shmi_cond_wait_counted(k, unlock, lock, arg, abs);
    shmi_mon_finish(&k->m);
    return err;
}
SHMI_FN int shmi_cond_unlock_mutex(void *m) { return shmsync_mutex_unlock((shmsync_mutex *)m); }
SHMI_FN int shmi_cond_lock_mutex(void *m) { return shmsync_mutex_lock((shmsync_mutex *)m); }
/* Waits with a mutex. EINVAL in a transaction: an unlock would show others changes that are not finished. */
SHMI_FN int shmi_cond_wait_mutex(shmsync_cond *c, shmsync_mutex *m, int64_t abs)
{
    uint64_t s = m->impl->rollback ? shmi_ld64(&m->impl->log.head->state) : 0;
    if (s != 0 && SHMI_LOG_ID(s) == m->impl->a->self)
        return shmi_fail(EINVAL, "cond.wait", m->impl->called, "a transaction of the mutex is under way, and the wait would unlock it");
    return shmi_cond_wait(c->impl, shmi_cond_unlock_mutex, shmi_cond_lock_mutex, m, abs);
}
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m)
{
    SHMI_OPENED(c);
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_cond_wait_mutex(c, m, 0));
}
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(c);
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_cond_wait_mutex(c, m, ns));
}
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(c);
    int64_t ns = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &ns) : 0;
    return SHMI_TELL(err != 0 ? err : shmi_cond_wait(c->impl, unlock, lock, arg, ns));
}
int shmsync_cond_signal(shmsync_cond *c)
{
    SHMI_OPENED(c);
    struct shmi_cond *k = c->impl;
    struct shmi_wakes b;
    int err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&k->m, &b);
    shmi_cond_wake(k, &b, shmi_get(&k->m.w->arrivals), 0);
    shmi_mon_leave(&k->m, &b);
    return 0;
}
int shmsync_cond_broadcast(shmsync_cond *c)
{
    SHMI_OPENED(c);
    struct shmi_cond *k = c->impl;
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    int err = shmi_mon_enter(m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(m, &b);
    if (!shmi_fifo_empty(&k->w->waiting)) {
        struct shmi_wait first, last;
        shmi_st64(&k->w->upTo, shmi_get(&m->w->arrivals));
        SHMSYNC_CRASHPOINT("cond.broadcast.stamped");
        first = shmi_fifo_head(m, &k->w->waiting);
        if (first.n != NULL) {
            last = shmi_mon_node(m, shmi_get(&k->w->covered.last));
            if (last.n != NULL) {
                shmi_put(&last.n->next, shmi_links(first.off, shmi_link_prev(shmi_get(&last.n->next))));
                shmi_put(&first.n->next, shmi_links(shmi_link_next(shmi_get(&first.n->next)), last.off));
            } else {
                shmi_put(&k->w->covered.first, first.off);
            }
            shmi_put(&k->w->covered.last, shmi_get(&k->w->waiting.last));
            shmi_fifo_clear(&k->w->waiting);
        }
        SHMSYNC_CRASHPOINT("cond.broadcast.spliced");
        shmi_cond_resolve(m, &b);
    }
    shmi_mon_leave(m, &b);
    return 0;
}

SHMI_FN void shmi_repair_cond(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_cond k;
    if (o->size < sizeof(shmi_cond_words))
        return;
    shmi_cond_init(&k, a, o);
    shmi_mon_repair(&k.m, dead);
}
