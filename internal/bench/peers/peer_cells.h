//go:build ignore

/* The scenarios of shmbench that need more than a lock or a token, for the peers in C. Each does what its
 * file in Go does (rw.go, sem.go, queue.go, event.go, multi.go or barrier.go), and makes the same checks. */

/* Readers and writers. */

static void rw_lock(void) { must("pthread_rwlock_wrlock", pthread_rwlock_wrlock(&seg->rwlock)); }
static void rw_read_lock(void) { must("pthread_rwlock_rdlock", pthread_rwlock_rdlock(&seg->rwlock)); }
static void rw_unlock(void) { must("pthread_rwlock_unlock", pthread_rwlock_unlock(&seg->rwlock)); }
PAIRS(rw_pairs, pthread_rwlock_wrlock(&seg->rwlock), pthread_rwlock_unlock(&seg->rwlock))
PAIRS(rw_read_pairs, pthread_rwlock_rdlock(&seg->rwlock), pthread_rwlock_unlock(&seg->rwlock))

static void run_readers(struct thread *t)
{
	volatile uint64_t *guarded = &scratch->first;
	while (next(t)) {
		int64_t t0 = now();
		uint64_t torn = 0;
		for (uint64_t n = ctl->batch; n > 0; n--) {
			pthread_rwlock_rdlock(&seg->rwlock);
			torn += *guarded != 0;
			pthread_rwlock_unlock(&seg->rwlock);
		}
		sample(t, t->counts, now() - t0);
		if (torn != 0)
			violate(t, "reads that saw a write", 0, torn);
		count(t, ctl->batch);
		t0 = now();
		rw_read_lock();
		rw_unlock();
		sample(t, t->others, now() - t0);
		count(t, 1);
	}
	end(t);
}

static void check_reader(struct thread *t)
{
	rw_read_lock();
	if (pthread_rwlock_trywrlock(&seg->rwlock) == 0)
		violate(t, "writers beside a reader", 0, 1);
	rw_unlock();
}

static void run_rw(struct thread *t)
{
	int shared = sub->lock == rw_lock;
	volatile uint64_t *first = &scratch->first, *second = &scratch->second;
	uint64_t think[THINKS], cs = steps(t, (double)ctl->cs_ns), i = (uint64_t)t->index * LOCK_STRIDE;
	uint64_t credit = (uint64_t)t->index * 37 % 100, writes = 0;
	think_steps(t, think);
	for (; next(t); i++) {
		if (ctl->think_ns > 0)
			sink = work(think[i % THINKS], sink);
		credit += ctl->read;
		int reads = credit >= 100, sampled = i % LOCK_STRIDE == 0 || !reads;
		int64_t t0 = sampled ? now() : 0;
		if (reads) {
			credit -= 100;
			shared ? rw_read_lock() : sub->lock();
			if (sampled)
				sample(t, t->counts, now() - t0);
			uint64_t before = *first;
			if (cs > 0)
				sink = work(cs, sink);
			if (*second != before)
				violate(t, "a reader's second look", before, *second);
		} else {
			sub->lock();
			sample(t, t->others, now() - t0);
			uint64_t v = *first + 1;
			*first = v;
			if (cs > 0)
				sink = work(cs, sink);
			*second = v;
			writes++;
		}
		sub->unlock();
		count(t, 1);
	}
	end(t);
	t->slot->metrics[0] = (double)writes;
}

/* Permits. */

static void run_sem(struct thread *t)
{
	uint64_t think[THINKS], cs = steps(t, (double)ctl->cs_ns), i = (uint64_t)t->index * LOCK_STRIDE;
	int sysv = sub->lock == sysv_lock;
	int64_t most = 0, permits = (int64_t)ctl->permits;
	think_steps(t, think);
	for (; next(t); i++) {
		if (ctl->think_ns > 0)
			sink = work(think[i % THINKS], sink);
		int sampled = i % LOCK_STRIDE == 0;
		int64_t t0 = sampled ? now() : 0;
		sysv ? sysv_op(SYSV_PERMITS, -1, 0) : sem_take(&seg->permits);
		if (sampled)
			sample(t, t->counts, now() - t0);
		int64_t n = atomic_fetch_add(&scratch->holders, 1) + 1;
		most = n > most ? n : most;
		if (n > permits)
			violate(t, "holders of a permit", (uint64_t)permits, (uint64_t)n);
		if (cs > 0)
			sink = work(cs, sink);
		atomic_fetch_sub(&scratch->holders, 1);
		sysv ? sysv_op(SYSV_PERMITS, 1, 0) : (void)sem_post(&seg->permits);
		count(t, 1);
	}
	end(t);
	t->slot->metrics[0] = (double)most;
}

