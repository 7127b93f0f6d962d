/* Verbs of the agent for transactions. */

/* The data that the transactions of a test change: all cells are equal, all bytes are equal, and there are count
 * nodes. */
enum { TX_CELLS = 60, TX_BYTES = 256 << 10, TX_NODES = 40 };
typedef struct tx_data {
    uint64_t rounds; /* transactions that were committed */
    uint64_t fill;   /* the value of each byte */
    uint64_t head;   /* first node of the list */
    uint64_t count;
    uint64_t cells[TX_CELLS];
    unsigned char bytes[TX_BYTES];
} tx_data;

typedef struct tx_node {
    uint64_t next, mark; /* next: offset of the next node; mark: the offset of this node, inverted */
} tx_node;

enum { TX_MIXED, TX_READ, TX_UNSAVED };

static uint64_t tx_began; /* the transactions that this process has begun */

static uint64_t tx_random(uint64_t *seed)
{
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    return *seed;
}

/* How many parts of the data are torn: 0 if all are whole. */
static uint64_t tx_torn(const tx_data *d)
{
    uint64_t torn = 0, i, off = d->head;
    for (i = 0; i < d->count && off != 0; i++) {
        const tx_node *node = (const tx_node *)shmsync_at(arena, off, sizeof *node);
        if (node == NULL || node->mark != ~off)
            break;
        off = node->next;
    }
    torn += i != d->count || off != 0;
    for (i = 0; i < TX_CELLS; i++)
        torn += d->cells[i] != d->rounds;
    for (i = 0; i < TX_BYTES; i++)
        torn += d->bytes[i] != (unsigned char)d->fill;
    return torn;
}

/* Fills the bytes by a system call. The file has two halves, each with equal bytes. */
static int tx_read(shmsync_tx *tx, tx_data *d, int fd)
{
    uint64_t fill = ~d->fill & 0xff;
    int err = shmsync_tx_save(tx, d->bytes, sizeof d->bytes);
    if (err == 0)
        err = shmsync_tx_save(tx, &d->fill, sizeof d->fill);
    if (err != 0)
        return err;
    d->fill = fill;
    if (pread(fd, d->bytes, sizeof d->bytes, fill == 0xff ? TX_BYTES : 0) != TX_BYTES)
        return EIO;
    return 0;
}

/* Changes all cells, in some order. It saves them in pieces or one by one. */
static int tx_cells(shmsync_tx *tx, tx_data *d, uint64_t r, int save)
{
    uint64_t first = r % TX_CELLS, step = 1 + r / TX_CELLS % 8, to = d->rounds + 1, i, n;
    int err = 0;
    for (i = 0; save && err == 0 && i < TX_CELLS; i += step) {
        n = i + step + 3 < TX_CELLS ? step + 3 : TX_CELLS - i; /* they overlap */
        err = shmsync_tx_save(tx, &d->cells[i], n * sizeof d->cells[0]);
    }
    if (save && err == 0)
        err = shmsync_tx_save(tx, &d->rounds, sizeof d->rounds);
    if (err != 0)
        return err;
    for (i = 0; i < TX_CELLS; i++)
        d->cells[(first + i) % TX_CELLS] = to;
    d->rounds = to;
    return 0;
}

/* Adds a node to the list, or removes one. In between it allocates another node and frees it again. */
static int tx_list(shmsync_tx *tx, tx_data *d, uint64_t r)
{
    shmsync_offset off = 0, brief = 0;
    tx_node *node;
    int err = shmsync_tx_save(tx, &d->head, 2 * sizeof d->head);
    if (err == 0 && r % 3 == 0)
        err = shmsync_tx_alloc(tx, 1 + r % 5000, 0, &brief);
    if (err == 0 && (r % 2 == 0 || d->count == 0) && d->count < TX_NODES) {
        err = shmsync_tx_alloc(tx, r % 50 == 0 ? 100000 : sizeof *node + r % 300, r % 5 == 0 ? 4096 : 8, &off);
        if (err != 0)
            return err;
        node = (tx_node *)shmsync_at(arena, off, sizeof *node);
        if (node == NULL || node->next != 0 || node->mark != 0 || (r % 5 == 0 && off % 4096 != 0))
            return EILSEQ;
        node->next = d->head;
        node->mark = ~off;
        d->head = off;
        d->count++;
    } else if (err == 0 && d->count > 0) {
        off = d->head;
        node = (tx_node *)shmsync_at(arena, off, sizeof *node);
        if (node == NULL)
            return EILSEQ;
        d->head = node->next;
        d->count--;
        err = shmsync_tx_free(tx, off);
    }
    if (err == 0 && brief != 0)
        err = shmsync_tx_free(tx, brief);
    return err;
}

