/* Tests a close of the arena beside calls for which it does not count: uncounted ARENA VERB. A child is the process that
 * closes, and the parent is its peer. SIGALRM ends a test that hangs.
 *
 *	put, lease                  a thread is held before it copies the item of its slot. The close waits until the call has ended
 *	put held, lease held        the thread is held until the close has ended. The close goes on, and the thread changes nothing
 *	put claimed, lease claimed  a thread is held after it has claimed its slot. The close waits, and the call undoes the claim
 *	put late, lease late        the call claims its slot after the close has waited. The call undoes the claim
 *	store, commit               a thread has the lock of a Synchronized, and is held before it stores. The close waits for it
 *	store held, commit held     the thread is held until the close has ended
 *	store lent                  the program has the lock, and no call works with the value. The close does not wait
 *	unlock held                 a thread is held in the unlock of a Mutex, before it stores the owner word, until the close has ended
 *	save held                   a thread is held in the save of a transaction, before it writes the record, until the close has ended
 *	death                       the process is killed after it has taken back what it held. The kernel marks its alive words
 *	owed                        a thread is about to wake a waiter of a peer. Before the slot says no more that the process
 *	                            owes wakes, the close has made them
 *	unknown                     the kernel neither replaces nor unmaps the mapping. The close forgets no call that is under way
 *	fork                        a child that is made in the close does not inherit the mapping of the close
 *	commit unfenced             the process has not registered for membarrier. The call makes the fence itself
 *
 * In all other scenes, the close makes a fence for the calls, if membarrier works here. */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
static void at_point(const char *name);
static void at_call(long number);
static int read_clock(clockid_t clock, struct timespec *ts);
static void *copy(void *to, const void *from, size_t n);
static int at_store(const void *word);
static void *remaps(void *from, size_t old_size, size_t size, int flags, void *to, ...);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define FIRST(number, ...) number
#define syscall(...) (at_call(FIRST(__VA_ARGS__, 0)), syscall(__VA_ARGS__))
#define clock_gettime read_clock
#define mremap(from, old_size, size, ...) remaps(from, old_size, size, __VA_ARGS__, (void *)NULL)
#undef memcpy
#define memcpy copy
#define __atomic_store_n(word, value, order) ((void)at_store(word), __atomic_store_n(word, value, order))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#undef syscall
#undef clock_gettime
#undef mremap
#undef memcpy
#undef __atomic_store_n

#include <sys/prctl.h>
#include "check.h"
#include "processes.h"

enum { ITEM = 64 };
static int leases, stores, commits, held, claims, late, lent, unfenced;
static shmsync_arena *arena;
static shmsync_queue queue;
static shmsync_synchronized value;
static shmsync_mutex mutex, logged; /* logged has an undo log */
static char *data;                  /* ITEM bytes that logged guards */
static int unlocks, saves, dies, owes, unknown, forks;
static int to_peer[2], to_child[2];

static void tell(const int *pipe) { CHECK(write(pipe[1], "x", 1), 1); }
static void hear(const int *pipe)
{
    char b;
    CHECK(read(pipe[0], &b, 1), 1);
}
static void opens(const char *name)
{
    shmsync_queue_options opts;
    shmsync_mutex_options mo;
    void *block;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.capacity = 1;
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    while (shmi_have_fences() && !__atomic_load_n(&arena->fenced, __ATOMIC_SEQ_CST)) /* a thread may be registering the process */
        sched_yield();
    CHECK(shmsync_queue_open(arena, "q", ITEM, &opts, &queue), 0);
    CHECK(shmsync_synchronized_open(arena, "s", ITEM, NULL, &value), 0);
    memset(&mo, 0, sizeof mo);
    mo.struct_size = sizeof mo;
    mo.policy = SHMSYNC_POLICY_ROLLBACK;
    CHECK(shmsync_mutex_open(arena, "logged", &mo, &logged), 0);
    mo.policy = SHMSYNC_POLICY_RELEASE;
    CHECK(shmsync_mutex_open(arena, "m", &mo, &mutex), 0);
    CHECK(shmsync_block_open(arena, "data", ITEM, &block), 0);
    data = (char *)block;
}

/* ---- The process that closes ---- */

static pthread_t caller;
static __thread int calls, closes;
static int seconds; /* how much later the closing thread finds the time */
static int over;    /* the thread in the call has ended */
static int fences;  /* fences that the close has made for calls that it does not count */
static sem_t claimed, go_on;

