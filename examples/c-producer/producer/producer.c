/* Puts samples into a queue until an event says that there are enough. */
#define SHMSYNC_IMPLEMENTATION
#include "sample_shm.h"

static int failed(const char *what, int err)
{
    fprintf(stderr, "producer: %s: %s\n", what, err != 0 ? shmsync_error() : "");
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena_options join;
    shmsync_arena *a;
    sample_queue queue;
    shmsync_event enough;
    struct sample s;
    int err;
    if (argc != 2)
        return failed("usage: producer ARENA", 0);
    memset(&join, 0, sizeof join);
    join.label = "producer";
    join.attach_only = 1;
    if ((err = shmsync_arena_open(argv[1], &join, &a)) != 0)
        return failed("arena", err);
    if ((err = sample_queue_attach(a, "samples", &queue)) != 0)
        return failed("queue", err);
    if ((err = shmsync_event_open(a, "enough", NULL, &enough)) != 0)
        return failed("event", err);
    for (s.seq = 0; !shmsync_event_is_set(&enough); s.seq++) {
        struct timespec until;
        s.value = 0.5 * (double)s.seq;
        do { /* the consumer may have stopped taking samples */
            clock_gettime(CLOCK_MONOTONIC, &until);
            until.tv_sec++;
            err = sample_queue_timedput(&queue, &s, &until);
        } while (err == ETIMEDOUT && !shmsync_event_is_set(&enough));
        if (err != 0 && err != ETIMEDOUT)
            return failed("put", err);
    }
    return shmsync_arena_close(a);
}
