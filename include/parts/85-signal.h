
/* SignalWaker, its gates and signals: prims/signal*.go in C, docs/design/0009-signalwaker.md. The gates are the state.
 * The bits of the signals, the summary and the permits are an index of the gates. The index may show work that does
 * not exist. It misses work only while an operation is under way. */

#define SHMI_SIGNAL_BITS 64U
#define SHMI_SIGNAL_READY (SHMI_SIGNAL_GATE_SCHEDULED_MASK | SHMI_SIGNAL_GATE_EXECUTING_MASK)
#define SHMI_SIGNAL_EPOCH (UINT64_C(1) << SHMI_SIGNAL_GATE_EPOCH_SHIFT)
#define SHMI_SIGNAL_CHECK 256U /* number of gates that one check examines */
#define SHMI_SIGNAL_PASSES 64 /* after this many searches, shmsync_signalwaker_next leaves the work to another worker */

struct shmi_signalwaker {
    shmsync_arena *a;
    shmi_object o;
    const char *called; /* name for messages; NULL: anonymous */
    shmi_signal_words *w;
    shmi_signal_line *lines;
    shmi_signal_gate *gates;
    shmi_signal_row *rows; /* the row of slot i is at index i - 1 */
    uint32_t n_lines, n_gates, n_rows;
    uint64_t mask; /* the bits of the summary that belong to a signal */
    shmi_wait_list wake_word;
    int counting;
    uint32_t cursor; /* the group of gates that is checked next. Atomic. */
    int64_t looked;
};

SHMI_FN uint64_t shmi_signal_bytes(uint32_t signals, uint32_t rows)
{
    return sizeof(shmi_signal_words) + (uint64_t)signals * (sizeof(shmi_signal_line) + SHMI_SIGNAL_BITS * sizeof(shmi_signal_gate)) +
           (uint64_t)rows * sizeof(shmi_signal_row);
}

/* Fills in w from the words of an object. Returns 0 if the object is too small for the numbers in its head. */
SHMI_FN int shmi_signal_view(struct shmi_signalwaker *w, shmsync_arena *a, const shmi_object *o)
{
    shmi_signal_words *head = (shmi_signal_words *)shmi_try_at(a, o->body, sizeof *head, 8);
    uint32_t config, signals, rows;
    if (head == NULL || o->size < sizeof *head)
        return 0;
    config = shmi_ld32(&head->config);
    signals = config & SHMI_SIGNAL_SIGNALS_MASK;
    rows = shmi_ld32(&head->rows);
    if (signals == 0)
        signals = SHMI_SIGNAL_BITS;
    if (signals > SHMI_SIGNAL_BITS || rows != a->geo.slots || o->size < shmi_signal_bytes(signals, rows))
        return 0;
    memset(w, 0, sizeof *w);
    w->a = a;
    w->o = *o;
    w->called = o->name_len != 0 ? w->o.name : NULL;
    w->w = head;
    w->n_lines = signals;
    w->n_gates = signals * SHMI_SIGNAL_BITS;
    w->n_rows = rows;
    w->lines = (shmi_signal_line *)(void *)(head + 1);
    w->gates = (shmi_signal_gate *)(void *)(w->lines + w->n_lines);
    w->rows = (shmi_signal_row *)(void *)(w->gates + w->n_gates);
    w->mask = UINT64_MAX >> (SHMI_SIGNAL_BITS - signals);
    w->wake_word.word = &head->wake;
    w->wake_word.poller = &head->poller;
    w->counting = (config & SHMI_SIGNAL_COUNT_MASK) != 0;
    return 1;
}

SHMI_FN int shmi_signal_popcount(uint64_t v) { return __builtin_popcountll(v); }

int shmsync_nearest_bit(uint64_t bitmap, int start)
{
    uint64_t up, down;
    int above = 64, below = 64;
    if (bitmap == 0 || start >= 64 || start < 0)
        return 64;
    up = bitmap >> start;
    down = bitmap << (63 - start);
    if (up != 0)
        above = __builtin_ctzll(up);
    if (down != 0)
        below = __builtin_clzll(down);
    if (above < below)
        return start + above;
    return below == 64 ? 64 : start - below;
}

/* ---- The word of a gate ---- */

SHMI_FN shmi_participant_id shmi_gate_executor(uint64_t g) { return (shmi_participant_id)(g & SHMI_SIGNAL_GATE_EXECUTOR_MASK); }
SHMI_FN int shmi_gate_scheduled(uint64_t g) { return (g & SHMI_SIGNAL_GATE_SCHEDULED_MASK) != 0; }
SHMI_FN int shmi_gate_executing(uint64_t g) { return (g & SHMI_SIGNAL_GATE_EXECUTING_MASK) != 0; }
/* Whether the queue waits for an executor. */
SHMI_FN int shmi_gate_ready(uint64_t g) { return (g & SHMI_SIGNAL_READY) == SHMI_SIGNAL_GATE_SCHEDULED_MASK; }
/* Whether the queue is idle: neither scheduled nor executed. */
SHMI_FN int shmi_gate_idle(uint64_t g) { return (g & SHMI_SIGNAL_READY) == 0; }
/* Returns the word that follows g when participant n begins the next execution. */
SHMI_FN uint64_t shmi_gate_begun(uint64_t g, shmi_participant_id n)
{
    return ((g + SHMI_SIGNAL_EPOCH) & SHMI_SIGNAL_GATE_EPOCH_MASK) | SHMI_SIGNAL_GATE_EXECUTING_MASK | n;
}
/* Returns the word that follows g when the execution ends. If the parameter again is not 0, the queue is scheduled even
 * if no item came during the execution. */
