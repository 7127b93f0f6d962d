
#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: prims/semaphore*.go in C, docs/design/0056-semaphore-without-a-lock.md ---- */

/* A fast word, of a share or of the pool. Bits 0..31: a tag. Bits 32..62: the number of spare permits. Bit 63: the word
 * is open. */
#define SHMI_FAST_MOST UINT64_C(0x7fffffff)
#define SHMI_FAST_OPEN UINT32_C(0x80000000) /* bit 63 of a fast word, in the upper half of the word */
#define SHMI_SEMAPHORE_TRANSFER (UINT64_C(1) << 63)

/* The words that records change, besides those of the queue. The words from SHMI_semName on belong to the share of a
 * slot. */
enum { SHMI_semFree = SHMI_rqOwnKinds, SHMI_semFreeHigh, SHMI_semOpened, SHMI_semName, SHMI_semPermits, SHMI_semPermitsHigh, SHMI_semFast };

struct shmi_semaphore {
    struct shmi_rq q; /* first, so that a pointer to q also points to the Semaphore */
    shmi_semaphore_words *w;
    shmi_semaphore_record *own; /* the slot record of this process; NULL for a reaper that has no handle */
    uint64_t size;
    int moves;     /* the semaphore is transferable */
    uint32_t fast; /* this handle has opened the share of this process. Atomic. */
};

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_semaphore_bytes(shmsync_arena *a) { return sizeof(shmi_semaphore_words) + (a->geo.counted ? 64 : 0); }

/* A step of a walk through the shares, which lie in slot records. A call that has loaded the commit word finds all
 * shares that matter: a share that the walk misses gets no permit while the commit word stays the same. */
SHMI_FN shmi_semaphore_record *shmi_sem_next(struct shmi_semaphore *s, shmi_rq_walk *i) { return (shmi_semaphore_record *)shmi_rq_next_slot(&s->q, i); }
SHMI_FN uint64_t *shmi_sem_word_at(struct shmi_rq *q, uint32_t kind, uint32_t where)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    shmi_semaphore_record *r;
    switch (kind) {
    case SHMI_semFree:
        return &s->w->free;
    case SHMI_semFreeHigh:
        return &s->w->freeHigh;
    case SHMI_semOpened:
        return &s->w->opened;
    }
    r = (shmi_semaphore_record *)shmi_rq_slot(q, where);
    if (r == NULL)
        return NULL;
    switch (kind) {
    case SHMI_semName:
        return &r->share.name;
    case SHMI_semPermits:
        return &r->share.permits;
    case SHMI_semPermitsHigh:
        return &r->share.permitsHigh;
    case SHMI_semFast:
        return &r->share.fast;
    }
    return NULL;
}
SHMI_FN int shmi_sem_corrupt(struct shmi_rq *q, const char *how) { return shmi_fail(EPROTO, "semaphore.change", shmi_called(&q->o), "%s", how); }

SHMI_FN int shmi_fast_open(uint64_t q) { return (q >> 32 & SHMI_FAST_OPEN) != 0; }
SHMI_FN uint64_t shmi_fast_spare(uint64_t q) { return q >> 32 & SHMI_FAST_MOST; }
/* Closes a fast word, so that from now on only records change the word. Returns the new word. */
SHMI_FN uint64_t shmi_sem_shut(uint64_t *w)
{
    for (;;) {
        uint64_t q = shmi_ld64(w), closed = shmi_recorded_with(q, (uint32_t)shmi_fast_spare(q));
        if (!shmi_fast_open(q))
            return q;
        if (shmi_cas64(w, q, closed))
            return closed;
    }
}
/* Whether fast words may be open. In an arena that counts operations, all calls make records instead. */
SHMI_FN int shmi_sem_may_open(struct shmi_semaphore *s) { return !s->q.a->geo.counted && s->size <= SHMI_FAST_MOST; }

SHMI_FN shmi_participant_id shmi_sem_owner(const struct shmi_rq_change *x, const shmi_semaphore_record *r)
{
    return (shmi_participant_id)(shmi_rq_get(x, &r->share.name) & SHMI_NAME_MASK);
}
SHMI_FN uint64_t shmi_sem_permits(const struct shmi_rq_change *x, const shmi_semaphore_record *r)
{
    return shmi_rq_get(x, &r->share.permits) | (uint64_t)shmi_rq_get(x, &r->share.permitsHigh) << 32;
}
SHMI_FN void shmi_sem_set_permits(struct shmi_rq_change *x, uint32_t slot, shmi_semaphore_record *r, uint64_t n)
{
    shmi_rq_set(x, SHMI_semPermits, slot, &r->share.permits, (uint32_t)n);
    shmi_rq_set(x, SHMI_semPermitsHigh, slot, &r->share.permitsHigh, (uint32_t)(n >> 32));
}
/* Returns how many permits are free for any participant once x has taken effect. If the semaphore is transferable,
 * first closes the pool. */
