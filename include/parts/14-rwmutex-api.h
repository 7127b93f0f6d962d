
/* ---- RWMutex ---- */

/* A handle on an RWMutex of an arena. A copy is the same handle. */
typedef struct shmsync_rwmutex {
    struct shmi_rwmutex *impl;
    uint64_t serial;
} shmsync_rwmutex;

/* The options of shmsync_rwmutex_open and shmsync_rwmutex_attach. */
typedef struct shmsync_rwmutex_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_... for the death of a writer; EINVAL if an existing lock has another policy */
    int (*repair)(void *); /* lock, lock_upgradable and rdlock call it after a writer died; 0: the data is repaired */
    void *repair_arg;
    int64_t spin_ns;       /* see shmsync_mutex_options */
    uint64_t log_bytes;    /* see shmsync_mutex_options */
} shmsync_rwmutex_options;

/* Finds the RWMutex of that name, or creates it. If name is NULL or "", creates a new anonymous RWMutex. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_rwmutex_open(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
/* Finds the RWMutex of that name. ENOENT: there is none. */
int shmsync_rwmutex_attach(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
/* Opens the RWMutex at an offset that shmsync_rwmutex_offset returned in this process or another. EINVAL: there is no
 * RWMutex at off. */
int shmsync_rwmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_rwmutex *out);
/* Returns the offset of the RWMutex in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_rwmutex_offset(const shmsync_rwmutex *m);
/* Closes one opening of the RWMutex. The holds and waits of this process stay as they are. */
int shmsync_rwmutex_close(shmsync_rwmutex *m);
/* Locks the RWMutex, and waits until that is possible. A write hold keeps all others out. An error means: not held.
 * EOWNERDEAD: its holder died, and nobody holds it until a process recovers it. ENOTRECOVERABLE: a repair failed.
 * ENOSPC: the arena has no room for a wait node. */
int shmsync_rwmutex_lock(shmsync_rwmutex *m);
/* As shmsync_rwmutex_lock, but it does not wait. EBUSY: it is held. */
int shmsync_rwmutex_trylock(shmsync_rwmutex *m);
/* As shmsync_rwmutex_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. A free lock is taken even if the time has passed. */
int shmsync_rwmutex_timedlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
/* Unlocks the RWMutex. EPERM: this process does not hold it. */
int shmsync_rwmutex_unlock(shmsync_rwmutex *m);
/* Locks the RWMutex for reading, and waits until no writer holds it. The hold of a reader that dies is taken back.
 * Errors are those of shmsync_rwmutex_lock. A process can have up to 8,388,606 read holds at a time; this is not
 * checked. */
int shmsync_rwmutex_rdlock(shmsync_rwmutex *m);
/* As shmsync_rwmutex_rdlock, but it does not wait. EBUSY: a writer keeps readers out. */
int shmsync_rwmutex_tryrdlock(shmsync_rwmutex *m);
/* As shmsync_rwmutex_rdlock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_rwmutex_timedrdlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
/* Gives a read hold back. EPERM: this process has none. */
int shmsync_rwmutex_rdunlock(shmsync_rwmutex *m);
/* Turns the write hold into a read hold; no writer comes in between. EPERM: this process has no write hold. */
int shmsync_rwmutex_downgrade(shmsync_rwmutex *m);
/* Gets an upgradable hold, and waits until that is possible. Readers may hold the lock at the same time, but no writer
 * and no other upgradable hold. The death of a process with an upgradable hold causes no error in later calls, because
 * that process cannot have written the data. */
int shmsync_rwmutex_lock_upgradable(shmsync_rwmutex *m);
/* As shmsync_rwmutex_lock_upgradable, but it does not wait. EBUSY: a writer or another upgradable hold has the lock. */
int shmsync_rwmutex_try_lock_upgradable(shmsync_rwmutex *m);
/* As shmsync_rwmutex_lock_upgradable, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the
 * time has passed. */
int shmsync_rwmutex_timed_lock_upgradable(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
/* Gives an upgradable hold back. EPERM: this process has none. */
int shmsync_rwmutex_unlock_upgradable(shmsync_rwmutex *m);
/* Turns the upgradable hold into a write hold. The call waits for the readers to leave. Meanwhile no new reader comes
 * in, and no writer comes in between. If the call returns an error, the hold is still upgradable, and readers come in
 * again. EPERM: this process has no upgradable hold. */
int shmsync_rwmutex_upgrade(shmsync_rwmutex *m);
/* As shmsync_rwmutex_upgrade, but it does not wait. EBUSY: a reader is in. */
int shmsync_rwmutex_try_upgrade(shmsync_rwmutex *m);
/* As shmsync_rwmutex_upgrade, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_rwmutex_timed_upgrade(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
/* Turns the write hold into an upgradable hold. EPERM: this process has no write hold. */
int shmsync_rwmutex_downgrade_to_upgradable(shmsync_rwmutex *m);
/* Turns the upgradable hold into a read hold. EPERM: this process has no upgradable hold. */
int shmsync_rwmutex_downgrade_to_read(shmsync_rwmutex *m);
/* Makes an owner-dead or not recoverable lock usable again: waits until the process that died is gone, takes the lock,
 * runs repair, and releases the lock. ENOTRECOVERABLE: repair returned a value other than 0. EINVAL: repair is NULL. */
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg);
/* Locks the RWMutex for writing, and begins a transaction, as shmsync_mutex_begin does for a mutex, with the same
 * errors. The policy is SHMSYNC_POLICY_ROLLBACK. During the transaction no thread may downgrade or unlock the lock:
 * shmsync_tx_commit and shmsync_tx_abort unlock it. If the process dies, the next process that wants the lock, to read
 * or to write, finds the data as it was before the transaction. */
int shmsync_rwmutex_begin(shmsync_rwmutex *m, shmsync_tx *tx);
/* As shmsync_rwmutex_begin, but it does not wait. EBUSY: it is held. */
int shmsync_rwmutex_trybegin(shmsync_rwmutex *m, shmsync_tx *tx);
/* As shmsync_rwmutex_begin, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_rwmutex_timedbegin(shmsync_rwmutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic);
/* Returns the state as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_rwmutex_state(shmsync_rwmutex *m);
