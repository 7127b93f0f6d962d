
/* ---- What all objects with a recorded queue have in common, as in prims/record_deaths.go and other Go files ---- */

/* Whether the owner of a queued wait is alive and still waits. A grant to a dead participant comes back only when a
 * reaper reaps this participant. So the function also finds deaths that are not marked yet. An owner that has found the
 * object damaged may have given up its wait: then the node is in the state SHMI_NodeLeft. */
SHMI_FN int shmi_rq_waiting(struct shmi_rq *q, struct shmi_wait w)
{
    shmi_participant_id owner = shmi_node_owner(w.n);
    return shmi_rq_current(q, owner) && !shmi_dead(q->a, owner) && shmi_node_state(shmi_node_load(w.n)) != SHMI_NodeLeft;
}
SHMI_FN int shmi_rq_reap_due(struct shmi_rq *q) { return shmi_ld32(&q->deaths) != shmi_deaths(q->a) || shmi_ld32(&q->unreaped) != 0; }
/* Begins a reap: takes the waits of dead participants off the queue, so that they are granted nothing any more. */
SHMI_FN int shmi_rq_begin_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    shmi_st32(&q->deaths, shmi_deaths(q->a));
    shmi_st32(&q->unreaped, 0);
    return shmi_rq_remove_dead(q, x, b);
}
/* Makes the next call reap again, because a dead participant is not gone yet. */
SHMI_FN void shmi_rq_reap_again(struct shmi_rq *q)
{
    shmi_st32(&q->unreaped, 1);
    shmi_follow(q->a);
}
/* If the participant to which a wait was granted is dead, makes the next call reap. The reaper of this participant may
 * have visited the object before the grant. */
SHMI_FN void shmi_rq_reconsider(struct shmi_rq *q, shmi_participant_id granted)
{
    if (shmi_rq_absent(q, granted))
        shmi_st32(&q->deaths, shmi_deaths(q->a) - 1);
}
/* Reaps if a reap is due, or if the parameter dead is not 0. Then serves the queue. */
SHMI_FN int shmi_rq_tidy(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b, int dead)
{
    int err = dead || shmi_rq_reap_due(q) ? q->kind->reap(q, x, b) : 0;
    return err != 0 ? err : q->kind->serve(q, x, b);
}

/* Learns which blocks others have added to the object. The caller does not have the private lock. */
SHMI_FN void shmi_rq_catch_up(struct shmi_rq *q)
{
    if (q->parts != NULL)
        q->parts->catch_up(q);
}
/* Makes up for what a dead or stopped process has left undone, and stores, for tools, the time since which the first
 * wait has been the first. */
SHMI_FN void shmi_rq_check_now(struct shmi_rq *q)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    int dead;
    shmi_rq_catch_up(q);
    dead = q->kind->dead(q); /* needed, because a process that has marked a participant dead may be stopped before it counts the death */
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    if (dead || shmi_rq_reap_due(q))
        q->kind->reap(q, &x, &b);
    q->kind->serve(q, &x, &b);
    if (q->also_check != NULL)
        q->also_check(q, &x, &b);
    shmi_rq_date_first(q);
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
}
/* The periodic check, ten times a second while a thread of this process waits; less often if many threads wait. */
SHMI_FN void shmi_rq_check(void *arg)
{
    struct shmi_rq *q = (struct shmi_rq *)arg;
    if (shmi_check_due(&q->looked))
        shmi_rq_check_now(q);
}

/* ---- Damage of the queue: prims/record_torn.go in C ----
 *
 * A peer may overwrite the links of a queue while threads wait in it. Then no grant reaches some of the waits. So each
 * waiting thread examines the links beside its own wait from time to time, and gives up if they are damaged. A thread
 * does not see damage between two other waits. The owners of those two waits see it and give up, and their nodes stay
 * in the queue in the state SHMI_NodeLeft. The owner of the next wait finds such a node before its own, and gives up,
 * too. */
