/* ---- Recovery of all objects: RecoverAll in package prims ---- */

typedef struct shmi_recovery {
    shmsync_arena *a;
    int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg);
    void *arg;
    shmsync_lost lost;
    size_t recovered;
    int err; /* the first error of the recovery */
} shmi_recovery;

SHMI_FN int shmi_recovery_repair(void *arg)
{
    shmi_recovery *r = (shmi_recovery *)arg;
    int err = 0;
    SHMI_OUTSIDE(err = r->repair(r->a, &r->lost, r->arg));
    if (err == 0)
        r->recovered++;
    return err;
}
/* Records the state of an object. The parameter err is this state as an errno. Returns whether a death has left the
 * object owner-dead or not recoverable. */
SHMI_FN int shmi_recovery_found(shmi_recovery *r, int err)
{
    r->lost.err = err;
    if (err == EPROTO && r->err == 0)
        r->err = EPROTO;
    if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
        return 0;
    r->lost.who_known = shmsync_who_died(&r->lost.who) == 0;
    return 1;
}
SHMI_FN void shmi_recovery_ended(shmi_recovery *r, int err)
{
    if (r->err == 0)
        r->err = err;
}
/* Whether an _at function, whose result is err, has opened the object. EINVAL: the object was deleted, or has a
 * version that this header does not know. */
SHMI_FN int shmi_recovery_opened(shmi_recovery *r, int err)
{
    if (err != 0 && err != EINVAL)
        shmi_recovery_ended(r, err);
    return err == 0;
}

/* ---- Whether an object needs recovery. These functions use no handle, because a handle would add a slot record to the
 * object. ---- */

/* Whether the list of slot records of o is corrupt. If it is, an open of o fails. */
SHMI_FN int shmi_records_bad(shmsync_arena *a, const shmi_object *o, uint64_t size)
{
    shmi_record_walk v;
    for (shmi_walk_records(a, &v, o->off, size); shmi_next_record(a, &v);) {
    }
    return v.bad != 0;
}
/* Whether n, the holder of a lock, has died; n is 0 if the lock has no holder. The first call of the lock that finds
 * the death makes the lock owner-dead. */
SHMI_FN int shmi_holder_needs(shmsync_arena *a, shmi_participant_id n) { return n != 0 && shmi_dead(a, n); }
SHMI_FN int shmi_rwmutex_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_rwmutex m;
    uint32_t g;
    if (shmi_rw_check(a, o, 0, 0) != 0 || shmi_records_bad(a, o, sizeof(shmi_rwmutex_record)))
        return 1;
    shmi_rw_view(&m, a, o);
    g = shmi_rw_gate(&m);
    return shmi_rw_trouble(&m, "recover_all", g) != 0 || shmi_holder_needs(a, shmi_rw_who(g));
}
/* Whether the lock needs recovery. A change that is committed and not yet carried out is carried out first. */
SHMI_FN int shmi_fairmutex_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_fairmutex f;
    uint32_t w;
    if (!shmi_fair_view(&f, a, o) || !shmi_rq_complete_last(&f.q))
        return 1;
    w = shmi_fair_owner(&f);
    return shmi_fair_refusal(&f, "recover_all", w) != 0 || shmi_holder_needs(a, shmi_owner_name(w));
}
SHMI_FN int shmi_rwspin_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_spinlock l;
    uint32_t s;
    if (!shmi_spin_whole(o) || shmi_records_bad(a, o, sizeof(shmi_rwspin_record)))
        return 1;
    shmi_spin_view(&l, a, o);
    s = shmi_spin_state(&l);
    return shmi_spin_trouble(&l, "recover_all", s) != 0 || shmi_holder_needs(a, shmi_owner_name(s));
}
/* Whether a wait for the counter would fail. Like a wait, this function first looks for dead participants. If the
 * counter changes all the time, the answer is yes. */
