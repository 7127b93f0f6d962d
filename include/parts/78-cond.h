
/* ---- Cond: prims/cond*.go in C, docs/design/0058-cond-without-a-lock.md ---- */

/* The words that records change, besides those of the queue. SHMI_condBoundary stands for the word that names the
 * boundary. */
enum { SHMI_condBoundary = SHMI_rqOwnKinds, SHMI_condFlying };

#define SHMI_COND_BATCH 16
#define SHMI_COND_ALL UINT32_MAX
/* Bit 31 of the field extra of a wait node says that the node owes a Signal. The other bits are the bound of the
 * Signal: the number, modulo 2^31, of the last change of the Cond before the Signal. A wait with a larger number must
 * not get the Signal. A wake by a Broadcast stores 0 in the field. */
#define SHMI_COND_SIGNAL (UINT32_C(1) << 31)

struct shmi_cond {
    struct shmi_rq q; /* first, so that a pointer to q also points to the Cond */
    shmi_cond_words *w;
    uint32_t limit;  /* how many waiters of a Broadcast compete for their lock at a time */
    uint64_t before; /* what w->flying was at the last check; 0: no Broadcast had covered a queued wait. Guarded by: the private lock */
    uint64_t there;  /* the result of shmi_cond_there at the last reap. Atomic. */
};

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_cond_bytes(shmsync_arena *a) { return sizeof(shmi_cond_words) + (a->geo.counted ? 64 : 0); }

SHMI_FN struct shmi_cond *shmi_cond_of(struct shmi_rq *q) { return (struct shmi_cond *)(void *)q; }
SHMI_FN uint64_t *shmi_cond_word_at(struct shmi_rq *q, uint32_t kind, uint32_t where)
{
    (void)where;
    switch (kind) {
    case SHMI_condBoundary:
        return &shmi_cond_of(q)->w->boundary;
    case SHMI_condFlying:
        return &shmi_cond_of(q)->w->flying;
    }
    return NULL;
}
SHMI_FN int shmi_cond_corrupt(struct shmi_rq *q, const char *how) { return shmi_fail(EPROTO, "cond.change", shmi_called(&q->o), "%s", how); }

/* Returns the full bound of the Signal whose low 31 bits are in extra. The function has to guess the upper bits from
 * the number of changes in x. If more than 2^31 changes have been made since the Signal, the result is too large. It is
 * never too small. */
SHMI_FN uint64_t shmi_cond_bound(const struct shmi_rq_change *x, uint32_t extra)
{
    uint64_t now = x->c >> SHMI_RQ_SLOT_BITS;
    return now - ((now - extra) & (SHMI_COND_SIGNAL - 1));
}

/* ---- The rules. The caller has the private lock. ---- */

/* The owners of the waits that a change wakes. */
typedef struct shmi_cond_woken {
    uint32_t n;
    shmi_participant_id who[SHMI_rqMost];
} shmi_cond_woken;
SHMI_FN void shmi_cond_note(shmi_cond_woken *k, struct shmi_wait w) { k->who[k->n++] = shmi_node_owner(w.n); }
/* If the owner of one of the woken waits in k is dead, makes the next call reap. */
SHMI_FN void shmi_cond_reconsider(struct shmi_rq *q, const shmi_cond_woken *k)
{
    uint32_t i;
    for (i = 0; i < k->n; i++)
        shmi_rq_reconsider(q, k->who[i]);
}

/* Sets *w to the first wait that no Broadcast has covered. Returns 0 if there is none, or if the function has set
 * x->torn. */
SHMI_FN int shmi_cond_uncovered(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait *w)
{
    uint32_t v = shmi_rq_get(x, q->boundary);
    w->n = NULL;
    return v != 0 && shmi_rq_wait_at(q, x, v, w);
}
/* Adds to the change x: a wait leaves the queue without a wake. */
SHMI_FN void shmi_cond_remove(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome) { shmi_rq_detach(q, x, w, outcome); }
/* Adds to the change x: a Signal wakes a wait. extra contains the bound of the Signal. */
SHMI_FN void shmi_cond_give(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t extra, shmi_cond_woken *woken)
{
    shmi_rq_detach(q, x, w, SHMI_RECORDED_OWES);
    shmi_rq_set(x, SHMI_rqPrev, (uint32_t)(w.off / SHMI_nodeSize), &w.n->extra, extra);
    shmi_cond_note(woken, w);
}
/* Adds to the change x: the first waits of the queue are woken, if a Broadcast has covered them. x wakes as many waits
 * as fit into the record, but stops when the number of woken waiters that compete for their lock reaches the parameter
 * limit. x also stops at a wait whose owner is dead. */
