
/* ---- SignalWaker: up to 4096 queues of the user's, and their workers ----
 *
 *     producer                              worker
 *     push(queue, item);                    for (;;) {
 *     shmsync_gate_schedule(&gate, NULL);       if (shmsync_signalwaker_next(&w, near, &gate) != 0) {
 *                                                   shmsync_signalwaker_acquire(&w);
 *                                                   continue;
 *                                               }
 *                                               drain(gate.queue);
 *                                               shmsync_gate_finish(&gate, NULL);
 *                                           }
 *
 * A queue has a gate that is idle, scheduled, or executed by one worker. The death of a
 * worker leaves its queues scheduled again. Push by an atomic store (release is enough: a
 * schedule is a full fence), or under a lock. */

typedef struct shmsync_signalwaker {
    struct shmi_signalwaker *impl;
    uint64_t serial;
} shmsync_signalwaker;

typedef struct shmsync_signalwaker_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int signals;     /* each of 64 queues, of 128 bytes: 1 to 64; 0: 64, or whatever an existing one has; another: EINVAL */
    int count;       /* for a new object: operations of all processes count themselves */
    int64_t spin_ns; /* as of a mutex */
} shmsync_signalwaker_options;

/* A gate is a value, good until the SignalWaker is closed. The one that began an execution is
 * the one to finish it, or a copy that is used instead. */
typedef struct shmsync_gate {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t queue;   /* which one */
    uint64_t running; /* the execution that it began, or 0 */
} shmsync_gate;

typedef struct shmsync_gate_info {
    int scheduled, executing;
    uint32_t epoch;               /* counts the executions, and wraps */
    int known;                    /* whether executor is filled in */
    shmsync_participant executor; /* the process that executes */
} shmsync_gate_info;

/* A signal is a bit for each of 64 queues, set while the gate waits for an executor. Gates and
 * next see to the bits; this is for programs that choose among queues in a way of their own. */
typedef struct shmsync_signal {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t index;
} shmsync_signal;

