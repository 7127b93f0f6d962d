/* ---- Handles of the user, and the memory of closed handles ----
 *
 * What a process knows of an open object lies behind a head with a serial number. Each handle of the user contains that
 * number, too. The last close clears the number in the head, so a call with any copy of the handle finds that the
 * handle is closed. Such a call may come at any time. So the memory never goes back to malloc. It is used again only
 * for things of the same size class. */

typedef struct shmi_head {
    struct shmi_head *next; /* guarded by: shmi_spares_lock */
    uint64_t serial;        /* serial number of the thing behind the head; 0: closed. Atomic. */
    size_t size;            /* of the thing, rounded up to its size class */
    uint64_t off;           /* in the head of a handle: the offset of the object. Atomic. */
    uint32_t users;         /* calls under way that keep the object open, or SHMI_ENDED. Atomic. */
    uint32_t pad_;
    const shmsync_arena *arena; /* in the head of a handle: the arena of the object. Atomic. */
} shmi_head;
SHMI_ASSERT(sizeof(shmi_head) % 16 == 0, "what follows a head is aligned as memory from malloc");

/* A bit of users: the opening has ended or is ending. From then on, no call can keep the object open. */
#define SHMI_ENDED UINT32_C(0x80000000)

/* A closed thing is used again only after SHMI_SPARES further closes of things of its size class, because calls of other
 * threads may still read it. */
enum { SHMI_SPARES = 64, SHMI_SPARE_SIZES = 4 * (64 - 6) + 1 };

typedef struct shmi_spares {
    size_t n;
    shmi_head *first, *last;
} shmi_spares;

static pthread_mutex_t shmi_spares_lock = PTHREAD_MUTEX_INITIALIZER; /* also taken by fork */
static shmi_spares shmi_spare[SHMI_SPARE_SIZES];                      /* guarded by: shmi_spares_lock; by size class */
static uint64_t shmi_serials;                                        /* atomic */

SHMI_FN shmi_head *shmi_head_of(const void *thing) { return (shmi_head *)(uintptr_t)thing - 1; }

/* Rounds *size up to its size class, and returns the closed things of this class. There are four classes between one
 * power of two and the next, and one for all sizes up to 64. So there is a class for every size, however many arenas and
 * objects of different sizes a process opens. */
SHMI_FN shmi_spares *shmi_spares_of(size_t *size)
{
    size_t last, step;
    int top;
    if (*size <= 64) {
        *size = 64;
        return &shmi_spare[0];
    }
    last = *size - 1;
    top = 63 - __builtin_clzll((unsigned long long)last); /* the highest bit, at least bit 6 */
    step = (size_t)1 << (top - 2);
    *size = (last | (step - 1)) + 1;
    return &shmi_spare[4 * (top - 6) + (int)(last >> (top - 2) & 3) + 1];
}

/* Returns size bytes behind a head, all zero, or NULL if there is no memory. */
SHMI_FN void *shmi_new_thing(size_t size)
{
    shmi_head *h = NULL;
    shmi_spares *s;
    pthread_mutex_lock(&shmi_spares_lock);
    s = shmi_spares_of(&size);
    if (s->n > SHMI_SPARES) {
        h = s->first;
        s->first = h->next;
        s->n--;
    }
    pthread_mutex_unlock(&shmi_spares_lock);
    if (h != NULL)
        memset(h + 1, 0, size);
    else if ((h = (shmi_head *)calloc(1, sizeof *h + size)) == NULL)
        return NULL;
    h->next = NULL;
    h->size = size;
    shmi_st64(&h->off, 0);
    shmi_st32(&h->users, 0);
    __atomic_store_n(&h->arena, NULL, __ATOMIC_RELAXED);
    __atomic_store_n(&h->serial, shmi_add64(&shmi_serials, 1) + 1, __ATOMIC_RELEASE);
    return h + 1;
}

/* Gives the thing a new serial number, which closes all handles with an earlier number. */
SHMI_FN void shmi_renew_thing(void *thing) { __atomic_store_n(&shmi_head_of(thing)->serial, shmi_add64(&shmi_serials, 1) + 1, __ATOMIC_RELEASE); }
/* Closes the thing: from now on, each call with a handle on the thing fails with EBADF. */
SHMI_FN void shmi_close_thing(void *thing) { __atomic_store_n(&shmi_head_of(thing)->serial, 0, __ATOMIC_SEQ_CST); }

