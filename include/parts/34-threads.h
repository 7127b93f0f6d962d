/* ---- The threads of the library. Each thread has a name, the CPU affinity that the process had when the library was
 * loaded, and the ordinary scheduling policy. Such a thread takes no signals, and does not keep the process alive. ----
 */

/* The CPUs on which the process could run when the library was loaded. */
static uint64_t shmi_first_cpus[128];
static long shmi_first_cpus_size; /* in bytes; 0 or less: not known */
static uint32_t shmi_own_threads;         /* running threads of this copy of the library: each counts itself. Atomic. */
static uint32_t shmi_own_changes;         /* how often shmi_own_threads has changed. Atomic. */
/* Set when a thread that has opened an arena ends: perhaps no thread of the application is left. Atomic. */
static int shmi_opener_ended;
static int shmi_process_ends;             /* a thread is ending the process. Atomic. */
static pthread_key_t shmi_end_key;
static int shmi_end_key_made; /* written by pthread_once */
static pthread_once_t shmi_end_key_once = PTHREAD_ONCE_INIT;
static int shmi_main_noted; /* the end of the main thread will call shmi_note_end. Atomic. */

#define SHMI_LONELY_SOON INT64_C(200000000)
#define SHMI_LONELY_EVERY INT64_C(1000000000)

SHMI_FN void shmi_ring_watchers(void);
SHMI_FN void shmi_note_end(void *value)
{
    (void)value;
    __atomic_store_n(&shmi_opener_ended, 1, __ATOMIC_SEQ_CST);
    shmi_ring_watchers();
}

SHMI_FN void shmi_make_end_key(void) { shmi_end_key_made = pthread_key_create(&shmi_end_key, shmi_note_end) == 0; }
/* Notes that the calling thread opens an arena: its end will call shmi_note_end. */
SHMI_FN void shmi_note_opener(void)
{
    pthread_once(&shmi_end_key_once, shmi_make_end_key);
    if (shmi_end_key_made && pthread_setspecific(shmi_end_key, &shmi_end_key) == 0 && syscall(SYS_gettid) == (long)getpid())
        __atomic_store_n(&shmi_main_noted, 1, __ATOMIC_RELAXED);
}

/* Runs before main, or in the dlopen that loads the library. */
__attribute__((constructor)) static void shmi_at_load(void)
{
    shmi_first_cpus_size = syscall(SYS_sched_getaffinity, 0, sizeof shmi_first_cpus, shmi_first_cpus);
}

/* struct sched_attr of the kernel, in its first version. */
typedef struct shmi_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} shmi_sched_attr;
SHMI_ASSERT(sizeof(shmi_sched_attr) == 48, "shmi_sched_attr");
/* Sets the scheduling slice of this thread to slice ns if its present slice is longer than longer_than ns. Linux
 * supports this since 6.12. Returns the slice that the thread had, or 0 if the call changed nothing. */
SHMI_FN uint64_t shmi_set_slice(uint64_t slice, uint64_t longer_than)
{
    shmi_sched_attr attr;
    uint64_t was;
    memset(&attr, 0, sizeof attr);
    if (syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof attr, 0u) != 0 || attr.policy != 0 || attr.runtime <= longer_than)
        return 0;
    was = attr.runtime;
    attr.size = (uint32_t)sizeof attr;
    attr.runtime = slice;
    return syscall(SYS_sched_setattr, 0, &attr, 0u) == 0 ? was : 0;
}

/* A thread of the library, and the settings that its creator had, such as the signal mask. The creator of the helper
 * thread is the thread that opened the arena. */
typedef struct shmi_thread_arg {
    const char *name;
    void *(*f)(void *);
    void *arg;
    sigset_t mask;
    long slack;     /* timer slack of the creator in ns; 0: this thread has the same */
    uint64_t slice; /* scheduling slice of the creator in ns; 0: this thread has the same */
} shmi_thread_arg;
static SHMI_THREAD shmi_thread_arg *shmi_thread_of_library; /* NULL in a thread of the application */

/* Gives this thread the signal mask, the timer slack and the scheduling slice that *of contains. */
SHMI_FN void shmi_restore_thread(const shmi_thread_arg *of)
{
    shmi_end_exact_sleeps(of->slack);
    if (of->slice != 0)
        (void)shmi_set_slice(of->slice, 0);
    pthread_sigmask(SIG_SETMASK, &of->mask, NULL);
}
/* In a child of fork, the only thread belongs to the application, even if a thread of the library has forked. So this
 * function undoes the changes that the thread of the library had made for itself. */