enum {
    SHMI_tornTries = 4,   /* how many times shmi_rq_is_torn tries again because other processes change the object */
    SHMI_tornForgone = 64 /* how many nodes in the state SHMI_NodeLeft shmi_rq_torn_at visits at most */
};

/* The node at v, an offset divided by 64, if its wait is in a queue of the object; otherwise NULL. */
SHMI_FN shmi_node *shmi_rq_linked(struct shmi_rq *q, uint32_t v)
{
    shmi_node *n = shmi_node_at(q->a, (shmi_off)v * SHMI_nodeSize);
    return n != NULL && shmi_ld64(&n->object) == q->o.off && shmi_recorded_queued(shmi_recorded_value(&n->next)) ? n : NULL;
}
/* Whether a wait of this process is damaged: its node, or the links beside it. The caller has completed the record of
 * the commit word. If the commit word changes during the call, the result means nothing. */
SHMI_FN int shmi_rq_torn_at(struct shmi_rq *q, struct shmi_wait w)
{
    uint32_t next = shmi_recorded_value(&w.n->next), me = (uint32_t)(w.off / SHMI_nodeSize), prev, i;
    shmi_node *n;
    /* The record that has ended the wait is complete. If the node is in the queued state all the same, a peer has
     * overwritten it. */
    if (shmi_rq_ended(q, next))
        return shmi_node_queued(shmi_node_load(w.n));
    if (!shmi_recorded_queued(next) || shmi_ld64(&w.n->object) != q->o.off)
        return 1;
    if (next == SHMI_RECORDED_LAST) {
        if (shmi_recorded_value(q->last) != me)
            return 1;
    } else {
        n = shmi_rq_linked(q, next);
        if (n == NULL || shmi_recorded_value(&n->extra) != me)
            return 1;
    }
    for (i = 0; i < SHMI_tornForgone; i++) {
        prev = shmi_recorded_value(&w.n->extra);
        if (prev == 0)
            return shmi_recorded_value(q->first) != me;
        n = shmi_rq_linked(q, prev);
        if (n == NULL || shmi_recorded_value(&n->next) != me)
            return 1;
        if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeLeft)
            return 0;
        w.n = n;
        me = prev;
    }
    return 0;
}
/* Begins a change of the queue that contains the wait w. EPROTO: a peer has overwritten the object. */
SHMI_FN int shmi_rq_begin_at(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wait w, struct shmi_wakes *b)
{
    int err = shmi_rq_begin(q, x, b);
    if (err == 0 && q->parts != NULL) {
        q->parts->turn_to(q, x, w);
        if (x->torn && shmi_ld64(q->commit) == x->c)
            return EPROTO;
    }
    return err;
}
/* Serves the queue, and then finds out whether the queue is so damaged that a wait of this process may never end. If
 * other processes change the object all the time, the result may be 0 for a damaged queue. Then the next check
 * examines the queue again. */
SHMI_FN int shmi_rq_is_torn(struct shmi_rq *q, const shmi_wait_node *wait_node)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    struct shmi_wait w;
    int torn = 0, tries;
    w.off = wait_node->off;
    w.n = wait_node->node;
    shmi_rq_catch_up(q);
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    for (tries = 0; tries < SHMI_tornTries; tries++) {
        int (*serve)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b) = q->parts != NULL ? q->parts->serve : q->kind->serve;
        torn = shmi_rq_begin_at(q, &x, w, &b) != 0;
        if (torn)
            break;
        if (x.torn)
            continue;
        torn = serve(q, &x, &b) != 0 || shmi_rq_begin_at(q, &x, w, &b) != 0;
        if (torn)
            break;
        torn = !x.torn && shmi_rq_torn_at(q, w);
        if (!x.torn && shmi_ld64(q->commit) == x.c)
            break;
        torn = 0;
    }
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    return torn;
}

