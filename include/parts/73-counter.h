
/* ---- WaitGroups and Latches: prims/counter.go in C ---- */

struct shmi_counter {
    struct shmi_monitor m;
    shmi_counter_words *w;
    shmi_counter_share *shares; /* of the slots, from slot 1 */
    uint32_t slots;
    const char *op; /* of waits, in errors */
};

SHMI_FN uint64_t shmi_counter_bytes(uint32_t slots) { return sizeof(shmi_counter_words) + (uint64_t)slots * sizeof(shmi_counter_share); }
SHMI_FN shmi_participant_id shmi_name_of(const uint64_t *w) { return (shmi_participant_id)(shmi_ld64(w) & SHMI_NAME_MASK); }

SHMI_FN uint64_t shmi_min(uint64_t x, uint64_t y) { return x < y ? x : y; }
/* What a share is worth. */
SHMI_FN uint64_t shmi_counter_has(struct shmi_counter *t, shmi_counter_share *h)
{
    return shmi_get(&h->epoch) == shmi_get(&t->w->epoch) ? shmi_get(&h->own) : 0;
}

/* Makes what a dead participant has what the dead owe. */
SHMI_FN void shmi_counter_fold(struct shmi_counter *t, shmi_counter_share *h)
{
    uint64_t own = shmi_counter_has(t, h);
    struct shmi_change c;
    if (own == 0)
        return;
    c.n = 0;
    shmi_change_set(&c, &t->w->owed, shmi_get(&t->w->owed) + own);
    shmi_change_set(&c, &t->w->dead, shmi_get(&h->name));
    shmi_change_set(&c, &h->own, 0);
    shmi_mon_commit(&t->m, &c);
}

/* This participant's share, with the queue lock held. */
SHMI_FN shmi_counter_share *shmi_counter_mine(struct shmi_counter *t)
{
    shmi_participant_id self = t->m.a->self;
    shmi_counter_share *h = &t->shares[shmi_id_slot(self) - 1];
    if (shmi_get(&h->name) == self && shmi_get(&h->epoch) == shmi_get(&t->w->epoch))
        return h;
    if (shmi_get(&h->name) != self)
        shmi_counter_fold(t, h);
    /* Void or 0 at each step. */
    shmi_put(&h->own, 0);
    shmi_put(&h->claimed, 0);
    shmi_put(&h->name, self);
    shmi_put(&h->epoch, shmi_get(&t->w->epoch));
    return h;
}

SHMI_FN int shmi_counter_add(struct shmi_counter *t, uint64_t n)
{
    uint64_t count = shmi_get(&t->w->count);
    shmi_counter_share *h;
    if (n > INT64_MAX - (count < INT64_MAX ? count : INT64_MAX))
        return 0;
    h = shmi_counter_mine(t);
    if (shmi_get(&h->claimed) > shmi_get(&h->own))
        shmi_put(&h->claimed, shmi_get(&h->own)); /* what is added now, others may claim */
    shmi_put(&h->own, shmi_get(&h->own) + n);
    SHMSYNC_CRASHPOINT("counter.add.counted");
    shmi_put(&t->w->count, count + n);
    return 1;
}

SHMI_FN void shmi_counter_all_done(struct shmi_counter *t)
{
    shmi_counter_words *w = t->w;
    if (shmi_get(&w->others) == 0 && shmi_get(&w->owed) == 0) {
        shmi_put(&w->epoch, shmi_get(&w->epoch) + 1); /* this alone makes the sum 0 */
    } else {
        struct shmi_change c;
        c.n = 0;
        shmi_change_set(&c, &w->others, 0);
        shmi_change_set(&c, &w->owed, 0);
        shmi_change_set(&c, &w->dead, 0);
        shmi_change_set(&c, &w->epoch, shmi_get(&w->epoch) + 1);
        shmi_mon_commit(&t->m, &c);
    }
    SHMSYNC_CRASHPOINT("counter.done.counted");
    shmi_st64(&w->count, 0);
}

