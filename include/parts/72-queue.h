/*
 * Queues: bounded queues of items of one size. It is prims/queue*.go in C. Items are in slots,
 * and a ring of cells says in which order. Puts and gets that need not wait use no lock; the
 * waiters of the others are those of a monitor.
 */

enum { SHMI_queuePut, SHMI_queueGet, SHMI_queueLease };            /* classes of waits */
enum { SHMI_queueGranted, SHMI_queueStopped, SHMI_queueCorrupt };  /* how they end */
/* kinds of a slot; see queueState of prims/queue_word.go */
enum { SHMI_queueFree, SHMI_queueFull, SHMI_queueTaken, SHMI_queueLeased, SHMI_queueHanding, SHMI_queueGiven, SHMI_queueReturned, SHMI_queueClaimed };
enum { SHMI_queueStoppedFlag = 1, SHMI_queueIrregularFlag = 2 };
#define SHMI_QUEUE_ITEM_MOST 65536u
#define SHMI_QUEUE_CAPACITY_MOST (UINT32_C(1) << 30)
#define SHMI_QUEUE_TAG UINT64_C(0x7fffffff)
#define SHMI_QUEUE_WALK 1000u /* how many more steps than cells in two laps a search takes */

typedef struct shmi_queue_slot {
    uint64_t state;
    uint64_t times; /* how often the item was leased */
    uint64_t stamp; /* of the waiting put whose item it is; 0 for none */
} shmi_queue_slot;

/* Tells whether the holder of the queue lock goes on. */
struct shmi_queue_turn {
    uint32_t holder; /* the owner word; 0 if the queue lock is not held */
    uint64_t turns;
};

struct shmi_queue {
    struct shmi_monitor m;
    shmi_queue_words *w;
    uint32_t capacity, slots, shift;
    uint64_t mask, first; /* the number of cells less 1; where the slots begin */
    uint64_t item, stride;
    uint64_t stage; /* a claimed block that no put uses, 0 if there is none */
    uint64_t seen;  /* a position: no position before it has an item. Atomic. */
    uint32_t watched, orphans, bad; /* as in queueCore. Atomic. */
    struct shmi_queue_turn last;    /* what the last check saw */
};

SHMI_FN uint64_t shmi_queue_stride(uint64_t item) { return sizeof(shmi_queue_slot) + ((item + 7) & ~UINT64_C(7)); }
/* A small queue has spare slots, so that stopped puts and gets, which keep one each, leave room. */
SHMI_FN uint64_t shmi_queue_slots(uint64_t capacity) { return capacity < 64 ? capacity + 8 : capacity; }
SHMI_FN uint32_t shmi_queue_shift(uint64_t slots)
{
    uint32_t shift = 0;
    while ((UINT64_C(1) << shift) < slots)
        shift++;
    return shift;
}
SHMI_FN uint64_t shmi_queue_bytes(uint64_t capacity, uint64_t item)
{
    uint64_t slots = shmi_queue_slots(capacity);
    return sizeof(shmi_queue_words) + (UINT64_C(8) << shmi_queue_shift(slots)) + slots * shmi_queue_stride(item);
}

