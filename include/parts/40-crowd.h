/* ---- Crowds: docs/design/0051-crowds-in-c.md ----
 *
 * A waiting thread checks its object ten times a second. If many threads of a process wait, that would cost a CPU. So
 * a thread whose wait lasts joins the crowd of the arena: it sleeps longer, and the death watcher checks its object
 * instead. The more threads sleep, the longer each thread sleeps. So all of them together wake about as often as a few
 * threads would. */

enum {
    SHMI_FEW = 8, /* all sleeping threads of a process together wake at most about 10 * SHMI_FEW times a second */
    SHMI_CROWD_CHUNK = 64
};
#define SHMI_CROWD_MOST INT64_C(10000000000)  /* how long a thread of a crowd sleeps at most, in ns */
#define SHMI_CROWD_LOOK_MOST INT64_C(1000000000) /* longest time between two rounds of checks by the watcher, in ns */
#define SHMI_CROWD_SHARE 300                     /* a pause is so many times as long as the checks before it, but at most SHMI_CROWD_LOOK_MOST */

enum {
    SHMI_sleeperNone,
    SHMI_sleeperFilling,
    SHMI_sleeperThere,
    SHMI_sleeperSeen, /* the watcher is checking the object for which the thread waits */
    SHMI_sleeperLeft  /* as SHMI_sleeperSeen, but the thread has left the crowd meanwhile */
};

/* A thread of a crowd. The watcher reads the field word and the fields after it only while state is SHMI_sleeperSeen.
 */
typedef struct shmi_sleeper {
    uint32_t state; /* atomic */
    uint32_t wake_word; /* the thread sleeps on this word, too; no other thread does */
    uint32_t *word; /* the thread sleeps on this word as long as it contains val */
    uint32_t val;
    int own;        /* no other thread sleeps on word */
    int64_t *looked;
    void (*check)(void *);
    void *check_arg;
} shmi_sleeper;
typedef struct shmi_crowd {
    struct shmi_crowd *next;
    shmi_sleeper s[SHMI_CROWD_CHUNK];
} shmi_crowd;

/* Whether the calling thread has to check an object now. At most ten times a second, the answer is yes, for one thread
 * of this process only. */
SHMI_FN int shmi_check_due(int64_t *looked)
{
    int64_t now = shmi_now(), last = __atomic_load_n(looked, __ATOMIC_RELAXED);
    return (last == 0 || now - last >= SHMI_CHECK_EVERY * 9 / 10) &&
           __atomic_compare_exchange_n(looked, &last, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Returns a record that no thread uses, or NULL if there is no memory. */
SHMI_FN shmi_sleeper *shmi_claim_sleeper(shmsync_arena *a)
{
    shmi_crowd *c;
    int i;
    for (c = __atomic_load_n(&a->crowd, __ATOMIC_ACQUIRE); c != NULL; c = c->next)
        for (i = 0; i < SHMI_CROWD_CHUNK; i++)
            if (shmi_ld32(&c->s[i].state) == SHMI_sleeperNone && shmi_cas32(&c->s[i].state, SHMI_sleeperNone, SHMI_sleeperFilling))
                return &c->s[i];
    c = (shmi_crowd *)calloc(1, sizeof *c);
    if (c == NULL)
        return NULL;
    c->s[0].state = SHMI_sleeperFilling;
    c->next = __atomic_load_n(&a->crowd, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&a->crowd, &c->next, c, 0, __ATOMIC_RELEASE, __ATOMIC_RELAXED)) {
    }
    return &c->s[0];
}
SHMI_FN void shmi_join_crowd(shmsync_arena *a, shmi_sleeper *s)
{
    shmi_st32(&s->state, SHMI_sleeperThere);
    if (shmi_add32(&a->in_crowd, 1) == 0)
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell)); /* the watcher checks the objects of the crowd from now on */
}
/* Takes the calling thread out of the crowd. The watcher may still be checking the object of this thread:
 * shmi_await_look waits for that when the object is closed. */
