/* ---- Heap: the chunk words and the block words are its whole state ---- */

enum {
    /* An allocation searches this many slabs for a free block before it takes a fresh chunk, and reads this many chunk
     * words at most. */
    SHMI_nearSlabs = 16,
    SHMI_nearWords = 4096,
    /* The same limits during the first pass over all chunks. */
    SHMI_firstSlabs = 256,
    SHMI_firstWords = 1 << 16,
    SHMI_claimTries = 64,
    SHMI_timeout = 64
};

/* The headroom is a part of the heap that blocks of shmsync_alloc and new objects cannot use. When users have filled the
 * rest, participants can still use objects that exist: the headroom has room for their slot records and wait nodes. It
 * consists of certain chunks, which depend on the size of the arena alone. See docs/design/0061. */
enum {
    SHMI_headroomShare = 16, /* one of this many chunks is in the headroom, rounded up */
    SHMI_headroomMost = 256,
    SHMI_headroomLeast = 4, /* a heap with fewer chunks has no headroom */
    SHMI_headroomNodes = 1, /* chunks for wait nodes, if the headroom has two or more chunks */
    SHMI_headroomPause = 2000000, /* ns; before each of the last tries of an allocation */
    /* The least class of a block in the headroom. It has room for each slot record, except that of a Waitable whose state
     * has more than 8 bytes. */
    SHMI_classHeadroom = 3
};
/* A part of the heap. SHMI_roomOfLinked is a part of SHMI_roomOfAll; any two other parts have no chunk in common. */
typedef enum shmi_room {
    SHMI_roomOfAll,     /* for every allocation */
    SHMI_roomOfLinked,  /* for wait nodes and listed blocks: the chunks of SHMI_roomOfAll within reach of a link of 32 bits */
    SHMI_roomOfRecords, /* headroom for slot records of up to 256 bytes */
    SHMI_roomOfLarge,   /* headroom for slot records of any size */
    SHMI_roomOfNodes    /* headroom for wait nodes */
} shmi_room;

/* Plans the headroom. A link of 32 bits, such as the word objRecords or a link of a queue, contains an offset divided
 * by SHMI_blockMin. So a link can name only the first 256 GiB of the arena. The headroom consists of the last chunks
 * of this part, or is empty if this part has too few chunks. */
SHMI_FN void shmi_plan_headroom(shmi_geometry *g)
{
    const uint64_t last = (uint64_t)SHMI_blockMin << 32; /* 256 GiB */
    uint64_t n = (g->chunk_count + SHMI_headroomShare - 1) / SHMI_headroomShare;
    g->linked = g->heap_off < last ? (last - g->heap_off) / SHMI_chunkSize : 0;
    if (g->linked > g->chunk_count)
        g->linked = g->chunk_count;
    if (n > SHMI_headroomMost)
        n = SHMI_headroomMost;
    if (g->chunk_count < SHMI_headroomLeast || g->linked < n)
        return;
    g->headroom = g->linked - n;
    g->headroom_nodes = n > SHMI_headroomNodes ? SHMI_headroomNodes : 0;
    g->headroom_large = (n - g->headroom_nodes) / 2;
    g->headroom_records = n - g->headroom_nodes - g->headroom_large;
}
/* The room of a chunk, never SHMI_roomOfLinked. */
SHMI_FN shmi_room shmi_room_of(shmsync_arena *a, uint64_t chunk)
{
    const shmi_geometry *g = &a->geo;
    if (chunk < g->headroom || chunk >= g->headroom + g->headroom_records + g->headroom_large + g->headroom_nodes)
        return SHMI_roomOfAll;
    if (chunk < g->headroom + g->headroom_records)
        return SHMI_roomOfRecords;
    return chunk < g->headroom + g->headroom_records + g->headroom_large ? SHMI_roomOfLarge : SHMI_roomOfNodes;
}
/* Whether an allocation in a room may use a chunk. */
SHMI_FN int shmi_serves(shmsync_arena *a, shmi_room in, uint64_t chunk)
{
    if (in == SHMI_roomOfLinked)
        return chunk < a->geo.linked && shmi_room_of(a, chunk) == SHMI_roomOfAll;
    return shmi_room_of(a, chunk) == in;
}
SHMI_FN int shmi_in_headroom(shmi_room in) { return in > SHMI_roomOfLinked; }

SHMI_FN uint32_t shmi_chunk_kind(uint64_t w) { return (uint32_t)(w & 7); }
SHMI_FN int shmi_chunk_reserved(uint64_t w) { return (w & SHMI_CHUNK_RESERVED) != 0; }
SHMI_FN uint64_t shmi_chunk_number(uint64_t w) { return w >> 4 & 0x7fffffff; }
SHMI_FN shmi_participant_id shmi_chunk_name(uint64_t w) { return (shmi_participant_id)(w >> 35); }
SHMI_FN uint64_t shmi_make_chunk(uint32_t kind, uint64_t number, shmi_participant_id n)
{
    return kind | SHMI_CHUNK_RESERVED | number << 4 | (uint64_t)n << 35;
}
SHMI_FN uint64_t shmi_chunk_freed(uint64_t w) { return w & SHMI_CHUNK_RESERVED; }
SHMI_FN uint64_t shmi_chunk_claimed(uint64_t w, shmi_participant_id n)
{
    return (w & SHMI_CHUNK_RESERVED) | SHMI_chunkClaimed | (uint64_t)n << 35;
}
SHMI_FN int shmi_chunk_slab_of(uint64_t w, int cls) { return w == shmi_make_chunk(SHMI_chunkSlab, (uint64_t)cls, 0); }

SHMI_FN int shmi_chunk_legal(uint64_t w, uint64_t i, uint64_t count)
{
    uint64_t n = shmi_chunk_number(w);
    shmi_participant_id who = shmi_chunk_name(w);
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkFree: return (w & ~SHMI_CHUNK_RESERVED) == 0;
    case SHMI_chunkClaimed: return n == 0 && shmi_id_valid(who);
    case SHMI_chunkSlab: return shmi_chunk_reserved(w) && n < SHMI_classes && who == 0;
    case SHMI_chunkSweeping: return shmi_chunk_reserved(w) && n < SHMI_classNode && shmi_id_valid(who);
    case SHMI_chunkHead: return shmi_chunk_reserved(w) && n > 0 && n <= count - i && who == 0;
    case SHMI_chunkTail: return shmi_chunk_reserved(w) && n < i && who == 0;
    }
    return 0;
}

