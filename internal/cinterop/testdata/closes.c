/* Tests an arena that is closed while another thread is in a call: closes SCENE NAME, or closes count. Exit status 0
 * if the close waits for the call until the call no longer needs the arena. */
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
            fprintf(stderr, "%s: line %d: %s is %lld, not %lld: %s\n", current->name, __LINE__, #got, got_, want_, shmsync_error()); \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

static void wait_for(sem_t *s)
{
    while (sem_wait(s) != 0) {
    }
}

/* One call that waits. begin makes it wait, and release, if set, ends the wait. The arena is closed when the call
 * comes to the point. */
struct scene {
    const char *name, *point;
    void (*begin)(void);
    int (*call)(void);
    void (*release)(void);
    int want;
};

static const struct scene *current;
static shmsync_arena *arena;
static pthread_t caller, closer;
static int armed;
static sem_t queued, released, running, go_on;

static void *close_arena(void *arg)
{
    (void)arg;
    CHECK(shmsync_arena_close(arena), 0);
    return NULL;
}

void at_point(const char *name)
{
    if (current == NULL || !__atomic_load_n(&armed, __ATOMIC_SEQ_CST) || !pthread_equal(pthread_self(), caller))
        return;
    if (strcmp(name, "park.waitnode.asleep") == 0 || strcmp(name, "counter.wait.watched") == 0 || strcmp(name, "queue.wait.announced") == 0 ||
        strcmp(name, "eventcount.wait.announced") == 0 || strcmp(name, "sequencer.wait.announced") == 0 || strcmp(name, "event.wait.announced") == 0)
        sem_post(&queued);
    if (strcmp(name, current->point) != 0)
        return;
    __atomic_store_n(&armed, 0, __ATOMIC_SEQ_CST);
    if (current->release != NULL)
        wait_for(&released); /* release is in a call, too */
    CHECK(pthread_create(&closer, NULL, close_arena, NULL), 0);
    /* From here on, the close waits only while a call counts. */
    while (__atomic_load_n(&arena->closing, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
    if (shmi_ld32(&arena->calls) == 0) {
        fprintf(stderr, "%s at %s: the close does not wait for the call\n", current->name, name);
        exit(1);
    }
}

static shmsync_sequencer seq;
static void seq_begin(void) { CHECK(shmsync_sequencer_open(arena, "seq", NULL, &seq), 0); }
static int seq_call(void) { return shmsync_sequencer_wait(&seq, shmsync_sequencer_value(&seq) + 1); }
static void seq_release(void)
{
    uint64_t v;
    CHECK(shmsync_sequencer_increment(&seq, &v), 0);
}

static shmsync_event event;
static void event_begin(void)
{
    shmsync_event_options o;
    memset(&o, 0, sizeof o);
    o.auto_reset = 1;
    CHECK(shmsync_event_open(arena, "event", &o, &event), 0);
}
static int event_call(void) { return shmsync_event_wait(&event); }
static void event_release(void) { CHECK(shmsync_event_set(&event), 0); }
static void manual_begin(void) { CHECK(shmsync_event_open(arena, "manual", NULL, &event), 0); }

static shmsync_queue queue;
static uint64_t item;
static void queue_open(const char *name)
{
    shmsync_queue_options one;
    memset(&one, 0, sizeof one);
    one.capacity = 1;
    CHECK(shmsync_queue_open(arena, name, sizeof item, &one, &queue), 0);
}
static void get_begin(void) { queue_open("get"); }
static int get_call(void) { return shmsync_queue_get(&queue, &item); }
static void get_release(void)
{
    uint64_t x = 1;
    CHECK(shmsync_queue_put(&queue, &x), 0);
}
static void put_begin(void)
{
    queue_open("put");
    CHECK(shmsync_queue_put(&queue, &item), 0);
}
static int put_call(void) { return shmsync_queue_put(&queue, &item); }
static void put_release(void)
{
    uint64_t x;
    CHECK(shmsync_queue_get(&queue, &x), 0);
}

static shmsync_latch latch;
static void latch_begin(void) { CHECK(shmsync_latch_open(arena, "latch", 1, NULL, &latch), 0); }
static int latch_call(void) { return shmsync_latch_wait(&latch); }
static void arrival_begin(void) { CHECK(shmsync_latch_open(arena, "latch", 2, NULL, &latch), 0); }
static int arrival_call(void)
{
    int err = shmsync_latch_arrive_and_wait(&latch, 1);
    CHECK(strstr(shmsync_error(), "latch.wait") != NULL, 1); /* it has counted down */
    return err;
}
static void latch_release(void) { CHECK(shmsync_latch_count_down(&latch, 1), 0); }

static shmsync_future future;
static void future_begin(void) { CHECK(shmsync_future_open(arena, "future", NULL, &future), 0); }
static int future_call(void)
{
    int result;
    return shmsync_future_wait(&future, &result);
}
static void future_release(void) { CHECK(shmsync_future_set(&future, 0), 0); }

static shmsync_once once;
static pthread_t runner;
static void run(void *arg)
{
    (void)arg;
    sem_post(&running);
    wait_for(&go_on);
}
static void *run_once(void *arg)
{
    (void)arg;
    shmsync_once_do(&once, run, NULL);
    return NULL;
}
static void once_begin(void)
{
    CHECK(shmsync_once_open(arena, "once", NULL, &once), 0);
    CHECK(pthread_create(&runner, NULL, run_once, NULL), 0);
    wait_for(&running);
}
static void nothing(void *arg) { (void)arg; }
static int once_call(void) { return shmsync_once_do(&once, nothing, NULL); }
static void own_once_begin(void) { CHECK(shmsync_once_open(arena, "own once", NULL, &once), 0); }

static shmsync_barrier barrier;
static uint64_t phase;
static void barrier_begin(void)
{
    CHECK(shmsync_barrier_open(arena, "barrier", 2, NULL, &barrier), 0);
    CHECK(shmsync_barrier_arrive(&barrier, 1, &phase), 0);
}
static int barrier_call(void) { return shmsync_barrier_wait(&barrier, phase); }
static void barrier_release(void) { CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0); }
static void completed_begin(void)
{
    shmsync_barrier_options o;
    memset(&o, 0, sizeof o);
    o.completion = nothing;
    CHECK(shmsync_barrier_open(arena, "completed", 1, &o, &barrier), 0);
}
static int completed_call(void) { return shmsync_barrier_arrive_and_wait(&barrier); }

static void *arrive_first(void *arg)
{
    (void)arg;
    CHECK(shmsync_barrier_arrive(&barrier, 1, NULL), 0);
    return NULL;
}
static void completing_begin(void)
{
    shmsync_barrier_options o;
    memset(&o, 0, sizeof o);
    o.completion = run;
    CHECK(shmsync_barrier_open(arena, "completing", 1, &o, &barrier), 0);
    CHECK(pthread_create(&runner, NULL, arrive_first, NULL), 0);
    wait_for(&running);
}
static int completing_call(void)
{
    int err = shmsync_barrier_arrive_and_wait(&barrier);
    CHECK(strstr(shmsync_error(), "barrier.arrive") != NULL, 1); /* the arrival has not counted */
    return err;
}

static shmsync_fairmutex fair;
static void fair_begin(void)
{
    CHECK(shmsync_fairmutex_open(arena, "fair", NULL, &fair), 0);
    CHECK(shmsync_fairmutex_lock(&fair), 0);
}
static int fair_call(void) { return shmsync_fairmutex_lock(&fair); }
static void fair_release(void) { CHECK(shmsync_fairmutex_unlock(&fair), 0); }

static shmsync_semaphore sem;
static void sem_begin(void)
{
    shmsync_semaphore_options o;
    memset(&o, 0, sizeof o);
    o.transferable = 1;
    o.initial = -1;
    CHECK(shmsync_semaphore_open(arena, "sem", 1, &o, &sem), 0);
}
static int sem_call(void) { return shmsync_semaphore_acquire(&sem, 1); }
static void sem_release(void) { CHECK(shmsync_semaphore_release(&sem, 1), 0); }

static shmsync_multilock multi;
static shmsync_hold hold;
static void multi_begin(void)
{
    CHECK(shmsync_multilock_open(arena, "multi", NULL, &multi), 0);
    CHECK(shmsync_multilock_lock(&multi, 7, &hold), 0);
}
static int multi_call(void)
{
    shmsync_hold h;
    return shmsync_multilock_lock(&multi, 7, &h);
}
static void multi_release(void) { CHECK(shmsync_multilock_unlock(&hold), 0); }

static shmsync_cond cond;
static shmsync_mutex mutex;
static void cond_begin(void)
{
    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    CHECK(shmsync_mutex_open(arena, "mutex", NULL, &mutex), 0);
}
static int cond_call(void)
{
    CHECK(shmsync_mutex_lock(&mutex), 0);
    return shmsync_cond_wait(&cond, &mutex);
}
static void cond_release(void) { CHECK(shmsync_cond_signal(&cond), 0); }

static shmsync_rwmutex rw;
static struct timespec soon(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts;
}
static void rw_begin(void)
{
    CHECK(shmsync_rwmutex_open(arena, "rw", NULL, &rw), 0);
    CHECK(shmsync_rwmutex_rdlock(&rw), 0);
}
static int rw_call(void)
{
    struct timespec ts = soon();
    return shmsync_rwmutex_timedlock(&rw, &ts);
}
static void upgrade_begin(void)
{
    rw_begin();
    CHECK(shmsync_rwmutex_lock_upgradable(&rw), 0);
}
static int upgrade_call(void)
{
    struct timespec ts = soon();
    return shmsync_rwmutex_timed_upgrade(&rw, &ts);
}

static const struct scene scenes[] = {
    {"sequencer", "sequencer.wait.announced", seq_begin, seq_call, NULL, EBADF},
    {"sequencer", "sequencer.wait.announced", seq_begin, seq_call, seq_release, 0},
    {"event", "event.wait.counted", event_begin, event_call, NULL, EBADF},
    {"event", "event.wait.announced", event_begin, event_call, NULL, EBADF},
    {"event", "event.wait.announced", event_begin, event_call, event_release, 0},
    {"event", "event.wait.ended", event_begin, event_call, event_release, 0},
    {"event, manual", "eventcount.wait.announced", manual_begin, event_call, NULL, EBADF},
    {"event, manual", "eventcount.wait.announced", manual_begin, event_call, event_release, 0},
    {"queue, empty", "queue.wait.announced", get_begin, get_call, NULL, EBADF},
    {"queue, empty", "queue.take.committed", get_begin, get_call, get_release, 0},
    {"queue, full", "queue.wait.announced", put_begin, put_call, NULL, EBADF},
    {"queue, full", "queue.add.claimed", put_begin, put_call, put_release, 0},
    {"latch", "counter.wait.watched", latch_begin, latch_call, NULL, EBADF},
    {"latch", "counter.wait.watched", latch_begin, latch_call, latch_release, 0},
    {"latch, arrival", "counter.wait.watched", arrival_begin, arrival_call, NULL, EBADF},
    {"future", "eventcount.wait.announced", future_begin, future_call, NULL, EBADF},
    {"future", "eventcount.wait.announced", future_begin, future_call, future_release, 0},
    {"once", "once.wait.announced", once_begin, once_call, NULL, EBADF},
    {"once, run", "once.run.returned", own_once_begin, once_call, NULL, 0},
    {"barrier", "eventcount.wait.announced", barrier_begin, barrier_call, NULL, EBADF},
    {"barrier", "eventcount.wait.announced", barrier_begin, barrier_call, barrier_release, 0},
    {"barrier, completed", "barrier.complete.returned", completed_begin, completed_call, NULL, 0},
    {"barrier, completing", "eventcount.wait.announced", completing_begin, completing_call, NULL, EBADF},
    {"fair mutex", "record.wait.prepared", fair_begin, fair_call, NULL, EBADF},
    {"fair mutex", "park.waitnode.asleep", fair_begin, fair_call, NULL, EBADF},
    {"fair mutex", "record.await.resolved", fair_begin, fair_call, fair_release, 0},
    {"fair mutex", "fairmutex.lock.accepted", fair_begin, fair_call, fair_release, 0},
    {"semaphore", "park.waitnode.asleep", sem_begin, sem_call, NULL, EBADF},
    {"semaphore", "semaphore.acquire.accepted", sem_begin, sem_call, sem_release, 0},
    {"multilock", "record.wait.prepared", multi_begin, multi_call, NULL, EBADF},
    {"multilock", "park.waitnode.asleep", multi_begin, multi_call, NULL, EBADF},
    {"multilock", "record.await.resolved", multi_begin, multi_call, multi_release, 0},
    {"multilock", "multilock.lock.accepted", multi_begin, multi_call, multi_release, 0},
    {"cond", "record.wait.prepared", cond_begin, cond_call, NULL, EBADF},
    {"cond", "park.waitnode.asleep", cond_begin, cond_call, NULL, EBADF},
    {"cond", "cond.wait.woken", cond_begin, cond_call, cond_release, 0},
    {"cond", "cond.wait.relocked", cond_begin, cond_call, cond_release, 0},
    {"rwmutex", "rwmutex.lock.leaving", rw_begin, rw_call, NULL, ETIMEDOUT},
    {"rwmutex, upgraded", "rwmutex.lock.leaving", upgrade_begin, upgrade_call, NULL, ETIMEDOUT},
};

static void *call(void *arg)
{
    (void)arg;
    caller = pthread_self();
    __atomic_store_n(&armed, 1, __ATOMIC_SEQ_CST);
    CHECK(current->call(), current->want);
    sem_post(&go_on); /* not before: if the function returns first, it ends the wait of a once with 0 */
    CHECK(armed, 0); /* the call came to the point */
    return NULL;
}

int main(int argc, char **argv)
{
    const size_t count = sizeof scenes / sizeof *scenes;
    pthread_t thread;
    size_t i;
    if (argc == 2) {
        printf("%zu", count);
        return 0;
    }
    i = argc == 3 ? (size_t)atoi(argv[1]) : count;
    if (i >= count)
        return 2;
    alarm(60);
    current = &scenes[i];
    sem_init(&queued, 0, 0);
    sem_init(&released, 0, 0);
    sem_init(&running, 0, 0);
    sem_init(&go_on, 0, 0);
    CHECK(shmsync_arena_open(argv[2], NULL, &arena), 0);
    current->begin();
    CHECK(pthread_create(&thread, NULL, call, NULL), 0);
    if (current->release != NULL) {
        wait_for(&queued);
        current->release();
        sem_post(&released);
    }
    CHECK(pthread_join(thread, NULL), 0);
    CHECK(pthread_join(closer, NULL), 0);
    if (current->begin == once_begin || current->begin == completing_begin)
        CHECK(pthread_join(runner, NULL), 0);
    return 0;
}
