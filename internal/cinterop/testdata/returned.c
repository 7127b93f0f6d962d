/* Leases two items of a queue with many puts between them, and gives them back: returned NAME. Exit status 0 if all results
 * were right. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

enum { CAPACITY = 64 };

static void lease(shmsync_queue *q, uint64_t v, shmsync_lease *l)
{
    uint64_t got = 0;
    CHECK(shmsync_queue_tryput(q, &v), 0);
    CHECK(shmsync_queue_trylease(q, &got, l), 0);
    CHECK(got, v);
}

static void far_apart(shmsync_queue *q, uint64_t distance, int last_first)
{
    struct shmi_queue *x = q->impl;
    uint64_t cells = x->mask + 1, old, lap, j, v;
    shmsync_lease first, second;
    lease(q, 1, &first);
    old = x->w->tail;
    lap = (old + distance) / cells;
    for (j = 0; j < cells; j++)
        shmi_st64(shmi_queue_cell_of(x, j), lap << 32);
    x->w->tail = x->w->head = (lap + 1) * cells;
    x->seen = 0;
    lease(q, 2, &second);
    CHECK(shmsync_lease_ack(&second), 0);
    lease(q, 3, &second);
    CHECK(shmsync_lease_nack(last_first ? &second : &first), 0);
    CHECK(shmsync_lease_nack(last_first ? &first : &second), 0);
    x->w->tail = old; /* a hint may be old */
    CHECK(shmsync_queue_tryget(q, &v), 0);
    CHECK(v, 1);
    CHECK(shmsync_queue_tryget(q, &v), 0);
    CHECK(v, 3);
}

int main(int argc, char **argv)
{
    static const uint64_t distances[] = {200, (1u << 30) + 5, 2000000000};
    shmsync_queue_options o;
    shmsync_arena *a;
    shmsync_queue q;
    size_t i;
    if (argc != 2)
        return 2;
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    memset(&o, 0, sizeof o);
    o.capacity = CAPACITY;
    CHECK(shmsync_queue_open(a, "q", sizeof(uint64_t), &o, &q), 0);
    for (i = 0; i < sizeof distances / sizeof *distances; i++) {
        far_apart(&q, distances[i], 0);
        far_apart(&q, distances[i], 1);
    }
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}
