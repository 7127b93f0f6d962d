
/* ---- Waiting for one of several objects, or for all of them ---- */

enum { SHMSYNC_AWAIT_SEQUENCER = 1, SHMSYNC_AWAIT_EVENT, SHMSYNC_AWAIT_FUTURE, SHMSYNC_AWAIT_EVENT_RESET }; /* EVENT_RESET waits until a bidirectional event is not set */
/* The most objects for which one call can wait. */
#define SHMSYNC_AWAIT_MOST 120

/* What to wait for: one object, and for a Sequencer the value that it has to reach. */
typedef struct shmsync_awaitable {
    int kind;
    const shmsync_sequencer *sequencer; /* which of the three pointers counts depends on kind */
    const shmsync_event *event;
    const shmsync_future *future;
    uint64_t token; /* of a sequencer */
} shmsync_awaitable;

/* Waits until one of the awaitables is ready. An awaitable is ready if a wait for it alone would end. *index is the
 * place of this awaitable in the list, or the lowest place if several awaitables are ready. The result is that of a
 * wait for this awaitable alone: 0 or, for example, EOWNERDEAD for a future, or ECANCELED for a sequencer. The call
 * takes nothing from the other awaitables: if one of them is an auto-reset event that has granted a token to the call,
 * the call passes the token on to another wait. abs_monotonic may be NULL. After ETIMEDOUT or another error of the call
 * itself, *index is SIZE_MAX. The objects may belong to several arenas. EBADF: this process closes one of these arenas,
 * or a handle is closed. EINVAL: n is 0, or more than SHMSYNC_AWAIT_MOST. */
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index);
/* Waits until each of the awaitables has been ready. They may be ready at different times. The thread sleeps for all of
 * them at once. The result for an empty list is 0. If waits for some awaitables end with an error, the call still waits
 * for the others, and the result is the first of these errors in the order of the list. If this process closes an
 * arena, the waits for the objects of that arena end with EBADF. If the call itself fails, for example with ETIMEDOUT,
 * the tokens that it has taken from auto-reset events stay taken. */
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic);

/* Makes f the hook of the calling thread, or removes the hook if f is NULL. Once a call of this thread has waited for
 * 100 ms, it runs f(arg) about every 100 ms, between two sleeps, until the wait ends. If f returns 0, the wait goes on,
 * and keeps its place in the queue. If f returns another value, the wait ends as if its deadline had passed, even in a
 * function without a deadline. Then the result is ETIMEDOUT, with nothing held, or 0 if the call has got what it waits
 * for in the meantime.
 *
 * f does not run while shmsync_cond_wait or shmsync_cond_timedwait waits for the mutex after the wake, nor while
 * shmsync_synchronized_load waits. If f ends a call of shmsync_waitgroup_claim, the call may have claimed a part of the
 * units. If f ends the wait of shmsync_latch_arrive_and_wait, the call has still counted down.
 *
 * A binding of another language uses the hook to run the signal handlers of that language during a wait. f has to
 * return, and a child that f forks must not return from f. f may call the library. While f runs, the thread has no
 * hook, unless f sets one. When f returns, f is the hook again. f must not close the arenas of the wait:
 * shmsync_arena_close returns EDEADLK. If f runs during an open of an arena, it cannot open the same arena: its open
 * returns EDEADLK. */
void shmsync_wait_hook(int (*f)(void *arg), void *arg);
