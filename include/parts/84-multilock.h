
/* ---- MultiLock: prims/multilock*.go in C, docs/design/0059-multilock-without-a-lock.md ----
 *
 * A bucket has a commit word and entries. An entry is a small lock for one key: see 74-recordlock.h. The hold word of
 * an entry is a recorded word. Its value consists of a kind and an ID:
 *
 *     kind           ID    meaning
 *     biased         0     free and open
 *     biased         n     held by n and open
 *     held           0     free and closed
 *     held           n     held by n and closed
 *     reserved       n     granted to n by a record; held when n has copied the tag of this word to the field accepted
 *     ownerDead      n     n died while it held the key
 *     recovering     n     n is recovering the key
 *     notRecoverable n     a repair failed after the death of n
 *
 * The tag of the word identifies one hold of the key. A lock by CAS adds 1 to the tag, and so does a record that
 * changes the word. An unlock by CAS, and a CAS that closes the word, keep the tag. A record opens the word only
 * if no process waits for the key, and only together with a change that frees the key or gives it to a new holder. */

/* The words that records change, besides those of the queue. A record lists them in this order. */
enum { SHMI_multiKeyLow = SHMI_rqOwnKinds, SHMI_multiKeyHigh, SHMI_multiHold };
/* SHMI_multiInline: the number of entries in a bucket itself. SHMI_multiAdded: the number of entries in a block that
 * was added to a bucket. */
enum { SHMI_multiInline = 3, SHMI_multiAdded = 4, SHMI_multiLogDefault = 5, SHMI_multiLogMost = 16, SHMI_multiPartShift = 48, SHMI_multiTableLeast = 15 };
#define SHMI_MULTI_HASH UINT64_C(0x9e3779b97f4a7c15)

/* An entry, and the index by which records name it. If e is NULL, there is none. */
struct shmi_key_entry {
    shmi_multilock_entry *e;
    uint32_t index;
};

/* What this process has in its own memory for a bucket. */
struct shmi_key_bucket {
    struct shmi_rq q; /* first, so that a pointer to q also points to the bucket */
    struct shmi_multilock *of;
    shmi_multilock_bucket *w;
    uint32_t number;
    shmi_multilock_entry *focus; /* the entry whose queue was chosen last. Guarded by: the private lock */
    /* The field table has the blocks of the bucket that this process knows, the oldest first. The high half of learned
     * is the number of these blocks. The low half is a value of the word objRecords: the blocks that were on the list
     * of the object at this value are all in the table. A thread loads learned before table, so its table has at least
     * that number of blocks.
     *
     * In a handle, the place behind the last block of a table points to the table that it replaced. learned and table
     * are atomic. */
    uint64_t learned;
    shmi_multilock_block **table;
    uint32_t learning; /* not 0: a thread is changing the table. Atomic. */
};

struct shmi_multilock {
    shmsync_arena *a;
    shmi_object o;
    shmi_multilock_head *w;
    int release;            /* the policy is SHMSYNC_POLICY_RELEASE */
    int settled;            /* the record of the predecessor in the slot has been carried out, if necessary. Guarded by: the private lock */
    uint32_t log;           /* logarithm of the number of buckets */
    unsigned char *own;     /* own and known: as in shmi_rq */
    unsigned char **known;
    /* the data of this process for each bucket; NULL: this process has not used the bucket. Atomic. The array is NULL
     * in a reaper without a handle */
    struct shmi_key_bucket **all;
    /* Only in a reaper without a handle: the table has all blocks of the object, sorted by their buckets. head is the
     * start of the list of blocks that the reaper has read. */
    uint32_t head;
    size_t n;
    shmi_multilock_block **table;
};

/* ---- The hold word ---- */

SHMI_FN uint32_t shmi_key_state(const shmi_multilock_entry *e) { return shmi_recorded_value(&e->hold); }
SHMI_FN int shmi_key_valid(uint32_t s) { return shmi_state_valid(s, 1); }
SHMI_FN int shmi_key_refuses(uint32_t s) { return shmi_state_refuses(s, 1); }
SHMI_FN int shmi_key_free(uint32_t s) { return s == 0 || s == SHMI_FAIR_OPEN; }
SHMI_FN int shmi_key_accepted(const shmi_multilock_entry *e, uint64_t w) { return shmi_state_accepted(&e->accepted, w); }
SHMI_FN void shmi_key_shut(shmi_multilock_entry *e) { shmi_state_shut(&e->hold, 1); }
SHMI_FN int shmi_key_has(const shmi_multilock_entry *e, uint64_t key)
{
    return shmi_recorded_value(&e->keyLow) == (uint32_t)key && shmi_recorded_value(&e->keyHigh) == (uint32_t)(key >> 32);
}
SHMI_FN uint64_t shmi_key_of(const shmi_multilock_entry *e)
{
    return (uint64_t)shmi_recorded_value(&e->keyHigh) << 32 | shmi_recorded_value(&e->keyLow);
}
/* Returns the error of a call for a key in the state s, or 0 if s causes no error. */
SHMI_FN int shmi_key_refusal(struct shmi_multilock *x, const char *op, uint64_t key, uint32_t s)
{
    if (!shmi_key_valid(s))
        return shmi_fail(EPROTO, op, shmi_called(&x->o), "key %llu: state %#x", (unsigned long long)key, s);
    if (shmi_owner_kind(s) == SHMI_kindOwnerDead)
        return shmi_fail_who(x->a, EOWNERDEAD, op, shmi_called(&x->o), shmi_owner_name(s));
    if (shmi_owner_kind(s) == SHMI_kindNotRecoverable)
        return shmi_fail_who(x->a, ENOTRECOVERABLE, op, shmi_called(&x->o), shmi_owner_name(s));
    return 0;
}

/* ---- Buckets and entries ---- */

SHMI_FN uint32_t shmi_bucket_of(uint64_t key, uint32_t log) { return (uint32_t)((key ^ key >> 32) * SHMI_MULTI_HASH >> 1 >> (63 - log)); }
/* The size of the body. In an arena that counts operations, the counts follow the buckets. */
SHMI_FN uint64_t shmi_multi_bytes(shmsync_arena *a, uint32_t log)
{
    return sizeof(shmi_multilock_head) + ((uint64_t)sizeof(shmi_multilock_bucket) << log) + (a->geo.counted ? 64 : 0);
}
SHMI_FN shmi_multilock_bucket *shmi_bucket_words(struct shmi_multilock *x, uint32_t i)
{
    return (shmi_multilock_bucket *)shmi_ptr(x->a, x->o.body + sizeof(shmi_multilock_head) + (uint64_t)i * sizeof(shmi_multilock_bucket), sizeof(shmi_multilock_bucket), 8);
}
SHMI_FN struct shmi_key_bucket *shmi_bucket_of_queue(struct shmi_rq *q) { return (struct shmi_key_bucket *)(void *)q; }

/* Returns entry i of those that lie in the bucket itself. */
SHMI_FN shmi_multilock_entry *shmi_key_inline(shmi_multilock_bucket *w, uint32_t i)
{
    return i == 0 ? &w->entry0 : i == 1 ? &w->entry1 : &w->entry2;
}
SHMI_FN shmi_multilock_block *shmi_key_block_in(struct shmi_key_bucket *k, const shmi_record_walk *v)
{
    return (shmi_multilock_block *)shmi_ptr(k->q.a, v->b.off, sizeof(shmi_multilock_block), 8);
}

SHMI_FN uint32_t shmi_key_list(struct shmi_key_bucket *k) { return shmi_ld32(shmi_u32(k->q.a, k->q.o.off + SHMI_objRecords)); }

/* A walk through the blocks of a bucket that are not in the table of this process, the latest first. */
typedef struct shmi_key_walk {
    shmi_record_walk v;
    uint32_t from, until; /* values of the word objRecords: from is the present one; the table has all blocks of the value until */
    uint32_t known;       /* number of blocks in the table */
    shmi_multilock_block *at;
} shmi_key_walk;
SHMI_FN void shmi_rewind_unknown(struct shmi_key_bucket *k, shmi_key_walk *i) { shmi_walk_records_from(&i->v, k->q.o.off, i->from, sizeof(shmi_multilock_block)); }
/* Begins the walk. If the table has all blocks, returns 0, and no walk begins. */
SHMI_FN int shmi_walk_unknown(struct shmi_key_bucket *k, shmi_key_walk *i)
{
    uint64_t learned = __atomic_load_n(&k->learned, __ATOMIC_ACQUIRE);
    i->from = shmi_key_list(k);
    i->until = (uint32_t)learned;
    i->known = (uint32_t)(learned >> 32);
    if (SHMI_LIKELY(i->from == i->until))
        return 0;
    shmi_rewind_unknown(k, i);
    return 1;
}
/* Whether the block that the walk has reached names a bucket of x. If not, a peer has overwritten the block, and the
 * function sets v->bad. */
