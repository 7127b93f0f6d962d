
/* ---- Waiting for one of several, or for all ---- */

enum { SHMSYNC_AWAIT_SEQUENCER = 1, SHMSYNC_AWAIT_EVENT, SHMSYNC_AWAIT_FUTURE, SHMSYNC_AWAIT_EVENT_RESET }; /* EVENT_RESET: a bidirectional event is not set */
/* How many objects one call waits for at most. */
#define SHMSYNC_AWAIT_MOST 120

/* What to wait for: one object, and for a Sequencer the value. */
typedef struct shmsync_awaitable {
    int kind;
    const shmsync_sequencer *sequencer; /* which of the three pointers counts depends on kind */
    const shmsync_event *event;
    const shmsync_future *future;
    uint64_t token; /* of a sequencer */
} shmsync_awaitable;

/* Waits until one of the awaitables is reached, and sets *index to its place in the list: the lowest place if several
 * are reached. The result is 0, or what a wait for that awaitable alone returns, for example EOWNERDEAD for a future,
 * or ECANCELED for a sequencer. The other awaitables are unchanged: if this call was granted a token of another
 * auto-reset event, the token passes on to another wait. abs_monotonic may be NULL. After ETIMEDOUT and other errors
 * of the call itself, *index is SIZE_MAX. The objects may belong to several arenas. EBADF: this process closes one of
 * these arenas, or a handle is closed. EINVAL: n is 0, or more than SHMSYNC_AWAIT_MOST. */
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index);
/* Waits, in one sleep, until each of the awaitables has been reached once, at whatever time. The result for an empty
 * list is 0. If waits for some awaitables end with an error, the call still waits for the others, and the result is
 * the first of these errors in the order of the list. If this process closes an arena, the waits for the objects of
 * that arena end with EBADF. If the call returns ETIMEDOUT or another error of its own, it keeps the tokens of
 * auto-reset events that it has taken. */
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic);

/* Sets a function for the waits of the calling thread, or removes it if f is NULL. Once a call has waited for 100 ms,
 * it runs f about every 100 ms, between two sleeps, until the wait ends. If f returns 0, the wait goes on, and keeps
 * its place in the queue. If f returns another value, the wait ends as at a deadline, and so do those of functions that
 * have none: with ETIMEDOUT and nothing held, or with 0 if that for which the call waits has come meanwhile. The second
 * wait of shmsync_cond_wait and shmsync_cond_timedwait, for the mutex, never runs f, and neither does
 * shmsync_synchronized_load. A claim of a WaitGroup that f ends may have claimed a part, and an arrival at a Latch that f
 * ends counts.
 *
 * With this function, a binding of another language runs that language's signal handlers during a wait. f has to
 * return, and a child that f forks must not return from f. f may call the library. Meanwhile no function is set, so
 * waits of f run f only if f sets it. When f returns, it is set as before. f must not close the arenas of the wait:
 * shmsync_arena_close returns EDEADLK. During an open of an arena, an open of the same arena by f returns EDEADLK. */
void shmsync_wait_hook(int (*f)(void *arg), void *arg);
