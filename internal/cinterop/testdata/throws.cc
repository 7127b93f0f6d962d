// throws NAME: a function that a call runs throws. The process ends, and says why.
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/resource.h>

static void thrower(void *) { throw 1; }

int main(int, char **argv)
{
    shmsync_arena *a;
    shmsync_once o;
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    alarm(300);
    if (shmsync_arena_open(argv[1], nullptr, &a) != 0 || shmsync_once_open(a, "o", nullptr, &o) != 0)
        return 2;
    try {
        shmsync_once_do(&o, thrower, nullptr);
    } catch (int) {
        fprintf(stderr, "the exception passed through a call that had begun\n");
        return 1;
    }
    return 3;
}