SHMI_FN int shmi_block_has_bucket(const struct shmi_multilock *x, shmi_record_walk *v, uint32_t bucket)
{
    v->bad |= bucket >> x->log != 0;
    return !v->bad;
}
SHMI_FN int shmi_next_unknown(struct shmi_key_bucket *k, shmi_key_walk *i)
{
    while (shmi_next_added(k->q.a, &i->v, i->until)) {
        uint32_t bucket;
        i->at = shmi_key_block_in(k, &i->v);
        bucket = shmi_ld32(&i->at->bucket);
        if (!shmi_block_has_bucket(k->of, &i->v, bucket))
            return 0;
        if (bucket == k->number)
            return 1;
    }
    return 0;
}
/* Counts the blocks of the bucket. Returns 0 if the list is corrupt. */
SHMI_FN int shmi_count_blocks(struct shmi_key_bucket *k, uint32_t *blocks)
{
    shmi_key_walk i;
    int walks = shmi_walk_unknown(k, &i);
    *blocks = i.known;
    if (!walks)
        return 1;
    while (shmi_next_unknown(k, &i))
        ++*blocks;
    return !i.v.bad;
}
SHMI_FN shmi_multilock_block *shmi_known_block(struct shmi_key_bucket *k, uint32_t b) { return __atomic_load_n(&k->table, __ATOMIC_ACQUIRE)[b]; }
/* Block b of the bucket, counted from the oldest block; NULL if there is none. */
SHMI_FN shmi_multilock_block *shmi_key_block_at(struct shmi_key_bucket *k, uint32_t b)
{
    shmi_key_walk i;
    uint32_t n;
    int walks = shmi_walk_unknown(k, &i);
    if (SHMI_LIKELY(b < i.known))
        return shmi_known_block(k, b);
    if (!walks)
        return NULL;
    for (n = i.known; shmi_next_unknown(k, &i);)
        n++;
    if (i.v.bad || b >= n)
        return NULL;
    for (shmi_rewind_unknown(k, &i); shmi_next_unknown(k, &i);)
        if (--n == b)
            return i.at;
    return NULL;
}
/* The entry with the given index in a bucket; NULL if there is none. */
SHMI_FN shmi_multilock_entry *shmi_key_at(struct shmi_key_bucket *k, uint32_t index)
{
    shmi_multilock_block *b;
    if (index < SHMI_multiInline)
        return shmi_key_inline(k->w, index);
    b = shmi_key_block_at(k, (index - SHMI_multiInline) / SHMI_multiAdded);
    return b != NULL ? &b->entries[(index - SHMI_multiInline) % SHMI_multiAdded] : NULL;
}
/* The number of entries of the bucket; 0 if the list is corrupt. */
SHMI_FN uint32_t shmi_key_entries(struct shmi_key_bucket *k)
{
    uint32_t blocks;
    return shmi_count_blocks(k, &blocks) ? (uint32_t)SHMI_multiInline + (uint32_t)SHMI_multiAdded * blocks : 0;
}
/* A walk through the entries of a bucket. It may miss a block that is added meanwhile. */
typedef struct shmi_entry_walk {
    uint32_t next, n;
    struct shmi_key_entry at;
} shmi_entry_walk;
SHMI_FN void shmi_walk_entries(struct shmi_key_bucket *k, shmi_entry_walk *v)
{
    v->next = 0;
    v->n = shmi_key_entries(k);
    if (v->n == 0)
        v->n = SHMI_multiInline; /* if the list is corrupt, walk only through the entries in the bucket itself */
}
SHMI_FN int shmi_next_entry(struct shmi_key_bucket *k, shmi_entry_walk *v)
{
    if (v->next == v->n)
        return 0;
    v->at.index = v->next++;
    v->at.e = shmi_key_at(k, v->at.index);
    return v->at.e != NULL;
}

/* Finds the first entry with a key among those of a block. */
SHMI_FN int shmi_key_in_block(shmi_multilock_block *b, uint32_t number, uint64_t key, struct shmi_key_entry *at)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiAdded; i++)
        if (shmi_key_has(&b->entries[i], key)) {
            at->e = &b->entries[i];
            at->index = (uint32_t)SHMI_multiInline + (uint32_t)SHMI_multiAdded * number + i;
            return 1;
        }
    return 0;
}
/* Finds the first entry with a key. Returns 0 if there is none; then at->e is NULL. If the list of blocks is corrupt,
 * *bad is 1. In memory that was never used, several entries have the key 0. All calls take the first of them.
 *
 * A call that makes a change calls this function after shmi_rq_begin. A block joins the list before any record stores a
 * key in it. So if the change takes effect, the call has searched all blocks that may have the key. */
SHMI_FN int shmi_key_find(struct shmi_key_bucket *k, uint64_t key, struct shmi_key_entry *at, int *bad)
{
    shmi_key_walk i;
    uint32_t n, met = 0;
    int walks = shmi_walk_unknown(k, &i);
    *bad = 0;
    at->e = NULL;
    for (n = 0; n < SHMI_multiInline; n++)
        if (shmi_key_has(shmi_key_inline(k->w, n), key)) {
            at->e = shmi_key_inline(k->w, n);
            at->index = n;
            return 1;
        }
    for (n = 0; n < i.known; n++)
        if (shmi_key_in_block(shmi_known_block(k, n), n, key, at))
            return 1;
    if (!walks)
        return 0;
    for (; shmi_next_unknown(k, &i); met++)
        shmi_key_in_block(i.at, met, key, at); /* the walk begins with the latest block, so its last match is the first entry with the key */
    if (i.v.bad) {
        *bad = 1;
        at->e = NULL;
    }
    if (at->e != NULL) {
        uint32_t place = (at->index - SHMI_multiInline) / SHMI_multiAdded; /* the block of the entry, counted from the latest block */
        at->index = (uint32_t)SHMI_multiInline + (uint32_t)SHMI_multiAdded * (i.known + met - 1 - place) + (at->index - SHMI_multiInline) % SHMI_multiAdded;
    }
    return at->e != NULL;
}

/* The number of blocks for which a table has room. */
SHMI_FN size_t shmi_table_room(shmi_multilock_block **table) { return table != NULL ? shmi_head_of(table)->size / sizeof *table - 1 : 0; }
/* Makes room for more blocks in the table of a handle. The earlier table stays in memory, because calls that are under
 * way may still read it. */
SHMI_FN int shmi_grow_table(struct shmi_key_bucket *k, size_t blocks)
{
    shmi_multilock_block **was = k->table, **table;
    size_t room = SHMI_multiTableLeast;
    if (blocks <= shmi_table_room(was))
        return 1;
    while (room < blocks)
        room = 2 * room + 1; /* few sizes, because each size has spare memory of its own */
    table = (shmi_multilock_block **)shmi_new_thing((room + 1) * sizeof *table);
    if (table == NULL)
        return 0;
    if (was != NULL)
        memcpy(table, was, shmi_table_room(was) * sizeof *table);
    table[room] = (shmi_multilock_block *)(void *)was;
    __atomic_store_n(&k->table, table, __ATOMIC_RELEASE);
    return 1;
}
/* Adds the blocks that other calls have pushed on the list to the table of the bucket, so that calls need not walk
 * through the list. The caller must not have the private lock: this function may allocate memory, and other threads
 * would have to wait for it. */
SHMI_FN void shmi_multi_catch_up(struct shmi_rq *q)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    uint64_t most = q->a->geo.chunk_count * SHMI_blockWords;
    uint32_t n = 0, all;
    shmi_key_walk i;
    if (k->of->all == NULL || !shmi_walk_unknown(k, &i) || __atomic_exchange_n(&k->learning, 1, __ATOMIC_ACQUIRE) != 0)
        return; /* nothing is new, or another thread is adding the blocks */
    if (__atomic_load_n(&shmi_head_of(k)->serial, __ATOMIC_ACQUIRE) != 0 && shmi_walk_unknown(k, &i)) {
        while (shmi_next_unknown(k, &i))
            n++;
        all = i.known + n;
        if (!i.v.bad && n <= most && all <= most && shmi_grow_table(k, all)) {
            for (shmi_rewind_unknown(k, &i); n > 0 && shmi_next_unknown(k, &i);)
                k->table[i.known + --n] = i.at;
            if (n == 0)
                __atomic_store_n(&k->learned, (uint64_t)all << 32 | i.from, __ATOMIC_RELEASE);
        }
    }
    __atomic_store_n(&k->learning, 0, __ATOMIC_RELEASE);
}

