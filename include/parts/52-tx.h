/* ---- Transactions: a hold of a lock with an undo log ---- */

enum { SHMI_txSaved = sizeof((shmsync_tx *)0)->saved / sizeof((shmsync_tx *)0)->saved[0] };

/* Begins a transaction with a lock that this process has just got. EPROTO: the log of the lock is not idle. */
SHMI_FN int shmi_tx_begin(shmsync_arena *a, const shmi_log *log, shmsync_tx *tx)
{
    if (SHMI_UNLIKELY(__atomic_load_n(&log->head->state, __ATOMIC_RELAXED) != 0))
        return EPROTO;
    tx->arena = a;
    tx->log = log;
    tx->tail = 0;
    tx->failed = 0;
    tx->n_saved = 0;
    tx->blocks = 0;
    return 0;
}

/* Checks whether the lock can begin transactions at all. */
SHMI_FN int shmi_tx_check(shmsync_arena *a, int rollback, const char *op, const char *called, shmsync_tx *tx)
{
    tx->mutex = NULL;
    if (SHMI_UNLIKELY(shmi_self(a) == 0))
        return shmi_fail(shmi_nameless(a), op, called, "%s", "");
    if (SHMI_UNLIKELY(!rollback))
        return shmi_fail(EINVAL, op, called, "it has no undo log; a lock of SHMSYNC_POLICY_ROLLBACK has one");
    if (SHMI_UNLIKELY(a->lock_fd < 0))
        return shmi_fail(ENOTSUP, op, called, "this system has no locks of open file descriptions, which prove the end of a process");
    return 0;
}

/* The functions that a transaction with an RWMutex calls. tx->mutex is then the writers' mutex of that RWMutex. */
SHMI_FN int shmi_rw_bad_log(struct shmi_rwmutex *m, const char *op);
SHMI_FN int shmi_rw_writes(struct shmi_rwmutex *m, uint32_t *word);
SHMI_FN int shmi_rw_open(struct shmi_rwmutex *m, const char *op);

/* Called when the log of a lock has a content that no correct program writes. After this call, only a recover makes the
 * lock usable. */
SHMI_COLD int shmi_mutex_bad_log(shmi_mutex *m, const char *op)
{
    if (m->rw != NULL)
        return shmi_rw_bad_log(m->rw, op);
    uint32_t o = shmi_ld32(m->own);
    shmi_participant_id n = SHMI_LOG_ID(shmi_ld64(&m->log.head->state));
    if (n != 0)
        shmi_st32(&m->w->died, n);
    if (shmi_owner_held(o) && shmi_owner_name(o) == m->a->self) {
        shmi_log_lose(&m->log);
        shmi_cas32(m->own, o, SHMI_OWNER_NOT_RECOVERABLE);
    }
    shmi_wake_word_wake_all(m->a, &m->line);
    return shmi_fail(EPROTO, op, m->called, "its undo log is impossible; the mutex is not recoverable");
}

SHMI_FN int shmi_mutex_begun(shmi_mutex *m, const char *op, int err, shmsync_tx *tx)
{
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (SHMI_UNLIKELY(shmi_tx_begin(m->a, &m->log, tx) != 0))
        return shmi_mutex_bad_log(m, op);
    tx->mutex = m;
    return 0;
}
/* Locks m, for which this call has to wait, and begins a transaction. If the handle is closed during the wait, the call
 * unlocks m, because a transaction needs an open handle. */
SHMI_COLD int shmi_mutex_begin_slow(shmi_mutex *m, const char *op, int64_t deadline, shmsync_tx *tx)
{
    shmsync_arena *a = m->a;
    int err = shmi_enter_for(m, a, op);
    if (err != 0)
        return err;
    err = shmi_mutex_begun(m, op, shmi_mutex_lock_slow(m, deadline), tx);
    if (err == 0 && (err = shmi_kept_closed(m, op)) != 0) {
        tx->mutex = NULL;
        shmi_mutex_unlock(m);
    }
    shmi_exit_for(m, a);
    return err;
}
SHMI_FN int shmi_mutex_begin(shmi_mutex *m, const char *op, int64_t deadline, shmsync_tx *tx)
{
    return SHMI_LIKELY(shmi_mutex_at_once(m)) ? shmi_mutex_begun(m, op, 0, tx) : shmi_mutex_begin_slow(m, op, deadline, tx);
}
int shmsync_mutex_begin(shmsync_mutex *m, shmsync_tx *tx)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.begin", m->impl->called, tx);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_mutex_begin(m->impl, "mutex.begin", 0, tx), memset(tx, 0, sizeof *tx));
}
int shmsync_mutex_trybegin(shmsync_mutex *m, shmsync_tx *tx)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.trybegin", m->impl->called, tx);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_mutex_begun(m->impl, "mutex.trybegin", shmi_mutex_trylock(m->impl), tx), memset(tx, 0, sizeof *tx));
}
int shmsync_mutex_timedbegin(shmsync_mutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int64_t deadline;
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.timedbegin", m->impl->called, tx);
    if (err != 0)
        return SHMI_DONE(err);
    if (shmi_mutex_at_once(m->impl))
        return SHMI_DONE_ELSE(shmi_mutex_begun(m->impl, "mutex.timedbegin", 0, tx), memset(tx, 0, sizeof *tx));
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "mutex.timedbegin", m->impl->called, "not a time");
    return SHMI_DONE_ELSE(shmi_mutex_begin_slow(m->impl, "mutex.timedbegin", deadline, tx), memset(tx, 0, sizeof *tx));
}

