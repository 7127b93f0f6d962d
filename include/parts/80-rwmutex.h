
/* ---- RWMutex: prims/rwmutex*.go in C, docs/design/0010-rwmutex.md ---- */

#define SHMI_READER_ONE (UINT64_C(1) << SHMI_READER_READING_SHIFT)
#define SHMI_READER_WAIT (UINT64_C(1) << SHMI_READER_WAITING_SHIFT)
#define SHMI_READER_MOST UINT64_C(0x7fffff)

struct shmi_rwmutex {
    shmsync_arena *a;
    shmi_object o;
    shmi_rwmutex_words *w;
    shmi_mutex_words *ww; /* the words of the writers' mutex, which have the same address as w */
    uint32_t *gate;       /* a word in the header of the object */
    uint64_t *mine;       /* this participant's reader word */
    uint32_t *records;    /* a word in the header of the object: the latest slot record */
    struct shmi_rw_readers *known; /* only a thread that holds registry changes the pointer */
    int release, rollback;
    shmi_log log; /* the undo log; only if rollback is not 0. The log begins sizeof(shmi_mutex_words) bytes behind the start of the body */
    int (*repair)(void *);
    void *repair_arg;
    const char *called;
    shmi_mutex writers; /* the holder of this mutex closes the gate, writes, and opens the gate */
    shmi_wait_list readers_wake_word, writer_wake_word;
    pthread_mutex_t registry;
    /* guarded by: registry. waiting: how many readers have registered since the last grant. due: how many readers were
     * let in by a grant and have not noticed it yet */
    uint32_t waiting, due;
    uint64_t epoch;        /* guarded by: registry; the number of grants so far */
    uint32_t upgradable;   /* SHMI_upNot, SHMI_upHeld or SHMI_upUpgrading: only this field shows whether a hold is upgradable */
    uint32_t stuck;        /* the value of a closed gate that the last check found although no participant was reading; otherwise 0 */
    int64_t looked_readers, looked_writer;
};

/* The reader words that a handle knows, in the order in which the handle added them. A reader word lies in a slot
 * record, which stays until the object is deleted. So the handle reads the list of slot records again only when the
 * list has changed. */
typedef struct shmi_rw_reader {
    uint64_t *state;
    uint32_t slot;
} shmi_rw_reader;
typedef struct shmi_rw_readers {
    struct shmi_rw_readers *older; /* an earlier, shorter array, which other threads may still read; freed with the handle */
    uint32_t head;                 /* the latest slot record whose reader word is in v, as a value of objRecords */
    uint32_t n, cap;
    shmi_rw_reader v[1]; /* cap places */
} shmi_rw_readers;

/* The size of the body. In an arena that counts operations, the counts of the writers' mutex follow the words. */
SHMI_FN uint64_t shmi_rw_bytes(shmsync_arena *a)
{
    return a->geo.counted ? sizeof(shmi_mutex_words) : sizeof(shmi_rwmutex_words);
}
SHMI_FN uint64_t shmi_rw_reading(uint64_t w) { return w >> SHMI_READER_READING_SHIFT; }
SHMI_FN uint64_t shmi_rw_waiting(uint64_t w) { return w >> SHMI_READER_WAITING_SHIFT & SHMI_READER_MOST; }
SHMI_FN uint64_t shmi_rw_cleared(uint64_t w) { return w & SHMI_READER_GENERATION_MASK; }
SHMI_FN uint64_t shmi_rw_granted(uint64_t w)
{
    return shmi_rw_cleared(w) + ((shmi_rw_reading(w) + shmi_rw_waiting(w)) << SHMI_READER_READING_SHIFT);
}
SHMI_FN shmi_participant_id shmi_rw_name(uint64_t w, uint32_t slot) { return shmi_make_participant_id(slot, (uint32_t)(w & SHMI_READER_GENERATION_MASK)); }

SHMI_FN uint32_t shmi_rw_gate(struct shmi_rwmutex *m) { return shmi_ld32(m->gate); }
SHMI_FN uint32_t shmi_rw_kind(uint32_t g) { return g >> SHMI_GATE_KIND_SHIFT; }
SHMI_FN shmi_participant_id shmi_rw_who(uint32_t g) { return g & SHMI_NAME_MASK; }
SHMI_FN int shmi_rw_taken(uint32_t g)
{
    uint32_t k = shmi_rw_kind(g);
    return shmi_rw_who(g) != 0 && (k == SHMI_GATE_HELD || k == SHMI_GATE_CLOSED || k == SHMI_GATE_RECOVERING);
}
SHMI_FN int shmi_rw_valid(uint32_t g) { return shmi_owner_valid(g) && shmi_rw_kind(g) != SHMI_kindReserved; }
/* Whether the death of the process that the gate g names needs a rollback. A process that only waits for readers has
 * written nothing, so its death needs none. */
SHMI_FN int shmi_rw_logged(struct shmi_rwmutex *m, uint32_t g) { return m->rollback && shmi_rw_taken(g) && shmi_rw_kind(g) != SHMI_GATE_CLOSED; }
SHMI_FN uint32_t shmi_rw_closed_by_us(struct shmi_rwmutex *m) { return shmi_make_owner(SHMI_GATE_CLOSED, m->a->self); }

/* Wakes all readers that sleep. Does not clear their announcement, because only a grant may do so. */
SHMI_FN void shmi_rw_wake_readers(struct shmi_rwmutex *m)
{
    shmi_wake_word_touch(&m->readers_wake_word);
    shmi_deliver_all(m->a, &m->readers_wake_word);
}

/* Changes the gate from the value g, which names a dead process. Returns 0 if the gate must stay until that process is
 * gone. */
SHMI_FN int shmi_rw_mark_owner_dead(struct shmi_rwmutex *m, uint32_t g)
{
    uint32_t next = g;
    if (shmi_rw_logged(m, g))
        return 0; /* see shmi_rw_roll_back */
    if (shmi_rw_taken(g)) {
        next = shmi_make_owner(SHMI_GATE_OWNER_DEAD, shmi_rw_who(g));
        if (shmi_rw_kind(g) == SHMI_GATE_CLOSED)
            next = 0; /* the process has written nothing */
        else if (shmi_rw_kind(g) == SHMI_GATE_HELD && m->release)
            next = shmi_gone(m->a, shmi_rw_who(g)) ? 0 : g;
    }
    if (next == g)
        return 0;
    if (!shmi_take_from32(m->a, shmi_rw_who(g), m->gate, g, next, shmi_rw_kind(g) == SHMI_GATE_HELD && next == 0))
        return 1;
    SHMSYNC_CRASHPOINT("rwmutex.owner_dead.marked");
    shmi_rw_wake_readers(m);
    return 1;
}
/* Whether the gate g stays closed because a dead process is not gone yet. */
SHMI_FN int shmi_rw_kept(struct shmi_rwmutex *m, uint32_t g)
{
    return shmi_rw_valid(g) && ((m->release && shmi_rw_taken(g) && shmi_rw_kind(g) == SHMI_GATE_HELD) || shmi_rw_logged(m, g)) &&
           !shmi_current(m->a, shmi_rw_who(g)) && !shmi_gone(m->a, shmi_rw_who(g));
}
/* Ends the transaction that a dead process has left, and opens the gate. The gate g names the dead process. Returns 0
 * if the dead process is not gone. This process has the writers' mutex. During the rollback the gate names this
 * process. If this process dies in the rollback, the next process that gets the mutex begins the rollback again. */
SHMI_FN int shmi_rw_roll_back_counted(struct shmi_rwmutex *m, uint32_t g)
{
    shmi_participant_id dead = shmi_rw_who(g);
    uint32_t recovering = shmi_make_owner(SHMI_GATE_RECOVERING, m->a->self);
    if (!shmi_gone(m->a, dead))
        return 0; /* a system call of the dead process may still write the bytes that the log restores */
    if (shmi_rw_kind(g) != SHMI_GATE_RECOVERING)
        shmi_log_disown(m->a, &m->log, m->gate, g, dead);
    if (!shmi_take_from32(m->a, dead, m->gate, g, recovering, 1))
        return 1;
    SHMSYNC_CRASHPOINT("rwmutex.rollback.taken");
    if (shmi_log_end_dead(m->a, &m->log) != 0) {
        shmi_st32(&m->w->died, dead);
        shmi_log_lose(&m->log);
        shmi_cas32(m->gate, recovering, SHMI_OWNER_NOT_RECOVERABLE);
    } else {
        shmi_cas32(m->gate, recovering, 0);
        SHMSYNC_CRASHPOINT("rwmutex.rollback.opened");
    }
    shmi_rw_wake_readers(m);
    return 1;
}
/* As shmi_rw_roll_back_counted, for a call that may not be within shmi_enter_for. A close of the arena rolls back, too,
 * and two threads must not restore old bytes at the same time. shmi_enter_for makes the close wait. If shmi_enter_for
 * refuses because the close has begun, the close rolls back, and the result is 0. */
SHMI_FN int shmi_rw_roll_back(struct shmi_rwmutex *m, uint32_t g)
{
    int done;
    if (m->mine == NULL) /* a reaper, which has no handle */
        return shmi_rw_roll_back_counted(m, g);
    if (shmi_enter_for(m, m->a, NULL) != 0)
        return 0;
    done = shmi_rw_roll_back_counted(m, g);
    shmi_exit_for(m, m->a);
    return done;
}

SHMI_FN shmi_participant_id shmi_rw_died(struct shmi_rwmutex *m) { return shmi_ld32(&m->w->died) & SHMI_NAME_MASK; }
/* Returns the error of a call if only a recovery can open the gate, which has the value g; otherwise 0. */
SHMI_FN int shmi_rw_trouble(struct shmi_rwmutex *m, const char *op, uint32_t g)
{
    if (!shmi_rw_valid(g))
        return shmi_fail(EPROTO, op, m->called, "gate %#x", g);
    if (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD)
        return shmi_fail_who(m->a, EOWNERDEAD, op, m->called, shmi_rw_who(g));
    if (g == SHMI_OWNER_NOT_RECOVERABLE)
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->called, shmi_rw_died(m));
    return 0;
}

