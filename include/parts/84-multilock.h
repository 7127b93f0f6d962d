
/* ---- MultiLock: prims/multilock*.go in C, docs/design/0007-fair-locks.md ---- */

/* The kinds of a hold that differ from those of an owner word. */
enum { SHMI_keyBiased = SHMI_kindBiased, SHMI_keyGranted = SHMI_kindNotRecoverable /* with a name */, SHMI_keyFree = SHMI_kindNotRecoverable + 1, SHMI_keyCached };
enum { SHMI_multiInline = 5, SHMI_multiLogDefault = 6, SHMI_multiLogMost = 16, SHMI_evictEvery = 16 };
#define SHMI_MULTI_HASH UINT64_C(0x9e3779b97f4a7c15)
#define SHMI_HOLD_FAST (UINT64_C(1) << 29)                               /* a claim clears this bit */
#define SHMI_HOLD_UNLOCK ((uint64_t)(SHMI_keyCached - SHMI_keyBiased) << 29) /* turns biased into cached */
#define SHMI_HOLD_LOCK ((UINT64_C(1) << 32) - SHMI_HOLD_UNLOCK)           /* turns cached into the next biased */
#define SHMI_HOLD_FREE ((uint64_t)SHMI_keyFree << 29)                     /* turns held into free */

/* This process's side of a bucket. */
struct shmi_key_bucket {
    struct shmi_monitor m; /* first */
    struct shmi_multilock *of;
    shmi_multilock_bucket *w;
    uint32_t number;
    uint32_t biased; /* this process has had a biased hold in the bucket. Atomic. */
};

struct shmi_multilock {
    shmsync_arena *a;
    shmi_object o;
    int release;  /* policy PolicyRelease */
    uint32_t log; /* logarithm of the number of buckets */
    pthread_mutex_t making;
    struct shmi_key_bucket **all; /* NULL until this process uses the bucket; atomic */
};

/* The place of a key that is not free: an entry of its bucket, or a node. hold is NULL if there is none. */
struct shmi_key_entry {
    uint64_t *key, *hold, *queue;
    uint64_t off; /* offset of the node, or 0 */
    shmi_node *n;
};

SHMI_FN uint32_t shmi_hold_owner(uint64_t h) { return (uint32_t)h; }
SHMI_FN uint32_t shmi_hold_kind(uint64_t h) { return shmi_owner_kind((uint32_t)h); }
SHMI_FN uint32_t shmi_hold_name(uint64_t h) { return shmi_owner_name((uint32_t)h); }
SHMI_FN uint32_t shmi_hold_stamp(uint64_t h) { return (uint32_t)(h >> 32); }
SHMI_FN uint64_t shmi_make_hold(uint32_t kind, shmi_participant_id n, uint32_t stamp) { return (uint64_t)stamp << 32 | shmi_make_owner(kind, n); }
/* Whether no participant has the key or waits for it. */
SHMI_FN int shmi_hold_free(uint64_t h) { return h == 0 || shmi_hold_kind(h) >= SHMI_keyFree; }
/* As shmi_hold_free, for a word that is not fast: the entry is unused. */
SHMI_FN int shmi_hold_idle(uint64_t h) { return h == 0 || shmi_hold_kind(h) == SHMI_keyFree; }
/* Whether the participant that the word names may change the word without the queue lock. */
SHMI_FN int shmi_hold_fast(uint64_t h) { return shmi_hold_kind(h) == SHMI_keyBiased || shmi_hold_kind(h) == SHMI_keyCached; }
/* Whether the key was handed to a waiter that has not accepted it yet. */
SHMI_FN int shmi_hold_granted(uint64_t h) { return shmi_hold_kind(h) == SHMI_keyGranted && shmi_hold_name(h) != 0; }
/* Whether a participant has the key, or was handed it. */
SHMI_FN int shmi_hold_taken(uint64_t h) { return shmi_owner_held(shmi_hold_owner(h)) || shmi_hold_granted(h); }
SHMI_FN int shmi_hold_valid(uint64_t h)
{
    if (shmi_hold_kind(h) >= SHMI_keyFree || shmi_hold_granted(h))
        return shmi_hold_name(h) != 0;
    return shmi_owner_valid(shmi_hold_owner(h)) && (shmi_hold_owner(h) != 0 || h == 0);
}
/* The hold after its key was unlocked while others wait. */
SHMI_FN uint64_t shmi_hold_passing(uint64_t h) { return shmi_make_hold(SHMI_kindReserved, shmi_hold_name(h), shmi_hold_stamp(h)); }
/* The hold after the participant in it was found dead, and perhaps gone. */
SHMI_FN uint64_t shmi_hold_owner_died(uint64_t h, int release, int gone)
{
    uint32_t next = shmi_hold_granted(h) ? 0 : shmi_owner_died(shmi_hold_owner(h), release, gone);
    return next != 0 ? (h & ~(uint64_t)UINT32_MAX) | next : shmi_hold_passing(h);
}
/* The participant whose death made the key what it is. */
SHMI_FN shmi_participant_id shmi_hold_died(uint64_t h)
{
    return shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE ? shmi_hold_stamp(h) & SHMI_NAME_MASK : shmi_hold_name(h);
}
/* How a wait for a lock ends. */
enum { SHMI_lockGranted, SHMI_lockOwnerDead, SHMI_lockNotRecoverable, SHMI_lockCorrupt };

/* How often a waiter looks for the grant that follows the end of its wait by a few instructions. */
enum { SHMI_acceptTries = 100, SHMI_acceptPause = 2 };

/* The result of a wait for a key with this hold, if the wait ends at once. SHMI_lockGranted: it does not. */
SHMI_FN uint32_t shmi_hold_result(uint64_t h)
{
    if (!shmi_hold_valid(h) || shmi_hold_fast(h) || shmi_hold_kind(h) == SHMI_keyFree)
        return SHMI_lockCorrupt; /* in use, and claimed */
    if (shmi_hold_kind(h) == SHMI_kindOwnerDead)
        return SHMI_lockOwnerDead;
    return shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE ? SHMI_lockNotRecoverable : SHMI_lockGranted;
}
SHMI_FN int shmi_key_fail(struct shmi_monitor *m, const char *op, uint64_t key, uint32_t result, shmi_participant_id who)
{
    switch (result) {
    case SHMI_lockGranted: return 0;
    case SHMI_lockOwnerDead: return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, who);
    case SHMI_lockNotRecoverable: return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, who);
    }
    return shmi_fail(EPROTO, op, m->queueLock.called, "key %llu", (unsigned long long)key);
}

