/* Tests the gate of an arena: gate VERB NAME. Exit status 0 if all results were right; SIGALRM ends a test that
 * hangs. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE 1
#endif
#include <sys/syscall.h>
static long nanosleep_number(void);
#undef SYS_nanosleep
#define SYS_nanosleep nanosleep_number()
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/wait.h>

#include "check.h"

static const char *point;
static void (*act)(void);

void at_point(const char *name)
{
    if (point != NULL && strcmp(name, point) == 0) {
        point = NULL;
        act();
    }
}

/* A peer writes the admission word of a joiner, while another participant is in. */
static uint32_t admission;

static void write_admission(void)
{
    shmi_st32(shmi_slot32(shmi_attached, shmi_attached->my_slot, SHMI_slotAdmission), admission);
}

static void foreign_admission(const char *name)
{
    uint32_t values[] = {SHMI_admissionIn, 7}, k;
    for (k = 0; k < 2; k++) {
        shmsync_arena *a;
        admission = values[k];
        point = "arena.enter.live";
        act = write_admission;
        CHECK(shmsync_arena_open(name, NULL, &a), EPROTO);
    }
}

/* on_first returns values that have a meaning inside an open. */
static int calls, give;

static int first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)e;
    (void)arg;
    return ++calls > 1 ? EIO : give;
}

static void failing_first(const char *name)
{
    int gives[] = {EAGAIN, ESTALE, EPROTO, EINVAL, -1, -2}, k;
    shmsync_arena_options o;
    memset(&o, 0, sizeof o);
    o.on_first = first;
    o.recreate = SHMSYNC_RECREATE_CORRUPT | SHMSYNC_RECREATE_INCOMPATIBLE;
    for (k = 0; k < 6; k++) {
        shmsync_arena *a;
        calls = 0;
        give = gives[k];
        CHECK(shmsync_arena_open(name, &o, &a), give > 0 ? give : ECANCELED);
        CHECK(calls, 1);
    }
}

