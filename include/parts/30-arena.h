/* ---- Failures in words ---- */

/* The parts of a failure from which its text can be made. */
typedef struct shmi_brief_failure {
    char op[64];
    char object[64];
} shmi_brief_failure;

/* The last failure of a thread. A shared library has little room for thread-local variables, so the text shares its
 * memory with the parts from which the text can be made. */
typedef struct shmi_failure {
    union {
        char text[504];
        shmi_brief_failure of; /* valid if brief is not 0 */
    };
    int err;         /* the failure noted by the current call, or by the last call if none is under way; 0: none */
    int brief;       /* the error whose text is not made yet; 0: text is valid */
    int who_known;
    shmsync_participant who;
} shmi_failure;

static SHMI_THREAD shmi_failure shmi_last;

/* The number of bytes of the first character of s if a text shows this character without an escape; otherwise 0.
 * Control characters, bytes that are not UTF-8 and, in quotes, quotes and backslashes are escaped: names, paths and
 * labels may contain anything, and a terminal or a log must not interpret their bytes. */
SHMI_FN size_t shmi_plain_bytes(const char *s, int quoted)
{
    const unsigned char *c = (const unsigned char *)s;
    size_t i, n = *c < 0x80 ? 1 : *c >= 0xc2 && *c <= 0xdf ? 2 : *c >= 0xe0 && *c <= 0xef ? 3 : *c >= 0xf0 && *c <= 0xf4 ? 4 : 0;
    if (*c < 0x20 || *c == 0x7f || (quoted && (*c == '"' || *c == '\\')))
        return 0;
    for (i = 1; i < n; i++)
        if ((c[i] & 0xc0) != 0x80)
            return 0;
    return *c == 0xc2 && c[1] < 0xa0 ? 0 : n; /* U+0080 to U+009F are control characters */
}
/* Writes to piece the next character of *s, escaped if necessary, and returns its length. */
SHMI_FN size_t shmi_next_piece(const char **s, int quoted, char piece[5])
{
    size_t n = shmi_plain_bytes(*s, quoted);
    if (n != 0) {
        memcpy(piece, *s, n);
        *s += n;
        return n;
    }
    if (**s == '\n' || **s == '\t' || (quoted && (**s == '"' || **s == '\\'))) {
        piece[0] = '\\';
        piece[1] = **s == '\n' ? 'n' : **s == '\t' ? 't' : **s;
        n = 2;
    } else {
        n = (size_t)snprintf(piece, 5, "\\x%02x", (unsigned)(unsigned char)**s);
    }
    ++*s;
    return n;
}
/* The length of s with its escapes. */
SHMI_FN size_t shmi_escaped_length(const char *s, int quoted)
{
    char piece[5];
    size_t n = 0;
    while (*s != 0)
        n += shmi_next_piece(&s, quoted, piece);
    return n;
}
/* Appends s, with escapes, to the text at to, which has n bytes and has room for cap bytes. Returns the new length. */
SHMI_FN size_t shmi_append_escaped(char *to, size_t cap, size_t n, const char *s, int quoted)
{
    char piece[5];
    while (*s != 0) {
        size_t k = shmi_next_piece(&s, quoted, piece);
        if (n + k >= cap)
            break;
        memcpy(to + n, piece, k);
        n += k;
    }
    to[n] = 0;
    return n;
}
/* The end of s, at most n bytes. A path is shortened to its end, because the end has the name of the file. */
SHMI_FN const char *shmi_end_of(const char *s, size_t n)
{
    size_t length = strlen(s);
    if (length <= n)
        return s;
    for (s += length - n; ((unsigned char)*s & 0xc0) == 0x80; s++) { /* the rest of a character of several bytes */
    }
    return s;
}

#define SHMI_FEWEST_OF_OBJECT 64 /* a text shows at least so many bytes of a long object name */
/* shmi_fail notes what failed, and returns err. object, the name of the object, may be NULL. If the text is too long,
 * it shows only the end of that name, so that the cause fits. */
__attribute__((format(printf, 4, 5), unused, noinline, cold)) static int shmi_fail(int err, const char *op, const char *object, const char *format, ...)
{
    char detail[sizeof shmi_last.text];
    const size_t cap = sizeof shmi_last.text;
    const char *cause = shmsync_strerror(err);
    size_t n, room;
    va_list args;
    va_start(args, format);
    if (vsnprintf(detail, sizeof detail, format, args) < 0)
        detail[0] = 0;
    va_end(args);
    n = (size_t)snprintf(shmi_last.text, cap, "shmsync: %.64s", op);
    if (object != NULL) {
        const char *end = object;
        room = n + strlen(cause) + shmi_escaped_length(detail, 0) + 8; /* 8: quotes, colons, spaces and the final 0 */
        room = room + SHMI_FEWEST_OF_OBJECT < cap ? cap - room : SHMI_FEWEST_OF_OBJECT;
        end = shmi_end_of(end, room);
        while (shmi_escaped_length(end, 1) + (end != object ? 3 : 0) > room)
            end = shmi_end_of(end, strlen(end) - 1);
        n += (size_t)snprintf(shmi_last.text + n, cap - n, " \"%s", end != object ? "..." : "");
        n = shmi_append_escaped(shmi_last.text, cap, n, end, 1);
        n += (size_t)snprintf(shmi_last.text + n, cap - n, "\"");
    }
    n += (size_t)snprintf(shmi_last.text + n, cap - n, ": %s%s", cause, detail[0] != 0 ? ": " : "");
    shmi_append_escaped(shmi_last.text, cap, n, detail, 0);
    shmi_last.err = err;
    shmi_last.brief = 0;
    shmi_last.who_known = 0;
    return err;
}

