/* Sequencers: a counter outside the queue lock, and waiters until it has reached a token, in a leftist heap. It is
 * prims/sequencer*.go in C. An auto-reset Event has the same word next. */

/* A wait's place in the heap of the tokens. Links below are in next, the link above and the ranks in extra. */
SHMI_FN uint64_t shmi_heap_up(struct shmi_wait w) { return (shmi_get(&w.n->extra) >> 32) * 64; }
SHMI_FN void shmi_heap_set_up(struct shmi_wait w, uint64_t up)
{
    shmi_put(&w.n->extra, (shmi_get(&w.n->extra) & UINT32_MAX) | up / 64 << 32);
}
SHMI_FN uint64_t shmi_heap_left(uint64_t l) { return (l & UINT32_MAX) * 64; }
SHMI_FN uint64_t shmi_heap_right(uint64_t l) { return (l >> 32) * 64; }
SHMI_FN uint32_t shmi_heap_rank_left(struct shmi_wait w) { return shmi_class_of(w) >> 8; }
SHMI_FN uint32_t shmi_heap_rank_right(struct shmi_wait w) { return shmi_class_of(w) & 0xff; }
/* The rank of w; 0 if there is no w. It is masked to one byte, since a peer may have written
   impossible ranks. */
SHMI_FN uint32_t shmi_heap_rank(struct shmi_wait w)
{
    return w.n == NULL ? 0 : (shmi_heap_rank_right(w) + 1) & 0xff;
}

/* Whether x's wait is to end before y's. */
SHMI_FN int shmi_heap_before(struct shmi_wait x, struct shmi_wait y)
{
    uint64_t a = shmi_get(&x.n->wanted), b = shmi_get(&y.n->wanted);
    return a != b ? a < b : shmi_stamp_of(x) < shmi_stamp_of(y);
}

SHMI_FN struct shmi_wait shmi_heap_first(struct shmi_monitor *m, uint64_t *root)
{
    return shmi_mon_node(m, shmi_get(root));
}

SHMI_FN void shmi_heap_set_root(uint64_t *root, struct shmi_wait w)
{
    shmi_put(root, w.off);
    if (w.n != NULL)
        shmi_heap_set_up(w, 0);
}

/* Links two heaps with those ranks below w, the one with the greater to the left. */
SHMI_FN void shmi_heap_lean(struct shmi_wait w, uint64_t left, uint64_t right, uint32_t left_rank, uint32_t right_rank)
{
    if (left_rank < right_rank) {
        uint64_t o = left;
        uint32_t r = left_rank;
        left = right;
        right = o;
        left_rank = right_rank;
        right_rank = r;
    }
    shmi_put(&w.n->next, right / 64 << 32 | (uint32_t)(left / 64));
    shmi_put(&w.n->extra, (shmi_get(&w.n->extra) & ~(UINT64_C(0xffff) << 16)) | (uint64_t)left_rank << 24 | (uint64_t)right_rank << 16);
}

#define SHMI_HEAP_DEEP 64 /* two ways of 32, for there are at most 2^32 nodes */

/* Makes one heap of two, which may be empty. The link up of the result is for the caller to set. */
SHMI_FN struct shmi_wait shmi_heap_meld(struct shmi_monitor *m, struct shmi_wait x, struct shmi_wait y)
{
    struct shmi_wait path[SHMI_HEAP_DEEP], below;
    int n = 0;
    while (x.n != NULL && y.n != NULL) {
        if (n == SHMI_HEAP_DEEP) {
            shmi_set_broken(m, 1); /* the rebuild finds the nodes on the path by their stamps */
            return x;
        }
        if (shmi_heap_before(y, x)) {
            struct shmi_wait t = x;
            x = y;
            y = t;
        }
        path[n++] = x;
        x = shmi_mon_node(m, shmi_heap_right(shmi_get(&x.n->next)));
    }
    below = x.n != NULL ? x : y;
    while (n-- > 0) {
        struct shmi_wait w = path[n];
        shmi_heap_set_up(below, w.off);
        shmi_heap_lean(w, shmi_heap_left(shmi_get(&w.n->next)), below.off, shmi_heap_rank_left(w), shmi_heap_rank(below));
        below = w;
    }
    return below;
}