SHMI_FN uint64_t shmi_queue_state(uint32_t kind, shmi_participant_id n, uint64_t tag) { return n | (uint64_t)kind << 29 | (tag & SHMI_QUEUE_TAG) << 33; }
SHMI_FN uint32_t shmi_queue_kind(uint64_t s) { return (uint32_t)(s >> 29 & 15); }
SHMI_FN shmi_participant_id shmi_queue_name(uint64_t s) { return (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN uint64_t shmi_queue_tag(uint64_t s) { return s >> 33; }
SHMI_FN uint64_t shmi_queue_with(uint64_t s, uint32_t kind, shmi_participant_id n) { return shmi_queue_state(kind, n, shmi_queue_tag(s)); }
SHMI_FN int shmi_queue_is_at(uint64_t s, uint64_t p) { return shmi_queue_kind(s) == SHMI_queueFull && shmi_queue_tag(s) == (p & SHMI_QUEUE_TAG); }
SHMI_FN int shmi_queue_before(uint64_t s, uint64_t t) { return (int32_t)(uint32_t)((shmi_queue_tag(s) - shmi_queue_tag(t)) << 1) < 0; }
SHMI_FN uint64_t shmi_queue_cell(uint32_t lap, uint32_t slot) { return (uint64_t)lap << 32 | slot; }
SHMI_FN uint32_t shmi_queue_lap(const struct shmi_queue *x, uint64_t p) { return (uint32_t)(p >> x->shift); }

SHMI_FN shmi_queue_slot *shmi_queue_at(struct shmi_queue *x, uint32_t i)
{
    if (i - 1 >= x->slots) /* 0 wraps */
        return NULL;
    return (shmi_queue_slot *)(void *)((char *)x->w + x->first + (uint64_t)(i - 1) * x->stride);
}
SHMI_FN void *shmi_queue_item(shmi_queue_slot *s) { return s + 1; }
SHMI_FN uint64_t *shmi_queue_cell_of(struct shmi_queue *x, uint64_t p)
{
    return (uint64_t *)(void *)((char *)x->w + sizeof(shmi_queue_words)) + (p & x->mask);
}

/* What follows needs no lock. A participant that is stopped in the middle of it keeps a slot. */

SHMI_FN int shmi_queue_stopped(struct shmi_queue *x) { return (shmi_ld64(&x->w->flags) & SHMI_queueStoppedFlag) != 0; }
SHMI_FN int shmi_queue_regular(struct shmi_queue *x) { return (shmi_ld64(&x->w->flags) & SHMI_queueIrregularFlag) == 0; }
SHMI_FN void shmi_queue_deviate(struct shmi_queue *x)
{
    if (shmi_queue_regular(x))
        shmi_or64(&x->w->flags, SHMI_queueIrregularFlag);
}
SHMI_FN int shmi_queue_line(shmi_list_words *q) { return shmi_ld64(&q->first) != 0; }

/* Makes the hints anew after a peer overwrote them, and gives that of the tail. */
SHMI_FN uint64_t shmi_queue_heal(struct shmi_queue *x)
{
    uint64_t first = x->mask + 1, p = (shmi_ld64(shmi_queue_cell_of(x, 0)) >> 32) << x->shift;
    if (p < first)
        p = first;
    shmi_st64(&x->w->head, p - x->mask < first ? first : p - x->mask);
    shmi_st64(&x->w->tail, p);
    return p;
}
SHMI_FN uint64_t shmi_queue_hint(struct shmi_queue *x, const uint64_t *hint)
{
    uint64_t p = shmi_ld64(hint);
    return p < x->mask + 1 ? x->mask + 1 : p;
}

/* Finds the first position that is not filled; 0 if a peer overwrote the ring. */
SHMI_FN int shmi_queue_next(struct shmi_queue *x, uint64_t *p, uint64_t *was)
{
    uint64_t n;
    *p = shmi_queue_hint(x, &x->w->tail);
    for (n = 0; n < 2 * x->mask + SHMI_QUEUE_WALK; n++) {
        int32_t d;
        *was = shmi_ld64(shmi_queue_cell_of(x, *p));
        d = (int32_t)((uint32_t)(*was >> 32) - shmi_queue_lap(x, *p));
        if (d == -1)
            return 1;
        if (d >= 0)
            *p += ((uint64_t)(uint32_t)d << x->shift) + 1;
        else
            *p = shmi_queue_heal(x);
    }
    shmi_st32(&x->bad, 1);
    return 0;
}

/* Finds the first position whose item is in the queue, and its slot, which is NULL if the position is not filled. */
SHMI_FN shmi_queue_slot *shmi_queue_front(struct shmi_queue *x, int handing, uint64_t *p, uint32_t *i, uint64_t *st)
{
    uint64_t n;
    *p = shmi_queue_hint(x, &x->w->head);
    for (n = 0; n < 2 * x->mask + SHMI_QUEUE_WALK; n++) {
        uint64_t c = shmi_ld64(shmi_queue_cell_of(x, *p));
        int32_t d = (int32_t)((uint32_t)(c >> 32) - shmi_queue_lap(x, *p));
        if (d == -1)
            return NULL;
        if (d == 0) {
            shmi_queue_slot *s = shmi_queue_at(x, (uint32_t)c);
            if (s != NULL) {
                *st = shmi_ld64(&s->state);
                *i = (uint32_t)c;
                if (shmi_queue_is_at(*st, *p) ||
                    (handing && shmi_queue_kind(*st) == SHMI_queueHanding && shmi_queue_tag(*st) == (*p & SHMI_QUEUE_TAG)))
                    return s;
            }
            ++*p;
        } else if (d > 0) {
            /* A later position has this cell: all before the one a lap earlier than that were taken. */
            *p += ((uint64_t)(uint32_t)(d - 1) << x->shift) + 1;
        } else {
            shmi_queue_heal(x);
            *p = shmi_queue_hint(x, &x->w->head);
        }
    }
    shmi_st32(&x->bad, 1);
    return NULL;
}

/* Whether the slot i in state st, put, is in the queue. */
SHMI_FN int shmi_queue_published(struct shmi_queue *x, uint32_t i, uint64_t st)
{
    uint64_t tag = shmi_queue_tag(st), c = shmi_ld64(shmi_queue_cell_of(x, tag));
    return shmi_queue_kind(st) == SHMI_queueFull && (uint32_t)c == i && ((((c >> 32) << x->shift) | (tag & x->mask)) & SHMI_QUEUE_TAG) == tag;
}

/* How many slots are of the kinds of a set; put ones if they are in the queue. */
SHMI_FN uint32_t shmi_queue_count(struct shmi_queue *x, uint32_t kinds)
{
    uint32_t i, n = 0;
    for (i = 1; i <= x->slots; i++) {
        uint64_t st = shmi_ld64(&shmi_queue_at(x, i)->state);
        uint32_t k = shmi_queue_kind(st);
        n += (kinds >> k & 1) != 0 && (k != SHMI_queueFull || shmi_queue_published(x, i, st));
    }
    return n;
}

/* Whether there is no room for an item at position p, the first that is not filled. */
SHMI_FN int shmi_queue_full(struct shmi_queue *x, uint64_t p)
{
    if ((int64_t)(p - shmi_ld64(&x->seen)) >= (int64_t)x->capacity) {
        uint64_t front, st;
        uint32_t i;
        shmi_queue_front(x, 1, &front, &i, &st);
        shmi_st64(&x->seen, front);
        if ((int64_t)(p - front) >= (int64_t)x->capacity)
            return 1;
    }
    return x->slots > x->capacity && !shmi_queue_regular(x) &&
           shmi_queue_count(x, 1u << SHMI_queueFull | 1u << SHMI_queueLeased | 1u << SHMI_queueHanding | 1u << SHMI_queueReturned) >= x->capacity;
}

/* A slot for an item that a put is about to publish. */
struct shmi_queue_place {
    uint64_t p, was; /* position, and the word of its cell */
    uint32_t i;
    shmi_queue_slot *s;
};

/* Claims a slot; 0 if there is no room. */
SHMI_FN int shmi_queue_reserve(struct shmi_queue *x, struct shmi_queue_place *to)
{
    uint32_t n;
    if (!shmi_queue_next(x, &to->p, &to->was) || shmi_queue_full(x, to->p))
        return 0;
    to->i = (uint32_t)(to->p % x->slots) + 1;
    for (n = 0; n < x->slots; n++) {
        to->s = shmi_queue_at(x, to->i);
        if (shmi_ld64(&to->s->state) == 0 && shmi_cas64(&to->s->state, 0, shmi_queue_state(SHMI_queueClaimed, x->m.a->self, 0))) {
            SHMSYNC_CRASHPOINT("queue.add.claimed");
            shmi_put(&to->s->times, 0);
            return 1;
        }
        if (n == 0 && shmi_queue_regular(x)) {
            uint64_t front, st;
            uint32_t i;
            shmi_queue_front(x, 1, &front, &i, &st);
            if ((int64_t)(to->p - front) >= (int64_t)x->capacity)
                break;
        }
        if (++to->i > x->slots)
            to->i = 1;
    }
    return 0;
}

/* Makes the slot that of no waiting put, before it becomes free. */
SHMI_FN void shmi_queue_forget(shmi_queue_slot *s)
{
    if (shmi_ld64(&s->stamp) != 0)
        shmi_st64(&s->stamp, 0);
}
/* Makes a slot free that is this process's. */
SHMI_FN void shmi_queue_release(shmi_queue_slot *s)
{
    shmi_queue_forget(s);
    shmi_st64(&s->state, 0);
}

/* Puts the item in a slot into the queue. It fails if there is no room any more, or if the queue was shut down; then the slot is free. */
SHMI_FN int shmi_queue_publish(struct shmi_queue *x, struct shmi_queue_place *to)
{
    for (;;) {
        /* The position may have been filled before the slot was ours, with this slot even: then the tag would make an item of it. */
        if (shmi_ld64(shmi_queue_cell_of(x, to->p)) == to->was) {
            __atomic_store_n(&to->s->state, shmi_queue_state(SHMI_queueFull, x->m.a->self, to->p), __ATOMIC_RELEASE);
            SHMSYNC_CRASHPOINT("queue.add.written");
            if (shmi_cas64(shmi_queue_cell_of(x, to->p), to->was, shmi_queue_cell(shmi_queue_lap(x, to->p), to->i))) {
                SHMSYNC_CRASHPOINT("queue.add.committed");
                __atomic_store_n(&x->w->tail, to->p + 1, __ATOMIC_RELEASE);
                if (!shmi_queue_stopped(x))
                    return 1;
                shmi_queue_deviate(x);
                return !shmi_cas64(&to->s->state, shmi_queue_state(SHMI_queueFull, x->m.a->self, to->p), 0);
            }
        }
        if (!shmi_queue_next(x, &to->p, &to->was) || shmi_queue_full(x, to->p)) {
            shmi_queue_release(to->s);
            return 0;
        }
    }
}

SHMI_FN void shmi_queue_tell_returned(struct shmi_queue *x)
{
    uint64_t w;
    do
        w = shmi_ld64(&x->w->returned);
    while (!shmi_cas64(&x->w->returned, w, (w & ~UINT64_C(1)) + 3));
}

/* Makes the item of s, which is out in state st, the first in the queue; 0 if the state has changed. */
SHMI_FN int shmi_queue_give_back(struct shmi_queue *x, shmi_queue_slot *s, uint64_t st)
{
    shmi_queue_deviate(x);
    if (!shmi_cas64(&s->state, st, shmi_queue_with(st, SHMI_queueReturned, (shmi_participant_id)(shmi_ld64(&x->w->returned) >> 1 & SHMI_NAME_MASK))))
        return 0;
    SHMSYNC_CRASHPOINT("queue.back.committed");
    shmi_queue_tell_returned(x);
    return 1;
}

SHMI_FN shmi_queue_slot *shmi_queue_take_returned(struct shmi_queue *x, uint64_t back, uint32_t kind, uint32_t *at)
{
    shmi_queue_slot *first = NULL;
    uint64_t was = 0;
    uint32_t i;
    for (i = 1; i <= x->slots; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_ld64(&s->state);
        if (shmi_queue_kind(st) == SHMI_queueReturned && (first == NULL || shmi_queue_before(st, was))) {
            first = s;
            was = st;
            *at = i;
        }
    }
    if (first == NULL) {
        shmi_cas64(&x->w->returned, back, back & ~UINT64_C(1));
    } else if (shmi_ld64(&x->w->returned) == back && shmi_cas64(&first->state, was, shmi_queue_with(was, kind, x->m.a->self))) {
        SHMSYNC_CRASHPOINT("queue.take.committed");
        return first;
    }
    return NULL;
}

/* Gives the first item to this process; NULL if there is none. */
SHMI_FN shmi_queue_slot *shmi_queue_take(struct shmi_queue *x, uint32_t kind, uint32_t *i)
{
    for (;;) {
        uint64_t back = shmi_ld64(&x->w->returned), p, st = 0;
        shmi_queue_slot *s;
        if ((back & 1) != 0) {
            s = shmi_queue_take_returned(x, back, kind, i);
            if (s != NULL)
                return s;
            continue;
        }
        s = shmi_queue_front(x, 0, &p, i, &st);
        if (shmi_ld64(&x->w->returned) != back)
            continue;
        if (s == NULL) {
            if ((int32_t)((uint32_t)(shmi_ld64(shmi_queue_cell_of(x, p)) >> 32) - shmi_queue_lap(x, p)) < 0 || shmi_ld32(&x->bad) != 0)
                return NULL;
        } else if (shmi_cas64(&s->state, st, shmi_queue_with(st, kind, x->m.a->self))) {
            SHMSYNC_CRASHPOINT("queue.take.committed");
            __atomic_store_n(&x->w->head, p + 1, __ATOMIC_RELEASE);
            return s;
        }
    }
}
SHMI_FN shmi_queue_slot *shmi_queue_take_as(struct shmi_queue *x, uint32_t cls, uint32_t *i)
{
    shmi_queue_slot *s;
    if (cls != SHMI_queueLease)
        return shmi_queue_take(x, SHMI_queueTaken, i);
    shmi_queue_deviate(x);
    s = shmi_queue_take(x, SHMI_queueLeased, i);
    if (s != NULL)
        shmi_put(&s->times, shmi_get(&s->times) + 1);
    return s;
}

/* Puts an item into the queue, if there is room. */
SHMI_FN int shmi_queue_add(struct shmi_queue *x, const void *item)
{
    struct shmi_queue_place to;
    if (shmi_queue_stopped(x) || !shmi_queue_reserve(x, &to))
        return 0;
    memcpy(shmi_queue_item(to.s), item, x->item);
    return shmi_queue_publish(x, &to);
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
    shmi_st32(&x->orphans, 1);
}
SHMI_FN void shmi_queue_discard_dead(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_fifo_discard_dead(m, &x->w->getters);
    shmi_fifo_discard_dead(m, &x->w->putters);
}
SHMI_FN void shmi_queue_step(struct shmi_queue *x) { shmi_put(&x->w->turns, shmi_get(&x->w->turns) + 1); }

/* Puts the item of slot i into the queue, which a waiting put with that stamp has left there, unless that was done; see publishGranted of prims/queue_core.go. */
SHMI_FN int shmi_queue_publish_granted(struct shmi_queue *x, uint32_t i, uint64_t stamp)
{
    shmi_queue_slot *s = shmi_queue_at(x, i);
    for (;;) {
        uint64_t st = shmi_ld64(&s->state), p, was;
        if ((shmi_queue_kind(st) != SHMI_queueFull && shmi_queue_kind(st) != SHMI_queueClaimed) || shmi_ld64(&s->stamp) != stamp)
            return 0;
        if (!shmi_queue_next(x, &p, &was) || shmi_queue_published(x, i, st))
            return 0;
        if (!shmi_cas64(&s->state, st, shmi_queue_state(SHMI_queueFull, x->m.a->self, p)))
            continue;
        if (shmi_cas64(shmi_queue_cell_of(x, p), was, shmi_queue_cell(shmi_queue_lap(x, p), i))) {
            SHMSYNC_CRASHPOINT("queue.add.committed");
            __atomic_store_n(&x->w->tail, p + 1, __ATOMIC_RELEASE);
            return 1;
        }
    }
}

/* Makes the change that a wait which was granted something stands for. */
SHMI_FN void shmi_queue_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint64_t f = shmi_get(&w.n->extra);
    shmi_queue_slot *s = shmi_queue_at(x, shmi_outcome_aux(f));
    if (shmi_outcome_result(f) == SHMI_queueGranted && s != NULL) {
        if (shmi_outcome_class(f) == SHMI_queuePut) {
            shmi_queue_publish_granted(x, shmi_outcome_aux(f), shmi_stamp_of(w));
        } else {
            uint64_t st = shmi_ld64(&s->state);
            if (shmi_queue_kind(st) == SHMI_queueHanding) {
                shmi_cas64(&s->state, st, shmi_queue_with(st, SHMI_queueGiven, shmi_owner_of(w)));
                SHMSYNC_CRASHPOINT("queue.hand.granted");
            }
        }
    }
    shmi_mon_account(m, w, NULL);
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
    shmi_queue_slot *s;
    uint32_t i;
    if (w.n == NULL)
        return 0;
    if (!shmi_mon_waiting(&x->m, w)) {
        shmi_mon_discard(&x->m, w);
        return 1;
    }
    if (shmi_class_of(w) == SHMI_queueLease)
        shmi_queue_deviate(x);
    s = shmi_queue_take(x, SHMI_queueHanding, &i);
    if (s != NULL) {
        uint64_t st = shmi_ld64(&s->state);
        SHMSYNC_CRASHPOINT("queue.hand.claimed");
        if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, i))
            shmi_queue_account(&x->m, w);
        else
            shmi_queue_give_back(x, s, st);
        return 1;
    }
    if (!stopped)
        return 0;
    shmi_queue_turn_away(x, b, w, SHMI_queueStopped);
    return 1;
}

