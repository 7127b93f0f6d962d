/* Tests calls while the system refuses what they need for a time: scarce VERB NAME. Exit status 0 if all results were
 * right. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <unistd.h>

static int lock_errno, ask_errno; /* what the kernel answers to F_OFD_SETLK and F_OFD_GETLK, or 0 */
static int flock_errno, mmap_errno, thread_errno;
static int threads_left; /* how many threads start before the kernel answers thread_errno */
static long lacking = -1; /* the number of a system call that the kernel refuses, or -1 */
static int lacking_errno = ENOMEM;
static int lacked; /* how often the library has made this call; atomic */
static int flocks, only_gate;
static const char *other_file; /* what /proc/thread-self/fd shows instead of each file, or NULL */
static int refuses(int op, ...)
{
    int err = op == F_OFD_SETLK ? lock_errno : op == F_OFD_GETLK ? ask_errno : 0;
    if (err != 0 && only_gate) {
        va_list rest;
        va_start(rest, op);
        if (va_arg(rest, struct flock *)->l_start != (off_t)1 << 62)
            err = 0;
        va_end(rest);
    }
    if (err != 0)
        errno = err;
    return err != 0;
}
static int lacks(long number, ...)
{
    if (number != lacking)
        return 0;
    __atomic_add_fetch(&lacked, 1, __ATOMIC_SEQ_CST);
    errno = lacking_errno;
    return 1;
}
static int move_fails; /* a move of memory fails after the kernel has unmapped the place */
static void *taken;     /* what another thread has mapped there */
static void *moves(void *from, size_t old, size_t n, int flags, ...)
{
    va_list rest;
    void *to;
    if ((flags & MREMAP_FIXED) == 0)
        return (mremap)(from, old, n, flags);
    va_start(rest, flags);
    to = va_arg(rest, void *);
    va_end(rest);
    if (!move_fails)
        return (mremap)(from, old, n, flags, to);
    taken = (mmap)(to, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    errno = ENOMEM;
    return MAP_FAILED;
}
#define fcntl(fd, ...) (refuses(__VA_ARGS__) ? -1 : (fcntl)(fd, __VA_ARGS__))
#define open(path, ...) ((open)(other_file != NULL && strncmp(path, "/proc/thread-self/fd/", 21) == 0 ? other_file : (path), __VA_ARGS__))
#define flock(fd, op) (flocks++, flock_errno != 0 ? (errno = flock_errno, -1) : (flock)(fd, op))
#define pthread_create(...) (thread_errno != 0 && threads_left-- <= 0 ? thread_errno : (pthread_create)(__VA_ARGS__))
#define mmap(...) (mmap_errno != 0 ? (errno = mmap_errno, MAP_FAILED) : (mmap)(__VA_ARGS__))
#define mremap(...) moves(__VA_ARGS__)
#define syscall(...) (lacks(__VA_ARGS__, 0) ? -1L : (syscall)(__VA_ARGS__))
static int no_path; /* there is no memory for the next copy of a string */
#undef strdup
#define strdup(s) (no_path ? (no_path = 0, NULL) : (strdup)(s))
static size_t no_room_for; /* the size of an element of an array for which there is no memory, or 0 */
#define calloc(n, size) (no_room_for != 0 && (size) == no_room_for ? NULL : (calloc)(n, size))
#define SHMI_GENERATIONS_MOST 8u
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "check.h"

static const char *arena_name;
static char arena_path[PATH_MAX];

/* From now on this process may open that many further files. */
static void leave_descriptors(int n)
{
    struct rlimit limit;
    int fd = dup(0);
    CHECK(fd >= 0, 1);
    close(fd);
    CHECK(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = (rlim_t)(fd + n);
    CHECK(setrlimit(RLIMIT_NOFILE, &limit), 0);
}
static void allow_descriptors(void)
{
    struct rlimit limit;
    CHECK(getrlimit(RLIMIT_NOFILE, &limit), 0);
    limit.rlim_cur = limit.rlim_max;
    CHECK(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

static int firsts;
static int count_first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)e;
    (void)arg;
    firsts++;
    return 0;
}
static const shmsync_arena_options *with_first(void)
{
    static shmsync_arena_options o;
    o.on_first = count_first;
    return &o;
}

static int says(const char *what)
{
    if (strstr(shmsync_error(), what) != NULL)
        return 1;
    fprintf(stderr, "%s does not say %s\n", shmsync_error(), what);
    return 0;
}

/* The first open of the process finds the table of descriptors full. The next one has a byte lock. */
static void first_open(void)
{
    shmsync_arena *a;
    leave_descriptors(0);
    CHECK(shmsync_arena_open(arena_name, with_first(), &a), EMFILE);
    allow_descriptors();
    CHECK(shmsync_arena_open(arena_name, with_first(), &a), 0);
    CHECK(firsts, 1);
    CHECK(shmsync_arena_close(a), 0);
}

/* An open that gets too few descriptors fails. It does not join without a byte lock, or without an identity. */
static void few_descriptors(void)
{
    shmsync_arena *a, *b;
    int n, err;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    for (n = 0; n < 10; n++) {
        leave_descriptors(n);
        err = shmsync_arena_open(arena_name, NULL, &a);
        allow_descriptors();
        if (err == 0)
            break;
        CHECK(err, EMFILE);
        CHECK(shmi_attached == NULL, 1);
    }
    CHECK(n > 1 && n < 10, 1);
    CHECK((a->caps & SHMI_capOFD) != 0, 1);
    CHECK(shmi_ld64(shmi_slot64(a, a->my_slot, SHMI_slotStart)) != 0, 1);
    CHECK(shmi_ld64(shmi_slot64(a, a->my_slot, SHMI_slotBootID)) != 0, 1);
    CHECK(a->proc_dev != 0, 1);
    CHECK(shmsync_arena_open(arena_name, NULL, &b), 0);
    CHECK(shmsync_arena_close(b), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* A process that may run on one CPU only, and finds the table of descriptors full, learns later how many CPUs the machine
 * has. Otherwise it would never spin again, although its peers run on other CPUs. */
static void number_of_cpus(void)
{
    cpu_set_t here;
    int one = shmi_one_cpu(), cpu = sched_getcpu();
    CHECK(cpu >= 0, 1);
    CPU_ZERO(&here);
    CPU_SET(cpu, &here);
    CHECK(sched_setaffinity(0, sizeof here, &here), 0);
    shmi_one_cpu_ = 0; /* nothing is known yet */
    leave_descriptors(0);
    shmi_one_cpu();
    CHECK(errno = 0, 0);
    CHECK(shmi_one_cpu(), 0);
    CHECK(errno, 0);
    allow_descriptors();
    CHECK(shmi_one_cpu(), one);
    CHECK(shmi_one_cpu_, one ? 2 : 1);
}

/* A process that cannot open the file twice is not in, so the next one begins an epoch. */
static void one_descriptor(void)
{
    shmsync_arena *a;
    int ready[2], done[2], status, err;
    char b;
    pid_t pid;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(pipe(ready), 0);
    CHECK(pipe(done), 0);
    pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        leave_descriptors(1);
        err = shmsync_arena_open(arena_name, NULL, &a);
        CHECK(write(ready[1], "x", 1), 1);
        CHECK(read(done[0], &b, 1), 1);
        _exit(err);
    }
    CHECK(read(ready[0], &b, 1), 1);
    CHECK(shmsync_arena_open(arena_name, with_first(), &a), 0);
    CHECK(write(done[1], "x", 1), 1);
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(firsts, 1);
    CHECK(WIFEXITED(status) ? WEXITSTATUS(status) : -1, EMFILE);
    CHECK(shmsync_arena_close(a), 0);
}

/* The kernel refuses each byte lock, although no process has it. The open says so, and does not call the arena full. */
static void no_locks(void)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    lock_errno = ENOLCK;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOLCK);
    CHECK(says("byte lock"), 1);
    CHECK(shmsync_arena_remove(arena_name), ENOLCK);
    lock_errno = EACCES; /* what a security module answers */
    CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOTSUP);
    CHECK(says("byte lock"), 1);
    CHECK(shmsync_arena_remove(arena_name), ENOTSUP);
    lock_errno = EAGAIN; /* another process has each lock */
    CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOSPC);
    lock_errno = 0;
    CHECK(shmsync_arena_open(arena_name, with_first(), &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* The kernel refuses the byte lock that is the gate. The open says so, and leaves no slot behind. */
static void no_gate(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int i;
    memset(&o, 0, sizeof o);
    o.max_participants = 2;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    lock_errno = ENOLCK;
    only_gate = 1;
    for (i = 0; i < 3; i++) {
        CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOLCK);
        CHECK(says("the gate"), 1);
    }
    lock_errno = only_gate = 0;
    CHECK(shmsync_arena_open(arena_name, with_first(), &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* How many of the first 256 descriptors are open. */
static int descriptors(void)
{
    int fd, n = 0;
    for (fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}
/* /proc shows another file. The open takes no byte lock in it, and closes it. */
static void other_proc(void)
{
    char path[PATH_MAX];
    shmsync_arena *a;
    int other, before;
    snprintf(path, sizeof path, "%s.other", arena_path);
    other = (open)(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(other >= 0, 1);
    CHECK(ftruncate(other, 4096), 0);
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0); /* probes the kernel */
    CHECK(shmsync_arena_close(a), 0);
    before = descriptors();
    other_file = path;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(a->lock_fd, -1);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(descriptors(), before);
    CHECK(unlink(path), 0);
}

/* On a file system without byte locks, an open joins without one. */
static void strange_file_system(void)
{
    static const int errs[] = {ENOSYS, EINVAL, EOPNOTSUPP, EPERM};
    shmsync_arena *a;
    size_t i;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0); /* probes the kernel */
    CHECK(shmsync_arena_close(a), 0);
    for (i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        lock_errno = ask_errno = errs[i];
        CHECK(shmsync_arena_open(arena_name, with_first(), &a), ENOTSUP);
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        CHECK(a->caps & SHMI_capOFD, 0);
        CHECK(shmsync_arena_close(a), 0);
        CHECK(shmsync_arena_remove(arena_name), ENOTSUP);
    }
    lock_errno = ask_errno = 0;
}

/* Opens that can start no thread use up no slot. */
static void no_threads(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int i;
    memset(&o, 0, sizeof o);
    o.max_participants = 2;
    o.size = 1 << 20;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    thread_errno = EAGAIN;
    for (i = 0; i < 40; i++)
        CHECK(shmsync_arena_open(arena_name, NULL, &a), EAGAIN);
    CHECK(says("helper thread"), 1);
    thread_errno = 0;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmi_id_gen(a->self), 2);
    CHECK(shmsync_arena_close(a), 0);
}

static void *exit_thread(void *arg)
{
    pthread_exit(arg);
}
/* A process ends with its last thread, even if it can open no file. */
static void last_thread(void)
{
    shmsync_arena *a;
    siginfo_t ended;
    pid_t pid = fork();
    if (pid == 0) {
        pthread_t t;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(pthread_create(&t, NULL, exit_thread, NULL), 0); /* makes glibc load what pthread_exit needs */
        CHECK(pthread_join(t, NULL), 0);
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        leave_descriptors(0);
        pthread_exit(NULL);
    }
    alarm(20);
    CHECK(waitid(P_PID, (id_t)pid, &ended, WEXITED), 0);
    CHECK(ended.si_code, CLD_EXITED);
    CHECK(ended.si_status, 0);
}

/* How many threads the process says that it has, with and without descriptors; own: whether /proc has its process IDs. If
 * /proc is that of another namespace, the paths that have this process's ID belong to no process, or to another one. A
 * process that can open no file does not learn that from an open. If it went by the number of links alone, it could take
 * its first thread for ended, and end. */
static void counts_threads(int own)
{
    CHECK(shmi_proc_is_own(), own);
    CHECK(shmi_threads_of_process(), own);
    leave_descriptors(0);
    CHECK(shmi_proc_is_own(), own);
    CHECK(shmi_threads_of_process(), own);
}
static void own_namespace(void) { counts_threads(1); }
static void other_namespace(void)
{
    CHECK(getpid(), 1);
    counts_threads(0);
}

/* The last close of an ephemeral arena removes the file, even if the process can open one file only. */
static void last_close(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int n;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    o.size = 1 << 20;
    for (n = 0; n < 3; n++) {
        CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
        CHECK(access(arena_path, F_OK), 0);
        leave_descriptors(n);
        CHECK(shmsync_arena_close(a), 0);
        allow_descriptors();
        CHECK(access(arena_path, F_OK), -1);
    }
}

/* The last close of an ephemeral arena says that it could not remove the file. It leaves nevertheless. */
static void stuck_file(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    mmap_errno = ENOMEM; /* of the removal, too */
    CHECK(shmsync_arena_close(a), ENOMEM);
    mmap_errno = 0;
    CHECK(shmsync_arena_close(a), EBADF);
    CHECK(access(arena_path, F_OK), 0);
    CHECK(shmsync_arena_remove(arena_name), 0);
}

/* A new file under a temporary name cannot be locked. */
static void no_flock(void)
{
    shmsync_arena *a;
    flock_errno = ENOLCK;
    CHECK(setenv("SHMSYNC_DISABLE", "otmpfile", 1), 0);
    CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOLCK);
    CHECK(flocks < 10, 1); /* more than one if other programs have left temporary files */
    CHECK(access(arena_path, F_OK), -1);
    flock_errno = 0;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* A creator whose file needs a name from the start removes the temporary files of dead creators, and no others. */
static void sweep(void)
{
    static const char *const others[] = {".x.12.0123456789abcdef.tmp", ".x.12.0123456789abcdeF.tmp~", "x.12.0123456789abcdef.tmp~", ".12.0123456789abcdef.tmp~",
                                         ".x.y.0123456789abcdef.tmp~", ".tmp~", "0123456789abcdef.tmp~"};
    char dir[] = "/tmp/scarce.XXXXXX", path[PATH_MAX];
    shmsync_arena *a;
    size_t i, n = sizeof others / sizeof others[0];
    int live, fd;
    CHECK(mkdtemp(dir) != NULL, 1);
    CHECK(setenv("SHMSYNC_DISABLE", "otmpfile", 1), 0);
    snprintf(path, sizeof path, "%s/.x.4711.0123456789abcdef.tmp~", dir);
    CHECK((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0, 1);
    close(fd);
    snprintf(path, sizeof path, "%s/.x.4712.0123456789abcdef.tmp~", dir);
    CHECK((live = open(path, O_RDWR | O_CREAT, 0600)) >= 0, 1);
    CHECK(flock(live, LOCK_EX), 0);
    for (i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, others[i]);
        CHECK((fd = open(path, O_RDWR | O_CREAT, 0600)) >= 0, 1);
        close(fd);
    }
    snprintf(path, sizeof path, "%s/arena", dir);
    CHECK(shmsync_arena_open(path, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(unlink(path), 0);
    for (i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, others[i]);
        CHECK(unlink(path), 0);
    }
    snprintf(path, sizeof path, "%s/.x.4712.0123456789abcdef.tmp~", dir);
    CHECK(unlink(path), 0);
    CHECK(rmdir(dir), 0); /* nothing else is left */
}

/* The kernel answers EAGAIN to a mapping that RLIMIT_MEMLOCK does not permit. */
static void locked_memory(void)
{
    shmsync_arena *a;
    mmap_errno = EAGAIN;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), EAGAIN);
    CHECK(says("RLIMIT_MEMLOCK"), 1);
    mmap_errno = 0;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* For a time, the kernel has no memory for a wait for several words. The next open finds that the kernel can do it. */
static void probes(void)
{
    shmsync_arena *a;
    lacking = SYS_futex_waitv;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(a->caps & SHMI_capWaitV, 0);
    CHECK(shmsync_arena_close(a), 0);
    lacking = -1;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK((a->caps & SHMI_capWaitV) != 0, 1);
    CHECK(shmsync_arena_close(a), 0);
}
/* A quota leaves no room for a new arena. */
static void quota(void)
{
    shmsync_arena *a;
    shmsync_offset off;
    lacking = SYS_fallocate;
    lacking_errno = EDQUOT;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), ENOSPC);
    lacking = -1;
    CHECK(access(arena_path, F_OK), -1);
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    lacking = SYS_fallocate;
    CHECK(shmsync_alloc(a, 1 << 20, &off), ENOSPC);
    lacking = -1;
    CHECK(shmsync_arena_close(a), 0);
}
/* Other code of the program has closed the descriptors of an arena. The library says whether the file is gone, or cannot be
 * opened again for a time. */
static void lost_descriptors(void)
{
    shmsync_arena *a;
    shmsync_offset off;
    int fd, lock_fd;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    fd = a->fd;
    lock_fd = a->lock_fd;
    CHECK(dup2(0, fd), fd);
    CHECK(dup2(0, lock_fd), lock_fd);
    leave_descriptors(0);
    CHECK(shmsync_alloc(a, 1 << 20, &off), EMFILE);
    CHECK(says("could not open the file again"), 1);
    allow_descriptors();
    CHECK(shmsync_alloc(a, 1 << 20, &off), 0);
    CHECK(unlink(arena_path), 0);
    CHECK(shmsync_alloc(a, 1 << 20, &off), ESTALE);
    CHECK(says("its path does not lead to it"), 1);
}
/* A process that can open no file does not take the usual overflow uid for that of the system. */
static void overflow_uid(void)
{
    int64_t uid;
    leave_descriptors(0);
    CHECK(shmi_overflow_uid(), -1);
    CHECK(errno, EMFILE);
    allow_descriptors();
    uid = shmi_overflow_uid();
    CHECK(uid >= 0, 1);
    leave_descriptors(0);
    CHECK(shmi_overflow_uid(), uid); /* it is remembered */
}
static int fail_first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)e;
    (void)arg;
    return EIO;
}
/* An open that has created an arena fails. An ephemeral arena is gone then, and another one stays. */
static void failed_first(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int before;
    memset(&o, 0, sizeof o);
    o.on_first = fail_first;
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(shmsync_arena_open(arena_name, &o, &a), EIO);
    CHECK(says("on_first failed"), 1);
    CHECK(access(arena_path, F_OK), -1);
    o.lifetime = SHMSYNC_LIFETIME_DURABLE;
    CHECK(shmsync_arena_open(arena_name, &o, &a), EIO);
    CHECK(access(arena_path, F_OK), 0);
    CHECK(unlink(arena_path), 0);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    before = descriptors();
    thread_errno = EAGAIN;
    CHECK(shmsync_arena_open(arena_name, &o, &a), EAGAIN); /* this fails before on_first */
    CHECK(access(arena_path, F_OK), -1);
    CHECK(descriptors(), before);
}
/* There is no memory, or there are too few descriptors, for an open that has created an ephemeral arena. The file is gone
 * then. */
