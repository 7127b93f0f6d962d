/* Events: a manual-reset Event is an eventcount, whose sequence is odd while it is set; an auto-reset Event has a
 * token. It is prims/event*.go in C. */

enum { SHMI_eventAuto = 1, SHMI_eventBidirectional = 2 };
/* Values of the word next. */
#define SHMI_NOBODY UINT64_C(0)
#define SHMI_ANYBODY UINT64_MAX
/* Where the token is. */
enum { SHMI_eventUnset, SHMI_eventSet, SHMI_eventHand, SHMI_eventTaken };
/* Where the token of a wait came from. */
enum { SHMI_outcomeHand, SHMI_outcomeSpare };

struct shmi_event {
    struct shmi_monitor m; /* for automatic reset; must be first, because its rules get a pointer to it */
    shmi_auto_event_words *w;
    shmi_event_record *own;    /* this process's share; NULL in the view of a reaper */
    shmi_list_words *queue;    /* in the base */
    shmi_off base;             /* of the oldest slot record, which is the base */
    shmi_event_record **known; /* the shares by slot, from slot 1; NULL in the view of a reaper, which walks the records. Atomic. */
    uint32_t known_head;       /* the latest slot record in known, as objRecords names it. Atomic. */
    uint32_t bad;              /* the list of records was corrupt. Atomic. */
    uint32_t slots;
    uint32_t mode;
    struct shmi_eventcount count; /* without automatic reset */
    shmsync_arena *a;
    shmi_object o;
};

/* The counters of the queue lock follow an auto-reset Event in an arena whose objects count. */
SHMI_FN uint64_t shmi_event_bytes(shmsync_arena *a, uint32_t mode)
{
    if (mode != SHMI_eventAuto)
        return sizeof(shmi_event_words);
    return a->geo.counted ? sizeof(shmi_mutex_words) : sizeof(shmi_auto_event_words);
}

/* The shares lie in slot records, which stay until the object is deleted. So a handle remembers where they are, in an array that it has
 * from the start: a signal handler may get here. A participant has its record on the list before it takes the queue lock. */
SHMI_FN shmi_event_record *shmi_event_share_in(struct shmi_event *e, const shmi_record_walk *v)
{
    return (shmi_event_record *)shmi_ptr(e->a, v->b.off, sizeof(shmi_event_record), 8);
}
SHMI_FN void shmi_event_learn(struct shmi_event *e)
{
    uint32_t head = shmi_ld32(shmi_u32(e->a, e->o.off + SHMI_objRecords));
    shmi_record_walk v;
    if (SHMI_LIKELY(shmi_ld32(&e->known_head) == head))
        return;
    shmi_walk_records(e->a, &v, e->o.off, sizeof(shmi_event_record));
    v.next = (shmi_off)head * SHMI_blockMin;
    while (shmi_next_record(e->a, &v))
        if (__atomic_load_n(&e->known[v.slot - 1], __ATOMIC_RELAXED) == NULL) /* a share that is known stays known, whatever a peer makes of the list */
            __atomic_store_n(&e->known[v.slot - 1], shmi_event_share_in(e, &v), __ATOMIC_RELEASE);
    shmi_st32(&e->bad, v.bad != 0);
    shmi_st32(&e->known_head, head);
}
/* A walk over the shares. */
typedef struct shmi_event_walk {
    shmi_record_walk v;
    uint32_t slot;
} shmi_event_walk;
SHMI_FN void shmi_event_begin(struct shmi_event *e, shmi_event_walk *i)
{
    i->slot = 0;
    if (e->known != NULL)
        shmi_event_learn(e);
    else
        shmi_walk_records(e->a, &i->v, e->o.off, sizeof(shmi_event_record));
}
SHMI_FN shmi_event_record *shmi_event_next(struct shmi_event *e, shmi_event_walk *i)
{
    shmi_event_record *h;
    if (e->known == NULL) {
        if (!shmi_next_record(e->a, &i->v))
            return NULL;
        i->slot = i->v.slot;
        return shmi_event_share_in(e, &i->v);
    }
    while (i->slot < e->slots)
        if ((h = __atomic_load_n(&e->known[i->slot++], __ATOMIC_ACQUIRE)) != NULL)
            return h;
    return NULL;
}
/* The share of a slot, or NULL. */
SHMI_FN shmi_event_record *shmi_event_share_of(struct shmi_event *e, uint32_t slot)
{
    shmi_event_record *h;
    shmi_event_walk i;
    if (slot < 1 || slot > e->slots)
        return NULL;
    if (e->known != NULL) {
        shmi_event_learn(e);
        return __atomic_load_n(&e->known[slot - 1], __ATOMIC_ACQUIRE);
    }
    for (shmi_event_begin(e, &i); (h = shmi_event_next(e, &i)) != NULL;)
        if (i.slot == slot)
            return h;
    return NULL;
}
/* Whether a peer has damaged the list of records, so that the share of a wait is not found here. The handle with which
 * the wait was begun knows it. */
