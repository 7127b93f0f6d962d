
/* ---- WaitGroups and Latches: prims/counter*.go in C ---- */

/* The commit word; see prims/counter_word.go. */
#define SHMI_COUNTER_DEAD UINT64_C(2)
#define SHMI_COUNTER_MAX UINT64_C(0x7fffffff)
#define SHMI_COUNTER_TICKETS UINT32_C(0x1fffffff)
enum { SHMI_counterEntries = 7 };
/* Indices of the words that a record changes. */
enum { SHMI_counterCount = 1, SHMI_counterPeriod, SHMI_counterOwed, SHMI_counterDeadID, SHMI_counterFirstShare = 8 };
enum { SHMI_shareName, SHMI_sharePeriod, SHMI_shareOwn, SHMI_shareClaimed };

struct shmi_counter {
    struct shmi_records r; /* first, because the functions of records get a pointer to it */
    shmsync_arena *a;
    shmi_counter_words *w;
    shmi_counter_slot *own; /* the slot record of this participant; NULL in a reaper without a handle */
    shmi_counter_slot **of; /* of[i]: the slot record of slot i + 1; NULL: the slot has none, or this process does not know it */
    uint64_t head;          /* the start of the list of slot records when this process read the list: see shmi_known_list. Atomic. */
    uint32_t deaths;        /* what shmi_deaths was when a waiter last looked for dead participants. Atomic. */
    uint64_t sought;        /* what shmi_counter_words.events was when a waiter last looked for dead participants. Atomic. */
    shmi_wait_list line;
    const char *op;      /* name of the operation, for the errors of waits */
    uint64_t seen;       /* what shmi_counter_words.events was at the last periodic check */
    int64_t looked;
    shmi_object o;
};

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_counter_bytes(shmsync_arena *a) { return sizeof(shmi_counter_words) + (a->geo.counted ? 64 : 0); }
SHMI_FN int shmi_counter_is_zero(uint64_t c) { return c >> 32 == 0; }
SHMI_FN int shmi_counter_is_untold(uint64_t c) { return c >> 32 == 0 && c != 0; }
SHMI_FN int shmi_counter_is_lost(uint64_t c) { return !shmi_counter_is_logged(c) && c >> 32 != 0 && (c & SHMI_COUNTER_DEAD) != 0; }
SHMI_FN shmi_participant_id shmi_counter_owner(uint64_t c) { return shmi_counter_is_logged(c) || c >> 32 == 0 ? 0 : (shmi_participant_id)((uint32_t)c >> 3); }
SHMI_FN int shmi_counter_owned_by(uint64_t c, uint64_t me) { return !shmi_counter_is_logged(c) && c >> 32 != 0 && ((uint32_t)c & ~(uint32_t)1) == me; }
SHMI_FN uint64_t shmi_counter_load(struct shmi_counter *t) { return shmi_ld64(&t->w->commit); }
SHMI_FN uint64_t shmi_counter_me(struct shmi_counter *t) { return (uint64_t)t->a->self << 3; }

SHMI_FN shmi_tuning shmi_counter_tuning(struct shmi_counter *t)
{
    shmi_tuning u;
    u.budget = &t->w->spin;
    u.pays = &t->w->pays;
    u.last_cpu = &t->w->lastCPU;
    u.slot = t->a->my_slot;
    return u;
}
SHMI_FN int shmi_counter_corrupt(struct shmi_counter *t, const char *how) { return shmi_fail(EPROTO, t->op, shmi_called(&t->o), "%s", how); }
SHMI_FN int shmi_counter_too_much(struct shmi_counter *t, const char *op, int64_t n)
{
    return shmi_fail(EINVAL, op, shmi_called(&t->o), "%lld is more than is left", (long long)n);
}

SHMI_FN int shmi_counter_corrupt_shares(struct shmi_counter *t) { return shmi_counter_corrupt(t, "its list of slot records"); }

/* Reads the list of slot records if it has changed. A known record stays known, even if a peer has overwritten the
 * list. A participant puts its record on the list before it first changes the commit word. So a call that has loaded
 * the commit word finds all records to which the state can refer. Returns 0 if a reaper has no memory for the array. */
SHMI_FN int shmi_counter_learn(struct shmi_counter *t)
{
    shmi_record_walk v;
    uint32_t head = shmi_records_head(t->a, &t->o);
    if (t->of == NULL && (t->of = (shmi_counter_slot **)calloc(t->a->geo.slots, sizeof *t->of)) == NULL)
        return 0;
    if ((uint32_t)__atomic_load_n(&t->head, __ATOMIC_ACQUIRE) == head)
        return 1;
    for (shmi_walk_records_from(&v, t->o.off, head, sizeof(shmi_counter_slot)); shmi_next_record(t->a, &v);)
        if (__atomic_load_n(&t->of[v.slot - 1], __ATOMIC_RELAXED) == NULL)
            __atomic_store_n(&t->of[v.slot - 1], (shmi_counter_slot *)shmi_ptr(t->a, v.b.off, sizeof(shmi_counter_slot), 8), __ATOMIC_RELEASE);
    __atomic_store_n(&t->head, shmi_known_list(head, &v), __ATOMIC_RELEASE);
    return 1;
}
/* The slot record of a slot; NULL if it has none. */
SHMI_FN shmi_counter_slot *shmi_counter_slot_at(struct shmi_counter *t, uint32_t slot)
{
    if (slot < 1 || slot > t->a->geo.slots)
        return NULL;
    if (t->own != NULL && slot == t->a->my_slot)
        return t->own;
    return shmi_counter_learn(t) ? __atomic_load_n(&t->of[slot - 1], __ATOMIC_ACQUIRE) : NULL;
}
/* A step of a walk through the slot records that this process knows. *slot is the slot of the previous record, or 0 at
 * the beginning. Returns the next record and sets *slot to its slot, or returns NULL after the last record. The caller
 * has called shmi_counter_learn, which has succeeded. */
SHMI_FN shmi_counter_slot *shmi_counter_next(struct shmi_counter *t, uint32_t *slot)
{
    while (*slot < t->a->geo.slots) {
        shmi_counter_slot *s = __atomic_load_n(&t->of[(*slot)++], __ATOMIC_ACQUIRE);
        if (s != NULL)
            return s;
    }
    return NULL;
}

