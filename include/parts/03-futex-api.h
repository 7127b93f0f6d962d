/* ---- Futex: an eventcount, the Futex of the Go side ---- */

/* A handle on a futex of an arena. A copy is the same handle. */
typedef struct shmsync_futex {
    struct shmi_futex *impl;
    uint64_t serial;
} shmsync_futex;

/* The options of shmsync_futex_open and shmsync_futex_attach. */
typedef struct shmsync_futex_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_futex_options;

/* Finds the futex of that name, or creates it. If name is NULL or "", creates a new anonymous futex. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_futex_open(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
/* Finds the futex of that name. ENOENT: there is none. */
int shmsync_futex_attach(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
/* Opens the futex at an offset that shmsync_futex_offset returned in this process or another. EINVAL: there is no futex
 * at off. */
int shmsync_futex_at(shmsync_arena *a, shmsync_offset off, shmsync_futex *out);
/* Returns the offset of the futex in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_futex_offset(const shmsync_futex *f);
/* Closes one opening of the futex. The waits of this process stay as they are. */
int shmsync_futex_close(shmsync_futex *f);
/* Returns the number of posts so far. To wait for the next n posts, pass this number plus n as the token. */
uint64_t shmsync_futex_get(const shmsync_futex *f);
/* Adds one to the number of posts, and wakes all waiters. The call never blocks. It does nothing after
 * shmsync_futex_stop. */
int shmsync_futex_post(shmsync_futex *f);
/* Waits until the number of posts has reached token. ECANCELED: the futex was stopped before that. EINVAL: the number
 * of posts can never reach token. If token is reached, the result is 0, even if the futex was stopped or the time of
 * shmsync_futex_timedwait has passed. */
int shmsync_futex_wait(shmsync_futex *f, uint64_t token);
/* As shmsync_futex_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_futex_timedwait(shmsync_futex *f, uint64_t token, const struct timespec *abs_monotonic);
/* Stops the futex: all present and later waits end with ECANCELED, unless the token of the wait is reached. */
int shmsync_futex_stop(shmsync_futex *f);
/* Whether the futex was stopped: 1 or 0. */
int shmsync_futex_stopped(const shmsync_futex *f);