SHMI_FN int shmi_event_lacks_share_of(struct shmi_event *e, struct shmi_wait w)
{
    uint32_t slot = shmi_id_slot(shmi_owner_of(w));
    shmi_event_walk i;
    if (shmi_event_share_of(e, slot) != NULL)
        return 0;
    if (e->known != NULL)
        return shmi_ld32(&e->bad) != 0;
    for (shmi_event_begin(e, &i); shmi_event_next(e, &i) != NULL;) {
    }
    return i.v.bad;
}
/* The word of a share, or of the base, that is at off, or NULL if the redo log may not name that word. The maker of the record may not
 * have published its block yet, so shmi_try_at may not find these words. */
SHMI_FN uint64_t *shmi_event_logged(struct shmi_monitor *m, shmi_off off)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_event_record *h;
    shmi_event_walk i;
    if (off == e->base + offsetof(shmi_event_record, accounted))
        return m->w.accounted;
    for (shmi_event_begin(e, &i); (h = shmi_event_next(e, &i)) != NULL;) {
        shmi_off at = m->at + (uint64_t)((uintptr_t)h - (uintptr_t)m->w.queueLock);
        if (off == at + offsetof(shmi_event_record, name))
            return &h->name;
        if (off == at + offsetof(shmi_event_record, handed))
            return &h->handed;
    }
    return NULL;
}

SHMI_FN uint64_t shmi_event_load(struct shmi_event *e) { return shmi_ld64(&e->w->value); }
SHMI_FN uint32_t shmi_event_place(uint64_t s) { return (uint32_t)(s & SHMI_AUTO_EVENT_PLACE_MASK); }
SHMI_FN int shmi_event_swap(struct shmi_event *e, uint64_t s, uint32_t place)
{
    return shmi_cas64(&e->w->value, s, ((s + SHMI_AUTO_EVENT_PLACE_MASK + 1) & ~SHMI_AUTO_EVENT_PLACE_MASK) | place);
}

/* How many tokens were handed to the participant and not seen by it, as far as a peer's bytes can claim. */
SHMI_FN uint64_t shmi_event_unknown(shmi_event_record *h)
{
    int64_t n = (int64_t)(shmi_get(&h->handed) - shmi_get(&h->acked));
    return n <= 0 ? 0 : n > INT64_C(1) << 32 ? UINT64_C(1) << 32 : (uint64_t)n;
}

/* Takes the token of a wait that has ended from where it was, and notes whom it was handed to. */
SHMI_FN void shmi_event_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_participant_id owner = shmi_owner_of(w);
    uint64_t had = shmi_get(&e->w->spare), spare = had;
    shmi_event_record *h;
    struct shmi_change c;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_outcomeHand) {
        uint64_t s = shmi_event_load(e);
        if (shmi_event_place(s) == SHMI_eventHand) {
            shmi_event_swap(e, s, SHMI_eventUnset);
            SHMSYNC_CRASHPOINT("event.hand.given");
        }
    } else if (spare > 0) {
        spare--;
    }
    c.n = 0;
    /* A participant whose wait is queued has inherited. If the names differ, a peer wrote one of them. */
    h = shmi_event_share_of(e, shmi_id_slot(owner));
    if (h != NULL && shmi_get(&h->name) == owner)
        shmi_change_set(&c, &h->handed, shmi_get(&h->handed) + 1);
    if (spare != had)
        shmi_change_set(&c, &e->w->spare, spare);
    shmi_mon_account(m, w, &c);
}