SHMI_FN uint32_t shmi_share_at(uint32_t slot, uint32_t which) { return SHMI_counterFirstShare + (slot - 1) * 4 + which; }
/* Finds a tagged word by its index; NULL if there is none. */
SHMI_FN uint64_t *shmi_counter_tagged(struct shmi_counter *t, uint32_t index)
{
    shmi_counter_slot *s;
    switch (index) {
    case SHMI_counterCount:
        return &t->w->count;
    case SHMI_counterPeriod:
        return &t->w->period;
    case SHMI_counterOwed:
        return &t->w->owed;
    case SHMI_counterDeadID:
        return &t->w->dead;
    }
    s = index < SHMI_counterFirstShare ? NULL : shmi_counter_slot_at(t, (index - SHMI_counterFirstShare) / 4 + 1);
    if (s == NULL)
        return NULL;
    switch ((index - SHMI_counterFirstShare) % 4) {
    case SHMI_shareName:
        return &s->name;
    case SHMI_sharePeriod:
        return &s->period;
    case SHMI_shareOwn:
        return &s->own;
    }
    return &s->claimed;
}

SHMI_FN uint64_t *shmi_counter_word_at(struct shmi_records *r, uint32_t index) { return shmi_counter_tagged((struct shmi_counter *)(void *)r, index); }
SHMI_FN uint64_t *shmi_counter_record_of(struct shmi_records *r, uint32_t slot, uint32_t *n)
{
    shmi_counter_slot *s = shmi_counter_slot_at((struct shmi_counter *)(void *)r, slot);
    *n = SHMI_counterEntries;
    return s == NULL ? NULL : &s->head;
}
SHMI_FN int shmi_counter_spoilt(struct shmi_records *r, const char *how) { return shmi_counter_corrupt((struct shmi_counter *)(void *)r, how); }
SHMI_FN int shmi_counter_complete(struct shmi_counter *t, uint64_t c) { return shmi_records_complete(&t->r, c); }
/* Makes a change of the counter by a record, if the commit word is still c. The caller has the private lock, and has
 * completed the record that c names. */
SHMI_FN int shmi_counter_commit(struct shmi_counter *t, uint64_t c, const shmi_record_change *ch, int *ok) { return shmi_records_commit(&t->r, t->a->my_slot, c, ch, ok); }

/* Returns a number for a new period, the low half of a ticket. No share has this number. The low half repeats after
 * 2^32 tickets, so the function compares it with the periods of all shares. */
SHMI_FN uint32_t shmi_counter_new_period(struct shmi_counter *t)
{
    uint32_t tries, slot, period = 0;
    for (tries = 0; tries <= t->a->geo.slots; tries++) {
        uint64_t n = shmi_add64(&t->w->tickets, 1) + 1;
        shmi_counter_slot *s;
        period = (uint32_t)n;
        if (n <= UINT32_MAX || !shmi_counter_learn(t))
            break;
        for (slot = 0; (s = shmi_counter_next(t, &slot)) != NULL && shmi_value_of(&s->period) != period;)
            ;
        if (s == NULL)
            break;
    }
    return period;
}

/* Changes the commit word from c, which has the sole form and is not 0, to the logged form. Does nothing if the commit
 * word is no longer c. */
SHMI_FN int shmi_counter_convert(struct shmi_counter *t, uint64_t c)
{
    shmi_record_change ch;
    shmi_participant_id owner = shmi_counter_owner(c);
    uint32_t period = shmi_counter_new_period(t), slot = shmi_id_slot(owner);
    int ok, err;
    pthread_mutex_lock(&t->a->counter_lock);
    ch.n = 0;
    shmi_record_set(&ch, SHMI_counterCount, c >> 32);
    shmi_record_set(&ch, SHMI_counterPeriod, period);
    shmi_record_set(&ch, SHMI_counterOwed, shmi_counter_is_lost(c) ? c >> 32 : 0);
    if (shmi_counter_is_lost(c)) {
        shmi_record_set(&ch, SHMI_counterDeadID, owner);
    } else if (owner != 0) {
        shmi_record_set(&ch, shmi_share_at(slot, SHMI_shareName), owner);
        shmi_record_set(&ch, shmi_share_at(slot, SHMI_sharePeriod), period);
        shmi_record_set(&ch, shmi_share_at(slot, SHMI_shareOwn), c >> 32);
        shmi_record_set(&ch, shmi_share_at(slot, SHMI_shareClaimed), 0);
    }
    err = shmi_counter_commit(t, c, &ch, &ok);
    pthread_mutex_unlock(&t->a->counter_lock);
    return err;
}

/* Wakes the waiters because of a death. They check the counter again. */
SHMI_FN void shmi_counter_recheck(struct shmi_counter *t)
{
    uint64_t e;
    do
        e = shmi_ld64(&t->w->events);
    while (!shmi_cas64(&t->w->events, e, (e & ~(uint64_t)UINT32_MAX) | (uint32_t)(e + 1)));
    shmi_deliver_all(t->a, &t->line);
}
/* Wakes the waiters after a reap has added a share to the count that dead participants owe. */
SHMI_FN void shmi_counter_tell(struct shmi_counter *t)
{
    SHMSYNC_CRASHPOINT("counter.reap.lost");
    shmi_counter_recheck(t);
}
/* Wakes the waiters of a counter that is 0, with the commit word c, unless another process has woken them. */
SHMI_FN void shmi_counter_tell_zero(struct shmi_counter *t, uint64_t c)
{
    uint32_t ticket = (uint32_t)c >> 3;
    for (;;) {
        uint64_t e = shmi_ld64(&t->w->events);
        if ((uint32_t)(e >> 32) == ticket)
            break;
        if (shmi_counter_load(t) != c)
            return;
        if (shmi_cas64(&t->w->events, e, (uint64_t)ticket << 32 | (uint32_t)(e + 1)))
            break;
    }
    SHMSYNC_CRASHPOINT("counter.zero.told");
    if (shmi_cas64(&t->w->commit, c, 0)) {
        SHMSYNC_CRASHPOINT("counter.zero.before_wake");
        shmi_deliver_all(t->a, &t->line);
    }
}
/* Values of *due. A change sets *due to say which wake this process owes to the waiters. The process sends the wake
 * after it has unlocked the private lock. 0: no wake. SHMI_COUNTER_DUE_DEATH: a wake because of a death. Any other
 * value is the commit word of a counter that has become 0. */
#define SHMI_COUNTER_DUE_DEATH SHMI_COUNTER_LOGGED
SHMI_FN void shmi_counter_pay(struct shmi_counter *t, uint64_t due)
{
    if (due == SHMI_COUNTER_DUE_DEATH)
        shmi_counter_tell(t);
    else if (due != 0)
        shmi_counter_tell_zero(t, due);
}
/* Sets the counter to 0 if the commit word is still c. Returns whether it has done so. If waiters must be woken, the
 * call sets *due, and the caller passes *due to shmi_counter_pay. Before the call, *due is 0. */
