/* Tests an RWMutex with an undo log in C, at moments when the writers' mutex and the gate belong to different
 * processes: rollbacks ARENA VERB. SIGALRM ends a test that hangs. */
static void at_point(const char *name);
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

static void at_point(const char *name)
{
    if (point == NULL || strcmp(name, point) != 0 || --left_to_meet != 0)
        return;
    met++;
    f();
}
static void arm(const char *name, int n, void (*call)(void))
{
    point = name;
    left_to_meet = n;
    f = call;
    met = 0;
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
    point = NULL;
    CHECK(rewrites > 1, 1);
    CHECK(*value, 5);
    CHECK(shmsync_rwmutex_lock(&lock), 0);
    CHECK(shmsync_rwmutex_unlock(&lock), 0);
    idle();
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } verbs[] = {{"reader", reader}, {"leaves", leaves}, {"another", another}, {"gives up", gives_up}, {"open", open_beside}, {"rewriter", rewriter}};
    size_t i;
    if (argc != 3)
        return 2;
    alarm(300);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
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
