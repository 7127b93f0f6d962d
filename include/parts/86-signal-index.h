
/* The functions by which programs change the index of a SignalWaker themselves: signals, summary, status, partitions,
 * reservations, counters. See prims/signal_bits.go, signal_summary.go, signal_partition.go and signal_tasks.go. */

/* ---- Signals ---- */

int shmsync_signalwaker_signal(const shmsync_signalwaker *w, int i, shmsync_signal *out)
{
    SHMI_OPENED_ELSE(w, memset(out, 0, sizeof *out));
    int err = shmi_signal_use(w->impl, "signalwaker.signal", "signal", i, w->impl->n_lines);
    memset(out, 0, sizeof *out);
    if (err != 0)
        return SHMI_DONE(err);
    out->impl = w->impl;
    out->serial = w->serial;
    out->index = (uint32_t)i;
    return SHMI_DONE_ELSE(0, memset(out, 0, sizeof *out));
}
SHMI_FN uint64_t *shmi_signal_of(const shmsync_signal *s) { return &s->impl->lines[s->index].bits; }
int shmsync_signal_set_mask(const shmsync_signal *s, uint64_t mask, int *was_empty, uint64_t *set)
{
    SHMI_OPENED(s);
    int err = shmi_use(s->impl->a, "signal.set");
    uint64_t old;
    if (err != 0)
        return SHMI_DONE(err);
    old = shmi_or64(shmi_signal_of(s), mask);
    if (was_empty != NULL)
        *was_empty = old == 0;
    if (set != NULL)
        *set = mask & ~old;
    return SHMI_DONE(0);
}
int shmsync_signal_set(const shmsync_signal *s, int bit, int *was_empty, int *set_now)
{
    SHMI_OPENED(s);
    uint64_t set = 0;
    int err = shmi_signal_use(s->impl, "signal.set", "bit", bit, SHMI_SIGNAL_BITS);
    if (err == 0)
        err = shmsync_signal_set_mask(s, UINT64_C(1) << bit, was_empty, &set);
    if (err == 0 && set_now != NULL)
        *set_now = set != 0;
    return SHMI_DONE(err);
}
int shmsync_signal_acquire(const shmsync_signal *s, int bit, uint64_t *before)
{
    SHMI_OPENED(s);
    uint64_t m, old;
    int err = shmi_signal_use(s->impl, "signal.acquire", "bit", bit, SHMI_SIGNAL_BITS);
    if (err != 0)
        return SHMI_DONE(err);
    m = UINT64_C(1) << bit;
    old = shmi_ld64(shmi_signal_of(s));
    if ((old & m) != 0)
        old = shmi_and64(shmi_signal_of(s), ~m);
    if (before != NULL)
        *before = old;
    if ((old & m) == 0)
        return SHMI_DONE(EBUSY);
    SHMSYNC_CRASHPOINT("signal.bit.acquired");
    return SHMI_DONE(0);
}
uint64_t shmsync_signal_load(const shmsync_signal *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld64(shmi_signal_of(s));
}

/* ---- Summary and status ---- */

int shmsync_signalwaker_mark(shmsync_signalwaker *w, int i, int *marked)
{
    SHMI_OPENED_ELSE(w, shmi_set_flag(marked, 0));
    int err = shmi_signal_use(w->impl, "signalwaker.mark", "signal", i, w->impl->n_lines);
    int did = err == 0 && shmi_signal_mark(w->impl, (uint32_t)i);
    if (marked != NULL)
        *marked = did;
    return SHMI_DONE_ELSE(err, shmi_set_flag(marked, 0));
}
int shmsync_signalwaker_mark_mask(shmsync_signalwaker *waker, uint64_t mask, uint64_t *marked)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    uint64_t fresh = 0;
    int err = shmi_use(w->a, "signalwaker.mark_mask");
    if (err == 0 && (mask & ~w->mask) != 0)
        err = shmi_fail(EINVAL, "signalwaker.mark_mask", w->called, "signals %#llx of %u", (unsigned long long)mask, w->n_lines);
    if (err == 0 && mask != 0)
        fresh = mask & ~shmi_or64(&w->w->summary, mask);
    if (fresh != 0) {
        SHMSYNC_CRASHPOINT("signal.mark.marked");
        shmi_signal_release(w, (uint64_t)shmi_signal_popcount(fresh));
    }
    if (marked != NULL)
        *marked = fresh;
    return SHMI_DONE(err);
}
int shmsync_signalwaker_tryunmark_empty(shmsync_signalwaker *w, int i)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.tryunmark_empty", "signal", i, w->impl->n_lines);
    return SHMI_DONE(err != 0 ? err : shmi_signal_unmark_empty(w->impl, (uint32_t)i) ? 0 : EBUSY);
}
int shmsync_signalwaker_tryunmark(shmsync_signalwaker *w, int i)
{
    SHMI_OPENED(w);
    uint64_t *summary = &w->impl->w->summary, m;
    int err = shmi_signal_use(w->impl, "signalwaker.tryunmark", "signal", i, w->impl->n_lines);
    if (err != 0)
        return SHMI_DONE(err);
    m = UINT64_C(1) << i;
    return SHMI_DONE((shmi_ld64(summary) & m) != 0 && (shmi_and64(summary, ~m) & m) != 0 ? 0 : EBUSY);
}
uint64_t shmsync_signalwaker_summary(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->summary) & w->impl->mask;
}

