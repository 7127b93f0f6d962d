/* ---- The helper thread: the alive words of this process are on its robust list, and it watches other participants
 * ---- */

#define SHMI_POLL_FIRST INT64_C(300000)
#define SHMI_POLL_MOST INT64_C(50000000)
#define SHMI_STAGGER INT64_C(2000000)
#define SHMI_AFTER_YOU INT64_C(300000)
/* How long a joiner without a byte lock may take from the moment when it takes a slot until its alive words are on its
 * robust list. Until then nothing shows whether the joiner is alive. If the joiner takes longer, others treat it as
 * dead, and its open fails. */
#define SHMI_JOIN_TIMEOUT INT64_C(10000000000)

/* struct robust_list_head of the kernel, and the nodes that it links, on a page of their own. The page is mapped
 * shared, because the kernel's out-of-memory reaper could discard private memory before the kernel walks the list. The
 * page is not a part of the arena, where a peer could overwrite it. */
typedef struct shmi_robust {
    uintptr_t next;
    intptr_t offset; /* distance from a node to its word */
    uintptr_t pending;
    uintptr_t pad_;
    uintptr_t nodes[SHMI_aliveWords];
} shmi_robust;
SHMI_ASSERT(offsetof(shmi_robust, nodes) == 32, "shmi_robust");

