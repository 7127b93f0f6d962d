/* Tests the rest of calls that have taken effect: late ARENA VERB. When a call comes to its wake, the object is closed and
 * deleted, and another object has its bytes. The rest of the call does not change them. SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <unistd.h>
static void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

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

int main(int argc, char **argv)
{
    int i;
    CHECK(argc, 3);
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
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
