/* Tests shmsync_wait_hook: hook NAME makes the arena NAME. Exit status 0: the promises of the header hold. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#include "check.h"

#include <unistd.h>

static shmsync_arena *arena;
static shmsync_mutex mutex, cond_mutex;
static shmsync_rwmutex read_first, written, upgraded;
static shmsync_semaphore permits;
static shmsync_event event, token;
static shmsync_sequencer sequencer;
static shmsync_queue queue, full;
static shmsync_futex futex;
static shmsync_barrier barrier;
static shmsync_waitgroup waitgroup;
static shmsync_latch latch;
static shmsync_future future;
static shmsync_fairmutex fairmutex;
static shmsync_spinlock spinlock;
static shmsync_rwspinlock rwspinlock;
static shmsync_multilock multilock;
static shmsync_hold held;
static shmsync_cond cond;
static shmsync_signalwaker waker;
static shmsync_synchronized value;

/* ---- A wait for each kind of object: a call that waits, a call that lets it return 0, and one that undoes both ---- */

static int lock_mutex(void) { return shmsync_mutex_lock(&mutex); }
static int come_mutex(void) { return shmsync_mutex_unlock(&mutex); }
static int write_read_first(void) { return shmsync_rwmutex_lock(&read_first); }
static int come_read_first(void) { return shmsync_rwmutex_rdunlock(&read_first); }
static int again_read_first(void) { return shmsync_rwmutex_downgrade(&read_first); }
static int read_written(void) { return shmsync_rwmutex_rdlock(&written); }
static int come_written(void) { return shmsync_rwmutex_unlock(&written); }
static int again_written(void)
{
    CHECK(shmsync_rwmutex_rdunlock(&written), 0);
    return shmsync_rwmutex_lock(&written);
}
static int upgrade(void) { return shmsync_rwmutex_upgrade(&upgraded); }
static int come_upgraded(void) { return shmsync_rwmutex_rdunlock(&upgraded); }
static int again_upgraded(void)
{
    CHECK(shmsync_rwmutex_downgrade_to_upgradable(&upgraded), 0);
    return shmsync_rwmutex_rdlock(&upgraded);
}
static int acquire(void) { return shmsync_semaphore_acquire(&permits, 2); }
static int come_permits(void) { return shmsync_semaphore_release(&permits, 1); }
static int again_permits(void) { return shmsync_semaphore_release(&permits, 1); }
static int wait_event(void) { return shmsync_event_wait(&event); }
static int come_event(void) { return shmsync_event_set(&event); }
static int again_event(void) { return shmsync_event_reset(&event); }
static int wait_token(void) { return shmsync_event_wait(&token); }
static int come_token(void) { return shmsync_event_set(&token); }
static int nothing(void) { return 0; }
static int wait_sequencer(void) { return shmsync_sequencer_wait(&sequencer, shmsync_sequencer_value(&sequencer) + 1); }
static int come_sequencer(void)
{
    uint64_t v;
    return shmsync_sequencer_increment(&sequencer, &v);
}
static int get(void)
{
    uint64_t item;
    return shmsync_queue_get(&queue, &item);
}
static int come_queue(void)
{
    uint64_t item = 1;
    return shmsync_queue_put(&queue, &item);
}
static int put(void)
{
    uint64_t item = 1;
    return shmsync_queue_put(&full, &item);
}
static int come_full(void)
{
    uint64_t item;
    return shmsync_queue_get(&full, &item);
}
static int wait_futex(void) { return shmsync_futex_wait(&futex, shmsync_futex_get(&futex) + 1); }
static int come_futex(void) { return shmsync_futex_post(&futex); }
static uint64_t phase;
static int wait_barrier(void) { return shmsync_barrier_wait(&barrier, phase); }
static int come_barrier(void) { return shmsync_barrier_arrive(&barrier, 1, &phase); }
static int again_barrier(void) { return shmsync_barrier_arrive(&barrier, 1, &phase); }
static int wait_waitgroup(void) { return shmsync_waitgroup_wait(&waitgroup); }
static int come_waitgroup(void) { return shmsync_waitgroup_done(&waitgroup); }
static int again_waitgroup(void) { return shmsync_waitgroup_add(&waitgroup, 1); }
static int wait_latch(void) { return shmsync_latch_wait(&latch); }
static int come_latch(void) { return shmsync_latch_count_down(&latch, 1); }
static int again_latch(void) { return shmsync_latch_reset(&latch); }
static int wait_future(void)
{
    int result;
    return shmsync_future_wait(&future, &result);
}
static int come_future(void) { return shmsync_future_set(&future, 7); }
static int again_future(void) { return shmsync_future_reset(&future); }
static int lock_fairmutex(void) { return shmsync_fairmutex_lock(&fairmutex); }
static int come_fairmutex(void) { return shmsync_fairmutex_unlock(&fairmutex); }
static int lock_spinlock(void) { return shmsync_spinlock_lock(&spinlock); }
static int come_spinlock(void) { return shmsync_spinlock_unlock(&spinlock); }
static int lock_rwspinlock(void) { return shmsync_rwspinlock_lock(&rwspinlock); }
static int come_rwspinlock(void) { return shmsync_rwspinlock_rdunlock(&rwspinlock); }
static int again_rwspinlock(void) { return shmsync_rwspinlock_downgrade(&rwspinlock); }
static shmsync_hold second;
static int lock_multilock(void) { return shmsync_multilock_lock(&multilock, 7, &second); }
static int come_multilock(void) { return shmsync_multilock_unlock(&held); }
static int again_multilock(void)
{
    held = second;
    return 0;
}
static int wait_cond(void)
{
    int err;
    CHECK(shmsync_mutex_lock(&cond_mutex), 0);
    err = shmsync_cond_wait(&cond, &cond_mutex);
    CHECK(shmsync_mutex_unlock(&cond_mutex), 0); /* it is held after each result */
    return err;
}
static int come_cond(void) { return shmsync_cond_signal(&cond); }
static int wait_waker(void) { return shmsync_signalwaker_acquire(&waker); }
static int come_waker(void) { return shmsync_signalwaker_release(&waker, 1); }
static int begin_value(void)
{
    void *copy;
    return shmsync_synchronized_begin(&value, &copy);
}
static int come_value(void) { return shmsync_synchronized_abort(&value); }
static int wait_any(void)
{
    shmsync_awaitable list[2];
    size_t index;
    memset(list, 0, sizeof list);
    list[0].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &event;
    list[1].kind = SHMSYNC_AWAIT_SEQUENCER;
    list[1].sequencer = &sequencer;
    list[1].token = shmsync_sequencer_value(&sequencer) + 1;
    return shmsync_wait_any(list, 2, NULL, &index);
}
static int wait_all(void)
{
    shmsync_awaitable x;
    memset(&x, 0, sizeof x);
    x.kind = SHMSYNC_AWAIT_EVENT;
    x.event = &event;
    return shmsync_wait_all(&x, 1, NULL);
}

