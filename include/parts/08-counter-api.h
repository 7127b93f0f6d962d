
/* ---- WaitGroup and Latch: a counter of what is still to be done ---- */

/* A handle on a WaitGroup of an arena. A copy is the same handle. */
typedef struct shmsync_waitgroup {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_waitgroup;

/* The options of shmsync_waitgroup_open and shmsync_waitgroup_attach. */
typedef struct shmsync_waitgroup_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_waitgroup_options;

/* Finds the WaitGroup of that name, or creates it. If name is NULL or "", creates a new anonymous WaitGroup. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
/* Finds the WaitGroup of that name. ENOENT: there is none. */
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
/* Opens the WaitGroup at an offset that shmsync_waitgroup_offset returned in this process or another. EINVAL: there is
 * no WaitGroup at off. */
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out);
/* Returns the offset of the WaitGroup in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g);
/* Closes one opening of the WaitGroup. The share and the waits of this process stay as they are. */
int shmsync_waitgroup_close(shmsync_waitgroup *g);
/* Adds delta to the counter. The units that a process adds are its share until they are done. EINVAL, with nothing
 * changed: the counter would become negative, or too large. */
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta);
/* Makes this process responsible for n units that other processes have added. If this process dies before these units
 * are done, waits fail. EINVAL: other processes have added fewer than n units. While another process is dying, the call
 * may wait until the units of that process can be claimed. If other processes count units down during the call, the
 * call may fail after it has claimed a part of n: this process stays responsible for that part. */
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n);
/* Adds -1 to the counter, as shmsync_waitgroup_add does. */
int shmsync_waitgroup_done(shmsync_waitgroup *g);
/* Waits until the counter is 0. EOWNERDEAD: a process died before its share was done. */
int shmsync_waitgroup_wait(shmsync_waitgroup *g);
/* As shmsync_waitgroup_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic);
/* Waits until the dead processes are gone, and takes from the counter what was left of their shares. */
int shmsync_waitgroup_reset(shmsync_waitgroup *g);
/* The counter: how much is still to be done. */
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g);

/* A handle on a Latch of an arena. A copy is the same handle. */
typedef struct shmsync_latch {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_latch;

/* The options of shmsync_latch_open and shmsync_latch_attach. */
typedef struct shmsync_latch_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_latch_options;

/* Finds the Latch of that name, or creates it. If name is NULL or "", creates a new anonymous Latch. The counter of a
 * new Latch begins at n, at least 1. EINVAL: n is less than 1, or an existing Latch began with another number. */
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out);
/* Finds the Latch of that name. ENOENT: there is none. */
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out);
/* Opens the Latch at an offset that shmsync_latch_offset returned in this process or another. EINVAL: there is no Latch
 * at off. */
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out);
/* Returns the offset of the Latch in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_latch_offset(const shmsync_latch *l);
/* Closes one opening of the Latch. The claims and waits of this process stay as they are. */
int shmsync_latch_close(shmsync_latch *l);
/* Declares that this process will count down n. If this process dies first, waits fail. Waits do not notice the death
 * of a process that has claimed nothing. EINVAL: n is more than the part of the counter that no living process has
 * claimed. While another process is dying, the call may wait until the claim of that process can be taken over. */
int shmsync_latch_claim(shmsync_latch *l, int64_t n);
/* Takes n from the counter. EINVAL, with nothing changed: less than n is left. */
int shmsync_latch_count_down(shmsync_latch *l, int64_t n);
/* As shmsync_latch_wait, but it does not wait. EBUSY: the counter is not 0. */
int shmsync_latch_trywait(shmsync_latch *l);
/* Waits until the counter is 0. EOWNERDEAD: a process died before it had counted down what it claimed. */
int shmsync_latch_wait(shmsync_latch *l);
/* As shmsync_latch_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic);
/* Counts down n, and waits. If the wait fails, the call has counted down nevertheless. EBADF: another thread closed the
 * handle or the arena; if shmsync_error names latch.wait, the call has counted down. After EPROTO the call may or may
 * not have counted down. */
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n);
/* Waits until the dead processes are gone, and takes from the counter what they had claimed and not counted down. */
int shmsync_latch_reset(shmsync_latch *l);
/* The counter: how much is still to be counted down. */
int64_t shmsync_latch_count(const shmsync_latch *l);