SHMI_FN shmi_tuning shmi_rw_tuning(struct shmi_rwmutex *m, uint32_t *pays)
{
    shmi_tuning t;
    t.budget = &m->ww->spin;
    t.pays = pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return t;
}

/* Begins a walk of the slot records. The parameter first is the offset of the first record, in units of SHMI_blockMin.
 * The list changes only at its start, never after a record. */
SHMI_FN void shmi_rw_walk(struct shmi_rwmutex *m, shmi_record_walk *v, uint32_t first)
{
    shmi_walk_records(m->a, v, m->o.off, sizeof(shmi_rwmutex_record));
    v->next = (shmi_off)first * SHMI_blockMin;
}
SHMI_FN shmi_rw_reader shmi_rw_reader_in(struct shmi_rwmutex *m, const shmi_record_walk *v)
{
    shmi_rw_reader r;
    r.state = &((shmi_rwmutex_record *)shmi_ptr(m->a, v->b.off, sizeof(shmi_rwmutex_record), 8))->state;
    r.slot = v->slot;
    return r;
}
/* Adds the reader words of new slot records, up to the record at head, to the known reader words. Returns 0 if there is
 * no memory, or if the list is corrupt. */
SHMI_COLD int shmi_rw_learn(struct shmi_rwmutex *m, uint32_t head)
{
    shmi_rw_readers *k;
    shmi_record_walk v;
    uint32_t n = 0, old;
    int learned = 0;
    pthread_mutex_lock(&m->registry);
    for (shmi_rw_walk(m, &v, head); shmi_next_record(m->a, &v);)
        n++;
    k = m->known;
    if (!v.bad && (k == NULL || k->cap < n)) {
        shmi_rw_readers *more;
        uint32_t cap = 2;
        while (cap < 2 * n)
            cap *= 2; /* a power of two, so that there are few sizes: each size has spare memory of its own */
        more = (shmi_rw_readers *)shmi_new_thing(sizeof *more + cap * sizeof more->v[0]);
        if (more != NULL) {
            if (k != NULL)
                memcpy(more->v, k->v, k->n * sizeof more->v[0]);
            more->n = k != NULL ? k->n : 0;
            more->head = k != NULL ? k->head : 0;
            more->cap = cap;
            more->older = k;
            __atomic_store_n(&m->known, more, __ATOMIC_RELEASE);
        }
        k = more;
    }
    if (!v.bad && k != NULL) {
        old = k->n;
        learned = 1;
        if (n > old) { /* otherwise another thread has already added the new words */
            uint32_t place = n;
            for (shmi_rw_walk(m, &v, head); place > old && shmi_next_record(m->a, &v); place--)
                k->v[place - 1] = shmi_rw_reader_in(m, &v);
            learned = place == old; /* otherwise a peer has overwritten the list */
            if (learned) {
                shmi_st32(&k->n, n);
                shmi_st32(&k->head, head);
            }
        }
    }
    pthread_mutex_unlock(&m->registry);
    return learned;
}
/* Returns all reader words, and sets *n to their number. Returns NULL if there is no memory, or if the list is corrupt.
 * A writer that closes the gate and then calls this function misses no reader. A reader puts its record on the list,
 * then adds to its word, and then reads the gate. */
SHMI_FN const shmi_rw_reader *shmi_rw_known(struct shmi_rwmutex *m, uint32_t *n)
{
    uint32_t head = shmi_ld32(m->records);
    shmi_rw_readers *k = __atomic_load_n(&m->known, __ATOMIC_ACQUIRE);
    if (SHMI_UNLIKELY(k == NULL || shmi_ld32(&k->head) != head)) {
        if (!shmi_rw_learn(m, head))
            return NULL;
        k = __atomic_load_n(&m->known, __ATOMIC_ACQUIRE);
    }
    *n = shmi_ld32(&k->n);
    return k->v;
}
SHMI_FN int shmi_rw_reads(struct shmi_rwmutex *m, const shmi_rw_reader *r)
{
    uint64_t w = shmi_ld64(r->state);
    return shmi_rw_reading(w) != 0 && !shmi_dead(m->a, shmi_rw_name(w, r->slot));
}
/* Searches the reader words for a word of a participant that reads. The search begins at the place that the parameter
 * at gives. Returns the place of the first such word, and sets *found to the word. Returns 0 if no participant reads.
 * Place 1 has the word that was added first. If the list is corrupt, a reader word may be missing: then the result is
 * not 0, and found->state is NULL. */
SHMI_FN uint32_t shmi_rw_first_reader(struct shmi_rwmutex *m, uint32_t at, shmi_rw_reader *found)
{
    uint32_t n = 0, place, first = 0;
    const shmi_rw_reader *known = shmi_rw_known(m, &n);
    shmi_record_walk v;
    uint32_t head;
    if (SHMI_LIKELY(known != NULL)) {
        for (place = at; place <= n; place++)
            if (shmi_rw_reads(m, &known[place - 1])) {
                *found = known[place - 1];
                return place;
            }
        return 0;
    }
    head = shmi_ld32(m->records);
    for (shmi_rw_walk(m, &v, head); shmi_next_record(m->a, &v);)
        n++;
    place = n;
    for (shmi_rw_walk(m, &v, head); place >= at && shmi_next_record(m->a, &v); place--) {
        shmi_rw_reader r = shmi_rw_reader_in(m, &v);
        if (shmi_rw_reads(m, &r)) {
            *found = r;
            first = place;
        }
    }
    if (first != 0 || !v.bad)
        return first;
    found->state = NULL;
    return at > n ? at : n + 1;
}
/* Whether a participant reads. The answer is also yes if the list is corrupt. */
SHMI_FN int shmi_rw_read(struct shmi_rwmutex *m)
{
    shmi_rw_reader r;
    return shmi_rw_first_reader(m, 1, &r) != 0;
}
SHMI_FN int shmi_rw_corrupt_readers(struct shmi_rwmutex *m, const char *op) { return shmi_fail(EPROTO, op, m->called, "its list of slot records"); }

/* A reader of this process has left: wakes the writer if it waits for readers. The writer may have the lock already,
 * and may close the handle. */
SHMI_FN void shmi_rw_left(struct shmi_rwmutex *m)
{
    if (shmi_wake_word_announced(&m->writer_wake_word) && shmi_enter_late(m, m->a)) {
        shmi_tuning t = shmi_rw_tuning(m, &m->w->paysWriter);
        shmi_note_cpu(&t);
        shmi_wake_word_release(m->a, &m->writer_wake_word);
        shmi_exit_for(m, m->a);
    }
}
/* The slow part of an unlock by a reader. w is the reader word of this process, which does not count the reader any
 * more. */
SHMI_FN int shmi_rw_runlock_slow(struct shmi_rwmutex *m, uint64_t w)
{
    if (shmi_rw_reading(w) == SHMI_READER_MOST) {
        shmi_add64(m->mine, SHMI_READER_ONE);
        shmi_rw_left(m); /* for a moment the word counted readers that do not exist, and a writer may wait for them */
        return shmi_fail(EPERM, "rwmutex.rdunlock", m->called, "this process has no read hold");
    }
    SHMSYNC_CRASHPOINT("rwmutex.runlock.left");
    if (shmi_rw_reading(w) == 0)
        shmi_rw_left(m);
    return 0;
}
SHMI_FN void shmi_rw_take_back(struct shmi_rwmutex *m) { shmi_rw_runlock_slow(m, shmi_add64(m->mine, 0 - SHMI_READER_ONE) - SHMI_READER_ONE); }

/* The changes that a reader makes to the reader word of its process. */
enum { SHMI_rwRegister, SHMI_rwTry, SHMI_rwLeave };

/* Notes a grant, if the reader word w shows one. A grant lets in all waiting readers of the word. So if w counts no
 * waiting reader, and m->waiting is not 0, there was a grant. guarded by: registry */
SHMI_FN void shmi_rw_catch_up(struct shmi_rwmutex *m, uint64_t w)
{
    if (m->waiting != 0 && shmi_rw_waiting(w) == 0) {
        m->due += m->waiting;
        m->waiting = 0;
        m->epoch++;
    }
}
/* Notes a grant, if there was one, and then changes the reader word of this process. The parameter what says which
 * change. epoch is the epoch in which the reader has registered. If a grant has let the reader in since then, the
 * function does not change the word. guarded by: registry */
SHMI_FN uint64_t shmi_rw_change(struct shmi_rwmutex *m, int what, uint64_t epoch)
{
    for (;;) {
        uint64_t w = shmi_ld64(m->mine), to = w;
        shmi_rw_catch_up(m, w);
        if (what == SHMI_rwRegister)
            to = w - SHMI_READER_ONE + SHMI_READER_WAIT;
        else if (what == SHMI_rwTry && m->epoch == epoch)
            to = w - SHMI_READER_WAIT + SHMI_READER_ONE;
        else if (what == SHMI_rwLeave && m->epoch == epoch)
            to = w - SHMI_READER_WAIT;
        if (to == w || shmi_cas64(m->mine, w, to))
            return to;
    }
}
/* Whether a reader that registered in the given epoch was let in. If the result is 1, the caller must not ask again for
 * this reader. guarded by: registry */
SHMI_FN int shmi_rw_claim(struct shmi_rwmutex *m, uint64_t epoch)
{
    if (m->epoch == epoch)
        return 0;
    m->due--;
    return 1;
}
/* Makes this thread, which has tried to read and found the gate closed, a waiting reader. Returns the epoch. */
SHMI_FN uint64_t shmi_rw_register(struct shmi_rwmutex *m)
{
    uint64_t w, epoch;
    pthread_mutex_lock(&m->registry);
    w = shmi_rw_change(m, SHMI_rwRegister, 0);
    m->waiting++;
    epoch = m->epoch;
    pthread_mutex_unlock(&m->registry);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.registered");
    if (shmi_rw_reading(w) == 0)
        shmi_rw_left(m);
    return epoch;
}
SHMI_FN int shmi_rw_was_granted(struct shmi_rwmutex *m, uint64_t epoch, int claim)
{
    int in;
    pthread_mutex_lock(&m->registry);
    shmi_rw_catch_up(m, shmi_ld64(m->mine));
    in = claim ? shmi_rw_claim(m, epoch) : m->epoch != epoch;
    pthread_mutex_unlock(&m->registry);
    return in;
}
/* Called by a waiting reader that finds the gate open: lets this reader in. Returns 0 if the gate was closed again. In
 * this case the reader goes on waiting. */
