/*
 * Queues: bounded queues of items of one size. It is prims/queue*.go in C: the slots are
 * the truth, order and counts are an index over them.
 */

enum { SHMI_queuePut, SHMI_queueGet, SHMI_queueLease };            /* classes of waits */
enum { SHMI_queueGranted, SHMI_queueStopped, SHMI_queueCorrupt };  /* how they end */
enum { SHMI_queueFree, SHMI_queueFull, SHMI_queueGiven, SHMI_queueLeased }; /* kinds of a slot */
#define SHMI_QUEUE_ITEM_MOST 65536u
#define SHMI_QUEUE_CAPACITY_MOST (UINT32_C(1) << 30)

typedef struct shmi_queue_slot {
    uint64_t state;
    uint64_t seq;
    uint64_t next;
} shmi_queue_slot;

struct shmi_queue {
    struct shmi_monitor m;
    shmi_queue_words *w;
    uint32_t capacity;
    uint64_t item, stride;
    uint64_t stage; /* a claimed block that no put uses, 0 if there is none */
};

SHMI_FN uint64_t shmi_queue_stride(uint64_t item) { return sizeof(shmi_queue_slot) + ((item + 7) & ~UINT64_C(7)); }
SHMI_FN uint32_t shmi_low(uint64_t p) { return (uint32_t)p; }
SHMI_FN uint32_t shmi_high(uint64_t p) { return (uint32_t)(p >> 32); }
SHMI_FN uint64_t shmi_pair(uint32_t low, uint32_t high) { return (uint64_t)high << 32 | low; }

