/* Tests the promises about the options of every object: options VERB NAME uses the arena NAME. Exit status 0: they
 * hold. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>

#define CHECK(got, want)                                                                                                    \
    do {                                                                                                                    \
        long long got_ = (long long)(got), want_ = (long long)(want);                                                      \
        if (got_ != want_) {                                                                                                \
            fprintf(stderr, "line %d: %s: %s is %lld, not %lld: %s\n", __LINE__, about, #got, got_, want_, shmsync_error()); \
            _exit(1);                                                                                                       \
        }                                                                                                                   \
    } while (0)

static const char *arena_name, *about = "";

/* Every kind of object and its options, and the number that its _open takes, if it takes one. */
#define KINDS(X, OF)      \
    X(mutex, mutex)       \
    X(futex, futex)       \
    X(sequencer, sequencer) \
    X(event, event)       \
    OF(queue, queue, 8) \
    X(waitgroup, waitgroup) \
    OF(latch, latch, 3)  \
    X(once, once)         \
    OF(barrier, barrier, 3) \
    X(fairmutex, fairmutex) \
    X(future, future)     \
    X(cond, cond)         \
    OF(semaphore, semaphore, 3) \
    X(rwmutex, rwmutex)   \
    X(spinlock, spinlock) \
    X(rwspinlock, spinlock) \
    X(multilock, multilock) \
    X(signalwaker, signalwaker) \
    OF(synchronized, synchronized, 8)

/* A handle of any kind of object. */
typedef struct {
    void *impl;
    uint64_t serial;
} handle;

#define FUNCTIONS(x, o)                                                                              \
    static int x##_open(shmsync_arena *a, const char *name, const void *opts, handle *h)             \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        int err = shmsync_##x##_open(a, name, (const shmsync_##o##_options *)opts, &y);              \
        memcpy(h, &y, sizeof y);                                                                     \
        return err;                                                                                  \
    }                                                                                                \
    static int x##_attach(shmsync_arena *a, const char *name, const void *opts, handle *h)           \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        int err = shmsync_##x##_attach(a, name, (const shmsync_##o##_options *)opts, &y);            \
        memcpy(h, &y, sizeof y);                                                                     \
        return err;                                                                                  \
    }                                                                                                \
    static int x##_close(handle *h)                                                                  \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        memcpy(&y, h, sizeof y);                                                                     \
        return shmsync_##x##_close(&y);                                                              \
    }
#define FUNCTIONS_OF(x, o, n)                                                                     \
    static int x##_open(shmsync_arena *a, const char *name, const void *opts, handle *h)             \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        int err = shmsync_##x##_open(a, name, n, (const shmsync_##o##_options *)opts, &y);           \
        memcpy(h, &y, sizeof y);                                                                     \
        return err;                                                                                  \
    }                                                                                                \
    static int x##_attach(shmsync_arena *a, const char *name, const void *opts, handle *h)           \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        int err = shmsync_##x##_attach(a, name, SIZED_##x (const shmsync_##o##_options *)opts, &y);  \
        memcpy(h, &y, sizeof y);                                                                     \
        return err;                                                                                  \
    }                                                                                                \
    static int x##_close(handle *h)                                                                  \
    {                                                                                                \
        shmsync_##x y;                                                                               \
        memcpy(&y, h, sizeof y);                                                                     \
        return shmsync_##x##_close(&y);                                                              \
    }
#define SIZED_queue 8,
#define SIZED_synchronized 8,
#define SIZED_latch
#define SIZED_barrier
#define SIZED_semaphore
KINDS(FUNCTIONS, FUNCTIONS_OF)

static const struct kind {
    const char *name;
    size_t size;
    int (*open)(shmsync_arena *, const char *, const void *, handle *);
    int (*attach)(shmsync_arena *, const char *, const void *, handle *);
    int (*close)(handle *);
} kinds[] = {
#define ROW(x, o) {#x, sizeof(shmsync_##o##_options), x##_open, x##_attach, x##_close},
#define ROW_OF(x, o, n) ROW(x, o)
    KINDS(ROW, ROW_OF)};
