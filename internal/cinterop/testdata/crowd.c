/* Tests many threads of one process that wait for long: crowd VERB KIND NAME, or crowd kinds. The verbs:
 *
 *	seldom    all threads together wake less often than ten threads without a crowd, and the watcher checks
 *	stopped   a thread is stopped before it sends a wake: some waiter finds that out soon
 *	close     a close of the arena ends all waits at once
 *	busy      a thread is stopped in the private lock of the readers of an RWMutex: the watcher checks all the same
 *	churn     threads leave the crowd and close their object while the watcher checks
 *	gate      a reader of an RWSpinLock, among writers, is announced again if its wake is lost
 *	opened    the gate that a waiting writer of an RWMutex has closed is opened, and nobody wakes the writer
 *
 * Exit status 0: the waits behave so. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <semaphore.h>

#define CHECK(got, want)                                                                                            \
    do {                                                                                                            \
        long long got_ = (long long)(got), want_ = (long long)(want);                                              \
        if (got_ != want_) {                                                                                        \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #got, got_, want_, shmsync_error()); \
            _exit(1);                                                                                               \
        }                                                                                                           \
    } while (0)

enum { THREADS = 512 };
#define SOON INT64_C(4000000000) /* ns, less than a thread of such a crowd sleeps */

static shmsync_arena *arena;
static pthread_t releaser;
static const char *stop_at, *counted;
static uint32_t passes, released, ended;
static sem_t stopped, never;

void at_point(const char *name)
{
    if (counted != NULL && strcmp(name, counted) == 0)
        shmi_add32(&passes, 1);
    if (stop_at == NULL || strcmp(name, stop_at) != 0 || !shmi_ld32(&released) || !pthread_equal(pthread_self(), releaser))
        return;
    sem_post(&stopped);
    for (;;)
        sem_wait(&never);
}

static shmsync_mutex mutex;
static void mutex_open(void)
{
    CHECK(shmsync_mutex_open(arena, "mutex", NULL, &mutex), 0);
    CHECK(shmsync_mutex_lock(&mutex), 0);
}
static int mutex_wait(void)
{
    int err = shmsync_mutex_lock(&mutex);
    return err != 0 ? err : shmsync_mutex_unlock(&mutex);
}
static void mutex_release(void) { CHECK(shmsync_mutex_unlock(&mutex), 0); }

static shmsync_futex futex;
static void futex_open(void) { CHECK(shmsync_futex_open(arena, "futex", NULL, &futex), 0); }
static int futex_wait(void) { return shmsync_futex_wait(&futex, 1); }
static void futex_release(void) { CHECK(shmsync_futex_post(&futex), 0); }

static shmsync_semaphore semaphore;
static void semaphore_open(void)
{
    CHECK(shmsync_semaphore_open(arena, "semaphore", 1, NULL, &semaphore), 0);
    CHECK(shmsync_semaphore_acquire(&semaphore, 1), 0);
}
static int semaphore_wait(void)
{
    int err = shmsync_semaphore_acquire(&semaphore, 1);
    return err != 0 ? err : shmsync_semaphore_release(&semaphore, 1);
}
static void semaphore_release(void) { CHECK(shmsync_semaphore_release(&semaphore, 1), 0); }

static shmsync_latch latch;
static void latch_open(void) { CHECK(shmsync_latch_open(arena, "latch", 1, NULL, &latch), 0); }
static int latch_wait(void) { return shmsync_latch_wait(&latch); }
static void latch_release(void) { CHECK(shmsync_latch_count_down(&latch, 1), 0); }

static shmsync_queue queue;
static void queue_open(void)
{
    shmsync_queue_options o;
    memset(&o, 0, sizeof o);
    o.capacity = 2;
    CHECK(shmsync_queue_open(arena, "queue", 8, &o, &queue), 0);
}
static int queue_wait(void)
{
    uint64_t item;
    return shmsync_queue_get(&queue, &item);
}
static void queue_release(void)
{
    uint64_t item = 1;
    CHECK(shmsync_queue_put(&queue, &item), 0);
}