/* The lock of the transactions: an RWMutex if its name begins with rw, otherwise a Mutex. */
typedef struct tx_lock {
    int rw;
    shmsync_mutex m;
    shmsync_rwmutex w;
} tx_lock;

static int tx_lock_open(const char *name, int policy, uint64_t log_bytes, tx_lock *l)
{
    shmsync_mutex_options opts;
    shmsync_rwmutex_options rw;
    memset(l, 0, sizeof *l);
    memset(&opts, 0, sizeof opts);
    memset(&rw, 0, sizeof rw);
    opts.policy = rw.policy = policy;
    opts.log_bytes = rw.log_bytes = log_bytes;
    l->rw = strncmp(name, "rw", 2) == 0;
    return l->rw ? shmsync_rwmutex_open(arena, name, &rw, &l->w) : shmsync_mutex_open(arena, name, &opts, &l->m);
}
static const shmi_log *tx_lock_log(const tx_lock *l) { return l->rw ? &l->w.impl->log : &l->m.impl->log; }
static int tx_lock_begin(tx_lock *l, shmsync_tx *tx) { return l->rw ? shmsync_rwmutex_begin(&l->w, tx) : shmsync_mutex_begin(&l->m, tx); }

/* One transaction. Returns 0, or EILSEQ if the data were torn before it or after it. */
static int tx_turn(tx_lock *m, tx_data *d, int mode, int fd, uint64_t *seed)
{
    uint64_t r = tx_random(seed);
    shmsync_tx tx;
    int err = tx_lock_begin(m, &tx), end;
    if (err != 0)
        return err;
    __atomic_add_fetch(&tx_began, 1, __ATOMIC_RELAXED);
    if (mode == TX_READ)
        err = tx_read(&tx, d, fd);
    else
        err = tx_cells(&tx, d, r >> 8, mode != TX_UNSAVED);
    if (mode == TX_MIXED && err == 0 && r % 4 < 3)
        err = tx_list(&tx, d, r >> 20);
    if (err != 0) {
        shmsync_tx_abort(&tx);
        return err;
    }
    if (mode == TX_MIXED && r % 8 == 0)
        return shmsync_tx_abort(&tx);
    if (mode == TX_MIXED && r % 8 == 1) { /* the log is full: nothing has changed */
        do
            err = shmsync_tx_save(&tx, d->bytes + tx_random(seed) % 1000, sizeof d->bytes - 1000);
        while (err == 0);
        end = shmsync_tx_commit(&tx);
        return err == ENOSPC && end == ENOSPC ? 0 : EILSEQ;
    }
    return shmsync_tx_commit(&tx);
}

static int tx_file(void)
{
    static unsigned char half[TX_BYTES];
    int fd = (int)syscall(SYS_memfd_create, "tx", 1);
    if (fd < 0 || write(fd, half, sizeof half) != TX_BYTES)
        return -1;
    memset(half, 0xff, sizeof half);
    return write(fd, half, sizeof half) == TX_BYTES ? fd : -1;
}

static shmsync_tx tx_held; /* of tx.hold */

static int tx_count_block(shmsync_arena *a, shmi_off off, void *count)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || shmi_block_kind(shmi_ld32(b.word)) != SHMI_blockRaw || shmi_ld32(b.word) == SHMI_blockRaw)
        ++*(uint64_t *)count; /* it does not count the slot records of an RWMutex, whose words have an ID */
    return 1;
}

