/* ---- Wait nodes: each is one wait of a thread in a queue ---- */

/* The first tag in the words of a node that this process has just claimed. The tag is random: a process that was
 * stopped while the node had an earlier owner remembers a tag of that time, and must not find it again. */
SHMI_FN uint32_t shmi_first_tag(void)
{
    static uint64_t turns; /* atomic */
    uint32_t tag = 0; /* 0, because a sanitizer does not see that the kernel writes it */
    if (syscall(SYS_getrandom, &tag, sizeof tag, 0) == (long)sizeof tag)
        return tag;
    return (uint32_t)((((uint64_t)shmi_now() + shmi_add64(&turns, 1)) * UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

enum {
    SHMI_freeKept = 256,    /* how many free wait nodes a process keeps at least */
    SHMI_freeAtOnce = 2048  /* how many it gives back at a time; that takes less than a millisecond */
};
#ifndef SHMI_FREE_PERIOD /* tests make it shorter */
#define SHMI_FREE_PERIOD INT64_C(5000000000) /* ns */
#endif

/* Gets a wait node for one wait. The node in the arena that belongs to the wait node is idle. */
SHMI_FN int shmi_wait_node_take(shmsync_arena *a, shmi_wait_node **out)
{
    shmi_wait_node *s;
    int err;
    pthread_mutex_lock(&a->wait_nodes_lock);
    s = a->wait_nodes;
    if (s != NULL) {
        a->wait_nodes = s->next;
        if (--a->free_nodes < a->fewest_nodes)
            a->fewest_nodes = a->free_nodes;
    }
    pthread_mutex_unlock(&a->wait_nodes_lock);
    if (s == NULL) {
        s = (shmi_wait_node *)calloc(1, sizeof *s);
        if (s == NULL)
            return shmi_fail(ENOMEM, "wait node", a->label, "%s", "");
        err = shmi_claim_node(a, &s->off, &s->node);
        if (err != 0) {
            free(s);
            return err;
        }
        s->next_tag = s->extra_tag = shmi_first_tag();
    }
    s->since = 0;
    *out = s;
    return 0;
}
/* Gives back a wait node that was never queued, or whose node is idle again. */
SHMI_FN void shmi_wait_node_return(shmsync_arena *a, shmi_wait_node *s)
{
    int many;
    pthread_mutex_lock(&a->wait_nodes_lock);
    s->next = a->wait_nodes;
    a->wait_nodes = s;
    many = ++a->free_nodes > SHMI_freeKept && a->many_nodes == 0;
    if (many)
        shmi_st32(&a->many_nodes, 1);
    pthread_mutex_unlock(&a->wait_nodes_lock);
    if (many)
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell)); /* the watcher gives nodes back from now on */
}

/* ---- What a process gives back after a crowd of waiters has gone: internal/park/pool_shrink.go in C ----
 *
 * Other processes can use the nodes then, and a visit of all nodes in use becomes shorter. A free wait node is idle,
 * its stamp is 0, and it is on no list, so no process refers to it. */

/* Takes a free wait node from the list of this process, if it has more than it keeps. */
SHMI_FN shmi_wait_node *shmi_take_surplus(shmsync_arena *a)
{
    shmi_wait_node *s = NULL;
    pthread_mutex_lock(&a->wait_nodes_lock);
    if (a->free_nodes > SHMI_freeKept) {
        s = a->wait_nodes;
        a->wait_nodes = s->next;
        if (--a->free_nodes < a->fewest_nodes)
            a->fewest_nodes = a->free_nodes;
    }
    pthread_mutex_unlock(&a->wait_nodes_lock);
    return s;
}
/* Begins a period at the time now. Nodes that no wait has needed in the last period are surplus. Returns 0 if this
 * process has so few free nodes that no other period has to follow. */
SHMI_FN int shmi_begin_period(shmsync_arena *a, int64_t now)
{
    int many;
    pthread_mutex_lock(&a->wait_nodes_lock);
    a->surplus_nodes = a->nodes_period != 0 && a->fewest_nodes > SHMI_freeKept ? a->fewest_nodes - SHMI_freeKept : 0;
    a->fewest_nodes = a->free_nodes;
    many = a->free_nodes > SHMI_freeKept;
    if (!many)
        shmi_st32(&a->many_nodes, 0);
    a->nodes_period = many ? now + SHMI_FREE_PERIOD : 0;
    pthread_mutex_unlock(&a->wait_nodes_lock);
    return many;
}
/* Gives nodes back if it is time. Returns the time of the next call; 0: not before the watcher's doorbell rings. The death
 * watcher calls this. */
SHMI_FN int64_t shmi_shrink_nodes(shmsync_arena *a, int64_t at)
{
    shmi_wait_node *s;
    int64_t now;
    if (shmi_ld32(&a->many_nodes) == 0)
        return 0;
    now = shmi_now();
    if (now < at)
        return at;
    if (now >= a->nodes_period && !shmi_begin_period(a, now))
        return 0;
    if (a->surplus_nodes > 0) {
        uint32_t n = a->surplus_nodes < SHMI_freeAtOnce ? a->surplus_nodes : (uint32_t)SHMI_freeAtOnce;
        if (shmi_enter(a, "arena.watch") != 0)
            return 0; /* this process leaves, and frees all its nodes */
        a->surplus_nodes -= n;
        for (; n > 0 && (s = shmi_take_surplus(a)) != NULL; n--) {
            /* the reaper of this participant frees a node that a peer has overwritten */
            if (shmi_node_owner(s->node) == a->self && shmi_ld64(&s->node->list) == 0 && shmi_ld64(&s->node->stamp) == 0 &&
                shmi_node_state(shmi_node_load(s->node)) == SHMI_NodeIdle)
                shmi_free_node(a, s->off);
            free(s);
        }
        shmi_exit(a);
    }
    return a->surplus_nodes > 0 ? now + SHMI_CHECK_EVERY : a->nodes_period;
}

SHMI_FN int shmi_wait_node_resolved(const shmi_wait_node *s) { return shmi_node_state(shmi_node_load(s->node)) == SHMI_NodeResolved; }
SHMI_FN int shmi_wait_node_resolved_arg(void *s) { return shmi_wait_node_resolved((const shmi_wait_node *)s); }

/* Sleeps once on the node, which is on a queue. Returns SHMI_AGAIN when the wait is resolved, or may be resolved. The
 * caller is within shmi_enter, and calls again while the node is not resolved. On SHMI_LATE and SHMI_CLOSED the caller
 * may take the wait off the queue. check makes the periodic check of the object, and sets *looked. */
SHMI_FN int shmi_wait_node_sleep(shmsync_arena *a, shmi_wait_node *s, shmi_off object, int64_t deadline, int64_t *looked, void (*check)(void *), void *check_arg)
{
    uint32_t w = shmi_node_load(s->node);
    shmi_sleep_spec sleep_spec;
    if (shmi_node_state(w) == SHMI_NodeQueued && shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeAsleep)))
        w = shmi_node_with(w, SHMI_NodeAsleep);
    SHMSYNC_CRASHPOINT("park.waitnode.asleep");
    if (shmi_node_state(w) != SHMI_NodeAsleep)
        return SHMI_AGAIN;
    memset(&sleep_spec, 0, sizeof sleep_spec);
    sleep_spec.word = &s->node->word;
    sleep_spec.val = w;
    sleep_spec.object = object;
    sleep_spec.wanted = shmi_ld64(&s->node->wanted);
    sleep_spec.deadline = deadline;
    sleep_spec.since = &s->since;
    sleep_spec.looked = looked;
    sleep_spec.check = check;
    sleep_spec.check_arg = check_arg;
    sleep_spec.own = 1;
    return shmi_sleep(a, &sleep_spec);
}

/* Gives up a wait node that a queue may still name, because a peer has overwritten the queue. No wait uses the node
 * again before this process has left the arena. */
SHMI_FN void shmi_wait_node_forget(shmi_wait_node *s)
{
    uint32_t w;
    do /* this loop ends: besides this thread only a granter changes the word, once, unless a peer overwrites it */
        w = shmi_node_load(s->node);
    while (shmi_node_state(w) != SHMI_NodeResolved && !shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeLeft)));
    free(s);
}
