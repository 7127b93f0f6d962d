/* Tests what the first participant of an epoch finds: firsts VERB NAME. Exit status 0 if all results were right;
 * SIGALRM ends a test that hangs. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
static long renameat2_number(void);
#define SHMI_RENAMEAT2 renameat2_number()
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include "check.h"
#include "processes.h"

static const char *stop_at;

void at_point(const char *name)
{
    if (stop_at != NULL && strcmp(name, stop_at) == 0) {
        stop_at = NULL;
        raise(SIGSTOP);
    }
}

/* Starts a process that joins the arena, which has two slots, takes the permit if holds is set, and stops. */
static pid_t start(const char *name, const char *label, int holds)
{
    pid_t p = fork();
    if (p == 0) {
        shmsync_arena_options o;
        shmsync_arena *a;
        shmsync_semaphore s;
        memset(&o, 0, sizeof o);
        o.label = label;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        if (holds) {
            CHECK(shmsync_semaphore_open(a, "permit", 1, NULL, &s), 0);
            CHECK(shmsync_semaphore_acquire(&s, 1), 0);
        }
        raise(SIGSTOP);
        _exit(3);
    }
    return p;
}

static int firsts;

static int first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    shmsync_semaphore s;
    int k, victims = 0;
    (void)arg;
    firsts++;
    CHECK(shmsync_semaphore_attach(a, "permit", NULL, &s), 0);
    CHECK(shmsync_semaphore_tryacquire(&s, 1), 0);
    CHECK(shmsync_semaphore_release(&s, 1), 0);
    CHECK(e->clean, 0);
    CHECK(e->n_dead, 2);
    for (k = 0; k < 2; k++)
        victims += strcmp(e->dead[k].label, "victim") == 0;
    CHECK(victims, 1);
    return 0;
}
static int clean_first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    (void)a;
    (void)arg;
    firsts++;
    CHECK(e->clean, 1);
    CHECK(e->n_dead, 0);
    return 0;
}

/* A joiner is stopped while it takes over the slot of a dead participant. */
static void stopped_heir(const char *name)
{
    static const char *points[] = {"arena.inherit.taken", "arena.inherit.recorded", "arena.inherit.repaired", "arena.inherit.reclaimed"};
    int k, status;
    for (k = 0; k < 4; k++) {
        shmsync_arena_options o;
        shmsync_arena *a;
        pid_t victim, other, heir;
        victim = start(name, "victim", 1);
        await_stop(victim);
        other = start(name, "other", 0);
        await_stop(other);
        kill(victim, SIGKILL);
        kill(other, SIGKILL);
        CHECK(waitpid(victim, &status, 0), victim);
        CHECK(waitpid(other, &status, 0), other);
        heir = fork();
        if (heir == 0) {
            stop_at = points[k];
            CHECK(shmsync_arena_open(name, NULL, &a), 0);
            CHECK(shmsync_arena_close(a), 0);
            _exit(0);
        }
        await_stop(heir);
        memset(&o, 0, sizeof o);
        firsts = 0;
        o.on_first = first;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        CHECK(firsts, 1);
        kill(heir, SIGCONT);
        CHECK(waitpid(heir, &status, 0), heir);
        CHECK(status, 0);
        CHECK(shmsync_arena_close(a), 0);
        /* These deaths are not reported again in the next epoch. */
        o.on_first = clean_first;
        CHECK(shmsync_arena_open(name, &o, &a), 0);
        CHECK(firsts, 2);
        CHECK(shmsync_arena_close(a), 0);
    }
}

static void path_of(const char *name, char path[300]) { snprintf(path, 300, "/dev/shm/%s", name); }
static ino_t inode_of(const char *name)
{
    char path[300];
    struct stat st;
    path_of(name, path);
    CHECK(stat(path, &st), 0);
    return st.st_ino;
}
static void ends_well(pid_t p)
{
    int status;
    kill(p, SIGCONT);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
}
static void make(const char *name, uint64_t size)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    memset(&o, 0, sizeof o);
    o.size = size;
    o.recreate = SHMSYNC_RECREATE_INCOMPATIBLE;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* If two processes replace one file, the slower one does not touch the new file. */
static void judged(const char *name)
{
    pid_t slow = fork();
    ino_t made;
    if (slow == 0) {
        stop_at = "arena.remove.judged";
        make(name, 4 << 20);
        _exit(0);
    }
    await_stop(slow);
    make(name, 4 << 20);
    made = inode_of(name);
    ends_well(slow);
    CHECK(inode_of(name), made);
}