SHMI_FN void shmi_event_grant(struct shmi_event *e, struct shmi_wakes *b, struct shmi_wait w, uint32_t from)
{
    if (shmi_mon_end(&e->m, b, w, from, 0))
        shmi_event_account(&e->m, w);
}

/* Hands tokens out while there are any and a wait is queued, and otherwise leaves one, at most, where it can be claimed. */
SHMI_FN void shmi_event_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_event *e = (struct shmi_event *)m;
    while (!shmi_is_broken(m)) {
        struct shmi_wait w = shmi_fifo_head(m, e->queue);
        int queued = w.n != NULL;
        uint64_t s;
        uint32_t place;
        if (queued && !shmi_mon_waiting(m, w)) {
            shmi_mon_discard(m, w);
            continue;
        }
        s = shmi_event_load(e);
        place = shmi_event_place(s);
        if (place == SHMI_eventTaken) {
            shmi_put(&e->w->spare, 0);
            shmi_event_swap(e, s, SHMI_eventSet);
        } else if (queued && shmi_event_lacks_share_of(e, w)) {
            return; /* the check of the participant that waits hands the token out */
        } else if (queued && place == SHMI_eventHand) {
            shmi_event_grant(e, b, w, SHMI_outcomeHand);
        } else if (queued && shmi_get(&e->w->spare) > 0) {
            shmi_event_grant(e, b, w, SHMI_outcomeSpare);
        } else if (queued && place == SHMI_eventSet) {
            shmi_event_swap(e, s, SHMI_eventHand);
            SHMSYNC_CRASHPOINT("event.hand.taken");
        } else if (queued) {
            return;
        } else if (place == SHMI_eventHand) {
            shmi_event_swap(e, s, SHMI_eventSet);
        } else if (shmi_get(&e->w->spare) > 0) {
            shmi_event_swap(e, s, SHMI_eventTaken);
            SHMSYNC_CRASHPOINT("event.spare.taken");
        } else {
            if (shmi_ld64(&e->w->next) != SHMI_NOBODY)
                shmi_st64(&e->w->next, SHMI_NOBODY);
            return;
        }
    }
}

SHMI_FN void shmi_event_clear(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_fifo_clear(e->queue);
    shmi_st64(&e->w->next, SHMI_ANYBODY); /* until the next resolve every set looks for waits */
}
SHMI_FN void shmi_event_requeue(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_fifo_requeue(m, e->queue, w);
    if (shmi_ld64(&e->w->next) == SHMI_NOBODY)
        shmi_st64(&e->w->next, SHMI_ANYBODY);
}
SHMI_FN void shmi_event_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, ((struct shmi_event *)m)->queue, w); }
SHMI_FN void shmi_event_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, ((struct shmi_event *)m)->queue); }