SHMI_FN uint64_t shmi_sem_free_in(struct shmi_semaphore *s, const struct shmi_rq_change *x)
{
    if (s->moves)
        shmi_sem_shut(&s->w->free);
    return (shmi_rq_get(x, &s->w->free) & SHMI_FAST_MOST) | (uint64_t)shmi_rq_get(x, &s->w->freeHigh) << 31;
}
/* Adds to the change x: n permits are free. If the semaphore is transferable, and x leaves no wait in the queue, x also
 * opens the pool. So the caller must first add to x what it changes in the queue. */
SHMI_FN void shmi_sem_set_free(struct shmi_semaphore *s, struct shmi_rq_change *x, uint64_t n)
{
    uint32_t low = (uint32_t)(n & SHMI_FAST_MOST);
    if (s->moves && shmi_sem_may_open(s) && shmi_rq_empty(&s->q, x))
        low |= SHMI_FAST_OPEN;
    shmi_rq_set(x, SHMI_semFree, 0, &s->w->free, low);
    shmi_rq_set(x, SHMI_semFreeHigh, 0, &s->w->freeHigh, (uint32_t)(n >> 31));
}
/* Adds to the change x: the spare permits of a share become free, and the share is closed. The call closes the fast
 * word of the share at once. If x does not take effect, the permits still belong to the share, but only a record can
 * take them. */
SHMI_FN void shmi_sem_fold(struct shmi_semaphore *s, struct shmi_rq_change *x, uint32_t slot, shmi_semaphore_record *r)
{
    uint64_t spare = shmi_min(shmi_fast_spare(shmi_sem_shut(&r->share.fast)), shmi_sem_permits(x, r));
    if (shmi_recorded_value(&r->share.fast) == 0)
        return;
    shmi_rq_set(x, SHMI_semFast, slot, &r->share.fast, 0);
    shmi_sem_set_permits(x, slot, r, shmi_sem_permits(x, r) - spare);
    shmi_sem_set_free(s, x, shmi_sem_free_in(s, x) + spare);
}

/* Acquires n permits without a record. Returns 0 if that is not possible. */
SHMI_FN int shmi_sem_acquire_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->share.fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    do {
        v = shmi_ld64(w);
        if (!shmi_fast_open(v) || shmi_fast_spare(v) < n)
            return 0;
    } while (!shmi_cas64(w, v, v - (n << 32)));
    if (!s->moves)
        SHMSYNC_CRASHPOINT("semaphore.fast.acquired");
    return 1;
}
SHMI_FN int shmi_sem_release_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->share.fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    do {
        v = shmi_ld64(w);
        if (!shmi_fast_open(v) || shmi_fast_spare(v) + n > (s->moves ? s->size : shmi_recorded_value(&s->own->share.permits)))
            return 0;
    } while (!shmi_cas64(w, v, v + (n << 32)));
    if (!s->moves)
        SHMSYNC_CRASHPOINT("semaphore.fast.released");
    return 1;
}

/* The share of a transferable semaphore has two counts: the permits that were granted to waits of the participant, and
 * the permits that the participant has accepted. See prims/semaphore_transfer.go. When the participant dies, the
 * difference becomes free again. */
SHMI_FN uint64_t shmi_sem_unaccepted(struct shmi_semaphore *s, const struct shmi_rq_change *x, const shmi_semaphore_record *r)
{
    int64_t n = (int64_t)(shmi_sem_permits(x, r) - shmi_ld64(&r->share.accepted));
    return n > 0 ? shmi_min((uint64_t)n, s->size) : 0;
}
/* Adds to the change x: if the participant of a share was granted permits that it has not accepted, these permits
 * become free. The participant is dead. */
SHMI_FN void shmi_sem_take_back_grants(struct shmi_semaphore *s, struct shmi_rq_change *x, uint32_t slot, shmi_semaphore_record *r)
{
    uint64_t free_ = shmi_sem_free_in(s, x);
    shmi_sem_set_free(s, x, free_ + shmi_min(shmi_sem_unaccepted(s, x, r), s->size - shmi_min(free_, s->size)));
    shmi_sem_set_permits(x, slot, r, shmi_ld64(&r->share.accepted));
}
/* Adds to the change x: all permits of a share become free. */
SHMI_FN void shmi_sem_empties(struct shmi_semaphore *s, struct shmi_rq_change *x, uint32_t slot, shmi_semaphore_record *r)
{
    shmi_sem_shut(&r->share.fast);
    shmi_rq_set(x, SHMI_semFast, slot, &r->share.fast, 0);
    shmi_sem_set_free(s, x, shmi_sem_free_in(s, x) + shmi_sem_permits(x, r));
    shmi_sem_set_permits(x, slot, r, 0);
}
/* Takes over the share of this process's slot, which may still be that of a dead predecessor. */
SHMI_FN int shmi_sem_inherit(struct shmi_semaphore *s, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    uint32_t slot = s->q.a->my_slot;
    int ok;
    if (s->moves)
        shmi_sem_take_back_grants(s, x, slot, s->own);
    else
        shmi_sem_empties(s, x, slot, s->own);
    shmi_rq_set(x, SHMI_semName, slot, &s->own->share.name, s->q.a->self);
    return shmi_rq_end(&s->q, x, b, &ok);
}

