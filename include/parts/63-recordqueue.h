
/* ---- Recorded queues: prims/record_queue.go and record_wait.go in C, docs/design/0056 ----
 *
 * The waits of an object are in a queue without a lock. A change of the object's words and of the queue is a record in
 * the slot record of its author. Any process can carry out the record:
 *
 *     the author                            the next process
 *     completes the latest record           finds the record of the author
 *     reads words                           CAS of each word in the record, from its old to its new value
 *     writes a record of its own            resolves the waits that the record has granted
 *     CAS: the commit word names it         CAS of the commit word
 *     completes its record
 *
 * The words do not change while the commit word is the same and its record is complete. So the CAS of the commit word
 * proves that the words that the author has read belong together.
 *
 * A recorded word has a tag in bits 0..31, which counts its changes, and a value in bits 32..63.
 *
 * An object may have several parts, as a MultiLock has buckets. Each part has a commit word and several queues. A
 * participant makes its records for all parts in the same memory. So the head of a record names the part, too. */

#define SHMI_RQ_SLOT_BITS 11 /* bits of the commit word for the slot; the version has the other bits */
#define SHMI_RQ_PART_MASK ((UINT64_C(1) << 48) - 1) /* if the object has several parts, the version in the head of a record has only these bits */
#define SHMI_RECORDED(value, tag) ((uint64_t)(uint32_t)(value) << 32 | (uint32_t)(tag))
enum { SHMI_rqMost = 8 };                                                      /* the greatest number of words that a record changes */
/* kinds of words; the object itself defines those from SHMI_rqOwnKinds on */
enum { SHMI_rqFirst = 1, SHMI_rqLast, SHMI_rqNext, SHMI_rqPrev, SHMI_rqOwnKinds };

SHMI_FN uint64_t shmi_recorded_with(uint64_t was, uint32_t value) { return SHMI_RECORDED(value, (uint32_t)was + 1); }
SHMI_FN uint32_t shmi_recorded_value(const uint64_t *w) { return (uint32_t)(shmi_ld64(w) >> 32); }

/* A record. head is its version, and kinds contains the kinds of the words that it changes. Each of these words has an
 * entry: the content before the record, and the value after the record. */
typedef struct shmi_rq_record {
    uint64_t *head, *kinds, *entries;
} shmi_rq_record;

struct shmi_rq;
struct shmi_rq_change;

/* The description of a kind of object that has a recorded queue. */
typedef struct shmi_rq_kind {
    uint64_t record_bytes; /* size of a slot record; the field head of the record is at offset 32 in it, and kinds at offset 40 */
    uint32_t entries_at;   /* offset of the entries */
    int refuses;           /* the object may refuse a wait */
    void (*init)(struct shmi_rq *q);                                     /* sets the words of q, which are in the body of q->o */
    uint64_t *(*word)(struct shmi_rq *q, uint32_t kind, uint32_t where); /* finds a word of the object other than the ends of the queue; NULL: there is no such word */
    int (*corrupt)(struct shmi_rq *q, const char *how);
    /* adds to x that a wait leaves the queue without a grant */
    void (*remove)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome);
    /* ends the waits that can end now, in order */
    int (*serve)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b);
    /* takes back what dead participants have */
    int (*reap)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b);
    int (*dead)(struct shmi_rq *q); /* whether a dead participant has something of the object */
} shmi_rq_kind;

/* The functions of an object with several parts, each with several queues. The callers of all functions except
 * catch_up have the private lock. */
typedef struct shmi_rq_parts {
    uint64_t *(*end)(struct shmi_rq *q, uint32_t kind, uint32_t where); /* finds an end of a queue, as shmi_rq_kind.word does */
    void (*turn_to)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w); /* chooses the queue of a wait */
    void (*catch_up)(struct shmi_rq *q);                                /* learns which blocks others have added to the object */
    int (*serve)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b); /* as shmi_rq_kind.serve, for the chosen queue only */
    void (*before)(struct shmi_rq *q, struct shmi_wakes *b);            /* called before this participant writes a record */
} shmi_rq_parts;

