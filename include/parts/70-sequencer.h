/* Sequencers. A Sequencer has a counter, and 16 words that are its cells. A waiter for a token sleeps on the word of
 * one cell. This is prims/sequencer*.go in C. */

enum { SHMI_sequencerCells = 16 };
#define SHMI_TOKEN_FAR (UINT32_C(1) << 29)
#define SHMI_TOKEN_MASK (UINT32_MAX >> 1)
/* The fields of shmi_sequencer_words.turns, which counts the calls that end all waits: see prims/sequencer_word.go. */
#define SHMI_TURNS_STOPPED UINT64_C(1)
#define SHMI_TURNS_ONE UINT64_C(2)

/* The handle of this process on a cell. */
typedef struct shmi_token_cell {
    struct shmi_sequencer *s;
    uint64_t *state;
    shmi_wait_list line;
    int64_t looked;
    uint64_t seen, value, turns; /* at the last periodic check: the sequence of the cell plus 1; the counter; shmi_sequencer_words.turns */
} shmi_token_cell;
struct shmi_sequencer {
    shmsync_arena *a;
    shmi_sequencer_words *w;
    shmi_object o;
    shmi_token_cell cells[SHMI_sequencerCells];
};
/* A wait for a token. turns: what shmi_sequencer_words.turns was when the wait began. */
typedef struct shmi_token_wait {
    shmi_token_cell *cell;
    uint64_t token, turns;
} shmi_token_wait;

/* How far the announced token of a cell is ahead of the counter, whose value is v. The counter has reached the token
 * unless the result is from 1 to SHMI_TOKEN_FAR. */
SHMI_FN uint32_t shmi_token_ahead(uint64_t state, uint64_t v)
{
    return ((uint32_t)(state >> SHMI_TOKEN_CELL_NEXT_SHIFT) - (uint32_t)v) & SHMI_TOKEN_MASK;
}
/* Whether the waiters of a cell must be woken, so that they read the counter again. */
SHMI_FN int shmi_token_due(uint64_t state, uint64_t v)
{
    return (state & SHMI_EVENTCOUNT_ANNOUNCED) != 0 && shmi_token_ahead(state, v) - 1 >= SHMI_TOKEN_FAR;
}
/* Returns the word of a cell after a waiter has announced a token. state is the word before the announcement, and v is
 * the value of the counter. The counter has not reached the token, and no wake is due for state. */
SHMI_FN uint64_t shmi_token_announced(uint64_t state, uint64_t token, uint64_t v)
{
    uint64_t ahead = token - v;
    if (ahead > SHMI_TOKEN_FAR)
        /* the field of the word cannot show a token so far ahead, so announce a nearer token of the same cell */
        ahead = SHMI_TOKEN_FAR - (v + SHMI_TOKEN_FAR - token) % SHMI_sequencerCells;
    if ((state & SHMI_EVENTCOUNT_ANNOUNCED) != 0 && shmi_token_ahead(state, v) <= ahead)
        return state;
    return (state & ~SHMI_TOKEN_CELL_NEXT_MASK) | SHMI_EVENTCOUNT_ANNOUNCED | ((v + ahead) & SHMI_TOKEN_MASK) << SHMI_TOKEN_CELL_NEXT_SHIFT;
}

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_sequencer_bytes(shmsync_arena *a) { return sizeof(shmi_sequencer_words) + (a->geo.counted ? 64 : 0); }
SHMI_FN uint64_t shmi_sequencer_now(struct shmi_sequencer *s) { return shmi_ld64(&s->w->value); }
SHMI_FN int shmi_token_over(const shmi_token_wait *w)
{
    struct shmi_sequencer *s = w->cell->s;
    uint64_t turns = shmi_ld64(&s->w->turns);
    return turns != w->turns || (turns & SHMI_TURNS_STOPPED) != 0 || shmi_sequencer_now(s) >= w->token;
}
/* The result of a wait that is over: 0, or ECANCELED if the counter has not reached the token. */
SHMI_FN int shmi_token_judge(const shmi_token_wait *w) { return shmi_sequencer_now(w->cell->s) >= w->token ? 0 : ECANCELED; }
SHMI_FN shmi_token_wait shmi_token_begin(struct shmi_sequencer *s, uint64_t token)
{
    shmi_token_wait w;
    w.cell = &s->cells[token % SHMI_sequencerCells];
    w.token = token;
    w.turns = shmi_ld64(&s->w->turns);
    return w;
}

