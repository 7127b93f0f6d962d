/* Calls every object of the header once in each way that has code of its own: free, contended, timed out, and after
 * a death. It is compiled with many sets of flags, so it is one file that needs little time: scenario NAME makes the
 * arena NAME. Exit status 0: all results were right. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <signal.h>
#include <sys/wait.h>

#include "check.h"

enum { ROUNDS = 100 };

static shmsync_arena *arena;

/* A time that comes in a moment. */
static const struct timespec *soon(void)
{
    static __thread struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += 200000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    return &ts;
}

/* Runs f in a second thread while this thread runs g. */
static void both(void *(*f)(void *), void *(*g)(void *), void *arg)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, f, arg), 0);
    g(arg);
    CHECK(pthread_join(t, NULL), 0);
}

static int repair(void *arg)
{
    ++*(int *)arg;
    return 0;
}

/* Runs f in another process, which is killed after f has returned. */
static void die_after(const char *name, void (*f)(void))
{
    int fd[2], status;
    char c;
    pid_t pid;
    CHECK(pipe(fd), 0);
    pid = fork();
    if (pid == 0) {
        CHECK(shmsync_arena_open(name, NULL, &arena), 0);
        f();
        CHECK(write(fd[1], "r", 1), 1);
        for (;;)
            pause();
    }
    CHECK(close(fd[1]), 0);
    CHECK(read(fd[0], &c, 1), 1);
    CHECK(close(fd[0]), 0);
    CHECK(kill(pid, SIGKILL), 0);
    CHECK(waitpid(pid, &status, 0), pid);
}

/* Fills a bucket of a MultiLock, so that all entries in the bucket itself are in use. */
static void multilock_full(void)
{
    shmsync_multilock_options o;
    shmsync_multilock m;
    shmsync_hold h[9], all[8];
    uint64_t keys[8] = {20, 13, 12, 11, 13, 10, 14, 15}, i;
    size_t held;
    memset(&o, 0, sizeof o);
    o.buckets = 1;
    CHECK(shmsync_multilock_open(arena, NULL, &o, &m), 0);
    for (i = 1; i <= 6; i++)
        CHECK(shmsync_multilock_lock(&m, i, &h[i]), 0);
    CHECK(shmsync_multilock_unlock(&h[1]), 0);
    CHECK(shmsync_multilock_lock(&m, 7, &h[7]), 0); /* in the entry that key 1 had */
    CHECK(shmsync_multilock_trylock(&m, 7, &h[8]), EBUSY);
    CHECK(shmsync_multilock_lock(&m, 8, &h[8]), 0); /* in a wait node */
    CHECK(shmsync_multilock_state(&m, 8), 0);
    for (i = 2; i <= 8; i++)
        CHECK(shmsync_multilock_unlock(&h[i]), 0);
    for (i = 0; i < 2 * ROUNDS; i++) {
        CHECK(shmsync_multilock_lockall(&m, keys, 8, all, &held), 0);
        CHECK(held, 7);
        CHECK(shmsync_multilock_trylock(&m, 20, h), EBUSY);
        CHECK(shmsync_multilock_timedlock(&m, 20, h, soon()), ETIMEDOUT);
        CHECK(shmsync_multilock_unlockall(all, held), 0);
        CHECK(shmsync_multilock_timedlockall(&m, keys, 8, all, &held, soon()), 0);
        CHECK(shmsync_multilock_unlockall(all, held), 0);
        CHECK(shmsync_multilock_unlock(&all[0]), EPERM);
        CHECK(shmsync_multilock_trylock(&m, 100 + i, h), 0);
        CHECK(shmsync_multilock_unlock(h), 0);
    }
    CHECK(shmsync_multilock_close(&m), 0);
}

/* ---- locks: many rounds of two threads, and a time that passes ---- */