/* Copies the text at from to the cap bytes at to. If the text is too long, copies "..." and its end. */
SHMI_FN void shmi_note_word(char *to, size_t cap, const char *from)
{
    if (from == NULL)
        from = "";
    if (strnlen(from, cap) < cap)
        memcpy(to, from, strlen(from) + 1);
    else
        snprintf(to, cap, "...%s", shmi_end_of(from, cap - 4));
}
/* As shmi_fail, for an expected result such as ETIMEDOUT: the text is made only when the program asks for it. */
SHMI_FN int shmi_brief(int err, const char *op, const char *object)
{
    shmi_last.err = shmi_last.brief = err;
    shmi_last.who_known = 0;
    shmi_note_word(shmi_last.of.op, sizeof shmi_last.of.op, op);
    shmi_note_word(shmi_last.of.object, sizeof shmi_last.of.object, object);
    return err;
}
/* Clears the note of the last failure, so that the caller can check later whether a new failure was noted. */
SHMI_FN void shmi_no_failure(void)
{
    shmi_last.text[0] = 0;
    shmi_last.err = shmi_last.brief = shmi_last.who_known = 0;
}

/* Ends a call that may have noted failures and gone on. *before is the note from before the call. If the call succeeds,
 * *before is the last failure again. */
SHMI_FN int shmi_restore_note(int err, const shmi_failure *before)
{
    if (err == 0) {
        shmi_last = *before;
        shmi_last.err = 0;
    }
    return err;
}

/* Sets err to the result of call. If repair is not NULL, the call may note a failure, repair what a death has left, and
 * succeed. Then the last failure is again the one from before the call. If repair is NULL, a call never goes on after a
 * failure. */
#define SHMI_REPAIRING(repair, err, call)                   \
    do {                                                    \
        if ((repair) != NULL) {                             \
            shmi_failure before_ = shmi_last;               \
            (err) = shmi_restore_note((call), &before_);    \
        } else {                                            \
            (err) = (call);                                 \
        }                                                   \
    } while (0)

/* Notes the failure of a public function, unless a call inside it has noted the same error. */
SHMI_COLD int shmi_note_result(int err, const char *function)
{
    char *p;
    if (shmi_last.err == err)
        return err;
    shmi_brief(err, strncmp(function, "shmsync_", 8) == 0 ? function + 8 : function, NULL);
    p = strchr(shmi_last.of.op, '_');
    if (p != NULL)
        *p = '.';
    return err;
}
SHMI_FN int shmi_result(int err, const char *function) { return SHMI_LIKELY(err == 0) ? 0 : shmi_note_result(err, function); }
/* The begin and the end of a public function: if the function fails, shmsync_error describes this failure. */
#define SHMI_BEGIN() (shmi_last.err = 0)
#define SHMI_TELL(err) shmi_result((err), __func__)
SHMI_COLD int shmi_no_arena(const char *op, const char *object) { return shmi_fail(EINVAL, op, object, "the arena is NULL"); }
/* As SHMI_BEGIN, for a function with the parameter a, which is an arena. */
#define SHMI_BEGIN_IN(a, op)                 \
    do {                                     \
        SHMI_BEGIN();                        \
        if ((a) == NULL)                     \
            return shmi_no_arena(op, NULL);  \
    } while (0)
/* As SHMI_BEGIN_IN, for a function that opens the object at an offset. After a failure, the handle *out is closed. */
#define SHMI_BEGIN_AT(a, op, out)            \
    do {                                     \
        (out)->impl = NULL;                  \
        SHMI_BEGIN_IN(a, op);                \
    } while (0)

#define SHMI_TEXT(x) #x
#define SHMI_VERSION(major, minor, patch) SHMI_TEXT(major) "." SHMI_TEXT(minor) "." SHMI_TEXT(patch)
SHMI_ASSERT(SHMSYNC_VERSION == 0 * 10000 + 1 * 100 + 0, "the two versions");
#define SHMI_LIBRARY SHMI_VERSION(0, 1, 0)
const char *shmsync_version(void) { return SHMI_LIBRARY; }

const char *shmsync_error(void)
{
    if (shmi_last.brief) {
        shmi_brief_failure of = shmi_last.of; /* the text shares the memory of shmi_last.of */
        shmi_fail(shmi_last.brief, of.op, of.object[0] != 0 ? of.object : NULL, "%s", "");
    }
    return shmi_last.text;
}

int shmsync_who_died(shmsync_participant *out)
{
    if (!shmi_last.who_known)
        return ENOENT;
    *out = shmi_last.who;
    return 0;
}

const char *shmsync_strerror(int err)
{
    switch (err) {
    case 0: return "no error";
    case EOWNERDEAD: return "owner died, and the caller does not hold it";
    case ENOTRECOVERABLE: return "state not recoverable";
    case ETIMEDOUT: return "timed out";
    case ECANCELED: return "canceled";
    case EBUSY: return "busy";
    case EPERM: return "not held by this process, or not permitted";
    case EPROTO: return "shared memory is corrupt";
    case EPROTONOSUPPORT: return "layout version not supported";
    case EINVAL: return "incompatible or invalid";
    case EBADF: return "closed";
    case ENOTCONN: return "this process has not attached to the arena (a child of fork opens it itself)";
    case ENOSPC: return "no space";
    case ENOTSUP: return "not supported";
    case ENOENT: return "not found";
    case ENOMEM: return "out of memory";
    case EEXIST: return "exists";
    case EAGAIN: return "try again";
    case EDEADLK: return "would wait for itself";
    case EACCES: return "permission denied";
    case EMFILE: return "too many open files in this process";
    case ENFILE: return "too many open files in the system";
    case ENOLCK: return "no locks available";
    }
    return "system error";
}

/* ---- An arena, as this process has it ---- */

/* Says from where this process looks up an absolute path: see origin in internal/arenakernel/path.go. */
typedef struct shmi_origin {
    uint64_t root_dev, root_ino; /* of the root directory; 0: unknown */
    uint64_t mounts;             /* the inode number of the mount namespace of the thread; 0: unknown */
} shmi_origin;

/* The validated copy of the immutable part of the header. These fields are never read from shared memory again. */
typedef struct shmi_geometry {
    uint64_t size, slots_off, death_record_off, dir_off, dir_count, chunks_off, blocks_off, heap_off, chunk_count;
    uint64_t linked; /* how many chunks a link of 32 bits can name */
    uint64_t headroom, headroom_records, headroom_large, headroom_nodes; /* first chunk of the headroom; chunks in each of its rooms */
    uint32_t slots;
    int counted; /* objects have counters */
} shmi_geometry;