/* The same for a wait for room: the item is copied, the wait is ended, and then the item goes into the queue. */
SHMI_FN int shmi_queue_resolve_putter(struct shmi_queue *x, struct shmi_wakes *b, int stopped)
{
    struct shmi_wait w = shmi_fifo_head(&x->m, &x->w->putters);
    struct shmi_queue_place to;
    shmi_participant_id owner;
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
    if (!shmi_queue_reserve(x, &to))
        return 0;
    shmi_st64(&to.s->stamp, shmi_stamp_of(w));
    owner = shmi_owner_of(w);
    block = shmi_claimed_block(x->m.a, shmi_get(&w.n->wanted), x->item, owner);
    if (block != NULL)
        memcpy(shmi_queue_item(to.s), block, x->item);
    SHMSYNC_CRASHPOINT("queue.put.copied");
    if (!shmi_mon_current(&x->m, owner)) { /* the block may have been another's */
        shmi_queue_release(to.s);
        shmi_mon_discard(&x->m, w);
    } else if (block == NULL) {
        shmi_queue_release(to.s);
        shmi_queue_turn_away(x, b, w, SHMI_queueCorrupt);
    } else if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, to.i)) {
        shmi_queue_account(&x->m, w);
    } else {
        shmi_queue_release(to.s);
    }
    return 1;
}