SHMI_FN uint64_t shmi_queue_state(uint32_t kind, shmi_participant_id n, uint32_t times) { return n | (uint64_t)kind << 29 | (uint64_t)times << 32; }
SHMI_FN uint32_t shmi_queue_kind(uint64_t s) { return (uint32_t)(s >> 29 & 7); }
SHMI_FN shmi_participant_id shmi_queue_name(uint64_t s) { return (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN int shmi_queue_out(uint64_t s) { return shmi_queue_kind(s) == SHMI_queueGiven || shmi_queue_kind(s) == SHMI_queueLeased; }
SHMI_FN int shmi_queue_valid(uint64_t s)
{
    switch (shmi_queue_kind(s)) {
    case SHMI_queueFree:
        return s == 0;
    case SHMI_queueFull:
        return shmi_queue_name(s) == 0;
    case SHMI_queueGiven:
        return shmi_queue_name(s) != 0;
    case SHMI_queueLeased:
        return shmi_queue_name(s) != 0 && shmi_high(s) != 0;
    }
    return 0;
}
/* The state of a full slot once its item was given to n. */
SHMI_FN uint64_t shmi_queue_to(uint64_t s, uint32_t cls, shmi_participant_id n)
{
    uint32_t times = shmi_high(s);
    if (cls == SHMI_queueLease)
        return shmi_queue_state(SHMI_queueLeased, n, times + 1 != 0 ? times + 1 : 1);
    return shmi_queue_state(SHMI_queueGiven, n, times);
}

SHMI_FN shmi_queue_slot *shmi_queue_at(struct shmi_queue *x, uint32_t i)
{
    if (i - 1 >= x->capacity) /* 0 wraps */
        return NULL;
    return (shmi_queue_slot *)(void *)((char *)x->w + sizeof(shmi_queue_words) + (uint64_t)(i - 1) * x->stride);
}
SHMI_FN void *shmi_queue_item(shmi_queue_slot *s) { return s + 1; }

/* What follows is called with the queue lock held. Each changes the truth by one store, of the
 * state word; what comes after it is the index. */

SHMI_FN shmi_queue_slot *shmi_queue_expect(struct shmi_queue *x, uint32_t i, uint32_t kind)
{
    shmi_queue_slot *s;
    if (i == 0)
        return NULL;
    s = shmi_queue_at(x, i);
    if (s == NULL || shmi_queue_kind(shmi_get(&s->state)) != kind) {
        shmi_set_broken(&x->m, 1);
        return NULL;
    }
    return s;
}
SHMI_FN shmi_queue_slot *shmi_queue_first(struct shmi_queue *x, uint32_t *i)
{
    *i = shmi_low(shmi_get(&x->w->ends));
    return shmi_queue_expect(x, *i, SHMI_queueFull);
}
SHMI_FN shmi_queue_slot *shmi_queue_spare(struct shmi_queue *x, uint32_t *i)
{
    *i = shmi_low(shmi_get(&x->w->free));
    return shmi_queue_expect(x, *i, SHMI_queueFree);
}
/* A slot that a put may fill now, NULL if it has to wait. */
SHMI_FN shmi_queue_slot *shmi_queue_room(struct shmi_queue *x, uint32_t *i)
{
    if (!shmi_fifo_empty(&x->w->putters) || shmi_get(&x->w->stopped) != 0)
        return NULL;
    return shmi_queue_spare(x, i);
}
/* The slot of an item that a get may have now, NULL if it has to wait. */
SHMI_FN shmi_queue_slot *shmi_queue_ready(struct shmi_queue *x, uint32_t *i)
{
    return shmi_fifo_empty(&x->w->getters) ? shmi_queue_first(x, i) : NULL;
}

SHMI_FN void shmi_queue_count(struct shmi_queue *x, uint32_t d)
{
    uint64_t f = shmi_get(&x->w->free);
    shmi_put(&x->w->free, shmi_pair(shmi_low(f), shmi_high(f) + d));
}

/* Makes the item in s the last one. */
SHMI_FN void shmi_queue_number(struct shmi_queue *x, shmi_queue_slot *s)
{
    uint64_t n = shmi_get(&x->w->sequence) + 1;
    shmi_put(&x->w->sequence, n);
    shmi_put(&s->seq, n);
}

/* Links the slot at i as the last of the queue. */
SHMI_FN void shmi_queue_append(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends);
    uint32_t first = i;
    shmi_put(&s->next, 0);
    if (shmi_high(e) != 0) {
        shmi_queue_slot *last = shmi_queue_at(x, shmi_high(e));
        if (last != NULL) {
            first = shmi_low(e);
            shmi_put(&last->next, i);
        } else {
            shmi_set_broken(&x->m, 1);
        }
    }
    shmi_put(&x->w->ends, shmi_pair(first, i));
    shmi_queue_count(x, 1);
}

/* The slot whose next is at i, in the list that begins at from. */
SHMI_FN shmi_queue_slot *shmi_queue_before(struct shmi_queue *x, uint32_t from, uint32_t i)
{
    uint32_t n;
    for (n = 0; n < x->capacity; n++) {
        shmi_queue_slot *s = shmi_queue_at(x, from);
        if (s == NULL)
            break;
        from = (uint32_t)shmi_get(&s->next);
        if (from == i)
            return s;
    }
    shmi_set_broken(&x->m, 1);
    return NULL;
}

/* Takes the slot at i off the list of free ones. It is the first, except after a death. */
SHMI_FN void shmi_queue_unspare(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t f = shmi_get(&x->w->free), next = shmi_get(&s->next);
    shmi_queue_slot *before;
    if (shmi_low(f) == i) {
        shmi_put(&x->w->free, shmi_pair((uint32_t)next, shmi_high(f)));
        return;
    }
    before = shmi_queue_before(x, shmi_low(f), i);
    if (before != NULL)
        shmi_put(&before->next, (uint32_t)next);
}

/* Takes the slot at i out of the queue. It is the first, except after a death. */
SHMI_FN void shmi_queue_unlink(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends);
    uint32_t next = (uint32_t)shmi_get(&s->next), first = shmi_low(e), last = shmi_high(e);
    if (first == i) {
        first = next;
        if (next == 0)
            last = 0;
    } else {
        shmi_queue_slot *before = shmi_queue_before(x, first, i);
        if (before != NULL) {
            shmi_put(&before->next, next);
            if (last == i)
                shmi_set_broken(&x->m, 1); /* so that the last is found */
        }
    }
    shmi_put(&x->w->ends, shmi_pair(first, last));
    shmi_queue_count(x, UINT32_MAX);
}

/* Links the slot at i into the queue where its number belongs: mostly at the front. */
SHMI_FN void shmi_queue_insert(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends), seq = shmi_get(&s->seq);
    shmi_queue_slot *last = shmi_queue_at(x, shmi_high(e)), *before = NULL;
    uint32_t at = shmi_low(e), n;
    if (last == NULL || shmi_get(&last->seq) < seq) {
        shmi_queue_append(x, i, s);
        return;
    }
    for (n = 0; n < x->capacity; n++) {
        shmi_queue_slot *t = shmi_queue_at(x, at);
        if (t == NULL) {
            shmi_set_broken(&x->m, 1); /* the last is behind */
            break;
        }
        if (shmi_get(&t->seq) > seq)
            break;
        before = t;
        at = (uint32_t)shmi_get(&t->next);
    }
    shmi_put(&s->next, at);
    if (before != NULL)
        shmi_put(&before->next, i);
    else
        shmi_put(&x->w->ends, shmi_pair(i, shmi_high(e)));
    shmi_queue_count(x, 1);
}

/* Puts the item into the queue that was written to the free slot at i. */
SHMI_FN void shmi_queue_add(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    shmi_queue_number(x, s);
    SHMSYNC_CRASHPOINT("queue.add.written");
    shmi_put(&s->state, shmi_queue_state(SHMI_queueFull, 0, 0));
    SHMSYNC_CRASHPOINT("queue.add.committed");
    shmi_queue_unspare(x, i, s);
    shmi_queue_append(x, i, s);
}

