
#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: prims/semaphore*.go in C, docs/design/0013-semaphore-fast-path.md ---- */

#define SHMI_FAST_MOST UINT64_C(0x7fffffff)
#define SHMI_FAST_OPEN (UINT64_C(1) << 62)
#define SHMI_POOL_OPEN (UINT64_C(1) << 63)
#define SHMI_SEMAPHORE_TRANSFER (UINT64_C(1) << 63)

struct shmi_semaphore {
    struct shmi_monitor m;
    shmi_semaphore_words *w;
    shmi_semaphore_share *shares, *own; /* of the slots, from slot 1; this process's */
    uint32_t slots;
    uint64_t size;
    int moves;      /* transferable */
    uint32_t fast; /* this handle has opened our share. Atomic. */
};

SHMI_FN uint64_t shmi_semaphore_bytes(uint32_t slots) { return sizeof(shmi_semaphore_words) + (uint64_t)slots * sizeof(shmi_semaphore_share); }
SHMI_FN uint64_t shmi_fast_used(uint64_t q) { return q & SHMI_FAST_MOST; }
SHMI_FN uint64_t shmi_fast_spare(uint64_t q) { return q >> 31 & SHMI_FAST_MOST; }
SHMI_FN uint64_t shmi_fast_permits(uint64_t q) { return shmi_fast_used(q) + shmi_fast_spare(q); }

/* Has the participant of a share change its fast word no more, and gives the word. */
SHMI_FN uint64_t shmi_sem_shut(shmi_semaphore_share *h)
{
    for (;;) {
        uint64_t q = shmi_ld64(&h->fast);
        if ((q & SHMI_FAST_OPEN) == 0 || shmi_cas64(&h->fast, q, q & ~SHMI_FAST_OPEN))
            return q & ~SHMI_FAST_OPEN;
    }
}
SHMI_FN uint64_t shmi_sem_total(shmi_semaphore_share *h) { return shmi_get(&h->permits) + shmi_fast_permits(shmi_ld64(&h->fast)); }

SHMI_FN void shmi_sem_close_share(struct shmi_semaphore *s, shmi_semaphore_share *h)
{
    uint64_t q = shmi_sem_shut(h);
    struct shmi_change c;
    if (q == 0)
        return;
    SHMSYNC_CRASHPOINT("semaphore.gather.shut");
    c.n = 0;
    shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_fast_spare(q));
    shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + shmi_fast_used(q));
    shmi_change_set(&c, &h->fast, 0);
    shmi_mon_commit(&s->m, &c);
}

SHMI_FN uint64_t shmi_sem_open_bit(uint32_t slot) { return UINT64_C(1) << (slot & 63); }

/* Closes all shares. The queue lock is held. */
SHMI_FN void shmi_sem_gather(struct shmi_semaphore *s)
{
    uint64_t marks = shmi_get(&s->w->opened);
    uint32_t i;
    if (marks == 0)
        return;
    for (i = 0; i < s->slots; i++)
        if ((marks & shmi_sem_open_bit(i + 1)) != 0)
            shmi_sem_close_share(s, &s->shares[i]);
    shmi_put(&s->w->opened, 0);
}

/* What is free for anybody. Nobody changes it from here on but with the queue lock. */
SHMI_FN uint64_t shmi_sem_pool(struct shmi_semaphore *s)
{
    while (s->moves) {
        uint64_t p = shmi_ld64(&s->w->free);
        if ((p & SHMI_POOL_OPEN) == 0 || shmi_cas64(&s->w->free, p, p & ~SHMI_POOL_OPEN))
            return p & ~SHMI_POOL_OPEN;
    }
    return shmi_get(&s->w->free);
}
/* Opens what was closed for the time of the queue lock, if nobody is queued. */
SHMI_FN void shmi_sem_reopen(struct shmi_semaphore *s)
{
    if (s->moves && shmi_fifo_empty(&s->w->queue))
        shmi_st64(&s->w->free, shmi_get(&s->w->free) | SHMI_POOL_OPEN);
}

/* Whether n permits are free, which are in free then. */
SHMI_FN int shmi_sem_can_take(struct shmi_semaphore *s, uint64_t n)
{
    if (shmi_sem_pool(s) >= n)
        return 1;
    shmi_sem_gather(s);
    return shmi_get(&s->w->free) >= n;
}

