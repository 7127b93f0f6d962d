/* Tests a handle that is closed while another thread of the process waits through it: handles ARENA VERB makes the object
 * "x" and a wait, and closes the handle. Then it says so and waits for a line. It opens the object again, ends the wait,
 * closes, says so, and waits for another line. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>

#include "check.h"

static const char *arena_name;
static shmsync_arena *arena;
static uint64_t item, phase;
static void *copy;
static shmsync_hold held;

static void nothing(void *arg) { (void)arg; }

/* For each kind: open makes or finds x, hold makes the wait necessary, wait is the call, and release ends it. after gives
 * back what the wait got. */
#define WAIT(name, kind, open, hold, wait, release, after)                                              \
    static shmsync_##kind name##_x;                                                                     \
    static void name##_begin(void)                                                                      \
    {                                                                                                   \
        shmsync_##kind *x = &name##_x;                                                                  \
        CHECK(open, 0);                                                                                 \
        CHECK(hold, 0);                                                                                 \
    }                                                                                                   \
    static void *name##_waits(void *arg)                                                                \
    {                                                                                                   \
        shmsync_##kind mine = name##_x, *x = &mine;                                                     \
        (void)arg;                                                                                      \
        CHECK(wait, 0);                                                                                 \
        return NULL;                                                                                    \
    }                                                                                                   \
    static void name##_close(void)                                                                      \
    {                                                                                                   \
        shmsync_##kind closed = name##_x;                                                               \
        CHECK(shmsync_##kind##_close(&name##_x), 0);                                                    \
        CHECK(shmsync_##kind##_close(&closed), EBADF);                                                  \
    }                                                                                                   \
    static void name##_release(void)                                                                    \
    {                                                                                                   \
        shmsync_##kind *x = &name##_x;                                                                  \
        CHECK(open, 0);                                                                                 \
        CHECK(release, 0);                                                                              \
    }                                                                                                   \
    static void name##_after(void)                                                                      \
    {                                                                                                   \
        shmsync_##kind *x = &name##_x;                                                                  \
        CHECK(after, 0);                                                                                \
        CHECK(shmsync_##kind##_close(x), 0);                                                            \
    }
#define PLAIN(kind, hold, wait, release, after) WAIT(kind, kind, shmsync_##kind##_open(arena, "x", NULL, x), hold, wait, release, after)

PLAIN(mutex, shmsync_mutex_lock(x), shmsync_mutex_lock(x), shmsync_mutex_unlock(x), shmsync_mutex_unlock(x))
PLAIN(fairmutex, shmsync_fairmutex_lock(x), shmsync_fairmutex_lock(x), shmsync_fairmutex_unlock(x), shmsync_fairmutex_unlock(x))
PLAIN(spinlock, shmsync_spinlock_lock(x), shmsync_spinlock_lock(x), shmsync_spinlock_unlock(x), shmsync_spinlock_unlock(x))
PLAIN(rwspinlock, shmsync_rwspinlock_rdlock(x), shmsync_rwspinlock_lock(x), shmsync_rwspinlock_rdunlock(x), shmsync_rwspinlock_unlock(x))
PLAIN(rwmutex, shmsync_rwmutex_lock(x), shmsync_rwmutex_rdlock(x), shmsync_rwmutex_unlock(x), shmsync_rwmutex_rdunlock(x))
WAIT(rwmutex_write, rwmutex, shmsync_rwmutex_open(arena, "x", NULL, x), shmsync_rwmutex_rdlock(x), shmsync_rwmutex_lock(x), shmsync_rwmutex_rdunlock(x), shmsync_rwmutex_unlock(x))
WAIT(rwmutex_upgradable, rwmutex, shmsync_rwmutex_open(arena, "x", NULL, x), shmsync_rwmutex_lock(x), shmsync_rwmutex_lock_upgradable(x), shmsync_rwmutex_unlock(x), shmsync_rwmutex_unlock_upgradable(x))
static int lock_and_unlock(shmsync_multilock *x)
{
    shmsync_hold h;
    int err = shmsync_multilock_lock(x, 7, &h);
    return err != 0 ? err : shmsync_multilock_unlock(&h);
}
PLAIN(multilock, shmsync_multilock_lock(x, 7, &held), lock_and_unlock(x), shmsync_multilock_unlock(&held), 0)
PLAIN(event, 0, shmsync_event_wait(x), shmsync_event_set(x), 0)
WAIT(event_auto, event, shmsync_event_open(arena, "x", &(shmsync_event_options){.auto_reset = 1}, x), 0, shmsync_event_wait(x), shmsync_event_set(x), 0)
static int any_of(shmsync_event *x)
{
    shmsync_awaitable a = {.kind = SHMSYNC_AWAIT_EVENT, .event = x};
    size_t index;
    return shmsync_wait_any(&a, 1, NULL, &index);
}
static int all_of(shmsync_event *x)
{
    shmsync_awaitable a = {.kind = SHMSYNC_AWAIT_EVENT, .event = x};
    return shmsync_wait_all(&a, 1, NULL);
}
WAIT(any, event, shmsync_event_open(arena, "x", NULL, x), 0, any_of(x), shmsync_event_set(x), 0)
WAIT(all, event, shmsync_event_open(arena, "x", NULL, x), 0, all_of(x), shmsync_event_set(x), 0)
/* Waits for a future through the very handle that is closed. Another handle ends the wait. */
#define AWAIT_FUTURE(name, wait)                                                \
    static shmsync_future name##_x, name##_other;                               \
    static void name##_begin(void) { CHECK(shmsync_future_open(arena, "x", NULL, &name##_x), 0); } \
    static void *name##_waits(void *arg)                                        \
    {                                                                           \
        shmsync_awaitable a = {.kind = SHMSYNC_AWAIT_FUTURE, .future = &name##_x}; \
        size_t index;                                                           \
        (void)index;                                                            \
        CHECK(wait, 0);                                                         \
        return arg;                                                             \
    }                                                                           \
    static void name##_close(void) { CHECK(shmsync_future_close(&name##_x), 0); } \
    static void name##_release(void)                                            \
    {                                                                           \
        CHECK(shmsync_future_open(arena, "x", NULL, &name##_other), 0);         \
        CHECK(shmsync_future_set(&name##_other, 0), 0);                         \
    }                                                                           \
    static void name##_after(void) { CHECK(shmsync_future_close(&name##_other), 0); }
AWAIT_FUTURE(any_future, shmsync_wait_any(&a, 1, NULL, &index))
AWAIT_FUTURE(all_future, shmsync_wait_all(&a, 1, NULL))
PLAIN(futex, 0, shmsync_futex_wait(x, 1), shmsync_futex_post(x), 0)
PLAIN(sequencer, 0, shmsync_sequencer_wait(x, 1), shmsync_sequencer_increment(x, NULL), 0)
PLAIN(future, 0, shmsync_future_wait(x, NULL), shmsync_future_set(x, 0), 0)
PLAIN(waitgroup, shmsync_waitgroup_add(x, 1), shmsync_waitgroup_wait(x), shmsync_waitgroup_done(x), 0)
PLAIN(signalwaker, 0, shmsync_signalwaker_acquire(x), shmsync_signalwaker_release(x, 1), 0)
WAIT(latch, latch, shmsync_latch_open(arena, "x", 1, NULL, x), 0, shmsync_latch_wait(x), shmsync_latch_count_down(x, 1), 0)
WAIT(barrier, barrier, shmsync_barrier_open(arena, "x", 2, NULL, x), shmsync_barrier_arrive(x, 1, &phase), shmsync_barrier_wait(x, phase), shmsync_barrier_arrive(x, 1, NULL), 0)
WAIT(semaphore, semaphore, shmsync_semaphore_open(arena, "x", 1, NULL, x), shmsync_semaphore_acquire(x, 1), shmsync_semaphore_acquire(x, 1), shmsync_semaphore_release(x, 1), shmsync_semaphore_release(x, 1))
WAIT(queue, queue, shmsync_queue_open(arena, "x", 8, &(shmsync_queue_options){.capacity = 2}, x), 0, shmsync_queue_get(x, &item), shmsync_queue_put(x, &phase), 0)
WAIT(synchronized, synchronized, shmsync_synchronized_open(arena, "x", 8, NULL, x), shmsync_synchronized_begin(x, &copy), shmsync_synchronized_begin(x, &copy), shmsync_synchronized_abort(x), shmsync_synchronized_abort(x))
static int unlocked(void *arg)
{
    (void)arg;
    return 0;
}
PLAIN(cond, 0, shmsync_cond_wait_with(x, unlocked, unlocked, NULL, NULL), shmsync_cond_signal(x), 0)

/* ---- A function that a call runs ---- */

static int running, finish; /* atomic */
static void run(void)
{
    __atomic_store_n(&running, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&finish, __ATOMIC_SEQ_CST))
        sched_yield();
}
static int repair(void *arg)
{
    (void)arg;
    run();
    return 0;
}
static int go_on(void)
{
    __atomic_store_n(&finish, 1, __ATOMIC_SEQ_CST);
    return 0;
}
/* RECOVER is a recovery whose repair is running when the handle is closed. A child of this process has died with the lock
 * held. Before the repair returns, the memory of handles that were closed is used for handles of another object. */
#define RECOVER(kind, lock, wait, use)                                         \
    static int kind##_dies(void)                                               \
    {                                                                          \
        pid_t child = fork();                                                  \
        if (child == 0) {                                                      \
            shmsync_##kind own, *x = &own;                                     \
            CHECK(shmsync_arena_open(arena_name, NULL, &arena), 0);            \
            CHECK(shmsync_##kind##_open(arena, "x", NULL, x), 0);              \
            CHECK(lock, 0);                                                    \
            _exit(0);                                                          \
        }                                                                      \
        CHECK(waitpid(child, NULL, 0), child);                                 \
        return 0;                                                              \
    }                                                                          \
    static int kind##_others(void)                                             \
    {                                                                          \
        int i;                                                                 \
        for (i = 0; i < 3 * SHMI_SPARES; i++) {                                \
            shmsync_##kind y, *x = &y;                                         \
            CHECK(shmsync_##kind##_open(arena, "y", NULL, x), 0);              \
            CHECK(use, 0);                                                     \
            CHECK(shmsync_##kind##_close(x), 0);                               \
        }                                                                      \
        return go_on();                                                        \
    }                                                                          \
    WAIT(kind##_recover, kind, shmsync_##kind##_open(arena, "x", NULL, x), kind##_dies(), wait, kind##_others(), use)
#define RECOVER_LOCK(kind)                                                                                                  \
    static int kind##_try(shmsync_##kind *x)                                                                                \
    {                                                                                                                       \
        int err = shmsync_##kind##_trylock(x);                                                                              \
        return err != 0 ? err : shmsync_##kind##_unlock(x);                                                                 \
    }                                                                                                                       \
    RECOVER(kind, shmsync_##kind##_lock(x), shmsync_##kind##_recover(x, repair, NULL), kind##_try(x))
RECOVER_LOCK(mutex)
RECOVER_LOCK(rwmutex)
RECOVER_LOCK(spinlock)
RECOVER_LOCK(rwspinlock)
RECOVER_LOCK(fairmutex)
RECOVER(multilock, shmsync_multilock_lock(x, 7, &held), shmsync_multilock_recover(x, 7, repair, NULL), lock_and_unlock(x))

/* The function closes the handle of its own call. */
static shmsync_once once_x;
static void once_begin(void) { CHECK(shmsync_once_open(arena, "x", NULL, &once_x), 0); }
static void close_once(void *arg)
{
    (void)arg;
    CHECK(shmsync_once_close(&once_x), 0);
    run();
}
static void *once_waits(void *arg)
{
    shmsync_once mine = once_x;
    CHECK(shmsync_once_do(&mine, close_once, NULL), 0);
    return arg;
}
static void once_close(void)
{
    while (!__atomic_load_n(&running, __ATOMIC_SEQ_CST))
        sched_yield();
}
static void once_release(void)
{
    CHECK(shmsync_once_open(arena, "x", NULL, &once_x), 0);
    go_on();
}
static void once_after(void)
{
    CHECK(shmsync_once_done(&once_x), 1);
    CHECK(shmsync_once_do(&once_x, nothing, NULL), 0);
    CHECK(shmsync_once_close(&once_x), 0);
}

static void said(void)
{
    printf("ready\n");
    fflush(stdout);
    getchar();
}
int main(int argc, char **argv)
{
#define VERB(name) {#name, name##_begin, name##_waits, name##_close, name##_release, name##_after}
    static const struct {
        const char *name;
        void (*begin)(void);
        void *(*waits)(void *);
        void (*close)(void), (*release)(void), (*after)(void);
    } verbs[] = {
        VERB(mutex), VERB(fairmutex), VERB(spinlock), VERB(rwspinlock), VERB(rwmutex), VERB(rwmutex_write), VERB(rwmutex_upgradable),
        VERB(multilock), VERB(event), VERB(event_auto), VERB(any), VERB(all), VERB(any_future), VERB(all_future), VERB(futex), VERB(sequencer), VERB(future), VERB(waitgroup),
        VERB(signalwaker), VERB(latch), VERB(barrier), VERB(semaphore), VERB(queue), VERB(synchronized), VERB(cond), VERB(once),
        VERB(mutex_recover), VERB(rwmutex_recover), VERB(spinlock_recover), VERB(rwspinlock_recover), VERB(fairmutex_recover), VERB(multilock_recover),
    };
    pthread_t thread;
    size_t i;
    if (argc != 3)
        return 2;
    alarm(60);
    arena_name = argv[1];
    CHECK(shmsync_arena_open(arena_name, NULL, &arena), 0);
    for (i = 0; i < sizeof verbs / sizeof *verbs && strcmp(argv[2], verbs[i].name) != 0; i++) {
    }
    if (i == sizeof verbs / sizeof *verbs)
        return 2;
    verbs[i].begin();
    CHECK(pthread_create(&thread, NULL, verbs[i].waits, NULL), 0);
    while (shmi_ld32(&arena->announce_map) == 0 && !__atomic_load_n(&running, __ATOMIC_SEQ_CST)) /* no thread sleeps */
        sched_yield();
    verbs[i].close();
    said();
    verbs[i].release();
    CHECK(pthread_join(thread, NULL), 0);
    verbs[i].after();
    said();
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
