/* Tests a call that has to wait, and is refused because the arena is being closed: refused NAME. Exit status 0 if
 * no thread of the process has kept the lock under which it makes changes. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

int main(int argc, char **argv)
{
    shmsync_arena *arena;
    shmsync_multilock multi;
    shmsync_multilock_options one = {sizeof one, 0, 0, 1, 0};
    shmsync_hold hold, other;
    if (argc != 2)
        return 2;
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    CHECK(shmsync_multilock_open(arena, "multi", &one, &multi), 0);
    CHECK(shmsync_multilock_lock(&multi, 1, &hold), 0);
    __atomic_store_n(&arena->closing, 1, __ATOMIC_SEQ_CST);
    CHECK(shmsync_multilock_lock(&multi, 1, &other), EBADF);
    CHECK(pthread_mutex_trylock(multi.impl->all[0]->q.private_), 0);
    CHECK(pthread_mutex_unlock(multi.impl->all[0]->q.private_), 0);
    CHECK(shmi_ld32(&arena->calls), 0);
    __atomic_store_n(&arena->closing, 0, __ATOMIC_SEQ_CST);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
