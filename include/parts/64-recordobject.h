
/* ---- What all objects with a recorded queue do alike: prims/record_deaths.go and others in C ---- */

/* Whether the owner of a queued wait is alive and still waits. It checks whether the owner is marked dead, because a
 * grant to a dead participant would come back only when that participant is reaped. A participant that has found the
 * object damaged may have given up its wait: the node is then in the state left. */
SHMI_FN int shmi_rq_waiting(struct shmi_rq *q, struct shmi_wait w)
{
    shmi_participant_id owner = shmi_node_owner(w.n);
    return shmi_rq_current(q, owner) && !shmi_dead(q->a, owner) && shmi_node_state(shmi_node_load(w.n)) != SHMI_NodeLeft;
}
SHMI_FN int shmi_rq_reap_due(struct shmi_rq *q) { return shmi_ld32(&q->deaths) != shmi_deaths(q->a) || shmi_ld32(&q->unreaped) != 0; }
/* Begins a reap: takes the waits of the dead off the queue, so that nothing is granted to them any more. */
SHMI_FN int shmi_rq_begin_reap(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b)
{
    shmi_st32(&q->deaths, shmi_deaths(q->a));
    shmi_st32(&q->unreaped, 0);
    return shmi_rq_remove_dead(q, x, b);
}
/* Makes the next call reap because a dead participant is not gone. */
SHMI_FN void shmi_rq_reap_again(struct shmi_rq *q)
{
    shmi_st32(&q->unreaped, 1);
    shmi_follow(q->a);
}
/* Makes the next call reap if the participant to which a wait was granted is dead: the last reap may have visited the
 * object before the grant. */
SHMI_FN void shmi_rq_reconsider(struct shmi_rq *q, shmi_participant_id granted)
{
    if (shmi_rq_absent(q, granted))
        shmi_st32(&q->deaths, shmi_deaths(q->a) - 1);
}
/* Reaps if that is due, or if dead is not 0, and serves the queue. */
SHMI_FN int shmi_rq_tidy(struct shmi_rq *q, struct shmi_rq_change *x, struct shmi_wakes *b, int dead)
{
    int err = dead || shmi_rq_reap_due(q) ? q->kind->reap(q, x, b) : 0;
    return err != 0 ? err : q->kind->serve(q, x, b);
}

/* Learns what others have added to the object. The private lock is not held. */
SHMI_FN void shmi_rq_catch_up(struct shmi_rq *q)
{
    if (q->parts != NULL)
        q->parts->catch_up(q);
}
/* Makes up for the changes that a dead or a stopped process owes, and dates the wait that is first. */
SHMI_FN void shmi_rq_check_now(struct shmi_rq *q)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    int dead;
    shmi_rq_catch_up(q);
    dead = q->kind->dead(q); /* the process that marked the dead participant may be stopped before it counts the death */
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
/* The periodic check: ten times a second while a thread of this process waits, or less often if many do. */
SHMI_FN void shmi_rq_check(void *arg)
{
    struct shmi_rq *q = (struct shmi_rq *)arg;
    if (shmi_check_due(&q->looked))
        shmi_rq_check_now(q);
}

/* ---- Damage of the queue: prims/record_torn.go in C ----
 *
 * A peer may overwrite the links of a queue while threads wait in it. No grant then reaches some of the waits. So each
 * thread that waits examines the links beside its wait from time to time, and gives up if they are damaged. It cannot see
 * damage between two other waits. The owners of these waits see it and give up, and their nodes stay in the queue in the
 * state left. The owner of the next wait finds such a node before its own, and gives up, too. */
enum {
    SHMI_tornTries = 4,   /* how often shmi_rq_is_torn begins again if other processes change the object meanwhile */
    SHMI_tornForgone = 64 /* how many nodes in the state left shmi_rq_torn_at visits at most */
};

/* The node at v, an offset divided by 64, if it has a wait in a queue of the object, and otherwise NULL. */
SHMI_FN shmi_node *shmi_rq_linked(struct shmi_rq *q, uint32_t v)
{
    shmi_node *n = shmi_node_at(q->a, (shmi_off)v * SHMI_nodeSize);
    return n != NULL && shmi_ld64(&n->object) == q->o.off && shmi_recorded_queued(shmi_recorded_value(&n->next)) ? n : NULL;
}
/* Whether the links beside a wait of this process, or its node, are damaged. The record of the commit word is complete. If
 * the commit word changes meanwhile, the result is meaningless. */
