/* Synchronized: a value with its lock. This is prims/synchronized*.go in C. There are two copies of the value, and the
 * lowest bit of the word current says which of them is valid. The holder of the lock writes the other copy. The commit
 * is the store that adds 1 to current. */

#define SHMI_SYNCHRONIZED_MOST 65536u
enum { SHMI_synchronizedTries = 100, SHMI_synchronizedRounds = 100 };
#define SHMI_SYNCHRONIZED_WAIT 10000000 /* ns */

struct shmi_synchronized {
    shmi_mutex m;
    shmi_synchronized_words *w;
    unsigned char *copies[2];
    size_t size;
    /* Counts only while this process has the lock. 1: the program has the lock, between a begin and a commit or abort,
     * so no call stores to the copies. 0: a call has the lock. Atomic. */
    uint32_t lent;
};

SHMI_FN uint64_t shmi_synchronized_copy_at(size_t size, int n)
{
    return sizeof(shmi_synchronized_words) + (n != 0 ? (size + 63) & ~UINT64_C(63) : 0);
}

/* Stores the commit. The two fences keep the compiler from moving a store of the caller past the commit, and from
 * omitting such a store. The commit is a release, because shmi_synchronized_read reads the copy without the lock. */
SHMI_FN void shmi_commit_store(uint64_t *current, uint64_t n)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(current, n, __ATOMIC_RELEASE);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* end of the commit */

typedef struct shmi_synchronized_spec {
    const void *initial;
    size_t size;
    uint32_t spin;
} shmi_synchronized_spec;

SHMI_FN void shmi_synchronized_fill(unsigned char *body, const void *arg)
{
    const shmi_synchronized_spec *s = (const shmi_synchronized_spec *)arg;
    shmi_synchronized_words *w = (shmi_synchronized_words *)(void *)body;
    w->lock.policy = 1;
    w->lock.spin = s->spin;
    if (s->initial != NULL && s->size != 0)
        memcpy(body + shmi_synchronized_copy_at(s->size, 0), s->initial, s->size);
}

/* The repair function of the lock. A death leaves nothing to repair. The lock calls this function only if a peer has
 * overwritten its policy. */
SHMI_FN int shmi_synchronized_repaired(void *arg)
{
    (void)arg;
    return 0;
}

SHMI_FN void *shmi_synchronized_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    size_t size = *(const size_t *)arg;
    struct shmi_synchronized *x = (struct shmi_synchronized *)shmi_new_thing(sizeof *x);
    int i;
    if (x == NULL)
        return NULL;
    x->w = (shmi_synchronized_words *)shmi_ptr(a, o->body, sizeof *x->w, 64);
    shmi_mutex_init(&x->m, a, &x->w->lock, o->off, "", 0);
    x->m.o = *o;
    x->m.called = shmi_called(&x->m.o);
    x->m.repair = shmi_synchronized_repaired;
    x->size = size;
    x->lent = 1; /* this process may have had the lock since a begin through an earlier handle */
    for (i = 0; i < 2; i++)
        x->copies[i] = (unsigned char *)shmi_ptr(a, o->body + shmi_synchronized_copy_at(size, i), size, 64);
    return x;
}

SHMI_FN int shmi_synchronized_handle(shmsync_arena *a, const shmi_object *o, size_t size, shmsync_synchronized *out)
{
    return SHMI_HAND_OUT(out, struct shmi_synchronized *, shmi_share(a, o, shmi_synchronized_build, &size));
}

SHMI_FN int shmi_open_synchronized(int existing, shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out)
{
    SHMI_OPTIONS(shmsync_synchronized_options, 40, "synchronized.open", out->impl);
    shmi_spec spec;
    shmi_synchronized_spec init;
    shmi_object o;
    int err, created;
    if (size > SHMI_SYNCHRONIZED_MOST)
        return shmi_fail(EINVAL, "synchronized.open", name, "a value of %zu bytes; the most is %u", size, SHMI_SYNCHRONIZED_MOST);
    memset(&init, 0, sizeof init);
    init.size = size;
    memset(&spec, 0, sizeof spec);
    if (opts != NULL) {
        init.initial = opts->initial;
        init.spin = shmi_spin_field(opts->spin_ns);
    }
    spec.kind = SHMI_KIND_SYNCHRONIZED;
    spec.version = SHMI_VERSION_SYNCHRONIZED;
    spec.name = name;
    spec.size = shmi_synchronized_copy_at(size, 1) + size;
    spec.init = shmi_synchronized_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_spec_type(&spec, "synchronized.open", opts != NULL ? opts->layout : 0, opts != NULL ? opts->type : NULL);
    if (err == 0)
        err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_synchronized_handle(a, &o, size, out));
    shmi_exit(a);
    return err;
}
int shmsync_synchronized_open(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_synchronized(0, a, name, size, opts, out));
}
int shmsync_synchronized_attach(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_synchronized(1, a, name, size, opts, out));
}

