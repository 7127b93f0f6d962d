//go:build ignore

/*
 * A victim or a resident of a torture that is written in C. It works at the jobs of crash-safe data, among Go processes
 * that do the same, and checks what they check: see tx.go, counts.go and worker.go.
 *
 * usage: worker NUMBER LANE THREADS SEED OUTCOME DELAY_NS STEP JOB[,JOB...] PROGRAM [ARG...]
 *        worker resident NUMBER SEED JOB:INDEX[,JOB:INDEX...]
 *
 * A JOB has an INDEX in the tables of the page. Descriptor 3 is the page of the torture, of which page_unsafe.go gives
 * the offsets. Descriptor 4 is the arena. If the OUTCOME is exec, the victim ends by executing PROGRAM. STEP is the step
 * of a rollback at which the victim dies, or 0.
 */
#define _GNU_SOURCE 1

static int resident; /* 1 if this process is a resident */

/* 1 while this thread rolls back what a dead process has left. The thread works at a job, or it is the thread of the
 * library that reaps. */
static __thread int rolls_back;
static void rollback_begins(void);
static void rollback_steps(void);

/* The compiler evaluates this comparison of two names. */
#define IS_POINT(name, is) (__builtin_strcmp(name, is) == 0)
#define SHMSYNC_CRASHPOINT(name)                                                                      \
    do {                                                                                              \
        if (IS_POINT(name, "tx.rollback.taken") || IS_POINT(name, "rwmutex.rollback.taken"))          \
            rollback_begins();                                                                        \
        else if (IS_POINT(name, "tx.rollback.released") || IS_POINT(name, "rwmutex.rollback.opened")) \
            rolls_back = 0;                                                                           \
        else if (__builtin_strncmp(name, "tx.undo.", 8) == 0 && rolls_back)                           \
            rollback_steps();                                                                         \
    } while (0)

#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"
#include <time.h>

/* ---- The page: page_unsafe.go ---- */

struct spans {
    uint64_t n;
    struct {
        int64_t from, to;
    } span[PAGE_SPANS];
};
struct witness {
    uint32_t name, runs;
    uint64_t before, after;
    char pad[104];
};
struct text {
    uint32_t n;
    char bytes[1020];
};
_Static_assert(sizeof(struct witness) == PAGE_WITNESS, "witness");

static unsigned char *page;
static uint32_t number, lane;

#define AT(type, offset) ((type *)(void *)(page + (offset)))
#define OF_LANE(offset) ((offset) + (size_t)lane * PAGE_LANE)
#define OF_RESIDENT(of, offset) (PAGE_RESIDENT + (size_t)(of)*PAGE_RESIDENT_SIZE + (offset))