/* Chooses the queue of an entry. From now on, the functions of recorded queues work on this queue. */
SHMI_FN void shmi_key_focus(struct shmi_key_bucket *k, struct shmi_key_entry at)
{
    k->focus = at.e;
    k->q.first = &at.e->first;
    k->q.last = &at.e->last;
    k->q.queue = at.index;
    k->q.chosen = shmi_key_of(at.e);
}
SHMI_FN void shmi_multi_turn_to(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    struct shmi_key_entry at;
    int bad;
    if (shmi_key_find(k, shmi_ld64(&w.n->wanted), &at, &bad))
        shmi_key_focus(k, at);
    else
        x->torn = 1; /* not consistent: the key of a queued wait always has an entry */
}

SHMI_FN uint64_t *shmi_multi_word_at(struct shmi_rq *q, uint32_t kind, uint32_t where)
{
    shmi_multilock_entry *e = shmi_key_at(shmi_bucket_of_queue(q), where);
    if (e == NULL)
        return NULL;
    switch (kind) {
    case SHMI_rqFirst:
        return &e->first;
    case SHMI_rqLast:
        return &e->last;
    case SHMI_multiKeyLow:
        return &e->keyLow;
    case SHMI_multiKeyHigh:
        return &e->keyHigh;
    case SHMI_multiHold:
        return &e->hold;
    }
    return NULL;
}
SHMI_FN int shmi_multi_corrupt(struct shmi_rq *q, const char *how) { return shmi_fail(EPROTO, "multilock.change", shmi_called(&q->o), "%s", how); }

/* Takes, by one CAS, a key that is free and open. Returns 0 if that is not possible. Reads the hold word before the
 * key. A record that changes the key of an entry also changes the tag of the hold word. So if the CAS succeeds, the
 * entry still has the key. */
SHMI_FN int shmi_key_lock_open(struct shmi_key_bucket *k, shmi_multilock_entry *e, uint64_t key, shmsync_hold *out)
{
    uint64_t w = shmi_ld64(&e->hold), held = SHMI_RECORDED(SHMI_FAIR_OPEN | k->q.a->self, (uint32_t)w + 1);
    if (w >> 32 != SHMI_FAIR_OPEN || !shmi_key_has(e, key) || !shmi_cas64(&e->hold, w, held))
        return 0;
    SHMSYNC_CRASHPOINT("multilock.lock.taken");
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = &e->keyLow;
    out->key = key;
    out->hold = (uint32_t)held;
    return 1;
}
SHMI_FN int shmi_key_lock_fast(struct shmi_key_bucket *k, uint64_t key, shmsync_hold *out)
{
    uint32_t n, i, known = (uint32_t)(__atomic_load_n(&k->learned, __ATOMIC_ACQUIRE) >> 32);
    for (i = 0; i < SHMI_multiInline; i++)
        if (shmi_key_lock_open(k, shmi_key_inline(k->w, i), key, out))
            return 1;
    for (n = 0; n < known; n++)
        for (i = 0; i < SHMI_multiAdded; i++)
            if (shmi_key_lock_open(k, &shmi_known_block(k, n)->entries[i], key, out))
                return 1;
    return 0;
}
/* Unlocks the hold h if the hold word is open. Returns 0 if the word is closed, or if this process does not have the
 * hold h. */
SHMI_FN int shmi_key_unlock_fast(struct shmi_key_bucket *k, const shmsync_hold *h)
{
    shmi_multilock_entry *e = (shmi_multilock_entry *)(void *)h->at;
    uint64_t w = SHMI_RECORDED(SHMI_FAIR_OPEN | k->q.a->self, (uint32_t)h->hold);
    if (!shmi_cas64(&e->hold, w, SHMI_RECORDED(SHMI_FAIR_OPEN, (uint32_t)h->hold)))
        return 0;
    SHMSYNC_CRASHPOINT("multilock.unlock.freed");
    return 1;
}

/* ---- The rules. They concern the entry whose queue was chosen. The caller has the private lock. ---- */

SHMI_FN struct shmi_record_lock shmi_key_lock_of(struct shmi_key_bucket *k)
{
    struct shmi_record_lock l = {&k->q, &k->focus->hold, &k->focus->accepted, NULL, SHMI_multiHold, k->q.queue, k->of->release, 1};
    return l;
}
SHMI_FN void shmi_key_set(struct shmi_key_bucket *k, struct shmi_rq_change *x, uint32_t s)
{
    struct shmi_record_lock l = shmi_key_lock_of(k);
    shmi_lock_set(&l, x, s);
}
/* Returns the tag that the word w gets when the change x takes effect. x changes w. */
SHMI_FN uint32_t shmi_key_new_tag(const struct shmi_rq_change *x, const uint64_t *w)
{
    uint32_t i;
    for (i = 0; i < x->n; i++)
        if (x->word[i] == w)
            return (uint32_t)x->was[i] + 1;
    return 0;
}
SHMI_FN void shmi_multi_remove(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome)
{
    struct shmi_record_lock l = shmi_key_lock_of(shmi_bucket_of_queue(q));
    shmi_lock_remove(&l, x, w, outcome);
}
SHMI_FN shmi_participant_id shmi_key_pass(struct shmi_key_bucket *k, struct shmi_rq_change *x)
{
    struct shmi_record_lock l = shmi_key_lock_of(k);
    return shmi_lock_pass(&l, x);
}
SHMI_FN int shmi_key_serve(struct shmi_key_bucket *k, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_record_lock l = shmi_key_lock_of(k);
    return shmi_lock_serve(&l, x, b);
}
SHMI_FN int shmi_multi_serve_chosen(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b) { return shmi_key_serve(shmi_bucket_of_queue(q), x, b); }
/* Serves the queue of each key of the bucket. If a peer has overwritten the queue of one key, or other processes change
 * the bucket all the time while the call serves that queue, the call goes on with the other keys. */
SHMI_FN int shmi_multi_serve(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    int err = shmi_rq_begin(q, x, b);
    shmi_entry_walk v;
    if (err != 0)
        return err;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);)
        if (shmi_recorded_value(&v.at.e->first) != 0) {
            shmi_key_focus(k, v.at);
            shmi_key_serve(k, x, b);
        }
    return 0;
}

SHMI_FN int shmi_key_reap(struct shmi_key_bucket *k, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_record_lock l = shmi_key_lock_of(k);
    return shmi_lock_reap(&l, x, b);
}
/* Takes the waits of dead participants off the queues of all keys of the bucket, so that no record grants them a key
 * any more. Then takes back the keys of dead participants. If a peer has overwritten the queue of one key, only calls
 * for this key find the damage, and the others go on. If other processes change the bucket all the time, the reap may
 * give up one key. It then goes on with the next key, and sets the field unreaped. */
SHMI_FN int shmi_multi_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    shmi_entry_walk v;
    int err;
    shmi_st32(&q->deaths, shmi_deaths(q->a));
    shmi_st32(&q->unreaped, 0);
    err = shmi_rq_begin(q, x, b); /* completes the last record, by which a wait of a dead participant may have joined a queue */
    if (err != 0)
        return err;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);)
        if (shmi_recorded_value(&v.at.e->first) != 0) {
            shmi_key_focus(k, v.at);
            shmi_rq_remove_dead(q, x, b);
        }
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);) {
        uint32_t s = shmi_key_state(v.at.e);
        if (!shmi_fair_taken(s) || !shmi_rq_absent(q, shmi_owner_name(s)))
            continue;
        shmi_key_focus(k, v.at);
        shmi_key_reap(k, x, b);
    }
    return 0;
}
/* Whether the state s names a dead participant that holds the key, or to which the key was granted. */
SHMI_FN int shmi_state_dead(struct shmi_key_bucket *k, uint32_t s)
{
    return shmi_fair_taken(s) && shmi_dead(k->q.a, shmi_owner_name(s));
}
/* Whether the participant that holds the key of an entry, or to which the key was granted, is dead. */
SHMI_FN int shmi_key_dead(struct shmi_key_bucket *k, const shmi_multilock_entry *e) { return shmi_state_dead(k, shmi_key_state(e)); }
/* Whether the holder of a key of the bucket is dead while threads wait for the key. Other keys are left out, because
 * the bucket may have thousands of them. A call for a key checks the holder of this key itself. */