SHMI_FN shmi_tuning shmi_sequencer_tuning(struct shmi_sequencer *s)
{
    shmi_tuning t;
    t.budget = &s->w->spin;
    t.pays = &s->w->pays;
    t.last_cpu = &s->w->lastCPU;
    t.slot = s->a->my_slot;
    return t;
}

/* If the word of the cell is equal to state, changes the word, wakes the waiters of the cell and returns 1. Otherwise
 * returns 0. */
SHMI_FN int shmi_token_hit(shmi_token_cell *c, uint64_t state)
{
    if ((state & SHMI_EVENTCOUNT_ANNOUNCED) != 0) {
        shmi_tuning t = shmi_sequencer_tuning(c->s);
        shmi_note_cpu(&t);
    }
    if (!shmi_cas64(c->state, state, shmi_eventcount_next(state)))
        return 0;
    if ((state & SHMI_EVENTCOUNT_ANNOUNCED) != 0) {
        SHMSYNC_CRASHPOINT("sequencer.count.before_wake");
        shmi_deliver_all(c->s->a, &c->line);
    }
    return 1;
}
/* Wakes the waiters of a cell if they must read the counter again. The counter has just grown by jump, and is now v. */
SHMI_FN void shmi_token_hit_if_due(shmi_token_cell *c, uint64_t v, uint64_t jump)
{
    for (;;) {
        uint64_t state = shmi_ld64(c->state);
        if (!shmi_token_due(state, v) && !((state & SHMI_EVENTCOUNT_ANNOUNCED) != 0 && jump > SHMI_TOKEN_FAR))
            return;
        if (shmi_token_hit(c, state)) /* no second change is needed: a waiter that comes later announces itself before it reads the counter */
            return;
    }
}

/* Sends the wakes that a stopped or dead process has not sent. */
SHMI_FN void shmi_token_make_up(shmi_token_cell *c)
{
    struct shmi_sequencer *s = c->s;
    uint64_t v = shmi_sequencer_now(s), turns = shmi_ld64(&s->w->turns), state, now;
    int all = v - shmi_xchg64(&c->value, v) > SHMI_TOKEN_FAR;
    all = shmi_xchg64(&c->turns, turns) != turns || all;
    /* The word of the cell must change in two cases, because a waiter may be about to sleep on it. The first case is a
     * jump of the counter by more than SHMI_TOKEN_FAR: the word cannot show which tokens the counter has reached. The
     * second case is a change of shmi_sequencer_words.turns, which the word of a cell never shows. */
    while (all && !shmi_token_hit(c, shmi_ld64(c->state))) {
    }
    shmi_token_hit_if_due(c, v, 0);
    state = shmi_ld64(c->state);
    now = (uint64_t)(uint32_t)state + 1;
    if (shmi_xchg64(&c->seen, now) != now || (state & SHMI_EVENTCOUNT_ANNOUNCED) == 0)
        shmi_deliver_all(s->a, &c->line);
}
/* Calls shmi_token_make_up, ten times a second at most. */
SHMI_FN void shmi_token_check(void *cell)
{
    shmi_token_cell *c = (shmi_token_cell *)cell;
    if (shmi_check_due(&c->looked))
        shmi_token_make_up(c);
}

/* Announces the token, so that a wake comes when the counter reaches the token. Returns 0 if the wait is over. If the
 * result is 1, the waiter may sleep while the word of the cell is *word. */
