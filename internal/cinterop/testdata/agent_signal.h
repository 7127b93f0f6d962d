/* Verbs of the agent for SignalWaker, its gates and its signals. */

static shmsync_gate gates[4096]; /* the gates of sig.begin, sig.inline and sig.next. guarded by: lease_lock */

/* The counts of several agents with one SignalWaker: how many items were put into each queue, and how many were
 * handled. */
typedef struct sig_board {
    uint64_t pushed[4], done[4];
} sig_board;

static sig_board *sig_board_of(const char *name)
{
    char called[600];
    void *p = NULL;
    snprintf(called, sizeof called, "%s-board", name);
    return shmsync_block_open(arena, called, sizeof(sig_board), &p) == 0 ? (sig_board *)p : NULL;
}

static int sig_gate(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    int q = (int)arg(o, 0), did = 0, err;
    shmsync_gate g;
    shmsync_gate_info info;
    if (is(o, "sig.next")) {
        if ((err = shmsync_signalwaker_next(w, q, &g)) != 0)
            return err;
        *n = g.queue;
    } else {
        if ((err = shmsync_signalwaker_gate(w, q, &g)) != 0)
            return err;
        if (is(o, "sig.schedule"))
            return err = shmsync_gate_schedule(&g, &did), *n = (uint64_t)did, err;
        if (is(o, "sig.state")) {
            err = shmsync_gate_state(&g, &info);
            *n = (uint64_t)info.scheduled | (uint64_t)info.executing << 1 | (uint64_t)info.epoch << 2;
            return err;
        }
        if (is(o, "sig.executor"))
            return err = shmsync_gate_state(&g, &info), *n = info.known ? info.executor.pid : 0, err;
        if (is(o, "sig.begin") || is(o, "sig.inline")) {
            if ((err = is(o, "sig.begin") ? shmsync_gate_begin(&g) : shmsync_gate_trybegin_inline(&g)) != 0)
                return err;
        } else {
            pthread_mutex_lock(&lease_lock);
            if (gates[q].impl != NULL)
                g = gates[q];
            pthread_mutex_unlock(&lease_lock);
            if (is(o, "sig.finish"))
                err = shmsync_gate_finish(&g, &did), *n = (uint64_t)did;
            else
                err = shmsync_gate_finish_and_schedule(&g);
        }
    }
    pthread_mutex_lock(&lease_lock);
    gates[g.queue] = g;
    pthread_mutex_unlock(&lease_lock);
    return err;
}

static int sig_bits(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    shmsync_signal s;
    uint64_t mask = 0;
    int empty = 0, set = 0, err;
    if ((err = shmsync_signalwaker_signal(w, (int)arg(o, 0), &s)) != 0)
        return err;
    if (is(o, "sig.bitset"))
        return err = shmsync_signal_set(&s, (int)arg(o, 1), &empty, &set), *n = (uint64_t)empty | (uint64_t)set << 1, err;
    if (is(o, "sig.bitsetmask"))
        return err = shmsync_signal_set_mask(&s, (uint64_t)arg(o, 1), &empty, &mask), *n = mask << 1 | (uint64_t)empty, err;
    if (is(o, "sig.bittake"))
        return err = shmsync_signal_acquire(&s, (int)arg(o, 1), &mask), *n = err == 0 ? mask : 0, err;
    if (is(o, "sig.bits"))
        return *n = shmsync_signal_load(&s), 0;
    return *n = (uint64_t)shmsync_nearest_bit(shmsync_signal_load(&s), (int)arg(o, 1)), 0;
}

/* Answers with *n the value that a function has returned by a pointer. */
static int sig_told(int err, int did, uint64_t *n) { return *n = (uint64_t)did, err; }

