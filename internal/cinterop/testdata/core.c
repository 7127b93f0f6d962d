/* Tests a C program that uses arenas on its own: core VERB NAME ARGS... Exit status 0 if all results were right. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>

#include "check.h"

static shmsync_arena *open_arena(const char *name)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    return a;
}

static void say(const char *what)
{
    puts(what);
    fflush(stdout);
}
static void await_line(void)
{
    char b[100];
    if (fgets(b, sizeof b, stdin) == NULL)
        exit(9);
}

static struct timespec in_ms(long ms)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_sec += ms / 1000;
    ts.tv_nsec += ms % 1000 * 1000000;
    if (ts.tv_nsec >= 1000000000) {
        ts.tv_sec++;
        ts.tv_nsec -= 1000000000;
    }
    return ts;
}

/* Makes the arena, and objects in it. */
static void create(const char *name, char **arg)
{
    shmsync_arena_options o;
    shmsync_arena *a, *b;
    shmsync_mutex m;
    shmsync_event e;
    shmsync_rwmutex rw;
    void *p;
    memset(&o, 0, sizeof o);
    o.size = strtoull(arg[0], NULL, 10);
    o.max_participants = (uint32_t)strtoul(arg[1], NULL, 10);
    o.label = "maker";
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_arena_size(a), (o.size + 65535) / 65536 * 65536);
    CHECK(shmsync_arena_open(name, &o, &b), 0);
    CHECK(a == b, 1);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_block_open(a, "b", 1000, &p), 0);
    memcpy(p, "from C", 7);
    say("ready");
    await_line();
    CHECK(memcmp(p, "from Go", 8), 0);
    CHECK(shmsync_event_open(a, "e", NULL, &e), 0);
    CHECK(shmsync_event_close(&e), 0);
    CHECK(shmsync_event_close(&e), EBADF);
    CHECK(shmsync_rwmutex_open(a, "rw", NULL, &rw), 0);
    CHECK(shmsync_rwmutex_close(&rw), 0);
    CHECK(shmsync_rwmutex_close(&rw), EBADF);
    CHECK(shmsync_mutex_close(&m), 0);
    CHECK(shmsync_mutex_close(&m), EBADF);
    CHECK(shmsync_arena_close(b), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_close(a), EBADF);
}

/* Opens the arena, and prints the errno. */
static void try_open(const char *name)
{
    shmsync_arena *a;
    int err = shmsync_arena_open(name, NULL, &a);
    printf("%d %s\n", err, shmsync_error());
    if (err == 0)
        CHECK(shmsync_arena_close(a), 0);
}

/* As try_open, for an open file. */
static void from_fd(const char *fd)
{
    shmsync_arena *a;
    shmsync_mutex m;
    CHECK(shmsync_arena_from_fd(atoi(fd), NULL, &a), 0);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(shmsync_arena_close(a), 0);
}

static int no_repair(void *arg)
{
    (void)arg;
    return 0;
}