SHMI_FN int shmi_counter_become_zero(struct shmi_counter *t, uint64_t c, uint64_t *due)
{
    shmi_tuning u = shmi_counter_tuning(t);
    uint64_t to;
    uint32_t ticket;
    if ((c & SHMI_COUNTER_WATCHED) == 0)
        return shmi_cas64(&t->w->commit, c, 0);
    do
        ticket = (uint32_t)(shmi_add64(&t->w->tickets, 1) + 1) & SHMI_COUNTER_TICKETS;
    while (ticket == 0 || ticket == (uint32_t)(shmi_ld64(&t->w->events) >> 32));
    to = (uint64_t)ticket << 3 | SHMI_COUNTER_WATCHED;
    shmi_note_cpu(&u); /* a waiter that sees the zero may read the note */
    if (!shmi_cas64(&t->w->commit, c, to))
        return 0;
    SHMSYNC_CRASHPOINT("counter.zero.untold");
    *due = to;
    return 1;
}

/* The value of a share. The commit word has the logged form, and its record is complete. */
SHMI_FN uint64_t shmi_counter_has(struct shmi_counter *t, shmi_counter_slot *s)
{
    return shmi_value_of(&s->period) == shmi_value_of(&t->w->period) ? shmi_value_of(&s->own) : 0;
}
SHMI_FN shmi_participant_id shmi_counter_holder(shmi_counter_slot *s) { return (shmi_participant_id)(shmi_value_of(&s->name) & SHMI_NAME_MASK); }
/* The part of a share that other participants may claim. */
SHMI_FN uint64_t shmi_counter_claimable(struct shmi_counter *t, shmi_counter_slot *s)
{
    uint64_t own = shmi_counter_has(t, s);
    return own - shmi_min(shmi_value_of(&s->claimed), own);
}

/* The share of this participant, in the form that a change needs. Here the share is at most the count. In the slot
 * record the share may exceed the count, because other participants, too, count down for work of this share. */
typedef struct shmi_own_share {
    uint64_t own, claimed;
    int void_; /* the slot has no share in this period */
} shmi_own_share;
/* Reads the share of this participant. Returns 0 if the slot still has the share of a dead predecessor, which must be
 * folded first. */
SHMI_FN int shmi_counter_mine(struct shmi_counter *t, uint64_t count, shmi_own_share *h)
{
    shmi_counter_slot *s = t->own;
    h->own = shmi_min(shmi_counter_has(t, s), count);
    h->claimed = shmi_min(shmi_value_of(&s->claimed), h->own);
    h->void_ = shmi_counter_holder(s) != t->a->self || shmi_value_of(&s->period) != shmi_value_of(&t->w->period);
    if (h->void_ && h->own != 0)
        return 0;
    if (h->void_)
        h->claimed = 0;
    return 1;
}
SHMI_FN void shmi_counter_put(struct shmi_counter *t, shmi_record_change *ch, const shmi_own_share *h, uint64_t own, uint64_t claimed)
{
    uint32_t slot = t->a->my_slot;
    if (h->void_) {
        if (own == 0)
            return;
        shmi_record_set(ch, shmi_share_at(slot, SHMI_shareName), t->a->self);
        shmi_record_set(ch, shmi_share_at(slot, SHMI_sharePeriod), shmi_value_of(&t->w->period));
    }
    shmi_record_set(ch, shmi_share_at(slot, SHMI_shareOwn), own);
    if (h->void_ || claimed != h->claimed || own > h->own)
        shmi_record_set(ch, shmi_share_at(slot, SHMI_shareClaimed), claimed);
}
/* Makes one attempt to fold the share of a slot: to add it to the count that dead participants owe. The caller has the
 * private lock. The attempt has succeeded if *due is not 0 afterwards. */
SHMI_FN int shmi_counter_fold(struct shmi_counter *t, uint64_t c, uint32_t slot, uint64_t *due)
{
    shmi_counter_slot *s = shmi_counter_slot_at(t, slot);
    shmi_record_change ch;
    int ok, err;
    if (s == NULL)
        return shmi_counter_corrupt_shares(t);
    ch.n = 0;
    shmi_record_set(&ch, SHMI_counterOwed, shmi_min(shmi_value_of(&t->w->owed) + shmi_counter_has(t, s), shmi_value_of(&t->w->count)));
    shmi_record_set(&ch, SHMI_counterDeadID, shmi_counter_holder(s));
    shmi_record_set(&ch, shmi_share_at(slot, SHMI_shareOwn), 0);
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok)
        *due = SHMI_COUNTER_DUE_DEATH;
    return err;
}

/* The result of an attempt in the logged form. */
enum { SHMI_counterAgain, SHMI_counterDone, SHMI_counterNot, SHMI_counterReap, SHMI_counterAwait };

/* Makes one attempt to change a counter in the logged form: adds n to it or, if add is 0, subtracts n from it. */
SHMI_FN int shmi_counter_change_locked(struct shmi_counter *t, uint64_t c, uint64_t n, int add, int *next, uint64_t *due)
{
    shmi_record_change ch;
    shmi_own_share h;
    uint64_t count;
    int ok = 0, err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    count = shmi_value_of(&t->w->count);
    if (add ? n > SHMI_COUNTER_MAX - shmi_min(count, SHMI_COUNTER_MAX) : n > count) {
        *next = shmi_counter_load(t) == c ? SHMI_counterNot : SHMI_counterAgain;
        return 0;
    }
    if (!add && n == count) {
        *next = shmi_counter_become_zero(t, c, due) ? SHMI_counterDone : SHMI_counterAgain;
        return 0;
    }
    if (!shmi_counter_mine(t, count, &h))
        return shmi_counter_fold(t, c, t->a->my_slot, due);
    ch.n = 0;
    if (add) {
        shmi_record_set(&ch, SHMI_counterCount, count + n);
        shmi_counter_put(t, &ch, &h, h.own + n, h.claimed); /* other participants may claim the units that this call adds */
    } else {
        uint64_t own = h.own - shmi_min(n, h.own);
        shmi_record_set(&ch, SHMI_counterCount, count - n);
        if (h.own > 0)
            shmi_counter_put(t, &ch, &h, own, shmi_min(h.claimed, own));
    }
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok) {
        if (add)
            SHMSYNC_CRASHPOINT("counter.add.counted");
        else
            SHMSYNC_CRASHPOINT("counter.done.counted");
        *next = SHMI_counterDone;
    }
    return err;
}
SHMI_FN int shmi_counter_change_logged(struct shmi_counter *t, uint64_t c, uint64_t n, int add, int *next)
{
    uint64_t due = 0;
    int err;
    *next = SHMI_counterAgain;
    pthread_mutex_lock(&t->a->counter_lock);
    err = shmi_counter_change_locked(t, c, n, add, next, &due);
    pthread_mutex_unlock(&t->a->counter_lock);
    shmi_counter_pay(t, due);
    return err;
}

