/* Tests the rest of calls that have taken effect: late ARENA VERB. When a call comes to its wake, the object is closed and
 * deleted, and another object has its bytes. The rest of the call does not change them. Other verbs close only the handle,
 * stop a call for long, or reap late. SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <time.h>
#include <unistd.h>
void at_point(const char *name);
static __thread void (*at_clock)(struct timespec *ts); /* what the next look of this thread at the clock does */
static int read_clock(clockid_t clock, struct timespec *ts)
{
    void (*f)(struct timespec *) = at_clock;
    int err = clock_gettime(clock, ts);
    at_clock = NULL;
    if (f != NULL)
        f(ts);
    return err;
}
#define clock_gettime read_clock
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/prctl.h>
#include "check.h"
#include "processes.h"

static shmsync_arena *arena;
static const char *point; /* NULL after the call has come to it */
static shmi_off (*opens)(const char *name); /* opens an object, and returns the offset of its body */
static void (*closes)(void);
static shmi_off body;
enum { WORDS = 16 };
static const uint64_t fill = UINT64_C(0x0101010101010101); /* each bit is set for which a late call may look */

static uint64_t *words(void) { return (uint64_t *)shmi_ptr(arena, body, 8 * WORDS, 64); }

static uint32_t watcher_waits; /* 1: the death watcher waits before it marks a death; 2: it does so now. Atomic. */

void at_point(const char *name)
{
    int i;
    if (strcmp(name, "arena.reap.seen") == 0)
        for (; shmi_cas32(&watcher_waits, 1, 2) || (shmi_ld32(&watcher_waits) == 2 && pthread_equal(pthread_self(), arena->watcher));)
            sched_yield();
    if (point == NULL || strcmp(name, point) != 0)
        return;
    point = NULL;
    closes();
    if (opens == NULL)
        return;
    CHECK(shmsync_delete(arena, "x"), 0);
    CHECK(opens("next") == body, 1);
    for (i = 0; i < WORDS; i++)
        shmi_st64(words() + i, fill);
}

/* Announces a waiter in the wake word at that place of the body. */
static void announce(uint32_t at) { shmi_st32((uint32_t *)(void *)words() + at / 4, 1); }
/* Begins the test of an object. */
static void begin(shmi_off (*o)(const char *), void (*c)(void))
{
    opens = o;
    closes = c;
    body = opens("x");
}

static shmsync_mutex mutex;
static int checked, policy;
static shmi_off opens_mutex(const char *name)
{
    shmsync_mutex_options opts;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.checked = (uint32_t)checked;
    CHECK(shmsync_mutex_open(arena, name, &opts, &mutex), 0);
    return mutex.impl->o.body;
}
static void closes_mutex(void) { CHECK(shmsync_mutex_close(&mutex), 0); }
static void unlocks_mutex(int warm)
{
    begin(opens_mutex, closes_mutex);
    for (; warm > 0; warm--) { /* an unlock that finds a waiter ends the bias */
        CHECK(shmsync_mutex_lock(&mutex), 0);
        announce(64);
        CHECK(shmsync_mutex_unlock(&mutex), 0);
    }
    CHECK(shmsync_mutex_lock(&mutex), 0);
    announce(64);
    point = "mutex.unlock.before_wake";
    CHECK(shmsync_mutex_unlock(&mutex), 0);
}

static shmsync_rwmutex rwmutex;
static shmi_off opens_rwmutex(const char *name)
{
    shmsync_rwmutex_options opts;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = policy;
    CHECK(shmsync_rwmutex_open(arena, name, &opts, &rwmutex), 0);
    return rwmutex.impl->o.body;
}
static void closes_rwmutex(void) { CHECK(shmsync_rwmutex_close(&rwmutex), 0); }
static void unlocks_rwmutex(void)
{
    begin(opens_rwmutex, closes_rwmutex);
    CHECK(shmsync_rwmutex_lock(&rwmutex), 0);
    announce(64);
    point = "mutex.unlock.before_wake";
    CHECK(shmsync_rwmutex_unlock(&rwmutex), 0);
}

/* An unlock of a writer has opened the gate, and still has the writers' mutex. A reader that it has let in closes the handle
 * and opens the object again. The mutex is no upgradable hold, although the words look like one. An upgradable hold stays
 * over such a close. */