/* Calls of a child of fork are refused until it opens the arena itself. */
static void fork_refused(const char *name)
{
    shmsync_arena *a = open_arena(name), *mine;
    shmsync_mutex m, other;
    shmsync_futex f;
    shmsync_multilock multi;
    shmsync_synchronized value;
    uint64_t loaded;
    void *copy;
    shmsync_hold hold, none;
    shmsync_signalwaker signals;
    shmsync_gate gate, other_gate;
    shmsync_gate_info info;
    shmsync_participant parent, child;
    shmsync_offset off;
    struct timespec soon = in_ms(1);
    void *p;
    int pipe_[2], status, back[2], i;
    char b;
    pid_t pid;
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_futex_open(a, "f", NULL, &f), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_multilock_open(a, "multi", NULL, &multi), 0);
    for (i = 0; i < 4; i++) { /* the last two rounds without the latch */
        CHECK(shmsync_multilock_lock(&multi, 7, &hold), 0);
        CHECK(shmsync_multilock_unlock(&hold), 0);
    }
    CHECK(shmsync_multilock_lock(&multi, 8, &hold), 0);
    CHECK(shmsync_multilock_unlock(&hold), 0);
    CHECK(shmsync_multilock_lock(&multi, 8, &hold), 0);
    CHECK(shmsync_signalwaker_open(a, "signals", NULL, &signals), 0);
    CHECK(shmsync_signalwaker_gate(&signals, 5, &gate), 0);
    CHECK(shmsync_gate_trybegin_inline(&gate), 0);
    CHECK(shmsync_synchronized_open(a, "value", sizeof loaded, NULL, &value), 0);
    CHECK(shmsync_synchronized_begin(&value, &copy), 0);
    CHECK(shmsync_arena_self(a, &parent), 0);
    CHECK(pipe(pipe_) == 0 && pipe(back) == 0, 1);
    pid = fork();
    if (pid == 0) {
        CHECK(shmsync_synchronized_load(&value, &loaded), ENOTCONN);
        CHECK(shmsync_synchronized_begin(&value, &copy), ENOTCONN);
        CHECK(shmsync_synchronized_commit(&value), ENOTCONN);
        CHECK(shmsync_synchronized_abort(&value), ENOTCONN);
        CHECK(shmsync_synchronized_store(&value, &loaded), ENOTCONN);
        CHECK(shmsync_mutex_lock(&m), ENOTCONN);
        CHECK(shmsync_mutex_trylock(&m), ENOTCONN);
        CHECK(shmsync_mutex_timedlock(&m, &soon), ENOTCONN);
        CHECK(shmsync_mutex_unlock(&m), ENOTCONN);
        CHECK(shmsync_mutex_recover(&m, no_repair, NULL), ENOTCONN);
        CHECK(shmsync_mutex_open(a, "new", NULL, &other), ENOTCONN);
        CHECK(shmsync_mutex_at(a, 70000, &other), ENOTCONN);
        CHECK(shmsync_multilock_lock(&multi, 7, &none), ENOTCONN);
        CHECK(shmsync_multilock_lock(&multi, 1000, &none), ENOTCONN); /* in a bucket that the parent has not used */
        CHECK(shmsync_multilock_trylock(&multi, 7, &none), ENOTCONN);
        CHECK(shmsync_multilock_timedlock(&multi, 7, &none, &soon), ENOTCONN);
        CHECK(shmsync_multilock_unlock(&hold), ENOTCONN);
        CHECK(shmsync_gate_schedule(&gate, NULL), ENOTCONN);
        CHECK(shmsync_gate_finish(&gate, NULL), ENOTCONN);
        CHECK(shmsync_gate_begin(&gate), ENOTCONN);
        CHECK(shmsync_gate_state(&gate, &info), ENOTCONN);
        CHECK(shmsync_signalwaker_next(&signals, 0, &other_gate), ENOTCONN);
        CHECK(shmsync_signalwaker_timedacquire(&signals, &soon), ENOTCONN);
        CHECK(shmsync_signalwaker_release(&signals, 1), ENOTCONN);
        CHECK(shmsync_multilock_recover(&multi, 7, no_repair, NULL), ENOTCONN);
        CHECK(shmsync_multilock_state(&multi, 7), ENOTCONN);
        CHECK(shmsync_multilock_close(&multi), ENOTCONN);
        CHECK(shmsync_futex_post(&f), ENOTCONN);
        CHECK(shmsync_futex_wait(&f, 1), ENOTCONN);
        CHECK(shmsync_futex_stop(&f), ENOTCONN);
        CHECK(shmsync_alloc(a, 64, &off), ENOTCONN);
        CHECK(shmsync_free(a, 70000), ENOTCONN);
        CHECK(shmsync_block_open(a, "b", 64, &p), ENOTCONN);
        CHECK(shmsync_delete(a, "m"), ENOTCONN);
        CHECK(shmsync_arena_self(a, &child), ENOTCONN);
        CHECK(shmsync_arena_close(a), ENOTCONN);
        CHECK(shmsync_mutex_close(&m), ENOTCONN);

        mine = open_arena(name);
        CHECK(shmsync_arena_self(mine, &child), 0);
        CHECK(child.slot != parent.slot && child.pid == (uint32_t)getpid(), 1);
        CHECK(shmsync_mutex_open(mine, "m", NULL, &other), 0);
        CHECK(shmsync_mutex_trylock(&other), EBUSY);
        CHECK(shmsync_mutex_unlock(&other), EPERM);
        CHECK(write(pipe_[1], "x", 1), 1);
        CHECK(shmsync_mutex_lock(&other), 0);
        CHECK(write(back[1], "x", 1), 1);
        _exit(0); /* with the lock held */
    }
    CHECK(read(pipe_[0], &b, 1), 1);
    CHECK(shmsync_multilock_unlock(&hold), 0);
    CHECK(shmsync_multilock_unlock(&hold), EPERM);
    CHECK(shmsync_gate_finish(&gate, &i), 0);
    CHECK(i, 0); /* the child has scheduled nothing */
    CHECK(shmsync_gate_finish(&gate, &i), EPERM);
    CHECK((int)shmsync_signalwaker_permits(&signals), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(read(back[0], &b, 1), 1);
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    CHECK(shmsync_mutex_lock(&m), EOWNERDEAD);
    CHECK(shmsync_who_died(&child), 0);
    CHECK(child.pid, pid);
    CHECK(shmsync_mutex_recover(&m, no_repair, NULL), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Holds the lock, leaves a child that is no participant, and waits to be killed. What the child has inherited must
 * not make its parent seem alive. */
static void fork_and_hold(const char *name)
{
    shmsync_arena *a = open_arena(name);
    shmsync_mutex m;
    pid_t pid;
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    pid = fork();
    if (pid == 0) {
        close(1);
        close(2);
        await_line(); /* until the test ends */
        _exit(0);
    }
    say("ready");
    pause();
}

/* Holds a lock, closes the descriptor whose byte lock says that this process is alive, as a mistake elsewhere in the
 * program would, and waits to be killed. */
static void lose_and_hold(const char *name)
{
    shmsync_arena *a = open_arena(name);
    shmsync_mutex m;
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(close(a->lock_fd), 0);
    say("ready");
    pause();
}

/* Other code of the program closes the descriptors of the arena, and their numbers lead to the descriptor fd then. */
static void lose_files(shmsync_arena *a, int fd)
{
    CHECK(a->fd >= 0 && a->lock_fd >= 0 && a->home >= 0, 1);
    CHECK(dup2(fd, a->fd), a->fd);
    CHECK(dup2(fd, a->lock_fd), a->lock_fd);
    CHECK(dup2(fd, a->home), a->home);
}
/* Each of the descriptors of the arena is lost to fd, of a file of the program. The library leaves that file alone, in the
 * child of a fork too, and finds the file of the arena by its path. */
static void leave_others_alone(const char *name, int fd, int seekable)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_offset off;
    struct stat st;
    int i, status, lost[3];
    pid_t pid;
    char path[300];
    snprintf(path, sizeof path, "./%s", name); /* so that the arena has all of its descriptors */
    memset(&o, 0, sizeof o);
    o.size = 8 << 20;
    o.max_participants = 4;
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    CHECK(shmsync_arena_open(path, &o, &a), 0);
    lose_files(a, fd);
    lost[0] = a->fd;
    lost[1] = a->lock_fd;
    lost[2] = a->home;
    CHECK(shmsync_alloc(a, 1 << 20, &off), 0);
    memset(shmsync_at(a, off, 1 << 20), 1, 1 << 20);
    pid = fork();
    if (pid == 0) {
        for (i = 0; i < 3; i++)
            CHECK(seekable ? fcntl(lost[i], F_GETFD) >= 0 : write(lost[i], "x", 1) == 1, 1);
        _exit(0);
    }
    CHECK(waitpid(pid, &status, 0), pid);
    CHECK(status, 0);
    CHECK(shmsync_arena_close(a), 0);
    for (i = 0; i < 3; i++) {
        CHECK(fstat(lost[i], &st), 0);
        CHECK(!seekable || st.st_blocks == 0, 1);
        close(lost[i]);
    }
    CHECK(access(path, F_OK), -1); /* the last close has removed the file */
}
static void lose_all(const char *name)
{
    int fds[2], file = (int)syscall(SYS_memfd_create, "other", 1u);
    CHECK(chdir("/dev/shm"), 0);
    CHECK(pipe(fds), 0);
    leave_others_alone(name, fds[1], 0);
    CHECK(file >= 0, 1);
    CHECK(ftruncate(file, 8 << 20), 0);
    leave_others_alone(name, file, 1);
}

static void print_death(const shmsync_participant *p, void *arg)
{
    (void)arg;
    printf("%u died, %u missed\n", p->pid, p->missed);
    fflush(stdout);
}
/* Prints which participants die, until it is killed. */
static void observe(const char *name)
{
    CHECK(shmsync_arena_on_death(open_arena(name), print_death, NULL), 0);
    say("ready");
    pause();
}

/* Prints how many death records an arena has. */
static void count_records(void)
{
    printf("%d\n", (int)SHMI_deathRecordDeaths);
}
/* Joins and dies. */
static void die(const char *name)
{
    open_arena(name);
    kill(getpid(), SIGKILL);
}

/* Deletes the object "x" as soon as no process uses it, after it has reaped the dead processes that did. */
static void delete_x(const char *name)
{
    shmsync_arena *a = open_arena(name);
    struct timespec moment = {0, 1000000};
    int err;
    while ((err = shmsync_delete(a, "x")) == EBUSY)
        nanosleep(&moment, NULL);
    CHECK(err, 0);
    shmsync_arena_close(a);
}

/* Declares the participant in the first slot dead. */
static void accuse(const char *name)
{
    shmsync_arena *a = open_arena(name);
    CHECK(shmi_declare_dead(a, 1, shmi_slot_state(a, 1)), 1);
    say("ready");
    await_line();
    CHECK(shmsync_arena_close(a), 0);
}

static void *wait_for_lock(void *arg) { return (void *)(intptr_t)shmsync_mutex_lock((shmsync_mutex *)arg); }
static void *wait_for_post(void *arg) { return (void *)(intptr_t)shmsync_futex_wait((shmsync_futex *)arg, 1); }

/* A close of the arena ends the waits of other threads, with EBADF. */
static void close_under(const char *name)
{
    shmsync_arena *a = open_arena(name);
    shmsync_mutex m, m2;
    shmsync_futex f;
    pthread_t t[50];
    void *result;
    int i;
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    m2 = m;
    CHECK(shmsync_futex_open(a, "f", NULL, &f), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    for (i = 0; i < 50; i++)
        CHECK(pthread_create(&t[i], NULL, i % 2 == 0 ? wait_for_lock : wait_for_post, i % 2 == 0 ? (void *)&m2 : (void *)&f), 0);
    while (shmi_ld32(&a->announce_map) != UINT32_MAX || shmi_ld32(&a->calls) != 50)
        sched_yield();
    CHECK(shmsync_arena_close(a), 0);
    for (i = 0; i < 50; i++) {
        CHECK(pthread_join(t[i], &result), 0);
        CHECK((intptr_t)result, EBADF);
    }
    a = open_arena(name);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), EOWNERDEAD);
    CHECK(shmsync_arena_close(a), 0);
}