SHMI_FN void shmi_heap_insert(struct shmi_monitor *m, uint64_t *root, struct shmi_wait w)
{
    shmi_put(&w.n->next, 0);
    shmi_put(&w.n->extra, 0);
    shmi_heap_set_root(root, shmi_heap_meld(m, shmi_heap_first(m, root), w));
}

/* Puts all of another heap in, which is empty afterwards. */
SHMI_FN void shmi_heap_join(struct shmi_monitor *m, uint64_t *root, uint64_t *other)
{
    struct shmi_wait theirs = shmi_heap_first(m, other);
    if (theirs.n == NULL)
        return;
    shmi_put(other, 0);
    shmi_heap_set_root(root, shmi_heap_meld(m, shmi_heap_first(m, root), theirs));
}

SHMI_FN void shmi_heap_detach(struct shmi_monitor *m, uint64_t *root, struct shmi_wait w)
{
    uint64_t l = shmi_get(&w.n->next), up = shmi_heap_up(w), from = w.off;
    struct shmi_wait left = shmi_mon_node(m, shmi_heap_left(l));
    struct shmi_wait right = shmi_mon_node(m, shmi_heap_right(l));
    struct shmi_wait below = shmi_heap_meld(m, left, right);
    uint32_t rank;
    int n;
    if (up == 0) {
        if (shmi_get(root) != w.off)
            shmi_set_broken(m, 1);
        else
            shmi_heap_set_root(root, below);
        return;
    }
    if (below.n != NULL)
        shmi_heap_set_up(below, up);
    rank = shmi_heap_rank(below);
    /* The ranks above shrink, by ever more on the way, so that it is short. */
    for (n = 0; up != 0; n++) {
        struct shmi_wait above = shmi_mon_node(m, up);
        uint64_t al;
        uint32_t rl, rr;
        if (above.n == NULL)
            return; /* the heap is damaged, and is rebuilt */
        al = shmi_get(&above.n->next);
        rl = shmi_heap_rank_left(above);
        rr = shmi_heap_rank_right(above);
        if (n == SHMI_HEAP_DEEP) {
            shmi_set_broken(m, 1);
            return;
        }
        if (from == shmi_heap_left(al))
            shmi_heap_lean(above, below.off, shmi_heap_right(al), rank, rr);
        else if (from == shmi_heap_right(al))
            shmi_heap_lean(above, shmi_heap_left(al), below.off, rl, rank);
        else {
            shmi_set_broken(m, 1);
            return;
        }
        rank = shmi_heap_rank(above);
        if (rank == ((rr + 1) & 0xff))
            return;
        from = above.off;
        below = above;
        up = shmi_heap_up(above);
    }
}

/* The node after w in the order: node, left, right. */
SHMI_FN struct shmi_wait shmi_heap_following(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_wait none;
    uint64_t l = shmi_get(&w.n->next), most = m->a->size / 64, i;
    uint64_t down = shmi_heap_left(l) != 0 ? shmi_heap_left(l) : shmi_heap_right(l);
    none.off = 0;
    none.n = NULL;
    if (down != 0) {
        struct shmi_wait below = shmi_mon_node(m, down);
        if (below.n == NULL || shmi_heap_up(below) != w.off) {
            shmi_set_broken(m, 1);
            return none;
        }
        return below;
    }
    for (i = 0; i < most; i++) {
        uint64_t up = shmi_heap_up(w), al;
        struct shmi_wait above;
        if (up == 0)
            return none;
        above = shmi_mon_node(m, up);
        if (above.n == NULL)
            return none;
        al = shmi_get(&above.n->next);
        if (shmi_heap_left(al) == w.off && shmi_heap_right(al) != 0 && shmi_heap_right(al) != w.off)
            return shmi_mon_node(m, shmi_heap_right(al));
        w = above;
    }
    shmi_set_broken(m, 1);
    return none;
}