SHMI_FN uint32_t shmi_block_kind(uint32_t w) { return w & 7; }
SHMI_FN shmi_participant_id shmi_block_name(uint32_t w) { return w >> 3; }
SHMI_FN uint32_t shmi_make_block(uint32_t kind, shmi_participant_id n) { return kind | n << 3; }
SHMI_FN uint64_t shmi_blocks_of(int cls) { return SHMI_chunkSize / shmi_class_size[cls]; }

SHMI_FN uint64_t *shmi_chunk(shmsync_arena *a, uint64_t i) { return shmi_u64(a, a->geo.chunks_off + i * 8); }
SHMI_FN uint64_t shmi_load_chunk(shmsync_arena *a, uint64_t i) { return shmi_ld64(shmi_chunk(a, i)); }
SHMI_FN int shmi_swap_chunk(shmsync_arena *a, uint64_t i, uint64_t old, uint64_t to) { return shmi_cas64(shmi_chunk(a, i), old, to); }
SHMI_FN shmi_off shmi_chunk_off(shmsync_arena *a, uint64_t i) { return a->geo.heap_off + i * SHMI_chunkSize; }
/* A block word. There must be memory behind the block words of the chunk; see shmi_back. */
SHMI_FN uint32_t *shmi_block_word(shmsync_arena *a, uint64_t chunk, uint64_t index)
{
    return shmi_u32(a, a->geo.blocks_off + (chunk * SHMI_blockWords + index) * SHMI_blockWordSize);
}

SHMI_FN shmi_block shmi_block_in(shmsync_arena *a, uint64_t chunk, uint64_t index, int cls)
{
    shmi_block b;
    b.size = shmi_class_size[cls];
    b.off = shmi_chunk_off(a, chunk) + index * b.size;
    b.chunk = chunk;
    b.index = index;
    b.class_ = cls;
    b.word = shmi_block_word(a, chunk, index);
    return b;
}
SHMI_FN shmi_block shmi_span_at(shmsync_arena *a, uint64_t chunk, uint64_t chunks)
{
    shmi_block b;
    b.size = chunks * SHMI_chunkSize;
    b.off = shmi_chunk_off(a, chunk);
    b.chunk = chunk;
    b.index = 0;
    b.class_ = SHMI_classSpan;
    b.word = shmi_block_word(a, chunk, 0);
    return b;
}

/* Sets *b to the block or span in which off lies. Returns 0 if there is none. */
SHMI_FN int shmi_holding(shmsync_arena *a, shmi_off off, shmi_block *b)
{
    uint64_t i, w, start;
    if (off < a->geo.heap_off || (off - a->geo.heap_off) / SHMI_chunkSize >= a->geo.chunk_count)
        return 0;
    i = (off - a->geo.heap_off) / SHMI_chunkSize;
    w = shmi_load_chunk(a, i);
    if (shmi_chunk_kind(w) == SHMI_chunkTail && shmi_chunk_legal(w, i, a->geo.chunk_count)) {
        i = shmi_chunk_number(w);
        w = shmi_load_chunk(a, i);
        if (shmi_chunk_kind(w) != SHMI_chunkHead)
            return 0;
    }
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 0;
    start = shmi_chunk_off(a, i);
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        *b = shmi_span_at(a, i, shmi_chunk_number(w));
        return off - start < b->size;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping: {
        int cls = (int)shmi_chunk_number(w);
        uint64_t index = (off - start) / shmi_class_size[cls];
        if (index >= shmi_blocks_of(cls))
            return 0;
        *b = shmi_block_in(a, i, index, cls);
        return 1;
    }
    }
    return 0;
}
/* Sets *b to the block or span that begins at off. Returns 0 if there is none. */
SHMI_FN int shmi_locate(shmsync_arena *a, shmi_off off, shmi_block *b) { return shmi_holding(a, off, b) && b->off == off; }
SHMI_FN int shmi_block_swap(const shmi_block *b, uint32_t old, uint32_t to) { return shmi_cas32(b->word, old, to); }

/* Allocates memory for a range inside a file. Returns 0, or -1 with errno. gVisor supports no flags. The flag makes no
 * difference here, because the range lies inside the file. */
SHMI_FN int shmi_fallocate(int fd, uint64_t off, uint64_t n)
{
    /* Unlike fallocate, syscall is no cancellation point. */
    if (syscall(SYS_fallocate, fd, FALLOC_FL_KEEP_SIZE, (long)off, (long)n) == 0)
        return 0;
    return errno == EOPNOTSUPP ? (int)syscall(SYS_fallocate, fd, 0, (long)off, (long)n) : -1;
}

/* On older kernels, a signal makes tmpfs give back everything that a call of fallocate has allocated so far. With a
 * periodic signal, one call for a long range might never succeed. So after some tries, the range is allocated in
 * pieces. The allocation of a piece takes a few milliseconds. If signals still interrupt a piece, its size is
 * halved. */
enum { SHMI_reserveTries = 4, SHMI_reservePiece = 8 << 20, SHMI_reserveLeast = 64 << 10 };
/* Allocates memory for a range inside a file, whatever signals arrive. Returns 0, or -1 with errno. */
SHMI_FN int shmi_allocate(int fd, uint64_t off, uint64_t n)
{
    uint64_t end = off + n, piece = SHMI_reservePiece;
    int tries;
    for (tries = 0; tries < SHMI_reserveTries; tries++) {
        if (shmi_fallocate(fd, off, n) == 0)
            return 0;
        if (errno != EINTR)
            return -1;
    }
    for (tries = 0; off < end;) {
        uint64_t now = end - off < piece ? end - off : piece;
        if (shmi_fallocate(fd, off, now) == 0) {
            off += now;
            tries = 0;
        } else if (errno != EINTR) {
            return -1;
        } else if (++tries == SHMI_reserveTries && piece / 2 >= SHMI_reserveLeast) {
            piece /= 2;
            tries = 0;
        }
    }
    return 0;
}

