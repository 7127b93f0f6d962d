/* Tests an RWMutex with an undo log in C, at moments when the writers' mutex and the gate belong to different
 * processes: rollbacks ARENA VERB. SIGALRM ends a test that hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

/* IDs of participants that never existed, so that they count as gone. */
enum { GONE = 1 << 11 | 9, OTHER = 1 << 11 | 10 };

static shmsync_arena *arena;
static shmsync_rwmutex lock;
static uint64_t *value;
static unsigned char records[64];
static uint32_t n_records;
static const char *point;  /* the point at which at_point calls f */
static void (*f)(void);
static int met, left_to_meet;

static pthread_t program;     /* the thread that runs main */
static int rollbacks_by_call; /* that this thread has begun */

void at_point(const char *name)
{
    const char *at = __atomic_load_n(&point, __ATOMIC_ACQUIRE); /* another thread may disarm */
    if ((strcmp(name, "rwmutex.rollback.taken") == 0 || strcmp(name, "tx.rollback.taken") == 0) && pthread_equal(pthread_self(), program))
        rollbacks_by_call++;
    if (at == NULL || strcmp(name, at) != 0 || __atomic_sub_fetch(&left_to_meet, 1, __ATOMIC_SEQ_CST) != 0)
        return;
    met++;
    f();
}
static void arm(const char *name, int n, void (*call)(void))
{
    __atomic_store_n(&left_to_meet, n, __ATOMIC_SEQ_CST);
    f = call;
    met = 0;
    __atomic_store_n(&point, name, __ATOMIC_RELEASE);
}

static void open_lock(void)
{
    shmsync_rwmutex_options opts;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_rwmutex_open(arena, "rw", &opts, &lock), 0);
}
static void make(void)
{
    void *p;
    shmsync_tx tx;
    CHECK(shmsync_block_open(arena, "value", sizeof *value, &p), 0);
    value = (uint64_t *)p;
    *value = 3;
    open_lock();
    CHECK(shmsync_rwmutex_begin(&lock, &tx), 0);
    CHECK(shmsync_tx_save(&tx, value, sizeof *value), 0);
    n_records = (uint32_t)shmi_ld64(&lock.impl->log.head->state);
    CHECK(n_records <= sizeof records, 1);
    memcpy(records, lock.impl->log.records, n_records);
    CHECK(shmsync_tx_abort(&tx), 0);
}
/* Leaves the gate and the log in the state in which GONE leaves them if it dies in a transaction. */
static void leave(void)
{
    *value = 5;
    memcpy(lock.impl->log.records, records, n_records);
    shmi_st64(&lock.impl->log.head->state, shmi_make_log(SHMI_logActive, GONE, n_records));
    shmi_st32(lock.impl->gate, GONE);
}
static void reap(shmi_participant_id dead)
{
    shmi_object o;
    shmi_header h;
    CHECK(shmi_header_at(arena, lock.impl->o.off, &h), 0);
    o = h.o;
    pthread_mutex_lock(&arena->reaping);
    shmi_repair_rwmutex(arena, &o, dead);
    pthread_mutex_unlock(&arena->reaping);
}
static void idle(void)
{
    CHECK(*value, 3);
    CHECK(shmi_ld32(lock.impl->gate), 0);
    CHECK(shmi_ld64(&lock.impl->log.head->state), 0);
    CHECK(shmsync_rwmutex_trylock(&lock), 0);
    CHECK(shmsync_rwmutex_unlock(&lock), 0);
}

/* A reader that comes while another thread has the mutex, and is about to roll back, does not wait for the mutex.
 * The thread that locks upgradable comes to the point that leaves the gate; after that the reader comes to a point
 * of its own. */
static int upgradable_end;
static void reader_looked(void)
{
    __atomic_store_n(&upgradable_end, 1, __ATOMIC_SEQ_CST);
}
static void *reads(void *arg)
{
    (void)arg;
    CHECK(shmsync_rwmutex_rdlock(&lock), 0);
    CHECK(*value, 3);
    CHECK(shmsync_rwmutex_rdunlock(&lock), 0);
    return NULL;
}
static pthread_t reader_thread;
static void queued(void)
{
    leave();
    arm("rwmutex.rlock.woken", 3, reader_looked);
    CHECK(pthread_create(&reader_thread, NULL, reads, NULL), 0);
    while (!__atomic_load_n(&upgradable_end, __ATOMIC_SEQ_CST))
        sched_yield();
}
static void reader(void)
{
    arm("rwmutex.lock.queued", 1, queued);
    CHECK(shmsync_rwmutex_lock_upgradable(&lock), 0);
    CHECK(pthread_join(reader_thread, NULL), 0); /* the reader reads beside the upgradable hold */
    CHECK(shmsync_rwmutex_unlock_upgradable(&lock), 0);
    idle();
}

