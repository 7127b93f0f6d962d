
/* ---- Barrier: prims/barrier*.go in C ---- */

struct shmi_barrier {
    struct shmi_monitor m;
    shmi_barrier_words *w;
    shmi_barrier_share *shares; /* of the slots, from slot 1 */
    uint32_t slots;
    void (*completion)(void *);
    void *completion_arg;
};

SHMI_FN uint64_t shmi_barrier_bytes(uint32_t slots) { return sizeof(shmi_barrier_words) + (uint64_t)slots * sizeof(shmi_barrier_share); }

/* How many of the parties a share is in a phase, and how many of their arrivals are to come. */
SHMI_FN uint64_t shmi_barrier_in(shmi_barrier_share *h, uint64_t phase, uint64_t *left)
{
    uint64_t parties = shmi_get(&h->parties), of = shmi_get(&h->phase);
    *left = shmi_get(&h->left);
    if (of == phase)
        return parties;
    if (of == phase - 1) {
        parties -= shmi_min(*left, parties); /* other processes arrived instead */
        *left = parties;
        return parties;
    }
    *left = 0;
    return 0;
}
SHMI_FN void shmi_barrier_set(struct shmi_change *c, shmi_barrier_share *h, uint64_t phase, uint64_t parties, uint64_t left)
{
    shmi_change_set(c, &h->phase, phase);
    shmi_change_set(c, &h->parties, parties);
    shmi_change_set(c, &h->left, left);
}

SHMI_FN int shmi_barrier_broken(struct shmi_barrier *x)
{
    uint64_t b = shmi_get(&x->w->broken);
    return b != 0 && b - 1 <= shmi_get(&x->w->phase);
}

enum { SHMI_barrierBreaks = 32, SHMI_barrierNames = 8 };

/* The name of a dead process and a number of parties, in one word. */
SHMI_FN uint64_t shmi_barrier_lost(uint64_t name, uint64_t parties)
{
    return (name & SHMI_NAME_MASK) | shmi_min(parties, UINT32_MAX) << 32;
}

/* How a wait for the end of a phase ends, if it is over. name is 0 with SHMI_outcomeDead for
 * a phase whose record a later broken phase has replaced: nobody knows how it ended. */
SHMI_FN int shmi_barrier_verdict(struct shmi_barrier *x, uint64_t p, uint32_t *end, uint32_t *name)
{
    uint64_t *record = &x->w->breaks[2 * (p % SHMI_barrierBreaks)], at;
    *end = SHMI_outcomeOpen;
    *name = 0;
    if (shmi_get(&x->w->phase) <= p) {
        if (!shmi_barrier_broken(x))
            return 0;
        *end = SHMI_outcomeDead;
        *name = (uint32_t)shmi_get(&x->w->dead);
    } else {
        at = shmi_get(&record[0]);
        if (at <= p)
            return 1;
        *end = SHMI_outcomeDead;
        if (at > p + 1)
            return 1;
        *name = (uint32_t)(shmi_get(&record[1]) & SHMI_NAME_MASK);
    }
    if (*name == 0)
        *name = 1; /* a peer's bytes, and broken all the same */
    return 1;
}

/* Makes a phase, and all later ones, broken by a death: that of the participant of h, whose
 * parties are lost, or, where h is NULL, that of the completer. */
SHMI_FN void shmi_barrier_break(struct shmi_barrier *x, uint64_t phase, uint64_t name, shmi_barrier_share *h)
{
    uint64_t b = shmi_get(&x->w->broken), parties, left;
    struct shmi_change c;
    int i;
    c.n = 0;
    if (b == 0 || phase < b - 1) {
        shmi_change_set(&c, &x->w->broken, phase + 1);
        shmi_change_set(&c, &x->w->dead, name);
    }
    if (h == NULL) {
        shmi_change_set(&c, &x->w->completer, 0);
        shmi_mon_commit(&x->m, &c);
        return;
    }
    parties = shmi_barrier_in(h, shmi_get(&x->w->phase), &left);
    shmi_change_set(&c, &h->parties, 0);
    shmi_change_set(&c, &h->left, 0);
    shmi_change_set(&c, &x->w->lost, shmi_get(&x->w->lost) + parties);
    for (i = 0; i < SHMI_barrierNames; i++)
        if (shmi_get(&x->w->gone[i]) == 0) {
            shmi_change_set(&c, &x->w->gone[i], shmi_barrier_lost(name, parties));
            break;
        }
    shmi_mon_commit(&x->m, &c);
}