/* ---- The rules. The caller has the private lock. ---- */

/* Sets *enough to whether n permits are free for the change x. If not, looks for a share with spare permits, and tries
 * to make these permits free. If it has found such a share, *again is 1, and the caller has to begin its change again.
 * If *enough and *again are both 0, no share has spare permits. */
SHMI_FN int shmi_sem_enough(struct shmi_semaphore *s, struct shmi_rq_change *x, uint64_t n, struct shmi_wakes *b, int *enough, int *again)
{
    shmi_semaphore_record *r;
    shmi_rq_walk i;
    int ok;
    *again = 0;
    *enough = shmi_sem_free_in(s, x) >= n;
    if (*enough || s->moves || shmi_rq_get(x, &s->w->opened) == 0)
        return 0;
    for (shmi_rq_walk_slots(&s->q, &i); (r = shmi_sem_next(s, &i)) != NULL;) {
        if (shmi_recorded_value(&r->share.fast) == 0)
            continue;
        shmi_sem_fold(s, x, i.slot, r);
        SHMSYNC_CRASHPOINT("semaphore.gather.shut");
        *again = 1;
        return shmi_rq_end(&s->q, x, b, &ok);
    }
    shmi_rq_set(x, SHMI_semOpened, 0, &s->w->opened, 0);
    return 0;
}
/* Adds to the change x: the first wait is granted. Returns 0 if the owner of the wait has no share, so that it cannot
 * get permits. */
SHMI_FN int shmi_sem_grant(struct shmi_semaphore *s, struct shmi_rq_change *x, struct shmi_wait w)
{
    uint64_t n = shmi_ld64(&w.n->wanted);
    shmi_participant_id owner = shmi_node_owner(w.n);
    uint32_t slot = shmi_id_slot(owner);
    shmi_semaphore_record *r = (shmi_semaphore_record *)shmi_rq_slot(&s->q, slot);
    if (r == NULL || shmi_sem_owner(x, r) != owner)
        return 0; /* a living owner has taken its share over before it queued the wait */
    shmi_rq_detach(&s->q, x, w, SHMI_RECORDED_GRANTED);
    shmi_sem_set_free(s, x, shmi_sem_free_in(s, x) - n);
    shmi_sem_set_permits(x, slot, r, shmi_sem_permits(x, r) + n);
    return 1;
}
/* Adds to the change x: a wait leaves the queue without permits. */
SHMI_FN void shmi_sem_remove(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    shmi_rq_detach(q, x, w, outcome);
    if (s->moves)
        shmi_sem_set_free(s, x, shmi_sem_free_in(s, x)); /* opens the pool if the queue is empty */
}
/* Adds to the change x: the first wait is granted, if there are permits for it and the grant fits into the record.
 * Returns the owner of the wait, or 0 if the wait is not granted. */
SHMI_FN shmi_participant_id shmi_sem_grant_too(struct shmi_semaphore *s, struct shmi_rq_change *x)
{
    struct shmi_rq_change y = *x;
    struct shmi_wait w;
    if (!shmi_rq_head(&s->q, &y, &w) || !shmi_rq_waiting(&s->q, w) || shmi_sem_free_in(s, &y) < shmi_ld64(&w.n->wanted) ||
        !shmi_sem_grant(s, &y, w) || y.too_many || y.torn)
        return 0;
    *x = y;
    return shmi_node_owner(w.n);
}
/* Grants, in order, the waits for which there are permits. Takes waits of dead participants off the front of the
 * queue. If other processes change the object all the time, leaves the rest to the periodic checks of the waiters. */