static int sig_partition(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    int did = 0, err, q = 0, k = (int)arg(o, 0);
    if (is(o, "sig.sync")) { /* signals A..B of the waker "tree"; with a third argument, of this one */
        shmsync_signalwaker tree;
        if ((err = shmsync_signalwaker_open(arena, arg(o, 2) != 0 ? o->word[2] : "tree", NULL, &tree)) != 0)
            return err;
        err = shmsync_signalwaker_sync_partition(w, k, (int)arg(o, 1), &tree, &did);
        return sig_told(err, did, n);
    }
    if (is(o, "sig.leaf"))
        return err = shmsync_signalwaker_mark_leaf(w, k, &did), sig_told(err, did, n);
    if (is(o, "sig.clearleaf"))
        return shmsync_signalwaker_clear_leaf(w, k);
    if (is(o, "sig.haswork"))
        return *n = (uint64_t)shmsync_signalwaker_leaf_has_work(w, k), 0;
    if (is(o, "sig.partition"))
        return *n = shmsync_signalwaker_partition(w), 0;
    if (is(o, "sig.reserve")) {
        err = shmsync_signalwaker_reserve(w, k, (int)arg(o, 1), &q);
        return *n = (uint64_t)q, err;
    }
    if (is(o, "sig.reserveall")) { /* of the signals A..B; N is how many were reserved */
        while ((err = shmsync_signalwaker_reserve(w, k, (int)arg(o, 1), &q)) == 0)
            ++*n;
        return err == EBUSY ? 0 : err;
    }
    if (is(o, "sig.unreserve"))
        return shmsync_signalwaker_unreserve(w, k);
    if (is(o, "sig.reserved"))
        return *n = (uint64_t)shmsync_signalwaker_reserved(w), 0;
    return ENOSYS;
}

static int sig_more(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    uint64_t stats[SHMSYNC_STATS], mask = 0;
    shmsync_signal_health h;
    struct timespec ts;
    const struct timespec *abs;
    int did = 0, other = 0, err, k = (int)arg(o, 0);
    if (is(o, "sig.try"))
        return shmsync_signalwaker_tryacquire(w);
    if (is(o, "sig.acquire")) {
        abs = until(o, 0, &ts);
        return abs == NULL ? shmsync_signalwaker_acquire(w) : shmsync_signalwaker_timedacquire(w, abs);
    }
    if (is(o, "sig.release"))
        return shmsync_signalwaker_release(w, arg(o, 0));
    if (is(o, "sig.permits"))
        return *n = shmsync_signalwaker_permits(w), 0;
    if (is(o, "sig.sleepers"))
        return *n = (uint64_t)shmsync_signalwaker_sleepers(w), 0;
    if (is(o, "sig.workers"))
        return *n = (uint64_t)shmsync_signalwaker_workers(w), 0;
    if (is(o, "sig.worker"))
        return k > 0 ? shmsync_signalwaker_register_worker(w) : shmsync_signalwaker_unregister_worker(w);
    if (is(o, "sig.sleeper"))
        return k > 0 ? shmsync_signalwaker_register_sleeper(w) : shmsync_signalwaker_unregister_sleeper(w);
    if (is(o, "sig.mark"))
        return err = shmsync_signalwaker_mark(w, k, &did), sig_told(err, did, n);
    if (is(o, "sig.markmask"))
        return err = shmsync_signalwaker_mark_mask(w, (uint64_t)arg(o, 0), &mask), *n = mask, err;
    if (is(o, "sig.unmarkempty"))
        return shmsync_signalwaker_tryunmark_empty(w, k);
    if (is(o, "sig.unmark"))
        return shmsync_signalwaker_tryunmark(w, k);
    if (is(o, "sig.summary"))
        return *n = shmsync_signalwaker_summary(w), 0;
    if (is(o, "sig.yield"))
        return err = shmsync_signalwaker_mark_yield(w, &did), sig_told(err, did, n);
    if (is(o, "sig.unyield"))
        return shmsync_signalwaker_tryunmark_yield(w);
    if (is(o, "sig.tasks"))
        return err = shmsync_signalwaker_mark_tasks(w, &did), sig_told(err, did, n);
    if (is(o, "sig.untasks"))
        return shmsync_signalwaker_tryunmark_tasks(w);
    if (is(o, "sig.status"))
        return shmsync_signalwaker_status(w, &did, &other), *n = (uint64_t)did | (uint64_t)other << 1, 0;
    if (is(o, "sig.count"))
        return shmsync_signalwaker_count(w, k, (uint64_t)arg(o, 1));
    if (is(o, "sig.stat"))
        return shmsync_signalwaker_stats(w, stats), *n = stats[k], 0;
    if (is(o, "sig.health")) { /* in decimal digits */
        shmsync_signalwaker_health(w, &h);
        *n = (uint64_t)h.signals + 10 * (uint64_t)h.scheduled + 100 * (uint64_t)h.executing + 1000 * (uint64_t)h.reserved + 10000 * (uint64_t)h.sleepers +
             100000 * (uint64_t)h.workers + 1000000 * (uint64_t)(h.yield != 0) + 10000000 * (uint64_t)(h.tasks != 0) + 100000000 * h.permits;
        return 0;
    }
    return sig_partition(o, w, n);
}