static shmsync_spinlock spinlock;
static void spinlock_open(void)
{
    CHECK(shmsync_spinlock_open(arena, "spinlock", NULL, &spinlock), 0);
    CHECK(shmsync_spinlock_lock(&spinlock), 0);
}
static int spinlock_wait(void)
{
    int err = shmsync_spinlock_lock(&spinlock);
    return err != 0 ? err : shmsync_spinlock_unlock(&spinlock);
}
static void spinlock_release(void) { CHECK(shmsync_spinlock_unlock(&spinlock), 0); }

static shmsync_rwmutex rwmutex;
static void rwmutex_open(void)
{
    CHECK(shmsync_rwmutex_open(arena, "rwmutex", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_lock(&rwmutex), 0);
}
static int rwmutex_wait(void)
{
    int err = shmsync_rwmutex_rdlock(&rwmutex);
    return err != 0 ? err : shmsync_rwmutex_rdunlock(&rwmutex);
}
static void rwmutex_release(void) { CHECK(shmsync_rwmutex_unlock(&rwmutex), 0); }

static shmsync_rwspinlock rwspinlock;
static void rwspinlock_open(void)
{
    CHECK(shmsync_rwspinlock_open(arena, "rwspinlock", NULL, &rwspinlock), 0);
    CHECK(shmsync_rwspinlock_lock(&rwspinlock), 0);
}
static int rwspinlock_wait(void)
{
    int err = shmsync_rwspinlock_lock(&rwspinlock);
    return err != 0 ? err : shmsync_rwspinlock_unlock(&rwspinlock);
}
static void rwspinlock_release(void) { CHECK(shmsync_rwspinlock_unlock(&rwspinlock), 0); }

static const struct kind {
    const char *name;
    void (*open)(void);
    int (*wait)(void);
    void (*release)(void);
    const char *before_wake, *before_sleep;
} kinds[] = {
    {"mutex", mutex_open, mutex_wait, mutex_release, "mutex.unlock.reserved", "mutex.lock.announced"},
    {"futex", futex_open, futex_wait, futex_release, "futex.post.before_wake", "futex.wait.announced"},
    {"semaphore", semaphore_open, semaphore_wait, semaphore_release, "record.wake.before", "park.waitnode.asleep"},
    {"latch", latch_open, latch_wait, latch_release, "counter.zero.before_wake", "counter.wait.watched"},
    {"queue", queue_open, queue_wait, queue_release, "queue.add.committed", "queue.wait.announced"},
    {"spinlock", spinlock_open, spinlock_wait, spinlock_release, "spinlock.unlock.before_wake", "spinlock.lock.announced"},
    {"rwmutex", rwmutex_open, rwmutex_wait, rwmutex_release, "rwmutex.unlock.opened", "rwmutex.rlock.announced"},
    {"rwspinlock", rwspinlock_open, rwspinlock_wait, rwspinlock_release, "spinlock.unlock.before_wake", "spinlock.lock.announced"},
};
static const struct kind *kind;
static int want;

static void *wait_here(void *arg)
{
    (void)arg;
    CHECK(kind->wait(), want);
    shmi_add32(&ended, 1);
    return NULL;
}
static pthread_t start(void *(*f)(void *))
{
    pthread_attr_t attr;
    pthread_t t;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 256 << 10);
    CHECK(pthread_create(&t, &attr, f, NULL), 0);
    return t;
}
/* Waits until n threads are in the crowd. */
static void gather(uint32_t n)
{
    while (shmi_ld32(&arena->in_crowd) < n)
        shmi_nap(1000000);
}
/* Waits until the watcher has checked the object of each thread of the crowd n times. */
static void look(uint32_t n)
{
    uint32_t looks = shmi_ld32(&arena->looks);
    while (shmi_ld32(&arena->looks) - looks < 2 * n * THREADS)
        shmi_nap(1000000);
}