SHMI_FN void shmi_cond_turns(struct shmi_cond *k, struct shmi_rq_change *x, uint32_t limit, shmi_cond_woken *woken)
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change y;
    struct shmi_wait w;
    for (;;) {
        uint32_t flying;
        y = *x;
        flying = shmi_rq_get(&y, &k->w->flying);
        if (flying >= limit || !shmi_rq_head(q, &y, &w) || shmi_rq_get(&y, q->boundary) == w.off / SHMI_nodeSize || !shmi_rq_waiting(q, w)) {
            x->torn = y.torn;
            return;
        }
        shmi_rq_detach(q, &y, w, SHMI_RECORDED_OWES);
        shmi_rq_set(&y, SHMI_condFlying, 0, &k->w->flying, flying + 1);
        if (y.torn || y.too_many) {
            x->torn = y.torn;
            return;
        }
        *x = y;
        shmi_cond_note(woken, w);
    }
}
/* Wakes waiters of a Broadcast until the number of those that compete for their lock reaches the parameter limit. Takes
 * waits of dead participants off the front of the queue. If other processes change the object all the time, leaves the
 * rest to the periodic checks of the waiters. */
SHMI_FN int shmi_cond_serve_to(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b, uint32_t limit)
{
    struct shmi_rq *q = &k->q;
    uint64_t until = shmi_rq_until(q);
    while (shmi_rq_goes_on(q, until)) {
        /* Each round follows a change by another call, or takes a wait off the queue. */
        shmi_cond_woken woken;
        struct shmi_wait w;
        int ok, stays = 0, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        woken.n = 0;
        if (shmi_rq_head(q, x, &w)) {
            int covered = shmi_rq_get(x, q->boundary) != w.off / SHMI_nodeSize && shmi_rq_get(x, &k->w->flying) < limit;
            if (shmi_rq_absent(q, shmi_node_owner(w.n)) || (covered && !shmi_rq_waiting(q, w)))
                shmi_cond_remove(q, x, w, SHMI_RECORDED_REMOVED);
            else if (covered)
                shmi_cond_turns(k, x, limit, &woken);
            else
                stays = 1;
        } else if (!x->torn) {
            return 0;
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0 || (ok && stays))
            return err;
        if (ok)
            shmi_cond_reconsider(q, &woken);
    }
    return 0;
}
SHMI_FN int shmi_cond_serve(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    return shmi_cond_serve_to(shmi_cond_of(q), x, b, shmi_cond_of(q)->limit);
}

/* Whether a node is a wait of the Cond, and its owner is dead. */
SHMI_FN int shmi_cond_of_dead(struct shmi_rq *q, const shmi_node *n)
{
    return shmi_ld64(&n->object) == q->o.off && (shmi_ld64(&n->stamp) & SHMI_RECORDED_STAMP) != 0 && shmi_rq_absent(q, shmi_node_owner(n));
}
/* Settles what the wait w owes. If it owes a Signal, the Signal passes on to the next wait, if that wait was queued
 * before the Signal. If a Broadcast has woken w, further waits are woken. The parameter outcome says what the node gets
 * as its outcome: SHMI_RECORDED_LEFT if this process owns the node, or SHMI_RECORDED_REMOVED if the owner is dead.
 * *settled is 0 if the node owes nothing. EAGAIN: the owner is dead, and other processes change the object all the
 * time, so the next reap settles the debt. */