SHMI_FN int shmi_rw_enter(struct shmi_rwmutex *m, uint64_t *epoch)
{
    pthread_mutex_lock(&m->registry);
    shmi_rw_change(m, SHMI_rwTry, *epoch);
    if (shmi_rw_claim(m, *epoch)) {
        pthread_mutex_unlock(&m->registry);
        return 1;
    }
    m->waiting--;
    pthread_mutex_unlock(&m->registry);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
    if (shmi_rw_gate(m) == 0)
        return 1;
    *epoch = shmi_rw_register(m);
    return 0;
}
/* Ends the wait of a reader. Returns 1 if a grant has let the reader in before, so that it has a hold. */
SHMI_FN int shmi_rw_give_up(struct shmi_rwmutex *m, uint64_t epoch)
{
    int in;
    SHMSYNC_CRASHPOINT("rwmutex.rlock.leaving");
    pthread_mutex_lock(&m->registry);
    shmi_rw_change(m, SHMI_rwLeave, epoch);
    in = shmi_rw_claim(m, epoch);
    if (!in)
        m->waiting--;
    pthread_mutex_unlock(&m->registry);
    return in;
}

SHMI_FN int shmi_rw_recover(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*repair)(void *), void *arg);
SHMI_FN int shmi_rw_try_resolve(struct shmi_rwmutex *m, uint32_t g);
SHMI_FN void shmi_rw_release_writers(struct shmi_rwmutex *m);

/* Makes up for wakes that a stopped or dead process has not sent to the readers of this process. */
SHMI_FN void shmi_rw_look_readers(struct shmi_rwmutex *m)
{
    uint32_t g = shmi_rw_gate(m), due;
    if (!shmi_rw_valid(g) || !shmi_rw_taken(g)) {
        shmi_rw_wake_readers(m);
    } else if (shmi_dead(m->a, shmi_rw_who(g))) {
        if (!shmi_rw_mark_owner_dead(m, g) && shmi_rw_logged(m, g) && shmi_gone(m->a, shmi_rw_who(g)))
            shmi_rw_wake_readers(m); /* a woken reader rolls back */
    } else if (shmi_rw_kind(g) == SHMI_GATE_CLOSED && !shmi_rw_read(m)) {
        /* No reader keeps the writer from going on. If the last check found the same, the writer may be stopped. It
         * has written nothing yet, so this process opens the gate. */
        if (shmi_xchg32(&m->stuck, g) == g && shmi_cas32(m->gate, g, 0)) {
            shmi_rw_wake_readers(m);
            shmi_wake_word_wake_all(m->a, &m->writer_wake_word);
        }
        return;
    } else {
        shmi_mutex_date_hold(&m->writers); /* a writer that holds the RWMutex holds the writers' mutex, too */
        /* The death watcher calls this function, too, and must not wait for a thread of this process. If another
         * thread has registry, the next check tries again. */
        if (pthread_mutex_trylock(&m->registry) == 0) {
            shmi_rw_catch_up(m, shmi_ld64(m->mine));
            due = m->due;
            pthread_mutex_unlock(&m->registry);
            if (due > 0)
                shmi_rw_wake_readers(m);
        }
    }
    shmi_st32(&m->stuck, 0);
}

SHMI_FN void shmi_rw_check_readers(void *arg)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)arg;
    if (shmi_check_due(&m->looked_readers))
        shmi_rw_look_readers(m);
}
/* Makes up for a wake that a stopped or dead process has not sent to the writer. Also wakes the writer if another
 * process has opened the gate of the writer: see shmi_rw_look_readers. Until the writer closes the gate again, new
 * readers can come in. */
SHMI_FN void shmi_rw_check_writer(void *arg)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)arg;
    if (shmi_check_due(&m->looked_writer) && (shmi_rw_gate(m) != shmi_rw_closed_by_us(m) || !shmi_rw_read(m)))
        shmi_wake_word_wake_all(m->a, &m->writer_wake_word);
}

SHMI_FN int shmi_rw_may_read(void *arg)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)arg;
    return shmi_rw_gate(m) == 0 || shmi_rw_waiting(shmi_ld64(m->mine)) == 0;
}

/* Counts a reader in the reader word of this process. If the gate is closed, returns 0: the reader has no hold, and is
 * counted all the same. */