/* Takes off the waits of a heap that nobody is there for. They are noted first: what is below one moves when it is taken off. */
SHMI_FN void shmi_heap_discard_dead(struct shmi_monitor *m, uint64_t *root)
{
    uint64_t most = m->a->size / 64, seen = 0;
    struct shmi_queued_wait few[16], *all = few, *more;
    size_t n = 0, room = 16, i;
    struct shmi_wait w = shmi_heap_first(m, root);
    for (; w.n != NULL; w = shmi_heap_following(m, w)) {
        if (++seen > most) {
            shmi_set_broken(m, 1);
            break;
        }
        if (shmi_mon_waiting(m, w))
            continue;
        if (n == room) {
            more = (struct shmi_queued_wait *)shmi_scratch(all != few ? all : NULL, room * sizeof *more, 4 * room * sizeof *more);
            if (more == NULL) {
                shmi_set_broken(m, 1); /* the rebuild drops the waits that are left over */
                break;
            }
            if (all == few)
                memcpy(more, few, sizeof few);
            all = more;
            room *= 4;
        }
        all[n].w = w;
        all[n++].stamp = shmi_stamp_of(w);
    }
    for (i = 0; i < n && !shmi_is_broken(m); i++)
        if (shmi_stamp_of(all[i].w) == all[i].stamp)
            shmi_mon_discard(m, all[i].w);
    if (all != few)
        shmi_end_scratch(all, room * sizeof *all);
}

/* The counter and its waits: a Sequencer, or the head of an Event with automatic reset. */
struct shmi_sequence {
    struct shmi_monitor m;
    shmi_sequence_words *w;
};

#define SHMI_REACHED 0U
#define SHMI_CANCELED 1U
#define SHMI_RESOLVE_BATCH 64U
/* Values of the word next: no count is looked at, every one is. */
#define SHMI_NOBODY UINT64_C(0)
#define SHMI_ANYBODY UINT64_MAX

SHMI_FN int shmi_seq_reached(struct shmi_sequence *q, uint64_t token) { return shmi_ld64(&q->w->value) >= token; }

/* Ends one wait, if its owner is there for it. */
SHMI_FN void shmi_seq_finish_one(struct shmi_sequence *q, struct shmi_wakes *b, struct shmi_wait w, uint32_t result)
{
    if (!shmi_mon_waiting(&q->m, w))
        shmi_mon_discard(&q->m, w);
    else if (shmi_mon_end(&q->m, b, w, result, 0))
        shmi_mon_account(&q->m, w, NULL);
}

/* Cancels all waits that are there, with the queue lock held; resolving ends them. */
SHMI_FN void shmi_seq_condemn(struct shmi_sequence *q)
{
    if (shmi_get(&q->w->root) == 0)
        return;
    shmi_put(&q->w->canceled, shmi_get(q->m.w.arrivals));
    SHMSYNC_CRASHPOINT("sequencer.cancel.marked");
    shmi_heap_join(&q->m, &q->w->doomed, &q->w->root);
}

/* Ends at most so many waits, and says whether there are more to end. */
SHMI_FN int shmi_seq_resolve_some(struct shmi_sequence *q, struct shmi_wakes *b, uint32_t most)
{
    struct shmi_monitor *m = &q->m;
    struct shmi_wait w;
    uint64_t v, next = SHMI_NOBODY;
    if (__atomic_load_n(&q->w->stopped, __ATOMIC_SEQ_CST) != 0)
        shmi_seq_condemn(q);
    v = shmi_ld64(&q->w->value);
    /* First the cancelled waits: the canceller waits for their end. */
    while (!shmi_is_broken(m) && (w = shmi_heap_first(m, &q->w->doomed)).n != NULL && !shmi_is_broken(m)) {
        if (most-- == 0)
            return 1;
        shmi_seq_finish_one(q, b, w, shmi_get(&w.n->wanted) <= v ? SHMI_REACHED : SHMI_CANCELED);
    }
    while (!shmi_is_broken(m) && (w = shmi_heap_first(m, &q->w->root)).n != NULL && shmi_get(&w.n->wanted) <= v && !shmi_is_broken(m)) {
        if (most-- == 0)
            return 1; /* next stays low: a count, or a look, finds that there are more */
        shmi_seq_finish_one(q, b, w, SHMI_REACHED);
    }
    if (shmi_is_broken(m))
        return 0; /* it is rebuilt when the queue lock is left, and then every count looks */
    w = shmi_heap_first(m, &q->w->root);
    if (w.n != NULL)
        next = ~shmi_get(&w.n->wanted);
    if (!shmi_is_broken(m) && shmi_ld64(&q->w->next) != next)
        __atomic_store_n(&q->w->next, next, __ATOMIC_SEQ_CST);
    return 0;
}