/* Breaks the phase that the dead participant of a share leaves incomplete. */
SHMI_FN void shmi_barrier_lose(struct shmi_barrier *x, shmi_barrier_share *h)
{
    uint64_t phase = shmi_get(&x->w->phase), left, parties = shmi_barrier_in(h, phase, &left);
    if (left > 0 && shmi_get(&x->w->completer) == 0)
        shmi_barrier_break(x, phase, shmi_get(&h->name), h);
    else if (parties > left)
        shmi_barrier_break(x, phase + 1, shmi_get(&h->name), h);
}

/* This participant's share, with the queue lock held. */
SHMI_FN shmi_barrier_share *shmi_barrier_mine(struct shmi_barrier *x)
{
    shmi_participant_id self = x->m.a->self;
    shmi_barrier_share *h = &x->shares[shmi_id_slot(self) - 1];
    if (shmi_get(&h->name) != self) {
        shmi_barrier_lose(x, h);
        shmi_put(&h->parties, 0); /* nothing is left of it */
        shmi_put(&h->left, 0);
        shmi_put(&h->name, self);
    }
    return h;
}

SHMI_FN void shmi_barrier_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &x->w->queue)).n != NULL) {
        uint32_t end, name;
        int over = shmi_barrier_verdict(x, shmi_get(&w.n->wanted), &end, &name);
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (!over)
            return;
        else if (shmi_mon_end(m, b, w, end, name))
            shmi_mon_account(m, w, NULL);
    }
}
SHMI_FN void shmi_barrier_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_barrier *)m)->w->queue); }
SHMI_FN void shmi_barrier_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_barrier *)m)->w->queue, w); }
SHMI_FN void shmi_barrier_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_barrier *)m)->w->queue, w); }
SHMI_FN void shmi_barrier_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_barrier *)m)->w->queue); }
SHMI_FN void shmi_barrier_reap(struct shmi_monitor *m)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    uint64_t c = shmi_get(&x->w->completer);
    uint32_t i;
    if (shmi_mon_died(m, (shmi_participant_id)(c & SHMI_NAME_MASK)))
        shmi_barrier_break(x, shmi_get(&x->w->phase), c, NULL);
    for (i = 0; i < x->slots; i++)
        if (shmi_mon_died(m, shmi_name_of(&x->shares[i].name)))
            shmi_barrier_lose(x, &x->shares[i]);
}
SHMI_FN void shmi_barrier_holders(struct shmi_monitor *m)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    uint64_t phase = shmi_get(&x->w->phase), left;
    uint32_t i;
    shmi_mon_heed(m, shmi_name_of(&x->w->completer));
    for (i = 0; i < x->slots; i++)
        if (shmi_barrier_in(&x->shares[i], phase, &left) > 0)
            shmi_mon_heed(m, shmi_name_of(&x->shares[i].name));
}

static const struct shmi_rules shmi_barrier_rules = {
    shmi_barrier_resolve, shmi_account_nothing, shmi_barrier_clear, shmi_barrier_requeue, shmi_barrier_detach,
    shmi_barrier_discard_dead, shmi_barrier_reap, shmi_barrier_holders, NULL,
};

SHMI_FN void shmi_barrier_init(struct shmi_barrier *x, shmsync_arena *a, const shmi_object *o, const shmsync_barrier_options *opts)
{
    shmi_mon_init(&x->m, a, o, o->body, &shmi_barrier_rules);
    x->w = (shmi_barrier_words *)shmi_ptr(a, o->body, shmi_barrier_bytes(a->geo.slots), 8);
    x->shares = (shmi_barrier_share *)(void *)(x->w + 1);
    x->slots = a->geo.slots;
    x->completion = opts != NULL ? opts->completion : NULL;
    x->completion_arg = opts != NULL ? opts->completion_arg : NULL;
}
SHMI_FN void *shmi_barrier_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_barrier *x = (struct shmi_barrier *)shmi_new_thing(sizeof *x);
    if (x != NULL)
        shmi_barrier_init(x, a, o, (const shmsync_barrier_options *)arg);
    return x;
}

