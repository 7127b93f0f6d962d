/* group.KIND NAME TURNS: a thread's share of the work of a worker group. Any process of the group may be killed at any
 * moment. A turn ends by itself if nothing is lost. The number in the answer is how many turns were done. */

static const struct timespec *in_ms(struct timespec *ts, long ms)
{
    clock_gettime(CLOCK_MONOTONIC, ts);
    ts->tv_nsec += ms * 1000000;
    ts->tv_sec += ts->tv_nsec / 1000000000;
    ts->tv_nsec %= 1000000000;
    return ts;
}

static int no_repair(void *arg_)
{
    (void)arg_;
    return 0;
}

static void give_way(void *arg_)
{
    (void)arg_;
    sched_yield();
}

/* Checks that this thread is alone. Returns 0, or EILSEQ if another one was in. */
static int alone(const char *name)
{
    char other[600];
    shmsync_sequencer s;
    uint64_t v, was;
    snprintf(other, sizeof other, "%s-in", name);
    if (shmsync_sequencer_open(arena, other, NULL, &s) != 0)
        return EILSEQ;
    was = shmsync_sequencer_value(&s);
    sched_yield();
    shmsync_sequencer_increment(&s, &v);
    shmsync_sequencer_close(&s);
    return v == was + 1 ? 0 : EILSEQ;
}