#define N_KINDS (sizeof kinds / sizeof *kinds)

/* Options in the memory of a program: the struct, and the bytes after it. */
union options {
    struct {
        uint32_t struct_size, flags, capacity;
    } head;
    unsigned char bytes[256];
    uint64_t align;
};

static union options blank(const struct kind *k)
{
    union options o;
    memset(&o, 0, sizeof o);
    if (strcmp(k->name, "queue") == 0)
        o.head.capacity = 4;
    about = k->name;
    return o;
}

static shmsync_arena *open_arena(void)
{
    shmsync_arena *a;
    CHECK(shmsync_arena_open(arena_name, NULL, &a), 0);
    return a;
}

/* Tests SHMSYNC_CREATE_ONLY and SHMSYNC_OPEN_EXISTING with every kind of object. */
static int flags(void)
{
    shmsync_arena *a = open_arena();
    void *p;
    uint64_t size;
    size_t i;
    for (i = 0; i < N_KINDS; i++) {
        const struct kind *k = &kinds[i];
        union options o = blank(k), existing = o, create = o, both = o, unknown = o;
        handle h, other;
        existing.head.flags = SHMSYNC_OPEN_EXISTING;
        create.head.flags = SHMSYNC_CREATE_ONLY;
        both.head.flags = SHMSYNC_OPEN_EXISTING | SHMSYNC_CREATE_ONLY;
        unknown.head.flags = 4;
        CHECK(k->open(a, k->name, &existing, &h), ENOENT);
        CHECK(h.impl == NULL, 1);
        CHECK(k->attach(a, k->name, &o, &h), ENOENT);
        CHECK(k->open(a, k->name, &both, &h), EINVAL);
        CHECK(h.impl == NULL, 1);
        CHECK(k->attach(a, k->name, &create, &h), EINVAL);
        CHECK(k->open(a, k->name, &unknown, &h), EINVAL);
        CHECK(shmsync_delete(a, k->name), ENOENT);

        CHECK(k->open(a, k->name, &create, &h), 0);
        CHECK(k->open(a, k->name, &create, &other), EEXIST);
        CHECK(strstr(shmsync_error(), k->name) != NULL, 1);
        CHECK(other.impl == NULL, 1);
        CHECK(k->open(a, k->name, &existing, &other), 0);
        CHECK(k->close(&other), 0);
        CHECK(k->attach(a, k->name, &existing, &other), 0);
        CHECK(k->close(&other), 0);
        /* The refused open has left nothing open. */
        CHECK(k->close(&h), 0);
        CHECK(shmsync_delete(a, k->name), 0);
        CHECK(k->open(a, k->name, &create, &h), 0);
        CHECK(k->close(&h), 0);
        CHECK(shmsync_block_create(a, k->name, 8, &p), EEXIST);

        CHECK(k->open(a, NULL, &create, &h), 0);
        CHECK(k->close(&h), 0);
        CHECK(k->open(a, NULL, &existing, &h), EINVAL);
    }
    about = "block";
    CHECK(shmsync_block_create(a, "block", 8, &p), 0);
    CHECK(shmsync_block_create(a, "block", 8, &p), EEXIST);
    CHECK(p == NULL, 1);
    CHECK(shmsync_block_create(a, "none", 0, &p), EINVAL);
    CHECK(shmsync_block_attach(a, "block", &p, &size), 0);
    about = "value";
    CHECK(shmsync_value_create(a, "value", 8, 7, &p), 0);
    CHECK(shmsync_value_create(a, "value", 8, 7, &p), EEXIST);
    CHECK(shmsync_value_attach(a, "value", 8, 7, &p), 0);
    return shmsync_arena_close(a);
}

