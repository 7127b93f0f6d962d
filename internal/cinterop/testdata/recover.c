/* Tests that shmsync_recover_all leaves healthy objects alone and reports every failure: recover VERB NAME. Exit
 * status 0 if all results were right; SIGALRM ends a test that hangs. */
#define _GNU_SOURCE 1
#include <stdlib.h>

void at_point(const char *name);
static int memory = -1; /* how many more calls of realloc succeed, if it is not negative */
static void *reallocate(void *p, size_t n) { return memory == 0 || (memory > 0 && memory-- == 0) ? NULL : realloc(p, n); }
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#define realloc reallocate
#include "shmsync.h"

#include "check.h"
#include "processes.h"

static int points, die_at, counting; /* points: how many were met since counting was set */

void at_point(const char *name)
{
    (void)name;
    if (counting && ++points == die_at)
        kill(getpid(), SIGKILL);
}

typedef struct all {
    shmsync_arena *a;
    shmsync_mutex mutex;
    shmsync_rwmutex rw;
    shmsync_fairmutex fair;
    shmsync_spinlock spin;
    shmsync_rwspinlock rwspin;
    shmsync_multilock multi;
    shmsync_waitgroup group;
    shmsync_latch latch;
    shmsync_barrier barrier;
    shmsync_future future;
} all;

static void open_all(const char *name, all *x)
{
    memset(x, 0, sizeof *x);
    CHECK(shmsync_arena_open(name, NULL, &x->a), 0);
    CHECK(shmsync_mutex_open(x->a, "mutex", NULL, &x->mutex), 0);
    CHECK(shmsync_rwmutex_open(x->a, "rwmutex", NULL, &x->rw), 0);
    CHECK(shmsync_fairmutex_open(x->a, "fair", NULL, &x->fair), 0);
    CHECK(shmsync_spinlock_open(x->a, "spin", NULL, &x->spin), 0);
    CHECK(shmsync_rwspinlock_open(x->a, "rwspin", NULL, &x->rwspin), 0);
    CHECK(shmsync_multilock_open(x->a, "multi", NULL, &x->multi), 0);
    CHECK(shmsync_waitgroup_open(x->a, "group", NULL, &x->group), 0);
    CHECK(shmsync_latch_open(x->a, "latch", 4, NULL, &x->latch), 0);
    CHECK(shmsync_barrier_open(x->a, "barrier", 2, NULL, &x->barrier), 0);
    CHECK(shmsync_future_open(x->a, "future", NULL, &x->future), 0);
}

static int unwanted(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)arg;
    fprintf(stderr, "%s %s is lost: %d\n", l->kind, l->name, l->err);
    return EIO;
}
static int nothing(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return 0;
}

/* If a process is killed at any point in a recover_all of healthy objects, the objects stay healthy, because it has
 * locked none of them. */
