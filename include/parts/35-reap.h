/* ---- Reap: several processes may do each step at once, and if one dies in a step, another process repeats the step.
 * Each process repairs twice: when it finds a dead participant, and again when that participant is gone. The functions
 * of the kinds of objects find out which of the two repairs it is. ---- */

/* ns that the reaper waits before it gives memory back: the threads that the death has woken need the CPU first */
#define SHMI_RECLAIM_AFTER 1000000
/* How long this process waits before it ends a reap if the arena has objects of a kind that it does not know.
 * Meanwhile participants that know the kind may repair those objects. */
#define SHMI_LEAVE_TO_OTHERS INT64_C(200000000)

enum {
    SHMI_watchTargets = 3
};

/* Rings the n participants in the nearest slots before slot i. The last slot comes before slot 1. */
SHMI_FN void shmi_ring_before(shmsync_arena *a, uint32_t i, unsigned n)
{
    uint32_t d;
    for (d = 1; d < a->geo.slots && n > 0; d++) {
        uint32_t j = (i - 1 + a->geo.slots - d) % a->geo.slots + 1;
        if (shmi_slot_present(shmi_slot_state(a, j))) {
            shmi_ring(shmi_slot32(a, j, SHMI_slotWatchDoorbell));
            n--;
        }
    }
}
/* Wakes the death watchers that watch slot i, have watched it, or will have to watch it, so that each of them reads the
 * ring of slots again. See ringWatchersOf in internal/arenakernel/deathwatcher.go. */
SHMI_FN void shmi_ring_watchers_of(shmsync_arena *a, uint32_t i) { shmi_ring_before(a, i, SHMI_watchTargets); }

/* Rings the participants that want to be told of deaths, so that they read the death records. */
SHMI_FN void shmi_ring_told(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if ((shmi_slot_caps(a, i) & SHMI_capTold) != 0 && shmi_slot_present(shmi_slot_state(a, i)))
            shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell));
}

/* The participants that a death, or a leave, concerns: those that had an object open together with the dead
 * participant, and those that have an object open that this process could not repair. Only they may miss a wake because
 * of the death. But if the dead participant was ending waits of others, or was reaping, any participant may miss a wake. */
typedef struct shmi_concern {
    uint32_t slots[SHMI_MaxSlots / 32 + 1];
    int unfinished; /* an undo log has a transaction of the dead participant */
    int anything; /* the dead participant had an object open, or this process could not repair one */
    int all;      /* all participants are concerned */
    int nobody;   /* the dead participant can have left nothing in any object */
} shmi_concern;

/* Adds the participants that have o open to c, if dead had o open, too, or if repaired is 0. */
SHMI_FN void shmi_add_openers(shmsync_arena *a, shmi_concern *c, const shmi_object *o, shmi_participant_id dead, int repaired)
{
    shmi_header h;
    uint32_t i, mask, *word;
    if (shmi_header_at(a, o->off, &h) != 0)
        return;
    word = shmi_open_bit(a, &h, shmi_id_slot(dead), &mask);
    if (repaired && (shmi_ld32(word) & mask) == 0)
        return;
    c->anything = 1;
    for (i = 0; i <= a->geo.slots; i += 32)
        c->slots[i / 32] |= shmi_ld32(shmi_open_bit(a, &h, i, &mask));
}

typedef struct shmi_repair_arg {
    shmi_participant_id dead;
    int unknown; /* objects whose kind this header does not know */
    shmi_concern *concern;
} shmi_repair_arg;
SHMI_FN void shmi_repair_one(shmsync_arena *a, const shmi_object *o, void *arg)
{
    shmi_repair_arg *r = (shmi_repair_arg *)arg;
    const shmi_kind_ops *ops = shmi_kind_of(o);
    if (ops == NULL)
        r->unknown++;
    /* A process that leaves, and does not know a kind, holds nothing in objects of this kind. */
    shmi_add_openers(a, r->concern, o, r->dead, ops == NULL ? r->dead == a->self : ops->repair == NULL || ops->repair(a, o, r->dead));
    if (ops != NULL && ops->unfinished != NULL && ops->unfinished(a, o, r->dead))
        r->concern->unfinished = 1;
}
/* Whether dead, which is not this process, was ending waits of others, or was reaping. If so, any participant may miss
 * a wake because of the death, and dead may hold any object. */
