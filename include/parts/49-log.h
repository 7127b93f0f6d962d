/* ---- Undo logs: the records of a transaction, docs/abi.md ----
 *
 * The stores of a killed thread take effect in program order up to the kill. So a holder needs no fence between its
 * stores. But the compiler must neither leave out a store of the state, nor move other stores across it. So each store
 * of the state stands between two barriers of the compiler. */

/* The state of a log whose lock needs a repair: no process undoes the transaction in the log any more. */
#define SHMI_LOG_LOST ((uint64_t)SHMI_logLost << 61)
#define SHMI_LOG_PHASE(s) ((uint32_t)((s) >> 61))
#define SHMI_LOG_TAIL(s) ((s) & UINT32_MAX)
#define SHMI_LOG_ID(s) ((shmi_participant_id)((s) >> 32 & SHMI_NAME_MASK))

/* The footer at the end of each record. */
typedef struct shmi_log_footer {
    uint64_t off;
    uint32_t length, kind;
} shmi_log_footer;
SHMI_ASSERT(sizeof(shmi_log_footer) == SHMI_recordFooter, "shmi_log_footer");

/* The log of a lock. */
typedef struct shmi_log {
    shmi_log_head *head;    /* NULL: the lock has no log */
    unsigned char *records;
    uint64_t room;          /* bytes of records */
    shmi_off begin, end;    /* the lock itself is between these offsets: no record may save a byte of it */
} shmi_log;

SHMI_FN uint64_t shmi_log_size(uint64_t asked) { return asked == 0 ? (uint64_t)SHMI_logDefault : (asked + 63) & ~UINT64_C(63); }
/* The value of a policy in the body of a lock. */
SHMI_FN uint32_t shmi_policy_field(int policy)
{
    return policy == SHMSYNC_POLICY_ROLLBACK ? SHMI_POLICY_ROLLBACK : policy == SHMSYNC_POLICY_RELEASE ? SHMI_POLICY_RELEASE : SHMI_POLICY_REPORT;
}
SHMI_FN const char *shmi_policy_text(uint32_t field)
{
    static const char *const text[] = {"report", "release", "rollback"};
    return field < 3 ? text[field] : "unknown";
}
/* Returns an error if policy needs an undo log, which this kind of lock does not have; otherwise 0. */
SHMI_FN int shmi_no_rollback(const char *op, const char *name, int policy, const char *kind)
{
    if (policy == SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(ENOTSUP, op, name, "%s has no undo log; a mutex has one, and an rwmutex", kind);
    if (policy < SHMSYNC_POLICY_DEFAULT || policy > SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "there is no policy %d", policy);
    return 0;
}
/* Checks whether a lock of a kind that can have an undo log can have these options. */
SHMI_FN int shmi_check_policy(const char *op, const char *name, int policy, uint64_t log_bytes)
{
    if (policy < 0 || policy > SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "there is no policy %d", policy);
    if (log_bytes != 0 && policy != SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "log_bytes without SHMSYNC_POLICY_ROLLBACK: there is no undo log");
    if (log_bytes > SHMI_logMost)
        return shmi_fail(EINVAL, op, name, "an undo log of %llu bytes; 1 MiB is the most", (unsigned long long)log_bytes);
    return 0;
}
/* Stores the state of a log. A store of 0, or of SHMI_logCommitted, is the commit of the transaction. */
SHMI_FN void shmi_log_store(shmi_log_head *head, uint64_t s)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&head->state, s, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
/* As shmi_log_store, but with a release, after a rollback. A process that does not hold the lock learns from
 * shmi_log_names that no process will undo a transaction any more, and may then free memory. The release orders the
 * stores of the restored bytes before that: otherwise these stores could change memory that already has another use. */
SHMI_FN void shmi_log_restored(shmi_log_head *head, uint64_t s)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&head->state, s, __ATOMIC_RELEASE); /* sync(tx.idle): release */
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
SHMI_FN uint64_t shmi_make_log(uint32_t phase, shmi_participant_id n, uint64_t tail) { return (uint64_t)phase << 61 | (uint64_t)n << 32 | tail; }
SHMI_FN uint64_t shmi_log_padded(uint64_t n) { return (n + 7) & ~UINT64_C(7); }

/* Finds the log of the lock o. words is the size of the part of the body that is not the log. l->head is NULL if the
 * body is not that of a lock with a log. */