/* Gives the item at i, in the queue, to this process. */
SHMI_FN void shmi_queue_take(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, uint32_t cls)
{
    shmi_put(&s->state, shmi_queue_to(shmi_get(&s->state), cls, x->m.a->self));
    SHMSYNC_CRASHPOINT("queue.take.committed");
    shmi_queue_unlink(x, i, s);
    shmi_put(&x->w->out, shmi_get(&x->w->out) + 1);
}

/* Makes the slot at i free: its item was copied, or done with. */
SHMI_FN void shmi_queue_drop(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, int in_queue)
{
    uint64_t f;
    shmi_put(&s->state, 0);
    SHMSYNC_CRASHPOINT("queue.drop.committed");
    if (in_queue)
        shmi_queue_unlink(x, i, s);
    else
        shmi_put(&x->w->out, shmi_get(&x->w->out) - 1);
    f = shmi_get(&x->w->free);
    shmi_put(&s->next, shmi_low(f));
    shmi_put(&x->w->free, shmi_pair(i, shmi_high(f)));
}

/* Puts the item at i, which is out, back to its place in the queue. */
SHMI_FN void shmi_queue_give_back(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, uint64_t st)
{
    shmi_put(&s->state, shmi_queue_state(SHMI_queueFull, 0, shmi_high(st)));
    SHMSYNC_CRASHPOINT("queue.back.committed");
    shmi_put(&x->w->out, shmi_get(&x->w->out) - 1);
    shmi_queue_insert(x, i, s);
}

struct shmi_numbered {
    uint64_t seq;
    uint32_t i;
};

SHMI_FN int shmi_by_number(const void *p, const void *q)
{
    const struct shmi_numbered *x = (const struct shmi_numbered *)p, *y = (const struct shmi_numbered *)q;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Makes order, free list and counts anew from the slots. */
SHMI_FN void shmi_queue_index(struct shmi_queue *x)
{
    struct shmi_numbered *full = NULL;
    uint64_t out = 0, sequence = shmi_get(&x->w->sequence);
    uint32_t i, n_full = 0, n = 0, free_ = 0;
    for (i = x->capacity; i > 0; i--) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_get(&s->state), seq = shmi_get(&s->seq);
        if (!shmi_queue_valid(st)) { /* a peer wrote that */
            st = 0;
            shmi_put(&s->state, 0);
        }
        if (shmi_queue_kind(st) == SHMI_queueFree) {
            shmi_put(&s->next, free_);
            free_ = i;
            continue;
        }
        if (shmi_queue_kind(st) == SHMI_queueFull)
            n_full++;
        else
            out++;
        if (seq > sequence)
            sequence = seq;
    }
    shmi_put(&x->w->sequence, sequence);
    shmi_put(&x->w->out, out);
    shmi_put(&x->w->free, shmi_pair(free_, 0));
    shmi_put(&x->w->ends, 0);
    if (n_full == 0)
        return;
    full = (struct shmi_numbered *)malloc(n_full * sizeof *full);
    for (i = 1; i <= x->capacity; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        if (shmi_queue_kind(shmi_get(&s->state)) != SHMI_queueFull)
            continue;
        if (full == NULL) {
            shmi_queue_insert(x, i, s); /* slower, and it needs no memory */
        } else if (n < n_full) { /* or a peer makes them more */
            full[n].seq = shmi_get(&s->seq);
            full[n++].i = i;
        }
    }
    if (n > 1)
        qsort(full, n, sizeof *full, shmi_by_number);
    for (i = 0; i < n; i++)
        shmi_queue_append(x, full[i].i, shmi_queue_at(x, full[i].i));
    free(full);
}

SHMI_FN void *shmi_claimed_block(shmsync_arena *a, shmi_off off, uint64_t size, shmi_participant_id owner);

/* The rules. */

SHMI_FN shmi_list_words *shmi_queue_fifo(struct shmi_queue *x, struct shmi_wait w)
{
    return shmi_class_of(w) == SHMI_queuePut ? &x->w->putters : &x->w->getters;
}
SHMI_FN void shmi_queue_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, shmi_queue_fifo((struct shmi_queue *)m, w), w); }
SHMI_FN void shmi_queue_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, shmi_queue_fifo((struct shmi_queue *)m, w), w); }
SHMI_FN void shmi_queue_clear(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_fifo_clear(&x->w->getters);
    shmi_fifo_clear(&x->w->putters);
    shmi_queue_index(x);
}
SHMI_FN void shmi_queue_discard_dead(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_fifo_discard_dead(m, &x->w->getters);
    shmi_fifo_discard_dead(m, &x->w->putters);
}