SHMI_FN int shmi_cond_settle(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b, struct shmi_wait w, uint32_t outcome, int *settled)
{
    struct shmi_rq *q = &k->q;
    uint32_t me = (uint32_t)(w.off / SHMI_nodeSize);
    uint64_t until = shmi_rq_until(q);
    *settled = 0;
    while (outcome == SHMI_RECORDED_LEFT || shmi_rq_goes_on(q, until)) {
        /* Each round follows a change by another call, or takes a wait of a dead participant off the queue. */
        shmi_cond_woken woken;
        struct shmi_wait to;
        uint64_t next;
        uint32_t extra;
        int ok, owes, done = 1, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        woken.n = 0;
        next = shmi_ld64(&w.n->next);
        owes = (uint32_t)(next >> 32) == SHMI_RECORDED_OWES && (outcome == SHMI_RECORDED_LEFT || shmi_cond_of_dead(q, w.n));
        extra = shmi_rq_get(x, &w.n->extra);
        /* If w.n->next has changed, the owner of the node was not dead: it has ended this wait, and may already use the
         * node to wait for another object. */
        owes = owes && shmi_ld64(&w.n->next) == next;
        if (owes && (extra & SHMI_COND_SIGNAL) == 0) {
            uint32_t flying = shmi_rq_get(x, &k->w->flying);
            shmi_rq_add(x, SHMI_rqNext, me, &w.n->next, next, outcome);
            shmi_rq_set(x, SHMI_condFlying, 0, &k->w->flying, flying > 0 ? flying - 1 : 0);
            shmi_cond_turns(k, x, k->limit, &woken);
            x->torn = 0; /* settle the debt even after an error in the queue, which concerns only the waits */
        } else if (owes) {
            int passes = shmi_cond_uncovered(q, x, &to) && shmi_ld64(&to.n->wanted) <= shmi_cond_bound(x, extra);
            if (passes && !shmi_rq_waiting(q, to)) {
                shmi_cond_remove(q, x, to, SHMI_RECORDED_REMOVED);
                done = 0;
            } else {
                shmi_rq_add(x, SHMI_rqNext, me, &w.n->next, next, outcome);
                if (passes)
                    shmi_cond_give(q, x, to, extra, &woken);
            }
            if (x->torn) {
                /* A peer has overwritten the wait that would get the Signal next, so the Signal can wake no wait. The
                 * change then only says that the node owes nothing any more. */
                x->torn = 0;
                x->n = woken.n = 0;
                done = 1;
                shmi_rq_add(x, SHMI_rqNext, me, &w.n->next, next, outcome);
            }
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0)
            return err;
        if (!ok || !done)
            continue;
        if (owes) {
            *settled = 1;
            SHMSYNC_CRASHPOINT("cond.settle.committed");
            shmi_cond_reconsider(q, &woken);
            shmi_cond_serve(q, x, b); /* the debt is settled even after an error here, which concerns only the waits */
        }
        return 0;
    }
    shmi_st32(&q->unreaped, 1);
    return EAGAIN;
}

/* The nodes of dead participants that owe a Signal, with the bounds of the Signals as keys. The Signals pass on in the
 * order of their bounds, because a later Signal must not take the only wait that an earlier Signal may wake. If there
 * are more nodes than places, the list keeps the nodes with the smallest bounds, and is a heap. */
