/* Tests a wait whose end comes after what it waits for: wait_end NAME SCENE END. The event happens when the wait is about to
 * sleep. Then the deadline of the wait has passed, or another thread closes the arena (END is "deadline" or "close").
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

void at_point(const char *name)
{
    if (point == NULL || strcmp(name, point) != 0)
        return;
    point = NULL;
    happen();
    if (!closes)
        return;
    CHECK(pthread_create(&closer, NULL, close_arena, NULL), 0);
    while (__atomic_load_n(&arena->closing, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
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

static const struct {
    const char *name;
    void (*run)(void);
} scenes[] = {{"queue get", queue_get}, {"queue lease", queue_lease}, {"queue put", queue_put}, {"futex", futex_wait}, {"once", once_do}};

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