/* An attach creates no object, of any kind. */
static void attach_nothing(shmsync_arena *a)
{
    union {
        shmsync_mutex mutex;
        shmsync_futex futex;
        shmsync_sequencer sequencer;
        shmsync_event event;
        shmsync_queue queue;
        shmsync_waitgroup waitgroup;
        shmsync_latch latch;
        shmsync_once once;
        shmsync_barrier barrier;
        shmsync_fairmutex fairmutex;
        shmsync_future future;
        shmsync_cond cond;
        shmsync_semaphore semaphore;
        shmsync_rwmutex rwmutex;
        shmsync_spinlock spinlock;
        shmsync_rwspinlock rwspinlock;
        shmsync_multilock multilock;
        shmsync_signalwaker signalwaker;
    } x;
    int round;
    for (round = 0; round < 2; round++) { /* the second round finds nothing that the first has made */
        CHECK(shmsync_mutex_attach(a, "none", NULL, &x.mutex), ENOENT);
        CHECK(shmsync_futex_attach(a, "none", NULL, &x.futex), ENOENT);
        CHECK(shmsync_sequencer_attach(a, "none", NULL, &x.sequencer), ENOENT);
        CHECK(shmsync_event_attach(a, "none", NULL, &x.event), ENOENT);
        CHECK(shmsync_queue_attach(a, "none", 8, NULL, &x.queue), ENOENT);
        CHECK(shmsync_waitgroup_attach(a, "none", NULL, &x.waitgroup), ENOENT);
        CHECK(shmsync_latch_attach(a, "none", NULL, &x.latch), ENOENT);
        CHECK(shmsync_once_attach(a, "none", NULL, &x.once), ENOENT);
        CHECK(shmsync_barrier_attach(a, "none", NULL, &x.barrier), ENOENT);
        CHECK(shmsync_fairmutex_attach(a, "none", NULL, &x.fairmutex), ENOENT);
        CHECK(shmsync_future_attach(a, "none", NULL, &x.future), ENOENT);
        CHECK(shmsync_cond_attach(a, "none", NULL, &x.cond), ENOENT);
        CHECK(shmsync_semaphore_attach(a, "none", NULL, &x.semaphore), ENOENT);
        CHECK(shmsync_rwmutex_attach(a, "none", NULL, &x.rwmutex), ENOENT);
        CHECK(shmsync_spinlock_attach(a, "none", NULL, &x.spinlock), ENOENT);
        CHECK(shmsync_rwspinlock_attach(a, "none", NULL, &x.rwspinlock), ENOENT);
        CHECK(shmsync_multilock_attach(a, "none", NULL, &x.multilock), ENOENT);
        CHECK(shmsync_signalwaker_attach(a, "none", NULL, &x.signalwaker), ENOENT);
        CHECK(shmsync_mutex_attach(a, NULL, NULL, &x.mutex), EINVAL);
    }
}

