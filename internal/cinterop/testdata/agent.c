/* A participant that obeys a test: the C side of internal/cinterop. It reads lines "ID VERB NAME ARGS..." from its
 * input, and runs each verb on a thread of its own. When a verb has ended, it answers "ID ERRNO NUMBER". Deadlines
 * are milliseconds from now; -1 is none. */
#define _GNU_SOURCE 1
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
/* With the variable SHMSYNC_TEST_NO_REOPEN, nothing lets this process open a file again, as in some sandboxes. */
static int forbidden(const char *path) { return strncmp(path, "/proc/thread-self/fd/", 21) == 0 && getenv("SHMSYNC_TEST_NO_REOPEN") != NULL; }
#define open(path, ...) (forbidden(path) ? (errno = EACCES, -1) : (open)(path, __VA_ARGS__))
#define SHMSYNC_IMPLEMENTATION
#include "shmsync.h"

static shmsync_arena *arena;
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER, lease_lock = PTHREAD_MUTEX_INITIALIZER;
static shmsync_lease leases[1000];
static int n_leases;

typedef struct order {
    char line[1024];
    char *word[16]; /* ID, verb, name, arguments */
    int n;
} order;

static void answer(const order *o, int err, uint64_t n)
{
    pthread_mutex_lock(&out_lock);
    printf("%s %d %llu\n", o->word[0], err, (unsigned long long)n);
    fflush(stdout);
    pthread_mutex_unlock(&out_lock);
}

static int64_t arg(const order *o, int i) { return i + 3 < o->n ? strtoll(o->word[i + 3], NULL, 10) : 0; }

/* The deadline that argument i asks for; NULL if it asks for none. */
static const struct timespec *until(const order *o, int i, struct timespec *ts)
{
    int64_t ms = i + 3 < o->n ? arg(o, i) : -1;
    if (ms < 0)
        return NULL;
    clock_gettime(CLOCK_MONOTONIC, ts);
    ts->tv_nsec += (long)(ms % 1000) * 1000000;
    ts->tv_sec += (time_t)(ms / 1000) + ts->tv_nsec / 1000000000;
    ts->tv_nsec %= 1000000000;
    return ts;
}

/* How many threads sleep on the word at that place in the body of an object. */
static uint64_t count_asleep(shmi_off object, size_t at)
{
    uint64_t n = 0;
    uint32_t i, k;
    for (i = 1; i <= arena->geo.slots; i++)
        for (k = 0; shmi_slot_taken(shmi_slot_state(arena, i)) && k < SHMI_announceCount; k++) {
            shmi_off r = shmi_slot(arena, i) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride;
            if (shmi_ld64(shmi_u64(arena, r + SHMI_announceObject)) == object &&
                shmi_ld64(shmi_u64(arena, r + SHMI_announceWord)) == object + SHMI_objectHeader + at)
                n++;
        }
    return n;
}

/* The waits in the queues of an object. */
typedef struct queued {
    shmi_off object;
    uint64_t n;
} queued;
static void count_queued(shmsync_arena *a, shmi_off off, shmi_node *n, void *count)
{
    queued *q = (queued *)count;
    uint32_t s = shmi_node_state(shmi_node_load(n));
    (void)a;
    (void)off;
    if (shmi_ld64(&n->object) == q->object && shmi_ld64(&n->list) == 0 && shmi_ld64(&n->stamp) != 0 && (s == SHMI_NodeAsleep || s == SHMI_NodeParked))
        q->n++;
}

static int is(const order *o, const char *verb) { return strcmp(o->word[1], verb) == 0; }