/* Takes n permits that are free for this process. */
SHMI_FN void shmi_sem_take(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t left = shmi_get(&s->w->free) - n;
    if (!s->moves) {
        shmi_semaphore_share *h = s->own;
        if (shmi_get(&h->name) != s->m.a->self) {
            left += shmi_fast_permits(shmi_sem_shut(h)) + shmi_get(&h->permits);
            shmi_put(&h->permits, 0);
            shmi_put(&h->fast, 0);
            shmi_put(&h->name, s->m.a->self);
        }
        if ((shmi_ld64(&h->fast) & SHMI_FAST_OPEN) != 0)
            shmi_add64(&h->fast, n);
        else
            shmi_put(&h->permits, shmi_get(&h->permits) + n);
        SHMSYNC_CRASHPOINT("semaphore.take.counted");
    }
    shmi_put(&s->w->free, left);
}

/* Gives n permits of this process back; 0 if it has not so many. */
SHMI_FN int shmi_sem_give(struct shmi_semaphore *s, uint64_t n)
{
    shmi_semaphore_share *h = s->own;
    if (s->moves) {
        uint64_t left = shmi_sem_pool(s);
        if (n > s->size - shmi_min(left, s->size))
            return 0;
        shmi_put(&s->w->free, left + n);
        return 1;
    }
    if (shmi_get(&h->name) != s->m.a->self)
        return n == 0;
    shmi_sem_close_share(s, h);
    if (shmi_get(&h->permits) < n)
        return 0;
    shmi_put(&h->permits, shmi_get(&h->permits) - n);
    SHMSYNC_CRASHPOINT("semaphore.give.counted");
    shmi_put(&s->w->free, shmi_get(&s->w->free) + n);
    return 1;
}

/* Keeps n free permits for this process, and lets it go without the queue lock from now on, if it was the last to release, too. */
SHMI_FN void shmi_sem_open_share(struct shmi_semaphore *s, uint64_t n)
{
    shmi_semaphore_words *w = s->w;
    shmi_semaphore_share *h = s->own;
    struct shmi_change c;
    uint64_t q;
    /* A process that releases nothing may have no share yet: that of its slot is the dead one's. */
    if (shmi_get(&w->last) != s->m.a->self || shmi_get(&h->name) != s->m.a->self || s->size > SHMI_FAST_MOST) {
        shmi_put(&w->last, s->m.a->self);
        return;
    }
    shmi_put(&w->opened, shmi_get(&w->opened) | shmi_sem_open_bit(s->m.a->my_slot));
    SHMSYNC_CRASHPOINT("semaphore.open.marked");
    q = shmi_get(&h->permits) | n << 31;
    c.n = 0;
    shmi_change_set(&c, &w->free, shmi_get(&w->free) - n);
    shmi_change_set(&c, &h->permits, 0);
    shmi_change_set(&c, &h->fast, q);
    shmi_mon_commit(&s->m, &c);
    SHMSYNC_CRASHPOINT("semaphore.open.filled");
    shmi_st64(&h->fast, q | SHMI_FAST_OPEN);
    shmi_st32(&s->fast, 1);
}

/* Acquires, or releases, without the queue lock; 0 if that cannot be. */
SHMI_FN int shmi_sem_acquire_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    for (;;) {
        v = shmi_ld64(w);
        if (s->moves) {
            if ((v & SHMI_POOL_OPEN) == 0 || (v & ~SHMI_POOL_OPEN) < n)
                return 0;
            if (shmi_cas64(w, v, v - n))
                return 1;
        } else {
            if ((v & SHMI_FAST_OPEN) == 0 || shmi_fast_spare(v) < n)
                return 0;
            if (shmi_cas64(w, v, v + n - (n << 31))) {
                SHMSYNC_CRASHPOINT("semaphore.fast.acquired");
                return 1;
            }
        }
    }
}
SHMI_FN int shmi_sem_release_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    for (;;) {
        v = shmi_ld64(w);
        if (s->moves) {
            uint64_t p = v & ~SHMI_POOL_OPEN;
            if ((v & SHMI_POOL_OPEN) == 0 || p > s->size || n > s->size - p)
                return 0;
            if (shmi_cas64(w, v, v + n))
                return 1;
        } else {
            if ((v & SHMI_FAST_OPEN) == 0 || shmi_fast_used(v) < n)
                return 0;
            if (shmi_cas64(w, v, v - n + (n << 31))) {
                SHMSYNC_CRASHPOINT("semaphore.fast.released");
                return 1;
            }
        }
    }
}

/* Of a transferable semaphore a share counts what waits of the participant were granted, in permits, and what it
 * has accepted, in fast: prims/semaphore_transfer.go. The difference comes back when it dies. */
