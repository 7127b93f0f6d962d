/* Queues: bounded queues of items of one size. This is prims/queue*.go in C. Items are in slots, and a ring of cells
 * gives their order. Slots and cells are the whole state, and no lock guards them. A call that has to wait sleeps
 * until the queue may have changed, and then reads the ring again. */

/* Kinds of a slot; see queueState of prims/queue_word.go. */
enum { SHMI_queueFree, SHMI_queueClaimed, SHMI_queueFull, SHMI_queueTaken, SHMI_queueLeased, SHMI_queueReturned, SHMI_queueKinds };
enum { SHMI_queueStoppedFlag = 1, SHMI_queueIrregularFlag = 2 };
#define SHMI_QUEUE_ITEM_MOST 65536u
#define SHMI_QUEUE_CAPACITY_MOST (UINT32_C(1) << 30)
#define SHMI_QUEUE_TAG UINT64_C(0x7fffffff)
#define SHMI_QUEUE_WALK 1000u /* a walk ends after two laps of the ring and this number of further steps */
#define SHMI_QUEUE_WALKS 16   /* if this number of walks in a row find nothing, and no hint changes, a peer has overwritten the ring */
#define SHMI_QUEUE_LOOK 64u   /* number of slots that a spinning waiter examines */
#define SHMI_QUEUE_CHECK 4096u /* number of slots that a periodic check visits */
#define SHMI_QUEUE_NOTES 4    /* number of words in which processes note that they are about to put an item back */
#define SHMI_QUEUE_USE 64u    /* shmi_queue_words.used grows in steps of this size */
#define SHMI_QUEUE_LEASE_TIMES UINT64_C(0xffff)
#define SHMI_QUEUE_LEASE_SERIAL (UINT64_C(1) << 16)
#define SHMI_QUEUE_LEASE_ENDED (UINT64_C(1) << 31)
#define SHMI_QUEUE_LEASE_UNDATED UINT64_C(0xffffffff) /* all fields of a lease word but the date */

typedef struct shmi_queue_slot {
    uint64_t state;
    uint64_t lease; /* bits: times 16, serial 15, ended 1, date 32; see queueLeaseWord of prims/queue_word.go */
} shmi_queue_slot;

/* A side of the queue, on which calls wait: for items, or for room. */
struct shmi_queue_side {
    shmi_queue_side_words *w;
    shmi_wait_list line;
    int64_t looked;
    uint64_t sum; /* sum of the hints at the last periodic check: it shows whether they have moved. Atomic. */
};

/* The first returned slots that a search through all slots has found; see returnedSlots of prims/queue_returned.go. */
#define SHMI_QUEUE_RETURNED 64u
struct shmi_queue_returned {
    uint32_t busy; /* a thread uses this list. Another thread does not wait for it, but searches the slots itself. Atomic. */
    uint32_t from, to;
    uint32_t all;
    uint64_t at;
    uint64_t state[SHMI_QUEUE_RETURNED];
    uint32_t slot[SHMI_QUEUE_RETURNED];
};

struct shmi_queue {
    shmsync_arena *a;
    shmi_object o;
    shmi_queue_words *w;
    struct shmi_queue_side items, room;
    uint32_t capacity, slots, shift;
    uint64_t mask, first; /* the number of cells less 1; the offset of the first slot */
    uint64_t item, stride;
    uint64_t seen;    /* no position before this one has an item. Atomic. */
    uint32_t watched; /* the slot that a periodic check visited last. Atomic. */
    int64_t tried;    /* when a try call last looked for dead holders; see shmi_check_due */
    struct shmi_queue_returned back;
};