SHMI_FAST int shmi_rw_try_read(struct shmi_rwmutex *m)
{
    shmi_add64(m->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
    return shmi_rw_gate(m) == 0;
}

/* Waits until a reader has a hold, after shmi_rw_try_read has found the gate closed. */
SHMI_COLD int shmi_rw_rlock_wait(struct shmi_rwmutex *m, int64_t abs)
{
    uint64_t epoch;
    int64_t ask = 0, since = 0;
    int err, spun = 0, late = 0;
    err = shmi_enter_for(m, m->a, "rwmutex.rdlock");
    if (err != 0) {
        shmi_rw_take_back(m);
        return err;
    }
    epoch = shmi_rw_register(m);
    for (;;) {
        uint32_t g, v;
        shmi_sleep_spec sleep_spec;
        int r;
        if (shmi_rw_was_granted(m, epoch, 1))
            break;
        g = shmi_rw_gate(m);
        if (g == 0) {
            if (shmi_rw_enter(m, &epoch))
                break;
            continue;
        }
        err = shmi_rw_trouble(m, "rwmutex.rdlock", g);
        if (err != 0) {
            if (shmi_rw_give_up(m, epoch)) {
                err = 0;
                break;
            }
            if (err != EOWNERDEAD || m->repair == NULL)
                break;
            err = shmi_rw_recover(m, "rwmutex.rdlock", abs, m->repair, m->repair_arg);
            if (err != 0)
                break;
            shmi_add64(m->mine, SHMI_READER_ONE);
            epoch = shmi_rw_register(m);
            continue;
        }
        if (shmi_dead(m->a, shmi_rw_who(g))) {
            if (shmi_rw_mark_owner_dead(m, g) || shmi_rw_try_resolve(m, g))
                continue;
            spun = 1;
        }
        if (late) { /* an open gate, and a lock that this call may repair, take precedence over the deadline */
            err = shmi_rw_give_up(m, epoch) ? 0 : ETIMEDOUT;
            break;
        }
        if (!spun) {
            shmi_tuning t = shmi_rw_tuning(m, &m->w->pays);
            spun = 1;
            if (!shmi_wake_word_announced(&m->readers_wake_word) && shmi_spin(&t, shmi_rw_may_read, m))
                continue;
        }
        v = shmi_wake_word_announce(&m->readers_wake_word);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.announced");
        g = shmi_rw_gate(m);
        if (!shmi_rw_valid(g) || !shmi_rw_taken(g) || (!shmi_current(m->a, shmi_rw_who(g)) && !shmi_rw_kept(m, g) && !shmi_rw_logged(m, g)) || shmi_rw_was_granted(m, epoch, 0))
            continue;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &m->looked_readers;
        sleep_spec.check = shmi_rw_check_readers;
        sleep_spec.check_arg = m;
        sleep_spec.word = m->readers_wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = m->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_rw_who(g);
        if (!shmi_current(m->a, sleep_spec.owner)) { /* no wake comes when a dead owner is gone, so the waiter asks from time to time whether the owner is gone */
            shmi_follow(m->a);
            sleep_spec.bounded = shmi_next_ask(&ask);
            sleep_spec.owner = 0;
        }
        r = shmi_sleep(m->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.woken");
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            shmi_rw_check_readers(m);
        } else if (r == SHMI_LATE) {
            late = 1;
        } else {
            if (shmi_rw_give_up(m, epoch))
                shmi_rw_take_back(m);
            err = shmi_fail(EBADF, "rwmutex.rdlock", m->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit_for(m, m->a);
    if (err == 0)
        SHMSYNC_CRASHPOINT("rwmutex.rlock.acquired");
    return err;
}

SHMI_COLD int shmi_rw_rlock_slow(struct shmi_rwmutex *m, int64_t abs)
{
    int err;
    SHMI_REPAIRING(m->repair, err, shmi_rw_rlock_wait(m, abs));
    return err;
}

SHMI_FN int shmi_rw_rlock(struct shmi_rwmutex *m, int64_t abs)
{
    int err = shmi_use(m->a, "rwmutex.rdlock");
    if (SHMI_UNLIKELY(err != 0))
        return err;
    return SHMI_LIKELY(shmi_rw_try_read(m)) ? 0 : shmi_rw_rlock_slow(m, abs);
}

/* Opens a gate that a dead process keeps closed. Returns 0 when the gate is open. EBUSY: the dead process is not gone.
 * This thread has the writers' mutex. */
SHMI_FN int shmi_rw_resolve_gate(struct shmi_rwmutex *m, const char *op)
{
    for (;;) {
        uint32_t g = shmi_rw_gate(m);
        if (g == 0) {
            return 0;
        } else if (shmi_rw_valid(g) && shmi_rw_taken(g)) {
            /* Only a process with the writers' mutex closes the gate. Now this thread has this mutex, so the process
             * that the gate names must be dead. */
            if (!shmi_dead(m->a, shmi_rw_who(g)))
                return shmi_fail(EPROTO, op, m->called, "gate %#x, without the writers' mutex", g);
            if (shmi_rw_logged(m, g) ? !shmi_rw_roll_back(m, g) : !shmi_rw_mark_owner_dead(m, g))
                return EBUSY;
        } else {
            return shmi_rw_trouble(m, op, g);
        }
    }
}
/* Closes the gate to readers. EBUSY: a dead process that is not gone keeps the gate closed. This thread has the
 * writers' mutex. */
SHMI_FN int shmi_rw_close_gate(struct shmi_rwmutex *m, const char *op)
{
    shmi_rw_reader r;
    uint32_t n;
    int err;
    if (SHMI_UNLIKELY(shmi_rw_known(m, &n) == NULL && shmi_rw_first_reader(m, 1, &r) != 0 && r.state == NULL))
        return shmi_rw_corrupt_readers(m, op);
    while ((err = shmi_rw_resolve_gate(m, op)) == 0)
        if (shmi_cas32(m->gate, 0, shmi_rw_closed_by_us(m))) {
            SHMSYNC_CRASHPOINT("rwmutex.lock.closed");
            break;
        }
    return err;
}

/* Calls f until its result is not EBUSY. The result EBUSY says that a dead process, which is not gone, keeps the gate
 * closed. Before the next call of f, this function waits until that process is gone. It waits without the writers'
 * mutex, so that other writers can go on even if this process is stopped. *held says whether this thread has the mutex.
 * After the result 0 it has the mutex. */
SHMI_FN int shmi_rw_until_reclaimed(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*f)(struct shmi_rwmutex *m, const char *op), int *held)
{
    int err;
    *held = 1;
    while ((err = f(m, op)) == EBUSY) {
        uint32_t g = shmi_rw_gate(m);
        if (!shmi_rw_kept(m, g))
            continue;
        shmi_rw_release_writers(m);
        *held = 0;
        err = shmi_await_gone32(m->a, shmi_rw_who(g), m->gate, g, op, m->called, abs);
        if (err == 0)
            err = shmi_mutex_lock(&m->writers, abs);
        if (err != 0)
            break;
        *held = 1;
    }
    return err;
}
/* For a reader: rolls back what a dead process has left, if that is possible without a wait. Otherwise returns 0. The
 * gate g names the dead process. A reader must not wait for the writers' mutex: the process that has this mutex may
 * roll back, and then keep the mutex for long, while readers could already read. */
SHMI_FN int shmi_rw_try_resolve(struct shmi_rwmutex *m, uint32_t g)
{
    int err;
    if (!shmi_rw_logged(m, g) || !shmi_gone(m->a, shmi_rw_who(g)) || shmi_mutex_trylock(&m->writers) != 0)
        return 0;
    err = shmi_rw_resolve_gate(m, "rwmutex.rdlock");
    shmi_rw_release_writers(m);
    return err == 0;
}
/* For a call that may not be within shmi_enter_for: opens the gate g of a dead writer, or marks it owner-dead. After
 * that the next holder may close the handle. So the call first keeps the handle open, and notes that in *counted.
 * Returns 0 if the gate is unchanged. */
SHMI_FN int shmi_rw_try_meet_dead(struct shmi_rwmutex *m, uint32_t g, int *counted)
{
    if (!*counted)
        *counted = shmi_enter_late(m, m->a);
    return *counted && (shmi_rw_mark_owner_dead(m, g) || shmi_rw_try_resolve(m, g));
}
SHMI_FN int shmi_rw_close_gate_wait(struct shmi_rwmutex *m, const char *op, int64_t abs, int *held)
{
    return shmi_rw_until_reclaimed(m, op, abs, shmi_rw_close_gate, held);
}

/* Turns the waiting readers that a reader word counts into readers. */
SHMI_FN void shmi_rw_grant(uint64_t *state)
{
    uint64_t w;
    do
        w = shmi_ld64(state);
    while (shmi_rw_waiting(w) != 0 && !shmi_cas64(state, w, shmi_rw_granted(w)));
}
/* Lets in all waiting readers. This thread has the writers' mutex, and has opened the gate. So no other thread grants
 * at the same time. */
SHMI_FN void shmi_rw_let_in(struct shmi_rwmutex *m)
{
    shmi_tuning t = shmi_rw_tuning(m, &m->w->pays);
    const shmi_rw_reader *known;
    shmi_record_walk v;
    uint32_t i, n = 0;
    if (!shmi_wake_word_announced(&m->readers_wake_word))
        return; /* a reader that announces itself later reads the gate afterwards */
    known = shmi_rw_known(m, &n);
    for (i = 0; i < n; i++)
        shmi_rw_grant(known[i].state);
    if (known == NULL)
        for (shmi_walk_records(m->a, &v, m->o.off, sizeof(shmi_rwmutex_record)); shmi_next_record(m->a, &v);)
            shmi_rw_grant(shmi_rw_reader_in(m, &v).state);
    SHMSYNC_CRASHPOINT("rwmutex.unlock.granted");
    shmi_note_cpu(&t);
    shmi_wake_word_wake_all(m->a, &m->readers_wake_word);
    SHMSYNC_CRASHPOINT("rwmutex.unlock.woken");
}
SHMI_FN void shmi_rw_reopen(struct shmi_rwmutex *m)
{
    if (shmi_cas32(m->gate, shmi_rw_closed_by_us(m), 0))
        shmi_rw_let_in(m);
}

SHMI_FN int shmi_rw_has_left(void *arg) { return shmi_rw_reading(shmi_ld64((uint64_t *)arg)) == 0; }

/* Waits until no reader is in, or another process has opened the gate. The function waits for the reader words one
 * after the other, in their order. The caller is within shmi_enter. */
SHMI_FN int shmi_rw_drained(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    shmi_rw_reader reader;
    uint32_t at = shmi_rw_first_reader(m, 1, &reader);
    int64_t since = 0;
    int err, spun = 0;
    if (at == 0)
        return 0;
    err = shmi_enter(m->a, op);
    if (err != 0)
        return err;
    for (;;) {
        uint32_t next = shmi_rw_first_reader(m, at, &reader), v;
        shmi_sleep_spec sleep_spec;
        uint64_t w;
        int r;
        if (next == 0 || shmi_rw_gate(m) != shmi_rw_closed_by_us(m))
            break;
        if (SHMI_UNLIKELY(reader.state == NULL)) {
            err = shmi_rw_corrupt_readers(m, op);
            break;
        }
        spun = spun && next == at;
        at = next;
        if (!spun) {
            shmi_tuning t = shmi_rw_tuning(m, &m->w->paysWriter);
            spun = 1;
            if (shmi_spin(&t, shmi_rw_has_left, reader.state))
                continue;
        }
        v = shmi_wake_word_announce(&m->writer_wake_word);
        SHMSYNC_CRASHPOINT("rwmutex.lock.announced");
        w = shmi_ld64(reader.state);
        if (shmi_rw_reading(w) == 0 || !shmi_current(m->a, shmi_rw_name(w, reader.slot)) || shmi_rw_gate(m) != shmi_rw_closed_by_us(m))
            continue;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &m->looked_writer;
        sleep_spec.check = shmi_rw_check_writer;
        sleep_spec.check_arg = m;
        sleep_spec.word = m->writer_wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = m->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_rw_name(w, reader.slot);
        if (sleep_spec.owner == m->a->self)
            sleep_spec.owner = 0;
        r = shmi_sleep(m->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("rwmutex.lock.woken");
        if (r == SHMI_LOOK) {
            shmi_rw_check_writer(m);
        } else if (r == SHMI_LATE) {
            err = shmi_rw_first_reader(m, at, &reader) == 0 ? 0 : ETIMEDOUT;
            break;
        } else if (r == SHMI_CLOSED) {
            err = shmi_fail(EBADF, op, m->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit(m->a);
    return err;
}

/* Waits until no reader is in, so that this process has the write hold. After an error the gate is open, and this
 * process still has the writers' mutex. */
SHMI_FN int shmi_rw_drain_gate(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    int err;
    do {
        err = shmi_rw_drained(m, op, abs);
        if (err == 0 && shmi_cas32(m->gate, shmi_rw_closed_by_us(m), m->a->self)) {
            SHMSYNC_CRASHPOINT("rwmutex.lock.acquired");
            return 0;
        }
        if (err == 0)
            err = shmi_rw_close_gate(m, op); /* while this process did not run for a time, another process has opened the gate */
    } while (err == 0);
    SHMSYNC_CRASHPOINT("rwmutex.lock.leaving");
    shmi_rw_reopen(m);
    return err;
}
/* As shmi_rw_drain_gate, but after an error this process does not have the writers' mutex any more. */
SHMI_FN int shmi_rw_drain(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    int err = shmi_rw_drain_gate(m, op, abs);
    if (err != 0)
        shmi_rw_release_writers(m);
    return err;
}
/* Gets the write hold if no reader is in. EBUSY: a reader is in, and the gate is open. This thread has the writers'
 * mutex. */
SHMI_FN int shmi_rw_take_drained(struct shmi_rwmutex *m, const char *op)
{
    int err = shmi_rw_close_gate(m, op);
    if (err != 0)
        return err;
    if (!shmi_rw_read(m) && shmi_cas32(m->gate, shmi_rw_closed_by_us(m), m->a->self)) {
        SHMSYNC_CRASHPOINT("rwmutex.lock.acquired");
        return 0;
    }
    shmi_rw_reopen(m);
    return EBUSY;
}

/* As shmi_rw_take_drained, but first checks whether a reader is in, and then leaves the gate open. So a thread that
 * tries again and again does not keep readers out. */
SHMI_FN int shmi_rw_try_drained(struct shmi_rwmutex *m, const char *op)
{
    shmi_rw_reader r;
    if (shmi_rw_first_reader(m, 1, &r) == 0)
        return shmi_rw_take_drained(m, op);
    return r.state != NULL ? EBUSY : shmi_rw_corrupt_readers(m, op);
}

/* The slow part of lock. The caller is within shmi_enter. */
SHMI_FN int shmi_rw_lock_slow(struct shmi_rwmutex *m, int64_t abs)
{
    int err, held;
    for (;;) {
        err = shmi_mutex_lock(&m->writers, abs);
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        err = shmi_rw_close_gate_wait(m, "rwmutex.lock", abs, &held);
        if (err == 0)
            return shmi_rw_drain(m, "rwmutex.lock", abs);
        if (held)
            shmi_rw_release_writers(m);
        if (err != EOWNERDEAD || m->repair == NULL)
            return err;
        err = shmi_rw_recover(m, "rwmutex.lock", abs, m->repair, m->repair_arg);
        if (err != 0)
            return err;
    }
}

/* All reader words. They are valid while *records is equal to head. */
typedef struct shmi_rw_all {
    const uint32_t *records;
    uint32_t head, n;
    const shmi_rw_reader *v;
} shmi_rw_all;
/* Sets *all to the reader words. Returns 0 if the handle does not know all reader words. */
SHMI_FAST int shmi_rw_all_of(struct shmi_rwmutex *m, shmi_rw_all *all)
{
    const shmi_rw_readers *k = __atomic_load_n(&m->known, __ATOMIC_ACQUIRE);
    all->records = m->records;
    all->head = shmi_ld32(all->records);
    if (SHMI_UNLIKELY(k == NULL) || SHMI_UNLIKELY(shmi_ld32(&k->head) != all->head))
        return 0;
    all->n = shmi_ld32(&k->n);
    all->v = k->v;
    return 1;
}
/* Whether no participant reads. Readers of a dead participant count until a reaper has taken them off. */
SHMI_FAST int shmi_rw_unread(const shmi_rw_all *all)
{
    uint32_t i;
    for (i = 0; i < all->n; i++)
        if (SHMI_UNLIKELY(shmi_rw_reading(shmi_ld64(all->v[i].state)) != 0))
            return 0;
    return 1;
}
/* How far shmi_rw_at_once has come. */
enum { SHMI_rwNothing, SHMI_rwQueued, SHMI_rwClosed, SHMI_rwWrites };
/* Takes m if a few loads show that it is free: the writers' mutex is free, the gate is open, and no participant reads.
 * If the function gets only the mutex, or the mutex and the gate, the caller gives them back. Most loads come before
 * the first compare-and-swap, because a later load has to wait until that instruction is complete. */
SHMI_FAST int shmi_rw_at_once(struct shmi_rwmutex *m)
{
    uint32_t name = shmi_mutex_name(&m->writers), closed = shmi_make_owner(SHMI_GATE_CLOSED, name), *gate = m->gate;
    shmi_rw_all all;
    if (SHMI_UNLIKELY(!shmi_rw_all_of(m, &all)) || SHMI_UNLIKELY(!shmi_rw_unread(&all)) || SHMI_UNLIKELY(!shmi_mutex_at_once_for(&m->writers, name)))
        return SHMI_rwNothing;
    SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
    if (SHMI_UNLIKELY(!shmi_cas32(gate, 0, closed)))
        return SHMI_rwQueued;
    SHMSYNC_CRASHPOINT("rwmutex.lock.closed");
    if (SHMI_UNLIKELY(shmi_ld32(all.records) != all.head) || SHMI_UNLIKELY(!shmi_rw_unread(&all)) || SHMI_UNLIKELY(!shmi_cas32(gate, closed, name)))
        return SHMI_rwClosed;
    SHMSYNC_CRASHPOINT("rwmutex.lock.acquired");
    return SHMI_rwWrites;
}
SHMI_FN void shmi_rw_undo(struct shmi_rwmutex *m, int got)
{
    if (got == SHMI_rwClosed)
        shmi_rw_reopen(m);
    if (got != SHMI_rwNothing)
        shmi_rw_release_writers(m);
}

/* Takes m, and waits if necessary. Only a call that has to wait calls shmi_enter_for, and stays within it until it has
 * given back everything. The call first releases the writers' mutex: if shmi_enter_for refuses, the arena may already
 * be unmapped, and the mutex with it. */
SHMI_FN int shmi_rw_lock(struct shmi_rwmutex *m, int64_t abs)
{
    int err, got = shmi_rw_at_once(m);
    if (got == SHMI_rwWrites)
        return 0;
    shmi_rw_undo(m, got);
    err = shmi_enter_for(m, m->a, "rwmutex.lock");
    if (err != 0)
        return err;
    SHMI_REPAIRING(m->repair, err, shmi_rw_lock_slow(m, abs));
    shmi_exit_for(m, m->a);
    return err;
}

/* Opens the gate that this process holds. After that the caller has to let waiting readers in. Returns 0 if this
 * process does not hold the gate. */
SHMI_FAST int shmi_rw_open_gate_at_once(struct shmi_rwmutex *m, uint32_t name)
{
    if (SHMI_UNLIKELY(name == 0) || SHMI_UNLIKELY(!shmi_cas32(m->gate, name, 0)))
        return 0;
    SHMSYNC_CRASHPOINT("rwmutex.unlock.opened");
    return 1;
}
/* Opens the gate that this process holds, lets waiting readers in, and keeps the writers' mutex. */
SHMI_FN int shmi_rw_open_gate(struct shmi_rwmutex *m, const char *op)
{
    uint32_t g;
    int err = shmi_use(m->a, op);
    if (err != 0)
        return err;
    if (!shmi_rw_open_gate_at_once(m, shmi_mutex_name(&m->writers))) {
        g = shmi_rw_gate(m);
        return shmi_fail(shmi_rw_valid(g) ? EPERM : EPROTO, op, m->called, "%sgate %#x", shmi_rw_valid(g) ? "this process has no write hold; " : "", g);
    }
    shmi_rw_let_in(m);
    return 0;
}
/* Ends a write hold: opens the gate, and releases the writers' mutex. */
SHMI_FN int shmi_rw_open(struct shmi_rwmutex *m, const char *op)
{
    int err = shmi_rw_open_gate(m, op);
    return err != 0 ? err : shmi_mutex_unlock(&m->writers);
}

SHMI_FN int shmi_rw_recover(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*repair)(void *), void *arg)
{
    uint32_t recovering = shmi_make_owner(SHMI_GATE_RECOVERING, m->a->self), g, now;
    int held, err = shmi_mutex_lock(&m->writers, abs);
    if (err != 0)
        return err;
    for (;;) {
        g = shmi_rw_gate(m);
        if (g == SHMI_OWNER_NOT_RECOVERABLE || (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD && shmi_rw_valid(g))) {
            if (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD && !shmi_gone(m->a, shmi_rw_who(g))) {
                /* Meanwhile other writers can get the mutex and report the death. They need not wait for this process.
                 */
                shmi_mutex_unlock(&m->writers);
                err = shmi_await_gone32(m->a, shmi_rw_who(g), m->gate, g, op, m->called, abs);
                if (err == 0)
                    err = shmi_mutex_lock(&m->writers, abs);
                if (err != 0)
                    return err;
                continue;
            }
            if (shmi_take_from32(m->a, shmi_rw_who(g), m->gate, g, recovering, 1))
                break;
            continue;
        }
        err = shmi_rw_close_gate_wait(m, op, abs, &held);
        if (err == 0) {
            err = shmi_rw_drain(m, op, abs);
            return err != 0 ? err : shmi_rw_open(m, op);
        }
        if (!held)
            return err;
        if (err != EOWNERDEAD && err != ENOTRECOVERABLE) {
            shmi_rw_release_writers(m);
            return err;
        }
    }
    SHMSYNC_CRASHPOINT("rwmutex.recover.taken");
    if (shmi_rw_who(g) != 0) /* only a process that holds the RWMutex stores in this word */
        shmi_st32(&m->w->died, shmi_rw_who(g));
    if (m->rollback)
        shmi_log_lose(&m->log);
    if (shmi_call_repair(repair, arg) != 0) {
        shmi_participant_id who = shmi_rw_died(m); /* read this while the gate still keeps other recoveries out */
        shmi_cas32(m->gate, recovering, SHMI_OWNER_NOT_RECOVERABLE);
        SHMSYNC_CRASHPOINT("rwmutex.recover.lost");
        shmi_rw_wake_readers(m);
        shmi_mutex_unlock(&m->writers);
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->called, who);
    }
    SHMSYNC_CRASHPOINT("rwmutex.recover.repaired");
    now = shmi_rw_gate(m);
    if (now == recovering) {
        shmi_st32(&m->w->died, 0);
        if (m->rollback)
            shmi_log_store(m->log.head, 0);
        if (shmi_cas32(m->gate, recovering, 0)) {
            SHMSYNC_CRASHPOINT("rwmutex.recover.opened");
            shmi_rw_let_in(m);
            return shmi_mutex_unlock(&m->writers);
        }
        now = shmi_rw_gate(m);
    }
    shmi_rw_release_writers(m);
    return shmi_fail(EPROTO, op, m->called, "its gate was overwritten during the repair, and is now %#x", now);
}

/* The state of this process's upgradable hold: none, held, or being upgraded. */
enum { SHMI_upNot, SHMI_upHeld, SHMI_upUpgrading };

SHMI_FN void shmi_rw_become_upgradable(struct shmi_rwmutex *m)
{
    shmi_st32(&m->upgradable, SHMI_upHeld);
    SHMSYNC_CRASHPOINT("rwmutex.upgradable.acquired");
}
/* The slow part of lock_upgradable. The caller is within shmi_enter. */
SHMI_FN int shmi_rw_lock_upgradable_slow(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    int err, held;
    for (;;) {
        err = shmi_mutex_lock(&m->writers, abs);
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        err = shmi_rw_until_reclaimed(m, op, abs, shmi_rw_resolve_gate, &held);
        if (err == 0) {
            shmi_rw_become_upgradable(m);
            return 0;
        }
        if (held)
            shmi_rw_release_writers(m);
        if (err != EOWNERDEAD || m->repair == NULL)
            return err;
        err = shmi_rw_recover(m, op, abs, m->repair, m->repair_arg);
        if (err != 0)
            return err;
    }
}
SHMI_FN int shmi_rw_lock_upgradable(struct shmi_rwmutex *m, int64_t abs)
{
    const char *op = "rwmutex.lock_upgradable";
    int err = shmi_enter_for(m, m->a, op); /* keeps the handle open until m->upgradable shows the hold: see shmi_rw_end */
    if (err != 0)
        return err;
    if (shmi_mutex_trylock(&m->writers) == 0) {
        SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        if (shmi_rw_gate(m) == 0) {
            shmi_rw_become_upgradable(m);
            shmi_exit_for(m, m->a);
            return 0;
        }
        shmi_rw_release_writers(m); /* as in lock */
    }
    SHMI_REPAIRING(m->repair, err, shmi_rw_lock_upgradable_slow(m, op, abs));
    shmi_exit_for(m, m->a);
    return err;
}
/* Ends the upgradable hold of this process. The parameter next is the new value of m->upgradable. EPERM: this process
 * has no upgradable hold. */
SHMI_FN int shmi_rw_end_upgradable(struct shmi_rwmutex *m, const char *op, uint32_t next)
{
    int err = shmi_use(m->a, op);
    if (err != 0)
        return err;
    if (!shmi_cas32(&m->upgradable, SHMI_upHeld, next))
        return shmi_fail(EPERM, op, m->called, "this process has no upgradable hold; gate %#x", shmi_rw_gate(m));
    return 0;
}
SHMI_FN int shmi_rw_upgrade(struct shmi_rwmutex *m, int64_t abs)
{
    const char *op = "rwmutex.upgrade";
    int err = shmi_enter_for(m, m->a, op);
    if (err != 0)
        return err;
    err = shmi_rw_end_upgradable(m, op, SHMI_upUpgrading);
    if (err == 0) {
        err = shmi_rw_close_gate(m, op);
        if (err == 0)
            err = shmi_rw_drain_gate(m, op, abs);
        shmi_st32(&m->upgradable, err == 0 ? SHMI_upNot : SHMI_upHeld);
    }
    shmi_exit_for(m, m->a);
    return err;
}

SHMI_FN int shmi_rw_repaired(void *arg)
{
    (void)arg;
    return 0;
}
/* Fills in the part of a handle that a reaper needs, too. */
SHMI_FN void shmi_rw_view(struct shmi_rwmutex *m, shmsync_arena *a, const shmi_object *o)
{
    memset(m, 0, sizeof *m);
    m->a = a;
    m->o = *o;
    m->called = o->name_len != 0 ? m->o.name : NULL;
    m->w = (shmi_rwmutex_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 8); /* each block for a body has at least this size */
    m->ww = (shmi_mutex_words *)(void *)m->w;
    m->gate = shmi_u32(a, o->off + SHMI_objOfKind);
    m->records = shmi_u32(a, o->off + SHMI_objRecords);
    m->release = (shmi_ld32(&m->w->policy) & 0xff) == SHMI_POLICY_RELEASE;
    if ((shmi_ld32(&m->w->policy) & 0xff) == SHMI_POLICY_ROLLBACK)
        shmi_log_of(a, o, sizeof(shmi_mutex_words), &m->log);
    m->rollback = m->log.head != NULL;
    m->readers_wake_word.word = &m->w->wakeReaders;
    m->readers_wake_word.poller = &m->w->pollerReaders;
    m->writer_wake_word.word = &m->w->wakeWriter;
    m->writer_wake_word.poller = &m->w->pollerWriter;
}
/* Checks that the body of the object has the size that its policy needs, and that the object has the options that the
 * caller asks for. */
SHMI_FN int shmi_rw_check(shmsync_arena *a, const shmi_object *o, int policy, uint64_t log_bytes)
{
    const char *op = "rwmutex.open";
    uint64_t at = offsetof(shmi_rwmutex_words, policy);
    uint32_t field = o->size < sizeof(shmi_rwmutex_words) ? 0 : shmi_ld32(shmi_u32(a, o->body + at)) & 0xff;
    if (field == SHMI_POLICY_ROLLBACK && o->size > sizeof(shmi_mutex_words))
        return shmi_check_lock(a, o, op, sizeof(shmi_mutex_words), at, policy, log_bytes);
    if (o->size != shmi_rw_bytes(a))
        return shmi_fail(EPROTO, op, shmi_called(o), "%llu bytes with policy %s", (unsigned long long)o->size, shmi_policy_text(field));
    if (policy != 0 && shmi_policy_field(policy) != field)
        return shmi_fail(EINVAL, op, shmi_called(o), "its policy is %s, asked for %s", shmi_policy_text(field), shmi_policy_text(shmi_policy_field(policy)));
    return 0;
}
/* Keeps the upgradable hold of a handle that is closed for the last time. The words in the arena do not show that the
 * hold is upgradable: at the start and the end of a write hold, a writer has the writers' mutex and an open gate, too.
 * So the data of the handle goes on a list in the memory of this process, where the next handle finds it. The caller
 * holds handles_of. */
SHMI_FN void shmi_rw_keep_upgradable(struct shmi_rwmutex *m)
{
    shmi_head *h = shmi_head_of(m);
    h->next = m->a->upgradable;
    m->a->upgradable = h;
}
/* Whether this process has an upgradable hold that it took through an earlier handle. Frees the data of that handle. */
SHMI_FN int shmi_rw_kept_upgradable(struct shmi_rwmutex *m)
{
    uint32_t owner = shmi_ld32(&m->ww->owner);
    shmi_head **p, *h;
    for (p = &m->a->upgradable; (h = *p) != NULL && shmi_ld64(&h->off) != m->o.off; p = &h->next) {
    }
    if (h == NULL)
        return 0;
    *p = h->next;
    shmi_free_thing(h + 1);
    /* A peer may have taken the hold away and deleted the object, and its bytes may belong to another object now. So
     * only the words in the arena can say whether the hold still exists. */
    return shmi_rw_gate(m) == 0 && shmi_owner_valid(owner) && shmi_owner_name(owner) == m->a->self && shmi_owner_held(owner);
}
SHMI_FN void shmi_rw_end(void *handle)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)handle;
    /* sends the wakes that other calls have left for the end of the handle: see shmi_enter_late */
    if (!shmi_unmapped(m->a) && shmi_wake_word_announced(&m->writer_wake_word))
        shmi_wake_word_release(m->a, &m->writer_wake_word);
    shmi_mutex_wake_owed(&m->writers);
    pthread_mutex_destroy(&m->registry);
    while (m->known != NULL) {
        shmi_rw_readers *older = m->known->older;
        shmi_free_thing(m->known); /* a call that is under way may still read this memory, so it is kept for later handles */
        m->known = older;
    }
    if (shmi_ld32(&m->upgradable) == SHMI_upHeld)
        shmi_rw_keep_upgradable(m);
    else
        shmi_free_thing(m);
}
SHMI_FN void *shmi_rw_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_rwmutex_options *opts = (const shmsync_rwmutex_options *)arg;
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)shmi_new_thing(sizeof *m);
    uint32_t gen = shmi_id_gen(a->self);
    shmi_off record;
    uint64_t w;
    if (m == NULL)
        return NULL;
    if (shmi_rw_check(a, o, 0, 0) != 0 || shmi_slot_record(a, o, sizeof(shmi_rwmutex_record), &record) != 0) {
        shmi_free_thing(m);
        return NULL;
    }
    shmi_rw_view(m, a, o);
    m->mine = &((shmi_rwmutex_record *)shmi_ptr(a, record, sizeof(shmi_rwmutex_record), 8))->state;
    if (opts != NULL) {
        m->repair = opts->repair;
        m->repair_arg = opts->repair_arg;
    }
    pthread_mutex_init(&m->registry, NULL);
    shmi_mutex_init(&m->writers, a, m->ww, o->off, m->called, 1);
    m->writers.rw = m;
    m->writers.repair = shmi_rw_repaired; /* the gate reports a death, so the mutex need not */
    /* Takes over the reader word of this slot. */
    for (w = shmi_ld64(m->mine); (w & SHMI_READER_GENERATION_MASK) != gen; w = shmi_ld64(m->mine))
        if (shmi_cas64(m->mine, w, gen)) {
            shmi_wake_word_release(a, &m->writer_wake_word); /* a writer may be waiting for readers of the predecessor */
            break;
        }
    if (shmi_rw_kept_upgradable(m))
        m->upgradable = SHMI_upHeld;
    shmi_built_ends_with(a, o->off, shmi_rw_end);
    return m;
}

SHMI_FN void shmi_rw_fill(unsigned char *body, const void *arg)
{
    shmi_rwmutex_words *w = (shmi_rwmutex_words *)(void *)body;
    const shmsync_rwmutex_options *opts = (const shmsync_rwmutex_options *)arg;
    shmi_mutex_words *writers = (shmi_mutex_words *)(void *)body;
    writers->policy = SHMI_POLICY_RELEASE;
    if (opts == NULL)
        return;
    w->policy = shmi_policy_field(opts->policy);
    writers->spin = shmi_spin_field(opts->spin_ns);
    if (w->policy == SHMI_POLICY_ROLLBACK)
        ((shmi_log_head *)(void *)(body + sizeof *writers))->size = (uint32_t)shmi_log_size(opts->log_bytes);
}
SHMI_FN int shmi_open_rwmutex(int existing, shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    SHMI_OPTIONS(shmsync_rwmutex_options, 48, "rwmutex.open", out->impl);
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    uint64_t log_bytes = opts != NULL ? opts->log_bytes : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    err = shmi_check_policy("rwmutex.open", name, policy, log_bytes);
    if (err != 0)
        return err;
    shmi_spec_of_kind(&spec, SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, name, shmi_rw_bytes(a));
    if (policy == SHMSYNC_POLICY_ROLLBACK)
        spec.size = sizeof(shmi_mutex_words) + SHMI_logHead + shmi_log_size(log_bytes);
    spec.any_size = 1; /* the size of the body says how long the log is */
    spec.init = shmi_rw_fill;
    spec.arg = opts;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_rw_build, opts, &created, &impl);
    out->impl = (struct shmi_rwmutex *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0) {
        err = shmi_rw_check(a, &out->impl->o, created ? 0 : policy, created ? 0 : log_bytes);
        if (err != 0) {
            shmi_unshare(a, out->impl->o.off, shmi_rw_end);
            out->impl = NULL;
        }
    }
    return err;
}
int shmsync_rwmutex_open(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_rwmutex(0, a, name, opts, out));
}
int shmsync_rwmutex_attach(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_rwmutex(1, a, name, opts, out));
}
int shmsync_rwmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_rwmutex *out)
{
    SHMI_BEGIN_AT(a, "rwmutex.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "rwmutex.open", SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, shmi_rw_bytes(a), shmi_rw_build, NULL, &impl);
    out->impl = (struct shmi_rwmutex *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_rwmutex_offset(const shmsync_rwmutex *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}
int shmsync_rwmutex_close(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_rw_end);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}
/* A call that succeeds at once writes nothing for shmsync_error, as for a mutex: see shmi_mutex_lock_called. */
SHMI_COLD int shmi_rw_lock_called(shmsync_rwmutex *m, struct shmi_rwmutex *x, int got)
{
    shmi_rw_undo(x, got);
    SHMI_OPENED_AS(m, "shmsync_rwmutex_lock");
    return SHMI_DONE_AS(shmi_rw_lock(m->impl, 0), "shmsync_rwmutex_lock");
}
int shmsync_rwmutex_lock(shmsync_rwmutex *m)
{
    struct shmi_rwmutex *x = m->impl;
    const uint64_t serial = m->serial;
    int got = SHMI_LIKELY(shmi_is_open(x, serial)) ? shmi_rw_at_once(x) : SHMI_rwNothing;
    return SHMI_LIKELY(got == SHMI_rwWrites) ? shmi_done(x, serial, 0, __func__) : shmi_rw_lock_called(m, x, got);
}
int shmsync_rwmutex_timedlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rw_lock(m->impl, ns));
}
int shmsync_rwmutex_trylock(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_mutex_trylock(&m->writers);
    if (err != 0)
        return SHMI_DONE(err);
    SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
    err = shmi_rw_try_drained(m, "rwmutex.trylock");
    if (err != 0)
        shmi_rw_release_writers(m);
    return SHMI_DONE(err);
}
SHMI_COLD int shmi_rw_unlock_called(shmsync_rwmutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_rwmutex_unlock");
    return SHMI_DONE_AS(shmi_rw_open(m->impl, "rwmutex.unlock"), "shmsync_rwmutex_unlock");
}
/* The slow part of an unlock that has already opened the gate. It is needed if readers wait, or if the mutex cannot be
 * unlocked at once. */
