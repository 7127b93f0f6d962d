
/* ---- WaitAny and WaitAll: prims/await*.go in C. The thread sleeps on the words of all waits at once. ---- */

/* The array of all waits of a call lies on the stack. To keep it small, the struct of a wait has only the fields that
 * the wait needs. */
enum { SHMI_awaits_nothing, SHMI_awaits_count, SHMI_awaits_sequencer, SHMI_awaits_token };
typedef struct shmi_count_wait {
    struct shmi_eventcount *e; /* the wait lasts until the sequence is no longer seq */
    uint32_t seq;
} shmi_count_wait;
/* One wait. The field what says which kind of wait it is, and so which field of the union is in use. */
typedef struct shmi_awaited {
    int what; /* SHMI_awaits_nothing: the wait has not begun, or has ended */
    union {
        shmi_count_wait count;     /* for a manual-reset Event, or for a Future */
        shmi_token_wait sequencer; /* for a token of a Sequencer */
        shmi_event_wait token;     /* for the token of an auto-reset Event */
    } in;
} shmi_awaited;

/* Whether the wait is over. A wait for an auto-reset Event is over when it has taken the token. */
SHMI_FN int shmi_awaited_over(shmi_awaited *w)
{
    if (w->what == SHMI_awaits_sequencer)
        return shmi_token_over(&w->in.sequencer);
    if (w->what == SHMI_awaits_token)
        return shmi_event_take(&w->in.token);
    shmi_eventcount_do_look(w->in.count.e);
    return (uint32_t)shmi_eventcount_load(w->in.count.e) != w->in.count.seq;
}

/* Whether the awaitable x is reached now. If it is, *err is its result, and a token of an auto-reset Event is taken.
 * The arena may be closed during this call, so the call must not end the round of a Future. */
SHMI_FN int shmi_await_reached(const shmsync_awaitable *x, int *err)
{
    *err = 0;
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return shmi_sequencer_now(x->sequencer->impl) >= x->token;
    if (x->kind == SHMSYNC_AWAIT_EVENT) {
        struct shmi_event *e = x->event->impl;
        return e->mode & SHMI_eventAuto ? shmi_event_claim(e) : shmi_event_odd(e);
    }
    if (x->kind == SHMSYNC_AWAIT_EVENT_RESET)
        return !shmi_event_odd(x->event->impl);
    return shmi_future_reached(x->future->impl, err);
}
/* Begins the wait for x. The parameter thing is the object of the handle in x. The caller has read this parameter at
 * its own start, because another thread may close the handle meanwhile. If x is reached, or the wait has failed, no
 * wait begins, and *err is the result of the wait. If the function itself returns an error, the whole call fails. */
SHMI_FN int shmi_await_begin(const shmsync_awaitable *x, void *thing, shmi_awaited *w, int *err)
{
    *err = 0;
    memset(w, 0, sizeof *w);
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER) {
        w->what = SHMI_awaits_sequencer;
        w->in.sequencer = shmi_token_begin((struct shmi_sequencer *)thing, x->token);
        if (shmi_token_over(&w->in.sequencer)) {
            *err = shmi_token_judge(&w->in.sequencer);
            w->what = SHMI_awaits_nothing;
        }
        return 0;
    }
    if (x->kind != SHMSYNC_AWAIT_FUTURE) {
        struct shmi_event *ev = (struct shmi_event *)thing;
        uint64_t s;
        if ((ev->mode & SHMI_eventAuto) != 0) {
            int failed = shmi_event_check_shares(ev);
            if (failed == 0) {
                shmi_event_begin(ev, &w->in.token);
                w->what = SHMI_awaits_token;
            }
            return failed;
        }
        s = shmi_eventcount_load(&ev->count);
        if ((s & 1) != (x->kind == SHMSYNC_AWAIT_EVENT)) {
            w->what = SHMI_awaits_count;
            w->in.count.e = &ev->count;
            w->in.count.seq = (uint32_t)s;
        }
        return 0;
    } else {
        struct shmi_future *f = (struct shmi_future *)thing;
        uint64_t s = shmi_future_now(f);
        if (shmi_future_over(s)) {
            *err = shmi_future_judge(f, shmi_future_round(s), NULL);
        } else {
            w->what = SHMI_awaits_count;
            w->in.count.e = &f->e;
            w->in.count.seq = (uint32_t)s;
        }
        return 0;
    }
}
/* Returns the result of a wait that is over. The parameter thing is that of shmi_await_begin. */
SHMI_FN int shmi_await_judge(const shmsync_awaitable *x, void *thing, shmi_awaited *w)
{
    if (w->what == SHMI_awaits_sequencer)
        return shmi_token_judge(&w->in.sequencer);
    if (x->kind == SHMSYNC_AWAIT_FUTURE)
        return shmi_future_judge((struct shmi_future *)thing, w->in.count.seq >> 1, NULL);
    return 0;
}
/* Ends a wait that is not over. */
SHMI_FN void shmi_await_leave(shmi_awaited *w)
{
    if (w->what == SHMI_awaits_token)
        shmi_event_give_up(&w->in.token, 0);
}