SHMI_FN int shmi_owes_anybody(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t i = shmi_id_slot(dead);
    return shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 || shmi_ld64(shmi_slot64(a, i, SHMI_slotWalking)) != 0;
}
/* Takes back what dead holds of objects, and notes in *c which participants the death concerns. If all is 0, visits
 * only the objects that dead has touched. Returns the number of visited objects whose kind is unknown. */
SHMI_FN int shmi_repair_all(shmsync_arena *a, shmi_participant_id dead, int all, shmi_concern *c)
{
    shmi_repair_arg r;
    memset(c, 0, sizeof *c);
    c->all = all;
    c->nobody = !all && shmi_touched_nothing(a, shmi_id_slot(dead));
    r.dead = dead;
    r.unknown = 0;
    r.concern = c;
    shmi_visit(a, all ? 0 : shmi_id_slot(dead), shmi_repair_one, &r);
    return r.unknown;
}

typedef struct shmi_owed {
    shmi_off object;
    int level;
} shmi_owed;
typedef struct shmi_owed_list {
    shmi_owed *v;
    size_t n, cap;
    int full; /* no memory: assume that every wake is lost */
} shmi_owed_list;

SHMI_FN int shmi_owed_order(const void *x, const void *y)
{
    const shmi_owed *p = (const shmi_owed *)x, *q = (const shmi_owed *)y;
    if (p->object != q->object)
        return p->object < q->object ? -1 : 1;
    return q->level - p->level; /* so shmi_owed_level finds the highest level of an object */
}
/* Notes, for each object that an announce record names, which wakes the death of dead may have lost. */
SHMI_FN void shmi_collect_owed(shmsync_arena *a, shmi_participant_id dead, shmi_owed_list *l)
{
    uint32_t i, k;
    memset(l, 0, sizeof *l);
    for (i = 1; i <= a->geo.slots; i++) {
        int level = SHMI_OWED_ONE;
        if (i == shmi_id_slot(dead))
            level = SHMI_OWED_ALL;
        else if (!shmi_slot_present(shmi_slot_state(a, i)))
            continue;
        for (k = 0; k < SHMI_announceCount; k++) {
            shmi_off r = shmi_slot(a, i) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride;
            if (shmi_ld64(shmi_u64(a, r + SHMI_announceWord)) == 0)
                continue;
            if (l->n == l->cap) {
                size_t cap = l->cap != 0 ? 2 * l->cap : 64;
                shmi_owed *more = (shmi_owed *)realloc(l->v, cap * sizeof *more);
                if (more == NULL) {
                    l->full = 1;
                    return;
                }
                l->v = more;
                l->cap = cap;
            }
            l->v[l->n].object = shmi_ld64(shmi_u64(a, r + SHMI_announceObject));
            l->v[l->n++].level = level;
        }
    }
    if (l->n > 1)
        qsort(l->v, l->n, sizeof *l->v, shmi_owed_order);
}
SHMI_FN int shmi_owed_level(const shmi_owed_list *l, shmi_off object)
{
    size_t low = 0, high = l->n;
    if (l->full)
        return SHMI_OWED_ALL;
    while (low < high) { /* find the first entry of the object */
        size_t mid = (low + high) / 2;
        if (l->v[mid].object < object)
            low = mid + 1;
        else
            high = mid;
    }
    return low < l->n && l->v[low].object == object ? l->v[low].level : SHMI_OWED_ANNOUNCED;
}
SHMI_FN void shmi_wake_one_object(shmsync_arena *a, const shmi_object *o, void *arg)
{
    const shmi_kind_ops *ops = shmi_kind_of(o);
    if (ops != NULL && ops->wake != NULL)
        ops->wake(a, o, shmi_owed_level((const shmi_owed_list *)arg, o->off));
}
/* Counts the death or the leave, and rings the pollers of the participants that it concerns. A poller that is rung
 * checks all objects of its process, so the call does not ring participants that cannot have missed a wake. */