int shmsync_synchronized_at(shmsync_arena *a, shmsync_offset off, size_t size, shmsync_synchronized *out)
{
    SHMI_BEGIN_AT(a, "synchronized.open", out);
    shmi_object o;
    int err;
    if (size > SHMI_SYNCHRONIZED_MOST)
        return SHMI_TELL(shmi_fail(EINVAL, "synchronized.open", NULL, "a value of %zu bytes; the most is %u", size, SHMI_SYNCHRONIZED_MOST));
    err = shmi_object_at(a, off, "synchronized.open", SHMI_KIND_SYNCHRONIZED, SHMI_VERSION_SYNCHRONIZED, sizeof(shmi_synchronized_words), &o);
    if (err != 0)
        return SHMI_TELL(err);
    if (o.size != shmi_synchronized_copy_at(size, 1) + size) {
        shmi_close_object(a, off);
        err = shmi_fail(EINVAL, "synchronized.open", shmi_called(&o), "it has %llu bytes; with a value of %zu bytes it has %llu",
                        (unsigned long long)o.size, size, (unsigned long long)(shmi_synchronized_copy_at(size, 1) + size));
    } else {
        err = shmi_synchronized_handle(a, &o, size, out);
    }
    return SHMI_TELL(shmi_exit_with(a, err));
}
shmsync_offset shmsync_synchronized_offset(const shmsync_synchronized *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->m.o.off;
}

SHMI_FN void shmi_synchronized_end(void *handle)
{
    shmi_mutex_wake_owed(&((struct shmi_synchronized *)handle)->m);
    shmi_free_thing(handle);
}
int shmsync_synchronized_close(shmsync_synchronized *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(s->impl->m.a, s->impl->m.o.off, shmi_synchronized_end);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

/* Locks. If the lock is owner-dead or not recoverable, a peer has overwritten it, because no correct process leaves it
 * so. */
SHMI_FN int shmi_synchronized_lock(struct shmi_synchronized *x, int64_t deadline)
{
    int err = shmi_mutex_lock(&x->m, deadline);
    return SHMI_LIKELY(err != ENOTRECOVERABLE && err != EOWNERDEAD) ? err
                                                                    : shmi_fail(EPROTO, "synchronized.lock", x->m.called, "its lock says that it is not recoverable");
}

SHMI_COLD int shmi_synchronized_left(struct shmi_synchronized *x, const char *op)
{
    shmi_xchg32(&x->lent, 1);
    return shmi_fail(EBADF, op, x->m.called, "this process closed the arena");
}
/* Begins the use of the copies by a call. The caller has the lock. Returns EBADF if this process is leaving the arena and
 * does not wait for this call. Then the lock stays as it is, and the leave, or a reaper, takes it back.
 *
 *     the call                    the leave: shmi_await_uncounted
 *     lent := 0                   leaving := 1
 *                                 shmi_fence
 *     load of leaving             load of lent: see shmi_synchronized_in_call
 *
 * So either the call sees the leave, or the leave waits for the call. If this process has registered for membarrier, the
 * fence of the leave makes a plain store enough in the call, as in shmi_mutex_unlock_at_once. */
SHMI_FAST int shmi_synchronized_use(struct shmi_synchronized *x, const char *op)
{
    if (shmi_ld32(&x->lent) != 0) {
        if (SHMI_LIKELY(__atomic_load_n(&x->m.a->fenced, __ATOMIC_SEQ_CST))) {
            __atomic_store_n(&x->lent, 0, __ATOMIC_RELAXED);
            __atomic_signal_fence(__ATOMIC_SEQ_CST);
        } else {
            shmi_xchg32(&x->lent, 0);
        }
    }
    return SHMI_LIKELY(!__atomic_load_n(&x->m.a->leaving, __ATOMIC_SEQ_CST)) ? 0 : shmi_synchronized_left(x, op);
}
/* Copies the valid copy to the other one, for a change. The caller has the lock. Returns the other copy. */
SHMI_FN void *shmi_synchronized_copy(struct shmi_synchronized *x)
{
    uint64_t c = __atomic_load_n(&x->w->current, __ATOMIC_RELAXED); /* the lock orders this load */
    if (x->size != 0)
        memcpy(x->copies[(c + 1) & 1], x->copies[c & 1], x->size);
    SHMSYNC_CRASHPOINT("synchronized.update.copied");
    return x->copies[(c + 1) & 1];
}
/* Makes *copy a copy of the value, which the program may change until it calls commit or abort. The caller has the lock. */
SHMI_FN int shmi_synchronized_lend(struct shmi_synchronized *x, void **copy)
{
    int err = shmi_synchronized_use(x, "synchronized.begin");
    if (err != 0)
        return err;
    *copy = shmi_synchronized_copy(x);
    __atomic_store_n(&x->lent, 1, __ATOMIC_RELEASE);
    return 0;
}
/* Keeps the object open until this call has the copy. If another thread has closed the handle meanwhile, no call could
 * commit. So this call then unlocks and returns an error. */
SHMI_COLD int shmi_synchronized_begin_slow(struct shmi_synchronized *x, void **copy, int64_t deadline)
{
    shmsync_arena *a = x->m.a;
    int err = shmi_enter_for(x, a, "synchronized.begin");
    if (err != 0)
        return err;
    err = shmi_synchronized_lock(x, deadline);
    if (err == 0 && (err = shmi_kept_closed(x, "synchronized.begin")) != 0)
        shmi_mutex_unlock(&x->m);
    else if (err == 0)
        err = shmi_synchronized_lend(x, copy);
    shmi_exit_for(x, a);
    return err;
}
SHMI_FN int shmi_synchronized_begin(struct shmi_synchronized *x, void **copy, int64_t deadline)
{
    *copy = NULL;
    if (SHMI_UNLIKELY(!shmi_mutex_at_once(&x->m)))
        return shmi_synchronized_begin_slow(x, copy, deadline);
    return shmi_synchronized_lend(x, copy);
}
int shmsync_synchronized_begin(shmsync_synchronized *s, void **copy)
{
    SHMI_OPENED_ELSE(s, *copy = NULL);
    return SHMI_DONE_ELSE(shmi_synchronized_begin(s->impl, copy, 0), *copy = NULL);
}
int shmsync_synchronized_timedbegin(shmsync_synchronized *s, void **copy, const struct timespec *abs_monotonic)
{
    SHMI_OPENED_ELSE(s, *copy = NULL);
    int64_t deadline;
    *copy = NULL;
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "synchronized.timedbegin", s->impl->m.called, "not a time");
    return SHMI_DONE_ELSE(shmi_synchronized_begin(s->impl, copy, deadline), *copy = NULL);
}

