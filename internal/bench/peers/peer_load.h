//go:build ignore

/* The scenarios of shmbench with a load that arrives at given times, and those that wake some of many threads, for
 * the peers in C: open.go and herd.go describe them. */

enum { TIMER_LATE = 150000 };

static void sleep_for_most(int64_t ns)
{
	if (ns - now() > 2 * TIMER_LATE)
		sleep_until(ns - TIMER_LATE);
	while (now() < ns)
		sched_yield();
}

static void run_open(struct thread *t)
{
	volatile uint64_t *counter = &ctl->counter;
	uint64_t threads = ctl->procs * ctl->threads, cs = steps(t, (double)ctl->cs_ns);
	int64_t every = (int64_t)((double)threads / (double)(ctl->rate ? ctl->rate : 1) * 1e9);
	every = every > 0 ? every : 1;
	int64_t due = atomic_load(&ctl->start_ns) + every * t->index / (int64_t)threads;
	for (; next(t); due += every) {
		sleep_for_most(due);
		int64_t begun = now();
		sub->lock();
		int64_t got = now();
		sample(t, t->counts, got - due);
		sample(t, t->others, got - begun);
		uint64_t v = *counter;
		if (cs > 0)
			sink = work(cs, sink);
		*counter = v + 1;
		sub->unlock();
		count(t, 1);
	}
	int64_t late = (now() - due) / every;
	t->slot->metrics[0] = late > 0 ? (double)late : 0;
	end(t);
}

static void run_intruder(struct thread *t)
{
	volatile uint64_t *counter = &ctl->counter;
	while (next(t)) {
		if (t->index != 0)
			sleep_until(now() + (int64_t)ctl->gap_ns);
		int64_t since = t->index != 0 ? now() : 0;
		sub->lock();
		if (t->index != 0)
			sample(t, t->counts, now() - since);
		*counter = *counter + 1;
		sub->unlock();
		count(t, 1);
	}
	end(t);
}

/* Permits of a herd cell: in a futex word, a semaphore, or a value under a mutex. */

static void rouse(uint64_t n, uint64_t waiters)
{
	if (sub->lock == sem_lock) {
		for (; n > 0; n--)
			sem_post(&seg->permits);
		return;
	}
	if (sub->lock != NULL) { /* c:futex */
		atomic_fetch_add(&seg->word, (uint32_t)n);
		futex_wake(&seg->word, (int)n);
		return;
	}
	mutex_lock();
	scratch->monitor.value += n;
	mutex_unlock();
	if (n == waiters)
		pthread_cond_broadcast(&seg->cond[0]);
	else
		for (; n > 0; n--)
			pthread_cond_signal(&seg->cond[0]);
}

static void rest(void)
{
	if (sub->lock == sem_lock) {
		sem_take(&seg->permits);
		return;
	}
	if (sub->lock != NULL) {
		for (;;) {
			uint32_t v = atomic_load(&seg->word);
			if (v == 0)
				futex_wait(&seg->word, 0);
			else if (atomic_compare_exchange_strong(&seg->word, &v, v - 1))
				return;
		}
	}
	mutex_lock();
	while (scratch->monitor.value == 0)
		pthread_cond_wait(&seg->cond[0], &seg->mutex);
	scratch->monitor.value--;
	mutex_unlock();
}

static void await_came(uint64_t want)
{
	while (atomic_load(&scratch->came) < want)
		sleep_until(now() + POLL_EVERY);
}

static void run_rouser(struct thread *t, uint64_t waiters)
{
	for (uint64_t round = 1;; round++) {
		while (atomic_load(&scratch->armed) < waiters + (round - 1) * ctl->wake)
			sleep_until(now() + POLL_EVERY);
		sleep_until(now() + (int64_t)ctl->gap_ns);
		if (!next(t)) {
			atomic_store(&scratch->round, round | LAST_ROUND);
			rouse(waiters, waiters);
			return;
		}
		int64_t t0 = now();
		atomic_store(&ctl->stamp_ns, t0);
		atomic_store(&scratch->round, round);
		rouse(ctl->wake, waiters);
		sample(t, t->counts, now() - t0);
		count(t, 1);
		await_came(round * ctl->wake);
	}
}

static void run_rester(struct thread *t)
{
	for (;;) {
		atomic_fetch_add(&scratch->armed, 1);
		rest();
		int64_t d = now() - atomic_load(&ctl->stamp_ns);
		uint64_t round = atomic_load(&scratch->round);
		if (round & LAST_ROUND)
			return;
		next(t);
		uint64_t came = atomic_fetch_add(&scratch->came, 1) + 1;
		if (came > round * ctl->wake) {
			violate(t, "came in these rounds", round * ctl->wake, came);
			atomic_fetch_add(&scratch->came, LOST_COUNT);
			while (next(t))
				sleep_until(now() + POLL_EVERY);
			return;
		}
		sample(t, t->others, d);
		count(t, 1);
		if (came == round * ctl->wake)
			sample(t, t->counts, d);
		await_came(round * ctl->wake);
	}
}

static void run_herd(struct thread *t)
{
	if (t->index == 0)
		run_rouser(t, ctl->procs * ctl->threads - 1);
	else
		run_rester(t);
	end(t);
}
