
/* ---- Locks that are handed over in the order of a recorded queue: prims/record_lock*.go in C ----
 *
 * A FairMutex is such a lock, and so is each key of a MultiLock. The state of the lock is the value of a recorded word.
 * The value consists of a kind and an ID:
 *
 *     kind       ID    meaning
 *     biased     0     free and open
 *     biased     n     held by n and open
 *     held       0     free and closed
 *     held       n     held by n and closed
 *     reserved   n     granted to n by a record; held when n has copied the tag of this word to *accepted
 *     other kinds      as in a Mutex; closed
 *
 * While the word is open, no wait is queued, and lock and unlock change the ID by a CAS. Any process may close the word
 * by a CAS. Only a record opens the word. */
#define SHMI_FAIR_OPEN SHMI_OWNER_BIASED

/* The lock that a change concerns. */
struct shmi_record_lock {
    struct shmi_rq *q;   /* its chosen queue is that of the lock */
    uint64_t *state, *accepted;
    /* names the participant whose death has made a FairMutex owner-dead or not recoverable. Its value changes by
     * records */
    uint64_t *died;
    uint32_t kind, where; /* a record finds *state by kind and where, and finds *died by kind + 1 and where */
    int release;         /* the policy is SHMSYNC_POLICY_RELEASE */
    /* not 0: the lock is a key of a MultiLock. The tag in the state of a key identifies a hold. The state of a key
     * names a participant even if the key is not recoverable */
    int key;
};

SHMI_FN int shmi_state_valid(uint32_t s, int key)
{
    switch (shmi_owner_kind(s)) {
    case SHMI_kindHeld:
    case SHMI_kindBiased: return 1;
    case SHMI_kindReserved:
    case SHMI_kindOwnerDead:
    case SHMI_kindRecovering: return shmi_owner_name(s) != 0;
    case SHMI_kindNotRecoverable: return key ? shmi_owner_name(s) != 0 : s == SHMI_OWNER_NOT_RECOVERABLE;
    }
    return 0;
}
/* Whether the state s lets no process get the lock until a recovery. */
SHMI_FN int shmi_state_refuses(uint32_t s, int key)
{
    return !shmi_state_valid(s, key) || shmi_owner_kind(s) == SHMI_kindOwnerDead || shmi_owner_kind(s) == SHMI_kindNotRecoverable;
}
SHMI_FN int shmi_fair_is_open(uint32_t s) { return shmi_owner_kind(s) == SHMI_kindBiased; }
SHMI_FN int shmi_fair_granted(uint32_t s) { return shmi_owner_kind(s) == SHMI_kindReserved && shmi_owner_name(s) != 0; }
/* Whether s names a participant that holds the lock, is recovering it, or was granted it. */
SHMI_FN int shmi_fair_taken(uint32_t s) { return shmi_owner_held(s) || shmi_fair_granted(s); }
/* Whether the grant in the word w was accepted. A participant that dies before it accepts has never held the lock. */
SHMI_FN int shmi_state_accepted(const uint64_t *accepted, uint64_t w)
{
    return shmi_ld64(accepted) == SHMI_RECORDED(shmi_owner_name((uint32_t)(w >> 32)), (uint32_t)w);
}
/* Closes the word, so that from now on only records change it. If the lock is a key, the tag stays the same. */
SHMI_FN void shmi_state_shut(uint64_t *state, int key)
{
    uint64_t w, closed;
    do {
        w = shmi_ld64(state);
        closed = SHMI_RECORDED(shmi_owner_name((uint32_t)(w >> 32)), (uint32_t)w + (key ? 0 : 1));
    } while (shmi_fair_is_open((uint32_t)(w >> 32)) && !shmi_cas64(state, w, closed));
}

/* ---- The rules. The caller has the private lock. ---- */

/* Adds to the change x: the state of the lock becomes s. If x leaves no wait in the queue, and the lock is free or held
 * in s, the record also opens the word. */
SHMI_FN void shmi_lock_set(const struct shmi_record_lock *l, struct shmi_rq_change *x, uint32_t s)
{
    if (shmi_owner_kind(s) == SHMI_kindHeld && shmi_rq_empty(l->q, x) && !l->q->a->geo.counted)
        s |= SHMI_FAIR_OPEN;
    shmi_rq_set(x, l->kind, l->where, l->state, s);
}
/* Adds to the change x: a wait leaves the queue without a grant. The word is closed. The word of a key stays closed
 * while the key has a holder: a record that opens the word changes its tag, and the tag of a key identifies the
 * hold. */