static void failed_open(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int before, n, err;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0); /* probes the kernel */
    CHECK(shmsync_arena_close(a), 0);
    CHECK(unlink(arena_path), 0);
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    before = descriptors();
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    no_path = 1;
    CHECK(shmsync_arena_open(arena_name, &o, &a), ENOMEM);
    CHECK(access(arena_path, F_OK), -1);
    CHECK(descriptors(), before);
    for (o.recreate = 0; o.recreate <= 7; o.recreate += 7) {
        for (n = 0; n < 10; n++) {
            leave_descriptors(n);
            err = shmsync_arena_open(arena_name, &o, &a);
            allow_descriptors();
            if (err == 0)
                break;
            CHECK(err, EMFILE);
            CHECK(access(arena_path, F_OK), -1);
            CHECK(descriptors(), before);
        }
        CHECK(n > 1 && n < 10, 1);
        CHECK(shmsync_arena_close(a), 0);
    }
}
/* A close gives its addresses to private memory. The kernel unmaps them and then fails to move the memory there. By then,
 * another thread uses the addresses, and the close leaves them alone. */
static void lost_addresses(void)
{
    shmsync_arena *a;
    uint64_t size;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    size = shmsync_arena_size(a);
    move_fails = 1;
    CHECK(shmsync_arena_close(a), 0);
    move_fails = 0;
    CHECK(taken != NULL && taken != MAP_FAILED, 1);
    CHECK(madvise(taken, size, MADV_NORMAL), 0); /* fails if a part is not mapped */
}
/* A Release that would make too many permits refuses before it changes the permits, so no death can leave a sum that has
 * wrapped. The page of the permits cannot be written during the call. */
