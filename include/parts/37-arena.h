/* ---- The header of an arena ---- */

SHMI_FN shmi_geometry shmi_plan(uint64_t size, uint32_t slots)
{
    shmi_geometry g;
    uint64_t most = size / SHMI_chunkSize;
    memset(&g, 0, sizeof g);
    g.size = size;
    g.slots = slots;
    g.slots_off = SHMI_headerSize;
    g.death_record_off = g.slots_off + (uint64_t)slots * SHMI_slotStride;
    g.dir_off = (g.death_record_off + SHMI_deathRecordCount * SHMI_deathRecordStride + 4095) & ~UINT64_C(4095);
    for (g.dir_count = 64; g.dir_count * 512 < size; g.dir_count *= 2) {
    }
    g.chunks_off = g.dir_off + g.dir_count * 8;
    g.blocks_off = (g.chunks_off + most * 8 + 4095) & ~UINT64_C(4095);
    g.heap_off = (g.blocks_off + most * SHMI_chunkWordsSize + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1);
    if (g.heap_off < size)
        g.chunk_count = (size - g.heap_off) / SHMI_chunkSize;
    shmi_plan_headroom(&g);
    return g;
}

SHMI_FN uint32_t shmi_hdr_get32(const unsigned char *h, unsigned off)
{
    uint32_t v;
    memcpy(&v, h + off, sizeof v);
    return v;
}
SHMI_FN uint64_t shmi_hdr_get64(const unsigned char *h, unsigned off)
{
    uint64_t v;
    memcpy(&v, h + off, sizeof v);
    return v;
}
SHMI_FN void shmi_hdr_set32(unsigned char *h, unsigned off, uint32_t v) { memcpy(h + off, &v, sizeof v); }
SHMI_FN void shmi_hdr_set64(unsigned char *h, unsigned off, uint64_t v) { memcpy(h + off, &v, sizeof v); }

/* Checks the header of a segment before any other byte is used. h is a copy that was read from the file once: a peer
 * may change the bytes of the file, and a read of a hole through the mapping would allocate memory. */
SHMI_FN int shmi_validate(const unsigned char *h, size_t n, uint64_t length, const char *name, shmi_geometry *geo)
{
    const char *op = "arena.open";
    uint32_t slots;
    shmi_geometry g;
    if (n < SHMI_headerSize)
        return shmi_fail(EINVAL, op, name, "not an arena: %zu bytes are too few for a header", n);
    if (memcmp(h + SHMI_hdrMagic, SHMI_magic, 8) != 0)
        return shmi_fail(EINVAL, op, name, "not an arena: no magic number");
    if (shmi_hdr_get32(h, SHMI_hdrOrder) != SHMI_orderMark)
        return shmi_fail(EINVAL, op, name, "written in another byte order (mark %#x)", shmi_hdr_get32(h, SHMI_hdrOrder));
    if (shmi_hdr_get32(h, SHMI_hdrVersion) != SHMI_LayoutVersion)
        return shmi_fail(EPROTONOSUPPORT, op, name, "its layout is version %u, this program knows version %u", shmi_hdr_get32(h, SHMI_hdrVersion), (unsigned)SHMI_LayoutVersion);
    if (shmi_hdr_get32(h, SHMI_hdrWord) != SHMI_wordBytes)
        return shmi_fail(EPROTONOSUPPORT, op, name, "made for machine words of %u bytes, this program has %u", shmi_hdr_get32(h, SHMI_hdrWord), (unsigned)SHMI_wordBytes);
    if ((shmi_hdr_get64(h, SHMI_hdrIncompat) & ~(uint64_t)SHMI_knownIncompat) != 0)
        return shmi_fail(EPROTONOSUPPORT, op, name, "it needs features that this program does not know (%#llx)", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrIncompat));
    if ((shmi_hdr_get64(h, SHMI_hdrROCompat) & ~(uint64_t)SHMI_knownROCompat) != 0)
        return shmi_fail(EPROTONOSUPPORT, op, name, "it needs features that this program does not know to write it (%#llx)", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrROCompat));
    if (shmi_hdr_get64(h, SHMI_hdrChecksum) != shmi_fnv(h, SHMI_hdrChecksum))
        return shmi_fail(EPROTO, op, name, "the checksum of its header is wrong");
    slots = shmi_hdr_get32(h, SHMI_hdrSlots);
    if (shmi_hdr_get64(h, SHMI_hdrSize) != length)
        return shmi_fail(EPROTO, op, name, "it was made %llu bytes long and is %llu", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrSize), (unsigned long long)length);
    if (slots == 0 || slots > SHMI_MaxSlots)
        return shmi_fail(EPROTO, op, name, "it claims %u participants", slots);
    /* The layout follows from the size and the number of participants. A header that says otherwise is forged. */
    g = shmi_plan(length, slots);
    if (g.chunk_count == 0 || shmi_hdr_get64(h, SHMI_hdrSlotsOff) != g.slots_off || shmi_hdr_get64(h, SHMI_hdrDeathRecordOff) != g.death_record_off ||
        shmi_hdr_get64(h, SHMI_hdrDirOff) != g.dir_off || shmi_hdr_get64(h, SHMI_hdrDirCount) != g.dir_count ||
        shmi_hdr_get64(h, SHMI_hdrChunksOff) != g.chunks_off || shmi_hdr_get64(h, SHMI_hdrBlocksOff) != g.blocks_off ||
        shmi_hdr_get64(h, SHMI_hdrHeapOff) != g.heap_off || shmi_hdr_get64(h, SHMI_hdrChunkCount) != g.chunk_count ||
        shmi_hdr_get32(h, SHMI_hdrHeaderSize) != SHMI_headerSize || shmi_hdr_get32(h, SHMI_hdrSlotStride) != SHMI_slotStride ||
        shmi_hdr_get32(h, SHMI_hdrDeathRecordCount) != SHMI_deathRecordCount || shmi_hdr_get32(h, SHMI_hdrDeathRecordStride) != SHMI_deathRecordStride ||
        shmi_hdr_get32(h, SHMI_hdrChunkSize) != SHMI_chunkSize || shmi_hdr_get32(h, SHMI_hdrBlockWords) != SHMI_blockWords)
        return shmi_fail(EPROTO, op, name, "its regions do not lie where a layout of version %u puts them", (unsigned)SHMI_LayoutVersion);
    g.counted = (shmi_hdr_get64(h, SHMI_hdrCompat) & SHMI_compatCounted) != 0;
    *geo = g;
    return 0;
}

/* Writes the header of a new arena. No other process can reach the bytes yet. */
SHMI_FN void shmi_write_header(unsigned char *b, const shmi_geometry *g)
{
    memcpy(b + SHMI_hdrMagic, SHMI_magic, 8);
    shmi_hdr_set32(b, SHMI_hdrOrder, SHMI_orderMark);
    shmi_hdr_set32(b, SHMI_hdrVersion, SHMI_LayoutVersion);
    shmi_hdr_set32(b, SHMI_hdrWord, SHMI_wordBytes);
    shmi_hdr_set32(b, SHMI_hdrHeaderSize, SHMI_headerSize);
    shmi_hdr_set64(b, SHMI_hdrCompat, 0);
    shmi_hdr_set64(b, SHMI_hdrROCompat, SHMI_knownROCompat);
    shmi_hdr_set64(b, SHMI_hdrIncompat, SHMI_knownIncompat);
    shmi_hdr_set64(b, SHMI_hdrSize, g->size);
    if (syscall(SYS_getrandom, b + SHMI_hdrID, (size_t)16, 0) != 16) {
        shmi_hdr_set64(b, SHMI_hdrID, (uint64_t)shmi_unix_now());
        shmi_hdr_set64(b, SHMI_hdrID + 8, (uint64_t)getpid() << 32 ^ (uint64_t)shmi_now());
    }
    shmi_hdr_set64(b, SHMI_hdrCreated, (uint64_t)shmi_unix_now());
    shmi_hdr_set32(b, SHMI_hdrSlots, g->slots);
    shmi_hdr_set32(b, SHMI_hdrSlotStride, SHMI_slotStride);
    shmi_hdr_set64(b, SHMI_hdrSlotsOff, g->slots_off);
    shmi_hdr_set64(b, SHMI_hdrDeathRecordOff, g->death_record_off);
    shmi_hdr_set32(b, SHMI_hdrDeathRecordCount, SHMI_deathRecordCount);
    shmi_hdr_set32(b, SHMI_hdrDeathRecordStride, SHMI_deathRecordStride);
    shmi_hdr_set64(b, SHMI_hdrDirOff, g->dir_off);
    shmi_hdr_set64(b, SHMI_hdrDirCount, g->dir_count);
    shmi_hdr_set64(b, SHMI_hdrChunksOff, g->chunks_off);
    shmi_hdr_set64(b, SHMI_hdrBlocksOff, g->blocks_off);
    shmi_hdr_set64(b, SHMI_hdrHeapOff, g->heap_off);
    shmi_hdr_set32(b, SHMI_hdrChunkSize, SHMI_chunkSize);
    shmi_hdr_set32(b, SHMI_hdrBlockWords, SHMI_blockWords);
    shmi_hdr_set64(b, SHMI_hdrChunkCount, g->chunk_count);
    shmi_hdr_set64(b, SHMI_hdrChecksum, shmi_fnv(b, SHMI_hdrChecksum));
}

/* ---- Files ---- */

/* The file of an arena that this process is opening or making. */
typedef struct shmi_segment {
    int fd;
    unsigned char *base;
    uint64_t size, dev, ino;
    int created;
    int joined; /* the arena is the one that was asked for, so a later error is no reason to replace its file */
    int failed; /* a descriptor of the file, if shmi_attach failed for an ephemeral arena that this call has created; or -1 */
} shmi_segment;

SHMI_FN int shmi_path(const char *name, char *path, size_t cap)
{
    size_t n = name != NULL ? strlen(name) : 0, i;
    if (n > 0 && strchr(name, '/') != NULL) {
        if (n >= cap || name[n - 1] == '/')
            return shmi_fail(EINVAL, "arena.open", name, "not a path for an arena");
        memcpy(path, name, n + 1);
        return 0;
    }
    if (n == 0)
        return shmi_fail(EINVAL, "arena.open", name, "the name is %s", name == NULL ? "NULL" : "empty");
    if (n > 200)
        return shmi_fail(EINVAL, "arena.open", name, "the name is %zu bytes long, more than 200", n);
    if (strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return shmi_fail(EINVAL, "arena.open", name, "the name is that of a directory");
    for (i = 0; i < n; i++) {
        char c = name[i], shown[8];
        if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-')
            continue;
        snprintf(shown, sizeof shown, c >= ' ' && c <= '~' ? "'%c'" : "0x%02x", (unsigned char)c);
        return shmi_fail(EINVAL, "arena.open", name, "the name has byte %s at %zu; only letters, digits, '.', '_' and '-' are allowed; a path has a '/'", shown, i);
    }
    snprintf(path, cap, "/dev/shm/%s", name);
    return 0;
}
/* Sets *path to the path for the name of an arena. The caller frees it, also after an error. */
SHMI_FN int shmi_new_path(const char *name, char **path)
{
    *path = (char *)malloc(PATH_MAX); /* too large for a small stack */
    return *path != NULL ? shmi_path(name, *path, PATH_MAX) : shmi_fail(ENOMEM, "arena.open", name, "%s", "");
}

static int64_t shmi_known_overflow_uid; /* 1 plus the overflow uid; 0: not read yet. atomic */
/* The uid as which a user namespace shows users that it does not map. Without /proc, returns the usual value of this
 * uid. Returns -1 with errno if this process has too few descriptors or too little memory to read it. */
SHMI_FN int64_t shmi_overflow_uid(void)
{
    const int64_t usual = 65534;
    char b[16], *end;
    ssize_t n;
    int64_t uid = __atomic_load_n(&shmi_known_overflow_uid, __ATOMIC_RELAXED);
    if (uid != 0)
        return uid - 1;
    n = shmi_read_file("/proc/sys/kernel/overflowuid", b, sizeof b);
    if (n <= 0)
        return n < 0 && shmi_is_shortage(errno) ? -1 : usual;
    uid = (int64_t)strtoul(b, &end, 10);
    if (end == b)
        return usual;
    __atomic_store_n(&shmi_known_overflow_uid, uid + 1, __ATOMIC_RELAXED);
    return uid;
}
/* Whether the file of fd belongs to the effective user of this process. If this user has the overflow uid, fstat does
 * not show whether the file belongs to another user. So the function asks the kernel to set O_NOATIME: see owns in
 * shm/open_linux.go. Returns -1 with errno if a shortage prevents the answer. */
SHMI_FN int shmi_owns(int fd, uid_t uid)
{
    int64_t overflow;
    int flags, owned;
    if (uid != geteuid() || uid == 0)
        return uid == geteuid();
    overflow = shmi_overflow_uid();
    if (overflow < 0)
        return -1;
    if ((int64_t)uid != overflow)
        return 1;
    flags = fcntl(fd, F_GETFL);
    if (flags < 0 || fcntl(fd, F_SETFL, flags & ~SHMI_NOATIME) != 0)
        return 0;
    owned = fcntl(fd, F_SETFL, flags | SHMI_NOATIME) == 0;
    if (owned)
        fcntl(fd, F_SETFL, flags);
    return owned;
}

/* Checks the file behind s->fd and maps it. */
SHMI_FN int shmi_map(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    struct stat st;
    size_t i;
    int trusted;
    void *p;
    if (fstat(s->fd, &st) != 0)
        return shmi_fail(errno, "arena.open", path, "stat");
    if (!S_ISREG(st.st_mode))
        return shmi_fail(EINVAL, "arena.open", path, "is not a regular file");
    trusted = st.st_uid == 0;
    for (i = 0; o != NULL && i < o->n_trust_uids; i++)
        trusted = trusted || o->trust_uids[i] == st.st_uid;
    if (!trusted)
        trusted = shmi_owns(s->fd, st.st_uid);
    if (trusted < 0)
        return shmi_fail(errno, "arena.open", path, "it is not known whether this process owns the file");
    if (!trusted)
        return shmi_fail(EPERM, "arena.open", path, st.st_uid == geteuid() ? "is owned by a user that this user namespace does not map, and whom it shows as uid %u" : "is owned by uid %u, which is not this process's, root or a trusted one", (unsigned)st.st_uid);
    if (st.st_size <= 0 || st.st_size % sysconf(_SC_PAGESIZE) != 0)
        return shmi_fail(EINVAL, "arena.open", path, "is %lld bytes long, not a multiple of the page size", (long long)st.st_size);
    p = shmi_map_sparsely((size_t)st.st_size, s->fd);
    if (p == MAP_FAILED && errno == ENOMEM)
        return shmi_fail(ENOMEM, "arena.open", path, "could not map %lld bytes of address space (see RLIMIT_AS and vm.max_map_count)", (long long)st.st_size);
    if (p == MAP_FAILED && errno == EAGAIN)
        return shmi_fail(EAGAIN, "arena.open", path, "could not lock %lld bytes of memory, as this process locks all (see RLIMIT_MEMLOCK)", (long long)st.st_size);
    if (p == MAP_FAILED)
        return shmi_fail(errno, "arena.open", path, "mmap");
    s->base = (unsigned char *)p;
    s->size = (uint64_t)st.st_size;
    s->dev = (uint64_t)st.st_dev;
    s->ino = (uint64_t)st.st_ino;
    return 0;
}

SHMI_FN void shmi_unmap(shmi_segment *s)
{
    if (s->base != NULL)
        munmap(s->base, (size_t)s->size);
    if (s->fd >= 0)
        close(s->fd);
    s->base = NULL;
    s->fd = -1;
}

/* Returns the smallest size of an arena for a number of participants. */
SHMI_COLD uint64_t shmi_least_size(uint32_t slots)
{
    uint64_t size = SHMI_chunkSize;
    while (shmi_plan(size, slots).chunk_count == 0)
        size += SHMI_chunkSize;
    return size;
}
/* Sizes, formats and maps s->fd, an empty file that no other process can reach. */
SHMI_FN int shmi_format(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    uint64_t size = o != NULL && o->size != 0 ? o->size : UINT64_C(64) << 20;
    uint32_t slots = o != NULL && o->max_participants != 0 ? o->max_participants : 128;
    struct rlimit limit;
    shmi_geometry g;
    int err;
    if (slots > SHMI_MaxSlots || size > UINT64_C(1) << 47)
        return shmi_fail(EINVAL, "arena.create", path, "%u participants in %llu bytes; at most 2047 in 2^47", slots, (unsigned long long)size);
    size = (size + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1);
    g = shmi_plan(size, slots);
    if (g.chunk_count == 0)
        return shmi_fail(ENOSPC, "arena.create", path, "%llu bytes are too few for %u participants; %llu are needed", (unsigned long long)size, slots, (unsigned long long)shmi_least_size(slots));
    /* If the size exceeds the limit, the kernel sends SIGXFSZ, which kills the process. So the limit is read first. */
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && size > limit.rlim_cur)
        return shmi_fail(EFBIG, "arena.create", path, "%llu bytes are more than RLIMIT_FSIZE permits, which is %llu", (unsigned long long)size, (unsigned long long)limit.rlim_cur);
    while (ftruncate(s->fd, (off_t)size) != 0)
        if (errno != EINTR)
            return shmi_fail(errno, "arena.create", path, errno == EFBIG ? "the file system permits no file of this size" : "ftruncate");
    err = shmi_map(s, path, o);
    if (err != 0)
        return err;
    if (shmi_allocate(s->fd, 0, g.blocks_off) != 0)
        return shmi_fail(shmi_space_errno(errno), "arena.create", path, "could not reserve %llu bytes", (unsigned long long)g.blocks_off);
    shmi_write_header(s->base, &g);
    if (fchmod(s->fd, o != NULL && o->mode != 0 ? (mode_t)o->mode : 0600) != 0)
        return shmi_fail(errno, "arena.create", path, "mode");
    s->created = 1;
    return 0;
}

