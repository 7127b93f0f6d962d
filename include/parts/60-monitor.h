/*
 * Monitors: the common part of objects whose waiters queue. A queue lock guards the state, a redo
 * log makes a change of several words one step, and wait nodes stand for the waits. It is
 * docs/design/0005-monitor.md in C, step by step that of prims/monitor*.go: the next holder of the
 * queue lock after a death, of a Go or of a C program, replays what the other has left.
 */

struct shmi_monitor;
enum { SHMI_redoMost = 6, SHMI_wakesFew = 32 };

/* A node on a queue. n is NULL if there is none. */
struct shmi_wait {
    uint64_t off;
    shmi_node *n;
};

/* Waits that have ended, and whose owners have to be woken when the queue lock has been left. */
struct shmi_woken {
    struct shmi_wait w;
    uint32_t state; /* state of the node when the wait was resolved */
    uint32_t owner; /* its owner at that time: the node of a dead participant may get a new owner before the wake */
};
struct shmi_wakes {
    uint32_t n, room;
    struct shmi_woken few[SHMI_wakesFew], *more; /* more is a copy of few and of the later ones, once few is full */
};

/* The functions of an object that its monitor calls. All but holders are called with the queue lock held; see the
 * rules of prims/monitor.go. */
struct shmi_rules {
    void (*resolve)(struct shmi_monitor *m, struct shmi_wakes *b);
    void (*account)(struct shmi_monitor *m, struct shmi_wait w);
    void (*clear)(struct shmi_monitor *m);
    void (*requeue)(struct shmi_monitor *m, struct shmi_wait w);
    void (*detach)(struct shmi_monitor *m, struct shmi_wait w);
    /* discard_dead takes off the queues, with shmi_mon_discard, the waits for which shmi_mon_waiting is false. */
    void (*discard_dead)(struct shmi_monitor *m);
    /* reap takes back what dead participants have: words if shmi_mon_died is true for the ID in them, data if
     * shmi_mon_gone is true for it. */
    void (*reap)(struct shmi_monitor *m);
    /* holders calls shmi_mon_heed for each participant whose death would change the state. */
    void (*holders)(struct shmi_monitor *m);
    /* look is called by the periodic check, without the queue lock; may be NULL. */
    void (*look)(struct shmi_monitor *m);
};

struct shmi_monitor {
    shmsync_arena *a;
    shmi_object o;
    shmi_monitor_words *w;
    const struct shmi_rules *rules;
    shmi_mutex queueLock;
    int (*mine)(struct shmi_monitor *m, struct shmi_wait w); /* NULL: all waits of the object belong to the monitor */
    uint32_t without; /* this participant while it leaves, or 0 */
    uint32_t broken;  /* a link was wrong: the queues are rebuilt before the queue lock is left */
    uint32_t deaths;  /* the number of reaps in the arena at the last reap here */
    int64_t kept;     /* when the last reap left data of a participant that was not gone; 0: it left none. Atomic. */
    int64_t resolved; /* when a check of this process last resolved; 0: never. Atomic. */
    uint32_t dead_holder; /* a check found a dead holder, whose death may not be counted yet */
    uint32_t waiting;     /* threads of this process in shmi_mon_sleep. Atomic. */
    int one_spins;    /* waits end one after the other: only the first of the waiting threads spins */
    uint32_t cleaning_up; /* a wait was given up and is still on its queue */
    int handlers;     /* signal handlers may call the object */
};

/* Stores to a word that only the holder of the queue lock writes. The stores happen in program order, so that a
 * death leaves a prefix of them. */