/* The rules of a sequence. */

SHMI_FN void shmi_seq_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    (void)shmi_seq_resolve_some((struct shmi_sequence *)m, b, UINT32_MAX);
}
SHMI_FN void shmi_seq_account(struct shmi_monitor *m, struct shmi_wait w) { shmi_mon_account(m, w, NULL); }
SHMI_FN void shmi_seq_clear(struct shmi_monitor *m)
{
    struct shmi_sequence *q = (struct shmi_sequence *)m;
    shmi_put(&q->w->root, 0);
    shmi_put(&q->w->doomed, 0);
    __atomic_store_n(&q->w->next, SHMI_ANYBODY, __ATOMIC_SEQ_CST); /* every increment locks until the next resolve */
}
SHMI_FN void shmi_seq_requeue(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_sequence *q = (struct shmi_sequence *)m;
    uint64_t next;
    if (shmi_stamp_of(w) <= shmi_get(&q->w->canceled)) {
        shmi_heap_insert(m, &q->w->doomed, w);
        return;
    }
    shmi_heap_insert(m, &q->w->root, w);
    next = ~shmi_get(&w.n->wanted);
    if (next > shmi_ld64(&q->w->next))
        __atomic_store_n(&q->w->next, next, __ATOMIC_SEQ_CST);
}
SHMI_FN void shmi_seq_detach(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_sequence *q = (struct shmi_sequence *)m;
    shmi_heap_detach(m, shmi_get(&q->w->doomed) == w.off ? &q->w->doomed : &q->w->root, w);
}
SHMI_FN void shmi_seq_discard_dead(struct shmi_monitor *m)
{
    struct shmi_sequence *q = (struct shmi_sequence *)m;
    shmi_heap_discard_dead(m, &q->w->root);
    shmi_heap_discard_dead(m, &q->w->doomed);
}
SHMI_FN void shmi_seq_nothing(struct shmi_monitor *m) { (void)m; }

/* Whether waits are to be ended: the process that counted is on its way to that, or stopped or dead. */
SHMI_FN int shmi_seq_overdue(struct shmi_sequence *q)
{
    uint64_t next = shmi_ld64(&q->w->next);
    return (next != SHMI_NOBODY && ~shmi_ld64(&q->w->value) <= next) || shmi_get(&q->w->doomed) != 0 ||
           (__atomic_load_n(&q->w->stopped, __ATOMIC_SEQ_CST) != 0 && shmi_get(&q->w->root) != 0);
}
SHMI_FN void shmi_seq_check(struct shmi_monitor *m)
{
    struct shmi_sequence *q = (struct shmi_sequence *)m;
    struct shmi_wakes b;
    while (shmi_seq_overdue(q) && shmi_mon_try_enter(m)) {
        int more;
        shmi_wakes_init(&b);
        more = shmi_seq_resolve_some(q, &b, SHMI_RESOLVE_BATCH);
        shmi_mon_leave(m, &b);
        if (!more)
            return;
    }
}

static __attribute__((unused)) const struct shmi_rules shmi_seq_rules = {
    shmi_seq_resolve, shmi_seq_account, shmi_seq_clear, shmi_seq_requeue, shmi_seq_detach,
    shmi_seq_discard_dead, shmi_seq_nothing, shmi_seq_nothing, shmi_seq_check,
};

/* Ends what is to be ended, a batch at a time. */
SHMI_FN int shmi_seq_finish(struct shmi_sequence *q)
{
    struct shmi_wakes b;
    int more;
    do {
        int err = shmi_mon_enter(&q->m, 0);
        if (err != 0)
            return err;
        shmi_wakes_init(&b);
        more = shmi_seq_resolve_some(q, &b, SHMI_RESOLVE_BATCH);
        shmi_mon_leave(&q->m, &b);
        SHMSYNC_CRASHPOINT("sequencer.resolve.batch");
    } while (more);
    return 0;
}

/* Called after the counter has become v: if a wait has that token or a smaller one, it resolves. */
SHMI_FN int shmi_seq_counted(struct shmi_sequence *q, uint64_t v)
{
    if (~v > shmi_ld64(&q->w->next))
        return 0;
    SHMSYNC_CRASHPOINT("sequencer.count.counted");
    return shmi_seq_finish(q);
}