SHMI_FN void shmi_queue_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    int stopped = shmi_queue_stopped(x);
    shmi_queue_step(x);
    if (shmi_xchg32(&x->orphans, 0) != 0) {
        /* A granter that died was about to hand these over. */
        uint32_t i;
        for (i = 1; i <= x->slots; i++) {
            shmi_queue_slot *s = shmi_queue_at(x, i);
            uint64_t st = shmi_ld64(&s->state);
            if (shmi_queue_kind(st) == SHMI_queueHanding)
                shmi_queue_give_back(x, s, st);
        }
    }
    while (!shmi_is_broken(m) && (shmi_queue_resolve_getter(x, b, stopped) || shmi_queue_resolve_putter(x, b, stopped))) {
    }
}

SHMI_FN void shmi_queue_reap(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint32_t i;
    for (i = 1; i <= x->slots; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_ld64(&s->state), stamp;
        shmi_participant_id n = shmi_queue_name(st);
        if (n == 0)
            continue;
        switch (shmi_queue_kind(st)) {
        case SHMI_queueTaken:
        case SHMI_queueLeased:
        case SHMI_queueGiven:
            if (shmi_mon_gone(m, n))
                shmi_queue_give_back(x, s, st);
            break;
        case SHMI_queueFull:
        case SHMI_queueClaimed:
            stamp = shmi_ld64(&s->stamp);
            if (!shmi_queue_published(x, i, st) && shmi_mon_gone(m, n) && shmi_cas64(&s->state, st, 0) && stamp != 0)
                shmi_cas64(&s->stamp, stamp, 0);
            break;
        }
    }
    shmi_queue_tell_returned(x); /* or a process died after it had returned an item, and before it told */
}
SHMI_FN void shmi_queue_holders(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    const uint32_t most = 4096;
    shmi_participant_id last = 0;
    uint32_t n;
    for (n = 0; n < x->slots && n < most; n++) {
        uint32_t i = __atomic_add_fetch(&x->watched, 1, __ATOMIC_RELAXED) % x->slots + 1;
        uint64_t st = shmi_ld64(&shmi_queue_at(x, i)->state);
        shmi_participant_id name = shmi_queue_name(st);
        if (name != 0 && name != last && name != m->a->self && shmi_queue_kind(st) != SHMI_queueReturned) {
            last = name;
            shmi_mon_heed(m, last);
        }
    }
}

