/* Asks for a large block when there is no memory, when signals interrupt each long reservation, or when both happens: spans
 * full|interrupted|partly NAME. Exit status 0 if all results were right; SIGALRM ends a test that hangs. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
static int refuses(long n, ...);
#define syscall(...) (refuses(__VA_ARGS__) ? -1L : (syscall)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static int full, asked; /* asked: how often the library has asked for memory */
static long interrupted; /* a signal interrupts each reservation of more bytes; 0: none */
static long fails_from;  /* there is no memory for a reservation of this offset or a higher one; 0: there is */

static int refuses(long n, ...)
{
    long length, off;
    int mode, none;
    va_list args;
    if (n != SYS_fallocate || (!full && interrupted == 0))
        return 0;
    va_start(args, n);
    (void)va_arg(args, int); /* the descriptor */
    mode = va_arg(args, int);
    off = va_arg(args, long);
    length = va_arg(args, long);
    va_end(args);
    if ((mode & FALLOC_FL_PUNCH_HOLE) != 0)
        return 0;
    asked++;
    none = full || (fails_from != 0 && off >= fails_from);
    errno = none ? ENOSPC : EINTR;
    return none || length > interrupted;
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

/* A reservation gets a part of the memory, and not the rest. The file system gets this part back, and the arena can use
 * all other memory. */
static void reserve_partly(const char *name)
{
    enum { middle = 20, chunks = 40 };
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_offset off, kept;
    struct stat before, after;
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 4;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    a->heap_top = middle + 1;
    CHECK(shmsync_alloc(a, SHMI_chunkSize, &kept), 0);
    CHECK(kept, shmi_chunk_off(a, middle));
    memset(shmsync_at(a, kept, SHMI_chunkSize), 'x', SHMI_chunkSize);
    CHECK(shmsync_free(a, kept), 0); /* this chunk has memory, in the middle of others that have none */
    CHECK(fstat(a->fd, &before), 0);
    interrupted = SHMI_chunkSize;
    fails_from = (long)shmi_chunk_off(a, middle + 10);
    a->heap_top = chunks;
    CHECK(shmsync_alloc(a, chunks * SHMI_chunkSize, &off), ENOSPC);
    CHECK(fstat(a->fd, &after), 0);
    CHECK(after.st_blocks, before.st_blocks);
    CHECK(shmi_reserved_in(a, 0, a->geo.chunk_count), 1);
    CHECK(*(char *)shmi_bytes(a, kept, 1), 'x'); /* the failed allocation discards no byte of an earlier block */
    interrupted = fails_from = 0;
    CHECK(shmsync_alloc(a, chunks * SHMI_chunkSize, &off), 0);
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
    if (strcmp(argv[1], "partly") == 0) {
        reserve_partly(argv[2]);
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
