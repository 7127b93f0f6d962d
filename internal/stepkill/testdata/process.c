/* A process of the scenes in C: process ARENA OBJECT DOES. It joins the arena. Then it either does the operation on
 * a thread of its own, which the tester steps or kills, or checks the data as a newcomer. The data are those of
 * tx_test.go and synchronized_test.go; the object upgradable is the RWMutex of locks_test.go. */
#define _GNU_SOURCE 1
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#include <poll.h>

/* The page of Control in control_unsafe.go, at descriptor 3. */
struct control {
    uint32_t tid, gate, began, ended;
};

struct account {
    int64_t amount[4];
    uint64_t turn, block;
};

enum { PURSE = 5 };

static const char *name, *object, *does;
static shmsync_arena *arena;
static shmsync_mutex m;
static shmsync_rwmutex w;
static shmsync_synchronized s;
static struct account *x;

static int is(const char *a, const char *b) { return strcmp(a, b) == 0; }

static void must(int err, const char *what)
{
    if (err == 0)
        return;
    fprintf(stderr, "%s: %d, %s\n", what, err, shmsync_error());
    exit(1);
}

static int join(const char *label)
{
    shmsync_arena_options o;
    memset(&o, 0, sizeof o);
    o.attach_only = 1;
    o.label = label;
    return shmsync_arena_open(name, &o, &arena);
}

static void open_objects(void)
{
    shmsync_mutex_options mo;
    shmsync_rwmutex_options wo;
    void *p;
    memset(&mo, 0, sizeof mo);
    memset(&wo, 0, sizeof wo);
    mo.policy = wo.policy = SHMSYNC_POLICY_ROLLBACK;
    mo.log_bytes = wo.log_bytes = 256;
    if (is(object, "synchronized")) {
        must(shmsync_synchronized_open(arena, "s", PURSE * sizeof(int64_t), NULL, &s), "synchronized");
        return;
    }
    if (is(object, "upgradable")) {
        must(shmsync_rwmutex_attach(arena, "m", NULL, &w), "rwmutex");
        return;
    }
    if (is(object, "mutex"))
        must(shmsync_mutex_open(arena, "m", &mo, &m), "mutex");
    else
        must(shmsync_rwmutex_open(arena, "m", &wo, &w), "rwmutex");
    must(shmsync_value_attach(arena, "account", sizeof *x, 0, &p), "account");
    x = (struct account *)p;
}

static int begin(shmsync_tx *tx) { return is(object, "mutex") ? shmsync_mutex_begin(&m, tx) : shmsync_rwmutex_begin(&w, tx); }

/* Changes the whole account, and replaces its block by another. */
static int change(shmsync_tx *tx)
{
    shmsync_offset off, brief;
    int i, err = shmsync_tx_save(tx, x->amount, sizeof x->amount);
    for (i = 0; err == 0 && i < 4; i++)
        x->amount[i] += i % 2 != 0 ? 10 : -10;
    if (err == 0 && (err = shmsync_tx_save(tx, &x->turn, sizeof x->turn)) == 0)
        x->turn++;
    if (err == 0 && x->block != 0)
        err = shmsync_tx_free(tx, x->block);
    if (err == 0 && (err = shmsync_tx_save(tx, &x->block, sizeof x->block)) == 0 && (err = shmsync_tx_alloc(tx, 100, 0, &off)) == 0) {
        x->block = off;
        *(uint64_t *)shmsync_at(arena, off, 100) = x->turn;
    }
    if (err == 0 && (err = shmsync_tx_alloc(tx, 64, 0, &brief)) == 0)
        err = shmsync_tx_free(tx, brief);
    return err;
}

/* Sets all parts of the purse to the next number, one after the other. */
static void add(int64_t *purse)
{
    int i;
    for (i = 0; i < PURSE; i++)
        purse[i]++;
}

/* Prepares an operation on an RWMutex with upgradable holds. */
static void prepare_upgradable(void)
{
    if (is(does, "downgrade to upgradable"))
        must(shmsync_rwmutex_lock(&w), "lock");
    else if (!is(does, "lock upgradable") && !is(does, "try lock upgradable"))
        must(shmsync_rwmutex_lock_upgradable(&w), "lock_upgradable");
}

