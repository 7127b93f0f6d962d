
#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: prims/semaphore*.go in C, docs/design/0013-semaphore-fast-path.md ---- */

#define SHMI_FAST_MOST UINT64_C(0x7fffffff)
#define SHMI_FAST_OPEN (UINT64_C(1) << 62)
#define SHMI_POOL_OPEN (UINT64_C(1) << 63)
#define SHMI_SEMAPHORE_TRANSFER (UINT64_C(1) << 63)

struct shmi_semaphore {
    struct shmi_monitor m;
    shmi_semaphore_words *w;
    shmi_semaphore_share *own;   /* this process's; NULL in the view of a reaper */
    shmi_list_words *queue;      /* in the base */
    shmi_off base;               /* of the oldest slot record, which is the base */
    shmi_semaphore_share **known; /* by slot, from slot 1; NULL in the view of a reaper, which walks the records. Atomic. */
    uint32_t known_head;         /* the latest slot record in known, as objRecords names it. Atomic. */
    uint32_t bad;                /* the list of records was corrupt. Atomic. */
    uint32_t slots;
    uint64_t size;
    int moves;      /* transferable */
    uint32_t fast; /* this handle has opened our share. Atomic. */
};

/* The counters of the queue lock follow in an arena whose objects count. */
SHMI_FN uint64_t shmi_semaphore_bytes(shmsync_arena *a)
{
    return a->geo.counted ? sizeof(shmi_mutex_words) : sizeof(shmi_semaphore_words);
}

/* The shares lie in slot records, which stay until the object is deleted. So a handle remembers where they are, in an array that it has
 * from the start: a signal handler may get here. A participant has its record on the list before it takes the queue lock. */
SHMI_FN shmi_semaphore_share *shmi_sem_share_in(struct shmi_semaphore *s, const shmi_record_walk *v)
{
    return &((shmi_semaphore_record *)shmi_ptr(s->m.a, v->b.off, sizeof(shmi_semaphore_record), 8))->share;
}
SHMI_FN void shmi_sem_learn(struct shmi_semaphore *s)
{
    uint32_t head = shmi_ld32(shmi_u32(s->m.a, s->m.o.off + SHMI_objRecords));
    shmi_record_walk v;
    if (SHMI_LIKELY(shmi_ld32(&s->known_head) == head))
        return;
    shmi_walk_records(s->m.a, &v, s->m.o.off, sizeof(shmi_semaphore_record));
    v.next = (shmi_off)head * SHMI_blockMin;
    while (shmi_next_record(s->m.a, &v))
        if (__atomic_load_n(&s->known[v.slot - 1], __ATOMIC_RELAXED) == NULL) /* a share that is known stays known, whatever a peer makes of the list */
            __atomic_store_n(&s->known[v.slot - 1], shmi_sem_share_in(s, &v), __ATOMIC_RELEASE);
    shmi_st32(&s->bad, v.bad != 0);
    shmi_st32(&s->known_head, head);
}
/* A walk over the shares. */
typedef struct shmi_sem_walk {
    shmi_record_walk v;
    uint32_t slot;
} shmi_sem_walk;
SHMI_FN void shmi_sem_begin(struct shmi_semaphore *s, shmi_sem_walk *i)
{
    i->slot = 0;
    if (s->known != NULL)
        shmi_sem_learn(s);
    else
        shmi_walk_records(s->m.a, &i->v, s->m.o.off, sizeof(shmi_semaphore_record));
}
SHMI_FN shmi_semaphore_share *shmi_sem_next(struct shmi_semaphore *s, shmi_sem_walk *i)
{
    shmi_semaphore_share *h;
    if (s->known == NULL) {
        if (!shmi_next_record(s->m.a, &i->v))
            return NULL;
        i->slot = i->v.slot;
        return shmi_sem_share_in(s, &i->v);
    }
    while (i->slot < s->slots)
        if ((h = __atomic_load_n(&s->known[i->slot++], __ATOMIC_ACQUIRE)) != NULL)
            return h;
    return NULL;
}
/* The share of a slot, or NULL. */
SHMI_FN shmi_semaphore_share *shmi_sem_share_of(struct shmi_semaphore *s, uint32_t slot)
{
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    if (slot < 1 || slot > s->slots)
        return NULL;
    if (s->known != NULL) {
        shmi_sem_learn(s);
        return __atomic_load_n(&s->known[slot - 1], __ATOMIC_ACQUIRE);
    }
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;)
        if (i.slot == slot)
            return h;
    return NULL;
}
/* The word of a share, or of the base, that is at off, or NULL if the redo log may not name that word. The maker of the record may not
 * have published its block yet, so shmi_try_at may not find these words. */