/* The arena of the object for which a wait waits. One call may wait for objects of several arenas. */
SHMI_FN shmsync_arena *shmi_awaited_in(const shmi_awaited *w)
{
    return w->what == SHMI_awaits_sequencer ? w->in.sequencer.cell->s->a : w->what == SHMI_awaits_count ? w->in.count.e->a : w->in.token.e->a;
}
/* Whether this process is closing the arena of one of the waits. Such a close waits until the wait has ended. */
SHMI_FN int shmi_await_closing(const shmi_awaited *at, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (__atomic_load_n(&shmi_awaited_in(&at[i])->closing, __ATOMIC_SEQ_CST))
            return 1;
    return 0;
}

/* Sleeps until one of the waits is over, for 100 ms at most. The parameter until is the latest time at which the sleep
 * ends. The parameter since is the time at which the call began to wait. */
SHMI_FN void shmi_await_sleep(shmi_awaited *at, size_t n, int64_t since, int64_t until)
{
    shmi_waitv v[SHMSYNC_AWAIT_MOST];
    uint32_t *first = NULL;
    int8_t records[SHMSYNC_AWAIT_MOST]; /* announce records, each in the slot of its arena */
    size_t i, k;
    for (i = 0; i < n; i++) {
        shmi_awaited *w = &at[i];
        shmsync_arena *a = shmi_awaited_in(w);
        records[i] = -1;
        if (w->what == SHMI_awaits_sequencer) {
            shmi_token_cell *cell = w->in.sequencer.cell;
            uint64_t word = shmi_ld64(cell->state);
            uint32_t *low = cell->line.word;
            records[i] = (int8_t)shmi_announce_sleep(a, cell->s->o.off, shmi_off_of(a, low), (uint32_t)word, since);
            if (!shmi_token_announce(&w->in.sequencer, &word))
                break;
            v[i] = shmi_waitv_of(low, (uint32_t)word);
            first = i == 0 ? low : first;
        } else if (w->what == SHMI_awaits_count) {
            struct shmi_eventcount *e = w->in.count.e;
            records[i] = (int8_t)shmi_announce_sleep(a, e->o.off, shmi_off_of(a, e->line.word), w->in.count.seq, since);
            if (!shmi_eventcount_announce(e, w->in.count.seq))
                break;
            v[i] = shmi_waitv_of(e->line.word, w->in.count.seq);
            first = i == 0 ? e->line.word : first;
        } else {
            shmi_event_wait *t = &w->in.token;
            struct shmi_event *ev = t->e;
            uint32_t version = (uint32_t)t->word;
            int64_t bound = t->slept ? 0 : shmi_event_bound(t), now = shmi_now();
            records[i] = (int8_t)shmi_announce_sleep(a, ev->o.off, shmi_off_of(a, ev->count.line.word), version, since);
            v[i] = shmi_waitv_of(ev->count.line.word, version);
            first = i == 0 ? ev->count.line.word : first;
            if (bound != 0 && now + bound < until)
                until = now + bound;
        }
    }
    if (i == n && !shmi_await_closing(at, n)) {
        if (shmi_have_waitv(shmi_awaited_in(&at[0]))) {
            int err = shmi_futex_sleepv(v, (unsigned)n, until);
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT) { /* ENOMEM, for example: sleep on one word */
                int64_t soon = shmi_now() + 1000000;
                shmi_futex_sleep(first, (uint32_t)v[0].val, soon < until ? soon : until);
            }
        } else { /* the kernel can sleep on one word only, so check the other words again soon */
            int64_t soon = shmi_now() + 2000000;
            shmi_futex_sleep(first, (uint32_t)v[0].val, soon < until ? soon : until);
        }
    }
    for (k = 0; k < n && k <= i; k++)
        shmi_retract_sleep(shmi_awaited_in(&at[k]), records[k]);
}