SHMI_FN uint64_t shmi_gate_finished(uint64_t g, int again)
{
    return (g & (SHMI_SIGNAL_GATE_EPOCH_MASK | SHMI_SIGNAL_GATE_SCHEDULED_MASK)) | (again ? SHMI_SIGNAL_GATE_SCHEDULED_MASK : 0);
}
/* Returns the word that follows g when the executor has died. */
SHMI_FN uint64_t shmi_gate_orphaned(uint64_t g)
{
    return ((g + SHMI_SIGNAL_EPOCH) & SHMI_SIGNAL_GATE_EPOCH_MASK) | SHMI_SIGNAL_GATE_SCHEDULED_MASK;
}

/* ---- Counters of this process ---- */

SHMI_FN shmi_signal_row *shmi_signal_own_row(struct shmi_signalwaker *w) { return &w->rows[w->a->my_slot - 1]; }
/* Adds n to a counter of operations, if the option count is set. */
SHMI_FN void shmi_signal_add(struct shmi_signalwaker *w, int stat, uint64_t n)
{
    if (w->counting)
        shmi_add64(&shmi_signal_own_row(w)->stats[stat], n);
}

SHMI_FN uint64_t shmi_row_workers(uint64_t c) { return (c & SHMI_SIGNAL_ROW_WORKERS_MASK) >> SHMI_SIGNAL_ROW_WORKERS_SHIFT; }
SHMI_FN uint64_t shmi_row_sleepers(uint64_t c) { return c >> SHMI_SIGNAL_ROW_SLEEPERS_SHIFT; }
SHMI_FN shmi_participant_id shmi_row_name(uint64_t c) { return (shmi_participant_id)(c & SHMI_SIGNAL_ROW_NAME_MASK); }

/* Adds 1 to the number of sleepers or workers of this process, or subtracts 1. Returns 0 if that is impossible. If the
 * row still has the numbers of the predecessor in the slot, this process begins with 0. */
SHMI_FN int shmi_signal_counter(struct shmi_signalwaker *w, int sleeper, int up)
{
    uint64_t *word = &shmi_signal_own_row(w)->count, one = UINT64_C(1) << (sleeper ? SHMI_SIGNAL_ROW_SLEEPERS_SHIFT : SHMI_SIGNAL_ROW_WORKERS_SHIFT);
    uint64_t most = (sleeper ? SHMI_SIGNAL_ROW_SLEEPERS_MASK : SHMI_SIGNAL_ROW_WORKERS_MASK) / one;
    for (;;) {
        uint64_t old = shmi_ld64(word), c = old, have;
        if (shmi_row_name(c) != w->a->self)
            c = w->a->self;
        have = sleeper ? shmi_row_sleepers(c) : shmi_row_workers(c);
        if (have == (up ? most : 0))
            return 0;
        if (shmi_cas64(word, old, up ? c + one : c - one))
            return 1;
    }
}
SHMI_FN uint64_t shmi_signal_sleepers(struct shmi_signalwaker *w)
{
    uint64_t n = 0;
    uint32_t i;
    for (i = 0; i < w->n_rows; i++) {
        uint64_t c = shmi_ld64(&w->rows[i].count);
        if (c != 0 && shmi_id_slot(shmi_row_name(c)) == i + 1 && shmi_current(w->a, shmi_row_name(c)))
            n += shmi_row_sleepers(c);
    }
    return n;
}

/* ---- Permits ---- */

SHMI_FN shmi_tuning shmi_signal_tuning(struct shmi_signalwaker *w)
{
    shmi_tuning t;
    t.budget = &w->w->spin;
    t.pays = &w->w->pays;
    t.last_cpu = &w->w->lastCPU;
    t.slot = w->a->my_slot;
    return t;
}

/* Wakes up to n waiters, after n permits were issued. If a waiter is announced, the first wake is always sent. Further
 * wakes depend on the number of sleepers. A wrong number does no harm: each waiter that takes a permit wakes another
 * waiter while there are more permits. */
SHMI_FN void shmi_signal_rouse(struct shmi_signalwaker *w, uint64_t n)
{
    shmi_tuning t = shmi_signal_tuning(w);
    uint64_t sleepers;
    uint32_t k;
    if (!shmi_wake_word_announced(&w->wake_word))
        return;
    shmi_note_cpu(&t);
    shmi_wake_word_release(w->a, &w->wake_word);
    if (n <= 1)
        return;
    sleepers = shmi_signal_sleepers(w);
    for (k = 0; k + UINT64_C(1) < n && k + UINT64_C(1) < sleepers; k++)
        shmi_deliver_one(w->a, &w->wake_word, k);
}
/* Issues n permits, n > 0. If there would be too many, issues none and returns 0. Then there are more than enough
 * permits for all signals. */