SHMI_FN void shmi_restore_child(void)
{
    const shmi_thread_arg *of = shmi_thread_of_library;
    shmi_thread_of_library = NULL;
    if (of != NULL)
        shmi_restore_thread(of);
}

SHMI_FN void shmi_count_own(int more)
{
    __atomic_fetch_add(&shmi_own_threads, (uint32_t)more, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&shmi_own_changes, 1, __ATOMIC_SEQ_CST);
}
SHMI_FN void *shmi_run_thread(void *arg)
{
    shmi_thread_arg t = *(shmi_thread_arg *)arg;
    shmi_count_own(1);
    free(arg);
    shmi_thread_of_library = &t;
    (void)!syscall(SYS_prctl, PR_SET_NAME, t.name, 0ul, 0ul, 0ul);
    if (shmi_first_cpus_size > 0)
        (void)!syscall(SYS_sched_setaffinity, 0, (size_t)shmi_first_cpus_size, shmi_first_cpus);
    return t.f(t.arg);
}
/* Starts a thread of the library; name has at most 15 characters. Returns 0 or an errno. */
SHMI_FN int shmi_start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg)
{
    struct sched_param ordinary;
    pthread_attr_t attr;
    sigset_t all, before;
    int err;
    shmi_thread_arg *t = (shmi_thread_arg *)malloc(sizeof *t);
    if (t == NULL)
        return ENOMEM;
    t->name = name;
    t->f = f;
    t->arg = arg;
    t->slack = 0;
    t->slice = 0;
    memset(&ordinary, 0, sizeof ordinary);
    pthread_attr_init(&attr);
    pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
    pthread_attr_setschedparam(&attr, &ordinary);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    t->mask = before;
    err = pthread_create(out, &attr, shmi_run_thread, t);
    if (err == EPERM) /* not every kernel lets a thread of policy SCHED_IDLE leave that policy */
        err = pthread_create(out, NULL, shmi_run_thread, t);
    if (err != 0)
        free(t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}
SHMI_FN void shmi_end_thread(void) { shmi_count_own(-1); }
/* In a child of fork, forgets the threads of the parent process. */
SHMI_FN void shmi_forget_threads(void)
{
    shmi_own_threads = 0;
    shmi_opener_ended = 0;
    shmi_process_ends = 0;
}

static shmi_thread_arg shmi_ends_as; /* the settings of the thread that ends the process; written by the thread that has set shmi_process_ends */
SHMI_FN void *shmi_end_process(void *arg)
{
    (void)arg;
    shmi_thread_of_library = NULL; /* handlers of exit belong to the application */
    shmi_restore_thread(&shmi_ends_as);
    exit(0);
}
/* Ends the process. Its handlers of exit may close arenas, and a close waits for the watcher. So the handlers run on a
 * new thread, or on this watcher if no thread can be started. */
SHMI_FN void shmi_begin_exit(void)
{
    pthread_t t;
    if (shmi_thread_of_library != NULL) {
        shmi_ends_as = *shmi_thread_of_library;
        if (shmi_start_thread(&t, "shmsync-exit", shmi_end_process, NULL) == 0) {
            pthread_detach(t);
            return;
        }
    }
    exit(0);
}

/* Whether the first thread of this process has memory. The answer is also yes if the kernel does not say. */
SHMI_FN int shmi_first_has_memory(void)
{
    char path[64], b;
    snprintf(path, sizeof path, "/proc/self/task/%d/exe", (int)getpid());
    return syscall(SYS_readlinkat, AT_FDCWD, path, &b, (size_t)1) >= 0 || (errno != ENOENT && errno != ESRCH);
}
/* Whether /proc shows the process IDs of this process's own namespace. The check needs no descriptor. */
SHMI_FN int shmi_proc_is_own(void)
{
    char id[24] = "";
    return syscall(SYS_readlinkat, AT_FDCWD, "/proc/self", id, sizeof id - 1) > 0 && atoi(id) == (int)getpid();
}
/* How many threads this process has, exactly; 0 if the count cannot be read. If the process can open no file, the
 * function uses the number of links of the directory /proc/self/task, in which each thread is a directory. */
SHMI_FN uint32_t shmi_threads_of_process(void)
{
    char path[64];
    struct stat st;
    uint64_t start, size;
    uint32_t n;
    int fd;
    snprintf(path, sizeof path, "/proc/self/task/%d/stat", (int)getpid());
    fd = shmi_open_below(AT_FDCWD, path, 0);
    if (fd < 0)
        return shmi_is_shortage(errno) && shmi_proc_is_own() && stat("/proc/self/task", &st) == 0 && st.st_nlink > 2 ? (uint32_t)st.st_nlink - 2 : 0;
    n = shmi_count_threads(fd, &start, &size);
    shmi_close_quietly(fd);
    return n;
}

/* If only threads of the library are left, ends the process, because the application has no thread any more. Does
 * nothing before the time that the parameter at contains. Returns the time of the next check, or 0 if no check is
 * needed before another thread that has opened an arena ends. */
SHMI_FN int64_t shmi_end_if_alone(int64_t at)
{
    uint32_t own, changes;
    int alone;
    int64_t soon = __atomic_load_n(&shmi_main_noted, __ATOMIC_RELAXED) ? SHMI_LONELY_SOON : SHMI_LONELY_EVERY;
    if (!__atomic_load_n(&shmi_opener_ended, __ATOMIC_SEQ_CST) || __atomic_load_n(&shmi_process_ends, __ATOMIC_SEQ_CST))
        return 0;
    if (shmi_now() < at)
        return at;
    /* The kernel counts all threads of this process at one moment, and also counts the first thread after its end. A
     * thread of the library counts itself in shmi_own_threads only while the kernel counts it, too. So if the kernel
     * counts one thread more than shmi_own_threads, which has not changed meanwhile, only the ended first thread is
     * left besides. */
    changes = __atomic_load_n(&shmi_own_changes, __ATOMIC_SEQ_CST);
    own = __atomic_load_n(&shmi_own_threads, __ATOMIC_SEQ_CST);
    alone = own != 0 && !shmi_first_has_memory() && shmi_threads_of_process() == own + 1 &&
            __atomic_load_n(&shmi_own_threads, __ATOMIC_SEQ_CST) == own && __atomic_load_n(&shmi_own_changes, __ATOMIC_SEQ_CST) == changes;
    if (alone && !__atomic_exchange_n(&shmi_process_ends, 1, __ATOMIC_SEQ_CST))
        shmi_begin_exit();
    return shmi_now() + soon;
}

/* ---- Loaded code and mapped memory ---- */

/* Keeps the code of the library loaded. A thread of the library runs until the close of its arena, and must not lose
 * its code if a program unloads the library without that close. A static program has no dladdr and dlopen, and unloads
 * nothing. */
#pragma weak dladdr
#pragma weak dlopen
SHMI_FN void shmi_stay_loaded(void)
{
    static int done; /* atomic */
    Dl_info self;
    uintptr_t program = (uintptr_t)getauxval(AT_PHDR);
    if (__atomic_exchange_n(&done, 1, __ATOMIC_RELAXED) || dladdr == NULL || dlopen == NULL)
        return;
    if (dladdr((void *)(uintptr_t)&shmi_spare, &self) != 0 && self.dli_fname != NULL && (uintptr_t)self.dli_fbase != (program & ~(uintptr_t)4095))
        (void)!dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Whether the kernel locks memory as soon as it is mapped, as after mlockall(MCL_FUTURE). The function tries to drop a
 * new page, which the kernel refuses for a locked page. It does not call mincore, because systemd's filter
 * @system-service kills a process that does. */
SHMI_FN int shmi_maps_locked(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int locked = p != MAP_FAILED && madvise(p, page, MADV_DONTNEED) != 0;
    if (p != MAP_FAILED)
        munmap(p, page);
    return locked;
}
/* Maps a file, which may be sparse. Returns MAP_FAILED on failure. Under mlockall the file stays sparse, because a
 * page is locked only when it is used first. */
SHMI_FN void *shmi_map_sparsely(size_t size, int fd)
{
    void *p;
    if (!shmi_maps_locked())
        return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    p = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0); /* the kernel locks this mapping, but allocates no page that nobody may access */
    if (p == MAP_FAILED)
        return p;
    if (syscall(SYS_mlock2, p, size, 1u) != 0) /* MLOCK_ONFAULT */
        munlock(p, size);
    if (mprotect(p, size, PROT_READ | PROT_WRITE) == 0)
        return p;
    munmap(p, size);
    return MAP_FAILED;
}

