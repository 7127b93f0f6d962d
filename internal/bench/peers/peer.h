//go:build ignore

/* The parts that the C peers share with the Go workers: the control page (page_unsafe.go), the clock, the work loop
 * (work.go), the histogram buckets (histogram.go), and the span that a thread reports (thread.go). */
#define _GNU_SOURCE
#include <errno.h>
#include <features.h>
#ifdef __GLIBC__
#include <gnu/libc-version.h>
#endif
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { UNCONTENDED = 1, HANDOFF, WAKE, LOCK, CRASH, READERS = 8, RW, SEM, COND, EVENT, SEQ, MULTI, BARRIER, QUEUE };
enum { HERD = 24, OPEN, OVERSUB, HOME = 28, INTRUDER = 30 };
enum { MAX_BATCH = 256, MAX_LOCKS = 16, TRIP_STRIDE = 64, ITEM_BITS = 48, POLL_EVERY = 20000 };
enum { WARMUP, MEASURE, STOP };
enum { SLOT_EMPTY, SLOT_READY, SLOT_DONE, SLOT_FAILED };
enum { HIST_SUB_BITS = 11, HIST_HALF = 1 << (HIST_SUB_BITS - 1), HIST_MAX_BITS = 40 };
enum { HIST_BUCKETS = (HIST_MAX_BITS - HIST_SUB_BITS + 2) * HIST_HALF };
enum { CONTROL_BYTES = 4096, SCRATCH_BYTES = 128 << 10, SLOTS_AT = CONTROL_BYTES + SCRATCH_BYTES };
enum { SLOT_HEAD_BYTES = 4096, SLOT_BYTES = SLOT_HEAD_BYTES + 2 * HIST_BUCKETS * 8 };
enum { DRAWS = 4096, KEYS = 4096, PARTS = 256, LANES = 64, TRIPS = 64, RING = 2048 };
enum { PEER_BYTES = 1 << 20, SLOT_FROM = 64, LOCK_STRIDE = 61, THINKS = 256, SPIN_ROUNDS = 1000, LINE_WORDS = 8 };
#define CONTROL_MAGIC 0x3168636e65626d73ull
#define LAST_TOKEN UINT32_MAX
#define LAST_ROUND (1ull << 63)
#define LOST_COUNT (1ull << 40)
#define LINE _Alignas(64)

struct control {
	uint64_t magic;
	uint32_t scenario, procs, threads, spare;
	uint64_t cs_ns, think_ns, gap_ns, seed, n, batch;
	char pad[24], prim[32];
	LINE _Atomic uint32_t setup;
	LINE _Atomic uint32_t ready;
	LINE _Atomic uint32_t started;
	_Atomic int64_t start_ns;
	LINE _Atomic uint32_t phase;
	LINE _Atomic uint32_t victim_go;
	_Atomic uint32_t held, survivor_go, trying, owned;
	_Atomic int64_t killed_ns;
	LINE _Atomic int64_t stamp_ns;
	LINE uint64_t counter;
	uint64_t holder;
	LINE float think[THINKS];
	uint64_t read, permits, keys, locks, wake, items, capacity, rate, spin, lines, role, slow, distance; /* shape in scratch_unsafe.go */
};

#define FAR _Alignas(128)

struct scratch {
	FAR _Atomic int64_t holders;
	FAR uint64_t first;
	FAR uint64_t second;
	FAR _Atomic uint64_t round;
	FAR _Atomic uint64_t came;
	FAR _Atomic uint64_t armed;
	FAR _Atomic int64_t putting;
	FAR _Atomic int64_t most;
	FAR uint32_t draws[DRAWS];
	uint64_t counts[KEYS];
	struct {
		LINE _Atomic uint64_t at;
	} phases[PARTS];
	_Atomic int64_t trips[LANES][TRIPS];
	struct {
		uint64_t head, tail, shut, value, arrived, phase, ring[RING];
	} monitor;
};

struct slot {
	uint32_t pid, tid;
	int32_t cpu;
	_Atomic uint32_t state;
	uint64_t total, ops;
	int64_t start_ns, end_ns;
	uint64_t violations, nvcsw, nivcsw, user_ns, sys_ns;
	double iters_per_ns, metrics[8];
	char message[256];
	uint64_t from[SLOT_FROM];
};

#define AT(type, field, offset) _Static_assert(offsetof(struct type, field) == offset, #field)
AT(control, prim, 96);
AT(control, setup, 128);
AT(control, start_ns, 264);
AT(control, phase, 320);
AT(control, killed_ns, 408);
AT(control, counter, 512);
AT(control, think, 576);
AT(control, read, 1600);
AT(scratch, draws, 1024);
AT(scratch, counts, 17408);
AT(scratch, phases, 50176);
AT(scratch, trips, 66560);
AT(scratch, monitor, 99328);
AT(slot, iters_per_ns, 88);
AT(slot, message, 160);
AT(slot, from, 416);

struct thread {
	struct slot *slot;
	uint64_t *counts, *others; /* of the two histograms */
	int index, end, measuring;
	uint32_t seen; /* the token that arrived last */
	double per_ns;
	struct rusage usage;
};

static struct control *ctl;
static struct scratch *scratch;
static uint32_t process;
static _Thread_local uint64_t sink;