SHMI_FN int shmi_signal_release(struct shmi_signalwaker *w, uint64_t n)
{
    uint64_t p;
    /* Use a CAS. An addition that is undone if it wraps would lose all permits if the process died before the undo. */
    do {
        p = shmi_ld64(&w->w->permits);
        if (p > UINT64_MAX - n)
            return 0;
    } while (!shmi_cas64(&w->w->permits, p, p + n));
    SHMSYNC_CRASHPOINT("signal.release.permitted");
    shmi_signal_rouse(w, n);
    return 1;
}
SHMI_FN int shmi_signal_take(struct shmi_signalwaker *w)
{
    for (;;) {
        uint64_t p = shmi_ld64(&w->w->permits);
        if (p == 0)
            return 0;
        if (shmi_cas64(&w->w->permits, p, p - 1))
            return 1;
    }
}
/* Called by a waiter that leaves. The wake of this waiter has cleared the announcement of other sleepers, too, so this
 * function sets the announcement again. If there are more permits, it wakes a sleeper. */
SHMI_FN void shmi_signal_pass_on(struct shmi_signalwaker *w)
{
    shmi_wake_word_announce(&w->wake_word);
    if (shmi_ld64(&w->w->permits) != 0)
        shmi_wake_word_release(w->a, &w->wake_word);
}
/* Makes sure that there is a permit for each bit of the summary and of the status that shows work, and that there are
 * as many permits as the parameter least says. A dead process may have taken a permit without acting on it, or failed
 * to issue one, and this call replaces such a permit. */
SHMI_FN void shmi_signal_restock(struct shmi_signalwaker *w, uint64_t least)
{
    uint64_t need = (uint64_t)(shmi_signal_popcount(shmi_ld64(&w->w->summary) & w->mask) +
                               shmi_signal_popcount(shmi_ld64(&w->w->status) & (SHMI_SIGNAL_STATUS_YIELD_MASK | SHMI_SIGNAL_STATUS_TASKS_MASK)));
    if (need < least)
        need = least;
    for (;;) {
        uint64_t p = shmi_ld64(&w->w->permits);
        if (p >= need)
            return;
        if (shmi_cas64(&w->w->permits, p, need)) {
            shmi_signal_rouse(w, need - p);
            return;
        }
    }
}

/* ---- The index ---- */

/* Sets the bit of signal i in the summary, and issues a permit. If the bit is set already, the process that set it
 * issues the permit. No queue is missed, because its bit was set before this call reads the summary. A process that
 * clears the bit of the signal in the summary reads the signal once more after that. */
SHMI_FN int shmi_signal_mark(struct shmi_signalwaker *w, uint32_t i)
{
    uint64_t m = UINT64_C(1) << i;
    if ((shmi_ld64(&w->w->summary) & m) != 0 || (shmi_or64(&w->w->summary, m) & m) != 0)
        return 0;
    SHMSYNC_CRASHPOINT("signal.mark.marked");
    shmi_signal_release(w, 1);
    return 1;
}
/* Takes a signal out of the summary if it has no bits. After that, the function reads the signal again, because another
 * process may have set a bit meanwhile. */
SHMI_FN int shmi_signal_unmark_empty(struct shmi_signalwaker *w, uint32_t i)
{
    uint64_t m = UINT64_C(1) << i;
    int was;
    if (shmi_ld64(&w->lines[i].bits) != 0 || (shmi_ld64(&w->w->summary) & m) == 0)
        return 0;
    was = (shmi_and64(&w->w->summary, ~m) & m) != 0;
    SHMSYNC_CRASHPOINT("signal.unmark.cleared");
    if (shmi_ld64(&w->lines[i].bits) != 0) {
        shmi_signal_mark(w, i);
        return 0;
    }
    return was;
}
SHMI_FN int shmi_signal_mark_status(struct shmi_signalwaker *w, uint64_t m)
{
    if ((shmi_ld64(&w->w->status) & m) != 0 || (shmi_or64(&w->w->status, m) & m) != 0)
        return 0;
    SHMSYNC_CRASHPOINT("signal.status.marked");
    shmi_signal_release(w, 1);
    return 1;
}
SHMI_FN int shmi_signal_unmark_status(struct shmi_signalwaker *w, uint64_t m)
{
    return (shmi_ld64(&w->w->status) & m) != 0 && (shmi_and64(&w->w->status, ~m) & m) != 0;
}

/* Sets the bit of queue q in its signal, and then the bit of the signal in the summary. The bit in the summary may be
 * clear even if the signal already has bits: the process that set the first of them may have been stopped before it set
 * the bit in the summary. */
SHMI_FN void shmi_signal_publish(struct shmi_signalwaker *w, uint32_t q)
{
    shmi_or64(&w->lines[q / SHMI_SIGNAL_BITS].bits, UINT64_C(1) << q % SHMI_SIGNAL_BITS);
    SHMSYNC_CRASHPOINT("signal.publish.bit_set");
    shmi_signal_mark(w, q / SHMI_SIGNAL_BITS);
}
/* Clears the bit of a queue that the caller executes. If that was the last bit of the signal, also clears the bit of
 * the signal in the summary. */
SHMI_FN void shmi_signal_clear(struct shmi_signalwaker *w, uint32_t q)
{
    uint64_t *bits = &w->lines[q / SHMI_SIGNAL_BITS].bits, m = UINT64_C(1) << q % SHMI_SIGNAL_BITS;
    if ((shmi_ld64(bits) & m) != 0 && (shmi_and64(bits, ~m) & ~m) == 0)
        shmi_signal_unmark_empty(w, q / SHMI_SIGNAL_BITS);
}
/* Clears the bit of a queue that did not wait for an executor when the caller read its gate. Since then, another
 * process may have scheduled the queue, and set the bit. So the function checks the gate once more. */