SHMI_FN int shmi_multi_dead(struct shmi_rq *q)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    shmi_entry_walk v;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);)
        if (shmi_recorded_value(&v.at.e->first) != 0 && shmi_key_dead(k, v.at.e))
            return 1;
    return 0;
}
/* Stores, for tools, the time since which the first wait for each key has been the first: see shmi_rq_date_first. */
SHMI_FN void shmi_multi_also_check(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = shmi_bucket_of_queue(q);
    shmi_entry_walk v;
    (void)x;
    (void)b;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);)
        if (shmi_recorded_value(&v.at.e->first) != 0) {
            shmi_key_focus(k, v.at);
            shmi_rq_date_first(q);
        }
}

SHMI_FN void shmi_bucket_init(struct shmi_key_bucket *k, struct shmi_multilock *x, uint32_t i);
/* Carries out the record that the predecessor in the slot has left, if the commit word of a bucket still names this
 * record. After that, this participant writes its own records to the same memory. */
SHMI_FN void shmi_multi_before(struct shmi_rq *q, struct shmi_wakes *b)
{
    struct shmi_multilock *x = shmi_bucket_of_queue(q)->of;
    struct shmi_key_bucket other;
    shmi_rq_record r;
    uint64_t bucket, c;
    if (SHMI_LIKELY(x->settled))
        return;
    x->settled = 1;
    if (!shmi_rq_record_of(q, q->a->my_slot, &r))
        return;
    bucket = shmi_ld64(r.head) >> SHMI_multiPartShift;
    if (bucket >> x->log != 0)
        return;
    shmi_bucket_init(&other, x, (uint32_t)bucket);
    c = shmi_ld64(other.q.commit);
    if ((c & ((1u << SHMI_RQ_SLOT_BITS) - 1)) == q->a->my_slot)
        shmi_rq_complete(&other.q, c, b); /* an error here concerns only the bucket of the record */
}
static const shmi_rq_kind shmi_multi_kind = {
    sizeof(shmi_fairmutex_record), offsetof(shmi_fairmutex_record, entries), 1, NULL, shmi_multi_word_at, shmi_multi_corrupt,
    shmi_multi_remove, shmi_multi_serve, shmi_multi_reap, shmi_multi_dead,
};
static const shmi_rq_parts shmi_multi_parts = {shmi_multi_word_at, shmi_multi_turn_to, shmi_multi_catch_up, shmi_multi_serve_chosen, shmi_multi_before};

/* ---- Handles, and what reapers use without a handle ---- */

SHMI_FN void shmi_bucket_point(struct shmi_key_bucket *k, uint32_t i)
{
    struct shmi_key_entry first = {NULL, 0};
    k->number = i;
    k->w = shmi_bucket_words(k->of, i);
    k->q.commit = &k->w->commit;
    k->q.part = (uint64_t)i << SHMI_multiPartShift;
    k->q.completed = 0;
    first.e = &k->w->entry0;
    shmi_key_focus(k, first);
}
SHMI_FN void shmi_bucket_init(struct shmi_key_bucket *k, struct shmi_multilock *x, uint32_t i)
{
    memset(k, 0, sizeof *k);
    k->of = x;
    k->q.a = x->a;
    k->q.o = x->o;
    k->q.kind = &shmi_multi_kind;
    k->q.parts = &shmi_multi_parts;
    k->q.also_check = shmi_multi_also_check;
    k->q.own = x->own;
    k->q.known = x->known;
    k->q.spin = &x->w->spin;
    k->q.pays = &x->w->pays;
    k->q.last_cpu = &x->w->lastCPU;
    shmi_rq_use_lock(&k->q);
    shmi_bucket_point(k, i);
}
/* Makes the data of this process for a bucket that this process uses for the first time. */
SHMI_COLD int shmi_multi_make_bucket(struct shmi_multilock *x, uint32_t i, struct shmi_key_bucket **out)
{
    struct shmi_key_bucket *k, *other = NULL;
    int err = shmi_enter(x->a, "multilock.lock");
    if (err != 0)
        return err;
    k = (struct shmi_key_bucket *)shmi_new_thing(sizeof *k);
    if (k == NULL) {
        err = shmi_fail(ENOMEM, "multilock.lock", shmi_called(&x->o), "%s", "");
    } else {
        shmi_bucket_init(k, x, i);
        if (!__atomic_compare_exchange_n(&x->all[i], &other, k, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE)) {
            shmi_free_thing(k);
            k = other;
        }
    }
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
    uint32_t n;
    if (o->size < shmi_multi_bytes(a, 0))
        return 0;
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    x->w = (shmi_multilock_head *)shmi_ptr(a, o->body, sizeof *x->w, 8);
    x->release = (shmi_ld32(&x->w->policy) & 0xff) == SHMI_POLICY_RELEASE;
    n = shmi_ld32(&x->w->buckets) & 0xff;
    x->log = n != 0 ? n - 1 : (uint32_t)SHMI_multiLogDefault;
    return x->log <= SHMI_multiLogMost && o->size >= shmi_multi_bytes(a, x->log);
}
/* Ends a handle. Calls that are under way may still read its memory, so the memory is kept for later handles. */
SHMI_FN void shmi_multi_end(void *handle)
{
    struct shmi_multilock *x = (struct shmi_multilock *)handle;
    uint32_t i;
    for (i = 0; x->all != NULL && i < UINT32_C(1) << x->log; i++) {
        struct shmi_key_bucket *k = __atomic_load_n(&x->all[i], __ATOMIC_ACQUIRE);
        shmi_multilock_block **t, **before;
        if (k == NULL)
            continue;
        for (t = __atomic_load_n(&k->table, __ATOMIC_ACQUIRE); t != NULL; t = before) {
            before = (shmi_multilock_block **)(void *)t[shmi_table_room(t)];
            shmi_free_thing(t);
        }
        shmi_free_thing(k);
    }
    if (x->all != NULL)
        shmi_free_thing(x->all);
    if (x->known != NULL)
        shmi_free_thing(x->known);
    shmi_free_thing(x);
}
SHMI_FN void *shmi_multi_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_multilock *x;
    shmi_off record;
    (void)arg;
    if (shmi_slot_record(a, o, sizeof(shmi_fairmutex_record), &record) != 0)
        return NULL;
    x = (struct shmi_multilock *)shmi_new_thing(sizeof *x);
    if (x == NULL)
        return NULL;
    if (!shmi_multi_shape(x, a, o)) { /* a peer has changed the number of buckets since shmi_multi_handle read it */
        shmi_fail(EPROTO, "multilock.open", shmi_called(o), "its body has no room for its buckets");
        shmi_multi_end(x);
        return NULL;
    }
    x->own = (unsigned char *)shmi_ptr(a, record, sizeof(shmi_fairmutex_record), 8);
    x->known = shmi_rq_new_known(a);
    x->all = (struct shmi_key_bucket **)shmi_new_thing(sizeof *x->all << x->log);
    if (x->known == NULL || x->all == NULL) {
        shmi_multi_end(x);
        return NULL;
    }
    shmi_built_ends_with(a, o->off, shmi_multi_end);
    return x;
}
/* Sets *out to this process's handle on an object that has been opened. policy and log are the options that the caller
 * asks for. If log is -1, any number of buckets will do. */
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
    return SHMI_HAND_OUT(out, struct shmi_multilock *, shmi_share(a, o, shmi_multi_build, NULL));
}