static int reopened;
static void reopens_rwmutex(void)
{
    CHECK(shmsync_rwmutex_close(&rwmutex), 0);
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_unlock_upgradable(&rwmutex), EPERM);
    reopened = 1;
}
static void opens_rwmutex_beside_an_unlock(void)
{
    shmsync_rwmutex x;
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    x = rwmutex;
    CHECK(shmsync_rwmutex_lock(&x), 0);
    closes = reopens_rwmutex;
    point = "rwmutex.unlock.opened";
    CHECK(shmsync_rwmutex_unlock(&x), 0);
    CHECK(reopened, 1);
    CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0);
    CHECK(shmsync_rwmutex_close(&rwmutex), 0);
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_trylock(&rwmutex), EBUSY);
    CHECK(shmsync_rwmutex_upgrade(&rwmutex), 0);
    CHECK(shmsync_rwmutex_close(&rwmutex), 0);
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_unlock_upgradable(&rwmutex), EPERM);
    CHECK(shmsync_rwmutex_downgrade_to_upgradable(&rwmutex), 0);
    CHECK(shmsync_rwmutex_close(&rwmutex), 0);
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_unlock_upgradable(&rwmutex), 0);
    CHECK(shmsync_rwmutex_unlock_upgradable(&rwmutex), EPERM);
    CHECK(shmsync_rwmutex_lock_upgradable(&rwmutex), 0);
    CHECK(shmsync_rwmutex_close(&rwmutex), 0);
    CHECK(shmsync_arena_close(arena), 0);
}
/* The handle is closed while lock_upgradable is under way. The next handle knows the hold. */
static void closes_rwmutex_beside_lock_upgradable(void)
{
    shmsync_rwmutex x;
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    x = rwmutex;
    closes = closes_rwmutex;
    point = "rwmutex.lock.queued";
    CHECK(shmsync_rwmutex_lock_upgradable(&x), 0);
    CHECK(point == NULL, 1);
    CHECK(shmsync_rwmutex_open(arena, "x", NULL, &rwmutex), 0);
    CHECK(shmsync_rwmutex_unlock_upgradable(&rwmutex), 0);
    CHECK(shmsync_rwmutex_trylock(&rwmutex), 0);
}

static shmsync_spinlock spinlock;
static shmi_off opens_spinlock(const char *name)
{
    CHECK(shmsync_spinlock_open(arena, name, NULL, &spinlock), 0);
    return spinlock.impl->o.body;
}
static void closes_spinlock(void) { CHECK(shmsync_spinlock_close(&spinlock), 0); }
static void unlocks_spinlock(void)
{
    begin(opens_spinlock, closes_spinlock);
    CHECK(shmsync_spinlock_lock(&spinlock), 0);
    announce(64);
    point = "spinlock.unlock.before_wake";
    CHECK(shmsync_spinlock_unlock(&spinlock), 0);
}

static shmsync_rwspinlock rwspin;
static shmi_off opens_rwspin(const char *name)
{
    shmsync_spinlock_options opts;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = policy;
    CHECK(shmsync_rwspinlock_open(arena, name, &opts, &rwspin), 0);
    return rwspin.impl->o.body;
}
static void closes_rwspin(void) { CHECK(shmsync_rwspinlock_close(&rwspin), 0); }
static void unlocks_rwspin(int reads)
{
    begin(opens_rwspin, closes_rwspin);
    CHECK(reads ? shmsync_rwspinlock_rdlock(&rwspin) : shmsync_rwspinlock_lock(&rwspin), 0);
    announce(4);
    announce(64);
    announce(68);
    point = reads ? "rwspinlock.runlock.before_wake" : "spinlock.unlock.before_wake";
    CHECK(reads ? shmsync_rwspinlock_rdunlock(&rwspin) : shmsync_rwspinlock_unlock(&rwspin), 0);
}