static uint32_t look(size_t offset) { return __atomic_load_n(AT(uint32_t, offset), __ATOMIC_SEQ_CST); }
static void tell(size_t offset, uint32_t v) { __atomic_store_n(AT(uint32_t, offset), v, __ATOMIC_SEQ_CST); }

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec ts;
    clock_gettime(clock, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void note(struct spans *s, int64_t from, int64_t to)
{
    uint64_t i = __atomic_fetch_add(&s->n, 1, __ATOMIC_SEQ_CST) % PAGE_SPANS;
    __atomic_store_n(&s->span[i].to, 0, __ATOMIC_SEQ_CST);
    __atomic_store_n(&s->span[i].from, from, __ATOMIC_SEQ_CST);
    __atomic_store_n(&s->span[i].to, to, __ATOMIC_SEQ_CST);
}

/* Tells the others that this process is about to die. */
static void note_death(void)
{
    int64_t now = nanoseconds(CLOCK_MONOTONIC);
    note(AT(struct spans, PAGE_DEATHS), now, now + 1);
}

/* Reports a broken promise, and ends the process. */
__attribute__((format(printf, 1, 2), noreturn)) static void fault(const char *format, ...)
{
    uint32_t i = __atomic_fetch_add(AT(uint32_t, PAGE_FAULTS), 1, __ATOMIC_SEQ_CST);
    char said[800], all[1020];
    va_list args;
    va_start(args, format);
    vsnprintf(said, sizeof said, format, args);
    va_end(args);
    snprintf(all, sizeof all, "%s %u in C: %s", resident ? "resident" : "victim", number, said);
    if (i < PAGE_TEXTS) {
        struct text *t = AT(struct text, PAGE_TEXT) + i;
        size_t n = strlen(all);
        memcpy(t->bytes, all, n);
        __atomic_store_n(&t->n, (uint32_t)n, __ATOMIC_SEQ_CST);
    }
    fprintf(stderr, "%s\n", all);
    _exit(1);
}

static void must(int err, const char *what)
{
    if (err != 0)
        fault("%s: errno %d, %s", what, err, shmsync_error());
}

/* ---- Death in a rollback ---- */

static int dies_at; /* the step of a rollback at which this victim dies, or 0 */

static void rollback_begins(void)
{
    rolls_back = 1;
    __atomic_fetch_add(AT(uint64_t, resident ? PAGE_RESIDENT_ROLLBACKS : PAGE_ROLLBACKS), 1, __ATOMIC_SEQ_CST);
}
static void rollback_steps(void)
{
    static int steps;
    /* Before this victim is ready, the parent does not expect its death. */
    if (dies_at == 0 || look(OF_LANE(PAGE_READY)) != number + 1)
        return;
    if (__atomic_add_fetch(&steps, 1, __ATOMIC_SEQ_CST) != dies_at)
        return;
    __atomic_fetch_add(AT(uint64_t, PAGE_DIED_INSIDE), 1, __ATOMIC_SEQ_CST);
    note_death();
    kill(getpid(), SIGKILL);
    for (;;)
        pause();
}

/* ---- What the jobs have in common ---- */

static shmsync_arena *arena;

static uint64_t draw(uint64_t *state) /* splitmix64 */
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}
static uint64_t below(uint64_t *state, uint64_t n) { return draw(state) % n; }

/* Returns the time until which a call waits, or NULL for a wait without a limit. */
static const struct timespec *limit(uint64_t *r, struct timespec *ts)
{
    int64_t end;
    if (below(r, 2) == 0)
        return NULL;
    end = nanoseconds(CLOCK_MONOTONIC) + (int64_t)below(r, 300000);
    ts->tv_sec = end / 1000000000;
    ts->tv_nsec = end % 1000000000;
    return ts;
}

/* Reports whether a call did not get what it waited for, which is no broken promise. ENOTSUP is the error of a
 * transaction in a process without a byte lock. */
static int gave_up(int err) { return err == ETIMEDOUT || err == EBUSY || err == ENOTSUP; }

static void pause_for(uint64_t ns)
{
    struct timespec ts = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    while (nanosleep(&ts, &ts) != 0) {
    }
}

/* Keeps a victim in the middle of a change for a while, so that it often dies there. */
static void linger(uint64_t *r)
{
    if (!resident && below(r, 4) == 0)
        pause_for(below(r, 2000000));
}

/* Reports whether to repeat an attach, and pauses before that. A resident in C may start before the Go program that
 * creates the objects. */
static int not_made(int err)
{
    if (!resident || err != ENOENT)
        return 0;
    pause_for(1000000);
    return 1;
}

/* Enters the place of a witness, checks that no other participant is there, and leaves. */
static void inside(struct witness *w, uint64_t *r)
{
    uint32_t self = arena->self, was = __atomic_exchange_n(&w->name, self, __ATOMIC_SEQ_CST);
    volatile uint64_t n;
    if (was != 0 && shmi_current(arena, was))
        fault("not alone inside: with %#x, this is %#x", was, self);
    if (was == 0 && w->before != w->after)
        fault("the counts are %llu and %llu", (unsigned long long)w->before, (unsigned long long)w->after);
    w->before++;
    for (n = below(r, 100); n != 0; n--) {
    }
    w->after = w->before;
    was = __atomic_exchange_n(&w->name, 0, __ATOMIC_SEQ_CST);
    if (was != self)
        fault("%#x came inside meanwhile, beside %#x", was, self);
}