/* The memory that a fork wipes. In a child of fork, name is 0. Every fast path reads name first. */
typedef struct shmi_me {
    shmi_participant_id name;
} shmi_me;

/* An object: an immutable header and a body that belongs to its kind. */
typedef struct shmi_object {
    shmi_off off;  /* of the header; what _offset functions hand out */
    shmi_off body; /* a multiple of 64 */
    uint64_t size; /* of the body */
    uint64_t layout;
    uint32_t kind;
    uint16_t version;
    uint16_t name_len;
    char name[SHMI_maxObjectName + 1];
} shmi_object;

/* A block or span that has been located. */
typedef struct shmi_block {
    shmi_off off;
    uint64_t size, chunk, index;
    int class_; /* or SHMI_classSpan */
    uint32_t *word;
} shmi_block;

/* An object's header, read once and validated. */
typedef struct shmi_header {
    shmi_object o;
    shmi_block block;
    uint64_t hash;
    shmi_off open_bits;
    uint32_t *state;
    shmi_off type_off; /* of the description of the type in the body */
    uint64_t type_len; /* 0: none */
} shmi_header;

/* An object that this process has open, and the handle that all its opens share. */
typedef struct shmi_ref {
    struct shmi_ref *next;
    shmi_header h;
    unsigned count; /* opens that have not been closed */
    /* the open bit of this slot was already set when this process opened the object, because a dead participant of the
     * slot had the object open; see shmi_forget */
    int kept;
    void *handle;   /* guarded by: shmsync_arena.handles_of */
    unsigned opens; /* openings of handle that have not been closed; guarded by: shmsync_arena.handles_of */
    void (*end)(void *handle); /* frees handle if the arena is closed first; NULL: free does. guarded by: shmsync_arena.handles_of */
} shmi_ref;

typedef struct shmi_reap_progress {
    uint32_t of;     /* state of the slot of the dead participant; 0: no reap */
    uint64_t window; /* window of the slot in that state; in another window, another participant can have the same state */
    int unknown;     /* how many objects are of a kind that this header does not know */
    int unfinished;  /* a transaction of the dead participant is still in an undo log */
    int64_t reaped; /* when the repairs and wakes were done; 0: not yet */
    int64_t handed;  /* when the repairs and wakes were done again, after the participant was gone; 0: not yet */
    int64_t written; /* when the death record was written; 0: not yet */
    int reclaimed;     /* the memory of the participant was given back */
    uint32_t dying;  /* state of the slot of a process that cannot be fenced and has not ended yet */
    int64_t seen;    /* when this process first saw that state */
} shmi_reap_progress;

enum { SHMI_recordLocks = 16, SHMI_deadWaits = 64 };

/* The offset of a node, and a key by which such entries are sorted. */
typedef struct shmi_keyed {
    uint64_t key;
    shmi_off off;
} shmi_keyed;
/* A list of the nodes that may be waits of dead participants in recorded queues: see shmi_each_dead_wait. */
typedef struct shmi_dead_waits {
    uint64_t sum; /* shmi_slots_sum when the list was made */
    int made;
    shmi_participant_id leaving; /* this participant, if it is leaving and the list has its nodes, too; otherwise 0 */
    uint64_t n;     /* number of nodes; more than room: the list is incomplete */
    uint64_t room;  /* of the list at */
    shmi_keyed *at; /* sorted by key, which is the offset of the object. Points to the array few, or to memory of shmi_map_list. */
    shmi_keyed few[SHMI_deadWaits];
} shmi_dead_waits;

/* A search of this process for free blocks of one class, in slabs other than the one from which the last block came.
 * The mutex turn guards the other fields. */
typedef struct shmi_search {
    pthread_mutex_t turn; /* held by the thread that searches or takes a fresh chunk */
    int begun;
    uint64_t passed;     /* chunks that the first pass has searched */
    uint64_t at;         /* the search continues below this chunk */
    uint64_t first, end; /* all slabs of the class that this process has found are in the chunks from first to end-1 */
} shmi_search;

typedef struct shmi_wait_node {
    struct shmi_wait_node *next;
    shmi_node *node;
    shmi_off off;
    int64_t since; /* begin of the wait, CLOCK_MONOTONIC ns; 0 before the first sleep */
    uint32_t next_tag, extra_tag; /* for recorded queues: the last tags of the node's links at the end of a wait */
} shmi_wait_node;

typedef struct shmi_notice {
    uint32_t generation;
    uint64_t window, joined; /* joined: for a joiner without a byte lock, the value of slotJoined */
    int64_t when;
    uint32_t asked; /* the state of the slot when this process last asked the kernel for the byte */
    /* guarded by: shmsync_arena.endings. When this process first met the death of generation ending_of, when it last
     * examined the threads of the dead process, and whether these threads have given up their memory */
    uint32_t ending_of;
    uint64_t ending_window;
    int64_t began, looked;
    int detached;
} shmi_notice;

/* A value of the word SHMI_slotWalking that is not the offset of an object. It says only that the owner of the slot may
 * owe wakes to any participant. */
#define SHMI_WALK_OWED 1

/* What this process has mapped at the address of a closed arena: private memory (HERE), or nothing (GONE). */
enum { SHMI_RETIRED_HERE = 1, SHMI_RETIRED_GONE = 2 };

struct shmsync_arena {
    struct shmsync_arena *next; /* guarded by: shmi_attached_lock */
    unsigned opens;             /* guarded by: shmi_attached_lock */
    int in_hook;                /* SHMI_inOnFirst or SHMI_inWaitHook: what hook_thread runs during the open; guarded by: shmi_attached_lock */
    pthread_t hook_thread;      /* guarded by: shmi_attached_lock */
    int given;                  /* on_first has been given the address of the arena; guarded by: shmi_attached_lock */
    int stage;                  /* SHMI_opening, SHMI_attached, SHMI_closing; guarded by: shmi_attached_lock */
    shmi_me *me;
    unsigned char *base;
    uint64_t size;
    shmi_geometry geo;
    char label[256]; /* the file of the arena, for messages; the end of a long path */
    char *path;      /* the path of the file; without a slash if the file has no name */
    const char *below; /* the relative path that the program gave, which is the end of path */
    int home;          /* a descriptor of the working directory at the open, or -1 if the program gave no relative path */
    uint64_t home_dev, home_ino;
    shmi_origin origin; /* of this process at the open */
    int ephemeral;   /* the last close removes the file. Guarded by: shmi_attached_lock */
    int fd;
    int lock_errno; /* the error of a byte lock in the last search for a slot; 0: no error, or only that others had the lock */
    int lock_fd; /* its byte lock says that this process is alive; -1: there is none. Written under shmi_attached_lock */
    void *pin;   /* keeps the byte lock if the descriptor is closed by mistake; see shmi_pin_lock */
    size_t pin_size;
    uint64_t dev, ino;
    long page;

