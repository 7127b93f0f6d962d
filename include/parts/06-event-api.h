
/* ---- Event: set or not, and its waiters ---- */

typedef struct shmsync_event {
    struct shmi_event *impl;
    uint64_t serial;
} shmsync_event;

typedef struct shmsync_event_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int auto_reset;  /* each set lets one wait go */
    int bidirectional;     /* one can wait for the reset, too; not with auto_reset */
    int set;         /* a new one is set */
    int64_t spin_ns; /* as of a mutex */
} shmsync_event_options;

/* An existing one that lacks a mode that was asked for: EINVAL. */
int shmsync_event_open(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
int shmsync_event_attach(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
int shmsync_event_at(shmsync_arena *a, shmsync_offset off, shmsync_event *out);
shmsync_offset shmsync_event_offset(const shmsync_event *e);
int shmsync_event_close(shmsync_event *e);
/* Lets waiters go: all, or with auto_reset the first, or the next to come. */
int shmsync_event_set(shmsync_event *e);
int shmsync_event_reset(shmsync_event *e);
int shmsync_event_is_set(const shmsync_event *e);
/* Waits until it is set; with auto_reset it takes the token. ENOSPC: no room for a wait. */
int shmsync_event_wait(shmsync_event *e);
int shmsync_event_trywait(shmsync_event *e);
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic);
/* Waits until it is not set. EINVAL: it is not bidirectional. */
int shmsync_event_wait_reset(shmsync_event *e);
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic);
