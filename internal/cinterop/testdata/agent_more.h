/* Verbs of the agent for FairMutex, Future and Cond. */

static int fair(const order *o, uint64_t *n)
{
    shmsync_fairmutex f;
    shmsync_fairmutex_options opts;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t repaired = 0;
    int err;
    memset(&opts, 0, sizeof opts);
    if (is(o, "fair.open"))
        opts.policy = (int)arg(o, 0);
    if ((err = shmsync_fairmutex_open(arena, o->word[2], &opts, &f)) != 0)
        return err;
    *n = shmsync_fairmutex_offset(&f);
    if (is(o, "fair.open"))
        return 0;
    if (is(o, "fair.try"))
        return shmsync_fairmutex_trylock(&f);
    if (is(o, "fair.unlock"))
        return shmsync_fairmutex_unlock(&f);
    if (is(o, "fair.nullrecover"))
        return shmsync_fairmutex_recover(&f, NULL, NULL);
    if (is(o, "fair.state"))
        return shmsync_fairmutex_state(&f);
    if (is(o, "fair.hang"))
        return shmsync_fairmutex_recover(&f, repair_hangs, NULL);
    if (is(o, "fair.recover"))
        return err = shmsync_fairmutex_recover(&f, repair_good, &repaired), *n = repaired, err;
    if (is(o, "fair.spoil"))
        return shmsync_fairmutex_recover(&f, repair_bad, NULL);
    abs = until(o, 0, &ts);
    if (is(o, "fair.lock"))
        return abs == NULL ? shmsync_fairmutex_lock(&f) : shmsync_fairmutex_timedlock(&f, abs);
    return ENOSYS;
}

static int nothing_to_repair(shmsync_arena *a, const shmsync_lost *lost, void *arg) { return (void)a, (void)lost, (void)arg, 0; }
static int future(const order *o, uint64_t *n)
{
    shmsync_future f;
    struct timespec ts;
    const struct timespec *abs;
    int err, result = 0;
    if ((err = shmsync_future_open(arena, o->word[2], NULL, &f)) != 0)
        return err;
    *n = shmsync_future_offset(&f);
    if (is(o, "future.open"))
        return 0;
    if (is(o, "future.claim"))
        return shmsync_future_claim(&f);
    if (is(o, "future.set"))
        return shmsync_future_set(&f, (int)arg(o, 0));
    if (is(o, "future.isset"))
        return *n = (uint64_t)shmsync_future_is_set(&f, NULL), 0;
    if (is(o, "future.reset"))
        return shmsync_future_reset(&f);
    if (is(o, "future.recoverall"))
        return shmsync_recover_all(arena, nothing_to_repair, NULL, NULL);
    abs = until(o, 0, &ts);
    if (is(o, "future.wait")) {
        err = abs == NULL ? shmsync_future_wait(&f, &result) : shmsync_future_timedwait(&f, &result, abs);
        *n = (uint64_t)(int64_t)result;
        return err;
    }
    return ENOSYS;
}

/* Takes all memory of the arena except wait nodes, or gives it back. */
static int room(const order *o)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static shmsync_offset taken[1 << 16];
    static shmi_off headroom[1 << 16];
    static size_t n, kept; /* guarded by: lock, as taken and headroom */
    const size_t most = sizeof taken / sizeof *taken;
    uint64_t size;
    int err = 0;
    pthread_mutex_lock(&lock);
    if (is(o, "room.take")) {
        for (size = UINT64_C(1) << 20; size >= 64; size /= 2)
            while (n < most && (shmsync_alloc(arena, size, &taken[n]) == 0 || shmsync_alloc(arena, size / 4 * 3, &taken[n]) == 0))
                n++;
        while (kept < most && (shmi_claim_zeroed(arena, SHMI_classHeadroom, SHMI_roomOfRecords, &headroom[kept]) == 0 ||
                               shmi_claim_zeroed(arena, SHMI_classHeadroom, SHMI_roomOfLarge, &headroom[kept]) == 0))
            kept++;
        err = n < most && kept < most ? 0 : E2BIG;
    } else {
        while (kept > 0)
            shmi_unclaim(arena, headroom[--kept]);
        while (n > 0 && err == 0)
            err = shmsync_free(arena, taken[--n]);
    }
    pthread_mutex_unlock(&lock);
    return err;
}