/* Checks that this process holds the lock. Returns 0 or an errno. */
SHMI_FN int shmi_synchronized_holds(struct shmi_synchronized *x, const char *op)
{
    shmi_participant_id self = shmi_self(x->m.a);
    uint32_t o = __atomic_load_n(x->m.own, __ATOMIC_RELAXED);
    if (SHMI_LIKELY(self != 0 && shmi_owner_held(o) && shmi_owner_name(o) == self))
        return 0;
    if (self == 0)
        return shmi_fail(shmi_nameless(x->m.a), op, x->m.called, "%s", "");
    return shmi_fail(EPERM, op, x->m.called, "this process does not hold it (owner word %#010x)", o);
}

/* Begins a commit or an abort: the program gives the copy back that a begin gave to it. */
SHMI_FN int shmi_synchronized_take_back(struct shmi_synchronized *x, const char *op)
{
    int err = shmi_synchronized_holds(x, op);
    return err != 0 ? err : shmi_synchronized_use(x, op);
}
/* Commits and unlocks, after shmi_synchronized_use. */
SHMI_FN int shmi_synchronized_commit(struct shmi_synchronized *x)
{
    SHMSYNC_CRASHPOINT("synchronized.update.written");
    shmi_commit_store(&x->w->current, __atomic_load_n(&x->w->current, __ATOMIC_RELAXED) + 1);
    SHMSYNC_CRASHPOINT("synchronized.update.committed");
    return shmi_mutex_unlock(&x->m);
}
int shmsync_synchronized_commit(shmsync_synchronized *s)
{
    SHMI_OPENED(s);
    int err = shmi_synchronized_take_back(s->impl, "synchronized.commit");
    return SHMI_DONE(err != 0 ? err : shmi_synchronized_commit(s->impl));
}

int shmsync_synchronized_abort(shmsync_synchronized *s)
{
    SHMI_OPENED(s);
    int err = shmi_synchronized_take_back(s->impl, "synchronized.abort");
    return SHMI_DONE(err != 0 ? err : shmi_mutex_unlock(&s->impl->m));
}

