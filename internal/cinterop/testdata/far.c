/* Claims slot records and wait nodes in an arena of which only a part is within reach of a link of 32 bits: far NAME. Exit status 0 if all
 * results were right, 77 if there is no address space for the arena. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
static int grants(long n, ...);
#define syscall(...) (grants(__VA_ARGS__) ? 0L : (syscall)(__VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"

static int far; /* the arena is in anonymous memory, which needs no fallocate */

static int grants(long n, ...) { return n == SYS_fallocate && far; }

#define LIMIT (UINT64_C(64) << 32)

static void claim(shmsync_arena *a, shmi_room in)
{
    uint64_t i;
    for (i = 0; i < shmi_blocks_of(SHMI_classNode); i++) {
        shmi_node *n;
        shmi_off off;
        shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), 64);
        CHECK(shmi_claim_node(a, &off, &n), 0);
        CHECK(off < LIMIT, 1);
        CHECK(shmi_room_of(a, (off - a->geo.heap_off) / SHMI_chunkSize), in);
    }
}

/* Claims blocks for the list of an object: of a class that the headroom for small records has, of a larger class, and of whole
 * chunks. */
static void listed(shmsync_arena *a, shmi_room small, shmi_room large, int chunks)
{
    static const uint64_t size[] = {256, 3000, SHMI_chunkSize + 1};
    shmi_object o;
    size_t i;
    memset(&o, 0, sizeof o);
    for (i = 0; i < 3; i++) {
        shmi_off off;
        shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), 64);
        CHECK(shmi_claim_listed(a, &o, size[i], 1, &off), i == 2 ? chunks : 0);
        if (i == 2 && chunks != 0)
            break;
        CHECK(off < LIMIT, 1);
        CHECK(shmi_room_of(a, (off - a->geo.heap_off) / SHMI_chunkSize), i == 0 ? small : i == 1 ? large : SHMI_roomOfAll);
        shmi_unclaim(a, off);
        CHECK(shmi_claim_listed(a, &o, size[i], 0, &off), small == SHMI_roomOfAll ? 0 : ENOSPC);
        if (small != SHMI_roomOfAll)
            CHECK(strstr(shmsync_error(), "; the block must lie in the first 256 GiB") != NULL, 1);
        else
            shmi_unclaim(a, off);
    }
}

int main(int argc, char **argv)
{
    const uint64_t size = UINT64_C(320) << 30, empty = shmi_make_chunk(SHMI_chunkSlab, 0, 0);
    static shmsync_arena copy;
    shmsync_arena_options o;
    shmsync_arena *real, *a = &copy;
    shmi_node *n;
    shmi_off off;
    uint64_t i;
    void *base;
    if (argc != 2)
        return 2;
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 4;
    base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) {
        perror("mmap");
        return 77;
    }
    CHECK(shmsync_arena_open(argv[1], &o, &real), 0);
    memcpy(a, real, sizeof *a);
    a->base = (unsigned char *)base;
    a->size = size;
    a->geo = shmi_plan(size, 4);
    a->geo.heap_off = LIMIT - 64 * SHMI_chunkSize; /* 64 chunks are within reach */
    a->geo.chunk_count = 128;
    shmi_plan_headroom(&a->geo);
    CHECK(a->geo.linked, 64);
    CHECK(a->geo.headroom, 56);
    far = 1;
    listed(a, SHMI_roomOfAll, SHMI_roomOfAll, 0);
    shmi_sweep(a, a->geo.chunk_count, SHMI_roomOfLinked); /* the slabs of these blocks */
    claim(a, SHMI_roomOfAll);

    /* A participant of an older version has used a chunk out of reach for wait nodes, and all of them are free. */
    CHECK(shmi_swap_chunk(a, 64, 0, shmi_make_chunk(SHMI_chunkSlab, SHMI_classNode, 0)), 1);
    a->heap_next[SHMI_classNode] = 64 * SHMI_blockWords;
    a->searches[SHMI_classNode].begun = 1;
    a->searches[SHMI_classNode].at = 65;
    claim(a, SHMI_roomOfAll);

    /* There are free chunks out of reach only, and one of them can be swept. */
    for (i = 0; i < a->geo.headroom; i++)
        if (shmi_chunk_kind(shmi_load_chunk(a, i)) == SHMI_chunkFree)
            shmi_st64(shmi_chunk(a, i), shmi_make_chunk(SHMI_chunkHead, 1, 0));
    CHECK(shmi_swap_chunk(a, 65, 0, empty), 1);
    claim(a, SHMI_roomOfNodes);
    CHECK(shmi_claim_node(a, &off, &n), ENOSPC);
    CHECK(strstr(shmsync_error(), "the headroom is full, too; the block must lie in the first 256 GiB") != NULL, 1);
    CHECK(shmi_load_chunk(a, 65) == empty, 1);
    listed(a, SHMI_roomOfRecords, SHMI_roomOfLarge, ENOSPC);
    far = 0;

    /* In an arena of more than about 4 TiB, even the first chunk of the heap is out of reach. */
    CHECK(shmi_plan(UINT64_C(5) << 40, 4).linked, 0);
    CHECK(shmi_plan(UINT64_C(5) << 40, 4).headroom_records, 0);
    CHECK(shmsync_arena_close(real), 0);
    return 0;
}