SHMI_FN uint32_t shmi_bucket_of(uint64_t key, uint32_t log) { return (uint32_t)((key ^ key >> 32) * SHMI_MULTI_HASH >> 1 >> (63 - log)); }
SHMI_FN uint64_t shmi_multi_bytes(uint32_t log) { return sizeof(shmi_multilock_head) + ((uint64_t)sizeof(shmi_multilock_bucket) << log); }
SHMI_FN uint64_t shmi_bucket_at(const shmi_object *o, uint32_t i)
{
    return o->body + sizeof(shmi_multilock_head) + (uint64_t)i * sizeof(shmi_multilock_bucket);
}

/* ---- entries ---- */

SHMI_FN struct shmi_key_entry shmi_no_entry(void)
{
    struct shmi_key_entry e;
    memset(&e, 0, sizeof e);
    return e;
}
SHMI_FN struct shmi_key_entry shmi_inline_entry(struct shmi_key_bucket *k, uint32_t i)
{
    struct shmi_key_entry e = shmi_no_entry();
    e.key = &k->w->entries[3 * i];
    e.hold = e.key + 1;
    e.queue = e.key + 2;
    return e;
}
SHMI_FN struct shmi_key_entry shmi_node_entry(uint64_t off, shmi_node *n)
{
    struct shmi_key_entry e;
    e.key = &n->wanted;
    e.hold = &n->stamp;
    e.queue = &n->extra;
    e.off = off;
    e.n = n;
    return e;
}
SHMI_FN int shmi_key_belongs(struct shmi_key_bucket *k, shmi_node *n)
{
    return shmi_get(&n->object) == k->m.o.off && shmi_bucket_of(shmi_get(&n->wanted), k->of->log) == k->number && shmi_get(&n->stamp) != 0;
}
/* Whether a node stands for a key of this bucket. While the queue lock is held, such a node remains an entry. Other
 * nodes may change during the test, so it is made twice. */
SHMI_FN int shmi_key_is_entry(struct shmi_key_bucket *k, shmi_node *n)
{
    uint32_t w = shmi_node_load(n);
    return shmi_node_state(w) == SHMI_NodeIdle && shmi_key_belongs(k, n) && shmi_node_load(n) == w;
}
/* Whether a node is a wait in this bucket. */
SHMI_FN int shmi_key_is_wait(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t n = shmi_node_load(w.n);
    return shmi_node_state(n) != SHMI_NodeIdle && shmi_key_belongs((struct shmi_key_bucket *)m, w.n) && ((shmi_node_load(w.n) ^ n) & ~15u) == 0;
}

/* A walk over the entries in use, including those with biased holds. The caller may take an entry off after the
 * walk gave it. Nodes are in the order of their offsets, so the walk ends whatever the links are. Without the queue
 * lock it may miss entries that change meanwhile. */
struct shmi_key_walk {
    uint32_t i;
    int peek; /* the queue lock is not held */
    uint64_t off, before;
};
SHMI_FN struct shmi_key_walk shmi_walk_spilled(struct shmi_key_bucket *k, int peek)
{
    struct shmi_key_walk v;
    v.i = SHMI_multiInline + 1;
    v.peek = peek;
    v.off = shmi_link_next(shmi_get(&k->w->spilled));
    v.before = 0;
    return v;
}
SHMI_FN struct shmi_key_walk shmi_walk_keys(struct shmi_key_bucket *k, int peek)
{
    struct shmi_key_walk v = shmi_walk_spilled(k, peek);
    v.i = 0;
    return v;
}
SHMI_FN int shmi_next_key(struct shmi_key_bucket *k, struct shmi_key_walk *v, struct shmi_key_entry *e)
{
    shmi_node *n;
    while (v->i < SHMI_multiInline) {
        *e = shmi_inline_entry(k, v->i++);
        if (!shmi_hold_free(shmi_get(e->hold)))
            return 1;
    }
    if (v->i == SHMI_multiInline)
        *v = shmi_walk_spilled(k, v->peek);
    if (v->off == 0)
        return 0;
    n = shmi_node_at(k->m.a, v->off);
    if (n == NULL || v->off <= v->before || !shmi_key_is_entry(k, n)) {
        if (!v->peek)
            shmi_set_broken(&k->m, 1);
        return 0;
    }
    *e = shmi_node_entry(v->off, n);
    v->before = v->off;
    v->off = shmi_link_next(shmi_get(&n->next));
    return 1;
}

/* Makes sure that later stamps come after the stamp of a hold. */
SHMI_FN void shmi_key_raise(struct shmi_key_bucket *k, uint64_t h)
{
    uint64_t n = shmi_get(&k->w->mon.arrivals);
    int32_t ahead = (int32_t)(shmi_hold_stamp(h) - (uint32_t)n);
    if (ahead > 0)
        shmi_put(&k->w->mon.arrivals, n + (uint64_t)ahead);
}
/* Claims the hold of an entry, so that only the holder of the queue lock changes it, and returns the hold. The
 * caller has the queue lock. The claim is one step, so that a process that locks and unlocks meanwhile cannot delay
 * it. */
SHMI_FN uint64_t shmi_key_claim(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    uint64_t h;
    shmi_and64(e.hold, ~SHMI_HOLD_FAST);
    SHMSYNC_CRASHPOINT("multilock.claim.claimed");
    h = shmi_get(e.hold);
    shmi_key_raise(k, h);
    return h;
}

/* Finds the entry of a key among those in the bucket itself, and claims its hold. If there is none, *was is the
 * unused entry where the key was last, if there is one. The caller has the queue lock. */
SHMI_FN struct shmi_key_entry shmi_key_seek(struct shmi_key_bucket *k, uint64_t key, struct shmi_key_entry *was)
{
    uint32_t i;
    *was = shmi_no_entry();
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h;
        if (shmi_get(e.key) != key)
            continue;
        h = shmi_get(e.hold);
        if (shmi_hold_fast(h))
            h = shmi_key_claim(k, e);
        if (!shmi_hold_free(h)) {
            *was = shmi_no_entry();
            return e;
        }
        if (h != 0 || was->hold == NULL) /* a hold of 0 means that the entry was never used, so its key is no key */
            *was = e;
    }
    return shmi_no_entry();
}
/* Finds the entry of a key, and claims its hold. The caller has the queue lock. */
SHMI_FN struct shmi_key_entry shmi_key_find(struct shmi_key_bucket *k, uint64_t key)
{
    struct shmi_key_entry was, e = shmi_key_seek(k, key, &was);
    struct shmi_key_walk v;
    if (e.hold != NULL)
        return e;
    for (v = shmi_walk_spilled(k, 0); shmi_next_key(k, &v, &e);)
        if (shmi_get(e.key) == key)
            return e;
    return shmi_no_entry();
}
/* Returns an unused entry. The entries are used in turn, so that the keys that they were for have time to come back. */
SHMI_FN struct shmi_key_entry shmi_key_unused(struct shmi_key_bucket *k, uint64_t n)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, (uint32_t)((n % SHMI_multiInline + i) % SHMI_multiInline));
        if (shmi_hold_idle(shmi_get(e.hold)))
            return e;
    }
    return shmi_no_entry();
}
/* Finds an entry for a key that has none: the unused one where the key was last, another unused one, or one that is
 * cached for another key. Now and then it takes a cached one first, because no process may want that key any more.
 * The caller has the queue lock. */
