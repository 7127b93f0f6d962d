/* ---- Synchronized: a value with its lock, which is changed wholly or not at all ---- */

/* A handle on a Synchronized of an arena. A copy is the same handle. */
typedef struct shmsync_synchronized {
    struct shmi_synchronized *impl;
    uint64_t serial;
} shmsync_synchronized;

/* The options of shmsync_synchronized_open and shmsync_synchronized_attach. */
typedef struct shmsync_synchronized_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    const void *initial; /* the value of a new one; NULL: all zero */
    uint64_t layout;     /* fingerprint of the value, from shmsync_layout; 0: an existing Synchronized may have any fingerprint */
    int64_t spin_ns;     /* see shmsync_mutex_options */
    const char *type;    /* description for shmsync_layout, used instead of layout; the name of each field stands before the @ of the field */
} shmsync_synchronized_options;

/* Finds the Synchronized of that name, or creates it. If name is NULL or "", creates a new anonymous Synchronized. The
 * value has size bytes, at most 65536. EINVAL: an existing one has another size or layout. */
int shmsync_synchronized_open(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out);
/* Finds the Synchronized of that name. ENOENT: there is none. EINVAL: it has another size or layout. */
int shmsync_synchronized_attach(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out);
/* Opens the Synchronized at an offset that shmsync_synchronized_offset returned in this process or another. EINVAL:
 * there is no Synchronized at off. */
int shmsync_synchronized_at(shmsync_arena *a, shmsync_offset off, size_t size, shmsync_synchronized *out);
/* Returns the offset of the Synchronized in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_synchronized_offset(const shmsync_synchronized *s);
/* Closes one opening of the Synchronized. A begin without a commit, and the waits of this process, stay as they are. */
int shmsync_synchronized_close(shmsync_synchronized *s);
/* Locks the Synchronized, and sets *copy to a copy of its value, aligned to 64 bytes. The process may change the copy,
 * in any order, until commit or abort. If the process dies before it has committed, the value is as it was before
 * begin. A second begin of this process waits for the first. */
int shmsync_synchronized_begin(shmsync_synchronized *s, void **copy);
/* As shmsync_synchronized_begin, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time
 * has passed. A free lock is taken even if the time has passed. */
int shmsync_synchronized_timedbegin(shmsync_synchronized *s, void **copy, const struct timespec *abs_monotonic);
/* Makes the copy the value, in one step, and unlocks. EPERM: this process is not between begin and commit. */
int shmsync_synchronized_commit(shmsync_synchronized *s);
/* Unlocks, and the value is as it was before begin. EPERM: this process is not between begin and commit. */
int shmsync_synchronized_abort(shmsync_synchronized *s);
/* Copies the value to dst, normally without the lock. The call takes the lock only if commits of other processes
 * overtake the copy again and again. It does not wait for a stopped or dead process that is between begin and commit.
 * While the call runs, dst may have parts of several values; when it returns 0, dst has one whole value. */
int shmsync_synchronized_load(const shmsync_synchronized *s, void *dst);
/* Sets the value to *src, as a begin, a change of the copy and a commit would. */
int shmsync_synchronized_store(shmsync_synchronized *s, const void *src);
/* The number of commits so far, including those of shmsync_synchronized_store. */
uint64_t shmsync_synchronized_commits(const shmsync_synchronized *s);

