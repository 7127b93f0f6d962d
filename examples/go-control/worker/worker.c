/* One worker of a pool: on each order it sums up every n'th number, until there are no more orders. */
#define SHMSYNC_IMPLEMENTATION
#include "board_shm.h"

static int failed(const char *what, int err)
{
    fprintf(stderr, "worker: %s: %s\n", what, err != 0 ? shmsync_error() : "");
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena_options join;
    shmsync_arena *a;
    shmsync_sequencer orders, done;
    struct board *b;
    uint64_t order, first, workers, i;
    int err;
    if (argc != 4)
        return failed("usage: worker ARENA NUMBER WORKERS", 0);
    first = strtoull(argv[2], NULL, 10);
    workers = strtoull(argv[3], NULL, 10);
    memset(&join, 0, sizeof join);
    join.label = "worker";
    join.attach_only = 1;
    if ((err = shmsync_arena_open(argv[1], &join, &a)) != 0)
        return failed("arena", err);
    if ((err = shmsync_sequencer_open(a, "orders", NULL, &orders)) != 0 || (err = shmsync_sequencer_open(a, "done", NULL, &done)) != 0)
        return failed("sequencer", err);
    if ((err = board_value_open(a, "board", &b)) != 0)
        return failed("board", err);
    for (order = 1; (err = shmsync_sequencer_wait(&orders, order)) == 0; order++) {
        uint64_t sum = 0;
        for (i = first; i < b->upto; i += workers)
            sum += i;
        board_sum_add(b, sum);
        if ((err = shmsync_sequencer_increment(&done, NULL)) != 0)
            return failed("done", err);
    }
    if (err != ECANCELED)
        return failed("orders", err);
    return shmsync_arena_close(a);
}