static shmsync_latch latch;
static void closes_latch(void)
{
    CHECK(shmsync_latch_close(&latch), 0);
    CHECK(shmsync_delete(arena, "x"), EBUSY);
}
/* The last arrival wakes the others, and one of them closes the handle. The call has a second step after the wake. */
static void arrives_at_latch(void)
{
    struct timespec past = {0, 1};
    CHECK(shmsync_latch_open(arena, "x", 1, NULL, &latch), 0);
    CHECK(shmsync_latch_timedwait(&latch, &past), ETIMEDOUT); /* a waiter is announced */
    closes = closes_latch;
    point = "counter.zero.before_wake";
    CHECK(shmsync_latch_arrive_and_wait(&latch, 1), 0);
    CHECK(point == NULL, 1);
    CHECK(shmsync_delete(arena, "x"), 0);
}

static shmsync_sequencer sequencer;
static void closes_sequencer(void) { CHECK(shmsync_sequencer_close(&sequencer), 0); }
static void stops_sequencer(void)
{
    CHECK(shmsync_sequencer_open(arena, "x", NULL, &sequencer), 0);
    closes = closes_sequencer;
    point = "sequencer.stop.marked";
    CHECK(shmsync_sequencer_stop(&sequencer), 0);
    CHECK(point == NULL, 1);
}
static shmsync_signalwaker waker;
static void closes_waker(void) { CHECK(shmsync_signalwaker_close(&waker), 0); }
static void marks_leaf(void)
{
    CHECK(shmsync_signalwaker_open(arena, "x", NULL, &waker), 0);
    closes = closes_waker;
    point = "signal.partition.marked";
    CHECK(shmsync_signalwaker_mark_leaf(&waker, 1, NULL), 0);
    CHECK(point == NULL, 1);
}

static pid_t child(void (*runs)(const char *name), const char *name)
{
    pid_t p = fork();
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(shmsync_arena_open(name, NULL, &arena), 0);
        runs(name);
        _exit(0);
    }
    await_stop(p);
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    return p;
}
static char failure[512]; /* before the call */
static void stops(void) { raise(SIGSTOP); }
enum { BUSY = 70, ANNOUNCED = 1000 };
static void schedules(const char *name)
{
    shmsync_gate g;
    (void)name;
    CHECK(shmsync_signalwaker_open(arena, "x", NULL, &waker), 0);
    CHECK(shmsync_signalwaker_gate(&waker, ANNOUNCED, &g), 0);
    closes = stops;
    point = "signal.schedule.gated";
    CHECK(shmsync_gate_schedule(&g, NULL), 0);
}
/* A process is stopped after it has scheduled a queue, and before a worker can find the queue. Another process, whose
 * worker always has other work, finds it all the same. */
static void serves_a_stopped_announcement(const char *name)
{
    pid_t p = child(schedules, name);
    shmsync_gate g;
    CHECK(shmsync_signalwaker_open(arena, "x", NULL, &waker), 0);
    CHECK(shmsync_signalwaker_gate(&waker, BUSY, &g), 0);
    CHECK(shmsync_gate_schedule(&g, NULL), 0);
    for (;;) {
        CHECK(shmsync_signalwaker_next(&waker, ANNOUNCED, &g), 0);
        if (g.queue == ANNOUNCED)
            break;
        CHECK(g.queue, BUSY);
        CHECK(shmsync_gate_finish_and_schedule(&g), 0);
    }
    CHECK(shmsync_gate_finish(&g, NULL), 0);
    goes_on(p);
}

static shmsync_waitgroup group;
static uint32_t *state, living;
static void undertakes(const char *name)
{
    (void)name;
    CHECK(shmsync_waitgroup_open(arena, "x", NULL, &group), 0);
    CHECK(shmsync_waitgroup_add(&group, 3), 0);
    raise(SIGSTOP);
    CHECK(shmsync_waitgroup_add(&group, -3), 0);
}
static void gets_the_id(void) { shmi_st32(state, living); }
/* A reaper finds the owner of the whole count dead, and is delayed. When it goes on, a living participant has the ID
 * of the owner, and the commit word has its old value. */
static void reaps_late(const char *name)
{
    pid_t p = child(undertakes, name);
    uint64_t c;
    CHECK(shmsync_waitgroup_open(arena, "x", NULL, &group), 0);
    c = shmi_counter_load(group.impl);
    state = shmi_slot32(arena, shmi_id_slot(shmi_counter_owner(c)), SHMI_slotState);
    living = shmi_ld32(state);
    shmi_st32(state, living + 8); /* another generation */
    closes = gets_the_id;
    point = "arena.act.begun";
    shmi_counter_reap(group.impl, 0);
    shmi_st32(state, living);
    CHECK(shmi_counter_load(group.impl) == c, 1);
    CHECK(point == NULL, 1);
    goes_on(p);
    CHECK(shmsync_waitgroup_wait(&group), 0);
}