SHMI_FN uint64_t shmi_queue_stride(uint64_t item) { return sizeof(shmi_queue_slot) + ((item + 7) & ~UINT64_C(7)); }
/* The number of slots. A stopped put or get occupies a slot. A small queue has spare slots, so that some stopped calls
 * leave room for other calls. */
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
SHMI_FN uint64_t shmi_queue_tag(uint64_t s) { return s >> 33; }
/* The participant to which the slot belongs, or 0 if it belongs to none. */
SHMI_FN shmi_participant_id shmi_queue_name(uint64_t s) { return shmi_queue_kind(s) == SHMI_queueReturned ? 0 : (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN uint64_t shmi_queue_with(uint64_t s, uint32_t kind, shmi_participant_id n) { return shmi_queue_state(kind, n, shmi_queue_tag(s)); }
SHMI_FN int shmi_queue_is_at(uint64_t s, uint64_t p) { return shmi_queue_kind(s) == SHMI_queueFull && shmi_queue_tag(s) == (p & SHMI_QUEUE_TAG); }
/* Whether the item with the state s was put before the item with the state t. The parameter later is a position behind
 * both items, but less than 2^31 positions behind them: see shmi_queue_later. */
SHMI_FN int shmi_queue_before(uint64_t s, uint64_t t, uint64_t later)
{
    return ((later - shmi_queue_tag(s)) & SHMI_QUEUE_TAG) > ((later - shmi_queue_tag(t)) & SHMI_QUEUE_TAG);
}
SHMI_FN int shmi_queue_valid(uint64_t s)
{
    uint32_t k = shmi_queue_kind(s);
    if (k == SHMI_queueFree)
        return s == 0;
    if (k == SHMI_queueReturned)
        return 1;
    return k < SHMI_queueKinds && shmi_queue_name(s) != 0 && (k != SHMI_queueClaimed || shmi_queue_tag(s) == 0);
}
SHMI_FN uint64_t shmi_queue_cell(uint32_t lap, uint32_t slot) { return (uint64_t)lap << 32 | slot; }
SHMI_FN uint32_t shmi_queue_lap(const struct shmi_queue *x, uint64_t p) { return (uint32_t)(p >> x->shift); }
/* How many laps the cell is ahead of the lap of position p. The parameter cell is the value of the cell. */
SHMI_FN int32_t shmi_queue_ahead(const struct shmi_queue *x, uint64_t cell, uint64_t p)
{
    uint32_t d = (uint32_t)(cell >> 32) - shmi_queue_lap(x, p);
    return d <= INT32_MAX ? (int32_t)d : -(int32_t)(UINT32_MAX - d) - 1;
}
/* Returns p - q, or 0 if position p is before position q. Positions whose difference is a multiple of 2^32 laps count
 * as equal, because shmi_queue_heal does not know how many times the lap number has wrapped. */
SHMI_FN uint64_t shmi_queue_distance(const struct shmi_queue *x, uint64_t p, uint64_t q)
{
    uint64_t d = (p - q) & ((UINT64_C(1) << (32 + x->shift)) - 1);
    return d >> (31 + x->shift) == 0 ? d : 0;
}

SHMI_FN shmi_queue_slot *shmi_queue_at(struct shmi_queue *x, uint32_t i)
{
    if (i - 1 >= x->slots) /* for i = 0, i - 1 wraps, and is too large, too */
        return NULL;
    return (shmi_queue_slot *)(void *)((char *)x->w + x->first + (uint64_t)(i - 1) * x->stride);
}
SHMI_FN void *shmi_queue_item(shmi_queue_slot *s) { return s + 1; }
SHMI_FN uint64_t *shmi_queue_cell_of(struct shmi_queue *x, uint64_t p)
{
    return (uint64_t *)(void *)((char *)x->w + sizeof(shmi_queue_words)) + (p & x->mask);
}

/* The functions that follow take no lock. A participant that is stopped in one of them keeps one slot from others, and
 * nothing else. */

SHMI_FN int shmi_queue_stopped(struct shmi_queue *x) { return (shmi_ld64(&x->w->flags) & SHMI_queueStoppedFlag) != 0; }
SHMI_FN int shmi_queue_regular(struct shmi_queue *x) { return (shmi_ld64(&x->w->flags) & SHMI_queueIrregularFlag) == 0; }
SHMI_FN void shmi_queue_deviate(struct shmi_queue *x)
{
    if (shmi_queue_regular(x))
        shmi_or64(&x->w->flags, SHMI_queueIrregularFlag);
}
/* The number of the last slot that may be in use: no slot with a higher number was ever claimed. */
SHMI_FN uint32_t shmi_queue_used(struct shmi_queue *x)
{
    uint64_t n = shmi_ld64(&x->w->used);
    return n < x->slots ? (uint32_t)n : x->slots;
}
/* Whether position p was filled. A cell that is all zero counts as filled in lap 0. */
SHMI_FN int shmi_queue_filled(struct shmi_queue *x, uint64_t p) { return shmi_queue_ahead(x, shmi_ld64(shmi_queue_cell_of(x, p)), p) >= 0; }

/* Computes the hints anew. The new hints may be too low. */
SHMI_FN void shmi_queue_heal(struct shmi_queue *x)
{
    /* The addition of 2^32 laps does not change the lap number, which wraps. It puts the position behind lap 0, which
     * is the lap of an all-zero cell. */
    uint64_t p = ((shmi_ld64(shmi_queue_cell_of(x, 0)) >> 32) + (UINT64_C(1) << 32)) << x->shift;
    shmi_st64(&x->w->head, p - x->mask);
    shmi_st64(&x->w->tail, p);
    shmi_st64(&x->seen, 0);
}

/* What a step of a walk has found. */
enum { SHMI_queueFound, SHMI_queueOn, SHMI_queueImpossible };
struct shmi_queue_found {
    uint64_t p;
    uint64_t was; /* value of the cell at the first position that is not filled */
    uint32_t i;
    shmi_queue_slot *s; /* NULL: there is no item, and position p is not filled */
    uint64_t st;
};
/* A step of the search for the first position that is not filled. */
SHMI_FN int shmi_queue_step_next(struct shmi_queue *x, struct shmi_queue_found *f)
{
    int32_t d;
    f->was = shmi_ld64(shmi_queue_cell_of(x, f->p));
    d = shmi_queue_ahead(x, f->was, f->p);
    if (d == -1 && shmi_queue_filled(x, f->p - 1))
        return SHMI_queueFound;
    if (d < 0)
        return SHMI_queueImpossible;
    f->p += ((uint64_t)(uint32_t)d << x->shift) + 1;
    return SHMI_queueOn;
}
/* A step of the search for the first position with an item. */
SHMI_FN int shmi_queue_step_front(struct shmi_queue *x, struct shmi_queue_found *f)
{
    uint64_t c = shmi_ld64(shmi_queue_cell_of(x, f->p));
    int32_t d = shmi_queue_ahead(x, c, f->p);
    f->s = NULL;
    if (d == -1 && shmi_queue_filled(x, f->p - 1))
        return SHMI_queueFound;
    if (d < 0)
        return SHMI_queueImpossible;
    if (d == 0) {
        f->s = shmi_queue_at(x, (uint32_t)c);
        if (f->s != NULL) {
            f->st = shmi_ld64(&f->s->state);
            f->i = (uint32_t)c;
            if (shmi_queue_is_at(f->st, f->p))
                return SHMI_queueFound;
        }
        f->p++;
        return SHMI_queueOn;
    }
    /* The cell already has an item of a later lap. So the item that the cell had in the lap before is taken, and so are
     * all items before it. */
    f->p += ((uint64_t)(uint32_t)(d - 1) << x->shift) + 1;
    return SHMI_queueOn;
}
/* Walks the ring from a hint on. Returns 0 if a peer has overwritten the ring. */
SHMI_FN int shmi_queue_walk(struct shmi_queue *x, const uint64_t *hint, int (*step)(struct shmi_queue *, struct shmi_queue_found *), struct shmi_queue_found *f)
{
    int walks;
    for (walks = 0; walks < SHMI_QUEUE_WALKS; walks++) {
        uint64_t tail = shmi_ld64(&x->w->tail), head = shmi_ld64(&x->w->head), n;
        f->p = shmi_ld64(hint);
        if (f->p <= x->mask)
            f->p = x->mask + 1;
        for (n = 0; n < 2 * x->mask + SHMI_QUEUE_WALK; n++) {
            int found = step(x, f);
            if (found == SHMI_queueFound)
                return 1;
            if (found == SHMI_queueImpossible)
                break;
        }
        if (tail != shmi_ld64(&x->w->tail) || head != shmi_ld64(&x->w->head))
            walks = 0; /* other calls have made progress, and have overtaken this walk */
        shmi_queue_heal(x);
    }
    return 0;
}
SHMI_FN int shmi_queue_next(struct shmi_queue *x, struct shmi_queue_found *f)
{
    /* Try the hint first: usually it is the position of the last item. */
    f->p = shmi_ld64(&x->w->tail);
    if (f->p > x->mask && shmi_queue_filled(x, f->p)) {
        f->p++;
        f->was = shmi_ld64(shmi_queue_cell_of(x, f->p));
        if (shmi_queue_ahead(x, f->was, f->p) == -1)
            return 1;
    }
    return shmi_queue_walk(x, &x->w->tail, shmi_queue_step_next, f);
}
SHMI_FN int shmi_queue_front(struct shmi_queue *x, struct shmi_queue_found *f) { return shmi_queue_walk(x, &x->w->head, shmi_queue_step_front, f); }

/* Whether slot i, in state st, has been put in the ring. */
SHMI_FN int shmi_queue_published(struct shmi_queue *x, uint32_t i, uint64_t st)
{
    uint64_t tag = shmi_queue_tag(st), c = shmi_ld64(shmi_queue_cell_of(x, tag));
    return shmi_queue_kind(st) == SHMI_queueFull && (uint32_t)c == i && ((((c >> 32) << x->shift) | (tag & x->mask)) & SHMI_QUEUE_TAG) == tag;
}
/* How many slots are of the kinds in a set. A full slot counts only if its item is in the ring. */
SHMI_FN uint32_t shmi_queue_count(struct shmi_queue *x, uint32_t kinds)
{
    uint32_t i, n = 0, used = shmi_queue_used(x);
    for (i = 1; i <= used; i++) {
        uint64_t st = shmi_ld64(&shmi_queue_at(x, i)->state);
        uint32_t k = shmi_queue_kind(st);
        n += (kinds >> k & 1) != 0 && (k != SHMI_queueFull || shmi_queue_published(x, i, st));
    }
    return n;
}
/* Whether there is no room for an item at position p, the first position that is not filled. Returns -1 if a peer has
 * overwritten the ring. */
SHMI_FN int shmi_queue_full(struct shmi_queue *x, uint64_t p)
{
    if (p - shmi_ld64(&x->seen) >= x->capacity) { /* true, too, if p is before seen */
        struct shmi_queue_found f;
        uint64_t d;
        if (!shmi_queue_front(x, &f))
            return -1;
        d = shmi_queue_distance(x, p, f.p);
        if (d > x->mask + 1)
            return -1;
        shmi_st64(&x->seen, p - d);
        if (d >= x->capacity)
            return 1;
    }
    return x->slots > x->capacity && !shmi_queue_regular(x) &&
           shmi_queue_count(x, 1u << SHMI_queueFull | 1u << SHMI_queueLeased | 1u << SHMI_queueReturned) >= x->capacity;
}

/* A slot that a put has claimed: s is the slot, and i its number. p is the position for the item. At the time of the
 * claim, position p was not filled, and its cell had the value was. */
struct shmi_queue_claimed {
    uint64_t p, was;
    uint32_t i;
    shmi_queue_slot *s;
};
SHMI_FN uint32_t shmi_queue_begin(struct shmi_queue *x, uint64_t p) { return (uint32_t)(p - (x->mask + 1)) % x->slots + 1; }
/* Raises shmi_queue_words.used, because slot i is about to be claimed. */
SHMI_FN void shmi_queue_use(struct shmi_queue *x, uint32_t i)
{
    uint64_t to = ((uint64_t)i + SHMI_QUEUE_USE - 1) & ~(uint64_t)(SHMI_QUEUE_USE - 1), n;
    if (to > x->slots)
        to = x->slots;
    do
        n = shmi_ld64(&x->w->used);
    while (n < i && !shmi_cas64(&x->w->used, n, to));
}
SHMI_FN int shmi_queue_claim_slot(struct shmi_queue *x, struct shmi_queue_claimed *c)
{
    uint32_t n;
    c->i = shmi_queue_begin(x, c->p);
    for (n = 0; n < x->slots; n++) {
        c->s = shmi_queue_at(x, c->i);
        if (shmi_ld64(&c->s->state) == 0) {
            if (c->i > (uint32_t)shmi_ld64(&x->w->used))
                shmi_queue_use(x, c->i);
            if (shmi_cas64(&c->s->state, 0, shmi_queue_state(SHMI_queueClaimed, x->a->self, 0))) {
                SHMSYNC_CRASHPOINT("queue.add.claimed");
                return 1;
            }
        }
        if (++c->i > x->slots)
            c->i = 1;
    }
    return 0;
}
/* Claims a slot for an item. Returns 1, 0 if there is no room, or -1 if a peer has overwritten the ring. The caller
 * reads shmi_queue_leaves before it stores to the slot. */
SHMI_FN int shmi_queue_claim(struct shmi_queue *x, struct shmi_queue_claimed *c)
{
    int healed = 0;
    for (;;) {
        struct shmi_queue_found f;
        int full = shmi_queue_next(x, &f) ? shmi_queue_full(x, f.p) : -1;
        if (full < 0) {
            if (healed)
                return -1;
            healed = 1;
            shmi_queue_heal(x);
            continue;
        }
        c->p = f.p;
        c->was = f.was;
        if (!full && shmi_queue_claim_slot(x, c))
            return 1;
        /* If the position is still not filled, no put has added an item since this round found the position. So the
         * queue had no room at that time. */
        if (shmi_ld64(shmi_queue_cell_of(x, c->p)) == c->was)
            return 0;
    }
}

SHMI_FN shmi_tuning shmi_queue_tuning(struct shmi_queue *x, struct shmi_queue_side *side)
{
    shmi_tuning t;
    t.budget = &x->w->spin;
    t.pays = &side->w->pays;
    t.last_cpu = &side->w->lastCPU;
    t.slot = x->a->my_slot;
    return t;
}
/* Wakes a waiter of a side, if a waiter has announced itself. There are n more items, or n more free places, for this
 * side. */
SHMI_FN void shmi_queue_tell(struct shmi_queue *x, struct shmi_queue_side *side, size_t n)
{
    if (n > 0 && shmi_wake_word_announced(&side->line)) {
        shmi_tuning t = shmi_queue_tuning(x, side);
        shmi_note_cpu(&t); /* a waiter may read the note */
        shmi_wake_word_release(x->a, &side->line);
    }
}

/* Frees a slot that this call has claimed. The call does nothing if this process has left the arena, because then a
 * reaper has taken the slot back. */
SHMI_FN void shmi_queue_unclaim(struct shmi_queue *x, shmi_queue_slot *s)
{
    uint64_t st = shmi_ld64(&s->state);
    if (shmi_queue_name(st) == x->a->self && shmi_cas64(&s->state, st, 0))
        shmi_queue_tell(x, &x->room, 1); /* another put may have found no free slot */
}
/* Puts the item of a claimed slot into the queue. Returns 0, EBUSY if there is no room, ECANCELED or EPROTO. After a
 * failure, the slot is free again. */
SHMI_FN int shmi_queue_publish(struct shmi_queue *x, struct shmi_queue_claimed *c)
{
    for (;;) {
        struct shmi_queue_found f;
        int full;
        /* Check the cell before the slot gets the tag of the position. Another put may have filled the position before
         * this call claimed the slot, and that put may have used this slot. In this case the tag would make the slot an
         * item of the queue at once. */
        if (shmi_ld64(shmi_queue_cell_of(x, c->p)) == c->was) {
            uint64_t st = shmi_queue_state(SHMI_queueFull, x->a->self, c->p);
            __atomic_store_n(&c->s->state, st, __ATOMIC_RELEASE);
            SHMSYNC_CRASHPOINT("queue.add.written");
            /* The hint is stored before the CAS, because another thread may delete the object as soon as the item is in
             * the queue. After the CAS, this call stores something only if a waiter is announced. */
            __atomic_store_n(&x->w->tail, c->p, __ATOMIC_RELEASE);
            if (shmi_cas64(shmi_queue_cell_of(x, c->p), c->was, shmi_queue_cell(shmi_queue_lap(x, c->p), c->i))) {
                SHMSYNC_CRASHPOINT("queue.add.committed");
                if (SHMI_LIKELY(!shmi_queue_stopped(x)))
                    return 0;
                shmi_queue_deviate(x);
                return shmi_cas64(&c->s->state, st, 0) ? ECANCELED : 0; /* if this CAS fails, a get already has the item, so the put has succeeded */
            }
        }
        full = shmi_queue_next(x, &f) ? shmi_queue_full(x, f.p) : -1;
        if (full != 0) {
            shmi_queue_unclaim(x, c->s);
            return full < 0 ? EPROTO : EBUSY;
        }
        c->p = f.p;
        c->was = f.was;
    }
}

SHMI_FN void shmi_queue_tell_returned(struct shmi_queue *x)
{
    uint64_t w;
    do
        w = shmi_ld64(&x->w->returned);
    while (!shmi_cas64(&x->w->returned, w, (w & ~UINT64_C(1)) + 3));
}
/* Notes that this process is about to put the item of slot i back; see queueReturning of prims/queue_word.go. Returns
 * the word with the note, or NULL if no note was made. */
SHMI_FN uint64_t *shmi_queue_note(struct shmi_queue *x, uint32_t i)
{
    int k;
    if (x->slots > SHMI_QUEUE_CHECK)
        for (k = 0; k < SHMI_QUEUE_NOTES; k++) {
            uint64_t *w = &x->w->returning[k];
            if (shmi_ld64(w) == 0 && shmi_cas64(w, 0, (uint64_t)i << 32 | x->a->self))
                return w;
        }
    return NULL;
}
/* Removes the note for slot i from word, which may be NULL. */
SHMI_FN void shmi_queue_unnote(struct shmi_queue *x, uint64_t *word, uint32_t i)
{
    if (word != NULL)
        shmi_cas64(word, (uint64_t)i << 32 | x->a->self, 0);
}
/* If a note names a returned slot, makes the get calls search for returned slots, unless they do so already. Also
 * removes the notes of dead participants. */
SHMI_FN void shmi_queue_check_notes(struct shmi_queue *x)
{
    int k;
    for (k = 0; k < SHMI_QUEUE_NOTES; k++) {
        uint64_t *w = &x->w->returning[k], note = shmi_ld64(w);
        shmi_queue_slot *s;
        if (note == 0)
            continue;
        s = shmi_queue_at(x, (uint32_t)(note >> 32));
        if (s != NULL && shmi_queue_kind(shmi_ld64(&s->state)) == SHMI_queueReturned && (shmi_ld64(&x->w->returned) & 1) == 0)
            shmi_queue_tell_returned(x);
        if (!shmi_current(x->a, (shmi_participant_id)(note & SHMI_NAME_MASK)))
            shmi_cas64(w, note, 0);
    }
}
/* The state of a slot after its item was returned; see queueReturns. */
SHMI_FN uint64_t shmi_queue_back(struct shmi_queue *x, uint64_t st)
{
    return shmi_queue_with(st, SHMI_queueReturned, (shmi_participant_id)(shmi_ld64(&x->w->returned) >> 1 & SHMI_NAME_MASK));
}
/* Returns a position for shmi_queue_before. The position is behind all items that a search of the slots finds, even if
 * other calls put items during the search. The tag of an item gives its order if fewer than two billion items were put
 * after the item. */
SHMI_FN uint64_t shmi_queue_later(struct shmi_queue *x)
{
    struct shmi_queue_found f;
    if (!shmi_queue_next(x, &f)) /* the search is needed because the hint may be before the position of an item */
        f.p = shmi_ld64(&x->w->tail); /* a peer has overwritten the ring, so the items have no order */
    return f.p + (1u << 24); /* more items than other calls can put while this call searches the slots */
}
/* Searches all slots for the first returned slots, and stores them in the list x->back. The parameter back is the value
 * of shmi_queue_words.returned. */
SHMI_FN void shmi_queue_look_returned(struct shmi_queue *x, uint64_t back)
{
    struct shmi_queue_returned *r = &x->back;
    uint32_t i, n, used = shmi_queue_used(x);
    uint64_t later = shmi_queue_later(x);
    r->at = back;
    r->from = r->to = 0;
    r->all = 1;
    for (i = 1; i <= used; i++) {
        uint64_t st = shmi_ld64(&shmi_queue_at(x, i)->state);
        if (shmi_queue_kind(st) != SHMI_queueReturned)
            continue;
        if (r->to == SHMI_QUEUE_RETURNED) {
            r->all = 0;
            if (!shmi_queue_before(st, r->state[r->to - 1], later))
                continue;
            r->to--;
        }
        for (n = r->to++; n > 0 && shmi_queue_before(st, r->state[n - 1], later); n--) {
            r->state[n] = r->state[n - 1];
            r->slot[n] = r->slot[n - 1];
        }
        r->state[n] = st;
        r->slot[n] = i;
    }
}
/* Returns the number of the first returned slot, or 0 if there is none. The parameter back is a value of
 * shmi_queue_words.returned. If slots were returned after the caller read this value, the result may be a slot that is
 * not the first. */
SHMI_FN uint32_t shmi_queue_first_returned(struct shmi_queue *x, uint64_t back, uint64_t *st)
{
    struct shmi_queue_returned *r = &x->back;
    uint32_t first = 0, i, used = shmi_queue_used(x);
    uint64_t later;
    if (__atomic_exchange_n(&r->busy, 1, __ATOMIC_ACQUIRE) == 0) {
        if (r->at != back)
            shmi_queue_look_returned(x, back);
        while (first == 0) { /* a further round is needed only if other calls have taken all slots of the list */
            while (first == 0 && r->from < r->to)
                if (shmi_ld64(&shmi_queue_at(x, r->slot[r->from])->state) == r->state[r->from])
                    first = r->slot[r->from];
                else
                    r->from++;
            if (first != 0 || r->all)
                break;
            shmi_queue_look_returned(x, back);
        }
        if (first != 0)
            *st = r->state[r->from];
        __atomic_store_n(&r->busy, 0, __ATOMIC_RELEASE);
        return first;
    }
    later = shmi_queue_later(x);
    for (i = 1; i <= used; i++) {
        uint64_t s = shmi_ld64(&shmi_queue_at(x, i)->state);
        if (shmi_queue_kind(s) == SHMI_queueReturned && (first == 0 || shmi_queue_before(s, *st, later))) {
            *st = s;
            first = i;
        }
    }
    return first;
}
SHMI_FN shmi_queue_slot *shmi_queue_take_returned(struct shmi_queue *x, uint64_t back, uint32_t kind, struct shmi_queue_found *f)
{
    uint64_t was = 0;
    shmi_queue_slot *first;
    f->i = shmi_queue_first_returned(x, back, &was);
    first = shmi_queue_at(x, f->i);
    if (first == NULL) {
        shmi_cas64(&x->w->returned, back, back & ~UINT64_C(1));
    } else if (shmi_ld64(&x->w->returned) == back && shmi_cas64(&first->state, was, shmi_queue_with(was, kind, x->a->self))) {
        SHMSYNC_CRASHPOINT("queue.take.committed");
        f->st = shmi_queue_with(was, kind, x->a->self);
        return first;
    }
    return NULL;
}
/* Takes the first item for this process, and describes it in f. Returns 1, 0 if there is no item, or -1 if a peer has
 * overwritten the ring. */
SHMI_FN int shmi_queue_take(struct shmi_queue *x, uint32_t kind, struct shmi_queue_found *f)
{
    for (;;) {
        uint64_t back = shmi_ld64(&x->w->returned), st;
        if ((back & 1) != 0) {
            f->s = shmi_queue_take_returned(x, back, kind, f);
            if (f->s != NULL)
                return 1;
            continue;
        }
        if (!shmi_queue_front(x, f))
            return -1;
        if (shmi_ld64(&x->w->returned) != back)
            continue;
        if (f->s == NULL) {
            if (!shmi_queue_filled(x, f->p))
                return 0;
            continue;
        }
        st = shmi_queue_with(f->st, kind, x->a->self);
        if (shmi_cas64(&f->s->state, f->st, st)) {
            SHMSYNC_CRASHPOINT("queue.take.committed");
            __atomic_store_n(&x->w->head, f->p + 1, __ATOMIC_RELEASE);
            f->st = st;
            return 1;
        }
    }
}
/* Frees a slot after its item was copied or acknowledged. Returns 0 if this process has left the arena meanwhile. */
SHMI_FN int shmi_queue_drop(shmi_queue_slot *s, uint64_t st)
{
    if (!shmi_cas64(&s->state, st, 0))
        return 0;
    SHMSYNC_CRASHPOINT("queue.drop.committed");
    return 1;
}
SHMI_FN uint32_t shmi_queue_length(struct shmi_queue *x)
{
    struct shmi_queue_found next, f;
    uint64_t n = (shmi_ld64(&x->w->returned) & 1) != 0 ? shmi_queue_count(x, 1u << SHMI_queueReturned) : 0;
    if (shmi_queue_next(x, &next) && shmi_queue_front(x, &f) && f.s != NULL) {
        uint64_t d = shmi_queue_distance(x, next.p, f.p);
        n += d < x->slots ? d : x->slots;
    }
    return (uint32_t)n;
}

/* Makes the item of a slot the first of the queue again. This process has the slot, whose state is st. Returns 0 if this
 * process has left the arena meanwhile. */
SHMI_FN int shmi_queue_put_back(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, uint64_t st)
{
    uint64_t *note;
    int back;
    shmi_queue_deviate(x);
    note = shmi_queue_note(x, i);
    SHMSYNC_CRASHPOINT("queue.back.noted");
    back = shmi_cas64(&s->state, st, shmi_queue_back(x, st));
    if (back) {
        SHMSYNC_CRASHPOINT("queue.back.committed");
        shmi_queue_tell_returned(x);
    }
    shmi_queue_unnote(x, note, i);
    return back;
}

/* ---- Calls beside the close of the arena ---- */

/* Whether this process leaves the arena, and does not wait for this call, which has just claimed or leased a slot. Then
 * the call stores nothing to the slot without a CAS. See shmi_await_uncounted. */
SHMI_FN int shmi_queue_leaves(const struct shmi_queue *x) { return __atomic_load_n(&x->a->leaving, __ATOMIC_SEQ_CST); }

/* ---- Waiting ---- */

/* Whether a waiter of a side can go on now. The parameter most bounds the number of slots that this function examines.
 */
SHMI_FN int shmi_queue_there(struct shmi_queue *x, struct shmi_queue_side *side, uint32_t most)
{
    struct shmi_queue_found f;
    uint32_t i;
    int full;
    if (side == &x->items)
        return (shmi_ld64(&x->w->returned) & 1) != 0 || !shmi_queue_front(x, &f) || f.s != NULL;
    full = shmi_queue_next(x, &f) ? shmi_queue_full(x, f.p) : -1;
    if (full != 0)
        return full < 0; /* if full is -1, the put can go on, and reports the error */
    i = shmi_queue_begin(x, f.p);
    for (most = most < x->slots ? most : x->slots; most > 0; most--) {
        if (shmi_ld64(&shmi_queue_at(x, i)->state) == 0)
            return 1;
        if (++i > x->slots)
            i = 1;
    }
    return 0;
}
/* Called by a waiter that may have been woken. The wake has cleared the announcement, and other waiters may still
 * sleep. So this function sets the announcement again. */
SHMI_FN void shmi_queue_pass(struct shmi_queue *x, struct shmi_queue_side *side)
{
    shmi_wake_word_announce(&side->line);
    SHMSYNC_CRASHPOINT("queue.wait.passed");
    if (shmi_queue_there(x, side, x->slots) || shmi_queue_stopped(x))
        shmi_wake_word_release(x->a, &side->line);
}

/* Ends the lease w: sets the bit that says so in its word. Returns 0 if the slot does not have the lease w any more.
 * Correct peers change the word at most once during the call, to give it a date. */
SHMI_FN int shmi_queue_end_word(shmi_queue_slot *s, uint64_t w)
{
    uint64_t was = w;
    int i;
    for (i = 0; i < 4; i++) {
        if (shmi_cas64(&s->lease, was, was | SHMI_QUEUE_LEASE_ENDED))
            return 1;
        was = shmi_ld64(&s->lease);
        if (((was ^ w) & SHMI_QUEUE_LEASE_UNDATED) != 0)
            return 0;
    }
    return 0;
}
/* Stores, for tools, the date of the lease of a slot, if the lease lasts and has no date yet. The date is the time in
 * milliseconds modulo 2^32, rounded up. */
SHMI_FN void shmi_queue_date(shmi_queue_slot *s)
{
    uint64_t w = shmi_ld64(&s->lease);
    if ((w & SHMI_QUEUE_LEASE_TIMES) != 0 && (w & SHMI_QUEUE_LEASE_ENDED) == 0 && (w & ~SHMI_QUEUE_LEASE_UNDATED) == 0)
        shmi_cas64(&s->lease, w, w | (uint64_t)shmi_first_date(shmi_now()) << 32);
}
/* Makes the get calls find items that a process has put back, if the process died or was stopped before it changed
 * shmi_queue_words.returned. This function changes that word even if its bit is set already. Otherwise a get could
 * clear the bit after a search that ended before such an item came back. */
SHMI_FN void shmi_queue_tell_untold(struct shmi_queue *x)
{
    if (shmi_queue_count(x, 1u << SHMI_queueReturned) != 0) {
        shmi_queue_tell_returned(x);
        shmi_queue_tell(x, &x->items, 1);
    }
}
/* Takes back the slots of participants that are dead and gone. leaving is the participant for which the caller reaps.
 * If this process itself is leaving, the function takes back its slots, too. */
SHMI_FN void shmi_queue_reap(struct shmi_queue *x, shmi_participant_id leaving)
{
    uint32_t i, used = shmi_queue_used(x);
    size_t freed = 0, back = 0;
    if (leaving != x->a->self)
        leaving = 0;
    for (i = 1; i <= used; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_ld64(&s->state), w, *note;
        shmi_participant_id n = shmi_queue_name(st);
        /* Test for the death before reading the cell, because a put may fill the cell just before it dies. */
        if (n == 0 || (n != leaving && (shmi_current(x->a, n) || !shmi_gone(x->a, n))))
            continue;
        switch (shmi_queue_kind(st)) {
        case SHMI_queueTaken:
        case SHMI_queueLeased:
            shmi_queue_deviate(x);
            w = shmi_ld64(&s->lease);
            if (shmi_queue_kind(st) == SHMI_queueLeased && (w & SHMI_QUEUE_LEASE_ENDED) == 0 && shmi_ld64(&s->state) == st)
                shmi_queue_end_word(s, w); /* otherwise a process could store the date of this lease later, as the date of the next lease */
            note = shmi_queue_note(x, i);
            SHMSYNC_CRASHPOINT("queue.back.noted");
            if (shmi_take_from64(x->a, n, &s->state, st, shmi_queue_back(x, st), 1)) {
                SHMSYNC_CRASHPOINT("queue.back.committed");
                shmi_queue_tell_returned(x);
                back++;
            }
            shmi_queue_unnote(x, note, i);
            break;
        case SHMI_queueFull:
        case SHMI_queueClaimed:
            if (!shmi_queue_published(x, i, st) && shmi_take_from64(x->a, n, &s->state, st, 0, 1)) {
                SHMSYNC_CRASHPOINT("queue.reap.freed");
                freed++;
            }
            break;
        }
    }
    shmi_queue_tell_untold(x);
    shmi_queue_tell(x, &x->items, back);
    shmi_queue_tell(x, &x->room, freed);
}
/* Finds participants that have died, and items that were put back without a wake. */
SHMI_FN void shmi_queue_check_slots(struct shmi_queue *x)
{
    uint32_t used = shmi_queue_used(x), n = used < SHMI_QUEUE_CHECK ? used : SHMI_QUEUE_CHECK;
    shmi_participant_id last = x->a->self;
    int dead = 0, untold = 0;
    shmi_queue_check_notes(x);
    for (; n > 0; n--) {
        uint32_t i = (shmi_add32(&x->watched, 1) + 1) % used + 1;
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_ld64(&s->state);
        shmi_participant_id name = shmi_queue_name(st);
        if (shmi_queue_kind(st) == SHMI_queueReturned)
            untold = 1;
        else if (shmi_queue_kind(st) == SHMI_queueLeased)
            shmi_queue_date(s);
        else if (!shmi_queue_valid(st))
            shmi_cas64(&s->state, st, 0); /* no correct process writes such a state */
        if (name != 0 && name != last && !shmi_queue_published(x, i, st)) {
            last = name;
            dead = shmi_dead(x->a, name) || dead;
        }
    }
    if (untold && (shmi_ld64(&x->w->returned) & 1) == 0)
        shmi_queue_tell_returned(x);
    if (dead)
        shmi_queue_reap(x, 0);
}
/* The periodic check: ten times a second, sends the wakes that a stopped or dead process has not sent. */
SHMI_FN void shmi_queue_check(struct shmi_queue *x, struct shmi_queue_side *side)
{
    uint64_t sum;
    int moved;
    if (!shmi_check_due(&side->looked))
        return;
    shmi_queue_check_slots(x);
    sum = shmi_ld64(&x->w->head) * 3 + shmi_ld64(&x->w->tail) * 5 + shmi_ld64(&x->w->returned) * 7 + 1;
    moved = shmi_xchg64(&side->sum, sum) != sum;
    if (!moved)
        shmi_queue_heal(x); /* a peer may have overwritten the hints */
    if (shmi_queue_stopped(x))
        shmi_wake_word_wake_all(x->a, &side->line);
    else if (!shmi_queue_there(x, side, x->slots))
        return;
    else if (moved)
        shmi_wake_word_wake_one(x->a, &side->line);
    else /* nothing has moved since the last check, so the waiter that the last check woke may be stopped */
        shmi_wake_word_wake_all(x->a, &side->line);
}

SHMI_FN void shmi_queue_check_items(void *x) { shmi_queue_check((struct shmi_queue *)x, &((struct shmi_queue *)x)->items); }
SHMI_FN void shmi_queue_check_room(void *x) { shmi_queue_check((struct shmi_queue *)x, &((struct shmi_queue *)x)->room); }

/* ---- Calls ---- */

/* The arguments of a call. A put copies an item into the queue; a get or a lease copies an item out. */
struct shmi_queue_call {
    struct shmi_queue *x;
    struct shmi_queue_side *side;
    const void *from;
    void *to;
    shmsync_lease *lease;
};
/* Fills in the lease of the slot in f. This process has the slot. */
SHMI_FN void shmi_queue_leased(struct shmi_queue *x, struct shmi_queue_found *f, shmsync_lease *lease)
{
    uint64_t w = shmi_ld64(&f->s->lease), times = w & SHMI_QUEUE_LEASE_TIMES;
    if (times != SHMI_QUEUE_LEASE_TIMES)
        times++;
    w &= SHMI_QUEUE_LEASE_UNDATED & ~SHMI_QUEUE_LEASE_TIMES & ~SHMI_QUEUE_LEASE_ENDED;
    w = ((w + SHMI_QUEUE_LEASE_SERIAL) & ~SHMI_QUEUE_LEASE_ENDED) | times;
    shmi_put64(&f->s->lease, w);
    SHMSYNC_CRASHPOINT("queue.lease.noted");
    lease->impl = x;
    lease->serial = shmi_serial_of(x);
    lease->at = f->i;
    lease->state = f->st;
    lease->seq = w;
    lease->attempts = (uint32_t)times - 1;
}
/* Makes one attempt of a call. Returns 0, ECANCELED, EPROTO or EBADF. EBUSY: the call has to wait. */
SHMI_FN int shmi_queue_try(struct shmi_queue_call *c)
{
    struct shmi_queue *x = c->x;
    int stopped = shmi_queue_stopped(x), got; /* the flag is read before the ring: a put that this search of the ring misses will see the flag */
    struct shmi_queue_found f;
    if (c->side == &x->room) {
        struct shmi_queue_claimed claim;
        if (stopped)
            return ECANCELED;
        got = shmi_queue_claim(x, &claim);
        if (got <= 0)
            return got < 0 ? EPROTO : EBUSY;
        if (SHMI_UNLIKELY(shmi_queue_leaves(x))) {
            shmi_queue_unclaim(x, claim.s);
            return EBADF;
        }
        shmi_put64(&claim.s->lease, shmi_ld64(&claim.s->lease) & SHMI_QUEUE_LEASE_UNDATED & ~SHMI_QUEUE_LEASE_TIMES);
        memcpy(shmi_queue_item(claim.s), c->from, x->item);
        return shmi_queue_publish(x, &claim);
    }
    if (c->lease != NULL)
        shmi_queue_deviate(x);
    got = shmi_queue_take(x, c->lease != NULL ? SHMI_queueLeased : SHMI_queueTaken, &f);
    if (got < 0)
        return EPROTO;
    if (got == 0)
        return stopped ? ECANCELED : EBUSY;
    if (c->lease != NULL && SHMI_UNLIKELY(shmi_queue_leaves(x))) {
        shmi_queue_tell(x, &x->items, (size_t)shmi_queue_put_back(x, f.i, f.s, f.st));
        return EBADF;
    }
    memcpy(c->to, shmi_queue_item(f.s), x->item);
    if (c->lease == NULL)
        return shmi_queue_drop(f.s, f.st) ? 0 : EBADF;
    shmi_queue_leased(x, &f, c->lease);
    return 0;
}
SHMI_FN int shmi_queue_spun(void *arg)
{
    struct shmi_queue_call *c = (struct shmi_queue_call *)arg;
    return shmi_queue_there(c->x, c->side, SHMI_QUEUE_LOOK) || shmi_queue_stopped(c->x);
}
SHMI_FN int shmi_queue_fail(struct shmi_queue_call *c, int err)
{
    const char *op = c->side == &c->x->room ? "queue.put" : "queue.get";
    switch (err) {
    case ECANCELED:
        return shmi_fail(err, op, shmi_called(&c->x->o), "it was shut down");
    case EPROTO:
        return shmi_fail(err, op, shmi_called(&c->x->o), "its ring has impossible cells");
    case EBADF:
        return shmi_fail(err, op, shmi_called(&c->x->o), "this process closed the arena");
    }
    return err;
}
/* Repeats the attempts of a call until it succeeds or fails, and sleeps in between; see await in prims/queue_wait.go.
 */
SHMI_FN int shmi_queue_await(struct shmi_queue_call *c, int64_t deadline)
{
    struct shmi_queue *x = c->x;
    const char *op = c->side == &x->room ? "queue.put" : "queue.get";
    int waits = 0, announced = 0, slept = 0, ended = SHMI_AGAIN, err;
    int64_t since = 0;
    uint32_t word = 0;
    for (;;) {
        shmi_sleep_spec spec;
        err = shmi_queue_try(c);
        /* The last attempt came after the end of the sleep. Its success takes precedence over a timeout or a close. */
        if (err != EBUSY || ended == SHMI_LATE || ended == SHMI_CLOSED)
            break;
        if (!waits) {
            shmi_tuning t = shmi_queue_tuning(x, c->side);
            waits = 1;
            shmi_spin(&t, shmi_queue_spun, c);
            continue;
        }
        if (!announced) {
            announced = 1;
            word = shmi_wake_word_announce(&c->side->line);
            continue; /* an item or room may have come since the last attempt */
        }
        SHMSYNC_CRASHPOINT("queue.wait.announced");
        announced = 0;
        slept = 1;
        memset(&spec, 0, sizeof spec);
        spec.looked = &c->side->looked;
        spec.check = c->side == &x->room ? shmi_queue_check_room : shmi_queue_check_items;
        spec.check_arg = x;
        spec.word = c->side->line.word;
        spec.val = word;
        spec.object = x->o.off;
        spec.wanted = word;
        spec.deadline = deadline;
        spec.since = &since;
        ended = shmi_sleep(x->a, &spec);
        if (ended == SHMI_AGAIN)
            SHMSYNC_CRASHPOINT("queue.wait.woken");
        else if (ended == SHMI_LOOK)
            shmi_queue_check(x, c->side);
    }
    if (slept)
        shmi_queue_pass(x, c->side); /* this waiter may have got a wake that another waiter needs */
    if (err != EBUSY)
        return shmi_queue_fail(c, err);
    return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, op, shmi_called(&x->o)) : shmi_queue_fail(c, EBADF);
}
/* After a call, wakes waiters of the other side. */
SHMI_FN void shmi_queue_done(struct shmi_queue_call *c, size_t n)
{
    struct shmi_queue *x = c->x;
    if (c->lease == NULL)
        shmi_queue_tell(x, c->side == &x->room ? &x->items : &x->room, n);
}
SHMI_FN int shmi_queue_end_lease(shmsync_lease *l, int back);
/* Subtracts 1 from the number of leases of an item, because no caller gets the lease l. If a periodic check stores the
 * date of the lease at the same time, the number stays as it is. */
SHMI_FN void shmi_queue_uncount(shmsync_lease *l)
{
    shmi_queue_slot *s = shmi_queue_at(l->impl, l->at);
    uint64_t times = l->seq & SHMI_QUEUE_LEASE_TIMES;
    uint64_t w = s != NULL ? shmi_ld64(&s->lease) : 0;
    if (times > 0 && times < SHMI_QUEUE_LEASE_TIMES && ((w ^ l->seq) & SHMI_QUEUE_LEASE_UNDATED) == 0 && shmi_cas64(&s->lease, w, w - 1))
        l->seq--;
}
/* Makes a call. If try_ is 0, the call waits until abs; abs 0 means no limit. */
SHMI_FN int shmi_queue_do(struct shmi_queue_call *c, int64_t abs, int try_)
{
    shmsync_arena *a = c->x->a;
    int err = shmi_use(a, "queue");
    if (err != 0)
        return err;
    err = shmi_queue_try(c);
    /* A program that never waits makes no periodic check. Without this check, only the death watchers of other
     * processes would find dead holders, and these processes may be stopped. */
    if (err == EBUSY && try_ && shmi_check_due(&c->x->tried) && shmi_enter_for(c->x, a, NULL) == 0) {
        shmi_queue_check_slots(c->x);
        err = shmi_queue_try(c);
        if (err == 0)
            shmi_queue_done(c, 1);
        shmi_exit_for(c->x, a);
        return err == 0 || err == EBUSY ? err : shmi_queue_fail(c, err);
    }
    if (err == EBUSY && !try_) {
        err = shmi_enter_for(c->x, a, "queue.wait");
        if (err != 0)
            return err;
        err = shmi_queue_await(c, abs);
        if (err == 0)
            shmi_queue_done(c, 1);
        if (err == 0 && c->lease != NULL) {
            c->lease->serial = shmi_serial_of(c->x); /* during the wait the handle may have been closed and opened again */
            if (c->lease->serial == UINT64_MAX) {
                err = shmi_fail(EBADF, "queue.lease", NULL, "the handle was closed meanwhile");
                shmi_queue_uncount(c->lease);
                shmi_queue_end_lease(c->lease, 1);
            }
        }
        shmi_exit_for(c->x, a);
        return err;
    }
    if (err == 0)
        shmi_queue_done(c, 1);
    return err == EBUSY ? err : shmi_queue_fail(c, err);
}
SHMI_FN int shmi_queue_put(shmsync_queue *q, const void *item, int64_t abs, int try_)
{
    struct shmi_queue_call c;
    memset(&c, 0, sizeof c);
    c.x = q->impl;
    c.side = &c.x->room;
    c.from = item;
    return shmi_queue_do(&c, abs, try_);
}
SHMI_FN int shmi_queue_get(shmsync_queue *q, void *item, shmsync_lease *lease, int64_t abs, int try_)
{
    struct shmi_queue_call c;
    memset(&c, 0, sizeof c);
    c.x = q->impl;
    c.side = &c.x->items;
    c.to = item;
    c.lease = lease;
    return shmi_queue_do(&c, abs, try_);
}

SHMI_FN int shmi_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out, int64_t abs, int try_)
{
    int err = shmi_queue_get(q, item, out, abs, try_);
    if (err != 0)
        memset(out, 0, sizeof *out);
    return err;
}