/* ---- Saving ---- */

SHMI_FN const char *shmi_tx_called(const shmsync_tx *tx) { return tx->mutex->called; }
SHMI_FN uint64_t shmi_tx_active(const shmsync_tx *tx) { return shmi_make_log(SHMI_logActive, tx->arena->self, tx->tail); }

/* Whether the transaction can go on. Returns 0, EPERM if the transaction has ended, or the error of shmi_nameless if
 * this process is no participant, for example as a child of fork. */
SHMI_FN int shmi_tx_going(const shmsync_tx *tx, const char *op)
{
    if (SHMI_UNLIKELY(tx->mutex == NULL))
        return shmi_fail(EPERM, op, NULL, "the transaction has ended");
    if (SHMI_UNLIKELY(shmi_self(tx->arena) == 0))
        return shmi_fail(shmi_nameless(tx->arena), op, shmi_tx_called(tx), "%s", "");
    return 0;
}

/* Appends a record. The call writes the footer first, and then the new state, which makes the record valid. The caller
 * has made sure that there is room. */
SHMI_FN void shmi_tx_append(shmsync_tx *tx, const void *from, shmi_off off, uint32_t n, uint32_t kind)
{
    unsigned char *r = tx->log->records + tx->tail;
    uint64_t padded = shmi_log_padded(n);
    /* The footer is stored as one word. If two stores wrote the footer, a later load of the whole footer would have to
     * wait for both. */
    uint64_t footer = n | (uint64_t)kind << 32;
    if (n == sizeof(uint64_t)) /* most ranges are one word, and need no call of memcpy */
        memcpy(r, from, sizeof(uint64_t));
    else if (n != 0)
        memcpy(r, from, n);
    memcpy(r + padded, &off, sizeof off);
    memcpy(r + padded + sizeof off, &footer, sizeof footer);
    SHMSYNC_CRASHPOINT("tx.save.recorded");
    tx->tail += padded + SHMI_recordFooter;
    shmi_log_store(tx->log->head, shmi_tx_active(tx));
    SHMSYNC_CRASHPOINT("tx.save.valid");
}

SHMI_COLD int shmi_tx_full(shmsync_tx *tx, const char *op, uint64_t n)
{
    tx->failed = ENOSPC;
    return shmi_fail(ENOSPC, op, shmi_tx_called(tx), "its undo log of %llu bytes is full: %llu used, %llu asked for; make the lock with more log_bytes",
                     (unsigned long long)tx->log->room, (unsigned long long)tx->tail, (unsigned long long)n);
}
SHMI_COLD int shmi_tx_bad_range(shmsync_tx *tx, const void *p, size_t n)
{
    tx->failed = EINVAL;
    return shmi_fail(EINVAL, "tx.save", shmi_tx_called(tx), "%llu bytes at %p are not data of this arena", (unsigned long long)n, p);
}

int shmsync_tx_save(shmsync_tx *tx, const void *p, size_t n)
{
    SHMI_BEGIN();
    shmi_off off, end;
    unsigned k;
    int err = shmi_tx_going(tx, "tx.save");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    if (SHMI_UNLIKELY(tx->failed != 0))
        return SHMI_TELL(tx->failed);
    if (SHMI_UNLIKELY(n == 0))
        return SHMI_DONE_IN(tx->arena, 0);
    off = (shmi_off)((uintptr_t)p - (uintptr_t)tx->arena->base);
    if (SHMI_UNLIKELY(!shmi_log_covers(tx->arena, tx->log, off, n)))
        return SHMI_TELL(shmi_tx_bad_range(tx, p, n));
    end = off + n;
    for (k = 0; k < SHMI_txSaved && k < tx->n_saved; k++)
        if (off >= tx->saved[k].begin && end <= tx->saved[k].end)
            return SHMI_DONE_IN(tx->arena, 0);
    if (SHMI_UNLIKELY(n > tx->log->room || shmi_log_padded(n) + SHMI_recordFooter > tx->log->room - tx->tail))
        return SHMI_TELL(shmi_tx_full(tx, "tx.save", n));
    shmi_tx_append(tx, p, off, (uint32_t)n, SHMI_recordBytes);
    k = tx->n_saved++ % SHMI_txSaved;
    tx->saved[k].begin = off;
    tx->saved[k].end = end;
    return SHMI_DONE_IN(tx->arena, 0);
}

