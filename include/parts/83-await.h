
/* ---- WaitAny and WaitAll: prims/await*.go in C. The nodes of all waits are slept on at once. ---- */

typedef struct shmi_awaited {
    struct shmi_monitor *m;
    struct shmi_event *token; /* an event with automatic reset */
    shmi_wait_node *wait_node;
} shmi_awaited;

/* Whether it has come, without waiting, and how; an event's token is taken. */
SHMI_FN int shmi_await_reached(const shmsync_awaitable *x, int *err)
{
    *err = 0;
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return shmi_seq_reached(x->sequencer->impl, x->token);
    if (x->kind == SHMSYNC_AWAIT_EVENT) {
        struct shmi_event *e = x->event->impl;
        return e->mode & SHMI_eventAuto ? shmi_event_claim(e) : (int)(shmi_event_load(e) & 1);
    }
    if (x->kind == SHMSYNC_AWAIT_EVENT_RESET) {
        return (shmi_event_load(x->event->impl) & 1) == 0;
    } else {
        struct shmi_future *f = x->future->impl;
        uint64_t s = shmi_future_load(f);
        if ((s & SHMI_FUTURE_SET_MASK) == 0 && shmi_future_over(s))
            *err = shmi_fail_who(f->m.a, EOWNERDEAD, "future.wait", f->m.queueLock.called, shmi_future_producer(s));
        return shmi_future_over(s);
    }
}
/* Begins its wait. No wait node: it has come, or *err says how it has ended; not 0 is an error of the waiting itself. */
SHMI_FN int shmi_await_begin(const shmsync_awaitable *x, int64_t abs, shmi_awaited *w, int *err)
{
    int e;
    *err = 0;
    w->token = NULL;
    w->wait_node = NULL;
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER) {
        w->m = &x->sequencer->impl->m;
        e = shmi_seq_register(x->sequencer->impl, x->token, abs, &w->wait_node);
        if (e == ECANCELED) {
            *err = e;
            e = 0;
        }
        return e;
    }
    if (x->kind != SHMSYNC_AWAIT_FUTURE) {
        struct shmi_event *ev = x->event->impl;
        uint64_t v = shmi_event_load(ev);
        w->m = &ev->q.m;
        if (x->kind == SHMSYNC_AWAIT_EVENT && (ev->mode & SHMI_eventAuto) != 0) {
            w->token = ev;
            return shmi_event_register(ev, 0, abs, &w->wait_node);
        }
        return (v & 1) == (x->kind == SHMSYNC_AWAIT_EVENT) ? 0 : shmi_seq_register(&ev->q, v + 1, abs, &w->wait_node);
    } else {
        struct shmi_future *f = x->future->impl;
        uint64_t outcome = 0;
        w->m = &f->m;
        e = shmi_mon_enter(w->m, abs);
        if (e == 0)
            e = shmi_mon_enqueue(w->m, abs, 0, shmi_future_is_over, &outcome, &w->wait_node);
        if (e == 0 && w->wait_node == NULL && shmi_outcome_result(outcome) == SHMI_futureIsAbandoned)
            *err = shmi_fail_who(f->m.a, EOWNERDEAD, "future.wait", f->m.queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
        return e;
    }
}
/* How a wait ended that was resolved and is chosen. */
SHMI_FN int shmi_await_judge(const shmsync_awaitable *x, shmi_awaited *w)
{
    uint64_t outcome = shmi_mon_collect(w->m, w->wait_node);
    w->wait_node = NULL;
    if (w->token != NULL)
        shmi_event_ack(w->token);
    else if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return shmi_outcome_result(outcome) == SHMI_REACHED ? 0 : ECANCELED;
    else if (x->kind == SHMSYNC_AWAIT_FUTURE && shmi_outcome_result(outcome) == SHMI_futureIsAbandoned)
        return shmi_fail_who(w->m->a, EOWNERDEAD, "future.wait", w->m->queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    return 0;
}
/* Ends a wait that is not chosen. */
SHMI_FN void shmi_await_leave(shmi_awaited *w)
{
    if (w->wait_node == NULL || shmi_mon_give_up(w->m, w->wait_node))
        return;
    shmi_mon_collect(w->m, w->wait_node);
    if (w->token != NULL)
        shmi_event_pass(w->token);
}

/* Sleeps until one of the waits is over, or until then, 100 ms at most. The call has lasted since that time. */
SHMI_FN void shmi_await_sleep(shmsync_arena *a, shmi_awaited *at, size_t n, int64_t since, int64_t until)
{
    shmi_waitv v[SHMSYNC_AWAIT_MOST];
    size_t i;
    int record = shmi_announce_sleep(a, at[0].m->o.off, at[0].wait_node->off, 0, since);
    for (i = 0; i < n; i++) {
        shmi_node *node = at[i].wait_node->node;
        uint32_t w = shmi_node_load(node);
        if (shmi_node_state(w) == SHMI_NodeQueued && shmi_node_swap(node, w, shmi_node_with(w, SHMI_NodeAsleep)))
            w = shmi_node_with(w, SHMI_NodeAsleep);
        if (shmi_node_state(w) != SHMI_NodeAsleep) {
            shmi_retract_sleep(a, record);
            return;
        }
        v[i] = shmi_waitv_of(&node->word, w);
    }
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
        if ((a->caps & SHMI_capWaitV) != 0) {
            shmi_futex_sleepv(v, (unsigned)n, until);
        } else { /* one word at a time: the others are looked at more often */
            int64_t soon = shmi_now() + 2000000;
            shmi_futex_sleep(&at[0].wait_node->node->word, (uint32_t)v[0].val, soon < until ? soon : until);
        }
    }
    shmi_retract_sleep(a, record);
}

