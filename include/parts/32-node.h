/* ---- Wait nodes ---- */

SHMI_FN uint32_t shmi_node_state(uint32_t w) { return w & 15; }
SHMI_FN uint32_t shmi_node_with(uint32_t w, uint32_t state) { return (w & ~15u) | state; }
/* The value that the word of the node gets when the owner gives the node back. */
SHMI_FN uint32_t shmi_node_freed(uint32_t w) { return shmi_node_with(w + 16, SHMI_NodeFree); }
/* The value that the word of the node gets when the owner keeps the node for another wait. */
SHMI_FN uint32_t shmi_node_kept(uint32_t w) { return shmi_node_with(w + 16, SHMI_NodeIdle); }
SHMI_FN int shmi_node_queued(uint32_t word)
{
    uint32_t s = shmi_node_state(word);
    return s == SHMI_NodeQueued || s == SHMI_NodeAsleep || s == SHMI_NodeParked;
}
SHMI_FN uint32_t shmi_node_load(const shmi_node *n) { return shmi_ld32(&n->word); }
SHMI_FN int shmi_node_swap(shmi_node *n, uint32_t old, uint32_t to) { return shmi_cas32(&n->word, old, to); }
SHMI_FN int shmi_node_move(shmi_node *n, uint32_t from, uint32_t to)
{
    uint32_t w = shmi_node_load(n);
    return shmi_node_state(w) == from && shmi_node_swap(n, w, shmi_node_with(w, to));
}
/* A node may be on a recorded queue, whose words change by records: see internal/arenakernel/node_record.go and
 * 63-recordqueue.h. Then its stamp has the bit SHMI_RECORDED_STAMP. The high half of the field next contains the state
 * of the wait: 0, a constant of this enum, or the next node, as its offset divided by SHMI_blockMin. */
#define SHMI_RECORDED_STAMP (UINT64_C(1) << 63)
enum { SHMI_RECORDED_LAST = 1, SHMI_RECORDED_GRANTED, SHMI_RECORDED_LEFT, SHMI_RECORDED_REMOVED, SHMI_RECORDED_REFUSED,
       SHMI_RECORDED_OWES, /* off the queue: the wait was woken, and its owner has not dealt with the wake yet */
       SHMI_RECORDED_FIRST = 64 /* the least offset */ };
/* Whether v, the state of a wait, says that the node is on its queue. */
SHMI_FN int shmi_recorded_queued(uint64_t v) { return v == SHMI_RECORDED_LAST || v >= SHMI_RECORDED_FIRST; }
/* Whether the node is on a queue of its object, or was woken and its owner has not dealt with the wake yet. No process
 * may reuse or free such a node. */
SHMI_FN int shmi_node_on_queue(const shmi_node *n)
{
    uint64_t v = shmi_ld64(&n->next) >> 32;
    return (shmi_ld64(&n->stamp) & SHMI_RECORDED_STAMP) != 0 && (v == SHMI_RECORDED_OWES || shmi_recorded_queued(v));
}
SHMI_FN shmi_participant_id shmi_node_owner(const shmi_node *n) { return shmi_ld32(&n->owner); }

SHMI_FN shmi_node *shmi_node_ptr(const shmsync_arena *a, shmi_off off) { return (shmi_node *)shmi_ptr(a, off, SHMI_nodeSize, SHMI_nodeSize); }

/* The node at an offset that may have come from a peer, in use or not; NULL if no node is there. */
SHMI_FN shmi_node *shmi_node_at(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || b.class_ != SHMI_classNode)
        return NULL;
    return shmi_node_ptr(a, off);
}

/* Claims a wait node, and makes it idle: it belongs to this process and to no object. The links of queues have 32
 * bits, so the node lies in the part of the heap that they can name. */
SHMI_FN int shmi_claim_node(shmsync_arena *a, shmi_off *off, shmi_node **node)
{
    shmi_node *n;
    int err = shmi_claim_block(a, SHMI_classNode, SHMI_roomOfLinked, off);
    if (err == ENOSPC && a->geo.headroom_nodes > 0)
        err = shmi_claim_block(a, SHMI_classNode, SHMI_roomOfNodes, off);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("arena.node.claimed");
    n = shmi_node_ptr(a, *off);
    shmi_st32(&n->word, shmi_node_with(shmi_node_load(n), SHMI_NodeIdle));
    shmi_st64(&n->next, 0);
    shmi_st64(&n->ready_next, 0);
    shmi_st64(&n->wanted, 0);
    shmi_st64(&n->stamp, 0);
    shmi_st64(&n->extra, 0);
    shmi_st32(&n->owner, a->self);
    SHMSYNC_CRASHPOINT("arena.node.owned");
    shmi_st64(&n->object, 0);
    shmi_st64(&n->list, 0);
    *node = n;
    return shmi_publish(a, *off, SHMI_blockNode);
}

