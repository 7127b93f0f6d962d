/* ---- Seats: where one thread waits for something of its own, in a queue of nodes ---- */

/* Gives a seat for one wait, with its node idle. */
SHMI_FN int shmi_seat_take(shmsync_arena *a, shmi_seat **out)
{
    shmi_seat *s;
    int err;
    pthread_mutex_lock(&a->seats_lock);
    s = a->seats;
    if (s != NULL)
        a->seats = s->next;
    pthread_mutex_unlock(&a->seats_lock);
    if (s == NULL) {
        s = (shmi_seat *)calloc(1, sizeof *s);
        if (s == NULL)
            return shmi_fail(ENOMEM, "seat", a->label, "%s", "");
        err = shmi_claim_node(a, &s->off, &s->node);
        if (err != 0) {
            free(s);
            return err;
        }
    }
    s->since = 0;
    *out = s;
    return 0;
}
/* shmi_seat_take if that takes no new node and no waiting, or NULL. The caller may hold a
 * queue lock: a thread that has seats_lock may be interrupted by a handler that waits for it. */
SHMI_FN shmi_seat *shmi_seat_cached(shmsync_arena *a)
{
    shmi_seat *s;
    if (pthread_mutex_trylock(&a->seats_lock) != 0)
        return NULL;
    s = a->seats;
    if (s != NULL)
        a->seats = s->next;
    pthread_mutex_unlock(&a->seats_lock);
    if (s != NULL)
        s->since = 0;
    return s;
}
/* Gives back a seat that was taken and not queued, or whose node is idle again. */
SHMI_FN void shmi_seat_return(shmsync_arena *a, shmi_seat *s)
{
    pthread_mutex_lock(&a->seats_lock);
    s->next = a->seats;
    a->seats = s;
    pthread_mutex_unlock(&a->seats_lock);
}

SHMI_FN int shmi_seat_resolved(const shmi_seat *s) { return shmi_node_state(shmi_node_load(s->node)) == SHMI_NodeResolved; }
SHMI_FN int shmi_seat_resolved_arg(void *s) { return shmi_seat_resolved((const shmi_seat *)s); }

/* Sleeps once on the node, which is on a queue: SHMI_AGAIN when the wait is resolved or
 * may be. The caller is within shmi_enter, and calls again while the seat is not
 * resolved; on SHMI_LATE and SHMI_CLOSED it abandons the seat, or not. */
SHMI_FN int shmi_seat_sleep(shmsync_arena *a, shmi_seat *s, shmi_off object, int64_t deadline)
{
    uint32_t w = shmi_node_load(s->node);
    shmi_bed bed;
    if (shmi_node_state(w) == SHMI_NodeQueued && shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeAsleep)))
        w = shmi_node_with(w, SHMI_NodeAsleep);
    SHMSYNC_CRASHPOINT("park.seat.asleep");
    if (shmi_node_state(w) != SHMI_NodeAsleep)
        return SHMI_AGAIN;
    memset(&bed, 0, sizeof bed);
    bed.word = &s->node->word;
    bed.val = w;
    bed.object = object;
    bed.wanted = shmi_ld64(&s->node->wanted);
    bed.deadline = deadline;
    bed.since = &s->since;
    return shmi_sleep(a, &bed);
}

/* Ends a wait that nobody has resolved; 0 if somebody has. If not 0 the seat is gone,
 * and the node goes back with whoever takes it off its queue. */
SHMI_FN int shmi_seat_abandon(shmsync_arena *a, shmi_seat *s)
{
    (void)a;
    for (;;) {
        uint32_t w = shmi_node_load(s->node);
        if (shmi_node_state(w) == SHMI_NodeResolved)
            return 0;
        if (shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeLeft)))
            break;
    }
    SHMSYNC_CRASHPOINT("park.seat.given_up");
    free(s);
    return 1;
}

/* Gives the seat back after its wait was resolved. */
SHMI_FN void shmi_seat_leave(shmsync_arena *a, shmi_seat *s)
{
    uint32_t w;
    int i;
    /* Mostly it is off its queue: who resolved it took it off a few instructions later. */
    for (i = 0; i < 200 && shmi_ld64(&s->node->stamp) != 0; i++)
        shmi_pause(2);
    w = shmi_node_load(s->node);
    if (shmi_ld64(&s->node->stamp) == 0) {
        shmi_node_swap(s->node, w, shmi_node_kept(w));
        shmi_seat_return(a, s);
        return;
    }
    /* Whoever resolved it is stopped or dead. The node goes back with who takes it off
     * the queue, and if that has just happened, now. */
    if (shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeSpent)) && shmi_ld64(&s->node->stamp) == 0)
        shmi_reclaim_node(a, s->off, w);
    free(s);
}

