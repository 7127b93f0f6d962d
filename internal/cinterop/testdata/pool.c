/* The permits that are free of a transferable Semaphore of 4, in two processes:
 *
 *     pool ARENA pairs N    takes a permit and gives it back, N times
 *     pool ARENA asks       asks for 5 permits, which is refused, until its standard input ends
 */
#include "shmsync.h"
#include <poll.h>

#define CHECK(what)                                                                                    \
    do {                                                                                               \
        int err_ = (what);                                                                             \
        if (err_ != 0) {                                                                               \
            fprintf(stderr, "line %d: %s: %d: %s\n", __LINE__, #what, err_, shmsync_error());          \
            exit(1);                                                                                   \
        }                                                                                              \
    } while (0)

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_semaphore sem, *s = &sem;
    shmsync_semaphore_options o = {.struct_size = sizeof o, .transferable = 1};
    if (argc < 3)
        return 2;
    CHECK(shmsync_arena_open(argv[1], NULL, &a));
    CHECK(shmsync_semaphore_open(a, "pool", 4, &o, s));
    printf("ready\n");
    fflush(stdout);
    if (strcmp(argv[2], "asks") == 0) {
        struct pollfd in = {.fd = 0, .events = POLLIN};
        while (poll(&in, 1, 0) == 0)
            for (int i = 0; i < 10000; i++)
                if (shmsync_semaphore_tryacquire(s, 5) != EBUSY)
                    return 3;
    } else {
        for (long n = atol(argv[3]); n > 0; n--) {
            CHECK(shmsync_semaphore_tryacquire(s, 1));
            CHECK(shmsync_semaphore_release(s, 1));
        }
    }
    CHECK(shmsync_semaphore_close(s));
    CHECK(shmsync_arena_close(a));
    return 0;
}