/* Handles the items of a queue of the group, whose execution this gate has begun. */
static int group_sig_execute(const char *name, sig_board *b, shmsync_gate *g, int turn)
{
    char other[600];
    uint64_t seen;
    int k = (int)(g->queue / 64 * 2 + g->queue % 64 % 2), err;
    snprintf(other, sizeof other, "%s-%d", name, k);
    seen = __atomic_load_n(&b->pushed[k], __ATOMIC_SEQ_CST);
    if ((err = alone(other)) != 0)
        return err;
    __atomic_store_n(&b->done[k], seen, __ATOMIC_SEQ_CST);
    return turn % 5 == 0 ? shmsync_gate_finish_and_schedule(g) : shmsync_gate_finish(g, NULL);
}

/* What no worker has handled: gates that are not idle, and queues into which more items were put than were handled. */
static int sig_left(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    sig_board *b = sig_board_of(o->word[2]);
    shmsync_signal_health h;
    int k;
    if (b == NULL)
        return ENOMEM;
    shmsync_signalwaker_health(w, &h);
    *n = (uint64_t)(h.scheduled + h.executing) << 32;
    for (k = 0; k < 4; k++)
        *n += __atomic_load_n(&b->pushed[k], __ATOMIC_SEQ_CST) != __atomic_load_n(&b->done[k], __ATOMIC_SEQ_CST);
    return 0;
}

/* Handles all scheduled queues, as a group does. */
static int sig_drain(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    sig_board *b = sig_board_of(o->word[2]);
    shmsync_gate g;
    int err = b == NULL ? ENOMEM : 0;
    for (; err == 0 && (err = shmsync_signalwaker_next(w, 0, &g)) == 0; ++*n)
        err = group_sig_execute(o->word[2], b, &g, 1);
    return err == EBUSY ? 0 : err;
}

/* sig.push COUNT: puts that many items into the group's queues. sig.serve: handles them, and sleeps in between,
 * until the event NAME-stop is set; N is how many executions that took. */
static int sig_work(const order *o, shmsync_signalwaker *w, uint64_t *n)
{
    sig_board *b = sig_board_of(o->word[2]);
    char other[600];
    shmsync_event stop;
    shmsync_gate g;
    int err, k;
    snprintf(other, sizeof other, "%s-stop", o->word[2]);
    if (b == NULL || (err = shmsync_event_open(arena, other, NULL, &stop)) != 0)
        return ENOMEM;
    if (is(o, "sig.push")) {
        for (err = 0; err == 0 && *n < (uint64_t)arg(o, 0); ++*n) {
            k = (int)(*n * 7 / 5 % 4);
            __atomic_fetch_add(&b->pushed[k], 1, __ATOMIC_SEQ_CST);
            if ((err = shmsync_signalwaker_gate(w, k / 2 * 64 + k % 2, &g)) == 0)
                err = shmsync_gate_schedule(&g, NULL);
            if (*n % 16 == 0)
                sched_yield();
        }
        return err;
    }
    while (err == 0 && !shmsync_event_is_set(&stop)) {
        err = shmsync_signalwaker_next(w, 0, &g);
        if (err == 0) {
            err = group_sig_execute(o->word[2], b, &g, (int)(++*n % 3));
        } else if (err == EBUSY) {
            err = shmsync_signalwaker_acquire(w);
        }
    }
    return err;
}