/* Registers an empty robust list for the calling thread, which is the helper thread. */
SHMI_FN int shmi_robust_register(shmsync_arena *a)
{
    shmi_robust *r;
    size_t size;
    void *page = mmap(NULL, (size_t)a->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 0;
    r = (shmi_robust *)page;
    r->pending = 0;
    r->next = (uintptr_t)&r->next;
    if (syscall(SYS_get_robust_list, 0, &a->robust_before, &size) != 0 || syscall(SYS_set_robust_list, r, (size_t)24) != 0) {
        munmap(page, (size_t)a->page);
        return 0;
    }
    a->robust = (unsigned char *)page;
    return 1;
}
/* Puts the alive words of slot i on the robust list of this process. */
SHMI_FN void shmi_robust_link(shmsync_arena *a, uint32_t i)
{
    shmi_robust *r = (shmi_robust *)(void *)a->robust;
    unsigned k;
    r->offset = (intptr_t)((uintptr_t)shmi_alive_word(a, i, 0) - (uintptr_t)&r->nodes[0]);
    r->next = (uintptr_t)&r->next;
    for (k = 0; k < SHMI_aliveWords; k++) { /* each node is put in front of the others, so the kernel marks the last word first */
        r->nodes[k] = r->next;
        r->next = (uintptr_t)&r->nodes[k];
    }
    a->linked = 1;
}
/* Makes the kernel mark the alive words through another mapping of the arena, which begins at base. One store moves all
 * words of the list, so the kernel finds them in one of the two mappings whenever this process dies. */
SHMI_FN void shmi_robust_move(shmsync_arena *a, const unsigned char *base)
{
    shmi_robust *r = (shmi_robust *)(void *)a->robust;
    if (r != NULL && a->linked)
        __atomic_store_n(&r->offset, r->offset + (intptr_t)((uintptr_t)base - (uintptr_t)a->base), __ATOMIC_RELEASE);
}
SHMI_FN void shmi_robust_unregister(shmsync_arena *a)
{
    shmi_robust *r = (shmi_robust *)(void *)a->robust;
    if (r == NULL)
        return;
    r->next = (uintptr_t)&r->next;
    /* Registers the list of the C library again, because the C library links its own robust mutexes to that list. */
    syscall(SYS_set_robust_list, a->robust_before, (size_t)24);
    munmap(a->robust, (size_t)a->page);
    a->robust = NULL;
}

/* Asks for a short scheduling slice, which Linux supports since 6.12. Then the helper thread runs soon after a death
 * has woken it, even on the CPU where the kernel is still taking the dying process apart. */
SHMI_FN void shmi_prompt_thread(void)
{
    const uint64_t slice = 100000; /* ns, the least that the scheduler takes */
    /* the helper thread checks whether a dead process is gone every 50 us with exact sleeps, and every 100 us without
     */
    shmi_thread_of_library->slack = shmi_begin_exact_sleeps();
    shmi_thread_of_library->slice = shmi_set_slice(slice, slice);
}

/* Marks the alive words of slot i, in state w, as the kernel would do at the death of this process: see markAlive in
 * internal/arenakernel/enter_live.go. */
SHMI_FN void shmi_mark_alive(shmsync_arena *a, uint32_t i, uint32_t w)
{
    unsigned k;
    for (k = 0; k < SHMI_aliveWords && shmi_slot_state(a, i) == w && (shmi_slot_caps(a, i) & SHMI_capRobust) != 0; k++)
        shmi_cas32(shmi_alive_word(a, i, k), a->alive, SHMI_OWNER_DIED | SHMI_WAITERS);
}
/* Undoes shmi_link_alive, if it was called. A joiner calls this function before it gives slot i back. joining is the
 * state word of the joiner: see unlinkAlive in internal/arenakernel/enter_live.go. */
SHMI_FN void shmi_unlink_alive(shmsync_arena *a, uint32_t i, uint32_t joining)
{
    shmi_robust *r;
    if (!a->linked) /* the watcher may be registering the robust list at the moment */
        return;
    r = (shmi_robust *)(void *)a->robust;
    a->caps &= ~(uint32_t)SHMI_capRobust;
    if (!shmi_publish_caps(a, i, joining))
        shmi_mark_alive(a, i, shmi_slot_with(joining, SHMI_phaseDead));
    r->next = (uintptr_t)&r->next;
    a->linked = 0;
}
/* Makes the kernel mark the alive words of slot i when this process dies, and says so in the capabilities. This joiner
 * has no byte lock, and joining is its state word. Returns 0 if the slot no longer belongs to this joiner: see
 * linkAlive in internal/arenakernel/enter_live.go. */
SHMI_FN int shmi_link_alive(shmsync_arena *a, uint32_t i, uint32_t joining)
{
    unsigned k;
    shmi_robust_link(a, i);
    a->caps |= SHMI_capRobust;
    for (k = 0; k < SHMI_aliveWords; k++) {
        uint32_t *word = shmi_alive_word(a, i, k), was;
        do {
            was = shmi_ld32(word);
            if (shmi_slot_state(a, i) != joining) {
                shmi_unlink_alive(a, i, joining);
                return 0;
            }
        } while (!shmi_cas32(word, was, a->alive));
    }
    /* The state is checked again, because the CAS in shmi_publish_caps also succeeds if the slot was freed meanwhile
     * and no participant has taken it yet. */
    if (shmi_publish_caps(a, i, joining) && shmi_slot_state(a, i) == joining)
        return 1;
    shmi_unlink_alive(a, i, joining);
    return 0;
}

/* Fails a join because another process took the slot away: this joiner had no byte lock and was stopped for too long.
 * The error is not EPROTO, because the arena is not damaged, and EPROTO would let SHMSYNC_RECREATE_CORRUPT replace it.
 */
SHMI_FN int shmi_slot_lost(shmsync_arena *a) { return shmi_fail(ETIMEDOUT, "arena.open", a->label, "a peer took the slot away; open the arena again"); }
/* The part of a join that the helper thread does. */
SHMI_FN int shmi_become_live(shmsync_arena *a)
{
    uint32_t i = a->my_slot, joining = shmi_own_slot_word(a, SHMI_phaseJoining, shmi_id_gen(a->self));
    unsigned k;
    if (a->robust != NULL) {
        if (!a->linked)
            shmi_robust_link(a, i);
        a->caps |= SHMI_capRobust;
    }
    SHMSYNC_CRASHPOINT("arena.enter.registered");
    if (shmi_has(&shmi_have.waitv))
        a->caps |= SHMI_capWaitV;
    if (!shmi_publish_caps(a, i, joining))
        return shmi_slot_lost(a);
    shmi_st32(shmi_slot32(a, i, SHMI_slotTID), (uint32_t)syscall(SYS_gettid));
    for (k = 0; k < SHMI_aliveWords; k++)
        shmi_st32(shmi_alive_word(a, i, k), a->alive);
    SHMSYNC_CRASHPOINT("arena.enter.before_live");
    if (!shmi_cas_slot(a, i, joining, shmi_slot_with(joining, SHMI_phaseLive)))
        return shmi_slot_lost(a);
    SHMSYNC_CRASHPOINT("arena.enter.live");
    return 0;
}

/* Whether the file of the arena is on overlayfs, where shmi_pin_lock has no effect: see losesItsPin in
 * internal/arenakernel/lockpin_linux.go. */
SHMI_COLD int shmi_loses_its_pin(const shmsync_arena *a)
{
    struct statfs fs;
    return statfs(a->path, &fs) == 0 && (uint32_t)fs.f_type == 0x794c7630;
}
/* Ends this process if it has lost its slot. Other processes may have taken its locks by then, so this process must
 * not go on as if it held them. */
SHMI_FN void shmi_check_self(shmsync_arena *a)
{
    uint32_t w = shmi_slot_state(a, a->my_slot);
    if (!shmi_slot_present(w) || shmi_id_in(a->my_slot, w) != a->self)
        shmi_abort(shmi_loses_its_pin(a) ? "this process was declared dead by a peer; the file is on overlayfs, where the byte lock of a program that closes all its descriptors is lost"
                                         : "this process was declared dead by a peer");
}

SHMI_FN int64_t shmi_notice_left(shmsync_arena *a, uint32_t i, uint32_t w, int64_t delay)
{
    shmi_notice *n = &a->notices[i];
    uint64_t window;
    int64_t now;
    if (delay == 0)
        return 0;
    now = shmi_now();
    window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (n->generation != shmi_slot_gen(w) || n->window != window || n->when == 0) {
        n->generation = shmi_slot_gen(w);
        n->window = window;
        n->when = now;
    }
    return n->when + delay > now ? n->when + delay - now : 0;
}

/* As shmi_notice_left, for a joiner without a byte lock. If a joiner gives back the slot of a dead participant, the
 * next joiner gets the same generation, and only slotJoined tells the two joiners apart. So the time begins anew when
 * slotJoined changes. */
SHMI_FN int64_t shmi_notice_left_of_joiner(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_notice *n = &a->notices[i];
    uint64_t joined = shmi_ld64(shmi_slot64(a, i, SHMI_slotJoined));
    if (n->joined != joined) {
        n->joined = joined;
        n->when = 0;
    }
    return shmi_notice_left(a, i, w, SHMI_JOIN_TIMEOUT);
}

/* Reaps the dead among the next few participants in the ring of slots. Returns 0 after a reap. Otherwise fills v with
 * the words on which the watcher sleeps next, and returns their number. *poll is the longest time of this sleep in ns;
 * 0: no limit, because each death wakes this thread. *turn is the time in ns after which this watcher has to examine
 * the participants again, for example to reap one; 0: it need not. */
SHMI_FN unsigned shmi_watch_entries(shmsync_arena *a, uint32_t *doorbell, uint32_t rung, shmi_waitv v[1 + SHMI_watchTargets], int64_t *poll, int64_t *turn)
{
    uint32_t d, present = 0, distance = 0;
    unsigned n = 1;
    int dead, robust;
    int64_t base = shmi_ld32(&a->announce_map) != 0 ? SHMI_AFTER_YOU : 0, left;
    *poll = 0;
    *turn = 0;
#define SHMI_WITHIN(ns) (*poll = *poll == 0 || (ns) < *poll ? (ns) : *poll)
#define SHMI_TURN_IN(ns) (*turn = *turn == 0 || (ns) < *turn ? (ns) : *turn)
    v[0] = shmi_waitv_of(doorbell, rung);
    for (d = 1; d < a->geo.slots && present < SHMI_watchTargets; d++) {
        uint32_t i = (a->my_slot - 1 + d) % a->geo.slots + 1, w = shmi_slot_state(a, i), *word, alive;
        if (!shmi_slot_taken(w))
            continue;
        if (shmi_slot_phase(w) == SHMI_phaseDead) {
            /* The participant that marked the slot dead may have died since, or may leave the rest of the reap to this
             * process. */
            shmi_participant_id u = shmi_ld32(shmi_slot32(a, i, SHMI_slotReaper));
            left = shmi_notice_left(a, i, w, u != a->self && shmi_current(a, u) ? SHMI_STAGGER : base);
            if (left > 0) {
                SHMI_TURN_IN(left);
            } else {
                shmi_reap_marked(a, i, w);
                SHMI_WITHIN(SHMI_POLL_MOST);
            }
            continue;
        }
        present++;
        /* The alive word is read before the check whether it is marked. So if the kernel marks it after the check, it
         * no longer has the value on which this thread sleeps. */
        word = shmi_alive_word(a, i, distance < SHMI_watchTargets ? distance : SHMI_watchTargets - 1);
        alive = shmi_ld32(word);
        dead = shmi_seen_dead(a, i, w);
        if (!dead && a->notices[i].asked != w) { /* see shmi_survey_ahead */
            dead = shmi_survey_dead(a, i, w);
            a->notices[i].asked = dead ? 0 : w;
        }
        if (dead) {
            left = shmi_notice_left(a, i, w, base + (int64_t)distance * SHMI_STAGGER);
            if (left > 0) {
                SHMI_TURN_IN(left);
            } else {
                shmi_reap(a, i, w);
                if (shmi_slot_state(a, i) != w)
                    return 0;
                SHMI_WITHIN(SHMI_POLL_MOST); /* the slot is not marked dead, because this process cannot fence the dying process yet */
            }
            distance++;
            continue;
        }
        distance++;
        robust = (shmi_slot_caps(a, i) & SHMI_capRobust) != 0 && shmi_have_waitv(a);
        /* a joiner holds nothing yet; a leaving participant has its alive words on its robust list until shortly before
         * its slot is free */
        if (shmi_slot_phase(w) != SHMI_phaseLive)
            SHMI_TURN_IN(SHMI_POLL_MOST);
        else if (!robust)
            SHMI_WITHIN(SHMI_POLL_MOST);
        if (shmi_slot_phase(w) == SHMI_phaseJoining && !shmi_slot_has_byte(w) && !shmi_linked(a, i, w) && shmi_notice_left_of_joiner(a, i, w) == 0) {
            shmi_reap(a, i, w);
            if (shmi_slot_state(a, i) != w)
                return 0;
        }
        if (robust && shmi_slot_phase(w) != SHMI_phaseJoining)
            v[n++] = shmi_waitv_of(word, alive);
    }
#undef SHMI_WITHIN
#undef SHMI_TURN_IN
    return n;
}

#define SHMI_LOOK_AT_NAME_EVERY INT64_C(1000000000)
/* Sets the function that is called when the name of the arena leads to another file or to none, unless one is set. */
SHMI_FN void shmi_tell_detached(shmsync_arena *a, const shmsync_arena_options *o)
{
    if (o == NULL || o->on_detached == NULL || a->on_detached != NULL)
        return;
    a->on_detached_arg = o->on_detached_arg;
    __atomic_store_n(&a->on_detached, o->on_detached, __ATOMIC_RELEASE);
    shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
}
/* Once the time that the parameter at contains has come, checks whether the name of the arena still leads to its file,
 * and calls on_detached if it does not. Returns the time of the next check, or 0 if there is none. */
SHMI_FN int64_t shmi_watch_name(shmsync_arena *a, int64_t at)
{
    void (*f)(shmsync_arena *, void *) = __atomic_load_n(&a->on_detached, __ATOMIC_ACQUIRE);
    int64_t now;
    if (f == NULL || a->detached_told)
        return 0;
    now = shmi_now();
    if (now < at)
        return at;
    if (!shmi_moved(a))
        return now + SHMI_LOOK_AT_NAME_EVERY;
    a->detached_told = 1;
    SHMI_OUTSIDE(f(a, a->on_detached_arg));
    return 0;
}

#define SHMI_REGISTER_EVERY INT64_C(1000000000)
static int shmi_register_failed; /* the last registration of this process for membarrier failed for a shortage; atomic */
SHMI_FN void shmi_register_again(void);
/* If the registration for membarrier has failed, tries it again once the time that the parameter at contains has come.
 * Returns the time of the next try; 0: none is necessary. */
SHMI_FN int64_t shmi_retry_registering(int64_t at)
{
    int64_t now;
    if (!__atomic_load_n(&shmi_register_failed, __ATOMIC_ACQUIRE))
        return 0;
    now = shmi_now();
    if (at != 0 && now < at)
        return at;
    if (at != 0)
        shmi_register_again();
    return now + SHMI_REGISTER_EVERY;
}

/* Sleeps on the alive words of the next few participants, and reaps those that die. One return of futex_waitv may stand
 * for several wakes, so the loop examines all of these participants after each sleep. */
SHMI_FN void shmi_watch(shmsync_arena *a)
{
    uint32_t *doorbell = shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell);
    int64_t wait = SHMI_POLL_FIRST, poll, turn, deadline, asked, look = 0, lonely = 0, crowd = 0, nodes = 0, fences = 0;
    int was = 0, untold, unfinished, err;
    for (;;) {
        /* The doorbell is read first, so each later ring ends the next sleep. */
        uint32_t rung = shmi_ld32(doorbell);
        shmi_waitv v[1 + SHMI_watchTargets];
        unsigned n;
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
            return;
        shmi_check_self(a);
        untold = shmi_deliver_deaths(a);
        look = shmi_watch_name(a, look);
        lonely = shmi_end_if_alone(lonely);
        crowd = shmi_look_after_crowd(a, crowd);
        nodes = shmi_shrink_nodes(a, nodes);
        fences = shmi_retry_registering(fences);
        n = shmi_watch_entries(a, doorbell, rung, v, &poll, &turn);
        if (n == 0)
            continue; /* shmi_watch_entries has reaped a participant */
        deadline = turn != 0 ? shmi_now() + turn : 0;
        unfinished = shmi_ld32(&a->unfinished) != 0;
        if (poll != 0 || untold || unfinished) {
            if (poll == 0)
                poll = SHMI_POLL_MOST;
            if (unfinished && !was)
                wait = SHMI_POLL_FIRST; /* a reap has just begun */
            was = unfinished;
            if (deadline == 0 || deadline > shmi_now() + (wait < poll ? wait : poll))
                deadline = shmi_now() + (wait < poll ? wait : poll);
            wait = 2 * wait < SHMI_POLL_MOST ? 2 * wait : SHMI_POLL_MOST;
        } else {
            wait = SHMI_POLL_FIRST;
            was = 0;
        }
        asked = __atomic_load_n(&a->ask_at, __ATOMIC_RELAXED);
        if (asked != 0 && (deadline == 0 || asked < deadline))
            deadline = asked;
        if (look != 0 && (deadline == 0 || look < deadline))
            deadline = look;
        if (lonely != 0 && (deadline == 0 || lonely < deadline))
            deadline = lonely;
        if (crowd != 0 && (deadline == 0 || crowd < deadline))
            deadline = crowd;
        if (nodes != 0 && (deadline == 0 || nodes < deadline))
            deadline = nodes;
        if (fences != 0 && (deadline == 0 || fences < deadline))
            deadline = fences;
        err = 0;
        if (n > 1) {
            err = shmi_futex_sleepv(v, n, deadline);
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT)
                deadline = shmi_now() + SHMI_POLL_FIRST; /* the kernel lacks memory for that many words at the moment */
            else
                err = 0;
        }
        if (n == 1 || err != 0)
            shmi_futex_sleep(doorbell, rung, deadline);
        if (shmi_ld32(&a->unfinished) != 0)
            shmi_continue_reaps(a);
    }
}

