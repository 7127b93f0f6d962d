/* ---- Mutex ---- */

/* A handle on a mutex of an arena. A copy is the same handle. */
typedef struct shmsync_mutex {
    struct shmi_mutex *impl;
    uint64_t serial;
} shmsync_mutex;

/* The options of shmsync_mutex_open and shmsync_mutex_attach. */
typedef struct shmsync_mutex_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int policy;              /* SHMSYNC_POLICY_... of a new mutex; EINVAL if an existing mutex has another */
    /* how long waiters of a new mutex spin before they sleep. 0: the library adapts the time. SHMSYNC_SPIN_NEVER: they
     * do not spin. Any other value: at most that many ns */
    int64_t spin_ns;
    /* not 0: this process unlocks by compare-and-swap. If two of its threads unlock the same hold, they cannot release
     * the hold of another process */
    int checked;
    int (*repair)(void *);   /* lock calls it after the death of a holder; it returns 0 if it has repaired the data */
    void *repair_arg;
    uint64_t log_bytes;      /* undo log of a new mutex of SHMSYNC_POLICY_ROLLBACK: at most 1 MiB; 0: 16 KiB */
} shmsync_mutex_options;

/* Finds the mutex of that name, or creates it. If name is NULL or "", creates a new anonymous mutex. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* Finds the mutex of that name. ENOENT: there is none. opts->checked and opts->repair apply only to this process. */
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* Opens the mutex at an offset that shmsync_mutex_offset returned in this process or another. EINVAL: there is no mutex
 * at off. */
int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out);
/* Returns the offset of the mutex in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m);
/* Closes one opening of the mutex. The holds and waits of this process stay as they are. */
int shmsync_mutex_close(shmsync_mutex *m);
/* Locks the mutex, and waits until that is possible. An error means: not held. EOWNERDEAD: its holder died, and nobody
 * holds it until a process recovers it. ENOTRECOVERABLE: a repair failed. */
int shmsync_mutex_lock(shmsync_mutex *m);
/* As shmsync_mutex_lock, but it does not wait. EBUSY: it is held. */
int shmsync_mutex_trylock(shmsync_mutex *m);
/* As shmsync_mutex_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. EINVAL: the time is not valid. A free mutex is locked even if the time has passed or is not valid. */
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic);
/* Unlocks the mutex. EPERM: this process does not hold it. If two threads of this process unlock the same hold, they
 * may release the hold of another process, unless opts->checked was set when this process opened the mutex. */
int shmsync_mutex_unlock(shmsync_mutex *m);
/* Makes an owner-dead or not recoverable mutex usable again: waits until the process that died is gone, takes the
 * mutex, runs repair, and releases the mutex. ENOTRECOVERABLE: repair returned a value other than 0, which the call
 * does not pass on. EINVAL: repair is NULL; the mutex is unchanged. If the mutex needs no recovery, the call locks and
 * unlocks it without running repair. */
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg);
/* Returns the state as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_mutex_state(shmsync_mutex *m);