/* Lets the waiters go on that can. It does not wait for the queue lock. */
SHMI_FN void shmi_queue_serve(struct shmi_queue *x)
{
    if (!shmi_mon_try_enter(&x->m)) {
        shmi_st32(&x->m.cleaning_up, 1);
        return;
    }
    shmi_mon_resolve_and_leave(&x->m);
}
SHMI_FN void shmi_queue_tell(struct shmi_queue *x, shmi_list_words *line)
{
    if (shmi_queue_line(line))
        shmi_queue_serve(x);
}

/* The state of the queue lock, to be compared with a later one. */
SHMI_FN struct shmi_queue_turn shmi_queue_now(struct shmi_queue *x)
{
    struct shmi_queue_turn t;
    t.holder = shmi_ld32(x->m.queueLock.own);
    t.turns = shmi_ld64(&x->w->turns);
    if (!shmi_owner_held(t.holder))
        t.holder = 0;
    return t;
}
/* Whether the queue lock was held all the time since before, by one holder that has done nothing. */
SHMI_FN int shmi_queue_stuck(struct shmi_queue *x, struct shmi_queue_turn before)
{
    struct shmi_queue_turn now = shmi_queue_now(x);
    return before.holder != 0 && now.holder == before.holder && now.turns == before.turns;
}

/* The periodic check: if the queue lock is stuck and waiters could go on, they give up their places. */
SHMI_FN void shmi_queue_look(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint64_t p, st;
    uint32_t i;
    int due = 0;
    if (shmi_queue_stuck(x, x->last)) {
        if (shmi_queue_line(&x->w->getters))
            due = shmi_queue_front(x, 0, &p, &i, &st) != NULL || (shmi_ld64(&x->w->returned) & 1) != 0 || shmi_queue_stopped(x);
        if (!due && shmi_queue_line(&x->w->putters) && shmi_queue_next(x, &p, &st))
            due = !shmi_queue_full(x, p) || shmi_queue_stopped(x);
        if (due)
            __atomic_add_fetch(&m->kicks, 1, __ATOMIC_SEQ_CST);
    }
    x->last = shmi_queue_now(x);
}

static __attribute__((unused)) const struct shmi_rules shmi_queue_rules = {
    shmi_queue_resolve, shmi_queue_account, shmi_queue_clear, shmi_queue_requeue, shmi_queue_detach,
    shmi_queue_discard_dead, shmi_queue_reap, shmi_queue_holders, shmi_queue_look,
};

/* For a call that does not wait and finds others in line: perhaps they are dead. Whether the line is empty now. */
SHMI_FN int shmi_queue_reopen(struct shmi_queue *x, shmi_list_words *line)
{
    struct shmi_wakes b;
    if (!shmi_queue_line(line))
        return 1;
    if (!shmi_mon_try_enter(&x->m))
        return 0;
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&x->m, &b);
    shmi_mon_leave(&x->m, &b);
    return !shmi_queue_line(line);
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