SHMI_FN void shmi_leave_crowd(shmsync_arena *a, shmi_sleeper *s)
{
    while (!shmi_cas32(&s->state, SHMI_sleeperThere, SHMI_sleeperNone) && !shmi_cas32(&s->state, SHMI_sleeperSeen, SHMI_sleeperLeft)) {
    }
    shmi_add32(&a->in_crowd, (uint32_t)-1);
}

/* Wakes a thread of the crowd, whatever it sleeps on. */
SHMI_FN void shmi_ring_sleeper(shmi_sleeper *s) { shmi_ring(&s->wake_word); }
SHMI_FN void shmi_ring_crowd(shmsync_arena *a)
{
    shmi_crowd *c;
    int i;
    for (c = __atomic_load_n(&a->crowd, __ATOMIC_ACQUIRE); c != NULL; c = c->next)
        for (i = 0; i < SHMI_CROWD_CHUNK; i++)
            if (shmi_ld32(&c->s[i].state) != SHMI_sleeperNone)
                shmi_ring_sleeper(&c->s[i]);
}

/* Checks the object of a sleeping thread. If the word on which the thread sleeps has changed since the thread fell
 * asleep, its wake may be lost, or may have gone to a process that is stopped. So this function wakes one thread of
 * this process, which then checks the object itself. */
SHMI_FN void shmi_look_for(shmi_sleeper *s)
{
    int64_t before = __atomic_load_n(s->looked, __ATOMIC_RELAXED);
    s->check(s->check_arg);
    if ((s->own || __atomic_load_n(s->looked, __ATOMIC_RELAXED) != before) && shmi_ld32(s->word) != s->val)
        shmi_ring_sleeper(s);
}
/* The CPU time of the calling thread, ns. */
SHMI_FN int64_t shmi_thread_time(void)
{
    struct timespec ts = {0, 0};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
/* Checks the objects of the crowd if it is time. Returns the time of the next check; 0: not before the watcher's
 * doorbell rings. The death watcher calls this. */
SHMI_FN int64_t shmi_look_after_crowd(shmsync_arena *a, int64_t at)
{
    shmi_crowd *c;
    int64_t now, began, pause_;
    int i;
    if (shmi_ld32(&a->in_crowd) == 0)
        return 0;
    now = shmi_now();
    if (now < at)
        return at;
    if (shmi_enter(a, "arena.watch") != 0)
        return 0; /* this process leaves */
    began = shmi_thread_time();
    for (c = __atomic_load_n(&a->crowd, __ATOMIC_ACQUIRE); c != NULL; c = c->next)
        for (i = 0; i < SHMI_CROWD_CHUNK; i++) {
            shmi_sleeper *s = &c->s[i];
            if (shmi_ld32(&s->state) != SHMI_sleeperThere)
                continue;
            shmi_add32(&a->looks, 1);
            if (shmi_cas32(&s->state, SHMI_sleeperThere, SHMI_sleeperSeen)) {
                shmi_look_for(s);
                if (!shmi_cas32(&s->state, SHMI_sleeperSeen, SHMI_sleeperThere))
                    shmi_st32(&s->state, SHMI_sleeperNone);
            }
            shmi_add32(&a->looks, 1);
        }
    shmi_exit(a);
    pause_ = (shmi_thread_time() - began) * SHMI_CROWD_SHARE;
    if (pause_ < SHMI_CHECK_EVERY)
        pause_ = SHMI_CHECK_EVERY;
    return now + (pause_ < SHMI_CROWD_LOOK_MOST ? pause_ : SHMI_CROWD_LOOK_MOST);
}
/* Waits until the watcher has ended its check of an object that the caller closes. No thread waits for the object any
 * more, so the watcher does not begin another check of it. */
SHMI_FN void shmi_await_look(shmsync_arena *a)
{
    uint32_t looks = shmi_ld32(&a->looks);
    while ((looks & 1) != 0 && shmi_ld32(&a->looks) == looks)
        shmi_nap(50000);
}
SHMI_FN void shmi_free_crowd(shmsync_arena *a)
{
    shmi_crowd *c, *next;
    for (c = a->crowd; c != NULL; c = next) {
        next = c->next;
        free(c);
    }
}