SHMI_FN void shmi_reset_node(shmsync_arena *a, shmi_off off)
{
    shmi_node *n = shmi_node_ptr(a, off);
    uint32_t w;
    shmi_st32(&n->owner, 0);
    shmi_st64(&n->object, 0);
    shmi_st64(&n->list, 0);
    shmi_st64(&n->stamp, 0);
    for (w = shmi_node_load(n); shmi_node_state(w) != SHMI_NodeFree && !shmi_node_swap(n, w, shmi_node_freed(w)); w = shmi_node_load(n)) {
    }
}

/* Frees a node that is on no list, whatever participant owns it. */
SHMI_FN int shmi_free_node(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    if (!shmi_locate(a, off, &b) || b.class_ != SHMI_classNode)
        return EPROTO;
    shmi_touch(a, b.chunk);
    if (!shmi_block_swap(&b, shmi_make_block(SHMI_blockNode, 0), freeing))
        return EPROTO;
    SHMSYNC_CRASHPOINT("arena.node.freeing");
    shmi_reset_node(a, off);
    SHMSYNC_CRASHPOINT("arena.node.reset");
    shmi_release(a, &b, freeing);
    return 0;
}

/* Frees a node that is on no list and that its owner does not need any more. Several participants may try: the
 * participant that makes itself the owner by CAS frees the node. The parameter owner may name a reaper that made itself
 * the owner and died before it freed the node. While this thread is stopped, other processes may free the node and
 * claim it again. So the node is freed only if it is in use, and still in the same use. */
SHMI_FN void shmi_reap_node(shmsync_arena *a, shmi_off off, shmi_participant_id owner)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_block b;
    uint32_t w;
    if (n == NULL || owner == 0 || !shmi_locate(a, off, &b))
        return; /* owner 0: another participant is about to free the node, or it is free */
    w = shmi_node_load(n);
    shmi_touch(a, b.chunk); /* so that the reaper of this participant looks for the node */
    if (shmi_node_owner(n) == owner && shmi_cas32(&n->owner, owner, a->self)) {
        SHMSYNC_CRASHPOINT("arena.node.inherited");
        if (shmi_ld32(b.word) == shmi_make_block(SHMI_blockNode, 0) && ((shmi_node_load(n) ^ w) & ~15u) == 0)
            shmi_free_node(a, off);
    }
}
/* As shmi_reap_node, for a node that other processes may free at the same time. The node is freed only if it is still
 * in the use that it had when its word was w, is on no queue, and has a dead owner. */
SHMI_FN void shmi_reap_node_in(shmsync_arena *a, shmi_off off, shmi_participant_id owner, uint32_t w)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_act act;
    shmi_begin_act(a, &act, owner);
    if (n != NULL && ((shmi_node_load(n) ^ w) & ~15u) == 0 && !shmi_node_on_queue(n) && shmi_act_holds(a, &act, owner, 0))
        shmi_reap_node(a, off, owner);
    shmi_end_act(a, &act);
}
/* Frees a node of a dead participant after the node was taken off its recorded queue. The parameter next is the value
 * that the field of this name got then. If several participants try, only one frees the node. If the wait was resolved,
 * a participant may be about to put the node on the ready stack of the dead participant. Then shmi_free_nodes_of frees
 * the node later. */
SHMI_FN void shmi_reap_removed(shmsync_arena *a, shmi_off off, shmi_participant_id owner, uint64_t next)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_act act;
    shmi_begin_act(a, &act, owner);
    if (n != NULL && (shmi_ld64(&n->stamp) & SHMI_RECORDED_STAMP) != 0 && shmi_ld64(&n->next) == next && shmi_act_holds(a, &act, owner, 0) &&
        (shmi_node_state(shmi_node_load(n)) != SHMI_NodeResolved || shmi_all_told(a)))
        shmi_reap_node(a, off, owner);
    shmi_end_act(a, &act);
}
/* Makes this participant the owner of a node, in place of the participant owner, which does not need the node any more.
 * Returns 0 if the node has another owner. */
