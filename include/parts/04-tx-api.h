/* ---- Transactions: changes that happen wholly or not at all ---- */

/* A mutex of policy SHMSYNC_POLICY_ROLLBACK has an undo log. A transaction is one hold of such a mutex, from
 * shmsync_mutex_begin to shmsync_tx_commit or shmsync_tx_abort. Before the caller changes bytes of the arena, it calls
 * shmsync_tx_save, which copies the bytes into the log. If the process dies before the commit, the next process that
 * wants the mutex, in C or Go, copies the old bytes back, and gets the mutex without an error.
 *
 *     if (shmsync_mutex_begin(&m, &tx) != 0)
 *         return fail(shmsync_error());
 *     if (shmsync_tx_save(&tx, from, sizeof *from) == 0 && shmsync_tx_save(&tx, to, sizeof *to) == 0) {
 *         from->balance -= amount;
 *         to->balance += amount;
 *     }
 *     err = shmsync_tx_commit(&tx); // 0, or why a save failed: then nothing has changed
 *
 * Memory that was not saved is not restored. Only one thread at a time may use a transaction, and no thread may copy or
 * move its shmsync_tx. Transactions of one mutex do not nest: a second begin waits for the first. Transactions of two
 * mutexes are independent, even if one begins within the other. If one transaction is undone, the changes of the other
 * transaction stay. So the two transactions must not save the same bytes. While a thread is in a transaction, no thread
 * may close the arena or unlock the mutex. Once the transaction has saved, allocated or freed something,
 * shmsync_cond_wait with that mutex returns EINVAL. */
typedef struct shmsync_tx {
    struct shmi_mutex *mutex; /* NULL: the transaction has ended */
    struct shmsync_arena *arena;
    const struct shmi_log *log;
    uint64_t tail;            /* bytes of records */
    int failed;               /* error of the first call that failed */
    unsigned n_saved, blocks;
    struct {
        uint64_t begin, end;
    } saved[8];               /* the last ranges that were saved */
} shmsync_tx;

/* shmsync_mutex_begin locks m, as shmsync_mutex_lock does, and begins a transaction. ENOTSUP: the kernel has no byte
 * locks (fcntl with F_OFD_SETLK), by which other processes see that this process is gone. EINVAL: m has another policy.
 * EPROTO: a peer has overwritten the log. An error means: not locked, and no transaction. */
int shmsync_mutex_begin(shmsync_mutex *m, shmsync_tx *tx);
/* As shmsync_mutex_begin, but it does not wait. EBUSY: the mutex is held. */
int shmsync_mutex_trybegin(shmsync_mutex *m, shmsync_tx *tx);
/* As shmsync_mutex_begin, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_mutex_timedbegin(shmsync_mutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic);

/* shmsync_tx_save records the n bytes at p, which the caller is going to change. The bytes must lie within one block
 * or object of the arena, and not in the mutex itself. A save costs nothing if its range lies within one of the last
 * eight ranges that were saved.
 *
 * ENOSPC: the log is full; make the mutex with more log_bytes. EINVAL: p is not data of the arena. EPERM: the
 * transaction has ended. After an error the transaction has failed: the caller must not change the bytes at p, each
 * further save returns the same error, and shmsync_tx_commit undoes all changes and returns this error. */
int shmsync_tx_save(shmsync_tx *tx, const void *p, size_t n);

/* shmsync_tx_alloc allocates zeroed bytes. They stay allocated if the transaction commits, and are freed if it is
 * undone. align is a power of two up to 4096, or 0 for any alignment. If the call fails, *out is 0. The caller need not
 * save the bytes before it changes them.
 *
 * ENOSPC: the arena or the log is full. EINVAL: align is not valid. Other errors, and the consequences of an error, are
 * those of shmsync_tx_save. */
int shmsync_tx_alloc(shmsync_tx *tx, uint64_t size, uint64_t align, shmsync_offset *out);

/* shmsync_tx_free frees bytes of shmsync_alloc or shmsync_tx_alloc when the transaction commits. Until then the bytes
 * can be read. If the transaction is undone, they stay allocated. EINVAL: the offset was not allocated, or was already
 * freed. Other errors, and the consequences of an error, are those of shmsync_tx_save. */
int shmsync_tx_free(shmsync_tx *tx, shmsync_offset off);

/* shmsync_tx_commit makes the changes final, and unlocks the mutex. If a save, an alloc or a free of the transaction
 * has failed, it undoes the changes instead, unlocks the mutex, and returns that error. EPERM: the transaction has
 * ended, or a thread has unlocked the mutex during the transaction. After such an unlock, the call undoes nothing,
 * because other processes may have changed the data. The next begin returns EPROTO, and the mutex needs a recover.
 * EPROTO: a peer has overwritten the log, and the mutex is not recoverable. */
int shmsync_tx_commit(shmsync_tx *tx);
/* Undoes the changes, and unlocks the mutex. EPERM: the transaction has ended, or a thread has unlocked the mutex
 * during the transaction. EPROTO: a peer has overwritten the log, and the mutex is not recoverable. */
int shmsync_tx_abort(shmsync_tx *tx);
