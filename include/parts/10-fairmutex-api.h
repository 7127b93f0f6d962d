
/* ---- FairMutex: a lock that is taken in the order of arrival ---- */

typedef struct shmsync_fairmutex {
    struct shmi_fairmutex *impl;
    uint64_t serial;
} shmsync_fairmutex;

typedef struct shmsync_fairmutex_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int policy;            /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by lock of this process where it meets a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_fairmutex_options;

int shmsync_fairmutex_open(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
int shmsync_fairmutex_attach(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
int shmsync_fairmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_fairmutex *out);
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f);
int shmsync_fairmutex_close(shmsync_fairmutex *f);
/* As those of a mutex; ENOSPC: no room for a wait. trylock is EBUSY while there are waiters. */
int shmsync_fairmutex_lock(shmsync_fairmutex *f);
int shmsync_fairmutex_trylock(shmsync_fairmutex *f);
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic);
int shmsync_fairmutex_unlock(shmsync_fairmutex *f);
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg);
int shmsync_fairmutex_state(shmsync_fairmutex *f);
