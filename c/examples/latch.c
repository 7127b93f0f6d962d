/* Waits until two processes have started. */
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
    shmsync_latch l;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_latch_open(a, "started", 2, NULL, &l) != 0)
        return fail();
    if (shmsync_latch_count(&l) > 0) {
        if (shmsync_latch_claim(&l, 2) != 0) /* if this process dies before it counts down, waits fail */
            return fail();
        if (shmsync_latch_count_down(&l, 1) != 0 || shmsync_latch_arrive_and_wait(&l, 1) != 0)
            return fail();
    }
    printf("%lld left\n", (long long)shmsync_latch_count(&l));
    return shmsync_arena_close(a);
}