typedef struct shmi_barrier_spec {
    uint64_t parties;
    uint32_t spin;
} shmi_barrier_spec;
SHMI_FN void shmi_barrier_fill(unsigned char *body, const void *arg)
{
    shmi_barrier_words *w = (shmi_barrier_words *)(void *)body;
    const shmi_barrier_spec *s = (const shmi_barrier_spec *)arg;
    w->size = w->expected = w->pending = s->parties;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_barrier(int existing, shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_OPTIONS(shmsync_barrier_options, 32, "barrier.open", out->impl);
    shmi_barrier_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    if (parties < (existing ? 0 : 1))
        return shmi_fail(EINVAL, "barrier.open", name, "it takes a number of parties of at least 1, not %lld; shmsync_barrier_attach opens one that exists", (long long)parties);
    init.parties = (uint64_t)parties;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, name, shmi_barrier_bytes(a->geo.slots));
    spec.init = shmi_barrier_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_mon_open(a, &spec, shmi_barrier_build, opts, &created, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && parties != 0 && shmi_ld64(&out->impl->w->size) != (uint64_t)parties) {
        shmsync_barrier_close(out);
        err = shmi_fail(EINVAL, "barrier.open", name, "it began with another number of parties than %lld", (long long)parties);
    }
    return err;
}
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(0, a, name, parties, opts, out));
}
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(1, a, name, 0, opts, out));
}
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "barrier.open", SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, shmi_barrier_bytes(a->geo.slots), shmi_barrier_build, NULL, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    return b->impl->m.o.off;
}
int shmsync_barrier_close(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    int err;
    if (b->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&b->impl->m);
    if (err == 0)
        b->impl = NULL;
    return SHMI_TELL(err);
}

typedef struct shmi_barrier_wanted {
    uint64_t phase;
    uint32_t end, dead; /* the verdict */
} shmi_barrier_wanted;
SHMI_FN int shmi_barrier_over(struct shmi_monitor *m, void *arg)
{
    shmi_barrier_wanted *want = (shmi_barrier_wanted *)arg;
    return shmi_barrier_verdict((struct shmi_barrier *)m, want->phase, &want->end, &want->dead);
}

/* Waits for the end of phase p; it begins with the queue lock held. */
SHMI_FN int shmi_barrier_wait(struct shmi_barrier *x, uint64_t p, int64_t abs)
{
    shmi_barrier_wanted want;
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int err;
    want.phase = p;
    want.end = SHMI_outcomeOpen;
    want.dead = 0;
    err = shmi_mon_enqueue(&x->m, abs, p, shmi_barrier_over, &want, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&x->m, wait_node, abs, &outcome);
        want.end = shmi_outcome_result(outcome);
        want.dead = shmi_outcome_aux(outcome);
    }
    if (err != 0 || want.end != SHMI_outcomeDead)
        return err;
    if (want.dead == 0)
        return shmi_fail(EOWNERDEAD, "barrier.wait", x->m.queueLock.called,
                         "nobody knows how phase %llu ended: more than %d phases ago, and a later one broke", (unsigned long long)p, SHMI_barrierBreaks);
    return shmi_fail_who(x->m.a, EOWNERDEAD, "barrier.wait", x->m.queueLock.called, want.dead & SHMI_NAME_MASK);
}

/* Counts arrivals, with the queue lock held, and says whether they were the last. */
SHMI_FN int shmi_barrier_count(struct shmi_barrier *x, uint64_t n, uint64_t drop)
{
    shmi_barrier_words *w = x->w;
    shmi_barrier_share *h = shmi_barrier_mine(x);
    uint64_t phase = shmi_get(&w->phase), pending = shmi_get(&w->pending) - n, expected = shmi_get(&w->expected), left, own;
    uint64_t parties = shmi_barrier_in(h, phase, &left);
    struct shmi_change c;
    own = shmi_min(n, left);
    parties += n - own;
    c.n = 0;
    if (drop != 0) {
        drop = shmi_min(drop, expected);
        expected -= drop;
        parties -= shmi_min(drop, parties);
        shmi_change_set(&c, &w->expected, expected);
    }
    shmi_barrier_set(&c, h, phase, parties, left - own);
    if (pending > 0) {
        shmi_change_set(&c, &w->pending, pending);
    } else if (x->completion == NULL) {
        shmi_change_set(&c, &w->pending, expected);
        shmi_change_set(&c, &w->phase, phase + 1);
    } else {
        shmi_change_set(&c, &w->pending, 0);
        shmi_change_set(&c, &w->completer, x->m.a->self);
    }
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.arrive.counted");
    return pending == 0;
}