SHMI_COLD int shmi_rw_opened_called(struct shmi_rwmutex *x, uint64_t serial)
{
    SHMI_BEGIN();
    shmi_rw_let_in(x);
    return shmi_done(x, serial, shmi_mutex_unlock(&x->writers), "shmsync_rwmutex_unlock");
}
int shmsync_rwmutex_unlock(shmsync_rwmutex *m)
{
    struct shmi_rwmutex *x = m->impl;
    const uint64_t serial = m->serial;
    const uint32_t *own, *waiting;
    uint32_t name;
    if (SHMI_UNLIKELY(!shmi_is_open(x, serial)))
        return shmi_rw_unlock_called(m);
    name = shmi_mutex_name(&x->writers);
    own = x->writers.own;
    waiting = x->readers_wake_word.word;
    if (SHMI_UNLIKELY(!shmi_rw_open_gate_at_once(x, name)))
        return shmi_rw_unlock_called(m);
    if (SHMI_LIKELY((shmi_ld32(waiting) & 1) == 0) &&
        SHMI_LIKELY(shmi_mutex_unlock_at_once(&x->writers, name, __atomic_load_n(own, __ATOMIC_RELAXED))))
        return shmi_done(x, serial, 0, __func__);
    return shmi_rw_opened_called(x, serial);
}
SHMI_COLD int shmi_rw_rdlock_called(shmsync_rwmutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_rwmutex_rdlock");
    return SHMI_DONE_AS(shmi_rw_rlock(m->impl, 0), "shmsync_rwmutex_rdlock");
}
/* The slow part of an rdlock whose try found the gate closed. */
SHMI_COLD int shmi_rw_rdlock_slow_called(struct shmi_rwmutex *x, uint64_t serial)
{
    SHMI_BEGIN();
    return shmi_done(x, serial, shmi_rw_rlock_slow(x, 0), "shmsync_rwmutex_rdlock");
}
int shmsync_rwmutex_rdlock(shmsync_rwmutex *m)
{
    struct shmi_rwmutex *x = m->impl;
    const uint64_t serial = m->serial;
    if (SHMI_UNLIKELY(!shmi_is_open(x, serial)) || SHMI_UNLIKELY(shmi_mutex_name(&x->writers) == 0))
        return shmi_rw_rdlock_called(m);
    return SHMI_LIKELY(shmi_rw_try_read(x)) ? shmi_done(x, serial, 0, __func__) : shmi_rw_rdlock_slow_called(x, serial);
}
int shmsync_rwmutex_timedrdlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rw_rlock(m->impl, ns));
}
int shmsync_rwmutex_tryrdlock(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    shmsync_arena *a = m->a;
    int counted = 0, err = shmi_use(a, "rwmutex.tryrdlock");
    while (err == 0) {
        uint32_t g = shmi_rw_gate(m);
        if (g != 0) {
            err = shmi_rw_trouble(m, "rwmutex.tryrdlock", g);
            if (err == 0 && (!shmi_dead(a, shmi_rw_who(g)) || !shmi_rw_try_meet_dead(m, g, &counted)))
                err = EBUSY;
            continue;
        }
        shmi_add64(m->mine, SHMI_READER_ONE);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
        if (shmi_rw_gate(m) == 0)
            break;
        shmi_rw_take_back(m);
    }
    if (counted)
        shmi_exit_for(m, a);
    return SHMI_DONE(err);
}
/* Takes one reader off the reader word of this process, and returns the new word. */
SHMI_FAST uint64_t shmi_rw_leave(struct shmi_rwmutex *m) { return shmi_add64(m->mine, 0 - SHMI_READER_ONE) - SHMI_READER_ONE; }
/* Whether nothing remains to be done after a reader has left. w is the reader word after that. */
SHMI_FAST int shmi_rw_left_quietly(struct shmi_rwmutex *m, uint64_t w)
{
    return SHMI_LIKELY(shmi_rw_gate(m) == 0) && SHMI_LIKELY(shmi_rw_reading(w) != SHMI_READER_MOST);
}
SHMI_FN int shmi_rw_runlock(struct shmi_rwmutex *m)
{
    uint64_t w;
    int err = shmi_use(m->a, "rwmutex.rdunlock");
    if (SHMI_UNLIKELY(err != 0))
        return err;
    w = shmi_rw_leave(m);
    return shmi_rw_left_quietly(m, w) ? 0 : shmi_rw_runlock_slow(m, w);
}
SHMI_COLD int shmi_rw_rdunlock_called(shmsync_rwmutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_rwmutex_rdunlock");
    return SHMI_DONE_AS(shmi_rw_runlock(m->impl), "shmsync_rwmutex_rdunlock");
}
/* The slow part of an rdunlock. w is the reader word. */
SHMI_COLD int shmi_rw_rdunlock_slow_called(struct shmi_rwmutex *m, uint64_t serial, uint64_t w)
{
    SHMI_BEGIN();
    return shmi_done(m, serial, shmi_rw_runlock_slow(m, w), "shmsync_rwmutex_rdunlock");
}
int shmsync_rwmutex_rdunlock(shmsync_rwmutex *lock)
{
    struct shmi_rwmutex *m = lock->impl;
    const uint64_t serial = lock->serial;
    uint64_t w;
    if (SHMI_UNLIKELY(!shmi_is_open(m, serial)) || SHMI_UNLIKELY(shmi_mutex_name(&m->writers) == 0))
        return shmi_rw_rdunlock_called(lock);
    w = shmi_rw_leave(m);
    return shmi_rw_left_quietly(m, w) ? shmi_done(m, serial, 0, __func__) : shmi_rw_rdunlock_slow_called(m, serial, w);
}
int shmsync_rwmutex_downgrade(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    uint32_t g = shmi_rw_gate(m);
    int err = shmi_use(m->a, "rwmutex.downgrade");
    if (err != 0)
        return SHMI_DONE(err);
    if (g != m->a->self)
        return shmi_fail(shmi_rw_valid(g) ? EPERM : EPROTO, "rwmutex.downgrade", m->called, "%sgate %#x", shmi_rw_valid(g) ? "this process has no write hold; " : "", g);
    shmi_add64(m->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.downgrade.added");
    err = shmi_rw_open(m, "rwmutex.downgrade");
    if (err != 0)
        shmi_rw_take_back(m);
    return SHMI_DONE(err);
}
int shmsync_rwmutex_lock_upgradable(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_DONE(shmi_rw_lock_upgradable(m->impl, 0));
}
int shmsync_rwmutex_timed_lock_upgradable(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rw_lock_upgradable(m->impl, ns));
}
int shmsync_rwmutex_try_lock_upgradable(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_enter_for(m, m->a, "rwmutex.try_lock_upgradable"); /* keeps the handle open, as in lock_upgradable */
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_mutex_trylock(&m->writers);
    if (err == 0) {
        err = shmi_rw_resolve_gate(m, "rwmutex.try_lock_upgradable");
        if (err == 0)
            shmi_rw_become_upgradable(m);
        else
            shmi_rw_release_writers(m);
    }
    shmi_exit_for(m, m->a);
    return SHMI_DONE(err);
}
int shmsync_rwmutex_unlock_upgradable(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_rw_end_upgradable(m->impl, "rwmutex.unlock_upgradable", SHMI_upNot);
    return SHMI_DONE(err != 0 ? err : shmi_mutex_unlock(&m->impl->writers));
}
int shmsync_rwmutex_upgrade(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_DONE(shmi_rw_upgrade(m->impl, 0));
}
int shmsync_rwmutex_timed_upgrade(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_rw_upgrade(m->impl, ns));
}
int shmsync_rwmutex_try_upgrade(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    /* Keep the handle open, so that a close waits for this call. The next handle must find the gate as this call leaves
     * it. */
    int err = shmi_enter_for(m, m->a, "rwmutex.try_upgrade");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_rw_end_upgradable(m, "rwmutex.try_upgrade", SHMI_upUpgrading);
    if (err == 0) {
        err = shmi_rw_try_drained(m, "rwmutex.try_upgrade");
        shmi_st32(&m->upgradable, err == 0 ? SHMI_upNot : SHMI_upHeld);
    }
    shmi_exit_for(m, m->a);
    return SHMI_DONE(err);
}
int shmsync_rwmutex_downgrade_to_upgradable(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    /* Keep the handle open, because a reader that this call lets in may close it. */
    int err = shmi_enter_for(m, m->a, "rwmutex.downgrade_to_upgradable");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_rw_open_gate(m, "rwmutex.downgrade_to_upgradable");
    if (err == 0)
        shmi_rw_become_upgradable(m);
    shmi_exit_for(m, m->a);
    return SHMI_DONE(err);
}
int shmsync_rwmutex_downgrade_to_read(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_rw_end_upgradable(m->impl, "rwmutex.downgrade_to_read", SHMI_upNot);
    if (err != 0)
        return SHMI_DONE(err);
    /* Count the reader before the mutex is free, so that the next writer sees the reader. */
    shmi_add64(m->impl->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.upgradable.reader_added");
    return SHMI_DONE(shmi_mutex_unlock(&m->impl->writers));
}
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    struct shmi_rwmutex *x = m->impl;
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "rwmutex.recover", x->called, "without a repair");
    err = shmi_enter_for(x, x->a, "rwmutex.recover");
    if (err != 0)
        return SHMI_DONE(err);
    err = shmi_rw_recover(x, "rwmutex.recover", 0, repair, arg);
    shmi_exit_for(x, x->a);
    return SHMI_DONE(err);
}
int shmsync_rwmutex_state(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_use(m->impl->a, "rwmutex.state");
    return SHMI_DONE(err != 0 ? err : shmi_rw_trouble(m->impl, "rwmutex.state", shmi_rw_gate(m->impl)));
}