/* Makes the change that a wait which was granted something stands for. */
SHMI_FN void shmi_queue_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint64_t f = shmi_get(&w.n->extra), st;
    uint32_t i = shmi_outcome_aux(f), cls = shmi_outcome_class(f);
    shmi_queue_slot *s = shmi_queue_at(x, i);
    struct shmi_change c;
    c.n = 0;
    if (shmi_outcome_result(f) != SHMI_queueGranted || s == NULL) {
        shmi_mon_account(m, w, NULL);
        return;
    }
    st = shmi_get(&s->state);
    if (cls == SHMI_queuePut && shmi_queue_kind(st) == SHMI_queueFree) {
        shmi_queue_number(x, s);
        shmi_change_set(&c, &s->state, shmi_queue_state(SHMI_queueFull, 0, 0));
        shmi_mon_account(m, w, &c);
        shmi_queue_unspare(x, i, s);
        shmi_queue_append(x, i, s);
    } else if (cls != SHMI_queuePut && shmi_queue_kind(st) == SHMI_queueFull) {
        shmi_change_set(&c, &s->state, shmi_queue_to(st, cls, shmi_owner_of(w)));
        shmi_mon_account(m, w, &c);
        shmi_queue_unlink(x, i, s);
        shmi_put(&x->w->out, shmi_get(&x->w->out) + 1);
    } else {
        shmi_mon_account(m, w, NULL); /* a peer wrote that */
    }
}

/* Ends a wait with nothing. */
SHMI_FN void shmi_queue_turn_away(struct shmi_queue *x, struct shmi_wakes *b, struct shmi_wait w, uint32_t result)
{
    if (shmi_mon_end(&x->m, b, w, result, 0))
        shmi_mon_account(&x->m, w, NULL);
}

/* Ends the first wait for an item if that can be. */
SHMI_FN int shmi_queue_resolve_getter(struct shmi_queue *x, struct shmi_wakes *b, int stopped)
{
    struct shmi_wait w = shmi_fifo_head(&x->m, &x->w->getters);
    uint32_t i;
    if (w.n == NULL)
        return 0;
    if (!shmi_mon_waiting(&x->m, w)) {
        shmi_mon_discard(&x->m, w);
        return 1;
    }
    if (shmi_queue_first(x, &i) != NULL) {
        if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, i))
            shmi_queue_account(&x->m, w);
        return 1;
    }
    if (!stopped)
        return 0;
    shmi_queue_turn_away(x, b, w, SHMI_queueStopped);
    return 1;
}

/* The same for a wait for room: the item is copied, and if the wait is still there it is in the queue. */
SHMI_FN int shmi_queue_resolve_putter(struct shmi_queue *x, struct shmi_wakes *b, int stopped)
{
    struct shmi_wait w = shmi_fifo_head(&x->m, &x->w->putters);
    shmi_queue_slot *s;
    shmi_participant_id owner;
    uint32_t i;
    void *block;
    if (w.n == NULL)
        return 0;
    if (!shmi_mon_waiting(&x->m, w)) {
        shmi_mon_discard(&x->m, w);
        return 1;
    }
    if (stopped) {
        shmi_queue_turn_away(x, b, w, SHMI_queueStopped);
        return 1;
    }
    s = shmi_queue_spare(x, &i);
    if (s == NULL)
        return 0;
    owner = shmi_owner_of(w);
    block = shmi_claimed_block(x->m.a, shmi_get(&w.n->wanted), x->item, owner);
    if (block != NULL) {
        memcpy(shmi_queue_item(s), block, x->item);
        SHMSYNC_CRASHPOINT("queue.put.copied");
        if (!shmi_mon_current(&x->m, owner))
            shmi_mon_discard(&x->m, w); /* the block may have been another's */
        else if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, i))
            shmi_queue_account(&x->m, w);
    } else if (shmi_mon_current(&x->m, owner)) {
        shmi_queue_turn_away(x, b, w, SHMI_queueCorrupt);
    } else {
        shmi_mon_discard(&x->m, w);
    }
    return 1;
}

SHMI_FN void shmi_queue_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    int stopped = shmi_get(&x->w->stopped) != 0;
    while (!shmi_is_broken(m) && (shmi_queue_resolve_getter(x, b, stopped) || shmi_queue_resolve_putter(x, b, stopped))) {
    }
}

SHMI_FN void shmi_queue_reap(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint32_t i;
    if (shmi_get(&x->w->out) == 0)
        return;
    for (i = 1; i <= x->capacity; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_get(&s->state);
        if (shmi_queue_out(st) && shmi_mon_gone(m, shmi_queue_name(st)))
            shmi_queue_give_back(x, i, s, st);
    }
}
SHMI_FN void shmi_queue_holders(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_participant_id last = 0;
    uint32_t i;
    if (shmi_get(&x->w->out) == 0)
        return;
    for (i = 1; i <= x->capacity; i++) {
        uint64_t st = shmi_get(&shmi_queue_at(x, i)->state);
        if (shmi_queue_out(st) && shmi_queue_name(st) != last) {
            last = shmi_queue_name(st);
            shmi_mon_heed(m, last);
        }
    }
}