#define EXCLUSIVE(type)                                                                \
    static void *type##_rounds(void *x)                                                \
    {                                                                                  \
        shmsync_##type *l = (shmsync_##type *)x;                                       \
        int i;                                                                         \
        for (i = 0; i < ROUNDS; i++) {                                                 \
            CHECK(shmsync_##type##_lock(l), 0);                                        \
            sched_yield();                                                             \
            CHECK(shmsync_##type##_unlock(l), 0);                                      \
        }                                                                              \
        return NULL;                                                                   \
    }                                                                                  \
    static void type##_all(void)                                                       \
    {                                                                                  \
        shmsync_##type l;                                                              \
        int repaired = 0;                                                              \
        CHECK(shmsync_##type##_open(arena, NULL, NULL, &l), 0);                        \
        CHECK(shmsync_##type##_lock(&l), 0);                                           \
        CHECK(shmsync_##type##_trylock(&l), EBUSY);                                    \
        CHECK(shmsync_##type##_timedlock(&l, soon()), ETIMEDOUT);                      \
        CHECK(shmsync_##type##_unlock(&l), 0);                                         \
        CHECK(shmsync_##type##_unlock(&l), EPERM);                                     \
        CHECK(shmsync_##type##_trylock(&l), 0);                                        \
        CHECK(shmsync_##type##_unlock(&l), 0);                                         \
        CHECK(shmsync_##type##_recover(&l, repair, &repaired), 0);                     \
        CHECK(shmsync_##type##_state(&l), 0);                                          \
        CHECK(repaired, 0);                                                            \
        both(type##_rounds, type##_rounds, &l);                                        \
        CHECK(shmsync_##type##_close(&l), 0);                                          \
    }                                                                                  \
    static void type##_hold(void)                                                      \
    {                                                                                  \
        shmsync_##type l;                                                              \
        CHECK(shmsync_##type##_open(arena, #type, NULL, &l), 0);                       \
        CHECK(shmsync_##type##_lock(&l), 0);                                           \
    }                                                                                  \
    static void type##_death(const char *name)                                         \
    {                                                                                  \
        shmsync_##type l;                                                              \
        shmsync_participant p;                                                         \
        int repaired = 0;                                                              \
        CHECK(shmsync_##type##_open(arena, #type, NULL, &l), 0);                       \
        die_after(name, type##_hold);                                                  \
        CHECK(shmsync_##type##_lock(&l), EOWNERDEAD);                                  \
        CHECK(shmsync_who_died(&p), 0);                                                \
        CHECK(shmsync_##type##_recover(&l, repair, &repaired), 0);                     \
        CHECK(repaired, 1);                                                            \
        CHECK(shmsync_##type##_lock(&l), 0);                                           \
        CHECK(shmsync_##type##_unlock(&l), 0);                                         \
        CHECK(shmsync_##type##_close(&l), 0);                                          \
    }
EXCLUSIVE(mutex)
EXCLUSIVE(fairmutex)
EXCLUSIVE(rwmutex)
EXCLUSIVE(spinlock)
EXCLUSIVE(rwspinlock)

#define SHARED(type)                                          \
    static void *type##_readers(void *x)                      \
    {                                                         \
        shmsync_##type *l = (shmsync_##type *)x;              \
        int i;                                                \
        for (i = 0; i < ROUNDS; i++) {                        \
            CHECK(shmsync_##type##_rdlock(l), 0);             \
            sched_yield();                                    \
            CHECK(shmsync_##type##_rdunlock(l), 0);           \
        }                                                     \
        return NULL;                                          \
    }                                                         \
    static void type##_shared(void)                           \
    {                                                         \
        shmsync_##type l;                                     \
        CHECK(shmsync_##type##_open(arena, NULL, NULL, &l), 0); \
        CHECK(shmsync_##type##_rdlock(&l), 0);                \
        CHECK(shmsync_##type##_tryrdlock(&l), 0);             \
        CHECK(shmsync_##type##_trylock(&l), EBUSY);           \
        CHECK(shmsync_##type##_timedlock(&l, soon()), ETIMEDOUT); \
        CHECK(shmsync_##type##_rdunlock(&l), 0);              \
        CHECK(shmsync_##type##_rdunlock(&l), 0);              \
        CHECK(shmsync_##type##_lock(&l), 0);                  \
        CHECK(shmsync_##type##_timedrdlock(&l, soon()), ETIMEDOUT); \
        CHECK(shmsync_##type##_tryrdlock(&l), EBUSY);         \
        CHECK(shmsync_##type##_downgrade(&l), 0);             \
        CHECK(shmsync_##type##_rdunlock(&l), 0);              \
        both(type##_readers, type##_rounds, &l);              \
        CHECK(shmsync_##type##_close(&l), 0);                 \
    }
SHARED(rwmutex)
SHARED(rwspinlock)

static void *upgrades(void *x)
{
    shmsync_rwspinlock *l = (shmsync_rwspinlock *)x;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_rwspinlock_uplock(l), 0);
        CHECK(shmsync_rwspinlock_upgrade(l), 0);
        CHECK(shmsync_rwspinlock_downgrade_to_upgradable(l), 0);
        CHECK(shmsync_rwspinlock_upunlock(l), 0);
    }
    return NULL;
}
static void upgrade(void)
{
    shmsync_rwspinlock l;
    CHECK(shmsync_rwspinlock_open(arena, NULL, NULL, &l), 0);
    CHECK(shmsync_rwspinlock_rdlock(&l), 0);
    CHECK(shmsync_rwspinlock_tryuplock(&l), 0);
    CHECK(shmsync_rwspinlock_timeduplock(&l, soon()), ETIMEDOUT);
    CHECK(shmsync_rwspinlock_tryupgrade(&l), EBUSY);
    CHECK(shmsync_rwspinlock_timedupgrade(&l, soon()), ETIMEDOUT);
    CHECK(shmsync_rwspinlock_rdunlock(&l), 0);
    CHECK(shmsync_rwspinlock_downgrade_to_read(&l), 0);
    CHECK(shmsync_rwspinlock_rdunlock(&l), 0);
    both(rwspinlock_readers, upgrades, &l);
    CHECK(shmsync_rwspinlock_close(&l), 0);
}

static void *key_rounds(void *x)
{
    shmsync_hold h;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_multilock_lock((shmsync_multilock *)x, 7, &h), 0);
        sched_yield();
        CHECK(shmsync_multilock_unlock(&h), 0);
    }
    return NULL;
}
static void multilock_all(void)
{
    shmsync_multilock m;
    CHECK(shmsync_multilock_open(arena, NULL, NULL, &m), 0);
    both(key_rounds, key_rounds, &m);
    CHECK(shmsync_multilock_close(&m), 0);
}
static void multilock_hold(void)
{
    shmsync_multilock m;
    shmsync_hold h;
    CHECK(shmsync_multilock_open(arena, "multilock", NULL, &m), 0);
    CHECK(shmsync_multilock_lock(&m, 7, &h), 0);
}
static void multilock_death(const char *name)
{
    shmsync_multilock m;
    shmsync_hold h;
    int repaired = 0;
    CHECK(shmsync_multilock_open(arena, "multilock", NULL, &m), 0);
    die_after(name, multilock_hold);
    CHECK(shmsync_multilock_lock(&m, 7, &h), EOWNERDEAD);
    CHECK(shmsync_multilock_recover(&m, 7, repair, &repaired), 0);
    CHECK(repaired, 1);
    CHECK(shmsync_multilock_lock(&m, 7, &h), 0);
    CHECK(shmsync_multilock_unlock(&h), 0);
    CHECK(shmsync_multilock_close(&m), 0);
}

/* ---- objects that count, or that are set ---- */

static void *acquires(void *x)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_semaphore_acquire((shmsync_semaphore *)x, 2), 0);
        sched_yield();
        CHECK(shmsync_semaphore_release((shmsync_semaphore *)x, 2), 0);
    }
    return NULL;
}
static void semaphore(void)
{
    shmsync_semaphore s;
    CHECK(shmsync_semaphore_open(arena, NULL, 3, NULL, &s), 0);
    CHECK(shmsync_semaphore_acquire(&s, 4), EINVAL);
    CHECK(shmsync_semaphore_acquire(&s, 3), 0);
    CHECK(shmsync_semaphore_tryacquire(&s, 1), EBUSY);
    CHECK(shmsync_semaphore_timedacquire(&s, 1, soon()), ETIMEDOUT);
    CHECK(shmsync_semaphore_release(&s, 3), 0);
    CHECK(shmsync_semaphore_release(&s, 1), EPERM);
    both(acquires, acquires, &s);
    CHECK(shmsync_semaphore_free(&s), 3);
    CHECK(shmsync_semaphore_close(&s), 0);
}
static void semaphore_hold(void)
{
    shmsync_semaphore s;
    CHECK(shmsync_semaphore_open(arena, "semaphore", 3, NULL, &s), 0);
    CHECK(shmsync_semaphore_acquire(&s, 2), 0);
}
static void semaphore_death(const char *name)
{
    shmsync_semaphore s;
    CHECK(shmsync_semaphore_open(arena, "semaphore", 3, NULL, &s), 0);
    die_after(name, semaphore_hold);
    CHECK(shmsync_semaphore_acquire(&s, 3), 0);
    CHECK(shmsync_semaphore_release(&s, 3), 0);
    CHECK(shmsync_semaphore_close(&s), 0);
}

static shmsync_event ping, pong;
static void *pings(void *x)
{
    int i;
    (void)x;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_event_set(&ping), 0);
        CHECK(shmsync_event_wait(&pong), 0);
    }
    return NULL;
}
static void *pongs(void *x)
{
    int i;
    (void)x;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_event_wait(&ping), 0);
        CHECK(shmsync_event_set(&pong), 0);
    }
    return NULL;
}
static void *reset_twice(void *x)
{
    shmsync_event *e = (shmsync_event *)x;
    CHECK(shmsync_event_reset(e), 0);
    CHECK(shmsync_event_set(e), 0);
    CHECK(shmsync_event_reset(e), 0);
    return NULL;
}
static void *await_reset(void *x)
{
    CHECK(shmsync_event_wait_reset((shmsync_event *)x), 0);
    return NULL;
}
static void event(void)
{
    shmsync_event_options o;
    shmsync_event e;
    memset(&o, 0, sizeof o);
    o.auto_reset = 1;
    CHECK(shmsync_event_open(arena, NULL, &o, &ping), 0);
    CHECK(shmsync_event_open(arena, NULL, &o, &pong), 0);
    CHECK(shmsync_event_trywait(&ping), EBUSY);
    CHECK(shmsync_event_timedwait(&ping, soon()), ETIMEDOUT);
    both(pings, pongs, NULL);
    CHECK(shmsync_event_close(&ping), 0);
    CHECK(shmsync_event_close(&pong), 0);
    memset(&o, 0, sizeof o);
    o.bidirectional = o.set = 1;
    CHECK(shmsync_event_open(arena, NULL, &o, &e), 0);
    CHECK(shmsync_event_wait(&e), 0);
    CHECK(shmsync_event_timedwait_reset(&e, soon()), ETIMEDOUT);
    both(reset_twice, await_reset, &e);
    CHECK(shmsync_event_is_set(&e), 0);
    CHECK(shmsync_event_close(&e), 0);
}

static void *increments(void *x)
{
    uint64_t v;
    int i, advanced;
    for (i = 0; i < ROUNDS; i++)
        CHECK(shmsync_sequencer_increment((shmsync_sequencer *)x, &v), 0);
    CHECK(shmsync_sequencer_advance((shmsync_sequencer *)x, ROUNDS + 5, &advanced), 0);
    CHECK(advanced, 1);
    return NULL;
}
static void *await_counts(void *x)
{
    uint64_t i;
    for (i = 0; i <= ROUNDS + 5; i++)
        CHECK(shmsync_sequencer_wait((shmsync_sequencer *)x, i), 0);
    return NULL;
}
static void sequencer(void)
{
    shmsync_sequencer s;
    CHECK(shmsync_sequencer_open(arena, NULL, NULL, &s), 0);
    CHECK(shmsync_sequencer_timedwait(&s, 1, soon()), ETIMEDOUT);
    both(increments, await_counts, &s);
    CHECK(shmsync_sequencer_cancel_waiters(&s), 0);
    CHECK(shmsync_sequencer_reset(&s, 1), 0);
    CHECK(shmsync_sequencer_stop(&s), 0);
    CHECK(shmsync_sequencer_wait(&s, 2), ECANCELED);
    CHECK(shmsync_sequencer_close(&s), 0);
}

static void *posts(void *x)
{
    int i;
    for (i = 0; i < ROUNDS; i++)
        CHECK(shmsync_futex_post((shmsync_futex *)x), 0);
    return NULL;
}
static void *await_posts(void *x)
{
    uint64_t i;
    for (i = 1; i <= ROUNDS; i++)
        CHECK(shmsync_futex_wait((shmsync_futex *)x, i), 0);
    return NULL;
}
static void futex(void)
{
    shmsync_futex f;
    CHECK(shmsync_futex_open(arena, NULL, NULL, &f), 0);
    CHECK(shmsync_futex_timedwait(&f, 1, soon()), ETIMEDOUT);
    both(posts, await_posts, &f);
    CHECK(shmsync_futex_get(&f), ROUNDS);
    CHECK(shmsync_futex_stop(&f), 0);
    CHECK(shmsync_futex_wait(&f, ROUNDS + 1), ECANCELED);
    CHECK(shmsync_futex_close(&f), 0);
}

static void *puts_items(void *x)
{
    uint64_t i, two[2];
    size_t done;
    for (i = 1; i <= ROUNDS; i++)
        CHECK(shmsync_queue_put((shmsync_queue *)x, &i), 0);
    two[0] = two[1] = 9;
    CHECK(shmsync_queue_put_batch((shmsync_queue *)x, two, 2, NULL, &done), 0);
    CHECK(done, 2);
    CHECK(shmsync_queue_shutdown((shmsync_queue *)x), 0);
    return NULL;
}
static void *gets_items(void *x)
{
    uint64_t i, v, two[2];
    size_t done = 0, n;
    shmsync_lease l;
    for (i = 1; i <= ROUNDS; i++) {
        CHECK(shmsync_queue_lease((shmsync_queue *)x, &v, &l), 0);
        CHECK(v, i);
        CHECK(i % 2 ? shmsync_lease_ack(&l) : shmsync_lease_nack(&l), 0);
        if (i % 2 == 0)
            CHECK(shmsync_queue_get((shmsync_queue *)x, &v), 0);
        CHECK(v, i);
    }
    for (n = 0; n < 2; n += done)
        CHECK(shmsync_queue_get_batch((shmsync_queue *)x, two, 2, NULL, &done), 0);
    CHECK(shmsync_queue_get((shmsync_queue *)x, &v), ECANCELED);
    return NULL;
}
static void queue(void)
{
    shmsync_queue_options o;
    shmsync_queue q;
    uint64_t v = 0;
    memset(&o, 0, sizeof o);
    o.capacity = 4;
    CHECK(shmsync_queue_open(arena, NULL, sizeof v, &o, &q), 0);
    CHECK(shmsync_queue_tryget(&q, &v), EBUSY);
    CHECK(shmsync_queue_timedget(&q, &v, soon()), ETIMEDOUT);
    both(puts_items, gets_items, &q);
    CHECK(shmsync_queue_tryput(&q, &v), ECANCELED);
    CHECK(shmsync_queue_close(&q), 0);
}

static void *done_all(void *x)
{
    int i;
    for (i = 0; i < ROUNDS; i++)
        CHECK(shmsync_waitgroup_done((shmsync_waitgroup *)x), 0);
    return NULL;
}
static void *await_group(void *x)
{
    CHECK(shmsync_waitgroup_wait((shmsync_waitgroup *)x), 0);
    return NULL;
}
static void *count_down(void *x)
{
    CHECK(shmsync_latch_count_down((shmsync_latch *)x, 1), 0);
    return NULL;
}
static void *arrive_at_latch(void *x)
{
    CHECK(shmsync_latch_arrive_and_wait((shmsync_latch *)x, 1), 0);
    return NULL;
}
static void counters(void)
{
    shmsync_waitgroup g;
    shmsync_latch l;
    CHECK(shmsync_waitgroup_open(arena, NULL, NULL, &g), 0);
    CHECK(shmsync_waitgroup_add(&g, ROUNDS), 0);
    CHECK(shmsync_waitgroup_timedwait(&g, soon()), ETIMEDOUT);
    both(done_all, await_group, &g);
    CHECK(shmsync_waitgroup_done(&g), EINVAL);
    CHECK(shmsync_waitgroup_close(&g), 0);
    CHECK(shmsync_latch_open(arena, NULL, 2, NULL, &l), 0);
    CHECK(shmsync_latch_trywait(&l), EBUSY);
    CHECK(shmsync_latch_claim(&l, 1), 0);
    CHECK(shmsync_latch_timedwait(&l, soon()), ETIMEDOUT);
    both(count_down, arrive_at_latch, &l);
    CHECK(shmsync_latch_wait(&l), 0);
    CHECK(shmsync_latch_close(&l), 0);
}

static void *phases(void *x)
{
    int i;
    for (i = 0; i < ROUNDS; i++)
        CHECK(shmsync_barrier_arrive_and_wait((shmsync_barrier *)x), 0);
    return NULL;
}
static void completed(void *arg) { ++*(int *)arg; }
/* An arrival waits while a completion runs, until its deadline at most. */
static shmsync_barrier in_completion;
static void *arrive_for_a_while(void *result)
{
    uint64_t phase = 77;
    CHECK(shmsync_barrier_timedarrive(&in_completion, 1, &phase, soon()), *(int *)result);
    CHECK((int)phase, 77);
    return NULL;
}
static void arrive_meanwhile(void *arg)
{
    int of_another_thread = ETIMEDOUT, of_itself = EDEADLK;
    pthread_t t;
    CHECK(pthread_create(&t, NULL, arrive_for_a_while, &of_another_thread), 0);
    CHECK(pthread_join(t, NULL), 0);
    arrive_for_a_while(&of_itself);
    ++*(int *)arg;
}
static void timed_arrivals(void)
{
    shmsync_barrier_options o;
    uint64_t phase, next;
    int n = 0;
    memset(&o, 0, sizeof o);
    o.completion = arrive_meanwhile;
    o.completion_arg = &n;
    CHECK(shmsync_barrier_open(arena, NULL, 2, &o, &in_completion), 0);
    CHECK(shmsync_barrier_timedarrive(&in_completion, 1, &phase, soon()), 0);
    CHECK(shmsync_barrier_timedarrive(&in_completion, 1, NULL, soon()), 0);
    CHECK(n, 1);
    CHECK(shmsync_barrier_wait(&in_completion, phase), 0);
    CHECK(shmsync_barrier_timedarrive(&in_completion, 1, &next, soon()), 0);
    CHECK((int)(next - phase), 1); /* the arrival that had no time was not counted */
    CHECK(shmsync_barrier_close(&in_completion), 0);
}
/* The index of an arrival says how many parties have arrived before in the phase. */
static void indices(void)
{
    shmsync_barrier b;
    uint64_t phase;
    int64_t index = 9;
    int64_t i;
    CHECK(shmsync_barrier_open(arena, NULL, 3, NULL, &b), 0);
    for (i = 0; i < 9; i++) {
        CHECK(i % 2 == 0 ? shmsync_barrier_arrive_index(&b, &phase, &index) : shmsync_barrier_timedarrive_index(&b, &phase, &index, soon()), 0);
        CHECK((int)phase, (int)i / 3);
        CHECK((int)index, (int)i % 3);
    }
    CHECK(shmsync_barrier_arrive(&b, 2, &phase), 0);
    CHECK(shmsync_barrier_arrive_index(&b, NULL, &index), 0);
    CHECK((int)index, 2);
    CHECK(shmsync_barrier_arrive_index(&b, NULL, NULL), 0);
    CHECK(shmsync_barrier_arrive_and_drop(&b), 0); /* does not count */
    CHECK(shmsync_barrier_arrive_index(&b, NULL, &index), 0);
    CHECK((int)index, 1);
    for (i = 0; i < 4; i++) {
        CHECK(shmsync_barrier_arrive_index(&b, NULL, &index), 0);
        CHECK((int)index, (int)i % 2);
    }
    CHECK(shmsync_barrier_close(&b), 0);
}
static void barrier(void)
{
    shmsync_barrier_options o;
    shmsync_barrier b;
    uint64_t phase;
    int n = 0;
    memset(&o, 0, sizeof o);
    o.completion = completed;
    o.completion_arg = &n;
    CHECK(shmsync_barrier_open(arena, NULL, 2, &o, &b), 0);
    both(phases, phases, &b);
    CHECK(n, ROUNDS);
    CHECK(shmsync_barrier_arrive(&b, 1, &phase), 0);
    CHECK(shmsync_barrier_timedwait(&b, phase, soon()), ETIMEDOUT);
    CHECK(shmsync_barrier_arrive_and_drop(&b), 0);
    CHECK(shmsync_barrier_wait(&b, phase), 0);
    CHECK(shmsync_barrier_wait(&b, phase + 9), EINVAL);
    CHECK(shmsync_barrier_close(&b), 0);
    indices();
    timed_arrivals();
}
static void barrier_join(void)
{
    shmsync_barrier b;
    CHECK(shmsync_barrier_open(arena, "barrier", 2, NULL, &b), 0);
    CHECK(shmsync_barrier_register(&b, 1), 0);
}
static void barrier_death(const char *name)
{
    shmsync_barrier b;
    int64_t index = 9;
    int did;
    CHECK(shmsync_barrier_open(arena, "barrier", 2, NULL, &b), 0);
    die_after(name, barrier_join);
    CHECK(shmsync_barrier_arrive_and_wait(&b), EOWNERDEAD);
    CHECK(shmsync_barrier_arrive_index(&b, NULL, &index), 0);
    CHECK((int)index, -1); /* a broken barrier counts nothing */
    CHECK(shmsync_barrier_reset(&b, 1, &did), 0);
    CHECK(shmsync_barrier_arrive_and_wait(&b), 0);
    CHECK(shmsync_barrier_close(&b), 0);
}

static shmsync_cond cond;
static shmsync_mutex cond_mutex;
static int turn;
static void *turns(void *mine)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_mutex_lock(&cond_mutex), 0);
        while (turn != (mine != NULL))
            CHECK(shmsync_cond_wait(&cond, &cond_mutex), 0);
        turn = mine == NULL;
        CHECK(i % 2 ? shmsync_cond_signal(&cond) : shmsync_cond_broadcast(&cond), 0);
        CHECK(shmsync_mutex_unlock(&cond_mutex), 0);
    }
    return NULL;
}
static void conditions(void)
{
    pthread_t t;
    CHECK(shmsync_cond_open(arena, NULL, NULL, &cond), 0);
    CHECK(shmsync_mutex_open(arena, NULL, NULL, &cond_mutex), 0);
    CHECK(shmsync_mutex_lock(&cond_mutex), 0);
    CHECK(shmsync_cond_timedwait(&cond, &cond_mutex, soon()), ETIMEDOUT);
    CHECK(shmsync_mutex_unlock(&cond_mutex), 0);
    CHECK(pthread_create(&t, NULL, turns, &turn), 0);
    turns(NULL);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(shmsync_cond_close(&cond), 0);
    CHECK(shmsync_mutex_close(&cond_mutex), 0);
}

static void *set_future(void *x)
{
    CHECK(shmsync_future_set((shmsync_future *)x, 5), 0);
    return NULL;
}
static void *await_future(void *x)
{
    int result = 0;
    CHECK(shmsync_future_wait((shmsync_future *)x, &result), 0);
    CHECK(result, 5);
    return NULL;
}
static void future_claim(void)
{
    shmsync_future f;
    CHECK(shmsync_future_open(arena, "future", NULL, &f), 0);
    CHECK(shmsync_future_claim(&f), 0);
}
static void futures(const char *name)
{
    shmsync_future f;
    shmsync_once o;
    int result, n = 0;
    CHECK(shmsync_future_open(arena, NULL, NULL, &f), 0);
    CHECK(shmsync_future_claim(&f), 0);
    CHECK(shmsync_future_is_set(&f, &result), 0);
    CHECK(shmsync_future_timedwait(&f, &result, soon()), ETIMEDOUT);
    both(set_future, await_future, &f);
    CHECK(shmsync_future_reset(&f), 0);
    CHECK(shmsync_future_close(&f), 0);
    CHECK(shmsync_future_open(arena, "future", NULL, &f), 0);
    die_after(name, future_claim);
    CHECK(shmsync_future_wait(&f, &result), EOWNERDEAD);
    CHECK(shmsync_future_close(&f), 0);
    CHECK(shmsync_once_open(arena, NULL, NULL, &o), 0);
    CHECK(shmsync_once_do(&o, completed, &n), 0);
    CHECK(shmsync_once_timeddo(&o, completed, &n, soon()), 0);
    CHECK(shmsync_once_done(&o), 1);
    CHECK(n, 1);
    CHECK(shmsync_once_close(&o), 0);
}

static shmsync_sequencer any_seq;
static shmsync_event any_event;
static void *come(void *x)
{
    uint64_t v;
    (void)x;
    CHECK(shmsync_event_set(&any_event), 0);
    CHECK(shmsync_sequencer_increment(&any_seq, &v), 0);
    return NULL;
}
static void *await_list(void *x)
{
    shmsync_awaitable *list = (shmsync_awaitable *)x;
    size_t index;
    CHECK(shmsync_wait_any(list, 2, NULL, &index), 0);
    CHECK(index < 2, 1);
    CHECK(shmsync_wait_all(list, 2, NULL), 0);
    return NULL;
}
static void wait_list(void)
{
    shmsync_awaitable list[2];
    size_t index;
    CHECK(shmsync_sequencer_open(arena, NULL, NULL, &any_seq), 0);
    CHECK(shmsync_event_open(arena, NULL, NULL, &any_event), 0);
    memset(list, 0, sizeof list);
    list[0].kind = SHMSYNC_AWAIT_SEQUENCER;
    list[0].sequencer = &any_seq;
    list[0].token = 1;
    list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[1].event = &any_event;
    CHECK(shmsync_wait_any(list, 2, soon(), &index), ETIMEDOUT);
    CHECK(shmsync_wait_all(list, 2, soon()), ETIMEDOUT);
    both(come, await_list, list);
    CHECK(shmsync_sequencer_close(&any_seq), 0);
    CHECK(shmsync_event_close(&any_event), 0);
}

static shmsync_signalwaker waker;
static void *schedule(void *x)
{
    shmsync_gate g;
    int i, scheduled;
    (void)x;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_signalwaker_gate(&waker, i, &g), 0);
        CHECK(shmsync_gate_schedule(&g, &scheduled), 0);
    }
    return NULL;
}
static void *execute(void *x)
{
    shmsync_gate g;
    shmsync_gate_info info;
    int i, again;
    (void)x;
    for (i = 0; i < ROUNDS;) {
        if (shmsync_signalwaker_next(&waker, i, &g) != 0) {
            CHECK(shmsync_signalwaker_acquire(&waker), 0);
            continue;
        }
        CHECK(shmsync_gate_state(&g, &info), 0);
        CHECK(info.executing, 1);
        CHECK(shmsync_gate_finish(&g, &again), 0);
        i++;
    }
    return NULL;
}
static void signalwaker(void)
{
    shmsync_signal_health health;
    uint64_t stats[SHMSYNC_STATS];
    int queue_number;
    CHECK(shmsync_signalwaker_open(arena, NULL, NULL, &waker), 0);
    CHECK(shmsync_signalwaker_timedacquire(&waker, soon()), ETIMEDOUT);
    CHECK(shmsync_signalwaker_register_worker(&waker), 0);
    both(schedule, execute, NULL);
    CHECK(shmsync_signalwaker_reserve(&waker, 0, 2, &queue_number), 0);
    CHECK(shmsync_signalwaker_unreserve(&waker, queue_number), 0);
    CHECK(shmsync_signalwaker_unregister_worker(&waker), 0);
    shmsync_signalwaker_stats(&waker, stats);
    shmsync_signalwaker_health(&waker, &health);
    CHECK(health.executing, 0);
    CHECK(shmsync_signalwaker_close(&waker), 0);
}

static int count_participants(const shmsync_participant *p, void *arg)
{
    *(int *)arg += p->pid == (uint32_t)getpid();
    return 0;
}
static void memory(void)
{
    shmsync_offset off;
    void *p;
    int n = 0;
    CHECK(shmsync_alloc(arena, 1000, &off), 0);
    CHECK(shmsync_at(arena, off, 1000) != NULL, 1);
    CHECK(shmsync_free(arena, off), 0);
    CHECK(shmsync_free(arena, off), EINVAL);
    CHECK(shmsync_block_open(arena, "block", 100, &p), 0);
    CHECK(shmsync_block_open(arena, "block", 200, &p), EINVAL);
    CHECK(shmsync_delete(arena, "nothing"), ENOENT);
    CHECK(shmsync_arena_participants(arena, count_participants, &n), 0);
    CHECK(n, 1);
}

/* Transactions: committed, undone, with blocks, with a full log, and left by a process that dies. */
typedef struct tx_data {
    uint64_t a, b;
    shmsync_offset block;
    char bytes[100];
} tx_data;
static shmsync_mutex tx_lock;
static tx_data *tx_shared;

static void tx_open(void)
{
    shmsync_mutex_options opts;
    void *p;
    memset(&opts, 0, sizeof opts);
    opts.policy = SHMSYNC_POLICY_ROLLBACK;
    opts.log_bytes = 1024;
    CHECK(shmsync_mutex_open(arena, "tx", &opts, &tx_lock), 0);
    CHECK(shmsync_block_open(arena, "tx-data", sizeof(tx_data), &p), 0);
    tx_shared = (tx_data *)p;
}
static void tx_change(shmsync_tx *tx)
{
    tx_data *d = tx_shared;
    CHECK(shmsync_tx_save(tx, &d->a, sizeof d->a + sizeof d->b), 0);
    CHECK(shmsync_tx_save(tx, &d->b, sizeof d->b), 0); /* once more, although it is in the log already */
    CHECK(tx->tail, 16 + 16);
    d->a++;
    d->b++;
    CHECK(shmsync_tx_save(tx, d->bytes + 1, 3), 0); /* its record is padded */
    CHECK(tx->tail, 16 + 16 + 8 + 16);
    d->bytes[1]++;
}
static void tx_swap_block(shmsync_tx *tx)
{
    shmsync_offset brief;
    CHECK(shmsync_tx_save(tx, &tx_shared->block, sizeof tx_shared->block), 0);
    if (tx_shared->block != 0)
        CHECK(shmsync_tx_free(tx, tx_shared->block), 0);
    CHECK(shmsync_tx_alloc(tx, 200, 4096, &tx_shared->block), 0);
    CHECK(tx_shared->block % 4096, 0);
    CHECK(shmsync_tx_alloc(tx, 100000, 0, &brief), 0);
    CHECK(shmsync_at(arena, brief, 100000) != NULL, 1);
    CHECK(shmsync_tx_free(tx, brief), 0);
}
static void tx_die(void)
{
    shmsync_tx tx;
    tx_open();
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    tx_change(&tx);
    tx_swap_block(&tx);
}
static void tx_is(uint64_t n)
{
    CHECK(tx_shared->a, n);
    CHECK(tx_shared->b, n);
    CHECK(tx_shared->bytes[1], (char)n);
}
static void transactions(const char *name)
{
    shmsync_tx tx;
    shmsync_mutex plain;
    shmsync_offset block;
    tx_data *d;
    int local = 0, i;
    tx_open();
    d = tx_shared;
    CHECK(shmsync_mutex_open(arena, "tx-plain", NULL, &plain), 0);
    CHECK(shmsync_mutex_begin(&plain, &tx), EINVAL);
    CHECK(shmsync_tx_save(&tx, d, 1), EPERM);
    for (i = 0; i < 3; i++) {
        CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
        tx_change(&tx);
        tx_swap_block(&tx);
        CHECK(shmsync_tx_commit(&tx), 0);
        CHECK(shmsync_tx_commit(&tx), EPERM);
        CHECK(shmsync_tx_abort(&tx), EPERM);
        tx_is((uint64_t)i + 1);
        CHECK(shmsync_at(arena, d->block, 200) != NULL, 1);
        block = d->block;
        CHECK(shmsync_mutex_trybegin(&tx_lock, &tx), 0);
        tx_change(&tx);
        tx_swap_block(&tx);
        CHECK(shmsync_tx_abort(&tx), 0);
        tx_is((uint64_t)i + 1);
        CHECK(d->block, block);
        CHECK(shmsync_at(arena, block, 200) != NULL, 1);
    }
    CHECK(shmsync_mutex_timedbegin(&tx_lock, &tx, soon()), 0);
    CHECK(shmsync_tx_save(&tx, d, 0), 0);
    CHECK(shmsync_tx_commit(&tx), 0); /* of nothing */
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    tx_change(&tx);
    for (i = 0; shmsync_tx_save(&tx, d, 1 + (size_t)i) == 0; i++) { /* longer each time, so never in the log yet */
    }
    CHECK(shmsync_tx_save(&tx, &d->a, 1), ENOSPC);
    CHECK(shmsync_tx_alloc(&tx, 1, 0, &block), ENOSPC);
    CHECK(shmsync_tx_free(&tx, block), ENOSPC);
    CHECK(shmsync_tx_commit(&tx), ENOSPC);
    tx_is(3);
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    tx_change(&tx);
    CHECK(shmsync_tx_save(&tx, &local, sizeof local), EINVAL);
    CHECK(shmsync_tx_commit(&tx), EINVAL);
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    CHECK(shmsync_tx_save(&tx, tx_lock.impl->w, sizeof *tx_lock.impl->w), EINVAL);
    CHECK(shmsync_tx_abort(&tx), 0);
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    CHECK(shmsync_tx_free(&tx, d->block + 64), EINVAL);
    CHECK(shmsync_tx_abort(&tx), 0);
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    CHECK(shmsync_tx_free(&tx, d->block), 0);
    CHECK(shmsync_tx_free(&tx, d->block), EINVAL); /* twice */
    CHECK(shmsync_tx_commit(&tx), EINVAL);
    CHECK(shmsync_at(arena, d->block, 200) != NULL, 1);
    die_after(name, tx_die);
    CHECK(shmsync_mutex_begin(&tx_lock, &tx), 0);
    tx_is(3);
    CHECK(shmsync_at(arena, d->block, 200) != NULL, 1);
    CHECK(shmsync_tx_free(&tx, d->block), 0);
    CHECK(shmsync_tx_commit(&tx), 0);
    CHECK(shmsync_mutex_close(&plain), 0);
    CHECK(shmsync_mutex_close(&tx_lock), 0);
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "scenario";
    alarm(600);
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    multilock_full();
    memory();
    mutex_all();
    fairmutex_all();
    rwmutex_all();
    spinlock_all();
    rwspinlock_all();
    rwmutex_shared();
    rwspinlock_shared();
    upgrade();
    multilock_all();
    semaphore();
    event();
    sequencer();
    futex();
    queue();
    counters();
    barrier();
    conditions();
    futures(name);
    wait_list();
    signalwaker();
    transactions(name);
    mutex_death(name);
    fairmutex_death(name);
    rwmutex_death(name);
    spinlock_death(name);
    rwspinlock_death(name);
    multilock_death(name);
    semaphore_death(name);
    barrier_death(name);
    CHECK(shmsync_arena_remove(name), EBUSY);
    CHECK(shmsync_arena_close(arena), 0);
    CHECK(shmsync_arena_remove(name), 0);
    return 0;
}