SHMI_FN struct shmi_key_entry shmi_key_room(struct shmi_key_bucket *k, struct shmi_key_entry was)
{
    uint64_t n = shmi_get(&k->w->mon.arrivals);
    uint32_t i;
    if (was.hold != NULL)
        return was;
    if (n % SHMI_evictEvery != 0) {
        was = shmi_key_unused(k, n);
        if (was.hold != NULL)
            return was;
    }
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, (uint32_t)((n / SHMI_evictEvery + i) % SHMI_multiInline));
        if (shmi_hold_kind(shmi_get(e.hold)) == SHMI_keyCached && shmi_hold_free(shmi_key_claim(k, e)))
            return e;
    }
    return shmi_key_unused(k, n);
}
/* Finds an entry for a key that has none, or none if that is not possible at once. The caller has the queue lock. */
SHMI_FN struct shmi_key_entry shmi_key_vacant(struct shmi_key_bucket *k, uint64_t key)
{
    struct shmi_key_entry was, e = shmi_key_seek(k, key, &was);
    if (e.hold != NULL || shmi_get(&k->w->spilled) != 0)
        return shmi_no_entry();
    return shmi_key_room(k, was);
}

/* The link that leads, or would lead, to the node at off. The head counts as a link. */
SHMI_FN uint64_t *shmi_key_before(struct shmi_key_bucket *k, uint64_t off)
{
    uint64_t *before = &k->w->spilled;
    struct shmi_key_walk v;
    struct shmi_key_entry e;
    for (v = shmi_walk_spilled(k, 0); shmi_next_key(k, &v, &e) && e.off < off;)
        before = &e.n->next;
    return before;
}
SHMI_FN void shmi_key_link(struct shmi_key_bucket *k, uint64_t off, shmi_node *n)
{
    uint64_t *before = shmi_key_before(k, off);
    shmi_put(&n->next, shmi_links(shmi_link_next(shmi_get(before)), 0));
    shmi_put(before, shmi_links(off, 0));
}
/* Makes an entry of a node that this process has claimed, for a key. */
SHMI_FN struct shmi_key_entry shmi_key_spill(struct shmi_key_bucket *k, uint64_t off, shmi_node *n, uint64_t key, uint64_t h)
{
    struct shmi_key_entry e = shmi_node_entry(off, n);
    shmi_st64(&n->object, k->m.o.off);
    shmi_st64(e.key, key);
    shmi_st64(e.queue, 0);
    /* From here on the node is given back with the key, not when this process dies. */
    shmi_put(e.hold, h);
    SHMSYNC_CRASHPOINT("multilock.lock.spilled");
    shmi_key_link(k, off, n);
    return e;
}
/* Makes an entry unused. No participant has its key or waits for it. */
SHMI_FN void shmi_key_free(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    uint64_t h = shmi_get(e.hold), *before;
    if (e.n == NULL) {
        shmi_put(e.hold, shmi_make_hold(SHMI_keyFree, shmi_hold_name(h), shmi_hold_stamp(h)));
        return;
    }
    if (shmi_hold_kind(h) != SHMI_kindReserved)
        shmi_put(e.hold, shmi_hold_passing(h));
    before = shmi_key_before(k, e.off);
    if (shmi_link_next(shmi_get(before)) == e.off)
        shmi_put(before, shmi_links(shmi_link_next(shmi_get(&e.n->next)), 0));
    SHMSYNC_CRASHPOINT("multilock.unlock.unlinked");
    /* The participant that claimed the node may be dead. The node keeps its stamp until it is free, so that no other
     * participant gives it back. */
    shmi_reap_node(k->m.a, e.off, shmi_node_owner(e.n));
}

/* ---- the queues of keys ---- */

SHMI_FN shmi_list_words shmi_key_queue(struct shmi_key_entry e)
{
    shmi_list_words q;
    uint64_t l = shmi_get(e.queue);
    q.first = shmi_link_next(l);
    q.last = shmi_link_prev(l);
    return q;
}
SHMI_FN void shmi_key_set_queue(struct shmi_key_entry e, shmi_list_words q) { shmi_put(e.queue, shmi_links(q.first, q.last)); }
SHMI_FN struct shmi_wait shmi_key_head(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    return shmi_mon_node(&k->m, shmi_link_next(shmi_get(e.queue)));
}
SHMI_FN void shmi_multi_detach(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_key_entry e = shmi_key_find((struct shmi_key_bucket *)m, shmi_get(&w.n->wanted));
    if (e.hold != NULL) {
        shmi_list_words q = shmi_key_queue(e);
        shmi_fifo_detach(m, &q, w);
        shmi_key_set_queue(e, q);
    }
}

/* The next hold of this process in the bucket. */
SHMI_FN uint64_t shmi_key_new_hold(struct shmi_key_bucket *k, uint32_t kind)
{
    uint64_t stamp = shmi_get(&k->w->mon.arrivals) + 1;
    shmi_put(&k->w->mon.arrivals, stamp);
    return shmi_make_hold(kind, k->m.a->self, (uint32_t)stamp);
}
/* Puts a free key into an unused entry. If this process also had the key last, it locks and unlocks the key by CAS
 * from here on. That costs other processes more, so a process must take the key twice first. */
SHMI_FN void shmi_key_take(struct shmi_key_bucket *k, struct shmi_key_entry e, uint64_t key, shmsync_hold *out)
{
    uint32_t kind = SHMI_kindHeld;
    if (shmi_get(e.key) != key) {
        shmi_put(e.key, key);
    } else if (shmi_hold_owner(shmi_get(e.hold)) == shmi_make_owner(SHMI_keyFree, k->m.a->self)) {
        kind = SHMI_keyBiased;
        __atomic_store_n(&k->biased, 1, __ATOMIC_RELAXED);
    }
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = e.hold;
    out->key = key;
    out->hold = shmi_key_new_hold(k, kind);
    shmi_put(e.queue, 0);
    shmi_put(e.hold, out->hold);
    SHMSYNC_CRASHPOINT("multilock.lock.taken");
}