typedef struct shmi_multi_spec {
    uint32_t policy, log, spin;
} shmi_multi_spec;
SHMI_FN void shmi_multi_fill(unsigned char *body, const void *arg)
{
    const shmi_multi_spec *s = (const shmi_multi_spec *)arg;
    shmi_multilock_head *head = (shmi_multilock_head *)(void *)body;
    head->policy = s->policy;
    head->buckets = s->log + 1;
    head->spin = s->spin;
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
    shmi_spec_of_kind(&spec, SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, name, shmi_multi_bytes(a, init.log));
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
    SHMI_BEGIN_AT(a, "multilock.open", out);
    shmi_object o;
    int err = shmi_object_at(a, off, "multilock.open", SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, shmi_multi_bytes(a, 0), &o);
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

/* ---- Locking ---- */

/* How an attempt to take a key ended. */
enum { SHMI_keyTaken, SHMI_keyQueued, SHMI_keyNotNow, SHMI_keyRefused, SHMI_keyNoRoom };
typedef struct shmi_key_result {
    int how;
    uint32_t why;                /* the state of the key; set with SHMI_keyRefused */
    shmi_multilock_entry *e;     /* the entry of the key; set with SHMI_keyTaken and SHMI_keyQueued */
    uint32_t tag;                /* the tag of the hold; set with SHMI_keyTaken */
} shmi_key_result;

/* Finds an entry that may get another key, because its own key is free and no process waits for it. Closes the hold
 * word of this entry. Each search begins at another entry, so that an entry keeps its key for some time. */
SHMI_FN int shmi_key_room(struct shmi_key_bucket *k, const struct shmi_rq_change *x, struct shmi_key_entry *at)
{
    uint32_t n = shmi_key_entries(k), i, begin;
    if (n == 0)
        return 0;
    begin = (uint32_t)((x->c >> SHMI_RQ_SLOT_BITS) % n);
    for (i = 0; i < n; i++) {
        at->index = (uint32_t)(((uint64_t)begin + i) % n);
        at->e = shmi_key_at(k, at->index);
        if (at->e == NULL || !shmi_key_free(shmi_key_state(at->e)) || shmi_recorded_value(&at->e->first) != 0)
            continue;
        shmi_key_shut(at->e);
        if (shmi_key_state(at->e) == 0 && shmi_recorded_value(&at->e->first) == 0)
            return 1;
    }
    return 0;
}
/* Adds to the change x: this process takes the key. If the chosen entry has another key, x also changes the key of the
 * entry. */
SHMI_FN void shmi_key_take_free(struct shmi_key_bucket *k, struct shmi_rq_change *x, uint64_t key, shmi_key_result *r)
{
    shmi_rq_set(x, SHMI_multiKeyLow, k->q.queue, &k->focus->keyLow, (uint32_t)key);
    shmi_rq_set(x, SHMI_multiKeyHigh, k->q.queue, &k->focus->keyHigh, (uint32_t)(key >> 32));
    shmi_key_set(k, x, k->q.a->self);
    r->e = k->focus;
    r->tag = shmi_key_new_tag(x, &k->focus->hold);
}
SHMI_FN int shmi_key_take_locked(struct shmi_key_bucket *k, uint64_t key, shmi_wait_node *wait_node, struct shmi_wakes *b, shmi_key_result *r)
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    int tidied = 0;
    r->how = SHMI_keyNotNow;
    for (;;) {
        /* The loop ends: each round follows a change by another call, or makes a change that can be made only once. */
        struct shmi_key_entry at;
        int takes, ok, bad, found, dead, err = shmi_rq_begin(q, &x, b);
        uint32_t s;
        if (err != 0)
            return err;
        found = shmi_key_find(k, key, &at, &bad);
        dead = found && shmi_key_dead(k, at.e);
        if (!tidied && (dead || shmi_rq_reap_due(q) || (found && shmi_recorded_value(&at.e->first) != 0))) {
            tidied = 1; /* a dead participant may have the key, or the first wait may still need its grant */
            if (dead || shmi_rq_reap_due(q)) {
                err = shmi_multi_reap(q, &x, b);
                if (err == 0)
                    err = shmi_multi_serve(q, &x, b);
            }
            if (err == 0 && found && shmi_key_has(at.e, key)) { /* false if the entry got another key during the reap */
                shmi_key_focus(k, at);
                err = shmi_key_serve(k, &x, b); /* reports damage of this queue */
            }
            if (err != 0)
                return err;
            continue;
        }
        if (!found) {
            if (bad)
                return q->kind->corrupt(q, "its list of slot records");
            if (!shmi_key_room(k, &x, &at)) {
                if (shmi_ld64(q->commit) != x.c)
                    continue;
                r->how = SHMI_keyNoRoom;
                return 0;
            }
            shmi_key_focus(k, at);
            takes = 1;
        } else {
            s = shmi_key_state(at.e);
            if (s == SHMI_FAIR_OPEN || (shmi_fair_is_open(s) && wait_node == NULL)) { /* while the key has a holder, a call that queues no wait does not close the word */
                shmsync_hold h;
                if (s == SHMI_FAIR_OPEN && shmi_key_lock_open(k, at.e, key, &h)) {
                    r->how = SHMI_keyTaken;
                    r->e = at.e;
                    r->tag = (uint32_t)h.hold;
                    return 0;
                }
                if (s == SHMI_FAIR_OPEN || shmi_ld64(q->commit) != x.c)
                    continue;
                return 0;
            }
            shmi_key_shut(at.e);
            shmi_key_focus(k, at);
            s = shmi_rq_get(&x, &at.e->hold);
            if (shmi_key_refuses(s)) {
                if (shmi_ld64(q->commit) != x.c)
                    continue;
                r->how = SHMI_keyRefused;
                r->why = s;
                return 0;
            }
            takes = s == 0 && shmi_rq_empty(q, &x);
        }
        if (takes)
            shmi_key_take_free(k, &x, key, r);
        else if (wait_node != NULL)
            shmi_rq_join(q, &x, wait_node);
        err = shmi_rq_end(q, &x, b, &ok);
        if (err == 0 && !ok)
            continue;
        if (takes && x.made) {
            SHMSYNC_CRASHPOINT("multilock.lock.taken");
            r->how = SHMI_keyTaken;
        } else if (wait_node != NULL && x.made) {
            r->how = SHMI_keyQueued;
            r->e = at.e;
        }
        return err;
    }
}
/* Takes the key. If that is not possible now, queues a wait in wait_node, which the caller has prepared. If wait_node
 * is NULL, queues nothing. If all entries of the bucket are in use, adds a block to the bucket. After an error, the
 * wait may be queued if r->how is SHMI_keyQueued. */
SHMI_FN int shmi_key_take(struct shmi_key_bucket *k, uint64_t key, shmi_wait_node *wait_node, shmi_key_result *r)
{
    for (;;) {
        /* A further round is needed only if this call has added a block, or if another call has pushed a block or a
         * slot record. If several calls find no room at the same time, only one of them adds a block. */
        uint32_t head = shmi_records_head(k->q.a, &k->q.o);
        struct shmi_wakes b;
        int err;
        shmi_multi_catch_up(&k->q);
        shmi_wakes_init(&b);
        shmi_rq_lock(&k->q);
        err = shmi_key_take_locked(k, key, wait_node, &b, r);
        shmi_rq_unlock(&k->q);
        shmi_rq_wake(&k->q, &b);
        if (err != 0 || r->how != SHMI_keyNoRoom)
            return err;
        err = shmi_add_block(k->q.a, &k->q.o, sizeof(shmi_multilock_block), k->number, head);
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("multilock.block.pushed");
    }
}
SHMI_FN void shmi_key_hold_of(struct shmi_key_bucket *k, uint64_t key, shmi_multilock_entry *e, uint32_t tag, shmsync_hold *out)
{
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = &e->keyLow;
    out->key = key;
    out->hold = tag;
}
/* Makes this process the holder of a key that was granted to one of its waits. A process that dies before this step
 * has not held the key. */
