
/* ---- Barrier: prims/barrier*.go in C ---- */

struct shmi_barrier {
    struct shmi_eventcount e; /* first, because the look function gets a pointer to it */
    struct shmi_records r;
    shmi_barrier_words *w;
    void (*completion)(void *);
    void *completion_arg;
    const void *thread;       /* the thread of this process that runs the completion; see shmi_this_thread. Atomic */
    uint32_t deaths;          /* value of shmi_deaths when this process last looked for dead participants */
    uint32_t head;            /* the start of the list of slot records when this process read the list */
    shmi_barrier_slot *of[1]; /* of[i]: the slot record of slot i + 1; NULL: the slot has none, or this process does not know it */
};

/* The size of the body. In an arena that counts operations, the counts follow the words. */
SHMI_FN uint64_t shmi_barrier_bytes(shmsync_arena *a)
{
    return sizeof(shmi_barrier_words) + (a->geo.counted ? 64 : 0);
}

/* Indices of the words that a record changes. */
enum {
    SHMI_barrierPhase = 1,
    SHMI_barrierEra,
    SHMI_barrierPending,
    SHMI_barrierExpected,
    SHMI_barrierCompleter,
    SHMI_barrierBrokenWord,
    SHMI_barrierLost,
    SHMI_barrierSkipped,
    SHMI_barrierReset,
    SHMI_barrierResetEra,
    SHMI_barrierFirstShare = 16,
    SHMI_barrierShareWords = 8,
    SHMI_barrierBreaks = 32
};
#define SHMI_BARRIER_MAX UINT64_C(0x7fffffff)
#define SHMI_BARRIER_BROKEN (UINT32_C(1) << 29)
#define SHMI_BARRIER_RECORDED (UINT64_C(1) << 34)
#define SHMI_BARRIER_REMEMBERED (UINT64_C(1) << 33) /* after this number of further phases, the record of a phase is lost */

/* ---- The rules; see prims/barrier_word.go ---- */

typedef struct shmi_barrier_state {
    uint64_t phase, reset, pending, expected, lost, skipped;
    shmi_participant_id completer;
    uint32_t broken;
} shmi_barrier_state;
typedef struct shmi_barrier_share {
    shmi_participant_id name, gone;
    uint64_t phase, parties, left, goneIn;
} shmi_barrier_share;

SHMI_FN int shmi_barrier_any(const shmi_barrier_state *s) { return (s->broken & SHMI_BARRIER_BROKEN) != 0; }
SHMI_FN int shmi_barrier_broken(const shmi_barrier_state *s) { return shmi_barrier_any(s) && (s->broken >> 30 & 1) == (s->phase & 1); }
/* The sequence of shmi_barrier_words.events in the state s. Waiters sleep until this sequence changes. */
SHMI_FN uint32_t shmi_barrier_sequence(const shmi_barrier_state *s) { return (uint32_t)(s->phase << 1) + (shmi_barrier_broken(s) ? 1 : 0); }

/* Returns the number of parties of a share in this phase. Sets *left to how many of these parties have not arrived yet.
 */
SHMI_FN uint64_t shmi_barrier_in(const shmi_barrier_state *s, const shmi_barrier_share *h, uint64_t *left)
{
    uint64_t ago = s->phase - h->phase;
    *left = shmi_min(h->left, h->parties);
    if (ago == 0)
        return h->parties;
    if (ago <= s->skipped)
        return *left = h->parties;
    if (ago == s->skipped + 1)
        return *left = h->parties - *left; /* the parties that had not arrived now belong to processes that arrived in their place */
    return *left = 0;
}
/* Stores in a share its number of parties in this phase, and how many of them have not arrived yet. */
SHMI_FN void shmi_barrier_put(const shmi_barrier_state *s, shmi_barrier_share *h, uint64_t parties, uint64_t left)
{
    h->phase = s->phase;
    h->parties = shmi_min(parties, SHMI_BARRIER_MAX);
    h->left = shmi_min(shmi_min(left, parties), SHMI_BARRIER_MAX);
}
/* Marks the given phase, which is this one or the next, as broken by the death of the participant dead. All later
 * phases are broken, too. */
SHMI_FN void shmi_barrier_break_by(shmi_barrier_state *s, uint64_t phase, shmi_participant_id dead)
{
    if (!shmi_barrier_any(s) || (phase == s->phase && !shmi_barrier_broken(s)))
        s->broken = dead | SHMI_BARRIER_BROKEN | (uint32_t)(phase & 1) << 30;
}
/* Whether all arrivals of this phase have come. Even then, a share may have parties that have not arrived: other
 * processes have arrived in their place, and these parties now belong to those processes. */
SHMI_FN int shmi_barrier_full(const shmi_barrier_state *s) { return s->completer != 0 || (shmi_barrier_broken(s) && s->pending == 0 && s->expected > 0); }
/* Breaks a phase because the participant of a share is dead. If all parties of the share have arrived in this phase,
 * breaks the next phase; otherwise breaks this phase. The parties of the share are lost. */
SHMI_FN void shmi_barrier_lose(shmi_barrier_state *s, shmi_barrier_share *h)
{
    uint64_t left, parties = shmi_barrier_in(s, h, &left), phase = s->phase;
    if (shmi_barrier_full(s)) {
        parties -= left;
        left = 0;
    }
    h->parties = h->left = 0;
    if (parties == 0)
        return; /* the share is void, or its parties belong to other processes now */
    if (left == 0)
        phase++;
    shmi_barrier_break_by(s, phase, h->name);
    s->lost = shmi_min(s->lost + parties, UINT32_MAX);
    h->gone = h->name;
    h->goneIn = (uint32_t)s->reset;
}
/* Gives the share of a slot to the participant me. If the share belonged to a predecessor, which is dead, the parties
 * of the share are lost. */
