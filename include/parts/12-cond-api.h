
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
    /* for a new one: how many waiters of a broadcast try the lock at a time; 0: a few; negative: all */
    int batch;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_cond_options;

/* Finds the Cond of that name, or creates it. NULL or "" as the name: a fresh anonymous one. EINVAL: an existing
 * object is of another kind, or has other options. */
int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
/* Finds the Cond of that name. ENOENT: there is none. */
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
/* Opens the Cond at an offset that shmsync_cond_offset gave, in this process or another. EINVAL: none is there. */
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out);
/* Returns the offset of the Cond in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_cond_offset(const shmsync_cond *c);
/* Gives one opening of the Cond back. The holds and waits of this process stay as they are. */
int shmsync_cond_close(shmsync_cond *c);
/* Unlocks m, waits until signal or broadcast wakes this wait, and locks m again. There are no spurious wakes. When the
 * call returns, m is held again, even after an error, unless the error came from locking m. EOWNERDEAD,
 * ENOTRECOVERABLE: m is not held. EPERM: this process did not hold m, and the call has not waited. A call that returns
 * an error has used up no signal. */
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m);
/* As shmsync_cond_wait, but it waits until that CLOCK_MONOTONIC time at most. ETIMEDOUT: the time has passed. */
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic);
/* As shmsync_cond_timedwait, with any lock: unlock and lock are functions that unlock and lock it, and return 0 or an
 * errno. If abs_monotonic is NULL, the wait has no time limit. The wait itself can fail with ENOSPC, EPROTO, EBADF and
 * ETIMEDOUT, and then the lock is held. If lock can fail with one of these too, let unlock and lock note in *arg whether
 * the lock is held: the call does not say which of the two failed. */
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic);
/* Wakes the wait that has lasted longest. */
int shmsync_cond_signal(shmsync_cond *c);
/* Wakes all waits that have begun. */
int shmsync_cond_broadcast(shmsync_cond *c);
