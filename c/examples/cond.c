/* Waits until a number is positive. */
#define _POSIX_C_SOURCE 200809L /* declares clock_gettime, with -std=c11 */
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
    shmsync_mutex m;
    shmsync_cond c;
    struct timespec until;
    void *p;
    int err, *n;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_mutex_open(a, "lock", NULL, &m) != 0 ||
        shmsync_cond_open(a, "positive", NULL, &c) != 0 ||
        shmsync_block_open(a, "n", sizeof *n, &p) != 0 ||
        shmsync_mutex_lock(&m) != 0)
        return fail();
    n = (int *)p;
    *n = 1; /* another process does this, with the mutex held */
    if (shmsync_cond_broadcast(&c) != 0)
        return fail();
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += 60;
    for (err = 0; *n <= 0 && err == 0;)
        err = shmsync_cond_timedwait(&c, &m, &until); /* the mutex is held again, unless the lock failed */
    if (err != 0)
        return fail();
    printf("%d\n", *n);
    if (shmsync_mutex_unlock(&m) != 0)
        return fail();
    return shmsync_arena_close(a);
}
