/* A program as a user writes it, with the installed library: client NAME takes the mutex "m" of an arena that a peer
 * has made, after it has printed "busy", and counts in the block "n". */
#include <errno.h>
#include <shmsync.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_mutex m;
    uint64_t size;
    void *n;
    if (argc != 2 || shmsync_arena_open(argv[1], NULL, &a) != 0 || shmsync_mutex_attach(a, "m", NULL, &m) != 0 ||
        shmsync_block_attach(a, "n", &n, &size) != 0 || shmsync_mutex_trylock(&m) != EBUSY) {
        fprintf(stderr, "%s\n", shmsync_error());
        return 1;
    }
    printf("busy\n");
    fflush(stdout);
    if (shmsync_mutex_lock(&m) != 0)
        return 1;
    ++*(unsigned char *)n;
    return shmsync_mutex_unlock(&m) != 0 || shmsync_arena_close(a) != 0 || strcmp(shmsync_version(), "0.1.0") != 0;
}