SHMI_FN int shmi_take_node(shmsync_arena *a, shmi_off off, shmi_participant_id owner)
{
    shmi_node *n = shmi_node_at(a, off);
    if (n == NULL || !shmi_cas32(&n->owner, owner, a->self))
        return 0;
    SHMSYNC_CRASHPOINT("arena.node.reclaimed");
    return 1;
}
/* Calls f for each node in use. */
SHMI_FN void shmi_each_node(shmsync_arena *a, void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    uint64_t i, k;
    for (i = 0; i < a->geo.chunk_count; i++) {
        if (!shmi_chunk_slab_of(shmi_load_chunk(a, i), SHMI_classNode))
            continue;
        shmi_worked(a, shmi_blocks_of(SHMI_classNode));
        for (k = 0; k < shmi_blocks_of(SHMI_classNode); k++) {
            shmi_off off = shmi_chunk_off(a, i) + k * SHMI_nodeSize;
            if (shmi_ld32(shmi_block_word(a, i, k)) == shmi_make_block(SHMI_blockNode, 0))
                f(a, off, shmi_node_ptr(a, off), arg);
        }
    }
}

/* ---- Poller nodes. Goroutines do not sleep in the kernel: the poller of their process sleeps for them. A releaser
 * finds this poller by a poller node. The threads of a C process sleep in the kernel themselves, so a C process has no
 * poller node, but it wakes the pollers of Go processes. ---- */

/* Visits a list of nodes until f returns 0. EPROTO: the list contains something that is not a node, or does not
 * end. Brent's method finds a cycle, and the number of nodes that the arena can have bounds the walk. */
SHMI_FN int shmi_walk(shmsync_arena *a, const uint64_t *head, int (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    shmi_off anchor = 0, off = shmi_ld64(head);
    uint64_t steps = 0, lap = 1;
    while (off != 0) {
        shmi_node *n = shmi_node_at(a, off);
        if (n == NULL || off == anchor || steps > a->geo.chunk_count * SHMI_blockWords)
            return EPROTO;
        if (steps == lap) {
            anchor = off;
            lap *= 2;
        }
        steps++;
        if (!f(a, off, n, arg))
            return 0;
        off = shmi_ld64(&n->next);
    }
    return 0;
}

/* Changes a doorbell and wakes all sleepers on it. */
SHMI_FN void shmi_ring(uint32_t *doorbell)
{
    shmi_add32(doorbell, 1);
    shmi_wake(doorbell, SHMI_ALL);
}

SHMI_FN void shmi_push_ready(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_participant_id owner)
{
    uint64_t *head = shmi_slot64(a, shmi_id_slot(owner), SHMI_slotReady);
    uint64_t next;
    do {
        next = shmi_ld64(head);
        shmi_st64(&n->ready_next, next);
    } while (!shmi_cas64(head, next, off));
    SHMSYNC_CRASHPOINT("arena.ready.pushed");
    shmi_ring(shmi_slot32(a, shmi_id_slot(owner), SHMI_slotDoorbell));
}

/* Changes a node from waiting to ready, puts it on the ready stack of its owner, and rings the owner's doorbell. */
SHMI_FN int shmi_ready(shmsync_arena *a, shmi_off off, shmi_node *n)
{
    shmi_participant_id owner;
    int done = 0;
    if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeWaiting)
        return 0;
    shmi_begin_tell(a);
    if (shmi_current(a, shmi_node_owner(n)) && shmi_node_move(n, SHMI_NodeWaiting, SHMI_NodeReady)) {
        owner = shmi_node_owner(n); /* a ready node keeps its owner */
        if (shmi_current(a, owner)) {
            SHMSYNC_CRASHPOINT("arena.ready.marked");
            shmi_push_ready(a, off, n, owner);
            done = 1;
        }
    }
    shmi_end_tell(a);
    return done;
}

/* Puts a resolved node, whose owner was parked, on the ready stack of that owner, and rings the owner's doorbell. Only
 * the granter that resolved the node calls this function, and only once. It called shmi_begin_tell before it resolved
 * the node, and calls shmi_end_tell later. The parameter owner is the owner at the time of the grant. If that owner has
 * died, the node may have a new owner by now, and the call does nothing. */
SHMI_FN void shmi_tell(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_participant_id owner)
{
    if (shmi_current(a, owner))
        shmi_push_ready(a, off, n, owner);
}

typedef struct shmi_ready_visit {
    uint32_t count, skip;
    int done;
    shmi_participant_id who;
} shmi_ready_visit;
SHMI_FN int shmi_ready_count(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)off;
    if (shmi_node_state(shmi_node_load(n)) == SHMI_NodeWaiting && shmi_current(a, shmi_node_owner(n)))
        ((shmi_ready_visit *)arg)->count++;
    return 1;
}
SHMI_FN int shmi_ready_nth(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_ready_visit *v = (shmi_ready_visit *)arg;
    if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeWaiting || !shmi_current(a, shmi_node_owner(n)))
        return 1;
    if (v->skip > 0) {
        v->skip--;
        return 1;
    }
    v->done = shmi_ready(a, off, n);
    return !v->done;
}
SHMI_FN int shmi_ready_any(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)arg;
    shmi_ready(a, off, n);
    return 1;
}
SHMI_FN int shmi_ready_who(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_ready_visit *v = (shmi_ready_visit *)arg;
    if (shmi_node_owner(n) == v->who)
        v->done = shmi_ready(a, off, n);
    return !v->done;
}