/* A handle's side of an object with a recorded queue, or of a part of such an object. */
struct shmi_rq {
    shmsync_arena *a;
    shmi_object o;
    const shmi_rq_kind *kind;
    /* If the object has several queues, the four fields first, last, queue and chosen describe the queue that was
     * chosen last, and the private lock guards them. first and last are the ends of that queue, and queue is its number
     * in records. chosen is the value of the word wanted in all nodes of that queue. */
    uint64_t *commit, *first, *last;
    uint32_t queue;
    uint64_t chosen;
    uint64_t part;              /* the bits that name this part in the heads of records; 0 if the object has one part */
    const shmi_rq_parts *parts; /* NULL: the object has one part and one queue */
    /* The word that names the first wait behind the boundary in the queue, or has the value 0 if no wait is behind the
     * boundary. When that wait leaves the queue, the word gets the name of the next wait. In a record the kind of the
     * word is SHMI_rqOwnKinds. NULL: the queue has no boundary. In an object with a boundary, a wait that was woken
     * owes something to the other waits until its owner calls shmi_cond_settle. */
    uint64_t *boundary;
    void (*also_check)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b); /* the periodic check calls this function, too, with the private lock held; may be NULL */
    unsigned char *own;    /* the slot record of this process; NULL for a reaper that has no handle */
    unsigned char **known; /* the slot records, from slot 1 on. NULL for a reaper that has no handle and walks the list instead. Atomic. */
    uint64_t known_head;   /* head of the list when known was filled: see shmi_known_list. Atomic. */
    pthread_mutex_t *private_; /* this process's private lock for the object: a thread that makes a change holds it */
    uint32_t lock;             /* index of private_ among the record locks */
    uint64_t completed;        /* the last commit word of which this handle knows that the record is complete. Atomic. */
    uint32_t *spin, *pays, *last_cpu;
    uint32_t waiting;  /* number of threads of this process that wait. Atomic. */
    uint32_t deaths;   /* value of shmi_deaths at the last reap. Atomic. */
    uint32_t unreaped; /* the last reap has left something to the next one, for example because a dead participant was not gone. Atomic. */
    uint64_t overtaken; /* how many changes of this process other processes have overtaken. Guarded by: the private lock */
    int64_t looked;
    shmi_participant_id without; /* the ID of this participant while it is leaving; otherwise 0 */
};

/* A change that will become a record. */
struct shmi_rq_change {
    uint64_t c; /* the commit word that the change replaces */
    uint32_t n;
    int too_many; /* the change has more words than a record */
    int made;     /* the change has taken effect */
    int torn;     /* the words that this process has read do not belong together, or a peer has overwritten a word */
    uint8_t kind[SHMI_rqMost];
    uint32_t where[SHMI_rqMost], to[SHMI_rqMost];
    uint64_t was[SHMI_rqMost], *word[SHMI_rqMost];
};

SHMI_FN shmi_tuning shmi_rq_tuning(struct shmi_rq *q)
{
    shmi_tuning t;
    t.budget = q->spin;
    t.pays = q->pays;
    t.last_cpu = q->last_cpu;
    t.slot = q->a->my_slot;
    return t;
}

/* Takes the private lock. A signal handler may take it, too, for example to release permits, so a thread blocks signals
 * while it has the lock. Meanwhile the thread calls no function with a lock of its own, such as malloc: the thread may
 * be in a handler, and the interrupted code may hold that other lock. No handler calls an object with several parts. So
 * such an object has other locks, for which a thread does not block signals: this saves two system calls. */
SHMI_FN void shmi_rq_lock(struct shmi_rq *q)
{
    if (q->parts == NULL)
        shmi_hold_signals();
    pthread_mutex_lock(q->private_);
}
SHMI_FN void shmi_rq_unlock(struct shmi_rq *q)
{
    pthread_mutex_unlock(q->private_);
    if (q->parts == NULL)
        shmi_let_signals();
}

/* The value that the word w has after the change x. */
SHMI_FN uint32_t shmi_rq_get(const struct shmi_rq_change *x, const uint64_t *w)
{
    uint32_t i;
    for (i = 0; i < x->n; i++)
        if (x->word[i] == w)
            return x->to[i];
    return shmi_recorded_value(w);
}
/* Adds to x a change of the word *w, from the content in was to the value v. The record names the word by kind and
 * where. */
SHMI_FN void shmi_rq_add(struct shmi_rq_change *x, uint32_t kind, uint32_t where, uint64_t *w, uint64_t was, uint32_t v)
{
    uint32_t i = x->n;
    if (i == SHMI_rqMost) {
        x->too_many = 1;
        return;
    }
    x->kind[i] = (uint8_t)kind;
    x->where[i] = where;
    x->to[i] = v;
    x->was[i] = was;
    x->word[i] = w;
    x->n++;
}
/* Adds to x a change of the word *w to the value v. The record names the word by kind and where. */
SHMI_FN void shmi_rq_set(struct shmi_rq_change *x, uint32_t kind, uint32_t where, uint64_t *w, uint32_t v)
{
    uint64_t was;
    uint32_t i;
    for (i = 0; i < x->n; i++)
        if (x->word[i] == w) {
            x->to[i] = v;
            return;
        }
    was = shmi_ld64(w);
    if ((uint32_t)(was >> 32) != v)
        shmi_rq_add(x, kind, where, w, was, v);
}

/* Whether the participant n is current. A participant that is leaving treats itself as not current. */
SHMI_FN int shmi_rq_current(struct shmi_rq *q, shmi_participant_id n) { return n != q->without && shmi_current(q->a, n); }
/* Whether n names a participant that is dead, or has left. */
SHMI_FN int shmi_rq_absent(struct shmi_rq *q, shmi_participant_id n) { return n != 0 && !shmi_rq_current(q, n); }

/* ---- The slot records of an object with a recorded queue ----
 *
 * A slot record stays until the object is deleted, so a handle remembers the addresses of the slot records. The array
 * for them exists as long as the handle, because a signal handler cannot allocate one. A participant puts its slot
 * record on the list of the object before its first change. So a call that has loaded the commit word finds the record
 * that this word names. */

