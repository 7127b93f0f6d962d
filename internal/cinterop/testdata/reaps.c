/* Tests reapers of locks with records and of a WaitGroup, and the next participant of a slot: reaps ARENA VERB. SIGALRM
 * ends a test that hangs. */
#define _GNU_SOURCE
#include <unistd.h>
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include "check.h"
#include "processes.h"

static shmsync_arena *arena;
static SHMI_THREAD const char *point; /* of this thread, not of a death watcher; NULL after the thread has come to it */
static void (*does)(void);
static uint32_t watcher_stays; /* 1: the death watcher stays at the next death that it sees; 2: it is there. Atomic. */
static int reaper_stops;       /* this process stops when it has repaired what a death has left */

void at_point(const char *name)
{
    if (strcmp(name, "arena.reap.seen") == 0)
        for (shmi_cas32(&watcher_stays, 1, 2); shmi_ld32(&watcher_stays) == 2 && pthread_equal(pthread_self(), arena->watcher);)
            sched_yield();
    if (reaper_stops && strcmp(name, "arena.reap.repaired") == 0)
        raise(SIGSTOP);
    if (point == NULL || strcmp(name, point) != 0)
        return;
    point = NULL;
    does();
}

static void stop(void) { raise(SIGSTOP); }
/* Starts a participant that runs f, and waits until it has stopped itself. */
static pid_t starts(const char *name, void (*f)(void))
{
    pid_t p = fork();
    if (p == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        CHECK(shmsync_arena_open(name, NULL, &arena), 0);
        f();
        _exit(0);
    }
    await_stop(p);
    return p;
}
/* The same, and joins the arena. */
static pid_t joins_after(const char *name, void (*f)(void))
{
    pid_t p = starts(name, f);
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    return p;
}

static int policy;
static void holds_fair(void)
{
    shmsync_fairmutex_options opts;
    shmsync_fairmutex f;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.policy = policy;
    CHECK(shmsync_fairmutex_open(arena, "x", &opts, &f), 0);
    CHECK(shmsync_fairmutex_lock(&f), 0);
    stop();
}
static shmi_object object;
static struct shmi_fairmutex view;
static struct shmi_record_lock lock;
/* Finds the FairMutex as a reaper does, which has no slot record in it. Returns the participant that holds it. */
static shmi_participant_id find_fair(void)
{
    shmi_spec spec;
    int created;
    shmi_spec_of_kind(&spec, SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, "x", shmi_fair_bytes(arena));
    spec.flags = SHMSYNC_OPEN_EXISTING;
    CHECK(shmi_enter(arena, "test"), 0);
    CHECK(shmi_open_object(arena, &spec, &object, &created), 0);
    shmi_exit(arena);
    CHECK(shmi_fair_view(&view, arena, &object), 1);
    lock = shmi_fair_lock_of(&view);
    CHECK(shmi_fair_is_open(shmi_fair_owner(&view)), 1);
    return shmi_owner_name(shmi_fair_owner(&view));
}

static void shuts(void) { shmi_state_shut(lock.state, lock.key); }
/* A reaper finds that a dead participant holds the lock and that its word is open. Before the reaper takes the lock back,
 * another process closes the word, in order to wait. Then the reaper makes a record. */
static void shut_meanwhile(const char *name)
{
    pid_t p = joins_after(name, holds_fair);
    shmi_participant_id dead = find_fair();
    uint32_t *state = shmi_slot32(arena, shmi_id_slot(dead), SHMI_slotState), living = shmi_ld32(state);
    shmi_st32(state, living + 8); /* another generation, so the holder counts as dead */
    does = shuts;
    point = "arena.act.begun";
    shmi_repair_fairmutex(arena, &object, dead);
    CHECK(point == NULL, 1);
    CHECK(shmi_owner_kind(shmi_fair_owner(&view)), SHMI_kindOwnerDead);
    CHECK(shmi_owner_name(shmi_fair_owner(&view)), dead);
    shmi_st32(state, living);
    kills(p);
}

/* The holder is marked dead, and has not ended, so it may still write what the lock protects. A reaper leaves the lock to
 * it, although the word is open and the policy is to release. */
static void not_gone(const char *name)
{
    shmsync_fairmutex f;
    shmi_participant_id dead;
    uint32_t w;
    pid_t p;
    policy = SHMSYNC_POLICY_RELEASE;
    p = joins_after(name, holds_fair);
    dead = find_fair();
    w = shmi_slot_state(arena, shmi_id_slot(dead));
    CHECK(shmi_cas_slot(arena, shmi_id_slot(dead), w, shmi_slot_with(w, SHMI_phaseDead)), 1);
    shmi_repair_fairmutex(arena, &object, dead);
    CHECK(shmi_owner_name(shmi_fair_owner(&view)), dead);
    kills(p);
    CHECK(shmsync_fairmutex_open(arena, "x", NULL, &f), 0);
    CHECK(shmsync_fairmutex_lock(&f), 0);
}

