/* ---- Atomics: sequentially consistent, as those of the Go side ---- */

SHMI_FN uint32_t shmi_ld32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_ld64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
SHMI_FN void shmi_st32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN void shmi_st64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_xchg32(uint32_t *p, uint32_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_xchg64(uint64_t *p, uint64_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
/* Adds v to *p, and returns the old value. */
SHMI_FN uint32_t shmi_add32(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_add64(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_or32(uint32_t *p, uint32_t v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_and32(uint32_t *p, uint32_t v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_or64(uint64_t *p, uint64_t v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_and64(uint64_t *p, uint64_t v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN int shmi_cas32(uint32_t *p, uint32_t old, uint32_t to)
{
    return __atomic_compare_exchange_n(p, &old, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
SHMI_FN int shmi_cas64(uint64_t *p, uint64_t old, uint64_t to)
{
    return __atomic_compare_exchange_n(p, &old, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
/* Stores to a word that only one thread at a time writes, unless the word has the value v already. The release order
 * keeps such stores in program order. So after a death, the reaper finds all of these stores up to one point of the
 * program, and none after it. */
SHMI_FN void shmi_put64(uint64_t *p, uint64_t v)
{
    if (__atomic_load_n(p, __ATOMIC_RELAXED) != v)
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* shmi_full_fence orders all loads and stores before it before all those after it; shmi_load_fence orders only loads.
 * The thread sanitizer sees no order between threads in a fence. But the words of the library stand beside plain data
 * of the program, so the CPU must execute the fences in a build for the sanitizer, too. There gcc warns about
 * __atomic_thread_fence, and not about __sync_synchronize. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHMI_THREAD_SANITIZER 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SHMI_THREAD_SANITIZER 1
#endif
SHMI_FN void shmi_full_fence(void)
{
#ifdef SHMI_THREAD_SANITIZER
    __sync_synchronize();
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
/* Keeps later loads of this thread after its last compare-and-swap, which has succeeded. A call needs this if another
 * call that did not see this compare-and-swap may have changed nothing; see prims/fence.go. */
SHMI_FN void shmi_order_loads(void)
{
#if defined(__x86_64__)
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the compare-and-swap is a fence */
#else
    shmi_full_fence();
#endif
}
SHMI_FN void shmi_load_fence(void)
{
#ifdef SHMI_THREAD_SANITIZER
    __sync_synchronize();
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

SHMI_FN void shmi_pause(uint32_t n)
{
    for (; n != 0; n--) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#else
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
    }
}

/* ---- Crash points: tests build with SHMSYNC_CRASHPOINTS and name a crash point in the environment, as on the Go side
 * ---- */

#ifdef SHMSYNC_CRASHPOINTS
SHMI_FN int shmi_crash_due(const char *spec, const char *name, int *hits)
{
    const char *colon;
    size_t n;
    int want = 1;
    if (spec == NULL || *spec == 0)
        return 0;
    colon = strchr(spec, ':');
    n = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    if (colon != NULL)
        want = atoi(colon + 1);
    if (strlen(name) != n || memcmp(spec, name, n) != 0)
        return 0;
    return __atomic_add_fetch(hits, 1, __ATOMIC_SEQ_CST) == want;
}
/* If spec is "n:microseconds", delays one of n calls, chosen at random, by less than that many microseconds. */
SHMI_FN void shmi_crash_delay(const char *spec)
{
    static uint32_t passes;
    uint32_t random = __atomic_add_fetch(&passes, 0x9e3779b9u, __ATOMIC_SEQ_CST);
    struct timespec now, ts = {0, 0};
    long every, most;
    char *rest;
    int error = errno;
    if (spec == NULL || (every = strtol(spec, &rest, 10)) < 1 || every > 1000000 || *rest != ':' || (most = strtol(rest + 1, NULL, 10)) < 1 || most > 1000000)
        return;
    clock_gettime(CLOCK_MONOTONIC, &now);
    random = (random ^ (uint32_t)now.tv_nsec) * 0x85ebca6bu;
    random ^= random >> 15;
    if (random % (uint32_t)every != 0)
        return;
    ts.tv_nsec = (long)(random / (uint32_t)every % (uint32_t)most) * 1000;
    syscall(SYS_nanosleep, &ts, NULL); /* unlike nanosleep it is no cancellation point */
    errno = error;
}
SHMI_FN void shmi_crash(const char *name)
{
    static int kills, stops;
    if (shmi_crash_due(getenv("SHMSYNC_CRASHPOINT"), name, &kills)) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (shmi_crash_due(getenv("SHMSYNC_CRASHPOINT_STOP"), name, &stops))
        raise(SIGSTOP); /* raise stops this thread before raise returns; a signal to the process might stop it later */
    shmi_crash_delay(getenv("SHMSYNC_CRASHPOINT_DELAY"));
}
#define SHMSYNC_CRASHPOINT(name) shmi_crash(name)
#elif !defined(SHMSYNC_CRASHPOINT) /* a test may have its own */
#define SHMSYNC_CRASHPOINT(name) ((void)0)
#endif

/* ---- The kernel ---- */

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif
#ifndef MADV_DONTFORK
#define MADV_DONTFORK 10
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif
#ifndef FALLOC_FL_PUNCH_HOLE
#define FALLOC_FL_PUNCH_HOLE 2
#endif

#define SHMI_ALL INT32_MAX
#define SHMI_NOATIME 01000000 /* O_NOATIME, which needs _GNU_SOURCE */
#define SHMI_OWNER_DIED 0x40000000u /* FUTEX_OWNER_DIED */
#define SHMI_WAITERS 0x80000000u
#define SHMI_TID_MASK 0x3fffffffu

enum { SHMI_futexWaitBitset = 9, SHMI_futexWakeBitset = 10 };
enum { SHMI_membarrierQuery = 0, SHMI_membarrierGlobal = 2, SHMI_membarrierRegister = 4 };

SHMI_FN int64_t shmi_now(void) /* CLOCK_MONOTONIC, ns */
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The time ns, in the form in which the arena stores the begin of a wait or of a lease: milliseconds of
 * CLOCK_MONOTONIC modulo 2^32, rounded up, never 0. */
SHMI_FN uint32_t shmi_first_date(int64_t ns)
{
    uint32_t ms = (uint32_t)(ns / 1000000 + 1);
    return ms != 0 ? ms : 1;
}

SHMI_FN int64_t shmi_unix_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Sets *out to the CLOCK_MONOTONIC time in ts, in ns, at least 1. EINVAL: ts is not a valid time. */
SHMI_FN int shmi_deadline(const struct timespec *ts, int64_t *out)
{
    if (ts == NULL || ts->tv_nsec < 0 || ts->tv_nsec >= 1000000000)
        return EINVAL;
    if (ts->tv_sec < 0 || (ts->tv_sec == 0 && ts->tv_nsec == 0))
        *out = 1;
    else if (ts->tv_sec > INT64_MAX / 1000000000 - 1)
        *out = INT64_MAX;
    else
        *out = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
    return 0;
}

SHMI_FN struct timespec shmi_timespec(int64_t ns)
{
    struct timespec ts;
    if (ns < 1)
        ns = 1;
    ts.tv_sec = (time_t)(ns / 1000000000);
    ts.tv_nsec = (long)(ns % 1000000000);
    return ts;
}

SHMI_FN void shmi_nap(int64_t ns)
{
    struct timespec ts = shmi_timespec(ns);
    syscall(SYS_nanosleep, &ts, NULL); /* unlike nanosleep it is no cancellation point */
}

/* Makes timed sleeps of this thread end on time: otherwise the kernel may end them up to 50 us later. Returns the
 * argument for shmi_end_exact_sleeps. */
SHMI_FN long shmi_begin_exact_sleeps(void)
{
    long was = syscall(SYS_prctl, 30, 0ul, 0ul, 0ul, 0ul);           /* PR_GET_TIMERSLACK */
    if (was > 1 && syscall(SYS_prctl, 29, 1ul, 0ul, 0ul, 0ul) == 0) /* PR_SET_TIMERSLACK */
        return was;
    return 0;
}
SHMI_FN void shmi_end_exact_sleeps(long was)
{
    if (was > 0)
        (void)!syscall(SYS_prctl, 29, (unsigned long)was, 0ul, 0ul, 0ul);
}
/* As shmi_nap, but returns on time. */
SHMI_FN void shmi_exact_nap(int64_t ns)
{
    long was = shmi_begin_exact_sleeps();
    shmi_nap(ns);
    shmi_end_exact_sleeps(was);
}

/* ---- Memory for the holder of a private lock (63-recordqueue.h). It does not come from malloc: the holder may be a
 * signal handler, and the thread that it has interrupted may hold a lock of malloc. ---- */

/* Changes the size of the region old, which has the size had, to size bytes. If old is NULL, makes a new region.
 * Returns NULL if there is no memory. */
SHMI_FN void *shmi_scratch(void *old, size_t had, size_t size)
{
    void *p;
    if (old == NULL)
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        p = mremap(old, had, size, MREMAP_MAYMOVE);
    return p == MAP_FAILED ? NULL : p;
}
SHMI_FN void shmi_end_scratch(void *p, size_t size)
{
    if (p != NULL)
        munmap(p, size);
}

/* Sleeps while *addr is val, until a wake or until deadline (0: no deadline). Callers expect the results 0, EAGAIN,
 * EINTR and ETIMEDOUT. */
SHMI_FN int shmi_futex_sleep(uint32_t *addr, uint32_t val, int64_t deadline)
{
    struct timespec ts;
    int before = errno, err = 0;
    if (deadline != 0)
        ts = shmi_timespec(deadline);
    if (syscall(SYS_futex, addr, SHMI_futexWaitBitset, val, deadline != 0 ? &ts : NULL, NULL, 0xffffffffu) != 0)
        err = errno;
    errno = before;
    return err;
}

/* Wakes up to n sleepers and says how many. */
SHMI_FN int shmi_wake(uint32_t *addr, int n)
{
    int before = errno;
    long r = syscall(SYS_futex, addr, SHMI_futexWakeBitset, n, NULL, NULL, 0xffffffffu);
    errno = before;
    return r < 0 ? 0 : (int)r;
}

typedef struct shmi_waitv {
    uint64_t val;
    uint64_t addr;
    uint32_t flags;
    uint32_t zero_;
} shmi_waitv;

SHMI_FN shmi_waitv shmi_waitv_of(uint32_t *addr, uint32_t val)
{
    shmi_waitv v;
    v.val = val;
    v.addr = (uint64_t)(uintptr_t)addr;
    v.flags = 2; /* FUTEX_32 */
    v.zero_ = 0;
    return v;
}

/* A filter for system calls that the program has installed after a probe has shown futex_waitv forbids it now. A process
 * cannot remove such a filter. */
static int shmi_waitv_forbidden; /* atomic */

/* Sleeps while every word has the value val of its entry of v. After any return, the caller examines all words
 * again. */
SHMI_FN int shmi_futex_sleepv(shmi_waitv *v, unsigned n, int64_t deadline)
{
    struct timespec ts;
    int before = errno, err = 0;
    if (deadline != 0)
        ts = shmi_timespec(deadline);
    if (syscall(SYS_futex_waitv, v, n, 0, deadline != 0 ? &ts : NULL, CLOCK_MONOTONIC) < 0)
        err = errno;
    if (err == EPERM || err == ENOSYS)
        __atomic_store_n(&shmi_waitv_forbidden, 1, __ATOMIC_RELEASE);
    errno = before;
    return err;
}

/* The features of the kernel. A probe makes the system call of the feature, and normally shows whether the kernel has
 * it. If the probe fails for another reason, such as a lack of memory, the feature counts as missing, and the next open
 * or fence probes again. All fields are atomic. */
typedef struct shmi_features {
    int known; /* a bit for each feature of which a probe has shown whether the kernel has it */
    int robust, waitv, membarrier, ofd, otmpfile;
    int registered; /* this process has registered for membarrier: see shmi_register_fence; a child of fork has not */
} shmi_features;
enum { SHMI_knowRobust = 1, SHMI_knowWaitV = 2, SHMI_knowMembarrier = 4, SHMI_knowOFD = 8, SHMI_knowTmpFile = 16 };

/* Before a probe, byte locks and O_TMPFILE count as available, because each use tries them. */
static shmi_features shmi_have = {0, 0, 0, 0, 1, 1, 0};

SHMI_FN int shmi_has(const int *feature) { return __atomic_load_n(feature, __ATOMIC_ACQUIRE); }

SHMI_FN int shmi_disabled(const char *feature)
{
    const char *list = getenv("SHMSYNC_DISABLE");
    size_t n = strlen(feature);
    while (list != NULL && *list != 0) {
        const char *end = strchr(list, ',');
        const char *last = end != NULL ? end : list + strlen(list);
        while (list < last && *list == ' ')
            list++;
        while (last > list && last[-1] == ' ')
            last--;
        if ((size_t)(last - list) == n && memcmp(list, feature, n) == 0)
            return 1;
        list = end != NULL ? end + 1 : NULL;
    }
    return 0;
}

SHMI_FN int shmi_bytes_op(int fd, int op, short type, uint64_t off, uint64_t n, short *found)
{
    struct flock l;
    int before = errno, err = 0;
    memset(&l, 0, sizeof l);
    l.l_type = type;
    l.l_whence = SEEK_SET;
    l.l_start = (off_t)off;
    l.l_len = (off_t)n;
    if (fcntl(fd, op, &l) != 0)
        err = errno;
    errno = before;
    if (found != NULL)
        *found = l.l_type;
    return err;
}
SHMI_FN int shmi_byte_op(int fd, int op, short type, uint64_t off, short *found) { return shmi_bytes_op(fd, op, type, off, 1, found); }

/* Translates the errno of a failed system call: ENOTSUP if err says that this system or file system does not have the
 * call, or forbids it; otherwise err, which may be temporary. */
SHMI_FN int shmi_support_errno(int err)
{
    return err == ENOSYS || err == EPERM || err == EACCES || err == EINVAL || err == EOPNOTSUPP ? ENOTSUP : err;
}
/* Locks one byte of the file. Returns 0, EAGAIN if another open file description has the lock, or an errno as
 * shmi_support_errno does. */
SHMI_FN int shmi_lock_byte(int fd, uint64_t off)
{
    short found = F_UNLCK;
    int err = shmi_byte_op(fd, F_OFD_SETLK, F_WRLCK, off, NULL);
    /* EACCES may mean that the lock is taken, or that a security module forbids it. */
    if (err == EACCES && shmi_byte_op(fd, F_OFD_GETLK, F_WRLCK, off, &found) == 0 && found != F_UNLCK)
        return EAGAIN;
    return shmi_support_errno(err);
}
SHMI_FN void shmi_unlock_byte(int fd, uint64_t off) { shmi_byte_op(fd, F_OFD_SETLK, F_UNLCK, off, NULL); }
/* Whether an open file description other than that of fd has locked the byte; -1 if the kernel does not say. */
SHMI_FN int shmi_byte_locked(int fd, uint64_t off)
{
    short found = F_UNLCK;
    if (!shmi_has(&shmi_have.ofd) || shmi_byte_op(fd, F_OFD_GETLK, F_WRLCK, off, &found) != 0)
        return -1;
    return found != F_UNLCK;
}
/* Whether fd is still a descriptor of the file with device number dev and inode number ino. */
SHMI_FN int shmi_is_file(int fd, uint64_t dev, uint64_t ino)
{
    struct stat st;
    int before = errno, same = fstat(fd, &st) == 0 && (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
    errno = before;
    return same;
}
/* Closes fd if it is still a descriptor of the file with device number dev and inode number ino. If other code of the
 * program has closed fd by mistake, the number fd may belong to another file by now. This function is no cancellation
 * point. */
SHMI_FN void shmi_close_file(int fd, uint64_t dev, uint64_t ino)
{
    if (fd >= 0 && shmi_is_file(fd, dev, ino))
        syscall(SYS_close, fd);
}
/* Keeps the byte locks of fd's open file description until this process is gone, even if a mistake elsewhere in the
 * program closes fd. To do so, it maps a page of the file through fd: a mapping keeps the description open, as a
 * descriptor does. A child of fork does not inherit the mapping, because the child is no participant. */
SHMI_FN int shmi_pin_lock(int fd, void **page, size_t *n)
{
    struct stat st;
    *page = NULL;
    if (fstat(fd, &st) != 0)
        return errno;
    *n = (size_t)sysconf(_SC_PAGESIZE);
    if ((size_t)st.st_blksize > *n)
        *n = (size_t)st.st_blksize; /* a file of huge pages must be mapped in whole huge pages */
    *page = mmap(NULL, *n, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (*page == MAP_FAILED) {
        *page = NULL;
        return errno;
    }
    if (madvise(*page, *n, MADV_DONTFORK) != 0) {
        int err = errno;
        munmap(*page, *n);
        *page = NULL;
        return err;
    }
    return 0;
}

/* Probes a feature, unless a probe has shown already whether it is there. Several threads may do so at once. */
SHMI_FN void shmi_probe_one(int *feature, int bit, const char *name, int (*probe)(void))
{
    int err;
    if ((shmi_has(&shmi_have.known) & bit) != 0)
        return;
    err = shmi_disabled(name) ? ENOTSUP : probe();
    if (err != 0 && shmi_support_errno(err) != ENOTSUP)
        return; /* it stays unknown */
    __atomic_store_n(feature, err == 0, __ATOMIC_RELEASE);
    __atomic_fetch_or(&shmi_have.known, bit, __ATOMIC_RELEASE);
}
SHMI_FN int shmi_probe_robust(void)
{
    void *head = NULL;
    size_t size = 0;
    return syscall(SYS_get_robust_list, 0, &head, &size) == 0 && syscall(SYS_set_robust_list, head, (size_t)24) == 0 ? 0 : errno;
}
SHMI_FN int shmi_probe_waitv(void)
{
    uint32_t word = 0;
    shmi_waitv v = shmi_waitv_of(&word, 1);
    int err = shmi_futex_sleepv(&v, 1, 0);
    return err == EAGAIN ? 0 : err;
}
/* A sandbox may allow the query for the commands of membarrier, and forbid the command that shmi_fence uses. So the
 * probe executes that command. */
SHMI_FN int shmi_probe_membarrier(void)
{
    long mask = syscall(SYS_membarrier, SHMI_membarrierQuery, 0), need = SHMI_membarrierGlobal | SHMI_membarrierRegister;
    if (mask < 0)
        return errno;
    if ((mask & need) != need)
        return ENOTSUP;
    return syscall(SYS_membarrier, SHMI_membarrierGlobal, 0) == 0 ? 0 : errno;
}
SHMI_FN int shmi_probe_ofd(void)
{
    int err, fd = (int)syscall(SYS_memfd_create, "shmsync-probe", 1u);
    if (fd < 0)
        fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd < 0)
        return EMFILE; /* without a file, the probe cannot tell */
    err = shmi_byte_op(fd, F_OFD_SETLK, F_WRLCK, 0, NULL);
    close(fd);
    return err;
}
SHMI_FN int shmi_probe_tmpfile(void) { return 0; } /* no probe is needed: each creation of an arena tries O_TMPFILE */
SHMI_FN void shmi_probe_fences(void) { shmi_probe_one(&shmi_have.membarrier, SHMI_knowMembarrier, "membarrier", shmi_probe_membarrier); }
SHMI_FN void shmi_probe(void)
{
    int before = errno;
    shmi_probe_one(&shmi_have.robust, SHMI_knowRobust, "robust", shmi_probe_robust);
    shmi_probe_one(&shmi_have.waitv, SHMI_knowWaitV, "waitv", shmi_probe_waitv);
    shmi_probe_fences();
    shmi_probe_one(&shmi_have.ofd, SHMI_knowOFD, "ofd", shmi_probe_ofd);
    shmi_probe_one(&shmi_have.otmpfile, SHMI_knowTmpFile, "otmpfile", shmi_probe_tmpfile);
    errno = before;
}
/* Whether fences work here. */
SHMI_FN int shmi_have_fences(void)
{
    int before = errno;
    shmi_probe_fences();
    errno = before;
    return shmi_has(&shmi_have.membarrier);
}

/* Whether this process has registered for membarrier: see shmi_register_fence. */
SHMI_FN int shmi_is_registered(void) { return __atomic_load_n(&shmi_have.registered, __ATOMIC_ACQUIRE); }

/* Whether this process has one thread. */
SHMI_FN int shmi_alone(void)
{
    struct stat st;
    int before = errno, alone = stat("/proc/self/task", &st) == 0 && st.st_nlink == 3; /* 2 links, and 1 for each thread */
    errno = before;
    return alone;
}

/* Whether fences work here, or no probe has shown that yet. The function loads what is known first: a probe in another
 * thread stores its result before it stores that the result is known. */
SHMI_FN int shmi_may_have_fences(void) { return (shmi_has(&shmi_have.known) & SHMI_knowMembarrier) == 0 || shmi_has(&shmi_have.membarrier); }

/* Registers this process for membarrier, so that the shmi_fence of another process reaches its threads. The
 * registration is quick while the process has only one thread. Returns whether a later call may succeed although this
 * one has failed. */
SHMI_FN int shmi_register_fence(void)
{
    int before = errno, again = 0;
    if (!shmi_have_fences()) {
        again = shmi_may_have_fences();
    } else if (!shmi_is_registered()) {
        if (syscall(SYS_membarrier, SHMI_membarrierRegister, 0) == 0)
            __atomic_store_n(&shmi_have.registered, 1, __ATOMIC_RELEASE);
        else
            again = shmi_support_errno(errno) != ENOTSUP;
    }
    errno = before;
    return again;
}

/* Makes each running thread of each process that has registered for membarrier execute a full fence. Returns 0 or an
 * errno. */
SHMI_FN int shmi_fence(void)
{
    int before = errno, err = 0;
    if (!shmi_have_fences())
        return ENOTSUP;
    if (syscall(SYS_membarrier, SHMI_membarrierGlobal, 0) != 0)
        err = errno;
    errno = before;
    return err;
}

/* Lets another thread of this CPU run, and says how long that took, in ns. */
SHMI_FN int64_t shmi_yield(void)
{
    int64_t start = shmi_now();
    sched_yield();
    return shmi_now() - start;
}

SHMI_FN uint64_t shmi_fnv(const void *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    uint64_t h = UINT64_C(14695981039346656037);
    for (; n != 0; n--)
        h = (h ^ *b++) * UINT64_C(1099511628211);
    return h;
}

SHMI_COLD void shmi_abort(const char *why)
{
    fprintf(stderr, "shmsync: %s\n", why);
    abort();
}