/* Ends a lease. If several calls want to end it, the call that sets the bit of the lease word ends it. */
SHMI_FN int shmi_queue_end_lease(shmsync_lease *l, int back)
{
    struct shmi_queue *x = l->impl;
    shmi_queue_slot *s;
    int ended, err = shmi_use(x->a, "queue");
    if (err != 0)
        return err;
    err = shmi_enter(x->a, "queue.lease");
    if (err != 0)
        return err;
    s = shmi_queue_at(x, l->at);
    ended = s != NULL && shmi_ld64(&s->state) == l->state && shmi_queue_kind(l->state) == SHMI_queueLeased && shmi_queue_name(l->state) == x->a->self &&
            shmi_queue_end_word(s, l->seq);
    if (ended) {
        SHMSYNC_CRASHPOINT("queue.lease.ended");
        ended = back ? shmi_queue_put_back(x, l->at, s, l->state) : shmi_queue_drop(s, l->state);
    }
    if (ended) {
        shmi_queue_tell(x, back ? &x->items : &x->room, 1);
        l->impl = NULL;
    } else {
        err = shmi_fail(EPERM, "queue.lease", shmi_called(&x->o), "this process does not have that item on that lease");
    }
    shmi_exit(x->a);
    return err;
}

SHMI_FN void shmi_queue_init_side(struct shmi_queue_side *side, shmi_queue_side_words *w)
{
    side->w = w;
    side->line.word = &w->wake;
    side->line.poller = &w->poller;
}
/* Fills in x from the body of a queue. Returns 0 if the body is too small for its immutable words, such as the
 * capacity. The function reads each immutable word only once, because a peer may overwrite it meanwhile. */