SHMI_FN int shmi_same_file(int f, int g)
{
    struct stat x, y;
    return fstat(f, &x) == 0 && fstat(g, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
SHMI_FN int shmi_same_entry(int fd, int dirfd_, const char *name, int flags)
{
    struct stat x, y;
    return fstat(fd, &x) == 0 && fstatat(dirfd_, name, &y, flags) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Whether name has the form .NAME.PID.RANDOM.tmp~ of the names that shmi_create_temp makes. *base is the length of
 * NAME. */
SHMI_FN int shmi_is_temp_name(const char *name, size_t *base)
{
    size_t n = strlen(name), at;
    if (n < 25 || name[0] != '.' || strcmp(name + n - 5, ".tmp~") != 0 || strspn(name + n - 21, "0123456789abcdef") != 16 || name[n - 22] != '.')
        return 0;
    for (at = n - 22; at > 1 && name[at - 1] >= '0' && name[at - 1] <= '9'; at--) {
    }
    if (at == n - 22 || at < 2 || name[at - 1] != '.')
        return 0;
    *base = at - 2;
    return 1;
}
/* Removes the temporary files that creators left when they died: see sweep in shm/temp_linux.go. */
SHMI_FN void shmi_sweep_temp(const char *dir, int dirfd_)
{
    DIR *d = opendir(dir);
    struct dirent *e;
    while (d != NULL && (e = readdir(d)) != NULL) {
        char base[300];
        struct stat st;
        size_t n;
        int fd;
        if (!shmi_is_temp_name(e->d_name, &n))
            continue;
        fd = openat(dirfd_, e->d_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        snprintf(base, sizeof base, "%.*s", (int)n, e->d_name + 1);
        /* If the file is also at the path for which it was made, its creator died between the two steps of the
         * publication. Then only the temporary name is removed, and the arena stays. */
        if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == geteuid() &&
            ((st.st_nlink > 1 && shmi_same_entry(fd, dirfd_, base, AT_SYMLINK_NOFOLLOW)) || flock(fd, LOCK_EX | LOCK_NB) == 0) &&
            shmi_same_entry(fd, dirfd_, e->d_name, AT_SYMLINK_NOFOLLOW))
            unlinkat(dirfd_, e->d_name, 0);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
}

/* Makes the arena under a temporary name. The file stays locked until the arena is renamed. */
SHMI_FN int shmi_create_temp(shmi_segment *s, const char *path, int dirfd_, const char *base, const shmsync_arena_options *o)
{
    char temp[300];
    int tries, err = EAGAIN;
    for (tries = 0; tries < 256; tries++) {
        uint64_t r = 0;
        if (syscall(SYS_getrandom, &r, sizeof r, 0) != (long)sizeof r)
            r = (uint64_t)shmi_now() * UINT64_C(6364136223846793005) + (uint64_t)tries;
        snprintf(temp, sizeof temp, ".%.200s.%d.%016llx.tmp~", base, (int)getpid(), (unsigned long long)r);
        s->fd = openat(dirfd_, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (s->fd < 0) {
            if (errno == EEXIST || errno == EINTR)
                continue;
            return shmi_fail(shmi_quota_errno(errno), "arena.create", path, "temporary file");
        }
        err = flock(s->fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        if (err == 0 && shmi_same_entry(s->fd, dirfd_, temp, AT_SYMLINK_NOFOLLOW))
            break;
        err = err == 0 || err == EWOULDBLOCK || err == EINTR ? EAGAIN : err;
        unlinkat(dirfd_, temp, 0); /* another process took the file for a leftover, before this process had locked it */
        close(s->fd);
        s->fd = -1;
        if (err != EAGAIN)
            break;
    }
    if (err != 0)
        return shmi_fail(err, "arena.create", path, "temporary file");
    err = shmi_format(s, path, o);
    if (err == 0 && syscall(SYS_renameat2, dirfd_, temp, dirfd_, base, 1u) != 0) { /* RENAME_NOREPLACE */
        err = errno;
        if (err == ENOSYS || err == EINVAL || err == ENOTSUP) {
            err = linkat(dirfd_, temp, dirfd_, base, 0) == 0 ? 0 : errno;
            unlinkat(dirfd_, temp, 0);
        }
    }
    if (err != 0)
        unlinkat(dirfd_, temp, 0);
    else
        flock(s->fd, LOCK_UN);
    return err;
}

/* Makes a new arena at path. No other process can open the arena before it is complete and has its name. EEXIST: the
 * path is taken. */
SHMI_FN int shmi_create(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    char self[64];
    const char *slash = strrchr(path, '/'), *base = slash + 1;
    size_t n = (size_t)(slash - path);
    char *dir = strndup(path, n == 0 ? 1 : n); /* too large for a small stack */
    int dirfd_, err;
    if (dir == NULL)
        return shmi_fail(ENOMEM, "arena.create", path, "%s", "");
    dirfd_ = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd_ < 0) {
        err = shmi_fail(errno, "arena.create", path, "open directory");
        free(dir);
        return err;
    }
    err = ENOTSUP;
    s->fd = shmi_has(&shmi_have.otmpfile) ? openat(dirfd_, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (s->fd >= 0) {
        snprintf(self, sizeof self, "/proc/thread-self/fd/%d", s->fd);
        if (shmi_same_entry(s->fd, AT_FDCWD, self, 0)) {
            err = shmi_format(s, path, o);
            if (err == 0 && linkat(AT_FDCWD, self, dirfd_, base, AT_SYMLINK_FOLLOW) != 0)
                err = errno == ENOENT || errno == EXDEV || errno == EPERM || errno == ENOSYS ? ENOTSUP : shmi_quota_errno(errno);
        }
        if (err != 0)
            shmi_unmap(s);
    }
    if (err == ENOTSUP) {
        shmi_sweep_temp(dir, dirfd_);
        err = shmi_create_temp(s, path, dirfd_, base, o);
    }
    close(dirfd_);
    free(dir);
    if (err != 0) {
        shmi_unmap(s);
        s->created = 0;
    }
    return err;
}

/* Fails because the file must not be opened, and says whose file it is. */
SHMI_FN int shmi_denied(const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return shmi_fail(EACCES, "arena.open", path, "%s", "");
    return shmi_fail(EACCES, "arena.open", path, "uid %u may not read and write this file of uid %u and gid %u with mode %04o", (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)st.st_gid, (unsigned)st.st_mode & 07777u);
}

SHMI_FN int shmi_only_create(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    int err = shmi_create(s, path, o);
    if (err != 0 && shmi_last.err == 0)
        shmi_fail(err, "arena.create", path, "%s", "");
    return err;
}

SHMI_FN int shmi_open_segment(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        int err;
        s->created = s->joined = 0;
        s->failed = -1;
        s->base = NULL;
        if (o != NULL && (o->flags & SHMSYNC_CREATE_ONLY) != 0)
            return shmi_only_create(s, path, o);
        s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (s->fd >= 0) {
            fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) & ~O_NONBLOCK);
            err = shmi_map(s, path, o);
            if (err != 0)
                shmi_unmap(s);
            return err;
        }
        if (errno == EINTR)
            continue;
        if (errno == ELOOP || errno == EISDIR || errno == ENXIO || errno == ENODEV)
            return shmi_fail(EINVAL, "arena.open", path, "is not a regular file");
        if (errno == EACCES)
            return shmi_denied(path);
        if (errno != ENOENT || (o != NULL && (o->attach_only || (o->flags & SHMSYNC_OPEN_EXISTING) != 0)))
            return shmi_fail(errno, "arena.open", path, "%s", "");
        err = shmi_only_create(s, path, o);
        if (err == EEXIST)
            continue;
        return err;
    }
    return shmi_fail(EAGAIN, "arena.open", path, "the file keeps appearing and disappearing");
}

/* ---- Joining ---- */

/* Guards the list of the arenas of this process. An arena is on this list as long as it has a byte lock. A fork takes
 * this mutex, so a thread that holds the mutex must not wait for another process, or for the end of a call. */
static pthread_mutex_t shmi_attached_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shmi_attached_changed = PTHREAD_COND_INITIALIZER; /* signaled when an arena is no longer SHMI_opening */
static shmsync_arena *shmi_attached; /* guarded by: shmi_attached_lock */
static struct shmi_closer *shmi_closers; /* closes that wait for threads; guarded by: shmi_attached_lock */
static pthread_once_t shmi_atfork_once = PTHREAD_ONCE_INIT;
static int shmi_registering; /* a thread is about to register this process for membarrier; guarded by: shmi_attached_lock */

enum {
    SHMI_opening,  /* one thread joins the arena; other threads that open the same file wait for it */
    SHMI_attached,
    SHMI_closing   /* one thread leaves the arena; another thread that opens the file now makes this process a new participant */
};

/* A child of fork is no participant. The kernel wipes the page with the participant ID in the child. These fork
 * handlers close the descriptor with the byte lock in the child: otherwise the child would keep the lock after the
 * death of the parent, and the parent would seem to be alive. */
SHMI_FN void shmi_before_fork(void)
{
    pthread_mutex_lock(&shmi_attached_lock);
    pthread_mutex_lock(&shmi_spares_lock);
}
SHMI_FN void shmi_after_fork(void)
{
    pthread_mutex_unlock(&shmi_spares_lock);
    pthread_mutex_unlock(&shmi_attached_lock);
}
SHMI_FN void shmi_in_child(void)
{
    shmsync_arena *a;
    for (a = shmi_attached; a != NULL; a = a->next) {
        if (a->me != NULL)
            __atomic_store_n(&a->me->name, 0, __ATOMIC_RELAXED);
        shmi_close_file(a->lock_fd, a->dev, a->ino);
    }
    shmi_attached = NULL;
    shmi_closers = NULL;
    shmi_have.registered = 0;
    shmi_registering = 0; /* the thread does not exist in the child */
    shmi_register_failed = 0;
    shmi_forget_threads();
    pthread_cond_init(&shmi_attached_changed, NULL); /* the threads that wait on it do not exist in the child */
    shmi_after_fork();
    shmi_restore_child();
}
/* Wakes the death watchers of this process. */
SHMI_FN void shmi_ring_watchers(void)
{
    shmsync_arena *a;
    pthread_mutex_lock(&shmi_attached_lock);
    for (a = shmi_attached; a != NULL; a = a->next)
        if (a->stage == SHMI_attached)
            shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    pthread_mutex_unlock(&shmi_attached_lock);
}
SHMI_FN void shmi_watch_forks(void) { pthread_atfork(shmi_before_fork, shmi_after_fork, shmi_in_child); }
/* Registers the fork handlers before main, or in dlopen, and before the constructors of the program that have no
 * priority. A fork runs prepare handlers in the reverse order of their registration, and the other handlers in the
 * order of their registration. So while a handler runs that the program registers later, the thread holds no lock of
 * the library. */
__attribute__((constructor(101))) static void shmi_watch_forks_early(void) { pthread_once(&shmi_atfork_once, shmi_watch_forks); }

/* Takes the byte lock of slot i, if byte locks are available. If the kernel refuses the lock although no process has
 * it, the errno is stored in a->lock_errno. */
SHMI_FN int shmi_lock_slot(shmsync_arena *a, uint32_t i)
{
    int err;
    if (a->lock_fd < 0)
        return 1;
    err = shmi_lock_byte(a->lock_fd, shmi_slot(a, i));
    if (err != 0) {
        if (err != EAGAIN)
            a->lock_errno = err;
        return 0;
    }
    /* A peer may have found the byte unlocked before this process locked it. This change keeps that peer from recording
     * that this joiner is gone: see foundGone in internal/arenakernel/gone.go. */
    shmi_add64(shmi_slot64(a, i, SHMI_slotGone), UINT64_C(1) << 32);
    SHMSYNC_CRASHPOINT("arena.enter.locked");
    return 1;
}
SHMI_FN void shmi_unlock_slot(shmsync_arena *a, uint32_t i)
{
    if (a->lock_fd >= 0)
        shmi_unlock_byte(a->lock_fd, shmi_slot(a, i));
}

/* Stores the present time in slotJoined. Returns 0 if slot i, in state joining, no longer belongs to this joiner. The
 * CAS fails only if another joiner of the slot has stored its time meanwhile. */
SHMI_FN int shmi_publish_joined(shmsync_arena *a, uint32_t i, uint32_t joining)
{
    uint64_t *word = shmi_slot64(a, i, SHMI_slotJoined), was;
    do {
        was = shmi_ld64(word);
        if (shmi_slot_state(a, i) != joining)
            return 0;
    } while (!shmi_cas64(word, was, (uint64_t)shmi_unix_now()));
    return 1;
}
/* Takes slot i for this joiner: changes its state from w, which is free or dead, to joining, with the generation that
 * the parameter next contains. raw is the window of this generation. Returns 0 if the state is no longer w, or if the
 * slot has another window. */
SHMI_FN int shmi_take_slot_at(shmsync_arena *a, uint32_t i, uint32_t w, uint32_t next, uint64_t raw)
{
    uint32_t joining = shmi_own_slot_word(a, SHMI_phaseJoining, next);
    uint32_t *reclaimed = shmi_slot32(a, i, SHMI_slotReclaimed);
    int enters = shmi_slot_phase(w) == SHMI_phaseFree && next != shmi_slot_gen(w) + 1;
    /* If enters is set, this joiner is the first participant in the window, and all earlier participants of the slot
     * are reaped. Their generations cannot be compared with those of this window, so slotReclaimed gets the generation
     * before next. The CAS fails if another participant has entered the window since the caller read w. */
    if (enters && !shmi_cas32(reclaimed, shmi_slot_gen(w), next - 1) && shmi_ld32(reclaimed) != next - 1)
        return 0;
    if (!shmi_cas_slot(a, i, w, joining))
        return 0;
    if (shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) != raw) {
        /* This process has no byte lock, and was stopped for long. Meanwhile the slot was used up and renewed, and came
         * to the state w again. */
        if (enters)
            shmi_cas32(reclaimed, next - 1, shmi_slot_gen(w));
        shmi_cas_slot(a, i, joining, w);
        return 0;
    }
    /* The time that is stored here tells watchers that two joiners with the same generation are different joiners. It
     * is stored before the capabilities: see shmi_given_up. */
    if (!shmi_publish_joined(a, i, joining) || !shmi_publish_caps(a, i, joining))
        return 0;
    SHMSYNC_CRASHPOINT("arena.enter.taken");
    if (a->lock_fd < 0 && !shmi_link_alive(a, i, joining))
        return 0;
    if (shmi_slot_phase(w) == SHMI_phaseFree) /* otherwise the words describe the dead participant until its death is recorded */
        shmi_describe_nobody(a, i);
    SHMSYNC_CRASHPOINT("arena.enter.joining");
    return 1;
}

/* Whether the joiner in slot i, in state w, has no byte lock and has been joining for so long that another joiner may
 * take the slot. Participants reap such a joiner, but perhaps the arena has no participant. */
SHMI_FN int shmi_given_up(shmsync_arena *a, uint32_t i, uint32_t w)
{
    int64_t age;
    if (shmi_slot_phase(w) != SHMI_phaseJoining || shmi_slot_has_byte(w) || !shmi_has_caps(a, i, w) || shmi_linked(a, i, w))
        return 0; /* before the joiner has written its capabilities, slotJoined may be the time of an earlier participant */
    age = shmi_unix_now() - (int64_t)shmi_ld64(shmi_slot64(a, i, SHMI_slotJoined));
    return (age > SHMI_JOIN_TIMEOUT || age < -SHMI_JOIN_TIMEOUT) && shmi_slot_state(a, i) == w;
}

/* Frees slot i if its participant, in state w, died in shmi_step_back before it had freed the slot: see endStepBack in
 * internal/arenakernel/window.go. Does nothing unless both this joiner and the participant use byte locks. If both do,
 * this joiner has the byte lock of the slot, so the participant has ended. */
SHMI_FN void shmi_end_step_back(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (a->lock_fd < 0 || !shmi_slot_has_byte(w) || shmi_slot_phase(w) != SHMI_phaseJoining || shmi_slot_state(a, i) != w ||
        shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) != shmi_slot_gen(w))
        return;
    shmi_record_deaths(a, i, w, shmi_slot_gen(w));
    shmi_free_slot(a, i, w, 0);
}
/* Takes slot i over from a dead participant that no living process is reaping. Returns the new generation of this
 * joiner, or 0 if the joiner did not take the slot. The joiner holds the byte lock of the slot. */
SHMI_FN uint32_t shmi_inherit_slot(shmsync_arena *a, uint32_t i, uint32_t w, const char *label)
{
    uint32_t *reaper = shmi_slot32(a, i, SHMI_slotReaper), next;
    uint64_t raw;
    shmi_participant_id u;
    int64_t end;
    next = shmi_next_generation(a, i, w, 1, &raw);
    if (next == 0) {
        shmi_end_step_back(a, i, w);
        return 0;
    }
    if (shmi_slot_present(w)) {
        if ((a->lock_fd < 0 || !shmi_slot_has_byte(w)) && !shmi_seen_dead(a, i, w) && !shmi_given_up(a, i, w))
            return 0; /* nothing shows that the participant is dead */
        shmi_mark(a, i, w);
    }
    w = shmi_slot_with(w, SHMI_phaseDead);
    /* System calls of the dead participant may still write, and other processes learn this only from its ID in the
     * slot. So the slot keeps the ID until the process has ended. A participant that had neither a byte lock nor
     * SHMI_capRobust never became live, so it has made no such system call. */
    if ((shmi_slot_has_byte(w) || (shmi_slot_caps(a, i) & SHMI_capRobust) != 0) && !shmi_ended(a, i))
        return 0;
    u = shmi_ld32(reaper);
    if (shmi_current(a, u) || !shmi_cas32(reaper, u, shmi_make_participant_id(i, next)))
        return 0;
    SHMSYNC_CRASHPOINT("arena.inherit.reaper");
    if (!shmi_take_slot_at(a, i, w, next, raw))
        return 0;
    SHMSYNC_CRASHPOINT("arena.inherit.taken");
    /* From now on the ID of this joiner is current. If another process became the reaper earlier, this joiner waits for
     * it. */
    end = shmi_now() + 1000000000;
    for (u = shmi_ld32(reaper); shmi_id_slot(u) != i && shmi_current(a, u); u = shmi_ld32(reaper)) {
        if (shmi_now() > end) { /* give the slot back as it was: that reaper may still record the death, which must not be recorded twice */
            shmi_unlink_alive(a, i, shmi_own_slot_word(a, SHMI_phaseJoining, next));
            shmi_cas_slot(a, i, shmi_own_slot_word(a, SHMI_phaseJoining, next), w);
            return 0;
        }
        shmi_nap(1000000);
    }
    shmi_record_deaths(a, i, shmi_own_slot_word(a, SHMI_phaseJoining, next), shmi_slot_gen(w));
    /* shmi_fill_slot describes this joiner again, with the same label. So a process that reads a part of the words
     * before shmi_fill_slot, and a part afterwards, still gets one description. */
    shmi_describe_self(a, i, next, label, 0);
    SHMSYNC_CRASHPOINT("arena.inherit.recorded");
    shmi_ring_told(a);
    return next;
}

/* Whether the participant in slot i, in state w, is dead and no generation is left for a joiner that would clean up
 * after it. */
SHMI_FN int shmi_stuck(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t raw;
    return shmi_next_generation(a, i, w, 1, &raw) == 0 && (shmi_slot_phase(w) == SHMI_phaseDead || shmi_survey_dead(a, i, w));
}
/* Fails because no joiner can take a slot, and says why. */
SHMI_FN int shmi_fail_full(shmsync_arena *a, const shmi_renewal *r)
{
    uint32_t i, used_up = 0, unclean = 0;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        int stuck = shmi_slot_taken(w) && shmi_stuck(a, i, w);
        if (stuck || shmi_used_up(a, i, w)) {
            used_up++;
            unclean += stuck || !shmi_cleaned(a, i, w);
        }
    }
    if (used_up == 0)
        return shmi_fail(ENOSPC, "arena.open", a->label, "all %u slots for participants are taken", a->geo.slots);
#define SHMI_USED_UP "all %u slots for participants are taken or used up: %u have no generation left; "
    if (r->postponed != NULL)
        return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "they could not be renewed now: %s", a->geo.slots, used_up, r->postponed);
    if (unclean > 0)
        return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "in %u of them nobody could take back what dead participants left; make a new arena",
                         a->geo.slots, used_up, unclean);
    return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "the objects hold too many bytes that may be IDs of %u of them; delete objects, or make a new arena",
                     a->geo.slots, used_up, r->crowded);
