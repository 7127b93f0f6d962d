/* ---- Waiting ----
 *
 * A waiting thread sleeps in the kernel on the word that the object's protocol names. An announce record in its slot
 * lets a reaper find the thread after a death. If more threads sleep than there are records, the others sleep without
 * a record, and periodic checks find them.
 *
 * No wait depends on every wake arriving. A thread sleeps for at most 100 ms at a time, and then reads the object's
 * own words. The exception is a thread of a crowd: it sleeps for up to 10 s (SHMI_CROWD_MOST), and the death watcher
 * makes the periodic check in its place. */

/* Takes an announce record for a wait that began at the time since. Returns the number of the record, or -1 if all are
 * in use. */
SHMI_FN int shmi_announce_sleep(shmsync_arena *a, shmi_off object, shmi_off word, uint64_t wanted, int64_t since)
{
    for (;;) {
        uint32_t used = shmi_ld32(&a->announce_map);
        shmi_off r;
        int k;
        if (used == UINT32_MAX)
            return -1;
        k = __builtin_ctz(~used);
        if (!shmi_cas32(&a->announce_map, used, used | 1u << k))
            continue;
        r = shmi_slot(a, a->my_slot) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride;
        shmi_put64(shmi_u64(a, r + SHMI_announceObject), object);
        shmi_put64(shmi_u64(a, r + SHMI_announceSince), (uint64_t)since);
        shmi_put64(shmi_u64(a, r + SHMI_announceWanted), wanted);
        shmi_st64(shmi_u64(a, r + SHMI_announceWord), word);
        return k;
    }
}
SHMI_FN void shmi_retract_sleep(shmsync_arena *a, int k)
{
    if (k < 0)
        return;
    shmi_st64(shmi_u64(a, shmi_slot(a, a->my_slot) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride + SHMI_announceWord), 0);
    shmi_and32(&a->announce_map, ~(1u << k));
}

/* The alive word of n that the kernel marks when n dies, or NULL if the kernel marks none. *alive is the value of the
 * word. */
SHMI_FN uint32_t *shmi_alive_of(shmsync_arena *a, shmi_participant_id n, uint32_t *alive)
{
    uint32_t i = shmi_id_slot(n), *w;
    if (i < 1 || i > a->geo.slots || n == a->self || (shmi_slot_caps(a, i) & SHMI_capRobust) == 0)
        return NULL;
    w = shmi_alive_word(a, i, SHMI_aliveWords - 1);
    *alive = shmi_ld32(w);
    return w;
}

enum {
    SHMI_AGAIN,  /* the state may have changed: read it again */
    SHMI_LATE,   /* the deadline has passed, or the function of shmsync_wait_hook ends the wait */
    SHMI_LOOK,   /* a periodic check of the object is due: every 100 ms, or every 10 ms without futex_waitv */
    SHMI_CLOSED  /* this process leaves the arena */
};

/* The words on which a thread sleeps, and the limits of the sleep. Set all fields to zero, and then set the fields that
 * you need. */
typedef struct shmi_sleep_spec {
    uint32_t *word; /* sleep while it has the value val */
    uint32_t val;
    shmi_off object; /* object in the announce record */
    uint64_t wanted;
    int64_t deadline;  /* CLOCK_MONOTONIC ns, 0: none */
    int64_t *since;    /* begin of the wait, CLOCK_MONOTONIC ns; the first sleep of the wait sets it if it is 0 */
    shmi_participant_id owner;   /* wake up when this participant dies, if not 0 */
    uint32_t *other;   /* another word whose wake ends the sleep, if not NULL */
    uint32_t other_is;
    int64_t bounded;   /* sleep no longer than this many ns, if not 0 */
    int64_t *looked;   /* when this process last checked the object; shmi_check_due sets it */
    void (*check)(void *); /* checks the object, on any thread of this process; NULL: the thread joins no crowd */
    void *check_arg;
    int own;           /* no other thread sleeps on word */
} shmi_sleep_spec;

/* If many threads sleep, and the wait of this thread has lasted for a while, returns a record with which this thread
 * joins the crowd. *until is then the time until which the thread may sleep. Otherwise returns NULL. */
