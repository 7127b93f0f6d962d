/* Tests that shmsync_recover_all leaves healthy objects alone and reports every failure: recover VERB NAME. Exit
 * status 0 if all results were right; SIGALRM ends a test that hangs. */
#define _GNU_SOURCE 1
#include <stdlib.h>

static void at_point(const char *name);
static int memory = -1; /* how many more calls of realloc succeed, if it is not negative */
static void *reallocate(void *p, size_t n) { return memory == 0 || (memory > 0 && memory-- == 0) ? NULL : realloc(p, n); }
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#define realloc reallocate
#include "shmsync.h"

#include <sys/wait.h>

#include "check.h"

static int points, die_at, counting; /* points: how many were met since counting was set */

static void at_point(const char *name)
{
    (void)name;
    if (counting && ++points == die_at)
        kill(getpid(), SIGKILL);
}

typedef struct all {
    shmsync_arena *a;
    shmsync_mutex mutex;
    shmsync_rwmutex rw;
    shmsync_fairmutex fair;
    shmsync_spinlock spin;
    shmsync_rwspinlock rwspin;
    shmsync_multilock multi;
    shmsync_waitgroup group;
    shmsync_latch latch;
    shmsync_barrier barrier;
    shmsync_future future;
} all;

static void open_all(const char *name, all *x)
{
    memset(x, 0, sizeof *x);
    CHECK(shmsync_arena_open(name, NULL, &x->a), 0);
    CHECK(shmsync_mutex_open(x->a, "mutex", NULL, &x->mutex), 0);
    CHECK(shmsync_rwmutex_open(x->a, "rwmutex", NULL, &x->rw), 0);
    CHECK(shmsync_fairmutex_open(x->a, "fair", NULL, &x->fair), 0);
    CHECK(shmsync_spinlock_open(x->a, "spin", NULL, &x->spin), 0);
    CHECK(shmsync_rwspinlock_open(x->a, "rwspin", NULL, &x->rwspin), 0);
    CHECK(shmsync_multilock_open(x->a, "multi", NULL, &x->multi), 0);
    CHECK(shmsync_waitgroup_open(x->a, "group", NULL, &x->group), 0);
    CHECK(shmsync_latch_open(x->a, "latch", 2, NULL, &x->latch), 0);
    CHECK(shmsync_barrier_open(x->a, "barrier", 2, NULL, &x->barrier), 0);
    CHECK(shmsync_future_open(x->a, "future", NULL, &x->future), 0);
}

static int unwanted(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)arg;
    fprintf(stderr, "%s %s is lost: %d\n", l->kind, l->name, l->err);
    return EIO;
}
static int nothing(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return 0;
}

/* If a process is killed at any point in a recover_all of healthy objects, the objects stay healthy, because it has
 * locked none of them. */