/* Mistakes of a caller. */
static void misuse(const char *name)
{
    shmsync_arena *a = open_arena(name), *none;
    shmsync_arena_options o;
    shmsync_mutex_options mo;
    shmsync_mutex m, again, at;
    shmsync_futex f;
    shmsync_offset off;
    struct timespec bad = {0, 2000000000};
    char long_name[300];
    uint64_t size;
    void *p;
    memset(&mo, 0, sizeof mo);
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_mutex_unlock(&m), EPERM);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_trylock(&m), EBUSY);
    CHECK(shmsync_mutex_timedlock(&m, &bad), EINVAL);
    CHECK(shmsync_mutex_timedlock(&m, NULL), EINVAL);
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), EPERM);
    CHECK(shmsync_mutex_timedlock(&m, NULL), 0); /* a free mutex is locked whatever the time */
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(shmsync_mutex_recover(&m, NULL, NULL), EINVAL);
    CHECK(shmsync_mutex_recover(&m, no_repair, NULL), 0);
    mo.policy = 9;
    CHECK(shmsync_mutex_open(a, "m", &mo, &again), EINVAL);
    mo.policy = SHMSYNC_POLICY_RELEASE;
    CHECK(shmsync_mutex_open(a, "m", &mo, &again), EINVAL);
    CHECK(strstr(shmsync_error(), "policy") != NULL, 1);
    CHECK(shmsync_mutex_open(a, "m", NULL, &again), 0);
    CHECK(again.impl == m.impl, 1);
    CHECK(shmsync_mutex_at(a, shmsync_mutex_offset(&m), &at), 0);
    CHECK(shmsync_mutex_at(a, shmsync_mutex_offset(&m) + 64, &at), EINVAL);
    CHECK(shmsync_mutex_at(a, 0, &at), EINVAL);
    CHECK(shmsync_mutex_at(a, UINT64_MAX - 3, &at), EINVAL);
    CHECK(shmsync_futex_at(a, shmsync_mutex_offset(&m), &f), EINVAL);
    CHECK(shmsync_mutex_close(&again), 0);
    CHECK(shmsync_mutex_close(&again), EBADF);
    CHECK(shmsync_delete(a, "m"), EBUSY);
    memset(long_name, 'x', sizeof long_name);
    long_name[256] = 0;
    CHECK(shmsync_mutex_open(a, long_name, NULL, &again), EINVAL);
    CHECK(shmsync_mutex_open(a, "\xff", NULL, &again), EINVAL);
    long_name[255] = 0;
    CHECK(shmsync_mutex_open(a, long_name, NULL, &again), 0);
    CHECK(shmsync_mutex_close(&again), 0);
    CHECK(shmsync_delete(a, long_name), 0);
    CHECK(shmsync_delete(a, long_name), ENOENT);
    CHECK(shmsync_mutex_open(a, NULL, NULL, &again), 0); /* anonymous */
    CHECK(shmsync_mutex_lock(&again), 0);
    CHECK(shmsync_mutex_unlock(&again), 0);
    CHECK(shmsync_futex_open(a, "f", NULL, &f), 0);
    CHECK(shmsync_futex_wait(&f, UINT64_MAX), EINVAL);
    CHECK(shmsync_futex_stop(&f), 0);
    CHECK(shmsync_futex_post(&f), 0);
    CHECK(shmsync_futex_get(&f), 0);
    CHECK(shmsync_futex_wait(&f, 1), ECANCELED);
    CHECK(shmsync_alloc(a, 1000, &off), 0);
    CHECK(shmsync_at(a, off, 1000) != NULL, 1);
    CHECK(shmsync_at(a, off, 1025) == NULL, 1);
    CHECK(shmsync_at(a, off + 2000, 1) == NULL, 1);
    CHECK(shmsync_free(a, off + 64), EINVAL);
    CHECK(shmsync_free(a, off), 0);
    CHECK(shmsync_free(a, off), EINVAL);
    CHECK(shmsync_free(a, shmsync_mutex_offset(&m)), EINVAL);
    CHECK(shmsync_alloc(a, 1000000, &off), 0); /* a span */
    memset(shmsync_at(a, off, 1000000), 1, 1000000);
    CHECK(shmsync_free(a, off), 0);
    CHECK(shmsync_alloc(a, UINT64_C(1) << 40, &off), ENOSPC);
    CHECK(shmsync_block_open(a, "b", 10, &p), 0);
    CHECK(shmsync_block_open(a, "b", 11, &p), EINVAL);
    CHECK(shmsync_block_attach(a, "c", &p, &size), ENOENT);
    CHECK(shmsync_block_open(a, "c", 0, &p), EINVAL);
    CHECK(shmsync_block_attach(a, "b", &p, &size), 0);
    CHECK((int)size, 10);
    CHECK(shmsync_value_attach(a, "v", 8, 0, &p), ENOENT);
    attach_nothing(a);
    memset(&o, 0, sizeof o);
    o.size = 1 << 25;
    CHECK(shmsync_arena_open(name, &o, &none), EINVAL);
    CHECK(shmsync_arena_open("a b", NULL, &none), EINVAL);
    CHECK(shmsync_arena_open("", NULL, &none), EINVAL);
    CHECK(shmsync_arena_open("..", NULL, &none), EINVAL);
    CHECK(shmsync_arena_open("/dev/null", NULL, &none), EINVAL);
    CHECK(shmsync_arena_open("/proc/self/status", NULL, &none) != 0, 1);
    o.size = 0;
    o.attach_only = 1;
    CHECK(shmsync_arena_open("there-is-no-such-arena", &o, &none), ENOENT);
    o.attach_only = 0;
    o.max_participants = 3000;
    CHECK(shmsync_arena_open("there-is-no-such-arena", &o, &none), EINVAL);
    CHECK(shmsync_arena_close(a), 0);
}