SHMI_FN void shmi_put(uint64_t *w, uint64_t v)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(w, v, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

SHMI_FN uint64_t shmi_get(uint64_t *w) { return __atomic_load_n(w, __ATOMIC_ACQUIRE); }
SHMI_FN uint32_t shmi_get32(uint32_t *w) { return __atomic_load_n(w, __ATOMIC_ACQUIRE); }

/* The extra word of a node: how its wait ended, the class of the wait, and more. */
SHMI_FN uint64_t shmi_outcome(uint32_t class_, uint32_t result, uint32_t aux)
{
    return (uint64_t)aux << 32 | (uint64_t)(class_ & 0xffff) << 16 | (result & 0xffff);
}
SHMI_FN uint32_t shmi_outcome_result(uint64_t f) { return (uint32_t)(f & 0xffff); }
SHMI_FN uint32_t shmi_outcome_class(uint64_t f) { return (uint32_t)(f >> 16 & 0xffff); }
SHMI_FN uint32_t shmi_outcome_aux(uint64_t f) { return (uint32_t)(f >> 32); }

SHMI_FN uint32_t shmi_class_of(struct shmi_wait w) { return shmi_outcome_class(shmi_get(&w.n->extra)); }
SHMI_FN uint64_t shmi_stamp_of(struct shmi_wait w) { return shmi_get(&w.n->stamp); }
SHMI_FN uint32_t shmi_owner_of(struct shmi_wait w) { return shmi_get32(&w.n->owner); }

/* Links: each the offset of a node divided by 64; bits 0..31 next, 32..63 previous. */
SHMI_FN uint64_t shmi_links(uint64_t next, uint64_t prev) { return prev / 64 << 32 | (uint32_t)(next / 64); }
SHMI_FN uint64_t shmi_link_next(uint64_t l) { return (l & UINT32_MAX) * 64; }
SHMI_FN uint64_t shmi_link_prev(uint64_t l) { return (l >> 32) * 64; }

SHMI_FN int shmi_is_broken(struct shmi_monitor *m) { return __atomic_load_n(&m->broken, __ATOMIC_RELAXED) != 0; }
SHMI_FN void shmi_set_broken(struct shmi_monitor *m, uint32_t v) { __atomic_store_n(&m->broken, v, __ATOMIC_RELAXED); }

/* The wait at an offset that was read from a link. If there is no wait there, or it is on no queue of this object,
 * the queues are rebuilt. */
SHMI_FN struct shmi_wait shmi_mon_node(struct shmi_monitor *m, uint64_t off)
{
    struct shmi_wait w;
    w.off = 0;
    w.n = NULL;
    if (off == 0)
        return w;
    w.n = shmi_node_at(m->a, off);
    if (w.n == NULL || shmi_get(&w.n->object) != m->o.off || shmi_get(&w.n->stamp) == 0) {
        shmi_set_broken(m, 1);
        w.n = NULL;
        return w;
    }
    w.off = off;
    return w;
}

/* A queue in order of arrival. */
SHMI_FN struct shmi_wait shmi_fifo_head(struct shmi_monitor *m, shmi_list_words *q)
{
    return shmi_mon_node(m, shmi_get(&q->first));
}

SHMI_FN void shmi_fifo_requeue(struct shmi_monitor *m, shmi_list_words *q, struct shmi_wait w)
{
    struct shmi_wait last = shmi_mon_node(m, shmi_get(&q->last));
    shmi_put(&w.n->next, shmi_links(0, last.off));
    if (last.n != NULL)
        shmi_put(&last.n->next, shmi_links(w.off, shmi_link_prev(shmi_get(&last.n->next))));
    else
        shmi_put(&q->first, w.off);
    shmi_put(&q->last, w.off);
}

SHMI_FN void shmi_fifo_detach(struct shmi_monitor *m, shmi_list_words *q, struct shmi_wait w)
{
    uint64_t l = shmi_get(&w.n->next);
    struct shmi_wait prev = shmi_mon_node(m, shmi_link_prev(l));
    struct shmi_wait next = shmi_mon_node(m, shmi_link_next(l));
    if (prev.n != NULL)
        shmi_put(&prev.n->next, shmi_links(shmi_link_next(l), shmi_link_prev(shmi_get(&prev.n->next))));
    else
        shmi_put(&q->first, shmi_link_next(l));
    if (next.n != NULL)
        shmi_put(&next.n->next, shmi_links(shmi_link_next(shmi_get(&next.n->next)), shmi_link_prev(l)));
    else
        shmi_put(&q->last, shmi_link_prev(l));
}

SHMI_FN int shmi_mon_waiting(struct shmi_monitor *m, struct shmi_wait w);
SHMI_FN void shmi_mon_discard(struct shmi_monitor *m, struct shmi_wait w);

/* Whether a participant is current. The participant m->without, which leaves, does not count as current. */
SHMI_FN int shmi_mon_current(struct shmi_monitor *m, uint32_t name)
{
    return name != m->without && shmi_current(m->a, name);
}
/* Whether a participant has died, so that the words that name it have no owner. */
SHMI_FN int shmi_mon_died(struct shmi_monitor *m, uint32_t name) { return name != 0 && !shmi_mon_current(m, name); }
/* Whether a participant is gone, so that its data may pass to others. If it is only dead, there will be another
 * reap. */
SHMI_FN int shmi_mon_gone(struct shmi_monitor *m, uint32_t name)
{
    if (!shmi_mon_died(m, name))
        return 0;
    if (shmi_gone(m->a, name))
        return 1;
    __atomic_store_n(&m->kept, shmi_now(), __ATOMIC_RELAXED);
    return 0;
}
/* Whether the last reap has left data of a participant that was not gone, and it is time for another reap. */
SHMI_FN int shmi_mon_keeps(struct shmi_monitor *m)
{
    int64_t kept = __atomic_load_n(&m->kept, __ATOMIC_RELAXED);
    return kept != 0 && shmi_now() - kept >= SHMI_ASK_WAITER;
}

/* Checks whether a participant has died whose death would change the state. */
SHMI_FN void shmi_mon_heed(struct shmi_monitor *m, uint32_t name)
{
    if (name != 0 && shmi_dead(m->a, name))
        shmi_st32(&m->dead_holder, 1);
}

/* Whether the owner of a wait still waits. */
SHMI_FN int shmi_mon_waiting(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t owner = shmi_owner_of(w);
    return shmi_node_queued(shmi_node_load(w.n)) && shmi_mon_current(m, owner) && !shmi_dead(m->a, owner);
}

SHMI_FN void shmi_wakes_init(struct shmi_wakes *b)
{
    b->n = 0;
    b->room = SHMI_wakesFew;
    b->more = NULL;
}

SHMI_FN void shmi_wake_one(shmsync_arena *a, struct shmi_woken *u)
{
    if (u->state == SHMI_NodeParked) {
        shmi_tell(a, u->w.off, u->w.n, u->owner);
        shmi_end_tell(a);
    } else {
        shmi_wake(&u->w.n->word, 1);
    }
}

SHMI_FN void shmi_wakes_add(shmsync_arena *a, struct shmi_wakes *b, struct shmi_wait w, uint32_t state, uint32_t owner)
{
    struct shmi_woken *to = b->more != NULL ? b->more : b->few, u;
    if (state == SHMI_NodeQueued)
        return; /* its owner is awake */
    u.w = w;
    u.state = state;
    u.owner = owner;
    if (b->n == b->room) {
        uint32_t room = 4 * b->room;
        struct shmi_woken *more = (struct shmi_woken *)shmi_scratch(b->more, b->more != NULL ? b->room * sizeof *more : 0, room * sizeof *more);
        if (more == NULL) {
            shmi_wake_one(a, &u); /* no room to remember it: wake it at once */
            return;
        }
        if (b->more == NULL)
            memcpy(more, b->few, sizeof b->few);
        b->more = to = more;
        b->room = room;
    }
    to[b->n++] = u;
}

/* Wakes the owners in b, and makes b empty. */
SHMI_FN void shmi_wake_all_of(shmsync_arena *a, struct shmi_wakes *b)
{
    struct shmi_woken *u = b->more != NULL ? b->more : b->few;
    uint32_t i;
    for (i = 0; i < b->n; i++)
        shmi_wake_one(a, &u[i]);
    shmi_end_scratch(b->more, b->room * sizeof *b->more);
    shmi_wakes_init(b);
}

SHMI_FN shmi_tuning shmi_mon_tuning(struct shmi_monitor *m)
{
    shmi_tuning t;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return t;
}

/* Wakes the owners of waits that have ended, after the queue lock was left. */
SHMI_FN void shmi_mon_wake(struct shmi_monitor *m, struct shmi_wakes *b)
{
    if (b == NULL)
        return;
    if (b->n > 0) {
        shmi_tuning t = shmi_mon_tuning(m);
        SHMSYNC_CRASHPOINT("monitor.leave.before_wake");
        shmi_note_cpu(&t);
    }
    shmi_wake_all_of(m->a, b);
}

SHMI_FN void shmi_mon_rebuild(struct shmi_monitor *m);

/* Signals are blocked from before the queue lock is taken until after it was given back. */
SHMI_FN void shmi_mon_hold_signals(struct shmi_monitor *m)
{
    if (m->handlers)
        shmi_hold_signals();
}
SHMI_FN void shmi_mon_let_signals(struct shmi_monitor *m)
{
    if (m->handlers)
        shmi_let_signals();
}

/* Takes the queue lock, and waits for it until abs, CLOCK_MONOTONIC ns; 0: no limit. Returns 0, ETIMEDOUT, EPROTO,
 * EBADF or ENOTCONN. */
SHMI_FN int shmi_mon_enter(struct shmi_monitor *m, int64_t abs)
{
    int err;
    shmi_mon_hold_signals(m);
    err = shmi_mutex_lock(&m->queueLock, abs);
    if (err != 0)
        shmi_mon_let_signals(m);
    return err == EOWNERDEAD || err == ENOTRECOVERABLE ? EPROTO : err;
}

/* Takes the queue lock if it is free. */
SHMI_FN int shmi_mon_enter_free(struct shmi_monitor *m)
{
    shmi_mon_hold_signals(m);
    if (shmi_mutex_trylock(&m->queueLock) == 0)
        return 1;
    shmi_mon_let_signals(m);
    return 0;
}

/* Takes the queue lock if that does not take long. */
SHMI_FN int shmi_mon_try_enter(struct shmi_monitor *m)
{
    const int most = 20; /* this is bounded, because the holder may be preempted or stopped */
    int tries, err;
    if (shmi_self(m->a) == 0)
        return 0;
    shmi_mon_hold_signals(m);
    for (tries = 0;; tries++) {
        if (shmi_mutex_trylock(&m->queueLock) == 0)
            return 1;
        err = 0;
        if (shmi_mutex_inherit(&m->queueLock, shmi_ld32(m->queueLock.own), &err))
            return 1;
        if (err != 0 || tries > most) {
            shmi_mon_let_signals(m);
            return 0;
        }
        if (tries < most / 2)
            shmi_pause(64);
        else
            shmi_yield();
    }
}

SHMI_FN void shmi_mon_reap(struct shmi_monitor *m, struct shmi_wakes *b);

/* Gives the queue lock back, and wakes the owners in b, whose waits have ended; b may be NULL. */
SHMI_FN void shmi_mon_leave(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_wakes own;
    if (SHMI_UNLIKELY(__atomic_load_n(&m->cleaning_up, __ATOMIC_RELAXED) != 0) && shmi_xchg32(&m->cleaning_up, 0) != 0) {
        shmi_wakes_init(&own);
        if (b == NULL)
            b = &own;
        shmi_mon_reap(m, b);
    }
    if (shmi_is_broken(m))
        shmi_mon_rebuild(m);
    shmi_mutex_unlock(&m->queueLock);
    shmi_mon_let_signals(m);
    shmi_mon_wake(m, b);
}

/* Gives back the node of a wait that is over, or that its owner gave up or left by its death, after the wait was
 * taken off its queue. */
SHMI_FN void shmi_mon_release_node(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t n = shmi_node_load(w.n), owner = shmi_owner_of(w);
    /* This process owns the node before it is off the queue: if this process dies in between, its reaper gives the
     * node back. */
    int ours = shmi_node_state(n) == SHMI_NodeLeft && shmi_take_node(m->a, w.off, owner);
    __atomic_store_n(&w.n->stamp, 0, __ATOMIC_SEQ_CST);
    SHMSYNC_CRASHPOINT("monitor.released");
    if (ours)
        shmi_free_node(m->a, w.off);
    else if (shmi_mon_current(m, owner))
        shmi_reclaim_node(m->a, w.off, n);
    else if (((shmi_node_load(w.n) ^ n) & ~15u) == 0)
        shmi_reap_node_in(m->a, w.off, owner, n);
    /* Otherwise the owner kept the node and died while it was in another queue. The kind of that object gives the
     * node back. */
}

SHMI_FN void shmi_mon_discard(struct shmi_monitor *m, struct shmi_wait w)
{
    m->rules->detach(m, w);
    shmi_mon_release_node(m, w);
}

/* Takes a wait off its queue and resolves it. Returns whether it did: the owner may have given up. If it did, the
 * caller accounts for the result. */
SHMI_FN int shmi_mon_end(struct shmi_monitor *m, struct shmi_wakes *b, struct shmi_wait w, uint32_t result, uint32_t aux)
{
    int telling = 0;
    uint32_t owner = shmi_owner_of(w);
    m->rules->detach(m, w);
    shmi_st64(&w.n->extra, shmi_outcome(shmi_class_of(w), result, aux));
    for (;;) {
        uint32_t n = shmi_node_load(w.n);
        if (!shmi_node_queued(n)) {
            if (telling)
                shmi_end_tell(m->a);
            shmi_mon_release_node(m, w);
            return 0;
        }
        if (!telling && shmi_node_state(n) == SHMI_NodeParked) {
            shmi_begin_tell(m->a); /* until the owner has been woken */
            telling = 1;
        }
        if (shmi_node_swap(w.n, n, shmi_node_with(n, SHMI_NodeResolved))) {
            SHMSYNC_CRASHPOINT("monitor.resolve.resolved");
            shmi_wakes_add(m->a, b, w, shmi_node_state(n), owner);
            return 1;
        }
    }
}

/* Builds the queues anew from the nodes, which are authoritative, and accounts for waits whose granter died before
 * it could do so. */
struct shmi_queued_wait {
    uint64_t stamp;
    struct shmi_wait w;
};
struct shmi_gather {
    struct shmi_monitor *m;
    struct shmi_queued_wait *all, next;
    size_t n, room;
    uint64_t stamp, off; /* of the last wait that was queued, if there is no memory for all */
    int failed;
};

SHMI_FN void shmi_gather_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    struct shmi_gather *g = (struct shmi_gather *)arg;
    struct shmi_queued_wait q;
    (void)a;
    q.w.off = off;
    q.w.n = n;
    q.stamp = shmi_get(&n->stamp);
    if (q.stamp == 0 || (g->m->mine != NULL && !g->m->mine(g->m, q.w)))
        return;
    if (g->failed) {
        if ((q.stamp > g->stamp || (q.stamp == g->stamp && off > g->off)) &&
            (g->next.w.n == NULL || q.stamp < g->next.stamp || (q.stamp == g->next.stamp && off < g->next.w.off)))
            g->next = q;
        return;
    }
    if (g->n == g->room) {
        size_t room = g->room == 0 ? 64 : 2 * g->room;
        struct shmi_queued_wait *all = (struct shmi_queued_wait *)shmi_scratch(g->all, g->room * sizeof *all, room * sizeof *all);
        if (all == NULL) {
            g->failed = 1;
            return;
        }
        g->all = all;
        g->room = room;
    }
    g->all[g->n++] = q;
    return;
}

