
/* ---- Queue: a bounded queue of items of one size ---- */

/* A handle on a Queue of an arena. A copy is the same handle. */
typedef struct shmsync_queue {
    struct shmi_queue *impl;
    uint64_t serial;
} shmsync_queue;

/* The options of shmsync_queue_open and shmsync_queue_attach. */
typedef struct shmsync_queue_options {
    uint32_t struct_size; /* struct_size and flags: see shmsync_arena_options */
    uint32_t flags;
    uint32_t capacity; /* of a new queue; an existing queue must have the same, unless an attach gives 0 */
    uint64_t layout;   /* fingerprint of an item, from shmsync_layout; 0: an existing queue may have any type */
    int64_t spin_ns;   /* see shmsync_mutex_options */
    const char *type;  /* instead of layout: description for shmsync_layout, with the name of each field before its @ */
} shmsync_queue_options;

/* An item on lease. A lease may be copied. One ack or nack, of any copy, ends it. A nack, or the death of the process,
 * returns the item to the queue. Returned items are queued in the order of their puts, as long as fewer than two
 * billion items were put after them. */
typedef struct shmsync_lease {
    struct shmi_queue *impl;
    uint64_t serial;
    uint64_t seq, state;
    uint32_t at;
    uint32_t attempts; /* how often the item was leased before without an ack; at most 65534 */
} shmsync_lease;

/* The fingerprint that arena.LayoutOf gives on the Go side for the type that description describes. A number is
 * described by its class (i, u, f, b or c) and its size in bytes: "u8 "; an array is "[n] " and its element; a struct
 * is "{size ", then for each field "@offset " and the description of the field, then "} ". A space follows each token.
 * struct {uint64_t id; int32_t n[2];} is "{16 @0 u8 @8 [2] i4 } ". A name before an @ makes no difference to the
 * fingerprint. A description with an error gives a fingerprint that no type has. To have a description checked, pass it
 * as opts->type to an open of a queue or a Synchronized. */
uint64_t shmsync_layout(const char *description);

/* Finds the Queue of that name, or creates it. If name is NULL or "", creates a new anonymous Queue. Items have
 * item_size bytes, at most 65536. EINVAL: opts has the capacity 0, or an existing queue has another capacity, another
 * layout or another size of items. */
int shmsync_queue_open(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out);
/* Finds the Queue of that name. ENOENT: there is none. */
int shmsync_queue_attach(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out);
/* Opens the Queue at an offset that shmsync_queue_offset returned in this process or another. EINVAL: there is no Queue
 * at off. */
int shmsync_queue_at(shmsync_arena *a, shmsync_offset off, size_t item_size, shmsync_queue *out);
/* Returns the offset of the Queue in the arena, the same in every process, or 0 if the handle is closed. */
shmsync_offset shmsync_queue_offset(const shmsync_queue *q);
/* Closes one opening of the Queue. The leases and waits of this process stay as they are. After the last close, ack and
 * nack return EBADF, and items that are still on lease come back only when this process leaves the arena. So end all
 * leases before the last close. */
int shmsync_queue_close(shmsync_queue *q);
/* Copies an item into the queue, and waits until there is room. ECANCELED: the queue is shut down. ENOSPC: the arena
 * has no room for a wait node. */
int shmsync_queue_put(shmsync_queue *q, const void *item);
/* As shmsync_queue_put, but it does not wait. EBUSY: the queue is full. */
int shmsync_queue_tryput(shmsync_queue *q, const void *item);
/* As shmsync_queue_put, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed, and there is no room. */
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic);
/* Copies the first item out, and waits until there is one. ECANCELED: the queue is shut down, and empty. If this
 * process dies before it has used the item, the item is lost; shmsync_queue_lease prevents that. */
int shmsync_queue_get(shmsync_queue *q, void *item);
/* As shmsync_queue_get, but it does not wait. EBUSY: the queue is empty. */
int shmsync_queue_tryget(shmsync_queue *q, void *item);
/* As shmsync_queue_get, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed, and there is no item. */
int shmsync_queue_timedget(shmsync_queue *q, void *item, const struct timespec *abs_monotonic);
/* Puts n items into the queue, in their order, as many at a time as there is room for. The call waits until all items
 * are in the queue, or until abs_monotonic; NULL is no limit. *done is the number of items that are in the queue: n,
 * unless the call returns an error. If the call has to wait, items of other producers may come between its items. */
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done);
/* Takes up to n items: as many as there are, after it has waited until there is at least one. *done is their
 * number, which is 0 only if the call returns an error. */
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done);
/* Takes the first item as shmsync_queue_get does, but the queue keeps the item until it is acknowledged. If this
 * process dies, or calls nack, the item goes back to the front. An error means: no lease, and *out is all zeros. */
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out);
/* As shmsync_queue_lease, but it does not wait. EBUSY: the queue is empty. */
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out);
/* As shmsync_queue_lease, but it waits at most until the CLOCK_MONOTONIC time abs_monotonic. ETIMEDOUT: the time has
 * passed. */
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic);
/* Ends the lease, and takes the item out of the queue for good. EPERM: the lease is over. */
int shmsync_lease_ack(shmsync_lease *l);
/* Ends the lease, and puts the item back to the front. EPERM: the lease is over. */
int shmsync_lease_nack(shmsync_lease *l);
/* Shuts the queue down. Puts fail from now on. Gets still take the items that are there, and fail after that. */
int shmsync_queue_shutdown(shmsync_queue *q);
/* The number of items that are queued, without those on lease. */
uint32_t shmsync_queue_len(const shmsync_queue *q);
/* The capacity: how many items the queue can hold. */
uint32_t shmsync_queue_cap(const shmsync_queue *q);
