/* Tests a wait whose last handle is closed, and whose opening ends with the call: endsbeside ARENA VERB. A child has
 * what a thread of the parent waits for. The parent closes the object while the thread waits, and the child ends the
 * wait. Then the child checks that everything that the thread had acquired was given back. SIGALRM ends a test that
 * hangs. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>

#include "check.h"

static shmsync_arena *arena;
static shmsync_hold held[2];
static size_t n_held;
static void *copy;
static uint64_t item = 7, items[4] = {1, 2, 3, 4};
static size_t done;
static shmsync_lease lease;
static shmsync_tx tx;

static const struct timespec *soon(void)
{
    static struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += 5;
    return &ts;
}

/* For each verb: open makes or finds x in both processes. The child calls hold before the thread calls wait, and release
 * when the parent has closed x. wait returns result. When the thread has ended, the child calls after. */
#define WAIT(name, kind, open, hold, wait, result, release, after)  \
    static shmsync_##kind name##_x;                                 \
    static void name##_open(void)                                   \
    {                                                               \
        shmsync_##kind *x = &name##_x;                              \
        CHECK(open, 0);                                             \
    }                                                               \
    static void name##_hold(void)                                   \
    {                                                               \
        shmsync_##kind *x = &name##_x;                              \
        (void)x;                                                    \
        CHECK(hold, 0);                                             \
    }                                                               \
    static void *name##_waits(void *arg)                            \
    {                                                               \
        shmsync_##kind mine = *(shmsync_##kind *)arg, *x = &mine;   \
        CHECK(wait, result);                                        \
        return NULL;                                                \
    }                                                               \
    static void name##_close(void) { CHECK(shmsync_##kind##_close(&name##_x), 0); } \
    static void name##_release(void)                                \
    {                                                               \
        shmsync_##kind *x = &name##_x;                              \
        (void)x;                                                    \
        CHECK(release, 0);                                          \
    }                                                               \
    static void name##_after(void)                                  \
    {                                                               \
        shmsync_##kind *x = &name##_x;                              \
        CHECK(after, 0);                                            \
    }

static int store_again(shmsync_synchronized *x)
{
    uint64_t v;
    int err = shmsync_synchronized_timedbegin(x, &copy, soon());
    if (err == 0)
        err = shmsync_synchronized_abort(x);
    return err != 0 ? err : shmsync_synchronized_load(x, &v) != 0 || v != 7;
}
WAIT(store, synchronized, shmsync_synchronized_open(arena, "x", 8, NULL, x), shmsync_synchronized_begin(x, &copy), shmsync_synchronized_store(x, &item), 0,
     shmsync_synchronized_abort(x), store_again(x))
static int change_again(shmsync_synchronized *x)
{
    int err = shmsync_synchronized_timedbegin(x, &copy, soon());
    return err != 0 ? err : shmsync_synchronized_abort(x);
}
WAIT(synchronized_begin, synchronized, shmsync_synchronized_open(arena, "x", 8, NULL, x), shmsync_synchronized_begin(x, &copy),
     shmsync_synchronized_begin(x, &copy), EBADF, shmsync_synchronized_abort(x), change_again(x))

/* The child has the write hold, and becomes a reader. The thread gets the lock only when the child has stopped reading. */
static int downgrade(shmsync_rwspinlock *x)
{
    int64_t until = shmi_now() + INT64_C(5000000000);
    int err = shmsync_rwspinlock_downgrade(x);
    while (err == 0 && !shmi_wake_word_announced(&x->impl->drained))
        if (shmi_now() > until)
            err = ETIMEDOUT;
    return err != 0 ? err : shmsync_rwspinlock_rdunlock(x);
}
static int lock_and_unlock(shmsync_rwspinlock *x)
{
    int err = shmsync_rwspinlock_lock(x);
    shmsync_rwspinlock again;
    if (err == 0)
        err = shmsync_rwspinlock_open(arena, "x", NULL, &again);
    if (err == 0)
        err = shmsync_rwspinlock_unlock(&again);
    return err != 0 ? err : shmsync_rwspinlock_close(&again);
}
static int write_again(shmsync_rwspinlock *x)
{
    int err = shmsync_rwspinlock_timedlock(x, soon());
    return err != 0 ? err : shmsync_rwspinlock_unlock(x);
}
WAIT(rwspinlock, rwspinlock, shmsync_rwspinlock_open(arena, "x", NULL, x), shmsync_rwspinlock_lock(x), lock_and_unlock(x), 0, downgrade(x), write_again(x))

/* The queue is full, and then the child gets one item after the other. */
static int fill(shmsync_queue *x)
{
    int err = shmsync_queue_put(x, &item);
    return err != 0 ? err : shmsync_queue_put(x, &item);
}
static int drain(shmsync_queue *x)
{
    uint64_t got;
    int i, err = 0;
    for (i = 0; err == 0 && i < 6; i++) {
        int64_t until = shmi_now() + INT64_C(5000000000);
        while (i < 5 && shmsync_queue_len(x) < 2) /* the thread has not put the next item */
            if (shmi_now() > until)
                return ETIMEDOUT;
        err = shmsync_queue_timedget(x, &got, soon());
    }
    return err;
}
WAIT(put_batch, queue, shmsync_queue_open(arena, "x", 8, &(shmsync_queue_options){.capacity = 2}, x), fill(x),
     shmsync_queue_put_batch(x, items, 4, NULL, &done) != 0 || done != 4, 0, drain(x), shmsync_queue_len(x))

