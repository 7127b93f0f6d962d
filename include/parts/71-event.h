/* Events. A manual-reset Event is an eventcount whose sequence is odd while the Event is set. An auto-reset Event has
 * tokens, and counts the waits of each participant in a share. This is prims/event*.go in C. */

enum { SHMI_eventAuto = 1, SHMI_eventBidirectional = 2 };

struct shmi_event {
    struct shmi_eventcount count; /* in an auto-reset Event, the word of the eventcount has another form: see below */
    shmi_event_record *own;       /* the share of this process; only for an auto-reset Event */
    shmi_event_record **known;    /* known[i]: the share of slot i + 1; NULL: the slot has none. Atomic. */
    uint64_t known_head;          /* the start of the list of slot records when known was filled: see shmi_known_list. Atomic. */
    uint32_t most;                /* the highest slot whose share is in known. Atomic. */
    uint32_t turns;               /* number of wakes. A thread and a poller get them alternately. Atomic. */
    uint32_t mode;
    int64_t tried;                /* when a trywait last looked for dead waiters; see shmi_check_due */
    shmsync_arena *a;
    shmi_object o;
};

/* ---- Automatic reset ----
 *
 * The word of the Event has tokens, each of which ends a wait, and a version, which counts the changes of the word. The
 * share of a participant counts the waits of all of its threads.
 *
 *     a wait                                   a set
 *     share: waits + 1                         read the word
 *     word: is there a token? then take it     read the shares: how many waits are there?
 *     word: announced, version + 1             if tokens <= waits, word: tokens + 1, version + 1
 *     sleep while the version is the same      if announced, wake one wait
 *
 * No lock is involved, so a signal handler may set the Event. */

/* For this time, in ns, a wait that has not slept yet leaves the tokens to the waits that began before it. The time has
 * a bound, because the processes of those earlier waits may be stopped. */
#define SHMI_EVENT_YIELD INT64_C(1000000)
/* The greatest number of tokens. A set that would exceed it does nothing. */
#define SHMI_EVENT_TOKENS_MOST (SHMI_AUTO_EVENT_TOKENS_MASK >> SHMI_AUTO_EVENT_TOKENS_SHIFT)

SHMI_FN uint64_t shmi_event_tokens(uint64_t s) { return (s & SHMI_AUTO_EVENT_TOKENS_MASK) >> SHMI_AUTO_EVENT_TOKENS_SHIFT; }
SHMI_FN int shmi_event_announced(uint64_t s) { return (s & SHMI_AUTO_EVENT_ANNOUNCED_MASK) != 0; }
/* Returns the word s after a change that ends no wait. The new word has the given number of tokens. */
SHMI_FN uint64_t shmi_event_with(uint64_t s, uint64_t tokens)
{
    return (uint64_t)(uint32_t)(s + 1) | (s & SHMI_AUTO_EVENT_ANNOUNCED_MASK) | tokens << SHMI_AUTO_EVENT_TOKENS_SHIFT;
}
SHMI_FN uint64_t shmi_event_load(struct shmi_event *e) { return shmi_eventcount_load(&e->count); }
/* Changes the word. The caller has called shmi_event_count_off with the old value. */
SHMI_FN int shmi_event_swap(struct shmi_event *e, uint64_t from, uint64_t to) { return shmi_cas64(&e->count.w->state, from, to); }

/* A share has two numbers. One says how many waits have begun and are not counted off. The other, ended, is the version
 * that the word had at the end of the wait that was counted off last. */
SHMI_FN uint32_t shmi_event_share_waits(uint64_t h) { return (uint32_t)h; }
SHMI_FN uint32_t shmi_event_share_ended(uint64_t h) { return (uint32_t)(h >> 32); }
/* Returns the share h after one wait was counted off. The parameter version is the version of the word at the end of
 * this wait. */
SHMI_FN uint64_t shmi_event_share_less(uint64_t h, uint32_t version)
{
    uint32_t waits = shmi_event_share_waits(h);
    return (uint64_t)version << 32 | (waits > 0 ? waits - 1 : 0);
}