/* Takes back the tokens that the gone did not get to know of. */
SHMI_FN void shmi_event_reap(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_event_record *h;
    shmi_event_walk i;
    for (shmi_event_begin(e, &i); (h = shmi_event_next(e, &i)) != NULL;) {
        uint64_t n = shmi_event_unknown(h);
        if (n > 0 && shmi_mon_gone(m, (shmi_participant_id)(shmi_get(&h->name) & SHMI_NAME_MASK))) {
            struct shmi_change c;
            c.n = 0;
            shmi_change_set(&c, &h->handed, shmi_get(&h->acked));
            shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + n);
            shmi_mon_commit(m, &c);
        }
    }
}
SHMI_FN void shmi_event_holders(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_event_record *h;
    shmi_event_walk i;
    for (shmi_event_begin(e, &i); (h = shmi_event_next(e, &i)) != NULL;)
        if (shmi_event_unknown(h) > 0)
            shmi_mon_heed(m, (shmi_participant_id)(shmi_get(&h->name) & SHMI_NAME_MASK));
}
SHMI_FN void shmi_event_check(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    if ((shmi_event_place(shmi_event_load(e)) != SHMI_eventUnset || shmi_get(&e->w->spare) > 0) &&
        shmi_ld64(&e->w->next) != SHMI_NOBODY && shmi_mon_try_enter(m)) {
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_event_resolve(m, &b);
        shmi_mon_leave(m, &b);
    }
}

static __attribute__((unused)) const struct shmi_rules shmi_event_rules = {
    shmi_event_resolve, shmi_event_account, shmi_event_clear, shmi_event_requeue, shmi_event_detach,
    shmi_event_discard_dead, shmi_event_reap, shmi_event_holders, shmi_event_check,
};

/* Takes the token if it is there and nobody is queued for it. */
SHMI_FN int shmi_event_claim(struct shmi_event *e)
{
    uint64_t s = shmi_event_load(e);
    return shmi_event_place(s) == SHMI_eventSet && shmi_ld64(&e->w->next) == SHMI_NOBODY && shmi_event_swap(e, s, SHMI_eventUnset);
}

SHMI_FN int shmi_event_set_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    uint64_t s = shmi_event_load(e);
    int err, done = 0;
    if (shmi_event_place(s) == SHMI_eventSet) {
        if (shmi_ld64(&e->w->next) == SHMI_NOBODY && shmi_event_load(e) == s)
            return 0;
    } else if (shmi_event_place(s) == SHMI_eventUnset) {
        done = shmi_event_swap(e, s, SHMI_eventSet);
        if (done && shmi_ld64(&e->w->next) == SHMI_NOBODY)
            return 0;
    }
    if (done)
        SHMSYNC_CRASHPOINT("event.set.stored");
    err = shmi_mon_enter(&e->m, 0);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    for (;;) {
        shmi_event_resolve(&e->m, &b);
        /* Now there is no token, or nobody is queued. */
        s = shmi_event_load(e);
        if (done || shmi_event_place(s) == SHMI_eventSet || shmi_is_broken(&e->m))
            break;
        done = shmi_event_swap(e, s, SHMI_eventSet);
    }
    shmi_mon_leave(&e->m, &b);
    return 0;
}

SHMI_FN int shmi_event_reset_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    uint64_t s = shmi_event_load(e);
    int err;
    if (shmi_event_place(s) == SHMI_eventUnset ||
        (shmi_event_place(s) == SHMI_eventSet && shmi_ld64(&e->w->next) == SHMI_NOBODY && shmi_event_swap(e, s, SHMI_eventUnset)))
        return 0;
    err = shmi_mon_enter(&e->m, 0);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    shmi_event_resolve(&e->m, &b);
    for (s = shmi_event_load(e); shmi_event_place(s) == SHMI_eventSet && !shmi_event_swap(e, s, SHMI_eventUnset); s = shmi_event_load(e)) {
    }
    shmi_mon_leave(&e->m, &b);
    return 0;
}

SHMI_FN int shmi_event_is_set_auto(struct shmi_event *e)
{
    uint64_t s = shmi_event_load(e);
    if (shmi_event_place(s) == SHMI_eventSet && !(shmi_ld64(&e->w->next) == SHMI_NOBODY && shmi_event_load(e) == s) && shmi_mon_try_enter(&e->m)) {
        /* The token may be handed to a waiter; or no waiter is there for it any more. */
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_event_resolve(&e->m, &b);
        s = shmi_event_load(e);
        shmi_mon_leave(&e->m, &b);
    }
    return shmi_event_place(s) == SHMI_eventSet;
}

