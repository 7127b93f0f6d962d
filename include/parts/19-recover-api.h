/* ---- Recovery of all objects, for on_first ---- */

/* An object that a death has made unusable, or one key of a multilock. */
typedef struct shmsync_lost {
    shmsync_offset offset; /* of the object */
    const char *name;      /* "" if it is anonymous */
    char kind[5];          /* "MUTX" and the like */
    int has_key;           /* not 0: the object is a multilock, and key says which key is meant */
    uint64_t key;
    int err;               /* the error that calls on it return: EOWNERDEAD or ENOTRECOVERABLE */
    int who_known;         /* not 0: the field below names the participant that died */
    shmsync_participant who;
} shmsync_lost;

/* shmsync_recover_all makes objects usable again if deaths have made them unusable. Call it in on_first, when no other
 * process is in and every dead process has been reaped. For each unusable object of the arena, and for each unusable
 * key of a multilock, it calls repair, which must repair the data that the object guards. For a lock, it holds the lock
 * while repair runs. After repair, a waitgroup, latch, barrier or future is reset, unless it is usable by now: a future
 * that repair has set keeps its result. Healthy objects are only read.
 *
 * If repair returns an errno, the object stays unusable, and the call goes on with the other objects. The result is 0
 * or the first error. If repair fails for a lock, the error is ENOTRECOVERABLE; for another object, it is the errno
 * that repair returned. EPROTO: a peer has overwritten an object. ENOSPC: the arena has no room for what the recovery
 * of an object needs. ENOMEM: objects or keys may have been left out. *recovered, if recovered is not NULL, is the
 * number of objects and keys that were recovered. Objects of kinds that this header does not have, such as CohortMutex
 * and Waitable of the Go side, are left alone. */
int shmsync_recover_all(shmsync_arena *a, int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg), void *arg, size_t *recovered);

