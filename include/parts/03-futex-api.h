/* ---- Futex: an eventcount, the Futex of the Go side ---- */

typedef struct shmsync_futex {
    struct shmi_futex *impl;
    uint64_t serial;
} shmsync_futex;

typedef struct shmsync_futex_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int64_t spin_ns; /* as of a mutex */
} shmsync_futex_options;

int shmsync_futex_open(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
int shmsync_futex_attach(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
int shmsync_futex_at(shmsync_arena *a, shmsync_offset off, shmsync_futex *out);
shmsync_offset shmsync_futex_offset(const shmsync_futex *f);
int shmsync_futex_close(shmsync_futex *f);
/* How many posts there have been. A token is that plus the posts to wait for. */
uint64_t shmsync_futex_get(const shmsync_futex *f);
/* Counts up and wakes all waiters. Never blocks. */
int shmsync_futex_post(shmsync_futex *f);
/* Waits until the count has reached token. ECANCELED: stopped before that. */
int shmsync_futex_wait(shmsync_futex *f, uint64_t token);
int shmsync_futex_timedwait(shmsync_futex *f, uint64_t token, const struct timespec *abs_monotonic);
/* Ends all waits, now and later, with ECANCELED, unless their token was reached. */
int shmsync_futex_stop(shmsync_futex *f);
int shmsync_futex_stopped(const shmsync_futex *f);