/* Waits until the leave of this process has taken back what the process held. Until then the kernel marks the alive
 * words if the process dies. */
SHMI_FN void shmi_await_repairs(shmsync_arena *a)
{
    pthread_mutex_lock(&a->start_lock);
    while (!a->repaired)
        pthread_cond_wait(&a->start_cond, &a->start_lock);
    pthread_mutex_unlock(&a->start_lock);
}

SHMI_FN void *shmi_watcher(void *arg)
{
    shmsync_arena *a = (shmsync_arena *)arg;
    int err, hired;
    char why[sizeof shmi_last.text];
    shmi_prompt_thread();
    if (shmi_has(&shmi_have.robust))
        shmi_robust_register(a);
    /* Without FUTEX_WAITERS the kernel marks the word but wakes no sleeper, so the bit is always set. */
    a->alive = ((uint32_t)syscall(SYS_gettid) & SHMI_TID_MASK) | SHMI_WAITERS;
    pthread_mutex_lock(&a->start_lock);
    a->ready = 1;
    pthread_cond_broadcast(&a->start_cond);
    while (a->hired == 0)
        pthread_cond_wait(&a->start_cond, &a->start_lock);
    hired = a->hired;
    pthread_mutex_unlock(&a->start_lock);
    err = hired > 0 ? shmi_become_live(a) : -1;
    memcpy(why, shmi_last.text, sizeof why);
    pthread_mutex_lock(&a->start_lock);
    if (err != 0) {
        if (hired > 0 && a->linked)
            shmi_mark_alive(a, a->my_slot, shmi_own_slot_word(a, SHMI_phaseDead, shmi_id_gen(a->self)));
        shmi_robust_unregister(a);
        memcpy(a->start_text, why, sizeof a->start_text - 1);
    }
    a->join_result = err;
    pthread_cond_broadcast(&a->start_cond);
    pthread_mutex_unlock(&a->start_lock);
    if (err == 0) {
        shmi_watch(a);
        __atomic_store_n(&a->unwatched, 1, __ATOMIC_RELEASE);
        shmi_wake(&a->unwatched, SHMI_ALL);
        shmi_await_repairs(a);
        shmi_robust_unregister(a);
    }
    shmi_end_thread();
    return NULL;
}