SHMI_FN unsigned char *shmi_rq_slot_in(struct shmi_rq *q, const shmi_record_walk *v)
{
    return (unsigned char *)shmi_ptr(q->a, v->b.off, q->kind->record_bytes, 8);
}
SHMI_FN void shmi_rq_learn(struct shmi_rq *q)
{
    uint32_t head = shmi_ld32(shmi_u32(q->a, q->o.off + SHMI_objRecords));
    uint64_t list = shmi_ld64(&q->known_head);
    uint32_t known = (uint32_t)list;
    shmi_record_walk v;
    if (SHMI_LIKELY(known == head))
        return;
    if (shmi_known_bad(list))
        known = 0;
    shmi_walk_records_from(&v, q->o.off, head, q->kind->record_bytes);
    while (v.next != (shmi_off)known * SHMI_blockMin && shmi_next_listed(q->a, &v)) {
        if (v.number != 0)
            continue;
        if (!shmi_listed_fits(&v))
            break;
        /* a known record stays known, even if a peer has overwritten the list */
        if (__atomic_load_n(&q->known[v.slot - 1], __ATOMIC_RELAXED) == NULL)
            __atomic_store_n(&q->known[v.slot - 1], shmi_rq_slot_in(q, &v), __ATOMIC_RELEASE);
    }
    shmi_st64(&q->known_head, shmi_known_list(head, &v));
}
/* A walk over the slot records. */
typedef struct shmi_rq_walk {
    shmi_record_walk v;
    uint32_t slot;
} shmi_rq_walk;
SHMI_FN void shmi_rq_walk_slots(struct shmi_rq *q, shmi_rq_walk *i)
{
    i->slot = 0;
    if (q->known != NULL)
        shmi_rq_learn(q);
    else
        shmi_walk_records(q->a, &i->v, q->o.off, q->kind->record_bytes);
}
SHMI_FN void *shmi_rq_next_slot(struct shmi_rq *q, shmi_rq_walk *i)
{
    unsigned char *r;
    if (q->known == NULL) {
        if (!shmi_next_record(q->a, &i->v))
            return NULL;
        i->slot = i->v.slot;
        return shmi_rq_slot_in(q, &i->v);
    }
    while (i->slot < q->a->geo.slots)
        if ((r = __atomic_load_n(&q->known[i->slot++], __ATOMIC_ACQUIRE)) != NULL)
            return r;
    return NULL;
}
/* The slot record of a slot, or NULL if there is none. */
SHMI_FN void *shmi_rq_slot(struct shmi_rq *q, uint32_t slot)
{
    void *r;
    shmi_rq_walk i;
    if (slot < 1 || slot > q->a->geo.slots)
        return NULL;
    if (q->own != NULL && slot == q->a->my_slot)
        return q->own;
    if (q->known != NULL) {
        shmi_rq_learn(q);
        return __atomic_load_n(&q->known[slot - 1], __ATOMIC_ACQUIRE);
    }
    for (shmi_rq_walk_slots(q, &i); (r = shmi_rq_next_slot(q, &i)) != NULL;)
        if (i.slot == slot)
            return r;
    return NULL;
}
/* Sets *out to the record of a slot. Returns 0 if the slot has none. */
SHMI_FN int shmi_rq_record_of(struct shmi_rq *q, uint32_t slot, shmi_rq_record *out)
{
    uint64_t *r = (uint64_t *)shmi_rq_slot(q, slot);
    if (r == NULL)
        return 0;
    out->head = &r[4];
    out->kinds = &r[5];
    out->entries = &r[q->kind->entries_at / 8];
    return 1;
}

/* Chooses one of the private locks of this process for the object. Also makes the first check reap. */
SHMI_FN void shmi_rq_use_lock(struct shmi_rq *q)
{
    q->lock = (uint32_t)(q->o.off / 64 % SHMI_recordLocks);
    q->private_ = q->parts == NULL ? &q->a->record_locks[q->lock] : &q->a->key_locks[q->lock];
    q->deaths = shmi_deaths(q->a) - 1;
}
/* Memory for the addresses of all slot records of an object. */
SHMI_FN unsigned char **shmi_rq_new_known(shmsync_arena *a) { return (unsigned char **)shmi_new_thing(shmi_slot_places(a) * sizeof(unsigned char *)); }
/* Fills in the parts of q that a handle and a reaper without a handle both need. Returns 0 if the list of slot records
 * is corrupt. */
