
#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: permits that belong to the process that acquired them ---- */

/* A handle on a Semaphore of an arena. A copy is the same handle. */
typedef struct shmsync_semaphore {
    struct shmi_semaphore *impl;
    uint64_t serial;
} shmsync_semaphore;

/* The options of shmsync_semaphore_open and shmsync_semaphore_attach. */
typedef struct shmsync_semaphore_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    int transferable; /* permits belong to no process: any process may release them, and a death returns none */
    int64_t initial;  /* free permits of a new transferable semaphore; 0: all n; negative: none */
    int64_t spin_ns;  /* see shmsync_mutex_options */
} shmsync_semaphore_options;

/* Finds the Semaphore of that name, or creates it with n permits, at least 1. If name is NULL or "", creates a new
 * anonymous Semaphore. EINVAL: n is less than 1, or an existing semaphore has another number of permits. */
int shmsync_semaphore_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
/* Finds the Semaphore of that name. ENOENT: there is none. */
int shmsync_semaphore_attach(shmsync_arena *a, const char *name, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
/* Opens the Semaphore at an offset that shmsync_semaphore_offset returned in this process or another. EINVAL: there is
 * no Semaphore at off. */
int shmsync_semaphore_at(shmsync_arena *a, shmsync_offset off, shmsync_semaphore *out);
/* Returns the offset of the Semaphore in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s);
/* Closes one opening of the Semaphore. The permits and waits of this process stay as they are. */
int shmsync_semaphore_close(shmsync_semaphore *s);
/* Acquires n permits, and waits until they are free. Waiters get permits in the order of arrival. EINVAL: n is more
 * than the semaphore has in all. ENOSPC: the arena has no room for a wait node. */
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n);
/* As shmsync_semaphore_acquire, but it does not wait. EBUSY: fewer than n permits are free, or others wait. The result
 * is EBUSY, too, if n is more than the semaphore has in all. */
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n);
/* As shmsync_semaphore_acquire, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. The result is ETIMEDOUT, too, if n is more than the semaphore has in all. If the permits are free at
 * once, the call takes them even if the time has passed. */
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic);
/* Gives n permits back. EPERM, with nothing released: this process has fewer than n permits; or a transferable
 * semaphore would have more permits than its size. */
int shmsync_semaphore_release(shmsync_semaphore *s, int64_t n);
/* The number of permits that are available. */
int64_t shmsync_semaphore_free(const shmsync_semaphore *s);
#endif