static void healthy(const char *name)
{
    all x;
    int n, status;
    pid_t p;
    shmsync_hold h;
    open_all(name, &x);
    for (n = 1;; n++) {
        p = fork();
        if (p == 0) {
            all y;
            size_t recovered;
            open_all(name, &y);
            die_at = n;
            counting = 1;
            CHECK(shmsync_recover_all(y.a, unwanted, NULL, &recovered), 0);
            CHECK(recovered, 0);
            _exit(0);
        }
        CHECK(waitpid(p, &status, 0), p);
        CHECK(shmsync_mutex_lock(&x.mutex), 0);
        CHECK(shmsync_mutex_unlock(&x.mutex), 0);
        CHECK(shmsync_rwmutex_lock(&x.rw), 0);
        CHECK(shmsync_rwmutex_unlock(&x.rw), 0);
        CHECK(shmsync_fairmutex_lock(&x.fair), 0);
        CHECK(shmsync_fairmutex_unlock(&x.fair), 0);
        CHECK(shmsync_spinlock_lock(&x.spin), 0);
        CHECK(shmsync_spinlock_unlock(&x.spin), 0);
        CHECK(shmsync_rwspinlock_lock(&x.rwspin), 0);
        CHECK(shmsync_rwspinlock_unlock(&x.rwspin), 0);
        CHECK(shmsync_multilock_lock(&x.multi, 7, &h), 0);
        CHECK(shmsync_multilock_unlock(&h), 0);
        if (WIFEXITED(status))
            break;
        CHECK(WTERMSIG(status), SIGKILL);
    }
    CHECK(WEXITSTATUS(status), 0);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* A recover_all by a participant that has opened no object finds nothing, since all objects are healthy. */
static void newcomer(const char *name)
{
    shmsync_arena *a;
    size_t n;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    CHECK(shmsync_recover_all(a, unwanted, NULL, &n), 0);
    CHECK(n, 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Makes objects lost: a process that holds them dies. */
static void lose(const char *name, void (*hold)(all *x))
{
    pid_t p = fork();
    if (p == 0) {
        all x;
        open_all(name, &x);
        hold(&x);
        kill(getpid(), SIGKILL);
    }
    await_kill(p);
}
static void hold_mutex_and_future(all *x)
{
    CHECK(shmsync_mutex_lock(&x->mutex), 0);
    CHECK(shmsync_future_claim(&x->future), 0);
}
static void hold_key(all *x)
{
    shmsync_hold h;
    CHECK(shmsync_multilock_lock(&x->multi, 7, &h), 0);
}
static void undertake(all *x)
{
    CHECK(shmsync_waitgroup_add(&x->group, 2), 0);
    CHECK(shmsync_latch_claim(&x->latch, 1), 0);
    CHECK(shmsync_barrier_register(&x->barrier, 1), 0);
}
static void hold_six(all *x)
{
    hold_mutex_and_future(x);
    hold_key(x);
    undertake(x);
}
static void hold_locks(all *x)
{
    CHECK(shmsync_mutex_lock(&x->mutex), 0);
    CHECK(shmsync_rwmutex_lock(&x->rw), 0);
    CHECK(shmsync_fairmutex_lock(&x->fair), 0);
    CHECK(shmsync_spinlock_lock(&x->spin), 0);
    CHECK(shmsync_rwspinlock_lock(&x->rwspin), 0);
    hold_key(x);
}
static void hold_all(all *x)
{
    hold_locks(x);
    undertake(x);
    CHECK(shmsync_future_claim(&x->future), 0);
}

static int sets(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    shmsync_future f;
    (void)arg;
    if (strcmp(l->name, "future") != 0)
        return 0;
    CHECK(shmsync_future_attach(a, "future", NULL, &f), 0);
    CHECK(shmsync_future_reset(&f), 0);
    CHECK(shmsync_future_set(&f, 7), 0);
    CHECK(shmsync_future_close(&f), 0);
    return 0;
}
/* If repair sets a future whose producer has died, its result stays. */
static void kept(const char *name)
{
    static const struct timespec past = {0, 1};
    all x;
    size_t n;
    int result = 0;
    lose(name, hold_six);
    open_all(name, &x);
    CHECK(shmsync_recover_all(x.a, sets, NULL, &n), 0);
    CHECK(n, 6);
    CHECK(shmsync_future_timedwait(&x.future, &result, &past), 0);
    CHECK(result, 7);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* recover_all returns ENOMEM if it had no memory, and EPROTO for an object that a peer has overwritten. It goes on
 * with the other objects. */
static void damage(const char *name)
{
    all x;
    size_t n;
    uint64_t *size;
    uint32_t *policy;
    lose(name, hold_six);
    open_all(name, &x);
    memory = 0; /* the list of objects fails */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), ENOMEM);
    CHECK(n, 0);
    memory = 1; /* the list of keys of the multilock fails */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), ENOMEM);
    CHECK(n, 5);
    memory = -1;
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), 0);
    CHECK(n, 1);

    lose(name, hold_mutex_and_future);
    size = shmi_u64(x.a, shmsync_fairmutex_offset(&x.fair) + SHMI_objSize);
    policy = shmi_u32(x.a, shmsync_mutex_offset(&x.mutex) + SHMI_objectHeader + offsetof(shmi_mutex_words, policy));
    shmi_st64(size, UINT64_C(1) << 40);
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), EPROTO);
    CHECK(n, 2);
    shmi_st64(size, sizeof(shmi_fairmutex_words));
    lose(name, hold_mutex_and_future);
    shmi_st32(policy, SHMI_POLICY_ROLLBACK); /* a lock of that policy has a log, and this one has none */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), EPROTO);
    CHECK(n, 1);
    shmi_st32(policy, SHMI_POLICY_REPORT);
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), 0);
    CHECK(n, 1);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* Joins the arena in a new process, which stops before it runs a recover_all and checks the results. */
