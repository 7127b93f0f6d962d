/* Tests the promises of docs/c-contract.md: contract VERB NAME uses the arena NAME. Exit status 0: they hold. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <semaphore.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Whether AddressSanitizer or ThreadSanitizer is in use. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define CHECK(got, want)                                                                                             \
    do {                                                                                                             \
        long long got_ = (long long)(got), want_ = (long long)(want);                                               \
        if (got_ != want_) {                                                                                         \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #got, got_, want_, shmsync_error()); \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

static const char *arena_name;
static const struct timespec soon = {1, 0}; /* a time that has passed */

static shmsync_arena *open_arena(void)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    return a;
}

struct handles {
    shmsync_mutex mutex;
    shmsync_futex futex;
    shmsync_sequencer sequencer;
    shmsync_event event;
    shmsync_queue queue;
    shmsync_lease lease;
    shmsync_waitgroup waitgroup;
    shmsync_latch latch;
    shmsync_once once;
    shmsync_barrier barrier;
    shmsync_fairmutex fairmutex;
    shmsync_future future;
    shmsync_cond cond;
    shmsync_semaphore semaphore;
    shmsync_rwmutex rwmutex;
    shmsync_spinlock spinlock;
    shmsync_rwspinlock rwspinlock;
    shmsync_multilock multilock;
    shmsync_signalwaker signalwaker;
    shmsync_gate gate;
    shmsync_signal signal;
    shmsync_synchronized synchronized;
    shmsync_hold hold;
};

static void open_all(shmsync_arena *a, struct handles *h)
{
    shmsync_queue_options one;
    uint64_t item = 1;
    memset(h, 0, sizeof *h);
    memset(&one, 0, sizeof one);
    one.capacity = 4;
    CHECK(shmsync_mutex_open(a, "mutex", NULL, &h->mutex), 0);
    CHECK(shmsync_futex_open(a, "futex", NULL, &h->futex), 0);
    CHECK(shmsync_sequencer_open(a, "sequencer", NULL, &h->sequencer), 0);
    CHECK(shmsync_event_open(a, "event", NULL, &h->event), 0);
    CHECK(shmsync_queue_open(a, "queue", sizeof item, &one, &h->queue), 0);
    CHECK(shmsync_waitgroup_open(a, "waitgroup", NULL, &h->waitgroup), 0);
    CHECK(shmsync_latch_open(a, "latch", 1, NULL, &h->latch), 0);
    CHECK(shmsync_once_open(a, "once", NULL, &h->once), 0);
    CHECK(shmsync_barrier_open(a, "barrier", 2, NULL, &h->barrier), 0);
    CHECK(shmsync_fairmutex_open(a, "fairmutex", NULL, &h->fairmutex), 0);
    CHECK(shmsync_future_open(a, "future", NULL, &h->future), 0);
    CHECK(shmsync_cond_open(a, "cond", NULL, &h->cond), 0);
    CHECK(shmsync_semaphore_open(a, "semaphore", 1, NULL, &h->semaphore), 0);
    CHECK(shmsync_rwmutex_open(a, "rwmutex", NULL, &h->rwmutex), 0);
    CHECK(shmsync_spinlock_open(a, "spinlock", NULL, &h->spinlock), 0);
    CHECK(shmsync_rwspinlock_open(a, "rwspinlock", NULL, &h->rwspinlock), 0);
    CHECK(shmsync_multilock_open(a, "multilock", NULL, &h->multilock), 0);
    CHECK(shmsync_signalwaker_open(a, "signalwaker", NULL, &h->signalwaker), 0);
    CHECK(shmsync_synchronized_open(a, "synchronized", sizeof item, NULL, &h->synchronized), 0);
    CHECK(shmsync_queue_put(&h->queue, &item), 0);
    CHECK(shmsync_queue_lease(&h->queue, &item, &h->lease), 0);
    CHECK(shmsync_signalwaker_gate(&h->signalwaker, 1, &h->gate), 0);
    CHECK(shmsync_signalwaker_signal(&h->signalwaker, 1, &h->signal), 0);
    CHECK(shmsync_multilock_lock(&h->multilock, 7, &h->hold), 0);
}