#undef SHMI_USED_UP
}

/* Takes a slot for this joiner, which has that label: a free one, or that of a dead participant. In the second case
 * *before is the ID of the dead participant, and this joiner must clean up after it. */
SHMI_FN int shmi_take_slot(shmsync_arena *a, const char *label, shmi_participant_id *name, shmi_participant_id *before)
{
    int64_t end = shmi_now() + 1000000000;
    shmi_renewal renewal;
    memset(&renewal, 0, sizeof renewal);
    *before = 0;
    for (;; shmi_nap(1000000)) {
        int vacating = 0, late = shmi_now() > end; /* read before the try: a joiner that was stopped for a second tries once more */
        uint32_t i, next;
        uint64_t raw;
        a->lock_errno = 0;
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (shmi_slot_phase(w) != SHMI_phaseFree || shmi_used_up(a, i, w) || !shmi_lock_slot(a, i))
                continue;
            next = shmi_next_generation(a, i, w, 0, &raw);
            if (next != 0 && shmi_take_slot_at(a, i, w, next, raw)) {
                *name = shmi_make_participant_id(i, next);
                return 0;
            }
            shmi_unlock_slot(a, i);
        }
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (!shmi_slot_taken(w) || !shmi_note_byte_free(a, i, w) || !shmi_lock_slot(a, i))
                continue;
            next = shmi_inherit_slot(a, i, w, label);
            if (next != 0) {
                *name = shmi_make_participant_id(i, next);
                *before = shmi_id_in(i, w);
                return 0;
            }
            shmi_unlock_slot(a, i);
        }
        if (a->lock_errno != 0)
            return shmi_fail(a->lock_errno, "arena.open", a->label, "could not take the byte lock of a slot");
        if (shmi_renew_slots(a, 0, &renewal) && !late)
            continue;
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i), p = shmi_slot_phase(w);
            if (shmi_used_up(a, i, w))
                continue;
            vacating = vacating || p == SHMI_phaseFree || p == SHMI_phaseJoining || p == SHMI_phaseLeaving || p == SHMI_phaseDead || shmi_survey_dead(a, i, w);
        }
        if (!vacating || late)
            return shmi_fail_full(a, &renewal);
    }
}

/* Reads the identity of this process, by which peers find its threads when it is dead. A field stays 0 if /proc does
 * not contain it. Returns an errno if a shortage keeps this process from reading /proc: otherwise this process would
 * have no identity until it leaves. */
SHMI_FN int shmi_read_identity(shmsync_arena *a)
{
    uint32_t k, nibbles = 0;
    char b[1024], *p;
    ssize_t n;
    int ok;
    a->start = a->pid_ns = a->proc_dev = 0;
    memset(a->boot, 0, sizeof a->boot);
    if (shmi_read_file("/proc/self/stat", b, sizeof b) > 0) {
        /* the name of the program, in parentheses, may contain any characters; field 22 is the start time */
        for (p = strrchr(b, ')'), k = 2; k < 22 && p != NULL; k++)
            p = strchr(p + 1, ' ');
        if (p != NULL)
            a->start = strtoull(p + 1, NULL, 10);
    } else if (shmi_is_shortage(errno)) {
        return errno;
    }
    n = readlink("/proc/self/ns/pid", b, sizeof b - 1);
    if (n > 0) {
        b[n] = 0;
        p = strchr(b, '[');
        if (p != NULL)
            a->pid_ns = strtoull(p + 1, NULL, 10);
    }
    if (shmi_read_file("/proc/sys/kernel/random/boot_id", b, sizeof b) > 0) {
        for (p = b; *p != 0 && nibbles < 32; p++) {
            int v = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
            if (v < 0)
                continue;
            a->boot[nibbles / 2] = (unsigned char)(a->boot[nibbles / 2] | v << (nibbles % 2 == 0 ? 4 : 0));
            nibbles++;
        }
    } else if (shmi_is_shortage(errno)) {
        return errno;
    }
    ok = shmi_probe_threads(&a->proc_dev);
    if (ok <= 0)
        a->proc_dev = 0;
    return ok < 0 ? errno : 0;
}

/* Fills in the slot of this joiner. */
SHMI_FN void shmi_fill_slot(shmsync_arena *a, const char *label)
{
    uint32_t i = a->my_slot, k, reaper;
    shmi_off s = shmi_slot(a, i);
    /* If another process has marked the slot dead meanwhile, slotReaper names the process that reaps this participant,
     * and must not change. */
    while ((reaper = shmi_ld32(shmi_slot32(a, i, SHMI_slotReaper))) != 0 && shmi_slot_state(a, i) == shmi_own_slot_word(a, SHMI_phaseJoining, shmi_id_gen(a->self)) &&
           !shmi_cas32(shmi_slot32(a, i, SHMI_slotReaper), reaper, 0))
        continue;
    shmi_st32(shmi_slot32(a, i, SHMI_slotUID), (uint32_t)geteuid());
    shmi_st64(shmi_slot64(a, i, SHMI_slotPIDNS), a->pid_ns);
    shmi_st64(shmi_slot64(a, i, SHMI_slotJoined), (uint64_t)shmi_unix_now());
    memcpy(shmi_bytes(a, s + SHMI_slotBootID, 16), a->boot, 16);
    shmi_describe_self(a, i, shmi_id_gen(a->self), label, a->start);
    shmi_st64(shmi_slot64(a, i, SHMI_slotIdentitySum), shmi_identity_sum(shmi_id_gen(a->self), (uint32_t)getpid(), a->start, a->pid_ns, a->boot));
    shmi_st64(shmi_slot64(a, i, SHMI_slotReady), 0);
    shmi_st64(shmi_slot64(a, i, SHMI_slotOpening), 0);
    shmi_st64(shmi_slot64(a, i, SHMI_slotWalking), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotTelling), 0);
    shmi_and64(shmi_slot64(a, i, SHMI_slotGone), ~(uint64_t)UINT32_MAX);
    for (k = 0; k < SHMI_announceCount; k++)
        shmi_st64(shmi_u64(a, s + SHMI_slotAnnounce + k * SHMI_announceStride + SHMI_announceWord), 0);
}

