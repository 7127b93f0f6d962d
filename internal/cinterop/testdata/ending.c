/* Tests calls that come while the arena is being closed: ending SCENE NAME, or ending count. Exit status 0 if each
 * call returns what it should and leaves nothing behind. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define _GNU_SOURCE
#include <stdlib.h>
#include <sys/wait.h>
static void *at_calloc(size_t n, size_t size);
#define calloc(n, size) at_calloc(n, size)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef calloc

#define CHECK(got, want)                                                                                            \
    do {                                                                                                            \
        long long got_ = (long long)(got), want_ = (long long)(want);                                              \
        if (got_ != want_) {                                                                                        \
            fprintf(stderr, "%s: line %d: %s is %lld, not %lld: %s\n", current->name, __LINE__, #got, got_, want_, shmsync_error()); \
            exit(1);                                                                                                \
        }                                                                                                           \
    } while (0)

/* A test. If point is not NULL, the function then is called once, when a call comes to that point. */
struct scene {
    const char *name, *point;
    void (*then)(void);
    void (*run)(void);
};

static const struct scene *current;
static shmsync_arena *arena;
static const char *arena_name;
static pthread_t closer;
static int armed = 1, closing;

void at_point(const char *name)
{
    if (current == NULL || current->point == NULL || strcmp(name, current->point) != 0 || !__atomic_exchange_n(&armed, 0, __ATOMIC_SEQ_CST))
        return;
    current->then();
}

/* While handles is set, an allocation of memory for a handle counts as a point: the thread has handles_of at that
 * time. */
static int handles;
static void *at_calloc(size_t n, size_t size)
{
    if (handles && pthread_mutex_trylock(&arena->handles_of) != 0)
        at_point("handle");
    else if (handles)
        pthread_mutex_unlock(&arena->handles_of);
    return calloc(n, size);
}