static int close_all(struct handles *h, int want)
{
    CHECK(shmsync_mutex_close(&h->mutex), want);
    CHECK(shmsync_futex_close(&h->futex), want);
    CHECK(shmsync_sequencer_close(&h->sequencer), want);
    CHECK(shmsync_event_close(&h->event), want);
    CHECK(shmsync_queue_close(&h->queue), want);
    CHECK(shmsync_waitgroup_close(&h->waitgroup), want);
    CHECK(shmsync_latch_close(&h->latch), want);
    CHECK(shmsync_once_close(&h->once), want);
    CHECK(shmsync_barrier_close(&h->barrier), want);
    CHECK(shmsync_fairmutex_close(&h->fairmutex), want);
    CHECK(shmsync_future_close(&h->future), want);
    CHECK(shmsync_cond_close(&h->cond), want);
    CHECK(shmsync_semaphore_close(&h->semaphore), want);
    CHECK(shmsync_rwmutex_close(&h->rwmutex), want);
    CHECK(shmsync_spinlock_close(&h->spinlock), want);
    CHECK(shmsync_rwspinlock_close(&h->rwspinlock), want);
    CHECK(shmsync_multilock_close(&h->multilock), want);
    CHECK(shmsync_signalwaker_close(&h->signalwaker), want);
    CHECK(shmsync_synchronized_close(&h->synchronized), want);
    return 0;
}

static int give0(void *arg)
{
    (void)arg;
    return 0;
}
static void nothing(void *arg) { (void)arg; }
static int visit(const shmsync_participant *p, void *arg)
{
    (void)p;
    (void)arg;
    return 0;
}
static void told(const shmsync_participant *p, void *arg) { visit(p, arg); }
static int repair_lost(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return 0;
}

/* Makes every call with handles that are closed: each call fails with EBADF, and notes its failure. */
static void call_all(struct handles *h)
{
    union {
        uint64_t bytes[64], u, stats[SHMSYNC_STATS];
        int i;
        size_t size;
        void *p;
        shmsync_tx tx;
        shmsync_lease lease;
        shmsync_hold hold;
        shmsync_gate gate;
        shmsync_gate_info gate_info;
        shmsync_signal signal;
        shmsync_signal_health signal_health;
    } out;
    shmsync_awaitable wait;
    size_t index;
    memset(&out, 0, sizeof out);
#define CALL(name, call)                                                                                   \
    shmi_fail(EINVAL, "earlier", NULL, "%s", "");                                                          \
    {                                                                                                      \
        int got = (call);                                                                                  \
        if (got != EBADF || strstr(shmsync_error(), shmsync_strerror(EBADF)) == NULL) {                    \
            fprintf(stderr, "%s: %s, and shmsync_error() is %s\n", name, strerror(got), shmsync_error()); \
            _exit(1);                                                                                      \
        }                                                                                                  \
    }
#define VALUE(name, call) CHECK(call, 0);
#include "contract_calls.h"
    memset(&wait, 0, sizeof wait);
    wait.kind = SHMSYNC_AWAIT_SEQUENCER;
    wait.sequencer = &h->sequencer;
    wait.event = &h->event;
    wait.future = &h->future;
    for (; wait.kind <= SHMSYNC_AWAIT_EVENT_RESET; wait.kind++) {
        CALL("wait_any", shmsync_wait_any(&wait, 1, &soon, &index))
        CALL("wait_all", shmsync_wait_all(&wait, 1, &soon))
    }
}

/* Tests handles that were closed, copies of them, and handles of zeroes. */
static int closed_handles(void)
{
    shmsync_arena *a = open_arena();
    struct handles h, copy, none;
    open_all(a, &h);
    CHECK(shmsync_multilock_unlock(&h.hold), 0);
    copy = h;
    close_all(&h, 0);
    call_all(&copy);
    close_all(&copy, EBADF);
    h.lease = copy.lease; /* a hold or a lease of zeroes does not exist, rather than being closed */
    h.hold = copy.hold;
    h.gate = copy.gate;
    h.signal = copy.signal;
    call_all(&h);
    close_all(&h, EBADF);
    memset(&none, 0, sizeof none);
    close_all(&none, EBADF);
    open_all(a, &h); /* new handles of the same kind do not reopen the old ones */
    call_all(&copy);
    return shmsync_arena_close(a);
}