SHMI_FN void shmi_barrier_take(shmi_barrier_state *s, shmi_barrier_share *h, shmi_participant_id me)
{
    if (h->name == me)
        return;
    shmi_barrier_lose(s, h);
    h->name = me;
    shmi_barrier_put(s, h, 0, 0);
}
/* Ends this phase, which is not broken, and begins the next phase. */
SHMI_FN void shmi_barrier_over(shmi_barrier_state *s)
{
    s->phase++;
    s->pending = s->expected;
    s->skipped = 0;
    s->completer = 0;
}
/* Counts n arrivals, and removes as many parties as drop says. This phase still expects n arrivals or more. */
SHMI_FN void shmi_barrier_count(shmi_barrier_state *s, shmi_barrier_share *h, uint64_t n, uint64_t drop, shmi_participant_id completer)
{
    uint64_t left, parties = shmi_barrier_in(s, h, &left), own = shmi_min(n, left);
    parties += n - own;
    drop = shmi_min(drop, s->expected);
    s->expected -= drop;
    shmi_barrier_put(s, h, parties - shmi_min(drop, parties), left - own);
    s->pending -= n;
    if (s->pending > 0)
        return;
    if (completer == 0)
        shmi_barrier_over(s);
    else
        s->completer = completer;
}
/* Removes n parties at a broken Barrier. */
SHMI_FN void shmi_barrier_drop(shmi_barrier_state *s, shmi_barrier_share *h, uint64_t n)
{
    uint64_t left, parties = shmi_barrier_in(s, h, &left);
    parties -= shmi_min(n, parties);
    s->expected -= shmi_min(n, s->expected);
    shmi_barrier_put(s, h, parties, shmi_min(parties, left));
}
/* Ends a broken phase, and begins a phase with the given number of parties. If parties is 0, the new phase has all
 * expected parties that are not lost. */
SHMI_FN void shmi_barrier_next(shmi_barrier_state *s, uint64_t parties)
{
    if (parties == 0)
        parties = s->expected - shmi_min(s->lost, s->expected);
    if (parties == 0)
        parties = 1; /* the caller counts as one party at least */
    s->skipped = shmi_barrier_full(s) ? 0 : shmi_min(s->skipped + 1, UINT32_MAX);
    s->phase++;
    s->reset = s->phase;
    s->pending = s->expected = parties;
    s->completer = 0;
    s->broken = 0;
    s->lost = 0;
}
/* What the Barrier keeps about this phase, which is broken. */
SHMI_FN uint64_t shmi_barrier_remembered(const shmi_barrier_state *s)
{
    return (s->broken & SHMI_NAME_MASK) | shmi_min(s->lost, 31) << 29 | SHMI_BARRIER_RECORDED | s->phase >> 5 << 35;
}
/* Whether a wait for the end of phase p is over. If it is, *end is its result, 0 or EOWNERDEAD. With EOWNERDEAD, *dead
 * is the participant that died. *dead is 0 if the Barrier has no record of phase p any more. r is the record in the
 * place for phase p, which the caller has read after the state. */
SHMI_FN int shmi_barrier_verdict(const shmi_barrier_state *s, uint64_t p, uint64_t r, int *end, shmi_participant_id *dead)
{
    uint32_t ahead = ((uint32_t)(r >> 35) - (uint32_t)(p >> 5)) << 3; /* 29 bits: how many laps the record is ahead of p */
    *end = 0;
    *dead = 0;
    if (s->phase <= p) {
        if (!shmi_barrier_broken(s))
            return 0;
        *end = EOWNERDEAD;
        *dead = s->broken & SHMI_NAME_MASK;
    } else {
        if (p >= s->reset)
            return 1;
        if (s->phase - p >= SHMI_BARRIER_REMEMBERED || ((r & SHMI_BARRIER_RECORDED) != 0 && ahead != 0 && ahead < UINT32_C(1) << 31)) {
            *end = EOWNERDEAD;
            return 1;
        }
        if ((r & SHMI_BARRIER_RECORDED) == 0 || ahead != 0)
            return 1;
        *end = EOWNERDEAD;
        *dead = (shmi_participant_id)(r & SHMI_NAME_MASK);
    }
    if (*dead == 0)
        *dead = 1; /* no ID, because a peer has overwritten the record; the phase is broken all the same */
    return 1;
}

/* ---- The words; see prims/barrier_log.go ---- */