/* Verbs for a Cond. Its lock is the mutex NAME+"-lock". */
static int cond(const order *o, uint64_t *n)
{
    char other[600];
    shmsync_cond c;
    shmsync_mutex m;
    struct timespec ts;
    const struct timespec *abs;
    int err;
    snprintf(other, sizeof other, "%s-lock", o->word[2]);
    if ((err = shmsync_cond_open(arena, o->word[2], NULL, &c)) != 0 || (err = shmsync_mutex_open(arena, other, NULL, &m)) != 0)
        return err;
    *n = shmsync_cond_offset(&c);
    if (is(o, "cond.open"))
        return 0;
    if (is(o, "cond.signal"))
        return shmsync_cond_signal(&c);
    if (is(o, "cond.broadcast"))
        return shmsync_cond_broadcast(&c);
    if (is(o, "cond.lock"))
        return shmsync_mutex_lock(&m);
    if (is(o, "cond.unlock"))
        return shmsync_mutex_unlock(&m);
    abs = until(o, 0, &ts);
    if (is(o, "cond.apart") && (err = shmsync_mutex_open(arena, "", NULL, &m)) != 0)
        return err;
    if (is(o, "cond.wait") || is(o, "cond.apart")) { /* locks before the wait, and unlocks after it; apart: a lock of its own */
        if ((err = shmsync_mutex_lock(&m)) != 0)
            return err;
        err = abs == NULL ? shmsync_cond_wait(&c, &m) : shmsync_cond_timedwait(&c, &m, abs);
        if (err == 0 || err == ETIMEDOUT)
            shmsync_mutex_unlock(&m);
        return err;
    }
    return ENOSYS;
}

#if SHMSYNC_LAYOUT_VERSION >= 3
static int semaphore(const order *o, uint64_t *n)
{
    shmsync_semaphore s;
    shmsync_semaphore_options opts;
    struct timespec ts;
    const struct timespec *abs;
    int err, open_ = is(o, "sem.open");
    memset(&opts, 0, sizeof opts);
    opts.transferable = open_ && arg(o, 1) != 0;
    err = open_ ? shmsync_semaphore_open(arena, o->word[2], arg(o, 0), &opts, &s) : shmsync_semaphore_attach(arena, o->word[2], &opts, &s);
    if (err != 0)
        return err;
    *n = shmsync_semaphore_offset(&s);
    if (open_)
        return 0;
    if (is(o, "sem.try"))
        return shmsync_semaphore_tryacquire(&s, arg(o, 0));
    if (is(o, "sem.release"))
        return shmsync_semaphore_release(&s, arg(o, 0));
    if (is(o, "sem.free"))
        return *n = (uint64_t)shmsync_semaphore_free(&s), 0;
    abs = until(o, 1, &ts);
    if (is(o, "sem.acquire"))
        return abs == NULL ? shmsync_semaphore_acquire(&s, arg(o, 0)) : shmsync_semaphore_timedacquire(&s, arg(o, 0), abs);
    return ENOSYS;
}
#endif

#include "agent_group.h"
#include "agent_rw.h"
#include "agent_spin.h"
#include "agent_multi.h"
#include "agent_signal.h"

/* Waits for any of these: the future NAME-f, the count 1 of the sequencer NAME-s, or the event NAME-e. */
static int any(const order *o, uint64_t *n)
{
    char other[600];
    shmsync_future f;
    shmsync_sequencer s;
    shmsync_event e;
    shmsync_awaitable list[3];
    struct timespec ts;
    size_t index = 0;
    int err;
    memset(list, 0, sizeof list);
    snprintf(other, sizeof other, "%s-f", o->word[2]);
    if ((err = shmsync_future_open(arena, other, NULL, &f)) != 0)
        return err;
    snprintf(other, sizeof other, "%s-s", o->word[2]);
    if ((err = shmsync_sequencer_open(arena, other, NULL, &s)) != 0)
        return err;
    snprintf(other, sizeof other, "%s-e", o->word[2]);
    if ((err = shmsync_event_open(arena, other, NULL, &e)) != 0)
        return err;
    list[0].kind = SHMSYNC_AWAIT_FUTURE;
    list[0].future = &f;
    list[1].kind = SHMSYNC_AWAIT_SEQUENCER;
    list[1].sequencer = &s;
    list[1].token = 1;
    list[2].kind = SHMSYNC_AWAIT_EVENT;
    list[2].event = &e;
    err = shmsync_wait_any(list, 3, until(o, 0, &ts), &index);
    *n = (uint64_t)index;
    return err;
}