/* An object that takes a number cannot be created with 0. An existing object is opened without its number. */
static int numbers(void)
{
    shmsync_arena *a = open_arena();
    shmsync_semaphore_options o;
    shmsync_latch_options lo;
    shmsync_barrier_options bo;
    shmsync_semaphore s;
    shmsync_latch l;
    shmsync_barrier b;
    memset(&o, 0, sizeof o);
    memset(&lo, 0, sizeof lo);
    memset(&bo, 0, sizeof bo);
    o.flags = lo.flags = bo.flags = SHMSYNC_OPEN_EXISTING;
    CHECK(shmsync_semaphore_open(a, "s", 0, NULL, &s), EINVAL);
    CHECK(shmsync_semaphore_open(a, "s", 0, &o, &s), ENOENT);
    CHECK(shmsync_semaphore_open(a, "s", -1, &o, &s), EINVAL);
    CHECK(shmsync_semaphore_open(a, "s", 3, NULL, &s), 0);
    CHECK(shmsync_semaphore_open(a, "s", 0, &o, &s), 0);
    CHECK(shmsync_semaphore_open(a, "s", 3, &o, &s), 0);
    CHECK(shmsync_semaphore_open(a, "s", 2, &o, &s), EINVAL);
    CHECK(shmsync_latch_open(a, "l", 0, NULL, &l), EINVAL);
    CHECK(shmsync_latch_open(a, "l", 0, &lo, &l), ENOENT);
    CHECK(shmsync_latch_open(a, "l", 3, NULL, &l), 0);
    CHECK(shmsync_latch_open(a, "l", 0, &lo, &l), 0);
    CHECK(shmsync_latch_open(a, "l", 2, &lo, &l), EINVAL);
    CHECK(shmsync_barrier_open(a, "b", 0, NULL, &b), EINVAL);
    CHECK(shmsync_barrier_open(a, "b", 0, &bo, &b), ENOENT);
    CHECK(shmsync_barrier_open(a, "b", 3, NULL, &b), 0);
    CHECK(shmsync_barrier_open(a, "b", 0, &bo, &b), 0);
    CHECK(shmsync_barrier_open(a, "b", 2, &bo, &b), EINVAL);
    return shmsync_arena_close(a);
}

/* Tests options of an older and of a newer header. */
static int sizes(void)
{
    shmsync_arena *a = open_arena(), *again;
    shmsync_arena_options arena;
    union options o;
    handle h;
    size_t i;
    for (i = 0; i < N_KINDS; i++) {
        const struct kind *k = &kinds[i];
        uint32_t small = strcmp(k->name, "queue") == 0 ? 12 : 8;
        /* The size of this version, as 0 and as a number. */
        o = blank(k);
        CHECK(k->open(a, k->name, &o, &h), 0);
        o.head.struct_size = (uint32_t)k->size;
        CHECK(k->open(a, k->name, &o, &h), 0);
        /* With a struct_size of 0, no byte after the struct of version 0.1 is read. */
        o.head.struct_size = 0;
        memset(o.bytes + k->size, 0xff, sizeof o.bytes - k->size);
        CHECK(k->open(a, k->name, &o, &h), 0);
        /* An older program has fewer fields: the bytes after them do not belong to the struct. */
        o = blank(k);
        memset(o.bytes + small, 0xff, sizeof o.bytes - small);
        o.head.struct_size = small;
        CHECK(k->open(a, k->name, &o, &h), 0);
        CHECK(k->attach(a, k->name, &o, &h), 0);
        /* A newer program has more fields, which are not set ... */
        o = blank(k);
        o.head.struct_size = sizeof o;
        CHECK(k->open(a, k->name, &o, &h), 0);
        /* ... or are set, although this library does not know them. */
        o.bytes[k->size + 40] = 1;
        CHECK(k->open(a, k->name, &o, &h), EINVAL);
        CHECK(h.impl == NULL, 1);
        CHECK(strstr(shmsync_error(), "options") != NULL, 1);
        o = blank(k);
        o.head.struct_size = 7;
        CHECK(k->open(a, k->name, &o, &h), EINVAL);
        o.head.struct_size = 5000;
        CHECK(k->open(a, k->name, &o, &h), EINVAL);
    }
    about = "arena";
    memset(&arena, 0, sizeof arena);
    arena.struct_size = sizeof arena;
    arena.flags = SHMSYNC_OPEN_EXISTING;
    CHECK(shmsync_arena_open(arena_name, &arena, &again), 0);
    CHECK(again == a, 1);
    CHECK(shmsync_arena_close(again), 0);
    arena.struct_size = 8;
    arena.kernel_io = 99; /* a field that such a program does not have */
    CHECK(shmsync_arena_open(arena_name, &arena, &again), 0);
    CHECK(shmsync_arena_close(again), 0);
    memset(&o, 0, sizeof o);
    o.head.struct_size = sizeof o;
    CHECK(shmsync_arena_open(arena_name, (const shmsync_arena_options *)(const void *)&o, &again), 0);
    CHECK(shmsync_arena_close(again), 0);
    o.bytes[sizeof o - 1] = 1;
    CHECK(shmsync_arena_open(arena_name, (const shmsync_arena_options *)(const void *)&o, &again), EINVAL);
    return shmsync_arena_close(a);
}