SHMI_FN void shmi_log_of(shmsync_arena *a, const shmi_object *o, uint64_t words, shmi_log *l)
{
    shmi_log_head *head;
    uint64_t room = o->size - words - SHMI_logHead;
    memset(l, 0, sizeof *l);
    if (o->size < words + SHMI_logHead + SHMI_logLeast || room > SHMI_logMost || room % SHMI_logLeast != 0)
        return;
    head = (shmi_log_head *)shmi_ptr(a, o->body + words, SHMI_logHead, 8);
    if (shmi_ld32(&head->size) != room)
        return;
    l->head = head;
    l->room = room;
    l->records = shmi_bytes(a, o->body + words + SHMI_logHead, room);
    l->begin = o->off;
    l->end = o->body + o->size;
}

/* Whether a correct program can store the state s. */
SHMI_FN int shmi_log_valid(const shmi_log *l, uint64_t s)
{
    uint64_t tail = SHMI_LOG_TAIL(s);
    if (s == 0)
        return 1;
    return SHMI_LOG_PHASE(s) >= SHMI_logActive && SHMI_LOG_PHASE(s) <= SHMI_logCommitted && shmi_id_valid(SHMI_LOG_ID(s)) &&
           tail != 0 && tail % 8 == 0 && tail <= l->room;
}

/* Whether the log contains a transaction of the participant dead. The caller need not have the lock. */
SHMI_FN int shmi_log_names(shmsync_arena *a, const shmi_log *l, shmi_participant_id dead)
{
    /* sync(tx.idle): acquire */
    uint64_t s = l->head != NULL ? shmi_ld64(&l->head->state) : 0;
    return s != 0 && shmi_log_valid(l, s) && shmi_reaps(a, dead, SHMI_LOG_ID(s));
}

/* Whether a transaction may change the n bytes at off: they must be data of the arena, and not the lock itself. */
SHMI_FN int shmi_log_covers(const shmsync_arena *a, const shmi_log *l, shmi_off off, uint64_t n)
{
    uint64_t end = a->geo.heap_off + a->geo.chunk_count * SHMI_chunkSize;
    return off >= a->geo.heap_off && off <= end && n <= end - off && (off + n <= l->begin || off >= l->end);
}
/* Whether the n bytes at off have memory behind them. A peer may have written off and n. */
SHMI_FN int shmi_log_backed(shmsync_arena *a, shmi_off off, uint64_t n)
{
    uint64_t i = (off - a->geo.heap_off) / SHMI_chunkSize, last = (off - a->geo.heap_off + n - 1) / SHMI_chunkSize;
    for (; i <= last; i++)
        if (!shmi_chunk_reserved(shmi_load_chunk(a, i)))
            return 0;
    return 1;
}

/* Reads the record that ends at *tail, and sets *tail to its beginning. Returns 0, or EPROTO if the record is
 * impossible. */
SHMI_FN int shmi_log_record(shmsync_arena *a, const shmi_log *l, uint64_t *tail, shmi_log_footer *f)
{
    uint64_t rest = *tail, padded;
    if (rest < sizeof *f)
        return EPROTO;
    rest -= sizeof *f;
    memcpy(f, l->records + rest, sizeof *f);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the compiler must use the copy that this function checks, and must not read the record again */
    if (f->kind != SHMI_recordBytes) {
        *tail = rest;
        return f->kind <= SHMI_recordGiven && f->length == 0 ? 0 : EPROTO;
    }
    padded = shmi_log_padded(f->length);
    if (f->length == 0 || padded > rest || !shmi_log_covers(a, l, f->off, f->length) || !shmi_log_backed(a, f->off, f->length))
        return EPROTO;
    *tail = rest - padded;
    return 0;
}

/* Checks all records. Returns 0 or EPROTO. *blocks is the number of records about blocks. */
SHMI_FN int shmi_log_check(shmsync_arena *a, const shmi_log *l, uint64_t tail, uint64_t *blocks)
{
    shmi_log_footer f;
    *blocks = 0;
    while (tail != 0) {
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        *blocks += f.kind != SHMI_recordBytes;
    }
    return 0;
}

/* Copies the saved bytes back, the last record first. EPROTO: a peer is writing into the log. */
SHMI_FN int shmi_log_restore(shmsync_arena *a, const shmi_log *l, uint64_t tail)
{
    shmi_log_footer f;
    while (tail != 0) {
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        if (f.kind != SHMI_recordBytes)
            continue;
        memcpy(shmi_bytes(a, f.off, f.length), l->records + tail, f.length);
        SHMSYNC_CRASHPOINT("tx.undo.range");
    }
    return 0;
}

