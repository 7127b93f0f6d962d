/* Tests the promises of docs/c-contract.md: contract VERB NAME uses the arena NAME. Exit status 0: they hold. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <stdlib.h>
#include <sys/mman.h>
static void *calloc_or_fail(size_t n, size_t size);
#define calloc calloc_or_fail
static int no_mremap;
/* If no_mremap is set, the call fails as the kernel does when it finds late that it has no memory: the target is unmapped. */
static void *mremap_or_fail(void *from, size_t old_size, size_t size, int flags, void *to, ...)
{
    if (no_mremap)
        munmap(to, size);
    return no_mremap ? MAP_FAILED : (flags & MREMAP_FIXED) != 0 ? mremap(from, old_size, size, flags, to) : mremap(from, old_size, size, flags);
}
#define mremap(from, old_size, size, ...) mremap_or_fail(from, old_size, size, __VA_ARGS__, (void *)NULL)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef calloc

#include <semaphore.h>
#include <setjmp.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* Whether AddressSanitizer or ThreadSanitizer is in use. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifndef SANITIZED
#define SANITIZED 0
#endif

#define CHECK(got, want)                                                                                             \
    do {                                                                                                             \
        long long got_ = (long long)(got), want_ = (long long)(want);                                               \
        if (got_ != want_) {                                                                                         \
            fprintf(stderr, "line %d: %s is %lld, not %lld: %s\n", __LINE__, #got, got_, want_, shmsync_error()); \
            _exit(1);                                                                                                \
        }                                                                                                            \
    } while (0)

/* Which of the next calls of calloc in the library fails, counted from 1; 0: none. */
static int calloc_to_fail;
static void *calloc_or_fail(size_t n, size_t size) { return calloc_to_fail != 0 && --calloc_to_fail == 0 ? NULL : calloc(n, size); }

static const char *arena_name;
static const struct timespec soon = {1, 0}; /* a time that has passed */

static shmsync_arena *open_arena(void)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    return a;
}

struct handles {
    shmsync_mutex mutex;
    shmsync_futex futex;
    shmsync_sequencer sequencer;
    shmsync_event event;
    shmsync_queue queue;
    shmsync_lease lease;
    shmsync_waitgroup waitgroup;
    shmsync_latch latch;
    shmsync_once once;
    shmsync_barrier barrier;
    shmsync_fairmutex fairmutex;
    shmsync_future future;
    shmsync_cond cond;
    shmsync_semaphore semaphore;
    shmsync_rwmutex rwmutex;
    shmsync_spinlock spinlock;
    shmsync_rwspinlock rwspinlock;
    shmsync_multilock multilock;
    shmsync_signalwaker signalwaker;
    shmsync_gate gate;
    shmsync_signal signal;
    shmsync_synchronized synchronized;
    shmsync_hold hold;
};

static void open_all(shmsync_arena *a, struct handles *h)
{
    shmsync_queue_options one;
    uint64_t item = 1;
    memset(h, 0, sizeof *h);
    memset(&one, 0, sizeof one);
    one.capacity = 4;
    CHECK(shmsync_mutex_open(a, "mutex", NULL, &h->mutex), 0);
    CHECK(shmsync_futex_open(a, "futex", NULL, &h->futex), 0);
    CHECK(shmsync_sequencer_open(a, "sequencer", NULL, &h->sequencer), 0);
    CHECK(shmsync_event_open(a, "event", NULL, &h->event), 0);
    CHECK(shmsync_queue_open(a, "queue", sizeof item, &one, &h->queue), 0);
    CHECK(shmsync_waitgroup_open(a, "waitgroup", NULL, &h->waitgroup), 0);
    CHECK(shmsync_latch_open(a, "latch", 1, NULL, &h->latch), 0);
    CHECK(shmsync_once_open(a, "once", NULL, &h->once), 0);
    CHECK(shmsync_barrier_open(a, "barrier", 2, NULL, &h->barrier), 0);
    CHECK(shmsync_fairmutex_open(a, "fairmutex", NULL, &h->fairmutex), 0);
    CHECK(shmsync_future_open(a, "future", NULL, &h->future), 0);
    CHECK(shmsync_cond_open(a, "cond", NULL, &h->cond), 0);
    CHECK(shmsync_semaphore_open(a, "semaphore", 1, NULL, &h->semaphore), 0);
    CHECK(shmsync_rwmutex_open(a, "rwmutex", NULL, &h->rwmutex), 0);
    CHECK(shmsync_spinlock_open(a, "spinlock", NULL, &h->spinlock), 0);
    CHECK(shmsync_rwspinlock_open(a, "rwspinlock", NULL, &h->rwspinlock), 0);
    CHECK(shmsync_multilock_open(a, "multilock", NULL, &h->multilock), 0);
    CHECK(shmsync_signalwaker_open(a, "signalwaker", NULL, &h->signalwaker), 0);
    CHECK(shmsync_synchronized_open(a, "synchronized", sizeof item, NULL, &h->synchronized), 0);
    CHECK(shmsync_queue_put(&h->queue, &item), 0);
    CHECK(shmsync_queue_lease(&h->queue, &item, &h->lease), 0);
    CHECK(shmsync_signalwaker_gate(&h->signalwaker, 1, &h->gate), 0);
    CHECK(shmsync_signalwaker_signal(&h->signalwaker, 1, &h->signal), 0);
    CHECK(shmsync_multilock_lock(&h->multilock, 7, &h->hold), 0);
}

static int close_all(struct handles *h, int want)
{
    CHECK(shmsync_mutex_close(&h->mutex), want);
    CHECK(shmsync_futex_close(&h->futex), want);
    CHECK(shmsync_sequencer_close(&h->sequencer), want);
    CHECK(shmsync_event_close(&h->event), want);
    CHECK(shmsync_queue_close(&h->queue), want);
    CHECK(shmsync_waitgroup_close(&h->waitgroup), want);
    CHECK(shmsync_latch_close(&h->latch), want);
    CHECK(shmsync_once_close(&h->once), want);
    CHECK(shmsync_barrier_close(&h->barrier), want);
    CHECK(shmsync_fairmutex_close(&h->fairmutex), want);
    CHECK(shmsync_future_close(&h->future), want);
    CHECK(shmsync_cond_close(&h->cond), want);
    CHECK(shmsync_semaphore_close(&h->semaphore), want);
    CHECK(shmsync_rwmutex_close(&h->rwmutex), want);
    CHECK(shmsync_spinlock_close(&h->spinlock), want);
    CHECK(shmsync_rwspinlock_close(&h->rwspinlock), want);
    CHECK(shmsync_multilock_close(&h->multilock), want);
    CHECK(shmsync_signalwaker_close(&h->signalwaker), want);
    CHECK(shmsync_synchronized_close(&h->synchronized), want);
    return 0;
}

static int give0(void *arg)
{
    (void)arg;
    return 0;
}
static void nothing(void *arg) { (void)arg; }
static int visit(const shmsync_participant *p, void *arg)
{
    (void)p;
    (void)arg;
    return 0;
}
static void told(const shmsync_participant *p, void *arg) { visit(p, arg); }
static int repair_lost(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return 0;
}

/* Whether the n bytes at p are zeros. A call with a closed handle sets its result, such as a hold, to zeros, so that
 * no later call can use it. */
static int all_zeros(const void *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    while (n > 0 && *b == 0) {
        b++;
        n--;
    }
    return n == 0;
}
static void outs_of_closed(struct handles *h)
{
    uint64_t key = 1, item = 1;
    shmsync_hold hold[2];
    shmsync_tx tx;
    shmsync_gate gate;
    shmsync_signal signal;
    shmsync_lease lease;
    shmsync_gate_info info;
    size_t n;
    int flag;
    void *p;
#define CLEARS(out, call)                         \
    do {                                          \
        memset(&(out), 7, sizeof(out));           \
        CHECK(call, EBADF);                       \
        CHECK(all_zeros(&(out), sizeof(out)), 1); \
    } while (0)
    CLEARS(tx, shmsync_mutex_begin(&h->mutex, &tx));
    CLEARS(tx, shmsync_mutex_trybegin(&h->mutex, &tx));
    CLEARS(tx, shmsync_mutex_timedbegin(&h->mutex, &tx, &soon));
    CLEARS(tx, shmsync_rwmutex_begin(&h->rwmutex, &tx));
    CLEARS(tx, shmsync_rwmutex_trybegin(&h->rwmutex, &tx));
    CLEARS(tx, shmsync_rwmutex_timedbegin(&h->rwmutex, &tx, &soon));
    CHECK(shmsync_tx_abort(&tx), EPERM);
    CLEARS(p, shmsync_synchronized_begin(&h->synchronized, &p));
    CLEARS(p, shmsync_synchronized_timedbegin(&h->synchronized, &p, &soon));
    CLEARS(n, shmsync_queue_put_batch(&h->queue, &item, 1, NULL, &n));
    CLEARS(n, shmsync_queue_get_batch(&h->queue, &item, 1, NULL, &n));
    CLEARS(lease, shmsync_queue_lease(&h->queue, &item, &lease));
    CLEARS(lease, shmsync_queue_trylease(&h->queue, &item, &lease));
    CLEARS(lease, shmsync_queue_timedlease(&h->queue, &item, &lease, &soon));
    CLEARS(hold[0], shmsync_multilock_lock(&h->multilock, 1, &hold[0]));
    CLEARS(hold[0], shmsync_multilock_trylock(&h->multilock, 1, &hold[0]));
    CLEARS(hold[0], shmsync_multilock_timedlock(&h->multilock, 1, &hold[0], &soon));
    CLEARS(hold[0], shmsync_multilock_lockall(&h->multilock, &key, 1, hold, &n));
    CLEARS(n, shmsync_multilock_lockall(&h->multilock, &key, 1, hold, &n));
    CLEARS(hold[0], shmsync_multilock_timedlockall(&h->multilock, &key, 1, hold, &n, &soon));
    CLEARS(n, shmsync_multilock_timedlockall(&h->multilock, &key, 1, hold, &n, &soon));
    CLEARS(gate, shmsync_signalwaker_gate(&h->signalwaker, 1, &gate));
    CHECK(shmsync_gate_begin(&gate), EBADF);
    CLEARS(gate, shmsync_signalwaker_next(&h->signalwaker, 0, &gate));
    CLEARS(signal, shmsync_signalwaker_signal(&h->signalwaker, 1, &signal));
    CHECK(shmsync_signal_load(&signal), 0);
    CLEARS(info, shmsync_gate_state(&h->gate, &info));
    CLEARS(flag, shmsync_gate_schedule(&h->gate, &flag));
    CLEARS(flag, shmsync_gate_finish(&h->gate, &flag));
    CLEARS(flag, shmsync_barrier_reset(&h->barrier, 1, &flag));
    CLEARS(flag, shmsync_sequencer_advance(&h->sequencer, 1, &flag));
    CLEARS(flag, shmsync_signalwaker_mark(&h->signalwaker, 1, &flag));
    CLEARS(flag, shmsync_signalwaker_mark_yield(&h->signalwaker, &flag));
    CLEARS(flag, shmsync_signalwaker_mark_tasks(&h->signalwaker, &flag));
}

