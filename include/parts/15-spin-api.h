
/* ---- SpinLock and RWSpinLock ---- */

typedef struct shmsync_spinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_spinlock;
typedef struct shmsync_rwspinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_rwspinlock;

typedef struct shmsync_spinlock_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by calls of this process that meet a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_spinlock_options;

int shmsync_spinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
int shmsync_spinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
int shmsync_spinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_spinlock *out);
shmsync_offset shmsync_spinlock_offset(const shmsync_spinlock *l);
int shmsync_spinlock_close(shmsync_spinlock *l);
/* As those of a mutex: waiters spin for longer, give their CPU away, and sleep in the end. */
int shmsync_spinlock_lock(shmsync_spinlock *l);
int shmsync_spinlock_trylock(shmsync_spinlock *l);
int shmsync_spinlock_timedlock(shmsync_spinlock *l, const struct timespec *abs_monotonic);
int shmsync_spinlock_unlock(shmsync_spinlock *l);
int shmsync_spinlock_recover(shmsync_spinlock *l, int (*repair)(void *), void *arg);
int shmsync_spinlock_state(shmsync_spinlock *l);

int shmsync_rwspinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
int shmsync_rwspinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
int shmsync_rwspinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_rwspinlock *out);
shmsync_offset shmsync_rwspinlock_offset(const shmsync_rwspinlock *l);
int shmsync_rwspinlock_close(shmsync_rwspinlock *l);
int shmsync_rwspinlock_lock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_trylock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_unlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_rdlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryrdlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedrdlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_rdunlock(shmsync_rwspinlock *l);
/* For upgrade: readers that are in stay, new ones wait, and nobody else has it so. */
int shmsync_rwspinlock_uplock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryuplock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timeduplock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_upunlock(shmsync_rwspinlock *l);
/* From upgrade to writing: waits for the readers to leave. With an error it is held for upgrade still. */
int shmsync_rwspinlock_upgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryupgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedupgrade(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* From writing to reading, from upgrade to reading, from writing to upgrade. */
int shmsync_rwspinlock_downgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_downgrade_to_read(shmsync_rwspinlock *l);
int shmsync_rwspinlock_downgrade_to_upgradable(shmsync_rwspinlock *l);
int shmsync_rwspinlock_recover(shmsync_rwspinlock *l, int (*repair)(void *), void *arg);
int shmsync_rwspinlock_state(shmsync_rwspinlock *l);