/* Waits for the future NAME-f, the count 1 of the sequencer NAME-s, the event NAME-e, and the reset of the event
 * NAME-r. It waits for all of these; the verb all.any waits for one. */
static int all(const order *o, uint64_t *n)
{
    char other[600];
    shmsync_future f;
    shmsync_sequencer s;
    shmsync_event e, r;
    shmsync_awaitable list[4];
    shmsync_event_options bidirectional;
    struct timespec ts;
    const struct timespec *abs = until(o, 0, &ts);
    size_t index = 0;
    int err;
    memset(list, 0, sizeof list);
    memset(&bidirectional, 0, sizeof bidirectional);
    bidirectional.bidirectional = 1;
    snprintf(other, sizeof other, "%s-f", o->word[2]);
    err = shmsync_future_open(arena, other, NULL, &f);
    snprintf(other, sizeof other, "%s-s", o->word[2]);
    if (err == 0)
        err = shmsync_sequencer_open(arena, other, NULL, &s);
    snprintf(other, sizeof other, "%s-e", o->word[2]);
    if (err == 0)
        err = shmsync_event_open(arena, other, NULL, &e);
    snprintf(other, sizeof other, "%s-r", o->word[2]);
    if (err == 0)
        err = shmsync_event_open(arena, other, &bidirectional, &r);
    if (err != 0)
        return err;
    list[0].kind = SHMSYNC_AWAIT_FUTURE;
    list[0].future = &f;
    list[1].kind = SHMSYNC_AWAIT_SEQUENCER;
    list[1].sequencer = &s;
    list[1].token = 1;
    list[2].kind = SHMSYNC_AWAIT_EVENT;
    list[2].event = &e;
    list[3].kind = SHMSYNC_AWAIT_EVENT_RESET;
    list[3].event = &r;
    if (is(o, "all.wait"))
        return shmsync_wait_all(list, 4, abs);
    err = shmsync_wait_any(list, 4, abs, &index);
    *n = (uint64_t)index;
    return err;
}

static int more(const order *o, uint64_t *n)
{
    if (is(o, "any.wait"))
        return any(o, n);
    if (strncmp(o->word[1], "all.", 4) == 0)
        return all(o, n);
    if (is(o, "group.rw") || is(o, "group.spin") || is(o, "group.rwspin") || is(o, "group.multi") || is(o, "group.sig")) {
        int turn, turns = (int)arg(o, 0), err = 0;
        for (turn = 0; turn < turns && err == 0; turn++, ++*n)
            err = is(o, "group.rw")     ? group_rw(o->word[2], turn)
                  : is(o, "group.spin") ? group_spin(o->word[2], turn)
                  : is(o, "group.multi") ? group_multi(o->word[2], turn)
                  : is(o, "group.sig") ? group_sig(o->word[2], turn)
                                        : group_rwspin(o->word[2], turn);
        return err;
    }
    if (strncmp(o->word[1], "sig.", 4) == 0)
        return sig_verb(o, n);
    if (strncmp(o->word[1], "multi.", 6) == 0)
        return multi(o, n);
    if (strncmp(o->word[1], "spin.", 5) == 0)
        return spin(o, n);
    if (strncmp(o->word[1], "rwspin.", 7) == 0)
        return rwspin(o, n);
    if (strncmp(o->word[1], "group.", 5) == 0)
        return group(o, n);
    if (strncmp(o->word[1], "rw.", 3) == 0)
        return rw(o, n);
#if SHMSYNC_LAYOUT_VERSION >= 3
    if (strncmp(o->word[1], "sem.", 4) == 0)
        return semaphore(o, n);
#endif
    if (strncmp(o->word[1], "fair.", 5) == 0)
        return fair(o, n);
    if (strncmp(o->word[1], "future.", 7) == 0)
        return future(o, n);
    if (strncmp(o->word[1], "room.", 5) == 0)
        return room(o);
    if (strncmp(o->word[1], "cond.", 5) == 0)
        return cond(o, n);
    return ENOSYS;
}