/* Tests the same flags with an arena, which does not exist. */
static int arenas(void)
{
    shmsync_arena_options o;
    shmsync_arena *a, *b;
    int fd;
    char path[300];
    memset(&o, 0, sizeof o);
    o.size = 1 << 20;
    o.flags = SHMSYNC_OPEN_EXISTING;
    CHECK(shmsync_arena_open(arena_name, &o, &a), ENOENT);
    o.flags = SHMSYNC_CREATE_ONLY;
    o.attach_only = 1;
    CHECK(shmsync_arena_open(arena_name, &o, &a), EINVAL);
    o.attach_only = 0;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_open(arena_name, &o, &b), EEXIST);
    CHECK(b == NULL, 1);
    CHECK(strstr(shmsync_error(), arena_name) != NULL, 1);
    snprintf(path, sizeof path, "/dev/shm/%s", arena_name);
    fd = open(path, O_RDWR);
    CHECK(fd >= 0, 1);
    CHECK(shmsync_arena_from_fd(fd, &o, &b), EEXIST);
    close(fd);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_open(arena_name, &o, &b), EEXIST);
    o.flags = SHMSYNC_OPEN_EXISTING;
    CHECK(shmsync_arena_open(arena_name, &o, &a), 0);
    CHECK(shmsync_arena_close(a), 0);
    return shmsync_arena_remove(arena_name);
}

enum { RACERS = 6, NAMES = 50 };

static int racer(int out)
{
    shmsync_arena *a = open_arena();
    shmsync_mutex_options o;
    shmsync_mutex m;
    unsigned char won = 0;
    char name[16];
    int i, err;
    memset(&o, 0, sizeof o);
    o.flags = SHMSYNC_CREATE_ONLY;
    for (i = 0; i < NAMES; i++) {
        snprintf(name, sizeof name, "n%d", i);
        err = shmsync_mutex_open(a, name, &o, &m);
        if (err == 0)
            won++;
        else
            CHECK(err, EEXIST);
    }
    return write(out, &won, 1) == 1 ? shmsync_arena_close(a) : 1;
}

/* If several processes create a name at the same time, one of them succeeds. */
static int race(void)
{
    int i, p[2], status, sum = 0;
    unsigned char won;
    CHECK(pipe(p), 0);
    for (i = 0; i < RACERS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0, 1);
        if (pid == 0)
            _exit(racer(p[1]));
    }
    close(p[1]);
    while (read(p[0], &won, 1) == 1)
        sum += won;
    for (i = 0; i < RACERS; i++) {
        CHECK(wait(&status) > 0, 1);
        CHECK(status, 0);
    }
    CHECK(sum, NAMES);
    return 0;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*f)(void);
    } verbs[] = {{"flags", flags}, {"numbers", numbers}, {"sizes", sizes}, {"arenas", arenas}, {"race", race}};
    size_t i;
    if (argc != 3)
        return 2;
    arena_name = argv[2];
    alarm(300);
    for (i = 0; i < sizeof verbs / sizeof *verbs; i++)
        if (strcmp(argv[1], verbs[i].name) == 0)
            return verbs[i].f();
    return 2;
}