/* Takes a wait of this process off the queue, and gives its wait node back. Returns 0 if a record has ended the wait
 * already. *before says whether a Broadcast had covered the wait when it left the queue. */
SHMI_FN int shmi_rq_withdraw(struct shmi_rq *q, shmi_wait_node *wait_node, int *before)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    struct shmi_wait w;
    int withdrawn = 1, err;
    *before = 0;
    w.off = wait_node->off;
    w.n = wait_node->node;
    shmi_rq_catch_up(q);
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    for (;;) {
        /* The loop ends, because it repeats only after a change by another call. An error means that a peer has
         * overwritten the queue. */
        uint32_t v;
        int ok = 1;
        err = shmi_rq_begin(q, &x, &b);
        if (err != 0)
            break;
        v = shmi_rq_get(&x, &w.n->next);
        if (shmi_rq_ended(q, v) && shmi_wait_node_resolved(wait_node)) {
            withdrawn = 0;
            break;
        }
        if (shmi_recorded_queued(v)) {
            if (q->parts != NULL)
                q->parts->turn_to(q, &x, w);
            *before = shmi_rq_before_boundary(q, &x, w);
            q->kind->remove(q, &x, w, SHMI_RECORDED_LEFT);
            err = shmi_rq_end(q, &x, &b, &ok);
        } else if (shmi_ld64(q->commit) != x.c) {
            ok = 0; /* a record that is not complete yet may be ending the wait */
        } else {
            err = EPROTO; /* a peer has overwritten the node */
        }
        if (err != 0 || ok)
            break;
    }
    if (withdrawn && err == 0)
        q->kind->serve(q, &x, &b);
    shmi_rq_unlock(q);
    if (withdrawn && err == 0)
        shmi_rq_hand_back(q, wait_node);
    else if (withdrawn)
        shmi_wait_node_forget(wait_node); /* a peer has overwritten the queue, which may still name the node */
    shmi_rq_wake(q, &b);
    return withdrawn;
}

/* Sleeps once on the node of a wait, as shmi_wait_node_sleep does. The caller is within shmi_enter. */
SHMI_FN int shmi_rq_sleep(struct shmi_rq *q, shmi_wait_node *s, int64_t abs)
{
    return shmi_wait_node_sleep(q->a, s, q->o.off, abs, &q->looked, shmi_rq_check, q);
}
/* Waits until the wait of a queued node is resolved. The caller is within shmi_enter. If spin is not 0, the thread
 * spins first. After an error, which is ETIMEDOUT, EBADF or EPROTO, the wait is off the queue, the wait node is given
 * back, and *before says whether a Broadcast had covered the wait when it left the queue. */
SHMI_FN int shmi_rq_await_end(struct shmi_rq *q, shmi_wait_node *s, int spin, int64_t abs, const char *op, int *before)
{
    shmi_tuning t = shmi_rq_tuning(q);
    int torn = 0, err = 0, over = shmi_add32(&q->waiting, 1) == 0 && spin && shmi_spin(&t, shmi_wait_node_resolved_arg, s);
    *before = 0;
    while (!over && !shmi_wait_node_resolved(s)) {
        int r = shmi_rq_sleep(q, s, abs);
        if (r == SHMI_LOOK) {
            shmi_rq_check(q);
            torn = shmi_rq_is_torn(q, s);
            if (torn)
                err = EPROTO;
        } else if (r == SHMI_AGAIN) {
            uint32_t w = shmi_node_load(s->node);
            if (shmi_node_queued(w))
                shmi_rq_check_now(q); /* a reaper that cannot make a change has woken this thread: see shmi_rq_wake_first */
            else if (shmi_node_state(w) != SHMI_NodeResolved)
                err = EPROTO; /* only a peer can have written that */
        } else {
            err = r == SHMI_LATE ? ETIMEDOUT : EBADF;
            if (r == SHMI_LATE && (shmi_rq_reap_due(q) || q->kind->dead(q)))
                shmi_rq_check_now(q); /* what a process that is gone has left takes precedence over the deadline */
        }
        if (err != 0) {
            if (shmi_rq_withdraw(q, s, before))
                break;
            err = 0;
            over = 1;
        }
    }
    shmi_add32(&q->waiting, (uint32_t)-1);
    if (err != 0) {
        SHMSYNC_CRASHPOINT("record.await.withdrawn");
        if (err == EBADF)
            return shmi_fail(EBADF, op, shmi_called(&q->o), "this process closed the arena");
        return err == EPROTO ? q->kind->corrupt(q, torn ? "its queue of waits" : "a wait node") : err;
    }
    return 0;
}
/* As shmi_rq_await_end, for every object but a Cond. Waits of these objects owe nothing after a grant or a refusal, so
 * the call gives the wait node back in each case. */
