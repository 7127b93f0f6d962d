
/* ---- Event: set or not, and its waiters ---- */

/* A handle on an Event of an arena. A copy is the same handle. */
typedef struct shmsync_event {
    struct shmi_event *impl;
    uint64_t serial;
} shmsync_event;

/* The options of shmsync_event_open and shmsync_event_attach. */
typedef struct shmsync_event_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int auto_reset;  /* not 0: each set ends one wait */
    int bidirectional;     /* not 0: shmsync_event_wait_reset is possible, too; not together with auto_reset */
    int set;         /* not 0: a new Event is set from the start */
    int64_t spin_ns; /* see shmsync_mutex_options */
} shmsync_event_options;

/* Finds the Event of that name, or creates it. If name is NULL or "", creates a new anonymous Event. EINVAL: an
 * existing Event lacks a mode that opts asks for, or the object is of another kind. */
int shmsync_event_open(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
/* Finds the Event of that name. ENOENT: there is none. */
int shmsync_event_attach(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
/* Opens the Event at an offset that shmsync_event_offset returned in this process or another. EINVAL: there is no Event
 * at off. */
int shmsync_event_at(shmsync_arena *a, shmsync_offset off, shmsync_event *out);
/* Returns the offset of the Event in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_event_offset(const shmsync_event *e);
/* Closes one opening of the Event. The waits of this process stay as they are. */
int shmsync_event_close(shmsync_event *e);
/* Sets the Event. Without auto_reset, this ends all waits. With auto_reset, it ends one wait; if there is none, the
 * next wait returns at once. */
int shmsync_event_set(shmsync_event *e);
/* Resets the Event: it is not set afterwards. */
int shmsync_event_reset(shmsync_event *e);
/* Whether the Event is set: 1 or 0. In a child of fork the result is 0. */
int shmsync_event_is_set(const shmsync_event *e);
/* Waits until the Event is set. With auto_reset, each set ends only one wait. */
int shmsync_event_wait(shmsync_event *e);
/* As shmsync_event_wait, but it does not wait. EBUSY: it is not set. */
int shmsync_event_trywait(shmsync_event *e);
/* As shmsync_event_wait, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic);
/* Waits until the Event is not set. EINVAL: the Event is not bidirectional. */
int shmsync_event_wait_reset(shmsync_event *e);
/* As shmsync_event_wait_reset, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. */
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic);