SHMI_FN void shmi_lock_remove(const struct shmi_record_lock *l, struct shmi_rq_change *x, struct shmi_wait w, uint32_t outcome)
{
    uint32_t s;
    shmi_state_shut(l->state, l->key); /* the word is closed already, unless a peer has overwritten it */
    shmi_rq_detach(l->q, x, w, outcome);
    s = shmi_rq_get(x, l->state);
    if (l->key ? s == 0 : shmi_owner_kind(s) == SHMI_kindHeld)
        shmi_lock_set(l, x, s);
}
/* Adds to the change x: the lock is granted to the first wait whose owner lives, or becomes free if there is no such
 * wait. Waits of dead participants leave the front of the queue. If these waits do not all fit into the record,
 * shmi_lock_serve does the rest. Returns the participant to which x grants the lock, or 0. The word is closed. */
SHMI_FN shmi_participant_id shmi_lock_pass(const struct shmi_record_lock *l, struct shmi_rq_change *x)
{
    struct shmi_rq_change y;
    struct shmi_wait w;
    /* Put the word into the record now. So the tag of the word changes even if the same participant gets the lock
     * again: *accepted identifies a grant by this tag. */
    shmi_rq_set(x, l->kind, l->where, l->state, 0);
    for (;;) {
        shmi_participant_id granted = 0;
        y = *x;
        if (!shmi_rq_head(l->q, &y, &w)) {
            x->torn = y.torn;
            shmi_lock_set(l, x, 0);
            return 0;
        }
        if (shmi_rq_waiting(l->q, w)) {
            granted = shmi_node_owner(w.n) & SHMI_NAME_MASK;
            shmi_rq_detach(l->q, &y, w, SHMI_RECORDED_GRANTED);
            shmi_rq_set(&y, l->kind, l->where, l->state, shmi_make_owner(SHMI_kindReserved, granted));
        } else {
            shmi_rq_detach(l->q, &y, w, SHMI_RECORDED_REMOVED);
        }
        x->torn = y.torn;
        if (y.torn || y.too_many)
            return 0;
        *x = y;
        if (granted != 0)
            return granted;
    }
}
/* Adds to the change x: the first wait ends, because no process can get a lock in the state s. The wait node gets the
 * reason in its field extra: s with the ID of the dead participant, or UINT32_MAX if s is not valid. */
SHMI_FN void shmi_lock_refuse(const struct shmi_record_lock *l, struct shmi_rq_change *x, struct shmi_wait w, uint32_t s)
{
    shmi_lock_remove(l, x, w, SHMI_RECORDED_REFUSED);
    if (!shmi_state_valid(s, l->key))
        s = UINT32_MAX;
    else if (s == SHMI_OWNER_NOT_RECOVERABLE)
        s |= shmi_recorded_value(l->died) & SHMI_NAME_MASK;
    shmi_rq_set(x, SHMI_rqPrev, (uint32_t)(w.off / SHMI_nodeSize), &w.n->extra, s);
}
/* Grants the lock to the first wait if the lock is free. Ends all waits if no process can get the lock. Takes waits of
 * dead participants off the front of the queue. If other processes change the object all the time, leaves the rest to
 * the periodic checks of the waiters. */
SHMI_FN int shmi_lock_serve(const struct shmi_record_lock *l, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_rq *q = l->q;
    uint64_t until = shmi_rq_until(q);
    while (shmi_rq_goes_on(q, until)) {
        /* Each round follows a change by another call, or takes a wait off the queue. */
        shmi_participant_id granted = 0;
        struct shmi_wait w;
        uint32_t s;
        int ok, stays = 0, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        if (shmi_rq_head(q, x, &w)) {
            shmi_state_shut(l->state, l->key); /* the word is closed already, unless a peer has overwritten it */
            s = shmi_rq_get(x, l->state);
            if (s == 0)
                granted = shmi_lock_pass(l, x);
            else if (shmi_rq_absent(q, shmi_node_owner(w.n)))
                shmi_lock_remove(l, x, w, SHMI_RECORDED_REMOVED);
            else if (shmi_state_refuses(s, l->key))
                shmi_lock_refuse(l, x, w, s);
            else
                stays = 1;
        } else if (!x->torn) {
            return 0;
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0)
            return err;
        if (ok && stays)
            return 0;
        if (ok)
            shmi_rq_reconsider(q, granted);
    }
    return 0;
}
/* Takes the lock back from a dead participant, as the policy says: see shmi_owner_died. If other processes change the
 * object all the time, the next reap takes the lock back. */