SHMI_FN int shmi_counter_add(struct shmi_counter *t, uint64_t n)
{
    uint64_t me = shmi_counter_me(t);
    int next, err = shmi_enter(t->a, "waitgroup.add");
    if (err != 0)
        return err;
    for (next = SHMI_counterAgain; err == 0 && next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_untold(c)) {
            shmi_counter_tell_zero(t, c);
        } else if (shmi_counter_is_logged(c)) {
            err = shmi_counter_change_logged(t, c, n, 1, &next);
        } else if (n > SHMI_COUNTER_MAX - (c >> 32)) {
            next = SHMI_counterNot;
        } else if (c == 0 || shmi_counter_owned_by(c, me)) {
            if (shmi_cas64(&t->w->commit, c, c == 0 ? n << 32 | me : c + (n << 32))) {
                SHMSYNC_CRASHPOINT("counter.add.counted");
                next = SHMI_counterDone;
            }
        } else {
            err = shmi_counter_convert(t, c);
        }
    }
    if (next == SHMI_counterNot)
        err = shmi_fail(EINVAL, "waitgroup.add", shmi_called(&t->o), "the counter would be too big");
    shmi_exit(t->a);
    return err;
}

SHMI_FN int shmi_counter_finish(struct shmi_counter *t, int64_t n, const char *op)
{
    uint64_t me = shmi_counter_me(t);
    int next, err;
    if (n < 0)
        return shmi_fail(EINVAL, op, shmi_called(&t->o), "%lld", (long long)n);
    err = shmi_enter(t->a, op);
    if (err != 0)
        return err;
    for (next = n == 0 ? SHMI_counterDone : SHMI_counterAgain; err == 0 && next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_logged(c)) {
            err = shmi_counter_change_logged(t, c, (uint64_t)n, 0, &next);
        } else if ((uint64_t)n > c >> 32) {
            next = SHMI_counterNot;
        } else if ((uint64_t)n == c >> 32) {
            uint64_t due = 0;
            if (shmi_counter_become_zero(t, c, &due))
                next = SHMI_counterDone;
            shmi_counter_pay(t, due);
        } else if (shmi_counter_owned_by(c, me) || shmi_counter_owned_by(c, 0)) {
            if (shmi_cas64(&t->w->commit, c, c - ((uint64_t)n << 32))) {
                SHMSYNC_CRASHPOINT("counter.done.counted");
                next = SHMI_counterDone;
            }
        } else {
            err = shmi_counter_convert(t, c);
        }
    }
    if (next == SHMI_counterNot)
        err = shmi_counter_too_much(t, op, n);
    shmi_exit(t->a);
    return err;
}

#define SHMI_COUNTER_DEAD_NOBODY "it does not say which dead participant owes work"
/* Sets *died to a dead participant that owes a count, or to 0 if there is none. If *current is not 0, *died was right
 * at some moment after the caller read c. If *current is 0, *died may belong to a later commit word. */
SHMI_FN int shmi_counter_lost_at(struct shmi_counter *t, uint64_t c, shmi_participant_id *died, int *current)
{
    int err;
    *died = shmi_counter_is_lost(c) ? shmi_counter_owner(c) : 0;
    *current = 1;
    if (shmi_counter_is_lost(c) && *died == 0)
        return shmi_counter_corrupt(t, SHMI_COUNTER_DEAD_NOBODY);
    if (!shmi_counter_is_logged(c))
        return 0;
    err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    if (shmi_value_of(&t->w->owed) == 0) {
        if (shmi_counter_learn(t) && shmi_known_bad(shmi_ld64(&t->head)))
            return shmi_counter_corrupt_shares(t); /* a dead participant may have a share that is not on the list any more */
        return 0; /* a process that folds a share after this load of w->owed wakes the waiters after the fold */
    }
    *died = (shmi_participant_id)(shmi_value_of(&t->w->dead) & SHMI_NAME_MASK);
    /* If the commit word has changed, w->owed may belong to a later record, which is not carried out completely. */
    *current = shmi_counter_bare(shmi_counter_load(t)) == shmi_counter_bare(c);
    return *current && *died == 0 ? shmi_counter_corrupt(t, SHMI_COUNTER_DEAD_NOBODY) : 0;
}

/* Whether the participant n of a share is dead, or is leaving. The parameter without is the participant that is
 * leaving, or 0. */
SHMI_FN int shmi_counter_leaves(struct shmi_counter *t, shmi_participant_id n, shmi_participant_id without) { return n == without || !shmi_current(t->a, n); }
/* Whether the owner that the commit word c names, in the sole form, is dead or is leaving. Then the whole count is its
 * share. */
SHMI_FN int shmi_counter_left(struct shmi_counter *t, uint64_t c, shmi_participant_id without)
{
    shmi_participant_id n = shmi_counter_owner(c);
    return n != 0 && !shmi_counter_is_lost(c) && shmi_counter_leaves(t, n, without);
}
/* Whether s is the share of a participant that is dead or is leaving. The commit word has the logged form. */
SHMI_FN int shmi_counter_share_left(struct shmi_counter *t, shmi_counter_slot *s, shmi_participant_id without)
{
    return shmi_counter_has(t, s) != 0 && shmi_counter_leaves(t, shmi_counter_holder(s), without);
}
/* Makes one attempt to fold the share s, if its participant is dead, or is the leaving participant that the parameter
 * without names. Sets *next to SHMI_counterDone if the slot has no such share any more. Sets *next to SHMI_counterNot
 * if this participant has no slot record, and so cannot make a change. */
SHMI_FN int shmi_counter_reap_share(struct shmi_counter *t, uint64_t c, shmi_counter_slot *s, uint32_t slot, shmi_participant_id without, int *next)
{
    uint64_t due = 0;
    int err;
    *next = SHMI_counterAgain;
    pthread_mutex_lock(&t->a->counter_lock);
    err = shmi_counter_complete(t, c);
    if (err == 0) {
        if (!shmi_counter_share_left(t, s, without)) {
            *next = SHMI_counterDone;
        } else if (shmi_counter_slot_at(t, t->a->my_slot) == NULL) {
            *next = SHMI_counterNot;
        } else {
            err = shmi_counter_fold(t, c, slot, &due);
            if (due != 0)
                *next = SHMI_counterDone;
        }
    }
    pthread_mutex_unlock(&t->a->counter_lock);
    shmi_counter_pay(t, due);
    return err;
}
/* Folds the shares of dead participants, slot by slot. The parameter without is a participant that is leaving, whose
 * share is folded, too, or 0. The commit word has had the logged form since the participants died. One check of each
 * slot is enough: see prims/counter_repair.go. If a reaper cannot make a slot record for itself, the waiters fold the
 * shares: see shmi_counter_look_for_dead. */