SHMI_FN int shmi_stamped_before(const struct shmi_queued_wait *x, const struct shmi_queued_wait *y)
{
    return x->stamp != y->stamp ? x->stamp < y->stamp : x->w.off < y->w.off;
}
/* Moves element i of a heap of n down to where it belongs. */
SHMI_FN void shmi_sift_waits(struct shmi_queued_wait *all, size_t i, size_t n)
{
    struct shmi_queued_wait w = all[i];
    size_t below;
    while ((below = 2 * i + 1) < n) {
        if (below + 1 < n && shmi_stamped_before(&all[below], &all[below + 1]))
            below++;
        if (!shmi_stamped_before(&w, &all[below]))
            break;
        all[i] = all[below];
        i = below;
    }
    all[i] = w;
}
/* Sorts by stamp. It does not use qsort, because qsort allocates memory: see shmi_scratch. */
SHMI_FN void shmi_sort_waits(struct shmi_queued_wait *all, size_t n)
{
    size_t i;
    for (i = n / 2; i-- > 0;)
        shmi_sift_waits(all, i, n);
    for (; n > 1; n--) {
        struct shmi_queued_wait last = all[n - 1];
        all[n - 1] = all[0];
        all[0] = last;
        shmi_sift_waits(all, 0, n - 1);
    }
}

