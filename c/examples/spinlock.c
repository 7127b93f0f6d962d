/* Counts under a SpinLock, for holds of a few instructions. */
#include <shmsync.h>
#include <errno.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

/* Runs with the lock held, and repairs the data if a dead holder has left a change half done. */
static int repair(void *arg)
{
    int *n = (int *)arg;
    if (*n < 0)
        *n = 0;
    return 0;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_spinlock m;
    void *p;
    int err, *n;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_spinlock_open(a, "lock", NULL, &m) != 0 ||
        shmsync_block_open(a, "n", sizeof *n, &p) != 0)
        return fail();
    n = (int *)p;
    while ((err = shmsync_spinlock_lock(&m)) == EOWNERDEAD) /* not held: its holder died */
        if (shmsync_spinlock_recover(&m, repair, n) != 0)
            return fail();
    if (err != 0)
        return fail();
    ++*n;
    printf("%d\n", *n);
    if (shmsync_spinlock_unlock(&m) != 0)
        return fail();
    return shmsync_arena_close(a);
}