SHMI_FN int shmi_signal_status(struct shmi_signalwaker *w, const char *op, uint64_t m, int *marked)
{
    int err = shmi_use(w->a, op), did = err == 0 && shmi_signal_mark_status(w, m);
    if (marked != NULL)
        *marked = did;
    return err;
}
SHMI_FN int shmi_signal_unmark_tasks(struct shmi_signalwaker *w)
{
    if (!shmi_signal_unmark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK))
        return 0;
    SHMSYNC_CRASHPOINT("signal.tasks.cleared");
    if (shmi_ld64(&w->w->partition) != 0) {
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
        return 0;
    }
    return 1;
}
int shmsync_signalwaker_mark_yield(shmsync_signalwaker *w, int *marked)
{
    SHMI_OPENED_ELSE(w, shmi_set_flag(marked, 0));
    return SHMI_DONE_ELSE(shmi_signal_status(w->impl, "signalwaker.mark_yield", SHMI_SIGNAL_STATUS_YIELD_MASK, marked), shmi_set_flag(marked, 0));
}
int shmsync_signalwaker_mark_tasks(shmsync_signalwaker *w, int *marked)
{
    SHMI_OPENED_ELSE(w, shmi_set_flag(marked, 0));
    return SHMI_DONE_ELSE(shmi_signal_status(w->impl, "signalwaker.mark_tasks", SHMI_SIGNAL_STATUS_TASKS_MASK, marked), shmi_set_flag(marked, 0));
}
int shmsync_signalwaker_tryunmark_yield(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryunmark_yield");
    return SHMI_DONE(err != 0 ? err : shmi_signal_unmark_status(w->impl, SHMI_SIGNAL_STATUS_YIELD_MASK) ? 0 : EBUSY);
}
int shmsync_signalwaker_tryunmark_tasks(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryunmark_tasks");
    return SHMI_DONE(err != 0 ? err : shmi_signal_unmark_tasks(w->impl) ? 0 : EBUSY);
}
void shmsync_signalwaker_status(const shmsync_signalwaker *w, int *yield, int *tasks)
{
    uint64_t s = shmi_is_open(w->impl, w->serial) ? shmi_ld64(&w->impl->w->status) : 0;
    *yield = (s & SHMI_SIGNAL_STATUS_YIELD_MASK) != 0;
    *tasks = (s & SHMI_SIGNAL_STATUS_TASKS_MASK) != 0;
}

/* ---- Partitions ---- */