/* ---- synchronized ---- */

enum { RECORD = 40 };
static shmsync_synchronized record;
static uint64_t newest; /* the highest number that a load of this process has seen */

static void whole_record(const uint64_t *v)
{
    int i;
    for (i = 1; i < RECORD; i++)
        if (v[i] != v[0])
            fault("synchronized: a torn record: %llu and %llu", (unsigned long long)v[0], (unsigned long long)v[i]);
}

static void synchronized_turn(uint64_t *r)
{
    uint64_t v[RECORD], last, how = below(r, 4), fails = below(r, 4) == 0;
    struct timespec ts;
    const struct timespec *until;
    void *copy;
    int err, i;
    if (how < 2) {
        last = __atomic_load_n(&newest, __ATOMIC_SEQ_CST);
        must(shmsync_synchronized_load(&record, v), "synchronized: load");
        whole_record(v);
        if (v[0] < last)
            fault("synchronized: a load gave %llu after one had given %llu", (unsigned long long)v[0], (unsigned long long)last);
        while (last < v[0] && !__atomic_compare_exchange_n(&newest, &last, v[0], 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) {
        }
        return;
    }
    until = limit(r, &ts);
    err = until == NULL ? shmsync_synchronized_begin(&record, &copy) : shmsync_synchronized_timedbegin(&record, &copy, until);
    if (gave_up(err))
        return;
    must(err, "synchronized: begin");
    whole_record((const uint64_t *)copy);
    if (how == 2) {
        must(shmsync_synchronized_abort(&record), "synchronized: abort");
        return;
    }
    for (i = 0; i < RECORD; i++) {
        ((uint64_t *)copy)[i]++;
        if (i == RECORD / 2) {
            inside(AT(struct witness, PAGE_LOCKS) + PAGE_LOCK_SYNCHRONIZED, r);
            linger(r);
        }
    }
    must(fails ? shmsync_synchronized_abort(&record) : shmsync_synchronized_commit(&record), "synchronized: end");
}

static void synchronized_open(void)
{
    int err;
    do
        err = shmsync_synchronized_attach(arena, "synchronized", 8 * RECORD, NULL, &record);
    while (not_made(err));
    must(err, "synchronized");
}

/* ---- tx and rwtx: data under a lock with an undo log ---- */

enum { CELLS = 40, NODES = 20 };
struct data {
    uint64_t commits, head, nodes, cells[CELLS];
};
struct node {
    uint64_t next, mark; /* the inverted offset */
};
struct bank {
    const char *name;
    int rw;
    size_t witness;
    shmsync_mutex m;
    shmsync_rwmutex w;
    struct data *d;
};
static struct bank banks[2] = {{"tx", 0, PAGE_LOCK_TX, {0}, {0}, NULL}, {"rwtx", 1, PAGE_LOCK_RWTX, {0}, {0}, NULL}};

static struct node *node_at(uint64_t off)
{
    struct node *n = (struct node *)shmsync_at(arena, off, sizeof *n);
    if (n == NULL || n->mark != ~off)
        fault("no node at %#llx", (unsigned long long)off);
    return n;
}

/* Checks that the data are whole. The caller holds the lock. */
static void whole_data(const struct bank *b)
{
    const struct data *d = b->d;
    uint64_t off, n = 0;
    int i;
    for (i = 0; i < CELLS; i++)
        if (d->cells[i] != d->commits)
            fault("%s: torn: cell %d is %llu after %llu commits", b->name, i, (unsigned long long)d->cells[i], (unsigned long long)d->commits);
    for (off = d->head; off != 0 && n <= NODES; n++)
        off = node_at(off)->next;
    if (n != d->nodes)
        fault("%s: torn: the list has %llu nodes and says %llu", b->name, (unsigned long long)n, (unsigned long long)d->nodes);
}

/* Saves a word in the undo log and changes it. If unsaved is set, the function does not save the word. */
static int set(shmsync_tx *tx, uint64_t *word, uint64_t v, int unsaved)
{
    int err = unsaved ? 0 : shmsync_tx_save(tx, word, sizeof *word);
    if (err == 0)
        *word = v;
    return err;
}

/* Adds a node to the list, or removes one. */
static int grow(shmsync_tx *tx, struct data *d, uint64_t *r)
{
    shmsync_offset off;
    struct node *n;
    int err = 0;
    if (below(r, 4) == 0 && (err = shmsync_tx_alloc(tx, 1 + below(r, 3000), 8, &off)) == 0)
        err = shmsync_tx_free(tx, off); /* a block that is allocated and freed in one transaction */
    if (err != 0)
        return err;
    if (d->nodes == 0 || (d->nodes < NODES && below(r, 2) == 0)) {
        if ((err = shmsync_tx_alloc(tx, 16 + below(r, 200), 8, &off)) != 0)
            return err;
        n = (struct node *)shmsync_at(arena, off, sizeof *n);
        if (n == NULL)
            fault("an allocated block is no block: %#llx", (unsigned long long)off);
        n->next = d->head;
        n->mark = ~off;
        if ((err = set(tx, &d->head, off, 0)) == 0)
            err = set(tx, &d->nodes, d->nodes + 1, 0);
        return err;
    }
    off = d->head;
    if ((err = set(tx, &d->head, node_at(off)->next, 0)) == 0 && (err = set(tx, &d->nodes, d->nodes - 1, 0)) == 0)
        err = shmsync_tx_free(tx, off);
    return err;
}

static int begin(struct bank *b, shmsync_tx *tx, const struct timespec *until, int try)
{
    if (b->rw && try)
        return shmsync_rwmutex_trybegin(&b->w, tx);
    if (b->rw)
        return until == NULL ? shmsync_rwmutex_begin(&b->w, tx) : shmsync_rwmutex_timedbegin(&b->w, tx, until);
    if (try)
        return shmsync_mutex_trybegin(&b->m, tx);
    return until == NULL ? shmsync_mutex_begin(&b->m, tx) : shmsync_mutex_timedbegin(&b->m, tx, until);
}

/* What a transaction does wrong on purpose. */
enum { SOUND, UNSAVED /* it does not save the cells that it changes */, BLIND /* it does not check the data, either */ };

/* Executes a transaction. With an RWMutex, it may instead check the data under the read lock. */
static void bank_turn(struct bank *b, uint64_t *r, int broken)
{
    struct data *d = b->d;
    uint64_t how = broken != SOUND ? 7 : below(r, 8), first = below(r, CELLS), i;
    struct timespec ts;
    const struct timespec *until = limit(r, &ts);
    shmsync_offset off;
    shmsync_tx tx;
    int err;
    if (b->rw && below(r, 2) == 0) {
        err = until == NULL ? shmsync_rwmutex_rdlock(&b->w) : shmsync_rwmutex_timedrdlock(&b->w, until);
        if (gave_up(err))
            return;
        must(err, "rwtx: rdlock");
        whole_data(b);
        must(shmsync_rwmutex_rdunlock(&b->w), "rwtx: rdunlock");
        return;
    }
    err = begin(b, &tx, until, below(r, 8) == 0);
    if (gave_up(err))
        return;
    must(err, b->name);
    if (broken != BLIND)
        whole_data(b);
    for (i = 0; err == 0 && i < CELLS; i++) {
        uint64_t *cell = &d->cells[(first + i) % CELLS];
        err = set(&tx, cell, *cell + 1, broken != SOUND);
        if (i == CELLS / 2) {
            inside(AT(struct witness, PAGE_LOCKS) + b->witness, r);
            linger(r);
        }
    }
    if (err == 0)
        err = set(&tx, &d->commits, d->commits + 1, broken != SOUND);
    if (err == 0 && how < 6)
        err = grow(&tx, d, r);
    must(err, b->name);
    linger(r);
    if (how == 0) {
        must(shmsync_tx_abort(&tx), "abort");
        return;
    }
    if (how == 1) { /* fill the log, so that the commit undoes the transaction */
        while ((err = shmsync_tx_alloc(&tx, 16, 8, &off)) == 0 && (err = shmsync_tx_free(&tx, off)) == 0) {
        }
        if (err != ENOSPC || (err = shmsync_tx_commit(&tx)) != ENOSPC)
            fault("%s: a full log gives errno %d, %s", b->name, err, shmsync_error());
        return;
    }
    must(shmsync_tx_commit(&tx), "commit");
}

static void bank_open(struct bank *b)
{
    char name[32];
    void *p;
    int err;
    do
        err = b->rw ? shmsync_rwmutex_attach(arena, b->name, NULL, &b->w) : shmsync_mutex_attach(arena, b->name, NULL, &b->m);
    while (not_made(err));
    must(err, b->name);
    snprintf(name, sizeof name, "%s-data", b->name);
    do
        err = shmsync_value_attach(arena, name, sizeof *b->d, 0, &p);
    while (not_made(err));
    must(err, name);
    b->d = (struct data *)p;
}

static void tx_open(void) { bank_open(&banks[0]); }
static void rwtx_open(void) { bank_open(&banks[1]); }
static void tx_turn(uint64_t *r) { bank_turn(&banks[0], r, SOUND); }
static void rwtx_turn(uint64_t *r) { bank_turn(&banks[1], r, SOUND); }
static void unsaved_turn(uint64_t *r) { bank_turn(&banks[0], r, UNSAVED); }
static void unseen_turn(uint64_t *r) { bank_turn(&banks[0], r, resident ? SOUND : BLIND); }

static const struct job {
    const char *name;
    void (*open)(void);
    void (*turn)(uint64_t *r);
} jobs[] = {
    {"synchronized", synchronized_open, synchronized_turn},
    {"tx", tx_open, tx_turn},
    {"rwtx", rwtx_open, rwtx_turn},
    {"test:unsaved", tx_open, unsaved_turn},
    {"test:unseen", tx_open, unseen_turn},
};
enum { JOBS = sizeof jobs / sizeof jobs[0] };

/* ---- The life of a victim ---- */

static int ends; /* 1: the threads take no more turns */

struct work {
    const struct job *job;
    uint64_t seed;
    pthread_t thread;
};

static void *work(void *arg)
{
    struct work *w = (struct work *)arg;
    uint64_t r = w->seed;
    while (!__atomic_load_n(&ends, __ATOMIC_SEQ_CST)) {
        w->job->turn(&r);
        if (below(&r, 4) == 0)
            pause_for(below(&r, 300000));
    }
    return NULL;
}

/* Records how long a thread of this process waits for a CPU, as controlThread in time.go does. */
static void *control(void *arg)
{
    const int64_t period = 2000000, cpu = 200000, noise = 500000;
    struct spans *s = AT(struct spans, resident ? OF_RESIDENT(number, PAGE_RESIDENT_NOISE) : OF_LANE(PAGE_NOISE));
    int64_t *until = AT(int64_t, resident ? OF_RESIDENT(number, PAGE_RESIDENT_UNTIL) : OF_LANE(PAGE_UNTIL));
    (void)arg;
    for (;;) {
        int64_t target = nanoseconds(CLOCK_MONOTONIC) + period, now, end;
        struct timespec ts = {(time_t)(target / 1000000000), (long)(target % 1000000000)};
        __atomic_store_n(until, target, __ATOMIC_SEQ_CST);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) != 0) {
        }
        for (end = nanoseconds(CLOCK_THREAD_CPUTIME_ID) + cpu; nanoseconds(CLOCK_THREAD_CPUTIME_ID) < end;) {
        }
        now = nanoseconds(CLOCK_MONOTONIC) - cpu;
        __atomic_store_n(until, now + 1000000000, __ATOMIC_SEQ_CST); /* the thread is awake, and will not be late for a second */
        if (now - target > noise)
            note(s, target, now);
    }
    return NULL;
}