/* The slot record of a slot; NULL if it has none. */
SHMI_FN shmi_barrier_slot *shmi_barrier_slot_of(struct shmi_barrier *x, uint32_t slot)
{
    shmsync_arena *a = x->e.a;
    uint32_t head = shmi_ld32(shmi_u32(a, x->e.o.off + SHMI_objRecords));
    if (slot < 1 || slot > a->geo.slots)
        return NULL;
    if (__atomic_load_n(&x->head, __ATOMIC_ACQUIRE) != head) {
        shmi_record_walk v;
        for (shmi_walk_records(a, &v, x->e.o.off, sizeof(shmi_barrier_slot)); shmi_next_record(a, &v);)
            /* A known record stays known, even if a peer has overwritten the list. */
            if (__atomic_load_n(&x->of[v.slot - 1], __ATOMIC_RELAXED) == NULL)
                __atomic_store_n(&x->of[v.slot - 1], (shmi_barrier_slot *)shmi_ptr(a, v.b.off, sizeof(shmi_barrier_slot), 8), __ATOMIC_RELEASE);
        __atomic_store_n(&x->head, head, __ATOMIC_RELEASE);
    }
    return __atomic_load_n(&x->of[slot - 1], __ATOMIC_ACQUIRE);
}
SHMI_FN struct shmi_barrier *shmi_barrier_of(struct shmi_records *r) { return (struct shmi_barrier *)(void *)((unsigned char *)r - offsetof(struct shmi_barrier, r)); }
SHMI_FN uint64_t *shmi_barrier_record(struct shmi_records *r, uint32_t slot, uint32_t *n)
{
    shmi_barrier_slot *s = shmi_barrier_slot_of(shmi_barrier_of(r), slot);
    *n = SHMI_recordEntries;
    return s == NULL ? NULL : &s->head;
}
/* Finds a tagged word by its index; NULL if there is none. */
SHMI_FN uint64_t *shmi_barrier_tagged(struct shmi_records *r, uint32_t index)
{
    struct shmi_barrier *x = shmi_barrier_of(r);
    shmi_barrier_slot *s;
    if (index >= SHMI_barrierPhase && index <= SHMI_barrierBrokenWord)
        return &x->w->phase + (index - SHMI_barrierPhase);
    if (index >= SHMI_barrierLost && index <= SHMI_barrierResetEra)
        return &x->w->lost + (index - SHMI_barrierLost);
    if (index < SHMI_barrierFirstShare || (index - SHMI_barrierFirstShare) % SHMI_barrierShareWords == 7)
        return NULL;
    s = shmi_barrier_slot_of(x, (index - SHMI_barrierFirstShare) / SHMI_barrierShareWords + 1);
    return s == NULL ? NULL : &s->name + (index - SHMI_barrierFirstShare) % SHMI_barrierShareWords;
}
SHMI_FN int shmi_barrier_spoilt(struct shmi_records *r, const char *how) { return shmi_fail(EPROTO, "barrier.wait", shmi_called(&shmi_barrier_of(r)->e.o), "%s", how); }

/* Reads the state for the commit word c. If *ok is 0, the commit word has changed, and parts of the state may belong to
 * later commit words. */
SHMI_FN int shmi_barrier_at(struct shmi_barrier *x, uint64_t c, shmi_barrier_state *s, int *ok)
{
    shmi_barrier_words *w = x->w;
    int err = shmi_records_complete(&x->r, c);
    if (err != 0)
        return err;
    s->phase = shmi_value_of(&w->era) << 32 | shmi_value_of(&w->phase);
    s->reset = shmi_value_of(&w->resetEra) << 32 | shmi_value_of(&w->reset);
    s->pending = shmi_value_of(&w->pending);
    s->expected = shmi_value_of(&w->expected);
    s->lost = shmi_value_of(&w->lost);
    s->skipped = shmi_value_of(&w->skipped);
    s->completer = (shmi_participant_id)(shmi_value_of(&w->completer) & SHMI_NAME_MASK);
    s->broken = (uint32_t)shmi_value_of(&w->broken);
    *ok = shmi_ld64(&w->commit) == c;
    return 0;
}
SHMI_FN void shmi_barrier_share_of(shmi_barrier_slot *s, shmi_barrier_share *h)
{
    h->name = (shmi_participant_id)(shmi_value_of(&s->name) & SHMI_NAME_MASK);
    h->phase = shmi_value_of(&s->era) << 32 | shmi_value_of(&s->phase);
    h->parties = shmi_value_of(&s->parties);
    h->left = shmi_value_of(&s->left);
    h->gone = (shmi_participant_id)(shmi_value_of(&s->gone) & SHMI_NAME_MASK);
    h->goneIn = shmi_value_of(&s->goneIn);
}
SHMI_FN int shmi_barrier_read(struct shmi_barrier *x, shmi_barrier_state *s)
{
    int ok = 0, err = 0;
    while (err == 0 && !ok) /* each round follows a change by another call */
        err = shmi_barrier_at(x, shmi_ld64(&x->w->commit), s, &ok);
    return err;
}
SHMI_FN void shmi_barrier_differ(shmi_record_change *ch, const shmi_barrier_state *s, const shmi_barrier_state *to)
{
    shmi_record_differ(ch, SHMI_barrierPhase, s->phase, to->phase);
    shmi_record_differ(ch, SHMI_barrierEra, s->phase >> 32, to->phase >> 32);
    shmi_record_differ(ch, SHMI_barrierPending, s->pending, to->pending);
    shmi_record_differ(ch, SHMI_barrierExpected, s->expected, to->expected);
    shmi_record_differ(ch, SHMI_barrierCompleter, s->completer, to->completer);
    shmi_record_differ(ch, SHMI_barrierBrokenWord, s->broken, to->broken);
    shmi_record_differ(ch, SHMI_barrierLost, s->lost, to->lost);
    shmi_record_differ(ch, SHMI_barrierSkipped, s->skipped, to->skipped);
    shmi_record_differ(ch, SHMI_barrierReset, s->reset, to->reset);
    shmi_record_differ(ch, SHMI_barrierResetEra, s->reset >> 32, to->reset >> 32);
}
SHMI_FN void shmi_barrier_differ_share(shmi_record_change *ch, uint32_t slot, const shmi_barrier_share *h, const shmi_barrier_share *to)
{
    uint32_t at = SHMI_barrierFirstShare + (slot - 1) * SHMI_barrierShareWords;
    shmi_record_differ(ch, at, h->name, to->name);
    shmi_record_differ(ch, at + 1, h->phase, to->phase);
    shmi_record_differ(ch, at + 2, h->phase >> 32, to->phase >> 32);
    shmi_record_differ(ch, at + 3, h->parties, to->parties);
    shmi_record_differ(ch, at + 4, h->left, to->left);
    shmi_record_differ(ch, at + 5, h->gone, to->gone);
    shmi_record_differ(ch, at + 6, h->goneIn, to->goneIn);
}