SHMI_FN void shmi_mon_rebuild_one(struct shmi_monitor *m, struct shmi_wait w)
{
    if (shmi_node_over(shmi_node_load(w.n)) && shmi_stamp_of(w) != shmi_get(&m->w->accounted))
        m->rules->account(m, w);
    else if (shmi_mon_waiting(m, w))
        m->rules->requeue(m, w);
    else
        shmi_mon_release_node(m, w);
}

SHMI_FN void shmi_mon_rebuild(struct shmi_monitor *m)
{
    struct shmi_gather g;
    size_t i;
    shmi_set_broken(m, 0);
    memset(&g, 0, sizeof g);
    g.m = m;
    shmi_each_queued(m->a, m->o.off, shmi_gather_one, &g);
    m->rules->clear(m);
    if (g.failed) {
        /* Without memory the waits are queued one after the other, which is slow. */
        for (;;) {
            g.next.w.n = NULL;
            shmi_each_queued(m->a, m->o.off, shmi_gather_one, &g);
            if (g.next.w.n == NULL)
                break;
            g.stamp = g.next.stamp;
            g.off = g.next.w.off;
            shmi_mon_rebuild_one(m, g.next.w);
        }
    } else {
        shmi_sort_waits(g.all, g.n);
        for (i = 0; i < g.n; i++)
            shmi_mon_rebuild_one(m, g.all[i].w);
    }
    shmi_end_scratch(g.all, g.room * sizeof *g.all);
    shmi_set_broken(m, 0); /* it is set if a peer overwrites the nodes */
}