/* ---- Transactions of a writer ---- */

SHMI_COLD int shmi_rw_bad_log(struct shmi_rwmutex *m, const char *op)
{
    shmi_participant_id n = SHMI_LOG_ID(shmi_ld64(&m->log.head->state));
    if (n != 0)
        shmi_st32(&m->w->died, n);
    if (shmi_rw_gate(m) == m->a->self) {
        shmi_log_lose(&m->log);
        shmi_cas32(m->gate, m->a->self, SHMI_OWNER_NOT_RECOVERABLE);
        shmi_rw_wake_readers(m);
        shmi_mutex_unlock(&m->writers);
    }
    return shmi_fail(EPROTO, op, m->called, "its undo log is impossible; the rwmutex is not recoverable");
}
SHMI_FN int shmi_rw_writes(struct shmi_rwmutex *m, uint32_t *word)
{
    *word = __atomic_load_n(m->gate, __ATOMIC_RELAXED);
    return *word == m->a->self;
}
SHMI_FN int shmi_rw_begun(struct shmi_rwmutex *m, const char *op, int err, shmsync_tx *tx)
{
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (SHMI_UNLIKELY(shmi_tx_begin(m->a, &m->log, tx) != 0))
        return shmi_rw_bad_log(m, op);
    tx->mutex = &m->writers;
    return 0;
}
/* Gets the lock, with a wait if necessary, and begins a transaction. A transaction needs an open handle. */
SHMI_FN int shmi_rw_begin(struct shmi_rwmutex *m, const char *op, int64_t abs, shmsync_tx *tx)
{
    shmsync_arena *a = m->a;
    int err, got = shmi_rw_at_once(m);
    if (SHMI_LIKELY(got == SHMI_rwWrites))
        return shmi_rw_begun(m, op, 0, tx);
    shmi_rw_undo(m, got);
    err = shmi_enter_for(m, a, op);
    if (err != 0)
        return err;
    err = shmi_rw_begun(m, op, shmi_rw_lock_slow(m, abs), tx);
    if (err == 0 && (err = shmi_kept_closed(m, op)) != 0) {
        tx->mutex = NULL;
        shmi_rw_open(m, op);
    }
    shmi_exit_for(m, a);
    return err;
}
int shmsync_rwmutex_begin(shmsync_rwmutex *m, shmsync_tx *tx)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "rwmutex.begin", m->impl->called, tx);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_rw_begin(m->impl, "rwmutex.begin", 0, tx), memset(tx, 0, sizeof *tx));
}
int shmsync_rwmutex_trybegin(shmsync_rwmutex *m, shmsync_tx *tx)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "rwmutex.trybegin", m->impl->called, tx);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_rw_begun(m->impl, "rwmutex.trybegin", shmsync_rwmutex_trylock(m), tx), memset(tx, 0, sizeof *tx));
}
int shmsync_rwmutex_timedbegin(shmsync_rwmutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(m, memset(tx, 0, sizeof *tx));
    int64_t abs = 0;
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "rwmutex.timedbegin", m->impl->called, tx);
    if (err == 0)
        err = shmi_deadline(abs_monotonic, &abs);
    return SHMI_DONE_ELSE(err != 0 ? err : shmi_rw_begin(m->impl, "rwmutex.timedbegin", abs, tx), memset(tx, 0, sizeof *tx));
}