SHMI_FN int shmi_event_try_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    int ok;
    if (shmi_event_claim(e))
        return 0;
    if (shmi_event_place(shmi_event_load(e)) == SHMI_eventUnset || !shmi_mon_try_enter(&e->m))
        return EBUSY;
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&e->m, &b);
    shmi_event_resolve(&e->m, &b);
    ok = shmi_event_claim(e);
    shmi_mon_leave(&e->m, &b);
    return ok ? 0 : EBUSY;
}

/* Makes the share of this process's slot its own, with the queue lock held, before it waits. */
SHMI_FN void shmi_event_inherit(struct shmi_event *e)
{
    shmi_event_record *h = e->own;
    struct shmi_change c;
    if (shmi_get(&h->name) == e->a->self)
        return;
    c.n = 0;
    shmi_change_set(&c, &h->name, e->a->self);
    shmi_change_set(&c, &h->handed, shmi_get(&h->acked));
    shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + shmi_event_unknown(h));
    shmi_mon_commit(&e->m, &c);
}

/* Begins a wait. If it gives no wait node, the token was claimed, or the error says why there is nothing to wait
 * for. If take is 0, a token that is there is not claimed but handed to the wait, which can pass it on. */
SHMI_FN int shmi_event_register(struct shmi_event *e, int take, int64_t abs, shmi_wait_node **out)
{
    struct shmi_monitor *m = &e->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    int err, again;
    *out = NULL;
    err = shmi_mon_enter(m, abs);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    do {
        shmi_mon_reap_if_due(m, &b);
        shmi_event_resolve(m, &b);
        shmi_event_learn(e);
        if (shmi_ld32(&e->bad) != 0) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return shmi_fail(EPROTO, "event.wait", shmi_called(&e->o), "its list of slot records");
        }
        if (take && shmi_event_claim(e)) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return 0;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_event_inherit(e);
    shmi_mon_join(m, wait_node, 0, 0);
    SHMSYNC_CRASHPOINT("event.wait.announced");
    /* The second check: a set before it has not seen that this wait is queued. */
    shmi_event_resolve(m, &b);
    shmi_mon_leave(m, &b);
    *out = wait_node;
    return 0;
}
/* Says that this process knows of a token that was handed to it. */
SHMI_FN void shmi_event_ack(struct shmi_event *e)
{
    shmi_add64(&e->own->acked, 1);
    SHMSYNC_CRASHPOINT("event.wait.acked");
}
/* Gives a token back that was handed to a wait of this process, which has collected it and not acked. */
SHMI_FN void shmi_event_pass(struct shmi_event *e)
{
    shmi_event_record *h = e->own;
    struct shmi_wakes b;
    if (shmi_mon_enter(&e->m, 0) != 0)
        return; /* this process leaves, and is reaped; or all is corrupt */
    shmi_wakes_init(&b);
    shmi_event_resolve(&e->m, &b); /* what is spare in state taken is void, so that has to be over */
    if (shmi_event_unknown(h) > 0 && shmi_get(&h->name) == e->a->self) {
        struct shmi_change c;
        c.n = 0;
        shmi_change_set(&c, &h->handed, shmi_get(&h->handed) - 1);
        shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + 1);
        shmi_mon_commit(&e->m, &c);
        SHMSYNC_CRASHPOINT("event.pass.passed");
        shmi_event_resolve(&e->m, &b);
    }
    shmi_mon_leave(&e->m, &b);
}
SHMI_FN int shmi_event_wait_auto(struct shmi_event *e, int64_t abs)
{
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int err;
    if (shmi_event_claim(e))
        return 0;
    err = shmi_mon_begin(&e->m);
    if (err != 0)
        return err;
    err = shmi_event_register(e, 1, abs, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&e->m, wait_node, abs, &outcome);
        if (err == 0)
            shmi_event_ack(e);
    }
    shmi_mon_finish(&e->m);
    return err;
}