SHMI_FN int shmi_counter_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_counter t;
    int yes = 1, looks;
    if (o->size < shmi_counter_bytes(a))
        return 1;
    shmi_counter_init(&t, a, o);
    for (looks = 0; yes && looks < SHMI_counterLooks; looks++) {
        uint64_t c = shmi_counter_load(&t);
        shmi_participant_id died = 0;
        int current;
        if (!shmi_counter_learn(&t) || shmi_known_bad(t.head) || shmi_counter_lost_at(&t, c, &died, &current) != 0)
            break;
        yes = died != 0 || shmi_counter_any_dead(&t, c);
        if (!current || (yes && shmi_counter_bare(shmi_counter_load(&t)) != shmi_counter_bare(c)))
            yes = 1; /* the shares may belong to a later commit word, so read again */
        else if (yes)
            break;
    }
    free(t.of);
    return yes;
}
/* Whether the phase is broken, or will be when all deaths have been reaped. */
SHMI_FN int shmi_barrier_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_barrier *x;
    shmi_barrier_state s;
    int yes;
    if (o->size < shmi_barrier_bytes(a) || shmi_records_bad(a, o, sizeof(shmi_barrier_slot)) || (x = (struct shmi_barrier *)malloc(shmi_barrier_size(a))) == NULL)
        return 1;
    shmi_barrier_init(x, a, o);
    shmi_barrier_holds(x, 0); /* marks dead participants */
    memset(&s, 0, sizeof s);
    yes = shmi_barrier_seen(x, &s) != 0 || shmi_barrier_broken(&s);
    free(x);
    return yes;
}
/* Whether the object at r->lost.offset needs recovery. Returns 0 also if the object cannot be opened, or has
 * another version. */
SHMI_FN int shmi_recovery_needs(shmi_recovery *r, uint32_t kind, uint16_t version, int (*needs)(shmsync_arena *a, const shmi_object *o))
{
    shmi_object o;
    int yes, err = shmi_object_at(r->a, r->lost.offset, "recover_all", kind, version, 0, &o);
    if (!shmi_recovery_opened(r, err))
        return 0;
    yes = needs(r->a, &o);
    shmi_close_object(r->a, o.off);
    shmi_exit(r->a);
    return yes;
}

/* Makes the lock o owner-dead, as a reaper would, if its holder n has died and no call has found the death yet. It
 * takes the lock only to roll a transaction back. A trylock would not suffice: it returns EBUSY if a reader has the
 * lock, or if another process is about to find the death. */
SHMI_FN void shmi_recovery_meet(shmsync_arena *a, const shmi_object *o, shmi_participant_id n)
{
    const shmi_kind_ops *ops = shmi_kind_of(o);
    if (ops == NULL || shmi_enter(a, "recover_all") != 0)
        return;
    if (shmi_holder_needs(a, n))
        ops->repair(a, o, n);
    shmi_exit(a);
}
/* A healthy lock is only read and not locked: if this process died with the lock, the lock would become owner-dead.
 * The holder must be read before the state. A reaper may make the lock not recoverable at any time, and a lock that is
 * not recoverable names no holder. */
