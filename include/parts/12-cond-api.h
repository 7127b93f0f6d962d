
/* ---- Cond ---- */

/* A handle on a Cond of an arena. A copy is the same handle. */
typedef struct shmsync_cond {
    struct shmi_cond *impl;
    uint64_t serial;
} shmsync_cond;

/* The options of shmsync_cond_open and shmsync_cond_attach. */
typedef struct shmsync_cond_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    /* for a new one: how many of the waiters that a broadcast wakes may try the lock at the same time; 0: a few;
     * negative: all */
    int batch;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_cond_options;

/* Finds the Cond of that name, or creates it. If name is NULL or "", creates a new anonymous Cond. EINVAL: an existing
 * object is of another kind, or has other options. */
int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
/* Finds the Cond of that name. ENOENT: there is none. */
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
/* Opens the Cond at an offset that shmsync_cond_offset returned in this process or another. EINVAL: there is no Cond at
 * off. */
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out);
/* Returns the offset of the Cond in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_cond_offset(const shmsync_cond *c);
/* Closes one opening of the Cond. The waits of this process stay as they are. */
int shmsync_cond_close(shmsync_cond *c);
/* Unlocks m, waits until signal or broadcast wakes this wait, and locks m again. There are no spurious wakes. When the
 * call returns, m is held again, even after an error, unless the error came from locking m. EOWNERDEAD,
 * ENOTRECOVERABLE: m is not held. EPERM: this process did not hold m, and the call has not waited. A call that returns
 * an error has used up no signal. */
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m);
/* As shmsync_cond_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic);
/* As shmsync_cond_timedwait, for a lock of any kind. unlock(arg) unlocks that lock, and lock(arg) locks it; each
 * returns 0 or an errno. If abs_monotonic is NULL, the wait has no time limit. If the wait itself fails, with ENOSPC,
 * EPROTO, EBADF or ETIMEDOUT, the lock is held. The result does not say whether the wait or lock(arg) has failed. If
 * lock(arg) can fail with one of these errors, too, let both functions note in *arg whether the lock is held. */
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic);
/* Wakes the wait that has lasted longest. */
int shmsync_cond_signal(shmsync_cond *c);
/* Wakes all waits that have begun. */
int shmsync_cond_broadcast(shmsync_cond *c);