/* A rule changes the state, and the share of a slot. The library may call a rule several times before the change
 * succeeds. A rule must not wait. */
typedef void shmi_barrier_rule(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg);
/* Applies a rule, and commits the change. *was is the state before, and *is the state after. */
SHMI_FN int shmi_barrier_change(struct shmi_barrier *x, uint32_t slot, shmi_barrier_rule *rule, const uint64_t *arg, shmi_barrier_state *was, shmi_barrier_state *is)
{
    shmsync_arena *a = x->e.a;
    int ok = 0, err = 0;
    memset(was, 0, sizeof *was);
    *is = *was;
    pthread_mutex_lock(&a->counter_lock);
    while (err == 0 && !ok) { /* each round follows a change by another call */
        uint64_t c = shmi_ld64(&x->w->commit);
        shmi_barrier_slot *record;
        shmi_barrier_share had, has;
        shmi_record_change ch;
        err = shmi_barrier_at(x, c, was, &ok);
        if (err != 0)
            break;
        record = shmi_barrier_slot_of(x, slot);
        if (record == NULL) {
            err = shmi_barrier_spoilt(&x->r, "a slot has no record");
            break;
        }
        shmi_barrier_share_of(record, &had);
        ok = ok && shmi_ld64(&x->w->commit) == c;
        if (!ok)
            continue;
        *is = *was;
        has = had;
        rule(x, is, &has, arg);
        ch.n = 0;
        shmi_barrier_differ(&ch, was, is);
        shmi_barrier_differ_share(&ch, slot, &had, &has);
        if (ch.n != 0)
            err = shmi_records_commit(&x->r, a->my_slot, c, &ch, &ok);
    }
    pthread_mutex_unlock(&a->counter_lock);
    return err;
}

/* Makes the sequence of w->events agree with the state, and wakes the waiters if the sequence changes. Reads the state
 * after w->events, so the state is not older than the sequence. */
SHMI_FN int shmi_barrier_tell(struct shmi_barrier *x)
{
    for (;;) {
        shmi_barrier_state s;
        uint64_t e = shmi_eventcount_load(&x->e);
        int err = shmi_barrier_read(x, &s);
        if (err != 0 || (uint32_t)e == shmi_barrier_sequence(&s))
            return err;
        shmi_eventcount_note_cpu(&x->e, e);
        if (!shmi_cas64(&x->w->events, e, shmi_barrier_sequence(&s)))
            continue;
        if ((e & SHMI_EVENTCOUNT_ANNOUNCED) != 0) {
            SHMSYNC_CRASHPOINT("barrier.tell.before_wake");
            shmi_eventcount_wake_all(&x->e);
        }
        return 0;
    }
}

/* Calls shmi_barrier_tell, unless w->events already has the sequence of s. The caller has just read s. */
SHMI_FN int shmi_barrier_tell_of(struct shmi_barrier *x, const shmi_barrier_state *s)
{
    return (uint32_t)shmi_eventcount_load(&x->e) == shmi_barrier_sequence(s) ? 0 : shmi_barrier_tell(x);
}

SHMI_FN int shmi_barrier_absent(struct shmi_barrier *x, shmi_participant_id n, uint64_t without) { return !shmi_current(x->e.a, n) || n == without; }
SHMI_FN void shmi_barrier_without_completer(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg)
{
    (void)h;
    if (s->completer == 0 || !shmi_barrier_absent(x, s->completer, *arg))
        return;
    shmi_barrier_break_by(s, s->phase, s->completer);
    s->completer = 0;
}
SHMI_FN void shmi_barrier_without_share(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg)
{
    if (h->name != 0 && shmi_barrier_absent(x, h->name, *arg))
        shmi_barrier_lose(s, h);
}
/* Breaks the phases that dead participants leave incomplete. The parameter without is a participant that is leaving,
 * which counts as dead, or 0. A process without a slot record cannot make this change, so the waiters or the next call
 * make it. */
SHMI_FN void shmi_barrier_reap(struct shmi_barrier *x, shmi_participant_id without)
{
    shmsync_arena *a = x->e.a;
    uint32_t deaths = shmi_deaths(a), slot;
    uint64_t arg = without;
    shmi_barrier_state s, is;
    int lost = 0;
    if (shmi_barrier_slot_of(x, a->my_slot) == NULL || shmi_barrier_read(x, &s) != 0)
        return;
    if (s.completer != 0 && shmi_barrier_absent(x, s.completer, without)) {
        shmi_barrier_change(x, a->my_slot, shmi_barrier_without_completer, &arg, &s, &is);
        lost = s.broken != is.broken;
    }
    for (slot = 1; slot <= a->geo.slots; slot++) {
        shmi_barrier_slot *r = shmi_barrier_slot_of(x, slot);
        shmi_barrier_share h;
        if (r == NULL)
            continue;
        shmi_barrier_share_of(r, &h);
        if (h.parties == 0 || h.name == 0 || !shmi_barrier_absent(x, h.name, without))
            continue;
        if (shmi_barrier_change(x, slot, shmi_barrier_without_share, &arg, &s, &is) != 0)
            return;
        lost |= s.lost != is.lost;
    }
    __atomic_store_n(&x->deaths, deaths, __ATOMIC_SEQ_CST);
    if (lost)
        SHMSYNC_CRASHPOINT("barrier.reap.lost");
}
SHMI_FN void shmi_barrier_look(struct shmi_eventcount *e)
{
    struct shmi_barrier *x = (struct shmi_barrier *)(void *)e;
    if (__atomic_load_n(&x->deaths, __ATOMIC_SEQ_CST) != shmi_deaths(e->a))
        shmi_barrier_reap(x, 0);
    shmi_barrier_tell(x);
}
/* Whether n has parties or runs the completion of a phase. The parameter dead is a participant that is reaped, or 0 for
 * any dead participant. An earlier participant of the slot of dead may have them, too, if its reapers have died. */
