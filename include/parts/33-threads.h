/* ---- Whether all threads of a process that is ending have given up its memory: see the Go file threads_linux.go ----
 */

/* Reads a small file of /proc; the text ends with a NUL. */
SHMI_FN ssize_t shmi_read_file(const char *path, char *b, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, b, cap - 1) : -1;
    if (fd >= 0)
        close(fd);
    b[n > 0 ? n : 0] = 0;
    return n;
}

/* Whether err says that a resource is used up for the moment. Such a failure says nothing about the system. */
SHMI_FN int shmi_is_shortage(int err) { return err == EMFILE || err == ENFILE || err == ENOMEM; }

#define SHMI_THREADS_MOST 32768
#define SHMI_THREADS_FEW 64

typedef struct shmi_tasks {
    int fd; /* the directory /proc/PID/task; it stays that of this process, even if another process gets the PID */
    struct stat st;
} shmi_tasks;

/* These functions make system calls directly, so they are no cancellation points. */
SHMI_FN int shmi_open_below(int dir, const char *path, int flags)
{
    return (int)syscall(SYS_openat, dir, path, flags | O_RDONLY | O_CLOEXEC, 0);
}
SHMI_FN void shmi_close_quietly(int fd) { syscall(SYS_close, fd); }

SHMI_FN int shmi_open_tasks(const char *process, shmi_tasks *d)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", process);
    d->fd = shmi_open_below(AT_FDCWD, path, O_DIRECTORY);
    if (d->fd < 0)
        return 0;
    if (fstat(d->fd, &d->st) == 0)
        return 1;
    shmi_close_quietly(d->fd);
    return 0;
}

/* Whether a thread has memory. The answer is also yes if the kernel does not say. A thread that has ended has none. */
SHMI_FN int shmi_may_have_memory(const shmi_tasks *d, uint32_t thread)
{
    char path[32], b;
    snprintf(path, sizeof path, "%u/exe", thread);
    return syscall(SYS_readlinkat, d->fd, path, &b, (size_t)1) >= 0 || (errno != ENOENT && errno != ESRCH);
}

/* Calls f for each thread of the process, until f returns a value other than 0, which is then the result. Returns 0 if
 * f never does, and -1 if the threads cannot be listed. */
SHMI_FN int shmi_walk_tasks(const shmi_tasks *d, int (*f)(void *arg, uint32_t thread), void *arg)
{
    enum { reclen = 16, name = 19 }; /* offsets in linux_dirent64 */
    union {
        uint64_t aligned;
        char bytes[4096];
    } b;
    long n, at;
    int err = 0;
    memset(&b, 0, sizeof b); /* MemorySanitizer does not see what a bare system call writes */
    if (lseek(d->fd, 0, SEEK_SET) != 0)
        return -1;
    for (;;) {
        n = syscall(SYS_getdents64, d->fd, b.bytes, sizeof b.bytes);
        if (n < 0)
            return -1;
        for (at = 0; at < n && err == 0;) {
            const char *e = b.bytes + at;
            uint16_t size;
            memcpy(&size, e + reclen, sizeof size);
            if (e[name] >= '1' && e[name] <= '9')
                err = f(arg, (uint32_t)strtoul(e + name, NULL, 10));
            at += size;
        }
        /* If the kernel has left room for one more entry in the buffer, the walk is over. Either the list has ended, or
         * the kernel has stopped early, because a thread has ended or this thread has got a signal. */
        if (err != 0 || n < (long)sizeof b.bytes - 64)
            return err;
    }
}

typedef struct shmi_found {
    const shmi_tasks *tasks;
    uint32_t *v, n, room;
    uint32_t at, common; /* of the second walk: the index in v at which the next search begins, and the number of threads that v contains */
} shmi_found;

/* Called for each thread of the first walk. Returns 1 if the thread may have memory, and -1 if the list has no room
 * for it. */
SHMI_FN int shmi_find_thread(void *arg, uint32_t thread)
{
    shmi_found *x = (shmi_found *)arg;
    if (shmi_may_have_memory(x->tasks, thread))
        return 1;
    if (x->n == x->room)
        return -1;
    x->v[x->n++] = thread;
    return 0;
}
/* Called for each thread of the second walk: counts the thread in x->common if the first walk has found it, too. The
 * kernel lists the threads in the same order both times, so a search begins behind the last match. */
SHMI_FN int shmi_find_again(void *arg, uint32_t thread)
{
    shmi_found *x = (shmi_found *)arg;
    uint32_t k;
    for (k = x->at; k < x->n; k++)
        if (x->v[k] == thread) {
            x->at = k + 1;
            x->common++;
            break;
        }
    return 0;
}

SHMI_FN int shmi_open_stat(const shmi_tasks *d, uint32_t thread)
{
    char path[32];
    snprintf(path, sizeof path, "%u/stat", thread);
    return shmi_open_below(d->fd, path, 0);
}
/* Returns the exact number of threads of a process, or 0 if it cannot be read. fd is the stat file of one of the
 * threads. *start is the start time of that thread, and *size the size of its memory; 0: it has none. */
SHMI_FN uint32_t shmi_count_threads(int fd, uint64_t *start, uint64_t *size)
{
    char b[1024] = {0}, *p;
    uint32_t k, threads = 0;
    ssize_t n;
    if (lseek(fd, 0, SEEK_SET) != 0)
        return 0;
    n = (ssize_t)syscall(SYS_read, fd, b, sizeof b - 1);
    b[n > 0 ? n : 0] = 0;
    p = strrchr(b, ')'); /* the name, in parentheses, may hold anything */
    for (k = 2; k < 22 && p != NULL; k++) {
        p = strchr(p + 1, ' ');
        if (k == 19 && p != NULL)
            threads = (uint32_t)strtoul(p + 1, NULL, 10);
    }
    if (p == NULL)
        return 0;
    *start = strtoull(p + 1, &p, 10);
    *size = strtoull(p, NULL, 10);
    return threads;
}