SHMI_FN void shmi_free_thing(void *thing)
{
    shmi_head *h = shmi_head_of(thing);
    shmi_spares *s;
    shmi_close_thing(thing);
    h->next = NULL;
    pthread_mutex_lock(&shmi_spares_lock);
    s = shmi_spares_of(&h->size); /* the size stays: it is that of a class */
    if (s->n++ == 0)
        s->first = h;
    else
        s->last->next = h;
    s->last = h;
    pthread_mutex_unlock(&shmi_spares_lock);
}

/* Keeps the object of a handle open until shmi_exit_for, even if the last handle is closed meanwhile. Returns 0 if the
 * opening has ended. */
SHMI_FN int shmi_keep(void *thing)
{
    uint32_t *users = &shmi_head_of(thing)->users, n;
    do
        n = shmi_ld32(users);
    while ((n & SHMI_ENDED) == 0 && !shmi_cas32(users, n, n + 1));
    return (n & SHMI_ENDED) == 0;
}
/* Returns EBADF if the handle was closed meanwhile. A call makes this check after a wait, before it returns something
 * that the program can give back only through an open handle, such as a hold. After EBADF the call itself gives this
 * hold back. The caller has called shmi_keep, so the object is still open. */
SHMI_FN int shmi_kept_closed(const void *thing, const char *op)
{
    return shmi_ld64(&shmi_head_of(thing)->serial) != 0 ? 0 : shmi_fail(EBADF, op, NULL, "the handle was closed meanwhile");
}
/* Ends the opening of a closed handle if no call keeps the object open. Returns whether it did. */
SHMI_FN int shmi_may_end(void *thing) { return shmi_cas32(&shmi_head_of(thing)->users, 0, SHMI_ENDED); }

/* The serial number for a handle on thing. If thing was closed meanwhile, the result is a number that no thing has. */
SHMI_FN uint64_t shmi_serial_of(const void *thing)
{
    uint64_t serial = thing != NULL ? __atomic_load_n(&shmi_head_of(thing)->serial, __ATOMIC_RELAXED) : 0;
    return serial != 0 ? serial : UINT64_MAX;
}

/* Whether a handle with this serial number is open. Serial number 0 belongs to no open handle. */
SHMI_FAST int shmi_is_open(const void *thing, uint64_t serial)
{
    return SHMI_LIKELY(thing != NULL) && SHMI_LIKELY(__atomic_load_n(&shmi_head_of(thing)->serial, __ATOMIC_ACQUIRE) == serial);
}

/* Notes the failure EBADF of the function with this name, and returns EBADF. */
SHMI_COLD int shmi_closed_as(const char *function, const char *why)
{
    char op[64], *p;
    snprintf(op, sizeof op, "%s", strncmp(function, "shmsync_", 8) == 0 ? function + 8 : function);
    p = strchr(op, '_');
    if (p != NULL)
        *p = '.';
    return shmi_fail(EBADF, op, NULL, "%s", why);
}
/* Returns EBADF for a call with a closed handle, and notes the failure; function is the name of the called function. */
SHMI_COLD int shmi_closed(const char *function) { return shmi_closed_as(function, "the handle was closed, or was never opened"); }

/* Returns EBADF if the close of the arena a takes back, or has taken back, what this process holds, and notes the
 * failure; otherwise 0. */
SHMI_COLD int shmi_late_in(const shmsync_arena *a, const char *function)
{
    if (a == NULL || !__atomic_load_n(&a->late, __ATOMIC_SEQ_CST))
        return 0;
    return shmi_closed_as(function, "this process closed the arena meanwhile");
}
/* As shmi_late_in, for a call whose handle, on thing, was closed since the begin of the call. If only the handle was
 * closed, the call has succeeded. */
SHMI_COLD int shmi_late(const void *thing, const char *function)
{
    return shmi_late_in(__atomic_load_n(&shmi_head_of(thing)->arena, __ATOMIC_ACQUIRE), function);
}

/* The end of a call that shmi_enter does not count. The close of the arena does not wait for such a call, and replaces
 * the mapping under it. Then the call works with words that are all 0, in memory of this process, and must not report
 * success. So a call that has succeeded reads the serial number of its handle once more. The close clears the number, and
 * sets shmsync_arena.late, before it replaces the mapping.
 *
 *     call                            close
 *     SHMI_OPENED: the handle is open serial := 0; late := 1
 *     load or CAS of a word           mremap
 *     load of serial
 *
 * If the call has found the new memory, mremap had removed the old translation from the CPU of the call before, and the
 * two stores precede that. The load or CAS of the word is an acquire, so the load of serial comes after it, and finds 0.
 * A call may also end with a plain store, such as the unlock of a biased hold. Only a process that has registered for
 * membarrier has such holds, and its close calls shmi_fence between late := 1 and mremap. If the store comes after the
 * fence, the load of serial does too. If the store comes before the fence, it changes the arena, and the close finds it.
 *
 * An error of a late call means that the call has done nothing, or that this process has left since. What a put, a post
 * or a commit has done stays.
 *
 * A call that shmi_enter counts ends with SHMI_TELL if its effect lasts: the close has waited for it, so it has worked
 * with the arena. A get ends with SHMI_TELL, too: its last CAS takes an item out of a slot, and a slot of zeroes has
 * none. */
