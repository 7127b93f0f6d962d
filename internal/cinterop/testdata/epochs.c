/* Joins an arena and leaves it, again and again, and checks that the first participant of an epoch is alone. The
 * witness is a file of 32-bit words: for each process, its pid while it is in; and, at the end, the number of joins
 * and of epochs. */
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

#define PROCESSES 6

static uint32_t *witness;

/* Whether the process has memory. Without memory it holds no byte lock. */
static int lives(uint32_t pid)
{
    char path[64];
    unsigned long pages = 0;
    FILE *f;
    snprintf(path, sizeof path, "/proc/%u/statm", pid);
    f = fopen(path, "r");
    if (f == NULL)
        return 0;
    if (fscanf(f, "%lu", &pages) != 1)
        pages = 0;
    fclose(f);
    return pages != 0;
}

/* Yields the CPU up to n times. */
static void stay(int n)
{
    for (n = rand() % n; n > 0; n--)
        sched_yield();
}

static int first(shmsync_arena *a, const shmsync_epoch *e, void *arg)
{
    int k, self = *(int *)arg;
    (void)a;
    (void)e;
    for (k = 0; k < PROCESSES; k++) {
        uint32_t pid = __atomic_load_n(&witness[k], __ATOMIC_SEQ_CST);
        if (k != self && pid != 0 && lives(pid) && __atomic_load_n(&witness[k], __ATOMIC_SEQ_CST) == pid) {
            fprintf(stderr, "process %d begins epoch %llu while %d is in\n", self, (unsigned long long)e->number, k);
            exit(3);
        }
    }
    stay(100);
    /* From here on, this process counts as in, for the first participant of another epoch. */
    __atomic_store_n(&witness[self], (uint32_t)getpid(), __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&witness[PROCESSES + 1], 1, __ATOMIC_SEQ_CST);
    return 0;
}

int main(int argc, char **argv)
{
    shmsync_arena_options o;
    shmsync_arena *a;
    int self = atoi(argv[3]), fd = open(argv[2], O_RDWR), err;
    (void)argc;
    witness = (uint32_t *)mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    memset(&o, 0, sizeof o);
    o.size = 1 << 20;
    o.max_participants = 16;
    o.on_first = first;
    o.on_first_arg = &self;
    o.lifetime = argv[4][0] == 'e' ? SHMSYNC_LIFETIME_EPHEMERAL : SHMSYNC_LIFETIME_DURABLE;
    for (;;) {
        err = shmsync_arena_open(argv[1], &o, &a);
        if (err != 0) {
            fprintf(stderr, "%s\n", shmsync_error());
            return 2;
        }
        __atomic_store_n(&witness[self], (uint32_t)getpid(), __ATOMIC_SEQ_CST);
        __atomic_fetch_add(&witness[PROCESSES], 1, __ATOMIC_SEQ_CST);
        if (rand() % 8 == 0) /* otherwise there would be few epochs */
            stay(1000);
        __atomic_store_n(&witness[self], 0, __ATOMIC_SEQ_CST);
        err = shmsync_arena_close(a);
        if (err != 0)
            return 4;
    }
}
