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
    int policy;              /* SHMSYNC_POLICY_... for a new mutex; EINVAL if an existing one has another */
    /* how long waiters of a new mutex spin: 0: adaptive; SHMSYNC_SPIN_NEVER: not at all; else at most this many ns */
    int64_t spin_ns;
    /* not 0: this process unlocks by compare-and-swap, so two threads that race to unlock one hold cannot release the
     * hold of another process */
    int checked;
    int (*repair)(void *);   /* called by lock when it finds a death; returns 0 if it has repaired the data */
    void *repair_arg;
    uint64_t log_bytes;      /* undo log of a new mutex of SHMSYNC_POLICY_ROLLBACK: 0 for 16 KiB, at most 1 MiB */
} shmsync_mutex_options;

/* Finds the mutex of that name, or creates it. NULL or "" as the name: a fresh anonymous one. EINVAL: an existing
 * object is of another kind, or has other options. */
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* Finds the mutex of that name. ENOENT: there is none. The fields checked and repair of opts apply only to this
 * process. */
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* Opens the mutex at an offset that shmsync_mutex_offset gave, in this process or another. EINVAL: none is there. */
int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out);
/* Returns the offset of the mutex in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m);
/* Gives one opening of the mutex back. The holds and waits of this process stay as they are. */
int shmsync_mutex_close(shmsync_mutex *m);
/* Locks the mutex, and waits until that is possible. An error means: not held. EOWNERDEAD: its holder died, and nobody
 * holds it until a process recovers it. ENOTRECOVERABLE: a repair failed. */
int shmsync_mutex_lock(shmsync_mutex *m);
/* Locks the mutex if that is possible at once. EBUSY: it is held. Other errors are those of lock. */
int shmsync_mutex_trylock(shmsync_mutex *m);
/* Locks the mutex, and waits until that CLOCK_MONOTONIC time at most. ETIMEDOUT: the time has passed. A free mutex is
 * locked whatever the time. EINVAL: the time is not valid. Other errors are those of lock. */
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic);
/* Unlocks the mutex. EPERM: this process does not hold it. Two threads that race to unlock one hold may release the
 * hold of another process, unless the handle is checked. */
int shmsync_mutex_unlock(shmsync_mutex *m);
/* Makes an owner-dead or not recoverable mutex usable again. It waits until the process that died is gone, takes the
 * mutex, runs repair, and releases the mutex. ENOTRECOVERABLE: repair returned a value other than 0; the caller does
 * not get that value. A healthy mutex is locked and unlocked, and repair is not called. EINVAL: repair is NULL; the
 * mutex is unchanged. */
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg);
/* The errno that a lock would return: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_mutex_state(shmsync_mutex *m);