static __attribute__((unused)) const struct shmi_rules shmi_queue_rules = {
    shmi_queue_resolve, shmi_queue_account, shmi_queue_clear, shmi_queue_requeue, shmi_queue_detach,
    shmi_queue_discard_dead, shmi_queue_reap, shmi_queue_holders, NULL,
};

/* Gives the queue lock back after a change that may have let others go on. */
SHMI_FN void shmi_queue_leave(struct shmi_queue *x, shmi_list_words *others)
{
    struct shmi_wakes b;
    if (shmi_fifo_empty(others)) {
        shmi_mon_leave(&x->m, NULL);
        return;
    }
    shmi_wakes_init(&b);
    shmi_queue_resolve(&x->m, &b);
    shmi_mon_leave(&x->m, &b);
}

/* Takes the queue lock for a call that does not wait, if that does not take long. */
SHMI_FN int shmi_queue_try_enter(struct shmi_queue *x, shmi_list_words *line)
{
    struct shmi_wakes b;
    if (!shmi_mon_try_enter(&x->m))
        return 0;
    if (shmi_fifo_empty(line))
        return 1;
    /* Perhaps the waiters are dead. */
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&x->m, &b);
    shmi_mon_leave(&x->m, &b);
    return shmi_mon_try_enter(&x->m);
}

/* The first bytes of a block that owner has claimed, at an offset that came from a peer; NULL where no such block is. */
SHMI_FN void *shmi_claimed_block(shmsync_arena *a, shmi_off off, uint64_t size, shmi_participant_id owner)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || size > b.size || shmi_ld32(b.word) != shmi_make_block(SHMI_blockClaimed, owner))
        return NULL;
    return shmi_ptr(a, off, size, 1);
}

SHMI_FN void shmi_queue_unstage(struct shmi_queue *x, uint64_t off)
{
    if (off != 0 && !shmi_cas64(&x->stage, 0, off))
        shmi_unclaim(x->m.a, off);
}

/* A put that has to wait, with the queue lock held, which it leaves. */
SHMI_FN int shmi_queue_put_slow(struct shmi_queue *x, const void *item, int64_t abs)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    shmi_queue_slot *s;
    uint64_t off = 0, outcome = 0;
    uint32_t i;
    void *block = NULL;
    int err = 0, again;
    shmi_wakes_init(&b);
    for (;;) {
        shmi_mon_reap_if_due(m, &b);
        if (shmi_get(&x->w->stopped) != 0) {
            err = ECANCELED;
            break;
        }
        s = shmi_queue_room(x, &i);
        if (s != NULL) {
            memcpy(shmi_queue_item(s), item, x->item);
            shmi_queue_add(x, i, s);
            shmi_queue_resolve(m, &b);
            break;
        }
        if (block == NULL) {
            off = shmi_xchg64(&x->stage, 0);
            if (off == 0) {
                shmi_mon_leave(m, NULL);
                err = shmi_claim(m->a, x->item, &off);
                if (err == 0)
                    err = shmi_mon_enter(m, abs);
                if (err != 0)
                    goto left;
            }
            block = shmi_claimed_block(m->a, off, x->item, m->a->self);
            if (block == NULL) {
                off = 0; /* a peer overwrote what says that it is ours */
                err = EPROTO;
                break;
            }
            continue;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0)
            goto left;
        if (again)
            continue;
        memcpy(block, item, x->item);
        SHMSYNC_CRASHPOINT("queue.put.staged");
        shmi_mon_join(m, wait_node, SHMI_queuePut, off);
        shmi_mon_leave(m, &b);
        err = shmi_mon_await(m, wait_node, abs, &outcome);
        wait_node = NULL;
        if (err == 0 && shmi_outcome_result(outcome) != SHMI_queueGranted)
            err = shmi_outcome_result(outcome) == SHMI_queueStopped ? ECANCELED : EPROTO;
        shmi_queue_unstage(x, off);
        return err;
    }
    shmi_mon_leave(m, &b);
left:
    shmi_mon_wake(m, &b);
    shmi_mon_return_node(m, wait_node);
    shmi_queue_unstage(x, off);
    return err;
}

/* Takes the queue lock and finds the slot that this process was given: the granter wakes us before it has written that down. */
SHMI_FN shmi_queue_slot *shmi_queue_given(struct shmi_queue *x, uint32_t i, uint32_t cls, int *err)
{
    shmi_queue_slot *s;
    *err = shmi_mon_enter(&x->m, 0);
    if (*err != 0)
        return NULL;
    s = shmi_queue_at(x, i);
    if (s != NULL) {
        uint64_t st = shmi_get(&s->state);
        if (shmi_queue_kind(st) == (cls == SHMI_queueLease ? SHMI_queueLeased : SHMI_queueGiven) && shmi_queue_name(st) == x->m.a->self)
            return s;
    }
    shmi_mon_leave(&x->m, NULL);
    *err = EPROTO;
    return NULL;
}

