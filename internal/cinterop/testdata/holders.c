/* Tests holds through a handle that was closed: holders ARENA VERB makes the object "x", takes a hold of it, closes the
 * handle, and ends when its standard input does. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static shmsync_arena *arena;

/* Opens x, makes a hold, and closes x. */
#define HOLD(name, kind, open, hold)                       \
    static void name(void)                                 \
    {                                                      \
        shmsync_##kind x;                                  \
        CHECK(open, 0);                                    \
        CHECK(hold, 0);                                    \
        CHECK(shmsync_##kind##_close(&x), 0);              \
    }
#define PLAIN(name, kind, hold) HOLD(name, kind, shmsync_##kind##_open(arena, "x", NULL, &x), hold)

static shmsync_hold key;
static shmsync_lease lease;
static shmsync_gate gate;
static uint64_t item;
static void *copy;
static int gate_begin(shmsync_signalwaker *w)
{
    CHECK(shmsync_signalwaker_gate(w, 5, &gate), 0);
    CHECK(shmsync_gate_schedule(&gate, NULL), 0);
    return shmsync_gate_begin(&gate);
}
static int queue_lease(shmsync_queue *q)
{
    CHECK(shmsync_queue_put(q, &item), 0);
    return shmsync_queue_lease(q, &item, &lease);
}

PLAIN(mutex, mutex, shmsync_mutex_lock(&x))
PLAIN(rwmutex_read, rwmutex, shmsync_rwmutex_rdlock(&x))
PLAIN(rwmutex_write, rwmutex, shmsync_rwmutex_lock(&x))
PLAIN(rwmutex_upgradable, rwmutex, shmsync_rwmutex_lock_upgradable(&x))
PLAIN(spinlock, spinlock, shmsync_spinlock_lock(&x))
PLAIN(rwspinlock_read, rwspinlock, shmsync_rwspinlock_rdlock(&x))
PLAIN(rwspinlock_write, rwspinlock, shmsync_rwspinlock_lock(&x))
PLAIN(fairmutex, fairmutex, shmsync_fairmutex_lock(&x))
PLAIN(multilock, multilock, shmsync_multilock_lock(&x, 7, &key))
PLAIN(signalwaker, signalwaker, gate_begin(&x))
HOLD(semaphore, semaphore, shmsync_semaphore_open(arena, "x", 2, NULL, &x), shmsync_semaphore_acquire(&x, 1))
HOLD(queue, queue, shmsync_queue_open(arena, "x", 8, &(shmsync_queue_options){.capacity = 2}, &x), queue_lease(&x))
HOLD(synchronized, synchronized, shmsync_synchronized_open(arena, "x", 8, NULL, &x), shmsync_synchronized_begin(&x, &copy))
/* These are no holds: permits that belong to no process, and what a process still has to do. */
HOLD(transferable, semaphore, shmsync_semaphore_open(arena, "x", 2, &(shmsync_semaphore_options){.transferable = 1}, &x), shmsync_semaphore_acquire(&x, 1))
HOLD(latch, latch, shmsync_latch_open(arena, "x", 2, NULL, &x), shmsync_latch_claim(&x, 1))
HOLD(barrier, barrier, shmsync_barrier_open(arena, "x", 2, NULL, &x), shmsync_barrier_register(&x, 1))
PLAIN(future, future, shmsync_future_claim(&x))
PLAIN(waitgroup, waitgroup, shmsync_waitgroup_add(&x, 1))

int main(int argc, char **argv)
{
#define VERB(name) {#name, name}
    static const struct {
        const char *name;
        void (*run)(void);
    } verbs[] = {
        VERB(mutex), VERB(rwmutex_read), VERB(rwmutex_write), VERB(rwmutex_upgradable), VERB(spinlock), VERB(rwspinlock_read),
        VERB(rwspinlock_write), VERB(fairmutex), VERB(multilock), VERB(signalwaker), VERB(semaphore), VERB(queue), VERB(synchronized),
        VERB(transferable), VERB(latch), VERB(barrier), VERB(future), VERB(waitgroup),
    };
    size_t i;
    if (argc != 3)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[2], verbs[i].name) == 0) {
            verbs[i].run();
            printf("ready\n");
            fflush(stdout);
            getchar();
            return 0; /* as if it were killed */
        }
    return 2;
}