SHMI_FN uint64_t shmi_sem_unaccepted(struct shmi_semaphore *s, shmi_semaphore_share *h)
{
    int64_t n = (int64_t)(shmi_get(&h->permits) - shmi_ld64(&h->fast));
    return n > 0 ? shmi_min((uint64_t)n, s->size) : 0;
}
/* Makes free what the participant of h, which is gone, has not accepted, and h the share of name. The queue lock is held. */
SHMI_FN void shmi_sem_take_back_grants(struct shmi_semaphore *s, shmi_semaphore_share *h, uint64_t name)
{
    uint64_t pool = shmi_sem_pool(s); /* nobody else changes it from here on */
    struct shmi_change c;
    c.n = 0;
    shmi_change_set(&c, &s->w->free, pool + shmi_min(shmi_sem_unaccepted(s, h), s->size - shmi_min(pool, s->size)));
    shmi_change_set(&c, &h->name, name);
    shmi_change_set(&c, &h->permits, shmi_ld64(&h->fast));
    shmi_mon_commit(&s->m, &c);
}

/* The rules. */

SHMI_FN void shmi_sem_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint64_t n = shmi_get(&w.n->wanted);
    shmi_participant_id owner = shmi_owner_of(w);
    uint32_t slot = shmi_id_slot(owner);
    struct shmi_change c;
    c.n = 0;
    if (n > shmi_sem_pool(s) || slot < 1 || slot > s->slots) {
        shmi_mon_account(m, w, NULL); /* a peer wrote that */
        return;
    }
    if (!s->moves) {
        shmi_semaphore_share *h = &s->shares[slot - 1];
        if (shmi_get(&h->name) != owner) {
            shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_get(&h->permits) + shmi_fast_permits(shmi_sem_shut(h)) - n);
            shmi_change_set(&c, &h->name, owner);
            shmi_change_set(&c, &h->permits, n);
            shmi_change_set(&c, &h->fast, 0);
            shmi_mon_account(m, w, &c);
            return;
        }
        shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + n);
    } else if (shmi_get(&s->shares[slot - 1].name) == owner) { /* whose wait is queued has inherited the share */
        shmi_change_set(&c, &s->shares[slot - 1].permits, shmi_get(&s->shares[slot - 1].permits) + n);
    }
    shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) - n);
    shmi_mon_account(m, w, &c);
}
SHMI_FN void shmi_sem_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &s->w->queue)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (!shmi_sem_can_take(s, shmi_get(&w.n->wanted)))
            return;
        else if (shmi_mon_end(m, b, w, 0, 0))
            shmi_sem_account(m, w);
    }
}
SHMI_FN void shmi_sem_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_semaphore *)m)->w->queue, w); }
SHMI_FN void shmi_sem_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_semaphore *)m)->w->queue, w); }
SHMI_FN void shmi_sem_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_semaphore *)m)->w->queue); }
SHMI_FN void shmi_sem_clear(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint64_t left = s->size;
    uint32_t i;
    shmi_fifo_clear(&s->w->queue);
    if (s->moves)
        return;
    for (i = 0; i < s->slots; i++)
        left -= shmi_min(shmi_sem_total(&s->shares[i]), left);
    shmi_st64(&s->w->free, left);
}
SHMI_FN void shmi_sem_reap(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint32_t i;
    for (i = 0; i < s->slots; i++) {
        shmi_semaphore_share *h = &s->shares[i];
        struct shmi_change c;
        if (s->moves) {
            if (shmi_sem_unaccepted(s, h) > 0 && shmi_mon_gone(m, shmi_name_of(&h->name)))
                shmi_sem_take_back_grants(s, h, shmi_get(&h->name));
            continue;
        }
        if (shmi_sem_total(h) == 0 || !shmi_mon_gone(m, shmi_name_of(&h->name)))
            continue;
        c.n = 0;
        shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_get(&h->permits) + shmi_fast_permits(shmi_sem_shut(h)));
        shmi_change_set(&c, &h->permits, 0);
        shmi_change_set(&c, &h->fast, 0);
        shmi_mon_commit(m, &c);
    }
}
SHMI_FN void shmi_sem_holders(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint32_t i;
    for (i = 0; i < s->slots; i++)
        if (s->moves ? shmi_sem_unaccepted(s, &s->shares[i]) > 0 : shmi_sem_total(&s->shares[i]) > 0)
            shmi_mon_heed(m, shmi_name_of(&s->shares[i].name));
}
SHMI_FN void shmi_sem_look(struct shmi_monitor *m) { shmi_mon_date_first(m, &((struct shmi_semaphore *)m)->w->queue); }

