/* barrier_gone NAME: a reset of a Barrier must test whether the dead are gone after it has read the commit word that
 * it replaces. Exit status 0 if it does. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

static int fail(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, shmsync_error());
    return 1;
}

/* A party that dies, and is not gone as long as its child lives. */
static void linger(const char *name, int out)
{
    shmsync_arena_options opts;
    shmsync_arena *a;
    shmsync_barrier b;
    long heir;
    memset(&opts, 0, sizeof opts);
    opts.kernel_io = SHMSYNC_KERNEL_IO_ASYNCHRONOUS;
    if (shmsync_arena_open(name, &opts, &a) != 0 || shmsync_barrier_open(a, "b", 2, NULL, &b) != 0 || shmsync_barrier_register(&b, 1) != 0)
        _exit(fail("party"));
    while (!__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE)) /* so that its death is seen before it is gone */
        sched_yield();
    heir = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL); /* no handlers of a fork: it keeps descriptors */
    if (heir == 0)
        for (;;)
            pause();
    if (write(out, &heir, sizeof heir) != sizeof heir)
        _exit(1);
    for (;;)
        pause();
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_barrier b;
    pid_t child;
    int pipes[2], err, done = 0, did = 0;
    long heir;
    if (argc != 2 || pipe(pipes) != 0)
        return 2;
    child = fork();
    if (child == 0)
        linger(argv[1], pipes[1]);
    close(pipes[1]);
    if (read(pipes[0], &heir, sizeof heir) != sizeof heir)
        return 3;
    if (shmsync_arena_open(argv[1], NULL, &a) != 0 || shmsync_barrier_attach(a, "b", NULL, &b) != 0)
        return fail("open");
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    if (shmsync_barrier_wait(&b, 0) != EOWNERDEAD)
        return fail("the phase is not broken");
    pthread_mutex_lock(&a->counter_lock);
    err = shmi_barrier_begin(b.impl, 0, &done);
    pthread_mutex_unlock(&a->counter_lock);
    kill((pid_t)heir, SIGKILL);
    if (err != 0 || done)
        return fail("the next phase began while the dead process may still write");
    if (shmsync_barrier_reset(&b, 0, &did) != 0 || !did)
        return fail("reset");
    return shmsync_arena_close(a);
}