static void wrapped_permits(void)
{
    shmsync_arena *a;
    shmsync_signalwaker w;
    unsigned char *page;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmsync_signalwaker_open(a, "w", NULL, &w), 0);
    CHECK(shmsync_signalwaker_release(&w, INT64_MAX), 0);
    CHECK(shmsync_signalwaker_release(&w, INT64_MAX), 0);
    page = (unsigned char *)((uintptr_t)&w.impl->w->permits & ~(uintptr_t)(a->page - 1));
    CHECK(mprotect(page, (size_t)a->page, PROT_READ), 0);
    CHECK(shmsync_signalwaker_release(&w, 2), EINVAL);
    CHECK(mprotect(page, (size_t)a->page, PROT_READ | PROT_WRITE), 0);
    CHECK(shmsync_signalwaker_permits(&w), UINT64_MAX - 1);
    CHECK(shmsync_arena_close(a), 0);
}
/* All slots are used up, and there is no memory for the search that would renew them. The open says so. */
static void used_up(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int err, n = 0;
    memset(&o, 0, sizeof o);
    o.max_participants = 1;
    no_room_for = sizeof(shmi_id_search);
    while ((err = shmsync_arena_open(arena_name, &o, &a)) == 0) {
        CHECK(shmsync_arena_close(a), 0);
        CHECK(++n < 100, 1);
    }
    CHECK(err, ENOSPC);
    CHECK(says("could not be renewed now: no memory"), 1);
    no_room_for = 0;
    CHECK(shmsync_arena_open(arena_name, &o, &a), ENOSPC);
    CHECK(says("too many bytes that may be IDs"), 1); /* SHMI_GENERATIONS_MOST leaves no generations */
}