SHMI_FN int shmi_barrier_of_dead(shmsync_arena *a, shmi_participant_id n, shmi_participant_id dead)
{
    return n != 0 && (dead == 0 ? shmi_dead(a, n) : shmi_reaps(a, dead, n));
}
/* Whether such a participant has parties or runs the completion: see shmi_barrier_of_dead. */
SHMI_FN int shmi_barrier_holds(struct shmi_barrier *x, shmi_participant_id dead)
{
    shmsync_arena *a = x->e.a;
    shmi_barrier_state s;
    uint32_t slot;
    if (shmi_barrier_read(x, &s) != 0)
        return 0;
    if (shmi_barrier_of_dead(a, s.completer, dead))
        return 1;
    for (slot = 1; slot <= a->geo.slots; slot++) {
        shmi_barrier_slot *r = shmi_barrier_slot_of(x, slot);
        shmi_barrier_share h;
        if (r == NULL)
            continue;
        shmi_barrier_share_of(r, &h);
        if (h.parties > 0 && shmi_barrier_of_dead(a, h.name, dead))
            return 1;
    }
    return 0;
}
SHMI_FN void shmi_barrier_scan(struct shmi_eventcount *e)
{
    struct shmi_barrier *x = (struct shmi_barrier *)(void *)e;
    if (shmi_barrier_holds(x, 0))
        shmi_barrier_reap(x, 0);
}
/* Reads the state with the changes that a reap of all known deaths would make. */
SHMI_FN int shmi_barrier_seen(struct shmi_barrier *x, shmi_barrier_state *s)
{
    uint64_t c, none = 0;
    uint32_t slot;
    int ok, err;
    do {
        shmi_barrier_share h;
        c = shmi_ld64(&x->w->commit);
        memset(&h, 0, sizeof h);
        err = shmi_barrier_at(x, c, s, &ok);
        if (err != 0)
            return err;
        shmi_barrier_without_completer(x, s, &h, &none);
        for (slot = 1; slot <= x->e.a->geo.slots; slot++) {
            shmi_barrier_slot *r = shmi_barrier_slot_of(x, slot);
            if (r == NULL)
                continue;
            shmi_barrier_share_of(r, &h);
            shmi_barrier_without_share(x, s, &h, &none);
        }
    } while (!ok || shmi_ld64(&x->w->commit) != c);
    return 0;
}
SHMI_FN uint64_t shmi_barrier_phase(struct shmi_barrier *x)
{
    shmi_barrier_state s;
    s.phase = 0; /* only for gcc -O3, which does not see that a read without an error sets phase */
    return shmi_barrier_read(x, &s) == 0 ? s.phase : 0;
}

/* The size of a handle, or of the struct that a reaper allocates and frees itself. */
SHMI_FN size_t shmi_barrier_size(shmsync_arena *a) { return sizeof(struct shmi_barrier) + shmi_slot_places(a) * sizeof(shmi_barrier_slot *); }
SHMI_FN void shmi_barrier_init(struct shmi_barrier *x, shmsync_arena *a, const shmi_object *o)
{
    shmi_object events = *o;
    memset(x, 0, shmi_barrier_size(a));
    events.body += offsetof(shmi_barrier_words, events);
    shmi_eventcount_init(&x->e, a, &events, "barrier.wait", shmi_barrier_look);
    x->e.scan = shmi_barrier_scan;
    x->w = (shmi_barrier_words *)shmi_ptr(a, o->body, sizeof(shmi_barrier_words), 8);
    x->r.commit = &x->w->commit;
    x->r.tickets = &x->w->tickets;
    x->r.tagged = shmi_barrier_tagged;
    x->r.record = shmi_barrier_record;
    x->r.corrupt = shmi_barrier_spoilt;
    x->deaths = shmi_deaths(a) - 1; /* the first check looks for dead participants */
}
SHMI_FN void *shmi_barrier_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_barrier_options *opts = (const shmsync_barrier_options *)arg;
    struct shmi_barrier *x;
    shmi_off record;
    if (o->size < shmi_barrier_bytes(a) || shmi_slot_record(a, o, sizeof(shmi_barrier_slot), &record) != 0)
        return NULL;
    x = (struct shmi_barrier *)shmi_new_thing(shmi_barrier_size(a));
    if (x == NULL)
        return NULL;
    shmi_barrier_init(x, a, o);
    x->completion = opts != NULL ? opts->completion : NULL;
    x->completion_arg = opts != NULL ? opts->completion_arg : NULL;
    return x;
}