/* A file that gets the path of the arena just before the removal is not removed. */
static void taken(const char *name)
{
    char other[260], from[300], to[300];
    shmsync_arena *a;
    pid_t remover = fork();
    ino_t made;
    if (remover == 0) {
        stop_at = "arena.remove.checked";
        CHECK(shmsync_arena_remove(name), EBUSY);
        _exit(0);
    }
    await_stop(remover);
    snprintf(other, sizeof other, "%s.other", name);
    make(other, 2 << 20);
    made = inode_of(other);
    path_of(other, from);
    path_of(name, to);
    CHECK(rename(from, to), 0);
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    ends_well(remover);
    CHECK(inode_of(name), made);
    CHECK(shmsync_arena_close(a), 0);
}

/* A remover that dies leaves the file under a private name. The next process that creates the arena removes it. */
static void removed(const char *name)
{
    pid_t remover = fork();
    int status;
    if (remover == 0) {
        stop_at = "arena.remove.renamed";
        shmsync_arena_remove(name);
        _exit(0);
    }
    await_stop(remover);
    kill(remover, SIGKILL);
    CHECK(waitpid(remover, &status, 0), remover);
    make(name, 2 << 20);
}

/* A removal does not replace a file of another program at the private name. What a dead remover has left there does
 * not prevent a removal. */
static int no_renameat2;
static long renameat2_number(void) { return no_renameat2 ? -1 : SYS_renameat2; }

static void private_of(const char *name, char out[700])
{
    char path[300];
    path_of(name, path);
    shmi_private_name(path, (uint64_t)inode_of(name), out, 700);
}
static void foreign(const char *name)
{
    char path[300], p[700], b[4];
    struct stat st;
    int status, fd;
    pid_t remover;
    path_of(name, path);
    private_of(name, p);
    fd = open(p, O_RDWR | O_CREAT | O_EXCL, 0600);
    CHECK(write(fd, "mine", 4), 4);
    CHECK(shmsync_arena_remove(name), EEXIST);
    CHECK(strstr(shmsync_error(), p) != NULL, 1);
    CHECK(pread(fd, b, 4, 0), 4);
    CHECK(stat(path, &st), 0);
    CHECK(fstat(fd, &st), 0);
    CHECK(st.st_nlink, 1);
    close(fd);
    CHECK(unlink(p), 0);
    CHECK(link(path, p), 0); /* as a remover that died leaves it */
    CHECK(shmsync_arena_remove(name), 0);
    CHECK(lstat(path, &st), -1);
    CHECK(lstat(p, &st), -1);

    make(name, 2 << 20);
    private_of(name, p);
    remover = fork();
    if (remover == 0) {
        no_renameat2 = 1;
        stop_at = "arena.remove.placed";
        shmsync_arena_remove(name);
        _exit(0);
    }
    await_stop(remover);
    kill(remover, SIGKILL);
    CHECK(waitpid(remover, &status, 0), remover);
    CHECK(lstat(p, &st), 0);
    CHECK(S_ISLNK(st.st_mode), 1);
    CHECK(shmsync_arena_remove(name), 0);
    CHECK(lstat(path, &st), -1);
    CHECK(lstat(p, &st), -1);
    make(name, 2 << 20);
}
static void foreign_without(const char *name)
{
    no_renameat2 = 1;
    foreign(name);
}

/* The helper thread reports that the file was removed. */
static int told[2];

static void detached(shmsync_arena *a, void *arg)
{
    CHECK(arg == told, 1);
    CHECK(shmsync_arena_size(a), 2 << 20);
    CHECK(shmsync_arena_close(a), EDEADLK);
    CHECK(write(told[1], "x", 1), 1);
}
static void tells_removal(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a, *again;
    char path[300], b;
    memset(&o, 0, sizeof o);
    o.on_detached = detached;
    o.on_detached_arg = told;
    path_of(name, path);
    CHECK(pipe(told), 0);
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    CHECK(shmsync_arena_open(name, &o, &again), 0);
    CHECK(again == a, 1);
    CHECK(shmsync_arena_close(again), 0);
    CHECK(unlink(path), 0);
    CHECK(read(told[0], &b, 1), 1);
    CHECK(shmsync_arena_close(a), 0);
    close(told[1]);
    CHECK(read(told[0], &b, 1), 0); /* once */
    make(name, 2 << 20);
}