/* The first step of a holder of the queue lock that gets it after the death of a holder. No object that C has writes
 * a redo log. */
SHMI_FN int shmi_mon_replay(void *arg)
{
    struct shmi_monitor *m = (struct shmi_monitor *)arg;
    struct shmi_wakes b;
    shmi_mon_rebuild(m);
    SHMSYNC_CRASHPOINT("monitor.replay.rebuilt");
    shmi_wakes_init(&b);
    m->rules->resolve(m, &b);
    shmi_mon_wake(m, &b);
    return 0;
}

/* Takes back what dead participants have, and takes off the queues the waits that they left and those that were given
 * up. The caller holds the queue lock. */
SHMI_FN void shmi_mon_reap(struct shmi_monitor *m, struct shmi_wakes *b)
{
    SHMSYNC_CRASHPOINT("monitor.reap.entered");
    __atomic_store_n(&m->deaths, shmi_deaths(m->a), __ATOMIC_SEQ_CST);
    __atomic_store_n(&m->kept, 0, __ATOMIC_RELAXED);
    m->rules->reap(m);
    if (__atomic_load_n(&m->kept, __ATOMIC_RELAXED) != 0)
        shmi_follow(m->a);
    SHMSYNC_CRASHPOINT("monitor.reap.reclaimed");
    m->rules->discard_dead(m);
    m->rules->resolve(m, b);
}

/* Reaps, with the queue lock held, if a participant has died since the last time, or may be gone. */
SHMI_FN void shmi_mon_reap_if_due(struct shmi_monitor *m, struct shmi_wakes *b)
{
    if (__atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) != shmi_deaths(m->a) || shmi_mon_keeps(m))
        shmi_mon_reap(m, b);
}

/* A wait that its owner has given up: its node, which may be in another use by now. */
struct shmi_abandoned {
    struct shmi_wait w;
    uint32_t word;
    uint64_t stamp;
};

SHMI_FN struct shmi_abandoned shmi_abandoned_of(const shmi_wait_node *s)
{
    struct shmi_abandoned l;
    l.w.off = s->off;
    l.w.n = s->node;
    l.word = shmi_node_with(shmi_node_load(s->node), SHMI_NodeLeft);
    l.stamp = shmi_ld64(&s->node->stamp);
    return l;
}

/* Takes a wait that this process has given up off its queue, unless another process has done that. It does not wait
 * for the queue lock. */
SHMI_FN void shmi_mon_clean_up(struct shmi_monitor *m, struct shmi_abandoned l)
{
    struct shmi_wakes b;
    if (!shmi_mon_try_enter(m)) {
        /* The next thread of this process that leaves the queue lock does it, or the check of a waiter. */
        shmi_st32(&m->cleaning_up, 1);
        return;
    }
    SHMSYNC_CRASHPOINT("monitor.cleanup.entered");
    shmi_wakes_init(&b);
    if (shmi_node_load(l.w.n) == l.word && shmi_stamp_of(l.w) == l.stamp && shmi_get(&l.w.n->object) == m->o.off) {
        m->rules->detach(m, l.w);
        shmi_mon_release_node(m, l.w);
        m->rules->resolve(m, &b);
    }
    shmi_mon_leave(m, &b);
}

