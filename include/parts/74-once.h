
/* ---- Once: prims/once*.go in C ---- */

/* The word; see prims/once_word.go. */
#define SHMI_ONCE_ANNOUNCED UINT64_C(1)
#define SHMI_ONCE_DONE UINT64_C(2)
#define SHMI_ONCE_TURN (UINT64_C(1) << 32)
#define SHMI_ONCE_IDS ((uint64_t)SHMI_NAME_MASK << 3)

struct shmi_once {
    shmsync_arena *a;
    shmi_once_words *w;
    shmi_wait_list line;
    int64_t looked;
    const void *thread; /* the thread of this process that runs a function for a call; see shmi_this_thread. Atomic */
    shmi_object o;
};

SHMI_FN uint64_t shmi_once_load(struct shmi_once *o) { return shmi_ld64(&o->w->state); }
SHMI_FN int shmi_once_is_done(uint64_t w) { return (w & SHMI_ONCE_DONE) != 0; }
SHMI_FN shmi_participant_id shmi_once_runner(uint64_t w) { return (shmi_participant_id)((uint32_t)w >> 3); }
/* Returns the word that follows w when participant n begins the next turn. */
SHMI_FN uint64_t shmi_once_taken_by(uint64_t w, shmi_participant_id n) { return ((w & ~SHMI_ONCE_IDS) + SHMI_ONCE_TURN) | (uint64_t)n << 3; }
/* Whether the words w and began show the same turn, and w shows that the turn is not over. */
SHMI_FN int shmi_once_runs(uint64_t w, uint64_t began)
{
    return !shmi_once_is_done(w) && shmi_once_runner(w) == shmi_once_runner(began) && w >> 32 == began >> 32;
}
/* Whether the next call may run its function, because no process runs one, or the runner is dead and gone. */
SHMI_FN int shmi_once_free(struct shmi_once *o, uint64_t w)
{
    shmi_participant_id n = shmi_once_runner(w);
    return n == 0 || (!shmi_current(o->a, n) && shmi_gone(o->a, n));
}

SHMI_FN void shmi_once_init(struct shmi_once *x, shmsync_arena *a, const shmi_object *o)
{
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    x->w = (shmi_once_words *)shmi_ptr(a, o->body, sizeof(shmi_once_words), 8);
    x->line.word = (uint32_t *)(void *)&x->w->state; /* the low half */
    x->line.poller = &x->w->poller;
}
SHMI_FN void *shmi_once_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_once *x = (struct shmi_once *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x != NULL)
        shmi_once_init(x, a, o);
    return x;
}
SHMI_FN void shmi_once_fill(unsigned char *body, const void *arg) { ((shmi_once_words *)(void *)body)->spin = *(const uint32_t *)arg; }