static const struct shmi_rules shmi_sem_rules = {
    shmi_sem_resolve, shmi_sem_account, shmi_sem_clear, shmi_sem_requeue, shmi_sem_detach,
    shmi_sem_discard_dead, shmi_sem_reap, shmi_sem_holders, shmi_sem_look,
};

SHMI_FN void shmi_sem_init(struct shmi_semaphore *s, shmsync_arena *a, const shmi_object *o)
{
    uint64_t size;
    shmi_mon_init(&s->m, a, o, o->body, &shmi_sem_rules);
    s->m.handlers = 1;
    s->w = (shmi_semaphore_words *)shmi_ptr(a, o->body, shmi_semaphore_bytes(a->geo.slots), 8);
    s->shares = (shmi_semaphore_share *)(void *)(s->w + 1);
    s->own = &s->shares[a->my_slot - 1];
    s->slots = a->geo.slots;
    size = shmi_ld64(&s->w->size);
    s->size = size & ~SHMI_SEMAPHORE_TRANSFER;
    s->moves = (size & SHMI_SEMAPHORE_TRANSFER) != 0;
    s->fast = 0;
}
SHMI_FN void *shmi_sem_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)shmi_new_thing(sizeof *s);
    (void)arg;
    if (s != NULL)
        shmi_sem_init(s, a, o);
    return s;
}

typedef struct shmi_semaphore_spec {
    uint64_t size, free_;
    uint32_t spin;
} shmi_semaphore_spec;
SHMI_FN void shmi_sem_fill(unsigned char *body, const void *arg)
{
    shmi_semaphore_words *w = (shmi_semaphore_words *)(void *)body;
    const shmi_semaphore_spec *s = (const shmi_semaphore_spec *)arg;
    w->size = s->size;
    w->free = s->free_;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_semaphore(int existing, shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    SHMI_OPTIONS(shmsync_semaphore_options, 32, "semaphore.open", out->impl);
    int moves = opts != NULL && opts->transferable;
    shmi_semaphore_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    if (n < (existing ? 0 : 1))
        return shmi_fail(EINVAL, "semaphore.open", name, "it takes a number of permits of at least 1, not %lld; shmsync_semaphore_attach opens one that exists", (long long)n);
    if (!existing && moves && opts->initial > n)
        return shmi_fail(EINVAL, "semaphore.open", name, "%lld permits at first of %lld", (long long)opts->initial, (long long)n);
    init.size = (uint64_t)n | (moves ? SHMI_SEMAPHORE_TRANSFER : 0);
    init.free_ = (uint64_t)n;
    if (moves)
        init.free_ = (opts->initial < 0 ? 0 : opts->initial > 0 ? (uint64_t)opts->initial : (uint64_t)n) | SHMI_POOL_OPEN;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, name, shmi_semaphore_bytes(a->geo.slots));
    spec.init = shmi_sem_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_mon_open(a, &spec, shmi_sem_build, NULL, &created, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && ((n != 0 && (uint64_t)n != out->impl->size) || (moves && !out->impl->moves))) {
        shmsync_semaphore_close(out);
        err = shmi_fail(EINVAL, "semaphore.open", name, "it has another number of permits than %lld, or is not transferable", (long long)n);
    }
    return err;
}
int shmsync_semaphore_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_semaphore(0, a, name, n, opts, out));
}
int shmsync_semaphore_attach(shmsync_arena *a, const char *name, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_semaphore(1, a, name, 0, opts, out));
}
int shmsync_semaphore_at(shmsync_arena *a, shmsync_offset off, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "semaphore.open", SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, shmi_semaphore_bytes(a->geo.slots), shmi_sem_build, NULL, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->m.o.off;
}
int shmsync_semaphore_close(shmsync_semaphore *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&s->impl->m);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