SHMI_FN int shmi_queue_build(struct shmi_queue *x, shmsync_arena *a, const shmi_object *o)
{
    uint64_t capacity;
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    if (o->size < sizeof(shmi_queue_words))
        return 0;
    x->w = (shmi_queue_words *)shmi_ptr(a, o->body, sizeof(shmi_queue_words), 8);
    x->item = shmi_ld64(&x->w->item);
    capacity = shmi_ld64(&x->w->capacity);
    if (x->item > SHMI_QUEUE_ITEM_MOST || capacity == 0 || capacity > SHMI_QUEUE_CAPACITY_MOST || o->size < shmi_queue_bytes(capacity, x->item))
        return 0;
    x->capacity = (uint32_t)capacity;
    x->slots = (uint32_t)shmi_queue_slots(capacity);
    x->shift = shmi_queue_shift(x->slots);
    x->mask = (UINT64_C(1) << x->shift) - 1;
    x->first = sizeof(shmi_queue_words) + (UINT64_C(8) << x->shift);
    x->stride = shmi_queue_stride(x->item);
    shmi_queue_init_side(&x->items, &x->w->items);
    shmi_queue_init_side(&x->room, &x->w->room);
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
    w->spin = spec->spin;
    w->tail = w->head = UINT64_C(1) << shmi_queue_shift(shmi_queue_slots(spec->capacity));
}