/* Everything that deaths have made unusable is usable after shmsync_recover_all. */
static void hold_all(const char *name)
{
    shmsync_arena *a;
    shmsync_mutex m, hopeless;
    shmsync_rwmutex rw;
    shmsync_fairmutex fair;
    shmsync_spinlock spin;
    shmsync_rwspinlock rwspin;
    shmsync_multilock multi;
    shmsync_hold h;
    shmsync_waitgroup group;
    shmsync_latch latch;
    shmsync_barrier barrier;
    shmsync_future future;
    shmsync_arena_options o;
    memset(&o, 0, sizeof o);
    o.label = "holder";
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_mutex_open(a, "mutex", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_open(a, "hopeless", NULL, &hopeless), 0);
    CHECK(shmsync_mutex_lock(&hopeless), 0);
    CHECK(shmsync_rwmutex_open(a, "rwmutex", NULL, &rw), 0);
    CHECK(shmsync_rwmutex_lock(&rw), 0);
    CHECK(shmsync_fairmutex_open(a, "fair", NULL, &fair), 0);
    CHECK(shmsync_fairmutex_lock(&fair), 0);
    CHECK(shmsync_spinlock_open(a, "spin", NULL, &spin), 0);
    CHECK(shmsync_spinlock_lock(&spin), 0);
    CHECK(shmsync_rwspinlock_open(a, "rwspin", NULL, &rwspin), 0);
    CHECK(shmsync_rwspinlock_lock(&rwspin), 0);
    CHECK(shmsync_multilock_open(a, "multi", NULL, &multi), 0);
    CHECK(shmsync_multilock_lock(&multi, 7, &h), 0);
    CHECK(shmsync_multilock_lock(&multi, 9, &h), 0);
    CHECK(shmsync_waitgroup_open(a, "group", NULL, &group), 0);
    CHECK(shmsync_waitgroup_add(&group, 2), 0);
    CHECK(shmsync_latch_open(a, "latch", 2, NULL, &latch), 0);
    CHECK(shmsync_latch_claim(&latch, 1), 0);
    CHECK(shmsync_barrier_open(a, "barrier", 2, NULL, &barrier), 0);
    CHECK(shmsync_barrier_register(&barrier, 1), 0);
    CHECK(shmsync_future_open(a, "future", NULL, &future), 0);
    CHECK(shmsync_future_claim(&future), 0);
    raise(SIGSTOP);
    _exit(3);
}
static int repairs, want_err;

static int repair(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    CHECK(arg == &repairs, 1);
    repairs++;
    CHECK(l->err, want_err);
    CHECK(l->who_known, 1);
    CHECK(strcmp(l->who.label, "holder"), 0);
    CHECK(l->has_key, strcmp(l->kind, "MULT") == 0);
    CHECK(!l->has_key || l->key == 7 || l->key == 9, 1);
    return want_err == EOWNERDEAD && strcmp(l->name, "hopeless") == 0 ? EIO : 0;
}
static int recover_in_first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    size_t n;
    (void)arg;
    CHECK(e->clean, 0);
    want_err = EOWNERDEAD;
    CHECK(shmsync_recover_all(a, repair, &repairs, &n), ENOTRECOVERABLE);
    CHECK(repairs, 12);
    CHECK(n, 11);
    want_err = ENOTRECOVERABLE;
    CHECK(shmsync_recover_all(a, repair, &repairs, &n), 0);
    CHECK(n, 1);
    CHECK(shmsync_recover_all(a, repair, &repairs, &n), 0);
    CHECK(n, 0);
    return 0;
}
static void recover_all(const char *name)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    shmsync_mutex m;
    shmsync_waitgroup group;
    int status;
    pid_t p = fork();
    if (p == 0)
        hold_all(name);
    await_stop(p);
    kill(p, SIGKILL);
    CHECK(waitpid(p, &status, 0), p);
    memset(&o, 0, sizeof o);
    o.on_first = recover_in_first;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(shmsync_mutex_attach(a, "hopeless", NULL, &m), 0);
    CHECK(shmsync_mutex_lock(&m), 0);
    CHECK(shmsync_mutex_unlock(&m), 0);
    CHECK(shmsync_waitgroup_attach(a, "group", NULL, &group), 0);
    CHECK(shmsync_waitgroup_wait(&group), 0);
    CHECK(shmsync_arena_close(a), 0);
}