static void start(pthread_t *t, void *(*f)(void *), void *arg)
{
    int err = pthread_create(t, NULL, f, arg);
    if (err != 0)
        fault("pthread_create: errno %d", err);
}

/* ---- The life of a resident: party.reside in worker.go ---- */

struct turner {
    const struct job *job;
    uint32_t index, g; /* the index of the job, and the number of the thread that works at it */
    uint32_t round;
    uint64_t r;
    pthread_t thread;
};
struct finished {
    uint64_t n;
    struct {
        int64_t from, to;
        uint64_t of;
    } turn[PAGE_FINISHED];
};

/* Writes the begin and end of a turn to the page, so that the parent can measure the turn. */
static void finish(const struct turner *t, int64_t from, int64_t to)
{
    static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
    struct finished *f = AT(struct finished, OF_RESIDENT(number, PAGE_RESIDENT_FINISHED));
    uint64_t i;
    pthread_mutex_lock(&one);
    i = f->n % PAGE_FINISHED;
    __atomic_store_n(&f->turn[i].from, from, __ATOMIC_SEQ_CST);
    __atomic_store_n(&f->turn[i].to, to, __ATOMIC_SEQ_CST);
    __atomic_store_n(&f->turn[i].of, t->index * PAGE_THREADS + t->g, __ATOMIC_SEQ_CST);
    __atomic_store_n(&f->n, f->n + 1, __ATOMIC_SEQ_CST); /* a death before this store leaves no half of a turn */
    pthread_mutex_unlock(&one);
}