SHMI_FN void shmi_drop_lock(shmsync_arena *a)
{
    if (a->pin != NULL)
        munmap(a->pin, a->pin_size);
    a->pin = NULL;
    pthread_mutex_lock(&shmi_attached_lock); /* a fork handler closes the lock_fd that it finds here */
    shmi_close_file(a->lock_fd, a->dev, a->ino);
    a->lock_fd = -1;
    pthread_mutex_unlock(&shmi_attached_lock);
    a->caps &= ~(uint32_t)SHMI_capOFD;
}

/* Gives this joiner's slot back after the cleanup, so that the slot can be renewed. Does so only if the slot is at the
 * end of its window, and no other participant is in the arena. A slot that needs a cleanup cannot be renewed. */
SHMI_FN int shmi_step_back(shmsync_arena *a)
{
    uint32_t i, mine = a->my_slot, g = shmi_id_gen(a->self), joining;
    shmi_window win = shmi_window_of(a, mine);
    if (!shmi_window_has(&win, g) || win.last - g > shmi_window_heirs(&win))
        return 0;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != mine && shmi_slot_taken(shmi_slot_state(a, i)))
            return 0;
    shmi_reclaim_memory(a, a->self);
    if (shmi_ld32(shmi_slot32(a, mine, SHMI_slotReclaimed)) != g)
        return 0;
    SHMSYNC_CRASHPOINT("arena.renew.stepping_back");
    joining = shmi_own_slot_word(a, SHMI_phaseJoining, g);
    shmi_clear_slot(a, mine, joining, 0);
    shmi_unlink_alive(a, mine, joining);
    shmi_cas_slot(a, mine, joining, shmi_slot_with(joining, SHMI_phaseFree));
    SHMSYNC_CRASHPOINT("arena.renew.stepped_back");
    shmi_unlock_slot(a, mine);
    a->my_slot = 0;
    a->self = 0;
    return 1;
}
/* Cleans up after the dead participant before, which had this joiner's slot, and fills in the slot. Returns 0 if it
 * gave the slot back instead, so that the slot can be renewed. */
SHMI_FN int shmi_settle_in(shmsync_arena *a, shmi_participant_id before, const char *label)
{
    shmi_concern concern;
    shmi_forget_acts(a);
    if (before != 0) {
        /* If the death may have lost a wake of any participant, the death of this joiner may lose it, too, until the
         * joiner has sent the wakes. This joiner declares that by shmi_rest_guard. So if it dies meanwhile, its reaper
         * checks every object. */
        int all = shmi_owes_anybody(a, before), unknown;
        if (all)
            shmi_rest_guard(a, SHMI_WALK_OWED);
        /* slotTelling still says that the dead participant was ending a wait. If it stayed so, other processes would
         * conclude that this joiner is ending a wait. */
        shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), 0);
        unknown = shmi_repair_all(a, before, all, &concern);
        SHMSYNC_CRASHPOINT("arena.inherit.repaired");
        shmi_wake_all_for(a, before, &concern);
        SHMSYNC_CRASHPOINT("arena.inherit.woken");
        if (!concern.unfinished) /* otherwise the reaper of this participant reclaims the memory */
            shmi_reclaim_memory(a, before);
        SHMSYNC_CRASHPOINT("arena.inherit.reclaimed");
        shmi_rest_guard(a, 0);
        if (unknown == 0 && !concern.unfinished && shmi_step_back(a))
            return 0;
    }
    shmi_renew_others(a);
    shmi_fill_slot(a, label);
    return 1;
}

/* The capabilities that stand for the option kernel_io. */
SHMI_FN uint32_t shmi_kernel_io_caps(const shmsync_arena_options *o)
{
    switch (o != NULL ? o->kernel_io : SHMSYNC_KERNEL_IO_SYNCHRONOUS) {
    case SHMSYNC_KERNEL_IO_ASYNCHRONOUS:
        return SHMI_capAsyncIO;
    case SHMSYNC_KERNEL_IO_NONE:
        return SHMI_capNoKernelIO;
    }
    return 0;
}
/* Changes the declaration of this participant so that it also covers an opening with these options. */
SHMI_FN void shmi_widen_kernel_io(shmsync_arena *a, const shmsync_arena_options *o)
{
    uint32_t *caps = shmi_slot32(a, a->my_slot, SHMI_slotCaps), old, wide, more = shmi_kernel_io_caps(o);
    do {
        old = shmi_ld32(caps);
        wide = old | (more & SHMI_capAsyncIO);
        if ((more & SHMI_capNoKernelIO) == 0)
            wide &= ~(uint32_t)SHMI_capNoKernelIO;
    } while (!shmi_cas32(caps, old, wide));
}

/* Opens the file of the arena once more, for the byte lock. A child of fork keeps a->fd open. So a lock that belonged
 * to the open file description of a->fd would stay after the death of this process. If the second open fails, or byte
 * locks do not work, a->lock_fd is -1, and peers have less proof of the end of this process. So if the error may be
 * temporary, the open of the arena fails instead. */
SHMI_FN int shmi_open_lock(shmsync_arena *a)
{
    char path[64];
    int err = 0, pinned = 0;
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", a->fd);
    pthread_mutex_lock(&shmi_attached_lock); /* no thread may fork before the descriptor is in a->lock_fd, where the fork handler closes it */
    do
        a->lock_fd = shmi_has(&shmi_have.ofd) ? open(path, O_RDWR | O_CLOEXEC) : -1;
    while (shmi_has(&shmi_have.ofd) && a->lock_fd < 0 && errno == EINTR);
    if (a->lock_fd < 0 && shmi_has(&shmi_have.ofd))
        err = errno;
    if (a->lock_fd >= 0 && !shmi_is_file(a->lock_fd, a->dev, a->ino)) { /* this /proc shows another file under the number a->fd */
        close(a->lock_fd);
        a->lock_fd = -1;
    }
    if (a->lock_fd >= 0)
        pinned = shmi_pin_lock(a->lock_fd, &a->pin, &a->pin_size);
    pthread_mutex_unlock(&shmi_attached_lock);
    if (a->lock_fd < 0) {
        switch (err) {
        case 0:
        case ENOENT: /* /proc is not mounted, or is that of another namespace */
        case ENOTDIR:
        case EACCES: /* permissions, a mount, a security module or a filter forbid it */
        case EPERM:
        case ELOOP:
        case EROFS:
        case ENOSYS:
        case EINVAL:
        case EOPNOTSUPP:
        case ENXIO:
        case ENODEV:
            return 0;
        }
        return shmi_fail(err, "arena.open", a->label, "could not open the file a second time, for the byte lock");
    }
    if (shmi_support_errno(shmi_byte_op(a->lock_fd, F_OFD_GETLK, F_WRLCK, shmi_slot(a, 1), NULL)) == ENOTSUP) {
        shmi_drop_lock(a);
        return 0;
    }
    if (pinned != 0) {
        shmi_drop_lock(a);
        return shmi_fail(pinned, "arena.open", a->label, "cannot map the page that keeps this process's byte lock");
    }
    a->caps |= SHMI_capOFD;
    return 0;
}

/* Takes a slot and makes this process live in it: the byte lock comes first, then the
 * state word, then the robust list, then the alive words. */
SHMI_FN int shmi_join(shmsync_arena *a, const shmsync_arena_options *o)
{
    const char *label = o != NULL && o->label != NULL && o->label[0] != 0 ? o->label : program_invocation_short_name;
    shmi_participant_id name = 0, before = 0;
    int err = shmi_open_lock(a);
    if (err != 0)
        return err;
    err = shmi_read_identity(a);
    if (err != 0) {
        shmi_drop_lock(a);
        return shmi_fail(err, "arena.open", a->label, "could not read the identity of this process from /proc");
    }
    a->caps |= shmi_kernel_io_caps(o);
    /* The registration for membarrier is quick while the process has one thread, so it comes before the start of the
     * helper thread. */
    if (shmi_alone())
        shmi_register_fence();
    if (shmi_is_registered())
        a->caps |= SHMI_capFence;
    /* The helper thread is started before the slot is taken. Otherwise each open that cannot start the thread would
     * use up a generation of the slot. */
    err = shmi_start_watcher(a);
    if (err != 0) {
        shmi_drop_lock(a);
        return err;
    }
    if (a->lock_fd < 0) { /* see shmi_link_alive */
        shmi_await_watcher(a);
        if (a->robust == NULL) {
            shmi_dismiss_watcher(a);
            return shmi_fail(ENOTSUP, "arena.open", a->label, "neither robust lists nor byte locks work here, so nobody could tell this process's death");
        }
    }
    do {
        err = shmi_take_slot(a, label, &name, &before);
        if (err != 0) {
            shmi_dismiss_watcher(a);
            shmi_drop_lock(a);
            return err;
        }
        a->my_slot = shmi_id_slot(name);
        a->self = name;
    } while (!shmi_settle_in(a, before, label));
    /* Rings the watcher of this slot before this participant is live, so that the watcher watches it from the first
     * moment on. */
    shmi_ring_before(a, a->my_slot, 1);
    err = shmi_hire_watcher(a);
    if (err != 0) {
        uint32_t joining = shmi_own_slot_word(a, SHMI_phaseJoining, shmi_id_gen(name));
        if (shmi_slot_state(a, a->my_slot) == joining) { /* the helper thread could not make this participant live */
            shmi_describe_nobody(a, a->my_slot);
            shmi_cas_slot(a, a->my_slot, joining, shmi_slot_with(joining, SHMI_phaseFree));
        }
        shmi_drop_lock(a);
        return err;
    }
    __atomic_store_n(&a->fenced, (a->caps & SHMI_capFence) != 0, __ATOMIC_RELEASE);
    __atomic_store_n(&a->me->name, name, __ATOMIC_RELAXED);
    shmi_ring_watchers_of(a, a->my_slot);
    shmi_survey_ahead(a);
    if (shmi_ld32(&a->unfinished) != 0)
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    return 0;
}