/* Runs the completion, and ends the phase. It ends with the queue lock held unless it returns an error. */
SHMI_FN int shmi_barrier_complete(struct shmi_barrier *x)
{
    shmi_barrier_words *w = x->w;
    struct shmi_change c;
    int err;
    SHMSYNC_CRASHPOINT("barrier.complete.taken");
    SHMI_OUTSIDE(x->completion(x->completion_arg));
    SHMSYNC_CRASHPOINT("barrier.complete.returned");
    err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    if (shmi_get(&w->completer) != x->m.a->self)
        return 0; /* a peer overwrote it */
    c.n = 0;
    shmi_change_set(&c, &w->completer, 0);
    shmi_change_set(&c, &w->pending, shmi_get(&w->expected));
    shmi_change_set(&c, &w->phase, shmi_get(&w->phase) + 1);
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.complete.opened");
    shmi_mon_resolve_and_leave(&x->m);
    return shmi_mon_enter(&x->m, 0);
}

/* Counts n arrivals, and drop parties less, and gives the phase, in a call that counts. It ends with the queue lock held
 * unless it returns an error. */
SHMI_FN int shmi_barrier_arrive(struct shmi_barrier *x, int64_t n, uint64_t drop, int64_t abs, uint64_t *p)
{
    struct shmi_monitor *m = &x->m;
    int err;
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.arrive", m->queueLock.called, "%lld arrivals", (long long)n);
    err = shmi_mon_enter(m, abs);
    if (err != 0)
        return err;
    while (shmi_get(&x->w->completer) != 0 && !shmi_barrier_broken(x)) {
        /* Each turn is a completion. */
        err = shmi_barrier_wait(x, shmi_get(&x->w->phase), abs);
        if (err == 0 || err == EOWNERDEAD)
            err = shmi_mon_enter(m, abs);
        if (err != 0)
            return err;
    }
    *p = shmi_get(&x->w->phase);
    if (shmi_barrier_broken(x)) {
        if (drop != 0) {
            shmi_barrier_share *h = shmi_barrier_mine(x);
            uint64_t left, parties = shmi_barrier_in(h, *p, &left), expected = shmi_get(&x->w->expected);
            struct shmi_change c;
            parties -= shmi_min(drop, parties);
            c.n = 0;
            shmi_change_set(&c, &x->w->expected, expected - shmi_min(drop, expected));
            shmi_barrier_set(&c, h, *p, parties, shmi_min(parties, left));
            shmi_mon_commit(m, &c);
        }
        return 0;
    }
    if ((uint64_t)n > shmi_get(&x->w->pending)) {
        shmi_mon_leave(m, NULL);
        return shmi_fail(EINVAL, "barrier.arrive", m->queueLock.called, "%lld arrivals are more than are expected", (long long)n);
    }
    if (!shmi_barrier_count(x, (uint64_t)n, drop))
        return 0;
    if (shmi_get(&x->w->completer) != 0) {
        shmi_mon_leave(m, NULL);
        return shmi_barrier_complete(x);
    }
    if (shmi_fifo_empty(&x->w->queue))
        return 0;
    shmi_mon_resolve_and_leave(m);
    return shmi_mon_enter(m, 0);
}

