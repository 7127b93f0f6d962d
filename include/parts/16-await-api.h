
/* ---- Waiting for one of several, or for all ---- */

enum { SHMSYNC_AWAIT_SEQUENCER = 1, SHMSYNC_AWAIT_EVENT, SHMSYNC_AWAIT_FUTURE, SHMSYNC_AWAIT_EVENT_RESET }; /* EVENT_RESET: a bidirectional event is not set */
/* How many objects one call waits for at most. */
#define SHMSYNC_AWAIT_MOST 120

/* What to wait for: one object, and for a Sequencer the value. */
typedef struct shmsync_awaitable {
    int kind;
    const shmsync_sequencer *sequencer; /* one of the three, as kind says */
    const shmsync_event *event;
    const shmsync_future *future;
    uint64_t token; /* of a sequencer */
} shmsync_awaitable;

/* Waits until one of the awaitables is reached, and sets *index to its place in the list: the lowest place if it finds
 * several. The result is 0, or what a wait for that awaitable alone returns, for example EOWNERDEAD for a future, or
 * ECANCELED for a sequencer. The other awaitables are unchanged: a token of an auto-reset event that was handed to this
 * call passes on to another wait. abs_monotonic may be NULL. With ETIMEDOUT and other errors of the call itself, *index
 * is SIZE_MAX. The objects may belong to several arenas. EBADF: this process closes one of these arenas, or a handle is
 * closed. EINVAL: n is 0, or more than SHMSYNC_AWAIT_MOST. */
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index);
/* Waits, in one sleep, until each of the awaitables has been reached once, at whatever time. The result for an
 * empty list is 0. If waits for some of them end with an error, the result is the error of the first of these in
 * the list; the call waits for the others all the same. A close of an arena by this process ends the waits for the
 * objects in that arena with EBADF. After ETIMEDOUT or another error of the call itself, the tokens of auto-reset
 * events that it has taken stay taken. */
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic);
