//go:build ignore

/* The peers of shmbench that are written in C: they use what a C program on this host would use. A peer communicates
 * through the control page of the Go workers, with the same pinning, work loop, clock and histogram buckets
 * (peer.h).
 *
 * usage: peer PROCESS, with the control page as descriptor 3 and the segment under test as descriptor 4. */
#include "peer.h"

/* One direction of a token: the value that was passed last, and whether the receiver may sleep on it. */
struct way {
	LINE _Atomic uint32_t word;
	_Atomic uint32_t sleeper;
};

/* The data of the subjects in the segment. */
struct segment {
	LINE _Atomic uint32_t word; /* futex and spin locks */
	LINE pthread_mutex_t mutex;
	LINE pthread_cond_t cond[2];
	LINE sem_t sem[3]; /* one for each direction, and one as a lock */
	struct way way[2];
	LINE pthread_rwlock_t rwlock;
	LINE pthread_barrier_t barrier;
	LINE sem_t permits;
	LINE pthread_spinlock_t spin;
	struct {
		LINE pthread_mutex_t mutex;
	} each[KEYS];
};
_Static_assert(sizeof(struct segment) <= PEER_BYTES, "segment");

static struct segment *seg;

/* Locks. */

static void futex_lock_after(int rounds)
{
	uint32_t v = 0;
	if (atomic_compare_exchange_strong(&seg->word, &v, 1))
		return;
	for (int i = 0; i < rounds; i++) {
		pause_cpu();
		v = 0;
		if (atomic_load_explicit(&seg->word, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong(&seg->word, &v, 1))
			return;
	}
	while (atomic_exchange(&seg->word, 2) != 0)
		futex_wait(&seg->word, 2);
}

static void futex_lock(void) { futex_lock_after(0); }
static void futex_spin_lock(void) { futex_lock_after(SPIN_ROUNDS); }

static void futex_unlock(void)
{
	if (atomic_exchange(&seg->word, 0) == 2)
		futex_wake(&seg->word, 1);
}

static void spin_lock(void)
{
	while (atomic_exchange_explicit(&seg->word, 1, memory_order_acquire) != 0)
		while (atomic_load_explicit(&seg->word, memory_order_relaxed) != 0)
			pause_cpu();
}

static void spin_unlock(void) { atomic_store_explicit(&seg->word, 0, memory_order_release); }

static void mutex_lock(void)
{
	int err = pthread_mutex_lock(&seg->mutex);
	if (err == EOWNERDEAD)
		err = pthread_mutex_consistent(&seg->mutex);
	must("pthread_mutex_lock", err);
}

static void mutex_unlock(void) { must("pthread_mutex_unlock", pthread_mutex_unlock(&seg->mutex)); }

static void sem_take(sem_t *s)
{
	while (sem_wait(s) != 0)
		must("sem_wait", errno == EINTR ? 0 : errno);
}

static void sem_lock(void) { sem_take(&seg->sem[2]); }
static void sem_unlock(void) { sem_post(&seg->sem[2]); }

/* Each subject has loops of its own for pairs, so that the compiler can inline the calls. */
#define PAIRS(name, LOCK, UNLOCK)       \
	static void name(uint64_t n)    \
	{                               \
		for (; n > 0; n--) {    \
			LOCK;           \
			ctl->counter++; \
			UNLOCK;         \
		}                       \
	}
PAIRS(futex_pairs, futex_lock(), futex_unlock())
PAIRS(mutex_pairs, pthread_mutex_lock(&seg->mutex), pthread_mutex_unlock(&seg->mutex))
PAIRS(sem_pairs, sem_wait(&seg->sem[2]), sem_post(&seg->sem[2]))

static const struct subject {
	const char *name;
	void (*lock)(void), (*unlock)(void), (*pairs)(uint64_t), (*pass)(struct thread *, uint32_t);
	uint32_t (*await)(struct thread *);
} *sub;

#include "peer_ipc.h"
#include "peer_cells.h"
#include "peer_load.h"

/* Tokens: each end passes the token through its own struct way, and waits on the other's. */

static uint32_t arriving(struct thread *t, memory_order order)
{
	return atomic_load_explicit(&seg->way[1 - t->end].word, order);
}

static void futex_pass(struct thread *t, uint32_t v)
{
	struct way *w = &seg->way[t->end];
	atomic_store(&w->word, v);
	if (atomic_load(&w->sleeper) != 0)
		futex_wake(&w->word, 1);
}

static uint32_t await_after(struct thread *t, int rounds)
{
	struct way *w = &seg->way[1 - t->end];
	uint32_t v;
	for (int i = 0; i < rounds; i++) {
		if ((v = arriving(t, memory_order_acquire)) != t->seen)
			return t->seen = v;
		pause_cpu();
	}
	if ((v = atomic_load(&w->word)) == t->seen) {
		atomic_store(&w->sleeper, 1);
		while ((v = atomic_load(&w->word)) == t->seen)
			futex_wait(&w->word, t->seen);
		atomic_store_explicit(&w->sleeper, 0, memory_order_relaxed);
	}
	return t->seen = v;
}

static uint32_t futex_await(struct thread *t) { return await_after(t, 0); }
static uint32_t futex_spin_await(struct thread *t) { return await_after(t, SPIN_ROUNDS); }

static void spin_pass(struct thread *t, uint32_t v)
{
	atomic_store_explicit(&seg->way[t->end].word, v, memory_order_release);
}

static uint32_t spin_await(struct thread *t)
{
	uint32_t v;
	while ((v = arriving(t, memory_order_acquire)) == t->seen)
		pause_cpu();
	return t->seen = v;
}

static void cond_pass(struct thread *t, uint32_t v)
{
	mutex_lock();
	atomic_store_explicit(&seg->way[t->end].word, v, memory_order_relaxed);
	mutex_unlock();
	pthread_cond_signal(&seg->cond[t->end]);
}

static uint32_t cond_await(struct thread *t)
{
	uint32_t v;
	mutex_lock();
	while ((v = arriving(t, memory_order_relaxed)) == t->seen)
		pthread_cond_wait(&seg->cond[1 - t->end], &seg->mutex);
	mutex_unlock();
	return t->seen = v;
}

static void sem_pass(struct thread *t, uint32_t v)
{
	atomic_store_explicit(&seg->way[t->end].word, v, memory_order_relaxed);
	sem_post(&seg->sem[t->end]);
}

static uint32_t sem_await(struct thread *t)
{
	sem_take(&seg->sem[1 - t->end]);
	return arriving(t, memory_order_relaxed);
}

static void sysv_pass(struct thread *t, uint32_t v)
{
	atomic_store_explicit(&seg->way[t->end].word, v, memory_order_relaxed);
	sysv_op(t->end, 1, 0);
}

static uint32_t sysv_await(struct thread *t)
{
	sysv_op(1 - t->end, -1, 0);
	return arriving(t, memory_order_relaxed);
}

static void mq_pass(struct thread *t, uint32_t v) { mq_put(MQ_WAY + t->end, v); }
static uint32_t mq_await(struct thread *t) { return (uint32_t)mq_take(MQ_WAY + 1 - t->end); }

static const struct subject subjects[] = {
	{ "c:futex", futex_lock, futex_unlock, futex_pairs, futex_pass, futex_await },
	{ "c:futex-spin1000", futex_spin_lock, futex_unlock, futex_pairs, futex_pass, futex_spin_await },
	{ "c:spin", spin_lock, spin_unlock, NULL, spin_pass, spin_await },
	{ "c:pthread", mutex_lock, mutex_unlock, mutex_pairs, NULL, NULL },
	{ "c:adaptive", mutex_lock, mutex_unlock, mutex_pairs, NULL, NULL },
	{ "c:robust", mutex_lock, mutex_unlock, mutex_pairs, NULL, NULL },
	{ "c:pi", mutex_lock, mutex_unlock, mutex_pairs, NULL, NULL },
	{ "c:robust-pi", mutex_lock, mutex_unlock, mutex_pairs, NULL, NULL },
	{ "c:pthread-spin", pspin_lock, pspin_unlock, pspin_pairs, NULL, NULL },
	{ "c:sysv", sysv_lock, sysv_unlock, sysv_pairs, sysv_pass, sysv_await },
	{ "c:mq", mq_lock, mq_unlock, mq_pairs, mq_pass, mq_await },
	{ "c:cond", NULL, NULL, NULL, cond_pass, cond_await },
	{ "c:sem", sem_lock, sem_unlock, sem_pairs, sem_pass, sem_await },
	{ "c:rwlock", rw_lock, rw_unlock, rw_pairs, NULL, NULL },
	{ "c:rwlock-writers", rw_lock, rw_unlock, rw_pairs, NULL, NULL },
	{ "c:rwlock-read", rw_read_lock, rw_unlock, rw_read_pairs, NULL, NULL },
	{ "c:barrier", NULL, NULL, NULL, NULL, NULL },
};

static void setup(void)
{
	pthread_mutexattr_t ma;
	pthread_condattr_t ca;
	must("pthread_mutexattr_init", pthread_mutexattr_init(&ma));
	must("pthread_mutexattr_setpshared", pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED));
	if (strncmp(sub->name, "c:robust", 8) == 0)
		must("pthread_mutexattr_setrobust", pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST));