SHMI_FN void shmi_current_path(const shmsync_arena *a, char *path);
SHMI_COLD int shmi_open_again(const shmsync_arena *a)
{
    char path[PATH_MAX];
    int fd;
    errno = ESTALE;
    if (strchr(a->path, '/') == NULL)
        return -1;
    shmi_current_path(a, path);
    do
        fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    while (fd < 0 && errno == EINTR);
    if (fd >= 0 && shmi_is_file(fd, a->dev, a->ino))
        return fd;
    if (fd >= 0)
        syscall(SYS_close, fd);
    if (fd >= 0 || errno == ENOENT || errno == ENOTDIR || errno == ELOOP || errno == EISDIR || errno == ENXIO || errno == ENODEV)
        errno = ESTALE; /* there is no file, or another one */
    return -1;
}
/* Returns a descriptor of the arena's file, for shmi_return_file, or -1 with errno: ESTALE if the path does not lead to
 * the file any more. Other code of the program may have closed the descriptors of the arena by mistake, and their
 * numbers may belong to other files by now. Then this call opens the file again, if the path still leads to it. */
SHMI_FN int shmi_borrow_file(const shmsync_arena *a)
{
    if (shmi_is_file(a->fd, a->dev, a->ino))
        return a->fd;
    if (a->lock_fd >= 0 && shmi_is_file(a->lock_fd, a->dev, a->ino))
        return a->lock_fd;
    return shmi_open_again(a);
}
/* Closes fd, which shmi_borrow_file has returned, unless fd is the number of a descriptor of the arena. This is also
 * right if the program has closed that descriptor by mistake and shmi_borrow_file has got the same number: fd then
 * replaces the lost descriptor. */
SHMI_FN void shmi_return_file(const shmsync_arena *a, int fd)
{
    if (fd >= 0 && fd != a->fd && fd != a->lock_fd)
        syscall(SYS_close, fd);
}

/* Returns ENOSPC for an exceeded quota, and any other errno unchanged. */
SHMI_FN int shmi_quota_errno(int err)
{
#ifdef EDQUOT
    if (err == EDQUOT)
        return ENOSPC;
#endif
    return err;
}
/* The errno for a failed reservation: ENOSPC for each reason that there is no memory. */
SHMI_FN int shmi_space_errno(int err) { return err == ENOMEM ? ENOSPC : shmi_quota_errno(err); }
/* Makes sure that n bytes of the file have memory behind them. */
SHMI_FN int shmi_reserve(shmsync_arena *a, uint64_t off, uint64_t n)
{
    int err, fd = shmi_borrow_file(a);
    if (fd < 0)
        return shmi_fail(errno, "reserve", a->label, "this program has closed the descriptors of the arena, and %s",
                         errno == ESTALE ? "its path does not lead to it" : "could not open the file again");
    err = shmi_allocate(fd, off, n) == 0 ? 0 : errno;
    shmi_return_file(a, fd);
    if (err == 0)
        return 0;
    if (shmi_space_errno(err) == ENOSPC)
        return shmi_fail(ENOSPC, "reserve", a->label, "shared memory is full: could not reserve %llu bytes", (unsigned long long)n);
    return shmi_fail(err, "reserve", a->label, "%llu bytes at %llu", (unsigned long long)n, (unsigned long long)off);
}

SHMI_FN uint64_t shmi_reserved_in(shmsync_arena *a, uint64_t chunk, uint64_t n)
{
    uint64_t i, count = 0;
    for (i = chunk; i < chunk + n; i++)
        count += (uint64_t)shmi_chunk_reserved(shmi_load_chunk(a, i));
    return count;
}

/* The file offset of the block words of a chunk, and their size in bytes. */
#define SHMI_chunkWordsSize ((uint64_t)SHMI_blockWords * SHMI_blockWordSize)
SHMI_FN uint64_t shmi_chunk_words(shmsync_arena *a, uint64_t chunk) { return a->geo.blocks_off + chunk * SHMI_chunkWordsSize; }

/* Gives the memory of a range of the file back to the file system, if possible. The bytes become 0. */
SHMI_FN void shmi_discard(shmsync_arena *a, uint64_t off, uint64_t n)
{
    int fd = shmi_borrow_file(a);
    if (fd < 0)
        return;
    while (syscall(SYS_fallocate, fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (long)off, (long)n) != 0 && errno == EINTR) {
    }
    shmi_return_file(a, fd);
}
/* Frees the memory of those of n chunks that are not marked as reserved, and of their block words. This process has
 * claimed the chunks. A chunk without the mark has never been used, so all of these bytes are 0, and stay 0.
 *
 * Without a byte lock, the memory stays. The byte lock keeps the chunks of a dead participant claimed until no system
 * call of its process is in progress. Otherwise a system call of a dying process could set bytes to 0 while another
 * participant already uses them. */
SHMI_COLD void shmi_give_back(shmsync_arena *a, uint64_t chunk, uint64_t n)
{
    uint64_t i, first, end = chunk + n;
    if (a->lock_fd < 0)
        return;
    for (i = chunk; i < end; i++) {
        for (first = i; i < end && shmi_load_chunk(a, i) == shmi_chunk_claimed(0, a->self); i++) {
        }
        if (i == first)
            continue;
        shmi_discard(a, shmi_chunk_off(a, first), (i - first) * SHMI_chunkSize);
        shmi_discard(a, shmi_chunk_words(a, first), (i - first) * SHMI_chunkWordsSize);
    }
}
/* Makes sure that n chunks that this process has claimed, and their block words, have memory behind them. If there is
 * too little memory for all of them, gives back what it has allocated. The block words come first, because they need
 * less memory. If this process dies before the chunks are marked, their memory stays allocated although no word says
 * so: see the method back in internal/arenakernel/heap.go. */
SHMI_FN int shmi_back(shmsync_arena *a, uint64_t chunk, uint64_t n)
{
    uint64_t i;
    if (shmi_reserved_in(a, chunk, n) < n) {
        int err = shmi_reserve(a, shmi_chunk_words(a, chunk), n * SHMI_chunkWordsSize);
        if (err == 0)
            err = shmi_reserve(a, shmi_chunk_off(a, chunk), n * SHMI_chunkSize);
        if (err != 0) {
            shmi_give_back(a, chunk, n);
            return err;
        }
    }
    for (i = chunk; i < chunk + n; i++) {
        uint64_t w = shmi_load_chunk(a, i);
        if (!shmi_chunk_reserved(w))
            shmi_swap_chunk(a, i, w, w | SHMI_CHUNK_RESERVED);
        SHMSYNC_CRASHPOINT("arena.chunk.backed");
    }
    return 0;
}