/* Finds the shares, which lie in slot records. A slot record stays until the object is deleted, so a handle keeps the
 * addresses of the shares. A signal handler may call this function, so a new handle already has the array for all
 * addresses.
 *
 * A call reads the word, then the list of slot records, and then changes the word by a CAS. If the CAS succeeds, the
 * call has seen the shares of all waits: a participant that opens the Event puts its slot record on the list before its
 * first wait changes the word. */
SHMI_FN void shmi_event_learn(struct shmi_event *e)
{
    uint32_t head = shmi_ld32(shmi_u32(e->a, e->o.off + SHMI_objRecords)), most;
    shmi_record_walk v;
    if (SHMI_LIKELY((uint32_t)shmi_ld64(&e->known_head) == head))
        return;
    shmi_walk_records(e->a, &v, e->o.off, sizeof(shmi_event_record));
    v.next = (shmi_off)head * SHMI_blockMin;
    while (shmi_next_record(e->a, &v)) {
        /* a known share stays known, even if a peer has overwritten the list */
        if (__atomic_load_n(&e->known[v.slot - 1], __ATOMIC_RELAXED) == NULL)
            __atomic_store_n(&e->known[v.slot - 1], (shmi_event_record *)shmi_ptr(e->a, v.b.off, sizeof(shmi_event_record), 8), __ATOMIC_RELEASE);
        for (most = shmi_ld32(&e->most); most < v.slot && !shmi_cas32(&e->most, most, v.slot); most = shmi_ld32(&e->most)) {
        }
    }
    shmi_st64(&e->known_head, shmi_known_list(head, &v));
}
/* The share of a slot, or NULL. */
SHMI_FN shmi_event_record *shmi_event_share_of(struct shmi_event *e, uint32_t slot)
{
    if (slot < 1 || slot > e->a->geo.slots)
        return NULL;
    shmi_event_learn(e);
    return __atomic_load_n(&e->known[slot - 1], __ATOMIC_ACQUIRE);
}
/* Returns 0, or EPROTO if the list of slot records is corrupt. */
SHMI_FN int shmi_event_check_shares(struct shmi_event *e)
{
    shmi_event_learn(e);
    return !shmi_known_bad(shmi_ld64(&e->known_head)) ? 0 : shmi_fail(EPROTO, "event.wait", shmi_called(&e->o), "its list of slot records");
}

/* Returns how many waits the shares count, or 0 if the word s announces no wait. The function stops counting as soon as
 * the number exceeds most. */
SHMI_FN uint64_t shmi_event_waits(struct shmi_event *e, uint64_t s, uint64_t most)
{
    uint64_t n = 0;
    uint32_t i, slots;
    if (!shmi_event_announced(s))
        return 0;
    shmi_event_learn(e);
    slots = shmi_ld32(&e->most);
    for (i = 0; i < slots && n <= most; i++) {
        shmi_event_record *h = __atomic_load_n(&e->known[i], __ATOMIC_ACQUIRE);
        if (h == NULL || shmi_event_share_waits(shmi_ld64(&h->waits)) == 0)
            continue;
        /* Read the ID before the number. A participant that inherits a share stores its ID last, so the number is right
         * if the ID is current. */
        if (shmi_current(e->a, (shmi_participant_id)(shmi_ld64(&h->name) & SHMI_NAME_MASK)))
            n += shmi_event_share_waits(shmi_ld64(&h->waits));
    }
    return n;
}

/* Counts off the wait that ended when the word changed to s, unless another call has counted it off. Each call does
 * this before it changes the word from s. So a call that has changed the word has seen, in the shares, the ends of all
 * earlier waits. */
SHMI_FN void shmi_event_count_off(struct shmi_event *e, uint64_t s)
{
    uint32_t slot = (uint32_t)((s & SHMI_AUTO_EVENT_SLOT_MASK) >> SHMI_AUTO_EVENT_SLOT_SHIFT);
    shmi_event_record *h;
    if (slot == 0)
        return;
    h = shmi_event_share_of(e, slot);
    if (h == NULL)
        return; /* a peer has overwritten the word or the list of slot records */
    for (;;) {
        /* While the word is s, there are two cases: the wait is not counted off yet, or the share has the version of
         * s. */
        uint64_t was = shmi_ld64(&h->waits);
        if (shmi_event_share_ended(was) == (uint32_t)s || shmi_event_load(e) != s || shmi_cas64(&h->waits, was, shmi_event_share_less(was, (uint32_t)s)))
            return;
    }
}

