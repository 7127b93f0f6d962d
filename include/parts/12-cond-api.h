
/* ---- Cond ---- */

typedef struct shmsync_cond {
    struct shmi_cond *impl;
    uint64_t serial;
} shmsync_cond;

typedef struct shmsync_cond_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int batch;       /* of a new one: how many of a broadcast go for the lock at a time; 0: a few; negative: all */
    int64_t spin_ns; /* as of a mutex */
} shmsync_cond_options;

int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out);
shmsync_offset shmsync_cond_offset(const shmsync_cond *c);
int shmsync_cond_close(shmsync_cond *c);
/* Unlocks m, waits until signal or broadcast wakes this wait, and locks m again. There
 * are no spurious wakes. m is held again, whatever the result, unless the lock could not
 * be had: EOWNERDEAD, ENOTRECOVERABLE, and then it is not held. With an error no signal
 * was used up. */
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m);
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic);
/* The same with any lock: functions that unlock and lock, and give 0 or an errno. NULL
 * for abs_monotonic: no end. */
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic);
/* Wakes the one that has waited longest; all that wait now. */
int shmsync_cond_signal(shmsync_cond *c);
int shmsync_cond_broadcast(shmsync_cond *c);