typedef struct shmi_barrier_spec {
    uint64_t parties;
    uint32_t spin;
} shmi_barrier_spec;
SHMI_FN void shmi_barrier_fill(unsigned char *body, const void *arg)
{
    shmi_barrier_words *w = (shmi_barrier_words *)(void *)body;
    const shmi_barrier_spec *s = (const shmi_barrier_spec *)arg;
    w->size = (uint32_t)s->parties;
    w->expected = w->pending = s->parties << 32;
    w->spin = s->spin;
}
SHMI_FN int shmi_open_barrier(int existing, shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_OPTIONS(shmsync_barrier_options, 32, "barrier.open", out->impl);
    shmi_barrier_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    if (parties < (existing ? 0 : 1))
        return shmi_fail(EINVAL, "barrier.open", name, "it takes a number of parties of at least 1, not %lld; shmsync_barrier_attach opens one that exists", (long long)parties);
    if ((uint64_t)parties > SHMI_BARRIER_MAX)
        return shmi_fail(EINVAL, "barrier.open", name, "the highest number of parties is %lld, not %lld", (long long)SHMI_BARRIER_MAX, (long long)parties);
    init.parties = (uint64_t)parties;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec_of_kind(&spec, SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, name, shmi_barrier_bytes(a));
    spec.init = shmi_barrier_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_open_handle(a, &spec, shmi_barrier_build, opts, &created, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && parties != 0 && out->impl->w->size != (uint64_t)parties) {
        shmsync_barrier_close(out);
        err = shmi_fail(EINVAL, "barrier.open", name, "it began with another number of parties than %lld", (long long)parties);
    }
    return err;
}
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(0, a, name, parties, opts, out));
}
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(1, a, name, 0, opts, out));
}
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out)
{
    SHMI_BEGIN_AT(a, "barrier.open", out);
    void *impl;
    int err = shmi_open_handle_at(a, off, "barrier.open", SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, shmi_barrier_bytes(a), shmi_barrier_build, NULL, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    return b->impl->e.o.off;
}
int shmsync_barrier_close(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    int err;
    if (b->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(b->impl->e.a, b->impl->e.o.off, shmi_mutex_end);
    if (err == 0)
        b->impl = NULL;
    return SHMI_TELL(err);
}

/* Waits for the end of phase p. The caller is within shmi_enter. */
SHMI_FN int shmi_barrier_wait(struct shmi_barrier *x, uint64_t p, int64_t abs)
{
    const char *called = shmi_called(&x->e.o);
    for (;;) {
        shmi_barrier_state s;
        shmi_participant_id dead;
        int end, err = shmi_barrier_read(x, &s);
        if (err != 0)
            return err;
        if (s.phase < p)
            return shmi_barrier_spoilt(&x->r, "it has gone back to an earlier phase");
        if (shmi_barrier_verdict(&s, p, shmi_ld64(&x->w->breaks[p % SHMI_barrierBreaks]), &end, &dead)) {
            if (end == 0)
                return 0;
            if (dead == 0)
                return shmi_fail(EOWNERDEAD, "barrier.wait", called, "nobody knows how phase %llu ended: more than %d phases ago, and a later one broke",
                                 (unsigned long long)p, SHMI_barrierBreaks);
            return shmi_fail_who(x->e.a, EOWNERDEAD, "barrier.wait", called, dead);
        }
        if (s.completer == x->e.a->self && __atomic_load_n(&x->thread, __ATOMIC_RELAXED) == shmi_this_thread())
            return shmi_fail(EDEADLK, "barrier.wait", called, "the completion waits for the end of its own phase");
        err = shmi_eventcount_wait(&x->e, (uint32_t)p << 1, abs);
        if (err != 0)
            return err;
    }
}

/* The rule of an arrival. arg[0]: the number of arrivals. arg[1]: the number of parties to remove. arg[2]: the
 * participant that runs the completion. If arg[2] is 0, there is no completion, and the phase ends at once. */
SHMI_FN void shmi_barrier_arriving(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg)
{
    if (s->completer != 0 && !shmi_barrier_broken(s))
        return;
    shmi_barrier_take(s, h, x->e.a->self);
    if (shmi_barrier_broken(s)) {
        if (arg[1] != 0)
            shmi_barrier_drop(s, h, arg[1]);
    } else if (arg[0] <= s->pending) {
        shmi_barrier_count(s, h, arg[0], arg[1], (shmi_participant_id)arg[2]);
    }
}
SHMI_FN void shmi_barrier_completed(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg)
{
    (void)h;
    (void)arg;
    if (s->completer == x->e.a->self) /* otherwise a peer has overwritten the state */
        shmi_barrier_over(s);
}

/* Runs the completion, and ends the phase. */
SHMI_FN int shmi_barrier_complete(struct shmi_barrier *x)
{
    shmi_barrier_state was, is;
    int err;
    SHMSYNC_CRASHPOINT("barrier.complete.taken");
    __atomic_store_n(&x->thread, shmi_this_thread(), __ATOMIC_RELAXED);
    SHMI_OUTSIDE(x->completion(x->completion_arg));
    __atomic_store_n(&x->thread, (const void *)NULL, __ATOMIC_RELAXED);
    SHMSYNC_CRASHPOINT("barrier.complete.returned");
    err = shmi_barrier_change(x, x->e.a->my_slot, shmi_barrier_completed, NULL, &was, &is);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("barrier.complete.opened");
    return shmi_barrier_tell(x);
}

/* Counts n arrivals, removes as many parties as drop says, and sets *p to the phase. Sets *index to the number of
 * parties that have arrived before in the phase; -1 if the call counts nothing. The caller is within shmi_enter. */
SHMI_FN int shmi_barrier_arrive(struct shmi_barrier *x, int64_t n, uint64_t drop, int64_t abs, uint64_t *p, int64_t *index)
{
    uint64_t arg[3];
    int err;
    *index = -1;
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.arrive", shmi_called(&x->e.o), "%lld arrivals", (long long)n);
    arg[0] = (uint64_t)n;
    arg[1] = drop;
    arg[2] = x->completion != NULL ? x->e.a->self : 0;
    shmi_barrier_look(&x->e); /* a known death breaks the phase before the arrival counts */
    for (;;) {
        shmi_barrier_state was, is;
        err = shmi_barrier_change(x, x->e.a->my_slot, shmi_barrier_arriving, arg, &was, &is);
        if (err != 0)
            return err;
        *p = was.phase;
        if (was.completer != 0 && !shmi_barrier_broken(&was)) {
            err = shmi_barrier_wait(x, was.phase, abs); /* while a completion runs, an arrival counts for the next phase, so wait for the end of this phase */
            if (err == EBADF)
                return shmi_fail(EBADF, "barrier.arrive", shmi_called(&x->e.o), "this process closed the arena");
            if (err == ETIMEDOUT)
                return shmi_brief(ETIMEDOUT, "barrier.arrive", shmi_called(&x->e.o));
            if (err != 0 && err != EOWNERDEAD)
                return err;
            continue;
        }
        if (shmi_barrier_broken(&was))
            return shmi_barrier_tell(x);
        if (shmi_barrier_broken(&is) && is.phase == was.phase)
            /* the slot had a predecessor that was a party, and the death of this predecessor breaks the phase */
            return shmi_barrier_tell(x);
        if ((uint64_t)n > was.pending)
            return shmi_fail(EINVAL, "barrier.arrive", shmi_called(&x->e.o), "%lld arrivals are more than are expected", (long long)n);
        /* A party that arrives and drops lowers both numbers, so it does not count here. */
        *index = (int64_t)(was.expected - shmi_min(was.pending, was.expected));
        SHMSYNC_CRASHPOINT("barrier.arrive.counted");
        /* The process that ended the previous phase may have been stopped before it woke the waiters. So this call
         * wakes them. */
        return is.completer != 0 ? shmi_barrier_complete(x) : shmi_barrier_tell_of(x, &is);
    }
}

/* Arrives without a wait for the end of the phase. */
SHMI_FN int shmi_barrier_arrive_only(struct shmi_barrier *x, int64_t n, uint64_t drop, int64_t abs, uint64_t *p, int64_t *index)
{
    shmsync_arena *a = x->e.a;
    int err = shmi_enter_for(x, a, "barrier.arrive");
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, n, drop, abs, p, index);
    shmi_exit_for(x, a);
    return err;
}
/* Arrives, and stores the phase and the index where the caller wants them. abs is 0, or the end of the wait for a
 * completion. */
SHMI_FN int shmi_barrier_come(struct shmi_barrier *x, int64_t n, int64_t abs, uint64_t *phase, int64_t *index)
{
    uint64_t p = 0;
    int64_t i = -1;
    int err = shmi_barrier_arrive_only(x, n, 0, abs, &p, &i);
    if (err == 0 && phase != NULL)
        *phase = p;
    if (err == 0 && index != NULL)
        *index = i;
    return err;
}
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase)
{
    SHMI_OPENED(b);
    return SHMI_DONE(shmi_barrier_come(b->impl, n, 0, phase, NULL));
}
int shmsync_barrier_timedarrive(shmsync_barrier *b, int64_t n, uint64_t *phase, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_barrier_come(b->impl, n, ns, phase, NULL));
}
int shmsync_barrier_arrive_index(shmsync_barrier *b, uint64_t *phase, int64_t *index)
{
    SHMI_OPENED(b);
    return SHMI_DONE(shmi_barrier_come(b->impl, 1, 0, phase, index));
}
int shmsync_barrier_timedarrive_index(shmsync_barrier *b, uint64_t *phase, int64_t *index, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_barrier_come(b->impl, 1, ns, phase, index));
}
SHMI_FN int shmi_barrier_await(struct shmi_barrier *x, uint64_t phase, int64_t abs)
{
    shmsync_arena *a = x->e.a;
    shmi_barrier_state s;
    int err = shmi_enter_for(x, a, "barrier.wait");
    if (err != 0)
        return err;
    err = shmi_barrier_read(x, &s);
    if (err == 0)
        err = phase <= s.phase ? shmi_barrier_wait(x, phase, abs)
                               : shmi_fail(EINVAL, "barrier.wait", shmi_called(&x->e.o), "for phase %llu, and it is in phase %llu",
                                           (unsigned long long)phase, (unsigned long long)s.phase);
    shmi_exit_for(x, a);
    return err;
}
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase)
{
    SHMI_OPENED(b);
    return SHMI_DONE(shmi_barrier_await(b->impl, phase, 0));
}
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_DONE(err != 0 ? err : shmi_barrier_await(b->impl, phase, ns));
}
SHMI_FN int shmi_barrier_arrive_and_wait(struct shmi_barrier *x, int64_t abs)
{
    shmsync_arena *a = x->e.a;
    uint64_t p;
    int64_t index;
    int err = shmi_enter_for(x, a, "barrier.arrive");
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, 1, 0, abs, &p, &index);
    if (err == 0)
        err = shmi_barrier_wait(x, p, abs);
    shmi_exit_for(x, a);
    return err;
}
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_arrive_and_wait(b->impl, 0));
}
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_barrier_arrive_and_wait(b->impl, ns));
}
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    uint64_t p;
    int64_t index;
    return SHMI_DONE(shmi_barrier_arrive_only(b->impl, 1, 1, 0, &p, &index));
}

