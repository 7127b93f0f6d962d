/* Verbs of the agent for MultiLock: multi.VERB NAME KEY [MS]. */

static shmsync_hold holds[1000], stale; /* guarded by: lease_lock */
static int n_holds;

static void keep_holds(const shmsync_hold *h, size_t n)
{
    pthread_mutex_lock(&lease_lock);
    memcpy(&holds[n_holds], h, n * sizeof *h);
    n_holds += (int)n;
    pthread_mutex_unlock(&lease_lock);
}

/* The last hold of the key. If there is none, the result holds nothing. */
static shmsync_hold hold_of(uint64_t key)
{
    shmsync_hold h;
    int i;
    memset(&h, 0, sizeof h);
    pthread_mutex_lock(&lease_lock);
    for (i = n_holds - 1; i >= 0 && holds[i].key != key; i--) {
    }
    if (i >= 0) {
        stale = h = holds[i];
        holds[i] = holds[--n_holds];
    }
    pthread_mutex_unlock(&lease_lock);
    return h;
}

static int multi(const order *o, uint64_t *n)
{
    shmsync_multilock m;
    shmsync_multilock_options opts;
    shmsync_hold h;
    struct timespec ts;
    const struct timespec *abs;
    uint64_t repaired = 0, key = (uint64_t)arg(o, 0);
    int err;
    memset(&opts, 0, sizeof opts);
    if (is(o, "multi.open")) {
        opts.policy = (int)arg(o, 0);
        opts.buckets = (uint32_t)arg(o, 1);
    }
    if ((err = shmsync_multilock_open(arena, o->word[2], &opts, &m)) != 0)
        return err;
    *n = shmsync_multilock_offset(&m);
    if (is(o, "multi.open"))
        return 0;
    if (is(o, "multi.unlock")) {
        h = hold_of(key);
        return shmsync_multilock_unlock(&h);
    }
    if (is(o, "multi.staleunlock")) {
        pthread_mutex_lock(&lease_lock);
        h = stale;
        pthread_mutex_unlock(&lease_lock);
        return shmsync_multilock_unlock(&h);
    }
    if (is(o, "multi.nullrecover"))
        return shmsync_multilock_recover(&m, key, NULL, NULL);
    if (is(o, "multi.state"))
        return shmsync_multilock_state(&m, key);
    if (is(o, "multi.hang"))
        return shmsync_multilock_recover(&m, key, repair_hangs, NULL);
    if (is(o, "multi.recover"))
        return err = shmsync_multilock_recover(&m, key, repair_good, &repaired), *n = repaired, err;
    if (is(o, "multi.spoil"))
        return shmsync_multilock_recover(&m, key, repair_bad, NULL);
    if (is(o, "multi.lockall")) { /* KEY and the keys after it, N in all, in descending order, each twice */
        shmsync_hold all[101];
        uint64_t keys[101];
        size_t held, i, many = (size_t)arg(o, 1);
        for (i = 0; i <= many && i <= 100; i++)
            keys[i] = key + (i < many ? many - 1 - i : many - 1);
        abs = until(o, 2, &ts);
        err = abs == NULL ? shmsync_multilock_lockall(&m, keys, many + 1, all, &held) : shmsync_multilock_timedlockall(&m, keys, many + 1, all, &held, abs);
        keep_holds(all, held);
        return *n = held, err;
    }
    if (is(o, "multi.unlockall")) {
        pthread_mutex_lock(&lease_lock);
        err = shmsync_multilock_unlockall(holds, (size_t)n_holds);
        n_holds = 0;
        pthread_mutex_unlock(&lease_lock);
        return err;
    }
    if (is(o, "multi.try")) {
        err = shmsync_multilock_trylock(&m, key, &h);
    } else if (is(o, "multi.lock")) {
        abs = until(o, 1, &ts);
        err = abs == NULL ? shmsync_multilock_lock(&m, key, &h) : shmsync_multilock_timedlock(&m, key, &h, abs);
    } else {
        return ENOSYS;
    }
    if (err == 0)
        keep_holds(&h, 1);
    return err;
}

/* Locks a key of the group and unlocks it. Returns 0, or the error of the lock. */
static int group_key(shmsync_multilock *m, const char *name, uint64_t key, const struct timespec *abs)
{
    char other[600];
    shmsync_hold h;
    int err = abs == NULL ? shmsync_multilock_lock(m, key, &h) : shmsync_multilock_timedlock(m, key, &h, abs);
    snprintf(other, sizeof other, "%s-%llu", name, (unsigned long long)key);
    if (err == 0 && (err = alone(other)) == 0)
        err = shmsync_multilock_unlock(&h);
    return err;
}

/* A turn of a group: it locks one key again and again, or one of many keys, or several at a time, more than a bucket
 * has entries for. It holds those for so long that waits of others time out. */
static int group_multi(const char *name, int turn)
{
    shmsync_multilock m;
    shmsync_hold all[6];
    struct timespec ts;
    uint64_t key = (uint64_t)turn % 3, keys[6];
    size_t held, i;
    int err, tries;
    if ((err = shmsync_multilock_open(arena, name, NULL, &m)) != 0)
        return err;
    if (turn % 4 == 0) {
        for (i = 0; i < 6; i++)
            keys[i] = (uint64_t)turn % 5 + i;
        err = shmsync_multilock_lockall(&m, keys, 6, all, &held);
        if (err == 0) {
            struct timespec hold = {0, 2000000};
            nanosleep(&hold, NULL);
            err = shmsync_multilock_unlockall(all, held);
        }
    } else if (turn % 4 == 1) {
        err = group_key(&m, name, key, in_ms(&ts, 1));
    } else {
        for (tries = 0; tries < 4 && err == 0; tries++)
            err = group_key(&m, name, key, NULL);
        if (err == 0 && (err = shmsync_multilock_trylock(&m, key, &all[0])) == 0)
            err = shmsync_multilock_unlock(&all[0]);
    }
    if (err == EOWNERDEAD)
        for (err = 0, key = 0; key < 10 && err == 0; key++)
            err = shmsync_multilock_recover(&m, key, no_repair, NULL);
    shmsync_multilock_close(&m);
    return err == ETIMEDOUT || err == EBUSY ? 0 : err;
}