SHMI_FN void shmi_count_death(shmsync_arena *a, const shmi_concern *c)
{
    uint32_t i;
    if (c->nobody)
        return;
    shmi_add32(shmi_u32(a, SHMI_hdrDeaths), 1);
    if (!c->anything && !c->all)
        return;
    for (i = 1; i <= a->geo.slots; i++)
        if ((c->all || (c->slots[i / 32] >> (i % 32) & 1) != 0) && shmi_slot_present(shmi_slot_state(a, i)))
            shmi_ring(shmi_slot32(a, i, SHMI_slotDoorbell));
}
/* Wakes, once, all waiters whose wakes the death may have lost. */
SHMI_FN void shmi_wake_all_for(shmsync_arena *a, shmi_participant_id dead, const shmi_concern *c)
{
    if (c->anything || c->all) {
        shmi_owed_list l;
        shmi_collect_owed(a, dead, &l);
        shmi_visit(a, c->all ? 0 : shmi_id_slot(dead), shmi_wake_one_object, &l);
        free(l.v);
        shmi_wake_resolved(a);
    }
    shmi_count_death(a, c);
}

/* Gives back the memory that dead has not passed on to another process. Does the same for earlier participants of the
 * slot whose heirs died while they cleaned up. The caller is the reaper of the slot, or the participant in the slot. */
SHMI_FN void shmi_reclaim_memory(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t *reclaimed = shmi_slot32(a, shmi_id_slot(dead), SHMI_slotReclaimed);
    uint32_t last = shmi_id_gen(dead), first = shmi_ld32(reclaimed) + 1, g;
    size_t left;
    if (shmi_ld32(reclaimed) == last) {
        shmi_clear_open_bits(a, dead); /* dead may have called this function when it left, and may have opened or guarded objects afterwards */
        return;
    }
    /* The participants with the generations first to last died one after the other. If they seem to be too many, a
     * hostile peer has overwritten slotReclaimed. The loop leaves generation 0 out: no participant has it, and words of
     * slot records contain it. */
    if (first == 0 || first > last || last - first >= 256)
        first = last > 256 ? last - 256 + 1 : 1;
    for (g = first; g <= last; g++) {
        shmi_participant_id n = shmi_make_participant_id(shmi_id_slot(dead), g);
        if (!shmi_touched_nothing(a, shmi_id_slot(dead))) /* otherwise no participant of the slot has claimed a node */
            shmi_free_nodes_of(a, n);
        shmi_reclaim_blocks(a, n);
        shmi_clear_open_bits(a, n);
    }
    pthread_mutex_lock(&a->handles);
    left = dead == a->self ? a->n_deferred : 0;
    pthread_mutex_unlock(&a->handles);
    if (left == 0) /* otherwise a peer guards some of the blocks, and the next participant of the slot frees them */
        shmi_st32(reclaimed, last);
}

/* As shmi_free_slot, but leaves the state of the slot unchanged. */
SHMI_FN void shmi_clear_slot(shmsync_arena *a, uint32_t i, uint32_t w, int keep)
{
    uint32_t *described = shmi_slot32(a, i, SHMI_slotDescribed), of = shmi_ld32(described);
    uint64_t *date = shmi_slot64(a, i, SHMI_slotDied), died;
    if (!keep && shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) == shmi_slot_gen(w))
        shmi_forget_touched(a, i);
    if (of <= shmi_slot_gen(w) && shmi_cas32(described, of, 0)) /* a late reaper must not clear the description of a later participant */
        shmi_full_fence();
    shmi_st32(shmi_slot32(a, i, SHMI_slotPID), 0);
    shmi_put_label(a, shmi_slot(a, i) + SHMI_slotLabel, "");
    died = shmi_ld64(date);
    if (died > SHMI_maxGeneration || died <= shmi_slot_gen(w)) /* otherwise the date is that of a later participant */
        shmi_cas64(date, died, 0);
}
/* Makes slot i, dead or leaving in state w, available again. If keep is set, the set of touched chunks stays: the
 * reaper of the next participant of the slot then repairs what this process could not. */
SHMI_FN void shmi_free_slot(shmsync_arena *a, uint32_t i, uint32_t w, int keep)
{
    shmi_clear_slot(a, i, w, keep);
    shmi_cas_slot(a, i, w, shmi_slot_with(w, SHMI_phaseFree));
}

/* Whether there is another participant that may be a Go program, which knows all kinds of objects. */
SHMI_FN int shmi_others(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (i != a->my_slot && shmi_slot_phase(w) == SHMI_phaseLive && !shmi_seen_dead(a, i, w))
            return 1;
    }
    return 0;
}