SHMI_FN int shmi_key_accept(struct shmi_key_bucket *k, uint64_t key, shmi_multilock_entry *e, shmsync_hold *out)
{
    uint64_t accepted = shmi_ld64(&e->accepted), w = shmi_ld64(&e->hold);
    if (w >> 32 != shmi_make_owner(SHMI_kindReserved, k->q.a->self) || !shmi_cas64(&e->accepted, accepted, SHMI_RECORDED(k->q.a->self, (uint32_t)w)))
        return shmi_fail(EPROTO, "multilock.lock", shmi_called(&k->q.o), "key %llu: state %#x", (unsigned long long)key, (uint32_t)(w >> 32));
    SHMSYNC_CRASHPOINT("multilock.lock.accepted");
    shmi_key_hold_of(k, key, e, (uint32_t)w, out);
    return 0;
}
/* Takes the key, or waits in its queue. The caller is within shmi_enter. */
SHMI_FN int shmi_key_arrive(struct shmi_key_bucket *k, const char *op, uint64_t key, int64_t abs, int try_, shmsync_hold *out)
{
    shmi_wait_node *wait_node;
    shmi_rq_outcome outcome;
    shmi_key_result r;
    int err = shmi_key_take(k, key, NULL, &r);
    if (err == 0 && r.how == SHMI_keyTaken)
        shmi_key_hold_of(k, key, r.e, r.tag, out);
    if (err != 0 || r.how == SHMI_keyTaken)
        return err;
    if (r.how == SHMI_keyRefused)
        return shmi_key_refusal(k->of, op, key, r.why);
    if (try_)
        return EBUSY;
    shmi_rq_learn(&k->q);
    if (SHMI_UNLIKELY(shmi_known_bad(shmi_ld64(&k->q.known_head))))
        return shmi_fail(EPROTO, op, shmi_called(&k->q.o), "its list of slot records");
    err = shmi_wait_node_take(k->q.a, &wait_node);
    if (err != 0)
        return err;
    shmi_rq_prepare(&k->q, wait_node, key);
    err = shmi_key_take(k, key, wait_node, &r);
    if (err != 0 && r.how == SHMI_keyQueued) {
        shmi_wait_node_forget(wait_node);
        return err;
    }
    if (err != 0 || r.how != SHMI_keyQueued) {
        shmi_rq_hand_back(&k->q, wait_node);
        if (err == 0 && r.how == SHMI_keyTaken)
            shmi_key_hold_of(k, key, r.e, r.tag, out);
        return err == 0 && r.how == SHMI_keyRefused ? shmi_key_refusal(k->of, op, key, r.why) : err;
    }
    err = shmi_rq_await(&k->q, wait_node, abs == 0 || shmi_now() < abs, abs, op, &outcome);
    if (err != 0)
        return err;
    if (outcome.how != SHMI_RECORDED_REFUSED)
        return shmi_key_accept(k, key, r.e, out);
    err = shmi_key_refusal(k->of, op, key, outcome.why);
    return err != 0 ? err : shmi_multi_corrupt(&k->q, "a wait that was refused without a reason");
}
SHMI_FN int shmi_key_unlock(struct shmi_key_bucket *k, const shmsync_hold *h);
SHMI_FN int shmi_key_lock(struct shmi_multilock *x, uint64_t key, int64_t abs, shmsync_hold *out)
{
    struct shmi_key_bucket *k = NULL;
    int err = shmi_use(x->a, "multilock.lock");
    if (err == 0)
        err = shmi_multi_bucket(x, key, &k);
    if (err == 0 && SHMI_LIKELY(shmi_key_lock_fast(k, key, out)))
        return 0;
    if (err == 0)
        err = shmi_enter_for(x, x->a, "multilock.lock");
    if (err == 0) {
        shmsync_arena *a = x->a;
        err = shmi_key_arrive(k, "multilock.lock", key, abs, 0, out);
        if (err == 0 && (err = shmi_kept_closed(x, "multilock.lock")) != 0)
            shmi_key_unlock(k, out);
        shmi_exit_for(x, a);
    }
    if (err != 0)
        memset(out, 0, sizeof *out);
    return err;
}
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED_ELSE(m, memset(out, 0, sizeof *out));
    return SHMI_DONE_ELSE(shmi_key_lock(m->impl, key, 0, out), memset(out, 0, sizeof *out));
}
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(m, memset(out, 0, sizeof *out));
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    memset(out, 0, sizeof *out);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_key_lock(m->impl, key, ns, out), memset(out, 0, sizeof *out));
}
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED_ELSE(m, memset(out, 0, sizeof *out));
    struct shmi_multilock *x = m->impl;
    struct shmi_key_bucket *k = NULL;
    int err;
    memset(out, 0, sizeof *out);
    err = shmi_use(x->a, "multilock.trylock");
    if (err == 0)
        err = shmi_multi_bucket(x, key, &k);
    if (err != 0)
        return SHMI_DONE(err);
    if (SHMI_LIKELY(shmi_key_lock_fast(k, key, out)))
        return SHMI_DONE_ELSE(0, memset(out, 0, sizeof *out));
    err = shmi_enter(x->a, "multilock.trylock");
    if (err != 0)
        return SHMI_DONE(err);
    return SHMI_DONE_ELSE(shmi_exit_with(x->a, shmi_key_arrive(k, "multilock.trylock", key, 0, 1, out)), memset(out, 0, sizeof *out));
}

/* Unlocks the hold h by a record, which grants the key to the first wait. If this process does not have the hold h,
 * *held is 0 and *s is the state of the key. */
SHMI_FN int shmi_key_give_locked(struct shmi_key_bucket *k, const shmsync_hold *h, struct shmi_wakes *b, int *held, uint32_t *s)
{
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_participant_id granted;
        struct shmi_key_entry at;
        uint64_t w = 0;
        int ok, bad, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        *s = 0;
        *held = 0;
        if (shmi_key_find(k, h->key, &at, &bad)) {
            w = shmi_ld64(&at.e->hold);
            *s = (uint32_t)(w >> 32);
        }
        if (at.e != NULL && h->at == &at.e->keyLow && (uint32_t)w == (uint32_t)h->hold) {
            if (*s == (SHMI_FAIR_OPEN | q->a->self)) {
                *held = 1;
                if (shmi_key_unlock_fast(k, h))
                    return 0;
                continue;
            }
            *held = *s == q->a->self || (*s == shmi_make_owner(SHMI_kindReserved, q->a->self) && shmi_key_accepted(at.e, w));
        }
        if (!*held) {
            if (shmi_ld64(q->commit) != x.c)
                continue;
            return bad ? q->kind->corrupt(q, "its list of slot records") : 0;
        }
        shmi_key_focus(k, at);
        granted = shmi_key_pass(k, &x);
        x.torn = 0; /* unlock even after an error in the queue, which concerns only the waits */
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (!ok)
            continue;
        shmi_rq_reconsider(q, granted);
        SHMSYNC_CRASHPOINT("multilock.unlock.committed");
        if (shmi_recorded_value(q->first) != 0)
            shmi_key_serve(k, &x, b);
        return 0;
    }
}
SHMI_FN int shmi_key_unlock(struct shmi_key_bucket *k, const shmsync_hold *h)
{
    shmsync_arena *a = k->q.a; /* after the unlock, another thread may free the bucket */
    struct shmi_wakes b;
    uint32_t s = 0;
    int held = 1, err = shmi_use(a, "multilock.unlock");
    if (err != 0)
        return err;
    if (SHMI_LIKELY(shmi_key_unlock_fast(k, h)))
        return 0;
    err = shmi_enter(a, "multilock.unlock");
    if (err != 0)
        return err;
    shmi_multi_catch_up(&k->q);
    shmi_wakes_init(&b);
    shmi_rq_lock(&k->q);
    err = shmi_key_give_locked(k, h, &b, &held, &s);
    shmi_rq_unlock(&k->q);
    shmi_rq_wake(&k->q, &b);
    if (err == 0 && !held)
        err = shmi_fail(shmi_key_valid(s) ? EPERM : EPROTO, "multilock.unlock", shmi_called(&k->q.o), "key %llu: state %#x", (unsigned long long)h->key, s);
    return shmi_exit_with(a, err);
}
int shmsync_multilock_unlock(const shmsync_hold *h)
{
    SHMI_BEGIN();
    struct shmi_key_bucket *k = h->in;
    shmsync_arena *a;
    if (k == NULL)
        return shmi_fail(EPERM, "multilock.unlock", NULL, "the hold holds nothing");
    if (!shmi_is_open(k, h->serial))
        return SHMI_TELL(shmi_closed(__func__));
    /* After the unlock, another thread may close the MultiLock and free the bucket, so the arena is read before. A close of
     * the arena does not close the buckets. */
    a = k->q.a;
    return SHMI_DONE_IN(a, shmi_key_unlock(k, h));
}

/* ---- Many keys ---- */

