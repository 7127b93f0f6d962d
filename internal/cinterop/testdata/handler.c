/* Calls an object from a signal handler while the program itself is in calls of the same object: handler NAME makes
 * the arena NAME. A child process does the work, and this process prints the words if the child hangs. Exit status
 * 0: no call hung, and none was lost. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <signal.h>
#include <sys/wait.h>

#define CHECK(got, want)                                                                                     \
    do {                                                                                                     \
        long long got_ = (long long)(got), want_ = (long long)(want);                                        \
        if (got_ != want_) {                                                                                 \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #got, got_, want_, shmsync_error()); \
            _exit(1);                                                                                        \
        }                                                                                                    \
    } while (0)

enum { SIGNALS = 400, WAITERS = 20 }; /* too many waiters for the list of wakes on the caller's stack */

static shmsync_arena *arena;
static shmsync_semaphore permits;
static shmsync_event token, broad;
static shmsync_sequencer count;
static shmsync_futex posts;
static shmsync_signalwaker waker;
static shmsync_gate gate;
static shmsync_cond cond;
static shmsync_mutex cond_lock;
static pthread_t user;
static uint32_t handled, stop; /* atomic */

static void open_all(const char *name)
{
    shmsync_semaphore_options so;
    shmsync_event_options eo;
    memset(&so, 0, sizeof so);
    so.transferable = 1;
    so.initial = -1;
    memset(&eo, 0, sizeof eo);
    eo.auto_reset = 1;
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    CHECK(shmsync_semaphore_open(arena, "permits", INT32_MAX, &so, &permits), 0);
    CHECK(shmsync_event_open(arena, "token", &eo, &token), 0);
    CHECK(shmsync_event_open(arena, "broad", NULL, &broad), 0);
    CHECK(shmsync_sequencer_open(arena, "count", NULL, &count), 0);
    CHECK(shmsync_futex_open(arena, "posts", NULL, &posts), 0);
    CHECK(shmsync_signalwaker_open(arena, "waker", NULL, &waker), 0);
    CHECK(shmsync_signalwaker_gate(&waker, 7, &gate), 0);
    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    CHECK(shmsync_mutex_open(arena, "cond-lock", NULL, &cond_lock), 0);
}

/* The calls that docs/c-api.md allows in a handler, and those that wake a Cond. */
static void calls(void)
{
    uint64_t v;
    CHECK(shmsync_sequencer_increment(&count, &v), 0);
    CHECK(shmsync_semaphore_release(&permits, 1), 0);
    if (shmsync_semaphore_tryacquire(&permits, 1) == 0)
        CHECK(shmsync_semaphore_release(&permits, 1), 0);
    CHECK(shmsync_futex_post(&posts), 0);
    CHECK(shmsync_gate_schedule(&gate, NULL), 0);
    CHECK(shmsync_event_set(&token), 0);
    CHECK(shmsync_event_set(&broad), 0);
    CHECK(shmsync_event_reset(&broad), 0);
    CHECK(shmsync_cond_signal(&cond), 0);
    CHECK(shmsync_cond_broadcast(&cond), 0);
}

static void on_signal(int sig)
{
    int before = errno;
    (void)sig;
    calls();
    errno = before;
    shmi_add32(&handled, 1);
}

static void *wait_counts(void *x)
{
    uint64_t v;
    (void)x;
    while ((v = shmsync_sequencer_value(&count)), !shmi_ld32(&stop))
        CHECK(shmsync_sequencer_wait(&count, v + 1), 0);
    return NULL;
}
static void *wait_permits(void *x)
{
    (void)x;
    while (!shmi_ld32(&stop))
        CHECK(shmsync_semaphore_acquire(&permits, 1), 0);
    return NULL;
}
static void *wait_token(void *x)
{
    (void)x;
    while (!shmi_ld32(&stop))
        CHECK(shmsync_event_wait(&token), 0);
    return NULL;
}
static void *wait_cond(void *x)
{
    struct timespec ts;
    int err;
    (void)x;
    CHECK(shmsync_mutex_lock(&cond_lock), 0);
    while (!shmi_ld32(&stop)) {
        CHECK(clock_gettime(CLOCK_MONOTONIC, &ts), 0);
        ts.tv_sec++; /* the wait may begin after the last call */
        err = shmsync_cond_timedwait(&cond, &cond_lock, &ts);
        CHECK(err == ETIMEDOUT ? 0 : err, 0);
    }
    CHECK(shmsync_mutex_unlock(&cond_lock), 0);
    return NULL;
}
static void *storm(void *x)
{
    uint32_t i;
    (void)x;
    for (i = 0; i < SIGNALS; i++) {
        CHECK(pthread_kill(user, SIGUSR1), 0);
        while (shmi_ld32(&handled) == i) /* otherwise a second signal would be lost while one is pending */
            sched_yield();
    }
    shmi_st32(&stop, 1);
    return NULL;
}