/* Gives the share of this slot to this participant, without the waits of its predecessor. All handles of this process
 * on the Event have one share, so the caller holds handles_of. */
SHMI_FN void shmi_event_inherit(struct shmi_event *e)
{
    shmi_event_record *h = e->own;
    uint64_t was;
    if (shmi_ld64(&h->name) == e->a->self)
        return;
    shmi_event_count_off(e, shmi_event_load(e)); /* the last wait of the predecessor */
    do /* another process may count that wait off at the same time */
        was = shmi_ld64(&h->waits);
    while (!shmi_cas64(&h->waits, was, was & ~(uint64_t)UINT32_MAX));
    shmi_st64(&h->name, e->a->self);
}

/* Wakes one wait. */
SHMI_FN void shmi_event_wake_one(struct shmi_event *e)
{
    uint32_t turn = __atomic_add_fetch(&e->turns, 1, __ATOMIC_RELAXED);
    shmi_deliver_one(e->a, &e->count.line, turn);
}

/* Returns the word, and sets *waits to the number of waits that the shares counted while the word had this value. If
 * the word has no token, *waits is 0. The function stops counting as soon as there are more waits than tokens. */
SHMI_FN uint64_t shmi_event_look(struct shmi_event *e, uint64_t *waits)
{
    for (;;) {
        uint64_t s = shmi_event_load(e);
        shmi_event_count_off(e, s);
        *waits = 0;
        if (shmi_event_tokens(s) == 0)
            return s;
        *waits = shmi_event_waits(e, s, shmi_event_tokens(s));
        if (shmi_event_load(e) == s)
            return s;
    }
}

/* The part of shmi_event_set_auto for an Event on which there may be waits: sets the Event, and wakes a wait. */
SHMI_FN int shmi_event_set_and_wake(struct shmi_event *e)
{
    for (;;) {
        uint64_t waits, s = shmi_event_look(e, &waits), tokens = shmi_event_tokens(s);
        if (tokens > waits || tokens == SHMI_EVENT_TOKENS_MOST) {
            shmi_full_fence(); /* see prims/fence.go */
            if (shmi_event_load(e) == s)
                return 0; /* the Event is set already */
            continue;
        }
        shmi_eventcount_note_cpu(&e->count, s);
        if (!shmi_event_swap(e, s, shmi_event_with(s, tokens + 1)))
            continue;
        if (shmi_event_announced(s)) {
            SHMSYNC_CRASHPOINT("event.set.before_wake");
            shmi_event_wake_one(e);
        }
        return 0;
    }
}
/* Sets an auto-reset Event. A signal handler may call this function. */
SHMI_FN int shmi_event_set_auto(struct shmi_event *e)
{
    for (;;) {
        uint64_t s = shmi_event_load(e);
        if (shmi_event_announced(s))
            return shmi_event_set_and_wake(e);
        if (shmi_event_tokens(s) > 0) {
            shmi_full_fence();
            if (shmi_event_load(e) == s)
                return 0; /* the Event is set already, and there is no wait */
            continue;
        }
        shmi_event_count_off(e, s);
        if (shmi_event_swap(e, s, shmi_event_with(s, 1)))
            return 0;
    }
}

SHMI_FN int shmi_event_is_set_auto(struct shmi_event *e)
{
    uint64_t waits, s = shmi_event_look(e, &waits);
    return shmi_event_tokens(s) > waits;
}

/* Takes all tokens that are left over when each wait gets one. A reset calls this function, and so does a wait before
 * it sleeps. Returns 0 if no token is left over. Usually at most one is. There are more if waiting participants have
 * died, or if waits were given up. */