SHMI_FN int shmi_rq_init(struct shmi_rq *q, const shmi_rq_kind *kind, shmsync_arena *a, const shmi_object *o)
{
    shmi_record_walk v;
    q->a = a;
    q->o = *o;
    q->kind = kind;
    shmi_rq_use_lock(q);
    for (shmi_walk_records(a, &v, o->off, kind->record_bytes); shmi_next_record(a, &v);) {
    }
    kind->init(q);
    return !v.bad;
}
SHMI_FN void shmi_rq_free(void *handle)
{
    shmi_free_thing(((struct shmi_rq *)handle)->known); /* a present call may still read this memory, which stays readable */
    shmi_free_thing(handle);
}
/* Makes a handle of bytes bytes, which begins with a struct shmi_rq. */
SHMI_FN void *shmi_rq_build(const shmi_rq_kind *kind, size_t bytes, shmsync_arena *a, const shmi_object *o, const char *op)
{
    struct shmi_rq *q;
    shmi_off record;
    if (shmi_slot_record(a, o, kind->record_bytes, &record) != 0)
        return NULL;
    q = (struct shmi_rq *)shmi_new_thing(bytes);
    if (q == NULL)
        return NULL;
    if (!shmi_rq_init(q, kind, a, o)) {
        shmi_free_thing(q);
        shmi_fail(EPROTO, op, shmi_called(o), "its list of slot records");
        return NULL;
    }
    q->own = (unsigned char *)shmi_ptr(a, record, kind->record_bytes, 8);
    q->known = shmi_rq_new_known(a);
    if (q->known == NULL) {
        shmi_free_thing(q);
        shmi_fail(ENOMEM, op, shmi_called(o), "%s", "");
        return NULL;
    }
    shmi_built_ends_with(a, o->off, shmi_rq_free);
    return q;
}

/* ---- Changes ---- */

SHMI_FN uint64_t *shmi_rq_word_at(struct shmi_rq *q, uint32_t kind, uint32_t where)
{
    shmi_node *n;
    switch (kind) {
    case SHMI_rqFirst:
    case SHMI_rqLast:
        if (q->parts != NULL)
            return q->parts->end(q, kind, where);
        return kind == SHMI_rqFirst ? q->first : q->last;
    case SHMI_rqNext:
    case SHMI_rqPrev:
        n = shmi_node_at(q->a, (shmi_off)where * SHMI_nodeSize);
        return n == NULL ? NULL : kind == SHMI_rqNext ? &n->next : &n->extra;
    }
    return q->kind->word(q, kind, where);
}

/* Whether v, the value of a node's word next, says that the wait has ended and its owner must be told. */
SHMI_FN int shmi_rq_ended(const struct shmi_rq *q, uint64_t v)
{
    if (q->boundary != NULL)
        return v == SHMI_RECORDED_OWES;
    return v == SHMI_RECORDED_GRANTED || (v == SHMI_RECORDED_REFUSED && q->kind->refuses);
}

/* Resolves the wait of the node at off, which a record took off the queue. The parameter next is the content that the
 * record gave to the node's word next. Every process that completes the record calls this function, and the CAS of one
 * of them resolves the wait:
 *
 *     a process that resolves                the owner of the node
 *     word of the node: w                    next: another tag, before the next wait
 *     next: is it still that of the record?  word of the node: queued, of the next generation
 *     CAS of w: resolved
 *
 * If a process finds that the word next still has this content, the content w that it read before belongs to this wait.
 * If the owner then begins its next wait, the word of the node gets another generation, so the CAS of w fails. */
SHMI_FN void shmi_rq_tell(struct shmi_rq *q, struct shmi_wakes *b, shmi_off off, uint64_t next)
{
    int ended = shmi_rq_ended(q, next >> 32), telling = 0;
    struct shmi_wait of;
    if (!ended && next >> 32 != SHMI_RECORDED_REMOVED)
        return;
    of.off = off;
    of.n = shmi_node_at(q->a, off);
    if (of.n == NULL)
        return;
    if (!ended) {
        shmi_participant_id owner = shmi_node_owner(of.n);
        if (!shmi_current(q->a, owner))
            shmi_reap_removed(q->a, off, owner, next);
        return;
    }
    for (;;) {
        /* The loop ends: the owner changes the word at most three times. */
        uint32_t w = shmi_node_load(of.n), state = shmi_node_state(w);
        shmi_participant_id owner = shmi_node_owner(of.n);
        if (!shmi_node_queued(w) || shmi_ld64(&of.n->next) != next)
            break;
        if (!telling && state == SHMI_NodeParked) {
            shmi_begin_tell(q->a); /* shmi_wake_one calls shmi_end_tell after it has woken the owner */
            telling = 1;
        }
        if (state == SHMI_NodeQueued && owner != q->a->self) {
            shmi_tuning t = shmi_rq_tuning(q);
            shmi_note_cpu(&t); /* noted here, because an owner that spins gets no wake that notes the CPU */
        }
        if (shmi_node_swap(of.n, w, shmi_node_with(w, SHMI_NodeResolved))) {
            SHMSYNC_CRASHPOINT("record.tell.resolved");
            shmi_wakes_add(q->a, b, of, state, owner);
            if (state == SHMI_NodeParked)
                telling = 0;
            break;
        }
    }
    if (telling)
        shmi_end_tell(q->a);
}
/* Wakes the owners of waits that were resolved. The caller does not have the private lock. */
SHMI_FN void shmi_rq_wake(struct shmi_rq *q, struct shmi_wakes *b)
{
    shmi_tuning t = shmi_rq_tuning(q);
    if (b->n > 0) {
        SHMSYNC_CRASHPOINT("record.wake.before");
        shmi_note_cpu(&t);
    }
    shmi_wake_all_of(q->a, b);
}

/* The head of the record that the commit word c names. */
SHMI_FN uint64_t shmi_rq_head_of(const struct shmi_rq *q, uint64_t c)
{
    uint64_t version = c >> SHMI_RQ_SLOT_BITS;
    return q->parts == NULL ? version : (version & SHMI_RQ_PART_MASK) | q->part;
}