/* Whether this process leaves the end of the reap to other participants, which may know kinds of objects that this
 * header does not know. since is the time of this process's repairs. */
SHMI_FN int shmi_leave_to_others(shmsync_arena *a, const shmi_reap_progress *b, int64_t since)
{
    return b->unknown != 0 && shmi_now() - since < SHMI_LEAVE_TO_OTHERS && shmi_others(a);
}

/* Writes the death record. A moment after the dead participant is gone, gives back its memory and frees its slot. Only
 * the reaper does these things, so only one process at a time. While this process waits until the dead participant is
 * gone, it gives up the role of the reaper, because the wait may take long and this process may be stopped. */
SHMI_FN void shmi_finish(shmsync_arena *a, uint32_t i, shmi_reap_progress *b)
{
    uint32_t *word = shmi_slot32(a, i, SHMI_slotReaper);
    shmi_participant_id u = shmi_ld32(word), dead = shmi_id_in(i, b->of);
    int64_t now;
    if (u != a->self && !shmi_dead(a, u)) {
        /* Another process is the reaper. This process checks again later, because that reaper may die while the
         * watchers of the slot are stopped. */
        shmi_ask_after(a, b->reaped);
        return;
    }
    if (!shmi_take_from32(a, u, word, u, a->self, 0)) {
        shmi_leave_for(a, i);
        return;
    }
    SHMSYNC_CRASHPOINT("arena.finish.taken");
    /* As long as this process is the reaper, a dead slot stays dead until this process frees it. */
    if (shmi_slot_state(a, i) != b->of || shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) != b->window) {
        shmi_cas32(word, a->self, 0);
        return;
    }
    now = shmi_now();
    if (b->written == 0) {
        b->written = now;
        if (shmi_has_death_record(a, dead))
            /* Another participant has written the record some time ago, so the threads that the death woke have had
             * time to run, and this process need not wait SHMI_RECLAIM_AFTER. If each reaper waited anew, reapers that
             * die early would never finish. */
            b->written -= SHMI_RECLAIM_AFTER;
        else if (!shmi_record_deaths(a, i, b->of, shmi_id_gen(dead))) {
            /* A joiner has taken the slot, so nothing was recorded. This process gives up the role of the reaper,
             * because the joiner waits for that, and gives the slot back if it takes too long. */
            b->written = 0;
            shmi_leave_for(a, i);
            shmi_cas32(word, a->self, 0);
            return;
        }
        SHMSYNC_CRASHPOINT("arena.finish.recorded");
        shmi_leave_for(a, i);
        shmi_ring_told(a);
    }
    /* The slot becomes free only when shmi_ended says so. A participant that declared no asynchronous system calls may
     * be gone earlier, while the kernel still has to mark its alive words. If a joiner took the slot at that time, the
     * kernel could mark the alive words of the joiner. */
    if (b->handed != 0 && b->unfinished) /* another process undoes the transaction, and may be stopped */
        b->unfinished = shmi_unfinished(a, dead);
    if (b->handed == 0 || b->unfinished || !shmi_ended(a, i) || shmi_leave_to_others(a, b, b->handed)) {
        shmi_ask_after(a, b->reaped);
        shmi_cas32(word, a->self, 0);
        return;
    }
    if (now - b->written < SHMI_RECLAIM_AFTER) {
        shmi_leave_for(a, i);
        shmi_cas32(word, a->self, 0); /* if this process is stopped now, another process can become the reaper */
        return;
    }
    if (!b->reclaimed)
        shmi_reclaim_memory(a, dead);
    b->reclaimed = 1;
    SHMSYNC_CRASHPOINT("arena.finish.reclaimed");
    shmi_free_slot(a, i, b->of, b->unknown != 0);
    SHMSYNC_CRASHPOINT("arena.finish.freed");
    shmi_cas32(word, a->self, 0);
    shmi_ring_watchers_of(a, i);
}