SHMI_FAST int shmi_done(const void *thing, uint64_t serial, int err, const char *function)
{
    if (SHMI_UNLIKELY(err != 0))
        return shmi_note_result(err, function);
    return SHMI_LIKELY(__atomic_load_n(&shmi_head_of(thing)->serial, __ATOMIC_ACQUIRE) == serial) ? 0 : shmi_late(thing, function);
}
/* As shmi_done, for a call without a handle. */
SHMI_FAST int shmi_done_in(const shmsync_arena *a, int err, const char *function)
{
    if (SHMI_UNLIKELY(err != 0))
        return shmi_note_result(err, function);
    return SHMI_LIKELY(!__atomic_load_n(&a->late, __ATOMIC_ACQUIRE)) ? 0 : shmi_late_in(a, function);
}

/* The first statement of each function with a handle: if the handle is closed, the function returns EBADF. With
 * SHMI_OPENED_OR, the function returns the argument value. The function returns its result with SHMI_DONE, which does not
 * read the handle again: another thread may free the handle as soon as the call has changed the object. */
#define SHMI_OPENED(handle) SHMI_OPENED_AS(handle, __func__)
#define SHMI_OPENED_AS(handle, function) \
    SHMI_REMEMBER(handle);               \
    SHMI_CHECK_OPENED(handle, function)
#define SHMI_REMEMBER(handle)                                                 \
    const void *const shmi_thing_ __attribute__((unused)) = (handle)->impl;   \
    const uint64_t shmi_serial_ __attribute__((unused)) = (handle)->serial
/* As SHMI_OPENED, for a second handle of the function. */
#define SHMI_CHECK_OPENED(handle, function)                      \
    do {                                                         \
        SHMI_BEGIN();                                            \
        if (!shmi_is_open((handle)->impl, (handle)->serial))     \
            return shmi_closed(function);                        \
    } while (0)
#define SHMI_DONE(err) SHMI_DONE_AS(err, __func__)
#define SHMI_DONE_AS(err, function) shmi_done(shmi_thing_, shmi_serial_, (err), function)
/* As SHMI_DONE, for a function that begins with SHMI_OPENED_ELSE. */
#define SHMI_DONE_ELSE(err, clear)                                                                  \
    ((shmi_result_ = (err)) != 0 ? SHMI_TELL(shmi_result_)                                          \
                                 : SHMI_LIKELY((shmi_result_ = SHMI_DONE(0)) == 0) ? 0 : ((void)(clear), shmi_result_))
#define SHMI_DONE_IN(a, err) shmi_done_in((a), (err), __func__)
/* As SHMI_OPENED, for a function that fills in a result for later calls, such as a hold. If the handle is closed, the
 * statement clear sets this result to zeros, so that later calls with it fail. Without the statement, the result would
 * have whatever was in the memory. */
#define SHMI_OPENED_ELSE(handle, clear)                          \
    SHMI_REMEMBER(handle);                                       \
    int shmi_result_ = 0;                                        \
    do {                                                         \
        SHMI_BEGIN();                                            \
        if (!shmi_is_open((handle)->impl, (handle)->serial)) {   \
            clear;                                               \
            return shmi_closed(__func__);                        \
        }                                                        \
    } while (0)
SHMI_FN void shmi_set_flag(int *flag, int value)
{
    if (flag != NULL)
        *flag = value;
}
#define SHMI_OPENED_OR(handle, value)                            \
    do {                                                         \
        if (!shmi_is_open((handle)->impl, (handle)->serial)) {   \
            shmi_closed(__func__);                               \
            return value;                                        \
        }                                                        \
    } while (0)

/* Why shmi_share has returned NULL: the error that it has noted, or ENOMEM if a signal handler that called the library
 * has cleared the note since. */
SHMI_FN int shmi_no_handle(void) { return shmi_last.err != 0 ? shmi_last.err : ENOMEM; }
/* Fills in the handle of the user, *handle, with thing, which is the result of shmi_share. Returns 0 or, if thing is
 * NULL, the error of shmi_share. */
#define SHMI_HAND_OUT(handle, type, thing) \
    ((handle)->impl = (type)(thing), (handle)->serial = shmi_serial_of((handle)->impl), (handle)->impl != NULL ? 0 : shmi_no_handle())