/* Whether each thread of the process has given up its memory; 0 also if /proc does not say. */
SHMI_FN int shmi_tasks_detached(const shmi_tasks *d, uint32_t leader, uint64_t start)
{
    shmi_found x;
    struct stat now;
    uint64_t started = 0, size = 0;
    uint32_t count, few[SHMI_THREADS_FEW];
    int detached = 0, stat_fd;
    if (shmi_may_have_memory(d, leader))
        return 0;
    /* The stat file is opened only after the leader has given up its memory: otherwise a read of the file would take a
     * reference to that memory. */
    stat_fd = shmi_open_stat(d, leader);
    if (stat_fd < 0)
        return 0;
    count = shmi_count_threads(stat_fd, &started, &size);
    memset(&x, 0, sizeof x);
    x.tasks = d;
    x.v = few;
    x.room = SHMI_THREADS_FEW;
    if (count > SHMI_THREADS_FEW) {
        /* Memory from mmap, not malloc: a signal handler may make this call. */
        x.v = (uint32_t *)mmap(NULL, SHMI_THREADS_MOST * sizeof *x.v, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        x.room = SHMI_THREADS_MOST;
    }
    if (count == 0 || started != start || (void *)x.v == MAP_FAILED) {
        /* the answer is 0 */
    } else if (count == 1 && size == 0) {
        detached = 1; /* one read of the stat file shows both: there is one thread, and it has no memory */
    } else if (shmi_walk_tasks(d, shmi_find_thread, &x) == 0) {
        count = shmi_count_threads(stat_fd, &started, &size);
        detached = count != 0 && started == start && shmi_walk_tasks(d, shmi_find_again, &x) == 0 && x.common == count;
    }
    if (x.room == SHMI_THREADS_MOST && (void *)x.v != MAP_FAILED)
        munmap(x.v, SHMI_THREADS_MOST * sizeof *x.v);
    shmi_close_quietly(stat_fd);
    return detached && fstat(d->fd, &now) == 0 && now.st_dev == d->st.st_dev && now.st_ino == d->st.st_ino;
}

/* Whether /proc is that of this process's pid namespace. In that case the line NSpid of /proc/self/status has one
 * number only, which is the process ID. Returns -1 with an errno if a shortage prevents the answer. */
SHMI_FN int shmi_proc_has_pid(void)
{
    const size_t cap = 4096; /* too large for a small stack */
    char *b = (char *)malloc(cap), pid[16], *p = NULL;
    int err = b == NULL ? ENOMEM : shmi_read_file("/proc/self/status", b, cap) <= 0 ? errno : 0, has = 0;
    if (err == 0 && (p = strstr(b, "\nNSpid:")) != NULL) {
        for (p += 7; *p == ' ' || *p == '\t'; p++) {
        }
        snprintf(pid, sizeof pid, "%d\n", (int)getpid()); /* in an inner namespace, NSpid has more than this number */
        has = strncmp(p, pid, strlen(pid)) == 0;
    }
    free(b);
    errno = err;
    return has ? 1 : shmi_is_shortage(err) ? -1 : 0;
}
/* Whether /proc is that of this process's pid namespace, and shows that a living thread has memory. *dev is the device
 * number of /proc. Returns -1 with an errno if a shortage prevents the answer. */
SHMI_FN int shmi_probe_threads(uint64_t *dev)
{
    shmi_tasks d;
    uint64_t start, size;
    int ok, stat_fd;
    if (!shmi_has(&shmi_have.waitv) || shmi_disabled("threads"))
        return 0;
    ok = shmi_proc_has_pid();
    if (ok <= 0)
        return ok;
    ok = 0;
    if (!shmi_open_tasks("self", &d))
        return shmi_is_shortage(errno) ? -1 : 0;
    *dev = (uint64_t)d.st.st_dev;
    stat_fd = shmi_open_stat(&d, (uint32_t)getpid());
    if (stat_fd >= 0) {
        ok = shmi_may_have_memory(&d, (uint32_t)getpid()) && shmi_count_threads(stat_fd, &start, &size) != 0;
        shmi_close_quietly(stat_fd);
    } else if (shmi_is_shortage(errno)) {
        ok = -1;
    }
    shmi_close_quietly(d.fd);
    return ok;
}

/* Whether no process of this process's pid namespace has the number pid. A process keeps its number until all its
 * threads have given up its memory and its parent has waited for it. */
SHMI_FN int shmi_no_process(uint32_t pid)
{
    int before = errno, r = kill((pid_t)pid, 0) != 0 && errno == ESRCH;
    errno = before;
    return r;
}

SHMI_FN int shmi_detached(uint64_t dev, uint32_t pid, uint64_t start)
{
    char name[16];
    shmi_tasks d;
    int before = errno, detached;
    snprintf(name, sizeof name, "%u", pid);
    if (!shmi_open_tasks(name, &d)) {
        errno = before;
        return 0;
    }
    detached = (uint64_t)d.st.st_dev == dev && shmi_tasks_detached(&d, pid, start);
    shmi_close_quietly(d.fd);
    errno = before;
    return detached;
}