static int seq(const order *o, uint64_t *n)
{
    shmsync_sequencer s;
    struct timespec ts;
    const struct timespec *abs;
    int err, did = 0;
    if ((err = shmsync_sequencer_open(arena, o->word[2], NULL, &s)) != 0)
        return err;
    *n = shmsync_sequencer_offset(&s);
    if (is(o, "seq.open"))
        return 0;
    if (is(o, "seq.value"))
        return *n = shmsync_sequencer_value(&s), 0;
    if (is(o, "seq.inc"))
        return shmsync_sequencer_increment(&s, n);
    if (is(o, "seq.advance"))
        return err = shmsync_sequencer_advance(&s, (uint64_t)arg(o, 0), &did), *n = (uint64_t)did, err;
    if (is(o, "seq.wait")) {
        abs = until(o, 1, &ts);
        return abs == NULL ? shmsync_sequencer_wait(&s, (uint64_t)arg(o, 0)) : shmsync_sequencer_timedwait(&s, (uint64_t)arg(o, 0), abs);
    }
    if (is(o, "seq.stop"))
        return shmsync_sequencer_stop(&s);
    if (is(o, "seq.cancel"))
        return shmsync_sequencer_cancel_waiters(&s);
    if (is(o, "seq.reset"))
        return shmsync_sequencer_reset(&s, (uint64_t)arg(o, 0));
    return ENOSYS;
}

static int event(const order *o, uint64_t *n)
{
    shmsync_event e;
    shmsync_event_options opts;
    struct timespec ts;
    const struct timespec *abs;
    int err, open_ = is(o, "event.open");
    memset(&opts, 0, sizeof opts);
    opts.auto_reset = arg(o, 0) == 1;
    opts.bidirectional = arg(o, 0) == 2;
    if ((err = shmsync_event_open(arena, o->word[2], open_ ? &opts : NULL, &e)) != 0)
        return err;
    *n = shmsync_event_offset(&e);
    if (open_)
        return 0;
    if (is(o, "event.set"))
        return shmsync_event_set(&e);
    if (is(o, "event.reset"))
        return shmsync_event_reset(&e);
    if (is(o, "event.isset"))
        return *n = (uint64_t)shmsync_event_is_set(&e), 0;
    if (is(o, "event.try"))
        return shmsync_event_trywait(&e);
    abs = until(o, 0, &ts);
    if (is(o, "event.wait"))
        return abs == NULL ? shmsync_event_wait(&e) : shmsync_event_timedwait(&e, abs);
    if (is(o, "event.waitreset"))
        return abs == NULL ? shmsync_event_wait_reset(&e) : shmsync_event_timedwait_reset(&e, abs);
    return ENOSYS;
}

static int queue(const order *o, uint64_t *n)
{
    shmsync_queue q;
    shmsync_queue_options opts;
    shmsync_lease l;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t v = (uint64_t)arg(o, 0);
    int err;
    memset(&opts, 0, sizeof opts);
    opts.layout = shmsync_layout("u8 ");
    if (is(o, "queue.open")) {
        opts.capacity = (uint32_t)arg(o, 0);
        err = shmsync_queue_open(arena, o->word[2], sizeof v, &opts, &q);
    } else {
        err = shmsync_queue_attach(arena, o->word[2], sizeof v, &opts, &q);
    }
    if (err != 0)
        return err;
    *n = shmsync_queue_offset(&q);
    if (is(o, "queue.open"))
        return 0;
    if (is(o, "queue.len"))
        return *n = shmsync_queue_len(&q), 0;
    if (is(o, "queue.shutdown"))
        return shmsync_queue_shutdown(&q);
    if (is(o, "queue.tryput"))
        return shmsync_queue_tryput(&q, &v);
    if (is(o, "queue.tryget"))
        return shmsync_queue_tryget(&q, n);
    if (is(o, "queue.put")) {
        abs = until(o, 1, &ts);
        return abs == NULL ? shmsync_queue_put(&q, &v) : shmsync_queue_timedput(&q, &v, abs);
    }
    if (is(o, "queue.get")) {
        abs = until(o, 0, &ts);
        return abs == NULL ? shmsync_queue_get(&q, n) : shmsync_queue_timedget(&q, n, abs);
    }
    if (is(o, "queue.putbatch") || is(o, "queue.getbatch")) { /* V COUNT MS: V, V+1, ...; MOST MS: *n: first<<8|count */
        uint64_t items[128];
        size_t i, done = 0;
        if (is(o, "queue.putbatch")) {
            for (i = 0; i < 128; i++)
                items[i] = v + i;
            err = shmsync_queue_put_batch(&q, items, (size_t)arg(o, 1), until(o, 2, &ts), &done);
            return *n = done, err;
        }
        err = shmsync_queue_get_batch(&q, items, (size_t)v, until(o, 1, &ts), &done);
        for (i = 1; i < done; i++)
            if (items[i] != items[0] + i)
                return EILSEQ;
        return *n = done != 0 ? items[0] << 8 | done : 0, err;
    }
    if (is(o, "queue.lease")) { /* ack and nack end the last lease */
        abs = until(o, 0, &ts);
        err = abs == NULL ? shmsync_queue_lease(&q, n, &l) : shmsync_queue_timedlease(&q, n, &l, abs);
        pthread_mutex_lock(&lease_lock);
        if (err == 0)
            leases[n_leases++] = l;
        pthread_mutex_unlock(&lease_lock);
        return err;
    }
    pthread_mutex_lock(&lease_lock);
    if (is(o, "queue.ack"))
        err = n_leases == 0 ? EPERM : shmsync_lease_ack(&leases[--n_leases]);
    else if (is(o, "queue.nack"))
        err = n_leases == 0 ? EPERM : shmsync_lease_nack(&leases[--n_leases]);
    else
        err = ENOSYS;
    pthread_mutex_unlock(&lease_lock);
    return err;
}