#ifdef __GLIBC__
	if (strcmp(sub->name, "c:adaptive") == 0)
		must("pthread_mutexattr_settype", pthread_mutexattr_settype(&ma, PTHREAD_MUTEX_ADAPTIVE_NP));
#endif
	if (strcmp(sub->name, "c:pi") == 0 || strcmp(sub->name, "c:robust-pi") == 0)
		must("pthread_mutexattr_setprotocol", pthread_mutexattr_setprotocol(&ma, PTHREAD_PRIO_INHERIT));
	must("pthread_mutex_init", pthread_mutex_init(&seg->mutex, &ma));
	must("pthread_condattr_init", pthread_condattr_init(&ca));
	must("pthread_condattr_setpshared", pthread_condattr_setpshared(&ca, PTHREAD_PROCESS_SHARED));
	for (int i = 0; i < 2; i++)
		must("pthread_cond_init", pthread_cond_init(&seg->cond[i], &ca));
	for (int i = 0; i < 3; i++)
		must("sem_init", sem_init(&seg->sem[i], 1, i == 2) == 0 ? 0 : errno);
	setup_cells(&ma);
	setup_ipc();
}

/* Scenarios. */

static void run_uncontended(struct thread *t)
{
	while (next(t)) {
		int64_t t0 = now();
		sub->pairs(ctl->batch);
		count(t, ctl->batch);
		if (!t->measuring)
			continue;
		record(t, now() - t0);
		t0 = now(); /* one pair at a time, because quantiles of the means of batches would hide slow pairs */
		sub->pairs(1);
		count(t, 1);
		record_in(t->others, now() - t0);
	}
	end(t);
}

