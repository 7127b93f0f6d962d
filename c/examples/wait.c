/* Waits for an Event or a Sequencer, in one sleep. */
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
    shmsync_event e;
    shmsync_sequencer s;
    shmsync_awaitable list[2] = {{.kind = SHMSYNC_AWAIT_EVENT, .event = &e}, {.kind = SHMSYNC_AWAIT_SEQUENCER, .sequencer = &s}};
    size_t index;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_event_open(a, "stop", NULL, &e) != 0 ||
        shmsync_sequencer_open(a, "steps", NULL, &s) != 0)
        return fail();
    list[1].token = shmsync_sequencer_value(&s) + 1;
    if (shmsync_sequencer_increment(&s, NULL) != 0) /* another process does this */
        return fail();
    if (shmsync_wait_any(list, 2, NULL, &index) != 0)
        return fail();
    printf("number %zu of the list came\n", index);
    return shmsync_arena_close(a);
}
