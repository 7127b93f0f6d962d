/* Takes two of four permits. They come back if the process dies. */
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
    shmsync_semaphore s;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_semaphore_open(a, "connections", 4, NULL, &s) != 0 ||
        shmsync_semaphore_acquire(&s, 2) != 0)
        return fail();
    printf("%lld are free\n", (long long)shmsync_semaphore_free(&s));
    if (shmsync_semaphore_release(&s, 2) != 0)
        return fail();
    return shmsync_arena_close(a);
}