/* Whether the wait at an offset is the first of its queue and seems to have no date. It reads without the queue
 * lock; see prims/monitor_first.go. */
SHMI_FN int shmi_mon_undated(struct shmi_monitor *m, uint64_t off)
{
    shmi_node *n = off != 0 ? shmi_node_at(m->a, off) : NULL;
    return n != NULL && shmi_get(&n->object) == m->o.off && shmi_node_queued(shmi_node_load(n)) && shmi_outcome_aux(shmi_get(&n->extra)) == 0;
}
/* Gives a wait that has become the first of its queue a date: milliseconds of CLOCK_MONOTONIC, rounded up, and never
 * 0. The caller holds the queue lock. */
SHMI_FN void shmi_mon_date(struct shmi_wait w)
{
    uint64_t f;
    if (w.n == NULL)
        return;
    f = shmi_get(&w.n->extra);
    if (shmi_node_queued(shmi_node_load(w.n)) && shmi_outcome_aux(f) == 0)
        shmi_st64(&w.n->extra, f | (uint64_t)shmi_first_date(shmi_now()) << 32);
}
/* The look function of an object with one queue in strict order: it gives the first wait its date. */
SHMI_FN void shmi_mon_date_first(struct shmi_monitor *m, shmi_list_words *q)
{
    if (!shmi_mon_undated(m, shmi_get(&q->first)) || !shmi_mon_enter_free(m))
        return;
    shmi_mon_date(shmi_fifo_head(m, q));
    shmi_mon_leave(m, NULL);
}

/* Called ten times a second while a thread of this process waits, or once a second if many do. */
SHMI_FN void shmi_mon_check(struct shmi_monitor *m)
{
    const int64_t resolve_every = 9 * SHMI_CHECK_EVERY; /* so that a check that comes once a second is not left out */
    int64_t now = shmi_now(), last = __atomic_load_n(&m->resolved, __ATOMIC_RELAXED);
    struct shmi_wakes b;
    m->rules->holders(m);
    shmi_wakes_init(&b);
    if (shmi_deaths(m->a) != __atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) || shmi_mon_keeps(m) || shmi_ld32(&m->dead_holder) != 0) {
        if (shmi_mon_try_enter(m)) {
            shmi_st32(&m->dead_holder, 0); /* if the reap has left the holder, a check finds it again */
            shmi_mon_reap(m, &b);
            shmi_mon_leave(m, &b);
        }
    } else if (now - last >= resolve_every && __atomic_compare_exchange_n(&m->resolved, &last, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) &&
               shmi_mon_enter_free(m)) {
        m->rules->resolve(m, &b);
        shmi_mon_leave(m, &b);
    }
    if (m->rules->look != NULL)
        m->rules->look(m);
}

/* Counts a call that may wait. Until shmi_mon_finish the arena stays mapped, for what the call does before, during
 * and after its wait. The caller does not have the queue lock yet: if the call were refused with the queue lock
 * held, it could not give the lock back, because the arena may be gone. The lock would then stay held until the
 * close has ended, and a function that the close waits for may need it. */
SHMI_FN int shmi_mon_begin(struct shmi_monitor *m) { return shmi_enter(m->a, "monitor.wait"); }
SHMI_FN void shmi_mon_finish(struct shmi_monitor *m) { shmi_exit(m->a); }

/* Gets a wait node to wait in, with the queue lock held. *again says that the call had to release the queue lock
 * meanwhile, so the caller must read the state once more. On an error the queue lock has been released, and there is
 * no wait node. */
SHMI_FN int shmi_mon_wait_node(struct shmi_monitor *m, int64_t abs, shmi_wait_node **wait_node, int *again)
{
    int err;
    *again = 0;
    if (*wait_node != NULL)
        return 0;
    *wait_node = shmi_wait_node_cached(m->a);
    if (*wait_node != NULL)
        return 0;
    shmi_mon_leave(m, NULL);
    err = shmi_wait_node_take(m->a, wait_node);
    if (err != 0) {
        *wait_node = NULL;
        return err;
    }
    err = shmi_mon_enter(m, abs);
    if (err != 0) {
        shmi_wait_node_return(m->a, *wait_node);
        *wait_node = NULL;
        return err;
    }
    *again = 1;
    return 0;
}

/* Gives back a wait node that was not queued; NULL is none. */
SHMI_FN void shmi_mon_return_node(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    if (wait_node != NULL)
        shmi_wait_node_return(m->a, wait_node);
}

/* Puts the wait of wait_node on a queue, with the queue lock held, in a call that counts. */
SHMI_FN void shmi_mon_join(struct shmi_monitor *m, shmi_wait_node *wait_node, uint32_t cls, uint64_t wanted)
{
    shmi_node *n = wait_node->node;
    struct shmi_wait w;
    uint32_t word = shmi_node_load(n);
    uint64_t stamp;
    w.off = wait_node->off;
    w.n = n;
    shmi_st64(&n->object, m->o.off);
    shmi_st64(&n->wanted, wanted);
    shmi_st64(&n->extra, shmi_outcome(cls, 0, 0));
    shmi_st64(&n->next, 0);
    shmi_st64(&n->ready_next, 0); /* it has no date: its owner is awake */
    shmi_node_swap(n, word, shmi_node_with(word, SHMI_NodeQueued));
    stamp = shmi_get(&m->w->arrivals) + 1;
    shmi_put(&m->w->arrivals, stamp);
    shmi_st64(&n->stamp, stamp);
    SHMSYNC_CRASHPOINT("monitor.queue.stamped");
    m->rules->requeue(m, w);
    SHMSYNC_CRASHPOINT("monitor.queue.linked");
}