/* Waits, with the queue lock held, until this process has been given an item. If it has, the queue lock is held again. */
SHMI_FN shmi_queue_slot *shmi_queue_wait_item(struct shmi_queue *x, uint32_t cls, int64_t abs, uint32_t *i, int *err)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int again;
    shmi_wakes_init(&b);
    do {
        shmi_queue_slot *s;
        shmi_mon_reap_if_due(m, &b);
        s = shmi_queue_ready(x, i);
        if (s != NULL)
            shmi_queue_take(x, *i, s, cls);
        if (s != NULL || shmi_get(&x->w->stopped) != 0) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            *err = ECANCELED;
            return s == NULL ? NULL : shmi_queue_given(x, *i, cls, err);
        }
        *err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (*err != 0) {
            shmi_mon_wake(m, &b);
            return NULL;
        }
    } while (again);
    shmi_mon_join(m, wait_node, cls, 0);
    shmi_mon_leave(m, &b);
    *err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (*err == 0 && shmi_outcome_result(outcome) == SHMI_queueStopped)
        *err = ECANCELED;
    if (*err != 0)
        return NULL;
    SHMSYNC_CRASHPOINT("queue.get.granted");
    *i = shmi_outcome_aux(outcome);
    return shmi_queue_given(x, *i, cls, err);
}

SHMI_FN int shmi_queue_put(shmsync_queue *q, const void *item, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    shmi_queue_slot *s;
    uint32_t i;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (try_) {
        if (!shmi_queue_try_enter(x, &x->w->putters))
            return EBUSY;
    } else {
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            return err;
    }
    s = shmi_queue_room(x, &i);
    if (s == NULL) {
        if (!try_) {
            err = shmi_mon_begin(&x->m);
            if (err != 0)
                return err;
            err = shmi_queue_put_slow(x, item, abs);
            shmi_mon_finish(&x->m);
            return err;
        }
        err = shmi_get(&x->w->stopped) != 0 ? ECANCELED : EBUSY;
        shmi_mon_leave(&x->m, NULL);
        return err;
    }
    memcpy(shmi_queue_item(s), item, x->item);
    shmi_queue_add(x, i, s);
    shmi_queue_leave(x, &x->w->getters);
    return 0;
}

/* The end of a get whose item is in slot i, with the queue lock held, which it leaves. */
SHMI_FN void shmi_queue_got(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, int in_queue, uint32_t cls, void *item, shmsync_lease *lease)
{
    if (lease == NULL) {
        memcpy(item, shmi_queue_item(s), x->item);
        shmi_queue_drop(x, i, s, in_queue);
        shmi_queue_leave(x, &x->w->putters);
        return;
    }
    if (in_queue)
        shmi_queue_take(x, i, s, cls);
    lease->impl = x;
    lease->serial = shmi_serial_of(x);
    lease->at = i;
    lease->state = shmi_get(&s->state);
    lease->seq = shmi_get(&s->seq);
    lease->attempts = shmi_high(lease->state) - (shmi_high(lease->state) != 0);
    shmi_mon_leave(&x->m, NULL);
    memcpy(item, shmi_queue_item(s), x->item); /* ours: nobody else touches it */
}
SHMI_FN int shmi_queue_get(shmsync_queue *q, void *item, shmsync_lease *lease, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    shmi_queue_slot *s;
    uint32_t i, cls = lease != NULL ? SHMI_queueLease : SHMI_queueGet;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (try_) {
        if (!shmi_queue_try_enter(x, &x->w->getters))
            return EBUSY;
    } else {
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            return err;
    }
    s = shmi_queue_ready(x, &i);
    if (s != NULL) {
        shmi_queue_got(x, i, s, 1, cls, item, lease);
        return 0;
    }
    if (try_) {
        err = shmi_get(&x->w->stopped) != 0 && shmi_low(shmi_get(&x->w->ends)) == 0 ? ECANCELED : EBUSY;
        shmi_mon_leave(&x->m, NULL);
        return err;
    }
    err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    s = shmi_queue_wait_item(x, cls, abs, &i, &err);
    if (s != NULL)
        shmi_queue_got(x, i, s, 0, cls, item, lease);
    shmi_mon_finish(&x->m);
    return s != NULL ? 0 : err;
}

