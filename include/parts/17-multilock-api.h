
/* ---- MultiLock: a lock for each of 2^64 keys, taken in the order of arrival ---- */

/* A handle on a MultiLock of an arena. A copy is the same handle. */
typedef struct shmsync_multilock {
    struct shmi_multilock *impl;
    uint64_t serial;
} shmsync_multilock;

/* The options of shmsync_multilock_open and shmsync_multilock_attach. */
typedef struct shmsync_multilock_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int policy;       /* SHMSYNC_POLICY_... for a new MultiLock; EINVAL if an existing one has another policy */
    /* number of parts over which the keys are divided; each takes 192 bytes. It is rounded up to a power of two, at
     * most 65536. 0: 32, or the number of an existing MultiLock; EINVAL if an existing one has another number */
    uint32_t buckets;
    int64_t spin_ns;  /* see shmsync_mutex_options */
} shmsync_multilock_options;

/* Identifies one hold of a key by this process, and can unlock that hold once. It is a value, which any thread of
 * the process may use until the MultiLock is closed. An shmsync_hold of zeros holds nothing. */
typedef struct shmsync_hold {
    struct shmi_key_bucket *in;
    uint64_t serial;
    uint64_t *at;
    uint64_t key; /* the key that is held */
    uint64_t hold;
} shmsync_hold;

/* Finds the MultiLock of that name, or creates it. If name is NULL or "", creates a new anonymous MultiLock. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_multilock_open(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
/* Finds the MultiLock of that name. ENOENT: there is none. */
int shmsync_multilock_attach(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
/* Opens the MultiLock at an offset that shmsync_multilock_offset returned in this process or another. EINVAL: there is
 * no MultiLock at off. */
int shmsync_multilock_at(shmsync_arena *a, shmsync_offset off, shmsync_multilock *out);
/* Returns the offset of the MultiLock in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_multilock_offset(const shmsync_multilock *m);
/* Closes one opening of the MultiLock. The holds and waits of this process stay as they are. After the last close in
 * this process, a hold cannot unlock its key any more: the key stays held until the process leaves the arena. */
int shmsync_multilock_close(shmsync_multilock *m);
/* Locks one key, and waits until that is possible. *out identifies the hold, for unlock. An error means: not held.
 * EOWNERDEAD: the holder of the key died, and nobody holds it until a process recovers it. ENOTRECOVERABLE: a repair
 * failed. ENOSPC: the arena has no room for the key, or for a wait node. */
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
/* As shmsync_multilock_lock, but it does not wait. EBUSY: the key is held, or others wait for it. */
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
/* As shmsync_multilock_lock, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic);
/* Unlocks the key that the hold names. EPERM: this process does not hold it any more. */
int shmsync_multilock_unlock(const shmsync_hold *h);
/* Locks n keys, from the lowest to the highest, and stores the holds at out. A key that is given twice is locked once.
 * *held is the number of holds. An error means: no key is held. */
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held);
/* As shmsync_multilock_lockall, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic);
/* Unlocks n holds. If some of them cannot be unlocked, the result is the error of the first of these, and all others
 * are unlocked. */
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n);
/* Makes an owner-dead or not recoverable key usable again: waits until the process that died is gone, takes the key,
 * runs repair, and releases it. ENOTRECOVERABLE: repair returned a value other than 0. EINVAL: repair is NULL. */
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg);
/* Returns the state of the key as an errno: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE or EPROTO. */
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key);
