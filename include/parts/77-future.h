
/* ---- Future: prims/future*.go in C ---- */

struct shmi_future {
    struct shmi_eventcount e; /* first, because the look function gets a pointer to it */
    shmi_future_words *w;
};

#define SHMI_FUTURE_ROUNDS 32u /* how many results a Future keeps */

/* The word of a Future, and the results of its last rounds: see prims/future_word.go. */
SHMI_FN uint64_t shmi_future_load(struct shmi_future *f) { return shmi_eventcount_load(&f->e); }
SHMI_FN shmi_participant_id shmi_future_producer(uint64_t s) { return (shmi_participant_id)(s >> SHMI_FUTURE_PRODUCER_SHIFT); }
SHMI_FN uint32_t shmi_future_round(uint64_t s) { return (uint32_t)s >> 1; }
SHMI_FN int shmi_future_over(uint64_t s) { return (s & 1) != 0; }
SHMI_FN int shmi_future_abandoned(uint64_t s) { return shmi_future_over(s) && (s & SHMI_FUTURE_ABANDONED_MASK) != 0; }
SHMI_FN int shmi_future_is_set(uint64_t s) { return shmi_future_over(s) && (s & SHMI_FUTURE_ABANDONED_MASK) == 0; }

SHMI_FN uint64_t shmi_future_result(uint32_t round, uint64_t value)
{
    return value | SHMI_FUTURE_RESULT_DECIDED_MASK | (uint64_t)(round / SHMI_FUTURE_ROUNDS) << SHMI_FUTURE_RESULT_LAP_SHIFT;
}
/* Whether r is the result of the given round. The caller has read r from the place for this round, which other rounds
 * use, too. */
SHMI_FN int shmi_future_result_of(uint64_t r, uint32_t round)
{
    return (r & SHMI_FUTURE_RESULT_DECIDED_MASK) != 0 && (uint32_t)(r >> SHMI_FUTURE_RESULT_LAP_SHIFT) == round / SHMI_FUTURE_ROUNDS;
}
SHMI_FN uint64_t *shmi_future_slot(struct shmi_future *f, uint32_t round) { return &f->w->results[round % SHMI_FUTURE_ROUNDS]; }

/* Whether the producer n has died. In a repair, the parameter without is a participant that is leaving, which counts as
 * dead, or 0. Outside of a repair, this process never counts itself as dead. */
SHMI_FN int shmi_future_dead(struct shmi_future *f, shmi_participant_id n, int repairs, shmi_participant_id without)
{
    if (repairs)
        return !shmi_current(f->e.a, n) || n == without;
    return n != f->e.a->self && shmi_dead(f->e.a, n);
}
/* Ends the round if its result is decided, or if its producer has died. Returns the state. If *wake is not 0, the
 * caller must wake the waiters. */
SHMI_FN uint64_t shmi_future_end(struct shmi_future *f, int repairs, shmi_participant_id without, int *wake)
{
    *wake = 0;
    for (;;) {
        uint64_t s = shmi_future_load(f), *slot, r, to;
        if (shmi_future_over(s))
            return s;
        slot = shmi_future_slot(f, shmi_future_round(s));
        r = shmi_ld64(slot);
        if (!shmi_future_result_of(r, shmi_future_round(s))) {
            shmi_participant_id n = shmi_future_producer(s);
            uint64_t died;
            if (n == 0 || !shmi_future_dead(f, n, repairs, without))
                return s;
            if (shmi_future_load(f) != s)
                continue; /* r may be the result of a later round, so read s and r again */
            died = shmi_future_result(shmi_future_round(s), n | SHMI_FUTURE_RESULT_ABANDONED_MASK);
            if (!shmi_cas64(slot, r, died))
                continue;
            SHMSYNC_CRASHPOINT("future.reap.decided");
            r = died;
        }
        shmi_eventcount_note_cpu(&f->e, s);
        to = shmi_eventcount_next(s) & ~SHMI_FUTURE_ABANDONED_MASK;
        if ((r & SHMI_FUTURE_RESULT_ABANDONED_MASK) != 0)
            to |= SHMI_FUTURE_ABANDONED_MASK;
        if (shmi_cas64(&f->e.w->state, s, to)) {
            *wake = (s & SHMI_EVENTCOUNT_ANNOUNCED) != 0;
            if (*wake)
                SHMSYNC_CRASHPOINT("future.end.before_wake");
            return to;
        }
    }
}
SHMI_FN uint64_t shmi_future_now(struct shmi_future *f)
{
    int wake;
    uint64_t s = shmi_future_end(f, 0, 0, &wake);
    if (wake)
        shmi_eventcount_wake_all(&f->e);
    return s;
}
SHMI_FN void shmi_future_look(struct shmi_eventcount *e) { shmi_future_now((struct shmi_future *)(void *)e); }