/* What a call returns through its last argument. */
union result {
    uint64_t bytes[64], u, stats[SHMSYNC_STATS];
    int64_t signed_u;
    int i;
    size_t size;
    void *p;
    shmsync_tx tx;
    shmsync_lease lease;
    shmsync_hold hold;
    shmsync_gate gate;
    shmsync_gate_info gate_info;
    shmsync_signal signal;
    shmsync_signal_health signal_health;
};
/* Makes every call with handles that are closed: each call fails with EBADF, and notes its failure. */
static void call_all(struct handles *h)
{
    union result out;
    shmsync_awaitable wait;
    size_t index;
    memset(&out, 0, sizeof out);
#define CALL(name, call)                                                                                   \
    shmi_fail(EINVAL, "earlier", NULL, "%s", "");                                                          \
    {                                                                                                      \
        int got = (call);                                                                                  \
        if (got != EBADF || strstr(shmsync_error(), shmsync_strerror(EBADF)) == NULL) {                    \
            fprintf(stderr, "%s: %s, and shmsync_error() is %s\n", name, strerror(got), shmsync_error()); \
            _exit(1);                                                                                      \
        }                                                                                                  \
    }
#define VALUE(name, call) CHECK(call, 0);
#include "contract_calls.h"
    memset(&wait, 0, sizeof wait);
    wait.kind = SHMSYNC_AWAIT_SEQUENCER;
    wait.sequencer = &h->sequencer;
    wait.event = &h->event;
    wait.future = &h->future;
    for (; wait.kind <= SHMSYNC_AWAIT_EVENT_RESET; wait.kind++) {
        CALL("wait_any", shmsync_wait_any(&wait, 1, &soon, &index))
        CALL("wait_all", shmsync_wait_all(&wait, 1, &soon))
    }
}

/* Tests handles that were closed, copies of them, and handles of zeroes. */
static int closed_handles(void)
{
    shmsync_arena *a = open_arena();
    struct handles h, copy, none;
    open_all(a, &h);
    CHECK(shmsync_multilock_unlock(&h.hold), 0);
    copy = h;
    close_all(&h, 0);
    call_all(&copy);
    outs_of_closed(&copy);
    close_all(&copy, EBADF);
    h.lease = copy.lease; /* a hold or a lease of zeroes does not exist, rather than being closed */
    h.hold = copy.hold;
    h.gate = copy.gate;
    h.signal = copy.signal;
    call_all(&h);
    close_all(&h, EBADF);
    memset(&none, 0, sizeof none);
    close_all(&none, EBADF);
    open_all(a, &h); /* new handles of the same kind do not reopen the old ones */
    call_all(&copy);
    return shmsync_arena_close(a);
}

/* Tests the handles of an arena that was closed, and the arena itself. */
static int closed_arena(void)
{
    shmsync_arena *a = open_arena();
    shmsync_participant p;
    shmsync_offset off;
    shmsync_mutex m;
    struct handles h;
    void *block;
    uint64_t *bytes;
    CHECK(shmsync_alloc(a, 64, &off), 0);
    bytes = (uint64_t *)shmsync_at(a, off, 64);
    open_all(a, &h);
    CHECK(shmsync_arena_close(a), 0);
    call_all(&h);
    close_all(&h, EBADF);
    CHECK(shmsync_arena_close(a), EBADF);
    CHECK(shmsync_arena_self(a, &p), EBADF);
    CHECK(shmsync_arena_on_death(a, told, NULL), EBADF);
    CHECK(shmsync_arena_participants(a, visit, NULL), EBADF);
    CHECK(shmsync_arena_base(a) == NULL, 1);
    CHECK(shmsync_arena_size(a), 0);
    CHECK(shmsync_free(a, off), EBADF);
    CHECK(shmsync_alloc(a, 64, &off), EBADF);
    CHECK(shmsync_at(a, off, 64) == NULL, 1);
    CHECK(shmsync_block_open(a, "block", 64, &block), EBADF);
    CHECK(shmsync_block_attach(a, "block", &block, NULL), EBADF);
    CHECK(shmsync_value_open(a, "value", 64, 0, &block), EBADF);
    CHECK(shmsync_value_attach(a, "value", 64, 0, &block), EBADF);
    CHECK(shmsync_delete(a, "mutex"), EBADF);
    CHECK(shmsync_delete_at(a, off), EBADF);
    CHECK(shmsync_recover_all(a, repair_lost, NULL, NULL), EBADF);
    CHECK(shmsync_mutex_open(a, "mutex", NULL, &m), EBADF);
    CHECK(shmsync_mutex_attach(a, "mutex", NULL, &m), EBADF);
    CHECK(shmsync_mutex_at(a, off, &m), EBADF);
    *bytes = 1; /* this store changes nothing that others see, and does not fault */
    return 0;
}

/* A process opens arenas for different numbers of participants, one after the other. Handles have few sizes, so the memory of
 * closed handles serves the next ones. */
static int few_sizes(void)
{
    static const uint32_t participants[] = {70, 100, 128};
    size_t i;
    int used = 0, now, k;
    for (i = 0; i < sizeof participants / sizeof participants[0]; i++) {
        char name[128];
        shmsync_arena_options o;
        shmsync_arena *a;
        struct handles h;
        shmsync_event_options automatic;
        shmsync_event e;
        memset(&o, 0, sizeof o);
        memset(&automatic, 0, sizeof automatic);
        o.max_participants = participants[i];
        automatic.auto_reset = 1;
        snprintf(name, sizeof name, "%s-%u", arena_name, participants[i]);
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        open_all(a, &h);
        CHECK(shmsync_event_open(a, "automatic", &automatic, &e), 0);
        CHECK(shmsync_arena_close(a), 0);
        CHECK(shmsync_arena_remove(name), 0);
        for (now = k = 0; k < SHMI_SPARE_SIZES; k++)
            now += shmi_spare[k].n != 0;
        if (i == 0)
            used = now;
        CHECK(now, used);
    }
    return 0;
}

/* However many sizes the handles of a process have, the memory of closed handles serves the next ones. */
static int many_sizes(void)
{
    enum { TIMES = 3 * SHMI_SPARES };
    static void *seen[TIMES];
    size_t size;
    for (size = 1; size < 100000; size += 500) {
        int i, k, distinct = 0;
        for (i = 0; i < TIMES; i++) {
            void *thing = shmi_new_thing(size);
            CHECK(thing != NULL, 1);
            CHECK(shmi_head_of(thing)->size >= size, 1);
            CHECK(shmi_head_of(thing)->size <= 64 + size + size / 4, 1);
            memset(thing, 1, size);
            for (k = 0; k < distinct && seen[k] != thing; k++)
                continue;
            if (k == distinct)
                seen[distinct++] = thing;
            shmi_free_thing(thing);
        }
        CHECK(distinct <= SHMI_SPARES + 1, 1);
    }
    return 0;
}

static int reopens(void *arg)
{
    shmsync_spinlock *l = (shmsync_spinlock *)arg;
    shmsync_arena *a = l->impl->a;
    CHECK(shmsync_spinlock_close(l), 0);
    CHECK(shmsync_spinlock_open(a, "spinlock", NULL, l), 0);
    return 0;
}
/* Nothing can be mapped in place of an arena that is closed. When the process forgets the arena, after 64 more closes, it
 * does not look at the memory where the arena was, which may be that of another mapping. */
static int closed_without_room(void)
{
    shmsync_arena *a = open_arena();
    shmsync_rwmutex rw;
    shmsync_spinlock spin;
    void *base = shmsync_arena_base(a);
    size_t size = (size_t)shmsync_arena_size(a);
    int i;
    CHECK(shmsync_rwmutex_open(a, "rwmutex", NULL, &rw), 0);
    CHECK(shmsync_spinlock_open(a, "spinlock", NULL, &spin), 0);
    shmi_st32(&spin.impl->w->state, SHMI_SPIN_LOST);
    CHECK(shmsync_spinlock_recover(&spin, reopens, &spin), 0); /* the call keeps the object open over the close */
    no_mremap = 1;
    CHECK(shmsync_arena_close(a), 0);
    no_mremap = 0;
    CHECK(mmap(base, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) == base, 1);
    for (i = 0; i <= SHMI_RETIRED; i++)
        CHECK(shmsync_arena_close(open_arena()), 0);
    return 0;
}

static int refuse(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)e;
    *(shmsync_arena **)arg = a;
    return EPERM;
}
/* Closed arenas do not count against RLIMIT_DATA, and opens that fail do not displace them. */
static int closed_many(void)
{
    shmsync_arena_options other, refusing;
    shmsync_arena *a, *kept = NULL;
    struct rlimit limit;
    void *p;
    int i;
    CHECK(getrlimit(RLIMIT_DATA, &limit), 0);
    limit.rlim_cur = 256 << 20;
    if (!SANITIZED) /* a sanitizer has much data of its own */
        CHECK(setrlimit(RLIMIT_DATA, &limit), 0);
    for (i = 0; i < 40; i++) {
        a = open_arena();
        p = shmsync_arena_base(a);
        CHECK(shmsync_arena_close(a), 0);
        *(volatile char *)p = 1; /* it is still mapped */
    }
    p = malloc(128 << 20);
    CHECK(p != NULL, 1);
    free(p);

    memset(&other, 0, sizeof other);
    other.max_participants = 7;
    memset(&refusing, 0, sizeof refusing);
    refusing.on_first = refuse;
    refusing.on_first_arg = &kept;
    for (i = 0; i < 70; i++) {
        shmsync_arena *none;
        CHECK(shmsync_arena_open(arena_name, &other, &none), EINVAL);
        CHECK(shmsync_arena_open(arena_name, &refusing, &none), EPERM);
    }
    CHECK(shmsync_arena_close(a), EBADF);
    CHECK(kept != NULL, 1);
    CHECK(shmsync_arena_close(kept), EBADF);
    return 0;
}

static shmsync_arena *shared;
static struct handles in_use;
static int started;

