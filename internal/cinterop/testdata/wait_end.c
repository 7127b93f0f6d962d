/* Tests a wait whose end comes after what it waits for: wait_end NAME SCENE END. The event happens when the wait is about to
 * sleep. Then the deadline of the wait has passed, or another thread closes the arena (END is "deadline" or "close").
 * The wait of a lock has nothing between its last look at the lock and its sleep. So for a lock the event happens in the
 * function of shmsync_wait_hook, between two sleeps, and this function also ends the wait if END is "deadline".
 * Exit status 0 if the result was right; SIGALRM ends a test that hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static shmsync_arena *arena;
static const char *point; /* NULL after the wait has come to it */
static void (*happen)(void);
static pthread_t closer;
static int closes; /* whether the end of the wait is the close of the arena */

static void *close_arena(void *arg)
{
    (void)arg;
    CHECK(shmsync_arena_close(arena), 0);
    return NULL;
}

static void come(void)
{
    point = NULL;
    happen();
    if (!closes)
        return;
    CHECK(pthread_create(&closer, NULL, close_arena, NULL), 0);
    while (__atomic_load_n(&arena->closing, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
}
void at_point(const char *name)
{
    if (point != NULL && strcmp(name, point) == 0)
        come();
}
static int in_hook(void *arg)
{
    (void)arg;
    shmsync_wait_hook(NULL, NULL);
    come();
    return !closes;
}
static void at_hook(void (*then)(void))
{
    point = "in the hook";
    happen = then;
    shmsync_wait_hook(in_hook, NULL);
}

/* The end of the wait: a time that has passed, or none. */
static const struct timespec *until(void)
{
    static const struct timespec passed = {0, 1};
    return closes ? NULL : &passed;
}

static shmsync_queue queue;
static void put(void)
{
    uint64_t item = 7;
    CHECK(shmsync_queue_put(&queue, &item), 0);
}
static void get(void)
{
    uint64_t item = 0;
    CHECK(shmsync_queue_get(&queue, &item), 0);
    CHECK(item, 7);
}
static void open_queue(void (*then)(void))
{
    shmsync_queue_options o;
    memset(&o, 0, sizeof o);
    o.struct_size = sizeof o;
    o.capacity = 1;
    CHECK(shmsync_queue_open(arena, "x", 8, &o, &queue), 0);
    point = "queue.wait.announced";
    happen = then;
}
static void queue_get(void)
{
    uint64_t item = 0;
    open_queue(put);
    CHECK(closes ? shmsync_queue_get(&queue, &item) : shmsync_queue_timedget(&queue, &item, until()), 0);
    CHECK(item, 7);
}
static void queue_lease(void)
{
    uint64_t item = 0;
    shmsync_lease lease;
    open_queue(put);
    CHECK(closes ? shmsync_queue_lease(&queue, &item, &lease) : shmsync_queue_timedlease(&queue, &item, &lease, until()), 0);
    CHECK(item, 7);
}
static void queue_put(void)
{
    uint64_t item = 8;
    open_queue(get);
    put();
    CHECK(closes ? shmsync_queue_put(&queue, &item) : shmsync_queue_timedput(&queue, &item, until()), 0);
}

static shmsync_futex futex;
static void post(void) { CHECK(shmsync_futex_post(&futex), 0); }
static void futex_wait(void)
{
    CHECK(shmsync_futex_open(arena, "x", NULL, &futex), 0);
    point = "futex.wait.announced";
    happen = post;
    CHECK(closes ? shmsync_futex_wait(&futex, 1) : shmsync_futex_timedwait(&futex, 1, until()), 0);
}

static shmsync_once once;
static int ran;
static void run(void *arg)
{
    (void)arg;
    ran++;
}
/* The runner is gone, and a reaper ends its turn. */
static void end_turn(void)
{
    uint64_t w = shmi_once_load(once.impl);
    CHECK(shmi_cas64(&once.impl->w->state, w, w & ~SHMI_ONCE_IDS), 1);
}
static void once_do(void)
{
    CHECK(shmsync_once_open(arena, "x", NULL, &once), 0);
    shmi_st64(&once.impl->w->state, shmi_once_taken_by(0, arena->self)); /* another thread of this process is the runner */
    point = "once.wait.announced";
    happen = end_turn;
    CHECK(closes ? shmsync_once_do(&once, run, NULL) : shmsync_once_timeddo(&once, run, NULL, until()), closes ? EBADF : 0);
    CHECK(ran, !closes);
}

/* A lock is held by another thread of this process. Then it has the state that it has when its holder is dead and gone,
 * and has a Repair. After a close, the call fails. */
static int repaired;
static int repair(void *arg)
{
    (void)arg;
    repaired++;
    return 0;
}
#define GONE shmi_make_participant_id(3, 1) /* no participant has been in slot 3 */
#define OPTIONS(kind)          \
    shmsync_##kind##_options o; \
    memset(&o, 0, sizeof o);   \
    o.struct_size = sizeof o;  \
    o.repair = repair

static shmsync_mutex mutex;
static void mutex_dies(void) { shmi_st32(mutex.impl->own, shmi_make_owner(SHMI_kindOwnerDead, GONE)); }
static void mutex_lock(void)
{
    OPTIONS(mutex);
    CHECK(shmsync_mutex_open(arena, "x", &o, &mutex), 0);
    CHECK(shmsync_mutex_lock(&mutex), 0);
    at_hook(mutex_dies);
    CHECK(shmsync_mutex_lock(&mutex), closes ? EBADF : 0);
    CHECK(repaired, !closes);
}
static shmsync_spinlock spin;
static void spin_dies(void) { shmi_st32(&spin.impl->w->state, SHMI_SPIN_OWNER_DEAD << 29 | GONE); }
static void spin_lock(void)
{
    OPTIONS(spinlock);
    CHECK(shmsync_spinlock_open(arena, "x", &o, &spin), 0);
    CHECK(shmsync_spinlock_lock(&spin), 0);
    at_hook(spin_dies);
    CHECK(shmsync_spinlock_lock(&spin), closes ? EBADF : 0);
    CHECK(repaired, !closes);
}
static shmsync_rwmutex rw;
static void rw_dies(void)
{
    shmi_st32(rw.impl->writers.own, 0);
    shmi_st32(rw.impl->gate, (uint32_t)SHMI_GATE_OWNER_DEAD << 29 | GONE);
}
static void rw_rdlock(void)
{
    OPTIONS(rwmutex);
    CHECK(shmsync_rwmutex_open(arena, "x", &o, &rw), 0);
    CHECK(shmsync_rwmutex_lock(&rw), 0);
    at_hook(rw_dies);
    CHECK(shmsync_rwmutex_rdlock(&rw), closes ? EBADF : 0);
    CHECK(repaired, !closes);
}

/* The last reader leaves. */
static void rw_leaves(void) { CHECK(shmsync_rwmutex_rdunlock(&rw), 0); }
static void rw_lock(void)
{
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rw), 0);
    CHECK(shmsync_rwmutex_rdlock(&rw), 0);
    at_hook(rw_leaves);
    CHECK(shmsync_rwmutex_lock(&rw), closes ? EBADF : 0);
}
static shmsync_rwspinlock rwspin;
static void rwspin_leaves(void) { CHECK(shmsync_rwspinlock_rdunlock(&rwspin), 0); }
static void rwspin_lock(void)
{
    CHECK(shmsync_rwspinlock_open(arena, "x", NULL, &rwspin), 0);
    CHECK(shmsync_rwspinlock_rdlock(&rwspin), 0);
    at_hook(rwspin_leaves);
    CHECK(shmsync_rwspinlock_lock(&rwspin), closes ? EBADF : 0);
}

static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {{"queue get", queue_get}, {"queue lease", queue_lease}, {"queue put", queue_put}, {"futex", futex_wait}, {"once", once_do},
    {"mutex", mutex_lock}, {"spinlock", spin_lock}, {"rwmutex read", rw_rdlock}, {"rwmutex", rw_lock}, {"rwspinlock", rwspin_lock}};

int main(int argc, char **argv)
{
    size_t i;
    if (argc != 4)
        return 2;
    alarm(60);
    closes = strcmp(argv[3], "close") == 0;
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    for (i = 0; i < sizeof scenes / sizeof *scenes; i++)
        if (strcmp(argv[2], scenes[i].name) == 0)
            scenes[i].run();
    CHECK(happen != NULL && point == NULL, 1); /* the scene exists, and its wait came to the point */
    if (closes)
        CHECK(pthread_join(closer, NULL), 0);
    return 0;
}