static const struct a_wait {
    const char *name;
    int (*wait)(void), (*come)(void), (*again)(void);
} waits[] = {
    {"mutex", lock_mutex, come_mutex, nothing},
    {"rwmutex, write", write_read_first, come_read_first, again_read_first},
    {"rwmutex, read", read_written, come_written, again_written},
    {"rwmutex, upgrade", upgrade, come_upgraded, again_upgraded},
    {"semaphore", acquire, come_permits, again_permits},
    {"event", wait_event, come_event, again_event},
    {"auto-reset event", wait_token, come_token, nothing},
    {"sequencer", wait_sequencer, come_sequencer, nothing},
    {"queue, get", get, come_queue, nothing},
    {"queue, put", put, come_full, nothing},
    {"futex", wait_futex, come_futex, nothing},
    {"barrier", wait_barrier, come_barrier, again_barrier},
    {"waitgroup", wait_waitgroup, come_waitgroup, again_waitgroup},
    {"latch", wait_latch, come_latch, again_latch},
    {"future", wait_future, come_future, again_future},
    {"fairmutex", lock_fairmutex, come_fairmutex, nothing},
    {"spinlock", lock_spinlock, come_spinlock, nothing},
    {"rwspinlock", lock_rwspinlock, come_rwspinlock, again_rwspinlock},
    {"multilock", lock_multilock, come_multilock, again_multilock},
    {"cond", wait_cond, come_cond, nothing},
    {"signalwaker", wait_waker, come_waker, nothing},
    {"synchronized", begin_value, come_value, nothing},
    {"wait_any", wait_any, come_event, again_event},
    {"wait_all", wait_all, come_event, again_event},
};