/* Says how a round that is over has ended: returns 0 and the result, EOWNERDEAD or EPROTO. After 32 more rounds have
 * ended, the result may be overwritten. In this case, the function says how the latest round ended. */
SHMI_FN int shmi_future_judge(struct shmi_future *f, uint32_t round, int *result)
{
    for (;;) {
        uint64_t r = shmi_ld64(shmi_future_slot(f, round)), s;
        uint32_t last;
        if (shmi_future_result_of(r, round)) {
            if ((r & SHMI_FUTURE_RESULT_ABANDONED_MASK) != 0)
                return shmi_fail_who(f->e.a, EOWNERDEAD, "future.wait", shmi_called(&f->e.o), (shmi_participant_id)(r & SHMI_NAME_MASK));
            if (result != NULL)
                *result = (int)(uint32_t)r;
            return 0;
        }
        s = shmi_future_load(f);
        last = shmi_future_over(s) ? shmi_future_round(s) : (shmi_future_round(s) - 1) & UINT32_C(0x7fffffff);
        if (last == round)
            return shmi_fail(EPROTO, "future.wait", shmi_called(&f->e.o), "the result of round %u is not there", (unsigned)round);
        round = last;
    }
}

/* Whether the present round is over, and how it ended. The function stores nothing in the arena. */
SHMI_FN int shmi_future_reached(struct shmi_future *f, int *err)
{
    uint64_t s = shmi_future_load(f);
    if (!shmi_future_over(s))
        return 0;
    *err = shmi_future_judge(f, shmi_future_round(s), NULL);
    return 1;
}

SHMI_FN void shmi_future_init(struct shmi_future *f, shmsync_arena *a, const shmi_object *o)
{
    shmi_eventcount_init(&f->e, a, o, "future.wait", shmi_future_look);
    f->w = (shmi_future_words *)shmi_ptr(a, o->body, sizeof(shmi_future_words), 8);
}
SHMI_FN void *shmi_future_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_future *f = (struct shmi_future *)shmi_new_thing(sizeof *f);
    (void)arg;
    if (f != NULL)
        shmi_future_init(f, a, o);
    return f;
}
SHMI_FN void shmi_future_fill(unsigned char *body, const void *arg) { ((shmi_future_words *)(void *)body)->count.spin = *(const uint32_t *)arg; }

SHMI_FN int shmi_open_future(int existing, shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_OPTIONS(shmsync_future_options, 16, "future.open", out->impl);
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_spec_of_kind(&spec, SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, name, sizeof(shmi_future_words));
    spec.init = shmi_future_fill;
    spec.arg = &spin;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_future_build, NULL, &created, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_future_open(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(0, a, name, opts, out));
}
int shmsync_future_attach(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(1, a, name, opts, out));
}
int shmsync_future_at(shmsync_arena *a, shmsync_offset off, shmsync_future *out)
{
    SHMI_BEGIN_AT(a, "future.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "future.open", SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, sizeof(shmi_future_words), shmi_future_build, NULL, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_future_offset(const shmsync_future *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->e.o.off;
}
int shmsync_future_close(shmsync_future *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(f->impl->e.a, f->impl->e.o.off, shmi_mutex_end);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

int shmsync_future_claim(shmsync_future *f)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    shmsync_arena *a = x->e.a;
    int err = shmi_enter(a, "future.claim");
    if (err != 0)
        return SHMI_TELL(err);
    for (;;) {
        uint64_t s = shmi_future_now(x);
        if (shmi_future_over(s) || shmi_future_producer(s) != 0) {
            err = shmi_future_over(s) || shmi_future_producer(s) != a->self ? EBUSY : 0;
            break;
        }
        if (shmi_cas64(&x->e.w->state, s, s | (uint64_t)a->self << SHMI_FUTURE_PRODUCER_SHIFT)) {
            SHMSYNC_CRASHPOINT("future.claim.claimed");
            break;
        }
    }
    shmi_exit(a);
    return SHMI_TELL(err);
}
int shmsync_future_set(shmsync_future *f, int result)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    shmsync_arena *a = x->e.a;
    int err = shmi_enter(a, "future.set");
    if (err != 0)
        return SHMI_TELL(err);
    for (;;) {
        uint64_t s = shmi_future_now(x), *slot, r;
        uint32_t round = shmi_future_round(s);
        if (shmi_future_over(s)) {
            err = EBUSY;
            break;
        }
        slot = shmi_future_slot(x, round);
        r = shmi_ld64(slot);
        if (shmi_future_result_of(r, round) || shmi_future_round(shmi_future_load(x)) != round)
            continue; /* the round already has a result, or r is the result of a later round */
        if (shmi_cas64(slot, r, shmi_future_result(round, (uint32_t)result))) {
            SHMSYNC_CRASHPOINT("future.set.decided");
            shmi_future_now(x);
            break;
        }
    }
    shmi_exit(a);
    return SHMI_TELL(err);
}
/* Whether the Future is set, and its result. The function changes nothing. */
SHMI_FN int shmi_future_read(struct shmi_future *f, int *result)
{
    for (;;) {
        uint64_t s = shmi_future_load(f), r;
        if (!shmi_future_is_set(s))
            return 0;
        r = shmi_ld64(shmi_future_slot(f, shmi_future_round(s)));
        if (shmi_future_result_of(r, shmi_future_round(s)) && (r & SHMI_FUTURE_RESULT_ABANDONED_MASK) == 0) {
            if (result != NULL)
                *result = (int)(uint32_t)r;
            return 1;
        }
        if (shmi_future_load(f) == s)
            return 0; /* a peer has overwritten the words */
    }
}
int shmsync_future_is_set(const shmsync_future *f, int *result)
{
    SHMI_OPENED_OR(f, 0);
    return shmi_future_read(f->impl, result);
}
SHMI_FN int shmi_future_wait(struct shmi_future *f, int *result, int64_t abs)
{
    shmsync_arena *a = f->e.a;
    uint64_t s;
    int err = shmi_use(a, "future.wait");
    if (err != 0)
        return err;
    if (shmi_future_read(f, result))
        return 0;
    err = shmi_enter_for(f, a, "future.wait");
    if (err != 0)
        return err;
    s = shmi_future_now(f);
    if (!shmi_future_over(s))
        err = shmi_eventcount_wait(&f->e, (uint32_t)s, abs);
    if (err == 0)
        err = shmi_future_judge(f, shmi_future_round(s), result);
    shmi_exit_for(f, a);
    return err;
}
int shmsync_future_wait(shmsync_future *f, int *result)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_future_wait(f->impl, result, 0));
}
int shmsync_future_timedwait(shmsync_future *f, int *result, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_future_wait(f->impl, result, ns));
}
/* Waits until the dead producer that the state s names is gone. Also returns when the state is no longer s, or when a
 * living participant has got the ID of the producer. */
