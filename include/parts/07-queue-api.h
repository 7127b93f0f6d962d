
/* ---- Queue: a bounded queue of items of one size ---- */

typedef struct shmsync_queue {
    struct shmi_queue *impl;
    uint64_t serial;
} shmsync_queue;

typedef struct shmsync_queue_options {
    uint32_t struct_size; /* as of shmsync_arena_options, and so are flags */
    uint32_t flags;
    uint32_t capacity; /* of a new queue; an attach compares it if it is not 0 */
    uint64_t layout;   /* fingerprint of an item, by shmsync_layout; 0: whatever an existing one has */
    int64_t spin_ns;   /* as of a mutex */
} shmsync_queue_options;

/* An item on lease. One call for one of its copies ends it. */
typedef struct shmsync_lease {
    struct shmi_queue *impl;
    uint64_t serial;
    uint64_t seq, state;
    uint32_t at;
    uint32_t attempts; /* how often the item was leased before, and not acknowledged */
} shmsync_lease;

/*
 * The fingerprint that arena.LayoutOf gives on the Go side for the type that is described
 * so: a number is its class, i u f b or c, and its bytes: "u8 "; an array is "[n] " and
 * its element; a struct is "{size ", then for each field "@offset " and what it is, then
 * "} ". A space after each. struct {uint64_t id; int32_t n[2];} is
 * "{16 @0 u8 @8 [2] i4 } ".
 */
uint64_t shmsync_layout(const char *description);

/* Items have item_size bytes, at most 65536. EINVAL: capacity of the options is 0, or not
 * what an existing queue has. */
int shmsync_queue_open(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out);
int shmsync_queue_attach(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out);
int shmsync_queue_at(shmsync_arena *a, shmsync_offset off, size_t item_size, shmsync_queue *out);
shmsync_offset shmsync_queue_offset(const shmsync_queue *q);
int shmsync_queue_close(shmsync_queue *q);
/* Copies an item into the queue, and waits until there is room. ECANCELED: shut down. */
int shmsync_queue_put(shmsync_queue *q, const void *item);
int shmsync_queue_tryput(shmsync_queue *q, const void *item);
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic);
/* Copies the first item out, and waits until there is one. ECANCELED: shut down, and
 * empty. The item is gone if this process dies now. */
int shmsync_queue_get(shmsync_queue *q, void *item);
int shmsync_queue_tryget(shmsync_queue *q, void *item);
int shmsync_queue_timedget(shmsync_queue *q, void *item, const struct timespec *abs_monotonic);
/* Puts n items in in their order, as many at a time as there is room for, and waits for the
 * rest; abs_monotonic may be NULL. *done of them are in, n unless an error says why not. Items
 * of others may come in between where it had to wait. */
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done);
/* Takes as many of n items as there are, and waits until there is one; *done is how many, 0
 * with an error only. */
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done);
/* The same as get, and the item stays in the queue's keeping until it is acknowledged: with the
 * death of this process, or by nack, it goes back to the front. */
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out);
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out);
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic);
/* EPERM: the lease is over. */
int shmsync_lease_ack(shmsync_lease *l);
int shmsync_lease_nack(shmsync_lease *l);
/* Ends the queue for puts at once, and for gets when they have what is there. */
int shmsync_queue_shutdown(shmsync_queue *q);
uint32_t shmsync_queue_len(const shmsync_queue *q);
uint32_t shmsync_queue_cap(const shmsync_queue *q);