/* Carries out the record that the commit word c names, unless another process has done so. Resolves the waits that the
 * record has ended, and adds them to b, so that the caller wakes their owners. */
SHMI_FN int shmi_rq_complete(struct shmi_rq *q, uint64_t c, struct shmi_wakes *b)
{
    uint64_t kinds, entries[2 * SHMI_rqMost];
    shmi_rq_record r;
    uint32_t i, n;
    if ((c & ((1u << SHMI_RQ_SLOT_BITS) - 1)) == 0 || shmi_ld64(&q->completed) == c)
        return 0;
    if (!shmi_rq_record_of(q, (uint32_t)c & ((1u << SHMI_RQ_SLOT_BITS) - 1), &r))
        return q->kind->corrupt(q, "its record is that of a slot that has none");
    kinds = shmi_ld64(r.kinds);
    for (n = 0; n < SHMI_rqMost && (uint8_t)(kinds >> 8 * n) != 0; n++) {
        entries[2 * n] = shmi_ld64(&r.entries[2 * n]);
        entries[2 * n + 1] = shmi_ld64(&r.entries[2 * n + 1]);
    }
    /* If the head is not that of c, the record of c is complete: the author changes the head only when it begins its
     * next record, and it does that only when the record of c is complete. */
    if (shmi_ld64(r.head) != shmi_rq_head_of(q, c)) {
        shmi_st64(&q->completed, c);
        return 0;
    }
    for (i = 0; i < n; i++) {
        uint64_t was = entries[2 * i], *w = shmi_rq_word_at(q, (uint8_t)(kinds >> 8 * i), (uint32_t)(entries[2 * i + 1] >> 32));
        if (w == NULL)
            return q->kind->corrupt(q, "a record changes a word that there is not");
        /* No process replaces the commit word before its record is complete. So if the commit word is no longer c, this
         * process must not change w, even if the word w has its old content again. */
        if (shmi_ld64(q->commit) != c)
            break;
        if (shmi_ld64(w) == was && shmi_cas64(w, was, shmi_recorded_with(was, (uint32_t)entries[2 * i + 1])))
            SHMSYNC_CRASHPOINT("record.complete.begun");
    }
    for (i = 0; i < n; i++)
        if ((uint8_t)(kinds >> 8 * i) == SHMI_rqNext)
            shmi_rq_tell(q, b, (entries[2 * i + 1] >> 32) * SHMI_nodeSize, shmi_recorded_with(entries[2 * i], (uint32_t)entries[2 * i + 1]));
    shmi_st64(&q->completed, c);
    return 0;
}

/* Begins a change: completes the record that the commit word names, and makes x empty. */
SHMI_FN int shmi_rq_begin(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    x->c = shmi_ld64(q->commit);
    x->n = 0;
    x->too_many = x->made = x->torn = 0;
    return shmi_rq_complete(q, x->c, b);
}
/* If another process makes a change first, it overtakes this process, and the loop that makes the change begins again.
 * The loop of a reaper ends after it was overtaken SHMI_OVERTAKEN_MOST times: the parameter until is the result of
 * shmi_rq_until before the loop. A reap of many things, such as keys or shares, has a loop with its own limit for each
 * of them. The caller has the private lock. */
SHMI_FN uint64_t shmi_rq_until(const struct shmi_rq *q) { return q->overtaken + SHMI_OVERTAKEN_MOST; }
SHMI_FN int shmi_rq_goes_on(const struct shmi_rq *q, uint64_t until) { return q->overtaken < until; }

/* Makes the change x take effect. *ok is 0 if the commit word has changed since shmi_rq_begin. If the call returns an
 * error, x->made says whether the change has taken effect. The caller has the private lock. */
SHMI_FN int shmi_rq_end(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b, int *ok)
{
    uint64_t to = ((x->c >> SHMI_RQ_SLOT_BITS) + 1) << SHMI_RQ_SLOT_BITS | q->a->my_slot, kinds = 0;
    shmi_rq_record r;
    uint32_t i;
    int err;
    *ok = 0;
    if (shmi_ld64(q->commit) != x->c) {
        q->overtaken++;
        return 0;
    }
    if (x->torn)
        return q->kind->corrupt(q, "its queue of waits");
    if (x->n == 0) {
        *ok = 1;
        return 0;
    }
    if (x->too_many)
        return q->kind->corrupt(q, "a change of too many words");
    if (!shmi_rq_record_of(q, q->a->my_slot, &r))
        return q->kind->corrupt(q, "this participant has no record");
    if (q->parts != NULL)
        q->parts->before(q, b);
    shmi_put64(r.head, shmi_rq_head_of(q, to));
    for (i = 0; i < x->n; i++) {
        kinds |= (uint64_t)x->kind[i] << 8 * i;
        shmi_put64(&r.entries[2 * i], x->was[i]);
        shmi_put64(&r.entries[2 * i + 1], (uint64_t)x->where[i] << 32 | x->to[i]);
    }
    shmi_put64(r.kinds, kinds);
    SHMSYNC_CRASHPOINT("record.commit.written");
    if (!shmi_cas64(q->commit, x->c, to)) {
        q->overtaken++;
        return 0;
    }
    x->made = 1;
    SHMSYNC_CRASHPOINT("record.commit.named");
    err = shmi_rq_complete(q, to, b);
    SHMSYNC_CRASHPOINT("record.commit.completed");
    *ok = err == 0;
    return err;
}