/* When a process leaves with a write hold, it opens the gate before it frees the writers' mutex. */
static uint32_t *gate_of;
static void mutex_is_free(void) { CHECK(shmi_ld32(gate_of), 0); }
static void leaves(void)
{
    gate_of = lock.impl->gate;
    CHECK(shmsync_rwmutex_lock(&lock), 0);
    arm("mutex.owner_dead.marked", 1, mutex_is_free);
    CHECK(shmsync_arena_close(arena), 0);
    CHECK(met, 1);
}

/* The holder of the mutex dies before it has rolled back for another process. */
static void another(void)
{
    leave();
    shmi_st32(&lock.impl->ww->owner, OTHER);
    reap(GONE);
    CHECK(shmi_rw_who(shmi_rw_gate(lock.impl)), GONE); /* the mutex is not free */
    reap(OTHER);
    idle();
}

/* A reaper comes while a call that is not a lock has the mutex. */
static void reaper_comes(void)
{
    leave();
    reap(GONE);
}
static void gives_up(void)
{
    CHECK(shmsync_rwmutex_rdlock(&lock), 0); /* so that trylock does not read the gate */
    arm("rwmutex.lock.queued", 1, reaper_comes);
    CHECK(shmsync_rwmutex_trylock(&lock), EBUSY);
    CHECK(met, 1);
    CHECK(shmsync_rwmutex_rdunlock(&lock), 0);
    idle();
}
/* The same for a reader that has the mutex because it rolls back. It finds a log that no correct process leaves. */
static void reader_gives_up(void)
{
    shmi_st64(&lock.impl->log.head->state, shmi_make_log(SHMI_logActive, GONE, 1));
    shmi_st32(lock.impl->gate, GONE);
    lock.impl->writers.bias = 0; /* an unlock of a biased mutex has no point */
    arm("mutex.unlock.before_release", 1, reaper_comes);
    CHECK(shmsync_rwmutex_tryrdlock(&lock), EBUSY);
    CHECK(met, 1);
    idle();
}

/* A handle is made while the reaper of this process has the mutex. */
static struct shmi_rwmutex kept;
static void opens(void)
{
    open_lock();
    CHECK(shmsync_rwmutex_unlock_upgradable(&lock), EPERM);
    CHECK(shmsync_rwmutex_trylock(&lock), EBUSY);
}
static void open_beside(void)
{
    shmi_object o = lock.impl->o;
    leave();
    kept.o = o;
    CHECK(shmsync_rwmutex_close(&lock), 0);
    arm("rwmutex.rollback.opened", 1, opens);
    pthread_mutex_lock(&arena->reaping);
    shmi_repair_rwmutex(arena, &kept.o, GONE);
    pthread_mutex_unlock(&arena->reaping);
    CHECK(met, 1);
    idle();
    CHECK(shmsync_rwmutex_lock_upgradable(&lock), 0);
    CHECK(shmsync_rwmutex_close(&lock), 0);
    open_lock();
    CHECK(shmsync_rwmutex_unlock_upgradable(&lock), 0);
    idle();
}

/* A peer rewrites the gate each time that the reaper is about to change it. */
static int rewrites;
static void rewrite(void)
{
    CHECK(++rewrites < 1000, 1);
    shmi_st32(gate_of, rewrites % 2 != 0 ? shmi_make_owner(SHMI_GATE_RECOVERING, GONE) : GONE);
    arm("arena.act.verified", 1, rewrite);
}
static void rewriter(void)
{
    gate_of = lock.impl->gate;
    leave();
    arm("arena.act.verified", 1, rewrite);
    reap(GONE);
    __atomic_store_n(&point, NULL, __ATOMIC_RELEASE);
    CHECK(rewrites > 1, 1);
    CHECK(*value, 5);
    CHECK(shmsync_rwmutex_lock(&lock), 0);
    CHECK(shmsync_rwmutex_unlock(&lock), 0);
    idle();
}

/* ---- A close of the arena beside a call that rolls back and need not wait ---- */