/* Makes one of the waiting poller nodes of a list ready. Returns whether there was one. */
SHMI_FN int shmi_ready_one(shmsync_arena *a, const uint64_t *head, uint32_t turn)
{
    int tries;
    for (tries = 0; tries < 3; tries++) {
        shmi_ready_visit v = {0, 0, 0, 0};
        shmi_walk(a, head, shmi_ready_count, &v);
        if (v.count == 0)
            return 0;
        v.skip = turn % v.count;
        shmi_walk(a, head, shmi_ready_nth, &v);
        if (v.done)
            return 1;
        turn = 0;
    }
    return 0;
}
SHMI_FN void shmi_ready_all(shmsync_arena *a, const uint64_t *head) { shmi_walk(a, head, shmi_ready_any, NULL); }
/* Makes the poller node of one participant ready. */
SHMI_FN int shmi_ready_of(shmsync_arena *a, const uint64_t *head, shmi_participant_id who)
{
    shmi_ready_visit v = {0, 0, 0, 0};
    v.who = who;
    shmi_walk(a, head, shmi_ready_who, &v);
    return v.done;
}

/* ---- Nodes of the dead ---- */

typedef struct shmi_find_visit {
    shmi_off off;
    uint64_t *left;
    int found;
} shmi_find_visit;
SHMI_FN int shmi_find_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_find_visit *v = (shmi_find_visit *)arg;
    (void)a;
    (void)n;
    v->found = v->found || off == v->off;
    if (*v->left > 0)
        --*v->left;
    return !v->found && *v->left > 0;
}
/* Whether the node at the offset off is on the list whose head is at the offset list. *left is the number of steps that
 * the function may make. If they do not suffice, a peer has overwritten the list, and the answer is yes. */
SHMI_FN int shmi_on_list(shmsync_arena *a, shmi_off list, shmi_off off, uint64_t *left)
{
    shmi_block b;
    shmi_find_visit v;
    v.off = off;
    v.left = left;
    v.found = 0;
    if (*left == 0)
        return 1;
    if (shmi_within(a, list, 8, 8) && shmi_holding(a, list, &b) && shmi_block_kind(shmi_ld32(b.word)) == SHMI_blockObject)
        shmi_walk(a, shmi_u64(a, list), shmi_find_one, &v);
    return v.found || *left == 0;
}

SHMI_FN int shmi_is_object(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    return shmi_locate(a, off, &b) && shmi_block_kind(shmi_ld32(b.word)) == SHMI_blockObject;
}

/* Keeps the block at off from being reused until shmi_unguard. After the call, the caller must check again that the
 * block is still the object that it wants. */
SHMI_FN void shmi_guard(shmsync_arena *a, shmi_off off) { shmi_st64(shmi_slot64(a, a->my_slot, SHMI_slotOpening), off); }
SHMI_FN void shmi_unguard(shmsync_arena *a) { shmi_guard(a, 0); }

/* A poller node that is ready and has no owner. The owner died while the node was not on the ready stack of the owner.
 * A releaser may be about to put the node on that stack. */
typedef struct shmi_orphan {
    shmi_off off;
    uint32_t word;
    int on;
} shmi_orphan;

typedef struct shmi_dead_nodes {
    shmi_participant_id dead;
    uint64_t left;
    int told; /* no process will put a resolved or ready node on a stack any more */
    shmi_orphan orphans[64]; /* if there are more, they wait for the next death */
    unsigned n_orphans;
} shmi_dead_nodes;

/* Whether the node want is on the ready stack of n. */
SHMI_FN int shmi_stacked(shmsync_arena *a, shmi_participant_id n, shmi_off want, uint64_t *left)
{
    shmi_off anchor = 0, off = shmi_ld64(shmi_slot64(a, shmi_id_slot(n), SHMI_slotReady));
    uint64_t steps = 0, lap = 1;
    while (off != 0 && *left > 0) {
        shmi_node *node = shmi_node_at(a, off);
        if (off == want)
            return 1;
        if (node == NULL || off == anchor)
            return 0;
        if (steps == lap) {
            anchor = off;
            lap *= 2;
        }
        steps++;
        --*left;
        off = shmi_ld64(&node->ready_next);
    }
    return 0;
}