/* 0 if the list can be waited for, with *a the arena. */
SHMI_FN int shmi_await_check(const char *op, const shmsync_awaitable *list, size_t n, shmsync_arena **a)
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
            SHMI_OPENED(x->sequencer);
        else if (x->kind == SHMSYNC_AWAIT_FUTURE)
            SHMI_OPENED(x->future);
        else
            SHMI_OPENED(x->event);
        *a = x->kind == SHMSYNC_AWAIT_SEQUENCER ? x->sequencer->impl->m.a : x->kind == SHMSYNC_AWAIT_FUTURE ? x->future->impl->m.a : x->event->impl->q.m.a;
        err = shmi_use(*a, op);
        if (err != 0)
            return err;
        if (x->kind == SHMSYNC_AWAIT_EVENT_RESET && !(x->event->impl->mode & SHMI_eventBidirectional))
            return shmi_fail(EINVAL, op, x->event->impl->q.m.queueLock.called, "it is not bidirectional");
    }
    return 0;
}
/* Sleeps for a turn until one of n waits may be over: 0, or why there is no more waiting. */
SHMI_FN int shmi_await_turn(shmsync_arena *a, const char *op, shmi_awaited *at, size_t n, int64_t since, int64_t abs)
{
    int64_t now = shmi_now(), until = now + SHMI_CHECK_EVERY;
    size_t i;
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return shmi_fail(EBADF, op, NULL, "this process closed the arena");
    if (abs != 0 && now >= abs)
        return ETIMEDOUT;
    shmi_await_sleep(a, at, n, since, abs != 0 && abs < until ? abs : until);
    for (i = 0; i < n; i++)
        shmi_mutex_check(&at[i].m->queueLock);
    return 0;
}

int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    shmsync_arena *a = NULL;
    size_t i, begun, chosen = SIZE_MAX;
    int64_t abs = 0, since = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0, result = 0;
    *index = SIZE_MAX;
    if (err != 0)
        return SHMI_TELL(err);
    if (n == 0)
        return shmi_fail(EINVAL, "wait_any", NULL, "nothing to wait for");
    err = shmi_await_check("wait_any", list, n, &a);
    if (err != 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (shmi_await_reached(&list[i], &err)) {
            *index = i;
            return SHMI_TELL(err);
        }
    err = shmi_enter(a, "wait_any");
    if (err != 0)
        return SHMI_TELL(err);
    since = shmi_now();
    for (begun = 0; begun < n && chosen == SIZE_MAX && err == 0; begun++) {
        err = shmi_await_begin(&list[begun], abs, &at[begun], &result);
        if (err != 0)
            break;
        if (at[begun].wait_node == NULL)
            chosen = begun;
    }
    while (err == 0 && chosen == SIZE_MAX) {
        for (i = 0; i < n && chosen == SIZE_MAX; i++)
            if (shmi_wait_node_resolved(at[i].wait_node))
                chosen = i;
        if (chosen != SIZE_MAX) {
            result = shmi_await_judge(&list[chosen], &at[chosen]);
            break;
        }
        err = shmi_await_turn(a, "wait_any", at, n, since, abs);
    }
    for (i = 0; i < begun; i++)
        if (i != chosen)
            shmi_await_leave(&at[i]);
    shmi_exit(a);
    *index = chosen;
    return SHMI_TELL(chosen != SIZE_MAX ? result : err);
}

int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    size_t of[SHMSYNC_AWAIT_MOST]; /* where in the list the waits are that are not over */
    int errs[SHMSYNC_AWAIT_MOST];
    shmsync_arena *a = NULL;
    size_t i, left = 0;
    int64_t abs = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0;
    if (err == 0)
        err = shmi_await_check("wait_all", list, n, &a);
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (!shmi_await_reached(&list[i], &errs[i]))
            of[left++] = i;
    if (left != 0) {
        size_t begun = 0, todo = left, k;
        int64_t since = shmi_now();
        err = shmi_enter(a, "wait_all");
        if (err != 0)
            return SHMI_TELL(err);
        for (i = 0; i < todo && err == 0; i++) {
            err = shmi_await_begin(&list[of[i]], abs, &at[begun], &errs[of[i]]);
            if (err == 0 && at[begun].wait_node != NULL)
                of[begun++] = of[i];
        }
        left = begun;
        while (err == 0) {
            for (i = k = 0; i < left; i++) {
                if (shmi_wait_node_resolved(at[i].wait_node)) {
                    errs[of[i]] = shmi_await_judge(&list[of[i]], &at[i]);
                } else {
                    at[k] = at[i];
                    of[k++] = of[i];
                }
            }
            left = k;
            if (left == 0)
                break;
            err = shmi_await_turn(a, "wait_all", at, left, since, abs);
        }
        for (i = 0; i < left; i++)
            shmi_await_leave(&at[i]);
        shmi_exit(a);
        if (err != 0)
            return SHMI_TELL(err);
    }
    for (i = 0; i < n; i++)
        if (errs[i] != 0)
            return SHMI_TELL(errs[i]);
    return 0;
}