/* Frees n chunks that this process has claimed. */
SHMI_FN void shmi_free_run(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t k;
    for (k = 0; k < n; k++) {
        uint64_t w = shmi_load_chunk(a, head + k);
        if (shmi_chunk_kind(w) == SHMI_chunkClaimed && shmi_chunk_name(w) == a->self)
            shmi_swap_chunk(a, head + k, w, shmi_chunk_freed(w));
    }
}

/* Claims a free block of a chunk, if the chunk is a slab of the class. Returns 0 if it is no such slab, or is full. */
SHMI_FN shmi_off shmi_claim_in(shmsync_arena *a, uint64_t chunk, int cls, uint64_t start)
{
    uint64_t n = shmi_blocks_of(cls), k;
    uint32_t claimed = shmi_make_block(SHMI_blockClaimed, a->self);
    if (!shmi_chunk_slab_of(shmi_load_chunk(a, chunk), cls))
        return 0;
    for (k = 0; k < n; k++) {
        uint64_t index = (start + k) % n;
        uint32_t *word = shmi_block_word(a, chunk, index);
        if (shmi_ld32(word) != SHMI_blockFree)
            continue;
        shmi_touch(a, chunk);
        SHMSYNC_CRASHPOINT("arena.block.before_claim");
        if (!shmi_cas32(word, SHMI_blockFree, claimed))
            continue;
        SHMSYNC_CRASHPOINT("arena.block.claimed");
        /* Another participant may have freed the chunk meanwhile. If the chunk is still a slab of our class, it
         * stays one, because a slab is freed only when every block of it is free. */
        if (!shmi_chunk_slab_of(shmi_load_chunk(a, chunk), cls)) {
            shmi_cas32(word, claimed, SHMI_blockFree);
            return 0;
        }
        __atomic_store_n(&a->heap_next[cls], chunk * SHMI_blockWords + (index + 1) % n, __ATOMIC_RELAXED);
        return shmi_chunk_off(a, chunk) + index * shmi_class_size[cls];
    }
    return 0;
}

/* Claims a block in the chunk from which the last block of the class came. Returns 0 if that chunk is full. */
SHMI_FN shmi_off shmi_claim_next(shmsync_arena *a, int cls, shmi_room in)
{
    uint64_t next = __atomic_load_n(&a->heap_next[cls], __ATOMIC_RELAXED), chunk = next / SHMI_blockWords;
    if (chunk >= a->geo.chunk_count || !shmi_serves(a, in, chunk))
        return 0;
    return shmi_claim_in(a, chunk, cls, next % SHMI_blockWords);
}

/* Extends the range first to end-1 of a search so that it contains the slab. */
SHMI_FN void shmi_search_know(shmi_search *s, uint64_t chunk)
{
    if (s->first == s->end) {
        s->first = chunk;
        s->end = chunk + 1;
    } else if (chunk < s->first) {
        s->first = chunk;
    } else if (chunk >= s->end) {
        s->end = chunk + 1;
    }
}
/* Claims a block of the class in one of the chunks from first to end-1. The search begins below chunk *at and goes
 * downwards; after chunk first it continues at end-1. The parameter words limits how many chunk words it reads, and the
 * parameter slabs how many slabs it searches. It adds the number of chunk words that it has read to *passed, and sets
 * *at to the last chunk that it has read. */
SHMI_FN shmi_off shmi_claim_below(shmsync_arena *a, int cls, shmi_room in, uint64_t *at, uint64_t first, uint64_t end,
                                  uint64_t words, uint64_t slabs, uint64_t *passed)
{
    uint64_t i = *at;
    shmi_off off = 0;
    for (; words > 0 && slabs > 0 && off == 0; words--) {
        if (i <= first || i > end)
            i = end;
        i--;
        ++*passed;
        if (!shmi_serves(a, in, i) || !shmi_chunk_slab_of(shmi_load_chunk(a, i), cls))
            continue;
        slabs--;
        if (!shmi_in_headroom(in))
            shmi_search_know(&a->searches[cls], i);
        off = shmi_claim_in(a, i, cls, 0);
    }
    *at = i;
    return off;
}
/* Claims a block in a slab that is not full, if a search finds one. The caller holds searches[cls].turn.
 *
 * In the headroom, it searches all chunks, so that no fresh chunk is used while a slab has a free block: the headroom
 * is small. For a wait node, it also searches all chunks, because a chunk of wait nodes is never used for anything
 * else. internal/arenakernel/heap_search.go describes the search. */
SHMI_FN shmi_off shmi_claim_known(shmsync_arena *a, int cls, shmi_room in)
{
    shmi_search *s = &a->searches[cls];
    uint64_t count = a->geo.chunk_count, chunk = __atomic_load_n(&a->heap_next[cls], __ATOMIC_RELAXED) / SHMI_blockWords;
    uint64_t passed = 0, most;
    shmi_off off;
    if (count == 0)
        return 0;
    if (!s->begun) {
        s->begun = 1;
        s->at = shmi_ld64(shmi_u64(a, SHMI_hdrChunkHint));
    }
    if (chunk < count && shmi_serves(a, SHMI_roomOfAll, chunk) && shmi_chunk_slab_of(shmi_load_chunk(a, chunk), cls))
        shmi_search_know(s, chunk);
    if (shmi_in_headroom(in)) {
        uint64_t first = a->geo.headroom, end = first + a->geo.headroom_records + a->geo.headroom_large + a->geo.headroom_nodes;
        chunk = end;
        return shmi_claim_below(a, cls, in, &chunk, first, end, end - first, count, &passed);
    }
    if (cls == SHMI_classNode)
        return shmi_claim_below(a, cls, in, &s->at, 0, a->geo.linked, a->geo.linked, count, &passed);
    if (s->passed < count) {
        most = count - s->passed;
        if (most > SHMI_firstWords)
            most = SHMI_firstWords;
        off = shmi_claim_below(a, cls, in, &s->at, 0, count, most, SHMI_firstSlabs, &passed);
        s->passed += passed;
        return off;
    }
    most = s->end - s->first;
    if (most > SHMI_nearWords)
        most = SHMI_nearWords;
    return shmi_claim_below(a, cls, in, &s->at, s->first, s->end, most, SHMI_nearSlabs, &passed);
}