/* Whether the node is resolved, and its granter may not have told the owner yet. The node may have been resolved after
 * d->told was set. */
SHMI_FN int shmi_untold(shmsync_arena *a, const shmi_dead_nodes *d, shmi_node *n)
{
    return shmi_node_state(shmi_node_load(n)) == SHMI_NodeResolved && !(d->told && shmi_all_told(a));
}

/* Completes the last change of the object of a node, and guards the object. Returns 0 if that was not possible. */
SHMI_FN int shmi_complete_object_of(shmsync_arena *a, const shmi_node *n)
{
    shmi_off object = shmi_ld64(&n->object);
    int done;
    shmi_guard(a, object);
    if (shmi_ld64(&n->object) != object)
        return 0;
    shmi_begin_tell(a); /* if this process dies after it has resolved waits and before it has woken their owners, its reaper wakes all owners */
    done = shmi_complete_object(a, object);
    shmi_end_tell(a);
    return done;
}
/* Whether the node of a dead participant is on no queue and stays so: no change of its object will put it on a queue or
 * resolve its wait. The owner of the node is not current, so the owner changes nothing any more. If this process does
 * not know the kind of the object, or finds the object corrupt, it returns 0 and leaves the node to other processes.
 * The call may leave the object guarded.
 *
 * A record that is committed and not complete may still have to change the node. There are two cases. If the state of
 * the wait, in the field next, is 0, the record may have to put the node on a queue. If the state says that the wait
 * has ended, the record may have to resolve the node. In both cases this function first completes the record. Another
 * process may complete the record at any time, so each round of the loop decides by one load of the state. */
SHMI_FN int shmi_off_queue(shmsync_arena *a, shmi_node *n)
{
    int joined = 0, ended = 0; /* in each case, whether this function has completed the record */
    for (;;) {
        uint64_t v = shmi_ld64(&n->next) >> 32;
        int *completed = v == 0 ? &joined : &ended;
        if ((shmi_ld64(&n->stamp) & SHMI_RECORDED_STAMP) == 0)
            return 1;
        if (v == SHMI_RECORDED_OWES || shmi_recorded_queued(v))
            return 0;
        if (*completed || (v != 0 && ((v != SHMI_RECORDED_GRANTED && v != SHMI_RECORDED_REFUSED) || !shmi_node_queued(shmi_node_load(n)))))
            return 1;
        if (!shmi_complete_object_of(a, n))
            return 0;
        *completed = 1;
    }
}

SHMI_FN void shmi_free_dead_node(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_dead_nodes *d = (shmi_dead_nodes *)arg;
    shmi_participant_id owner = shmi_node_owner(n);
    shmi_off object, list;
    uint32_t w;
    int there;
    if (owner != d->dead) {
        list = shmi_ld64(&n->list);
        w = shmi_node_load(n);
        if (owner == 0 && list != 0 && shmi_node_state(w) != SHMI_NodeFree && shmi_node_owner(n) == 0) {
            if (d->n_orphans < sizeof d->orphans / sizeof d->orphans[0]) {
                shmi_orphan *s = &d->orphans[d->n_orphans++];
                s->off = off;
                s->word = w;
                s->on = 0;
            }
        } else if (owner != 0 && list == 0 && !shmi_node_on_queue(n) && !shmi_current(a, owner) &&
                   shmi_off_queue(a, n) && !shmi_untold(a, d, n)) {
            /* The owner of the node was reaped. The participant that then took the node off its queue has died before
             * it gave the node back, or is about to give the node back. shmi_forget_wait checks for the guard. */
            shmi_guard(a, shmi_ld64(&n->object));
            shmi_reap_node_in(a, off, owner, w);
        }
        return;
    }
    /* While the object is guarded, no process deletes it and frees its nodes. */
    object = shmi_ld64(&n->object);
    shmi_guard(a, object);
    w = shmi_node_load(n);
    if (shmi_node_owner(n) != d->dead || shmi_ld64(&n->object) != object)
        return;
    there = object != 0 && shmi_is_object(a, object);
    list = shmi_ld64(&n->list);
    if (list == 0 && there && !shmi_off_queue(a, n))
        return; /* the node is on a queue, or may get there: the functions of the object's kind take it off and give it back */
    if (list == 0 && shmi_untold(a, d, n))
        return; /* its granter may still put it on the ready stack of the slot, which must not happen when a successor has the slot */
    if (list == 0) {
        shmi_reap_node(a, off, d->dead);
    } else if (there && !shmi_on_list(a, list, off, &d->left)) {
        shmi_free_node(a, off);
    } else if (there) {
        /* A node that is not ready is freed, too: the dead participant may have taken it off its stack. */
        if (d->told || shmi_stacked(a, d->dead, off, &d->left)) {
            while (shmi_node_state(w) != SHMI_NodeFree && shmi_node_owner(n) == d->dead && !shmi_node_swap(n, w, shmi_node_freed(w)))
                w = shmi_node_load(n);
        }
        shmi_cas32(&n->owner, d->dead, 0);
    }
}