/* Takes the queue lock for a call that may wait. While it is stuck, the call is tried without it: then *done is set, and the lock is not held. */
struct shmi_queue_call {
    const void *item;  /* of a put */
    shmi_queue_slot *s; /* of a get */
    uint32_t i, cls;
};
SHMI_FN int shmi_queue_try_call(struct shmi_queue *x, struct shmi_queue_call *c)
{
    if (c->cls == SHMI_queuePut)
        return shmi_queue_add(x, c->item);
    c->s = shmi_queue_take_as(x, c->cls, &c->i);
    return c->s != NULL;
}
SHMI_FN int shmi_queue_lock(struct shmi_queue *x, int64_t abs, struct shmi_queue_call *c, int *done)
{
    const int64_t stuck_after = 50000000; /* ns */
    *done = 0;
    if (shmi_mon_try_enter(&x->m))
        return 0;
    for (;;) {
        struct shmi_queue_turn before = shmi_queue_now(x);
        int64_t until = shmi_now() + stuck_after;
        int last = abs != 0 && abs < until;
        int err = shmi_mon_enter(&x->m, last ? abs : until);
        if (err != ETIMEDOUT || last)
            return err;
        if (shmi_queue_stuck(x, before) && shmi_queue_try_call(x, c)) {
            *done = 1;
            return 0;
        }
    }
}

