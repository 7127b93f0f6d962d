
/* ---- RWMutex ---- */

typedef struct shmsync_rwmutex {
    struct shmi_rwmutex *impl;
} shmsync_rwmutex;

typedef struct shmsync_rwmutex_options {
    int policy;            /* SHMSYNC_POLICY_..., when a writer dies; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by lock and rdlock of this process where they meet a death; 0 for repaired */
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
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg);
int shmsync_rwmutex_state(shmsync_rwmutex *m);