SHMI_FN void shmi_counter_reap_shares(struct shmi_counter *t, shmi_participant_id without)
{
    uint32_t slot = 0;
    shmi_counter_slot *s;
    if (!shmi_counter_learn(t)) {
        shmi_counter_recheck(t);
        return;
    }
    while ((s = shmi_counter_next(t, &slot)) != NULL) {
        int next = SHMI_counterAgain, made = 0;
        while (next != SHMI_counterDone) {
            uint64_t c = shmi_counter_load(t);
            if (!shmi_counter_is_logged(c) || shmi_counter_reap_share(t, c, s, slot, without, &next) != 0)
                return; /* nothing is left to fold: if the counter has become 0, all shares are void */
            if (next == SHMI_counterNot && (made++ != 0 || !shmi_record_of_reaper(t->a, &t->o, sizeof(shmi_counter_slot)))) {
                shmi_counter_recheck(t);
                return;
            }
        }
    }
}
/* Adds the shares of dead participants to the count that dead participants owe. The parameter without is a participant
 * that is leaving, whose share is added, too, or 0. */
SHMI_FN void shmi_counter_reap(struct shmi_counter *t, shmi_participant_id without)
{
    int tries; /* bounded, because only a peer that breaks the rules changes the word more often */
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_logged(c)) {
            shmi_counter_reap_shares(t, without);
            return;
        }
        if (!shmi_counter_left(t, c, without))
            return;
        /* Take the word by an act. Otherwise a living participant could get the ID of the dead owner and change the
         * word back to c before the CAS. */
        if (shmi_take_from64(t->a, shmi_counter_owner(c), &t->w->commit, c, c | SHMI_COUNTER_DEAD, 0)) {
            shmi_counter_tell(t);
            return;
        }
    }
}
/* Whether a reap would find shares of dead participants to fold. Also marks dead participants with shares that are not
 * marked yet. */
SHMI_FN int shmi_counter_any_dead(struct shmi_counter *t, uint64_t c)
{
    uint32_t slot = 0;
    int dead = 0;
    if (shmi_counter_is_logged(c)) {
        shmi_counter_slot *s;
        if (shmi_counter_complete(t, c) != 0 || !shmi_counter_learn(t))
            return 0;
        while ((s = shmi_counter_next(t, &slot)) != NULL) {
            if (shmi_counter_has(t, s) != 0)
                shmi_dead(t->a, shmi_counter_holder(s));
            dead |= shmi_counter_share_left(t, s, 0);
        }
    } else {
        if (shmi_counter_owner(c) != 0)
            shmi_dead(t->a, shmi_counter_owner(c));
        dead = shmi_counter_left(t, c, 0);
    }
    return dead;
}
/* Adds the shares of dead participants to the count that dead participants owe. */
SHMI_FN void shmi_counter_reap_dead(struct shmi_counter *t)
{
    if (shmi_counter_any_dead(t, shmi_counter_load(t)))
        shmi_counter_reap(t, 0);
}
/* Calls shmi_counter_reap_dead, unless a waiter of this process has already called it for the present number of deaths
 * and the present value of w->events. e is that value, as the caller has read it. A reaper that cannot fold the share
 * of a dead participant first changes w->events, and then counts the death. So either this call finds the share, or
 * w->events changes before the caller sleeps on it. */
SHMI_FN void shmi_counter_look_for_dead(struct shmi_counter *t, uint64_t e)
{
    uint32_t deaths = shmi_deaths(t->a);
    if (shmi_ld32(&t->deaths) != deaths || shmi_ld64(&t->sought) != e) {
        shmi_counter_reap_dead(t);
        shmi_st32(&t->deaths, deaths);
        shmi_st64(&t->sought, e);
    }
}

typedef struct shmi_counter_spin {
    struct shmi_counter *t;
    uint32_t began;
} shmi_counter_spin;
SHMI_FN int shmi_counter_spun(void *arg)
{
    shmi_counter_spin *x = (shmi_counter_spin *)arg;
    uint64_t c = shmi_counter_load(x->t);
    return shmi_counter_is_zero(c) || shmi_counter_is_lost(c) || (uint32_t)(shmi_ld64(&x->t->w->events) >> 32) != x->began;
}
/* The periodic check: ten times a second, sends the wakes that a stopped or dead process has not sent. */
SHMI_FN void shmi_counter_check(struct shmi_counter *t)
{
    uint64_t e, c;
    shmi_participant_id died = 0;
    int moved, current;
    if (!shmi_check_due(&t->looked))
        return;
    e = shmi_ld64(&t->w->events);
    moved = shmi_xchg64(&t->seen, e) != e;
    shmi_counter_reap_dead(t);
    c = shmi_counter_load(t);
    if (shmi_counter_is_untold(c))
        shmi_counter_tell_zero(t, c);
    if (shmi_counter_lost_at(t, c, &died, &current) != 0 || moved || shmi_counter_is_zero(c) || died != 0 || !current)
        shmi_deliver_all(t->a, &t->line);
}
SHMI_FN void shmi_counter_check_arg(void *t) { shmi_counter_check((struct shmi_counter *)t); }
SHMI_FN int shmi_counter_gives_up(struct shmi_counter *t, int ended)
{
    return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, t->op, shmi_called(&t->o))
                              : shmi_fail(EBADF, t->op, shmi_called(&t->o), "this process closed the arena");
}
/* How many times a waiter tries to find out which participant died, while other calls change the counter. After that
 * the waiter sleeps until the next periodic check. */
