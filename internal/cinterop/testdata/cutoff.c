/* Tests calls under which a close of the arena replaces the mapping: cutoff NAME, or cutoff list. A thread is held before an
 * access to the arena, until the close has taken back what this process held. From then on the thread finds words that
 * are all 0, and no result of its call may be a success, unless the call has already got an item. This is done for each
 * function of the library that works with a handle, and for each access that the function makes outside of shmi_enter. A
 * list names the functions. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
static void at_point(const char *name);
static int at_access(const void *word);
static int read_clock(clockid_t clock, struct timespec *ts);
static void at_call(long number);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define FIRST(number, ...) number
#define syscall(...) (at_call(FIRST(__VA_ARGS__, 0)), syscall(__VA_ARGS__))
#define clock_gettime read_clock
#define __atomic_load_n(word, order) (at_access(word), __atomic_load_n(word, order))
#define __atomic_store_n(word, value, order) ((void)at_access(word), __atomic_store_n(word, value, order))
#define __atomic_exchange_n(word, value, order) (at_access(word), __atomic_exchange_n(word, value, order))
#define __atomic_fetch_add(word, value, order) (at_access(word), __atomic_fetch_add(word, value, order))
#define __atomic_fetch_or(word, value, order) (at_access(word), __atomic_fetch_or(word, value, order))
#define __atomic_fetch_and(word, value, order) (at_access(word), __atomic_fetch_and(word, value, order))
#define __atomic_compare_exchange_n(word, old, to, weak, yes, no) (at_access(word), __atomic_compare_exchange_n(word, old, to, weak, yes, no))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef syscall
#undef clock_gettime
#undef __atomic_load_n
#undef __atomic_store_n
#undef __atomic_exchange_n
#undef __atomic_fetch_add
#undef __atomic_fetch_or
#undef __atomic_fetch_and
#undef __atomic_compare_exchange_n

static const char *current = "";
static int hold_at; /* the access before which the thread is held */
#define CHECK(got, want)                                                                                            \
    do {                                                                                                            \
        long long got_ = (long long)(got), want_ = (long long)(want);                                              \
        if (got_ != want_) {                                                                                        \
            fprintf(stderr, "%s, access %d: line %d: %s is %lld, not %lld: %s\n", current, hold_at, __LINE__, #got, got_, want_, shmsync_error()); \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

static shmsync_arena *arena;
static __thread int calls, closes;
static int accesses, held, counted, seconds, joined;
static int got; /* the call has taken an item out of the Queue in the arena, so it succeeds */
static pthread_t caller;
static sem_t ready, go_on;

static int at_access(const void *word)
{
    const uintptr_t at = (uintptr_t)word, base = (uintptr_t)(arena != NULL ? arena->base : NULL);
    if (!calls || at < base || at >= base + arena->size)
        return 0;
    if (shmi_is_inside(arena)) { /* the close waits for the call */
        counted = 1;
        return 0;
    }
    if (++accesses == hold_at) {
        held = 1;
        sem_post(&ready);
        while (sem_wait(&go_on) != 0) {
        }
    }
    return 0;
}
static int read_clock(clockid_t clock, struct timespec *ts)
{
    int err = clock_gettime(clock, ts);
    ts->tv_sec += closes ? seconds : 0;
    return err;
}
static void at_call(long number)
{
    if (closes && number == SYS_nanosleep && arena->leaving) /* the close waits for a call that it does not count */
        seconds += 2;
}
static void at_point(const char *name)
{
    if (calls && strcmp(name, "queue.drop.committed") == 0)
        got = 1;
    if (closes && held && !joined && strcmp(name, "arena.close.repaired") == 0) {
        joined = 1;
        sem_post(&go_on);
        CHECK(pthread_join(caller, NULL), 0);
    }
}

/* ---- The objects ---- */

static shmsync_mutex mutex, logged;
static shmsync_futex futex;
static shmsync_sequencer sequencer;
static shmsync_event event, bi;
static shmsync_queue queue;
static shmsync_lease lease;
static shmsync_waitgroup waitgroup;
static shmsync_latch latch;
static shmsync_once once;
static shmsync_barrier barrier;
static shmsync_fairmutex fairmutex;
static shmsync_future future;
static shmsync_cond cond;
static shmsync_semaphore semaphore;
static shmsync_rwmutex rwmutex, rwlogged;
static shmsync_spinlock spinlock;
static shmsync_rwspinlock rwspinlock;
static shmsync_multilock multilock;
static shmsync_hold hold;
static shmsync_signalwaker waker;
static shmsync_gate gate;
static shmsync_signal signal_;
static shmsync_synchronized value;
static shmsync_tx tx;
static shmsync_offset block;
static shmsync_participant who;
static shmsync_gate_info info;
static shmsync_awaitable list[1];
static void *copied;
static uint64_t u64, item[8];
static int64_t index_of;
static int flag;
static size_t count;
static const uint64_t key = 7;
static const struct timespec later = {INT32_MAX, 0};
static int repairs(void *arg) { return arg != NULL; }
static void runs(void *arg) { (void)arg; }

static void opens(void)
{
    shmsync_event_options eo;
    shmsync_mutex_options mo;
    shmsync_rwmutex_options ro;
    shmsync_queue_options qo;
    shmsync_signalwaker_options so;
    memset(&eo, 0, sizeof eo);
    eo.struct_size = sizeof eo;
    eo.set = 1;
    CHECK(shmsync_event_open(arena, "event", &eo, &event), 0);
    eo.bidirectional = 1;
    CHECK(shmsync_event_open(arena, "bi", &eo, &bi), 0);
    memset(&mo, 0, sizeof mo);
    mo.struct_size = sizeof mo;
    CHECK(shmsync_mutex_open(arena, "mutex", &mo, &mutex), 0);
    mo.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_mutex_open(arena, "logged", &mo, &logged), 0);
    memset(&ro, 0, sizeof ro);
    ro.struct_size = sizeof ro;
    CHECK(shmsync_rwmutex_open(arena, "rwmutex", &ro, &rwmutex), 0);
    ro.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_rwmutex_open(arena, "rwlogged", &ro, &rwlogged), 0);
    memset(&qo, 0, sizeof qo);
    qo.struct_size = sizeof qo;
    qo.capacity = 4;
    CHECK(shmsync_queue_open(arena, "queue", sizeof item, &qo, &queue), 0);
    memset(&so, 0, sizeof so);
    so.struct_size = sizeof so;
    CHECK(shmsync_signalwaker_open(arena, "waker", &so, &waker), 0);
    CHECK(shmsync_futex_open(arena, "futex", NULL, &futex), 0);
    CHECK(shmsync_sequencer_open(arena, "sequencer", NULL, &sequencer), 0);
    CHECK(shmsync_waitgroup_open(arena, "waitgroup", NULL, &waitgroup), 0);
    CHECK(shmsync_latch_open(arena, "latch", 1, NULL, &latch), 0);
    CHECK(shmsync_once_open(arena, "once", NULL, &once), 0);
    CHECK(shmsync_barrier_open(arena, "barrier", 1, NULL, &barrier), 0);
    CHECK(shmsync_fairmutex_open(arena, "fairmutex", NULL, &fairmutex), 0);
    CHECK(shmsync_future_open(arena, "future", NULL, &future), 0);
    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    CHECK(shmsync_semaphore_open(arena, "semaphore", 4, NULL, &semaphore), 0);
    CHECK(shmsync_spinlock_open(arena, "spinlock", NULL, &spinlock), 0);
    CHECK(shmsync_rwspinlock_open(arena, "rwspinlock", NULL, &rwspinlock), 0);
    CHECK(shmsync_multilock_open(arena, "multilock", NULL, &multilock), 0);
    CHECK(shmsync_synchronized_open(arena, "value", sizeof item, NULL, &value), 0);
    CHECK(shmsync_signalwaker_gate(&waker, 0, &gate), 0);
    CHECK(shmsync_signalwaker_signal(&waker, 0, &signal_), 0);
}

/* ---- The calls ---- */

#define CALLS(X)                                                                                     \
    X(arena_self, , (arena, &who))                                                                   \
    X(mutex_lock, , (&mutex))                                                                        \
    X(mutex_trylock, , (&mutex))                                                                     \
    X(mutex_timedlock, , (&mutex, &later))                                                           \
    X(mutex_unlock, CHECK(shmsync_mutex_lock(&mutex), 0), (&mutex))                                  \
    X(mutex_state, , (&mutex))                                                                       \
    X(mutex_recover, , (&mutex, repairs, NULL))                                                      \
    X(mutex_begin, , (&logged, &tx))                                                                 \
    X(mutex_trybegin, , (&logged, &tx))                                                              \
    X(mutex_timedbegin, , (&logged, &tx, &later))                                                    \
    X(tx_save, CHECK(shmsync_mutex_begin(&logged, &tx), 0), (&tx, shmsync_at(arena, block, 64), 64)) \
    X(tx_alloc, CHECK(shmsync_mutex_begin(&logged, &tx), 0), (&tx, 64, 8, &u64))                     \
    X(tx_free, CHECK(shmsync_mutex_begin(&logged, &tx), 0), (&tx, block))                            \
    X(tx_commit, CHECK(shmsync_mutex_begin(&logged, &tx), 0); CHECK(shmsync_tx_save(&tx, shmsync_at(arena, block, 64), 64), 0), (&tx)) \
    X(tx_abort, CHECK(shmsync_mutex_begin(&logged, &tx), 0); CHECK(shmsync_tx_save(&tx, shmsync_at(arena, block, 64), 64), 0), (&tx)) \
    X(futex_post, , (&futex))                                                                        \
    X(futex_stop, , (&futex))                                                                        \
    X(futex_wait, u64 = shmsync_futex_get(&futex); CHECK(shmsync_futex_post(&futex), 0), (&futex, u64)) \
    X(futex_timedwait, u64 = shmsync_futex_get(&futex); CHECK(shmsync_futex_post(&futex), 0), (&futex, u64, &later)) \
    X(sequencer_increment, , (&sequencer, &u64))                                                     \
    X(sequencer_advance, , (&sequencer, 5, &flag))                                                   \
    X(sequencer_wait, CHECK(shmsync_sequencer_increment(&sequencer, NULL), 0), (&sequencer, 1))      \
    X(sequencer_timedwait, CHECK(shmsync_sequencer_increment(&sequencer, NULL), 0), (&sequencer, 1, &later)) \
    X(sequencer_cancel_waiters, , (&sequencer))                                                      \
    X(sequencer_stop, , (&sequencer))                                                                \
    X(sequencer_reset, , (&sequencer, 9))                                                            \
    X(event_set, CHECK(shmsync_event_reset(&event), 0), (&event))                                    \
    X(event_reset, , (&event))                                                                       \
    X(event_wait, , (&event))                                                                        \
    X(event_timedwait, , (&event, &later))                                                           \
    X(event_trywait, , (&event))                                                                     \
    X(event_wait_reset, CHECK(shmsync_event_reset(&bi), 0), (&bi))                                   \
    X(event_timedwait_reset, CHECK(shmsync_event_reset(&bi), 0), (&bi, &later))                      \
    X(queue_put, , (&queue, item))                                                                   \
    X(queue_tryput, , (&queue, item))                                                                \
    X(queue_timedput, , (&queue, item, &later))                                                      \
    X(queue_get, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item))                          \
    X(queue_tryget, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item))                       \
    X(queue_timedget, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item, &later))             \
    X(queue_put_batch, , (&queue, item, 1, NULL, &count))                                            \
    X(queue_get_batch, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item, 1, NULL, &count))   \
    X(queue_lease, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item, &lease))                \
    X(queue_trylease, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item, &lease))             \
    X(queue_timedlease, CHECK(shmsync_queue_put(&queue, item), 0), (&queue, item, &lease, &later))   \
    X(lease_ack, CHECK(shmsync_queue_put(&queue, item), 0); CHECK(shmsync_queue_lease(&queue, item, &lease), 0), (&lease)) \
    X(lease_nack, CHECK(shmsync_queue_put(&queue, item), 0); CHECK(shmsync_queue_lease(&queue, item, &lease), 0), (&lease)) \
    X(queue_shutdown, , (&queue))                                                                    \
    X(waitgroup_add, , (&waitgroup, 2))                                                              \
    X(waitgroup_claim, CHECK(shmsync_waitgroup_add(&waitgroup, 1), 0), (&waitgroup, 1))              \
    X(waitgroup_done, CHECK(shmsync_waitgroup_add(&waitgroup, 2), 0), (&waitgroup))                  \
    X(waitgroup_wait, , (&waitgroup))                                                                \
    X(waitgroup_timedwait, , (&waitgroup, &later))                                                   \
    X(waitgroup_reset, , (&waitgroup))                                                               \
    X(latch_claim, , (&latch, 1))                                                                    \
    X(latch_count_down, , (&latch, 1))                                                               \
    X(latch_trywait, CHECK(shmsync_latch_count_down(&latch, 1), 0), (&latch))                        \
    X(latch_wait, CHECK(shmsync_latch_count_down(&latch, 1), 0), (&latch))                           \
    X(latch_timedwait, CHECK(shmsync_latch_count_down(&latch, 1), 0), (&latch, &later))              \
    X(latch_arrive_and_wait, , (&latch, 1))                                                          \
    X(latch_reset, , (&latch))                                                                       \
    X(once_do, , (&once, runs, NULL))                                                                \
    X(once_timeddo, CHECK(shmsync_once_do(&once, runs, NULL), 0), (&once, runs, NULL, &later))       \
    X(barrier_arrive, , (&barrier, 1, &u64))                                                         \
    X(barrier_timedarrive, , (&barrier, 1, &u64, &later))                                            \
    X(barrier_arrive_index, , (&barrier, &u64, &index_of))                                           \
    X(barrier_timedarrive_index, , (&barrier, &u64, &index_of, &later))                              \
    X(barrier_wait, CHECK(shmsync_barrier_arrive(&barrier, 1, &u64), 0), (&barrier, u64))            \
    X(barrier_timedwait, CHECK(shmsync_barrier_arrive(&barrier, 1, &u64), 0), (&barrier, u64, &later)) \
    X(barrier_arrive_and_wait, , (&barrier))                                                         \
    X(barrier_timedarrive_and_wait, , (&barrier, &later))                                            \
    X(barrier_arrive_and_drop, , (&barrier))                                                         \
    X(barrier_register, , (&barrier, 1))                                                             \
    X(barrier_deregister, CHECK(shmsync_barrier_register(&barrier, 1), 0), (&barrier))               \
    X(barrier_reset, , (&barrier, 2, &flag))                                                         \
    X(fairmutex_lock, , (&fairmutex))                                                                \
    X(fairmutex_trylock, , (&fairmutex))                                                             \
    X(fairmutex_timedlock, , (&fairmutex, &later))                                                   \
    X(fairmutex_unlock, CHECK(shmsync_fairmutex_lock(&fairmutex), 0), (&fairmutex))                  \
    X(fairmutex_recover, , (&fairmutex, repairs, NULL))                                              \
    X(fairmutex_state, , (&fairmutex))                                                               \
    X(future_claim, , (&future))                                                                     \
    X(future_set, , (&future, 3))                                                                    \
    X(future_wait, CHECK(shmsync_future_set(&future, 3), 0), (&future, &flag))                       \
    X(future_timedwait, CHECK(shmsync_future_set(&future, 3), 0), (&future, &flag, &later))          \
    X(future_reset, CHECK(shmsync_future_set(&future, 3), 0), (&future))                             \
    X(cond_signal, , (&cond))                                                                        \
    X(cond_broadcast, , (&cond))                                                                     \
    X(semaphore_acquire, , (&semaphore, 1))                                                          \
    X(semaphore_tryacquire, , (&semaphore, 1))                                                       \
    X(semaphore_timedacquire, , (&semaphore, 1, &later))                                             \
    X(semaphore_release, CHECK(shmsync_semaphore_acquire(&semaphore, 1), 0), (&semaphore, 1))        \
    X(rwmutex_lock, , (&rwmutex))                                                                    \
    X(rwmutex_trylock, , (&rwmutex))                                                                 \
    X(rwmutex_timedlock, , (&rwmutex, &later))                                                       \
    X(rwmutex_unlock, CHECK(shmsync_rwmutex_lock(&rwmutex), 0), (&rwmutex))                          \
    X(rwmutex_rdlock, , (&rwmutex))                                                                  \
    X(rwmutex_tryrdlock, , (&rwmutex))                                                               \
    X(rwmutex_timedrdlock, , (&rwmutex, &later))                                                     \
    X(rwmutex_rdunlock, CHECK(shmsync_rwmutex_rdlock(&rwmutex), 0), (&rwmutex))                      \
    X(rwmutex_downgrade, CHECK(shmsync_rwmutex_lock(&rwmutex), 0), (&rwmutex))                       \
    X(rwmutex_lock_upgradable, , (&rwmutex))                                                         \
    X(rwmutex_try_lock_upgradable, , (&rwmutex))                                                     \
    X(rwmutex_timed_lock_upgradable, , (&rwmutex, &later))                                           \
    X(rwmutex_unlock_upgradable, CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0), (&rwmutex))    \
    X(rwmutex_upgrade, CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0), (&rwmutex))              \
    X(rwmutex_try_upgrade, CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0), (&rwmutex))          \
    X(rwmutex_timed_upgrade, CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0), (&rwmutex, &later)) \
    X(rwmutex_downgrade_to_upgradable, CHECK(shmsync_rwmutex_lock(&rwmutex), 0), (&rwmutex))         \
    X(rwmutex_downgrade_to_read, CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0), (&rwmutex))    \
    X(rwmutex_recover, , (&rwmutex, repairs, NULL))                                                  \
    X(rwmutex_state, , (&rwmutex))                                                                   \
    X(rwmutex_begin, , (&rwlogged, &tx))                                                             \
    X(rwmutex_trybegin, , (&rwlogged, &tx))                                                          \
    X(rwmutex_timedbegin, , (&rwlogged, &tx, &later))                                                \
    X(spinlock_lock, , (&spinlock))                                                                  \
    X(spinlock_trylock, , (&spinlock))                                                               \
    X(spinlock_timedlock, , (&spinlock, &later))                                                     \
    X(spinlock_unlock, CHECK(shmsync_spinlock_lock(&spinlock), 0), (&spinlock))                      \
    X(spinlock_recover, , (&spinlock, repairs, NULL))                                                \
    X(spinlock_state, , (&spinlock))                                                                 \
    X(rwspinlock_lock, , (&rwspinlock))                                                              \
    X(rwspinlock_trylock, , (&rwspinlock))                                                           \
    X(rwspinlock_timedlock, , (&rwspinlock, &later))                                                 \
    X(rwspinlock_unlock, CHECK(shmsync_rwspinlock_lock(&rwspinlock), 0), (&rwspinlock))              \
    X(rwspinlock_rdlock, , (&rwspinlock))                                                            \
    X(rwspinlock_tryrdlock, , (&rwspinlock))                                                         \
    X(rwspinlock_timedrdlock, , (&rwspinlock, &later))                                               \
    X(rwspinlock_rdunlock, CHECK(shmsync_rwspinlock_rdlock(&rwspinlock), 0), (&rwspinlock))          \
    X(rwspinlock_uplock, , (&rwspinlock))                                                            \
    X(rwspinlock_tryuplock, , (&rwspinlock))                                                         \
    X(rwspinlock_timeduplock, , (&rwspinlock, &later))                                               \
    X(rwspinlock_upunlock, CHECK(shmsync_rwspinlock_uplock(&rwspinlock), 0), (&rwspinlock))          \
    X(rwspinlock_upgrade, CHECK(shmsync_rwspinlock_uplock(&rwspinlock), 0), (&rwspinlock))           \
    X(rwspinlock_tryupgrade, CHECK(shmsync_rwspinlock_uplock(&rwspinlock), 0), (&rwspinlock))        \
    X(rwspinlock_timedupgrade, CHECK(shmsync_rwspinlock_uplock(&rwspinlock), 0), (&rwspinlock, &later)) \
    X(rwspinlock_downgrade, CHECK(shmsync_rwspinlock_lock(&rwspinlock), 0), (&rwspinlock))           \
    X(rwspinlock_downgrade_to_read, CHECK(shmsync_rwspinlock_uplock(&rwspinlock), 0), (&rwspinlock)) \
    X(rwspinlock_downgrade_to_upgradable, CHECK(shmsync_rwspinlock_lock(&rwspinlock), 0), (&rwspinlock)) \
    X(rwspinlock_recover, , (&rwspinlock, repairs, NULL))                                            \
    X(rwspinlock_state, , (&rwspinlock))                                                             \
    X(multilock_lock, , (&multilock, key, &hold))                                                    \
    X(multilock_trylock, , (&multilock, key, &hold))                                                 \
    X(multilock_timedlock, , (&multilock, key, &hold, &later))                                       \
    X(multilock_unlock, CHECK(shmsync_multilock_lock(&multilock, key, &hold), 0), (&hold))           \
    X(multilock_lockall, , (&multilock, &key, 1, &hold, &count))                                     \
    X(multilock_timedlockall, , (&multilock, &key, 1, &hold, &count, &later))                        \
    X(multilock_unlockall, CHECK(shmsync_multilock_lock(&multilock, key, &hold), 0), (&hold, 1))     \
    X(multilock_recover, , (&multilock, key, repairs, NULL))                                         \
    X(multilock_state, , (&multilock, key))                                                          \
    X(gate_schedule, , (&gate, &flag))                                                               \
    X(gate_begin, CHECK(shmsync_gate_schedule(&gate, NULL), 0), (&gate))                             \
    X(gate_trybegin_inline, , (&gate))                                                               \
    X(gate_finish, CHECK(shmsync_gate_trybegin_inline(&gate), 0), (&gate, &flag))                    \
    X(gate_finish_and_schedule, CHECK(shmsync_gate_trybegin_inline(&gate), 0), (&gate))              \
    X(gate_state, , (&gate, &info))                                                                  \
    X(signalwaker_next, CHECK(shmsync_gate_schedule(&gate, NULL), 0), (&waker, 0, &gate))            \
    X(signalwaker_acquire, CHECK(shmsync_signalwaker_release(&waker, 1), 0), (&waker))               \
    X(signalwaker_tryacquire, CHECK(shmsync_signalwaker_release(&waker, 1), 0), (&waker))            \
    X(signalwaker_timedacquire, CHECK(shmsync_signalwaker_release(&waker, 1), 0), (&waker, &later))  \
    X(signalwaker_release, , (&waker, 1))                                                            \
    X(signalwaker_register_sleeper, , (&waker))                                                      \
    X(signalwaker_unregister_sleeper, CHECK(shmsync_signalwaker_register_sleeper(&waker), 0), (&waker)) \
    X(signalwaker_register_worker, , (&waker))                                                       \
    X(signalwaker_unregister_worker, CHECK(shmsync_signalwaker_register_worker(&waker), 0), (&waker)) \
    X(signal_set, , (&signal_, 1, &flag, NULL))                                                      \
    X(signal_set_mask, , (&signal_, 1, &flag, NULL))                                                 \
    X(signal_acquire, CHECK(shmsync_signal_set(&signal_, 1, NULL, NULL), 0), (&signal_, 1, &u64))    \
    X(signalwaker_mark, , (&waker, 0, &flag))                                                        \
    X(signalwaker_mark_mask, , (&waker, 1, &u64))                                                    \
    X(signalwaker_tryunmark_empty, CHECK(shmsync_signalwaker_mark(&waker, 0, NULL), 0), (&waker, 0)) \
    X(signalwaker_tryunmark, CHECK(shmsync_signalwaker_mark(&waker, 0, NULL), 0), (&waker, 0))       \
    X(signalwaker_mark_yield, , (&waker, &flag))                                                     \
    X(signalwaker_tryunmark_yield, CHECK(shmsync_signalwaker_mark_yield(&waker, NULL), 0), (&waker)) \
    X(signalwaker_mark_tasks, , (&waker, &flag))                                                     \
    X(signalwaker_tryunmark_tasks, CHECK(shmsync_signalwaker_mark_tasks(&waker, NULL), 0), (&waker)) \
    X(signalwaker_sync_partition, , (&waker, 0, 1, NULL, &flag))                                     \
    X(signalwaker_mark_leaf, , (&waker, 0, &flag))                                                   \
    X(signalwaker_clear_leaf, CHECK(shmsync_signalwaker_mark_leaf(&waker, 0, NULL), 0), (&waker, 0)) \
    X(signalwaker_reserve, , (&waker, 0, 1, &flag))                                                  \
    X(signalwaker_unreserve, CHECK(shmsync_signalwaker_reserve(&waker, 0, 1, &flag), 0), (&waker, flag)) \
    X(signalwaker_count, , (&waker, 0, 1))                                                           \
    X(synchronized_begin, , (&value, &copied))                                                       \
    X(synchronized_timedbegin, , (&value, &copied, &later))                                          \
    X(synchronized_commit, CHECK(shmsync_synchronized_begin(&value, &copied), 0), (&value))          \
    X(synchronized_abort, CHECK(shmsync_synchronized_begin(&value, &copied), 0), (&value))           \
    X(synchronized_load, , (&value, item))                                                           \
    X(synchronized_store, , (&value, item))                                                          \
    X(wait_any, await_event(), (list, 1, NULL, &count))                                              \
    X(wait_all, await_event(), (list, 1, NULL))