enum { SHMI_condDebts = 32 };
typedef struct shmi_cond_debts {
    struct shmi_cond *k;
    const struct shmi_rq_change *x;
    uint64_t all;  /* the number of nodes that owe a Signal */
    uint64_t n, room;
    shmi_keyed *at; /* the array few, or memory of shmi_map_list */
    shmi_keyed few[SHMI_condDebts];
} shmi_cond_debts;
SHMI_FN void shmi_cond_add_debt(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_cond_debts *d = (shmi_cond_debts *)arg;
    shmi_keyed debt;
    (void)a;
    if (!shmi_cond_of_dead(&d->k->q, n) || shmi_recorded_value(&n->next) != SHMI_RECORDED_OWES)
        return;
    d->all++;
    debt.key = shmi_cond_bound(d->x, shmi_recorded_value(&n->extra));
    debt.off = off;
    if (d->n < d->room) {
        d->at[d->n++] = debt;
        if (d->n == d->room)
            shmi_make_heap(d->at, d->n);
    } else if (debt.key < d->at[0].key) {
        d->at[0] = debt;
        shmi_sift(d->at, 0, d->n);
    }
}
SHMI_FN void shmi_cond_find_debts(shmi_cond_debts *d)
{
    struct shmi_rq *q = &d->k->q;
    d->all = d->n = 0;
    shmi_each_dead_wait(q->a, q->lock, q->o.off, q->without, shmi_cond_add_debt, d);
}
/* Settles the debts of dead participants. Their queued waits are already off the queue. */
SHMI_FN int shmi_cond_settle_dead(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    shmi_cond_debts d;
    struct shmi_rq *q = &k->q;
    uint64_t rounds = 0, most = 1;
    int err;
    d.k = k;
    d.x = x;
    d.at = d.few;
    d.room = SHMI_condDebts;
    do {
        /* shmi_rq_begin completes the last record. This record may have woken a wait of a dead participant just before
         * the reap took such waits off the queue. */
        uint64_t i;
        shmi_keyed *more;
        int settled;
        err = shmi_rq_begin(q, x, b);
        if (err != 0)
            break;
        shmi_cond_find_debts(&d);
        if (rounds++ == 0 && d.all > d.room) {
            most = d.all / d.room + 1;
            more = shmi_map_list(d.all);
            if (more != NULL) {
                d.at = more;
                d.room = d.all;
                shmi_cond_find_debts(&d);
            }
        }
        shmi_sort_list(d.at, d.n);
        for (i = 0; i < d.n && err == 0; i++) {
            struct shmi_wait w;
            w.off = d.at[i].off;
            w.n = shmi_node_at(q->a, w.off);
            if (w.n != NULL)
                err = shmi_cond_settle(k, x, b, w, SHMI_RECORDED_REMOVED, &settled);
        }
        /* The loop ends: each round settles debts, and dead participants get no new debts, unless a peer overwrites
         * their nodes. After EPROTO no change is possible, because the record of the commit word is corrupt. */
    } while (err == 0 && d.all > d.n && rounds < most);
    if (d.at != d.few)
        shmi_unmap_list(d.at, d.room);
    return err == EAGAIN ? 0 : err;
}
/* A hash of the participants that have slot records of this Cond and are in the arena. */
SHMI_FN uint64_t shmi_cond_there(struct shmi_rq *q)
{
    uint64_t sum = 0;
    shmi_rq_walk i;
    for (shmi_rq_walk_slots(q, &i); shmi_rq_next_slot(q, &i) != NULL;) {
        uint32_t state = shmi_slot_state(q->a, i.slot);
        if (shmi_slot_present(state))
            sum = (sum ^ shmi_id_in(i.slot, state)) * UINT64_C(0x100000001b3);
    }
    return sum;
}
/* Takes the waits of dead participants off the queue, so that no process wakes them any more. Then settles what woken
 * waits of dead participants owe, even if a peer has overwritten the queue. */
SHMI_FN int shmi_cond_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    uint64_t there = shmi_cond_there(q);
    int first = shmi_rq_begin_reap(q, x, b), err; /* an error in the queue concerns only the waits, so the debts are settled all the same */
    err = shmi_cond_settle_dead(shmi_cond_of(q), x, b);
    if (err == 0)
        shmi_st64(&shmi_cond_of(q)->there, there);
    return first != 0 ? first : err;
}
/* Marks dead participants that are not marked yet. Each process does so at most once in 50 ms. It is necessary because
 * all watchers of a participant may be stopped. */
SHMI_FN void shmi_mark_dead(shmsync_arena *a)
{
    uint64_t now = (uint64_t)shmi_now(), last = shmi_ld64(&a->marked);
    uint32_t i;
    if (now - last < UINT64_C(50000000) || !shmi_cas64(&a->marked, last, now))
        return;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t state = shmi_slot_state(a, i);
        if (shmi_slot_present(state))
            shmi_dead(a, shmi_id_in(i, state)); /* if the participant is dead, marks it, which changes the state of the slot */
    }
}
/* Whether a participant with a slot record may have died or left since the last reap. */
SHMI_FN int shmi_cond_dead(struct shmi_rq *q)
{
    if (shmi_recorded_value(q->first) != 0)
        shmi_mark_dead(q->a);
    return shmi_ld64(&shmi_cond_of(q)->there) != shmi_cond_there(q);
}

/* Looks for woken waiters of a Broadcast that have not got their lock since the last check: they are stopped, or a
 * process holds their lock for long. In this case, wakes all waits that the Broadcast has covered, because these waits
 * may be for other locks. */
