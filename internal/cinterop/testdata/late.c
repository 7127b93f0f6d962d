/* Tests the rest of calls that have taken effect: late ARENA VERB. When a call comes to its wake, the object is closed and
 * deleted, and another object has its bytes. The rest of the call does not change them. Other verbs close only the handle,
 * stop a call for long, or reap late. SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <unistd.h>
static void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/prctl.h>
#include <sys/wait.h>

#include "check.h"

static shmsync_arena *arena;
static const char *point; /* NULL after the call has come to it */
static shmi_off (*opens)(const char *name); /* opens an object, and returns the offset of its body */
static void (*closes)(void);
static shmi_off body;
enum { WORDS = 16 };
static const uint64_t fill = UINT64_C(0x0101010101010101); /* each bit is set for which a late call may look */

static uint64_t *words(void) { return (uint64_t *)shmi_ptr(arena, body, 8 * WORDS, 64); }

static void at_point(const char *name)
{
    int i;
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
static int checked;
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
    CHECK(shmsync_rwmutex_open(arena, name, NULL, &rwmutex), 0);
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
    CHECK(shmsync_rwspinlock_open(arena, name, NULL, &rwspin), 0);
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
    int status;
    pid_t p = fork();
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(shmsync_arena_open(name, NULL, &arena), 0);
        runs(name);
        _exit(0);
    }
    CHECK(waitpid(p, &status, WUNTRACED), p);
    CHECK(WIFSTOPPED(status), 1);
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    return p;
}
static void goes_on(pid_t p)
{
    int status;
    kill(p, SIGCONT);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
}

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
/* A reaper finds the owner of the whole count dead, and goes on when a living participant has the ID of the owner, and the
 * commit word has its old value. */
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

int main(int argc, char **argv)
{
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
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    if (strcmp(argv[2], "latch") == 0) {
        arrives_at_latch();
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
    if (strncmp(argv[2], "mutex", 5) == 0)
        unlocks_mutex(strcmp(argv[2], "mutex, not biased") == 0);
    else if (strcmp(argv[2], "rwmutex") == 0)
        unlocks_rwmutex();
    else if (strcmp(argv[2], "spinlock") == 0)
        unlocks_spinlock();
    else
        unlocks_rwspin(strcmp(argv[2], "rwspinlock, read") == 0);
    CHECK(point == NULL, 1);
    for (i = 0; i < WORDS; i++)
        CHECK(shmi_ld64(words() + i) == fill, 1);
    return 0;
}