/* Takes n off, with the queue lock held; 0 if there is not so much. */
SHMI_FN int shmi_counter_done(struct shmi_counter *t, uint64_t n, int *zero)
{
    shmi_counter_words *w = t->w;
    uint64_t count = shmi_get(&w->count), own;
    shmi_counter_share *h;
    *zero = 0;
    if (n > count)
        return 0;
    if (n == 0)
        return 1;
    if (n == count) {
        shmi_counter_all_done(t);
        *zero = 1;
        return 1;
    }
    h = shmi_counter_mine(t);
    own = shmi_get(&h->own);
    if (own >= n) {
        shmi_put(&h->own, own - n);
    } else if (own == 0) {
        shmi_put(&w->others, shmi_get(&w->others) - n);
    } else {
        struct shmi_change c;
        c.n = 0;
        shmi_change_set(&c, &h->own, 0);
        shmi_change_set(&c, &w->others, shmi_get(&w->others) - (n - own));
        shmi_mon_commit(&t->m, &c);
    }
    SHMSYNC_CRASHPOINT("counter.done.counted");
    shmi_put(&w->count, count - n);
    return 1;
}

SHMI_FN int shmi_counter_finish(struct shmi_counter *t, int64_t n, const char *op)
{
    int zero, ok, err;
    if (n < 0)
        return shmi_fail(EINVAL, op, t->m.queueLock.called, "%lld", (long long)n);
    err = shmi_mon_enter(&t->m, 0);
    if (err != 0)
        return err;
    ok = shmi_counter_done(t, (uint64_t)n, &zero);
    if (zero && !shmi_fifo_empty(&t->w->queue))
        shmi_mon_resolve_and_leave(&t->m);
    else
        shmi_mon_leave(&t->m, NULL);
    return ok ? 0 : shmi_fail(EINVAL, op, t->m.queueLock.called, "%lld is more than is left", (long long)n);
}

/* Why there is nothing to wait for: arg gets SHMI_TROUBLE and the name of the dead, or stays 0. */
#define SHMI_TROUBLE (UINT64_C(1) << 32)
SHMI_FN int shmi_counter_over(struct shmi_monitor *m, void *arg)
{
    struct shmi_counter *t = (struct shmi_counter *)m;
    if (shmi_get(&t->w->count) == 0)
        return 1;
    if (shmi_get(&t->w->owed) == 0)
        return 0;
    *(uint64_t *)arg = SHMI_TROUBLE | shmi_name_of(&t->w->dead);
    return 1;
}

SHMI_FN int shmi_counter_wait(struct shmi_counter *t, int64_t abs)
{
    uint64_t dead = 0, outcome = 0;
    shmi_wait_node *wait_node = NULL;
    int err;
    if (shmi_ld64(&t->w->count) == 0)
        return 0;
    err = shmi_mon_begin(&t->m);
    if (err != 0)
        return err;
    err = shmi_mon_enter(&t->m, abs);
    if (err == 0)
        err = shmi_mon_enqueue(&t->m, abs, 0, shmi_counter_over, &dead, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&t->m, wait_node, abs, &outcome);
        if (err == 0 && shmi_outcome_result(outcome) == SHMI_outcomeDead)
            dead = SHMI_TROUBLE | (shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    }
    if (err == 0 && dead != 0)
        err = shmi_fail_who(t->m.a, EOWNERDEAD, t->op, t->m.queueLock.called, (shmi_participant_id)(dead & SHMI_NAME_MASK));
    shmi_mon_finish(&t->m);
    return err;
}

SHMI_FN void shmi_counter_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_counter *t = (struct shmi_counter *)m;
    if (shmi_fifo_empty(&t->w->queue))
        return;
    if (shmi_get(&t->w->count) == 0)
        shmi_mon_end_all(m, b, &t->w->queue, SHMI_outcomeOpen, 0);
    else if (shmi_get(&t->w->owed) != 0)
        shmi_mon_end_all(m, b, &t->w->queue, SHMI_outcomeDead, (uint32_t)shmi_get(&t->w->dead));
}
SHMI_FN void shmi_account_nothing(struct shmi_monitor *m, struct shmi_wait w) { shmi_mon_account(m, w, NULL); }
SHMI_FN void shmi_counter_clear(struct shmi_monitor *m)
{
    struct shmi_counter *t = (struct shmi_counter *)m;
    uint64_t sum = shmi_get(&t->w->others) + shmi_get(&t->w->owed);
    uint32_t i;
    shmi_fifo_clear(&t->w->queue);
    for (i = 0; i < t->slots; i++)
        sum += shmi_counter_has(t, &t->shares[i]);
    shmi_st64(&t->w->count, sum);
}
SHMI_FN void shmi_counter_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_counter *)m)->w->queue, w); }
SHMI_FN void shmi_counter_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_counter *)m)->w->queue, w); }
SHMI_FN void shmi_counter_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_counter *)m)->w->queue); }
SHMI_FN void shmi_counter_reap(struct shmi_monitor *m)
{
    struct shmi_counter *t = (struct shmi_counter *)m;
    uint32_t i;
    for (i = 0; i < t->slots; i++)
        if (shmi_counter_has(t, &t->shares[i]) != 0 && shmi_mon_died(m, shmi_name_of(&t->shares[i].name)))
            shmi_counter_fold(t, &t->shares[i]);
}
SHMI_FN void shmi_counter_holders(struct shmi_monitor *m)
{
    struct shmi_counter *t = (struct shmi_counter *)m;
    uint32_t i;
    for (i = 0; i < t->slots; i++)
        if (shmi_counter_has(t, &t->shares[i]) != 0)
            shmi_mon_heed(m, shmi_name_of(&t->shares[i].name));
}

