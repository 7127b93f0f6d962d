/* ---- Futex ---- */

#define SHMI_FUTEX_KIND SHMI_KIND('F', 'U', 'T', 'X')
enum { SHMI_futexVersion = 1 };
#define SHMI_FUTEX_ANNOUNCED UINT64_C(1)
#define SHMI_FUTEX_STOPPED UINT64_C(2)
#define SHMI_FUTEX_POST UINT64_C(4)

struct shmi_futex {
    shmsync_arena *a;
    shmi_futex_words *w;
    shmi_wait_list line;
    uint64_t seen; /* value of the counter at the last check */
    int64_t looked;
    shmi_object o;
};
typedef struct shmi_futex shmi_futex;

SHMI_FN uint64_t shmi_futex_counter(uint64_t s) { return s >> 2; }
SHMI_FN shmi_wait_list shmi_futex_wait_list(shmi_futex_words *w)
{
    shmi_wait_list l;
    l.word = (uint32_t *)(void *)&w->state; /* the low half */
    l.poller = &w->poller;
    return l;
}
SHMI_FN shmi_tuning shmi_futex_tuning(shmi_futex *f)
{
    shmi_tuning t;
    t.budget = &f->w->spin;
    t.pays = &f->w->pays;
    t.last_cpu = &f->w->lastCPU;
    t.slot = f->a->my_slot;
    return t;
}

/* Sends the wakes that a death may have lost. The function need not change the word: a post of the dead process has
 * changed it already, and without a post no waiter has missed a wake. */
SHMI_FN void shmi_futex_kind_wake(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_futex_words *w = (shmi_futex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    if (w != NULL && (owed != SHMI_OWED_ANNOUNCED || (shmi_ld64(&w->state) & SHMI_FUTEX_ANNOUNCED) != 0)) {
        shmi_wait_list l = shmi_futex_wait_list(w);
        shmi_deliver_all(a, &l);
    }
}

SHMI_FN void shmi_futex_init_body(unsigned char *body, const void *arg)
{
    const shmsync_futex_options *o = (const shmsync_futex_options *)arg;
    if (o != NULL)
        ((shmi_futex_words *)(void *)body)->spin = shmi_spin_field(o->spin_ns);
}
SHMI_FN void *shmi_futex_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    shmi_futex *f = (shmi_futex *)shmi_new_thing(sizeof *f);
    (void)arg;
    if (f == NULL)
        return NULL;
    f->a = a;
    f->w = (shmi_futex_words *)shmi_ptr(a, o->body, sizeof(shmi_futex_words), 64);
    f->line = shmi_futex_wait_list(f->w);
    f->o = *o;
    return f;
}

SHMI_FN int shmi_open_futex(int existing, shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    SHMI_OPTIONS(shmsync_futex_options, 16, "futex.open", out->impl);
    shmi_spec spec;
    shmi_object o;
    int created, err;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_FUTEX_KIND;
    spec.version = SHMI_futexVersion;
    spec.name = name;
    spec.size = sizeof(shmi_futex_words);
    spec.init = shmi_futex_init_body;
    spec.arg = opts;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, SHMI_HAND_OUT(out, shmi_futex *, shmi_share(a, &o, shmi_futex_build, NULL)));
    shmi_exit(a);
    return err;
}
int shmsync_futex_open(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_futex(0, a, name, opts, out));
}
int shmsync_futex_attach(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_futex(1, a, name, opts, out));
}

int shmsync_futex_at(shmsync_arena *a, shmsync_offset off, shmsync_futex *out)
{
    SHMI_BEGIN_AT(a, "futex.open", out);
    shmi_object o;
    int err;
    err = shmi_object_at(a, off, "futex.open", SHMI_FUTEX_KIND, SHMI_futexVersion, sizeof(shmi_futex_words), &o);
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(shmi_exit_with(a, SHMI_HAND_OUT(out, shmi_futex *, shmi_share(a, &o, shmi_futex_build, NULL))));
}

shmsync_offset shmsync_futex_offset(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->o.off;
}

int shmsync_futex_close(shmsync_futex *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(f->impl->a, f->impl->o.off, shmi_mutex_end);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

uint64_t shmsync_futex_get(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return shmi_futex_counter(shmi_ld64(&f->impl->w->state));
}

SHMI_FN int shmi_futex_change(shmi_futex *f, int stop, const char *op)
{
    if (shmi_self(f->a) == 0)
        return shmi_fail(shmi_nameless(f->a), op, shmi_called(&f->o), "%s", "");
    if (!stop) { /* the CPU is noted before the post, because a waiter that sees the post may read the note at once */
        shmi_tuning t = shmi_futex_tuning(f);
        shmi_note_cpu(&t);
    }
    for (;;) {
        uint64_t s = shmi_ld64(&f->w->state), to;
        if ((s & SHMI_FUTEX_STOPPED) != 0)
            return 0;
        to = (stop ? s | SHMI_FUTEX_STOPPED : s + SHMI_FUTEX_POST) & ~SHMI_FUTEX_ANNOUNCED;
        if (!shmi_cas64(&f->w->state, s, to))
            continue;
        if (stop || (s & SHMI_FUTEX_ANNOUNCED) != 0) {
            if (stop)
                SHMSYNC_CRASHPOINT("futex.stop.before_wake");
            else
                SHMSYNC_CRASHPOINT("futex.post.before_wake");
            shmi_deliver_all(f->a, &f->line);
        }
        return 0;
    }
}
int shmsync_futex_post(shmsync_futex *f)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_futex_change(f->impl, 0, "futex.post"));
}
int shmsync_futex_stopped(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return (shmi_ld64(&f->impl->w->state) & SHMI_FUTEX_STOPPED) != 0;
}
int shmsync_futex_stop(shmsync_futex *f)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_futex_change(f->impl, 1, "futex.stop"));
}

