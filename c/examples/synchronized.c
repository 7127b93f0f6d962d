/* Changes a value wholly or not at all. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

struct account {
    uint64_t begun, done;
};

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_synchronized s;
    struct account now, *change;
    void *copy;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_synchronized_open(a, "account", sizeof now, NULL, &s) != 0 ||
        shmsync_synchronized_begin(&s, &copy) != 0)
        return fail();
    change = (struct account *)copy;
    change->begun++; /* kill -9 here: the value is as it was before begin */
    change->done++;
    if (shmsync_synchronized_commit(&s) != 0 || shmsync_synchronized_load(&s, &now) != 0)
        return fail();
    printf("%llu begun, %llu done\n", (unsigned long long)now.begun, (unsigned long long)now.done);
    return shmsync_arena_close(a);
}