static const struct shmi_rules shmi_counter_rules = {
    shmi_counter_resolve, shmi_account_nothing, shmi_counter_clear, shmi_counter_requeue, shmi_counter_detach,
    shmi_counter_discard_dead, shmi_counter_reap, shmi_counter_holders, NULL,
};

SHMI_FN void shmi_counter_init(struct shmi_counter *t, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&t->m, a, o, o->body, &shmi_counter_rules);
    t->w = (shmi_counter_words *)shmi_ptr(a, o->body, shmi_counter_bytes(a->geo.slots), 8);
    t->shares = (shmi_counter_share *)(void *)(t->w + 1);
    t->slots = a->geo.slots;
    t->op = o->kind == SHMI_KIND_LATCH ? "latch.wait" : "waitgroup.wait";
}
SHMI_FN void *shmi_counter_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_counter *t = (struct shmi_counter *)malloc(sizeof *t);
    (void)arg;
    if (t != NULL)
        shmi_counter_init(t, a, o);
    return t;
}

/* How much of a share others may claim. */
SHMI_FN uint64_t shmi_counter_claimable(struct shmi_counter *t, shmi_counter_share *h)
{
    uint64_t own = shmi_counter_has(t, h);
    return own - shmi_min(shmi_get(&h->claimed), own);
}
/* The share, other than mine, of which most may be claimed; NULL if there is none. */
SHMI_FN shmi_counter_share *shmi_counter_most(struct shmi_counter *t, const shmi_counter_share *mine)
{
    shmi_counter_share *most = NULL;
    uint32_t i;
    for (i = 0; i < t->slots; i++) {
        shmi_counter_share *h = &t->shares[i];
        if (h != mine && shmi_counter_claimable(t, h) > 0 && (most == NULL || shmi_counter_claimable(t, h) > shmi_counter_claimable(t, most)))
            most = h;
    }
    return most;
}
/* How much of what is expected shmi_counter_claim may take. */
SHMI_FN uint64_t shmi_counter_free(struct shmi_counter *t, int from_others)
{
    int64_t others = (int64_t)shmi_get(&t->w->others);
    uint64_t sum = (uint64_t)(others > 0 ? others : 0) + shmi_get(&t->w->owed), count;
    shmi_counter_share *mine;
    uint32_t i;
    if (!from_others)
        return sum;
    mine = shmi_counter_mine(t);
    for (i = 0; i < t->slots; i++)
        if (&t->shares[i] != mine)
            sum += shmi_counter_claimable(t, &t->shares[i]);
    count = shmi_get(&t->w->count); /* if others is negative, not all that others have is left */
    return shmi_min(sum, count - shmi_min(shmi_get(&mine->own), count));
}
/* Adds to a change that the participant of h claims n. */
SHMI_FN void shmi_counter_take(struct shmi_change *c, shmi_counter_share *h, uint64_t n)
{
    uint64_t own = shmi_get(&h->own);
    shmi_change_set(c, &h->own, own + n);
    shmi_change_set(c, &h->claimed, shmi_min(shmi_get(&h->claimed), own) + n);
}

