/* Tests what follows a stop of the process during a yield: yield ARENA VERB. During each yield the clock of the process goes
 * on by an hour. */
#define _GNU_SOURCE
#include <sched.h>
#include <stdint.h>
#include <time.h>
static int hours; /* how far the clock is ahead; atomic, because other threads read the clock */
static int read_clock(clockid_t clock, struct timespec *ts)
{
    int err = clock_gettime(clock, ts);
    ts->tv_sec += 3600 * __atomic_load_n(&hours, __ATOMIC_RELAXED);
    return err;
}
static int yield_stopped(void)
{
    __atomic_add_fetch(&hours, 1, __ATOMIC_RELAXED);
    return 0;
}
#define clock_gettime read_clock
#define sched_yield yield_stopped
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static int never(void *arg)
{
    (void)arg;
    return 0;
}
static int never_locked(struct shmi_spinlock *l) { return shmi_spin_while(l, never); }

/* A waiter yields to a releaser of another slot, which was last on the CPU of the waiter. */
static int never_released(void)
{
    uint32_t budget = 0, pays = 0, last_cpu = 0;
    shmi_tuning t = {&budget, &pays, &last_cpu, 1};
    cpu_set_t here;
    CPU_ZERO(&here);
    CPU_SET(sched_getcpu(), &here);
    CHECK(sched_setaffinity(0, sizeof here, &here), 0);
    shmi_note_cpu(&t);
    t.slot = 2;
    return shmi_spin(&t, never, NULL);
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_spinlock l;
    int64_t pause;
    if (argc != 3)
        return 2;
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    CHECK(shmsync_spinlock_open(a, "l", NULL, &l), 0);
    shmi_one_cpu_ = 1; /* do not look how many CPUs this machine has */
    if (strcmp(argv[2], "spin") == 0)
        CHECK(never_released(), 0);
    else
        CHECK(never_locked(l.impl), 0);
    CHECK(hours, 1);
    pause = shmi_no_yield_until - shmi_now();
    CHECK(pause > 0, 1);
    CHECK(pause <= INT64_C(10000000000), 1);
    return 0;
}
