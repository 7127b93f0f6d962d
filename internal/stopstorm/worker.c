//go:build ignore

/*
 * A worker of a stop storm that is written in C. Its threads repeat the operations that the goroutines of a worker in
 * Go repeat, on the same objects: see workload_locks.go and workload_waits.go.
 *
 * usage: worker NUMBER PRIMITIVE LANE...
 *
 * Each LANE is the name of an operation of the table below. Descriptor 3 is the page of the storm, of which
 * page_unsafe.go gives the offsets. Descriptor 4 is the arena. The parent has created the objects, and kills the
 * worker.
 */
#define _GNU_SOURCE 1
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#include <sched.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

/* ---- The page: page_unsafe.go ---- */

static unsigned char *page, *self; /* self: the part of the page that is for this worker */
static unsigned long number;
static const char *primitive;
static shmsync_arena *arena;

#define AT(type, from, offset) ((type *)(void *)((from) + (offset)))
#define LOAD(p) __atomic_load_n(p, __ATOMIC_SEQ_CST)
#define STORE(p, v) __atomic_store_n(p, v, __ATOMIC_SEQ_CST)

/* Reports something that should not have happened, and ends the process. */
__attribute__((format(printf, 1, 2), noreturn)) static void fault(const char *format, ...)
{
    struct text {
        uint32_t n;
        char bytes[1020];
    } *t = AT(struct text, page, PAGE_TEXT);
    uint32_t i = __atomic_fetch_add(AT(uint32_t, page, PAGE_FAULTS), 1, __ATOMIC_SEQ_CST);
    char said[800], all[1020];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    snprintf(all, sizeof all, "%s: worker %lu in C: %s", primitive, number, said);
    if (i < PAGE_TEXTS) {
        size_t n = strlen(all);
        memcpy(t[i].bytes, all, n);
        STORE(&t[i].n, (uint32_t)n);
    }
    fprintf(stderr, "%s\n", all);
    _exit(1);
}

/* ---- The common part of the operations ---- */

struct op;
struct lane {
    const struct op *op;
    unsigned char *page;
    uint64_t seed;
    struct timespec limit;
    shmsync_hold holds[12];
    size_t held;
};