SHMI_FN int shmi_token_announce(const shmi_token_wait *w, uint64_t *word)
{
    shmi_token_cell *c = w->cell;
    for (;;) {
        uint64_t state = shmi_ld64(c->state), v = shmi_sequencer_now(c->s);
        if (shmi_token_over(w) || v >= w->token)
            return 0;
        if (shmi_token_due(state, v)) {
            shmi_token_hit(c, state);
            continue;
        }
        SHMSYNC_CRASHPOINT("sequencer.wait.read");
        *word = shmi_token_announced(state, w->token, v);
        if (*word != state && !shmi_cas64(c->state, state, *word))
            continue;
        SHMSYNC_CRASHPOINT("sequencer.wait.announced");
        /* The counter may have reached the token before this call announced it. The counter may also have reached the
         * nearer token that this call has announced instead. */
        if (shmi_token_over(w))
            return 0;
        if (shmi_sequencer_now(c->s) - v < shmi_token_ahead(*word, v))
            return 1;
        shmi_token_hit(c, *word); /* the counter has reached the nearer token, or was set back */
    }
}

SHMI_FN int shmi_token_spun(void *wait) { return shmi_token_over((const shmi_token_wait *)wait); }
/* Waits until the counter has reached token. Returns 0, ECANCELED, ETIMEDOUT, EBADF, or the error of shmi_enter. */
SHMI_FN int shmi_sequencer_await(struct shmi_sequencer *s, uint64_t token, int64_t deadline)
{
    shmi_token_wait w;
    shmi_tuning t;
    int64_t since = 0;
    int err = 0;
    if (shmi_sequencer_now(s) >= token)
        return 0;
    w = shmi_token_begin(s, token);
    if (shmi_token_over(&w))
        return shmi_token_judge(&w);
    err = shmi_enter_for(s, s->a, "sequencer.wait");
    if (err != 0)
        return err;
    t = shmi_sequencer_tuning(s);
    if ((shmi_ld64(w.cell->state) & SHMI_EVENTCOUNT_ANNOUNCED) == 0)
        (void)shmi_spin(&t, shmi_token_spun, &w);
    while (err == 0 && !shmi_token_over(&w)) {
        shmi_sleep_spec spec;
        uint64_t word;
        int ended;
        if (!shmi_token_announce(&w, &word))
            break;
        SHMSYNC_CRASHPOINT("sequencer.wait.looked");
        memset(&spec, 0, sizeof spec);
        spec.looked = &w.cell->looked;
        spec.check = shmi_token_check;
        spec.check_arg = w.cell;
        spec.word = w.cell->line.word;
        spec.val = (uint32_t)word;
        spec.object = s->o.off;
        spec.wanted = (uint32_t)word;
        spec.deadline = deadline;
        spec.since = &since;
        ended = shmi_sleep(s->a, &spec);
        if (ended == SHMI_AGAIN)
            SHMSYNC_CRASHPOINT("sequencer.wait.woken");
        else if (ended == SHMI_LOOK)
            shmi_token_check(w.cell);
        else if (!shmi_token_over(&w))
            err = ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, "sequencer.wait", shmi_called(&s->o))
                                     : shmi_fail(EBADF, "sequencer.wait", shmi_called(&s->o), "this process closed the arena");
    }
    if (err == 0)
        err = shmi_token_judge(&w);
    shmi_exit_for(s, s->a);
    return err;
}

/* Wakes the waiters that must read the counter again. The counter has just grown by jump, and is now v. */
SHMI_FN void shmi_sequencer_counted(struct shmi_sequencer *s, uint64_t v, uint64_t jump)
{
    uint64_t back;
    SHMSYNC_CRASHPOINT("sequencer.count.counted");
    for (back = 0; back < jump && back < SHMI_sequencerCells; back++)
        shmi_token_hit_if_due(&s->cells[(v - back) % SHMI_sequencerCells], v, jump);
}
/* Wakes the waiters of all cells, even those that are only about to announce themselves. */
SHMI_FN void shmi_sequencer_end_waits(struct shmi_sequencer *s)
{
    int i;
    for (i = 0; i < SHMI_sequencerCells; i++)
        while (!shmi_token_hit(&s->cells[i], shmi_ld64(s->cells[i].state))) {
        }
}

/* ---- The functions of a handle ---- */