/* Reports whether in each resident all threads have ended except those with the number 0. */
static int calm(uint32_t round)
{
    uint32_t i;
    for (i = 0; i < look(PAGE_RESIDENTS); i++)
        if (look(OF_RESIDENT(i, PAGE_RESIDENT_CALM)) != round)
            return 0;
    return 1;
}

static void *take_turns(void *arg)
{
    struct turner *t = (struct turner *)arg;
    int64_t *since = AT(int64_t, OF_RESIDENT(number, PAGE_RESIDENT_SINCE)) + t->index * PAGE_THREADS + t->g;
    uint64_t *turns = AT(uint64_t, OF_RESIDENT(number, PAGE_RESIDENT_TURNS)) + t->index;
    while (look(PAGE_PHASE) == 2 * t->round || (t->g == 0 && !calm(t->round))) {
        int64_t from = nanoseconds(CLOCK_MONOTONIC);
        __atomic_store_n(since, from, __ATOMIC_SEQ_CST);
        t->job->turn(&t->r);
        __atomic_store_n(since, 0, __ATOMIC_SEQ_CST);
        __atomic_fetch_add(turns, 1, __ATOMIC_SEQ_CST);
        finish(t, from, nanoseconds(CLOCK_MONOTONIC));
        pause_for(below(&t->r, t->g == 0 ? 2000000 : 8000000));
    }
    return NULL;
}

