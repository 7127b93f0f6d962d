/* Asks for a large block when there is no memory, or when signals interrupt each long reservation: spans full|interrupted
 * NAME. Exit status 0 if all results were right; SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
static int refuses(long n, ...);
#define syscall(...) (refuses(__VA_ARGS__) ? -1L : (syscall)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static int full, asked; /* asked: how often the library has asked for memory */
static long interrupted; /* a signal interrupts each reservation of more bytes; 0: none */

static int refuses(long n, ...)
{
    long length;
    va_list args;
    if (n != SYS_fallocate || (!full && interrupted == 0))
        return 0;
    asked++;
    va_start(args, n);
    (void)va_arg(args, int); /* the descriptor */
    (void)va_arg(args, int); /* the mode */
    (void)va_arg(args, long); /* the offset */
    length = va_arg(args, long);
    va_end(args);
    errno = full ? ENOSPC : EINTR;
    return full || length > interrupted;
}

/* Signals interrupt each reservation of more than 64 KiB, and the kernel takes back what it has reserved until then. */
static void reserve_interrupted(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_offset off;
    memset(&o, 0, sizeof o);
    o.size = 64 << 20;
    o.max_participants = 1000;
    interrupted = 64 << 10;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(a->geo.blocks_off > 1 << 20, 1);
    CHECK(shmsync_alloc(a, 20 << 20, &off), 0);
    /* Each 64 KiB need one call. The tries before that are few: about 30 for each reservation. */
    CHECK(asked < (int)((a->geo.blocks_off + (20 << 20)) >> 16) + 300, 1);
    CHECK(shmsync_free(a, off), 0);
    CHECK(shmsync_arena_close(a), 0);
}

int main(int argc, char **argv)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_offset low, high, off;
    if (argc != 3)
        return 2;
    alarm(60);
    if (strcmp(argv[1], "interrupted") == 0) {
        reserve_interrupted(argv[2]);
        return 0;
    }
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 4;
    CHECK(shmsync_arena_open(argv[2], &o, &a), 0);
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
