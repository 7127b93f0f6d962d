/* ---- Mutex: docs/design/0002-mutex-protocol.md ---- */

enum { SHMI_kindHeld, SHMI_kindBiased, SHMI_kindReserved, SHMI_kindOwnerDead, SHMI_kindRecovering, SHMI_kindNotRecoverable };
#define SHMI_OWNER_BIASED (1u << 29)
#define SHMI_OWNER_NOT_RECOVERABLE (5u << 29)
#define SHMI_MUTEX_KIND SHMI_KIND('M', 'U', 'T', 'X')
enum { SHMI_mutexVersion = 1, SHMI_biasAfter = 4096, SHMI_biasMost = 1 << 20 };
#define SHMI_STARVE_AFTER 1000000
#define SHMI_METFUTURE UINT64_C(60000000000) /* a time this far in the future is wrong, or of another boot */
#define SHMI_HAND_OFF_EVERY 1000000
#define SHMI_UNFENCED_SLEEP 1000000
#define SHMI_HANDED_LOCALLY UINT64_C(1) /* bit of the word handed: the last handoff was between threads of one process */

SHMI_FN uint32_t shmi_owner_kind(uint32_t o) { return o >> 29; }
SHMI_FN shmi_participant_id shmi_owner_name(uint32_t o) { return o & SHMI_NAME_MASK; }
SHMI_FN uint32_t shmi_make_owner(uint32_t kind, shmi_participant_id n) { return kind << 29 | n; }
SHMI_FN int shmi_owner_held(uint32_t o)
{
    uint32_t k = shmi_owner_kind(o);
    return shmi_owner_name(o) != 0 && (k == SHMI_kindHeld || k == SHMI_kindBiased || k == SHMI_kindRecovering);
}
SHMI_FN int shmi_owner_valid(uint32_t o)
{
    switch (shmi_owner_kind(o)) {
    case SHMI_kindHeld: return 1;
    case SHMI_kindBiased:
    case SHMI_kindReserved:
    case SHMI_kindOwnerDead:
    case SHMI_kindRecovering: return shmi_owner_name(o) != 0;
    case SHMI_kindNotRecoverable: return o == SHMI_OWNER_NOT_RECOVERABLE;
    }
    return 0;
}

/* Whether every wait for the lock ends with an error, until a recover has succeeded. */
SHMI_FN int shmi_owner_ends_waits(uint32_t o)
{
    return !shmi_owner_valid(o) || shmi_owner_kind(o) == SHMI_kindOwnerDead || o == SHMI_OWNER_NOT_RECOVERABLE;
}

/* This process's handle on a mutex, which may be a part of another object. */
typedef struct shmi_mutex {
    uint32_t *own, *wake; /* the owner word, the wake word */
    shmi_me *me;
    uint32_t bias;        /* the bits that a lock adds to this process's ID: SHMI_OWNER_BIASED or 0. Atomic. */
    uint32_t bias_most;   /* 0 if holds are never biased; otherwise SHMI_OWNER_BIASED */
    shmsync_arena *a;
    shmi_mutex_words *w;
    shmi_wait_list line;
    shmi_off object;      /* offset of the header of the object to which the mutex belongs */
    const char *called;   /* name for messages; valid as long as this process has the object open */
    int release;          /* the policy is SHMI_POLICY_RELEASE */
    int rollback;         /* the policy is SHMI_POLICY_ROLLBACK */
    shmi_log log;         /* undo log; only with rollback */
    /* not 0: the mutex is a part of another object and guards only words, not data of users. So another process may
     * have it as soon as the holder is dead, even before the holder is gone */
    int internal;
    int (*repair)(void *);
    void *repair_arg;
    uint32_t quiet;       /* unlocks in a row that found no waiter; the holder of the mutex writes it. Atomic. */
    uint32_t need;        /* the value of quiet at which holds become biased again. Atomic. */
    uint32_t reserved;    /* the owner word that the last periodic check found, if it was a reservation; otherwise 0. Atomic. */
    int64_t looked;
    struct shmi_rwmutex *rw; /* the RWMutex whose writers lock this mutex, or NULL; transactions need it */
    shmi_object o; /* the object, if the mutex is an object of its own */
} shmi_mutex;

/* The handle on the object to which the mutex belongs. */
SHMI_FN void *shmi_mutex_thing(shmi_mutex *m) { return m->rw != NULL ? (void *)m->rw : (void *)m; }

/* Makes a handle on the mutex words w in the body of an object. internal says that the mutex is a part of another
 * object. */
SHMI_FN void shmi_mutex_init(shmi_mutex *m, shmsync_arena *a, shmi_mutex_words *w, shmi_off object, const char *called, int internal)
{
    memset(m, 0, sizeof *m);
    m->own = &w->owner;
    m->wake = &w->wake;
    m->me = a->me;
    m->a = a;
    m->w = w;
    m->line.word = &w->wake;
    m->line.poller = &w->poller;
    m->object = object;
    m->called = called;
    m->release = (w->policy & 0xff) == SHMI_POLICY_RELEASE;
    m->internal = internal;
    m->need = SHMI_biasAfter;
    if (shmi_has(&shmi_have.membarrier))
        m->bias_most = SHMI_OWNER_BIASED;
    if (__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE))
        m->bias = m->bias_most; /* otherwise shmi_mutex_unlock_slow sets the bias, after this process has registered for membarrier */
}

