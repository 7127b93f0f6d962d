/* Claims blocks, and the test counts the chunks: slabs crowd|short|ring|pool NAME. Exit status 0 if all calls succeeded.
 *
 * crowd: many threads claim a wait node at the same time. The system call for the memory of a chunk ends only when all
 * threads had time to claim one.
 * short: one opening of the arena after the other claims a wait node and a block.
 * ring: allocates blocks and prints their offsets. After each line of input, in which the test says that it has freed
 * them, the program goes on.
 * pool: many waits end. The process gives their nodes back, except for those that it keeps. */
#define _GNU_SOURCE
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>
static int pauses(long n, ...);
#define syscall(...) (pauses(__VA_ARGS__) ? 0L : (syscall)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

enum { CROWD = 64 };
static uint32_t crowded, begun;

static int pauses(long n, ...)
{
    int i;
    if (n != SYS_fallocate || !__atomic_load_n(&crowded, __ATOMIC_SEQ_CST))
        return 0;
    while (__atomic_load_n(&begun, __ATOMIC_SEQ_CST) < CROWD)
        sched_yield();
    for (i = 0; i < 100; i++)
        sched_yield();
    return 0;
}

static shmsync_arena *arena;

static void *waiter(void *arg)
{
    shmi_node *n;
    shmi_off off;
    (void)arg;
    __atomic_fetch_add(&begun, 1, __ATOMIC_SEQ_CST);
    CHECK(shmi_claim_node(arena, &off, &n), 0);
    return NULL;
}

static void crowd(void)
{
    pthread_t threads[CROWD];
    int i;
    __atomic_store_n(&crowded, 1, __ATOMIC_SEQ_CST);
    for (i = 0; i < CROWD; i++)
        CHECK(pthread_create(&threads[i], NULL, waiter, NULL), 0);
    for (i = 0; i < CROWD; i++)
        CHECK(pthread_join(threads[i], NULL), 0);
    __atomic_store_n(&crowded, 0, __ATOMIC_SEQ_CST);
}

static void ring(void)
{
    enum { RING = 1000, ROUNDS = 20 };
    int round, i;
    for (round = 0; round < ROUNDS; round++) {
        for (i = 0; i < RING; i++) {
            shmsync_offset off;
            CHECK(shmsync_alloc(arena, 64, &off), 0);
            printf("%llu\n", (unsigned long long)off);
        }
        fflush(stdout);
        CHECK(getchar(), '\n');
    }
}

static void count_own(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)off;
    *(uint32_t *)arg += shmi_node_owner(n) == a->self;
}
/* How many wait nodes this process has. */
static uint32_t own_nodes(void)
{
    uint32_t n = 0;
    shmi_each_node(arena, count_own, &n);
    return n;
}
static void pool(void)
{
    enum { WAITS = 5000, STAY = 10 };
    static shmi_wait_node *waits[WAITS];
    int round, i;
    for (round = 0; round < 2; round++) {
        for (i = 0; i < WAITS; i++)
            CHECK(shmi_wait_node_take(arena, &waits[i]), 0);
        CHECK(own_nodes() >= WAITS, 1);
        for (i = STAY; i < WAITS; i++)
            shmi_wait_node_return(arena, waits[i]);
        while (own_nodes() > SHMI_freeKept + STAY)
            sched_yield();
        CHECK(own_nodes(), SHMI_freeKept + STAY);
        for (i = 0; i < STAY; i++) {
            CHECK(shmi_node_state(shmi_node_load(waits[i]->node)), SHMI_NodeIdle);
            shmi_wait_node_return(arena, waits[i]);
        }
    }
}

int main(int argc, char **argv)
{
    int i;
    alarm(300);
    if (argc != 3)
        return 2;
    CHECK(shmsync_arena_open(argv[2], NULL, &arena), 0);
    if (strcmp(argv[1], "crowd") == 0) {
        crowd();
    } else if (strcmp(argv[1], "ring") == 0) {
        ring();
    } else if (strcmp(argv[1], "pool") == 0) {
        pool();
    } else {
        for (i = 0; i < 40; i++) {
            shmi_node *n;
            shmi_off off;
            CHECK(shmi_claim_node(arena, &off, &n), 0);
            CHECK(shmsync_alloc(arena, 64, &off), 0);
            CHECK(shmsync_arena_close(arena), 0);
            CHECK(shmsync_arena_open(argv[2], NULL, &arena), 0);
        }
    }
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
