/* Tests what once hung: hangs VERB NAME. Exit status 0 if all results were right; SIGALRM ends a test that hangs. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <semaphore.h>
#include <sys/wait.h>

#include "check.h"

static shmsync_arena *open_arena(const char *name)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    return a;
}

static struct timespec in_ms(long ms)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += ms * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    return ts;
}

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0)
        CHECK(errno, EINTR);
}

/* ---- Threads that are canceled ---- */

struct objects {
    shmsync_arena *a;
    shmsync_mutex mutex;
    shmsync_futex futex;
    shmsync_sequencer seq;
    shmsync_event event;
    shmsync_queue queue;
    shmsync_fairmutex fair;
    shmsync_rwmutex rw;
    shmsync_spinlock spin;
    shmsync_rwspinlock rwspin;
    shmsync_multilock multi;
    shmsync_semaphore sem;
    shmsync_barrier barrier;
    shmsync_latch latch;
    shmsync_waitgroup group;
    shmsync_future future;
    shmsync_cond cond;
    shmsync_signalwaker signals;
    uint64_t item, phase;
    int call;
};

static void open_objects(struct objects *o, const char *name)
{
    shmsync_queue_options one;
    shmsync_hold hold;
    memset(&one, 0, sizeof one);
    one.capacity = 1;
    memset(o, 0, sizeof *o);
    o->a = open_arena(name);
    CHECK(shmsync_mutex_open(o->a, "mutex", NULL, &o->mutex), 0);
    CHECK(shmsync_futex_open(o->a, "futex", NULL, &o->futex), 0);
    CHECK(shmsync_sequencer_open(o->a, "seq", NULL, &o->seq), 0);
    CHECK(shmsync_event_open(o->a, "event", NULL, &o->event), 0);
    CHECK(shmsync_queue_open(o->a, "queue", sizeof o->item, &one, &o->queue), 0);
    CHECK(shmsync_fairmutex_open(o->a, "fair", NULL, &o->fair), 0);
    CHECK(shmsync_rwmutex_open(o->a, "rw", NULL, &o->rw), 0);
    CHECK(shmsync_spinlock_open(o->a, "spin", NULL, &o->spin), 0);
    CHECK(shmsync_rwspinlock_open(o->a, "rwspin", NULL, &o->rwspin), 0);
    CHECK(shmsync_multilock_open(o->a, "multi", NULL, &o->multi), 0);
    CHECK(shmsync_semaphore_open(o->a, "sem", 1, NULL, &o->sem), 0);
    CHECK(shmsync_barrier_open(o->a, "barrier", 2, NULL, &o->barrier), 0);
    CHECK(shmsync_latch_open(o->a, "latch", 1, NULL, &o->latch), 0);
    CHECK(shmsync_waitgroup_open(o->a, "group", NULL, &o->group), 0);
    CHECK(shmsync_future_open(o->a, "future", NULL, &o->future), 0);
    CHECK(shmsync_cond_open(o->a, "cond", NULL, &o->cond), 0);
    CHECK(shmsync_signalwaker_open(o->a, "signals", NULL, &o->signals), 0);
    CHECK(shmsync_mutex_lock(&o->mutex), 0);
    CHECK(shmsync_fairmutex_lock(&o->fair), 0);
    CHECK(shmsync_rwmutex_lock(&o->rw), 0);
    CHECK(shmsync_spinlock_lock(&o->spin), 0);
    CHECK(shmsync_rwspinlock_lock(&o->rwspin), 0);
    CHECK(shmsync_multilock_lock(&o->multi, 7, &hold), 0);
    CHECK(shmsync_semaphore_acquire(&o->sem, 1), 0);
    CHECK(shmsync_waitgroup_add(&o->group, 1), 0);
    CHECK(shmsync_barrier_arrive(&o->barrier, 1, &o->phase), 0);
}

#define CALLS 18