SHMI_FN void shmi_signal_drop(struct shmi_signalwaker *w, uint32_t q)
{
    uint64_t m = UINT64_C(1) << q % SHMI_SIGNAL_BITS, left = shmi_and64(&w->lines[q / SHMI_SIGNAL_BITS].bits, ~m) & ~m;
    SHMSYNC_CRASHPOINT("signal.drop.cleared");
    if (shmi_gate_ready(shmi_ld64(&w->gates[q].word)))
        shmi_signal_publish(w, q);
    else if (left == 0)
        shmi_signal_unmark_empty(w, q / SHMI_SIGNAL_BITS);
}

/* ---- The reap: it repairs the index from the gates ---- */

/* Schedules the queue again if its executor is dead and gone. Also sets the bits that a scheduled queue must have. The
 * parameter dead is the participant that the caller reaps. If it is 0, the caller is a periodic check, and this
 * function finds out whether the executor is dead. */
SHMI_FN void shmi_signal_reap_gate(struct shmi_signalwaker *w, uint32_t q, shmi_participant_id dead)
{
    uint64_t *word = &w->gates[q].word, s;
    int tries; /* bounded, because only a peer that breaks the rules changes the gate more often. The next sweep tries again */
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        shmi_participant_id n;
        s = shmi_ld64(word);
        n = shmi_gate_executor(s);
        if (shmi_gate_executing(s) && (dead != 0 ? shmi_reaps(w->a, dead, n) || !shmi_current(w->a, n) : shmi_dead(w->a, n)) && shmi_gone(w->a, n)) {
            if (!shmi_take_from64(w->a, n, word, s, shmi_gate_orphaned(s), 1))
                continue;
            SHMSYNC_CRASHPOINT("signal.reap.released");
            shmi_signal_publish(w, q);
        } else if (shmi_gate_ready(s) && (shmi_ld64(&w->lines[q / SHMI_SIGNAL_BITS].bits) & UINT64_C(1) << q % SHMI_SIGNAL_BITS) == 0) {
            shmi_signal_publish(w, q); /* the process that scheduled the queue has not set its bit yet, or is dead */
        }
        return;
    }
}
/* Frees the queue if the participant dead had reserved it for a task. Also clears the task bit of a queue that is not
 * reserved. */
SHMI_FN void shmi_signal_reap_task(struct shmi_signalwaker *w, uint32_t q, shmi_participant_id dead)
{
    uint32_t *task = &w->gates[q].task, n = shmi_ld32(task);
    uint64_t *bits = &w->lines[q / SHMI_SIGNAL_BITS].tasks, m = UINT64_C(1) << q % SHMI_SIGNAL_BITS;
    if (shmi_reaps(w->a, dead, n & SHMI_NAME_MASK) && shmi_take_from32(w->a, n & SHMI_NAME_MASK, task, n, 0, 0)) {
        SHMSYNC_CRASHPOINT("signal.reap.unreserved");
        n = 0;
    }
    if (n == 0 && (shmi_ld64(bits) & m) != 0)
        shmi_and64(bits, ~m);
}
/* Sets the bits of the index that must be set: in the summary for each signal that has bits, and
 * SHMI_SIGNAL_STATUS_TASKS_MASK in the status if the partition has bits. */
SHMI_FN void shmi_signal_reap_index(struct shmi_signalwaker *w)
{
    uint32_t i;
    for (i = 0; i < w->n_lines; i++)
        if (shmi_ld64(&w->lines[i].bits) != 0)
            shmi_signal_mark(w, i);
    if (shmi_ld64(&w->w->partition) != 0)
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
}
/* Examines the next group of gates, and the index, and makes up for what a stopped or dead process has not done. */
SHMI_FN void shmi_signal_sweep(struct shmi_signalwaker *w)
{
    uint32_t n, q = shmi_add32(&w->cursor, 1) * SHMI_SIGNAL_CHECK % w->n_gates;
    for (n = 0; n < SHMI_SIGNAL_CHECK && q < w->n_gates; n++, q++)
        shmi_signal_reap_gate(w, q, 0);
    shmi_signal_reap_index(w);
}
/* Makes a sweep, ten times a second at most. shmsync_signalwaker_next calls this function, because workers that always
 * find work never wait, and so make no periodic check. The coarse clock costs only a few nanoseconds. */