/* Makes sure that all bytes that the arena counts as backed have memory behind them. */
SHMI_FN int shmi_restore_reservations(shmsync_arena *a)
{
    uint64_t believed = a->geo.blocks_off, i;
    struct stat st;
    int err = shmi_reserve(a, 0, a->geo.blocks_off);
    if (err != 0)
        return err;
    for (i = 0; i < a->geo.chunk_count; i++)
        if (shmi_chunk_reserved(shmi_load_chunk(a, i)))
            believed += SHMI_chunkSize + SHMI_chunkWordsSize;
    if (fstat(a->fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= believed)
        return 0;
    for (i = 0; i < a->geo.chunk_count; i++) {
        if (!shmi_chunk_reserved(shmi_load_chunk(a, i)))
            continue;
        err = shmi_reserve(a, shmi_chunk_off(a, i), SHMI_chunkSize);
        if (err == 0)
            err = shmi_reserve(a, shmi_chunk_words(a, i), SHMI_chunkWordsSize);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Frees the references of this process to open objects, when no thread can close these objects any more. */
SHMI_FN void shmi_destroy_refs(shmsync_arena *a)
{
    shmi_ref *r, *next, **lists;
    shmi_head *h;
    uint32_t i;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    lists = a->refs;
    a->refs = NULL;
    for (i = 0; lists != NULL && i < UINT32_C(1) << a->refs_log; i++)
        for (r = lists[i]; r != NULL; r = next) {
            next = r->next;
            if (r->handle != NULL && r->end != NULL)
                r->end(r->handle);
            else if (r->handle != NULL)
                shmi_free_thing(r->handle);
            free(r);
        }
    free(lists);
    while ((h = a->upgradable) != NULL) {
        a->upgradable = h->next;
        shmi_free_thing(h + 1);
    }
    pthread_mutex_unlock(&a->handles);
    pthread_mutex_unlock(&a->handles_of);
}
SHMI_FN void shmi_close_home(shmsync_arena *a)
{
    shmi_close_file(a->home, a->home_dev, a->home_ino);
    a->home = -1;
}
SHMI_FN void shmi_init_locks(shmsync_arena *a)
{
    int i;
    pthread_mutex_init(&a->start_lock, NULL);
    pthread_cond_init(&a->start_cond, NULL);
    pthread_mutex_init(&a->handles, NULL);
    pthread_mutex_init(&a->walking, NULL);
    pthread_mutex_init(&a->handles_of, NULL);
    pthread_mutex_init(&a->reaping, NULL);
    pthread_mutex_init(&a->endings, NULL);
    pthread_mutex_init(&a->wait_nodes_lock, NULL);
    pthread_mutex_init(&a->death_lock, NULL);
    pthread_mutex_init(&a->counter_lock, NULL);
    for (i = 0; i < SHMI_recordLocks; i++)
        pthread_mutex_init(&a->record_locks[i], NULL), pthread_mutex_init(&a->key_locks[i], NULL);
    for (i = 0; i < SHMI_classes; i++)
        pthread_mutex_init(&a->searches[i].turn, NULL);
}
SHMI_FN void shmi_destroy_locks(shmsync_arena *a)
{
    int i;
    pthread_mutex_destroy(&a->start_lock);
    pthread_cond_destroy(&a->start_cond);
    pthread_mutex_destroy(&a->handles);
    pthread_mutex_destroy(&a->walking);
    pthread_mutex_destroy(&a->handles_of);
    pthread_mutex_destroy(&a->reaping);
    pthread_mutex_destroy(&a->endings);
    pthread_mutex_destroy(&a->wait_nodes_lock);
    pthread_mutex_destroy(&a->death_lock);
    pthread_mutex_destroy(&a->counter_lock);
    for (i = 0; i < SHMI_recordLocks; i++)
        pthread_mutex_destroy(&a->record_locks[i]), pthread_mutex_destroy(&a->key_locks[i]);
    for (i = 0; i < SHMI_classes; i++)
        pthread_mutex_destroy(&a->searches[i].turn);
}
SHMI_FN void shmi_destroy(shmsync_arena *a)
{
    shmi_wait_node *s, *after;
    int i;
    shmi_destroy_refs(a);
    shmi_free_crowd(a);
    for (s = a->wait_nodes; s != NULL; s = after) {
        after = s->next;
        free(s);
    }
    for (i = 0; i < SHMI_recordLocks; i++)
        shmi_free_dead_waits(&a->dead_waits[i]);
    if (a->retired == SHMI_RETIRED_HERE)
        munmap(a->base, (size_t)a->size);
    shmi_close_home(a);
    free(a->path);
    free(a->deferred);
    free(a->reaps);
    free(a->notices);
    free(a->asked);
    free(a->told);
    shmi_destroy_locks(a);
    if (a->me != NULL)
        munmap(a->me, (size_t)a->page);
    free(a);
}

/* Closes all handles of objects of the arena: from now on, calls with them fail with EBADF. */
SHMI_FN void shmi_close_handles(shmsync_arena *a)
{
    shmi_ref *r;
    uint32_t i;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    for (i = 0; a->refs != NULL && i < UINT32_C(1) << a->refs_log; i++)
        for (r = a->refs[i]; r != NULL; r = r->next)
            if (r->handle != NULL)
                shmi_close_thing(r->handle);
    pthread_mutex_unlock(&a->handles);
    pthread_mutex_unlock(&a->handles_of);
}

/* How many further arenas this process closes before it frees a closed arena. Late calls may still use the arena, and
 * so may present calls for which the close does not wait. The mapping of a closed arena contains memory that only this
 * process and its children have, and not the file. Failed opens have a ring of their own, so that they push no closed
 * arena out. */
enum { SHMI_RETIRED = 64 };
typedef struct shmi_retired_ring {
    shmsync_arena *v[SHMI_RETIRED];
    unsigned at;
} shmi_retired_ring;
static shmi_retired_ring shmi_closed_arenas; /* guarded by: shmi_attached_lock */
static shmi_retired_ring shmi_failed_opens;  /* arenas of failed opens whose address on_first got. guarded by: shmi_attached_lock */

SHMI_FN void shmi_retire(shmi_retired_ring *r, shmsync_arena *a)
{
    shmsync_arena *old;
    pthread_mutex_lock(&shmi_attached_lock);
    old = r->v[r->at];
    r->v[r->at] = a;
    r->at = (r->at + 1) % SHMI_RETIRED;
    pthread_mutex_unlock(&shmi_attached_lock);
    if (old != NULL)
        shmi_destroy(old);
}
/* Replaces the arena's mapping by memory without a file, in one step, and returns SHMI_RETIRED_HERE. If there is no such
 * memory, unmaps the arena and returns SHMI_RETIRED_GONE. If the move of the memory fails, returns 0, and leaves the
 * addresses as they are until the process ends. The kernel may have unmapped them before it failed, and then another
 * thread may have mapped something there. But the file may also still be mapped, and other threads may still store to it.
 * The memory is mapped shared, because private memory would count against RLIMIT_DATA even if it is not used. It is not
 * readable at first: under mlockall, the kernel allocates a readable mapping in full. */
SHMI_FN int shmi_unmap_file(shmsync_arena *a)
{
    const size_t size = (size_t)a->size;
    void *p = mmap(NULL, size, PROT_NONE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        munlock(p, size);
        madvise(p, size, MADV_DONTDUMP);
        if (mprotect(p, size, PROT_READ | PROT_WRITE) == 0) {
            if (mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, a->base) != MAP_FAILED)
                return SHMI_RETIRED_HERE;
            munmap(p, size);
            return 0;
        }
        munmap(p, size);
    }
    return munmap(a->base, size) == 0 ? SHMI_RETIRED_GONE : 0;
}
/* As shmi_unmap_file, and records the result. Returns whether no thread can store to the arena any more. */
SHMI_FN int shmi_retire_mapping(shmsync_arena *a)
{
    int how = shmi_unmap_file(a);
    __atomic_store_n(&a->retired, how != 0 ? how : SHMI_RETIRED_GONE, __ATOMIC_RELEASE);
    return how != 0;
}

SHMI_FN int shmi_compare(shmsync_arena *a, const shmsync_arena_options *o, int created)
{
    if (o == NULL || created)
        return 0;
    if (o->max_participants != 0 && o->max_participants != a->geo.slots)
        return shmi_fail(EINVAL, "arena.open", a->label, "max_participants is %u, asked for %u", a->geo.slots, o->max_participants);
    if (o->size != 0 && ((o->size + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1)) != a->geo.size)
        return shmi_fail(EINVAL, "arena.open", a->label, "its size is %llu, asked for %llu", (unsigned long long)a->geo.size, (unsigned long long)o->size);
    return 0;
}

#define SHMI_REGISTER_AFTER INT64_C(50000000)

/* Tells all participants that fences reach this process. From then on this process takes biased holds. The caller holds
 * shmi_attached_lock, and the stage of a is SHMI_attached, so the slot still belongs to this process. */
SHMI_FN void shmi_take_fences(shmsync_arena *a)
{
    shmi_or32(shmi_slot32(a, a->my_slot, SHMI_slotCaps), SHMI_capFence);
    __atomic_store_n(&a->fenced, 1, __ATOMIC_RELEASE);
}
/* Records whether the registration has failed for a shortage. If so, the death watchers try it again later. The caller
 * holds shmi_attached_lock. */
SHMI_FN void shmi_note_registering(int failed)
{
    shmsync_arena *a;
    if (__atomic_exchange_n(&shmi_register_failed, failed, __ATOMIC_ACQ_REL) == failed)
        return;
    for (a = shmi_attached; a != NULL && failed; a = a->next)
        if (a->stage == SHMI_attached)
            shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
}
SHMI_FN void *shmi_register_late(void *arg)
{
    shmsync_arena *a;
    int again;
    (void)arg;
    shmi_nap(SHMI_REGISTER_AFTER);
    again = shmi_register_fence();
    pthread_mutex_lock(&shmi_attached_lock);
    for (a = shmi_attached; a != NULL; a = a->next)
        if (a->stage == SHMI_attached && shmi_is_registered())
            shmi_take_fences(a);
    shmi_registering = 0;
    shmi_note_registering(again);
    pthread_mutex_unlock(&shmi_attached_lock);
    shmi_end_thread();
    return NULL;
}
/* Starts a thread that registers this process for membarrier. The registration takes 15 ms or more, and a process that
 * is killed during the registration cannot end earlier. So the thread first waits SHMI_REGISTER_AFTER, and a process
 * that ends soon is not registered. No call waits for the thread. The caller holds shmi_attached_lock. */
SHMI_FN void shmi_begin_registering(void)
{
    pthread_t t;
    if (shmi_registering)
        return;
    if (shmi_is_registered()) {
        shmi_note_registering(0); /* an open that found the process with one thread has registered it */
        return;
    }
    if (!shmi_have_fences()) {
        shmi_note_registering(shmi_may_have_fences());
        return;
    }
    if (shmi_start_thread(&t, "shmsync-fences", shmi_register_late, NULL) != 0) {
        shmi_note_registering(1);
        return;
    }
    pthread_detach(t);
    shmi_registering = 1;
}
/* Tries again to register, unless another thread holds shmi_attached_lock, perhaps for long. Then the watcher that has
 * called this function tries later. */
SHMI_FN void shmi_register_again(void)
{
    if (pthread_mutex_trylock(&shmi_attached_lock) != 0)
        return;
    shmi_begin_registering();
    pthread_mutex_unlock(&shmi_attached_lock);
}

/* Takes a off the list of the arenas of this process. The caller holds shmi_attached_lock. */
SHMI_FN void shmi_detach(shmsync_arena *a)
{
    shmsync_arena **p;
    for (p = &shmi_attached; *p != a; p = &(*p)->next) {
    }
    *p = a->next;
}

/* Whether this thread is opening a, and runs a function of the user meanwhile. The thread must not wait for the end of
 * the open. The caller holds shmi_attached_lock, and a is in stage SHMI_opening. */
SHMI_FN int shmi_opens_itself(const shmsync_arena *a) { return a->in_hook && pthread_equal(a->hook_thread, pthread_self()); }

/* Finds this process's arena of the file in s, or returns NULL. If the arena that it returns is in stage SHMI_opening,
 * either this thread must not wait for its open, or the function of shmsync_wait_hook has ended the wait. The caller
 * holds shmi_attached_lock, which the call releases while another thread joins. */
SHMI_FN shmsync_arena *shmi_attached_to(const shmi_segment *s)
{
    shmsync_arena *a = shmi_attached;
    int64_t since = 0;
    int over = 0;
    while (a != NULL) {
        if (a->dev != s->dev || a->ino != s->ino || a->stage == SHMI_closing) {
            a = a->next;
        } else if (a->stage == SHMI_opening) {
            if (over || shmi_opens_itself(a))
                break;
            if (shmi_wait_hook.f == NULL) {
                pthread_cond_wait(&shmi_attached_changed, &shmi_attached_lock);
            } else {
                int64_t now = shmi_now();
                since = since != 0 ? since : now;
                pthread_mutex_unlock(&shmi_attached_lock);
                over = shmi_hook_ends(since, &now);
                if (!over)
                    shmi_nap(SHMI_GATE_PAUSE_MOST);
                pthread_mutex_lock(&shmi_attached_lock);
            }
            a = shmi_attached;
        } else {
            break;
        }
    }
    return a;
}

SHMI_FN void shmi_note_hook(shmsync_arena *a, int runs)
{
    pthread_mutex_lock(&shmi_attached_lock);
    a->in_hook = runs;
    a->given = a->given || runs == SHMI_inOnFirst;
    a->hook_thread = pthread_self();
    pthread_mutex_unlock(&shmi_attached_lock);
}

/* Returns a copy of path that still leads to the same file after a chdir, or NULL if there is no memory. A name
 * without a slash is no path and is copied as it is. So is a path if the working directory cannot be found, or if the
 * result would be too long. */
SHMI_FN char *shmi_absolute(const char *path)
{
    char *dir;
    size_t before, n = strlen(path);
    if (path[0] == '/' || strchr(path, '/') == NULL)
        return strdup(path);
    dir = (char *)malloc(PATH_MAX);
    if (dir == NULL)
        return NULL;
    before = getcwd(dir, PATH_MAX) == NULL || dir[0] != '/' ? PATH_MAX : strcmp(dir, "/") == 0 ? 0 : strlen(dir);
    if (before + 1 + n >= PATH_MAX) {
        free(dir);
        return strdup(path);
    }
    dir[before] = '/';
    memcpy(dir + before + 1, path, n + 1);
    return dir;
}

/* Makes the shmsync_arena for s. The caller holds shmi_attached_lock. */
SHMI_FN int shmi_new_arena(const shmi_segment *s, const char *path, shmsync_arena **out)
{
    shmsync_arena *a = (shmsync_arena *)calloc(1, sizeof *a);
    struct stat home;
    if (a == NULL || (a->path = shmi_absolute(path)) == NULL) {
        free(a);
        return shmi_fail(ENOMEM, "arena.open", path, "%s", "");
    }
    a->below = a->path + strlen(a->path) - strlen(path) + (strncmp(path, "./", 2) == 0 ? 2 : 0);
    a->home = path[0] != '/' && a->path[0] == '/' ? open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (a->home >= 0 && fstat(a->home, &home) == 0) {
        a->home_dev = (uint64_t)home.st_dev;
        a->home_ino = (uint64_t)home.st_ino;
    }
    shmi_origin_now(&a->origin);
    a->page = sysconf(_SC_PAGESIZE);
    a->base = s->base;
    a->size = s->size;
    a->fd = s->fd;
    a->lock_fd = -1;
    a->dev = s->dev;
    a->ino = s->ino;
    a->stage = SHMI_opening;
    shmi_note_word(a->label, sizeof a->label, path);
    shmi_init_locks(a);
    a->next = shmi_attached;
    shmi_attached = a;
    *out = a;
    return 0;
}

/* Reads the header of the arena, and fills in its geometry. */
SHMI_FN int shmi_read_geometry(shmsync_arena *a)
{
    unsigned char *header = (unsigned char *)malloc(SHMI_headerSize); /* too large for a small stack */
    ssize_t n;
    int err;
    if (header == NULL)
        return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    n = pread(a->fd, header, SHMI_headerSize, 0);
    err = n < 0 ? shmi_fail(errno, "arena.open", a->label, "read") : shmi_validate(header, (size_t)n, a->size, a->label, &a->geo);
    free(header);
    return err;
}
/* Joins the arena in s. a is the new shmsync_arena for it. */
SHMI_FN int shmi_begin(shmsync_arena *a, shmi_segment *s, const shmsync_arena_options *o)
{
    void *page;
    int err = shmi_read_geometry(a);
    if (err == 0)
        err = shmi_compare(a, o, s->created);
    if (err == 0)
        err = shmi_restore_reservations(a);
    if (err != 0)
        return err;
    s->joined = 1;
    page = mmap(NULL, (size_t)a->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a->reaps = (shmi_reap_progress *)calloc((size_t)a->geo.slots + 1, sizeof *a->reaps);
    a->notices = (shmi_notice *)calloc((size_t)a->geo.slots + 1, sizeof *a->notices);
    a->asked = (int64_t *)calloc((size_t)a->geo.slots + 1, sizeof *a->asked);
    if (page != MAP_FAILED) {
        madvise(page, (size_t)a->page, MADV_WIPEONFORK); /* if this fails, the fork handler clears the page */
        pthread_mutex_lock(&shmi_attached_lock);
        a->me = (shmi_me *)page;
        pthread_mutex_unlock(&shmi_attached_lock);
    }
    if (a->me == NULL || a->reaps == NULL || a->notices == NULL || a->asked == NULL)
        return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    return shmi_join(a, o);
}

SHMI_FN void shmi_leave(shmsync_arena *a, int keep_file);

/* Keeps the descriptor of an ephemeral arena that this call has created, so that the caller can remove the file. */
SHMI_FN void shmi_keep_failed(shmi_segment *s)
{
    s->failed = s->fd;
    s->fd = -1;
}

/* Makes this process a participant of the arena in s. The call closes s, or keeps it in the arena. The caller holds
 * shmi_attached_lock, which this call releases and takes again. */
SHMI_FN int shmi_attach(shmi_segment *s, const char *path, const shmsync_arena_options *o, shmsync_arena **out)
{
    const int fresh = s->created && o != NULL && o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL;
    shmsync_arena *a = shmi_attached_to(s);
    int err;
    if (a != NULL) {
        shmi_unmap(s);
        if (a->stage == SHMI_opening && !shmi_opens_itself(a))
            return shmi_fail(ETIMEDOUT, "arena.open", path, "another thread of this process opens it");
        if (a->stage == SHMI_opening)
            return shmi_fail(EDEADLK, "arena.open", path, "%s", a->in_hook == SHMI_inOnFirst ? "its on_first opens it, and would wait for itself: use the arena that on_first gets" : "the function of shmsync_wait_hook opens it during an open, and would wait for itself");
        err = shmi_compare(a, o, 0);
        if (err == 0) {
            a->opens++;
            a->ephemeral = a->ephemeral || (o != NULL && o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL);
            *out = a;
            shmi_begin_registering(); /* if an earlier registration has failed */
            shmi_widen_kernel_io(a, o);
            shmi_tell_detached(a, o);
        }
        return err;
    }
    err = shmi_new_arena(s, path, &a);
    if (err != 0) {
        if (fresh)
            shmi_keep_failed(s);
        shmi_unmap(s);
        return err;
    }
    pthread_mutex_unlock(&shmi_attached_lock);
    err = shmi_begin(a, s, o);
    if (err == 0) {
        err = shmi_admit(a, o, strchr(path, '/') != NULL);
        if (err != 0) {
            shmi_failure why = shmi_last;
            shmi_leave(a, fresh); /* closes s, too, but keeps its descriptor if fresh */
            shmi_last = why;
            s->base = NULL;
            s->fd = fresh ? s->fd : -1;
        }
    }
    pthread_mutex_lock(&shmi_attached_lock);
    if (err == 0) {
        a->stage = SHMI_attached;
        a->opens = 1;
        a->ephemeral = o != NULL && o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL;
        *out = a;
        shmi_tell_detached(a, o);
        if (shmi_is_registered())
            shmi_take_fences(a);
        shmi_begin_registering();
    } else {
        shmi_detach(a);
    }
    pthread_cond_broadcast(&shmi_attached_changed);
    if (err != 0) {
        if (fresh)
            shmi_keep_failed(s);
        shmi_unmap(s);
        pthread_mutex_unlock(&shmi_attached_lock);
        if (a->given)
            shmi_retire(&shmi_failed_opens, a); /* on_first may have kept a pointer to it */
        else
            shmi_destroy(a);
        pthread_mutex_lock(&shmi_attached_lock);
    }
    return err;
}

SHMI_FN int shmi_check_abi(const char *name, uint32_t abi)
{
    shmi_no_failure();
    if (abi != SHMSYNC_ABI)
        return shmi_fail(EPROTONOSUPPORT, "arena.open", name, "the program was compiled for layout version %u and machine words of %u bytes, the implementation for version %u and %u bytes",
                         (unsigned)(abi >> 8), (unsigned)(abi & 0xff), (unsigned)(SHMSYNC_ABI >> 8), (unsigned)(SHMSYNC_ABI & 0xff));
    pthread_once(&shmi_atfork_once, shmi_watch_forks); /* for a constructor that runs before shmi_watch_forks_early */
    shmi_probe();
    shmi_stay_loaded();
    shmi_note_opener();
    return 0;
}

/* Checks the options that concern only this process. */
SHMI_FN int shmi_check_options(const char *name, const shmsync_arena_options *o)
{
    if (o != NULL && (unsigned)o->kernel_io > SHMSYNC_KERNEL_IO_NONE)
        return shmi_fail(EINVAL, "arena.open", name, "kernel_io is %d, which is none of SHMSYNC_KERNEL_IO_x", o->kernel_io);
    if (o != NULL && ((unsigned)o->lifetime > SHMSYNC_LIFETIME_EPHEMERAL || o->recreate > 7))
        return shmi_fail(EINVAL, "arena.open", name, "lifetime is %d and recreate %u, of which one is no value of this option", o->lifetime, o->recreate);
    if (o != NULL && (o->mode & ~(uint32_t)0666) != 0)
        return shmi_fail(EINVAL, "arena.open", name, "mode %#o has bits other than 0666", (unsigned)o->mode);
    if (o != NULL && o->attach_only && (o->flags & SHMSYNC_CREATE_ONLY) != 0)
        return shmi_fail(EINVAL, "arena.open", name, "it is to create only, and to attach only");
    return 0;
}

/* Returns 0 if no process has a byte lock of a slot, and no slot in the file is that of a live or leaving participant
 * without a byte lock. Otherwise fails. */
SHMI_COLD int shmi_seems_unused(shmsync_arena *a, const char *op)
{
    short found = F_UNLCK;
    uint32_t i, w;
    int err = shmi_bytes_op(a->fd, F_OFD_GETLK, F_WRLCK, 0, SHMI_GATE_BYTE, &found);
    if (err != 0)
        return shmi_fail(err, op, a->label, "%s", "");
    if (found != F_UNLCK)
        return shmi_fail(EBUSY, op, a->label, "a process has it open");
    for (i = 1; i <= a->geo.slots; i++) {
        ssize_t n = pread(a->fd, &w, sizeof w, (off_t)(shmi_slot(a, i) + SHMI_slotState));
        if (n != (ssize_t)sizeof w)
            return shmi_fail(n < 0 ? errno : EIO, op, a->label, "read");
        if (!shmi_slot_has_byte(w) && (shmi_slot_phase(w) == SHMI_phaseLive || shmi_slot_phase(w) == SHMI_phaseLeaving))
            return shmi_fail(EBUSY, op, a->label, "a participant without a byte lock may be in");
    }
    return 0;
}
/* Removes an arena from a full file system. The slots of the arena may be holes in the file. Reads the slots from the
 * file, and not through the mapping: see removeSparse in internal/arenakernel/remove.go. The caller has the gate. */
SHMI_COLD int shmi_remove_sparse(shmsync_arena *a, const char *op, int *again)
{
    uint64_t old = shmi_epoch(a), w = shmi_epoch_claim(old, 0), claimed = shmi_make_epoch(SHMI_epochClaimed, shmi_epoch_number(w), 0);
    int err = shmi_seems_unused(a, op);
    *again = err == EBUSY;
    if (err != 0)
        return err;
    *again = 1;
    if (!shmi_cas_epoch(a, old, w))
        return shmi_fail(EBUSY, op, a->label, "another process has changed the epoch");
    SHMSYNC_CRASHPOINT("arena.gate.claiming");
    err = shmi_seems_unused(a, op);
    if (err != 0) {
        shmi_cas_epoch(a, w, shmi_epoch_phase(old) == SHMI_epochClaimed ? old : shmi_epoch_end(w));
        return err;
    }
    if (!shmi_cas_epoch(a, w, claimed))
        return shmi_fail(EBUSY, op, a->label, "a process has joined it");
    return shmi_unlink_claimed(a, claimed, again);
}

/* Makes one attempt to remove an arena in which no participant is: see tryRemove in internal/arenakernel/remove.go. If
 * judged is not -1, removes only the file of this descriptor. *again says that another attempt may have another result.
 * The caller holds shmi_attached_lock, so that no fork happens: a child would keep the gate. */
SHMI_FN int shmi_try_remove(const char *path, int judged, int *again)
{
    const char *op = "arena.remove";
    unsigned char *header = NULL; /* too large for a small stack */
    shmsync_arena *a;
    struct stat st;
    ssize_t n = 0;
    uint64_t w;
    uint32_t in;
    short found = F_UNLCK;
    int err, locked, readable, full = 0, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    *again = 0;
    if (fd < 0) {
        err = errno;
        if (judged >= 0 && !shmi_same_entry(judged, AT_FDCWD, path, AT_SYMLINK_NOFOLLOW)) /* something else is there, such as a directory */
            return 0;
        return shmi_fail(err, op, path, "%s", "");
    }
    if (judged >= 0 && !shmi_same_file(fd, judged)) { /* another process has replaced the file */
        close(fd);
        return 0;
    }
    a = (shmsync_arena *)calloc(1, sizeof *a);
    header = (unsigned char *)malloc(SHMI_headerSize);
    if (a == NULL || header == NULL)
        err = shmi_fail(ENOMEM, op, path, "%s", "");
    else if ((n = pread(fd, header, SHMI_headerSize, 0)) < 0 || fstat(fd, &st) != 0)
        err = shmi_fail(errno, op, path, "%s", "");
    else if (n < 8 || memcmp(header + SHMI_hdrMagic, SHMI_magic, 8) != 0)
        err = shmi_fail(EINVAL, op, path, "not an arena");
    else
        err = shmi_has(&shmi_have.ofd) ? shmi_lock_byte(fd, SHMI_GATE_BYTE) : ENOTSUP;
    locked = err == 0;
    if (err != 0 && err != EAGAIN) {
        if (shmi_last.err == 0)
            shmi_fail(err, op, path, "%s", "");
        goto out;
    }
    a->fd = a->lock_fd = fd;
    a->home = -1;
    a->dev = (uint64_t)st.st_dev;
    a->ino = (uint64_t)st.st_ino;
    a->path = (char *)(uintptr_t)path;
    shmi_note_word(a->label, sizeof a->label, path);
    readable = shmi_validate(header, (size_t)n, (uint64_t)st.st_size, path, &a->geo) == 0;
    shmi_no_failure();
    if (readable) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            err = shmi_fail(errno, op, path, "mmap");
            goto out;
        }
        a->base = (unsigned char *)p;
        a->size = (uint64_t)st.st_size;
        /* A copy of a file may have holes. If the file system is full, an access to a hole through the mapping ends the
         * process. So first allocate memory for the slots. The header is never a hole. */
        full = shmi_reserve(a, 0, a->geo.dir_off) == ENOSPC;
        shmi_no_failure();
    }
    if (!locked) {
        *again = !readable || full || !shmi_occupied(a);
        err = readable && !full ? shmi_fail_gate(a, EBUSY, op) : shmi_fail(EBUSY, op, path, "another process has the gate of the arena");
    } else if (shmi_moved(a)) {
        *again = 1;
        err = 0;
    } else if (!readable) {
        /* The gate and the byte locks have the same places in every layout. */
        err = shmi_bytes_op(fd, F_OFD_GETLK, F_WRLCK, 0, SHMI_GATE_BYTE, &found);
        if (err == 0 && found != F_UNLCK)
            err = EBUSY;
        if (err != 0)
            shmi_fail(err, op, path, "a process has it open");
        else
            err = shmi_remove_file(fd, path, again);
    } else if (shmi_epoch_phase(shmi_epoch(a)) == SHMI_epochRemoved) {
        err = shmi_remove_file(fd, path, again); /* the arena is removed already, and path is another name of its file */
    } else if (full) {
        err = shmi_remove_sparse(a, op, again);
    } else if ((in = shmi_any_in(a)) != 0) {
        err = shmi_fail_in(a, op);
    } else if ((w = shmi_claim_epoch(a, NULL, &in)) == 0) {
        *again = in == 0;
        err = in != 0 ? shmi_fail_in(a, op) : shmi_fail_gate(a, EBUSY, op);
    } else {
        err = shmi_unlink_claimed(a, w, again);
    }
out:
    if (locked)
        shmi_unlock_byte(fd, SHMI_GATE_BYTE);
    if (a != NULL && a->base != NULL)
        munmap(a->base, (size_t)a->size);
    free(a);
    free(header);
    close(fd);
    return err;
}
#define SHMI_MAX_MOVES 1000

/* Removes the file of an arena in which no participant is. If the path leads to another file again and again, the
 * function gives up after SHMI_MAX_MOVES attempts. */
SHMI_FN int shmi_remove_unused(const char *path, int judged)
{
    int64_t end = shmi_now() + SHMI_GATE_TIMEOUT, pause = SHMI_GATE_PAUSE;
    int moves = 0;
    for (;; pause = pause * 2 < SHMI_GATE_PAUSE_MOST ? pause * 2 : SHMI_GATE_PAUSE_MOST) {
        int again, err;
        shmi_no_failure();
        pthread_mutex_lock(&shmi_attached_lock);
        err = shmi_try_remove(path, judged, &again);
        pthread_mutex_unlock(&shmi_attached_lock);
        if (!again || (err != 0 && shmi_now() > end))
            return err;
        if (err == 0 && ++moves == SHMI_MAX_MOVES)
            return shmi_fail(EBUSY, "arena.remove", path, "the path leads to another file each time");
        shmi_nap(pause);
    }
}
int shmsync_arena_remove(const char *name)
{
    SHMI_BEGIN();
    shmi_failure before = shmi_last;
    char *path;
    int err;
    shmi_hold_cancel();
    err = shmi_new_path(name, &path);
    if (err == 0) {
        pthread_once(&shmi_atfork_once, shmi_watch_forks);
        shmi_probe();
        err = shmi_remove_unused(path, -1);
    }
    free(path);
    shmi_let_cancel();
    return SHMI_TELL(shmi_restore_note(err, &before));
}

/* Opens the arena at path, whose options were checked. */
SHMI_FN int shmi_open_path(const char *path, const shmsync_arena_options *opts, shmsync_arena **out)
{
    shmi_segment s;
    int moves, judged, replaces, err = 0;
    for (moves = 0; err == 0 && moves < SHMI_MAX_MOVES; moves++) {
        pthread_mutex_lock(&shmi_attached_lock);
        err = shmi_open_segment(&s, path, opts);
        if (err != 0) {
            pthread_mutex_unlock(&shmi_attached_lock);
            return err;
        }
        if (s.created)
            shmi_sweep_removed(path);
        /* As long as judged is open, no other file gets its inode number. A file that this call has created is not
         * replaced. */
        replaces = opts != NULL && opts->recreate != 0 && !s.created;
        judged = replaces ? fcntl(s.fd, F_DUPFD_CLOEXEC, 0) : -1;
        if (judged < 0 && replaces) {
            err = shmi_fail(errno, "arena.open", path, "duplicate the descriptor");
            shmi_unmap(&s);
            pthread_mutex_unlock(&shmi_attached_lock);
            return err;
        }
        err = shmi_attach(&s, path, opts, out);
        pthread_mutex_unlock(&shmi_attached_lock);
        if (err == SHMI_MOVED) {
            err = 0; /* start over: look the name up again */
        } else if (err != 0 && judged >= 0 && !s.joined &&
                   (((opts->recreate & SHMSYNC_RECREATE_INCOMPATIBLE) != 0 && (err == EPROTONOSUPPORT || err == EINVAL)) ||
                    ((opts->recreate & SHMSYNC_RECREATE_CORRUPT) != 0 && err == EPROTO))) {
            SHMSYNC_CRASHPOINT("arena.remove.judged");
            err = shmi_remove_unused(path, judged);
            if (err == ENOENT)
                err = 0;
        } else if (err == 0) {
            moves = -1;
        } else if (s.failed >= 0) { /* remove what this call has created; if that fails, the next epoch replaces the arena */
            shmi_failure why = shmi_last;
            shmi_remove_unused(path, s.failed);
            shmi_last = why;
        }
        if (s.failed >= 0)
            shmi_close_file(s.failed, s.dev, s.ino);
        if (judged >= 0)
            close(judged);
        if (moves < 0)
            return 0;
    }
    if (err == 0)
        err = shmi_fail(EINVAL, "arena.open", path, "the arena was removed, but the name still leads to it, or leads to another file each time");
    return err;
}
SHMI_FN int shmi_open_named(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_ARENA_OPTIONS(name);
    char *path;
    int err = shmi_check_abi(name, abi);
    if (err == 0)
        err = shmi_check_options(name, opts);
    if (err != 0)
        return err;
    err = shmi_new_path(name, &path);
    if (err == 0)
        err = shmi_open_path(path, opts, out);
    free(path);
    return err;
}
int shmsync_arena_open_abi(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_BEGIN();
    shmi_failure before = shmi_last;
    int err;
    *out = NULL;
    shmi_hold_cancel();
    err = shmi_open_named(name, opts, out, abi);
    shmi_let_cancel();
    return SHMI_TELL(shmi_restore_note(err, &before));
}

SHMI_FN int shmi_open_fd(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_ARENA_OPTIONS(NULL);
    char path[64];
    shmi_segment s;
    int err, mode;
    snprintf(path, sizeof path, "fd %d", fd);
    err = shmi_check_abi(path, abi);
    if (err == 0)
        err = shmi_check_options(path, opts);
    if (err == 0 && (how & SHMSYNC_CREATE_ONLY) != 0)
        err = shmi_fail(EEXIST, "arena.open", path, "an open file has its arena already");
    if (err != 0)
        return err;
    mode = fcntl(fd, F_GETFL);
    if (mode < 0 || (mode & O_ACCMODE) != O_RDWR)
        return shmi_fail(mode < 0 ? errno : EACCES, "arena.open", path, "not open for reading and writing");
    memset(&s, 0, sizeof s);
    s.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (s.fd < 0)
        return shmi_fail(errno, "arena.open", path, "duplicate the descriptor");
    pthread_mutex_lock(&shmi_attached_lock);
    err = shmi_map(&s, path, opts);
    if (err != 0)
        shmi_unmap(&s);
    else
        err = shmi_attach(&s, path, opts, out);
    pthread_mutex_unlock(&shmi_attached_lock);
    return err == SHMI_MOVED ? shmi_fail(EINVAL, "arena.open", path, "the arena was removed") : err;
}
int shmsync_arena_from_fd_abi(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_BEGIN();
    shmi_failure before = shmi_last;
    int err;
    *out = NULL;
    shmi_hold_cancel();
    err = shmi_open_fd(fd, opts, out, abi);
    shmi_let_cancel();
    return SHMI_TELL(shmi_restore_note(err, &before));
}

/* Functions for bindings of other languages; in C, macros of these names hide them. */
int (shmsync_arena_open)(const char *name, const shmsync_arena_options *opts, shmsync_arena **out) { return shmsync_arena_open_abi(name, opts, out, SHMSYNC_ABI); }
int (shmsync_arena_from_fd)(int fd, const shmsync_arena_options *opts, shmsync_arena **out) { return shmsync_arena_from_fd_abi(fd, opts, out, SHMSYNC_ABI); }

/* ---- Leaving: other processes treat what this process still holds, and its waits, as after its death ---- */

/* Replaces the mapping of this process by private memory. From then on, no other thread of this process stores to the
 * arena, whatever it is about to do. So this process can take back what it holds, as if the process were dead. Otherwise,
 * if a thread was preempted before a plain store, such as that of an unlock, the store could change what a peer has by
 * then. Returns the arena as the leave uses it from now on, in a mapping of its own, or a if it has replaced nothing. Sets
 * *cut to 0 if other threads may still store to the arena. */
SHMI_SELDOM shmsync_arena *shmi_replace_mapping(shmsync_arena *a, int *cut)
{
    shmsync_arena *own = (shmsync_arena *)malloc(sizeof *own); /* too large for a small stack */
    shmi_notice *notices = (shmi_notice *)malloc((a->geo.slots + 1) * sizeof *notices);
    int fd = own != NULL && notices != NULL ? shmi_borrow_file(a) : -1;
    void *base = fd >= 0 ? shmi_map_sparsely((size_t)a->size, fd) : MAP_FAILED;
    *cut = 0;
    /* A child of fork must not inherit the mapping, because a mapping may keep the byte lock of this participant. */
    if (base != MAP_FAILED && madvise(base, (size_t)a->size, MADV_DONTFORK) != 0) {
        munmap(base, (size_t)a->size);
        base = MAP_FAILED;
    }
    shmi_return_file(a, fd);
    if (base == MAP_FAILED) {
        free(own);
        free(notices);
        return a;
    }
    shmi_robust_move(a, (unsigned char *)base);
    *own = *a;
    own->base = (unsigned char *)base;
    /* Calls for which the leave does not wait may still use the locks and lists of a, but only for themselves. */
    shmi_init_locks(own);
    pthread_mutex_lock(&a->endings);
    memcpy(notices, a->notices, (a->geo.slots + 1) * sizeof *notices);
    pthread_mutex_unlock(&a->endings);
    own->notices = notices;
    pthread_mutex_lock(&a->handles);
    own->deferred = a->deferred;
    own->n_deferred = a->n_deferred;
    own->cap_deferred = a->cap_deferred;
    a->deferred = NULL;
    a->n_deferred = a->cap_deferred = 0;
    pthread_mutex_unlock(&a->handles);
    own->refs = NULL;
    own->refs_log = own->n_refs = 0;
    own->upgradable = NULL;
    own->crowd = NULL;
    own->wait_nodes = NULL;
    own->free_nodes = 0;
    memset(own->dead_waits, 0, sizeof own->dead_waits); /* they point into *a */
    *cut = shmi_retire_mapping(a);
    return own;
}
/* Frees what shmi_replace_mapping has made for the leave. */
SHMI_FN void shmi_end_own(shmsync_arena *own)
{
    int i;
    for (i = 0; i < SHMI_recordLocks; i++)
        shmi_free_dead_waits(&own->dead_waits[i]);
    munmap(own->base, (size_t)own->size);
    shmi_destroy_locks(own);
    free(own->deferred);
    free(own->notices);
    free(own);
}

/* Frees the slot of this participant, as the last step of its leave. own is the arena in a mapping of the leave, or a if
 * there was no room for one. In the first case, calls that shmi_enter does not count do not store to the slot of the next
 * participant: see shmi_replace_mapping. */
SHMI_SELDOM void shmi_give_up_slot(shmsync_arena *a, shmsync_arena *own, uint32_t leaving, int unknown, const shmi_concern *concern)
{
    uint32_t number, synced;
    shmi_record_leave(own);
    number = shmi_epoch_of_write_back(own, &synced);
    shmi_free_slot(own, a->my_slot, leaving, unknown != 0);
    SHMSYNC_CRASHPOINT("arena.close.freed");
    shmi_write_back(own, number, synced);
    __atomic_store_n(&a->me->name, 0, __ATOMIC_RELAXED);
    shmi_ring_watchers_of(own, a->my_slot);
    shmi_count_death(own, concern); /* a peer that was woken earlier may have found this participant still current */
    shmi_drop_lock(a);
    if (own != a)
        shmi_end_own(own);
    else
        shmi_retire_mapping(a);
}

/* How long a leave waits for calls that are not in shmsync_arena.calls. Such a call is short, unless its thread is
 * preempted. But a thread may also have left the call by longjmp or by an asynchronous cancellation, and a peer may have
 * overwritten the words that show the call. So the wait needs a bound. */
enum { SHMI_UNCOUNTED_MOST = 1000000000 }; /* ns */
/* Waits for the calls that work with an object. *until is the end of the wait, or 0 before the wait has begun. */
SHMI_FN void shmi_await_uncounted_at(shmsync_arena *a, const shmi_object *o, void *until)
{
    const shmi_kind_ops *ops = shmi_kind_of(o);
    int64_t *end = (int64_t *)until;
    while (ops != NULL && ops->in_call != NULL && ops->in_call(a, o)) {
        int64_t now = shmi_now();
        if (*end == 0)
            *end = now + SHMI_UNCOUNTED_MOST;
        else if (now > *end)
            return;
        shmi_nap(20000);
    }
}
/* Orders a store of the close before later accesses of calls that make no fence themselves. Only a process that has
 * registered for membarrier has such calls. */
SHMI_FN void shmi_fence_calls(const shmsync_arena *a)
{
    if (__atomic_load_n(&a->fenced, __ATOMIC_SEQ_CST) && shmi_fence() != 0)
        shmi_nap(1000000); /* the kernel refuses fences now; a store becomes visible much sooner */
}
/* Waits until no call of this process stores, without a CAS, to what it has claimed or locked. A call that does not wait
 * is not in shmsync_arena.calls, because counting would double its cost. Without this wait, this process could take the
 * claim back, a peer could make the same claim, and the late store would change what the peer has.
 *
 * A call makes its claim with a CAS, and then reads shmsync_arena.leaving. So either the wait sees the claim, or the call
 * sees that this process leaves, and undoes the claim. See awaitCalls of prims/queue_core.go.
 *
 * A call that has read from shmsync_arena.fenced that this process has registered for membarrier may make its claim with
 * a plain store. Such a call needs the fence below. If this function reads 0 from fenced, a call that reads 1 does so
 * later, and then sees that this process leaves. */
SHMI_FN void shmi_await_uncounted(shmsync_arena *a)
{
    int64_t until = 0;
    __atomic_store_n(&a->leaving, 1, __ATOMIC_SEQ_CST);
    shmi_fence_calls(a);
    shmi_visit(a, a->my_slot, shmi_await_uncounted_at, &until);
}

/* From now on, no call that begins or ends reports success: see shmi_done. */
SHMI_FN void shmi_refuse_late(shmsync_arena *a)
{
    __atomic_store_n(&a->late, 1, __ATOMIC_SEQ_CST);
    shmi_fence_calls(a);
}

/* Waits until the watcher no longer uses the mapping. The watcher may be running a function of the user's for a death.
 * Peers that need what this process holds must not wait for the end of that function. So this function returns 0 after a
 * second. */
SHMI_FN int shmi_await_unwatched(shmsync_arena *a)
{
    int64_t end = shmi_now() + SHMI_UNCOUNTED_MOST;
    while (!__atomic_load_n(&a->unwatched, __ATOMIC_ACQUIRE) && shmi_now() < end)
        shmi_futex_sleep(&a->unwatched, 0, end);
    return __atomic_load_n(&a->unwatched, __ATOMIC_ACQUIRE) != 0;
}
/* Forgets what a call may have noted in the slot of this participant before the mapping was replaced under it. Returns
 * whether such a call was about to tell the owner of a wait that the wait is over. Then any participant may miss a wake. */
SHMI_FN int shmi_cut_off(shmsync_arena *own)
{
    uint32_t *telling = shmi_slot32(own, own->my_slot, SHMI_slotTelling);
    int told = shmi_ld32(telling) == 0;
    own->acting = 0;
    shmi_forget_acts(own);
    if (told)
        return 0;
    shmi_rest_guard(own, SHMI_WALK_OWED);
    shmi_st32(telling, 0);
    return 1;
}
/* Ends the watcher, after this process has taken back what it held. */
SHMI_FN void shmi_end_watcher(shmsync_arena *a)
{
    pthread_mutex_lock(&a->start_lock);
    a->repaired = 1;
    pthread_cond_broadcast(&a->start_cond);
    pthread_mutex_unlock(&a->start_lock);
    pthread_join(a->watcher, NULL);
}

/* Leaves the arena. With keep_file, the descriptor of the file stays open. */
SHMI_FN void shmi_leave(shmsync_arena *a, int keep_file)
{
    uint32_t i = a->my_slot, live = shmi_own_slot_word(a, SHMI_phaseLive, shmi_id_gen(a->self)), leaving = shmi_slot_with(live, SHMI_phaseLeaving), k;
    shmsync_arena *own;
    shmi_concern concern;
    int all, unknown, unwatched, cut = 0;
    /* If others have declared this participant dead, slotDied has a date already, or the generation of a later
     * participant. Then this CAS fails. */
    shmi_cas64(shmi_slot64(a, i, SHMI_slotDied), shmi_id_gen(a->self), (uint64_t)shmi_unix_now());
    shmi_cas_slot(a, i, live, leaving);
    SHMSYNC_CRASHPOINT("arena.close.leaving");
    /* When a process leaves in good order, the kernel does not mark its alive words. So this call rings the watcher of
     * this slot, which has to test the byte lock from now on. */
    shmi_ring_before(a, i, 1);
    __atomic_store_n(&a->closing, 1, __ATOMIC_SEQ_CST);
    shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell)); /* for shmi_await_unwatched */
    while (shmi_ld32(&a->calls) != 0) { /* wake the threads that wait in calls */
        for (k = 0; k < SHMI_announceCount; k++) {
            shmi_off word = shmi_ld64(shmi_u64(a, shmi_slot(a, i) + SHMI_slotAnnounce + k * SHMI_announceStride + SHMI_announceWord));
            if (word != 0 && shmi_within(a, word, 4, 4))
                shmi_wake(shmi_u32(a, word), SHMI_ALL);
        }
        shmi_ring_crowd(a);
        shmi_nap(1000000);
    }
    shmi_close_handles(a);
    shmi_await_uncounted(a);
    unwatched = shmi_await_unwatched(a);
    shmi_refuse_late(a);
    own = unwatched ? shmi_replace_mapping(a, &cut) : a;
    pthread_mutex_lock(&a->reaping);
    /* From now on shmi_close_object changes no open bit. Once shmi_reclaim_memory has cleared a bit, another
     * participant may delete the object, and the word with the bit may become a part of another object. */
    pthread_mutex_lock(&a->handles);
    a->left = own->left = 1;
    pthread_mutex_unlock(&a->handles);
    all = cut && shmi_cut_off(own);
    unknown = shmi_repair_all(own, own->self, all, &concern);
    SHMSYNC_CRASHPOINT("arena.close.repaired");
    /* The wakes that were sent to this process are lost, as after a death. If any participant may miss a wake, the wakes
     * come before the end of the guard, which shmi_reclaim_memory clears: see shmi_cut_off. */
    if (all)
        shmi_wake_all_for(own, own->self, &concern);
    if (!concern.unfinished)
        shmi_reclaim_memory(own, own->self);
    SHMSYNC_CRASHPOINT("arena.close.reclaimed");
    if (!all)
        shmi_wake_all_for(own, own->self, &concern);
    if (!concern.unfinished)
        shmi_clear_open_bits(own, own->self);
    pthread_mutex_unlock(&a->reaping);

    shmi_end_watcher(a);
    SHMSYNC_CRASHPOINT("arena.close.unregistered");
    if (own == a)
        own = shmi_replace_mapping(a, &cut);
    shmi_give_up_slot(a, own, leaving, unknown, &concern);
    if (!keep_file)
        shmi_close_file(a->fd, a->dev, a->ino);
    shmi_close_home(a);
}