SHMI_FN int shmi_rq_torn_at(struct shmi_rq *q, struct shmi_wait w)
{
    uint32_t next = shmi_recorded_value(&w.n->next), me = (uint32_t)(w.off / SHMI_nodeSize), prev, i;
    shmi_node *n;
    /* The record of a wait that has ended is complete, so only a peer can have made the node queued again. */
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
/* Begins a change that concerns the queue of a wait; EPROTO: a peer has overwritten something. */
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
/* Whether the queue is so damaged that a wait of this process may never end. The call serves the queue first. If other
 * processes change the object all the time, the result may be 0 for a damaged queue. Then the next check examines the
 * queue again. */
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

/* Takes a wait of this process off the queue, and gives its wait node back; 0 if a record has ended the wait. It sets
 * *before to whether the wait was before the boundary when it left. */
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
        /* The loop ends: each turn follows a change by another call. After an error, a peer has overwritten the queue. */
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
            ok = 0; /* a record that is not complete yet may end the wait */
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
        shmi_wait_node_forget(wait_node); /* a peer has overwritten the queue, which may name the node */
    shmi_rq_wake(q, &b);
    return withdrawn;
}

/* Sleeps once on the node of a wait, as shmi_wait_node_sleep does, in a call that shmi_enter has counted. */
SHMI_FN int shmi_rq_sleep(struct shmi_rq *q, shmi_wait_node *s, int64_t abs)
{
    return shmi_wait_node_sleep(q->a, s, q->o.off, abs, &q->looked, shmi_rq_check, q);
}
/* Waits, in a call that shmi_enter has counted, until the wait of a queued node is resolved. It spins first if spin is
 * not 0. After an error, which is ETIMEDOUT, EBADF or EPROTO, the wait is off the queue, and the wait node was given
 * back, and *before says whether the wait was before the boundary when it left. */
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
                shmi_rq_check_now(q); /* a reaper that cannot make a change has woken the thread: see shmi_rq_wake_first */
            else if (shmi_node_state(w) != SHMI_NodeResolved)
                err = EPROTO; /* a peer wrote that */
        } else {
            err = r == SHMI_LATE ? ETIMEDOUT : EBADF;
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
/* Does what shmi_rq_await_end does, for a wait that owes nothing when it was granted or refused. It gives the wait node
 * back. */
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

/* Takes back what the participant dead has. If this process has not opened the object, it has no slot record, and
 * cannot make a change. Then it completes only the last change, and the waiters and the next call do the rest. If the
 * list of slot records is corrupt, a process that knows the records repairs the object. 0: this process could not make
 * a change. */
SHMI_FN int shmi_rq_repair(struct shmi_rq *q, shmi_participant_id dead)
{
    struct shmi_rq_change x;
    struct shmi_wakes b;
    int member = shmi_rq_slot(q, q->a->my_slot) != NULL;
    if (dead == q->a->self)
        /* This process leaves, and its ID is still current, so shmi_rq_current must be told of it. Another
         * dead participant is not current, unless a new participant has got its ID. */
        q->without = dead;
    shmi_wakes_init(&b);
    shmi_rq_lock(q);
    if (!member) {
        shmi_rq_complete(q, shmi_ld64(q->commit), &b);
    } else {
        q->kind->reap(q, &x, &b);
        q->kind->serve(q, &x, &b);
    }
    shmi_rq_unlock(q);
    shmi_rq_wake(q, &b);
    return member;
}
/* Makes a slot record for this process, which visits the object in a reap and has not opened it. If it returns 0, the
 * reap visits the object again when the dead participant is gone. */
SHMI_FN int shmi_rq_make_record(struct shmi_rq *q) { return shmi_record_of_reaper(q->a, &q->o, q->kind->record_bytes); }
/* Wakes the owners of the first waits if this process has no slot record, so that one of them reaps. */
SHMI_FN void shmi_rq_wake_after(struct shmi_rq *q)
{
    if (shmi_rq_slot(q, q->a->my_slot) == NULL)
        shmi_rq_wake_first(q);
}
/* Completes the last change; 0: that was not possible. */
SHMI_FN int shmi_rq_complete_last(struct shmi_rq *q)
{
    struct shmi_wakes b;
    int err;
    shmi_wakes_init(&b);
    err = shmi_rq_complete(q, shmi_ld64(q->commit), &b);
    shmi_rq_wake(q, &b);
    return err == 0;
}