/* The item is there, and no attempt counts. */
static int lease_again(shmsync_queue *x)
{
    uint64_t got;
    int err = shmsync_queue_timedlease(x, &got, &lease, soon());
    if (err == 0 && lease.attempts == 0 && got == 7)
        return shmsync_lease_ack(&lease);
    return err != 0 ? err : 1;
}
WAIT(lease, queue, shmsync_queue_open(arena, "x", 8, &(shmsync_queue_options){.capacity = 2}, x), 0, shmsync_queue_lease(x, items, &lease), EBADF,
     shmsync_queue_put(x, &item), lease_again(x))

static const uint64_t keys[2] = {3, 7};
static int lock_all(shmsync_multilock *x)
{
    int err = shmsync_multilock_timedlockall(x, keys, 2, held, &n_held, soon());
    return err != 0 ? err : shmsync_multilock_unlockall(held, n_held);
}
WAIT(multilock, multilock, shmsync_multilock_open(arena, "x", NULL, x), shmsync_multilock_lock(x, 7, held), shmsync_multilock_lock(x, 7, held), EBADF,
     shmsync_multilock_unlock(held), lock_all(x))
/* The thread waits for key 3, and gets key 7 at once. */
WAIT(lockall, multilock, shmsync_multilock_open(arena, "x", NULL, x), shmsync_multilock_lock(x, 3, held), shmsync_multilock_lockall(x, keys, 2, held, &n_held), EBADF,
     shmsync_multilock_unlock(held), lock_all(x))

static int begin_again(shmsync_mutex *x)
{
    int err = shmsync_mutex_timedbegin(x, &tx, soon());
    return err != 0 ? err : shmsync_tx_abort(&tx);
}
#define MUTEX shmsync_mutex_open(arena, "x", &(shmsync_mutex_options){.policy = SHMSYNC_POLICY_ROLLBACK}, x)
WAIT(mutex_begin, mutex, MUTEX, shmsync_mutex_lock(x), shmsync_mutex_begin(x, &tx), EBADF, shmsync_mutex_unlock(x), begin_again(x))
WAIT(mutex_timedbegin, mutex, MUTEX, shmsync_mutex_lock(x), shmsync_mutex_timedbegin(x, &tx, soon()), EBADF, shmsync_mutex_unlock(x), begin_again(x))
static int write_tx_again(shmsync_rwmutex *x)
{
    int err = shmsync_rwmutex_timedbegin(x, &tx, soon());
    return err != 0 ? err : shmsync_tx_abort(&tx);
}
#define RWMUTEX shmsync_rwmutex_open(arena, "x", &(shmsync_rwmutex_options){.policy = SHMSYNC_POLICY_ROLLBACK}, x)
WAIT(rwmutex_begin, rwmutex, RWMUTEX, shmsync_rwmutex_lock(x), shmsync_rwmutex_begin(x, &tx), EBADF, shmsync_rwmutex_unlock(x), write_tx_again(x))
WAIT(rwmutex_timedbegin, rwmutex, RWMUTEX, shmsync_rwmutex_rdlock(x), shmsync_rwmutex_timedbegin(x, &tx, soon()), EBADF, shmsync_rwmutex_rdunlock(x), write_tx_again(x))

typedef struct verb {
    const char *name;
    void *x;
    void (*open)(void), (*hold)(void);
    void *(*waits)(void *);
    void (*close)(void), (*release)(void), (*after)(void);
} verb;

static void say(int to) { CHECK(write(to, "x", 1), 1); }
static void hear(int from)
{
    char c;
    CHECK(read(from, &c, 1), 1);
}
static int child(const verb *v, const char *name, int from, int to)
{
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    v->open();
    v->hold();
    say(to);
    hear(from);
    v->release();
    say(to);
    hear(from);
    v->after();
    v->close();
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
int main(int argc, char **argv)
{
#define VERB(name) {#name, &name##_x, name##_open, name##_hold, name##_waits, name##_close, name##_release, name##_after}
    static const verb verbs[] = {
        VERB(store), VERB(synchronized_begin), VERB(rwspinlock), VERB(put_batch), VERB(lease), VERB(multilock), VERB(lockall),
        VERB(mutex_begin), VERB(mutex_timedbegin), VERB(rwmutex_begin), VERB(rwmutex_timedbegin),
    };
    int down[2], up[2], status;
    pthread_t thread;
    pid_t pid;
    size_t i;
    if (argc != 3)
        return 2;
    alarm(20);
    for (i = 0; i < sizeof verbs / sizeof *verbs && strcmp(argv[2], verbs[i].name) != 0; i++) {
    }
    if (i == sizeof verbs / sizeof *verbs)
        return 2;
    CHECK(pipe(down), 0);
    CHECK(pipe(up), 0);
    pid = fork();
    if (pid == 0) {
        alarm(20);
        close(down[1]); /* the child ends with the parent */
        return child(&verbs[i], argv[1], down[0], up[1]);
    }
    close(up[1]);
    hear(up[0]);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    verbs[i].open();
    CHECK(pthread_create(&thread, NULL, verbs[i].waits, verbs[i].x), 0);
    while (shmi_ld32(&arena->announce_map) == 0) /* the thread does not sleep */
        sched_yield();
    verbs[i].close();
    say(down[1]);
    CHECK(pthread_join(thread, NULL), 0);
    hear(up[0]);
    say(down[1]);
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    CHECK(shmsync_delete(arena, "x"), 0);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
