/* Waits until three steps are done. */
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
    shmsync_sequencer s;
    uint64_t now, goal;
    int i;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_sequencer_open(a, "steps", NULL, &s) != 0)
        return fail();
    goal = shmsync_sequencer_value(&s) + 3;
    for (i = 0; i < 3; i++) /* other processes do this */
        if (shmsync_sequencer_increment(&s, &now) != 0)
            return fail();
    if (shmsync_sequencer_wait(&s, goal) != 0)
        return fail();
    printf("step %llu\n", (unsigned long long)now);
    return shmsync_arena_close(a);
}