static int64_t now(void)
{
	struct timespec ts;
	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000000000ll + ts.tv_nsec;
}

static void sleep_until(int64_t ns)
{
	struct timespec ts = { ns / 1000000000, ns % 1000000000 };
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL) == EINTR)
		;
}

static void pause_cpu(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("isb" ::: "memory");
#endif
}

static void futex_wait(_Atomic uint32_t *w, uint32_t v) { syscall(SYS_futex, w, FUTEX_WAIT, v, NULL, NULL, 0); }
static void futex_wake(_Atomic uint32_t *w, int n) { syscall(SYS_futex, w, FUTEX_WAKE, n, NULL, NULL, 0); }

static void must(const char *what, int err)
{
	if (err == 0)
		return;
	fprintf(stderr, "peer: %s: %s\n", what, strerror(err));
	exit(1);
}

static __attribute__((noinline)) uint64_t work(uint64_t n, uint64_t x)
{
	for (; n > 0; n--) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

static double calibrate(void)
{
	int64_t best = INT64_MAX;
	for (int i = 0; i < 15; i++) {
		int64_t t = now();
		sink = work(20000, sink);
		t = now() - t;
		best = t < best ? t : best;
	}
	return 20000.0 / (double)(best > 0 ? best : 1);
}

static uint64_t steps(struct thread *t, double ns) { return (uint64_t)(ns * t->per_ns + 0.5); }

static void record_in(uint64_t *counts, int64_t v)
{
	const int64_t max = (1ll << HIST_MAX_BITS) - 1;
	v = v < 0 ? 0 : v > max ? max : v;
	int shift = 64 - __builtin_clzll((uint64_t)v | (2 * HIST_HALF - 1)) - HIST_SUB_BITS;
	counts[shift * HIST_HALF + (v >> shift)]++;
}

static void record(struct thread *t, int64_t v) { record_in(t->counts, v); }

static void violate(struct thread *t, const char *what, uint64_t want, uint64_t got)
{
	if (t->slot->violations++ == 0)
		snprintf(t->slot->message, sizeof t->slot->message, "%s: want %llu, got %llu", what,
			 (unsigned long long)want, (unsigned long long)got);
}

/* The span that a thread reports. */

static void begin(struct thread *t)
{
	t->slot->start_ns = now();
	getrusage(RUSAGE_THREAD, &t->usage);
}

static uint64_t ns_between(struct timeval a, struct timeval b)
{
	return (uint64_t)((b.tv_sec - a.tv_sec) * 1000000000ll + (b.tv_usec - a.tv_usec) * 1000ll);
}

static void end(struct thread *t)
{
	struct rusage u;
	t->slot->end_ns = now();
	getrusage(RUSAGE_THREAD, &u);
	t->slot->nvcsw = (uint64_t)(u.ru_nvcsw - t->usage.ru_nvcsw);
	t->slot->nivcsw = (uint64_t)(u.ru_nivcsw - t->usage.ru_nivcsw);
	t->slot->user_ns = ns_between(t->usage.ru_utime, u.ru_utime);
	t->slot->sys_ns = ns_between(t->usage.ru_stime, u.ru_stime);
	atomic_store(&t->slot->state, SLOT_DONE);
}

static void await_round(_Atomic uint32_t *w, uint32_t round)
{
	for (uint32_t v; (v = atomic_load(w)) < round;)
		futex_wait(w, v);
}

static void announce(_Atomic uint32_t *w, uint32_t round)
{
	atomic_store(w, round);
	futex_wake(w, INT32_MAX);
}

static void ready(struct thread *t)
{
	atomic_store(&t->slot->state, SLOT_READY);
	atomic_fetch_add(&ctl->ready, 1);
	futex_wake(&ctl->ready, INT32_MAX);
}

/* next reads the phase before each step. It returns 0 once the cell stops. */
static int next(struct thread *t)
{
	uint32_t phase = atomic_load_explicit(&ctl->phase, memory_order_acquire);
	if (phase == MEASURE && !t->measuring) {
		t->measuring = 1;
		begin(t);
	}
	return phase != STOP;
}

static void count(struct thread *t, uint64_t n)
{
	t->slot->total += n;
	t->slot->ops += t->measuring ? n : 0;
}

static void sample(struct thread *t, uint64_t *counts, int64_t v)
{
	if (t->measuring)
		record_in(counts, v);
}

static void think_steps(struct thread *t, uint64_t *think)
{
	for (int k = 0; k < THINKS; k++)
		think[k] = steps(t, (double)ctl->think[k] * (double)ctl->think_ns);
}

/* check_lines and write_lines do the same as those of lines.go. */
static void check_lines(struct thread *t, uint64_t v)
{
	volatile uint64_t *words = scratch->counts;
	for (uint64_t k = 1; k < ctl->lines; k++)
		if (words[k * LINE_WORDS] != v)
			violate(t, "line under the lock", v, words[k * LINE_WORDS]);
}

static void write_lines(uint64_t v)
{
	volatile uint64_t *words = scratch->counts;
	for (uint64_t k = 1; k < ctl->lines; k++)
		words[k * LINE_WORDS] = v;
}

/* producers returns how many threads of a queue cell put items; the others get items. */
static int producers(void)
{
	int n = (int)(ctl->procs * ctl->threads) / 2;
	return n > 0 ? n : 1;
}