/* ---- Blocks ---- */

/* Makes the last record, which saves no bytes, invalid again. */
SHMI_FN void shmi_tx_take_back(shmsync_tx *tx)
{
    tx->tail -= SHMI_recordFooter;
    shmi_log_store(tx->log->head, tx->tail == 0 ? 0 : shmi_tx_active(tx));
}

int shmsync_tx_alloc(shmsync_tx *tx, uint64_t size, uint64_t align, shmsync_offset *out)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    shmi_block b;
    shmi_off off = 0;
    int err = shmi_tx_going(tx, "tx.alloc");
    *out = 0;
    if (err != 0)
        return SHMI_TELL(err);
    if (tx->failed != 0)
        return SHMI_TELL(tx->failed);
    if (align > SHMI_maxAlign || (align & (align - 1)) != 0)
        return SHMI_TELL(tx->failed = shmi_fail(EINVAL, "tx.alloc", shmi_tx_called(tx), "alignment %llu is not a power of two up to 4096", (unsigned long long)align));
    if (SHMI_recordFooter > tx->log->room - tx->tail)
        return SHMI_TELL(shmi_tx_full(tx, "tx.alloc", 0));
    err = shmi_claim_aligned(a, size, align != 0 ? align : 1, &off);
    if (err != 0)
        return SHMI_TELL(tx->failed = err);
    SHMSYNC_CRASHPOINT("tx.alloc.claimed");
    tx->blocks = 1;
    shmi_tx_append(tx, NULL, off, 0, SHMI_recordAlloc);
    SHMSYNC_CRASHPOINT("tx.alloc.recorded");
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_make_block(SHMI_blockLogged, a->self)))
        return SHMI_TELL(tx->failed = shmi_meddled(a, off));
    SHMSYNC_CRASHPOINT("tx.alloc.logged");
    *out = off;
    return SHMI_DONE_IN(a, 0);
}

/* Frees a block that this transaction has allocated. EINVAL: the transaction has not allocated the block, or has freed
 * it already. */
SHMI_FN int shmi_tx_free_own(shmsync_tx *tx, shmi_off off)
{
    uint64_t tail = tx->tail;
    uint32_t kind = SHMI_recordTemporary;
    shmi_log_footer f;
    while (tail != 0) {
        uint64_t end = tail;
        if (shmi_log_record(tx->arena, tx->log, &tail, &f) != 0)
            return shmi_fail(EPROTO, "tx.free", shmi_tx_called(tx), "its undo log is impossible");
        if (f.kind == SHMI_recordAlloc && f.off == off) {
            memcpy(tx->log->records + end - sizeof kind, &kind, sizeof kind);
            return 0;
        }
    }
    return shmi_fail(EINVAL, "tx.free", shmi_tx_called(tx), "the block at 0x%llx is freed already, or another transaction of this process has it", (unsigned long long)off);
}

int shmsync_tx_free(shmsync_tx *tx, shmsync_offset off)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    uint32_t logged;
    shmi_block b;
    int err = shmi_tx_going(tx, "tx.free"), found;
    if (err != 0)
        return SHMI_TELL(err);
    if (tx->failed != 0)
        return SHMI_TELL(tx->failed);
    logged = shmi_make_block(SHMI_blockLogged, a->self);
    found = shmi_locate(a, off, &b);
    if (found && shmi_ld32(b.word) == logged)
        return SHMI_DONE_IN(a, tx->failed = shmi_tx_free_own(tx, off));
    if (found && shmi_ld32(b.word) == SHMI_blockRaw) {
        if (SHMI_recordFooter > tx->log->room - tx->tail)
            return SHMI_TELL(shmi_tx_full(tx, "tx.free", 0));
        shmi_touch(a, b.chunk);
        tx->blocks = 1;
        shmi_tx_append(tx, NULL, off, 0, SHMI_recordFree);
        SHMSYNC_CRASHPOINT("tx.free.recorded");
        if (shmi_block_swap(&b, SHMI_blockRaw, logged)) {
            SHMSYNC_CRASHPOINT("tx.free.logged");
            return SHMI_DONE_IN(a, 0);
        }
        shmi_tx_take_back(tx); /* otherwise an undo would take the block away from another transaction, which uses it now */
    }
    return SHMI_TELL(tx->failed = shmi_fail(EINVAL, "tx.free", shmi_tx_called(tx), "nothing that was allocated begins at 0x%llx", (unsigned long long)off));
}