int shmsync_signalwaker_sync_partition(shmsync_signalwaker *waker, int start, int end, const shmsync_signalwaker *tree, int *work)
{
    SHMI_OPENED(waker);
    if (tree != NULL)
        SHMI_CHECK_OPENED(tree, __func__);
    struct shmi_signalwaker *w = waker->impl, *t = tree != NULL ? tree->impl : w;
    uint64_t now = 0, old, gone;
    int k, err = shmi_use(w->a, "signalwaker.sync_partition");
    if (work != NULL)
        *work = 0;
    if (err != 0)
        return SHMI_DONE(err);
    if (start < 0 || end < start || end - start > (int)SHMI_SIGNAL_BITS || end > (int)t->n_lines)
        return shmi_fail(EINVAL, "signalwaker.sync_partition", w->called, "partition %d..%d of %u signals", start, end, t->n_lines);
    shmi_signal_add(w, SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, 1);
    for (k = 0; k < end - start; k++)
        if (shmi_ld64(&t->lines[start + k].bits) != 0)
            now |= UINT64_C(1) << k;
    /* The bits of signals with work are set first, so that no concurrent reader misses them. Then the other bits are
     * cleared. A signal may get work in the meantime, so it is checked once more after its bit was cleared. */
    old = shmi_or64(&w->w->partition, now);
    for (k = 0, gone = old & ~now; gone != 0; k++, gone >>= 1) {
        if ((gone & 1) == 0)
            continue;
        shmi_and64(&w->w->partition, ~(UINT64_C(1) << k));
        SHMSYNC_CRASHPOINT("signal.partition.cleared");
        if (k < end - start && shmi_ld64(&t->lines[start + k].bits) != 0) {
            shmi_or64(&w->w->partition, UINT64_C(1) << k);
            now |= UINT64_C(1) << k;
        }
    }
    if (now != 0) {
        shmi_signal_add(w, SHMSYNC_STAT_LEAF_SUMMARY_HITS, 1);
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
    } else {
        shmi_signal_unmark_tasks(w);
    }
    if (work != NULL)
        *work = now != 0 || shmi_ld64(&w->w->partition) != 0;
    return SHMI_DONE(0);
}
int shmsync_signalwaker_mark_leaf(shmsync_signalwaker *waker, int k, int *was_empty)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    uint64_t old;
    int err = shmi_signal_use(w, "signalwaker.mark_leaf", "leaf", k, SHMI_SIGNAL_BITS);
    if (err != 0)
        return SHMI_DONE(err);
    old = shmi_or64(&w->w->partition, UINT64_C(1) << k);
    SHMSYNC_CRASHPOINT("signal.partition.marked");
    shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
    if (was_empty != NULL)
        *was_empty = old == 0;
    return SHMI_DONE(0);
}
int shmsync_signalwaker_clear_leaf(shmsync_signalwaker *waker, int k)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    int err = shmi_signal_use(w, "signalwaker.clear_leaf", "leaf", k, SHMI_SIGNAL_BITS);
    uint64_t m;
    if (err != 0)
        return SHMI_DONE(err);
    m = UINT64_C(1) << k;
    if ((shmi_and64(&w->w->partition, ~m) & ~m) == 0)
        shmi_signal_unmark_tasks(w);
    return SHMI_DONE(0);
}
int shmsync_signalwaker_leaf_has_work(const shmsync_signalwaker *w, int k)
{
    SHMI_OPENED_OR(w, 0);
    if (shmi_use(w->impl->a, "signalwaker.leaf_has_work") != 0 || k < 0 || k >= (int)SHMI_SIGNAL_BITS)
        return 0;
    shmi_signal_add(w->impl, SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, 1);
    return (shmi_ld64(&w->impl->w->partition) >> k & 1) != 0;
}
uint64_t shmsync_signalwaker_partition(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->partition);
}

/* ---- Reservations ---- */

/* Returns a pseudorandom number, at which a search begins. So the searches of different callers begin at different
 * places. */
