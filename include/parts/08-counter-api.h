
/* ---- WaitGroup and Latch: a counter of what is still to be done ---- */

typedef struct shmsync_waitgroup {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_waitgroup;

typedef struct shmsync_waitgroup_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int64_t spin_ns; /* as of a mutex */
} shmsync_waitgroup_options;

int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out);
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g);
int shmsync_waitgroup_close(shmsync_waitgroup *g);
/* What a process adds is its own until it is done. EINVAL, with nothing changed: the
 * counter would be negative, or too big. */
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta);
/* Makes n of what others have added this process's own: if it dies before it is done,
 * waits fail. EINVAL: more than others have added. If others do some of the work during such
 * a call, this process may have claimed a part of n, and stays responsible for that part. */
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n);
int shmsync_waitgroup_done(shmsync_waitgroup *g);
/* Waits until the counter is 0. EOWNERDEAD: a process died that had something of its own left. */
int shmsync_waitgroup_wait(shmsync_waitgroup *g);
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic);
/* Forgets what the dead had left, when they are gone. */
int shmsync_waitgroup_reset(shmsync_waitgroup *g);
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g);

typedef struct shmsync_latch {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_latch;

typedef struct shmsync_latch_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int64_t spin_ns; /* as of a mutex */
} shmsync_latch_options;

/* The counter begins at n, at least 1. EINVAL: less, or an existing latch began with another number. */
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out);
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out);
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out);
shmsync_offset shmsync_latch_offset(const shmsync_latch *l);
int shmsync_latch_close(shmsync_latch *l);
/* This process will count down n: if it dies before, waits fail. The death of a process that
 * has not claimed leaves them waiting. EINVAL: more than is left and nobody living has claimed. */
int shmsync_latch_claim(shmsync_latch *l, int64_t n);
/* EINVAL, with nothing changed: more than are left. */
int shmsync_latch_count_down(shmsync_latch *l, int64_t n);
/* EBUSY: the counter is not 0. */
int shmsync_latch_trywait(shmsync_latch *l);
int shmsync_latch_wait(shmsync_latch *l);
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic);
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n);
int shmsync_latch_reset(shmsync_latch *l);
int64_t shmsync_latch_count(const shmsync_latch *l);