SHMI_FN int shmi_sem_serve(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    uint64_t until = shmi_rq_until(q);
    while (shmi_rq_goes_on(q, until)) {
        /* Each round follows a change by another call, or takes a wait off the queue, or closes a share. */
        shmi_participant_id granted = 0;
        struct shmi_wait w;
        int ok, enough, again, err = shmi_rq_begin(&s->q, x, b);
        if (err != 0)
            return err;
        if (!shmi_rq_head(&s->q, x, &w)) {
            if (!x->torn)
                return 0;
        } else if (!shmi_rq_waiting(&s->q, w)) {
            shmi_sem_remove(q, x, w, SHMI_RECORDED_REMOVED);
        } else {
            err = shmi_sem_enough(s, x, shmi_ld64(&w.n->wanted), b, &enough, &again);
            if (err != 0)
                return err;
            if (again) {
                q->overtaken++; /* count this round, because another process may open the share again. There are fewer shares than SHMI_OVERTAKEN_MOST */
                continue;
            }
            if (!enough) {
                err = shmi_rq_end(&s->q, x, b, &ok);
                if (ok || err != 0)
                    return err;
                continue;
            }
            if (shmi_sem_grant(s, x, w))
                granted = shmi_node_owner(w.n);
            else
                shmi_sem_remove(q, x, w, SHMI_RECORDED_REMOVED);
        }
        err = shmi_rq_end(&s->q, x, b, &ok);
        if (err != 0)
            return err;
        if (ok)
            shmi_rq_reconsider(&s->q, granted);
    }
    return 0;
}

/* Whether the participant of a share keeps permits, or may get permits, so that others cannot acquire them. */
SHMI_FN int shmi_sem_keeps(struct shmi_semaphore *s, const struct shmi_rq_change *x, const shmi_semaphore_record *r)
{
    if (s->moves)
        return shmi_sem_unaccepted(s, x, r) > 0;
    return shmi_sem_permits(x, r) > 0 || shmi_recorded_value(&r->share.fast) != 0;
}
/* Takes back the share of a dead participant. If other processes change the object all the time, the next reap takes
 * the share back. */
SHMI_FN int shmi_sem_reap_share(struct shmi_semaphore *s, struct shmi_rq_change *x, uint32_t slot, shmi_semaphore_record *r, struct shmi_wakes *b)
{
    uint64_t until = shmi_rq_until(&s->q);
    while (shmi_rq_goes_on(&s->q, until)) {
        /* Each round follows a change by another call. */
        shmi_participant_id n;
        int ok, err = shmi_rq_begin(&s->q, x, b);
        if (err != 0)
            return err;
        n = shmi_sem_owner(x, r);
        if (!shmi_rq_absent(&s->q, n) || !shmi_sem_keeps(s, x, r))
            return 0;
        if (s->moves) {
            shmi_sem_take_back_grants(s, x, slot, r);
        } else if (!shmi_gone(s->q.a, n)) {
            shmi_rq_reap_again(&s->q);
            return 0;
        } else {
            shmi_sem_empties(s, x, slot, r);
        }
        err = shmi_rq_end(&s->q, x, b, &ok);
        if (ok || err != 0)
            return err;
    }
    shmi_st32(&s->q.unreaped, 1);
    return 0;
}
/* Takes the waits of dead participants off the queue, and then takes back the shares of these participants. If the
 * semaphore is transferable, permits that were granted and not accepted become free at once, even before the
 * participant is gone. The participant has never used them, so it cannot still write to what they guard. */
SHMI_FN int shmi_sem_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    shmi_semaphore_record *r;
    shmi_rq_walk i;
    int first = shmi_rq_begin_reap(q, x, b), err; /* take back the shares even after an error in the queue, which concerns only the waits */
    for (shmi_rq_walk_slots(q, &i); (r = shmi_sem_next(s, &i)) != NULL;) {
        err = shmi_sem_reap_share(s, x, i.slot, r, b);
        first = first != 0 ? first : err;
    }
    return first;
}
/* Whether some participant that has permits is dead. */
SHMI_FN int shmi_sem_dead(struct shmi_rq *q)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    struct shmi_rq_change x;
    shmi_semaphore_record *r;
    shmi_rq_walk i;
    int dead = 0;
    memset(&x, 0, sizeof x);
    for (shmi_rq_walk_slots(q, &i); (r = shmi_sem_next(s, &i)) != NULL;) {
        shmi_participant_id n = shmi_sem_owner(&x, r);
        dead = dead || (n != 0 && shmi_sem_keeps(s, &x, r) && shmi_dead(q->a, n));
    }
    return dead;
}

/* How an attempt to acquire permits by a record ended. */
enum { SHMI_semTaken, SHMI_semQueued, SHMI_semNotNow };

