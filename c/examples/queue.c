/* Puts a job into a queue, and takes it out in such a way that a death does not lose it. */
#include <shmsync.h>
#include <stdio.h>

static int fail(void)
{
    fprintf(stderr, "%s\n", shmsync_error());
    return 1;
}

struct job {
    uint64_t id, argument;
};

int main(int argc, char **argv)
{
    shmsync_arena *a;
    shmsync_queue_options opts = {.capacity = 64, .type = "{16 id@0 u8 argument@8 u8 } "};
    shmsync_queue q;
    shmsync_lease lease;
    struct job job = {7, 42};
    if (shmsync_arena_open(argc > 1 ? argv[1] : "demo", NULL, &a) != 0 ||
        shmsync_queue_open(a, "jobs", sizeof job, &opts, &q) != 0 ||
        shmsync_queue_put(&q, &job) != 0)
        return fail();
    if (shmsync_queue_lease(&q, &job, &lease) != 0)
        return fail();
    printf("job %llu, attempt %u\n", (unsigned long long)job.id, lease.attempts + 1);
    if (shmsync_lease_ack(&lease) != 0) /* done: without this, the job goes back when the process dies */
        return fail();
    return shmsync_arena_close(a);
}