/* Whether the reap of the participant dead has to roll back for the process that the gate names. This process is dead
 * and gone: it is the participant dead, or a process that died earlier. The reaper of an earlier process could not roll
 * back if the participant dead had the writers' mutex. */
SHMI_FN int shmi_rw_undo_due(struct shmi_rwmutex *m, shmi_participant_id dead, uint32_t *g)
{
    *g = shmi_rw_gate(m);
    return shmi_rw_valid(*g) && shmi_rw_logged(m, *g) &&
           (shmi_reaps(m->a, dead, shmi_rw_who(*g)) || !shmi_current(m->a, shmi_rw_who(*g))) && shmi_gone(m->a, shmi_rw_who(*g));
}
/* Rolls back while shmi_rw_undo_due says so. This process has the writers' mutex. The number of rounds is bounded,
 * because a peer may rewrite the gate all the time. */
SHMI_FN void shmi_rw_roll_back_due(struct shmi_rwmutex *m, shmi_participant_id dead)
{
    uint32_t g;
    int tries;
    for (tries = 0; tries < SHMI_REAP_TRIES && shmi_rw_undo_due(m, dead, &g) && shmi_rw_roll_back(m, g); tries++) {
    }
}
/* Rolls back for the dead participant that the gate names, unless another process has the writers' mutex. In this case
 * the other process rolls back before it closes the gate, or when it releases the mutex: see shmi_rw_release_writers.
 * The reap of the dead participant does not end before the rollback. If this process dies in this function, its own
 * reaper frees the mutex. */
