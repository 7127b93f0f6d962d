/* Each set lets one waiter go on. */
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
    shmsync_event_options opts = {.auto_reset = 1};
    shmsync_event e;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_event_open(a, "ready", &opts, &e) != 0)
        return fail();
    if (shmsync_event_set(&e) != 0) /* another process does this */
        return fail();
    if (shmsync_event_wait(&e) != 0) /* takes the token */
        return fail();
    printf("set: %d\n", shmsync_event_is_set(&e));
    return shmsync_arena_close(a);
}