SHMI_FN int shmi_event_claim(struct shmi_event *e)
{
    for (;;) {
        uint64_t waits, s = shmi_event_look(e, &waits);
        if (shmi_event_tokens(s) <= waits)
            return 0;
        if (shmi_event_swap(e, s, shmi_event_with(s, waits))) {
            /* A thread may have set the Event before this claim, found it set already, and changed nothing. The loads
             * after the claim must see what that thread stored before its set. */
            shmi_order_loads();
            return 1;
        }
    }
}

/* As shmi_event_claim, but it also finds deaths. A token for a wait of a dead participant counts as left over. If there
 * are tokens and none is left over, this function looks for dead participants with waits. Then it tries again. */
SHMI_FN int shmi_event_try_claim(struct shmi_event *e)
{
    uint32_t i, slots;
    if (shmi_event_claim(e))
        return 1;
    if (shmi_event_tokens(shmi_event_load(e)) == 0 || !shmi_check_due(&e->tried))
        return 0;
    slots = shmi_ld32(&e->most);
    for (i = 0; i < slots; i++) {
        shmi_event_record *h = __atomic_load_n(&e->known[i], __ATOMIC_ACQUIRE);
        if (h != NULL && shmi_event_share_waits(shmi_ld64(&h->waits)) != 0)
            (void)shmi_dead(e->a, (shmi_participant_id)(shmi_ld64(&h->name) & SHMI_NAME_MASK));
    }
    return shmi_event_claim(e);
}

/* A wait of this process, which counts in the share of the process. The wait is over when this process has changed the
 * word to end it. */
typedef struct shmi_event_wait {
    struct shmi_event *e;
    int announced, slept;
    uint64_t word; /* the wait may sleep while the word of the Event has the same version as this value */
} shmi_event_wait;

/* Counts a wait in the share of this process. The caller has called shmi_enter. */
SHMI_FN void shmi_event_begin(struct shmi_event *e, shmi_event_wait *w)
{
    shmi_add64(&e->own->waits, 1);
    SHMSYNC_CRASHPOINT("event.wait.counted");
    memset(w, 0, sizeof *w);
    w->e = e;
}
/* Ends the wait by a change of the word from s. The new word has the given number of tokens, but at most one if no
 * other wait remains. If the result is 0, the wait goes on, and the caller reads the word again. */
SHMI_FN int shmi_event_end_wait(shmi_event_wait *w, uint64_t s, uint64_t tokens)
{
    struct shmi_event *e = w->e;
    int others = shmi_event_waits(e, s | SHMI_AUTO_EVENT_ANNOUNCED_MASK, 1) > 1;
    uint64_t to;
    if (!others && tokens > 1)
        tokens = 1;
    to = shmi_event_with(s, tokens) | (uint64_t)e->a->my_slot << SHMI_AUTO_EVENT_SLOT_SHIFT;
    if (!others)
        to &= ~SHMI_AUTO_EVENT_ANNOUNCED_MASK;
    if (shmi_event_share_ended(shmi_ld64(&e->own->waits)) == (uint32_t)to) {
        /* The new version is the one at which the last wait of this participant ended, exactly 2^32 changes ago. So
         * this wait would seem to be counted off already. Another change of the word avoids that. */
        shmi_event_swap(e, s, shmi_event_with(s, shmi_event_tokens(s)));
        return 0;
    }
    if (!shmi_event_swap(e, s, to))
        return 0;
    shmi_order_loads(); /* as in shmi_event_claim */
    SHMSYNC_CRASHPOINT("event.wait.ended");
    shmi_event_count_off(e, to);
    if (others && tokens > 0) {
        SHMSYNC_CRASHPOINT("event.wait.before_pass");
        shmi_event_wake_one(e);
    }
    return 1;
}
/* Takes a token for this wait, and returns 1. If there is no token for it, returns 0, and the wait may sleep on
 * w->word. A wait that has not slept leaves the tokens to the waits that announced themselves before it. */