SHMI_FN void shmi_rw_reap_tx(struct shmi_rwmutex *m, shmi_participant_id dead)
{
    shmi_wait_list l = shmi_mutex_wait_list(m->ww);
    uint32_t g;
    int tries;
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        if (!shmi_rw_undo_due(m, dead, &g) || !shmi_cas32(&m->ww->owner, 0, m->a->self))
            return;
        SHMSYNC_CRASHPOINT("rwmutex.rollback.mutex");
        shmi_rw_roll_back_due(m, dead);
        shmi_cas32(&m->ww->owner, m->a->self, 0);
        shmi_wake_word_wake_one(m->a, &l);
        /* Check again: while this process had the mutex, another reaper may have found it held, and given up. */
    }
}
/* Releases the writers' mutex for a caller that may have left the gate with the name of a dead writer. A reaper that
 * has found the mutex held does not come back. So if the dead writer is gone, this function rolls back after the
 * release. If the dead writer is not gone yet, its reaper comes later, and finds the mutex free. */
SHMI_FN void shmi_rw_release_writers(struct shmi_rwmutex *m)
{
    shmi_mutex_unlock(&m->writers);
    /* If shmi_enter_for refuses, the arena is being closed. The close rolls back, and needs the mutex, so this call
     * must not take it again. */
    if (!m->rollback || shmi_rw_gate(m) == 0 || shmi_enter_for(m, m->a, NULL) != 0)
        return;
    shmi_rw_reap_tx(m, shmi_rw_who(shmi_rw_gate(m)));
    shmi_exit_for(m, m->a);
}
SHMI_FN int shmi_rw_kind_unfinished(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_rwmutex m;
    uint32_t g;
    if (o->size <= sizeof(shmi_mutex_words))
        return 0;
    shmi_rw_view(&m, a, o);
    g = shmi_rw_gate(&m);
    return shmi_rw_valid(g) && shmi_rw_logged(&m, g) && (shmi_reaps(a, dead, shmi_rw_who(g)) || shmi_log_names(a, &m.log, dead));
}
SHMI_FN int shmi_repair_rwmutex(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_rwmutex m;
    shmi_record_walk v;
    uint32_t slot = shmi_id_slot(dead), g;
    int tries;
    if (o->size < shmi_rw_bytes(a))
        return 0;
    shmi_rw_view(&m, a, o);
    for (shmi_walk_records(a, &v, o->off, sizeof(shmi_rwmutex_record)); shmi_next_record(a, &v);) {
        uint64_t *line = shmi_rw_reader_in(&m, &v).state, r;
        if (v.slot != slot)
            continue;
        for (tries = 0, r = shmi_ld64(line); tries < SHMI_REAP_TRIES && shmi_reaps(a, dead, shmi_rw_name(r, slot)) && r != shmi_rw_cleared(r);
             tries++, r = shmi_ld64(line))
            if (shmi_take_from64(a, shmi_rw_name(r, slot), line, r, shmi_rw_cleared(r), 0)) {
                shmi_wake_word_wake_all(a, &m.writer_wake_word);
                break;
            }
    }
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        g = shmi_rw_gate(&m);
        if (!shmi_rw_valid(g) || !shmi_rw_taken(g) || !shmi_reaps(a, dead, shmi_rw_who(g)) || !shmi_rw_mark_owner_dead(&m, g))
            break;
    }
    if (m.rollback && dead == a->self && shmi_owner_name(shmi_ld32(&m.ww->owner)) == dead) {
        /* A process that leaves is not dead yet. Without this rollback, the next writer would get the mutex, and find
         * the gate closed by a living process. */
        shmi_rw_roll_back_due(&m, dead);
    }
    shmi_mutex_repair_words(a, m.ww, dead, 1, NULL);
    if (m.rollback)
        shmi_rw_reap_tx(&m, dead);
    return 1;
}
SHMI_FN void shmi_wake_rwmutex(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_rwmutex m;
    if (o->size < shmi_rw_bytes(a))
        return;
    shmi_rw_view(&m, a, o);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&m.readers_wake_word))
        shmi_rw_wake_readers(&m);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&m.writer_wake_word))
        shmi_wake_word_wake_all(a, &m.writer_wake_word);
    shmi_mutex_wake_words(a, m.ww, owed);
}