static int read_clock(clockid_t clock, struct timespec *ts)
{
    int err = clock_gettime(clock, ts);
    ts->tv_sec += closes ? seconds : 0;
    return err;
}
static void ends_call(void)
{
    if (!over) {
        over = 1;
        sem_post(&go_on);
        CHECK(pthread_join(caller, NULL), 0);
    }
}
static void at_call(long number)
{
    if (closes && number == SYS_membarrier && arena->leaving)
        fences++;
    if (!closes || number != SYS_nanosleep)
        return;
    CHECK(lent, 0);
    if (held && !unlocks && !saves) /* the close does not wait for these */
        seconds += 2;
    else
        ends_call();
}
static void calls_late(void)
{
    struct shmi_queue_call c;
    shmsync_lease lease;
    char item[ITEM] = "late";
    uint32_t i;
    memset(&c, 0, sizeof c);
    c.x = queue.impl;
    c.side = leases ? &c.x->items : &c.x->room;
    c.from = c.to = item;
    c.lease = leases ? &lease : NULL;
    CHECK(shmi_queue_try(&c), EBADF);
    for (i = 1; i <= c.x->slots; i++)
        CHECK(shmi_queue_name(shmi_ld64(&shmi_queue_at(c.x, i)->state)) != arena->self, 1);
}
static void hold(void)
{
    sem_post(&claimed);
    while (sem_wait(&go_on) != 0) {
    }
}
static void *copy(void *to, const void *from, size_t n)
{
    if (calls && n == ITEM && !claims && !commits)
        hold();
    if (closes && late == 1 && from == arena->notices) { /* the close has waited for calls, and has not replaced the mapping */
        late++;
        calls_late();
    }
    return memcpy(to, from, n);
}
static void *remaps(void *from, size_t old_size, size_t size, int flags, void *to, ...)
{
    if ((flags & MREMAP_FIXED) == 0)
        return mremap(from, old_size, size, flags);
    return unknown ? MAP_FAILED : mremap(from, old_size, size, flags, to);
}
static unsigned char *file; /* the arena in a mapping of the test */
static uint32_t rung;       /* the doorbell of the peer before the wakes */
static uint32_t *word_of(uint32_t slot, unsigned at) { return (uint32_t *)(void *)(file + shmi_slot(arena, slot) + at); }
/* Counts the mappings of the arena that this process has. */
static int mappings(void)
{
    char line[512];
    int n = 0;
    unsigned long inode;
    FILE *f = fopen("/proc/self/maps", "r");
    CHECK(f != NULL, 1);
    while (fgets(line, sizeof line, f) != NULL)
        n += sscanf(line, "%*s %*s %*s %*s %lu", &inode) == 1 && inode == (unsigned long)arena->ino;
    fclose(f);
    return n;
}
static void at_owed_point(const char *name)
{
    if (strcmp(name, "arena.close.repaired") == 0) {
        CHECK(*word_of(arena->my_slot, SHMI_slotTelling) != 0, unknown);
        CHECK(*word_of(arena->my_slot, SHMI_slotWalking), unknown ? 0 : SHMI_WALK_OWED);
        rung = *word_of(1, SHMI_slotDoorbell);
    }
    if (strcmp(name, "arena.close.reclaimed") == 0 && owes) {
        CHECK(*word_of(arena->my_slot, SHMI_slotWalking), 0);
        CHECK(*word_of(1, SHMI_slotDoorbell) != rung, 1);
        over = 2;
    }
}
static int inherited; /* how many of them a child inherits before the close */
static int child_mappings(void)
{
    int status;
    pid_t p = fork();
    if (p == 0)
        _exit(mappings());
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WIFEXITED(status), 1);
    return WEXITSTATUS(status);
}
static void at_fork_point(const char *name)
{
    if (strcmp(name, "arena.close.repaired") != 0)
        return;
    CHECK(child_mappings(), inherited - 1); /* without the mapping that the close has replaced */
    over = 2;
}
static int at_store(const void *word)
{
    if (calls && unlocks && word == mutex.impl->own)
        hold();
    return 0;
}
static void at_point(const char *name)
{
    if (calls && claims && strcmp(name, leases ? "queue.take.committed" : "queue.add.claimed") == 0)
        hold();
    if (calls && commits && strcmp(name, "synchronized.update.written") == 0)
        hold();
    if (closes && (owes || unknown))
        at_owed_point(name);
    if (closes && forks)
        at_fork_point(name);
    if (closes && strcmp(name, "arena.close.repaired") == 0 && !owes && !unknown && !forks) {
        CHECK(fences, 2 * arena->fenced); /* one before it waits, and one before it replaces the mapping */
        CHECK(late, 2 * (late != 0));
        if (dies) {
            char slot = (char)arena->my_slot;
            CHECK(write(to_peer[1], &slot, 1), 1);
            raise(SIGKILL);
        }
        tell(to_peer);
        hear(to_child);
        if (!held || unlocks || saves)
            ends_call();
    }
}
static shmsync_tx tx;
static int call(void)
{
    shmsync_lease lease;
    char item[ITEM];
    memset(item, 'A', sizeof item);
    if (unlocks)
        return shmsync_mutex_unlock(&mutex);
    if (saves)
        return shmsync_tx_save(&tx, data, ITEM);
    if (commits)
        return shmsync_synchronized_commit(&value);
    if (stores)
        return shmsync_synchronized_store(&value, item);
    return leases ? shmsync_queue_trylease(&queue, item, &lease) : shmsync_queue_tryput(&queue, item);
}
static void *makes_call(void *arg)
{
    void *copied;
    int err;
    if (unlocks) {
        CHECK(shmsync_mutex_lock(&mutex), 0);
        CHECK(shmi_ld32(mutex.impl->own) == (arena->self | SHMI_OWNER_BIASED), arena->fenced);
    }
    if (saves)
        CHECK(shmsync_mutex_begin(&logged, &tx), 0);
    if (commits) {
        CHECK(shmsync_synchronized_begin(&value, &copied), 0);
        memset(copied, 'A', ITEM);
    }
    calls = 1;
    err = call();
    if (!held) /* otherwise the call has changed the memory that has replaced the arena */
        CHECK(err, claims ? EBADF : 0);
    return arg;
}
static void child(const char *name)
{
    void *copied;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    hear(to_child);
    opens(name);
    CHECK(sem_init(&claimed, 0, 0), 0);
    CHECK(sem_init(&go_on, 0, 0), 0);
    over = late || lent || dies || owes || unknown || forks;
    file = (unsigned char *)mmap(NULL, (size_t)arena->size, PROT_READ | PROT_WRITE, MAP_SHARED, arena->fd, 0);
    CHECK(file != MAP_FAILED, 1);
    if (forks)
        inherited = child_mappings();
    if (owes || unknown)
        shmi_begin_tell(arena);
    if (unfenced)
        __atomic_store_n(&arena->fenced, 0, __ATOMIC_SEQ_CST);
    if (lent)
        CHECK(shmsync_synchronized_begin(&value, &copied), 0);
    if (!over) {
        CHECK(pthread_create(&caller, NULL, makes_call, NULL), 0);
        while (sem_wait(&claimed) != 0) {
        }
    }
    closes = 1;
    CHECK(shmsync_arena_close(arena), 0);
    if (owes || forks)
        CHECK(over, 2);
    else
        CHECK(over, !held || unlocks || saves);
    CHECK(seconds != 0, held && !unlocks && !saves); /* the close has waited */
    ends_call();
    _exit(0);
}