/* ---- The waits of a recorded queue ---- */

/* Sets *w to the wait whose node is at the offset 64 * v. If no queued node of the object is there, sets x->torn and
 * returns 0. */
SHMI_FN int shmi_rq_wait_at(struct shmi_rq *q, struct shmi_rq_change *x, uint32_t v, struct shmi_wait *w)
{
    w->off = (shmi_off)v * SHMI_nodeSize;
    w->n = shmi_node_at(q->a, w->off);
    if (w->n != NULL && shmi_ld64(&w->n->object) == q->o.off && shmi_recorded_queued(shmi_rq_get(x, &w->n->next)))
        return 1;
    x->torn = 1;
    w->n = NULL;
    return 0;
}
/* Sets *w to the first wait. Returns 0 if the queue is empty, or if x is torn. */
SHMI_FN int shmi_rq_head(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait *w)
{
    uint32_t v = shmi_rq_get(x, q->first);
    w->n = NULL;
    return v != 0 && shmi_rq_wait_at(q, x, v, w);
}
SHMI_FN int shmi_rq_empty(struct shmi_rq *q, const struct shmi_rq_change *x) { return shmi_rq_get(x, q->first) == 0; }

/* Prepares a wait node for the queue. The node is on no queue, so only its owner changes its words. Another process may
 * still be carrying out a record of an earlier wait of the node. The CAS of that process fails, because the words get
 * other tags here. */
SHMI_FN void shmi_rq_prepare(struct shmi_rq *q, shmi_wait_node *s, uint64_t wanted)
{
    shmi_node *n = s->node;
    uint32_t word = shmi_node_load(n);
    s->next_tag++;
    s->extra_tag++;
    shmi_st64(&n->object, q->o.off);
    shmi_st64(&n->wanted, wanted);
    shmi_st64(&n->ready_next, 0); /* the time at which the owner fell asleep: 0, because it is awake */
    /* The words next and extra get their new tags before the node can be queued or resolved again: see shmi_rq_tell. */
    shmi_st64(&n->next, SHMI_RECORDED(0, s->next_tag));
    shmi_st64(&n->extra, SHMI_RECORDED(0, s->extra_tag));
    shmi_node_swap(n, word, shmi_node_with(word, SHMI_NodeQueued));
}
/* Adds to x that the wait of a prepared node joins the end of the queue. */
SHMI_FN void shmi_rq_join(struct shmi_rq *q, struct shmi_rq_change *x, shmi_wait_node *s)
{
    shmi_node *n = s->node;
    uint32_t me = (uint32_t)(s->off / SHMI_nodeSize), last;
    struct shmi_wait w;
    if (q->boundary != NULL)
        shmi_st64(&n->wanted, (x->c >> SHMI_RQ_SLOT_BITS) + 1); /* the number of the wait, by which shmi_rq_before_boundary compares */
    shmi_st64(&n->stamp, SHMI_RECORDED_STAMP | (((x->c >> SHMI_RQ_SLOT_BITS) + 1) & 0x7fffffff) << 32);
    SHMSYNC_CRASHPOINT("record.wait.prepared");
    last = shmi_rq_get(x, q->last);
    shmi_st64(&n->extra, SHMI_RECORDED(last, s->extra_tag));
    if (last == 0) {
        x->torn |= shmi_rq_get(x, q->first) != 0;
        shmi_rq_set(x, SHMI_rqFirst, q->queue, q->first, me);
    } else if (shmi_rq_wait_at(q, x, last, &w)) {
        x->torn |= shmi_rq_get(x, &w.n->next) != SHMI_RECORDED_LAST;
        shmi_rq_set(x, SHMI_rqNext, last, &w.n->next, me);
    }
    shmi_rq_set(x, SHMI_rqNext, me, &n->next, SHMI_RECORDED_LAST);
    shmi_rq_set(x, SHMI_rqLast, q->queue, q->last, me);
    if (q->boundary != NULL && shmi_rq_get(x, q->boundary) == 0)
        shmi_rq_set(x, SHMI_rqOwnKinds, 0, q->boundary, me);
}
/* Adds to x that a wait leaves the queue. outcome is the new value of its word next. */
SHMI_FN void shmi_rq_detach(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome)
{
    uint32_t me = (uint32_t)(w.off / SHMI_nodeSize), next = shmi_rq_get(x, &w.n->next), prev = shmi_rq_get(x, &w.n->extra);
    struct shmi_wait other;
    if (next == SHMI_RECORDED_LAST) {
        x->torn |= shmi_rq_get(x, q->last) != me;
        shmi_rq_set(x, SHMI_rqLast, q->queue, q->last, prev);
    } else if (shmi_rq_wait_at(q, x, next, &other)) {
        x->torn |= shmi_rq_get(x, &other.n->extra) != me;
        shmi_rq_set(x, SHMI_rqPrev, next, &other.n->extra, prev);
    }
    if (prev == 0) {
        x->torn |= shmi_rq_get(x, q->first) != me;
        shmi_rq_set(x, SHMI_rqFirst, q->queue, q->first, next == SHMI_RECORDED_LAST ? 0 : next);
    } else if (shmi_rq_wait_at(q, x, prev, &other)) {
        x->torn |= shmi_rq_get(x, &other.n->next) != me;
        shmi_rq_set(x, SHMI_rqNext, prev, &other.n->next, next);
    }
    shmi_rq_set(x, SHMI_rqNext, me, &w.n->next, outcome);
    if (q->boundary != NULL && shmi_rq_get(x, q->boundary) == me)
        shmi_rq_set(x, SHMI_rqOwnKinds, 0, q->boundary, next == SHMI_RECORDED_LAST ? 0 : next);
}
/* Whether a queued wait is before the boundary. */
SHMI_FN int shmi_rq_before_boundary(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w)
{
    uint32_t v = q->boundary != NULL ? shmi_rq_get(x, q->boundary) : (uint32_t)(w.off / SHMI_nodeSize);
    struct shmi_wait other;
    if (v == w.off / SHMI_nodeSize)
        return 0;
    return v == 0 || (shmi_rq_wait_at(q, x, v, &other) && shmi_ld64(&w.n->wanted) < shmi_ld64(&other.n->wanted));
}