/* Makes the handle. It uses the sizes that shmi_queue_handle has checked, because a peer may have overwritten the words
 * since the check. */
SHMI_FN void *shmi_queue_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_queue *x = (struct shmi_queue *)shmi_new_thing(sizeof *x);
    (void)a;
    (void)o;
    if (x != NULL)
        *x = *(const struct shmi_queue *)arg;
    if (x != NULL && x->w != NULL) {
        shmi_queue_init_side(&x->items, &x->w->items);
        shmi_queue_init_side(&x->room, &x->w->room);
    }
    return x;
}

SHMI_FN void shmi_queue_end(void *handle) { shmi_free_thing(handle); }

SHMI_FN int shmi_queue_handle(shmsync_arena *a, const shmi_object *o, uint64_t item, uint32_t capacity, shmsync_queue *out)
{
    struct shmi_queue x;
    int err = 0;
    if (!shmi_queue_build(&x, a, o))
        err = shmi_fail(EPROTO, "queue.open", shmi_called(o), "its body has no room for its slots");
    else if (item != x.item || (capacity != 0 && capacity != x.capacity))
        err = shmi_fail(EINVAL, "queue.open", shmi_called(o), "it has a capacity of %u items of %u bytes; asked for %u of %llu bytes", x.capacity, (uint32_t)x.item,
                        capacity != 0 ? capacity : x.capacity, (unsigned long long)item);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    return SHMI_HAND_OUT(out, struct shmi_queue *, shmi_share(a, o, shmi_queue_new, &x));
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
        return shmi_fail(EINVAL, "queue.open", name, "asked for %u items of %zu bytes; it may have at most %u of %u bytes", capacity, item_size, (uint32_t)SHMI_QUEUE_CAPACITY_MOST,
                         (uint32_t)SHMI_QUEUE_ITEM_MOST);
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
    spec.init = shmi_queue_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_spec_type(&spec, "queue.open", opts != NULL ? opts->layout : 0, opts != NULL ? opts->type : NULL);
    if (err == 0)
        err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_queue_handle(a, &o, item_size, capacity, out));
    shmi_exit(a);
    return err;
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
    SHMI_BEGIN_AT(a, "queue.open", out);
    shmi_object o;
    int err = shmi_object_at(a, off, "queue.open", SHMI_KIND_QUEUE, SHMI_VERSION_QUEUE, sizeof(shmi_queue_words), &o);
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_queue_handle(a, &o, item_size, 0, out)));
}