static void await_event(void)
{
    memset(list, 0, sizeof list);
    list[0].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &event;
}
#define DEFINE(name, prepare, args)                          \
    static void prepare_##name(void) { prepare; }            \
    static int call_##name(void) { return shmsync_##name args; }
CALLS(DEFINE)
static const struct {
    const char *name;
    void (*prepare)(void);
    int (*call)(void);
} all[] = {
#define ENTRY(name, prepare, args) {"shmsync_" #name, prepare_##name, call_##name},
    CALLS(ENTRY)
};

static int result;
static size_t which;
static void *makes_call(void *arg)
{
    int err;
    all[which].prepare();
    calls = 1;
    err = all[which].call();
    calls = 0;
    result = err;
    sem_post(&ready);
    return arg;
}
/* Makes a call that is held before the access hold_at, and closes the arena. Returns whether the call has made so many
 * accesses. */
static int scene(const char *name)
{
    shmsync_arena_options o;
    accesses = held = joined = seconds = got = 0;
    result = -1;
    CHECK(sem_init(&ready, 0, 0), 0);
    CHECK(sem_init(&go_on, 0, 0), 0);
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    o.size = 2 << 20;
    CHECK(shmsync_arena_open(name, &o, &arena), 0);
    CHECK(shmsync_alloc(arena, 64, &block), 0);
    opens();
    CHECK(pthread_create(&caller, NULL, makes_call, NULL), 0);
    while (sem_wait(&ready) != 0) {
    }
    closes = 1;
    CHECK(shmsync_arena_close(arena), 0);
    closes = 0;
    arena = NULL;
    CHECK(shmsync_arena_remove(name), 0);
    CHECK(joined, held);
    if (!held)
        CHECK(pthread_join(caller, NULL), 0);
    else
        CHECK(result != 0 && result != -1, !got);
    return held;
}
int main(int argc, char **argv)
{
    CHECK(argc, 2);
    if (strcmp(argv[1], "list") == 0) {
        for (which = 0; which < sizeof all / sizeof *all; which++)
            puts(all[which].name);
        return 0;
    }
    for (which = 0; which < sizeof all / sizeof *all; which++) {
        current = all[which].name;
        counted = 0;
        for (hold_at = 1; scene(argv[1]); hold_at++) {
        }
        CHECK(hold_at > 1 || counted, 1); /* otherwise the call was not tested */
    }
    return 0;
}