/* Starts a process that locks the mutex m, and ends when the descriptor that the call returns is closed. */
static int start_holder(pid_t *pid)
{
    int ready[2], done[2];
    char b;
    CHECK(pipe(ready), 0);
    CHECK(pipe(done), 0);
    *pid = fork();
    if (*pid == 0) {
        shmsync_arena *a;
        shmsync_mutex m;
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(done[1]);
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(write(ready[1], "x", 1), 1);
        CHECK(read(done[0], &b, 1), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    close(done[0]);
    CHECK(read(ready[0], &b, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return done[1];
}
static void *wait_for_ever(void *arg)
{
    pause();
    return arg;
}
/* For a time, the kernel has no memory for the registration for fences, or no thread can start that makes it. The death
 * watcher makes it later. So does a further open. */
static void late_fences(void)
{
    shmsync_arena *a, *b;
    pthread_t t;
    int by;
    CHECK(pthread_create(&t, NULL, wait_for_ever, NULL), 0); /* otherwise the open registers the process */
    shmi_probe();
    for (by = 0; by < 3; by++) {
        shmi_have.registered = 0; /* as in a process that has not registered yet */
        if (by == 0) {
            lacked = 0;
            lacking = SYS_membarrier;
        } else {
            thread_errno = EAGAIN;
            threads_left = 1; /* the death watcher */
        }
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        while (!__atomic_load_n(&shmi_register_failed, __ATOMIC_ACQUIRE))
            shmi_nap(1000000);
        CHECK(shmi_is_registered(), 0);
        CHECK(__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE), 0);
        lacking = -1;
        thread_errno = 0;
        if (by == 2) {
            CHECK(shmsync_arena_open(arena_name, NULL, &b), 0);
            CHECK(b == a, 1);
            pthread_mutex_lock(&shmi_attached_lock);
            CHECK(shmi_registering || shmi_is_registered(), 1);
            pthread_mutex_unlock(&shmi_attached_lock);
            CHECK(shmsync_arena_close(b), 0);
        }
        while (!__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE))
            shmi_nap(1000000);
        CHECK(shmi_is_registered(), 1);
        CHECK(shmsync_arena_close(a), 0);
    }
}
/* No thread can start that registers the process. The process leaves, and has one thread. Its next open registers it, and
 * no death watcher tries again. */
static void registered_open(void)
{
    shmsync_arena *a;
    shmi_probe();
    lacking = SYS_membarrier; /* of the first open */
    thread_errno = EAGAIN;
    threads_left = 1; /* the death watcher */
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmi_is_registered(), 0);
    CHECK(__atomic_load_n(&shmi_register_failed, __ATOMIC_ACQUIRE), 1);
    CHECK(shmsync_arena_close(a), 0);
    lacking = -1;
    thread_errno = 0;
    while (!shmi_alone())
        shmi_nap(1000000);
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    CHECK(shmi_is_registered(), 1);
    CHECK(__atomic_load_n(&shmi_register_failed, __ATOMIC_ACQUIRE), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* A filter forbids waits for several words while the arena is open. Each thread tries such a wait once more at most. It does
 * not try again and again. */
static void forbidden_waits(void)
{
    static const int errs[] = {EPERM, ENOSYS};
    shmsync_arena *a;
    shmsync_mutex m;
    struct timespec until;
    int done, status;
    pid_t pid;
    size_t i;
    for (i = 0; i < sizeof errs / sizeof errs[0]; i++) {
        done = start_holder(&pid);
        shmi_waitv_forbidden = 0;
        CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK((a->caps & SHMI_capWaitV) != 0, 1);
        lacking_errno = errs[i];
        lacked = 0;
        lacking = SYS_futex_waitv;
        until = shmi_timespec(shmi_now() + 500000000);
        CHECK(shmsync_mutex_timedlock(&m, &until), ETIMEDOUT);
        CHECK(lacked >= 1 && lacked <= 2, 1); /* this thread and the death watcher */
        lacking = -1;
        close(done);
        CHECK(waitpid(pid, &status, 0), pid);
        CHECK(status, 0);
        CHECK(shmsync_mutex_close(&m), 0);
        CHECK(shmsync_arena_close(a), 0);
    }
}

/* For a time, the kernel has no memory for a fence. The next fence finds that the kernel can do it. */
static void probe_of_fences(void)
{
    lacking = SYS_membarrier;
    shmi_probe();
    CHECK(shmi_fence(), ENOTSUP);
    lacking = -1;
    CHECK(shmi_fence(), 0);
}

/* Another program has put something else at the path of an ephemeral arena. The last close leaves it there. */
static void other_entry(void)
{
    enum { a_directory, a_link, a_socket, a_fifo, a_file, entries };
    int kind, s;
    for (kind = 0; kind < entries; kind++) {
        shmsync_arena_options o;
        struct stat before, after;
        struct sockaddr_un at;
        shmsync_arena *a;
        memset(&o, 0, sizeof o);
        o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
        o.size = 1 << 20;
        CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
        CHECK(unlink(arena_path), 0);
        switch (kind) {
        case a_directory:
            CHECK(mkdir(arena_path, 0700), 0);
            break;
        case a_link:
            CHECK(symlink(arena_path, arena_path), 0);
            break;
        case a_socket:
            memset(&at, 0, sizeof at);
            at.sun_family = AF_UNIX;
            CHECK(strlen(arena_path) < sizeof at.sun_path, 1);
            strcpy(at.sun_path, arena_path);
            CHECK((s = socket(AF_UNIX, SOCK_STREAM, 0)) >= 0, 1);
            CHECK(bind(s, (struct sockaddr *)&at, sizeof at), 0);
            close(s);
            break;
        case a_fifo:
            CHECK(mkfifo(arena_path, 0600), 0);
            break;
        default:
            CHECK((s = open(arena_path, O_RDWR | O_CREAT | O_EXCL, 0600)) >= 0, 1);
            close(s);
        }
        CHECK(lstat(arena_path, &before), 0);
        CHECK(shmsync_arena_close(a), 0);
        CHECK(lstat(arena_path, &after), 0);
        CHECK(after.st_ino, before.st_ino);
        CHECK(remove(arena_path), 0);
    }
}

/* Makes a hole of each page of zeros of a file, as in a sparse copy of the file. */
static void dig_holes(const char *path)
{
    static const char zeros[4096];
    char page[sizeof zeros];
    off_t at;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, 1);
    for (at = 0; pread(fd, page, sizeof page, at) == (ssize_t)sizeof page; at += (off_t)sizeof page)
        if (memcmp(page, zeros, sizeof page) == 0)
            CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, (off_t)sizeof page), 0);
    close(fd);
}
/* The file of an arena has holes, and its file system, which this test has for itself, is full. The arena can be removed,
 * unless a process has it open. */
