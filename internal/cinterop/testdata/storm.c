/* A process of a set of processes that are killed, restarted and upgraded: storm NAME, see storm_test.go. It reads
 * orders from its standard input, one a line, and answers each with a line: "ok N", or "no ERRNO TEXT". */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

static shmsync_arena *arena;
static shmsync_mutex mutex;
static uint64_t *counter;
static unsigned long long size_, version, permits;

static int nothing(void *arg)
{
    (void)arg;
    return 0;
}
static int nothing_for(shmsync_arena *a, const shmsync_lost *l, void *arg)
{
    (void)a;
    (void)l;
    (void)arg;
    return 0;
}

/* The counter of a version of the program. In each version it has another type and another name. */
static int open_counter(shmsync_arena *a, uint64_t v, uint64_t **out)
{
    char name[32];
    void *p;
    int err;
    snprintf(name, sizeof name, "counter %llu", (unsigned long long)v);
    err = shmsync_block_open(a, name, 8 * v, &p);
    if (err == 0)
        *out = (uint64_t *)p + v - 1; /* the last word of the type counts */
    return err;
}
/* The version of the program whose counter is in use, 0 at first. */
static int open_version(shmsync_arena *a, uint64_t **out)
{
    void *p;
    int err = shmsync_block_open(a, "version", 8, &p);
    if (err == 0)
        *out = (uint64_t *)p;
    return err;
}

/* Changes the objects into those of this version of the program. The count stays. */
static int upgrade(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    shmsync_semaphore s;
    uint64_t *is, *old, *now;
    int err = shmsync_recover_all(a, nothing_for, NULL, NULL);
    (void)e;
    (void)arg;
    if (err == 0 && shmsync_semaphore_open(a, "permits", (int64_t)permits, NULL, &s) != 0)
        err = shmsync_delete(a, "permits");
    if (err == 0)
        err = open_version(a, &is);
    if (err == 0 && *is != version) {
        err = open_counter(a, version, &now);
        if (err == 0 && *is != 0 && (err = open_counter(a, *is, &old)) == 0)
            *now = *old;
        if (err == 0)
            *is = version;
    }
    return err;
}
static int join(const char *name)
{
    shmsync_arena_options o;
    shmsync_semaphore s;
    uint64_t *is;
    int err;
    memset(&o, 0, sizeof o);
    o.size = size_;
    o.max_participants = 16;
    o.recreate = SHMSYNC_RECREATE_INCOMPATIBLE;
    o.on_first = upgrade;
    err = shmsync_arena_open(name, &o, &arena);
    if (err != 0)
        return err;
    err = shmsync_semaphore_open(arena, "permits", (int64_t)permits, NULL, &s);
    if (err == 0)
        err = open_version(arena, &is);
    if (err == 0 && *is != version)
        err = EPROTONOSUPPORT;
    if (err == 0)
        err = open_counter(arena, version, &counter);
    if (err == 0)
        err = shmsync_mutex_open(arena, "mutex", NULL, &mutex);
    if (err != 0)
        shmsync_arena_close(arena);
    return err;
}
static int lock(void)
{
    int err = shmsync_mutex_lock(&mutex);
    if (err != EOWNERDEAD)
        return err;
    err = shmsync_mutex_recover(&mutex, nothing, NULL);
    return err != 0 ? err : shmsync_mutex_lock(&mutex);
}

int main(int argc, char **argv)
{
    char line[200];
    if (argc != 2)
        return 2;
    while (fgets(line, sizeof line, stdin) != NULL) {
        unsigned long long n = 0;
        int err = 0;
        if (sscanf(line, "open %llu %llu %llu", &size_, &version, &permits) == 3)
            err = join(argv[1]);
        else if (strcmp(line, "count\n") == 0 && (err = lock()) == 0) {
            n = ++*counter;
            err = shmsync_mutex_unlock(&mutex);
        } else if (strcmp(line, "lock\n") == 0)
            err = lock();
        else if (strcmp(line, "close\n") == 0)
            err = shmsync_arena_close(arena);
        if (err == 0)
            printf("ok %llu\n", n);
        else
            printf("no %d %s\n", err, shmsync_error());
        fflush(stdout);
    }
    return 0;
}