SHMI_FN int shmi_queue_end_lease(shmsync_lease *l, int back)
{
    struct shmi_queue *x = l->impl;
    shmi_queue_slot *s;
    int err;
    if (x == NULL)
        return EPERM;
    err = shmi_use(x->m.a, "queue");
    if (err == 0)
        err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    s = shmi_queue_at(x, l->at);
    if (s == NULL || shmi_get(&s->state) != l->state || shmi_get(&s->seq) != l->seq || shmi_queue_kind(l->state) != SHMI_queueLeased ||
        shmi_queue_name(l->state) != x->m.a->self) {
        shmi_mon_leave(&x->m, NULL);
        return shmi_fail(EPERM, "queue.lease", x->m.queueLock.called, "this process does not have that item on that lease");
    }
    if (back) {
        shmi_queue_give_back(x, l->at, s, l->state);
        shmi_queue_leave(x, &x->w->getters);
    } else {
        shmi_queue_drop(x, l->at, s, 0);
        shmi_queue_leave(x, &x->w->putters);
    }
    l->impl = NULL;
    return 0;
}

/* Whether the body has room for what its immutable words say. */
SHMI_FN int shmi_queue_build(struct shmi_queue *x, shmsync_arena *a, const shmi_object *o)
{
    shmi_queue_words *w;
    if (o->size < sizeof(shmi_queue_words))
        return 0;
    w = (shmi_queue_words *)shmi_ptr(a, o->body, sizeof(shmi_queue_words), 8);
    x->w = w;
    x->item = shmi_ld64(&w->item);
    x->capacity = (uint32_t)shmi_ld64(&w->capacity);
    x->stage = 0;
    if (x->item > SHMI_QUEUE_ITEM_MOST || x->capacity == 0 || x->capacity > SHMI_QUEUE_CAPACITY_MOST || x->capacity != shmi_ld64(&w->capacity) ||
        o->size < sizeof(shmi_queue_words) + (uint64_t)x->capacity * shmi_queue_stride(x->item))
        return 0;
    x->stride = shmi_queue_stride(x->item);
    shmi_mon_init(&x->m, a, o, o->body, &shmi_queue_rules);
    return 1;
}

typedef struct shmi_queue_spec {
    uint32_t capacity, spin;
    uint64_t item;
} shmi_queue_spec;

SHMI_FN void shmi_queue_fill(unsigned char *body, const void *arg)
{
    const shmi_queue_spec *spec = (const shmi_queue_spec *)arg;
    struct shmi_queue x;
    memset(&x, 0, sizeof x);
    x.w = (shmi_queue_words *)(void *)body;
    x.capacity = spec->capacity;
    x.item = spec->item;
    x.stride = shmi_queue_stride(spec->item);
    x.w->capacity = spec->capacity;
    x.w->item = spec->item;
    x.w->mon.spin = spec->spin;
    shmi_queue_index(&x);
}

SHMI_FN void *shmi_queue_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_queue *x = (struct shmi_queue *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x != NULL)
        shmi_queue_build(x, a, o); /* shmi_queue_handle has seen that it can be */
    return x;
}

SHMI_FN void shmi_queue_end(void *handle)
{
    struct shmi_queue *x = (struct shmi_queue *)handle;
    uint64_t stage = shmi_xchg64(&x->stage, 0);
    if (stage != 0)
        shmi_unclaim(x->m.a, stage);
    shmi_free_thing(x);
}

SHMI_FN int shmi_queue_handle(shmsync_arena *a, const shmi_object *o, uint64_t item, uint32_t capacity, shmsync_queue *out)
{
    struct shmi_queue x;
    int err = 0;
    if (!shmi_queue_build(&x, a, o))
        err = shmi_fail(EPROTO, "queue.open", shmi_called(o), "its body has no room for its slots");
    else if (item != x.item || (capacity != 0 && capacity != x.capacity))
        err = shmi_fail(EINVAL, "queue.open", shmi_called(o), "it has a capacity of %u items of %u bytes", x.capacity, (uint32_t)x.item);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    return SHMI_HAND_OUT(out, struct shmi_queue *, shmi_share(a, o, shmi_queue_new, NULL));
}

SHMI_FN int shmi_open_queue(int existing, shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    SHMI_OPTIONS(shmsync_queue_options, 40, "queue.open", out->impl);
    shmi_spec spec;
    shmi_queue_spec init;
    shmi_object o;
    uint32_t capacity = opts != NULL ? opts->capacity : 0;
    int err, created;
    if (item_size > SHMI_QUEUE_ITEM_MOST || capacity > SHMI_QUEUE_CAPACITY_MOST)
        return shmi_fail(EINVAL, "queue.open", name, "a capacity of %u items of %zu bytes", capacity, item_size);
    if (!existing && capacity == 0)
        return shmi_fail(EINVAL, "queue.open", name, "it takes a capacity of at least 1; shmsync_queue_attach opens one that exists");
    memset(&init, 0, sizeof init);
    init.capacity = capacity;
    init.item = item_size;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_QUEUE;
    spec.version = SHMI_VERSION_QUEUE;
    spec.name = name;
    spec.size = sizeof(shmi_queue_words) + (uint64_t)init.capacity * shmi_queue_stride(item_size);
    spec.any_size = 1;
    spec.init = shmi_queue_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_spec_type(&spec, "queue.open", opts != NULL ? opts->layout : 0, opts != NULL ? opts->type : NULL);
    if (err == 0)
        err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_queue_handle(a, &o, item_size, capacity, out);
}
int shmsync_queue_open(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_queue(0, a, name, item_size, opts, out));
}
int shmsync_queue_attach(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_queue(1, a, name, item_size, opts, out));
}