SHMI_FN void shmi_sequencer_init(struct shmi_sequencer *s, shmsync_arena *a, const shmi_object *o, shmi_sequencer_words *w)
{
    int i;
    memset(s, 0, sizeof *s);
    s->a = a;
    s->o = *o;
    s->w = w;
    for (i = 0; i < SHMI_sequencerCells; i++) {
        shmi_token_cell *c = &s->cells[i];
        c->s = s;
        c->state = &w->cells[i].state;
        c->line.word = (uint32_t *)(void *)c->state; /* the low half */
        c->line.poller = &w->cells[i].poller;
    }
}

typedef struct shmi_sequencer_spec {
    uint64_t initial;
    uint32_t spin;
} shmi_sequencer_spec;

SHMI_FN void shmi_sequencer_fill(unsigned char *body, const void *arg)
{
    shmi_sequencer_words *w = (shmi_sequencer_words *)(void *)body;
    const shmi_sequencer_spec *s = (const shmi_sequencer_spec *)arg;
    w->value = s->initial;
    w->spin = s->spin;
}

SHMI_FN void *shmi_sequencer_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_sequencer *s = (struct shmi_sequencer *)shmi_new_thing(sizeof *s);
    (void)arg;
    if (s != NULL)
        shmi_sequencer_init(s, a, o, (shmi_sequencer_words *)shmi_ptr(a, o->body, sizeof(shmi_sequencer_words), 8));
    return s;
}

SHMI_FN int shmi_sequencer_handle(shmsync_arena *a, const shmi_object *o, shmsync_sequencer *out)
{
    return SHMI_HAND_OUT(out, struct shmi_sequencer *, shmi_share(a, o, shmi_sequencer_build, NULL));
}

SHMI_FN int shmi_open_sequencer(int existing, shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_OPTIONS(shmsync_sequencer_options, 24, "sequencer.open", out->impl);
    shmi_spec spec;
    shmi_sequencer_spec init;
    shmi_object o;
    int err, created;
    init.initial = opts != NULL ? opts->initial : 0;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_SEQUENCER;
    spec.version = SHMI_VERSION_SEQUENCER;
    spec.name = name;
    spec.size = shmi_sequencer_bytes(a);
    spec.init = shmi_sequencer_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_sequencer_handle(a, &o, out));
    shmi_exit(a);
    return err;
}
int shmsync_sequencer_open(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_sequencer(0, a, name, opts, out));
}
int shmsync_sequencer_attach(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_sequencer(1, a, name, opts, out));
}

int shmsync_sequencer_at(shmsync_arena *a, shmsync_offset off, shmsync_sequencer *out)
{
    SHMI_BEGIN_AT(a, "sequencer.open", out);
    shmi_object o;
    int err = shmi_object_at(a, off, "sequencer.open", SHMI_KIND_SEQUENCER, SHMI_VERSION_SEQUENCER, shmi_sequencer_bytes(a), &o);
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_sequencer_handle(a, &o, out)));
}

