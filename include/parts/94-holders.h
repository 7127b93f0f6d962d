/* ---- Holders of an object that no participant has open: Inspect in package prims ----
 *
 * A participant may close its last handle of an object and keep what it holds. Such an object is not deleted. A
 * participant that still has to arrive or to set a result is no holder: only participants that have the object open
 * wait for its arrival or its result. Each function returns a living participant that holds the object or a part of
 * it, or 0 if there is none. */

SHMI_FN shmi_participant_id shmi_if_current(shmsync_arena *a, shmi_participant_id n) { return shmi_current(a, n) ? n : 0; }
/* The holder that an owner word of a Mutex, a FairMutex or a key names. A reservation or a grant is no hold. */
SHMI_FN shmi_participant_id shmi_owner_holds(shmsync_arena *a, uint32_t o)
{
    return shmi_owner_valid(o) && shmi_owner_held(o) ? shmi_if_current(a, shmi_owner_name(o)) : 0;
}
SHMI_FN shmi_participant_id shmi_mutex_holder(shmsync_arena *a, const shmi_object *o)
{
    return o->size >= sizeof(shmi_mutex_words) ? shmi_owner_holds(a, shmi_ld32(&((shmi_mutex_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 8))->owner)) : 0;
}
SHMI_FN shmi_participant_id shmi_rw_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_rwmutex m;
    shmi_participant_id n = 0;
    shmi_record_walk v;
    uint32_t g;
    if (o->size < shmi_rw_bytes(a))
        return 0;
    shmi_rw_view(&m, a, o);
    g = shmi_rw_gate(&m);
    if (shmi_rw_valid(g) && shmi_rw_taken(g))
        n = shmi_if_current(a, shmi_rw_who(g));
    for (shmi_walk_records(a, &v, o->off, sizeof(shmi_rwmutex_record)); n == 0 && shmi_next_record(a, &v);) {
        uint64_t w = shmi_ld64(shmi_rw_reader_in(&m, &v).state);
        if (shmi_rw_reading(w) != 0)
            n = shmi_if_current(a, shmi_rw_name(w, v.slot));
    }
    return n != 0 ? n : shmi_owner_holds(a, shmi_ld32(&m.ww->owner));
}
SHMI_FN shmi_participant_id shmi_spin_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_spinlock l;
    shmi_participant_id n = 0;
    shmi_record_walk v;
    uint32_t s;
    if (!shmi_spin_whole(o))
        return 0;
    shmi_spin_view(&l, a, o);
    s = shmi_spin_state(&l);
    if (shmi_spin_valid(&l, s) && shmi_spin_held(s))
        n = shmi_if_current(a, shmi_owner_name(s));
    if (!l.readers)
        return n;
    for (shmi_walk_records(a, &v, o->off, sizeof(shmi_rwspin_record)); n == 0 && shmi_next_record(a, &v);) {
        uint64_t c = shmi_ld64(shmi_rwspin_count_in(&l, &v));
        if (c != 0 && shmi_count_valid(c, v.slot))
            n = shmi_if_current(a, shmi_count_name(c));
    }
    return n;
}
SHMI_FN shmi_participant_id shmi_fair_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_fairmutex f;
    uint64_t w;
    if (!shmi_fair_view(&f, a, o))
        return 0;
    w = shmi_ld64(&f.w->owner);
    if (shmi_fair_granted((uint32_t)(w >> 32)) && shmi_fair_accepted(&f, w))
        return shmi_if_current(a, shmi_owner_name((uint32_t)(w >> 32)));
    return shmi_owner_holds(a, (uint32_t)(w >> 32));
}
SHMI_FN shmi_participant_id shmi_multi_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    shmi_participant_id n = 0;
    size_t at = 0;
    uint32_t i;
    if (!shmi_multi_view(&x, a, o))
        return 0;
    shmi_bucket_init(&k, &x, 0);
    for (i = 0; n == 0 && i < UINT32_C(1) << x.log; i++) {
        shmi_entry_walk v;
        if (shmi_ld64(&shmi_bucket_words(&x, i)->commit) == 0)
            continue; /* no key was ever in the bucket */
        shmi_view_bucket(&k, i, &at);
        for (shmi_walk_entries(&k, &v); n == 0 && shmi_next_entry(&k, &v);) {
            uint64_t w = shmi_ld64(&v.at.e->hold);
            if (shmi_fair_granted((uint32_t)(w >> 32)) && shmi_key_accepted(v.at.e, w))
                n = shmi_if_current(a, shmi_owner_name((uint32_t)(w >> 32)));
            else
                n = shmi_owner_holds(a, (uint32_t)(w >> 32));
        }
    }
    shmi_view_end(&x);
    return n;
}
#if SHMSYNC_LAYOUT_VERSION >= 3
/* A participant that has permits. Permits of a transferable Semaphore belong to no participant. */
SHMI_FN shmi_participant_id shmi_sem_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_semaphore s;
    struct shmi_rq_change none;
    shmi_semaphore_record *r;
    shmi_participant_id n = 0;
    shmi_rq_walk i;
    if (!shmi_sem_view(&s, a, o) || s.moves)
        return 0;
    memset(&none, 0, sizeof none);
    for (shmi_rq_walk_slots(&s.q, &i); n == 0 && (r = shmi_sem_next(&s, &i)) != NULL;)
        if (shmi_sem_permits(&none, r) > shmi_fast_spare(shmi_ld64(&r->share.fast)))
            n = shmi_if_current(a, shmi_sem_owner(&none, r));
    return n;
}
#endif
/* A participant that has a lease, or is in a put or a get. */
SHMI_FN shmi_participant_id shmi_queue_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_queue x;
    shmi_participant_id n = 0;
    uint32_t i, used;
    if (!shmi_queue_build(&x, a, o))
        return 0;
    used = shmi_queue_used(&x);
    for (i = 1; n == 0 && i <= used; i++) {
        uint64_t st = shmi_ld64(&shmi_queue_at(&x, i)->state);
        if (shmi_queue_valid(st) && (shmi_queue_kind(st) != SHMI_queueFull || !shmi_queue_published(&x, i, st)))
            n = shmi_if_current(a, shmi_queue_name(st));
    }
    return n;
}
SHMI_FN shmi_participant_id shmi_signal_holder(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_signalwaker w;
    shmi_participant_id n = 0;
    uint32_t q;
    if (!shmi_signal_view(&w, a, o))
        return 0;
    for (q = 0; n == 0 && q < w.n_gates; q++) {
        uint64_t g = shmi_ld64(&w.gates[q].word);
        if (shmi_gate_executing(g))
            n = shmi_if_current(a, shmi_gate_executor(g));
    }
    return n;
}
/* The participant that runs the function of a Once, or the completion of a Barrier. */
SHMI_FN shmi_participant_id shmi_runner_of(shmsync_arena *a, const shmi_object *o)
{
    if (o->kind == SHMI_KIND_ONCE && o->size >= sizeof(shmi_once_words)) {
        uint64_t w = shmi_ld64(&((shmi_once_words *)shmi_ptr(a, o->body, sizeof(shmi_once_words), 8))->state);
        return shmi_once_is_done(w) ? 0 : shmi_if_current(a, shmi_once_runner(w));
    }
    if (o->kind == SHMI_KIND_BARRIER && o->size >= sizeof(shmi_barrier_words))
        return shmi_if_current(a, (shmi_participant_id)(shmi_value_of(&((shmi_barrier_words *)shmi_ptr(a, o->body, sizeof(shmi_barrier_words), 8))->completer) & SHMI_NAME_MASK));
    return 0;
}

SHMI_FN shmi_participant_id shmi_holder_of(shmsync_arena *a, const shmi_object *o)
{
    if (shmi_kind_of(o) == NULL)
        return 0; /* also if the object has another version */
    switch (o->kind) {
    case SHMI_MUTEX_KIND:
    case SHMI_KIND_SYNCHRONIZED:
        return shmi_mutex_holder(a, o);
    case SHMI_KIND_RWMUTEX:
        return shmi_rw_holder(a, o);
    case SHMI_KIND_SPIN_LOCK:
    case SHMI_KIND_RWSPIN_LOCK:
        return shmi_spin_holder(a, o);
    case SHMI_KIND_FAIR_MUTEX:
        return shmi_fair_holder(a, o);
    case SHMI_KIND_MULTI_LOCK:
        return shmi_multi_holder(a, o);
#if SHMSYNC_LAYOUT_VERSION >= 3
    case SHMI_KIND_SEMAPHORE:
        return shmi_sem_holder(a, o);
#endif
    case SHMI_KIND_QUEUE:
        return shmi_queue_holder(a, o);
    case SHMI_KIND_SIGNAL_WAKER:
        return shmi_signal_holder(a, o);
    }
    return shmi_runner_of(a, o);
}