int shmsync_queue_at(shmsync_arena *a, shmsync_offset off, size_t item_size, shmsync_queue *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "queue.open", SHMI_KIND_QUEUE, SHMI_VERSION_QUEUE, sizeof(shmi_queue_words), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_queue_handle(a, &o, item_size, 0, out));
}

int shmsync_queue_close(shmsync_queue *q)
{
    SHMI_OPENED(q);
    int err;
    if (q->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(q->impl->m.a, q->impl->m.o.off, shmi_queue_end);
    if (err == 0)
        q->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_queue_offset(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->m.o.off;
}
int shmsync_queue_put(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_put(q, item, 0, 0));
}
int shmsync_queue_tryput(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_put(q, item, 0, 1));
}
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_put(q, item, ns, 0));
}
int shmsync_queue_get(shmsync_queue *q, void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, NULL, 0, 0));
}
int shmsync_queue_tryget(shmsync_queue *q, void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, NULL, 0, 1));
}
int shmsync_queue_timedget(shmsync_queue *q, void *item, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_get(q, item, NULL, ns, 0));
}

/* A deadline that may be NULL: 0 for none. */
SHMI_FN int shmi_queue_until(const struct timespec *abs_monotonic, int64_t *abs)
{
    *abs = 0;
    return abs_monotonic != NULL ? shmi_deadline(abs_monotonic, abs) : 0;
}
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED(q);
    struct shmi_queue *x = q->impl;
    const unsigned char *from = (const unsigned char *)items;
    int64_t abs;
    int err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    while (err == 0 && *done < n) {
        size_t before = *done;
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            break;
        for (; *done < n; ++*done) {
            uint32_t i;
            shmi_queue_slot *s = shmi_queue_room(x, &i);
            if (s == NULL)
                break;
            memcpy(shmi_queue_item(s), from + *done * x->item, x->item);
            shmi_queue_add(x, i, s);
        }
        if (*done > before) {
            shmi_queue_leave(x, &x->w->getters);
        } else {
            err = shmi_queue_put_slow(x, from + *done * x->item, abs); /* which leaves the queue lock */
            if (err == 0)
                ++*done;
        }
    }
    return SHMI_TELL(err);
}
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED(q);
    struct shmi_queue *x = q->impl;
    unsigned char *to = (unsigned char *)items;
    shmi_queue_slot *s;
    int64_t abs;
    uint32_t i;
    int in_queue, err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    err = shmi_mon_enter(&x->m, abs);
    if (err != 0)
        return SHMI_TELL(err);
    s = shmi_queue_ready(x, &i);
    in_queue = s != NULL;
    if (s == NULL) {
        s = shmi_queue_wait_item(x, SHMI_queueGet, abs, &i, &err);
        if (s == NULL)
            return SHMI_TELL(err);
    }
    while (s != NULL) {
        memcpy(to + *done * x->item, shmi_queue_item(s), x->item);
        shmi_queue_drop(x, i, s, in_queue);
        if (++*done == n)
            break;
        s = shmi_queue_ready(x, &i);
        in_queue = 1;
    }
    shmi_queue_leave(x, &x->w->putters);
    return 0;
}
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, out, 0, 0));
}
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, out, 0, 1));
}
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_get(q, item, out, ns, 0));
}
int shmsync_lease_ack(shmsync_lease *l)
{
    if (l->impl != NULL) /* else it was given back */
        SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 0));
}
int shmsync_lease_nack(shmsync_lease *l)
{
    if (l->impl != NULL) /* else it was given back */
        SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 1));
}
uint32_t shmsync_queue_len(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return shmi_high(shmi_ld64(&q->impl->w->free));
}
uint32_t shmsync_queue_cap(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->capacity;
}

int shmsync_queue_shutdown(shmsync_queue *q)
{
    SHMI_OPENED(q);
    struct shmi_wakes b;
    int err = shmi_use(q->impl->m.a, "queue");
    if (err == 0)
        err = shmi_mon_enter(&q->impl->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_st64(&q->impl->w->stopped, 1);
    shmi_queue_resolve(&q->impl->m, &b);
    shmi_mon_leave(&q->impl->m, &b);
    return 0;
}

uint64_t shmsync_layout(const char *description)
{
    return shmi_type_fingerprint(description);
}

/* The reaper's side. */
SHMI_FN void shmi_repair_queue(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_queue x;
    if (shmi_queue_build(&x, a, o))
        shmi_mon_repair(&x.m, dead);
}