/* Tests the handles of an arena that was closed, and the arena itself. */
static int closed_arena(void)
{
    shmsync_arena *a = open_arena();
    shmsync_participant p;
    shmsync_offset off;
    shmsync_mutex m;
    struct handles h;
    void *block;
    uint64_t *bytes;
    CHECK(shmsync_alloc(a, 64, &off), 0);
    bytes = (uint64_t *)shmsync_at(a, off, 64);
    open_all(a, &h);
    CHECK(shmsync_arena_close(a), 0);
    call_all(&h);
    close_all(&h, EBADF);
    CHECK(shmsync_arena_close(a), EBADF);
    CHECK(shmsync_arena_self(a, &p), EBADF);
    CHECK(shmsync_arena_on_death(a, told, NULL), EBADF);
    CHECK(shmsync_arena_participants(a, visit, NULL), EBADF);
    CHECK(shmsync_arena_base(a) == NULL, 1);
    CHECK(shmsync_free(a, off), EBADF);
    CHECK(shmsync_alloc(a, 64, &off), EBADF);
    CHECK(shmsync_at(a, off, 64) == NULL, 1);
    CHECK(shmsync_block_open(a, "block", 64, &block), EBADF);
    CHECK(shmsync_block_attach(a, "block", &block, NULL), EBADF);
    CHECK(shmsync_value_open(a, "value", 64, 0, &block), EBADF);
    CHECK(shmsync_value_attach(a, "value", 64, 0, &block), EBADF);
    CHECK(shmsync_delete(a, "mutex"), EBADF);
    CHECK(shmsync_delete_at(a, off), EBADF);
    CHECK(shmsync_recover_all(a, repair_lost, NULL, NULL), EBADF);
    CHECK(shmsync_mutex_open(a, "mutex", NULL, &m), EBADF);
    CHECK(shmsync_mutex_attach(a, "mutex", NULL, &m), EBADF);
    CHECK(shmsync_mutex_at(a, off, &m), EBADF);
    *bytes = 1; /* this store changes nothing that others see, and does not fault */
    return 0;
}

static int refuse(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)e;
    *(shmsync_arena **)arg = a;
    return EPERM;
}
/* Closed arenas do not count against RLIMIT_DATA, and opens that fail do not displace them. */
static int closed_many(void)
{
    shmsync_arena_options other, refusing;
    shmsync_arena *a, *kept = NULL;
    struct rlimit limit;
    void *p;
    int i;
    CHECK(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 256 << 20;
    if (!SANITIZED) /* a sanitizer has much data of its own */
        CHECK(setrlimit(RLIMIT_DATA, &limit), 0);
    for (i = 0; i < 40; i++) {
        a = open_arena();
        p = shmsync_arena_base(a);
        CHECK(shmsync_arena_close(a), 0);
        *(volatile char *)p = 1; /* it is still mapped */
    }
    p = malloc(128 << 20);
    CHECK(p != NULL, 1);
    free(p);

    memset(&other, 0, sizeof other);
    other.max_participants = 7;
    memset(&refusing, 0, sizeof refusing);
    refusing.on_first = refuse;
    refusing.on_first_arg = &kept;
    for (i = 0; i < 70; i++) {
        shmsync_arena *none;
        CHECK(shmsync_arena_open(arena_name, &other, &none), EINVAL);
        CHECK(shmsync_arena_open(arena_name, &refusing, &none), EPERM);
    }
    CHECK(shmsync_arena_close(a), EBADF);
    CHECK(kept != NULL, 1);
    CHECK(shmsync_arena_close(kept), EBADF);
    return 0;
}

static shmsync_arena *shared;
static struct handles in_use;
static int started;

static void *use_until_closed(void *arg)
{
    struct handles h = in_use;
    shmsync_offset off;
    shmsync_mutex mine;
    uint64_t i, u;
    int err;
    (void)arg;
    for (i = 0;; i++) {
        if (i == 100)
            __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
        err = shmsync_mutex_lock(&h.mutex);
        if (err == 0)
            err = shmsync_mutex_unlock(&h.mutex);
        if (err == 0)
            err = shmsync_semaphore_acquire(&h.semaphore, 1);
        if (err == 0)
            err = shmsync_semaphore_release(&h.semaphore, 1);
        if (err == 0)
            err = shmsync_sequencer_increment(&h.sequencer, &u);
        if (err == 0)
            err = shmsync_event_set(&h.event);
        if (err == 0)
            err = shmsync_futex_post(&h.futex);
        if (err == 0)
            err = shmsync_queue_put(&h.queue, &u);
        if (err == 0)
            err = shmsync_queue_get(&h.queue, &u);
        if (err == 0)
            err = shmsync_rwmutex_rdlock(&h.rwmutex);
        if (err == 0)
            err = shmsync_rwmutex_rdunlock(&h.rwmutex);
        if (err == 0)
            err = shmsync_alloc(shared, 64, &off);
        if (err == 0)
            err = shmsync_free(shared, off);
        if (err == 0)
            err = shmsync_mutex_open(shared, "mine", NULL, &mine);
        if (err == 0)
            err = shmsync_mutex_close(&mine);
        if (err != 0)
            break;
    }
    /* The call during the close may have failed in another way, because the close takes holds back as a death does. */
    while (shmsync_mutex_trylock(&h.mutex) != EBADF)
        sched_yield();
    return NULL;
}
/* Threads use an arena while it is closed. */
static int closed_in_use(void)
{
    enum { THREADS = 4 };
    pthread_t t[THREADS];
    int round, i;
    for (round = 0; round < 10; round++) {
        CHECK(shmsync_arena_remove(arena_name), 0); /* so that it is not in the way of the next round */
        shared = open_arena();
        open_all(shared, &in_use);
        CHECK(shmsync_multilock_unlock(&in_use.hold), 0);
        CHECK(shmsync_lease_nack(&in_use.lease), 0);
        started = 0;
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_create(&t[i], NULL, use_until_closed, NULL), 0);
        while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < THREADS)
            sched_yield();
        CHECK(shmsync_arena_close(shared), 0);
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_join(t[i], NULL), 0);
    }
    return 0;
}