    shmi_participant_id self; /* never changes; a child of fork has it too, unlike me->name */
    uint32_t my_slot;
    uint32_t caps;
    int fenced;  /* this process has registered for membarrier, so others can fence it. Atomic. */
    int closing; /* set once, at the last close; then calls that wait end */
    int leaving; /* set once, when closing is set and the count in calls is 0; then a call that is not counted in calls undoes its claims. Atomic. */
    int late;    /* set once, after leaving, before the close takes anything back; then no call reports success. Atomic. */
    int retired; /* the arena was closed: SHMI_RETIRED_HERE or SHMI_RETIRED_GONE. Atomic. */
    uint32_t calls; /* threads in a call that may sleep */
    uint32_t acting; /* one bit for each act word in use; private, because a peer could set the act words */

    pthread_t watcher;
    int watching;        /* the watcher runs */
    int join_result;     /* result of the join, which the watcher makes; -1: not known yet; guarded by: start_lock */
    int started;         /* shmi_start_watcher has started the watcher, and no call has ended it */
    int ready;           /* the watcher has registered its robust list, if it can; guarded by: start_lock */
    int hired;           /* 1: the watcher goes on; -1: it ends; guarded by: start_lock */
    uint32_t unwatched;  /* 1: the watcher no longer uses the mapping. Atomic; the leave sleeps on it. */
    int repaired;        /* what this process held is taken back, so the watcher ends; guarded by: start_lock */
    pthread_mutex_t start_lock;
    pthread_cond_t start_cond;
    char start_text[sizeof(((shmi_failure *)0)->text)]; /* why the join failed */
    unsigned char *robust; /* a page with the robust list */
    void *robust_before;   /* the robust list that the C library had registered for the helper thread */
    uint32_t alive;        /* what an alive word contains while the helper thread runs */
    int linked;            /* the robust list has the alive words of the slot */

    uint64_t heap_next[SHMI_classes], heap_top; /* hints, atomic */
    shmi_search searches[SHMI_classes];
    uint64_t passed, lower_after; /* guarded by: handles; see shmi_lower_reach_if_due */
    uint64_t work; /* atomic; number of block words and directory entries that walks have examined, for a test */

    pthread_mutex_t handles; /* makes lookups take turns, because they share the guard of this process */
    int left;                /* guarded by: handles; this process has given up its slot, and clears its open bits */
    pthread_mutex_t walking; /* held by a walk through the objects; walks have a guard of their own, SHMI_slotWalking */
    shmi_off rest;           /* guarded by: walking; the value of SHMI_slotWalking while no walk is under way */
    shmi_ref **refs;         /* guarded by: handles; hash table, by offset, of 1 << refs_log lists; NULL: none yet */
    uint32_t refs_log, n_refs;
    uint64_t refs_passed;    /* guarded by: handles; number of references that lookups have passed, for a test */
    shmi_off *deferred;      /* guarded by: handles; blocks that this process wants to free, but that a peer has guarded */
    size_t n_deferred, cap_deferred;
    pthread_mutex_t handles_of; /* guards the handles in refs; taken before handles */

    struct shmi_head *upgradable; /* guarded by: handles_of; closed handles of RWMutexes of which this process still has an upgradable hold */
    pthread_mutex_t reaping;
    shmi_reap_progress *reaps; /* guarded by: reaping; one element for each slot */
    shmi_notice *notices; /* used by the watcher; one element for each slot */
    pthread_mutex_t endings;
    /* The identity of this process, immutable after it has a slot. proc_dev is the device number of a /proc that shows
     * the pids of this process's pid namespace; 0: there is none. */
    uint64_t start, pid_ns, proc_dev;
    unsigned char boot[16];
    uint32_t unfinished;  /* not 0: some reap is unfinished */
    int64_t ask_at;       /* when the watcher next asks whether the dead are gone; 0: never. Atomic. */
    uint32_t leftover[SHMI_MaxSlots / 32 + 1]; /* one bit for each slot with an unfinished reap */
    int64_t *asked;       /* when shmi_dead last asked for the byte of a slot's participant; atomic */

    uint32_t announce_map; /* one bit for each announce record in use */

    uint32_t sleepers;        /* threads in shmi_sleep. Atomic. */
    struct shmi_crowd *crowd; /* records of threads that sleep for long; no record is freed before the close. Atomic. */
    uint32_t in_crowd;        /* number of these threads. Atomic. */
    uint32_t looks;           /* odd while the watcher checks an object for the crowd. Atomic. */

    pthread_mutex_t wait_nodes_lock;
    shmi_wait_node *wait_nodes; /* guarded by: wait_nodes_lock; free ones */
    uint32_t free_nodes;    /* guarded by: wait_nodes_lock; how many of them there are */
    uint32_t fewest_nodes;  /* guarded by: wait_nodes_lock; the least value of free_nodes in this period: see shmi_shrink_nodes */
    uint32_t surplus_nodes; /* how many nodes shmi_shrink_nodes still gives back; only the death watcher uses it */
    uint32_t many_nodes;    /* written under wait_nodes_lock: the death watcher calls shmi_shrink_nodes. Atomic. */
    int64_t nodes_period;   /* end of this period, CLOCK_MONOTONIC ns; only the death watcher uses it */