static int waitgroup(const order *o, uint64_t *n)
{
    shmsync_waitgroup g;
    struct timespec ts;
    const struct timespec *abs;
    int err;
    if ((err = shmsync_waitgroup_open(arena, o->word[2], NULL, &g)) != 0)
        return err;
    *n = shmsync_waitgroup_offset(&g);
    if (is(o, "wg.open"))
        return 0;
    if (is(o, "wg.add"))
        return shmsync_waitgroup_add(&g, arg(o, 0));
    if (is(o, "wg.claim"))
        return shmsync_waitgroup_claim(&g, arg(o, 0));
    if (is(o, "wg.done"))
        return shmsync_waitgroup_done(&g);
    if (is(o, "wg.count"))
        return *n = (uint64_t)shmsync_waitgroup_count(&g), 0;
    if (is(o, "wg.reset"))
        return shmsync_waitgroup_reset(&g);
    abs = until(o, 0, &ts);
    if (is(o, "wg.wait"))
        return abs == NULL ? shmsync_waitgroup_wait(&g) : shmsync_waitgroup_timedwait(&g, abs);
    return ENOSYS;
}

static int latch(const order *o, uint64_t *n)
{
    shmsync_latch l;
    struct timespec ts;
    const struct timespec *abs;
    int err;
    err = is(o, "latch.open") ? shmsync_latch_open(arena, o->word[2], arg(o, 0), NULL, &l) : shmsync_latch_attach(arena, o->word[2], NULL, &l);
    if (err != 0)
        return err;
    *n = shmsync_latch_offset(&l);
    if (is(o, "latch.open"))
        return 0;
    if (is(o, "latch.claim"))
        return shmsync_latch_claim(&l, arg(o, 0));
    if (is(o, "latch.down"))
        return shmsync_latch_count_down(&l, arg(o, 0));
    if (is(o, "latch.count"))
        return *n = (uint64_t)shmsync_latch_count(&l), 0;
    if (is(o, "latch.reset"))
        return shmsync_latch_reset(&l);
    abs = until(o, 0, &ts);
    if (is(o, "latch.wait"))
        return abs == NULL ? shmsync_latch_wait(&l) : shmsync_latch_timedwait(&l, abs);
    return ENOSYS;
}

/* The function of a once: it counts in the sequencer NAME+"-ran", and waits for the event NAME+"-go". */
static void run_once(void *name)
{
    char other[600];
    shmsync_sequencer s;
    shmsync_event e;
    snprintf(other, sizeof other, "%s-ran", (const char *)name);
    if (shmsync_sequencer_open(arena, other, NULL, &s) == 0)
        shmsync_sequencer_increment(&s, NULL);
    snprintf(other, sizeof other, "%s-go", (const char *)name);
    if (shmsync_event_open(arena, other, NULL, &e) == 0)
        shmsync_event_wait(&e);
}

