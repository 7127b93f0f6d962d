
/* ---- Once ---- */

/* A handle on an Once of an arena. A copy is the same handle. */
typedef struct shmsync_once {
    struct shmi_once *impl;
    uint64_t serial;
} shmsync_once;

/* The options of shmsync_once_open and shmsync_once_attach. */
typedef struct shmsync_once_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_once_options;

/* Finds the Once of that name, or creates it. NULL or "" as the name: a fresh anonymous one. EINVAL: an existing
 * object is of another kind, or has other options. */
int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
/* Finds the Once of that name. ENOENT: there is none. */
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
/* Opens the Once at an offset that shmsync_once_offset gave, in this process or another. EINVAL: none is there. */
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out);
/* Returns the offset of the Once in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_once_offset(const shmsync_once *o);
/* Gives one opening of the Once back. The holds and waits of this process stay as they are. */
int shmsync_once_close(shmsync_once *o);
/* Calls f if no process has called its function for this Once yet. Otherwise it waits until that function has
 * returned. If a process dies while it runs its function, the next call runs its own f. EDEADLK: the caller is f,
 * which another call on the same Once runs in this thread. */
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg);
/* As shmsync_once_do, but it waits for another process until that CLOCK_MONOTONIC time at most. ETIMEDOUT: the time
 * has passed, and another process still runs its function. */
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic);
/* Whether a function has returned: 1 or 0. */
int shmsync_once_done(const shmsync_once *o);

/* ---- Barrier ---- */

/* A handle on a Barrier of an arena. A copy is the same handle. */
typedef struct shmsync_barrier {
    struct shmi_barrier *impl;
    uint64_t serial;
} shmsync_barrier;

/* The options of shmsync_barrier_open and shmsync_barrier_attach. */
typedef struct shmsync_barrier_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    /* Called when an arrival of this process is the last of a phase, before any waiter is released. If the process
     * dies while it runs the function, the phase is broken. The function belongs to this process, not to the
     * Barrier. */
    void (*completion)(void *);
    void *completion_arg;
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_barrier_options;

/* Finds the Barrier of that name, or creates it. NULL or "" as the name: a fresh anonymous one. The number of parties
 * is at least 1. EINVAL: it is less than 1, or an existing Barrier began with another number. */
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out);
/* Finds the Barrier of that name. ENOENT: there is none. */
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out);
/* Opens the Barrier at an offset that shmsync_barrier_offset gave, in this process or another. EINVAL: none is
 * there. */
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out);
/* Returns the offset of the Barrier in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b);
/* Gives one opening of the Barrier back. The holds and waits of this process stay as they are. */
int shmsync_barrier_close(shmsync_barrier *b);
/* Counts n arrivals, and sets *phase to the number of the phase, for shmsync_barrier_wait. While a process runs the
 * completion of a phase, the call waits until that phase is over, and then counts in the next phase. EINVAL, with
 * nothing counted: fewer than n arrivals are expected. EDEADLK, with nothing counted: the caller is the completion of
 * this Barrier. At a broken barrier the call counts nothing. */
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase);
/* As shmsync_barrier_arrive, but it waits until that CLOCK_MONOTONIC time at most for a completion that a process
 * runs. ETIMEDOUT: the time has passed, and nothing is counted. */
int shmsync_barrier_timedarrive(shmsync_barrier *b, int64_t n, uint64_t *phase, const struct timespec *abs_monotonic);
/* Waits until a phase is over. EOWNERDEAD: a party died before it arrived. EINVAL: there is no such phase yet.
 * EDEADLK: the caller is the completion of the phase. */
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase);
/* As shmsync_barrier_wait, but it waits until that CLOCK_MONOTONIC time at most. ETIMEDOUT: the time has passed. */
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic);
/* Arrives once, and waits until the phase is over. EDEADLK, with nothing counted: the caller is the completion of this
 * Barrier. EBADF: another thread closed the handle or the arena; the arrival has counted if shmsync_error names
 * barrier.wait. After EPROTO it is not known whether the arrival has counted. */
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b);
/* As shmsync_barrier_arrive_and_wait, but it waits until that CLOCK_MONOTONIC time at most. ETIMEDOUT: the time has
 * passed; the arrival still counts, unless the completion of the previous phase was running at that time. Then
 * shmsync_error names barrier.arrive. */
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic);
/* Arrives once, and lowers the number of parties of all later phases by one. EDEADLK, with nothing counted: the caller
 * is the completion of this Barrier. */
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b);
/* Registers this process for n more of the parties: if it dies before they have arrived, the phase is broken. If a
 * process dies that neither registered nor arrived, the others go on waiting. */
int shmsync_barrier_register(shmsync_barrier *b, int64_t n);
/* Undoes the registration of this process: it is no party any more, and other processes arrive in its place. */
int shmsync_barrier_deregister(shmsync_barrier *b);
/* The number of parties that died since the barrier was created or reset. */
int64_t shmsync_barrier_lost(const shmsync_barrier *b);
/* Begins another phase of a broken barrier, for that many parties. If parties is 0, it computes their number: the
 * expected parties less those that died. *did, if did is not NULL, says whether this call reset the barrier. The call
 * waits until the dead processes are gone. */
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did);
