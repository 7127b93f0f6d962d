/* What an uncontended lock and unlock costs, against a robust mutex of pthread that is
 * shared between processes, in one program and in turns. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

static int64_t ours(shmsync_mutex *m, long n)
{
    int64_t start = shmi_now();
    long i;
    for (i = 0; i < n; i++) {
        shmsync_mutex_lock(m);
        shmsync_mutex_unlock(m);
    }
    return shmi_now() - start;
}

static int64_t theirs(pthread_mutex_t *m, long n)
{
    int64_t start = shmi_now();
    long i;
    for (i = 0; i < n; i++) {
        pthread_mutex_lock(m);
        pthread_mutex_unlock(m);
    }
    return shmi_now() - start;
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_mutex m, checked;
    shmsync_mutex_options opts;
    pthread_mutex_t *p;
    pthread_mutexattr_t attr;
    shmsync_offset off;
    int64_t best[3] = {INT64_MAX, INT64_MAX, INT64_MAX};
    long n = 200000;
    int round;
    if (argc != 2 || shmsync_arena_open(argv[1], NULL, &a) != 0)
        return 1;
    memset(&opts, 0, sizeof opts);
    opts.checked = 1;
    if (shmsync_mutex_open(a, "m", NULL, &m) != 0 || shmsync_mutex_open(a, "checked", &opts, &checked) != 0 || shmsync_alloc(a, sizeof *p, &off) != 0)
        return 1;
    p = (pthread_mutex_t *)shmsync_at(a, off, sizeof *p);
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(p, &attr);
    for (round = 0; round < 50; round++) {
        int64_t t[3];
        int k;
        t[0] = ours(&m, n);
        t[1] = ours(&checked, n);
        t[2] = theirs(p, n);
        for (k = 0; k < 3; k++)
            if (t[k] < best[k])
                best[k] = t[k];
    }
    printf("%.2f %.2f %.2f\n", (double)best[0] / (double)n, (double)best[1] / (double)n, (double)best[2] / (double)n);
    shmsync_arena_close(a);
    return 0;
}