#define SHMI_RECOVER_LOCK(type, object, holder)                                                       \
    SHMI_FN void shmi_recover_##type(shmi_recovery *r)                                                \
    {                                                                                                 \
        shmsync_##type x;                                                                             \
        if (!shmi_recovery_opened(r, shmsync_##type##_at(r->a, r->lost.offset, &x)))                  \
            return;                                                                                   \
        shmi_recovery_meet(r->a, &object, holder);                                                    \
        if (shmi_recovery_found(r, shmsync_##type##_state(&x)))                                       \
            shmi_recovery_ended(r, shmsync_##type##_recover(&x, shmi_recovery_repair, r));            \
        shmsync_##type##_close(&x);                                                                   \
    }
SHMI_RECOVER_LOCK(mutex, x.impl->o, shmi_owner_name(shmi_ld32(x.impl->own)))
SHMI_RECOVER_LOCK(rwmutex, x.impl->o, shmi_rw_who(shmi_rw_gate(x.impl)))
SHMI_RECOVER_LOCK(fairmutex, x.impl->q.o, shmi_owner_name(shmi_fair_owner(x.impl)))
SHMI_RECOVER_LOCK(spinlock, x.impl->o, shmi_owner_name(shmi_spin_state(x.impl)))
SHMI_RECOVER_LOCK(rwspinlock, x.impl->o, shmi_owner_name(shmi_spin_state(x.impl)))
#undef SHMI_RECOVER_LOCK

enum { SHMI_keyTries = 64 }; /* how many times shmi_key_left reads an entry that changes */
/* Whether the key of an entry is owner-dead or not recoverable, or its holder has died. If so, stores the key in *key.
 * The entry may get another key when another process recovers this key. If a peer changes the entry all the time, *key
 * may be a key that the entry had at another moment of the call. */
SHMI_FN int shmi_key_left(struct shmi_key_bucket *k, shmi_multilock_entry *e, uint64_t *key)
{
    int tries;
    for (tries = 0; tries < SHMI_keyTries; tries++) {
        uint64_t w = shmi_ld64(&e->hold);
        uint32_t s = (uint32_t)(w >> 32); /* one load, because a reaper may make the key owner-dead at the same time */
        if (!shmi_key_refuses(s) && !shmi_state_dead(k, s))
            return 0;
        *key = shmi_key_of(e);
        if (shmi_ld64(&e->hold) == w)
            break;
    }
    return 1;
}
/* Lists the keys that are owner-dead or not recoverable, or whose holder has died. *n is their number, and the caller
 * frees *keys. ENOMEM: the list has no room for all keys. If keys is NULL, the function stops at the first such key,
 * with *n 1. */
SHMI_FN int shmi_keys_left(struct shmi_multilock *x, uint64_t **keys, size_t *n)
{
    struct shmi_key_bucket k;
    shmi_entry_walk v;
    size_t cap = 0, at = 0;
    uint32_t i;
    shmi_bucket_init(&k, x, 0);
    for (i = 0; i < UINT32_C(1) << x->log; i++) {
        if (shmi_ld64(&shmi_bucket_words(x, i)->commit) == 0)
            continue; /* no key was ever in the bucket */
        shmi_view_bucket(&k, i, &at);
        shmi_rq_complete_last(&k.q);
        for (shmi_walk_entries(&k, &v); shmi_next_entry(&k, &v);) {
            uint64_t key;
            if (!shmi_key_left(&k, v.at.e, &key))
                continue;
            if (keys == NULL) {
                *n = 1;
                return 0;
            }
            if (*n == cap) {
                uint64_t *more = (uint64_t *)realloc(*keys, (cap = 2 * cap + 16) * sizeof **keys);
                if (more == NULL)
                    return ENOMEM;
                *keys = more;
            }
            (*keys)[(*n)++] = key;
        }
    }
    return 0;
}
SHMI_FN int shmi_multilock_needs(shmsync_arena *a, const shmi_object *o)
{
    struct shmi_multilock view;
    size_t n = 0;
    if (shmi_records_bad(a, o, sizeof(shmi_fairmutex_record)) || !shmi_multi_view(&view, a, o))
        return 1;
    shmi_keys_left(&view, NULL, &n);
    shmi_view_end(&view);
    return n != 0;
}
SHMI_FN int shmi_list_keys_left(shmsync_multilock *m, uint64_t **keys, size_t *n)
{
    struct shmi_multilock *x = m->impl, view;
    int err = shmi_enter(x->a, "recover_all");
    *keys = NULL;
    *n = 0;
    if (err != 0)
        return err;
    if (shmi_multi_view(&view, x->a, &x->o)) {
        err = shmi_keys_left(&view, keys, n);
        shmi_view_end(&view);
    } else {
        err = EPROTO; /* a peer has overwritten the object since it was opened */
    }
    return shmi_exit_with(x->a, err);
}
SHMI_FN void shmi_recover_multilock(shmi_recovery *r)
{
    shmsync_multilock x;
    uint64_t *keys;
    size_t n, i;
    if (!shmi_recovery_opened(r, shmsync_multilock_at(r->a, r->lost.offset, &x)))
        return;
    r->lost.has_key = 1;
    shmi_recovery_ended(r, shmi_list_keys_left(&x, &keys, &n));
    for (i = 0; i < n; i++) {
        r->lost.key = keys[i];
        /* Another process may have recovered the key meanwhile. As with other locks, a healthy key is only read and
         * not locked. */
        if (shmi_recovery_found(r, shmsync_multilock_state(&x, keys[i])))
            shmi_recovery_ended(r, shmsync_multilock_recover(&x, keys[i], shmi_recovery_repair, r));
    }
    free(keys);
    shmsync_multilock_close(&x);
}

/* For objects without a lock: repair comes first, and then the reset, unless repair has made the object usable. */
#define SHMI_RECOVER_COUNT(type, look, reset)                                                    \
    SHMI_FN void shmi_recover_##type(shmi_recovery *r)                                           \
    {                                                                                            \
        static const struct timespec past = {0, 1};                                              \
        shmsync_##type x;                                                                        \
        (void)past;                                                                              \
        if (!shmi_recovery_opened(r, shmsync_##type##_at(r->a, r->lost.offset, &x)))             \
            return;                                                                              \
        if (shmi_recovery_found(r, look)) {                                                      \
            int err = shmi_recovery_repair(r);                                                   \
            if (err == 0 && shmi_recovery_found(r, look) && (err = reset) != 0)                  \
                r->recovered--;                                                                  \
            shmi_recovery_ended(r, err);                                                         \
        }                                                                                        \
        shmsync_##type##_close(&x);                                                              \
    }
SHMI_RECOVER_COUNT(waitgroup, shmsync_waitgroup_timedwait(&x, &past), shmsync_waitgroup_reset(&x))
SHMI_RECOVER_COUNT(latch, shmsync_latch_timedwait(&x, &past), shmsync_latch_reset(&x))
SHMI_RECOVER_COUNT(future, shmsync_future_timedwait(&x, NULL, &past), shmi_future_reset(x.impl, 1))
SHMI_RECOVER_COUNT(barrier, shmsync_barrier_timedwait(&x, shmi_barrier_phase(x.impl), &past), shmsync_barrier_reset(&x, 0, NULL))
#undef SHMI_RECOVER_COUNT

typedef struct shmi_objects {
    shmi_object *v;
    size_t n, cap;
    int err;
} shmi_objects;
SHMI_FN void shmi_note_object(shmsync_arena *a, const shmi_object *o, void *arg)
{
    shmi_objects *l = (shmi_objects *)arg;
    (void)a;
    if (l->n == l->cap) {
        shmi_object *more = (shmi_object *)realloc(l->v, (l->cap = 2 * l->cap + 16) * sizeof *l->v);
        if (more == NULL) {
            l->err = ENOMEM;
            l->cap = l->n;
            return;
        }
        l->v = more;
    }
    l->v[l->n++] = *o;
}

int shmsync_recover_all(shmsync_arena *a, int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg), void *arg, size_t *recovered)
{
    if (recovered != NULL)
        *recovered = 0;
    SHMI_BEGIN_IN(a, "recover_all");
    static const struct {
        uint32_t kind;
        uint16_t version;
        /* NULL: no check is needed before the open, because a handle takes no memory of the arena */
        int (*needs)(shmsync_arena *a, const shmi_object *o);
        void (*recover)(shmi_recovery *r);
    } kinds[] = {
        {SHMI_MUTEX_KIND, SHMI_mutexVersion, NULL, shmi_recover_mutex},
        {SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, shmi_rwmutex_needs, shmi_recover_rwmutex},
        {SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, shmi_fairmutex_needs, shmi_recover_fairmutex},
        {SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, NULL, shmi_recover_spinlock},
        {SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, shmi_rwspin_needs, shmi_recover_rwspinlock},
        {SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, shmi_multilock_needs, shmi_recover_multilock},
        {SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, shmi_counter_needs, shmi_recover_waitgroup},
        {SHMI_KIND_LATCH, SHMI_VERSION_LATCH, shmi_counter_needs, shmi_recover_latch},
        {SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, NULL, shmi_recover_future},
        {SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, shmi_barrier_needs, shmi_recover_barrier},
    };
    shmi_failure before = shmi_last;
    shmi_recovery r;
    shmi_objects l;
    size_t i, k;
    if (repair == NULL)
        return shmi_fail(EINVAL, "recover_all", a->label, "it needs a repair");
    r.err = shmi_enter(a, "recover_all"); /* shmi_visit writes into the slot of this process, so a close must wait */
    if (r.err != 0)
        return SHMI_TELL(r.err);
    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    r.a = a;
    r.repair = repair;
    r.arg = arg;
    r.err = shmi_visit(a, 0, shmi_note_object, &l); /* the objects are listed first, because repair may delete objects */
    shmi_exit(a);
    shmi_recovery_ended(&r, l.err);
    for (i = 0; i < l.n; i++) {
        memset(&r.lost, 0, sizeof r.lost);
        r.lost.offset = l.v[i].off;
        r.lost.name = l.v[i].name;
        shmi_kind_text(l.v[i].kind, r.lost.kind);
        for (k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (kinds[k].kind == l.v[i].kind && (kinds[k].needs == NULL || shmi_recovery_needs(&r, kinds[k].kind, kinds[k].version, kinds[k].needs)))
                kinds[k].recover(&r);
    }
    free(l.v);
    if (recovered != NULL)
        *recovered = r.recovered;
    return SHMI_TELL(shmi_restore_note(r.err, &before));
}

