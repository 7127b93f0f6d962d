/* Verbs of the agent for Mutex, Futex, and the arena. */

static uint64_t deaths, last_dead;
static void on_death(const shmsync_participant *p, void *arg_)
{
    (void)arg_;
    __atomic_store_n(&last_dead, p->pid, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&deaths, 1, __ATOMIC_SEQ_CST);
}

static int repair_good(void *arg_)
{
    ++*(uint64_t *)arg_;
    return 0;
}
static int repair_bad(void *arg_)
{
    (void)arg_;
    return 7;
}

/* A repair that fails when the test sets the event "spoil". Before it waits for that, it sets the event "spoiling". */
static int repair_hangs(void *arg_)
{
    shmsync_event said, told;
    (void)arg_;
    if (shmsync_event_open(arena, "spoiling", NULL, &said) == 0 && shmsync_event_open(arena, "spoil", NULL, &told) == 0) {
        shmsync_event_set(&said);
        shmsync_event_wait(&told);
    }
    return 7;
}

/* How many threads of all participants have recorded that they sleep on the object. */
static uint64_t sleepers(shmi_off object)
{
    uint32_t i, k;
    uint64_t n = 0;
    for (i = 1; i <= arena->geo.slots; i++)
        for (k = 0; k < SHMI_announceCount; k++) {
            shmi_off r = shmi_slot(arena, i) + SHMI_slotAnnounce + k * SHMI_announceStride;
            n += shmi_slot_present(shmi_slot_state(arena, i)) && shmi_ld64(shmi_u64(arena, r + SHMI_announceWord)) != 0 &&
                 shmi_ld64(shmi_u64(arena, r + SHMI_announceObject)) == object;
        }
    return n;
}

/* The data that a group shares: a tag shows whether there are two owners at a time, and a count shows whether a
 * store was lost. */
typedef struct board {
    uint64_t tag, count, in, repaired;
} board;

static board *team_board(const char *name)
{
    char called[600];
    void *p = NULL;
    snprintf(called, sizeof called, "%s-board", name);
    shmsync_block_open(arena, called, sizeof(board), &p);
    return (board *)p;
}

/* The repair function of a group: it completes what a dead owner left half done. */
static int team_repair(void *arg_)
{
    board *b = (board *)arg_;
    b->count = b->in;
    b->repaired++;
    return 0;
}

/* One turn. Returns 0, or EILSEQ if another thread was in. */
static int turn(shmsync_mutex *m, board *b, uint64_t me)
{
    int err = shmsync_mutex_lock(m), i;
    if (err == EOWNERDEAD)
        return shmsync_mutex_recover(m, team_repair, b);
    if (err != 0)
        return err;
    __atomic_store_n(&b->tag, me, __ATOMIC_RELAXED);
    b->in = b->count + 1;
    for (i = 0; i < 20; i++)
        if (__atomic_load_n(&b->tag, __ATOMIC_RELAXED) != me)
            return EILSEQ;
    b->count = b->in;
    return shmsync_mutex_unlock(m);
}

/* The pid of the process that the last error of this thread names, or 0. */
static uint64_t who_died(void)
{
    shmsync_participant p;
    return shmsync_who_died(&p) == 0 ? (uint64_t)p.pid : 0;
}

static int mutex(const order *o, uint64_t *n)
{
    shmsync_mutex m;
    shmsync_mutex_options opts;
    struct timespec ts;
    const struct timespec *abs;
    int err, open_ = is(o, "mutex.open");
    memset(&opts, 0, sizeof opts);
    opts.policy = (int)arg(o, 0);
    if ((err = shmsync_mutex_open(arena, o->word[2], open_ ? &opts : NULL, &m)) != 0)
        return err;
    if (open_)
        return *n = shmsync_mutex_offset(&m), 0;
    abs = until(o, 0, &ts);
    if (is(o, "mutex.lock")) { /* N: the pid of the process that died */
        err = abs == NULL ? shmsync_mutex_lock(&m) : shmsync_mutex_timedlock(&m, abs);
        if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
            *n = who_died();
        return err;
    }
    if (is(o, "mutex.trylock"))
        return shmsync_mutex_trylock(&m);
    if (is(o, "mutex.unlock"))
        return shmsync_mutex_unlock(&m);
    if (is(o, "mutex.nullrecover"))
        return shmsync_mutex_recover(&m, NULL, NULL);
    if (is(o, "mutex.recover")) /* N: how often the repair ran */
        return shmsync_mutex_recover(&m, repair_good, n);
    if (is(o, "mutex.badrecover"))
        return shmsync_mutex_recover(&m, repair_bad, n);
    if (is(o, "mutex.hang")) /* see repair_hangs */
        return shmsync_mutex_recover(&m, repair_hangs, NULL);
    if (is(o, "mutex.state"))
        return shmsync_mutex_state(&m);
    if (is(o, "mutex.team")) { /* that many turns; N: how many succeeded */
        board *b = team_board(o->word[2]);
        int64_t turns = arg(o, 0), i;
        uint64_t me = (uint64_t)getpid() << 16 | (uint64_t)strtoull(o->word[0], NULL, 10);
        if (b == NULL)
            return ENOMEM;
        for (i = 0; i < turns; i++) {
            if ((err = turn(&m, b, me)) != 0)
                return err;
            ++*n;
        }
        return 0;
    }
    if (is(o, "mutex.timedteam")) { /* the same with deadlines, so that some waits are given up */
        int64_t turns = arg(o, 0), i;
        for (i = 0; i < turns; i++) {
            clock_gettime(CLOCK_MONOTONIC, &ts);
            ts.tv_nsec += 50000 * (i % 8);
            if (ts.tv_nsec >= 1000000000) {
                ts.tv_nsec -= 1000000000;
                ts.tv_sec++;
            }
            err = shmsync_mutex_timedlock(&m, &ts);
            if (err == EOWNERDEAD)
                err = shmsync_mutex_recover(&m, team_repair, team_board(o->word[2]));
            else if (err == 0)
                err = shmsync_mutex_unlock(&m);
            if (err != 0 && err != ETIMEDOUT)
                return err;
            ++*n;
        }
        return 0;
    }
    return ENOSYS;
}