/* Claims a free chunk of a room whose chunk word has all bits of the parameter bits set. */
SHMI_FN int shmi_claim_chunk(shmsync_arena *a, uint64_t bits, shmi_room in, uint64_t *chunk, int *busy)
{
    uint64_t *hint = shmi_u64(a, SHMI_hdrChunkHint);
    uint64_t start = shmi_ld64(hint) % a->geo.chunk_count, k;
    for (k = 0; k < a->geo.chunk_count; k++) {
        uint64_t i = (start + k) % a->geo.chunk_count, w = shmi_load_chunk(a, i);
        if (!shmi_serves(a, in, i))
            continue;
        switch (shmi_chunk_kind(w)) {
        case SHMI_chunkFree:
            if ((w & bits) != bits)
                continue;
            shmi_touch(a, i);
            if (shmi_swap_chunk(a, i, w, shmi_chunk_claimed(w, a->self))) {
                shmi_st64(hint, i + 1);
                *chunk = i;
                return 1;
            }
            *busy = 1;
            break;
        case SHMI_chunkClaimed:
        case SHMI_chunkSweeping:
            *busy = 1;
            break;
        }
    }
    return 0;
}

/* Fails for lack of space. The parameter in is the last room in which the caller has looked. */
SHMI_COLD int shmi_no_space(shmsync_arena *a, uint64_t size, shmi_room in)
{
    uint64_t i, free_ = 0, kept = 0;
    char more[80] = "";
    const char *reach = in != SHMI_roomOfAll && a->geo.linked < a->geo.chunk_count ? "; the block must lie in the first 256 GiB" : "";
    for (i = 0; i < a->geo.chunk_count; i++) {
        if (shmi_chunk_kind(shmi_load_chunk(a, i)) != SHMI_chunkFree)
            continue;
        if (shmi_room_of(a, i) == SHMI_roomOfAll)
            free_ += SHMI_chunkSize;
        else
            kept += SHMI_chunkSize;
    }
    if (in == SHMI_roomOfLarge && size > shmi_class_size[SHMI_classHeadroom])
        snprintf(more, sizeof more, "; the headroom has no room for so large a slot record");
    else if (shmi_in_headroom(in))
        snprintf(more, sizeof more, "; the headroom is full, too");
    else if (kept > 0)
        snprintf(more, sizeof more, ", and %llu bytes of headroom for users of objects that exist", (unsigned long long)kept);
    return shmi_fail(ENOSPC, "arena.alloc", a->label, "asked for %llu bytes; free in chunks of 64 KiB: %llu of %llu bytes%s%s",
                     (unsigned long long)size, (unsigned long long)free_, (unsigned long long)(a->geo.chunk_count * SHMI_chunkSize), more, reach);
}

SHMI_COLD int shmi_meddled(shmsync_arena *a, shmi_off off)
{
    return shmi_fail(EPROTO, "arena.alloc", a->label, "the block at 0x%llx was changed while claimed", (unsigned long long)off);
}

/* Claims a free chunk, makes a slab of it, and claims a block of the slab before any other participant can. */
SHMI_FN int shmi_claim_fresh(shmsync_arena *a, int cls, shmi_room in, shmi_off *off, int *busy)
{
    uint64_t chunk = 0, index;
    int err;
    *off = 0;
    if (!shmi_claim_chunk(a, 0, in, &chunk, busy))
        return 0;
    SHMSYNC_CRASHPOINT("arena.chunk.claimed");
    err = shmi_back(a, chunk, 1);
    if (err != 0) {
        shmi_free_run(a, chunk, 1);
        if (!shmi_claim_chunk(a, SHMI_CHUNK_RESERVED, in, &chunk, busy))
            return err;
    }
    if (cls == SHMI_classNode)
        memset(shmi_bytes(a, shmi_chunk_off(a, chunk), SHMI_chunkSize), 0, SHMI_chunkSize);
    for (index = 0; index < shmi_blocks_of(cls); index++) {
        if (shmi_cas32(shmi_block_word(a, chunk, index), SHMI_blockFree, shmi_make_block(SHMI_blockClaimed, a->self))) {
            *off = shmi_chunk_off(a, chunk) + index * shmi_class_size[cls];
            __atomic_store_n(&a->heap_next[cls], chunk * SHMI_blockWords + (index + 1) % shmi_blocks_of(cls), __ATOMIC_RELAXED);
            break;
        }
    }
    SHMSYNC_CRASHPOINT("arena.chunk.before_slab");
    if (!shmi_swap_chunk(a, chunk, shmi_chunk_claimed(SHMI_CHUNK_RESERVED, a->self), shmi_make_chunk(SHMI_chunkSlab, (uint64_t)cls, 0)))
        return shmi_meddled(a, shmi_chunk_off(a, chunk));
    return 0;
}

SHMI_FN void shmi_unblock(shmsync_arena *a, uint64_t i, shmi_participant_id n)
{
    uint32_t blocked = shmi_make_block(SHMI_blockBlocked, n);
    uint64_t k;
    for (k = 0; k < SHMI_blockWords; k++) {
        uint32_t *word = shmi_block_word(a, i, k);
        if (shmi_ld32(word) == blocked)
            shmi_cas32(word, blocked, SHMI_blockFree);
    }
}

/* Makes chunk i free if it is a slab without a block in use. */
SHMI_FN int shmi_sweep_chunk(shmsync_arena *a, uint64_t i)
{
    uint64_t w = shmi_load_chunk(a, i), n, k, sweeping;
    uint32_t blocked = shmi_make_block(SHMI_blockBlocked, a->self);
    int cls = (int)shmi_chunk_number(w);
    if (shmi_chunk_kind(w) != SHMI_chunkSlab || !shmi_chunk_legal(w, i, a->geo.chunk_count) || cls == SHMI_classNode)
        return 0;
    n = shmi_blocks_of(cls);
    for (k = 0; k < n; k++)
        if (shmi_ld32(shmi_block_word(a, i, k)) != SHMI_blockFree)
            return 0;
    sweeping = shmi_make_chunk(SHMI_chunkSweeping, (uint64_t)cls, a->self);
    shmi_touch(a, i);
    if (!shmi_swap_chunk(a, i, w, sweeping))
        return 0;
    SHMSYNC_CRASHPOINT("arena.sweep.begun");
    for (k = 0; k < n; k++) {
        if (!shmi_cas32(shmi_block_word(a, i, k), SHMI_blockFree, blocked)) {
            shmi_unblock(a, i, a->self);
            shmi_swap_chunk(a, i, sweeping, w);
            return 0;
        }
    }
    SHMSYNC_CRASHPOINT("arena.sweep.blocked");
    shmi_unblock(a, i, a->self);
    SHMSYNC_CRASHPOINT("arena.sweep.before_free");
    if (!shmi_swap_chunk(a, i, sweeping, shmi_chunk_freed(w)))
        return 0;
    shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), i);
    return 1;
}
SHMI_FN uint64_t shmi_sweep(shmsync_arena *a, uint64_t want, shmi_room in)
{
    uint64_t i, swept = 0;
    for (i = 0; i < a->geo.chunk_count && swept < want; i++)
        if (shmi_serves(a, in, i))
            swept += (uint64_t)shmi_sweep_chunk(a, i);
    return swept;
}

