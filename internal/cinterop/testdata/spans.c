/* Asks for a large block when there is no memory: spans NAME. Exit status 0 if all results were right. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/syscall.h>
#include <unistd.h>
static int refuses(long n, ...);
#define syscall(...) (refuses(__VA_ARGS__) ? -1L : (syscall)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static int full, asked; /* asked: how often the library has asked for memory */

static int refuses(long n, ...)
{
    if (n != SYS_fallocate || !full)
        return 0;
    asked++;
    errno = ENOSPC;
    return 1;
}

int main(int argc, char **argv)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_offset low, high, off;
    if (argc != 2)
        return 2;
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 4;
    CHECK(shmsync_arena_open(argv[1], &o, &a), 0);
    CHECK(shmsync_alloc(a, 40 * SHMI_chunkSize, &high), 0);
    CHECK(shmsync_alloc(a, 12 * SHMI_chunkSize, &low), 0);
    CHECK(shmsync_free(a, low), 0); /* 12 chunks below high have memory, and no others that are free */

    /* The library asks for memory for the first row and for the row that needs the least. */
    full = 1;
    CHECK(shmsync_alloc(a, 30 * SHMI_chunkSize, &off), ENOSPC);
    CHECK(asked <= 2, 1);

    /* A row that needs no memory is found. */
    a->heap_top = (low - a->geo.heap_off) / SHMI_chunkSize;
    CHECK(shmsync_alloc(a, 12 * SHMI_chunkSize, &off), 0);
    CHECK(off, low);
    CHECK(shmsync_arena_close(a), 0);
    return 0;
}