SHMI_FN void shmi_reap_marked(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_reap_progress *b;
    shmi_concern concern;
    shmi_participant_id dead = shmi_id_in(i, w);
    uint64_t window;
    int gone;
    pthread_mutex_lock(&a->reaping);
    b = &a->reaps[i];
    window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST) && shmi_slot_state(a, i) == w) {
        unsigned k;
        if (b->of != w || b->window != window) {
            memset(b, 0, sizeof *b);
            b->of = w;
            b->window = window;
        }
        gone = shmi_gone(a, dead);
        if (!b->reaped) {
            /* Several threads may sleep on each of these words, and the kernel has woken only one of them. */
            for (k = 0; k < SHMI_aliveWords; k++)
                shmi_wake(shmi_alive_word(a, i, k), SHMI_ALL);
            b->unknown = shmi_repair_all(a, dead, shmi_owes_anybody(a, dead), &concern);
            SHMSYNC_CRASHPOINT("arena.reap.repaired");
            shmi_wake_all_for(a, dead, &concern);
            SHMSYNC_CRASHPOINT("arena.reap.woken");
            b->unfinished = concern.unfinished;
            b->reaped = shmi_now();
            b->handed = gone ? b->reaped : 0;
        } else if (!b->handed && gone) {
            b->unknown = shmi_repair_all(a, dead, shmi_owes_anybody(a, dead), &concern);
            SHMSYNC_CRASHPOINT("arena.reap.handed_over");
            shmi_wake_all_for(a, dead, &concern);
            b->unfinished = concern.unfinished;
            b->handed = shmi_now();
        }
        if (!b->handed)
            shmi_ask_after(a, b->reaped);
        if (b->written == 0 && shmi_leave_to_others(a, b, b->reaped)) {
            shmi_leave_for(a, i);
            shmi_ring_watchers_of(a, i);
        } else {
            shmi_finish(a, i, b);
        }
    }
    pthread_mutex_unlock(&a->reaping);
}

SHMI_FN void shmi_reap(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (shmi_slot_present(w) && !shmi_mark(a, i, w)) { /* another participant has marked the slot, or this process cannot mark it yet */
        shmi_reap_progress *b = &a->reaps[i];
        pthread_mutex_lock(&a->reaping);
        if (b->dying != w) {
            b->dying = w;
            b->seen = shmi_now();
        }
        if (shmi_slot_state(a, i) == w)
            shmi_leave_for(a, i);
        shmi_ask_after(a, b->seen);
        pthread_mutex_unlock(&a->reaping);
        return;
    }
    shmi_reap_marked(a, i, shmi_slot_with(w, SHMI_phaseDead));
}

/* Goes on with the reaps that are unfinished. */
SHMI_FN void shmi_continue_reaps(shmsync_arena *a)
{
    uint32_t i;
    __atomic_store_n(&a->ask_at, 0, __ATOMIC_RELAXED);
    shmi_st32(&a->unfinished, 0);
    pthread_mutex_lock(&a->reaping);
    for (i = 1; i <= a->geo.slots; i++)
        if (a->reaps[i].of != 0 && shmi_slot_state(a, i) != a->reaps[i].of) {
            /* Other processes have finished the reap, or a joiner has taken the slot over and waits until this process
             * is not the reaper of the slot any more. */
            shmi_cas32(shmi_slot32(a, i, SHMI_slotReaper), a->self, 0);
            memset(&a->reaps[i], 0, sizeof a->reaps[i]);
        }
    pthread_mutex_unlock(&a->reaping);
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i), bit = UINT32_C(1) << (i % 32), *left = &a->leftover[i / 32];
        int left_over = (shmi_ld32(left) & bit) != 0;
        if (left_over)
            shmi_and32(left, ~bit);
        if (i != a->my_slot && (shmi_slot_phase(w) == SHMI_phaseDead || (left_over && shmi_survey_dead(a, i, w))))
            shmi_reap(a, i, w);
    }
}

/* Checks whether the participants that this process has to watch still have their byte locks, and reaps those that do
 * not. A reap may change which participants this process has to watch, so it then checks again: see surveyAhead in
 * internal/arenakernel/reap.go. */
SHMI_FN void shmi_survey_ahead(shmsync_arena *a)
{
    int again;
    do {
        uint32_t d, present = 0;
        again = 0;
        for (d = 1; d < a->geo.slots && present < SHMI_watchTargets; d++) {
            uint32_t i = (a->my_slot - 1 + d) % a->geo.slots + 1, w = shmi_slot_state(a, i);
            if (!shmi_slot_present(w))
                continue;
            present++;
            if (shmi_survey_dead(a, i, w)) {
                shmi_reap(a, i, w);
                again = again || shmi_slot_state(a, i) != w;
            }
        }
    } while (again);
}

