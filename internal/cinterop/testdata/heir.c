/* A process takes over the slot of a participant that died while it was ending waits of others: heir NAME, for an
 * arena with one slot. Exit status 0 if the new participant declares that others may miss wakes if it dies, until it
 * has sent those wakes. */
void at_point(const char *name);
#undef SHMSYNC_CRASHPOINTS
#define SHMSYNC_CRASHPOINT(name) at_point(name)
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>

static int seen;

void at_point(const char *name)
{
    if (strcmp(name, "arena.inherit.repaired") != 0)
        return;
    seen = 1;
    if (!shmi_owes_anybody(shmi_attached, shmi_attached->self)) {
        fprintf(stderr, "the successor has forgotten what the dead one owed\n");
        exit(1);
    }
}

int main(int argc, char **argv)
{
    shmsync_arena *a;
    pid_t child;
    int status;
    if (argc != 2)
        return 2;
    child = fork();
    if (child == 0) {
        if (shmsync_arena_open(argv[1], NULL, &a) != 0)
            _exit(3);
        shmi_begin_tell(a);
        kill(getpid(), SIGKILL);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFSIGNALED(status)) {
        fprintf(stderr, "the first process did not die as it should\n");
        return 1;
    }
    if (shmsync_arena_open(argv[1], NULL, &a) != 0 || !seen || shmi_owes_anybody(a, a->self)) {
        fprintf(stderr, "seen %d, owes %d: %s\n", seen, a != NULL && shmi_owes_anybody(a, a->self), shmsync_error());
        return 1;
    }
    return shmsync_arena_close(a);
}