static int tx_verbs(const order *o, uint64_t *n)
{
    char called[600];
    tx_lock m;
    uint64_t log_bytes = 0;
    shmsync_tx tx;
    tx_data *d;
    void *p = NULL;
    uint64_t seed, i;
    int err, fd, policy = 0;
    if (is(o, "tx.blocks")) { /* KIND: how many blocks of that kind there are */
        *n = 0;
        shmi_each_block(arena, 0, (uint32_t)arg(o, 0), tx_count_block, n);
        return 0;
    }
    if (is(o, "tx.open")) {
        policy = o->n > 3 ? (int)arg(o, 0) : SHMSYNC_POLICY_ROLLBACK;
        log_bytes = o->n > 4 ? (uint64_t)arg(o, 1) : policy == SHMSYNC_POLICY_ROLLBACK ? 2 * TX_BYTES : 0;
    }
    if ((err = tx_lock_open(o->word[2], policy, log_bytes, &m)) != 0)
        return err;
    *n = m.rw ? shmsync_rwmutex_offset(&m.w) : shmsync_mutex_offset(&m.m);
    if (is(o, "tx.open"))
        return 0;
    if (is(o, "tx.state"))
        return *n = tx_lock_log(&m)->head == NULL ? 0 : shmi_ld64(&tx_lock_log(&m)->head->state), 0;
    if (is(o, "tx.rollbacks"))
        return *n = shmi_ld64(&tx_lock_log(&m)->head->rollbacks), 0;
    if (is(o, "tx.began")) {
        while (__atomic_load_n(&tx_began, __ATOMIC_RELAXED) == 0)
            shmi_nap(20000);
        return 0;
    }
    if (is(o, "tx.begin")) { /* MS */
        struct timespec ts;
        const struct timespec *abs = until(o, 0, &ts);
        if (abs == NULL)
            return tx_lock_begin(&m, &tx_held);
        return m.rw ? shmsync_rwmutex_timedbegin(&m.w, &tx_held, abs) : shmsync_mutex_timedbegin(&m.m, &tx_held, abs);
    }
    if (is(o, "tx.stale")) { /* WORD: acts as a reaper that has read this owner word, and goes on later */
        shmi_mutex_roll_back(arena, m.m.impl->w, (uint32_t)arg(o, 0), &m.m.impl->log);
        return 0;
    }
    if (is(o, "tx.try"))
        return m.rw ? shmsync_rwmutex_trybegin(&m.w, &tx_held) : shmsync_mutex_trybegin(&m.m, &tx_held);
    snprintf(called, sizeof called, "%s-data", o->word[2]);
    if ((err = shmsync_block_open(arena, called, sizeof *d, &p)) != 0)
        return err;
    d = (tx_data *)p;
    if (is(o, "tx.work")) { /* MODE SEED: for ever */
        seed = (uint64_t)arg(o, 1) | 1;
        fd = tx_file();
        while (fd >= 0)
            if ((err = tx_turn(&m, d, (int)arg(o, 0), fd, &seed)) != 0)
                return err;
        return EIO;
    }
    if (is(o, "tx.turn")) { /* MODE SEED COUNT */
        seed = (uint64_t)arg(o, 1) | 1;
        fd = tx_file();
        for (i = 0; err == 0 && i < (uint64_t)arg(o, 2); i++)
            err = tx_turn(&m, d, (int)arg(o, 0), fd, &seed);
        if (fd >= 0)
            close(fd);
        return err;
    }
    if (is(o, "tx.hold")) { /* changes everything, and keeps the lock */
        seed = 1;
        fd = tx_file();
        if ((err = tx_lock_begin(&m, &tx_held)) != 0 || (err = tx_cells(&tx_held, d, 0, 1)) != 0)
            return err;
        for (i = 0; err == 0 && i < 4; i++) /* adds two nodes, and frees one */
            err = tx_list(&tx_held, d, i == 2 ? 1 : 6 * i);
        if (err == 0)
            err = tx_read(&tx_held, d, fd); /* its records come last */
        close(fd);
        return err;
    }
    if (is(o, "tx.condwait")) {
        shmsync_cond c;
        snprintf(called, sizeof called, "%s-cond", o->word[2]);
        if ((err = shmsync_cond_open(arena, called, NULL, &c)) == 0)
            err = shmsync_cond_wait(&c, &m.m);
        return err;
    }
    if (is(o, "tx.commit"))
        return shmsync_tx_commit(&tx_held);
    if (is(o, "tx.abort"))
        return shmsync_tx_abort(&tx_held);
    if (is(o, "tx.recover"))
        return *n = 0, m.rw ? shmsync_rwmutex_recover(&m.w, repair_good, n) : shmsync_mutex_recover(&m.m, repair_good, n);
    if (is(o, "tx.count"))
        return *n = d->count, 0;
    if (is(o, "tx.torn")) /* checks the data without the lock */
        return *n = tx_torn(d), 0;
    if (is(o, "tx.look") || is(o, "tx.trylook")) { /* reads as a reader of an RWMutex */
        err = is(o, "tx.look") ? shmsync_rwmutex_rdlock(&m.w) : shmsync_rwmutex_tryrdlock(&m.w);
        if (err != 0)
            return err;
        *n = tx_torn(d);
        return shmsync_rwmutex_rdunlock(&m.w);
    }
    if (is(o, "tx.lock"))
        return m.rw ? shmsync_rwmutex_lock(&m.w) : shmsync_mutex_lock(&m.m);
    if (is(o, "tx.unlock"))
        return m.rw ? shmsync_rwmutex_unlock(&m.w) : shmsync_mutex_unlock(&m.m);
    if (is(o, "tx.check")) {
        if ((err = tx_lock_begin(&m, &tx)) != 0)
            return err;
        *n = tx_torn(d);
        if (*n != 0) { /* saved for the next round */
            for (i = 0; i < TX_CELLS; i++)
                d->cells[i] = d->rounds;
            memset(d->bytes, (int)d->fill, sizeof d->bytes);
        }
        return shmsync_tx_commit(&tx);
    }
    return ENOSYS;
}

