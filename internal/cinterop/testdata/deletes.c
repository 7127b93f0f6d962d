/* Deletes an object: deletes ARENA OBJECT. The exit status is the errno value of the deletion. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

int main(int argc, char **argv)
{
    shmsync_arena *a;
    int err;
    if (argc != 3)
        return 255;
    alarm(300);
    err = shmsync_arena_open(argv[1], NULL, &a);
    if (err == 0)
        err = shmsync_delete(a, argv[2]);
    if (err != 0)
        fprintf(stderr, "%s\n", shmsync_error());
    if (err == 0)
        err = shmsync_arena_close(a);
    return err;
}
