
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

/* Finds the Once of that name, or creates it. If name is NULL or "", creates a new anonymous Once. EINVAL: an existing
 * object is of another kind, or has other options. */
int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
/* Finds the Once of that name. ENOENT: there is none. */
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
/* Opens the Once at an offset that shmsync_once_offset returned in this process or another. EINVAL: there is no Once at
 * off. */
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out);
/* Returns the offset of the Once in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_once_offset(const shmsync_once *o);
/* Closes one opening of the Once. The turn and the waits of this process stay as they are. */
int shmsync_once_close(shmsync_once *o);
/* Calls f(arg), unless the function of another call on this Once has returned before. While another call runs its
 * function, this call waits until that function has returned. If a process dies while it runs its function, the next
 * call runs its own f. EDEADLK: the call comes from inside a function that this Once runs. */
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg);
/* As shmsync_once_do, but it waits for the function of another call at most until the CLOCK_MONOTONIC time
 * abs_monotonic. ETIMEDOUT: the time has passed, and that function has not returned. */
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic);
/* Returns 1 if the Once is done, that is, a function that it ran has returned. Otherwise returns 0. */
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

/* Finds the Barrier of that name, or creates it. If name is NULL or "", creates a new anonymous Barrier. The number of
 * parties is at least 1. EINVAL: parties is less than 1, or an existing Barrier was created for another number. */
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out);
/* Finds the Barrier of that name. ENOENT: there is none. */
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out);
/* Opens the Barrier at an offset that shmsync_barrier_offset returned in this process or another. EINVAL: there is no
 * Barrier at off. */
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out);
/* Returns the offset of the Barrier in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b);
/* Closes one opening of the Barrier. The parties and waits of this process stay as they are. */
int shmsync_barrier_close(shmsync_barrier *b);
/* Counts n arrivals, and sets *phase to the number of the phase, for shmsync_barrier_wait. While a process runs the
 * completion of a phase, the call waits until that phase is over. Then its arrivals count for the next phase. EINVAL,
 * with nothing counted: fewer than n arrivals are expected. EDEADLK, with nothing counted: the completion function of
 * this Barrier made the call. At a broken Barrier the call counts nothing and returns 0, and *phase is the number of
 * the broken phase. */
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase);
/* As shmsync_barrier_arrive, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic for a completion that a
 * process runs. ETIMEDOUT: the time has passed, and nothing is counted. */
int shmsync_barrier_timedarrive(shmsync_barrier *b, int64_t n, uint64_t *phase, const struct timespec *abs_monotonic);
/* Arrives once as shmsync_barrier_arrive does, and sets *index to the number of parties that have arrived before in the
 * phase: 0 for the first, and for the last one less than there are parties. So one party can be chosen for a task, as
 * PTHREAD_BARRIER_SERIAL_THREAD chooses one. Parties that drop do not count. If the call counts nothing, because the
 * Barrier is broken, *index is -1. */
int shmsync_barrier_arrive_index(shmsync_barrier *b, uint64_t *phase, int64_t *index);
/* As shmsync_barrier_arrive_index, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic for a completion
 * that a process runs. ETIMEDOUT: the time has passed, and nothing is counted. */
int shmsync_barrier_timedarrive_index(shmsync_barrier *b, uint64_t *phase, int64_t *index, const struct timespec *abs_monotonic);
/* Waits until a phase is over. EOWNERDEAD: a party died before it arrived. EINVAL: the phase has not begun. EDEADLK:
 * the completion function of the phase made the call. */
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase);
/* As shmsync_barrier_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic);
/* Arrives once, and waits until the phase is over. EDEADLK, with nothing counted: the completion function of this
 * Barrier made the call. EBADF: another thread closed the handle or the arena; if shmsync_error names barrier.wait, the
 * arrival has counted. After EPROTO the arrival may or may not have counted. */
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b);
/* As shmsync_barrier_arrive_and_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the
 * time has passed. If shmsync_error names barrier.arrive, the completion of the previous phase was still running, and
 * the arrival does not count. Otherwise the arrival counts. */
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic);
/* Arrives once, and lowers the number of parties of all later phases by one. EDEADLK, with nothing counted: the
 * completion function of this Barrier made the call. */
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b);
/* Adds n to the number of parties that belong to this process. If this process dies before all its parties have
 * arrived, the phase is broken. If a process dies that has neither registered nor arrived, the other parties go on
 * waiting. */
int shmsync_barrier_register(shmsync_barrier *b, int64_t n);
/* Undoes the registration of this process: no party belongs to it any more. The Barrier expects as many arrivals as
 * before, so other processes have to arrive in its place. */
int shmsync_barrier_deregister(shmsync_barrier *b);
/* The number of parties that died since the barrier was created or reset. */
int64_t shmsync_barrier_lost(const shmsync_barrier *b);
/* Begins a new phase of a broken Barrier, for the given number of parties. If parties is 0, the new number is that of
 * the expected parties minus that of the parties that died. *did, if did is not NULL, says whether this call reset the
 * Barrier. The call waits until the dead processes are gone. */
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did);