/* Claims a block of the class in any slab of the room, or in a fresh chunk. The caller holds searches[cls].turn. */
SHMI_FN int shmi_claim_searching(shmsync_arena *a, int cls, shmi_room in, shmi_off *off)
{
    int failed = 0, tries;
    for (tries = 0; tries < SHMI_claimTries; tries++) {
        int busy = 0, err;
        uint64_t i;
        if ((*off = shmi_claim_next(a, cls, in)) != 0 || (*off = shmi_claim_known(a, cls, in)) != 0)
            return 0;
        err = shmi_claim_fresh(a, cls, in, off, &busy);
        if (*off != 0)
            return 0;
        failed = err;
        for (i = 0; i < a->geo.chunk_count; i++)
            if (shmi_serves(a, in, i) && (*off = shmi_claim_in(a, i, cls, 0)) != 0)
                return 0;
        if (shmi_sweep(a, 1, in) > 0)
            continue;
        if (!busy)
            break;
        if (!shmi_in_headroom(in) || tries < SHMI_claimTries / 2) {
            sched_yield();
        } else {
            /* Another participant may have claimed the only free chunk to make a slab of it, and may have lost its
             * CPU. If that participant has died, its reaper frees the chunk during this pause. */
            shmi_nap(SHMI_headroomPause);
        }
    }
    return failed != 0 ? failed : shmi_no_space(a, shmi_class_size[cls], in);
}
/* Claims a block of the class in a room. The bytes of the block stay as they are. The threads of this process take
 * turns to search. So if many threads need a block at the same time and no slab has one, they share one fresh chunk. If
 * there is no space, the function frees blocks that this process could not free earlier because a peer guarded them.
 * Then it tries again. A signal handler may make no call that claims a block. */
SHMI_FN int shmi_claim_block(shmsync_arena *a, int cls, shmi_room in, shmi_off *off)
{
    int err;
    if ((*off = shmi_claim_next(a, cls, in)) != 0)
        return 0;
    pthread_mutex_lock(&a->searches[cls].turn);
    err = shmi_claim_searching(a, cls, in, off);
    pthread_mutex_unlock(&a->searches[cls].turn);
    if (err != ENOSPC || !shmi_flush_deferred(a))
        return err;
    pthread_mutex_lock(&a->searches[cls].turn);
    err = shmi_claim_searching(a, cls, in, off);
    pthread_mutex_unlock(&a->searches[cls].turn);
    return err;
}

/* ---- Spans: whole chunks, for what is bigger than any class ---- */

SHMI_FN int shmi_claim_run(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t k;
    for (k = 0; k < n; k++) {
        uint64_t w = shmi_load_chunk(a, head + k);
        shmi_touch(a, head + k);
        if (shmi_chunk_kind(w) != SHMI_chunkFree || !shmi_swap_chunk(a, head + k, w, shmi_chunk_claimed(w, a->self))) {
            shmi_free_run(a, head, k);
            return 0;
        }
        SHMSYNC_CRASHPOINT("arena.span.claiming");
    }
    return 1;
}

/* Makes a span of n claimed chunks and claims its block word. Returns EAGAIN, with the chunks free again, if that word
 * is not free. The stores have this order: the block word, the head, the tails. So if this process dies, a reaper
 * finds everything from the head. */
SHMI_FN int shmi_make_span(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t i, to = shmi_make_chunk(SHMI_chunkHead, n, 0);
    int err = shmi_back(a, head, n);
    if (err != 0) {
        shmi_free_run(a, head, n);
        return err;
    }
    if (!shmi_cas32(shmi_block_word(a, head, 0), SHMI_blockFree, shmi_make_block(SHMI_blockClaimed, a->self))) {
        shmi_free_run(a, head, n);
        return EAGAIN;
    }
    SHMSYNC_CRASHPOINT("arena.span.claimed");
    memset(shmi_bytes(a, shmi_chunk_off(a, head), n * SHMI_chunkSize), 0, n * SHMI_chunkSize);
    for (i = head; i < head + n; i++) {
        if (!shmi_swap_chunk(a, i, shmi_chunk_claimed(SHMI_CHUNK_RESERVED, a->self), to))
            return shmi_meddled(a, shmi_chunk_off(a, head));
        to = shmi_make_chunk(SHMI_chunkTail, head, 0);
        SHMSYNC_CRASHPOINT("arena.span.headed");
    }
    return 0;
}

/* Makes a span of the n chunks that begin with head. *busy is 1 if some of these chunks are not free any more. */
SHMI_FN int shmi_take_span(shmsync_arena *a, uint64_t head, uint64_t n, shmi_off *off, int *busy)
{
    int err = shmi_claim_run(a, head, n) ? shmi_make_span(a, head, n) : EAGAIN;
    if (err == 0) {
        __atomic_store_n(&a->heap_top, head, __ATOMIC_RELAXED);
        *off = shmi_chunk_off(a, head);
    }
    if (err != EAGAIN)
        return err;
    *busy = 1;
    return 0;
}

/* Searches downwards from top for n free chunks in a row, all in the room, and makes a span of the first such row. If
 * there is no such row, *off is 0, and *busy says whether other participants are working on some of the chunks. */