/* The rule of register and deregister. Adds *arg parties to the share. If *arg is 0, removes all parties of the share.
 */
SHMI_FN void shmi_barrier_being(struct shmi_barrier *x, shmi_barrier_state *s, shmi_barrier_share *h, const uint64_t *arg)
{
    uint64_t left, parties;
    shmi_barrier_take(s, h, x->e.a->self);
    parties = shmi_barrier_in(s, h, &left);
    if (s->completer == 0)
        left += *arg; /* if a completion runs, all arrivals of this phase have come, and the new parties arrive from the next phase on */
    shmi_barrier_put(s, h, *arg == 0 ? 0 : parties + *arg, left);
}
SHMI_FN int shmi_barrier_be(struct shmi_barrier *x, uint64_t n)
{
    shmsync_arena *a = x->e.a;
    shmi_barrier_state was, is;
    int err = shmi_enter_for(x, a, n == 0 ? "barrier.deregister" : "barrier.register");
    if (err != 0)
        return err;
    err = shmi_barrier_change(x, a->my_slot, shmi_barrier_being, &n, &was, &is);
    if (err == 0)
        /* the slot may have had a predecessor that was a party, whose death breaks the phase */
        err = shmi_barrier_tell(x);
    shmi_exit_for(x, a);
    return err;
}
int shmsync_barrier_register(shmsync_barrier *b, int64_t n)
{
    SHMI_OPENED(b);
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.register", shmi_called(&b->impl->e.o), "%lld parties", (long long)n);
    return SHMI_DONE(shmi_barrier_be(b->impl, (uint64_t)n));
}
int shmsync_barrier_deregister(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_DONE(shmi_barrier_be(b->impl, 0));
}