static void open_all(const char *name)
{
    shmsync_event_options automatic;
    shmsync_queue_options capacity;
    uint64_t item = 1;
    void *copy;
    memset(&automatic, 0, sizeof automatic);
    automatic.auto_reset = 1;
    memset(&capacity, 0, sizeof capacity);
    capacity.capacity = 1;
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    CHECK(shmsync_mutex_open(arena, "mutex", NULL, &mutex), 0);
    CHECK(shmsync_mutex_lock(&mutex), 0);
    CHECK(shmsync_rwmutex_open(arena, "read first", NULL, &read_first), 0);
    CHECK(shmsync_rwmutex_rdlock(&read_first), 0);
    CHECK(shmsync_rwmutex_open(arena, "written", NULL, &written), 0);
    CHECK(shmsync_rwmutex_lock(&written), 0);
    CHECK(shmsync_rwmutex_open(arena, "upgraded", NULL, &upgraded), 0);
    CHECK(shmsync_rwmutex_lock_upgradable(&upgraded), 0);
    CHECK(shmsync_rwmutex_rdlock(&upgraded), 0);
    CHECK(shmsync_semaphore_open(arena, "permits", 2, NULL, &permits), 0);
    CHECK(shmsync_semaphore_acquire(&permits, 1), 0);
    CHECK(shmsync_event_open(arena, "event", NULL, &event), 0);
    CHECK(shmsync_event_open(arena, "token", &automatic, &token), 0);
    CHECK(shmsync_sequencer_open(arena, "sequencer", NULL, &sequencer), 0);
    CHECK(shmsync_queue_open(arena, "queue", sizeof item, &capacity, &queue), 0);
    CHECK(shmsync_queue_open(arena, "full", sizeof item, &capacity, &full), 0);
    CHECK(shmsync_queue_put(&full, &item), 0);
    CHECK(shmsync_futex_open(arena, "futex", NULL, &futex), 0);
    CHECK(shmsync_barrier_open(arena, "barrier", 2, NULL, &barrier), 0);
    CHECK(shmsync_barrier_arrive(&barrier, 1, &phase), 0);
    CHECK(shmsync_waitgroup_open(arena, "waitgroup", NULL, &waitgroup), 0);
    CHECK(shmsync_waitgroup_add(&waitgroup, 1), 0);
    CHECK(shmsync_latch_open(arena, "latch", 1, NULL, &latch), 0);
    CHECK(shmsync_future_open(arena, "future", NULL, &future), 0);
    CHECK(shmsync_fairmutex_open(arena, "fairmutex", NULL, &fairmutex), 0);
    CHECK(shmsync_fairmutex_lock(&fairmutex), 0);
    CHECK(shmsync_spinlock_open(arena, "spinlock", NULL, &spinlock), 0);
    CHECK(shmsync_spinlock_lock(&spinlock), 0);
    CHECK(shmsync_rwspinlock_open(arena, "rwspinlock", NULL, &rwspinlock), 0);
    CHECK(shmsync_rwspinlock_rdlock(&rwspinlock), 0);
    CHECK(shmsync_multilock_open(arena, "multilock", NULL, &multilock), 0);
    CHECK(shmsync_multilock_lock(&multilock, 7, &held), 0);
    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    CHECK(shmsync_mutex_open(arena, "cond mutex", NULL, &cond_mutex), 0);
    CHECK(shmsync_signalwaker_open(arena, "waker", NULL, &waker), 0);
    CHECK(shmsync_synchronized_open(arena, "value", sizeof item, NULL, &value), 0);
    CHECK(shmsync_synchronized_begin(&value, &copy), 0);
}

/* ---- The hooks ---- */

static int calls, running, end_at, come_at;
static int hook(void *arg)
{
    const struct a_wait *w = (const struct a_wait *)arg;
    CHECK(running, 0);
    running = 1;
    calls++;
    if (calls == come_at)
        CHECK(w->come(), 0);
    running = 0;
    return calls == end_at;
}
/* Makes a wait with the hook, which comes and ends as the variables say. */
static int make(const struct a_wait *w, int come, int end)
{
    int err;
    calls = 0;
    come_at = come;
    end_at = end;
    shmsync_wait_hook(hook, (void *)(uintptr_t)w);
    err = w->wait();
    shmsync_wait_hook(NULL, NULL);
    return err;
}

/* While a hook runs, the wait keeps its place: other readers do not pass a writer that waits, nor does another acquire
 * pass one that waits for more permits. */
static int keep_writer(void *arg)
{
    (void)arg;
    CHECK(shmsync_rwmutex_tryrdlock(&read_first), EBUSY);
    return ++calls == 3;
}
static int keep_queued(void *arg)
{
    (void)arg;
    CHECK(shmsync_semaphore_tryacquire(&permits, 1), EBUSY);
    return ++calls == 3;
}
static int always(void *arg)
{
    ++*(int *)arg;
    return 1;
}
/* A wait of the hook runs no hook, unless the hook sets one. */
static int nest(void *arg)
{
    struct timespec until;
    int inner = 0;
    (void)arg;
    CHECK(running, 0);
    running = 1;
    calls++;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &until), 0);
    until.tv_nsec += 300000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    CHECK(shmsync_event_timedwait(&event, &until), ETIMEDOUT);
    shmsync_wait_hook(always, &inner);
    CHECK(shmsync_event_wait(&event), ETIMEDOUT);
    CHECK(inner, 1);
    CHECK(shmsync_arena_close(arena), EDEADLK);
    running = 0;
    return calls == 2;
}

