/* Tests a call that has to wait, and is refused because the arena is being closed: refused NAME. Exit status 0 if
 * the call has not kept the queue lock. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

int main(int argc, char **argv)
{
    shmsync_arena *arena;
    shmsync_fairmutex fair;
    if (argc != 2)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    CHECK(shmsync_fairmutex_open(arena, "fair", NULL, &fair), 0);
    CHECK(shmsync_fairmutex_lock(&fair), 0);
    __atomic_store_n(&arena->closing, 1, __ATOMIC_SEQ_CST);
    CHECK(shmsync_fairmutex_lock(&fair), EBADF);
    CHECK(shmi_ld32(&fair.impl->m.w->queueLock.owner), 0);
    CHECK(shmi_ld32(&arena->calls), 0);
    __atomic_store_n(&arena->closing, 0, __ATOMIC_SEQ_CST);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