/* Begins a wait for token. No wait node: it is reached, or the error says why there is nothing to wait for. */
SHMI_FN int shmi_seq_register(struct shmi_sequence *q, uint64_t token, int64_t abs, shmi_wait_node **out)
{
    struct shmi_monitor *m = &q->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    int err, again, more;
    *out = NULL;
    err = shmi_mon_enter(m, abs);
    if (err != 0)
        return shmi_seq_reached(q, token) ? 0 : err;
    shmi_wakes_init(&b);
    do {
        int reached;
        shmi_mon_reap_if_due(m, &b);
        reached = shmi_seq_reached(q, token);
        if (reached || shmi_ld32(&q->w->stopped) != 0) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return reached ? 0 : ECANCELED;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_mon_join(m, wait_node, 0, token);
    SHMSYNC_CRASHPOINT("sequencer.wait.announced");
    /* The second check: a count before it has not seen the token. */
    more = shmi_seq_reached(q, token) && shmi_seq_resolve_some(q, &b, SHMI_RESOLVE_BATCH);
    shmi_mon_leave(m, &b);
    if (more) {
        err = shmi_seq_finish(q); /* the wait itself may be among the others */
        if (err != 0 && !shmi_wait_node_resolved(wait_node) && shmi_mon_give_up(m, wait_node))
            return err;
    }
    *out = wait_node;
    return 0;
}

/* Waits until the counter has reached token: 0, ECANCELED, ETIMEDOUT, or one of shmi_mon_enter or of a node. */
SHMI_FN int shmi_seq_wait(struct shmi_sequence *q, uint64_t token, int64_t abs)
{
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int err;
    if (shmi_seq_reached(q, token))
        return 0;
    err = shmi_mon_begin(&q->m);
    if (err != 0)
        return err;
    err = shmi_seq_register(q, token, abs, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&q->m, wait_node, abs, &outcome);
        if (err != 0)
            err = shmi_seq_reached(q, token) ? 0 : err;
        else
            err = shmi_outcome_result(outcome) == SHMI_REACHED ? 0 : ECANCELED;
    }
    shmi_mon_finish(&q->m);
    return err;
}

/* Ends all waits that there are, and stops the sequence if stop is set. */
SHMI_FN int shmi_seq_cancel_all(struct shmi_sequence *q, int stop)
{
    int err = shmi_mon_enter(&q->m, 0);
    if (err != 0)
        return err;
    if (stop) {
        __atomic_store_n(&q->w->stopped, 1, __ATOMIC_SEQ_CST);
        SHMSYNC_CRASHPOINT("sequencer.stop.marked");
    }
    shmi_seq_condemn(q);
    shmi_mon_leave(&q->m, NULL);
    return shmi_seq_finish(q);
}

SHMI_FN void shmi_seq_init(struct shmi_sequence *q, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&q->m, a, o, o->body, &shmi_seq_rules);
    q->m.handlers = 1;
    q->w = (shmi_sequence_words *)shmi_ptr(a, o->body, sizeof(shmi_sequence_words), 8);
}

/* The handle's side. */

typedef struct shmi_sequencer_spec {
    uint64_t initial;
    uint32_t spin;
} shmi_sequencer_spec;

SHMI_FN void shmi_sequencer_fill(unsigned char *body, const void *arg)
{
    shmi_sequence_words *w = (shmi_sequence_words *)(void *)body;
    const shmi_sequencer_spec *s = (const shmi_sequencer_spec *)arg;
    w->value = s->initial;
    w->mon.spin = s->spin;
}

SHMI_FN void *shmi_sequencer_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_sequence *q = (struct shmi_sequence *)shmi_new_thing(sizeof *q);
    (void)arg;
    if (q != NULL)
        shmi_seq_init(q, a, o);
    return q;
}

SHMI_FN int shmi_sequencer_handle(shmsync_arena *a, const shmi_object *o, shmsync_sequencer *out)
{
    return SHMI_HAND_OUT(out, struct shmi_sequence *, shmi_share(a, o, shmi_sequencer_build, NULL));
}

