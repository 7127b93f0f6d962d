/* Meets the other parties at the end of each phase. */
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
    shmsync_barrier b;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_barrier_open(a, "phase", 1, NULL, &b) != 0)
        return fail();
    if (shmsync_barrier_arrive_and_wait(&b) != 0) /* EOWNERDEAD: a party died; see shmsync_barrier_reset */
        return fail();
    printf("%lld parties died\n", (long long)shmsync_barrier_lost(&b));
    if (shmsync_barrier_deregister(&b) != 0) /* a party that leaves the arena otherwise counts as one that died */
        return fail();
    return shmsync_arena_close(a);
}