int shmsync_queue_close(shmsync_queue *q)
{
    SHMI_OPENED(q);
    int err;
    if (q->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(q->impl->a, q->impl->o.off, shmi_queue_end);
    if (err == 0)
        q->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_queue_offset(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->o.off;
}
int shmsync_queue_put(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_DONE(shmi_queue_put(q, item, 0, 0));
}
int shmsync_queue_tryput(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_DONE(shmi_queue_put(q, item, 0, 1));
}
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_queue_put(q, item, ns, 0));
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

/* Converts a deadline. For NULL, which means no deadline, *abs is 0. */
SHMI_FN int shmi_queue_until(const struct timespec *abs_monotonic, int64_t *abs)
{
    *abs = 0;
    return abs_monotonic != NULL ? shmi_deadline(abs_monotonic, abs) : 0;
}
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED_ELSE(q, *done = 0);
    struct shmi_queue *x = q->impl;
    struct shmi_queue_call c;
    int64_t abs;
    shmsync_arena *a = x->a;
    int entered = 0; /* not 0: the call is within shmi_enter_for. It enters before its first wait, and stays until its end */
    int err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(a, "queue");
    memset(&c, 0, sizeof c);
    c.x = x;
    c.side = &x->room;
    while (err == 0 && *done < n) {
        size_t before = *done;
        for (; *done < n; ++*done) {
            c.from = (const unsigned char *)items + *done * x->item;
            if (shmi_queue_try(&c) != 0)
                break;
        }
        if (*done > before) {
            shmi_queue_done(&c, *done - before);
        } else if (!entered) {
            err = shmi_enter_for(x, a, "queue.put");
            entered = err == 0;
        } else {
            err = shmi_queue_do(&c, abs, 0);
            if (err == 0)
                ++*done;
        }
    }
    if (entered)
        shmi_exit_for(x, a);
    return SHMI_DONE_ELSE(err, *done = 0);
}
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED_ELSE(q, *done = 0);
    struct shmi_queue *x = q->impl;
    shmsync_arena *a = x->a;
    struct shmi_queue_call c;
    int64_t abs;
    int err = shmi_queue_until(abs_monotonic, &abs);
    size_t before = 0;
    *done = 0;
    if (err == 0)
        err = shmi_use(a, "queue");
    if (err != 0 || n == 0)
        return SHMI_DONE_ELSE(err, *done = 0);
    memset(&c, 0, sizeof c);
    c.x = x;
    c.side = &x->items;
    c.to = items;
    if (shmi_queue_try(&c) != 0) {
        err = shmi_enter_for(x, a, "queue.get");
        if (err != 0)
            return SHMI_DONE(err);
        err = shmi_queue_do(&c, abs, 0);
        if (err != 0) {
            shmi_exit_for(x, a);
            return SHMI_DONE_ELSE(err, *done = 0);
        }
        before = 1; /* the call is within shmi_enter_for, and shmi_queue_do has already woken the waiters for this item */
    }
    for (*done = 1; *done < n; ++*done) {
        c.to = (unsigned char *)items + *done * x->item;
        if (shmi_queue_try(&c) != 0)
            break;
    }
    shmi_queue_done(&c, *done - before);
    if (before != 0)
        shmi_exit_for(x, a);
    return 0;
}
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED_ELSE(q, memset(out, 0, sizeof *out));
    return SHMI_DONE_ELSE(shmi_queue_lease(q, item, out, 0, 0), memset(out, 0, sizeof *out));
}
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED_ELSE(q, memset(out, 0, sizeof *out));
    return SHMI_DONE_ELSE(shmi_queue_lease(q, item, out, 0, 1), memset(out, 0, sizeof *out));
}
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(q, memset(out, 0, sizeof *out));
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    if (err != 0)
        memset(out, 0, sizeof *out);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_queue_lease(q, item, out, ns, 0), memset(out, 0, sizeof *out));
}
SHMI_FN int shmi_lease_over(const char *op)
{
    SHMI_BEGIN();
    return shmi_fail(EPERM, op, NULL, "the lease is over");
}
int shmsync_lease_ack(shmsync_lease *l)
{
    if (l->impl == NULL) /* the item was already given back */
        return shmi_lease_over("lease.ack");
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 0));
}
int shmsync_lease_nack(shmsync_lease *l)
{
    if (l->impl == NULL)
        return shmi_lease_over("lease.nack");
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 1));
}
uint32_t shmsync_queue_len(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return shmi_queue_length(q->impl);
}
uint32_t shmsync_queue_cap(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->capacity;
}