SHMI_FN void shmi_cond_also_check(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_cond *k = shmi_cond_of(q);
    uint32_t first = shmi_recorded_value(q->first);
    uint64_t flying = first != 0 && first != shmi_recorded_value(q->boundary) ? shmi_ld64(&k->w->flying) : 0, before = k->before;
    k->before = flying;
    if (flying != 0 && flying == before)
        shmi_cond_serve_to(k, x, b, SHMI_COND_ALL);
}

/* Queues the wait of the node s, which the caller has prepared. After an error, *made says whether the wait was queued.
 */
SHMI_FN int shmi_cond_join(struct shmi_cond *k, shmi_wait_node *s, int *made)
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    struct shmi_wakes b;
    int err, ok = 0;
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    do { /* the loop ends: each round follows a change by another call */
        x.made = 0;
        err = shmi_rq_begin(q, &x, &b);
        if (err != 0)
            break;
        shmi_rq_join(q, &x, s);
        err = shmi_rq_end(q, &x, &b, &ok);
    } while (err == 0 && !ok);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    *made = x.made;
    return err;
}
SHMI_FN int shmi_cond_signal_locked(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_rq *q = &k->q;
    for (;;) {
        /* The loop ends: each round follows a change by another call, or takes a wait of a dead participant off the
         * queue. */
        shmi_cond_woken woken;
        struct shmi_wait w;
        int ok, done = 1, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        woken.n = 0;
        if (shmi_cond_uncovered(q, x, &w)) {
            done = shmi_rq_waiting(q, w);
            if (done)
                shmi_cond_give(q, x, w, SHMI_COND_SIGNAL | (uint32_t)(x->c >> SHMI_RQ_SLOT_BITS), &woken);
            else
                shmi_cond_remove(q, x, w, SHMI_RECORDED_REMOVED);
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0)
            return err;
        if (ok && done) {
            shmi_cond_reconsider(q, &woken);
            return 0;
        }
    }
}
SHMI_FN int shmi_cond_broadcast_locked(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_rq *q = &k->q;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_cond_woken woken;
        int ok, covers, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        woken.n = 0;
        covers = shmi_rq_get(x, q->boundary) != 0;
        if (covers) {
            shmi_rq_set(x, SHMI_condBoundary, 0, q->boundary, 0);
            shmi_cond_turns(k, x, k->limit, &woken);
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0 || (ok && !covers))
            return err;
        if (ok) {
            SHMSYNC_CRASHPOINT("cond.broadcast.committed");
            shmi_cond_reconsider(q, &woken);
            return shmi_cond_serve(q, x, b);
        }
    }
}
/* Makes a Signal or a Broadcast, by a call of *how. This function wakes the first wait that no Broadcast has covered,
 * or all such waits. A signal handler may call this function. */
SHMI_FN int shmi_cond_wake(struct shmi_cond *k, const char *op, int (*how)(struct shmi_cond *k, struct shmi_rq_change *x, struct shmi_wakes *b))
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    struct shmi_wakes b;
    uint64_t c;
    int err = shmi_use(q->a, op);
    if (err != 0)
        return err;
    c = shmi_ld64(q->commit);
    if (shmi_ld64(&q->completed) == c && !shmi_rq_reap_due(q) && shmi_recorded_value(q->boundary) == 0 && shmi_ld64(q->commit) == c)
        return 0; /* no wait is queued that a Signal or Broadcast could wake */
    err = shmi_enter(q->a, op);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    if (shmi_rq_reap_due(q))
        shmi_cond_reap(q, &x, &b); /* an error here is not lost: the waiters find it, and so does the next call */
    err = how(k, &x, &b);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    return shmi_exit_with(q->a, err);
}

/* ---- Handles ---- */