/* Takes the result of a wait that was resolved, and gives the wait node back. */
SHMI_FN uint64_t shmi_mon_collect(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    uint64_t outcome;
    SHMSYNC_CRASHPOINT("monitor.await.resolved");
    outcome = shmi_get(&wait_node->node->extra);
    shmi_wait_node_leave(m->a, wait_node);
    return outcome;
}

/* Gives up a wait that was not resolved, and has it taken off its queue. Returns 0 if the wait was resolved. */
SHMI_FN int shmi_mon_give_up(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    struct shmi_abandoned left = shmi_abandoned_of(wait_node);
    if (!shmi_wait_node_abandon(m->a, wait_node))
        return 0;
    SHMSYNC_CRASHPOINT("monitor.await.given_up");
    shmi_mon_clean_up(m, left);
    return 1;
}

/* Waits until the wait of a wait node that has joined is resolved. An error means that it is not resolved and never
 * will be, and that the wait node has been given back: ETIMEDOUT, EBADF, ENOTCONN. After 0 the caller calls
 * shmi_mon_collect. */
SHMI_FN int shmi_mon_sleep(struct shmi_monitor *m, shmi_wait_node *wait_node, int64_t abs)
{
    shmi_tuning t = shmi_mon_tuning(m);
    int err = shmi_enter(m->a, "monitor.wait");
    if (err != 0)
        return shmi_self(m->a) == 0 || shmi_mon_give_up(m, wait_node) ? err : 0;
    /* If waits end one after the other, more than one spinner would take the CPUs from the first waiter and from the
     * holder. */
    if ((__atomic_fetch_add(&m->waiting, 1, __ATOMIC_RELAXED) != 0 && m->one_spins) || !shmi_spin(&t, shmi_wait_node_resolved_arg, wait_node)) {
        while (!shmi_wait_node_resolved(wait_node)) {
            int r;
            shmi_mutex_check(&m->queueLock);
            r = shmi_wait_node_sleep(m->a, wait_node, m->o.off, abs, &m->queueLock.looked, shmi_mutex_check_arg, &m->queueLock);
            if (r == SHMI_LOOK)
                continue;
            if (r == SHMI_AGAIN) {
                uint32_t w = shmi_node_load(wait_node->node);
                if (shmi_node_queued(w) || shmi_node_state(w) == SHMI_NodeResolved)
                    continue;
                err = EPROTO; /* a peer has overwritten the node */
            } else {
                err = r == SHMI_LATE ? ETIMEDOUT : EBADF;
            }
            if (shmi_mon_give_up(m, wait_node)) {
                __atomic_fetch_sub(&m->waiting, 1, __ATOMIC_RELAXED);
                shmi_exit(m->a);
                return err;
            }
        }
    }
    __atomic_fetch_sub(&m->waiting, 1, __ATOMIC_RELAXED);
    shmi_exit(m->a);
    return 0;
}

/* As shmi_mon_sleep, and gets the result, too. */
SHMI_FN int shmi_mon_await(struct shmi_monitor *m, shmi_wait_node *wait_node, int64_t abs, uint64_t *outcome)
{
    int err = shmi_mon_sleep(m, wait_node, abs);
    if (err == 0)
        *outcome = shmi_mon_collect(m, wait_node);
    return err;
}

SHMI_FN void shmi_mon_check_arg(void *m) { shmi_mon_check((struct shmi_monitor *)m); }

/* Makes a monitor whose words are at off in the body of o. The monitor of a reaper is on the stack of the reaper. */
SHMI_FN void shmi_mon_init(struct shmi_monitor *m, shmsync_arena *a, const shmi_object *o, shmi_off off, const struct shmi_rules *rules)
{
    shmi_monitor_words *w = (shmi_monitor_words *)shmi_ptr(a, off, sizeof(shmi_monitor_words), 8);
    m->a = a;
    m->o = *o;
    m->w = w;
    m->rules = rules;
    m->mine = NULL;
    m->without = 0;
    m->broken = m->dead_holder = m->waiting = m->cleaning_up = 0;
    m->kept = m->resolved = 0;
    m->handlers = m->one_spins = 0;
    m->deaths = shmi_deaths(a) - 1; /* the first check reaps */
    shmi_mutex_init(&m->queueLock, a, &w->queueLock, o->off, m->o.name_len != 0 ? m->o.name : NULL, 1);
    m->queueLock.queueLock = 1;
    m->queueLock.repair = shmi_mon_replay;
    m->queueLock.repair_arg = m;
    m->queueLock.also_check = shmi_mon_check_arg;
    m->queueLock.also_check_arg = m;
}