/* An Event that is reset by hand: whether it is set. */
SHMI_FN int shmi_event_odd(struct shmi_event *e) { return (int)(shmi_eventcount_load(&e->count) & 1); }

/* Makes an Event that is reset by hand set, or not set. A signal handler may call it. */
SHMI_FN int shmi_event_turn(struct shmi_event *e, uint64_t set)
{
    for (;;) {
        uint64_t s = shmi_eventcount_load(&e->count);
        if ((s & 1) == set)
            return 0;
        shmi_eventcount_note_cpu(&e->count, s);
        if (!shmi_cas64(&e->count.w->state, s, shmi_eventcount_next(s)))
            continue;
        if ((s & SHMI_EVENTCOUNT_ANNOUNCED) != 0) {
            SHMSYNC_CRASHPOINT("event.turn.before_wake");
            shmi_eventcount_wake_all(&e->count);
        }
        return 0;
    }
}

/* Waits until it is set, or not set. */
SHMI_FN int shmi_event_until(struct shmi_event *e, uint64_t set, int64_t abs)
{
    uint64_t s = shmi_eventcount_load(&e->count);
    int err;
    if ((s & 1) == set)
        return 0;
    err = shmi_enter(e->a, "event.wait");
    if (err != 0)
        return err;
    err = shmi_eventcount_wait(&e->count, (uint32_t)s, abs);
    shmi_exit(e->a);
    return err;
}

/* The mode of an Event, or -1 if the length of its body fits no mode. The word mode tells an auto-reset Event from the
 * others, which have zeros there. */
SHMI_FN int shmi_event_mode_of(shmsync_arena *a, const shmi_object *o)
{
    uint32_t word;
    if (o->size < sizeof(shmi_event_words))
        return -1;
    word = shmi_ld32(&((shmi_auto_event_words *)shmi_ptr(a, o->body, sizeof(shmi_auto_event_words), 8))->mode);
    if (word == SHMI_eventAuto && o->size == shmi_event_bytes(a, SHMI_eventAuto))
        return SHMI_eventAuto;
    if (word == 0 && o->size == sizeof(shmi_event_words)) {
        uint64_t s = shmi_ld64(&((shmi_event_words *)shmi_ptr(a, o->body, sizeof(shmi_event_words), 8))->count.state);
        int mode = (int)((s & SHMI_EVENT_MODE_MASK) >> SHMI_EVENT_MODE_SHIFT);
        return mode == 0 || mode == SHMI_eventBidirectional ? mode : -1;
    }
    return -1;
}

/* Makes the view of a reaper, or the common part of a handle; 0: an auto-reset Event has no record, or a corrupt list of them. */
SHMI_FN int shmi_event_build(struct shmi_event *e, shmsync_arena *a, const shmi_object *o, uint32_t mode)
{
    shmi_event_record *base;
    struct shmi_mon_places at;
    shmi_record_walk v;
    e->a = a;
    e->o = *o;
    e->mode = mode;
    e->own = NULL;
    e->known = NULL;
    e->known_head = e->bad = 0;
    e->slots = a->geo.slots;
    e->base = 0;
    if (mode != SHMI_eventAuto) {
        shmi_eventcount_init(&e->count, a, o, "event.wait", NULL);
        return 1;
    }
    for (shmi_walk_records(a, &v, o->off, sizeof *base); shmi_next_record(a, &v);)
        e->base = v.b.off; /* at last the oldest */
    if (v.bad || e->base == 0)
        return 0;
    base = (shmi_event_record *)shmi_ptr(a, e->base, sizeof *base, 8);
    e->w = (shmi_auto_event_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 8); /* no block for it is smaller */
    e->queue = &base->queue;
    at.queueLock = (shmi_mutex_words *)(void *)e->w;
    at.arrivals = &base->arrivals;
    at.redone = &e->w->redone;
    at.accounted = &base->accounted;
    at.redo = base->redo;
    at.lastCPU = &e->w->lastCPU;
    at.spin = &e->w->spin;
    at.pays = &e->w->pays;
    shmi_mon_init_at(&e->m, a, o, o->body, &at, &shmi_event_rules);
    e->m.handlers = 1;
    e->m.logged = shmi_event_logged;
    return 1;
}
SHMI_FN void shmi_event_end(void *handle)
{
    struct shmi_event *e = (struct shmi_event *)handle;
    if (e->known != NULL)
        shmi_free_thing(e->known); /* a call that is under way may still use it */
    shmi_free_thing(e);
}

