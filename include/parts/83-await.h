
/* ---- WaitAny and WaitAll: prims/await*.go in C. The thread sleeps on the words of all waits at once. ---- */

/* One wait. Which of e, wait.cell and token.e is not NULL says its kind. If all are NULL, the wait has not begun, or
 * has ended. */
typedef struct shmi_awaited {
    struct shmi_eventcount *e; /* the wait lasts until the sequence is no longer seq */
    uint32_t seq;
    shmi_token_wait wait;  /* a wait for a token of a sequencer; wait.cell is not NULL */
    shmi_event_wait token; /* a wait for the token of an auto-reset event; token.e is not NULL */
} shmi_awaited;

SHMI_FN int shmi_awaited_begun(const shmi_awaited *w) { return w->token.e != NULL || w->e != NULL || w->wait.cell != NULL; }
/* Whether the wait is over. A wait for an auto-reset event that is over has taken the token. */
SHMI_FN int shmi_awaited_over(shmi_awaited *w)
{
    if (w->wait.cell != NULL)
        return shmi_token_over(&w->wait);
    if (w->token.e != NULL)
        return shmi_event_take(&w->token);
    shmi_eventcount_do_look(w->e);
    return (uint32_t)shmi_eventcount_load(w->e) != w->seq;
}

/* Whether x is reached, without a wait. *err is then its result, and the token of an auto-reset event is taken. This
 * call is not counted, so it must not end the round of a Future. */
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
/* Begins the wait for x. thing is the data behind the handle in x, which was read when the call began, because another
 * thread may close the handle. If w has not begun afterwards, x is reached, and *err is its result. A result other
 * than 0 is an error of the whole call. */
SHMI_FN int shmi_await_begin(const shmsync_awaitable *x, void *thing, shmi_awaited *w, int *err)
{
    *err = 0;
    memset(w, 0, sizeof *w);
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER) {
        w->wait = shmi_token_begin((struct shmi_sequencer *)thing, x->token);
        if (shmi_token_over(&w->wait)) {
            *err = shmi_token_judge(&w->wait);
            w->wait.cell = NULL;
        }
        return 0;
    }
    if (x->kind != SHMSYNC_AWAIT_FUTURE) {
        struct shmi_event *ev = (struct shmi_event *)thing;
        uint64_t s;
        if ((ev->mode & SHMI_eventAuto) != 0) {
            int failed = shmi_event_check_shares(ev);
            if (failed == 0)
                shmi_event_begin(ev, &w->token);
            return failed;
        }
        s = shmi_eventcount_load(&ev->count);
        if ((s & 1) != (x->kind == SHMSYNC_AWAIT_EVENT)) {
            w->e = &ev->count;
            w->seq = (uint32_t)s;
        }
        return 0;
    } else {
        struct shmi_future *f = (struct shmi_future *)thing;
        uint64_t s = shmi_future_now(f);
        if (shmi_future_over(s)) {
            *err = shmi_future_judge(f, shmi_future_round(s), NULL);
        } else {
            w->e = &f->e;
            w->seq = (uint32_t)s;
        }
        return 0;
    }
}
/* The result of a wait that is over. thing is as in shmi_await_begin. */
SHMI_FN int shmi_await_judge(const shmsync_awaitable *x, void *thing, shmi_awaited *w)
{
    if (w->wait.cell != NULL)
        return shmi_token_judge(&w->wait);
    if (x->kind == SHMSYNC_AWAIT_FUTURE)
        return shmi_future_judge((struct shmi_future *)thing, w->seq >> 1, NULL);
    return 0;
}
/* Ends a wait that is not over. */
SHMI_FN void shmi_await_leave(shmi_awaited *w)
{
    if (w->token.e != NULL)
        shmi_event_give_up(&w->token, 0);
}

/* The arena of the object for which w waits. The waits of one call may be for objects of several arenas. */
SHMI_FN shmsync_arena *shmi_awaited_in(const shmi_awaited *w)
{
    return w->wait.cell != NULL ? w->wait.cell->s->a : w->e != NULL ? w->e->a : w->token.e->a;
}
/* Whether this process is closing the arena of one of the waits. The close waits until that wait has ended. */
SHMI_FN int shmi_await_closing(const shmi_awaited *at, size_t n)
{
    size_t i;
    for (i = 0; i < n; i++)
        if (__atomic_load_n(&shmi_awaited_in(&at[i])->closing, __ATOMIC_SEQ_CST))
            return 1;
    return 0;
}

/* Sleeps until one of the waits is over, but not longer than until. since is the time at which the call began to wait.
 */