SHMI_FN void shmi_signal_sweep_if_due(struct shmi_signalwaker *w)
{
    struct timespec ts;
    int64_t last = __atomic_load_n(&w->looked, __ATOMIC_RELAXED);
    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    if (last != 0 && (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec - last < SHMI_CHECK_EVERY)
        return;
    if (shmi_enter_for(w, w->a, NULL) != 0)
        return; /* the handle, or the arena, is being closed */
    if (shmi_check_due(&w->looked))
        shmi_signal_sweep(w);
    shmi_exit_for(w, w->a);
}
/* The periodic check: ten times a second, makes up for what a stopped or dead process has not done. */
SHMI_FN void shmi_signal_check(struct shmi_signalwaker *w)
{
    if (!shmi_check_due(&w->looked))
        return;
    shmi_signal_sweep(w);
    shmi_signal_restock(w, 0);
    if (shmi_ld64(&w->w->permits) != 0)
        shmi_wake_word_wake_one(w->a, &w->wake_word);
    shmi_wake_word_announce(&w->wake_word);
}

SHMI_FN void shmi_signal_check_arg(void *w) { shmi_signal_check((struct shmi_signalwaker *)w); }

/* For a reaper: repairs the index. Superfluous bits and permits may remain. A worker clears such a bit, and such a
 * permit costs a worker one search. */
SHMI_FN int shmi_repair_signals(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_signalwaker w;
    uint32_t q, slot = shmi_id_slot(dead);
    if (!shmi_signal_view(&w, a, o))
        return 0;
    for (q = 0; q < w.n_gates; q++) {
        shmi_signal_reap_gate(&w, q, dead);
        shmi_signal_reap_task(&w, q, dead);
    }
    shmi_signal_reap_index(&w);
    if (slot >= 1 && slot <= w.n_rows) {
        uint64_t *count = &w.rows[slot - 1].count, c = shmi_ld64(count);
        if (shmi_reaps(a, dead, shmi_row_name(c)))
            shmi_take_from64(a, shmi_row_name(c), count, c, 0, 0);
    }
    /* The dead process may have taken a permit without acting on it. Or it may have set a bit in a leaf of the
     * partition, and not have woken the owner of this leaf. An owner that wakes checks its leaf. */
    shmi_signal_restock(&w, shmi_wake_word_announced(&w.wake_word) || shmi_signal_sleepers(&w) > 0);
    return 1;
}
SHMI_FN void shmi_wake_signals(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_signalwaker w;
    if (!shmi_signal_view(&w, a, o))
        return;
    /* If there are several permits, the dead process may have been about to wake several waiters. */
    if (owed == SHMI_OWED_ALL || shmi_ld64(&w.w->permits) > 1)
        shmi_wake_word_wake_all(a, &w.wake_word);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&w.wake_word))
        shmi_wake_word_wake_one(a, &w.wake_word);
}

/* ---- Handles ---- */

typedef struct shmi_signal_spec {
    uint32_t config, rows, spin;
} shmi_signal_spec;
SHMI_FN void shmi_signal_fill(unsigned char *body, const void *arg)
{
    shmi_signal_words *w = (shmi_signal_words *)(void *)body;
    const shmi_signal_spec *s = (const shmi_signal_spec *)arg;
    w->config = s->config;
    w->rows = s->rows;
    w->spin = s->spin;
}
SHMI_FN void *shmi_signal_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_signalwaker *w = (struct shmi_signalwaker *)shmi_new_thing(sizeof *w);
    (void)arg;
    if (w != NULL && !shmi_signal_view(w, a, o)) {
        shmi_free_thing(w);
        w = NULL;
    }
    return w;
}
/* Sets *out to this process's handle on an object that has been opened, if the object has the options that were asked
 * for. */
SHMI_FN int shmi_signal_handle(shmsync_arena *a, const shmi_object *o, uint32_t signals, shmsync_signalwaker *out)
{
    struct shmi_signalwaker w;
    int err = 0;
    if (!shmi_signal_view(&w, a, o))
        err = shmi_fail(EPROTO, "signalwaker.open", shmi_called(o), "its head says what its size does not allow");
    else if (signals != 0 && signals != w.n_lines)
        err = shmi_fail(EINVAL, "signalwaker.open", shmi_called(o), "it has %u signals, asked for %u", w.n_lines, signals);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    return SHMI_HAND_OUT(out, struct shmi_signalwaker *, shmi_share(a, o, shmi_signal_build, NULL));
}
SHMI_FN int shmi_open_signalwaker(int existing, shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    SHMI_OPTIONS(shmsync_signalwaker_options, 24, "signalwaker.open", out->impl);
    uint32_t signals = opts != NULL ? (uint32_t)opts->signals : 0;
    int count = opts != NULL && opts->count, created, err;
    shmi_signal_spec init;
    shmi_spec spec;
    shmi_object o;
    if (signals > SHMI_SIGNAL_BITS)
        return shmi_fail(EINVAL, "signalwaker.open", name, "of %d signals: 1 to 64 are possible", opts->signals);
    init.config = (signals != 0 ? signals : SHMI_SIGNAL_BITS) | (count ? (uint32_t)SHMI_SIGNAL_COUNT_MASK : 0);
    init.rows = a->geo.slots;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, SHMI_KIND_SIGNAL_WAKER, SHMI_VERSION_SIGNAL_WAKER, name, shmi_signal_bytes(signals != 0 ? signals : SHMI_SIGNAL_BITS, a->geo.slots));
    spec.any_size = 1;
    spec.init = shmi_signal_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_signal_handle(a, &o, signals, out));
    shmi_exit(a);
    return err;
}
int shmsync_signalwaker_open(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_signalwaker(0, a, name, opts, out));
}
int shmsync_signalwaker_attach(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_signalwaker(1, a, name, opts, out));
}
int shmsync_signalwaker_at(shmsync_arena *a, shmsync_offset off, shmsync_signalwaker *out)
{
    SHMI_BEGIN_AT(a, "signalwaker.open", out);
    shmi_object o;
    int err = shmi_object_at(a, off, "signalwaker.open", SHMI_KIND_SIGNAL_WAKER, SHMI_VERSION_SIGNAL_WAKER, sizeof(shmi_signal_words), &o);
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_signal_handle(a, &o, 0, out)));
}
shmsync_offset shmsync_signalwaker_offset(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return w->impl->o.off;
}
int shmsync_signalwaker_close(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err;
    if (w->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(w->impl->a, w->impl->o.off, shmi_free_thing);
    if (err == 0)
        w->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_signalwaker_signals(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)w->impl->n_lines;
}
int shmsync_signalwaker_queues(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)w->impl->n_gates;
}