static void sparse_file(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    char path[PATH_MAX];
    uint64_t slot;
    int fd, filler;
    snprintf(path, sizeof path, "%s.filler", arena_name);
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 64;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    slot = shmi_slot(a, 64);
    CHECK(shmsync_arena_close(a), 0);
    dig_holes(arena_name);
    filler = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    CHECK(filler >= 0, 1);
    while (write(filler, path, sizeof path) > 0) {
    }
    CHECK(errno, ENOSPC);
    fd = open(arena_name, O_RDWR | O_CLOEXEC);
    CHECK(fd >= 0, 1);
    CHECK(shmi_lock_byte(fd, slot), 0);
    CHECK(shmsync_arena_remove(arena_name), EBUSY);
    CHECK(says("a process has it open"), 1);
    shmi_unlock_byte(fd, slot);
    CHECK(shmi_lock_byte(fd, SHMI_GATE_BYTE), 0);
    CHECK(shmsync_arena_remove(arena_name), EBUSY);
    CHECK(says("gate"), 1);
    shmi_unlock_byte(fd, SHMI_GATE_BYTE);
    CHECK(shmsync_arena_remove(arena_name), 0);
    CHECK(access(arena_name, F_OK), -1);
}

enum { a_block, a_span, a_node, sorts };
static int claim_one(shmsync_arena *a, int sort)
{
    shmsync_offset off;
    shmi_node *node;
    return sort == a_node ? shmi_claim_node(a, &off, &node) : shmsync_alloc(a, sort == a_block ? 64 : 2 * SHMI_chunkSize, &off);
}
/* The arena is full, but for a block that a peer guarded when its object was deleted. When the guard has ended, the first
 * claim uses the block. */
