/* Joins an arena, and says which participants are in it. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

static int show(const shmsync_participant *p, void *arg)
{
    (void)arg;
    printf("participant: %s, process %u\n", p->label, p->pid);
    return 0; /* go on */
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_participant me;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_arena_self(a, &me) != 0)
        return fail();
    printf("%s is in slot %u of an arena of %llu bytes\n", me.label, me.slot, (unsigned long long)shmsync_arena_size(a));
    shmsync_arena_participants(a, show, NULL);
    return shmsync_arena_close(a);
}