SHMI_FN uint64_t *shmi_sem_logged(struct shmi_monitor *m, shmi_off off)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    if (off == s->base + offsetof(shmi_semaphore_record, accounted))
        return m->w.accounted;
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;) {
        shmi_off at = m->at + (uint64_t)((uintptr_t)h - (uintptr_t)m->w.queueLock);
        if (off == at + offsetof(shmi_semaphore_share, name))
            return &h->name;
        if (off == at + offsetof(shmi_semaphore_share, permits))
            return &h->permits;
        if (off == at + offsetof(shmi_semaphore_share, fast))
            return &h->fast;
    }
    return NULL;
}
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
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    if (marks == 0)
        return;
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;)
        if ((marks & shmi_sem_open_bit(i.slot)) != 0)
            shmi_sem_close_share(s, h);
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
/* Opens what was closed for the time of the queue lock, if nobody is queued. While it is open, others change it without
 * the lock. */
SHMI_FN void shmi_sem_reopen(struct shmi_semaphore *s)
{
    uint64_t p;
    if (s->moves && shmi_fifo_empty(s->queue) && ((p = shmi_ld64(&s->w->free)) & SHMI_POOL_OPEN) == 0)
        shmi_st64(&s->w->free, p | SHMI_POOL_OPEN);
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
    shmi_semaphore_share *h = shmi_sem_share_of(s, shmi_id_slot(owner));
    struct shmi_change c;
    c.n = 0;
    if (n > shmi_sem_pool(s) || h == NULL) {
        shmi_mon_account(m, w, NULL); /* a peer wrote the owner, or the number */
        return;
    }
    if (!s->moves) {
        if (shmi_get(&h->name) != owner) {
            shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_get(&h->permits) + shmi_fast_permits(shmi_sem_shut(h)) - n);
            shmi_change_set(&c, &h->name, owner);
            shmi_change_set(&c, &h->permits, n);
            shmi_change_set(&c, &h->fast, 0);
            shmi_mon_account(m, w, &c);
            return;
        }
        shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + n);
    } else if (shmi_get(&h->name) == owner) { /* a participant whose wait is queued has inherited the share */
        shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + n);
    }
    shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) - n);
    shmi_mon_account(m, w, &c);
}
SHMI_FN void shmi_sem_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, s->queue)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (!shmi_sem_can_take(s, shmi_get(&w.n->wanted)))
            return;
        else if (shmi_mon_end(m, b, w, 0, 0))
            shmi_sem_account(m, w);
    }
}
SHMI_FN void shmi_sem_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, ((struct shmi_semaphore *)m)->queue, w); }
SHMI_FN void shmi_sem_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, ((struct shmi_semaphore *)m)->queue, w); }
SHMI_FN void shmi_sem_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, ((struct shmi_semaphore *)m)->queue); }
SHMI_FN void shmi_sem_clear(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint64_t left = s->size;
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    shmi_fifo_clear(s->queue);
    if (s->moves)
        return;
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;)
        left -= shmi_min(shmi_sem_total(h), left);
    shmi_st64(&s->w->free, left);
}
SHMI_FN void shmi_sem_reap(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;) {
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
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;)
        if (s->moves ? shmi_sem_unaccepted(s, h) > 0 : shmi_sem_total(h) > 0)
            shmi_mon_heed(m, shmi_name_of(&h->name));
}
SHMI_FN void shmi_sem_look(struct shmi_monitor *m) { shmi_mon_date_first(m, ((struct shmi_semaphore *)m)->queue); }

static const struct shmi_rules shmi_sem_rules = {
    shmi_sem_resolve, shmi_sem_account, shmi_sem_clear, shmi_sem_requeue, shmi_sem_detach,
    shmi_sem_discard_dead, shmi_sem_reap, shmi_sem_holders, shmi_sem_look,
};

