
#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: permits that belong to the process that acquired them ---- */

typedef struct shmsync_semaphore {
    struct shmi_semaphore *impl;
    uint64_t serial;
} shmsync_semaphore;

typedef struct shmsync_semaphore_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    int transferable; /* it only counts: anybody may release, and nothing comes back from the dead */
    int64_t initial;  /* permits of a new transferable one; 0: all, negative: none */
    int64_t spin_ns;  /* as of a mutex */
} shmsync_semaphore_options;

/* n permits, at least 1. EINVAL: fewer, or an existing semaphore has another number. */
int shmsync_semaphore_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
int shmsync_semaphore_attach(shmsync_arena *a, const char *name, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
int shmsync_semaphore_at(shmsync_arena *a, shmsync_offset off, shmsync_semaphore *out);
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s);
int shmsync_semaphore_close(shmsync_semaphore *s);
/* Acquires n permits, in the order of arrival. EINVAL: more than there will ever be. */
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n);
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n);
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic);
/* EPERM, with nothing released: this process has not so many; of a transferable one, there
 * would be more than its size. */
int shmsync_semaphore_release(shmsync_semaphore *s, int64_t n);
/* How many can be had. */
int64_t shmsync_semaphore_free(const shmsync_semaphore *s);
#endif