/* Runs all threads of a resident until the round ends, and waits until all residents pause. */
static void take_turns_of_round(struct turner *all, int n, uint32_t round)
{
    int keepers, i;
    for (i = 0; i < n; i++) {
        all[i].round = round;
        start(&all[i].thread, take_turns, &all[i]);
    }
    tell(OF_RESIDENT(number, PAGE_RESIDENT_AT), round);
    for (keepers = 0; keepers < 2; keepers++) {
        for (i = 0; i < n; i++)
            if ((all[i].g == 0) == keepers)
                pthread_join(all[i].thread, NULL);
        tell(OF_RESIDENT(number, keepers ? PAGE_RESIDENT_STILL : PAGE_RESIDENT_CALM), round);
    }
    while (look(PAGE_REFEREE) != round)
        pause_for(200000);
}

static int reside(char **argv)
{
    static struct turner all[JOBS * PAGE_THREADS];
    char *name, *rest, *index;
    uint64_t seed;
    pthread_t t;
    int n = 0, i;
    seed = strtoull(argv[3], NULL, 10);
    tell(OF_RESIDENT(number, PAGE_RESIDENT_PID), (uint32_t)getpid());
    for (name = strtok_r(argv[4], ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest)) {
        if ((index = strrchr(name, ':')) == NULL)
            return 2;
        *index = 0;
        for (i = 0; i < JOBS; i++)
            if (strcmp(name, jobs[i].name) == 0) {
                uint32_t g;
                jobs[i].open();
                for (g = 0; g < PAGE_THREADS && n < JOBS * PAGE_THREADS; g++, n++) {
                    all[n].job = &jobs[i];
                    all[n].index = (uint32_t)strtoul(index + 1, NULL, 10);
                    all[n].g = g;
                    all[n].r = seed + (uint64_t)n;
                }
            }
    }
    start(&t, control, NULL);
    for (;;) {
        uint32_t phase = look(PAGE_PHASE);
        if (phase == PAGE_PHASE_END)
            break;
        if (phase % 2 == 0 && look(OF_RESIDENT(number, PAGE_RESIDENT_AT)) != phase / 2)
            take_turns_of_round(all, n, phase / 2);
        else
            pause_for(200000);
    }
    must(shmsync_arena_close(arena), "close");
    return 0;
}

