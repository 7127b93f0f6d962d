/* Tests the reap of many waits of a Cond that a Signal had woken before their participant died: debts ARENA. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <unistd.h>
static int no_memory; /* mmap finds no memory */
static void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define mmap(...) (no_memory ? (errno = ENOMEM, MAP_FAILED) : (mmap)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#include "check.h"

enum { other = 9, version = 100000 }; /* a slot whose participant the test makes up; the version of the commit word */

static shmsync_arena *arena;
static shmsync_cond cond, untouched;
static uint64_t settled, last; /* how many debts were settled, and the bound of the last one */

/* Each debt is settled by a record whose first word is the word next of the node. */
static void at_point(const char *name)
{
    shmi_rq_record r;
    uint64_t bound;
    if (cond.impl == NULL || strcmp(name, "cond.settle.committed") != 0)
        return;
    CHECK(shmi_rq_record_of(&cond.impl->q, arena->my_slot, &r), 1);
    bound = shmi_recorded_value(&shmi_node_ptr(arena, (r.entries[1] >> 32) * SHMI_nodeSize)->extra) & ~SHMI_COND_SIGNAL;
    CHECK(settled == 0 || bound > last, 1);
    settled++;
    last = bound;
}

/* Makes a wait of the participant dead on the Cond c. A Signal with that bound has woken it. */
static void owes(shmsync_cond *c, shmi_participant_id dead, uint32_t bound)
{
    shmi_off off;
    shmi_node *n;
    CHECK(shmi_claim_node(arena, &off, &n), 0);
    shmi_st64(&n->object, shmsync_cond_offset(c));
    shmi_st64(&n->stamp, SHMI_RECORDED_STAMP);
    shmi_st64(&n->next, SHMI_RECORDED(SHMI_RECORDED_OWES, 1));
    shmi_st64(&n->extra, SHMI_RECORDED(SHMI_COND_SIGNAL | bound, 1));
    shmi_st32(&n->word, shmi_node_with(n->word, SHMI_NodeResolved));
    shmi_st32(&n->owner, dead);
}
static void visit(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)a;
    (void)off;
    (void)n;
    (void)arg;
}
static void count_debt(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)a;
    (void)off;
    *(uint64_t *)arg += shmi_recorded_value(&n->next) == SHMI_RECORDED_OWES;
}
/* How many debts there are in the arena. */
static uint64_t debts(void)
{
    uint64_t n = 0;
    shmi_each_node(arena, count_debt, &n);
    return n;
}

/* n waits of a dead participant owe Signals, whose bounds come in no order. All of them are settled in the order of
 * their bounds. If there is memory for a list of them, the number of walks through all nodes does not depend on n. */
static void settle(uint64_t n, int memory)
{
    struct shmi_cond *k = cond.impl;
    struct shmi_rq_change x;
    struct shmi_wakes b;
    shmi_participant_id dead;
    uint64_t i, walk, work;
    static uint32_t generation;
    generation++;
    shmi_st32(shmi_slot32(arena, other, SHMI_slotState), shmi_slot_word(SHMI_phaseDead, generation));
    dead = shmi_make_participant_id(other, generation);
    for (i = 0; i < n; i++)
        owes(&cond, dead, (uint32_t)(i * 7919 % n + 1)); /* 7919 is a prime number, and no divisor of n */
    for (i = 0; i < 3; i++)
        owes(&untouched, dead, (uint32_t)i + 1);
    shmi_st64(k->q.commit, (uint64_t)version << SHMI_RQ_SLOT_BITS);
    work = arena->work;
    shmi_each_node(arena, visit, NULL);
    walk = arena->work - work;
    settled = 0;
    no_memory = !memory;
    shmi_wakes_init(&b);
    shmi_rq_lock(&k->q);
    work = arena->work;
    CHECK(shmi_cond_settle_dead(k, &x, &b), 0);
    work = arena->work - work;
    shmi_rq_unlock(&k->q);
    shmi_rq_wake(&k->q, &b);
    no_memory = 0;
    CHECK(settled, n);
    CHECK(debts(), 3);
    if (memory && work > 4 * walk) {
        fprintf(stderr, "%llu debts took %.1f walks through all nodes\n", (unsigned long long)n, (double)work / (double)walk);
        exit(1);
    }
    shmi_each_node(arena, shmi_free_node_at, &(shmi_off){shmsync_cond_offset(&untouched)});
    CHECK(debts(), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc, 2);
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    pthread_mutex_lock(&arena->reaping); /* the death watcher reaps no participant that the test makes up */
    CHECK(shmsync_cond_open(arena, "untouched", NULL, &untouched), 0);
    CHECK(shmsync_cond_open(arena, "cond", NULL, &cond), 0);
    settle(20, 1);
    settle(40, 1);
    settle(5000, 1);
    settle(40, 0);
    settle(3000, 0);
    return 0;
}