SHMI_FN int shmi_by_key(const void *x, const void *y)
{
    uint64_t p = ((const shmsync_hold *)x)->key, q = ((const shmsync_hold *)y)->key;
    return p < q ? -1 : p > q;
}
/* Sets the results of a call that has locked none of n keys. If n is 0, out may be NULL. */
SHMI_FN void shmi_no_holds(shmsync_hold *out, size_t n, size_t *held)
{
    if (n != 0)
        memset(out, 0, n * sizeof *out);
    *held = 0;
}
SHMI_FN int shmi_key_lockall(struct shmi_multilock *x, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, int64_t abs)
{
    size_t i, distinct = 0;
    int err;
    *held = 0;
    /* Keep the handle open until this call has unlocked, after an error, the keys that it has locked. */
    err = shmi_enter_for(x, x->a, "multilock.lock");
    if (err != 0) {
        shmi_no_holds(out, n, held);
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
    for (i = 0; i < distinct; i++) {
        err = shmi_key_lock(x, out[i].key, abs, &out[i]);
        if (err != 0)
            break;
        SHMSYNC_CRASHPOINT("multilock.lockall.partly");
    }
    if (err == 0)
        err = shmi_kept_closed(x, "multilock.lock");
    if (err == 0) {
        *held = distinct;
    } else {
        for (; i > 0; i--)
            shmi_key_unlock(out[i - 1].in, &out[i - 1]); /* fails if this process has closed the arena, because it holds no key any more */
        shmi_no_holds(out, n, held);
    }
    shmi_exit_for(x, x->a);
    return err;
}
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held)
{
    SHMI_OPENED_ELSE(m, shmi_no_holds(out, n, held));
    return SHMI_DONE_ELSE(shmi_key_lockall(m->impl, keys, n, out, held, 0), shmi_no_holds(out, n, held));
}
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(m, shmi_no_holds(out, n, held));
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    shmi_no_holds(out, n, held);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_key_lockall(m->impl, keys, n, out, held, ns), shmi_no_holds(out, n, held));
}
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n)
{
    SHMI_BEGIN();
    int first = 0, err;
    while (n > 0) { /* from the last hold to the first, so that the error of the first hold is the result */
        err = shmsync_multilock_unlock(&h[--n]);
        if (err != 0)
            first = err;
    }
    return SHMI_TELL(first);
}

/* ---- After a death ---- */

/* A recovery of a key by this process. */
typedef struct shmi_key_recovery {
    struct shmi_key_bucket *k;
    uint64_t key;
    int took;                  /* this process is recovering the key */
    uint32_t tag;              /* the tag that this recovery has given to the hold word */
    shmi_participant_id died;  /* the participant whose death requires the recovery */
    shmi_participant_id waits; /* the participant that must be gone before this process can recover the key, or 0 */
    uint64_t *word, was;       /* the word that names this participant, and the value of the word */
} shmi_key_recovery;

/* Makes this process the recoverer, if the key is owner-dead or not recoverable. The caller has the private lock. */
SHMI_FN int shmi_key_begin_locked(shmi_key_recovery *r, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = r->k;
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        struct shmi_key_entry at;
        uint64_t w;
        uint32_t s;
        int ok, bad, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        if (!shmi_key_find(k, r->key, &at, &bad))
            return bad ? q->kind->corrupt(q, "its list of slot records") : 0;
        w = shmi_ld64(&at.e->hold);
        s = (uint32_t)(w >> 32);
        if (!shmi_key_valid(s) || !shmi_key_refuses(s))
            return 0;
        if (shmi_owner_kind(s) == SHMI_kindOwnerDead && !shmi_gone(q->a, shmi_owner_name(s))) {
            r->waits = shmi_owner_name(s);
            r->word = &at.e->hold;
            r->was = w;
            return 0;
        }
        r->died = shmi_owner_name(s);
        shmi_key_focus(k, at);
        shmi_key_set(k, &x, shmi_make_owner(SHMI_kindRecovering, q->a->self));
        r->tag = shmi_key_new_tag(&x, &at.e->hold);
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (ok) {
            SHMSYNC_CRASHPOINT("multilock.recover.taken");
            r->took = 1;
            return 0;
        }
    }
}
/* Begins a recovery. The caller is within shmi_enter. */
SHMI_FN int shmi_key_begin_recover(shmi_key_recovery *r)
{
    struct shmi_rq *q = &r->k->q;
    int err;
    do { /* repeat after a wait for the dead holder: until it is gone, a system call of it may still write to the data of the key */
        struct shmi_wakes b;
        r->waits = 0;
        shmi_multi_catch_up(q);
        shmi_wakes_init(&b);
        shmi_rq_lock(q);
        err = shmi_key_begin_locked(r, &b);
        shmi_rq_unlock(q);
        shmi_rq_wake(q, &b);
        if (err != 0 || r->waits == 0)
            return err;
        err = shmi_await_gone64(q->a, r->waits, r->word, r->was, "multilock.recover", shmi_called(&q->o), 0);
    } while (err == 0);
    return err;
}
/* Ends the recovery by this process. If the repair failed, the key becomes not recoverable. Otherwise the key becomes
 * free. */
SHMI_FN int shmi_key_end_locked(shmi_key_recovery *r, int failed, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = r->k;
    struct shmi_rq *q = &k->q;
    struct shmi_rq_change x;
    for (;;) {
        /* The loop ends: each round follows a change by another call. */
        shmi_participant_id granted = 0;
        struct shmi_key_entry at;
        int ok, bad, err = shmi_rq_begin(q, &x, b);
        if (err != 0)
            return err;
        if (!shmi_key_find(k, r->key, &at, &bad) || shmi_ld64(&at.e->hold) != SHMI_RECORDED(shmi_make_owner(SHMI_kindRecovering, q->a->self), r->tag)) {
            if (shmi_ld64(q->commit) != x.c)
                continue;
            return shmi_fail(EPROTO, "multilock.recover", shmi_called(&q->o), "key %llu was overwritten", (unsigned long long)r->key);
        }
        shmi_key_focus(k, at);
        if (failed)
            shmi_key_set(k, &x, shmi_make_owner(SHMI_kindNotRecoverable, r->died));
        else
            granted = shmi_key_pass(k, &x);
        x.torn = 0; /* end the recovery even after an error in the queue, which concerns only the waits */
        err = shmi_rq_end(q, &x, b, &ok);
        if (err != 0)
            return err;
        if (!ok)
            continue;
        shmi_rq_reconsider(q, granted);
        shmi_key_serve(k, &x, b);
        return 0;
    }
}
/* Runs repair while this process is recovering the key. The caller is within shmi_enter. */
SHMI_FN int shmi_key_run_repair(shmi_key_recovery *r, int (*repair)(void *), void *arg)
{
    struct shmi_rq *q = &r->k->q;
    struct shmi_wakes b;
    int failed = shmi_call_repair(repair, arg), err;
    if (failed == 0)
        SHMSYNC_CRASHPOINT("multilock.recover.repaired");
    shmi_multi_catch_up(q);
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    err = shmi_key_end_locked(r, failed, &b);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    if (err == 0 && failed)
        err = shmi_fail_who(q->a, ENOTRECOVERABLE, "multilock.recover", shmi_called(&q->o), r->died);
    return err;
}
SHMI_FN int shmi_key_recover(struct shmi_multilock *x, uint64_t key, int (*repair)(void *), void *arg)
{
    shmi_key_recovery r;
    shmsync_hold hold;
    int err;
    memset(&r, 0, sizeof r);
    r.key = key;
    err = shmi_multi_bucket(x, key, &r.k);
    while (err == 0) {
        err = shmi_key_begin_recover(&r);
        if (err != 0)
            break;
        if (r.took)
            return shmi_key_run_repair(&r, repair, arg);
        err = shmi_key_lock(x, key, 0, &hold);
        if (err == 0)
            return shmi_key_unlock(r.k, &hold);
        if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
            err = 0;
    }
    return err;
}
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    struct shmi_multilock *x = m->impl;
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "multilock.recover", shmi_called(&x->o), "without a repair");
    err = shmi_enter_for(x, x->a, "multilock.recover");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_key_recover(x, key, repair, arg);
    shmi_exit_for(x, x->a);
    return SHMI_DONE(err);
}
/* Returns the state of the key as an errno. It takes into account a death that no call has noticed yet, and a change
 * that is committed and not yet carried out. */
SHMI_FN int shmi_multi_state(struct shmi_multilock *x, uint64_t key)
{
    struct shmi_key_bucket *k;
    struct shmi_key_entry at;
    uint32_t s = 0;
    int bad, err = shmi_multi_bucket(x, key, &k);
    if (err != 0)
        return err;
    shmi_multi_catch_up(&k->q);
    shmi_rq_complete_last(&k->q);
    if (shmi_key_find(k, key, &at, &bad) && shmi_key_dead(k, at.e)) {
        shmi_rq_check_now(&k->q);
        shmi_key_find(k, key, &at, &bad);
    }
    if (bad)
        return shmi_multi_corrupt(&k->q, "its list of slot records");
    if (at.e != NULL) {
        s = shmi_key_state(at.e);
        if (!shmi_key_has(at.e, key))
            s = 0; /* the entry has got another key meanwhile, so this key was free */
    }
    return shmi_key_refusal(x, "multilock.state", key, s);
}
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key)
{
    SHMI_OPENED(m);
    struct shmi_multilock *x = m->impl;
    int err = shmi_enter(x->a, "multilock.state");
    return SHMI_DONE(err != 0 ? err : shmi_exit_with(x->a, shmi_multi_state(x, key)));
}