static void healthy(const char *name)
{
    all x;
    int n, status;
    pid_t p;
    shmsync_hold h;
    open_all(name, &x);
    for (n = 1;; n++) {
        p = fork();
        if (p == 0) {
            all y;
            size_t recovered;
            open_all(name, &y);
            die_at = n;
            counting = 1;
            CHECK(shmsync_recover_all(y.a, unwanted, NULL, &recovered), 0);
            CHECK(recovered, 0);
            _exit(0);
        }
        CHECK(waitpid(p, &status, 0), p);
        CHECK(shmsync_mutex_lock(&x.mutex), 0);
        CHECK(shmsync_mutex_unlock(&x.mutex), 0);
        CHECK(shmsync_rwmutex_lock(&x.rw), 0);
        CHECK(shmsync_rwmutex_unlock(&x.rw), 0);
        CHECK(shmsync_fairmutex_lock(&x.fair), 0);
        CHECK(shmsync_fairmutex_unlock(&x.fair), 0);
        CHECK(shmsync_spinlock_lock(&x.spin), 0);
        CHECK(shmsync_spinlock_unlock(&x.spin), 0);
        CHECK(shmsync_rwspinlock_lock(&x.rwspin), 0);
        CHECK(shmsync_rwspinlock_unlock(&x.rwspin), 0);
        CHECK(shmsync_multilock_lock(&x.multi, 7, &h), 0);
        CHECK(shmsync_multilock_unlock(&h), 0);
        if (WIFEXITED(status))
            break;
        CHECK(WTERMSIG(status), SIGKILL);
    }
    CHECK(WEXITSTATUS(status), 0);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* Makes the mutex and the future lost, or more objects: a process that holds them dies. */
static void lose(const char *name, int whole)
{
    int status;
    pid_t p = fork();
    if (p == 0) {
        all x;
        shmsync_hold h;
        open_all(name, &x);
        CHECK(shmsync_mutex_lock(&x.mutex), 0);
        CHECK(shmsync_future_claim(&x.future), 0);
        if (whole) {
            CHECK(shmsync_multilock_lock(&x.multi, 7, &h), 0);
            CHECK(shmsync_waitgroup_add(&x.group, 2), 0);
            CHECK(shmsync_latch_claim(&x.latch, 1), 0);
            CHECK(shmsync_barrier_register(&x.barrier, 1), 0);
        }
        kill(getpid(), SIGKILL);
    }
    CHECK(waitpid(p, &status, 0), p);
    CHECK(WTERMSIG(status), SIGKILL);
}

static int sets(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    shmsync_future f;
    (void)arg;
    if (strcmp(l->name, "future") != 0)
        return 0;
    CHECK(shmsync_future_attach(a, "future", NULL, &f), 0);
    CHECK(shmsync_future_reset(&f), 0);
    CHECK(shmsync_future_set(&f, 7), 0);
    CHECK(shmsync_future_close(&f), 0);
    return 0;
}
/* If repair sets a future whose producer has died, its result stays. */
static void kept(const char *name)
{
    static const struct timespec past = {0, 1};
    all x;
    size_t n;
    int result = 0;
    lose(name, 1);
    open_all(name, &x);
    CHECK(shmsync_recover_all(x.a, sets, NULL, &n), 0);
    CHECK(n, 6);
    CHECK(shmsync_future_timedwait(&x.future, &result, &past), 0);
    CHECK(result, 7);
    CHECK(shmsync_arena_close(x.a), 0);
}

/* recover_all returns ENOMEM if it had no memory, and EPROTO for an object that a peer has overwritten. It goes on
 * with the other objects. */
static void damage(const char *name)
{
    all x;
    size_t n;
    uint64_t *size;
    uint32_t *policy;
    lose(name, 1);
    open_all(name, &x);
    memory = 0; /* the list of objects fails */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), ENOMEM);
    CHECK(n, 0);
    memory = 1; /* the list of keys of the multilock fails */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), ENOMEM);
    CHECK(n, 5);
    memory = -1;
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), 0);
    CHECK(n, 1);

    lose(name, 0);
    size = shmi_u64(x.a, shmsync_fairmutex_offset(&x.fair) + SHMI_objSize);
    policy = shmi_u32(x.a, shmsync_mutex_offset(&x.mutex) + SHMI_objectHeader + offsetof(shmi_mutex_words, policy));
    shmi_st64(size, UINT64_C(1) << 40);
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), EPROTO);
    CHECK(n, 2);
    shmi_st64(size, sizeof(shmi_fairmutex_words));
    lose(name, 0);
    shmi_st32(policy, SHMI_POLICY_ROLLBACK); /* a lock of that policy has a log, and this one has none */
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), EPROTO);
    CHECK(n, 1);
    shmi_st32(policy, SHMI_POLICY_REPORT);
    CHECK(shmsync_recover_all(x.a, nothing, NULL, &n), 0);
    CHECK(n, 1);
    CHECK(shmsync_arena_close(x.a), 0);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    alarm(120);
    if (strcmp(argv[1], "healthy") == 0)
        healthy(argv[2]);
    else if (strcmp(argv[1], "kept") == 0)
        kept(argv[2]);
    else if (strcmp(argv[1], "damage") == 0)
        damage(argv[2]);
    else
        return 2;
    return 0;
}
