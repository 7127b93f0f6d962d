
/* ---- Eventcounts, as in prims/eventcount*.go ---- */

/* The bit of the word that announces a waiter; see prims/eventcount_word.go. */
#define SHMI_EVENTCOUNT_ANNOUNCED (UINT64_C(1) << 32)

/* The handle of this process on an object whose waiters sleep until a sequence changes. The waiters have no order. */
struct shmi_eventcount {
    shmsync_arena *a;
    shmi_eventcount_words *w;
    shmi_wait_list line;
    int64_t looked;
    uint64_t seen; /* the sequence at the last periodic check, plus 1 */
    shmi_object o;
    const char *op;
    /* Finishes what a stopped or dead process has left, and finds deaths. NULL: the object does not need that. */
    void (*look)(struct shmi_eventcount *e);
    /* Finds deaths that no process has counted yet. It runs at each periodic check, and after a wake if the sequence is
     * still the same. May be NULL. */
    void (*scan)(struct shmi_eventcount *e);
};

SHMI_FN uint64_t shmi_eventcount_load(struct shmi_eventcount *e) { return shmi_ld64(&e->w->state); }
/* The word after a change that ends waits. The bits that belong to the object keep their values. */
SHMI_FN uint64_t shmi_eventcount_next(uint64_t s) { return (s & ~(SHMI_EVENTCOUNT_ANNOUNCED | UINT32_MAX)) | (uint32_t)(s + 1); }

SHMI_FN void shmi_eventcount_init(struct shmi_eventcount *e, shmsync_arena *a, const shmi_object *o, const char *op, void (*look)(struct shmi_eventcount *))
{
    memset(e, 0, sizeof *e);
    e->a = a;
    e->o = *o;
    e->op = op;
    e->look = look;
    e->w = (shmi_eventcount_words *)shmi_ptr(a, o->body, sizeof(shmi_eventcount_words), 8);
    e->line.word = (uint32_t *)(void *)&e->w->state; /* the low half */
    e->line.poller = &e->w->poller;
}
SHMI_FN void shmi_eventcount_do_look(struct shmi_eventcount *e)
{
    if (e->look != NULL)
        e->look(e);
}
SHMI_FN shmi_tuning shmi_eventcount_tuning(struct shmi_eventcount *e)
{
    shmi_tuning t;
    t.budget = &e->w->spin;
    t.pays = &e->w->pays;
    t.last_cpu = &e->w->lastCPU;
    t.slot = e->a->my_slot;
    return t;
}
/* Called before a change of the sequence: if a waiter has announced itself, notes the CPU of this process for the
 * waiters. */
SHMI_FN void shmi_eventcount_note_cpu(struct shmi_eventcount *e, uint64_t s)
{
    shmi_tuning t = shmi_eventcount_tuning(e);
    if ((s & SHMI_EVENTCOUNT_ANNOUNCED) != 0)
        shmi_note_cpu(&t);
}
SHMI_FN void shmi_eventcount_wake_all(struct shmi_eventcount *e) { shmi_deliver_all(e->a, &e->line); }

/* Sends the wakes that a stopped or dead process has not sent. No wake is needed if the sequence is the same as at the
 * last check, and a waiter has announced itself. Then each waiter that fell asleep before the last check sleeps on this
 * sequence, or was woken by that check. */
SHMI_FN void shmi_eventcount_make_up(struct shmi_eventcount *e)
{
    uint64_t s, now;
    if (e->scan != NULL)
        e->scan(e);
    shmi_eventcount_do_look(e);
    s = shmi_eventcount_load(e);
    now = (uint64_t)(uint32_t)s + 1;
    if (shmi_xchg64(&e->seen, now) != now || (s & SHMI_EVENTCOUNT_ANNOUNCED) == 0)
        shmi_eventcount_wake_all(e);
}
/* Calls shmi_eventcount_make_up, ten times a second at most. */
SHMI_FN void shmi_eventcount_check(struct shmi_eventcount *e)
{
    if (shmi_check_due(&e->looked))
        shmi_eventcount_make_up(e);
}
SHMI_FN void shmi_eventcount_check_arg(void *e) { shmi_eventcount_check((struct shmi_eventcount *)e); }
/* Sends the wakes that a death may have lost. */
SHMI_FN void shmi_eventcount_wake_dead(struct shmi_eventcount *e, int owed)
{
    if (owed != SHMI_OWED_ANNOUNCED || (shmi_eventcount_load(e) & SHMI_EVENTCOUNT_ANNOUNCED) != 0 || shmi_ld64(&e->w->poller) != 0)
        shmi_eventcount_wake_all(e);
}

/* Announces this waiter, so that the process that changes the sequence wakes it. Returns whether the sequence is still
 * seq. */
SHMI_FN int shmi_eventcount_announce(struct shmi_eventcount *e, uint32_t seq)
{
    for (;;) {
        uint64_t s = shmi_eventcount_load(e);
        if ((uint32_t)s != seq)
            return 0;
        if ((s & SHMI_EVENTCOUNT_ANNOUNCED) != 0 || shmi_cas64(&e->w->state, s, s | SHMI_EVENTCOUNT_ANNOUNCED))
            return 1;
    }
}

typedef struct shmi_eventcount_spin {
    struct shmi_eventcount *e;
    uint32_t seq;
} shmi_eventcount_spin;
SHMI_FN int shmi_eventcount_spun(void *arg)
{
    shmi_eventcount_spin *x = (shmi_eventcount_spin *)arg;
    return (uint32_t)shmi_eventcount_load(x->e) != x->seq;
}

/* Waits until the sequence is no longer seq. The caller has called shmi_enter. */
SHMI_FN int shmi_eventcount_wait(struct shmi_eventcount *e, uint32_t seq, int64_t deadline)
{
    int64_t since = 0;
    int waits = 0;
    for (;;) {
        shmi_sleep_spec spec;
        int ended;
        shmi_eventcount_do_look(e);
        if ((uint32_t)shmi_eventcount_load(e) != seq)
            return 0;
        if (!waits) {
            shmi_tuning t = shmi_eventcount_tuning(e);
            shmi_eventcount_spin x;
            x.e = e;
            x.seq = seq;
            waits = 1;
            if ((shmi_eventcount_load(e) & SHMI_EVENTCOUNT_ANNOUNCED) == 0 && shmi_spin(&t, shmi_eventcount_spun, &x))
                continue;
        }
        if (!shmi_eventcount_announce(e, seq))
            continue;
        SHMSYNC_CRASHPOINT("eventcount.wait.announced");
        memset(&spec, 0, sizeof spec);
        spec.looked = &e->looked;
        spec.check = shmi_eventcount_check_arg;
        spec.check_arg = e;
        spec.word = e->line.word;
        spec.val = seq;
        spec.object = e->o.off;
        spec.wanted = seq;
        spec.deadline = deadline;
        spec.since = &since;
        ended = shmi_sleep(e->a, &spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("eventcount.wait.woken");
            if (e->scan != NULL && (uint32_t)shmi_eventcount_load(e) == seq)
                e->scan(e); /* the wake may come from a reaper that cannot change the sequence: it wakes the waiters before the death is counted */
            break;
        case SHMI_LOOK:
            shmi_eventcount_check(e);
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a change of the sequence takes precedence over the deadline and the close */
            shmi_eventcount_do_look(e);
            if ((uint32_t)shmi_eventcount_load(e) != seq)
                return 0;
            return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, e->op, shmi_called(&e->o))
                                      : shmi_fail(EBADF, e->op, shmi_called(&e->o), "this process closed the arena");
        }
    }
}