/* A bounded buffer behind a mutex with two condition variables. */

static void tell(pthread_cond_t *c, uint64_t n) { n == 1 ? pthread_cond_signal(c) : pthread_cond_broadcast(c); }

static void put(const uint64_t *items, uint64_t n)
{
	while (n > 0) {
		uint64_t k = 0;
		mutex_lock();
		while (scratch->monitor.tail - scratch->monitor.head == ctl->capacity)
			pthread_cond_wait(&seg->cond[1], &seg->mutex);
		for (; k < n && scratch->monitor.tail - scratch->monitor.head < ctl->capacity; k++)
			scratch->monitor.ring[scratch->monitor.tail++ % ctl->capacity] = items[k];
		mutex_unlock();
		tell(&seg->cond[0], k);
		items += k;
		n -= k;
	}
}

static uint64_t get(uint64_t *items, uint64_t most)
{
	uint64_t n = 0;
	mutex_lock();
	while (scratch->monitor.tail == scratch->monitor.head && !scratch->monitor.shut)
		pthread_cond_wait(&seg->cond[0], &seg->mutex);
	for (; n < most && scratch->monitor.tail != scratch->monitor.head; n++)
		items[n] = scratch->monitor.ring[scratch->monitor.head++ % ctl->capacity];
	mutex_unlock();
	tell(&seg->cond[1], n);
	return n;
}

static uint64_t item_print(uint64_t item)
{
	item ^= item >> 29;
	item *= 0xbf58476d1ce4e5b9ull;
	return item ^ item >> 32;
}

static uint64_t produce(struct thread *t, uint64_t *print)
{
	uint64_t moved = 0, items[MAX_BATCH];
	while (next(t)) {
		for (uint64_t i = 0; i < ctl->items; i++) {
			items[i] = (uint64_t)t->index << ITEM_BITS | ++moved;
			*print += item_print(items[i]);
			if (moved % TRIP_STRIDE == 0)
				atomic_store(&scratch->trips[t->index % LANES][moved / TRIP_STRIDE % TRIPS], now());
		}
		put(items, ctl->items);
	}
	return moved;
}

static uint64_t consume(struct thread *t, uint64_t *print)
{
	uint64_t moved = 0, n, items[MAX_BATCH], last[LANES] = { 0 };
	while ((n = get(items, ctl->items)) > 0) {
		next(t);
		for (uint64_t i = 0; i < n; i++) {
			uint64_t lane = items[i] >> ITEM_BITS, k = items[i] & ((1ull << ITEM_BITS) - 1);
			*print += item_print(items[i]);
			if (lane >= LANES || k <= last[lane]) {
				violate(t, "an item after a later one", lane < LANES ? last[lane] : lane, k);
				continue;
			}
			last[lane] = k;
			if (k % TRIP_STRIDE == 0)
				sample(t, t->counts, now() - atomic_load(&scratch->trips[lane][k / TRIP_STRIDE % TRIPS]));
		}
		moved += n;
		count(t, n);
	}
	return moved;
}

static void run_queue(struct thread *t)
{
	uint64_t print = 0, moved;
	if (t->index < producers()) {
		moved = produce(t, &print);
		if (atomic_fetch_sub(&scratch->putting, 1) == 1) {
			mutex_lock();
			scratch->monitor.shut = 1;
			mutex_unlock();
			pthread_cond_broadcast(&seg->cond[0]);
		}
	} else {
		moved = consume(t, &print);
	}
	end(t);
	t->slot->metrics[0] = (double)moved;
	t->slot->metrics[1] = (double)(uint32_t)print;
	t->slot->metrics[2] = (double)(print >> 32);
}