/* Grants a key to the process of a wait that was resolved so. The key was on its way to a waiter when the wait was
 * resolved. If the word is another one now, the grant was made already, and the waiter may even have accepted the
 * key since. */
SHMI_FN void shmi_multi_account(struct shmi_monitor *m, struct shmi_wait w)
{
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_lockGranted) {
        struct shmi_key_entry e = shmi_key_find((struct shmi_key_bucket *)m, shmi_get(&w.n->wanted));
        if (e.hold != NULL && shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved) {
            shmi_put(e.hold, shmi_make_hold(SHMI_keyGranted, shmi_owner_of(w) & SHMI_NAME_MASK, (uint32_t)shmi_stamp_of(w)));
            SHMSYNC_CRASHPOINT("multilock.grant.granted");
        }
    }
    shmi_mon_release_node(m, w);
}

/* Passes on a key that was unlocked, or makes its entry unused. If the key cannot be locked, it ends the waits for
 * it. */
SHMI_FN void shmi_key_resolve(struct shmi_key_bucket *k, struct shmi_wakes *b, struct shmi_key_entry e)
{
    while (shmi_get(e.queue) != 0) {
        uint64_t h = shmi_get(e.hold);
        uint32_t result = shmi_hold_result(h);
        struct shmi_wait w;
        if (result == SHMI_lockGranted && shmi_hold_kind(h) != SHMI_kindReserved)
            return;
        w = shmi_key_head(k, e);
        if (w.n == NULL)
            break;
        if (!shmi_mon_waiting(&k->m, w)) { /* this has checked whether the owner lives */
            shmi_mon_discard(&k->m, w);
            continue;
        }
        if (shmi_mon_end(&k->m, b, w, result, result == SHMI_lockOwnerDead || result == SHMI_lockNotRecoverable ? shmi_hold_died(h) : 0))
            shmi_multi_account(&k->m, w);
    }
    if (shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved)
        shmi_key_free(k, e);
}
SHMI_FN void shmi_multi_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e))
        shmi_key_resolve(k, b, e);
}

SHMI_FN void shmi_multi_relink(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)arg;
    (void)a;
    if (shmi_key_is_entry(k, n)) {
        shmi_put(&n->extra, 0);
        shmi_key_link(k, off, n);
    }
}
/* Builds the list of spilled entries anew, and empties the queues. Processes go on locking and unlocking biased and
 * cached keys by CAS meanwhile, since no wait is queued for those keys. */
SHMI_FN void shmi_multi_clear(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    uint32_t i;
    shmi_st64(&k->w->spilled, 0);
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        shmi_put(e.queue, 0);
        /* The participant that claimed the hold may have died before it raised arrivals. */
        if (shmi_hold_owner(h) != SHMI_OWNER_NOT_RECOVERABLE)
            shmi_key_raise(k, h);
    }
    shmi_each_queued(m->a, m->o.off, shmi_multi_relink, k);
}
/* Puts a wait at the end of the queue of its key. There is an entry for each key with a wait, unless a peer
 * overwrote it: then the key counts as on its way to a waiter. */
SHMI_FN void shmi_multi_requeue(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    uint64_t key = shmi_get(&w.n->wanted), off;
    struct shmi_key_entry e = shmi_key_find(k, key);
    shmi_list_words q;
    if (e.hold == NULL) {
        struct shmi_key_entry was;
        uint64_t h;
        shmi_node *n;
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        h = shmi_key_new_hold(k, SHMI_kindReserved);
        if (e.hold != NULL) {
            shmi_put(e.key, key);
            shmi_put(e.queue, 0);
            shmi_put(e.hold, h);
        } else if (shmi_claim_node(m->a, &off, &n) == 0) {
            e = shmi_key_spill(k, off, n, key, h);
        } else {
            return;
        }
    }
    q = shmi_key_queue(e);
    shmi_fifo_requeue(m, &q, w);
    shmi_key_set_queue(e, q);
}
/* Takes off the queues the waits whose owners are dead or have given up. If a list is a cycle, it is rebuilt. */
SHMI_FN void shmi_multi_discard_dead(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t before = 0;
        struct shmi_wait w = shmi_key_head(k, e);
        while (w.n != NULL) {
            struct shmi_wait next;
            uint64_t s = shmi_stamp_of(w);
            if (s <= before) {
                shmi_set_broken(m, 1);
                return;
            }
            before = s;
            next = shmi_mon_node(m, shmi_link_next(shmi_get(&w.n->next)));
            if (!shmi_mon_waiting(m, w))
                shmi_mon_discard(m, w);
            w = next;
        }
    }
}
SHMI_FN void shmi_multi_reap(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t h = shmi_get(e.hold);
        if (!shmi_hold_valid(h) || !shmi_hold_taken(h) || !shmi_mon_died(m, shmi_hold_name(h)))
            continue;
        if (shmi_hold_fast(h))
            h = shmi_key_claim(k, e);
        if (shmi_hold_taken(h))
            shmi_put(e.hold, shmi_hold_owner_died(h, k->of->release, !shmi_hold_granted(h) && k->of->release && shmi_mon_gone(m, shmi_hold_name(h))));
    }
}
SHMI_FN void shmi_multi_holders(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 1);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_valid(h) && shmi_hold_taken(h))
            shmi_mon_heed(m, shmi_hold_name(h));
    }
}
/* Gives the first wait of each key its date. */
SHMI_FN void shmi_multi_look(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 1);
    struct shmi_key_entry e;
    int undated = 0;
    while (!undated && shmi_next_key(k, &v, &e))
        undated = shmi_mon_undated(m, shmi_link_next(shmi_get(e.queue)));
    if (!undated || !shmi_mon_enter_free(m))
        return;
    v = shmi_walk_keys(k, 0);
    while (shmi_next_key(k, &v, &e))
        if (shmi_get(e.queue) != 0)
            shmi_mon_date(shmi_key_head(k, e));
    shmi_mon_leave(m, NULL);
}

static const struct shmi_rules shmi_multi_rules = {
    shmi_multi_resolve, shmi_multi_account, shmi_multi_clear, shmi_multi_requeue, shmi_multi_detach,
    shmi_multi_discard_dead, shmi_multi_reap, shmi_multi_holders, shmi_multi_look,
};

/* ---- handles ---- */