/* The object of the handle in x, if the handle is open. */
SHMI_FN void *shmi_await_thing(const shmsync_awaitable *x)
{
    return x->kind == SHMSYNC_AWAIT_SEQUENCER ? (void *)x->sequencer->impl : x->kind == SHMSYNC_AWAIT_FUTURE ? (void *)x->future->impl : (void *)x->event->impl;
}
/* The arena of the object thing, which is the object of the handle in x. */
SHMI_FN shmsync_arena *shmi_await_arena(const shmsync_awaitable *x, void *thing)
{
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return ((struct shmi_sequencer *)thing)->a;
    return x->kind == SHMSYNC_AWAIT_FUTURE ? ((struct shmi_future *)thing)->e.a : ((struct shmi_event *)thing)->a;
}
/* Checks that a call can wait for all awaitables in the list. Sets of[i] to the arena of list[i]. */
SHMI_FN int shmi_await_check(const char *op, const shmsync_awaitable *list, size_t n, shmsync_arena **of)
{
    size_t i;
    if (n > SHMSYNC_AWAIT_MOST)
        return shmi_fail(EINVAL, op, NULL, "%zu to wait for", n);
    for (i = 0; i < n; i++) {
        const shmsync_awaitable *x = &list[i];
        int err;
        if (x->kind < SHMSYNC_AWAIT_SEQUENCER || x->kind > SHMSYNC_AWAIT_EVENT_RESET)
            return shmi_fail(EINVAL, op, NULL, "kind %d", x->kind);
        if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
            SHMI_CHECK_OPENED(x->sequencer, op);
        else if (x->kind == SHMSYNC_AWAIT_FUTURE)
            SHMI_CHECK_OPENED(x->future, op);
        else
            SHMI_CHECK_OPENED(x->event, op);
        of[i] = shmi_await_arena(x, shmi_await_thing(x));
        err = shmi_use(of[i], op);
        if (err != 0)
            return err;
        if (x->kind == SHMSYNC_AWAIT_EVENT_RESET && !(x->event->impl->mode & SHMI_eventBidirectional))
            return shmi_fail(EINVAL, op, shmi_called(&x->event->impl->o), "it is not bidirectional");
    }
    return 0;
}
/* Calls shmi_enter_for for the handle in x, and sets *thing to the object of the handle. The call goes on with *thing,
 * because another thread may close the handle meanwhile. */
SHMI_FN int shmi_await_enter(const char *op, const shmsync_awaitable *x, void **thing)
{
    *thing = shmi_await_thing(x);
    return shmi_enter_for(*thing, shmi_await_arena(x, *thing), op);
}
SHMI_FN void shmi_await_exit(const shmsync_awaitable *x, void *thing) { shmi_exit_for(thing, shmi_await_arena(x, thing)); }
/* Returns the error of a wait whose arena this process is closing. */
SHMI_COLD int shmi_await_closed(const char *op) { return shmi_fail(EBADF, op, NULL, "this process closed the arena"); }
/* Sleeps once, until one of n waits may be over. Returns 0, or ETIMEDOUT after the deadline. If the function of
 * shmsync_wait_hook ends the wait, *deadline becomes a time in the past. The result is 0 all the same, so that the
 * caller first checks for what came while that function ran. */
SHMI_FN int shmi_await_turn(shmi_awaited *at, size_t n, int64_t since, int64_t *deadline)
{
    int64_t now = shmi_now(), until, abs = *deadline;
    size_t i;
    if (abs != 0 && now >= abs)
        return ETIMEDOUT;
    if (shmi_hook_ends(since, &now)) {
        *deadline = 1;
        return 0;
    }
    until = now + SHMI_CHECK_EVERY;
    shmi_await_sleep(at, n, since, abs != 0 && abs < until ? abs : until);
    for (i = 0; i < n; i++)
        if (at[i].what == SHMI_awaits_sequencer)
            shmi_token_check(at[i].in.sequencer.cell);
        else if (at[i].what == SHMI_awaits_count)
            shmi_eventcount_check(at[i].in.count.e);
        else {
            shmi_event_check(at[i].in.token.e);
            at[i].in.token.slept = 1;
        }
    return 0;
}

void shmsync_wait_hook(int (*f)(void *arg), void *arg)
{
    shmi_wait_hook.f = f;
    shmi_wait_hook.arg = arg;
    shmi_wait_hook.due = 0;
}
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    void *kept[SHMSYNC_AWAIT_MOST]; /* the objects of the handles in the list: see shmi_await_enter */
    shmsync_arena *of[SHMSYNC_AWAIT_MOST];
    size_t i, begun = 0, entered, chosen = SIZE_MAX;
    int64_t abs = 0, since = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0, result = 0;
    *index = SIZE_MAX;
    if (err != 0)
        return SHMI_TELL(err);
    if (n == 0)
        return shmi_fail(EINVAL, "wait_any", NULL, "nothing to wait for");
    err = shmi_await_check("wait_any", list, n, of);
    if (err != 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (shmi_await_reached(&list[i], &err)) {
            *index = i;
            return SHMI_DONE_IN(of[i], err);
        }
    for (entered = 0; entered < n && err == 0; entered += err == 0)
        err = shmi_await_enter("wait_any", &list[entered], &kept[entered]);
    since = shmi_now();
    for (; begun < n && chosen == SIZE_MAX && err == 0; begun++) {
        err = shmi_await_begin(&list[begun], kept[begun], &at[begun], &result);
        if (err != 0)
            break;
        if (at[begun].what == SHMI_awaits_nothing)
            chosen = begun;
    }
    while (err == 0 && chosen == SIZE_MAX) {
        for (i = 0; i < n && chosen == SIZE_MAX; i++)
            if (shmi_awaited_over(&at[i]))
                chosen = i;
        if (chosen != SIZE_MAX) {
            result = shmi_await_judge(&list[chosen], kept[chosen], &at[chosen]);
            break;
        }
        err = shmi_await_closing(at, n) ? shmi_await_closed("wait_any") : shmi_await_turn(at, n, since, &abs);
    }
    for (i = 0; i < begun; i++)
        if (i != chosen)
            shmi_await_leave(&at[i]);
    while (entered-- > 0)
        shmi_await_exit(&list[entered], kept[entered]);
    *index = chosen;
    return SHMI_TELL(chosen != SIZE_MAX ? result : err);
}

