/* cond ARENA SCENE: what a Cond does when the functions that unlock and lock fail, and when a wait times out that a
 * broadcast has covered. Exit status 0 if it does what it should. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static shmsync_arena *arena;
static shmsync_cond cond;

/* A waiter is a thread with a lock of its own. The lock consists only of the functions unlock and lock. */
struct waiter {
    pthread_t thread;
    int (*unlock)(void *), (*lock)(void *);
    int ms;   /* the wait times out after that; 0: never */
    int err;  /* of the wait */
    int queued, over; /* atomic */
};

static int64_t now_ms(void) { return shmi_now() / 1000000; }
static void nap(void)
{
    struct timespec ms = {0, 1000000};
    nanosleep(&ms, NULL);
}

/* A wait is queued before the lock is unlocked. */
static int queued_and_unlock(void *arg)
{
    struct waiter *w = (struct waiter *)arg;
    __atomic_store_n(&w->queued, 1, __ATOMIC_SEQ_CST);
    return w->unlock(arg);
}
static void *wait_cond(void *arg)
{
    struct waiter *w = (struct waiter *)arg;
    struct timespec ts;
    int64_t end = shmi_now() + (int64_t)w->ms * 1000000;
    ts.tv_sec = (time_t)(end / 1000000000);
    ts.tv_nsec = (long)(end % 1000000000);
    w->err = shmsync_cond_wait_with(&cond, queued_and_unlock, w->lock, w, w->ms != 0 ? &ts : NULL);
    __atomic_store_n(&w->over, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static int succeed(void *arg)
{
    (void)arg;
    return 0;
}
static int fail_eperm(void *arg)
{
    (void)arg;
    return EPERM;
}

/* Starts a wait, and returns when it is queued, or over. */
static void begin(struct waiter *w, int (*unlock)(void *), int (*lock)(void *), int ms)
{
    w->unlock = unlock;
    w->lock = lock;
    w->ms = ms;
    w->err = -1;
    w->queued = w->over = 0;
    CHECK(pthread_create(&w->thread, NULL, wait_cond, w), 0);
    while (!__atomic_load_n(&w->queued, __ATOMIC_SEQ_CST) && !__atomic_load_n(&w->over, __ATOMIC_SEQ_CST))
        nap();
}
static void ends(struct waiter *w, int want)
{
    CHECK(pthread_join(w->thread, NULL), 0);
    CHECK(w->err, want);
}
/* No wait is queued, and no woken wait of a broadcast is left. */
static void clean(void)
{
    CHECK(shmi_recorded_value(cond.impl->q.first), 0);
    CHECK(shmi_recorded_value(cond.impl->q.last), 0);
    CHECK(shmi_recorded_value(&cond.impl->w->boundary), 0);
    CHECK(shmi_recorded_value(&cond.impl->w->flying), 0);
}

/* The unlock fails: nothing waits any more. */
static void unlock_fails(void)
{
    CHECK(shmsync_cond_wait_with(&cond, fail_eperm, succeed, NULL, NULL), EPERM);
    clean();
    CHECK(shmsync_cond_signal(&cond), 0);
    clean();
}

/* The unlock fails after a signal has woken the wait: the signal passes on. */
static struct waiter behind;
static int signal_and_fail(void *arg)
{
    (void)arg;
    begin(&behind, succeed, succeed, 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    return EPERM;
}
static void unlock_fails_late(void)
{
    CHECK(shmsync_cond_wait_with(&cond, signal_and_fail, succeed, NULL, NULL), EPERM);
    ends(&behind, 0);
    clean();
}

/* The lock fails: the signal passes on, past others that cannot lock. */
static void lock_fails(void)
{
    struct waiter w[4];
    int i;
    for (i = 0; i < 4; i++)
        begin(&w[i], succeed, i < 2 ? fail_eperm : succeed, 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    for (i = 0; i < 3; i++)
        ends(&w[i], i < 2 ? EPERM : 0);
    CHECK(__atomic_load_n(&w[3].over, __ATOMIC_SEQ_CST), 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    ends(&w[3], 0);
    clean();
}

/* The lock fails, and another wait has begun since the signal: that wait does not get the signal. */
static int wait_and_fail(void *arg)
{
    (void)arg;
    begin(&behind, succeed, succeed, 0);
    return EPERM;
}
static void lock_fails_late(void)
{
    struct waiter w;
    int i;
    begin(&w, succeed, wait_and_fail, 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    ends(&w, EPERM);
    for (i = 0; i < 50; i++)
        nap();
    CHECK(__atomic_load_n(&behind.over, __ATOMIC_SEQ_CST), 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    ends(&behind, 0);
    clean();
}

/* The lock fails after a broadcast: the next wait gets its turn. */
static void lock_fails_broadcast(void)
{
    struct waiter w[8];
    int i;
    for (i = 0; i < 8; i++)
        begin(&w[i], succeed, i % 2 == 0 ? fail_eperm : succeed, 0);
    CHECK(shmsync_cond_broadcast(&cond), 0);
    for (i = 0; i < 8; i++)
        ends(&w[i], i % 2 == 0 ? EPERM : 0);
    clean();
}

/* A wait times out whose turn has not come after a broadcast: it returns 0. A wait that began later times out. */
static int may_lock; /* atomic */
static int lock_late(void *arg)
{
    (void)arg;
    while (!__atomic_load_n(&may_lock, __ATOMIC_SEQ_CST))
        nap();
    return 0;
}
static void covered_times_out(void)
{
    struct waiter first, covered, cannot, late;
    begin(&first, succeed, lock_late, 0);
    begin(&covered, succeed, succeed, 1500);
    begin(&cannot, succeed, fail_eperm, 1500);
    CHECK(shmsync_cond_broadcast(&cond), 0);
    begin(&late, succeed, succeed, 1500);
    ends(&covered, 0);
    ends(&cannot, EPERM);
    ends(&late, ETIMEDOUT);
    CHECK(shmi_recorded_value(&cond.impl->w->flying), 1);
    __atomic_store_n(&may_lock, 1, __ATOMIC_SEQ_CST);
    ends(&first, 0);
    clean();
}

/* The waiter whose turn it was cannot lock for long: the periodic checks wake the others. */
static void turn_is_late(void)
{
    struct waiter first, others[5];
    int64_t began;
    int i;
    begin(&first, succeed, lock_late, 0);
    for (i = 0; i < 5; i++)
        begin(&others[i], succeed, succeed, 0);
    began = now_ms();
    CHECK(shmsync_cond_broadcast(&cond), 0);
    for (i = 0; i < 5; i++)
        ends(&others[i], 0);
    if (now_ms() - began > 5000) {
        fprintf(stderr, "the others waited for %lld ms\n", (long long)(now_ms() - began));
        exit(1);
    }
    __atomic_store_n(&may_lock, 1, __ATOMIC_SEQ_CST);
    ends(&first, 0);
    clean();
}

/* Signals and broadcasts end the waits that they should, in order. */
static void in_order(void)
{
    struct waiter w[9];
    int i;
    for (i = 0; i < 3; i++)
        begin(&w[i], succeed, succeed, 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    ends(&w[0], 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    ends(&w[1], 0);
    for (i = 3; i < 9; i++)
        begin(&w[i], succeed, succeed, i == 5 ? 1 : 0); /* one gives up in the middle */
    ends(&w[5], ETIMEDOUT);
    CHECK(shmsync_cond_broadcast(&cond), 0);
    for (i = 2; i < 9; i++)
        if (i != 5)
            ends(&w[i], 0);
    clean();
    CHECK(shmsync_cond_broadcast(&cond), 0);
    clean();
}

static const struct {
    const char *name;
    int batch;
    void (*run)(void);
} scenes[] = {
    {"unlock fails", 0, unlock_fails},
    {"unlock fails after a signal", 0, unlock_fails_late},
    {"lock fails", 0, lock_fails},
    {"lock fails, and others came later", 0, lock_fails_late},
    {"lock fails after a broadcast", 1, lock_fails_broadcast},
    {"a covered wait times out", 1, covered_times_out},
    {"the turn is late", 1, turn_is_late},
    {"in order, one at a time", 1, in_order},
    {"in order, all at once", -1, in_order},
};

int main(int argc, char **argv)
{
    const size_t count = sizeof scenes / sizeof *scenes;
    shmsync_cond_options opts;
    size_t i;
    if (argc == 1) {
        for (i = 0; i < count; i++)
            printf("%s\n", scenes[i].name);
        return 0;
    }
    i = argc == 3 ? (size_t)atoi(argv[2]) : count;
    if (i >= count)
        return 2;
    alarm(60);
    memset(&opts, 0, sizeof opts);
    opts.batch = scenes[i].batch;
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    CHECK(shmsync_cond_open(arena, "c", &opts, &cond), 0);
    scenes[i].run();
    CHECK(shmsync_cond_close(&cond), 0);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