SHMI_FN int shmi_sem_take_locked(struct shmi_semaphore *s, uint64_t n, shmi_wait_node *wait_node, struct shmi_wakes *b, int *result)
{
    struct shmi_rq_change x;
    int served = 0, moves = s->moves;
    *result = SHMI_semNotNow;
    for (;;) {
        /* The loop ends: each round follows a change by another call, or makes a change that can be made only once. */
        int enough = 0, again = 0, ok, err = shmi_rq_begin(&s->q, &x, b);
        if (err == 0 && shmi_rq_empty(&s->q, &x))
            err = shmi_sem_enough(s, &x, n, b, &enough, &again);
        if (err != 0)
            return err;
        if (again)
            continue;
        if (!enough && !served && (shmi_rq_reap_due(&s->q) || !shmi_rq_empty(&s->q, &x))) {
            served = 1; /* dead participants may have permits that this call, or the first wait, needs */
            err = shmi_rq_tidy(&s->q, &x, b, 0);
            if (err != 0)
                return err;
            continue;
        }
        if (((enough && !moves) || (!enough && wait_node != NULL)) && shmi_sem_owner(&x, s->own) != s->q.a->self) {
            err = shmi_sem_inherit(s, &x, b);
            if (err != 0)
                return err;
            served = 0; /* permits of the predecessor became free, and the first wait may take them */
            continue;
        }
        if (enough) {
            shmi_sem_set_free(s, &x, shmi_sem_free_in(s, &x) - n);
            if (!moves)
                shmi_sem_set_permits(&x, s->q.a->my_slot, s->own, shmi_sem_permits(&x, s->own) + n);
        } else if (wait_node != NULL) {
            shmi_rq_join(&s->q, &x, wait_node);
        } else if (moves && shmi_rq_empty(&s->q, &x)) {
            shmi_sem_set_free(s, &x, shmi_sem_free_in(s, &x)); /* opens the pool again */
        }
        err = shmi_rq_end(&s->q, &x, b, &ok);
        if (err != 0) {
            if (x.made && !enough && wait_node != NULL)
                *result = SHMI_semQueued;
            return err;
        }
        if (ok) {
            *result = enough ? SHMI_semTaken : wait_node != NULL ? SHMI_semQueued : SHMI_semNotNow;
            return 0;
        }
    }
}
/* Acquires n permits by a record. If that is not possible now, queues a wait in wait_node, which the caller has
 * prepared. If wait_node is NULL, queues nothing. After an error, the wait may be queued if *result is
 * SHMI_semQueued. */
SHMI_FN int shmi_sem_take(struct shmi_semaphore *s, uint64_t n, shmi_wait_node *wait_node, int *result)
{
    struct shmi_wakes b;
    int err;
    shmi_wakes_init(&b);
    shmi_rq_lock(&s->q);
    err = shmi_sem_take_locked(s, n, wait_node, &b, result);
    shmi_rq_unlock(&s->q);
    shmi_rq_wake(&s->q, &b);
    return err;
}

/* Adds to the change x: this process releases n permits. Returns 0 if this process has fewer permits. *opens is 1 if x
 * opens the share of this process. */
SHMI_FN int shmi_sem_give_in(struct shmi_semaphore *s, struct shmi_rq_change *x, uint64_t n, int *opens)
{
    uint32_t slot = s->q.a->my_slot;
    uint64_t had, spare, last, self = s->q.a->self;
    shmi_semaphore_record *h = s->own;
    *opens = 0;
    if (s->moves) {
        uint64_t free_ = shmi_sem_free_in(s, x);
        if (n > s->size - shmi_min(free_, s->size))
            return 0;
        shmi_sem_set_free(s, x, free_ + n);
        return 1;
    }
    if (shmi_sem_owner(x, h) != self)
        return n == 0;
    had = shmi_sem_permits(x, h);
    spare = shmi_min(shmi_fast_spare(shmi_sem_shut(&h->share.fast)), had);
    if (had - spare < n)
        return 0;
    /* Open the share only if this process also made the latest release by a record, as w->releaser shows. But other
     * processes may have acquired permits since that release. */
    last = shmi_ld64(&s->w->releaser);
    if (shmi_rq_empty(&s->q, x) && last == self && shmi_sem_may_open(s)) {
        shmi_rq_set(x, SHMI_semOpened, 0, &s->w->opened, 1);
        shmi_rq_set(x, SHMI_semFast, slot, &h->share.fast, (uint32_t)(spare + n) | SHMI_FAST_OPEN);
        *opens = 1;
        return 1;
    }
    if (last != self)
        shmi_st64(&s->w->releaser, self);
    shmi_rq_set(x, SHMI_semFast, slot, &h->share.fast, 0);
    shmi_sem_set_permits(x, slot, h, had - spare - n);
    shmi_sem_set_free(s, x, shmi_sem_free_in(s, x) + spare + n);
    return 1;
}
SHMI_FN int shmi_sem_give_locked(struct shmi_semaphore *s, uint64_t n, struct shmi_wakes *b, int *had)
{
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_participant_id granted;
        int opens, ok, err = shmi_rq_begin(&s->q, &x, b);
        if (err != 0)
            return err;
        *had = shmi_sem_give_in(s, &x, n, &opens);
        if (!*had) {
            if (shmi_ld64(s->q.commit) == x.c)
                return 0;
            continue;
        }
        granted = shmi_sem_grant_too(s, &x);
        err = shmi_rq_end(&s->q, &x, b, &ok);
        if (err != 0)
            return err;
        if (!ok)
            continue;
        shmi_rq_reconsider(&s->q, granted);
        if (opens)
            shmi_st32(&s->fast, 1);
        SHMSYNC_CRASHPOINT("semaphore.give.committed");
        if (shmi_recorded_value(s->q.first) != 0)
            shmi_sem_serve(&s->q, &x, b); /* the permits are released even after an error here, which concerns only the waits */
        return 0;
    }
}
/* Releases n permits of this process, and grants the waits for which there are permits now. *had is 0 if this process
 * has fewer than n permits. */