static uint64_t draw(struct lane *l) /* splitmix64 */
{
    uint64_t z = l->seed += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static uint64_t below(struct lane *l, uint64_t n) { return draw(l) % n; }

/* Works for about n nanoseconds. */
static void spin(uint64_t n)
{
    volatile uint64_t x;
    for (x = n; x != 0; x--) {
    }
}

static void pause_for(long ns)
{
    struct timespec ts = {0, ns};
    while (nanosleep(&ts, &ts) != 0) {
    }
}

/* Returns the time at which an operation of this lane gives up. */
static const struct timespec *soon(struct lane *l)
{
    clock_gettime(CLOCK_MONOTONIC, &l->limit);
    if ((l->limit.tv_nsec += PAGE_GIVE_UP) >= 1000000000) {
        l->limit.tv_nsec -= 1000000000;
        l->limit.tv_sec++;
    }
    return &l->limit;
}

static void at(struct lane *l, uint32_t where) { STORE(AT(uint32_t, l->page, PAGE_LANE_AT), where); }

static void held(struct lane *l)
{
    at(l, PAGE_AT_HOLDING);
    spin(below(l, 200));
    at(l, PAGE_AT_RELEASING);
}

/* An operation that gets something, holds it for a moment, and gives it back. */
#define HOLDS(f, get, give)           \
    static int f(struct lane *l)      \
    {                                 \
        int err;                      \
        at(l, PAGE_AT_ACQUIRING);     \
        if ((err = (get)) != 0)       \
            return err;               \
        held(l);                      \
        return (give);                \
    }
/* The three operations of a lock, or of one role of a lock. */
#define LOCKER(f, x, lock, timed, try, unlock) \
    HOLDS(f, lock(x), unlock(x))               \
    HOLDS(f##_soon, timed(x, soon(l)), unlock(x)) \
    HOLDS(f##_try, try(x), unlock(x))
/* An operation that consists of one expression, which may use l. */
#define PLAIN(f, call)           \
    static int f(struct lane *l) \
    {                            \
        (void)l;                 \
        return (call);           \
    }
/* An object that the parent has created with the usual options. */
#define OBJECT(kind, x, name)   \
    static shmsync_##kind x;    \
    static int open_##x(void) { return shmsync_##kind##_attach(arena, name, NULL, &x); }

/* The result of the call a or, if that call succeeded, the result of the call b. */
static __thread int first;
#define THEN(a, b) ((first = (a)) != 0 ? first : (b))
/* Returns the result of a call that may find nothing to do: EBUSY counts as success. */
static int unless_busy(int err) { return err == EBUSY ? 0 : err; }

/* ---- Locks ---- */

OBJECT(mutex, mutex, "mutex")
LOCKER(mutex_lock, &mutex, shmsync_mutex_lock, shmsync_mutex_timedlock, shmsync_mutex_trylock, shmsync_mutex_unlock)

OBJECT(fairmutex, fairmutex, "fairmutex")
LOCKER(fairmutex_lock, &fairmutex, shmsync_fairmutex_lock, shmsync_fairmutex_timedlock, shmsync_fairmutex_trylock, shmsync_fairmutex_unlock)

OBJECT(spinlock, spinlock, "spinlock")
LOCKER(spinlock_lock, &spinlock, shmsync_spinlock_lock, shmsync_spinlock_timedlock, shmsync_spinlock_trylock, shmsync_spinlock_unlock)

OBJECT(rwmutex, rwmutex, "rwmutex")
LOCKER(rwmutex_lock, &rwmutex, shmsync_rwmutex_lock, shmsync_rwmutex_timedlock, shmsync_rwmutex_trylock, shmsync_rwmutex_unlock)
LOCKER(rwmutex_rlock, &rwmutex, shmsync_rwmutex_rdlock, shmsync_rwmutex_timedrdlock, shmsync_rwmutex_tryrdlock, shmsync_rwmutex_rdunlock)

OBJECT(rwspinlock, rwspinlock, "rwspinlock")
LOCKER(rwspinlock_lock, &rwspinlock, shmsync_rwspinlock_lock, shmsync_rwspinlock_timedlock, shmsync_rwspinlock_trylock, shmsync_rwspinlock_unlock)
LOCKER(rwspinlock_rlock, &rwspinlock, shmsync_rwspinlock_rdlock, shmsync_rwspinlock_timedrdlock, shmsync_rwspinlock_tryrdlock, shmsync_rwspinlock_rdunlock)

OBJECT(multilock, multilock, "multilock")
static const uint64_t keys[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
#define KEYS(f, n)                                                                                                               \
    HOLDS(f, shmsync_multilock_lockall(&multilock, keys, n, l->holds, &l->held), shmsync_multilock_unlockall(l->holds, l->held)) \
    HOLDS(f##_soon, shmsync_multilock_timedlockall(&multilock, keys, n, l->holds, &l->held, soon(l)),                            \
          shmsync_multilock_unlockall(l->holds, l->held))
KEYS(lock_1, 1)
KEYS(lock_12, 12)
HOLDS(lock_1_try, shmsync_multilock_trylock(&multilock, keys[0], l->holds), shmsync_multilock_unlock(l->holds))

OBJECT(semaphore, semaphore, "semaphore")
HOLDS(semaphore_get, shmsync_semaphore_acquire(&semaphore, 1), shmsync_semaphore_release(&semaphore, 1))
HOLDS(semaphore_get_soon, shmsync_semaphore_timedacquire(&semaphore, 1, soon(l)), shmsync_semaphore_release(&semaphore, 1))
HOLDS(semaphore_get_try, shmsync_semaphore_tryacquire(&semaphore, 1), shmsync_semaphore_release(&semaphore, 1))

/* ---- Objects on which processes wait ---- */

OBJECT(sequencer, sequencer, "sequencer")
PLAIN(increment, shmsync_sequencer_increment(&sequencer, NULL))
PLAIN(sequencer_wait, shmsync_sequencer_wait(&sequencer, shmsync_sequencer_value(&sequencer) + 1))
PLAIN(sequencer_soon, shmsync_sequencer_timedwait(&sequencer, shmsync_sequencer_value(&sequencer) + (UINT64_C(1) << 40), soon(l)))

OBJECT(futex, word, "futex")
PLAIN(post, shmsync_futex_post(&word))
PLAIN(word_wait, shmsync_futex_wait(&word, shmsync_futex_get(&word) + 1))
PLAIN(word_soon, shmsync_futex_timedwait(&word, shmsync_futex_get(&word) + (UINT64_C(1) << 40), soon(l)))

static shmsync_event event, never;
static int open_event(void)
{
    shmsync_event_options o = {0};
    o.bidirectional = 1;
    return THEN(shmsync_event_attach(arena, "event", &o, &event), shmsync_event_attach(arena, "event-never", NULL, &never));
}
static int open_auto(void)
{
    shmsync_event_options o = {0};
    o.auto_reset = 1;
    return shmsync_event_attach(arena, "event", &o, &event);
}
PLAIN(event_flip, THEN(shmsync_event_set(&event), shmsync_event_reset(&event)))
PLAIN(event_set, shmsync_event_set(&event))
PLAIN(event_wait, shmsync_event_wait(&event))
PLAIN(event_wait_reset, shmsync_event_wait_reset(&event))
PLAIN(event_soon, shmsync_event_timedwait(&event, soon(l)))
PLAIN(never_soon, shmsync_event_timedwait(&never, soon(l)))

static shmsync_future future, claimed;
static int open_future(void)
{
    return THEN(shmsync_future_attach(arena, "future", NULL, &future), shmsync_future_attach(arena, "future-claimed", NULL, &claimed));
}
static int future_flip(struct lane *l)
{
    (void)l;
    return THEN(unless_busy(shmsync_future_set(&future, 0)), unless_busy(shmsync_future_reset(&future)));
}
static int future_claim(struct lane *l)
{
    int err = shmsync_future_claim(&claimed);
    (void)l;
    if (err == 0)
        err = shmsync_future_set(&claimed, 0);
    return THEN(unless_busy(err), unless_busy(shmsync_future_reset(&claimed)));
}
PLAIN(future_wait, shmsync_future_wait(&future, NULL))
PLAIN(future_soon, shmsync_future_timedwait(&claimed, NULL, soon(l)))

/* In C, a call that waits for several objects cannot wait for a Futex. So the Futex is only posted here. */
static shmsync_sequencer any_step;
static shmsync_futex any_word;
static shmsync_event any_set;
static int open_any(void)
{
    return THEN(THEN(shmsync_sequencer_attach(arena, "any-step", NULL, &any_step), shmsync_futex_attach(arena, "any-word", NULL, &any_word)),
                shmsync_event_attach(arena, "any-set", NULL, &any_set));
}
static int any_go(struct lane *l)
{
    (void)l;
    return THEN(THEN(shmsync_sequencer_increment(&any_step, NULL), shmsync_futex_post(&any_word)),
                THEN(shmsync_event_set(&any_set), shmsync_event_reset(&any_set)));
}
static size_t any_list(shmsync_awaitable list[2], uint64_t ahead)
{
    memset(list, 0, 2 * sizeof *list);
    list[0].kind = SHMSYNC_AWAIT_SEQUENCER;
    list[0].sequencer = &any_step;
    list[0].token = shmsync_sequencer_value(&any_step) + ahead;
    list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[1].event = &any_set;
    return 2;
}
static int any_wait(struct lane *l)
{
    shmsync_awaitable list[2];
    size_t which;
    (void)l;
    return shmsync_wait_any(list, any_list(list, 1), NULL, &which);
}
static int all_soon(struct lane *l)
{
    shmsync_awaitable list[2];
    return shmsync_wait_all(list, any_list(list, UINT64_C(1) << 40), soon(l));
}

static shmsync_mutex cond_lock;
static shmsync_cond cond;
static int open_cond(void)
{
    return THEN(shmsync_mutex_attach(arena, "cond-lock", NULL, &cond_lock), shmsync_cond_attach(arena, "cond", NULL, &cond));
}
static int cond_waits(struct lane *l, int gives_up)
{
    int err;
    at(l, PAGE_AT_ACQUIRING);
    if ((err = shmsync_mutex_lock(&cond_lock)) != 0)
        return err;
    err = gives_up ? shmsync_cond_timedwait(&cond, &cond_lock, soon(l)) : shmsync_cond_wait(&cond, &cond_lock);
    at(l, PAGE_AT_RELEASING);
    return THEN(err == ETIMEDOUT ? 0 : err, shmsync_mutex_unlock(&cond_lock));
}
PLAIN(cond_signal, shmsync_cond_signal(&cond))
PLAIN(cond_broadcast, shmsync_cond_broadcast(&cond))
PLAIN(cond_wait, cond_waits(l, 0))
PLAIN(cond_soon, cond_waits(l, 1))

static shmsync_queue queue, empty;
static int open_queue(void)
{
    return THEN(shmsync_queue_attach(arena, "queue", 32, NULL, &queue), shmsync_queue_attach(arena, "queue-empty", 8, NULL, &empty));
}
static int queue_put(struct lane *l)
{
    uint64_t item[4] = {draw(l), 0, 0, 0};
    return shmsync_queue_put(&queue, item);
}
static int queue_get(struct lane *l)
{
    uint64_t item[4];
    (void)l;
    return shmsync_queue_get(&queue, item);
}
static int queue_lease(struct lane *l)
{
    uint64_t item[4];
    shmsync_lease lease;
    int err = shmsync_queue_lease(&queue, item, &lease);
    (void)l;
    return err != 0 ? err : shmsync_lease_ack(&lease);
}
static int empty_soon(struct lane *l)
{
    uint64_t item;
    return shmsync_queue_timedget(&empty, &item, soon(l));
}

OBJECT(waitgroup, group, "waitgroup")
PLAIN(group_add, THEN(shmsync_waitgroup_add(&group, 1), shmsync_waitgroup_done(&group)))
PLAIN(group_wait, shmsync_waitgroup_wait(&group))
PLAIN(group_soon, shmsync_waitgroup_timedwait(&group, soon(l)))

OBJECT(latch, latch, "latch")
PLAIN(latch_count, THEN(shmsync_latch_claim(&latch, 1), shmsync_latch_count_down(&latch, 1)))
PLAIN(latch_try, shmsync_latch_trywait(&latch))
PLAIN(latch_soon, shmsync_latch_timedwait(&latch, soon(l)))

OBJECT(barrier, barrier, "barrier")
static int barrier_arrive(struct lane *l)
{
    uint64_t phase;
    (void)l;
    return shmsync_barrier_arrive(&barrier, 1, &phase);
}
PLAIN(barrier_wait, shmsync_barrier_arrive_and_wait(&barrier))
PLAIN(barrier_soon, shmsync_barrier_timedarrive_and_wait(&barrier, soon(l)))

OBJECT(once, done, "once-done")
static void once_run(void *arg)
{
    struct lane *l = (struct lane *)arg;
    at(l, PAGE_AT_HOLDING);
    spin(100);
    at(l, PAGE_AT_RELEASING);
}
static void once_nothing(void *arg) { (void)arg; }
static const char *once_name(char name[32], uint64_t n)
{
    snprintf(name, 32, "once-%llu", (unsigned long long)n);
    return name;
}
/* Uses a new object for each call, as openOnce in workload_waits.go does. */
static int once_does(struct lane *l, int gives_up)
{
    uint64_t *round = AT(uint64_t, page, PAGE_ROUND), last, n, back;
    char name[32];
    shmsync_once x;
    int err;
    at(l, PAGE_AT_ACQUIRING);
    last = LOAD(round);
    n = last + 1;
    if ((err = shmsync_once_open(arena, once_name(name, n), NULL, &x)) != 0)
        return err;
    err = gives_up ? shmsync_once_timeddo(&x, once_run, l, soon(l)) : shmsync_once_do(&x, once_run, l);
    if (shmsync_once_close(&x) != 0)
        fault("close: %s", shmsync_error());
    if (err == 0 && __atomic_compare_exchange_n(round, &last, n, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        for (back = 10; back < (n < 60 ? n : 60); back += 10)
            shmsync_delete(arena, once_name(name, n - back)); /* not at once, because another lane may still use it */
    return err;
}
PLAIN(once_do, once_does(l, 0))
PLAIN(once_soon, once_does(l, 1))
PLAIN(once_done, shmsync_once_do(&done, once_nothing, NULL))

OBJECT(signalwaker, waker, "signal")
static int waker_schedule(struct lane *l)
{
    shmsync_gate g;
    int err = shmsync_signalwaker_gate(&waker, (int)below(l, 64), &g);
    return err != 0 ? err : shmsync_gate_schedule(&g, NULL);
}
static int waker_execute(struct lane *l)
{
    shmsync_gate g;
    int err = shmsync_signalwaker_next(&waker, (int)below(l, 64), &g);
    return err != 0 ? err : shmsync_gate_finish(&g, NULL);
}
PLAIN(waker_release, shmsync_signalwaker_release(&waker, 1))
PLAIN(waker_acquire, shmsync_signalwaker_acquire(&waker))
PLAIN(waker_soon, shmsync_signalwaker_timedacquire(&waker, soon(l)))

static shmsync_synchronized record;
static int open_record(void) { return shmsync_synchronized_attach(arena, "synchronized", 128, NULL, &record); }
static int record_changes(struct lane *l, int gives_up, int changes)
{
    uint64_t *v;
    void *copy;
    int err;
    at(l, PAGE_AT_ACQUIRING);
    if ((err = gives_up ? shmsync_synchronized_timedbegin(&record, &copy, soon(l)) : shmsync_synchronized_begin(&record, &copy)) != 0)
        return err;
    held(l);
    v = (uint64_t *)copy;
    if (!changes)
        return shmsync_synchronized_abort(&record);
    v[15] = ++v[0];
    return shmsync_synchronized_commit(&record);
}
static int record_load(struct lane *l)
{
    uint64_t v[16];
    int err = shmsync_synchronized_load(&record, v);
    (void)l;
    if (err == 0 && v[0] != v[15])
        fault("a torn value");
    return err;
}
PLAIN(record_update, record_changes(l, 0, 1))
PLAIN(record_soon, record_changes(l, 1, 1))
PLAIN(record_view, record_changes(l, 0, 0))

/* A lock that the arena does not show: openFrozen in workloads.go. */
static int open_nothing(void) { return 0; }
static int secret(struct lane *l)
{
    uint32_t *lock = AT(uint32_t, page, PAGE_SECRET), none;
    (void)l;
    for (none = 0; !__atomic_compare_exchange_n(lock, &none, 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); none = 0)
        pause_for(10000);
    pause_for(3000000);
    STORE(lock, 0);
    pause_for(3000000);
    return 0;
}

/* ---- The table ---- */

#define LOCKS(prim, role, f, open) {prim, role, open, f, 0}, {prim, role ", gives up", open, f##_soon, ETIMEDOUT}, {prim, "try " role, open, f##_try, EBUSY}

static const struct op {
    const char *prim, *lane;
    int (*open)(void);
    int (*run)(struct lane *);
    int may; /* the errno with which it may end, or 0 */
} ops[] = {
    LOCKS("mutex", "lock", mutex_lock, open_mutex),
    LOCKS("fairmutex", "lock", fairmutex_lock, open_fairmutex),
    LOCKS("spinlock", "lock", spinlock_lock, open_spinlock),
    LOCKS("rwmutex", "lock", rwmutex_lock, open_rwmutex),
    LOCKS("rwmutex", "rlock", rwmutex_rlock, open_rwmutex),
    LOCKS("rwspinlock", "lock", rwspinlock_lock, open_rwspinlock),
    LOCKS("rwspinlock", "rlock", rwspinlock_rlock, open_rwspinlock),
    LOCKS("multilock", "lock of 1 keys", lock_1, open_multilock),
    {"multilock", "lock of 12 keys", open_multilock, lock_12, 0},
    {"multilock", "lock of 12 keys, gives up", open_multilock, lock_12_soon, ETIMEDOUT},
    LOCKS("semaphore", "acquire", semaphore_get, open_semaphore),
    {"sequencer", "increment", open_sequencer, increment, 0},
    {"sequencer", "wait", open_sequencer, sequencer_wait, 0},
    {"sequencer", "wait, gives up", open_sequencer, sequencer_soon, ETIMEDOUT},
    {"event", "set, reset", open_event, event_flip, 0},
    {"event", "wait", open_event, event_wait, 0},
    {"event", "wait for the reset", open_event, event_wait_reset, 0},
    {"event", "wait, gives up", open_event, never_soon, ETIMEDOUT},
    {"event-auto", "set", open_auto, event_set, 0},
    {"event-auto", "wait", open_auto, event_wait, 0},
    {"event-auto", "wait, gives up", open_auto, event_soon, ETIMEDOUT},
    {"futex", "post", open_word, post, 0},
    {"futex", "wait", open_word, word_wait, 0},
    {"futex", "wait, gives up", open_word, word_soon, ETIMEDOUT},
    {"future", "set, reset", open_future, future_flip, 0},
    {"future", "wait", open_future, future_wait, 0},
    {"future", "claim, set, reset", open_future, future_claim, 0},
    {"future", "wait, gives up", open_future, future_soon, ETIMEDOUT},
    {"waitany", "let go", open_any, any_go, 0},
    {"waitany", "wait for any", open_any, any_wait, 0},
    {"waitany", "wait for all, gives up", open_any, all_soon, ETIMEDOUT},
    {"cond", "signal", open_cond, cond_signal, 0},
    {"cond", "broadcast", open_cond, cond_broadcast, 0},
    {"cond", "wait", open_cond, cond_wait, 0},
    {"cond", "wait, gives up", open_cond, cond_soon, 0},
    {"queue", "put", open_queue, queue_put, 0},
    {"queue", "get", open_queue, queue_get, 0},
    {"queue", "lease, ack", open_queue, queue_lease, 0},
    {"queue", "get, gives up", open_queue, empty_soon, ETIMEDOUT},
    {"waitgroup", "add, done", open_group, group_add, 0},
    {"waitgroup", "wait", open_group, group_wait, 0},
    {"waitgroup", "wait, gives up", open_group, group_soon, ETIMEDOUT},
    {"latch", "claim, count down", open_latch, latch_count, 0},
    {"latch", "try", open_latch, latch_try, EBUSY},
    {"latch", "wait, gives up", open_latch, latch_soon, ETIMEDOUT},
    {"barrier", "arrive", open_barrier, barrier_arrive, 0},
    {"barrier", "arrive, wait", open_barrier, barrier_wait, 0},
    {"barrier", "arrive, wait, gives up", open_barrier, barrier_soon, ETIMEDOUT},
    {"once", "do", open_done, once_do, 0},
    {"once", "do, gives up", open_done, once_soon, ETIMEDOUT},
    {"once", "done", open_done, once_done, 0},
    {"signal", "schedule", open_waker, waker_schedule, 0},
    {"signal", "execute", open_waker, waker_execute, EBUSY},
    {"signal", "release", open_waker, waker_release, 0},
    {"signal", "acquire", open_waker, waker_acquire, 0},
    {"signal", "acquire, gives up", open_waker, waker_soon, ETIMEDOUT},
    {"synchronized", "update", open_record, record_update, 0},
    {"synchronized", "update, gives up", open_record, record_soon, ETIMEDOUT},
    {"synchronized", "view", open_record, record_view, 0},
    {"synchronized", "load", open_record, record_load, 0},
    {"test:frozen", "secret", open_nothing, secret, 0},
};

/* ---- The life of a worker: worker.go ---- */

static void run_once(struct lane *l)
{
    int err = l->op->run(l);
    if (err != 0 && err != l->op->may)
        fault("%s: errno %d, %s", l->op->lane, err, shmsync_error());
    at(l, PAGE_AT_OUTSIDE);
}

/* Repeats the operation of a lane until the storm is over. */
static void *run(void *arg)
{
    struct lane *l = (struct lane *)arg;
    uint32_t *phase = AT(uint32_t, page, PAGE_PHASE);
    uint64_t n;
    STORE(AT(uint32_t, l->page, PAGE_LANE_TID), (uint32_t)syscall(SYS_gettid));
    while (LOAD(phase) == PAGE_PHASE_BEGIN)
        pause_for(100000);
    for (n = 0; LOAD(phase) == PAGE_PHASE_RUN; n++) {
        run_once(l);
        __atomic_fetch_add(AT(uint64_t, l->page, PAGE_LANE_OPS), 1, __ATOMIC_SEQ_CST);
        spin(below(l, 1000));
        if (n % 16 == 0)
            sched_yield();
    }
    return NULL;
}

/* Runs one lane alone, one operation each time that the parent opens the gate. */
static void *run_stepped(void *arg)
{
    struct lane *l = (struct lane *)arg;
    uint32_t n;
    int i;
    for (i = 0; i < 3; i++) /* the first operations of a thread allocate */
        run_once(l);
    STORE(AT(uint32_t, self, PAGE_TID), (uint32_t)syscall(SYS_gettid));
    STORE(AT(uint32_t, self, PAGE_READY), 1);
    for (n = 1;; n++) {
        while (LOAD(AT(uint32_t, self, PAGE_GATE)) < n) {
        }
        STORE(AT(uint32_t, self, PAGE_BEGAN), n);
        run_once(l);
        STORE(AT(uint32_t, self, PAGE_ENDED), n);
    }
    return NULL;
}

/* Counts milliseconds in which the threads of this process had CPU time. It yields before it counts, so that other
 * threads that can run have run. */
static void *beat(void *arg)
{
    (void)arg;
    for (;;) {
        pause_for(1000000);
        sched_yield();
        sched_yield();
        __atomic_fetch_add(AT(uint64_t, self, PAGE_BEAT), 1, __ATOMIC_SEQ_CST);
    }
    return NULL;
}

static void start(void *(*f)(void *), void *arg)
{
    pthread_t t;
    int err = pthread_create(&t, NULL, f, arg);
    if (err != 0)
        fault("pthread_create: errno %d", err);
}

static const struct op *find(const char *lane)
{
    size_t i;
    for (i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(ops[i].prim, primitive) == 0 && strcmp(ops[i].lane, lane) == 0)
            return &ops[i];
    fault("C has no operation %s", lane);
}

int main(int argc, char **argv)
{
    static struct lane lanes[PAGE_LANES];
    struct rlimit no_core = {0, 0};
    shmsync_arena_options o = {0};
    char label[64];
    uint32_t step;
    int i, err;
    if (argc < 4 || argc - 3 > PAGE_LANES)
        return 2;
    setrlimit(RLIMIT_CORE, &no_core);
    number = strtoul(argv[1], NULL, 10);
    primitive = argv[2];
    page = (unsigned char *)mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    if (page == (unsigned char *)MAP_FAILED)
        return 2;
    self = page + PAGE_PROC + number * PAGE_PROC_SIZE;
    snprintf(label, sizeof label, "worker %lu in C", number);
    o.label = label;
    if ((err = shmsync_arena_from_fd(4, &o, &arena)) != 0)
        fault("join: errno %d, %s", err, shmsync_error());
    for (i = 0; i < argc - 3; i++) {
        lanes[i].op = find(argv[i + 3]);
        lanes[i].page = self + PAGE_LANE + (size_t)i * PAGE_LANE_SIZE;
        lanes[i].seed = number * PAGE_LANES + (uint64_t)i;
    }
    if ((err = lanes[0].op->open()) != 0)
        fault("open: errno %d, %s", err, shmsync_error());
    STORE(AT(uint32_t, self, PAGE_SELF), arena->self);
    start(beat, NULL);
    step = LOAD(AT(uint32_t, self, PAGE_STEP));
    if (step != 0) {
        start(run_stepped, &lanes[step - 1]);
    } else {
        for (i = 0; i < argc - 3; i++)
            start(run, &lanes[i]);
        STORE(AT(uint32_t, self, PAGE_READY), 1);
    }
    for (;;)
        pause(); /* until the parent kills it */
}
