/* Waits for the next post. */
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
    shmsync_futex f;
    uint64_t token;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_futex_open(a, "posts", NULL, &f) != 0)
        return fail();
    token = shmsync_futex_get(&f) + 1; /* the next post; read the data after this, then wait */
    if (shmsync_futex_post(&f) != 0)   /* another process does this */
        return fail();
    if (shmsync_futex_wait(&f, token) != 0)
        return fail();
    printf("%llu posts\n", (unsigned long long)shmsync_futex_get(&f));
    return shmsync_arena_close(a);
}