static void guarded_block(void)
{
    enum { peer = 9 };
    static const uint64_t sizes[] = {2 * SHMI_chunkSize, SHMI_chunkSize, 4096, 64};
    int sort;
    for (sort = 0; sort < sorts; sort++) {
        shmsync_arena_options o;
        shmsync_arena *a;
        shmsync_offset off;
        shmi_block b;
        size_t i;
        int err = 0;
        memset(&o, 0, sizeof o);
        o.size = 3 << 20;
        CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
        pthread_mutex_lock(&a->reaping); /* the death watcher does not reap the peer, which the test makes up */
        shmi_st32(shmi_slot32(a, peer, SHMI_slotState), shmi_slot_word(SHMI_phaseLive, 1));
        CHECK(shmsync_alloc(a, 2 * SHMI_chunkSize, &off), 0);
        shmi_st64(shmi_slot64(a, peer, SHMI_slotOpening), off);
        CHECK(shmi_locate(a, off, &b), 1);
        pthread_mutex_lock(&a->handles);
        shmi_release_unseen(a, &b, SHMI_blockRaw); /* as for the block of an object */
        pthread_mutex_unlock(&a->handles);
        for (i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
            while ((err = shmsync_alloc(a, sizes[i], &off)) == 0) {
            }
        while ((err = claim_one(a, sort)) == 0) {
        }
        CHECK(err, ENOSPC);
        shmi_st64(shmi_slot64(a, peer, SHMI_slotOpening), 0);
        CHECK(claim_one(a, sort), 0);
        shmi_st32(shmi_slot32(a, peer, SHMI_slotState), shmi_slot_word(SHMI_phaseFree, 1));
        pthread_mutex_unlock(&a->reaping);
        CHECK(shmsync_arena_close(a), 0);
        CHECK(shmsync_arena_remove(arena_name), 0);
    }
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*f)(void);
    } verbs[] = {{"first-open", first_open}, {"few-descriptors", few_descriptors}, {"number-of-cpus", number_of_cpus}, {"one-descriptor", one_descriptor},
                 {"no-locks", no_locks}, {"no-gate", no_gate}, {"other-proc", other_proc}, {"strange-file-system", strange_file_system}, {"no-threads", no_threads},
                 {"last-thread", last_thread}, {"last-close", last_close}, {"stuck-file", stuck_file},
                 {"no-flock", no_flock}, {"sweep", sweep}, {"locked-memory", locked_memory}, {"guarded-block", guarded_block}, {"probes", probes}, {"forbidden-waits", forbidden_waits}, {"late-fences", late_fences}, {"registered-open", registered_open}, {"failed-open", failed_open}, {"lost-addresses", lost_addresses}, {"wrapped-permits", wrapped_permits}, {"quota", quota}, {"lost-descriptors", lost_descriptors}, {"overflow-uid", overflow_uid}, {"used-up", used_up}, {"failed-first", failed_first}, {"probe-of-fences", probe_of_fences},
                 {"other-entry", other_entry}, {"sparse-file", sparse_file}, {"own-namespace", own_namespace}, {"other-namespace", other_namespace}};
    size_t i;
    if (argc != 3)
        return 2;
    alarm(60); /* ends a test that hangs */
    arena_name = argv[2];
    snprintf(arena_path, sizeof arena_path, "/dev/shm/%s", arena_name);
    for (i = 0; i < sizeof verbs / sizeof verbs[0]; i++)
        if (strcmp(argv[1], verbs[i].name) == 0) {
            verbs[i].f();
            return 0;
        }
    return 2;
}