SHMI_COLD int shmi_mutex_lock_slow(shmi_mutex *m, int64_t deadline);
SHMI_COLD int shmi_mutex_trylock_slow(shmi_mutex *m);
SHMI_COLD int shmi_mutex_unlock_slow(shmi_mutex *m, uint32_t o);
SHMI_SELDOM void shmi_mutex_lose_bias(shmi_mutex *m);
SHMI_COLD void shmi_mutex_wake_after(shmi_mutex *m);
/* Takes an owner-dead mutex, and runs the repair function of the handle. Returns 1 if it has taken the mutex, and 0 if
 * the owner word is no longer o. Otherwise it sets *err to an errno. */
SHMI_FN int shmi_mutex_inherit(shmi_mutex *m, uint32_t o, int *err);
SHMI_FN void shmi_mutex_check(shmi_mutex *m);
/* An object that has a mutex as a part calls these functions after a death: they repair the mutex and send wakes. */
SHMI_FN void shmi_mutex_repair_words(shmsync_arena *a, shmi_mutex_words *w, shmi_participant_id dead, int internal, const shmi_log *log);
SHMI_FN void shmi_mutex_wake_words(shmsync_arena *a, shmi_mutex_words *w, int owed);

/* The ID of this process, which is 0 in a child of fork. */
SHMI_FAST uint32_t shmi_mutex_name(const shmi_mutex *m) { return __atomic_load_n(&m->me->name, __ATOMIC_RELAXED); }
/* Takes the mutex for the participant with the ID name, if a single compare-and-swap can take it. */
SHMI_FAST int shmi_mutex_at_once_for(shmi_mutex *m, uint32_t name)
{
    return SHMI_LIKELY(name != 0) && shmi_cas32(m->own, 0, name | __atomic_load_n(&m->bias, __ATOMIC_RELAXED));
}
SHMI_FAST int shmi_mutex_at_once(shmi_mutex *m) { return shmi_mutex_at_once_for(m, shmi_mutex_name(m)); }
/* Locks the mutex; deadline 0 means no deadline. Returns 0 or an errno. If the handle has a repair function, the call
 * runs it instead of returning EOWNERDEAD, with rare exceptions. */
SHMI_FN int shmi_mutex_lock(shmi_mutex *m, int64_t deadline)
{
    return SHMI_LIKELY(shmi_mutex_at_once(m)) ? 0 : shmi_mutex_lock_slow(m, deadline);
}
SHMI_FN int shmi_mutex_trylock(shmi_mutex *m) { return SHMI_LIKELY(shmi_mutex_at_once(m)) ? 0 : shmi_mutex_trylock_slow(m); }
/* What shmi_mutex_store_unlock has done. */
enum { SHMI_unlockedNot, SHMI_unlocked, SHMI_unlockedBeforeWaiter };
/* Unlocks the mutex if its owner word o says that the participant with the ID name has a biased hold. After
 * SHMI_unlockedBeforeWaiter, the caller calls shmi_mutex_lose_bias. */
SHMI_FAST int shmi_mutex_store_unlock(shmi_mutex *m, uint32_t name, uint32_t o)
{
    if (SHMI_LIKELY(o == (name | SHMI_OWNER_BIASED)) && SHMI_LIKELY(name != 0)) {
        /* The store is only a release, so the CPU may load the wake word before the store takes effect. This process
         * needs no fence, because a waiter calls shmi_fence after its announcement. */
        __atomic_store_n(m->own, 0, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        return SHMI_LIKELY((__atomic_load_n(m->wake, __ATOMIC_SEQ_CST) & 1) == 0) ? SHMI_unlocked : SHMI_unlockedBeforeWaiter;
    }
    return SHMI_unlockedNot;
}
/* As shmi_mutex_store_unlock, and wakes the waiter. */
SHMI_FAST int shmi_mutex_unlock_at_once(shmi_mutex *m, uint32_t name, uint32_t o)
{
    int done = shmi_mutex_store_unlock(m, name, o);
    if (SHMI_UNLIKELY(done == SHMI_unlockedBeforeWaiter))
        shmi_mutex_lose_bias(m);
    return done != SHMI_unlockedNot;
}
SHMI_FN int shmi_mutex_unlock(shmi_mutex *m)
{
    uint32_t o = __atomic_load_n(m->own, __ATOMIC_RELAXED); /* no other process writes the word while this one holds the mutex */
    return SHMI_LIKELY(shmi_mutex_unlock_at_once(m, shmi_mutex_name(m), o)) ? 0 : shmi_mutex_unlock_slow(m, o);
}

