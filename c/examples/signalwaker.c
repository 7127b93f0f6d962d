/* Schedules a queue, and executes it. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_signalwaker w;
    shmsync_gate gate;
    int scheduled, again;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_signalwaker_open(a, "tasks", NULL, &w) != 0 ||
        shmsync_signalwaker_gate(&w, 5, &gate) != 0 ||
        shmsync_gate_schedule(&gate, &scheduled) != 0)
        return fail();
    /* A worker: while (shmsync_signalwaker_next(...) != 0) shmsync_signalwaker_acquire(&w); */
    if (shmsync_signalwaker_next(&w, 0, &gate) != 0)
        return fail();
    printf("executes queue %u\n", gate.queue);
    if (shmsync_gate_finish(&gate, &again) != 0)
        return fail();
    return shmsync_arena_close(a);
}