/* Fills the arena, and empties it again. */
static void fill(const char *name)
{
    shmsync_arena *a = open_arena(name);
    shmsync_mutex m;
    char called[64];
    int n = 0, i, err;
    for (;; n++) {
        snprintf(called, sizeof called, "mutex %d", n);
        err = shmsync_mutex_open(a, called, NULL, &m);
        if (err != 0)
            break;
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
        CHECK(shmsync_mutex_close(&m), 0);
    }
    CHECK(err, ENOSPC);
    CHECK(n > 100, 1);
    for (i = 0; i < n; i++) {
        snprintf(called, sizeof called, "mutex %d", i);
        CHECK(shmsync_delete(a, called), 0);
    }
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Many threads of this process use one lock; after that, its holds become biased again. */
#define THREADS 8
static uint64_t counter;
static void *count_up(void *arg)
{
    int i;
    for (i = 0; i < 20000; i++) {
        CHECK(shmsync_mutex_lock((shmsync_mutex *)arg), 0);
        counter++;
        CHECK(shmsync_mutex_unlock((shmsync_mutex *)arg), 0);
    }
    return NULL;
}
static void threads(const char *name)
{
    shmsync_arena *a = open_arena(name);
    shmsync_mutex m;
    pthread_t t[THREADS];
    int i, biased;
    CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
    biased = m.impl->bias_most != 0;
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_create(&t[i], NULL, count_up, &m), 0);
    for (i = 0; i < THREADS; i++)
        CHECK(pthread_join(t[i], NULL), 0);
    CHECK(counter, THREADS * 20000);
    for (i = 0; i < 3 << 20; i++) {
        CHECK(shmsync_mutex_lock(&m), 0);
        CHECK(shmsync_mutex_unlock(&m), 0);
    }
    if (biased)
        CHECK(m.impl->bias, SHMI_OWNER_BIASED);
    CHECK(shmsync_arena_close(a), 0);
}