static int futex(const order *o, uint64_t *n)
{
    shmsync_futex f;
    struct timespec ts;
    const struct timespec *abs;
    int64_t i;
    int err;
    if ((err = shmsync_futex_open(arena, o->word[2], NULL, &f)) != 0)
        return err;
    if (is(o, "futex.open"))
        return *n = shmsync_futex_offset(&f), 0;
    if (is(o, "futex.get"))
        return *n = shmsync_futex_get(&f), 0;
    if (is(o, "futex.post"))
        return shmsync_futex_post(&f);
    if (is(o, "futex.stopped"))
        return *n = (uint64_t)shmsync_futex_stopped(&f), 0;
    if (is(o, "futex.stop"))
        return shmsync_futex_stop(&f);
    abs = until(o, 1, &ts);
    if (is(o, "futex.wait"))
        return abs == NULL ? shmsync_futex_wait(&f, (uint64_t)arg(o, 0)) : shmsync_futex_timedwait(&f, (uint64_t)arg(o, 0), abs);
    if (is(o, "futex.walk")) { /* waits for one token after the other */
        for (i = arg(o, 0); i <= arg(o, 1); i++)
            if ((err = shmsync_futex_wait(&f, (uint64_t)i)) != 0)
                return err;
        return 0;
    }
    if (is(o, "futex.posts")) {
        for (i = arg(o, 0); i > 0; i--)
            if ((err = shmsync_futex_post(&f)) != 0)
                return err;
        return 0;
    }
    if (is(o, "futex.pong")) { /* answers each post of NAME with a post of NAME+"-back", that many times */
        char other[600];
        shmsync_futex back;
        snprintf(other, sizeof other, "%s-back", o->word[2]);
        if ((err = shmsync_futex_open(arena, other, NULL, &back)) != 0)
            return err;
        for (i = 1; i <= arg(o, 0); i++)
            if ((err = shmsync_futex_wait(&f, (uint64_t)i)) != 0 || (err = shmsync_futex_post(&back)) != 0)
                return err;
        return 0;
    }
    return ENOSYS;
}

/* Creates and deletes names, again and again. */
static int churn(const order *o, uint64_t *n)
{
    int64_t i;
    for (i = 0; i < arg(o, 0); i++) {
        char called[64];
        shmsync_mutex m;
        shmsync_offset off;
        int err;
        snprintf(called, sizeof called, "%s-%d", o->word[2], (int)(i % 7));
        err = shmsync_mutex_open(arena, called, NULL, &m);
        if (err == 0)
            err = shmsync_mutex_lock(&m);
        if (err == EOWNERDEAD)
            err = shmsync_mutex_recover(&m, repair_good, n);
        else if (err == 0)
            err = shmsync_mutex_unlock(&m);
        if (err == 0)
            err = shmsync_mutex_close(&m);
        if (err != 0)
            return err;
        err = shmsync_delete(arena, called);
        if (err != 0 && err != EBUSY && err != ENOENT)
            return err;
        err = shmsync_alloc(arena, (uint64_t)(i % 5 == 0 ? 100000 : 64 + i % 3000), &off);
        if (err == 0)
            err = shmsync_free(arena, off);
        if (err != 0 && err != ENOSPC)
            return err;
    }
    *n = (uint64_t)i;
    return 0;
}

static int locks(const order *o, uint64_t *n)
{
    shmsync_participant p;
    if (strncmp(o->word[1], "mutex.", 6) == 0)
        return mutex(o, n);
    if (strncmp(o->word[1], "futex.", 6) == 0)
        return futex(o, n);
    if (is(o, "sleepers"))
        return *n = sleepers((shmi_off)arg(o, 0)), 0;
    if (is(o, "churn"))
        return churn(o, n);
    if (is(o, "arena.watch"))
        return shmsync_arena_on_death(arena, on_death, NULL);
    if (is(o, "arena.deaths"))
        return *n = __atomic_load_n(&deaths, __ATOMIC_SEQ_CST), 0;
    if (is(o, "arena.lastdead"))
        return *n = __atomic_load_n(&last_dead, __ATOMIC_SEQ_CST), 0;
    if (is(o, "arena.slot"))
        return shmsync_arena_self(arena, &p) != 0 ? EINVAL : (*n = p.slot, 0);
    return ENOSYS;
}