static void *close_arena(void *arg)
{
    (void)arg;
    CHECK(shmsync_arena_close(arena), 0);
    return NULL;
}
/* Starts a thread that closes the arena, and returns when calls are refused. */
static void begin_close(void)
{
    closing = 1;
    CHECK(pthread_create(&closer, NULL, close_arena, NULL), 0);
    while (__atomic_load_n(&arena->closing, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
}

/* ---- An anonymous object that is created while the arena is being closed ---- */

#define ANONYMOUS(kind, open)               \
    static void new_##kind(void)            \
    {                                       \
        shmsync_##kind x;                   \
        CHECK(open, EBADF);                 \
    }
ANONYMOUS(mutex, shmsync_mutex_open(arena, "", NULL, &x))
ANONYMOUS(rwmutex, shmsync_rwmutex_open(arena, "", NULL, &x))
ANONYMOUS(spinlock, shmsync_spinlock_open(arena, "", NULL, &x))
ANONYMOUS(rwspinlock, shmsync_rwspinlock_open(arena, "", NULL, &x))
ANONYMOUS(fairmutex, shmsync_fairmutex_open(arena, "", NULL, &x))
ANONYMOUS(multilock, shmsync_multilock_open(arena, "", NULL, &x))
ANONYMOUS(cond, shmsync_cond_open(arena, "", NULL, &x))
ANONYMOUS(semaphore, shmsync_semaphore_open(arena, "", 1, NULL, &x))
ANONYMOUS(futex, shmsync_futex_open(arena, "", NULL, &x))
ANONYMOUS(sequencer, shmsync_sequencer_open(arena, "", NULL, &x))
ANONYMOUS(event, shmsync_event_open(arena, "", NULL, &x))
ANONYMOUS(future, shmsync_future_open(arena, "", NULL, &x))
ANONYMOUS(waitgroup, shmsync_waitgroup_open(arena, "", NULL, &x))
ANONYMOUS(latch, shmsync_latch_open(arena, "", 1, NULL, &x))
ANONYMOUS(once, shmsync_once_open(arena, "", NULL, &x))
ANONYMOUS(barrier, shmsync_barrier_open(arena, "", 1, NULL, &x))
ANONYMOUS(signalwaker, shmsync_signalwaker_open(arena, "", NULL, &x))
ANONYMOUS(synchronized, shmsync_synchronized_open(arena, "", 8, NULL, &x))
static void new_queue(void)
{
    shmsync_queue x;
    shmsync_queue_options o;
    memset(&o, 0, sizeof o);
    o.capacity = 2;
    CHECK(shmsync_queue_open(arena, "", 8, &o, &x), EBADF);
}
/* ---- An object that is opened by its offset while the arena is being closed ---- */

/* The close waits for a call that reads the words of the object. */
static void close_beside(void)
{
    begin_close();
    CHECK(shmi_ld32(&arena->calls) != 0, 1);
}
#define BY_OFFSET(kind, open, at)                          \
    static void at_##kind(void)                            \
    {                                                      \
        shmsync_##kind x;                                  \
        shmsync_offset off;                                \
        CHECK(open, 0);                                    \
        off = shmsync_##kind##_offset(&x);                 \
        CHECK(shmsync_##kind##_close(&x), 0);              \
        handles = 1;                                       \
        CHECK(at, 0);                                      \
        handles = 0;                                       \
    }
#define AT(kind) BY_OFFSET(kind, shmsync_##kind##_open(arena, "x", NULL, &x), shmsync_##kind##_at(arena, off, &x))
AT(mutex)
AT(rwmutex)
AT(spinlock)
AT(rwspinlock)
AT(fairmutex)
AT(multilock)
AT(cond)
AT(futex)
AT(sequencer)
AT(event)
AT(future)
AT(waitgroup)
AT(once)
AT(signalwaker)
BY_OFFSET(semaphore, shmsync_semaphore_open(arena, "x", 1, NULL, &x), shmsync_semaphore_at(arena, off, &x))
BY_OFFSET(latch, shmsync_latch_open(arena, "x", 1, NULL, &x), shmsync_latch_at(arena, off, &x))
BY_OFFSET(barrier, shmsync_barrier_open(arena, "x", 1, NULL, &x), shmsync_barrier_at(arena, off, &x))
BY_OFFSET(synchronized, shmsync_synchronized_open(arena, "x", 8, NULL, &x), shmsync_synchronized_at(arena, off, 8, &x))
BY_OFFSET(queue, shmsync_queue_open(arena, "x", 8, &(shmsync_queue_options){.capacity = 2}, &x), shmsync_queue_at(arena, off, 8, &x))
#define BESIDE(kind) {"open by offset " #kind, "handle", close_beside, at_##kind}

#define NEW(kind) {"anonymous " #kind, "arena.object.before_publish", begin_close, new_##kind}

/* ---- Calls when the open bits are cleared, and the slot may soon belong to another process ---- */

static shmi_object object;

/* Closes an object late: it was opened, and the arena was closed. The bytes of the object may belong to another
 * object by then, which has its bit set. The mapping of this process is replaced by then, so the check needs another. */
static void close_object_late(void)
{
    shmsync_arena *file = (shmsync_arena *)malloc(sizeof *file);
    shmi_header h;
    uint32_t mask, *word;
    *file = *arena;
    file->base = (unsigned char *)mmap(NULL, (size_t)arena->size, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
    CHECK((void *)file->base != MAP_FAILED, 1);
    CHECK(shmi_header_at(file, object.off, &h), 0);
    word = shmi_open_bit(file, &h, arena->my_slot, &mask);
    CHECK(shmi_ld32(word) & mask, 0);
    shmi_or32(word, mask);
    shmi_close_object(arena, object.off);
    CHECK(shmi_ld32(word) & mask, mask);
    shmi_and32(word, ~mask);
}
static void close_object(void)
{
    shmi_spec spec;
    int created;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND('B', 'L', 'O', 'K');
    spec.version = 1;
    spec.name = "x";
    spec.size = 64;
    CHECK(shmi_open_object(arena, &spec, &object, &created), 0);
    CHECK(shmsync_arena_close(arena), 0);
}

static void died(const shmsync_participant *p, void *arg) { (void)p, (void)arg; }
static void on_death_late(void)
{
    uint32_t *caps = shmi_slot32(arena, arena->my_slot, SHMI_slotCaps), before = shmi_ld32(caps);
    CHECK(shmsync_arena_on_death(arena, died, NULL), EBADF);
    CHECK(shmi_ld32(caps), before);
}
static int repair(shmsync_arena *a, const shmsync_lost *lost, void *arg)
{
    (void)a, (void)lost, (void)arg;
    return 0;
}
static void recover_all_late(void) { CHECK(shmsync_recover_all(arena, repair, NULL, NULL), EBADF); }
static void only_close(void) { CHECK(shmsync_arena_close(arena), 0); }

/* Makes a late store by a call that does not count: the slot may be another participant's by now. */
static void store_late(void)
{
    const shmi_off word = shmi_slot(arena, arena->my_slot) + SHMI_slotTelling;
    const unsigned char *file = (const unsigned char *)mmap(NULL, (size_t)arena->size, PROT_READ, MAP_SHARED, arena->fd, 0);
    CHECK((const void *)file != MAP_FAILED, 1);
    shmi_begin_tell(arena);
    CHECK(shmi_ld32((uint32_t *)(uintptr_t)(file + word)), 0);
}

/* ---- A function of a call that the close waits for ---- */

static shmsync_sequencer sequencer;
static shmsync_mutex held;
static void in_call(void *arg)
{
    shmsync_offset off;
    shmsync_mutex m;
    void *block;
    (void)arg;
    CHECK(shmsync_alloc(arena, 64, &off), 0);
    CHECK(shmsync_mutex_lock(&held), 0);
    begin_close();
    CHECK(shmsync_free(arena, off), 0);
    CHECK(shmsync_alloc(arena, 64, &off), 0);
    CHECK(shmsync_free(arena, off), 0);
    CHECK(shmsync_block_open(arena, "block", 64, &block), 0);
    CHECK(shmsync_delete(arena, "gone"), 0);
    CHECK(shmsync_sequencer_wait(&sequencer, 1), EBADF);
    CHECK(shmsync_mutex_open(arena, "", NULL, &m), EBADF);
    CHECK(shmsync_mutex_open(arena, "held", NULL, &m), EBADF);
    CHECK(shmsync_mutex_unlock(&held), 0);
    CHECK(shmsync_mutex_close(&held), 0);
}
static void nested(void)
{
    shmsync_once once;
    shmsync_event gone;
    CHECK(shmsync_sequencer_open(arena, "sequencer", NULL, &sequencer), 0);
    CHECK(shmsync_mutex_open(arena, "held", NULL, &held), 0);
    CHECK(shmsync_event_open(arena, "gone", NULL, &gone), 0);
    CHECK(shmsync_event_close(&gone), 0);
    CHECK(shmsync_once_open(arena, "once", NULL, &once), 0);
    CHECK(shmsync_once_do(&once, in_call, NULL), 0);
}

/* ---- Lock calls that a close refuses. A function for which the close waits still unlocks and recovers these locks. ---- */

static shmsync_fairmutex fair;
static shmsync_multilock keys;
static shmsync_hold key;
static shmsync_rwmutex read_locked, ownerless;
static void *lock_all(void *arg)
{
    shmsync_hold h;
    (void)arg;
    CHECK(shmsync_fairmutex_lock(&fair), EBADF);
    CHECK(shmsync_multilock_lock(&keys, 1, &h), EBADF);
    CHECK(shmsync_rwmutex_lock(&read_locked), EBADF);
    CHECK(shmsync_rwmutex_lock(&ownerless), EBADF);
    CHECK(shmsync_rwmutex_lock_upgradable(&ownerless), EBADF);
    return NULL;
}
static int repaired(void *arg)
{
    (void)arg;
    return 0;
}
static void unlock_all(void *arg)
{
    pthread_t other;
    (void)arg;
    begin_close();
    CHECK(pthread_create(&other, NULL, lock_all, NULL), 0);
    CHECK(pthread_join(other, NULL), 0);
    CHECK(shmsync_fairmutex_unlock(&fair), 0);
    CHECK(shmsync_multilock_unlock(&key), 0);
    CHECK(shmsync_rwmutex_rdunlock(&read_locked), 0);
    CHECK(shmsync_rwmutex_trylock(&read_locked), 0);
    CHECK(shmsync_rwmutex_recover(&ownerless, repaired, NULL), 0);
}
/* A child of this process dies with the lock held. */
static void make_ownerless(void)
{
    pid_t child = fork();
    if (child == 0) {
        CHECK(shmsync_arena_open(arena_name, NULL, &arena), 0);
        CHECK(shmsync_rwmutex_open(arena, "ownerless", NULL, &ownerless), 0);
        CHECK(shmsync_rwmutex_lock(&ownerless), 0);
        _exit(0);
    }
    CHECK(waitpid(child, NULL, 0), child);
    CHECK(shmsync_rwmutex_open(arena, "ownerless", NULL, &ownerless), 0);
    CHECK(shmsync_rwmutex_lock(&ownerless), EOWNERDEAD);
}
static void refused(void)
{
    shmsync_once once;
    make_ownerless();
    CHECK(shmsync_rwmutex_open(arena, "read", NULL, &read_locked), 0);
    CHECK(shmsync_rwmutex_rdlock(&read_locked), 0);
    CHECK(shmsync_fairmutex_open(arena, "fair", NULL, &fair), 0);
    CHECK(shmsync_multilock_open(arena, "keys", NULL, &keys), 0);
    CHECK(shmsync_fairmutex_lock(&fair), 0);
    CHECK(shmsync_multilock_lock(&keys, 1, &key), 0);
    CHECK(shmsync_once_open(arena, "once", NULL, &once), 0);
    CHECK(shmsync_once_do(&once, unlock_all, NULL), 0);
}

static const struct scene scenes[] = {
    NEW(mutex), NEW(rwmutex), NEW(spinlock), NEW(rwspinlock), NEW(fairmutex), NEW(multilock), NEW(cond), NEW(semaphore),
    NEW(futex), NEW(sequencer), NEW(event), NEW(future), NEW(waitgroup), NEW(latch), NEW(once), NEW(barrier),
    NEW(signalwaker), NEW(synchronized), NEW(queue),
    BESIDE(mutex), BESIDE(rwmutex), BESIDE(spinlock), BESIDE(rwspinlock), BESIDE(fairmutex), BESIDE(multilock), BESIDE(cond),
    BESIDE(futex), BESIDE(sequencer), BESIDE(event), BESIDE(future), BESIDE(waitgroup), BESIDE(once), BESIDE(signalwaker),
    BESIDE(semaphore), BESIDE(latch), BESIDE(barrier), BESIDE(synchronized), BESIDE(queue),
    {"close of an object", "arena.close.unregistered", close_object_late, close_object},
    {"on_death", "arena.close.unregistered", on_death_late, only_close},
    {"recover_all", "arena.close.unregistered", recover_all_late, only_close},
    {"late store", "arena.close.freed", store_late, only_close},
    {"nested calls", NULL, NULL, nested},
    {"refused locks", NULL, NULL, refused},
};

int main(int argc, char **argv)
{
    const size_t count = sizeof scenes / sizeof *scenes;
    size_t i;
    if (argc == 2) {
        for (i = 0; i < count; i++)
            puts(scenes[i].name);
        return 0;
    }
    i = argc == 3 ? (size_t)atoi(argv[1]) : count;
    if (i >= count)
        return 2;
    alarm(60);
    current = &scenes[i];
    arena_name = argv[2];
    CHECK(shmsync_arena_open(argv[2], NULL, &arena), 0);
    current->run();
    if (closing)
        CHECK(pthread_join(closer, NULL), 0);
    CHECK(armed, current->point == NULL); /* the call came to the point */
    return 0;
}