/* ---- The peer ---- */

static void await_end(pid_t p)
{
    int status;
    CHECK(waitpid(p, &status, 0), p);
    CHECK(status, 0);
}
static void check_item(const char *item, char want)
{
    int i;
    for (i = 0; i < ITEM; i++)
        CHECK(item[i], want);
}
static void peer_of_a_put(pid_t p)
{
    char item[ITEM];
    const int there = !held && !claims && !late; /* the put has succeeded */
    hear(to_peer);
    memset(item, 'B', sizeof item);
    CHECK(shmsync_queue_tryput(&queue, item), there ? EBUSY : 0);
    tell(to_child);
    await_end(p);
    CHECK(shmsync_queue_tryget(&queue, item), 0);
    check_item(item, there ? 'A' : 'B');
}
static void peer_of_a_lease(pid_t p)
{
    shmsync_lease lease;
    char item[ITEM];
    const uint32_t attempts = !held && !claims && !late; /* the lease of the child counts as an attempt */
    hear(to_peer);
    CHECK(shmsync_queue_trylease(&queue, item, &lease), 0);
    CHECK(lease.attempts, attempts);
    CHECK(shmsync_lease_nack(&lease), 0);
    CHECK(shmsync_queue_trylease(&queue, item, &lease), 0);
    CHECK(lease.attempts, attempts + 1);
    tell(to_child);
    await_end(p);
    check_item(item, 'B');
    CHECK(shmsync_lease_ack(&lease), 0);
    CHECK(shmsync_queue_trylease(&queue, item, &lease), EBUSY);
    CHECK(shmsync_queue_tryput(&queue, item), 0);
}
static void peer_of_a_store(pid_t p)
{
    void *copied;
    char item[ITEM];
    const int there = !held && !lent; /* the value has changed */
    hear(to_peer);
    CHECK(shmsync_synchronized_commits(&value), there);
    CHECK(shmsync_synchronized_begin(&value, &copied), 0);
    check_item((const char *)copied, there ? 'A' : 0);
    memset(copied, 'B', ITEM);
    tell(to_child);
    await_end(p);
    CHECK(shmsync_synchronized_commits(&value), there);
    check_item((const char *)copied, 'B');
    CHECK(shmsync_synchronized_commit(&value), 0);
    CHECK(shmsync_synchronized_load(&value, item), 0);
    check_item(item, 'B');
}

