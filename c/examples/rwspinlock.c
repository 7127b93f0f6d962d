/* Reads together with other readers, and upgrades to write. */
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
    shmsync_rwspinlock m;
    void *p;
    int *n;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_rwspinlock_open(a, "lock", NULL, &m) != 0 ||
        shmsync_block_open(a, "n", sizeof *n, &p) != 0)
        return fail();
    n = (int *)p;
    if (shmsync_rwspinlock_rdlock(&m) != 0)
        return fail();
    printf("%d\n", *n);
    if (shmsync_rwspinlock_rdunlock(&m) != 0)
        return fail();
    /* Read, and write only if it is necessary. */
    if (shmsync_rwspinlock_uplock(&m) != 0)
        return fail();
    if (*n < 10) {
        if (shmsync_rwspinlock_upgrade(&m) != 0)
            return fail();
        ++*n;
        return shmsync_rwspinlock_unlock(&m) != 0 ? fail() : shmsync_arena_close(a);
    }
    if (shmsync_rwspinlock_upunlock(&m) != 0)
        return fail();
    return shmsync_arena_close(a);
}