/* Makes n of what is expected this participant's own: of what the dead owe first, then of what nobody has, and then, if from_others, of what other participants have. */
SHMI_FN int shmi_counter_claim(struct shmi_counter *t, int64_t n, int from_others, const char *op)
{
    shmi_counter_words *w = t->w;
    shmi_counter_share *h, *from;
    struct shmi_change c;
    uint64_t owed, of, nobodys, rest;
    int tries, err = shmi_mon_enter(&t->m, 0);
    if (err != 0)
        return err;
    for (tries = 0;; tries++) {
        if (n >= 0 && (uint64_t)n <= shmi_counter_free(t, from_others) && (tries > 0 || !from_others))
            break;
        if (n < 0 || tries > 0) {
            shmi_mon_leave(&t->m, NULL);
            return shmi_fail(EINVAL, op, t->m.queueLock.called, "%lld is more than is left", (long long)n);
        }
        /* The process that had it may be dead, and this one has come in its place. */
        shmi_counter_holders(&t->m);
        err = shmi_mon_reap_and_enter(&t->m, 0);
        if (err != 0)
            return err;
    }
    h = shmi_counter_mine(t);
    owed = shmi_get(&w->owed);
    of = (uint64_t)n < owed ? (uint64_t)n : owed;
    if (of != 0 && !shmi_all_gone(t->m.a)) { /* what the dead owe is taken from those that are gone */
        shmi_mon_leave(&t->m, NULL);
        err = shmi_await_gone(t->m.a, 0, op, t->m.queueLock.called, 0);
        return err != 0 ? err : shmi_counter_claim(t, n, from_others, op);
    }
    nobodys = (uint64_t)n - of;
    if (from_others) {
        int64_t others = (int64_t)shmi_get(&w->others);
        nobodys = shmi_min(nobodys, (uint64_t)(others > 0 ? others : 0));
    }
    c.n = 0;
    shmi_change_set(&c, &w->owed, owed - of);
    if (of == owed)
        shmi_change_set(&c, &w->dead, 0);
    shmi_change_set(&c, &w->others, shmi_get(&w->others) - nobodys);
    shmi_counter_take(&c, h, of + nobodys);
    shmi_mon_commit(&t->m, &c);
    for (rest = (uint64_t)n - of - nobodys; rest > 0 && (from = shmi_counter_most(t, h)) != NULL;) {
        uint64_t k = shmi_min(rest, shmi_counter_claimable(t, from));
        c.n = 0;
        shmi_change_set(&c, &from->own, shmi_get(&from->own) - k);
        shmi_counter_take(&c, h, k);
        shmi_mon_commit(&t->m, &c);
        rest -= k;
    }
    shmi_mon_leave(&t->m, NULL);
    return 0;
}

/* Forgets what the dead owe. */
SHMI_FN int shmi_counter_reset(struct shmi_counter *t)
{
    shmi_counter_words *w = t->w;
    uint64_t count, owed;
    int err = shmi_mon_enter(&t->m, 0);
    if (err == 0 && __atomic_load_n(&t->m.deaths, __ATOMIC_SEQ_CST) != shmi_deaths(t->m.a))
        err = shmi_mon_reap_and_enter(&t->m, 0);
    if (err != 0)
        return err;
    count = shmi_get(&w->count);
    owed = shmi_get(&w->owed);
    if (owed == 0) {
        shmi_mon_leave(&t->m, NULL);
        return 0;
    }
    if (!shmi_all_gone(t->m.a)) {
        shmi_mon_leave(&t->m, NULL);
        err = shmi_await_gone(t->m.a, 0, "counter.reset", t->m.queueLock.called, 0);
        return err != 0 ? err : shmi_counter_reset(t);
    }
    if (owed >= count) {
        shmi_counter_all_done(t); /* others have done some of it */
    } else {
        struct shmi_change c;
        c.n = 0;
        shmi_change_set(&c, &w->owed, 0);
        shmi_change_set(&c, &w->dead, 0);
        shmi_mon_commit(&t->m, &c);
        shmi_put(&w->count, count - owed);
    }
    shmi_mon_resolve_and_leave(&t->m);
    return 0;
}