SHMI_FN int shmi_event_take(shmi_event_wait *w)
{
    struct shmi_event *e = w->e;
    for (;;) {
        uint64_t s = shmi_event_load(e), tokens = shmi_event_tokens(s), to;
        shmi_event_count_off(e, s);
        if (tokens > 0 && (w->slept || !shmi_event_announced(s) || shmi_event_waits(e, s, tokens) <= tokens)) {
            if (shmi_event_end_wait(w, s, tokens - 1))
                return 1;
            continue;
        }
        w->word = s;
        if (w->announced)
            return 0;
        to = shmi_event_with(s, tokens) | SHMI_AUTO_EVENT_ANNOUNCED_MASK;
        if (shmi_event_swap(e, s, to)) {
            w->announced = 1;
            w->word = to;
            SHMSYNC_CRASHPOINT("event.wait.announced");
            return 0;
        }
    }
}
/* Ends the wait without a token and returns 0. But if the parameter unless is not 0, and there is a token, the wait
 * takes the token and the result is 1. */
SHMI_FN int shmi_event_give_up(shmi_event_wait *w, int unless)
{
    for (;;) {
        uint64_t s = shmi_event_load(w->e), tokens = shmi_event_tokens(s);
        int took = unless && tokens > 0;
        shmi_event_count_off(w->e, s);
        if (shmi_event_end_wait(w, s, took ? tokens - 1 : tokens))
            return took;
    }
}
/* The longest time that a wait may sleep on its word, in ns; 0: until a wake. */
SHMI_FN int64_t shmi_event_bound(const shmi_event_wait *w) { return shmi_event_tokens(w->word) > 0 ? SHMI_EVENT_YIELD : 0; }

/* The periodic check of an Event, at most ten times a second while a thread of this process waits. If there is a token,
 * the check wakes one wait: the earlier wake may have gone to a stopped process, or was never sent. If the word has not
 * changed since the last check, the wait that the last check woke has not taken the token. In this case, the check
 * wakes all waits. */
SHMI_FN void shmi_event_check(void *event)
{
    struct shmi_event *e = (struct shmi_event *)event;
    uint64_t s, now;
    int moved;
    if (!shmi_check_due(&e->count.looked))
        return;
    s = shmi_event_load(e);
    now = (uint64_t)(uint32_t)s + 1;
    moved = shmi_xchg64(&e->count.seen, now) != now;
    if (shmi_event_tokens(s) == 0)
        return;
    if (moved)
        shmi_event_wake_one(e);
    else
        shmi_eventcount_wake_all(&e->count);
}

SHMI_FN int shmi_event_spun(void *event) { return shmi_event_tokens(shmi_event_load((struct shmi_event *)event)) > 0; }
/* Waits for a token after a claim that failed. The caller has called shmi_enter. */
SHMI_FN int shmi_event_await_token(struct shmi_event *e, int64_t deadline)
{
    shmi_tuning t = shmi_eventcount_tuning(&e->count);
    shmi_event_wait w;
    int64_t since = 0;
    int err;
    if (deadline != 0 && shmi_now() >= deadline)
        return shmi_brief(ETIMEDOUT, "event.wait", shmi_called(&e->o));
    err = shmi_event_check_shares(e);
    if (err != 0)
        return err;
    if (!shmi_event_announced(shmi_event_load(e)) && shmi_spin(&t, shmi_event_spun, e) && shmi_event_claim(e))
        return 0;
    shmi_event_begin(e, &w);
    while (!shmi_event_take(&w)) {
        shmi_sleep_spec spec;
        int ended;
        memset(&spec, 0, sizeof spec);
        spec.looked = &e->count.looked;
        spec.check = shmi_event_check;
        spec.check_arg = e;
        spec.word = e->count.line.word;
        spec.val = (uint32_t)w.word;
        spec.object = e->o.off;
        spec.wanted = (uint32_t)w.word;
        spec.deadline = deadline;
        spec.since = &since;
        spec.bounded = shmi_event_bound(&w);
        ended = shmi_sleep(e->a, &spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("event.wait.woken");
            w.slept = 1;
            break;
        case SHMI_LOOK:
            shmi_event_check(e);
            w.slept = since != 0; /* since is 0 if the check was due before the first sleep */
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a token takes precedence over the close */
            if (shmi_event_give_up(&w, 1))
                return 0;
            return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, "event.wait", shmi_called(&e->o))
                                      : shmi_fail(EBADF, "event.wait", shmi_called(&e->o), "this process closed the arena");
        }
    }
    return 0;
}
SHMI_FN int shmi_event_wait_auto(struct shmi_event *e, int64_t abs)
{
    int err;
    if (shmi_event_claim(e))
        return 0;
    err = shmi_enter_for(e, e->a, "event.wait");
    if (err != 0)
        return err;
    err = shmi_event_await_token(e, abs);
    shmi_exit_for(e, e->a);
    return err;
}