/* Stores the value and unlocks. The caller has the lock. */
SHMI_FN int shmi_synchronized_put(struct shmi_synchronized *x, const void *src)
{
    int err = shmi_synchronized_use(x, "synchronized.store");
    if (err != 0)
        return err;
    if (x->size != 0)
        memcpy(x->copies[(__atomic_load_n(&x->w->current, __ATOMIC_RELAXED) + 1) & 1], src, x->size);
    SHMSYNC_CRASHPOINT("synchronized.update.copied");
    err = shmi_synchronized_holds(x, "synchronized.store"); /* the leave may have given up its wait for the memcpy */
    return err != 0 ? err : shmi_synchronized_commit(x);
}
/* Keeps the object open until this call has unlocked, even if another thread closes the handle meanwhile. */
SHMI_COLD int shmi_synchronized_store_slow(struct shmi_synchronized *x, const void *src)
{
    shmsync_arena *a = x->m.a;
    int err = shmi_enter_for(x, a, "synchronized.store");
    if (err != 0)
        return err;
    err = shmi_synchronized_lock(x, 0);
    if (err == 0)
        err = shmi_synchronized_put(x, src);
    shmi_exit_for(x, a);
    return err;
}
int shmsync_synchronized_store(shmsync_synchronized *s, const void *src)
{
    SHMI_OPENED(s);
    struct shmi_synchronized *x = s->impl;
    return SHMI_DONE(SHMI_LIKELY(shmi_mutex_at_once(&x->m)) ? shmi_synchronized_put(x, src) : shmi_synchronized_store_slow(x, src));
}

/* Reads the value without the lock. Returns whether dst has one whole value. */
SHMI_FN int shmi_synchronized_read(struct shmi_synchronized *x, void *dst)
{
    uint64_t c = __atomic_load_n(&x->w->current, __ATOMIC_ACQUIRE);
    memcpy(dst, x->copies[c & 1], x->size);
    shmi_load_fence();
    return __atomic_load_n(&x->w->current, __ATOMIC_RELAXED) == c;
}

/* Reads the value with the lock. If the lock does not become free for SHMI_SYNCHRONIZED_WAIT, tries to read without
 * the lock. If those reads fail, too, waits for the lock again. */
SHMI_FN int shmi_synchronized_load_entered(struct shmi_synchronized *x, void *dst)
{
    int round = 0, tries, err;
    for (;; round++) {
        err = shmi_synchronized_lock(x, round < SHMI_synchronizedRounds ? shmi_now() + SHMI_SYNCHRONIZED_WAIT : 0);
        if (err == 0) {
            memcpy(dst, x->copies[__atomic_load_n(&x->w->current, __ATOMIC_RELAXED) & 1], x->size);
            shmi_mutex_unlock(&x->m);
            return 0;
        }
        if (err != ETIMEDOUT)
            return err;
        for (tries = 0; tries < SHMI_synchronizedTries; tries++)
            if (shmi_synchronized_read(x, dst))
                return 0;
    }
}
SHMI_COLD int shmi_synchronized_load_slow(struct shmi_synchronized *x, void *dst)
{
    shmsync_arena *a = x->m.a;
    int err = shmi_enter_for(x, a, "synchronized.load");
    if (err != 0)
        return err;
    err = shmi_synchronized_load_entered(x, dst);
    shmi_exit_for(x, a);
    return err;
}

int shmsync_synchronized_load(const shmsync_synchronized *s, void *dst)
{
    SHMI_OPENED(s);
    struct shmi_synchronized *x = s->impl;
    if (SHMI_UNLIKELY(shmi_self(x->m.a) == 0))
        return shmi_fail(shmi_nameless(x->m.a), "synchronized.load", x->m.called, "%s", "");
    if (x->size == 0)
        return SHMI_DONE(0);
#ifndef SHMI_THREAD_SANITIZER /* the thread sanitizer sees only the order that the lock makes */
    {
        int tries;
        for (tries = 0; tries < SHMI_synchronizedTries; tries++)
            if (SHMI_LIKELY(shmi_synchronized_read(x, dst)))
                return SHMI_DONE(0);
    }
#endif
    return SHMI_DONE(shmi_synchronized_load_slow(x, dst));
}

/* Whether a call of this process has the lock, and may store to the copies. */
SHMI_FN int shmi_synchronized_in_call(shmsync_arena *a, const shmi_object *o)
{
    shmi_ref *r;
    int in_call = 0;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, o->off);
    if (r != NULL && r->handle != NULL && r->h.o.kind == SHMI_KIND_SYNCHRONIZED) {
        struct shmi_synchronized *x = (struct shmi_synchronized *)r->handle;
        uint32_t w = shmi_ld32(x->m.own);
        in_call = shmi_owner_held(w) && shmi_owner_name(w) == a->self && shmi_ld32(&x->lent) == 0;
    }
    pthread_mutex_unlock(&a->handles);
    pthread_mutex_unlock(&a->handles_of);
    return in_call;
}

uint64_t shmsync_synchronized_commits(const shmsync_synchronized *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld64(&s->impl->w->current);
}