/* Returns 0, ENOTCONN in a child of fork, or EINVAL if i is not from 0 to n - 1. */
SHMI_FN int shmi_signal_use(const struct shmi_signalwaker *w, const char *op, const char *what, int i, uint32_t n)
{
    int err = shmi_use(w->a, op);
    if (err == 0 && SHMI_UNLIKELY(i < 0 || (uint32_t)i >= n))
        err = shmi_fail(EINVAL, op, w->called, "%s %d of %u", what, i, n);
    return err;
}

/* ---- Gates ---- */

int shmsync_signalwaker_gate(const shmsync_signalwaker *w, int queue, shmsync_gate *out)
{
    SHMI_OPENED_ELSE(w, memset(out, 0, sizeof *out));
    int err = shmi_signal_use(w->impl, "signalwaker.gate", "queue", queue, w->impl->n_gates);
    memset(out, 0, sizeof *out);
    if (err != 0)
        return SHMI_DONE(err);
    out->impl = w->impl;
    out->serial = w->serial;
    out->queue = (uint32_t)queue;
    out->running = 0;
    return SHMI_DONE_ELSE(0, memset(out, 0, sizeof *out));
}

int shmsync_gate_schedule(shmsync_gate *g, int *scheduled)
{
    SHMI_OPENED_ELSE(g, shmi_set_flag(scheduled, 0));
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    int err = shmi_use(w->a, "gate.schedule");
    if (scheduled != NULL)
        *scheduled = 0;
    /* The caller may have put an item into the queue by a release store alone. Make the item visible before this call
     * reads the gate. Otherwise an executor may read the queue without the item, just before it finishes. */
    shmi_full_fence();
    while (err == 0) {
        uint64_t s = shmi_ld64(word);
        if (shmi_gate_scheduled(s))
            break;
        if (shmi_cas64(word, s, s | SHMI_SIGNAL_GATE_SCHEDULED_MASK)) {
            if (shmi_gate_executing(s))
                break; /* the executor finds the flag when it finishes */
            SHMSYNC_CRASHPOINT("signal.schedule.gated");
            shmi_signal_publish(w, g->queue);
            if (scheduled != NULL)
                *scheduled = 1;
            break;
        }
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
    }
    return SHMI_DONE_ELSE(err, shmi_set_flag(scheduled, 0));
}

/* Begins the execution of a scheduled queue. One CAS stores the executing flag together with the ID of the executor,
 * before this call clears the bit of the queue. So if this process dies in between, others know that it is the
 * executor. */
SHMI_FN int shmi_gate_begin(shmsync_gate *g)
{
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    for (;;) {
        uint64_t s = shmi_ld64(word), next;
        if (!shmi_gate_ready(s))
            return 0;
        next = shmi_gate_begun(s, w->a->self);
        if (shmi_cas64(word, s, next)) {
            /* Before this CAS, a call of schedule may have found the queue scheduled, and changed nothing. The loads
             * after the CAS must see what the caller of schedule stored before. */
            shmi_order_loads();
            g->running = next;
            shmi_signal_add(w, SHMSYNC_STAT_TASKS_POLLED, 1);
            SHMSYNC_CRASHPOINT("signal.begin.taken");
            shmi_signal_clear(w, g->queue);
            SHMSYNC_CRASHPOINT("signal.begin.cleared");
            return 1;
        }
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
    }
}
int shmsync_gate_begin(shmsync_gate *g)
{
    SHMI_OPENED(g);
    int err = shmi_use(g->impl->a, "gate.begin");
    return SHMI_DONE(err != 0 ? err : shmi_gate_begin(g) ? 0 : EBUSY);
}
int shmsync_gate_trybegin_inline(shmsync_gate *g)
{
    SHMI_OPENED(g);
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word, s, next;
    int err = shmi_use(w->a, "gate.trybegin_inline");
    if (err != 0)
        return SHMI_DONE(err);
    s = shmi_ld64(word);
    if (!shmi_gate_idle(s))
        return SHMI_DONE(EBUSY);
    next = shmi_gate_begun(s, w->a->self);
    if (!shmi_cas64(word, s, next)) {
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
        return SHMI_DONE(EBUSY);
    }
    g->running = next;
    shmi_signal_add(w, SHMSYNC_STAT_TASKS_POLLED, 1);
    return SHMI_DONE(0);
}