static pid_t finder(const char *name, int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg), int err, size_t want)
{
    pid_t p = fork();
    if (p == 0) {
        shmsync_arena *a;
        size_t n;
        CHECK(shmsync_arena_open(name, NULL, &a), 0);
        raise(SIGSTOP);
        CHECK(shmsync_recover_all(a, repair, NULL, &n), err);
        CHECK(n, want);
        _exit(0);
    }
    await_stop(p);
    return p;
}
static void finds(const char *name, int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg), int err, size_t want)
{
    goes_on(finder(name, repair, err, want));
}
static int refuses(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return EIO;
}
/* A recover_all that has opened no object finds a corrupt list of slot records. */
static void find_bad_lists(const char *name, all *x)
{
    size_t i;
    shmsync_offset off[] = {
        shmsync_rwmutex_offset(&x->rw), shmsync_fairmutex_offset(&x->fair), shmsync_rwspinlock_offset(&x->rwspin), shmsync_multilock_offset(&x->multi),
        shmsync_waitgroup_offset(&x->group), shmsync_latch_offset(&x->latch), shmsync_barrier_offset(&x->barrier),
    };
    for (i = 0; i < sizeof off / sizeof off[0]; i++) {
        uint32_t *head = shmi_u32(x->a, off[i] + SHMI_objRecords), was = shmi_ld32(head);
        shmi_st32(head, (uint32_t)(shmsync_mutex_offset(&x->mutex) / SHMI_blockMin)); /* the block of another object */
        finds(name, unwanted, EPROTO, 0);
        shmi_st32(head, was);
        finds(name, unwanted, 0, 0);
    }
}
/* A recover_all that has opened no object finds each object that a death has made unusable, whether a process has noticed
 * the death or not, also if a repair has failed since. */
static void found(const char *name)
{
    enum { objects = 10 };
    all x;
    int round;
    open_all(name, &x);
    find_bad_lists(name, &x);
    for (round = 0; round < 2; round++) {
        if (round == 1) { /* the counters have shares of two participants */
            CHECK(shmsync_waitgroup_add(&x.group, 1), 0);
            CHECK(shmsync_latch_claim(&x.latch, 1), 0);
        }
        lose(name, hold_all);
        finds(name, refuses, ENOTRECOVERABLE, 0); /* the locks and the key become not recoverable */
        finds(name, nothing, 0, objects);
        finds(name, unwanted, 0, 0);
    }
    find_bad_lists(name, &x);
    CHECK(shmsync_arena_close(x.a), 0);
}