/* Ends the logged state of the blocks of a transaction of n. If the transaction is committed, the blocks that it
 * allocated stay, and the blocks that it freed are freed. Otherwise the blocks that it allocated are freed, and the
 * blocks that it freed stay. A block that was both allocated and freed in the transaction is freed in both cases.
 *
 * To free a block, this process first changes the block word, which then says that this process is freeing the block.
 * Next it changes the kind of the record to SHMI_recordGiven. When the log is idle, shmi_log_give frees the block. If
 * the block were freed earlier, n could allocate it again and log it in another log. If the block word does not say
 * that n has logged the block, an earlier process has dealt with it. */
SHMI_FN int shmi_log_settle(shmsync_arena *a, const shmi_log *l, uint64_t tail, shmi_participant_id n, int committed)
{
    uint32_t logged = shmi_make_block(SHMI_blockLogged, n), given = SHMI_recordGiven, kept = committed ? SHMI_recordAlloc : SHMI_recordFree;
    shmi_log_footer f;
    while (tail != 0) {
        uint64_t end = tail;
        shmi_block b;
        int goes;
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        if (f.kind == SHMI_recordGiven) {
            /* An earlier process has changed the record to SHMI_recordGiven. That process or its reaper frees the
             * block, which may then be in use again. So the record gets another kind here, and shmi_log_give does not
             * free the block a second time. */
            memcpy(l->records + end - sizeof f.kind, &kept, sizeof kept);
            continue;
        }
        if (f.kind == SHMI_recordBytes || !shmi_locate(a, f.off, &b))
            continue;
        goes = f.kind == SHMI_recordTemporary || (f.kind == SHMI_recordFree) == committed;
        if (goes)
            shmi_touch(a, b.chunk);
        if (shmi_block_swap(&b, logged, goes ? shmi_make_block(SHMI_blockFreeing, a->self) : (uint32_t)SHMI_blockRaw) && goes)
            memcpy(l->records + end - sizeof f.kind, &given, sizeof given);
        if (committed)
            SHMSYNC_CRASHPOINT("tx.commit.block");
        else
            SHMSYNC_CRASHPOINT("tx.undo.block");
    }
    return 0;
}
/* Frees the blocks that shmi_log_settle has marked. The log is idle, and this process still holds the lock. */
SHMI_FN void shmi_log_give(shmsync_arena *a, const shmi_log *l, uint64_t tail)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    shmi_log_footer f;
    while (tail != 0) {
        shmi_block b;
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return;
        if (f.kind == SHMI_recordGiven && shmi_locate(a, f.off, &b) && shmi_ld32(b.word) == freeing)
            shmi_release(a, &b, freeing);
    }
}

/* Sets the state of the log to lost. The caller holds the lock, which is about to become not recoverable or to be
 * repaired. The lost state prevents a rollback, which would overwrite repaired data if the caller died during the
 * repair. */