static void run_nothing(void *arg) { (void)arg; }

static int once(const order *o, uint64_t *n)
{
    shmsync_once x;
    struct timespec ts;
    const struct timespec *abs;
    int err;
    if ((err = shmsync_once_open(arena, o->word[2], NULL, &x)) != 0)
        return err;
    *n = shmsync_once_offset(&x);
    if (is(o, "once.open"))
        return 0;
    if (is(o, "once.isdone"))
        return *n = (uint64_t)shmsync_once_done(&x), 0;
    if (is(o, "once.nothing"))
        return shmsync_once_do(&x, run_nothing, NULL);
    abs = until(o, 0, &ts);
    if (is(o, "once.do"))
        return abs == NULL ? shmsync_once_do(&x, run_once, o->word[2]) : shmsync_once_timeddo(&x, run_once, o->word[2], abs);
    return ENOSYS;
}

/* A completion that reports that it has begun, and does not return. */
static void hang(void *said)
{
    shmsync_event_set((shmsync_event *)said);
    for (;;)
        pause();
}

static int barrier(const order *o, uint64_t *n)
{
    shmsync_barrier b;
    shmsync_event said;
    shmsync_barrier_options opts;
    struct timespec ts;
    const struct timespec *abs;
    int err, did = 0;
    err = is(o, "barrier.open") ? shmsync_barrier_open(arena, o->word[2], arg(o, 0), NULL, &b) : shmsync_barrier_attach(arena, o->word[2], NULL, &b);
    if (err != 0)
        return err;
    *n = shmsync_barrier_offset(&b);
    if (is(o, "barrier.open"))
        return 0;
    if (is(o, "barrier.hang")) { /* arrives, and hangs in the completion */
        memset(&opts, 0, sizeof opts);
        opts.completion = hang;
        opts.completion_arg = &said;
        if ((err = shmsync_barrier_close(&b)) != 0 || (err = shmsync_barrier_attach(arena, o->word[2], &opts, &b)) != 0 ||
            (err = shmsync_event_open(arena, "hangs", NULL, &said)) != 0)
            return err;
    }
    if (is(o, "barrier.arrive") || is(o, "barrier.hang"))
        return shmsync_barrier_arrive(&b, arg(o, 0), n);
    if (is(o, "barrier.drop"))
        return shmsync_barrier_arrive_and_drop(&b);
    if (is(o, "barrier.join"))
        return shmsync_barrier_register(&b, arg(o, 0));
    if (is(o, "barrier.leave"))
        return shmsync_barrier_deregister(&b);
    if (is(o, "barrier.reset"))
        return err = shmsync_barrier_reset(&b, arg(o, 0), &did), *n = (uint64_t)did, err;
    if (is(o, "barrier.lost"))
        return *n = (uint64_t)shmsync_barrier_lost(&b), 0;
    if (is(o, "barrier.wait")) {
        abs = until(o, 1, &ts);
        return abs == NULL ? shmsync_barrier_wait(&b, (uint64_t)arg(o, 0)) : shmsync_barrier_timedwait(&b, (uint64_t)arg(o, 0), abs);
    }
    abs = until(o, 0, &ts);
    if (is(o, "barrier.aw"))
        return abs == NULL ? shmsync_barrier_arrive_and_wait(&b) : shmsync_barrier_timedarrive_and_wait(&b, abs);
    return ENOSYS;
}

#include "agent_locks.h"
#include "agent_more.h"
#include "agent_gone.h"
#include "agent_synchronized.h"
#include "agent_tx.h"

static void keep(void *handle) { (void)handle; }