static int tx_log_change(shmsync_tx *tx, uint64_t *d)
{
    shmsync_offset off;
    int err = shmsync_tx_save(tx, d, 8);
    d[0] = 8;
    if (err == 0)
        err = shmsync_tx_save(tx, d + 1, 15); /* this record has padding */
    d[1] = 9;
    if (err == 0)
        err = shmsync_tx_alloc(tx, 100, 0, &off);
    return err != 0 ? err : shmsync_tx_free(tx, off);
}

/* The verbs for the test vectors of a mutex with an undo log. Its data are 64 bytes, which begin with 5, 6 and 7. */
static int tx_log_verbs(const order *o, uint64_t *n)
{
    char called[600];
    shmsync_mutex m;
    shmsync_mutex_options opts;
    shmsync_tx tx;
    uint64_t *d;
    void *p;
    int err;
    memset(&opts, 0, sizeof opts);
    opts.policy = SHMSYNC_POLICY_ROLLBACK;
    opts.log_bytes = 192;
    if ((err = shmsync_mutex_open(arena, o->word[2], &opts, &m)) != 0)
        return err;
    snprintf(called, sizeof called, "%s-data", o->word[2]);
    if ((err = shmsync_block_open(arena, called, 64, &p)) != 0)
        return err;
    d = (uint64_t *)p;
    if (is(o, "txlog.open")) {
        d[0] = 5;
        d[1] = 6;
        d[2] = 7;
        return *n = shmsync_mutex_offset(&m), 0;
    }
    if (is(o, "txlog.change")) {
        if ((err = shmsync_mutex_begin(&m, &tx)) != 0 || (err = tx_log_change(&tx, d)) != 0)
            return err;
        return shmsync_tx_commit(&tx);
    }
    if (is(o, "txlog.leave")) { /* a transaction that does not end */
        if ((err = shmsync_mutex_begin(&m, &tx_held)) == 0)
            err = tx_log_change(&tx_held, d);
        *m.impl->own &= ~SHMI_OWNER_BIASED; /* the holds need not be biased */
        return err;
    }
    if (is(o, "txlog.begin")) { /* MS */
        struct timespec ts;
        const struct timespec *abs = until(o, 0, &ts);
        if ((err = abs == NULL ? shmsync_mutex_begin(&m, &tx) : shmsync_mutex_timedbegin(&m, &tx, abs)) != 0)
            return err;
        return shmsync_tx_commit(&tx);
    }
    if (is(o, "txlog.data")) /* I */
        return *n = d[arg(o, 0)], 0;
    return ENOSYS;
}