static shmsync_multilock multi;
static const uint64_t theirs = 1;
static void dies_committed(void)
{
    shmsync_hold h;
    CHECK(shmsync_multilock_open(arena, "x", NULL, &multi), 0);
    does = stop;
    point = "record.commit.named";
    CHECK(shmsync_multilock_lock(&multi, theirs, &h), 0);
}
static uint32_t slot;
static void inherits(void)
{
    shmsync_hold h;
    uint64_t own = theirs + 1;
    stop();
    CHECK(arena->my_slot, slot);
    CHECK(shmsync_multilock_open(arena, "x", NULL, &multi), 0);
    while (shmi_bucket_of(own, multi.impl->log) == shmi_bucket_of(theirs, multi.impl->log))
        own++;
    CHECK(shmsync_multilock_lock(&multi, own, &h), 0); /* its record takes the place of the earlier one */
    CHECK(shmsync_multilock_state(&multi, theirs), EOWNERDEAD);
    CHECK(shmsync_multilock_unlock(&h), 0);
}
/* A participant dies after it has committed the lock of a key and before it has carried that out. Its reaper does not know
 * the kind of the object. The next participant of the slot carries the change out before it makes one of its own. */
static void inherited(const char *name)
{
    pid_t p = joins_after(name, dies_committed);
    uint32_t *kind;
    CHECK(shmsync_multilock_open(arena, "x", NULL, &multi), 0);
    kind = shmi_u32(arena, shmsync_multilock_offset(&multi) + SHMI_objKind);
    CHECK(shmsync_multilock_close(&multi), 0);
    for (slot = 1; slot == arena->my_slot || !shmi_slot_present(shmi_slot_state(arena, slot)); slot++) {
    }
    shmi_st32(kind, SHMI_KIND('N', 'O', 'N', 'E'));
    kills(p);
    while (shmi_slot_phase(shmi_slot_state(arena, slot)) != SHMI_phaseFree)
        sched_yield();
    shmi_st32(kind, SHMI_KIND_MULTI_LOCK);
    goes_on(starts(name, inherits));
}

/* Takes many keys of one bucket, whose hold words are open. If the process goes on afterwards, it leaves the arena. */
enum { keys_held = 13000 };
static shmsync_multilock one_bucket(void)
{
    shmsync_multilock_options opts;
    shmsync_multilock m;
    memset(&opts, 0, sizeof opts);
    opts.struct_size = sizeof opts;
    opts.buckets = 1;
    CHECK(shmsync_multilock_open(arena, "x", &opts, &m), 0);
    return m;
}
static void holds_keys(void)
{
    shmsync_hold h;
    uint64_t key;
    multi = one_bucket();
    for (key = 1; key <= keys_held; key++)
        CHECK(shmsync_multilock_lock(&multi, key, &h), 0);
    CHECK(shmi_fair_is_open((uint32_t)(shmi_ld64(&((shmi_multilock_entry *)h.at)->hold) >> 32)), 1);
    stop();
    CHECK(shmsync_arena_close(arena), 0);
}
/* The reap of a participant that has many keys of a bucket takes all of them back. */
static void many_keys(const char *name, void (*ends)(pid_t))
{
    pid_t p = joins_after(name, holds_keys);
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    shmi_entry_walk v;
    shmsync_hold h;
    size_t at = 0;
    uint32_t held = 0, dead = 0;
    multi = one_bucket();
    ends(p);
    CHECK(shmsync_multilock_trylock(&multi, keys_held, &h), EOWNERDEAD);
    CHECK(shmsync_multilock_trylock(&multi, 1, &h), EOWNERDEAD);
    CHECK(shmi_multi_view(&x, arena, &multi.impl->o), 1);
    shmi_bucket_init(&k, &x, 0);
    shmi_view_bucket(&k, 0, &at);
    for (shmi_walk_entries(&k, &v); shmi_next_entry(&k, &v);) {
        uint32_t s = shmi_key_state(v.at.e);
        held += shmi_fair_taken(s) != 0;
        dead += shmi_owner_kind(s) == SHMI_kindOwnerDead;
    }
    shmi_view_end(&x);
    CHECK(held, 0);
    CHECK(dead, keys_held);
}

static shmsync_waitgroup group;
static void has_share(void)
{
    CHECK(shmsync_waitgroup_open(arena, "x", NULL, &group), 0);
    CHECK(shmsync_waitgroup_add(&group, 3), 0);
    stop();
}
static void reaps_without_room(void)
{
    reaper_stops = 1;
    stop();
    for (;;)
        pause();
}
static void sleeps(void) { CHECK(0, 1); }
/* A reaper that has no room for a slot record has left the share of a dead participant to the waiters, and has not counted
 * the death yet. A wait that begins then finds the share before it sleeps. */