SHMI_FN int shmi_open_once(int existing, shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_OPTIONS(shmsync_once_options, 16, "once.open", out->impl);
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_spec_of_kind(&spec, SHMI_KIND_ONCE, SHMI_VERSION_ONCE, name, sizeof(shmi_once_words));
    spec.init = shmi_once_fill;
    spec.arg = &spin;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_once_build, NULL, &created, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(0, a, name, opts, out));
}
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(1, a, name, opts, out));
}
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out)
{
    SHMI_BEGIN_AT(a, "once.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "once.open", SHMI_KIND_ONCE, SHMI_VERSION_ONCE, sizeof(shmi_once_words), shmi_once_build, NULL, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_once_offset(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return o->impl->o.off;
}
int shmsync_once_close(shmsync_once *o)
{
    SHMI_OPENED(o);
    int err;
    if (o->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(o->impl->a, o->impl->o.off, shmi_mutex_end);
    if (err == 0)
        o->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_once_done(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return shmi_once_is_done(shmi_once_load(o->impl));
}

/* If the runner is dead and gone, takes the turn away from it and wakes the waiters. The parameter without is a
 * participant that is leaving, which counts as dead, or 0. The call gives up if a peer changes the word again and
 * again. Later, a call that needs the turn takes it without a reap. */
SHMI_FN void shmi_once_reap(struct shmi_once *o, shmi_participant_id without)
{
    int tries;
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        uint64_t w = shmi_once_load(o);
        shmi_participant_id n = shmi_once_runner(w);
        if (shmi_once_is_done(w) || n == 0 || (n != without && shmi_current(o->a, n)) || !shmi_gone(o->a, n))
            return;
        if (shmi_cas64(&o->w->state, w, w & ~SHMI_ONCE_IDS)) {
            SHMSYNC_CRASHPOINT("once.reap.left");
            shmi_deliver_all(o->a, &o->line);
            return;
        }
    }
}
/* The periodic check: ten times a second, sends the wakes that a stopped or dead process has not sent. */
SHMI_FN void shmi_once_check(struct shmi_once *o)
{
    uint64_t w;
    if (!shmi_check_due(&o->looked))
        return;
    w = shmi_once_load(o);
    if (!shmi_once_is_done(w) && shmi_once_runner(w) != 0 && shmi_dead(o->a, shmi_once_runner(w)))
        shmi_once_reap(o, 0);
    w = shmi_once_load(o);
    if (shmi_once_is_done(w) || shmi_once_runner(w) == 0 || (w & SHMI_ONCE_ANNOUNCED) == 0)
        shmi_deliver_all(o->a, &o->line);
}

SHMI_FN void shmi_once_check_arg(void *o) { shmi_once_check((struct shmi_once *)o); }

SHMI_FN shmi_tuning shmi_once_tuning(struct shmi_once *o)
{
    shmi_tuning t;
    t.budget = &o->w->spin;
    t.pays = &o->w->pays;
    t.last_cpu = &o->w->lastCPU;
    t.slot = o->a->my_slot;
    return t;
}
SHMI_FN int shmi_once_spun(void *arg)
{
    uint64_t w = shmi_once_load((struct shmi_once *)arg);
    return shmi_once_is_done(w) || shmi_once_runner(w) == 0;
}

/* Waits until a function has returned, or makes this process the runner. If this process is the runner, *began is the
 * word with which its turn begins. Otherwise *began is 0. */
SHMI_FN int shmi_once_join(struct shmi_once *o, int64_t deadline, uint64_t *began)
{
    int64_t since = 0;
    int waits = 0, ended = SHMI_AGAIN;
    *began = 0;
    for (;;) {
        uint64_t w = shmi_once_load(o);
        shmi_sleep_spec spec;
        if (shmi_once_is_done(w))
            return 0;
        if (ended == SHMI_CLOSED)
            return shmi_fail(EBADF, "once.do", shmi_called(&o->o), "this process closed the arena");
        if (shmi_once_free(o, w)) {
            uint64_t to = shmi_once_taken_by(w, o->a->self);
            if (!shmi_cas64(&o->w->state, w, to))
                continue;
            *began = to;
            return 0;
        }
        if (ended == SHMI_LATE) /* a free turn takes precedence over the deadline */
            return shmi_brief(ETIMEDOUT, "once.do", shmi_called(&o->o));
        /* Only threads of this process store to o->thread, and each thread stores only its own shmi_this_thread. So if
         * o->thread is this thread, the function that this thread runs has not returned yet. */
        if (shmi_once_runner(w) == o->a->self && __atomic_load_n(&o->thread, __ATOMIC_RELAXED) == shmi_this_thread())
            return shmi_fail(EDEADLK, "once.do", shmi_called(&o->o), "the function that it runs calls it, and would wait for itself");
        if (!waits) {
            shmi_tuning t = shmi_once_tuning(o);
            waits = 1;
            if ((w & SHMI_ONCE_ANNOUNCED) == 0)
                shmi_spin(&t, shmi_once_spun, o);
            continue; /* the word may have changed during the spin */
        }
        if ((w & SHMI_ONCE_ANNOUNCED) == 0) {
            if (!shmi_cas64(&o->w->state, w, w | SHMI_ONCE_ANNOUNCED))
                continue;
            w |= SHMI_ONCE_ANNOUNCED;
        }
        SHMSYNC_CRASHPOINT("once.wait.announced");
        memset(&spec, 0, sizeof spec);
        spec.looked = &o->looked;
        spec.check = shmi_once_check_arg;
        spec.check_arg = o;
        spec.word = o->line.word;
        spec.val = (uint32_t)w;
        spec.object = o->o.off;
        spec.wanted = (uint32_t)w;
        spec.deadline = deadline;
        spec.since = &since;
        ended = shmi_sleep(o->a, &spec);
        if (ended == SHMI_AGAIN)
            SHMSYNC_CRASHPOINT("once.wait.woken");
        else if (ended == SHMI_LOOK)
            shmi_once_check(o);
    }
}
/* Notes that the function of a turn has returned, and wakes the waiters. The parameter began is the word with which the
 * turn began. */
SHMI_FN void shmi_once_finish(struct shmi_once *o, uint64_t began)
{
    shmi_tuning t = shmi_once_tuning(o);
    for (;;) {
        uint64_t w = shmi_once_load(o);
        if (!shmi_once_runs(w, began))
            return; /* a peer overwrote the word */
        if ((w & SHMI_ONCE_ANNOUNCED) != 0)
            shmi_note_cpu(&t); /* a waiter that sees the end may read the note */
        if (!shmi_cas64(&o->w->state, w, (w & ~SHMI_ONCE_IDS) | SHMI_ONCE_DONE))
            continue;
        SHMSYNC_CRASHPOINT("once.run.done");
        if ((w & SHMI_ONCE_ANNOUNCED) != 0)
            shmi_deliver_all(o->a, &o->line);
        return;
    }
}
SHMI_FN int shmi_once_do(struct shmi_once *o, void (*f)(void *), void *arg, int64_t abs)
{
    shmsync_arena *a = o->a;
    uint64_t began;
    int err;
    if (SHMI_LIKELY(shmi_once_is_done(shmi_once_load(o))))
        return 0;
    err = shmi_enter_for(o, a, "once.do");
    if (err != 0)
        return err;
    err = shmi_once_join(o, abs, &began);
    if (began != 0) {
        SHMSYNC_CRASHPOINT("once.run.taken");
        __atomic_store_n(&o->thread, shmi_this_thread(), __ATOMIC_RELAXED);
        SHMI_OUTSIDE(f(arg));
        __atomic_store_n(&o->thread, (const void *)NULL, __ATOMIC_RELAXED);
        SHMSYNC_CRASHPOINT("once.run.returned");
        shmi_once_finish(o, began);
    }
    shmi_exit_for(o, a);
    return err;
}
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg)
{
    SHMI_OPENED(o);
    return SHMI_DONE(shmi_once_do(o->impl, f, arg, 0));
}
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(o);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_once_do(o->impl, f, arg, ns));
}

SHMI_FN int shmi_repair_once(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_once x;
    if (o->size < sizeof(shmi_once_words))
        return 0;
    shmi_once_init(&x, a, o);
    shmi_once_reap(&x, dead == a->self ? dead : 0); /* a participant that leaves itself is still current, so this call must name it */
    return 1;
}
/* Sends the wakes that a death may have lost. */
SHMI_FN void shmi_wake_once(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_once x;
    if (o->size < sizeof(shmi_once_words))
        return;
    shmi_once_init(&x, a, o);
    if (owed != SHMI_OWED_ANNOUNCED || (shmi_once_load(&x) & SHMI_ONCE_ANNOUNCED) != 0)
        shmi_deliver_all(a, &x.line);
}