    pthread_mutex_t counter_lock; /* held by the thread that writes this process's record of a WaitGroup or Latch */
    /* the object selects the lock. The thread that writes this process's record of a recorded queue holds it, with
     * signals blocked */
    pthread_mutex_t record_locks[SHMI_recordLocks];
    /* as record_locks, for MultiLocks. No signal handler uses a MultiLock, so signals are not blocked */
    pthread_mutex_t key_locks[SHMI_recordLocks];
    uint64_t marked; /* when shmi_mark_dead last looked for the dead, CLOCK_MONOTONIC ns. Atomic. */
    shmi_dead_waits dead_waits[SHMI_recordLocks]; /* guarded by: the lock with the same index in record_locks */

    pthread_mutex_t death_lock;
    void (*on_detached)(shmsync_arena *a, void *arg); /* set once, by shmi_tell_detached. Atomic. */
    void *on_detached_arg;
    int detached_told; /* whether on_detached was called; only the helper thread uses this field */
    void (*on_death)(const shmsync_participant *, void *); /* guarded by: death_lock */
    void *on_death_arg;
    uint64_t death_record_next; /* guarded by: death_lock */
    shmi_participant_id *told; /* guarded by: death_lock; the participants whose deaths were reported, by the place of the death record */
    /* guarded by: death_lock; how many death records were overwritten before this process read them and are not
     * reported yet */
    uint64_t lost;
    /* guarded by: death_lock; the numbers of death records that were not written yet when this process wanted to read
     * them */
    uint64_t holes[SHMI_deathRecordDeaths];
    unsigned n_holes;
};

/* Which wakes of an object may be lost because a participant died. */
enum {
    SHMI_OWED_ANNOUNCED, /* wakes for waiters that have announced themselves in words of the object */
    SHMI_OWED_ONE,       /* also wakes for waiters that have announce records and may not be visible in words of the object */
    SHMI_OWED_ALL        /* all wakes: threads of the dead participant slept, too, and a wake for one waiter may reach one of them */
};

/* The functions of a kind of object that the reaper calls. Any number of threads and processes may call each function
 * at once, and the object may contain any bytes. So each function is idempotent, trusts no bytes, and never blocks.
 * NULL: nothing to do. The table of these functions is in 95-kinds.h. */
typedef struct shmi_kind_ops {
    uint32_t kind;
    uint16_t version; /* an object of another version counts as one of an unknown kind */
    /* Recovers what dead has left. The result 0 says that this process could not do that, for example because the arena
     * has no room for its slot record. Then all participants that have the object open check it: dead may have closed its
     * handles and kept a hold, so its open bit does not show whether they have to. A 0 without need costs only time. */
    int (*repair)(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead);
    void (*wake)(shmsync_arena *a, const shmi_object *o, int owed);
    /* Whether the object has an undo log with a transaction of dead that is still to be undone. */
    int (*unfinished)(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead);
    /* Completes the last change of the object, if its changes are records; 0 if that was not possible. */
    int (*complete)(shmsync_arena *a, const shmi_object *o);
    /* Whether a call that shmsync_arena.calls does not count is about to store to a part of the object that it has
     * claimed. */
    int (*in_call)(shmsync_arena *a, const shmi_object *o);
} shmi_kind_ops;
SHMI_FN const shmi_kind_ops *shmi_kind_of(const shmi_object *o); /* NULL: not known */
/* Completes the last change of an object, if there is an object at off whose changes are records. Returns 0 if that
 * was not possible. The caller guards the object. */
SHMI_FN int shmi_complete_object(shmsync_arena *a, shmi_off off);

/* ---- From an offset to an address ---- */

SHMI_FN int shmi_within(const shmsync_arena *a, shmi_off off, uint64_t n, uint64_t align)
{
    return off <= a->size && n <= a->size - off && (off & (align - 1)) == 0;
}

/* The address of n bytes at an offset that the caller has validated. An offset out of the arena is a bug of this
 * library. */
SHMI_FN void *shmi_ptr(const shmsync_arena *a, shmi_off off, uint64_t n, uint64_t align)
{
    if (SHMI_UNLIKELY(!shmi_within(a, off, n, align)))
        shmi_abort("an offset out of the arena");
    return a->base + off;
}
SHMI_FN uint32_t *shmi_u32(const shmsync_arena *a, shmi_off off) { return (uint32_t *)shmi_ptr(a, off, 4, 4); }
SHMI_FN uint64_t *shmi_u64(const shmsync_arena *a, shmi_off off) { return (uint64_t *)shmi_ptr(a, off, 8, 8); }
SHMI_FN unsigned char *shmi_bytes(const shmsync_arena *a, shmi_off off, uint64_t n) { return (unsigned char *)shmi_ptr(a, off, n, 1); }

/* The offset of an address in the arena. */
SHMI_FN shmi_off shmi_off_of(const shmsync_arena *a, const void *p) { return (shmi_off)((const unsigned char *)p - a->base); }

/* ---- IDs and slots ---- */

SHMI_FN uint32_t shmi_id_slot(shmi_participant_id n) { return n & SHMI_MaxSlots; }
SHMI_FN uint32_t shmi_id_gen(shmi_participant_id n) { return n >> 11 & SHMI_maxGeneration; }
SHMI_FN shmi_participant_id shmi_make_participant_id(uint32_t slot, uint32_t gen) { return slot | gen << 11; }
SHMI_FN int shmi_id_valid(shmi_participant_id n) { return shmi_id_slot(n) != 0 && shmi_id_gen(n) != 0; }
/* Whether the reaper of n cleans up after o, too: o had the same slot, and the generation of n or an earlier one. */
SHMI_FN int shmi_covers(shmi_participant_id n, shmi_participant_id o)
{
    return o != 0 && shmi_id_slot(o) == shmi_id_slot(n) && shmi_id_gen(o) <= shmi_id_gen(n);
}