/* ---- Manual reset ---- */

/* Whether a manual-reset Event is set. */
SHMI_FN int shmi_event_odd(struct shmi_event *e) { return (int)(shmi_eventcount_load(&e->count) & 1); }

/* Sets a manual-reset Event if set is 1, and resets it if set is 0. A signal handler may call this function. */
SHMI_FN int shmi_event_turn(struct shmi_event *e, uint64_t set)
{
    for (;;) {
        uint64_t s = shmi_eventcount_load(&e->count);
        if ((s & 1) == set) {
            shmi_full_fence();
            if (shmi_eventcount_load(&e->count) == s)
                return 0;
            continue;
        }
        shmi_eventcount_note_cpu(&e->count, s);
        if (!shmi_cas64(&e->count.w->state, s, shmi_eventcount_next(s)))
            continue;
        /* Before this change, another thread may have made this call for the old state, and changed nothing. The loads
         * after this change must see what that thread stored before its call. */
        shmi_order_loads();
        if ((s & SHMI_EVENTCOUNT_ANNOUNCED) != 0) {
            SHMSYNC_CRASHPOINT("event.turn.before_wake");
            shmi_eventcount_wake_all(&e->count);
        }
        return 0;
    }
}

/* Waits until the Event is set, if set is 1, or until it is not set, if set is 0. */
SHMI_FN int shmi_event_until(struct shmi_event *e, uint64_t set, int64_t abs)
{
    uint64_t s = shmi_eventcount_load(&e->count);
    int err;
    if ((s & 1) == set)
        return 0;
    err = shmi_enter_for(e, e->a, "event.wait");
    if (err != 0)
        return err;
    err = shmi_eventcount_wait(&e->count, (uint32_t)s, abs);
    shmi_exit_for(e, e->a);
    return err;
}

/* ---- Handles ---- */

/* Returns the mode of an Event, or -1 if the object is not an Event. An auto-reset Event has a field mode, which is
 * SHMI_eventAuto. A manual-reset Event has 0 at the same place. */
SHMI_FN int shmi_event_mode_of(shmsync_arena *a, const shmi_object *o)
{
    uint32_t word;
    uint64_t s;
    int mode;
    if (o->size != sizeof(shmi_event_words))
        return -1;
    word = shmi_ld32(&((shmi_auto_event_words *)shmi_ptr(a, o->body, sizeof(shmi_auto_event_words), 8))->mode);
    if (word == SHMI_eventAuto)
        return SHMI_eventAuto;
    if (word != 0)
        return -1;
    s = shmi_ld64(&((shmi_event_words *)shmi_ptr(a, o->body, sizeof(shmi_event_words), 8))->count.state);
    mode = (int)((s & SHMI_EVENT_MODE_MASK) >> SHMI_EVENT_MODE_SHIFT);
    return mode == 0 || mode == SHMI_eventBidirectional ? mode : -1;
}

SHMI_FN void shmi_event_end(void *handle)
{
    struct shmi_event *e = (struct shmi_event *)handle;
    if (e->known != NULL)
        shmi_free_thing(e->known); /* a call that is under way may still read this memory, so it is kept for later handles */
    shmi_free_thing(e);
}

typedef struct shmi_event_spec {
    uint32_t mode, spin;
    int set;
} shmi_event_spec;

SHMI_FN void shmi_event_fill(unsigned char *body, const void *arg)
{
    const shmi_event_spec *s = (const shmi_event_spec *)arg;
    if (s->mode == SHMI_eventAuto) {
        shmi_auto_event_words *w = (shmi_auto_event_words *)(void *)body;
        w->mode = s->mode;
        w->spin = s->spin;
        w->state = s->set ? shmi_event_with(0, 1) : 0;
    } else {
        shmi_event_words *w = (shmi_event_words *)(void *)body;
        w->count.state = (uint64_t)(s->set != 0) | (uint64_t)s->mode << SHMI_EVENT_MODE_SHIFT;
        w->count.spin = s->spin;
    }
}