static const struct try_of_a_dead {
    const char *verb, *point;
    shmi_off (*opens)(const char *name);
    void (*closes)(void);
    int (*lock)(void), (*try_)(void);
} *tried;
static int locks_mutex(void) { return shmsync_mutex_lock(&mutex); }
static int tries_mutex(void) { return shmsync_mutex_trylock(&mutex); }
static int locks_rwmutex(void) { return shmsync_rwmutex_lock(&rwmutex); }
static int tries_to_read(void) { return shmsync_rwmutex_tryrdlock(&rwmutex); }
static int locks_spinlock(void) { return shmsync_spinlock_lock(&spinlock); }
static int tries_spinlock(void) { return shmsync_spinlock_trylock(&spinlock); }
static int locks_rwspin(void) { return shmsync_rwspinlock_lock(&rwspin); }
static int tries_rwspin(void) { return shmsync_rwspinlock_tryrdlock(&rwspin); }
static const struct try_of_a_dead tries[] = {
    {"try mutex", "mutex.owner_dead.marked", opens_mutex, closes_mutex, locks_mutex, tries_mutex},
    {"try rwmutex", "rwmutex.owner_dead.marked", opens_rwmutex, closes_rwmutex, locks_rwmutex, tries_to_read},
    {"try spinlock", "spinlock.owner_dead.marked", opens_spinlock, closes_spinlock, locks_spinlock, tries_spinlock},
    {"try rwspinlock", "spinlock.owner_dead.marked", opens_rwspin, closes_rwspin, locks_rwspin, tries_rwspin},
};
static void holds(const char *name)
{
    (void)name;
    tried->opens("x");
    CHECK(tried->lock(), 0);
    raise(SIGSTOP);
}
static void closes_tried(void)
{
    tried->closes();
    CHECK(shmsync_delete(arena, "x"), EBUSY);
}
static void waits_for_watcher(void)
{
    while (shmi_ld32(&watcher_waits) != 2)
        sched_yield();
}
/* A trylock is the first call that finds the death of the holder. When it has taken the lock from the holder, another thread
 * closes the handle. The object stays open until the call returns. */
static void finds_a_death(const char *name)
{
    pid_t p = child(holds, name);
    tried->opens("x");
    shmi_st32(&watcher_waits, 1);
    kills(p);
    waits_for_watcher();
    closes = closes_tried;
    point = tried->point;
    CHECK(tried->try_() != 0, 1); /* EOWNERDEAD, or EBUSY because the handle is closed */
    CHECK(point == NULL, 1);
    CHECK(shmsync_delete(arena, "x"), 0);
    shmi_st32(&watcher_waits, 0);
}