/* Parts of the state of a slot and of its capabilities: docs/abi.md. */
enum { SHMI_heldByte = 1 << 21, SHMI_capsBits = 14 };
SHMI_FN uint32_t shmi_slot_phase(uint32_t w) { return w & 7; }
SHMI_FN uint32_t shmi_slot_gen(uint32_t w) { return w >> 3 & SHMI_maxGeneration; }
SHMI_FN uint32_t shmi_slot_word(uint32_t phase, uint32_t gen) { return phase | gen << 3; }
/* Whether the participant holds the byte lock of the slot for as long as its process exists. */
SHMI_FN int shmi_slot_has_byte(uint32_t w) { return (w & SHMI_heldByte) != 0; }
/* The state w of a slot, with another phase: the participant stays the same. */
SHMI_FN uint32_t shmi_slot_with(uint32_t w, uint32_t phase)
{
    return shmi_slot_word(phase, shmi_slot_gen(w)) | (phase != SHMI_phaseFree ? w & SHMI_heldByte : 0);
}
SHMI_FN int shmi_slot_present(uint32_t w)
{
    uint32_t p = shmi_slot_phase(w);
    return p == SHMI_phaseJoining || p == SHMI_phaseLive || p == SHMI_phaseLeaving;
}
SHMI_FN int shmi_slot_taken(uint32_t w) { return shmi_slot_present(w) || shmi_slot_phase(w) == SHMI_phaseDead; }
SHMI_FN shmi_participant_id shmi_id_in(uint32_t slot, uint32_t w) { return shmi_make_participant_id(slot, shmi_slot_gen(w)); }

/* Whether this process can sleep on several words at once. */
SHMI_FN int shmi_have_waitv(const shmsync_arena *a) { return (a->caps & SHMI_capWaitV) != 0 && !__atomic_load_n(&shmi_waitv_forbidden, __ATOMIC_ACQUIRE); }

/* The offset of slot i. The first slot is slot 1. */
SHMI_FN shmi_off shmi_slot(const shmsync_arena *a, uint32_t i)
{
    if (SHMI_UNLIKELY(i < 1 || i > a->geo.slots))
        shmi_abort("a slot that is none");
    return a->geo.slots_off + (uint64_t)(i - 1) * SHMI_slotStride;
}
SHMI_FN uint32_t *shmi_slot32(const shmsync_arena *a, uint32_t i, unsigned field) { return shmi_u32(a, shmi_slot(a, i) + field); }
SHMI_FN uint64_t *shmi_slot64(const shmsync_arena *a, uint32_t i, unsigned field) { return shmi_u64(a, shmi_slot(a, i) + field); }
SHMI_FN uint32_t shmi_slot_state(const shmsync_arena *a, uint32_t i) { return shmi_ld32(shmi_slot32(a, i, SHMI_slotState)); }
SHMI_FN int shmi_cas_slot(const shmsync_arena *a, uint32_t i, uint32_t from, uint32_t to)
{
    return shmi_cas32(shmi_slot32(a, i, SHMI_slotState), from, to);
}
/* The capabilities of the participant in slot i, or 0 if the word still has those of another generation. */
SHMI_FN uint32_t shmi_slot_caps(const shmsync_arena *a, uint32_t i)
{
    uint32_t c = shmi_ld32(shmi_slot32(a, i, SHMI_slotCaps));
    return c >> SHMI_capsBits == shmi_slot_gen(shmi_slot_state(a, i)) ? c & ((UINT32_C(1) << SHMI_capsBits) - 1) : 0;
}
/* The state word that the slot of this participant has in the given phase and generation. */
SHMI_FN uint32_t shmi_own_slot_word(const shmsync_arena *a, uint32_t phase, uint32_t gen)
{
    return shmi_slot_word(phase, gen) | ((a->caps & SHMI_capOFD) != 0 ? (uint32_t)SHMI_heldByte : 0);
}
/* Whether the participant in slot i, in state w, has written its capabilities. */
SHMI_FN int shmi_has_caps(const shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_ld32(shmi_slot32(a, i, SHMI_slotCaps)) >> SHMI_capsBits == shmi_slot_gen(w);
}
/* Writes the capabilities of this participant into its slot, which is in state w. 0: the slot was taken away. */
SHMI_FN int shmi_publish_caps(const shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t *word = shmi_slot32(a, i, SHMI_slotCaps), was;
    do {
        was = shmi_ld32(word);
        if (shmi_slot_state(a, i) != w)
            return 0;
        SHMSYNC_CRASHPOINT("arena.enter.caps_checked");
    } while (!shmi_cas32(word, was, a->caps | shmi_slot_gen(w) << SHMI_capsBits));
    return 1;
}
/* Takes a capability away from this participant. If other processes have declared this participant dead, the word may
 * belong to a later participant of the slot, and stays as it is. */
SHMI_FN void shmi_drop_cap(const shmsync_arena *a, uint32_t cap)
{
    uint32_t *word = shmi_slot32(a, a->my_slot, SHMI_slotCaps), was;
    do
        was = shmi_ld32(word);
    while (was >> SHMI_capsBits == shmi_id_gen(a->self) && (was & cap) != 0 && !shmi_cas32(word, was, was & ~cap));
}
SHMI_FN uint32_t *shmi_alive_word(const shmsync_arena *a, uint32_t i, unsigned word)
{
    return shmi_slot32(a, i, SHMI_slotAlive + word * SHMI_aliveStride);
}

/* Whether n is the ID of a participant that is not marked dead. The check costs one load. If the result is 0, no
 * thread of n executes an instruction on the arena any more; the kernel may still write for n until shmi_gone. */
SHMI_FN int shmi_current(const shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 0;
    w = shmi_slot_state(a, i);
    return shmi_slot_gen(w) == shmi_id_gen(n) && shmi_slot_present(w);
}

/* The ID of this process, or 0 in a child of fork. */
SHMI_FN shmi_participant_id shmi_self(const shmsync_arena *a) { return __atomic_load_n(&a->me->name, __ATOMIC_RELAXED); }
/* Why this process has no ID: it closed the arena, or it is a child of fork. */
SHMI_FN int shmi_nameless(const shmsync_arena *a) { return __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST) ? EBADF : ENOTCONN; }

/* A counter of reaps and leaves of participants that may have left something in an object or a wait node. If a process
 * finds another number than before, there was such a reap or leave. */
SHMI_FN uint32_t shmi_deaths(const shmsync_arena *a) { return shmi_ld32(shmi_u32(a, SHMI_hdrDeaths)); }

/* How many times a reaper reads words that a hostile peer may rewrite all the time. A correct peer changes them only a
 * few times. */
#define SHMI_REAP_TRIES 16
/* Bounds the loops in which a reaper changes an object with a recorded queue, or serves the queue. If other processes
 * overtake so many changes of such a loop, the loop ends, and a later check does its work. Correct peers overtake a few
 * changes. A hostile peer may overtake all. */