SHMI_FN int shmi_sem_give(struct shmi_semaphore *s, uint64_t n, int *had)
{
    struct shmi_wakes b;
    int err;
    *had = 1;
    shmi_wakes_init(&b);
    shmi_rq_lock(&s->q);
    err = shmi_sem_give_locked(s, n, &b, had);
    shmi_rq_unlock(&s->q);
    shmi_rq_wake(&s->q, &b);
    return err;
}

/* ---- Handles ---- */

SHMI_FN void shmi_sem_init(struct shmi_rq *q)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    uint64_t size;
    s->w = (shmi_semaphore_words *)shmi_ptr(q->a, q->o.body, sizeof(shmi_semaphore_words), 8);
    q->commit = &s->w->commit;
    q->first = &s->w->first;
    q->last = &s->w->last;
    q->spin = &s->w->spin;
    q->pays = &s->w->pays;
    q->last_cpu = &s->w->lastCPU;
    size = shmi_ld64(&s->w->size);
    s->size = size & ~SHMI_SEMAPHORE_TRANSFER;
    s->moves = (size & SHMI_SEMAPHORE_TRANSFER) != 0;
}
static const shmi_rq_kind shmi_sem_kind = {
    sizeof(shmi_semaphore_record), offsetof(shmi_semaphore_record, entries), 0, shmi_sem_init, shmi_sem_word_at, shmi_sem_corrupt,
    shmi_sem_remove, shmi_sem_serve, shmi_sem_reap, shmi_sem_dead,
};
SHMI_FN void *shmi_sem_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)shmi_rq_build(&shmi_sem_kind, sizeof *s, a, o, "semaphore.open");
    (void)arg;
    if (s != NULL)
        s->own = (shmi_semaphore_record *)(void *)s->q.own;
    return s;
}

