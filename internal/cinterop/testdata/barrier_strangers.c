/* barrier_strangers NAME: the participants whose death watchers watch a party have never opened the Barrier. They
 * wake the waiter, which counts the parties of the dead participant as lost. Exit status 0 if it does, and 10 if it
 * found the death without a wake. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <stdio.h>
#include <sys/wait.h>

enum { Strangers = 3 }; /* each participant watches the next three */

static int out = -1; /* where the waiter reports that it is about to sleep */
static int woken;

static void say(int fd) { if (write(fd, "", 1) != 1) _exit(9); }
static void hear(int fd) { char c; if (read(fd, &c, 1) != 1) _exit(8); }
void at_point(const char *name)
{
    woken += strcmp(name, "eventcount.wait.woken") == 0;
    if (out >= 0 && strcmp(name, "eventcount.wait.announced") == 0) {
        say(out);
        out = -1;
    }
}

/* Joins the arena, reports that, and waits until it is told to go on. */
static shmsync_arena *join(const char *name, int in, int says)
{
    shmsync_arena *a;
    if (shmsync_arena_open(name, NULL, &a) != 0)
        _exit(3);
    say(says);
    hear(in);
    return a;
}

/* Returns when the one thread of the process sleeps in futex or futex_waitv. */
static void asleep(pid_t pid)
{
    char path[64], text[64];
    snprintf(path, sizeof path, "/proc/%d/syscall", (int)pid);
    for (;; sched_yield()) {
        FILE *f = fopen(path, "r");
        int n = 0;
        if (f != NULL && fgets(text, sizeof text, f) != NULL)
            n = atoi(text);
        if (f != NULL)
            fclose(f);
        if (n == SYS_futex || n == 449)
            return;
    }
}

int main(int argc, char **argv)
{
    shmsync_barrier b;
    pid_t pid[2 + Strangers];
    int go[2 + Strangers][2], said[2], k, status = 0;
    if (argc != 2 || pipe(said) != 0)
        return 2;
    for (k = 0; k < 2 + Strangers; k++) { /* the waiter, the strangers, and the party */
        if (pipe(go[k]) != 0)
            return 2;
        pid[k] = fork();
        if (pid[k] == 0) {
            shmsync_arena *a;
            close(go[k][1]);
            a = join(argv[1], go[k][0], said[1]);
            if (k == 1 + Strangers) {
                if (shmsync_barrier_open(a, "b", 2, NULL, &b) != 0 || shmsync_barrier_register(&b, 1) != 0 || shmsync_barrier_close(&b) != 0)
                    _exit(4);
                say(said[1]);
            }
            if (k == 0) {
                if (shmsync_barrier_attach(a, "b", NULL, &b) != 0)
                    _exit(5);
                out = said[1];
                alarm(120);
                _exit(shmsync_barrier_arrive_and_wait(&b) != EOWNERDEAD ? 6 : woken == 0 ? 10 : 0);
            }
            for (;;)
                pause();
        }
        hear(said[0]);
    }
    say(go[1 + Strangers][1]);
    hear(said[0]);
    say(go[0][1]);
    hear(said[0]);
    asleep(pid[0]);
    kill(pid[1 + Strangers], SIGKILL);
    waitpid(pid[0], &status, 0);
    for (k = 1; k <= Strangers; k++)
        kill(pid[k], SIGKILL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 7;
}
