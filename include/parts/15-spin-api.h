
/* ---- SpinLock and RWSpinLock ---- */

/* A handle on a SpinLock of an arena. A copy is the same handle. */
typedef struct shmsync_spinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_spinlock;
/* A handle on an RWSpinLock of an arena. A copy is the same handle. */
typedef struct shmsync_rwspinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_rwspinlock;

/* The options of shmsync_spinlock_open and shmsync_rwspinlock_open, and of the _attach functions. */
typedef struct shmsync_spinlock_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_... for a new lock; EINVAL if an existing lock has another policy */
    int (*repair)(void *); /* lock functions call it after a holder died; it returns 0 if it has repaired the data */
    void *repair_arg;
    int64_t spin_ns;       /* see shmsync_mutex_options */
} shmsync_spinlock_options;

/* Finds the SpinLock of that name, or creates it. If name is NULL or "", creates a new anonymous SpinLock. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_spinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
/* Finds the SpinLock of that name. ENOENT: there is none. */
int shmsync_spinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
/* Opens the SpinLock at an offset that shmsync_spinlock_offset returned in this process or another. EINVAL: there is no
 * SpinLock at off. */
int shmsync_spinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_spinlock *out);
/* Returns the offset of the SpinLock in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_spinlock_offset(const shmsync_spinlock *l);
/* Closes one opening of the SpinLock. The holds and waits of this process stay as they are. */
int shmsync_spinlock_close(shmsync_spinlock *l);
/* Locks the SpinLock, and waits until that is possible. A waiter spins first, then yields its CPU, and sleeps at last.
 * An error means: not held. EOWNERDEAD: its holder died, and nobody holds it until a process recovers it.
 * ENOTRECOVERABLE: a repair failed. */
int shmsync_spinlock_lock(shmsync_spinlock *l);
/* As shmsync_spinlock_lock, but it does not wait. EBUSY: it is held. */
int shmsync_spinlock_trylock(shmsync_spinlock *l);
/* As shmsync_spinlock_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. A free lock is taken even if the time has passed. */
int shmsync_spinlock_timedlock(shmsync_spinlock *l, const struct timespec *abs_monotonic);
/* Unlocks the SpinLock. EPERM: this process does not hold it. */
int shmsync_spinlock_unlock(shmsync_spinlock *l);
/* Makes an owner-dead or not recoverable lock usable again: waits until the process that died is gone, takes the lock,
 * runs repair, and releases the lock. ENOTRECOVERABLE: repair returned a value other than 0. EINVAL: repair is NULL. */
int shmsync_spinlock_recover(shmsync_spinlock *l, int (*repair)(void *), void *arg);
/* Returns the state as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_spinlock_state(shmsync_spinlock *l);

/* Finds the RWSpinLock of that name, or creates it. If name is NULL or "", creates a new anonymous RWSpinLock. EINVAL:
 * an existing object is of another kind, or has other options. */
int shmsync_rwspinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
/* Finds the RWSpinLock of that name. ENOENT: there is none. */
int shmsync_rwspinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
/* Opens the RWSpinLock at an offset that shmsync_rwspinlock_offset returned in this process or another. EINVAL: there
 * is no RWSpinLock at off. */
int shmsync_rwspinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_rwspinlock *out);
/* Returns the offset of the RWSpinLock in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_rwspinlock_offset(const shmsync_rwspinlock *l);
/* Closes one opening of the RWSpinLock. The holds and waits of this process stay as they are. */
int shmsync_rwspinlock_close(shmsync_rwspinlock *l);
/* Locks the RWSpinLock, and waits until that is possible. A write hold keeps all others out. An error means: not held.
 * EOWNERDEAD: its holder died, and nobody holds it until a process recovers it. ENOTRECOVERABLE: a repair failed. */
int shmsync_rwspinlock_lock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_lock, but it does not wait. EBUSY: it is held. */
int shmsync_rwspinlock_trylock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. A free lock is taken even if the time has passed. */
int shmsync_rwspinlock_timedlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* Unlocks the RWSpinLock. EPERM: this process does not hold it. */
int shmsync_rwspinlock_unlock(shmsync_rwspinlock *l);
/* Locks the RWSpinLock for reading, and waits until no writer holds it. Errors are those of shmsync_rwspinlock_lock. */
int shmsync_rwspinlock_rdlock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_rdlock, but it does not wait. EBUSY: it is held for writing or for upgrade. */
int shmsync_rwspinlock_tryrdlock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_rdlock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_rwspinlock_timedrdlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* Gives a read hold back. EPERM: this process has none. */
int shmsync_rwspinlock_rdunlock(shmsync_rwspinlock *l);
/* Locks the RWSpinLock for upgrade: readers that have the lock keep it, new readers wait, and no other process gets an
 * upgradable hold. */
int shmsync_rwspinlock_uplock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_uplock, but it does not wait. EBUSY: it is held for writing or for upgrade. */
int shmsync_rwspinlock_tryuplock(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_uplock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_rwspinlock_timeduplock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* Gives an upgradable hold back. EPERM: this process has none. */
int shmsync_rwspinlock_upunlock(shmsync_rwspinlock *l);
/* Turns the upgradable hold into a write hold, and waits for the readers to leave. If it returns an error, the
 * hold is still upgradable. EPERM: this process has no upgradable hold. */
int shmsync_rwspinlock_upgrade(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_upgrade, but it does not wait. EBUSY: a reader is in. */
int shmsync_rwspinlock_tryupgrade(shmsync_rwspinlock *l);
/* As shmsync_rwspinlock_upgrade, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_rwspinlock_timedupgrade(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* Turns the write hold into a read hold. EPERM: this process has no write hold. */
int shmsync_rwspinlock_downgrade(shmsync_rwspinlock *l);
/* Turns the upgradable hold into a read hold. EPERM: this process has none. */
int shmsync_rwspinlock_downgrade_to_read(shmsync_rwspinlock *l);
/* Turns the write hold into an upgradable hold. EPERM: this process has no write hold. */
int shmsync_rwspinlock_downgrade_to_upgradable(shmsync_rwspinlock *l);
/* Makes an owner-dead or not recoverable lock usable again: waits until the process that died is gone, takes the lock,
 * runs repair, and releases the lock. ENOTRECOVERABLE: repair returned a value other than 0. EINVAL: repair is NULL. */
int shmsync_rwspinlock_recover(shmsync_rwspinlock *l, int (*repair)(void *), void *arg);
/* Returns the state as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. EPROTO also means that a peer
 * has damaged the list of the readers. */
int shmsync_rwspinlock_state(shmsync_rwspinlock *l);
