/* permit ARENA: acquires the only permit of the Semaphore "s", and keeps it until its standard input ends. */
#include "shmsync.h"
#include <unistd.h>

#include "check.h"

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_semaphore s;
    if (argc != 2)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &a), 0);
    CHECK(shmsync_semaphore_open(a, "s", 1, NULL, &s), 0);
    CHECK(shmsync_semaphore_acquire(&s, 1), 0);
    printf("ready\n");
    fflush(stdout);
    getchar();
    CHECK(shmsync_semaphore_release(&s, 1), 0);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}
