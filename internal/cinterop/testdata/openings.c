/* Tests the moment at which an opening ends: openings ARENA VERB. A process closes the last handle of an object while the
 * death watcher checks the object, or while calls are under way. SIGALRM ends a test that hangs.
 *
 *	check     the last call leaves while the watcher rolls the mutex back: the opening ends after the check
 *	begins    the watcher begins a check while a thread closes: the opening ends after the check
 *	reset     a reset of a future begins after the opening has ended: it fails, and the arena can be closed */
#define _GNU_SOURCE
#include <pthread.h>
#include <unistd.h>
void at_point(const char *name);
static int at_lock(pthread_mutex_t *m);
static void at_call(long number);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define pthread_mutex_lock(m) at_lock(m)
#define FIRST(number, ...) number
#define syscall(...) (at_call(FIRST(__VA_ARGS__, 0)), syscall(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef pthread_mutex_lock
#undef syscall

#include "check.h"

/* ID of a participant that never existed, so that it counts as gone. */
enum { GONE = 1 << 11 | 9 };

static shmsync_arena *arena;
static shmsync_mutex mutex;
static struct shmi_mutex *x;
static pthread_t closer;
static int closing, waits, ended; /* atomic */

static void end_check(void) { shmi_add32(&arena->looks, 1); }
static void begin_check(void) { shmi_add32(&arena->looks, 1); }

/* A thread whose call or close may end the opening has set closing. It sets ended when it returns. */
static int is_closer(void) { return __atomic_load_n(&closing, __ATOMIC_SEQ_CST) && pthread_equal(pthread_self(), closer); }
static int at_lock(pthread_mutex_t *m)
{
    if (arena != NULL && m == &arena->handles_of && is_closer() && (shmi_ld32(&arena->looks) & 1) == 0)
        begin_check();
    return pthread_mutex_lock(m);
}
static void at_call(long number)
{
    if (number == SYS_nanosleep && is_closer())
        __atomic_store_n(&waits, 1, __ATOMIC_SEQ_CST);
}
static void start(void *(*f)(void *))
{
    static pthread_mutex_t starts = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&starts);
    CHECK(pthread_create(&closer, NULL, f, &starts), 0);
    pthread_mutex_unlock(&starts);
}
static void started(void *starts)
{
    pthread_mutex_lock((pthread_mutex_t *)starts); /* closer is set */
    pthread_mutex_unlock((pthread_mutex_t *)starts);
    __atomic_store_n(&closing, 1, __ATOMIC_SEQ_CST);
}

static void open_mutex(void)
{
    shmsync_mutex_options opts;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_mutex_open(arena, "x", &opts, &mutex), 0);
    x = mutex.impl;
}

/* ---- The verb check ---- */

static int entered, may_leave, met; /* entered and may_leave: atomic */
static void *calls(void *arg)
{
    CHECK(shmi_enter_for(x, arena, "mutex.lock"), 0);
    __atomic_store_n(&entered, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&may_leave, __ATOMIC_SEQ_CST))
        sched_yield();
    started(arg);
    shmi_exit_for(x, arena);
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
void at_point(const char *name)
{
    if (x == NULL || strcmp(name, "tx.rollback.taken") != 0 || met++ != 0)
        return;
    __atomic_store_n(&may_leave, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&waits, __ATOMIC_SEQ_CST) && !__atomic_load_n(&ended, __ATOMIC_SEQ_CST))
        sched_yield();
}
static void check_(void)
{
    open_mutex();
    start(calls);
    while (!__atomic_load_n(&entered, __ATOMIC_SEQ_CST))
        sched_yield();
    CHECK(shmsync_mutex_close(&mutex), 0);
    shmi_st32(x->own, GONE);
    begin_check();
    shmi_mutex_check(x);
    CHECK(met, 1);
    CHECK(shmsync_delete(arena, "x"), EBUSY);
    end_check();
    CHECK(pthread_join(closer, NULL), 0);
    CHECK(shmsync_delete(arena, "x"), 0);
}

/* ---- The verb begins ---- */

static void *closes(void *arg)
{
    started(arg);
    CHECK(shmsync_mutex_close(&mutex), 0);
    __atomic_store_n(&ended, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
static void begins(void)
{
    open_mutex();
    start(closes);
    while (!__atomic_load_n(&waits, __ATOMIC_SEQ_CST) && !__atomic_load_n(&ended, __ATOMIC_SEQ_CST))
        sched_yield();
    CHECK(__atomic_load_n(&ended, __ATOMIC_SEQ_CST), 0);
    CHECK(shmsync_delete(arena, "x"), EBUSY);
    end_check();
    CHECK(pthread_join(closer, NULL), 0);
    CHECK(shmsync_delete(arena, "x"), 0);
}

/* ---- The verb reset ---- */

static void reset(void)
{
    shmsync_future future;
    struct shmi_future *f;
    uint32_t calls = shmi_ld32(&arena->calls);
    CHECK(shmsync_future_open(arena, "x", NULL, &future), 0);
    f = future.impl;
    CHECK(shmsync_future_close(&future), 0);
    CHECK(shmi_future_reset(f, 0), EBADF);
    CHECK(shmi_ld32(&arena->calls), calls);
    CHECK(shmsync_delete(arena, "x"), 0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(30);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    if (strcmp(argv[2], "check") == 0)
        check_();
    else if (strcmp(argv[2], "begins") == 0)
        begins();
    else if (strcmp(argv[2], "reset") == 0)
        reset();
    else
        return 2;
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