/* One thread wakes many. */

static void open_gate(uint64_t round)
{
	if (sub->lock != NULL) { /* c:futex */
		atomic_store(&seg->word, (uint32_t)round);
		futex_wake(&seg->word, INT32_MAX);
		return;
	}
	mutex_lock();
	scratch->monitor.value = round;
	mutex_unlock();
	pthread_cond_broadcast(&seg->cond[0]);
}

static void await_gate(uint64_t round)
{
	if (sub->lock != NULL) {
		await_round(&seg->word, (uint32_t)round);
		return;
	}
	mutex_lock();
	while (scratch->monitor.value < round)
		pthread_cond_wait(&seg->cond[0], &seg->mutex);
	mutex_unlock();
}

static void open_gates(struct thread *t, uint64_t waiters)
{
	for (uint64_t round = 1;; round++) {
		sleep_until(now() + (int64_t)ctl->gap_ns);
		if (!next(t)) {
			atomic_store(&scratch->round, round | LAST_ROUND);
			open_gate(round);
			return;
		}
		int64_t t0 = now();
		atomic_store(&ctl->stamp_ns, t0);
		atomic_store(&scratch->round, round);
		open_gate(round);
		sample(t, t->counts, now() - t0);
		count(t, 1);
		while (atomic_load(&scratch->came) < round * waiters)
			sleep_until(now() + POLL_EVERY);
	}
}

static void come_through(struct thread *t, uint64_t waiters)
{
	for (uint64_t round = 1;; round++) {
		await_gate(round);
		int64_t d = now() - atomic_load(&ctl->stamp_ns);
		uint64_t at = atomic_load(&scratch->round);
		if (at == (round | LAST_ROUND))
			return;
		if (at != round) {
			violate(t, "came through in another round", round, at);
			atomic_fetch_add(&scratch->came, LOST_COUNT);
			while (next(t))
				sleep_until(now() + POLL_EVERY);
			return;
		}
		next(t);
		sample(t, t->others, d);
		count(t, 1);
		if (atomic_fetch_add(&scratch->came, 1) + 1 == round * waiters)
			sample(t, t->counts, d);
	}
}

static void run_event(struct thread *t)
{
	uint64_t waiters = (ctl->procs - 1) * ctl->threads;
	if (t->index == 0)
		open_gates(t, waiters);
	else if (process > 0)
		come_through(t, waiters);
	end(t);
}

/* Locks by key: an array of mutexes. */