SHMI_FN void shmi_bucket_init(struct shmi_key_bucket *k, struct shmi_multilock *x, uint32_t i)
{
    shmi_mon_init(&k->m, x->a, &x->o, shmi_bucket_at(&x->o, i), &shmi_multi_rules);
    k->m.one_spins = 1;
    k->m.mine = shmi_key_is_wait;
    k->of = x;
    k->w = (shmi_multilock_bucket *)(void *)k->m.w;
    k->number = i;
    k->biased = 0;
}
/* Makes the handle of a bucket that this process uses for the first time. */
SHMI_COLD int shmi_multi_make_bucket(struct shmi_multilock *x, uint32_t i, struct shmi_key_bucket **out)
{
    struct shmi_key_bucket *k;
    int err = shmi_enter(x->a, "multilock.lock");
    if (err != 0)
        return err;
    pthread_mutex_lock(&x->making);
    k = __atomic_load_n(&x->all[i], __ATOMIC_RELAXED);
    if (k == NULL) {
        k = (struct shmi_key_bucket *)shmi_new_thing(sizeof *k);
        if (k != NULL)
            shmi_bucket_init(k, x, i);
        else
            err = shmi_fail(ENOMEM, "multilock.lock", shmi_called(&x->o), "%s", "");
        __atomic_store_n(&x->all[i], k, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&x->making);
    shmi_exit(x->a);
    *out = k;
    return err;
}
SHMI_FN int shmi_multi_bucket(struct shmi_multilock *x, uint64_t key, struct shmi_key_bucket **out)
{
    uint32_t i = shmi_bucket_of(key, x->log);
    *out = __atomic_load_n(&x->all[i], __ATOMIC_ACQUIRE);
    return SHMI_LIKELY(*out != NULL) ? 0 : shmi_multi_make_bucket(x, i, out);
}

/* Reads the sizes from the head of the body. Returns 0 if they are impossible. */
SHMI_FN int shmi_multi_shape(struct shmi_multilock *x, shmsync_arena *a, const shmi_object *o)
{
    const shmi_multilock_head *head;
    uint32_t n;
    if (o->size < shmi_multi_bytes(0))
        return 0;
    head = (const shmi_multilock_head *)shmi_ptr(a, o->body, sizeof *head, 8);
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    x->release = (shmi_ld32(&head->policy) & 0xff) == 1;
    n = shmi_ld32(&head->buckets) & 0xff;
    x->log = n != 0 ? n - 1 : (uint32_t)SHMI_multiLogDefault;
    return x->log <= SHMI_multiLogMost && o->size >= shmi_multi_bytes(x->log);
}
SHMI_FN void *shmi_multi_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_multilock *x = (struct shmi_multilock *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x == NULL)
        return NULL;
    shmi_multi_shape(x, a, o); /* shmi_multi_handle has checked that it is possible */
    x->all = (struct shmi_key_bucket **)shmi_new_thing(sizeof *x->all << x->log);
    if (x->all == NULL) {
        shmi_free_thing(x);
        return NULL;
    }
    pthread_mutex_init(&x->making, NULL);
    return x;
}
SHMI_FN void shmi_multi_end(void *handle)
{
    struct shmi_multilock *x = (struct shmi_multilock *)handle;
    uint32_t i;
    for (i = 0; i < UINT32_C(1) << x->log; i++)
        if (x->all[i] != NULL)
            shmi_free_thing(x->all[i]);
    shmi_free_thing(x->all);
    pthread_mutex_destroy(&x->making);
    shmi_free_thing(x);
}
/* Returns this process's handle on an object that has been opened. policy and log are the options that were asked
 * for; log -1 accepts any. */
SHMI_FN int shmi_multi_handle(shmsync_arena *a, const shmi_object *o, int policy, int log, shmsync_multilock *out)
{
    struct shmi_multilock x;
    int err = 0;
    if (!shmi_multi_shape(&x, a, o))
        err = shmi_fail(EPROTO, "multilock.open", shmi_called(o), "its body has no room for its buckets");
    else if ((policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != x.release) || (log >= 0 && (uint32_t)log != x.log))
        err = shmi_fail(EINVAL, "multilock.open", shmi_called(o), "it has another policy, or other than %u buckets: %u", 1u << (log >= 0 ? log : 0), 1u << x.log);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    err = SHMI_HAND_OUT(out, struct shmi_multilock *, shmi_share(a, o, shmi_multi_new, NULL));
    if (err == 0)
        shmi_ends_with(a, o->off, shmi_multi_end);
    return err;
}

typedef struct shmi_multi_spec {
    uint32_t policy, log, spin;
} shmi_multi_spec;
SHMI_FN void shmi_multi_fill(unsigned char *body, const void *arg)
{
    const shmi_multi_spec *s = (const shmi_multi_spec *)arg;
    shmi_multilock_head *head = (shmi_multilock_head *)(void *)body;
    shmi_multilock_bucket *all = (shmi_multilock_bucket *)(void *)(body + sizeof *head);
    uint32_t i;
    head->policy = s->policy;
    head->buckets = s->log + 1;
    for (i = 0; i < UINT32_C(1) << s->log; i++)
        all[i].mon.spin = s->spin;
}
SHMI_FN int shmi_open_multilock(int existing, shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    SHMI_OPTIONS(shmsync_multilock_options, 24, "multilock.open", out->impl);
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT, err, created;
    uint32_t buckets = opts != NULL ? opts->buckets : 0;
    shmi_multi_spec init;
    shmi_spec spec;
    shmi_object o;
    err = shmi_no_rollback("multilock.open", name, policy, "a multilock");
    if (err != 0)
        return err;
    if (buckets > UINT32_C(1) << SHMI_multiLogMost)
        return shmi_fail(EINVAL, "multilock.open", name, "%u buckets", buckets);
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.log = SHMI_multiLogDefault;
    if (buckets != 0)
        for (init.log = 0; UINT32_C(1) << init.log < buckets; init.log++) {
        }
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, name, shmi_multi_bytes(init.log));
    spec.any_size = 1;
    spec.init = shmi_multi_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_multi_handle(a, &o, policy, buckets != 0 ? (int)init.log : -1, out));
    shmi_exit(a);
    return err;
}
int shmsync_multilock_open(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_multilock(0, a, name, opts, out));
}
int shmsync_multilock_attach(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_multilock(1, a, name, opts, out));
}
int shmsync_multilock_at(shmsync_arena *a, shmsync_offset off, shmsync_multilock *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "multilock.open", SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, shmi_multi_bytes(0), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_multi_handle(a, &o, SHMSYNC_POLICY_DEFAULT, -1, out)));
}
shmsync_offset shmsync_multilock_offset(const shmsync_multilock *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}
int shmsync_multilock_close(shmsync_multilock *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_multi_end);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}

/* ---- locking ---- */

/* Takes a key by one CAS, if it is cached for this process. The key of an entry changes only after its hold was
 * claimed, and no value of a hold is used twice. */