/* Whether a is one of the last SHMI_RETIRED arenas that this process has closed. */
SHMI_FN int shmi_was_closed(const shmsync_arena *a)
{
    int found = 0;
    unsigned i;
    pthread_mutex_lock(&shmi_attached_lock);
    for (i = 0; i < SHMI_RETIRED; i++)
        found = found || shmi_closed_arenas.v[i] == a || shmi_failed_opens.v[i] == a;
    pthread_mutex_unlock(&shmi_attached_lock);
    return found;
}

/* Whether this thread, if it closed a, would wait for itself, because it is the watcher of a, or runs on_first. The
 * caller holds shmi_attached_lock, and a is on the list. */
SHMI_FN int shmi_close_waits_for_itself(const shmsync_arena *a)
{
    return a->stage == SHMI_opening ? shmi_opens_itself(a) : pthread_equal(a->watcher, pthread_self());
}

/* A call that closes the arena in the field closes. It waits until no thread is inside that arena. A thread is inside
 * an arena while it is in a call of the arena, or is its watcher. The callers of the functions below hold
 * shmi_attached_lock. */
typedef struct shmi_closer {
    struct shmi_closer *next;
    const shmsync_arena *closes;
    const shmsync_arena *inside[2 * SHMI_INSIDE]; /* all arenas that the closing thread is inside; NULL: a free place */
    int seen; /* shmi_closers_wait_for has visited this close */
} shmi_closer;