/* Locks the mutex of the Cond as soon as a wait has released it, and keeps it until it has waited for longer than the
 * hook would take to run. */
static pthread_barrier_t about_to_wait;
static void *keep_mutex(void *arg)
{
    struct timespec until;
    (void)arg;
    pthread_barrier_wait(&about_to_wait);
    CHECK(shmsync_mutex_lock(&cond_mutex), 0);
    while (__atomic_load_n(&calls, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
    CHECK(clock_gettime(CLOCK_MONOTONIC, &until), 0);
    until.tv_sec++; /* ten times as long as the pause between two calls of a hook */
    CHECK(shmsync_event_timedwait(&event, &until), ETIMEDOUT);
    CHECK(shmsync_mutex_unlock(&cond_mutex), 0);
    return NULL;
}

/* Waits until a dead participant, which the test makes up, has ended. A word names it until it comes. */
static uint32_t named;
static shmi_participant_id dies(void)
{
    const uint32_t slot = 9, generation = 3;
    pthread_mutex_lock(&arena->reaping); /* the death watcher does not reap it */
    shmi_st32(shmi_slot32(arena, slot, SHMI_slotState), shmi_slot_word(SHMI_phaseDead, generation));
    shmi_st32(shmi_slot32(arena, slot, SHMI_slotCaps), SHMI_capRobust | generation << SHMI_capsBits);
    return shmi_make_participant_id(slot, generation);
}
static int wait_gone(void) { return shmi_await_gone32(arena, shmi_make_participant_id(9, 3), &named, 1, "hook", "x", 0); }
static int come_gone(void)
{
    named = 0;
    return 0;
}
static int again_gone(void)
{
    named = 1;
    return 0;
}

int main(int argc, char **argv)
{
    const struct a_wait gone = {"gone", wait_gone, come_gone, again_gone};
    const struct a_wait *w, *end = waits + sizeof waits / sizeof *waits;
    pthread_t t;
    if (argc != 2)
        return 2;
    alarm(300);
    open_all(argv[1]);
    for (w = waits; w < end; w++) {
        fprintf(stderr, "%s\n", w->name);
        CHECK(make(w, 0, 2), ETIMEDOUT); /* the first call lets it go on, the second ends it */
        CHECK(calls, 2);
        CHECK(make(w, 1, 0), 0);
        CHECK(calls, 1);
        CHECK(w->again(), 0);
        CHECK(make(w, 1, 1), 0); /* it came, so it is no timeout */
        CHECK(w->again(), 0);
    }

    calls = 0;
    shmsync_wait_hook(keep_writer, NULL);
    CHECK(shmsync_rwmutex_lock(&read_first), ETIMEDOUT);
    CHECK(calls, 3);
    CHECK(shmsync_rwmutex_tryrdlock(&read_first), 0);
    calls = 0;
    shmsync_wait_hook(keep_queued, NULL);
    CHECK(shmsync_semaphore_acquire(&permits, 2), ETIMEDOUT);
    CHECK(calls, 3);
    CHECK(shmsync_semaphore_tryacquire(&permits, 1), 0);
    calls = 0;
    shmsync_wait_hook(nest, NULL);
    CHECK(shmsync_event_wait(&event), ETIMEDOUT);
    CHECK(calls, 2);

    calls = 0;
    CHECK(pthread_barrier_init(&about_to_wait, NULL, 2), 0);
    CHECK(pthread_create(&t, NULL, keep_mutex, NULL), 0);
    CHECK(shmsync_mutex_lock(&cond_mutex), 0);
    pthread_barrier_wait(&about_to_wait);
    shmsync_wait_hook(always, &calls);
    CHECK(shmsync_cond_wait(&cond, &cond_mutex), ETIMEDOUT);
    CHECK(calls, 1); /* not during the wait for the mutex */
    CHECK(shmsync_mutex_unlock(&cond_mutex), 0);
    CHECK(pthread_join(t, NULL), 0);
    shmsync_wait_hook(NULL, NULL);

    named = 1;
    CHECK(shmi_gone(arena, dies()), 0);
    CHECK(make(&gone, 0, 2), ETIMEDOUT);
    CHECK(calls, 2);
    CHECK(make(&gone, 1, 0), 0);
    again_gone();
    CHECK(make(&gone, 1, 1), 0);
    return 0;
}