static void peer_of_an_unlock(pid_t p)
{
    hear(to_peer);
    CHECK(shmsync_mutex_trylock(&mutex), 0);
    tell(to_child);
    await_end(p);
    CHECK(shmi_owner_name(shmi_ld32(mutex.impl->own)), arena->self);
    CHECK(shmsync_mutex_unlock(&mutex), 0);
}
static void peer_of_the_dead(pid_t p)
{
    char slot;
    int status;
    unsigned k;
    CHECK(read(to_peer[0], &slot, 1), 1);
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WTERMSIG(status), SIGKILL);
    for (k = 0; k < SHMI_aliveWords && shmi_has(&shmi_have.robust); k++)
        CHECK((shmi_ld32(shmi_alive_word(arena, (uint32_t)slot, k)) & SHMI_OWNER_DIED) != 0, 1);
}
static void peer_of_a_save(pid_t p)
{
    hear(to_peer);
    CHECK(shmsync_mutex_begin(&logged, &tx), 0);
    memset(data, 'B', ITEM / 2);
    CHECK(shmsync_tx_save(&tx, data + ITEM / 2, ITEM / 2), 0); /* the record of the child would restore all of data */
    memset(data + ITEM / 2, 'C', ITEM / 2);
    tell(to_child);
    await_end(p);
    CHECK(shmsync_tx_abort(&tx), 0);
    CHECK(data[0], 'B');
    CHECK(data[ITEM - 1], 0);
}

int main(int argc, char **argv)
{
    char item[ITEM];
    pid_t p;
    CHECK(argc, 3);
    leases = strncmp(argv[2], "lease", 5) == 0;
    stores = strncmp(argv[2], "store", 5) == 0;
    commits = strncmp(argv[2], "commit", 6) == 0;
    unlocks = strncmp(argv[2], "unlock", 6) == 0;
    saves = strncmp(argv[2], "save", 4) == 0;
    dies = strncmp(argv[2], "death", 5) == 0;
    held = strstr(argv[2], " held") != NULL;
    claims = strstr(argv[2], " claimed") != NULL;
    owes = strncmp(argv[2], "owed", 4) == 0;
    unknown = strncmp(argv[2], "unknown", 7) == 0;
    forks = strncmp(argv[2], "fork", 4) == 0;
    late = strstr(argv[2], " late") != NULL;
    lent = strstr(argv[2], " lent") != NULL;
    unfenced = strstr(argv[2], " unfenced") != NULL;
    CHECK(pipe(to_peer), 0);
    CHECK(pipe(to_child), 0);
    alarm(60);
    p = fork();
    if (p == 0)
        child(argv[1]);
    close(to_peer[1]); /* a read fails after the end of the child */
    opens(argv[1]);
    memset(item, 'B', sizeof item);
    if (leases)
        CHECK(shmsync_queue_tryput(&queue, item), 0);
    tell(to_child);
    if (dies)
        peer_of_the_dead(p);
    else if (owes || unknown || forks)
        await_end(p);
    else if (unlocks)
        peer_of_an_unlock(p);
    else if (saves)
        peer_of_a_save(p);
    else if (stores || commits)
        peer_of_a_store(p);
    else if (leases)
        peer_of_a_lease(p);
    else
        peer_of_a_put(p);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