/* The close of one of many handles searches few others. */
static int close_many(void)
{
    enum { MANY = 4000 };
    static shmsync_mutex m[MANY];
    shmsync_arena *a = open_arena();
    int i;
    for (i = 0; i < MANY; i++)
        CHECK(shmsync_mutex_open(a, NULL, NULL, &m[i]), 0);
    for (i = 0; i < MANY; i++)
        CHECK(shmsync_mutex_close(&m[i]), 0);
    if (a->refs_passed > 16 * MANY) {
        fprintf(stderr, "%llu references were looked at to open and close %d\n", (unsigned long long)a->refs_passed, MANY);
        return 1;
    }
    return shmsync_arena_close(a);
}

/* Deletes an object by its offset: an anonymous object leaves no memory behind. */
static int delete_at(void)
{
    enum { ROUNDS = 20000 }; /* many more than have room */
    shmsync_arena *a = open_arena();
    shmsync_offset off = 0, raw;
    shmsync_mutex m, again;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_mutex_open(a, NULL, NULL, &m), 0);
        off = shmsync_mutex_offset(&m);
        if (i == 0)
            CHECK(shmsync_delete_at(a, off), EBUSY);
        CHECK(shmsync_mutex_close(&m), 0);
        CHECK(shmsync_delete_at(a, off), 0);
    }
    CHECK(shmsync_delete_at(a, off), EINVAL);
    CHECK(shmsync_delete_at(a, 0), EINVAL);
    CHECK(shmsync_delete_at(a, UINT64_MAX), EINVAL);
    CHECK(shmsync_alloc(a, 64, &raw), 0);
    CHECK(shmsync_delete_at(a, raw), EINVAL);
    CHECK(shmsync_mutex_open(a, "named", NULL, &m), 0);
    off = shmsync_mutex_offset(&m);
    CHECK(shmsync_mutex_at(a, off, &again), 0);
    CHECK(shmsync_mutex_close(&m), 0);
    CHECK(shmsync_delete_at(a, off), EBUSY);
    CHECK(shmsync_mutex_close(&again), 0);
    CHECK(shmsync_delete_at(a, off), 0);
    CHECK(shmsync_mutex_attach(a, "named", NULL, &m), ENOENT);
    CHECK(strcmp(shmsync_version(), "0.1.0"), 0);
    return shmsync_arena_close(a);
}