/* A put that has to wait, with the queue lock held, which it leaves. */
SHMI_FN int shmi_queue_line_up(struct shmi_queue *x, const void *item, int64_t abs)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t off = 0, outcome = 0, stamp;
    void *block = NULL;
    int err = 0, again;
    shmi_wakes_init(&b);
    for (;;) {
        shmi_queue_step(x);
        shmi_mon_reap_if_due(m, &b);
        if (shmi_queue_stopped(x)) {
            err = ECANCELED;
            break;
        }
        if (!shmi_queue_line(&x->w->putters) && shmi_queue_add(x, item)) {
            shmi_queue_resolve(m, &b);
            break;
        }
        if (shmi_ld32(&x->bad) != 0) {
            err = EPROTO;
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
        stamp = shmi_ld64(&wait_node->node->stamp);
        __atomic_add_fetch(&x->w->turns, 1, __ATOMIC_SEQ_CST); /* a full fence: see afterJoin */
        shmi_queue_resolve(m, &b);
        shmi_mon_leave(m, &b);
        err = shmi_mon_await(m, wait_node, abs, &outcome);
        wait_node = NULL;
        if (err == 0 && shmi_outcome_result(outcome) != SHMI_queueGranted)
            err = shmi_outcome_result(outcome) == SHMI_queueStopped ? ECANCELED : EPROTO;
        /* The granter may be stopped before it has put the item into the queue. */
        if (err == 0 && shmi_queue_at(x, shmi_outcome_aux(outcome)) != NULL && shmi_queue_publish_granted(x, shmi_outcome_aux(outcome), stamp))
            shmi_queue_tell(x, &x->w->getters);
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

/* Takes the slot that this process was given: the granter may be stopped before it has written down whose the slot is. */
SHMI_FN shmi_queue_slot *shmi_queue_given(struct shmi_queue *x, uint32_t i, uint32_t cls, int *err)
{
    shmi_queue_slot *s = shmi_queue_at(x, i);
    while (s != NULL) {
        uint64_t st = shmi_ld64(&s->state);
        uint32_t k = shmi_queue_kind(st);
        if (k != SHMI_queueHanding && (k != SHMI_queueGiven || shmi_queue_name(st) != x->m.a->self))
            break;
        if (shmi_cas64(&s->state, st, shmi_queue_with(st, cls == SHMI_queueLease ? SHMI_queueLeased : SHMI_queueTaken, x->m.a->self))) {
            if (cls == SHMI_queueLease)
                shmi_put(&s->times, shmi_get(&s->times) + 1);
            return s;
        }
    }
    *err = EPROTO;
    return NULL;
}

/* A get that has to wait, with the queue lock held, which it leaves. */
SHMI_FN shmi_queue_slot *shmi_queue_line_up_item(struct shmi_queue *x, uint32_t cls, int64_t abs, uint32_t *i, int *err)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int again;
    shmi_wakes_init(&b);
    do {
        shmi_queue_slot *s = NULL;
        shmi_queue_step(x);
        shmi_mon_reap_if_due(m, &b);
        if (!shmi_queue_line(&x->w->getters))
            s = shmi_queue_take_as(x, cls, i);
        if (s != NULL || shmi_queue_stopped(x) || shmi_ld32(&x->bad) != 0) {
            *err = shmi_ld32(&x->bad) != 0 ? EPROTO : ECANCELED;
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return s;
        }
        *err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (*err != 0) {
            shmi_mon_wake(m, &b);
            return NULL;
        }
    } while (again);
    shmi_mon_join(m, wait_node, cls, 0);
    __atomic_add_fetch(&x->w->turns, 1, __ATOMIC_SEQ_CST); /* a full fence: see afterJoin */
    shmi_queue_resolve(m, &b);
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

/* The rest of a put that found no room. */
SHMI_FN int shmi_queue_put_slow(struct shmi_queue *x, const void *item, int64_t abs)
{
    struct shmi_queue_call c;
    int done, err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    c.item = item;
    c.cls = SHMI_queuePut;
    do {
        err = shmi_queue_lock(x, abs, &c, &done);
        if (done)
            shmi_queue_tell(x, &x->w->getters);
        else if (err == 0)
            err = shmi_queue_line_up(x, item, abs);
    } while (err == SHMI_KICKED);
    shmi_mon_finish(&x->m);
    return err;
}

/* The rest of a get or lease that found no item. */
SHMI_FN shmi_queue_slot *shmi_queue_wait_item(struct shmi_queue *x, uint32_t cls, int64_t abs, uint32_t *i, int *err)
{
    struct shmi_queue_call c;
    int done;
    *err = shmi_mon_begin(&x->m);
    if (*err != 0)
        return NULL;
    do {
        c.cls = cls;
        c.s = NULL;
        *err = shmi_queue_lock(x, abs, &c, &done);
        if (done)
            *i = c.i;
        else if (*err == 0)
            c.s = shmi_queue_line_up_item(x, cls, abs, i, err);
    } while (c.s == NULL && *err == SHMI_KICKED);
    shmi_mon_finish(&x->m);
    return c.s;
}

SHMI_FN int shmi_queue_put(shmsync_queue *q, const void *item, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (!shmi_queue_line(&x->w->putters) || (try_ && shmi_queue_reopen(x, &x->w->putters))) {
        if (shmi_queue_add(x, item)) {
            shmi_queue_tell(x, &x->w->getters);
            return 0;
        }
    }
    if (try_)
        return shmi_queue_stopped(x) ? ECANCELED : EBUSY;
    return shmi_queue_put_slow(x, item, abs);
}

SHMI_FN int shmi_queue_get(shmsync_queue *q, void *item, shmsync_lease *lease, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    shmi_queue_slot *s = NULL;
    uint32_t i = 0, cls = lease != NULL ? SHMI_queueLease : SHMI_queueGet;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (!shmi_queue_line(&x->w->getters) || (try_ && shmi_queue_reopen(x, &x->w->getters)))
        s = shmi_queue_take_as(x, cls, &i);
    if (s == NULL) {
        if (try_)
            return shmi_queue_stopped(x) ? ECANCELED : EBUSY;
        s = shmi_queue_wait_item(x, cls, abs, &i, &err);
        if (s == NULL)
            return err;
    }
    memcpy(item, shmi_queue_item(s), x->item);
    if (lease != NULL) {
        lease->impl = x;
        lease->at = i;
        lease->state = shmi_ld64(&s->state);
        lease->times = shmi_get(&s->times);
        lease->attempts = (uint32_t)lease->times - ((uint32_t)lease->times != 0);
        return 0;
    }
    shmi_queue_release(s);
    SHMSYNC_CRASHPOINT("queue.drop.committed");
    shmi_queue_tell(x, &x->w->putters);
    return 0;
}

SHMI_FN int shmi_queue_end_lease(shmsync_lease *l, int back)
{
    struct shmi_queue *x = l->impl;
    shmi_queue_slot *s;
    int err, ended;
    if (x == NULL)
        return EPERM;
    err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    s = shmi_queue_at(x, l->at);
    ended = s != NULL && shmi_ld64(&s->state) == l->state && shmi_get(&s->times) == l->times && shmi_queue_kind(l->state) == SHMI_queueLeased &&
            shmi_queue_name(l->state) == x->m.a->self;
    if (ended && back) {
        ended = shmi_queue_give_back(x, s, l->state);
    } else if (ended) {
        shmi_queue_forget(s);
        ended = shmi_cas64(&s->state, l->state, 0);
        SHMSYNC_CRASHPOINT("queue.drop.committed");
    }
    if (!ended)
        return shmi_fail(EPERM, "queue.lease", x->m.queueLock.called, "this process does not have that item on that lease");
    shmi_queue_tell(x, back ? &x->w->getters : &x->w->putters);
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
    x->stage = x->seen = 0;
    x->watched = x->orphans = x->bad = 0;
    x->last.holder = 0;
    x->last.turns = 0;
    if (x->item > SHMI_QUEUE_ITEM_MOST || x->capacity == 0 || x->capacity > SHMI_QUEUE_CAPACITY_MOST || x->capacity != shmi_ld64(&w->capacity) ||
        o->size < shmi_queue_bytes(x->capacity, x->item))
        return 0;
    x->slots = (uint32_t)shmi_queue_slots(x->capacity);
    x->shift = shmi_queue_shift(x->slots);
    x->mask = (UINT64_C(1) << x->shift) - 1;
    x->first = sizeof(shmi_queue_words) + (UINT64_C(8) << x->shift);
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
    shmi_queue_words *w = (shmi_queue_words *)(void *)body;
    w->capacity = spec->capacity;
    w->item = spec->item;
    w->mon.spin = spec->spin;
    w->tail = w->head = UINT64_C(1) << shmi_queue_shift(shmi_queue_slots(spec->capacity));
}

SHMI_FN void *shmi_queue_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_queue *x = (struct shmi_queue *)malloc(sizeof *x);
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
    free(x);
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
    out->impl = (struct shmi_queue *)shmi_share(a, o, shmi_queue_new, NULL);
    return out->impl != NULL ? 0 : ENOMEM;
}

SHMI_FN int shmi_open_queue(int existing, shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    shmi_spec spec;
    shmi_queue_spec init;
    shmi_object o;
    uint32_t capacity = opts != NULL ? opts->capacity : 0;
    int err, created;
    out->impl = NULL;
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
    spec.size = shmi_queue_bytes(init.capacity != 0 ? init.capacity : 1, item_size);
    spec.any_size = 1;
    spec.layout = opts != NULL ? opts->layout : 0;
    spec.any_layout = spec.layout == 0;
    spec.init = shmi_queue_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_queue_handle(a, &o, item_size, capacity, out);
}
int shmsync_queue_open(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out) { return shmi_open_queue(0, a, name, item_size, opts, out); }
int shmsync_queue_attach(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out) { return shmi_open_queue(1, a, name, item_size, opts, out); }

int shmsync_queue_at(shmsync_arena *a, shmsync_offset off, size_t item_size, shmsync_queue *out)
{
    shmi_object o;
    int err = shmi_object_at(a, off, "queue.open", SHMI_KIND_QUEUE, SHMI_VERSION_QUEUE, sizeof(shmi_queue_words), &o);
    out->impl = NULL;
    return err != 0 ? err : shmi_queue_handle(a, &o, item_size, 0, out);
}

int shmsync_queue_close(shmsync_queue *q)
{
    int err;
    if (q->impl == NULL)
        return EBADF;
    err = shmi_unshare(q->impl->m.a, q->impl->m.o.off, shmi_queue_end);
    if (err == 0)
        q->impl = NULL;
    return err;
}

shmsync_offset shmsync_queue_offset(const shmsync_queue *q) { return q->impl->m.o.off; }
int shmsync_queue_put(shmsync_queue *q, const void *item) { return shmi_queue_put(q, item, 0, 0); }
int shmsync_queue_tryput(shmsync_queue *q, const void *item) { return shmi_queue_put(q, item, 0, 1); }
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic)
{
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return err != 0 ? err : shmi_queue_put(q, item, ns, 0);
}
int shmsync_queue_get(shmsync_queue *q, void *item) { return shmi_queue_get(q, item, NULL, 0, 0); }
int shmsync_queue_tryget(shmsync_queue *q, void *item) { return shmi_queue_get(q, item, NULL, 0, 1); }
int shmsync_queue_timedget(shmsync_queue *q, void *item, const struct timespec *abs_monotonic)
{
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return err != 0 ? err : shmi_queue_get(q, item, NULL, ns, 0);
}