int main(int argc, char **argv)
{
    static struct work works[JOBS * 4];
    struct rlimit no_core = {0, 0};
    shmsync_arena_options o;
    const char *outcome;
    char label[64], *name, *rest;
    uint64_t delay, seed;
    pthread_t t;
    int n = 0, threads, g, i;
    resident = argc == 5 && strcmp(argv[1], "resident") == 0;
    if (argc < 10 && !resident)
        return 2;
    number = (uint32_t)strtoul(argv[resident ? 2 : 1], NULL, 10);
    setrlimit(RLIMIT_CORE, &no_core); /* some victims end by abort */
    page = (unsigned char *)mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    if (page == (unsigned char *)MAP_FAILED)
        return 2;
    memset(&o, 0, sizeof o);
    snprintf(label, sizeof label, "%s %u in C", resident ? "resident" : "victim", number);
    o.label = label;
    must(shmsync_arena_from_fd(4, &o, &arena), "join");
    if (resident)
        return reside(argv);
    lane = (uint32_t)strtoul(argv[2], NULL, 10);
    threads = atoi(argv[3]);
    seed = strtoull(argv[4], NULL, 10);
    outcome = argv[5];
    delay = strtoull(argv[6], NULL, 10);
    dies_at = atoi(argv[7]);
    for (name = strtok_r(argv[8], ",", &rest); name != NULL; name = strtok_r(NULL, ",", &rest))
        for (i = 0; i < JOBS; i++)
            if (strcmp(name, jobs[i].name) == 0) {
                jobs[i].open();
                for (g = 0; g < threads && n < JOBS * 4; g++) {
                    works[n].job = &jobs[i];
                    works[n++].seed = seed + (uint64_t)(i * 4 + g);
                }
            }
    for (i = 0; i < n; i++)
        start(&works[i].thread, work, &works[i]);
    start(&t, control, NULL);
    __atomic_store_n(AT(uint32_t, OF_LANE(PAGE_READY)), number + 1, __ATOMIC_SEQ_CST);
    if (strcmp(outcome, "exec") != 0 && strcmp(outcome, "exit") != 0 && strcmp(outcome, "panic") != 0 && strcmp(outcome, "close") != 0)
        for (;;)
            pause(); /* until the kill */
    pause_for(delay);
    if (strcmp(outcome, "close") == 0) {
        __atomic_store_n(&ends, 1, __ATOMIC_SEQ_CST);
        for (i = 0; i < n; i++)
            pthread_join(works[i].thread, NULL);
        must(shmsync_arena_close(arena), "close");
        return 0;
    }
    note_death();
    if (strcmp(outcome, "exec") == 0) {
        execvp(argv[9], argv + 9);
        fault("exec: %s", strerror(errno));
    }
    if (strcmp(outcome, "exit") == 0)
        _exit(0);
    abort(); /* in place of the panic of a Go program */
}
