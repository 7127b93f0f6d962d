/* Locks the rows of a table by their keys. */
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
    shmsync_multilock m;
    shmsync_hold holds[2];
    const uint64_t keys[2] = {1042, 17};
    size_t held;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_multilock_open(a, "rows", NULL, &m) != 0 ||
        shmsync_multilock_lockall(&m, keys, 2, holds, &held) != 0)
        return fail();
    printf("%zu keys are locked\n", held);
    if (shmsync_multilock_unlockall(holds, held) != 0)
        return fail();
    return shmsync_arena_close(a);
}