static void seldom(pthread_t *t)
{
    uint32_t before;
    gather(THREADS);
    before = shmi_ld32(&passes);
    look(10); /* without a crowd, each thread would have slept ten times and more */
    before = shmi_ld32(&passes) - before;
    if (before > 2 * THREADS) {
        fprintf(stderr, "%u threads slept %u times\n", (unsigned)THREADS, (unsigned)before);
        _exit(1);
    }
    (void)t;
    _exit(0);
}

static void *release(void *arg)
{
    (void)arg;
    releaser = pthread_self();
    shmi_st32(&released, 1);
    kind->release();
    fprintf(stderr, "the release does not come to point %s\n", stop_at);
    _exit(1);
}
static void stop(pthread_t *t)
{
    int64_t began;
    (void)t;
    gather(THREADS);
    if (kind->release == mutex_release) /* only a waiter that was woken in vain asks for a reservation */
        while (shmi_ld32(&mutex.impl->w->starving) == 0) {
            shmi_wake(&mutex.impl->w->wake, 1);
            shmi_nap(1000000);
        }
    look(1); /* each thread has just begun to sleep, and the watcher has just checked */
    start(release);
    while (sem_wait(&stopped) != 0) {
    }
    began = shmi_now();
    while (shmi_ld32(&ended) == 0) {
        shmi_nap(1000000);
        if (shmi_now() - began > SOON) {
            fprintf(stderr, "nobody has found out that the wake is owed\n");
            _exit(1);
        }
    }
    _exit(0);
}

static void close_it(pthread_t *t)
{
    int64_t began;
    int i;
    gather(THREADS);
    began = shmi_now();
    CHECK(shmsync_arena_close(arena), 0);
    CHECK(shmi_now() - began < SOON, 1);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(t[i], NULL), 0);
    CHECK(ended, THREADS);
}

static void *take_registry(void *arg)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)rwmutex.impl;
    (void)arg;
    CHECK(pthread_mutex_lock(&m->registry), 0);
    sem_post(&stopped);
    for (;;)
        sem_wait(&never);
}
static void busy(pthread_t *t)
{
    shmsync_event other;
    (void)t;
    gather(THREADS);
    CHECK(shmsync_event_open(arena, "other", NULL, &other), 0);
    start(take_registry);
    while (sem_wait(&stopped) != 0) {
    }
    look(1);
    CHECK(shmsync_event_close(&other), 0);
    _exit(0);
}

static void *write_it(void *arg)
{
    (void)arg;
    CHECK(shmsync_rwmutex_lock(&rwmutex), 0);
    return NULL;
}
/* A process opens the gate because the writer did not run for a while, and is then stopped before it wakes the writer. A
 * reader is in all the time. */
static void opened(pthread_t *t)
{
    struct shmi_rwmutex *m;
    uint32_t closed;
    int64_t began;
    (void)t;
    CHECK(shmsync_rwmutex_open(arena, "rwmutex", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_rdlock(&rwmutex), 0);
    m = (struct shmi_rwmutex *)rwmutex.impl;
    start(write_it);
    gather(THREADS + 1);
    look(1); /* the writer has just begun to sleep */
    closed = shmi_ld32(m->gate);
    CHECK(closed, shmi_rw_closed_by_us(m));
    CHECK(shmi_cas32(m->gate, closed, 0), 1);
    began = shmi_now();
    while (shmi_ld32(m->gate) != closed) {
        shmi_nap(1000000);
        if (shmi_now() - began > SOON) {
            fprintf(stderr, "the writer has not found out that its gate is open\n");
            _exit(1);
        }
    }
    _exit(0);
}

static void *read_it(void *arg)
{
    (void)arg;
    CHECK(shmsync_rwspinlock_rdlock(&rwspinlock), 0);
    return NULL;
}
/* A process takes back the announcement of the readers and is stopped before it wakes them, and another process has the
 * lock at each check. The reader sleeps longer than the scene lasts. */
static void gate(pthread_t *t)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)rwspinlock.impl;
    int i;
    (void)t;
    gather(THREADS);
    start(read_it);
    gather(THREADS + 1);
    for (i = 0; i < SHMI_CROWD_CHUNK; i++)
        start(wait_here); /* the watcher comes to the last of them before it comes to the reader */
    gather(THREADS + 1 + SHMI_CROWD_CHUNK);
    look(1); /* the reader has just begun to sleep */
    CHECK(shmi_wake_word_announced(&l->gate), 1);
    (void)shmi_wake_word_bump(&l->gate);
    look(4);
    CHECK(shmi_wake_word_announced(&l->gate), 1);
    _exit(0);
}