typedef struct shmi_semaphore_spec {
    uint64_t size, free_;
    uint32_t spin;
    int open_; /* the pool of the new semaphore is open */
} shmi_semaphore_spec;
SHMI_FN void shmi_sem_fill(unsigned char *body, const void *arg)
{
    shmi_semaphore_words *w = (shmi_semaphore_words *)(void *)body;
    const shmi_semaphore_spec *s = (const shmi_semaphore_spec *)arg;
    w->size = s->size;
    w->free = SHMI_RECORDED((s->free_ & SHMI_FAST_MOST) | (s->open_ ? SHMI_FAST_OPEN : 0), 0);
    w->freeHigh = SHMI_RECORDED(s->free_ >> 31, 0);
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
        init.free_ = opts->initial < 0 ? 0 : opts->initial > 0 ? (uint64_t)opts->initial : (uint64_t)n;
    init.open_ = moves && !a->geo.counted && (uint64_t)n <= SHMI_FAST_MOST;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, name, shmi_semaphore_bytes(a));
    spec.init = shmi_sem_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_sem_build, NULL, &created, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && ((n != 0 && (uint64_t)n != out->impl->size) || (moves && !out->impl->moves))) {
        uint64_t size = out->impl->size;
        int transferable = out->impl->moves;
        shmsync_semaphore_close(out);
        err = shmi_fail(EINVAL, "semaphore.open", name, "it has %llu permits and is%s transferable; asked for %llu%s", (unsigned long long)size,
                        transferable ? "" : " not", (unsigned long long)(n != 0 ? (uint64_t)n : size), moves ? ", transferable" : "");
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
    SHMI_BEGIN_AT(a, "semaphore.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "semaphore.open", SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, shmi_semaphore_bytes(a), shmi_sem_build, NULL, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->q.o.off;
}
int shmsync_semaphore_close(shmsync_semaphore *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(s->impl->q.a, s->impl->q.o.off, shmi_rq_free);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

/* Waits until abs, for an acquire of more permits than the semaphore has in all. Such an acquire never succeeds. */
SHMI_FN int shmi_sem_await_end(struct shmi_semaphore *s, int64_t abs)
{
    int64_t since = shmi_now(), now = since, left;
    while ((left = abs - now) > 0) {
        if (__atomic_load_n(&s->q.a->closing, __ATOMIC_SEQ_CST))
            return shmi_fail(EBADF, "semaphore.acquire", shmi_called(&s->q.o), "this process closed the arena");
        if (shmi_hook_ends(since, &now))
            break;
        shmi_nap((int64_t)shmi_min((uint64_t)left, 100000000) + 1);
        now = shmi_now();
    }
    return ETIMEDOUT;
}
/* What a spin waits for. The spin ends when it has acquired n permits, or when n permits may be free. No share had
 * spare permits when the spin began. So if a share is open now, permits have been released meanwhile. */
typedef struct shmi_sem_wish {
    struct shmi_semaphore *s;
    uint64_t n;
    int taken;
} shmi_sem_wish;
SHMI_FN int shmi_sem_may_take(void *arg)
{
    shmi_sem_wish *u = (shmi_sem_wish *)arg;
    u->taken = shmi_sem_acquire_fast(u->s, u->n);
    return u->taken || shmi_recorded_value(&u->s->w->opened) != 0 ||
           (shmi_fast_spare(shmi_ld64(&u->s->w->free)) | (uint64_t)shmi_recorded_value(&u->s->w->freeHigh) << 31) >= u->n;
}

/* The slow part of an acquire. The caller is within shmi_enter. If no wait is queued, and no other thread of this
 * process waits, the call spins before it queues a wait. When two processes pass permits to and fro, the permits often
 * come during the spin, and no wait is needed. If try_ is not 0, the call neither spins nor waits. */
SHMI_FN int shmi_sem_acquire_slow(struct shmi_semaphore *s, uint64_t n, int64_t abs, int try_)
{
    shmi_wait_node *wait_node;
    shmi_tuning t = shmi_rq_tuning(&s->q);
    shmi_sem_wish u = {s, n, 0};
    shmi_rq_outcome outcome;
    int result, err, spun;
    if (n > s->size)
        return try_ ? EBUSY : shmi_sem_await_end(s, abs);
    err = shmi_sem_take(s, n, NULL, &result);
    if (err != 0 || result == SHMI_semTaken)
        return err;
    if (try_) {
        /* A program that never waits makes no periodic check. Without this check, only the death watchers of other
         * processes would find dead holders, and these processes may be stopped. */
        if (!shmi_check_due(&s->q.looked))
            return EBUSY;
        shmi_rq_check_now(&s->q);
        err = shmi_sem_take(s, n, NULL, &result);
        return err != 0 || result == SHMI_semTaken ? err : EBUSY;
    }
    spun = shmi_ld32(&s->q.waiting) == 0 && shmi_recorded_value(s->q.first) == 0 && (abs == 0 || shmi_now() < abs);
    if (spun && shmi_spin(&t, shmi_sem_may_take, &u)) {
        if (u.taken)
            return 0;
        err = shmi_sem_take(s, n, NULL, &result);
        if (err != 0 || result == SHMI_semTaken)
            return err;
    }
    shmi_rq_learn(&s->q);
    if (SHMI_UNLIKELY(shmi_known_bad(shmi_ld64(&s->q.known_head))))
        return shmi_fail(EPROTO, "semaphore.acquire", shmi_called(&s->q.o), "its list of slot records");
    err = shmi_wait_node_take(s->q.a, &wait_node);
    if (err != 0)
        return err;
    shmi_rq_prepare(&s->q, wait_node, n);
    err = shmi_sem_take(s, n, wait_node, &result);
    if (err != 0 && result == SHMI_semQueued) {
        shmi_wait_node_forget(wait_node);
        return err;
    }
    if (err != 0 || result != SHMI_semQueued) {
        shmi_rq_hand_back(&s->q, wait_node);
        return err;
    }
    err = shmi_rq_await(&s->q, wait_node, !spun, abs, "semaphore.acquire", &outcome);
    if (err != 0)
        return err;
    if (s->moves) {
        shmi_add64(&s->own->share.accepted, n);
        SHMSYNC_CRASHPOINT("semaphore.acquire.accepted");
    }
    return 0;
}
SHMI_FN int shmi_sem_acquire(struct shmi_semaphore *s, int64_t want, int64_t abs, int forever, int try_)
{
    shmsync_arena *a = s->q.a;
    uint64_t n = (uint64_t)want;
    int err = shmi_use(a, "semaphore.acquire");
    if (err != 0)
        return err;
    if (want < 0 || (n > s->size && forever))
        return shmi_fail(EINVAL, "semaphore.acquire", shmi_called(&s->q.o), "%lld of %llu permits", (long long)want, (unsigned long long)s->size);
    if (shmi_sem_acquire_fast(s, n))
        return 0;
    err = try_ ? shmi_enter(a, "semaphore.acquire") : shmi_enter_for(s, a, "semaphore.acquire"); /* a signal handler may try, but must not call shmi_enter_for */
    if (err != 0)
        return err;
    err = shmi_sem_acquire_slow(s, n, abs, try_);
    if (try_)
        shmi_exit(a);
    else
        shmi_exit_for(s, a);
    return err;
}
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_DONE(shmi_sem_acquire(s->impl, n, 0, 1, 0));
}
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_DONE(shmi_sem_acquire(s->impl, n, 0, 0, 1));
}
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_sem_acquire(s->impl, n, ns, 0, 0));
}
int shmsync_semaphore_release(shmsync_semaphore *sem, int64_t n)
{
    SHMI_OPENED(sem);
    struct shmi_semaphore *s = sem->impl;
    shmsync_arena *a = s->q.a;
    int had, err = shmi_use(a, "semaphore.release");
    if (err != 0)
        return SHMI_DONE(err);
    if (n < 0)
        return shmi_fail(EINVAL, "semaphore.release", shmi_called(&s->q.o), "%lld permits", (long long)n);
    if (shmi_sem_release_fast(s, (uint64_t)n))
        return SHMI_DONE(0);
    err = shmi_enter(a, "semaphore.release");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_sem_give(s, (uint64_t)n, &had);
    if (err == 0 && !had)
        err = shmi_fail(EPERM, "semaphore.release", shmi_called(&s->q.o), "%lld permits are more than are held", (long long)n);
    return SHMI_DONE(shmi_exit_with(a, err));
}
SHMI_FN uint64_t shmi_sem_pool_free(const struct shmi_semaphore *s)
{
    return shmi_fast_spare(shmi_ld64(&s->w->free)) | (uint64_t)shmi_recorded_value(&s->w->freeHigh) << 31;
}
/* The free permits, plus the spare permits of the shares. */
SHMI_FN uint64_t shmi_sem_seen_free(struct shmi_semaphore *s)
{
    uint64_t n = 0, c;
    int tries;
    for (tries = 0; tries < 16; tries++) {
        c = shmi_ld64(s->q.commit);
        n = shmi_sem_pool_free(s);
        if (shmi_recorded_value(&s->w->opened) != 0) {
            shmi_semaphore_record *r;
            shmi_rq_walk i;
            for (shmi_rq_walk_slots(&s->q, &i); (r = shmi_sem_next(s, &i)) != NULL;)
                n += shmi_fast_spare(shmi_ld64(&r->share.fast));
        }
        if (shmi_ld64(s->q.commit) == c)
            break;
    }
    return shmi_min(n, s->size);
}
int64_t shmsync_semaphore_free(const shmsync_semaphore *s)
{
    SHMI_OPENED_OR(s, 0);
    return (int64_t)shmi_min(shmi_sem_seen_free(s->impl), INT64_MAX);
}