SHMI_FN int shmi_gate_finish(shmsync_gate *g, const char *op, int again, int *scheduled)
{
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    int err = shmi_use(w->a, op);
    *scheduled = 0;
    if (err != 0)
        return err;
    for (;;) {
        uint64_t s = shmi_ld64(word), next;
        if (g->running == 0 || (s & ~SHMI_SIGNAL_GATE_SCHEDULED_MASK) != g->running)
            return shmi_fail(EPERM, op, w->called, "queue %u, by a handle that does not execute it: the gate is %#llx", g->queue, (unsigned long long)s);
        next = shmi_gate_finished(s, again);
        if (!shmi_cas64(word, s, next)) {
            shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
            continue;
        }
        g->running = 0;
        *scheduled = shmi_gate_scheduled(next);
        if (again)
            shmi_signal_add(w, SHMSYNC_STAT_YIELDED, 1);
        else if (!*scheduled)
            shmi_signal_add(w, SHMSYNC_STAT_COMPLETED, 1);
        if (*scheduled) {
            SHMSYNC_CRASHPOINT("signal.finish.released");
            shmi_signal_publish(w, g->queue);
        }
        return 0;
    }
}
int shmsync_gate_finish(shmsync_gate *g, int *again)
{
    SHMI_OPENED_ELSE(g, shmi_set_flag(again, 0));
    int scheduled, err = shmi_gate_finish(g, "gate.finish", 0, &scheduled);
    if (again != NULL)
        *again = scheduled;
    return SHMI_DONE_ELSE(err, shmi_set_flag(again, 0));
}
int shmsync_gate_finish_and_schedule(shmsync_gate *g)
{
    SHMI_OPENED(g);
    int scheduled;
    return SHMI_DONE(shmi_gate_finish(g, "gate.finish_and_schedule", 1, &scheduled));
}
int shmsync_gate_state(const shmsync_gate *g, shmsync_gate_info *out)
{
    SHMI_OPENED_ELSE(g, memset(out, 0, sizeof *out));
    uint64_t s;
    int err = shmi_use(g->impl->a, "gate.state");
    memset(out, 0, sizeof *out);
    if (err != 0)
        return SHMI_DONE(err);
    s = shmi_ld64(&g->impl->gates[g->queue].word);
    out->scheduled = shmi_gate_scheduled(s);
    out->executing = shmi_gate_executing(s);
    out->epoch = (uint32_t)(s >> SHMI_SIGNAL_GATE_EPOCH_SHIFT);
    out->known = out->executing && shmi_who(g->impl->a, shmi_gate_executor(s), &out->executor) == 0;
    return SHMI_DONE_ELSE(0, memset(out, 0, sizeof *out));
}

/* Searches once through the signals whose bits are set in active for a queue to execute. Returns whether it has begun
 * to execute one. */
SHMI_FN int shmi_signal_pass(struct shmi_signalwaker *w, uint64_t active, uint32_t near_queue, shmsync_gate *g)
{
    int first = (int)(near_queue / SHMI_SIGNAL_BITS);
    while (active != 0) {
        int i = shmsync_nearest_bit(active, first), start = i == first ? (int)(near_queue % SHMI_SIGNAL_BITS) : 0;
        uint64_t set = shmi_ld64(&w->lines[i].bits);
        active &= ~(UINT64_C(1) << i);
        shmi_signal_add(w, SHMSYNC_STAT_SIGNAL_POLLS, 1);
        if (set == 0)
            shmi_signal_unmark_empty(w, (uint32_t)i);
        while (set != 0) {
            int bit = shmsync_nearest_bit(set, start);
            set &= ~(UINT64_C(1) << bit);
            g->queue = (uint32_t)i * SHMI_SIGNAL_BITS + (uint32_t)bit;
            if (shmi_gate_begin(g))
                return 1;
            shmi_signal_drop(w, g->queue);
        }
    }
    return 0;
}
int shmsync_signalwaker_next(shmsync_signalwaker *waker, int near_queue, shmsync_gate *out)
{
    SHMI_OPENED_ELSE(waker, memset(out, 0, sizeof *out));
    struct shmi_signalwaker *w = waker->impl;
    shmsync_gate g;
    int passes, err = shmi_signal_use(w, "signalwaker.next", "queue", near_queue, w->n_gates);
    if (err != 0)
        return SHMI_DONE(err);
    g.impl = w;
    g.serial = waker->serial;
    g.queue = 0;
    g.running = 0;
    shmi_signal_sweep_if_due(w);
    for (passes = 0; passes < SHMI_SIGNAL_PASSES; passes++) {
        uint64_t active = shmi_ld64(&w->w->summary) & w->mask;
        if (active == 0) {
            shmi_signal_add(w, SHMSYNC_STAT_EMPTY_SCANS, 1);
            return SHMI_DONE_ELSE(EBUSY, memset(out, 0, sizeof *out));
        }
        if (shmi_signal_pass(w, active, (uint32_t)near_queue, &g)) {
            /* This execution may last for ever. If other queues are scheduled, a worker sleeps, and there is no permit,
             * this process issues a permit for the worker. */
            if ((shmi_ld64(&w->w->summary) & w->mask) != 0 && shmi_ld64(&w->w->permits) == 0 && shmi_wake_word_announced(&w->wake_word))
                shmi_signal_release(w, 1);
            *out = g;
            return SHMI_DONE_ELSE(0, memset(out, 0, sizeof *out));
        }
        /* This pass has found only superfluous bits, and has cleared them. Another process may have scheduled a queue
         * before this pass cleared the bit of its signal in the summary. That process has issued no permit for the
         * queue. So the loop searches again. */
    }
    shmi_signal_release(w, 1); /* the worker that takes this permit searches on */
    shmi_signal_add(w, SHMSYNC_STAT_EMPTY_SCANS, 1);
    return SHMI_DONE_ELSE(EBUSY, memset(out, 0, sizeof *out));
}

/* ---- Waiting for permits ---- */

SHMI_FN int shmi_signal_permitted(void *w) { return shmi_ld64(&((struct shmi_signalwaker *)w)->w->permits) != 0; }