/* ---- Ending ---- */

/* Releases the lock of a transaction that has ended. */
SHMI_FN int shmi_tx_unlock(shmi_mutex *m, const char *op) { return m->rw != NULL ? shmi_rw_open(m->rw, op) : shmi_mutex_unlock(m); }

/* Whether the transaction can end. Returns an error of shmi_tx_going, or EPERM if this process has unlocked the mutex
 * meanwhile. After such an unlock, other processes may have changed the data, so the call sets the log to lost. If the
 * log stayed as it is, and this process got the lock again and died, a rollback would undo changes of others. */
SHMI_FN int shmi_tx_ends(shmsync_tx *tx, const char *op)
{
    int err = shmi_tx_going(tx, op);
    uint32_t o;
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (tx->mutex->rw != NULL) {
        if (SHMI_LIKELY(shmi_rw_writes(tx->mutex->rw, &o)))
            return 0;
    } else {
        o = __atomic_load_n(tx->mutex->own, __ATOMIC_RELAXED);
        if (SHMI_LIKELY((o & ~SHMI_OWNER_BIASED) == tx->arena->self))
            return 0;
    }
    if (tx->tail != 0)
        shmi_log_lose_foreign(tx->log, shmi_tx_active(tx));
    err = shmi_fail(EPERM, op, shmi_tx_called(tx), "the mutex was unlocked in the transaction (owner word %#010x)", o);
    tx->mutex = NULL;
    return err;
}

/* Records, for tools, the greatest part of the log that a transaction has used. */
SHMI_FN void shmi_tx_highest(const shmsync_tx *tx)
{
    if (tx->tail > __atomic_load_n(&tx->log->head->highest, __ATOMIC_RELAXED))
        __atomic_store_n(&tx->log->head->highest, tx->tail, __ATOMIC_RELAXED);
}

/* Undoes the transaction, and unlocks. Returns 0 or EPROTO. */
SHMI_FN int shmi_tx_undo(shmsync_tx *tx, const char *op)
{
    shmi_mutex *m = tx->mutex;
    tx->mutex = NULL;
    /* The undo uses the tail in *tx, and not the state in the log, which a peer may have overwritten. */
    if (SHMI_UNLIKELY(tx->tail != 0 && shmi_log_end(m->a, tx->log, shmi_tx_active(tx)) != 0))
        return shmi_mutex_bad_log(m, op);
    return shmi_tx_unlock(m, op);
}

int shmsync_tx_commit(shmsync_tx *tx)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    shmi_mutex *m = tx->mutex;
    int err = shmi_tx_ends(tx, "tx.commit");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    if (SHMI_UNLIKELY(tx->failed != 0)) {
        err = shmi_tx_undo(tx, "tx.commit");
        return SHMI_TELL(err != 0 ? err : tx->failed);
    }
    tx->mutex = NULL;
    if (SHMI_UNLIKELY(tx->blocks)) {
        shmi_tx_highest(tx);
        if (tx->tail != 0)
            shmi_log_store(tx->log->head, shmi_make_log(SHMI_logCommitted, tx->arena->self, tx->tail));
        SHMSYNC_CRASHPOINT("tx.commit.decided");
        if (tx->tail != 0 && shmi_log_end(m->a, tx->log, shmi_make_log(SHMI_logCommitted, tx->arena->self, tx->tail)) != 0)
            return SHMI_TELL(shmi_mutex_bad_log(m, "tx.commit"));
    } else if (tx->tail != 0) {
        shmi_tx_highest(tx);
        shmi_log_store(tx->log->head, 0);
        SHMSYNC_CRASHPOINT("tx.commit.idle");
    }
    return SHMI_DONE_IN(a, shmi_tx_unlock(m, "tx.commit"));
}

int shmsync_tx_abort(shmsync_tx *tx)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    int err = shmi_tx_ends(tx, "tx.abort");
    return SHMI_DONE_IN(a, err != 0 ? err : shmi_tx_undo(tx, "tx.abort"));
}