SHMI_FN void shmi_await_sleep(shmi_awaited *at, size_t n, int64_t since, int64_t until)
{
    shmi_waitv v[SHMSYNC_AWAIT_MOST];
    uint32_t *first = NULL;
    int records[SHMSYNC_AWAIT_MOST]; /* the announce record of each wait, in the slot of its arena */
    size_t i, k;
    for (i = 0; i < n; i++) {
        shmi_awaited *w = &at[i];
        shmsync_arena *a = shmi_awaited_in(w);
        records[i] = -1;
        if (w->wait.cell != NULL) {
            uint64_t word = shmi_ld64(w->wait.cell->state);
            uint32_t *low = w->wait.cell->line.word;
            records[i] = shmi_announce_sleep(a, w->wait.cell->s->o.off, shmi_off_of(a, low), (uint32_t)word, since);
            if (!shmi_token_announce(&w->wait, &word))
                break;
            v[i] = shmi_waitv_of(low, (uint32_t)word);
            first = i == 0 ? low : first;
        } else if (w->e != NULL) {
            records[i] = shmi_announce_sleep(a, w->e->o.off, shmi_off_of(a, w->e->line.word), w->seq, since);
            if (!shmi_eventcount_announce(w->e, w->seq))
                break;
            v[i] = shmi_waitv_of(w->e->line.word, w->seq);
            first = i == 0 ? w->e->line.word : first;
        } else {
            struct shmi_event *ev = w->token.e;
            uint32_t version = (uint32_t)w->token.word;
            int64_t bound = w->token.slept ? 0 : shmi_event_bound(&w->token), now = shmi_now();
            records[i] = shmi_announce_sleep(a, ev->o.off, shmi_off_of(a, ev->count.line.word), version, since);
            v[i] = shmi_waitv_of(ev->count.line.word, version);
            first = i == 0 ? ev->count.line.word : first;
            if (bound != 0 && now + bound < until)
                until = now + bound;
        }
    }
    if (i == n && !shmi_await_closing(at, n)) {
        if ((shmi_awaited_in(&at[0])->caps & SHMI_capWaitV) != 0) {
            int err = shmi_futex_sleepv(v, (unsigned)n, until);
            /* ENOMEM: the kernel has no room for so many words at the moment */
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT) {
                int64_t soon = shmi_now() + 1000000;
                shmi_futex_sleep(first, (uint32_t)v[0].val, soon < until ? soon : until);
            }
        } else { /* without futex_waitv: sleep on the first word only, and check the others every 2 ms */
            int64_t soon = shmi_now() + 2000000;
            shmi_futex_sleep(first, (uint32_t)v[0].val, soon < until ? soon : until);
        }
    }
    for (k = 0; k < n && k <= i; k++)
        shmi_retract_sleep(shmi_awaited_in(&at[k]), records[k]);
}