/* Waits for a permit. No wake is lost between the read of the permits and the sleep: a waiter announces itself in the
 * wake word, tries to take a permit, and sleeps only while the wake word is unchanged. A process that issues a permit
 * then reads the wake word, and changes it if a waiter is announced. */
SHMI_FN int shmi_signal_await(struct shmi_signalwaker *w, int64_t abs)
{
    int64_t since = 0;
    for (;;) {
        uint32_t v = shmi_wake_word_announce(&w->wake_word);
        shmi_sleep_spec sleep_spec;
        int took;
        SHMSYNC_CRASHPOINT("signal.acquire.announced");
        if (shmi_signal_take(w)) {
            SHMSYNC_CRASHPOINT("signal.acquire.taken");
            shmi_signal_pass_on(w);
            return 0;
        }
        if ((shmi_ld64(&w->w->summary) & w->mask) != 0) {
            /* There is work, but another worker has taken the permit for it. That worker may have searched before this
             * waiter announced itself, and may now be busy for long. So this waiter returns, and its caller searches
             * again. It also passes the wake on to another waiter. */
            shmi_signal_pass_on(w);
            return 0;
        }
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &w->looked;
        sleep_spec.check = shmi_signal_check_arg;
        sleep_spec.check_arg = w;
        sleep_spec.word = w->wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = w->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        switch (shmi_sleep(w->a, &sleep_spec)) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("signal.acquire.woken");
            break;
        case SHMI_LOOK:
            shmi_signal_check(w);
            break;
        case SHMI_LATE: /* a wake that another waiter needs may have come at the same time */
            took = shmi_signal_take(w);
            shmi_signal_pass_on(w);
            return took ? 0 : ETIMEDOUT;
        default:
            shmi_signal_pass_on(w);
            return shmi_fail(EBADF, "signalwaker.acquire", w->called, "this process closed the arena");
        }
    }
}
SHMI_FN int shmi_signal_acquire(struct shmi_signalwaker *w, int64_t abs)
{
    shmi_tuning t = shmi_signal_tuning(w);
    int err = shmi_use(w->a, "signalwaker.acquire"), counted;
    if (err != 0 || shmi_signal_take(w))
        return err;
    err = shmi_enter_for(w, w->a, "signalwaker.acquire");
    if (err != 0)
        return err;
    if (!shmi_spin(&t, shmi_signal_permitted, w) || !shmi_signal_take(w)) {
        counted = shmi_signal_counter(w, 1, 1);
        shmi_signal_add(w, SHMSYNC_STAT_WAITING, 1);
        err = shmi_signal_await(w, abs);
        if (counted)
            shmi_signal_counter(w, 1, 0);
    }
    shmi_exit_for(w, w->a);
    return err;
}
int shmsync_signalwaker_acquire(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_DONE(shmi_signal_acquire(w->impl, 0));
}
int shmsync_signalwaker_timedacquire(shmsync_signalwaker *w, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(w);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_signal_acquire(w->impl, ns));
}
int shmsync_signalwaker_tryacquire(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryacquire");
    return SHMI_DONE(err != 0 ? err : shmi_signal_take(w->impl) ? 0 : EBUSY);
}
int shmsync_signalwaker_release(shmsync_signalwaker *w, int64_t n)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.release");
    if (err == 0 && n < 0)
        err = shmi_fail(EINVAL, "signalwaker.release", w->impl->called, "%lld permits", (long long)n);
    if (err == 0 && n > 0 && !shmi_signal_release(w->impl, (uint64_t)n))
        err = shmi_fail(EINVAL, "signalwaker.release", w->impl->called, "%lld permits: too many permits", (long long)n);
    return SHMI_DONE(err);
}
uint64_t shmsync_signalwaker_permits(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->permits);
}
int shmsync_signalwaker_sleepers(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)shmi_signal_sleepers(w->impl);
}
int shmsync_signalwaker_workers(const shmsync_signalwaker *waker)
{
    SHMI_OPENED_OR(waker, 0);
    struct shmi_signalwaker *w = waker->impl;
    uint64_t n = 0;
    uint32_t i;
    for (i = 0; i < w->n_rows; i++) {
        uint64_t c = shmi_ld64(&w->rows[i].count);
        if (c != 0 && shmi_current(w->a, shmi_row_name(c)))
            n += shmi_row_workers(c);
    }
    return (int)n;
}
SHMI_FN int shmi_signal_register(struct shmi_signalwaker *w, const char *op, int sleeper, int up)
{
    int err = shmi_use(w->a, op);
    if (err == 0 && !shmi_signal_counter(w, sleeper, up))
        err = shmi_fail(up ? ENOSPC : EPERM, op, w->called, "%s", up ? "too many" : "none is registered");
    return err;
}
int shmsync_signalwaker_register_sleeper(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_DONE(shmi_signal_register(w->impl, "signalwaker.register_sleeper", 1, 1));
}
int shmsync_signalwaker_unregister_sleeper(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_DONE(shmi_signal_register(w->impl, "signalwaker.unregister_sleeper", 1, 0));
}
int shmsync_signalwaker_register_worker(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_DONE(shmi_signal_register(w->impl, "signalwaker.register_worker", 0, 1));
}
int shmsync_signalwaker_unregister_worker(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_DONE(shmi_signal_register(w->impl, "signalwaker.unregister_worker", 0, 0));
}