static int by_key(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

static int draw(uint32_t *keys, uint64_t *at)
{
	int n = 0, kept = 0;
	for (; n < (int)ctl->locks; n++)
		keys[n] = scratch->draws[(*at)++ % DRAWS];
	if (n > 1)
		qsort(keys, (size_t)n, sizeof *keys, by_key);
	for (int i = 0; i < n; i++)
		if (i == 0 || keys[i] != keys[i - 1])
			keys[kept++] = keys[i];
	return kept;
}

/* Reports whether any of the keys is held. */
static int any_held(const uint32_t *keys, int n)
{
	for (int k = 0; k < n; k++) {
		pthread_mutex_t *m = &seg->each[keys[k]].mutex;
		int err = pthread_mutex_trylock(m);
		if (err == EBUSY)
			return 1;
		must("pthread_mutex_trylock", err);
		must("pthread_mutex_unlock", pthread_mutex_unlock(m));
	}
	return 0;
}

static void run_multi(struct thread *t)
{
	uint64_t think[THINKS], cs = steps(t, (double)ctl->cs_ns), i = (uint64_t)t->index * LOCK_STRIDE;
	uint64_t at = (uint64_t)t->index * DRAWS / (ctl->procs * ctl->threads), old[MAX_LOCKS], taken = 0, probed = 0, held = 0;
	volatile uint64_t *counts = scratch->counts;
	uint32_t keys[MAX_LOCKS];
	think_steps(t, think);
	for (; next(t); i++) {
		if (ctl->think_ns > 0)
			sink = work(think[i % THINKS], sink);
		int n = draw(keys, &at), sampled = i % LOCK_STRIDE == 0;
		if (sampled) {
			probed++;
			held += (uint64_t)any_held(keys, n);
		}
		int64_t t0 = sampled ? now() : 0;
		for (int k = 0; k < n; k++)
			must("pthread_mutex_lock", pthread_mutex_lock(&seg->each[keys[k]].mutex));
		if (sampled)
			sample(t, t->counts, now() - t0);
		for (int k = 0; k < n; k++)
			old[k] = counts[keys[k]];
		if (cs > 0)
			sink = work(cs, sink);
		for (int k = 0; k < n; k++)
			counts[keys[k]] = old[k] + 1;
		for (int k = 0; k < n; k++)
			must("pthread_mutex_unlock", pthread_mutex_unlock(&seg->each[keys[k]].mutex));
		taken += (uint64_t)n;
		count(t, 1);
	}
	end(t);
	t->slot->metrics[0] = (double)taken;
	t->slot->metrics[1] = (double)probed;
	t->slot->metrics[2] = (double)held;
}

/* Phases. */

static void run_barrier(struct thread *t)
{
	int parties = (int)(ctl->procs * ctl->threads);
	uint64_t cs = steps(t, (double)ctl->cs_ns);
	int64_t t0 = now(), t1;
	for (uint64_t phase = 1;; phase++, t0 = t1) {
		if (!next(t) && t->index == 0)
			atomic_store(&scratch->round, phase);
		if (cs > 0)
			sink = work(cs, sink);
		atomic_store(&scratch->phases[t->index].at, phase);
		pthread_barrier_wait(&seg->barrier);
		for (int i = 0; i < parties; i++) {
			uint64_t at = atomic_load(&scratch->phases[i].at);
			if (at != phase && at != phase + 1)
				violate(t, "a party in another phase", phase, at);
		}
		t1 = now();
		if (t->index == 0)
			sample(t, t->counts, t1 - t0);
		count(t, 1);
		if (atomic_load(&scratch->round) == phase)
			break;
	}
	end(t);
}

static void setup_cells(const pthread_mutexattr_t *ma)
{
	pthread_rwlockattr_t ra;
	pthread_barrierattr_t ba;
	must("pthread_rwlockattr_init", pthread_rwlockattr_init(&ra));
	must("pthread_rwlockattr_setpshared", pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED));
#ifdef __GLIBC__
	if (strcmp(sub->name, "c:rwlock-writers") == 0)
		must("pthread_rwlockattr_setkind_np", pthread_rwlockattr_setkind_np(&ra, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP));
#endif
	must("pthread_rwlock_init", pthread_rwlock_init(&seg->rwlock, &ra));
	must("pthread_barrierattr_init", pthread_barrierattr_init(&ba));
	must("pthread_barrierattr_setpshared", pthread_barrierattr_setpshared(&ba, PTHREAD_PROCESS_SHARED));
	must("pthread_barrier_init", pthread_barrier_init(&seg->barrier, &ba, ctl->procs * ctl->threads));
	must("sem_init", sem_init(&seg->permits, 1, (unsigned)ctl->permits) == 0 ? 0 : errno);
	for (uint64_t i = 0; i < ctl->keys; i++)
		must("pthread_mutex_init", pthread_mutex_init(&seg->each[i].mutex, ma));
	atomic_store(&scratch->putting, producers());
}

static void run_open(struct thread *t);
static void run_herd(struct thread *t);
static void run_intruder(struct thread *t);

static void run_cell(struct thread *t)
{
	switch (ctl->scenario) {
	case OPEN:
		return run_open(t);
	case HERD:
		return run_herd(t);
	case INTRUDER:
		return run_intruder(t);
	case READERS:
		return run_readers(t);
	case RW:
		return run_rw(t);
	case SEM:
		return run_sem(t);
	case COND:
	case QUEUE:
		return run_queue(t);
	case EVENT:
		return run_event(t);
	case MULTI:
		return run_multi(t);
	case BARRIER:
		return run_barrier(t);
	}
	must("scenario", EINVAL);
}