SHMI_FN int shmi_lock_reap(const struct shmi_record_lock *l, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_rq *q = l->q;
    uint64_t until = shmi_rq_until(q);
    while (shmi_rq_goes_on(q, until)) {
        /* Each round follows a change by another call. */
        shmi_participant_id n, granted = 0;
        uint32_t s, next = 0;
        uint64_t w;
        int ok, err = shmi_rq_begin(q, x, b);
        if (err != 0)
            return err;
        s = (uint32_t)(shmi_ld64(l->state) >> 32);
        if (!shmi_fair_taken(s) || !shmi_rq_absent(q, shmi_owner_name(s)))
            return 0;
        shmi_state_shut(l->state, l->key);
        w = shmi_ld64(l->state);
        s = (uint32_t)(w >> 32);
        n = shmi_owner_name(s);
        if (shmi_fair_is_open(s) || !shmi_fair_taken(s) || !shmi_rq_absent(q, n)) {
            q->overtaken++; /* another process has changed the word before it was closed, or since then */
            continue;
        }
        if (!shmi_fair_granted(s) || shmi_state_accepted(l->accepted, w)) {
            if (shmi_fair_granted(s))
                s = shmi_make_owner(SHMI_kindHeld, n);
            next = shmi_owner_died(s, l->release, l->release && shmi_gone(q->a, n));
            if (next == s) {
                shmi_rq_reap_again(q);
                return 0;
            }
        }
        if (next == 0) {
            granted = shmi_lock_pass(l, x);
            x->torn = 0; /* an error in the queue concerns only the waits, so the lock is freed all the same */
        } else {
            shmi_lock_set(l, x, next);
            if (!l->key)
                shmi_rq_set(x, l->kind + 1, l->where, l->died, n);
        }
        err = shmi_rq_end(q, x, b, &ok);
        if (err != 0)
            return err;
        if (ok) {
            shmi_rq_reconsider(q, granted);
            return 0;
        }
    }
    shmi_st32(&q->unreaped, 1);
    return 0;
}
/* Whether the first wait in the queue of the lock may end now. A process that ends waits has then died after it had
 * changed the state of the lock, and before it has ended the wait. Only a record can end the wait. */
SHMI_FN int shmi_lock_unserved(const struct shmi_record_lock *l, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    struct shmi_wait w;
    uint32_t s;
    if (shmi_recorded_value(l->q->first) == 0 || shmi_rq_begin(l->q, x, b) != 0 || !shmi_rq_head(l->q, x, &w))
        return 0;
    s = shmi_recorded_value(l->state);
    return !shmi_rq_waiting(l->q, w) || s == 0 || shmi_state_refuses(s, l->key);
}
/* Takes the lock back from a dead holder if the word of the lock is open. In this case no wait is queued, so one CAS is
 * enough, and this process needs no slot record. Returns 1 if the word is closed, and names a participant that is dead
 * or has left. Then only a record can take the lock back. */
SHMI_FN int shmi_lock_take_open(const struct shmi_record_lock *l)
{
    int tries;
    for (tries = 0; tries < SHMI_REAP_TRIES; tries++) {
        uint64_t w = shmi_ld64(l->state);
        uint32_t s = (uint32_t)(w >> 32), to;
        shmi_participant_id n = shmi_owner_name(s);
        if (!shmi_fair_taken(s) || !shmi_rq_absent(l->q, n))
            return 0;
        if (!shmi_fair_is_open(s))
            return 1;
        to = l->release ? SHMI_FAIR_OPEN : shmi_make_owner(SHMI_kindOwnerDead, n);
        if (shmi_take_from64(l->q->a, n, l->state, w, shmi_recorded_with(w, to), l->release) || shmi_ld64(l->state) == w)
            return 0; /* if the dead participant is not gone yet, a later reap takes the lock back */
    }
    return 0;
}
