
/* ---- FairMutex: a lock that is taken in the order of arrival ---- */

/* A handle on a FairMutex of an arena. A copy is the same handle. */
typedef struct shmsync_fairmutex {
    struct shmi_fairmutex *impl;
    uint64_t serial;
} shmsync_fairmutex;

/* The options of shmsync_fairmutex_open and shmsync_fairmutex_attach. */
typedef struct shmsync_fairmutex_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_... for a new lock; EINVAL if an existing lock has another policy */
    int (*repair)(void *); /* lock calls it after the death of a holder; it returns 0 if it has repaired the data */
    void *repair_arg;
    int64_t spin_ns;       /* see shmsync_mutex_options */
} shmsync_fairmutex_options;

/* Finds the FairMutex of that name, or creates it. If name is NULL or "", creates a new anonymous FairMutex. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_fairmutex_open(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
/* Finds the FairMutex of that name. ENOENT: there is none. */
int shmsync_fairmutex_attach(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
/* Opens the FairMutex at an offset that shmsync_fairmutex_offset returned in this process or another. EINVAL: there is
 * no FairMutex at off. */
int shmsync_fairmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_fairmutex *out);
/* Returns the offset of the FairMutex in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f);
/* Closes one opening of the FairMutex. The holds and waits of this process stay as they are. */
int shmsync_fairmutex_close(shmsync_fairmutex *f);
/* Locks the FairMutex, and waits until that is possible. Processes get it in the order of arrival. An error means: not
 * held. EOWNERDEAD: its holder died, and nobody holds it until a process recovers it. ENOTRECOVERABLE: a repair failed.
 * ENOSPC: the arena has no room for a wait node. */
int shmsync_fairmutex_lock(shmsync_fairmutex *f);
/* As shmsync_fairmutex_lock, but it does not wait. EBUSY: it is held, or others wait for it. */
int shmsync_fairmutex_trylock(shmsync_fairmutex *f);
/* As shmsync_fairmutex_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. A free lock is taken even if the time has passed. */
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic);
/* Unlocks the FairMutex. EPERM: this process does not hold it. */
int shmsync_fairmutex_unlock(shmsync_fairmutex *f);
/* Makes an owner-dead or not recoverable lock usable again: waits until the process that died is gone, takes the lock,
 * runs repair, and releases the lock. ENOTRECOVERABLE: repair returned a value other than 0. EINVAL: repair is NULL. */
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg);
/* Returns the state as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_fairmutex_state(shmsync_fairmutex *f);