/* Copies the tags of the two links of a node to its wait node. The node is on no queue. The tags are counted
 * separately, because each link may change any number of times during one wait. */
SHMI_FN void shmi_rq_note_tags(shmi_wait_node *s)
{
    s->next_tag = (uint32_t)shmi_ld64(&s->node->next);
    s->extra_tag = (uint32_t)shmi_ld64(&s->node->extra);
}
/* How a wait ended. */
typedef struct shmi_rq_outcome {
    uint32_t how; /* SHMI_RECORDED_GRANTED or SHMI_RECORDED_REFUSED */
    uint32_t why; /* the value of the node's word extra: a record that refuses a wait may give a reason there */
} shmi_rq_outcome;
/* Gives a wait node back that is on no queue and whose wait no process will resolve. The caller does not have the
 * private lock. */
SHMI_FN void shmi_rq_hand_back(struct shmi_rq *q, shmi_wait_node *s)
{
    uint32_t w;
    shmi_rq_note_tags(s);
    shmi_st64(&s->node->stamp, 0);
    do /* the loop ends: no other thread changes the word, unless a peer overwrites the node */
        w = shmi_node_load(s->node);
    while (!shmi_node_swap(s->node, w, shmi_node_kept(w)));
    shmi_wait_node_return(q->a, s);
}
/* Gives back the node of a wait that was resolved and owes nothing, and stores the outcome in *out. Returns 0 if the
 * wait was neither granted nor refused, so that a peer must have overwritten the node. */
SHMI_FN int shmi_rq_collect(struct shmi_rq *q, shmi_wait_node *s, shmi_rq_outcome *out)
{
    SHMSYNC_CRASHPOINT("record.await.resolved");
    out->how = shmi_recorded_value(&s->node->next);
    out->why = shmi_recorded_value(&s->node->extra);
    if (!shmi_rq_ended(q, out->how))
        return 0;
    shmi_rq_hand_back(q, s);
    return 1;
}
enum {
    SHMI_rqAgain = 64, /* how many times a walk of shmi_rq_remove_dead begins again */
    SHMI_rqSteps = 1 << 12 /* how many waits shmi_rq_wake_first examines at most */
};

/* Whether the node n is on this queue. *next is the content of its word next. During the call the commit word may
 * change, and the owner may use the node for a wait in another queue or object. The owner stores the words object and
 * wanted before it changes the word next. So if next has the same tag before and after the other loads, all loaded
 * words belong to one wait. */
SHMI_FN int shmi_rq_queued_at(struct shmi_rq *q, shmi_node *n, uint64_t *next)
{
    int ok;
    if (n == NULL)
        return 0;
    SHMSYNC_CRASHPOINT("record.reap.visited");
    *next = shmi_ld64(&n->next);
    ok = shmi_recorded_queued((uint32_t)(*next >> 32)) && shmi_ld64(&n->object) == q->o.off && (q->parts == NULL || shmi_ld64(&n->wanted) == q->chosen);
    SHMSYNC_CRASHPOINT("record.reap.visited");
    return ok && shmi_ld64(&n->next) == *next;
}

/* Takes the waits of dead participants off the queue. The walk goes from each node to the next node. Meanwhile waits
 * may leave at any place, and an owner may queue its node again at another place. So at each node the walk checks that
 * the link to it, in the node before, is still the same. If the link has changed, or the node is not on this queue, the
 * walk begins again at the first wait, at most SHMI_rqAgain times.
 *
 * The next reap takes off the waits of dead participants that this walk misses. A wait whose links a peer has
 * overwritten stays where it is: the walk goes on behind it, and the result is EPROTO. */
