
/* ---- Sequencer: a counter that goes up, and its waiters ---- */

/* A handle on a Sequencer of an arena. A copy is the same handle. */
typedef struct shmsync_sequencer {
    struct shmi_sequencer *impl;
    uint64_t serial;
} shmsync_sequencer;

/* The options of shmsync_sequencer_open and shmsync_sequencer_attach. */
typedef struct shmsync_sequencer_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    uint64_t initial; /* value of a new Sequencer */
    int64_t spin_ns;  /* see shmsync_mutex_options */
} shmsync_sequencer_options;

/* Finds the Sequencer of that name, or creates it. If name is NULL or "", creates a new anonymous Sequencer. EINVAL: an
 * existing object is of another kind, or has other options. */
int shmsync_sequencer_open(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out);
/* Finds the Sequencer of that name. ENOENT: there is none. */
int shmsync_sequencer_attach(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out);
/* Opens the Sequencer at an offset that shmsync_sequencer_offset returned in this process or another. EINVAL: there is
 * no Sequencer at off. */
int shmsync_sequencer_at(shmsync_arena *a, shmsync_offset off, shmsync_sequencer *out);
/* Returns the offset of the Sequencer in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_sequencer_offset(const shmsync_sequencer *s);
/* Closes one opening of the Sequencer. The waits of this process stay as they are. */
int shmsync_sequencer_close(shmsync_sequencer *s);
/* Returns the value of the counter. */
uint64_t shmsync_sequencer_value(const shmsync_sequencer *s);
/* Adds one to the counter, and wakes the waiters whose token is reached. *value is the new value of the counter; value
 * may be NULL. */
int shmsync_sequencer_increment(shmsync_sequencer *s, uint64_t *value);
/* Raises the counter to v if the counter is less than v. *advanced is 1 if the counter was less than v, and 0
 * otherwise; advanced may be NULL. */
int shmsync_sequencer_advance(shmsync_sequencer *s, uint64_t v, int *advanced);
/* Waits until the counter has reached token. ECANCELED: before that, a call stopped or reset the Sequencer, or
 * cancelled its waits. */
int shmsync_sequencer_wait(shmsync_sequencer *s, uint64_t token);
/* As shmsync_sequencer_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_sequencer_timedwait(shmsync_sequencer *s, uint64_t token, const struct timespec *abs_monotonic);
/* Ends every wait that began before this call with ECANCELED, unless the token of the wait is reached. The call does
 * not wait until the waiters have woken. If the token of a wait is reached before its waiter has woken, the wait may
 * still return 0. */
int shmsync_sequencer_cancel_waiters(shmsync_sequencer *s);
/* Stops the Sequencer: all present and later waits end with ECANCELED, unless the token of the wait is reached. The
 * counter can still be changed. */
int shmsync_sequencer_stop(shmsync_sequencer *s);
/* Whether the Sequencer was stopped: 1 or 0. */
int shmsync_sequencer_stopped(const shmsync_sequencer *s);
/* Ends all waits as shmsync_sequencer_cancel_waiters does, and sets the counter to v, which may be less than the
 * present value. If another process increments the counter during the call, this increment may be lost. A reset does
 * not undo a stop. */
int shmsync_sequencer_reset(shmsync_sequencer *s, uint64_t v);