/* The data behind a handle through which a call waits, and its arena. */
typedef struct shmi_kept {
    void *thing;
    shmsync_arena *a;
} shmi_kept;
SHMI_FN shmi_kept shmi_kept_by(const shmsync_awaitable *x)
{
    shmi_kept k = {NULL, NULL};
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER) {
        k.thing = x->sequencer->impl;
        k.a = x->sequencer->impl->a;
    } else if (x->kind == SHMSYNC_AWAIT_FUTURE) {
        k.thing = x->future->impl;
        k.a = x->future->impl->e.a;
    } else {
        k.thing = x->event->impl;
        k.a = x->event->impl->a;
    }
    return k;
}
/* Checks that the call can wait for the objects of the list. */
SHMI_FN int shmi_await_check(const char *op, const shmsync_awaitable *list, size_t n)
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
            SHMI_OPENED_AS(x->sequencer, op);
        else if (x->kind == SHMSYNC_AWAIT_FUTURE)
            SHMI_OPENED_AS(x->future, op);
        else
            SHMI_OPENED_AS(x->event, op);
        err = shmi_use(shmi_kept_by(x).a, op);
        if (err != 0)
            return err;
        if (x->kind == SHMSYNC_AWAIT_EVENT_RESET && !(x->event->impl->mode & SHMI_eventBidirectional))
            return shmi_fail(EINVAL, op, shmi_called(&x->event->impl->o), "it is not bidirectional");
    }
    return 0;
}
SHMI_FN void shmi_await_exit(size_t n, const shmi_kept *kept)
{
    while (n-- > 0)
        shmi_exit_for(kept[n].thing, kept[n].a);
}
/* Calls shmi_enter_for for each object of the list. */
SHMI_FN int shmi_await_enter(const char *op, const shmsync_awaitable *list, size_t n, shmi_kept *kept)
{
    size_t i;
    for (i = 0; i < n; i++) {
        int err;
        kept[i] = shmi_kept_by(&list[i]);
        err = shmi_enter_for(kept[i].thing, kept[i].a, op);
        if (err != 0) {
            shmi_await_exit(i, kept);
            return err;
        }
    }
    return 0;
}
/* The result of a wait in an arena that this process is closing. */
SHMI_COLD int shmi_await_closed(const char *op) { return shmi_fail(EBADF, op, NULL, "this process closed the arena"); }
/* Sleeps once, until one of n waits may be over. Returns 0, or ETIMEDOUT. If the hook of the thread ends the call, the
 * deadline has passed from then on, but the caller first checks what came while the hook ran. */
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
        if (at[i].wait.cell != NULL)
            shmi_token_check(at[i].wait.cell);
        else if (at[i].e != NULL)
            shmi_eventcount_check(at[i].e);
        else {
            shmi_event_check(at[i].token.e);
            at[i].token.slept = 1;
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
    shmi_kept kept[SHMSYNC_AWAIT_MOST];
    size_t i, begun, chosen = SIZE_MAX;
    int64_t abs = 0, since = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0, result = 0;
    *index = SIZE_MAX;
    if (err != 0)
        return SHMI_TELL(err);
    if (n == 0)
        return shmi_fail(EINVAL, "wait_any", NULL, "nothing to wait for");
    err = shmi_await_check("wait_any", list, n);
    if (err != 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (shmi_await_reached(&list[i], &err)) {
            *index = i;
            return SHMI_TELL(err);
        }
    err = shmi_await_enter("wait_any", list, n, kept);
    if (err != 0)
        return SHMI_TELL(err);
    since = shmi_now();
    for (begun = 0; begun < n && chosen == SIZE_MAX && err == 0; begun++) {
        err = shmi_await_begin(&list[begun], kept[begun].thing, &at[begun], &result);
        if (err != 0)
            break;
        if (!shmi_awaited_begun(&at[begun]))
            chosen = begun;
    }
    while (err == 0 && chosen == SIZE_MAX) {
        for (i = 0; i < n && chosen == SIZE_MAX; i++)
            if (shmi_awaited_over(&at[i]))
                chosen = i;
        if (chosen != SIZE_MAX) {
            result = shmi_await_judge(&list[chosen], kept[chosen].thing, &at[chosen]);
            break;
        }
        err = shmi_await_closing(at, n) ? shmi_await_closed("wait_any") : shmi_await_turn(at, n, since, &abs);
    }
    for (i = 0; i < begun; i++)
        if (i != chosen)
            shmi_await_leave(&at[i]);
    shmi_await_exit(n, kept);
    *index = chosen;
    return SHMI_TELL(chosen != SIZE_MAX ? result : err);
}

int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    size_t of[SHMSYNC_AWAIT_MOST]; /* for each wait that is not over, its place in the list; at and kept have the same order */
    int errs[SHMSYNC_AWAIT_MOST];
    shmi_kept kept[SHMSYNC_AWAIT_MOST];
    shmsync_awaitable unreached[SHMSYNC_AWAIT_MOST];
    size_t i, left = 0;
    int64_t abs = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0;
    if (err == 0)
        err = shmi_await_check("wait_all", list, n);
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (!shmi_await_reached(&list[i], &errs[i]))
            of[left++] = i;
    if (left != 0) {
        size_t begun, todo = left, k;
        int64_t since = shmi_now();
        for (i = 0; i < todo; i++)
            unreached[i] = list[of[i]];
        err = shmi_await_enter("wait_all", unreached, todo, kept);
        if (err != 0)
            return SHMI_TELL(err);
        for (begun = i = 0; i < todo; i++) {
            if (err == 0)
                err = shmi_await_begin(&list[of[i]], kept[i].thing, &at[begun], &errs[of[i]]);
            if (err == 0 && shmi_awaited_begun(&at[begun])) {
                of[begun] = of[i];
                kept[begun++] = kept[i];
            } else { /* x is reached, so a close of its arena need not wait for this call */
                shmi_await_exit(1, &kept[i]);
            }
        }
        left = begun;
        while (err == 0) {
            for (i = k = 0; i < left; i++) {
                if (shmi_awaited_over(&at[i])) {
                    errs[of[i]] = shmi_await_judge(&list[of[i]], kept[i].thing, &at[i]);
                    shmi_await_exit(1, &kept[i]);
                } else if (shmi_await_closing(&at[i], 1)) {
                    errs[of[i]] = shmi_await_closed("wait_all");
                    shmi_await_leave(&at[i]);
                    shmi_await_exit(1, &kept[i]);
                } else {
                    at[k] = at[i];
                    kept[k] = kept[i];
                    of[k++] = of[i];
                }
            }
            left = k;
            if (left == 0)
                break;
            err = shmi_await_turn(at, left, since, &abs);
        }
        for (i = 0; i < left; i++)
            shmi_await_leave(&at[i]);
        shmi_await_exit(left, kept);
        if (err != 0)
            return SHMI_TELL(err);
    }
    for (i = 0; i < n; i++)
        if (errs[i] != 0)
            return SHMI_TELL(errs[i]);
    return 0;
}