int shmsync_queue_shutdown(shmsync_queue *q)
{
    SHMI_OPENED(q);
    struct shmi_queue *x = q->impl;
    int err = shmi_use(x->a, "queue");
    if (err == 0)
        err = shmi_enter(x->a, "queue.shutdown");
    if (err != 0)
        return SHMI_TELL(err);
    shmi_or64(&x->w->flags, SHMI_queueStoppedFlag);
    SHMSYNC_CRASHPOINT("queue.shutdown.marked");
    shmi_wake_word_wake_all(x->a, &x->items.line);
    shmi_wake_word_wake_all(x->a, &x->room.line);
    shmi_exit(x->a);
    return SHMI_TELL(0);
}

uint64_t shmsync_layout(const char *description)
{
    return shmi_type_fingerprint(description);
}

/* ---- The functions of a reaper, and of a leave ---- */
SHMI_FN int shmi_repair_queue(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_queue x;
    if (!shmi_queue_build(&x, a, o))
        return 0;
    shmi_queue_reap(&x, dead);
    return 1;
}
/* Whether a call of this process is about to store to a slot that it has claimed or leased. If the lease word of a slot
 * shows a lease that has not ended, no call is about to store to the slot. */
SHMI_FN int shmi_queue_in_call(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_queue x;
    uint32_t i, used;
    if (!shmi_queue_build(&x, a, o))
        return 0;
    used = shmi_queue_used(&x);
    for (i = 1; i <= used; i++) {
        shmi_queue_slot *s = shmi_queue_at(&x, i);
        uint64_t st = shmi_ld64(&s->state), w;
        if (shmi_queue_name(st) != a->self)
            continue;
        switch (shmi_queue_kind(st)) {
        case SHMI_queueClaimed:
            return 1;
        case SHMI_queueFull:
            if (!shmi_queue_published(&x, i, st) && shmi_ld64(&s->state) == st)
                return 1;
            break;
        case SHMI_queueLeased:
            w = shmi_ld64(&s->lease);
            if (((w & SHMI_QUEUE_LEASE_TIMES) == 0 || (w & SHMI_QUEUE_LEASE_ENDED) != 0) && shmi_ld64(&s->state) == st)
                return 1;
            break;
        }
    }
    return 0;
}
SHMI_FN void shmi_wake_line(shmsync_arena *a, const shmi_wait_list *l, int owed)
{
    if (owed == SHMI_OWED_ALL)
        shmi_wake_word_wake_all(a, l);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(l))
        shmi_wake_word_wake_one(a, l);
}
/* Sends the wakes that a death may have lost. */
SHMI_FN void shmi_wake_queue(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_queue x;
    if (!shmi_queue_build(&x, a, o))
        return;
    if (shmi_queue_stopped(&x))
        owed = SHMI_OWED_ALL; /* see shmi_mutex_wake_words */
    shmi_wake_line(a, &x.items.line, owed);
    shmi_wake_line(a, &x.room.line, owed);
}