#define SHMI_OVERTAKEN_MOST 4096
#ifndef SHMI_CHECK_EVERY /* tests make it longer */
#define SHMI_CHECK_EVERY INT64_C(100000000) /* ns */
#endif

/* These functions are defined in later parts. */
SHMI_FN int64_t shmi_look_after_crowd(shmsync_arena *a, int64_t at);
SHMI_FN int64_t shmi_shrink_nodes(shmsync_arena *a, int64_t at);
SHMI_FN void shmi_ring_crowd(shmsync_arena *a);
SHMI_FN void shmi_free_crowd(shmsync_arena *a);
SHMI_FN void shmi_await_look(shmsync_arena *a);
SHMI_FN int shmi_dead(shmsync_arena *a, shmi_participant_id n);
SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n);
SHMI_FN void shmi_free_nodes_at(shmsync_arena *a, shmi_off object);
SHMI_FN void shmi_reset_node(shmsync_arena *a, shmi_off off);
SHMI_FN int shmi_who(shmsync_arena *a, shmi_participant_id n, shmsync_participant *out);
SHMI_FN int shmi_guarded(shmsync_arena *a, shmi_off off);
SHMI_FN void shmi_release_unseen(shmsync_arena *a, const shmi_block *b, uint32_t w);
SHMI_FN int shmi_keep_record(shmsync_arena *a, const shmi_block *b, uint32_t w);
SHMI_FN void shmi_resolve_delete(shmsync_arena *a, const shmi_block *b, shmi_participant_id dead);
SHMI_FN void shmi_resolve_entries(shmsync_arena *a, shmi_participant_id dead);
SHMI_FN int shmi_flush_deferred(shmsync_arena *a);
SHMI_FN int shmi_release_deferred(shmsync_arena *a);

/* shmi_fail for the death of a participant. */
SHMI_COLD int shmi_fail_who(shmsync_arena *a, int err, const char *op, const char *object, shmi_participant_id who)
{
    shmsync_participant p;
    if (who == 0 || shmi_who(a, who, &p) != 0)
        return shmi_fail(err, op, object, "%s", "");
    shmi_fail(err, op, object, "%s (pid %u, slot %u.%u)", p.label[0] != 0 ? p.label : "process", p.pid, p.slot, p.generation);
    shmi_last.who = p;
    shmi_last.who_known = 1;
    return err;
}

/* ---- Cancellation: a pthread_cancel takes effect after a call, never inside one. Inside a call, it would leave
 * behind locks that a living process holds, which no reaper takes back. Outside of a pair of shmi_hold_cancel and
 * shmi_let_cancel, the code calls no cancellation point. ---- */

static SHMI_THREAD volatile unsigned shmi_cancel_held; /* calls of shmi_hold_cancel without a shmi_let_cancel so far */
static SHMI_THREAD volatile int shmi_cancel_before;    /* the cancellation state before the first of these calls */

/* A signal handler may run between any two instructions of shmi_hold_cancel and shmi_let_cancel, and may call both.
 * While shmi_cancel_held is 0, a handler overwrites shmi_cancel_before. So in this time, the interrupted function has
 * the cancellation state in a local variable. */
