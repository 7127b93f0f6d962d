/* Waits until all work is done. */
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
    shmsync_waitgroup g;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_waitgroup_open(a, "work", NULL, &g) != 0 ||
        shmsync_waitgroup_add(&g, 2) != 0)
        return fail();
    if (shmsync_waitgroup_done(&g) != 0 || shmsync_waitgroup_done(&g) != 0)
        return fail();
    if (shmsync_waitgroup_wait(&g) != 0) /* EOWNERDEAD: a process died before its work was done */
        return fail();
    printf("%lld left\n", (long long)shmsync_waitgroup_count(&g));
    return shmsync_arena_close(a);
}