SHMI_FN int shmi_rq_remove_dead(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    uint32_t again = 0, steps, anchor = 0, lap = 64, v;
    shmi_node *before = NULL; /* the node in front of v; NULL if v is the first */
    uint64_t link = 0;        /* the word next of before */
    /* shmi_rq_begin completes the last change, by which a dead participant may have joined the queue. */
    int damaged = 0, begun = shmi_rq_begin(q, x, b);
    if (begun != 0)
        return begun;
    v = shmi_recorded_value(q->first);
    for (steps = 0; v >= SHMI_RECORDED_FIRST && v != anchor && again < SHMI_rqAgain && steps < 1u << 24; steps++) {
        struct shmi_wait w;
        uint64_t next = 0;
        int ok = 0, queued, err;
        if (steps == lap) { /* if a peer has made the queue a circle, the walk comes back to anchor */
            anchor = v;
            lap *= 2;
        }
        w.off = (shmi_off)v * SHMI_nodeSize;
        w.n = shmi_node_at(q->a, w.off);
        /* The owner may have queued the node again at another place. Then the link that led to the node has changed. */
        queued = shmi_rq_queued_at(q, w.n, &next);
        if (!queued && damaged != 0)
            return damaged;
        if (!queued || (before == NULL ? shmi_recorded_value(q->first) != v : shmi_ld64(&before->next) != link)) {
            again++;
            v = shmi_recorded_value(q->first);
            before = NULL;
            anchor = 0;
            continue;
        }
        if (shmi_rq_current(q, shmi_node_owner(w.n))) {
            v = (uint32_t)(next >> 32);
            before = w.n;
            link = next;
            continue;
        }
        err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        /* A node that is on this queue now stays on it until the commit word changes, and then shmi_rq_end changes
         * nothing. */
        if (shmi_rq_queued_at(q, w.n, &next) && !shmi_rq_current(q, shmi_node_owner(w.n))) {
            if (q->parts != NULL)
                q->parts->turn_to(q, x, w); /* chosen anew, because the key of these waits may have got another entry during the walk */
            q->kind->remove(q, x, w, SHMI_RECORDED_REMOVED);
            err = shmi_rq_end(q, x, b, &ok);
            if (err != 0) {
                damaged = err;
                v = (uint32_t)(next >> 32);
                before = w.n;
                link = next;
                continue;
            }
        }
        if (ok && before == NULL) {
            v = shmi_recorded_value(q->first);
            anchor = 0;
        } else if (ok) {
            v = (uint32_t)(next >> 32);
            link = shmi_recorded_with(link, v); /* the word next of before, after the removal */
        } else { /* other processes have changed the queue */
            again++;
            anchor = 0;
        }
    }
    if (again >= SHMI_rqAgain || (v >= SHMI_RECORDED_FIRST && v == anchor))
        shmi_st32(&q->unreaped, 1); /* the next reap tries again */
    return damaged;
}

/* Wakes the owners of the first waits, so that they check the object. The call ends no wait. It wakes several owners,
 * because one of them may be stopped. It passes over the waits of dead participants. */
SHMI_FN void shmi_rq_wake_first(struct shmi_rq *q)
{
    uint64_t first;
    uint32_t i, steps, v;
    int tries, woken = 0;
    for (tries = 0; tries < SHMI_REAP_TRIES && !woken; tries++) {
        first = shmi_ld64(q->first);
        v = (uint32_t)(first >> 32);
        for (i = steps = 0; i < 4 && steps < SHMI_rqSteps && v >= SHMI_RECORDED_FIRST; steps++) {
            shmi_node *n = shmi_node_at(q->a, (shmi_off)v * SHMI_nodeSize);
            int alive;
            if (n == NULL || shmi_ld64(&n->object) != q->o.off)
                break;
            alive = shmi_rq_current(q, shmi_node_owner(n));
            i += (uint32_t)alive;
            if (alive && shmi_node_state(shmi_node_load(n)) == SHMI_NodeAsleep && shmi_wake(&n->word, 1) > 0)
                woken = 1;
            v = shmi_recorded_value(&n->next);
        }
        if (shmi_ld64(q->first) == first)
            return; /* otherwise the first wait may have just left the queue, so try again */
    }
}

/* Stores, for tools, since when the first wait of the queue has been first. The time is in the low half of that wait's
 * stamp. It stays right, because the wait is first until it ends. */
SHMI_FN void shmi_rq_date_first(struct shmi_rq *q)
{
    uint32_t v = shmi_recorded_value(q->first);
    shmi_node *n = v >= SHMI_RECORDED_FIRST ? shmi_node_at(q->a, (shmi_off)v * SHMI_nodeSize) : NULL;
    uint64_t stamp;
    if (n == NULL || shmi_ld64(&n->object) != q->o.off || !shmi_recorded_queued(shmi_recorded_value(&n->next)))
        return;
    /* If the node has another wait by now, its stamp has another number, and the CAS fails. If the numbers are equal by
     * chance, tools see a time that is too early. */
    stamp = shmi_ld64(&n->stamp);
    if ((stamp & SHMI_RECORDED_STAMP) != 0 && (uint32_t)stamp == 0 && shmi_recorded_value(q->first) == v)
        shmi_cas64(&n->stamp, stamp, stamp | shmi_first_date(shmi_now()));
}
