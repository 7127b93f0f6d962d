/* ---- Mutex ---- */

/* A handle on a mutex of an arena; a copy is the same handle. */
typedef struct shmsync_mutex {
    struct shmi_mutex *impl;
    uint64_t serial;
} shmsync_mutex;

typedef struct shmsync_mutex_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int policy;              /* SHMSYNC_POLICY_..., of a new mutex; another than an existing one has: EINVAL */
    int64_t spin_ns;         /* of a new mutex: 0 learns, SHMSYNC_SPIN_NEVER, or at most that long */
    int checked;             /* not 0: every unlock of this process is a compare-and-swap */
    int (*repair)(void *);   /* run by lock of this process where it meets a death; 0 for repaired */
    void *repair_arg;
    uint64_t log_bytes;      /* undo log of a new mutex of SHMSYNC_POLICY_ROLLBACK: 0 for 16 KiB, at most 1 MiB */
} shmsync_mutex_options;

/* Finds the mutex of that name or creates it. NULL or "": a fresh anonymous one. */
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* The mutex at an offset that another process's shmsync_mutex_offset gave. */
int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out);
shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m);
int shmsync_mutex_close(shmsync_mutex *m);
/* An error means: not held. EOWNERDEAD, ENOTRECOVERABLE, EPROTO, EBADF, ENOTCONN. */
int shmsync_mutex_lock(shmsync_mutex *m);
/* EBUSY when it is held, and the errors of lock. */
int shmsync_mutex_trylock(shmsync_mutex *m);
/* ETIMEDOUT at that CLOCK_MONOTONIC time. A free lock is taken without a look at it. */
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic);
/* EPERM when this process does not hold it. Two threads that race to unlock one hold
 * may release the hold of another process, unless the handle is checked. */
int shmsync_mutex_unlock(shmsync_mutex *m);
/* Makes an owner-dead or not recoverable mutex usable again: waits until the process that
 * died is gone, takes it, runs repair, releases it. When repair returns not 0 the mutex is not recoverable, and that number
 * is not passed on: the result is ENOTRECOVERABLE. A healthy mutex is locked and
 * unlocked, without repair. EINVAL: repair is NULL; the mutex is as before. */
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg);
/* What a lock would find: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE, EPROTO. */
int shmsync_mutex_state(shmsync_mutex *m);

