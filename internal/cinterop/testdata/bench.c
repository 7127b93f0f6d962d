/* Measures what an uncontended pair of calls costs, and, for comparison, the pair of a pthread mutex that is shared
 * between processes, by turns in one program. It prints one line for each round: the ns of a pair of each kind, in
 * the order of kinds. The least time of several turns counts, because another process may have had the CPU in some
 * of them. The program is built with the implementation inside, or with the library. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shmsync.h"

enum { PAIRS = 2000, TURNS = 40 };

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

#define TIMED(name, type, take, give)                  \
    static double name(void *lock)                     \
    {                                                  \
        type *m = (type *)lock;                        \
        int64_t start = now();                         \
        int i, failed = 0;                             \
        for (i = 0; i < PAIRS; i++) {                  \
            failed |= take(m);                         \
            failed |= give(m);                         \
        }                                              \
        if (failed != 0) {                             \
            fprintf(stderr, #name ": %d\n", failed);   \
            exit(1);                                   \
        }                                              \
        return (double)(now() - start) / (double)PAIRS; \
    }

TIMED(mutex, shmsync_mutex, shmsync_mutex_lock, shmsync_mutex_unlock)
TIMED(robust, pthread_mutex_t, pthread_mutex_lock, pthread_mutex_unlock)
TIMED(write_pair, shmsync_rwmutex, shmsync_rwmutex_lock, shmsync_rwmutex_unlock)
TIMED(read_pair, shmsync_rwmutex, shmsync_rwmutex_rdlock, shmsync_rwmutex_rdunlock)
TIMED(pthread_write_pair, pthread_rwlock_t, pthread_rwlock_wrlock, pthread_rwlock_unlock)
TIMED(pthread_read_pair, pthread_rwlock_t, pthread_rwlock_rdlock, pthread_rwlock_unlock)

typedef struct locks_of_pthread {
    pthread_mutex_t robust;
    char apart[128];
    pthread_rwlock_t rw;
} locks_of_pthread;

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_mutex m, checked;
    shmsync_rwmutex rw;
    shmsync_mutex_options opts;
    locks_of_pthread *p;
    pthread_mutexattr_t attr;
    pthread_rwlockattr_t rwattr;
    shmsync_offset off;
    int round, rounds;
    if (argc != 3 || shmsync_arena_open(argv[1], NULL, &a) != 0)
        return 1;
    rounds = atoi(argv[2]);
    memset(&opts, 0, sizeof opts);
    opts.checked = 1;
    if (shmsync_mutex_open(a, "m", NULL, &m) != 0 || shmsync_mutex_open(a, "checked", &opts, &checked) != 0 ||
        shmsync_rwmutex_open(a, "rw", NULL, &rw) != 0 || shmsync_alloc(a, sizeof *p, &off) != 0)
        return 1;
    p = (locks_of_pthread *)shmsync_at(a, off, sizeof *p);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&p->robust, &attr);
    pthread_rwlockattr_init(&rwattr);
    pthread_rwlockattr_setpshared(&rwattr, PTHREAD_PROCESS_SHARED);
    pthread_rwlock_init(&p->rw, &rwattr);
    for (round = -1; round < rounds; round++) { /* the first one warms up */
        struct {
            double (*pair)(void *);
            void *lock;
            double least;
        } kinds[] = {
            {mutex, &m, 1e9},
            {mutex, &checked, 1e9},
            {robust, &p->robust, 1e9},
            {write_pair, &rw, 1e9},
            {pthread_write_pair, &p->rw, 1e9},
            {read_pair, &rw, 1e9},
            {pthread_read_pair, &p->rw, 1e9},
        };
        size_t k, n = sizeof kinds / sizeof kinds[0];
        int turn;
        for (turn = 0; turn < TURNS; turn++)
            for (k = 0; k < n; k++) {
                double ns = kinds[k].pair(kinds[k].lock);
                if (ns < kinds[k].least)
                    kinds[k].least = ns;
            }
        for (k = 0; k < n && round >= 0; k++)
            printf("%.2f%c", kinds[k].least, k == n - 1 ? '\n' : ' ');
    }
    shmsync_arena_close(a);
    return 0;
}