static shmsync_mutex mutex;
/* Leaves the Mutex in the state in which GONE leaves it if it dies in a transaction. */
static void leave_mutex(void)
{
    shmsync_mutex_options opts;
    shmsync_tx tx;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_mutex_open(arena, "mutex", &opts, &mutex), 0);
    CHECK(shmsync_mutex_begin(&mutex, &tx), 0);
    CHECK(shmsync_tx_save(&tx, value, sizeof *value), 0);
    n_records = (uint32_t)shmi_ld64(&mutex.impl->log.head->state);
    CHECK(n_records <= sizeof records, 1);
    memcpy(records, mutex.impl->log.records, n_records);
    CHECK(shmsync_tx_abort(&tx), 0);
    *value = 5;
    memcpy(mutex.impl->log.records, records, n_records);
    shmi_st64(&mutex.impl->log.head->state, shmi_make_log(SHMI_logActive, GONE, n_records));
    shmi_st32(mutex.impl->own, GONE);
}
static void call_lock(void) { shmsync_rwmutex_lock(&lock); }
static void call_trylock(void) { shmsync_rwmutex_trylock(&lock); }
static void call_tryrdlock(void) { shmsync_rwmutex_tryrdlock(&lock); }
static void call_lock_upgradable(void) { shmsync_rwmutex_lock_upgradable(&lock); }
static void call_try_lock_upgradable(void) { shmsync_rwmutex_try_lock_upgradable(&lock); }
static void call_mutex_trylock(void) { shmsync_mutex_trylock(&mutex); }
static const struct {
    void (*leave)(void), (*call)(void);
    int uncounted; /* the close of an arena does not wait for it when it comes to rwmutex.lock.queued */
} calls[] = {
    {leave, call_lock, 1}, {leave, call_trylock, 1}, {leave, call_lock_upgradable, 0}, {leave, call_tryrdlock, 0},
    {leave, call_try_lock_upgradable, 0}, {leave_mutex, call_mutex_trylock, 0},
};

static const char *arena_name;
static pthread_t closer;
static void *close_arena(void *arg)
{
    (void)arg;
    CHECK(shmsync_arena_close(arena), 0);
    return NULL;
}
static void begin_close(void)
{
    CHECK(pthread_create(&closer, NULL, close_arena, NULL), 0);
    while (__atomic_load_n(&arena->closing, __ATOMIC_SEQ_CST) == 0)
        sched_yield();
}
/* The close has to wait for another call, too, so it does not roll back before this call could. */
static int other_call;
static void close_beside_other(void)
{
    other_call = 1;
    shmi_add32(&arena->calls, 1);
    begin_close();
}
static void close_waits(void)
{
    begin_close();
    CHECK(shmi_ld32(&arena->calls) != 0, 1);
}
/* Makes a call, and begins a close of the arena when the call comes to a point. The call has to make that many
 * rollbacks. After the close, the transaction is undone. */
static void call_beside_close(size_t i, const char *at, void (*then)(void), int rollbacks)
{
    void *p;
    calls[i].leave();
    arm(at, 1, then);
    rollbacks_by_call = 0;
    calls[i].call();
    CHECK(met, 1);
    CHECK(rollbacks_by_call, rollbacks);
    if (other_call)
        shmi_add32(&arena->calls, (uint32_t)-1);
    other_call = 0;
    __atomic_store_n(&point, NULL, __ATOMIC_RELEASE);
    CHECK(pthread_join(closer, NULL), 0);
    CHECK(shmsync_arena_open(arena_name, NULL, &arena), 0);
    CHECK(shmsync_block_open(arena, "value", sizeof *value, &p), 0);
    CHECK(*(uint64_t *)p, 3);
    make();
}
static void counted(void)
{
    size_t i;
    for (i = 0; i < sizeof calls / sizeof *calls; i++)
        call_beside_close(i, "tx.undo.range", close_waits, 1);
}
/* A call that has the writers' mutex when the close begins leaves the rollback to the close. */
static void uncounted(void)
{
    size_t i;
    for (i = 0; i < sizeof calls / sizeof *calls; i++)
        if (calls[i].uncounted)
            call_beside_close(i, "rwmutex.lock.queued", close_beside_other, 0);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } verbs[] = {{"reader", reader}, {"leaves", leaves}, {"another", another}, {"gives up", gives_up}, {"reader gives up", reader_gives_up}, {"open", open_beside}, {"rewriter", rewriter},
                 {"counted", counted}, {"uncounted", uncounted}};
    size_t i;
    if (argc != 3)
        return 2;
    alarm(300);
    program = pthread_self();
    arena_name = argv[1];
    CHECK(shmsync_arena_open(arena_name, NULL, &arena), 0);
    make();
    for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[2], verbs[i].name) == 0) {
            verbs[i].run();
            if (strcmp(argv[2], "leaves") != 0)
                CHECK(shmsync_arena_close(arena), 0);
            return 0;
        }
    return 2;
}