enum { SHMI_counterLooks = 16 };
SHMI_FN int shmi_counter_wait_entered(struct shmi_counter *t, int64_t deadline)
{
    uint32_t began = (uint32_t)(shmi_ld64(&t->w->events) >> 32);
    int64_t since = 0;
    int looks; /* number of reads since the last sleep. From the second read on, the call checks its deadline */
    for (looks = 0;; looks++) {
        uint64_t e = shmi_ld64(&t->w->events), c;
        shmi_sleep_spec spec;
        shmi_participant_id died;
        int current, err, ended;
        shmi_counter_look_for_dead(t, e);
        c = shmi_counter_load(t);
        if (shmi_counter_is_zero(c) || (uint32_t)(e >> 32) != began)
            return 0;
        if (looks > 0 && deadline != 0 && shmi_now() >= deadline)
            return shmi_counter_gives_up(t, SHMI_LATE);
        if (looks > 0 && __atomic_load_n(&t->a->closing, __ATOMIC_SEQ_CST))
            return shmi_counter_gives_up(t, SHMI_CLOSED);
        err = shmi_counter_lost_at(t, c, &died, &current);
        if (err != 0)
            return err;
        if (died != 0 && current)
            return shmi_fail_who(t->a, EOWNERDEAD, t->op, shmi_called(&t->o), died);
        if (!current && looks < SHMI_counterLooks)
            continue;
        if ((c & SHMI_COUNTER_WATCHED) == 0) {
            shmi_tuning u = shmi_counter_tuning(t);
            shmi_counter_spin x;
            x.t = t;
            x.began = began;
            if (looks == 0 && shmi_spin(&u, shmi_counter_spun, &x))
                continue;
            c = shmi_counter_load(t);
            if (shmi_counter_is_zero(c) || (c & SHMI_COUNTER_WATCHED) != 0 || !shmi_cas64(&t->w->commit, c, c | SHMI_COUNTER_WATCHED))
                continue;
        }
        SHMSYNC_CRASHPOINT("counter.wait.watched");
        memset(&spec, 0, sizeof spec);
        spec.looked = &t->looked;
        spec.check = shmi_counter_check_arg;
        spec.check_arg = t;
        spec.word = t->line.word;
        spec.val = (uint32_t)e;
        spec.object = t->o.off;
        spec.wanted = (uint32_t)e;
        spec.deadline = deadline;
        spec.since = &since;
        looks = -1;
        ended = shmi_sleep(t->a, &spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("counter.wait.woken");
            break;
        case SHMI_LOOK:
            shmi_counter_check(t);
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a counter that is 0, or has been 0 since the wait began, takes precedence over a timeout or a close */
            if (shmi_counter_is_zero(shmi_counter_load(t)) || (uint32_t)(shmi_ld64(&t->w->events) >> 32) != began)
                return 0;
            return shmi_counter_gives_up(t, ended);
        }
    }
}
SHMI_FN int shmi_counter_wait(struct shmi_counter *t, int64_t abs)
{
    shmsync_arena *a = t->a;
    int err;
    if (shmi_counter_is_zero(shmi_counter_load(t)))
        return 0;
    err = shmi_enter_for(t, a, t->op);
    if (err != 0)
        return err;
    err = shmi_counter_wait_entered(t, abs);
    shmi_exit_for(t, a);
    return err;
}

SHMI_FN void shmi_counter_init(struct shmi_counter *t, shmsync_arena *a, const shmi_object *o)
{
    memset(t, 0, sizeof *t);
    t->a = a;
    t->o = *o;
    t->w = (shmi_counter_words *)shmi_ptr(a, o->body, sizeof(shmi_counter_words), 8);
    t->deaths = shmi_deaths(a) - 1; /* so that the first wait looks for dead participants */
    t->line.word = (uint32_t *)(void *)&t->w->events; /* the low half */
    t->line.poller = &t->w->poller;
    t->r.commit = &t->w->commit;
    t->r.tickets = &t->w->tickets;
    t->r.tagged = shmi_counter_word_at;
    t->r.record = shmi_counter_record_of;
    t->r.corrupt = shmi_counter_spoilt;
    t->op = o->kind == SHMI_KIND_LATCH ? "latch.wait" : "waitgroup.wait";
}
SHMI_FN void *shmi_counter_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_counter *t;
    shmi_off record;
    (void)arg;
    if (o->size < shmi_counter_bytes(a) || shmi_slot_record(a, o, sizeof(shmi_counter_slot), &record) != 0)
        return NULL;
    t = (struct shmi_counter *)shmi_new_thing(sizeof *t + shmi_slot_places(a) * sizeof *t->of);
    if (t == NULL)
        return NULL;
    shmi_counter_init(t, a, o);
    t->own = (shmi_counter_slot *)shmi_ptr(a, record, sizeof(shmi_counter_slot), 8);
    t->of = (shmi_counter_slot **)(void *)(t + 1);
    return t;
}

/* The state of a claim. */
typedef struct shmi_claiming {
    uint64_t n, rest, period;
    int from_others, reaped;
} shmi_claiming;
/* Makes one attempt to claim units: first units that dead participants owe, then units that nobody owes, then units of
 * the other participant with the largest claimable share. */
SHMI_FN int shmi_counter_claim_locked(struct shmi_counter *t, uint64_t c, shmi_claiming *k, int *next, uint64_t *due)
{
    uint64_t count, owed, shares, free = 0, others, of_dead, of_nobody, of_most = 0, n, period;
    uint32_t slot = 0, me = t->a->my_slot, most = 0;
    shmi_counter_slot *s, *victim = NULL; /* the slot record with the largest claimable share */
    shmi_record_change ch;
    shmi_own_share h;
    int ok, err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    period = shmi_value_of(&t->w->period);
    if (period != k->period) { /* the counter has been 0 since this call began, so what it claimed before is void */
        k->rest = k->n;
        k->period = period;
    }
    count = shmi_value_of(&t->w->count);
    if (!shmi_counter_mine(t, count, &h))
        return shmi_counter_fold(t, c, me, due);
    owed = shmi_value_of(&t->w->owed);
    shares = h.own;
    if (!shmi_counter_learn(t) || shmi_known_bad(shmi_ld64(&t->head)))
        return shmi_counter_corrupt_shares(t);
    while ((s = shmi_counter_next(t, &slot)) != NULL) {
        uint64_t claimable;
        if (slot == me)
            continue;
        shares += shmi_counter_has(t, s);
        claimable = shmi_counter_claimable(t, s);
        if (claimable > 0) {
            free += claimable;
            if (victim == NULL || claimable > shmi_counter_claimable(t, victim)) {
                most = slot;
                victim = s;
            }
        }
    }
    others = count > owed + shares ? count - owed - shares : 0;
    if (!k->from_others)
        free = most = 0;
    free += others + owed;
    if (k->from_others)
        free = shmi_min(free, count - h.own); /* units in the share of this participant cannot be claimed */
    if (shmi_counter_load(t) != c)
        return 0;
    if (k->rest > free) {
        *next = k->reaped ? SHMI_counterNot : SHMI_counterReap;
        return 0;
    }
    if (owed != 0 && !shmi_all_gone(t->a)) {
        *next = SHMI_counterAwait;
        return 0;
    }
    ch.n = 0;
    of_dead = shmi_min(k->rest, owed);
    if (of_dead > 0)
        shmi_record_set(&ch, SHMI_counterOwed, owed - of_dead);
    of_nobody = shmi_min(k->rest - of_dead, others);
    if (k->rest > of_dead + of_nobody && most != 0) {
        of_most = shmi_min(k->rest - of_dead - of_nobody, shmi_counter_claimable(t, victim));
        shmi_record_set(&ch, shmi_share_at(most, SHMI_shareOwn), shmi_counter_has(t, victim) - of_most);
    }
    n = of_dead + of_nobody + of_most;
    if (n == 0) {
        if (shmi_counter_load(t) == c)
            *next = SHMI_counterNot; /* a peer has overwritten the shares */
        return 0;
    }
    shmi_counter_put(t, &ch, &h, h.own + n, h.claimed + n);
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok) {
        k->rest -= n;
    }
    return err;
}
/* As shmi_counter_claim_entered, but does not wait for processes that are dying. */
SHMI_FN int shmi_counter_try_claim(struct shmi_counter *t, shmi_claiming *k, const char *op, int *next)
{
    int err = 0;
    for (*next = SHMI_counterAgain; err == 0 && *next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_untold(c)) {
            shmi_counter_tell_zero(t, c);
            continue;
        }
        if (!shmi_counter_is_logged(c) && c >> 32 < k->rest) {
            *next = k->reaped ? SHMI_counterNot : SHMI_counterReap;
        } else if (k->rest == 0) {
            *next = SHMI_counterDone;
        } else if (!shmi_counter_is_logged(c)) {
            err = shmi_counter_convert(t, c);
        } else {
            uint64_t due = 0;
            pthread_mutex_lock(&t->a->counter_lock);
            err = shmi_counter_claim_locked(t, c, k, next, &due);
            pthread_mutex_unlock(&t->a->counter_lock);
            shmi_counter_pay(t, due);
        }
        if (err == 0 && *next == SHMI_counterReap) {
            shmi_counter_reap_dead(t);
            k->reaped = 1;
            *next = SHMI_counterAgain;
        /* units of dead participants can be claimed only when these participants are gone */
        } else if (err == 0 && *next == SHMI_counterAwait) {
            err = shmi_await_all_gone(t->a, op, shmi_called(&t->o));
            *next = SHMI_counterAgain;
        }
    }
    return err;
}
/* Claims n of the expected units for this participant: first units that dead participants owe, then units that nobody
 * owes. If from_others is set, also claims units of other participants. */
