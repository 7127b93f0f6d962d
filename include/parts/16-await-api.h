
/* ---- Waiting for one of several, or for all ---- */

enum { SHMSYNC_AWAIT_SEQUENCER = 1, SHMSYNC_AWAIT_EVENT, SHMSYNC_AWAIT_FUTURE, SHMSYNC_AWAIT_EVENT_RESET }; /* the last: that a bidirectional event is not set */
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

/*
 * Waits until one of them has come, and sets index to its number, the lowest if it finds
 * several; 0, or what its own wait gives: EOWNERDEAD of a future, ECANCELED of a sequencer.
 * Those that it does not tell of are as they were: a token of an event with auto_reset
 * that was handed to it passes on. abs_monotonic may be NULL. ETIMEDOUT and the errors of
 * the waiting itself come with index SIZE_MAX. EINVAL: none, or more than
 * SHMSYNC_AWAIT_MOST.
 */
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index);
/*
 * Waits until each of them has come, at whatever time, in one sleep; 0 if there is none. The
 * result is that of the first in the list whose own wait ends with an error: it waits for the
 * others all the same. ETIMEDOUT and the errors of the waiting itself: what was taken by then
 * stays taken, which are the tokens of events with auto_reset.
 */
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic);