/* Frees the orphaned nodes that are on no stack and that no participant will put on one any more. */
SHMI_FN void shmi_take_orphans(shmsync_arena *a, shmi_dead_nodes *d)
{
    uint64_t left = UINT64_C(1) << 20;
    uint32_t i;
    unsigned k;
    if (d->n_orphans == 0 || !shmi_await_told(a))
        return;
    for (i = 1; i <= a->geo.slots; i++) {
        shmi_participant_id n = shmi_id_in(i, shmi_slot_state(a, i)); /* a participant that joins later begins with an empty stack */
        if (!shmi_current(a, n))
            continue;
        for (k = 0; k < d->n_orphans; k++)
            d->orphans[k].on = d->orphans[k].on || shmi_stacked(a, n, d->orphans[k].off, &left);
    }
    if (left == 0 || !shmi_all_told(a))
        return; /* the steps did not suffice, or a releaser may have emptied a stack and still have its nodes */
    for (k = 0; k < d->n_orphans; k++)
        if (!d->orphans[k].on)
            shmi_node_swap(shmi_node_ptr(a, d->orphans[k].off), d->orphans[k].word, shmi_node_freed(d->orphans[k].word));
}

/* Gives back the nodes of a dead participant. Poller nodes stay on the lists of their objects, for the next
 * participant that needs one. The caller is the reaper, as for shmi_reclaim_blocks. If some participant may be about
 * to put a node on the ready stack of the dead participant, that node stays until the next death. */
SHMI_FN void shmi_free_nodes_of(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_dead_nodes d;
    uint64_t i;
    memset(&d, 0, sizeof d);
    d.dead = dead;
    d.left = 1 << 16;
    pthread_mutex_lock(&a->handles);
    d.told = shmi_await_told(a);
    for (i = 0; i < a->geo.chunk_count; i++)
        if (shmi_chunk_slab_of(shmi_load_chunk(a, i), SHMI_classNode))
            d.left += 64 * shmi_blocks_of(SHMI_classNode);
    shmi_each_node(a, shmi_free_dead_node, &d);
    shmi_take_orphans(a, &d);
    shmi_unguard(a);
    pthread_mutex_unlock(&a->handles);
}

/* Whether the participant owner, which owns the node, is dead, and no process is about to tell it that its wait is
 * over. */
SHMI_FN int shmi_orphaned(shmsync_arena *a, shmi_node *n, shmi_participant_id owner)
{
    return owner != 0 && !shmi_current(a, owner) &&
           (shmi_node_state(shmi_node_load(n)) != SHMI_NodeResolved || shmi_all_told(a));
}

/* Whether the node is still in the use that it had when its word was w: no process has freed it since. */
SHMI_FN int shmi_same_use(shmi_node *n, uint32_t w) { return ((shmi_node_load(n) ^ w) & ~15u) == 0; }

/* Gives up the wait of a node whose object is deleted. The owner has given up the wait, but has not freed the node,
 * because a queue of the object might still name the node: see forgetWait in internal/arenakernel/node.go. If the owner
 * dies, its reaper may free the node at any time, and another participant may use the node for another object. So this
 * function reads the object after the other words of the node, and changes each word only if the word still has the
 * value that was read.
 *
 * The owner may also be a reaper, or a participant that leaves. Such a participant guards the object, makes itself the
 * owner by CAS, and frees the node. So this process makes itself the owner and frees the node only if no participant
 * guards the object and the node is still in the same use. The comment in Go has the proof. */
SHMI_FN void shmi_forget_wait(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_off object)
{
    shmi_participant_id owner;
    uint64_t stamp;
    uint32_t w, state;
    shmi_begin_tell(a); /* until shmi_end_tell, no new participant gets the ID of the owner */
    owner = shmi_node_owner(n);
    stamp = shmi_ld64(&n->stamp);
    w = shmi_node_load(n);
    state = shmi_node_state(w);
    /* If the owner is 0, another participant is freeing the node. If the node has another object, it has another wait
     * by now. The guard is read first. Whether the node is still in the same use is checked last. */
    if (owner != 0 && !shmi_guarded(a, object) && shmi_ld64(&n->object) == object && shmi_same_use(n, w)) {
        if (state == SHMI_NodeResolved) {
            shmi_cas64(&n->stamp, stamp, 0);
        } else if (state == SHMI_NodeLeft && shmi_take_node(a, off, owner)) {
            if (shmi_guarded(a, object))
                shmi_cas64(&n->stamp, stamp, 0);
            else if (shmi_same_use(n, w))
                shmi_free_node(a, off);
        }
    }
    shmi_end_tell(a);
}

