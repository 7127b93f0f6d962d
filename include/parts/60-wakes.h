/* ---- Waits in queues, and the wakes that end them ---- */

/* A wait in a queue: its node, and the offset of the node. If n is NULL, there is no wait. */
struct shmi_wait {
    uint64_t off;
    shmi_node *n;
};

/* Waits that have ended. This process wakes their owners after it has given back its private lock. */
struct shmi_woken {
    struct shmi_wait w;
    uint32_t state; /* state of the node when the wait was resolved */
    uint32_t owner; /* the owner at that time: if it has died since, the node may have another owner when the wake is sent */
};
enum { SHMI_wakesFew = 32 };
struct shmi_wakes {
    uint32_t n, room;
    struct shmi_woken few[SHMI_wakesFew], *more; /* if the array few is full, the array more gets a copy of it, and then all further waits */
};

SHMI_FN void shmi_wakes_init(struct shmi_wakes *b)
{
    b->n = 0;
    b->room = SHMI_wakesFew;
    b->more = NULL;
}

SHMI_FN void shmi_wake_one(shmsync_arena *a, struct shmi_woken *u)
{
    if (u->state == SHMI_NodeParked) {
        shmi_tell(a, u->w.off, u->w.n, u->owner);
        shmi_end_tell(a);
    } else {
        shmi_wake(&u->w.n->word, 1);
    }
}

SHMI_FN void shmi_wakes_add(shmsync_arena *a, struct shmi_wakes *b, struct shmi_wait w, uint32_t state, uint32_t owner)
{
    struct shmi_woken *to = b->more != NULL ? b->more : b->few, u;
    if (state == SHMI_NodeQueued)
        return; /* the owner is awake */
    u.w = w;
    u.state = state;
    u.owner = owner;
    if (b->n == b->room) {
        uint32_t room = 4 * b->room;
        struct shmi_woken *more = (struct shmi_woken *)shmi_scratch(b->more, b->more != NULL ? b->room * sizeof *more : 0, room * sizeof *more);
        if (more == NULL) {
            shmi_wake_one(a, &u); /* no memory for the list: wake the owner at once */
            return;
        }
        if (b->more == NULL)
            memcpy(more, b->few, sizeof b->few);
        b->more = to = more;
        b->room = room;
    }
    to[b->n++] = u;
}

/* Wakes the owners in b, and makes b empty. */
SHMI_FN void shmi_wake_all_of(shmsync_arena *a, struct shmi_wakes *b)
{
    struct shmi_woken *u = b->more != NULL ? b->more : b->few;
    uint32_t i;
    for (i = 0; i < b->n; i++)
        shmi_wake_one(a, &u[i]);
    shmi_end_scratch(b->more, b->room * sizeof *b->more);
    shmi_wakes_init(b);
}