static void *use_until_closed(void *arg)
{
    struct handles h = in_use;
    shmsync_offset off;
    shmsync_mutex mine;
    uint64_t i, u;
    int err;
    (void)arg;
    for (i = 0;; i++) {
        if (i == 100)
            __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST);
        err = shmsync_mutex_lock(&h.mutex);
        if (err == 0)
            err = shmsync_mutex_unlock(&h.mutex);
        if (err == 0)
            err = shmsync_semaphore_acquire(&h.semaphore, 1);
        if (err == 0)
            err = shmsync_semaphore_release(&h.semaphore, 1);
        if (err == 0)
            err = shmsync_sequencer_increment(&h.sequencer, &u);
        if (err == 0)
            err = shmsync_event_set(&h.event);
        if (err == 0)
            err = shmsync_futex_post(&h.futex);
        if (err == 0)
            err = shmsync_queue_put(&h.queue, &u);
        if (err == 0)
            err = shmsync_queue_get(&h.queue, &u);
        if (err == 0)
            err = shmsync_rwmutex_rdlock(&h.rwmutex);
        if (err == 0)
            err = shmsync_rwmutex_rdunlock(&h.rwmutex);
        if (err == 0)
            err = shmsync_alloc(shared, 64, &off);
        if (err == 0)
            err = shmsync_free(shared, off);
        if (err == 0)
            err = shmsync_mutex_open(shared, "mine", NULL, &mine);
        if (err == 0)
            err = shmsync_mutex_close(&mine);
        if (err != 0)
            break;
    }
    /* The call during the close may have failed in another way, because the close takes holds back as a death does. */
    while (shmsync_mutex_trylock(&h.mutex) != EBADF)
        sched_yield();
    return NULL;
}
/* Threads use an arena while it is closed. */
static int closed_in_use(void)
{
    enum { THREADS = 4 };
    pthread_t t[THREADS];
    int round, i;
    for (round = 0; round < 10; round++) {
        CHECK(shmsync_arena_remove(arena_name), 0); /* so that it is not in the way of the next round */
        shared = open_arena();
        open_all(shared, &in_use);
        CHECK(shmsync_multilock_unlock(&in_use.hold), 0);
        CHECK(shmsync_lease_nack(&in_use.lease), 0);
        started = 0;
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_create(&t[i], NULL, use_until_closed, NULL), 0);
        while (__atomic_load_n(&started, __ATOMIC_SEQ_CST) < THREADS)
            sched_yield();
        CHECK(shmsync_arena_close(shared), 0);
        for (i = 0; i < THREADS; i++)
            CHECK(pthread_join(t[i], NULL), 0);
    }
    return 0;
}

/* The close of one of many handles searches few others. */
static int close_many(void)
{
    enum { MANY = 4000 };
    static shmsync_mutex m[MANY];
    shmsync_arena *a = open_arena();
    int i;
    for (i = 0; i < MANY; i++)
        CHECK(shmsync_mutex_open(a, NULL, NULL, &m[i]), 0);
    for (i = 0; i < MANY; i++)
        CHECK(shmsync_mutex_close(&m[i]), 0);
    if (a->refs_passed > 16 * MANY) {
        fprintf(stderr, "%llu references were looked at to open and close %d\n", (unsigned long long)a->refs_passed, MANY);
        return 1;
    }
    return shmsync_arena_close(a);
}

/* Deletes an object by its offset: an anonymous object leaves no memory behind. */
static int delete_at(void)
{
    enum { ROUNDS = 20000 }; /* many more than have room */
    shmsync_arena *a = open_arena();
    shmsync_offset off = 0, raw;
    shmsync_mutex m, again;
    int i;
    for (i = 0; i < ROUNDS; i++) {
        CHECK(shmsync_mutex_open(a, NULL, NULL, &m), 0);
        off = shmsync_mutex_offset(&m);
        if (i == 0)
            CHECK(shmsync_delete_at(a, off), EBUSY);
        CHECK(shmsync_mutex_close(&m), 0);
        CHECK(shmsync_delete_at(a, off), 0);
    }
    CHECK(shmsync_delete_at(a, off), EINVAL);
    CHECK(shmsync_delete_at(a, 0), EINVAL);
    CHECK(shmsync_delete_at(a, UINT64_MAX), EINVAL);
    CHECK(shmsync_alloc(a, 64, &raw), 0);
    CHECK(shmsync_delete_at(a, raw), EINVAL);
    CHECK(shmsync_mutex_open(a, "named", NULL, &m), 0);
    off = shmsync_mutex_offset(&m);
    CHECK(shmsync_mutex_at(a, off, &again), 0);
    CHECK(shmsync_mutex_close(&m), 0);
    CHECK(shmsync_delete_at(a, off), EBUSY);
    CHECK(shmsync_mutex_close(&again), 0);
    CHECK(shmsync_delete_at(a, off), 0);
    CHECK(shmsync_mutex_attach(a, "named", NULL, &m), ENOENT);
    CHECK(strcmp(shmsync_version(), "0.1.0"), 0);
    return shmsync_arena_close(a);
}

static void check_text(int line, const char *want)
{
    if (strcmp(shmsync_error(), want) != 0) {
        fprintf(stderr, "line %d: shmsync_error() is %s, not %s\n", line, shmsync_error(), want);
        _exit(1);
    }
}
/* The text of a failure escapes what a terminal could take for its own, and a long object leaves room for the cause. */
static int error_texts(void)
{
    char object[5000], cause[300];
    const char *text;
    size_t i;
    shmi_fail(EPERM, "op", "a\"\\\n\x1b[2J\xc3\xbc\xff\xc2\x9b\x7f", "%s said \"no\"\t%s", "w\nrker", "\xe2\x82\xac");
    check_text(__LINE__, "shmsync: op \"a\\\"\\\\\\n\\x1b[2J\xc3\xbc\\xff\\xc2\\x9b\\x7f\": not held by this process, or not permitted: w\\nrker said \"no\"\\t\xe2\x82\xac");
    shmi_brief(EBUSY, "op", "a\nb");
    check_text(__LINE__, "shmsync: op \"a\\nb\": busy");
    shmi_fail(EBUSY, "op", NULL, "%s", "");
    check_text(__LINE__, "shmsync: op: busy");

    memset(cause, 'c', sizeof cause - 1);
    memcpy(cause + sizeof cause - 6, " end", 5);
    for (i = 0; i < 3; i++) {
        memset(object, i == 0 ? 'x' : '\n', sizeof object);
        if (i == 2) { /* characters of two bytes */
            size_t k;
            for (k = 0; k + 1 < sizeof object; k += 2)
                memcpy(object + k, "\xc3\xbc", 2);
        }
        snprintf(object + sizeof object - 20, 20, "%s", "/the-file");
        shmi_fail(ENOENT, "arena.open", object, "%s", cause);
        text = shmsync_error();
        if (strstr(text, "/the-file\": not found: ccc") == NULL || strcmp(text + strlen(text) - 4, " end") != 0 ||
            strncmp(text, "shmsync: arena.open \"...", 24) != 0 || strstr(text, "\\x") != NULL) {
            fprintf(stderr, "shmsync_error() is %s\n", text);
            _exit(1);
        }
        shmi_brief(EBUSY, "op", object);
        text = shmsync_error();
        if (strncmp(text, "shmsync: op \"...", 16) != 0 || strstr(text, "/the-file\": busy") == NULL || strstr(text, "\\x") != NULL) {
            fprintf(stderr, "shmsync_error() is %s\n", text);
            _exit(1);
        }
    }
    return 0;
}