/* ---- Reaping ---- */

typedef struct shmi_key_block {
    uint32_t bucket, number;
    shmi_multilock_block *at;
} shmi_key_block;
SHMI_FN int shmi_by_bucket(const void *x, const void *y)
{
    const shmi_key_block *p = (const shmi_key_block *)x, *q = (const shmi_key_block *)y;
    if (p->bucket != q->bucket)
        return p->bucket < q->bucket ? -1 : 1;
    return p->number < q->number ? -1 : p->number > q->number;
}
SHMI_FN shmi_multilock_block *shmi_view_block(struct shmi_multilock *x, const shmi_record_walk *v)
{
    return (shmi_multilock_block *)shmi_ptr(x->a, v->b.off, sizeof(shmi_multilock_block), 8);
}
/* Sorts the blocks of an object by their buckets, so that the blocks of a bucket are a part of the table. If there is
 * no memory for the table, each search walks through the list. */
SHMI_FN void shmi_view_blocks(struct shmi_multilock *x)
{
    uint32_t head = shmi_ld32(shmi_u32(x->a, x->o.off + SHMI_objRecords));
    shmi_key_block *sorted;
    shmi_record_walk v;
    size_t n = 0, i = 0;
    shmi_walk_records_from(&v, x->o.off, head, sizeof(shmi_multilock_block));
    while (shmi_next_added(x->a, &v, 0) && shmi_block_has_bucket(x, &v, shmi_ld32(&shmi_view_block(x, &v)->bucket)))
        n++;
    if (v.bad)
        return;
    sorted = (shmi_key_block *)calloc(n + 1, sizeof *sorted);
    x->table = (shmi_multilock_block **)calloc(n + 1, sizeof *x->table);
    if (sorted != NULL && x->table != NULL) {
        shmi_walk_records_from(&v, x->o.off, head, sizeof(shmi_multilock_block));
        for (; i < n && shmi_next_added(x->a, &v, 0); i++) {
            sorted[i].at = shmi_view_block(x, &v);
            sorted[i].bucket = shmi_ld32(&sorted[i].at->bucket);
            sorted[i].number = v.number;
        }
        qsort(sorted, i, sizeof *sorted, shmi_by_bucket);
        x->n = i;
        x->head = head;
        for (i = 0; i < x->n; i++)
            x->table[i] = sorted[i].at;
    }
    free(sorted);
}
/* Fills in x for a reaper, or a recovery, that has no handle. Returns 0 if that is not possible. shmi_view_end frees
 * what x has. */
SHMI_FN int shmi_multi_view(struct shmi_multilock *x, shmsync_arena *a, const shmi_object *o)
{
    if (!shmi_multi_shape(x, a, o))
        return 0;
    x->known = (unsigned char **)calloc(a->geo.slots, sizeof *x->known); /* if this fails, each search walks through the list */
    shmi_view_blocks(x);
    return 1;
}
SHMI_FN void shmi_view_end(struct shmi_multilock *x)
{
    free(x->known);
    free(x->table);
}
/* Fills in k for bucket i. The caller goes through the buckets in order. */
SHMI_FN void shmi_view_bucket(struct shmi_key_bucket *k, uint32_t i, size_t *at)
{
    struct shmi_multilock *x = k->of;
    size_t n;
    shmi_bucket_point(k, i);
    k->learned = 0;
    k->table = NULL;
    if (x->table == NULL || x->n == 0)
        return;
    while (*at < x->n && shmi_ld32(&x->table[*at]->bucket) < i)
        ++*at;
    for (n = *at; n < x->n && shmi_ld32(&x->table[n]->bucket) == i; n++) {
    }
    k->table = &x->table[*at];
    k->learned = (uint64_t)(uint32_t)(n - *at) << 32 | x->head;
    *at = n;
}
/* Whether a participant that is dead, or has left, may have a hold or a wait in the bucket. */
SHMI_FN int shmi_bucket_owes(struct shmi_key_bucket *k)
{
    shmi_entry_walk v;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);) {
        uint32_t s = shmi_key_state(v.at.e);
        if (shmi_recorded_value(&v.at.e->first) != 0 || (shmi_fair_taken(s) && shmi_rq_absent(&k->q, shmi_owner_name(s))))
            return 1;
    }
    return 0;
}
/* Takes back keys of dead participants, but only keys whose hold word is open. Returns 1 if dead participants have other
 * keys, or a wait has to end: only a record can do that. */
SHMI_FN int shmi_bucket_needs_record(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)(void *)q;
    shmi_entry_walk v;
    int others = 0;
    for (shmi_walk_entries(k, &v); shmi_next_entry(k, &v);) {
        struct shmi_record_lock l;
        shmi_key_focus(k, v.at);
        l = shmi_key_lock_of(k);
        others |= shmi_lock_take_open(&l) || shmi_lock_unserved(&l, x, b);
    }
    return others;
}
/* Takes back the keys of a dead participant, and takes its waits off the queues.
 *
 * The queue k.q is not that of a handle, so its field unreaped is lost. If the reap gives up a key, the next call for
 * the key, or the next periodic check of a waiter for the key, finds the dead holder itself: see shmi_key_dead. */
SHMI_FN int shmi_repair_multilock(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    size_t at = 0;
    uint32_t i;
    int done = 1;
    if (!shmi_multi_view(&x, a, o))
        return 0;
    shmi_bucket_init(&k, &x, 0);
    for (i = 0; i < UINT32_C(1) << x.log; i++) {
        if (shmi_ld64(&shmi_bucket_words(&x, i)->commit) == 0)
            continue; /* no key was ever in the bucket */
        shmi_view_bucket(&k, i, &at);
        if (dead == a->self)
            k.q.without = dead;
        shmi_rq_complete_last(&k.q);
        if (shmi_bucket_owes(&k))
            done &= shmi_rq_repair(&k.q, dead, shmi_bucket_needs_record);
    }
    shmi_view_end(&x);
    return done;
}
/* If this process has no slot record, wakes the owners of the first waits, so that they reap. */
SHMI_FN void shmi_wake_first_of_multilock(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    size_t at = 0;
    uint32_t i;
    (void)owed;
    if (!shmi_multi_view(&x, a, o))
        return;
    shmi_bucket_init(&k, &x, 0);
    for (i = 0; i < UINT32_C(1) << x.log && shmi_rq_slot(&k.q, a->my_slot) == NULL; i++) {
        shmi_entry_walk v;
        if (shmi_ld64(&shmi_bucket_words(&x, i)->commit) == 0)
            continue;
        shmi_view_bucket(&k, i, &at);
        for (shmi_walk_entries(&k, &v); shmi_next_entry(&k, &v);)
            if (shmi_recorded_value(&v.at.e->first) != 0) {
                shmi_key_focus(&k, v.at);
                shmi_rq_wake_first(&k.q);
            }
    }
    shmi_view_end(&x);
}
/* Completes the last change of each participant: the slot record of the participant says in which bucket the change is.
 * Returns 0 if that was not possible. */
SHMI_FN int shmi_complete_multilock(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    shmi_record_walk v;
    int done = 1;
    if (!shmi_multi_shape(&x, a, o))
        return 0;
    x.known = (unsigned char **)calloc(a->geo.slots, sizeof *x.known);
    shmi_bucket_init(&k, &x, 0);
    shmi_walk_records(a, &v, o->off, sizeof(shmi_fairmutex_record));
    while (shmi_next_record(a, &v)) {
        const shmi_fairmutex_record *r = (const shmi_fairmutex_record *)shmi_ptr(a, v.b.off, sizeof *r, 8);
        uint64_t bucket = shmi_ld64(&r->head) >> SHMI_multiPartShift;
        if (bucket >> x.log != 0) {
            done = 0;
            continue;
        }
        shmi_bucket_point(&k, (uint32_t)bucket);
        if (((uint32_t)shmi_ld64(k.q.commit) & ((1u << SHMI_RQ_SLOT_BITS) - 1)) == v.slot && !shmi_rq_complete_last(&k.q))
            done = 0;
    }
    free(x.known);
    return done && !v.bad;
}