SHMI_FN int shmi_counter_claim_entered(struct shmi_counter *t, shmi_claiming *k, const char *op, int *next)
{
    int err;
    shmi_counter_reap_dead(t); /* a reaper without a slot record may have left the share of a dead participant in its slot */
    k->reaped = 1;
    err = shmi_counter_try_claim(t, k, op, next);
    /* A caller that has waited for the end of a process expects that it can claim the units of this process. But the
     * library may find out only a moment later that all threads of the process have ended. So the call waits until no
     * process is dying, and tries again. */
    if (err == 0 && *next == SHMI_counterNot) {
        err = shmi_await_none_dying(t->a, op, shmi_called(&t->o));
        k->reaped = 0;
        if (err == 0)
            err = shmi_counter_try_claim(t, k, op, next);
    }
    return err;
}
SHMI_FN int shmi_counter_claim(struct shmi_counter *t, int64_t n, int from_others, const char *op)
{
    shmi_claiming k;
    int next, err;
    if (n < 0)
        return shmi_counter_too_much(t, op, n);
    err = shmi_enter_for(t, t->a, op);
    if (err != 0)
        return err;
    memset(&k, 0, sizeof k);
    k.n = k.rest = (uint64_t)n;
    k.from_others = from_others;
    err = shmi_counter_claim_entered(t, &k, op, &next);
    if (err == 0 && next == SHMI_counterNot)
        err = shmi_counter_too_much(t, op, n);
    shmi_exit_for(t, t->a);
    return err;
}

SHMI_FN int shmi_counter_reset_locked(struct shmi_counter *t, uint64_t c, int *ok, uint64_t *due)
{
    uint64_t count, owed;
    shmi_record_change ch;
    int err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    count = shmi_value_of(&t->w->count);
    owed = shmi_value_of(&t->w->owed);
    if (owed >= count) { /* other participants have done part of the work that dead participants owed */
        *ok = shmi_counter_become_zero(t, c, due);
        return 0;
    }
    ch.n = 0;
    shmi_record_set(&ch, SHMI_counterCount, count - owed);
    shmi_record_set(&ch, SHMI_counterOwed, 0);
    return shmi_counter_commit(t, c, &ch, ok);
}
/* As shmi_counter_become_zero, for a commit word c in the sole form whose owner is dead. Needs an act: otherwise
 * another participant could get the ID of the owner, change the word back to c and die, too. */
SHMI_FN int shmi_counter_zero_lost(struct shmi_counter *t, uint64_t c, uint64_t *due)
{
    shmi_participant_id n = shmi_counter_owner(c);
    shmi_act act;
    int ok;
    if (shmi_current(t->a, n))
        return shmi_counter_become_zero(t, c, due); /* a peer has overwritten the word */
    shmi_begin_act(t->a, &act, n);
    ok = shmi_counter_load(t) == c && shmi_act_holds(t->a, &act, n, 1) && shmi_counter_become_zero(t, c, due);
    shmi_end_act(t->a, &act);
    return ok;
}
/* Subtracts the count that dead participants owe from the counter. */
SHMI_FN int shmi_counter_reset(struct shmi_counter *t)
{
    int ok = 0, err = shmi_enter_for(t, t->a, "counter.reset");
    if (err != 0)
        return err;
    shmi_counter_reap_dead(t);
    while (err == 0 && !ok) {
        uint64_t c = shmi_counter_load(t);
        shmi_participant_id died;
        uint64_t due = 0;
        int current;
        err = shmi_counter_lost_at(t, c, &died, &current);
        if (err != 0 || !current)
            continue;
        if (died == 0)
            break;
        if (!shmi_all_gone(t->a)) {
            err = shmi_await_all_gone(t->a, "counter.reset", shmi_called(&t->o));
        } else if (!shmi_counter_is_logged(c)) {
            ok = shmi_counter_zero_lost(t, c, &due);
        } else {
            pthread_mutex_lock(&t->a->counter_lock);
            err = shmi_counter_reset_locked(t, c, &ok, &due);
            pthread_mutex_unlock(&t->a->counter_lock);
        }
        shmi_counter_pay(t, due);
    }
    shmi_exit_for(t, t->a);
    return err;
}
/* Returns the count. If other calls change the counter all the time, the result may belong to a change that is not
 * complete. */
SHMI_FN int64_t shmi_counter_count(struct shmi_counter *t)
{
    uint64_t count = 0;
    int tries;
    for (tries = 0; tries < 1000; tries++) {
        uint64_t c = shmi_counter_load(t);
        if (!shmi_counter_is_logged(c))
            return (int64_t)(c >> 32);
        if (shmi_counter_complete(t, c) != 0)
            return 0;
        count = shmi_value_of(&t->w->count);
        if (shmi_counter_bare(shmi_counter_load(t)) == shmi_counter_bare(c))
            break;
    }
    return (int64_t)count;
}
SHMI_FN int shmi_counter_close(struct shmi_counter *t) { return shmi_unshare(t->a, t->o.off, shmi_mutex_end); }