/* What a dead participant has had, and calls that do not wait can get when they have found its death. */
static shmsync_semaphore semaphore;
static shmsync_queue queue;
static shmsync_event event;
static void opens_semaphore(void) { CHECK(shmsync_semaphore_open(arena, "x", 1, NULL, &semaphore), 0); }
static void holds_permit(void) { CHECK(shmsync_semaphore_tryacquire(&semaphore, 1), 0); }
static int tries_semaphore(void) { return shmsync_semaphore_tryacquire(&semaphore, 1); }
static void opens_queue(void)
{
    shmsync_queue_options opts;
    memset(&opts, 0, sizeof opts);
    opts.capacity = 1;
    CHECK(shmsync_queue_open(arena, "x", sizeof(uint64_t), &opts, &queue), 0);
}
static void holds_item(void)
{
    uint64_t item = 7;
    shmsync_lease lease;
    CHECK(shmsync_queue_tryput(&queue, &item), 0);
    CHECK(shmsync_queue_trylease(&queue, &item, &lease), 0);
}
static int tries_to_get(void)
{
    uint64_t item;
    return shmsync_queue_tryget(&queue, &item);
}
static int tries_to_lease(void)
{
    uint64_t item;
    shmsync_lease lease;
    return shmsync_queue_trylease(&queue, &item, &lease);
}
static void opens_event(void)
{
    shmsync_event_options opts;
    memset(&opts, 0, sizeof opts);
    opts.auto_reset = 1;
    CHECK(shmsync_event_open(arena, "x", &opts, &event), 0);
}
static void *waits_for_event(void *arg)
{
    shmsync_event_wait(&event);
    return arg;
}
static void waits_for_token(void)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, waits_for_event, NULL), 0);
    while (shmi_event_share_waits(shmi_ld64(&event.impl->own->waits)) == 0)
        sched_yield();
}
static int tries_event(void)
{
    static int calls;
    if (++calls == 2) /* one token, for the wait of the dead participant */
        CHECK(shmsync_event_set(&event), 0);
    return shmsync_event_trywait(&event);
}
static const struct find_of_a_dead {
    const char *verb;
    void (*opens)(void), (*holds)(void);
    int (*try_)(void);
} *found, finds[] = {
    {"find semaphore", opens_semaphore, holds_permit, tries_semaphore},
    {"find queue", opens_queue, holds_item, tries_to_get},
    {"find lease", opens_queue, holds_item, tries_to_lease},
    {"find event", opens_event, waits_for_token, tries_event},
};
static void has_it(const char *name)
{
    (void)name;
    found->opens();
    found->holds();
    raise(SIGSTOP);
}
/* The death watcher has not marked the death of a holder. A program that makes only calls that do not wait finds the death
 * by itself. */
static void tries_until_found(const char *name)
{
    pid_t p = child(has_it, name);
    found->opens();
    CHECK(found->try_(), EBUSY);
    shmi_st32(&watcher_waits, 1);
    kills(p);
    waits_for_watcher();
    while (found->try_() != 0)
        sched_yield();
    shmi_st32(&watcher_waits, 0);
}

/* A trylock to read takes a lock from a dead writer, and then locks it. Between the two, another thread closes the handle. The
 * object stays open until the call returns: its words may be those of another object after that. */
static const struct read_of_a_dead {
    const char *verb, *marked, *tried;
    shmi_off (*opens)(const char *name);
    void (*closes)(void);
    int (*lock)(void), (*try_)(void);
} *read_;
static int unlocks_reader(void) { return read_->opens == opens_rwmutex ? shmsync_rwmutex_rdunlock(&rwmutex) : shmsync_rwspinlock_rdunlock(&rwspin); }
static const struct read_of_a_dead reads[] = {
    {"read rwmutex", "rwmutex.owner_dead.marked", "rwmutex.rlock.tried", opens_rwmutex, closes_rwmutex, locks_rwmutex, tries_to_read},
    {"read rwspinlock", "spinlock.owner_dead.marked", "rwspinlock.rlock.counted", opens_rwspin, closes_rwspin, locks_rwspin, tries_rwspin},
};
static void *handle;
static void is_counted(void) { CHECK(shmi_ld32(&shmi_head_of(handle)->users), 1); }
static void closes_reader(void)
{
    handle = read_->opens == opens_rwmutex ? (void *)rwmutex.impl : (void *)rwspin.impl;
    read_->closes();
    closes = is_counted;
    point = read_->tried;
}
static void writes(const char *name)
{
    (void)name;
    read_->opens("x");
    CHECK(read_->lock(), 0);
    raise(SIGSTOP);
}
static void reads_after_a_death(const char *name)
{
    pid_t p;
    policy = SHMSYNC_POLICY_RELEASE;
    p = child(writes, name);
    read_->opens("x");
    shmi_st32(&watcher_waits, 1);
    kills(p);
    waits_for_watcher();
    closes = closes_reader;
    point = read_->marked;
    CHECK(read_->try_(), 0);
    CHECK(point == NULL, 1);
    read_->opens("x");
    CHECK(unlocks_reader(), 0);
    read_->closes();
    CHECK(shmsync_delete(arena, "x"), 0);
    shmi_st32(&watcher_waits, 0);
}