SHMI_FN int shmi_rq_await(struct shmi_rq *q, shmi_wait_node *s, int spin, int64_t abs, const char *op, shmi_rq_outcome *out)
{
    int before, err = shmi_rq_await_end(q, s, spin, abs, op, &before);
    if (err != 0)
        return err;
    if (shmi_rq_collect(q, s, out))
        return 0;
    if (!shmi_rq_withdraw(q, s, &before) && shmi_rq_collect(q, s, out))
        return 0;
    return q->kind->corrupt(q, "a wait node, which ended a wait that was not granted");
}

/* Makes a slot record for this process, which reaps and has not opened the object. If the result is 0, the reap visits
 * the object again when the dead participant is gone. */
SHMI_FN int shmi_rq_make_record(struct shmi_rq *q) { return shmi_record_of_reaper(q->a, &q->o, q->kind->record_bytes); }
SHMI_FN int shmi_rq_has_record(struct shmi_rq *q) { return shmi_rq_slot(q, q->a->my_slot) != NULL; }
/* Takes back what the participant dead has of the object. A process that has not opened the object has no slot record,
 * so it cannot make a change. It completes the last change. Then it makes a record for itself if owes returns 1, that
 * is, if a dead participant has left something that only a record can recover. owes may recover other things without a
 * record. If the arena has no room for the record, the result is 0, and the waiters and the next call do the rest. If
 * the list of slot records is corrupt, a process that knows the slot records repairs the object. */
SHMI_FN int shmi_rq_repair(struct shmi_rq *q, shmi_participant_id dead, int (*owes)(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b))
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    int due = 1, done = 1;
    if (dead == q->a->self)
        /* This process is leaving, but its ID is still current. The assignment makes shmi_rq_current treat it as not
         * current. */
        q->without = dead;
    shmi_wakes_init(&b);
    if (!shmi_rq_has_record(q)) {
        shmi_rq_lock(q);
        shmi_rq_complete(q, shmi_ld64(q->commit), &b);
        due = owes(q, &x, &b);
        shmi_rq_unlock(q);
        done = !due || (shmi_rq_make_record(q) && shmi_rq_has_record(q));
    }
    if (due && done) {
        shmi_rq_lock(q);
        q->kind->reap(q, &x, &b);
        q->kind->serve(q, &x, &b);
        shmi_rq_unlock(q);
    }
    shmi_rq_wake(q, &b);
    return done;
}
/* If this process has no slot record, wakes the owners of the first waits, so that one of them reaps. */
SHMI_FN void shmi_rq_wake_after(struct shmi_rq *q)
{
    if (!shmi_rq_has_record(q))
        shmi_rq_wake_first(q);
}
/* Completes the last change. Returns 0 if that was not possible. */
SHMI_FN int shmi_rq_complete_last(struct shmi_rq *q)
{
    struct shmi_wakes b;
    int err;
    shmi_wakes_init(&b);
    err = shmi_rq_complete(q, shmi_ld64(q->commit), &b);
    shmi_rq_wake(q, &b);
    return err == 0;
}