/* Makes the view of a reaper, or the common part of a handle; 0: the object has no record, or a corrupt list of them. */
SHMI_FN int shmi_sem_init(struct shmi_semaphore *s, shmsync_arena *a, const shmi_object *o)
{
    shmi_semaphore_record *base;
    struct shmi_mon_places at;
    shmi_record_walk v;
    uint64_t size;
    s->base = 0;
    for (shmi_walk_records(a, &v, o->off, sizeof *base); shmi_next_record(a, &v);)
        s->base = v.b.off; /* at last the oldest */
    if (v.bad || s->base == 0)
        return 0;
    base = (shmi_semaphore_record *)shmi_ptr(a, s->base, sizeof *base, 8);
    s->w = (shmi_semaphore_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 8); /* no block for it is smaller */
    at.queueLock = (shmi_mutex_words *)(void *)s->w;
    at.arrivals = &base->arrivals;
    at.redone = &s->w->redone;
    at.accounted = &base->accounted;
    at.redo = base->redo;
    at.lastCPU = &s->w->lastCPU;
    at.spin = &s->w->spin;
    at.pays = &s->w->pays;
    shmi_mon_init_at(&s->m, a, o, o->body, &at, &shmi_sem_rules);
    s->m.handlers = 1;
    s->m.logged = shmi_sem_logged;
    s->own = NULL;
    s->queue = &base->queue;
    s->known = NULL;
    s->known_head = s->bad = 0;
    s->slots = a->geo.slots;
    size = shmi_ld64(&s->w->size);
    s->size = size & ~SHMI_SEMAPHORE_TRANSFER;
    s->moves = (size & SHMI_SEMAPHORE_TRANSFER) != 0;
    s->fast = 0;
    return 1;
}
SHMI_FN void shmi_sem_end(void *handle)
{
    shmi_free_thing(((struct shmi_semaphore *)handle)->known); /* a call that is under way may still read it */
    shmi_free_thing(handle);
}
SHMI_FN void *shmi_sem_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_semaphore *s;
    shmi_off record;
    size_t cap = 16;
    (void)arg;
    if (shmi_slot_record(a, o, sizeof(shmi_semaphore_record), &record) != 0)
        return NULL;
    s = (struct shmi_semaphore *)shmi_new_thing(sizeof *s);
    if (s == NULL)
        return NULL;
    if (!shmi_sem_init(s, a, o)) {
        shmi_free_thing(s);
        shmi_fail(EPROTO, "semaphore.open", shmi_called(o), "its list of slot records");
        return NULL;
    }
    s->own = &((shmi_semaphore_record *)shmi_ptr(a, record, sizeof(shmi_semaphore_record), 8))->share;
    while (cap < s->slots)
        cap *= 2; /* few sizes, since each has its own spare ones */
    s->known = (shmi_semaphore_share **)shmi_new_thing(cap * sizeof *s->known);
    if (s->known == NULL) {
        shmi_free_thing(s);
        shmi_fail(ENOMEM, "semaphore.open", shmi_called(o), "%s", "");
        return NULL;
    }
    shmi_built_ends_with(a, o->off, shmi_sem_end);
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
    w->spin = s->spin;
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
    shmi_mon_spec(&spec, SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, name, shmi_semaphore_bytes(a));
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
    int err = shmi_mon_at(a, off, "semaphore.open", SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, shmi_semaphore_bytes(a), shmi_sem_build, NULL, &impl);
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
    err = shmi_unshare(s->impl->m.a, s->impl->m.o.off, shmi_sem_end);
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
        shmi_sem_learn(s);
        if (SHMI_UNLIKELY(shmi_ld32(&s->bad) != 0)) {
            shmi_sem_reopen(s);
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return shmi_fail(EPROTO, "semaphore.acquire", m->queueLock.called, "its list of slot records");
        }
        shmi_mon_reap_if_due(m, &b);
        if (s->moves && shmi_get(&s->own->name) != m->a->self) {
            shmi_sem_take_back_grants(s, s->own, m->a->self);
            shmi_sem_resolve(m, &b);
        }
        if (shmi_fifo_empty(s->queue) && n <= s->size && shmi_sem_can_take(s, n)) {
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
    if (!shmi_fifo_empty(s->queue))
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
    shmi_semaphore_share *h;
    shmi_sem_walk i;
    if (marks != 0)
        for (shmi_sem_begin(s, &i); (h = shmi_sem_next(s, &i)) != NULL;)
            if ((marks & shmi_sem_open_bit(i.slot)) != 0)
                n += shmi_fast_spare(shmi_ld64(&h->fast));
    return (int64_t)shmi_min(n, INT64_MAX);
}

SHMI_FN void shmi_repair_semaphore(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_semaphore s;
    if (o->size < shmi_semaphore_bytes(a))
        return;
    if (shmi_sem_init(&s, a, o)) /* without a record nobody has used it; with a corrupt list, a process that knows the records repairs it */
        shmi_mon_repair(&s.m, dead);
}
#endif