/* came_from counts, by the previous holder, how often the lock was taken over. */
static void came_from(struct thread *t)
{
	uint64_t last = ctl->holder - 1;
	if (t->measuring && last < SLOT_FROM)
		t->slot->from[last]++;
	ctl->holder = (uint64_t)t->index + 1;
}

static void run_lock(struct thread *t)
{
	volatile uint64_t *counter = &ctl->counter;
	uint64_t think[THINKS], cs = steps(t, (double)ctl->cs_ns), i = (uint64_t)t->index * LOCK_STRIDE;
	think_steps(t, think);
	for (; next(t); i++) {
		int sampled = i % LOCK_STRIDE == 0;
		if (ctl->think_ns > 0)
			sink = work(think[i % THINKS], sink);
		int64_t t0 = sampled ? now() : 0;
		sub->lock();
		if (sampled && t->measuring)
			record(t, now() - t0);
		uint64_t v = *counter;
		came_from(t);
		check_lines(t, v);
		if (cs > 0)
			sink = work(cs, sink);
		*counter = v + 1;
		write_lines(v + 1);
		sub->unlock();
		count(t, 1);
	}
	end(t);
}

/* Thread 0 sends odd tokens and times them, and thread 1 answers each token with its successor. In a wake cell,
 * thread 0 lets the other thread sleep and times its own pass, and thread 1 times the way from the stamp. */
static void run_send(struct thread *t)
{
	int wakes = ctl->scenario == WAKE;
	int64_t t0 = now(), t1;
	uint32_t v = 1, got;
	for (;; v += 2, t0 = t1) {
		if (wakes)
			sleep_until(now() + (int64_t)ctl->gap_ns);
		if (!next(t))
			break;
		if (wakes)
			atomic_store(&ctl->stamp_ns, t0 = now());
		sub->pass(t, v);
		t1 = wakes ? now() : 0;
		if ((got = sub->await(t)) != v + 1)
			violate(t, "token came back", v + 1, got);
		if (!wakes)
			t1 = now();
		count(t, 1);
		if (t->measuring)
			record(t, t1 - t0);
	}
	end(t);
	sub->pass(t, LAST_TOKEN);
}

static void run_answer(struct thread *t)
{
	int woken = ctl->scenario == WAKE;
	uint32_t v;
	for (uint32_t want = 1; (v = sub->await(t)) != LAST_TOKEN; want += 2) {
		int64_t d = woken ? now() - atomic_load(&ctl->stamp_ns) : 0;
		if (v != want || d < 0)
			violate(t, "token arrived", want, v);
		next(t);
		count(t, 1);
		if (woken && t->measuring)
			record(t, d);
		sub->pass(t, v + 1);
	}
	end(t);
}