static int group_turn(const order *o, int turn)
{
    const char *name = o->word[2];
    struct timespec ts;
    int err = 0;
    if (is(o, "group.queue")) { /* puts one item and takes one: so there is always one for each waiter */
        shmsync_queue q;
        shmsync_queue_options opts;
        shmsync_lease l;
        uint64_t v = (uint64_t)getpid();
        memset(&opts, 0, sizeof opts);
        opts.layout = shmsync_layout("u8 ");
        if ((err = shmsync_queue_attach(arena, name, 8, &opts, &q)) != 0)
            return err;
        err = shmsync_queue_put(&q, &v);
        if (err == 0 && turn % 3 == 0)
            err = shmsync_queue_get(&q, &v);
        else if (err == 0 && (err = shmsync_queue_lease(&q, &v, &l)) == 0) {
            if (turn % 3 == 1 && (err = shmsync_lease_nack(&l)) == 0)
                err = shmsync_queue_lease(&q, &v, &l);
            if (err == 0)
                err = shmsync_lease_ack(&l);
        }
        if (err == 0 && turn % 7 == 0 && shmsync_queue_timedlease(&q, &v, &l, in_ms(&ts, 1)) == 0)
            err = shmsync_lease_nack(&l);
        shmsync_queue_close(&q);
        return err;
    }
    if (is(o, "group.event")) { /* a token is passed on; if its holder dies and it is lost, a new one is made */
        shmsync_event e;
        if ((err = shmsync_event_open(arena, name, NULL, &e)) != 0)
            return err;
        err = shmsync_event_timedwait(&e, in_ms(&ts, 5));
        if (err == 0 || err == ETIMEDOUT)
            err = shmsync_event_set(&e);
        shmsync_event_close(&e);
        return err;
    }
    if (is(o, "group.seq")) {
        shmsync_sequencer s;
        uint64_t v;
        if ((err = shmsync_sequencer_open(arena, name, NULL, &s)) != 0)
            return err;
        err = shmsync_sequencer_increment(&s, &v);
        if (err == 0)
            err = shmsync_sequencer_timedwait(&s, v + 1 + (uint64_t)(turn % 3), in_ms(&ts, 3));
        if (turn % 16 == 15)
            shmsync_sequencer_cancel_waiters(&s);
        shmsync_sequencer_close(&s);
        return err == ETIMEDOUT || err == ECANCELED ? 0 : err;
    }
    if (is(o, "group.fair")) {
        shmsync_fairmutex f;
        if ((err = shmsync_fairmutex_open(arena, name, NULL, &f)) != 0)
            return err;
        err = turn % 4 == 3 ? shmsync_fairmutex_timedlock(&f, in_ms(&ts, 1)) : shmsync_fairmutex_lock(&f);
        if (err == 0) {
            err = alone(name);
            if (err == 0)
                err = shmsync_fairmutex_unlock(&f);
        } else if (err == EOWNERDEAD) {
            err = shmsync_fairmutex_recover(&f, no_repair, NULL);
        }
        shmsync_fairmutex_close(&f);
        return err == ETIMEDOUT ? 0 : err;
    }
    if (is(o, "group.cond")) {
        char other[600];
        shmsync_cond c;
        shmsync_mutex m;
        snprintf(other, sizeof other, "%s-lock", name);
        if ((err = shmsync_cond_open(arena, name, NULL, &c)) != 0 || (err = shmsync_mutex_open(arena, other, NULL, &m)) != 0)
            return err;
        err = shmsync_mutex_lock(&m);
        if (err == 0) {
            if (turn % 4 == 0)
                shmsync_cond_broadcast(&c);
            else
                shmsync_cond_signal(&c);
            err = shmsync_cond_timedwait(&c, &m, in_ms(&ts, 4));
        }
        if (err == 0 || err == ETIMEDOUT)
            err = shmsync_mutex_unlock(&m);
        if (err == EOWNERDEAD)
            err = shmsync_mutex_recover(&m, no_repair, NULL);
        shmsync_mutex_close(&m);
        shmsync_cond_close(&c);
        return err;
    }
    if (is(o, "group.wg")) {
        shmsync_waitgroup g;
        if ((err = shmsync_waitgroup_open(arena, name, NULL, &g)) != 0)
            return err;
        err = shmsync_waitgroup_add(&g, 2);
        if (err == 0)
            err = shmsync_waitgroup_done(&g);
        if (err == 0)
            err = shmsync_waitgroup_timedwait(&g, in_ms(&ts, 2));
        if (err == ETIMEDOUT || err == EOWNERDEAD || err == 0) {
            int dead = err == EOWNERDEAD;
            err = shmsync_waitgroup_done(&g);
            if (dead)
                err = shmsync_waitgroup_reset(&g);
        }
        shmsync_waitgroup_close(&g);
        return err;
    }
    if (is(o, "group.barrier")) {
        shmsync_barrier b;
        if ((err = shmsync_barrier_attach(arena, name, NULL, &b)) != 0)
            return err;
        err = shmsync_barrier_timedarrive_and_wait(&b, in_ms(&ts, 5));
        if (err == EOWNERDEAD)
            err = shmsync_barrier_reset(&b, 2, NULL);
        shmsync_barrier_close(&b);
        return err == ETIMEDOUT ? 0 : err;
    }
    if (is(o, "group.future")) {
        shmsync_future f;
        if ((err = shmsync_future_open(arena, name, NULL, &f)) != 0)
            return err;
        err = shmsync_future_claim(&f);
        if (err == 0)
            err = shmsync_future_set(&f, turn);
        else if (err == EBUSY)
            err = shmsync_future_timedwait(&f, NULL, in_ms(&ts, 5));
        if (turn % 2 == 0 || err == EOWNERDEAD)
            shmsync_future_reset(&f);
        shmsync_future_close(&f);
        return err == EBUSY || err == ETIMEDOUT || err == EOWNERDEAD ? 0 : err;
    }
    if (is(o, "group.once")) { /* a new once for every few turns */
        char other[600];
        shmsync_once x;
        snprintf(other, sizeof other, "%s-%d", name, turn / 4);
        if ((err = shmsync_once_open(arena, other, NULL, &x)) != 0)
            return err;
        err = shmsync_once_do(&x, give_way, NULL);
        if (err == 0 && !shmsync_once_done(&x))
            err = EILSEQ;
        shmsync_once_close(&x);
        return err;
    }
#if SHMSYNC_LAYOUT_VERSION >= 3
    if (is(o, "group.sem")) {
        shmsync_semaphore s;
        int64_t n = 1 + turn % 2;
        if ((err = shmsync_semaphore_attach(arena, name, NULL, &s)) != 0)
            return err;
        err = turn % 4 == 3 ? shmsync_semaphore_timedacquire(&s, n, in_ms(&ts, 1)) : shmsync_semaphore_acquire(&s, n);
        if (err == 0) {
            if (turn % 8 < 2)
                sched_yield();
            err = shmsync_semaphore_release(&s, n);
        }
        shmsync_semaphore_close(&s);
        return err == ETIMEDOUT ? 0 : err;
    }
#endif
    return ENOSYS;
}

static int group(const order *o, uint64_t *n)
{
    int turn, turns = (int)arg(o, 0), err = 0;
    for (turn = 0; turn < turns && err == 0; turn++, ++*n)
        err = group_turn(o, turn);
    return err;
}