/* Fills *me for a call with which this thread closes a. */
SHMI_FN void shmi_closer_init(shmi_closer *me, const shmsync_arena *a)
{
    const shmsync_arena *x;
    int i, n = SHMI_INSIDE;
    memset(me, 0, sizeof *me);
    me->closes = a;
    for (i = 0; i < SHMI_INSIDE; i++)
        if (shmi_calls_in[i].n != 0)
            me->inside[i] = shmi_calls_in[i].a;
    for (x = shmi_attached; x != NULL; x = x->next)
        if (n < 2 * SHMI_INSIDE && x->stage != SHMI_opening && pthread_equal(x->watcher, pthread_self()))
            me->inside[n++] = x;
}
SHMI_FN int shmi_closer_inside(const shmi_closer *k, const shmsync_arena *a)
{
    int i;
    for (i = 0; i < 2 * SHMI_INSIDE; i++)
        if (k->inside[i] == a)
            return 1;
    return 0;
}
/* Whether a close of the arena a would wait for the thread of *me. That is so if a thread that is inside a closes
 * another arena, and so on, up to an arena that the thread of *me is inside. */
SHMI_FN int shmi_closers_wait_for(const shmi_closer *me, const shmsync_arena *a)
{
    shmi_closer *k;
    for (k = shmi_closers; k != NULL; k = k->next) {
        if (k->seen || !shmi_closer_inside(k, a))
            continue;
        k->seen = 1;
        if (shmi_closer_inside(me, k->closes) || shmi_closers_wait_for(me, k->closes))
            return 1;
    }
    return 0;
}
/* Adds me to the closes that wait. Returns 0 if me would wait for itself. */
SHMI_FN int shmi_closer_begin(shmi_closer *me)
{
    shmi_closer *k;
    for (k = shmi_closers; k != NULL; k = k->next)
        k->seen = 0;
    if (shmi_closers_wait_for(me, me->closes))
        return 0;
    me->next = shmi_closers;
    shmi_closers = me;
    return 1;
}
SHMI_FN void shmi_closer_end(const shmi_closer *me)
{
    shmi_closer **at = &shmi_closers;
    while (*at != NULL && *at != me)
        at = &(*at)->next;
    if (*at != NULL) /* NULL in a child of fork, whose list is empty */
        *at = me->next;
}