/* Makes one attempt to end this phase, if it is broken, and to begin another phase. The attempt does nothing while a
 * dead participant is not gone, because such a participant may still write. The call looks for such participants after
 * the load of the commit word, so it considers all deaths in the state. Before the phase ends, the call stores the
 * record of the phase by a CAS. If this process is stopped before this CAS, the CAS may fail: see
 * prims/barrier_breaks.go. */
SHMI_FN int shmi_barrier_begin(struct shmi_barrier *x, uint64_t parties, int *done)
{
    uint64_t c = shmi_ld64(&x->w->commit), *record, was, remembered;
    shmi_barrier_state s, to;
    shmi_record_change ch;
    int ok, err = shmi_barrier_at(x, c, &s, &ok);
    *done = 0;
    if (err != 0 || !ok || !shmi_barrier_broken(&s) || !shmi_all_gone(x->e.a))
        return err;
    record = &x->w->breaks[s.phase % SHMI_barrierBreaks];
    remembered = shmi_barrier_remembered(&s);
    was = shmi_ld64(record);
    if (was != remembered && (shmi_ld64(&x->w->commit) != c || !shmi_cas64(record, was, remembered)))
        return 0;
    SHMSYNC_CRASHPOINT("barrier.reset.remembered");
    to = s;
    shmi_barrier_next(&to, parties);
    ch.n = 0;
    shmi_barrier_differ(&ch, &s, &to);
    return shmi_records_commit(&x->r, x->e.a->my_slot, c, &ch, done);
}
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did)
{
    SHMI_OPENED_ELSE(b, shmi_set_flag(did, 0));
    struct shmi_barrier *x = b->impl;
    shmsync_arena *a = x->e.a;
    int err, done = 0;
    if (did != NULL)
        *did = 0;
    if (parties < 0 || (uint64_t)parties > SHMI_BARRIER_MAX)
        return shmi_fail(EINVAL, "barrier.reset", shmi_called(&x->e.o), "to %lld parties", (long long)parties);
    err = shmi_enter_for(x, a, "barrier.reset");
    if (err != 0)
        return SHMI_DONE(err);
    while (err == 0 && !done) {
        shmi_barrier_state s;
        shmi_barrier_reap(x, 0);
        err = shmi_barrier_read(x, &s);
        if (err != 0)
            break;
        if (!shmi_barrier_broken(&s)) {
            shmi_barrier_tell(x);
            break;
        }
        if (!shmi_all_gone(a)) {
            shmi_barrier_tell(x);
            err = shmi_await_all_gone(a, "barrier.reset", shmi_called(&x->e.o));
            continue;
        }
        pthread_mutex_lock(&a->counter_lock);
        err = shmi_barrier_begin(x, (uint64_t)parties, &done);
        pthread_mutex_unlock(&a->counter_lock);
        if (err == 0)
            err = shmi_barrier_tell(x);
    }
    shmi_exit_for(x, a);
    if (err == 0 && did != NULL)
        *did = done;
    return SHMI_DONE_ELSE(err, shmi_set_flag(did, 0));
}

int64_t shmsync_barrier_lost(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    shmi_barrier_state s;
    return shmi_barrier_seen(b->impl, &s) == 0 ? (int64_t)s.lost : 0;
}

/* Breaks the phase that a dead participant leaves incomplete, and wakes the waiters. A participant needs a slot record
 * to make a change. If this process has never opened the Barrier, the function makes its record. If that is not possible,
 * it only wakes the waiters, and one of them breaks the phase. If there is no memory, the function does nothing. In both
 * cases the periodic checks of the waiters find the death, too. */
SHMI_FN int shmi_repair_barrier(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_barrier *x;
    int joined = 1;
    if (o->size < shmi_barrier_bytes(a) || (x = (struct shmi_barrier *)malloc(shmi_barrier_size(a))) == NULL)
        return 0;
    shmi_barrier_init(x, a, o);
    if (shmi_barrier_slot_of(x, a->my_slot) == NULL && shmi_barrier_holds(x, dead))
        joined = shmi_record_of_reaper(a, o, sizeof(shmi_barrier_slot));
    shmi_barrier_reap(x, dead == a->self ? dead : 0); /* a participant that leaves itself is still current, so this call must name it */
    shmi_barrier_tell(x);
    if (!joined)
        shmi_eventcount_wake_all(&x->e);
    free(x);
    return joined;
}
SHMI_FN void shmi_wake_barrier(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_barrier *x;
    if (o->size < shmi_barrier_bytes(a) || (x = (struct shmi_barrier *)malloc(shmi_barrier_size(a))) == NULL)
        return;
    shmi_barrier_init(x, a, o);
    shmi_barrier_tell(x);
    shmi_eventcount_wake_dead(&x->e, owed);
    free(x);
}