SHMI_FN int shmi_open_waitgroup(int existing, shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_mon_spec(&spec, SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, name, shmi_counter_bytes(a->geo.slots));
    spec.arg = &spin;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    return err;
}
int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out) { return shmi_open_waitgroup(0, a, name, opts, out); }
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out) { return shmi_open_waitgroup(1, a, name, opts, out); }
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out)
{
    void *impl;
    int err = shmi_mon_at(a, off, "waitgroup.open", SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, shmi_counter_bytes(a->geo.slots), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    return err;
}
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g) { return g->impl->m.o.off; }
int shmsync_waitgroup_close(shmsync_waitgroup *g)
{
    int err;
    if (g->impl == NULL)
        return EBADF;
    err = shmi_mon_close(&g->impl->m);
    if (err == 0)
        g->impl = NULL;
    return err;
}
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta)
{
    int ok, err;
    if (delta == INT64_MIN)
        return shmi_fail(EINVAL, "waitgroup.add", g->impl->m.queueLock.called, "%s", "");
    if (delta <= 0)
        return shmi_counter_finish(g->impl, -delta, "waitgroup.add");
    err = shmi_mon_enter(&g->impl->m, 0);
    if (err != 0)
        return err;
    ok = shmi_counter_add(g->impl, (uint64_t)delta);
    shmi_mon_leave(&g->impl->m, NULL);
    return ok ? 0 : shmi_fail(EINVAL, "waitgroup.add", g->impl->m.queueLock.called, "the counter would be too big");
}
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n) { return shmi_counter_claim(g->impl, n, 1, "waitgroup.claim"); }
int shmsync_waitgroup_done(shmsync_waitgroup *g) { return shmi_counter_finish(g->impl, 1, "waitgroup.done"); }
int shmsync_waitgroup_wait(shmsync_waitgroup *g) { return shmi_counter_wait(g->impl, 0); }
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic)
{
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return err != 0 ? err : shmi_counter_wait(g->impl, ns);
}
int shmsync_waitgroup_reset(shmsync_waitgroup *g) { return shmi_counter_reset(g->impl); }
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g) { return (int64_t)shmi_ld64(&g->impl->w->count); }

typedef struct shmi_latch_spec {
    uint64_t n;
    uint32_t spin;
} shmi_latch_spec;
SHMI_FN void shmi_latch_fill(unsigned char *body, const void *arg)
{
    shmi_counter_words *w = (shmi_counter_words *)(void *)body;
    const shmi_latch_spec *s = (const shmi_latch_spec *)arg;
    w->size = w->others = w->count = s->n;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_latch(int existing, shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out)
{
    shmi_latch_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    if (!existing && n < 1)
        return shmi_fail(EINVAL, "queue lock.open", name, "it takes a count of at least 1, not %lld; shmsync_latch_attach opens one that exists", (long long)n);
    init.n = (uint64_t)n;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_LATCH, SHMI_VERSION_LATCH, name, shmi_counter_bytes(a->geo.slots));
    spec.init = shmi_latch_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    if (err == 0 && !created && !existing && shmi_ld64(&out->impl->w->size) != (uint64_t)n) {
        shmsync_latch_close(out);
        err = shmi_fail(EINVAL, "queue lock.open", name, "it began with another number than %lld", (long long)n);
    }
    return err;
}
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out) { return shmi_open_latch(0, a, name, n, opts, out); }
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out) { return shmi_open_latch(1, a, name, 0, opts, out); }
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out)
{
    void *impl;
    int err = shmi_mon_at(a, off, "queue lock.open", SHMI_KIND_LATCH, SHMI_VERSION_LATCH, shmi_counter_bytes(a->geo.slots), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    return err;
}
shmsync_offset shmsync_latch_offset(const shmsync_latch *l) { return l->impl->m.o.off; }
int shmsync_latch_close(shmsync_latch *l)
{
    int err;
    if (l->impl == NULL)
        return EBADF;
    err = shmi_mon_close(&l->impl->m);
    if (err == 0)
        l->impl = NULL;
    return err;
}
int shmsync_latch_claim(shmsync_latch *l, int64_t n) { return shmi_counter_claim(l->impl, n, 0, "queue lock.claim"); }
int shmsync_latch_count_down(shmsync_latch *l, int64_t n) { return shmi_counter_finish(l->impl, n, "queue lock.count_down"); }
int shmsync_latch_trywait(shmsync_latch *l) { return shmi_ld64(&l->impl->w->count) == 0 ? 0 : EBUSY; }
int shmsync_latch_wait(shmsync_latch *l) { return shmi_counter_wait(l->impl, 0); }
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic)
{
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return err != 0 ? err : shmi_counter_wait(l->impl, ns);
}
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n)
{
    int err = shmsync_latch_count_down(l, n);
    return err != 0 ? err : shmi_counter_wait(l->impl, 0);
}
int shmsync_latch_reset(shmsync_latch *l) { return shmi_counter_reset(l->impl); }
int64_t shmsync_latch_count(const shmsync_latch *l) { return (int64_t)shmi_ld64(&l->impl->w->count); }

SHMI_FN void shmi_repair_counter(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_counter t;
    if (o->size < shmi_counter_bytes(a->geo.slots))
        return;
    shmi_counter_init(&t, a, o);
    shmi_mon_repair(&t.m, dead);
}