/* Does an operation on an RWMutex with upgradable holds. It may find the lock held, as its counterpart in Go does. */
static void operate_upgradable(void)
{
    struct timespec ts;
    int err = 0;
    if (is(does, "lock upgradable")) {
        err = shmsync_rwmutex_lock_upgradable(&w);
    } else if (is(does, "try lock upgradable")) {
        err = shmsync_rwmutex_try_lock_upgradable(&w);
    } else if (is(does, "unlock upgradable")) {
        err = shmsync_rwmutex_unlock_upgradable(&w);
    } else if (is(does, "upgrade")) {
        err = shmsync_rwmutex_upgrade(&w);
    } else if (is(does, "try upgrade")) {
        err = shmsync_rwmutex_try_upgrade(&w);
    } else if (is(does, "upgrade briefly")) {
        clock_gettime(CLOCK_MONOTONIC, &ts);
        ts.tv_nsec += 3000000;
        ts.tv_sec += ts.tv_nsec / 1000000000;
        ts.tv_nsec %= 1000000000;
        err = shmsync_rwmutex_timed_upgrade(&w, &ts);
        err = err == ETIMEDOUT ? 0 : err;
    } else if (is(does, "downgrade to upgradable")) {
        err = shmsync_rwmutex_downgrade_to_upgradable(&w);
    } else if (is(does, "downgrade to read")) {
        err = shmsync_rwmutex_downgrade_to_read(&w);
    } else {
        err = ENOSYS;
    }
    must(err, does);
}

static void operate(void)
{
    shmsync_tx tx;
    shmsync_offset off;
    void *copy;
    int err = 0;
    if (is(does, "join")) {
        must(join("victim"), "join");
    } else if (is(object, "upgradable")) {
        operate_upgradable();
    } else if (is(does, "lock")) { /* undoes what a dead holder has left */
        must(is(object, "mutex") ? shmsync_mutex_lock(&m) : shmsync_rwmutex_rdlock(&w), does);
        must(is(object, "mutex") ? shmsync_mutex_unlock(&m) : shmsync_rwmutex_rdunlock(&w), does);
    } else if (is(object, "synchronized")) {
        must(shmsync_synchronized_begin(&s, &copy), does);
        add((int64_t *)copy);
        must(is(does, "abort") ? shmsync_synchronized_abort(&s) : shmsync_synchronized_commit(&s), does);
    } else if (is(does, "commit without blocks")) {
        must(begin(&tx), does);
        must(shmsync_tx_save(&tx, x->amount, 2 * sizeof x->amount[0]), does);
        x->amount[0]--;
        x->amount[1]++;
        must(shmsync_tx_commit(&tx), does);
    } else {
        must(begin(&tx), does);
        must(change(&tx), does);
        while (is(does, "full") && err == 0) {
            x->amount[0]++;
            err = shmsync_tx_alloc(&tx, 64, 0, &off);
        }
        if (err != 0)
            must(shmsync_tx_commit(&tx) != ENOSPC, does);
        else
            must(is(does, "abort") ? shmsync_tx_abort(&tx) : shmsync_tx_commit(&tx), does);
    }
}

static void *run(void *arg)
{
    struct control *c = (struct control *)arg;
    __atomic_store_n(&c->tid, (uint32_t)syscall(SYS_gettid), __ATOMIC_SEQ_CST);
    printf("{\"ready\":true}\n");
    fflush(stdout);
    while (__atomic_load_n(&c->gate, __ATOMIC_SEQ_CST) == 0)
        ;
    __atomic_store_n(&c->began, 1, __ATOMIC_SEQ_CST);
    operate();
    __atomic_store_n(&c->ended, 1, __ATOMIC_SEQ_CST);
    for (;;)
        pause();
    return NULL;
}

/* Checks that the data are whole, and that they stay whole when they are changed. */
static void check(void)
{
    shmsync_tx tx;
    int64_t purse[PURSE], sum;
    int turn, i;
    for (turn = 0; turn < 2; turn++) {
        if (is(object, "synchronized")) {
            must(shmsync_synchronized_load(&s, purse), "load");
            for (i = 0; i < PURSE; i++)
                must(purse[i] != purse[0], "the purse is torn");
            operate();
            continue;
        }
        must(begin(&tx), "begin");
        for (i = 0, sum = 0; i < 4; i++)
            sum += x->amount[i];
        must(sum != 0, "the account is torn");
        must(x->block != 0 && *(uint64_t *)shmsync_at(arena, x->block, 100) != x->turn, "the block is of another turn");
        must(change(&tx), "change");
        must(shmsync_tx_commit(&tx), "commit");
    }
    must(shmsync_arena_close(arena), "close");
}

int main(int argc, char **argv)
{
    struct pollfd in = {0, POLLIN, 0};
    pthread_t t;
    void *c;
    if (argc != 4)
        return 2;
    name = argv[1];
    object = argv[2];
    does = argv[3];
    if (!is(does, "join")) {
        must(join(is(does, "check") ? "newcomer" : "victim"), "join");
        open_objects();
    }
    if (is(does, "check")) {
        check();
        return 0;
    }
    if (is(object, "upgradable") && !is(does, "join"))
        prepare_upgradable();
    c = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    must(c == MAP_FAILED, "the page of the control");
    must(pthread_create(&t, NULL, run, c), "pthread_create");
    while (poll(&in, 1, -1) != 1) /* until the parent is gone */
        ;
    return 113;
}