/* The waits of a call of wait_all that are not over yet. */
typedef struct shmi_await_rest {
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    void *kept[SHMSYNC_AWAIT_MOST]; /* the objects of the handles; see shmi_await_enter */
    uint8_t of[SHMSYNC_AWAIT_MOST]; /* the indices of the waits in the list of the caller */
    size_t n;
    size_t failed; /* the lowest index of a wait that has ended with an error, or SIZE_MAX */
    int result;    /* the error of that wait */
} shmi_await_rest;
/* Notes the result of the wait for element i of the list. */
SHMI_FN void shmi_await_note(shmi_await_rest *r, size_t i, int err)
{
    if (err != 0 && i < r->failed) {
        r->failed = i;
        r->result = err;
    }
}
/* Waits for the elements of the list with the indices in r->of. The results of these waits go to r. If the function
 * itself returns an error, the whole call fails. */
SHMI_FN int shmi_await_rest_of(const shmsync_awaitable *list, shmi_await_rest *r, int64_t abs)
{
    size_t i, k, entered, todo = r->n;
    int64_t since = shmi_now();
    int err = 0, result;
    for (entered = 0; entered < todo && err == 0; entered += err == 0)
        err = shmi_await_enter("wait_all", &list[r->of[entered]], &r->kept[entered]);
    for (i = k = 0; i < entered; i++) {
        const shmsync_awaitable *x = &list[r->of[i]];
        r->at[k].what = SHMI_awaits_nothing;
        result = 0;
        if (err == 0)
            err = shmi_await_begin(x, r->kept[i], &r->at[k], &result);
        shmi_await_note(r, r->of[i], result);
        if (err == 0 && r->at[k].what != SHMI_awaits_nothing) {
            r->of[k] = r->of[i];
            r->kept[k++] = r->kept[i];
        } else { /* the wait is over, so this call need not keep the handle open any more */
            shmi_await_exit(x, r->kept[i]);
        }
    }
    r->n = k;
    while (err == 0) {
        for (i = k = 0; i < r->n; i++) {
            const shmsync_awaitable *x = &list[r->of[i]];
            if (shmi_awaited_over(&r->at[i])) {
                shmi_await_note(r, r->of[i], shmi_await_judge(x, r->kept[i], &r->at[i]));
                shmi_await_exit(x, r->kept[i]);
            } else if (shmi_await_closing(&r->at[i], 1)) {
                shmi_await_note(r, r->of[i], shmi_await_closed("wait_all"));
                shmi_await_leave(&r->at[i]);
                shmi_await_exit(x, r->kept[i]);
            } else {
                r->at[k] = r->at[i];
                r->kept[k] = r->kept[i];
                r->of[k++] = r->of[i];
            }
        }
        r->n = k;
        if (r->n == 0)
            break;
        err = shmi_await_turn(r->at, r->n, since, &abs);
    }
    for (i = 0; i < r->n; i++) {
        shmi_await_leave(&r->at[i]);
        shmi_await_exit(&list[r->of[i]], r->kept[i]);
    }
    return err;
}
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic)
{
    SHMI_BEGIN();
    shmi_await_rest r;
    shmsync_arena *of[SHMSYNC_AWAIT_MOST];
    size_t i;
    int64_t abs = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0, result;
    if (err == 0)
        err = shmi_await_check("wait_all", list, n, of);
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    r.n = 0;
    r.failed = SIZE_MAX;
    r.result = 0;
    for (i = 0; i < n; i++)
        if (shmi_await_reached(&list[i], &result))
            shmi_await_note(&r, i, SHMI_DONE_IN(of[i], result));
        else
            r.of[r.n++] = (uint8_t)i;
    if (r.n != 0)
        err = shmi_await_rest_of(list, &r, abs);
    return SHMI_TELL(err != 0 ? err : r.result);
}