/* Frees a node of an object that this process deletes. The parameter owner is the dead participant that owns the
 * node. */
SHMI_FN void shmi_reap_node_of(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_off object, shmi_participant_id owner)
{
    shmi_act act;
    shmi_begin_act(a, &act, owner);
    if (shmi_ld64(&n->object) == object && shmi_act_holds(a, &act, owner, 0))
        shmi_reap_node(a, off, owner);
    shmi_end_act(a, &act);
}
SHMI_FN void shmi_free_node_at(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_off object = *(shmi_off *)arg;
    shmi_participant_id owner = shmi_node_owner(n); /* one load, because a reaper may make itself the owner of a dead participant's node */
    /* This function reads the field list before the field object. If the node becomes a poller node of another object
     * meanwhile, its owner stores object before list. So this function never takes a list of another object for one of
     * this object. */
    uint64_t list = shmi_ld64(&n->list);
    if (shmi_ld64(&n->object) != object)
        return;
    if (list != 0)
        shmi_free_node(a, off);
    else if (shmi_ld64(&n->stamp) != 0 && shmi_orphaned(a, n, owner))
        shmi_reap_node_of(a, off, n, object, owner); /* the reaper of the owner may be about to free the node, too */
    else if (shmi_ld64(&n->stamp) != 0)
        shmi_forget_wait(a, off, n, object);
}
/* Gives back the nodes of an object that no participant has open. */
SHMI_FN void shmi_free_nodes_at(shmsync_arena *a, shmi_off object) { shmi_each_node(a, shmi_free_node_at, &object); }

SHMI_FN void shmi_wake_resolved_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)a;
    (void)off;
    (void)arg;
    if (shmi_node_state(shmi_node_load(n)) == SHMI_NodeResolved)
        shmi_wake(&n->word, SHMI_ALL);
}
/* Wakes the sleepers on nodes whose wait is over: a participant may have resolved the wait, and died before it woke
 * the owner. */
SHMI_FN void shmi_wake_resolved(shmsync_arena *a) { shmi_each_node(a, shmi_wake_resolved_one, NULL); }

/* ---- Waits of the dead in recorded queues: see internal/arenakernel/node_dead.go ----
 *
 * A participant that dies may leave a wait that has to pass something on, such as a wake, to another wait of the
 * object. To find these waits, a process makes a list of the nodes of all dead participants, once after each death. The
 * list stays complete, because a dead participant claims no node. */

/* A hash of the states and windows of all slots. It changes with each death, join and leave. */
SHMI_FN uint64_t shmi_slots_sum(const shmsync_arena *a)
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325); /* basis and prime are those of FNV-1a */
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        sum = (sum ^ shmi_slot_state(a, i)) * UINT64_C(0x100000001b3);
        sum = (sum ^ shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow))) * UINT64_C(0x100000001b3);
    }
    return sum;
}
/* Whether the node may be a wait in a recorded queue whose owner is dead. The parameter leaving is the ID of this
 * participant if it is leaving, otherwise 0. */
SHMI_FN int shmi_node_waited(const shmsync_arena *a, const shmi_node *n, shmi_participant_id leaving)
{
    shmi_participant_id owner = shmi_node_owner(n);
    return owner != 0 && shmi_ld64(&n->list) == 0 && (shmi_ld64(&n->stamp) & SHMI_RECORDED_STAMP) != 0 &&
           (owner == leaving || !shmi_current(a, owner));
}
/* ---- Lists that are sorted by a key. They are made while a record lock is held, possibly by a signal handler, so they
 * use neither malloc nor qsort. ---- */

