
/* ---- MultiLock: a lock for each of 2^64 keys, taken in the order of arrival ---- */

typedef struct shmsync_multilock {
    struct shmi_multilock *impl;
    uint64_t serial;
} shmsync_multilock;

typedef struct shmsync_multilock_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int policy;       /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    uint32_t buckets; /* parts with queue locks of their own, a power of two at least, at most 65536; 0: 64, or whatever an existing one has; another: EINVAL */
    int64_t spin_ns;  /* as of a mutex */
} shmsync_multilock_options;

/* A key that this process holds, or held: what can unlock it, once. It is a value, which
 * any thread of the process may use until the MultiLock is closed. All zero holds nothing. */
typedef struct shmsync_hold {
    struct shmi_key_bucket *in;
    uint64_t serial;
    uint64_t *at;
    uint64_t key; /* which one */
    uint64_t hold;
} shmsync_hold;

int shmsync_multilock_open(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
int shmsync_multilock_attach(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
int shmsync_multilock_at(shmsync_arena *a, shmsync_offset off, shmsync_multilock *out);
shmsync_offset shmsync_multilock_offset(const shmsync_multilock *m);
int shmsync_multilock_close(shmsync_multilock *m);
/* As those of a mutex, for one key; ENOSPC: no room for the key, or for a wait. trylock is EBUSY while there are waiters. */
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic);
/* EPERM: this process does not hold it any more. */
int shmsync_multilock_unlock(const shmsync_hold *h);
/* Locks n keys, in the order of their numbers, into the holds at out; one that is given
 * twice is locked once. *held is how many there are then. An error means none. */
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held);
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic);
/* The result is that of the first that could not be unlocked; the others are. */
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n);
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg);
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key);