SHMI_FN int shmi_span_below(shmsync_arena *a, uint64_t top, uint64_t n, shmi_room in, shmi_off *off, int *busy)
{
    uint64_t run = 0, i;
    *off = 0;
    for (i = top; i > 0; i--) {
        uint64_t w;
        int err;
        if (!shmi_serves(a, in, i - 1)) {
            run = 0;
            continue;
        }
        w = shmi_load_chunk(a, i - 1);
        if (shmi_chunk_kind(w) != SHMI_chunkFree) {
            *busy = *busy || shmi_chunk_kind(w) == SHMI_chunkClaimed || shmi_chunk_kind(w) == SHMI_chunkSweeping;
            run = 0;
            continue;
        }
        if (++run < n)
            continue;
        err = shmi_take_span(a, i - 1, n, off, busy);
        if (err != 0 || *off != 0)
            return err;
        run = 0;
    }
    return 0;
}

/* Finds the rows of n free chunks of a room in which some chunk has memory, and sets *head to the begin of the row with
 * the most memory. Returns 0 if there is no such row. Other participants may change chunks meanwhile, so the result may
 * be wrong. */
SHMI_FN int shmi_fullest_row(shmsync_arena *a, uint64_t n, shmi_room in, uint64_t *head)
{
    uint64_t run = 0, i;
    int64_t backed = 0, most = 0;
    for (i = a->geo.chunk_count; i > 0; i--) {
        uint64_t w = shmi_load_chunk(a, i - 1);
        if (shmi_chunk_kind(w) != SHMI_chunkFree || !shmi_serves(a, in, i - 1)) {
            run = 0;
            backed = 0;
            continue;
        }
        backed += shmi_chunk_reserved(w) != 0;
        if (++run > n)
            backed -= shmi_chunk_reserved(shmi_load_chunk(a, i - 1 + n)) != 0;
        if (run >= n && backed > most) {
            *head = i - 1;
            most = backed;
        }
    }
    return most > 0;
}

SHMI_FN int shmi_try_claim_span(shmsync_arena *a, uint64_t size, shmi_room in, shmi_off *off)
{
    uint64_t n = size / SHMI_chunkSize + (size % SHMI_chunkSize != 0), head = 0;
    int failed = 0, tries;
    *off = 0;
    if (n > a->geo.chunk_count || n == 0)
        return shmi_no_space(a, size, in);
    for (tries = 0; tries < SHMI_claimTries; tries++) {
        uint64_t top = __atomic_load_n(&a->heap_top, __ATOMIC_RELAXED);
        int busy = 0, err;
        if (top > a->geo.chunk_count)
            top = a->geo.chunk_count;
        err = shmi_span_below(a, top, n, in, off, &busy);
        if (*off == 0 && err == 0)
            err = shmi_span_below(a, a->geo.chunk_count, n, in, off, &busy);
        if (err == ENOSPC) {
            /* There was no memory for a row of chunks. Try the row that needs the least memory. If there is no memory
             * for that row either, there is none for any other row. */
            failed = err;
            if (shmi_fullest_row(a, n, in, &head))
                err = shmi_take_span(a, head, n, off, &busy);
        }
        if (*off != 0)
            return 0;
        if (err != 0 && err != ENOSPC)
            return err;
        if (shmi_sweep(a, a->geo.chunk_count, in) > 0)
            continue;
        if (!busy)
            break;
        sched_yield();
    }
    return failed != 0 ? failed : shmi_no_space(a, size, in);
}
/* Claims as many whole chunks as size bytes need, zeroed. The parameter in is the room of the chunks: SHMI_roomOfAll or
 * SHMI_roomOfLinked. If there is no space, the function frees blocks that this process could not free earlier because a
 * peer guarded them. Then it tries again. */
SHMI_FN int shmi_claim_span(shmsync_arena *a, uint64_t size, shmi_room in, shmi_off *off)
{
    int err = shmi_try_claim_span(a, size, in, off);
    return err == ENOSPC && shmi_flush_deferred(a) ? shmi_try_claim_span(a, size, in, off) : err;
}

/* Frees the chunks of a span, the head last. Until then the block word of the span, claimed or freeing, keeps other
 * participants away from the span. */
SHMI_FN void shmi_dismantle(shmsync_arena *a, uint64_t head)
{
    uint64_t w = shmi_load_chunk(a, head), i, tail, top;
    if (shmi_chunk_kind(w) != SHMI_chunkHead || !shmi_chunk_legal(w, head, a->geo.chunk_count))
        return;
    tail = shmi_make_chunk(SHMI_chunkTail, head, 0);
    for (i = head + 1; i < head + shmi_chunk_number(w); i++) {
        uint64_t t = shmi_load_chunk(a, i);
        if (t == tail)
            shmi_swap_chunk(a, i, t, shmi_chunk_freed(t));
        SHMSYNC_CRASHPOINT("arena.span.dismantling");
    }
    shmi_swap_chunk(a, head, w, shmi_chunk_freed(w));
    top = __atomic_load_n(&a->heap_top, __ATOMIC_RELAXED);
    if (top < head + shmi_chunk_number(w))
        __atomic_store_n(&a->heap_top, head + shmi_chunk_number(w), __ATOMIC_RELAXED);
    shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), head);
}

/* Claims a block of the class in a room for this process, zeroed. */
SHMI_FN int shmi_claim_zeroed(shmsync_arena *a, int cls, shmi_room in, shmi_off *off)
{
    int err = shmi_claim_block(a, cls, in, off);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("arena.alloc.claimed");
    memset(shmi_bytes(a, *off, shmi_class_size[cls]), 0, shmi_class_size[cls]);
    return 0;
}
/* The smallest class of blocks of at least size bytes with the given alignment, a power of two up to 4096, or
 * SHMI_classNode if there is none. */
SHMI_FN int shmi_class_for(uint64_t size, uint64_t align)
{
    int cls = 0;
    while (cls < SHMI_classNode && (size > shmi_class_size[cls] || shmi_class_size[cls] % align != 0))
        cls++;
    return cls;
}
/* Claims a block of at least size bytes for this process, zeroed. No other process learns of the block before
 * shmi_publish. If this process dies first, a reaper frees the block. The block does not lie in the headroom. */
SHMI_FN int shmi_claim_aligned(shmsync_arena *a, uint64_t size, uint64_t align, shmi_off *off)
{
    int cls = shmi_class_for(size, align);
    return cls < SHMI_classNode ? shmi_claim_zeroed(a, cls, SHMI_roomOfAll, off) : shmi_claim_span(a, size, SHMI_roomOfAll, off);
}
SHMI_FN int shmi_claim(shmsync_arena *a, uint64_t size, shmi_off *off) { return shmi_claim_aligned(a, size, 1, off); }