SHMI_FN int shmi_key_biased(struct shmi_key_bucket *k, uint64_t key, shmsync_hold *out)
{
    shmi_participant_id self = shmi_self(k->m.a);
    uint32_t i, kept = shmi_make_owner(SHMI_keyCached, self);
    if (self == 0)
        return 0; /* a child of fork: the arena may not even be there */
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_owner(h) != kept || shmi_get(e.key) != key)
            continue;
        if (shmi_cas64(e.hold, h, h + SHMI_HOLD_LOCK)) {
            SHMSYNC_CRASHPOINT("multilock.lock.biased");
            out->in = k;
            out->serial = shmi_serial_of(k);
            out->at = e.hold;
            out->key = key;
            out->hold = h + SHMI_HOLD_LOCK;
            return 1;
        }
    }
    return 0;
}
/* Whether a living participant has the key in a biased hold. It reads without the queue lock, because a try leaves
 * such a hold as it is. */
SHMI_FN int shmi_key_is_biased(struct shmi_key_bucket *k, uint64_t key)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_kind(h) == SHMI_keyBiased && shmi_get(e.key) == key && shmi_get(e.hold) == h)
            return !shmi_dead(k->m.a, shmi_hold_name(h));
    }
    return 0;
}
/* Takes back what the dead have, with the queue lock held. */
SHMI_FN void shmi_key_look_at(struct shmi_key_bucket *k, struct shmi_wakes *b, uint64_t key)
{
    struct shmi_key_entry e = shmi_key_find(k, key);
    uint64_t h = e.hold != NULL ? shmi_get(e.hold) : 0;
    if (shmi_hold_taken(h) && shmi_dead(k->m.a, shmi_hold_name(h))) {
        shmi_mon_reap(&k->m, b);
        return;
    }
    shmi_mon_reap_if_due(&k->m, b);
    e = shmi_key_find(k, key);
    if (e.hold != NULL && shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved)
        shmi_key_resolve(k, b, e);
}
SHMI_FN int shmi_key_accept_in(struct shmi_key_bucket *k, struct shmi_key_entry e, uint64_t key, uint64_t granted, uint64_t held)
{
    if (e.hold == NULL || !shmi_cas64(e.hold, granted, held))
        return shmi_key_fail(&k->m, "multilock.lock", key, SHMI_lockCorrupt, 0);
    SHMSYNC_CRASHPOINT("multilock.lock.accepted");
    return 0;
}
/* Makes this process the holder of a key that one of its waits was granted. A process that
 * dies before this step has not held the key. */
SHMI_FN int shmi_key_accept(struct shmi_key_bucket *k, uint64_t key, uint64_t held)
{
    const uint64_t granted = shmi_make_hold(SHMI_keyGranted, shmi_hold_name(held), shmi_hold_stamp(held));
    uint32_t i;
    int tries, err;
    for (tries = 0; tries < SHMI_acceptTries; tries++) {
        for (i = 0; i < SHMI_multiInline; i++) {
            /* A granted word with this stamp belongs to this wait, so the key need not be compared. */
            struct shmi_key_entry e = shmi_inline_entry(k, i);
            if (shmi_get(e.hold) == granted)
                return shmi_key_accept_in(k, e, key, granted, held);
        }
        if (shmi_get(&k->w->spilled) != 0)
            break;
        shmi_pause(SHMI_acceptPause);
    }
    /* The key is in a node, or the granter has resolved the wait and not finished yet: the granter is running,
     * stopped or dead. */
    err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return err;
    err = shmi_key_accept_in(k, shmi_key_find(k, key), key, granted, held);
    shmi_mon_leave(&k->m, NULL);
    return err;
}
/* Waits for a key with the wait node. The caller has the queue lock, and the call releases it. */
SHMI_FN int shmi_key_queue_up(struct shmi_key_bucket *k, int64_t abs, uint64_t key, shmi_wait_node *wait_node, struct shmi_wakes *b, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    uint64_t outcome = 0;
    int err;
    shmi_mon_join(m, wait_node, 0, key);
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = NULL;
    out->key = key;
    out->hold = shmi_make_hold(SHMI_kindHeld, m->a->self, (uint32_t)shmi_get(&wait_node->node->stamp));
    shmi_mon_leave(m, b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0)
        err = shmi_key_fail(m, "multilock.lock", key, shmi_outcome_result(outcome), shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    return err != 0 ? err : shmi_key_accept(k, key, out->hold);
}
/* The slow part of lock. The caller has the queue lock, and the call releases it. The call counts. */
SHMI_FN int shmi_key_lock_slow(struct shmi_key_bucket *k, int64_t abs, uint64_t key, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t spare = 0;
    shmi_node *n = NULL;
    int err = 0, again;
    shmi_wakes_init(&b);
    for (;;) {
        struct shmi_key_entry e, was;
        shmi_key_look_at(k, &b, key);
        e = shmi_key_find(k, key);
        if (e.hold != NULL) {
            uint64_t h = shmi_get(e.hold);
            err = shmi_key_fail(m, "multilock.lock", key, shmi_hold_result(h), shmi_hold_died(h));
            if (err != 0)
                break;
            err = shmi_mon_wait_node(m, abs, &wait_node, &again);
            if (err != 0) {
                shmi_mon_wake(m, &b);
                if (spare != 0)
                    shmi_free_node(m->a, spare);
                return err;
            }
            if (again)
                continue;
            err = shmi_key_queue_up(k, abs, key, wait_node, &b, out);
            if (spare != 0)
                shmi_free_node(m->a, spare);
            return err;
        }
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        if (e.hold != NULL) {
            shmi_key_take(k, e, key, out);
            break;
        }
        if (spare != 0) {
            out->in = k;
            out->serial = shmi_serial_of(k);
            out->at = NULL;
            out->key = key;
            out->hold = shmi_key_new_hold(k, SHMI_kindHeld);
            shmi_key_spill(k, spare, n, key, out->hold);
            spare = 0;
            break;
        }
        shmi_mon_leave(m, &b);
        err = shmi_claim_node(m->a, &spare, &n);
        if (err != 0)
            spare = 0;
        else
            err = shmi_mon_enter(m, abs);
        if (err != 0) {
            shmi_mon_return_node(m, wait_node);
            if (spare != 0)
                shmi_free_node(m->a, spare);
            return err;
        }
    }
    shmi_mon_leave(m, &b);
    shmi_mon_return_node(m, wait_node);
    if (spare != 0)
        shmi_free_node(m->a, spare);
    return err;
}
/* Whether an entry of a key seems to be in use, or keys are in nodes. It works without the queue lock. */
SHMI_FN int shmi_key_seems_taken(struct shmi_key_bucket *k, uint64_t key)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        if (shmi_get(e.key) == key && !shmi_hold_free(shmi_get(e.hold)))
            return 1;
    }
    return shmi_get(&k->w->spilled) != 0;
}
SHMI_FN int shmi_key_lock(struct shmi_multilock *x, uint64_t key, int64_t abs, shmsync_hold *out)
{
    struct shmi_key_bucket *k;
    struct shmi_key_entry e;
    int err = shmi_multi_bucket(x, key, &k);
    if (err == 0 && __atomic_load_n(&k->biased, __ATOMIC_RELAXED) != 0 && shmi_key_biased(k, key, out))
        return 0;
    /* A call that has to wait is counted before it takes the queue lock: if it were refused afterwards, it could not give
     * the queue lock back. */
    if (err == 0 && !shmi_key_seems_taken(k, key)) {
        err = shmi_mon_enter(&k->m, abs);
        if (err == 0) {
            e = shmi_key_vacant(k, key);
            if (e.hold != NULL)
                shmi_key_take(k, e, key, out);
            shmi_mon_leave(&k->m, NULL);
            if (e.hold != NULL)
                return 0;
        }
    }
    if (err == 0)
        err = shmi_mon_begin(&k->m);
    if (err == 0) {
        err = shmi_mon_enter(&k->m, abs);
        if (err == 0)
            err = shmi_key_lock_slow(k, abs, key, out);
        shmi_mon_finish(&k->m);
    }
    if (err != 0)
        memset(out, 0, sizeof *out);
    return err;
}
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_key_lock(m->impl, key, 0, out));
}
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    memset(out, 0, sizeof *out);
    return SHMI_TELL(err != 0 ? err : shmi_key_lock(m->impl, key, ns, out));
}
/* The slow part of trylock. The caller has the queue lock, and the call releases it. */
SHMI_FN int shmi_key_trylock_slow(struct shmi_key_bucket *k, uint64_t key, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_key_entry e = shmi_key_find(k, key), was;
    struct shmi_wakes b;
    uint64_t off;
    shmi_node *n;
    int err = 0;
    shmi_wakes_init(&b);
    if (e.hold != NULL) {
        shmi_key_look_at(k, &b, key);
        e = shmi_key_find(k, key);
    }
    if (e.hold != NULL) {
        uint64_t h = shmi_get(e.hold);
        err = shmi_key_fail(m, "multilock.trylock", key, shmi_hold_result(h), shmi_hold_died(h));
        if (err == 0)
            err = EBUSY;
    } else {
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        if (e.hold != NULL) {
            shmi_key_take(k, e, key, out);
        } else {
            err = shmi_claim_node(m->a, &off, &n);
            if (err == 0) {
                out->in = k;
                out->serial = shmi_serial_of(k);
                out->key = key;
                out->hold = shmi_key_new_hold(k, SHMI_kindHeld);
                shmi_key_spill(k, off, n, key, out->hold);
            }
        }
    }
    shmi_mon_leave(m, &b);
    return err;
}
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    struct shmi_key_entry e;
    int err;
    memset(out, 0, sizeof *out);
    err = shmi_use(m->impl->a, "multilock.trylock");
    if (err == 0)
        err = shmi_multi_bucket(m->impl, key, &k);
    if (err != 0)
        return SHMI_TELL(err);
    if (shmi_key_biased(k, key, out))
        return 0;
    if (shmi_key_is_biased(k, key) || !shmi_mon_try_enter(&k->m))
        return SHMI_TELL(EBUSY);
    e = shmi_key_vacant(k, key);
    if (e.hold == NULL)
        return SHMI_TELL(shmi_key_trylock_slow(k, key, out));
    shmi_key_take(k, e, key, out);
    shmi_mon_leave(&k->m, NULL);
    return 0;
}