static int act(const order *o, uint64_t *n)
{
    shmi_off off = 0;
    int err;
    *n = 0;
    if (is(o, "waiters")) { /* *n: the waiters of the object at an offset */
        off = (shmi_off)arg(o, 0);
        queued q = {off, 0};
        shmi_each_node(arena, count_queued, &q);
        *n = q.n + count_asleep(off, offsetof(shmi_counter_words, events)) + count_asleep(off, offsetof(shmi_barrier_words, events)) +
              count_asleep(off, offsetof(shmi_once_words, state)) +
              count_asleep(off, offsetof(shmi_queue_words, items)) + count_asleep(off, offsetof(shmi_queue_words, room));
        for (int i = 0; i < SHMI_sequencerCells && shmi_ld32(shmi_u32(arena, off + SHMI_objKind)) == SHMI_KIND_SEQUENCER; i++)
            if (offsetof(shmi_sequencer_words, cells[i]) != offsetof(shmi_barrier_words, events))
                *n += count_asleep(off, offsetof(shmi_sequencer_words, cells[i]));
        return 0;
    }
    if (is(o, "shut")) { /* closes all handles of this process on the object at an offset */
        for (off = (shmi_off)arg(o, 0); shmi_unshare(arena, off, keep) == 0;)
            ++*n;
        return 0;
    }
    if (strncmp(o->word[1], "seq.", 4) == 0)
        return seq(o, n);
    if (strncmp(o->word[1], "event.", 6) == 0)
        return event(o, n);
    if (strncmp(o->word[1], "queue.", 6) == 0)
        return queue(o, n);
    if (strncmp(o->word[1], "wg.", 3) == 0)
        return waitgroup(o, n);
    if (strncmp(o->word[1], "latch.", 6) == 0)
        return latch(o, n);
    if (strncmp(o->word[1], "once.", 5) == 0)
        return once(o, n);
    if (strncmp(o->word[1], "barrier.", 8) == 0)
        return barrier(o, n);
    if (strncmp(o->word[1], "gone.", 5) == 0)
        return gone(o, n);
    if (is(o, "group.sync"))
        return group_sync(o, n);
    if (strncmp(o->word[1], "sync.", 5) == 0 || strncmp(o->word[1], "wide.", 5) == 0)
        return synchronized_(o, n);
    if (strncmp(o->word[1], "tx.", 3) == 0)
        return tx_verbs(o, n);
    if (strncmp(o->word[1], "txlog.", 6) == 0)
        return tx_log_verbs(o, n);
    err = locks(o, n);
    return err != ENOSYS ? err : more(o, n);
}

static void *run(void *arg_)
{
    order *o = (order *)arg_;
    uint64_t n = 0;
    int err = act(o, &n);
    if (err != 0 && err != ETIMEDOUT && err != EBUSY)
        fprintf(stderr, "%s %s: %d, %s\n", o->word[1], o->word[2], err, shmsync_error());
    answer(o, err, n);
    free(o);
    return NULL;
}

int main(int argc, char **argv)
{
    shmsync_arena_options opts;
    char *save, *word;
    order *o;
    int err;
    if (argc != 3)
        return 2;
    memset(&opts, 0, sizeof opts);
    opts.attach_only = 1;
    opts.label = argv[2];
    if (getenv("SHMSYNC_CINTEROP_KERNEL_IO") != NULL)
        opts.kernel_io = atoi(getenv("SHMSYNC_CINTEROP_KERNEL_IO"));
    err = shmsync_arena_open(argv[1], &opts, &arena);
    if (err != 0) {
        fprintf(stderr, "%s\n", shmsync_error());
        return 1;
    }
    printf("ready 0 0\n");
    fflush(stdout);
    for (;;) {
        pthread_t t;
        o = (order *)calloc(1, sizeof *o);
        if (o == NULL || fgets(o->line, sizeof o->line, stdin) == NULL)
            break;
        for (word = strtok_r(o->line, " \n", &save); word != NULL && o->n < 16; word = strtok_r(NULL, " \n", &save))
            o->word[o->n++] = word;
        if (o->n < 3)
            break;
        if (is(o, "close")) {
            pthread_mutex_lock(&out_lock); /* so that all that was answered happened before the close */
            pthread_mutex_unlock(&out_lock);
            answer(o, shmsync_arena_close(arena), 0);
            return 0;
        }
        if (pthread_create(&t, NULL, run, o) != 0)
            return 3;
        pthread_detach(t);
    }
    return 4;
}