/* Each failure has a text of its own, and the text of an expected failure is made only when it is asked for. */
static int errors(void)
{
    shmsync_arena *a = open_arena();
    struct timespec no_time = {0, 2000000000};
    shmsync_awaitable wait;
    struct handles h;
    uint64_t item = 1;
    size_t index;
    int i, n = 0;
    void *p;
    open_all(a, &h);
    memset(&wait, 0, sizeof wait);
    wait.kind = SHMSYNC_AWAIT_SEQUENCER;
    wait.sequencer = &h.sequencer;
    wait.token = 1;
    CHECK(shmsync_mutex_lock(&h.mutex), 0);
    CHECK(shmsync_fairmutex_lock(&h.fairmutex), 0);
    CHECK(shmsync_rwmutex_lock(&h.rwmutex), 0);
    CHECK(shmsync_spinlock_lock(&h.spinlock), 0);
    CHECK(shmsync_rwspinlock_lock(&h.rwspinlock), 0);
    CHECK(shmsync_semaphore_acquire(&h.semaphore, 1), 0);
    CHECK(shmsync_waitgroup_add(&h.waitgroup, 1), 0);
    CHECK(shmsync_synchronized_begin(&h.synchronized, &p), 0);
    CHECK(shmsync_lease_nack(&h.lease), 0);
    CHECK(shmsync_queue_get(&h.queue, &item), 0);
    CHECK(shmsync_future_claim(&h.future), 0);
#define FAILS(want, call)                                                                                               \
    do {                                                                                                                \
        int got;                                                                                                        \
        shmi_fail(ENOSPC, "earlier", NULL, "%s", "");                                                                   \
        shmi_fail(want, "earlier", NULL, "%s", "");                                                                     \
        got = (call);                                                                                                   \
        if (((want) == EBUSY || (want) == ETIMEDOUT) && !shmi_last.brief) {                                             \
            fprintf(stderr, "line %d: %s was put into words: %s\n", __LINE__, #call, shmsync_error());                  \
            _exit(1);                                                                                                   \
        }                                                                                                               \
        if (got != (want) || strstr(shmsync_error(), shmsync_strerror(want)) == NULL || strstr(shmsync_error(), "earlier") != NULL || \
            shmsync_error()[strlen(shmsync_error()) - 1] == ' ') {                                                      \
            fprintf(stderr, "line %d: %s is %d, and shmsync_error() is %s\n", __LINE__, #call, got, shmsync_error());   \
            _exit(1);                                                                                                   \
        }                                                                                                               \
        n++;                                                                                                            \
    } while (0)
    CHECK(shmsync_mutex_trylock(&h.mutex), EBUSY); /* the text is not made yet when another call succeeds */
    CHECK(shmsync_mutex_state(&h.mutex), 0);
    if (strstr(shmsync_error(), shmsync_strerror(EBUSY)) == NULL) {
        fprintf(stderr, "after a call that succeeded, shmsync_error() is %s\n", shmsync_error());
        _exit(1);
    }
    FAILS(EBUSY, shmsync_mutex_trylock(&h.mutex));
    FAILS(EBUSY, shmsync_fairmutex_trylock(&h.fairmutex));
    FAILS(EBUSY, shmsync_rwmutex_trylock(&h.rwmutex));
    FAILS(EBUSY, shmsync_rwmutex_tryrdlock(&h.rwmutex));
    FAILS(EBUSY, shmsync_spinlock_trylock(&h.spinlock));
    FAILS(EBUSY, shmsync_rwspinlock_trylock(&h.rwspinlock));
    FAILS(EBUSY, shmsync_rwspinlock_tryrdlock(&h.rwspinlock));
    FAILS(EBUSY, shmsync_multilock_trylock(&h.multilock, 7, &h.hold));
    FAILS(EBUSY, shmsync_semaphore_tryacquire(&h.semaphore, 1));
    FAILS(EBUSY, shmsync_queue_tryget(&h.queue, &item));
    FAILS(EBUSY, shmsync_event_trywait(&h.event));
    FAILS(EBUSY, shmsync_latch_trywait(&h.latch));
    FAILS(EBUSY, shmsync_gate_begin(&h.gate));
    FAILS(EBUSY, shmsync_signalwaker_tryacquire(&h.signalwaker));
    FAILS(EBUSY, shmsync_signalwaker_next(&h.signalwaker, 0, &h.gate));
    FAILS(EBUSY, shmsync_signal_acquire(&h.signal, 1, NULL));
    FAILS(EBUSY, shmsync_signalwaker_tryunmark(&h.signalwaker, 1));
    FAILS(ETIMEDOUT, shmsync_mutex_timedlock(&h.mutex, &soon));
    FAILS(ETIMEDOUT, shmsync_fairmutex_timedlock(&h.fairmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_rwmutex_timedlock(&h.rwmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_rwmutex_timedrdlock(&h.rwmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_spinlock_timedlock(&h.spinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_rwspinlock_timedlock(&h.rwspinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_rwspinlock_timedrdlock(&h.rwspinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_multilock_timedlock(&h.multilock, 7, &h.hold, &soon));
    FAILS(ETIMEDOUT, shmsync_semaphore_timedacquire(&h.semaphore, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_queue_timedget(&h.queue, &item, &soon));
    FAILS(ETIMEDOUT, shmsync_event_timedwait(&h.event, &soon));
    FAILS(ETIMEDOUT, shmsync_latch_timedwait(&h.latch, &soon));
    FAILS(ETIMEDOUT, shmsync_future_timedwait(&h.future, &i, &soon));
    FAILS(ETIMEDOUT, shmsync_futex_timedwait(&h.futex, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_sequencer_timedwait(&h.sequencer, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_waitgroup_timedwait(&h.waitgroup, &soon));
    FAILS(ETIMEDOUT, shmsync_barrier_timedwait(&h.barrier, 0, &soon));
    FAILS(ETIMEDOUT, shmsync_cond_timedwait(&h.cond, &h.mutex, &soon));
    FAILS(ETIMEDOUT, shmsync_signalwaker_timedacquire(&h.signalwaker, &soon));
    FAILS(ETIMEDOUT, shmsync_wait_any(&wait, 1, &soon, &index));
    FAILS(ETIMEDOUT, shmsync_synchronized_timedbegin(&h.synchronized, &p, &soon));
    FAILS(EINVAL, shmsync_queue_timedget(&h.queue, &item, &no_time));
    FAILS(EINVAL, shmsync_event_timedwait(&h.event, &no_time));
    FAILS(EINVAL, shmsync_arena_close(NULL));
    FAILS(EINVAL, shmsync_queue_attach(a, "mutex", 8, NULL, &h.queue));
    FAILS(ENOENT, shmsync_mutex_attach(a, "none", NULL, &h.mutex));
    CHECK(shmsync_sequencer_stop(&h.sequencer), 0);
    FAILS(ECANCELED, shmsync_sequencer_wait(&h.sequencer, 1));
    CHECK(n > 40, 1);
    return shmsync_arena_close(a);
}

/* ---- Waits for objects of two arenas ---- */

static shmsync_arena *two[2];
static shmsync_event events[2];
static void *wait_for_any(void *arg)
{
    shmsync_awaitable list[2];
    size_t index;
    memset(list, 0, sizeof list);
    list[0].kind = list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &events[0];
    list[1].event = &events[1];
    *(int *)arg = shmsync_wait_any(list, 2, NULL, &index);
    CHECK(index == SIZE_MAX, *(int *)arg == EBADF);
    return NULL;
}
static void *wait_for_all(void *arg)
{
    shmsync_awaitable list[2];
    memset(list, 0, sizeof list);
    list[0].kind = list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &events[0];
    list[1].event = &events[1];
    *(int *)arg = shmsync_wait_all(list, 2, NULL);
    return NULL;
}
/* Waits until as many threads sleep for an object of the arena. */
static void await_sleeps(shmsync_arena *a, int n)
{
    while (__builtin_popcount(shmi_ld32(&a->announce_map)) != n)
        sched_yield();
}
/* One call waits for an event in each of two arenas. It announces itself in both, and the close of each of them ends
 * the wait for its event. */
static int two_arenas(void)
{
    char name[2][256];
    pthread_t t;
    int k, which, result;
    alarm(60);
    for (k = 0; k < 8; k++) { /* which arena is closed, which kind of event, which call */
        const int closed = k & 1, all = k >> 2;
        shmsync_event_options o;
        memset(&o, 0, sizeof o);
        o.auto_reset = k >> 1 & 1;
        for (which = 0; which < 2; which++) {
            snprintf(name[which], sizeof name[which], "%s%s", arena_name, which ? "-2" : "");
            CHECK(shmsync_arena_open(name[which], NULL, &two[which]), 0);
            CHECK(shmsync_event_open(two[which], o.auto_reset ? "auto" : "manual", &o, &events[which]), 0);
        }
        CHECK(pthread_create(&t, NULL, all ? wait_for_all : wait_for_any, &result), 0);
        await_sleeps(two[0], 1);
        await_sleeps(two[1], 1);
        CHECK(shmsync_arena_close(two[closed]), 0); /* it waits until the wait for its event has ended */
        if (all) { /* the call goes on to wait for the other event, as it does after any result */
            await_sleeps(two[!closed], 1);
            CHECK(shmsync_event_set(&events[!closed]), 0);
        }
        CHECK(pthread_join(t, NULL), 0);
        CHECK(result, EBADF);
        if (all && !o.auto_reset)
            CHECK(shmsync_event_reset(&events[!closed]), 0);
        CHECK(shmsync_arena_close(two[!closed]), 0);
    }
    /* What came before the close counts. The rest of the wait does not delay a close. */
    for (k = 0; k < 2; k++) {
        CHECK(shmsync_arena_open(name[k], NULL, &two[k]), 0);
        CHECK(shmsync_event_open(two[k], "manual", NULL, &events[k]), 0);
    }
    CHECK(pthread_create(&t, NULL, wait_for_all, &result), 0);
    await_sleeps(two[0], 1);
    CHECK(shmsync_event_set(&events[0]), 0);
    await_sleeps(two[0], 0);
    CHECK(shmsync_arena_close(two[0]), 0);
    CHECK(shmsync_event_set(&events[1]), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(result, 0);
    CHECK(shmsync_arena_close(two[1]), 0);
    return shmsync_arena_remove(name[1]);
}

/* The thread of the library has a name of its own. It has neither the CPU affinity nor the policy of the thread that
 * opened the arena. */
static int helper(void)
{
    cpu_set_t first, one, its;
    struct sched_param none;
    char path[300], name[32];
    struct dirent *e;
    int i = 0, found = 0;
    DIR *d;
    memset(&none, 0, sizeof none);
    CHECK(sched_getaffinity(0, sizeof first, &first), 0);
    while (!CPU_ISSET(i, &first))
        i++;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    open_arena();
    d = opendir("/proc/self/task");
    while ((e = readdir(d)) != NULL) {
        int tid = atoi(e->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if (tid == 0 || tid == getpid() || shmi_read_file(path, name, sizeof name) <= 0)
            continue;
        if (!SANITIZED) /* ThreadSanitizer starts a thread, too */
            CHECK(strcmp(name, "shmsync-watcher\n") == 0 || strcmp(name, "shmsync-fences\n") == 0, 1);
        if (strcmp(name, "shmsync-watcher\n") != 0)
            continue;
        found++;
        CHECK(sched_getscheduler(tid), SCHED_OTHER);
        CHECK(sched_getaffinity(tid, sizeof its, &its), 0);
        CHECK(CPU_EQUAL(&its, &first), 1);
    }
    closedir(d);
    CHECK(found, 1);
    return 0;
}

/* The process ends when its last application thread does, and SIGTERM ends it earlier. */
static int last_thread(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        open_arena();
        kill(getpid(), SIGTERM);
        for (;;)
            pause();
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGTERM);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_arena();
        pthread_exit(NULL);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    return 0;
}

static pid_t forked;
static int forked_status;
static int fork_and_return(void *arg)
{
    (void)arg;
    forked = fork();
    if (forked == 0) {
        close(2); /* so that the message about the end is not shown */
        return 0;
    }
    CHECK(waitpid(forked, &forked_status, 0), forked);
    return 0;
}
/* If a child of a fork in a repair function returns from that function, the child ends and changes nothing. */
static int fork_in_repair(void)
{
    shmsync_arena *a;
    shmsync_mutex m;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        a = open_arena();
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    a = open_arena();
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), EOWNERDEAD);
    CHECK(shmsync_mutex_recover(&m, fork_and_return, NULL), 0);
    CHECK(forked > 0, 1);
    CHECK(WIFSIGNALED(forked_status) ? WTERMSIG(forked_status) : 0, SIGABRT);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    return shmsync_arena_close(a);
}

static sem_t told_once;
static void fork_and_join(const shmsync_participant *p, void *arg)
{
    (void)p;
    (void)arg;
    forked = fork();
    if (forked == 0) {
        shmsync_arena *a;
        shmsync_mutex m;
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    CHECK(waitpid(forked, &forked_status, 0), forked);
    sem_post(&told_once);
}
/* A child of a fork in the function of shmsync_arena_on_death may open the arena. */
static int fork_in_on_death(void)
{
    shmsync_arena *a;
    int go[2], status;
    char c = 0;
    pid_t pid;
    CHECK(pipe(go), 0);
    pid = fork();
    if (pid == 0) {
        CHECK(read(go[0], &c, 1), 1);
        open_arena();
        _exit(0);
    }
    sem_init(&told_once, 0, 0);
    a = open_arena();
    CHECK(shmsync_arena_on_death(a, fork_and_join, NULL), 0);
    CHECK(write(go[1], &c, 1), 1);
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    while (sem_wait(&told_once) != 0) {
    }
    CHECK(forked_status, 0);
    return shmsync_arena_close(a);
}

static shmsync_arena *inside;
static int closed_inside;
static void close_inside(void *arg)
{
    (void)arg;
    closed_inside = shmsync_arena_close(inside);
}
static jmp_buf out_of_it;
static void jump(void *arg)
{
    (void)arg;
    longjmp(out_of_it, 1);
}
/* A function that a call runs cannot close the arena, and neither can a thread that left such a function by longjmp. */
static int close_in_call(void)
{
    shmsync_once o;
    inside = open_arena();
    CHECK(shmsync_once_open(inside, "o", NULL, &o), 0);
    CHECK(shmsync_once_do(&o, close_inside, NULL), 0);
    CHECK(closed_inside, EDEADLK);
    CHECK(shmsync_once_open(inside, "jump", NULL, &o), 0);
    if (setjmp(out_of_it) == 0)
        shmsync_once_do(&o, jump, NULL);
    CHECK(shmsync_arena_close(inside), EDEADLK);
    return 0;
}

static uint64_t resident_pages(void)
{
    char b[256];
    CHECK(shmi_read_file("/proc/self/statm", b, sizeof b) > 0, 1);
    return strtoull(strchr(b, ' '), NULL, 10);
}
/* Under mlockall an arena takes only the memory that is used. */
static int locked_memory(void)
{
    const uint64_t size = 256 << 20;
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    shmsync_arena_options o;
    shmsync_arena *a;
    struct stat st;
    uint64_t before;
    setrlimit(RLIMIT_MEMLOCK, &most);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0)
        return 77;
    memset(&o, 0, sizeof o);
    o.size = size;
    before = resident_pages();
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(fstat(a->fd, &st), 0);
    CHECK((uint64_t)st.st_blocks * 512 < size / 2, 1);
    CHECK((resident_pages() - before) * (uint64_t)sysconf(_SC_PAGESIZE) < size / 2, 1);
    CHECK(shmsync_arena_close(a), 0);
    CHECK((resident_pages() - before) * (uint64_t)sysconf(_SC_PAGESIZE) < size / 2, 1);
    return 0;
}

/* If a limit of the process prevents the creation of an arena, the error names the limit, and SIGXFSZ is not sent. */
static int limits(void)
{
    struct rlimit before, limit;
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    CHECK(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 64 << 10;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(shmsync_arena_open(arena_name, &o, &a), EFBIG);
    CHECK(strstr(shmsync_error(), "RLIMIT_FSIZE") != NULL, 1);
    CHECK(setrlimit(RLIMIT_FSIZE, &before), 0);

    CHECK(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)256 << 30;
    CHECK(setrlimit(RLIMIT_AS, &limit), 0);
    o.size = UINT64_C(1) << 40;
    CHECK(shmsync_arena_open(arena_name, &o, &a), ENOMEM);
    CHECK(strstr(shmsync_error(), "RLIMIT_AS") != NULL, 1);
    CHECK(setrlimit(RLIMIT_AS, &before), 0);

    o.size = 16 << 20;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}

static int went_through;
static void *call_canceled(void *arg)
{
    shmsync_arena *a;
    struct handles h;
    shmsync_offset off;
    void *p;
    (void)arg;
    CHECK(pthread_cancel(pthread_self()), 0); /* acts at the next cancellation point */
    a = open_arena();
    open_all(a, &h);
    CHECK(shmsync_alloc(a, 1 << 20, &off), 0);
    CHECK(shmsync_free(a, off), 0);
    CHECK(shmsync_block_open(a, "block", 1 << 20, &p), 0);
    CHECK(shmsync_mutex_lock(&h.mutex), 0);
    CHECK(shmsync_mutex_timedlock(&h.mutex, &soon), ETIMEDOUT);
    CHECK(shmsync_multilock_unlock(&h.hold), 0);
    close_all(&h, 0);
    CHECK(shmsync_delete(a, "event"), 0);
    CHECK(shmsync_arena_close(a), 0);
    __atomic_store_n(&went_through, 1, __ATOMIC_SEQ_CST);
    pthread_testcancel();
    return NULL;
}
/* A pending cancellation takes effect in no call. */
static int cancel(void)
{
    pthread_t t;
    void *result;
    CHECK(pthread_create(&t, NULL, call_canceled, NULL), 0);
    CHECK(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED, 1);
    CHECK(went_through, 1);
    return shmsync_arena_close(open_arena());
}

static shmsync_sequencer counted;
static int handled;
static void handle(int sig)
{
    (void)sig;
    __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}
static void *wait_for_count(void *arg)
{
    (void)arg;
    CHECK(shmsync_sequencer_wait(&counted, 1), 0);
    return NULL;
}
/* A signal ends no wait. */
static int interrupted(void)
{
    shmsync_arena *a = open_arena();
    struct sigaction sa;
    pthread_t t;
    uint64_t v;
    int i;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = handle; /* without SA_RESTART */
    CHECK(sigaction(SIGUSR1, &sa, NULL), 0);
    CHECK(shmsync_sequencer_open(a, "s", NULL, &counted), 0);
    CHECK(pthread_create(&t, NULL, wait_for_count, NULL), 0);
    for (i = 1; i <= 100; i++) {
        CHECK(pthread_kill(t, SIGUSR1), 0);
        while (__atomic_load_n(&handled, __ATOMIC_SEQ_CST) < i)
            sched_yield();
    }
    CHECK(shmsync_sequencer_increment(&counted, &v), 0);
    CHECK(pthread_join(t, NULL), 0);
    return shmsync_arena_close(a);
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        int (*f)(void);
    } verbs[] = {
        {"closed-handles", closed_handles},
        {"closed-arena", closed_arena},
        {"closed-in-use", closed_in_use},
        {"close-many", close_many},
        {"closed-many", closed_many},
        {"errors", errors},
        {"delete-at", delete_at},
        {"helper", helper},
        {"last-thread", last_thread},
        {"fork-in-repair", fork_in_repair},
        {"fork-in-on-death", fork_in_on_death},
        {"close-in-call", close_in_call},
        {"locked-memory", locked_memory},
        {"limits", limits},
        {"cancel", cancel},
        {"interrupted", interrupted},
        {"two-arenas", two_arenas},
    };
    const struct rlimit no_core = {0, 0};
    size_t i;
    if (argc != 3)
        return 2;
    arena_name = argv[2];
    alarm(300);
    CHECK(setrlimit(RLIMIT_CORE, &no_core), 0);
    for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].f();
    return 2;
}
