/* Tells the user why a call failed. */
#include <shmsync.h>
#include <errno.h>
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
    int err;
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0)
        return fail();
    err = shmsync_mutex_attach(a, "no such mutex", NULL, &m);
    if (err != ENOENT)
        return 1;
    printf("%s\n", shmsync_error());       /* describes this failure, with the name of the object */
    printf("%s\n", shmsync_strerror(err)); /* says what the errno means in this library */
    printf("library %s\n", shmsync_version());
    return shmsync_arena_close(a);
}