/* The errors of an open say what is wrong, and what to do, as those of Go do. */
static void refused(int line, const char *name, uint64_t size, uint32_t mode, int err, const char *what)
{
    char text[1024];
    shmsync_arena *a = NULL;
    shmsync_arena_options o;
    memset(&o, 0, sizeof o);
    o.size = size;
    o.mode = mode;
    CHECK(shmsync_arena_open(name, &o, &a), err);
    CHECK(a == NULL, 1);
    snprintf(text, sizeof text, "shmsync: %s", what);
    check_text(line, text);
}
static int open_errors(void)
{
    char small[256], too_long[202], what[1024];
    const char *allowed = "only letters, digits, '.', '_' and '-' are allowed; a path has a '/'";
    const char *cause = shmsync_strerror(EINVAL);
    shmsync_arena *a;
    shmsync_arena_options o;
    snprintf(what, sizeof what, "arena.open \"a b\": %s: the name has byte ' ' at 1; %s", cause, allowed);
    refused(__LINE__, "a b", 0, 0, EINVAL, what);
    snprintf(what, sizeof what, "arena.open \"j\xc3\xb6""b\": %s: the name has byte 0xc3 at 1; %s", cause, allowed);
    refused(__LINE__, "j\xc3\xb6""b", 0, 0, EINVAL, what);
    snprintf(what, sizeof what, "arena.open \"\": %s: the name is empty", cause);
    refused(__LINE__, "", 0, 0, EINVAL, what);
    snprintf(what, sizeof what, "arena.open: %s: the name is NULL", cause);
    refused(__LINE__, NULL, 0, 0, EINVAL, what);
    snprintf(what, sizeof what, "arena.open \"..\": %s: the name is that of a directory", cause);
    refused(__LINE__, "..", 0, 0, EINVAL, what);
    memset(too_long, 'x', sizeof too_long - 1);
    too_long[sizeof too_long - 1] = 0;
    snprintf(what, sizeof what, "arena.open \"%s\": %s: the name is 201 bytes long, more than 200", too_long, cause);
    refused(__LINE__, too_long, 0, 0, EINVAL, what);

    snprintf(small, sizeof small, "%s-small", arena_name);
    snprintf(what, sizeof what, "arena.open \"%s\": %s: mode 0777 has bits other than 0666", small, cause);
    refused(__LINE__, small, 0, 0777, EINVAL, what);
    snprintf(what, sizeof what, "arena.create \"/dev/shm/%s\": %s: 65536 bytes are too few for 128 participants; 458752 are needed", small, shmsync_strerror(ENOSPC));
    refused(__LINE__, small, 65536, 0, ENOSPC, what);
    memset(&o, 0, sizeof o);
    o.mode = 0666;
    o.size = 458752;
    CHECK(shmsync_arena_open(small, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_remove(small), 0);
    return 0;
}

/* Each failure has a text of its own, and the text of an expected failure is made only when it is asked for. */
static int errors(void)
{
    shmsync_arena *a = open_arena();
    struct timespec no_time = {0, 2000000000};
    shmsync_awaitable wait;
    struct handles h;
    uint64_t item = 1;
    size_t index;
    int i, n = 0;
    void *p;
    open_all(a, &h);
    memset(&wait, 0, sizeof wait);
    wait.kind = SHMSYNC_AWAIT_SEQUENCER;
    wait.sequencer = &h.sequencer;
    wait.token = 1;
    CHECK(shmsync_mutex_lock(&h.mutex), 0);
    CHECK(shmsync_fairmutex_lock(&h.fairmutex), 0);
    CHECK(shmsync_rwmutex_lock(&h.rwmutex), 0);
    CHECK(shmsync_spinlock_lock(&h.spinlock), 0);
    CHECK(shmsync_rwspinlock_lock(&h.rwspinlock), 0);
    CHECK(shmsync_semaphore_acquire(&h.semaphore, 1), 0);
    CHECK(shmsync_waitgroup_add(&h.waitgroup, 1), 0);
    CHECK(shmsync_synchronized_begin(&h.synchronized, &p), 0);
    CHECK(shmsync_lease_nack(&h.lease), 0);
    CHECK(shmsync_queue_get(&h.queue, &item), 0);
    CHECK(shmsync_future_claim(&h.future), 0);
#define FAILS(want, call)                                                                                               \
    do {                                                                                                                \
        int got;                                                                                                        \
        shmi_fail(ENOSPC, "earlier", NULL, "%s", "");                                                                   \
        shmi_fail(want, "earlier", NULL, "%s", "");                                                                     \
        got = (call);                                                                                                   \
        if (((want) == EBUSY || (want) == ETIMEDOUT) && !shmi_last.brief) {                                             \
            fprintf(stderr, "line %d: %s was put into words: %s\n", __LINE__, #call, shmsync_error());                  \
            _exit(1);                                                                                                   \
        }                                                                                                               \
        if (got != (want) || strstr(shmsync_error(), shmsync_strerror(want)) == NULL || strstr(shmsync_error(), "earlier") != NULL || \
            shmsync_error()[strlen(shmsync_error()) - 1] == ' ') {                                                      \
            fprintf(stderr, "line %d: %s is %d, and shmsync_error() is %s\n", __LINE__, #call, got, shmsync_error());   \
            _exit(1);                                                                                                   \
        }                                                                                                               \
        n++;                                                                                                            \
    } while (0)
    FAILS(EPERM, shmsync_lease_ack(&h.lease)); /* it is over */
    FAILS(EPERM, shmsync_lease_nack(&h.lease));
    CHECK(shmsync_mutex_trylock(&h.mutex), EBUSY); /* the text is not made yet when another call succeeds */
    CHECK(shmsync_mutex_state(&h.mutex), 0);
    if (strstr(shmsync_error(), shmsync_strerror(EBUSY)) == NULL) {
        fprintf(stderr, "after a call that succeeded, shmsync_error() is %s\n", shmsync_error());
        _exit(1);
    }
    FAILS(EBUSY, shmsync_mutex_trylock(&h.mutex));
    FAILS(EBUSY, shmsync_fairmutex_trylock(&h.fairmutex));
    FAILS(EBUSY, shmsync_rwmutex_trylock(&h.rwmutex));
    FAILS(EBUSY, shmsync_rwmutex_tryrdlock(&h.rwmutex));
    FAILS(EBUSY, shmsync_spinlock_trylock(&h.spinlock));
    FAILS(EBUSY, shmsync_rwspinlock_trylock(&h.rwspinlock));
    FAILS(EBUSY, shmsync_rwspinlock_tryrdlock(&h.rwspinlock));
    FAILS(EBUSY, shmsync_multilock_trylock(&h.multilock, 7, &h.hold));
    FAILS(EBUSY, shmsync_semaphore_tryacquire(&h.semaphore, 1));
    FAILS(EBUSY, shmsync_queue_tryget(&h.queue, &item));
    FAILS(EBUSY, shmsync_event_trywait(&h.event));
    FAILS(EBUSY, shmsync_latch_trywait(&h.latch));
    FAILS(EBUSY, shmsync_gate_begin(&h.gate));
    FAILS(EBUSY, shmsync_signalwaker_tryacquire(&h.signalwaker));
    FAILS(EBUSY, shmsync_signalwaker_next(&h.signalwaker, 0, &h.gate));
    FAILS(EBUSY, shmsync_signal_acquire(&h.signal, 1, NULL));
    FAILS(EBUSY, shmsync_signalwaker_tryunmark(&h.signalwaker, 1));
    FAILS(ETIMEDOUT, shmsync_mutex_timedlock(&h.mutex, &soon));
    FAILS(ETIMEDOUT, shmsync_fairmutex_timedlock(&h.fairmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_rwmutex_timedlock(&h.rwmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_rwmutex_timedrdlock(&h.rwmutex, &soon));
    FAILS(ETIMEDOUT, shmsync_spinlock_timedlock(&h.spinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_rwspinlock_timedlock(&h.rwspinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_rwspinlock_timedrdlock(&h.rwspinlock, &soon));
    FAILS(ETIMEDOUT, shmsync_multilock_timedlock(&h.multilock, 7, &h.hold, &soon));
    FAILS(ETIMEDOUT, shmsync_semaphore_timedacquire(&h.semaphore, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_queue_timedget(&h.queue, &item, &soon));
    FAILS(ETIMEDOUT, shmsync_event_timedwait(&h.event, &soon));
    FAILS(ETIMEDOUT, shmsync_latch_timedwait(&h.latch, &soon));
    FAILS(ETIMEDOUT, shmsync_future_timedwait(&h.future, &i, &soon));
    FAILS(ETIMEDOUT, shmsync_futex_timedwait(&h.futex, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_sequencer_timedwait(&h.sequencer, 1, &soon));
    FAILS(ETIMEDOUT, shmsync_waitgroup_timedwait(&h.waitgroup, &soon));
    FAILS(ETIMEDOUT, shmsync_barrier_timedwait(&h.barrier, 0, &soon));
    FAILS(ETIMEDOUT, shmsync_cond_timedwait(&h.cond, &h.mutex, &soon));
    FAILS(ETIMEDOUT, shmsync_signalwaker_timedacquire(&h.signalwaker, &soon));
    FAILS(ETIMEDOUT, shmsync_wait_any(&wait, 1, &soon, &index));
    FAILS(ETIMEDOUT, shmsync_synchronized_timedbegin(&h.synchronized, &p, &soon));
    FAILS(EINVAL, shmsync_queue_timedget(&h.queue, &item, &no_time));
    FAILS(EINVAL, shmsync_event_timedwait(&h.event, &no_time));
    FAILS(EINVAL, shmsync_arena_close(NULL));
    FAILS(EINVAL, shmsync_queue_attach(a, "mutex", 8, NULL, &h.queue));
    FAILS(ENOENT, shmsync_mutex_attach(a, "none", NULL, &h.mutex));
    CHECK(shmsync_sequencer_stop(&h.sequencer), 0);
    FAILS(ECANCELED, shmsync_sequencer_wait(&h.sequencer, 1));
    CHECK(n > 40, 1);
    return shmsync_arena_close(a);
}

/* A call that succeeds leaves the text of the last failure, even if it has met failures of its own. */
static void failed(shmsync_mutex *free_mutex) { CHECK(shmsync_mutex_unlock(free_mutex), EPERM); }
static void still(const char *call)
{
    if (strstr(shmsync_error(), shmsync_strerror(EPERM)) == NULL) {
        fprintf(stderr, "after %s, shmsync_error() is \"%s\"\n", call, shmsync_error());
        _exit(1);
    }
}
static int kept_error(void)
{
    char other[256];
    shmsync_arena_options ephemeral;
    shmsync_arena *a = open_arena(), *b;
    shmsync_mutex m, n;
    memset(&ephemeral, 0, sizeof ephemeral);
    ephemeral.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    snprintf(other, sizeof other, "%s-2", arena_name);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    failed(&m);
    CHECK(shmsync_mutex_open(a, "n", NULL, &n), 0);
    still("open of a mutex");
    CHECK(shmsync_mutex_close(&n), 0);
    CHECK(shmsync_delete(a, "n"), 0);
    still("delete");
    failed(&m);
    CHECK(shmsync_arena_open(other, NULL, &b), 0);
    still("open");
    CHECK(shmsync_arena_close(b), 0);
    still("close");
    CHECK(shmsync_arena_remove(other), 0);
    still("remove");
    CHECK(shmsync_arena_open(other, &ephemeral, &b), 0);
    still("open of an ephemeral arena");
    CHECK(shmsync_arena_close(b), 0);
    still("close of an ephemeral arena");
    CHECK(shmsync_arena_from_fd(a->fd, NULL, &b), 0);
    CHECK(b == a, 1);
    still("open of a descriptor");
    CHECK(shmsync_arena_close(b), 0);
    return shmsync_arena_close(a);
}

/* Tests results that the comments of the header once stated wrongly. */
static void block_and_return(void *arg)
{
    CHECK(sem_post((sem_t *)arg), 0);
    while (sem_wait((sem_t *)arg + 1) != 0) {
    }
}
static shmsync_barrier completed;
static void *arrive(void *arg)
{
    (void)arg;
    CHECK(shmsync_barrier_arrive_and_wait(&completed), 0);
    return NULL;
}
static int results(void)
{
    shmsync_arena *a = open_arena();
    shmsync_multilock other;
    shmsync_barrier_options o;
    struct handles h;
    shmsync_hold hold[2];
    static sem_t completion[2];
    uint64_t size = 0, phase;
    size_t held;
    pthread_t t;
    int empty, set;
    void *p, *q;
    open_all(a, &h);

    CHECK(shmsync_signal_set(&h.signal, 5, &empty, &set), 0);
    CHECK(empty == 1 && set == 1, 1);
    CHECK(shmsync_signal_set(&h.signal, 5, &empty, &set), 0);
    CHECK(empty == 0 && set == 0, 1);

    CHECK(shmsync_block_open(a, "block", 100, &p), 0);
    CHECK(shmsync_block_attach(a, "block", &q, NULL), 0);
    CHECK(p == q, 1);
    CHECK(shmsync_block_attach(a, "block", &q, &size), 0);
    CHECK(size, 100);

    CHECK(shmsync_multilock_open(a, "other", NULL, &other), 0);
    CHECK(shmsync_multilock_lock(&other, 1, &hold[1]), 0);
    CHECK(shmsync_multilock_close(&other), 0);
    memset(&hold[0], 0, sizeof hold[0]);
    CHECK(shmsync_multilock_unlock(&hold[0]), EPERM);
    CHECK(shmsync_multilock_unlock(&hold[1]), EBADF);
    CHECK(shmsync_multilock_unlockall(hold, 2), EPERM); /* that of the first */
    held = 1;
    CHECK(shmsync_multilock_lockall(&h.multilock, NULL, 0, NULL, &held), 0);
    CHECK(shmsync_multilock_timedlockall(&h.multilock, NULL, 0, NULL, &held, &soon), 0);
    CHECK(held, 0);

    CHECK(shmsync_semaphore_acquire(&h.semaphore, 5), EINVAL);
    CHECK(shmsync_semaphore_tryacquire(&h.semaphore, 5), EBUSY);
    CHECK(shmsync_semaphore_timedacquire(&h.semaphore, 5, &soon), ETIMEDOUT);

    memset(&o, 0, sizeof o);
    o.completion = block_and_return;
    o.completion_arg = completion;
    CHECK(sem_init(&completion[0], 0, 0), 0);
    CHECK(sem_init(&completion[1], 0, 0), 0);
    CHECK(shmsync_barrier_open(a, "completed", 1, &o, &completed), 0);
    CHECK(pthread_create(&t, NULL, arrive, NULL), 0);
    while (sem_wait(&completion[0]) != 0) {
    }
    CHECK(shmsync_barrier_timedarrive_and_wait(&completed, &soon), ETIMEDOUT);
    CHECK(strstr(shmsync_error(), "barrier.arrive") != NULL, 1); /* it does not count */
    CHECK(sem_post(&completion[1]), 0);
    CHECK(sem_post(&completion[1]), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(shmsync_barrier_timedwait(&completed, 1, &soon), ETIMEDOUT); /* the arrival was not made */
    CHECK(shmsync_barrier_arrive(&completed, 1, &phase), 0);
    CHECK(phase, 1);
    return shmsync_arena_close(a);
}

/* The result of a delete in another process, which returns EBUSY as long as this one has the object open. */
static int delete_elsewhere(const char *name, const char *object)
{
    int status;
    pid_t p = fork();
    if (p == 0) {
        shmsync_arena *a;
        CHECK(shmsync_arena_open(name, NULL, &a), 0);
        status = shmsync_delete(a, object);
        CHECK(shmsync_arena_close(a), 0);
        _exit(status);
    }
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WIFEXITED(status), 1);
    return WEXITSTATUS(status);
}
/* An open that finds no memory leaves nothing open, and no memory of the arena in use. */
static int no_memory(void)
{
    enum { ROUNDS = 8000 }; /* more than have room */
    char small[256];
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_mutex m;
    int nth, i, err, named;
    memset(&o, 0, sizeof o);
    o.size = 1 << 20;
    o.max_participants = 4;
    snprintf(small, sizeof small, "%s-2", arena_name);
    CHECK(shmsync_arena_open(small, &o, &a), 0);
    for (named = 0; named < 2; named++)
        for (nth = 1;; nth++) { /* until no call of calloc is the nth any more */
            for (i = 0; i < (named ? 1 : ROUNDS); i++) {
                calloc_to_fail = nth;
                err = shmsync_mutex_open(a, named ? "m" : NULL, NULL, &m);
                if (calloc_to_fail != 0)
                    break;
                CHECK(err, ENOMEM);
            }
            if (calloc_to_fail != 0)
                break;
            if (named) { /* the object may exist, but nobody has it open */
                err = delete_elsewhere(small, "m");
                CHECK(err == 0 || err == ENOENT, 1);
            }
        }
    CHECK(nth > 1, 1);
    calloc_to_fail = 0;
    CHECK(err, 0);
    CHECK(shmsync_mutex_close(&m), 0);
    for (nth = 1;; nth++) { /* an object that exists */
        calloc_to_fail = nth;
        err = shmsync_mutex_attach(a, "m", NULL, &m);
        if (calloc_to_fail != 0)
            break;
        CHECK(err, ENOMEM);
        CHECK(delete_elsewhere(small, "m"), 0);
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_close(&m), 0);
    }
    CHECK(nth > 1, 1);
    calloc_to_fail = 0;
    CHECK(err, 0);
    CHECK(shmsync_mutex_close(&m), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_remove(small), 0);
    return 0;
}

/* ---- Waits for objects of two arenas ---- */

static shmsync_arena *two[2];
static shmsync_event events[2];
static void *wait_for_any(void *arg)
{
    shmsync_awaitable list[2];
    size_t index;
    memset(list, 0, sizeof list);
    list[0].kind = list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &events[0];
    list[1].event = &events[1];
    *(int *)arg = shmsync_wait_any(list, 2, NULL, &index);
    CHECK(index == SIZE_MAX, *(int *)arg == EBADF);
    return NULL;
}
static void *wait_for_all(void *arg)
{
    shmsync_awaitable list[2];
    memset(list, 0, sizeof list);
    list[0].kind = list[1].kind = SHMSYNC_AWAIT_EVENT;
    list[0].event = &events[0];
    list[1].event = &events[1];
    *(int *)arg = shmsync_wait_all(list, 2, NULL);
    return NULL;
}
/* Waits until as many threads sleep for an object of the arena. */
static void await_sleeps(shmsync_arena *a, int n)
{
    while (__builtin_popcount(shmi_ld32(&a->announce_map)) != n)
        sched_yield();
}
/* One call waits for an event in each of two arenas. It announces itself in both, and the close of each of them ends
 * the wait for its event. */
static int two_arenas(void)
{
    char name[2][256];
    pthread_t t;
    int k, which, result;
    alarm(60);
    for (k = 0; k < 8; k++) { /* which arena is closed, which kind of event, which call */
        const int closed = k & 1, all = k >> 2;
        shmsync_event_options o;
        memset(&o, 0, sizeof o);
        o.auto_reset = k >> 1 & 1;
        for (which = 0; which < 2; which++) {
            snprintf(name[which], sizeof name[which], "%s%s", arena_name, which ? "-2" : "");
            CHECK(shmsync_arena_open(name[which], NULL, &two[which]), 0);
            CHECK(shmsync_event_open(two[which], o.auto_reset ? "auto" : "manual", &o, &events[which]), 0);
        }
        CHECK(pthread_create(&t, NULL, all ? wait_for_all : wait_for_any, &result), 0);
        await_sleeps(two[0], 1);
        await_sleeps(two[1], 1);
        CHECK(shmsync_arena_close(two[closed]), 0); /* it waits until the wait for its event has ended */
        if (all) { /* the call goes on to wait for the other event, as it does after any result */
            await_sleeps(two[!closed], 1);
            CHECK(shmsync_event_set(&events[!closed]), 0);
        }
        CHECK(pthread_join(t, NULL), 0);
        CHECK(result, EBADF);
        if (all && !o.auto_reset)
            CHECK(shmsync_event_reset(&events[!closed]), 0);
        CHECK(shmsync_arena_close(two[!closed]), 0);
    }
    /* What came before the close counts. The rest of the wait does not delay a close. */
    for (k = 0; k < 2; k++) {
        CHECK(shmsync_arena_open(name[k], NULL, &two[k]), 0);
        CHECK(shmsync_event_open(two[k], "manual", NULL, &events[k]), 0);
    }
    CHECK(pthread_create(&t, NULL, wait_for_all, &result), 0);
    await_sleeps(two[0], 1);
    CHECK(shmsync_event_set(&events[0]), 0);
    await_sleeps(two[0], 0);
    CHECK(shmsync_arena_close(two[0]), 0);
    CHECK(shmsync_event_set(&events[1]), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(result, 0);
    CHECK(shmsync_arena_close(two[1]), 0);
    return shmsync_arena_remove(name[1]);
}

/* The thread of the library has a name of its own. It has neither the CPU affinity nor the policy of the thread that
 * opened the arena. */
static int helper(void)
{
    cpu_set_t first, one, its;
    struct sched_param none;
    char path[300], name[32];
    struct dirent *e;
    int i = 0, found = 0;
    DIR *d;
    memset(&none, 0, sizeof none);
    CHECK(sched_getaffinity(0, sizeof first, &first), 0);
    while (!CPU_ISSET(i, &first))
        i++;
    CPU_ZERO(&one);
    CPU_SET(i, &one);
    CHECK(sched_setaffinity(0, sizeof one, &one), 0);
    CHECK(sched_setscheduler(0, SCHED_BATCH, &none), 0);
    open_arena();
    d = opendir("/proc/self/task");
    while ((e = readdir(d)) != NULL) {
        int tid = atoi(e->d_name);
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", e->d_name);
        if (tid == 0 || tid == getpid() || shmi_read_file(path, name, sizeof name) <= 0)
            continue;
        if (!SANITIZED) /* ThreadSanitizer starts a thread, too */
            CHECK(strcmp(name, "shmsync-watcher\n") == 0 || strcmp(name, "shmsync-fences\n") == 0, 1);
        if (strcmp(name, "shmsync-watcher\n") != 0)
            continue;
        found++;
        CHECK(sched_getscheduler(tid), SCHED_OTHER);
        CHECK(sched_getaffinity(tid, sizeof its, &its), 0);
        CHECK(CPU_EQUAL(&its, &first), 1);
    }
    closedir(d);
    CHECK(found, 1);
    return 0;
}

/* The process ends when its last application thread does, and SIGTERM ends it earlier. */
static int last_thread(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        open_arena();
        kill(getpid(), SIGTERM);
        for (;;)
            pause();
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFSIGNALED(status) ? WTERMSIG(status) : 0, SIGTERM);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_arena();
        pthread_exit(NULL);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    return 0;
}

/* A process whose handler of exit closes the arena. */
static shmsync_arena *to_close;
static void close_at_exit(void)
{
    sigset_t set;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    CHECK(sigismember(&set, SIGTERM), 0); /* as in the thread that opened the arena */
    CHECK(sigismember(&set, SIGUSR1), 1);
    CHECK(shmsync_arena_close(to_close), 0);
}
static void *close_nothing(void *arg) { return arg; }
static int was_clean;
static int note_epoch(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)arg;
    was_clean = e->clean;
    return 0;
}
/* When the last thread of a process ends, a handler of exit can close the arena, and no peer takes this end for a death. */
static int last_thread_closes(void)
{
    shmsync_arena_options o;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        sigset_t set;
        pthread_t t;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(60);
        sigemptyset(&set);
        sigaddset(&set, SIGUSR1);
        CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
        CHECK(atexit(close_at_exit), 0);
        to_close = open_arena();
        CHECK(pthread_create(&t, NULL, close_nothing, NULL), 0);
        CHECK(pthread_detach(t), 0);
        pthread_exit(NULL);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 0);
    memset(&o, 0, sizeof o);
    o.on_first = note_epoch;
    CHECK(shmsync_arena_open(arena_name, &o, &to_close), 0);
    CHECK(was_clean, 1);
    return shmsync_arena_close(to_close);
}

static int asked; /* atomic */
static void *ask_often(void *arg)
{
    int i;
    (void)arg;
    while (!__atomic_load_n(&shmi_opener_ended, __ATOMIC_SEQ_CST))
        sched_yield();
    for (i = 0; i < 20000; i++)
        shmi_end_if_alone(0);
    __atomic_store_n(&asked, 1, __ATOMIC_SEQ_CST);
    shmi_end_thread();
    return NULL;
}
static void *pass_on(void *arg)
{
    pthread_t next;
    if (__atomic_load_n(&asked, __ATOMIC_SEQ_CST))
        _exit(7);
    CHECK(pthread_create(&next, NULL, pass_on, arg), 0);
    CHECK(pthread_detach(next), 0);
    return NULL;
}
/* The main thread has ended, and each thread starts the next one before it ends itself. The process goes on. */
static int threads_in_turn(void)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        open_arena();
        CHECK(pthread_create(&t, NULL, pass_on, NULL), 0);
        CHECK(pthread_detach(t), 0);
        CHECK(shmi_start_thread(&t, "asks", ask_often, NULL), 0);
        CHECK(pthread_detach(t), 0);
        pthread_exit(NULL);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 7);
    return 0;
}

static pid_t forked;
static int forked_status;
static int fork_and_return(void *arg)
{
    (void)arg;
    forked = fork();
    if (forked == 0) {
        close(2); /* so that the message about the end is not shown */
        return 0;
    }
    CHECK(waitpid(forked, &forked_status, 0), forked);
    return 0;
}
/* If a child of a fork in a repair function returns from that function, the child ends and changes nothing. */
static int fork_in_repair(void)
{
    shmsync_arena *a;
    shmsync_mutex m;
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        a = open_arena();
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    a = open_arena();
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), EOWNERDEAD);
    CHECK(shmsync_mutex_recover(&m, fork_and_return, NULL), 0);
    CHECK(forked > 0, 1);
    CHECK(WIFSIGNALED(forked_status) ? WTERMSIG(forked_status) : 0, SIGABRT);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    return shmsync_arena_close(a);
}

static sem_t told_once;
static int usual_slack; /* timer slack of the threads of the program */
static void fork_and_join(const shmsync_participant *p, void *arg)
{
    (void)p;
    (void)arg;
    forked = fork();
    if (forked == 0) {
        shmsync_arena *a;
        shmsync_mutex m;
        sigset_t set;
        CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
        CHECK(sigismember(&set, SIGTERM), 0);
        CHECK(sigismember(&set, SIGUSR1), 1);
        CHECK(prctl(PR_GET_TIMERSLACK), usual_slack);
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    CHECK(waitpid(forked, &forked_status, 0), forked);
    sem_post(&told_once);
}
/* A process that joins the arena when let_live is called, and dies. The caller is no participant yet, because the process
 * would inherit its opening. */
struct shortlived {
    pid_t pid;
    int go[2];
};
static struct shortlived shortlived(void)
{
    struct shortlived v;
    char c;
    CHECK(pipe(v.go), 0);
    v.pid = fork();
    if (v.pid == 0) {
        CHECK(read(v.go[0], &c, 1), 1);
        open_arena();
        _exit(0);
    }
    return v;
}
static void let_live(const struct shortlived *v)
{
    int status;
    CHECK(write(v->go[1], "", 1), 1);
    CHECK(waitpid(v->pid, &status, 0), v->pid);
    CHECK(status, 0);
}
/* A child of a fork in the function of shmsync_arena_on_death may open the arena. The child has the signal mask of the
 * thread that opened the arena, and not that of the helper thread, which runs the function. */
static int fork_in_on_death(void)
{
    shmsync_arena *a;
    struct shortlived v = shortlived();
    sigset_t set;
    sem_init(&told_once, 0, 0);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    CHECK(pthread_sigmask(SIG_BLOCK, &set, NULL), 0);
    usual_slack = prctl(PR_GET_TIMERSLACK);
    a = open_arena();
    CHECK(shmsync_arena_on_death(a, fork_and_join, NULL), 0);
    let_live(&v);
    while (sem_wait(&told_once) != 0) {
    }
    CHECK(forked_status, 0);
    return shmsync_arena_close(a);
}

static shmsync_arena *inside;
static int closed_inside;
static void close_inside(void *arg)
{
    (void)arg;
    closed_inside = shmsync_arena_close(inside);
}
static jmp_buf out_of_it;
static void jump(void *arg)
{
    (void)arg;
    longjmp(out_of_it, 1);
}
/* A function that a call runs cannot close the arena, and neither can a thread that left such a function by longjmp. */
static int close_in_call(void)
{
    shmsync_once o;
    inside = open_arena();
    CHECK(shmsync_once_open(inside, "o", NULL, &o), 0);
    CHECK(shmsync_once_do(&o, close_inside, NULL), 0);
    CHECK(closed_inside, EDEADLK);
    CHECK(shmsync_once_open(inside, "jump", NULL, &o), 0);
    if (setjmp(out_of_it) == 0)
        shmsync_once_do(&o, jump, NULL);
    CHECK(shmsync_arena_close(inside), EDEADLK);
    return 0;
}

/* Calls of several arenas, each of which runs the next one. Two arenas have no entry in shmi_calls_in. */
enum { NESTED = SHMI_INSIDE + 2 };
static shmsync_arena *nested[NESTED + 1];
static shmsync_once nested_once[NESTED];
static void call_next(void *depth)
{
    int i = *(int *)depth;
    *(int *)depth = i + 1;
    if (i < NESTED) {
        CHECK(shmsync_once_do(&nested_once[i], call_next, depth), 0);
        return;
    }
    for (i = 0; i <= NESTED; i++) /* the last arena is not in a call, but the thread cannot know that */
        CHECK(shmsync_arena_close(nested[i]), EDEADLK);
    CHECK(strstr(shmsync_error(), "more than 4 arenas") != NULL, 1);
}
/* A thread in nested calls of many arenas can close no arena. After these calls it can close them all. */
static int close_in_nested_calls(void)
{
    int i, depth = 0;
    alarm(60);
    for (i = 0; i <= NESTED; i++) {
        char name[128];
        shmsync_arena_options o;
        memset(&o, 0, sizeof o);
        o.size = 1 << 20;
        o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
        snprintf(name, sizeof name, "%.100s.%d", arena_name, i);
        CHECK(shmsync_arena_open(name, &o, &nested[i]), 0);
        if (i < NESTED)
            CHECK(shmsync_once_open(nested[i], "o", NULL, &nested_once[i]), 0);
    }
    call_next(&depth);
    CHECK(depth, NESTED + 1);
    for (i = 0; i <= NESTED; i++)
        CHECK(shmsync_arena_close(nested[i]), 0);
    return 0;
}

/* What calls of an object returned within a function that a call of the same object ran. */
static int in_itself[4];
static shmsync_once its_once;
static shmsync_barrier its_barrier;
static void *do_beside(void *result)
{
    *(int *)result = shmsync_once_do(&its_once, NULL, NULL);
    return NULL;
}
static void do_within(void *other)
{
    struct timespec past = {1, 0};
    in_itself[0] = shmsync_once_do(&its_once, NULL, NULL);
    in_itself[1] = shmsync_once_timeddo(&its_once, NULL, NULL, &past);
    CHECK(pthread_create((pthread_t *)other, NULL, do_beside, &in_itself[2]), 0);
    await_sleeps(inside, 1);
}
/* If the function of a Once calls the Once, it gets an error. Another thread waits. */
static int once_in_itself(void)
{
    pthread_t other;
    alarm(60);
    inside = open_arena();
    CHECK(shmsync_once_open(inside, "o", NULL, &its_once), 0);
    CHECK(shmsync_once_do(&its_once, do_within, &other), 0);
    CHECK(pthread_join(other, NULL), 0);
    CHECK(in_itself[0], EDEADLK);
    CHECK(in_itself[1], EDEADLK);
    CHECK(in_itself[2], 0);
    CHECK(shmsync_once_done(&its_once), 1);
    return shmsync_arena_close(inside);
}
static void *wait_beside(void *result)
{
    *(int *)result = shmsync_barrier_wait(&its_barrier, 0);
    return NULL;
}
static void arrive_within(void *other)
{
    uint64_t phase;
    in_itself[0] = shmsync_barrier_arrive(&its_barrier, 1, &phase);
    in_itself[1] = shmsync_barrier_wait(&its_barrier, 0);
    in_itself[2] = shmsync_barrier_arrive_and_drop(&its_barrier);
    CHECK(pthread_create((pthread_t *)other, NULL, wait_beside, &in_itself[3]), 0);
    await_sleeps(inside, 1);
}
/* If the completion of a Barrier arrives or waits there, it gets an error, and nothing is counted. Another thread waits. */
static int barrier_in_itself(void)
{
    shmsync_barrier_options o;
    pthread_t other;
    uint64_t phase;
    alarm(60);
    memset(&o, 0, sizeof o);
    o.completion = arrive_within;
    o.completion_arg = &other;
    inside = open_arena();
    CHECK(shmsync_barrier_open(inside, "b", 1, &o, &its_barrier), 0);
    CHECK(shmsync_barrier_arrive(&its_barrier, 1, &phase), 0);
    CHECK(pthread_join(other, NULL), 0);
    CHECK(in_itself[0], EDEADLK);
    CHECK(in_itself[1], EDEADLK);
    CHECK(in_itself[2], EDEADLK);
    CHECK(in_itself[3], 0);
    CHECK(shmsync_barrier_wait(&its_barrier, 0), 0);
    return shmsync_arena_close(inside);
}

static sem_t told_all;
/* Two functions, each of which closes the arena of the other one. One gets an error, and the other close ends. */
static shmsync_arena *crossed[2];
static int closed_by_each[2];
static pthread_barrier_t crossing;
static void close_the_other(int which)
{
    pthread_barrier_wait(&crossing);
    closed_by_each[which] = shmsync_arena_close(crossed[!which]);
}
static void close_other(void *which) { close_the_other(*(int *)which); }
static void *do_crossed(void *which)
{
    shmsync_once o;
    CHECK(shmsync_once_open(crossed[*(int *)which], "o", NULL, &o), 0);
    CHECK(shmsync_once_do(&o, close_other, which), 0);
    return NULL;
}
static void close_other_on_death(const shmsync_participant *p, void *which)
{
    (void)p;
    close_the_other(*(int *)which);
    sem_post(&told_all);
}
static int close_each_other(void)
{
    static int of[2] = {0, 1};
    char name[2][256];
    int watchers, which;
    alarm(60);
    CHECK(pthread_barrier_init(&crossing, NULL, 2), 0);
    sem_init(&told_all, 0, 0);
    for (which = 0; which < 2; which++)
        snprintf(name[which], sizeof name[which], "%s%s", arena_name, which ? "-2" : "");
    for (watchers = 0; watchers < 2; watchers++) {
        int go[2], status;
        char c;
        pid_t pid;
        CHECK(pipe(go), 0);
        pid = fork();
        if (pid == 0) {
            CHECK(read(go[0], &c, 1), 1);
            for (which = 0; which < 2; which++)
                CHECK(shmsync_arena_open(name[which], NULL, &crossed[which]), 0);
            _exit(0);
        }
        for (which = 0; which < 2; which++)
            CHECK(shmsync_arena_open(name[which], NULL, &crossed[which]), 0);
        if (watchers) {
            for (which = 0; which < 2; which++)
                CHECK(shmsync_arena_on_death(crossed[which], close_other_on_death, &of[which]), 0);
            CHECK(write(go[1], "", 1), 1);
            for (which = 0; which < 2; which++)
                while (sem_wait(&told_all) != 0) {
                }
        } else {
            pthread_t t[2];
            CHECK(write(go[1], "", 1), 1);
            CHECK(waitpid(pid, &status, 0), pid);
            for (which = 0; which < 2; which++)
                CHECK(pthread_create(&t[which], NULL, do_crossed, &of[which]), 0);
            for (which = 0; which < 2; which++)
                CHECK(pthread_join(t[which], NULL), 0);
        }
        which = closed_by_each[0] == 0; /* its close has failed */
        CHECK(closed_by_each[which], EDEADLK);
        CHECK(closed_by_each[!which], 0);
        CHECK(shmsync_arena_close(crossed[!which]), 0);
        if (watchers)
            CHECK(waitpid(pid, &status, 0), pid);
    }
    CHECK(shmsync_arena_remove(name[1]), 0);
    return 0;
}

/* The function of on_death can neither close the arena nor replace itself: both would wait for its own thread. */
static void close_in_watcher(const shmsync_participant *p, void *arg)
{
    visit(p, arg);
    CHECK(shmsync_arena_on_death(inside, NULL, NULL), EDEADLK);
    CHECK(shmsync_arena_close(inside), EDEADLK);
    sem_post(&told_all);
}
static int close_in_on_death(void)
{
    struct shortlived v = shortlived();
    uint32_t caps;
    alarm(60);
    sem_init(&told_all, 0, 0);
    inside = open_arena();
    CHECK(shmsync_arena_on_death(inside, close_in_watcher, NULL), 0);
    let_live(&v);
    while (sem_wait(&told_all) != 0) {
    }
    CHECK(shmsync_arena_on_death(inside, told, NULL), 0);
    caps = shmi_slot_caps(inside, inside->my_slot);
    CHECK(caps & SHMI_capTold, SHMI_capTold);
    CHECK(shmsync_arena_on_death(inside, NULL, NULL), 0); /* a death need not wake this process any more */
    CHECK(shmi_slot_caps(inside, inside->my_slot), caps & ~(uint32_t)SHMI_capTold);
    pthread_mutex_lock(&inside->death_lock); /* as if deaths had been missed before that */
    inside->n_holes = 1;
    inside->lost = 1;
    pthread_mutex_unlock(&inside->death_lock);
    CHECK(shmsync_arena_on_death(inside, told, NULL), 0);
    pthread_mutex_lock(&inside->death_lock);
    CHECK(inside->n_holes + inside->lost, 0);
    pthread_mutex_unlock(&inside->death_lock);
    CHECK(shmi_slot_caps(inside, inside->my_slot), caps);
    CHECK(shmsync_arena_close(inside), 0);
    CHECK(shmsync_arena_close(inside), EBADF);
    return 0;
}

/* A child of fork makes every call on what its parent opened. The objects are in states in which a call of the parent
 * would succeed at once. */
static int forked_calls(void)
{
    shmsync_arena *a = open_arena();
    shmsync_awaitable wait;
    struct handles all, *h = &all;
    shmsync_participant who;
    shmsync_offset off;
    size_t index;
    uint64_t v, before;
    void *block;
    int status;
    pid_t pid;
    open_all(a, h);
    CHECK(shmsync_alloc(a, 64, &off), 0);
    CHECK(shmsync_block_open(a, "block", 64, &block), 0);
    CHECK(shmsync_once_do(&h->once, nothing, NULL), 0);
    CHECK(shmsync_latch_count_down(&h->latch, 1), 0);
    CHECK(shmsync_sequencer_increment(&h->sequencer, &v), 0);
    CHECK(shmsync_futex_post(&h->futex), 0);
    CHECK(shmsync_event_set(&h->event), 0);
    CHECK(shmsync_future_set(&h->future, 0), 0);
    CHECK(shmsync_barrier_arrive(&h->barrier, 2, NULL), 0);
    before = shmi_fnv(shmi_bytes(a, a->geo.heap_off, 1 << 20), 1 << 20);
    pid = fork();
    if (pid == 0) {
        union {
            uint64_t bytes[64], u, stats[SHMSYNC_STATS];
            int64_t signed_u;
            int i;
            size_t size;
            void *p;
            shmsync_tx tx;
            shmsync_lease lease;
            shmsync_hold hold;
            shmsync_gate gate;
            shmsync_gate_info gate_info;
            shmsync_signal signal;
            shmsync_signal_health signal_health;
        } out;
        static const char *const no_wait[] = {"sequencer_wait", "sequencer_timedwait", "waitgroup_wait", "waitgroup_timedwait",
                                              "latch_wait", "latch_timedwait", "latch_trywait", "once_do", "once_timeddo"};
        memset(&out, 0, sizeof out);
#undef CALL
#undef VALUE
#define CALL(name, call)                                                                            \
    {                                                                                               \
        size_t k_;                                                                                  \
        int got = (call), want = ENOTCONN;                                                          \
        for (k_ = 0; k_ < sizeof no_wait / sizeof *no_wait; k_++)                                   \
            if (strcmp(no_wait[k_], name) == 0)                                                     \
                want = 0; /* what it waits for has come */                                          \
        if (got != want) {                                                                          \
            fprintf(stderr, "in a child of fork, %s: %d, %s\n", name, got, shmsync_error());        \
            _exit(1);                                                                               \
        }                                                                                           \
    }
#define VALUE(name, call) (void)(call);
#include "contract_calls.h"
        memset(&wait, 0, sizeof wait);
        wait.sequencer = &h->sequencer;
        wait.event = &h->event;
        wait.future = &h->future;
        for (wait.kind = SHMSYNC_AWAIT_SEQUENCER; wait.kind <= SHMSYNC_AWAIT_EVENT_RESET; wait.kind++) {
            CALL("wait_any", shmsync_wait_any(&wait, 1, &soon, &index))
            CALL("wait_all", shmsync_wait_all(&wait, 1, &soon))
        }
        CALL("self", shmsync_arena_self(a, &who))
        CALL("participants", shmsync_arena_participants(a, visit, NULL))
        CALL("on_death", shmsync_arena_on_death(a, told, NULL))
        CALL("delete", shmsync_delete(a, "block"))
        CALL("delete_at", shmsync_delete_at(a, off))
        CALL("free", shmsync_free(a, off))
        CALL("block_attach", shmsync_block_attach(a, "block", &block, NULL))
        CALL("recover_all", shmsync_recover_all(a, repair_lost, NULL, NULL))
        CALL("arena_close", shmsync_arena_close(a))
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    CHECK(shmi_fnv(shmi_bytes(a, a->geo.heap_off, 1 << 20), 1 << 20) == before, 1);
    return shmsync_arena_close(a);
}

static uint64_t resident_pages(void)
{
    char b[256];
    CHECK(shmi_read_file("/proc/self/statm", b, sizeof b) > 0, 1);
    return strtoull(strchr(b, ' '), NULL, 10);
}
/* Under mlockall an arena takes only the memory that is used. */
static int locked_memory(void)
{
    const uint64_t size = 256 << 20;
    struct rlimit most = {RLIM_INFINITY, RLIM_INFINITY};
    shmsync_arena_options o;
    shmsync_arena *a;
    struct stat st;
    uint64_t before;
    setrlimit(RLIMIT_MEMLOCK, &most);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) != 0) {
        fprintf(stderr, "needs permission to lock memory: root, or an unlimited RLIMIT_MEMLOCK");
        return 77;
    }
    memset(&o, 0, sizeof o);
    o.size = size;
    before = resident_pages();
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(fstat(a->fd, &st), 0);
    CHECK((uint64_t)st.st_blocks * 512 < size / 2, 1);
    CHECK((resident_pages() - before) * (uint64_t)sysconf(_SC_PAGESIZE) < size / 2, 1);
    CHECK(shmsync_arena_close(a), 0);
    CHECK((resident_pages() - before) * (uint64_t)sysconf(_SC_PAGESIZE) < size / 2, 1);
    return 0;
}

/* If a limit of the process prevents the creation of an arena, the error names the limit, and SIGXFSZ is not sent. */
static int limits(void)
{
    struct rlimit before, limit;
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    CHECK(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 64 << 10;
    CHECK(setrlimit(RLIMIT_FSIZE, &limit), 0);
    CHECK(shmsync_arena_open(arena_name, &o, &a), EFBIG);
    CHECK(strstr(shmsync_error(), "RLIMIT_FSIZE") != NULL, 1);
    CHECK(setrlimit(RLIMIT_FSIZE, &before), 0);

    CHECK(getrlimit(RLIMIT_AS, &before), 0);
    limit = before;
    limit.rlim_cur = (rlim_t)256 << 30;
    CHECK(setrlimit(RLIMIT_AS, &limit), 0);
    o.size = UINT64_C(1) << 40;
    CHECK(shmsync_arena_open(arena_name, &o, &a), ENOMEM);
    CHECK(strstr(shmsync_error(), "RLIMIT_AS") != NULL, 1);
    CHECK(setrlimit(RLIMIT_AS, &before), 0);

    o.size = 16 << 20;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}

static int went_through;
static void *call_canceled(void *arg)
{
    shmsync_arena *a;
    struct handles h;
    shmsync_offset off;
    void *p;
    (void)arg;
    CHECK(pthread_cancel(pthread_self()), 0); /* acts at the next cancellation point */
    a = open_arena();
    open_all(a, &h);
    CHECK(shmsync_alloc(a, 1 << 20, &off), 0);
    CHECK(shmsync_free(a, off), 0);
    CHECK(shmsync_block_open(a, "block", 1 << 20, &p), 0);
    CHECK(shmsync_mutex_lock(&h.mutex), 0);
    CHECK(shmsync_mutex_timedlock(&h.mutex, &soon), ETIMEDOUT);
    CHECK(shmsync_multilock_unlock(&h.hold), 0);
    close_all(&h, 0);
    CHECK(shmsync_delete(a, "event"), 0);
    CHECK(shmsync_arena_close(a), 0);
    __atomic_store_n(&went_through, 1, __ATOMIC_SEQ_CST);
    pthread_testcancel();
    return NULL;
}
/* A pending cancellation takes effect in no call. */
static int cancel(void)
{
    pthread_t t;
    void *result;
    CHECK(pthread_create(&t, NULL, call_canceled, NULL), 0);
    CHECK(pthread_join(t, &result), 0);
    CHECK(result == PTHREAD_CANCELED, 1);
    CHECK(went_through, 1);
    return shmsync_arena_close(open_arena());
}

static shmsync_sequencer counted;
static int handled;
static void handle(int sig)
{
    (void)sig;
    __atomic_fetch_add(&handled, 1, __ATOMIC_SEQ_CST);
}
static void *wait_for_count(void *arg)
{
    (void)arg;
    CHECK(shmsync_sequencer_wait(&counted, 1), 0);
    return NULL;
}
/* A signal ends no wait. */
static int interrupted(void)
{
    shmsync_arena *a = open_arena();
    struct sigaction sa;
    pthread_t t;
    uint64_t v;
    int i;
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = handle; /* without SA_RESTART */
    CHECK(sigaction(SIGUSR1, &sa, NULL), 0);
    CHECK(shmsync_sequencer_open(a, "s", NULL, &counted), 0);
    CHECK(pthread_create(&t, NULL, wait_for_count, NULL), 0);
    for (i = 1; i <= 100; i++) {
        CHECK(pthread_kill(t, SIGUSR1), 0);
        while (__atomic_load_n(&handled, __ATOMIC_SEQ_CST) < i)
            sched_yield();
    }
    CHECK(shmsync_sequencer_increment(&counted, &v), 0);
    CHECK(pthread_join(t, NULL), 0);
    return shmsync_arena_close(a);
}

/* ---- A signal handler at every instruction of a call ---- */

#if defined(__x86_64__) && !SANITIZED
static shmsync_semaphore in_handler;
static volatile sig_atomic_t steps;
/* SIGTRAP comes after each instruction. The handler makes a call on an object of another arena. */
static void handle_step(int sig)
{
    int e = errno;
    (void)sig;
    steps++;
    CHECK(shmsync_semaphore_tryacquire(&in_handler, 100), EBUSY);
    errno = e;
}
/* Sets or clears the trap flag. It uses functions of the compiler, because a push in assembly would overwrite the
 * variables below the stack pointer. */
static void step_flag(int on)
{
    unsigned long long flags = __builtin_ia32_readeflags_u64();
    __builtin_ia32_writeeflags_u64(on ? flags | 0x100 : flags & ~0x100ULL);
}
static int handler_state(void)
{
    char other[256];
    struct sigaction sa;
    shmsync_arena *a = open_arena(), *b;
    int state;
    snprintf(other, sizeof other, "%s-2", arena_name);
    CHECK(shmsync_arena_open(other, NULL, &b), 0);
    CHECK(shmsync_semaphore_open(b, "s", 5, NULL, &in_handler), 0);
    CHECK(shmsync_arena_on_death(a, told, NULL), 0);
    memset(&sa, 0, sizeof sa);
    sa.sa_handler = handle_step;
    CHECK(sigaction(SIGTRAP, &sa, NULL), 0);
    step_flag(1);
    shmsync_arena_on_death(a, told, NULL); /* a short call that counts itself */
    step_flag(0);
    CHECK(steps > 50, 1);
    CHECK(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state), 0);
    CHECK(state, PTHREAD_CANCEL_ENABLE);
    CHECK(shmsync_arena_close(b), 0); /* EDEADLK: the thread counts as being in a call of b */
    CHECK(shmsync_arena_remove(other), 0);
    return shmsync_arena_close(a);
}
#else
static int handler_state(void)
{
    fprintf(stderr, "needs single steps of an x86 CPU, without a sanitizer");
    return 77;
}
#endif

/* While a thread takes a word from a dead participant, it blocks no signal that a fault raises. */
static int signals_of_faults(void)
{
    static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS};
    shmsync_arena *a = open_arena();
    shmi_act act;
    sigset_t set, before;
    size_t k;
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &before), 0);
    shmi_begin_act(a, &act, shmi_make_participant_id(a->my_slot, shmi_id_gen(a->self) + 1));
    CHECK(act.word != NULL, 1);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    CHECK(sigismember(&set, SIGUSR1), 1);
    for (k = 0; k < sizeof faults / sizeof *faults; k++)
        CHECK(sigismember(&set, faults[k]), 0);
    shmi_end_act(a, &act);
    CHECK(pthread_sigmask(SIG_SETMASK, NULL, &set), 0);
    for (k = 1; k < 32; k++)
        CHECK(sigismember(&set, (int)k), sigismember(&before, (int)k));
    return shmsync_arena_close(a);
}