typedef struct shmi_event_spec {
    uint32_t mode, spin;
    int set;
} shmi_event_spec;

SHMI_FN void shmi_event_fill(unsigned char *body, const void *arg)
{
    const shmi_event_spec *s = (const shmi_event_spec *)arg;
    uint64_t first = s->set != 0; /* set, in each mode */
    if (s->mode == SHMI_eventAuto) {
        shmi_auto_event_words *w = (shmi_auto_event_words *)(void *)body;
        w->mode = s->mode;
        w->value = first;
        w->spin = s->spin;
    } else {
        shmi_event_words *w = (shmi_event_words *)(void *)body;
        w->count.state = first | (uint64_t)s->mode << SHMI_EVENT_MODE_SHIFT;
        w->count.spin = s->spin;
    }
}

SHMI_FN void *shmi_event_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    uint32_t mode = *(const uint32_t *)arg;
    struct shmi_event *e;
    shmi_off record = 0;
    size_t cap = 16;
    if (mode == SHMI_eventAuto && shmi_slot_record(a, o, sizeof(shmi_event_record), &record) != 0)
        return NULL;
    e = (struct shmi_event *)shmi_new_thing(sizeof *e);
    if (e == NULL)
        return NULL;
    if (!shmi_event_build(e, a, o, mode)) {
        shmi_free_thing(e);
        shmi_fail(EPROTO, "event.open", shmi_called(o), "its list of slot records");
        return NULL;
    }
    if (mode != SHMI_eventAuto)
        return e;
    e->own = (shmi_event_record *)shmi_ptr(a, record, sizeof(shmi_event_record), 8);
    while (cap < e->slots)
        cap *= 2; /* few sizes, since each has its own spare ones */
    e->known = (shmi_event_record **)shmi_new_thing(cap * sizeof *e->known);
    if (e->known == NULL) {
        shmi_free_thing(e);
        shmi_fail(ENOMEM, "event.open", shmi_called(o), "%s", "");
        return NULL;
    }
    shmi_built_ends_with(a, o->off, shmi_event_end);
    return e;
}

SHMI_FN int shmi_event_handle(shmsync_arena *a, const shmi_object *o, shmsync_event *out)
{
    int is = shmi_event_mode_of(a, o);
    uint32_t mode = (uint32_t)is;
    if (is < 0) {
        shmi_close_object(a, o->off);
        return shmi_fail(EPROTO, "event.open", shmi_called(o), "its mode does not go with its size");
    }
    return SHMI_HAND_OUT(out, struct shmi_event *, shmi_share(a, o, shmi_event_new, &mode));
}

SHMI_FN int shmi_open_event(int existing, shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    SHMI_OPTIONS(shmsync_event_options, 32, "event.open", out->impl);
    shmi_spec spec;
    shmi_event_spec init;
    shmi_object o;
    int err, created, is;
    memset(&init, 0, sizeof init);
    if (opts != NULL) {
        init.mode = (opts->auto_reset ? (uint32_t)SHMI_eventAuto : 0u) | (opts->bidirectional ? (uint32_t)SHMI_eventBidirectional : 0u);
        init.set = opts->set;
        init.spin = shmi_spin_field(opts->spin_ns);
    }
    if (init.mode > SHMI_eventBidirectional)
        return shmi_fail(EINVAL, "event.open", name, "auto_reset and bidirectional");
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_EVENT;
    spec.version = SHMI_VERSION_EVENT;
    spec.name = name;
    spec.size = shmi_event_bytes(a, init.mode);
    spec.any_size = 1;
    spec.init = shmi_event_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    is = err == 0 ? shmi_event_mode_of(a, &o) : -1;
    if (is >= 0 && (init.mode & ~(uint32_t)is) != 0) { /* before this process gets a record */
        shmi_close_object(a, o.off);
        err = shmi_fail(EINVAL, "event.open", name, "it is of another mode than was asked for");
    }
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_event_handle(a, &o, out));
    shmi_exit(a);
    return err;
}
int shmsync_event_open(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_event(0, a, name, opts, out));
}
int shmsync_event_attach(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_event(1, a, name, opts, out));
}