static void hold_upgradable(all *x) { CHECK(shmsync_rwspinlock_uplock(&x->rwspin), 0); }
static void hold_rwmutex(all *x) { CHECK(shmsync_rwmutex_lock(&x->rw), 0); }
static int spin_recovers(all *x) { return shmi_owner_kind(shmi_spin_state(x->rwspin.impl)) == SHMI_SPIN_RECOVERING; }
static int writer_waits(all *x) { return shmi_wake_word_announced(&x->rw.impl->writers.line); }
/* Continues p, and waits until is(x) is true. p must not end before. */
static void goes_on_until(pid_t p, int (*is)(all *x), all *x)
{
    int status;
    CHECK(kill(p, SIGCONT), 0);
    while (!is(x)) {
        CHECK(waitpid(p, &status, WNOHANG), 0);
        sched_yield();
    }
}
/* A recover_all finds a lock that a death has left, although a living process reads, or has begun to lock. */
static void busy(const char *name)
{
    all x;
    pid_t p;
    open_all(name, &x);
    CHECK(shmsync_rwspinlock_rdlock(&x.rwspin), 0);
    lose(name, hold_upgradable);
    while (shmsync_rwspinlock_state(&x.rwspin) != EOWNERDEAD)
        sched_yield();
    p = finder(name, nothing, 0, 1);
    goes_on_until(p, spin_recovers, &x);
    CHECK(shmsync_rwspinlock_rdunlock(&x.rwspin), 0);
    goes_on(p);
    CHECK(shmsync_rwspinlock_lock(&x.rwspin), 0);
    CHECK(shmsync_rwspinlock_unlock(&x.rwspin), 0);

    lose(name, hold_rwmutex);
    while (shmsync_rwmutex_state(&x.rw) != EOWNERDEAD)
        sched_yield();
    CHECK(shmi_mutex_lock(&x.rw.impl->writers, 0), 0); /* as a lock does before it looks at the gate */
    CHECK(writer_waits(&x), 0);
    p = finder(name, nothing, 0, 1);
    goes_on_until(p, writer_waits, &x);
    CHECK(shmi_mutex_unlock(&x.rw.impl->writers), 0);
    goes_on(p);
    CHECK(shmsync_rwmutex_lock(&x.rw), 0);
    CHECK(shmsync_rwmutex_unlock(&x.rw), 0);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* Opens the object of that name, and changes it so that the death of this process makes it unusable, if holds is set. A
 * counter has a share of a process with holds 0, too. */
static void use(shmsync_arena *a, const char *object, int holds)
{
    all x;
    shmsync_hold h;
    if (strcmp(object, "rwmutex") == 0) {
        CHECK(shmsync_rwmutex_open(a, object, NULL, &x.rw), 0);
        CHECK(holds ? shmsync_rwmutex_lock(&x.rw) : 0, 0);
    } else if (strcmp(object, "fair") == 0) {
        CHECK(shmsync_fairmutex_open(a, object, NULL, &x.fair), 0);
        CHECK(holds ? shmsync_fairmutex_lock(&x.fair) : 0, 0);
    } else if (strcmp(object, "rwspin") == 0) {
        CHECK(shmsync_rwspinlock_open(a, object, NULL, &x.rwspin), 0);
        CHECK(holds ? shmsync_rwspinlock_lock(&x.rwspin) : 0, 0);
    } else if (strcmp(object, "multi") == 0) {
        CHECK(shmsync_multilock_open(a, object, NULL, &x.multi), 0);
        CHECK(holds ? shmsync_multilock_lock(&x.multi, 7, &h) : 0, 0);
    } else if (strcmp(object, "group") == 0) {
        CHECK(shmsync_waitgroup_open(a, object, NULL, &x.group), 0);
        CHECK(shmsync_waitgroup_add(&x.group, 2), 0);
    } else if (strcmp(object, "latch") == 0) {
        CHECK(shmsync_latch_open(a, object, 4, NULL, &x.latch), 0);
        CHECK(shmsync_latch_claim(&x.latch, 1), 0);
    } else {
        CHECK(shmsync_barrier_open(a, object, 2, NULL, &x.barrier), 0);
        CHECK(holds ? shmsync_barrier_register(&x.barrier, 1) : 0, 0);
    }
}
/* Takes all memory of the arena that shmsync_alloc returns. Returns one of the blocks. */
static shmsync_offset take_data(shmsync_arena *a)
{
    shmsync_offset off, one = 0;
    uint64_t size;
    for (size = 64 << 10; size >= 64; size -= 64) /* each class of blocks */
        while (shmsync_alloc(a, size, &off) == 0)
            one = one != 0 ? one : off;
    return one;
}
/* Returns how many chunks of the headroom are in use. */
static uint64_t headroom_used(shmsync_arena *a)
{
    uint64_t i, n = 0;
    for (i = 0; i < a->geo.chunk_count; i++)
        n += shmi_room_of(a, i) != SHMI_roomOfAll && shmi_chunk_kind(shmi_load_chunk(a, i)) != SHMI_chunkFree;
    return n;
}
/* Takes all memory that slot records of Waitables with a large state can have. Returns how many chunks these are. */
static uint64_t fill_with_large_records(shmsync_arena *a)
{
    shmi_object o;
    shmi_off off;
    uint64_t n;
    memset(&o, 0, sizeof o);
    for (n = 0; shmi_claim_listed(a, &o, 384, 1, &off) == 0; n++)
        ;
    CHECK(strstr(shmsync_error(), "the headroom has no room for so large a slot record") != NULL, 1);
    CHECK(n, headroom_used(a) * shmi_blocks_of(shmi_class_for(384, 1)));
    CHECK(shmi_claim_listed(a, &o, 40000, 1, &off), ENOSPC);
    CHECK(strstr(shmsync_error(), "the headroom has no room for so large a slot record") != NULL, 1);
    return headroom_used(a);
}
/* The arena is full, and two users of an object die at the same time. No other process has a slot record of the object, so
 * a reaper cannot always mark it. The headroom has room for the slot record that a recover_all needs for the recovery. If
 * the headroom is full, too, it says that there is no room. When there is room, it recovers the object. Large slot records
 * do not fill the headroom. */
static void full(const char *name, const char *object, int headroom)
{
    shmsync_arena *a;
    shmsync_offset off, room = 0;
    shmi_object o;
    pid_t p[2], first;
    uint64_t large = 0;
    int i;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    /* a process that joins later may get the slot of a dead one */
    first = headroom ? finder(name, nothing, 0, 1) : finder(name, unwanted, ENOSPC, 0);
    for (i = 0; i < 2; i++) {
        p[i] = fork();
        if (p[i] == 0) {
            shmsync_arena *mine;
            CHECK(shmsync_arena_open(name, NULL, &mine), 0);
            use(mine, object, i);
            raise(SIGSTOP);
            _exit(1);
        }
        await_stop(p[i]);
    }
    room = take_data(a);
    CHECK(headroom_used(a), 0);
    memset(&o, 0, sizeof o);
    if (!headroom)
        while (shmi_claim_listed(a, &o, 256, 1, &off) == 0)
            ;
    else
        large = fill_with_large_records(a);
    for (i = 0; i < 2; i++)
        kill(p[i], SIGKILL); /* a stopped process reaps nobody */
    for (i = 0; i < 2; i++)
        await_kill(p[i]);
    goes_on(first);
    if (headroom) {
        CHECK(large, 3); /* of the 7 chunks for slot records, as in Go */
        /* Two participants may need a slot record at the same time: this one, which reaps, and the first one. Then each
         * may find no slab with a free block, and make one. */
        CHECK(headroom_used(a) > large, 1);
        CHECK(headroom_used(a) <= large + 2, 1);
    } else {
        CHECK(shmsync_free(a, room), 0);
        finds(name, nothing, 0, 1);
    }
    finds(name, unwanted, 0, 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Objects that the death of a process does not make unusable. */
typedef struct more {
    shmsync_semaphore semaphore;
    shmsync_event event;
    shmsync_mutex lock;
    shmsync_cond cond;
} more;
static void open_more(shmsync_arena *a, more *m)
{
    shmsync_event_options automatic;
    memset(&automatic, 0, sizeof automatic);
    automatic.auto_reset = 1;
    CHECK(shmsync_semaphore_open(a, "semaphore", 2, NULL, &m->semaphore), 0);
    CHECK(shmsync_event_open(a, "event", &automatic, &m->event), 0);
    CHECK(shmsync_mutex_open(a, "lock", NULL, &m->lock), 0);
    CHECK(shmsync_cond_open(a, "cond", NULL, &m->cond), 0);
}
static int repaired(void *arg)
{
    ++*(int *)arg;
    return 0;
}
/* Uses each object, and waits for those that another process holds, in a process that has used no object yet. */
static void newcomer_waits(const char *name)
{
    static const struct timespec past = {0, 1};
    struct timespec soon;
    all x;
    more m;
    shmsync_hold h;
    open_all(name, &x);
    open_more(x.a, &m);
    clock_gettime(CLOCK_MONOTONIC, &soon);
    soon.tv_nsec = (soon.tv_nsec + 1000000) % 1000000000;
    CHECK(shmsync_fairmutex_timedlock(&x.fair, &soon), ETIMEDOUT);
    CHECK(shmsync_multilock_timedlock(&x.multi, 7, &h, &soon), ETIMEDOUT);
    CHECK(shmsync_multilock_lock(&x.multi, 8, &h), 0);
    CHECK(shmsync_multilock_unlock(&h), 0);
    CHECK(shmsync_rwmutex_timedlock(&x.rw, &past), ETIMEDOUT);
    CHECK(shmsync_rwspinlock_timedlock(&x.rwspin, &past), ETIMEDOUT);
    CHECK(shmsync_semaphore_acquire(&m.semaphore, 2), 0);
    CHECK(shmsync_semaphore_timedacquire(&m.semaphore, 1, &soon), ETIMEDOUT);
    CHECK(shmsync_semaphore_release(&m.semaphore, 2), 0);
    CHECK(shmsync_event_set(&m.event), 0);
    CHECK(shmsync_event_wait(&m.event), 0);
    CHECK(shmsync_mutex_lock(&m.lock), 0);
    CHECK(shmsync_cond_timedwait(&m.cond, &m.lock, &soon), ETIMEDOUT);
    CHECK(shmsync_mutex_unlock(&m.lock), 0);
    CHECK(shmsync_waitgroup_add(&x.group, 1), 0);
    CHECK(shmsync_waitgroup_add(&x.group, -1), 0);
    CHECK(shmsync_latch_claim(&x.latch, 1), 0);
    CHECK(shmsync_latch_count_down(&x.latch, 1), 0);
    CHECK(shmsync_barrier_register(&x.barrier, 1), 0);
    CHECK(shmsync_barrier_deregister(&x.barrier), 0);
}
/* Users have filled the arena with their data. A process that joins then uses the objects of all kinds. After the death of
 * the process that holds them, another process that joins recovers them one by one, or all. */
static void newcomers(const char *name, int one_by_one)
{
    shmsync_arena *a;
    shmsync_mutex mutex;
    pid_t p;
    int status;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    p = fork();
    if (p == 0) {
        all y;
        more m;
        shmsync_hold h;
        open_all(name, &y);
        open_more(y.a, &m);
        CHECK(shmsync_mutex_lock(&y.mutex), 0);
        CHECK(shmsync_rwmutex_lock(&y.rw), 0);
        CHECK(shmsync_fairmutex_lock(&y.fair), 0);
        CHECK(shmsync_spinlock_lock(&y.spin), 0);
        CHECK(shmsync_rwspinlock_lock(&y.rwspin), 0);
        CHECK(shmsync_multilock_lock(&y.multi, 7, &h), 0);
        CHECK(shmsync_waitgroup_add(&y.group, 2), 0);
        CHECK(shmsync_latch_claim(&y.latch, 1), 0);
        CHECK(shmsync_barrier_register(&y.barrier, 1), 0);
        CHECK(shmsync_future_claim(&y.future), 0);
        raise(SIGSTOP);
        _exit(1);
    }
    CHECK(waitpid(p, &status, WUNTRACED), p);
    CHECK(WIFSTOPPED(status), 1);
    take_data(a);
    CHECK(headroom_used(a), 0);
    CHECK(shmsync_mutex_open(a, "another", NULL, &mutex), ENOSPC);
    CHECK(strstr(shmsync_error(), "bytes of headroom for users of objects that exist") != NULL, 1);
    status = fork();
    if (status == 0) {
        newcomer_waits(name);
        _exit(0);
    }
    goes_on((pid_t)status);
    CHECK(headroom_used(a), 2);
    CHECK(kill(p, SIGKILL), 0);
    CHECK(waitpid(p, &status, 0), p);
    if (one_by_one) {
        status = fork();
        if (status == 0) {
            all x;
            int n = 0;
            open_all(name, &x);
            CHECK(shmsync_mutex_recover(&x.mutex, repaired, &n), 0);
            CHECK(shmsync_rwmutex_recover(&x.rw, repaired, &n), 0);
            CHECK(shmsync_fairmutex_recover(&x.fair, repaired, &n), 0);
            CHECK(shmsync_spinlock_recover(&x.spin, repaired, &n), 0);
            CHECK(shmsync_rwspinlock_recover(&x.rwspin, repaired, &n), 0);
            CHECK(shmsync_multilock_recover(&x.multi, 7, repaired, &n), 0);
            CHECK(n, 6);
            _exit(0);
        }
        goes_on((pid_t)status);
    }
    finds(name, nothing, 0, one_by_one ? 4 : 10);
    finds(name, unwanted, 0, 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* The word of the lock that the repair overwrites, as a peer may. */
static uint32_t *overwritten, by;
static int is_overwritten(void *arg)
{
    (void)arg;
    shmi_st32(overwritten, by);
    return 0;
}
/* A peer overwrites the word of a lock while this process repairs the lock. The recovery, and a lock that repairs, fail:
 * another process may use the lock, or may have repaired it, too. */
static void lost(const char *name)
{
    all x;
    shmsync_mutex m;
    shmsync_mutex_options opts;
    lose(name, hold_locks);
    open_all(name, &x);
    by = SHMI_OWNER_NOT_RECOVERABLE;
    overwritten = x.mutex.impl->own;
    CHECK(shmsync_mutex_recover(&x.mutex, is_overwritten, NULL), EPROTO);
    overwritten = x.rw.impl->gate;
    CHECK(shmsync_rwmutex_recover(&x.rw, is_overwritten, NULL), EPROTO);
    overwritten = &x.spin.impl->w->state;
    CHECK(shmsync_spinlock_recover(&x.spin, is_overwritten, NULL), EPROTO);
    overwritten = &x.rwspin.impl->w->state;
    CHECK(shmsync_rwspinlock_recover(&x.rwspin, is_overwritten, NULL), EPROTO);
    by = 0; /* the lock looks as if it had been released */
    overwritten = &x.spin.impl->w->state;
    shmi_st32(overwritten, SHMI_SPIN_LOST);
    CHECK(shmsync_spinlock_recover(&x.spin, is_overwritten, NULL), EPROTO);
    CHECK(shmsync_arena_close(x.a), 0);

    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.repair = is_overwritten;
    CHECK(shmsync_arena_open(name, NULL, &x.a), 0);
    CHECK(shmsync_mutex_open(x.a, "mutex", &opts, &m), 0);
    overwritten = m.impl->own;
    shmi_st32(overwritten, shmi_make_owner(SHMI_kindOwnerDead, x.a->self + 1)); /* a participant that has never been there */
    CHECK(shmsync_mutex_lock(&m), EPROTO);
    CHECK(shmsync_mutex_unlock(&m), EPERM);
    CHECK(shmsync_arena_close(x.a), 0);
}

static int repairs(void *arg)
{
    (void)arg;
    return 0;
}
/* Makes a call that succeeds, and checks that shmsync_error and shmsync_who_died describe the failure before it. */
#define KEEPS(call)                                                  \
    do {                                                             \
        char failure[512];                                           \
        shmsync_participant died;                                    \
        CHECK(shmsync_arena_remove("nobody-uses-this-name"), ENOENT); \
        snprintf(failure, sizeof failure, "%s", shmsync_error());    \
        CHECK(call, 0);                                              \
        CHECK(strcmp(shmsync_error(), failure), 0);                  \
        CHECK(shmsync_who_died(&died), ENOENT);                      \
    } while (0)
/* A lock meets a death, and the repair of its options succeeds. So does a recover. A call that fails after it has given
 * something back says why it failed. */
static void notes(const char *name)
{
    all x;
    shmsync_mutex_options mutex;
    shmsync_rwmutex_options rw;
    shmsync_fairmutex_options fair;
    shmsync_spinlock_options spin;
    static const uint64_t keys[] = {3, 7};
    shmsync_hold holds[2];
    shmsync_participant who;
    size_t held;
    int round;
    memset(&mutex, 0, sizeof mutex);
    memset(&rw, 0, sizeof rw);
    memset(&fair, 0, sizeof fair);
    memset(&spin, 0, sizeof spin);
    mutex.struct_size = sizeof mutex;
    rw.struct_size = sizeof rw;
    fair.struct_size = sizeof fair;
    spin.struct_size = sizeof spin;
    mutex.repair = rw.repair = fair.repair = spin.repair = repairs;
    for (round = 0; round < 4; round++) {
        lose(name, hold_locks);
        CHECK(shmsync_arena_open(name, NULL, &x.a), 0);
        CHECK(shmsync_mutex_open(x.a, "mutex", &mutex, &x.mutex), 0);
        CHECK(shmsync_rwmutex_open(x.a, "rwmutex", &rw, &x.rw), 0);
        CHECK(shmsync_fairmutex_open(x.a, "fair", &fair, &x.fair), 0);
        CHECK(shmsync_spinlock_open(x.a, "spin", &spin, &x.spin), 0);
        CHECK(shmsync_rwspinlock_open(x.a, "rwspin", &spin, &x.rwspin), 0);
        CHECK(shmsync_multilock_open(x.a, "multi", NULL, &x.multi), 0);
        CHECK(shmsync_multilock_lockall(&x.multi, keys, 2, holds, &held), EOWNERDEAD); /* it gives key 3 back */
        CHECK(shmsync_who_died(&who), 0);
        KEEPS(shmsync_multilock_recover(&x.multi, 7, repairs, NULL));
        if (round == 3) {
            KEEPS(shmsync_mutex_recover(&x.mutex, repairs, NULL));
            KEEPS(shmsync_rwmutex_recover(&x.rw, repairs, NULL));
            KEEPS(shmsync_fairmutex_recover(&x.fair, repairs, NULL));
            KEEPS(shmsync_spinlock_recover(&x.spin, repairs, NULL));
            KEEPS(shmsync_rwspinlock_recover(&x.rwspin, repairs, NULL));
        } else {
            KEEPS(shmsync_mutex_lock(&x.mutex));
            KEEPS(shmsync_fairmutex_lock(&x.fair));
            KEEPS(shmsync_spinlock_lock(&x.spin));
            KEEPS(round == 0 ? shmsync_rwmutex_lock(&x.rw) : round == 1 ? shmsync_rwmutex_rdlock(&x.rw) : shmsync_rwmutex_lock_upgradable(&x.rw));
            KEEPS(round == 0 ? shmsync_rwspinlock_lock(&x.rwspin) : round == 1 ? shmsync_rwspinlock_rdlock(&x.rwspin) : shmsync_rwspinlock_uplock(&x.rwspin));
        }
        CHECK(shmsync_arena_close(x.a), 0);
        CHECK(shmsync_arena_open(name, NULL, &x.a), 0); /* the close was as a death */
        KEEPS(shmsync_recover_all(x.a, nothing, NULL, NULL));
        CHECK(shmsync_arena_close(x.a), 0);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(120);
    if (strcmp(argv[1], "healthy") == 0)
        healthy(argv[2]);
    else if (strcmp(argv[1], "newcomer") == 0)
        newcomer(argv[2]);
    else if (strncmp(argv[1], "full ", 5) == 0)
        full(argv[2], argv[1] + 5, 0);
    else if (strncmp(argv[1], "headroom ", 9) == 0)
        full(argv[2], argv[1] + 9, 1);
    else if (strcmp(argv[1], "newcomers") == 0)
        newcomers(argv[2], 0);
    else if (strcmp(argv[1], "newcomers, one by one") == 0)
        newcomers(argv[2], 1);
    else if (strcmp(argv[1], "found") == 0)
        found(argv[2]);
    else if (strcmp(argv[1], "busy") == 0)
        busy(argv[2]);
    else if (strcmp(argv[1], "kept") == 0)
        kept(argv[2]);
    else if (strcmp(argv[1], "damage") == 0)
        damage(argv[2]);
    else if (strcmp(argv[1], "lost") == 0)
        lost(argv[2]);
    else if (strcmp(argv[1], "notes") == 0)
        notes(argv[2]);
    else
        return 2;
    return 0;
}