SHMI_FN int shmi_future_await_gone(struct shmi_future *f, uint64_t s)
{
    shmsync_arena *a = f->e.a;
    shmi_participant_id n = shmi_future_producer(s);
    int64_t ask = 0;
    shmi_follow(a);
    while (shmi_future_load(f) == s && !shmi_gone(a, n) && !shmi_live(a, n)) {
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
            return shmi_fail(EBADF, "future.reset", shmi_called(&f->e.o), "this process closed the arena");
        shmi_exact_nap(shmi_next_ask(&ask));
    }
    return 0;
}
/* Resets x. If abandoned_only is not 0, does so only if the producer of x died. Without this condition, a second
 * process could reset x once more, and delete the result of the next producer. */
SHMI_FN int shmi_future_reset(struct shmi_future *x, int abandoned_only)
{
    shmsync_arena *a = x->e.a;
    int err = shmi_enter_for(x, a, "future.reset");
    if (err != 0)
        return err;
    while (err == 0) {
        uint64_t s = shmi_future_now(x);
        if (abandoned_only && !shmi_future_abandoned(s))
            break;
        if (!shmi_future_over(s)) {
            err = EBUSY;
        } else if (shmi_future_abandoned(s) && !shmi_gone(a, shmi_future_producer(s))) {
            if (shmi_live(a, shmi_future_producer(s)) && shmi_future_load(x) == s) {
                err = shmi_fail(EPROTO, "future.reset", shmi_called(&x->e.o), "its producer is said to have died, and lives");
                break;
            }
            err = shmi_future_await_gone(x, s);
        } else if (shmi_cas64(&x->e.w->state, s, (uint64_t)(uint32_t)(s + 1))) { /* clears all bits but the sequence */
            SHMSYNC_CRASHPOINT("future.reset.stored");
            break;
        }
    }
    shmi_exit_for(x, a);
    return err;
}
int shmsync_future_reset(shmsync_future *f)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_future_reset(f->impl, 0));
}

/* Ends the round if its producer is the dead participant. */
SHMI_FN int shmi_repair_future(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_future f;
    int wake;
    if (o->size < sizeof(shmi_future_words))
        return 0;
    shmi_future_init(&f, a, o);
    shmi_future_end(&f, 1, dead == a->self ? dead : 0, &wake); /* a participant that leaves itself is still current, so this call must name it */
    if (wake)
        shmi_eventcount_wake_all(&f.e);
    return 1;
}
SHMI_FN void shmi_wake_future(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_future f;
    if (o->size < sizeof(shmi_future_words))
        return;
    shmi_future_init(&f, a, o);
    shmi_eventcount_wake_dead(&f.e, owed);
}