SHMI_FN int shmi_sem_view(struct shmi_semaphore *s, shmsync_arena *a, const shmi_object *o)
{
    memset(s, 0, sizeof *s);
    return o->size >= shmi_semaphore_bytes(a) && shmi_rq_init(&s->q, &shmi_sem_kind, a, o);
}
/* Whether a dead participant has permits, or the first wait in the queue may end now. A wait that may end now is left by
 * a process that has died after it had made permits free, and before it has granted them. */
SHMI_FN int shmi_sem_owes(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)(void *)q;
    shmi_semaphore_record *r;
    struct shmi_wait w;
    shmi_rq_walk i;
    if (shmi_rq_begin(q, x, b) != 0 || (shmi_rq_empty(q, x) && shmi_sem_pool_free(s) == s->size))
        return 0; /* the Semaphore is damaged, or unused */
    for (shmi_rq_walk_slots(q, &i); (r = shmi_sem_next(s, &i)) != NULL;)
        if (shmi_rq_absent(q, shmi_sem_owner(x, r)) && shmi_sem_keeps(s, x, r))
            return 1;
    return shmi_rq_head(q, x, &w) && (!shmi_rq_waiting(q, w) || shmi_sem_seen_free(s) >= shmi_ld64(&w.n->wanted));
}
SHMI_FN int shmi_repair_semaphore(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_semaphore s;
    return shmi_sem_view(&s, a, o) && shmi_rq_repair(&s.q, dead, shmi_sem_owes);
}
SHMI_FN void shmi_wake_first_of_semaphore(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_semaphore s;
    (void)owed;
    if (shmi_sem_view(&s, a, o))
        shmi_rq_wake_after(&s.q);
}
SHMI_FN int shmi_complete_semaphore(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_semaphore s;
    return shmi_sem_view(&s, a, o) && shmi_rq_complete_last(&s.q);
}
#endif