/* Starts the helper thread, with all signals blocked. */
SHMI_FN int shmi_start_watcher(shmsync_arena *a)
{
    int err;
    a->join_result = -1;
    a->ready = a->hired = a->linked = 0;
    err = shmi_start_thread(&a->watcher, "shmsync-watcher", shmi_watcher, a);
    if (err != 0)
        return shmi_fail(err, "arena.open", a->label, "could not start the helper thread (see RLIMIT_NPROC, pids.max and RLIMIT_AS)");
    a->started = 1;
    return 0;
}
/* Waits until the helper thread has registered its robust list, or could not. */
SHMI_FN void shmi_await_watcher(shmsync_arena *a)
{
    pthread_mutex_lock(&a->start_lock);
    while (!a->ready)
        pthread_cond_wait(&a->start_cond, &a->start_lock);
    pthread_mutex_unlock(&a->start_lock);
}
/* Ends the helper thread, if it was started and is not the watcher of a participant yet. */
SHMI_FN void shmi_dismiss_watcher(shmsync_arena *a)
{
    if (!a->started)
        return;
    pthread_mutex_lock(&a->start_lock);
    a->hired = -1;
    pthread_cond_broadcast(&a->start_cond);
    pthread_mutex_unlock(&a->start_lock);
    pthread_join(a->watcher, NULL);
    a->started = 0;
}
/* Makes the helper thread the watcher of this participant, and waits until the participant is live. */
SHMI_FN int shmi_hire_watcher(shmsync_arena *a)
{
    int err;
    pthread_mutex_lock(&a->start_lock);
    a->hired = 1;
    pthread_cond_broadcast(&a->start_cond);
    while (a->join_result < 0)
        pthread_cond_wait(&a->start_cond, &a->start_lock);
    err = a->join_result;
    pthread_mutex_unlock(&a->start_lock);
    if (err != 0) {
        pthread_join(a->watcher, NULL);
        a->started = 0;
        memcpy(shmi_last.text, a->start_text, sizeof a->start_text);
        shmi_last.err = err;
        shmi_last.brief = 0;
        return err;
    }
    a->watching = 1;
    return 0;
}