SHMI_FN shmi_sleeper *shmi_sleep_in_crowd(shmsync_arena *a, const shmi_sleep_spec *spec, uint32_t sleepers, int64_t now, int64_t *until)
{
    shmi_sleeper *s;
    int64_t most;
    if (sleepers <= SHMI_FEW || spec->check == NULL || now - *spec->since < SHMI_CHECK_EVERY || !shmi_have_waitv(a))
        return NULL;
    if (shmi_wait_hook.f != NULL)
        return NULL; /* the thread has to run the function of shmsync_wait_hook every 100 ms */
    if (pthread_equal(pthread_self(), a->watcher))
        return NULL; /* on_death runs on the watcher, which checks no crowd while on_death waits */
    s = shmi_claim_sleeper(a);
    if (s == NULL)
        return NULL;
    s->word = spec->word;
    s->val = spec->val;
    s->own = spec->own;
    s->looked = spec->looked;
    s->check = spec->check;
    s->check_arg = spec->check_arg;
    most = SHMI_CHECK_EVERY * (int64_t)sleepers / SHMI_FEW;
    *until = now + (most < SHMI_CROWD_MOST ? most : SHMI_CROWD_MOST);
    return s;
}

/* Sleeps once. The caller is within shmi_enter and has announced itself in the object. */
SHMI_FN int shmi_sleep(shmsync_arena *a, const shmi_sleep_spec *sleep_spec)
{
    int64_t now = shmi_now(), until;
    shmi_waitv v[4];
    shmi_sleeper *sleeper = NULL;
    unsigned n = 1;
    uint32_t sleepers;
    int record, err = 0, look = 1, exact = 0;
    long slack = 0;
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return SHMI_CLOSED;
    if (sleep_spec->deadline != 0 && sleep_spec->deadline <= now)
        return SHMI_LATE;
    if (*sleep_spec->since != 0 && shmi_hook_ends(*sleep_spec->since, &now))
        return SHMI_LATE;
    /* If the check is due, the thread makes it before it sleeps. A thread that is woken often may never sleep for so
     * long that the check is due when it wakes. */
    if (sleep_spec->looked != NULL && now - __atomic_load_n(sleep_spec->looked, __ATOMIC_RELAXED) >= SHMI_CHECK_EVERY)
        return SHMI_LOOK;
    if (*sleep_spec->since == 0)
        *sleep_spec->since = now;
    until = now + SHMI_CHECK_EVERY;
    record = shmi_announce_sleep(a, sleep_spec->object, shmi_off_of(a, sleep_spec->word), sleep_spec->wanted, *sleep_spec->since);
    v[0] = shmi_waitv_of(sleep_spec->word, sleep_spec->val);
    if (sleep_spec->bounded != 0 && now + sleep_spec->bounded < until) {
        until = now + sleep_spec->bounded;
        look = 0;
        exact = sleep_spec->bounded < 1000000; /* a bound below 1 ms is the pause between two checks whether a dead holder is gone */
    }
    if (shmi_have_waitv(a)) {
        if (sleep_spec->owner != 0) {
            uint32_t alive, *w = shmi_alive_of(a, sleep_spec->owner, &alive);
            if (w != NULL && (alive & SHMI_OWNER_DIED) == 0) {
                v[n++] = shmi_waitv_of(w, alive);
            } else if (w != NULL) {
                until = now + shmi_next_look(a, sleep_spec->owner); /* the owner is dying, and this process cannot fence the threads of the owner yet */
                exact = 1;
                look = 0;
            }
        }
        if (sleep_spec->other != NULL)
            v[n++] = shmi_waitv_of(sleep_spec->other, sleep_spec->other_is);
    } else if (sleep_spec->owner != 0 || sleep_spec->other != NULL) {
        /* Without futex_waitv the thread sleeps on one word only. It finds changes of the other words by a check every
         * 10 ms. */
        if (until > now + 10000000) {
            until = now + 10000000;
            look = 1;
        }
    }
    sleepers = shmi_add32(&a->sleepers, 1) + 1;
    if (look)
        sleeper = shmi_sleep_in_crowd(a, sleep_spec, sleepers, now, &until);
    if (sleeper != NULL) {
        v[n++] = shmi_waitv_of(&sleeper->wake_word, shmi_ld32(&sleeper->wake_word));
        shmi_join_crowd(a, sleeper);
    }
    if (sleep_spec->deadline != 0 && sleep_spec->deadline < until) {
        until = sleep_spec->deadline;
        look = 0;
    }
    if (exact)
        slack = shmi_begin_exact_sleeps();
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
        if (n > 1) {
            err = shmi_futex_sleepv(v, n, until);
            /* The kernel has no memory for a sleep on several words at the moment (ENOMEM), or a filter forbids the
             * call. So this thread sleeps on one word, for 1 ms at most. */
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT) {
                n = 1;
                until = now + 1000000;
                look = 0;
            }
        }
        if (n == 1)
            err = shmi_futex_sleep(sleep_spec->word, sleep_spec->val, until);
    }
    if (exact)
        shmi_end_exact_sleeps(slack);
    if (sleeper != NULL)
        shmi_leave_crowd(a, sleeper);
    shmi_add32(&a->sleepers, (uint32_t)-1);
    shmi_retract_sleep(a, record);
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return SHMI_CLOSED;
    if (err == ETIMEDOUT) {
        if (sleep_spec->deadline != 0 && shmi_now() >= sleep_spec->deadline)
            return SHMI_LATE;
        return look ? SHMI_LOOK : SHMI_AGAIN;
    }
    return SHMI_AGAIN;
}

