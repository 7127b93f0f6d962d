/* Tests calls of wait_any and wait_all: await ARENA VERB. Exit status 0 if all results were right; SIGALRM ends a test that
 * hangs. */
#define _GNU_SOURCE
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
static long called(long number, ...);
#define syscall(...) called(__VA_ARGS__)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef syscall

#include "check.h"

static shmsync_arena *arena;
static int no_memory; /* the kernel has no memory for a wait on several words */
static int waits;

static long called(long number, ...)
{
    long a[6];
    va_list list;
    int i;
    va_start(list, number);
    for (i = 0; i < 6; i++)
        a[i] = va_arg(list, long);
    va_end(list);
    if (no_memory && number == SYS_futex_waitv) {
        waits++;
        errno = ENOMEM;
        return -1;
    }
    return syscall(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static shmsync_event events[2];
static const shmsync_awaitable list[2] = {{.kind = SHMSYNC_AWAIT_EVENT, .event = &events[0]}, {.kind = SHMSYNC_AWAIT_EVENT, .event = &events[1]}};

/* A wait for which the kernel has no memory tries again 1,000 times a second, not all the time. */
static void nomem(void)
{
    struct timespec end;
    size_t index;
    int64_t before = shmi_now();
    no_memory = 1;
    end = shmi_timespec(before + 200000000);
    CHECK(shmsync_wait_any(list, 2, &end, &index), ETIMEDOUT);
    CHECK(waits > 0, 1);
    CHECK(waits <= (shmi_now() - before) / 1000000 + 1, 1);
    CHECK(shmsync_event_set(&events[1]), 0);
    CHECK(shmsync_wait_any(list, 2, NULL, &index), 0);
    CHECK(index, 1);
}

/* The error of a handle that is closed names the call. */
static void closed(void)
{
    size_t index;
    CHECK(shmsync_event_close(&events[1]), 0);
    CHECK(shmsync_wait_any(list, 2, NULL, &index), EBADF);
    CHECK(strstr(shmsync_error(), "wait.any") != NULL, 1);
    CHECK(shmsync_wait_all(list, 2, NULL), EBADF);
    CHECK(strstr(shmsync_error(), "wait.all") != NULL, 1);
}

int main(int argc, char **argv)
{
    CHECK(argc, 3);
    alarm(60);
    CHECK(shmsync_arena_open(argv[1], NULL, &arena), 0);
    CHECK(shmsync_event_open(arena, "e", NULL, &events[0]), 0);
    CHECK(shmsync_event_open(arena, "f", NULL, &events[1]), 0);
    if (strcmp(argv[2], "nomem") == 0)
        nomem();
    else
        closed();
    return 0;
}