/* The initial state of a new counter. */
typedef struct shmi_counter_spec {
    uint64_t n;
    uint32_t spin;
} shmi_counter_spec;
SHMI_FN void shmi_counter_fill(unsigned char *body, const void *arg)
{
    shmi_counter_words *w = (shmi_counter_words *)(void *)body;
    const shmi_counter_spec *s = (const shmi_counter_spec *)arg;
    w->size = s->n;
    w->commit = s->n << 32;
    w->spin = s->spin;
}

SHMI_FN int shmi_open_waitgroup(int existing, shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    SHMI_OPTIONS(shmsync_waitgroup_options, 16, "waitgroup.open", out->impl);
    shmi_counter_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    init.n = 0;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, name, shmi_counter_bytes(a));
    spec.init = shmi_counter_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_waitgroup(0, a, name, opts, out));
}
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_waitgroup(1, a, name, opts, out));
}
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out)
{
    SHMI_BEGIN_AT(a, "waitgroup.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "waitgroup.open", SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, shmi_counter_bytes(a), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g)
{
    SHMI_OPENED_OR(g, 0);
    return g->impl->o.off;
}
int shmsync_waitgroup_close(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    int err;
    if (g->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_counter_close(g->impl);
    if (err == 0)
        g->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta)
{
    SHMI_OPENED(g);
    if (delta == INT64_MIN)
        return shmi_fail(EINVAL, "waitgroup.add", shmi_called(&g->impl->o), "%s", "");
    return SHMI_DONE(delta <= 0 ? shmi_counter_finish(g->impl, -delta, "waitgroup.add") : shmi_counter_add(g->impl, (uint64_t)delta));
}
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n)
{
    SHMI_OPENED(g);
    return SHMI_DONE(shmi_counter_claim(g->impl, n, 1, "waitgroup.claim"));
}
int shmsync_waitgroup_done(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_DONE(shmi_counter_finish(g->impl, 1, "waitgroup.done"));
}
int shmsync_waitgroup_wait(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_DONE(shmi_counter_wait(g->impl, 0));
}
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(g);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_counter_wait(g->impl, ns));
}
int shmsync_waitgroup_reset(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_DONE(shmi_counter_reset(g->impl));
}
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g)
{
    SHMI_OPENED_OR(g, 0);
    return shmi_counter_count(g->impl);
}

SHMI_FN int shmi_open_latch(int existing, shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out)
{
    SHMI_OPTIONS(shmsync_latch_options, 16, "latch.open", out->impl);
    shmi_counter_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    if (n < (existing ? 0 : 1))
        return shmi_fail(EINVAL, "latch.open", name, "it takes a count of at least 1, not %lld; shmsync_latch_attach opens one that exists", (long long)n);
    if ((uint64_t)n > SHMI_COUNTER_MAX)
        return shmi_fail(EINVAL, "latch.open", name, "the highest count is %lld, not %lld", (long long)SHMI_COUNTER_MAX, (long long)n);
    init.n = (uint64_t)n;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, SHMI_KIND_LATCH, SHMI_VERSION_LATCH, name, shmi_counter_bytes(a));
    spec.init = shmi_counter_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && n != 0 && shmi_ld64(&out->impl->w->size) != (uint64_t)n) {
        shmsync_latch_close(out);
        err = shmi_fail(EINVAL, "latch.open", name, "it began with another number than %lld", (long long)n);
    }
    return err;
}
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_latch(0, a, name, n, opts, out));
}
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_latch(1, a, name, 0, opts, out));
}
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out)
{
    SHMI_BEGIN_AT(a, "latch.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "latch.open", SHMI_KIND_LATCH, SHMI_VERSION_LATCH, shmi_counter_bytes(a), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_latch_offset(const shmsync_latch *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
int shmsync_latch_close(shmsync_latch *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_counter_close(l->impl);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_latch_claim(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_counter_claim(l->impl, n, 0, "latch.claim"));
}
int shmsync_latch_count_down(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_counter_finish(l->impl, n, "latch.count_down"));
}
int shmsync_latch_trywait(shmsync_latch *l)
{
    SHMI_OPENED(l);
    if (shmi_counter_is_zero(shmi_counter_load(l->impl)))
        return SHMI_DONE(0);
    int err = shmi_use(l->impl->a, "latch.trywait");
    return SHMI_DONE(err != 0 ? err : EBUSY);
}
int shmsync_latch_wait(shmsync_latch *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_counter_wait(l->impl, 0));
}
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_counter_wait(l->impl, ns));
}
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    /* The count down may let another thread go on, and that thread may close the handle. So the call reads the handle
     * before the count down. */
    struct shmi_counter *t = l->impl;
    shmsync_arena *a = t->a;
    int err = shmi_enter_for(t, a, "latch.count_down");
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_counter_finish(t, n, "latch.count_down");
    if (err == 0)
        err = shmi_counter_wait_entered(t, 0);
    shmi_exit_for(t, a);
    return SHMI_TELL(err);
}
int shmsync_latch_reset(shmsync_latch *l)
{
    SHMI_OPENED(l);
    return SHMI_DONE(shmi_counter_reset(l->impl));
}
int64_t shmsync_latch_count(const shmsync_latch *l)
{
    SHMI_OPENED_OR(l, 0);
    return shmi_counter_count(l->impl);
}

SHMI_FN int shmi_repair_counter(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_counter t;
    if (o->size < shmi_counter_bytes(a))
        return 0;
    shmi_counter_init(&t, a, o);
    shmi_counter_reap(&t, dead == a->self ? dead : 0); /* a participant that leaves itself is still current, so this call must name it */
    free(t.of);
    return 1;
}
/* Wakes the waiters that a dead process was about to wake. If that process was a reaper, it may have changed the commit
 * word and not yet the events word. So this function also changes the events word. Otherwise a waiter that has read
 * both words before, and is about to sleep, would not notice. */
SHMI_FN void shmi_wake_counter(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_counter t;
    uint64_t c;
    if (o->size < shmi_counter_bytes(a))
        return;
    shmi_counter_init(&t, a, o);
    c = shmi_counter_load(&t);
    if (shmi_counter_is_untold(c))
        shmi_counter_tell_zero(&t, c);
    if (owed != SHMI_OWED_ANNOUNCED || (c & SHMI_COUNTER_WATCHED) != 0)
        shmi_counter_recheck(&t);
}