/* Opens an arena that may be damaged. */
static void recreates(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    o.recreate = SHMSYNC_RECREATE_CORRUPT;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* on_first cannot open or close the arena that it is called for. */
static int opens_itself(shmsync_arena *a, const shmsync_epoch *e, void *name)
{
    shmsync_arena *b;
    (void)e;
    calls++;
    CHECK(shmsync_arena_open((const char *)name, NULL, &b), EDEADLK);
    CHECK(strstr(shmsync_error(), "its on_first opens it") != NULL, 1);
    CHECK(shmsync_arena_close(a), EDEADLK);
    return 0;
}

static void first_opens(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a, *b;
    memset(&o, 0, sizeof o);
    o.on_first = opens_itself;
    o.on_first_arg = (void *)(uintptr_t)name;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(calls, 1);
    CHECK(shmsync_arena_open(name, NULL, &b), 0);
    CHECK(shmsync_arena_close(b), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* A time limit so long that its end does not fit into an int64_t is as good as none. */
static int hook_runs[2], hook_may_end[2], waits_at_gate;

static void at_nap(void);

static long nanosleep_number(void)
{
    at_nap();
    if (waits_at_gate) {
        waits_at_gate = 0;
        CHECK(write(hook_may_end[1], "x", 1), 1);
    }
    return __NR_nanosleep;
}
static void waits_now(void) { waits_at_gate = 1; }
static int waits_in_hook(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    char b;
    (void)a;
    (void)e;
    (void)arg;
    CHECK(write(hook_runs[1], "x", 1), 1);
    CHECK(read(hook_may_end[0], &b, 1), 1);
    return 0;
}
static void no_end(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int status;
    char b;
    pid_t p;
    memset(&o, 0, sizeof o);
    CHECK(pipe(hook_runs), 0);
    CHECK(pipe(hook_may_end), 0);
    p = fork();
    if (p == 0) {
        o.on_first = waits_in_hook;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    CHECK(read(hook_runs[0], &b, 1), 1);
    point = "arena.enter.live";
    act = waits_now;
    o.gate_timeout_ns = INT64_MAX;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
}

/* A fork while another thread removes an arena: the child does not keep the gate. */
static pid_t child;
static pthread_t forker;
static int forks_later, parent_lives[2];
static uint64_t *epoch;

static void *fork_now(void *arg)
{
    (void)arg;
    child = fork();
    if (child == 0) { /* the child lives as long as its parent */
        char b;
        close(parent_lives[1]);
        _exit((int)read(parent_lives[0], &b, 1));
    }
    return NULL;
}

static void fork_at_the_gate(void)
{
    forks_later = pthread_mutex_trylock(&shmi_attached_lock) != 0;
    if (forks_later) {
        CHECK(pthread_create(&forker, NULL, fork_now, NULL), 0); /* the thread forks as soon as the remover lets it */
    } else {
        pthread_mutex_unlock(&shmi_attached_lock);
        fork_now(NULL);
    }
    /* Does what a joiner does that ends the claim: the remover tries again, and needs the gate again. */
    shmi_st64(epoch, shmi_epoch_end(shmi_ld64(epoch)));
}

static void fork_in_removal(const char *name)
{
    unsigned char *header;
    shmsync_arena *a;
    int fd;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    fd = shm_open(name, O_RDWR, 0);
    CHECK(fd >= 0, 1);
    header = (unsigned char *)mmap(NULL, SHMI_headerSize, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    CHECK(header != (unsigned char *)MAP_FAILED, 1);
    epoch = (uint64_t *)(void *)(header + SHMI_hdrEpoch);
    CHECK(pipe(parent_lives), 0);
    point = "arena.gate.visited";
    act = fork_at_the_gate;
    CHECK(shmsync_arena_remove(name), 0);
    if (forks_later)
        pthread_join(forker, NULL);
    CHECK(child > 0, 1);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
}

/* A process that cannot read the ID of its boot does not assume another boot. */
static void forget_boot(void) { memset(shmi_attached->boot, 0, 16); }

static void unknown_boot(const char *path)
{
    static const char other[] = "another boot id!";
    char now[16];
    shmsync_arena *a;
    int fd, status;
    pid_t p = fork();
    if (p == 0) { /* the child dies, so the file is not written back */
        CHECK(shmsync_arena_open(path, NULL, &a), 0);
        _exit(0);
    }
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
    fd = open(path, O_RDWR);
    CHECK(pwrite(fd, other, 16, SHMI_hdrEpochBoot), 16);
    point = "arena.gate.taken";
    act = forget_boot;
    CHECK(shmsync_arena_open(path, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(pread(fd, now, 16, SHMI_hdrEpochBoot), 16);
    CHECK(memcmp(now, other, 16), 0); /* it stays, for a process that can read its own boot ID */
    close(fd);
}

/* The last close of an ephemeral arena, while another process has the gate. The close waits: the other process may
 * have found that this one is still in, so that only this one can remove the file. But it does not wait without end
 * for a process that is stopped. */
static int gate_fd, naps, gives_back;
static SHMI_THREAD int removes;

static void lock_gate(void)
{
    CHECK(shmi_lock_byte(gate_fd, SHMI_GATE_BYTE), 0);
    removes = 1;
}

static void at_nap(void)
{
    if (!removes)
        return;
    naps++;
    if (gives_back)
        shmi_unlock_byte(gate_fd, SHMI_GATE_BYTE);
}

static void last_close(const char *name)
{
    shmsync_arena_options o;
    char path[PATH_MAX];
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(shmi_path(name, path, sizeof path), 0);
    for (gives_back = 0; gives_back < 2; gives_back++) {
        shmsync_arena *a;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        gate_fd = open(path, O_RDWR);
        CHECK(gate_fd >= 0, 1);
        naps = 0;
        point = "arena.close.freed";
        act = lock_gate;
        CHECK(shmsync_arena_close(a), 0);
        removes = 0;
        CHECK(naps > 0, 1);
        CHECK(access(path, F_OK), gives_back ? -1 : 0);
        close(gate_fd);
    }
}

/* A process opens an arena by a relative path and then changes its working directory, as a daemon does. */
static void changes_directory(const char *dir)
{
    const char *paths[] = {"./jobs", "sub/../jobs", "link/../jobs"};
    const char *where[] = {"jobs", "jobs", "elsewhere/jobs"};
    int k;
    CHECK(chdir(dir), 0);
    CHECK(mkdir("sub", 0700), 0);
    CHECK(mkdir("elsewhere", 0700), 0);
    CHECK(mkdir("elsewhere/sub", 0700), 0);
    CHECK(symlink("elsewhere/sub", "link"), 0);
    for (k = 0; k < 3; k++) {
        shmsync_arena_options o;
        shmsync_arena *a;
        memset(&o, 0, sizeof o);
        o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
        CHECK(shmsync_arena_open(paths[k], &o, &a), 0);
        CHECK(access(where[k], F_OK), 0);
        CHECK(chdir("/"), 0);
        CHECK(shmi_moved(a), 0); /* otherwise on_detached would be called */
        CHECK(shmsync_arena_close(a), 0);
        CHECK(chdir(dir), 0);
        CHECK(access(where[k], F_OK), -1);
    }
}

/* A process opens an arena by a relative path, and then its working directory is renamed. */
static void renames_directory(const char *dir)
{
    const char *paths[] = {"./jobs", "sub/jobs", "sub/../jobs"};
    int k;
    for (k = 0; k < 3; k++) {
        shmsync_arena_options o;
        shmsync_arena *a;
        memset(&o, 0, sizeof o);
        o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
        CHECK(chdir(dir), 0);
        CHECK(mkdir("home", 0700), 0);
        CHECK(chdir("home"), 0);
        CHECK(mkdir("sub", 0700), 0);
        CHECK(shmsync_arena_open(paths[k], &o, &a), 0);
        CHECK(rename("../home", "../moved"), 0);
        CHECK(shmi_moved(a), 0); /* otherwise on_detached would be called */
        CHECK(rename(paths[k], "aside"), 0);
        CHECK(shmi_moved(a), 1);
        CHECK(rename("aside", paths[k]), 0);
        CHECK(chdir("/"), 0);
        CHECK(shmsync_arena_close(a), 0);
        CHECK(chdir(dir), 0);
        CHECK(chdir("moved"), 0);
        CHECK(access(paths[k], F_OK), -1);
        CHECK(rmdir("sub"), 0);
        CHECK(rmdir("../moved"), 0);
    }
}

/* A process changes its root directory, so the path of its arena leads to no file. Then the file is removed. */
static void changes_root(const char *dir)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int root;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(chdir(dir), 0);
    CHECK(mkdir("root", 0700), 0);
    CHECK(shmsync_arena_open("./jobs", &o, &a), 0);
    root = open(dir, O_RDONLY | O_DIRECTORY);
    CHECK(root >= 0, 1);
    CHECK(shmi_moved(a), 0);
    CHECK(chroot("root"), 0);
    CHECK(shmi_moved(a), 0); /* otherwise on_detached would be called */
    CHECK(unlinkat(root, "jobs", 0), 0);
    CHECK(shmi_moved(a), 1); /* so that on_detached is called */
    CHECK(shmsync_arena_close(a), 0);
}

/* A process is in a mount namespace of its own, in which another file system hides the file of its arena. */
static void changes_mounts(const char *path)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    CHECK(shmsync_arena_open(path, &o, &a), 0);
    CHECK(unshare(CLONE_NEWNS), 0);
    CHECK(mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL), 0);
    CHECK(mount("none", "/dev/shm", "tmpfs", 0, NULL), 0);
    CHECK(access(path, F_OK), -1);
    CHECK(shmi_moved(a), 0); /* otherwise on_detached would be called */
    CHECK(shmsync_arena_close(a), 0);
}

/* A symbolic link to the file of an arena replaces the file at its path. An open follows no link. */
static void links_symbolically(const char *dir)
{
    shmsync_arena_options o;
    shmsync_arena *a, *b;
    struct stat st;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(chdir(dir), 0);
    CHECK(shmsync_arena_open("./jobs", &o, &a), 0);
    CHECK(rename("jobs", "moved"), 0);
    CHECK(symlink("moved", "jobs"), 0);
    CHECK(shmsync_arena_open("./jobs", NULL, &b), EINVAL);
    CHECK(shmi_moved(a), 1); /* so that on_detached is called */
    CHECK(shmsync_arena_close(a), 0);
    CHECK(lstat("jobs", &st), 0);
}

/* The file of an arena has two names when the arena is removed by one of them. A further name of a forged removal
 * stays. */
static void further_name(const char *dir)
{
    shmsync_arena_options o;
    shmsync_arena *a, *b;
    uint64_t w;
    struct stat old, st;
    int fd, status;
    pid_t opener;
    memset(&o, 0, sizeof o);
    o.size = 2 << 20;
    o.max_participants = 4;
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(chdir(dir), 0);
    CHECK(shmsync_arena_open("./jobs", &o, &a), 0);
    CHECK(link("jobs", "further"), 0);
    CHECK(link("jobs", "third"), 0);
    fd = open("jobs", O_RDONLY); /* while it is open, no other file can get its inode number */
    CHECK(fstat(fd, &old), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(access("jobs", F_OK), -1);
    CHECK(shmsync_arena_open("./further", &o, &a), 0);
    CHECK(stat("further", &st), 0);
    CHECK(st.st_ino == old.st_ino, 0);
    o.attach_only = 1;
    o.lifetime = SHMSYNC_LIFETIME_DURABLE;
    CHECK(shmsync_arena_open("./third", &o, &b), ENOENT);
    CHECK(access("third", F_OK), -1);

    w = shmi_epoch(a);
    CHECK(shmi_cas_epoch(a, w, shmi_make_epoch(SHMI_epochRemoved, shmi_epoch_number(w), 0)), 1);
    opener = fork();
    if (opener == 0) {
        CHECK(shmsync_arena_open("./further", &o, &b), EINVAL);
        _exit(0);
    }
    CHECK(waitpid(opener, &status, 0), opener);
    CHECK(status, 0);
    CHECK(access("further", F_OK), 0);
    shmi_st64(shmi_u64(a, SHMI_hdrEpoch), w);
    CHECK(shmsync_arena_close(a), 0);
    close(fd);
}

/* This process is in a user namespace that maps no user, so it and the owners of all files have the same uid. */
static void unmapped_user(const char *dir)
{
    shmsync_arena *a;
    int fd;
    CHECK(chdir(dir), 0);
    CHECK(shmsync_arena_open("./foreign", NULL, &a), EPERM);
    fd = open("foreign", O_RDWR);
    CHECK(fd >= 0, 1);
    CHECK(shmsync_arena_from_fd(fd, NULL, &a), EPERM);
    CHECK(shmsync_arena_open("./own", NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* This process may not remove the file of an ephemeral arena of another user. The error says why. */
static void sticky_directory(const char *path)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(setresuid(12345, 12345, 12345), 0);
    CHECK(shmsync_arena_open(path, &o, &a), EPERM);
    CHECK(strstr(shmsync_error(), "the directory has the sticky bit, and the file belongs to uid 0: only that user may remove it") != NULL, 1);
}

/* This process may not open the file. The error says to whom it belongs. */
static void denied(const char *path)
{
    shmsync_arena *a;
    CHECK(setresgid(12345, 12345, 12345), 0);
    CHECK(setresuid(12345, 12345, 12345), 0);
    CHECK(shmsync_arena_open(path, NULL, &a), EACCES);
    CHECK(strstr(shmsync_error(), ": uid 12345 may not read and write this file of uid 0 and gid 54321 with mode 0660") != NULL, 1);
    CHECK(shmsync_arena_open("/proc/1/fd/no/arena", NULL, &a), EACCES); /* here it may not even look at the file */
    CHECK(strstr(shmsync_error(), "may not read") == NULL, 1);
}

/* The function that shmsync_arena_participants calls closes the arena. */
static int closes(const shmsync_participant *p, void *a)
{
    (void)p;
    calls++;
    CHECK(shmsync_arena_close((shmsync_arena *)a), 0);
    return 0;
}

static void close_in_loop(const char *name)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    CHECK(shmsync_arena_participants(a, closes, a), EBADF);
    CHECK(calls, 1);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(60);
    if (strcmp(argv[1], "denied") == 0)
        denied(argv[2]);
    else if (strcmp(argv[1], "admission") == 0)
        foreign_admission(argv[2]);
    else if (strcmp(argv[1], "first") == 0)
        failing_first(argv[2]);
    else if (strcmp(argv[1], "recreate") == 0)
        recreates(argv[2]);
    else if (strcmp(argv[1], "fork") == 0)
        fork_in_removal(argv[2]);
    else if (strcmp(argv[1], "itself") == 0)
        first_opens(argv[2]);
    else if (strcmp(argv[1], "no end") == 0)
        no_end(argv[2]);
    else if (strcmp(argv[1], "boot") == 0)
        unknown_boot(argv[2]);
    else if (strcmp(argv[1], "last") == 0)
        last_close(argv[2]);
    else if (strcmp(argv[1], "further") == 0)
        further_name(argv[2]);
    else if (strcmp(argv[1], "unmapped") == 0)
        unmapped_user(argv[2]);
    else if (strcmp(argv[1], "sticky") == 0)
        sticky_directory(argv[2]);
    else if (strcmp(argv[1], "symlink") == 0)
        links_symbolically(argv[2]);
    else if (strcmp(argv[1], "rename") == 0)
        renames_directory(argv[2]);
    else if (strcmp(argv[1], "chdir") == 0)
        changes_directory(argv[2]);
    else if (strcmp(argv[1], "chroot") == 0)
        changes_root(argv[2]);
    else if (strcmp(argv[1], "mounts") == 0)
        changes_mounts(argv[2]);
    else if (strcmp(argv[1], "loop") == 0)
        close_in_loop(argv[2]);
    else
        return 2;
    return 0;
}
