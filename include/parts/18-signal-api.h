
/* ---- SignalWaker: schedules up to 4096 queues of the user to their workers ----
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
 * Each queue has a gate, which is idle, scheduled, or executed by one worker. When a worker
 * dies, the queues that it executed are scheduled again. Push by an atomic store or under a
 * lock. A release store is enough, because a schedule is a full fence. */

/* A handle on a SignalWaker of an arena. A copy is the same handle. */
typedef struct shmsync_signalwaker {
    struct shmi_signalwaker *impl;
    uint64_t serial;
} shmsync_signalwaker;

/* The options of shmsync_signalwaker_open and shmsync_signalwaker_attach. */
typedef struct shmsync_signalwaker_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    /* number of signals, 1 to 64; each has 64 queues. 0: 64, or the number of an existing object; EINVAL if an existing
     * object has another number */
    int signals;
    int count;       /* not 0: operations of all processes on the new object update its SHMSYNC_STAT counters */
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_signalwaker_options;

/* A gate is a value, valid until the SignalWaker is closed. Finish an execution with the gate that began it, or with
 * one copy of that gate, but only once. */
typedef struct shmsync_gate {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t queue;   /* number of the queue */
    uint64_t running; /* identifies the execution that this gate began; 0: none */
} shmsync_gate;

/* The state of a gate, as shmsync_gate_state reads it. */
typedef struct shmsync_gate_info {
    int scheduled, executing;
    uint32_t epoch;               /* counts the executions, and wraps */
    int known;                    /* whether executor is filled in */
    shmsync_participant executor; /* the process that executes */
} shmsync_gate_info;

/* A signal is a word with one bit for each of 64 queues. A bit is set while the gate of the queue waits for an
 * executor. Gates and shmsync_signalwaker_next keep the bits up to date; the functions of signals are for programs that
 * choose among queues in their own way. */
typedef struct shmsync_signal {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t index;
} shmsync_signal;

/* Finds the SignalWaker of that name, or creates it. If name is NULL or "", creates a new anonymous SignalWaker.
 * EINVAL: an existing object is of another kind, or has other options. */