int shmsync_multilock_unlock(const shmsync_hold *hold)
{
    SHMI_BEGIN();
    struct shmi_key_bucket *k = hold->in;
    uint64_t h = hold->hold;
    struct shmi_key_entry e;
    struct shmi_wakes b;
    int err;
    if (k == NULL)
        return shmi_fail(EPERM, "multilock.unlock", NULL, "the hold holds nothing");
    if (!shmi_is_open(k, hold->serial))
        return SHMI_TELL(shmi_closed(__func__));
    if (shmi_hold_kind(h) == SHMI_keyBiased) {
        if (shmi_self(k->m.a) == shmi_hold_name(h) && shmi_cas64(hold->at, h, h + SHMI_HOLD_UNLOCK)) {
            SHMSYNC_CRASHPOINT("multilock.unlock.biased");
            return 0;
        }
        h &= ~SHMI_HOLD_FAST; /* the hold was claimed */
    }
    err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    /* The hold belongs to this key, because no other hold has its stamp. */
    if (hold->at != NULL && shmi_get(hold->at) == h && shmi_get(hold->at + 1) == 0) {
        shmi_put(hold->at, h + SHMI_HOLD_FREE);
        shmi_mon_leave(&k->m, NULL);
        return 0;
    }
    e = shmi_key_find(k, hold->key);
    if (e.hold == NULL || shmi_get(e.hold) != h) {
        h = e.hold != NULL ? shmi_get(e.hold) : 0;
        shmi_mon_leave(&k->m, NULL);
        return shmi_fail(shmi_hold_valid(h) ? EPERM : EPROTO, "multilock.unlock", k->m.queueLock.called, "key %llu: hold %#llx", (unsigned long long)hold->key,
                         (unsigned long long)h);
    }
    shmi_put(e.hold, shmi_hold_passing(h));
    SHMSYNC_CRASHPOINT("multilock.unlock.passing");
    shmi_wakes_init(&b);
    shmi_key_resolve(k, &b, e);
    shmi_mon_leave(&k->m, &b);
    return 0;
}

/* ---- many keys ---- */

