/* ---- Recovery of all objects: RecoverAll in package prims ---- */

typedef struct shmi_recovery {
    shmsync_arena *a;
    int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg);
    void *arg;
    shmsync_lost lost;
    size_t recovered;
    int err; /* the first */
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
/* Notes err, the result of a call on an object. Returns whether a death has left the object owner-dead or not
 * recoverable. */
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
/* Whether an _at function has opened the object; err is its result. EINVAL: the object was deleted, or is of a
 * version that this header does not have. */
SHMI_FN int shmi_recovery_opened(shmi_recovery *r, int err)
{
    if (err != 0 && err != EINVAL)
        shmi_recovery_ended(r, err);
    return err == 0;
}

/* If the holder of a lock has died and no call has noticed that yet, the first call that notices it makes the lock
 * owner-dead. trylock is such a call. A healthy lock is only read, because a death of this process while it held the
 * lock would make the lock owner-dead. */
#define SHMI_RECOVER_LOCK(type, holder)                                                             \
    SHMI_FN void shmi_recover_##type(shmi_recovery *r)                                              \
    {                                                                                               \
        shmsync_##type x;                                                                           \
        shmi_participant_id n;                                                                      \
        int err;                                                                                    \
        if (!shmi_recovery_opened(r, shmsync_##type##_at(r->a, r->lost.offset, &x)))                \
            return;                                                                                 \
        err = shmsync_##type##_state(&x);                                                           \
        n = holder;                                                                                 \
        if (err == 0 && n != 0 && shmi_dead(r->a, n) && (err = shmsync_##type##_trylock(&x)) == 0)  \
            shmsync_##type##_unlock(&x);                                                            \
        if (shmi_recovery_found(r, err))                                                            \
            shmi_recovery_ended(r, shmsync_##type##_recover(&x, shmi_recovery_repair, r));          \
        shmsync_##type##_close(&x);                                                                 \
    }
SHMI_RECOVER_LOCK(mutex, shmi_owner_name(shmi_ld32(x.impl->own)))
SHMI_RECOVER_LOCK(rwmutex, shmi_rw_who(shmi_rw_gate(x.impl)))
SHMI_RECOVER_LOCK(fairmutex, shmi_owner_name(shmi_fair_owner(x.impl)))
SHMI_RECOVER_LOCK(spinlock, shmi_owner_name(shmi_spin_state(x.impl)))
SHMI_RECOVER_LOCK(rwspinlock, shmi_owner_name(shmi_spin_state(x.impl)))
#undef SHMI_RECOVER_LOCK

/* Lists the keys that are lost, or whose holder has died, as they are now. *n is their number, and the caller frees
 * *keys. ENOMEM: there are more keys. */
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
            if (!shmi_key_refuses(shmi_key_state(v.at.e)) && !shmi_key_dead(&k, v.at.e))
                continue;
            if (*n == cap) {
                uint64_t *more = (uint64_t *)realloc(*keys, (cap = 2 * cap + 16) * sizeof **keys);
                if (more == NULL)
                    return ENOMEM;
                *keys = more;
            }
            (*keys)[(*n)++] = shmi_key_of(v.at.e);
        }
    }
    return 0;
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
        err = EPROTO; /* a peer has overwritten it since it was opened */
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
        shmsync_hold h;
        int err = shmsync_multilock_trylock(&x, keys[i], &h);
        r->lost.key = keys[i];
        if (err == 0)
            shmsync_multilock_unlock(&h);
        else if (shmi_recovery_found(r, err))
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
    SHMI_BEGIN();
    static const struct {
        uint32_t kind;
        void (*recover)(shmi_recovery *r);
    } kinds[] = {
        {SHMI_MUTEX_KIND, shmi_recover_mutex},
        {SHMI_KIND_RWMUTEX, shmi_recover_rwmutex},
        {SHMI_KIND_FAIR_MUTEX, shmi_recover_fairmutex},
        {SHMI_KIND_SPIN_LOCK, shmi_recover_spinlock},
        {SHMI_KIND_RWSPIN_LOCK, shmi_recover_rwspinlock},
        {SHMI_KIND_MULTI_LOCK, shmi_recover_multilock},
        {SHMI_KIND_WAIT_GROUP, shmi_recover_waitgroup},
        {SHMI_KIND_LATCH, shmi_recover_latch},
        {SHMI_KIND_FUTURE, shmi_recover_future},
        {SHMI_KIND_BARRIER, shmi_recover_barrier},
    };
    shmi_recovery r;
    shmi_objects l;
    size_t i, k;
    if (recovered != NULL)
        *recovered = 0;
    if (repair == NULL)
        return shmi_fail(EINVAL, "recover_all", a->label, "it needs a repair");
    r.err = shmi_enter(a, "recover_all"); /* a walk writes into the slot, which a close gives to others */
    if (r.err != 0)
        return SHMI_TELL(r.err);
    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    r.a = a;
    r.repair = repair;
    r.arg = arg;
    r.err = shmi_visit(a, 0, shmi_note_object, &l); /* first a list, because repair may delete objects */
    shmi_exit(a);
    shmi_recovery_ended(&r, l.err);
    for (i = 0; i < l.n; i++) {
        memset(&r.lost, 0, sizeof r.lost);
        r.lost.offset = l.v[i].off;
        r.lost.name = l.v[i].name;
        shmi_kind_text(l.v[i].kind, r.lost.kind);
        for (k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
            if (kinds[k].kind == l.v[i].kind)
                kinds[k].recover(&r);
    }
    free(l.v);
    if (recovered != NULL)
        *recovered = r.recovered;
    return SHMI_TELL(r.err);
}