/* Finds the share of this process, and the shares of other participants. Returns 0 or an errno. */
SHMI_FN int shmi_event_build_shares(struct shmi_event *e)
{
    shmi_off record = 0;
    int err = shmi_slot_record(e->a, &e->o, sizeof(shmi_event_record), &record);
    if (err != 0)
        return err;
    e->own = (shmi_event_record *)shmi_ptr(e->a, record, sizeof(shmi_event_record), 8);
    e->known = (shmi_event_record **)shmi_new_thing(shmi_slot_places(e->a) * sizeof *e->known);
    if (e->known == NULL)
        return shmi_fail(ENOMEM, "event.open", shmi_called(&e->o), "%s", "");
    e->known[e->a->my_slot - 1] = e->own;
    e->most = e->a->my_slot;
    shmi_event_learn(e);
    if (shmi_known_bad(e->known_head))
        return shmi_fail(EPROTO, "event.open", shmi_called(&e->o), "its list of slot records");
    shmi_event_inherit(e);
    return 0;
}
SHMI_FN void *shmi_event_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_event *e = (struct shmi_event *)shmi_new_thing(sizeof *e);
    if (e == NULL)
        return NULL;
    shmi_eventcount_init(&e->count, a, o, "event.wait", NULL);
    e->a = a;
    e->o = *o;
    e->mode = *(const uint32_t *)arg;
    if (e->mode != SHMI_eventAuto)
        return e;
    if (shmi_event_build_shares(e) != 0) {
        shmi_event_end(e);
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
        return shmi_fail(EPROTO, "event.open", shmi_called(o), "its mode is unknown");
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
    spec.size = sizeof(shmi_event_words);
    spec.init = shmi_event_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    is = err == 0 ? shmi_event_mode_of(a, &o) : -1;
    if (is >= 0 && (init.mode & ~(uint32_t)is) != 0) { /* checked before this process gets a slot record */
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
    SHMI_BEGIN_AT(a, "event.open", out);
    shmi_object o;
    int err = shmi_object_at(a, off, "event.open", SHMI_KIND_EVENT, SHMI_VERSION_EVENT, sizeof(shmi_event_words), &o);
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
        return SHMI_DONE(err);
    return SHMI_DONE(e->impl->mode & SHMI_eventAuto ? shmi_event_set_auto(e->impl) : shmi_event_turn(e->impl, 1));
}
int shmsync_event_reset(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return SHMI_DONE(err);
    if (e->impl->mode & SHMI_eventAuto) {
        shmi_event_claim(e->impl);
        return SHMI_DONE(0);
    }
    return SHMI_DONE(shmi_event_turn(e->impl, 0));
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
    return SHMI_DONE(shmi_event_await(e, 0));
}
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_event_await(e, ns));
}
int shmsync_event_trywait(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->a, "event");
    if (err != 0)
        return SHMI_DONE(err);
    if (e->impl->mode & SHMI_eventAuto)
        return SHMI_DONE(shmi_event_try_claim(e->impl) ? 0 : EBUSY);
    return SHMI_DONE(shmi_event_odd(e->impl) ? 0 : EBUSY);
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
    return SHMI_DONE(shmi_event_await_reset(e, 0));
}
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_event_await_reset(e, ns));
}

/* For a reaper: sends the wakes that a death may have lost. */
SHMI_FN void shmi_wake_event(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_eventcount e;
    int mode = shmi_event_mode_of(a, o);
    if (mode < 0)
        return;
    shmi_eventcount_init(&e, a, o, "event.wait", NULL);
    if (mode != SHMI_eventAuto)
        shmi_eventcount_wake_dead(&e, owed);
    else if (shmi_event_tokens(shmi_eventcount_load(&e)) > 0)
        shmi_eventcount_wake_all(&e);
}