SHMI_FN void shmi_hold_cancel(void)
{
    unsigned held = shmi_cancel_held;
    int before = PTHREAD_CANCEL_ENABLE;
    if (held == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    shmi_cancel_held = held + 1;
    if (held == 0)
        shmi_cancel_before = before;
}
SHMI_FN void shmi_let_cancel(void)
{
    unsigned held = shmi_cancel_held - 1;
    int before = shmi_cancel_before, ours;
    shmi_cancel_held = held;
    if (held == 0)
        pthread_setcancelstate(before, &ours);
}

/* ---- Functions of the user that a call runs. The caller has begun an operation that ends only when the user's
 * function returns. If the user's function is left in another way (an exception, pthread_exit), the process ends. ----
 */

typedef struct shmi_outside {
    pid_t in; /* the process that called the function */
    int left; /* 1 until the function returns */
} shmi_outside;

SHMI_FN void shmi_come_back(shmi_outside *o)
{
    if (o->left)
        shmi_abort("an exception or pthread_exit left a function that the library had called; it has to return");
    if (getpid() != o->in)
        shmi_abort("a child of fork returned from a function that the library had called in its parent; it has to end there");
}
/* If the compiler emits no code for exceptions, the cleanup runs only after a return, and an exception is not
 * noticed. */
#define SHMI_OUTSIDE(call)                                                                     \
    do {                                                                                       \
        __attribute__((cleanup(shmi_come_back))) shmi_outside outside_ = {getpid(), 1};        \
        call;                                                                                  \
        outside_.left = 0;                                                                     \
    } while (0)

/* Calls a repair function of the user's. */
SHMI_FN int shmi_call_repair(int (*repair)(void *), void *arg)
{
    int failed = 0;
    shmi_hold_cancel();
    SHMI_OUTSIDE(failed = repair(arg));
    shmi_let_cancel();
    return failed;
}

/* The function of shmsync_wait_hook for this thread. */
typedef struct shmi_hook {
    int (*f)(void *);
    void *arg;
    int64_t due; /* it does not run before this time: CLOCK_MONOTONIC ns */
} shmi_hook;
static SHMI_THREAD shmi_hook shmi_wait_hook;

/* Runs the function of shmsync_wait_hook, if there is one and it is due. Returns whether the wait has to end. Sets *now
 * to the time after the function. */
SHMI_SELDOM int shmi_run_wait_hook(int64_t *now)
{
    shmi_hook h = shmi_wait_hook;
    int ends;
    if (h.f == NULL || *now < h.due)
        return 0;
    shmi_wait_hook.f = NULL;
    ends = shmi_call_repair(h.f, h.arg);
    *now = shmi_now();
    h.due = *now + SHMI_CHECK_EVERY;
    shmi_wait_hook = h;
    return ends != 0;
}
/* Whether the hook of the thread ends a wait that began at the time since. A wait that lasts for less than 100 ms does
 * not read the hook. */
SHMI_FN int shmi_hook_ends(int64_t since, int64_t *now)
{
    return SHMI_UNLIKELY(*now - since >= SHMI_CHECK_EVERY) && shmi_run_wait_hook(now);
}

/* The arenas on which the thread is in a call. If such a call runs a function of the user's, that function must not
 * close these arenas. */
enum { SHMI_INSIDE = 4 };
typedef struct shmi_inside {
    const shmsync_arena *a;
    unsigned n;
} shmi_inside;
static SHMI_THREAD volatile shmi_inside shmi_calls_in[SHMI_INSIDE];
/* The calls that found no entry, because the thread is in calls of more arenas than there are entries. */
static SHMI_THREAD volatile unsigned shmi_calls_beyond;

/* Adds the parameter more, 1 or -1, to the count of calls of this thread on the arena. A signal handler may interrupt
 * this function. The handler leaves each count as it was, but may store another arena in an entry with the count 0. So
 * this function raises the count of a new entry before it stores the arena there. */
SHMI_FN void shmi_count_inside(const shmsync_arena *a, int more)
{
    int i, at = -1;
    for (i = 0; i < SHMI_INSIDE; i++)
        if (shmi_calls_in[i].n != 0 && shmi_calls_in[i].a == a)
            at = i;
    for (i = 0; i < SHMI_INSIDE && at < 0 && more > 0; i++)
        if (shmi_calls_in[i].n == 0)
            at = i;
    if (at < 0) {
        shmi_calls_beyond = shmi_calls_beyond + (unsigned)more;
        return;
    }
    shmi_calls_in[at].n = shmi_calls_in[at].n + (unsigned)more;
    if (more > 0)
        shmi_calls_in[at].a = a;
}
/* Whether the thread is known to be in a call of a. If shmi_calls_beyond is not 0, the result may be 0 although the
 * thread is in a call of a. */
SHMI_FN int shmi_is_inside(const shmsync_arena *a)
{
    int i;
    for (i = 0; i < SHMI_INSIDE; i++)
        if (shmi_calls_in[i].n != 0 && shmi_calls_in[i].a == a)
            return 1;
    return 0;
}

/* Identifies the calling thread among the threads of this process. */
SHMI_FN const void *shmi_this_thread(void) { return &shmi_last; }

/* ---- Signals: a handler may call some objects (docs/c-api.md). Suppose the handler has interrupted a thread that
 * holds the private lock of the same object (63-recordqueue.h): then the handler would wait for that lock for ever. So
 * a thread blocks its signals as long as it holds the private lock of such an object. ---- */

static SHMI_THREAD volatile unsigned shmi_signals_held; /* private locks that the thread holds */
static SHMI_THREAD uint64_t shmi_signals_before;        /* the signal mask before the thread took the first of these locks */

/* All signals except two groups: those that a fault of the thread itself raises, and the two that the C library needs.
 * If a thread blocks a signal of a fault, the fault kills the process. */
#define SHMI_SIGNAL_BIT(n) (UINT64_C(1) << ((n)-1))
#define SHMI_SIGNALS                                                                                                        \
    (~(SHMI_SIGNAL_BIT(SIGSEGV) | SHMI_SIGNAL_BIT(SIGBUS) | SHMI_SIGNAL_BIT(SIGFPE) | SHMI_SIGNAL_BIT(SIGILL) |             \
       SHMI_SIGNAL_BIT(SIGTRAP) | SHMI_SIGNAL_BIT(SIGABRT) | SHMI_SIGNAL_BIT(SIGSYS) | SHMI_SIGNAL_BIT(32) | SHMI_SIGNAL_BIT(33)))

SHMI_FN void shmi_block_signals(void)
{
    uint64_t all = SHMI_SIGNALS, before = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all);
    shmi_signals_before = before; /* no handler of ours runs from here on */
}
SHMI_FN void shmi_unblock_signals(void)
{
    uint64_t before = shmi_signals_before; /* a copy, because handlers write the variable, too */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}
SHMI_FN void shmi_hold_signals(void)
{
    if (shmi_signals_held == 0)
        shmi_block_signals();
    shmi_signals_held = shmi_signals_held + 1;
}
SHMI_FN void shmi_let_signals(void)
{
    unsigned held = shmi_signals_held - 1;
    shmi_signals_held = held;
    if (held == 0)
        shmi_unblock_signals();
}
/* ---- Calls that may sleep ---- */

/* Begins a call. Returns 0, ENOTCONN in a child of fork, or EBADF when this process leaves. Until shmi_exit the arena
 * stays mapped, and the thread is not canceled. If the thread is already within another call of the arena, the result
 * is 0 even while this process leaves: the close waits for the outer call. If the inner call has to wait, its wait
 * ends with SHMI_CLOSED. If op is NULL, a refusal is not noted as a failure. */
SHMI_FN int shmi_enter(shmsync_arena *a, const char *op)
{
    if (shmi_self(a) == 0)
        return op == NULL ? shmi_nameless(a) : shmi_fail(shmi_nameless(a), op, a->label, "%s", "");
    shmi_hold_cancel();
    shmi_add32(&a->calls, 1);
    if (SHMI_UNLIKELY(__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) && !shmi_is_inside(a)) {
        if (op != NULL)
            shmi_fail(EBADF, op, a->label, "this process closed the arena");
        shmi_add32(&a->calls, (uint32_t)-1); /* the arena may be gone from here on */
        shmi_let_cancel();
        return EBADF;
    }
    shmi_count_inside(a, 1);
    return 0;
}
SHMI_FN void shmi_exit(shmsync_arena *a)
{
    shmi_count_inside(a, -1);
    shmi_add32(&a->calls, (uint32_t)-1);
    shmi_let_cancel();
}
/* For a call that does not sleep and touches only an open object: 0, or ENOTCONN in a child of fork. */
SHMI_FN int shmi_use(shmsync_arena *a, const char *op) { return SHMI_LIKELY(shmi_self(a) != 0) ? 0 : shmi_fail(shmi_nameless(a), op, NULL, "%s", ""); }
/* Ends a call that returns err. */
SHMI_FN int shmi_exit_with(shmsync_arena *a, int err)
{
    shmi_exit(a);
    return err;
}

