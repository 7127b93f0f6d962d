
/* ---- Future: a result that is set once ---- */

/* A handle on a Future of an arena. A copy is the same handle. */
typedef struct shmsync_future {
    struct shmi_future *impl;
    uint64_t serial;
} shmsync_future;

/* The options of shmsync_future_open and shmsync_future_attach. */
typedef struct shmsync_future_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_future_options;

/* Finds the Future of that name, or creates it. If name is NULL or "", creates a new anonymous Future. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_future_open(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out);
/* Finds the Future of that name. ENOENT: there is none. */
int shmsync_future_attach(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out);
/* Opens the Future at an offset that shmsync_future_offset returned in this process or another. EINVAL: there is no
 * Future at off. */
int shmsync_future_at(shmsync_arena *a, shmsync_offset off, shmsync_future *out);
/* Returns the offset of the Future in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_future_offset(const shmsync_future *f);
/* Closes one opening of the Future. The claim and the waits of this process stay as they are. */
int shmsync_future_close(shmsync_future *f);
/* Makes this process the producer. EBUSY: another process is the producer, the Future is set, or its producer died. */
int shmsync_future_claim(shmsync_future *f);
/* Sets the Future to result: an errno, or 0 for success. EBUSY: it is set, or its producer died. */
int shmsync_future_set(shmsync_future *f, int result);
/* Returns 1 if the Future is set, otherwise 0. If it is set, *result is the result that was set. The pointer result may
 * be NULL. */
int shmsync_future_is_set(const shmsync_future *f, int *result);
/* Waits until the Future is set. EOWNERDEAD: the process that had claimed it died. */
int shmsync_future_wait(shmsync_future *f, int *result);
/* As shmsync_future_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_future_timedwait(shmsync_future *f, int *result, const struct timespec *abs_monotonic);
/* Resets a Future that is set, or whose producer died. Afterwards the Future is not set. If the producer died, the call
 * first waits until the producer is gone. EBUSY: the Future is not set, and its producer, if it has one, lives. */
int shmsync_future_reset(shmsync_future *f);