/* A joiner without byte locks does not get into an arena that is being removed. */
static void without_bytes(const char *name)
{
    shmsync_arena *a;
    pid_t remover = fork(), joiner;
    int status;
    if (remover == 0) {
        stop_at = "arena.remove.checked";
        shmsync_arena_remove(name); /* EBUSY if the joiner has ended the claim */
        _exit(0);
    }
    await_stop(remover);
    joiner = fork();
    if (joiner == 0) {
        setenv("SHMSYNC_DISABLE", "ofd", 1);
        stop_at = "arena.enter.live";
        CHECK(shmsync_arena_open(name, NULL, &a), 0);
        CHECK(shmi_moved(a), 0);
        CHECK(shmsync_arena_close(a), 0);
        _exit(0);
    }
    await_stop(joiner);
    kill(joiner, SIGCONT);
    kill(remover, SIGCONT);
    CHECK(waitpid(remover, &status, 0), remover);
    CHECK(waitpid(joiner, &status, 0), joiner);
    CHECK(status, 0);
    make(name, 2 << 20);
}

/* If two claimants die one after the other, the next first participant knows that the arena is not new. */
static void die_at(const char *name, const char *point, shmsync_arena_options *o)
{
    shmsync_arena *a;
    int status;
    pid_t p = fork();
    if (p == 0) {
        stop_at = point;
        shmsync_arena_open(name, o, &a);
        _exit(3);
    }
    await_stop(p);
    kill(p, SIGKILL);
    CHECK(waitpid(p, &status, 0), p);
}
static void not_new(const char *name)
{
    char path[300];
    shmsync_arena_options o;
    shmsync_arena *a;
    ino_t made;
    int keep;
    memset(&o, 0, sizeof o);
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    path_of(name, path);
    CHECK(unlink(path), 0);
    die_at(name, "arena.gate.begun", &o);
    made = inode_of(name);
    keep = open(path, O_RDONLY);
    die_at(name, "arena.gate.claiming", &o);
    CHECK(inode_of(name), made);
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(inode_of(name) != made, 1);
    CHECK(shmsync_arena_close(a), 0);
    close(keep);
    make(name, 2 << 20);
}

/* If a reaper dies while it writes a death record, a number has no record. The arena is as clean, and as new, as
 * before. */
static void count_a_record(const char *name)
{
    char path[300];
    uint64_t total;
    int fd;
    path_of(name, path);
    fd = open(path, O_RDWR);
    CHECK(pread(fd, &total, 8, SHMI_hdrDeathRecordsTotal), 8);
    total++;
    CHECK(pwrite(fd, &total, 8, SHMI_hdrDeathRecordsTotal), 8);
    close(fd);
}
static void not_whole(const char *name)
{
    char path[300];
    shmsync_arena_options o;
    shmsync_arena *a;
    ino_t made;
    memset(&o, 0, sizeof o);
    CHECK(shmsync_arena_open(name, NULL, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    count_a_record(name);
    o.on_first = clean_first;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(firsts, 1);
    CHECK(shmsync_arena_close(a), 0);
    o.on_first = NULL;
    o.lifetime = SHMSYNC_LIFETIME_EPHEMERAL;
    path_of(name, path);
    CHECK(unlink(path), 0);
    die_at(name, "arena.gate.claiming", &o);
    made = inode_of(name);
    count_a_record(name);
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(inode_of(name), made);
    CHECK(shmsync_arena_close(a), 0);
    make(name, 2 << 20);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(60);
    if (strcmp(argv[1], "heir") == 0)
        stopped_heir(argv[2]);
    else if (strcmp(argv[1], "judged") == 0)
        judged(argv[2]);
    else if (strcmp(argv[1], "taken") == 0)
        taken(argv[2]);
    else if (strcmp(argv[1], "removed") == 0)
        removed(argv[2]);
    else if (strcmp(argv[1], "foreign") == 0)
        foreign(argv[2]);
    else if (strcmp(argv[1], "foreign without renameat2") == 0)
        foreign_without(argv[2]);
    else if (strcmp(argv[1], "detached") == 0)
        tells_removal(argv[2]);
    else if (strcmp(argv[1], "without bytes") == 0)
        without_bytes(argv[2]);
    else if (strcmp(argv[1], "not new") == 0)
        not_new(argv[2]);
    else if (strcmp(argv[1], "not whole") == 0)
        not_whole(argv[2]);
    else if (strcmp(argv[1], "recover") == 0)
        recover_all(argv[2]);
    else
        return 2;
    return 0;
}