/* Arrives and does not wait. */
SHMI_FN int shmi_barrier_arrive_only(struct shmi_barrier *x, int64_t n, uint64_t drop, uint64_t *p)
{
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, n, drop, 0, p);
    if (err == 0)
        shmi_mon_leave(&x->m, NULL);
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase)
{
    SHMI_OPENED(b);
    uint64_t p;
    int err = shmi_barrier_arrive_only(b->impl, n, 0, &p);
    if (err == 0 && phase != NULL)
        *phase = p;
    return SHMI_TELL(err);
}
SHMI_FN int shmi_barrier_await(struct shmi_barrier *x, uint64_t phase, int64_t abs)
{
    uint64_t now;
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_mon_enter(&x->m, abs);
    if (err == 0) {
        now = shmi_get(&x->w->phase);
        if (phase <= now) {
            err = shmi_barrier_wait(x, phase, abs);
        } else {
            shmi_mon_leave(&x->m, NULL);
            err = shmi_fail(EINVAL, "barrier.wait", x->m.queueLock.called, "for phase %llu, and it is in phase %llu", (unsigned long long)phase,
                            (unsigned long long)now);
        }
    }
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_await(b->impl, phase, 0));
}
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_barrier_await(b->impl, phase, ns));
}
SHMI_FN int shmi_barrier_arrive_and_wait(struct shmi_barrier *x, int64_t abs)
{
    uint64_t p;
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, 1, 0, abs, &p);
    if (err == 0)
        err = shmi_barrier_wait(x, p, abs);
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_arrive_and_wait(b->impl, 0));
}
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_barrier_arrive_and_wait(b->impl, ns));
}
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    uint64_t p;
    return SHMI_TELL(shmi_barrier_arrive_only(b->impl, 1, 1, &p));
}
SHMI_FN int shmi_barrier_be(struct shmi_barrier *x, uint64_t n, int none)
{
    shmi_barrier_share *h;
    uint64_t phase, parties, left;
    struct shmi_change c;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    h = shmi_barrier_mine(x);
    phase = shmi_get(&x->w->phase);
    parties = shmi_barrier_in(h, phase, &left);
    c.n = 0;
    if (shmi_get(&x->w->completer) == 0)
        left += n; /* else the phase takes no more arrivals: these parties arrive in the next one */
    shmi_barrier_set(&c, h, phase, none ? 0 : parties + n, none ? 0 : left);
    shmi_mon_commit(&x->m, &c);
    shmi_mon_leave(&x->m, NULL);
    return 0;
}
int shmsync_barrier_register(shmsync_barrier *b, int64_t n)
{
    SHMI_OPENED(b);
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.join", b->impl->m.queueLock.called, "of %lld", (long long)n);
    return SHMI_TELL(shmi_barrier_be(b->impl, (uint64_t)n, 0));
}
int shmsync_barrier_deregister(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_be(b->impl, 0, 1));
}
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did)
{
    SHMI_OPENED(b);
    struct shmi_barrier *x = b->impl;
    struct shmi_change c;
    uint64_t phase, n, left;
    uint32_t i;
    int err;
    if (did != NULL)
        *did = 0;
    if (parties < 0)
        return shmi_fail(EINVAL, "barrier.reset", x->m.queueLock.called, "to %lld parties", (long long)parties);
    err = shmi_mon_enter(&x->m, 0);
    if (err == 0 && __atomic_load_n(&x->m.deaths, __ATOMIC_SEQ_CST) != shmi_deaths(x->m.a))
        err = shmi_mon_reap_and_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_barrier_broken(x)) {
        shmi_mon_leave(&x->m, NULL);
        return 0;
    }
    if (!shmi_all_gone(x->m.a)) {
        shmi_mon_leave(&x->m, NULL);
        err = shmi_await_all_gone(x->m.a, "barrier.reset", x->m.queueLock.called);
        return SHMI_TELL(err != 0 ? err : shmsync_barrier_reset(b, parties, did));
    }
    phase = shmi_get(&x->w->phase);
    n = (uint64_t)parties;
    if (n == 0) {
        uint64_t expected = shmi_get(&x->w->expected);
        n = expected - shmi_min(shmi_get(&x->w->lost), expected);
        if (n == 0)
            n = 1; /* the caller is there */
    }
    c.n = 0;
    shmi_change_set(&c, &x->w->breaks[2 * (phase % SHMI_barrierBreaks)], phase + 1);
    shmi_change_set(&c, &x->w->breaks[2 * (phase % SHMI_barrierBreaks) + 1], shmi_barrier_lost(shmi_get(&x->w->dead), shmi_get(&x->w->lost)));
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.reset.remembered");
    for (i = 0; i < x->slots; i++) {
        uint64_t has = shmi_barrier_in(&x->shares[i], phase, &left);
        if (has == 0)
            continue;
        c.n = 0;
        shmi_barrier_set(&c, &x->shares[i], phase, has, 0); /* as if it had arrived: it is a party of the next phase */
        shmi_mon_commit(&x->m, &c);
    }
    for (i = 0; i < SHMI_barrierNames; i++)
        shmi_put(&x->w->gone[i], 0);
    c.n = 0;
    shmi_change_set(&c, &x->w->phase, phase + 1);
    shmi_change_set(&c, &x->w->expected, n);
    shmi_change_set(&c, &x->w->pending, n);
    shmi_change_set(&c, &x->w->broken, 0);
    shmi_change_set(&c, &x->w->lost, 0);
    shmi_change_set(&c, &x->w->completer, 0);
    shmi_mon_commit(&x->m, &c);
    shmi_mon_resolve_and_leave(&x->m);
    if (did != NULL)
        *did = 1;
    return 0;
}

int64_t shmsync_barrier_lost(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    return (int64_t)shmi_ld64(&b->impl->w->lost);
}

SHMI_FN void shmi_repair_barrier(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_barrier x;
    if (o->size < shmi_barrier_bytes(a->geo.slots))
        return;
    shmi_barrier_init(&x, a, o, NULL);
    shmi_mon_repair(&x.m, dead);
}
