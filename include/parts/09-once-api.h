
/* ---- Once ---- */

typedef struct shmsync_once {
    struct shmi_once *impl;
    uint64_t serial;
} shmsync_once;

typedef struct shmsync_once_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int64_t spin_ns; /* as of a mutex */
} shmsync_once_options;

int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out);
shmsync_offset shmsync_once_offset(const shmsync_once *o);
int shmsync_once_close(shmsync_once *o);
/* Calls f if no call has done so yet, in whatever process, and waits until the one that
 * has returns. When the process that runs it dies over it, the next call runs its own. */
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg);
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic);
int shmsync_once_done(const shmsync_once *o);

/* ---- Barrier ---- */

typedef struct shmsync_barrier {
    struct shmi_barrier *impl;
    uint64_t serial;
} shmsync_barrier;

typedef struct shmsync_barrier_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    /* Called when an arrival of this process is the last of a phase, before anybody is let
     * go. When its process dies over it the phase is broken. This process's own. */
    void (*completion)(void *);
    void *completion_arg;
    int64_t spin_ns; /* as of a mutex */
} shmsync_barrier_options;

/* The number of parties is at least 1. EINVAL: less, or an existing barrier began with another number. */
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out);
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out);
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out);
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b);
int shmsync_barrier_close(shmsync_barrier *b);
/* Counts n arrivals, and gives the number of the phase, for wait. EINVAL, with nothing
 * counted: more than are expected. At a broken barrier it counts nothing. */
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase);
/* Waits until a phase is over. EOWNERDEAD: a party died before it arrived. EINVAL: no
 * phase can have that number yet. */
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase);
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic);
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b);
/* The arrival stays made, whatever comes of the wait. */
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic);
/* Arrives once, and makes the parties of all later phases one less. */
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b);
/* This process is n more of the parties; or none of them any more, and others arrive in its
 * stead. The death of a process that neither joined nor arrived leaves the others waiting. */
int shmsync_barrier_register(shmsync_barrier *b, int64_t n);
int shmsync_barrier_deregister(shmsync_barrier *b);
/* How many of the parties died since the barrier was created or reset. */
int64_t shmsync_barrier_lost(const shmsync_barrier *b);
/* Begins another phase of a broken barrier, for that many parties. For 0 it computes them:
 * those that were expected less those that died. did, which may be NULL, tells whether
 * this call did it. It waits until those that died are gone. */
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did);