/* Memory for a list with room for n entries, or NULL. */
SHMI_FN shmi_keyed *shmi_map_list(uint64_t n)
{
    int before = errno;
    void *p = n > SIZE_MAX / sizeof(shmi_keyed) ? MAP_FAILED : mmap(NULL, (size_t)n * sizeof(shmi_keyed), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    errno = before;
    return p == MAP_FAILED ? NULL : (shmi_keyed *)p;
}
SHMI_FN void shmi_unmap_list(shmi_keyed *at, uint64_t n)
{
    int before = errno;
    munmap(at, (size_t)n * sizeof *at);
    errno = before;
}
/* Moves entry i of a heap down to its place. In a heap, no entry has a smaller key than the entries 2i+1 and 2i+2. */
SHMI_FN void shmi_sift(shmi_keyed *at, uint64_t i, uint64_t n)
{
    shmi_keyed x = at[i];
    uint64_t c;
    for (; (c = 2 * i + 1) < n; i = c) {
        if (c + 1 < n && at[c + 1].key > at[c].key)
            c++;
        if (at[c].key <= x.key)
            break;
        at[i] = at[c];
    }
    at[i] = x;
}
SHMI_FN void shmi_make_heap(shmi_keyed *at, uint64_t n)
{
    uint64_t i;
    for (i = n / 2; i > 0; i--)
        shmi_sift(at, i - 1, n);
}
/* Sorts a list by its keys. The number of steps is about n log n. */
SHMI_FN void shmi_sort_list(shmi_keyed *at, uint64_t n)
{
    shmi_make_heap(at, n);
    for (; n > 1; n--) {
        shmi_keyed x = at[0];
        at[0] = at[n - 1];
        at[n - 1] = x;
        shmi_sift(at, 0, n - 1);
    }
}
/* The index of the first entry of a sorted list whose key is not less than the parameter key. */
SHMI_FN uint64_t shmi_find_key(const shmi_keyed *at, uint64_t n, uint64_t key)
{
    uint64_t from = 0;
    while (from < n) {
        uint64_t mid = from + (n - from) / 2;
        if (at[mid].key < key)
            from = mid + 1;
        else
            n = mid;
    }
    return from;
}

SHMI_FN void shmi_list_dead_wait(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_dead_waits *l = (shmi_dead_waits *)arg;
    if (!shmi_node_waited(a, n, l->leaving))
        return;
    if (l->n < l->room) {
        l->at[l->n].key = shmi_ld64(&n->object);
        l->at[l->n].off = off;
    }
    l->n++;
}
SHMI_FN void shmi_free_dead_waits(shmi_dead_waits *l)
{
    if (l->at != NULL && l->at != l->few)
        shmi_unmap_list(l->at, l->room);
    l->at = NULL;
}
/* Makes the list. If there are more nodes than the list has room for, it first counts them. Without memory for all, the
 * list is incomplete. */
SHMI_FN void shmi_list_dead_waits(shmsync_arena *a, shmi_dead_waits *l)
{
    shmi_keyed *more;
    shmi_free_dead_waits(l);
    l->at = l->few;
    l->room = SHMI_deadWaits;
    l->n = 0;
    shmi_each_node(a, shmi_list_dead_wait, l);
    if (l->n > l->room && (more = shmi_map_list(l->n)) != NULL) {
        l->at = more;
        l->room = l->n;
        l->n = 0;
        shmi_each_node(a, shmi_list_dead_wait, l);
    }
    if (l->n <= l->room)
        shmi_sort_list(l->at, l->n);
}

typedef struct shmi_dead_wait_visit {
    shmi_off object;
    shmi_participant_id leaving;
    void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg);
    void *arg;
} shmi_dead_wait_visit;
SHMI_FN void shmi_visit_dead_wait(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_dead_wait_visit *v = (shmi_dead_wait_visit *)arg;
    if (shmi_ld64(&n->object) == v->object && shmi_node_waited(a, n, v->leaving))
        v->f(a, off, n, v->arg);
}
/* Calls f for each node of an object that may be a wait of a dead participant, or of this participant if it is leaving.
 * The caller holds record_locks[lock]. */
SHMI_FN void shmi_each_dead_wait(shmsync_arena *a, uint32_t lock, shmi_off object, shmi_participant_id leaving,
                                 void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    shmi_dead_waits *l = &a->dead_waits[lock];
    /* The sum is computed before the nodes are read: if a participant dies meanwhile, the next call finds another sum.
     */
    uint64_t sum = shmi_slots_sum(a);
    shmi_dead_wait_visit v;
    uint64_t i;
    v.object = object;
    v.leaving = leaving;
    v.f = f;
    v.arg = arg;
    if (!l->made || l->sum != sum || l->leaving != leaving) {
        l->made = 1;
        l->sum = sum;
        l->leaving = leaving;
        shmi_list_dead_waits(a, l);
    }
    if (l->n > l->room) { /* the list has no room for all */
        shmi_each_node(a, shmi_visit_dead_wait, &v);
        return;
    }
    for (i = shmi_find_key(l->at, l->n, object); i < l->n && l->at[i].key == object; i++) {
        shmi_node *n = shmi_node_at(a, l->at[i].off);
        if (n != NULL)
            shmi_visit_dead_wait(a, l->at[i].off, n, &v);
    }
}
