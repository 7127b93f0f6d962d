/* Tests the function of shmsync_wait_hook during an open that waits: openhook NAME OTHER. A child begins an epoch of the
 * arena NAME, and stays in on_first until the function lets it go on. Exit status 0: the promises of the header hold. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static const char *name, *other;
static int up[2], down[2];

static int stay(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    char b;
    (void)a;
    (void)e;
    (void)arg;
    CHECK(write(up[1], "f", 1), 1);
    CHECK(read(down[0], &b, 1), 1);
    return 0;
}
static void begin(void)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    char b;
    CHECK(close(up[0]), 0);
    CHECK(close(down[1]), 0); /* so that the parent's end of the pipe is the only one, and this process ends with the parent */
    memset(&o, 0, sizeof o);
    o.on_first = stay;
    CHECK(shmsync_arena_open(name, &o, &a), 0);
    CHECK(read(down[0], &b, 1), 1);
    _exit(0);
}

static int calls, end_at, go_on_at, open_at;
static int hook(void *arg)
{
    shmsync_arena *a;
    if (++calls == open_at) {
        CHECK(shmsync_arena_open(name, NULL, &a), EDEADLK);
        CHECK(shmsync_arena_open(other, NULL, &a), 0);
        CHECK(shmsync_arena_close(a), 0);
    }
    if (calls == go_on_at)
        CHECK(write(down[1], "g", 1), 1);
    CHECK(arg == &calls, 1);
    return calls == end_at;
}
/* Opens the arena with the hook, which does what the variables say. */
static int open_with_hook(shmsync_arena **a)
{
    int err;
    calls = 0;
    shmsync_wait_hook(hook, &calls);
    err = shmsync_arena_open(name, NULL, a);
    shmsync_wait_hook(NULL, NULL);
    return err;
}

static void *open_too(void *out)
{
    CHECK(shmsync_arena_open(name, NULL, (shmsync_arena **)out), 0);
    return NULL;
}
static int opens(void)
{
    int found;
    pthread_mutex_lock(&shmi_attached_lock);
    found = shmi_attached != NULL;
    pthread_mutex_unlock(&shmi_attached_lock);
    return found;
}

int main(int argc, char **argv)
{
    shmsync_arena *a, *theirs;
    shmsync_participant self;
    pthread_t t;
    pid_t child;
    int status;
    char b;
    if (argc != 3)
        return 2;
    name = argv[1];
    other = argv[2];
    alarm(60);
    CHECK(pipe(up), 0);
    CHECK(pipe(down), 0);
    child = fork();
    if (child == 0)
        begin();
    CHECK(read(up[0], &b, 1), 1);

    /* The hook ends the wait. */
    open_at = 1;
    end_at = 3;
    CHECK(open_with_hook(&a), ETIMEDOUT);
    CHECK(calls, 3);

    /* Another thread waits, so this thread waits for the open of that thread. */
    CHECK(pthread_create(&t, NULL, open_too, &theirs), 0);
    while (!opens())
        sched_yield();
    open_at = 0;
    end_at = 2;
    CHECK(open_with_hook(&a), ETIMEDOUT);
    CHECK(calls, 2);
    end_at = 0;
    go_on_at = 3;
    CHECK(open_with_hook(&a), 0);
    CHECK(pthread_join(t, NULL), 0);
    CHECK(a == theirs, 1);

    /* Each open has joined once, however long it waited. */
    CHECK(shmsync_arena_self(a, &self), 0);
    CHECK(self.generation <= 2, 1);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(shmsync_arena_close(a), 0);
    CHECK(write(down[1], "e", 1), 1);
    CHECK(waitpid(child, &status, 0), child);
    CHECK(status, 0);
    return 0;
}