/* A deadline that may be NULL: 0 for none. */
SHMI_FN int shmi_queue_until(const struct timespec *abs_monotonic, int64_t *abs)
{
    *abs = 0;
    return abs_monotonic != NULL ? shmi_deadline(abs_monotonic, abs) : 0;
}
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    struct shmi_queue *x = q->impl;
    const unsigned char *from = (const unsigned char *)items;
    int64_t abs;
    int err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    while (err == 0 && *done < n) {
        size_t before = *done;
        while (*done < n && !shmi_queue_line(&x->w->putters) && shmi_queue_add(x, from + *done * x->item))
            ++*done;
        if (*done > before) {
            shmi_queue_tell(x, &x->w->getters);
        } else {
            err = shmi_queue_put_slow(x, from + *done * x->item, abs);
            if (err == 0)
                ++*done;
        }
    }
    return err;
}
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    struct shmi_queue *x = q->impl;
    unsigned char *to = (unsigned char *)items;
    shmi_queue_slot *s;
    int64_t abs;
    uint32_t i;
    int err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    if (err != 0 || n == 0)
        return err;
    for (; *done < n && !shmi_queue_line(&x->w->getters) && (s = shmi_queue_take(x, SHMI_queueTaken, &i)) != NULL; ++*done) {
        memcpy(to + *done * x->item, shmi_queue_item(s), x->item);
        shmi_queue_release(s);
    }
    if (*done == 0) {
        s = shmi_queue_wait_item(x, SHMI_queueGet, abs, &i, &err);
        if (s == NULL)
            return err;
        memcpy(to, shmi_queue_item(s), x->item);
        shmi_queue_release(s);
        *done = 1;
    }
    shmi_queue_tell(x, &x->w->putters);
    return 0;
}
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out) { return shmi_queue_get(q, item, out, 0, 0); }
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out) { return shmi_queue_get(q, item, out, 0, 1); }
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic)
{
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return err != 0 ? err : shmi_queue_get(q, item, out, ns, 0);
}
int shmsync_lease_ack(shmsync_lease *l) { return shmi_queue_end_lease(l, 0); }
int shmsync_lease_nack(shmsync_lease *l) { return shmi_queue_end_lease(l, 1); }
uint32_t shmsync_queue_len(const shmsync_queue *q)
{
    struct shmi_queue *x = q->impl;
    uint64_t tail, front, st;
    uint32_t i, n = (shmi_ld64(&x->w->returned) & 1) != 0 ? shmi_queue_count(x, 1u << SHMI_queueReturned) : 0;
    if (!shmi_queue_next(x, &tail, &st) || shmi_queue_front(x, 0, &front, &i, &st) == NULL || (int64_t)(tail - front) < 0)
        return n;
    return n + (tail - front < x->slots ? (uint32_t)(tail - front) : x->slots);
}
uint32_t shmsync_queue_cap(const shmsync_queue *q) { return q->impl->capacity; }

int shmsync_queue_shutdown(shmsync_queue *q)
{
    struct shmi_wakes b;
    int err = shmi_use(q->impl->m.a, "queue");
    if (err == 0)
        err = shmi_mon_enter(&q->impl->m, 0);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    shmi_or64(&q->impl->w->flags, SHMI_queueStoppedFlag);
    shmi_queue_resolve(&q->impl->m, &b);
    shmi_mon_leave(&q->impl->m, &b);
    return 0;
}

uint64_t shmsync_layout(const char *description)
{
    uint64_t h = shmi_fnv(description, strlen(description));
    return h != 0 ? h : 1;
}

/* The reaper's side. */
SHMI_FN void shmi_repair_queue(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_queue x;
    if (shmi_queue_build(&x, a, o))
        shmi_mon_repair(&x.m, dead);
}