SHMI_FN uint64_t shmi_signal_random(struct shmi_signalwaker *w)
{
    static uint32_t turns;
    uint64_t x = (uint64_t)shmi_now() + ((uint64_t)w->a->self << 32) + UINT64_C(0x9e3779b97f4a7c15) * (shmi_add32(&turns, 1) + UINT64_C(1));
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
/* Reserves a queue of signal i. Returns its number in the signal, or -1 if none is free. */
SHMI_FN int shmi_signal_reserve_in(struct shmi_signalwaker *w, uint32_t i, uint32_t turn)
{
    uint64_t *tasks = &w->lines[i].tasks;
    unsigned tries;
    for (tries = 0; tries < 2 * SHMI_SIGNAL_BITS; tries++) {
        uint64_t free_ = ~shmi_ld64(tasks), turned = turn == 0 ? free_ : free_ >> turn | free_ << (64 - turn), m;
        uint32_t bit;
        if (free_ == 0)
            return -1;
        bit = ((uint32_t)__builtin_ctzll(turned) + turn) % SHMI_SIGNAL_BITS;
        m = UINT64_C(1) << bit;
        if ((shmi_or64(tasks, m) & m) != 0)
            continue; /* another participant has taken this bit first */
        SHMSYNC_CRASHPOINT("signal.reserve.indexed");
        /* If the CAS fails, another participant has the queue. Then the bit should have been set, so it stays set. */
        if (shmi_cas32(&w->gates[i * SHMI_SIGNAL_BITS + bit].task, 0, w->a->self)) {
            SHMSYNC_CRASHPOINT("signal.reserve.taken");
            return (int)bit;
        }
    }
    return -1;
}
int shmsync_signalwaker_reserve(shmsync_signalwaker *waker, int start, int end, int *queue)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    uint32_t k, n, first, turn;
    uint64_t r;
    int err = shmi_use(w->a, "signalwaker.reserve");
    if (err != 0)
        return SHMI_DONE(err);
    if (start < 0 || end < start || end > (int)w->n_lines)
        return shmi_fail(EINVAL, "signalwaker.reserve", w->called, "signals %d..%d of %u", start, end, w->n_lines);
    n = (uint32_t)(end - start);
    r = shmi_signal_random(w);
    first = n != 0 ? (uint32_t)(r >> 32) % n : 0;
    turn = (uint32_t)(r % SHMI_SIGNAL_BITS);
    for (k = 0; k < n; k++) {
        uint32_t i = (uint32_t)start + (first + k) % n;
        int bit = shmi_signal_reserve_in(w, i, turn);
        if (bit >= 0) {
            *queue = (int)(i * SHMI_SIGNAL_BITS) + bit;
            return SHMI_DONE(0);
        }
    }
    return SHMI_DONE(EBUSY);
}
int shmsync_signalwaker_unreserve(shmsync_signalwaker *waker, int queue)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    int err = shmi_signal_use(w, "signalwaker.unreserve", "queue", queue, w->n_gates);
    if (err != 0)
        return SHMI_DONE(err);
    if (!shmi_cas32(&w->gates[queue].task, w->a->self, 0))
        return shmi_fail(EPERM, "signalwaker.unreserve", w->called, "queue %d, which this process has not reserved", queue);
    SHMSYNC_CRASHPOINT("signal.unreserve.freed");
    shmi_and64(&w->lines[(uint32_t)queue / SHMI_SIGNAL_BITS].tasks, ~(UINT64_C(1) << (uint32_t)queue % SHMI_SIGNAL_BITS));
    return SHMI_DONE(0);
}
int shmsync_signalwaker_reserved(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    uint32_t i;
    int n = 0;
    for (i = 0; i < w->impl->n_lines; i++)
        n += shmi_signal_popcount(shmi_ld64(&w->impl->lines[i].tasks));
    return n;
}

/* ---- Counters and health ---- */

SHMI_ASSERT(SHMSYNC_STATS == sizeof(((shmi_signal_row *)0)->stats) / sizeof(uint64_t), "SHMSYNC_STATS");

int shmsync_signalwaker_count(shmsync_signalwaker *w, int stat, uint64_t n)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.count", "counter", stat, SHMSYNC_STATS);
    if (err == 0)
        shmi_add64(&shmi_signal_own_row(w->impl)->stats[stat], n);
    return SHMI_DONE(err);
}
void shmsync_signalwaker_stats(const shmsync_signalwaker *w, uint64_t stats[SHMSYNC_STATS])
{
    uint32_t i;
    int s;
    for (s = 0; s < SHMSYNC_STATS; s++)
        stats[s] = 0;
    if (!shmi_is_open(w->impl, w->serial))
        return;
    for (i = 0; i < w->impl->n_rows; i++)
        for (s = 0; s < SHMSYNC_STATS; s++)
            stats[s] += shmi_ld64(&w->impl->rows[i].stats[s]);
}
void shmsync_signalwaker_health(const shmsync_signalwaker *waker, shmsync_signal_health *out)
{
    struct shmi_signalwaker *w = waker->impl;
    uint32_t i;
    memset(out, 0, sizeof *out);
    if (!shmi_is_open(waker->impl, waker->serial))
        return;
    out->summary = shmsync_signalwaker_summary(waker);
    out->permits = shmsync_signalwaker_permits(waker);
    out->partition = shmsync_signalwaker_partition(waker);
    for (i = 0; i < w->n_lines; i++)
        out->signals += shmi_ld64(&w->lines[i].bits) != 0;
    for (i = 0; i < w->n_gates; i++) {
        uint64_t s = shmi_ld64(&w->gates[i].word);
        if (shmi_gate_executing(s))
            out->executing++;
        else if (shmi_gate_scheduled(s))
            out->scheduled++;
    }
    out->reserved = shmsync_signalwaker_reserved(waker);
    out->sleepers = shmsync_signalwaker_sleepers(waker);
    out->workers = shmsync_signalwaker_workers(waker);
    shmsync_signalwaker_status(waker, &out->yield, &out->tasks);
}