/* A trylock meets a reservation of a living process, which dies before the call has examined the reservation. */
static pid_t reserved_for;
static void joins(const char *name)
{
    (void)name;
    raise(SIGSTOP);
}
static void dies_now(struct timespec *ts)
{
    int64_t handed = (int64_t)shmi_ld64(&mutex.impl->w->handed);
    ts->tv_sec = (time_t)(handed / 1000000000); /* the reservation has just been made */
    ts->tv_nsec = (long)(handed % 1000000000);
    kills(reserved_for);
    waits_for_watcher();
}
static void finds_a_death_behind_a_reservation(const char *name)
{
    uint32_t slot = 1;
    int64_t now;
    reserved_for = child(joins, name);
    while (slot == arena->my_slot || !shmi_slot_present(shmi_slot_state(arena, slot)))
        slot++;
    opens_mutex("x");
    tried = &tries[0];
    now = shmi_now();
    arena->asked[slot] = now; /* the call does not ask for the byte lock */
    shmi_st64(&mutex.impl->w->handed, (uint64_t)now);
    shmi_st32(&mutex.impl->w->owner, shmi_make_owner(SHMI_kindReserved, shmi_id_in(slot, shmi_slot_state(arena, slot))));
    shmi_st32(&watcher_waits, 1);
    closes = closes_tried;
    point = "mutex.owner_dead.marked";
    at_clock = dies_now;
    CHECK(shmsync_mutex_trylock(&mutex), 0);
    CHECK(point == NULL, 1);
    opens_mutex("x");
    CHECK(shmsync_mutex_unlock(&mutex), 0);
    CHECK(shmsync_mutex_close(&mutex), 0);
    CHECK(shmsync_delete(arena, "x"), 0);
    shmi_st32(&watcher_waits, 0);
}

int main(int argc, char **argv)
{
    size_t k;
    int i;
    CHECK(argc, 3);
    alarm(60);
    if (strcmp(argv[2], "stopped announcement") == 0) {
        serves_a_stopped_announcement(argv[1]);
        return 0;
    }
    if (strcmp(argv[2], "waitgroup") == 0) {
        reaps_late(argv[1]);
        return 0;
    }
    for (k = 0; k < sizeof tries / sizeof tries[0]; k++)
        if (strcmp(argv[2], tries[k].verb) == 0) {
            tried = &tries[k];
            finds_a_death(argv[1]);
            return 0;
        }
    for (k = 0; k < sizeof finds / sizeof finds[0]; k++)
        if (strcmp(argv[2], finds[k].verb) == 0) {
            found = &finds[k];
            tries_until_found(argv[1]);
            return 0;
        }
    for (k = 0; k < sizeof reads / sizeof reads[0]; k++)
        if (strcmp(argv[2], reads[k].verb) == 0) {
            read_ = &reads[k];
            reads_after_a_death(argv[1]);
            return 0;
        }
    if (strcmp(argv[2], "try reserved mutex") == 0) {
        finds_a_death_behind_a_reservation(argv[1]);
        return 0;
    }
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    if (strcmp(argv[2], "latch") == 0) {
        arrives_at_latch();
        return 0;
    }
    if (strcmp(argv[2], "opened") == 0) {
        opens_rwmutex_beside_an_unlock();
        return 0;
    }
    if (strcmp(argv[2], "upgradable") == 0) {
        closes_rwmutex_beside_lock_upgradable();
        return 0;
    }
    if (strcmp(argv[2], "sequencer") == 0) {
        stops_sequencer();
        return 0;
    }
    if (strcmp(argv[2], "signal waker") == 0) {
        marks_leaf();
        return 0;
    }
    checked = strcmp(argv[2], "mutex, checked") == 0;
    CHECK(shmsync_delete(arena, "none"), ENOENT);
    snprintf(failure, sizeof failure, "%s", shmsync_error());
    if (strncmp(argv[2], "mutex", 5) == 0)
        unlocks_mutex(strcmp(argv[2], "mutex, not biased") == 0);
    else if (strcmp(argv[2], "rwmutex") == 0)
        unlocks_rwmutex();
    else if (strcmp(argv[2], "spinlock") == 0)
        unlocks_spinlock();
    else
        unlocks_rwspin(strcmp(argv[2], "rwspinlock, read") == 0);
    CHECK(point == NULL, 1);
    CHECK(strcmp(shmsync_error(), failure), 0); /* the call has succeeded */
    for (i = 0; i < WORDS; i++)
        CHECK(shmi_ld64(words() + i) == fill, 1);
    return 0;
}