int shmsync_sequencer_close(shmsync_sequencer *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(s->impl->a, s->impl->o.off, shmi_free_thing);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_sequencer_offset(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->o.off;
}
uint64_t shmsync_sequencer_value(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_sequencer_now(s->impl);
}
int shmsync_sequencer_stopped(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return (shmi_ld64(&s->impl->w->turns) & SHMI_TURNS_STOPPED) != 0;
}

/* As soon as this call lets another thread go on, that thread may close the handle. So the call reads the handle only
 * at its start. */
int shmsync_sequencer_increment(shmsync_sequencer *sequencer, uint64_t *value)
{
    SHMI_OPENED(sequencer);
    struct shmi_sequencer *s = sequencer->impl;
    uint64_t v;
    int err = shmi_use(s->a, "sequencer.increment");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_DONE(err);
    v = shmi_add64(&s->w->value, 1) + 1;
    if (value != NULL)
        *value = v;
    shmi_sequencer_counted(s, v, 1);
    return SHMI_DONE(0);
}

int shmsync_sequencer_advance(shmsync_sequencer *sequencer, uint64_t v, int *advanced)
{
    SHMI_OPENED_ELSE(sequencer, shmi_set_flag(advanced, 0));
    struct shmi_sequencer *s = sequencer->impl;
    int err = shmi_use(s->a, "sequencer.advance");
    uint64_t now;
    if (advanced != NULL)
        *advanced = 0;
    if (err != 0)
        return SHMI_DONE(err);
    for (now = shmi_sequencer_now(s); now < v; now = shmi_sequencer_now(s))
        if (shmi_cas64(&s->w->value, now, v)) {
            if (advanced != NULL)
                *advanced = 1;
            shmi_sequencer_counted(s, v, v - now);
            return SHMI_DONE_ELSE(0, shmi_set_flag(advanced, 0));
        }
    return SHMI_DONE_ELSE(0, shmi_set_flag(advanced, 0));
}

int shmsync_sequencer_wait(shmsync_sequencer *s, uint64_t token)
{
    SHMI_OPENED(s);
    return SHMI_DONE(shmi_sequencer_await(s->impl, token, 0));
}
int shmsync_sequencer_timedwait(shmsync_sequencer *s, uint64_t token, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_sequencer_await(s->impl, token, ns));
}
int shmsync_sequencer_cancel_waiters(shmsync_sequencer *sequencer)
{
    SHMI_OPENED(sequencer);
    struct shmi_sequencer *s = sequencer->impl;
    int err = shmi_use(s->a, "sequencer.cancel_waiters");
    if (err != 0)
        return SHMI_DONE(err);
    shmi_add64(&s->w->turns, SHMI_TURNS_ONE);
    SHMSYNC_CRASHPOINT("sequencer.cancel.marked");
    shmi_sequencer_end_waits(s);
    return SHMI_DONE(0);
}
int shmsync_sequencer_stop(shmsync_sequencer *sequencer)
{
    SHMI_OPENED(sequencer);
    struct shmi_sequencer *s = sequencer->impl;
    int err = shmi_use(s->a, "sequencer.stop");
    if (err != 0)
        return SHMI_DONE(err);
    for (;;) {
        uint64_t turns = shmi_ld64(&s->w->turns);
        if ((turns & SHMI_TURNS_STOPPED) != 0)
            return SHMI_DONE(0);
        if (!shmi_cas64(&s->w->turns, turns, (turns + SHMI_TURNS_ONE) | SHMI_TURNS_STOPPED))
            continue;
        SHMSYNC_CRASHPOINT("sequencer.stop.marked");
        shmi_sequencer_end_waits(s);
        return SHMI_DONE(0);
    }
}

int shmsync_sequencer_reset(shmsync_sequencer *sequencer, uint64_t v)
{
    SHMI_OPENED(sequencer);
    struct shmi_sequencer *s = sequencer->impl;
    int err = shmi_use(s->a, "sequencer.reset");
    if (err != 0)
        return SHMI_DONE(err);
    shmi_add64(&s->w->turns, SHMI_TURNS_ONE);
    SHMSYNC_CRASHPOINT("sequencer.cancel.marked");
    shmi_xchg64(&s->w->value, v);
    SHMSYNC_CRASHPOINT("sequencer.reset.stored");
    shmi_sequencer_end_waits(s);
    return SHMI_DONE(0);
}

/* For a reaper: sends the wakes that a death may have lost. The dead process may have changed the counter, or ended all
 * waits, before it changed the word of a cell. A waiter may be about to sleep on that word, so this function changes
 * it. */
SHMI_FN void shmi_wake_sequencer(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_sequencer_words *w = (shmi_sequencer_words *)shmi_try_at(a, o->body, sizeof *w, 8);
    int i;
    for (i = 0; w != NULL && i < SHMI_sequencerCells; i++) {
        uint64_t *state = &w->cells[i].state, was = shmi_ld64(state);
        shmi_wait_list l;
        while ((was & SHMI_EVENTCOUNT_ANNOUNCED) != 0 && !shmi_cas64(state, was, shmi_eventcount_next(was)))
            was = shmi_ld64(state);
        l.word = (uint32_t *)(void *)state;
        l.poller = &w->cells[i].poller;
        if ((was & SHMI_EVENTCOUNT_ANNOUNCED) != 0 || owed != SHMI_OWED_ANNOUNCED || shmi_ld64(l.poller) != 0)
            shmi_deliver_all(a, &l);
    }
}