/* Makes calls that wait, on each object, with a deadline that passes before a wait can end in another way. */
static int wait_in(struct objects *o, int call)
{
    struct timespec soon = in_ms(3);
    shmsync_hold hold;
    int result;
    switch (call) {
    case 0: return shmsync_mutex_timedlock(&o->mutex, &soon);
    case 1: return shmsync_futex_timedwait(&o->futex, 1, &soon);
    case 2: return shmsync_sequencer_timedwait(&o->seq, 1, &soon);
    case 3: return shmsync_event_timedwait(&o->event, &soon);
    case 4: return shmsync_queue_timedget(&o->queue, &o->item, &soon);
    case 5: return shmsync_fairmutex_timedlock(&o->fair, &soon);
    case 6: return shmsync_rwmutex_timedlock(&o->rw, &soon);
    case 7: return shmsync_rwmutex_timedrdlock(&o->rw, &soon);
    case 8: return shmsync_spinlock_timedlock(&o->spin, &soon);
    case 9: return shmsync_rwspinlock_timedrdlock(&o->rwspin, &soon);
    case 10: return shmsync_multilock_timedlock(&o->multi, 7, &hold, &soon);
    case 11: return shmsync_semaphore_timedacquire(&o->sem, 1, &soon);
    case 12: return shmsync_barrier_timedwait(&o->barrier, o->phase, &soon);
    case 13: return shmsync_latch_timedwait(&o->latch, &soon);
    case 14: return shmsync_waitgroup_timedwait(&o->group, &soon);
    case 15: return shmsync_future_timedwait(&o->future, &result, &soon);
    case 16: return shmsync_signalwaker_timedacquire(&o->signals, &soon);
    default: return shmsync_cond_timedwait(&o->cond, &o->mutex, &soon);
    }
}

static int returned; /* the last call that the canceled thread returned from */

static void *wait_canceled(void *arg)
{
    struct objects *o = (struct objects *)arg;
    int before;
    returned = -1;
    CHECK(pthread_cancel(pthread_self()), 0); /* acts at the next cancellation point */
    returned = wait_in(o, o->call);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &before), 0);
    CHECK(before, PTHREAD_CANCEL_ENABLE); /* the call has restored the state */
    pthread_testcancel();
    return NULL;
}

static void run_canceled(void *(*f)(void *), void *arg)
{
    pthread_t t;
    void *result;
    CHECK(pthread_create(&t, NULL, f, arg), 0);
    CHECK(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED, 1);
}

/* A thread with a pending cancellation makes each call as any other thread does. */
static void cancel_waits(const char *name)
{
    struct objects o;
    open_objects(&o, name);
    for (o.call = 0; o.call < CALLS; o.call++) {
        run_canceled(wait_canceled, &o);
        if (returned != ETIMEDOUT)
            fprintf(stderr, "call %d\n", o.call);
        CHECK(returned, ETIMEDOUT);
        CHECK(shmi_ld32(&o.a->calls), 0);
    }
    CHECK(shmsync_arena_close(o.a), 0);
}