/* The rest of acquire, in a call that counts unless it only tries. */
SHMI_FN int shmi_sem_acquire_slow(struct shmi_semaphore *s, uint64_t n, int64_t abs, int try_)
{
    struct shmi_monitor *m = &s->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int err, again;
    if (try_) {
        if (!shmi_mon_try_enter(m))
            return EBUSY;
    } else {
        err = shmi_mon_enter(m, abs);
        if (err != 0)
            return err;
    }
    shmi_wakes_init(&b);
    do {
        shmi_mon_reap_if_due(m, &b);
        if (s->moves && shmi_get(&s->own->name) != m->a->self) {
            shmi_sem_take_back_grants(s, s->own, m->a->self);
            shmi_sem_resolve(m, &b);
        }
        if (shmi_fifo_empty(&s->w->queue) && n <= s->size && shmi_sem_can_take(s, n)) {
            shmi_sem_take(s, n);
            shmi_sem_reopen(s);
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return 0;
        }
        if (try_ || n > s->size) {
            shmi_sem_reopen(s);
            shmi_mon_leave(m, &b);
            if (try_)
                return EBUSY;
            while (shmi_now() < abs) { /* there will never be so many */
                if (__atomic_load_n(&m->a->closing, __ATOMIC_SEQ_CST))
                    return shmi_fail(EBADF, "semaphore.acquire", m->queueLock.called, "this process closed the arena");
                shmi_nap((int64_t)shmi_min((uint64_t)(abs - shmi_now()), 100000000) + 1);
            }
            return ETIMEDOUT;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_mon_join(m, wait_node, 0, n);
    shmi_mon_leave(m, &b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0 && s->moves) {
        shmi_add64(&s->own->fast, n);
        SHMSYNC_CRASHPOINT("semaphore.acquire.accepted");
    }
    return err;
}
SHMI_FN int shmi_sem_acquire(struct shmi_semaphore *s, int64_t want, int64_t abs, int forever, int try_)
{
    struct shmi_monitor *m = &s->m;
    uint64_t n = (uint64_t)want;
    int err = shmi_use(m->a, "semaphore.acquire");
    if (err != 0)
        return err;
    if (want < 0 || (n > s->size && forever))
        return shmi_fail(EINVAL, "semaphore.acquire", m->queueLock.called, "%lld of %llu permits", (long long)want, (unsigned long long)s->size);
    if (shmi_sem_acquire_fast(s, n))
        return 0;
    if (try_)
        return shmi_sem_acquire_slow(s, n, abs, 1);
    err = shmi_mon_begin(m);
    if (err != 0)
        return err;
    err = shmi_sem_acquire_slow(s, n, abs, 0);
    shmi_mon_finish(m);
    return err;
}
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_sem_acquire(s->impl, n, 0, 1, 0));
}
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_sem_acquire(s->impl, n, 0, 0, 1));
}
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_sem_acquire(s->impl, n, ns, 0, 0));
}
int shmsync_semaphore_release(shmsync_semaphore *sem, int64_t n)
{
    SHMI_OPENED(sem);
    struct shmi_semaphore *s = sem->impl;
    struct shmi_wakes b;
    int err = shmi_use(s->m.a, "semaphore.release");
    if (err != 0)
        return SHMI_TELL(err);
    if (n < 0)
        return shmi_fail(EINVAL, "semaphore.release", s->m.queueLock.called, "%lld permits", (long long)n);
    if (shmi_sem_release_fast(s, (uint64_t)n))
        return 0;
    err = shmi_mon_enter(&s->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_sem_give(s, (uint64_t)n)) {
        shmi_sem_reopen(s);
        shmi_mon_leave(&s->m, NULL);
        return shmi_fail(EPERM, "semaphore.release", s->m.queueLock.called, "%lld permits are more than are held", (long long)n);
    }
    shmi_wakes_init(&b);
    if (!shmi_fifo_empty(&s->w->queue))
        shmi_sem_resolve(&s->m, &b);
    else if (!s->moves)
        shmi_sem_open_share(s, (uint64_t)n);
    shmi_sem_reopen(s);
    shmi_mon_leave(&s->m, &b);
    return 0;
}
int64_t shmsync_semaphore_free(const shmsync_semaphore *sem)
{
    SHMI_OPENED_OR(sem, 0);
    struct shmi_semaphore *s = sem->impl;
    uint64_t n = shmi_ld64(&s->w->free) & ~SHMI_POOL_OPEN, marks = shmi_ld64(&s->w->opened);
    uint32_t i;
    for (i = 0; i < s->slots && marks != 0; i++)
        if ((marks & shmi_sem_open_bit(i + 1)) != 0)
            n += shmi_fast_spare(shmi_ld64(&s->shares[i].fast));
    return (int64_t)shmi_min(n, INT64_MAX);
}

SHMI_FN void shmi_repair_semaphore(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_semaphore s;
    if (o->size < shmi_semaphore_bytes(a->geo.slots))
        return;
    shmi_sem_init(&s, a, o);
    shmi_mon_repair(&s.m, dead);
}
#endif
