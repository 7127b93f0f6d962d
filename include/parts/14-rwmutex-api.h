
/* ---- RWMutex ---- */

typedef struct shmsync_rwmutex {
    struct shmi_rwmutex *impl;
    uint64_t serial;
} shmsync_rwmutex;

typedef struct shmsync_rwmutex_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_..., when a writer dies; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by lock, lock_upgradable and rdlock of this process where they meet a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_rwmutex_options;

int shmsync_rwmutex_open(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
int shmsync_rwmutex_attach(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
int shmsync_rwmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_rwmutex *out);
shmsync_offset shmsync_rwmutex_offset(const shmsync_rwmutex *m);
int shmsync_rwmutex_close(shmsync_rwmutex *m);
/* As those of a mutex. A reader that dies is taken back; the death of a writer is told by policy. */
int shmsync_rwmutex_lock(shmsync_rwmutex *m);
int shmsync_rwmutex_trylock(shmsync_rwmutex *m);
int shmsync_rwmutex_timedlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_unlock(shmsync_rwmutex *m);
int shmsync_rwmutex_rdlock(shmsync_rwmutex *m);
int shmsync_rwmutex_tryrdlock(shmsync_rwmutex *m);
int shmsync_rwmutex_timedrdlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_rdunlock(shmsync_rwmutex *m);
/* Makes a read hold of the write hold; no writer comes in between. */
int shmsync_rwmutex_downgrade(shmsync_rwmutex *m);
/* An upgradable hold reads beside other readers, and keeps writers and other upgradable holds out. upgrade makes a write hold
 * of it when the readers have left: until then no new reader comes in, and no writer comes in between. With an error of upgrade
 * the hold is still upgradable, and readers come in again. EPERM: this process has no such hold. A process that dies with an
 * upgradable hold wrote nothing: nobody is told. */
int shmsync_rwmutex_lock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_try_lock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_timed_lock_upgradable(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_unlock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_upgrade(shmsync_rwmutex *m);
int shmsync_rwmutex_try_upgrade(shmsync_rwmutex *m); /* EBUSY: a reader is in */
int shmsync_rwmutex_timed_upgrade(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_downgrade_to_upgradable(shmsync_rwmutex *m); /* makes an upgradable hold of the write hold */
int shmsync_rwmutex_downgrade_to_read(shmsync_rwmutex *m);       /* makes a read hold of the upgradable hold */
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg);
int shmsync_rwmutex_state(shmsync_rwmutex *m);