/* Returns a descriptor of the arena's file that the caller has to close, or -1. */
SHMI_FN int shmi_copy_file(const shmsync_arena *a)
{
    int fd = shmi_borrow_file(a), copy = fd >= 0 ? fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
    shmi_return_file(a, fd);
    return copy;
}

int shmsync_arena_close(shmsync_arena *a)
{
    SHMI_BEGIN();
    shmsync_arena *open_;
    shmi_closer closer;
    shmi_failure before = shmi_last;
    int last, err = 0;
    if (a == NULL)
        return shmi_no_arena("arena.close", NULL);
    if (shmi_is_inside(a)) /* this thread is in a call of the arena, for whose end the close would wait */
        return shmi_fail(EDEADLK, "arena.close", NULL, "this thread is in a call of the arena: a function that a call runs may neither close it, nor be left by longjmp or an exception");
    if (shmi_calls_beyond != 0) /* one of these calls may be a call of the arena a */
        return shmi_fail(EDEADLK, "arena.close", NULL, "this thread is in nested calls of more than %d arenas: close the arena after them", SHMI_INSIDE);
    shmi_hold_cancel();
    pthread_mutex_lock(&shmi_attached_lock);
    for (open_ = shmi_attached; open_ != NULL && open_ != a; open_ = open_->next) {
    }
    if (open_ != NULL && shmi_close_waits_for_itself(a)) {
        pthread_mutex_unlock(&shmi_attached_lock);
        shmi_let_cancel();
        return shmi_fail(EDEADLK, "arena.close", a->label, "on_first, on_death and on_detached cannot close the arena for which they run");
    }
    if (open_ != NULL && a->stage != SHMI_attached)
        open_ = NULL;
    shmi_closer_init(&closer, a);
    if (open_ != NULL && a->opens == 1 && !shmi_closer_begin(&closer)) {
        pthread_mutex_unlock(&shmi_attached_lock);
        shmi_let_cancel();
        return shmi_fail(EDEADLK, "arena.close", a->label, "a function that runs in a call of this arena closes the arena in a call of which this close runs: each close would wait for the other");
    }
    last = open_ != NULL && --a->opens == 0;
    if (last)
        a->stage = SHMI_closing;
    pthread_mutex_unlock(&shmi_attached_lock);
    if (last) {
        /* If there is no memory for the path, the file stays until the next open of the arena. */
        char *path = a->ephemeral && strchr(a->path, '/') != NULL ? (char *)malloc(PATH_MAX) : NULL;
        uint64_t dev = a->dev, ino = a->ino;
        int keep, judged;
        if (path != NULL) {
            shmi_current_path(a, path);
            if (!shmi_leads_to(a, path)) { /* the file was moved or removed: what is at the path now stays */
                free(path);
                path = NULL;
            }
        }
        keep = path != NULL && shmi_is_file(a->fd, dev, ino); /* kept, because there may be no free descriptor for a copy */
        judged = keep ? a->fd : path != NULL ? shmi_copy_file(a) : -1;
        shmi_leave(a, keep);
        pthread_mutex_lock(&shmi_attached_lock);
        shmi_closer_end(&closer);
        shmi_detach(a);
        pthread_mutex_unlock(&shmi_attached_lock);
        shmi_retire(&shmi_closed_arenas, a); /* from here on, another close may free *a */
        if (judged >= 0) { /* waits for the gate, for a bounded time: see removeLast in internal/arenakernel/remove.go */
            err = shmi_remove_unused(path, judged);
            if (err == EBUSY || err == ENOENT || err == EACCES || err == EPERM)
                err = 0; /* another participant removes the file, or this process has no permission: then the next epoch replaces the arena */
            shmi_close_file(judged, dev, ino);
        }
        free(path);
    }
    shmi_let_cancel();
    /* If the arena is not on the list, this process inherited it over a fork, or has closed it already. Only a recent
     * close can be recognised, because later the address may belong to anything. */
    return open_ != NULL ? shmi_restore_note(err, &before) : SHMI_TELL(shmi_fail(shmi_was_closed(a) ? EBADF : ENOTCONN, "arena.close", NULL, "%s", ""));
}

uint64_t shmsync_arena_size(const shmsync_arena *a)
{
    if (a == NULL)
        shmi_no_arena("arena.size", NULL);
    return a == NULL || __atomic_load_n(&a->retired, __ATOMIC_ACQUIRE) ? 0 : a->geo.size;
}
void *shmsync_arena_base(const shmsync_arena *a)
{
    if (a == NULL)
        shmi_no_arena("arena.base", NULL);
    return a == NULL || __atomic_load_n(&a->retired, __ATOMIC_ACQUIRE) ? NULL : a->base;
}

int shmsync_arena_self(shmsync_arena *a, shmsync_participant *out)
{
    SHMI_BEGIN_IN(a, "arena.self");
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "arena.self", a->label, "%s", "");
    shmi_read_slot(a, a->my_slot, shmi_id_gen(a->self), out);
    return SHMI_DONE_IN(a, 0);
}

int shmsync_arena_participants(shmsync_arena *a, int (*f)(const shmsync_participant *, void *), void *arg)
{
    SHMI_BEGIN_IN(a, "arena.participants");
    uint32_t i, slots = a->geo.slots;
    for (i = 1; i <= slots; i++) {
        shmsync_participant p;
        uint32_t w;
        /* f runs outside of shmi_enter, because f may take any time and a close would wait for it */
        int there, err = shmi_enter(a, "arena.participants");
        if (err != 0)
            return SHMI_TELL(err);
        w = shmi_slot_state(a, i);
        there = shmi_slot_present(w) && shmi_read_slot(a, i, shmi_slot_gen(w), &p);
        shmi_exit(a);
        if (there && f(&p, arg) != 0)
            break;
    }
    return 0;
}

/* ---- Blocks of bytes that programs use ---- */

int shmsync_alloc(shmsync_arena *a, uint64_t size, shmsync_offset *out)
{
    *out = 0;
    SHMI_BEGIN_IN(a, "arena.alloc");
    shmi_off off = 0;
    int err = shmi_enter(a, "arena.alloc");
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_claim(a, size, &off);
    if (err == 0) {
        SHMSYNC_CRASHPOINT("arena.alloc.before_publish");
        err = shmi_publish(a, off, SHMI_blockRaw);
    }
    if (err == 0)
        *out = off;
    shmi_exit(a);
    return SHMI_TELL(err);
}

int shmsync_free(shmsync_arena *a, shmsync_offset off)
{
    SHMI_BEGIN_IN(a, "arena.free");
    shmi_block b;
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    int err = shmi_enter(a, "arena.free");
    if (err != 0)
        return SHMI_TELL(err);
    if (shmi_locate(a, off, &b))
        shmi_touch(a, b.chunk);
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, SHMI_blockRaw, freeing)) {
        err = shmi_fail(EINVAL, "arena.free", a->label, "nothing that was allocated begins at 0x%llx", (unsigned long long)off);
    } else {
        SHMSYNC_CRASHPOINT("arena.free.before_clear");
        shmi_release(a, &b, freeing);
    }
    shmi_exit(a);
    return SHMI_TELL(err);
}

void *shmsync_at(shmsync_arena *a, shmsync_offset off, uint64_t size)
{
    if (a == NULL) {
        shmi_no_arena("arena.at", NULL);
        return NULL;
    }
    if (__atomic_load_n(&a->retired, __ATOMIC_ACQUIRE)) {
        shmi_fail(EBADF, "arena.at", a->label, "this process closed the arena");
        return NULL;
    }
    return shmi_try_at(a, off, size, 1);
}

/* Opens a block or a Value. If any_size is set, an existing object may have any size, and the parameter size is
 * ignored. If has is not NULL, *has is the size of the object. */
SHMI_FN int shmi_plain_open(shmsync_arena *a, uint32_t flags, uint32_t kind, const char *name, uint64_t size, uint64_t layout, const char *type, void **out, int any_size, uint64_t *has)
{
    shmi_spec spec;
    shmi_object o;
    int created, err;
    memset(&spec, 0, sizeof spec);
    spec.kind = kind;
    spec.version = 1;
    spec.name = name;
    spec.size = size;
    spec.flags = flags;
    spec.any_size = any_size;
    *out = NULL;
    if (a == NULL)
        return shmi_no_arena(kind == SHMI_KIND('B', 'L', 'O', 'K') ? "arena.block" : "arena.value", name);
    err = shmi_spec_type(&spec, "arena.value", layout, type);
    if (err == 0)
        err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        *out = shmi_bytes(a, o.body, o.size);
    if (err == 0 && has != NULL)
        *has = o.size;
    return err;
}
int shmsync_block_open(shmsync_arena *a, const char *name, uint64_t size, void **out)
{
    SHMI_BEGIN();
    if (size == 0)
        return shmi_fail(EINVAL, "arena.block", name, "a block has at least 1 byte; shmsync_block_attach opens one that exists");
    return SHMI_TELL(shmi_plain_open(a, 0, SHMI_KIND('B', 'L', 'O', 'K'), name, size, 0, NULL, out, 0, NULL));
}
int shmsync_block_create(shmsync_arena *a, const char *name, uint64_t size, void **out)
{
    SHMI_BEGIN();
    if (size == 0)
        return shmi_fail(EINVAL, "arena.block", name, "a block has at least 1 byte");
    return SHMI_TELL(shmi_plain_open(a, SHMSYNC_CREATE_ONLY, SHMI_KIND('B', 'L', 'O', 'K'), name, size, 0, NULL, out, 0, NULL));
}
int shmsync_block_attach(shmsync_arena *a, const char *name, void **out, uint64_t *size)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, SHMSYNC_OPEN_EXISTING, SHMI_KIND('B', 'L', 'O', 'K'), name, 0, 0, NULL, out, 1, size));
}
int shmsync_value_open(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, 0, SHMI_KIND('V', 'A', 'L', 'U'), name, size, layout, NULL, out, 0, NULL));
}
int shmsync_value_create(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, SHMSYNC_CREATE_ONLY, SHMI_KIND('V', 'A', 'L', 'U'), name, size, layout, NULL, out, 0, NULL));
}
int shmsync_value_attach(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, SHMSYNC_OPEN_EXISTING, SHMI_KIND('V', 'A', 'L', 'U'), name, size, layout, NULL, out, 0, NULL));
}
int shmsync_value_open_type(shmsync_arena *a, const char *name, uint64_t size, const char *type, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, 0, SHMI_KIND('V', 'A', 'L', 'U'), name, size, 0, type, out, 0, NULL));
}
int shmsync_value_attach_type(shmsync_arena *a, const char *name, uint64_t size, const char *type, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, SHMSYNC_OPEN_EXISTING, SHMI_KIND('V', 'A', 'L', 'U'), name, size, 0, type, out, 0, NULL));
}