static int sig_verb(const order *o, uint64_t *n)
{
    static const char *const of_gates[] = {"sig.next", "sig.schedule", "sig.state", "sig.executor", "sig.begin", "sig.inline", "sig.finish", "sig.fschedule"};
    shmsync_signalwaker w;
    shmsync_signalwaker_options opts;
    size_t i;
    int err, open_ = is(o, "sig.open");
    memset(&opts, 0, sizeof opts);
    if (open_) {
        opts.signals = (int)arg(o, 0);
        opts.count = arg(o, 1) != 0;
    }
    if ((err = shmsync_signalwaker_open(arena, o->word[2], &opts, &w)) != 0)
        return err;
    *n = shmsync_signalwaker_offset(&w);
    if (open_)
        return 0;
    if (is(o, "sig.at")) { /* opens it by its offset: N is the number of queues */
        if ((err = shmsync_signalwaker_at(arena, (shmsync_offset)arg(o, 0), &w)) == 0)
            *n = (uint64_t)shmsync_signalwaker_queues(&w);
        return err;
    }
    *n = 0;
    if (is(o, "sig.left"))
        return sig_left(o, &w, n);
    if (is(o, "sig.push") || is(o, "sig.serve"))
        return sig_work(o, &w, n);
    if (is(o, "sig.drain"))
        return sig_drain(o, &w, n);
    for (i = 0; i < sizeof of_gates / sizeof of_gates[0]; i++)
        if (is(o, of_gates[i]))
            return sig_gate(o, &w, n);
    return strncmp(o->word[1], "sig.bit", 7) == 0 || is(o, "sig.nearest") ? sig_bits(o, &w, n) : sig_more(o, &w, n);
}

/* A round of a group on the queues 0, 1, 64 and 65; eight rounds make a turn. It puts an item in, and handles the
 * items that there are. */
static int group_sig_round(const char *name, int turn)
{
    shmsync_signalwaker w;
    shmsync_gate g;
    shmsync_signal s;
    struct timespec ts;
    sig_board *b = sig_board_of(name);
    int err, k = turn % 4, q = k / 2 * 64 + k % 2, reserved;
    if (b == NULL)
        return ENOMEM;
    if ((err = shmsync_signalwaker_open(arena, name, NULL, &w)) != 0)
        return err;
    err = shmsync_signalwaker_gate(&w, q, &g);
    if (err == 0) {
        __atomic_fetch_add(&b->pushed[k], 1, __ATOMIC_SEQ_CST);
        err = shmsync_gate_schedule(&g, NULL);
    }
    if (err == 0 && turn % 4 == 1) { /* by the bit, as a program does that chooses queues itself */
        err = shmsync_signalwaker_signal(&w, q / 64, &s);
        if (err == 0 && shmsync_signal_acquire(&s, q % 64, NULL) == 0 && (err = shmsync_gate_begin(&g)) == 0)
            err = group_sig_execute(name, b, &g, turn);
        if (err == EBUSY)
            err = 0;
        shmsync_signal_set(&s, 40, NULL, NULL); /* a bit without a reason */
        shmsync_signalwaker_mark(&w, q / 64, NULL);
    }
    if (err == 0 && turn % 8 == 2 && shmsync_gate_trybegin_inline(&g) == 0)
        err = group_sig_execute(name, b, &g, 1);
    if (err == 0 && turn % 8 == 3) {
        shmsync_signalwaker_mark_tasks(&w, NULL);
        shmsync_signalwaker_mark_leaf(&w, 3, NULL);
        err = shmsync_signalwaker_sync_partition(&w, 0, 2, NULL, NULL);
        shmsync_signalwaker_clear_leaf(&w, 0);
        shmsync_signalwaker_tryunmark_tasks(&w);
    }
    if (err == 0 && turn % 8 == 4 && (err = shmsync_signalwaker_reserve(&w, 0, 2, &reserved)) == 0)
        err = shmsync_signalwaker_unreserve(&w, reserved);
    while (err == 0 && (err = shmsync_signalwaker_next(&w, q, &g)) == 0) {
        err = group_sig_execute(name, b, &g, turn);
        if (turn % 5 == 0)
            break; /* otherwise it would find for ever what it schedules */
    }
    if (err == EBUSY) {
        while (turn % 2 == 0 && shmsync_signalwaker_tryacquire(&w) == 0) { /* permits for queues that were handled */
        }
        err = shmsync_signalwaker_timedacquire(&w, in_ms(&ts, 1));
    }
    if (err == ETIMEDOUT)
        err = shmsync_signalwaker_release(&w, 1);
    shmsync_signalwaker_close(&w);
    return err;
}
static int group_sig(const char *name, int turn)
{
    int i, err = 0;
    for (i = 0; i < 8 && err == 0; i++)
        err = group_sig_round(name, 8 * turn + i);
    return err;
}