static void *open_canceled(void *arg)
{
    shmsync_arena *a;
    CHECK(pthread_cancel(pthread_self()), 0);
    CHECK(shmsync_arena_open((const char *)arg, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    returned = 0;
    pthread_testcancel();
    return NULL;
}

/* A thread with a pending cancellation opens and closes an arena; then other threads do. */
static void cancel_open(const char *name)
{
    returned = -1;
    run_canceled(open_canceled, (void *)(uintptr_t)name);
    CHECK(returned, 0);
    CHECK(shmsync_arena_close(open_arena(name)), 0);
}

/* ---- Forks while another thread closes ---- */

static sem_t repairing, forked;
static int repair_slowly(void *arg)
{
    (void)arg;
    sem_post(&repairing);
    wait_for(&forked);
    return 0;
}
static void *recover_slowly(void *arg)
{
    CHECK(shmsync_mutex_recover((shmsync_mutex *)arg, repair_slowly, NULL), 0);
    return NULL;
}
static void *close_it(void *arg)
{
    CHECK(shmsync_arena_close((shmsync_arena *)arg), 0);
    return NULL;
}

/* Makes a process that dies with the lock held. */
static void leave_owner_dead(const char *name)
{
    pid_t pid = fork();
    int status;
    if (pid == 0) {
        shmsync_mutex m;
        CHECK(shmsync_mutex_open(open_arena(name), "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
}

/* The close waits for a call that ends only after another thread has forked and opened the arena again. The child
 * opens it again, too. */
static void fork_close(const char *name)
{
    shmsync_arena *a, *again;
    shmsync_mutex m;
    pthread_t recovers, closes;
    int status;
    pid_t pid;
    leave_owner_dead(name);
    sem_init(&repairing, 0, 0);
    sem_init(&forked, 0, 0);
    a = open_arena(name);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), EOWNERDEAD);
    CHECK(pthread_create(&recovers, NULL, recover_slowly, &m), 0);
    wait_for(&repairing);
    CHECK(pthread_create(&closes, NULL, close_it, a), 0);
    while (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        sched_yield();
    pid = fork();
    if (pid == 0) {
        CHECK(shmi_self(a), 0);
        CHECK(fcntl(a->lock_fd, F_GETFD), -1); /* otherwise it would say that the parent lives */
        CHECK(shmsync_arena_close(a), ENOTCONN);
        CHECK(shmsync_arena_close(open_arena(name)), 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    again = open_arena(name);
    CHECK(again != a, 1);
    CHECK(shmsync_arena_close(a), ENOTCONN);
    sem_post(&forked);
    CHECK(pthread_join(recovers, NULL), 0);
    CHECK(pthread_join(closes, NULL), 0);
    CHECK(shmsync_mutex_open(again, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(shmsync_arena_close(again), 0);
}

/* Threads open and close one arena, and there are forks at any moment: no child keeps the parent's byte lock, and no
 * child hangs. */
static int over;
static void *open_and_close(void *arg)
{
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        CHECK(shmsync_arena_close(open_arena((const char *)arg)), 0);
    return NULL;
}
static void fork_opening(const char *name)
{
    pthread_t t[2];
    int i, status;
    for (i = 0; i < 2; i++)
        CHECK(pthread_create(&t[i], NULL, open_and_close, (void *)(uintptr_t)name), 0);
    for (i = 0; i < 30; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            CHECK(shmsync_arena_close(open_arena(name)), 0);
            _exit(0);
        }
        CHECK(waitpid(pid, &status, 0), pid);
        CHECK(status, 0);
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (i = 0; i < 2; i++)
        CHECK(pthread_join(t[i], NULL), 0);
}

/* ---- Handlers of forks that the program registered before it opened an arena ---- */

static const char *reopened; /* the arena that the handlers open */
static void reopen_in_child(void)
{
    alarm(20); /* a child of fork inherits no alarm */
    CHECK(shmsync_arena_close(open_arena(reopened)), 0);
}
static void reopen_in_parent(void) { CHECK(shmsync_arena_close(open_arena(reopened)), 0); }

/* Forks, and waits until the child has ended well. */
static void fork_once(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
}
/* A handler of forks opens the arena, in the child or in the parent. The process has opened it before. */
static void fork_reopen(const char *name, void (*in_parent)(void), void (*in_child)(void))
{
    shmsync_arena *a;
    reopened = name;
    CHECK(pthread_atfork(NULL, in_parent, in_child), 0);
    a = open_arena(name);
    fork_once();
    CHECK(shmsync_arena_close(a), 0);
}

static pthread_mutex_t of_program = PTHREAD_MUTEX_INITIALIZER;
static int forking;
static void lock_of_program(void)
{
    __atomic_store_n(&forking, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_lock(&of_program);
}
static void unlock_of_program(void) { pthread_mutex_unlock(&of_program); }
static sem_t locked;
static void *open_locked(void *arg)
{
    shmsync_mutex m;
    pthread_mutex_lock(&of_program);
    sem_post(&locked);
    while (!__atomic_load_n(&forking, __ATOMIC_SEQ_CST))
        sched_yield();
    CHECK(shmsync_mutex_open((shmsync_arena *)arg, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_close(&m), 0);
    pthread_mutex_unlock(&of_program);
    return NULL;
}
/* Each fork takes a mutex of the program. A thread that holds this mutex calls the library while another thread forks. */
static void fork_locked(const char *name)
{
    shmsync_arena *a;
    pthread_t t;
    CHECK(pthread_atfork(lock_of_program, unlock_of_program, unlock_of_program), 0);
    sem_init(&locked, 0, 0);
    a = open_arena(name);
    CHECK(pthread_create(&t, NULL, open_locked, a), 0);
    wait_for(&locked);
    fork_once();
    CHECK(pthread_join(t, NULL), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* ---- When a process becomes a target of fences ---- */

/* A process with a single thread becomes a target of fences when it opens an arena. */
static void register_alone(const char *name)
{
    shmsync_arena *a = open_arena(name);
    CHECK(shmi_is_registered(), shmi_have.membarrier);
    CHECK((shmi_slot_caps(a, a->my_slot) & SHMI_capFence) != 0, shmi_have.membarrier);
    CHECK(shmsync_arena_close(a), 0);
}

static void *idle(void *arg)
{
    wait_for(&forked);
    return arg;
}
/* A process with several threads becomes a target of fences later, and neither open nor close waits for that. */
static void register_late(const char *name)
{
    int64_t begun = shmi_now(), end;
    shmsync_arena *a;
    shmsync_mutex m;
    pthread_t t;
    int i;
    sem_init(&forked, 0, 0);
    CHECK(pthread_create(&t, NULL, idle, NULL), 0);
    a = open_arena(name);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(m.impl->bias, 0);
    CHECK(shmsync_arena_close(a), 0);
    if (shmi_now() - begun < SHMI_REGISTER_AFTER)
        CHECK(shmi_is_registered(), 0);
    a = open_arena(name);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    for (end = shmi_now() + INT64_C(10000000000); shmi_have.membarrier && !__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE); shmi_nap(1000000))
        CHECK(shmi_now() < end, 1);
    CHECK((shmi_slot_caps(a, a->my_slot) & SHMI_capFence) != 0, shmi_have.membarrier);
    for (i = 0; i < 2 * SHMI_biasAfter; i++) { /* a handle that was made before takes biased holds, too */
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
    }
    CHECK(m.impl->bias, shmi_have.membarrier ? SHMI_OWNER_BIASED : 0);
    CHECK(shmsync_arena_close(a), 0);
    sem_post(&forked);
    CHECK(pthread_join(t, NULL), 0);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
    alarm(120);
    if (strcmp(verb, "cancel-waits") == 0)
        cancel_waits(name);
    else if (strcmp(verb, "cancel-open") == 0)
        cancel_open(name);
    else if (strcmp(verb, "fork-close") == 0)
        fork_close(name);
    else if (strcmp(verb, "fork-opening") == 0)
        fork_opening(name);
    else if (strcmp(verb, "fork-reopen-child") == 0)
        fork_reopen(name, NULL, reopen_in_child);
    else if (strcmp(verb, "fork-reopen-parent") == 0)
        fork_reopen(name, reopen_in_parent, NULL);
    else if (strcmp(verb, "fork-locked") == 0)
        fork_locked(name);
    else if (strcmp(verb, "register-alone") == 0)
        register_alone(name);
    else if (strcmp(verb, "register-late") == 0)
        register_late(name);
    else
        return 2;
    return 0;
}
