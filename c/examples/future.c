/* Hands a result to the processes that wait for it. */
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
    shmsync_future f;
    int result;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_future_open(a, "answer", NULL, &f) != 0)
        return fail();
    if (shmsync_future_claim(&f) == 0 && shmsync_future_set(&f, 0) != 0) /* 0: success */
        return fail();
    if (shmsync_future_wait(&f, &result) != 0) /* EOWNERDEAD: its producer died */
        return fail();
    printf("result %d\n", result);
    return shmsync_arena_close(a);
}