SHMI_FN void shmi_log_lose(const shmi_log *l)
{
    if (l->head == NULL || shmi_ld64(&l->head->state) == SHMI_LOG_LOST)
        return;
    shmi_log_restored(l->head, SHMI_LOG_LOST);
    SHMSYNC_CRASHPOINT("tx.log.lost");
}
/* Sets the state of the log to lost if it is still s. The caller does not hold the lock. */
SHMI_FN void shmi_log_lose_foreign(const shmi_log *l, uint64_t s)
{
    if (__atomic_compare_exchange_n(&l->head->state, &s, SHMI_LOG_LOST, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        SHMSYNC_CRASHPOINT("tx.log.lost");
}
/* Sets the state of the log to lost, unless the log has a transaction of the participant dead. The owner word had the
 * value o, which says that dead held the lock and was not doing a rollback. If the log has a transaction of another
 * participant, a program has unlocked in a transaction, and others have had the lock since then. The state must be set
 * before a process takes the lock from dead: if the process that takes it died at once, nothing would show any more
 * that dead had held the lock.
 *
 * The caller does not hold the lock, and may have been stopped for long since it read o. So this function reads the
 * state first. Then it writes the ID of dead to an act word, and reads the owner word again. If the owner word is still
 * o, only dead or another reaper of dead can have written the state: see logState in prims/tx_word.go. */
SHMI_FN void shmi_log_disown(shmsync_arena *a, const shmi_log *l, uint32_t *owner, uint32_t o, shmi_participant_id dead)
{
    uint64_t s = l->head != NULL ? shmi_ld64(&l->head->state) : 0;
    shmi_act act;
    if (s == 0 || s == SHMI_LOG_LOST || SHMI_LOG_ID(s) == dead)
        return;
    shmi_begin_act(a, &act, dead);
    if (shmi_ld32(owner) == o && shmi_act_holds(a, &act, dead, 1))
        shmi_log_lose_foreign(l, s);
    shmi_end_act(a, &act);
}

/* Ends the transaction in the log, whose state is s. The caller holds the lock of the log. EPROTO: the log contains
 * impossible bytes. The whole log is checked before anything is changed. */
SHMI_FN int shmi_log_end(shmsync_arena *a, const shmi_log *l, uint64_t s)
{
    uint64_t tail = SHMI_LOG_TAIL(s), blocks = 0;
    shmi_participant_id n = SHMI_LOG_ID(s);
    int committed = SHMI_LOG_PHASE(s) == SHMI_logCommitted;
    if (!shmi_log_valid(l, s) || (n != a->self && n != 0 && shmi_current(a, n)) || shmi_log_check(a, l, tail, &blocks) != 0)
        return EPROTO;
    if (s == 0)
        return 0;
    if (SHMI_LOG_PHASE(s) == SHMI_logActive) {
        if (shmi_log_restore(a, l, tail) != 0)
            return EPROTO;
        if (blocks != 0)
            shmi_log_restored(l->head, shmi_make_log(SHMI_logUndone, n, tail));
        SHMSYNC_CRASHPOINT("tx.undo.undone");
    }
    if (blocks != 0 && shmi_log_settle(a, l, tail, n, committed) != 0)
        return EPROTO;
    shmi_log_restored(l->head, 0);
    if (committed)
        SHMSYNC_CRASHPOINT("tx.commit.idle");
    else
        SHMSYNC_CRASHPOINT("tx.undo.idle");
    if (blocks != 0)
        shmi_log_give(a, l, tail);
    return 0;
}

/* As shmi_log_end, for a transaction whose process is gone. */
SHMI_FN int shmi_log_end_dead(shmsync_arena *a, const shmi_log *l)
{
    uint64_t s;
    int err;
    if (l->head == NULL)
        return EPROTO;
    s = shmi_ld64(&l->head->state);
    err = shmi_log_end(a, l, s);
    if (err == 0 && s != 0 && SHMI_LOG_PHASE(s) != SHMI_logCommitted)
        __atomic_fetch_add(&l->head->rollbacks, 1, __ATOMIC_RELAXED);
    return err;
}

/* Checks that the body of the lock o has the right size, and that o has the options that were asked for. words is the
 * size of the part of the body that is not the log; policy_at is the offset of the policy in it. Returns 0, EPROTO or
 * EINVAL. */
SHMI_FN int shmi_check_lock(shmsync_arena *a, const shmi_object *o, const char *op, uint64_t words, uint64_t policy_at, int policy, uint64_t log_bytes)
{
    uint32_t field = o->size < words ? 0 : shmi_ld32(shmi_u32(a, o->body + policy_at)) & 0xff;
    shmi_log log;
    if (o->size < words || (o->size != words && field != SHMI_POLICY_ROLLBACK))
        return shmi_fail(EPROTO, op, shmi_called(o), "%llu bytes with policy %s", (unsigned long long)o->size, shmi_policy_text(field));
    if (policy != 0 && shmi_policy_field(policy) != field)
        return shmi_fail(EINVAL, op, shmi_called(o), "its policy is %s, asked for %s", shmi_policy_text(field), shmi_policy_text(shmi_policy_field(policy)));
    if (log_bytes != 0 && o->size != words + SHMI_logHead + shmi_log_size(log_bytes))
        return shmi_fail(EINVAL, op, shmi_called(o), "its undo log has %llu bytes, asked for %llu", (unsigned long long)(o->size - words - SHMI_logHead),
                         (unsigned long long)shmi_log_size(log_bytes));
    if (field == SHMI_POLICY_ROLLBACK) {
        shmi_log_of(a, o, words, &log);
        if (log.head == NULL)
            return shmi_fail(EPROTO, op, shmi_called(o), "%llu bytes have no room for its undo log, or the log says otherwise", (unsigned long long)o->size);
    }
    return 0;
}