int shmsync_event_at(shmsync_arena *a, shmsync_offset off, shmsync_event *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "event.open", SHMI_KIND_EVENT, SHMI_VERSION_EVENT, shmi_event_bytes(a, 0), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_event_handle(a, &o, out)));
}

int shmsync_event_close(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err;
    if (e->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(e->impl->a, e->impl->o.off, shmi_event_end);
    if (err == 0)
        e->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_event_offset(const shmsync_event *e)
{
    SHMI_OPENED_OR(e, 0);
    return e->impl->o.off;
}

int shmsync_event_set(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(e->impl->mode & SHMI_eventAuto ? shmi_event_set_auto(e->impl) : shmi_event_turn(e->impl, 1));
}
int shmsync_event_reset(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(e->impl->mode & SHMI_eventAuto ? shmi_event_reset_auto(e->impl) : shmi_event_turn(e->impl, 0));
}
int shmsync_event_is_set(const shmsync_event *e)
{
    SHMI_OPENED_OR(e, 0);
    if (shmi_use(e->impl->a, "event") != 0)
        return 0;
    return e->impl->mode & SHMI_eventAuto ? shmi_event_is_set_auto(e->impl) : shmi_event_odd(e->impl);
}

SHMI_FN int shmi_event_await(shmsync_event *e, int64_t abs)
{
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return err;
    return e->impl->mode & SHMI_eventAuto ? shmi_event_wait_auto(e->impl, abs) : shmi_event_until(e->impl, 1, abs);
}
int shmsync_event_wait(shmsync_event *e)
{
    SHMI_OPENED(e);
    return SHMI_TELL(shmi_event_await(e, 0));
}
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_event_await(e, ns));
}
int shmsync_event_trywait(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    if (e->impl->mode & SHMI_eventAuto)
        return SHMI_TELL(shmi_event_try_auto(e->impl));
    return SHMI_TELL(shmi_event_odd(e->impl) ? 0 : EBUSY);
}
SHMI_FN int shmi_event_await_reset(shmsync_event *e, int64_t abs)
{
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return err;
    if (!(e->impl->mode & SHMI_eventBidirectional))
        return shmi_fail(EINVAL, "event.wait_reset", shmi_called(&e->impl->o), "it is not bidirectional");
    return shmi_event_until(e->impl, 0, abs);
}
int shmsync_event_wait_reset(shmsync_event *e)
{
    SHMI_OPENED(e);
    return SHMI_TELL(shmi_event_await_reset(e, 0));
}
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_event_await_reset(e, ns));
}

/* The reaper's side. An Event that is reset by hand has nothing to repair. */
SHMI_FN void shmi_repair_event(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_event e;
    if (shmi_event_mode_of(a, o) != SHMI_eventAuto)
        return;
    /* Without a record the dead participant has not used it: see semaphoreToRepair in Go. */
    if (shmi_event_build(&e, a, o, SHMI_eventAuto))
        shmi_mon_repair(&e.m, dead);
}
SHMI_FN void shmi_wake_event(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_eventcount e;
    int mode = shmi_event_mode_of(a, o);
    if (mode == SHMI_eventAuto) {
        shmi_mon_wake_object(a, o, owed);
    } else if (mode >= 0) {
        shmi_eventcount_init(&e, a, o, "event.wait", NULL);
        shmi_eventcount_wake_dead(&e, owed);
    }
}