/* Process 0 is the survivor, process k the victim of round k. */
static void run_crash(struct thread *t)
{
	ready(t);
	if (process != 0) {
		await_round(&ctl->victim_go, process);
		sub->lock();
		announce(&ctl->held, process);
		for (;;)
			pause();
	}
	begin(t);
	for (uint32_t round = 1;; round++) {
		await_round(&ctl->survivor_go, round);
		if (atomic_load(&ctl->phase) == STOP)
			break;
		announce(&ctl->trying, round);
		sub->lock();
		int64_t owned = now(), killed = atomic_load(&ctl->killed_ns);
		if (killed == 0 || owned < killed)
			violate(t, "owned while the owner lived, in round", round, round);
		else
			record(t, owned - killed);
		sub->unlock();
		t->measuring = 1;
		count(t, 1);
		announce(&ctl->owned, round);
	}
	end(t);
}

static void *run(void *arg)
{
	struct thread *t = arg;
	if (t->slot->cpu >= 0) {
		cpu_set_t set;
		CPU_ZERO(&set);
		CPU_SET(t->slot->cpu, &set);
		must("sched_setaffinity", sched_setaffinity(0, sizeof set, &set) == 0 ? 0 : errno);
	}
	t->slot->pid = (uint32_t)getpid();
	t->slot->tid = (uint32_t)syscall(SYS_gettid);
	t->per_ns = t->slot->iters_per_ns = calibrate();
	if (ctl->scenario == CRASH)
		return run_crash(t), NULL;
	if (ctl->scenario == READERS)
		check_reader(t);
	ready(t);
	await_round(&ctl->started, 1);
	sleep_until(atomic_load(&ctl->start_ns));
	begin(t);
	if (ctl->scenario == UNCONTENDED)
		run_uncontended(t);
	else if (ctl->scenario == LOCK || ctl->scenario == OVERSUB || ctl->scenario == HOME)
		run_lock(t);
	else if (ctl->scenario >= READERS)
		run_cell(t);
	else
		(t->index == 0 ? run_send : run_answer)(t);
	return NULL;
}

static void *map(int fd, size_t size)
{
	void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	must("mmap", p != MAP_FAILED ? 0 : errno);
	return p;
}

#ifdef __clang__
#define COMPILER __VERSION__
#else
#define COMPILER "gcc " __VERSION__
#endif

static const char *libc_name(void)
{
#ifdef __GLIBC__
	static char text[64];
	snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
	return text;
#else
	return "another libc";
#endif
}

int main(int argc, char **argv)
{
	struct stat st;
	must("usage: peer PROCESS", argc == 2 ? 0 : EINVAL);
	if (strcmp(argv[1], "--digest") == 0)
		return puts(PEER_DIGEST) < 0;
	if (strcmp(argv[1], "--built") == 0)
		return printf("%s %s\n%s\n", COMPILER, PEER_FLAGS, libc_name()) < 0;
	must("descriptor 3", fstat(3, &st) == 0 ? 0 : errno);
	process = (uint32_t)atoi(argv[1]);
	char *page = map(3, (size_t)st.st_size);
	ctl = (struct control *)page;
	scratch = (struct scratch *)(page + CONTROL_BYTES);
	seg = map(4, PEER_BYTES);
	must("control page", ctl->magic == CONTROL_MAGIC ? 0 : EPROTO);
	for (size_t i = 0; i < sizeof subjects / sizeof *subjects; i++)
		if (strcmp(subjects[i].name, ctl->prim) == 0)
			sub = &subjects[i];
	must(ctl->prim, sub != NULL ? 0 : ENOENT);
	if (process == 0) {
		setup();
		announce(&ctl->setup, 1);
	}
	await_round(&ctl->setup, 1);
	uint32_t first = process * ctl->threads;
	if (ctl->scenario == CRASH && process > 0)
		first = 1;
	struct thread *ts = calloc(ctl->threads, sizeof *ts);
	pthread_t *ids = calloc(ctl->threads, sizeof *ids);
	must("calloc", ts != NULL && ids != NULL ? 0 : ENOMEM);
	for (uint32_t i = 0; i < ctl->threads; i++) {
		char *slot = page + SLOTS_AT + (size_t)(first + i) * SLOT_BYTES;
		ts[i].slot = (struct slot *)slot;
		ts[i].counts = (uint64_t *)(slot + SLOT_HEAD_BYTES);
		ts[i].others = ts[i].counts + HIST_BUCKETS;
		ts[i].index = (int)(first + i);
		ts[i].end = ts[i].index % 2;
		must("pthread_create", pthread_create(&ids[i], NULL, run, &ts[i]));
	}
	for (uint32_t i = 0; i < ctl->threads; i++)
		pthread_join(ids[i], NULL);
	return 0;
}
