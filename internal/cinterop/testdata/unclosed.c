/* Closes arenas whose handles are still open, again and again: unclosed NAME.
 * Exit status 0 if the process keeps less than a word of memory for each later round. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#if defined(__GLIBC__) && __GLIBC_PREREQ(2, 33)
#include <malloc.h>
static long in_use(void)
{
    struct mallinfo2 m = mallinfo2();
    return (long)(m.uordblks + m.hblkhd);
}
#else
static long in_use(void) { return 0; } /* other C libraries do not tell how much is in use */
#endif

#include "check.h"

/* A closed arena is kept for SHMI_SPARES further closes, and so is a handle after that. */
#define ROUNDS (2 * SHMI_SPARES + 20)

static void rounds(const char *name)
{
    int i;
    for (i = 0; i < ROUNDS; i++) {
        shmsync_arena *arena;
        shmsync_semaphore sem;
        shmsync_event_options auto_reset = {.auto_reset = 1};
        shmsync_event event;
        shmsync_rwmutex rw;
        CHECK(shmsync_arena_open(name, NULL, &arena), 0);
        CHECK(shmsync_semaphore_open(arena, "sem", 2, NULL, &sem), 0);
        CHECK(shmsync_semaphore_acquire(&sem, 1), 0);
        CHECK(shmsync_semaphore_release(&sem, 1), 0);
        CHECK(shmsync_event_open(arena, "event", &auto_reset, &event), 0);
        CHECK(shmsync_event_set(&event), 0);
        CHECK(shmsync_event_wait(&event), 0);
        CHECK(shmsync_rwmutex_open(arena, "rw", NULL, &rw), 0);
        CHECK(shmsync_rwmutex_lock(&rw), 0);
        CHECK(shmsync_rwmutex_unlock(&rw), 0);
        CHECK(shmsync_arena_close(arena), 0);
    }
}

int main(int argc, char **argv)
{
    long before;
    if (argc != 2)
        return 2;
    alarm(60);
    rounds(argv[1]);
    before = in_use();
    rounds(argv[1]);
    before = in_use() - before; /* the allocator itself may keep a few more blocks */
    if (before >= 8 * ROUNDS) {
        fprintf(stderr, "%d rounds keep %ld bytes\n", ROUNDS, before);
        return 1;
    }
    return 0;
}