/* Changes a block that this process has claimed to its final kind: raw, object or node. */
SHMI_FN int shmi_publish(shmsync_arena *a, shmi_off off, uint32_t kind)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_make_block(kind, 0)))
        return shmi_meddled(a, off);
    return 0;
}

/* Frees a block or span whose word is w. The word says claimed or freeing, by this process or by a dead participant
 * whose reaper this process is. */
SHMI_FN void shmi_release(shmsync_arena *a, const shmi_block *b, uint32_t w)
{
    if (b->class_ < 0)
        shmi_dismantle(a, b->chunk);
    shmi_block_swap(b, w, SHMI_blockFree);
    if (b->class_ >= 0)
        __atomic_store_n(&a->heap_next[b->class_], b->chunk * SHMI_blockWords + b->index, __ATOMIC_RELAXED);
}
SHMI_FN void shmi_unclaim(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    if (shmi_locate(a, off, &b))
        shmi_release(a, &b, shmi_make_block(SHMI_blockClaimed, a->self));
}

/* Returns the address of size bytes at an offset that may have come from a peer, or NULL if the bytes do not lie
 * within one block that is in use. */
SHMI_FN void *shmi_try_at(shmsync_arena *a, shmi_off off, uint64_t size, uint64_t align)
{
    shmi_block b;
    uint32_t kind;
    if (!shmi_within(a, off, size, align) || !shmi_holding(a, off, &b))
        return NULL;
    kind = shmi_block_kind(shmi_ld32(b.word));
    if (kind != SHMI_blockRaw && kind != SHMI_blockObject && kind != SHMI_blockFreeing && kind != SHMI_blockLogged)
        return NULL;
    if (size > b.size - (off - b.off))
        return NULL;
    return a->base + off;
}

/* The block that word k of chunk i stands for. */
SHMI_FN int shmi_block_of_word(shmsync_arena *a, uint64_t i, uint64_t k, shmi_block *b)
{
    uint64_t w = shmi_load_chunk(a, i);
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 0;
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        if (k != 0)
            return 0;
        *b = shmi_span_at(a, i, shmi_chunk_number(w));
        return 1;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping:
        if (k >= shmi_blocks_of((int)shmi_chunk_number(w)))
            return 0;
        *b = shmi_block_in(a, i, k, (int)shmi_chunk_number(w));
        return 1;
    }
    return 0;
}

/* Takes back what the participant dead had claimed, was freeing, or was sweeping when it died: blocks, chunks, slabs,
 * and names in the directory. The caller is the reaper of the slot. If the call is cut short, another reaper may repeat
 * it. */
SHMI_FN void shmi_reclaim_blocks(shmsync_arena *a, shmi_participant_id dead)
{
    uint64_t i, k;
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    shmi_resolve_entries(a, dead);
    for (i = 0; shmi_next_touched(a, shmi_id_slot(dead), &i); i++) {
        uint64_t w = shmi_load_chunk(a, i);
        if (shmi_chunk_reserved(w)) {
            if (shmi_chunk_kind(w) == SHMI_chunkSweeping && shmi_chunk_name(w) == dead) {
                shmi_unblock(a, i, dead);
                shmi_swap_chunk(a, i, w, shmi_make_chunk(SHMI_chunkSlab, shmi_chunk_number(w), 0));
            }
            shmi_worked(a, SHMI_blockWords);
            for (k = 0; k < SHMI_blockWords; k++) {
                uint32_t *word = shmi_block_word(a, i, k), bw = shmi_ld32(word);
                shmi_block b;
                if (shmi_block_kind(bw) == SHMI_blockObject) {
                    if (shmi_block_of_word(a, i, k, &b))
                        shmi_resolve_delete(a, &b, dead);
                } else if (bw != 0 && shmi_block_name(bw) == dead && shmi_block_kind(bw) != SHMI_blockLogged) { /* left to the rollback */
                    if (!shmi_block_of_word(a, i, k, &b)) {
                        shmi_cas32(word, bw, SHMI_blockFree);
                    } else if (b.class_ == SHMI_classNode) {
                        shmi_reset_node(a, b.off);
                        shmi_release(a, &b, bw);
                    } else if (shmi_block_kind(bw) != SHMI_blockClaimed || (!shmi_keep_record(a, &b, bw) && shmi_ld32(word) == bw)) {
                        /* If the word has changed, the block was a slot record or a block of an object. The process
                         * that deletes the object has published it, so it may have been freed and used again. */
                        shmi_release_unseen(a, &b, bw);
                    }
                }
            }
        }
        w = shmi_load_chunk(a, i); /* the chunk is freed after its block words */
        if (shmi_chunk_kind(w) == SHMI_chunkClaimed && shmi_chunk_name(w) == dead)
            shmi_swap_chunk(a, i, w, shmi_chunk_freed(w));
    }
    pthread_mutex_unlock(&a->handles);
}

/* Calls f for each block or span of chunk i whose word has the given kind, until f returns 0. */
SHMI_FN int shmi_each_block_of(shmsync_arena *a, uint64_t i, uint32_t kind, int (*f)(shmsync_arena *a, shmi_off off, void *arg), void *arg)
{
    uint64_t w = shmi_load_chunk(a, i), n = 0, size = 0, k;
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 1;
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        n = 1;
        break;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping:
        n = shmi_blocks_of((int)shmi_chunk_number(w));
        size = shmi_class_size[shmi_chunk_number(w)];
        break;
    }
    shmi_worked(a, n);
    for (k = 0; k < n; k++)
        if (shmi_block_kind(shmi_ld32(shmi_block_word(a, i, k))) == kind && !f(a, shmi_chunk_off(a, i) + k * size, arg))
            return 0;
    return 1;
}
/* Calls f for each block or span of the given kind, until f returns 0. If slot is not 0, only those chunks count that
 * the participant in the slot may have touched. */
SHMI_FN void shmi_each_block(shmsync_arena *a, uint32_t slot, uint32_t kind, int (*f)(shmsync_arena *a, shmi_off off, void *arg), void *arg)
{
    uint64_t i;
    for (i = 0; slot != 0 ? shmi_next_touched(a, slot, &i) : i < a->geo.chunk_count; i++)
        if (!shmi_each_block_of(a, i, kind, f, arg))
            return;
}