int shmsync_signalwaker_open(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
/* Finds the SignalWaker of that name. ENOENT: there is none. */
int shmsync_signalwaker_attach(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
/* Opens the SignalWaker at an offset that shmsync_signalwaker_offset returned in this process or another. EINVAL: there
 * is no SignalWaker at off. */
int shmsync_signalwaker_at(shmsync_arena *a, shmsync_offset off, shmsync_signalwaker *out);
/* Returns the offset of the SignalWaker in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_signalwaker_offset(const shmsync_signalwaker *w);
/* Closes one opening of the SignalWaker. The executions, registrations and waits of this process stay as they are. */
int shmsync_signalwaker_close(shmsync_signalwaker *w);
/* The number of signals. */
int shmsync_signalwaker_signals(const shmsync_signalwaker *w);
/* The number of queues: 64 for each signal. They are counted from 0. */
int shmsync_signalwaker_queues(const shmsync_signalwaker *w);

/* Sets *out to the gate of a queue. EINVAL: there is no such queue; calls with the gate *out then return EBADF. */
int shmsync_signalwaker_gate(const shmsync_signalwaker *w, int queue, shmsync_gate *out);
/* Says that there is something in the queue. *scheduled, if scheduled is not NULL, says whether this call has scheduled
 * the queue. The call leaves the queue alone if the queue is scheduled already, or if its executor will see the new
 * item when it finishes. */
int shmsync_gate_schedule(shmsync_gate *g, int *scheduled);
/* Begins to execute the queue. EBUSY: it is not scheduled, or another process executes it. */
int shmsync_gate_begin(shmsync_gate *g);
/* Begins to execute an idle queue, for a producer that handles its item itself. EBUSY: the queue is not idle. */
int shmsync_gate_trybegin_inline(shmsync_gate *g);
/* Ends the execution that this gate began. *again, which may be NULL, says whether the queue is scheduled again,
 * because something was put into it meanwhile. EPERM: this gate executes nothing, or this process was declared dead. */
int shmsync_gate_finish(shmsync_gate *g, int *again);
/* As shmsync_gate_finish, for an executor that leaves items in the queue: the queue is scheduled again. */
int shmsync_gate_finish_and_schedule(shmsync_gate *g);
/* Tells whether the queue is scheduled or executed, and by which process. */
int shmsync_gate_state(const shmsync_gate *g, shmsync_gate_info *out);
/* Finds a scheduled queue, and begins to execute it. The call prefers a queue whose number is close to near_queue. *out
 * is the gate of the queue. EBUSY: the call has found no queue; *out is unchanged. */
int shmsync_signalwaker_next(shmsync_signalwaker *w, int near_queue, shmsync_gate *out);

/* Waits for a permit. A permit says that there may be work that shmsync_signalwaker_next has not seen yet. If there
 * is work, the call may return 0 without a permit. After it returns 0, call shmsync_signalwaker_next again. */
int shmsync_signalwaker_acquire(shmsync_signalwaker *w);
/* As shmsync_signalwaker_acquire, but it does not wait. EBUSY: there is neither a permit nor work. */
int shmsync_signalwaker_tryacquire(shmsync_signalwaker *w);
/* As shmsync_signalwaker_acquire, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the
 * time has passed. */
int shmsync_signalwaker_timedacquire(shmsync_signalwaker *w, const struct timespec *abs_monotonic);
/* Issues n permits, and wakes as many waiters. EINVAL, with none issued: n is negative, or there would be 2^64 permits
 * or more. */
int shmsync_signalwaker_release(shmsync_signalwaker *w, int64_t n);
/* The number of permits. */
uint64_t shmsync_signalwaker_permits(const shmsync_signalwaker *w);
/* The number of sleepers that living processes have registered. */
int shmsync_signalwaker_sleepers(const shmsync_signalwaker *w);
/* Registers one more sleeper, until this process unregisters it or dies. A sleeper is a thread that waits for a permit,
 * or a worker that waits elsewhere, for example in a poll of file descriptors. No wake depends on the number of
 * sleepers. ENOSPC: this process has 1,048,575 sleepers. */
int shmsync_signalwaker_register_sleeper(shmsync_signalwaker *w);
/* Unregisters one sleeper of this process. EPERM: this process has none. */
int shmsync_signalwaker_unregister_sleeper(shmsync_signalwaker *w);
/* The number of workers that living processes have registered. */
int shmsync_signalwaker_workers(const shmsync_signalwaker *w);
/* Registers one more worker, until this process unregisters it or dies. ENOSPC: this process has 32,767 workers. */
int shmsync_signalwaker_register_worker(shmsync_signalwaker *w);
/* Unregisters one worker of this process. EPERM: this process has none. */
int shmsync_signalwaker_unregister_worker(shmsync_signalwaker *w);

/* Sets *out to signal number i. EINVAL: there is no such signal; calls with the signal *out then return EBADF. */
int shmsync_signalwaker_signal(const shmsync_signalwaker *w, int i, shmsync_signal *out);
/* Sets a bit, 0 to 63. *was_empty is 1 if the signal had no set bit before, and *set_now is 1 if this call has set the
 * bit. Both pointers may be NULL. If *was_empty is 1, the caller must call shmsync_signalwaker_mark. EINVAL: there is
 * no such bit. */
int shmsync_signal_set(const shmsync_signal *s, int bit, int *was_empty, int *set_now);
/* Sets all bits that are set in mask. *was_empty is as for shmsync_signal_set. *set gets the bits that were not set
 * before. Both pointers may be NULL. */
int shmsync_signal_set_mask(const shmsync_signal *s, uint64_t mask, int *was_empty, uint64_t *set);
/* Clears a bit. Of several callers that try, one succeeds. *before gets the bits as they were. EBUSY: the bit was not
 * set. */
int shmsync_signal_acquire(const shmsync_signal *s, int bit, uint64_t *before);
/* The bits of the signal. */
uint64_t shmsync_signal_load(const shmsync_signal *s);
/* The bit set in bitmap that is nearest to start; of two that are equally near, the lower one. 64: no bit is set. */
int shmsync_nearest_bit(uint64_t bitmap, int start);

/* Marks a signal in the summary. The mark says that the signal may have set bits. If the signal was not marked, the
 * call issues a permit and sets *marked to 1. */
int shmsync_signalwaker_mark(shmsync_signalwaker *w, int i, int *marked);
/* Marks each signal of mask, as shmsync_signalwaker_mark does. *marked gets those that were not marked before. */
int shmsync_signalwaker_mark_mask(shmsync_signalwaker *w, uint64_t mask, uint64_t *marked);
/* Unmarks a signal in the summary if no bit of the signal is set. EBUSY: a bit is set, or the signal was not marked. */
int shmsync_signalwaker_tryunmark_empty(shmsync_signalwaker *w, int i);
/* Unmarks a signal in the summary, even if bits of the signal are set. EBUSY: the signal was not marked. */
int shmsync_signalwaker_tryunmark(shmsync_signalwaker *w, int i);
/* The summary: one bit for each signal, which is set if the signal is marked. */
uint64_t shmsync_signalwaker_summary(const shmsync_signalwaker *w);

/* Sets the status bit "yield", by which a worker tells the others that it has yielded. If the bit was not set, the call
 * issues a permit and sets *marked to 1. */
int shmsync_signalwaker_mark_yield(shmsync_signalwaker *w, int *marked);
/* Clears the status bit "yield". EBUSY: it was not set. */
int shmsync_signalwaker_tryunmark_yield(shmsync_signalwaker *w);
/* Sets the status bit "tasks", which says that the partition of w has work: see shmsync_signalwaker_sync_partition. If
 * the bit was not set, the call issues a permit and sets *marked to 1. */
int shmsync_signalwaker_mark_tasks(shmsync_signalwaker *w, int *marked);
/* Clears the status bit "tasks". EBUSY: the bit was not set, or it stays set because the summary of the partition is
 * not empty. */
int shmsync_signalwaker_tryunmark_tasks(shmsync_signalwaker *w);
/* Sets *yield and *tasks to 1 or 0, as the two status bits are. Neither pointer may be NULL. */
void shmsync_signalwaker_status(const shmsync_signalwaker *w, int *yield, int *tasks);

/* Updates the summary of the partition of w. A partition is the range of signals that one worker serves: here the
 * signals start to end - 1, at most 64. They are signals of the SignalWaker tree or, if tree is NULL, of w itself. Bit
 * k of the summary says whether signal start + k has a set bit. *work says whether the summary has a set bit. */
int shmsync_signalwaker_sync_partition(shmsync_signalwaker *w, int start, int end, const shmsync_signalwaker *tree, int *work);
/* Sets bit k of the summary of the partition. *was_empty, which may be NULL, says whether no bit was set before. */
int shmsync_signalwaker_mark_leaf(shmsync_signalwaker *w, int k, int *was_empty);
/* Clears bit k of the summary of the partition. */
int shmsync_signalwaker_clear_leaf(shmsync_signalwaker *w, int k);
/* Whether bit k of the summary of the partition is set: 1 or 0. In a child of fork the result is 0. */
int shmsync_signalwaker_leaf_has_work(const shmsync_signalwaker *w, int k);
/* The summary of the partition. */
uint64_t shmsync_signalwaker_partition(const shmsync_signalwaker *w);

/* Reserves a free queue among the signals start to end-1, until it is unreserved or this process dies. EBUSY: there
 * is no free queue. */
int shmsync_signalwaker_reserve(shmsync_signalwaker *w, int start, int end, int *queue);
/* Gives a reserved queue back. EPERM: this process has not reserved it. */
int shmsync_signalwaker_unreserve(shmsync_signalwaker *w, int queue);
/* The number of queues that are reserved. */
int shmsync_signalwaker_reserved(const shmsync_signalwaker *w);

/* Names of counters. If the SignalWaker was created with count set in the options, its operations update the counters
 * whose comments begin with *. A program updates the others by shmsync_signalwaker_count. */
enum {
    SHMSYNC_STAT_TASKS_POLLED,  /* * executions begun */
    SHMSYNC_STAT_COMPLETED,     /* * executions that left the queue idle */
    SHMSYNC_STAT_YIELDED,       /* * executions that scheduled the queue again */
    SHMSYNC_STAT_WAITING,       /* * waits for a permit */
    SHMSYNC_STAT_CAS_FAILURES,  /* * changes of a gate that failed because another thread changed it first */
    SHMSYNC_STAT_EMPTY_SCANS,   /* * calls of next that found nothing */
    SHMSYNC_STAT_YIELD_QUEUE_POLLS,
    SHMSYNC_STAT_SIGNAL_POLLS,  /* * signals that next examined */
    SHMSYNC_STAT_STEAL_ATTEMPTS,
    SHMSYNC_STAT_STEAL_SUCCESSES,
    SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, /* * checks of the summary of a partition */
    SHMSYNC_STAT_LEAF_SUMMARY_HITS,   /* * calls of sync_partition that found work */
    SHMSYNC_STAT_LEAF_STEAL_ATTEMPTS,
    SHMSYNC_STAT_LEAF_STEAL_SUCCESSES,
    SHMSYNC_STATS
};
/* Adds n to a counter, SHMSYNC_STAT_x. EINVAL: there is no such counter. */
int shmsync_signalwaker_count(shmsync_signalwaker *w, int stat, uint64_t n);
/* Reads all counters, each the sum over all processes that ever were in the arena. */
void shmsync_signalwaker_stats(const shmsync_signalwaker *w, uint64_t stats[SHMSYNC_STATS]);

/* The state of a SignalWaker. It is read word by word, so the numbers may be of different moments. */
typedef struct shmsync_signal_health {
    uint64_t summary, permits, partition;
    int signals;   /* signals that have a set bit */
    int scheduled; /* queues that wait for an executor */
    int executing; /* queues that have an executor */
    int reserved, sleepers, workers, yield, tasks;
} shmsync_signal_health;
/* Reads the state of all words. */
void shmsync_signalwaker_health(const shmsync_signalwaker *w, shmsync_signal_health *out);