static shmsync_arena *shallow;
static shmsync_event many[SHMSYNC_AWAIT_MOST];
static shmsync_awaitable all_of_many[SHMSYNC_AWAIT_MOST];
static int fail_late(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)e;
    (void)arg;
    return ENODEV;
}
static void *do_nothing(void *arg) { return arg; }
static void *open_shallow(void *arg)
{
    shallow = open_arena();
    return arg;
}
static void *open_late(void *arg)
{
    shmsync_arena_options o;
    memset(&o, 0, sizeof o);
    o.on_first = fail_late;
    CHECK(shmsync_arena_open(arena_name, &o, &shallow), ENODEV);
    return arg;
}
/* Creates arenas at a relative path, and removes them. */
static char stack_path[300];
static void *open_at_path(void *arg)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    o.size = 4 << 20;
    o.max_participants = 8;
    CHECK(shmsync_arena_open(stack_path, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_remove(stack_path), 0);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(shmsync_arena_open(stack_path, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(access(stack_path, F_OK), -1);
    return arg;
}
static void *close_shallow(void *arg)
{
    CHECK(shmsync_arena_close(shallow), 0);
    return arg;
}
static struct timespec shortly(void)
{
    struct timespec ts = shmi_timespec(shmi_now() + 1000000);
    return ts;
}
static void *wait_shallow_all(void *arg)
{
    struct timespec ts = shortly();
    CHECK(shmsync_wait_all(all_of_many, SHMSYNC_AWAIT_MOST, &ts), ETIMEDOUT);
    return arg;
}
static void *wait_shallow_any(void *arg)
{
    struct timespec ts = shortly();
    size_t index;
    CHECK(shmsync_wait_any(all_of_many, SHMSYNC_AWAIT_MOST, &ts, &index), ETIMEDOUT);
    return arg;
}
/* Whether a call of that name may wait for ever. Its timed form does the same, and ends. */
static int may_wait(const char *name)
{
    static const char *const ends[] = {"lock", "lockall", "_wait", "wait_reset", "_begin", "_put", "_get", "_lease", "acquire", "upgrade", "lock_upgradable", "rwmutex_recover", "rwspinlock_recover", "multilock_recover"};
    size_t i, n = strlen(name);
    if (strstr(name, "try") != NULL || strstr(name, "timed") != NULL || strstr(name, "unlock") != NULL)
        return 0;
    for (i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (n >= strlen(ends[i]) && strcmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return 1;
    return 0;
}
static struct handles shallow_handles;
static int shallow_call;         /* the number of the call in contract_calls.h that call_shallow makes */
static const char *shallow_name; /* its name; NULL: there are fewer calls */
static void *call_shallow(void *arg)
{
    union result out;
    struct handles *h = &shallow_handles;
    int n = 0;
    memset(&out, 0, sizeof out);
    shallow_name = NULL;
#undef CALL
#undef VALUE
#define CALL(name, call)                \
    if (n++ == shallow_call) {          \
        shallow_name = (name);          \
        if (!may_wait(shallow_name))    \
            (void)(call);               \
    }
#define VALUE(name, call) CALL(name, call)
#include "contract_calls.h"
    return arg;
}
/* Returns how many bytes of its stack a thread that runs f has used. */
static size_t depth_of(void *(*f)(void *))
{
    const size_t size = 512 << 10;
    unsigned char *stack = (unsigned char *)mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pthread_attr_t attr;
    pthread_t t;
    size_t unused = 0;
    CHECK(stack != MAP_FAILED, 1);
    memset(stack, 0xa5, size);
    CHECK(pthread_attr_init(&attr), 0);
    CHECK(pthread_attr_setstack(&attr, stack, size), 0);
    CHECK(pthread_create(&t, &attr, f, NULL), 0);
    CHECK(pthread_join(t, NULL), 0);
    pthread_attr_destroy(&attr);
    while (unused < size && stack[unused] == 0xa5)
        unused++;
    CHECK(munmap(stack, size), 0);
    return size - unused;
}
/* Runs f in a thread with that stack. */
static void run_in(size_t size, void *(*f)(void *))
{
    pthread_attr_t attr;
    pthread_t t;
    CHECK(pthread_attr_init(&attr), 0);
    CHECK(pthread_attr_setstacksize(&attr, size), 0);
    CHECK(pthread_create(&t, &attr, f, NULL), 0);
    CHECK(pthread_join(t, NULL), 0);
    pthread_attr_destroy(&attr);
}
/* Measures how much more stack calls need than a thread that does nothing. */
static int stack(void)
{
    const size_t least = depth_of(do_nothing);
    const size_t call = 12 << 10, other = 8 << 10;
    char name[16];
    int i;
    if (SANITIZED) { /* their frames are larger */
        printf("needs frames without a sanitizer");
        fflush(stdout);
        return 77;
    }
#define WITHIN(most, f)                                                                                \
    do {                                                                                               \
        size_t depth = depth_of(f) - least;                                                            \
        if (depth > (most)) {                                                                          \
            fprintf(stderr, "line %d: %s needs %zu bytes, more than %zu\n", __LINE__, #f, depth, (most)); \
            _exit(1);                                                                                  \
        }                                                                                              \
    } while (0)
    CHECK(chdir("/dev/shm"), 0);
    snprintf(stack_path, sizeof stack_path, "./%s.path", arena_name);
    WITHIN(call, open_at_path);
    WITHIN(call, open_late);
    run_in(((size_t)PTHREAD_STACK_MIN > 16 << 10 ? (size_t)PTHREAD_STACK_MIN : 16 << 10) + (4 << 10), open_at_path); /* musl accepts 2 KiB */
    WITHIN(call, open_shallow);
    for (i = 0; i < SHMSYNC_AWAIT_MOST; i++) {
        snprintf(name, sizeof name, "event %d", i);
        CHECK(shmsync_event_open(shallow, name, NULL, &many[i]), 0);
        all_of_many[i].kind = SHMSYNC_AWAIT_EVENT;
        all_of_many[i].event = &many[i];
    }
    WITHIN(call, wait_shallow_all);
    WITHIN(call, wait_shallow_any);
    open_all(shallow, &shallow_handles);
    for (shallow_call = 0;; shallow_call++) {
        size_t depth = depth_of(call_shallow) - least;
        if (shallow_name == NULL)
            break;
        if (depth > other) {
            fprintf(stderr, "%s needs %zu bytes, more than %zu\n", shallow_name, depth, other);
            _exit(1);
        }
    }
    CHECK(shallow_call > 200, 1);
    WITHIN(call, close_shallow);
    return 0;
}

int main(int argc, char **argv)
{
    const struct {
        const char *name;
        int (*f)(void);
    } verbs[] = {
        {"closed-handles", closed_handles},
        {"closed-arena", closed_arena},
        {"closed-in-use", closed_in_use},
        {"close-many", close_many},
        {"closed-many", closed_many},
        {"closed-without-room", closed_without_room},
        {"few-sizes", few_sizes},
        {"many-sizes", many_sizes},
        {"errors", errors},
        {"error-texts", error_texts},
        {"open-errors", open_errors},
        {"delete-at", delete_at},
        {"helper", helper},
        {"last-thread", last_thread},
        {"last-thread-closes", last_thread_closes},
        {"threads-in-turn", threads_in_turn},
        {"fork-in-repair", fork_in_repair},
        {"fork-in-on-death", fork_in_on_death},
        {"close-in-call", close_in_call},
        {"locked-memory", locked_memory},
        {"limits", limits},
        {"cancel", cancel},
        {"interrupted", interrupted},
        {"kept-error", kept_error},
        {"results", results},
        {"no-memory", no_memory},
        {"two-arenas", two_arenas},
        {"once-in-itself", once_in_itself},
        {"barrier-in-itself", barrier_in_itself},
        {"close-each-other", close_each_other},
        {"close-in-nested-calls", close_in_nested_calls},
        {"close-in-on-death", close_in_on_death},
        {"forked-calls", forked_calls},
        {"handler-state", handler_state},
        {"signals-of-faults", signals_of_faults},
        {"stack", stack},
    };
    const struct rlimit no_core = {0, 0};
    size_t i;
    if (argc != 3)
        return 2;
    arena_name = argv[2];
    alarm(300);
    CHECK(setrlimit(RLIMIT_CORE, &no_core), 0);
    for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].f();
    return 2;
}
