/* Uses the C form of the library once: the twin of `environ library`, for .ci/environments. */
#define SHMSYNC_IMPLEMENTATION
#include <shmsync.h>
#include <stdio.h>
#include <unistd.h>

/* Makes a named arena of 4 MiB, allocates some of it and uses a mutex in it. */
static int use(const char *name)
{
    shmsync_arena_options options = {.size = 4 << 20};
    shmsync_arena *a;
    shmsync_mutex m;
    void *p;
    if (shmsync_arena_open(name, &options, &a) != 0)
        return -1;
    if (shmsync_mutex_open(a, "lock", NULL, &m) != 0 || shmsync_mutex_lock(&m) != 0 || shmsync_mutex_unlock(&m) != 0 ||
        shmsync_block_open(a, "block", 1 << 20, &p) != 0) {
        fprintf(stderr, "%s\n", shmsync_error());
        shmsync_arena_close(a);
        return 1;
    }
    return shmsync_arena_close(a) != 0 ? -1 : 0;
}

int main(void)
{
    char name[64];
    int status;
    snprintf(name, sizeof name, "shmsync-environ-c-%d", (int)getpid());
    status = use(name);
    if (status < 0)
        fprintf(stderr, "%s\n", shmsync_error());
    shmsync_arena_remove(name);
    return status != 0;
}