int shmsync_signalwaker_open(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
int shmsync_signalwaker_attach(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
int shmsync_signalwaker_at(shmsync_arena *a, shmsync_offset off, shmsync_signalwaker *out);
shmsync_offset shmsync_signalwaker_offset(const shmsync_signalwaker *w);
int shmsync_signalwaker_close(shmsync_signalwaker *w);
int shmsync_signalwaker_signals(const shmsync_signalwaker *w);
int shmsync_signalwaker_queues(const shmsync_signalwaker *w); /* 64 for each signal, counted from 0 */

/* EINVAL: no such queue. */
int shmsync_signalwaker_gate(const shmsync_signalwaker *w, int queue, shmsync_gate *out);
/* There is something in the queue. *scheduled, which may be NULL, says whether this call has
 * scheduled it: it may be scheduled already, or its executor finds word when it finishes. */
int shmsync_gate_schedule(shmsync_gate *g, int *scheduled);
/* 0: the caller executes the queue from here on. EBUSY: it is not scheduled, or another does. */
int shmsync_gate_begin(shmsync_gate *g);
/* The same of a queue that is idle, for a producer that looks after its item itself. */
int shmsync_gate_trybegin_inline(shmsync_gate *g);
/* Ends the execution that this handle began. *again, which may be NULL, says whether the queue
 * is scheduled once more, since something came meanwhile. EPERM: it executes nothing. */
int shmsync_gate_finish(shmsync_gate *g, int *again);
/* The same, and something is left in the queue: it is scheduled again. */
int shmsync_gate_finish_and_schedule(shmsync_gate *g);
int shmsync_gate_state(const shmsync_gate *g, shmsync_gate_info *out);
/* Begins a scheduled queue, near that one if it can. EBUSY: none is scheduled; out is as it was. */
int shmsync_signalwaker_next(shmsync_signalwaker *w, int near_queue, shmsync_gate *out);

/* Waits for a permit, which says that there may be something to do since next found nothing.
 * 0 without one, too, where something is there: look again. */
int shmsync_signalwaker_acquire(shmsync_signalwaker *w);
int shmsync_signalwaker_tryacquire(shmsync_signalwaker *w);
int shmsync_signalwaker_timedacquire(shmsync_signalwaker *w, const struct timespec *abs_monotonic);
/* Issues n permits, and wakes as many waiters. EINVAL: n is negative. */
int shmsync_signalwaker_release(shmsync_signalwaker *w, int64_t n);
uint64_t shmsync_signalwaker_permits(const shmsync_signalwaker *w);
/* Counts of living processes; no wake goes by them. They go with the process that registered. A
 * sleeper waits for a permit, or elsewhere. ENOSPC: too many; EPERM: none is registered. */
int shmsync_signalwaker_sleepers(const shmsync_signalwaker *w);
int shmsync_signalwaker_register_sleeper(shmsync_signalwaker *w);
int shmsync_signalwaker_unregister_sleeper(shmsync_signalwaker *w);
int shmsync_signalwaker_workers(const shmsync_signalwaker *w);
int shmsync_signalwaker_register_worker(shmsync_signalwaker *w);
int shmsync_signalwaker_unregister_worker(shmsync_signalwaker *w);

/* EINVAL: no such signal. */
int shmsync_signalwaker_signal(const shmsync_signalwaker *w, int i, shmsync_signal *out);
/* EINVAL: a bit is 0 to 63. Result pointers may be NULL. A caller that sees *was_empty marks the signal. */
int shmsync_signal_set(const shmsync_signal *s, int bit, int *was_empty, int *was_set);
int shmsync_signal_set_mask(const shmsync_signal *s, uint64_t mask, int *was_empty, uint64_t *set);
/* Clears a bit: 0 for one of several callers, EBUSY where it was not set. */
int shmsync_signal_acquire(const shmsync_signal *s, int bit, uint64_t *before);
uint64_t shmsync_signal_load(const shmsync_signal *s);
/* The bit of a bitmap that is nearest to start, the lower one of two; 64: there is none. */
int shmsync_nearest_bit(uint64_t bitmap, int start);

/* Says that signals may have bits, with a permit for each that was not marked: *marked. */
int shmsync_signalwaker_mark(shmsync_signalwaker *w, int i, int *marked);
int shmsync_signalwaker_mark_mask(shmsync_signalwaker *w, uint64_t mask, uint64_t *marked);
/* Takes a signal out of the summary, if it is empty or whatever it has. EBUSY: it did not. */
int shmsync_signalwaker_tryunmark_empty(shmsync_signalwaker *w, int i);
int shmsync_signalwaker_tryunmark(shmsync_signalwaker *w, int i);
uint64_t shmsync_signalwaker_summary(const shmsync_signalwaker *w);

/* The status bits, each with a permit when it is set: *marked. EBUSY: it was not set, or stays
 * set because the partition has a leaf. */
int shmsync_signalwaker_mark_yield(shmsync_signalwaker *w, int *marked);
int shmsync_signalwaker_tryunmark_yield(shmsync_signalwaker *w);
int shmsync_signalwaker_mark_tasks(shmsync_signalwaker *w, int *marked);
int shmsync_signalwaker_tryunmark_tasks(shmsync_signalwaker *w);
void shmsync_signalwaker_status(const shmsync_signalwaker *w, int *yield, int *tasks);

/* Makes the partition's summary say which of the signals start..end-1 of tree, 64 at most, have
 * bits; NULL is w itself. *work: there is one. */
int shmsync_signalwaker_sync_partition(shmsync_signalwaker *w, int start, int end, const shmsync_signalwaker *tree, int *work);
int shmsync_signalwaker_mark_leaf(shmsync_signalwaker *w, int k, int *was_empty);
int shmsync_signalwaker_clear_leaf(shmsync_signalwaker *w, int k);
int shmsync_signalwaker_leaf_has_work(const shmsync_signalwaker *w, int k);
uint64_t shmsync_signalwaker_partition(const shmsync_signalwaker *w);

/* Reserves a queue among those of the signals start..end-1 that nobody has reserved, until it is
 * released or this process dies. EBUSY: there is none. EPERM: this process has not reserved it. */
int shmsync_signalwaker_reserve(shmsync_signalwaker *w, int start, int end, int *queue);
int shmsync_signalwaker_unreserve(shmsync_signalwaker *w, int queue);
int shmsync_signalwaker_reserved(const shmsync_signalwaker *w);

/* Counters. Those marked * count themselves with the option count. */
enum {
    SHMSYNC_STAT_TASKS_POLLED,  /* * executions begun */
    SHMSYNC_STAT_COMPLETED,     /* * executions that left the queue idle */
    SHMSYNC_STAT_YIELDED,       /* * executions that scheduled it again */
    SHMSYNC_STAT_WAITING,       /* * waits for a permit */
    SHMSYNC_STAT_CAS_FAILURES,  /* * changes of a gate that another was faster with */
    SHMSYNC_STAT_EMPTY_SCANS,   /* * calls of next that found nothing */
    SHMSYNC_STAT_YIELD_QUEUE_POLLS,
    SHMSYNC_STAT_SIGNAL_POLLS,  /* * signals that next looked at */
    SHMSYNC_STAT_STEAL_ATTEMPTS,
    SHMSYNC_STAT_STEAL_SUCCESSES,
    SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, /* * looks at a partition's summary */
    SHMSYNC_STAT_LEAF_SUMMARY_HITS,   /* * syncs of it that found work */
    SHMSYNC_STAT_LEAF_STEAL_ATTEMPTS,
    SHMSYNC_STAT_LEAF_STEAL_SUCCESSES,
    SHMSYNC_STATS
};
int shmsync_signalwaker_count(shmsync_signalwaker *w, int stat, uint64_t n);
/* Each the sum over all processes that ever were in the arena. */
void shmsync_signalwaker_stats(const shmsync_signalwaker *w, uint64_t stats[SHMSYNC_STATS]);

typedef struct shmsync_signal_health {
    uint64_t summary, permits, partition;
    int signals;   /* that have bits */
    int scheduled; /* queues that wait for an executor */
    int executing; /* queues that have one */
    int reserved, sleepers, workers, yield, tasks;
} shmsync_signal_health;
void shmsync_signalwaker_health(const shmsync_signalwaker *w, shmsync_signal_health *out);