/* Each thread waits in vain for an object of its own, for slightly longer than it takes to join the crowd, and
 * closes the object. */
static void *come_and_go(void *arg)
{
    shmsync_event e;
    struct timespec until;
    int i;
    (void)arg;
    for (i = 0; i < 10; i++) {
        CHECK(shmsync_event_open(arena, NULL, NULL, &e), 0);
        until = shmi_timespec(shmi_now() + 180000000 + 1000000 * (int64_t)(shmi_add32(&passes, 1) % 64));
        CHECK(shmsync_event_timedwait(&e, &until), ETIMEDOUT);
        CHECK(shmsync_event_close(&e), 0);
    }
    return NULL;
}
static void churn(void)
{
    pthread_t t[64];
    int i;
    for (i = 0; i < 64; i++)
        t[i] = start(come_and_go);
    for (i = 0; i < 64; i++)
        CHECK(pthread_join(t[i], NULL), 0);
    CHECK(shmi_ld32(&arena->in_crowd), 0);
    CHECK(shmi_ld32(&arena->looks) != 0, 1);
    CHECK(shmsync_arena_close(arena), 0);
}

int main(int argc, char **argv)
{
    const size_t count = sizeof kinds / sizeof *kinds;
    static pthread_t t[THREADS];
    size_t i;
    int k;
    if (argc == 2) {
        for (i = 0; i < count; i++)
            puts(kinds[i].name);
        return 0;
    }
    if (argc != 4)
        return 2;
    alarm(120);
    sem_init(&stopped, 0, 0);
    sem_init(&never, 0, 0);
    CHECK(shmsync_arena_open(argv[3], NULL, &arena), 0);
    if ((arena->caps & SHMI_capWaitV) == 0)
        return 77; /* each thread makes its own checks */
    if (strcmp(argv[1], "churn") == 0) {
        churn();
        return 0;
    }
    for (i = 0; i < count; i++)
        if (strcmp(argv[2], kinds[i].name) == 0)
            kind = &kinds[i];
    if (kind == NULL)
        return 2;
    want = strcmp(argv[1], "close") == 0 ? EBADF : 0;
    counted = kind->before_sleep;
    stop_at = kind->before_wake;
    kind->open();
    for (k = 0; k < THREADS; k++) {
        t[k] = start(wait_here);
        if (want == 0) /* nobody joins it, and ThreadSanitizer reports a thread that has ended and could be joined */
            CHECK(pthread_detach(t[k]), 0);
    }
    if (strcmp(argv[1], "seldom") == 0)
        seldom(t);
    else if (strcmp(argv[1], "stopped") == 0)
        stop(t);
    else if (strcmp(argv[1], "close") == 0)
        close_it(t);
    else if (strcmp(argv[1], "busy") == 0)
        busy(t);
    else if (strcmp(argv[1], "gate") == 0)
        gate(t);
    else if (strcmp(argv[1], "opened") == 0)
        opened(t);
    else
        return 2;
    return 0;
}
