/* Prepares the data once, however many processes there are. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

static void prepare(void *arg)
{
    *(int *)arg = 42;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_once o;
    void *p;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_once_open(a, "prepared", NULL, &o) != 0 ||
        shmsync_block_open(a, "n", sizeof(int), &p) != 0 ||
        shmsync_once_do(&o, prepare, p) != 0)
        return fail();
    printf("%d, done: %d\n", *(int *)p, shmsync_once_done(&o));
    return shmsync_arena_close(a);
}