static void work(const char *name)
{
    pthread_t waiter[WAITERS + 2], cond_waiter[WAITERS], killer;
    struct sigaction sa;
    sigset_t set, now;
    uint64_t rounds = 0;
    int i;
    open_all(name);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL), 0); /* the other threads take no signals */
    user = pthread_self();
    for (i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&waiter[i], NULL, wait_counts, NULL), 0);
    for (i = 0; i < WAITERS; i++)
        CHECK(pthread_create(&cond_waiter[i], NULL, wait_cond, NULL), 0);
    CHECK(pthread_create(&waiter[i++], NULL, wait_permits, NULL), 0);
    CHECK(pthread_create(&waiter[i++], NULL, wait_token, NULL), 0);
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = on_signal;
    CHECK(sigaction(SIGUSR1, &sa, NULL), 0);
    CHECK(pthread_create(&killer, NULL, storm, NULL), 0);
    CHECK(pthread_sigmask(SIG_UNBLOCK, &set, NULL), 0);
    while (!shmi_ld32(&stop)) {
        calls();
        free(malloc(64 + rounds % 4096)); /* a handler that allocates would wait for this thread */
        rounds++;
    }
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &now), 0);
    CHECK(sigismember(&now, SIGUSR1), 0); /* the mask is as it was before */
    CHECK(sigismember(&now, SIGTERM), 0);
    CHECK(pthread_join(killer, NULL), 0);
    for (i = 0; i < WAITERS + 2; i++)
        calls(); /* each call ends a wait of each kind */
    for (i = 0; i < WAITERS + 2; i++)
        CHECK(pthread_join(waiter[i], NULL), 0);
    for (i = 0; i < WAITERS; i++)
        CHECK(pthread_join(cond_waiter[i], NULL), 0);
    CHECK(shmsync_futex_get(&posts), rounds + SIGNALS + WAITERS + 2);
    CHECK(shmsync_sequencer_value(&count), rounds + SIGNALS + WAITERS + 2);
    _exit(0);
}

/* Prints the word of an eventcount. */
static void state(const char *what, struct shmi_eventcount *e)
{
    fprintf(stderr, "%s: state %#llx\n", what, (unsigned long long)shmi_eventcount_load(e));
}

int main(int argc, char **argv)
{
    const char *name = argc > 1 ? argv[1] : "handler";
    struct timespec timeout;
    sigset_t set;
    int status;
    pid_t child;
    timeout.tv_sec = 60;
    timeout.tv_nsec = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    child = fork();
    if (child == 0)
        work(name);
    open_all(name);
    if (sigtimedwait(&set, NULL, &timeout) < 0) {
        fprintf(stderr, "the child hangs\n");
        fprintf(stderr, "permits: commit %#llx, first %#llx\n", (unsigned long long)shmi_ld64(permits.impl->q.commit), (unsigned long long)shmi_ld64(permits.impl->q.first));
        fprintf(stderr, "cond: commit %#llx, boundary %#llx\n", (unsigned long long)shmi_ld64(cond.impl->q.commit), (unsigned long long)shmi_ld64(cond.impl->q.boundary));
        state("token", &token.impl->count);
        state("broad", &broad.impl->count);
        CHECK(kill(child, SIGKILL), 0);
        CHECK(waitpid(child, &status, 0), child);
        return 2;
    }
    CHECK(waitpid(child, &status, 0), child);
    CHECK(status, 0);
    calls(); /* the handlers have left nothing locked */
    CHECK(shmsync_arena_remove(name), EBUSY);
    CHECK(shmsync_arena_close(arena), 0);
    CHECK(shmsync_arena_remove(name), 0);
    return 0;
}