/* Small blocks become a big block after they were freed. */
static void sweep(const char *name)
{
    static shmsync_offset off[100000];
    shmsync_arena *a = open_arena(name);
    int n = 0, i;
    while (n < 100000 && shmsync_alloc(a, 4096, &off[n]) == 0)
        n++;
    CHECK(n > 100, 1);
    for (i = 0; i < n; i++)
        CHECK(shmsync_free(a, off[i]), 0);
    CHECK(shmsync_alloc(a, (uint64_t)n * 2048, &off[0]), 0);
    CHECK(shmsync_free(a, off[0]), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* Another use of the hostile arena: a SignalWaker, some of whose words are overwritten on purpose. */
static void hostile_signals(shmsync_arena *a, uint64_t *seed, int round, const struct timespec *soon)
{
    shmsync_signalwaker_options two;
    shmsync_signalwaker w;
    shmsync_signal_health h;
    shmsync_gate g;
    shmsync_gate_info info;
    int i, n;
    memset(&two, 0, sizeof two);
    two.signals = 2;
    two.count = 1;
    if (shmsync_signalwaker_open(a, "signals", &two, &w) != 0)
        return;
    for (i = 0; i < round % 8; i++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        /* The head and the signals, or a gate. */
        shmi_st64(shmi_u64(a, shmsync_signalwaker_offset(&w) + 64 + ((*seed & 1) != 0 ? (*seed >> 20) % 128 * 8 : 1024 + (*seed >> 20) % 128 * 128)), *seed >> (*seed >> 58));
    }
    for (i = 0; i < 4; i++)
        if (shmsync_signalwaker_gate(&w, (i * 37 + round) % 128, &g) == 0 && shmsync_gate_schedule(&g, NULL) == 0 && i % 2 == 0 && shmsync_gate_begin(&g) == 0)
            shmsync_gate_finish(&g, &n);
    for (i = 0; i < 200 && shmsync_signalwaker_next(&w, round % 128, &g) == 0; i++) {
        shmsync_gate_state(&g, &info);
        shmsync_gate_finish(&g, NULL);
    }
    shmsync_signalwaker_timedacquire(&w, soon);
    shmsync_signalwaker_sync_partition(&w, 0, 2, NULL, NULL);
    if (shmsync_signalwaker_reserve(&w, 0, 2, &n) == 0)
        shmsync_signalwaker_unreserve(&w, n);
    shmsync_signalwaker_health(&w, &h);
    shmsync_signalwaker_close(&w);
    if (round % 5 == 0)
        shmsync_delete(a, "signals");
}

static void hostile(const char *name, char **arg)
{
    shmsync_arena *a = open_arena(name);
    uint64_t seed = strtoull(arg[0], NULL, 10) | 1, heap = a->geo.heap_off;
    int round, i;
    say("ready");
    await_line(); /* from now on the test overwrites the arena */
    for (round = 0; round < 300; round++) {
        shmsync_mutex m;
        shmsync_futex f;
        shmsync_multilock multi;
        shmsync_multilock_options one;
        shmsync_hold holds[8];
        shmsync_offset off;
        size_t held;
        struct timespec soon = in_ms(1);
        char called[32];
        for (i = 0; i < 4; i++) { /* and so does this program */
            seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
            shmi_st64(shmi_u64(a, (heap + (seed >> 20) % (a->size - heap - 8)) & ~UINT64_C(7)), (seed & 1) != 0 ? seed : seed >> 40);
        }
        snprintf(called, sizeof called, "m%d", round % 5);
        if (shmsync_mutex_open(a, called, NULL, &m) == 0) {
            if (shmsync_mutex_timedlock(&m, &soon) == 0)
                shmsync_mutex_unlock(&m);
            shmsync_mutex_recover(&m, no_repair, NULL);
            shmsync_mutex_close(&m);
        }
        shmsync_delete(a, called);
        if (shmsync_futex_open(a, "f", NULL, &f) == 0) {
            shmsync_futex_post(&f);
            shmsync_futex_timedwait(&f, shmsync_futex_get(&f) + 1, &soon);
            shmsync_futex_close(&f);
        }
        memset(&one, 0, sizeof one);
        one.buckets = 1;
        if (shmsync_multilock_open(a, "multi", &one, &multi) == 0) {
            uint64_t keys[8];
            for (i = 0; i < 8; i++)
                keys[i] = (uint64_t)i % 6 + (uint64_t)(round % 3);
            for (i = 0; i < round % 4; i++) {
                seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
                shmi_st64(shmi_u64(a, shmsync_multilock_offset(&multi) + 64 + (seed >> 20) % 40 * 8), seed >> (seed >> 58));
            }
            if (shmsync_multilock_timedlockall(&multi, keys, 8, holds, &held, &soon) == 0)
                shmsync_multilock_unlockall(holds, held);
            if (shmsync_multilock_trylock(&multi, 3, &holds[0]) == 0)
                shmsync_multilock_unlock(&holds[0]);
            shmsync_multilock_state(&multi, 3);
            shmsync_multilock_close(&multi);
        }
        if (round % 7 == 0)
            shmsync_delete(a, "multi");
        hostile_signals(a, &seed, round, &soon);
        if (shmsync_alloc(a, (seed >> 30) % 200000, &off) == 0 && (seed & 2) != 0)
            shmsync_free(a, off);
    }
    shmsync_arena_close(a);
}

/* A node that its owner has discarded while a queue might still have named it does not outlive the object with its
 * stamp: otherwise the next object at that offset would take the node for one of its own waits. */
static void waits_go(const char *name)
{
    static const uint32_t states[] = { SHMI_NodeResolved, SHMI_NodeLeft };
    shmsync_arena *a = open_arena(name);
    unsigned i;
    for (i = 0; i < sizeof states / sizeof states[0]; i++) {
        shmsync_mutex m;
        shmi_off off;
        shmi_node *n;
        CHECK(shmsync_mutex_open(a, "m", NULL, &m), 0);
        CHECK(shmi_claim_node(a, &off, &n), 0);
        shmi_st64(&n->object, shmsync_mutex_offset(&m));
        shmi_st64(&n->stamp, 1);
        CHECK(shmi_node_swap(n, shmi_node_load(n), shmi_node_with(shmi_node_load(n), states[i])), 1);
        CHECK(shmsync_mutex_close(&m), 0);
        CHECK(shmsync_delete(a, "m"), 0);
        CHECK((int)shmi_ld64(&n->stamp), 0);
        if (states[i] == SHMI_NodeResolved) /* the owner of the node gives it back */
            CHECK(shmi_free_node(a, off), 0);
        CHECK((int)shmi_node_owner(n), 0);
    }
    CHECK(shmsync_arena_close(a), 0);
}

/* A directory that was full and was emptied is as fast as a new one, once searches have passed enough removed
 * entries. */
static void fill_names(const char *name)
{
    shmsync_arena *a = open_arena(name);
    char what[20];
    int made, i;
    shmsync_futex f;
    for (made = 0;; made++) {
        snprintf(what, sizeof what, "%d", made);
        if (shmsync_futex_open(a, what, NULL, &f) != 0)
            break;
        CHECK(shmsync_futex_close(&f), 0);
    }
    for (i = 0; i < made; i++) {
        snprintf(what, sizeof what, "%d", i);
        CHECK(shmsync_delete(a, what), 0);
    }
    CHECK(shmi_reach(a) > 1, 1);
    for (i = 0; i < 1000 && shmi_reach(a) > 1; i++) {
        CHECK(shmsync_futex_open(a, "x", NULL, &f), 0);
        CHECK(shmsync_futex_close(&f), 0);
        CHECK(shmsync_delete(a, "x"), 0);
    }
    CHECK(shmi_reach(a) <= 1, 1);
    CHECK(shmsync_arena_close(a), 0);
}

/* Prints, for each line that it reads, how many block words and directory entries it has examined. */
static void count_looks(const char *name)
{
    shmsync_arena *a = open_arena(name);
    for (;;) {
        printf("%llu\n", (unsigned long long)__atomic_load_n(&a->work, __ATOMIC_RELAXED));
        fflush(stdout);
        await_line();
    }
}

/* Joins and leaves at once, n times. */
static void come_and_go(const char *name, int n)
{
    while (n-- > 0)
        CHECK(shmsync_arena_close(open_arena(name)), 0);
}

int main(int argc, char **argv)
{
    const char *verb = argc > 1 ? argv[1] : "", *name = argc > 2 ? argv[2] : "";
    alarm(120);
    if (strcmp(verb, "create") == 0 && argc == 5)
        create(name, argv + 3);
    else if (strcmp(verb, "open") == 0)
        try_open(name);
    else if (strcmp(verb, "fd") == 0)
        from_fd(name);
    else if (strcmp(verb, "fork") == 0)
        fork_refused(name);
    else if (strcmp(verb, "forkhold") == 0)
        fork_and_hold(name);
    else if (strcmp(verb, "losehold") == 0)
        lose_and_hold(name);
    else if (strcmp(verb, "loseall") == 0)
        lose_all(name);
    else if (strcmp(verb, "observe") == 0)
        observe(name);
    else if (strcmp(verb, "waits") == 0)
        waits_go(name);
    else if (strcmp(verb, "names") == 0)
        fill_names(name);
    else if (strcmp(verb, "looks") == 0)
        count_looks(name);
    else if (strcmp(verb, "comeandgo") == 0 && argc == 4)
        come_and_go(name, atoi(argv[3]));
    else if (strcmp(verb, "records") == 0)
        count_records();
    else if (strcmp(verb, "die") == 0)
        die(name);
    else if (strcmp(verb, "delete") == 0)
        delete_x(name);
    else if (strcmp(verb, "remove") == 0)
        CHECK(shmsync_arena_remove(name), 0);
    else if (strcmp(verb, "accuse") == 0)
        accuse(name);
    else if (strcmp(verb, "close") == 0)
        close_under(name);
    else if (strcmp(verb, "misuse") == 0)
        misuse(name);
    else if (strcmp(verb, "fill") == 0)
        fill(name);
    else if (strcmp(verb, "sweep") == 0)
        sweep(name);
    else if (strcmp(verb, "threads") == 0)
        threads(name);
    else if (strcmp(verb, "hostile") == 0 && argc == 4)
        hostile(name, argv + 3);
    else
        return 2;
    return 0;
}