SHMI_FN int shmi_open_sequencer(int existing, shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_OPTIONS(shmsync_sequencer_options, 24, "sequencer.open", out->impl);
    shmi_spec spec;
    shmi_sequencer_spec init;
    shmi_object o;
    int err, created;
    init.initial = opts != NULL ? opts->initial : 0;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_SEQUENCER;
    spec.version = SHMI_VERSION_SEQUENCER;
    spec.name = name;
    spec.size = sizeof(shmi_sequence_words);
    spec.init = shmi_sequencer_fill;
    spec.arg = &init;
    spec.flags = flags;
    err = shmi_enter(a, "arena.open_object");
    if (err != 0)
        return err;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_handed_out(a, &o, created, shmi_sequencer_handle(a, &o, out));
    shmi_exit(a);
    return err;
}
int shmsync_sequencer_open(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_sequencer(0, a, name, opts, out));
}
int shmsync_sequencer_attach(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_sequencer(1, a, name, opts, out));
}

int shmsync_sequencer_at(shmsync_arena *a, shmsync_offset off, shmsync_sequencer *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "sequencer.open", SHMI_KIND_SEQUENCER, SHMI_VERSION_SEQUENCER, sizeof(shmi_sequence_words), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_exit_with(a, shmi_sequencer_handle(a, &o, out)));
}

int shmsync_sequencer_close(shmsync_sequencer *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(s->impl->m.a, s->impl->m.o.off, shmi_mon_free);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_sequencer_offset(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->m.o.off;
}
uint64_t shmsync_sequencer_value(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld64(&s->impl->w->value);
}
int shmsync_sequencer_stopped(const shmsync_sequencer *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld32(&s->impl->w->stopped) != 0;
}

int shmsync_sequencer_increment(shmsync_sequencer *s, uint64_t *value)
{
    SHMI_OPENED(s);
    uint64_t v;
    int err = shmi_use(s->impl->m.a, "sequencer.increment");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    v = shmi_add64(&s->impl->w->value, 1) + 1;
    if (value != NULL)
        *value = v;
    return SHMI_TELL(shmi_seq_counted(s->impl, v));
}

int shmsync_sequencer_advance(shmsync_sequencer *s, uint64_t v, int *advanced)
{
    SHMI_OPENED(s);
    int err = shmi_use(s->impl->m.a, "sequencer.advance");
    uint64_t now;
    if (advanced != NULL)
        *advanced = 0;
    if (err != 0)
        return SHMI_TELL(err);
    for (now = shmi_ld64(&s->impl->w->value); now < v; now = shmi_ld64(&s->impl->w->value))
        if (shmi_cas64(&s->impl->w->value, now, v)) {
            if (advanced != NULL)
                *advanced = 1;
            return SHMI_TELL(shmi_seq_counted(s->impl, v));
        }
    return 0;
}

int shmsync_sequencer_wait(shmsync_sequencer *s, uint64_t token)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_seq_wait(s->impl, token, 0));
}
int shmsync_sequencer_timedwait(shmsync_sequencer *s, uint64_t token, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_seq_wait(s->impl, token, ns));
}
int shmsync_sequencer_cancel_waiters(shmsync_sequencer *s)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_seq_cancel_all(s->impl, 0));
}
int shmsync_sequencer_stop(shmsync_sequencer *s)
{
    SHMI_OPENED(s);
    if (shmsync_sequencer_stopped(s) && !shmi_seq_overdue(s->impl))
        return 0;
    return SHMI_TELL(shmi_seq_cancel_all(s->impl, 1));
}

int shmsync_sequencer_reset(shmsync_sequencer *s, uint64_t v)
{
    SHMI_OPENED(s);
    struct shmi_sequence *q = s->impl;
    struct shmi_wakes b;
    int idle, err = shmi_mon_enter(&q->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_mon_reap(&q->m, &b);
    idle = (shmi_get(&q->w->root) | shmi_get(&q->w->doomed)) == 0;
    if (idle)
        shmi_st64(&q->w->value, v);
    shmi_mon_leave(&q->m, &b);
    return SHMI_TELL(idle ? 0 : shmi_fail(EBUSY, "sequencer.reset", q->m.queueLock.called, "somebody waits"));
}

/* The reaper's side. */

SHMI_FN void shmi_repair_sequencer(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_sequence q;
    if (o->size < sizeof(shmi_sequence_words))
        return;
    shmi_seq_init(&q, a, o);
    shmi_mon_repair(&q.m, dead);
}