typedef struct shmi_futex_spin {
    uint64_t *state, token;
} shmi_futex_spin;
SHMI_FN int shmi_futex_spun(void *arg)
{
    shmi_futex_spin *x = (shmi_futex_spin *)arg;
    uint64_t s = shmi_ld64(x->state);
    return shmi_futex_counter(s) >= x->token || (s & SHMI_FUTEX_STOPPED) != 0;
}

/* Ten times a second, sends the wakes that a stopped or dead poster has not sent. No wake is needed if a waiter has
 * announced itself and the counter is the same as at the last check. If the counter has changed, a waiter may have
 * announced itself after the post whose wakes are missing. So the announcement proves nothing then. */
SHMI_FN void shmi_futex_check(shmi_futex *f)
{
    uint64_t s;
    if (!shmi_check_due(&f->looked))
        return;
    s = shmi_ld64(&f->w->state);
    if (shmi_xchg64(&f->seen, shmi_futex_counter(s)) != shmi_futex_counter(s) || (s & SHMI_FUTEX_ANNOUNCED) == 0 || (s & SHMI_FUTEX_STOPPED) != 0)
        shmi_deliver_all(f->a, &f->line);
}

SHMI_FN void shmi_futex_check_arg(void *f) { shmi_futex_check((shmi_futex *)f); }

SHMI_FN int shmi_futex_wait_entered(shmi_futex *f, uint64_t token, int64_t deadline)
{
    int64_t since = 0;
    for (;;) {
        uint64_t s = shmi_ld64(&f->w->state);
        shmi_sleep_spec sleep_spec;
        int ended;
        if (shmi_futex_counter(s) >= token)
            return 0;
        if ((s & SHMI_FUTEX_STOPPED) != 0)
            return shmi_fail(ECANCELED, "futex.wait", shmi_called(&f->o), "it was stopped");
        if ((s & SHMI_FUTEX_ANNOUNCED) == 0) {
            shmi_futex_spin x;
            shmi_tuning t = shmi_futex_tuning(f);
            x.state = &f->w->state;
            x.token = token;
            if (shmi_spin(&t, shmi_futex_spun, &x))
                continue;
            /* The waiter announces itself again for each value of the counter, because a post clears the announcement
             * of all waiters, even of those that wait for a later value. */
            s = shmi_ld64(&f->w->state);
            if (shmi_futex_counter(s) >= token || (s & SHMI_FUTEX_STOPPED) != 0 || !shmi_cas64(&f->w->state, s, s | SHMI_FUTEX_ANNOUNCED))
                continue;
            s |= SHMI_FUTEX_ANNOUNCED;
        }
        SHMSYNC_CRASHPOINT("futex.wait.announced");
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &f->looked;
        sleep_spec.check = shmi_futex_check_arg;
        sleep_spec.check_arg = f;
        sleep_spec.word = f->line.word;
        sleep_spec.val = (uint32_t)s;
        sleep_spec.object = f->o.off;
        sleep_spec.wanted = (uint32_t)s;
        sleep_spec.deadline = deadline;
        sleep_spec.since = &since;
        ended = shmi_sleep(f->a, &sleep_spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("futex.wait.woken");
            break;
        case SHMI_LOOK:
            shmi_futex_check(f);
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a token that is reached takes precedence over the deadline and the close */
            if (shmi_futex_counter(shmi_ld64(&f->w->state)) >= token)
                return 0;
            return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, "futex.wait", shmi_called(&f->o))
                                      : shmi_fail(EBADF, "futex.wait", shmi_called(&f->o), "this process closed the arena");
        }
    }
}
SHMI_FN int shmi_futex_wait_until(shmi_futex *f, uint64_t token, int64_t deadline)
{
    shmsync_arena *a = f->a;
    int err;
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "futex.wait", shmi_called(&f->o), "%s", "");
    if (shmi_futex_counter(shmi_ld64(&f->w->state)) >= token)
        return 0;
    if (token > UINT64_MAX >> 2)
        return shmi_fail(EINVAL, "futex.wait", shmi_called(&f->o), "no counter gets to token %llu", (unsigned long long)token);
    err = shmi_enter_for(f, a, "futex.wait");
    if (err != 0)
        return err;
    err = shmi_futex_wait_entered(f, token, deadline);
    shmi_exit_for(f, a);
    return err;
}
int shmsync_futex_wait(shmsync_futex *f, uint64_t token)
{
    SHMI_OPENED(f);
    return SHMI_DONE(shmi_futex_wait_until(f->impl, token, 0));
}
int shmsync_futex_timedwait(shmsync_futex *f, uint64_t token, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t deadline;
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "futex.timedwait", shmi_called(&f->impl->o), "not a time");
    return SHMI_DONE(shmi_futex_wait_until(f->impl, token, deadline));
}

