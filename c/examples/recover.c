/* Repairs all objects that deaths have made unusable, before any other process gets in. */
#include <shmsync.h>
#include <stdio.h>

static int repair(shmsync_arena *a, const shmsync_lost *lost, void *arg)
{
    (void)a, (void)arg;
    printf("%s was lost by the death of %s\n", lost->name, lost->who_known ? lost->who.label : "a process");
    return 0; /* here the program repairs the data of the object lost->name */
}

static int first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    size_t n = 0;
    int err = shmsync_recover_all(a, repair, arg, &n); /* also if e->clean: an earlier epoch may have left a lock */
    (void)e;
    printf("%zu objects were recovered\n", n);
    return err;
}

int main(int argc, char **argv)
{
    shmsync_arena_options opts = {.on_first = first};
    shmsync_arena *a;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", &opts, &a) != 0) {
        fprintf(stderr, "%s\n", shmsync_error());
        return 1;
    }
    return shmsync_arena_close(a);
}