static void left_to_a_wait(const char *name)
{
    static const struct timespec past = {0, 1};
    pid_t reaper = joins_after(name, reaps_without_room), victim = starts(name, has_share);
    shmsync_offset off;
    uint64_t size;
    CHECK(shmsync_waitgroup_open(arena, "x", NULL, &group), 0);
    CHECK(shmsync_waitgroup_add(&group, 1), 0);
    CHECK(shmsync_waitgroup_timedwait(&group, &past), ETIMEDOUT); /* it has looked for dead participants */
    for (size = 64 << 10; size >= 64; size -= 64)                 /* each class of blocks */
        while (shmsync_alloc(arena, size, &off) == 0) {
        }
    while (shmi_claim_zeroed(arena, SHMI_classHeadroom, SHMI_roomOfRecords, &off) == 0) {
    }
    shmi_st32(&watcher_stays, 1);
    kills(victim);
    while (shmi_ld32(&watcher_stays) != 2)
        sched_yield();
    CHECK(kill(reaper, SIGCONT), 0);
    await_stop(reaper);
    does = sleeps;
    point = "counter.wait.watched";
    CHECK(shmsync_waitgroup_wait(&group), EOWNERDEAD);
    point = NULL;
    kills(reaper);
    shmi_st32(&watcher_stays, 0);
}

/* The kernel marks the alive words of a process when its first thread ends. The other threads may still run for a moment.
 * If no fence can interrupt them, the process does not count as dead before it has ended. Here the victim is alive and
 * stopped, and this process marks its alive words. */
static void waits_fenced(void)
{
    while ((shmi_slot_caps(arena, arena->my_slot) & SHMI_capFence) == 0)
        sched_yield();
    stop();
}
static void forbid_fences(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof filter[0], filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK((int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}
static void not_fenced(const char *name, int forbidden)
{
    pid_t p = joins_after(name, waits_fenced);
    uint32_t k, w;
    for (slot = 1; slot == arena->my_slot || !shmi_slot_present(shmi_slot_state(arena, slot)); slot++) {
    }
    w = shmi_slot_state(arena, slot);
    if (forbidden)
        forbid_fences();
    for (k = 0; k < SHMI_aliveWords; k++)
        shmi_or32(shmi_alive_word(arena, slot, k), SHMI_OWNER_DIED);
    for (k = 0; k < 20; k++)
        CHECK(shmi_dead(arena, shmi_id_in(slot, w)), !forbidden);
    if (forbidden)
        CHECK(shmi_slot_state(arena, slot), w);
    kills(p);
    while (!shmi_dead(arena, shmi_id_in(slot, w)))
        sched_yield();
}

/* A peer stores the holds of another dead participant in the word of a reader each time before this process takes the
 * holds of a dead participant back. */
static shmsync_rwspinlock spin;
static void changes(void)
{
    uint64_t c = shmi_ld64(spin.impl->mine);
    shmi_st64(spin.impl->mine, shmi_make_count(shmi_count_name(c), (c & SHMI_RWSPIN_MOST) + 1));
    point = "arena.act.verified";
}
static void keeps_changing(const char *name)
{
    CHECK(shmsync_arena_open(name, NULL, &arena), 0);
    CHECK(shmsync_rwspinlock_open(arena, "x", NULL, &spin), 0);
    shmi_st64(spin.impl->mine, shmi_make_count(arena->self ^ UINT32_C(1) << 28, 1)); /* of another generation */
    point = "arena.act.verified";
    does = changes;
    CHECK(shmsync_rwspinlock_trylock(&spin), EPROTO);
    CHECK(shmsync_rwspinlock_lock(&spin), EPROTO);
    point = NULL;
    CHECK(shmsync_rwspinlock_lock(&spin), 0);
    CHECK(shmsync_rwspinlock_unlock(&spin), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc, 3);
    alarm(60);
    if (strcmp(argv[2], "shut meanwhile") == 0)
        shut_meanwhile(argv[1]);
    else if (strcmp(argv[2], "not gone") == 0)
        not_gone(argv[1]);
    else if (strcmp(argv[2], "fence forbidden") == 0)
        not_fenced(argv[1], 1);
    else if (strcmp(argv[2], "fence") == 0)
        not_fenced(argv[1], 0);
    else if (strcmp(argv[2], "keeps changing") == 0)
        keeps_changing(argv[1]);
    else if (strcmp(argv[2], "many keys of the dead") == 0)
        many_keys(argv[1], kills);
    else if (strcmp(argv[2], "many keys of a leaver") == 0)
        many_keys(argv[1], goes_on);
    else if (strcmp(argv[2], "left to a wait") == 0)
        left_to_a_wait(argv[1]);
    else
        inherited(argv[1]);
    CHECK(shmsync_arena_close(arena), 0);
    return 0;
}