SHMI_FN int shmi_by_key(const void *x, const void *y)
{
    uint64_t p = ((const shmsync_hold *)x)->key, q = ((const shmsync_hold *)y)->key;
    return p < q ? -1 : p > q;
}
SHMI_FN int shmi_key_lockall(struct shmi_multilock *x, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, int64_t abs)
{
    size_t i, distinct = 0;
    int err;
    *held = 0;
    err = shmi_enter(x->a, "multilock.lock"); /* until the keys that were locked in vain are unlocked */
    if (err != 0) {
        memset(out, 0, n * sizeof *out);
        return err;
    }
    for (i = 0; i < n; i++) {
        memset(&out[i], 0, sizeof *out);
        out[i].key = keys[i];
    }
    if (n > 1)
        qsort(out, n, sizeof *out, shmi_by_key);
    for (i = 0; i < n; i++)
        if (i == 0 || out[i].key != out[distinct - 1].key)
            out[distinct++].key = out[i].key;
    for (i = 0; i < distinct && err == 0; i++) {
        err = shmi_key_lock(x, out[i].key, abs, &out[i]);
        if (err == 0)
            SHMSYNC_CRASHPOINT("multilock.lockall.partly");
    }
    if (err == 0) {
        *held = distinct;
    } else {
        for (i--; i > 0; i--)
            shmsync_multilock_unlock(&out[i - 1]); /* fails if this process closed the arena, and so holds nothing */
        memset(out, 0, n * sizeof *out);
    }
    shmi_exit(x->a);
    return err;
}
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_key_lockall(m->impl, keys, n, out, held, 0));
}
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    *held = 0;
    return SHMI_TELL(err != 0 ? err : shmi_key_lockall(m->impl, keys, n, out, held, ns));
}
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n)
{
    SHMI_BEGIN();
    int first = 0, err;
    while (n > 0) {
        err = shmsync_multilock_unlock(&h[--n]);
        if (first == 0)
            first = err;
    }
    return SHMI_TELL(first);
}

/* ---- after a death ---- */

/* Sets the hold of a key that this process recovers to next. */
SHMI_FN int shmi_key_end_recover(struct shmi_key_bucket *k, uint64_t key, uint64_t h, uint64_t next)
{
    struct shmi_key_entry e;
    struct shmi_wakes b;
    int err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return err;
    e = shmi_key_find(k, key);
    if (e.hold == NULL || shmi_get(e.hold) != h) {
        shmi_mon_leave(&k->m, NULL);
        return shmi_fail(EPROTO, "multilock.recover", k->m.queueLock.called, "key %llu was overwritten", (unsigned long long)key);
    }
    shmi_put(e.hold, next);
    shmi_wakes_init(&b);
    shmi_key_resolve(k, &b, e);
    shmi_mon_leave(&k->m, &b);
    return 0;
}
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    shmsync_hold hold;
    int err = shmi_multi_bucket(m->impl, key, &k);
    if (repair == NULL && err == 0)
        err = shmi_fail(EINVAL, "multilock.recover", k->m.queueLock.called, "without a repair");
    while (err == 0) {
        struct shmi_key_entry e;
        uint64_t h;
        err = shmi_mon_enter(&k->m, 0);
        if (err != 0)
            break;
        e = shmi_key_find(k, key);
        h = e.hold != NULL ? shmi_get(e.hold) : 0;
        if ((shmi_hold_kind(h) == SHMI_kindOwnerDead && shmi_hold_name(h) != 0) || shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE) {
            shmi_participant_id died = shmi_hold_died(h);
            uint64_t next = shmi_make_hold(SHMI_kindNotRecoverable, 0, died);
            int failed;
            if (shmi_hold_kind(h) == SHMI_kindOwnerDead && !shmi_gone(k->m.a, died)) {
                shmi_mon_leave(&k->m, NULL);
                err = shmi_await_gone64(k->m.a, died, e.hold, h, "multilock.recover", k->m.queueLock.called, 0);
                continue;
            }
            h = shmi_key_new_hold(k, SHMI_kindRecovering);
            shmi_put(e.hold, h);
            SHMSYNC_CRASHPOINT("multilock.recover.taken");
            shmi_mon_leave(&k->m, NULL);
            failed = shmi_call_repair(repair, arg);
            if (failed == 0) {
                SHMSYNC_CRASHPOINT("multilock.recover.repaired");
                next = shmi_hold_passing(h);
            }
            err = shmi_key_end_recover(k, key, h, next);
            return SHMI_TELL(err != 0 || failed == 0 ? err : shmi_fail_who(k->m.a, ENOTRECOVERABLE, "multilock.recover", k->m.queueLock.called, died));
        }
        err = shmi_key_lock_slow(k, 0, key, &hold);
        if (err == 0)
            return SHMI_TELL(shmsync_multilock_unlock(&hold));
        if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
            err = 0;
    }
    return SHMI_TELL(err);
}
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    struct shmi_key_walk v;
    struct shmi_key_entry e;
    uint64_t h = 0, now;
    int err = shmi_use(m->impl->a, "multilock.state");
    if (err == 0)
        err = shmi_multi_bucket(m->impl, key, &k);
    if (err != 0)
        return SHMI_TELL(err);
    for (v = shmi_walk_keys(k, 1); shmi_next_key(k, &v, &e);) {
        now = shmi_get(e.hold);
        if (!shmi_hold_free(now) && shmi_get(e.key) == key)
            h = now;
    }
    if (h == 0 || shmi_hold_kind(h) == SHMI_keyBiased)
        return 0;
    return SHMI_TELL(shmi_key_fail(&k->m, "multilock.state", key, shmi_hold_result(h), shmi_hold_died(h)));
}

/* Whether a bucket contains nothing that a death could have left. */
SHMI_FN int shmi_bucket_quiet(shmi_multilock_bucket *w)
{
    uint32_t i;
    if (shmi_ld32(&w->mon.queueLock.owner) != 0 || shmi_ld32(&w->mon.queueLock.starving) != 0 || shmi_get(&w->spilled) != 0)
        return 0;
    for (i = 0; i < SHMI_multiInline; i++)
        if (!shmi_hold_free(shmi_get(&w->entries[3 * i + 1])))
            return 0;
    return 1;
}
SHMI_FN shmi_multilock_bucket *shmi_bucket_words(struct shmi_multilock *x, uint32_t i)
{
    return (shmi_multilock_bucket *)shmi_ptr(x->a, shmi_bucket_at(&x->o, i), sizeof(shmi_multilock_bucket), 8);
}
/* Takes back what dead has. Each wait is for a key that has an entry, so a quiet bucket has nothing of dead. */
SHMI_FN void shmi_repair_multilock(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    uint32_t i;
    if (!shmi_multi_shape(&x, a, o))
        return;
    for (i = 0; i < UINT32_C(1) << x.log; i++)
        if (!shmi_bucket_quiet(shmi_bucket_words(&x, i))) {
            shmi_bucket_init(&k, &x, i);
            shmi_mon_repair(&k.m, dead);
        }
}
SHMI_FN void shmi_wake_multilock(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_multilock x;
    uint32_t i;
    if (!shmi_multi_shape(&x, a, o))
        return;
    for (i = 0; i < UINT32_C(1) << x.log; i++)
        shmi_mutex_wake_words(a, &shmi_bucket_words(&x, i)->mon.queueLock, owed);
}