SHMI_FN void shmi_cond_init(struct shmi_rq *q)
{
    struct shmi_cond *k = shmi_cond_of(q);
    uint64_t batch;
    k->w = (shmi_cond_words *)shmi_ptr(q->a, q->o.body, sizeof(shmi_cond_words), 8);
    q->commit = &k->w->commit;
    q->first = &k->w->first;
    q->last = &k->w->last;
    q->boundary = &k->w->boundary;
    q->also_check = shmi_cond_also_check;
    q->spin = &k->w->spin;
    q->pays = &k->w->pays;
    q->last_cpu = &k->w->lastCPU;
    batch = shmi_ld64(&k->w->batch);
    k->limit = batch == 0 ? SHMI_COND_BATCH : (uint32_t)shmi_min(batch, SHMI_COND_ALL);
}
static const shmi_rq_kind shmi_cond_kind = {
    sizeof(shmi_fairmutex_record), offsetof(shmi_fairmutex_record, entries), 0, shmi_cond_init, shmi_cond_word_at, shmi_cond_corrupt,
    shmi_cond_remove, shmi_cond_serve, shmi_cond_reap, shmi_cond_dead,
};
SHMI_FN void *shmi_cond_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    (void)arg;
    return shmi_rq_build(&shmi_cond_kind, sizeof(struct shmi_cond), a, o, "cond.open");
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
    w->spin = s->spin;
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
    shmi_spec_of_kind(&spec, SHMI_KIND_COND, SHMI_VERSION_COND, name, shmi_cond_bytes(a));
    spec.init = shmi_cond_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_cond_build, NULL, &created, &impl);
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
    SHMI_BEGIN_AT(a, "cond.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "cond.open", SHMI_KIND_COND, SHMI_VERSION_COND, shmi_cond_bytes(a), shmi_cond_build, NULL, &impl);
    out->impl = (struct shmi_cond *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_cond_offset(const shmsync_cond *c)
{
    SHMI_OPENED_OR(c, 0);
    return c->impl->q.o.off;
}
int shmsync_cond_close(shmsync_cond *c)
{
    SHMI_OPENED(c);
    int err;
    if (c->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(c->impl->q.a, c->impl->q.o.off, shmi_rq_free);
    if (err == 0)
        c->impl = NULL;
    return SHMI_TELL(err);
}

/* Settles, by a record, what a wait of this process owes, and gives the wait node back. */
SHMI_FN int shmi_cond_settle_own(struct shmi_cond *k, shmi_wait_node *s)
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    struct shmi_wakes b;
    struct shmi_wait w;
    int err, settled;
    w.off = s->off;
    w.n = s->node;
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    err = shmi_cond_settle(k, &x, &b, w, SHMI_RECORDED_LEFT, &settled);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    if (settled) {
        shmi_rq_hand_back(q, s);
        return 0;
    }
    shmi_wait_node_forget(s); /* a peer has overwritten the node or the queue */
    return err != 0 ? err : shmi_cond_corrupt(q, "a wait node, which ended a wait that was not woken");
}
/* Ends a wait that was woken, after its owner has got the lock again. If a Signal has woken the wait, the Signal is
 * used up, and one CAS notes that. A record is not needed: another process changes s->node->next only as a reaper, when
 * this process is dead. */
SHMI_FN int shmi_cond_land(struct shmi_cond *k, shmi_wait_node *s)
{
    uint64_t next = shmi_ld64(&s->node->next);
    if ((shmi_recorded_value(&s->node->extra) & SHMI_COND_SIGNAL) == 0)
        return shmi_cond_settle_own(k, s);
    if (next >> 32 != SHMI_RECORDED_OWES || !shmi_cas64(&s->node->next, next, shmi_recorded_with(next, SHMI_RECORDED_LEFT))) {
        shmi_wait_node_forget(s);
        return shmi_cond_corrupt(&k->q, "a wait node, which ended a wait that was not woken");
    }
    SHMSYNC_CRASHPOINT("cond.wait.landed");
    shmi_rq_hand_back(&k->q, s);
    return 0;
}

/* The part of a wait that is within shmi_enter_for. */
SHMI_FN int shmi_cond_wait_counted(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    struct shmi_rq *q = &k->q;
    shmi_wait_node *wait_node = NULL;
    int err, lock_err, made, covered;
    shmi_rq_learn(q);
    if (SHMI_UNLIKELY(shmi_known_bad(shmi_ld64(&q->known_head))))
        return shmi_fail(EPROTO, "cond.wait", shmi_called(&q->o), "its list of slot records");
    err = shmi_wait_node_take(q->a, &wait_node);
    if (err != 0)
        return err;
    shmi_rq_prepare(q, wait_node, 0);
    err = shmi_cond_join(k, wait_node, &made);
    if (err != 0) {
        if (made)
            shmi_wait_node_forget(wait_node);
        else
            shmi_rq_hand_back(q, wait_node);
        return err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.queued");
    SHMI_OUTSIDE(err = unlock(arg));
    if (err != 0) {
        if (!shmi_rq_withdraw(q, wait_node, &covered))
            shmi_cond_settle_own(k, wait_node); /* passes a Signal on */
        return err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.unlocked");
    err = shmi_rq_await_end(q, wait_node, abs == 0 || shmi_now() < abs, abs, "cond.wait", &covered);
    if (err == 0) {
        SHMSYNC_CRASHPOINT("record.await.resolved");
    } else {
        wait_node = NULL; /* the wait node was given back */
        if (err == ETIMEDOUT && covered)
            err = 0; /* a Broadcast came before the deadline */
    }
    SHMSYNC_CRASHPOINT("cond.wait.woken");
    SHMI_OUTSIDE(lock_err = lock(arg));
    if (lock_err != 0) {
        if (wait_node != NULL)
            shmi_cond_settle_own(k, wait_node);
        return lock_err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.relocked");
    return wait_node != NULL ? shmi_cond_land(k, wait_node) : err;
}
SHMI_FN int shmi_cond_wait(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    int err = shmi_use(k->q.a, "cond.wait");
    if (err != 0)
        return err;
    if (abs != 0 && shmi_now() >= abs)
        return ETIMEDOUT;
    err = shmi_enter_for(k, k->q.a, "cond.wait");
    if (err != 0)
        return err;
    err = shmi_cond_wait_counted(k, unlock, lock, arg, abs);
    shmi_exit_for(k, k->q.a);
    return err;
}
SHMI_FN int shmi_cond_unlock_mutex(void *m) { return shmsync_mutex_unlock((shmsync_mutex *)m); }
/* Locks the mutex again after the wait. The caller expects to hold the mutex, so the function of shmsync_wait_hook must
 * not end this second wait. */
SHMI_FN int shmi_cond_lock_mutex(void *m)
{
    shmi_hook hook = shmi_wait_hook;
    int err;
    shmi_wait_hook.f = NULL;
    err = shmsync_mutex_lock((shmsync_mutex *)m);
    shmi_wait_hook = hook;
    return err;
}
/* Waits with a mutex. EINVAL: the thread is in a transaction with this mutex, and an unlock would let others see the
 * unfinished changes. */
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
    SHMI_CHECK_OPENED(m, __func__);
    return SHMI_TELL(shmi_cond_wait_mutex(c, m, 0));
}
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(c);
    SHMI_CHECK_OPENED(m, __func__);
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
    return SHMI_DONE(shmi_cond_wake(c->impl, "cond.signal", shmi_cond_signal_locked));
}
int shmsync_cond_broadcast(shmsync_cond *c)
{
    SHMI_OPENED(c);
    return SHMI_DONE(shmi_cond_wake(c->impl, "cond.broadcast", shmi_cond_broadcast_locked));
}

SHMI_FN int shmi_cond_view(struct shmi_cond *k, shmsync_arena *a, const shmi_object *o)
{
    memset(k, 0, sizeof *k);
    return o->size >= shmi_cond_bytes(a) && shmi_rq_init(&k->q, &shmi_cond_kind, a, o);
}
SHMI_FN void shmi_cond_found(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)a;
    (void)off;
    (void)n;
    *(int *)arg = 1;
}
/* Whether dead participants have left waits. */
SHMI_FN int shmi_cond_owes(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    int found = 0;
    (void)x;
    (void)b;
    shmi_each_dead_wait(q->a, q->lock, q->o.off, q->without, shmi_cond_found, &found);
    return found;
}
/* Takes the waits of a dead participant off the queue, and passes on the wakes that it has received and not used. */
SHMI_FN int shmi_repair_cond(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_cond k;
    return shmi_cond_view(&k, a, o) && shmi_rq_repair(&k.q, dead, shmi_cond_owes);
}
SHMI_FN void shmi_wake_first_of_cond(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_cond k;
    (void)owed;
    if (shmi_cond_view(&k, a, o))
        shmi_rq_wake_after(&k.q);
}
SHMI_FN int shmi_complete_cond(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_cond k;
    return shmi_cond_view(&k, a, o) && shmi_rq_complete_last(&k.q);
}