/* Frees a handle. Objects with a monitor have it at their head. */
SHMI_FN void shmi_mon_free(void *handle) { shmi_free_thing(handle); }

/* The reaper's work on an object whose monitor has been made. */
SHMI_FN void shmi_mon_repair(struct shmi_monitor *m, shmi_participant_id dead)
{
    struct shmi_wakes b;
    shmi_mutex_repair_words(m->a, &m->w->queueLock, dead, 1, NULL);
    if (dead == m->a->self)
        m->without = dead; /* others are not current, or another participant has the ID by now */
    if (shmi_mon_try_enter(m)) {
        shmi_wakes_init(&b);
        shmi_mon_reap(m, &b);
        shmi_mon_leave(m, &b);
    }
}

/* 0, or ENOTCONN in a child of fork. */
SHMI_FN int shmi_use(shmsync_arena *a, const char *op) { return SHMI_LIKELY(shmi_self(a) != 0) ? 0 : shmi_fail(shmi_nameless(a), op, NULL, "%s", ""); }

/* ---- What objects have in common whose waiters are released together, or that are opened alike ---- */

/* How a wait ended. */
enum { SHMI_outcomeOpen, SHMI_outcomeDead };

/* Reaps, with the queue lock held, wakes the waiters that this lets go, and takes the queue lock again. */
SHMI_FN int shmi_mon_reap_and_enter(struct shmi_monitor *m, int64_t abs)
{
    struct shmi_wakes b;
    shmi_wakes_init(&b);
    shmi_mon_reap(m, &b);
    shmi_mon_leave(m, &b);
    return shmi_mon_enter(m, abs);
}

/* The end of a call that may have let waiters go. */
SHMI_FN void shmi_mon_resolve_and_leave(struct shmi_monitor *m)
{
    struct shmi_wakes b;
    shmi_wakes_init(&b);
    m->rules->resolve(m, &b);
    shmi_mon_leave(m, &b);
}

/* Queues a wait unless over, which is called with the queue lock held, says that there is nothing to wait for. The
 * call begins with the queue lock held and ends without it. If *wait_node is NULL and there is no error, over was
 * true; otherwise the caller awaits the wait node. */
SHMI_FN int shmi_mon_enqueue(struct shmi_monitor *m, int64_t abs, uint64_t wanted, int (*over)(struct shmi_monitor *m, void *arg), void *arg, shmi_wait_node **wait_node)
{
    int err, again = 1;
    *wait_node = NULL;
    while (again) {
        if (over(m, arg)) {
            shmi_mon_leave(m, NULL);
            shmi_mon_return_node(m, *wait_node);
            *wait_node = NULL;
            return 0;
        }
        if (__atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) != shmi_deaths(m->a)) {
            err = shmi_mon_reap_and_enter(m, abs);
            if (err != 0) {
                shmi_mon_return_node(m, *wait_node);
                *wait_node = NULL;
                return err;
            }
            continue;
        }
        err = shmi_mon_wait_node(m, abs, wait_node, &again);
        if (err != 0)
            return err;
    }
    shmi_mon_join(m, *wait_node, 0, wanted);
    shmi_mon_leave(m, NULL);
    return 0;
}

/* Ends every wait of a queue with one result. */
SHMI_FN void shmi_mon_end_all(struct shmi_monitor *m, struct shmi_wakes *b, shmi_list_words *q, uint32_t result, uint32_t aux)
{
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, q)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (shmi_mon_end(m, b, w, result, aux))
            shmi_mon_release_node(m, w);
    }
}

/* Opens an object of a kind, and returns this process's handle on it. */
SHMI_FN int shmi_mon_open(shmsync_arena *a, const shmi_spec *spec, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, int *created, void **impl)
{
    shmi_object o;
    int err = shmi_enter(a, "arena.open_object");
    *impl = NULL;
    if (err != 0)
        return err;
    err = shmi_open_object(a, spec, &o, created);
    if (err == 0) {
        *impl = shmi_share(a, &o, build, arg);
        err = shmi_handed_out(a, &o, *created, *impl != NULL ? 0 : shmi_last.err);
    }
    shmi_exit(a);
    return err;
}
SHMI_FN int shmi_mon_at(shmsync_arena *a, shmi_off off, const char *op, uint32_t kind, uint16_t version, uint64_t size, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, void **impl)
{
    shmi_object o;
    int err = shmi_object_at(a, off, op, kind, version, size, &o);
    *impl = NULL;
    if (err != 0)
        return err;
    *impl = shmi_share(a, &o, build, arg);
    return shmi_exit_with(a, *impl != NULL ? 0 : shmi_last.err);
}

/* Fills in the body of a kind that begins with monitor words, of which only the spin budget is not zero. */
SHMI_FN void shmi_mon_fill(unsigned char *body, const void *arg) { ((shmi_monitor_words *)(void *)body)->spin = *(const uint32_t *)arg; }
SHMI_FN void shmi_mon_spec(shmi_spec *spec, uint32_t kind, uint16_t version, const char *name, uint64_t size)
{
    memset(spec, 0, sizeof *spec);
    spec->kind = kind;
    spec->version = version;
    spec->name = name;
    spec->size = size;
    spec->init = shmi_mon_fill;
}