/* ---- Wait lists, in which a releaser finds the waiters of an object ---- */

typedef struct shmi_wait_list {
    uint32_t *word; /* the word that waiters sleep on */
    uint64_t *poller;  /* head of the list of poller nodes */
} shmi_wait_list;

/* Wakes one waiter: a thread that sleeps in the kernel on the word if turn is even, or a waiter of a poller if turn is
 * odd. If there is none of that sort, wakes one of the other sort. The caller has changed the word. */
SHMI_FN void shmi_deliver_one(shmsync_arena *a, const shmi_wait_list *l, uint32_t turn)
{
    int pollers = shmi_ld64(l->poller) != 0;
    if ((turn & 1) == 0) {
        if (shmi_wake(l->word, 1) == 0 && pollers)
            shmi_ready_one(a, l->poller, turn >> 1);
    } else if (!pollers || !shmi_ready_one(a, l->poller, turn >> 1)) {
        shmi_wake(l->word, 1);
    }
}
SHMI_FN void shmi_deliver_all(shmsync_arena *a, const shmi_wait_list *l)
{
    shmi_wake(l->word, SHMI_ALL);
    if (shmi_ld64(l->poller) != 0)
        shmi_ready_all(a, l->poller);
}

/* A wait list whose word is a wake word: bit 0 says that a waiter has announced itself, bits 1..31 are a sequence. */

SHMI_FN uint32_t shmi_bumped(uint32_t w) { return (w + 2) & ~1u; }
/* Announces a waiter, so that the next release wakes. Returns the value of the word, for the sleep. */
SHMI_FN uint32_t shmi_wake_word_announce(const shmi_wait_list *l)
{
    for (;;) {
        uint32_t w = shmi_ld32(l->word);
        if ((w & 1) != 0)
            return w;
        if (shmi_cas32(l->word, w, w | 1))
            return w | 1;
    }
}
SHMI_FN int shmi_wake_word_announced(const shmi_wait_list *l) { return (shmi_ld32(l->word) & 1) != 0; }
/* Wakes one waiter if a waiter has announced itself. The caller has already released the object. */
SHMI_FN void shmi_wake_word_release(shmsync_arena *a, const shmi_wait_list *l)
{
    uint32_t w = shmi_ld32(l->word);
    while ((w & 1) != 0) {
        SHMSYNC_CRASHPOINT("park.wake.before_bump");
        if (shmi_cas32(l->word, w, shmi_bumped(w))) {
            SHMSYNC_CRASHPOINT("park.wake.bumped");
            shmi_deliver_one(a, l, w >> 1);
            SHMSYNC_CRASHPOINT("park.wake.done");
            return;
        }
        w = shmi_ld32(l->word);
    }
}
SHMI_FN uint32_t shmi_wake_word_bump(const shmi_wait_list *l)
{
    for (;;) {
        uint32_t w = shmi_ld32(l->word);
        if (shmi_cas32(l->word, w, shmi_bumped(w)))
            return w;
    }
}
/* Changes the word, so that a waiter that is about to sleep on it checks the object again. */
SHMI_FN void shmi_wake_word_touch(const shmi_wait_list *l) { shmi_add32(l->word, 2); }
/* These functions change the word and wake one waiter, or all, even if none has announced itself, because earlier wakes
 * may have been lost. */
SHMI_FN void shmi_wake_word_wake_one(shmsync_arena *a, const shmi_wait_list *l) { shmi_deliver_one(a, l, shmi_wake_word_bump(l) >> 1); }
SHMI_FN void shmi_wake_word_wake_all(shmsync_arena *a, const shmi_wait_list *l)
{
    shmi_wake_word_bump(l);
    shmi_deliver_all(a, l);
}

