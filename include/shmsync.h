/* Made from include/parts by: go generate ./internal/cheader. Change the parts. */
/*
 * shmsync.h: locks and other primitives that processes share, for C11 and C++17.
 *
 * A C program that includes this header and a Go program that imports
 * github.com/shmsync/shmsync open the same arena and use the same instances, as
 * participants of equal rank. A process that is killed, at any instruction, wedges
 * no other: the others notice within about a millisecond, take back what it held,
 * and are told. docs/c-api.md is the reference, docs/abi.md has the bytes.
 *
 * In exactly one file of a program:
 *
 *     #define SHMSYNC_IMPLEMENTATION
 *     #include "shmsync.h"      // before other headers, or with -D_GNU_SOURCE
 *
 * and #include "shmsync.h" alone in all others. Link with -pthread.
 *
 * READ THIS BEFORE EOWNERDEAD: it means that the lock is NOT HELD.
 *
 * pthread_mutex_lock of a robust mutex returns EOWNERDEAD *with* the lock. Here an
 * error, any error, means: not held, not consumed. After EOWNERDEAD there is nothing
 * to unlock, and an unlock that follows returns EPERM. The way on is
 * shmsync_mutex_recover, which takes the lock, runs your repair, and releases it.
 *
 * Results are 0 or an errno, never -1; errno itself is not touched on purpose:
 *
 *     EOWNERDEAD       its holder died; the caller does not hold it
 *     ENOTRECOVERABLE  a repair failed; only a recover brings it back
 *     ETIMEDOUT        the absolute CLOCK_MONOTONIC time came first
 *     ECANCELED        the object was stopped
 *     EBUSY            a try did not get it; or an object is open elsewhere
 *     EPERM            the caller does not hold what it gives back
 *     EPROTO           a peer wrote what no correct program writes
 *     EPROTONOSUPPORT  the arena has another layout version, or needs features that
 *                      this header does not know
 *     EINVAL           no arena, another kind of object, other options, bad argument
 *     EBADF            this process has closed the arena or the handle
 *     ENOTCONN         a child of fork that has not attached itself: see below
 *     ENOSPC, ENOTSUP  no room; the kernel lacks what is needed
 *
 * shmsync_error() tells the last failure of the calling thread in words.
 *
 * FORK. A child of fork is no participant: every call on what its parent opened
 * returns ENOTCONN and changes nothing. It opens the arena itself, and its objects
 * again. exec needs nothing.
 *
 * SIGNALS. A handler may release a semaphore, set an event, count up a sequencer, post
 * to a futex and schedule a gate. docs/c-api.md has the list; all else is forbidden there.
 *
 * Locks belong to processes: one thread may lock and another of the process unlock.
 * A lock is not recursive.
 */
#ifndef SHMSYNC_H
#define SHMSYNC_H

#if defined(SHMSYNC_IMPLEMENTATION) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif

#if !defined(__linux__)
#error "shmsync.h works on Linux only"
#endif
#if !defined(__LP64__) && !(defined(__SIZEOF_POINTER__) && __SIZEOF_POINTER__ == 8)
#error "shmsync.h: a 32-bit program cannot join an arena: its machine words have 4 bytes, those of the layout 8"
#endif
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "shmsync.h: the layout is little-endian"
#endif
#if !defined(__GNUC__)
#error "shmsync.h needs the atomics of gcc or clang"
#endif

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* The version of this header: 10,000 for the major number, 100 for the minor one, 1 for the patch. */
#define SHMSYNC_VERSION 100

/* The version of the layout of arenas that this header was made for. An arena of
 * another one is refused with EPROTONOSUPPORT. */
#ifndef SHMSYNC_LAYOUT_VERSION
#define SHMSYNC_LAYOUT_VERSION 4
#endif

/* What the program that includes the header was made for, told to the
 * implementation, which may be another. */
#define SHMSYNC_ABI ((uint32_t)SHMSYNC_LAYOUT_VERSION << 8 | (uint32_t)sizeof(void *))

#ifdef __cplusplus
extern "C" {
#endif

#ifdef SHMSYNC_EXPORTS /* a shared library that is compiled with -fvisibility=hidden gives these functions to others */
#pragma GCC visibility push(default)
#endif

/* The version of the implementation, as text: "0.1.0". SHMSYNC_VERSION is that of the header. */
const char *shmsync_version(void);

/* ---- Arenas ---- */

/* What becomes of an exclusive hold whose process dies; fixed when the object is made. The
 * process is dead when its threads run no more, and gone when no system call of it can
 * write into the arena any more, either. */
#define SHMSYNC_POLICY_DEFAULT 0 /* report, or whatever an existing object has */
#define SHMSYNC_POLICY_REPORT 1  /* it stays lost: EOWNERDEAD, at once, until a process recovers it */
#define SHMSYNC_POLICY_RELEASE 2 /* it becomes free, as a file lock does, when the process is gone */
#define SHMSYNC_POLICY_ROLLBACK 3 /* its transaction is undone, then it becomes free; for a mutex, see shmsync_mutex_begin */

/* Which system calls of a process write into the arena. When it has died, its data passes on after they
 * are finished. A declaration that is too narrow corrupts data. */
#define SHMSYNC_KERNEL_IO_SYNCHRONOUS 0  /* each is finished when its thread leaves it: read, recv, io_uring without O_DIRECT */
#define SHMSYNC_KERNEL_IO_ASYNCHRONOUS 1 /* io_submit too, and processes that share this one's memory by clone(CLONE_VM) */
#define SHMSYNC_KERNEL_IO_NONE 2         /* none: the data passes on as soon as the death is known */

#define SHMSYNC_SPIN_NEVER (-1) /* waiters do not spin before they sleep */

typedef struct shmsync_arena shmsync_arena;

/* A position in an arena, the same in every process; 0 is none. */
typedef uint64_t shmsync_offset;

/* Who a participant is or was. slot and generation are the identity. */
typedef struct shmsync_participant {
    uint32_t slot;
    uint32_t generation;
    uint32_t pid;      /* in its own pid namespace */
    uint32_t missed;   /* for shmsync_arena_on_death: records of deaths overwritten before they were read, since the last that was told */
    int64_t died_ns;   /* Unix ns; 0 while alive or not known */
    char label[64];
} shmsync_participant;

/* The epoch that a participant begins: the time from a join while nobody is in until nobody is
 * in again. */
typedef struct shmsync_epoch {
    uint64_t number; /* from 1; if on_first fails, the next epoch has the same number */
    int clean;       /* not 0: all of the last epoch left by close, and the file is as they left it */
    int reboot;      /* not 0: the computer was started again since. Never on a tmpfs */
    const shmsync_participant *dead; /* the participants that died since the last epoch began, the last 192 at most */
    size_t n_dead;
} shmsync_epoch;

/* When an arena that nobody is in is replaced by a new one; the old data is lost. */
#define SHMSYNC_RECREATE_INCOMPATIBLE 1u /* its layout, its features, size or max_participants differ */
#define SHMSYNC_RECREATE_CORRUPT 2u      /* its header is damaged */
#define SHMSYNC_RECREATE_UNCLEAN 4u      /* a death since the last epoch began, or the computer went down */

/* What becomes of an arena when nobody is in. */
#define SHMSYNC_LIFETIME_DURABLE 0   /* it stays, until shmsync_arena_remove or, on a tmpfs, a reboot */
#define SHMSYNC_LIFETIME_EPHEMERAL 1 /* each epoch begins with an empty arena; the last close removes the file */

typedef struct shmsync_arena_options {
    uint64_t size;               /* bytes of a new arena, rounded up to 64 KiB; 0: 64 MiB */
    uint32_t max_participants;   /* of a new arena, at most 2047; 0: 128 */
    uint32_t mode;               /* permission bits of a new arena's file; 0: 0600 */
    const char *label;           /* the name of this process for people; NULL: the program's name */
    const uint32_t *trust_uids;  /* owners of files to join, besides this euid and root */
    size_t n_trust_uids;
    int attach_only;             /* not 0: ENOENT where there is no arena, instead of making one */
    int kernel_io;               /* SHMSYNC_KERNEL_IO_x; if this process opens the arena several times, the most general one holds */
    /* Called in the participant that begins an epoch, before its open returns. No other process is in,
     * and none gets in meanwhile, so it may delete and repair anything. If it gives an errno, that is
     * the result of the open, and the next participant is the first. It
     * uses the arena that it gets: EDEADLK if it opens the same one by its name, ENOTCONN if it closes it. */
    int (*on_first)(shmsync_arena *a, const shmsync_epoch *e, void *arg);
    void *on_first_arg;
    uint32_t recreate;           /* SHMSYNC_RECREATE_x, or 0 for never */
    int lifetime;                /* SHMSYNC_LIFETIME_x */
    int64_t gate_timeout_ns;     /* how long the open waits for the on_first of another process; 0: for ever. ETIMEDOUT */
    /* Called once, on the helper thread, when the file of the arena was removed or replaced while this process is in:
     * processes that open the name afterwards do not meet this one. It is quick, and closes no arena. If this process
     * opens the arena several times, the first function that is set is called. */
    void (*on_detached)(shmsync_arena *a, void *arg);
    void *on_detached_arg;
} shmsync_arena_options;

/* shmsync_arena_open joins the arena /dev/shm/NAME, and creates it where there is
 * none. A name with a slash is the path of a file. Opening it again in one process
 * gives the same arena, to be closed as often. opts may be NULL. */
int shmsync_arena_open_abi(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi);
static inline int shmsync_arena_open(const char *name, const shmsync_arena_options *opts, shmsync_arena **out)
{
    return shmsync_arena_open_abi(name, opts, out, SHMSYNC_ABI);
}
/* The arena in an open file, such as a memfd that was inherited. fd stays the caller's. */
int shmsync_arena_from_fd_abi(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi);
static inline int shmsync_arena_from_fd(int fd, const shmsync_arena_options *opts, shmsync_arena **out)
{
    return shmsync_arena_from_fd_abi(fd, opts, out, SHMSYNC_ABI);
}
/* shmsync_arena_close leaves, with the last of the closes that match the opens. Holds of
 * this process are treated as its death would treat them. Threads that wait get EBADF.
 * Pointers and handles into the arena die with it. */
int shmsync_arena_close(shmsync_arena *a);
/* Removes the file of the arena. EBUSY while a participant is in: shmsync_error names it, and the file
 * stays. ENOENT. EINVAL: not an arena. ENOTSUP without byte locks. */
int shmsync_arena_remove(const char *name);

uint64_t shmsync_arena_size(const shmsync_arena *a);
void *shmsync_arena_base(const shmsync_arena *a);
/* Calls f for each participant that dies from now on, on the helper thread: f is
 * quick and calls nothing that waits. One function an arena. The arena keeps the last 192
 * deaths; if this process is stopped for longer, the next call says in missed how many were lost. */
int shmsync_arena_on_death(shmsync_arena *a, void (*f)(const shmsync_participant *, void *), void *arg);
/* This process as a participant. */
int shmsync_arena_self(shmsync_arena *a, shmsync_participant *out);
/* Calls f for each participant until f returns not 0. */
int shmsync_arena_participants(shmsync_arena *a, int (*f)(const shmsync_participant *, void *), void *arg);

/* Bytes of one's own, zeroed: what Alloc and Free of the Go side give. */
int shmsync_alloc(shmsync_arena *a, uint64_t size, shmsync_offset *out);
int shmsync_free(shmsync_arena *a, shmsync_offset off);
/* size bytes at an offset that may have come from a peer: NULL if no block is there
 * that has them. */
void *shmsync_at(shmsync_arena *a, shmsync_offset off, uint64_t size);
/* Bytes found by name, zeroed when created; Go's Arena.Block. They stay open until
 * this process leaves the arena. EINVAL: size is 0, or not what an existing block has. */
int shmsync_block_open(shmsync_arena *a, const char *name, uint64_t size, void **out);
/* The bytes of an existing block, and how many they are; size may be NULL. ENOENT. */
int shmsync_block_attach(shmsync_arena *a, const char *name, void **out, uint64_t *size);
/* The same for a Value of the Go side: layout is the fingerprint that arena.LayoutOf
 * gives for its type, or 0 for whatever an existing one has. */
int shmsync_value_open(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out);
int shmsync_value_attach(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out);
/* Removes an object that no process has open, and its name. If a Go program died while it upgraded the object, it may
 * have left the contents under another name: these go, too, also if there is nothing else. ENOENT. EBUSY: a process has
 * it open. */
int shmsync_delete(shmsync_arena *a, const char *name);
/* The same for the object at an offset that an _offset function gave: the way to remove an anonymous one. EINVAL: no
 * object is there. */
int shmsync_delete_at(shmsync_arena *a, shmsync_offset off);

/* The last failure of the calling thread in words; never NULL, good until its next. */
const char *shmsync_error(void);
/* What an errno of this header means; never NULL. */
const char *shmsync_strerror(int err);
/* The participant whose death the calling thread's last EOWNERDEAD or
 * ENOTRECOVERABLE told of. ENOENT: not known. */
int shmsync_who_died(shmsync_participant *out);

/* ---- Mutex ---- */

/* A handle on a mutex of an arena; a copy is the same handle. */
typedef struct shmsync_mutex {
    struct shmi_mutex *impl;
    uint64_t serial;
} shmsync_mutex;

typedef struct shmsync_mutex_options {
    int policy;              /* SHMSYNC_POLICY_..., of a new mutex; another than an existing one has: EINVAL */
    int64_t spin_ns;         /* of a new mutex: 0 learns, SHMSYNC_SPIN_NEVER, or at most that long */
    int checked;             /* not 0: every unlock of this process is a compare-and-swap */
    int (*repair)(void *);   /* run by lock of this process where it meets a death; 0 for repaired */
    void *repair_arg;
    uint64_t log_bytes;      /* undo log of a new mutex of SHMSYNC_POLICY_ROLLBACK: 0 for 16 KiB, at most 1 MiB */
} shmsync_mutex_options;

/* Finds the mutex of that name or creates it. NULL or "": a fresh anonymous one. */
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out);
/* The mutex at an offset that another process's shmsync_mutex_offset gave. */
int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out);
shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m);
int shmsync_mutex_close(shmsync_mutex *m);
/* An error means: not held. EOWNERDEAD, ENOTRECOVERABLE, EPROTO, EBADF, ENOTCONN. */
int shmsync_mutex_lock(shmsync_mutex *m);
/* EBUSY when it is held, and the errors of lock. */
int shmsync_mutex_trylock(shmsync_mutex *m);
/* ETIMEDOUT at that CLOCK_MONOTONIC time. A free lock is taken without a look at it. */
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic);
/* EPERM when this process does not hold it. Two threads that race to unlock one hold
 * may release the hold of another process, unless the handle is checked. */
int shmsync_mutex_unlock(shmsync_mutex *m);
/* Makes an owner-dead or not recoverable mutex usable again: waits until the process that
 * died is gone, takes it, runs repair, releases it. When repair returns not 0 the mutex is not recoverable, and that number
 * is not passed on: the result is ENOTRECOVERABLE. A healthy mutex is locked and
 * unlocked, without repair. EINVAL: repair is NULL; the mutex is as before. */
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg);
/* What a lock would find: 0 (free or held), EOWNERDEAD, ENOTRECOVERABLE, EPROTO. */
int shmsync_mutex_state(shmsync_mutex *m);

/* ---- Futex: an eventcount, the Futex of the Go side ---- */

typedef struct shmsync_futex {
    struct shmi_futex *impl;
    uint64_t serial;
} shmsync_futex;

typedef struct shmsync_futex_options {
    int64_t spin_ns; /* as of a mutex */
} shmsync_futex_options;

int shmsync_futex_open(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
int shmsync_futex_attach(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out);
int shmsync_futex_at(shmsync_arena *a, shmsync_offset off, shmsync_futex *out);
shmsync_offset shmsync_futex_offset(const shmsync_futex *f);
int shmsync_futex_close(shmsync_futex *f);
/* How many posts there have been. A token is that plus the posts to wait for. */
uint64_t shmsync_futex_get(const shmsync_futex *f);
/* Counts up and wakes all waiters. Never blocks. */
int shmsync_futex_post(shmsync_futex *f);
/* Waits until the count has reached token. ECANCELED: stopped before that. */
int shmsync_futex_wait(shmsync_futex *f, uint64_t token);
int shmsync_futex_timedwait(shmsync_futex *f, uint64_t token, const struct timespec *abs_monotonic);
/* Ends all waits, now and later, with ECANCELED, unless their token was reached. */
int shmsync_futex_stop(shmsync_futex *f);
int shmsync_futex_stopped(const shmsync_futex *f);
/* ---- Transactions: changes that happen wholly or not at all ---- */

/* A mutex of policy SHMSYNC_POLICY_ROLLBACK has an undo log. A transaction is one hold of such a mutex, from
 * shmsync_mutex_begin to shmsync_tx_commit or shmsync_tx_abort. Before the caller changes bytes of the arena, it
 * saves them: shmsync_tx_save copies them into the log. If the process dies before the commit, the next process
 * that wants the mutex, in C or Go, copies them back, and gets the mutex without an error.
 *
 *     if (shmsync_mutex_begin(&m, &tx) != 0)
 *         return fail(shmsync_error());
 *     if (shmsync_tx_save(&tx, from, sizeof *from) == 0 && shmsync_tx_save(&tx, to, sizeof *to) == 0) {
 *         from->balance -= amount;
 *         to->balance += amount;
 *     }
 *     err = shmsync_tx_commit(&tx); // 0, or why a save failed: then nothing has changed
 *
 * Memory that was not saved is not restored. A transaction belongs to one thread at a time, and is neither copied nor moved.
 * Transactions of one mutex do not nest: a second begin waits for the first. A transaction of another mutex meanwhile is
 * one of its own: it stays when the first is undone, and the two must not save the same bytes. While a thread is in a
 * transaction, no thread closes the arena, and none unlocks the mutex: shmsync_cond_wait refuses it with EINVAL once a
 * record was made. */
typedef struct shmsync_tx {
    struct shmi_mutex *mutex; /* NULL: it has ended */
    struct shmsync_arena *arena;
    const struct shmi_log *log;
    uint64_t tail;            /* bytes of records */
    int failed;               /* of the first call that failed */
    unsigned n_saved, blocks;
    struct {
        uint64_t begin, end;
    } saved[8];               /* the last ranges */
} shmsync_tx;

/* shmsync_mutex_begin locks m, as shmsync_mutex_lock does, and begins a transaction. A process that cannot tell
 * others of its end gets ENOTSUP: its kernel has no byte locks (fcntl with F_OFD_SETLK). EINVAL: m has another
 * policy. EPROTO: a peer has overwritten the log. An error means: not locked, and no transaction. */
int shmsync_mutex_begin(shmsync_mutex *m, shmsync_tx *tx);
/* EBUSY when it is held, and the errors of begin. */
int shmsync_mutex_trybegin(shmsync_mutex *m, shmsync_tx *tx);
/* ETIMEDOUT at that CLOCK_MONOTONIC time, and the errors of begin. */
int shmsync_mutex_timedbegin(shmsync_mutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic);

/* shmsync_tx_save records the n bytes at p, which the caller is going to change. They lie within one block or object
 * of the arena, and not in the mutex itself. A range that lies within one of the last eight costs nothing.
 *
 * ENOSPC: the log is full; make the mutex with more log_bytes. EINVAL: p is not data of the arena. EPERM: the
 * transaction has ended. After a failure the transaction has failed: the caller must not change those bytes, each
 * further save returns the same error, and shmsync_tx_commit undoes all changes and returns it. */
int shmsync_tx_save(shmsync_tx *tx, const void *p, size_t n);

/* shmsync_tx_commit makes the changes final, and unlocks. If a save failed it undoes them instead, unlocks, and returns
 * that error. EPERM: the transaction has ended, or the mutex was unlocked meanwhile: then nothing is undone, since others
 * may have changed the data, the next begin gives EPROTO, and the mutex needs a recover. EPROTO, when it undoes: a peer
 * has overwritten the log. Then the mutex is not recoverable. */
int shmsync_tx_commit(shmsync_tx *tx);
/* shmsync_tx_abort undoes the changes and unlocks. EPERM and EPROTO as above. */
int shmsync_tx_abort(shmsync_tx *tx);

/* ---- Sequencer: a counter that goes up, and its waiters ---- */

typedef struct shmsync_sequencer {
    struct shmi_sequence *impl;
    uint64_t serial;
} shmsync_sequencer;

typedef struct shmsync_sequencer_options {
    uint64_t initial; /* value of a new one */
    int64_t spin_ns;  /* as of a mutex */
} shmsync_sequencer_options;

int shmsync_sequencer_open(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out);
int shmsync_sequencer_attach(shmsync_arena *a, const char *name, const shmsync_sequencer_options *opts, shmsync_sequencer *out);
int shmsync_sequencer_at(shmsync_arena *a, shmsync_offset off, shmsync_sequencer *out);
shmsync_offset shmsync_sequencer_offset(const shmsync_sequencer *s);
int shmsync_sequencer_close(shmsync_sequencer *s);
uint64_t shmsync_sequencer_value(const shmsync_sequencer *s);
/* Adds one, and wakes the waiters for that. value gets the new value; it may be NULL.
 * EPROTO: it counted, and the waiters that it should have woken could not be found. */
int shmsync_sequencer_increment(shmsync_sequencer *s, uint64_t *value);
/* Makes the counter v if it is less; advanced, which may be NULL, says whether it was. */
int shmsync_sequencer_advance(shmsync_sequencer *s, uint64_t v, int *advanced);
/* Waits until the counter has reached token. ECANCELED: stopped, or the waits were
 * cancelled, before that. ENOSPC: no room for a wait. */
int shmsync_sequencer_wait(shmsync_sequencer *s, uint64_t token);
int shmsync_sequencer_timedwait(shmsync_sequencer *s, uint64_t token, const struct timespec *abs_monotonic);
/* Ends every wait that began before with ECANCELED, unless its token is reached. */
int shmsync_sequencer_cancel_waiters(shmsync_sequencer *s);
/* Ends all waits so, and those to come. The counter goes on. */
int shmsync_sequencer_stop(shmsync_sequencer *s);
int shmsync_sequencer_stopped(const shmsync_sequencer *s);
/* Makes the counter v, which may be less than it is. EBUSY: there are waiters. */
int shmsync_sequencer_reset(shmsync_sequencer *s, uint64_t v);

/* ---- Event: set or not, and its waiters ---- */

typedef struct shmsync_event {
    struct shmi_event *impl;
    uint64_t serial;
} shmsync_event;

typedef struct shmsync_event_options {
    int auto_reset;  /* each set lets one wait go */
    int bidirectional;     /* one can wait for the reset, too; not with auto_reset */
    int set;         /* a new one is set */
    int64_t spin_ns; /* as of a mutex */
} shmsync_event_options;

/* An existing one that lacks a mode that was asked for: EINVAL. */
int shmsync_event_open(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
int shmsync_event_attach(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out);
int shmsync_event_at(shmsync_arena *a, shmsync_offset off, shmsync_event *out);
shmsync_offset shmsync_event_offset(const shmsync_event *e);
int shmsync_event_close(shmsync_event *e);
/* Lets waiters go: all, or with auto_reset the first, or the next to come. */
int shmsync_event_set(shmsync_event *e);
int shmsync_event_reset(shmsync_event *e);
int shmsync_event_is_set(const shmsync_event *e);
/* Waits until it is set; with auto_reset it takes the token. ENOSPC: no room for a wait. */
int shmsync_event_wait(shmsync_event *e);
int shmsync_event_trywait(shmsync_event *e);
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic);
/* Waits until it is not set. EINVAL: it is not bidirectional. */
int shmsync_event_wait_reset(shmsync_event *e);
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic);

/* ---- Queue: a bounded queue of items of one size ---- */

typedef struct shmsync_queue {
    struct shmi_queue *impl;
    uint64_t serial;
} shmsync_queue;

typedef struct shmsync_queue_options {
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

/* ---- WaitGroup and Latch: a counter of what is still to be done ---- */

typedef struct shmsync_waitgroup {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_waitgroup;

typedef struct shmsync_waitgroup_options {
    int64_t spin_ns; /* as of a mutex */
} shmsync_waitgroup_options;

int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out);
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out);
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g);
int shmsync_waitgroup_close(shmsync_waitgroup *g);
/* What a process adds is its own until it is done. EINVAL, with nothing changed: the
 * counter would be negative, or too big. */
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta);
/* Makes n of what others have added this process's own: if it dies before it is done,
 * waits fail. EINVAL: more than others have added. If others do some of the work during such
 * a call, this process may have claimed a part of n, and stays responsible for that part. */
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n);
int shmsync_waitgroup_done(shmsync_waitgroup *g);
/* Waits until the counter is 0. EOWNERDEAD: a process died that had something of its own left. */
int shmsync_waitgroup_wait(shmsync_waitgroup *g);
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic);
/* Forgets what the dead had left, when they are gone. */
int shmsync_waitgroup_reset(shmsync_waitgroup *g);
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g);

typedef struct shmsync_latch {
    struct shmi_counter *impl;
    uint64_t serial;
} shmsync_latch;

typedef struct shmsync_latch_options {
    int64_t spin_ns; /* as of a mutex */
} shmsync_latch_options;

/* The counter begins at n, at least 1. EINVAL: less, or an existing latch began with another number. */
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out);
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out);
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out);
shmsync_offset shmsync_latch_offset(const shmsync_latch *l);
int shmsync_latch_close(shmsync_latch *l);
/* This process will count down n: if it dies before, waits fail. The death of a process that
 * has not claimed leaves them waiting. EINVAL: more than is left and nobody living has claimed. */
int shmsync_latch_claim(shmsync_latch *l, int64_t n);
/* EINVAL, with nothing changed: more than are left. */
int shmsync_latch_count_down(shmsync_latch *l, int64_t n);
/* EBUSY: the counter is not 0. */
int shmsync_latch_trywait(shmsync_latch *l);
int shmsync_latch_wait(shmsync_latch *l);
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic);
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n);
int shmsync_latch_reset(shmsync_latch *l);
int64_t shmsync_latch_count(const shmsync_latch *l);

/* ---- Once ---- */

typedef struct shmsync_once {
    struct shmi_once *impl;
    uint64_t serial;
} shmsync_once;

typedef struct shmsync_once_options {
    int64_t spin_ns; /* as of a mutex */
} shmsync_once_options;

int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out);
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out);
shmsync_offset shmsync_once_offset(const shmsync_once *o);
int shmsync_once_close(shmsync_once *o);
/* Calls f if no call has done so yet, in whatever process, and waits until the one that
 * has returns. When the process that runs it dies over it, the next call runs its own. */
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg);
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic);
int shmsync_once_done(const shmsync_once *o);

/* ---- Barrier ---- */

typedef struct shmsync_barrier {
    struct shmi_barrier *impl;
    uint64_t serial;
} shmsync_barrier;

typedef struct shmsync_barrier_options {
    /* Called when an arrival of this process is the last of a phase, before anybody is let
     * go. When its process dies over it the phase is broken. This process's own. */
    void (*completion)(void *);
    void *completion_arg;
    int64_t spin_ns; /* as of a mutex */
} shmsync_barrier_options;

/* The number of parties is at least 1. EINVAL: less, or an existing barrier began with another number. */
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out);
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out);
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out);
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b);
int shmsync_barrier_close(shmsync_barrier *b);
/* Counts n arrivals, and gives the number of the phase, for wait. EINVAL, with nothing
 * counted: more than are expected. At a broken barrier it counts nothing. */
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase);
/* Waits until a phase is over. EOWNERDEAD: a party died before it arrived. EINVAL: no
 * phase can have that number yet. */
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase);
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic);
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b);
/* The arrival stays made, whatever comes of the wait. */
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic);
/* Arrives once, and makes the parties of all later phases one less. */
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b);
/* This process is n more of the parties; or none of them any more, and others arrive in its
 * stead. The death of a process that neither joined nor arrived leaves the others waiting. */
int shmsync_barrier_register(shmsync_barrier *b, int64_t n);
int shmsync_barrier_deregister(shmsync_barrier *b);
/* How many of the parties died since the barrier was created or reset. */
int64_t shmsync_barrier_lost(const shmsync_barrier *b);
/* Begins another phase of a broken barrier, for that many parties. For 0 it computes them:
 * those that were expected less those that died. did, which may be NULL, tells whether
 * this call did it. It waits until those that died are gone. */
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did);

/* ---- FairMutex: a lock that is taken in the order of arrival ---- */

typedef struct shmsync_fairmutex {
    struct shmi_fairmutex *impl;
    uint64_t serial;
} shmsync_fairmutex;

typedef struct shmsync_fairmutex_options {
    int policy;            /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by lock of this process where it meets a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_fairmutex_options;

int shmsync_fairmutex_open(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
int shmsync_fairmutex_attach(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out);
int shmsync_fairmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_fairmutex *out);
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f);
int shmsync_fairmutex_close(shmsync_fairmutex *f);
/* As those of a mutex; ENOSPC: no room for a wait. trylock is EBUSY while there are waiters. */
int shmsync_fairmutex_lock(shmsync_fairmutex *f);
int shmsync_fairmutex_trylock(shmsync_fairmutex *f);
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic);
int shmsync_fairmutex_unlock(shmsync_fairmutex *f);
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg);
int shmsync_fairmutex_state(shmsync_fairmutex *f);

/* ---- Future: a result that is set once ---- */

typedef struct shmsync_future {
    struct shmi_future *impl;
    uint64_t serial;
} shmsync_future;

typedef struct shmsync_future_options {
    int64_t spin_ns; /* as of a mutex */
} shmsync_future_options;

int shmsync_future_open(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out);
int shmsync_future_attach(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out);
int shmsync_future_at(shmsync_arena *a, shmsync_offset off, shmsync_future *out);
shmsync_offset shmsync_future_offset(const shmsync_future *f);
int shmsync_future_close(shmsync_future *f);
/* Makes this process the producer. EBUSY: another is, it is set, or its producer died. */
int shmsync_future_claim(shmsync_future *f);
/* Sets it to an errno, 0 for success. EBUSY: it is set, or its producer died. */
int shmsync_future_set(shmsync_future *f, int result);
/* Whether it is set, and to what; result may be NULL. */
int shmsync_future_is_set(const shmsync_future *f, int *result);
/* Waits until it is set. EOWNERDEAD: the process died that had claimed it. */
int shmsync_future_wait(shmsync_future *f, int *result);
int shmsync_future_timedwait(shmsync_future *f, int *result, const struct timespec *abs_monotonic);
/* Makes one that is set, or whose producer died, unset, when that producer is gone. EBUSY: it is not set. */
int shmsync_future_reset(shmsync_future *f);

/* ---- Cond ---- */

typedef struct shmsync_cond {
    struct shmi_cond *impl;
    uint64_t serial;
} shmsync_cond;

typedef struct shmsync_cond_options {
    int batch;       /* of a new one: how many of a broadcast go for the lock at a time; 0: a few; negative: all */
    int64_t spin_ns; /* as of a mutex */
} shmsync_cond_options;

int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out);
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out);
shmsync_offset shmsync_cond_offset(const shmsync_cond *c);
int shmsync_cond_close(shmsync_cond *c);
/* Unlocks m, waits until signal or broadcast wakes this wait, and locks m again. There
 * are no spurious wakes. m is held again, whatever the result, unless the lock could not
 * be had: EOWNERDEAD, ENOTRECOVERABLE, and then it is not held. With an error no signal
 * was used up. */
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m);
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic);
/* The same with any lock: functions that unlock and lock, and give 0 or an errno. NULL
 * for abs_monotonic: no end. */
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic);
/* Wakes the one that has waited longest; all that wait now. */
int shmsync_cond_signal(shmsync_cond *c);
int shmsync_cond_broadcast(shmsync_cond *c);

#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: permits that belong to the process that acquired them ---- */

typedef struct shmsync_semaphore {
    struct shmi_semaphore *impl;
    uint64_t serial;
} shmsync_semaphore;

typedef struct shmsync_semaphore_options {
    int transferable; /* it only counts: anybody may release, and nothing comes back from the dead */
    int64_t initial;  /* permits of a new transferable one; 0: all, negative: none */
    int64_t spin_ns;  /* as of a mutex */
} shmsync_semaphore_options;

/* n permits, at least 1. EINVAL: fewer, or an existing semaphore has another number. */
int shmsync_semaphore_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
int shmsync_semaphore_attach(shmsync_arena *a, const char *name, const shmsync_semaphore_options *opts, shmsync_semaphore *out);
int shmsync_semaphore_at(shmsync_arena *a, shmsync_offset off, shmsync_semaphore *out);
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s);
int shmsync_semaphore_close(shmsync_semaphore *s);
/* Acquires n permits, in the order of arrival. EINVAL: more than there will ever be. */
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n);
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n);
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic);
/* EPERM, with nothing released: this process has not so many; of a transferable one, there
 * would be more than its size. */
int shmsync_semaphore_release(shmsync_semaphore *s, int64_t n);
/* How many can be had. */
int64_t shmsync_semaphore_free(const shmsync_semaphore *s);
#endif

/* ---- RWMutex ---- */

typedef struct shmsync_rwmutex {
    struct shmi_rwmutex *impl;
    uint64_t serial;
} shmsync_rwmutex;

typedef struct shmsync_rwmutex_options {
    int policy;            /* SHMSYNC_POLICY_..., when a writer dies; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by lock, lock_upgradable and rdlock of this process where they meet a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_rwmutex_options;

int shmsync_rwmutex_open(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
int shmsync_rwmutex_attach(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out);
int shmsync_rwmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_rwmutex *out);
shmsync_offset shmsync_rwmutex_offset(const shmsync_rwmutex *m);
int shmsync_rwmutex_close(shmsync_rwmutex *m);
/* As those of a mutex. A reader that dies is taken back; the death of a writer is told by policy. */
int shmsync_rwmutex_lock(shmsync_rwmutex *m);
int shmsync_rwmutex_trylock(shmsync_rwmutex *m);
int shmsync_rwmutex_timedlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_unlock(shmsync_rwmutex *m);
int shmsync_rwmutex_rdlock(shmsync_rwmutex *m);
int shmsync_rwmutex_tryrdlock(shmsync_rwmutex *m);
int shmsync_rwmutex_timedrdlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_rdunlock(shmsync_rwmutex *m);
/* Makes a read hold of the write hold; no writer comes in between. */
int shmsync_rwmutex_downgrade(shmsync_rwmutex *m);
/* An upgradable hold reads beside other readers, and keeps writers and other upgradable holds out. upgrade makes a write hold
 * of it when the readers have left: until then no new reader comes in, and no writer comes in between. With an error of upgrade
 * the hold is still upgradable, and readers come in again. EPERM: this process has no such hold. A process that dies with an
 * upgradable hold wrote nothing: nobody is told. */
int shmsync_rwmutex_lock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_try_lock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_timed_lock_upgradable(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_unlock_upgradable(shmsync_rwmutex *m);
int shmsync_rwmutex_upgrade(shmsync_rwmutex *m);
int shmsync_rwmutex_try_upgrade(shmsync_rwmutex *m); /* EBUSY: a reader is in */
int shmsync_rwmutex_timed_upgrade(shmsync_rwmutex *m, const struct timespec *abs_monotonic);
int shmsync_rwmutex_downgrade_to_upgradable(shmsync_rwmutex *m); /* makes an upgradable hold of the write hold */
int shmsync_rwmutex_downgrade_to_read(shmsync_rwmutex *m);       /* makes a read hold of the upgradable hold */
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg);
int shmsync_rwmutex_state(shmsync_rwmutex *m);

/* ---- SpinLock and RWSpinLock ---- */

typedef struct shmsync_spinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_spinlock;
typedef struct shmsync_rwspinlock {
    struct shmi_spinlock *impl;
    uint64_t serial;
} shmsync_rwspinlock;

typedef struct shmsync_spinlock_options {
    int policy;            /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    int (*repair)(void *); /* run by calls of this process that meet a death; 0 for repaired */
    void *repair_arg;
    int64_t spin_ns;       /* as of a mutex */
} shmsync_spinlock_options;

int shmsync_spinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
int shmsync_spinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out);
int shmsync_spinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_spinlock *out);
shmsync_offset shmsync_spinlock_offset(const shmsync_spinlock *l);
int shmsync_spinlock_close(shmsync_spinlock *l);
/* As those of a mutex: waiters spin for longer, give their CPU away, and sleep in the end. */
int shmsync_spinlock_lock(shmsync_spinlock *l);
int shmsync_spinlock_trylock(shmsync_spinlock *l);
int shmsync_spinlock_timedlock(shmsync_spinlock *l, const struct timespec *abs_monotonic);
int shmsync_spinlock_unlock(shmsync_spinlock *l);
int shmsync_spinlock_recover(shmsync_spinlock *l, int (*repair)(void *), void *arg);
int shmsync_spinlock_state(shmsync_spinlock *l);

int shmsync_rwspinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
int shmsync_rwspinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out);
int shmsync_rwspinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_rwspinlock *out);
shmsync_offset shmsync_rwspinlock_offset(const shmsync_rwspinlock *l);
int shmsync_rwspinlock_close(shmsync_rwspinlock *l);
int shmsync_rwspinlock_lock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_trylock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_unlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_rdlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryrdlock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedrdlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_rdunlock(shmsync_rwspinlock *l);
/* For upgrade: readers that are in stay, new ones wait, and nobody else has it so. */
int shmsync_rwspinlock_uplock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryuplock(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timeduplock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
int shmsync_rwspinlock_upunlock(shmsync_rwspinlock *l);
/* From upgrade to writing: waits for the readers to leave. With an error it is held for upgrade still. */
int shmsync_rwspinlock_upgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_tryupgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_timedupgrade(shmsync_rwspinlock *l, const struct timespec *abs_monotonic);
/* From writing to reading, from upgrade to reading, from writing to upgrade. */
int shmsync_rwspinlock_downgrade(shmsync_rwspinlock *l);
int shmsync_rwspinlock_downgrade_to_read(shmsync_rwspinlock *l);
int shmsync_rwspinlock_downgrade_to_upgradable(shmsync_rwspinlock *l);
int shmsync_rwspinlock_recover(shmsync_rwspinlock *l, int (*repair)(void *), void *arg);
int shmsync_rwspinlock_state(shmsync_rwspinlock *l);

/* ---- Waiting for one of several, or for all ---- */

enum { SHMSYNC_AWAIT_SEQUENCER = 1, SHMSYNC_AWAIT_EVENT, SHMSYNC_AWAIT_FUTURE, SHMSYNC_AWAIT_EVENT_RESET }; /* the last: that a bidirectional event is not set */
#define SHMSYNC_AWAIT_MOST 120

typedef struct shmsync_awaitable {
    int kind;
    const shmsync_sequencer *sequencer; /* one of the three, as kind says */
    const shmsync_event *event;
    const shmsync_future *future;
    uint64_t token; /* of a sequencer */
} shmsync_awaitable;

/*
 * Waits until one of them has come, and sets index to its number, the lowest if it finds
 * several; 0, or what its own wait gives: EOWNERDEAD of a future, ECANCELED of a sequencer.
 * Those that it does not tell of are as they were: a token of an event with auto_reset
 * that was handed to it passes on. abs_monotonic may be NULL. ETIMEDOUT and the errors of
 * the waiting itself come with index SIZE_MAX. EINVAL: none, or more than
 * SHMSYNC_AWAIT_MOST.
 */
int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index);
/*
 * Waits until each of them has come, at whatever time, in one sleep; 0 if there is none. The
 * result is that of the first in the list whose own wait ends with an error: it waits for the
 * others all the same. ETIMEDOUT and the errors of the waiting itself: what was taken by then
 * stays taken, which are the tokens of events with auto_reset.
 */
int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic);

/* ---- MultiLock: a lock for each of 2^64 keys, taken in the order of arrival ---- */

typedef struct shmsync_multilock {
    struct shmi_multilock *impl;
    uint64_t serial;
} shmsync_multilock;

typedef struct shmsync_multilock_options {
    int policy;       /* SHMSYNC_POLICY_..., of a new one; another than an existing one has: EINVAL */
    uint32_t buckets; /* parts with queue locks of their own, a power of two at least, at most 65536; 0: 64, or whatever an existing one has; another: EINVAL */
    int64_t spin_ns;  /* as of a mutex */
} shmsync_multilock_options;

/* A key that this process holds, or held: what can unlock it, once. It is a value, which
 * any thread of the process may use until the MultiLock is closed. All zero holds nothing. */
typedef struct shmsync_hold {
    struct shmi_key_bucket *in;
    uint64_t serial;
    uint64_t *at;
    uint64_t key; /* which one */
    uint64_t hold;
} shmsync_hold;

int shmsync_multilock_open(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
int shmsync_multilock_attach(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out);
int shmsync_multilock_at(shmsync_arena *a, shmsync_offset off, shmsync_multilock *out);
shmsync_offset shmsync_multilock_offset(const shmsync_multilock *m);
int shmsync_multilock_close(shmsync_multilock *m);
/* As those of a mutex, for one key; ENOSPC: no room for the key, or for a wait. trylock is EBUSY while there are waiters. */
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out);
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic);
/* EPERM: this process does not hold it any more. */
int shmsync_multilock_unlock(const shmsync_hold *h);
/* Locks n keys, in the order of their numbers, into the holds at out; one that is given
 * twice is locked once. *held is how many there are then. An error means none. */
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held);
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic);
/* The result is that of the first that could not be unlocked; the others are. */
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n);
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg);
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key);

/* ---- SignalWaker: up to 4096 queues of the user's, and their workers ----
 *
 *     producer                              worker
 *     push(queue, item);                    for (;;) {
 *     shmsync_gate_schedule(&gate, NULL);       if (shmsync_signalwaker_next(&w, near, &gate) != 0) {
 *                                                   shmsync_signalwaker_acquire(&w);
 *                                                   continue;
 *                                               }
 *                                               drain(gate.queue);
 *                                               shmsync_gate_finish(&gate, NULL);
 *                                           }
 *
 * A queue has a gate that is idle, scheduled, or executed by one worker. The death of a
 * worker leaves its queues scheduled again. Push by an atomic store (release is enough: a
 * schedule is a full fence), or under a lock. */

typedef struct shmsync_signalwaker {
    struct shmi_signalwaker *impl;
    uint64_t serial;
} shmsync_signalwaker;

typedef struct shmsync_signalwaker_options {
    int signals;     /* each of 64 queues, of 128 bytes: 1 to 64; 0: 64, or whatever an existing one has; another: EINVAL */
    int count;       /* for a new object: operations of all processes count themselves */
    int64_t spin_ns; /* as of a mutex */
} shmsync_signalwaker_options;

/* A gate is a value, good until the SignalWaker is closed. The one that began an execution is
 * the one to finish it, or a copy that is used instead. */
typedef struct shmsync_gate {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t queue;   /* which one */
    uint64_t running; /* the execution that it began, or 0 */
} shmsync_gate;

typedef struct shmsync_gate_info {
    int scheduled, executing;
    uint32_t epoch;               /* counts the executions, and wraps */
    int known;                    /* whether executor is filled in */
    shmsync_participant executor; /* the process that executes */
} shmsync_gate_info;

/* A signal is a bit for each of 64 queues, set while the gate waits for an executor. Gates and
 * next see to the bits; this is for programs that choose among queues in a way of their own. */
typedef struct shmsync_signal {
    struct shmi_signalwaker *impl;
    uint64_t serial;
    uint32_t index;
} shmsync_signal;

int shmsync_signalwaker_open(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
int shmsync_signalwaker_attach(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out);
int shmsync_signalwaker_at(shmsync_arena *a, shmsync_offset off, shmsync_signalwaker *out);
shmsync_offset shmsync_signalwaker_offset(const shmsync_signalwaker *w);
int shmsync_signalwaker_close(shmsync_signalwaker *w);
int shmsync_signalwaker_signals(const shmsync_signalwaker *w);
int shmsync_signalwaker_queues(const shmsync_signalwaker *w); /* 64 for each signal, counted from 0 */

/* EINVAL: no such queue. */
int shmsync_signalwaker_gate(const shmsync_signalwaker *w, int queue, shmsync_gate *out);
/* There is something in the queue. *scheduled, which may be NULL, says whether this call has
 * scheduled it: it may be scheduled already, or its executor finds word when it finishes. */
int shmsync_gate_schedule(shmsync_gate *g, int *scheduled);
/* 0: the caller executes the queue from here on. EBUSY: it is not scheduled, or another does. */
int shmsync_gate_begin(shmsync_gate *g);
/* The same of a queue that is idle, for a producer that looks after its item itself. */
int shmsync_gate_trybegin_inline(shmsync_gate *g);
/* Ends the execution that this handle began. *again, which may be NULL, says whether the queue
 * is scheduled once more, since something came meanwhile. EPERM: it executes nothing. */
int shmsync_gate_finish(shmsync_gate *g, int *again);
/* The same, and something is left in the queue: it is scheduled again. */
int shmsync_gate_finish_and_schedule(shmsync_gate *g);
int shmsync_gate_state(const shmsync_gate *g, shmsync_gate_info *out);
/* Begins a scheduled queue, near that one if it can. EBUSY: none is scheduled; out is as it was. */
int shmsync_signalwaker_next(shmsync_signalwaker *w, int near_queue, shmsync_gate *out);

/* Waits for a permit, which says that there may be something to do since next found nothing.
 * 0 without one, too, where something is there: look again. */
int shmsync_signalwaker_acquire(shmsync_signalwaker *w);
int shmsync_signalwaker_tryacquire(shmsync_signalwaker *w);
int shmsync_signalwaker_timedacquire(shmsync_signalwaker *w, const struct timespec *abs_monotonic);
/* Issues n permits, and wakes as many waiters. EINVAL: n is negative. */
int shmsync_signalwaker_release(shmsync_signalwaker *w, int64_t n);
uint64_t shmsync_signalwaker_permits(const shmsync_signalwaker *w);
/* Counts of living processes; no wake goes by them. They go with the process that registered. A
 * sleeper waits for a permit, or elsewhere. ENOSPC: too many; EPERM: none is registered. */
int shmsync_signalwaker_sleepers(const shmsync_signalwaker *w);
int shmsync_signalwaker_register_sleeper(shmsync_signalwaker *w);
int shmsync_signalwaker_unregister_sleeper(shmsync_signalwaker *w);
int shmsync_signalwaker_workers(const shmsync_signalwaker *w);
int shmsync_signalwaker_register_worker(shmsync_signalwaker *w);
int shmsync_signalwaker_unregister_worker(shmsync_signalwaker *w);

/* EINVAL: no such signal. */
int shmsync_signalwaker_signal(const shmsync_signalwaker *w, int i, shmsync_signal *out);
/* EINVAL: a bit is 0 to 63. Result pointers may be NULL. A caller that sees *was_empty marks the signal. */
int shmsync_signal_set(const shmsync_signal *s, int bit, int *was_empty, int *was_set);
int shmsync_signal_set_mask(const shmsync_signal *s, uint64_t mask, int *was_empty, uint64_t *set);
/* Clears a bit: 0 for one of several callers, EBUSY where it was not set. */
int shmsync_signal_acquire(const shmsync_signal *s, int bit, uint64_t *before);
uint64_t shmsync_signal_load(const shmsync_signal *s);
/* The bit of a bitmap that is nearest to start, the lower one of two; 64: there is none. */
int shmsync_nearest_bit(uint64_t bitmap, int start);

/* Says that signals may have bits, with a permit for each that was not marked: *marked. */
int shmsync_signalwaker_mark(shmsync_signalwaker *w, int i, int *marked);
int shmsync_signalwaker_mark_mask(shmsync_signalwaker *w, uint64_t mask, uint64_t *marked);
/* Takes a signal out of the summary, if it is empty or whatever it has. EBUSY: it did not. */
int shmsync_signalwaker_tryunmark_empty(shmsync_signalwaker *w, int i);
int shmsync_signalwaker_tryunmark(shmsync_signalwaker *w, int i);
uint64_t shmsync_signalwaker_summary(const shmsync_signalwaker *w);

/* The status bits, each with a permit when it is set: *marked. EBUSY: it was not set, or stays
 * set because the partition has a leaf. */
int shmsync_signalwaker_mark_yield(shmsync_signalwaker *w, int *marked);
int shmsync_signalwaker_tryunmark_yield(shmsync_signalwaker *w);
int shmsync_signalwaker_mark_tasks(shmsync_signalwaker *w, int *marked);
int shmsync_signalwaker_tryunmark_tasks(shmsync_signalwaker *w);
void shmsync_signalwaker_status(const shmsync_signalwaker *w, int *yield, int *tasks);

/* Makes the partition's summary say which of the signals start..end-1 of tree, 64 at most, have
 * bits; NULL is w itself. *work: there is one. */
int shmsync_signalwaker_sync_partition(shmsync_signalwaker *w, int start, int end, const shmsync_signalwaker *tree, int *work);
int shmsync_signalwaker_mark_leaf(shmsync_signalwaker *w, int k, int *was_empty);
int shmsync_signalwaker_clear_leaf(shmsync_signalwaker *w, int k);
int shmsync_signalwaker_leaf_has_work(const shmsync_signalwaker *w, int k);
uint64_t shmsync_signalwaker_partition(const shmsync_signalwaker *w);

/* Reserves a queue among those of the signals start..end-1 that nobody has reserved, until it is
 * released or this process dies. EBUSY: there is none. EPERM: this process has not reserved it. */
int shmsync_signalwaker_reserve(shmsync_signalwaker *w, int start, int end, int *queue);
int shmsync_signalwaker_unreserve(shmsync_signalwaker *w, int queue);
int shmsync_signalwaker_reserved(const shmsync_signalwaker *w);

/* Counters. Those marked * count themselves with the option count. */
enum {
    SHMSYNC_STAT_TASKS_POLLED,  /* * executions begun */
    SHMSYNC_STAT_COMPLETED,     /* * executions that left the queue idle */
    SHMSYNC_STAT_YIELDED,       /* * executions that scheduled it again */
    SHMSYNC_STAT_WAITING,       /* * waits for a permit */
    SHMSYNC_STAT_CAS_FAILURES,  /* * changes of a gate that another was faster with */
    SHMSYNC_STAT_EMPTY_SCANS,   /* * calls of next that found nothing */
    SHMSYNC_STAT_YIELD_QUEUE_POLLS,
    SHMSYNC_STAT_SIGNAL_POLLS,  /* * signals that next looked at */
    SHMSYNC_STAT_STEAL_ATTEMPTS,
    SHMSYNC_STAT_STEAL_SUCCESSES,
    SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, /* * looks at a partition's summary */
    SHMSYNC_STAT_LEAF_SUMMARY_HITS,   /* * syncs of it that found work */
    SHMSYNC_STAT_LEAF_STEAL_ATTEMPTS,
    SHMSYNC_STAT_LEAF_STEAL_SUCCESSES,
    SHMSYNC_STATS
};
int shmsync_signalwaker_count(shmsync_signalwaker *w, int stat, uint64_t n);
/* Each the sum over all processes that ever were in the arena. */
void shmsync_signalwaker_stats(const shmsync_signalwaker *w, uint64_t stats[SHMSYNC_STATS]);

typedef struct shmsync_signal_health {
    uint64_t summary, permits, partition;
    int signals;   /* that have bits */
    int scheduled; /* queues that wait for an executor */
    int executing; /* queues that have one */
    int reserved, sleepers, workers, yield, tasks;
} shmsync_signal_health;
void shmsync_signalwaker_health(const shmsync_signalwaker *w, shmsync_signal_health *out);
/* ---- Recovery of all objects, for on_first ---- */

/* An object that a death has made unusable, or one key of a multilock. */
typedef struct shmsync_lost {
    shmsync_offset offset; /* of the object */
    const char *name;      /* "" if it is anonymous */
    char kind[5];          /* "MUTX" and the like */
    int has_key;           /* not 0: it is a multilock, and this is about key */
    uint64_t key;
    int err;               /* what its calls returned: EOWNERDEAD or ENOTRECOVERABLE */
    int who_known;         /* not 0: who says whose death that was */
    shmsync_participant who;
} shmsync_lost;

/* shmsync_recover_all makes the objects of the arena usable again that deaths have made unusable. It is for on_first:
 * there no other process is in, and every death has been dealt with. For each such object, and for each such key of
 * a multilock, it calls repair, which makes the data whole that the object guards; of a lock it is called while the
 * lock is held. A waitgroup, latch, barrier or future is reset after that, unless repair has made it usable: a future
 * that repair has set keeps its result. Healthy objects are only read.
 *
 * If repair gives an errno, that object is not usable, and the others follow; the result is the first error:
 * ENOTRECOVERABLE for a lock, what repair gave for another object, EPROTO for one that a peer has overwritten, ENOMEM if
 * objects or keys may have been left out. *recovered, if it is not NULL, is how many were recovered.
 * Kinds that this header does not have, such as CohortMutex and Waitable of the Go side, are left alone. */
int shmsync_recover_all(shmsync_arena *a, int (*repair)(shmsync_arena *a, const shmsync_lost *lost, void *arg), void *arg, size_t *recovered);

/* ---- Synchronized: a value with its lock, which is changed wholly or not at all ---- */

typedef struct shmsync_synchronized {
    struct shmi_synchronized *impl;
    uint64_t serial;
} shmsync_synchronized;

typedef struct shmsync_synchronized_options {
    const void *initial; /* the value of a new one; NULL: all zero */
    uint64_t layout;     /* fingerprint of the value, by shmsync_layout; 0: whatever an existing one has */
    int64_t spin_ns;     /* as of a mutex */
} shmsync_synchronized_options;

/* A value has size bytes, at most 65536. EINVAL: an existing one has another size or layout. */
int shmsync_synchronized_open(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out);
int shmsync_synchronized_attach(shmsync_arena *a, const char *name, size_t size, const shmsync_synchronized_options *opts, shmsync_synchronized *out);
int shmsync_synchronized_at(shmsync_arena *a, shmsync_offset off, size_t size, shmsync_synchronized *out);
shmsync_offset shmsync_synchronized_offset(const shmsync_synchronized *s);
int shmsync_synchronized_close(shmsync_synchronized *s);
/* Locks the value. *copy is a copy of it, aligned to 64 bytes, to be changed in any order by
 * the process until commit or abort. If the process dies before it has committed, the value is
 * as it was before begin. A second begin of this process waits for the first. */
int shmsync_synchronized_begin(shmsync_synchronized *s, void **copy);
/* ETIMEDOUT at that CLOCK_MONOTONIC time. A free lock is taken without a look at it. */
int shmsync_synchronized_timedbegin(shmsync_synchronized *s, void **copy, const struct timespec *abs_monotonic);
/* Makes the copy the value, in one step, and unlocks. EPERM: this process is not between begin
 * and commit. */
int shmsync_synchronized_commit(shmsync_synchronized *s);
/* Unlocks, and the value is as before begin. EPERM as of commit. */
int shmsync_synchronized_abort(shmsync_synchronized *s);
/* Copies the value to dst. It does not lock, and does not wait for a process between begin and
 * commit, be it stopped or dead. While it runs, dst may have parts of several values; with the
 * result 0 it is one value. */
int shmsync_synchronized_load(const shmsync_synchronized *s, void *dst);
/* Makes *src the value: begin, a copy, commit. */
int shmsync_synchronized_store(shmsync_synchronized *s, const void *src);
/* How often the value was changed. */
uint64_t shmsync_synchronized_commits(const shmsync_synchronized *s);


#ifdef SHMSYNC_EXPORTS
#pragma GCC visibility pop
#endif
#ifdef SHMSYNC_IMPLEMENTATION

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define SHMI_FN static __attribute__((unused))
#define SHMI_COLD static __attribute__((unused, noinline, cold))
#define SHMI_LIKELY(x) __builtin_expect(!!(x), 1)
#define SHMI_UNLIKELY(x) __builtin_expect(!!(x), 0)

#ifdef __cplusplus
#define SHMI_ASSERT(cond, text) static_assert(cond, text)
#define SHMI_THREAD thread_local
#else
#define SHMI_ASSERT(cond, text) _Static_assert(cond, text)
#define SHMI_THREAD _Thread_local
#endif

/* ---- The bytes: docs/abi.md. Constants have the names that they have there. ---- */

enum {
    SHMI_orderMark = 0x01020304,
    SHMI_LayoutVersion = SHMSYNC_LAYOUT_VERSION,
    SHMI_wordBytes = 8,
    SHMI_knownCompat = 1,
    SHMI_knownROCompat = 0,
    SHMI_knownIncompat = 0,
    SHMI_headerSize = 4096,
    SHMI_MaxSlots = 2047,
    SHMI_maxGeneration = 262143,
    SHMI_slotStride = 2048,
    SHMI_aliveWords = 4,
    SHMI_aliveStride = 8,
    SHMI_announceCount = 32,
    SHMI_announceStride = 32,
    SHMI_labelBytes = 63,
    SHMI_deathRecordCount = 256,
    SHMI_deathRecordDeaths = 192,
    SHMI_deathRecordStride = 128,
    SHMI_chunkSize = 65536,
    SHMI_blockMin = 64,
    SHMI_blockWords = 1024,
    SHMI_blockWordSize = 4,
    SHMI_maxAlign = 4096,
    SHMI_objectHeader = 64,
    SHMI_nodeSize = 64,
    SHMI_maxObjectName = 255
};
#define SHMI_MaxObject UINT64_C(4293918720)
#define SHMI_magic "shmsync" /* and the NUL */

enum { /* header */
    SHMI_hdrMagic = 0,
    SHMI_hdrOrder = 8,
    SHMI_hdrVersion = 12,
    SHMI_hdrWord = 16,
    SHMI_hdrHeaderSize = 20,
    SHMI_hdrCompat = 24,
    SHMI_hdrROCompat = 32,
    SHMI_hdrIncompat = 40,
    SHMI_hdrSize = 48,
    SHMI_hdrID = 56,
    SHMI_hdrCreated = 72,
    SHMI_hdrSlots = 80,
    SHMI_hdrSlotStride = 84,
    SHMI_hdrSlotsOff = 88,
    SHMI_hdrDeathRecordOff = 96,
    SHMI_hdrDeathRecordCount = 104,
    SHMI_hdrDeathRecordStride = 108,
    SHMI_hdrDirOff = 112,
    SHMI_hdrDirCount = 120,
    SHMI_hdrChunksOff = 128,
    SHMI_hdrBlocksOff = 136,
    SHMI_hdrHeapOff = 144,
    SHMI_hdrChunkSize = 152,
    SHMI_hdrBlockWords = 156,
    SHMI_hdrChunkCount = 160,
    SHMI_hdrChecksum = 168,
    SHMI_hdrDeathRecordsTotal = 256,
    SHMI_hdrLeftTotal = 272,
    SHMI_hdrDeaths = 264,
    SHMI_hdrDirReach = 268,
    SHMI_hdrDirLowering = 288,
    SHMI_hdrDirLowerer = 296,
    SHMI_hdrEpoch = 304,
    SHMI_hdrEpochDeaths = 312,
    SHMI_hdrChunkHint = 320,
    SHMI_hdrEpochBoot = 328,
    SHMI_hdrEpochBegan = 344,
    SHMI_hdrSynced = 352
};

enum { /* slot */
    SHMI_slotState = 0,
    SHMI_slotReaper = 4,
    SHMI_slotCaps = 8,
    SHMI_slotPID = 12,
    SHMI_slotTID = 16,
    SHMI_slotUID = 20,
    SHMI_slotStart = 24,
    SHMI_slotPIDNS = 32,
    SHMI_slotJoined = 40,
    SHMI_slotBootID = 48,
    SHMI_slotLabel = 64,
    SHMI_slotAlive = 128,
    SHMI_slotDoorbell = 192,
    SHMI_slotAdmission = 196,
    SHMI_slotReady = 200,
    SHMI_slotDied = 208,
    SHMI_slotWatchDoorbell = 216,
    SHMI_slotReclaimed = 220,
    SHMI_slotOpening = 224,
    SHMI_slotWalking = 232,
    SHMI_slotGone = 244,
    SHMI_slotWindow = 248, /* see 35-window.h */
    SHMI_slotAnnounce = 256
};

enum { SHMI_capRobust = 1, SHMI_capOFD = 2, SHMI_capNoKernelIO = 4, SHMI_capFence = 8, SHMI_capWaitV = 16, SHMI_capTold = 32, SHMI_capAsyncIO = 64 };

enum { /* phases of a slot */
    SHMI_epochNew = 0,
    SHMI_epochOpen = 1,
    SHMI_epochClaiming = 2,
    SHMI_epochClaimed = 3,
    SHMI_epochRemoved = 4
};
enum {
    SHMI_admissionPending = 0,
    SHMI_admissionIn = 1,
    SHMI_admissionRefused = 2,
    SHMI_admissionFirst = 3
};
enum {
    SHMI_phaseFree,
    SHMI_phaseJoining,
    SHMI_phaseLive,
    SHMI_phaseLeaving,
    SHMI_phaseDead
};

enum { SHMI_announceObject = 0, SHMI_announceWord = 8, SHMI_announceSince = 16, SHMI_announceWanted = 24 };

enum { /* death record */
    SHMI_deathRecordSeq = 0,
    SHMI_deathRecordID = 8,
    SHMI_deathRecordPID = 12,
    SHMI_deathRecordDied = 16,
    SHMI_deathRecordFlags = 24,
    SHMI_deathRecordLabel = 32,
    SHMI_deathRecordLeft = 1,
    SHMI_deathRecordPending = 2
};

enum { /* kinds of chunk */
    SHMI_chunkFree,
    SHMI_chunkClaimed,
    SHMI_chunkSlab,
    SHMI_chunkSweeping,
    SHMI_chunkHead,
    SHMI_chunkTail
};
#define SHMI_CHUNK_RESERVED UINT64_C(8)

enum { /* kinds of block */
    SHMI_blockFree,
    SHMI_blockClaimed,
    SHMI_blockRaw,
    SHMI_blockObject,
    SHMI_blockNode,
    SHMI_blockFreeing,
    SHMI_blockBlocked,
    SHMI_blockLogged
};

enum { SHMI_classNode = 17, SHMI_classes = 18, SHMI_classSpan = -1 };

static const uint32_t shmi_class_size[SHMI_classes] = {
    64, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 32768, 64};

enum { /* object header */
    SHMI_objKind = 0,
    SHMI_objVersion = 4,
    SHMI_objState = 8,
    SHMI_objNameOff = 12,
    SHMI_objSize = 16,
    SHMI_objHash = 24,
    SHMI_objCreated = 32,
    SHMI_objOpenOff = 40,
    SHMI_objLayout = 48
};

enum { SHMI_objectPending, SHMI_objectCommitted, SHMI_objectAborted, SHMI_objectDeleting };

enum { /* states of a wait node */
    SHMI_NodeFree,
    SHMI_NodeIdle,
    SHMI_NodeWaiting,
    SHMI_NodeReady,
    SHMI_NodeQueued,
    SHMI_NodeAsleep,
    SHMI_NodeParked,
    SHMI_NodeResolved,
    SHMI_NodeLeft,
    SHMI_NodeSpent
};

typedef uint64_t shmi_off;
typedef uint32_t shmi_participant_id; /* slot in bits 0..10, generation in bits 11..28 */
#define SHMI_NAME_MASK 0x1fffffffu

typedef struct shmi_node {
    uint32_t word;       /* state in bits 0..3, generation above */
    uint32_t owner;      /* name */
    uint64_t object;
    uint64_t next;
    uint64_t ready_next;
    uint64_t wanted;
    uint64_t stamp;
    uint64_t list;
    uint64_t extra;
} shmi_node;

typedef struct shmi_mutex_words {
    uint32_t owner;
    uint32_t pad0_[15];
    uint32_t wake;
    uint32_t starving;
    uint32_t handoff;
    uint32_t policy;
    uint32_t died;
    uint32_t spin;
    uint32_t lastCPU;
    uint32_t pays;
    uint64_t poller;
    uint64_t handed;
    uint64_t pad1_[2];
    uint64_t counts[8];  /* for people; see compatCounted */
} shmi_mutex_words;

enum { SHMI_POLICY_REPORT, SHMI_POLICY_RELEASE, SHMI_POLICY_ROLLBACK }; /* in the body of a lock */
enum { SHMI_logHead = 64, SHMI_logLeast = 64, SHMI_logMost = 1 << 20, SHMI_logDefault = 16384, SHMI_recordFooter = 16 };
enum { SHMI_logIdle, SHMI_logActive, SHMI_logUndone, SHMI_logCommitted, SHMI_logLost };
enum { SHMI_recordBytes, SHMI_recordAlloc, SHMI_recordFree, SHMI_recordTemporary, SHMI_recordGiven };

typedef struct shmi_log_head {
    uint64_t state;
    uint32_t size;
    uint32_t pad0_;
    uint64_t rollbacks;  /* for people */
    uint64_t highest;    /* for people */
    uint64_t pad1_[4];
} shmi_log_head;

typedef struct shmi_futex_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint32_t pad0_;
    uint64_t poller;
    uint64_t pad1_[12];
} shmi_futex_words;

#define SHMI_AT(type, field, off) SHMI_ASSERT(offsetof(type, field) == (off), #type "." #field)
SHMI_AT(shmi_node, word, 0);
SHMI_AT(shmi_node, owner, 4);
SHMI_AT(shmi_node, object, 8);
SHMI_AT(shmi_node, next, 16);
SHMI_AT(shmi_node, ready_next, 24);
SHMI_AT(shmi_node, wanted, 32);
SHMI_AT(shmi_node, stamp, 40);
SHMI_AT(shmi_node, list, 48);
SHMI_AT(shmi_node, extra, 56);
SHMI_ASSERT(sizeof(shmi_node) == SHMI_nodeSize, "shmi_node");
SHMI_AT(shmi_mutex_words, owner, 0);
SHMI_AT(shmi_mutex_words, wake, 64);
SHMI_AT(shmi_mutex_words, starving, 68);
SHMI_AT(shmi_mutex_words, handoff, 72);
SHMI_AT(shmi_mutex_words, policy, 76);
SHMI_AT(shmi_mutex_words, died, 80);
SHMI_AT(shmi_mutex_words, spin, 84);
SHMI_AT(shmi_mutex_words, lastCPU, 88);
SHMI_AT(shmi_mutex_words, counts, 128);
SHMI_AT(shmi_mutex_words, pays, 92);
SHMI_AT(shmi_mutex_words, poller, 96);
SHMI_AT(shmi_mutex_words, handed, 104);
SHMI_ASSERT(sizeof(shmi_mutex_words) == 192, "shmi_mutex_words");
SHMI_AT(shmi_log_head, state, 0);
SHMI_AT(shmi_log_head, size, 8);
SHMI_AT(shmi_log_head, rollbacks, 16);
SHMI_AT(shmi_log_head, highest, 24);
SHMI_ASSERT(sizeof(shmi_log_head) == SHMI_logHead, "shmi_log_head");
SHMI_AT(shmi_futex_words, state, 0);
SHMI_AT(shmi_futex_words, lastCPU, 8);
SHMI_AT(shmi_futex_words, spin, 12);
SHMI_AT(shmi_futex_words, pays, 16);
SHMI_AT(shmi_futex_words, poller, 24);
SHMI_ASSERT(sizeof(shmi_futex_words) == 128, "shmi_futex_words");

/* A kind is four letters, the first in the lowest byte. */
#define SHMI_KIND(a, b, c, d) ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

/* ---- Atomics: sequentially consistent, as those of the Go side ---- */

SHMI_FN uint32_t shmi_ld32(const uint32_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_ld64(const uint64_t *p) { return __atomic_load_n(p, __ATOMIC_SEQ_CST); }
SHMI_FN void shmi_st32(uint32_t *p, uint32_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN void shmi_st64(uint64_t *p, uint64_t v) { __atomic_store_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_xchg32(uint32_t *p, uint32_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_xchg64(uint64_t *p, uint64_t v) { return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST); }
/* The value before. */
SHMI_FN uint32_t shmi_add32(uint32_t *p, uint32_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_add64(uint64_t *p, uint64_t v) { return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_or32(uint32_t *p, uint32_t v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint32_t shmi_and32(uint32_t *p, uint32_t v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_or64(uint64_t *p, uint64_t v) { return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN uint64_t shmi_and64(uint64_t *p, uint64_t v) { return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST); }
SHMI_FN int shmi_cas32(uint32_t *p, uint32_t old, uint32_t to)
{
    return __atomic_compare_exchange_n(p, &old, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
SHMI_FN int shmi_cas64(uint64_t *p, uint64_t old, uint64_t to)
{
    return __atomic_compare_exchange_n(p, &old, to, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}
/* A word that only the holder of a queue lock writes: program order is all that a death needs
 * of it, which a release store keeps. */
SHMI_FN void shmi_put64(uint64_t *p, uint64_t v)
{
    if (__atomic_load_n(p, __ATOMIC_RELAXED) != v)
        __atomic_store_n(p, v, __ATOMIC_RELEASE);
}

/* The first orders everything before it and after it, the second loads. The thread
 * sanitizer does not know fences; what it watches is ordered by atomics all the same. */
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define SHMI_NO_FENCES 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define SHMI_NO_FENCES 1
#endif
SHMI_FN void shmi_full_fence(void)
{
#ifdef SHMI_NO_FENCES
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}
SHMI_FN void shmi_load_fence(void)
{
#ifdef SHMI_NO_FENCES
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
#else
    __atomic_thread_fence(__ATOMIC_ACQUIRE);
#endif
}

SHMI_FN void shmi_pause(uint32_t n)
{
    for (; n != 0; n--) {
#if defined(__x86_64__)
        __builtin_ia32_pause();
#elif defined(__aarch64__)
        __asm__ volatile("isb" ::: "memory");
#else
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
#endif
    }
}

/* ---- Crash points: tests build with SHMSYNC_CRASHPOINTS and name one in the
 * environment, as those of the Go side ---- */

#ifdef SHMSYNC_CRASHPOINTS
SHMI_FN int shmi_crash_due(const char *spec, const char *name, int *hits)
{
    const char *colon;
    size_t n;
    int want = 1;
    if (spec == NULL || *spec == 0)
        return 0;
    colon = strchr(spec, ':');
    n = colon != NULL ? (size_t)(colon - spec) : strlen(spec);
    if (colon != NULL)
        want = atoi(colon + 1);
    if (strlen(name) != n || memcmp(spec, name, n) != 0)
        return 0;
    return __atomic_add_fetch(hits, 1, __ATOMIC_SEQ_CST) == want;
}
SHMI_FN void shmi_crash(const char *name)
{
    static int kills, stops;
    if (shmi_crash_due(getenv("SHMSYNC_CRASHPOINT"), name, &kills)) {
        kill(getpid(), SIGKILL);
        for (;;)
            pause();
    }
    if (shmi_crash_due(getenv("SHMSYNC_CRASHPOINT_STOP"), name, &stops))
        raise(SIGSTOP); /* this thread goes no further, which a signal to the process does not promise */
}
#define SHMSYNC_CRASHPOINT(name) shmi_crash(name)
#elif !defined(SHMSYNC_CRASHPOINT) /* a test may have its own */
#define SHMSYNC_CRASHPOINT(name) ((void)0)
#endif

/* ---- The kernel ---- */

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif
#ifndef F_OFD_GETLK
#define F_OFD_GETLK 36
#define F_OFD_SETLK 37
#endif
#ifndef MADV_DONTFORK
#define MADV_DONTFORK 10
#endif
#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef O_TMPFILE
#define O_TMPFILE (020000000 | O_DIRECTORY)
#endif
#ifndef FALLOC_FL_KEEP_SIZE
#define FALLOC_FL_KEEP_SIZE 1
#endif

#define SHMI_ALL INT32_MAX
#define SHMI_OWNER_DIED 0x40000000u /* FUTEX_OWNER_DIED */
#define SHMI_WAITERS 0x80000000u
#define SHMI_TID_MASK 0x3fffffffu

enum { SHMI_futexWaitBitset = 9, SHMI_futexWakeBitset = 10 };
enum { SHMI_membarrierQuery = 0, SHMI_membarrierGlobal = 2, SHMI_membarrierRegister = 4 };

SHMI_FN int64_t shmi_now(void) /* CLOCK_MONOTONIC, ns */
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

SHMI_FN int64_t shmi_unix_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_REALTIME, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* The CLOCK_MONOTONIC time of a timespec, at least 1. EINVAL for one that is none. */
SHMI_FN int shmi_deadline(const struct timespec *ts, int64_t *out)
{
    if (ts == NULL || ts->tv_nsec < 0 || ts->tv_nsec >= 1000000000)
        return EINVAL;
    if (ts->tv_sec < 0 || (ts->tv_sec == 0 && ts->tv_nsec == 0))
        *out = 1;
    else if (ts->tv_sec > INT64_MAX / 1000000000 - 1)
        *out = INT64_MAX;
    else
        *out = (int64_t)ts->tv_sec * 1000000000 + ts->tv_nsec;
    return 0;
}

SHMI_FN struct timespec shmi_timespec(int64_t ns)
{
    struct timespec ts;
    if (ns < 1)
        ns = 1;
    ts.tv_sec = (time_t)(ns / 1000000000);
    ts.tv_nsec = (long)(ns % 1000000000);
    return ts;
}

SHMI_FN void shmi_nap(int64_t ns)
{
    struct timespec ts = shmi_timespec(ns);
    syscall(SYS_nanosleep, &ts, NULL); /* unlike nanosleep it is no cancellation point */
}

/* ---- Memory for the holder of a queue lock. It does not come from malloc, whose locks a thread
 * may hold that a signal handler has interrupted, and the handler may wait for the queue lock. ---- */

/* Makes a region of had bytes, NULL for none, one of size bytes; NULL if there is no memory. */
SHMI_FN void *shmi_scratch(void *old, size_t had, size_t size)
{
    void *p;
    if (old == NULL)
        p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    else
        p = mremap(old, had, size, MREMAP_MAYMOVE);
    return p == MAP_FAILED ? NULL : p;
}
SHMI_FN void shmi_end_scratch(void *p, size_t size)
{
    if (p != NULL)
        munmap(p, size);
}

/* Sleeps while *addr is val, until a wake or deadline (0: none). 0, EAGAIN, EINTR,
 * ETIMEDOUT are part of the protocol. */
SHMI_FN int shmi_futex_sleep(uint32_t *addr, uint32_t val, int64_t deadline)
{
    struct timespec ts;
    int before = errno, err = 0;
    if (deadline != 0)
        ts = shmi_timespec(deadline);
    if (syscall(SYS_futex, addr, SHMI_futexWaitBitset, val, deadline != 0 ? &ts : NULL, NULL, 0xffffffffu) != 0)
        err = errno;
    errno = before;
    return err;
}

/* Wakes up to n sleepers and says how many. */
SHMI_FN int shmi_wake(uint32_t *addr, int n)
{
    int before = errno;
    long r = syscall(SYS_futex, addr, SHMI_futexWakeBitset, n, NULL, NULL, 0xffffffffu);
    errno = before;
    return r < 0 ? 0 : (int)r;
}

typedef struct shmi_waitv {
    uint64_t val;
    uint64_t addr;
    uint32_t flags;
    uint32_t zero_;
} shmi_waitv;

SHMI_FN shmi_waitv shmi_waitv_of(uint32_t *addr, uint32_t val)
{
    shmi_waitv v;
    v.val = val;
    v.addr = (uint64_t)(uintptr_t)addr;
    v.flags = 2; /* FUTEX_32 */
    v.zero_ = 0;
    return v;
}

/* Sleeps while every word has its value. All are examined again after any return. */
SHMI_FN int shmi_futex_sleepv(shmi_waitv *v, unsigned n, int64_t deadline)
{
    struct timespec ts;
    int before = errno, err = 0;
    if (deadline != 0)
        ts = shmi_timespec(deadline);
    if (syscall(SYS_futex_waitv, v, n, 0, deadline != 0 ? &ts : NULL, CLOCK_MONOTONIC) < 0)
        err = errno;
    errno = before;
    return err;
}

/* Which features there are. Each is probed by the call itself, once. */
typedef struct shmi_features {
    int probed;
    int robust, waitv, membarrier, ofd, otmpfile;
    int registered; /* this process is a target of fences; a child of fork is not */
} shmi_features;

static shmi_features shmi_have;
static pthread_mutex_t shmi_have_lock = PTHREAD_MUTEX_INITIALIZER;

SHMI_FN int shmi_disabled(const char *feature)
{
    const char *list = getenv("SHMSYNC_DISABLE");
    size_t n = strlen(feature);
    while (list != NULL && *list != 0) {
        const char *end = strchr(list, ',');
        const char *last = end != NULL ? end : list + strlen(list);
        while (list < last && *list == ' ')
            list++;
        while (last > list && last[-1] == ' ')
            last--;
        if ((size_t)(last - list) == n && memcmp(list, feature, n) == 0)
            return 1;
        list = end != NULL ? end + 1 : NULL;
    }
    return 0;
}

SHMI_FN int shmi_bytes_op(int fd, int op, short type, uint64_t off, uint64_t n, short *found)
{
    struct flock l;
    int before = errno, err = 0;
    memset(&l, 0, sizeof l);
    l.l_type = type;
    l.l_whence = SEEK_SET;
    l.l_start = (off_t)off;
    l.l_len = (off_t)n;
    if (fcntl(fd, op, &l) != 0)
        err = errno;
    errno = before;
    if (found != NULL)
        *found = l.l_type;
    return err;
}
SHMI_FN int shmi_byte_op(int fd, int op, short type, uint64_t off, short *found) { return shmi_bytes_op(fd, op, type, off, 1, found); }

/* 0, EAGAIN when another description has it, or another errno. */
SHMI_FN int shmi_lock_byte(int fd, uint64_t off)
{
    int err = shmi_byte_op(fd, F_OFD_SETLK, F_WRLCK, off, NULL);
    return err == EACCES ? EAGAIN : err;
}
SHMI_FN void shmi_unlock_byte(int fd, uint64_t off) { shmi_byte_op(fd, F_OFD_SETLK, F_UNLCK, off, NULL); }
/* Whether a description other than that of fd has the byte; -1 when nobody can tell. */
SHMI_FN int shmi_byte_locked(int fd, uint64_t off)
{
    short found = F_UNLCK;
    if (!shmi_have.ofd || shmi_byte_op(fd, F_OFD_GETLK, F_WRLCK, off, &found) != 0)
        return -1;
    return found != F_UNLCK;
}
/* Whether fd is still a descriptor of that file. */
SHMI_FN int shmi_is_file(int fd, uint64_t dev, uint64_t ino)
{
    struct stat st;
    int before = errno, same = fstat(fd, &st) == 0 && (uint64_t)st.st_dev == dev && (uint64_t)st.st_ino == ino;
    errno = before;
    return same;
}
/* Keeps the byte locks of fd's open file description until this process is gone, even if
 * a mistake elsewhere in the program closes the descriptor: it maps a page of the file
 * through the description, and a mapping refers to the description as a descriptor does.
 * The mapping is not inherited by a fork, whose child is no participant. */
SHMI_FN int shmi_pin_lock(int fd, void **page, size_t *n)
{
    struct stat st;
    *page = NULL;
    if (fstat(fd, &st) != 0)
        return errno;
    *n = (size_t)sysconf(_SC_PAGESIZE);
    if ((size_t)st.st_blksize > *n)
        *n = (size_t)st.st_blksize; /* the size of a huge page where the file has those */
    *page = mmap(NULL, *n, PROT_NONE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (*page == MAP_FAILED) {
        *page = NULL;
        return errno;
    }
    if (madvise(*page, *n, MADV_DONTFORK) != 0) {
        int err = errno;
        munmap(*page, *n);
        *page = NULL;
        return err;
    }
    return 0;
}

SHMI_FN void shmi_probe(void)
{
    uint32_t word = 0;
    shmi_waitv v = shmi_waitv_of(&word, 1);
    void *head = NULL;
    size_t size = 0;
    long mask;
    int before = errno, fd, err;
    pthread_mutex_lock(&shmi_have_lock);
    if (shmi_have.probed) {
        pthread_mutex_unlock(&shmi_have_lock);
        return;
    }
    shmi_have.robust = !shmi_disabled("robust") && syscall(SYS_get_robust_list, 0, &head, &size) == 0 &&
                       syscall(SYS_set_robust_list, head, (size_t)24) == 0;
    err = shmi_futex_sleepv(&v, 1, 0);
    shmi_have.waitv = !shmi_disabled("waitv") && (err == 0 || err == EAGAIN);
    mask = syscall(SYS_membarrier, SHMI_membarrierQuery, 0);
    shmi_have.membarrier = !shmi_disabled("membarrier") && mask > 0 &&
                           (mask & (SHMI_membarrierGlobal | SHMI_membarrierRegister)) == (SHMI_membarrierGlobal | SHMI_membarrierRegister) &&
                           syscall(SYS_membarrier, SHMI_membarrierGlobal, 0) == 0;
    fd = (int)syscall(SYS_memfd_create, "shmsync-probe", 1u);
    if (fd < 0)
        fd = open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
    if (fd >= 0) {
        shmi_have.ofd = !shmi_disabled("ofd") && shmi_byte_op(fd, F_OFD_SETLK, F_WRLCK, 0, NULL) == 0;
        close(fd);
    }
    shmi_have.otmpfile = !shmi_disabled("otmpfile");
    shmi_have.probed = 1;
    pthread_mutex_unlock(&shmi_have_lock);
    errno = before;
}

/* Whether this process is a target of fences. */
SHMI_FN int shmi_is_registered(void) { return __atomic_load_n(&shmi_have.registered, __ATOMIC_ACQUIRE); }

/* Whether this process has one thread. */
SHMI_FN int shmi_alone(void)
{
    struct stat st;
    int before = errno, alone = stat("/proc/self/task", &st) == 0 && st.st_nlink == 3; /* each task is a directory in it */
    errno = before;
    return alone;
}

/* Makes this process a target of fences. It is quick while it has one thread. */
SHMI_FN void shmi_register_fence(void)
{
    int before = errno;
    if (shmi_have.membarrier && !__atomic_load_n(&shmi_have.registered, __ATOMIC_ACQUIRE) &&
        syscall(SYS_membarrier, SHMI_membarrierRegister, 0) == 0)
        __atomic_store_n(&shmi_have.registered, 1, __ATOMIC_RELEASE);
    errno = before;
}

/* Every running thread of every registered process passes a fence. 0, or it could
 * not be done. */
SHMI_FN int shmi_fence(void)
{
    int before = errno, err = 0;
    if (!shmi_have.membarrier)
        return ENOTSUP;
    if (syscall(SYS_membarrier, SHMI_membarrierGlobal, 0) != 0)
        err = errno;
    errno = before;
    return err;
}

/* Lets another thread of this CPU run, and says how long that took, in ns. */
SHMI_FN int64_t shmi_yield(void)
{
    int64_t start = shmi_now();
    sched_yield();
    return shmi_now() - start;
}

SHMI_FN uint64_t shmi_fnv(const void *p, size_t n)
{
    const unsigned char *b = (const unsigned char *)p;
    uint64_t h = UINT64_C(14695981039346656037);
    for (; n != 0; n--)
        h = (h ^ *b++) * UINT64_C(1099511628211);
    return h;
}

SHMI_COLD void shmi_abort(const char *why)
{
    fprintf(stderr, "shmsync: %s\n", why);
    abort();
}

/* Made from docs/abi.md by internal/abigen; do not edit: go test ./internal/abigen -update */

/* Kinds of objects, and the version of each kind's layout */
#define SHMI_KIND_MUTEX UINT32_C(0x5854554d) /* MUTX */
#define SHMI_VERSION_MUTEX 1
#define SHMI_KIND_COHORT_MUTEX UINT32_C(0x4d484f43) /* COHM */
#define SHMI_VERSION_COHORT_MUTEX 1
#define SHMI_KIND_FUTEX UINT32_C(0x58545546) /* FUTX */
#define SHMI_VERSION_FUTEX 1
#define SHMI_KIND_SIGNAL_WAKER UINT32_C(0x57474953) /* SIGW */
#define SHMI_VERSION_SIGNAL_WAKER 1
#define SHMI_KIND_SPIN_LOCK UINT32_C(0x4e495053) /* SPIN */
#define SHMI_VERSION_SPIN_LOCK 1
#define SHMI_KIND_RWSPIN_LOCK UINT32_C(0x50535752) /* RWSP */
#define SHMI_VERSION_RWSPIN_LOCK 1
#define SHMI_KIND_RWMUTEX UINT32_C(0x584d5752) /* RWMX */
#define SHMI_VERSION_RWMUTEX 1
#define SHMI_KIND_SEMAPHORE UINT32_C(0x414d4553) /* SEMA */
#define SHMI_VERSION_SEMAPHORE 2
#define SHMI_KIND_WAITABLE UINT32_C(0x54494157) /* WAIT */
#define SHMI_VERSION_WAITABLE 3
#define SHMI_KIND_SEQUENCER UINT32_C(0x52514553) /* SEQR */
#define SHMI_VERSION_SEQUENCER 1
#define SHMI_KIND_EVENT UINT32_C(0x544e5645) /* EVNT */
#define SHMI_VERSION_EVENT 1
#define SHMI_KIND_WAIT_GROUP UINT32_C(0x50524757) /* WGRP */
#define SHMI_VERSION_WAIT_GROUP 3
#define SHMI_KIND_LATCH UINT32_C(0x4843544c) /* LTCH */
#define SHMI_VERSION_LATCH 3
#define SHMI_KIND_BARRIER UINT32_C(0x52524142) /* BARR */
#define SHMI_VERSION_BARRIER 2
#define SHMI_KIND_ONCE UINT32_C(0x45434e4f) /* ONCE */
#define SHMI_VERSION_ONCE 2
#define SHMI_KIND_FAIR_MUTEX UINT32_C(0x52494146) /* FAIR */
#define SHMI_VERSION_FAIR_MUTEX 2
#define SHMI_KIND_MULTI_LOCK UINT32_C(0x544c554d) /* MULT */
#define SHMI_VERSION_MULTI_LOCK 2
#define SHMI_KIND_COND UINT32_C(0x444e4f43) /* COND */
#define SHMI_VERSION_COND 1
#define SHMI_KIND_FUTURE UINT32_C(0x52545546) /* FUTR */
#define SHMI_VERSION_FUTURE 1
#define SHMI_KIND_QUEUE UINT32_C(0x55455551) /* QUEU */
#define SHMI_VERSION_QUEUE 1
#define SHMI_KIND_SYNCHRONIZED UINT32_C(0x434e5953) /* SYNC */
#define SHMI_VERSION_SYNCHRONIZED 1

/* RWMutex gate: fields of the word */
#define SHMI_GATE_NAME_SHIFT 0
#define SHMI_GATE_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_GATE_KIND_SHIFT 29
#define SHMI_GATE_KIND_MASK UINT64_C(0xe0000000)

/* Reader word: fields of the word */
#define SHMI_READER_GENERATION_SHIFT 0
#define SHMI_READER_GENERATION_MASK UINT64_C(0x3ffff)
#define SHMI_READER_WAITING_SHIFT 18
#define SHMI_READER_WAITING_MASK UINT64_C(0x1fffffc0000)
#define SHMI_READER_READING_SHIFT 41
#define SHMI_READER_READING_MASK UINT64_C(0xfffffe0000000000)

/* SpinLock: fields of the word */
#define SHMI_SPIN_NAME_SHIFT 0
#define SHMI_SPIN_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_SPIN_KIND_SHIFT 29
#define SHMI_SPIN_KIND_MASK UINT64_C(0xe0000000)

/* Event: fields of the word */
#define SHMI_EVENT_PLACE_SHIFT 0
#define SHMI_EVENT_PLACE_MASK UINT64_C(0x3)
#define SHMI_EVENT_CHANGES_SHIFT 2
#define SHMI_EVENT_CHANGES_MASK UINT64_C(0xfffffffffffffffc)

/* Future: fields of the word */
#define SHMI_FUTURE_PRODUCER_SHIFT 0
#define SHMI_FUTURE_PRODUCER_MASK UINT64_C(0x1fffffff)
#define SHMI_FUTURE_SET_SHIFT 29
#define SHMI_FUTURE_SET_MASK UINT64_C(0x20000000)
#define SHMI_FUTURE_ABANDONED_SHIFT 30
#define SHMI_FUTURE_ABANDONED_MASK UINT64_C(0x40000000)
#define SHMI_FUTURE_ERRNO_SHIFT 32
#define SHMI_FUTURE_ERRNO_MASK UINT64_C(0xffffffff00000000)

/* SignalWaker: fields of the word */
#define SHMI_SIGNAL_SIGNALS_SHIFT 0
#define SHMI_SIGNAL_SIGNALS_MASK UINT64_C(0xff)
#define SHMI_SIGNAL_COUNT_SHIFT 8
#define SHMI_SIGNAL_COUNT_MASK UINT64_C(0x100)

/* Signal status: fields of the word */
#define SHMI_SIGNAL_STATUS_YIELD_SHIFT 0
#define SHMI_SIGNAL_STATUS_YIELD_MASK UINT64_C(0x1)
#define SHMI_SIGNAL_STATUS_TASKS_SHIFT 1
#define SHMI_SIGNAL_STATUS_TASKS_MASK UINT64_C(0x2)

/* Gate: fields of the word */
#define SHMI_SIGNAL_GATE_EXECUTOR_SHIFT 0
#define SHMI_SIGNAL_GATE_EXECUTOR_MASK UINT64_C(0x1fffffff)
#define SHMI_SIGNAL_GATE_SCHEDULED_SHIFT 29
#define SHMI_SIGNAL_GATE_SCHEDULED_MASK UINT64_C(0x20000000)
#define SHMI_SIGNAL_GATE_EXECUTING_SHIFT 30
#define SHMI_SIGNAL_GATE_EXECUTING_MASK UINT64_C(0x40000000)
#define SHMI_SIGNAL_GATE_EPOCH_SHIFT 32
#define SHMI_SIGNAL_GATE_EPOCH_MASK UINT64_C(0xffffffff00000000)

/* Participant row: fields of the word */
#define SHMI_SIGNAL_ROW_NAME_SHIFT 0
#define SHMI_SIGNAL_ROW_NAME_MASK UINT64_C(0x1fffffff)
#define SHMI_SIGNAL_ROW_WORKERS_SHIFT 29
#define SHMI_SIGNAL_ROW_WORKERS_MASK UINT64_C(0xfffe0000000)
#define SHMI_SIGNAL_ROW_SLEEPERS_SHIFT 44
#define SHMI_SIGNAL_ROW_SLEEPERS_MASK UINT64_C(0xfffff00000000000)

/* kind of gate */
#define SHMI_GATE_HELD 0U
#define SHMI_GATE_CLOSED 1U
#define SHMI_GATE_OWNER_DEAD 3U
#define SHMI_GATE_RECOVERING 4U
#define SHMI_GATE_NOT_RECOVERABLE 5U

/* kind of state word */
#define SHMI_SPIN_HELD 0U
#define SHMI_SPIN_DRAINING 1U
#define SHMI_SPIN_UPGRADE 2U
#define SHMI_SPIN_OWNER_DEAD 3U
#define SHMI_SPIN_RECOVERING 4U
#define SHMI_SPIN_NOT_RECOVERABLE 5U
#define SHMI_SPIN_UPGRADING 6U

/* Redo entry */
typedef struct shmi_redo_entry {
    uint64_t at;
    uint64_t to;
} shmi_redo_entry;
SHMI_ASSERT(offsetof(shmi_redo_entry, at) == 0, "redo_entry.at");
SHMI_ASSERT(offsetof(shmi_redo_entry, to) == 8, "redo_entry.to");
SHMI_ASSERT(sizeof(shmi_redo_entry) == 16, "redo_entry");

/* List of waits */
typedef struct shmi_list_words {
    uint64_t first;
    uint64_t last;
} shmi_list_words;
SHMI_ASSERT(offsetof(shmi_list_words, first) == 0, "list_words.first");
SHMI_ASSERT(offsetof(shmi_list_words, last) == 8, "list_words.last");
SHMI_ASSERT(sizeof(shmi_list_words) == 16, "list_words");

/* Monitor */
typedef struct shmi_monitor_words {
    shmi_mutex_words queueLock;
    uint64_t arrivals;
    uint64_t redone;
    shmi_redo_entry redo[6];
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad0_[4];
    uint64_t accounted;
    uint8_t pad1_[56];
} shmi_monitor_words;
SHMI_ASSERT(offsetof(shmi_monitor_words, queueLock) == 0, "monitor_words.queueLock");
SHMI_ASSERT(offsetof(shmi_monitor_words, arrivals) == 192, "monitor_words.arrivals");
SHMI_ASSERT(offsetof(shmi_monitor_words, redone) == 200, "monitor_words.redone");
SHMI_ASSERT(offsetof(shmi_monitor_words, redo) == 208, "monitor_words.redo");
SHMI_ASSERT(offsetof(shmi_monitor_words, lastCPU) == 304, "monitor_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_monitor_words, spin) == 308, "monitor_words.spin");
SHMI_ASSERT(offsetof(shmi_monitor_words, pays) == 312, "monitor_words.pays");
SHMI_ASSERT(offsetof(shmi_monitor_words, accounted) == 320, "monitor_words.accounted");
SHMI_ASSERT(sizeof(shmi_monitor_words) == 384, "monitor_words");

/* Semaphore */
typedef struct shmi_semaphore_words {
    shmi_monitor_words mon;
    uint64_t size;
    uint64_t free;
    shmi_list_words queue;
    uint64_t opened;
    uint64_t last;
    uint8_t pad0_[80];
} shmi_semaphore_words;
SHMI_ASSERT(offsetof(shmi_semaphore_words, mon) == 0, "semaphore_words.mon");
SHMI_ASSERT(offsetof(shmi_semaphore_words, size) == 384, "semaphore_words.size");
SHMI_ASSERT(offsetof(shmi_semaphore_words, free) == 392, "semaphore_words.free");
SHMI_ASSERT(offsetof(shmi_semaphore_words, queue) == 400, "semaphore_words.queue");
SHMI_ASSERT(offsetof(shmi_semaphore_words, opened) == 416, "semaphore_words.opened");
SHMI_ASSERT(offsetof(shmi_semaphore_words, last) == 424, "semaphore_words.last");
SHMI_ASSERT(sizeof(shmi_semaphore_words) == 512, "semaphore_words");

/* Share of a semaphore */
typedef struct shmi_semaphore_share {
    uint64_t name;
    uint64_t permits;
    uint64_t fast;
    uint8_t pad0_[40];
} shmi_semaphore_share;
SHMI_ASSERT(offsetof(shmi_semaphore_share, name) == 0, "semaphore_share.name");
SHMI_ASSERT(offsetof(shmi_semaphore_share, permits) == 8, "semaphore_share.permits");
SHMI_ASSERT(offsetof(shmi_semaphore_share, fast) == 16, "semaphore_share.fast");
SHMI_ASSERT(sizeof(shmi_semaphore_share) == 64, "semaphore_share");

/* Sequencer */
typedef struct shmi_sequence_words {
    shmi_monitor_words mon;
    uint64_t root;
    uint64_t doomed;
    uint64_t canceled;
    uint8_t pad0_[104];
    uint64_t value;
    uint8_t pad1_[120];
    uint64_t next;
    uint32_t stopped;
    uint8_t pad2_[116];
} shmi_sequence_words;
SHMI_ASSERT(offsetof(shmi_sequence_words, mon) == 0, "sequence_words.mon");
SHMI_ASSERT(offsetof(shmi_sequence_words, root) == 384, "sequence_words.root");
SHMI_ASSERT(offsetof(shmi_sequence_words, doomed) == 392, "sequence_words.doomed");
SHMI_ASSERT(offsetof(shmi_sequence_words, canceled) == 400, "sequence_words.canceled");
SHMI_ASSERT(offsetof(shmi_sequence_words, value) == 512, "sequence_words.value");
SHMI_ASSERT(offsetof(shmi_sequence_words, next) == 640, "sequence_words.next");
SHMI_ASSERT(offsetof(shmi_sequence_words, stopped) == 648, "sequence_words.stopped");
SHMI_ASSERT(sizeof(shmi_sequence_words) == 768, "sequence_words");

/* Event */
typedef struct shmi_event_words {
    shmi_sequence_words sequence;
    uint32_t mode;
    uint8_t pad0_[4];
    uint64_t spare;
    shmi_list_words queue;
    uint8_t pad1_[96];
} shmi_event_words;
SHMI_ASSERT(offsetof(shmi_event_words, sequence) == 0, "event_words.sequence");
SHMI_ASSERT(offsetof(shmi_event_words, mode) == 768, "event_words.mode");
SHMI_ASSERT(offsetof(shmi_event_words, spare) == 776, "event_words.spare");
SHMI_ASSERT(offsetof(shmi_event_words, queue) == 784, "event_words.queue");
SHMI_ASSERT(sizeof(shmi_event_words) == 896, "event_words");

/* Queue */
typedef struct shmi_queue_words {
    shmi_monitor_words mon;
    uint64_t capacity;
    uint64_t item;
    uint64_t sequence;
    uint64_t ends;
    uint64_t free;
    uint64_t out;
    uint64_t stopped;
    shmi_list_words getters;
    shmi_list_words putters;
    uint8_t pad0_[40];
} shmi_queue_words;
SHMI_ASSERT(offsetof(shmi_queue_words, mon) == 0, "queue_words.mon");
SHMI_ASSERT(offsetof(shmi_queue_words, capacity) == 384, "queue_words.capacity");
SHMI_ASSERT(offsetof(shmi_queue_words, item) == 392, "queue_words.item");
SHMI_ASSERT(offsetof(shmi_queue_words, sequence) == 400, "queue_words.sequence");
SHMI_ASSERT(offsetof(shmi_queue_words, ends) == 408, "queue_words.ends");
SHMI_ASSERT(offsetof(shmi_queue_words, free) == 416, "queue_words.free");
SHMI_ASSERT(offsetof(shmi_queue_words, out) == 424, "queue_words.out");
SHMI_ASSERT(offsetof(shmi_queue_words, stopped) == 432, "queue_words.stopped");
SHMI_ASSERT(offsetof(shmi_queue_words, getters) == 440, "queue_words.getters");
SHMI_ASSERT(offsetof(shmi_queue_words, putters) == 456, "queue_words.putters");
SHMI_ASSERT(sizeof(shmi_queue_words) == 512, "queue_words");

/* Cond */
typedef struct shmi_cond_words {
    shmi_monitor_words mon;
    uint64_t upTo;
    uint64_t flying;
    uint64_t landed;
    uint64_t batch;
    shmi_list_words waiting;
    shmi_list_words covered;
    shmi_list_words woken;
    uint8_t pad0_[48];
} shmi_cond_words;
SHMI_ASSERT(offsetof(shmi_cond_words, mon) == 0, "cond_words.mon");
SHMI_ASSERT(offsetof(shmi_cond_words, upTo) == 384, "cond_words.upTo");
SHMI_ASSERT(offsetof(shmi_cond_words, flying) == 392, "cond_words.flying");
SHMI_ASSERT(offsetof(shmi_cond_words, landed) == 400, "cond_words.landed");
SHMI_ASSERT(offsetof(shmi_cond_words, batch) == 408, "cond_words.batch");
SHMI_ASSERT(offsetof(shmi_cond_words, waiting) == 416, "cond_words.waiting");
SHMI_ASSERT(offsetof(shmi_cond_words, covered) == 432, "cond_words.covered");
SHMI_ASSERT(offsetof(shmi_cond_words, woken) == 448, "cond_words.woken");
SHMI_ASSERT(sizeof(shmi_cond_words) == 512, "cond_words");

/* Future */
typedef struct shmi_future_words {
    shmi_monitor_words mon;
    uint64_t state;
    shmi_list_words queue;
    uint8_t pad0_[104];
} shmi_future_words;
SHMI_ASSERT(offsetof(shmi_future_words, mon) == 0, "future_words.mon");
SHMI_ASSERT(offsetof(shmi_future_words, state) == 384, "future_words.state");
SHMI_ASSERT(offsetof(shmi_future_words, queue) == 392, "future_words.queue");
SHMI_ASSERT(sizeof(shmi_future_words) == 512, "future_words");

/* Synchronized */
typedef struct shmi_synchronized_words {
    shmi_mutex_words lock;
    uint64_t current;
    uint8_t pad0_[56];
} shmi_synchronized_words;
SHMI_ASSERT(offsetof(shmi_synchronized_words, lock) == 0, "synchronized_words.lock");
SHMI_ASSERT(offsetof(shmi_synchronized_words, current) == 192, "synchronized_words.current");
SHMI_ASSERT(sizeof(shmi_synchronized_words) == 256, "synchronized_words");

/* WaitGroup */
typedef struct shmi_counter_words {
    uint64_t commit;
    uint64_t size;
    uint8_t pad0_[48];
    uint64_t tickets;
    uint64_t count;
    uint64_t period;
    uint64_t owed;
    uint64_t dead;
    uint8_t pad1_[24];
    uint64_t events;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad2_[4];
    uint64_t poller;
    uint8_t pad3_[32];
    uint64_t counts[8];
} shmi_counter_words;
SHMI_ASSERT(offsetof(shmi_counter_words, commit) == 0, "counter_words.commit");
SHMI_ASSERT(offsetof(shmi_counter_words, size) == 8, "counter_words.size");
SHMI_ASSERT(offsetof(shmi_counter_words, tickets) == 64, "counter_words.tickets");
SHMI_ASSERT(offsetof(shmi_counter_words, count) == 72, "counter_words.count");
SHMI_ASSERT(offsetof(shmi_counter_words, period) == 80, "counter_words.period");
SHMI_ASSERT(offsetof(shmi_counter_words, owed) == 88, "counter_words.owed");
SHMI_ASSERT(offsetof(shmi_counter_words, dead) == 96, "counter_words.dead");
SHMI_ASSERT(offsetof(shmi_counter_words, events) == 128, "counter_words.events");
SHMI_ASSERT(offsetof(shmi_counter_words, lastCPU) == 136, "counter_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_counter_words, spin) == 140, "counter_words.spin");
SHMI_ASSERT(offsetof(shmi_counter_words, pays) == 144, "counter_words.pays");
SHMI_ASSERT(offsetof(shmi_counter_words, poller) == 152, "counter_words.poller");
SHMI_ASSERT(offsetof(shmi_counter_words, counts) == 192, "counter_words.counts");
SHMI_ASSERT(sizeof(shmi_counter_words) == 256, "counter_words");

/* Slot of a WaitGroup or a Latch */
typedef struct shmi_counter_slot {
    uint64_t name;
    uint64_t period;
    uint64_t own;
    uint64_t claimed;
    uint64_t head;
    uint64_t entries[7];
} shmi_counter_slot;
SHMI_ASSERT(offsetof(shmi_counter_slot, name) == 0, "counter_slot.name");
SHMI_ASSERT(offsetof(shmi_counter_slot, period) == 8, "counter_slot.period");
SHMI_ASSERT(offsetof(shmi_counter_slot, own) == 16, "counter_slot.own");
SHMI_ASSERT(offsetof(shmi_counter_slot, claimed) == 24, "counter_slot.claimed");
SHMI_ASSERT(offsetof(shmi_counter_slot, head) == 32, "counter_slot.head");
SHMI_ASSERT(offsetof(shmi_counter_slot, entries) == 40, "counter_slot.entries");
SHMI_ASSERT(sizeof(shmi_counter_slot) == 96, "counter_slot");

/* Barrier */
typedef struct shmi_barrier_words {
    shmi_monitor_words mon;
    uint64_t size;
    uint64_t expected;
    uint64_t pending;
    uint64_t phase;
    uint64_t completer;
    uint64_t broken;
    uint64_t dead;
    uint64_t lost;
    shmi_list_words queue;
    uint8_t pad0_[48];
    uint64_t gone[8];
    uint64_t breaks[64];
} shmi_barrier_words;
SHMI_ASSERT(offsetof(shmi_barrier_words, mon) == 0, "barrier_words.mon");
SHMI_ASSERT(offsetof(shmi_barrier_words, size) == 384, "barrier_words.size");
SHMI_ASSERT(offsetof(shmi_barrier_words, expected) == 392, "barrier_words.expected");
SHMI_ASSERT(offsetof(shmi_barrier_words, pending) == 400, "barrier_words.pending");
SHMI_ASSERT(offsetof(shmi_barrier_words, phase) == 408, "barrier_words.phase");
SHMI_ASSERT(offsetof(shmi_barrier_words, completer) == 416, "barrier_words.completer");
SHMI_ASSERT(offsetof(shmi_barrier_words, broken) == 424, "barrier_words.broken");
SHMI_ASSERT(offsetof(shmi_barrier_words, dead) == 432, "barrier_words.dead");
SHMI_ASSERT(offsetof(shmi_barrier_words, lost) == 440, "barrier_words.lost");
SHMI_ASSERT(offsetof(shmi_barrier_words, queue) == 448, "barrier_words.queue");
SHMI_ASSERT(offsetof(shmi_barrier_words, gone) == 512, "barrier_words.gone");
SHMI_ASSERT(offsetof(shmi_barrier_words, breaks) == 576, "barrier_words.breaks");
SHMI_ASSERT(sizeof(shmi_barrier_words) == 1088, "barrier_words");

/* Share of a Barrier */
typedef struct shmi_barrier_share {
    uint64_t name;
    uint64_t phase;
    uint64_t parties;
    uint64_t left;
} shmi_barrier_share;
SHMI_ASSERT(offsetof(shmi_barrier_share, name) == 0, "barrier_share.name");
SHMI_ASSERT(offsetof(shmi_barrier_share, phase) == 8, "barrier_share.phase");
SHMI_ASSERT(offsetof(shmi_barrier_share, parties) == 16, "barrier_share.parties");
SHMI_ASSERT(offsetof(shmi_barrier_share, left) == 24, "barrier_share.left");
SHMI_ASSERT(sizeof(shmi_barrier_share) == 32, "barrier_share");

/* Once */
typedef struct shmi_once_words {
    uint64_t state;
    uint32_t lastCPU;
    uint32_t spin;
    uint32_t pays;
    uint8_t pad0_[4];
    uint64_t poller;
    uint8_t pad1_[32];
    uint64_t counts[8];
} shmi_once_words;
SHMI_ASSERT(offsetof(shmi_once_words, state) == 0, "once_words.state");
SHMI_ASSERT(offsetof(shmi_once_words, lastCPU) == 8, "once_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_once_words, spin) == 12, "once_words.spin");
SHMI_ASSERT(offsetof(shmi_once_words, pays) == 16, "once_words.pays");
SHMI_ASSERT(offsetof(shmi_once_words, poller) == 24, "once_words.poller");
SHMI_ASSERT(offsetof(shmi_once_words, counts) == 64, "once_words.counts");
SHMI_ASSERT(sizeof(shmi_once_words) == 128, "once_words");

/* FairMutex */
typedef struct shmi_fairmutex_words {
    shmi_monitor_words mon;
    uint64_t owner;
    uint32_t policy;
    uint32_t died;
    shmi_list_words queue;
    uint8_t pad0_[96];
} shmi_fairmutex_words;
SHMI_ASSERT(offsetof(shmi_fairmutex_words, mon) == 0, "fairmutex_words.mon");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, owner) == 384, "fairmutex_words.owner");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, policy) == 392, "fairmutex_words.policy");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, died) == 396, "fairmutex_words.died");
SHMI_ASSERT(offsetof(shmi_fairmutex_words, queue) == 400, "fairmutex_words.queue");
SHMI_ASSERT(sizeof(shmi_fairmutex_words) == 512, "fairmutex_words");

/* MultiLock */
typedef struct shmi_multilock_head {
    uint32_t policy;
    uint32_t buckets;
    uint8_t pad0_[120];
} shmi_multilock_head;
SHMI_ASSERT(offsetof(shmi_multilock_head, policy) == 0, "multilock_head.policy");
SHMI_ASSERT(offsetof(shmi_multilock_head, buckets) == 4, "multilock_head.buckets");
SHMI_ASSERT(sizeof(shmi_multilock_head) == 128, "multilock_head");

/* Bucket of keys */
typedef struct shmi_multilock_bucket {
    shmi_monitor_words mon;
    uint64_t spilled;
    uint64_t entries[15];
} shmi_multilock_bucket;
SHMI_ASSERT(offsetof(shmi_multilock_bucket, mon) == 0, "multilock_bucket.mon");
SHMI_ASSERT(offsetof(shmi_multilock_bucket, spilled) == 384, "multilock_bucket.spilled");
SHMI_ASSERT(offsetof(shmi_multilock_bucket, entries) == 392, "multilock_bucket.entries");
SHMI_ASSERT(sizeof(shmi_multilock_bucket) == 512, "multilock_bucket");

/* RWMutex */
typedef struct shmi_rwmutex_words {
    shmi_mutex_words writers;
    uint8_t pad0_[64];
    uint32_t gate;
    uint32_t high;
    uint32_t policy;
    uint8_t pad1_[116];
    uint32_t wakeReaders;
    uint32_t wakeWriter;
    uint32_t died;
    uint32_t lastCPU;
    uint32_t pays;
    uint32_t paysWriter;
    uint64_t pollerReaders;
    uint64_t pollerWriter;
    uint8_t pad2_[88];
} shmi_rwmutex_words;
SHMI_ASSERT(offsetof(shmi_rwmutex_words, writers) == 0, "rwmutex_words.writers");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, gate) == 256, "rwmutex_words.gate");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, high) == 260, "rwmutex_words.high");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, policy) == 264, "rwmutex_words.policy");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, wakeReaders) == 384, "rwmutex_words.wakeReaders");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, wakeWriter) == 388, "rwmutex_words.wakeWriter");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, died) == 392, "rwmutex_words.died");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, lastCPU) == 396, "rwmutex_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pays) == 400, "rwmutex_words.pays");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, paysWriter) == 404, "rwmutex_words.paysWriter");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pollerReaders) == 408, "rwmutex_words.pollerReaders");
SHMI_ASSERT(offsetof(shmi_rwmutex_words, pollerWriter) == 416, "rwmutex_words.pollerWriter");
SHMI_ASSERT(sizeof(shmi_rwmutex_words) == 512, "rwmutex_words");

/* Line of a slot */
typedef struct shmi_rwmutex_line {
    uint64_t state;
    uint8_t pad0_[120];
} shmi_rwmutex_line;
SHMI_ASSERT(offsetof(shmi_rwmutex_line, state) == 0, "rwmutex_line.state");
SHMI_ASSERT(sizeof(shmi_rwmutex_line) == 128, "rwmutex_line");

/* SpinLock */
typedef struct shmi_spin_words {
    uint32_t state;
    uint32_t drain;
    uint32_t top;
    uint8_t pad0_[52];
    uint32_t wake;
    uint32_t gate;
    uint32_t policy;
    uint32_t died;
    uint32_t spin;
    uint32_t lastCPU;
    uint32_t pays;
    uint8_t pad1_[4];
    uint64_t poller;
    uint64_t gatePoller;
    uint64_t drainPoller;
    uint8_t pad2_[8];
} shmi_spin_words;
SHMI_ASSERT(offsetof(shmi_spin_words, state) == 0, "spin_words.state");
SHMI_ASSERT(offsetof(shmi_spin_words, drain) == 4, "spin_words.drain");
SHMI_ASSERT(offsetof(shmi_spin_words, top) == 8, "spin_words.top");
SHMI_ASSERT(offsetof(shmi_spin_words, wake) == 64, "spin_words.wake");
SHMI_ASSERT(offsetof(shmi_spin_words, gate) == 68, "spin_words.gate");
SHMI_ASSERT(offsetof(shmi_spin_words, policy) == 72, "spin_words.policy");
SHMI_ASSERT(offsetof(shmi_spin_words, died) == 76, "spin_words.died");
SHMI_ASSERT(offsetof(shmi_spin_words, spin) == 80, "spin_words.spin");
SHMI_ASSERT(offsetof(shmi_spin_words, lastCPU) == 84, "spin_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_spin_words, pays) == 88, "spin_words.pays");
SHMI_ASSERT(offsetof(shmi_spin_words, poller) == 96, "spin_words.poller");
SHMI_ASSERT(offsetof(shmi_spin_words, gatePoller) == 104, "spin_words.gatePoller");
SHMI_ASSERT(offsetof(shmi_spin_words, drainPoller) == 112, "spin_words.drainPoller");
SHMI_ASSERT(sizeof(shmi_spin_words) == 128, "spin_words");

/* SignalWaker */
typedef struct shmi_signal_words {
    uint32_t config;
    uint32_t rows;
    uint8_t pad0_[120];
    uint64_t summary;
    uint8_t pad1_[120];
    uint64_t permits;
    uint8_t pad2_[120];
    uint32_t wake;
    uint32_t lastCPU;
    uint32_t pays;
    uint32_t spin;
    uint64_t poller;
    uint8_t pad3_[104];
    uint64_t status;
    uint8_t pad4_[120];
    uint64_t partition;
    uint8_t pad5_[120];
} shmi_signal_words;
SHMI_ASSERT(offsetof(shmi_signal_words, config) == 0, "signal_words.config");
SHMI_ASSERT(offsetof(shmi_signal_words, rows) == 4, "signal_words.rows");
SHMI_ASSERT(offsetof(shmi_signal_words, summary) == 128, "signal_words.summary");
SHMI_ASSERT(offsetof(shmi_signal_words, permits) == 256, "signal_words.permits");
SHMI_ASSERT(offsetof(shmi_signal_words, wake) == 384, "signal_words.wake");
SHMI_ASSERT(offsetof(shmi_signal_words, lastCPU) == 388, "signal_words.lastCPU");
SHMI_ASSERT(offsetof(shmi_signal_words, pays) == 392, "signal_words.pays");
SHMI_ASSERT(offsetof(shmi_signal_words, spin) == 396, "signal_words.spin");
SHMI_ASSERT(offsetof(shmi_signal_words, poller) == 400, "signal_words.poller");
SHMI_ASSERT(offsetof(shmi_signal_words, status) == 512, "signal_words.status");
SHMI_ASSERT(offsetof(shmi_signal_words, partition) == 640, "signal_words.partition");
SHMI_ASSERT(sizeof(shmi_signal_words) == 768, "signal_words");

/* Signal line */
typedef struct shmi_signal_line {
    uint64_t bits;
    uint8_t pad0_[56];
    uint64_t tasks;
    uint8_t pad1_[56];
} shmi_signal_line;
SHMI_ASSERT(offsetof(shmi_signal_line, bits) == 0, "signal_line.bits");
SHMI_ASSERT(offsetof(shmi_signal_line, tasks) == 64, "signal_line.tasks");
SHMI_ASSERT(sizeof(shmi_signal_line) == 128, "signal_line");

/* Gate */
typedef struct shmi_signal_gate {
    uint64_t word;
    uint32_t task;
    uint8_t pad0_[116];
} shmi_signal_gate;
SHMI_ASSERT(offsetof(shmi_signal_gate, word) == 0, "signal_gate.word");
SHMI_ASSERT(offsetof(shmi_signal_gate, task) == 8, "signal_gate.task");
SHMI_ASSERT(sizeof(shmi_signal_gate) == 128, "signal_gate");

/* Participant row */
typedef struct shmi_signal_row {
    uint64_t count;
    uint8_t pad0_[120];
    uint64_t stats[14];
    uint8_t pad1_[16];
} shmi_signal_row;
SHMI_ASSERT(offsetof(shmi_signal_row, count) == 0, "signal_row.count");
SHMI_ASSERT(offsetof(shmi_signal_row, stats) == 128, "signal_row.stats");
SHMI_ASSERT(sizeof(shmi_signal_row) == 256, "signal_row");
/* ---- Failures in words ---- */

typedef struct shmi_failure {
    char text[512];  /* unless brief */
    int err;         /* of the call that the thread is in, or of its last failure; 0: the call has noted none */
    int brief;       /* the text has yet to be made, of err and these */
    char op[64];
    char object[64];
    int who_known;
    shmsync_participant who;
} shmi_failure;

static SHMI_THREAD shmi_failure shmi_last;

/* shmi_fail notes what failed and gives err. object may be NULL. */
__attribute__((format(printf, 4, 5), unused, noinline, cold)) static int shmi_fail(int err, const char *op, const char *object, const char *format, ...)
{
    int n = snprintf(shmi_last.text, sizeof shmi_last.text, "shmsync: %s%s%s%s: %s%s", op, object != NULL ? " \"" : "",
                     object != NULL ? object : "", object != NULL ? "\"" : "", shmsync_strerror(err), *format != 0 ? ": " : "");
    shmi_last.err = err;
    shmi_last.brief = 0;
    shmi_last.who_known = 0;
    if (n > 0 && (size_t)n < sizeof shmi_last.text) {
        va_list args;
        va_start(args, format);
        vsnprintf(shmi_last.text + n, sizeof shmi_last.text - (size_t)n, format, args);
        va_end(args);
    }
    return err;
}

SHMI_FN void shmi_note_word(char *to, size_t cap, const char *from)
{
    size_t n = from != NULL ? strnlen(from, cap - 1) : 0;
    memcpy(to, from != NULL ? from : "", n);
    to[n] = 0;
}
/* shmi_fail for a result that is no news, such as ETIMEDOUT: the text is made when somebody asks for it. */
SHMI_FN int shmi_brief(int err, const char *op, const char *object)
{
    shmi_last.err = err;
    shmi_last.brief = 1;
    shmi_last.who_known = 0;
    shmi_note_word(shmi_last.op, sizeof shmi_last.op, op);
    shmi_note_word(shmi_last.object, sizeof shmi_last.object, object);
    return err;
}
/* Notes that no failure is known, for calls that look whether one is. */
SHMI_FN void shmi_no_failure(void)
{
    shmi_last.text[0] = 0;
    shmi_last.err = shmi_last.brief = shmi_last.who_known = 0;
}

/* Notes the failure of a function of the user's that noted none. */
SHMI_COLD int shmi_note_result(int err, const char *function)
{
    char *p;
    if (shmi_last.err == err)
        return err;
    shmi_brief(err, strncmp(function, "shmsync_", 8) == 0 ? function + 8 : function, NULL);
    p = strchr(shmi_last.op, '_');
    if (p != NULL)
        *p = '.';
    return err;
}
SHMI_FN int shmi_result(int err, const char *function) { return SHMI_LIKELY(err == 0) ? 0 : shmi_note_result(err, function); }
/* A function of the user's begins, and gives its result: shmsync_error is about this call if it fails. */
#define SHMI_BEGIN() (shmi_last.err = 0)
#define SHMI_TELL(err) shmi_result((err), __func__)

#define SHMI_TEXT(x) #x
#define SHMI_VERSION(major, minor, patch) SHMI_TEXT(major) "." SHMI_TEXT(minor) "." SHMI_TEXT(patch)
SHMI_ASSERT(SHMSYNC_VERSION == 0 * 10000 + 1 * 100 + 0, "the two versions");
const char *shmsync_version(void) { return SHMI_VERSION(0, 1, 0); }

const char *shmsync_error(void)
{
    if (shmi_last.brief) {
        char op[sizeof shmi_last.op], object[sizeof shmi_last.object];
        memcpy(op, shmi_last.op, sizeof op);
        memcpy(object, shmi_last.object, sizeof object);
        shmi_fail(shmi_last.err, op, object[0] != 0 ? object : NULL, "%s", "");
    }
    return shmi_last.text;
}

int shmsync_who_died(shmsync_participant *out)
{
    if (!shmi_last.who_known)
        return ENOENT;
    *out = shmi_last.who;
    return 0;
}

const char *shmsync_strerror(int err)
{
    switch (err) {
    case 0: return "no error";
    case EOWNERDEAD: return "owner died, and the caller does not hold it";
    case ENOTRECOVERABLE: return "state not recoverable";
    case ETIMEDOUT: return "timed out";
    case ECANCELED: return "canceled";
    case EBUSY: return "busy";
    case EPERM: return "not held by this process, or not permitted";
    case EPROTO: return "shared memory is corrupt";
    case EPROTONOSUPPORT: return "layout version not supported";
    case EINVAL: return "incompatible or invalid";
    case EBADF: return "closed";
    case ENOTCONN: return "this process has not attached to the arena (a child of fork opens it itself)";
    case ENOSPC: return "no space";
    case ENOTSUP: return "not supported";
    case ENOENT: return "not found";
    case ENOMEM: return "out of memory";
    case EEXIST: return "exists";
    case EAGAIN: return "try again";
    case EDEADLK: return "would wait for itself";
    case EACCES: return "permission denied";
    }
    return "system error";
}

/* ---- An arena, as this process has it ---- */

/* The validated copy of the immutable part of the header. Nothing of it is read from
 * shared memory again. */
typedef struct shmi_geometry {
    uint64_t size, slots_off, death_record_off, dir_off, dir_count, chunks_off, blocks_off, heap_off, chunk_count;
    uint32_t slots;
} shmi_geometry;

/* What a fork wipes: a child finds no name, and every fast path looks here first. */
typedef struct shmi_me {
    shmi_participant_id name;
} shmi_me;

/* An object: an immutable header and a body that belongs to its kind. */
typedef struct shmi_object {
    shmi_off off;  /* of the header; what _offset functions hand out */
    shmi_off body; /* a multiple of 64 */
    uint64_t size; /* of the body */
    uint64_t layout;
    uint32_t kind;
    uint16_t version;
    uint16_t name_len;
    char name[SHMI_maxObjectName + 1];
} shmi_object;

/* A block or span that has been located. */
typedef struct shmi_block {
    shmi_off off;
    uint64_t size, chunk, index;
    int class_; /* or SHMI_classSpan */
    uint32_t *word;
} shmi_block;

/* An object's header, read once and validated. */
typedef struct shmi_header {
    shmi_object o;
    shmi_block block;
    uint64_t hash;
    shmi_off open_bits;
    uint32_t *state;
} shmi_header;

/* An object that this process has open, and the handle that all its opens share. */
typedef struct shmi_ref {
    struct shmi_ref *next;
    shmi_header h;
    unsigned count; /* opens that have not been closed */
    int kept;       /* the bit was set before: a dead participant of this slot had it open; see shmi_forget */
    void *handle;   /* guarded by: shmsync_arena.handles_of */
    unsigned opens; /* of the handle; guarded by: the same */
    void (*end)(void *handle); /* what ends it if the arena is closed before; NULL: free. guarded by: the same */
} shmi_ref;

typedef struct shmi_reap_progress {
    uint32_t of;     /* state of the slot; 0: none */
    uint64_t window; /* of the slot: in another one, another participant can be so */
    int unknown;     /* objects whose kind this header does not know */
    int unfinished;  /* a transaction of the dead one is still in an undo log */
    int64_t reaped; /* when repairs and wakes were done; 0 before */
    int64_t handed;  /* when they were done again for one that is gone; 0 before */
    int64_t written; /* when the death record was; 0 before */
    int reclaimed;     /* its memory went back */
    uint32_t dying;  /* state of a slot whose process has no fence and has not ended yet */
    int64_t seen;    /* when that was seen first */
} shmi_reap_progress;

typedef struct shmi_wait_node {
    struct shmi_wait_node *next;
    shmi_node *node;
    shmi_off off;
    int64_t since; /* of its wait, CLOCK_MONOTONIC ns; 0 before the first sleep */
} shmi_wait_node;

/* The last death of a slot that was told: the generation of the dead, and the number of the record. */
typedef struct shmi_told {
    uint32_t generation;
    uint64_t number;
} shmi_told;

/* What the helper thread has to try again. */
typedef struct shmi_chore {
    struct shmi_chore *next;
    int (*f)(void *);
    void *arg;
} shmi_chore;

typedef struct shmi_notice {
    uint32_t generation;
    uint64_t window;
    int64_t when;
    uint32_t asked; /* the state in which the byte lock was asked for */
    /* guarded by: shmsync_arena.endings: when this process first met the death of generation
     * ending_of, when it last looked at the threads, and whether they have given up their memory */
    uint32_t ending_of;
    uint64_t ending_window;
    int64_t began, looked;
    int detached;
} shmi_notice;

/* No offset of an object: a guard of walks that says only that wakes may be owed to anybody. */
#define SHMI_WALK_OWED 1

/* What lies where the file of a closed arena was: memory of this process alone, or nothing. */
enum { SHMI_RETIRED_HERE = 1, SHMI_RETIRED_GONE = 2 };

struct shmsync_arena {
    struct shmsync_arena *next; /* guarded by: shmi_attached_lock */
    unsigned opens;             /* guarded by: shmi_attached_lock */
    int in_hook;                /* hook_thread runs on_first; guarded by: shmi_attached_lock */
    pthread_t hook_thread;      /* guarded by: shmi_attached_lock */
    int stage;                  /* SHMI_opening, SHMI_attached, SHMI_closing; guarded by: shmi_attached_lock */
    shmi_me *me;
    unsigned char *base;
    uint64_t size;
    shmi_geometry geo;
    char label[256]; /* the file, for messages */
    char *path;      /* the file; without a slash if it has no name */
    int ephemeral;   /* the last close removes the file. Guarded by: shmi_attached_lock */
    int fd;
    int lock_fd; /* its byte lock says that we are alive; -1 where there is none. Written under shmi_attached_lock */
    void *pin;   /* keeps the byte lock if the descriptor is closed by mistake; see shmi_pin_lock */
    size_t pin_size;
    uint64_t dev, ino;
    long page;

    shmi_participant_id self; /* never changes; a child of fork has it too, unlike me->name */
    uint32_t my_slot;
    uint32_t caps;
    int fenced;  /* this process is a target of fences. Atomic. */
    int closing; /* set once; then calls that wait end */
    int retired; /* it was closed: SHMI_RETIRED_HERE, or SHMI_RETIRED_GONE. Atomic. */
    uint32_t calls; /* threads in a call that may sleep */
    uint32_t acting; /* act words in use, a bit each; only this process knows them: a peer's bytes must not make it wait */

    pthread_t watcher;
    int watching;        /* the watcher runs */
    int join_result;     /* of the watcher: -1 while it is not known; guarded by: start_lock */
    pthread_mutex_t start_lock;
    pthread_cond_t start_cond;
    char start_text[256]; /* why it did not become live */
    unsigned char *robust; /* a page with the robust list */
    void *robust_before;   /* the list that the helper thread had before */

    uint64_t heap_next[SHMI_classes], heap_look[SHMI_classes], heap_top; /* hints, atomic */
    uint64_t passed, lower_after; /* guarded by: handles; see shmi_lower_reach_if_due */
    uint64_t work; /* atomic; the block words and directory entries that walks have looked at: tests bound it */

    pthread_mutex_t handles; /* serialises lookups, since this process has one guard */
    pthread_mutex_t walking; /* held by a walk, with its own guard */
    shmi_off rest;           /* guarded by: walking; its guard while no walk is under way */
    shmi_ref **refs;         /* guarded by: handles; 1 << refs_log lists, by offset; NULL: none yet */
    uint32_t refs_log, n_refs;
    uint64_t refs_passed;    /* guarded by: handles; the references that lookups have passed: a test bounds it */
    shmi_off *deferred;      /* guarded by: handles; blocks freeing by us that a peer guarded */
    size_t n_deferred, cap_deferred;
    pthread_mutex_t handles_of; /* guards the handles in refs; taken before handles */

    pthread_mutex_t reaping;
    shmi_reap_progress *reaps; /* guarded by: reaping; by slot */
    shmi_notice *notices; /* of the watcher; by slot */
    pthread_mutex_t endings;
    /* The identity of this process, immutable after it has a slot. proc_dev is the device of a /proc
     * in which the pid of a slot means what its participant meant; 0 for none. */
    uint64_t pid_ns, proc_dev;
    unsigned char boot[16];
    uint32_t unfinished;  /* a reap has to be gone on with */
    int64_t ask_at;       /* when the watcher asks again whether the dead are gone; 0: nobody is waited for. Atomic. */
    uint32_t leftover[SHMI_MaxSlots / 32 + 1]; /* the slots where, a bit each */
    int64_t *asked;       /* when shmi_dead last asked for the byte of a slot's participant; atomic */

    uint32_t announce_map; /* records in use, a bit each */

    pthread_mutex_t wait_nodes_lock;
    shmi_wait_node *wait_nodes; /* guarded by: wait_nodes_lock; free ones */

    pthread_mutex_t counter_lock; /* held by the thread that writes this process's record of a WaitGroup or Latch */
    pthread_mutex_t chores_lock;
    shmi_chore *chores; /* guarded by: chores_lock */

    pthread_mutex_t death_lock;
    void (*on_detached)(shmsync_arena *a, void *arg); /* atomic; written once */
    void *on_detached_arg;
    int detached_told; /* owner: the helper thread */
    void (*on_death)(const shmsync_participant *, void *); /* guarded by: death_lock */
    void *on_death_arg;
    uint64_t death_record_next; /* guarded by: death_lock */
    shmi_told *told;    /* guarded by: death_lock; by slot */
    uint64_t lost;      /* guarded by: death_lock; death records written over before they were read, that nobody was told of yet */
    uint64_t holes[SHMI_deathRecordDeaths]; /* guarded by: death_lock; death records that were not written when we looked */
    unsigned n_holes;
};

/* What a death may have swallowed of an object's wakes. */
enum {
    SHMI_OWED_ANNOUNCED, /* only participants that have announced themselves can wait for one */
    SHMI_OWED_ONE,       /* a participant has recorded that it sleeps */
    SHMI_OWED_ALL        /* so had the dead */
};

/* What a kind of object tells the reaper. Each function may be called by any number of
 * threads and processes at once, for any bytes: idempotent, trusts nothing, never
 * blocks. NULL: nothing to do. The table is in the last part. */
typedef struct shmi_kind_ops {
    uint32_t kind;
    void (*repair)(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead);
    void (*wake)(shmsync_arena *a, const shmi_object *o, int owed);
    /* Whether the object has an undo log with a transaction of dead, which will be undone. */
    int (*unfinished)(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead);
} shmi_kind_ops;
SHMI_FN const shmi_kind_ops *shmi_kind_of(uint32_t kind); /* NULL: not known */

/* ---- From an offset to an address ---- */

SHMI_FN int shmi_within(const shmsync_arena *a, shmi_off off, uint64_t n, uint64_t align)
{
    return off <= a->size && n <= a->size - off && (off & (align - 1)) == 0;
}

/* n bytes at an offset that has been validated; a mistake is a bug here. */
SHMI_FN void *shmi_ptr(const shmsync_arena *a, shmi_off off, uint64_t n, uint64_t align)
{
    if (SHMI_UNLIKELY(!shmi_within(a, off, n, align)))
        shmi_abort("an offset out of the arena");
    return a->base + off;
}
SHMI_FN uint32_t *shmi_u32(const shmsync_arena *a, shmi_off off) { return (uint32_t *)shmi_ptr(a, off, 4, 4); }
SHMI_FN uint64_t *shmi_u64(const shmsync_arena *a, shmi_off off) { return (uint64_t *)shmi_ptr(a, off, 8, 8); }
SHMI_FN unsigned char *shmi_bytes(const shmsync_arena *a, shmi_off off, uint64_t n) { return (unsigned char *)shmi_ptr(a, off, n, 1); }

/* The offset of an address in the arena. */
SHMI_FN shmi_off shmi_off_of(const shmsync_arena *a, const void *p) { return (shmi_off)((const unsigned char *)p - a->base); }

/* ---- Names and slots ---- */

SHMI_FN uint32_t shmi_id_slot(shmi_participant_id n) { return n & SHMI_MaxSlots; }
SHMI_FN uint32_t shmi_id_gen(shmi_participant_id n) { return n >> 11 & SHMI_maxGeneration; }
SHMI_FN shmi_participant_id shmi_make_participant_id(uint32_t slot, uint32_t gen) { return slot | gen << 11; }
SHMI_FN int shmi_id_valid(shmi_participant_id n) { return shmi_id_slot(n) != 0 && shmi_id_gen(n) != 0; }
/* The reaper of n cleans up after o, too: the same slot, n's or an earlier generation. */
SHMI_FN int shmi_covers(shmi_participant_id n, shmi_participant_id o)
{
    return o != 0 && shmi_id_slot(o) == shmi_id_slot(n) && shmi_id_gen(o) <= shmi_id_gen(n);
}

SHMI_FN uint32_t shmi_slot_phase(uint32_t w) { return w & 7; }
SHMI_FN uint32_t shmi_slot_gen(uint32_t w) { return w >> 3 & SHMI_maxGeneration; }
SHMI_FN uint32_t shmi_slot_word(uint32_t phase, uint32_t gen) { return phase | gen << 3; }
SHMI_FN uint32_t shmi_slot_with(uint32_t w, uint32_t phase) { return shmi_slot_word(phase, shmi_slot_gen(w)); }
SHMI_FN int shmi_slot_present(uint32_t w)
{
    uint32_t p = shmi_slot_phase(w);
    return p == SHMI_phaseJoining || p == SHMI_phaseLive || p == SHMI_phaseLeaving;
}
SHMI_FN int shmi_slot_taken(uint32_t w) { return shmi_slot_present(w) || shmi_slot_phase(w) == SHMI_phaseDead; }
SHMI_FN shmi_participant_id shmi_id_in(uint32_t slot, uint32_t w) { return shmi_make_participant_id(slot, shmi_slot_gen(w)); }

/* The record of a slot, counted from 1. */
SHMI_FN shmi_off shmi_slot(const shmsync_arena *a, uint32_t i)
{
    if (SHMI_UNLIKELY(i < 1 || i > a->geo.slots))
        shmi_abort("a slot that is none");
    return a->geo.slots_off + (uint64_t)(i - 1) * SHMI_slotStride;
}
SHMI_FN uint32_t *shmi_slot32(const shmsync_arena *a, uint32_t i, unsigned field) { return shmi_u32(a, shmi_slot(a, i) + field); }
SHMI_FN uint64_t *shmi_slot64(const shmsync_arena *a, uint32_t i, unsigned field) { return shmi_u64(a, shmi_slot(a, i) + field); }
SHMI_FN uint32_t shmi_slot_state(const shmsync_arena *a, uint32_t i) { return shmi_ld32(shmi_slot32(a, i, SHMI_slotState)); }
SHMI_FN int shmi_cas_slot(const shmsync_arena *a, uint32_t i, uint32_t from, uint32_t to)
{
    return shmi_cas32(shmi_slot32(a, i, SHMI_slotState), from, to);
}
SHMI_FN uint32_t shmi_slot_caps(const shmsync_arena *a, uint32_t i) { return shmi_ld32(shmi_slot32(a, i, SHMI_slotCaps)); }
SHMI_FN uint32_t *shmi_alive_word(const shmsync_arena *a, uint32_t i, unsigned word)
{
    return shmi_slot32(a, i, SHMI_slotAlive + word * SHMI_aliveStride);
}

/* Whether n is a participant that has not been reaped. One load. A no means that no
 * thread of n executes an instruction on the arena any more; the kernel may still write
 * for it until shmi_gone. */
SHMI_FN int shmi_current(const shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 0;
    w = shmi_slot_state(a, i);
    return shmi_slot_gen(w) == shmi_id_gen(n) && shmi_slot_present(w);
}

/* This process's name, or 0 in a child of fork. */
SHMI_FN shmi_participant_id shmi_self(const shmsync_arena *a) { return __atomic_load_n(&a->me->name, __ATOMIC_RELAXED); }
/* Why this process has no name: it closed the arena, or it is a child of fork. */
SHMI_FN int shmi_nameless(const shmsync_arena *a) { return __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST) ? EBADF : ENOTCONN; }

/* How many reaps there have been, as a sequence. */
SHMI_FN uint32_t shmi_deaths(const shmsync_arena *a) { return shmi_ld32(shmi_u32(a, SHMI_hdrDeaths)); }

/* What is defined later and called before. */
SHMI_FN int shmi_dead(shmsync_arena *a, shmi_participant_id n);
SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n);
SHMI_FN void shmi_free_nodes_at(shmsync_arena *a, shmi_off object);
SHMI_FN void shmi_reset_node(shmsync_arena *a, shmi_off off);
SHMI_FN int shmi_who(shmsync_arena *a, shmi_participant_id n, shmsync_participant *out);
SHMI_FN void shmi_release_unseen(shmsync_arena *a, const shmi_block *b, uint32_t w);
SHMI_FN void shmi_resolve_delete(shmsync_arena *a, const shmi_block *b, shmi_participant_id dead);
SHMI_FN void shmi_resolve_entries(shmsync_arena *a, shmi_participant_id dead);
SHMI_FN void shmi_flush_deferred(shmsync_arena *a);
SHMI_FN void shmi_release_deferred(shmsync_arena *a);

/* shmi_fail for the death of a participant. */
SHMI_COLD int shmi_fail_who(shmsync_arena *a, int err, const char *op, const char *object, shmi_participant_id who)
{
    shmsync_participant p;
    if (who == 0 || shmi_who(a, who, &p) != 0)
        return shmi_fail(err, op, object, "%s", "");
    shmi_fail(err, op, object, "%s (pid %u, slot %u.%u)", p.label[0] != 0 ? p.label : "process", p.pid, p.slot, p.generation);
    shmi_last.who = p;
    shmi_last.who_known = 1;
    return err;
}

/* ---- Cancellation: a pthread_cancel acts after a call, never inside one. In the middle
 * it would leave locks behind that a living process holds, and nobody takes those back.
 * Code outside of these pairs calls nothing that is a cancellation point. ---- */

static SHMI_THREAD unsigned shmi_cancel_held; /* pairs that the thread is in */
static SHMI_THREAD int shmi_cancel_before;    /* the state that the outermost of them found */

SHMI_FN void shmi_hold_cancel(void)
{
    if (shmi_cancel_held++ == 0)
        pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &shmi_cancel_before);
}
SHMI_FN void shmi_let_cancel(void)
{
    int ours;
    if (--shmi_cancel_held == 0)
        pthread_setcancelstate(shmi_cancel_before, &ours);
}

/* ---- Functions of the user's that a call runs. The caller of one has begun what a return alone ends, so the process
 * does not go on where one is left otherwise. ---- */

typedef struct shmi_outside {
    pid_t in; /* the process that called the function */
    int left; /* until it returns */
} shmi_outside;

SHMI_FN void shmi_come_back(shmi_outside *o)
{
    if (o->left)
        shmi_abort("an exception or pthread_exit left a function that the library had called; it has to return");
    if (getpid() != o->in)
        shmi_abort("a child of fork returned from a function that the library had called in its parent; it has to end there");
}
/* Where the compiler emits no code for exceptions, the cleanup runs after a return alone. */
#define SHMI_OUTSIDE(call)                                                                     \
    do {                                                                                       \
        __attribute__((cleanup(shmi_come_back))) shmi_outside outside_ = {getpid(), 1};        \
        call;                                                                                  \
        outside_.left = 0;                                                                     \
    } while (0)

/* Calls a repair of the user's. */
SHMI_FN int shmi_call_repair(int (*repair)(void *), void *arg)
{
    int failed = 0;
    shmi_hold_cancel();
    SHMI_OUTSIDE(failed = repair(arg));
    shmi_let_cancel();
    return failed;
}

/* The arenas that the thread is in calls of: a function of the user's must not close them. */
enum { SHMI_INSIDE = 4 };
typedef struct shmi_inside {
    const shmsync_arena *a;
    unsigned n;
} shmi_inside;
static SHMI_THREAD shmi_inside shmi_calls_in[SHMI_INSIDE];

SHMI_FN void shmi_count_inside(const shmsync_arena *a, int more)
{
    int i, at = -1;
    for (i = 0; i < SHMI_INSIDE; i++)
        if (shmi_calls_in[i].n != 0 && shmi_calls_in[i].a == a)
            at = i;
    for (i = 0; i < SHMI_INSIDE && at < 0 && more > 0; i++)
        if (shmi_calls_in[i].n == 0)
            at = i;
    if (at < 0)
        return;
    shmi_calls_in[at].a = a;
    shmi_calls_in[at].n += (unsigned)more;
}
SHMI_FN int shmi_is_inside(const shmsync_arena *a)
{
    int i;
    for (i = 0; i < SHMI_INSIDE; i++)
        if (shmi_calls_in[i].n != 0 && shmi_calls_in[i].a == a)
            return 1;
    return 0;
}

/* ---- Signals: a handler may call some objects (docs/c-api.md). If it interrupted a thread
 * that holds the queue lock of the same object, it would wait for the thread that it
 * interrupted. So such a thread has its signals blocked for as long as it holds one. ---- */

static SHMI_THREAD volatile unsigned shmi_signals_held; /* queue locks that the thread holds */
static SHMI_THREAD uint64_t shmi_signals_before;        /* the mask that the outermost of them found */

/* All signals but those that a fault of the thread itself raises, which end a process that
 * blocks them, and the two that the C library needs. */
#define SHMI_SIGNAL_BIT(n) (UINT64_C(1) << ((n)-1))
#define SHMI_SIGNALS                                                                                                        \
    (~(SHMI_SIGNAL_BIT(SIGSEGV) | SHMI_SIGNAL_BIT(SIGBUS) | SHMI_SIGNAL_BIT(SIGFPE) | SHMI_SIGNAL_BIT(SIGILL) |             \
       SHMI_SIGNAL_BIT(SIGTRAP) | SHMI_SIGNAL_BIT(SIGABRT) | SHMI_SIGNAL_BIT(SIGSYS) | SHMI_SIGNAL_BIT(32) | SHMI_SIGNAL_BIT(33)))

SHMI_FN void shmi_block_signals(void)
{
    uint64_t all = SHMI_SIGNALS, before = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &all, &before, sizeof all);
    shmi_signals_before = before; /* no handler of ours runs from here on */
}
SHMI_FN void shmi_unblock_signals(void)
{
    uint64_t before = shmi_signals_before; /* a handler writes the variable, too */
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &before, NULL, sizeof before);
}
SHMI_FN void shmi_hold_signals(void)
{
    if (shmi_signals_held == 0)
        shmi_block_signals();
    shmi_signals_held++;
}
SHMI_FN void shmi_let_signals(void)
{
    if (--shmi_signals_held == 0)
        shmi_unblock_signals();
}
/* A thread that sleeps for a queue lock does not hold it yet, and takes signals meanwhile. */
SHMI_FN unsigned shmi_lend_signals(void)
{
    unsigned held = shmi_signals_held;
    if (held != 0) {
        shmi_signals_held = 0;
        shmi_unblock_signals();
    }
    return held;
}
SHMI_FN void shmi_regain_signals(unsigned held)
{
    if (held != 0) {
        shmi_block_signals();
        shmi_signals_held = held;
    }
}

/* ---- Calls that may sleep ---- */

/* Begins one: 0, ENOTCONN in a child of fork, EBADF when this process leaves. Until
 * shmi_exit the arena stays mapped, and the thread is not canceled. */
SHMI_FN int shmi_enter(shmsync_arena *a, const char *op)
{
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), op, a->label, "%s", "");
    shmi_hold_cancel();
    shmi_add32(&a->calls, 1);
    if (SHMI_UNLIKELY(__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))) {
        shmi_fail(EBADF, op, a->label, "this process closed the arena");
        shmi_add32(&a->calls, (uint32_t)-1); /* the arena may be gone from here on */
        shmi_let_cancel();
        return EBADF;
    }
    shmi_count_inside(a, 1);
    return 0;
}
SHMI_FN void shmi_exit(shmsync_arena *a)
{
    shmi_count_inside(a, -1);
    shmi_add32(&a->calls, (uint32_t)-1);
    shmi_let_cancel();
}


/* ---- What a participant has touched: see internal/arenakernel/touched.go ----
 *
 * slotTouched says in which chunks of the heap the participant may have left something that
 * its death, or its leave, has to take back: bit k stands for the chunks whose number is k
 * modulo SHMI_touchedBits. A bit is set before the first word in such a chunk that names the
 * participant. A reaper examines no other chunk. */

enum { SHMI_slotTouched = 1280, SHMI_touchedWords = 64, SHMI_touchedBits = SHMI_touchedWords * 64 };

SHMI_FN uint64_t *shmi_touched_word(shmsync_arena *a, uint32_t slot, uint64_t bit)
{
    return shmi_slot64(a, slot, SHMI_slotTouched + (uint32_t)(bit / 64 * 8));
}
/* Notes that this participant is about to leave something in a chunk. */
SHMI_FN void shmi_touch(shmsync_arena *a, uint64_t chunk)
{
    uint64_t bit = chunk % SHMI_touchedBits, mask = UINT64_C(1) << bit % 64, *word = shmi_touched_word(a, a->my_slot, bit);
    if ((shmi_ld64(word) & mask) == 0)
        __atomic_fetch_or(word, mask, __ATOMIC_SEQ_CST);
}
/* Moves *chunk on to the next one, from that on, which the participant in a slot may have
 * touched; 0 when there is none. */
SHMI_FN int shmi_next_touched(shmsync_arena *a, uint32_t slot, uint64_t *chunk)
{
    for (; *chunk < a->geo.chunk_count; ++*chunk) {
        uint64_t bit = *chunk % SHMI_touchedBits, w = shmi_ld64(shmi_touched_word(a, slot, bit)) >> bit % 64;
        if ((w & 1) != 0)
            return 1;
        if (w == 0)
            *chunk |= 63;
    }
    return 0;
}
/* Whether the set of a slot is empty. */
SHMI_FN int shmi_touched_nothing(shmsync_arena *a, uint32_t slot)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, slot, bit)) != 0)
            return 0;
    return 1;
}
SHMI_FN void shmi_worked(shmsync_arena *a, uint64_t n) { __atomic_fetch_add(&a->work, n, __ATOMIC_RELAXED); }
/* Clears the set of a slot. The traces of all its participants are removed, and it cannot be taken. */
SHMI_FN void shmi_forget_touched(shmsync_arena *a, uint32_t slot)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, slot, bit)) != 0)
            shmi_st64(shmi_touched_word(a, slot, bit), 0);
}

/* ---- Acts on the dead: see internal/arenakernel/act.go ----
 *
 * A thread that takes a word from a dead participant publishes its ID in an act word of its own
 * slot, reads the word again, and asks once more whether the participant is dead. While an ID is in
 * an act word, no participant gets it, however long the thread is stopped. */

enum { SHMI_slotActs = 1792, SHMI_actWords = 8 };

SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n);

typedef struct shmi_act {
    uint32_t *word; /* NULL: none */
    uint32_t bit;   /* of shmsync_arena.acting */
    sigset_t before;
} shmi_act;

/* Publishes n. Signals wait: a handler that acts could find no act word that is in no use. */
SHMI_FN void shmi_begin_act(shmsync_arena *a, shmi_act *act, shmi_participant_id n)
{
    sigset_t all;
    uint32_t k;
    act->word = NULL;
    if (n == 0 || n == a->self || a->my_slot == 0)
        return; /* it leaves, or it has no slot yet */
    SHMSYNC_CRASHPOINT("arena.act.begun");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &act->before);
    for (;; sched_yield())
        for (k = 0; k < SHMI_actWords; k++) {
            act->bit = UINT32_C(1) << k;
            if ((shmi_or32(&a->acting, act->bit) & act->bit) == 0) {
                act->word = shmi_slot32(a, a->my_slot, SHMI_slotActs + k * 4);
                shmi_st32(act->word, n);
                SHMSYNC_CRASHPOINT("arena.act.published");
                return;
            }
        }
}
SHMI_FN void shmi_end_act(shmsync_arena *a, shmi_act *act)
{
    if (act->word == NULL)
        return;
    shmi_st32(act->word, 0);
    shmi_and32(&a->acting, ~act->bit);
    pthread_sigmask(SIG_SETMASK, &act->before, NULL);
}
/* Clears what the dead participant of this joiner's slot has left. */
SHMI_FN void shmi_forget_acts(shmsync_arena *a)
{
    uint32_t k;
    for (k = 0; k < SHMI_actWords; k++)
        shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotActs + k * 4), 0);
}

/* Whether n, whose ID an act has published, is dead, and gone if that is asked for. */
SHMI_FN int shmi_act_holds(shmsync_arena *a, const shmi_act *act, shmi_participant_id n, int gone)
{
    if (act->word == NULL)
        return 1;
    if (shmi_current(a, n) || (gone && !shmi_gone(a, n)))
        return 0;
    SHMSYNC_CRASHPOINT("arena.act.verified");
    return 1;
}
/* Replaces old, which names n, by to, unless n is current; gone: or not gone yet. Every change of a
 * word whose reason is the death of the participant that it names goes this way, unless a lock that
 * the caller holds keeps the word as it is. */
SHMI_FN int shmi_take_from32(shmsync_arena *a, shmi_participant_id n, uint32_t *word, uint32_t old, uint32_t to, int gone)
{
    shmi_act act;
    int took;
    shmi_begin_act(a, &act, n);
    took = shmi_ld32(word) == old && shmi_act_holds(a, &act, n, gone) && shmi_cas32(word, old, to);
    shmi_end_act(a, &act);
    return took;
}
SHMI_FN int shmi_take_from64(shmsync_arena *a, shmi_participant_id n, uint64_t *word, uint64_t old, uint64_t to, int gone)
{
    shmi_act act;
    int took;
    shmi_begin_act(a, &act, n);
    took = shmi_ld64(word) == old && shmi_act_holds(a, &act, n, gone) && shmi_cas64(word, old, to);
    shmi_end_act(a, &act);
    return took;
}
/* Whether a reap of dead takes back what o has: dead covers o, and no other participant has that ID
 * by now. A process that leaves takes back its own. */
SHMI_FN int shmi_reaps(shmsync_arena *a, shmi_participant_id dead, shmi_participant_id o)
{
    return shmi_covers(dead, o) && (o == a->self || !shmi_current(a, o));
}
/* ---- Heap: chunk words and block words are the truth, and there is no other ---- */

enum { SHMI_nearChunks = 16, SHMI_claimTries = 64, SHMI_timeout = 64 };

SHMI_FN uint32_t shmi_chunk_kind(uint64_t w) { return (uint32_t)(w & 7); }
SHMI_FN int shmi_chunk_reserved(uint64_t w) { return (w & SHMI_CHUNK_RESERVED) != 0; }
SHMI_FN uint64_t shmi_chunk_number(uint64_t w) { return w >> 4 & 0x7fffffff; }
SHMI_FN shmi_participant_id shmi_chunk_name(uint64_t w) { return (shmi_participant_id)(w >> 35); }
SHMI_FN uint64_t shmi_make_chunk(uint32_t kind, uint64_t number, shmi_participant_id n)
{
    return kind | SHMI_CHUNK_RESERVED | number << 4 | (uint64_t)n << 35;
}
SHMI_FN uint64_t shmi_chunk_freed(uint64_t w) { return w & SHMI_CHUNK_RESERVED; }
SHMI_FN uint64_t shmi_chunk_claimed(uint64_t w, shmi_participant_id n)
{
    return (w & SHMI_CHUNK_RESERVED) | SHMI_chunkClaimed | (uint64_t)n << 35;
}
SHMI_FN int shmi_chunk_slab_of(uint64_t w, int cls) { return w == shmi_make_chunk(SHMI_chunkSlab, (uint64_t)cls, 0); }

SHMI_FN int shmi_chunk_legal(uint64_t w, uint64_t i, uint64_t count)
{
    uint64_t n = shmi_chunk_number(w);
    shmi_participant_id who = shmi_chunk_name(w);
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkFree: return (w & ~SHMI_CHUNK_RESERVED) == 0;
    case SHMI_chunkClaimed: return n == 0 && shmi_id_valid(who);
    case SHMI_chunkSlab: return shmi_chunk_reserved(w) && n < SHMI_classes && who == 0;
    case SHMI_chunkSweeping: return shmi_chunk_reserved(w) && n < SHMI_classNode && shmi_id_valid(who);
    case SHMI_chunkHead: return shmi_chunk_reserved(w) && n > 0 && n <= count - i && who == 0;
    case SHMI_chunkTail: return shmi_chunk_reserved(w) && n < i && who == 0;
    }
    return 0;
}

SHMI_FN uint32_t shmi_block_kind(uint32_t w) { return w & 7; }
SHMI_FN shmi_participant_id shmi_block_name(uint32_t w) { return w >> 3; }
SHMI_FN uint32_t shmi_make_block(uint32_t kind, shmi_participant_id n) { return kind | n << 3; }
SHMI_FN uint64_t shmi_blocks_of(int cls) { return SHMI_chunkSize / shmi_class_size[cls]; }

SHMI_FN uint64_t *shmi_chunk(shmsync_arena *a, uint64_t i) { return shmi_u64(a, a->geo.chunks_off + i * 8); }
SHMI_FN uint64_t shmi_load_chunk(shmsync_arena *a, uint64_t i) { return shmi_ld64(shmi_chunk(a, i)); }
SHMI_FN int shmi_swap_chunk(shmsync_arena *a, uint64_t i, uint64_t old, uint64_t to) { return shmi_cas64(shmi_chunk(a, i), old, to); }
SHMI_FN shmi_off shmi_chunk_off(shmsync_arena *a, uint64_t i) { return a->geo.heap_off + i * SHMI_chunkSize; }
/* A block word. The chunk must be reserved. */
SHMI_FN uint32_t *shmi_block_word(shmsync_arena *a, uint64_t chunk, uint64_t index)
{
    return shmi_u32(a, a->geo.blocks_off + (chunk * SHMI_blockWords + index) * SHMI_blockWordSize);
}

SHMI_FN shmi_block shmi_block_in(shmsync_arena *a, uint64_t chunk, uint64_t index, int cls)
{
    shmi_block b;
    b.size = shmi_class_size[cls];
    b.off = shmi_chunk_off(a, chunk) + index * b.size;
    b.chunk = chunk;
    b.index = index;
    b.class_ = cls;
    b.word = shmi_block_word(a, chunk, index);
    return b;
}
SHMI_FN shmi_block shmi_span_at(shmsync_arena *a, uint64_t chunk, uint64_t chunks)
{
    shmi_block b;
    b.size = chunks * SHMI_chunkSize;
    b.off = shmi_chunk_off(a, chunk);
    b.chunk = chunk;
    b.index = 0;
    b.class_ = SHMI_classSpan;
    b.word = shmi_block_word(a, chunk, 0);
    return b;
}

/* The block or span that off lies in. */
SHMI_FN int shmi_holding(shmsync_arena *a, shmi_off off, shmi_block *b)
{
    uint64_t i, w, start;
    if (off < a->geo.heap_off || (off - a->geo.heap_off) / SHMI_chunkSize >= a->geo.chunk_count)
        return 0;
    i = (off - a->geo.heap_off) / SHMI_chunkSize;
    w = shmi_load_chunk(a, i);
    if (shmi_chunk_kind(w) == SHMI_chunkTail && shmi_chunk_legal(w, i, a->geo.chunk_count)) {
        i = shmi_chunk_number(w);
        w = shmi_load_chunk(a, i);
        if (shmi_chunk_kind(w) != SHMI_chunkHead)
            return 0;
    }
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 0;
    start = shmi_chunk_off(a, i);
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        *b = shmi_span_at(a, i, shmi_chunk_number(w));
        return off - start < b->size;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping: {
        int cls = (int)shmi_chunk_number(w);
        uint64_t index = (off - start) / shmi_class_size[cls];
        if (index >= shmi_blocks_of(cls))
            return 0;
        *b = shmi_block_in(a, i, index, cls);
        return 1;
    }
    }
    return 0;
}
/* The block or span that begins at off. */
SHMI_FN int shmi_locate(shmsync_arena *a, shmi_off off, shmi_block *b) { return shmi_holding(a, off, b) && b->off == off; }
SHMI_FN int shmi_block_swap(const shmi_block *b, uint32_t old, uint32_t to) { return shmi_cas32(b->word, old, to); }

/* Makes sure that n bytes of the file have memory behind them. */
SHMI_FN int shmi_reserve(shmsync_arena *a, uint64_t off, uint64_t n)
{
    uint64_t end = off + n, piece = n;
    int tries = 0;
    while (off < end) {
        uint64_t now = end - off < piece ? end - off : piece;
        /* Unlike fallocate, syscall is no cancellation point. */
        if (syscall(SYS_fallocate, a->fd, FALLOC_FL_KEEP_SIZE, (long)off, (long)now) == 0) {
            off += now;
            continue;
        }
        switch (errno) {
        case EINTR:
            if (++tries >= 4)
                piece = 8u << 20;
            continue;
        case ENOSPC:
#ifdef EDQUOT
        case EDQUOT:
#endif
        case ENOMEM:
            return shmi_fail(ENOSPC, "reserve", a->label, "shared memory is full: could not reserve %llu bytes", (unsigned long long)n);
        }
        return shmi_fail(errno, "reserve", a->label, "%llu bytes at %llu", (unsigned long long)n, (unsigned long long)off);
    }
    return 0;
}

SHMI_FN uint64_t shmi_reserved_in(shmsync_arena *a, uint64_t chunk, uint64_t n)
{
    uint64_t i, count = 0;
    for (i = chunk; i < chunk + n; i++)
        count += (uint64_t)shmi_chunk_reserved(shmi_load_chunk(a, i));
    return count;
}

/* Makes sure that n chunks that we have claimed, and their block words, have memory. */
SHMI_FN int shmi_back(shmsync_arena *a, uint64_t chunk, uint64_t n)
{
    uint64_t i;
    if (shmi_reserved_in(a, chunk, n) < n) {
        int err = shmi_reserve(a, shmi_chunk_off(a, chunk), n * SHMI_chunkSize);
        if (err == 0)
            err = shmi_reserve(a, a->geo.blocks_off + chunk * SHMI_blockWords * SHMI_blockWordSize, n * SHMI_blockWords * SHMI_blockWordSize);
        if (err != 0)
            return err;
    }
    for (i = chunk; i < chunk + n; i++) {
        uint64_t w = shmi_load_chunk(a, i);
        if (!shmi_chunk_reserved(w))
            shmi_swap_chunk(a, i, w, w | SHMI_CHUNK_RESERVED);
        SHMSYNC_CRASHPOINT("arena.chunk.backed");
    }
    return 0;
}

/* Makes n chunks free that we have claimed. */
SHMI_FN void shmi_free_run(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t k;
    for (k = 0; k < n; k++) {
        uint64_t w = shmi_load_chunk(a, head + k);
        if (shmi_chunk_kind(w) == SHMI_chunkClaimed && shmi_chunk_name(w) == a->self)
            shmi_swap_chunk(a, head + k, w, shmi_chunk_freed(w));
    }
}

/* Claims a block of a chunk if that is a slab of the class and has one free. 0: none. */
SHMI_FN shmi_off shmi_claim_in(shmsync_arena *a, uint64_t chunk, int cls, uint64_t start)
{
    uint64_t n = shmi_blocks_of(cls), k;
    uint32_t claimed = shmi_make_block(SHMI_blockClaimed, a->self);
    if (!shmi_chunk_slab_of(shmi_load_chunk(a, chunk), cls))
        return 0;
    for (k = 0; k < n; k++) {
        uint64_t index = (start + k) % n;
        uint32_t *word = shmi_block_word(a, chunk, index);
        if (shmi_ld32(word) != SHMI_blockFree)
            continue;
        shmi_touch(a, chunk);
        SHMSYNC_CRASHPOINT("arena.block.before_claim");
        if (!shmi_cas32(word, SHMI_blockFree, claimed))
            continue;
        SHMSYNC_CRASHPOINT("arena.block.claimed");
        /* The chunk may have been taken back. If it is a slab of our class, it stays
         * one: a sweeper needs every block. */
        if (!shmi_chunk_slab_of(shmi_load_chunk(a, chunk), cls)) {
            shmi_cas32(word, claimed, SHMI_blockFree);
            return 0;
        }
        __atomic_store_n(&a->heap_next[cls], chunk * SHMI_blockWords + index + 1, __ATOMIC_RELAXED);
        return shmi_chunk_off(a, chunk) + index * shmi_class_size[cls];
    }
    return 0;
}

SHMI_FN shmi_off shmi_claim_near(shmsync_arena *a, int cls)
{
    uint64_t next = __atomic_load_n(&a->heap_next[cls], __ATOMIC_RELAXED), start, k;
    uint64_t count = a->geo.chunk_count;
    shmi_off off;
    if (next / SHMI_blockWords < count) {
        off = shmi_claim_in(a, next / SHMI_blockWords, cls, next % SHMI_blockWords);
        if (off != 0)
            return off;
    }
    start = __atomic_load_n(&a->heap_look[cls], __ATOMIC_RELAXED);
    __atomic_store_n(&a->heap_look[cls], start + SHMI_nearChunks, __ATOMIC_RELAXED);
    for (k = 0; k < SHMI_nearChunks && k < count; k++) {
        off = shmi_claim_in(a, (start + k) % count, cls, 0);
        if (off != 0)
            return off;
    }
    return 0;
}

/* Claims a free chunk that has those bits. */
SHMI_FN int shmi_claim_chunk(shmsync_arena *a, uint64_t bits, uint64_t *chunk, int *busy)
{
    uint64_t *hint = shmi_u64(a, SHMI_hdrChunkHint);
    uint64_t start = shmi_ld64(hint) % a->geo.chunk_count, k;
    for (k = 0; k < a->geo.chunk_count; k++) {
        uint64_t i = (start + k) % a->geo.chunk_count, w = shmi_load_chunk(a, i);
        switch (shmi_chunk_kind(w)) {
        case SHMI_chunkFree:
            if ((w & bits) != bits)
                continue;
            shmi_touch(a, i);
            if (shmi_swap_chunk(a, i, w, shmi_chunk_claimed(w, a->self))) {
                shmi_st64(hint, i + 1);
                *chunk = i;
                return 1;
            }
            *busy = 1;
            break;
        case SHMI_chunkClaimed:
        case SHMI_chunkSweeping:
            *busy = 1;
            break;
        }
    }
    return 0;
}

SHMI_COLD int shmi_no_space(shmsync_arena *a, uint64_t size)
{
    uint64_t i, free_ = 0;
    for (i = 0; i < a->geo.chunk_count; i++)
        if (shmi_chunk_kind(shmi_load_chunk(a, i)) == SHMI_chunkFree)
            free_ += SHMI_chunkSize;
    return shmi_fail(ENOSPC, "arena.alloc", a->label, "asked for %llu bytes; free in chunks of 64 KiB: %llu of %llu bytes",
                     (unsigned long long)size, (unsigned long long)free_, (unsigned long long)(a->geo.chunk_count * SHMI_chunkSize));
}

SHMI_COLD int shmi_meddled(shmsync_arena *a, shmi_off off)
{
    return shmi_fail(EPROTO, "arena.alloc", a->label, "the block at 0x%llx was changed while claimed", (unsigned long long)off);
}

/* Makes a slab of a free chunk and claims a block of it before anybody else can. */
SHMI_FN int shmi_claim_fresh(shmsync_arena *a, int cls, shmi_off *off, int *busy)
{
    uint64_t chunk = 0, index;
    int err;
    *off = 0;
    if (!shmi_claim_chunk(a, 0, &chunk, busy))
        return 0;
    SHMSYNC_CRASHPOINT("arena.chunk.claimed");
    err = shmi_back(a, chunk, 1);
    if (err != 0) {
        shmi_free_run(a, chunk, 1);
        if (!shmi_claim_chunk(a, SHMI_CHUNK_RESERVED, &chunk, busy))
            return err;
    }
    if (cls == SHMI_classNode)
        memset(shmi_bytes(a, shmi_chunk_off(a, chunk), SHMI_chunkSize), 0, SHMI_chunkSize);
    for (index = 0; index < shmi_blocks_of(cls); index++) {
        if (shmi_cas32(shmi_block_word(a, chunk, index), SHMI_blockFree, shmi_make_block(SHMI_blockClaimed, a->self))) {
            *off = shmi_chunk_off(a, chunk) + index * shmi_class_size[cls];
            __atomic_store_n(&a->heap_next[cls], chunk * SHMI_blockWords + index + 1, __ATOMIC_RELAXED);
            break;
        }
    }
    SHMSYNC_CRASHPOINT("arena.chunk.before_slab");
    if (!shmi_swap_chunk(a, chunk, shmi_chunk_claimed(SHMI_CHUNK_RESERVED, a->self), shmi_make_chunk(SHMI_chunkSlab, (uint64_t)cls, 0)))
        return shmi_meddled(a, shmi_chunk_off(a, chunk));
    return 0;
}

SHMI_FN void shmi_unblock(shmsync_arena *a, uint64_t i, shmi_participant_id n)
{
    uint32_t blocked = shmi_make_block(SHMI_blockBlocked, n);
    uint64_t k;
    for (k = 0; k < SHMI_blockWords; k++) {
        uint32_t *word = shmi_block_word(a, i, k);
        if (shmi_ld32(word) == blocked)
            shmi_cas32(word, blocked, SHMI_blockFree);
    }
}

/* Makes chunk i free if it is a slab without a block in use. */
SHMI_FN int shmi_sweep_chunk(shmsync_arena *a, uint64_t i)
{
    uint64_t w = shmi_load_chunk(a, i), n, k, sweeping;
    uint32_t blocked = shmi_make_block(SHMI_blockBlocked, a->self);
    int cls = (int)shmi_chunk_number(w);
    if (shmi_chunk_kind(w) != SHMI_chunkSlab || !shmi_chunk_legal(w, i, a->geo.chunk_count) || cls == SHMI_classNode)
        return 0;
    n = shmi_blocks_of(cls);
    for (k = 0; k < n; k++)
        if (shmi_ld32(shmi_block_word(a, i, k)) != SHMI_blockFree)
            return 0;
    sweeping = shmi_make_chunk(SHMI_chunkSweeping, (uint64_t)cls, a->self);
    shmi_touch(a, i);
    if (!shmi_swap_chunk(a, i, w, sweeping))
        return 0;
    SHMSYNC_CRASHPOINT("arena.sweep.begun");
    for (k = 0; k < n; k++) {
        if (!shmi_cas32(shmi_block_word(a, i, k), SHMI_blockFree, blocked)) {
            shmi_unblock(a, i, a->self);
            shmi_swap_chunk(a, i, sweeping, w);
            return 0;
        }
    }
    SHMSYNC_CRASHPOINT("arena.sweep.blocked");
    shmi_unblock(a, i, a->self);
    SHMSYNC_CRASHPOINT("arena.sweep.before_free");
    if (!shmi_swap_chunk(a, i, sweeping, shmi_chunk_freed(w)))
        return 0;
    shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), i);
    return 1;
}
SHMI_FN uint64_t shmi_sweep(shmsync_arena *a, uint64_t want)
{
    uint64_t i, swept = 0;
    for (i = 0; i < a->geo.chunk_count && swept < want; i++)
        swept += (uint64_t)shmi_sweep_chunk(a, i);
    return swept;
}

/* Claims a block of the class, as it is. */
SHMI_FN int shmi_claim_block(shmsync_arena *a, int cls, shmi_off *off)
{
    int failed = 0, tries;
    for (tries = 0; tries < SHMI_claimTries; tries++) {
        int busy = 0, err;
        uint64_t i;
        if ((*off = shmi_claim_near(a, cls)) != 0)
            return 0;
        err = shmi_claim_fresh(a, cls, off, &busy);
        if (*off != 0)
            return 0;
        failed = err;
        for (i = 0; i < a->geo.chunk_count; i++)
            if ((*off = shmi_claim_in(a, i, cls, 0)) != 0)
                return 0;
        if (shmi_sweep(a, 1) > 0)
            continue;
        if (!busy)
            break;
        sched_yield();
    }
    return failed != 0 ? failed : shmi_no_space(a, shmi_class_size[cls]);
}

/* ---- Spans: whole chunks, for what is bigger than any class ---- */

SHMI_FN int shmi_claim_run(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t k;
    for (k = 0; k < n; k++) {
        uint64_t w = shmi_load_chunk(a, head + k);
        shmi_touch(a, head + k);
        if (shmi_chunk_kind(w) != SHMI_chunkFree || !shmi_swap_chunk(a, head + k, w, shmi_chunk_claimed(w, a->self))) {
            shmi_free_run(a, head, k);
            return 0;
        }
        SHMSYNC_CRASHPOINT("arena.span.claiming");
    }
    return 1;
}

/* Makes a span of n claimed chunks and claims its block word. EAGAIN, with the chunks
 * free again, when that word is not free. The block word comes before the head and the
 * tails last, so that what a death leaves is found from the head. */
SHMI_FN int shmi_make_span(shmsync_arena *a, uint64_t head, uint64_t n)
{
    uint64_t i, to = shmi_make_chunk(SHMI_chunkHead, n, 0);
    int err = shmi_back(a, head, n);
    if (err != 0) {
        shmi_free_run(a, head, n);
        return err;
    }
    if (!shmi_cas32(shmi_block_word(a, head, 0), SHMI_blockFree, shmi_make_block(SHMI_blockClaimed, a->self))) {
        shmi_free_run(a, head, n);
        return EAGAIN;
    }
    SHMSYNC_CRASHPOINT("arena.span.claimed");
    memset(shmi_bytes(a, shmi_chunk_off(a, head), n * SHMI_chunkSize), 0, n * SHMI_chunkSize);
    for (i = head; i < head + n; i++) {
        if (!shmi_swap_chunk(a, i, shmi_chunk_claimed(SHMI_CHUNK_RESERVED, a->self), to))
            return shmi_meddled(a, shmi_chunk_off(a, head));
        to = shmi_make_chunk(SHMI_chunkTail, head, 0);
        SHMSYNC_CRASHPOINT("arena.span.headed");
    }
    return 0;
}

/* Claims the first n free chunks in a row, downwards from top, of which at least that
 * many have memory. */
SHMI_FN int shmi_span_below(shmsync_arena *a, uint64_t top, uint64_t n, uint64_t least, shmi_off *off, int *busy)
{
    uint64_t run = 0, i;
    *off = 0;
    for (i = top; i > 0; i--) {
        uint64_t w = shmi_load_chunk(a, i - 1), head = i - 1;
        int err;
        if (shmi_chunk_kind(w) != SHMI_chunkFree) {
            *busy = *busy || shmi_chunk_kind(w) == SHMI_chunkClaimed || shmi_chunk_kind(w) == SHMI_chunkSweeping;
            run = 0;
            continue;
        }
        if (++run < n || (least > 0 && shmi_reserved_in(a, head, n) < least))
            continue;
        if (!shmi_claim_run(a, head, n)) {
            *busy = 1;
            run = 0;
            continue;
        }
        err = shmi_make_span(a, head, n);
        if (err == 0) {
            __atomic_store_n(&a->heap_top, head, __ATOMIC_RELAXED);
            *off = shmi_chunk_off(a, head);
            return 0;
        }
        if (err != EAGAIN)
            return err;
        *busy = 1;
        run = 0;
    }
    return 0;
}

SHMI_FN int shmi_claim_span(shmsync_arena *a, uint64_t size, shmi_off *off)
{
    uint64_t n = size / SHMI_chunkSize + (size % SHMI_chunkSize != 0), least;
    int failed = 0, tries;
    *off = 0;
    if (n > a->geo.chunk_count || n == 0)
        return shmi_no_space(a, size);
    for (tries = 0; tries < SHMI_claimTries; tries++) {
        uint64_t top = __atomic_load_n(&a->heap_top, __ATOMIC_RELAXED);
        int busy = 0, err;
        if (top > a->geo.chunk_count)
            top = a->geo.chunk_count;
        err = shmi_span_below(a, top, n, 0, off, &busy);
        if (*off == 0 && err == 0)
            err = shmi_span_below(a, a->geo.chunk_count, n, 0, off, &busy);
        for (least = 1; err == ENOSPC && least <= n; least++) {
            failed = err;
            err = shmi_span_below(a, a->geo.chunk_count, n, least, off, &busy);
        }
        if (*off != 0)
            return 0;
        if (err != 0 && err != ENOSPC)
            return err;
        if (shmi_sweep(a, a->geo.chunk_count) > 0)
            continue;
        if (!busy)
            break;
        sched_yield();
    }
    return failed != 0 ? failed : shmi_no_space(a, size);
}

/* Makes the chunks of a span free, the head last. The block word of the span, claimed
 * or freeing, keeps it ours until then. */
SHMI_FN void shmi_dismantle(shmsync_arena *a, uint64_t head)
{
    uint64_t w = shmi_load_chunk(a, head), i, tail, top;
    if (shmi_chunk_kind(w) != SHMI_chunkHead || !shmi_chunk_legal(w, head, a->geo.chunk_count))
        return;
    tail = shmi_make_chunk(SHMI_chunkTail, head, 0);
    for (i = head + 1; i < head + shmi_chunk_number(w); i++) {
        uint64_t t = shmi_load_chunk(a, i);
        if (t == tail)
            shmi_swap_chunk(a, i, t, shmi_chunk_freed(t));
        SHMSYNC_CRASHPOINT("arena.span.dismantling");
    }
    shmi_swap_chunk(a, head, w, shmi_chunk_freed(w));
    top = __atomic_load_n(&a->heap_top, __ATOMIC_RELAXED);
    if (top < head + shmi_chunk_number(w))
        __atomic_store_n(&a->heap_top, head + shmi_chunk_number(w), __ATOMIC_RELAXED);
    shmi_st64(shmi_u64(a, SHMI_hdrChunkHint), head);
}

/* Finds a block of at least size bytes and makes it ours, zeroed. Nobody else learns
 * of it before shmi_publish; if this process dies first, it goes back. align is a power of two up to 4096. */
SHMI_FN int shmi_claim_aligned(shmsync_arena *a, uint64_t size, uint64_t align, shmi_off *off)
{
    int cls, err;
    for (cls = 0; cls < SHMI_classNode; cls++) {
        if (size > shmi_class_size[cls] || shmi_class_size[cls] % align != 0)
            continue;
        err = shmi_claim_block(a, cls, off);
        if (err != 0) {
            shmi_flush_deferred(a); /* for the next call */
            return err;
        }
        SHMSYNC_CRASHPOINT("arena.alloc.claimed");
        memset(shmi_bytes(a, *off, shmi_class_size[cls]), 0, shmi_class_size[cls]);
        return 0;
    }
    return shmi_claim_span(a, size, off);
}
SHMI_FN int shmi_claim(shmsync_arena *a, uint64_t size, shmi_off *off) { return shmi_claim_aligned(a, size, 1, off); }

/* Makes a block that we have claimed what it is going to be: raw, object or node. */
SHMI_FN int shmi_publish(shmsync_arena *a, shmi_off off, uint32_t kind)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_make_block(kind, 0)))
        return shmi_meddled(a, off);
    return 0;
}

/* Makes a block or span free whose word is w, claimed or freeing by this process or by
 * a dead one that it is the reaper of. */
SHMI_FN void shmi_release(shmsync_arena *a, const shmi_block *b, uint32_t w)
{
    if (b->class_ < 0)
        shmi_dismantle(a, b->chunk);
    shmi_block_swap(b, w, SHMI_blockFree);
    if (b->class_ >= 0)
        __atomic_store_n(&a->heap_next[b->class_], b->chunk * SHMI_blockWords + b->index, __ATOMIC_RELAXED);
}
SHMI_FN void shmi_unclaim(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    if (shmi_locate(a, off, &b))
        shmi_release(a, &b, shmi_make_block(SHMI_blockClaimed, a->self));
}

/* size bytes at an offset that may have come from a peer, within one block that is in
 * use; NULL if they are not. */
SHMI_FN void *shmi_try_at(shmsync_arena *a, shmi_off off, uint64_t size, uint64_t align)
{
    shmi_block b;
    uint32_t kind;
    if (!shmi_within(a, off, size, align) || !shmi_holding(a, off, &b))
        return NULL;
    kind = shmi_block_kind(shmi_ld32(b.word));
    if (kind != SHMI_blockRaw && kind != SHMI_blockObject && kind != SHMI_blockFreeing && kind != SHMI_blockLogged)
        return NULL;
    if (size > b.size - (off - b.off))
        return NULL;
    return a->base + off;
}

/* The block that word k of chunk i stands for. */
SHMI_FN int shmi_block_of_word(shmsync_arena *a, uint64_t i, uint64_t k, shmi_block *b)
{
    uint64_t w = shmi_load_chunk(a, i);
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 0;
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        if (k != 0)
            return 0;
        *b = shmi_span_at(a, i, shmi_chunk_number(w));
        return 1;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping:
        if (k >= shmi_blocks_of((int)shmi_chunk_number(w)))
            return 0;
        *b = shmi_block_in(a, i, k, (int)shmi_chunk_number(w));
        return 1;
    }
    return 0;
}

/* Takes back what dead was in the middle of: blocks, chunks and names that it had
 * claimed, what it was freeing, the slabs that it was sweeping. The caller is the
 * reaper of its slot; a call that is cut short may be repeated by another. */
SHMI_FN void shmi_reclaim_blocks(shmsync_arena *a, shmi_participant_id dead)
{
    uint64_t i, k;
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    shmi_resolve_entries(a, dead);
    for (i = 0; shmi_next_touched(a, shmi_id_slot(dead), &i); i++) {
        uint64_t w = shmi_load_chunk(a, i);
        if (shmi_chunk_reserved(w)) {
            if (shmi_chunk_kind(w) == SHMI_chunkSweeping && shmi_chunk_name(w) == dead) {
                shmi_unblock(a, i, dead);
                shmi_swap_chunk(a, i, w, shmi_make_chunk(SHMI_chunkSlab, shmi_chunk_number(w), 0));
            }
            shmi_worked(a, SHMI_blockWords);
            for (k = 0; k < SHMI_blockWords; k++) {
                uint32_t *word = shmi_block_word(a, i, k), bw = shmi_ld32(word);
                shmi_block b;
                if (shmi_block_kind(bw) == SHMI_blockObject) {
                    if (shmi_block_of_word(a, i, k, &b))
                        shmi_resolve_delete(a, &b, dead);
                } else if (bw != 0 && shmi_block_name(bw) == dead && shmi_block_kind(bw) != SHMI_blockLogged) { /* the log of a lock has that */
                    if (!shmi_block_of_word(a, i, k, &b)) {
                        shmi_cas32(word, bw, SHMI_blockFree);
                    } else if (b.class_ == SHMI_classNode) {
                        shmi_reset_node(a, b.off);
                        shmi_release(a, &b, bw);
                    } else {
                        shmi_release_unseen(a, &b, bw);
                    }
                }
            }
        }
        w = shmi_load_chunk(a, i); /* the chunk itself comes last */
        if (shmi_chunk_kind(w) == SHMI_chunkClaimed && shmi_chunk_name(w) == dead)
            shmi_swap_chunk(a, i, w, shmi_chunk_freed(w));
    }
    pthread_mutex_unlock(&a->handles);
}

/* Goes through those blocks and spans of chunk i whose words have that kind, until f returns 0. */
SHMI_FN int shmi_each_block_of(shmsync_arena *a, uint64_t i, uint32_t kind, int (*f)(shmsync_arena *a, shmi_off off, void *arg), void *arg)
{
    uint64_t w = shmi_load_chunk(a, i), n = 0, size = 0, k;
    if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
        return 1;
    switch (shmi_chunk_kind(w)) {
    case SHMI_chunkHead:
        n = 1;
        break;
    case SHMI_chunkSlab:
    case SHMI_chunkSweeping:
        n = shmi_blocks_of((int)shmi_chunk_number(w));
        size = shmi_class_size[shmi_chunk_number(w)];
        break;
    }
    shmi_worked(a, n);
    for (k = 0; k < n; k++)
        if (shmi_block_kind(shmi_ld32(shmi_block_word(a, i, k))) == kind && !f(a, shmi_chunk_off(a, i) + k * size, arg))
            return 0;
    return 1;
}
/* The same for the chunks that the participant in a slot may have touched, or for all: slot 0. */
SHMI_FN void shmi_each_block(shmsync_arena *a, uint32_t slot, uint32_t kind, int (*f)(shmsync_arena *a, shmi_off off, void *arg), void *arg)
{
    uint64_t i;
    for (i = 0; slot != 0 ? shmi_next_touched(a, slot, &i) : i < a->geo.chunk_count; i++)
        if (!shmi_each_block_of(a, i, kind, f, arg))
            return;
}

/* ---- Telling: see internal/arenakernel/telling.go ----
 *
 * slotTelling counts what this participant is in the middle of: the end of waits of
 * others, from before it is decided until their owners have been told. While it is 0 the
 * participant puts no node on a stack that is resolved, or ready, already: so a reaper
 * knows which nodes of the dead will not be put on a stack any more. */

enum { SHMI_slotTelling = 240 };

SHMI_FN void shmi_begin_tell(shmsync_arena *a) { shmi_add32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), 1); }
SHMI_FN void shmi_end_tell(shmsync_arena *a) { shmi_add32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), (uint32_t)-1); }

/* Whether each participant that had decided about a node before this call has told its owner, or is dead. */
SHMI_FN int shmi_all_told(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 && shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))))
            return 0;
    return 1;
}
/* The same with some timeout. */
SHMI_FN int shmi_await_told(shmsync_arena *a)
{
    int tries;
    for (tries = 0; tries < 50; tries++) {
        if (shmi_all_told(a))
            return 1;
        sched_yield();
    }
    return shmi_all_told(a);
}
/* ---- Wait nodes ---- */

SHMI_FN uint32_t shmi_node_state(uint32_t w) { return w & 15; }
SHMI_FN uint32_t shmi_node_with(uint32_t w, uint32_t state) { return (w & ~15u) | state; }
/* The word after the node has been given back. */
SHMI_FN uint32_t shmi_node_freed(uint32_t w) { return shmi_node_with(w + 16, SHMI_NodeFree); }
/* The word after a wait whose owner keeps the node for another. */
SHMI_FN uint32_t shmi_node_kept(uint32_t w) { return shmi_node_with(w + 16, SHMI_NodeIdle); }
SHMI_FN int shmi_node_over(uint32_t w) { return shmi_node_state(w) == SHMI_NodeResolved || shmi_node_state(w) == SHMI_NodeSpent; }
SHMI_FN uint32_t shmi_node_load(const shmi_node *n) { return shmi_ld32(&n->word); }
SHMI_FN int shmi_node_swap(shmi_node *n, uint32_t old, uint32_t to) { return shmi_cas32(&n->word, old, to); }
SHMI_FN int shmi_node_move(shmi_node *n, uint32_t from, uint32_t to)
{
    uint32_t w = shmi_node_load(n);
    return shmi_node_state(w) == from && shmi_node_swap(n, w, shmi_node_with(w, to));
}
SHMI_FN shmi_participant_id shmi_node_owner(const shmi_node *n) { return shmi_ld32(&n->owner); }

SHMI_FN shmi_node *shmi_node_ptr(const shmsync_arena *a, shmi_off off) { return (shmi_node *)shmi_ptr(a, off, SHMI_nodeSize, SHMI_nodeSize); }

/* The node at an offset that may have come from a peer, in use or not; NULL where none is. */
SHMI_FN shmi_node *shmi_node_at(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || b.class_ != SHMI_classNode)
        return NULL;
    return shmi_node_ptr(a, off);
}

/* Gives a wait node that is in no use, idle and ours, of no object. */
SHMI_FN int shmi_claim_node(shmsync_arena *a, shmi_off *off, shmi_node **node)
{
    shmi_node *n;
    int err = shmi_claim_block(a, SHMI_classNode, off);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("arena.node.claimed");
    n = shmi_node_ptr(a, *off);
    shmi_st32(&n->word, shmi_node_with(shmi_node_load(n), SHMI_NodeIdle));
    shmi_st64(&n->next, 0);
    shmi_st64(&n->ready_next, 0);
    shmi_st64(&n->wanted, 0);
    shmi_st64(&n->stamp, 0);
    shmi_st64(&n->extra, 0);
    shmi_st32(&n->owner, a->self);
    SHMSYNC_CRASHPOINT("arena.node.owned");
    shmi_st64(&n->object, 0);
    shmi_st64(&n->list, 0);
    *node = n;
    return shmi_publish(a, *off, SHMI_blockNode);
}

SHMI_FN void shmi_reset_node(shmsync_arena *a, shmi_off off)
{
    shmi_node *n = shmi_node_ptr(a, off);
    uint32_t w;
    shmi_st32(&n->owner, 0);
    shmi_st64(&n->object, 0);
    shmi_st64(&n->list, 0);
    for (w = shmi_node_load(n); shmi_node_state(w) != SHMI_NodeFree && !shmi_node_swap(n, w, shmi_node_freed(w)); w = shmi_node_load(n)) {
    }
}

/* Makes a node free, whatever participant owns it; it is on no list. */
SHMI_FN int shmi_free_node(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    if (!shmi_locate(a, off, &b) || b.class_ != SHMI_classNode)
        return EPROTO;
    shmi_touch(a, b.chunk);
    if (!shmi_block_swap(&b, shmi_make_block(SHMI_blockNode, 0), freeing))
        return EPROTO;
    SHMSYNC_CRASHPOINT("arena.node.freeing");
    shmi_reset_node(a, off);
    SHMSYNC_CRASHPOINT("arena.node.reset");
    shmi_release(a, &b, freeing);
    return 0;
}

/* Frees a node that is on no list and whose owner has no use for it any more. The
 * participant that makes itself the owner by CAS may do that. */
SHMI_FN void shmi_reap_node(shmsync_arena *a, shmi_off off, shmi_participant_id owner)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_block b;
    if (shmi_locate(a, off, &b))
        shmi_touch(a, b.chunk); /* or the reaper of this participant would not look for the node */
    if (n != NULL && shmi_node_owner(n) == owner && shmi_cas32(&n->owner, owner, a->self)) {
        SHMSYNC_CRASHPOINT("arena.node.inherited");
        shmi_free_node(a, off);
    }
}
/* The same for a node that other processes may free, if it is in the use that it had when its word
 * was w, on no queue, and its owner is dead. */
SHMI_FN void shmi_reap_node_in(shmsync_arena *a, shmi_off off, shmi_participant_id owner, uint32_t w)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_act act;
    shmi_begin_act(a, &act, owner);
    if (n != NULL && ((shmi_node_load(n) ^ w) & ~15u) == 0 && shmi_ld64(&n->stamp) == 0 && shmi_act_holds(a, &act, owner, 0))
        shmi_reap_node(a, off, owner);
    shmi_end_act(a, &act);
}
/* Makes this participant the owner of a node whose owner has done with it. */
SHMI_FN int shmi_take_node(shmsync_arena *a, shmi_off off, shmi_participant_id owner)
{
    shmi_node *n = shmi_node_at(a, off);
    if (n == NULL || !shmi_cas32(&n->owner, owner, a->self))
        return 0;
    SHMSYNC_CRASHPOINT("arena.node.reclaimed");
    return 1;
}
/* Gives back a node that its owner has done with, in the use that it had when its word
 * was w. The owner, and the participant that takes it off its queue, both try. */
SHMI_FN void shmi_reclaim_node(shmsync_arena *a, shmi_off off, uint32_t w)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_participant_id owner;
    int foreign;
    if (n == NULL)
        return;
    foreign = shmi_node_owner(n) != a->self;
    if (foreign)
        shmi_begin_tell(a); /* the node may be freed meanwhile, but no participant gets its owner's ID */
    owner = shmi_node_owner(n);
    if (shmi_node_swap(n, shmi_node_with(w, SHMI_NodeSpent), shmi_node_freed(w)) && shmi_take_node(a, off, owner))
        shmi_free_node(a, off);
    if (foreign)
        shmi_end_tell(a);
}

/* Goes through the nodes in use. */
SHMI_FN void shmi_each_node(shmsync_arena *a, void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    uint64_t i, k;
    for (i = 0; i < a->geo.chunk_count; i++) {
        if (!shmi_chunk_slab_of(shmi_load_chunk(a, i), SHMI_classNode))
            continue;
        shmi_worked(a, shmi_blocks_of(SHMI_classNode));
        for (k = 0; k < shmi_blocks_of(SHMI_classNode); k++) {
            shmi_off off = shmi_chunk_off(a, i) + k * SHMI_nodeSize;
            if (shmi_ld32(shmi_block_word(a, i, k)) == shmi_make_block(SHMI_blockNode, 0))
                f(a, off, shmi_node_ptr(a, off), arg);
        }
    }
}

typedef struct shmi_queue_visit {
    shmi_off object;
    void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg);
    void *arg;
} shmi_queue_visit;
SHMI_FN void shmi_queue_visit_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_queue_visit *v = (shmi_queue_visit *)arg;
    if (shmi_ld64(&n->object) == v->object && shmi_ld64(&n->list) == 0 && shmi_ld64(&n->stamp) != 0)
        v->f(a, off, n, v->arg);
}
/* Goes through the nodes in use that belong to an object and are on one of its queues. */
SHMI_FN void shmi_each_queued(shmsync_arena *a, shmi_off object, void (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    shmi_queue_visit v;
    v.object = object;
    v.f = f;
    v.arg = arg;
    shmi_each_node(a, shmi_queue_visit_one, &v);
}

/* ---- Poller nodes: behind them other processes park what the kernel's queue has no room
 * for. A C process has none, its threads sleep in the kernel; it wakes those of others. ---- */

/* Visits a list of nodes until f returns 0. EPROTO for one that has something else on
 * it, or does not end: Brent's method, and the number of nodes there can be. */
SHMI_FN int shmi_walk(shmsync_arena *a, const uint64_t *head, int (*f)(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg), void *arg)
{
    shmi_off anchor = 0, off = shmi_ld64(head);
    uint64_t steps = 0, lap = 1;
    while (off != 0) {
        shmi_node *n = shmi_node_at(a, off);
        if (n == NULL || off == anchor || steps > a->geo.chunk_count * SHMI_blockWords)
            return EPROTO;
        if (steps == lap) {
            anchor = off;
            lap *= 2;
        }
        steps++;
        if (!f(a, off, n, arg))
            return 0;
        off = shmi_ld64(&n->next);
    }
    return 0;
}

/* Changes a doorbell and wakes all sleepers on it. */
SHMI_FN void shmi_ring(uint32_t *doorbell)
{
    shmi_add32(doorbell, 1);
    shmi_wake(doorbell, SHMI_ALL);
}

SHMI_FN void shmi_push_ready(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_participant_id owner)
{
    uint64_t *head = shmi_slot64(a, shmi_id_slot(owner), SHMI_slotReady);
    uint64_t next;
    do {
        next = shmi_ld64(head);
        shmi_st64(&n->ready_next, next);
    } while (!shmi_cas64(head, next, off));
    SHMSYNC_CRASHPOINT("arena.ready.pushed");
    shmi_ring(shmi_slot32(a, shmi_id_slot(owner), SHMI_slotDoorbell));
}

/* Moves a node from waiting to ready, puts it on its owner's stack and rings. */
SHMI_FN int shmi_ready(shmsync_arena *a, shmi_off off, shmi_node *n)
{
    shmi_participant_id owner;
    int done = 0;
    if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeWaiting)
        return 0;
    shmi_begin_tell(a);
    if (shmi_current(a, shmi_node_owner(n)) && shmi_node_move(n, SHMI_NodeWaiting, SHMI_NodeReady)) {
        owner = shmi_node_owner(n); /* it does not change hands while ready */
        if (shmi_current(a, owner)) {
            SHMSYNC_CRASHPOINT("arena.ready.marked");
            shmi_push_ready(a, off, n, owner);
            done = 1;
        }
    }
    shmi_end_tell(a);
    return done;
}

/* Puts a node that was parked and is resolved on the stack of the owner that it had then,
 * and rings. Only the granter that resolved it does that, once, between shmi_begin_tell,
 * which it has called before it resolved the node, and shmi_end_tell. If the owner has died
 * the node may have a new owner by now, and nobody is told. */
SHMI_FN void shmi_tell(shmsync_arena *a, shmi_off off, shmi_node *n, shmi_participant_id owner)
{
    if (shmi_current(a, owner))
        shmi_push_ready(a, off, n, owner);
}

typedef struct shmi_ready_visit {
    uint32_t count, skip;
    int done;
    shmi_participant_id who;
} shmi_ready_visit;
SHMI_FN int shmi_ready_count(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)off;
    if (shmi_node_state(shmi_node_load(n)) == SHMI_NodeWaiting && shmi_current(a, shmi_node_owner(n)))
        ((shmi_ready_visit *)arg)->count++;
    return 1;
}
SHMI_FN int shmi_ready_nth(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_ready_visit *v = (shmi_ready_visit *)arg;
    if (shmi_node_state(shmi_node_load(n)) != SHMI_NodeWaiting || !shmi_current(a, shmi_node_owner(n)))
        return 1;
    if (v->skip > 0) {
        v->skip--;
        return 1;
    }
    v->done = shmi_ready(a, off, n);
    return !v->done;
}
SHMI_FN int shmi_ready_any(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)arg;
    shmi_ready(a, off, n);
    return 1;
}
SHMI_FN int shmi_ready_who(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_ready_visit *v = (shmi_ready_visit *)arg;
    if (shmi_node_owner(n) == v->who)
        v->done = shmi_ready(a, off, n);
    return !v->done;
}

/* Makes one of the waiting poller nodes of a list ready, and says whether there was one. */
SHMI_FN int shmi_ready_one(shmsync_arena *a, const uint64_t *head, uint32_t turn)
{
    int tries;
    for (tries = 0; tries < 3; tries++) {
        shmi_ready_visit v = {0, 0, 0, 0};
        shmi_walk(a, head, shmi_ready_count, &v);
        if (v.count == 0)
            return 0;
        v.skip = turn % v.count;
        shmi_walk(a, head, shmi_ready_nth, &v);
        if (v.done)
            return 1;
        turn = 0;
    }
    return 0;
}
SHMI_FN void shmi_ready_all(shmsync_arena *a, const uint64_t *head) { shmi_walk(a, head, shmi_ready_any, NULL); }
/* Makes the poller node of one participant ready. */
SHMI_FN int shmi_ready_of(shmsync_arena *a, const uint64_t *head, shmi_participant_id who)
{
    shmi_ready_visit v = {0, 0, 0, 0};
    v.who = who;
    shmi_walk(a, head, shmi_ready_who, &v);
    return v.done;
}

/* ---- Nodes of the dead ---- */

typedef struct shmi_find_visit {
    shmi_off off;
    uint64_t *left;
    int found;
} shmi_find_visit;
SHMI_FN int shmi_find_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_find_visit *v = (shmi_find_visit *)arg;
    (void)a;
    (void)n;
    v->found = v->found || off == v->off;
    if (*v->left > 0)
        --*v->left;
    return !v->found && *v->left > 0;
}
/* Whether the node at off is on the list whose head is at list, or may be, as far as a
 * made-up list allows to tell within the steps that are left. */
SHMI_FN int shmi_on_list(shmsync_arena *a, shmi_off list, shmi_off off, uint64_t *left)
{
    shmi_block b;
    shmi_find_visit v;
    v.off = off;
    v.left = left;
    v.found = 0;
    if (*left == 0)
        return 1;
    if (shmi_within(a, list, 8, 8) && shmi_holding(a, list, &b) && shmi_block_kind(shmi_ld32(b.word)) == SHMI_blockObject)
        shmi_walk(a, shmi_u64(a, list), shmi_find_one, &v);
    return v.found || *left == 0;
}

SHMI_FN int shmi_is_object(shmsync_arena *a, shmi_off off)
{
    shmi_block b;
    return shmi_locate(a, off, &b) && shmi_block_kind(shmi_ld32(b.word)) == SHMI_blockObject;
}

/* Keeps the block at off from being reused until shmi_unguard. The caller must look the
 * object up again after the call. */
SHMI_FN void shmi_guard(shmsync_arena *a, shmi_off off) { shmi_st64(shmi_slot64(a, a->my_slot, SHMI_slotOpening), off); }
SHMI_FN void shmi_unguard(shmsync_arena *a) { shmi_guard(a, 0); }

/* A poller node without an owner that is ready: its owner died when it was not on the
 * stack, and a releaser may have been about to put it there. */
typedef struct shmi_orphan {
    shmi_off off;
    uint32_t word;
    int on;
} shmi_orphan;

typedef struct shmi_dead_nodes {
    shmi_participant_id dead;
    uint64_t left;
    int told; /* nobody will put a node on a stack any more that is resolved or ready */
    shmi_orphan orphans[64]; /* others wait for the next death */
    unsigned n_orphans;
} shmi_dead_nodes;

/* Whether a node is on the ready stack of n. */
SHMI_FN int shmi_stacked(shmsync_arena *a, shmi_participant_id n, shmi_off want, uint64_t *left)
{
    shmi_off anchor = 0, off = shmi_ld64(shmi_slot64(a, shmi_id_slot(n), SHMI_slotReady));
    uint64_t steps = 0, lap = 1;
    while (off != 0 && *left > 0) {
        shmi_node *node = shmi_node_at(a, off);
        if (off == want)
            return 1;
        if (node == NULL || off == anchor)
            return 0;
        if (steps == lap) {
            anchor = off;
            lap *= 2;
        }
        steps++;
        --*left;
        off = shmi_ld64(&node->ready_next);
    }
    return 0;
}

/* Whether a node was resolved, perhaps after d->told, by a granter that is yet to tell its owner. */
SHMI_FN int shmi_untold(shmsync_arena *a, const shmi_dead_nodes *d, shmi_node *n)
{
    return shmi_node_state(shmi_node_load(n)) == SHMI_NodeResolved && !(d->told && shmi_all_told(a));
}

SHMI_FN void shmi_free_dead_node(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    shmi_dead_nodes *d = (shmi_dead_nodes *)arg;
    shmi_participant_id owner = shmi_node_owner(n);
    shmi_off object, list;
    uint32_t w;
    int there;
    if (owner != d->dead) {
        list = shmi_ld64(&n->list);
        w = shmi_node_load(n);
        if (owner == 0 && list != 0 && shmi_node_state(w) != SHMI_NodeFree && shmi_node_owner(n) == 0) {
            if (d->n_orphans < sizeof d->orphans / sizeof d->orphans[0]) {
                shmi_orphan *s = &d->orphans[d->n_orphans++];
                s->off = off;
                s->word = w;
                s->on = 0;
            }
        } else if (owner != 0 && list == 0 && shmi_ld64(&n->stamp) == 0 && !shmi_current(a, owner) &&
                   !shmi_untold(a, d, n)) {
            /* The participant that took it off its queue as its owner was reaped has died
             * before it could give it back, or is about to give it back. */
            shmi_reap_node_in(a, off, owner, w);
        }
        return;
    }
    /* Guarded, the object is not taken apart, so its nodes stay what they are. */
    object = shmi_ld64(&n->object);
    shmi_guard(a, object);
    w = shmi_node_load(n);
    if (shmi_node_owner(n) != d->dead || shmi_ld64(&n->object) != object)
        return;
    there = object != 0 && shmi_is_object(a, object);
    list = shmi_ld64(&n->list);
    if (list == 0 && there && shmi_ld64(&n->stamp) != 0)
        return; /* on a queue: the object's kind takes it off and gives it back */
    if (list == 0 && shmi_untold(a, d, n))
        return; /* its stack would be that of the slot's next participant */
    if (list == 0) {
        shmi_reap_node(a, off, d->dead);
    } else if (there && !shmi_on_list(a, list, off, &d->left)) {
        shmi_free_node(a, off);
    } else if (there) {
        /* Also one that is not ready: the dead one may have taken it loose. */
        if (d->told || shmi_stacked(a, d->dead, off, &d->left)) {
            while (shmi_node_state(w) != SHMI_NodeFree && shmi_node_owner(n) == d->dead && !shmi_node_swap(n, w, shmi_node_freed(w)))
                w = shmi_node_load(n);
        }
        shmi_cas32(&n->owner, d->dead, 0);
    }
}

/* Makes orphaned nodes free that have no way left to get on a stack, and are on none. */
SHMI_FN void shmi_take_orphans(shmsync_arena *a, shmi_dead_nodes *d)
{
    uint64_t left = UINT64_C(1) << 20;
    uint32_t i;
    unsigned k;
    if (d->n_orphans == 0 || !shmi_await_told(a))
        return;
    for (i = 1; i <= a->geo.slots; i++) {
        shmi_participant_id n = shmi_id_in(i, shmi_slot_state(a, i)); /* a joiner begins with an empty stack */
        if (!shmi_current(a, n))
            continue;
        for (k = 0; k < d->n_orphans; k++)
            d->orphans[k].on = d->orphans[k].on || shmi_stacked(a, n, d->orphans[k].off, &left);
    }
    if (left == 0 || !shmi_all_told(a))
        return; /* a releaser may be on its way down a stack that was emptied meanwhile */
    for (k = 0; k < d->n_orphans; k++)
        if (!d->orphans[k].on)
            shmi_node_swap(shmi_node_ptr(a, d->orphans[k].off), d->orphans[k].word, shmi_node_freed(d->orphans[k].word));
}

/* Gives back the nodes of a dead participant: poller nodes stay on the lists of their
 * objects, for the next participant that needs one. As for shmi_reclaim_blocks. A node that
 * some participant may be about to put on the dead one's stack goes with the next death. */
SHMI_FN void shmi_free_nodes_of(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_dead_nodes d;
    uint64_t i;
    memset(&d, 0, sizeof d);
    d.dead = dead;
    d.left = 1 << 16;
    pthread_mutex_lock(&a->handles);
    d.told = shmi_await_told(a);
    for (i = 0; i < a->geo.chunk_count; i++)
        if (shmi_chunk_slab_of(shmi_load_chunk(a, i), SHMI_classNode))
            d.left += 64 * shmi_blocks_of(SHMI_classNode);
    shmi_each_node(a, shmi_free_dead_node, &d);
    shmi_take_orphans(a, &d);
    shmi_unguard(a);
    pthread_mutex_unlock(&a->handles);
}

/* Whether the owner of a node is dead and nobody is about to tell it that its wait is over. */
SHMI_FN int shmi_orphaned(shmsync_arena *a, shmi_node *n)
{
    shmi_participant_id owner = shmi_node_owner(n);
    return owner != 0 && !shmi_current(a, owner) &&
           (shmi_node_state(shmi_node_load(n)) != SHMI_NodeResolved || shmi_all_told(a));
}

/* For a node whose object is deleted, and that was on a queue of it when its wait was over or
 * its owner gave up: see forgetWait in internal/arenakernel/node.go. */
SHMI_FN void shmi_forget_wait(shmsync_arena *a, shmi_off off, shmi_node *n)
{
    uint32_t w = shmi_node_load(n), state = shmi_node_state(w);
    shmi_participant_id owner;
    int ours;
    if (state != SHMI_NodeResolved && state != SHMI_NodeSpent && state != SHMI_NodeLeft)
        return;
    shmi_begin_tell(a); /* no participant gets the owner's ID */
    owner = shmi_node_owner(n);
    ours = state == SHMI_NodeLeft && shmi_take_node(a, off, owner);
    shmi_st64(&n->stamp, 0);
    if (ours || (shmi_node_swap(n, shmi_node_with(w, SHMI_NodeSpent), shmi_node_freed(w)) && shmi_take_node(a, off, owner)))
        shmi_free_node(a, off);
    shmi_end_tell(a);
}

/* Frees a node of an object that this process takes apart, whatever participant owns it. */
SHMI_FN void shmi_reap_node_of(shmsync_arena *a, shmi_off off, shmi_off object)
{
    shmi_node *n = shmi_node_at(a, off);
    shmi_participant_id owner = n != NULL ? shmi_node_owner(n) : 0;
    shmi_act act;
    shmi_begin_act(a, &act, owner);
    if (n != NULL && shmi_ld64(&n->object) == object)
        shmi_reap_node(a, off, owner);
    shmi_end_act(a, &act);
}
SHMI_FN void shmi_free_node_at(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    if (shmi_ld64(&n->object) != *(shmi_off *)arg)
        return;
    if (shmi_ld64(&n->list) != 0)
        shmi_free_node(a, off);
    else if (shmi_ld64(&n->stamp) != 0 &&
             (shmi_node_state(shmi_node_load(n)) == SHMI_NodeIdle || shmi_orphaned(a, n)))
        shmi_reap_node_of(a, off, *(shmi_off *)arg); /* the reaper of its owner may be about to */
    else if (shmi_ld64(&n->stamp) != 0)
        shmi_forget_wait(a, off, n);
}
/* Gives back the nodes that an object has which nobody has open. */
SHMI_FN void shmi_free_nodes_at(shmsync_arena *a, shmi_off object) { shmi_each_node(a, shmi_free_node_at, &object); }

SHMI_FN void shmi_wake_resolved_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    (void)a;
    (void)off;
    (void)arg;
    if (shmi_node_state(shmi_node_load(n)) == SHMI_NodeResolved)
        shmi_wake(&n->word, SHMI_ALL);
}
/* Wakes the sleepers on nodes whose wait is over: a dead participant may have decided that
 * and not woken them. */
SHMI_FN void shmi_wake_resolved(shmsync_arena *a) { shmi_each_node(a, shmi_wake_resolved_one, NULL); }

/* ---- Handles of the user, and what is left of those that are closed ----
 *
 * What a process knows of an object that it has open lies behind a head with a serial number, and a
 * handle of the user has that number, too. The last close changes the number in the head, so a call
 * with any copy of the handle finds that it is closed. The memory is used again, for the same kind of
 * thing, but never given back: such a call may read it whenever it comes. */

typedef struct shmi_head {
    struct shmi_head *next; /* guarded by: shmi_spares_lock */
    uint64_t serial;        /* of what follows; 0 while nothing is there. Atomic. */
    size_t size;
    uint64_t pad_;
} shmi_head;

/* A closed thing is used again only after SHMI_SPARES further closes of its size: calls of other threads may still read it. */
enum { SHMI_SPARES = 64, SHMI_SPARE_SIZES = 48 };

typedef struct shmi_spares {
    size_t size, n;
    shmi_head *first, *last;
} shmi_spares;

static pthread_mutex_t shmi_spares_lock = PTHREAD_MUTEX_INITIALIZER; /* forks take it */
static shmi_spares shmi_spare[SHMI_SPARE_SIZES];                      /* guarded by: shmi_spares_lock */
static uint64_t shmi_serials;                                        /* atomic */

SHMI_FN shmi_head *shmi_head_of(const void *thing) { return (shmi_head *)(uintptr_t)thing - 1; }

/* The spare things of that size; NULL where there are more sizes than this header has kinds. */
SHMI_FN shmi_spares *shmi_spares_of(size_t size)
{
    int i;
    for (i = 0; i < SHMI_SPARE_SIZES; i++) {
        if (shmi_spare[i].size == 0)
            shmi_spare[i].size = size;
        if (shmi_spare[i].size == size)
            return &shmi_spare[i];
    }
    return NULL;
}

/* Memory for size bytes behind a head; NULL: there is none. The bytes are zero. */
SHMI_FN void *shmi_new_thing(size_t size)
{
    shmi_head *h = NULL;
    shmi_spares *s;
    pthread_mutex_lock(&shmi_spares_lock);
    s = shmi_spares_of(size);
    if (s != NULL && s->n > SHMI_SPARES) {
        h = s->first;
        s->first = h->next;
        s->n--;
    }
    pthread_mutex_unlock(&shmi_spares_lock);
    if (h != NULL)
        memset(h + 1, 0, size);
    else if ((h = (shmi_head *)calloc(1, sizeof *h + size)) == NULL)
        return NULL;
    h->next = NULL;
    h->size = size;
    __atomic_store_n(&h->serial, shmi_add64(&shmi_serials, 1) + 1, __ATOMIC_RELEASE);
    return h + 1;
}

/* From now on a call with a handle on it fails with EBADF. */
SHMI_FN void shmi_close_thing(void *thing) { __atomic_store_n(&shmi_head_of(thing)->serial, 0, __ATOMIC_RELEASE); }

SHMI_FN void shmi_free_thing(void *thing)
{
    shmi_head *h = shmi_head_of(thing);
    shmi_spares *s;
    shmi_close_thing(thing);
    h->next = NULL;
    pthread_mutex_lock(&shmi_spares_lock);
    s = shmi_spares_of(h->size);
    if (s != NULL) {
        if (s->n++ == 0)
            s->first = h;
        else
            s->last->next = h;
        s->last = h;
    }
    pthread_mutex_unlock(&shmi_spares_lock);
}

/* The number for a handle on thing; one that no thing has if it was closed meanwhile. */
SHMI_FN uint64_t shmi_serial_of(const void *thing)
{
    uint64_t serial = thing != NULL ? __atomic_load_n(&shmi_head_of(thing)->serial, __ATOMIC_RELAXED) : 0;
    return serial != 0 ? serial : UINT64_MAX;
}

/* Whether a handle with this number is open. No handle on a thing has number 0. */
SHMI_FN int shmi_is_open(const void *thing, uint64_t serial)
{
    return SHMI_LIKELY(thing != NULL) && SHMI_LIKELY(__atomic_load_n(&shmi_head_of(thing)->serial, __ATOMIC_ACQUIRE) == serial);
}

/* The failure of a call with a closed handle; function is its name. */
SHMI_COLD int shmi_closed(const char *function)
{
    char op[64], *p;
    snprintf(op, sizeof op, "%s", strncmp(function, "shmsync_", 8) == 0 ? function + 8 : function);
    p = strchr(op, '_');
    if (p != NULL)
        *p = '.';
    return shmi_fail(EBADF, op, NULL, "the handle was closed, or was never opened");
}

/* At the head of each function with a handle: it returns EBADF, or value, if the handle is closed. */
#define SHMI_OPENED(handle) SHMI_OPENED_AS(handle, __func__)
#define SHMI_OPENED_AS(handle, function)                         \
    do {                                                         \
        SHMI_BEGIN();                                            \
        if (!shmi_is_open((handle)->impl, (handle)->serial))     \
            return shmi_closed(function);                        \
    } while (0)
#define SHMI_OPENED_OR(handle, value)                            \
    do {                                                         \
        if (!shmi_is_open((handle)->impl, (handle)->serial)) {   \
            shmi_closed(__func__);                               \
            return value;                                        \
        }                                                        \
    } while (0)

/* Makes handle one on thing. 0, or why there is none: shmi_share has told. */
#define SHMI_HAND_OUT(handle, type, thing) \
    ((handle)->impl = (type)(thing), (handle)->serial = shmi_serial_of((handle)->impl), (handle)->impl != NULL ? 0 : shmi_last.err != 0 ? shmi_last.err : ENOMEM)

/* ---- Objects and the directory of their names ---- */

#define SHMI_GONE UINT64_MAX /* a tombstone */
#define SHMI_OFF_MASK UINT64_C(0xffffffffffff)

SHMI_FN uint32_t shmi_object_phase(uint32_t s) { return s & 7; }
SHMI_FN shmi_participant_id shmi_object_name(uint32_t s) { return s >> 3; }
SHMI_FN uint32_t shmi_make_object(uint32_t phase, shmi_participant_id n) { return phase | n << 3; }
SHMI_FN int shmi_object_there(uint32_t s) { return shmi_object_phase(s) == SHMI_objectCommitted || shmi_object_phase(s) == SHMI_objectDeleting; }
SHMI_FN int shmi_object_legal(uint32_t s)
{
    if (shmi_object_phase(s) == SHMI_objectCommitted)
        return shmi_object_name(s) == 0;
    return shmi_object_phase(s) <= SHMI_objectDeleting && shmi_id_valid(shmi_object_name(s));
}

/* What people call an object. */
SHMI_FN const char *shmi_called(const shmi_object *o) { return o->name_len != 0 ? o->name : "(anonymous)"; }

SHMI_FN uint64_t shmi_open_bytes(const shmsync_arena *a) { return ((uint64_t)a->geo.slots / 32 + 1) * 4; }

SHMI_COLD int shmi_corrupt_object(shmsync_arena *a, shmi_off off, const char *what)
{
    return shmi_fail(EPROTO, "arena.object", a->label, "the object at 0x%llx has an impossible %s", (unsigned long long)off, what);
}
SHMI_COLD int shmi_no_object(shmsync_arena *a, shmi_off off)
{
    return shmi_fail(EINVAL, "arena.object", a->label, "there is no object at offset 0x%llx", (unsigned long long)off);
}

SHMI_FN int shmi_utf8(const char *s, size_t n)
{
    const unsigned char *p = (const unsigned char *)s;
    size_t i = 0;
    while (i < n) {
        unsigned c = p[i], more, low;
        if (c < 0x80) {
            i++;
            continue;
        }
        if (c >= 0xc2 && c <= 0xdf)
            more = 1;
        else if (c >= 0xe0 && c <= 0xef)
            more = 2;
        else if (c >= 0xf0 && c <= 0xf4)
            more = 3;
        else
            return 0;
        if (n - i <= more)
            return 0;
        low = p[i + 1];
        if ((c == 0xe0 && low < 0xa0) || (c == 0xed && low > 0x9f) || (c == 0xf0 && low < 0x90) || (c == 0xf4 && low > 0x8f))
            return 0;
        for (i++; more > 0; more--, i++)
            if ((p[i] & 0xc0) != 0x80)
                return 0;
    }
    return 1;
}

/* Reads the header of the object in b, once. The caller guards the block, or has the
 * object open. */
SHMI_FN int shmi_read_header(shmsync_arena *a, const shmi_block *b, shmi_header *h)
{
    uint32_t version = shmi_ld32(shmi_u32(a, b->off + SHMI_objVersion));
    uint64_t name_len = version >> 16;
    uint64_t name_off = shmi_ld32(shmi_u32(a, b->off + SHMI_objNameOff));
    uint64_t open_ = shmi_ld32(shmi_u32(a, b->off + SHMI_objOpenOff));
    uint64_t bits = shmi_open_bytes(a);
    h->block = *b;
    h->state = shmi_u32(a, b->off + SHMI_objState);
    h->o.off = b->off;
    h->o.body = b->off + SHMI_objectHeader;
    h->o.size = shmi_ld64(shmi_u64(a, b->off + SHMI_objSize));
    h->o.kind = shmi_ld32(shmi_u32(a, b->off + SHMI_objKind));
    h->o.version = (uint16_t)version;
    h->o.layout = shmi_ld64(shmi_u64(a, b->off + SHMI_objLayout));
    h->hash = shmi_ld64(shmi_u64(a, b->off + SHMI_objHash));
    h->open_bits = b->off + open_;
    if (h->o.size > b->size - SHMI_objectHeader)
        return shmi_corrupt_object(a, b->off, "size");
    if (open_ < SHMI_objectHeader + h->o.size || open_ % 4 != 0 || open_ > b->size || bits > b->size - open_)
        return shmi_corrupt_object(a, b->off, "place of its open bits");
    if (name_len > SHMI_maxObjectName || name_off < open_ + bits || name_off > b->size || name_len > b->size - name_off)
        return shmi_corrupt_object(a, b->off, "place of its name");
    memcpy(h->o.name, shmi_bytes(a, b->off + name_off, name_len), name_len);
    h->o.name[name_len] = 0;
    h->o.name_len = (uint16_t)name_len;
    if (!shmi_utf8(h->o.name, name_len) || h->hash != shmi_fnv(h->o.name, name_len))
        return shmi_corrupt_object(a, b->off, "name");
    return 0;
}

/* Reads the header of the object at off, which the caller guards. */
SHMI_FN int shmi_header_at(shmsync_arena *a, shmi_off off, shmi_header *h)
{
    shmi_block b, now;
    if (shmi_locate(a, off, &b) && shmi_ld32(b.word) == shmi_make_block(SHMI_blockObject, 0) && shmi_locate(a, off, &now) &&
        now.size == b.size && now.word == b.word)
        return shmi_read_header(a, &b, h);
    return shmi_no_object(a, off);
}

SHMI_FN uint32_t *shmi_open_bit(shmsync_arena *a, const shmi_header *h, uint32_t slot, uint32_t *mask)
{
    *mask = 1u << slot % 32;
    return shmi_u32(a, h->open_bits + slot / 32 * 4);
}

/* ---- Guards ---- */

SHMI_FN int shmi_guarded(shmsync_arena *a, shmi_off off)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        if (shmi_ld64(shmi_slot64(a, i, SHMI_slotOpening)) != off && shmi_ld64(shmi_slot64(a, i, SHMI_slotWalking)) != off)
            continue;
        if (shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))))
            return 1;
    }
    return 0;
}

/* shmi_release for a block that was in the directory, or was an object: it waits, as
 * freeing by this process, until nobody guards it. The caller holds handles. */
SHMI_FN void shmi_release_unseen(shmsync_arena *a, const shmi_block *b, uint32_t w)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    if (!shmi_guarded(a, b->off)) {
        shmi_free_nodes_at(a, b->off); /* last, when no reaper looks at them any more */
        SHMSYNC_CRASHPOINT("arena.delete.nodes_freed");
        shmi_release(a, b, w);
        return;
    }
    shmi_touch(a, b->chunk);
    if (w == freeing || shmi_block_swap(b, w, freeing)) {
        if (a->n_deferred == a->cap_deferred) {
            size_t cap = a->cap_deferred != 0 ? 2 * a->cap_deferred : 16;
            shmi_off *more = (shmi_off *)realloc(a->deferred, cap * sizeof *more);
            if (more == NULL)
                return; /* it goes back when this process leaves */
            a->deferred = more;
            a->cap_deferred = cap;
        }
        a->deferred[a->n_deferred++] = b->off;
    }
}
/* Releases what had to wait. The caller holds handles. */
SHMI_FN void shmi_release_deferred(shmsync_arena *a)
{
    size_t n = a->n_deferred, i;
    shmi_off *waiting = a->deferred;
    a->deferred = NULL;
    a->n_deferred = a->cap_deferred = 0;
    for (i = 0; i < n; i++) {
        shmi_block b;
        if (shmi_locate(a, waiting[i], &b))
            shmi_release_unseen(a, &b, shmi_make_block(SHMI_blockFreeing, a->self));
    }
    free(waiting);
}
SHMI_FN void shmi_flush_deferred(shmsync_arena *a)
{
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    pthread_mutex_unlock(&a->handles);
}

/* ---- Directory ---- */

SHMI_FN int shmi_entry_used(uint64_t e) { return e != 0 && e != SHMI_GONE; }
SHMI_FN uint64_t shmi_make_entry(shmi_off off, uint64_t hash) { return (off & SHMI_OFF_MASK) | (hash & ~SHMI_OFF_MASK); }
SHMI_FN uint64_t *shmi_entry(shmsync_arena *a, uint64_t pos) { return shmi_u64(a, a->geo.dir_off + pos * 8); }
/* How far a search may have to go. hdrDirLowering tells whether a participant lowers the reach: see
 * internal/arenakernel/directory_lower.go. */
SHMI_FN uint64_t shmi_reach(shmsync_arena *a)
{
    int tries;
    for (tries = 0; tries < 16; tries++) {
        uint64_t w = shmi_ld64(shmi_u64(a, SHMI_hdrDirLowering)), r = shmi_ld32(shmi_u32(a, SHMI_hdrDirReach));
        if ((w >> 32 & 1) != 0 && r < (w & UINT32_MAX))
            r = w & UINT32_MAX;
        if (shmi_ld64(shmi_u64(a, SHMI_hdrDirLowering)) == w)
            return r < a->geo.dir_count ? r : a->geo.dir_count - 1;
    }
    return a->geo.dir_count - 1;
}
SHMI_FN void shmi_raise_reach(shmsync_arena *a, uint64_t k)
{
    uint32_t *reach = shmi_u32(a, SHMI_hdrDirReach), r;
    for (r = shmi_ld32(reach); r < k && !shmi_cas32(reach, r, (uint32_t)k); r = shmi_ld32(reach)) {
    }
}

/* How far from the place of its hash the furthest entry is; one that does not tell is as far as can be. */
SHMI_FN uint64_t shmi_furthest(shmsync_arena *a)
{
    uint64_t pos, far = 0;
    shmi_worked(a, a->geo.dir_count);
    for (pos = 0; pos < a->geo.dir_count; pos++) {
        uint64_t *word = shmi_entry(a, pos), e = shmi_ld64(word), distance = a->geo.dir_count - 1;
        shmi_block b;
        if (!shmi_entry_used(e))
            continue;
        shmi_guard(a, e & SHMI_OFF_MASK); /* its block is not reused, so the hash is that of the entry */
        if (shmi_ld64(word) != e)
            continue;
        if (shmi_locate(a, e & SHMI_OFF_MASK, &b) && b.size >= SHMI_objectHeader) {
            uint64_t hash = shmi_ld64(shmi_u64(a, b.off + SHMI_objHash));
            if (hash >> 48 == e >> 48)
                distance = (pos - hash) & (a->geo.dir_count - 1);
        }
        if (distance > far)
            far = distance;
    }
    shmi_unguard(a);
    return far;
}
/* Makes the reach as small as the entries allow, unless another participant does. The caller
 * holds handles. */
SHMI_FN void shmi_lower_reach(shmsync_arena *a)
{
    uint32_t *owner = shmi_u32(a, SHMI_hdrDirLowerer), *reach = shmi_u32(a, SHMI_hdrDirReach);
    uint64_t *word = shmi_u64(a, SHMI_hdrDirLowering), w;
    shmi_participant_id u = shmi_ld32(owner);
    if ((u != a->self && shmi_current(a, u)) || !shmi_take_from32(a, u, owner, u, a->self, 0))
        return;
    w = shmi_ld64(word) >> 32;
    if ((w & 1) == 0) { /* else its lowerer died: the second check is due */
        uint32_t r = shmi_ld32(reach);
        uint64_t far;
        shmi_st64(word, (uint64_t)(uint32_t)++w << 32 | r);
        far = shmi_furthest(a);
        if (far < r)
            shmi_cas32(reach, r, (uint32_t)far);
    }
    shmi_raise_reach(a, shmi_furthest(a));
    shmi_st64(word, (uint64_t)(uint32_t)(w + 1) << 32);
    shmi_cas32(owner, a->self, 0);
}
/* Lowers the reach when searches of this process have passed more entries that are gone than the
 * looks at all entries cost. The caller holds handles. */
SHMI_FN void shmi_lower_reach_if_due(shmsync_arena *a)
{
    uint64_t before, ratio = 2 * a->geo.dir_count;
    if (a->passed <= a->lower_after + ratio)
        return;
    a->passed = 0;
    before = shmi_reach(a);
    shmi_lower_reach(a);
    if (shmi_reach(a) <= before / 2)
        a->lower_after = 0;
    else /* some name is that far; it may go soon, so the delay has a bound */
        a->lower_after = a->lower_after == 0 ? ratio : a->lower_after < 8 * ratio ? 2 * a->lower_after : 8 * ratio;
}

/* Puts the object at off into the directory; 0 when that is full. */
SHMI_FN int shmi_place(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t mine = shmi_make_entry(off, hash), k;
    for (k = 0; k < a->geo.dir_count; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e;
        for (e = shmi_ld64(word); !shmi_entry_used(e); e = shmi_ld64(word)) {
            shmi_raise_reach(a, k);
            if (shmi_cas64(word, e, mine)) {
                shmi_raise_reach(a, k); /* a concurrent lowering may not have seen the entry */
                return 1;
            }
        }
    }
    return 0;
}

/* The entry of the object at off, wherever it is; NULL if there is none. */
SHMI_FN uint64_t *shmi_find_entry(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t mine = shmi_make_entry(off, hash), k;
    for (k = 0; k < a->geo.dir_count; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e = shmi_ld64(word);
        if (e == 0 || e == mine)
            return e != 0 ? word : NULL;
    }
    return NULL;
}

/* Removes the object at off from the directory. */
SHMI_FN void shmi_unlist(shmsync_arena *a, shmi_off off, uint64_t hash)
{
    uint64_t *word = shmi_find_entry(a, off, hash);
    if (word != NULL)
        shmi_cas64(word, shmi_make_entry(off, hash), SHMI_GONE);
}

/* Guards the object of entry e and reads its header. 0 with *same set; *same is 0 when
 * the entry has changed. The caller calls shmi_unguard in any case. */
SHMI_FN int shmi_enter_entry(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_header *h, int *same)
{
    shmi_block b;
    shmi_off off = e & SHMI_OFF_MASK;
    *same = 0;
    SHMSYNC_CRASHPOINT("arena.object.found");
    shmi_guard(a, off);
    if (shmi_ld64(word) != e)
        return 0;
    if (shmi_locate(a, off, &b)) {
        uint32_t kind = shmi_block_kind(shmi_ld32(b.word));
        if (kind == SHMI_blockClaimed || kind == SHMI_blockObject || kind == SHMI_blockFreeing) {
            int err = shmi_read_header(a, &b, h);
            SHMSYNC_CRASHPOINT("arena.object.entered");
            *same = err == 0;
            return err;
        }
    }
    return shmi_fail(EPROTO, "arena.object", a->label, "a name leads to 0x%llx, where there is no object", (unsigned long long)off);
}

SHMI_FN shmi_ref **shmi_refs_at(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    /* Fibonacci hashing: blocks of one size class differ in few bits. */
    return &a->refs[off * UINT64_C(0x9e3779b97f4a7c15) >> (64 - a->refs_log)];
}
/* The place of the reference to the object at off, or where one is added; NULL if there is no table. */
SHMI_FN shmi_ref **shmi_ref_place(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p;
    if (a->refs == NULL)
        return NULL;
    for (p = shmi_refs_at(a, off); *p != NULL && (*p)->h.o.off != off; p = &(*p)->next)
        a->refs_passed++;
    return p;
}
SHMI_FN shmi_ref *shmi_ref_of(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p = shmi_ref_place(a, off);
    return p != NULL ? *p : NULL;
}
/* Makes room for one more reference, with a table of at least as many lists; 0 when there is no memory. */
SHMI_FN int shmi_grow_refs(shmsync_arena *a) /* guarded by: handles */
{
    uint32_t log = a->refs != NULL ? a->refs_log : 0, i;
    shmi_ref **before = a->refs, **more, *r, *next, **p;
    if (before != NULL && a->n_refs >> log == 0)
        return 1;
    more = (shmi_ref **)calloc((size_t)1 << (before != NULL ? log + 1 : 4), sizeof *more);
    if (more == NULL)
        return before != NULL;
    a->refs = more;
    a->refs_log = before != NULL ? log + 1 : 4;
    for (i = 0; before != NULL && i < UINT32_C(1) << log; i++)
        for (r = before[i]; r != NULL; r = next) {
            next = r->next;
            p = shmi_refs_at(a, r->h.o.off);
            r->next = *p;
            *p = r;
        }
    free(before);
    return 1;
}

/* Notes that this process has h open. */
SHMI_FN int shmi_remember(shmsync_arena *a, const shmi_header *h, int kept)
{
    shmi_ref *r = shmi_grow_refs(a) ? (shmi_ref *)calloc(1, sizeof *r) : NULL, **p;
    if (r == NULL)
        return shmi_fail(ENOMEM, "arena.open_object", shmi_called(&h->o), "%s", "");
    r->h = *h;
    r->count = 1;
    r->kept = kept;
    p = shmi_refs_at(a, h->o.off);
    r->next = *p;
    *p = r;
    a->n_refs++;
    return 0;
}

SHMI_FN int shmi_unfinished(shmsync_arena *a, shmi_participant_id dead);

/* Closes the object at off once; 0 if this process has not opened it. */
SHMI_FN int shmi_forget(shmsync_arena *a, shmi_off off) /* guarded by: handles */
{
    shmi_ref **p = shmi_ref_place(a, off), *r = p != NULL ? *p : NULL;
    if (r == NULL)
        return 0;
    if (--r->count == 0) {
        uint32_t mask, *word = shmi_open_bit(a, &r->h, a->my_slot, &mask);
        if (!r->kept || !shmi_unfinished(a, a->self)) /* else the undo will write into the object */
            shmi_and32(word, ~mask);
        *p = r->next;
        a->n_refs--;
        free(r);
    }
    return 1;
}

/* Opens the object h, which the caller guards. *there is 0 when it is not there, or
 * not any more. */
SHMI_FN int shmi_adopt(shmsync_arena *a, shmi_header *h, int *there)
{
    shmi_ref *ref = shmi_ref_of(a, h->o.off);
    uint32_t mask, *word;
    int tries, kept;
    *there = 0;
    if (ref != NULL) {
        ref->count++;
        *there = 1;
        return 0;
    }
    shmi_touch(a, h->block.chunk);
    word = shmi_open_bit(a, h, a->my_slot, &mask);
    kept = (shmi_or32(word, mask) & mask) != 0;
    SHMSYNC_CRASHPOINT("arena.object.bit_set");
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (tries >= SHMI_claimTries)
            sched_yield();
        if (!shmi_object_legal(s))
            break;
        if (shmi_object_phase(s) == SHMI_objectDeleting) {
            /* The deletion is cancelled, and with our bit set no other is decided. */
            SHMSYNC_CRASHPOINT("arena.object.cancelling");
            if (!shmi_cas32(h->state, s, shmi_make_object(SHMI_objectCommitted, 0)))
                continue;
            *there = 1;
        } else if (shmi_object_phase(s) == SHMI_objectCommitted) {
            uint32_t w = shmi_ld32(h->block.word); /* the maker may be dead before it could publish */
            if (shmi_block_kind(w) == SHMI_blockClaimed)
                shmi_block_swap(&h->block, w, shmi_make_block(SHMI_blockObject, 0));
            *there = 1;
        } else {
            return 0; /* the bit goes with the object */
        }
        if (shmi_remember(a, h, kept) != 0) {
            *there = 0;
            shmi_and32(word, ~mask);
            return ENOMEM;
        }
        return 0;
    }
    shmi_and32(word, ~mask);
    return shmi_corrupt_object(a, h->o.off, "phase");
}

/* Aborts h if it is pending. A living maker that has placed its object before ours
 * gets some time to commit it. */
SHMI_FN void shmi_outvote(shmsync_arena *a, shmi_header *h, int wait)
{
    int tries;
    for (tries = 0;; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (shmi_object_phase(s) != SHMI_objectPending || !shmi_object_legal(s))
            return;
        if (wait && tries < SHMI_timeout && shmi_current(a, shmi_object_name(s))) {
            sched_yield();
            continue;
        }
        shmi_cas32(h->state, s, shmi_make_object(SHMI_objectAborted, shmi_object_name(s)));
        return;
    }
}

/* Finds the object of that name and opens it. A maker that has placed its own object
 * at mine passes that; pending objects of the name are waited for a little if they
 * were placed before ours, and aborted. The caller holds handles. */
SHMI_FN int shmi_seek(shmsync_arena *a, const char *name, size_t len, uint64_t hash, shmi_off mine, shmi_header *h, int *found)
{
    uint64_t reach = shmi_reach(a), k;
    int first = 1;
    *found = 0;
    for (k = 0; k <= reach; k++) {
        uint64_t *word = shmi_entry(a, (hash + k) & (a->geo.dir_count - 1)), e = shmi_ld64(word);
        int same, err;
        uint32_t s;
        if (e == 0)
            return 0;
        if (e == SHMI_GONE)
            a->passed++;
        if (!shmi_entry_used(e) || e >> 48 != hash >> 48)
            continue;
        if (mine != 0 && (e & SHMI_OFF_MASK) == mine) {
            first = 0;
            continue;
        }
        err = shmi_enter_entry(a, word, e, h, &same);
        if (!same) {
            shmi_unguard(a);
            if (err != 0)
                return err;
            continue;
        }
        if (h->hash != hash || h->o.name_len != len || memcmp(h->o.name, name, len) != 0) {
            shmi_unguard(a);
            continue;
        }
        if (mine != 0)
            shmi_outvote(a, h, first);
        s = shmi_ld32(h->state);
        if (!shmi_object_there(s) && shmi_object_legal(s)) {
            shmi_unguard(a);
            continue;
        }
        err = shmi_adopt(a, h, found);
        shmi_unguard(a);
        if (err != 0 || *found)
            return err;
    }
    return 0;
}

SHMI_FN void shmi_resolve_entry(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_participant_id dead)
{
    shmi_block b;
    uint32_t w;
    if (!shmi_locate(a, e & SHMI_OFF_MASK, &b))
        return;
    w = shmi_ld32(b.word);
    if (shmi_block_name(w) != dead || (shmi_block_kind(w) != SHMI_blockClaimed && shmi_block_kind(w) != SHMI_blockFreeing))
        return;
    if (shmi_block_kind(w) == SHMI_blockClaimed) {
        uint32_t *state = shmi_u32(a, b.off + SHMI_objState);
        shmi_cas32(state, shmi_make_object(SHMI_objectPending, dead), shmi_make_object(SHMI_objectAborted, dead));
        if (shmi_object_there(shmi_ld32(state))) {
            shmi_block_swap(&b, w, shmi_make_block(SHMI_blockObject, 0));
            return;
        }
    }
    shmi_cas64(word, e, SHMI_GONE);
}
SHMI_FN void shmi_resolve_guarded(shmsync_arena *a, uint64_t *word, uint64_t e, shmi_participant_id dead)
{
    shmi_guard(a, e & SHMI_OFF_MASK);
    if (shmi_ld64(word) == e)
        shmi_resolve_entry(a, word, e, dead);
    shmi_unguard(a);
}

typedef struct shmi_resolve_arg {
    shmi_participant_id dead;
    int whole; /* a block does not say which name it has, if any */
} shmi_resolve_arg;
/* For the block at off, which dead may have claimed, or be freeing. */
SHMI_FN int shmi_resolve_name_of(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_resolve_arg *s = (shmi_resolve_arg *)arg;
    shmi_block b;
    shmi_header h;
    uint64_t *word;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || shmi_block_name(shmi_ld32(b.word)) != s->dead)
        return 1;
    /* The name and its hash are there before the entry, and until the block is free. */
    if (shmi_ld32(shmi_u32(a, off + SHMI_objKind)) == 0 && shmi_ld64(shmi_u64(a, off + SHMI_objHash)) == 0)
        return 1;
    if (shmi_read_header(a, &b, &h) != 0) {
        s->whole = 1;
    } else if (h.o.name_len != 0) {
        word = shmi_find_entry(a, off, h.hash);
        if (word != NULL)
            shmi_resolve_guarded(a, word, shmi_make_entry(off, h.hash), s->dead);
    }
    return 1;
}
/* Publishes what dead had committed and removes the names of what it had not, or had
 * begun to free. The caller is the reaper of dead and holds handles. */
SHMI_FN void shmi_resolve_entries(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_resolve_arg arg;
    uint64_t pos;
    arg.dead = dead;
    arg.whole = 0;
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockClaimed, shmi_resolve_name_of, &arg);
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockFreeing, shmi_resolve_name_of, &arg);
    if (!arg.whole)
        return;
    shmi_worked(a, a->geo.dir_count);
    for (pos = 0; pos < a->geo.dir_count; pos++) {
        uint64_t *word = shmi_entry(a, pos), e = shmi_ld64(word);
        if (shmi_entry_used(e))
            shmi_resolve_guarded(a, word, e, dead);
    }
}

/* ---- Making and opening ---- */

/* Which object to open, and how to make it. */
typedef struct shmi_spec {
    uint32_t kind;
    uint16_t version;
    int any_size;     /* an existing object of another size will do */
    int any_layout;   /* an existing object of another fingerprint will do */
    int existing;     /* a missing object is ENOENT */
    const char *name; /* NULL or "": a fresh anonymous one */
    uint64_t size;    /* of the body */
    uint64_t layout;
    /* Fills in the body of a new object, which is zero. It may be called for an object
     * that is thrown away. */
    void (*init)(unsigned char *body, const void *arg);
    const void *arg;
} shmi_spec;

/* Claims a block and makes a whole object of it, which nobody can find yet. */
SHMI_FN int shmi_build(shmsync_arena *a, const shmi_spec *spec, size_t len, uint64_t hash, uint32_t state, shmi_header *h)
{
    uint64_t open_ = (SHMI_objectHeader + spec->size + 7) & ~UINT64_C(7), name_off = open_ + shmi_open_bytes(a);
    uint32_t mask, *word;
    shmi_block b;
    shmi_off off;
    int err = shmi_claim(a, name_off + len, &off);
    if (err != 0)
        return err;
    shmi_st32(shmi_u32(a, off + SHMI_objKind), spec->kind);
    shmi_st32(shmi_u32(a, off + SHMI_objVersion), spec->version | (uint32_t)len << 16);
    shmi_st32(shmi_u32(a, off + SHMI_objNameOff), (uint32_t)name_off);
    shmi_st64(shmi_u64(a, off + SHMI_objSize), spec->size);
    shmi_st64(shmi_u64(a, off + SHMI_objHash), hash);
    shmi_st64(shmi_u64(a, off + SHMI_objCreated), (uint64_t)shmi_unix_now());
    shmi_st32(shmi_u32(a, off + SHMI_objOpenOff), (uint32_t)open_);
    shmi_st64(shmi_u64(a, off + SHMI_objLayout), spec->layout);
    if (len > 0)
        memcpy(shmi_bytes(a, off + name_off, len), spec->name, len);
    if (spec->init != NULL)
        spec->init(shmi_bytes(a, off + SHMI_objectHeader, spec->size), spec->arg);
    err = shmi_locate(a, off, &b) ? shmi_read_header(a, &b, h) : shmi_meddled(a, off);
    if (err != 0) {
        shmi_unclaim(a, off);
        return err;
    }
    word = shmi_open_bit(a, h, a->my_slot, &mask);
    shmi_or32(word, mask);
    shmi_st32(h->state, state);
    return 0;
}

/* Takes back an object of ours that has not been committed. Others may be looking at it. */
SHMI_FN void shmi_withdraw(shmsync_arena *a, shmi_header *h)
{
    shmi_cas32(h->state, shmi_make_object(SHMI_objectPending, a->self), shmi_make_object(SHMI_objectAborted, a->self));
    shmi_unlist(a, h->o.off, h->hash);
    SHMSYNC_CRASHPOINT("arena.object.withdrawing");
    shmi_release_unseen(a, &h->block, shmi_make_block(SHMI_blockClaimed, a->self));
}

/* Makes the object, or opens the one that another participant has made meanwhile: then
 * *found. EAGAIN: outvoted, look again. */
SHMI_FN int shmi_create_named(shmsync_arena *a, const shmi_spec *spec, size_t len, uint64_t hash, shmi_header *h, int *found)
{
    uint32_t pending = shmi_make_object(SHMI_objectPending, a->self);
    shmi_header mine, *m = &mine;
    int err = shmi_build(a, spec, len, hash, pending, m);
    *found = 0;
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    SHMSYNC_CRASHPOINT("arena.object.before_place");
    if (!shmi_place(a, m->o.off, hash)) {
        shmi_withdraw(a, m);
        err = shmi_fail(ENOSPC, "arena.open_object", spec->name, "all %llu names of the directory are in use", (unsigned long long)a->geo.dir_count);
    } else {
        SHMSYNC_CRASHPOINT("arena.object.placed");
        err = shmi_seek(a, spec->name, len, hash, m->o.off, h, found);
        if (*found || err != 0) {
            shmi_withdraw(a, m);
        } else {
            SHMSYNC_CRASHPOINT("arena.object.before_commit");
            if (!shmi_cas32(m->state, pending, shmi_make_object(SHMI_objectCommitted, 0))) {
                shmi_withdraw(a, m);
                err = EAGAIN;
            } else {
                err = shmi_remember(a, m, 0);
                SHMSYNC_CRASHPOINT("arena.object.committed");
                if (shmi_publish(a, m->o.off, SHMI_blockObject) != 0 && shmi_block_kind(shmi_ld32(m->block.word)) != SHMI_blockObject && err == 0)
                    err = EPROTO;
                *h = *m;
            }
        }
    }
    pthread_mutex_unlock(&a->handles);
    return err;
}

SHMI_FN void shmi_close_object(shmsync_arena *a, shmi_off off)
{
    pthread_mutex_lock(&a->handles);
    shmi_forget(a, off);
    pthread_mutex_unlock(&a->handles);
}

SHMI_FN const char *shmi_kind_text(uint32_t kind, char out[5])
{
    int i;
    for (i = 0; i < 4; i++) {
        char c = (char)(kind >> 8 * i & 0xff);
        out[i] = c >= ' ' && c <= '~' ? c : '?';
    }
    out[4] = 0;
    return out;
}

/* Compares what is there with what was asked for. */
SHMI_FN int shmi_compatible(const shmi_object *o, const shmi_spec *spec)
{
    char is[5], want[5];
    shmi_kind_text(o->kind, is);
    shmi_kind_text(spec->kind, want);
    if (o->kind != spec->kind)
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it is a %s, asked for a %s", is, want);
    if (o->version != spec->version)
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it has version %u of the layout of a %s, asked for %u", o->version, is, spec->version);
    if ((o->size != spec->size && !spec->any_size) || (o->layout != spec->layout && !spec->any_layout))
        return shmi_fail(EINVAL, "arena.open_object", shmi_called(o), "it has %llu bytes and fingerprint %#llx, asked for %llu and %#llx",
                         (unsigned long long)o->size, (unsigned long long)o->layout, (unsigned long long)spec->size, (unsigned long long)spec->layout);
    return 0;
}

SHMI_FN int shmi_open_entered(shmsync_arena *a, const shmi_spec *spec, shmi_object *o, int *created)
{
    size_t len = spec->name != NULL ? strlen(spec->name) : 0;
    uint64_t hash = shmi_fnv(spec->name, len);
    shmi_header h;
    int tries, err, found;
    *created = 0;
    if (len > SHMI_maxObjectName || !shmi_utf8(spec->name, len))
        return shmi_fail(EINVAL, "arena.open_object", NULL, "a name is 1 to 255 bytes of UTF-8");
    if (spec->size > SHMI_MaxObject)
        return shmi_fail(ENOTSUP, "arena.open_object", spec->name, "a body of %llu bytes", (unsigned long long)spec->size);
    if (len == 0 && spec->existing)
        return shmi_fail(EINVAL, "arena.open_object", NULL, "an anonymous object has no name to be found by");
    if (len == 0) {
        err = shmi_build(a, spec, 0, hash, shmi_make_object(SHMI_objectCommitted, 0), &h);
        if (err != 0)
            return err;
        pthread_mutex_lock(&a->handles);
        SHMSYNC_CRASHPOINT("arena.object.before_publish");
        err = shmi_publish(a, h.o.off, SHMI_blockObject);
        if (err == 0)
            err = shmi_remember(a, &h, 0);
        pthread_mutex_unlock(&a->handles);
        *o = h.o;
        *created = err == 0;
        return err;
    }
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        pthread_mutex_lock(&a->handles);
        shmi_lower_reach_if_due(a);
        err = shmi_seek(a, spec->name, len, hash, 0, &h, &found);
        pthread_mutex_unlock(&a->handles);
        if (err == 0 && !found && spec->existing)
            err = shmi_fail(ENOENT, "arena.open_object", spec->name, "nobody has created an object of this name");
        if (err == 0 && !found) {
            err = shmi_create_named(a, spec, len, hash, &h, &found);
            if (err == 0 && !found) {
                *o = h.o;
                *created = 1;
                return 0;
            }
        }
        if (err == EAGAIN) {
            sched_yield();
            continue;
        }
        if (err != 0)
            return err;
        SHMSYNC_CRASHPOINT("arena.object.opened");
        err = shmi_compatible(&h.o, spec);
        if (err != 0)
            shmi_close_object(a, h.o.off);
        *o = h.o;
        return err;
    }
    return shmi_fail(EPROTO, "arena.open_object", spec->name, "others keep making and taking away this name");
}
/* Finds the object of that name or creates it. It stays there for this process until
 * shmi_close_object. */
SHMI_FN int shmi_open_object(shmsync_arena *a, const shmi_spec *spec, shmi_object *o, int *created)
{
    int err = shmi_enter(a, "arena.open_object");
    *created = 0;
    if (err != 0)
        return err;
    err = shmi_open_entered(a, spec, o, created);
    shmi_exit(a);
    return err;
}

/* Opens the object at off. The caller holds handles. */
SHMI_FN int shmi_open_at(shmsync_arena *a, shmi_off off, shmi_header *h)
{
    int there = 0, err;
    shmi_guard(a, off);
    err = shmi_header_at(a, off, h);
    if (err == 0)
        err = shmi_adopt(a, h, &there);
    shmi_unguard(a);
    return err != 0 || there ? err : shmi_no_object(a, off);
}

/* Opens the object at an offset that may have come from a peer, if it is of that kind
 * and at least that size. */
SHMI_FN int shmi_object_at(shmsync_arena *a, shmi_off off, const char *op, uint32_t kind, uint16_t version, uint64_t size, shmi_object *o)
{
    shmi_header h;
    char is[5];
    int err;
    err = shmi_enter(a, op);
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles);
    err = shmi_open_at(a, off, &h);
    pthread_mutex_unlock(&a->handles);
    shmi_exit(a);
    if (err != 0)
        return err;
    *o = h.o;
    if (o->kind != kind || o->version != version || o->size < size) {
        shmi_close_object(a, off);
        return shmi_fail(EINVAL, op, shmi_called(o), "it is a %s of version %u and %llu bytes", shmi_kind_text(o->kind, is), o->version, (unsigned long long)o->size);
    }
    return 0;
}

/* ---- Deleting ---- */

/* Whether an undo log has a transaction of dead, in an object that the participants of its slot may have touched. Until
 * that is undone, no other process may use for anything else what dead had open: the undo writes into it. The objects are
 * not guarded, so another process may delete one while this function reads it. Then the function may find any bytes.
 * At worst it answers yes although there is no transaction. */
SHMI_FN int shmi_unfinished_one(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_participant_id *dead = (shmi_participant_id *)arg;
    const shmi_kind_ops *ops;
    shmi_header h;
    if (shmi_header_at(a, off, &h) == 0 && (ops = shmi_kind_of(h.o.kind)) != NULL && ops->unfinished != NULL && ops->unfinished(a, &h.o, *dead))
        *dead = 0;
    return *dead != 0;
}
SHMI_FN int shmi_unfinished(shmsync_arena *a, shmi_participant_id dead)
{
    shmi_each_block(a, shmi_id_slot(dead), SHMI_blockObject, shmi_unfinished_one, &dead);
    return dead == 0;
}

SHMI_FN uint32_t shmi_openers(shmsync_arena *a, const shmi_header *h)
{
    uint32_t i, mask, count = 0;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t *word = shmi_open_bit(a, h, i, &mask);
        shmi_participant_id n = shmi_id_in(i, shmi_slot_state(a, i));
        /* A dead one may still write into it, and so may the process that undoes its transaction. */
        if ((shmi_ld32(word) & mask) != 0 && (shmi_current(a, n) || !shmi_gone(a, n) || shmi_unfinished(a, n)))
            count++;
    }
    return count;
}

/* Gives back what is left of an object whose deletion is decided. */
SHMI_FN void shmi_finish_erase(shmsync_arena *a, const shmi_header *h)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    shmi_touch(a, h->block.chunk);
    if (!shmi_block_swap(&h->block, shmi_make_block(SHMI_blockObject, 0), freeing))
        return;
    SHMSYNC_CRASHPOINT("arena.delete.freeing");
    if (h->o.name_len != 0)
        shmi_unlist(a, h->o.off, h->hash);
    SHMSYNC_CRASHPOINT("arena.delete.unlisted");
    shmi_release_unseen(a, &h->block, freeing);
}

/* Brings h from committed to aborted unless a participant has it open; see docs/abi.md. */
SHMI_FN int shmi_decide(shmsync_arena *a, const shmi_header *h)
{
    uint32_t ours = shmi_make_object(SHMI_objectDeleting, a->self), who = 0;
    int tries;
    SHMSYNC_CRASHPOINT("arena.delete.before_mark");
    for (tries = 0; tries < SHMI_claimTries * SHMI_timeout; tries++) {
        uint32_t s = shmi_ld32(h->state);
        if (!shmi_object_legal(s))
            return shmi_corrupt_object(a, h->o.off, "phase");
        if (!shmi_object_there(s))
            return shmi_fail(ENOENT, "arena.delete", shmi_called(&h->o), "somebody else has deleted it");
        if (shmi_object_phase(s) == SHMI_objectDeleting && tries < SHMI_timeout && shmi_current(a, shmi_object_name(s))) {
            sched_yield();
            continue;
        }
        if (!shmi_cas32(h->state, s, ours))
            continue;
        SHMSYNC_CRASHPOINT("arena.delete.marked");
        who = shmi_openers(a, h);
        SHMSYNC_CRASHPOINT("arena.delete.before_decide");
        if (who == 0) {
            if (shmi_cas32(h->state, ours, shmi_make_object(SHMI_objectAborted, a->self)))
                return 0;
            continue;
        }
        shmi_cas32(h->state, ours, shmi_make_object(SHMI_objectCommitted, 0));
        if (tries >= SHMI_timeout)
            break;
        sched_yield();
    }
    return shmi_fail(EBUSY, "arena.delete", shmi_called(&h->o), "%u participants have it open", who);
}

/* Deletes the object h, which this process has just opened for that, or closes it again. The caller holds handles. */
SHMI_FN int shmi_erase(shmsync_arena *a, shmi_header *h)
{
    shmi_ref *ref = shmi_ref_of(a, h->o.off);
    int err;
    if (ref->count > 1) {
        shmi_forget(a, h->o.off);
        return shmi_fail(EBUSY, "arena.delete", shmi_called(&h->o), "this process has it open");
    }
    /* The guard takes over from the open bit, which would be in the way. */
    shmi_guard(a, h->o.off);
    *h = ref->h;
    shmi_forget(a, h->o.off);
    err = shmi_decide(a, h);
    shmi_unguard(a);
    if (err == 0) {
        SHMSYNC_CRASHPOINT("arena.delete.decided");
        shmi_finish_erase(a, h);
    }
    return err;
}
/* Removes the object of that name alone. The caller holds handles. */
SHMI_FN int shmi_delete_alone(shmsync_arena *a, const char *name, size_t len)
{
    shmi_header h;
    int found = 0, err = shmi_seek(a, name, len, shmi_fnv(name, len), 0, &h, &found);
    if (err == 0 && !found)
        err = shmi_fail(ENOENT, "arena.delete", name, "no object has this name");
    return err != 0 ? err : shmi_erase(a, &h);
}

/* ---- What an upgrade in Go has left: internal/arenakernel/upgrade.go ---- */

#define SHMI_SUCCESSOR_SUFFIX " (upgrade)"
/* What follows the new body in a successor: offset and time of creation of the old object, 8 bytes each; kind and
 * version of the new one, 4 bytes each. */
#define SHMI_SUCCESSOR_TRAILER 24

/* Deletes what an interrupted upgrade of the object of that name has left, before the object is deleted: see
 * deleteSuccessor. Without it the object is as it was, so a death between the two deletions is one before both. A
 * successor that does not belong to the object has data of its own, so it stays while a process keeps the object from
 * being deleted. If of is not 0, only a successor of the object at that offset is deleted. The caller holds handles. */
SHMI_FN int shmi_delete_successor(shmsync_arena *a, const char *name, size_t len, shmi_off of, int *deleted)
{
    char next[SHMI_maxObjectName + 1];
    size_t n = len + sizeof SHMI_SUCCESSOR_SUFFIX - 1;
    shmi_header s, h;
    uint64_t size = 0;
    unsigned char *t;
    uint64_t from[2];
    uint32_t to[2];
    int is, found = 0, tries, err;
    *deleted = 0;
    if (len == 0 || n > SHMI_maxObjectName)
        return 0;
    memcpy(next, name, len); /* a program in Go may use NUL in a name */
    memcpy(next + len, SHMI_SUCCESSOR_SUFFIX, sizeof SHMI_SUCCESSOR_SUFFIX);
    err = shmi_seek(a, next, n, shmi_fnv(next, n), 0, &s, &found);
    if (err != 0 || !found)
        return err;
    is = s.o.kind == SHMI_KIND('B', 'L', 'O', 'K') && s.o.layout != 0 && s.o.size >= SHMI_SUCCESSOR_TRAILER; /* a block of a program has no layout */
    if (is) {
        size = s.o.size - SHMI_SUCCESSOR_TRAILER;
        t = shmi_bytes(a, s.o.body + size, SHMI_SUCCESSOR_TRAILER);
        memcpy(from, t, sizeof from);
        memcpy(to, t + sizeof from, sizeof to);
    }
    shmi_forget(a, s.o.off);
    for (tries = 0; is; tries++) {
        uint32_t who = 0;
        int redundant = 0;
        err = shmi_seek(a, name, len, shmi_fnv(name, len), 0, &h, &found);
        if (err != 0)
            return err;
        if (found) {
            int undecided = h.o.off == from[0] && shmi_ld64(shmi_u64(a, h.o.off + SHMI_objCreated)) == from[1];
            int done = h.o.kind == to[0] && h.o.version == to[1] && h.o.layout == s.o.layout && h.o.size == size;
            redundant = undecided || done;
            who = shmi_openers(a, &h) - 1; /* not this process, unless it has it open besides */
            who += shmi_ref_of(a, h.o.off)->count > 1;
            shmi_forget(a, h.o.off);
        }
        if (of != 0 && (!found || h.o.off != of || !redundant))
            return 0;
        if (redundant || who == 0) {
            err = shmi_delete_alone(a, next, n);
            *deleted = err == 0;
            return err == ENOENT ? 0 : err; /* else another process has deleted it */
        }
        if (tries >= SHMI_timeout)
            return shmi_fail(EBUSY, "arena.delete", name, "%u participants have it open", who);
        sched_yield(); /* a participant may have it open for a moment */
    }
    return 0;
}

int shmsync_delete(shmsync_arena *a, const char *name)
{
    SHMI_BEGIN();
    size_t len = strlen(name);
    int deleted, err = shmi_enter(a, "arena.delete");
    if (err != 0)
        return SHMI_TELL(err);
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    shmi_lower_reach_if_due(a);
    err = shmi_delete_successor(a, name, len, 0, &deleted);
    if (err == 0) {
        err = shmi_delete_alone(a, name, len);
        if (err == ENOENT && deleted)
            err = 0;
    }
    pthread_mutex_unlock(&a->handles);
    shmi_exit(a);
    return SHMI_TELL(err);
}
int shmsync_delete_at(shmsync_arena *a, shmsync_offset off)
{
    SHMI_BEGIN();
    shmi_header h;
    int deleted, found = 0, err = shmi_enter(a, "arena.delete");
    if (err != 0)
        return SHMI_TELL(err);
    pthread_mutex_lock(&a->handles);
    shmi_release_deferred(a);
    err = shmi_open_at(a, off, &h);
    if (err == 0 && h.o.name_len != 0) {
        shmi_header named;
        err = shmi_seek(a, h.o.name, h.o.name_len, h.hash, 0, &named, &found);
        if (err == 0 && found)
            shmi_forget(a, named.o.off);
        shmi_forget(a, off);
        /* What an interrupted upgrade has left belongs to the object that has the name. */
        if (err == 0 && found && named.o.off == off)
            err = shmi_delete_successor(a, h.o.name, h.o.name_len, h.o.off, &deleted);
        if (err == 0)
            err = shmi_open_at(a, off, &h);
    }
    if (err == 0)
        err = shmi_erase(a, &h);
    pthread_mutex_unlock(&a->handles);
    shmi_exit(a);
    return SHMI_TELL(err);
}

/* Ends what dead had begun with the object in b: a deletion that was decided is done,
 * another cancelled. The caller is the reaper of dead and holds handles. */
SHMI_FN void shmi_resolve_delete(shmsync_arena *a, const shmi_block *b, shmi_participant_id dead)
{
    shmi_block now;
    shmi_header h;
    uint32_t *state = shmi_u32(a, b->off + SHMI_objState), s;
    shmi_guard(a, b->off);
    if (shmi_locate(a, b->off, &now) && now.word == b->word && now.size == b->size && shmi_block_kind(shmi_ld32(b->word)) == SHMI_blockObject) {
        s = shmi_ld32(state);
        if (shmi_object_name(s) == dead && shmi_object_legal(s)) {
            if (shmi_object_phase(s) == SHMI_objectDeleting) {
                shmi_cas32(state, s, shmi_make_object(SHMI_objectCommitted, 0));
            } else if (shmi_object_phase(s) == SHMI_objectAborted && shmi_read_header(a, b, &h) == 0) {
                shmi_unguard(a);
                shmi_finish_erase(a, &h);
                return;
            }
        }
    }
    shmi_unguard(a);
}

/* ---- Walks ---- */

typedef struct shmi_visit_arg {
    void (*f)(shmsync_arena *a, const shmi_object *o, void *arg);
    void *arg;
    uint64_t *guard;
    int err; /* EPROTO: the header of an object is impossible */
} shmi_visit_arg;
SHMI_FN int shmi_visit_one(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_visit_arg *v = (shmi_visit_arg *)arg;
    shmi_header h;
    int err;
    shmi_st64(v->guard, off);
    err = shmi_header_at(a, off, &h);
    if (err == 0 && shmi_object_there(shmi_ld32(h.state)))
        v->f(a, &h.o, v->arg);
    else if (err == EPROTO)
        v->err = EPROTO;
    return 1;
}
/* Calls f for the objects that the participant in a slot may have touched, and those beside
 * them, or for all objects of the arena: slot 0. They are not opened: they may be deleted
 * meanwhile, but the bytes are not used again before f returns. f does not walk. EPROTO: an object
 * was passed over, since its header is impossible. */
SHMI_FN int shmi_visit(shmsync_arena *a, uint32_t slot, void (*f)(shmsync_arena *a, const shmi_object *o, void *arg), void *arg)
{
    shmi_visit_arg v;
    pthread_mutex_lock(&a->walking);
    v.f = f;
    v.arg = arg;
    v.err = 0;
    v.guard = shmi_slot64(a, a->my_slot, SHMI_slotWalking);
    shmi_each_block(a, slot, SHMI_blockObject, shmi_visit_one, &v);
    shmi_st64(v.guard, a->rest);
    pthread_mutex_unlock(&a->walking);
    return v.err;
}
/* Sets the guard of walks to what it is while no walk is under way. */
SHMI_FN void shmi_rest_guard(shmsync_arena *a, shmi_off rest)
{
    pthread_mutex_lock(&a->walking);
    a->rest = rest;
    shmi_st64(shmi_slot64(a, a->my_slot, SHMI_slotWalking), rest);
    pthread_mutex_unlock(&a->walking);
}

SHMI_FN void shmi_clear_bit(shmsync_arena *a, const shmi_header *h, uint32_t slot)
{
    uint32_t mask, *word = shmi_open_bit(a, h, slot, &mask);
    if ((shmi_ld32(word) & mask) != 0)
        shmi_and32(word, ~mask);
}
SHMI_FN int shmi_clear_bit_at(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_header h;
    shmi_guard(a, off);
    if (shmi_header_at(a, off, &h) == 0 && shmi_object_there(shmi_ld32(h.state)))
        shmi_clear_bit(a, &h, *(uint32_t *)arg);
    shmi_unguard(a);
    return 1;
}
/* For an object that is committed and whose block is still claimed by its maker. The bytes of
 * a claimed block may be anything: the directory tells whether there is an object. */
SHMI_FN int shmi_clear_bit_unpublished(shmsync_arena *a, shmi_off off, void *arg)
{
    shmi_block b;
    shmi_header h;
    uint64_t *word;
    int same;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || shmi_read_header(a, &b, &h) != 0 || h.o.name_len == 0 ||
        !shmi_object_there(shmi_ld32(h.state)))
        return 1;
    word = shmi_find_entry(a, off, h.hash);
    if (word == NULL)
        return 1;
    if (shmi_enter_entry(a, word, shmi_make_entry(off, h.hash), &h, &same) == 0 && same && shmi_object_there(shmi_ld32(h.state)))
        shmi_clear_bit(a, &h, *(uint32_t *)arg);
    shmi_unguard(a);
    return 1;
}
/* Clears the open bits and the guards of a dead participant. */
SHMI_FN void shmi_clear_open_bits(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t slot = shmi_id_slot(dead);
    pthread_mutex_lock(&a->handles);
    shmi_each_block(a, slot, SHMI_blockObject, shmi_clear_bit_at, &slot);
    shmi_each_block(a, slot, SHMI_blockClaimed, shmi_clear_bit_unpublished, &slot);
    shmi_st64(shmi_slot64(a, slot, SHMI_slotOpening), 0);
    shmi_st64(shmi_slot64(a, slot, SHMI_slotWalking), 0);
    pthread_mutex_unlock(&a->handles);
}

/* ---- Handles: all that this process opens of one object share one ---- */

/* Gives the handle that this process has of the object, which the caller has opened,
 * or makes one by build, whose NULL means ENOMEM. */
SHMI_FN void *shmi_share(shmsync_arena *a, const shmi_object *o, void *(*build)(shmsync_arena *a, const shmi_object *o, const void *arg), const void *arg)
{
    shmi_ref *r;
    void *handle = NULL;
    int closing;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, o->off);
    pthread_mutex_unlock(&a->handles);
    closing = __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST); /* shmi_close_handles has handles_of later, or had it */
    if (r != NULL && !closing) {
        if (r->handle == NULL)
            r->handle = build(a, o, arg);
        handle = r->handle;
        if (handle != NULL)
            r->opens++;
    }
    pthread_mutex_unlock(&a->handles_of);
    if (handle == NULL) {
        if (!closing)
            shmi_close_object(a, o->off);
        shmi_fail(closing ? EBADF : ENOMEM, "open", shmi_called(o), "%s", "");
    }
    return handle;
}

/* Has end give back what the handle of an object has besides itself, and the handle, where
 * the arena is closed before it. The arena is gone by then. */
SHMI_FN void shmi_ends_with(shmsync_arena *a, shmi_off off, void (*end)(void *handle))
{
    shmi_ref *r;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, off);
    pthread_mutex_unlock(&a->handles);
    if (r != NULL)
        r->end = end;
    pthread_mutex_unlock(&a->handles_of);
}

/* Gives one opening back, and calls end with the handle if it was the last. EBADF for
 * one that is not open. */
SHMI_FN int shmi_unshare(shmsync_arena *a, shmi_off off, void (*end)(void *handle))
{
    shmi_ref *r;
    int open_ = 0;
    int err = shmi_enter(a, "close");
    if (err != 0)
        return err;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    r = shmi_ref_of(a, off);
    pthread_mutex_unlock(&a->handles);
    if (r != NULL && r->opens > 0) {
        open_ = 1;
        if (--r->opens == 0) {
            end(r->handle);
            r->handle = NULL;
        }
        shmi_close_object(a, off);
    }
    pthread_mutex_unlock(&a->handles_of);
    shmi_exit(a);
    return open_ ? 0 : shmi_fail(EBADF, "close", NULL, "it is not open");
}

/* ---- The threads of a process that ends: threads_linux.go has the reasons ---- */

/* Reads a small file of /proc; the text ends with a NUL. */
SHMI_FN ssize_t shmi_read_file(const char *path, char *b, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, b, cap - 1) : -1;
    if (fd >= 0)
        close(fd);
    b[n > 0 ? n : 0] = 0;
    return n;
}

#define SHMI_THREADS_MOST 32768

typedef struct shmi_tasks {
    int fd; /* of /proc/PID/task; all that is looked up there is of one process */
    struct stat st;
} shmi_tasks;

/* These are system calls without a point of cancellation. */
SHMI_FN int shmi_open_below(int dir, const char *path, int flags)
{
    return (int)syscall(SYS_openat, dir, path, flags | O_RDONLY | O_CLOEXEC, 0);
}
SHMI_FN void shmi_close_quietly(int fd) { syscall(SYS_close, fd); }

SHMI_FN int shmi_open_tasks(const char *process, shmi_tasks *d)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%s/task", process);
    d->fd = shmi_open_below(AT_FDCWD, path, O_DIRECTORY);
    if (d->fd < 0)
        return 0;
    if (fstat(d->fd, &d->st) == 0)
        return 1;
    shmi_close_quietly(d->fd);
    return 0;
}

/* Whether a thread has memory, or it cannot be told. One that has ended has none. */
SHMI_FN int shmi_may_have_memory(const shmi_tasks *d, uint32_t thread)
{
    char path[32], b;
    snprintf(path, sizeof path, "%u/exe", thread);
    return syscall(SYS_readlinkat, d->fd, path, &b, (size_t)1) >= 0 || (errno != ENOENT && errno != ESRCH);
}

/* Calls f for each thread that a walk finds, until it returns not 0. -1: the walk failed. */
SHMI_FN int shmi_walk_tasks(const shmi_tasks *d, int (*f)(void *arg, uint32_t thread), void *arg)
{
    enum { reclen = 16, name = 19 }; /* offsets in linux_dirent64 */
    union {
        uint64_t aligned;
        char bytes[4096];
    } b;
    long n, at;
    int err = 0;
    memset(&b, 0, sizeof b); /* MemorySanitizer does not see what a bare system call writes */
    if (lseek(d->fd, 0, SEEK_SET) != 0)
        return -1;
    while (err == 0 && (n = syscall(SYS_getdents64, d->fd, b.bytes, sizeof b.bytes)) != 0) {
        if (n < 0)
            return -1;
        for (at = 0; at < n && err == 0;) {
            const char *e = b.bytes + at;
            uint16_t size;
            memcpy(&size, e + reclen, sizeof size);
            if (e[name] >= '1' && e[name] <= '9')
                err = f(arg, (uint32_t)strtoul(e + name, NULL, 10));
            at += size;
        }
    }
    return err;
}

typedef struct shmi_found {
    const shmi_tasks *tasks;
    uint32_t *v, n;
    uint32_t at, common; /* of the second walk */
} shmi_found;

/* The first walk: 1 if the thread may have memory, -1 if there is no room for it. */
SHMI_FN int shmi_find_thread(void *arg, uint32_t thread)
{
    shmi_found *x = (shmi_found *)arg;
    if (shmi_may_have_memory(x->tasks, thread))
        return 1;
    if (x->n == SHMI_THREADS_MOST)
        return -1;
    x->v[x->n++] = thread;
    return 0;
}
/* The second walk: both are in the order of the kernel's list. */
SHMI_FN int shmi_find_again(void *arg, uint32_t thread)
{
    shmi_found *x = (shmi_found *)arg;
    uint32_t k;
    for (k = x->at; k < x->n; k++)
        if (x->v[k] == thread) {
            x->at = k + 1;
            x->common++;
            break;
        }
    return 0;
}

/* How many threads the process has, exactly; 0 if that cannot be read. */
SHMI_FN uint32_t shmi_count_threads(const shmi_tasks *d, uint32_t leader, uint64_t *start)
{
    char path[32], b[1024] = {0}, *p;
    uint32_t k, threads = 0;
    int fd;
    ssize_t n;
    snprintf(path, sizeof path, "%u/stat", leader);
    fd = shmi_open_below(d->fd, path, 0);
    if (fd < 0)
        return 0;
    n = (ssize_t)syscall(SYS_read, fd, b, sizeof b - 1);
    shmi_close_quietly(fd);
    b[n > 0 ? n : 0] = 0;
    p = strrchr(b, ')'); /* the name, in parentheses, may hold anything */
    for (k = 2; k < 22 && p != NULL; k++) {
        p = strchr(p + 1, ' ');
        if (k == 19 && p != NULL)
            threads = (uint32_t)strtoul(p + 1, NULL, 10);
    }
    if (p == NULL)
        return 0;
    *start = strtoull(p + 1, NULL, 10);
    return threads;
}

/* Whether each thread of the process has given up its memory. 0 if that cannot be told. */
SHMI_FN int shmi_tasks_detached(const shmi_tasks *d, uint32_t leader, uint64_t start)
{
    shmi_found x;
    struct stat now;
    uint64_t started = 0;
    uint32_t count;
    int detached = 0;
    if (shmi_may_have_memory(d, leader))
        return 0;
    memset(&x, 0, sizeof x);
    x.tasks = d;
    /* Not by malloc: a signal handler may ask. */
    x.v = (uint32_t *)mmap(NULL, SHMI_THREADS_MOST * sizeof *x.v, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if ((void *)x.v == MAP_FAILED)
        return 0;
    if (shmi_walk_tasks(d, shmi_find_thread, &x) == 0) {
        count = shmi_count_threads(d, leader, &started);
        detached = count != 0 && started == start && shmi_walk_tasks(d, shmi_find_again, &x) == 0 && x.common == count &&
                   fstat(d->fd, &now) == 0 && now.st_dev == d->st.st_dev && now.st_ino == d->st.st_ino;
    }
    munmap(x.v, SHMI_THREADS_MOST * sizeof *x.v);
    return detached;
}

/* Whether /proc is that of this process's pid namespace, and tells of a living thread that it has
 * memory; and its device. */
SHMI_FN int shmi_probe_threads(uint64_t *dev)
{
    char b[4096], pid[16], *p;
    shmi_tasks d;
    uint64_t start;
    int ok = 0;
    if (!shmi_have.waitv || shmi_disabled("threads"))
        return 0;
    if (shmi_read_file("/proc/self/status", b, sizeof b) <= 0 || (p = strstr(b, "\nNSpid:")) == NULL)
        return 0;
    for (p += 7; *p == ' ' || *p == '\t'; p++) {
    }
    snprintf(pid, sizeof pid, "%d\n", (int)getpid()); /* no other one in a namespace inside */
    if (strncmp(p, pid, strlen(pid)) != 0 || !shmi_open_tasks("self", &d))
        return 0;
    *dev = (uint64_t)d.st.st_dev;
    ok = shmi_may_have_memory(&d, (uint32_t)getpid()) && shmi_count_threads(&d, (uint32_t)getpid(), &start) != 0;
    shmi_close_quietly(d.fd);
    return ok;
}

SHMI_FN int shmi_detached(uint64_t dev, uint32_t pid, uint64_t start)
{
    char name[16];
    shmi_tasks d;
    int before = errno, detached;
    snprintf(name, sizeof name, "%u", pid);
    if (!shmi_open_tasks(name, &d)) {
        errno = before;
        return 0;
    }
    detached = (uint64_t)d.st.st_dev == dev && shmi_tasks_detached(&d, pid, start);
    shmi_close_quietly(d.fd);
    errno = before;
    return detached;
}

/* ---- Deaths in two stages, dead and gone: docs/design/0018-two-stages-of-a-death.md ----
 *
 * A death has two stages. Words are repaired when no thread of the dead process executes
 * instructions any more; what they protect passes on when nothing can write for it. */

#define SHMI_ASK_FIRST INT64_C(50000)
#define SHMI_ASK_MOST INT64_C(50000000)
#define SHMI_ASK_WAITER INT64_C(1000000)
#define SHMI_LOOK_FIRST INT64_C(30000)

/* Whether nobody holds the byte lock of slot i any more; not for one that never had it. */
SHMI_FN int shmi_byte_free(shmsync_arena *a, uint32_t i)
{
    uint32_t caps;
    int fds[2], k;
    if (a->lock_fd < 0 || i == a->my_slot)
        return 0;
    caps = shmi_slot_caps(a, i);
    if ((caps & SHMI_capOFD) == 0) {
        /* None at all means a joiner without a byte, or a slot whose reaper died
         * when it had wiped it and not yet freed it. */
        uint32_t p = shmi_slot_phase(shmi_slot_state(a, i));
        if (caps != 0 || (p != SHMI_phaseLeaving && p != SHMI_phaseDead))
            return 0;
    }
    /* A descriptor that was closed by mistake elsewhere in this program may name another
     * file by now, whose bytes nobody has locked. */
    fds[0] = a->lock_fd;
    fds[1] = a->fd;
    for (k = 0; k < 2; k++) {
        int locked = shmi_byte_locked(fds[k], shmi_slot(a, i));
        if (locked > 0 || (locked == 0 && shmi_is_file(fds[k], a->dev, a->ino)))
            return !locked;
    }
    return 0;
}

SHMI_FN int shmi_marked_by_kernel(shmsync_arena *a, uint32_t i, int all)
{
    unsigned k, marked = 0;
    for (k = 0; k < SHMI_aliveWords; k++)
        marked += (shmi_ld32(shmi_alive_word(a, i, k)) & SHMI_OWNER_DIED) != 0;
    return all ? marked == SHMI_aliveWords : marked != 0;
}

/* Whether the participant that is in slot i in state w is dead and not yet marked so. */
SHMI_FN int shmi_seen_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (i == a->my_slot || !shmi_slot_present(w))
        return 0;
    /* While joining, the words are still those of the one before. */
    if (shmi_slot_phase(w) != SHMI_phaseJoining && shmi_marked_by_kernel(a, i, 0))
        return shmi_slot_state(a, i) == w;
    if (shmi_slot_phase(w) == SHMI_phaseLive && (shmi_slot_caps(a, i) & SHMI_capRobust) != 0)
        return 0;
    return shmi_byte_free(a, i) && shmi_slot_state(a, i) == w;
}
/* The same for a survey, which asks for the bytes of those too that the kernel would
 * mark: a copied file marks nobody. */
SHMI_FN int shmi_survey_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_slot_present(w) && (shmi_seen_dead(a, i, w) || (shmi_byte_free(a, i) && shmi_slot_state(a, i) == w));
}

/* Whether the process that is dead in slot i has ended: its byte lock is free, which the
 * kernel sees to after the last thread has left all other kernel code. Where there are no
 * byte locks, whether all its alive words are marked, which is less. */
SHMI_FN int shmi_ended(shmsync_arena *a, uint32_t i)
{
    if (shmi_byte_free(a, i))
        return 1;
    if (a->lock_fd >= 0 && (shmi_slot_caps(a, i) & SHMI_capOFD) != 0)
        return 0;
    return shmi_marked_by_kernel(a, i, 1);
}

/* The notice of the death in slot i, in state w. The caller has a->endings. */
SHMI_FN shmi_notice *shmi_ending(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_notice *n = &a->notices[i];
    uint64_t window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (n->began == 0 || n->ending_of != shmi_slot_gen(w) || n->ending_window != window) {
        n->ending_of = shmi_slot_gen(w);
        n->ending_window = window;
        n->began = shmi_now();
        n->looked = 0;
        n->detached = 0;
    }
    return n;
}

/* Whether all threads of the process in slot i, in state w, have given up its memory. It is 0 if
 * the slot does not say which process that is, and when another thread has just looked: a look
 * costs 10 us and more. */
SHMI_FN int shmi_threads_ended(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t pid = shmi_ld32(shmi_slot32(a, i, SHMI_slotPID));
    uint64_t start = shmi_ld64(shmi_slot64(a, i, SHMI_slotStart));
    const unsigned char *boot = shmi_bytes(a, shmi_slot(a, i) + SHMI_slotBootID, 16);
    static const unsigned char none[16] = {0};
    int64_t now = shmi_now(), pause;
    shmi_notice *n;
    int look, detached;
    if (a->proc_dev == 0)
        return 0;
    if (pthread_mutex_trylock(&a->endings) != 0)
        return 0; /* another thread asks, or the one that a signal handler has interrupted */
    n = shmi_ending(a, i, w);
    pause = (now - n->began) / 16;
    pause = pause < SHMI_LOOK_FIRST ? SHMI_LOOK_FIRST : pause;
    detached = n->detached;
    look = !detached && (n->looked == 0 || now - n->looked >= pause);
    if (look)
        n->looked = now;
    pthread_mutex_unlock(&a->endings);
    if (!look)
        return detached;
    /* A pid means something only in its own namespace, and before the next boot. */
    if (pid == 0 || pid > INT32_MAX || start == 0 || a->pid_ns == 0 || shmi_ld64(shmi_slot64(a, i, SHMI_slotPIDNS)) != a->pid_ns ||
        memcmp(boot, a->boot, 16) != 0 || memcmp(boot, none, 16) == 0)
        return 0;
    if (!shmi_detached(a->proc_dev, pid, start) || shmi_slot_state(a, i) != w)
        return 0;
    if (pthread_mutex_trylock(&a->endings) == 0) {
        shmi_ending(a, i, w)->detached = 1;
        pthread_mutex_unlock(&a->endings);
    }
    return 1;
}

/* Whether the threads of the participant that is dead in slot i, in state w, have given up its memory,
 * and with them the kernel has finished with it. slotGone says of whom a participant has found
 * that: see foundGone in internal/arenakernel/gone.go. */
SHMI_FN int shmi_find_gone(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t *word = shmi_slot32(a, i, SHMI_slotGone), before = shmi_ld32(word);
    uint32_t mark = shmi_slot_gen(w) | (uint32_t)(shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) >> 36) << 18;
    if (before == mark)
        return 1;
    if ((shmi_slot_caps(a, i) & SHMI_capAsyncIO) != 0 || !shmi_threads_ended(a, i, w))
        return 0;
    shmi_cas32(word, before, mark);
    return 1;
}

/* Whether nothing can write into the arena for n any more, not even the kernel in a system
 * call of n. The last store of n to what a lock protects is before that, and the last one
 * to words is before n is not current. Asked of a participant that is not current, or of
 * this process as it leaves. A yes stays a yes. */
SHMI_FN int shmi_gone(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 1;
    w = shmi_slot_state(a, i);
    if (shmi_slot_gen(w) != shmi_id_gen(n) || !shmi_slot_taken(w))
        return 1; /* a slot passes on only when its dead one is gone */
    if (n == a->self)
        return __atomic_load_n(&a->closing, __ATOMIC_SEQ_CST);
    return shmi_slot_phase(w) == SHMI_phaseDead &&
           ((shmi_slot_caps(a, i) & SHMI_capNoKernelIO) != 0 || shmi_ended(a, i) || shmi_find_gone(a, i, w) || shmi_slot_state(a, i) != w);
}
/* Whether every participant that is dead is gone, too. */
SHMI_FN int shmi_all_gone(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (shmi_slot_phase(w) == SHMI_phaseDead && !shmi_gone(a, shmi_id_in(i, w)))
            return 0;
    }
    return 1;
}

/* Has the watcher ask when the dead are gone, soon: a call of this process waits for it. */
SHMI_FN void shmi_follow(shmsync_arena *a)
{
    if (shmi_ld32(&a->unfinished) == 0) {
        shmi_st32(&a->unfinished, 1);
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    }
}
/* Has the watcher ask again after an eighth of the time that has passed since: one that
 * ends late is asked after rarely. */
SHMI_FN void shmi_ask_after(shmsync_arena *a, int64_t since)
{
    int64_t now = shmi_now(), wait = (now - since) / 8, at;
    wait = wait < SHMI_ASK_FIRST ? SHMI_ASK_FIRST : wait > SHMI_ASK_MOST ? SHMI_ASK_MOST : wait;
    at = __atomic_load_n(&a->ask_at, __ATOMIC_RELAXED);
    if (at == 0 || now + wait < at)
        __atomic_store_n(&a->ask_at, now + wait, __ATOMIC_RELAXED);
    shmi_st32(&a->unfinished, 1);
}

/* How long a waiter sleeps before it asks itself whether a dead holder is gone. *ask is 0
 * at first. */
SHMI_FN int64_t shmi_next_ask(int64_t *ask)
{
    *ask = *ask == 0 ? SHMI_ASK_FIRST : *ask * 3 / 2 < SHMI_ASK_WAITER ? *ask * 3 / 2 : SHMI_ASK_WAITER;
    return *ask;
}
/* Waits until n, which is dead, is gone; n 0: until all are. abs as of a lock. 0, ETIMEDOUT, EBADF, ENOTCONN. */
SHMI_FN int shmi_await_gone(shmsync_arena *a, shmi_participant_id n, const char *op, const char *called, int64_t abs)
{
    int64_t ask = 0, now, wait;
    int err;
    int was = n != 0 && shmi_current(a, n); /* by a peer's bytes */
    if (n != 0 ? shmi_gone(a, n) : shmi_all_gone(a))
        return 0;
    err = shmi_enter(a, op);
    if (err != 0)
        return err;
    shmi_follow(a);
    while (err == 0 && !(n != 0 ? shmi_gone(a, n) || (!was && shmi_current(a, n)) : shmi_all_gone(a))) { /* current: another one with this ID */
        now = shmi_now();
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
            err = shmi_fail(EBADF, op, called, "this process closed the arena");
        } else if (abs != 0 && now >= abs) {
            err = shmi_fail(ETIMEDOUT, op, called, "%s", "who died has not ended");
        } else {
            wait = shmi_next_ask(&ask);
            shmi_nap(abs != 0 && abs - now < wait ? abs - now : wait);
        }
    }
    shmi_exit(a);
    return err;
}

/* Makes sure that no thread of the dying process in slot i executes a store to the
 * arena any more, and is 0 while that cannot be told. */
SHMI_FN int shmi_fence_dying(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if ((shmi_slot_caps(a, i) & SHMI_capFence) != 0 && shmi_fence() == 0)
        return 1;
    return a->lock_fd < 0 || (shmi_slot_caps(a, i) & SHMI_capOFD) == 0 || shmi_byte_free(a, i) || shmi_threads_ended(a, i, w);
}

/* Leaves the rest of the reap in slot i for later. The watcher goes on with it. */
SHMI_FN void shmi_leave_for(shmsync_arena *a, uint32_t i)
{
    shmi_or32(&a->leftover[i / 32], UINT32_C(1) << (i % 32));
    shmi_st32(&a->unfinished, 1);
}

/* Moves slot i from w to dead, after a fence; whether this call did it. */
SHMI_FN int shmi_declare_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (!shmi_fence_dying(a, i, w)) {
        shmi_leave_for(a, i);
        return 0;
    }
    SHMSYNC_CRASHPOINT("arena.reap.fenced");
    if (!shmi_cas_slot(a, i, w, shmi_slot_with(w, SHMI_phaseDead)))
        return 0;
    shmi_cas64(shmi_slot64(a, i, SHMI_slotDied), 0, (uint64_t)shmi_unix_now());
    /* If it lives after all, it must learn that its locks are others' now. */
    shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell));
    SHMSYNC_CRASHPOINT("arena.reap.marked");
    return 1;
}
/* The same for a participant that was found dead. */
SHMI_FN int shmi_mark(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_act act;
    int blind = shmi_slot_phase(w) == SHMI_phaseJoining && (shmi_slot_caps(a, i) & SHMI_capOFD) == 0, marked;
    SHMSYNC_CRASHPOINT("arena.reap.seen");
    shmi_begin_act(a, &act, shmi_id_in(i, w)); /* none for a joiner, which has the byte lock of the slot */
    /* Once more, now that no participant can get the ID: another one may have got it before. */
    marked = (act.word == NULL || blind || shmi_survey_dead(a, i, w)) && shmi_declare_dead(a, i, w);
    shmi_end_act(a, &act);
    return marked;
}

/* shmi_survey_dead, once in a second at most: it finds a participant whose robust list the
 * kernel could not walk. */
SHMI_FN int shmi_found_dead(shmsync_arena *a, uint32_t i, uint32_t w)
{
    int64_t now = shmi_now(), last = __atomic_load_n(&a->asked[i], __ATOMIC_RELAXED);
    return now - last > INT64_C(1000000000) &&
           __atomic_compare_exchange_n(&a->asked[i], &last, now, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED) && shmi_survey_dead(a, i, w);
}

/* Whether n is the name of a participant that died or left; if this call is the first
 * to see its death, its reap begins. */
SHMI_FN int shmi_dead(shmsync_arena *a, shmi_participant_id n)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return 1;
    w = shmi_slot_state(a, i);
    if (shmi_id_in(i, w) != n || !shmi_slot_present(w))
        return 1;
    if (n == a->self || (!shmi_seen_dead(a, i, w) && !shmi_found_dead(a, i, w)))
        return 0;
    if (shmi_mark(a, i, w)) {
        /* The caller goes on at once with what it waits for. The kernel has woken
         * watchers for the rest; in case they do not come, ours looks again. */
        shmi_wake(shmi_alive_word(a, i, SHMI_aliveWords - 1), SHMI_ALL);
        shmi_leave_for(a, i);
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    }
    return !shmi_current(a, n);
}

/* ---- DeathRecords ---- */

/* Number n of the deaths, or of the orderly leaves. There is a ring of each, so that a leave
 * does not overwrite the record of a death that no process has read yet. */
SHMI_FN shmi_off shmi_death_record(shmsync_arena *a, int left, uint64_t n)
{
    uint64_t k = left ? SHMI_deathRecordDeaths + n % (SHMI_deathRecordCount - SHMI_deathRecordDeaths) : n % SHMI_deathRecordDeaths;
    return a->geo.death_record_off + k * SHMI_deathRecordStride;
}
SHMI_FN uint64_t *shmi_death_records_total(shmsync_arena *a, int left) { return shmi_u64(a, left ? SHMI_hdrLeftTotal : SHMI_hdrDeathRecordsTotal); }

/* Labels are for people, and may change as they are read: word by word, they are still
 * no race. */
SHMI_FN void shmi_put_label(shmsync_arena *a, shmi_off off, const char *label)
{
    uint64_t words[(SHMI_labelBytes + 1) / 8];
    unsigned char *b = (unsigned char *)words;
    size_t n = strlen(label), k;
    if (n > SHMI_labelBytes)
        n = SHMI_labelBytes;
    memset(words, 0, sizeof words);
    b[0] = (unsigned char)n;
    memcpy(b + 1, label, n);
    for (k = 0; k < sizeof words / 8; k++)
        __atomic_store_n(shmi_u64(a, off + 8 * k), words[k], __ATOMIC_RELAXED);
}
SHMI_FN void shmi_get_label(shmsync_arena *a, shmi_off off, char out[SHMI_labelBytes + 1])
{
    uint64_t words[(SHMI_labelBytes + 1) / 8];
    const unsigned char *b = (const unsigned char *)words;
    size_t n, k;
    for (k = 0; k < sizeof words / 8; k++)
        words[k] = __atomic_load_n(shmi_u64(a, off + 8 * k), __ATOMIC_RELAXED);
    n = b[0];
    if (n > SHMI_labelBytes)
        n = SHMI_labelBytes;
    memcpy(out, b + 1, n);
    out[n] = 0;
}

SHMI_FN void shmi_put_death_record(shmsync_arena *a, int left, const shmsync_participant *p, uint32_t flags)
{
    uint64_t number = shmi_add64(shmi_death_records_total(a, left), 1);
    shmi_off o = shmi_death_record(a, left, number);
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordSeq), 0);
    shmi_full_fence(); /* the label is written by relaxed stores, which may pass the store before them */
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordID), shmi_make_participant_id(p->slot, p->generation));
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordPID), p->pid);
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordDied), (uint64_t)p->died_ns);
    shmi_st32(shmi_u32(a, o + SHMI_deathRecordFlags), flags | (left ? SHMI_deathRecordLeft : 0));
    shmi_put_label(a, o + SHMI_deathRecordLabel, p->label);
    shmi_st64(shmi_u64(a, o + SHMI_deathRecordSeq), number + 1);
}
/* Reads who was in slot i as the participant n, and gives the flags of its death record. */
SHMI_FN uint32_t shmi_read_dead(shmsync_arena *a, uint32_t i, shmi_participant_id n, shmsync_participant *p)
{
    uint32_t admission = shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission));
    memset(p, 0, sizeof *p);
    p->slot = i;
    p->generation = shmi_id_gen(n);
    p->pid = shmi_ld32(shmi_slot32(a, i, SHMI_slotPID));
    p->died_ns = (int64_t)shmi_ld64(shmi_slot64(a, i, SHMI_slotDied));
    shmi_get_label(a, shmi_slot(a, i) + SHMI_slotLabel, p->label);
    return admission == SHMI_admissionPending || admission == SHMI_admissionRefused ? SHMI_deathRecordPending : 0;
}
SHMI_FN void shmi_write_death_record(shmsync_arena *a, uint32_t i, shmi_participant_id n, int left)
{
    shmsync_participant p;
    uint32_t flags = shmi_read_dead(a, i, n, &p);
    shmi_put_death_record(a, left, &p, flags);
}

/* DeathRecord n, if it is in the ring. */
SHMI_FN int shmi_read_death_record(shmsync_arena *a, int left, uint64_t n, shmsync_participant *p, shmi_participant_id *name)
{
    shmi_off o = shmi_death_record(a, left, n);
    if (shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) != n + 1)
        return 0;
    *name = shmi_ld32(shmi_u32(a, o + SHMI_deathRecordID)) & SHMI_NAME_MASK;
    memset(p, 0, sizeof *p);
    p->slot = shmi_id_slot(*name);
    p->generation = shmi_id_gen(*name);
    p->pid = shmi_ld32(shmi_u32(a, o + SHMI_deathRecordPID));
    p->died_ns = (int64_t)shmi_ld64(shmi_u64(a, o + SHMI_deathRecordDied));
    shmi_get_label(a, o + SHMI_deathRecordLabel, p->label);
    shmi_load_fence(); /* the label is read by relaxed loads */
    return shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1;
}

/* The last death record of n in a ring. */
SHMI_FN int shmi_find_death_record(shmsync_arena *a, int left, shmi_participant_id n, shmsync_participant *out)
{
    uint64_t total = shmi_ld64(shmi_death_records_total(a, left)), back;
    uint64_t count = left ? SHMI_deathRecordCount - SHMI_deathRecordDeaths : SHMI_deathRecordDeaths;
    for (back = 1; back <= total && back <= count; back++) {
        shmi_participant_id name;
        if (shmi_read_death_record(a, left, total - back, out, &name) && name == n)
            return 1;
    }
    return 0;
}
/* Whether the death of n is written down. */
SHMI_FN int shmi_has_death_record(shmsync_arena *a, shmi_participant_id n)
{
    shmsync_participant p;
    return shmi_find_death_record(a, 0, n, &p);
}

SHMI_FN void shmi_read_slot(shmsync_arena *a, uint32_t i, uint32_t w, shmsync_participant *p)
{
    memset(p, 0, sizeof *p);
    p->slot = i;
    p->generation = shmi_slot_gen(w);
    p->pid = shmi_ld32(shmi_slot32(a, i, SHMI_slotPID));
    p->died_ns = (int64_t)shmi_ld64(shmi_slot64(a, i, SHMI_slotDied));
    shmi_get_label(a, shmi_slot(a, i) + SHMI_slotLabel, p->label);
}

/* Who n is or was, from its slot while that has not been taken again and from the
 * death records after that. ENOENT when neither knows. */
SHMI_FN int shmi_who(shmsync_arena *a, shmi_participant_id n, shmsync_participant *out)
{
    uint32_t i = shmi_id_slot(n), w;
    if (i < 1 || i > a->geo.slots)
        return ENOENT;
    w = shmi_slot_state(a, i);
    if (shmi_slot_gen(w) == shmi_id_gen(n) && shmi_slot_taken(w)) {
        shmsync_participant gone;
        uint32_t phase = shmi_slot_phase(w);
        shmi_read_slot(a, i, w, out);
        if (shmi_slot_state(a, i) == w) {
            /* The record comes before the slot's words are cleared, and these before its
             * state changes. */
            if ((phase == SHMI_phaseDead || phase == SHMI_phaseLeaving)
                && (shmi_find_death_record(a, 0, n, &gone) || shmi_find_death_record(a, 1, n, &gone)))
                *out = gone;
            return 0;
        }
    }
    return shmi_find_death_record(a, 0, n, out) || shmi_find_death_record(a, 1, n, out) ? 0 : ENOENT;
}

/* Tells one death to the function of shmsync_arena_on_death; 0 while it is not written. */
SHMI_FN int shmi_tell_death(shmsync_arena *a, uint64_t number)
{
    shmsync_participant p;
    shmi_participant_id name;
    if (!shmi_read_death_record(a, 0, number, &p, &name))
        return 0;
    if (p.slot < 1 || p.slot > a->geo.slots)
        return 1;
    /* No participant gets an ID that a death record has. */
    if (a->told[p.slot].generation == p.generation && number - a->told[p.slot].number < SHMI_deathRecordDeaths)
        return 1;
    a->told[p.slot].generation = p.generation;
    a->told[p.slot].number = number;
    p.missed = (uint32_t)a->lost;
    a->lost = 0;
    SHMI_OUTSIDE(a->on_death(&p, a->on_death_arg));
    return 1;
}
/* Tells the deaths that were written since the last call; not 0: look again soon. */
SHMI_FN int shmi_deliver_deaths(shmsync_arena *a)
{
    uint64_t total, holes[SHMI_deathRecordDeaths];
    unsigned n, i;
    int again = 0;
    pthread_mutex_lock(&a->death_lock);
    if (a->on_death == NULL) {
        pthread_mutex_unlock(&a->death_lock);
        return 0;
    }
    total = shmi_ld64(shmi_u64(a, SHMI_hdrDeathRecordsTotal));
    n = a->n_holes;
    memcpy(holes, a->holes, sizeof holes);
    a->n_holes = 0;
    if (total < a->death_record_next) /* a peer has overwritten the counter */
        a->death_record_next = total < SHMI_deathRecordDeaths ? 0 : total - SHMI_deathRecordDeaths;
    if (total - a->death_record_next > SHMI_deathRecordDeaths) {
        a->lost += total - SHMI_deathRecordDeaths - a->death_record_next;
        a->death_record_next = total - SHMI_deathRecordDeaths;
    }
    for (i = 0; i < n; i++)
        if (total - holes[i] > SHMI_deathRecordDeaths)
            a->lost++; /* written over */
        else if (!shmi_tell_death(a, holes[i]))
            a->holes[a->n_holes++] = holes[i];
    for (; a->death_record_next < total; a->death_record_next++) {
        if (shmi_tell_death(a, a->death_record_next))
            continue;
        if (a->n_holes < SHMI_deathRecordDeaths)
            a->holes[a->n_holes++] = a->death_record_next;
        else
            a->lost++;
        again = 1;
    }
    pthread_mutex_unlock(&a->death_lock);
    return again || a->n_holes > 0;
}

int shmsync_arena_on_death(shmsync_arena *a, void (*f)(const shmsync_participant *, void *), void *arg)
{
    SHMI_BEGIN();
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "arena.on_death", a->label, "%s", "");
    pthread_mutex_lock(&a->death_lock);
    if (a->told == NULL)
        a->told = (shmi_told *)calloc((size_t)a->geo.slots + 1, sizeof *a->told);
    if (a->told != NULL) {
        if (a->on_death == NULL)
            a->death_record_next = shmi_ld64(shmi_u64(a, SHMI_hdrDeathRecordsTotal));
        shmi_or32(shmi_slot32(a, a->my_slot, SHMI_slotCaps), SHMI_capTold);
        a->on_death = f;
        a->on_death_arg = arg;
    }
    pthread_mutex_unlock(&a->death_lock);
    return SHMI_TELL(a->told != NULL ? 0 : shmi_fail(ENOMEM, "arena.on_death", a->label, "%s", ""));
}

/* ---- The threads of the library: they have a name, the affinity that the process began with and the ordinary policy,
 * take no signals, and do not keep the process alive ---- */

/* The CPUs that the process might use when it began. */
static uint64_t shmi_first_cpus[128];
static long shmi_first_cpus_size; /* in bytes; 0 or less: not known */
static uint32_t shmi_own_threads;         /* threads of the library that run: each counts itself. Atomic. */
static uint32_t shmi_own_changes;         /* how often that count has changed. Atomic. */
static int shmi_opener_ended;              /* a thread that says so has ended: there may be no other one. Atomic. */
static int shmi_process_ends;             /* a thread ends the process. Atomic. */
static pthread_key_t shmi_end_key;
static int shmi_end_key_made; /* written by pthread_once */
static pthread_once_t shmi_end_key_once = PTHREAD_ONCE_INIT;
static int shmi_main_noted; /* the main thread says when it ends. Atomic. */

#define SHMI_LONELY_SOON INT64_C(200000000)
#define SHMI_LONELY_EVERY INT64_C(1000000000)

SHMI_FN void shmi_ring_watchers(void);
SHMI_FN void shmi_note_end(void *value)
{
    (void)value;
    __atomic_store_n(&shmi_opener_ended, 1, __ATOMIC_SEQ_CST);
    shmi_ring_watchers();
}

SHMI_FN void shmi_make_end_key(void) { shmi_end_key_made = pthread_key_create(&shmi_end_key, shmi_note_end) == 0; }
/* The calling thread opens an arena, and says when it ends. */
SHMI_FN void shmi_note_opener(void)
{
    pthread_once(&shmi_end_key_once, shmi_make_end_key);
    if (shmi_end_key_made && pthread_setspecific(shmi_end_key, &shmi_end_key) == 0 && syscall(SYS_gettid) == (long)getpid())
        __atomic_store_n(&shmi_main_noted, 1, __ATOMIC_RELAXED);
}

/* Runs before main, or in dlopen. */
__attribute__((constructor)) static void shmi_at_load(void)
{
    shmi_first_cpus_size = syscall(SYS_sched_getaffinity, 0, sizeof shmi_first_cpus, shmi_first_cpus);
}

typedef struct shmi_thread_arg {
    const char *name;
    void *(*f)(void *);
    void *arg;
} shmi_thread_arg;
SHMI_FN void shmi_count_own(int more)
{
    __atomic_fetch_add(&shmi_own_threads, (uint32_t)more, __ATOMIC_SEQ_CST);
    __atomic_fetch_add(&shmi_own_changes, 1, __ATOMIC_SEQ_CST);
}
SHMI_FN void *shmi_run_thread(void *arg)
{
    shmi_thread_arg t = *(shmi_thread_arg *)arg;
    shmi_count_own(1);
    free(arg);
    (void)!syscall(SYS_prctl, PR_SET_NAME, t.name, 0ul, 0ul, 0ul);
    if (shmi_first_cpus_size > 0)
        (void)!syscall(SYS_sched_setaffinity, 0, (size_t)shmi_first_cpus_size, shmi_first_cpus);
    return t.f(t.arg);
}
/* Starts a thread of the library; name has at most 15 characters. 0 or an errno. */
SHMI_FN int shmi_start_thread(pthread_t *out, const char *name, void *(*f)(void *), void *arg)
{
    struct sched_param ordinary;
    pthread_attr_t attr;
    sigset_t all, before;
    int err;
    shmi_thread_arg *t = (shmi_thread_arg *)malloc(sizeof *t);
    if (t == NULL)
        return ENOMEM;
    t->name = name;
    t->f = f;
    t->arg = arg;
    memset(&ordinary, 0, sizeof ordinary);
    pthread_attr_init(&attr);
    pthread_attr_setschedpolicy(&attr, SCHED_OTHER);
    pthread_attr_setschedparam(&attr, &ordinary);
    pthread_attr_setinheritsched(&attr, PTHREAD_EXPLICIT_SCHED);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    err = pthread_create(out, &attr, shmi_run_thread, t);
    if (err == EPERM) /* a thread of policy SCHED_IDLE may not leave it everywhere */
        err = pthread_create(out, NULL, shmi_run_thread, t);
    if (err != 0)
        free(t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attr);
    return err;
}
SHMI_FN void shmi_end_thread(void) { shmi_count_own(-1); }
/* In a child of fork. */
SHMI_FN void shmi_forget_threads(void)
{
    shmi_own_threads = 0;
    shmi_opener_ended = 0;
}

SHMI_FN int shmi_count_living(void *arg, uint32_t thread)
{
    shmi_found *x = (shmi_found *)arg;
    x->n += shmi_may_have_memory(x->tasks, thread) != 0;
    return 0;
}
/* Ends the process as the end of its last thread would, if all threads but those of the library have ended. at is when
 * to look, 0 for at once; it gives when to look again, 0 for not before a thread that says so has ended. */
SHMI_FN int64_t shmi_end_if_alone(int64_t at)
{
    shmi_found x;
    shmi_tasks d;
    uint32_t own, changes;
    int alone = 1, walk;
    int64_t soon = __atomic_load_n(&shmi_main_noted, __ATOMIC_RELAXED) ? SHMI_LONELY_SOON : SHMI_LONELY_EVERY;
    if (!__atomic_load_n(&shmi_opener_ended, __ATOMIC_SEQ_CST))
        return 0;
    if (shmi_now() < at)
        return at;
    if (!shmi_open_tasks("self", &d))
        return shmi_now() + soon;
    /* A thread of the library counts itself only while it is among the tasks, so an equal count leaves no room for
     * another thread, unless the count changes meanwhile. A walk may miss a thread that another one starts before it
     * ends itself, so there are two. */
    changes = __atomic_load_n(&shmi_own_changes, __ATOMIC_SEQ_CST);
    own = __atomic_load_n(&shmi_own_threads, __ATOMIC_SEQ_CST);
    for (walk = 0; alone && walk < 2; walk++) {
        memset(&x, 0, sizeof x);
        x.tasks = &d;
        alone = !shmi_may_have_memory(&d, (uint32_t)getpid()) && shmi_walk_tasks(&d, shmi_count_living, &x) == 0 && x.n != 0 && x.n == own &&
                __atomic_load_n(&shmi_own_threads, __ATOMIC_SEQ_CST) == own && __atomic_load_n(&shmi_own_changes, __ATOMIC_SEQ_CST) == changes;
    }
    shmi_close_quietly(d.fd);
    if (alone && !__atomic_exchange_n(&shmi_process_ends, 1, __ATOMIC_SEQ_CST))
        exit(0);
    return shmi_now() + soon;
}

/* ---- What is loaded, and mapped ---- */

/* A thread of the library runs until the close of its arena, so the code has to stay when a program that forgot the close
 * unloads it. The functions are not there in a static program, where nothing is unloaded. */
#pragma weak dladdr
#pragma weak dlopen
SHMI_FN void shmi_stay_loaded(void)
{
    static int done; /* atomic */
    Dl_info self;
    uintptr_t program = (uintptr_t)getauxval(AT_PHDR);
    if (__atomic_exchange_n(&done, 1, __ATOMIC_RELAXED) || dladdr == NULL || dlopen == NULL)
        return;
    if (dladdr((void *)(uintptr_t)&shmi_spare, &self) != 0 && self.dli_fname != NULL && (uintptr_t)self.dli_fbase != (program & ~(uintptr_t)4095))
        (void)!dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}

/* Whether memory is taken in full when it is mapped: mlockall(MCL_FUTURE). */
SHMI_FN int shmi_maps_in_full(void)
{
    unsigned char there = 0;
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    void *p = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    int full = p != MAP_FAILED && mincore(p, page, &there) == 0 && (there & 1) != 0;
    if (p != MAP_FAILED)
        munmap(p, page);
    return full;
}
/* Maps a file, which may be sparse; MAP_FAILED. Under mlockall it stays so: its pages are locked when they are used first. */
SHMI_FN void *shmi_map_sparsely(size_t size, int fd)
{
    void *p;
    if (!shmi_maps_in_full())
        return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    p = mmap(NULL, size, PROT_NONE, MAP_SHARED, fd, 0); /* nothing can be taken */
    if (p == MAP_FAILED)
        return p;
    if (syscall(SYS_mlock2, p, size, 1u) != 0) /* MLOCK_ONFAULT */
        munlock(p, size);
    if (mprotect(p, size, PROT_READ | PROT_WRITE) == 0)
        return p;
    munmap(p, size);
    return MAP_FAILED;
}

/* ---- Reap: every step may be done by several processes at once, and by one after
 * another that died over it. Each process repairs twice, when it finds a dead one and
 * again when that is gone; the functions of the kinds ask for that themselves ---- */

#define SHMI_RECLAIM_AFTER 1000000 /* ns: those that the death has woken want the CPU first */
/* How long this process leaves the end of a reap to others where objects are whose
 * kind it does not know: they know it, and repair those when they reap. */
#define SHMI_LEAVE_TO_OTHERS INT64_C(200000000)

enum {
    SHMI_watchTargets = 3
};

/* Rings the n participants that come before slot i in the ring of slots. */
SHMI_FN void shmi_ring_before(shmsync_arena *a, uint32_t i, unsigned n)
{
    uint32_t d;
    for (d = 1; d < a->geo.slots && n > 0; d++) {
        uint32_t j = (i - 1 + a->geo.slots - d) % a->geo.slots + 1;
        if (shmi_slot_present(shmi_slot_state(a, j))) {
            shmi_ring(shmi_slot32(a, j, SHMI_slotWatchDoorbell));
            n--;
        }
    }
}
/* Wakes the death watchers that watch slot i, did so, or are to: they read the ring of slots
 * again. See ringWatchersOf in internal/arenakernel/deathwatcher.go. */
SHMI_FN void shmi_ring_watchers_of(shmsync_arena *a, uint32_t i) { shmi_ring_before(a, i, SHMI_watchTargets); }

/* Makes those look at the death records that want to be told of deaths. */
SHMI_FN void shmi_ring_told(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if ((shmi_slot_caps(a, i) & SHMI_capTold) != 0 && shmi_slot_present(shmi_slot_state(a, i)))
            shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell));
}

/* The participants that a death, or a leave, concerns: those that have an object open that
 * the dead participant had open. A participant owes wakes to them only, unless it dies while
 * it tells others how their waits ended, or while it reaps: then it may owe one to any
 * participant. */
typedef struct shmi_concern {
    uint32_t slots[SHMI_MaxSlots / 32 + 1];
    int unfinished; /* an undo log has a transaction of the dead */
    int anything; /* there is such an object */
    int all;      /* anybody is concerned */
    int nobody;   /* the dead participant can have left nothing in any object */
} shmi_concern;

SHMI_FN void shmi_add_openers(shmsync_arena *a, shmi_concern *c, const shmi_object *o, shmi_participant_id dead)
{
    shmi_header h;
    uint32_t i, mask, *word;
    if (shmi_header_at(a, o->off, &h) != 0)
        return;
    word = shmi_open_bit(a, &h, shmi_id_slot(dead), &mask);
    if ((shmi_ld32(word) & mask) == 0)
        return;
    c->anything = 1;
    for (i = 0; i <= a->geo.slots; i += 32)
        c->slots[i / 32] |= shmi_ld32(shmi_open_bit(a, &h, i, &mask));
}

typedef struct shmi_repair_arg {
    shmi_participant_id dead;
    int unknown; /* objects whose kind this header does not know */
    shmi_concern *concern;
} shmi_repair_arg;
SHMI_FN void shmi_repair_one(shmsync_arena *a, const shmi_object *o, void *arg)
{
    shmi_repair_arg *r = (shmi_repair_arg *)arg;
    const shmi_kind_ops *ops = shmi_kind_of(o->kind);
    shmi_add_openers(a, r->concern, o, r->dead);
    if (ops == NULL)
        r->unknown++;
    else if (ops->repair != NULL)
        ops->repair(a, o, r->dead);
    if (ops != NULL && ops->unfinished != NULL && ops->unfinished(a, o, r->dead))
        r->concern->unfinished = 1;
}
/* Whether dead, which is not this process, may owe a wake to any participant, and hold any
 * object: it died while it told others, or while it reaped. */
SHMI_FN int shmi_owes_anybody(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t i = shmi_id_slot(dead);
    return shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 || shmi_ld64(shmi_slot64(a, i, SHMI_slotWalking)) != 0;
}
/* Takes back what dead holds of any object, finds out whom that concerns, and says how many
 * objects it does not know. all says that it may be any object: else dead has touched those
 * that it holds. */
SHMI_FN int shmi_repair_all(shmsync_arena *a, shmi_participant_id dead, int all, shmi_concern *c)
{
    shmi_repair_arg r;
    memset(c, 0, sizeof *c);
    c->all = all;
    c->nobody = !all && shmi_touched_nothing(a, shmi_id_slot(dead));
    r.dead = dead;
    r.unknown = 0;
    r.concern = c;
    shmi_visit(a, all ? 0 : shmi_id_slot(dead), shmi_repair_one, &r);
    return r.unknown;
}

typedef struct shmi_owed {
    shmi_off object;
    int level;
} shmi_owed;
typedef struct shmi_owed_list {
    shmi_owed *v;
    size_t n, cap;
    int full; /* no memory: everything is owed */
} shmi_owed_list;

SHMI_FN int shmi_owed_order(const void *x, const void *y)
{
    const shmi_owed *p = (const shmi_owed *)x, *q = (const shmi_owed *)y;
    if (p->object != q->object)
        return p->object < q->object ? -1 : 1;
    return q->level - p->level; /* the highest first */
}
/* For each object with a recorded sleeper, which wakes the death of dead may have
 * swallowed. */
SHMI_FN void shmi_collect_owed(shmsync_arena *a, shmi_participant_id dead, shmi_owed_list *l)
{
    uint32_t i, k;
    memset(l, 0, sizeof *l);
    for (i = 1; i <= a->geo.slots; i++) {
        int level = SHMI_OWED_ONE;
        if (i == shmi_id_slot(dead))
            level = SHMI_OWED_ALL;
        else if (!shmi_slot_present(shmi_slot_state(a, i)))
            continue;
        for (k = 0; k < SHMI_announceCount; k++) {
            shmi_off r = shmi_slot(a, i) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride;
            if (shmi_ld64(shmi_u64(a, r + SHMI_announceWord)) == 0)
                continue;
            if (l->n == l->cap) {
                size_t cap = l->cap != 0 ? 2 * l->cap : 64;
                shmi_owed *more = (shmi_owed *)realloc(l->v, cap * sizeof *more);
                if (more == NULL) {
                    l->full = 1;
                    return;
                }
                l->v = more;
                l->cap = cap;
            }
            l->v[l->n].object = shmi_ld64(shmi_u64(a, r + SHMI_announceObject));
            l->v[l->n++].level = level;
        }
    }
    if (l->n > 1)
        qsort(l->v, l->n, sizeof *l->v, shmi_owed_order);
}
SHMI_FN int shmi_owed_level(const shmi_owed_list *l, shmi_off object)
{
    size_t low = 0, high = l->n;
    if (l->full)
        return SHMI_OWED_ALL;
    while (low < high) { /* the first of the object */
        size_t mid = (low + high) / 2;
        if (l->v[mid].object < object)
            low = mid + 1;
        else
            high = mid;
    }
    return low < l->n && l->v[low].object == object ? l->v[low].level : SHMI_OWED_ANNOUNCED;
}
SHMI_FN void shmi_wake_one_object(shmsync_arena *a, const shmi_object *o, void *arg)
{
    const shmi_kind_ops *ops = shmi_kind_of(o->kind);
    if (ops != NULL && ops->wake != NULL)
        ops->wake(a, o, shmi_owed_level((const shmi_owed_list *)arg, o->off));
}
/* Makes the participants that a death or a leave concerns look at their objects. Each participant
 * with waiting goroutines looks at all of its objects and waits then, so a participant that can
 * have left nothing there is not counted. */
SHMI_FN void shmi_count_death(shmsync_arena *a, const shmi_concern *c)
{
    uint32_t i;
    if (c->nobody)
        return;
    shmi_add32(shmi_u32(a, SHMI_hdrDeaths), 1);
    if (!c->anything && !c->all)
        return;
    for (i = 1; i <= a->geo.slots; i++)
        if ((c->all || (c->slots[i / 32] >> (i % 32) & 1) != 0) && shmi_slot_present(shmi_slot_state(a, i)))
            shmi_ring(shmi_slot32(a, i, SHMI_slotDoorbell));
}
/* Wakes, once, all waiters for a wake that a death may have swallowed. */
SHMI_FN void shmi_wake_all_for(shmsync_arena *a, shmi_participant_id dead, const shmi_concern *c)
{
    if (c->anything || c->all) {
        shmi_owed_list l;
        shmi_collect_owed(a, dead, &l);
        shmi_visit(a, c->all ? 0 : shmi_id_slot(dead), shmi_wake_one_object, &l);
        free(l.v);
        shmi_wake_resolved(a);
    }
    shmi_count_death(a, c);
}

/* Gives back what memory dead had not handed to anybody, and what those had in its
 * slot before it whose successors died over doing that. The caller is the reaper
 * of the slot, or has it. */
SHMI_FN void shmi_reclaim_memory(shmsync_arena *a, shmi_participant_id dead)
{
    uint32_t *reclaimed = shmi_slot32(a, shmi_id_slot(dead), SHMI_slotReclaimed);
    uint32_t last = shmi_id_gen(dead), first = shmi_ld32(reclaimed) + 1, g;
    size_t left;
    if (shmi_ld32(reclaimed) == last) {
        shmi_clear_open_bits(a, dead); /* it may have looked at objects after that, leaving */
        return;
    }
    if (first > last || last - first >= 256) /* generations that died one over the other; a peer's bytes may claim more */
        first = last > 256 ? last - 256 + 1 : 1;
    for (g = first; g <= last; g++) {
        shmi_participant_id n = shmi_make_participant_id(shmi_id_slot(dead), g);
        if (!shmi_touched_nothing(a, shmi_id_slot(dead))) /* else they have claimed no node */
            shmi_free_nodes_of(a, n);
        shmi_reclaim_blocks(a, n);
        shmi_clear_open_bits(a, n);
    }
    pthread_mutex_lock(&a->handles);
    left = dead == a->self ? a->n_deferred : 0;
    pthread_mutex_unlock(&a->handles);
    if (left == 0) /* else the slot's next participant takes the blocks that a peer guards */
        shmi_st32(reclaimed, last);
}

/* Makes slot i, dead or leaving in state w, available again. keep leaves the set of touched
 * chunks to the next participant of the slot: the reaper of that one repairs what this
 * process could not. */
SHMI_FN void shmi_free_slot(shmsync_arena *a, uint32_t i, uint32_t w, int keep)
{
    if (!keep && shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) == shmi_slot_gen(w))
        shmi_forget_touched(a, i);
    shmi_st32(shmi_slot32(a, i, SHMI_slotPID), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotCaps), 0);
    shmi_put_label(a, shmi_slot(a, i) + SHMI_slotLabel, "");
    shmi_st64(shmi_slot64(a, i, SHMI_slotDied), 0);
    shmi_cas_slot(a, i, w, shmi_slot_with(w, SHMI_phaseFree));
}

/* Whether another participant is there that may be a Go program, which knows all kinds. */
SHMI_FN int shmi_others(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        if (i != a->my_slot && shmi_slot_phase(w) == SHMI_phaseLive && !shmi_seen_dead(a, i, w))
            return 1;
    }
    return 0;
}

/* Whether other participants, which may know the kinds that this header does not, get their
 * time for a repair that was due since then. */
SHMI_FN int shmi_leave_to_others(shmsync_arena *a, const shmi_reap_progress *b, int64_t since)
{
    return b->unknown != 0 && shmi_now() - since < SHMI_LEAVE_TO_OTHERS && shmi_others(a);
}

/* Writes the death record, and a moment after the dead one is gone gives back its memory and
 * frees its slot, which is what only one may do. Nobody is reaper while it waits for
 * the dead one to be gone: that may take long, and it may be stopped. */
SHMI_FN void shmi_finish(shmsync_arena *a, uint32_t i, shmi_reap_progress *b)
{
    uint32_t *word = shmi_slot32(a, i, SHMI_slotReaper);
    shmi_participant_id u = shmi_ld32(word), dead = shmi_id_in(i, b->of);
    int64_t now;
    if (u != a->self && shmi_current(a, u))
        return; /* if it dies over this, the watchers of the slot go on */
    if (!shmi_take_from32(a, u, word, u, a->self, 0)) {
        shmi_leave_for(a, i);
        return;
    }
    SHMSYNC_CRASHPOINT("arena.finish.taken");
    /* From here on the slot stays dead, until this process frees it. */
    if (shmi_slot_state(a, i) != b->of || shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) != b->window) {
        shmi_cas32(word, a->self, 0);
        return;
    }
    now = shmi_now();
    if (b->written == 0) {
        b->written = now;
        if (shmi_has_death_record(a, dead))
            /* Another participant was here before, and those that the death woke have had their
             * turn. The wait begins once for each death: participants with short lives would
             * never end it. */
            b->written -= SHMI_RECLAIM_AFTER;
        else
            shmi_write_death_record(a, i, dead, 0);
        SHMSYNC_CRASHPOINT("arena.finish.recorded");
        shmi_leave_for(a, i);
        shmi_ring_told(a);
    }
    /* The kernel may not have finished with the alive words of a participant that is gone by its
     * own declaration: a joiner that takes the slot now could be marked for its death. */
    if (b->handed != 0 && b->unfinished) /* another process undoes it, and may be stopped */
        b->unfinished = shmi_unfinished(a, dead);
    if (b->handed == 0 || b->unfinished || !shmi_ended(a, i) || shmi_leave_to_others(a, b, b->handed)) {
        shmi_ask_after(a, b->reaped);
        shmi_cas32(word, a->self, 0);
        return;
    }
    if (now - b->written < SHMI_RECLAIM_AFTER) {
        shmi_leave_for(a, i);
        shmi_cas32(word, a->self, 0); /* as above: a process that is stopped here must not keep others from going on */
        return;
    }
    if (!b->reclaimed)
        shmi_reclaim_memory(a, dead);
    b->reclaimed = 1;
    SHMSYNC_CRASHPOINT("arena.finish.reclaimed");
    shmi_free_slot(a, i, b->of, b->unknown != 0);
    SHMSYNC_CRASHPOINT("arena.finish.freed");
    shmi_cas32(word, a->self, 0);
    shmi_ring_watchers_of(a, i);
}

SHMI_FN void shmi_reap_marked(shmsync_arena *a, uint32_t i, uint32_t w)
{
    shmi_reap_progress *b;
    shmi_concern concern;
    shmi_participant_id dead = shmi_id_in(i, w);
    uint64_t window;
    int gone;
    pthread_mutex_lock(&a->reaping);
    b = &a->reaps[i];
    window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST) && shmi_slot_state(a, i) == w) {
        unsigned k;
        if (b->of != w || b->window != window) {
            memset(b, 0, sizeof *b);
            b->of = w;
            b->window = window;
        }
        gone = shmi_gone(a, dead);
        if (!b->reaped) {
            /* Others sleep on these words too, and the kernel woke one of each. */
            for (k = 0; k < SHMI_aliveWords; k++)
                shmi_wake(shmi_alive_word(a, i, k), SHMI_ALL);
            b->unknown = shmi_repair_all(a, dead, shmi_owes_anybody(a, dead), &concern);
            SHMSYNC_CRASHPOINT("arena.reap.repaired");
            shmi_wake_all_for(a, dead, &concern);
            SHMSYNC_CRASHPOINT("arena.reap.woken");
            b->unfinished = concern.unfinished;
            b->reaped = shmi_now();
            b->handed = gone ? b->reaped : 0;
        } else if (!b->handed && gone) {
            b->unknown = shmi_repair_all(a, dead, shmi_owes_anybody(a, dead), &concern);
            SHMSYNC_CRASHPOINT("arena.reap.handed_over");
            shmi_wake_all_for(a, dead, &concern);
            b->unfinished = concern.unfinished;
            b->handed = shmi_now();
        }
        if (!b->handed)
            shmi_ask_after(a, b->reaped);
        if (b->written == 0 && shmi_leave_to_others(a, b, b->reaped)) {
            shmi_leave_for(a, i);
            shmi_ring_watchers_of(a, i);
        } else {
            shmi_finish(a, i, b);
        }
    }
    pthread_mutex_unlock(&a->reaping);
}

SHMI_FN void shmi_reap(shmsync_arena *a, uint32_t i, uint32_t w)
{
    if (shmi_slot_present(w) && !shmi_mark(a, i, w)) { /* another participant did, or it cannot be done yet */
        shmi_reap_progress *b = &a->reaps[i];
        pthread_mutex_lock(&a->reaping);
        if (b->dying != w) {
            b->dying = w;
            b->seen = shmi_now();
        }
        shmi_ask_after(a, b->seen);
        pthread_mutex_unlock(&a->reaping);
        return;
    }
    shmi_reap_marked(a, i, shmi_slot_with(w, SHMI_phaseDead));
}

/* Goes on with the reaps that are unfinished. */
SHMI_FN void shmi_continue_reaps(shmsync_arena *a)
{
    uint32_t i;
    __atomic_store_n(&a->ask_at, 0, __ATOMIC_RELAXED);
    shmi_st32(&a->unfinished, 0);
    pthread_mutex_lock(&a->reaping);
    for (i = 1; i <= a->geo.slots; i++)
        if (a->reaps[i].of != 0 && shmi_slot_state(a, i) != a->reaps[i].of) {
            /* Finished by others, or a joiner has taken the slot over and waits for the
             * reaper there. */
            shmi_cas32(shmi_slot32(a, i, SHMI_slotReaper), a->self, 0);
            memset(&a->reaps[i], 0, sizeof a->reaps[i]);
        }
    pthread_mutex_unlock(&a->reaping);
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i), bit = UINT32_C(1) << (i % 32), *left = &a->leftover[i / 32];
        int left_over = (shmi_ld32(left) & bit) != 0;
        if (left_over)
            shmi_and32(left, ~bit);
        if (i != a->my_slot && (shmi_slot_phase(w) == SHMI_phaseDead || (left_over && shmi_survey_dead(a, i, w))))
            shmi_reap(a, i, w);
    }
}

/* Asks for the byte locks of those whom this process is to watch, and reaps those that have
 * none, until there are as many as it watches that live, or none: see surveyAhead in
 * internal/arenakernel/reap.go. */
SHMI_FN void shmi_survey_ahead(shmsync_arena *a)
{
    int again;
    do {
        uint32_t d, present = 0;
        again = 0;
        for (d = 1; d < a->geo.slots && present < SHMI_watchTargets; d++) {
            uint32_t i = (a->my_slot - 1 + d) % a->geo.slots + 1, w = shmi_slot_state(a, i);
            if (!shmi_slot_present(w))
                continue;
            present++;
            if (shmi_survey_dead(a, i, w)) {
                shmi_reap(a, i, w);
                again = again || shmi_slot_state(a, i) != w;
            }
        }
    } while (again);
}


/* ---- The generations of a slot: see internal/arenakernel/window.go ----
 *
 * A slot goes through the generations of a window. When they are used up, a joiner records another
 * one, with generations that no word of the arena names, and on whose IDs no thread is about to
 * act. The next participant of the slot has the first of them. */

enum {
    /* SHMI_slotWindow: first generation in bits 0..17, last in 18..35, number in 36..63 */
    SHMI_RENEW_MOST = 64, /* for how many slots one search looks */
    SHMI_SEARCHES = 3,    /* see searches in window.go */
    SHMI_RENEW_EVERY = 64 /* in how many joins of a slot a joiner renews the other slots */
};
#define SHMI_HEIRS_LEFT 256u /* generations at the end that are left to joiners that clean up after somebody */
/* Tests make both smaller, so that generations are used again soon. */
#ifndef SHMI_GENERATIONS_MOST
#define SHMI_GENERATIONS_MOST 262143u
#endif
#ifndef SHMI_WINDOW_LEAST
#define SHMI_WINDOW_LEAST 32u
#endif

/* The kinds of the plain objects. */
#define SHMI_KIND_VALUE UINT32_C(0x554c4156) /* VALU */
#define SHMI_KIND_BLOCK UINT32_C(0x4b4f4c42) /* BLOK */

typedef struct shmi_window {
    uint64_t raw;
    uint32_t first, last, number;
} shmi_window;

SHMI_FN uint64_t shmi_make_window(uint32_t first, uint32_t last, uint32_t number)
{
    return first | (uint64_t)last << 18 | (uint64_t)number << 36;
}
/* The window of slot i. It is not legal if a peer has overwritten it. */
SHMI_FN shmi_window shmi_window_of(const shmsync_arena *a, uint32_t i)
{
    shmi_window w;
    w.raw = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    w.first = w.raw == 0 ? 1 : (uint32_t)w.raw & SHMI_maxGeneration;
    w.last = w.raw == 0 ? SHMI_GENERATIONS_MOST : (uint32_t)(w.raw >> 18) & SHMI_maxGeneration;
    w.number = (uint32_t)(w.raw >> 36);
    return w;
}
SHMI_FN int shmi_window_legal(const shmi_window *w) { return w->first != 0 && w->first <= w->last; }
SHMI_FN int shmi_window_has(const shmi_window *w, uint32_t g) { return w->first <= g && g <= w->last; }
SHMI_FN uint32_t shmi_window_heirs(const shmi_window *w)
{
    uint32_t half = (w->last - w->first + 1) / 2;
    return half < SHMI_HEIRS_LEFT ? half : SHMI_HEIRS_LEFT;
}

SHMI_FN int shmi_untouched(shmsync_arena *a, uint32_t i)
{
    uint64_t bit;
    for (bit = 0; bit < SHMI_touchedBits; bit += 64)
        if (shmi_ld64(shmi_touched_word(a, i, bit)) != 0)
            return 0;
    return 1;
}
/* Whether nothing is left of those who were in slot i, which is free in state w. */
SHMI_FN int shmi_cleaned(shmsync_arena *a, uint32_t i, uint32_t w)
{
    return shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) == shmi_slot_gen(w) && shmi_untouched(a, i);
}
/* Whether the first of window win may take slot i, free in state w of an earlier window: see mayEnter
 * in internal/arenakernel/window.go. */
SHMI_FN int shmi_may_enter(shmsync_arena *a, uint32_t i, uint32_t w, const shmi_window *win)
{
    uint32_t r = shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed));
    return (r == shmi_slot_gen(w) || r == win->first - 1) && shmi_untouched(a, i);
}
/* The generation of whoever takes slot i, free or dead in state w, and the bytes of the window that
 * it is of; 0 if its generations are used up. inherit says that the slot's participant is dead. */
SHMI_FN uint32_t shmi_next_generation(shmsync_arena *a, uint32_t i, uint32_t w, int inherit, uint64_t *raw)
{
    shmi_window win = shmi_window_of(a, i);
    uint32_t g = shmi_slot_gen(w), left;
    *raw = win.raw;
    if (!shmi_window_legal(&win))
        return 0;
    if (!shmi_window_has(&win, g))
        /* inherit: a peer's bytes, since a window is recorded for a free slot only */
        return inherit || !shmi_may_enter(a, i, w, &win) ? 0 : win.first;
    left = win.last - g;
    if (left > shmi_window_heirs(&win) || (left > 0 && (inherit || !shmi_cleaned(a, i, w))))
        return g + 1;
    return 0;
}
/* Whether slot i, in state w, is free and has no generation left. */
SHMI_FN int shmi_used_up(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t raw;
    return shmi_slot_phase(w) == SHMI_phaseFree && shmi_next_generation(a, i, w, 0, &raw) == 0;
}

/* The generations of some slots that words of the arena name, or bytes that may be IDs. */
typedef struct shmi_id_search {
    uint32_t n, slots[SHMI_RENEW_MOST];
    uint8_t place[SHMI_MaxSlots + 1]; /* of a slot in slots, from 1 */
    uint64_t *found;                  /* a set for each of slots */
} shmi_id_search;
enum { SHMI_GENERATION_WORDS = (SHMI_maxGeneration + 1) / 64 };

SHMI_FN void shmi_found_generation(shmi_id_search *s, uint32_t k, uint32_t g)
{
    s->found[(size_t)k * SHMI_GENERATION_WORDS + g / 64] |= UINT64_C(1) << (g % 64);
}
SHMI_FN void shmi_found_id(shmi_id_search *s, shmi_participant_id n)
{
    uint8_t k = s->place[shmi_id_slot(n)];
    if (k != 0)
        shmi_found_generation(s, k - 1u, shmi_id_gen(n));
}
/* An ID may be in bits 0..28 or 3..31. */
SHMI_FN void shmi_search_word(shmi_id_search *s, uint32_t w)
{
    if (w != 0) {
        shmi_found_id(s, w & SHMI_NAME_MASK);
        shmi_found_id(s, w >> 3);
    }
}
SHMI_FN void shmi_search_words(shmsync_arena *a, shmi_id_search *s, shmi_off from, shmi_off to)
{
    for (from &= ~(shmi_off)3; from < to; from += 4)
        shmi_search_word(s, shmi_ld32(shmi_u32(a, from)));
}
/* How many bytes of a body are not records of an undo log, which are users' bytes. */
SHMI_FN uint64_t shmi_words_before_records(shmsync_arena *a, const shmi_object *o)
{
    uint64_t head = sizeof(shmi_mutex_words) + SHMI_logHead;
    return o->kind == SHMI_KIND_MUTEX && o->size > head && (shmi_ld32(shmi_u32(a, o->body + offsetof(shmi_mutex_words, policy))) & 0xff) == SHMI_POLICY_ROLLBACK ? head : o->size;
}
/* Looks through a block, but not at what is its users'. */
SHMI_FN void shmi_search_block(shmsync_arena *a, shmi_id_search *s, shmi_off off, uint64_t size, uint32_t w)
{
    shmi_header h;
    if (shmi_block_kind(w) == SHMI_blockFree)
        return;
    shmi_found_id(s, shmi_block_name(w));
    if (shmi_block_kind(w) == SHMI_blockRaw || shmi_block_kind(w) == SHMI_blockLogged)
        return;
    if (shmi_block_kind(w) == SHMI_blockObject && shmi_header_at(a, off, &h) == 0) {
        const uint64_t head = 3 * sizeof(uint64_t); /* state, seq, next; the item is behind */
        shmi_off body = h.o.body, end = body + h.o.size;
        uint64_t item;
        shmi_search_words(a, s, end, off + size);
        shmi_search_words(a, s, off, body);
        if (h.o.kind == SHMI_KIND_VALUE || h.o.kind == SHMI_KIND_BLOCK)
            return;
        if (h.o.kind == SHMI_KIND_QUEUE && h.o.size >= sizeof(shmi_queue_words) &&
            (item = shmi_ld64(shmi_u64(a, body + offsetof(shmi_queue_words, item)))) <= h.o.size) {
            shmi_search_words(a, s, body, body + sizeof(shmi_queue_words));
            for (body += sizeof(shmi_queue_words); body + head <= end; body += head + ((item + 7) & ~UINT64_C(7)))
                shmi_search_words(a, s, body, body + head);
            return;
        }
        off = body;
        size = shmi_words_before_records(a, &h.o);
    }
    shmi_search_words(a, s, off, off + size);
}
SHMI_FN void shmi_search_ids(shmsync_arena *a, shmi_id_search *s)
{
    uint64_t i, k;
    for (i = 1; i <= a->geo.slots; i++)
        shmi_search_word(s, shmi_ld32(shmi_slot32(a, (uint32_t)i, SHMI_slotReaper)));
    shmi_search_word(s, shmi_ld32(shmi_u32(a, SHMI_hdrDirLowerer)));
    for (k = 0; k < SHMI_deathRecordCount; k++) /* or who asks for the ID of a record is told of another */
        shmi_search_word(s, shmi_ld32(shmi_u32(a, a->geo.death_record_off + k * SHMI_deathRecordStride + SHMI_deathRecordID)));
    for (i = 0; i < a->geo.chunk_count; i++) {
        uint64_t w = shmi_load_chunk(a, i), n = 0, size = 0;
        shmi_found_id(s, shmi_chunk_name(w));
        if (!shmi_chunk_legal(w, i, a->geo.chunk_count))
            continue;
        switch (shmi_chunk_kind(w)) {
        case SHMI_chunkHead:
            n = 1;
            size = shmi_chunk_number(w) * SHMI_chunkSize;
            break;
        case SHMI_chunkSlab:
        case SHMI_chunkSweeping:
            n = shmi_blocks_of((int)shmi_chunk_number(w));
            size = shmi_class_size[shmi_chunk_number(w)];
            /* The words of a free node stay as they were, and somebody may look at them. */
            if (shmi_chunk_number(w) == SHMI_classNode)
                shmi_search_words(a, s, shmi_chunk_off(a, i), shmi_chunk_off(a, i) + SHMI_chunkSize);
            break;
        }
        for (k = 0; k < n; k++)
            shmi_search_block(a, s, shmi_chunk_off(a, i) + k * size, size, shmi_ld32(shmi_block_word(a, i, k)));
    }
}
/* The longest run of generations that are not in set k; 0: there is none. */
SHMI_FN uint32_t shmi_longest_gap(const shmi_id_search *s, uint32_t k, uint32_t *first)
{
    const uint64_t *set = s->found + (size_t)k * SHMI_GENERATION_WORDS;
    uint32_t g, begin = 1, longest = 0;
    for (g = 1; g <= SHMI_GENERATIONS_MOST + 1; g++) {
        if (g <= SHMI_GENERATIONS_MOST && (set[g / 64] >> (g % 64) & 1) == 0)
            continue;
        if (g - begin > longest) {
            longest = g - begin;
            *first = begin;
        }
        begin = g + 1;
    }
    return longest;
}

/* Waits until each participant was seen once when it did not end a wait of another; 0: one does so
 * for long. */
SHMI_FN int shmi_each_told(shmsync_arena *a)
{
    uint32_t i;
    int tries;
    for (i = 1; i <= a->geo.slots; i++)
        for (tries = 0; shmi_ld32(shmi_slot32(a, i, SHMI_slotTelling)) != 0 && shmi_current(a, shmi_id_in(i, shmi_slot_state(a, i))); tries++) {
            if (tries == 50)
                return 0;
            sched_yield();
        }
    return 1;
}

/* A slot whose participant is dead and not reaped, or 0. */
SHMI_FN uint32_t shmi_dead_slot(shmsync_arena *a, uint32_t my_slot)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != my_slot && shmi_slot_phase(shmi_slot_state(a, i)) == SHMI_phaseDead)
            return i;
    return 0;
}

typedef struct shmi_renewal {
    uint32_t crowded;      /* slots that have too few generations that no word names */
    const char *postponed; /* why slots that are used up could not be renewed, or NULL */
} shmi_renewal;

/* Gives those slots another window that are used up, with generations that no word names and on
 * whose IDs no thread is about to act. Whether it is worth to look at the slots again: it has renewed
 * some, or has to try again. See renewSlots in internal/arenakernel/window.go. */
SHMI_FN int shmi_renew_slots(shmsync_arena *a, uint32_t my_slot, shmi_renewal *r)
{
    shmi_id_search *s;
    uint64_t *before; /* the states and windows of the slots that are used up */
    uint32_t i, k;
    int again = 0;
    r->postponed = NULL;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != my_slot && shmi_used_up(a, i, shmi_slot_state(a, i)))
            break;
    if (i > a->geo.slots)
        return 0;
    s = (shmi_id_search *)calloc(1, sizeof *s);
    before = (uint64_t *)malloc(2 * SHMI_RENEW_MOST * sizeof *before);
    if (s == NULL || before == NULL)
        goto out;
    for (i = 1; i <= a->geo.slots && s->n < SHMI_RENEW_MOST; i++) {
        uint32_t w = shmi_slot_state(a, i);
        before[2 * s->n] = w;
        before[2 * s->n + 1] = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
        if (i != my_slot && shmi_used_up(a, i, w) && shmi_cleaned(a, i, w)) {
            s->slots[s->n++] = i;
            s->place[i] = (uint8_t)s->n;
        }
    }
    if (s->n == 0 || (s->found = (uint64_t *)calloc(s->n, SHMI_GENERATION_WORDS * sizeof *s->found)) == NULL)
        goto out;
    if (shmi_dead_slot(a, my_slot) != 0) {
        r->postponed = "a participant is dead";
        goto out;
    }
    again = 1;
    for (k = 0; k < s->n; k++)
        shmi_found_generation(s, k, shmi_slot_gen((uint32_t)before[2 * k]));
    for (k = 0; k <= SHMI_SEARCHES; k++) {
        if (k > 0)
            shmi_search_ids(a, s);
        if (k < 2 && !shmi_each_told(a)) { /* before the first search, too: a walk takes long */
            r->postponed = "a process is in the middle of ending a wait of another, or is stopped there";
            goto out;
        }
    }
    SHMSYNC_CRASHPOINT("arena.renew.searched");
    for (i = 1; i <= a->geo.slots; i++)
        for (k = 0; k < SHMI_actWords; k++)
            shmi_found_id(s, shmi_ld32(shmi_slot32(a, i, SHMI_slotActs + k * 4)) & SHMI_NAME_MASK);
    if (shmi_dead_slot(a, my_slot) != 0) {
        r->postponed = "a participant has died";
        goto out;
    }
    again = 0;
    r->crowded = 0;
    for (k = 0; k < s->n; k++) {
        uint64_t old = before[2 * k + 1];
        uint32_t first = 0, n = shmi_longest_gap(s, k, &first);
        if (n < SHMI_WINDOW_LEAST) {
            r->crowded++;
            continue;
        }
        again = 1;
        /* Fails if another has renewed the slot: no two windows of a slot have the same number. */
        if (shmi_slot_state(a, s->slots[k]) == (uint32_t)before[2 * k] &&
            shmi_cas64(shmi_slot64(a, s->slots[k], SHMI_slotWindow), old,
                       shmi_make_window(first, first + n - 1, ((uint32_t)(old >> 36) + 1) & ((1u << 28) - 1))))
            SHMSYNC_CRASHPOINT("arena.renew.recorded");
    }
out:
    if (s != NULL)
        free(s->found);
    free(s);
    free(before);
    return again;
}

/* Renews the slots other than this joiner's: see renewOthers in internal/arenakernel/window.go. */
SHMI_FN void shmi_renew_others(shmsync_arena *a)
{
    shmi_renewal renewal;
    uint32_t i, rounds;
    if (shmi_id_gen(a->self) % SHMI_RENEW_EVERY != 0)
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (i != a->my_slot && shmi_slot_phase(w) == SHMI_phaseFree && !shmi_used_up(a, i, w))
                return;
        }
    for (rounds = 1 + a->geo.slots / SHMI_RENEW_MOST; rounds > 0; rounds--)
        if (!shmi_renew_slots(a, a->my_slot, &renewal) || renewal.postponed != NULL)
            return;
}
/* ---- Epochs and the gate: internal/arenakernel/epoch_word.go and gate.go ---- */

#define SHMI_GATE_BYTE (UINT64_C(1) << 62)
#define SHMI_GATE_PAUSE INT64_C(50000)
#define SHMI_GATE_PAUSE_MOST INT64_C(10000000)
#define SHMI_GATE_TIMEOUT INT64_C(1000000000)
/* Results that are no errno values: those may come from on_first. */
enum {
    SHMI_MOVED = -1, /* the name of the arena does not lead to its file any more */
    SHMI_TRY_AGAIN = -2
};

SHMI_FN uint32_t shmi_epoch_phase(uint64_t w) { return (uint32_t)(w >> 61); }
SHMI_FN uint32_t shmi_epoch_number(uint64_t w) { return (uint32_t)w; }
SHMI_FN shmi_participant_id shmi_epoch_claimant(uint64_t w) { return (uint32_t)(w >> 32) & SHMI_NAME_MASK; }
SHMI_FN uint64_t shmi_make_epoch(uint32_t phase, uint32_t number, shmi_participant_id claimant)
{
    return (uint64_t)number | (uint64_t)(claimant & SHMI_NAME_MASK) << 32 | (uint64_t)phase << 61;
}
/* The word of a claim after w, of the process that has the gate. */
SHMI_FN uint64_t shmi_epoch_claim(uint64_t w, shmi_participant_id claimant)
{
    uint32_t n = shmi_epoch_number(w);
    if (shmi_epoch_phase(w) == SHMI_epochOpen || n == 0)
        n = n + 1 != 0 ? n + 1 : 1;
    return shmi_make_epoch(SHMI_epochClaiming, n, claimant);
}
/* The word after a claim that found a participant that is in: the epoch before. */
SHMI_FN uint64_t shmi_epoch_end(uint64_t w)
{
    return shmi_epoch_number(w) <= 1 ? 0 : shmi_make_epoch(SHMI_epochOpen, shmi_epoch_number(w) - 1, 0);
}
/* Whether no participant can have changed the arena yet, not even in on_first. */
SHMI_FN int shmi_epoch_untouched(uint64_t w)
{
    return shmi_epoch_number(w) == 0 || (shmi_epoch_number(w) == 1 && shmi_epoch_phase(w) == SHMI_epochClaiming);
}
SHMI_FN uint64_t shmi_epoch(shmsync_arena *a) { return shmi_ld64(shmi_u64(a, SHMI_hdrEpoch)); }
SHMI_FN int shmi_cas_epoch(shmsync_arena *a, uint64_t from, uint64_t to) { return shmi_cas64(shmi_u64(a, SHMI_hdrEpoch), from, to); }

enum {
    SHMI_isOut,
    SHMI_isDying, /* it is dead, but may execute stores still */
    SHMI_isIn
};

/* Whether the participant in slot i is in, which is not this one. */
SHMI_FN int shmi_presence_of(shmsync_arena *a, uint32_t i)
{
    int round;
    for (round = 0; round < 8; round++) { /* each round but the first means that the slot changed */
        uint32_t w = shmi_slot_state(a, i);
        if (a->self == 0 && shmi_slot_phase(w) == SHMI_phaseDead && !shmi_ended(a, i))
            return SHMI_isDying; /* a participant waits for its end before it calls on_first */
        if (i == a->my_slot || (shmi_slot_phase(w) != SHMI_phaseLive && shmi_slot_phase(w) != SHMI_phaseLeaving))
            return SHMI_isOut;
        if (shmi_ld32(shmi_slot32(a, i, SHMI_slotAdmission)) != SHMI_admissionIn) {
            if (shmi_slot_state(a, i) == w)
                return SHMI_isOut;
        } else if (!shmi_survey_dead(a, i, w)) {
            if (shmi_slot_state(a, i) == w)
                return SHMI_isIn;
        } else if (a->self == 0) {
            return shmi_ended(a, i) ? SHMI_isOut : SHMI_isDying; /* a process that is no participant marks nobody */
        } else {
            shmi_mark(a, i, w);
            if (shmi_slot_state(a, i) == w)
                return SHMI_isDying;
        }
    }
    return SHMI_isDying;
}
/* A participant that is in, or 0. */
SHMI_FN uint32_t shmi_any_in(shmsync_arena *a)
{
    uint32_t i;
    for (i = 1; i <= a->geo.slots; i++)
        if (shmi_presence_of(a, i) == SHMI_isIn)
            return i;
    return 0;
}
SHMI_FN int shmi_lock_gate(shmsync_arena *a) { return shmi_lock_byte(a->lock_fd, SHMI_GATE_BYTE) == 0; }
SHMI_FN void shmi_unlock_gate(shmsync_arena *a) { shmi_unlock_byte(a->lock_fd, SHMI_GATE_BYTE); }

/* Asks for an arena in which no participant is, and in which none will be until this process ends
 * the claim: see claimEpoch. The caller has the gate. Gives the word, or 0; *in is a participant that is in. */
SHMI_FN uint64_t shmi_claim_epoch(shmsync_arena *a, uint32_t *in)
{
    uint64_t old = shmi_epoch(a), w = shmi_epoch_claim(old, a->self), claimed;
    uint32_t i;
    int dying = 0;
    *in = 0;
    if (shmi_epoch_phase(old) == SHMI_epochRemoved || !shmi_cas_epoch(a, old, w))
        return 0;
    SHMSYNC_CRASHPOINT("arena.gate.claiming");
    for (i = 1; i <= a->geo.slots; i++) {
        int p;
        if (i != a->my_slot && shmi_slot_phase(shmi_slot_state(a, i)) == SHMI_phaseLive)
            shmi_cas32(shmi_slot32(a, i, SHMI_slotAdmission), SHMI_admissionPending, SHMI_admissionRefused);
        p = shmi_presence_of(a, i);
        if (p == SHMI_isIn) {
            *in = i;
            shmi_cas_epoch(a, w, shmi_epoch_end(w));
            return 0;
        }
        dying = dying || p == SHMI_isDying;
    }
    if (dying) { /* a dead claimant may have changed the arena in on_first */
        shmi_cas_epoch(a, w, shmi_epoch_phase(old) == SHMI_epochClaimed ? old : shmi_epoch_end(w));
        return 0;
    }
    SHMSYNC_CRASHPOINT("arena.gate.visited");
    claimed = shmi_make_epoch(SHMI_epochClaimed, shmi_epoch_number(w), a->self);
    return shmi_cas_epoch(a, w, claimed) ? claimed : 0; /* else a joiner has ended the claim */
}

/* Whether the path of the arena leads elsewhere. */
SHMI_FN int shmi_moved(shmsync_arena *a)
{
    struct stat st;
    if (strchr(a->path, '/') == NULL)
        return 0;
    if (stat(a->path, &st) != 0)
        return errno == ENOENT;
    return (uint64_t)st.st_dev != a->dev || (uint64_t)st.st_ino != a->ino;
}
/* Whether the file may be on a disk. */
SHMI_FN int shmi_outlives_boot(shmsync_arena *a)
{
    struct statfs fs;
    return fstatfs(a->fd, &fs) == 0 && (uint32_t)fs.f_type != 0x01021994 /* tmpfs */ && (uint32_t)fs.f_type != 0x958458f6 /* hugetlbfs */ &&
           (uint32_t)fs.f_type != 0x858458f6 /* ramfs */;
}
/* The number of the epoch that this participant, which leaves, is in; *synced is that of the epoch after which the
 * file was last written back. 0 if it was never in. Its slot is not free yet, so the epoch cannot end. */
SHMI_FN uint32_t shmi_epoch_of_write_back(shmsync_arena *a, uint32_t *synced)
{
    uint64_t w = shmi_epoch(a);
    *synced = shmi_ld32(shmi_u32(a, SHMI_hdrSynced));
    if (shmi_ld32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission)) != SHMI_admissionIn)
        return 0;
    return shmi_epoch_number(shmi_epoch_phase(w) == SHMI_epochClaiming ? shmi_epoch_end(w) : w);
}
/* Writes a file on a disk back if this participant, which has left epoch number, was the last. The slot words are
 * read before and after: if none has changed, no process was in the file meanwhile. */
SHMI_FN void shmi_write_back(shmsync_arena *a, uint32_t number, uint32_t synced)
{
    uint32_t i, words[SHMI_MaxSlots + 1];
    if (number == 0 || !shmi_outlives_boot(a))
        return;
    for (i = 1; i <= a->geo.slots; i++) {
        words[i] = shmi_slot_state(a, i);
        if (shmi_slot_taken(words[i]))
            return;
    }
    if (msync(a->base, (size_t)a->size, MS_SYNC) != 0)
        return;
    for (i = 1; i <= a->geo.slots; i++)
        if (shmi_slot_state(a, i) != words[i])
            return;
    shmi_cas32(shmi_u32(a, SHMI_hdrSynced), synced, number);
    msync(a->base, SHMI_headerSize, MS_SYNC);
}

/* ---- Removal of a file: internal/arenakernel/remove_file.go ---- */

/* The private name that the file with inode number ino has while it is removed from path. */
SHMI_FN void shmi_private_name(const char *path, uint64_t ino, char *out, size_t n)
{
    const char *base = strrchr(path, '/') + 1;
    snprintf(out, n, "%.*s.%.200s.%llu.removed~", (int)(base - path), path, base, (unsigned long long)ino);
}
/* Tests take renameat2 away by a number of no system call. */
#ifndef SHMI_RENAMEAT2
#define SHMI_RENAMEAT2 SYS_renameat2
#endif
/* Gives a file another path. EEXIST. ENOTSUP: the kernel, or the file system, cannot rename so. */
SHMI_FN int shmi_rename_new(const char *from, const char *to)
{
    int err = syscall(SHMI_RENAMEAT2, AT_FDCWD, from, AT_FDCWD, to, 1u) == 0 ? 0 : errno; /* RENAME_NOREPLACE */
    return err == ENOSYS || err == EINVAL || err == EOPNOTSUPP ? ENOTSUP : err;
}
/* Whether a remover of the file, which died, has left what is at the private name: another name of the file, or its
 * placeholder. There is no living one, since this process has the gate. */
SHMI_FN int shmi_left_by_remover(const struct stat *own, const char *private_name, const char *placeholder)
{
    char says[64];
    struct stat there;
    ssize_t n;
    if (lstat(private_name, &there) == 0 && there.st_dev == own->st_dev && there.st_ino == own->st_ino)
        return 1;
    n = readlink(private_name, says, sizeof says);
    return n > 0 && (size_t)n == strlen(placeholder) && memcmp(says, placeholder, (size_t)n) == 0;
}
SHMI_FN int shmi_rename_to_private(const char *path, const char *private_name, const char *placeholder)
{
    int err = shmi_rename_new(path, private_name);
    if (err != ENOTSUP)
        return err;
    /* Here rename replaces what has the name. So this remover takes the name by a symbolic link, and replaces that. */
    if (symlink(placeholder, private_name) != 0)
        return errno;
    SHMSYNC_CRASHPOINT("arena.remove.placed");
    if (rename(path, private_name) == 0)
        return 0;
    err = errno;
    unlink(private_name);
    return err;
}
/* Renames the file at path to its private name. EEXIST if there is a file of that name, unless a remover that died has
 * left it. */
SHMI_FN int shmi_take_private_name(const struct stat *own, const char *path, const char *private_name)
{
    char placeholder[64];
    int err;
    snprintf(placeholder, sizeof placeholder, "removal of inode %llu", (unsigned long long)own->st_ino);
    err = shmi_rename_to_private(path, private_name, placeholder);
    if (err != EEXIST || !shmi_left_by_remover(own, private_name, placeholder))
        return err;
    if (unlink(private_name) != 0 && errno != ENOENT)
        return errno;
    return shmi_rename_to_private(path, private_name, placeholder);
}
/* Removes the file fd, whose gate the caller has, from path. *moved: path led to another file, which is there
 * still. The kernel has no call that removes a name only if it leads to a certain file. */
SHMI_FN int shmi_remove_file(int fd, const char *path, int *moved)
{
    char private_name[PATH_MAX + 300];
    struct stat own, there;
    int err;
    *moved = 0;
    if (fstat(fd, &own) != 0)
        return shmi_fail(errno, "arena.remove", path, "%s", "");
    shmi_private_name(path, (uint64_t)own.st_ino, private_name, sizeof private_name);
    SHMSYNC_CRASHPOINT("arena.remove.checked");
    err = shmi_take_private_name(&own, path, private_name);
    if (err == EEXIST)
        return shmi_fail(err, "arena.remove", path, "another program has a file at %s, which the removal needs: move it away", private_name);
    if (err != 0)
        return err == ENOENT ? 0 : shmi_fail(err, "arena.remove", path, "%s", "");
    if (lstat(private_name, &there) != 0)
        return errno == ENOENT ? 0 : shmi_fail(errno, "arena.remove", path, "%s", "");
    if (own.st_dev == there.st_dev && own.st_ino == there.st_ino) {
        SHMSYNC_CRASHPOINT("arena.remove.renamed");
        return unlink(private_name) == 0 || errno == ENOENT ? 0 : shmi_fail(errno, "arena.remove", path, "%s", "");
    }
    *moved = 1;
    err = shmi_rename_new(private_name, path);
    if (err == ENOTSUP) {
        err = link(private_name, path) == 0 ? 0 : errno;
        if (err == 0)
            unlink(private_name);
    }
    if (err != 0)
        return shmi_fail(err, "arena.remove", path, "another program has put a file there, which is at %s now", private_name);
    return 0;
}
/* Removes files that were at path and whose remover died before they lost their private name. */
SHMI_FN void shmi_sweep_removed(const char *path)
{
    char private_name[PATH_MAX + 300], dir[PATH_MAX];
    const char *base = strrchr(path, '/') + 1;
    struct dirent *e;
    DIR *d;
    snprintf(dir, sizeof dir, "%.*s", (int)(base - path), path);
    d = opendir(dir);
    while (d != NULL && (e = readdir(d)) != NULL) {
        struct stat own, there;
        int fd;
        shmi_private_name(path, (uint64_t)e->d_ino, private_name, sizeof private_name);
        if (strcmp(strrchr(private_name, '/') + 1, e->d_name) != 0)
            continue;
        fd = open(private_name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (fd < 0)
            continue;
        if (fstat(fd, &own) == 0 && own.st_ino == e->d_ino && shmi_lock_byte(fd, SHMI_GATE_BYTE) == 0 && lstat(private_name, &there) == 0 &&
            own.st_dev == there.st_dev && own.st_ino == there.st_ino)
            unlink(private_name);
        close(fd);
    }
    if (d != NULL)
        closedir(d);
}

/* Removes the file of an arena in which this process is alone. *moved: it did not, since the path leads to another
 * file by now, or this process is not alone any more. */
SHMI_FN int shmi_unlink_claimed(shmsync_arena *a, uint64_t w, int *moved)
{
    int err;
    *moved = 1;
    if (shmi_epoch(a) != w)
        return 0; /* a joiner without byte locks has ended the claim */
    err = shmi_remove_file(a->fd, a->path, moved);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("arena.remove.unlinked");
    /* Joiners that have the file open start over. If it was moved, it is at no path that they know. */
    shmi_cas_epoch(a, w, shmi_make_epoch(SHMI_epochRemoved, shmi_epoch_number(w), shmi_epoch_claimant(w)));
    SHMSYNC_CRASHPOINT("arena.remove.marked");
    return 0;
}

/* Says which process a joiner waits for, and gives err. */
SHMI_FN int shmi_fail_gate(shmsync_arena *a, int err, const char *op)
{
    uint64_t w = shmi_epoch(a);
    shmi_participant_id n = shmi_epoch_claimant(w);
    uint32_t i = shmi_id_slot(n);
    if ((shmi_epoch_phase(w) == SHMI_epochClaiming || shmi_epoch_phase(w) == SHMI_epochClaimed) && i >= 1 && i <= a->geo.slots) {
        char label[SHMI_labelBytes + 1];
        shmi_get_label(a, shmi_slot(a, i) + SHMI_slotLabel, label);
        return shmi_fail(err, op, a->label, "%s (pid %u, slot %u.%u) begins epoch %u", label, shmi_ld32(shmi_slot32(a, i, SHMI_slotPID)), i, shmi_id_gen(n), shmi_epoch_number(w));
    }
    return shmi_fail(err, op, a->label, "another process has the gate of the arena");
}
/* EBUSY: names a participant that is in. */
SHMI_FN int shmi_fail_in(shmsync_arena *a, const char *op, uint32_t i)
{
    char label[SHMI_labelBytes + 1];
    shmi_get_label(a, shmi_slot(a, i) + SHMI_slotLabel, label);
    return shmi_fail(EBUSY, op, a->label, "%s (pid %u, slot %u.%u) is in", label, shmi_ld32(shmi_slot32(a, i, SHMI_slotPID)), i, shmi_slot_gen(shmi_slot_state(a, i)));
}

/* Repairs what earlier participants of slot i have left, and records the death if the joiner that takes the
 * slot over has not: see repairEarlier in internal/arenakernel/epoch_begin.go. */
SHMI_FN void shmi_repair_earlier(shmsync_arena *a, uint32_t i)
{
    uint32_t w = shmi_slot_state(a, i), last = shmi_slot_gen(w), flags;
    int joining = shmi_slot_phase(w) == SHMI_phaseJoining;
    shmsync_participant p;
    shmi_concern concern;
    shmi_participant_id dead;
    if (i == a->my_slot || shmi_slot_phase(w) == SHMI_phaseDead)
        return;
    if (shmi_slot_taken(w)) {
        if (last <= 1)
            return;
        last--;
    }
    if (shmi_ld32(shmi_slot32(a, i, SHMI_slotReclaimed)) >= last)
        return;
    dead = shmi_make_participant_id(i, last);
    shmi_repair_all(a, dead, joining && shmi_owes_anybody(a, dead), &concern);
    flags = shmi_read_dead(a, i, dead, &p);
    /* The joiner writes the record before it writes its own words over these. */
    if (joining && p.pid != 0 && !shmi_has_death_record(a, dead) && shmi_slot_state(a, i) == w)
        shmi_put_death_record(a, 0, &p, flags);
}

/* Reaps all dead participants, and waits until their data has been handed over. It notes those
 * that it found in dead, at most SHMI_deathRecordDeaths. ETIMEDOUT. */
SHMI_FN int shmi_reap_all(shmsync_arena *a, int64_t abs, shmsync_participant *dead, size_t *n_dead)
{
    int64_t end = shmi_now() + SHMI_GATE_TIMEOUT, pause = SHMI_GATE_PAUSE;
    uint32_t i;
    for (;;) {
        int left = 0;
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i), now;
            size_t k;
            if (i == a->my_slot || (shmi_slot_phase(w) != SHMI_phaseDead && !shmi_survey_dead(a, i, w)))
                continue;
            for (k = 0; k < *n_dead && (dead[k].slot != i || dead[k].generation != shmi_slot_gen(w)); k++) {
            }
            if (k == *n_dead && k < SHMI_deathRecordDeaths)
                shmi_read_slot(a, i, w, &dead[(*n_dead)++]);
            shmi_reap(a, i, w);
            now = shmi_slot_state(a, i);
            /* A participant that is stopped may have the rest of a reap; its data is repaired. */
            if ((now == w || now == shmi_slot_with(w, SHMI_phaseDead)) && (!shmi_gone(a, shmi_id_in(i, w)) || shmi_now() < end))
                left = 1;
        }
        if (!left) {
            for (i = 1; i <= a->geo.slots; i++)
                shmi_repair_earlier(a, i);
            return 0;
        }
        if (abs != 0 && shmi_now() >= abs)
            return shmi_fail(ETIMEDOUT, "arena.open", a->label, "the process of a participant that died does not end");
        shmi_nap(pause);
        pause = pause * 2 < SHMI_GATE_PAUSE_MOST ? pause * 2 : SHMI_GATE_PAUSE_MOST;
    }
}

/* Describes the epoch that this process begins, in which nobody is in. *dead is to be freed. *torn: pages of
 * the file may be of different times. *deaths: e tells of the death records before this one. */
SHMI_FN int shmi_begin_epoch(shmsync_arena *a, uint64_t w, int64_t abs, shmsync_epoch *e, shmsync_participant **dead, int *torn, uint64_t *deaths)
{
    static const unsigned char none[16] = {0};
    uint64_t total, since, n;
    size_t found = 0, k;
    unsigned char *boot = (unsigned char *)shmi_bytes(a, SHMI_hdrEpochBoot, 16);
    shmsync_participant *v = (shmsync_participant *)calloc((size_t)SHMI_deathRecordDeaths * 2, sizeof *v);
    int err;
    memset(e, 0, sizeof *e);
    *torn = 0;
    *dead = v;
    if (v == NULL)
        return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    e->number = shmi_epoch_number(w);
    err = shmi_reap_all(a, abs, v, &found);
    if (err != 0)
        return err;
    since = shmi_ld64(shmi_u64(a, SHMI_hdrEpochDeaths));
    total = shmi_ld64(shmi_death_records_total(a, 0));
    *deaths = total;
    for (k = 0; k < found; k++)
        v[k].missed = 1; /* until its record is met */
    e->clean = since <= total;
    if (since > total)
        since = total;
    if (total - since > SHMI_deathRecordDeaths)
        since = total - SHMI_deathRecordDeaths, e->clean = 0;
    for (n = since; n < total; n++) {
        shmi_participant_id name;
        shmsync_participant p;
        shmi_off o = shmi_death_record(a, 0, n);
        if (!shmi_read_death_record(a, 0, n, &p, &name)) /* its writer died over it: there is another, or it is among the found */
            continue;
        e->clean = e->clean && (shmi_ld32(shmi_u32(a, o + SHMI_deathRecordFlags)) & SHMI_deathRecordPending) != 0 && shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1;
        for (k = 0; k < found && (v[k].slot != p.slot || v[k].generation != p.generation); k++) {
        }
        if (k < found)
            v[k].missed = 0;
        else if (found < 2 * SHMI_deathRecordDeaths)
            v[found++] = p;
    }
    for (k = 0; k < found; k++) {
        e->clean = e->clean && v[k].missed == 0;
        v[k].missed = 0;
    }
    e->dead = v;
    e->n_dead = found;
    /* A process that cannot read the ID of its boot knows nothing about a reboot. */
    if (shmi_outlives_boot(a) && memcmp(a->boot, none, 16) != 0 && memcmp(boot, none, 16) != 0 && memcmp(boot, a->boot, 16) != 0) {
        e->reboot = 1;
        *torn = shmi_ld32(shmi_u32(a, SHMI_hdrSynced)) != shmi_epoch_number(w) - 1;
        e->clean = e->clean && !*torn;
    }
    return 0;
}

/* Whether no participant that began an epoch has died or left, as far as the records go. If two claimants die
 * one after the other, the epoch word does not say what the first of them did. A record that is not whole shows
 * nothing: see nobodyBegan in internal/arenakernel/epoch_begin.go. */
SHMI_FN int shmi_nobody_began(shmsync_arena *a, const shmsync_epoch *e)
{
    int left;
    size_t k;
    if (e->n_dead >= SHMI_deathRecordDeaths) /* it may not have noted all */
        return 0;
    for (k = 0; k < e->n_dead; k++)
        if (!shmi_has_death_record(a, shmi_make_participant_id(e->dead[k].slot, e->dead[k].generation)))
            return 0;
    for (left = 0; left < 2; left++) {
        uint64_t total = shmi_ld64(shmi_death_records_total(a, left)), n;
        if (total > (left ? SHMI_deathRecordCount - SHMI_deathRecordDeaths : SHMI_deathRecordDeaths))
            return 0;
        for (n = 0; n < total; n++) {
            shmi_off o = shmi_death_record(a, left, n);
            int pending = (shmi_ld32(shmi_u32(a, o + SHMI_deathRecordFlags)) & SHMI_deathRecordPending) != 0;
            if (!pending && shmi_ld64(shmi_u64(a, o + SHMI_deathRecordSeq)) == n + 1)
                return 0;
        }
    }
    return 1;
}

/* Notes that the calling thread runs on_first, or does no more: it may not open the arena meanwhile. */
SHMI_FN void shmi_note_hook(shmsync_arena *a, int runs);

/* Makes this process, which has the gate, the first of an epoch, if no participant is in.
 * SHMI_TRY_AGAIN if one is, or may be; SHMI_MOVED. */
SHMI_FN int shmi_first(shmsync_arena *a, const shmsync_arena_options *o, int64_t abs, int named)
{
    static const unsigned char no_boot[16] = {0};
    uint64_t old = shmi_epoch(a), w, deaths = 0;
    uint32_t in;
    shmsync_epoch e;
    shmsync_participant *dead = NULL;
    int err, torn, moved;
    if (shmi_epoch_phase(old) == SHMI_epochRemoved || (named && shmi_moved(a)))
        return SHMI_MOVED;
    if (shmi_epoch_phase(old) != SHMI_epochClaimed && shmi_any_in(a) != 0)
        return SHMI_TRY_AGAIN;
    w = shmi_claim_epoch(a, &in);
    if (w == 0)
        return SHMI_TRY_AGAIN;
    shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionFirst);
    SHMSYNC_CRASHPOINT("arena.gate.claimed");
    err = shmi_begin_epoch(a, w, abs, &e, &dead, &torn, &deaths);
    if (err == 0 && o != NULL &&
        ((o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL && !(shmi_epoch_untouched(old) && shmi_nobody_began(a, &e))) || ((o->recreate & SHMSYNC_RECREATE_UNCLEAN) != 0 && !e.clean))) {
        if (!named)
            err = shmi_fail(EINVAL, "arena.open", a->label, "an arena without a name cannot be made anew");
        else if ((err = shmi_unlink_claimed(a, w, &moved)) == 0)
            err = moved ? SHMI_TRY_AGAIN : SHMI_MOVED;
        if (err == SHMI_TRY_AGAIN)
            shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionPending);
    } else if (err == 0 && torn) {
        err = shmi_fail(EINVAL, "arena.open", a->label, "the computer was started again while processes were in, so pages of the file may be of different times; SHMSYNC_RECREATE_UNCLEAN replaces it");
    } else if (err == 0 && o != NULL && o->on_first != NULL) {
        shmi_note_hook(a, 1);
        SHMI_OUTSIDE(err = o->on_first(a, &e, o->on_first_arg));
        shmi_note_hook(a, 0);
        if (err != 0)
            shmi_fail(err, "arena.open", a->label, "on_first failed");
        if (err < 0) /* no errno value */
            err = ECANCELED;
    }
    free(dead);
    if (err != 0)
        return err;
    shmi_st64(shmi_u64(a, SHMI_hdrEpochBegan), (uint64_t)shmi_unix_now());
    if (shmi_outlives_boot(a) && memcmp(a->boot, no_boot, 16) != 0) /* else the last one that was known stays */
        memcpy(shmi_bytes(a, SHMI_hdrEpochBoot, 16), a->boot, 16);
    SHMSYNC_CRASHPOINT("arena.gate.begun");
    shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotAdmission), SHMI_admissionIn);
    if (!shmi_cas_epoch(a, w, shmi_make_epoch(SHMI_epochOpen, shmi_epoch_number(w), 0)))
        return shmi_fail(EPROTO, "arena.open", a->label, "a peer changed the epoch of the arena");
    /* After that, or the next first would not be told of the deaths if this one dies in between. */
    shmi_st64(shmi_u64(a, SHMI_hdrEpochDeaths), deaths);
    SHMSYNC_CRASHPOINT("arena.gate.opened");
    return 0;
}

/* Checks the admission word of a joiner that could not become in. EPROTO. */
SHMI_FN int shmi_check_admission(shmsync_arena *a, uint32_t s)
{
    if (s != SHMI_admissionPending && s != SHMI_admissionRefused)
        return shmi_fail(EPROTO, "arena.open", a->label, "a peer changed the admission of this process to %u", s);
    return 0;
}

/* Makes this process, whose slot is live, one that is in: see admit in internal/arenakernel/gate.go.
 * SHMI_MOVED, ETIMEDOUT. */
SHMI_FN int shmi_admit(shmsync_arena *a, const shmsync_arena_options *o, int named)
{
    uint32_t *mine = shmi_slot32(a, a->my_slot, SHMI_slotAdmission);
    int64_t pause = SHMI_GATE_PAUSE, removal = shmi_now() + SHMI_GATE_TIMEOUT, abs = o != NULL && o->gate_timeout_ns > 0 ? shmi_now() + o->gate_timeout_ns : 0;
    if (a->lock_fd < 0 && o != NULL && (o->on_first != NULL || o->recreate != 0 || o->lifetime != SHMSYNC_LIFETIME_DURABLE))
        return shmi_fail(ENOTSUP, "arena.open", a->label, "on_first, recreate and lifetime need byte locks (F_OFD_SETLK), which do not work here");
    for (;;) {
        uint64_t w;
        uint32_t phase;
        int err;
        shmi_cas32(mine, SHMI_admissionRefused, SHMI_admissionPending);
        /* After that, or a refusal could be overlooked. */
        w = shmi_epoch(a);
        phase = shmi_epoch_phase(w);
        if (phase == SHMI_epochRemoved)
            return SHMI_MOVED;
        if (a->lock_fd < 0) { /* it begins no epoch */
            shmi_participant_id n = shmi_epoch_claimant(w);
            if (phase == SHMI_epochClaiming) {
                shmi_cas_epoch(a, w, shmi_epoch_end(w));
            } else if (phase == SHMI_epochClaimed && n == 0) { /* a removal; whether its process lives, nobody can tell */
                if (shmi_now() > removal)
                    shmi_cas_epoch(a, w, shmi_epoch_end(w));
            } else if (!(phase == SHMI_epochClaimed && shmi_current(a, n) && !shmi_dead(a, n))) {
                if (shmi_cas32(mine, SHMI_admissionPending, SHMI_admissionIn))
                    return shmi_epoch_phase(shmi_epoch(a)) == SHMI_epochRemoved || (named && shmi_moved(a)) ? SHMI_MOVED : 0;
                err = shmi_check_admission(a, shmi_ld32(mine));
                if (err != 0)
                    return err;
            }
        } else if (phase != SHMI_epochClaimed && shmi_any_in(a) != 0) {
            if (phase != SHMI_epochClaiming || shmi_cas_epoch(a, w, shmi_epoch_end(w))) {
                if (shmi_cas32(mine, SHMI_admissionPending, SHMI_admissionIn)) {
                    SHMSYNC_CRASHPOINT("arena.gate.admitted");
                    return named && shmi_moved(a) ? SHMI_MOVED : 0;
                }
                err = shmi_check_admission(a, shmi_ld32(mine));
                if (err != 0)
                    return err;
            }
        } else if (shmi_lock_gate(a)) {
            SHMSYNC_CRASHPOINT("arena.gate.taken");
            err = shmi_first(a, o, abs, named);
            /* After a failure shmi_leave gives the gate back, with the byte lock: the next first is to be alone. */
            if (err != 0 && err != SHMI_TRY_AGAIN)
                return err;
            shmi_unlock_gate(a);
            if (err == 0)
                return 0;
        }
        if (abs != 0 && shmi_now() >= abs)
            return shmi_fail_gate(a, ETIMEDOUT, "arena.open");
        shmi_nap(pause);
        pause = pause * 2 < SHMI_GATE_PAUSE_MOST ? pause * 2 : SHMI_GATE_PAUSE_MOST;
    }
}

/* ---- The helper thread: its robust list holds the alive words, and it watches others ---- */

#define SHMI_POLL_FIRST INT64_C(300000)
#define SHMI_POLL_MOST INT64_C(50000000)
#define SHMI_STAGGER INT64_C(2000000)
#define SHMI_AFTER_YOU INT64_C(300000)
/* How long a joiner without a byte lock has to become live. Nothing tells whether it is alive;
 * if it is, its open fails. */
#define SHMI_JOIN_TIMEOUT INT64_C(10000000000)
#define SHMI_CHORES_EVERY INT64_C(10000000)

/* struct robust_list_head of the kernel, and the nodes that it links. It lies on a page
 * of its own that is mapped shared: in private memory the out-of-memory reaper may
 * discard it before the list is walked, in the arena a peer could scribble over it. */
typedef struct shmi_robust {
    uintptr_t next;
    intptr_t offset; /* from a node to its word */
    uintptr_t pending;
    uintptr_t pad_;
    uintptr_t nodes[SHMI_aliveWords];
} shmi_robust;
SHMI_ASSERT(offsetof(shmi_robust, nodes) == 32, "shmi_robust");

SHMI_FN int shmi_robust_register(shmsync_arena *a)
{
    shmi_robust *r;
    unsigned i;
    size_t size;
    void *page = mmap(NULL, (size_t)a->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return 0;
    r = (shmi_robust *)page;
    r->offset = (intptr_t)((uintptr_t)shmi_alive_word(a, a->my_slot, 0) - (uintptr_t)&r->nodes[0]);
    r->pending = 0;
    r->next = (uintptr_t)&r->next;
    for (i = 0; i < SHMI_aliveWords; i++) { /* the kernel marks the last one first */
        r->nodes[i] = r->next;
        r->next = (uintptr_t)&r->nodes[i];
    }
    if (syscall(SYS_get_robust_list, 0, &a->robust_before, &size) != 0 || syscall(SYS_set_robust_list, r, (size_t)24) != 0) {
        munmap(page, (size_t)a->page);
        return 0;
    }
    a->robust = (unsigned char *)page;
    return 1;
}
SHMI_FN void shmi_robust_unregister(shmsync_arena *a)
{
    shmi_robust *r = (shmi_robust *)(void *)a->robust;
    if (r == NULL)
        return;
    r->next = (uintptr_t)&r->next;
    /* The C library links its robust mutexes to the list that it registered for the thread. */
    syscall(SYS_set_robust_list, a->robust_before, (size_t)24);
    munmap(a->robust, (size_t)a->page);
    a->robust = NULL;
}

/* struct sched_attr of the kernel, as it was first. */
typedef struct shmi_sched_attr {
    uint32_t size, policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime, deadline, period;
} shmi_sched_attr;
SHMI_ASSERT(sizeof(shmi_sched_attr) == 48, "shmi_sched_attr");

/* A short slice, which Linux knows since 6.12, has the helper thread run soon after it
 * is told of a death, on a CPU where the dying process is still being taken apart. */
SHMI_FN void shmi_prompt_thread(void)
{
    shmi_sched_attr attr;
    const uint64_t slice = 100000; /* ns, the least that the scheduler takes */
    (void)!syscall(SYS_prctl, 29, 1ul, 0ul, 0ul, 0ul); /* PR_SET_TIMERSLACK: it asks every 50 us, not every 100 */
    memset(&attr, 0, sizeof attr);
    if (syscall(SYS_sched_getattr, 0, &attr, (unsigned)sizeof attr, 0u) != 0 || attr.policy != 0 || attr.runtime <= slice)
        return;
    attr.size = (uint32_t)sizeof attr;
    attr.runtime = slice;
    (void)!syscall(SYS_sched_setattr, 0, &attr, 0u);
}

/* The helper thread's part of joining. */
SHMI_FN int shmi_become_live(shmsync_arena *a)
{
    uint32_t i = a->my_slot, joining = shmi_slot_word(SHMI_phaseJoining, shmi_id_gen(a->self));
    uint32_t tid = (uint32_t)syscall(SYS_gettid);
    unsigned k;
    if (shmi_have.robust && shmi_robust_register(a))
        a->caps |= SHMI_capRobust;
    SHMSYNC_CRASHPOINT("arena.enter.registered");
    if (a->robust == NULL && a->lock_fd < 0)
        return shmi_fail(ENOTSUP, "arena.open", a->label, "neither robust lists nor byte locks work here, so nobody could tell this process's death");
    if (shmi_have.waitv)
        a->caps |= SHMI_capWaitV;
    shmi_st32(shmi_slot32(a, i, SHMI_slotTID), tid);
    shmi_st32(shmi_slot32(a, i, SHMI_slotCaps), a->caps);
    for (k = 0; k < SHMI_aliveWords; k++)
        /* FUTEX_WAITERS always: without it the kernel marks but does not wake. */
        shmi_st32(shmi_alive_word(a, i, k), (tid & SHMI_TID_MASK) | SHMI_WAITERS);
    SHMSYNC_CRASHPOINT("arena.enter.before_live");
    if (!shmi_cas_slot(a, i, joining, shmi_slot_with(joining, SHMI_phaseLive)))
        return shmi_fail(EPROTO, "arena.open", a->label, "a peer took the slot away");
    SHMSYNC_CRASHPOINT("arena.enter.live");
    return 0;
}

/* Ends the process when its own slot is no longer its own: others have taken its locks
 * away, so it must not go on as their holder. */
SHMI_FN void shmi_check_self(shmsync_arena *a)
{
    uint32_t w = shmi_slot_state(a, a->my_slot);
    if (!shmi_slot_present(w) || shmi_id_in(a->my_slot, w) != a->self)
        shmi_abort("this process was declared dead by a peer");
}

SHMI_FN int64_t shmi_notice_left(shmsync_arena *a, uint32_t i, uint32_t w, int64_t delay)
{
    shmi_notice *n = &a->notices[i];
    uint64_t window;
    int64_t now;
    if (delay == 0)
        return 0;
    now = shmi_now();
    window = shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow));
    if (n->generation != shmi_slot_gen(w) || n->window != window || n->when == 0) {
        n->generation = shmi_slot_gen(w);
        n->window = window;
        n->when = now;
    }
    return n->when + delay > now ? n->when + delay - now : 0;
}

/* Reaps the dead among the next few participants in the ring of slots, and gives what
 * to sleep on when there are none. *poll is 0 when each death wakes us; *turn is not 0 when
 * others go first, and it is our turn after that many nanoseconds. */
SHMI_FN unsigned shmi_watch_entries(shmsync_arena *a, uint32_t *doorbell, uint32_t rung, shmi_waitv v[1 + SHMI_watchTargets], int64_t *poll, int64_t *turn)
{
    uint32_t d, present = 0, distance = 0;
    unsigned n = 1;
    int dead, robust;
    int64_t base = shmi_ld32(&a->announce_map) != 0 ? SHMI_AFTER_YOU : 0, left;
    *poll = 0;
    *turn = 0;
#define SHMI_WITHIN(ns) (*poll = *poll == 0 || (ns) < *poll ? (ns) : *poll)
#define SHMI_TURN_IN(ns) (*turn = *turn == 0 || (ns) < *turn ? (ns) : *turn)
    v[0] = shmi_waitv_of(doorbell, rung);
    for (d = 1; d < a->geo.slots && present < SHMI_watchTargets; d++) {
        uint32_t i = (a->my_slot - 1 + d) % a->geo.slots + 1, w = shmi_slot_state(a, i), *word, alive;
        if (!shmi_slot_taken(w))
            continue;
        if (shmi_slot_phase(w) == SHMI_phaseDead) {
            /* The participant that marked it may have died since, or leaves the rest to us. */
            shmi_participant_id u = shmi_ld32(shmi_slot32(a, i, SHMI_slotReaper));
            left = shmi_notice_left(a, i, w, u != a->self && shmi_current(a, u) ? SHMI_STAGGER : base);
            if (left > 0) {
                SHMI_TURN_IN(left);
            } else {
                shmi_reap_marked(a, i, w);
                SHMI_WITHIN(SHMI_POLL_MOST);
            }
            continue;
        }
        present++;
        /* The alive word is read before it is judged, so that a mark which comes later
         * changes the value that we sleep on. */
        word = shmi_alive_word(a, i, distance < SHMI_watchTargets ? distance : SHMI_watchTargets - 1);
        alive = shmi_ld32(word);
        dead = shmi_seen_dead(a, i, w);
        if (!dead && a->notices[i].asked != w) { /* see shmi_survey_ahead */
            dead = shmi_survey_dead(a, i, w);
            a->notices[i].asked = dead ? 0 : w;
        }
        if (dead) {
            left = shmi_notice_left(a, i, w, base + (int64_t)distance * SHMI_STAGGER);
            if (left > 0) {
                SHMI_TURN_IN(left);
            } else {
                shmi_reap(a, i, w);
                if (shmi_slot_state(a, i) != w)
                    return 0;
                SHMI_WITHIN(SHMI_POLL_MOST); /* it cannot be fenced yet */
            }
            distance++;
            continue;
        }
        distance++;
        robust = (shmi_slot_caps(a, i) & SHMI_capRobust) != 0 && (a->caps & SHMI_capWaitV) != 0;
        if (shmi_slot_phase(w) != SHMI_phaseLive) /* it holds nothing yet, or is marked until shortly before it is free */
            SHMI_TURN_IN(SHMI_POLL_MOST);
        else if (!robust)
            SHMI_WITHIN(SHMI_POLL_MOST);
        if (shmi_slot_phase(w) == SHMI_phaseJoining && (shmi_slot_caps(a, i) & SHMI_capOFD) == 0 && shmi_notice_left(a, i, w, SHMI_JOIN_TIMEOUT) == 0) {
            shmi_reap(a, i, w);
            if (shmi_slot_state(a, i) != w)
                return 0;
        }
        if (robust && shmi_slot_phase(w) != SHMI_phaseJoining)
            v[n++] = shmi_waitv_of(word, alive);
    }
#undef SHMI_WITHIN
#undef SHMI_TURN_IN
    return n;
}

/* Makes the helper thread call f about every 10 ms until it returns 0; it does not
 * block. It is called once more when this process leaves the arena. */
SHMI_FN int shmi_later(shmsync_arena *a, int (*f)(void *), void *arg)
{
    shmi_chore *c = (shmi_chore *)calloc(1, sizeof *c);
    if (c == NULL)
        return ENOMEM;
    c->f = f;
    c->arg = arg;
    pthread_mutex_lock(&a->chores_lock);
    c->next = a->chores;
    a->chores = c;
    pthread_mutex_unlock(&a->chores_lock);
    shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    return 0;
}
/* Tries them; not 0: some have to be tried again. */
SHMI_FN int shmi_do_chores(shmsync_arena *a)
{
    shmi_chore *c, *next, *kept = NULL;
    int again;
    pthread_mutex_lock(&a->chores_lock);
    c = a->chores;
    a->chores = NULL;
    pthread_mutex_unlock(&a->chores_lock);
    for (; c != NULL; c = next) {
        next = c->next;
        if (c->f(c->arg) != 0) {
            c->next = kept;
            kept = c;
        } else {
            free(c);
        }
    }
    pthread_mutex_lock(&a->chores_lock);
    while (kept != NULL) {
        next = kept->next;
        kept->next = a->chores;
        a->chores = kept;
        kept = next;
    }
    again = a->chores != NULL;
    pthread_mutex_unlock(&a->chores_lock);
    return again;
}

#define SHMI_LOOK_AT_NAME_EVERY INT64_C(1000000000)
/* Sets the function that is told when the name of the arena leads elsewhere, unless there is one. */
SHMI_FN void shmi_tell_detached(shmsync_arena *a, const shmsync_arena_options *o)
{
    if (o == NULL || o->on_detached == NULL || a->on_detached != NULL)
        return;
    a->on_detached_arg = o->on_detached_arg;
    __atomic_store_n(&a->on_detached, o->on_detached, __ATOMIC_RELEASE);
    shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
}
/* Looks at the name if it is time, and gives when to look again; 0 for never. */
SHMI_FN int64_t shmi_watch_name(shmsync_arena *a, int64_t at)
{
    void (*f)(shmsync_arena *, void *) = __atomic_load_n(&a->on_detached, __ATOMIC_ACQUIRE);
    int64_t now;
    if (f == NULL || a->detached_told)
        return 0;
    now = shmi_now();
    if (now < at)
        return at;
    if (!shmi_moved(a))
        return now + SHMI_LOOK_AT_NAME_EVERY;
    a->detached_told = 1;
    SHMI_OUTSIDE(f(a, a->on_detached_arg));
    return 0;
}

/* Sleeps on the alive words of the next few participants and reaps those that die.
 * Whatever a sleep says, everything is examined again: waitv swallows several wakes and
 * reports one. */
SHMI_FN void shmi_watch(shmsync_arena *a)
{
    uint32_t *doorbell = shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell);
    int64_t wait = SHMI_POLL_FIRST, poll, turn, deadline, asked, look = 0, lonely = 0;
    int was = 0, untold, unfinished, chores, err;
    for (;;) {
        /* The doorbell is read before everything else that it may be rung for. */
        uint32_t rung = shmi_ld32(doorbell);
        shmi_waitv v[1 + SHMI_watchTargets];
        unsigned n;
        if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
            return;
        shmi_check_self(a);
        untold = shmi_deliver_deaths(a);
        chores = shmi_do_chores(a);
        look = shmi_watch_name(a, look);
        lonely = shmi_end_if_alone(lonely);
        n = shmi_watch_entries(a, doorbell, rung, v, &poll, &turn);
        if (n == 0)
            continue; /* a participant was reaped */
        deadline = turn != 0 ? shmi_now() + turn : 0;
        unfinished = shmi_ld32(&a->unfinished) != 0;
        if (poll != 0 || untold || unfinished) {
            if (poll == 0)
                poll = SHMI_POLL_MOST;
            if (unfinished && !was)
                wait = SHMI_POLL_FIRST; /* a reap has just begun */
            was = unfinished;
            if (deadline == 0 || deadline > shmi_now() + (wait < poll ? wait : poll))
                deadline = shmi_now() + (wait < poll ? wait : poll);
            wait = 2 * wait < SHMI_POLL_MOST ? 2 * wait : SHMI_POLL_MOST;
        } else {
            wait = SHMI_POLL_FIRST;
            was = 0;
        }
        asked = __atomic_load_n(&a->ask_at, __ATOMIC_RELAXED);
        if (asked != 0 && (deadline == 0 || asked < deadline))
            deadline = asked;
        if (look != 0 && (deadline == 0 || look < deadline))
            deadline = look;
        if (lonely != 0 && (deadline == 0 || lonely < deadline))
            deadline = lonely;
        if (chores && (deadline == 0 || deadline > shmi_now() + SHMI_CHORES_EVERY))
            deadline = shmi_now() + SHMI_CHORES_EVERY;
        err = 0;
        if (n > 1) {
            err = shmi_futex_sleepv(v, n, deadline);
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT)
                deadline = shmi_now() + SHMI_POLL_FIRST; /* no room for that many entries just now */
            else
                err = 0;
        }
        if (n == 1 || err != 0)
            shmi_futex_sleep(doorbell, rung, deadline);
        if (shmi_ld32(&a->unfinished) != 0)
            shmi_continue_reaps(a);
    }
}

SHMI_FN void *shmi_watcher(void *arg)
{
    shmsync_arena *a = (shmsync_arena *)arg;
    int err;
    char why[sizeof shmi_last.text];
    shmi_prompt_thread();
    err = shmi_become_live(a);
    memcpy(why, shmi_last.text, sizeof why);
    pthread_mutex_lock(&a->start_lock);
    if (err != 0) {
        shmi_robust_unregister(a);
        memcpy(a->start_text, why, sizeof a->start_text - 1);
    }
    a->join_result = err;
    pthread_cond_signal(&a->start_cond);
    pthread_mutex_unlock(&a->start_lock);
    if (err == 0) {
        shmi_watch(a);
        shmi_robust_unregister(a);
    }
    shmi_end_thread();
    return NULL;
}

/* Starts the helper thread, with all signals blocked, and waits until it is live. */
SHMI_FN int shmi_start_watcher(shmsync_arena *a)
{
    int err;
    a->join_result = -1;
    err = shmi_start_thread(&a->watcher, "shmsync-watcher", shmi_watcher, a);
    if (err != 0)
        return shmi_fail(err, "arena.open", a->label, "could not start the helper thread");
    pthread_mutex_lock(&a->start_lock);
    while (a->join_result < 0)
        pthread_cond_wait(&a->start_cond, &a->start_lock);
    err = a->join_result;
    pthread_mutex_unlock(&a->start_lock);
    if (err != 0) {
        pthread_join(a->watcher, NULL);
        memcpy(shmi_last.text, a->start_text, sizeof a->start_text);
        shmi_last.err = err;
        shmi_last.brief = 0;
        return err;
    }
    a->watching = 1;
    return 0;
}

/* ---- The header of an arena ---- */

SHMI_FN shmi_geometry shmi_plan(uint64_t size, uint32_t slots)
{
    shmi_geometry g;
    uint64_t most = size / SHMI_chunkSize;
    memset(&g, 0, sizeof g);
    g.size = size;
    g.slots = slots;
    g.slots_off = SHMI_headerSize;
    g.death_record_off = g.slots_off + (uint64_t)slots * SHMI_slotStride;
    g.dir_off = (g.death_record_off + SHMI_deathRecordCount * SHMI_deathRecordStride + 4095) & ~UINT64_C(4095);
    for (g.dir_count = 64; g.dir_count * 512 < size; g.dir_count *= 2) {
    }
    g.chunks_off = g.dir_off + g.dir_count * 8;
    g.blocks_off = (g.chunks_off + most * 8 + 4095) & ~UINT64_C(4095);
    g.heap_off = (g.blocks_off + most * SHMI_blockWords * SHMI_blockWordSize + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1);
    if (g.heap_off < size)
        g.chunk_count = (size - g.heap_off) / SHMI_chunkSize;
    return g;
}

SHMI_FN uint32_t shmi_hdr_get32(const unsigned char *h, unsigned off)
{
    uint32_t v;
    memcpy(&v, h + off, sizeof v);
    return v;
}
SHMI_FN uint64_t shmi_hdr_get64(const unsigned char *h, unsigned off)
{
    uint64_t v;
    memcpy(&v, h + off, sizeof v);
    return v;
}
SHMI_FN void shmi_hdr_set32(unsigned char *h, unsigned off, uint32_t v) { memcpy(h + off, &v, sizeof v); }
SHMI_FN void shmi_hdr_set64(unsigned char *h, unsigned off, uint64_t v) { memcpy(h + off, &v, sizeof v); }

/* The gate to the bytes of a segment: h is the header as it was read from the file,
 * once. Reading it through the mapping would take memory for a page that may be a hole. */
SHMI_FN int shmi_validate(const unsigned char *h, size_t n, uint64_t length, const char *name, shmi_geometry *geo)
{
    const char *op = "arena.open";
    uint32_t slots;
    shmi_geometry g;
    if (n < SHMI_headerSize)
        return shmi_fail(EINVAL, op, name, "not an arena: %zu bytes are too few for a header", n);
    if (memcmp(h + SHMI_hdrMagic, SHMI_magic, 8) != 0)
        return shmi_fail(EINVAL, op, name, "not an arena: no magic number");
    if (shmi_hdr_get32(h, SHMI_hdrOrder) != SHMI_orderMark)
        return shmi_fail(EINVAL, op, name, "written in another byte order (mark %#x)", shmi_hdr_get32(h, SHMI_hdrOrder));
    if (shmi_hdr_get32(h, SHMI_hdrVersion) != SHMI_LayoutVersion)
        return shmi_fail(EPROTONOSUPPORT, op, name, "its layout is version %u, this program knows version %u", shmi_hdr_get32(h, SHMI_hdrVersion), (unsigned)SHMI_LayoutVersion);
    if (shmi_hdr_get32(h, SHMI_hdrWord) != SHMI_wordBytes)
        return shmi_fail(EPROTONOSUPPORT, op, name, "made for machine words of %u bytes, this program has %u", shmi_hdr_get32(h, SHMI_hdrWord), (unsigned)SHMI_wordBytes);
    if ((shmi_hdr_get64(h, SHMI_hdrIncompat) & ~(uint64_t)SHMI_knownIncompat) != 0)
        return shmi_fail(EPROTONOSUPPORT, op, name, "it needs features that this program does not know (%#llx)", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrIncompat));
    if ((shmi_hdr_get64(h, SHMI_hdrROCompat) & ~(uint64_t)SHMI_knownROCompat) != 0)
        return shmi_fail(EPROTONOSUPPORT, op, name, "it needs features that this program does not know to write it (%#llx)", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrROCompat));
    if (shmi_hdr_get64(h, SHMI_hdrChecksum) != shmi_fnv(h, SHMI_hdrChecksum))
        return shmi_fail(EPROTO, op, name, "the checksum of its header is wrong");
    slots = shmi_hdr_get32(h, SHMI_hdrSlots);
    if (shmi_hdr_get64(h, SHMI_hdrSize) != length)
        return shmi_fail(EPROTO, op, name, "it was made %llu bytes long and is %llu", (unsigned long long)shmi_hdr_get64(h, SHMI_hdrSize), (unsigned long long)length);
    if (slots == 0 || slots > SHMI_MaxSlots)
        return shmi_fail(EPROTO, op, name, "it claims %u participants", slots);
    /* The layout is a function of size and participants; any other is a forgery. */
    g = shmi_plan(length, slots);
    if (g.chunk_count == 0 || shmi_hdr_get64(h, SHMI_hdrSlotsOff) != g.slots_off || shmi_hdr_get64(h, SHMI_hdrDeathRecordOff) != g.death_record_off ||
        shmi_hdr_get64(h, SHMI_hdrDirOff) != g.dir_off || shmi_hdr_get64(h, SHMI_hdrDirCount) != g.dir_count ||
        shmi_hdr_get64(h, SHMI_hdrChunksOff) != g.chunks_off || shmi_hdr_get64(h, SHMI_hdrBlocksOff) != g.blocks_off ||
        shmi_hdr_get64(h, SHMI_hdrHeapOff) != g.heap_off || shmi_hdr_get64(h, SHMI_hdrChunkCount) != g.chunk_count ||
        shmi_hdr_get32(h, SHMI_hdrHeaderSize) != SHMI_headerSize || shmi_hdr_get32(h, SHMI_hdrSlotStride) != SHMI_slotStride ||
        shmi_hdr_get32(h, SHMI_hdrDeathRecordCount) != SHMI_deathRecordCount || shmi_hdr_get32(h, SHMI_hdrDeathRecordStride) != SHMI_deathRecordStride ||
        shmi_hdr_get32(h, SHMI_hdrChunkSize) != SHMI_chunkSize || shmi_hdr_get32(h, SHMI_hdrBlockWords) != SHMI_blockWords)
        return shmi_fail(EPROTO, op, name, "its regions do not lie where a layout of version %u puts them", (unsigned)SHMI_LayoutVersion);
    *geo = g;
    return 0;
}

/* Writes the header of a new arena into bytes that nobody else has. */
SHMI_FN void shmi_write_header(unsigned char *b, const shmi_geometry *g)
{
    memcpy(b + SHMI_hdrMagic, SHMI_magic, 8);
    shmi_hdr_set32(b, SHMI_hdrOrder, SHMI_orderMark);
    shmi_hdr_set32(b, SHMI_hdrVersion, SHMI_LayoutVersion);
    shmi_hdr_set32(b, SHMI_hdrWord, SHMI_wordBytes);
    shmi_hdr_set32(b, SHMI_hdrHeaderSize, SHMI_headerSize);
    shmi_hdr_set64(b, SHMI_hdrCompat, 0);
    shmi_hdr_set64(b, SHMI_hdrROCompat, SHMI_knownROCompat);
    shmi_hdr_set64(b, SHMI_hdrIncompat, SHMI_knownIncompat);
    shmi_hdr_set64(b, SHMI_hdrSize, g->size);
    if (syscall(SYS_getrandom, b + SHMI_hdrID, (size_t)16, 0) != 16) {
        shmi_hdr_set64(b, SHMI_hdrID, (uint64_t)shmi_unix_now());
        shmi_hdr_set64(b, SHMI_hdrID + 8, (uint64_t)getpid() << 32 ^ (uint64_t)shmi_now());
    }
    shmi_hdr_set64(b, SHMI_hdrCreated, (uint64_t)shmi_unix_now());
    shmi_hdr_set32(b, SHMI_hdrSlots, g->slots);
    shmi_hdr_set32(b, SHMI_hdrSlotStride, SHMI_slotStride);
    shmi_hdr_set64(b, SHMI_hdrSlotsOff, g->slots_off);
    shmi_hdr_set64(b, SHMI_hdrDeathRecordOff, g->death_record_off);
    shmi_hdr_set32(b, SHMI_hdrDeathRecordCount, SHMI_deathRecordCount);
    shmi_hdr_set32(b, SHMI_hdrDeathRecordStride, SHMI_deathRecordStride);
    shmi_hdr_set64(b, SHMI_hdrDirOff, g->dir_off);
    shmi_hdr_set64(b, SHMI_hdrDirCount, g->dir_count);
    shmi_hdr_set64(b, SHMI_hdrChunksOff, g->chunks_off);
    shmi_hdr_set64(b, SHMI_hdrBlocksOff, g->blocks_off);
    shmi_hdr_set64(b, SHMI_hdrHeapOff, g->heap_off);
    shmi_hdr_set32(b, SHMI_hdrChunkSize, SHMI_chunkSize);
    shmi_hdr_set32(b, SHMI_hdrBlockWords, SHMI_blockWords);
    shmi_hdr_set64(b, SHMI_hdrChunkCount, g->chunk_count);
    shmi_hdr_set64(b, SHMI_hdrChecksum, shmi_fnv(b, SHMI_hdrChecksum));
}

/* ---- Files ---- */

/* The file of an arena, as it is being opened or made. */
typedef struct shmi_segment {
    int fd;
    unsigned char *base;
    uint64_t size, dev, ino;
    int created;
    int joined; /* the arena in it is what was asked for */
} shmi_segment;

SHMI_FN int shmi_path(const char *name, char *path, size_t cap)
{
    size_t n = name != NULL ? strlen(name) : 0, i;
    if (n > 0 && strchr(name, '/') != NULL) {
        if (n >= cap || name[n - 1] == '/')
            return shmi_fail(EINVAL, "arena.open", name, "not a path for an arena");
        memcpy(path, name, n + 1);
        return 0;
    }
    if (n == 0 || n > 200 || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return shmi_fail(EINVAL, "arena.open", NULL, "a name is 1 to 200 of A-Z a-z 0-9 . _ -");
    for (i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-'))
            return shmi_fail(EINVAL, "arena.open", NULL, "a name is 1 to 200 of A-Z a-z 0-9 . _ -");
    }
    snprintf(path, cap, "/dev/shm/%s", name);
    return 0;
}

/* Checks the file behind s->fd and maps it. */
SHMI_FN int shmi_map(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    struct stat st;
    size_t i;
    int trusted;
    void *p;
    if (fstat(s->fd, &st) != 0)
        return shmi_fail(errno, "arena.open", path, "stat");
    if (!S_ISREG(st.st_mode))
        return shmi_fail(EINVAL, "arena.open", path, "is not a regular file");
    trusted = st.st_uid == geteuid() || st.st_uid == 0;
    for (i = 0; o != NULL && i < o->n_trust_uids; i++)
        trusted = trusted || o->trust_uids[i] == st.st_uid;
    if (!trusted)
        return shmi_fail(EPERM, "arena.open", path, "is owned by uid %u, which is not this process's, root or a trusted one", (unsigned)st.st_uid);
    if (st.st_size <= 0 || st.st_size % sysconf(_SC_PAGESIZE) != 0)
        return shmi_fail(EINVAL, "arena.open", path, "is %lld bytes long, not a multiple of the page size", (long long)st.st_size);
    p = shmi_map_sparsely((size_t)st.st_size, s->fd);
    if (p == MAP_FAILED)
        return shmi_fail(errno, "arena.open", path, "mmap");
    s->base = (unsigned char *)p;
    s->size = (uint64_t)st.st_size;
    s->dev = (uint64_t)st.st_dev;
    s->ino = (uint64_t)st.st_ino;
    return 0;
}

SHMI_FN void shmi_unmap(shmi_segment *s)
{
    if (s->base != NULL)
        munmap(s->base, (size_t)s->size);
    if (s->fd >= 0)
        close(s->fd);
    s->base = NULL;
    s->fd = -1;
}

/* Sizes, formats and maps s->fd, an empty file that nobody else has. */
SHMI_FN int shmi_format(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    uint64_t size = o != NULL && o->size != 0 ? o->size : UINT64_C(64) << 20;
    uint32_t slots = o != NULL && o->max_participants != 0 ? o->max_participants : 128;
    shmi_geometry g;
    int err;
    if (slots > SHMI_MaxSlots || size > UINT64_C(1) << 47)
        return shmi_fail(EINVAL, "arena.create", path, "%u participants in %llu bytes; at most 2047 in 2^47", slots, (unsigned long long)size);
    size = (size + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1);
    g = shmi_plan(size, slots);
    if (g.chunk_count == 0)
        return shmi_fail(ENOSPC, "arena.create", path, "%llu bytes are too few for %u participants", (unsigned long long)size, slots);
    while (ftruncate(s->fd, (off_t)size) != 0)
        if (errno != EINTR)
            return shmi_fail(errno, "arena.create", path, "ftruncate");
    err = shmi_map(s, path, o);
    if (err != 0)
        return err;
    while (fallocate(s->fd, FALLOC_FL_KEEP_SIZE, 0, (off_t)g.blocks_off) != 0)
        if (errno != EINTR)
            return shmi_fail(errno == ENOSPC || errno == ENOMEM ? ENOSPC : errno, "arena.create", path, "could not reserve %llu bytes", (unsigned long long)g.blocks_off);
    shmi_write_header(s->base, &g);
    if (fchmod(s->fd, o != NULL && o->mode != 0 ? (mode_t)(o->mode & 0666) : 0600) != 0)
        return shmi_fail(errno, "arena.create", path, "mode");
    s->created = 1;
    return 0;
}

SHMI_FN int shmi_same_file(int f, int g)
{
    struct stat x, y;
    return fstat(f, &x) == 0 && fstat(g, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}
SHMI_FN int shmi_same_entry(int fd, int dirfd_, const char *name, int flags)
{
    struct stat x, y;
    return fstat(fd, &x) == 0 && fstatat(dirfd_, name, &y, flags) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Makes the arena under a temporary name that is locked while it has that, and renames it. */
SHMI_FN int shmi_create_temp(shmi_segment *s, const char *path, int dirfd_, const char *base, const shmsync_arena_options *o)
{
    char temp[300];
    int tries, err = EAGAIN;
    for (tries = 0; tries < 256; tries++) {
        uint64_t r = 0;
        if (syscall(SYS_getrandom, &r, sizeof r, 0) != (long)sizeof r)
            r = (uint64_t)shmi_now() * UINT64_C(6364136223846793005) + (uint64_t)tries;
        snprintf(temp, sizeof temp, ".%.200s.%d.%016llx.tmp~", base, (int)getpid(), (unsigned long long)r);
        s->fd = openat(dirfd_, temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (s->fd < 0) {
            if (errno == EEXIST || errno == EINTR)
                continue;
            return shmi_fail(errno, "arena.create", path, "temporary file");
        }
        if (flock(s->fd, LOCK_EX | LOCK_NB) == 0 && shmi_same_entry(s->fd, dirfd_, temp, AT_SYMLINK_NOFOLLOW)) {
            err = 0;
            break;
        }
        unlinkat(dirfd_, temp, 0); /* a sweeper has found it before it was locked */
        close(s->fd);
        s->fd = -1;
    }
    if (err != 0)
        return shmi_fail(err, "arena.create", path, "temporary file");
    err = shmi_format(s, path, o);
    if (err == 0 && syscall(SYS_renameat2, dirfd_, temp, dirfd_, base, 1u) != 0) { /* RENAME_NOREPLACE */
        err = errno;
        if (err == ENOSYS || err == EINVAL || err == ENOTSUP) {
            err = linkat(dirfd_, temp, dirfd_, base, 0) == 0 ? 0 : errno;
            unlinkat(dirfd_, temp, 0);
        }
    }
    if (err != 0)
        unlinkat(dirfd_, temp, 0);
    else
        flock(s->fd, LOCK_UN);
    return err;
}

/* Makes a new arena at path: private until it has its name, and then whole. EEXIST. */
SHMI_FN int shmi_create(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    char dir[PATH_MAX], self[64];
    const char *slash = strrchr(path, '/'), *base = slash + 1;
    size_t n = (size_t)(slash - path);
    int dirfd_, err;
    if (n >= sizeof dir)
        return shmi_fail(EINVAL, "arena.create", path, "too long");
    memcpy(dir, path, n);
    dir[n] = 0;
    dirfd_ = open(n == 0 ? "/" : dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd_ < 0)
        return shmi_fail(errno, "arena.create", path, "open directory");
    err = ENOTSUP;
    s->fd = shmi_have.otmpfile ? openat(dirfd_, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600) : -1;
    if (s->fd >= 0) {
        snprintf(self, sizeof self, "/proc/thread-self/fd/%d", s->fd);
        if (shmi_same_entry(s->fd, AT_FDCWD, self, 0)) {
            err = shmi_format(s, path, o);
            if (err == 0 && linkat(AT_FDCWD, self, dirfd_, base, AT_SYMLINK_FOLLOW) != 0)
                err = errno == ENOENT || errno == EXDEV || errno == EPERM || errno == ENOSYS ? ENOTSUP : errno;
        }
        if (err != 0)
            shmi_unmap(s);
    }
    if (err == ENOTSUP)
        err = shmi_create_temp(s, path, dirfd_, base, o);
    close(dirfd_);
    if (err != 0) {
        shmi_unmap(s);
        s->created = 0;
    }
    return err;
}

SHMI_FN int shmi_open_segment(shmi_segment *s, const char *path, const shmsync_arena_options *o)
{
    int tries;
    for (tries = 0; tries < 100; tries++) {
        int err;
        s->created = s->joined = 0;
        s->base = NULL;
        s->fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
        if (s->fd >= 0) {
            fcntl(s->fd, F_SETFL, fcntl(s->fd, F_GETFL) & ~O_NONBLOCK);
            err = shmi_map(s, path, o);
            if (err != 0)
                shmi_unmap(s);
            return err;
        }
        if (errno == EINTR)
            continue;
        if (errno == ELOOP || errno == EISDIR || errno == ENXIO || errno == ENODEV)
            return shmi_fail(EINVAL, "arena.open", path, "is not a regular file");
        if (errno != ENOENT || (o != NULL && o->attach_only))
            return shmi_fail(errno, "arena.open", path, "%s", "");
        err = shmi_create(s, path, o);
        if (err == EEXIST)
            continue;
        if (err != 0 && shmi_last.err == 0)
            shmi_fail(err, "arena.create", path, "%s", "");
        return err;
    }
    return shmi_fail(EAGAIN, "arena.open", path, "the file keeps appearing and disappearing");
}

/* ---- Joining ---- */

/* The arenas of this process, from before they have a byte lock until they have none.
 * Nobody waits for another process, or for a call, while it holds the lock: forks take it. */
static pthread_mutex_t shmi_attached_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t shmi_attached_changed = PTHREAD_COND_INITIALIZER; /* an arena is no longer SHMI_opening */
static shmsync_arena *shmi_attached; /* guarded by: shmi_attached_lock */
static pthread_once_t shmi_atfork_once = PTHREAD_ONCE_INIT;
static int shmi_registering; /* a thread is about to make this process a target of fences; guarded by: shmi_attached_lock */

enum {
    SHMI_opening,  /* one thread joins; others that open the same file wait for it */
    SHMI_attached,
    SHMI_closing   /* one thread leaves; a thread that opens the file now joins anew */
};

/* A child of fork is no participant. The kernel wipes its page of names; this closes
 * the descriptor whose lock says that its parent is alive, and would go on to say so. */
SHMI_FN void shmi_before_fork(void)
{
    pthread_mutex_lock(&shmi_attached_lock);
    pthread_mutex_lock(&shmi_have_lock);
    pthread_mutex_lock(&shmi_spares_lock);
}
SHMI_FN void shmi_after_fork(void)
{
    pthread_mutex_unlock(&shmi_spares_lock);
    pthread_mutex_unlock(&shmi_have_lock);
    pthread_mutex_unlock(&shmi_attached_lock);
}
SHMI_FN void shmi_in_child(void)
{
    shmsync_arena *a;
    for (a = shmi_attached; a != NULL; a = a->next) {
        if (a->me != NULL)
            __atomic_store_n(&a->me->name, 0, __ATOMIC_RELAXED);
        if (a->lock_fd >= 0)
            close(a->lock_fd);
    }
    shmi_attached = NULL;
    shmi_have.registered = 0;
    shmi_registering = 0; /* the thread is not here */
    shmi_forget_threads();
    pthread_cond_init(&shmi_attached_changed, NULL); /* threads that waited are not here */
    shmi_after_fork();
}
/* Wakes the death watchers of this process. */
SHMI_FN void shmi_ring_watchers(void)
{
    shmsync_arena *a;
    pthread_mutex_lock(&shmi_attached_lock);
    for (a = shmi_attached; a != NULL; a = a->next)
        if (a->stage == SHMI_attached)
            shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    pthread_mutex_unlock(&shmi_attached_lock);
}
SHMI_FN void shmi_watch_forks(void) { pthread_atfork(shmi_before_fork, shmi_after_fork, shmi_in_child); }

SHMI_FN int shmi_lock_slot(shmsync_arena *a, uint32_t i)
{
    if (a->lock_fd < 0)
        return 1;
    if (shmi_lock_byte(a->lock_fd, shmi_slot(a, i)) != 0)
        return 0;
    SHMSYNC_CRASHPOINT("arena.enter.locked");
    return 1;
}
SHMI_FN void shmi_unlock_slot(shmsync_arena *a, uint32_t i)
{
    if (a->lock_fd >= 0)
        shmi_unlock_byte(a->lock_fd, shmi_slot(a, i));
}

/* Makes slot i, free or dead in state w, joining with a generation of the window raw. */
SHMI_FN int shmi_take_slot_at(shmsync_arena *a, uint32_t i, uint32_t w, uint32_t next, uint64_t raw)
{
    uint32_t *caps = shmi_slot32(a, i, SHMI_slotCaps), joining = shmi_slot_word(SHMI_phaseJoining, next);
    uint32_t *reclaimed = shmi_slot32(a, i, SHMI_slotReclaimed);
    int enters = shmi_slot_phase(w) == SHMI_phaseFree && next != shmi_slot_gen(w) + 1;
    if (a->lock_fd >= 0)
        /* A peer that examines a joining slot reads here whether to ask for its byte. */
        shmi_st32(caps, a->caps);
    /* The participants before the first one of a window are all reaped, and their generations
     * say nothing about those of this window. It fails if others have entered the window since w was
     * read. */
    if (enters && !shmi_cas32(reclaimed, shmi_slot_gen(w), next - 1) && shmi_ld32(reclaimed) != next - 1)
        return 0;
    if (!shmi_cas_slot(a, i, w, joining))
        return 0;
    if (shmi_ld64(shmi_slot64(a, i, SHMI_slotWindow)) != raw) {
        /* Without a byte lock this process may have been stopped while the slot was used up and
         * came back to the same state. */
        if (enters)
            shmi_cas32(reclaimed, next - 1, shmi_slot_gen(w));
        shmi_cas_slot(a, i, joining, w);
        return 0;
    }
    shmi_st32(caps, a->caps);
    if (shmi_slot_phase(w) == SHMI_phaseFree) /* else it is that of the dead participant, until its death is recorded */
        shmi_st32(shmi_slot32(a, i, SHMI_slotAdmission), SHMI_admissionPending);
    SHMSYNC_CRASHPOINT("arena.enter.joining");
    return 1;
}

/* Takes slot i over from a dead participant that nobody alive is cleaning up after, and gives our
 * generation, or 0 if it did not. We hold the slot's byte. */
SHMI_FN uint32_t shmi_inherit_slot(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint32_t *reaper = shmi_slot32(a, i, SHMI_slotReaper), next;
    uint64_t raw;
    int had_byte = (shmi_slot_caps(a, i) & SHMI_capOFD) != 0;
    shmi_participant_id u;
    int64_t end;
    next = shmi_next_generation(a, i, w, 1, &raw);
    if (next == 0)
        return 0;
    if (shmi_slot_present(w)) {
        if ((a->lock_fd < 0 || !had_byte) && !shmi_seen_dead(a, i, w))
            return 0; /* alive, as far as anybody can tell */
        shmi_mark(a, i, w);
    }
    w = shmi_slot_with(w, SHMI_phaseDead);
    /* Its system calls may write still, and its ID is what says so. A participant without either
     * bit never became live, so it has made none. */
    if ((shmi_slot_caps(a, i) & (SHMI_capOFD | SHMI_capRobust)) != 0 && !shmi_ended(a, i))
        return 0;
    u = shmi_ld32(reaper);
    if (shmi_current(a, u) || !shmi_cas32(reaper, u, shmi_make_participant_id(i, next)))
        return 0;
    SHMSYNC_CRASHPOINT("arena.inherit.reaper");
    if (a->lock_fd < 0)
        shmi_st32(shmi_slot32(a, i, SHMI_slotCaps), 0); /* not those of the dead: a survey would believe us dead without a byte */
    if (!shmi_take_slot_at(a, i, w, next, raw))
        return 0;
    SHMSYNC_CRASHPOINT("arena.inherit.taken");
    /* From now on our name is current. A process that became reaper in between finishes first. */
    end = shmi_now() + 1000000000;
    for (u = shmi_ld32(reaper); shmi_id_slot(u) != i && shmi_current(a, u); u = shmi_ld32(reaper)) {
        if (shmi_now() > end) {
            uint32_t joining = shmi_slot_word(SHMI_phaseJoining, next);
            shmi_cas_slot(a, i, joining, shmi_slot_with(joining, SHMI_phaseDead));
            return 0;
        }
        shmi_nap(1000000);
    }
    if (!shmi_has_death_record(a, shmi_id_in(i, w))) /* the first of an epoch may have written it */
        shmi_write_death_record(a, i, shmi_id_in(i, w), 0);
    SHMSYNC_CRASHPOINT("arena.inherit.recorded");
    shmi_ring_told(a);
    return next;
}

/* Whether the participant in slot i, in state w, is dead, and there is no generation for a joiner
 * to clean up after it. */
SHMI_FN int shmi_stuck(shmsync_arena *a, uint32_t i, uint32_t w)
{
    uint64_t raw;
    return shmi_next_generation(a, i, w, 1, &raw) == 0 && (shmi_slot_phase(w) == SHMI_phaseDead || shmi_survey_dead(a, i, w));
}
/* Says why nobody can take a slot. */
SHMI_FN int shmi_fail_full(shmsync_arena *a, const shmi_renewal *r)
{
    uint32_t i, used_up = 0, unclean = 0;
    for (i = 1; i <= a->geo.slots; i++) {
        uint32_t w = shmi_slot_state(a, i);
        int stuck = shmi_slot_taken(w) && shmi_stuck(a, i, w);
        if (stuck || shmi_used_up(a, i, w)) {
            used_up++;
            unclean += stuck || !shmi_cleaned(a, i, w);
        }
    }
    if (used_up == 0)
        return shmi_fail(ENOSPC, "arena.open", a->label, "all %u slots for participants are taken", a->geo.slots);
#define SHMI_USED_UP "all %u slots for participants are taken or used up: %u have no generation left; "
    if (r->postponed != NULL)
        return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "they could not be renewed now: %s", a->geo.slots, used_up, r->postponed);
    if (unclean > 0)
        return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "in %u of them nobody could take back what dead participants left; make a new arena",
                         a->geo.slots, used_up, unclean);
    return shmi_fail(ENOSPC, "arena.open", a->label, SHMI_USED_UP "the objects hold too many bytes that may be IDs of %u of them; delete objects, or make a new arena",
                     a->geo.slots, used_up, r->crowded);
#undef SHMI_USED_UP
}

/* Makes a free slot joining, or that of a dead participant, whose name is then *before:
 * it is for us to clean up after it. */
SHMI_FN int shmi_take_slot(shmsync_arena *a, shmi_participant_id *name, shmi_participant_id *before)
{
    int64_t end = shmi_now() + 1000000000;
    shmi_renewal renewal;
    memset(&renewal, 0, sizeof renewal);
    *before = 0;
    for (;; shmi_nap(1000000)) {
        int vacating = 0, late = shmi_now() > end; /* a joiner that was stopped for longer than that looks once more */
        uint32_t i, next;
        uint64_t raw;
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (shmi_slot_phase(w) != SHMI_phaseFree || shmi_used_up(a, i, w) || !shmi_lock_slot(a, i))
                continue;
            next = shmi_next_generation(a, i, w, 0, &raw);
            if (next != 0 && shmi_take_slot_at(a, i, w, next, raw)) {
                *name = shmi_make_participant_id(i, next);
                return 0;
            }
            shmi_unlock_slot(a, i);
        }
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i);
            if (!shmi_slot_taken(w) || !shmi_lock_slot(a, i))
                continue;
            next = shmi_inherit_slot(a, i, w);
            if (next != 0) {
                *name = shmi_make_participant_id(i, next);
                *before = shmi_id_in(i, w);
                return 0;
            }
            shmi_unlock_slot(a, i);
        }
        if (shmi_renew_slots(a, 0, &renewal) && !late)
            continue;
        for (i = 1; i <= a->geo.slots; i++) {
            uint32_t w = shmi_slot_state(a, i), p = shmi_slot_phase(w);
            if (shmi_used_up(a, i, w))
                continue;
            vacating = vacating || p == SHMI_phaseFree || p == SHMI_phaseLeaving || p == SHMI_phaseDead || shmi_survey_dead(a, i, w);
        }
        if (!vacating || late)
            return shmi_fail_full(a, &renewal);
    }
}

/* Fills the slot in. The identity of this process decides nothing but where peers look for its threads
 * when it is dead. */
SHMI_FN void shmi_fill_slot(shmsync_arena *a, const char *label)
{
    uint32_t i = a->my_slot, k, nibbles = 0;
    shmi_off s = shmi_slot(a, i);
    unsigned char boot[16];
    char b[1024], *p;
    uint64_t start = 0, ns = 0;
    ssize_t n;
    memset(boot, 0, sizeof boot);
    if (shmi_read_file("/proc/self/stat", b, sizeof b) > 0 && (p = strrchr(b, ')')) != NULL) {
        /* The name, in parentheses, may hold anything; field 22 is the start. */
        for (k = 2; k < 22 && p != NULL; k++)
            p = strchr(p + 1, ' ');
        if (p != NULL)
            start = strtoull(p + 1, NULL, 10);
    }
    n = readlink("/proc/self/ns/pid", b, sizeof b - 1);
    if (n > 0) {
        b[n] = 0;
        p = strchr(b, '[');
        if (p != NULL)
            ns = strtoull(p + 1, NULL, 10);
    }
    if (shmi_read_file("/proc/sys/kernel/random/boot_id", b, sizeof b) > 0)
        for (p = b; *p != 0 && nibbles < 32; p++) {
            int v = *p >= '0' && *p <= '9' ? *p - '0' : *p >= 'a' && *p <= 'f' ? *p - 'a' + 10 : -1;
            if (v < 0)
                continue;
            boot[nibbles / 2] = (unsigned char)(boot[nibbles / 2] | v << (nibbles % 2 == 0 ? 4 : 0));
            nibbles++;
        }
    shmi_st32(shmi_slot32(a, i, SHMI_slotReaper), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotPID), (uint32_t)getpid());
    shmi_st32(shmi_slot32(a, i, SHMI_slotUID), (uint32_t)geteuid());
    shmi_st64(shmi_slot64(a, i, SHMI_slotStart), start);
    shmi_st64(shmi_slot64(a, i, SHMI_slotPIDNS), ns);
    shmi_st64(shmi_slot64(a, i, SHMI_slotJoined), (uint64_t)shmi_unix_now());
    memcpy(shmi_bytes(a, s + SHMI_slotBootID, 16), boot, 16);
    a->pid_ns = ns;
    memcpy(a->boot, boot, 16);
    if (!shmi_probe_threads(&a->proc_dev))
        a->proc_dev = 0;
    shmi_put_label(a, s + SHMI_slotLabel, label);
    shmi_st64(shmi_slot64(a, i, SHMI_slotDied), 0);
    shmi_st64(shmi_slot64(a, i, SHMI_slotReady), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotAdmission), SHMI_admissionPending);
    shmi_st64(shmi_slot64(a, i, SHMI_slotOpening), 0);
    shmi_st64(shmi_slot64(a, i, SHMI_slotWalking), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotTelling), 0);
    shmi_st32(shmi_slot32(a, i, SHMI_slotGone), 0);
    for (k = 0; k < SHMI_announceCount; k++)
        shmi_st64(shmi_u64(a, s + SHMI_slotAnnounce + k * SHMI_announceStride + SHMI_announceWord), 0);
}

SHMI_FN void shmi_drop_lock(shmsync_arena *a)
{
    if (a->pin != NULL)
        munmap(a->pin, a->pin_size);
    a->pin = NULL;
    pthread_mutex_lock(&shmi_attached_lock); /* a child of fork closes what it finds here */
    if (a->lock_fd >= 0)
        close(a->lock_fd);
    a->lock_fd = -1;
    pthread_mutex_unlock(&shmi_attached_lock);
    a->caps &= ~(uint32_t)SHMI_capOFD;
}

/* Gives this joiner's slot back, whose dead participant it has cleaned up after, if the slot is at the
 * end of its window and nobody else is in the arena. Then the slot can be renewed, which it
 * cannot be while there is something to clean up. */
SHMI_FN int shmi_step_back(shmsync_arena *a)
{
    uint32_t i, mine = a->my_slot, g = shmi_id_gen(a->self);
    shmi_window win = shmi_window_of(a, mine);
    if (!shmi_window_has(&win, g) || win.last - g > shmi_window_heirs(&win))
        return 0;
    for (i = 1; i <= a->geo.slots; i++)
        if (i != mine && shmi_slot_taken(shmi_slot_state(a, i)))
            return 0;
    shmi_reclaim_memory(a, a->self);
    if (shmi_ld32(shmi_slot32(a, mine, SHMI_slotReclaimed)) != g)
        return 0;
    shmi_free_slot(a, mine, shmi_slot_word(SHMI_phaseJoining, g), 0);
    SHMSYNC_CRASHPOINT("arena.renew.stepped_back");
    shmi_unlock_slot(a, mine);
    a->my_slot = 0;
    a->self = 0;
    return 1;
}
/* Cleans up after the dead participant that had this joiner's slot before, and fills the slot in.
 * It is 0 if it gave the slot back instead, which another joiner may take. */
SHMI_FN int shmi_settle_in(shmsync_arena *a, shmi_participant_id before, const char *label)
{
    shmi_concern concern;
    shmi_forget_acts(a);
    if (before != 0) {
        /* If the dead one may owe a wake to anybody, this participant says so of itself until it
         * has made up for that: if it dies meanwhile, whoever reaps it looks at everything. */
        int all = shmi_owes_anybody(a, before), unknown;
        if (all)
            shmi_rest_guard(a, SHMI_WALK_OWED);
        /* Or what the dead one was telling would count as ours. */
        shmi_st32(shmi_slot32(a, a->my_slot, SHMI_slotTelling), 0);
        unknown = shmi_repair_all(a, before, all, &concern);
        SHMSYNC_CRASHPOINT("arena.inherit.repaired");
        shmi_wake_all_for(a, before, &concern);
        SHMSYNC_CRASHPOINT("arena.inherit.woken");
        if (!concern.unfinished) /* else it is done with what this participant leaves */
            shmi_reclaim_memory(a, before);
        SHMSYNC_CRASHPOINT("arena.inherit.reclaimed");
        shmi_rest_guard(a, 0);
        if (unknown == 0 && !concern.unfinished && shmi_step_back(a))
            return 0;
    }
    shmi_renew_others(a);
    shmi_fill_slot(a, label);
    return 1;
}

/* The capabilities of a participant with these options. */
SHMI_FN uint32_t shmi_kernel_io_caps(const shmsync_arena_options *o)
{
    switch (o != NULL ? o->kernel_io : SHMSYNC_KERNEL_IO_SYNCHRONOUS) {
    case SHMSYNC_KERNEL_IO_ASYNCHRONOUS:
        return SHMI_capAsyncIO;
    case SHMSYNC_KERNEL_IO_NONE:
        return SHMI_capNoKernelIO;
    }
    return 0;
}
/* Makes what this participant has declared hold for an opening with these options, too. */
SHMI_FN void shmi_widen_kernel_io(shmsync_arena *a, const shmsync_arena_options *o)
{
    uint32_t *caps = shmi_slot32(a, a->my_slot, SHMI_slotCaps), old, wide, more = shmi_kernel_io_caps(o);
    do {
        old = shmi_ld32(caps);
        wide = old | (more & SHMI_capAsyncIO);
        if ((more & SHMI_capNoKernelIO) == 0)
            wide &= ~(uint32_t)SHMI_capNoKernelIO;
    } while (!shmi_cas32(caps, old, wide));
}

/* Takes a slot and makes this process live in it: the byte lock comes first, then the
 * state word, then the robust list, then the alive words. */
SHMI_FN int shmi_join(shmsync_arena *a, const shmsync_arena_options *o)
{
    const char *label = o != NULL && o->label != NULL && o->label[0] != 0 ? o->label : program_invocation_short_name;
    char path[64];
    shmi_participant_id name = 0, before = 0;
    int err;
    /* An open file description of its own: through a shared one a dead child's lock
     * would live on. */
    snprintf(path, sizeof path, "/proc/thread-self/fd/%d", a->fd);
    pthread_mutex_lock(&shmi_attached_lock);
    a->lock_fd = shmi_have.ofd ? open(path, O_RDWR | O_CLOEXEC) : -1;
    err = a->lock_fd >= 0 ? shmi_pin_lock(a->lock_fd, &a->pin, &a->pin_size) : 0; /* a fork waits: its child must not get the page */
    pthread_mutex_unlock(&shmi_attached_lock);
    if (a->lock_fd >= 0 && !shmi_same_entry(a->lock_fd, AT_FDCWD, path, 0))
        shmi_drop_lock(a);
    if (a->lock_fd >= 0) {
        if (err != 0) {
            shmi_drop_lock(a);
            return shmi_fail(err, "arena.open", a->label, "cannot map the page that keeps this process's byte lock");
        }
        a->caps |= SHMI_capOFD;
    }
    a->caps |= shmi_kernel_io_caps(o);
    /* Quick while there is one thread, so it comes before the helper. */
    if (shmi_alone())
        shmi_register_fence();
    if (shmi_is_registered())
        a->caps |= SHMI_capFence;
    do {
        err = shmi_take_slot(a, &name, &before);
        if (err != 0) {
            shmi_drop_lock(a);
            return err;
        }
        a->my_slot = shmi_id_slot(name);
        a->self = name;
    } while (!shmi_settle_in(a, before, label));
    /* Rung before it is live, so that a death watcher knows of it from the first moment on. */
    shmi_ring_before(a, a->my_slot, 1);
    err = shmi_start_watcher(a);
    if (err != 0) {
        uint32_t joining = shmi_slot_word(SHMI_phaseJoining, shmi_id_gen(name));
        shmi_cas_slot(a, a->my_slot, joining, shmi_slot_with(joining, SHMI_phaseFree));
        shmi_drop_lock(a);
        return err;
    }
    __atomic_store_n(&a->fenced, (a->caps & SHMI_capFence) != 0, __ATOMIC_RELEASE);
    __atomic_store_n(&a->me->name, name, __ATOMIC_RELAXED);
    shmi_ring_watchers_of(a, a->my_slot);
    shmi_survey_ahead(a);
    if (shmi_ld32(&a->unfinished) != 0)
        shmi_ring(shmi_slot32(a, a->my_slot, SHMI_slotWatchDoorbell));
    return 0;
}

/* Makes sure that all that the arena believes to have memory behind it has. */
SHMI_FN int shmi_restore_reservations(shmsync_arena *a)
{
    uint64_t believed = a->geo.blocks_off, i;
    struct stat st;
    int err = shmi_reserve(a, 0, a->geo.blocks_off);
    if (err != 0)
        return err;
    for (i = 0; i < a->geo.chunk_count; i++)
        if (shmi_chunk_reserved(shmi_load_chunk(a, i)))
            believed += SHMI_chunkSize + SHMI_blockWords * SHMI_blockWordSize;
    if (fstat(a->fd, &st) == 0 && (uint64_t)st.st_blocks * 512 >= believed)
        return 0;
    for (i = 0; i < a->geo.chunk_count; i++) {
        if (!shmi_chunk_reserved(shmi_load_chunk(a, i)))
            continue;
        err = shmi_reserve(a, shmi_chunk_off(a, i), SHMI_chunkSize);
        if (err == 0)
            err = shmi_reserve(a, a->geo.blocks_off + i * SHMI_blockWords * SHMI_blockWordSize, SHMI_blockWords * SHMI_blockWordSize);
        if (err != 0)
            return err;
    }
    return 0;
}

/* Frees what this process has open, when nobody closes it any more. */
SHMI_FN void shmi_destroy_refs(shmsync_arena *a)
{
    shmi_ref *r, *next, **lists;
    uint32_t i;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    lists = a->refs;
    a->refs = NULL;
    for (i = 0; lists != NULL && i < UINT32_C(1) << a->refs_log; i++)
        for (r = lists[i]; r != NULL; r = next) {
            next = r->next;
            if (r->handle != NULL && r->end != NULL)
                r->end(r->handle);
            else if (r->handle != NULL)
                shmi_free_thing(r->handle);
            free(r);
        }
    free(lists);
    pthread_mutex_unlock(&a->handles);
    pthread_mutex_unlock(&a->handles_of);
}
SHMI_FN void shmi_destroy(shmsync_arena *a)
{
    shmi_wait_node *s, *after;
    shmi_chore *l, *more;
    shmi_destroy_refs(a);
    for (l = a->chores; l != NULL; l = more) {
        more = l->next;
        free(l);
    }
    for (s = a->wait_nodes; s != NULL; s = after) {
        after = s->next;
        free(s);
    }
    if (a->retired == SHMI_RETIRED_HERE)
        munmap(a->base, (size_t)a->size);
    free(a->path);
    free(a->deferred);
    free(a->reaps);
    free(a->notices);
    free(a->asked);
    free(a->told);
    pthread_mutex_destroy(&a->start_lock);
    pthread_cond_destroy(&a->start_cond);
    pthread_mutex_destroy(&a->handles);
    pthread_mutex_destroy(&a->walking);
    pthread_mutex_destroy(&a->handles_of);
    pthread_mutex_destroy(&a->reaping);
    pthread_mutex_destroy(&a->endings);
    pthread_mutex_destroy(&a->wait_nodes_lock);
    pthread_mutex_destroy(&a->death_lock);
    pthread_mutex_destroy(&a->counter_lock);
    pthread_mutex_destroy(&a->chores_lock);
    if (a->me != NULL)
        munmap(a->me, (size_t)a->page);
    free(a);
}

/* From now on a call with a handle of the arena fails with EBADF. */
SHMI_FN void shmi_close_handles(shmsync_arena *a)
{
    shmi_ref *r;
    uint32_t i;
    pthread_mutex_lock(&a->handles_of);
    pthread_mutex_lock(&a->handles);
    for (i = 0; a->refs != NULL && i < UINT32_C(1) << a->refs_log; i++)
        for (r = a->refs[i]; r != NULL; r = r->next)
            if (r->handle != NULL)
                shmi_close_thing(r->handle);
    pthread_mutex_unlock(&a->handles);
    pthread_mutex_unlock(&a->handles_of);
}

/* An arena that is closed stays what it is until as many more are closed, for calls that come too late, and for
 * those that do not wait and are under way. Where its file was, there is memory of this process alone. */
enum { SHMI_RETIRED = 64 };
static shmsync_arena *shmi_retired[SHMI_RETIRED]; /* guarded by: shmi_attached_lock */
static unsigned shmi_retired_at;                  /* guarded by: shmi_attached_lock */

SHMI_FN void shmi_retire(shmsync_arena *a)
{
    shmsync_arena *old;
    pthread_mutex_lock(&shmi_attached_lock);
    old = shmi_retired[shmi_retired_at];
    shmi_retired[shmi_retired_at] = a;
    shmi_retired_at = (shmi_retired_at + 1) % SHMI_RETIRED;
    pthread_mutex_unlock(&shmi_attached_lock);
    if (old != NULL)
        shmi_destroy(old);
}
/* Puts memory of this process alone where the arena is, in one step; 0 if it cannot, and then nothing is there. Under
 * mlockall memory that may be read is taken in full when it is mapped, so this is made accessible later. */
SHMI_FN int shmi_unmap_file(shmsync_arena *a)
{
    const size_t size = (size_t)a->size;
    void *p = mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p != MAP_FAILED) {
        munlock(p, size);
        madvise(p, size, MADV_DONTDUMP);
        if (mprotect(p, size, PROT_READ | PROT_WRITE) == 0 && mremap(p, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, a->base) != MAP_FAILED)
            return 1;
        munmap(p, size);
    }
    munmap(a->base, size);
    return 0;
}

SHMI_FN int shmi_compare(shmsync_arena *a, const shmsync_arena_options *o, int created)
{
    if (o == NULL || created)
        return 0;
    if (o->max_participants != 0 && o->max_participants != a->geo.slots)
        return shmi_fail(EINVAL, "arena.open", a->label, "max_participants is %u, asked for %u", a->geo.slots, o->max_participants);
    if (o->size != 0 && ((o->size + SHMI_chunkSize - 1) & ~(uint64_t)(SHMI_chunkSize - 1)) != a->geo.size)
        return shmi_fail(EINVAL, "arena.open", a->label, "its size is %llu, asked for %llu", (unsigned long long)a->geo.size, (unsigned long long)o->size);
    return 0;
}

#define SHMI_REGISTER_AFTER INT64_C(50000000)

/* Tells all that this process is a target of fences, and then takes biased holds. The
 * caller holds shmi_attached_lock, and a is attached: its slot is its own. */
SHMI_FN void shmi_take_fences(shmsync_arena *a)
{
    shmi_or32(shmi_slot32(a, a->my_slot, SHMI_slotCaps), SHMI_capFence);
    __atomic_store_n(&a->fenced, 1, __ATOMIC_RELEASE);
}
SHMI_FN void *shmi_register_late(void *arg)
{
    shmsync_arena *a;
    (void)arg;
    shmi_nap(SHMI_REGISTER_AFTER);
    shmi_register_fence();
    pthread_mutex_lock(&shmi_attached_lock);
    for (a = shmi_attached; a != NULL; a = a->next)
        if (a->stage == SHMI_attached && shmi_is_registered())
            shmi_take_fences(a);
    shmi_registering = 0;
    pthread_mutex_unlock(&shmi_attached_lock);
    shmi_end_thread();
    return NULL;
}
/* Has a thread of its own register this process, which takes until all CPUs have rested,
 * 15 ms and more: a process that is killed meanwhile cannot end before. So it is not done
 * for a process that lives briefly, and nobody waits for it. The caller holds shmi_attached_lock. */
SHMI_FN void shmi_begin_registering(void)
{
    pthread_t t;
    if (!shmi_have.membarrier || shmi_registering)
        return;
    if (shmi_start_thread(&t, "shmsync-fences", shmi_register_late, NULL) == 0) {
        pthread_detach(t);
        shmi_registering = 1;
    }
}

/* Takes a out of the list. The caller holds shmi_attached_lock. */
SHMI_FN void shmi_detach(shmsync_arena *a)
{
    shmsync_arena **p;
    for (p = &shmi_attached; *p != a; p = &(*p)->next) {
    }
    *p = a->next;
}

/* This process's arena of the file in s, NULL if it has none. The caller holds
 * shmi_attached_lock, which is given back while another thread joins. */
SHMI_FN shmsync_arena *shmi_attached_to(const shmi_segment *s)
{
    shmsync_arena *a = shmi_attached;
    while (a != NULL) {
        if (a->dev != s->dev || a->ino != s->ino || a->stage == SHMI_closing) {
            a = a->next;
        } else if (a->stage == SHMI_opening) {
            if (a->in_hook && pthread_equal(a->hook_thread, pthread_self())) /* it would wait for itself */
                break;
            pthread_cond_wait(&shmi_attached_changed, &shmi_attached_lock);
            a = shmi_attached;
        } else {
            break;
        }
    }
    return a;
}

SHMI_FN void shmi_note_hook(shmsync_arena *a, int runs)
{
    pthread_mutex_lock(&shmi_attached_lock);
    a->in_hook = runs;
    a->hook_thread = pthread_self();
    pthread_mutex_unlock(&shmi_attached_lock);
}

/* Begins an arena for s, as the caller holds shmi_attached_lock. */
SHMI_FN int shmi_new_arena(const shmi_segment *s, const char *path, shmsync_arena **out)
{
    shmsync_arena *a = (shmsync_arena *)calloc(1, sizeof *a);
    if (a == NULL || (a->path = strdup(path)) == NULL) {
        free(a);
        return shmi_fail(ENOMEM, "arena.open", path, "%s", "");
    }
    a->page = sysconf(_SC_PAGESIZE);
    a->base = s->base;
    a->size = s->size;
    a->fd = s->fd;
    a->lock_fd = -1;
    a->dev = s->dev;
    a->ino = s->ino;
    a->stage = SHMI_opening;
    snprintf(a->label, sizeof a->label, "%s", path);
    pthread_mutex_init(&a->start_lock, NULL);
    pthread_cond_init(&a->start_cond, NULL);
    pthread_mutex_init(&a->handles, NULL);
    pthread_mutex_init(&a->walking, NULL);
    pthread_mutex_init(&a->handles_of, NULL);
    pthread_mutex_init(&a->reaping, NULL);
    pthread_mutex_init(&a->endings, NULL);
    pthread_mutex_init(&a->wait_nodes_lock, NULL);
    pthread_mutex_init(&a->death_lock, NULL);
    pthread_mutex_init(&a->counter_lock, NULL);
    pthread_mutex_init(&a->chores_lock, NULL);
    a->next = shmi_attached;
    shmi_attached = a;
    *out = a;
    return 0;
}

/* Joins with a new arena. */
SHMI_FN int shmi_begin(shmsync_arena *a, shmi_segment *s, const shmsync_arena_options *o)
{
    unsigned char header[SHMI_headerSize];
    ssize_t n = pread(a->fd, header, sizeof header, 0);
    void *page;
    int err = n < 0 ? shmi_fail(errno, "arena.open", a->label, "read") : shmi_validate(header, (size_t)n, a->size, a->label, &a->geo);
    if (err == 0)
        err = shmi_compare(a, o, s->created);
    if (err == 0)
        err = shmi_restore_reservations(a);
    if (err != 0)
        return err;
    s->joined = 1;
    page = mmap(NULL, (size_t)a->page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    a->reaps = (shmi_reap_progress *)calloc((size_t)a->geo.slots + 1, sizeof *a->reaps);
    a->notices = (shmi_notice *)calloc((size_t)a->geo.slots + 1, sizeof *a->notices);
    a->asked = (int64_t *)calloc((size_t)a->geo.slots + 1, sizeof *a->asked);
    if (page != MAP_FAILED) {
        madvise(page, (size_t)a->page, MADV_WIPEONFORK); /* or the handler of forks does it */
        pthread_mutex_lock(&shmi_attached_lock);
        a->me = (shmi_me *)page;
        pthread_mutex_unlock(&shmi_attached_lock);
    }
    if (a->me == NULL || a->reaps == NULL || a->notices == NULL || a->asked == NULL)
        return shmi_fail(ENOMEM, "arena.open", a->label, "%s", "");
    return shmi_join(a, o);
}

SHMI_FN void shmi_leave(shmsync_arena *a);

/* Makes this process a participant of the arena in s, which it takes over. The caller
 * holds shmi_attached_lock, which is given back meanwhile. */
SHMI_FN int shmi_attach(shmi_segment *s, const char *path, const shmsync_arena_options *o, shmsync_arena **out)
{
    shmsync_arena *a = shmi_attached_to(s);
    int err;
    if (a != NULL) {
        shmi_unmap(s);
        if (a->stage == SHMI_opening)
            return shmi_fail(EDEADLK, "arena.open", path, "its on_first opens it, and would wait for itself: use the arena that on_first gets");
        err = shmi_compare(a, o, 0);
        if (err == 0) {
            a->opens++;
            a->ephemeral = a->ephemeral || (o != NULL && o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL);
            *out = a;
            shmi_widen_kernel_io(a, o);
            shmi_tell_detached(a, o);
        }
        return err;
    }
    err = shmi_new_arena(s, path, &a);
    if (err != 0) {
        shmi_unmap(s);
        return err;
    }
    pthread_mutex_unlock(&shmi_attached_lock);
    err = shmi_begin(a, s, o);
    if (err == 0) {
        err = shmi_admit(a, o, strchr(path, '/') != NULL);
        if (err != 0) {
            shmi_failure why = shmi_last;
            shmi_leave(a); /* closes s, too */
            shmi_last = why;
            s->base = NULL;
            s->fd = -1;
        }
    }
    pthread_mutex_lock(&shmi_attached_lock);
    if (err == 0) {
        a->stage = SHMI_attached;
        a->opens = 1;
        a->ephemeral = o != NULL && o->lifetime == SHMSYNC_LIFETIME_EPHEMERAL;
        *out = a;
        shmi_tell_detached(a, o);
        if (shmi_is_registered())
            shmi_take_fences(a);
        else
            shmi_begin_registering();
    } else {
        shmi_detach(a);
    }
    pthread_cond_broadcast(&shmi_attached_changed);
    if (err != 0) {
        shmi_unmap(s);
        pthread_mutex_unlock(&shmi_attached_lock);
        shmi_retire(a); /* on_first may have kept it */
        pthread_mutex_lock(&shmi_attached_lock);
    }
    return err;
}

SHMI_FN int shmi_check_abi(const char *name, uint32_t abi)
{
    shmi_no_failure();
    if (abi != SHMSYNC_ABI)
        return shmi_fail(EPROTONOSUPPORT, "arena.open", name, "the program was compiled for layout version %u and machine words of %u bytes, the implementation for version %u and %u bytes",
                         (unsigned)(abi >> 8), (unsigned)(abi & 0xff), (unsigned)(SHMSYNC_ABI >> 8), (unsigned)(SHMSYNC_ABI & 0xff));
    pthread_once(&shmi_atfork_once, shmi_watch_forks);
    shmi_probe();
    shmi_stay_loaded();
    shmi_note_opener();
    return 0;
}

/* Checks the options that are of this process only. */
SHMI_FN int shmi_check_options(const char *name, const shmsync_arena_options *o)
{
    if (o != NULL && (unsigned)o->kernel_io > SHMSYNC_KERNEL_IO_NONE)
        return shmi_fail(EINVAL, "arena.open", name, "kernel_io is %d, which is none of SHMSYNC_KERNEL_IO_x", o->kernel_io);
    if (o != NULL && ((unsigned)o->lifetime > SHMSYNC_LIFETIME_EPHEMERAL || o->recreate > 7))
        return shmi_fail(EINVAL, "arena.open", name, "lifetime is %d and recreate %u, of which one is no value of this option", o->lifetime, o->recreate);
    return 0;
}

/* The removal of an arena in which no participant is, once: see tryRemove in internal/arenakernel/remove.go.
 * It leaves any file but judged alone, if that is not -1. *again says that another try may have another result. The caller holds shmi_attached_lock: a child of a fork
 * would keep the gate. */
SHMI_FN int shmi_try_remove(const char *path, int judged, int *again)
{
    const char *op = "arena.remove";
    unsigned char header[SHMI_headerSize];
    shmsync_arena *a;
    struct stat st;
    ssize_t n;
    uint64_t w;
    uint32_t in;
    short found = F_UNLCK;
    int err, locked, readable, fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    *again = 0;
    if (fd < 0)
        return shmi_fail(errno, op, path, "%s", "");
    if (judged >= 0 && !shmi_same_file(fd, judged)) { /* another process has replaced it */
        close(fd);
        return 0;
    }
    a = (shmsync_arena *)calloc(1, sizeof *a);
    n = pread(fd, header, sizeof header, 0);
    if (a == NULL || n < 0 || fstat(fd, &st) != 0)
        err = shmi_fail(a == NULL ? ENOMEM : errno, op, path, "%s", "");
    else if (n < 8 || memcmp(header + SHMI_hdrMagic, SHMI_magic, 8) != 0)
        err = shmi_fail(EINVAL, op, path, "not an arena");
    else
        err = shmi_have.ofd ? shmi_lock_byte(fd, SHMI_GATE_BYTE) : ENOTSUP;
    locked = err == 0;
    if (err != 0 && err != EAGAIN) {
        if (shmi_last.err == 0)
            shmi_fail(err, op, path, "%s", "");
        goto out;
    }
    a->fd = a->lock_fd = fd;
    a->dev = (uint64_t)st.st_dev;
    a->ino = (uint64_t)st.st_ino;
    a->path = (char *)(uintptr_t)path;
    snprintf(a->label, sizeof a->label, "%s", path);
    readable = shmi_validate(header, (size_t)n, (uint64_t)st.st_size, path, &a->geo) == 0;
    shmi_no_failure();
    if (readable) {
        void *p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (p == MAP_FAILED) {
            err = shmi_fail(errno, op, path, "mmap");
            goto out;
        }
        a->base = (unsigned char *)p;
        a->size = (uint64_t)st.st_size;
    }
    if (!locked) {
        *again = 1;
        err = readable ? shmi_fail_gate(a, EBUSY, op) : shmi_fail(EBUSY, op, path, "another process has the gate of the arena");
    } else if (shmi_moved(a)) {
        *again = 1;
        err = 0;
    } else if (!readable) {
        /* Gate and byte locks mean the same in every layout. */
        err = shmi_bytes_op(fd, F_OFD_GETLK, F_WRLCK, 0, SHMI_GATE_BYTE, &found);
        if (err == 0 && found != F_UNLCK)
            err = EBUSY;
        if (err != 0)
            shmi_fail(err, op, path, "a process has it open");
        else
            err = shmi_remove_file(fd, path, again);
    } else if (shmi_epoch_phase(shmi_epoch(a)) == SHMI_epochRemoved) {
        err = shmi_remove_file(fd, path, again); /* another name of the file */
    } else if ((in = shmi_any_in(a)) != 0) {
        err = shmi_fail_in(a, op, in);
    } else if ((w = shmi_claim_epoch(a, &in)) == 0) {
        *again = in == 0;
        err = in != 0 ? shmi_fail_in(a, op, in) : shmi_fail_gate(a, EBUSY, op);
    } else {
        err = shmi_unlink_claimed(a, w, again);
    }
out:
    if (locked)
        shmi_unlock_byte(fd, SHMI_GATE_BYTE);
    if (a != NULL && a->base != NULL)
        munmap(a->base, (size_t)a->size);
    free(a);
    close(fd);
    return err;
}
/* Removes the file of an arena in which no participant is. */
SHMI_FN int shmi_remove_unused(const char *path, int judged)
{
    int64_t end = shmi_now() + SHMI_GATE_TIMEOUT;
    for (;;) {
        int again, err;
        shmi_no_failure();
        pthread_mutex_lock(&shmi_attached_lock);
        err = shmi_try_remove(path, judged, &again);
        pthread_mutex_unlock(&shmi_attached_lock);
        if (!again || (err != 0 && shmi_now() > end))
            return err;
        shmi_nap(SHMI_GATE_PAUSE);
    }
}
int shmsync_arena_remove(const char *name)
{
    SHMI_BEGIN();
    char path[PATH_MAX];
    int err = shmi_path(name, path, sizeof path);
    if (err != 0)
        return SHMI_TELL(err);
    pthread_once(&shmi_atfork_once, shmi_watch_forks);
    shmi_probe();
    shmi_hold_cancel();
    err = shmi_remove_unused(path, -1);
    shmi_let_cancel();
    return SHMI_TELL(err);
}

#define SHMI_MAX_MOVES 1000

SHMI_FN int shmi_open_named(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    char path[PATH_MAX];
    shmi_segment s;
    int moves, judged, err = shmi_check_abi(name, abi);
    if (err == 0)
        err = shmi_check_options(name, opts);
    if (err == 0)
        err = shmi_path(name, path, sizeof path);
    for (moves = 0; err == 0 && moves < SHMI_MAX_MOVES; moves++) {
        pthread_mutex_lock(&shmi_attached_lock);
        err = shmi_open_segment(&s, path, opts);
        if (err != 0) {
            pthread_mutex_unlock(&shmi_attached_lock);
            return err;
        }
        if (s.created)
            shmi_sweep_removed(path);
        /* As long as it is open, no other file has its inode number. */
        judged = opts != NULL && opts->recreate != 0 ? fcntl(s.fd, F_DUPFD_CLOEXEC, 0) : -1;
        err = shmi_attach(&s, path, opts, out);
        pthread_mutex_unlock(&shmi_attached_lock);
        if (err == SHMI_MOVED) {
            err = 0; /* start over at the name */
        } else if (err != 0 && judged >= 0 && !s.joined &&
                   (((opts->recreate & SHMSYNC_RECREATE_INCOMPATIBLE) != 0 && (err == EPROTONOSUPPORT || err == EINVAL)) ||
                    ((opts->recreate & SHMSYNC_RECREATE_CORRUPT) != 0 && err == EPROTO))) {
            SHMSYNC_CRASHPOINT("arena.remove.judged");
            err = shmi_remove_unused(path, judged);
            if (err == ENOENT)
                err = 0;
        } else if (err == 0) {
            moves = -1;
        }
        if (judged >= 0)
            close(judged);
        if (moves < 0)
            return 0;
    }
    if (err == 0)
        err = shmi_fail(EINVAL, "arena.open", path, "the arena was removed, but the name still leads to it, or leads to another file each time");
    return err;
}
int shmsync_arena_open_abi(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_BEGIN();
    int err;
    *out = NULL;
    shmi_hold_cancel();
    err = shmi_open_named(name, opts, out, abi);
    shmi_let_cancel();
    return SHMI_TELL(err);
}

SHMI_FN int shmi_open_fd(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    char path[64];
    shmi_segment s;
    int err, mode;
    snprintf(path, sizeof path, "fd %d", fd);
    err = shmi_check_abi(path, abi);
    if (err == 0)
        err = shmi_check_options(path, opts);
    if (err != 0)
        return err;
    mode = fcntl(fd, F_GETFL);
    if (mode < 0 || (mode & O_ACCMODE) != O_RDWR)
        return shmi_fail(mode < 0 ? errno : EACCES, "arena.open", path, "not open for reading and writing");
    memset(&s, 0, sizeof s);
    s.fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (s.fd < 0)
        return shmi_fail(errno, "arena.open", path, "duplicate the descriptor");
    pthread_mutex_lock(&shmi_attached_lock);
    err = shmi_map(&s, path, opts);
    if (err != 0)
        shmi_unmap(&s);
    else
        err = shmi_attach(&s, path, opts, out);
    pthread_mutex_unlock(&shmi_attached_lock);
    return err == SHMI_MOVED ? shmi_fail(EINVAL, "arena.open", path, "the arena was removed") : err;
}
int shmsync_arena_from_fd_abi(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi)
{
    SHMI_BEGIN();
    int err;
    *out = NULL;
    shmi_hold_cancel();
    err = shmi_open_fd(fd, opts, out, abi);
    shmi_let_cancel();
    return SHMI_TELL(err);
}

/* ---- Leaving: what this process still holds or waits for is treated as its death
 * would be ---- */

SHMI_FN void shmi_leave(shmsync_arena *a)
{
    uint32_t i = a->my_slot, live = shmi_slot_word(SHMI_phaseLive, shmi_id_gen(a->self)), leaving = shmi_slot_with(live, SHMI_phaseLeaving), k;
    shmi_concern concern;
    uint32_t number, synced;
    int unknown;
    shmi_st64(shmi_slot64(a, i, SHMI_slotDied), (uint64_t)shmi_unix_now());
    shmi_cas_slot(a, i, live, leaving);
    SHMSYNC_CRASHPOINT("arena.close.leaving");
    /* At the end nobody marks the alive words of a process that leaves: its byte has to be
     * asked for. */
    shmi_ring_before(a, i, 1);
    __atomic_store_n(&a->closing, 1, __ATOMIC_SEQ_CST);
    while (shmi_ld32(&a->calls) != 0) { /* the waiters */
        for (k = 0; k < SHMI_announceCount; k++) {
            shmi_off word = shmi_ld64(shmi_u64(a, shmi_slot(a, i) + SHMI_slotAnnounce + k * SHMI_announceStride + SHMI_announceWord));
            if (word != 0 && shmi_within(a, word, 4, 4))
                shmi_wake(shmi_u32(a, word), SHMI_ALL);
        }
        shmi_nap(1000000);
    }
    shmi_close_handles(a);
    shmi_do_chores(a);
    pthread_mutex_lock(&a->reaping);
    unknown = shmi_repair_all(a, a->self, 0, &concern);
    SHMSYNC_CRASHPOINT("arena.close.repaired");
    if (!concern.unfinished)
        shmi_reclaim_memory(a, a->self);
    SHMSYNC_CRASHPOINT("arena.close.reclaimed");
    shmi_wake_all_for(a, a->self, &concern); /* a wake that was for us is lost with us, as in a death */
    if (!concern.unfinished)
        shmi_clear_open_bits(a, a->self);
    pthread_mutex_unlock(&a->reaping);

    shmi_ring(shmi_slot32(a, i, SHMI_slotWatchDoorbell));
    pthread_join(a->watcher, NULL);
    SHMSYNC_CRASHPOINT("arena.close.unregistered");
    shmi_write_death_record(a, i, a->self, 1);
    number = shmi_epoch_of_write_back(a, &synced);
    shmi_free_slot(a, i, leaving, unknown != 0);
    SHMSYNC_CRASHPOINT("arena.close.freed");
    shmi_write_back(a, number, synced);
    __atomic_store_n(&a->me->name, 0, __ATOMIC_RELAXED);
    shmi_ring_watchers_of(a, i);
    shmi_count_death(a, &concern); /* a peer that looked when it was woken found us current still */
    shmi_drop_lock(a);
    __atomic_store_n(&a->retired, shmi_unmap_file(a) ? SHMI_RETIRED_HERE : SHMI_RETIRED_GONE, __ATOMIC_RELEASE);
    close(a->fd);
}

/* Whether a is one of the arenas that this process closed last. */
SHMI_FN int shmi_was_closed(const shmsync_arena *a)
{
    int found = 0;
    unsigned i;
    pthread_mutex_lock(&shmi_attached_lock);
    for (i = 0; i < SHMI_RETIRED; i++)
        found = found || shmi_retired[i] == a;
    pthread_mutex_unlock(&shmi_attached_lock);
    return found;
}

int shmsync_arena_close(shmsync_arena *a)
{
    SHMI_BEGIN();
    shmsync_arena *open_;
    int last;
    if (a == NULL)
        return SHMI_TELL(EINVAL);
    if (shmi_is_inside(a)) /* the close would wait for the call that this thread is in */
        return shmi_fail(EDEADLK, "arena.close", NULL, "this thread is in a call of the arena: a function that a call runs may neither close it, nor be left by longjmp or an exception");
    shmi_hold_cancel();
    pthread_mutex_lock(&shmi_attached_lock);
    for (open_ = shmi_attached; open_ != NULL && (open_ != a || a->stage != SHMI_attached); open_ = open_->next) {
    }
    last = open_ != NULL && --a->opens == 0;
    if (last)
        a->stage = SHMI_closing;
    pthread_mutex_unlock(&shmi_attached_lock);
    if (last) {
        int again, own = a->ephemeral && strchr(a->path, '/') != NULL ? fcntl(a->fd, F_DUPFD_CLOEXEC, 0) : -1;
        shmi_leave(a);
        pthread_mutex_lock(&shmi_attached_lock);
        if (own >= 0) {
            shmi_try_remove(a->path, own, &again);
            close(own);
        }
        shmi_detach(a);
        pthread_mutex_unlock(&shmi_attached_lock);
        shmi_retire(a);
    }
    shmi_let_cancel();
    /* Inherited over a fork, or closed already: that was lately, or the address means nothing any more. */
    return SHMI_TELL(open_ != NULL ? 0 : shmi_fail(shmi_was_closed(a) ? EBADF : ENOTCONN, "arena.close", NULL, "%s", ""));
}

uint64_t shmsync_arena_size(const shmsync_arena *a) { return a->geo.size; }
void *shmsync_arena_base(const shmsync_arena *a) { return __atomic_load_n(&a->retired, __ATOMIC_ACQUIRE) ? NULL : a->base; }

int shmsync_arena_self(shmsync_arena *a, shmsync_participant *out)
{
    SHMI_BEGIN();
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "arena.self", a->label, "%s", "");
    shmi_read_slot(a, a->my_slot, shmi_slot_state(a, a->my_slot), out);
    return 0;
}

int shmsync_arena_participants(shmsync_arena *a, int (*f)(const shmsync_participant *, void *), void *arg)
{
    SHMI_BEGIN();
    uint32_t i;
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "arena.participants", a->label, "%s", "");
    for (i = 1; i <= a->geo.slots; i++) {
        shmsync_participant p;
        uint32_t w = shmi_slot_state(a, i);
        if (!shmi_slot_present(w))
            continue;
        shmi_read_slot(a, i, w, &p);
        if (shmi_slot_gen(shmi_slot_state(a, i)) == p.generation && f(&p, arg) != 0)
            break;
    }
    return 0;
}

/* ---- Bytes of the user's own ---- */

int shmsync_alloc(shmsync_arena *a, uint64_t size, shmsync_offset *out)
{
    SHMI_BEGIN();
    shmi_off off = 0;
    int err;
    *out = 0;
    err = shmi_enter(a, "arena.alloc");
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_claim(a, size, &off);
    if (err == 0) {
        SHMSYNC_CRASHPOINT("arena.alloc.before_publish");
        err = shmi_publish(a, off, SHMI_blockRaw);
    }
    if (err == 0)
        *out = off;
    shmi_exit(a);
    return SHMI_TELL(err);
}

int shmsync_free(shmsync_arena *a, shmsync_offset off)
{
    SHMI_BEGIN();
    shmi_block b;
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    int err = shmi_enter(a, "arena.free");
    if (err != 0)
        return SHMI_TELL(err);
    if (shmi_locate(a, off, &b))
        shmi_touch(a, b.chunk);
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, SHMI_blockRaw, freeing)) {
        err = shmi_fail(EINVAL, "arena.free", a->label, "nothing that was allocated begins at 0x%llx", (unsigned long long)off);
    } else {
        SHMSYNC_CRASHPOINT("arena.free.before_clear");
        shmi_release(a, &b, freeing);
    }
    shmi_exit(a);
    return SHMI_TELL(err);
}

void *shmsync_at(shmsync_arena *a, shmsync_offset off, uint64_t size)
{
    if (__atomic_load_n(&a->retired, __ATOMIC_ACQUIRE)) {
        shmi_fail(EBADF, "arena.at", a->label, "this process closed the arena");
        return NULL;
    }
    return shmi_try_at(a, off, size, 1);
}

SHMI_FN int shmi_plain_open(shmsync_arena *a, int existing, uint32_t kind, const char *name, uint64_t size, uint64_t layout, void **out, uint64_t *has)
{
    shmi_spec spec;
    shmi_object o;
    int created, err;
    memset(&spec, 0, sizeof spec);
    spec.kind = kind;
    spec.version = 1;
    spec.name = name;
    spec.size = size;
    spec.layout = layout;
    spec.any_layout = layout == 0;
    spec.existing = existing;
    spec.any_size = has != NULL;
    *out = NULL;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        *out = shmi_bytes(a, o.body, o.size);
    if (err == 0 && has != NULL)
        *has = o.size;
    return err;
}
int shmsync_block_open(shmsync_arena *a, const char *name, uint64_t size, void **out)
{
    SHMI_BEGIN();
    if (size == 0)
        return shmi_fail(EINVAL, "arena.block", name, "a block has at least 1 byte; shmsync_block_attach opens one that exists");
    return SHMI_TELL(shmi_plain_open(a, 0, SHMI_KIND('B', 'L', 'O', 'K'), name, size, 0, out, NULL));
}
int shmsync_block_attach(shmsync_arena *a, const char *name, void **out, uint64_t *size)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, 1, SHMI_KIND('B', 'L', 'O', 'K'), name, 0, 0, out, size));
}
int shmsync_value_open(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, 0, SHMI_KIND('V', 'A', 'L', 'U'), name, size, layout, out, NULL));
}
int shmsync_value_attach(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_plain_open(a, 1, SHMI_KIND('V', 'A', 'L', 'U'), name, size, layout, out, NULL));
}

/* ---- Waiting ----
 *
 * A thread that waits sleeps in the kernel, on the word that the object's protocol
 * says, with an announce record in its slot: so the reaper after a death finds it. More
 * threads than there are records sleep without one, and periodic checks find them.
 *
 * Nothing depends on every wake arriving: no sleep is longer than 100 ms, and after
 * one that long the caller looks at the object's own words. */

#define SHMI_CHECK_EVERY INT64_C(100000000) /* ns */

/* Takes an announce record for a wait that has lasted since that time; -1 when there is none. */
SHMI_FN int shmi_announce_sleep(shmsync_arena *a, shmi_off object, shmi_off word, uint64_t wanted, int64_t since)
{
    for (;;) {
        uint32_t used = shmi_ld32(&a->announce_map);
        shmi_off r;
        int k;
        if (used == UINT32_MAX)
            return -1;
        k = __builtin_ctz(~used);
        if (!shmi_cas32(&a->announce_map, used, used | 1u << k))
            continue;
        r = shmi_slot(a, a->my_slot) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride;
        shmi_put64(shmi_u64(a, r + SHMI_announceObject), object);
        shmi_put64(shmi_u64(a, r + SHMI_announceSince), (uint64_t)since);
        shmi_put64(shmi_u64(a, r + SHMI_announceWanted), wanted);
        shmi_st64(shmi_u64(a, r + SHMI_announceWord), word);
        return k;
    }
}
SHMI_FN void shmi_retract_sleep(shmsync_arena *a, int k)
{
    if (k < 0)
        return;
    shmi_st64(shmi_u64(a, shmi_slot(a, a->my_slot) + SHMI_slotAnnounce + (shmi_off)k * SHMI_announceStride + SHMI_announceWord), 0);
    shmi_and32(&a->announce_map, ~(1u << k));
}

/* The futex word that the kernel marks when n dies, and its value; NULL where it does
 * not do that for n. */
SHMI_FN uint32_t *shmi_alive_of(shmsync_arena *a, shmi_participant_id n, uint32_t *alive)
{
    uint32_t i = shmi_id_slot(n), *w;
    if (i < 1 || i > a->geo.slots || n == a->self || (shmi_slot_caps(a, i) & SHMI_capRobust) == 0)
        return NULL;
    w = shmi_alive_word(a, i, SHMI_aliveWords - 1);
    *alive = shmi_ld32(w);
    return w;
}

enum {
    SHMI_AGAIN,  /* something happened, or may have: look at the state */
    SHMI_LATE,   /* the deadline has passed */
    SHMI_LOOK,   /* 100 ms have passed since the last check: look after the object, and sleep again */
    SHMI_CLOSED  /* this process leaves the arena */
};

/* What a thread sleeps on. Zero it, then fill in. */
typedef struct shmi_sleep_spec {
    uint32_t *word; /* while it is val */
    uint32_t val;
    shmi_off object; /* for the announce record */
    uint64_t wanted;
    int64_t deadline;  /* CLOCK_MONOTONIC ns, 0: none */
    int64_t *since;    /* since when the wait lasts, CLOCK_MONOTONIC ns; 0 before its first sleep, which sets it */
    shmi_participant_id owner;   /* wake up when this participant dies, if not 0 */
    uint32_t *other;   /* wake up when this word is woken, too, if not NULL */
    uint32_t other_is;
    int64_t bounded;   /* sleep no longer than this many ns, if not 0 */
    int64_t *looked;   /* when this process looked after the object last; shmi_check_due moves it on */
} shmi_sleep_spec;

/* Sleeps once. The caller is within shmi_enter and has announced itself in the object. */
SHMI_FN int shmi_sleep(shmsync_arena *a, const shmi_sleep_spec *sleep_spec)
{
    int64_t now = shmi_now(), until = now + SHMI_CHECK_EVERY;
    shmi_waitv v[3];
    unsigned n = 1;
    int record, err = 0, look = 1;
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return SHMI_CLOSED;
    if (sleep_spec->deadline != 0 && sleep_spec->deadline <= now)
        return SHMI_LATE;
    /* A thread that is woken often, or waits briefly each time, never sleeps for so long. */
    if (sleep_spec->looked != NULL && now - __atomic_load_n(sleep_spec->looked, __ATOMIC_RELAXED) >= SHMI_CHECK_EVERY)
        return SHMI_LOOK;
    if (*sleep_spec->since == 0)
        *sleep_spec->since = now;
    record = shmi_announce_sleep(a, sleep_spec->object, shmi_off_of(a, sleep_spec->word), sleep_spec->wanted, *sleep_spec->since);
    v[0] = shmi_waitv_of(sleep_spec->word, sleep_spec->val);
    if (sleep_spec->bounded != 0 && now + sleep_spec->bounded < until) {
        until = now + sleep_spec->bounded;
        look = 0;
    }
    if ((a->caps & SHMI_capWaitV) != 0) {
        if (sleep_spec->owner != 0) {
            uint32_t alive, *w = shmi_alive_of(a, sleep_spec->owner, &alive);
            if (w != NULL && (alive & SHMI_OWNER_DIED) == 0) {
                v[n++] = shmi_waitv_of(w, alive);
            } else if (w != NULL) {
                until = now + 200000; /* its threads cannot be fenced yet */
                look = 0;
            }
        }
        if (sleep_spec->other != NULL)
            v[n++] = shmi_waitv_of(sleep_spec->other, sleep_spec->other_is);
    } else if (sleep_spec->owner != 0 || sleep_spec->other != NULL) {
        /* One word at a time: what the others tell is found by looking more often. */
        if (until > now + 10000000) {
            until = now + 10000000;
            look = 1;
        }
    }
    if (sleep_spec->deadline != 0 && sleep_spec->deadline < until) {
        until = sleep_spec->deadline;
        look = 0;
    }
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
        if (n > 1) {
            err = shmi_futex_sleepv(v, n, until);
            if (err != 0 && err != EAGAIN && err != EINTR && err != ETIMEDOUT) { /* ENOMEM: no room just now */
                n = 1;
                until = now + 1000000;
                look = 0;
            }
        }
        if (n == 1)
            err = shmi_futex_sleep(sleep_spec->word, sleep_spec->val, until);
    }
    shmi_retract_sleep(a, record);
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return SHMI_CLOSED;
    if (err == ETIMEDOUT) {
        if (sleep_spec->deadline != 0 && shmi_now() >= sleep_spec->deadline)
            return SHMI_LATE;
        return look ? SHMI_LOOK : SHMI_AGAIN;
    }
    return SHMI_AGAIN;
}

/* Whether it is this process's turn to look after an object: ten times a second. */
SHMI_FN int shmi_check_due(int64_t *looked)
{
    int64_t now = shmi_now(), last = __atomic_load_n(looked, __ATOMIC_RELAXED);
    return (last == 0 || now - last >= SHMI_CHECK_EVERY * 9 / 10) &&
           __atomic_compare_exchange_n(looked, &last, now, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* ---- Lines: where the waiters of an object are found ---- */

typedef struct shmi_wait_list {
    uint32_t *word; /* what waiters sleep on */
    uint64_t *poller;  /* head of the list of poller nodes */
} shmi_wait_list;

/* Wakes one waiter, of the kernel's queue and of the pollers by turns. The word has been
 * changed. */
SHMI_FN void shmi_deliver_one(shmsync_arena *a, const shmi_wait_list *l, uint32_t turn)
{
    int pollers = shmi_ld64(l->poller) != 0;
    if ((turn & 1) == 0) {
        if (shmi_wake(l->word, 1) == 0 && pollers)
            shmi_ready_one(a, l->poller, turn >> 1);
    } else if (!pollers || !shmi_ready_one(a, l->poller, turn >> 1)) {
        shmi_wake(l->word, 1);
    }
}
SHMI_FN void shmi_deliver_all(shmsync_arena *a, const shmi_wait_list *l)
{
    shmi_wake(l->word, SHMI_ALL);
    if (shmi_ld64(l->poller) != 0)
        shmi_ready_all(a, l->poller);
}

/* A line whose word is a wake word: bit 0 announced, bits 1..31 a sequence. */

SHMI_FN uint32_t shmi_bumped(uint32_t w) { return (w + 2) & ~1u; }
/* Makes sure that the next release wakes, and gives the word to sleep on. */
SHMI_FN uint32_t shmi_wake_word_announce(const shmi_wait_list *l)
{
    for (;;) {
        uint32_t w = shmi_ld32(l->word);
        if ((w & 1) != 0)
            return w;
        if (shmi_cas32(l->word, w, w | 1))
            return w | 1;
    }
}
SHMI_FN int shmi_wake_word_announced(const shmi_wait_list *l) { return (shmi_ld32(l->word) & 1) != 0; }
/* Wakes one waiter if one has announced itself. Called after the release. */
SHMI_FN void shmi_wake_word_release(shmsync_arena *a, const shmi_wait_list *l)
{
    uint32_t w = shmi_ld32(l->word);
    while ((w & 1) != 0) {
        SHMSYNC_CRASHPOINT("park.wake.before_bump");
        if (shmi_cas32(l->word, w, shmi_bumped(w))) {
            SHMSYNC_CRASHPOINT("park.wake.bumped");
            shmi_deliver_one(a, l, w >> 1);
            SHMSYNC_CRASHPOINT("park.wake.done");
            return;
        }
        w = shmi_ld32(l->word);
    }
}
SHMI_FN uint32_t shmi_wake_word_bump(const shmi_wait_list *l)
{
    for (;;) {
        uint32_t w = shmi_ld32(l->word);
        if (shmi_cas32(l->word, w, shmi_bumped(w)))
            return w;
    }
}
/* Changes the word so that a waiter that is about to sleep looks again. */
SHMI_FN void shmi_wake_word_touch(const shmi_wait_list *l) { shmi_add32(l->word, 2); }
/* Bumps and wakes one, or all, announced or not: for wakes that may have been lost. */
SHMI_FN void shmi_wake_word_wake_one(shmsync_arena *a, const shmi_wait_list *l) { shmi_deliver_one(a, l, shmi_wake_word_bump(l) >> 1); }
SHMI_FN void shmi_wake_word_wake_all(shmsync_arena *a, const shmi_wait_list *l)
{
    shmi_wake_word_bump(l);
    shmi_deliver_all(a, l);
}

/* ---- Spinning: the policy of the Go side, on the same words of the object ---- */

enum {
    SHMI_spinLeast = 600,
    SHMI_spinSome = 10000,
    SHMI_spinMost = 40000,
    SHMI_spinGiveUp = 3,
    SHMI_payUnit = 64,
    SHMI_payField = 1023,
    SHMI_payPart = 32,
    SHMI_spinChunk = 8,
    SHMI_probeEvery = 16,
    SHMI_yieldMost = 20000,
    SHMI_yieldPause = 30
};

/* The words of an object that steer its waiters' spinning; all are hints. */
typedef struct shmi_tuning {
    uint32_t *budget;   /* 0: adaptive; else ns + 1 */
    uint32_t *pays;     /* what spinning has paid lately: see shmi_make_pay */
    uint32_t *last_cpu; /* a CPU note */
    uint32_t slot;      /* of this participant */
} shmi_tuning;

static int64_t shmi_no_yield_until;
static int64_t shmi_pause_ns_; /* of a pause, in 1/1024 ns */
static int shmi_one_cpu_;      /* 0 not known, 1 no, 2 yes */

SHMI_FN int64_t shmi_pause_ns(void)
{
    int64_t best = __atomic_load_n(&shmi_pause_ns_, __ATOMIC_RELAXED), start, took;
    int i;
    if (best != 0)
        return best;
    best = INT64_C(1) << 40;
    for (i = 0; i < 5; i++) {
        start = shmi_now();
        shmi_pause(200);
        took = shmi_now() - start;
        if (took < best)
            best = took;
    }
    best = best * 1024 / 200;
    if (best < 1024)
        best = 1024;
    __atomic_store_n(&shmi_pause_ns_, best, __ATOMIC_RELAXED);
    return best;
}

SHMI_FN int shmi_one_cpu(void)
{
    int known = __atomic_load_n(&shmi_one_cpu_, __ATOMIC_RELAXED);
    if (known == 0) {
        char b[64];
        int before = errno, fd;
        ssize_t n;
        shmi_hold_cancel();
        fd = open("/sys/devices/system/cpu/online", O_RDONLY | O_CLOEXEC);
        n = fd >= 0 ? read(fd, b, sizeof b) : -1;
        if (fd >= 0)
            close(fd);
        shmi_let_cancel();
        if (n > 0)
            known = memchr(b, '-', (size_t)n) == NULL && memchr(b, ',', (size_t)n) == NULL ? 2 : 1;
        else
            known = sysconf(_SC_NPROCESSORS_ONLN) == 1 ? 2 : 1;
        errno = before;
        __atomic_store_n(&shmi_one_cpu_, known, __ATOMIC_RELAXED);
    }
    return known == 2;
}

/* The CPU + 1 of the last releaser that is not the participant in slot. */
SHMI_FN uint32_t shmi_note_other(uint32_t note, uint32_t slot)
{
    return (note >> 20 & 2047) == slot ? note >> 10 & 1023 : note & 1023;
}

/* Leaves this CPU's number for the waiters. */
SHMI_FN void shmi_note_cpu(const shmi_tuning *t)
{
    int cpu = sched_getcpu();
    uint32_t old = __atomic_load_n(t->last_cpu, __ATOMIC_RELAXED), before, note;
    if (cpu < 0)
        return;
    before = (old >> 20 & 2047) == t->slot ? old >> 10 & 1023 : old & 1023;
    note = (cpu + 1 > 1023 ? 0 : (uint32_t)cpu + 1) | before << 10 | t->slot << 20;
    if (note != old)
        __atomic_store_n(t->last_cpu, note, __ATOMIC_RELAXED);
}

/* The word of what spinning has paid: bits 0..9 how long the spins that succeeded took, a mean
 * in units of 64 ns; bits 10..19 the share of the spins that failed, a mean in 1/1024; bits
 * 20..31 failures in a row. */
SHMI_FN uint32_t shmi_make_pay(uint32_t took, uint32_t share, uint32_t failures)
{
    return took | share << 10 | (failures & 4095) << 20;
}
/* How long the next spin lasts at most, ns. */
SHMI_FN int64_t shmi_pay_budget(uint32_t p)
{
    uint32_t failures = p >> 20, share = p >> 10 & SHMI_payField;
    int64_t need = 4 * SHMI_payUnit * (int64_t)(p & SHMI_payField) + SHMI_spinLeast; /* of nearly all spins that succeed */
    if (need > SHMI_spinMost)
        need = SHMI_spinMost;
    if (failures >= SHMI_spinGiveUp && failures % SHMI_probeEvery == 0)
        return SHMI_spinMost;
    if (failures < SHMI_spinGiveUp && share < (SHMI_payField + 1) / 64)
        return SHMI_spinMost;
    if (failures < SHMI_spinGiveUp && share < (SHMI_payField + 1) / 8)
        return need > SHMI_spinSome ? need : (int64_t)SHMI_spinSome;
    need = need * (SHMI_payField + 1 - (int64_t)share) / (SHMI_payField + 1) >> (failures / 4 < 32 ? failures / 4 : 32);
    return need > SHMI_spinLeast ? need : (int64_t)SHMI_spinLeast;
}
/* The word after a spin of that many nanoseconds. */
SHMI_FN uint32_t shmi_pay_after(uint32_t p, int64_t spent, int success)
{
    uint32_t took = p & SHMI_payField, share = p >> 10 & SHMI_payField, now;
    if (!success)
        return shmi_make_pay(took, share + (SHMI_payField - share) / SHMI_payPart, (p >> 20) + 1);
    /* Means that only take whole steps stop short of their goal, so the steps are rounded up. */
    now = spent / SHMI_payUnit < SHMI_payField ? (uint32_t)(spent / SHMI_payUnit) : (uint32_t)SHMI_payField;
    if (now > took)
        took += (now - took + 7) / 8;
    else
        took -= (took - now + 7) / 8;
    return shmi_make_pay(took, share - (share + SHMI_payPart - 1) / SHMI_payPart, 0);
}
/* The word after a yield, which tells nothing about spins but that the other party does not come. */
SHMI_FN uint32_t shmi_pay_after_yield(uint32_t p, int success)
{
    return shmi_make_pay(p & SHMI_payField, p >> 10 & SHMI_payField, success ? 0 : (p >> 20) + 1);
}
SHMI_FN void shmi_learn(const shmi_tuning *t, uint32_t p, uint32_t next)
{
    if (next != p && __atomic_load_n(t->budget, __ATOMIC_RELAXED) == 0)
        __atomic_store_n(t->pays, next, __ATOMIC_RELAXED);
}

/* Calls done until it is not 0, for as long as that is likely to be quicker than to
 * sleep, and says whether it was. */
SHMI_FN int shmi_spin(const shmi_tuning *t, int (*done)(void *), void *arg)
{
    uint32_t b = __atomic_load_n(t->budget, __ATOMIC_RELAXED), p, chunk = 2;
    int64_t limit, pause_, spent = 0;
    int cpu;
    if (b == 1 || shmi_one_cpu())
        return 0;
    p = __atomic_load_n(t->pays, __ATOMIC_RELAXED);
    cpu = sched_getcpu();
    if (cpu >= 0 && shmi_note_other(__atomic_load_n(t->last_cpu, __ATOMIC_RELAXED), t->slot) == (uint32_t)cpu + 1) {
        /* The other party is on this very CPU: let it run, once. */
        int64_t took;
        int ok;
        if (p >> 20 > 4 && (p >> 20) % SHMI_probeEvery != 0) {
            shmi_learn(t, p, shmi_pay_after_yield(p, 0));
            return 0;
        }
        if (shmi_now() < __atomic_load_n(&shmi_no_yield_until, __ATOMIC_RELAXED))
            return 0;
        took = shmi_yield();
        if (took > SHMI_yieldMost)
            __atomic_store_n(&shmi_no_yield_until, shmi_now() + SHMI_yieldPause * took, __ATOMIC_RELAXED);
        ok = done(arg);
        shmi_learn(t, p, shmi_pay_after_yield(p, ok));
        return ok;
    }
    if (b != 0)
        limit = (int64_t)b - 1 < 1000000 ? (int64_t)b - 1 : 1000000;
    else
        limit = shmi_pay_budget(p);
    pause_ = shmi_pause_ns();
    while (spent < limit) {
        shmi_pause(chunk);
        spent += (int64_t)chunk * pause_ / 1024;
        if (done(arg)) {
            shmi_learn(t, p, shmi_pay_after(p, spent, 1));
            return 1;
        }
        if (spent > 1000)
            chunk = SHMI_spinChunk;
    }
    shmi_learn(t, p, shmi_pay_after(p, spent, 0));
    return 0;
}

/* A spin budget as an object stores it. */
SHMI_FN uint32_t shmi_spin_field(int64_t ns)
{
    if (ns == 0)
        return 0;
    if (ns < 0)
        return 1;
    return (uint32_t)(ns < 1000000 ? ns : 1000000) + 1;
}

/* ---- Wait nodes: where one thread waits for something of its own, in a queue of nodes ---- */

/* Gives a wait node for one wait, with its node idle. */
SHMI_FN int shmi_wait_node_take(shmsync_arena *a, shmi_wait_node **out)
{
    shmi_wait_node *s;
    int err;
    pthread_mutex_lock(&a->wait_nodes_lock);
    s = a->wait_nodes;
    if (s != NULL)
        a->wait_nodes = s->next;
    pthread_mutex_unlock(&a->wait_nodes_lock);
    if (s == NULL) {
        s = (shmi_wait_node *)calloc(1, sizeof *s);
        if (s == NULL)
            return shmi_fail(ENOMEM, "wait node", a->label, "%s", "");
        err = shmi_claim_node(a, &s->off, &s->node);
        if (err != 0) {
            free(s);
            return err;
        }
    }
    s->since = 0;
    *out = s;
    return 0;
}
/* shmi_wait_node_take if that takes no new node and no waiting, or NULL. The caller may hold a
 * queue lock: a thread that has wait_nodes_lock may be interrupted by a handler that waits for it. */
SHMI_FN shmi_wait_node *shmi_wait_node_cached(shmsync_arena *a)
{
    shmi_wait_node *s;
    if (pthread_mutex_trylock(&a->wait_nodes_lock) != 0)
        return NULL;
    s = a->wait_nodes;
    if (s != NULL)
        a->wait_nodes = s->next;
    pthread_mutex_unlock(&a->wait_nodes_lock);
    if (s != NULL)
        s->since = 0;
    return s;
}
/* Gives back a wait node that was taken and not queued, or whose node is idle again. */
SHMI_FN void shmi_wait_node_return(shmsync_arena *a, shmi_wait_node *s)
{
    pthread_mutex_lock(&a->wait_nodes_lock);
    s->next = a->wait_nodes;
    a->wait_nodes = s;
    pthread_mutex_unlock(&a->wait_nodes_lock);
}

SHMI_FN int shmi_wait_node_resolved(const shmi_wait_node *s) { return shmi_node_state(shmi_node_load(s->node)) == SHMI_NodeResolved; }
SHMI_FN int shmi_wait_node_resolved_arg(void *s) { return shmi_wait_node_resolved((const shmi_wait_node *)s); }

/* Sleeps once on the node, which is on a queue: SHMI_AGAIN when the wait is resolved or
 * may be. The caller is within shmi_enter, and calls again while the wait node is not
 * resolved; on SHMI_LATE and SHMI_CLOSED it abandons the wait node, or not. */
SHMI_FN int shmi_wait_node_sleep(shmsync_arena *a, shmi_wait_node *s, shmi_off object, int64_t deadline)
{
    uint32_t w = shmi_node_load(s->node);
    shmi_sleep_spec sleep_spec;
    if (shmi_node_state(w) == SHMI_NodeQueued && shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeAsleep)))
        w = shmi_node_with(w, SHMI_NodeAsleep);
    SHMSYNC_CRASHPOINT("park.waitnode.asleep");
    if (shmi_node_state(w) != SHMI_NodeAsleep)
        return SHMI_AGAIN;
    memset(&sleep_spec, 0, sizeof sleep_spec);
    sleep_spec.word = &s->node->word;
    sleep_spec.val = w;
    sleep_spec.object = object;
    sleep_spec.wanted = shmi_ld64(&s->node->wanted);
    sleep_spec.deadline = deadline;
    sleep_spec.since = &s->since;
    return shmi_sleep(a, &sleep_spec);
}

/* Ends a wait that was not resolved; 0 if it was. If not 0 the wait node is gone, and the
 * node goes back with the participant that takes it off its queue. */
SHMI_FN int shmi_wait_node_abandon(shmsync_arena *a, shmi_wait_node *s)
{
    (void)a;
    for (;;) {
        uint32_t w = shmi_node_load(s->node);
        if (shmi_node_state(w) == SHMI_NodeResolved)
            return 0;
        if (shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeLeft)))
            break;
    }
    SHMSYNC_CRASHPOINT("park.waitnode.given_up");
    free(s);
    return 1;
}

/* Gives the wait node back after its wait was resolved. */
SHMI_FN void shmi_wait_node_leave(shmsync_arena *a, shmi_wait_node *s)
{
    uint32_t w;
    int i;
    /* Mostly it is off its queue: its granter took it off a few instructions later. */
    for (i = 0; i < 200 && shmi_ld64(&s->node->stamp) != 0; i++)
        shmi_pause(2);
    w = shmi_node_load(s->node);
    if (shmi_ld64(&s->node->stamp) == 0) {
        shmi_node_swap(s->node, w, shmi_node_kept(w));
        shmi_wait_node_return(a, s);
        return;
    }
    /* Its granter is stopped or dead. The node goes back with the participant that takes it off
     * the queue, and if that has just happened, now. */
    if (shmi_node_swap(s->node, w, shmi_node_with(w, SHMI_NodeSpent)) && shmi_ld64(&s->node->stamp) == 0)
        shmi_reclaim_node(a, s->off, w);
    free(s);
}

/* ---- Undo logs: the records of a transaction, docs/abi.md ----
 *
 * The stores of a killed thread are a prefix of its instructions, so a log needs no fence of the CPU. It needs a
 * compiler that stores the state neither earlier nor later than the program says, and that does not leave a store out:
 * each store of the state stands between two barriers of the compiler. */

/* The state of a log whose lock needs a repair: nothing is undone any more. */
#define SHMI_LOG_LOST ((uint64_t)SHMI_logLost << 61)
#define SHMI_LOG_PHASE(s) ((uint32_t)((s) >> 61))
#define SHMI_LOG_TAIL(s) ((s) & UINT32_MAX)
#define SHMI_LOG_ID(s) ((shmi_participant_id)((s) >> 32 & SHMI_NAME_MASK))

/* What a record ends with. */
typedef struct shmi_log_footer {
    uint64_t off;
    uint32_t length, kind;
} shmi_log_footer;
SHMI_ASSERT(sizeof(shmi_log_footer) == SHMI_recordFooter, "shmi_log_footer");

/* The log of a lock. */
typedef struct shmi_log {
    shmi_log_head *head;    /* NULL: it is not there */
    unsigned char *records;
    uint64_t room;          /* bytes of records */
    shmi_off begin, end;    /* the lock: no record is about it */
} shmi_log;

SHMI_FN uint64_t shmi_log_size(uint64_t asked) { return asked == 0 ? (uint64_t)SHMI_logDefault : (asked + 63) & ~UINT64_C(63); }
/* The policy of a lock in its body. */
SHMI_FN uint32_t shmi_policy_field(int policy)
{
    return policy == SHMSYNC_POLICY_ROLLBACK ? SHMI_POLICY_ROLLBACK : policy == SHMSYNC_POLICY_RELEASE ? SHMI_POLICY_RELEASE : SHMI_POLICY_REPORT;
}
SHMI_FN const char *shmi_policy_text(uint32_t field)
{
    static const char *const text[] = {"report", "release", "rollback"};
    return field < 3 ? text[field] : "unknown";
}
/* Why a kind of lock cannot have a policy, or 0. */
SHMI_FN int shmi_no_rollback(const char *op, const char *name, int policy, const char *kind)
{
    if (policy == SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(ENOTSUP, op, name, "%s has no undo log; a mutex has one", kind);
    if (policy < SHMSYNC_POLICY_DEFAULT || policy > SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "there is no policy %d", policy);
    return 0;
}
/* Whether a lock with an undo log can have these options. */
SHMI_FN int shmi_check_policy(const char *op, const char *name, int policy, uint64_t log_bytes)
{
    if (policy < 0 || policy > SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "there is no policy %d", policy);
    if (log_bytes != 0 && policy != SHMSYNC_POLICY_ROLLBACK)
        return shmi_fail(EINVAL, op, name, "log_bytes without SHMSYNC_POLICY_ROLLBACK: there is no undo log");
    if (log_bytes > SHMI_logMost)
        return shmi_fail(EINVAL, op, name, "an undo log of %llu bytes; 1 MiB is the most", (unsigned long long)log_bytes);
    return 0;
}
/* Stores the state of a log; to 0, or to committed, it is the commit. */
SHMI_FN void shmi_log_store(shmi_log_head *head, uint64_t s)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(&head->state, s, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
SHMI_FN uint64_t shmi_make_log(uint32_t phase, shmi_participant_id n, uint64_t tail) { return (uint64_t)phase << 61 | (uint64_t)n << 32 | tail; }
SHMI_FN uint64_t shmi_log_padded(uint64_t n) { return (n + 7) & ~UINT64_C(7); }

/* The log of the lock o, whose own words have that many bytes. Its head is NULL if no lock has such a body. */
SHMI_FN void shmi_log_of(shmsync_arena *a, const shmi_object *o, uint64_t words, shmi_log *l)
{
    shmi_log_head *head;
    uint64_t room = o->size - words - SHMI_logHead;
    memset(l, 0, sizeof *l);
    if (o->size < words + SHMI_logHead + SHMI_logLeast || room > SHMI_logMost || room % SHMI_logLeast != 0)
        return;
    head = (shmi_log_head *)shmi_ptr(a, o->body + words, SHMI_logHead, 8);
    if (shmi_ld32(&head->size) != room)
        return;
    l->head = head;
    l->room = room;
    l->records = shmi_bytes(a, o->body + words + SHMI_logHead, room);
    l->begin = o->off;
    l->end = o->body + o->size;
}

/* Whether state s is one that a correct program stores. */
SHMI_FN int shmi_log_valid(const shmi_log *l, uint64_t s)
{
    uint64_t tail = SHMI_LOG_TAIL(s);
    if (s == 0)
        return 1;
    return SHMI_LOG_PHASE(s) >= SHMI_logActive && SHMI_LOG_PHASE(s) <= SHMI_logCommitted && shmi_id_valid(SHMI_LOG_ID(s)) &&
           tail != 0 && tail % 8 == 0 && tail <= l->room;
}

/* Whether the log has a transaction of dead. */
SHMI_FN int shmi_log_names(shmsync_arena *a, const shmi_log *l, shmi_participant_id dead)
{
    uint64_t s = l->head != NULL ? shmi_ld64(&l->head->state) : 0;
    return s != 0 && shmi_log_valid(l, s) && shmi_reaps(a, dead, SHMI_LOG_ID(s));
}

/* Whether a transaction may change the n bytes at off: data of the arena, and not the lock itself. */
SHMI_FN int shmi_log_covers(const shmsync_arena *a, const shmi_log *l, shmi_off off, uint64_t n)
{
    uint64_t end = a->geo.heap_off + a->geo.chunk_count * SHMI_chunkSize;
    return off >= a->geo.heap_off && off <= end && n <= end - off && (off + n <= l->begin || off >= l->end);
}
/* The same for what a peer may have written: the bytes have memory behind them, too. */
SHMI_FN int shmi_log_backed(shmsync_arena *a, shmi_off off, uint64_t n)
{
    uint64_t i = (off - a->geo.heap_off) / SHMI_chunkSize, last = (off - a->geo.heap_off + n - 1) / SHMI_chunkSize;
    for (; i <= last; i++)
        if (!shmi_chunk_reserved(shmi_load_chunk(a, i)))
            return 0;
    return 1;
}

/* The record that ends at *tail: 0, with *tail at its beginning, or EPROTO if it is impossible. */
SHMI_FN int shmi_log_record(shmsync_arena *a, const shmi_log *l, uint64_t *tail, shmi_log_footer *f)
{
    uint64_t rest = *tail, padded;
    if (rest < sizeof *f)
        return EPROTO;
    rest -= sizeof *f;
    memcpy(f, l->records + rest, sizeof *f);
    __atomic_signal_fence(__ATOMIC_SEQ_CST); /* the copy that was checked is used: the compiler must not read the record again */
    if (f->kind != SHMI_recordBytes) {
        *tail = rest;
        return f->kind <= SHMI_recordGiven && f->length == 0 ? 0 : EPROTO;
    }
    padded = shmi_log_padded(f->length);
    if (f->length == 0 || padded > rest || !shmi_log_covers(a, l, f->off, f->length) || !shmi_log_backed(a, f->off, f->length))
        return EPROTO;
    *tail = rest - padded;
    return 0;
}

/* Looks at all records: 0, with how many are about blocks, or EPROTO. */
SHMI_FN int shmi_log_check(shmsync_arena *a, const shmi_log *l, uint64_t tail, uint64_t *blocks)
{
    shmi_log_footer f;
    *blocks = 0;
    while (tail != 0) {
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        *blocks += f.kind != SHMI_recordBytes;
    }
    return 0;
}

/* Copies back what was saved, the last record first. EPROTO if a peer writes into the log meanwhile. */
SHMI_FN int shmi_log_restore(shmsync_arena *a, const shmi_log *l, uint64_t tail)
{
    shmi_log_footer f;
    while (tail != 0) {
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        if (f.kind != SHMI_recordBytes)
            continue;
        memcpy(shmi_bytes(a, f.off, f.length), l->records + tail, f.length);
        SHMSYNC_CRASHPOINT("tx.undo.range");
    }
    return 0;
}

/* Ends what a transaction of n did with blocks: if it is committed those that it allocated stay, and those that it
 * freed go; else the other way round. Those that go are freeing by this process, and their records say given: they
 * become free when the log is idle, since a block in use again could be logged by n in another log. A block that
 * is not logged by n was dealt with before. */
SHMI_FN int shmi_log_settle(shmsync_arena *a, const shmi_log *l, uint64_t tail, shmi_participant_id n, int committed)
{
    uint32_t logged = shmi_make_block(SHMI_blockLogged, n), given = SHMI_recordGiven, kept = committed ? SHMI_recordAlloc : SHMI_recordFree;
    shmi_log_footer f;
    while (tail != 0) {
        uint64_t end = tail;
        shmi_block b;
        int goes;
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return EPROTO;
        if (f.kind == SHMI_recordGiven) {
            /* By an earlier process, which has the block, or its reaper. From here on given says that this process has it:
             * the block may be in use again, and be freed by another thread. */
            memcpy(l->records + end - sizeof f.kind, &kept, sizeof kept);
            continue;
        }
        if (f.kind == SHMI_recordBytes || !shmi_locate(a, f.off, &b))
            continue;
        goes = f.kind == SHMI_recordTemporary || (f.kind == SHMI_recordFree) == committed;
        if (goes)
            shmi_touch(a, b.chunk);
        if (shmi_block_swap(&b, logged, goes ? shmi_make_block(SHMI_blockFreeing, a->self) : (uint32_t)SHMI_blockRaw) && goes)
            memcpy(l->records + end - sizeof f.kind, &given, sizeof given);
        if (committed)
            SHMSYNC_CRASHPOINT("tx.commit.block");
        else
            SHMSYNC_CRASHPOINT("tx.undo.block");
    }
    return 0;
}
/* Makes the blocks free that shmi_log_settle gave away. The log is idle, and the lock is still held. */
SHMI_FN void shmi_log_give(shmsync_arena *a, const shmi_log *l, uint64_t tail)
{
    uint32_t freeing = shmi_make_block(SHMI_blockFreeing, a->self);
    shmi_log_footer f;
    while (tail != 0) {
        shmi_block b;
        if (shmi_log_record(a, l, &tail, &f) != 0)
            return;
        if (f.kind == SHMI_recordGiven && shmi_locate(a, f.off, &b) && shmi_ld32(b.word) == freeing)
            shmi_release(a, &b, freeing);
    }
}

/* Makes the log lost: the caller holds the lock, which is about to become not recoverable or to be repaired. So a death in
 * a repair is not followed by a rollback over what was repaired. */
SHMI_FN void shmi_log_lose(const shmi_log *l)
{
    if (l->head == NULL || shmi_ld64(&l->head->state) == SHMI_LOG_LOST)
        return;
    shmi_log_store(l->head, SHMI_LOG_LOST);
    SHMSYNC_CRASHPOINT("tx.log.lost");
}
/* Makes the log lost if it still has state s. The caller does not hold the lock. */
SHMI_FN void shmi_log_lose_foreign(const shmi_log *l, uint64_t s)
{
    if (__atomic_compare_exchange_n(&l->head->state, &s, SHMI_LOG_LOST, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
        SHMSYNC_CRASHPOINT("tx.log.lost");
}
/* Makes the log lost if its transaction is not that of dead, the holder in owner word o, which was not rolling back: a
 * program has unlocked in a transaction, and others have had the lock since then. It comes before the lock is taken from
 * dead: a death right after would hide whose hold it was.
 *
 * The caller does not hold the lock, and may have been stopped for long since it read o. So it reads the state first,
 * and then the owner word again, while dead is in an act word. If that is as it was, only dead or another reaper of dead
 * can have written the state; see logState in prims/tx_word.go. */
SHMI_FN void shmi_log_disown(shmsync_arena *a, const shmi_log *l, uint32_t *owner, uint32_t o, shmi_participant_id dead)
{
    uint64_t s = l->head != NULL ? shmi_ld64(&l->head->state) : 0;
    shmi_act act;
    if (s == 0 || s == SHMI_LOG_LOST || SHMI_LOG_ID(s) == dead)
        return;
    shmi_begin_act(a, &act, dead);
    if (shmi_ld32(owner) == o && shmi_act_holds(a, &act, dead, 1))
        shmi_log_lose_foreign(l, s);
    shmi_end_act(a, &act);
}

/* Ends the transaction that the log has, as the holder of its lock: n is the process whose transaction it is. EPROTO:
 * the log is impossible. Nothing is changed before all of it has been checked. */
SHMI_FN int shmi_log_end(shmsync_arena *a, const shmi_log *l, uint64_t s)
{
    uint64_t tail = SHMI_LOG_TAIL(s), blocks = 0;
    shmi_participant_id n = SHMI_LOG_ID(s);
    int committed = SHMI_LOG_PHASE(s) == SHMI_logCommitted;
    if (!shmi_log_valid(l, s) || (n != a->self && n != 0 && shmi_current(a, n)) || shmi_log_check(a, l, tail, &blocks) != 0)
        return EPROTO;
    if (s == 0)
        return 0;
    if (SHMI_LOG_PHASE(s) == SHMI_logActive) {
        if (shmi_log_restore(a, l, tail) != 0)
            return EPROTO;
        if (blocks != 0)
            shmi_log_store(l->head, shmi_make_log(SHMI_logUndone, n, tail));
        SHMSYNC_CRASHPOINT("tx.undo.undone");
    }
    if (blocks != 0 && shmi_log_settle(a, l, tail, n, committed) != 0)
        return EPROTO;
    shmi_log_store(l->head, 0);
    if (committed)
        SHMSYNC_CRASHPOINT("tx.commit.idle");
    else
        SHMSYNC_CRASHPOINT("tx.undo.idle");
    if (blocks != 0)
        shmi_log_give(a, l, tail);
    return 0;
}

/* The same for what a process left that is gone. */
SHMI_FN int shmi_log_end_dead(shmsync_arena *a, const shmi_log *l)
{
    uint64_t s;
    int err;
    if (l->head == NULL)
        return EPROTO;
    s = shmi_ld64(&l->head->state);
    err = shmi_log_end(a, l, s);
    if (err == 0 && s != 0 && SHMI_LOG_PHASE(s) != SHMI_logCommitted)
        __atomic_fetch_add(&l->head->rollbacks, 1, __ATOMIC_RELAXED);
    return err;
}

/* Whether the lock o has a body of the right size, and what was asked for: its own words have that many bytes, and its
 * policy is at an offset of them. EPROTO, EINVAL. */
SHMI_FN int shmi_check_lock(shmsync_arena *a, const shmi_object *o, const char *op, uint64_t words, uint64_t policy_at, int policy, uint64_t log_bytes)
{
    uint32_t field = o->size < words ? 0 : shmi_ld32(shmi_u32(a, o->body + policy_at)) & 0xff;
    shmi_log log;
    if (o->size < words || (o->size != words && field != SHMI_POLICY_ROLLBACK))
        return shmi_fail(EPROTO, op, shmi_called(o), "%llu bytes with policy %s", (unsigned long long)o->size, shmi_policy_text(field));
    if (policy != 0 && shmi_policy_field(policy) != field)
        return shmi_fail(EINVAL, op, shmi_called(o), "its policy is %s, asked for %s", shmi_policy_text(field), shmi_policy_text(shmi_policy_field(policy)));
    if (log_bytes != 0 && o->size != words + SHMI_logHead + shmi_log_size(log_bytes))
        return shmi_fail(EINVAL, op, shmi_called(o), "its undo log has %llu bytes, asked for %llu", (unsigned long long)(o->size - words - SHMI_logHead),
                         (unsigned long long)shmi_log_size(log_bytes));
    if (field == SHMI_POLICY_ROLLBACK) {
        shmi_log_of(a, o, words, &log);
        if (log.head == NULL)
            return shmi_fail(EPROTO, op, shmi_called(o), "%llu bytes have no room for its undo log, or the log says otherwise", (unsigned long long)o->size);
    }
    return 0;
}
/* ---- Mutex: docs/design/0002-mutex-protocol.md ---- */

enum { SHMI_kindHeld, SHMI_kindBiased, SHMI_kindReserved, SHMI_kindOwnerDead, SHMI_kindRecovering, SHMI_kindNotRecoverable };
#define SHMI_OWNER_BIASED (1u << 29)
#define SHMI_OWNER_NOT_RECOVERABLE (5u << 29)
#define SHMI_MUTEX_KIND SHMI_KIND('M', 'U', 'T', 'X')
enum { SHMI_mutexVersion = 1, SHMI_biasAfter = 4096, SHMI_biasMost = 1 << 20 };
#define SHMI_STARVE_AFTER 1000000
#define SHMI_HAND_OFF_EVERY 1000000
#define SHMI_UNFENCED_SLEEP 1000000
#define SHMI_HANDED_LOCALLY UINT64_C(1) /* in the word handed: a hand-off inside a process */

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

/* This process's handle on a mutex, or on the mutex that is a part of another object. */
typedef struct shmi_mutex {
    uint32_t *own, *wake; /* the owner word, the wake word */
    shmi_me *me;
    uint32_t bias;        /* what Lock adds to our name: SHMI_OWNER_BIASED or 0. Atomic. */
    uint32_t bias_most;   /* what bias may be: 0 where holds are never biased */
    shmsync_arena *a;
    shmi_mutex_words *w;
    shmi_wait_list line;
    shmi_off object;      /* header of the object that it is, or is a part of */
    const char *called;   /* for messages; lives as long as the arena has the object open */
    int release;          /* policy PolicyRelease */
    int rollback;         /* policy PolicyRollback */
    shmi_log log;         /* of that */
    int queueLock;            /* a part of another object, which only this header locks */
    int internal;         /* it protects words: it passes on when its holder is dead, not only when that is gone */
    int (*repair)(void *);
    void *repair_arg;
    uint32_t quiet;       /* unlocks that found no waiter; written by the holder of the mutex, atomic */
    uint32_t need;        /* how many it takes to turn the bias on. Atomic. */
    uint32_t reserved;    /* owner word that the last check found reserved. Atomic. */
    int64_t looked;
    void (*also_check)(void *); /* called by periodic checks, for an object that has it as a part */
    void *also_check_arg;
    shmi_object o; /* of a mutex of its own */
} shmi_mutex;

/* Makes a handle on the mutex words w, in the body of an object; internal says that they
 * are a part of another one. */
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
    if (shmi_have.membarrier)
        m->bias_most = SHMI_OWNER_BIASED;
    if (__atomic_load_n(&a->fenced, __ATOMIC_ACQUIRE))
        m->bias = m->bias_most; /* else when this process is a target of fences */
}

SHMI_COLD int shmi_mutex_lock_slow(shmi_mutex *m, int64_t deadline);
SHMI_COLD int shmi_mutex_trylock_slow(shmi_mutex *m);
SHMI_COLD int shmi_mutex_unlock_slow(shmi_mutex *m, uint32_t o);
SHMI_COLD void shmi_mutex_lose_bias(shmi_mutex *m);
SHMI_COLD void shmi_mutex_wake_after(shmi_mutex *m);
/* Takes an owner-dead mutex by the repair of the handle: 1 took, 0 the word changed,
 * or an errno in *err. */
SHMI_FN int shmi_mutex_inherit(shmi_mutex *m, uint32_t o, int *err);
SHMI_FN void shmi_mutex_check(shmi_mutex *m);
/* The hooks for the part of an object that a mutex is. */
SHMI_FN void shmi_mutex_repair_words(shmsync_arena *a, shmi_mutex_words *w, shmi_participant_id dead, int internal, const shmi_log *log);
SHMI_FN void shmi_mutex_wake_words(shmsync_arena *a, shmi_mutex_words *w, int owed);

/* Takes the mutex if that takes one instruction. */
SHMI_FN int shmi_mutex_at_once(shmi_mutex *m)
{
    uint32_t name = __atomic_load_n(&m->me->name, __ATOMIC_RELAXED);
    return SHMI_LIKELY(name != 0) && shmi_cas32(m->own, 0, name | __atomic_load_n(&m->bias, __ATOMIC_RELAXED));
}
/* 0 or an errno; deadline 0: none. As a queue lock the repair of the handle makes
 * EOWNERDEAD rare. */
SHMI_FN int shmi_mutex_lock(shmi_mutex *m, int64_t deadline)
{
    return SHMI_LIKELY(shmi_mutex_at_once(m)) ? 0 : shmi_mutex_lock_slow(m, deadline);
}
SHMI_FN int shmi_mutex_trylock(shmi_mutex *m) { return SHMI_LIKELY(shmi_mutex_at_once(m)) ? 0 : shmi_mutex_trylock_slow(m); }
SHMI_FN int shmi_mutex_unlock_at_once(shmi_mutex *m, uint32_t o)
{
    uint32_t name = __atomic_load_n(&m->me->name, __ATOMIC_RELAXED);
    if (SHMI_LIKELY(o == (name | SHMI_OWNER_BIASED) && name != 0)) {
        /* A release store that the load of the wake word may pass: a waiter makes up
         * for the missing fence with one of its own. */
        __atomic_store_n(m->own, 0, __ATOMIC_RELEASE);
        __atomic_signal_fence(__ATOMIC_SEQ_CST);
        if (SHMI_UNLIKELY((__atomic_load_n(m->wake, __ATOMIC_SEQ_CST) & 1) != 0))
            shmi_mutex_lose_bias(m);
        return 1;
    }
    return 0;
}
SHMI_FN int shmi_mutex_unlock(shmi_mutex *m)
{
    uint32_t o = __atomic_load_n(m->own, __ATOMIC_RELAXED); /* while we hold it nobody else writes it */
    return SHMI_LIKELY(shmi_mutex_unlock_at_once(m, o)) ? 0 : shmi_mutex_unlock_slow(m, o);
}

SHMI_FN int shmi_mutex_fail(shmi_mutex *m, int err, const char *op, shmi_participant_id who)
{
    return shmi_fail_who(m->a, err, op, m->called, who);
}
SHMI_FN shmi_participant_id shmi_mutex_died(shmi_mutex *m) { return shmi_ld32(&m->w->died) & SHMI_NAME_MASK; }

/* What an owner word becomes whose name was found dead. A hold that is released stays the
 * dead one's until that is gone. */
SHMI_FN uint32_t shmi_owner_died(uint32_t o, int release, int gone)
{
    if (shmi_owner_kind(o) == SHMI_kindReserved)
        return 0;
    if (!shmi_owner_held(o))
        return o;
    if (release && shmi_owner_kind(o) != SHMI_kindRecovering)
        return gone ? 0 : o;
    return shmi_make_owner(SHMI_kindOwnerDead, shmi_owner_name(o));
}

SHMI_FN shmi_wait_list shmi_mutex_wait_list(shmi_mutex_words *w)
{
    shmi_wait_list l;
    l.word = &w->wake;
    l.poller = &w->poller;
    return l;
}

/* Ends what the dead holder of owner word o had begun, and makes the mutex free; 0: the holder is not gone. The
 * mutex is not recoverable if the log, which a peer may have overwritten, is impossible. */
SHMI_FN int shmi_mutex_roll_back(shmsync_arena *a, shmi_mutex_words *w, uint32_t o, const shmi_log *log)
{
    shmi_participant_id dead = shmi_owner_name(o);
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, a->self);
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (!shmi_gone(a, dead))
        return 0; /* a system call of it may still write what the log would restore */
    if (shmi_owner_kind(o) != SHMI_kindRecovering)
        shmi_log_disown(a, log, &w->owner, o, dead);
    if (!shmi_take_from32(a, dead, &w->owner, o, recovering, 1))
        return 1;
    SHMSYNC_CRASHPOINT("tx.rollback.taken");
    if (shmi_log_end_dead(a, log) != 0) {
        shmi_st32(&w->died, dead);
        shmi_log_lose(log);
        shmi_cas32(&w->owner, recovering, SHMI_OWNER_NOT_RECOVERABLE);
        shmi_wake_word_wake_all(a, &l);
        return 1;
    }
    shmi_cas32(&w->owner, recovering, 0);
    SHMSYNC_CRASHPOINT("tx.rollback.released");
    shmi_wake_word_wake_one(a, &l);
    return 1;
}

/* Deals with owner word o, whose name was found dead; 0: it stays as it is until that is
 * gone, which never is so for an internal mutex. */
SHMI_FN int shmi_mark_owner_dead(shmsync_arena *a, shmi_mutex_words *w, uint32_t o, int internal, const shmi_log *log)
{
    uint32_t policy = __atomic_load_n(&w->policy, __ATOMIC_RELAXED) & 0xff, next;
    int release = policy == SHMI_POLICY_RELEASE;
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (log != NULL && policy == SHMI_POLICY_ROLLBACK && shmi_owner_held(o))
        return shmi_mutex_roll_back(a, w, o, log);
    next = shmi_owner_died(o, release, internal || (release && shmi_gone(a, shmi_owner_name(o))));
    if (next == o)
        return 0;
    if (!shmi_take_from32(a, shmi_owner_name(o), &w->owner, o, next, !internal && next == 0 && shmi_owner_held(o)))
        return 1;
    SHMSYNC_CRASHPOINT("mutex.owner_dead.marked");
    if (shmi_owner_kind(next) == SHMI_kindOwnerDead) {
        shmi_st32(&w->died, shmi_owner_name(o));
        shmi_wake_word_wake_all(a, &l);
    } else {
        shmi_wake_word_wake_one(a, &l);
    }
    return 1;
}

SHMI_FN void shmi_mutex_repair_words(shmsync_arena *a, shmi_mutex_words *w, shmi_participant_id dead, int internal, const shmi_log *log)
{
    uint32_t s = shmi_ld32(&w->starving), tries;
    if (shmi_reaps(a, dead, s & SHMI_NAME_MASK))
        shmi_cas32(&w->starving, s, 0);
    for (tries = 0; tries < 64; tries++) { /* a peer may write it again and again */
        uint32_t o = shmi_ld32(&w->owner);
        if (!shmi_reaps(a, dead, shmi_owner_name(o)) || (!shmi_owner_held(o) && shmi_owner_kind(o) != SHMI_kindReserved))
            return;
        if (!shmi_mark_owner_dead(a, w, o, internal, log))
            return;
    }
}

SHMI_FN void shmi_mutex_wake_words(shmsync_arena *a, shmi_mutex_words *w, int owed)
{
    uint32_t o = shmi_ld32(&w->owner);
    shmi_wait_list l = shmi_mutex_wait_list(w);
    if (shmi_owner_kind(o) == SHMI_kindReserved) {
        /* The dead may have made the reservation for a waiter that had given up. It is no
         * hold, so it can always be taken back. */
        shmi_cas32(&w->owner, o, 0);
        if (owed < SHMI_OWED_ONE)
            owed = SHMI_OWED_ONE;
    }
    if (owed == SHMI_OWED_ALL)
        shmi_wake_word_wake_all(a, &l);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&l))
        shmi_wake_word_wake_one(a, &l);
}

SHMI_FN void shmi_mutex_kind_repair(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    shmi_log log;
    if (w == NULL)
        return;
    shmi_log_of(a, o, sizeof *w, &log);
    if (o->kind == SHMI_MUTEX_KIND && (shmi_ld32(&w->policy) & 0xff) == SHMI_POLICY_ROLLBACK && log.head == NULL)
        return; /* no participant can open it */
    shmi_mutex_repair_words(a, w, dead, 0, o->kind == SHMI_MUTEX_KIND ? &log : NULL);
}
SHMI_FN int shmi_mutex_kind_unfinished(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    shmi_log log;
    if (w == NULL || (shmi_ld32(&w->policy) & 0xff) != SHMI_POLICY_ROLLBACK || !shmi_owner_held(shmi_ld32(&w->owner)))
        return 0;
    shmi_log_of(a, o, sizeof *w, &log);
    return shmi_log_names(a, &log, dead);
}
SHMI_FN void shmi_mutex_kind_wake(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_mutex_words *w = (shmi_mutex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    if (w != NULL)
        shmi_mutex_wake_words(a, w, owed);
}

SHMI_FN void shmi_mutex_note(shmi_mutex *m)
{
    shmi_tuning t;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    shmi_note_cpu(&t);
}

/* The undo log of a mutex, or NULL. */
SHMI_FN const shmi_log *shmi_mutex_log(const shmi_mutex *m) { return m->rollback ? &m->log : NULL; }

/* One blocked call. */
typedef struct shmi_mutex_wait {
    shmi_mutex *m;
    int64_t deadline;
    int64_t since; /* of the first sleep */
    int64_t ask;   /* as of shmi_next_ask */
    int slept, starving;
} shmi_mutex_wait;

enum { SHMI_STEP_STAY, SHMI_STEP_TOOK, SHMI_STEP_CHANGED };

/* Whether the last reservation is so old that anybody may have the lock: the process that
 * it was for may be stopped. */
SHMI_FN int shmi_mutex_expired(shmi_mutex *m)
{
    const int64_t most = 100000000; /* ns */
    int64_t ago = shmi_now() - (int64_t)(shmi_ld64(&m->w->handed) & ~SHMI_HANDED_LOCALLY);
    return ago < 0 || ago > most;
}

/* Moves on from owner word o if that takes no waiting. A waiter that has not slept leaves a
 * reservation of this process alone. *err: it will not become free by itself. */
SHMI_FN int shmi_mutex_step(shmi_mutex *m, uint32_t o, int slept, int *err)
{
    uint32_t kind = shmi_owner_kind(o);
    shmi_participant_id self = shmi_self(m->a), name = shmi_owner_name(o);
    *err = 0;
    if (o == 0)
        return shmi_cas32(m->own, 0, self | __atomic_load_n(&m->bias, __ATOMIC_RELAXED)) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    if (!shmi_owner_valid(o)) {
        *err = EPROTO;
    } else if (o == SHMI_OWNER_NOT_RECOVERABLE) {
        *err = ENOTRECOVERABLE;
    } else if (kind == SHMI_kindOwnerDead) {
        *err = EOWNERDEAD;
    } else if (kind == SHMI_kindReserved && shmi_mutex_expired(m)) {
        return shmi_cas32(m->own, o, self) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    } else if (kind == SHMI_kindReserved && name == self) {
        if (!slept)
            return SHMI_STEP_STAY;
        return shmi_cas32(m->own, o, self) ? SHMI_STEP_TOOK : SHMI_STEP_CHANGED;
    } else if (shmi_dead(m->a, name) && shmi_mark_owner_dead(m->a, m->w, o, m->internal, shmi_mutex_log(m))) {
        return SHMI_STEP_CHANGED;
    }
    return SHMI_STEP_STAY;
}

SHMI_COLD int shmi_mutex_report(shmi_mutex *m, int err, uint32_t o)
{
    switch (err) {
    case EPROTO: return shmi_fail(EPROTO, "mutex.lock", m->called, "owner word %#010x", o);
    case ENOTRECOVERABLE: return shmi_mutex_fail(m, err, "mutex.lock", shmi_mutex_died(m));
    case EOWNERDEAD: return shmi_mutex_fail(m, err, "mutex.lock", shmi_owner_name(o));
    }
    return err;
}

SHMI_COLD int shmi_mutex_trylock_slow(shmi_mutex *m)
{
    int tries, err;
    if (shmi_self(m->a) == 0)
        return shmi_fail(shmi_nameless(m->a), "mutex.trylock", m->called, "%s", "");
    for (tries = 0; tries < 1000; tries++) { /* each turn is another's step; a peer may make them up */
        uint32_t o = shmi_ld32(m->own);
        switch (shmi_mutex_step(m, o, 0, &err)) {
        case SHMI_STEP_TOOK: return 0;
        case SHMI_STEP_STAY: return err != 0 ? shmi_mutex_report(m, err, o) : EBUSY;
        }
    }
    return EBUSY;
}

/* Whether o is a hold that a dead process keeps, since it is not gone. */
SHMI_FN int shmi_mutex_kept(shmi_mutex *m, uint32_t o)
{
    if (!m->rollback && (!m->release || shmi_owner_kind(o) == SHMI_kindRecovering))
        return 0;
    return !m->internal && shmi_owner_valid(o) && shmi_owner_held(o) &&
           !shmi_current(m->a, shmi_owner_name(o)) && !shmi_gone(m->a, shmi_owner_name(o));
}
/* Whether o is a word that a waiter may sleep on: one whose next change wakes it, or
 * which is kept. */
SHMI_FN int shmi_mutex_blocks(shmi_mutex *m, uint32_t o, int slept)
{
    if (!shmi_owner_valid(o))
        return 0;
    if (shmi_owner_held(o))
        return shmi_current(m->a, shmi_owner_name(o)) || shmi_mutex_kept(m, o);
    if (shmi_owner_kind(o) == SHMI_kindReserved)
        return (shmi_owner_name(o) != shmi_self(m->a) || !slept) && shmi_current(m->a, shmi_owner_name(o));
    return 0;
}

/* Ends a wait that got the lock. Others may be asleep, and the wake that got us here
 * took their announcement down. */
SHMI_FN void shmi_mutex_took(shmi_mutex_wait *w)
{
    if (w->slept)
        shmi_wake_word_announce(&w->m->line);
    if (w->starving)
        shmi_cas32(&w->m->w->starving, shmi_self(w->m->a), 0);
}

/* Ends a wait that did not get the lock. A wake may have been meant for it, so it makes
 * sure that another wake comes to the waiters that stay. */
SHMI_FN void shmi_mutex_leave_wait(shmi_mutex_wait *w)
{
    shmi_mutex *m = w->m;
    uint32_t self = m->a->self, reserved = shmi_make_owner(SHMI_kindReserved, self), o;
    int gave_back;
    SHMSYNC_CRASHPOINT("mutex.lock.leaving");
    if (w->starving)
        shmi_cas32(&m->w->starving, self, 0);
    gave_back = shmi_ld32(m->own) == reserved && shmi_cas32(m->own, reserved, 0);
    if (!w->slept && !gave_back)
        return;
    shmi_wake_word_announce(&m->line);
    o = shmi_ld32(m->own);
    if (shmi_owner_kind(o) == SHMI_kindBiased && shmi_owner_valid(o)) {
        shmi_fence();
        o = shmi_ld32(m->own);
    }
    if (!shmi_mutex_blocks(m, o, 1))
        shmi_wake_word_release(m->a, &m->line);
}

typedef struct shmi_mutex_spin {
    uint32_t *own;
    shmi_participant_id self;
    int slept;
} shmi_mutex_spin;
SHMI_FN int shmi_mutex_spun(void *arg)
{
    shmi_mutex_spin *s = (shmi_mutex_spin *)arg;
    uint32_t o = shmi_ld32(s->own);
    return !shmi_owner_held(o) && (shmi_owner_kind(o) != SHMI_kindReserved || (shmi_owner_name(o) == s->self && s->slept));
}
SHMI_FN int shmi_mutex_spin_while_held(shmi_mutex *m, int slept)
{
    shmi_mutex_spin s;
    shmi_tuning t;
    if (shmi_wake_word_announced(&m->line))
        return 0; /* others are queued: they would only be overtaken */
    s.own = m->own;
    s.self = m->a->self;
    s.slept = slept;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return shmi_spin(&t, shmi_mutex_spun, &s);
}

/* Announces, looks again, and sleeps. */
SHMI_FN int shmi_mutex_sleep(shmi_mutex_wait *w)
{
    shmi_mutex *m = w->m;
    shmi_participant_id self = m->a->self;
    int64_t now = shmi_now(), ago;
    shmi_sleep_spec sleep_spec;
    uint32_t v, o;
    unsigned held;
    int r;
    if (w->since == 0)
        w->since = now;
    memset(&sleep_spec, 0, sizeof sleep_spec);
    sleep_spec.looked = &m->looked;
    ago = now - (int64_t)shmi_ld64(&m->w->handed);
    if ((shmi_ld64(&m->w->handed) & SHMI_HANDED_LOCALLY) != 0)
        ago = -1; /* that one cost nothing */
    if (w->slept && now - w->since > SHMI_STARVE_AFTER && (ago < 0 || ago > SHMI_HAND_OFF_EVERY)) {
        /* One at a time: a waiter that finds the place taken stays an ordinary one. It asks
         * before each sleep, since another thread may have used the hand-off up. */
        w->starving = shmi_ld32(&m->w->starving) == self || shmi_cas32(&m->w->starving, 0, self);
        if (w->starving)
            SHMSYNC_CRASHPOINT("mutex.lock.starving");
    }
    if (w->starving) {
        sleep_spec.other = &m->w->handoff;
        sleep_spec.other_is = shmi_ld32(&m->w->handoff);
    }
    v = shmi_wake_word_announce(&m->line);
    SHMSYNC_CRASHPOINT("mutex.lock.announced");
    o = shmi_ld32(m->own);
    if (shmi_owner_kind(o) == SHMI_kindBiased && shmi_owner_valid(o)) {
        /* The holder may release without seeing the announcement; after the fence either
         * it sees it or we see the release. */
        if (shmi_fence() != 0)
            sleep_spec.bounded = SHMI_UNFENCED_SLEEP;
        o = shmi_ld32(m->own);
    }
    if (!shmi_mutex_blocks(m, o, w->slept))
        return SHMI_AGAIN;
    w->slept = 1;
    sleep_spec.word = m->wake;
    sleep_spec.val = v;
    sleep_spec.object = m->object;
    sleep_spec.wanted = v;
    sleep_spec.owner = shmi_owner_name(o);
    if (!shmi_current(m->a, sleep_spec.owner)) { /* nobody tells when it is gone */
        shmi_follow(m->a);
        sleep_spec.bounded = shmi_next_ask(&w->ask);
        sleep_spec.owner = 0;
    }
    sleep_spec.deadline = w->deadline;
    sleep_spec.since = &w->since;
    held = m->queueLock ? shmi_lend_signals() : 0;
    r = shmi_sleep(m->a, &sleep_spec);
    if (m->queueLock)
        shmi_regain_signals(held);
    SHMSYNC_CRASHPOINT("mutex.lock.woken");
    return r;
}

/* Finds what a stopped or dead process kept from the waiters, ten times a second. */
SHMI_FN void shmi_mutex_check(shmi_mutex *m)
{
    uint32_t o;
    if (!shmi_check_due(&m->looked))
        return;
    o = shmi_ld32(m->own);
    if (o == 0) {
        shmi_wake_word_wake_one(m->a, &m->line);
    } else if (!shmi_owner_valid(o) || shmi_owner_kind(o) == SHMI_kindOwnerDead || o == SHMI_OWNER_NOT_RECOVERABLE) {
        shmi_wake_word_wake_all(m->a, &m->line);
    } else if (shmi_dead(m->a, shmi_owner_name(o))) {
        shmi_mark_owner_dead(m->a, m->w, o, m->internal, shmi_mutex_log(m));
    } else if (shmi_owner_kind(o) == SHMI_kindReserved) {
        if (shmi_xchg32(&m->reserved, o) == o && shmi_cas32(m->own, o, 0))
            /* Nobody came for it: its process may be stopped. It is not held. */
            shmi_wake_word_wake_one(m->a, &m->line);
        o = UINT32_MAX;
    } else {
        /* The waiter that was woken last may be stopped before it could announce the others. */
        shmi_wake_word_announce(&m->line);
    }
    if (o != UINT32_MAX)
        shmi_st32(&m->reserved, 0);
    if (m->also_check != NULL)
        m->also_check(m->also_check_arg);
}

/* Runs a repair while m is being recovered by this process; a failure leaves it not
 * recoverable. */
SHMI_FN int shmi_mutex_run_repair(shmi_mutex *m, int (*repair)(void *), void *arg)
{
    shmi_participant_id who = shmi_mutex_died(m);
    int bad = shmi_call_repair(repair, arg);
    SHMSYNC_CRASHPOINT("mutex.recover.repaired");
    if (bad == 0)
        return 0;
    shmi_cas32(m->own, shmi_make_owner(SHMI_kindRecovering, m->a->self), SHMI_OWNER_NOT_RECOVERABLE);
    shmi_wake_word_wake_all(m->a, &m->line);
    return shmi_mutex_fail(m, ENOTRECOVERABLE, "mutex.recover", who);
}

SHMI_FN int shmi_mutex_inherit(shmi_mutex *m, uint32_t o, int *err)
{
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, m->a->self);
    *err = 0;
    if (shmi_owner_kind(o) != SHMI_kindOwnerDead || !shmi_owner_valid(o) ||
        !(m->internal ? shmi_cas32(m->own, o, recovering) : shmi_take_from32(m->a, shmi_owner_name(o), m->own, o, recovering, 1)))
        return 0;
    SHMSYNC_CRASHPOINT("mutex.recover.taken");
    shmi_log_lose(&m->log);
    *err = shmi_mutex_run_repair(m, m->repair, m->repair_arg);
    if (*err != 0)
        return 0;
    shmi_st32(&m->w->died, 0);
    if (m->log.head != NULL)
        shmi_log_store(m->log.head, 0);
    shmi_cas32(m->own, recovering, m->a->self);
    return 1;
}

/* Takes the lock within shmi_enter. */
SHMI_FN int shmi_mutex_acquire(shmi_mutex_wait *w, int may_repair)
{
    shmi_mutex *m = w->m;
    int spun = 0, err, tries;
    for (;;) {
        uint32_t o = shmi_ld32(m->own);
        int step = shmi_mutex_step(m, o, w->slept, &err);
        if (step == SHMI_STEP_TOOK) {
            shmi_mutex_took(w);
            return 0;
        }
        if (err != 0) {
            if (may_repair && m->repair != NULL && err == EOWNERDEAD) {
                err = m->internal ? 0 : shmi_await_gone(m->a, shmi_owner_name(o), "mutex.lock", m->called, w->deadline);
                if (err == 0 && shmi_mutex_inherit(m, o, &err)) {
                    shmi_mutex_took(w);
                    return 0;
                }
                if (err == 0)
                    continue;
            } else {
                shmi_mutex_report(m, err, o);
            }
            shmi_mutex_leave_wait(w);
            return err;
        }
        if (step == SHMI_STEP_CHANGED)
            continue;
        if (!spun) {
            spun = 1;
            if (shmi_current(m->a, shmi_owner_name(o)) && shmi_mutex_spin_while_held(m, w->slept))
                continue;
        }
        switch (shmi_mutex_sleep(w)) {
        case SHMI_AGAIN:
            spun = 0;
            break;
        case SHMI_LOOK:
            shmi_mutex_check(m);
            spun = 0;
            break;
        case SHMI_LATE:
            /* A satisfied condition beats it, and a wake that was ours is not dropped. */
            for (tries = 0; tries < 1000; tries++) {
                step = shmi_mutex_step(m, shmi_ld32(m->own), w->slept, &err);
                if (step == SHMI_STEP_TOOK) {
                    shmi_mutex_took(w);
                    return 0;
                }
                if (step == SHMI_STEP_STAY)
                    break;
            }
            shmi_mutex_leave_wait(w);
            return shmi_brief(ETIMEDOUT, "mutex.lock", m->called);
        case SHMI_CLOSED:
            shmi_mutex_leave_wait(w);
            return shmi_fail(EBADF, "mutex.lock", m->called, "this process closed the arena");
        }
    }
}

SHMI_COLD int shmi_mutex_lock_slow(shmi_mutex *m, int64_t deadline)
{
    shmi_mutex_wait w;
    shmsync_arena *a = m->a;
    int err = shmi_enter(a, "mutex.lock");
    if (err != 0)
        return err;
    memset(&w, 0, sizeof w);
    w.m = m;
    w.deadline = deadline;
    err = shmi_mutex_acquire(&w, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("mutex.lock.acquired");
    shmi_exit(a);
    return err;
}

/* Gives the lock, which is held by us or free as from says, to a waiter that has lost
 * for long and asks for it. 1 done, 0 there is none or the free lock was taken
 * meanwhile, -1 the word is not from. */
SHMI_FN int shmi_mutex_reserve(shmi_mutex *m, uint32_t from)
{
    uint32_t asks = shmi_ld32(&m->w->starving), reserved;
    shmi_participant_id s = asks & SHMI_NAME_MASK;
    if (asks == 0)
        return 0;
    if (!shmi_current(m->a, s)) {
        shmi_cas32(&m->w->starving, asks, 0);
        return 0;
    }
    reserved = shmi_make_owner(SHMI_kindReserved, s);
    /* Before the reservation, which would look old otherwise. */
    shmi_st64(&m->w->handed, (uint64_t)shmi_now() & ~SHMI_HANDED_LOCALLY);
    if (!shmi_cas32(m->own, from, reserved))
        return from == 0 ? 0 : -1;
    SHMSYNC_CRASHPOINT("mutex.unlock.reserved");
    if (!shmi_cas32(&m->w->starving, s, 0)) {
        /* It gave up meanwhile, and perhaps before it could see the reservation. */
        shmi_cas32(m->own, reserved, 0);
        shmi_wake_word_release(m->a, &m->line);
        return 1;
    }
    shmi_mutex_note(m);
    shmi_add32(&m->w->handoff, 1);
    shmi_wake(&m->w->handoff, SHMI_ALL);
    /* It may be awake and about to sleep, or parked behind its poller. */
    shmi_wake_word_touch(&m->line);
    shmi_ready_of(m->a, &m->w->poller, s);
    return 1;
}

/* Wakes a waiter after a release, or hands the lock to one. */
SHMI_COLD void shmi_mutex_wake_after(shmi_mutex *m)
{
    SHMSYNC_CRASHPOINT("mutex.unlock.before_wake");
    if (shmi_mutex_reserve(m, 0) != 0)
        return;
    shmi_mutex_note(m);
    shmi_wake_word_release(m->a, &m->line);
}

/* Ends a biased release that found a waiter: the waiter paid for a fence, so
 * holds do without the bias for a while. */
SHMI_COLD void shmi_mutex_lose_bias(shmi_mutex *m)
{
    uint32_t need = __atomic_load_n(&m->need, __ATOMIC_RELAXED);
    __atomic_store_n(&m->bias, 0, __ATOMIC_RELAXED);
    __atomic_store_n(&m->need, 2 * need < SHMI_biasMost ? 2 * need : (uint32_t)SHMI_biasMost, __ATOMIC_RELAXED);
    shmi_mutex_wake_after(m);
}

SHMI_COLD int shmi_mutex_bad_unlock(shmi_mutex *m, uint32_t o)
{
    if (m->queueLock)
        return 0; /* a peer has overwritten the word, and the next one to come is told */
    if (!shmi_owner_valid(o))
        return shmi_fail(EPROTO, "mutex.unlock", m->called, "owner word %#010x", o);
    return shmi_fail(EPERM, "mutex.unlock", m->called, "this process does not hold it (owner word %#010x)", o);
}

SHMI_COLD int shmi_mutex_unlock_slow(shmi_mutex *m, uint32_t o)
{
    shmi_participant_id self = shmi_self(m->a);
    if (self == 0)
        return shmi_fail(shmi_nameless(m->a), "mutex.unlock", m->called, "%s", "");
    if (o != self)
        return shmi_mutex_bad_unlock(m, o);
    SHMSYNC_CRASHPOINT("mutex.unlock.before_release");
    if (m->bias_most != 0) { /* decides when holds are biased again, while it is held */
        int waited = shmi_wake_word_announced(&m->line);
        uint32_t quiet = waited ? 0 : __atomic_load_n(&m->quiet, __ATOMIC_RELAXED) + 1;
        if (quiet >= __atomic_load_n(&m->need, __ATOMIC_RELAXED) && __atomic_load_n(&m->a->fenced, __ATOMIC_ACQUIRE)) {
            quiet = 0;
            __atomic_store_n(&m->bias, m->bias_most, __ATOMIC_RELAXED);
        }
        __atomic_store_n(&m->quiet, quiet, __ATOMIC_RELAXED);
    }
    switch (shmi_mutex_reserve(m, o)) {
    case 1: return 0;
    case -1: return shmi_mutex_bad_unlock(m, shmi_ld32(m->own));
    }
    if (!shmi_cas32(m->own, o, 0))
        return shmi_mutex_bad_unlock(m, shmi_ld32(m->own));
    if (shmi_wake_word_announced(&m->line))
        shmi_mutex_wake_after(m);
    return 0;
}

/* ---- The mutex of the API ---- */

SHMI_FN void shmi_mutex_init_body(unsigned char *body, const void *arg)
{
    const shmsync_mutex_options *o = (const shmsync_mutex_options *)arg;
    shmi_mutex_words *w = (shmi_mutex_words *)(void *)body;
    if (o == NULL)
        return;
    w->policy = shmi_policy_field(o->policy);
    w->spin = shmi_spin_field(o->spin_ns);
    if (w->policy == SHMI_POLICY_ROLLBACK)
        ((shmi_log_head *)(void *)(body + sizeof *w))->size = (uint32_t)shmi_log_size(o->log_bytes);
}

SHMI_FN void *shmi_mutex_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_mutex_options *opt = (const shmsync_mutex_options *)arg;
    shmi_mutex *m = (shmi_mutex *)shmi_new_thing(sizeof *m);
    if (m == NULL)
        return NULL;
    shmi_mutex_init(m, a, (shmi_mutex_words *)shmi_ptr(a, o->body, sizeof(shmi_mutex_words), 64), o->off, "", 0);
    m->o = *o;
    m->called = shmi_called(&m->o);
    m->rollback = (shmi_ld32(&m->w->policy) & 0xff) == SHMI_POLICY_ROLLBACK;
    if (m->rollback) {
        shmi_log_of(a, o, sizeof(shmi_mutex_words), &m->log);
        m->rollback = m->log.head != NULL; /* else a peer has changed the words just now */
    }
    if (opt != NULL) {
        m->repair = opt->repair;
        m->repair_arg = opt->repair_arg;
        if (opt->checked)
            m->bias = m->bias_most = 0;
    }
    return m;
}

SHMI_FN int shmi_open_mutex(int existing, shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    shmi_spec spec;
    shmi_object o;
    int created, err;
    out->impl = NULL;
    if (opts != NULL) {
        err = shmi_check_policy("mutex.open", name, opts->policy, opts->log_bytes);
        if (err != 0)
            return err;
    }
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_MUTEX_KIND;
    spec.version = SHMI_mutexVersion;
    spec.name = name;
    spec.size = sizeof(shmi_mutex_words);
    spec.any_size = 1; /* how long the log is says the lock */
    if (opts != NULL && opts->policy == SHMSYNC_POLICY_ROLLBACK)
        spec.size += SHMI_logHead + shmi_log_size(opts->log_bytes);
    spec.init = shmi_mutex_init_body;
    spec.arg = opts;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err != 0)
        return err;
    err = shmi_check_lock(a, &o, "mutex.open", sizeof(shmi_mutex_words), offsetof(shmi_mutex_words, policy),
                          created || opts == NULL ? 0 : opts->policy, opts == NULL ? 0 : opts->log_bytes);
    if (err != 0) {
        shmi_close_object(a, o.off);
        return err;
    }
    return SHMI_HAND_OUT(out, shmi_mutex *, shmi_share(a, &o, shmi_mutex_build, opts));
}
int shmsync_mutex_open(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_mutex(0, a, name, opts, out));
}
int shmsync_mutex_attach(shmsync_arena *a, const char *name, const shmsync_mutex_options *opts, shmsync_mutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_mutex(1, a, name, opts, out));
}

int shmsync_mutex_at(shmsync_arena *a, shmsync_offset off, shmsync_mutex *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err;
    out->impl = NULL;
    err = shmi_object_at(a, off, "mutex.open", SHMI_MUTEX_KIND, SHMI_mutexVersion, sizeof(shmi_mutex_words), &o);
    if (err == 0 && (err = shmi_check_lock(a, &o, "mutex.open", sizeof(shmi_mutex_words), offsetof(shmi_mutex_words, policy), 0, 0)) != 0)
        shmi_close_object(a, o.off);
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(SHMI_HAND_OUT(out, shmi_mutex *, shmi_share(a, &o, shmi_mutex_build, NULL)));
}

shmsync_offset shmsync_mutex_offset(const shmsync_mutex *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}

SHMI_FN void shmi_mutex_end(void *handle) { shmi_free_thing(handle); }
int shmsync_mutex_close(shmsync_mutex *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_mutex_end);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}

/* A call that succeeds at once writes nothing for shmsync_error: that costs as much as the lock. The functions that end in
 * _called are the rest of such a call. */
SHMI_COLD int shmi_mutex_lock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_lock");
    return shmi_result(shmi_mutex_lock(m->impl, 0), "shmsync_mutex_lock");
}
int shmsync_mutex_lock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    if (SHMI_LIKELY(shmi_is_open(x, m->serial)) && SHMI_LIKELY(shmi_mutex_at_once(x)))
        return 0;
    return shmi_mutex_lock_called(m);
}
SHMI_COLD int shmi_mutex_trylock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_trylock");
    return shmi_result(shmi_mutex_trylock(m->impl), "shmsync_mutex_trylock");
}
int shmsync_mutex_trylock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    if (SHMI_LIKELY(shmi_is_open(x, m->serial)) && SHMI_LIKELY(shmi_mutex_at_once(x)))
        return 0;
    return shmi_mutex_trylock_called(m);
}
SHMI_COLD int shmi_mutex_unlock_called(shmsync_mutex *m)
{
    SHMI_OPENED_AS(m, "shmsync_mutex_unlock");
    return shmi_result(shmi_mutex_unlock(m->impl), "shmsync_mutex_unlock");
}
int shmsync_mutex_unlock(shmsync_mutex *m)
{
    shmi_mutex *x = m->impl;
    if (SHMI_LIKELY(shmi_is_open(x, m->serial)) && SHMI_LIKELY(shmi_mutex_unlock_at_once(x, __atomic_load_n(x->own, __ATOMIC_RELAXED))))
        return 0;
    return shmi_mutex_unlock_called(m);
}
int shmsync_mutex_timedlock(shmsync_mutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t deadline;
    if (shmi_mutex_at_once(m->impl))
        return 0;
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "mutex.timedlock", m->impl->called, "not a time");
    return SHMI_TELL(shmi_mutex_lock_slow(m->impl, deadline));
}

int shmsync_mutex_state(shmsync_mutex *m)
{
    SHMI_OPENED(m);
    uint32_t o = shmi_ld32(m->impl->own);
    if (!shmi_owner_valid(o))
        return shmi_mutex_report(m->impl, EPROTO, o);
    if (shmi_owner_kind(o) == SHMI_kindOwnerDead)
        return shmi_mutex_report(m->impl, EOWNERDEAD, o);
    return o == SHMI_OWNER_NOT_RECOVERABLE ? shmi_mutex_report(m->impl, ENOTRECOVERABLE, o) : 0;
}

SHMI_FN int shmi_mutex_recover_entered(shmi_mutex *m, int (*repair)(void *), void *arg)
{
    uint32_t recovering = shmi_make_owner(SHMI_kindRecovering, m->a->self);
    for (;;) {
        uint32_t o = shmi_ld32(m->own);
        int err;
        if (shmi_owner_kind(o) != SHMI_kindOwnerDead && o != SHMI_OWNER_NOT_RECOVERABLE) {
            /* A healthy lock is taken and given back, whatever repair the handle has. */
            shmi_mutex_wait w;
            memset(&w, 0, sizeof w);
            w.m = m;
            err = shmi_mutex_acquire(&w, 0);
            if (err == 0)
                return shmi_mutex_unlock(m);
            if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
                return err;
            continue;
        }
        if (!shmi_owner_valid(o))
            return shmi_mutex_report(m, EPROTO, o);
        if (shmi_owner_kind(o) == SHMI_kindOwnerDead) {
            /* Before it is taken: the word names the process that may still write, also if this one dies here. */
            err = shmi_await_gone(m->a, shmi_owner_name(o), "mutex.recover", m->called, 0);
            if (err != 0)
                return err;
        }
        if (!shmi_take_from32(m->a, shmi_owner_name(o), m->own, o, recovering, 1))
            continue;
        SHMSYNC_CRASHPOINT("mutex.recover.taken");
        shmi_log_lose(&m->log);
        err = shmi_mutex_run_repair(m, repair, arg);
        if (err != 0)
            return err;
        shmi_st32(&m->w->died, 0);
        if (m->log.head != NULL)
            shmi_log_store(m->log.head, 0);
        shmi_cas32(m->own, recovering, 0);
        SHMSYNC_CRASHPOINT("mutex.recover.before_wake");
        shmi_wake_word_release(m->a, &m->line);
        return 0;
    }
}
int shmsync_mutex_recover(shmsync_mutex *m, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    shmsync_arena *a = m->impl->a;
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "mutex.recover", m->impl->called, "without a repair");
    err = shmi_enter(a, "mutex.recover");
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_mutex_recover_entered(m->impl, repair, arg);
    shmi_exit(a);
    return SHMI_TELL(err);
}

/* ---- Futex ---- */

#define SHMI_FUTEX_KIND SHMI_KIND('F', 'U', 'T', 'X')
enum { SHMI_futexVersion = 1 };
#define SHMI_FUTEX_ANNOUNCED UINT64_C(1)
#define SHMI_FUTEX_STOPPED UINT64_C(2)
#define SHMI_FUTEX_POST UINT64_C(4)

struct shmi_futex {
    shmsync_arena *a;
    shmi_futex_words *w;
    shmi_wait_list line;
    uint64_t seen; /* the counter at the last check */
    int64_t looked;
    shmi_object o;
};
typedef struct shmi_futex shmi_futex;

SHMI_FN uint64_t shmi_futex_counter(uint64_t s) { return s >> 2; }
SHMI_FN shmi_wait_list shmi_futex_wait_list(shmi_futex_words *w)
{
    shmi_wait_list l;
    l.word = (uint32_t *)(void *)&w->state; /* the low half */
    l.poller = &w->poller;
    return l;
}
SHMI_FN shmi_tuning shmi_futex_tuning(shmi_futex *f)
{
    shmi_tuning t;
    t.budget = &f->w->spin;
    t.pays = &f->w->pays;
    t.last_cpu = &f->w->lastCPU;
    t.slot = f->a->my_slot;
    return t;
}

/* Makes up for a wake that a death swallowed. The word need not change: if a post was
 * made it has, and if none was nobody is owed a wake. */
SHMI_FN void shmi_futex_kind_wake(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_futex_words *w = (shmi_futex_words *)shmi_try_at(a, o->body, sizeof *w, 64);
    if (w != NULL && (owed != SHMI_OWED_ANNOUNCED || (shmi_ld64(&w->state) & SHMI_FUTEX_ANNOUNCED) != 0)) {
        shmi_wait_list l = shmi_futex_wait_list(w);
        shmi_deliver_all(a, &l);
    }
}

SHMI_FN void shmi_futex_init_body(unsigned char *body, const void *arg)
{
    const shmsync_futex_options *o = (const shmsync_futex_options *)arg;
    if (o != NULL)
        ((shmi_futex_words *)(void *)body)->spin = shmi_spin_field(o->spin_ns);
}
SHMI_FN void *shmi_futex_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    shmi_futex *f = (shmi_futex *)shmi_new_thing(sizeof *f);
    (void)arg;
    if (f == NULL)
        return NULL;
    f->a = a;
    f->w = (shmi_futex_words *)shmi_ptr(a, o->body, sizeof(shmi_futex_words), 64);
    f->line = shmi_futex_wait_list(f->w);
    f->o = *o;
    return f;
}

SHMI_FN int shmi_open_futex(int existing, shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    shmi_spec spec;
    shmi_object o;
    int created, err;
    out->impl = NULL;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_FUTEX_KIND;
    spec.version = SHMI_futexVersion;
    spec.name = name;
    spec.size = sizeof(shmi_futex_words);
    spec.init = shmi_futex_init_body;
    spec.arg = opts;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err != 0)
        return err;
    return SHMI_HAND_OUT(out, shmi_futex *, shmi_share(a, &o, shmi_futex_build, NULL));
}
int shmsync_futex_open(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_futex(0, a, name, opts, out));
}
int shmsync_futex_attach(shmsync_arena *a, const char *name, const shmsync_futex_options *opts, shmsync_futex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_futex(1, a, name, opts, out));
}

int shmsync_futex_at(shmsync_arena *a, shmsync_offset off, shmsync_futex *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err;
    out->impl = NULL;
    err = shmi_object_at(a, off, "futex.open", SHMI_FUTEX_KIND, SHMI_futexVersion, sizeof(shmi_futex_words), &o);
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(SHMI_HAND_OUT(out, shmi_futex *, shmi_share(a, &o, shmi_futex_build, NULL)));
}

shmsync_offset shmsync_futex_offset(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->o.off;
}

int shmsync_futex_close(shmsync_futex *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(f->impl->a, f->impl->o.off, shmi_mutex_end);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

uint64_t shmsync_futex_get(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return shmi_futex_counter(shmi_ld64(&f->impl->w->state));
}

SHMI_FN int shmi_futex_change(shmi_futex *f, int stop, const char *op)
{
    if (shmi_self(f->a) == 0)
        return shmi_fail(shmi_nameless(f->a), op, shmi_called(&f->o), "%s", "");
    if (!stop) { /* the CPU's number goes first: a waiter that sees the post may look for it */
        shmi_tuning t = shmi_futex_tuning(f);
        shmi_note_cpu(&t);
    }
    for (;;) {
        uint64_t s = shmi_ld64(&f->w->state), to;
        if ((s & SHMI_FUTEX_STOPPED) != 0)
            return 0;
        to = (stop ? s | SHMI_FUTEX_STOPPED : s + SHMI_FUTEX_POST) & ~SHMI_FUTEX_ANNOUNCED;
        if (!shmi_cas64(&f->w->state, s, to))
            continue;
        if (stop || (s & SHMI_FUTEX_ANNOUNCED) != 0) {
            if (stop)
                SHMSYNC_CRASHPOINT("futex.stop.before_wake");
            else
                SHMSYNC_CRASHPOINT("futex.post.before_wake");
            shmi_deliver_all(f->a, &f->line);
        }
        return 0;
    }
}
int shmsync_futex_post(shmsync_futex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_futex_change(f->impl, 0, "futex.post"));
}
int shmsync_futex_stopped(const shmsync_futex *f)
{
    SHMI_OPENED_OR(f, 0);
    return (shmi_ld64(&f->impl->w->state) & SHMI_FUTEX_STOPPED) != 0;
}
int shmsync_futex_stop(shmsync_futex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_futex_change(f->impl, 1, "futex.stop"));
}

typedef struct shmi_futex_spin {
    uint64_t *state, token;
} shmi_futex_spin;
SHMI_FN int shmi_futex_spun(void *arg)
{
    shmi_futex_spin *x = (shmi_futex_spin *)arg;
    uint64_t s = shmi_ld64(x->state);
    return shmi_futex_counter(s) >= x->token || (s & SHMI_FUTEX_STOPPED) != 0;
}

/* Makes up for a wake that a stopped or dead poster owes, ten times a second. An
 * announcement proves nothing once there was a post. */
SHMI_FN void shmi_futex_check(shmi_futex *f)
{
    uint64_t s;
    if (!shmi_check_due(&f->looked))
        return;
    s = shmi_ld64(&f->w->state);
    if (shmi_xchg64(&f->seen, shmi_futex_counter(s)) != shmi_futex_counter(s) || (s & SHMI_FUTEX_ANNOUNCED) == 0 || (s & SHMI_FUTEX_STOPPED) != 0)
        shmi_deliver_all(f->a, &f->line);
}

SHMI_FN int shmi_futex_wait_entered(shmi_futex *f, uint64_t token, int64_t deadline)
{
    int64_t since = 0;
    for (;;) {
        uint64_t s = shmi_ld64(&f->w->state);
        shmi_sleep_spec sleep_spec;
        if (shmi_futex_counter(s) >= token)
            return 0;
        if ((s & SHMI_FUTEX_STOPPED) != 0)
            return shmi_fail(ECANCELED, "futex.wait", shmi_called(&f->o), "it was stopped");
        if ((s & SHMI_FUTEX_ANNOUNCED) == 0) {
            shmi_futex_spin x;
            shmi_tuning t = shmi_futex_tuning(f);
            x.state = &f->w->state;
            x.token = token;
            if (shmi_spin(&t, shmi_futex_spun, &x))
                continue;
            /* Announced anew for each value of the counter: a post takes the announcement
             * down, for those as well that wait for a later one. */
            s = shmi_ld64(&f->w->state);
            if (shmi_futex_counter(s) >= token || (s & SHMI_FUTEX_STOPPED) != 0 || !shmi_cas64(&f->w->state, s, s | SHMI_FUTEX_ANNOUNCED))
                continue;
            s |= SHMI_FUTEX_ANNOUNCED;
        }
        SHMSYNC_CRASHPOINT("futex.wait.announced");
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &f->looked;
        sleep_spec.word = f->line.word;
        sleep_spec.val = (uint32_t)s;
        sleep_spec.object = f->o.off;
        sleep_spec.wanted = (uint32_t)s;
        sleep_spec.deadline = deadline;
        sleep_spec.since = &since;
        switch (shmi_sleep(f->a, &sleep_spec)) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("futex.wait.woken");
            break;
        case SHMI_LOOK:
            shmi_futex_check(f);
            break;
        case SHMI_LATE:
            if (shmi_futex_counter(shmi_ld64(&f->w->state)) >= token)
                return 0;
            return shmi_brief(ETIMEDOUT, "futex.wait", shmi_called(&f->o));
        case SHMI_CLOSED:
            return shmi_fail(EBADF, "futex.wait", shmi_called(&f->o), "this process closed the arena");
        }
    }
}
SHMI_FN int shmi_futex_wait_until(shmi_futex *f, uint64_t token, int64_t deadline)
{
    shmsync_arena *a = f->a;
    int err;
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "futex.wait", shmi_called(&f->o), "%s", "");
    if (shmi_futex_counter(shmi_ld64(&f->w->state)) >= token)
        return 0;
    if (token > UINT64_MAX >> 2)
        return shmi_fail(EINVAL, "futex.wait", shmi_called(&f->o), "no counter gets to token %llu", (unsigned long long)token);
    err = shmi_enter(a, "futex.wait");
    if (err != 0)
        return err;
    err = shmi_futex_wait_entered(f, token, deadline);
    shmi_exit(a);
    return err;
}
int shmsync_futex_wait(shmsync_futex *f, uint64_t token)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_futex_wait_until(f->impl, token, 0));
}
int shmsync_futex_timedwait(shmsync_futex *f, uint64_t token, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t deadline;
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "futex.timedwait", shmi_called(&f->impl->o), "not a time");
    return SHMI_TELL(shmi_futex_wait_until(f->impl, token, deadline));
}

/* ---- Transactions: a hold of a lock with an undo log ---- */

enum { SHMI_txSaved = sizeof((shmsync_tx *)0)->saved / sizeof((shmsync_tx *)0)->saved[0] };

/* Begins a transaction of a lock that this process has just got. EPROTO: its log is not idle. */
SHMI_FN int shmi_tx_begin(shmsync_arena *a, const shmi_log *log, shmsync_tx *tx)
{
    if (SHMI_UNLIKELY(__atomic_load_n(&log->head->state, __ATOMIC_RELAXED) != 0))
        return EPROTO;
    tx->arena = a;
    tx->log = log;
    tx->tail = 0;
    tx->failed = 0;
    tx->n_saved = 0;
    tx->blocks = 0;
    return 0;
}

/* Whether the lock may begin transactions at all. */
SHMI_FN int shmi_tx_check(shmsync_arena *a, int rollback, const char *op, const char *called, shmsync_tx *tx)
{
    tx->mutex = NULL;
    if (SHMI_UNLIKELY(shmi_self(a) == 0))
        return shmi_fail(shmi_nameless(a), op, called, "%s", "");
    if (SHMI_UNLIKELY(!rollback))
        return shmi_fail(EINVAL, op, called, "it has no undo log; a lock of SHMSYNC_POLICY_ROLLBACK has one");
    if (SHMI_UNLIKELY(a->lock_fd < 0))
        return shmi_fail(ENOTSUP, op, called, "this system has no locks of open file descriptions, which prove the end of a process");
    return 0;
}

/* The mutex has a log that no correct program leaves: only a recover helps. */
SHMI_COLD int shmi_mutex_bad_log(shmi_mutex *m, const char *op)
{
    uint32_t o = shmi_ld32(m->own);
    shmi_participant_id n = SHMI_LOG_ID(shmi_ld64(&m->log.head->state));
    if (n != 0)
        shmi_st32(&m->w->died, n);
    if (shmi_owner_held(o) && shmi_owner_name(o) == m->a->self) {
        shmi_log_lose(&m->log);
        shmi_cas32(m->own, o, SHMI_OWNER_NOT_RECOVERABLE);
    }
    shmi_wake_word_wake_all(m->a, &m->line);
    return shmi_fail(EPROTO, op, m->called, "its undo log is impossible; the mutex is not recoverable");
}

SHMI_FN int shmi_mutex_begun(shmi_mutex *m, const char *op, int err, shmsync_tx *tx)
{
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (SHMI_UNLIKELY(shmi_tx_begin(m->a, &m->log, tx) != 0))
        return shmi_mutex_bad_log(m, op);
    tx->mutex = m;
    return 0;
}
int shmsync_mutex_begin(shmsync_mutex *m, shmsync_tx *tx)
{
    SHMI_OPENED(m);
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.begin", m->impl->called, tx);
    return SHMI_TELL(err != 0 ? err : shmi_mutex_begun(m->impl, "mutex.begin", shmi_mutex_lock(m->impl, 0), tx));
}
int shmsync_mutex_trybegin(shmsync_mutex *m, shmsync_tx *tx)
{
    SHMI_OPENED(m);
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.trybegin", m->impl->called, tx);
    return SHMI_TELL(err != 0 ? err : shmi_mutex_begun(m->impl, "mutex.trybegin", shmi_mutex_trylock(m->impl), tx));
}
int shmsync_mutex_timedbegin(shmsync_mutex *m, shmsync_tx *tx, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int err = shmi_tx_check(m->impl->a, m->impl->rollback, "mutex.timedbegin", m->impl->called, tx);
    return SHMI_TELL(err != 0 ? err : shmi_mutex_begun(m->impl, "mutex.timedbegin", shmsync_mutex_timedlock(m, abs_monotonic), tx));
}

/* ---- Saving ---- */

SHMI_FN const char *shmi_tx_called(const shmsync_tx *tx) { return tx->mutex->called; }
SHMI_FN uint64_t shmi_tx_active(const shmsync_tx *tx) { return shmi_make_log(SHMI_logActive, tx->arena->self, tx->tail); }

/* Whether the transaction goes on: ENOTCONN in a child of fork, or why an earlier save failed. */
SHMI_FN int shmi_tx_going(const shmsync_tx *tx, const char *op)
{
    if (SHMI_UNLIKELY(tx->mutex == NULL))
        return shmi_fail(EPERM, op, NULL, "the transaction has ended");
    if (SHMI_UNLIKELY(shmi_self(tx->arena) == 0))
        return shmi_fail(shmi_nameless(tx->arena), op, shmi_tx_called(tx), "%s", "");
    return 0;
}

/* Appends a record and makes it valid: the footer is there before the state says so. The caller has made sure of the
 * room. */
SHMI_FN void shmi_tx_append(shmsync_tx *tx, const void *from, shmi_off off, uint32_t n, uint32_t kind)
{
    unsigned char *r = tx->log->records + tx->tail;
    uint64_t padded = shmi_log_padded(n);
    uint64_t footer = n | (uint64_t)kind << 32; /* whole words: a store in parts delays the copy of them */
    if (n == sizeof(uint64_t)) /* a word, as most are: without a call */
        memcpy(r, from, sizeof(uint64_t));
    else if (n != 0)
        memcpy(r, from, n);
    memcpy(r + padded, &off, sizeof off);
    memcpy(r + padded + sizeof off, &footer, sizeof footer);
    SHMSYNC_CRASHPOINT("tx.save.recorded");
    tx->tail += padded + SHMI_recordFooter;
    shmi_log_store(tx->log->head, shmi_tx_active(tx));
    SHMSYNC_CRASHPOINT("tx.save.valid");
}

SHMI_COLD int shmi_tx_full(shmsync_tx *tx, const char *op, uint64_t n)
{
    tx->failed = ENOSPC;
    return shmi_fail(ENOSPC, op, shmi_tx_called(tx), "its undo log of %llu bytes is full: %llu used, %llu asked for; make the lock with more log_bytes",
                     (unsigned long long)tx->log->room, (unsigned long long)tx->tail, (unsigned long long)n);
}
SHMI_COLD int shmi_tx_bad_range(shmsync_tx *tx, const void *p, size_t n)
{
    tx->failed = EINVAL;
    return shmi_fail(EINVAL, "tx.save", shmi_tx_called(tx), "%llu bytes at %p are not data of this arena", (unsigned long long)n, p);
}

int shmsync_tx_save(shmsync_tx *tx, const void *p, size_t n)
{
    SHMI_BEGIN();
    shmi_off off, end;
    unsigned k;
    int err = shmi_tx_going(tx, "tx.save");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    if (SHMI_UNLIKELY(tx->failed != 0))
        return SHMI_TELL(tx->failed);
    if (SHMI_UNLIKELY(n == 0))
        return 0;
    off = (shmi_off)((uintptr_t)p - (uintptr_t)tx->arena->base);
    if (SHMI_UNLIKELY(!shmi_log_covers(tx->arena, tx->log, off, n)))
        return SHMI_TELL(shmi_tx_bad_range(tx, p, n));
    end = off + n;
    for (k = 0; k < SHMI_txSaved && k < tx->n_saved; k++)
        if (off >= tx->saved[k].begin && end <= tx->saved[k].end)
            return 0;
    if (SHMI_UNLIKELY(n > tx->log->room || shmi_log_padded(n) + SHMI_recordFooter > tx->log->room - tx->tail))
        return SHMI_TELL(shmi_tx_full(tx, "tx.save", n));
    shmi_tx_append(tx, p, off, (uint32_t)n, SHMI_recordBytes);
    k = tx->n_saved++ % SHMI_txSaved;
    tx->saved[k].begin = off;
    tx->saved[k].end = end;
    return 0;
}

/* ---- Blocks ---- */

/* Makes the last record, of no bytes, invalid again. */
SHMI_FN void shmi_tx_take_back(shmsync_tx *tx)
{
    tx->tail -= SHMI_recordFooter;
    shmi_log_store(tx->log->head, tx->tail == 0 ? 0 : shmi_tx_active(tx));
}

int shmsync_tx_alloc(shmsync_tx *tx, uint64_t size, uint64_t align, shmsync_offset *out)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    shmi_block b;
    shmi_off off = 0;
    int err = shmi_tx_going(tx, "tx.alloc");
    *out = 0;
    if (err != 0)
        return SHMI_TELL(err);
    if (tx->failed != 0)
        return SHMI_TELL(tx->failed);
    if (align > SHMI_maxAlign || (align & (align - 1)) != 0)
        return SHMI_TELL(tx->failed = shmi_fail(EINVAL, "tx.alloc", shmi_tx_called(tx), "alignment %llu is not a power of two up to 4096", (unsigned long long)align));
    if (SHMI_recordFooter > tx->log->room - tx->tail)
        return SHMI_TELL(shmi_tx_full(tx, "tx.alloc", 0));
    err = shmi_claim_aligned(a, size, align != 0 ? align : 1, &off);
    if (err != 0)
        return SHMI_TELL(tx->failed = err);
    SHMSYNC_CRASHPOINT("tx.alloc.claimed");
    tx->blocks = 1;
    shmi_tx_append(tx, NULL, off, 0, SHMI_recordAlloc);
    SHMSYNC_CRASHPOINT("tx.alloc.recorded");
    if (!shmi_locate(a, off, &b) || !shmi_block_swap(&b, shmi_make_block(SHMI_blockClaimed, a->self), shmi_make_block(SHMI_blockLogged, a->self)))
        return SHMI_TELL(tx->failed = shmi_meddled(a, off));
    SHMSYNC_CRASHPOINT("tx.alloc.logged");
    *out = off;
    return 0;
}

/* Frees a block that this transaction has allocated; EINVAL if it has not, or has freed it. */
SHMI_FN int shmi_tx_free_own(shmsync_tx *tx, shmi_off off)
{
    uint64_t tail = tx->tail;
    uint32_t kind = SHMI_recordTemporary;
    shmi_log_footer f;
    while (tail != 0) {
        uint64_t end = tail;
        if (shmi_log_record(tx->arena, tx->log, &tail, &f) != 0)
            return shmi_fail(EPROTO, "tx.free", shmi_tx_called(tx), "its undo log is impossible");
        if (f.kind == SHMI_recordAlloc && f.off == off) {
            memcpy(tx->log->records + end - sizeof kind, &kind, sizeof kind);
            return 0;
        }
    }
    return shmi_fail(EINVAL, "tx.free", shmi_tx_called(tx), "the block at 0x%llx is freed already, or another transaction of this process has it", (unsigned long long)off);
}

int shmsync_tx_free(shmsync_tx *tx, shmsync_offset off)
{
    SHMI_BEGIN();
    shmsync_arena *a = tx->arena;
    uint32_t logged;
    shmi_block b;
    int err = shmi_tx_going(tx, "tx.free"), found;
    if (err != 0)
        return SHMI_TELL(err);
    if (tx->failed != 0)
        return SHMI_TELL(tx->failed);
    logged = shmi_make_block(SHMI_blockLogged, a->self);
    found = shmi_locate(a, off, &b);
    if (found && shmi_ld32(b.word) == logged)
        return SHMI_TELL(tx->failed = shmi_tx_free_own(tx, off));
    if (found && shmi_ld32(b.word) == SHMI_blockRaw) {
        if (SHMI_recordFooter > tx->log->room - tx->tail)
            return SHMI_TELL(shmi_tx_full(tx, "tx.free", 0));
        shmi_touch(a, b.chunk);
        tx->blocks = 1;
        shmi_tx_append(tx, NULL, off, 0, SHMI_recordFree);
        SHMSYNC_CRASHPOINT("tx.free.recorded");
        if (shmi_block_swap(&b, SHMI_blockRaw, logged)) {
            SHMSYNC_CRASHPOINT("tx.free.logged");
            return 0;
        }
        shmi_tx_take_back(tx); /* or the undo would take the block from the transaction that has it */
    }
    return SHMI_TELL(tx->failed = shmi_fail(EINVAL, "tx.free", shmi_tx_called(tx), "nothing that was allocated begins at 0x%llx", (unsigned long long)off));
}

/* ---- Ending ---- */

/* Whether the transaction can end: EPERM if this process has unlocked its mutex, or ENOTCONN. After EPERM the log is
 * lost: a later death of this process as a holder must not undo what has been free to all. */
SHMI_FN int shmi_tx_ends(shmsync_tx *tx, const char *op)
{
    int err = shmi_tx_going(tx, op);
    uint32_t o;
    if (SHMI_UNLIKELY(err != 0))
        return err;
    o = __atomic_load_n(tx->mutex->own, __ATOMIC_RELAXED);
    if (SHMI_LIKELY((o & ~SHMI_OWNER_BIASED) == tx->arena->self))
        return 0;
    if (tx->tail != 0)
        shmi_log_lose_foreign(tx->log, shmi_tx_active(tx));
    err = shmi_fail(EPERM, op, shmi_tx_called(tx), "the mutex was unlocked in the transaction (owner word %#010x)", o);
    tx->mutex = NULL;
    return err;
}

/* How much of the log transactions have used, for people. */
SHMI_FN void shmi_tx_highest(const shmsync_tx *tx)
{
    if (tx->tail > __atomic_load_n(&tx->log->head->highest, __ATOMIC_RELAXED))
        __atomic_store_n(&tx->log->head->highest, tx->tail, __ATOMIC_RELAXED);
}

/* Undoes the transaction, and unlocks: 0, or EPROTO. */
SHMI_FN int shmi_tx_undo(shmsync_tx *tx, const char *op)
{
    shmi_mutex *m = tx->mutex;
    tx->mutex = NULL;
    /* The undo uses the records that this process has made, whatever a peer has written. */
    if (SHMI_UNLIKELY(tx->tail != 0 && shmi_log_end(m->a, tx->log, shmi_tx_active(tx)) != 0))
        return shmi_mutex_bad_log(m, op);
    return shmi_mutex_unlock(m);
}

int shmsync_tx_commit(shmsync_tx *tx)
{
    SHMI_BEGIN();
    shmi_mutex *m = tx->mutex;
    int err = shmi_tx_ends(tx, "tx.commit");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    if (SHMI_UNLIKELY(tx->failed != 0)) {
        err = shmi_tx_undo(tx, "tx.commit");
        return SHMI_TELL(err != 0 ? err : tx->failed);
    }
    tx->mutex = NULL;
    if (SHMI_UNLIKELY(tx->blocks)) {
        shmi_tx_highest(tx);
        if (tx->tail != 0)
            shmi_log_store(tx->log->head, shmi_make_log(SHMI_logCommitted, tx->arena->self, tx->tail));
        SHMSYNC_CRASHPOINT("tx.commit.decided");
        if (tx->tail != 0 && shmi_log_end(m->a, tx->log, shmi_make_log(SHMI_logCommitted, tx->arena->self, tx->tail)) != 0)
            return SHMI_TELL(shmi_mutex_bad_log(m, "tx.commit"));
    } else if (tx->tail != 0) {
        shmi_tx_highest(tx);
        shmi_log_store(tx->log->head, 0);
        SHMSYNC_CRASHPOINT("tx.commit.idle");
    }
    return SHMI_TELL(shmi_mutex_unlock(m));
}

int shmsync_tx_abort(shmsync_tx *tx)
{
    SHMI_BEGIN();
    int err = shmi_tx_ends(tx, "tx.abort");
    return SHMI_TELL(err != 0 ? err : shmi_tx_undo(tx, "tx.abort"));
}
/*
 * Monitors: the common part of objects whose waiters queue. A queue lock guards the state, a redo
 * log makes a change of several words one step, and wait nodes stand for the waits. It is
 * docs/design/0005-monitor.md in C, step by step that of prims/monitor*.go: the next holder of the
 * queue lock after a death, of a Go or of a C program, replays what the other has left.
 */

struct shmi_monitor;
enum { SHMI_redoMost = 6, SHMI_wakesFew = 32 };

/* A node on a queue; n is NULL where there is none. */
struct shmi_wait {
    uint64_t off;
    shmi_node *n;
};

/* Waits that have ended and whose owners have to be woken, once the queue lock is left. */
struct shmi_woken {
    struct shmi_wait w;
    uint32_t state; /* when it was resolved */
    uint32_t owner; /* then: the node of a dead one may have a new owner when it is told */
};
struct shmi_wakes {
    uint32_t n, room;
    struct shmi_woken few[SHMI_wakesFew], *more; /* more is a copy of few and what came after it, once there was no room */
};

/* A change of several words of a monitor's state that is made as one. */
struct shmi_change {
    uint32_t n;
    uint64_t *w[SHMI_redoMost];
    uint64_t v[SHMI_redoMost];
};

/*
 * What an object tells its monitor. All but holders are called with the queue lock held; see
 * the rules of prims/monitor.go.
 */
struct shmi_rules {
    void (*resolve)(struct shmi_monitor *m, struct shmi_wakes *b);
    void (*account)(struct shmi_monitor *m, struct shmi_wait w);
    void (*clear)(struct shmi_monitor *m);
    void (*requeue)(struct shmi_monitor *m, struct shmi_wait w);
    void (*detach)(struct shmi_monitor *m, struct shmi_wait w);
    /* reap takes off, with shmi_mon_discard, the waits that nobody is there for. */
    void (*discard_dead)(struct shmi_monitor *m);
    /* reap takes back what names have: words if shmi_mon_died is true for them, data if
     * shmi_mon_gone is. */
    void (*reap)(struct shmi_monitor *m);
    /* holders calls shmi_mon_heed for those on whose life others wait. */
    void (*holders)(struct shmi_monitor *m);
    /* look looks for what has to be resolved; may be NULL. */
    void (*look)(struct shmi_monitor *m);
};

struct shmi_monitor {
    shmsync_arena *a;
    shmi_object o;
    shmi_monitor_words *w;
    uint64_t at; /* of w */
    const struct shmi_rules *rules;
    shmi_mutex queueLock;
    int (*mine)(struct shmi_monitor *m, struct shmi_wait w); /* NULL: all waits of the object are */
    uint32_t without; /* this participant while it leaves, or 0 */
    uint32_t broken;  /* a link was wrong: the queues are rebuilt before the queue lock is left */
    uint32_t deaths;  /* how many reaps the last reap knew of */
    int64_t kept;     /* when the last reap left data of one that was not gone; 0: there was none. Atomic. */
    uint32_t looks;
    uint32_t dead_holder; /* a check has found one: the process that marked it may be stopped before it counts the death */
    uint32_t waiting;     /* threads of this process in shmi_mon_sleep. Atomic. */
    int one_spins;    /* waits end one after the other: only the first of those threads spins */
    uint32_t cleaning_up; /* a wait was given up and could not be taken off */
    int handlers;     /* signal handlers may call the object */
};

/* A store of a word that only the holder of the queue lock writes: in the order of the program, so that a death leaves a prefix. */
SHMI_FN void shmi_put(uint64_t *w, uint64_t v)
{
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_store_n(w, v, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

SHMI_FN uint64_t shmi_get(uint64_t *w) { return __atomic_load_n(w, __ATOMIC_ACQUIRE); }
SHMI_FN uint32_t shmi_get32(uint32_t *w) { return __atomic_load_n(w, __ATOMIC_ACQUIRE); }

/* How a wait ended, its class, and more, in the extra word of its node. */
SHMI_FN uint64_t shmi_outcome(uint32_t class_, uint32_t result, uint32_t aux)
{
    return (uint64_t)aux << 32 | (uint64_t)(class_ & 0xffff) << 16 | (result & 0xffff);
}
SHMI_FN uint32_t shmi_outcome_result(uint64_t f) { return (uint32_t)(f & 0xffff); }
SHMI_FN uint32_t shmi_outcome_class(uint64_t f) { return (uint32_t)(f >> 16 & 0xffff); }
SHMI_FN uint32_t shmi_outcome_aux(uint64_t f) { return (uint32_t)(f >> 32); }

SHMI_FN uint32_t shmi_class_of(struct shmi_wait w) { return shmi_outcome_class(shmi_get(&w.n->extra)); }
SHMI_FN uint64_t shmi_stamp_of(struct shmi_wait w) { return shmi_get(&w.n->stamp); }
SHMI_FN uint32_t shmi_owner_of(struct shmi_wait w) { return shmi_get32(&w.n->owner); }

SHMI_FN int shmi_node_queued(uint32_t word)
{
    uint32_t s = shmi_node_state(word);
    return s == SHMI_NodeQueued || s == SHMI_NodeAsleep || s == SHMI_NodeParked;
}
/* Links: each the offset of a node divided by 64; bits 0..31 next, 32..63 previous. */
SHMI_FN uint64_t shmi_links(uint64_t next, uint64_t prev) { return prev / 64 << 32 | (uint32_t)(next / 64); }
SHMI_FN uint64_t shmi_link_next(uint64_t l) { return (l & UINT32_MAX) * 64; }
SHMI_FN uint64_t shmi_link_prev(uint64_t l) { return (l >> 32) * 64; }

SHMI_FN int shmi_is_broken(struct shmi_monitor *m) { return __atomic_load_n(&m->broken, __ATOMIC_RELAXED) != 0; }
SHMI_FN void shmi_set_broken(struct shmi_monitor *m, uint32_t v) { __atomic_store_n(&m->broken, v, __ATOMIC_RELAXED); }

/* The wait at an offset that was read from a link. If there is none, or it is on no queue of this object, the queues are rebuilt. */
SHMI_FN struct shmi_wait shmi_mon_node(struct shmi_monitor *m, uint64_t off)
{
    struct shmi_wait w;
    w.off = 0;
    w.n = NULL;
    if (off == 0)
        return w;
    w.n = shmi_node_at(m->a, off);
    if (w.n == NULL || shmi_get(&w.n->object) != m->o.off || shmi_get(&w.n->stamp) == 0) {
        shmi_set_broken(m, 1);
        w.n = NULL;
        return w;
    }
    w.off = off;
    return w;
}

/* A queue in order of arrival. */
SHMI_FN int shmi_fifo_empty(shmi_list_words *q) { return shmi_get(&q->first) == 0; }
SHMI_FN struct shmi_wait shmi_fifo_head(struct shmi_monitor *m, shmi_list_words *q)
{
    return shmi_mon_node(m, shmi_get(&q->first));
}

SHMI_FN void shmi_fifo_requeue(struct shmi_monitor *m, shmi_list_words *q, struct shmi_wait w)
{
    struct shmi_wait last = shmi_mon_node(m, shmi_get(&q->last));
    shmi_put(&w.n->next, shmi_links(0, last.off));
    if (last.n != NULL)
        shmi_put(&last.n->next, shmi_links(w.off, shmi_link_prev(shmi_get(&last.n->next))));
    else
        shmi_put(&q->first, w.off);
    shmi_put(&q->last, w.off);
}

SHMI_FN void shmi_fifo_detach(struct shmi_monitor *m, shmi_list_words *q, struct shmi_wait w)
{
    uint64_t l = shmi_get(&w.n->next);
    struct shmi_wait prev = shmi_mon_node(m, shmi_link_prev(l));
    struct shmi_wait next = shmi_mon_node(m, shmi_link_next(l));
    if (prev.n != NULL)
        shmi_put(&prev.n->next, shmi_links(shmi_link_next(l), shmi_link_prev(shmi_get(&prev.n->next))));
    else
        shmi_put(&q->first, shmi_link_next(l));
    if (next.n != NULL)
        shmi_put(&next.n->next, shmi_links(shmi_link_next(shmi_get(&next.n->next)), shmi_link_prev(l)));
    else
        shmi_put(&q->last, shmi_link_prev(l));
}

SHMI_FN void shmi_fifo_clear(shmi_list_words *q)
{
    shmi_put(&q->first, 0);
    shmi_put(&q->last, 0);
}

SHMI_FN int shmi_mon_waiting(struct shmi_monitor *m, struct shmi_wait w);
SHMI_FN void shmi_mon_discard(struct shmi_monitor *m, struct shmi_wait w);

/* Takes off the waits of a queue that nobody is there for. A list that bites its own tail is rebuilt. */
SHMI_FN void shmi_fifo_discard_dead(struct shmi_monitor *m, shmi_list_words *q)
{
    uint64_t before = 0;
    struct shmi_wait w = shmi_fifo_head(m, q);
    while (w.n != NULL) {
        struct shmi_wait next;
        uint64_t s = shmi_stamp_of(w);
        if (s <= before) {
            shmi_set_broken(m, 1);
            return;
        }
        before = s;
        next = shmi_mon_node(m, shmi_link_next(shmi_get(&w.n->next)));
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        w = next;
    }
}

/* Whether a participant is there, as far as the present call goes. */
SHMI_FN int shmi_mon_current(struct shmi_monitor *m, uint32_t name)
{
    return name != m->without && shmi_current(m->a, name);
}
/* Whether a participant has died, so that the words that name it are nobody's. */
SHMI_FN int shmi_mon_died(struct shmi_monitor *m, uint32_t name) { return name != 0 && !shmi_mon_current(m, name); }
/* Whether a participant is gone, so that its data may pass to others. If it is only dead yet,
 * there will be another reap. */
SHMI_FN int shmi_mon_gone(struct shmi_monitor *m, uint32_t name)
{
    if (!shmi_mon_died(m, name))
        return 0;
    if (shmi_gone(m->a, name))
        return 1;
    __atomic_store_n(&m->kept, shmi_now(), __ATOMIC_RELAXED);
    return 0;
}
/* Whether a reap has left data of one that was not gone, and it is time for another. */
SHMI_FN int shmi_mon_keeps(struct shmi_monitor *m)
{
    int64_t kept = __atomic_load_n(&m->kept, __ATOMIC_RELAXED);
    return kept != 0 && shmi_now() - kept >= SHMI_ASK_WAITER;
}

/* Looks whether a participant lives whose death would change the state. */
SHMI_FN void shmi_mon_heed(struct shmi_monitor *m, uint32_t name)
{
    if (name != 0 && shmi_dead(m->a, name))
        shmi_st32(&m->dead_holder, 1);
}

/* Whether the owner of a wait is there for it. */
SHMI_FN int shmi_mon_waiting(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t owner = shmi_owner_of(w);
    return shmi_node_queued(shmi_node_load(w.n)) && shmi_mon_current(m, owner) && !shmi_dead(m->a, owner);
}

SHMI_FN void shmi_wakes_init(struct shmi_wakes *b)
{
    b->n = 0;
    b->room = SHMI_wakesFew;
    b->more = NULL;
}

SHMI_FN void shmi_wake_one(struct shmi_monitor *m, struct shmi_woken *u)
{
    if (u->state == SHMI_NodeParked) {
        shmi_tell(m->a, u->w.off, u->w.n, u->owner);
        shmi_end_tell(m->a);
    } else {
        shmi_wake(&u->w.n->word, 1);
    }
}

SHMI_FN void shmi_wakes_add(struct shmi_monitor *m, struct shmi_wakes *b, struct shmi_wait w, uint32_t state, uint32_t owner)
{
    struct shmi_woken *to = b->more != NULL ? b->more : b->few, u;
    if (state == SHMI_NodeQueued)
        return; /* its owner is awake */
    u.w = w;
    u.state = state;
    u.owner = owner;
    if (b->n == b->room) {
        uint32_t room = 4 * b->room;
        struct shmi_woken *more = (struct shmi_woken *)shmi_scratch(b->more, b->more != NULL ? b->room * sizeof *more : 0, room * sizeof *more);
        if (more == NULL) {
            shmi_wake_one(m, &u); /* at once, then */
            return;
        }
        if (b->more == NULL)
            memcpy(more, b->few, sizeof b->few);
        b->more = to = more;
        b->room = room;
    }
    to[b->n++] = u;
}

SHMI_FN shmi_tuning shmi_mon_tuning(struct shmi_monitor *m)
{
    shmi_tuning t;
    t.budget = &m->w->spin;
    t.pays = &m->w->pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return t;
}

/* Wakes the owners of waits that have ended, after the queue lock was left. */
SHMI_FN void shmi_mon_wake(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_woken *u;
    uint32_t i;
    if (b == NULL)
        return;
    u = b->more != NULL ? b->more : b->few;
    if (b->n > 0) {
        shmi_tuning t = shmi_mon_tuning(m);
        SHMSYNC_CRASHPOINT("monitor.leave.before_wake");
        shmi_note_cpu(&t);
        for (i = 0; i < b->n; i++)
            shmi_wake_one(m, &u[i]);
    }
    shmi_end_scratch(b->more, b->room * sizeof *b->more);
    shmi_wakes_init(b);
}

SHMI_FN void shmi_mon_rebuild(struct shmi_monitor *m);

/* Signals are blocked from before the queue lock is taken until after it was given back. */
SHMI_FN void shmi_mon_hold_signals(struct shmi_monitor *m)
{
    if (m->handlers)
        shmi_hold_signals();
}
SHMI_FN void shmi_mon_let_signals(struct shmi_monitor *m)
{
    if (m->handlers)
        shmi_let_signals();
}

/* Takes the queue lock, until abs, CLOCK_MONOTONIC ns, 0 for no end. Returns 0, ETIMEDOUT, EPROTO, EBADF, ENOTCONN. */
SHMI_FN int shmi_mon_enter(struct shmi_monitor *m, int64_t abs)
{
    int err;
    shmi_mon_hold_signals(m);
    err = shmi_mutex_lock(&m->queueLock, abs);
    if (err != 0)
        shmi_mon_let_signals(m);
    return err == EOWNERDEAD || err == ENOTRECOVERABLE ? EPROTO : err;
}

/* Takes the queue lock if it is free. */
SHMI_FN int shmi_mon_enter_free(struct shmi_monitor *m)
{
    shmi_mon_hold_signals(m);
    if (shmi_mutex_trylock(&m->queueLock) == 0)
        return 1;
    shmi_mon_let_signals(m);
    return 0;
}

/* Takes the queue lock if that does not take long. */
SHMI_FN int shmi_mon_try_enter(struct shmi_monitor *m)
{
    const int most = 20; /* its holder may be preempted or stopped */
    int tries, err;
    if (shmi_self(m->a) == 0)
        return 0;
    shmi_mon_hold_signals(m);
    for (tries = 0;; tries++) {
        if (shmi_mutex_trylock(&m->queueLock) == 0)
            return 1;
        err = 0;
        if (shmi_mutex_inherit(&m->queueLock, shmi_ld32(m->queueLock.own), &err))
            return 1;
        if (err != 0 || tries > most) {
            shmi_mon_let_signals(m);
            return 0;
        }
        if (tries < most / 2)
            shmi_pause(64);
        else
            shmi_yield();
    }
}

SHMI_FN void shmi_mon_reap(struct shmi_monitor *m, struct shmi_wakes *b);

/* Gives the queue lock back, and wakes those whose wait has ended; b may be NULL. */
SHMI_FN void shmi_mon_leave(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_wakes own;
    if (SHMI_UNLIKELY(__atomic_load_n(&m->cleaning_up, __ATOMIC_RELAXED) != 0) && shmi_xchg32(&m->cleaning_up, 0) != 0) {
        shmi_wakes_init(&own);
        if (b == NULL)
            b = &own;
        shmi_mon_reap(m, b);
    }
    if (shmi_is_broken(m))
        shmi_mon_rebuild(m);
    shmi_mutex_unlock(&m->queueLock);
    shmi_mon_let_signals(m);
    shmi_mon_wake(m, b);
}

SHMI_FN void shmi_change_set(struct shmi_change *c, uint64_t *w, uint64_t v)
{
    c->w[c->n] = w;
    c->v[c->n++] = v;
}

/* Makes a change, with the queue lock held. After a death either all of it happens, once a process takes the queue lock, or nothing. */
SHMI_FN void shmi_mon_commit(struct shmi_monitor *m, struct shmi_change *c)
{
    uint32_t i;
    if (c->n > 1) {
        for (i = 0; i < c->n; i++) {
            shmi_put(&m->w->redo[i].at, m->at + (uint64_t)((uintptr_t)c->w[i] - (uintptr_t)m->w));
            shmi_put(&m->w->redo[i].to, c->v[i]);
        }
        SHMSYNC_CRASHPOINT("monitor.commit.logged");
        __atomic_store_n(&m->w->redone, c->n, __ATOMIC_SEQ_CST);
    }
    for (i = 0; i < c->n; i++) {
        shmi_put(c->w[i], c->v[i]);
        SHMSYNC_CRASHPOINT("monitor.commit.begun");
    }
    if (c->n > 1)
        shmi_put(&m->w->redone, 0);
}

/* Takes a wait that is over, or that nobody is there for, out of the truth, after it was taken off its queue. */
SHMI_FN void shmi_mon_release_node(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t n = shmi_node_load(w.n), owner = shmi_owner_of(w);
    /* It is ours before it is off: if we die in between it goes with us. */
    int ours = shmi_node_state(n) == SHMI_NodeLeft && shmi_take_node(m->a, w.off, owner);
    __atomic_store_n(&w.n->stamp, 0, __ATOMIC_SEQ_CST);
    SHMSYNC_CRASHPOINT("monitor.released");
    if (ours)
        shmi_free_node(m->a, w.off);
    else if (shmi_mon_current(m, owner))
        shmi_reclaim_node(m->a, w.off, n);
    else if (((shmi_node_load(w.n) ^ n) & ~15u) == 0)
        shmi_reap_node_in(m->a, w.off, owner, n);
    /* Else it kept the node and died in another queue, whose kind does this. */
}

SHMI_FN void shmi_mon_discard(struct shmi_monitor *m, struct shmi_wait w)
{
    m->rules->detach(m, w);
    shmi_mon_release_node(m, w);
}

/* Takes a wait off its queue and resolves it, and says whether it did: its owner may have given up. If so the caller accounts for it. */
SHMI_FN int shmi_mon_end(struct shmi_monitor *m, struct shmi_wakes *b, struct shmi_wait w, uint32_t result, uint32_t aux)
{
    int telling = 0;
    uint32_t owner = shmi_owner_of(w);
    m->rules->detach(m, w);
    shmi_st64(&w.n->extra, shmi_outcome(shmi_class_of(w), result, aux));
    for (;;) {
        uint32_t n = shmi_node_load(w.n);
        if (!shmi_node_queued(n)) {
            if (telling)
                shmi_end_tell(m->a);
            shmi_mon_release_node(m, w);
            return 0;
        }
        if (!telling && shmi_node_state(n) == SHMI_NodeParked) {
            shmi_begin_tell(m->a); /* it ends with the wake */
            telling = 1;
        }
        if (shmi_node_swap(w.n, n, shmi_node_with(n, SHMI_NodeResolved))) {
            SHMSYNC_CRASHPOINT("monitor.resolve.resolved");
            shmi_wakes_add(m, b, w, shmi_node_state(n), owner);
            return 1;
        }
    }
}

/* Commits the change of state that a resolved wait stands for; c may be NULL. */
SHMI_FN void shmi_mon_account(struct shmi_monitor *m, struct shmi_wait w, struct shmi_change *c)
{
    if (c != NULL && c->n > 0) {
        shmi_change_set(c, &m->w->accounted, shmi_stamp_of(w));
        shmi_mon_commit(m, c);
        SHMSYNC_CRASHPOINT("monitor.account.committed");
    }
    shmi_mon_release_node(m, w);
}

/* Makes the queues anew from the nodes, which are the truth, and accounts for waits whose granter died over it. */
struct shmi_queued_wait {
    uint64_t stamp;
    struct shmi_wait w;
};
struct shmi_gather {
    struct shmi_monitor *m;
    struct shmi_queued_wait *all, next;
    size_t n, room;
    uint64_t stamp, off; /* of the last one, where there is no memory for all */
    int failed;
};

SHMI_FN void shmi_gather_one(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    struct shmi_gather *g = (struct shmi_gather *)arg;
    struct shmi_queued_wait q;
    (void)a;
    q.w.off = off;
    q.w.n = n;
    q.stamp = shmi_get(&n->stamp);
    if (q.stamp == 0 || (g->m->mine != NULL && !g->m->mine(g->m, q.w)))
        return;
    if (g->failed) {
        if ((q.stamp > g->stamp || (q.stamp == g->stamp && off > g->off)) &&
            (g->next.w.n == NULL || q.stamp < g->next.stamp || (q.stamp == g->next.stamp && off < g->next.w.off)))
            g->next = q;
        return;
    }
    if (g->n == g->room) {
        size_t room = g->room == 0 ? 64 : 2 * g->room;
        struct shmi_queued_wait *all = (struct shmi_queued_wait *)shmi_scratch(g->all, g->room * sizeof *all, room * sizeof *all);
        if (all == NULL) {
            g->failed = 1;
            return;
        }
        g->all = all;
        g->room = room;
    }
    g->all[g->n++] = q;
    return;
}

SHMI_FN int shmi_stamped_before(const struct shmi_queued_wait *x, const struct shmi_queued_wait *y)
{
    return x->stamp != y->stamp ? x->stamp < y->stamp : x->w.off < y->w.off;
}
/* Moves element i of a heap of n down to where it belongs. */
SHMI_FN void shmi_sift_waits(struct shmi_queued_wait *all, size_t i, size_t n)
{
    struct shmi_queued_wait w = all[i];
    size_t below;
    while ((below = 2 * i + 1) < n) {
        if (below + 1 < n && shmi_stamped_before(&all[below], &all[below + 1]))
            below++;
        if (!shmi_stamped_before(&w, &all[below]))
            break;
        all[i] = all[below];
        i = below;
    }
    all[i] = w;
}
/* Sorts by stamp. It is not qsort, which allocates: see shmi_scratch. */
SHMI_FN void shmi_sort_waits(struct shmi_queued_wait *all, size_t n)
{
    size_t i;
    for (i = n / 2; i-- > 0;)
        shmi_sift_waits(all, i, n);
    for (; n > 1; n--) {
        struct shmi_queued_wait last = all[n - 1];
        all[n - 1] = all[0];
        all[0] = last;
        shmi_sift_waits(all, 0, n - 1);
    }
}

SHMI_FN void shmi_mon_rebuild_one(struct shmi_monitor *m, struct shmi_wait w)
{
    if (shmi_node_over(shmi_node_load(w.n)) && shmi_stamp_of(w) != shmi_get(&m->w->accounted))
        m->rules->account(m, w);
    else if (shmi_mon_waiting(m, w))
        m->rules->requeue(m, w);
    else
        shmi_mon_release_node(m, w);
}

SHMI_FN void shmi_mon_rebuild(struct shmi_monitor *m)
{
    struct shmi_gather g;
    size_t i;
    shmi_set_broken(m, 0);
    memset(&g, 0, sizeof g);
    g.m = m;
    shmi_each_queued(m->a, m->o.off, shmi_gather_one, &g);
    m->rules->clear(m);
    if (g.failed) {
        /* One after the other: slow, and it needs no memory. */
        for (;;) {
            g.next.w.n = NULL;
            shmi_each_queued(m->a, m->o.off, shmi_gather_one, &g);
            if (g.next.w.n == NULL)
                break;
            g.stamp = g.next.stamp;
            g.off = g.next.w.off;
            shmi_mon_rebuild_one(m, g.next.w);
        }
    } else {
        shmi_sort_waits(g.all, g.n);
        for (i = 0; i < g.n; i++)
            shmi_mon_rebuild_one(m, g.all[i].w);
    }
    shmi_end_scratch(g.all, g.room * sizeof *g.all);
    shmi_set_broken(m, 0); /* or a peer overwrites the nodes */
}

/* Carries out what the dead one had committed. */
SHMI_FN int shmi_mon_redo(struct shmi_monitor *m)
{
    uint64_t n = shmi_get(&m->w->redone), i;
    if (n > SHMI_redoMost)
        return EPROTO;
    for (i = 0; i < n; i++) {
        uint64_t off = shmi_get(&m->w->redo[i].at);
        uint64_t *w = NULL;
        if (off >= m->o.body && off - m->o.body <= m->o.size)
            w = (uint64_t *)shmi_try_at(m->a, off, 8, 8);
        if (w == NULL)
            return EPROTO;
        __atomic_store_n(w, shmi_get(&m->w->redo[i].to), __ATOMIC_SEQ_CST);
    }
    __atomic_store_n(&m->w->redone, 0, __ATOMIC_SEQ_CST);
    return 0;
}

/* The first step of the next holder of the queue lock after the death of a holder. */
SHMI_FN int shmi_mon_replay(void *arg)
{
    struct shmi_monitor *m = (struct shmi_monitor *)arg;
    struct shmi_wakes b;
    int err = shmi_mon_redo(m);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("monitor.replay.redone");
    shmi_mon_rebuild(m);
    SHMSYNC_CRASHPOINT("monitor.replay.rebuilt");
    shmi_wakes_init(&b);
    m->rules->resolve(m, &b);
    shmi_mon_wake(m, &b);
    return 0;
}

/* Takes back what the dead have, and the waits that nobody is there for, with the queue lock held. */
SHMI_FN void shmi_mon_reap(struct shmi_monitor *m, struct shmi_wakes *b)
{
    SHMSYNC_CRASHPOINT("monitor.reap.entered");
    __atomic_store_n(&m->deaths, shmi_deaths(m->a), __ATOMIC_SEQ_CST);
    __atomic_store_n(&m->kept, 0, __ATOMIC_RELAXED);
    m->rules->reap(m);
    if (__atomic_load_n(&m->kept, __ATOMIC_RELAXED) != 0)
        shmi_follow(m->a);
    SHMSYNC_CRASHPOINT("monitor.reap.reclaimed");
    m->rules->discard_dead(m);
    m->rules->resolve(m, b);
}

/* Reaps, with the queue lock held, if a participant has died since the last time, or may be gone. */
SHMI_FN void shmi_mon_reap_if_due(struct shmi_monitor *m, struct shmi_wakes *b)
{
    if (__atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) != shmi_deaths(m->a) || shmi_mon_keeps(m))
        shmi_mon_reap(m, b);
}

/* A wait that its owner has given up: the node, unless it is in another use by now. */
struct shmi_abandoned {
    struct shmi_wait w;
    uint32_t word;
    uint64_t stamp;
};

SHMI_FN struct shmi_abandoned shmi_abandoned_of(const shmi_wait_node *s)
{
    struct shmi_abandoned l;
    l.w.off = s->off;
    l.w.n = s->node;
    l.word = shmi_node_with(shmi_node_load(s->node), SHMI_NodeLeft);
    l.stamp = shmi_ld64(&s->node->stamp);
    return l;
}

/* Takes a wait off that this process has given up, unless another process has done that. It does not wait for the queue lock. */
SHMI_FN void shmi_mon_clean_up(struct shmi_monitor *m, struct shmi_abandoned l)
{
    struct shmi_wakes b;
    if (!shmi_mon_try_enter(m)) {
        /* For the next thread of this process that leaves the queue lock, or for the check of a waiter. */
        shmi_st32(&m->cleaning_up, 1);
        return;
    }
    SHMSYNC_CRASHPOINT("monitor.cleanup.entered");
    shmi_wakes_init(&b);
    if (shmi_node_load(l.w.n) == l.word && shmi_stamp_of(l.w) == l.stamp && shmi_get(&l.w.n->object) == m->o.off) {
        m->rules->detach(m, l.w);
        shmi_mon_release_node(m, l.w);
        m->rules->resolve(m, &b);
    }
    shmi_mon_leave(m, &b);
}

/* Called ten times a second while a thread of this process waits. */
SHMI_FN void shmi_mon_check(struct shmi_monitor *m)
{
    const uint32_t resolve_every = 10;
    struct shmi_wakes b;
    m->rules->holders(m);
    shmi_wakes_init(&b);
    if (shmi_deaths(m->a) != __atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) || shmi_mon_keeps(m) || shmi_ld32(&m->dead_holder) != 0) {
        if (shmi_mon_try_enter(m)) {
            shmi_st32(&m->dead_holder, 0); /* a check finds it again if the reap has left it */
            shmi_mon_reap(m, &b);
            shmi_mon_leave(m, &b);
        }
    } else if (__atomic_add_fetch(&m->looks, 1, __ATOMIC_RELAXED) % resolve_every == 0 && shmi_mon_enter_free(m)) {
        m->rules->resolve(m, &b);
        shmi_mon_leave(m, &b);
    }
    if (m->rules->look != NULL)
        m->rules->look(m);
}

/*
 * Counts a call that may wait: until shmi_mon_finish the arena stays mapped, for what the call
 * does before, in and after its wait. It comes before the queue lock is taken. A caller that
 * has the queue lock returns the error and touches nothing: the arena may be gone, and its
 * close has given the lock back as after a death.
 */
SHMI_FN int shmi_mon_begin(struct shmi_monitor *m) { return shmi_enter(m->a, "monitor.wait"); }
SHMI_FN void shmi_mon_finish(struct shmi_monitor *m) { shmi_exit(m->a); }

/*
 * Gives a wait node to wait in, with the queue lock held. If it sets again, the queue lock had to be
 * left for that meanwhile, so the caller looks at the state once more. On an error the
 * queue lock has been left, and there is no wait node.
 */
SHMI_FN int shmi_mon_wait_node(struct shmi_monitor *m, int64_t abs, shmi_wait_node **wait_node, int *again)
{
    int err;
    *again = 0;
    if (*wait_node != NULL)
        return 0;
    *wait_node = shmi_wait_node_cached(m->a);
    if (*wait_node != NULL)
        return 0;
    shmi_mon_leave(m, NULL);
    err = shmi_wait_node_take(m->a, wait_node);
    if (err != 0) {
        *wait_node = NULL;
        return err;
    }
    err = shmi_mon_enter(m, abs);
    if (err != 0) {
        shmi_wait_node_return(m->a, *wait_node);
        *wait_node = NULL;
        return err;
    }
    *again = 1;
    return 0;
}

/* Gives back a wait node that was not queued; NULL is none. */
SHMI_FN void shmi_mon_return_node(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    if (wait_node != NULL)
        shmi_wait_node_return(m->a, wait_node);
}

/* Queues a wait node's node, with the queue lock held, in a call that counts. */
SHMI_FN void shmi_mon_join(struct shmi_monitor *m, shmi_wait_node *wait_node, uint32_t cls, uint64_t wanted)
{
    shmi_node *n = wait_node->node;
    struct shmi_wait w;
    uint32_t word = shmi_node_load(n);
    uint64_t stamp;
    w.off = wait_node->off;
    w.n = n;
    shmi_st64(&n->object, m->o.off);
    shmi_st64(&n->wanted, wanted);
    shmi_st64(&n->extra, shmi_outcome(cls, 0, 0));
    shmi_st64(&n->next, 0);
    shmi_st64(&n->ready_next, 0); /* it has no date: it is awake */
    shmi_node_swap(n, word, shmi_node_with(word, SHMI_NodeQueued));
    stamp = shmi_get(&m->w->arrivals) + 1;
    shmi_put(&m->w->arrivals, stamp);
    shmi_st64(&n->stamp, stamp);
    SHMSYNC_CRASHPOINT("monitor.queue.stamped");
    m->rules->requeue(m, w);
    SHMSYNC_CRASHPOINT("monitor.queue.linked");
}

/* Takes the result of a wait that was resolved, and gives the wait node back. */
SHMI_FN uint64_t shmi_mon_collect(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    uint64_t outcome;
    SHMSYNC_CRASHPOINT("monitor.await.resolved");
    outcome = shmi_get(&wait_node->node->extra);
    shmi_wait_node_leave(m->a, wait_node);
    return outcome;
}

/* Gives a wait up that was not resolved, and has it taken off: 0 if it was resolved. */
SHMI_FN int shmi_mon_give_up(struct shmi_monitor *m, shmi_wait_node *wait_node)
{
    struct shmi_abandoned left = shmi_abandoned_of(wait_node);
    if (!shmi_wait_node_abandon(m->a, wait_node))
        return 0;
    SHMSYNC_CRASHPOINT("monitor.await.given_up");
    shmi_mon_clean_up(m, left);
    return 1;
}

/*
 * Waits until the wait of a wait node that has joined is resolved. An error means that it is
 * not and never will be, and the wait node is gone: ETIMEDOUT, EBADF, ENOTCONN. After 0 the
 * caller collects.
 */
SHMI_FN int shmi_mon_sleep(struct shmi_monitor *m, shmi_wait_node *wait_node, int64_t abs)
{
    shmi_tuning t = shmi_mon_tuning(m);
    int err = shmi_enter(m->a, "monitor.wait");
    if (err != 0)
        return shmi_self(m->a) == 0 || shmi_mon_give_up(m, wait_node) ? err : 0;
    /* Where waits end one after the other, further spinners would take the CPUs from the first one and from the holder. */
    if ((__atomic_fetch_add(&m->waiting, 1, __ATOMIC_RELAXED) != 0 && m->one_spins) || !shmi_spin(&t, shmi_wait_node_resolved_arg, wait_node)) {
        while (!shmi_wait_node_resolved(wait_node)) {
            int r;
            shmi_mutex_check(&m->queueLock);
            r = shmi_wait_node_sleep(m->a, wait_node, m->o.off, abs);
            if (r == SHMI_LOOK)
                continue;
            if (r == SHMI_AGAIN) {
                uint32_t w = shmi_node_load(wait_node->node);
                if (shmi_node_queued(w) || shmi_node_state(w) == SHMI_NodeResolved)
                    continue;
                err = EPROTO; /* a peer wrote that */
            } else {
                err = r == SHMI_LATE ? ETIMEDOUT : EBADF;
            }
            if (shmi_mon_give_up(m, wait_node)) {
                __atomic_fetch_sub(&m->waiting, 1, __ATOMIC_RELAXED);
                shmi_exit(m->a);
                return err;
            }
        }
    }
    __atomic_fetch_sub(&m->waiting, 1, __ATOMIC_RELAXED);
    shmi_exit(m->a);
    return 0;
}

/* shmi_mon_sleep and the result. */
SHMI_FN int shmi_mon_await(struct shmi_monitor *m, shmi_wait_node *wait_node, int64_t abs, uint64_t *outcome)
{
    int err = shmi_mon_sleep(m, wait_node, abs);
    if (err == 0)
        *outcome = shmi_mon_collect(m, wait_node);
    return err;
}

SHMI_FN void shmi_mon_check_arg(void *m) { shmi_mon_check((struct shmi_monitor *)m); }

/* Makes a monitor at off in the body of o. A reaper's is on its stack. */
SHMI_FN void shmi_mon_init(struct shmi_monitor *m, shmsync_arena *a, const shmi_object *o, shmi_off off, const struct shmi_rules *rules)
{
    m->a = a;
    m->o = *o;
    m->w = (shmi_monitor_words *)shmi_ptr(a, off, sizeof(shmi_monitor_words), 8);
    m->at = off;
    m->rules = rules;
    m->mine = NULL;
    m->without = 0;
    m->broken = m->looks = m->dead_holder = m->waiting = m->cleaning_up = 0;
    m->kept = 0;
    m->handlers = m->one_spins = 0;
    m->deaths = shmi_deaths(a) - 1; /* the first check reaps */
    shmi_mutex_init(&m->queueLock, a, &m->w->queueLock, o->off, m->o.name_len != 0 ? m->o.name : NULL, 1);
    m->queueLock.queueLock = 1;
    m->queueLock.repair = shmi_mon_replay;
    m->queueLock.repair_arg = m;
    m->queueLock.also_check = shmi_mon_check_arg;
    m->queueLock.also_check_arg = m;
}

/* The end of a handle: objects have their monitor at their head. */
SHMI_FN void shmi_mon_free(void *handle) { shmi_free_thing(handle); }

/* The reaper's work on an object whose monitor has been made. */
SHMI_FN void shmi_mon_repair(struct shmi_monitor *m, shmi_participant_id dead)
{
    struct shmi_wakes b;
    shmi_mutex_repair_words(m->a, &m->w->queueLock, dead, 1, NULL);
    if (dead == m->a->self)
        m->without = dead; /* others are not current, or another participant has the ID by now */
    if (shmi_mon_try_enter(m)) {
        shmi_wakes_init(&b);
        shmi_mon_reap(m, &b);
        shmi_mon_leave(m, &b);
    }
}

/* The wake of objects that begin with a monitor. */
SHMI_FN void shmi_mon_wake_object(shmsync_arena *a, const shmi_object *o, int owed)
{
    shmi_monitor_words *w = (shmi_monitor_words *)shmi_try_at(a, o->body, sizeof *w, 8);
    if (w != NULL)
        shmi_mutex_wake_words(a, &w->queueLock, owed);
}

/* 0, or ENOTCONN in a child of fork. */
SHMI_FN int shmi_use(shmsync_arena *a, const char *op) { return SHMI_LIKELY(shmi_self(a) != 0) ? 0 : shmi_fail(shmi_nameless(a), op, NULL, "%s", ""); }

/* ---- What objects share that are let go together, or are opened alike ---- */

/* How a wait ended. */
enum { SHMI_outcomeOpen, SHMI_outcomeDead };

/* Reaps, with the queue lock held, wakes whom that lets go, and takes the queue lock again. */
SHMI_FN int shmi_mon_reap_and_enter(struct shmi_monitor *m, int64_t abs)
{
    struct shmi_wakes b;
    shmi_wakes_init(&b);
    shmi_mon_reap(m, &b);
    shmi_mon_leave(m, &b);
    return shmi_mon_enter(m, abs);
}

/* The end of a call that may have let waiters go. */
SHMI_FN void shmi_mon_resolve_and_leave(struct shmi_monitor *m)
{
    struct shmi_wakes b;
    shmi_wakes_init(&b);
    m->rules->resolve(m, &b);
    shmi_mon_leave(m, &b);
}

/*
 * Queues a wait unless over says, with the queue lock held, that there is nothing to wait for.
 * It begins with the queue lock held and ends without it. No wait node without an error means that
 * over was true; otherwise the caller awaits the wait node.
 */
SHMI_FN int shmi_mon_enqueue(struct shmi_monitor *m, int64_t abs, uint64_t wanted, int (*over)(struct shmi_monitor *m, void *arg), void *arg, shmi_wait_node **wait_node)
{
    int err, again = 1;
    *wait_node = NULL;
    while (again) {
        if (over(m, arg)) {
            shmi_mon_leave(m, NULL);
            shmi_mon_return_node(m, *wait_node);
            *wait_node = NULL;
            return 0;
        }
        if (__atomic_load_n(&m->deaths, __ATOMIC_SEQ_CST) != shmi_deaths(m->a)) {
            err = shmi_mon_reap_and_enter(m, abs);
            if (err != 0) {
                shmi_mon_return_node(m, *wait_node);
                *wait_node = NULL;
                return err;
            }
            continue;
        }
        err = shmi_mon_wait_node(m, abs, wait_node, &again);
        if (err != 0)
            return err;
    }
    shmi_mon_join(m, *wait_node, 0, wanted);
    shmi_mon_leave(m, NULL);
    return 0;
}

/* Ends every wait of a queue with one result. */
SHMI_FN void shmi_mon_end_all(struct shmi_monitor *m, struct shmi_wakes *b, shmi_list_words *q, uint32_t result, uint32_t aux)
{
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, q)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (shmi_mon_end(m, b, w, result, aux))
            shmi_mon_account(m, w, NULL);
    }
}

/* Opens an object of a kind and gives this process's handle on it. */
SHMI_FN int shmi_mon_open(shmsync_arena *a, const shmi_spec *spec, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, int *created, void **impl)
{
    shmi_object o;
    int err = shmi_open_object(a, spec, &o, created);
    *impl = NULL;
    if (err != 0)
        return err;
    *impl = shmi_share(a, &o, build, arg);
    return *impl != NULL ? 0 : shmi_last.err;
}
SHMI_FN int shmi_mon_at(shmsync_arena *a, shmi_off off, const char *op, uint32_t kind, uint16_t version, uint64_t size, void *(*build)(shmsync_arena *, const shmi_object *, const void *), const void *arg, void **impl)
{
    shmi_object o;
    int err = shmi_object_at(a, off, op, kind, version, size, &o);
    *impl = NULL;
    if (err != 0)
        return err;
    *impl = shmi_share(a, &o, build, arg);
    return *impl != NULL ? 0 : shmi_last.err;
}
SHMI_FN int shmi_mon_close(struct shmi_monitor *m) { return shmi_unshare(m->a, m->o.off, shmi_mon_free); }

/* The body of a kind that begins with monitor words, of which nothing but the spinning is set. */
SHMI_FN void shmi_mon_fill(unsigned char *body, const void *arg) { ((shmi_monitor_words *)(void *)body)->spin = *(const uint32_t *)arg; }
SHMI_FN void shmi_mon_spec(shmi_spec *spec, uint32_t kind, uint16_t version, const char *name, uint64_t size)
{
    memset(spec, 0, sizeof *spec);
    spec->kind = kind;
    spec->version = version;
    spec->name = name;
    spec->size = size;
    spec->init = shmi_mon_fill;
}
/*
 * Sequencers: a counter outside the queue lock, and waiters until it has reached a token, in a
 * leftist heap. It is prims/sequencer*.go in C. An Event that is reset by hand is one, too.
 */

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
/* The rank of w, a byte that wraps where a peer wrote it; 0 if there is no w. */
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
            shmi_set_broken(m, 1); /* what is on the path is found again by its stamp */
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
            return; /* and all is rebuilt */
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
                shmi_set_broken(m, 1); /* which drops the waits that are left over */
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

/* The counter and its waits: a Sequencer, or the part of an Event that is reset by hand. */
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
    shmi_put(&q->w->canceled, shmi_get(&q->m.w->arrivals));
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
    __atomic_store_n(&q->w->next, SHMI_ANYBODY, __ATOMIC_SEQ_CST); /* until the next resolving */
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
    shmi_spec spec;
    shmi_sequencer_spec init;
    shmi_object o;
    int err, created;
    out->impl = NULL;
    init.initial = opts != NULL ? opts->initial : 0;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_SEQUENCER;
    spec.version = SHMI_VERSION_SEQUENCER;
    spec.name = name;
    spec.size = sizeof(shmi_sequence_words);
    spec.init = shmi_sequencer_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_sequencer_handle(a, &o, out);
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
    return SHMI_TELL(err != 0 ? err : shmi_sequencer_handle(a, &o, out));
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
/*
 * Events: one that is reset by hand is a sequence, odd while it is set; one with automatic
 * reset has a token. It is prims/event*.go in C.
 */

enum { SHMI_eventAuto = 1, SHMI_eventBidirectional = 2 };
/* Where the token is. */
enum { SHMI_eventUnset, SHMI_eventSet, SHMI_eventHand, SHMI_eventTaken };
/* Where the token of a wait came from. */
enum { SHMI_outcomeHand, SHMI_outcomeSpare };

typedef struct shmi_event_share {
    uint64_t name;
    uint64_t handed;
    uint64_t acked;
    uint64_t pad0_;
} shmi_event_share;
SHMI_ASSERT(sizeof(shmi_event_share) == 32, "shmi_event_share");

struct shmi_event {
    struct shmi_sequence q; /* its monitor is that of both */
    shmi_event_words *w;
    shmi_event_share *shares; /* of the slots, from slot 1 */
    uint32_t slots;
    uint32_t mode;
};

SHMI_FN uint64_t shmi_event_bytes(uint32_t mode, uint32_t slots)
{
    return sizeof(shmi_event_words) + (mode & SHMI_eventAuto ? (uint64_t)slots * sizeof(shmi_event_share) : 0);
}

SHMI_FN uint64_t shmi_event_load(struct shmi_event *e) { return shmi_ld64(&e->q.w->value); }
SHMI_FN uint32_t shmi_event_place(uint64_t s) { return (uint32_t)(s & SHMI_EVENT_PLACE_MASK); }
SHMI_FN int shmi_event_swap(struct shmi_event *e, uint64_t s, uint32_t place)
{
    return shmi_cas64(&e->q.w->value, s, ((s + SHMI_EVENT_PLACE_MASK + 1) & ~SHMI_EVENT_PLACE_MASK) | place);
}

/* How many tokens were handed to the participant and not seen by it, as far as a peer's bytes can claim. */
SHMI_FN uint64_t shmi_event_unknown(shmi_event_share *h)
{
    int64_t n = (int64_t)(shmi_get(&h->handed) - shmi_get(&h->acked));
    return n <= 0 ? 0 : n > INT64_C(1) << 32 ? UINT64_C(1) << 32 : (uint64_t)n;
}

/* Takes the token of a wait that has ended from where it was, and notes whom it was handed to. */
SHMI_FN void shmi_event_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_participant_id owner = shmi_owner_of(w);
    uint32_t slot = owner & 0x7ffu;
    uint64_t had = shmi_get(&e->w->spare), spare = had;
    shmi_event_share *h;
    struct shmi_change c;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_outcomeHand) {
        uint64_t s = shmi_event_load(e);
        if (shmi_event_place(s) == SHMI_eventHand) {
            shmi_event_swap(e, s, SHMI_eventUnset);
            SHMSYNC_CRASHPOINT("event.hand.given");
        }
    } else if (spare > 0) {
        spare--;
    }
    h = slot >= 1 && slot <= e->slots ? &e->shares[slot - 1] : NULL;
    if (h == NULL || shmi_get(&h->name) != owner) {
        shmi_mon_account(m, w, NULL); /* a peer wrote that: whose wait is queued has inherited */
        return;
    }
    c.n = 0;
    shmi_change_set(&c, &h->handed, shmi_get(&h->handed) + 1);
    if (spare != had)
        shmi_change_set(&c, &e->w->spare, spare);
    shmi_mon_account(m, w, &c);
}

SHMI_FN void shmi_event_grant(struct shmi_event *e, struct shmi_wakes *b, struct shmi_wait w, uint32_t from)
{
    if (shmi_mon_end(&e->q.m, b, w, from, 0))
        shmi_event_account(&e->q.m, w);
}

/* Hands tokens out while there are any and a wait is queued, and otherwise leaves one, at most, where it can be claimed. */
SHMI_FN void shmi_event_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_event *e = (struct shmi_event *)m;
    while (!shmi_is_broken(m)) {
        struct shmi_wait w = shmi_fifo_head(m, &e->w->queue);
        int queued = w.n != NULL;
        uint64_t s;
        uint32_t place;
        if (queued && !shmi_mon_waiting(m, w)) {
            shmi_mon_discard(m, w);
            continue;
        }
        s = shmi_event_load(e);
        place = shmi_event_place(s);
        if (place == SHMI_eventTaken) {
            shmi_put(&e->w->spare, 0);
            shmi_event_swap(e, s, SHMI_eventSet);
        } else if (queued && place == SHMI_eventHand) {
            shmi_event_grant(e, b, w, SHMI_outcomeHand);
        } else if (queued && shmi_get(&e->w->spare) > 0) {
            shmi_event_grant(e, b, w, SHMI_outcomeSpare);
        } else if (queued && place == SHMI_eventSet) {
            shmi_event_swap(e, s, SHMI_eventHand);
            SHMSYNC_CRASHPOINT("event.hand.taken");
        } else if (queued) {
            return;
        } else if (place == SHMI_eventHand) {
            shmi_event_swap(e, s, SHMI_eventSet);
        } else if (shmi_get(&e->w->spare) > 0) {
            shmi_event_swap(e, s, SHMI_eventTaken);
            SHMSYNC_CRASHPOINT("event.spare.taken");
        } else {
            if (shmi_ld64(&e->q.w->next) != SHMI_NOBODY)
                shmi_st64(&e->q.w->next, SHMI_NOBODY);
            return;
        }
    }
}

SHMI_FN void shmi_event_clear(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_fifo_clear(&e->w->queue);
    shmi_st64(&e->q.w->next, SHMI_ANYBODY); /* until the next resolve every set looks for waits */
}
SHMI_FN void shmi_event_requeue(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_event *e = (struct shmi_event *)m;
    shmi_fifo_requeue(m, &e->w->queue, w);
    if (shmi_ld64(&e->q.w->next) == SHMI_NOBODY)
        shmi_st64(&e->q.w->next, SHMI_ANYBODY);
}
SHMI_FN void shmi_event_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_event *)m)->w->queue, w); }
SHMI_FN void shmi_event_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_event *)m)->w->queue); }

/* Takes back the tokens that the gone did not get to know of. */
SHMI_FN void shmi_event_reap(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    uint32_t i;
    for (i = 0; i < e->slots; i++) {
        shmi_event_share *h = &e->shares[i];
        uint64_t n = shmi_event_unknown(h);
        if (n > 0 && shmi_mon_gone(m, (shmi_participant_id)(shmi_get(&h->name) & SHMI_NAME_MASK))) {
            struct shmi_change c;
            c.n = 0;
            shmi_change_set(&c, &h->handed, shmi_get(&h->acked));
            shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + n);
            shmi_mon_commit(m, &c);
        }
    }
}
SHMI_FN void shmi_event_holders(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    uint32_t i;
    for (i = 0; i < e->slots; i++)
        if (shmi_event_unknown(&e->shares[i]) > 0)
            shmi_mon_heed(m, (shmi_participant_id)(shmi_get(&e->shares[i].name) & SHMI_NAME_MASK));
}
SHMI_FN void shmi_event_check(struct shmi_monitor *m)
{
    struct shmi_event *e = (struct shmi_event *)m;
    if ((shmi_event_place(shmi_event_load(e)) != SHMI_eventUnset || shmi_get(&e->w->spare) > 0) &&
        shmi_ld64(&e->q.w->next) != SHMI_NOBODY && shmi_mon_try_enter(m)) {
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_event_resolve(m, &b);
        shmi_mon_leave(m, &b);
    }
}

static __attribute__((unused)) const struct shmi_rules shmi_event_rules = {
    shmi_event_resolve, shmi_event_account, shmi_event_clear, shmi_event_requeue, shmi_event_detach,
    shmi_event_discard_dead, shmi_event_reap, shmi_event_holders, shmi_event_check,
};

/* Takes the token if it is there and nobody is queued for it. */
SHMI_FN int shmi_event_claim(struct shmi_event *e)
{
    uint64_t s = shmi_event_load(e);
    return shmi_event_place(s) == SHMI_eventSet && shmi_ld64(&e->q.w->next) == SHMI_NOBODY && shmi_event_swap(e, s, SHMI_eventUnset);
}

SHMI_FN int shmi_event_set_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    uint64_t s = shmi_event_load(e);
    int err, done = 0;
    if (shmi_event_place(s) == SHMI_eventSet) {
        if (shmi_ld64(&e->q.w->next) == SHMI_NOBODY && shmi_event_load(e) == s)
            return 0;
    } else if (shmi_event_place(s) == SHMI_eventUnset) {
        done = shmi_event_swap(e, s, SHMI_eventSet);
        if (done && shmi_ld64(&e->q.w->next) == SHMI_NOBODY)
            return 0;
    }
    if (done)
        SHMSYNC_CRASHPOINT("event.set.stored");
    err = shmi_mon_enter(&e->q.m, 0);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    for (;;) {
        shmi_event_resolve(&e->q.m, &b);
        /* Now there is no token, or nobody is queued. */
        s = shmi_event_load(e);
        if (done || shmi_event_place(s) == SHMI_eventSet || shmi_is_broken(&e->q.m))
            break;
        done = shmi_event_swap(e, s, SHMI_eventSet);
    }
    shmi_mon_leave(&e->q.m, &b);
    return 0;
}

SHMI_FN int shmi_event_reset_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    uint64_t s = shmi_event_load(e);
    int err;
    if (shmi_event_place(s) == SHMI_eventUnset ||
        (shmi_event_place(s) == SHMI_eventSet && shmi_ld64(&e->q.w->next) == SHMI_NOBODY && shmi_event_swap(e, s, SHMI_eventUnset)))
        return 0;
    err = shmi_mon_enter(&e->q.m, 0);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    shmi_event_resolve(&e->q.m, &b);
    for (s = shmi_event_load(e); shmi_event_place(s) == SHMI_eventSet && !shmi_event_swap(e, s, SHMI_eventUnset); s = shmi_event_load(e)) {
    }
    shmi_mon_leave(&e->q.m, &b);
    return 0;
}

SHMI_FN int shmi_event_is_set_auto(struct shmi_event *e)
{
    uint64_t s = shmi_event_load(e);
    if (shmi_event_place(s) == SHMI_eventSet && !(shmi_ld64(&e->q.w->next) == SHMI_NOBODY && shmi_event_load(e) == s) && shmi_mon_try_enter(&e->q.m)) {
        /* The token may be handed to a waiter; or no waiter is there for it any more. */
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_event_resolve(&e->q.m, &b);
        s = shmi_event_load(e);
        shmi_mon_leave(&e->q.m, &b);
    }
    return shmi_event_place(s) == SHMI_eventSet;
}

SHMI_FN int shmi_event_try_auto(struct shmi_event *e)
{
    struct shmi_wakes b;
    int ok;
    if (shmi_event_claim(e))
        return 0;
    if (shmi_event_place(shmi_event_load(e)) == SHMI_eventUnset || !shmi_mon_try_enter(&e->q.m))
        return EBUSY;
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&e->q.m, &b);
    shmi_event_resolve(&e->q.m, &b);
    ok = shmi_event_claim(e);
    shmi_mon_leave(&e->q.m, &b);
    return ok ? 0 : EBUSY;
}

/* Makes the share of this process's slot its own, with the queue lock held, before it waits. */
SHMI_FN void shmi_event_inherit(struct shmi_event *e, shmi_participant_id n)
{
    shmi_event_share *h = &e->shares[(n & 0x7ffu) - 1];
    struct shmi_change c;
    if (shmi_get(&h->name) == n)
        return;
    c.n = 0;
    shmi_change_set(&c, &h->name, n);
    shmi_change_set(&c, &h->handed, shmi_get(&h->acked));
    shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + shmi_event_unknown(h));
    shmi_mon_commit(&e->q.m, &c);
}

/* Begins a wait. No wait node: the token was claimed, or the error says why there is nothing to wait for. Without take a token that is there
 * is not claimed but handed to the wait, which can pass it on. */
SHMI_FN int shmi_event_register(struct shmi_event *e, int take, int64_t abs, shmi_wait_node **out)
{
    struct shmi_monitor *m = &e->q.m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    int err, again;
    *out = NULL;
    err = shmi_mon_enter(m, abs);
    if (err != 0)
        return err;
    shmi_wakes_init(&b);
    do {
        shmi_mon_reap_if_due(m, &b);
        shmi_event_resolve(m, &b);
        if (take && shmi_event_claim(e)) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return 0;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_event_inherit(e, m->a->self);
    shmi_mon_join(m, wait_node, 0, 0);
    SHMSYNC_CRASHPOINT("event.wait.announced");
    /* The second check: a set before it has not seen that this wait is queued. */
    shmi_event_resolve(m, &b);
    shmi_mon_leave(m, &b);
    *out = wait_node;
    return 0;
}
/* Says that this process knows of a token that was handed to it. */
SHMI_FN void shmi_event_ack(struct shmi_event *e)
{
    shmi_add64(&e->shares[e->q.m.a->my_slot - 1].acked, 1);
    SHMSYNC_CRASHPOINT("event.wait.acked");
}
/* Gives a token back that was handed to a wait of this process, which has collected it and not acked. */
SHMI_FN void shmi_event_pass(struct shmi_event *e)
{
    shmi_event_share *h = &e->shares[e->q.m.a->my_slot - 1];
    struct shmi_wakes b;
    if (shmi_mon_enter(&e->q.m, 0) != 0)
        return; /* this process leaves, and is reaped; or all is corrupt */
    shmi_wakes_init(&b);
    shmi_event_resolve(&e->q.m, &b); /* what is spare in state taken is void, so that has to be over */
    if (shmi_event_unknown(h) > 0 && shmi_get(&h->name) == e->q.m.a->self) {
        struct shmi_change c;
        c.n = 0;
        shmi_change_set(&c, &h->handed, shmi_get(&h->handed) - 1);
        shmi_change_set(&c, &e->w->spare, shmi_get(&e->w->spare) + 1);
        shmi_mon_commit(&e->q.m, &c);
        SHMSYNC_CRASHPOINT("event.pass.passed");
        shmi_event_resolve(&e->q.m, &b);
    }
    shmi_mon_leave(&e->q.m, &b);
}
SHMI_FN int shmi_event_wait_auto(struct shmi_event *e, int64_t abs)
{
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int err;
    if (shmi_event_claim(e))
        return 0;
    err = shmi_mon_begin(&e->q.m);
    if (err != 0)
        return err;
    err = shmi_event_register(e, 1, abs, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&e->q.m, wait_node, abs, &outcome);
        if (err == 0)
            shmi_event_ack(e);
    }
    shmi_mon_finish(&e->q.m);
    return err;
}

/* Makes the counter odd or even. */
SHMI_FN int shmi_event_turn(struct shmi_event *e, uint64_t set)
{
    for (;;) {
        uint64_t v = shmi_event_load(e);
        if ((v & 1) == set)
            return 0;
        if (shmi_cas64(&e->q.w->value, v, v + 1))
            return shmi_seq_counted(&e->q, v + 1);
    }
}

/* Waits until the counter is odd, or even. */
SHMI_FN int shmi_event_until(struct shmi_event *e, uint64_t set, int64_t abs)
{
    uint64_t v = shmi_event_load(e);
    return (v & 1) == set ? 0 : shmi_seq_wait(&e->q, v + 1, abs);
}

/* The mode of an Event, if its body is long enough for that; or -1. */
SHMI_FN int shmi_event_mode_of(shmsync_arena *a, const shmi_object *o)
{
    uint32_t slots = a->geo.slots, mode;
    if (o->size < shmi_event_bytes(0, slots))
        return -1;
    mode = shmi_ld32(&((shmi_event_words *)shmi_ptr(a, o->body, sizeof(shmi_event_words), 8))->mode);
    return mode <= SHMI_eventBidirectional && o->size >= shmi_event_bytes(mode, slots) ? (int)mode : -1;
}

SHMI_FN void shmi_event_build(struct shmi_event *e, shmsync_arena *a, const shmi_object *o, uint32_t mode)
{
    shmi_seq_init(&e->q, a, o);
    e->w = (shmi_event_words *)shmi_ptr(a, o->body, sizeof(shmi_event_words), 8);
    e->shares = (shmi_event_share *)(void *)(e->w + 1);
    e->slots = mode & SHMI_eventAuto ? a->geo.slots : 0;
    e->mode = mode;
    if (mode & SHMI_eventAuto)
        e->q.m.rules = &shmi_event_rules;
}

typedef struct shmi_event_spec {
    uint32_t mode, spin;
    int set;
} shmi_event_spec;

SHMI_FN void shmi_event_fill(unsigned char *body, const void *arg)
{
    shmi_event_words *w = (shmi_event_words *)(void *)body;
    const shmi_event_spec *s = (const shmi_event_spec *)arg;
    w->mode = s->mode;
    w->sequence.value = s->set != 0; /* set, in either mode */
    w->sequence.mon.spin = s->spin;
}

SHMI_FN void *shmi_event_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_event *e = (struct shmi_event *)shmi_new_thing(sizeof *e);
    if (e != NULL)
        shmi_event_build(e, a, o, *(const uint32_t *)arg);
    return e;
}

SHMI_FN int shmi_event_handle(shmsync_arena *a, const shmi_object *o, shmsync_event *out)
{
    int is = shmi_event_mode_of(a, o);
    uint32_t mode = (uint32_t)is;
    if (is < 0) {
        shmi_close_object(a, o->off);
        return shmi_fail(EPROTO, "event.open", shmi_called(o), "its mode does not go with its size");
    }
    return SHMI_HAND_OUT(out, struct shmi_event *, shmi_share(a, o, shmi_event_new, &mode));
}

SHMI_FN int shmi_open_event(int existing, shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    shmi_spec spec;
    shmi_event_spec init;
    shmi_object o;
    int err, created;
    out->impl = NULL;
    memset(&init, 0, sizeof init);
    if (opts != NULL) {
        init.mode = (opts->auto_reset ? (uint32_t)SHMI_eventAuto : 0u) | (opts->bidirectional ? (uint32_t)SHMI_eventBidirectional : 0u);
        init.set = opts->set;
        init.spin = shmi_spin_field(opts->spin_ns);
    }
    if (init.mode > SHMI_eventBidirectional)
        return shmi_fail(EINVAL, "event.open", name, "auto_reset and bidirectional");
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_EVENT;
    spec.version = SHMI_VERSION_EVENT;
    spec.name = name;
    spec.size = shmi_event_bytes(init.mode, a->geo.slots);
    spec.any_size = 1;
    spec.init = shmi_event_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    if (err == 0)
        err = shmi_event_handle(a, &o, out);
    if (err == 0 && !created && (init.mode & ~out->impl->mode) != 0) {
        shmsync_event_close(out);
        err = shmi_fail(EINVAL, "event.open", name, "it is of another mode than was asked for");
    }
    return err;
}
int shmsync_event_open(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_event(0, a, name, opts, out));
}
int shmsync_event_attach(shmsync_arena *a, const char *name, const shmsync_event_options *opts, shmsync_event *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_event(1, a, name, opts, out));
}

int shmsync_event_at(shmsync_arena *a, shmsync_offset off, shmsync_event *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "event.open", SHMI_KIND_EVENT, SHMI_VERSION_EVENT, shmi_event_bytes(0, a->geo.slots), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_event_handle(a, &o, out));
}

int shmsync_event_close(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err;
    if (e->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(e->impl->q.m.a, e->impl->q.m.o.off, shmi_mon_free);
    if (err == 0)
        e->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_event_offset(const shmsync_event *e)
{
    SHMI_OPENED_OR(e, 0);
    return e->impl->q.m.o.off;
}

int shmsync_event_set(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->q.m.a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(e->impl->mode & SHMI_eventAuto ? shmi_event_set_auto(e->impl) : shmi_event_turn(e->impl, 1));
}
int shmsync_event_reset(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->q.m.a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    return SHMI_TELL(e->impl->mode & SHMI_eventAuto ? shmi_event_reset_auto(e->impl) : shmi_event_turn(e->impl, 0));
}
int shmsync_event_is_set(const shmsync_event *e)
{
    SHMI_OPENED_OR(e, 0);
    if (shmi_use(e->impl->q.m.a, "event") != 0)
        return 0;
    return e->impl->mode & SHMI_eventAuto ? shmi_event_is_set_auto(e->impl) : (shmi_event_load(e->impl) & 1) != 0;
}

SHMI_FN int shmi_event_await(shmsync_event *e, int64_t abs)
{
    int err = shmi_use(e->impl->q.m.a, "event");
    if (err != 0)
        return err;
    return e->impl->mode & SHMI_eventAuto ? shmi_event_wait_auto(e->impl, abs) : shmi_event_until(e->impl, 1, abs);
}
int shmsync_event_wait(shmsync_event *e)
{
    SHMI_OPENED(e);
    return SHMI_TELL(shmi_event_await(e, 0));
}
int shmsync_event_timedwait(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_event_await(e, ns));
}
int shmsync_event_trywait(shmsync_event *e)
{
    SHMI_OPENED(e);
    int err = shmi_use(e->impl->q.m.a, "event");
    if (err != 0)
        return SHMI_TELL(err);
    if (e->impl->mode & SHMI_eventAuto)
        return SHMI_TELL(shmi_event_try_auto(e->impl));
    return SHMI_TELL(shmi_event_load(e->impl) & 1 ? 0 : EBUSY);
}
SHMI_FN int shmi_event_await_reset(shmsync_event *e, int64_t abs)
{
    int err = shmi_use(e->impl->q.m.a, "event");
    if (err != 0)
        return err;
    if (!(e->impl->mode & SHMI_eventBidirectional))
        return shmi_fail(EINVAL, "event.wait_reset", e->impl->q.m.queueLock.called, "it is not bidirectional");
    return shmi_event_until(e->impl, 0, abs);
}
int shmsync_event_wait_reset(shmsync_event *e)
{
    SHMI_OPENED(e);
    return SHMI_TELL(shmi_event_await_reset(e, 0));
}
int shmsync_event_timedwait_reset(shmsync_event *e, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(e);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_event_await_reset(e, ns));
}

/* The reaper's side. */
SHMI_FN void shmi_repair_event(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_event e;
    int mode = shmi_event_mode_of(a, o);
    if (mode < 0)
        return;
    shmi_event_build(&e, a, o, (uint32_t)mode);
    shmi_mon_repair(&e.q.m, dead);
}
/*
 * Queues: bounded queues of items of one size. It is prims/queue*.go in C: the slots are
 * the truth, order and counts are an index over them.
 */

enum { SHMI_queuePut, SHMI_queueGet, SHMI_queueLease };            /* classes of waits */
enum { SHMI_queueGranted, SHMI_queueStopped, SHMI_queueCorrupt };  /* how they end */
enum { SHMI_queueFree, SHMI_queueFull, SHMI_queueGiven, SHMI_queueLeased }; /* kinds of a slot */
#define SHMI_QUEUE_ITEM_MOST 65536u
#define SHMI_QUEUE_CAPACITY_MOST (UINT32_C(1) << 30)

typedef struct shmi_queue_slot {
    uint64_t state;
    uint64_t seq;
    uint64_t next;
} shmi_queue_slot;

struct shmi_queue {
    struct shmi_monitor m;
    shmi_queue_words *w;
    uint32_t capacity;
    uint64_t item, stride;
    uint64_t stage; /* a claimed block that no put uses, 0 if there is none */
};

SHMI_FN uint64_t shmi_queue_stride(uint64_t item) { return sizeof(shmi_queue_slot) + ((item + 7) & ~UINT64_C(7)); }
SHMI_FN uint32_t shmi_low(uint64_t p) { return (uint32_t)p; }
SHMI_FN uint32_t shmi_high(uint64_t p) { return (uint32_t)(p >> 32); }
SHMI_FN uint64_t shmi_pair(uint32_t low, uint32_t high) { return (uint64_t)high << 32 | low; }

SHMI_FN uint64_t shmi_queue_state(uint32_t kind, shmi_participant_id n, uint32_t times) { return n | (uint64_t)kind << 29 | (uint64_t)times << 32; }
SHMI_FN uint32_t shmi_queue_kind(uint64_t s) { return (uint32_t)(s >> 29 & 7); }
SHMI_FN shmi_participant_id shmi_queue_name(uint64_t s) { return (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN int shmi_queue_out(uint64_t s) { return shmi_queue_kind(s) == SHMI_queueGiven || shmi_queue_kind(s) == SHMI_queueLeased; }
SHMI_FN int shmi_queue_valid(uint64_t s)
{
    switch (shmi_queue_kind(s)) {
    case SHMI_queueFree:
        return s == 0;
    case SHMI_queueFull:
        return shmi_queue_name(s) == 0;
    case SHMI_queueGiven:
        return shmi_queue_name(s) != 0;
    case SHMI_queueLeased:
        return shmi_queue_name(s) != 0 && shmi_high(s) != 0;
    }
    return 0;
}
/* The state of a full slot once its item was given to n. */
SHMI_FN uint64_t shmi_queue_to(uint64_t s, uint32_t cls, shmi_participant_id n)
{
    uint32_t times = shmi_high(s);
    if (cls == SHMI_queueLease)
        return shmi_queue_state(SHMI_queueLeased, n, times + 1 != 0 ? times + 1 : 1);
    return shmi_queue_state(SHMI_queueGiven, n, times);
}

SHMI_FN shmi_queue_slot *shmi_queue_at(struct shmi_queue *x, uint32_t i)
{
    if (i - 1 >= x->capacity) /* 0 wraps */
        return NULL;
    return (shmi_queue_slot *)(void *)((char *)x->w + sizeof(shmi_queue_words) + (uint64_t)(i - 1) * x->stride);
}
SHMI_FN void *shmi_queue_item(shmi_queue_slot *s) { return s + 1; }

/* What follows is called with the queue lock held. Each changes the truth by one store, of the
 * state word; what comes after it is the index. */

SHMI_FN shmi_queue_slot *shmi_queue_expect(struct shmi_queue *x, uint32_t i, uint32_t kind)
{
    shmi_queue_slot *s;
    if (i == 0)
        return NULL;
    s = shmi_queue_at(x, i);
    if (s == NULL || shmi_queue_kind(shmi_get(&s->state)) != kind) {
        shmi_set_broken(&x->m, 1);
        return NULL;
    }
    return s;
}
SHMI_FN shmi_queue_slot *shmi_queue_first(struct shmi_queue *x, uint32_t *i)
{
    *i = shmi_low(shmi_get(&x->w->ends));
    return shmi_queue_expect(x, *i, SHMI_queueFull);
}
SHMI_FN shmi_queue_slot *shmi_queue_spare(struct shmi_queue *x, uint32_t *i)
{
    *i = shmi_low(shmi_get(&x->w->free));
    return shmi_queue_expect(x, *i, SHMI_queueFree);
}
/* A slot that a put may fill now, NULL if it has to wait. */
SHMI_FN shmi_queue_slot *shmi_queue_room(struct shmi_queue *x, uint32_t *i)
{
    if (!shmi_fifo_empty(&x->w->putters) || shmi_get(&x->w->stopped) != 0)
        return NULL;
    return shmi_queue_spare(x, i);
}
/* The slot of an item that a get may have now, NULL if it has to wait. */
SHMI_FN shmi_queue_slot *shmi_queue_ready(struct shmi_queue *x, uint32_t *i)
{
    return shmi_fifo_empty(&x->w->getters) ? shmi_queue_first(x, i) : NULL;
}

SHMI_FN void shmi_queue_count(struct shmi_queue *x, uint32_t d)
{
    uint64_t f = shmi_get(&x->w->free);
    shmi_put(&x->w->free, shmi_pair(shmi_low(f), shmi_high(f) + d));
}

/* Makes the item in s the last one. */
SHMI_FN void shmi_queue_number(struct shmi_queue *x, shmi_queue_slot *s)
{
    uint64_t n = shmi_get(&x->w->sequence) + 1;
    shmi_put(&x->w->sequence, n);
    shmi_put(&s->seq, n);
}

/* Links the slot at i as the last of the queue. */
SHMI_FN void shmi_queue_append(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends);
    uint32_t first = i;
    shmi_put(&s->next, 0);
    if (shmi_high(e) != 0) {
        shmi_queue_slot *last = shmi_queue_at(x, shmi_high(e));
        if (last != NULL) {
            first = shmi_low(e);
            shmi_put(&last->next, i);
        } else {
            shmi_set_broken(&x->m, 1);
        }
    }
    shmi_put(&x->w->ends, shmi_pair(first, i));
    shmi_queue_count(x, 1);
}

/* The slot whose next is at i, in the list that begins at from. */
SHMI_FN shmi_queue_slot *shmi_queue_before(struct shmi_queue *x, uint32_t from, uint32_t i)
{
    uint32_t n;
    for (n = 0; n < x->capacity; n++) {
        shmi_queue_slot *s = shmi_queue_at(x, from);
        if (s == NULL)
            break;
        from = (uint32_t)shmi_get(&s->next);
        if (from == i)
            return s;
    }
    shmi_set_broken(&x->m, 1);
    return NULL;
}

/* Takes the slot at i off the list of free ones. It is the first, except after a death. */
SHMI_FN void shmi_queue_unspare(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t f = shmi_get(&x->w->free), next = shmi_get(&s->next);
    shmi_queue_slot *before;
    if (shmi_low(f) == i) {
        shmi_put(&x->w->free, shmi_pair((uint32_t)next, shmi_high(f)));
        return;
    }
    before = shmi_queue_before(x, shmi_low(f), i);
    if (before != NULL)
        shmi_put(&before->next, (uint32_t)next);
}

/* Takes the slot at i out of the queue. It is the first, except after a death. */
SHMI_FN void shmi_queue_unlink(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends);
    uint32_t next = (uint32_t)shmi_get(&s->next), first = shmi_low(e), last = shmi_high(e);
    if (first == i) {
        first = next;
        if (next == 0)
            last = 0;
    } else {
        shmi_queue_slot *before = shmi_queue_before(x, first, i);
        if (before != NULL) {
            shmi_put(&before->next, next);
            if (last == i)
                shmi_set_broken(&x->m, 1); /* so that the last is found */
        }
    }
    shmi_put(&x->w->ends, shmi_pair(first, last));
    shmi_queue_count(x, UINT32_MAX);
}

/* Links the slot at i into the queue where its number belongs: mostly at the front. */
SHMI_FN void shmi_queue_insert(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    uint64_t e = shmi_get(&x->w->ends), seq = shmi_get(&s->seq);
    shmi_queue_slot *last = shmi_queue_at(x, shmi_high(e)), *before = NULL;
    uint32_t at = shmi_low(e), n;
    if (last == NULL || shmi_get(&last->seq) < seq) {
        shmi_queue_append(x, i, s);
        return;
    }
    for (n = 0; n < x->capacity; n++) {
        shmi_queue_slot *t = shmi_queue_at(x, at);
        if (t == NULL) {
            shmi_set_broken(&x->m, 1); /* the last is behind */
            break;
        }
        if (shmi_get(&t->seq) > seq)
            break;
        before = t;
        at = (uint32_t)shmi_get(&t->next);
    }
    shmi_put(&s->next, at);
    if (before != NULL)
        shmi_put(&before->next, i);
    else
        shmi_put(&x->w->ends, shmi_pair(i, shmi_high(e)));
    shmi_queue_count(x, 1);
}

/* Puts the item into the queue that was written to the free slot at i. */
SHMI_FN void shmi_queue_add(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s)
{
    shmi_queue_number(x, s);
    SHMSYNC_CRASHPOINT("queue.add.written");
    shmi_put(&s->state, shmi_queue_state(SHMI_queueFull, 0, 0));
    SHMSYNC_CRASHPOINT("queue.add.committed");
    shmi_queue_unspare(x, i, s);
    shmi_queue_append(x, i, s);
}

/* Gives the item at i, in the queue, to this process. */
SHMI_FN void shmi_queue_take(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, uint32_t cls)
{
    shmi_put(&s->state, shmi_queue_to(shmi_get(&s->state), cls, x->m.a->self));
    SHMSYNC_CRASHPOINT("queue.take.committed");
    shmi_queue_unlink(x, i, s);
    shmi_put(&x->w->out, shmi_get(&x->w->out) + 1);
}

/* Makes the slot at i free: its item was copied, or done with. */
SHMI_FN void shmi_queue_drop(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, int in_queue)
{
    uint64_t f;
    shmi_put(&s->state, 0);
    SHMSYNC_CRASHPOINT("queue.drop.committed");
    if (in_queue)
        shmi_queue_unlink(x, i, s);
    else
        shmi_put(&x->w->out, shmi_get(&x->w->out) - 1);
    f = shmi_get(&x->w->free);
    shmi_put(&s->next, shmi_low(f));
    shmi_put(&x->w->free, shmi_pair(i, shmi_high(f)));
}

/* Puts the item at i, which is out, back to its place in the queue. */
SHMI_FN void shmi_queue_give_back(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, uint64_t st)
{
    shmi_put(&s->state, shmi_queue_state(SHMI_queueFull, 0, shmi_high(st)));
    SHMSYNC_CRASHPOINT("queue.back.committed");
    shmi_put(&x->w->out, shmi_get(&x->w->out) - 1);
    shmi_queue_insert(x, i, s);
}

struct shmi_numbered {
    uint64_t seq;
    uint32_t i;
};

SHMI_FN int shmi_by_number(const void *p, const void *q)
{
    const struct shmi_numbered *x = (const struct shmi_numbered *)p, *y = (const struct shmi_numbered *)q;
    if (x->seq != y->seq)
        return x->seq < y->seq ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Makes order, free list and counts anew from the slots. */
SHMI_FN void shmi_queue_index(struct shmi_queue *x)
{
    struct shmi_numbered *full = NULL;
    uint64_t out = 0, sequence = shmi_get(&x->w->sequence);
    uint32_t i, n_full = 0, n = 0, free_ = 0;
    for (i = x->capacity; i > 0; i--) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_get(&s->state), seq = shmi_get(&s->seq);
        if (!shmi_queue_valid(st)) { /* a peer wrote that */
            st = 0;
            shmi_put(&s->state, 0);
        }
        if (shmi_queue_kind(st) == SHMI_queueFree) {
            shmi_put(&s->next, free_);
            free_ = i;
            continue;
        }
        if (shmi_queue_kind(st) == SHMI_queueFull)
            n_full++;
        else
            out++;
        if (seq > sequence)
            sequence = seq;
    }
    shmi_put(&x->w->sequence, sequence);
    shmi_put(&x->w->out, out);
    shmi_put(&x->w->free, shmi_pair(free_, 0));
    shmi_put(&x->w->ends, 0);
    if (n_full == 0)
        return;
    full = (struct shmi_numbered *)malloc(n_full * sizeof *full);
    for (i = 1; i <= x->capacity; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        if (shmi_queue_kind(shmi_get(&s->state)) != SHMI_queueFull)
            continue;
        if (full == NULL) {
            shmi_queue_insert(x, i, s); /* slower, and it needs no memory */
        } else if (n < n_full) { /* or a peer makes them more */
            full[n].seq = shmi_get(&s->seq);
            full[n++].i = i;
        }
    }
    if (n > 1)
        qsort(full, n, sizeof *full, shmi_by_number);
    for (i = 0; i < n; i++)
        shmi_queue_append(x, full[i].i, shmi_queue_at(x, full[i].i));
    free(full);
}

SHMI_FN void *shmi_claimed_block(shmsync_arena *a, shmi_off off, uint64_t size, shmi_participant_id owner);

/* The rules. */

SHMI_FN shmi_list_words *shmi_queue_fifo(struct shmi_queue *x, struct shmi_wait w)
{
    return shmi_class_of(w) == SHMI_queuePut ? &x->w->putters : &x->w->getters;
}
SHMI_FN void shmi_queue_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, shmi_queue_fifo((struct shmi_queue *)m, w), w); }
SHMI_FN void shmi_queue_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, shmi_queue_fifo((struct shmi_queue *)m, w), w); }
SHMI_FN void shmi_queue_clear(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_fifo_clear(&x->w->getters);
    shmi_fifo_clear(&x->w->putters);
    shmi_queue_index(x);
}
SHMI_FN void shmi_queue_discard_dead(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_fifo_discard_dead(m, &x->w->getters);
    shmi_fifo_discard_dead(m, &x->w->putters);
}

/* Makes the change that a wait which was granted something stands for. */
SHMI_FN void shmi_queue_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint64_t f = shmi_get(&w.n->extra), st;
    uint32_t i = shmi_outcome_aux(f), cls = shmi_outcome_class(f);
    shmi_queue_slot *s = shmi_queue_at(x, i);
    struct shmi_change c;
    c.n = 0;
    if (shmi_outcome_result(f) != SHMI_queueGranted || s == NULL) {
        shmi_mon_account(m, w, NULL);
        return;
    }
    st = shmi_get(&s->state);
    if (cls == SHMI_queuePut && shmi_queue_kind(st) == SHMI_queueFree) {
        shmi_queue_number(x, s);
        shmi_change_set(&c, &s->state, shmi_queue_state(SHMI_queueFull, 0, 0));
        shmi_mon_account(m, w, &c);
        shmi_queue_unspare(x, i, s);
        shmi_queue_append(x, i, s);
    } else if (cls != SHMI_queuePut && shmi_queue_kind(st) == SHMI_queueFull) {
        shmi_change_set(&c, &s->state, shmi_queue_to(st, cls, shmi_owner_of(w)));
        shmi_mon_account(m, w, &c);
        shmi_queue_unlink(x, i, s);
        shmi_put(&x->w->out, shmi_get(&x->w->out) + 1);
    } else {
        shmi_mon_account(m, w, NULL); /* a peer wrote that */
    }
}

/* Ends a wait with nothing. */
SHMI_FN void shmi_queue_turn_away(struct shmi_queue *x, struct shmi_wakes *b, struct shmi_wait w, uint32_t result)
{
    if (shmi_mon_end(&x->m, b, w, result, 0))
        shmi_mon_account(&x->m, w, NULL);
}

/* Ends the first wait for an item if that can be. */
SHMI_FN int shmi_queue_resolve_getter(struct shmi_queue *x, struct shmi_wakes *b, int stopped)
{
    struct shmi_wait w = shmi_fifo_head(&x->m, &x->w->getters);
    uint32_t i;
    if (w.n == NULL)
        return 0;
    if (!shmi_mon_waiting(&x->m, w)) {
        shmi_mon_discard(&x->m, w);
        return 1;
    }
    if (shmi_queue_first(x, &i) != NULL) {
        if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, i))
            shmi_queue_account(&x->m, w);
        return 1;
    }
    if (!stopped)
        return 0;
    shmi_queue_turn_away(x, b, w, SHMI_queueStopped);
    return 1;
}

/* The same for a wait for room: the item is copied, and if the wait is still there it is in the queue. */
SHMI_FN int shmi_queue_resolve_putter(struct shmi_queue *x, struct shmi_wakes *b, int stopped)
{
    struct shmi_wait w = shmi_fifo_head(&x->m, &x->w->putters);
    shmi_queue_slot *s;
    shmi_participant_id owner;
    uint32_t i;
    void *block;
    if (w.n == NULL)
        return 0;
    if (!shmi_mon_waiting(&x->m, w)) {
        shmi_mon_discard(&x->m, w);
        return 1;
    }
    if (stopped) {
        shmi_queue_turn_away(x, b, w, SHMI_queueStopped);
        return 1;
    }
    s = shmi_queue_spare(x, &i);
    if (s == NULL)
        return 0;
    owner = shmi_owner_of(w);
    block = shmi_claimed_block(x->m.a, shmi_get(&w.n->wanted), x->item, owner);
    if (block != NULL) {
        memcpy(shmi_queue_item(s), block, x->item);
        SHMSYNC_CRASHPOINT("queue.put.copied");
        if (!shmi_mon_current(&x->m, owner))
            shmi_mon_discard(&x->m, w); /* the block may have been another's */
        else if (shmi_mon_end(&x->m, b, w, SHMI_queueGranted, i))
            shmi_queue_account(&x->m, w);
    } else if (shmi_mon_current(&x->m, owner)) {
        shmi_queue_turn_away(x, b, w, SHMI_queueCorrupt);
    } else {
        shmi_mon_discard(&x->m, w);
    }
    return 1;
}

SHMI_FN void shmi_queue_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    int stopped = shmi_get(&x->w->stopped) != 0;
    while (!shmi_is_broken(m) && (shmi_queue_resolve_getter(x, b, stopped) || shmi_queue_resolve_putter(x, b, stopped))) {
    }
}

SHMI_FN void shmi_queue_reap(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    uint32_t i;
    if (shmi_get(&x->w->out) == 0)
        return;
    for (i = 1; i <= x->capacity; i++) {
        shmi_queue_slot *s = shmi_queue_at(x, i);
        uint64_t st = shmi_get(&s->state);
        if (shmi_queue_out(st) && shmi_mon_gone(m, shmi_queue_name(st)))
            shmi_queue_give_back(x, i, s, st);
    }
}
SHMI_FN void shmi_queue_holders(struct shmi_monitor *m)
{
    struct shmi_queue *x = (struct shmi_queue *)m;
    shmi_participant_id last = 0;
    uint32_t i;
    if (shmi_get(&x->w->out) == 0)
        return;
    for (i = 1; i <= x->capacity; i++) {
        uint64_t st = shmi_get(&shmi_queue_at(x, i)->state);
        if (shmi_queue_out(st) && shmi_queue_name(st) != last) {
            last = shmi_queue_name(st);
            shmi_mon_heed(m, last);
        }
    }
}

static __attribute__((unused)) const struct shmi_rules shmi_queue_rules = {
    shmi_queue_resolve, shmi_queue_account, shmi_queue_clear, shmi_queue_requeue, shmi_queue_detach,
    shmi_queue_discard_dead, shmi_queue_reap, shmi_queue_holders, NULL,
};

/* Gives the queue lock back after a change that may have let others go on. */
SHMI_FN void shmi_queue_leave(struct shmi_queue *x, shmi_list_words *others)
{
    struct shmi_wakes b;
    if (shmi_fifo_empty(others)) {
        shmi_mon_leave(&x->m, NULL);
        return;
    }
    shmi_wakes_init(&b);
    shmi_queue_resolve(&x->m, &b);
    shmi_mon_leave(&x->m, &b);
}

/* Takes the queue lock for a call that does not wait, if that does not take long. */
SHMI_FN int shmi_queue_try_enter(struct shmi_queue *x, shmi_list_words *line)
{
    struct shmi_wakes b;
    if (!shmi_mon_try_enter(&x->m))
        return 0;
    if (shmi_fifo_empty(line))
        return 1;
    /* Perhaps the waiters are dead. */
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&x->m, &b);
    shmi_mon_leave(&x->m, &b);
    return shmi_mon_try_enter(&x->m);
}

/* The first bytes of a block that owner has claimed, at an offset that came from a peer; NULL where no such block is. */
SHMI_FN void *shmi_claimed_block(shmsync_arena *a, shmi_off off, uint64_t size, shmi_participant_id owner)
{
    shmi_block b;
    if (!shmi_locate(a, off, &b) || b.class_ == SHMI_classNode || size > b.size || shmi_ld32(b.word) != shmi_make_block(SHMI_blockClaimed, owner))
        return NULL;
    return shmi_ptr(a, off, size, 1);
}

SHMI_FN void shmi_queue_unstage(struct shmi_queue *x, uint64_t off)
{
    if (off != 0 && !shmi_cas64(&x->stage, 0, off))
        shmi_unclaim(x->m.a, off);
}

/* A put that has to wait, with the queue lock held, which it leaves. */
SHMI_FN int shmi_queue_put_slow(struct shmi_queue *x, const void *item, int64_t abs)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    shmi_queue_slot *s;
    uint64_t off = 0, outcome = 0;
    uint32_t i;
    void *block = NULL;
    int err = 0, again;
    shmi_wakes_init(&b);
    for (;;) {
        shmi_mon_reap_if_due(m, &b);
        if (shmi_get(&x->w->stopped) != 0) {
            err = ECANCELED;
            break;
        }
        s = shmi_queue_room(x, &i);
        if (s != NULL) {
            memcpy(shmi_queue_item(s), item, x->item);
            shmi_queue_add(x, i, s);
            shmi_queue_resolve(m, &b);
            break;
        }
        if (block == NULL) {
            off = shmi_xchg64(&x->stage, 0);
            if (off == 0) {
                shmi_mon_leave(m, NULL);
                err = shmi_claim(m->a, x->item, &off);
                if (err == 0)
                    err = shmi_mon_enter(m, abs);
                if (err != 0)
                    goto left;
            }
            block = shmi_claimed_block(m->a, off, x->item, m->a->self);
            if (block == NULL) {
                off = 0; /* a peer overwrote what says that it is ours */
                err = EPROTO;
                break;
            }
            continue;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0)
            goto left;
        if (again)
            continue;
        memcpy(block, item, x->item);
        SHMSYNC_CRASHPOINT("queue.put.staged");
        shmi_mon_join(m, wait_node, SHMI_queuePut, off);
        shmi_mon_leave(m, &b);
        err = shmi_mon_await(m, wait_node, abs, &outcome);
        wait_node = NULL;
        if (err == 0 && shmi_outcome_result(outcome) != SHMI_queueGranted)
            err = shmi_outcome_result(outcome) == SHMI_queueStopped ? ECANCELED : EPROTO;
        shmi_queue_unstage(x, off);
        return err;
    }
    shmi_mon_leave(m, &b);
left:
    shmi_mon_wake(m, &b);
    shmi_mon_return_node(m, wait_node);
    shmi_queue_unstage(x, off);
    return err;
}

/* Takes the queue lock and finds the slot that this process was given: the granter wakes us before it has written that down. */
SHMI_FN shmi_queue_slot *shmi_queue_given(struct shmi_queue *x, uint32_t i, uint32_t cls, int *err)
{
    shmi_queue_slot *s;
    *err = shmi_mon_enter(&x->m, 0);
    if (*err != 0)
        return NULL;
    s = shmi_queue_at(x, i);
    if (s != NULL) {
        uint64_t st = shmi_get(&s->state);
        if (shmi_queue_kind(st) == (cls == SHMI_queueLease ? SHMI_queueLeased : SHMI_queueGiven) && shmi_queue_name(st) == x->m.a->self)
            return s;
    }
    shmi_mon_leave(&x->m, NULL);
    *err = EPROTO;
    return NULL;
}

/* Waits, with the queue lock held, until this process has been given an item. If it has, the queue lock is held again. */
SHMI_FN shmi_queue_slot *shmi_queue_wait_item(struct shmi_queue *x, uint32_t cls, int64_t abs, uint32_t *i, int *err)
{
    struct shmi_monitor *m = &x->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int again;
    shmi_wakes_init(&b);
    do {
        shmi_queue_slot *s;
        shmi_mon_reap_if_due(m, &b);
        s = shmi_queue_ready(x, i);
        if (s != NULL)
            shmi_queue_take(x, *i, s, cls);
        if (s != NULL || shmi_get(&x->w->stopped) != 0) {
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            *err = ECANCELED;
            return s == NULL ? NULL : shmi_queue_given(x, *i, cls, err);
        }
        *err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (*err != 0) {
            shmi_mon_wake(m, &b);
            return NULL;
        }
    } while (again);
    shmi_mon_join(m, wait_node, cls, 0);
    shmi_mon_leave(m, &b);
    *err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (*err == 0 && shmi_outcome_result(outcome) == SHMI_queueStopped)
        *err = ECANCELED;
    if (*err != 0)
        return NULL;
    SHMSYNC_CRASHPOINT("queue.get.granted");
    *i = shmi_outcome_aux(outcome);
    return shmi_queue_given(x, *i, cls, err);
}

SHMI_FN int shmi_queue_put(shmsync_queue *q, const void *item, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    shmi_queue_slot *s;
    uint32_t i;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (try_) {
        if (!shmi_queue_try_enter(x, &x->w->putters))
            return EBUSY;
    } else {
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            return err;
    }
    s = shmi_queue_room(x, &i);
    if (s == NULL) {
        if (!try_) {
            err = shmi_mon_begin(&x->m);
            if (err != 0)
                return err;
            err = shmi_queue_put_slow(x, item, abs);
            shmi_mon_finish(&x->m);
            return err;
        }
        err = shmi_get(&x->w->stopped) != 0 ? ECANCELED : EBUSY;
        shmi_mon_leave(&x->m, NULL);
        return err;
    }
    memcpy(shmi_queue_item(s), item, x->item);
    shmi_queue_add(x, i, s);
    shmi_queue_leave(x, &x->w->getters);
    return 0;
}

/* The end of a get whose item is in slot i, with the queue lock held, which it leaves. */
SHMI_FN void shmi_queue_got(struct shmi_queue *x, uint32_t i, shmi_queue_slot *s, int in_queue, uint32_t cls, void *item, shmsync_lease *lease)
{
    if (lease == NULL) {
        memcpy(item, shmi_queue_item(s), x->item);
        shmi_queue_drop(x, i, s, in_queue);
        shmi_queue_leave(x, &x->w->putters);
        return;
    }
    if (in_queue)
        shmi_queue_take(x, i, s, cls);
    lease->impl = x;
    lease->serial = shmi_serial_of(x);
    lease->at = i;
    lease->state = shmi_get(&s->state);
    lease->seq = shmi_get(&s->seq);
    lease->attempts = shmi_high(lease->state) - (shmi_high(lease->state) != 0);
    shmi_mon_leave(&x->m, NULL);
    memcpy(item, shmi_queue_item(s), x->item); /* ours: nobody else touches it */
}
SHMI_FN int shmi_queue_get(shmsync_queue *q, void *item, shmsync_lease *lease, int64_t abs, int try_)
{
    struct shmi_queue *x = q->impl;
    shmi_queue_slot *s;
    uint32_t i, cls = lease != NULL ? SHMI_queueLease : SHMI_queueGet;
    int err = shmi_use(x->m.a, "queue");
    if (err != 0)
        return err;
    if (try_) {
        if (!shmi_queue_try_enter(x, &x->w->getters))
            return EBUSY;
    } else {
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            return err;
    }
    s = shmi_queue_ready(x, &i);
    if (s != NULL) {
        shmi_queue_got(x, i, s, 1, cls, item, lease);
        return 0;
    }
    if (try_) {
        err = shmi_get(&x->w->stopped) != 0 && shmi_low(shmi_get(&x->w->ends)) == 0 ? ECANCELED : EBUSY;
        shmi_mon_leave(&x->m, NULL);
        return err;
    }
    err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    s = shmi_queue_wait_item(x, cls, abs, &i, &err);
    if (s != NULL)
        shmi_queue_got(x, i, s, 0, cls, item, lease);
    shmi_mon_finish(&x->m);
    return s != NULL ? 0 : err;
}

SHMI_FN int shmi_queue_end_lease(shmsync_lease *l, int back)
{
    struct shmi_queue *x = l->impl;
    shmi_queue_slot *s;
    int err;
    if (x == NULL)
        return EPERM;
    err = shmi_use(x->m.a, "queue");
    if (err == 0)
        err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    s = shmi_queue_at(x, l->at);
    if (s == NULL || shmi_get(&s->state) != l->state || shmi_get(&s->seq) != l->seq || shmi_queue_kind(l->state) != SHMI_queueLeased ||
        shmi_queue_name(l->state) != x->m.a->self) {
        shmi_mon_leave(&x->m, NULL);
        return shmi_fail(EPERM, "queue.lease", x->m.queueLock.called, "this process does not have that item on that lease");
    }
    if (back) {
        shmi_queue_give_back(x, l->at, s, l->state);
        shmi_queue_leave(x, &x->w->getters);
    } else {
        shmi_queue_drop(x, l->at, s, 0);
        shmi_queue_leave(x, &x->w->putters);
    }
    l->impl = NULL;
    return 0;
}

/* Whether the body has room for what its immutable words say. */
SHMI_FN int shmi_queue_build(struct shmi_queue *x, shmsync_arena *a, const shmi_object *o)
{
    shmi_queue_words *w;
    if (o->size < sizeof(shmi_queue_words))
        return 0;
    w = (shmi_queue_words *)shmi_ptr(a, o->body, sizeof(shmi_queue_words), 8);
    x->w = w;
    x->item = shmi_ld64(&w->item);
    x->capacity = (uint32_t)shmi_ld64(&w->capacity);
    x->stage = 0;
    if (x->item > SHMI_QUEUE_ITEM_MOST || x->capacity == 0 || x->capacity > SHMI_QUEUE_CAPACITY_MOST || x->capacity != shmi_ld64(&w->capacity) ||
        o->size < sizeof(shmi_queue_words) + (uint64_t)x->capacity * shmi_queue_stride(x->item))
        return 0;
    x->stride = shmi_queue_stride(x->item);
    shmi_mon_init(&x->m, a, o, o->body, &shmi_queue_rules);
    return 1;
}

typedef struct shmi_queue_spec {
    uint32_t capacity, spin;
    uint64_t item;
} shmi_queue_spec;

SHMI_FN void shmi_queue_fill(unsigned char *body, const void *arg)
{
    const shmi_queue_spec *spec = (const shmi_queue_spec *)arg;
    struct shmi_queue x;
    memset(&x, 0, sizeof x);
    x.w = (shmi_queue_words *)(void *)body;
    x.capacity = spec->capacity;
    x.item = spec->item;
    x.stride = shmi_queue_stride(spec->item);
    x.w->capacity = spec->capacity;
    x.w->item = spec->item;
    x.w->mon.spin = spec->spin;
    shmi_queue_index(&x);
}

SHMI_FN void *shmi_queue_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_queue *x = (struct shmi_queue *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x != NULL)
        shmi_queue_build(x, a, o); /* shmi_queue_handle has seen that it can be */
    return x;
}

SHMI_FN void shmi_queue_end(void *handle)
{
    struct shmi_queue *x = (struct shmi_queue *)handle;
    uint64_t stage = shmi_xchg64(&x->stage, 0);
    if (stage != 0)
        shmi_unclaim(x->m.a, stage);
    shmi_free_thing(x);
}

SHMI_FN int shmi_queue_handle(shmsync_arena *a, const shmi_object *o, uint64_t item, uint32_t capacity, shmsync_queue *out)
{
    struct shmi_queue x;
    int err = 0;
    if (!shmi_queue_build(&x, a, o))
        err = shmi_fail(EPROTO, "queue.open", shmi_called(o), "its body has no room for its slots");
    else if (item != x.item || (capacity != 0 && capacity != x.capacity))
        err = shmi_fail(EINVAL, "queue.open", shmi_called(o), "it has a capacity of %u items of %u bytes", x.capacity, (uint32_t)x.item);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    return SHMI_HAND_OUT(out, struct shmi_queue *, shmi_share(a, o, shmi_queue_new, NULL));
}

SHMI_FN int shmi_open_queue(int existing, shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    shmi_spec spec;
    shmi_queue_spec init;
    shmi_object o;
    uint32_t capacity = opts != NULL ? opts->capacity : 0;
    int err, created;
    out->impl = NULL;
    if (item_size > SHMI_QUEUE_ITEM_MOST || capacity > SHMI_QUEUE_CAPACITY_MOST)
        return shmi_fail(EINVAL, "queue.open", name, "a capacity of %u items of %zu bytes", capacity, item_size);
    if (!existing && capacity == 0)
        return shmi_fail(EINVAL, "queue.open", name, "it takes a capacity of at least 1; shmsync_queue_attach opens one that exists");
    memset(&init, 0, sizeof init);
    init.capacity = capacity;
    init.item = item_size;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    memset(&spec, 0, sizeof spec);
    spec.kind = SHMI_KIND_QUEUE;
    spec.version = SHMI_VERSION_QUEUE;
    spec.name = name;
    spec.size = sizeof(shmi_queue_words) + (uint64_t)init.capacity * shmi_queue_stride(item_size);
    spec.any_size = 1;
    spec.layout = opts != NULL ? opts->layout : 0;
    spec.any_layout = spec.layout == 0;
    spec.init = shmi_queue_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_queue_handle(a, &o, item_size, capacity, out);
}
int shmsync_queue_open(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_queue(0, a, name, item_size, opts, out));
}
int shmsync_queue_attach(shmsync_arena *a, const char *name, size_t item_size, const shmsync_queue_options *opts, shmsync_queue *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_queue(1, a, name, item_size, opts, out));
}

int shmsync_queue_at(shmsync_arena *a, shmsync_offset off, size_t item_size, shmsync_queue *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "queue.open", SHMI_KIND_QUEUE, SHMI_VERSION_QUEUE, sizeof(shmi_queue_words), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_queue_handle(a, &o, item_size, 0, out));
}

int shmsync_queue_close(shmsync_queue *q)
{
    SHMI_OPENED(q);
    int err;
    if (q->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(q->impl->m.a, q->impl->m.o.off, shmi_queue_end);
    if (err == 0)
        q->impl = NULL;
    return SHMI_TELL(err);
}

shmsync_offset shmsync_queue_offset(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->m.o.off;
}
int shmsync_queue_put(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_put(q, item, 0, 0));
}
int shmsync_queue_tryput(shmsync_queue *q, const void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_put(q, item, 0, 1));
}
int shmsync_queue_timedput(shmsync_queue *q, const void *item, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_put(q, item, ns, 0));
}
int shmsync_queue_get(shmsync_queue *q, void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, NULL, 0, 0));
}
int shmsync_queue_tryget(shmsync_queue *q, void *item)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, NULL, 0, 1));
}
int shmsync_queue_timedget(shmsync_queue *q, void *item, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_get(q, item, NULL, ns, 0));
}

/* A deadline that may be NULL: 0 for none. */
SHMI_FN int shmi_queue_until(const struct timespec *abs_monotonic, int64_t *abs)
{
    *abs = 0;
    return abs_monotonic != NULL ? shmi_deadline(abs_monotonic, abs) : 0;
}
int shmsync_queue_put_batch(shmsync_queue *q, const void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED(q);
    struct shmi_queue *x = q->impl;
    const unsigned char *from = (const unsigned char *)items;
    int64_t abs;
    int err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    while (err == 0 && *done < n) {
        size_t before = *done;
        err = shmi_mon_enter(&x->m, abs);
        if (err != 0)
            break;
        for (; *done < n; ++*done) {
            uint32_t i;
            shmi_queue_slot *s = shmi_queue_room(x, &i);
            if (s == NULL)
                break;
            memcpy(shmi_queue_item(s), from + *done * x->item, x->item);
            shmi_queue_add(x, i, s);
        }
        if (*done > before) {
            shmi_queue_leave(x, &x->w->getters);
        } else {
            err = shmi_queue_put_slow(x, from + *done * x->item, abs); /* which leaves the queue lock */
            if (err == 0)
                ++*done;
        }
    }
    return SHMI_TELL(err);
}
int shmsync_queue_get_batch(shmsync_queue *q, void *items, size_t n, const struct timespec *abs_monotonic, size_t *done)
{
    SHMI_OPENED(q);
    struct shmi_queue *x = q->impl;
    unsigned char *to = (unsigned char *)items;
    shmi_queue_slot *s;
    int64_t abs;
    uint32_t i;
    int in_queue, err = shmi_queue_until(abs_monotonic, &abs);
    *done = 0;
    if (err == 0)
        err = shmi_use(x->m.a, "queue");
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    err = shmi_mon_enter(&x->m, abs);
    if (err != 0)
        return SHMI_TELL(err);
    s = shmi_queue_ready(x, &i);
    in_queue = s != NULL;
    if (s == NULL) {
        s = shmi_queue_wait_item(x, SHMI_queueGet, abs, &i, &err);
        if (s == NULL)
            return SHMI_TELL(err);
    }
    while (s != NULL) {
        memcpy(to + *done * x->item, shmi_queue_item(s), x->item);
        shmi_queue_drop(x, i, s, in_queue);
        if (++*done == n)
            break;
        s = shmi_queue_ready(x, &i);
        in_queue = 1;
    }
    shmi_queue_leave(x, &x->w->putters);
    return 0;
}
int shmsync_queue_lease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, out, 0, 0));
}
int shmsync_queue_trylease(shmsync_queue *q, void *item, shmsync_lease *out)
{
    SHMI_OPENED(q);
    return SHMI_TELL(shmi_queue_get(q, item, out, 0, 1));
}
int shmsync_queue_timedlease(shmsync_queue *q, void *item, shmsync_lease *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(q);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_queue_get(q, item, out, ns, 0));
}
int shmsync_lease_ack(shmsync_lease *l)
{
    if (l->impl != NULL) /* else it was given back */
        SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 0));
}
int shmsync_lease_nack(shmsync_lease *l)
{
    if (l->impl != NULL) /* else it was given back */
        SHMI_OPENED(l);
    return SHMI_TELL(shmi_queue_end_lease(l, 1));
}
uint32_t shmsync_queue_len(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return shmi_high(shmi_ld64(&q->impl->w->free));
}
uint32_t shmsync_queue_cap(const shmsync_queue *q)
{
    SHMI_OPENED_OR(q, 0);
    return q->impl->capacity;
}

int shmsync_queue_shutdown(shmsync_queue *q)
{
    SHMI_OPENED(q);
    struct shmi_wakes b;
    int err = shmi_use(q->impl->m.a, "queue");
    if (err == 0)
        err = shmi_mon_enter(&q->impl->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_st64(&q->impl->w->stopped, 1);
    shmi_queue_resolve(&q->impl->m, &b);
    shmi_mon_leave(&q->impl->m, &b);
    return 0;
}

uint64_t shmsync_layout(const char *description)
{
    uint64_t h = shmi_fnv(description, strlen(description));
    return h != 0 ? h : 1;
}

/* The reaper's side. */
SHMI_FN void shmi_repair_queue(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_queue x;
    if (shmi_queue_build(&x, a, o))
        shmi_mon_repair(&x.m, dead);
}

/* ---- WaitGroups and Latches: prims/counter*.go in C ---- */

SHMI_FN shmi_participant_id shmi_name_of(const uint64_t *w) { return (shmi_participant_id)(shmi_ld64(w) & SHMI_NAME_MASK); }
SHMI_FN uint64_t shmi_min(uint64_t x, uint64_t y) { return x < y ? x : y; }
SHMI_FN void shmi_account_nothing(struct shmi_monitor *m, struct shmi_wait w) { shmi_mon_account(m, w, NULL); }

/* The commit word; see prims/counter_word.go. */
#define SHMI_COUNTER_WATCHED UINT64_C(1)
#define SHMI_COUNTER_DEAD UINT64_C(2)
#define SHMI_COUNTER_LOGGED (UINT64_C(1) << 63)
#define SHMI_COUNTER_MAX UINT64_C(0x7fffffff)
#define SHMI_COUNTER_VERSIONS ((UINT64_C(1) << 51) - 1)
#define SHMI_COUNTER_TICKETS UINT32_C(0x1fffffff)
enum { SHMI_counterEntries = 7 };
/* Indices of the words that a record changes. */
enum { SHMI_counterCount = 1, SHMI_counterPeriod, SHMI_counterOwed, SHMI_counterDeadID, SHMI_counterFirstShare = 8 };
enum { SHMI_shareName, SHMI_sharePeriod, SHMI_shareOwn, SHMI_shareClaimed };

struct shmi_counter {
    shmsync_arena *a;
    shmi_counter_words *w;
    shmi_counter_slot *slots; /* from slot 1 */
    shmi_wait_list line;
    uint32_t n_slots;
    const char *op;      /* of waits, in errors */
    uint64_t seen;       /* the events at the last check */
    int64_t looked;
    shmi_object o;
};

SHMI_FN uint64_t shmi_counter_bytes(uint32_t slots) { return sizeof(shmi_counter_words) + (uint64_t)slots * sizeof(shmi_counter_slot); }
SHMI_FN int shmi_counter_is_logged(uint64_t c) { return (c & SHMI_COUNTER_LOGGED) != 0; }
SHMI_FN int shmi_counter_is_zero(uint64_t c) { return c >> 32 == 0; }
SHMI_FN int shmi_counter_is_untold(uint64_t c) { return c >> 32 == 0 && c != 0; }
SHMI_FN int shmi_counter_is_lost(uint64_t c) { return !shmi_counter_is_logged(c) && c >> 32 != 0 && (c & SHMI_COUNTER_DEAD) != 0; }
SHMI_FN shmi_participant_id shmi_counter_owner(uint64_t c) { return shmi_counter_is_logged(c) || c >> 32 == 0 ? 0 : (shmi_participant_id)((uint32_t)c >> 3); }
SHMI_FN int shmi_counter_owned_by(uint64_t c, uint64_t me) { return !shmi_counter_is_logged(c) && c >> 32 != 0 && ((uint32_t)c & ~(uint32_t)1) == me; }
SHMI_FN uint32_t shmi_counter_slot_of(uint64_t c) { return (uint32_t)(c >> 1) & 0x7ff; }
SHMI_FN uint64_t shmi_counter_version_of(uint64_t c) { return c >> 12 & SHMI_COUNTER_VERSIONS; }
SHMI_FN uint64_t shmi_counter_bare(uint64_t c) { return c & ~SHMI_COUNTER_WATCHED; }
SHMI_FN uint64_t shmi_counter_load(struct shmi_counter *t) { return shmi_ld64(&t->w->commit); }
SHMI_FN uint64_t shmi_counter_me(struct shmi_counter *t) { return (uint64_t)t->a->self << 3; }
/* The value of a tagged word. */
SHMI_FN uint64_t shmi_value_of(uint64_t *w) { return shmi_ld64(w) >> 32; }

SHMI_FN shmi_tuning shmi_counter_tuning(struct shmi_counter *t)
{
    shmi_tuning u;
    u.budget = &t->w->spin;
    u.pays = &t->w->pays;
    u.last_cpu = &t->w->lastCPU;
    u.slot = t->a->my_slot;
    return u;
}
SHMI_FN int shmi_counter_corrupt(struct shmi_counter *t, const char *how) { return shmi_fail(EPROTO, t->op, shmi_called(&t->o), "%s", how); }
SHMI_FN int shmi_counter_too_much(struct shmi_counter *t, const char *op, int64_t n)
{
    return shmi_fail(EINVAL, op, shmi_called(&t->o), "%lld is more than is left", (long long)n);
}

SHMI_FN uint32_t shmi_share_at(uint32_t slot, uint32_t which) { return SHMI_counterFirstShare + (slot - 1) * 4 + which; }
/* Finds a tagged word by its index; NULL if there is none. */
SHMI_FN uint64_t *shmi_counter_tagged(struct shmi_counter *t, uint32_t index)
{
    shmi_counter_slot *s;
    switch (index) {
    case SHMI_counterCount:
        return &t->w->count;
    case SHMI_counterPeriod:
        return &t->w->period;
    case SHMI_counterOwed:
        return &t->w->owed;
    case SHMI_counterDeadID:
        return &t->w->dead;
    }
    if (index < SHMI_counterFirstShare || (index - SHMI_counterFirstShare) / 4 >= t->n_slots)
        return NULL;
    s = &t->slots[(index - SHMI_counterFirstShare) / 4];
    switch ((index - SHMI_counterFirstShare) % 4) {
    case SHMI_shareName:
        return &s->name;
    case SHMI_sharePeriod:
        return &s->period;
    case SHMI_shareOwn:
        return &s->own;
    }
    return &s->claimed;
}

/* Carries the record that c names out, unless that was done. */
SHMI_FN int shmi_counter_complete(struct shmi_counter *t, uint64_t c)
{
    uint32_t slot = shmi_counter_slot_of(c), i;
    uint64_t version = shmi_counter_version_of(c);
    shmi_counter_slot *s;
    if (slot < 1 || slot > t->n_slots)
        return shmi_counter_corrupt(t, "its record is that of a slot that there is not");
    s = &t->slots[slot - 1];
    for (i = 0; i < SHMI_counterEntries; i++) {
        uint64_t entry = shmi_ld64(&s->entries[i]), *w, was;
        if (shmi_ld64(&s->head) != version || entry >> 32 == 0)
            return 0; /* the head changes before the entries do */
        w = shmi_counter_tagged(t, (uint32_t)(entry >> 32));
        if (w == NULL)
            return shmi_counter_corrupt(t, "a record changes a word that there is not");
        while (was = shmi_ld64(w), (uint32_t)was != (uint32_t)version) {
            /* Nobody commits over c before the word has the tag. If c is still there, was is from before the record. */
            if (shmi_counter_bare(shmi_counter_load(t)) != shmi_counter_bare(c))
                return 0;
            if (shmi_cas64(w, was, entry << 32 | (uint32_t)version)) {
                SHMSYNC_CRASHPOINT("counter.commit.begun");
                break;
            }
        }
    }
    return 0;
}

/* A change on its way to a record. */
typedef struct shmi_counter_change {
    uint32_t n;
    uint64_t entry[SHMI_counterEntries];
} shmi_counter_change;
SHMI_FN void shmi_counter_set(shmi_counter_change *ch, uint32_t index, uint64_t value) { ch->entry[ch->n++] = (uint64_t)index << 32 | (uint32_t)value; }

/* A ticket that is the tag of none of the words of a change; 0 if the tickets do not advance. */
SHMI_FN int shmi_counter_new_version(struct shmi_counter *t, const shmi_counter_change *ch, uint64_t *out)
{
    int tries;
    for (tries = 0; tries < 2 * SHMI_counterEntries; tries++) {
        uint64_t v = (shmi_add64(&t->w->tickets, 1) + 1) & SHMI_COUNTER_VERSIONS;
        int used = v == 0;
        uint32_t i;
        for (i = 0; i < ch->n; i++) {
            uint64_t *w = shmi_counter_tagged(t, (uint32_t)(ch->entry[i] >> 32));
            if (w == NULL)
                return shmi_counter_corrupt(t, "a share is that of a slot that there is not");
            used |= (uint32_t)shmi_ld64(w) == (uint32_t)v;
        }
        if (!used) {
            *out = v;
            return 0;
        }
    }
    return shmi_counter_corrupt(t, "its tickets do not advance");
}
/* Makes a change of the counter over c, with the private lock held and the record of c complete. *ok is 0 if the commit word is not c any more. */
SHMI_FN int shmi_counter_commit(struct shmi_counter *t, uint64_t c, const shmi_counter_change *ch, int *ok)
{
    uint32_t slot = t->a->my_slot, i;
    shmi_counter_slot *s = &t->slots[slot - 1];
    uint64_t version = 0, to;
    int err = shmi_counter_new_version(t, ch, &version);
    *ok = 0;
    if (err != 0)
        return err;
    __atomic_store_n(&s->head, version, __ATOMIC_RELEASE);
    for (i = 0; i < ch->n; i++)
        __atomic_store_n(&s->entries[i], ch->entry[i], __ATOMIC_RELEASE);
    if (ch->n < SHMI_counterEntries)
        __atomic_store_n(&s->entries[ch->n], 0, __ATOMIC_RELEASE);
    SHMSYNC_CRASHPOINT("counter.commit.recorded");
    to = SHMI_COUNTER_LOGGED | version << 12 | (uint64_t)slot << 1 | (c & SHMI_COUNTER_WATCHED);
    if (!shmi_cas64(&t->w->commit, c, to))
        return 0;
    SHMSYNC_CRASHPOINT("counter.commit.named");
    *ok = 1;
    err = shmi_counter_complete(t, to);
    SHMSYNC_CRASHPOINT("counter.commit.completed");
    return err;
}

/* A period that no share has: the low half of a ticket, which comes back after 2^32 tickets. */
SHMI_FN uint32_t shmi_counter_new_period(struct shmi_counter *t)
{
    uint32_t tries, i, period = 0;
    for (tries = 0; tries <= t->n_slots; tries++) {
        uint64_t n = shmi_add64(&t->w->tickets, 1) + 1;
        period = (uint32_t)n;
        if (n <= UINT32_MAX)
            break;
        for (i = 0; i < t->n_slots && shmi_value_of(&t->slots[i].period) != period; i++)
            ;
        if (i == t->n_slots)
            break;
    }
    return period;
}

/* Changes c, which is of the sole form and not 0, to the logged form, unless c has changed. */
SHMI_FN int shmi_counter_convert(struct shmi_counter *t, uint64_t c)
{
    shmi_counter_change ch;
    shmi_participant_id owner = shmi_counter_owner(c);
    uint32_t period = shmi_counter_new_period(t), slot = shmi_id_slot(owner);
    int ok, err;
    pthread_mutex_lock(&t->a->counter_lock);
    ch.n = 0;
    shmi_counter_set(&ch, SHMI_counterCount, c >> 32);
    shmi_counter_set(&ch, SHMI_counterPeriod, period);
    shmi_counter_set(&ch, SHMI_counterOwed, shmi_counter_is_lost(c) ? c >> 32 : 0);
    if (shmi_counter_is_lost(c)) {
        shmi_counter_set(&ch, SHMI_counterDeadID, owner);
    } else if (owner != 0) {
        shmi_counter_set(&ch, shmi_share_at(slot, SHMI_shareName), owner);
        shmi_counter_set(&ch, shmi_share_at(slot, SHMI_sharePeriod), period);
        shmi_counter_set(&ch, shmi_share_at(slot, SHMI_shareOwn), c >> 32);
        shmi_counter_set(&ch, shmi_share_at(slot, SHMI_shareClaimed), 0);
    }
    err = shmi_counter_commit(t, c, &ch, &ok);
    pthread_mutex_unlock(&t->a->counter_lock);
    return err;
}

/* Makes the waiters look at what a death has changed. */
SHMI_FN void shmi_counter_tell(struct shmi_counter *t)
{
    uint64_t e;
    SHMSYNC_CRASHPOINT("counter.reap.lost");
    do
        e = shmi_ld64(&t->w->events);
    while (!shmi_cas64(&t->w->events, e, (e & ~(uint64_t)UINT32_MAX) | (uint32_t)(e + 1)));
    shmi_deliver_all(t->a, &t->line);
}
/* Tells the waiters of the zero c, if that is still to be done. */
SHMI_FN void shmi_counter_tell_zero(struct shmi_counter *t, uint64_t c)
{
    uint32_t ticket = (uint32_t)c >> 3;
    for (;;) {
        uint64_t e = shmi_ld64(&t->w->events);
        if ((uint32_t)(e >> 32) == ticket)
            break;
        if (shmi_counter_load(t) != c)
            return;
        if (shmi_cas64(&t->w->events, e, (uint64_t)ticket << 32 | (uint32_t)(e + 1)))
            break;
    }
    SHMSYNC_CRASHPOINT("counter.zero.told");
    if (shmi_cas64(&t->w->commit, c, 0)) {
        SHMSYNC_CRASHPOINT("counter.zero.before_wake");
        shmi_deliver_all(t->a, &t->line);
    }
}
/* What a process does for the waiters after a change, without the private lock: 0 is nothing, SHMI_COUNTER_DUE_DEATH is to make them look, another value is an untold zero. */
#define SHMI_COUNTER_DUE_DEATH SHMI_COUNTER_LOGGED
SHMI_FN void shmi_counter_pay(struct shmi_counter *t, uint64_t due)
{
    if (due == SHMI_COUNTER_DUE_DEATH)
        shmi_counter_tell(t);
    else if (due != 0)
        shmi_counter_tell_zero(t, due);
}
/* Makes the counter 0, unless the commit word is not c any more. The caller pays what is due. */
SHMI_FN int shmi_counter_become_zero(struct shmi_counter *t, uint64_t c, uint64_t *due)
{
    shmi_tuning u = shmi_counter_tuning(t);
    uint64_t to;
    uint32_t ticket;
    if ((c & SHMI_COUNTER_WATCHED) == 0)
        return shmi_cas64(&t->w->commit, c, 0);
    do
        ticket = (uint32_t)(shmi_add64(&t->w->tickets, 1) + 1) & SHMI_COUNTER_TICKETS;
    while (ticket == 0 || ticket == (uint32_t)(shmi_ld64(&t->w->events) >> 32));
    to = (uint64_t)ticket << 3 | SHMI_COUNTER_WATCHED;
    shmi_note_cpu(&u); /* a waiter that sees the zero may look for it */
    if (!shmi_cas64(&t->w->commit, c, to))
        return 0;
    SHMSYNC_CRASHPOINT("counter.zero.untold");
    *due = to;
    return 1;
}

/* What the share of a slot is worth, in a logged form that is complete. */
SHMI_FN uint64_t shmi_counter_has(struct shmi_counter *t, shmi_counter_slot *s)
{
    return shmi_value_of(&s->period) == shmi_value_of(&t->w->period) ? shmi_value_of(&s->own) : 0;
}
SHMI_FN shmi_participant_id shmi_counter_holder(shmi_counter_slot *s) { return (shmi_participant_id)(shmi_value_of(&s->name) & SHMI_NAME_MASK); }
/* How much of a share others may claim. */
SHMI_FN uint64_t shmi_counter_claimable(struct shmi_counter *t, shmi_counter_slot *s)
{
    uint64_t own = shmi_counter_has(t, s);
    return own - shmi_min(shmi_value_of(&s->claimed), own);
}

/* The share of this participant, as a change needs it. own is the count at most: others also do work of this share, so the word may exceed the count. */
typedef struct shmi_own_share {
    uint64_t own, claimed;
    int void_; /* the slot has no share of this period */
} shmi_own_share;
/* 0 if the slot has the share of a dead one, which is to be folded. */
SHMI_FN int shmi_counter_mine(struct shmi_counter *t, uint64_t count, shmi_own_share *h)
{
    shmi_counter_slot *s = &t->slots[t->a->my_slot - 1];
    h->own = shmi_min(shmi_counter_has(t, s), count);
    h->claimed = shmi_min(shmi_value_of(&s->claimed), h->own);
    h->void_ = shmi_counter_holder(s) != t->a->self || shmi_value_of(&s->period) != shmi_value_of(&t->w->period);
    if (h->void_ && h->own != 0)
        return 0;
    if (h->void_)
        h->claimed = 0;
    return 1;
}
SHMI_FN void shmi_counter_put(struct shmi_counter *t, shmi_counter_change *ch, const shmi_own_share *h, uint64_t own, uint64_t claimed)
{
    uint32_t slot = t->a->my_slot;
    if (h->void_) {
        if (own == 0)
            return;
        shmi_counter_set(ch, shmi_share_at(slot, SHMI_shareName), t->a->self);
        shmi_counter_set(ch, shmi_share_at(slot, SHMI_sharePeriod), shmi_value_of(&t->w->period));
    }
    shmi_counter_set(ch, shmi_share_at(slot, SHMI_shareOwn), own);
    if (h->void_ || claimed != h->claimed || own > h->own)
        shmi_counter_set(ch, shmi_share_at(slot, SHMI_shareClaimed), claimed);
}
/* Makes one attempt to make the share of a slot what the dead owe, with the private lock held. If *due is not 0 after it, the share is folded. */
SHMI_FN int shmi_counter_fold(struct shmi_counter *t, uint64_t c, uint32_t slot, uint64_t *due)
{
    shmi_counter_slot *s = &t->slots[slot - 1];
    shmi_counter_change ch;
    int ok, err;
    ch.n = 0;
    shmi_counter_set(&ch, SHMI_counterOwed, shmi_min(shmi_value_of(&t->w->owed) + shmi_counter_has(t, s), shmi_value_of(&t->w->count)));
    shmi_counter_set(&ch, SHMI_counterDeadID, shmi_counter_holder(s));
    shmi_counter_set(&ch, shmi_share_at(slot, SHMI_shareOwn), 0);
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok)
        *due = SHMI_COUNTER_DUE_DEATH;
    return err;
}

/* What an attempt in the logged form came to. */
enum { SHMI_counterAgain, SHMI_counterDone, SHMI_counterNot, SHMI_counterReap, SHMI_counterAwait };

/* Makes one attempt to add n, or to take n off, in the logged form. */
SHMI_FN int shmi_counter_change_locked(struct shmi_counter *t, uint64_t c, uint64_t n, int add, int *next, uint64_t *due)
{
    shmi_counter_change ch;
    shmi_own_share h;
    uint64_t count;
    int ok = 0, err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    count = shmi_value_of(&t->w->count);
    if (add ? n > SHMI_COUNTER_MAX - shmi_min(count, SHMI_COUNTER_MAX) : n > count) {
        *next = shmi_counter_load(t) == c ? SHMI_counterNot : SHMI_counterAgain;
        return 0;
    }
    if (!add && n == count) {
        *next = shmi_counter_become_zero(t, c, due) ? SHMI_counterDone : SHMI_counterAgain;
        return 0;
    }
    if (!shmi_counter_mine(t, count, &h))
        return shmi_counter_fold(t, c, t->a->my_slot, due);
    ch.n = 0;
    if (add) {
        shmi_counter_set(&ch, SHMI_counterCount, count + n);
        shmi_counter_put(t, &ch, &h, h.own + n, h.claimed); /* others may claim what is added now */
    } else {
        uint64_t own = h.own - shmi_min(n, h.own);
        shmi_counter_set(&ch, SHMI_counterCount, count - n);
        if (h.own > 0)
            shmi_counter_put(t, &ch, &h, own, shmi_min(h.claimed, own));
    }
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok) {
        if (add)
            SHMSYNC_CRASHPOINT("counter.add.counted");
        else
            SHMSYNC_CRASHPOINT("counter.done.counted");
        *next = SHMI_counterDone;
    }
    return err;
}
SHMI_FN int shmi_counter_change_logged(struct shmi_counter *t, uint64_t c, uint64_t n, int add, int *next)
{
    uint64_t due = 0;
    int err;
    *next = SHMI_counterAgain;
    pthread_mutex_lock(&t->a->counter_lock);
    err = shmi_counter_change_locked(t, c, n, add, next, &due);
    pthread_mutex_unlock(&t->a->counter_lock);
    shmi_counter_pay(t, due);
    return err;
}

SHMI_FN int shmi_counter_add(struct shmi_counter *t, uint64_t n)
{
    uint64_t me = shmi_counter_me(t);
    int next, err = shmi_enter(t->a, "waitgroup.add");
    if (err != 0)
        return err;
    for (next = SHMI_counterAgain; err == 0 && next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_untold(c)) {
            shmi_counter_tell_zero(t, c);
        } else if (shmi_counter_is_logged(c)) {
            err = shmi_counter_change_logged(t, c, n, 1, &next);
        } else if (n > SHMI_COUNTER_MAX - (c >> 32)) {
            next = SHMI_counterNot;
        } else if (c == 0 || shmi_counter_owned_by(c, me)) {
            if (shmi_cas64(&t->w->commit, c, c == 0 ? n << 32 | me : c + (n << 32))) {
                SHMSYNC_CRASHPOINT("counter.add.counted");
                next = SHMI_counterDone;
            }
        } else {
            err = shmi_counter_convert(t, c);
        }
    }
    if (next == SHMI_counterNot)
        err = shmi_fail(EINVAL, "waitgroup.add", shmi_called(&t->o), "the counter would be too big");
    shmi_exit(t->a);
    return err;
}

SHMI_FN int shmi_counter_finish(struct shmi_counter *t, int64_t n, const char *op)
{
    uint64_t me = shmi_counter_me(t);
    int next, err;
    if (n < 0)
        return shmi_fail(EINVAL, op, shmi_called(&t->o), "%lld", (long long)n);
    err = shmi_enter(t->a, op);
    if (err != 0)
        return err;
    for (next = n == 0 ? SHMI_counterDone : SHMI_counterAgain; err == 0 && next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_logged(c)) {
            err = shmi_counter_change_logged(t, c, (uint64_t)n, 0, &next);
        } else if ((uint64_t)n > c >> 32) {
            next = SHMI_counterNot;
        } else if ((uint64_t)n == c >> 32) {
            uint64_t due = 0;
            if (shmi_counter_become_zero(t, c, &due))
                next = SHMI_counterDone;
            shmi_counter_pay(t, due);
        } else if (shmi_counter_owned_by(c, me) || shmi_counter_owned_by(c, 0)) {
            if (shmi_cas64(&t->w->commit, c, c - ((uint64_t)n << 32))) {
                SHMSYNC_CRASHPOINT("counter.done.counted");
                next = SHMI_counterDone;
            }
        } else {
            err = shmi_counter_convert(t, c);
        }
    }
    if (next == SHMI_counterNot)
        err = shmi_counter_too_much(t, op, n);
    shmi_exit(t->a);
    return err;
}

#define SHMI_COUNTER_DEAD_NOBODY "it does not say which dead participant owes work"
/* The dead participant that leaves work undone, or 0, which is right for a moment after c was read. *current is 0 if *died may be another dead participant. */
SHMI_FN int shmi_counter_lost_at(struct shmi_counter *t, uint64_t c, shmi_participant_id *died, int *current)
{
    int err;
    *died = shmi_counter_is_lost(c) ? shmi_counter_owner(c) : 0;
    *current = 1;
    if (shmi_counter_is_lost(c) && *died == 0)
        return shmi_counter_corrupt(t, SHMI_COUNTER_DEAD_NOBODY);
    if (!shmi_counter_is_logged(c))
        return 0;
    err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    if (shmi_value_of(&t->w->owed) == 0)
        return 0; /* a fold makes waiters look after it has changed owed */
    *died = (shmi_participant_id)(shmi_value_of(&t->w->dead) & SHMI_NAME_MASK);
    /* If the word has moved on, owed may belong to a later record, which is half carried out. */
    *current = shmi_counter_bare(shmi_counter_load(t)) == shmi_counter_bare(c);
    return *current && *died == 0 ? shmi_counter_corrupt(t, SHMI_COUNTER_DEAD_NOBODY) : 0;
}

/* Makes one attempt to fold the share of a slot, if that is a dead participant's or that of without. *ok is 1 if the slot has no such share now. */
SHMI_FN int shmi_counter_reap_share(struct shmi_counter *t, uint64_t c, uint32_t slot, shmi_participant_id without, int *ok)
{
    uint64_t due = 0;
    int err;
    pthread_mutex_lock(&t->a->counter_lock);
    err = shmi_counter_complete(t, c);
    if (err == 0) {
        shmi_counter_slot *s = &t->slots[slot - 1];
        if (shmi_counter_has(t, s) != 0 && (shmi_counter_holder(s) == without || !shmi_current(t->a, shmi_counter_holder(s)))) {
            err = shmi_counter_fold(t, c, slot, &due);
            *ok = due != 0;
        } else {
            *ok = 1;
        }
    }
    pthread_mutex_unlock(&t->a->counter_lock);
    shmi_counter_pay(t, due);
    return err;
}
/* Folds the shares of dead participants, and of without, slot by slot. The commit word was of the logged form after those deaths. One look at each slot is enough; see prims/counter_repair.go. */
SHMI_FN void shmi_counter_reap_shares(struct shmi_counter *t, shmi_participant_id without)
{
    uint32_t slot;
    for (slot = 1; slot <= t->n_slots;) {
        uint64_t c = shmi_counter_load(t);
        int ok = 0;
        if (!shmi_counter_is_logged(c) || shmi_counter_reap_share(t, c, slot, without, &ok) != 0)
            return; /* a zero has made all shares void */
        slot += (uint32_t)ok;
    }
}
/* Makes the shares of dead participants, and that of without, what the dead owe. */
SHMI_FN void shmi_counter_reap(struct shmi_counter *t, shmi_participant_id without)
{
    for (;;) {
        uint64_t c = shmi_counter_load(t);
        shmi_participant_id n = shmi_counter_owner(c);
        if (shmi_counter_is_logged(c)) {
            shmi_counter_reap_shares(t, without);
            return;
        }
        if (n == 0 || shmi_counter_is_lost(c) || (n != without && shmi_current(t->a, n)))
            return;
        if (shmi_cas64(&t->w->commit, c, c | SHMI_COUNTER_DEAD)) {
            shmi_counter_tell(t);
            return;
        }
    }
}
/* Makes what participants have that died the dead's. */
SHMI_FN void shmi_counter_reap_dead(struct shmi_counter *t)
{
    uint64_t c = shmi_counter_load(t);
    uint32_t i;
    int dead = 0;
    if (shmi_counter_is_logged(c)) {
        if (shmi_counter_complete(t, c) != 0)
            return;
        for (i = 0; i < t->n_slots; i++)
            if (shmi_counter_has(t, &t->slots[i]) != 0)
                dead |= shmi_dead(t->a, shmi_counter_holder(&t->slots[i]));
    } else if (shmi_counter_owner(c) != 0 && !shmi_counter_is_lost(c)) {
        dead = shmi_dead(t->a, shmi_counter_owner(c));
    }
    if (dead)
        shmi_counter_reap(t, 0);
}

typedef struct shmi_counter_spin {
    struct shmi_counter *t;
    uint32_t began;
} shmi_counter_spin;
SHMI_FN int shmi_counter_spun(void *arg)
{
    shmi_counter_spin *x = (shmi_counter_spin *)arg;
    uint64_t c = shmi_counter_load(x->t);
    return shmi_counter_is_zero(c) || shmi_counter_is_lost(c) || (uint32_t)(shmi_ld64(&x->t->w->events) >> 32) != x->began;
}
/* Makes up for what a stopped or dead process owes, ten times a second. */
SHMI_FN void shmi_counter_check(struct shmi_counter *t)
{
    uint64_t e, c;
    shmi_participant_id died = 0;
    int moved, current;
    if (!shmi_check_due(&t->looked))
        return;
    e = shmi_ld64(&t->w->events);
    moved = shmi_xchg64(&t->seen, e) != e;
    shmi_counter_reap_dead(t);
    c = shmi_counter_load(t);
    if (shmi_counter_is_untold(c))
        shmi_counter_tell_zero(t, c);
    if (shmi_counter_lost_at(t, c, &died, &current) != 0 || moved || shmi_counter_is_zero(c) || died != 0 || !current)
        shmi_deliver_all(t->a, &t->line);
}
SHMI_FN int shmi_counter_gives_up(struct shmi_counter *t, int ended)
{
    return ended == SHMI_LATE ? shmi_brief(ETIMEDOUT, t->op, shmi_called(&t->o))
                              : shmi_fail(EBADF, t->op, shmi_called(&t->o), "this process closed the arena");
}
/* How often a waiter looks at a counter that changes all the time, to read who died. Then it sleeps until the next periodic check. */
enum { SHMI_counterLooks = 16 };
SHMI_FN int shmi_counter_wait_entered(struct shmi_counter *t, int64_t deadline)
{
    uint32_t began = (uint32_t)(shmi_ld64(&t->w->events) >> 32);
    int64_t since = 0;
    int looks; /* since the last sleep; a call that looks again without a sleep examines its deadline, and does not spin */
    for (looks = 0;; looks++) {
        uint64_t e = shmi_ld64(&t->w->events), c = shmi_counter_load(t);
        shmi_sleep_spec spec;
        shmi_participant_id died;
        int current, err, ended;
        if (shmi_counter_is_zero(c) || (uint32_t)(e >> 32) != began)
            return 0;
        if (looks > 0 && deadline != 0 && shmi_now() >= deadline)
            return shmi_counter_gives_up(t, SHMI_LATE);
        if (looks > 0 && __atomic_load_n(&t->a->closing, __ATOMIC_SEQ_CST))
            return shmi_counter_gives_up(t, SHMI_CLOSED);
        err = shmi_counter_lost_at(t, c, &died, &current);
        if (err != 0)
            return err;
        if (died != 0 && current)
            return shmi_fail_who(t->a, EOWNERDEAD, t->op, shmi_called(&t->o), died);
        if (!current && looks < SHMI_counterLooks)
            continue;
        if ((c & SHMI_COUNTER_WATCHED) == 0) {
            shmi_tuning u = shmi_counter_tuning(t);
            shmi_counter_spin x;
            x.t = t;
            x.began = began;
            if (looks == 0 && shmi_spin(&u, shmi_counter_spun, &x))
                continue;
            c = shmi_counter_load(t);
            if (shmi_counter_is_zero(c) || (c & SHMI_COUNTER_WATCHED) != 0 || !shmi_cas64(&t->w->commit, c, c | SHMI_COUNTER_WATCHED))
                continue;
        }
        SHMSYNC_CRASHPOINT("counter.wait.watched");
        memset(&spec, 0, sizeof spec);
        spec.looked = &t->looked;
        spec.word = t->line.word;
        spec.val = (uint32_t)e;
        spec.object = t->o.off;
        spec.wanted = (uint32_t)e;
        spec.deadline = deadline;
        spec.since = &since;
        looks = -1;
        ended = shmi_sleep(t->a, &spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("counter.wait.woken");
            break;
        case SHMI_LOOK:
            shmi_counter_check(t);
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a zero that has come beats the end of the wait */
            if (shmi_counter_is_zero(shmi_counter_load(t)) || (uint32_t)(shmi_ld64(&t->w->events) >> 32) != began)
                return 0;
            return shmi_counter_gives_up(t, ended);
        }
    }
}
SHMI_FN int shmi_counter_wait(struct shmi_counter *t, int64_t abs)
{
    shmsync_arena *a = t->a;
    int err;
    if (shmi_counter_is_zero(shmi_counter_load(t)))
        return 0;
    err = shmi_enter(a, t->op);
    if (err != 0)
        return err;
    err = shmi_counter_wait_entered(t, abs);
    shmi_exit(a);
    return err;
}

SHMI_FN void shmi_counter_init(struct shmi_counter *t, shmsync_arena *a, const shmi_object *o)
{
    memset(t, 0, sizeof *t);
    t->a = a;
    t->o = *o;
    t->w = (shmi_counter_words *)shmi_ptr(a, o->body, shmi_counter_bytes(a->geo.slots), 8);
    t->slots = (shmi_counter_slot *)(void *)(t->w + 1);
    t->n_slots = a->geo.slots;
    t->line.word = (uint32_t *)(void *)&t->w->events; /* the low half */
    t->line.poller = &t->w->poller;
    t->op = o->kind == SHMI_KIND_LATCH ? "latch.wait" : "waitgroup.wait";
}
SHMI_FN void *shmi_counter_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_counter *t = (struct shmi_counter *)shmi_new_thing(sizeof *t);
    (void)arg;
    if (t != NULL)
        shmi_counter_init(t, a, o);
    return t;
}

/* A claim on its way. */
typedef struct shmi_claiming {
    uint64_t n, rest, period;
    int from_others, reaped;
} shmi_claiming;
/* Makes one attempt to claim: from the dead, from nobody, and from one other participant. */
SHMI_FN int shmi_counter_claim_locked(struct shmi_counter *t, uint64_t c, shmi_claiming *k, int *next, uint64_t *due)
{
    uint64_t count, owed, shares, free = 0, others, of_dead, of_nobody, of_most = 0, n, period;
    uint32_t i, me = t->a->my_slot, most = 0;
    shmi_counter_change ch;
    shmi_own_share h;
    int ok, err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    period = shmi_value_of(&t->w->period);
    if (period != k->period) { /* the counter was 0, so earlier claims are void */
        k->rest = k->n;
        k->period = period;
    }
    count = shmi_value_of(&t->w->count);
    if (!shmi_counter_mine(t, count, &h))
        return shmi_counter_fold(t, c, me, due);
    owed = shmi_value_of(&t->w->owed);
    shares = h.own;
    for (i = 1; i <= t->n_slots; i++) {
        uint64_t claimable;
        if (i == me)
            continue;
        shares += shmi_counter_has(t, &t->slots[i - 1]);
        claimable = shmi_counter_claimable(t, &t->slots[i - 1]);
        if (claimable > 0) {
            free += claimable;
            if (most == 0 || claimable > shmi_counter_claimable(t, &t->slots[most - 1]))
                most = i;
        }
    }
    others = count > owed + shares ? count - owed - shares : 0;
    if (!k->from_others)
        free = most = 0;
    free += others + owed;
    if (k->from_others)
        free = shmi_min(free, count - h.own); /* if less than nothing is nobody's */
    if (shmi_counter_load(t) != c)
        return 0;
    if (k->rest > free) {
        *next = k->reaped ? SHMI_counterNot : SHMI_counterReap;
        return 0;
    }
    if (owed != 0 && !shmi_all_gone(t->a)) {
        *next = SHMI_counterAwait;
        return 0;
    }
    ch.n = 0;
    of_dead = shmi_min(k->rest, owed);
    if (of_dead > 0)
        shmi_counter_set(&ch, SHMI_counterOwed, owed - of_dead);
    of_nobody = shmi_min(k->rest - of_dead, others);
    if (k->rest > of_dead + of_nobody && most != 0) {
        of_most = shmi_min(k->rest - of_dead - of_nobody, shmi_counter_claimable(t, &t->slots[most - 1]));
        shmi_counter_set(&ch, shmi_share_at(most, SHMI_shareOwn), shmi_counter_has(t, &t->slots[most - 1]) - of_most);
    }
    n = of_dead + of_nobody + of_most;
    if (n == 0) {
        if (shmi_counter_load(t) == c)
            *next = SHMI_counterNot; /* a peer overwrote the shares */
        return 0;
    }
    shmi_counter_put(t, &ch, &h, h.own + n, h.claimed + n);
    err = shmi_counter_commit(t, c, &ch, &ok);
    if (ok) {
        k->rest -= n;
    }
    return err;
}
/* Makes n of what is expected this participant's own: of what the dead owe first, then of what nobody has, and then, if from_others, of what other participants have. */
SHMI_FN int shmi_counter_claim_entered(struct shmi_counter *t, shmi_claiming *k, const char *op, int *next)
{
    int err = 0;
    if (k->from_others) {
        shmi_counter_reap_dead(t); /* the process that had it may be dead, and this one has come in its place */
        k->reaped = 1;
    }
    for (*next = SHMI_counterAgain; err == 0 && *next == SHMI_counterAgain;) {
        uint64_t c = shmi_counter_load(t);
        if (shmi_counter_is_untold(c)) {
            shmi_counter_tell_zero(t, c);
            continue;
        }
        if (!shmi_counter_is_logged(c) && c >> 32 < k->rest) {
            *next = k->reaped ? SHMI_counterNot : SHMI_counterReap;
        } else if (k->rest == 0) {
            *next = SHMI_counterDone;
        } else if (!shmi_counter_is_logged(c)) {
            err = shmi_counter_convert(t, c);
        } else {
            uint64_t due = 0;
            pthread_mutex_lock(&t->a->counter_lock);
            err = shmi_counter_claim_locked(t, c, k, next, &due);
            pthread_mutex_unlock(&t->a->counter_lock);
            shmi_counter_pay(t, due);
        }
        if (err == 0 && *next == SHMI_counterReap) {
            shmi_counter_reap_dead(t);
            k->reaped = 1;
            *next = SHMI_counterAgain;
        } else if (err == 0 && *next == SHMI_counterAwait) { /* what the dead owe is taken from those that are gone */
            err = shmi_await_gone(t->a, 0, op, shmi_called(&t->o), 0);
            *next = SHMI_counterAgain;
        }
    }
    return err;
}
SHMI_FN int shmi_counter_claim(struct shmi_counter *t, int64_t n, int from_others, const char *op)
{
    shmi_claiming k;
    int next, err;
    if (n < 0)
        return shmi_counter_too_much(t, op, n);
    err = shmi_enter(t->a, op);
    if (err != 0)
        return err;
    memset(&k, 0, sizeof k);
    k.n = k.rest = (uint64_t)n;
    k.from_others = from_others;
    err = shmi_counter_claim_entered(t, &k, op, &next);
    if (err == 0 && next == SHMI_counterNot)
        err = shmi_counter_too_much(t, op, n);
    shmi_exit(t->a);
    return err;
}

SHMI_FN int shmi_counter_reset_locked(struct shmi_counter *t, uint64_t c, int *ok, uint64_t *due)
{
    uint64_t count, owed;
    shmi_counter_change ch;
    int err = shmi_counter_complete(t, c);
    if (err != 0)
        return err;
    count = shmi_value_of(&t->w->count);
    owed = shmi_value_of(&t->w->owed);
    if (owed >= count) { /* others have done some of it */
        *ok = shmi_counter_become_zero(t, c, due);
        return 0;
    }
    ch.n = 0;
    shmi_counter_set(&ch, SHMI_counterCount, count - owed);
    shmi_counter_set(&ch, SHMI_counterOwed, 0);
    return shmi_counter_commit(t, c, &ch, ok);
}
/* Forgets what the dead owe. */
SHMI_FN int shmi_counter_reset(struct shmi_counter *t)
{
    int ok = 0, err = shmi_enter(t->a, "counter.reset");
    if (err != 0)
        return err;
    shmi_counter_reap_dead(t);
    while (err == 0 && !ok) {
        uint64_t c = shmi_counter_load(t);
        shmi_participant_id died;
        uint64_t due = 0;
        int current;
        err = shmi_counter_lost_at(t, c, &died, &current);
        if (err != 0 || !current)
            continue;
        if (died == 0)
            break;
        if (!shmi_all_gone(t->a)) {
            err = shmi_await_gone(t->a, 0, "counter.reset", shmi_called(&t->o), 0);
        } else if (!shmi_counter_is_logged(c)) {
            ok = shmi_counter_become_zero(t, c, &due);
        } else {
            pthread_mutex_lock(&t->a->counter_lock);
            err = shmi_counter_reset_locked(t, c, &ok, &due);
            pthread_mutex_unlock(&t->a->counter_lock);
        }
        shmi_counter_pay(t, due);
    }
    shmi_exit(t->a);
    return err;
}
/* The counter; it gives up to have it of one moment when it changes all the time. */
SHMI_FN int64_t shmi_counter_count(struct shmi_counter *t)
{
    uint64_t count = 0;
    int tries;
    for (tries = 0; tries < 1000; tries++) {
        uint64_t c = shmi_counter_load(t);
        if (!shmi_counter_is_logged(c))
            return (int64_t)(c >> 32);
        if (shmi_counter_complete(t, c) != 0)
            return 0;
        count = shmi_value_of(&t->w->count);
        if (shmi_counter_bare(shmi_counter_load(t)) == shmi_counter_bare(c))
            break;
    }
    return (int64_t)count;
}
SHMI_FN int shmi_counter_close(struct shmi_counter *t) { return shmi_unshare(t->a, t->o.off, shmi_mutex_end); }

/* What a new counter begins with. */
typedef struct shmi_counter_spec {
    uint64_t n;
    uint32_t spin;
} shmi_counter_spec;
SHMI_FN void shmi_counter_fill(unsigned char *body, const void *arg)
{
    shmi_counter_words *w = (shmi_counter_words *)(void *)body;
    const shmi_counter_spec *s = (const shmi_counter_spec *)arg;
    w->size = s->n;
    w->commit = s->n << 32;
    w->spin = s->spin;
}

SHMI_FN int shmi_open_waitgroup(int existing, shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    shmi_counter_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    init.n = 0;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, name, shmi_counter_bytes(a->geo.slots));
    spec.init = shmi_counter_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_waitgroup_open(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_waitgroup(0, a, name, opts, out));
}
int shmsync_waitgroup_attach(shmsync_arena *a, const char *name, const shmsync_waitgroup_options *opts, shmsync_waitgroup *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_waitgroup(1, a, name, opts, out));
}
int shmsync_waitgroup_at(shmsync_arena *a, shmsync_offset off, shmsync_waitgroup *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "waitgroup.open", SHMI_KIND_WAIT_GROUP, SHMI_VERSION_WAIT_GROUP, shmi_counter_bytes(a->geo.slots), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_waitgroup_offset(const shmsync_waitgroup *g)
{
    SHMI_OPENED_OR(g, 0);
    return g->impl->o.off;
}
int shmsync_waitgroup_close(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    int err;
    if (g->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_counter_close(g->impl);
    if (err == 0)
        g->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_waitgroup_add(shmsync_waitgroup *g, int64_t delta)
{
    SHMI_OPENED(g);
    if (delta == INT64_MIN)
        return shmi_fail(EINVAL, "waitgroup.add", shmi_called(&g->impl->o), "%s", "");
    return SHMI_TELL(delta <= 0 ? shmi_counter_finish(g->impl, -delta, "waitgroup.add") : shmi_counter_add(g->impl, (uint64_t)delta));
}
int shmsync_waitgroup_claim(shmsync_waitgroup *g, int64_t n)
{
    SHMI_OPENED(g);
    return SHMI_TELL(shmi_counter_claim(g->impl, n, 1, "waitgroup.claim"));
}
int shmsync_waitgroup_done(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_TELL(shmi_counter_finish(g->impl, 1, "waitgroup.done"));
}
int shmsync_waitgroup_wait(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_TELL(shmi_counter_wait(g->impl, 0));
}
int shmsync_waitgroup_timedwait(shmsync_waitgroup *g, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(g);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_counter_wait(g->impl, ns));
}
int shmsync_waitgroup_reset(shmsync_waitgroup *g)
{
    SHMI_OPENED(g);
    return SHMI_TELL(shmi_counter_reset(g->impl));
}
int64_t shmsync_waitgroup_count(const shmsync_waitgroup *g)
{
    SHMI_OPENED_OR(g, 0);
    return shmi_counter_count(g->impl);
}

SHMI_FN int shmi_open_latch(int existing, shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out)
{
    shmi_counter_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    if (!existing && n < 1)
        return shmi_fail(EINVAL, "latch.open", name, "it takes a count of at least 1, not %lld; shmsync_latch_attach opens one that exists", (long long)n);
    if (!existing && (uint64_t)n > SHMI_COUNTER_MAX)
        return shmi_fail(EINVAL, "latch.open", name, "the highest count is %lld, not %lld", (long long)SHMI_COUNTER_MAX, (long long)n);
    init.n = (uint64_t)n;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_LATCH, SHMI_VERSION_LATCH, name, shmi_counter_bytes(a->geo.slots));
    spec.init = shmi_counter_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_counter_build, NULL, &created, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && !existing && shmi_ld64(&out->impl->w->size) != (uint64_t)n) {
        shmsync_latch_close(out);
        err = shmi_fail(EINVAL, "latch.open", name, "it began with another number than %lld", (long long)n);
    }
    return err;
}
int shmsync_latch_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_latch_options *opts, shmsync_latch *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_latch(0, a, name, n, opts, out));
}
int shmsync_latch_attach(shmsync_arena *a, const char *name, const shmsync_latch_options *opts, shmsync_latch *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_latch(1, a, name, 0, opts, out));
}
int shmsync_latch_at(shmsync_arena *a, shmsync_offset off, shmsync_latch *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "latch.open", SHMI_KIND_LATCH, SHMI_VERSION_LATCH, shmi_counter_bytes(a->geo.slots), shmi_counter_build, NULL, &impl);
    out->impl = (struct shmi_counter *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_latch_offset(const shmsync_latch *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
int shmsync_latch_close(shmsync_latch *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_counter_close(l->impl);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_latch_claim(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_counter_claim(l->impl, n, 0, "latch.claim"));
}
int shmsync_latch_count_down(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_counter_finish(l->impl, n, "latch.count_down"));
}
int shmsync_latch_trywait(shmsync_latch *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_counter_is_zero(shmi_counter_load(l->impl)) ? 0 : EBUSY);
}
int shmsync_latch_wait(shmsync_latch *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_counter_wait(l->impl, 0));
}
int shmsync_latch_timedwait(shmsync_latch *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_counter_wait(l->impl, ns));
}
int shmsync_latch_arrive_and_wait(shmsync_latch *l, int64_t n)
{
    SHMI_OPENED(l);
    int err = shmsync_latch_count_down(l, n);
    return SHMI_TELL(err != 0 ? err : shmi_counter_wait(l->impl, 0));
}
int shmsync_latch_reset(shmsync_latch *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_counter_reset(l->impl));
}
int64_t shmsync_latch_count(const shmsync_latch *l)
{
    SHMI_OPENED_OR(l, 0);
    return shmi_counter_count(l->impl);
}

SHMI_FN void shmi_repair_counter(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_counter t;
    if (o->size < shmi_counter_bytes(a->geo.slots))
        return;
    shmi_counter_init(&t, a, o);
    shmi_counter_reap(&t, dead == a->self ? dead : 0); /* if dead is this participant, which leaves, it is current still */
}
SHMI_FN void shmi_wake_counter(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_counter t;
    uint64_t c;
    if (o->size < shmi_counter_bytes(a->geo.slots))
        return;
    shmi_counter_init(&t, a, o);
    c = shmi_counter_load(&t);
    if (shmi_counter_is_untold(c))
        shmi_counter_tell_zero(&t, c);
    if (owed != SHMI_OWED_ANNOUNCED || (c & SHMI_COUNTER_WATCHED) != 0)
        shmi_deliver_all(a, &t.line);
}

/* ---- Once: prims/once*.go in C ---- */

/* The word; see prims/once_word.go. */
#define SHMI_ONCE_ANNOUNCED UINT64_C(1)
#define SHMI_ONCE_DONE UINT64_C(2)
#define SHMI_ONCE_TURN (UINT64_C(1) << 32)
#define SHMI_ONCE_IDS ((uint64_t)SHMI_NAME_MASK << 3)

struct shmi_once {
    shmsync_arena *a;
    shmi_once_words *w;
    shmi_wait_list line;
    int64_t looked;
    shmi_object o;
};

SHMI_FN uint64_t shmi_once_load(struct shmi_once *o) { return shmi_ld64(&o->w->state); }
SHMI_FN int shmi_once_is_done(uint64_t w) { return (w & SHMI_ONCE_DONE) != 0; }
SHMI_FN shmi_participant_id shmi_once_runner(uint64_t w) { return (shmi_participant_id)((uint32_t)w >> 3); }
/* The word when n begins the next turn. */
SHMI_FN uint64_t shmi_once_taken_by(uint64_t w, shmi_participant_id n) { return ((w & ~SHMI_ONCE_IDS) + SHMI_ONCE_TURN) | (uint64_t)n << 3; }
/* Whether the turn is still the one that began with the word began. */
SHMI_FN int shmi_once_runs(uint64_t w, uint64_t began)
{
    return !shmi_once_is_done(w) && shmi_once_runner(w) == shmi_once_runner(began) && w >> 32 == began >> 32;
}
/* Whether the next call may run its function: nobody runs one, or the runner is dead and gone. */
SHMI_FN int shmi_once_free(struct shmi_once *o, uint64_t w)
{
    shmi_participant_id n = shmi_once_runner(w);
    return n == 0 || (!shmi_current(o->a, n) && shmi_gone(o->a, n));
}

SHMI_FN void shmi_once_init(struct shmi_once *x, shmsync_arena *a, const shmi_object *o)
{
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    x->w = (shmi_once_words *)shmi_ptr(a, o->body, sizeof(shmi_once_words), 8);
    x->line.word = (uint32_t *)(void *)&x->w->state; /* the low half */
    x->line.poller = &x->w->poller;
}
SHMI_FN void *shmi_once_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_once *x = (struct shmi_once *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x != NULL)
        shmi_once_init(x, a, o);
    return x;
}
SHMI_FN void shmi_once_fill(unsigned char *body, const void *arg) { ((shmi_once_words *)(void *)body)->spin = *(const uint32_t *)arg; }

SHMI_FN int shmi_open_once(int existing, shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_mon_spec(&spec, SHMI_KIND_ONCE, SHMI_VERSION_ONCE, name, sizeof(shmi_once_words));
    spec.init = shmi_once_fill;
    spec.arg = &spin;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_once_build, NULL, &created, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_once_open(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(0, a, name, opts, out));
}
int shmsync_once_attach(shmsync_arena *a, const char *name, const shmsync_once_options *opts, shmsync_once *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_once(1, a, name, opts, out));
}
int shmsync_once_at(shmsync_arena *a, shmsync_offset off, shmsync_once *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "once.open", SHMI_KIND_ONCE, SHMI_VERSION_ONCE, sizeof(shmi_once_words), shmi_once_build, NULL, &impl);
    out->impl = (struct shmi_once *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_once_offset(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return o->impl->o.off;
}
int shmsync_once_close(shmsync_once *o)
{
    SHMI_OPENED(o);
    int err;
    if (o->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(o->impl->a, o->impl->o.off, shmi_mutex_end);
    if (err == 0)
        o->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_once_done(const shmsync_once *o)
{
    SHMI_OPENED_OR(o, 0);
    return shmi_once_is_done(shmi_once_load(o->impl));
}

/* Takes the turn from a runner that is dead, or is without, once that is gone, and wakes the waiters. */
SHMI_FN void shmi_once_reap(struct shmi_once *o, shmi_participant_id without)
{
    for (;;) {
        uint64_t w = shmi_once_load(o);
        shmi_participant_id n = shmi_once_runner(w);
        if (shmi_once_is_done(w) || n == 0 || (n != without && shmi_current(o->a, n)) || !shmi_gone(o->a, n))
            return;
        if (shmi_cas64(&o->w->state, w, w & ~SHMI_ONCE_IDS)) {
            SHMSYNC_CRASHPOINT("once.reap.left");
            shmi_deliver_all(o->a, &o->line);
            return;
        }
    }
}
/* Makes up for what a stopped or dead process owes, ten times a second. */
SHMI_FN void shmi_once_check(struct shmi_once *o)
{
    uint64_t w;
    if (!shmi_check_due(&o->looked))
        return;
    w = shmi_once_load(o);
    if (!shmi_once_is_done(w) && shmi_once_runner(w) != 0 && shmi_dead(o->a, shmi_once_runner(w)))
        shmi_once_reap(o, 0);
    w = shmi_once_load(o);
    if (shmi_once_is_done(w) || shmi_once_runner(w) == 0 || (w & SHMI_ONCE_ANNOUNCED) == 0)
        shmi_deliver_all(o->a, &o->line);
}

SHMI_FN shmi_tuning shmi_once_tuning(struct shmi_once *o)
{
    shmi_tuning t;
    t.budget = &o->w->spin;
    t.pays = &o->w->pays;
    t.last_cpu = &o->w->lastCPU;
    t.slot = o->a->my_slot;
    return t;
}
SHMI_FN int shmi_once_spun(void *arg)
{
    uint64_t w = shmi_once_load((struct shmi_once *)arg);
    return shmi_once_is_done(w) || shmi_once_runner(w) == 0;
}

/* Waits until a function has returned, or makes the caller the runner: then *began is the word with its turn, and else 0. */
SHMI_FN int shmi_once_join(struct shmi_once *o, int64_t deadline, uint64_t *began)
{
    int64_t since = 0;
    int waits = 0;
    *began = 0;
    for (;;) {
        uint64_t w = shmi_once_load(o);
        shmi_sleep_spec spec;
        int ended;
        if (shmi_once_is_done(w))
            return 0;
        if (shmi_once_free(o, w)) {
            uint64_t to = shmi_once_taken_by(w, o->a->self);
            if (!shmi_cas64(&o->w->state, w, to))
                continue;
            *began = to;
            return 0;
        }
        if (!waits) {
            shmi_tuning t = shmi_once_tuning(o);
            waits = 1;
            if ((w & SHMI_ONCE_ANNOUNCED) == 0)
                shmi_spin(&t, shmi_once_spun, o);
            continue; /* the word may have changed meanwhile */
        }
        if ((w & SHMI_ONCE_ANNOUNCED) == 0) {
            if (!shmi_cas64(&o->w->state, w, w | SHMI_ONCE_ANNOUNCED))
                continue;
            w |= SHMI_ONCE_ANNOUNCED;
        }
        SHMSYNC_CRASHPOINT("once.wait.announced");
        memset(&spec, 0, sizeof spec);
        spec.looked = &o->looked;
        spec.word = o->line.word;
        spec.val = (uint32_t)w;
        spec.object = o->o.off;
        spec.wanted = (uint32_t)w;
        spec.deadline = deadline;
        spec.since = &since;
        ended = shmi_sleep(o->a, &spec);
        switch (ended) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("once.wait.woken");
            break;
        case SHMI_LOOK:
            shmi_once_check(o);
            break;
        case SHMI_LATE:
        case SHMI_CLOSED: /* a function that has returned beats the end of the wait */
            if (shmi_once_is_done(shmi_once_load(o)))
                return 0;
            return ended == SHMI_LATE ? shmi_fail(ETIMEDOUT, "once.do", shmi_called(&o->o), "%s", "")
                                      : shmi_fail(EBADF, "once.do", shmi_called(&o->o), "this process closed the arena");
        }
    }
}
/* Notes that the function of the turn that began with that word has returned, and wakes the waiters. */
SHMI_FN void shmi_once_finish(struct shmi_once *o, uint64_t began)
{
    shmi_tuning t = shmi_once_tuning(o);
    for (;;) {
        uint64_t w = shmi_once_load(o);
        if (!shmi_once_runs(w, began))
            return; /* a peer overwrote the word */
        if ((w & SHMI_ONCE_ANNOUNCED) != 0)
            shmi_note_cpu(&t); /* a waiter that sees the end may look for it */
        if (!shmi_cas64(&o->w->state, w, (w & ~SHMI_ONCE_IDS) | SHMI_ONCE_DONE))
            continue;
        SHMSYNC_CRASHPOINT("once.run.done");
        if ((w & SHMI_ONCE_ANNOUNCED) != 0)
            shmi_deliver_all(o->a, &o->line);
        return;
    }
}
SHMI_FN int shmi_once_do(struct shmi_once *o, void (*f)(void *), void *arg, int64_t abs)
{
    shmsync_arena *a = o->a;
    uint64_t began;
    int err;
    if (SHMI_LIKELY(shmi_once_is_done(shmi_once_load(o))))
        return 0;
    err = shmi_enter(a, "once.do");
    if (err != 0)
        return err;
    err = shmi_once_join(o, abs, &began);
    if (began != 0) {
        SHMSYNC_CRASHPOINT("once.run.taken");
        SHMI_OUTSIDE(f(arg));
        SHMSYNC_CRASHPOINT("once.run.returned");
        shmi_once_finish(o, began);
    }
    shmi_exit(a);
    return err;
}
int shmsync_once_do(shmsync_once *o, void (*f)(void *), void *arg)
{
    SHMI_OPENED(o);
    return SHMI_TELL(shmi_once_do(o->impl, f, arg, 0));
}
int shmsync_once_timeddo(shmsync_once *o, void (*f)(void *), void *arg, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(o);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_once_do(o->impl, f, arg, ns));
}

SHMI_FN void shmi_repair_once(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_once x;
    if (o->size < sizeof(shmi_once_words))
        return;
    shmi_once_init(&x, a, o);
    shmi_once_reap(&x, dead == a->self ? dead : 0); /* if dead is this participant, which leaves, it is current still */
}
/* Makes up for a wake that a death swallowed. */
SHMI_FN void shmi_wake_once(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_once x;
    if (o->size < sizeof(shmi_once_words))
        return;
    shmi_once_init(&x, a, o);
    if (owed != SHMI_OWED_ANNOUNCED || (shmi_once_load(&x) & SHMI_ONCE_ANNOUNCED) != 0)
        shmi_deliver_all(a, &x.line);
}

/* ---- Barrier: prims/barrier*.go in C ---- */

struct shmi_barrier {
    struct shmi_monitor m;
    shmi_barrier_words *w;
    shmi_barrier_share *shares; /* of the slots, from slot 1 */
    uint32_t slots;
    void (*completion)(void *);
    void *completion_arg;
};

SHMI_FN uint64_t shmi_barrier_bytes(uint32_t slots) { return sizeof(shmi_barrier_words) + (uint64_t)slots * sizeof(shmi_barrier_share); }

/* How many of the parties a share is in a phase, and how many of their arrivals are to come. */
SHMI_FN uint64_t shmi_barrier_in(shmi_barrier_share *h, uint64_t phase, uint64_t *left)
{
    uint64_t parties = shmi_get(&h->parties), of = shmi_get(&h->phase);
    *left = shmi_get(&h->left);
    if (of == phase)
        return parties;
    if (of == phase - 1) {
        parties -= shmi_min(*left, parties); /* other processes arrived instead */
        *left = parties;
        return parties;
    }
    *left = 0;
    return 0;
}
SHMI_FN void shmi_barrier_set(struct shmi_change *c, shmi_barrier_share *h, uint64_t phase, uint64_t parties, uint64_t left)
{
    shmi_change_set(c, &h->phase, phase);
    shmi_change_set(c, &h->parties, parties);
    shmi_change_set(c, &h->left, left);
}

SHMI_FN int shmi_barrier_broken(struct shmi_barrier *x)
{
    uint64_t b = shmi_get(&x->w->broken);
    return b != 0 && b - 1 <= shmi_get(&x->w->phase);
}

enum { SHMI_barrierBreaks = 32, SHMI_barrierNames = 8 };

/* The name of a dead process and a number of parties, in one word. */
SHMI_FN uint64_t shmi_barrier_lost(uint64_t name, uint64_t parties)
{
    return (name & SHMI_NAME_MASK) | shmi_min(parties, UINT32_MAX) << 32;
}

/* How a wait for the end of a phase ends, if it is over. name is 0 with SHMI_outcomeDead for
 * a phase whose record a later broken phase has replaced: nobody knows how it ended. */
SHMI_FN int shmi_barrier_verdict(struct shmi_barrier *x, uint64_t p, uint32_t *end, uint32_t *name)
{
    uint64_t *record = &x->w->breaks[2 * (p % SHMI_barrierBreaks)], at;
    *end = SHMI_outcomeOpen;
    *name = 0;
    if (shmi_get(&x->w->phase) <= p) {
        if (!shmi_barrier_broken(x))
            return 0;
        *end = SHMI_outcomeDead;
        *name = (uint32_t)shmi_get(&x->w->dead);
    } else {
        at = shmi_get(&record[0]);
        if (at <= p)
            return 1;
        *end = SHMI_outcomeDead;
        if (at > p + 1)
            return 1;
        *name = (uint32_t)(shmi_get(&record[1]) & SHMI_NAME_MASK);
    }
    if (*name == 0)
        *name = 1; /* a peer's bytes, and broken all the same */
    return 1;
}

/* Makes a phase, and all later ones, broken by a death: that of the participant of h, whose
 * parties are lost, or, where h is NULL, that of the completer. */
SHMI_FN void shmi_barrier_break(struct shmi_barrier *x, uint64_t phase, uint64_t name, shmi_barrier_share *h)
{
    uint64_t b = shmi_get(&x->w->broken), parties, left;
    struct shmi_change c;
    int i;
    c.n = 0;
    if (b == 0 || phase < b - 1) {
        shmi_change_set(&c, &x->w->broken, phase + 1);
        shmi_change_set(&c, &x->w->dead, name);
    }
    if (h == NULL) {
        shmi_change_set(&c, &x->w->completer, 0);
        shmi_mon_commit(&x->m, &c);
        return;
    }
    parties = shmi_barrier_in(h, shmi_get(&x->w->phase), &left);
    shmi_change_set(&c, &h->parties, 0);
    shmi_change_set(&c, &h->left, 0);
    shmi_change_set(&c, &x->w->lost, shmi_get(&x->w->lost) + parties);
    for (i = 0; i < SHMI_barrierNames; i++)
        if (shmi_get(&x->w->gone[i]) == 0) {
            shmi_change_set(&c, &x->w->gone[i], shmi_barrier_lost(name, parties));
            break;
        }
    shmi_mon_commit(&x->m, &c);
}

/* Breaks the phase that the dead participant of a share leaves incomplete. */
SHMI_FN void shmi_barrier_lose(struct shmi_barrier *x, shmi_barrier_share *h)
{
    uint64_t phase = shmi_get(&x->w->phase), left, parties = shmi_barrier_in(h, phase, &left);
    if (left > 0 && shmi_get(&x->w->completer) == 0)
        shmi_barrier_break(x, phase, shmi_get(&h->name), h);
    else if (parties > left)
        shmi_barrier_break(x, phase + 1, shmi_get(&h->name), h);
}

/* This participant's share, with the queue lock held. */
SHMI_FN shmi_barrier_share *shmi_barrier_mine(struct shmi_barrier *x)
{
    shmi_participant_id self = x->m.a->self;
    shmi_barrier_share *h = &x->shares[shmi_id_slot(self) - 1];
    if (shmi_get(&h->name) != self) {
        shmi_barrier_lose(x, h);
        shmi_put(&h->parties, 0); /* nothing is left of it */
        shmi_put(&h->left, 0);
        shmi_put(&h->name, self);
    }
    return h;
}

SHMI_FN void shmi_barrier_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &x->w->queue)).n != NULL) {
        uint32_t end, name;
        int over = shmi_barrier_verdict(x, shmi_get(&w.n->wanted), &end, &name);
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (!over)
            return;
        else if (shmi_mon_end(m, b, w, end, name))
            shmi_mon_account(m, w, NULL);
    }
}
SHMI_FN void shmi_barrier_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_barrier *)m)->w->queue); }
SHMI_FN void shmi_barrier_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_barrier *)m)->w->queue, w); }
SHMI_FN void shmi_barrier_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_barrier *)m)->w->queue, w); }
SHMI_FN void shmi_barrier_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_barrier *)m)->w->queue); }
SHMI_FN void shmi_barrier_reap(struct shmi_monitor *m)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    uint64_t c = shmi_get(&x->w->completer);
    uint32_t i;
    if (shmi_mon_died(m, (shmi_participant_id)(c & SHMI_NAME_MASK)))
        shmi_barrier_break(x, shmi_get(&x->w->phase), c, NULL);
    for (i = 0; i < x->slots; i++)
        if (shmi_mon_died(m, shmi_name_of(&x->shares[i].name)))
            shmi_barrier_lose(x, &x->shares[i]);
}
SHMI_FN void shmi_barrier_holders(struct shmi_monitor *m)
{
    struct shmi_barrier *x = (struct shmi_barrier *)m;
    uint64_t phase = shmi_get(&x->w->phase), left;
    uint32_t i;
    shmi_mon_heed(m, shmi_name_of(&x->w->completer));
    for (i = 0; i < x->slots; i++)
        if (shmi_barrier_in(&x->shares[i], phase, &left) > 0)
            shmi_mon_heed(m, shmi_name_of(&x->shares[i].name));
}

static const struct shmi_rules shmi_barrier_rules = {
    shmi_barrier_resolve, shmi_account_nothing, shmi_barrier_clear, shmi_barrier_requeue, shmi_barrier_detach,
    shmi_barrier_discard_dead, shmi_barrier_reap, shmi_barrier_holders, NULL,
};

SHMI_FN void shmi_barrier_init(struct shmi_barrier *x, shmsync_arena *a, const shmi_object *o, const shmsync_barrier_options *opts)
{
    shmi_mon_init(&x->m, a, o, o->body, &shmi_barrier_rules);
    x->w = (shmi_barrier_words *)shmi_ptr(a, o->body, shmi_barrier_bytes(a->geo.slots), 8);
    x->shares = (shmi_barrier_share *)(void *)(x->w + 1);
    x->slots = a->geo.slots;
    x->completion = opts != NULL ? opts->completion : NULL;
    x->completion_arg = opts != NULL ? opts->completion_arg : NULL;
}
SHMI_FN void *shmi_barrier_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_barrier *x = (struct shmi_barrier *)shmi_new_thing(sizeof *x);
    if (x != NULL)
        shmi_barrier_init(x, a, o, (const shmsync_barrier_options *)arg);
    return x;
}

typedef struct shmi_barrier_spec {
    uint64_t parties;
    uint32_t spin;
} shmi_barrier_spec;
SHMI_FN void shmi_barrier_fill(unsigned char *body, const void *arg)
{
    shmi_barrier_words *w = (shmi_barrier_words *)(void *)body;
    const shmi_barrier_spec *s = (const shmi_barrier_spec *)arg;
    w->size = w->expected = w->pending = s->parties;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_barrier(int existing, shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    shmi_barrier_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    if (!existing && parties < 1)
        return shmi_fail(EINVAL, "barrier.open", name, "it takes a number of parties of at least 1, not %lld; shmsync_barrier_attach opens one that exists", (long long)parties);
    init.parties = (uint64_t)parties;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, name, shmi_barrier_bytes(a->geo.slots));
    spec.init = shmi_barrier_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_barrier_build, opts, &created, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && !existing && shmi_ld64(&out->impl->w->size) != (uint64_t)parties) {
        shmsync_barrier_close(out);
        err = shmi_fail(EINVAL, "barrier.open", name, "it began with another number of parties than %lld", (long long)parties);
    }
    return err;
}
int shmsync_barrier_open(shmsync_arena *a, const char *name, int64_t parties, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(0, a, name, parties, opts, out));
}
int shmsync_barrier_attach(shmsync_arena *a, const char *name, const shmsync_barrier_options *opts, shmsync_barrier *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_barrier(1, a, name, 0, opts, out));
}
int shmsync_barrier_at(shmsync_arena *a, shmsync_offset off, shmsync_barrier *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "barrier.open", SHMI_KIND_BARRIER, SHMI_VERSION_BARRIER, shmi_barrier_bytes(a->geo.slots), shmi_barrier_build, NULL, &impl);
    out->impl = (struct shmi_barrier *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_barrier_offset(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    return b->impl->m.o.off;
}
int shmsync_barrier_close(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    int err;
    if (b->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&b->impl->m);
    if (err == 0)
        b->impl = NULL;
    return SHMI_TELL(err);
}

typedef struct shmi_barrier_wanted {
    uint64_t phase;
    uint32_t end, dead; /* the verdict */
} shmi_barrier_wanted;
SHMI_FN int shmi_barrier_over(struct shmi_monitor *m, void *arg)
{
    shmi_barrier_wanted *want = (shmi_barrier_wanted *)arg;
    return shmi_barrier_verdict((struct shmi_barrier *)m, want->phase, &want->end, &want->dead);
}

/* Waits for the end of phase p; it begins with the queue lock held. */
SHMI_FN int shmi_barrier_wait(struct shmi_barrier *x, uint64_t p, int64_t abs)
{
    shmi_barrier_wanted want;
    shmi_wait_node *wait_node = NULL;
    uint64_t outcome = 0;
    int err;
    want.phase = p;
    want.end = SHMI_outcomeOpen;
    want.dead = 0;
    err = shmi_mon_enqueue(&x->m, abs, p, shmi_barrier_over, &want, &wait_node);
    if (err == 0 && wait_node != NULL) {
        err = shmi_mon_await(&x->m, wait_node, abs, &outcome);
        want.end = shmi_outcome_result(outcome);
        want.dead = shmi_outcome_aux(outcome);
    }
    if (err != 0 || want.end != SHMI_outcomeDead)
        return err;
    if (want.dead == 0)
        return shmi_fail(EOWNERDEAD, "barrier.wait", x->m.queueLock.called,
                         "nobody knows how phase %llu ended: more than %d phases ago, and a later one broke", (unsigned long long)p, SHMI_barrierBreaks);
    return shmi_fail_who(x->m.a, EOWNERDEAD, "barrier.wait", x->m.queueLock.called, want.dead & SHMI_NAME_MASK);
}

/* Counts arrivals, with the queue lock held, and says whether they were the last. */
SHMI_FN int shmi_barrier_count(struct shmi_barrier *x, uint64_t n, uint64_t drop)
{
    shmi_barrier_words *w = x->w;
    shmi_barrier_share *h = shmi_barrier_mine(x);
    uint64_t phase = shmi_get(&w->phase), pending = shmi_get(&w->pending) - n, expected = shmi_get(&w->expected), left, own;
    uint64_t parties = shmi_barrier_in(h, phase, &left);
    struct shmi_change c;
    own = shmi_min(n, left);
    parties += n - own;
    c.n = 0;
    if (drop != 0) {
        drop = shmi_min(drop, expected);
        expected -= drop;
        parties -= shmi_min(drop, parties);
        shmi_change_set(&c, &w->expected, expected);
    }
    shmi_barrier_set(&c, h, phase, parties, left - own);
    if (pending > 0) {
        shmi_change_set(&c, &w->pending, pending);
    } else if (x->completion == NULL) {
        shmi_change_set(&c, &w->pending, expected);
        shmi_change_set(&c, &w->phase, phase + 1);
    } else {
        shmi_change_set(&c, &w->pending, 0);
        shmi_change_set(&c, &w->completer, x->m.a->self);
    }
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.arrive.counted");
    return pending == 0;
}

/* Runs the completion, and ends the phase. It ends with the queue lock held unless it returns an error. */
SHMI_FN int shmi_barrier_complete(struct shmi_barrier *x)
{
    shmi_barrier_words *w = x->w;
    struct shmi_change c;
    int err;
    SHMSYNC_CRASHPOINT("barrier.complete.taken");
    SHMI_OUTSIDE(x->completion(x->completion_arg));
    SHMSYNC_CRASHPOINT("barrier.complete.returned");
    err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    if (shmi_get(&w->completer) != x->m.a->self)
        return 0; /* a peer overwrote it */
    c.n = 0;
    shmi_change_set(&c, &w->completer, 0);
    shmi_change_set(&c, &w->pending, shmi_get(&w->expected));
    shmi_change_set(&c, &w->phase, shmi_get(&w->phase) + 1);
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.complete.opened");
    shmi_mon_resolve_and_leave(&x->m);
    return shmi_mon_enter(&x->m, 0);
}

/* Counts n arrivals, and drop parties less, and gives the phase, in a call that counts. It ends with the queue lock held
 * unless it returns an error. */
SHMI_FN int shmi_barrier_arrive(struct shmi_barrier *x, int64_t n, uint64_t drop, int64_t abs, uint64_t *p)
{
    struct shmi_monitor *m = &x->m;
    int err;
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.arrive", m->queueLock.called, "%lld arrivals", (long long)n);
    err = shmi_mon_enter(m, abs);
    if (err != 0)
        return err;
    while (shmi_get(&x->w->completer) != 0 && !shmi_barrier_broken(x)) {
        /* Each turn is a completion. */
        err = shmi_barrier_wait(x, shmi_get(&x->w->phase), abs);
        if (err == 0 || err == EOWNERDEAD)
            err = shmi_mon_enter(m, abs);
        if (err != 0)
            return err;
    }
    *p = shmi_get(&x->w->phase);
    if (shmi_barrier_broken(x)) {
        if (drop != 0) {
            shmi_barrier_share *h = shmi_barrier_mine(x);
            uint64_t left, parties = shmi_barrier_in(h, *p, &left), expected = shmi_get(&x->w->expected);
            struct shmi_change c;
            parties -= shmi_min(drop, parties);
            c.n = 0;
            shmi_change_set(&c, &x->w->expected, expected - shmi_min(drop, expected));
            shmi_barrier_set(&c, h, *p, parties, shmi_min(parties, left));
            shmi_mon_commit(m, &c);
        }
        return 0;
    }
    if ((uint64_t)n > shmi_get(&x->w->pending)) {
        shmi_mon_leave(m, NULL);
        return shmi_fail(EINVAL, "barrier.arrive", m->queueLock.called, "%lld arrivals are more than are expected", (long long)n);
    }
    if (!shmi_barrier_count(x, (uint64_t)n, drop))
        return 0;
    if (shmi_get(&x->w->completer) != 0) {
        shmi_mon_leave(m, NULL);
        return shmi_barrier_complete(x);
    }
    if (shmi_fifo_empty(&x->w->queue))
        return 0;
    shmi_mon_resolve_and_leave(m);
    return shmi_mon_enter(m, 0);
}

/* Arrives and does not wait. */
SHMI_FN int shmi_barrier_arrive_only(struct shmi_barrier *x, int64_t n, uint64_t drop, uint64_t *p)
{
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, n, drop, 0, p);
    if (err == 0)
        shmi_mon_leave(&x->m, NULL);
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_arrive(shmsync_barrier *b, int64_t n, uint64_t *phase)
{
    SHMI_OPENED(b);
    uint64_t p;
    int err = shmi_barrier_arrive_only(b->impl, n, 0, &p);
    if (err == 0 && phase != NULL)
        *phase = p;
    return SHMI_TELL(err);
}
SHMI_FN int shmi_barrier_await(struct shmi_barrier *x, uint64_t phase, int64_t abs)
{
    uint64_t now;
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_mon_enter(&x->m, abs);
    if (err == 0) {
        now = shmi_get(&x->w->phase);
        if (phase <= now) {
            err = shmi_barrier_wait(x, phase, abs);
        } else {
            shmi_mon_leave(&x->m, NULL);
            err = shmi_fail(EINVAL, "barrier.wait", x->m.queueLock.called, "for phase %llu, and it is in phase %llu", (unsigned long long)phase,
                            (unsigned long long)now);
        }
    }
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_wait(shmsync_barrier *b, uint64_t phase)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_await(b->impl, phase, 0));
}
int shmsync_barrier_timedwait(shmsync_barrier *b, uint64_t phase, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_barrier_await(b->impl, phase, ns));
}
SHMI_FN int shmi_barrier_arrive_and_wait(struct shmi_barrier *x, int64_t abs)
{
    uint64_t p;
    int err = shmi_mon_begin(&x->m);
    if (err != 0)
        return err;
    err = shmi_barrier_arrive(x, 1, 0, abs, &p);
    if (err == 0)
        err = shmi_barrier_wait(x, p, abs);
    shmi_mon_finish(&x->m);
    return err;
}
int shmsync_barrier_arrive_and_wait(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_arrive_and_wait(b->impl, 0));
}
int shmsync_barrier_timedarrive_and_wait(shmsync_barrier *b, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(b);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_barrier_arrive_and_wait(b->impl, ns));
}
int shmsync_barrier_arrive_and_drop(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    uint64_t p;
    return SHMI_TELL(shmi_barrier_arrive_only(b->impl, 1, 1, &p));
}
SHMI_FN int shmi_barrier_be(struct shmi_barrier *x, uint64_t n, int none)
{
    shmi_barrier_share *h;
    uint64_t phase, parties, left;
    struct shmi_change c;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return err;
    h = shmi_barrier_mine(x);
    phase = shmi_get(&x->w->phase);
    parties = shmi_barrier_in(h, phase, &left);
    c.n = 0;
    if (shmi_get(&x->w->completer) == 0)
        left += n; /* else the phase takes no more arrivals: these parties arrive in the next one */
    shmi_barrier_set(&c, h, phase, none ? 0 : parties + n, none ? 0 : left);
    shmi_mon_commit(&x->m, &c);
    shmi_mon_leave(&x->m, NULL);
    return 0;
}
int shmsync_barrier_register(shmsync_barrier *b, int64_t n)
{
    SHMI_OPENED(b);
    if (n <= 0)
        return shmi_fail(EINVAL, "barrier.join", b->impl->m.queueLock.called, "of %lld", (long long)n);
    return SHMI_TELL(shmi_barrier_be(b->impl, (uint64_t)n, 0));
}
int shmsync_barrier_deregister(shmsync_barrier *b)
{
    SHMI_OPENED(b);
    return SHMI_TELL(shmi_barrier_be(b->impl, 0, 1));
}
int shmsync_barrier_reset(shmsync_barrier *b, int64_t parties, int *did)
{
    SHMI_OPENED(b);
    struct shmi_barrier *x = b->impl;
    struct shmi_change c;
    uint64_t phase, n, left;
    uint32_t i;
    int err;
    if (did != NULL)
        *did = 0;
    if (parties < 0)
        return shmi_fail(EINVAL, "barrier.reset", x->m.queueLock.called, "to %lld parties", (long long)parties);
    err = shmi_mon_enter(&x->m, 0);
    if (err == 0 && __atomic_load_n(&x->m.deaths, __ATOMIC_SEQ_CST) != shmi_deaths(x->m.a))
        err = shmi_mon_reap_and_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_barrier_broken(x)) {
        shmi_mon_leave(&x->m, NULL);
        return 0;
    }
    if (!shmi_all_gone(x->m.a)) {
        shmi_mon_leave(&x->m, NULL);
        err = shmi_await_gone(x->m.a, 0, "barrier.reset", x->m.queueLock.called, 0);
        return SHMI_TELL(err != 0 ? err : shmsync_barrier_reset(b, parties, did));
    }
    phase = shmi_get(&x->w->phase);
    n = (uint64_t)parties;
    if (n == 0) {
        uint64_t expected = shmi_get(&x->w->expected);
        n = expected - shmi_min(shmi_get(&x->w->lost), expected);
        if (n == 0)
            n = 1; /* the caller is there */
    }
    c.n = 0;
    shmi_change_set(&c, &x->w->breaks[2 * (phase % SHMI_barrierBreaks)], phase + 1);
    shmi_change_set(&c, &x->w->breaks[2 * (phase % SHMI_barrierBreaks) + 1], shmi_barrier_lost(shmi_get(&x->w->dead), shmi_get(&x->w->lost)));
    shmi_mon_commit(&x->m, &c);
    SHMSYNC_CRASHPOINT("barrier.reset.remembered");
    for (i = 0; i < x->slots; i++) {
        uint64_t has = shmi_barrier_in(&x->shares[i], phase, &left);
        if (has == 0)
            continue;
        c.n = 0;
        shmi_barrier_set(&c, &x->shares[i], phase, has, 0); /* as if it had arrived: it is a party of the next phase */
        shmi_mon_commit(&x->m, &c);
    }
    for (i = 0; i < SHMI_barrierNames; i++)
        shmi_put(&x->w->gone[i], 0);
    c.n = 0;
    shmi_change_set(&c, &x->w->phase, phase + 1);
    shmi_change_set(&c, &x->w->expected, n);
    shmi_change_set(&c, &x->w->pending, n);
    shmi_change_set(&c, &x->w->broken, 0);
    shmi_change_set(&c, &x->w->lost, 0);
    shmi_change_set(&c, &x->w->completer, 0);
    shmi_mon_commit(&x->m, &c);
    shmi_mon_resolve_and_leave(&x->m);
    if (did != NULL)
        *did = 1;
    return 0;
}

int64_t shmsync_barrier_lost(const shmsync_barrier *b)
{
    SHMI_OPENED_OR(b, 0);
    return (int64_t)shmi_ld64(&b->impl->w->lost);
}

SHMI_FN void shmi_repair_barrier(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_barrier x;
    if (o->size < shmi_barrier_bytes(a->geo.slots))
        return;
    shmi_barrier_init(&x, a, o, NULL);
    shmi_mon_repair(&x.m, dead);
}

/* ---- FairMutex: prims/fairmutex*.go in C ---- */

/* How a wait for a lock ends. */
enum { SHMI_lockGranted, SHMI_lockOwnerDead, SHMI_lockNotRecoverable, SHMI_lockCorrupt };

struct shmi_fairmutex {
    struct shmi_monitor m;
    shmi_fairmutex_words *w;
    int release; /* policy PolicyRelease */
    int (*repair)(void *);
    void *repair_arg;
};

#define SHMI_OWNER_CORRUPT UINT32_MAX

SHMI_FN uint32_t shmi_fair_owner(struct shmi_fairmutex *f)
{
    uint64_t v = shmi_get(&f->w->owner);
    return v >> 32 != 0 ? SHMI_OWNER_CORRUPT : (uint32_t)v;
}
/* Whether o may be the owner word of a FairMutex. A word of kind reserved says that the
 * lock was granted to a waiter of that process, which has not accepted it. */
SHMI_FN int shmi_fair_valid(uint32_t o)
{
    return shmi_owner_valid(o) && shmi_owner_kind(o) != SHMI_kindBiased;
}
SHMI_FN int shmi_fair_granted(uint32_t o) { return shmi_owner_kind(o) == SHMI_kindReserved && shmi_owner_name(o) != 0; }
SHMI_FN shmi_participant_id shmi_fair_died(struct shmi_fairmutex *f) { return shmi_ld32(&f->w->died) & SHMI_NAME_MASK; }
/* Whether a comer may have the lock now. The queue lock is held. */
SHMI_FN int shmi_fair_free(struct shmi_fairmutex *f) { return shmi_get(&f->w->owner) == 0 && shmi_fifo_empty(&f->w->queue); }
SHMI_FN void shmi_fair_take(struct shmi_fairmutex *f)
{
    shmi_put(&f->w->owner, f->m.a->self);
    SHMSYNC_CRASHPOINT("fairmutex.lock.taken");
}

/* Grants the lock to the process of a wait that was resolved so. The lock was free when
 * the wait was resolved, so a word that is not free says that this was done: the waiter
 * may have accepted the lock since. */
SHMI_FN void shmi_fair_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_lockGranted && shmi_get(&f->w->owner) == 0) {
        shmi_put(&f->w->owner, shmi_make_owner(SHMI_kindReserved, shmi_owner_of(w) & SHMI_NAME_MASK));
        SHMSYNC_CRASHPOINT("fairmutex.grant.granted");
    }
    shmi_mon_account(m, w, NULL);
}

/* How often a waiter looks for the grant that follows the end of its wait by a few instructions. */
enum { SHMI_acceptTries = 100, SHMI_acceptPause = 2 };

SHMI_FN int shmi_fair_accept_at_once(struct shmi_fairmutex *f)
{
    const uint64_t granted = shmi_make_owner(SHMI_kindReserved, f->m.a->self);
    int i;
    for (i = 0; i < SHMI_acceptTries; i++) {
        if (shmi_cas64(&f->w->owner, granted, f->m.a->self)) {
            SHMSYNC_CRASHPOINT("fairmutex.lock.accepted");
            return 1;
        }
        shmi_pause(SHMI_acceptPause);
    }
    return 0;
}
/* Makes this process the holder of the lock that one of its waits was granted. A process
 * that dies before this step has not held the lock. */
SHMI_FN int shmi_fair_accept(struct shmi_fairmutex *f)
{
    int err, ok;
    if (shmi_fair_accept_at_once(f))
        return 0;
    /* The granter has resolved the wait and is not through: it runs, or it is stopped or dead. */
    err = shmi_mon_enter(&f->m, 0);
    if (err != 0)
        return err;
    ok = shmi_fair_accept_at_once(f);
    shmi_mon_leave(&f->m, NULL);
    return ok ? 0 : shmi_fail(EPROTO, "fairmutex.lock", f->m.queueLock.called, "owner word %#x", shmi_fair_owner(f));
}

/* Hands a free lock to the first in the queue, and tells all when nobody can have it. */
SHMI_FN void shmi_fair_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &f->w->queue)).n != NULL) {
        uint32_t o = shmi_fair_owner(f), result = SHMI_lockGranted, aux = 0;
        if (!shmi_mon_waiting(m, w)) { /* which has looked whether it lives */
            shmi_mon_discard(m, w);
            continue;
        }
        if (o == 0) {
        } else if (!shmi_fair_valid(o)) {
            result = SHMI_lockCorrupt;
        } else if (shmi_owner_kind(o) == SHMI_kindOwnerDead) {
            result = SHMI_lockOwnerDead;
            aux = shmi_owner_name(o);
        } else if (o == SHMI_OWNER_NOT_RECOVERABLE) {
            result = SHMI_lockNotRecoverable;
            aux = shmi_fair_died(f);
        } else {
            return;
        }
        if (shmi_mon_end(m, b, w, result, aux))
            shmi_fair_account(m, w);
    }
}
SHMI_FN void shmi_fair_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_fairmutex *)m)->w->queue); }
SHMI_FN void shmi_fair_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_fairmutex *)m)->w->queue, w); }
SHMI_FN void shmi_fair_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_fairmutex *)m)->w->queue, w); }
SHMI_FN void shmi_fair_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_fairmutex *)m)->w->queue); }
SHMI_FN void shmi_fair_reap(struct shmi_monitor *m)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)m;
    uint32_t o = shmi_fair_owner(f), next;
    int granted = shmi_fair_granted(o); /* then nobody has entered, and there is no data of the dead */
    if (!shmi_fair_valid(o) || !(shmi_owner_held(o) || granted) || !shmi_mon_died(m, shmi_owner_name(o)))
        return;
    next = shmi_owner_died(o, f->release, !granted && f->release && shmi_mon_gone(m, shmi_owner_name(o)));
    if (next == o)
        return;
    if (!granted)
        shmi_st32(&f->w->died, shmi_owner_name(o));
    shmi_put(&f->w->owner, next);
}
SHMI_FN void shmi_fair_holders(struct shmi_monitor *m)
{
    uint32_t o = shmi_fair_owner((struct shmi_fairmutex *)m);
    if (shmi_owner_held(o) || shmi_fair_granted(o))
        shmi_mon_heed(m, shmi_owner_name(o));
}

static const struct shmi_rules shmi_fair_rules = {
    shmi_fair_resolve, shmi_fair_account, shmi_fair_clear, shmi_fair_requeue, shmi_fair_detach,
    shmi_fair_discard_dead, shmi_fair_reap, shmi_fair_holders, NULL,
};

SHMI_FN void shmi_fair_init(struct shmi_fairmutex *f, shmsync_arena *a, const shmi_object *o, const shmsync_fairmutex_options *opts)
{
    shmi_mon_init(&f->m, a, o, o->body, &shmi_fair_rules);
    f->m.one_spins = 1;
    f->w = (shmi_fairmutex_words *)shmi_ptr(a, o->body, sizeof(shmi_fairmutex_words), 8);
    f->release = (shmi_ld32(&f->w->policy) & 0xff) == 1;
    f->repair = opts != NULL ? opts->repair : NULL;
    f->repair_arg = opts != NULL ? opts->repair_arg : NULL;
}
SHMI_FN void *shmi_fair_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_fairmutex *f = (struct shmi_fairmutex *)shmi_new_thing(sizeof *f);
    if (f != NULL)
        shmi_fair_init(f, a, o, (const shmsync_fairmutex_options *)arg);
    return f;
}

typedef struct shmi_fair_spec {
    uint32_t policy, spin;
} shmi_fair_spec;
SHMI_FN void shmi_fair_fill(unsigned char *body, const void *arg)
{
    shmi_fairmutex_words *w = (shmi_fairmutex_words *)(void *)body;
    const shmi_fair_spec *s = (const shmi_fair_spec *)arg;
    w->policy = s->policy;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_fairmutex(int existing, shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    shmi_fair_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    err = shmi_no_rollback("fairmutex.open", name, policy, "a fair mutex");
    if (err != 0)
        return err;
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, name, sizeof(shmi_fairmutex_words));
    spec.init = shmi_fair_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_fair_build, opts, &created, &impl);
    out->impl = (struct shmi_fairmutex *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != out->impl->release) {
        shmsync_fairmutex_close(out);
        err = shmi_fail(EINVAL, "fairmutex.open", name, "it has another policy");
    }
    return err;
}
int shmsync_fairmutex_open(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_fairmutex(0, a, name, opts, out));
}
int shmsync_fairmutex_attach(shmsync_arena *a, const char *name, const shmsync_fairmutex_options *opts, shmsync_fairmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_fairmutex(1, a, name, opts, out));
}
int shmsync_fairmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_fairmutex *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "fairmutex.open", SHMI_KIND_FAIR_MUTEX, SHMI_VERSION_FAIR_MUTEX, sizeof(shmi_fairmutex_words), shmi_fair_build, NULL, &impl);
    out->impl = (struct shmi_fairmutex *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_fairmutex_offset(const shmsync_fairmutex *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->m.o.off;
}
int shmsync_fairmutex_close(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&f->impl->m);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

/* Why nobody can wait for owner word o, or 0. */
SHMI_FN int shmi_lock_refusal(struct shmi_monitor *m, const char *op, uint32_t o, shmi_participant_id died)
{
    if (!shmi_fair_valid(o))
        return shmi_fail(EPROTO, op, m->queueLock.called, "owner word %#x", o);
    if (shmi_owner_kind(o) == SHMI_kindOwnerDead)
        return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, shmi_owner_name(o));
    if (o == SHMI_OWNER_NOT_RECOVERABLE)
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, died);
    return 0;
}
/* What the end of a wait for a lock means. */
SHMI_FN int shmi_lock_judge(struct shmi_monitor *m, const char *op, uint64_t outcome)
{
    shmi_participant_id who = shmi_outcome_aux(outcome) & SHMI_NAME_MASK;
    switch (shmi_outcome_result(outcome)) {
    case SHMI_lockGranted: return 0;
    case SHMI_lockOwnerDead: return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, who);
    case SHMI_lockNotRecoverable: return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, who);
    }
    return shmi_fail(EPROTO, op, m->queueLock.called, "%s", "");
}

/* Takes back what the dead have, with the queue lock held. */
SHMI_FN void shmi_fair_look_at_owner(struct shmi_fairmutex *f, struct shmi_wakes *b)
{
    uint32_t o = shmi_fair_owner(f);
    if ((shmi_owner_held(o) || shmi_fair_granted(o)) && shmi_dead(f->m.a, shmi_owner_name(o))) {
        shmi_mon_reap(&f->m, b);
        return;
    }
    shmi_mon_reap_if_due(&f->m, b);
    if (o == 0 && !shmi_fifo_empty(&f->w->queue))
        shmi_fair_resolve(&f->m, b);
}

/* Takes the lock or waits in the queue for it, with the queue lock held, which it leaves. The call counts. */
SHMI_FN int shmi_fair_arrive(struct shmi_fairmutex *f, int64_t abs)
{
    struct shmi_monitor *m = &f->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int err, again;
    shmi_wakes_init(&b);
    do {
        int free_;
        shmi_fair_look_at_owner(f, &b);
        free_ = shmi_fair_free(f);
        err = free_ ? 0 : shmi_lock_refusal(m, "fairmutex.lock", shmi_fair_owner(f), shmi_fair_died(f));
        if (free_ || err != 0) {
            if (free_)
                shmi_fair_take(f);
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return err;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_mon_join(m, wait_node, 0, 0);
    shmi_mon_leave(m, &b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0)
        err = shmi_lock_judge(m, "fairmutex.lock", outcome);
    return err != 0 ? err : shmi_fair_accept(f);
}

/* Makes this process the recoverer, if the lock is owner-dead or, if ruined says so, not recoverable. */
SHMI_FN int shmi_fair_begin_recover(struct shmi_fairmutex *f, int64_t abs, int ruined, int *took)
{
    uint32_t o;
    int err;
    *took = 0;
    for (;;) { /* it is taken from one that is gone */
        err = shmi_mon_enter(&f->m, abs);
        if (err != 0)
            return err;
        o = shmi_fair_owner(f);
        if (shmi_owner_kind(o) != SHMI_kindOwnerDead || shmi_gone(f->m.a, shmi_owner_name(o)))
            break;
        shmi_mon_leave(&f->m, NULL);
        err = shmi_await_gone(f->m.a, shmi_owner_name(o), "fairmutex.recover", f->m.queueLock.called, abs);
        if (err != 0)
            return err;
    }
    if ((shmi_owner_kind(o) == SHMI_kindOwnerDead && shmi_owner_valid(o)) || (ruined && o == SHMI_OWNER_NOT_RECOVERABLE)) {
        shmi_put(&f->w->owner, shmi_make_owner(SHMI_kindRecovering, f->m.a->self));
        SHMSYNC_CRASHPOINT("fairmutex.recover.taken");
        *took = 1;
    }
    shmi_mon_leave(&f->m, NULL);
    return 0;
}
/* Runs repair while this process recovers f, and holds it afterwards or not. */
SHMI_FN int shmi_fair_run_repair(struct shmi_fairmutex *f, int (*repair)(void *), void *arg, int hold)
{
    uint32_t next = SHMI_OWNER_NOT_RECOVERABLE, o;
    struct shmi_wakes b;
    int failed = shmi_call_repair(repair, arg), err;
    if (failed == 0) {
        SHMSYNC_CRASHPOINT("fairmutex.recover.repaired");
        next = hold ? f->m.a->self : 0;
    }
    err = shmi_mon_enter(&f->m, 0);
    if (err != 0)
        return err;
    o = shmi_fair_owner(f);
    if (o != shmi_make_owner(SHMI_kindRecovering, f->m.a->self)) {
        shmi_mon_leave(&f->m, NULL);
        return shmi_fail(EPROTO, "fairmutex.recover", f->m.queueLock.called, "owner word %#x", o);
    }
    if (failed == 0)
        shmi_st32(&f->w->died, 0);
    shmi_put(&f->w->owner, next);
    shmi_wakes_init(&b);
    shmi_fair_resolve(&f->m, &b);
    shmi_mon_leave(&f->m, &b);
    return failed == 0 ? 0 : shmi_fail_who(f->m.a, ENOTRECOVERABLE, "fairmutex.recover", f->m.queueLock.called, shmi_fair_died(f));
}

SHMI_FN int shmi_fair_lock(struct shmi_fairmutex *f, int64_t abs, int may_repair)
{
    int err = shmi_mon_enter(&f->m, abs), took;
    while (err == 0) {
        if (shmi_fair_free(f)) {
            shmi_fair_take(f);
            shmi_mon_leave(&f->m, NULL);
            return 0;
        }
        err = shmi_mon_begin(&f->m);
        if (err != 0)
            return err;
        err = shmi_fair_arrive(f, abs);
        shmi_mon_finish(&f->m);
        if (err != EOWNERDEAD || !may_repair || f->repair == NULL)
            return err;
        err = shmi_fair_begin_recover(f, abs, 0, &took);
        if (took)
            return shmi_fair_run_repair(f, f->repair, f->repair_arg, 1);
        if (err == 0)
            err = shmi_mon_enter(&f->m, abs);
    }
    return err;
}
int shmsync_fairmutex_lock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_fair_lock(f->impl, 0, 1));
}
int shmsync_fairmutex_timedlock(shmsync_fairmutex *f, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_fair_lock(f->impl, ns, 1));
}
int shmsync_fairmutex_trylock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    struct shmi_wakes b;
    int err = shmi_use(x->m.a, "fairmutex.trylock");
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_mon_try_enter(&x->m))
        return SHMI_TELL(EBUSY);
    shmi_wakes_init(&b);
    if (!shmi_fair_free(x))
        shmi_fair_look_at_owner(x, &b);
    if (shmi_fair_free(x)) {
        shmi_fair_take(x);
    } else {
        err = shmi_lock_refusal(&x->m, "fairmutex.trylock", shmi_fair_owner(x), shmi_fair_died(x));
        if (err == 0)
            err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_fairmutex_unlock(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    struct shmi_wakes b;
    uint32_t o;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    o = shmi_fair_owner(x);
    if (o != x->m.a->self) {
        shmi_mon_leave(&x->m, NULL);
        return shmi_fail(shmi_fair_valid(o) ? EPERM : EPROTO, "fairmutex.unlock", x->m.queueLock.called, "owner word %#x", o);
    }
    shmi_put(&x->w->owner, 0);
    shmi_wakes_init(&b);
    if (!shmi_fifo_empty(&x->w->queue)) {
        SHMSYNC_CRASHPOINT("fairmutex.unlock.freed");
        shmi_fair_resolve(&x->m, &b);
    }
    shmi_mon_leave(&x->m, &b);
    return 0;
}
int shmsync_fairmutex_recover(shmsync_fairmutex *f, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(f);
    struct shmi_fairmutex *x = f->impl;
    if (repair == NULL)
        return shmi_fail(EINVAL, "fairmutex.recover", x->m.queueLock.called, "without a repair");
    for (;;) {
        int took, err = shmi_fair_begin_recover(x, 0, 1, &took);
        if (err != 0)
            return SHMI_TELL(err);
        if (took)
            return SHMI_TELL(shmi_fair_run_repair(x, repair, arg, 0));
        err = shmi_fair_lock(x, 0, 0);
        if (err == 0)
            return SHMI_TELL(shmsync_fairmutex_unlock(f));
        if (err != EOWNERDEAD && err != ENOTRECOVERABLE)
            return SHMI_TELL(err);
    }
}
int shmsync_fairmutex_state(shmsync_fairmutex *f)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_lock_refusal(&f->impl->m, "fairmutex.state", shmi_fair_owner(f->impl), shmi_fair_died(f->impl)));
}

SHMI_FN void shmi_repair_fairmutex(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_fairmutex f;
    if (o->size < sizeof(shmi_fairmutex_words))
        return;
    shmi_fair_init(&f, a, o, NULL);
    shmi_mon_repair(&f.m, dead);
}

/* ---- Future: prims/future*.go in C ---- */

struct shmi_future {
    struct shmi_monitor m;
    shmi_future_words *w;
};

enum { SHMI_futureIsSet = 1, SHMI_futureIsAbandoned };

SHMI_FN uint64_t shmi_future_load(struct shmi_future *f) { return shmi_ld64(&f->w->state); }
SHMI_FN shmi_participant_id shmi_future_producer(uint64_t s) { return (shmi_participant_id)(s & SHMI_NAME_MASK); }
SHMI_FN int shmi_future_over(uint64_t s) { return (s & (SHMI_FUTURE_SET_MASK | SHMI_FUTURE_ABANDONED_MASK)) != 0; }
SHMI_FN int shmi_future_claimed(uint64_t s) { return !shmi_future_over(s) && shmi_future_producer(s) != 0; }
/* How waits end when the state is over. */
SHMI_FN uint64_t shmi_future_outcome(uint64_t s)
{
    if ((s & SHMI_FUTURE_SET_MASK) != 0)
        return shmi_outcome(0, SHMI_futureIsSet, (uint32_t)(s >> SHMI_FUTURE_ERRNO_SHIFT));
    return shmi_outcome(0, SHMI_futureIsAbandoned, shmi_future_producer(s));
}
SHMI_FN void shmi_future_abandon(struct shmi_future *f, uint64_t s)
{
    shmi_st64(&f->w->state, shmi_future_producer(s) | SHMI_FUTURE_ABANDONED_MASK);
    SHMSYNC_CRASHPOINT("future.reap.abandoned");
}

SHMI_FN void shmi_future_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f), end = shmi_future_outcome(s);
    if (shmi_future_over(s))
        shmi_mon_end_all(m, b, &f->w->queue, shmi_outcome_result(end), shmi_outcome_aux(end));
}
SHMI_FN void shmi_future_clear(struct shmi_monitor *m) { shmi_fifo_clear(&((struct shmi_future *)m)->w->queue); }
SHMI_FN void shmi_future_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_future *)m)->w->queue, w); }
SHMI_FN void shmi_future_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_future *)m)->w->queue, w); }
SHMI_FN void shmi_future_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_future *)m)->w->queue); }
SHMI_FN void shmi_future_reap(struct shmi_monitor *m)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_mon_died(m, shmi_future_producer(s)))
        shmi_future_abandon(f, s);
}
SHMI_FN void shmi_future_holders(struct shmi_monitor *m)
{
    uint64_t s = shmi_future_load((struct shmi_future *)m);
    if (shmi_future_claimed(s))
        shmi_mon_heed(m, shmi_future_producer(s));
}

static const struct shmi_rules shmi_future_rules = {
    shmi_future_resolve, shmi_account_nothing, shmi_future_clear, shmi_future_requeue, shmi_future_detach,
    shmi_future_discard_dead, shmi_future_reap, shmi_future_holders, NULL,
};

SHMI_FN void shmi_future_init(struct shmi_future *f, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&f->m, a, o, o->body, &shmi_future_rules);
    f->w = (shmi_future_words *)shmi_ptr(a, o->body, sizeof(shmi_future_words), 8);
}
SHMI_FN void *shmi_future_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_future *f = (struct shmi_future *)shmi_new_thing(sizeof *f);
    (void)arg;
    if (f != NULL)
        shmi_future_init(f, a, o);
    return f;
}

SHMI_FN int shmi_open_future(int existing, shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    uint32_t spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_spec spec;
    void *impl;
    int created, err;
    shmi_mon_spec(&spec, SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, name, sizeof(shmi_future_words));
    spec.arg = &spin;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_future_build, NULL, &created, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return err;
}
int shmsync_future_open(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(0, a, name, opts, out));
}
int shmsync_future_attach(shmsync_arena *a, const char *name, const shmsync_future_options *opts, shmsync_future *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_future(1, a, name, opts, out));
}
int shmsync_future_at(shmsync_arena *a, shmsync_offset off, shmsync_future *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "future.open", SHMI_KIND_FUTURE, SHMI_VERSION_FUTURE, sizeof(shmi_future_words), shmi_future_build, NULL, &impl);
    out->impl = (struct shmi_future *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_future_offset(const shmsync_future *f)
{
    SHMI_OPENED_OR(f, 0);
    return f->impl->m.o.off;
}
int shmsync_future_close(shmsync_future *f)
{
    SHMI_OPENED(f);
    int err;
    if (f->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&f->impl->m);
    if (err == 0)
        f->impl = NULL;
    return SHMI_TELL(err);
}

/* The state, with the queue lock held, after the death of its producer has been noticed. */
SHMI_FN uint64_t shmi_future_reaped(struct shmi_future *f, struct shmi_wakes *b)
{
    uint64_t s;
    shmi_mon_reap_if_due(&f->m, b);
    s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_future_producer(s) != f->m.a->self && shmi_dead(f->m.a, shmi_future_producer(s))) {
        shmi_future_abandon(f, s);
        shmi_future_resolve(&f->m, b);
    }
    return shmi_future_load(f);
}

int shmsync_future_claim(shmsync_future *f)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if (!shmi_future_over(s) && shmi_future_producer(s) == 0) {
        shmi_st64(&x->w->state, s | x->m.a->self);
        SHMSYNC_CRASHPOINT("future.claim.claimed");
    } else if (shmi_future_over(s) || shmi_future_producer(s) != x->m.a->self) {
        err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_future_set(shmsync_future *f, int result)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if (shmi_future_over(s)) {
        err = EBUSY;
    } else {
        shmi_st64(&x->w->state, shmi_future_producer(s) | SHMI_FUTURE_SET_MASK | (uint64_t)(uint32_t)result << SHMI_FUTURE_ERRNO_SHIFT);
        SHMSYNC_CRASHPOINT("future.set.stored");
        shmi_future_resolve(&x->m, &b);
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}
int shmsync_future_is_set(const shmsync_future *f, int *result)
{
    SHMI_OPENED_OR(f, 0);
    uint64_t s = shmi_future_load(f->impl);
    if ((s & SHMI_FUTURE_SET_MASK) == 0)
        return 0;
    if (result != NULL)
        *result = (int)(uint32_t)(s >> SHMI_FUTURE_ERRNO_SHIFT);
    return 1;
}
/* Why there is nothing to wait for: arg gets how a wait ends. */
SHMI_FN int shmi_future_is_over(struct shmi_monitor *m, void *arg)
{
    struct shmi_future *f = (struct shmi_future *)m;
    uint64_t s = shmi_future_load(f);
    if (shmi_future_claimed(s) && shmi_future_producer(s) != m->a->self && shmi_dead(m->a, shmi_future_producer(s))) {
        struct shmi_wakes b;
        shmi_future_abandon(f, s);
        shmi_wakes_init(&b);
        shmi_future_resolve(m, &b);
        shmi_mon_wake(m, &b);
        s = shmi_future_load(f);
    }
    if (!shmi_future_over(s))
        return 0;
    *(uint64_t *)arg = shmi_future_outcome(s);
    return 1;
}
SHMI_FN int shmi_future_wait(struct shmi_future *f, int *result, int64_t abs)
{
    struct shmi_monitor *m = &f->m;
    uint64_t s = shmi_future_load(f), outcome = 0;
    shmi_wait_node *wait_node = NULL;
    int err = shmi_use(m->a, "future.wait");
    if (err != 0)
        return err;
    if ((s & SHMI_FUTURE_SET_MASK) != 0) {
        outcome = shmi_future_outcome(s);
    } else {
        err = shmi_mon_begin(m);
        if (err != 0)
            return err;
        err = shmi_mon_enter(m, abs);
        if (err == 0)
            err = shmi_mon_enqueue(m, abs, 0, shmi_future_is_over, &outcome, &wait_node);
        if (err == 0 && wait_node != NULL)
            err = shmi_mon_await(m, wait_node, abs, &outcome);
        shmi_mon_finish(m);
        if (err != 0)
            return err;
    }
    switch (shmi_outcome_result(outcome)) {
    case SHMI_futureIsSet:
        if (result != NULL)
            *result = (int)shmi_outcome_aux(outcome);
        return 0;
    case SHMI_futureIsAbandoned: return shmi_fail_who(m->a, EOWNERDEAD, "future.wait", m->queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    }
    return shmi_fail(EPROTO, "future.wait", m->queueLock.called, "%s", "");
}
int shmsync_future_wait(shmsync_future *f, int *result)
{
    SHMI_OPENED(f);
    return SHMI_TELL(shmi_future_wait(f->impl, result, 0));
}
int shmsync_future_timedwait(shmsync_future *f, int *result, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(f);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_future_wait(f->impl, result, ns));
}
int shmsync_future_reset(shmsync_future *f)
{
    SHMI_OPENED(f);
    struct shmi_future *x = f->impl;
    struct shmi_wakes b;
    uint64_t s;
    int err = shmi_mon_enter(&x->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    s = shmi_future_reaped(x, &b);
    if ((s & SHMI_FUTURE_ABANDONED_MASK) != 0 && !shmi_gone(x->m.a, shmi_future_producer(s))) {
        shmi_mon_leave(&x->m, &b);
        err = shmi_await_gone(x->m.a, shmi_future_producer(s), "future.reset", x->m.queueLock.called, 0);
        return SHMI_TELL(err != 0 ? err : shmsync_future_reset(f));
    }
    if (shmi_future_over(s)) {
        shmi_future_resolve(&x->m, &b);
        shmi_st64(&x->w->state, 0);
        SHMSYNC_CRASHPOINT("future.reset.stored");
    } else {
        err = EBUSY;
    }
    shmi_mon_leave(&x->m, &b);
    return SHMI_TELL(err);
}

SHMI_FN void shmi_repair_future(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_future f;
    if (o->size < sizeof(shmi_future_words))
        return;
    shmi_future_init(&f, a, o);
    shmi_mon_repair(&f.m, dead);
}

/* ---- Cond: prims/cond*.go in C ---- */

enum { SHMI_condSignalled = 1, SHMI_condBroadcast };
#define SHMI_COND_BATCH 16
#define SHMI_COND_ALL UINT64_C(0xffffffff)
#define SHMI_COND_SUCCESSOR (UINT32_C(1) << 31) /* in the aux of a wait that got a signal passed on */
#define SHMI_COND_NO_CHECK UINT64_MAX       /* the last check found nobody covered */

struct shmi_cond {
    struct shmi_monitor m;
    shmi_cond_words *w;
    uint64_t limit;  /* how many of a broadcast are on their way at a time */
    int reap_woken;       /* some of the woken may be dead; guarded by the queue lock */
    uint64_t before; /* landed at the last check */
};

/* Takes a wait that was woken out of the truth. */
SHMI_FN void shmi_cond_land(struct shmi_cond *k, struct shmi_wait w)
{
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_condBroadcast) {
        uint64_t flying = shmi_get(&k->w->flying);
        shmi_put(&k->w->flying, flying > 0 ? flying - 1 : 0);
        shmi_put(&k->w->landed, shmi_get(&k->w->landed) + 1);
    }
    shmi_fifo_detach(&k->m, &k->w->woken, w);
    shmi_mon_release_node(&k->m, w);
}

/* Notes a wait that was resolved. It keeps its stamp. */
SHMI_FN void shmi_cond_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_condBroadcast)
        shmi_put(&k->w->flying, shmi_get(&k->w->flying) + 1);
    shmi_fifo_requeue(m, &k->w->woken, w);
}

/* Wakes the first of those with stamps up to bound, and says whether there was one. */
SHMI_FN int shmi_cond_wake(struct shmi_cond *k, struct shmi_wakes *b, uint64_t bound, uint32_t from)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &k->w->waiting)).n != NULL && shmi_stamp_of(w) <= bound) {
        if (!shmi_mon_waiting(m, w)) {
            shmi_fifo_detach(m, &k->w->waiting, w);
            shmi_mon_release_node(m, w);
            continue;
        }
        shmi_put(&w.n->wanted, bound);
        if (shmi_mon_end(m, b, w, SHMI_condSignalled, from)) {
            SHMSYNC_CRASHPOINT("cond.grant.resolved");
            shmi_cond_account(m, w);
            return 1;
        }
    }
    return 0;
}

/* The next wait of the woken, within bounds: like shmi_fifo_discard_dead's walk. */
SHMI_FN struct shmi_wait shmi_fifo_after(struct shmi_monitor *m, struct shmi_wait w)
{
    return shmi_mon_node(m, shmi_link_next(shmi_get(&w.n->next)));
}

/* Gives the signal that has ended w to the next, unless that has been done. */
SHMI_FN void shmi_cond_pass(struct shmi_cond *k, struct shmi_wakes *b, struct shmi_wait w)
{
    uint32_t from = (uint32_t)shmi_stamp_of(w) | SHMI_COND_SUCCESSOR;
    uint64_t left = k->m.a->size / 64;
    struct shmi_wait successor;
    if (shmi_outcome_result(shmi_get(&w.n->extra)) != SHMI_condSignalled)
        return;
    for (successor = shmi_fifo_head(&k->m, &k->w->woken); successor.n != NULL; successor = shmi_fifo_after(&k->m, successor)) {
        if (shmi_outcome_aux(shmi_get(&successor.n->extra)) == from && successor.off != w.off)
            return;
        if (left-- == 0) {
            shmi_set_broken(&k->m, 1);
            return;
        }
    }
    if (shmi_cond_wake(k, b, shmi_get(&w.n->wanted), from))
        SHMSYNC_CRASHPOINT("cond.pass.resolved");
}

/* Wakes those of a broadcast until that many are on their way. */
SHMI_FN void shmi_cond_wake_covered(struct shmi_cond *k, struct shmi_wakes *b, uint64_t limit)
{
    struct shmi_monitor *m = &k->m;
    while (!shmi_is_broken(m) && shmi_get(&k->w->flying) < limit) {
        struct shmi_wait w = shmi_fifo_head(m, &k->w->covered);
        if (w.n == NULL)
            return;
        if (!shmi_mon_waiting(m, w)) {
            shmi_fifo_detach(m, &k->w->covered, w);
            shmi_mon_release_node(m, w);
            continue;
        }
        if (shmi_mon_end(m, b, w, SHMI_condBroadcast, 0)) {
            SHMSYNC_CRASHPOINT("cond.grant.resolved");
            shmi_cond_account(m, w);
        }
    }
}

/* Passes on what the dead had, and wakes those of a broadcast whose turn it is. */
SHMI_FN void shmi_cond_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    if (k->reap_woken) {
        struct shmi_wait w = shmi_fifo_head(m, &k->w->woken);
        uint64_t left = m->a->size / 64;
        k->reap_woken = 0;
        while (w.n != NULL && !shmi_is_broken(m)) {
            struct shmi_wait next;
            int dead = !shmi_mon_current(m, shmi_owner_of(w));
            if (dead)
                shmi_cond_pass(k, b, w); /* which may put one at the end */
            next = shmi_fifo_after(m, w);
            if (dead)
                shmi_cond_land(k, w);
            if (left-- == 0)
                shmi_set_broken(m, 1);
            w = next;
        }
    }
    shmi_cond_wake_covered(k, b, k->limit);
}

/* The queue where a wait belongs that is not over. */
SHMI_FN shmi_list_words *shmi_cond_queue_of(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    return shmi_stamp_of(w) <= shmi_ld64(&k->w->upTo) ? &k->w->covered : &k->w->waiting;
}
SHMI_FN void shmi_cond_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, shmi_cond_queue_of(m, w), w); }
SHMI_FN void shmi_cond_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, shmi_cond_queue_of(m, w), w); }
SHMI_FN void shmi_cond_discard_dead(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    shmi_fifo_discard_dead(m, &k->w->covered);
    shmi_fifo_discard_dead(m, &k->w->waiting);
}
SHMI_FN void shmi_cond_clear(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    shmi_fifo_clear(&k->w->waiting);
    shmi_fifo_clear(&k->w->covered);
    shmi_fifo_clear(&k->w->woken);
    shmi_put(&k->w->flying, 0);
    k->reap_woken = 1;
}
SHMI_FN void shmi_cond_reap(struct shmi_monitor *m) { ((struct shmi_cond *)m)->reap_woken = 1; }

/* If nobody has come back from a broadcast since the last check, those on their way are stopped, or their lock is held for long: all go. */
SHMI_FN void shmi_cond_check(struct shmi_monitor *m)
{
    struct shmi_cond *k = (struct shmi_cond *)m;
    uint64_t landed;
    if (shmi_fifo_empty(&k->w->covered)) {
        shmi_st64(&k->before, SHMI_COND_NO_CHECK);
        return;
    }
    landed = shmi_get(&k->w->landed);
    if (shmi_xchg64(&k->before, landed) == landed && shmi_mon_try_enter(m)) {
        struct shmi_wakes b;
        shmi_wakes_init(&b);
        shmi_cond_wake_covered(k, &b, SHMI_COND_NO_CHECK);
        shmi_mon_leave(m, &b);
    }
}

static const struct shmi_rules shmi_cond_rules = {
    shmi_cond_resolve, shmi_cond_account, shmi_cond_clear, shmi_cond_requeue, shmi_cond_detach,
    shmi_cond_discard_dead, shmi_cond_reap, shmi_seq_nothing, shmi_cond_check,
};

SHMI_FN void shmi_cond_init(struct shmi_cond *k, shmsync_arena *a, const shmi_object *o)
{
    shmi_mon_init(&k->m, a, o, o->body, &shmi_cond_rules);
    k->w = (shmi_cond_words *)shmi_ptr(a, o->body, sizeof(shmi_cond_words), 8);
    k->limit = shmi_ld64(&k->w->batch);
    if (k->limit == 0)
        k->limit = SHMI_COND_BATCH;
    k->reap_woken = 0;
    k->before = SHMI_COND_NO_CHECK;
}
SHMI_FN void *shmi_cond_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_cond *k = (struct shmi_cond *)shmi_new_thing(sizeof *k);
    (void)arg;
    if (k != NULL)
        shmi_cond_init(k, a, o);
    return k;
}

typedef struct shmi_cond_spec {
    uint64_t batch;
    uint32_t spin;
} shmi_cond_spec;
SHMI_FN void shmi_cond_fill(unsigned char *body, const void *arg)
{
    shmi_cond_words *w = (shmi_cond_words *)(void *)body;
    const shmi_cond_spec *s = (const shmi_cond_spec *)arg;
    w->batch = s->batch;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_cond(int existing, shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    shmi_cond_spec init;
    shmi_spec spec;
    void *impl;
    int created, err, batch = opts != NULL ? opts->batch : 0;
    init.batch = batch < 0 ? SHMI_COND_ALL : (uint64_t)batch;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_COND, SHMI_VERSION_COND, name, sizeof(shmi_cond_words));
    spec.init = shmi_cond_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_cond_build, NULL, &created, &impl);
    out->impl = (struct shmi_cond *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && batch != 0 && shmi_ld64(&out->impl->w->batch) != init.batch) {
        shmsync_cond_close(out);
        err = shmi_fail(EINVAL, "cond.open", name, "its batch is another than %d", batch);
    }
    return err;
}
int shmsync_cond_open(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_cond(0, a, name, opts, out));
}
int shmsync_cond_attach(shmsync_arena *a, const char *name, const shmsync_cond_options *opts, shmsync_cond *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_cond(1, a, name, opts, out));
}
int shmsync_cond_at(shmsync_arena *a, shmsync_offset off, shmsync_cond *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "cond.open", SHMI_KIND_COND, SHMI_VERSION_COND, sizeof(shmi_cond_words), shmi_cond_build, NULL, &impl);
    out->impl = (struct shmi_cond *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_cond_offset(const shmsync_cond *c)
{
    SHMI_OPENED_OR(c, 0);
    return c->impl->m.o.off;
}
int shmsync_cond_close(shmsync_cond *c)
{
    SHMI_OPENED(c);
    int err;
    if (c->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&c->impl->m);
    if (err == 0)
        c->impl = NULL;
    return SHMI_TELL(err);
}

/* Ends a wait whose owner has the lock again, or could not get it: then the signal passes on. */
SHMI_FN int shmi_cond_finish(struct shmi_cond *k, shmi_wait_node *wait_node, int pass)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    struct shmi_wait w;
    int err = shmi_mon_enter(m, 0);
    if (err != 0)
        return err;
    w.off = wait_node->off;
    w.n = wait_node->node;
    shmi_wakes_init(&b);
    if (pass)
        shmi_cond_pass(k, &b, w);
    shmi_cond_land(k, w);
    shmi_cond_resolve(m, &b);
    shmi_mon_leave(m, &b);
    shmi_mon_collect(m, wait_node);
    return 0;
}

/* The rest of wait, in a call that counts. */
SHMI_FN int shmi_cond_wait_counted(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    shmi_wait_node *wait_node = NULL;
    uint64_t stamp;
    int err, lock_err;
    err = shmi_wait_node_take(m->a, &wait_node);
    if (err != 0)
        return err;
    err = shmi_mon_enter(m, abs);
    if (err != 0) {
        shmi_wait_node_return(m->a, wait_node);
        return err;
    }
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(m, &b);
    shmi_mon_join(m, wait_node, 0, 0);
    stamp = shmi_ld64(&wait_node->node->stamp);
    shmi_mon_leave(m, &b);
    SHMSYNC_CRASHPOINT("cond.wait.queued");
    SHMI_OUTSIDE(err = unlock(arg));
    if (err != 0) {
        if (!shmi_mon_give_up(m, wait_node))
            shmi_cond_finish(k, wait_node, 1);
        return err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.unlocked");
    err = shmi_mon_sleep(m, wait_node, abs);
    if (err != 0) {
        wait_node = NULL; /* it is the queue's now */
        if (err == ETIMEDOUT && shmi_ld64(&k->w->upTo) >= stamp)
            err = 0; /* a broadcast came first */
    }
    SHMSYNC_CRASHPOINT("cond.wait.woken");
    SHMI_OUTSIDE(lock_err = lock(arg));
    if (lock_err != 0) {
        if (wait_node != NULL)
            shmi_cond_finish(k, wait_node, 1);
        return lock_err;
    }
    SHMSYNC_CRASHPOINT("cond.wait.relocked");
    return wait_node != NULL ? shmi_cond_finish(k, wait_node, 0) : err;
}
SHMI_FN int shmi_cond_wait(struct shmi_cond *k, int (*unlock)(void *), int (*lock)(void *), void *arg, int64_t abs)
{
    int err;
    if (abs != 0 && shmi_now() >= abs)
        return ETIMEDOUT;
    err = shmi_mon_begin(&k->m);
    if (err != 0)
        return err;
    err = shmi_cond_wait_counted(k, unlock, lock, arg, abs);
    shmi_mon_finish(&k->m);
    return err;
}
SHMI_FN int shmi_cond_unlock_mutex(void *m) { return shmsync_mutex_unlock((shmsync_mutex *)m); }
SHMI_FN int shmi_cond_lock_mutex(void *m) { return shmsync_mutex_lock((shmsync_mutex *)m); }
/* Waits with a mutex. EINVAL in a transaction: to unlock would let others see what it has not finished. */
SHMI_FN int shmi_cond_wait_mutex(shmsync_cond *c, shmsync_mutex *m, int64_t abs)
{
    uint64_t s = m->impl->rollback ? shmi_ld64(&m->impl->log.head->state) : 0;
    if (s != 0 && SHMI_LOG_ID(s) == m->impl->a->self)
        return shmi_fail(EINVAL, "cond.wait", m->impl->called, "a transaction of the mutex is under way, and the wait would unlock it");
    return shmi_cond_wait(c->impl, shmi_cond_unlock_mutex, shmi_cond_lock_mutex, m, abs);
}
int shmsync_cond_wait(shmsync_cond *c, shmsync_mutex *m)
{
    SHMI_OPENED(c);
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_cond_wait_mutex(c, m, 0));
}
int shmsync_cond_timedwait(shmsync_cond *c, shmsync_mutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(c);
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_cond_wait_mutex(c, m, ns));
}
int shmsync_cond_wait_with(shmsync_cond *c, int (*unlock)(void *), int (*lock)(void *), void *arg, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(c);
    int64_t ns = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &ns) : 0;
    return SHMI_TELL(err != 0 ? err : shmi_cond_wait(c->impl, unlock, lock, arg, ns));
}
int shmsync_cond_signal(shmsync_cond *c)
{
    SHMI_OPENED(c);
    struct shmi_cond *k = c->impl;
    struct shmi_wakes b;
    int err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(&k->m, &b);
    shmi_cond_wake(k, &b, shmi_get(&k->m.w->arrivals), 0);
    shmi_mon_leave(&k->m, &b);
    return 0;
}
int shmsync_cond_broadcast(shmsync_cond *c)
{
    SHMI_OPENED(c);
    struct shmi_cond *k = c->impl;
    struct shmi_monitor *m = &k->m;
    struct shmi_wakes b;
    int err = shmi_mon_enter(m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    shmi_wakes_init(&b);
    shmi_mon_reap_if_due(m, &b);
    if (!shmi_fifo_empty(&k->w->waiting)) {
        struct shmi_wait first, last;
        shmi_st64(&k->w->upTo, shmi_get(&m->w->arrivals));
        SHMSYNC_CRASHPOINT("cond.broadcast.stamped");
        first = shmi_fifo_head(m, &k->w->waiting);
        if (first.n != NULL) {
            last = shmi_mon_node(m, shmi_get(&k->w->covered.last));
            if (last.n != NULL) {
                shmi_put(&last.n->next, shmi_links(first.off, shmi_link_prev(shmi_get(&last.n->next))));
                shmi_put(&first.n->next, shmi_links(shmi_link_next(shmi_get(&first.n->next)), last.off));
            } else {
                shmi_put(&k->w->covered.first, first.off);
            }
            shmi_put(&k->w->covered.last, shmi_get(&k->w->waiting.last));
            shmi_fifo_clear(&k->w->waiting);
        }
        SHMSYNC_CRASHPOINT("cond.broadcast.spliced");
        shmi_cond_resolve(m, &b);
    }
    shmi_mon_leave(m, &b);
    return 0;
}

SHMI_FN void shmi_repair_cond(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_cond k;
    if (o->size < sizeof(shmi_cond_words))
        return;
    shmi_cond_init(&k, a, o);
    shmi_mon_repair(&k.m, dead);
}

#if SHMSYNC_LAYOUT_VERSION >= 3
/* ---- Semaphore: prims/semaphore*.go in C, docs/design/0013-semaphore-fast-path.md ---- */

#define SHMI_FAST_MOST UINT64_C(0x7fffffff)
#define SHMI_FAST_OPEN (UINT64_C(1) << 62)
#define SHMI_POOL_OPEN (UINT64_C(1) << 63)
#define SHMI_SEMAPHORE_TRANSFER (UINT64_C(1) << 63)

struct shmi_semaphore {
    struct shmi_monitor m;
    shmi_semaphore_words *w;
    shmi_semaphore_share *shares, *own; /* of the slots, from slot 1; this process's */
    uint32_t slots;
    uint64_t size;
    int moves;      /* transferable */
    uint32_t fast; /* this handle has opened our share. Atomic. */
};

SHMI_FN uint64_t shmi_semaphore_bytes(uint32_t slots) { return sizeof(shmi_semaphore_words) + (uint64_t)slots * sizeof(shmi_semaphore_share); }
SHMI_FN uint64_t shmi_fast_used(uint64_t q) { return q & SHMI_FAST_MOST; }
SHMI_FN uint64_t shmi_fast_spare(uint64_t q) { return q >> 31 & SHMI_FAST_MOST; }
SHMI_FN uint64_t shmi_fast_permits(uint64_t q) { return shmi_fast_used(q) + shmi_fast_spare(q); }

/* Has the participant of a share change its fast word no more, and gives the word. */
SHMI_FN uint64_t shmi_sem_shut(shmi_semaphore_share *h)
{
    for (;;) {
        uint64_t q = shmi_ld64(&h->fast);
        if ((q & SHMI_FAST_OPEN) == 0 || shmi_cas64(&h->fast, q, q & ~SHMI_FAST_OPEN))
            return q & ~SHMI_FAST_OPEN;
    }
}
SHMI_FN uint64_t shmi_sem_total(shmi_semaphore_share *h) { return shmi_get(&h->permits) + shmi_fast_permits(shmi_ld64(&h->fast)); }

SHMI_FN void shmi_sem_close_share(struct shmi_semaphore *s, shmi_semaphore_share *h)
{
    uint64_t q = shmi_sem_shut(h);
    struct shmi_change c;
    if (q == 0)
        return;
    SHMSYNC_CRASHPOINT("semaphore.gather.shut");
    c.n = 0;
    shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_fast_spare(q));
    shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + shmi_fast_used(q));
    shmi_change_set(&c, &h->fast, 0);
    shmi_mon_commit(&s->m, &c);
}

SHMI_FN uint64_t shmi_sem_open_bit(uint32_t slot) { return UINT64_C(1) << (slot & 63); }

/* Closes all shares. The queue lock is held. */
SHMI_FN void shmi_sem_gather(struct shmi_semaphore *s)
{
    uint64_t marks = shmi_get(&s->w->opened);
    uint32_t i;
    if (marks == 0)
        return;
    for (i = 0; i < s->slots; i++)
        if ((marks & shmi_sem_open_bit(i + 1)) != 0)
            shmi_sem_close_share(s, &s->shares[i]);
    shmi_put(&s->w->opened, 0);
}

/* What is free for anybody. Nobody changes it from here on but with the queue lock. */
SHMI_FN uint64_t shmi_sem_pool(struct shmi_semaphore *s)
{
    while (s->moves) {
        uint64_t p = shmi_ld64(&s->w->free);
        if ((p & SHMI_POOL_OPEN) == 0 || shmi_cas64(&s->w->free, p, p & ~SHMI_POOL_OPEN))
            return p & ~SHMI_POOL_OPEN;
    }
    return shmi_get(&s->w->free);
}
/* Opens what was closed for the time of the queue lock, if nobody is queued. */
SHMI_FN void shmi_sem_reopen(struct shmi_semaphore *s)
{
    if (s->moves && shmi_fifo_empty(&s->w->queue))
        shmi_st64(&s->w->free, shmi_get(&s->w->free) | SHMI_POOL_OPEN);
}

/* Whether n permits are free, which are in free then. */
SHMI_FN int shmi_sem_can_take(struct shmi_semaphore *s, uint64_t n)
{
    if (shmi_sem_pool(s) >= n)
        return 1;
    shmi_sem_gather(s);
    return shmi_get(&s->w->free) >= n;
}

/* Takes n permits that are free for this process. */
SHMI_FN void shmi_sem_take(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t left = shmi_get(&s->w->free) - n;
    if (!s->moves) {
        shmi_semaphore_share *h = s->own;
        if (shmi_get(&h->name) != s->m.a->self) {
            left += shmi_fast_permits(shmi_sem_shut(h)) + shmi_get(&h->permits);
            shmi_put(&h->permits, 0);
            shmi_put(&h->fast, 0);
            shmi_put(&h->name, s->m.a->self);
        }
        if ((shmi_ld64(&h->fast) & SHMI_FAST_OPEN) != 0)
            shmi_add64(&h->fast, n);
        else
            shmi_put(&h->permits, shmi_get(&h->permits) + n);
        SHMSYNC_CRASHPOINT("semaphore.take.counted");
    }
    shmi_put(&s->w->free, left);
}

/* Gives n permits of this process back; 0 if it has not so many. */
SHMI_FN int shmi_sem_give(struct shmi_semaphore *s, uint64_t n)
{
    shmi_semaphore_share *h = s->own;
    if (s->moves) {
        uint64_t left = shmi_sem_pool(s);
        if (n > s->size - shmi_min(left, s->size))
            return 0;
        shmi_put(&s->w->free, left + n);
        return 1;
    }
    if (shmi_get(&h->name) != s->m.a->self)
        return n == 0;
    shmi_sem_close_share(s, h);
    if (shmi_get(&h->permits) < n)
        return 0;
    shmi_put(&h->permits, shmi_get(&h->permits) - n);
    SHMSYNC_CRASHPOINT("semaphore.give.counted");
    shmi_put(&s->w->free, shmi_get(&s->w->free) + n);
    return 1;
}

/* Keeps n free permits for this process, and lets it go without the queue lock from now on, if it was the last to release, too. */
SHMI_FN void shmi_sem_open_share(struct shmi_semaphore *s, uint64_t n)
{
    shmi_semaphore_words *w = s->w;
    shmi_semaphore_share *h = s->own;
    struct shmi_change c;
    uint64_t q;
    /* A process that releases nothing may have no share yet: that of its slot is the dead one's. */
    if (shmi_get(&w->last) != s->m.a->self || shmi_get(&h->name) != s->m.a->self || s->size > SHMI_FAST_MOST) {
        shmi_put(&w->last, s->m.a->self);
        return;
    }
    shmi_put(&w->opened, shmi_get(&w->opened) | shmi_sem_open_bit(s->m.a->my_slot));
    SHMSYNC_CRASHPOINT("semaphore.open.marked");
    q = shmi_get(&h->permits) | n << 31;
    c.n = 0;
    shmi_change_set(&c, &w->free, shmi_get(&w->free) - n);
    shmi_change_set(&c, &h->permits, 0);
    shmi_change_set(&c, &h->fast, q);
    shmi_mon_commit(&s->m, &c);
    SHMSYNC_CRASHPOINT("semaphore.open.filled");
    shmi_st64(&h->fast, q | SHMI_FAST_OPEN);
    shmi_st32(&s->fast, 1);
}

/* Acquires, or releases, without the queue lock; 0 if that cannot be. */
SHMI_FN int shmi_sem_acquire_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    for (;;) {
        v = shmi_ld64(w);
        if (s->moves) {
            if ((v & SHMI_POOL_OPEN) == 0 || (v & ~SHMI_POOL_OPEN) < n)
                return 0;
            if (shmi_cas64(w, v, v - n))
                return 1;
        } else {
            if ((v & SHMI_FAST_OPEN) == 0 || shmi_fast_spare(v) < n)
                return 0;
            if (shmi_cas64(w, v, v + n - (n << 31))) {
                SHMSYNC_CRASHPOINT("semaphore.fast.acquired");
                return 1;
            }
        }
    }
}
SHMI_FN int shmi_sem_release_fast(struct shmi_semaphore *s, uint64_t n)
{
    uint64_t *w = s->moves ? &s->w->free : &s->own->fast, v;
    if (!s->moves && shmi_ld32(&s->fast) == 0)
        return 0;
    for (;;) {
        v = shmi_ld64(w);
        if (s->moves) {
            uint64_t p = v & ~SHMI_POOL_OPEN;
            if ((v & SHMI_POOL_OPEN) == 0 || p > s->size || n > s->size - p)
                return 0;
            if (shmi_cas64(w, v, v + n))
                return 1;
        } else {
            if ((v & SHMI_FAST_OPEN) == 0 || shmi_fast_used(v) < n)
                return 0;
            if (shmi_cas64(w, v, v - n + (n << 31))) {
                SHMSYNC_CRASHPOINT("semaphore.fast.released");
                return 1;
            }
        }
    }
}

/* Of a transferable semaphore a share counts what waits of the participant were granted, in permits, and what it
 * has accepted, in fast: prims/semaphore_transfer.go. The difference comes back when it dies. */
SHMI_FN uint64_t shmi_sem_unaccepted(struct shmi_semaphore *s, shmi_semaphore_share *h)
{
    int64_t n = (int64_t)(shmi_get(&h->permits) - shmi_ld64(&h->fast));
    return n > 0 ? shmi_min((uint64_t)n, s->size) : 0;
}
/* Makes free what the participant of h, which is gone, has not accepted, and h the share of name. The queue lock is held. */
SHMI_FN void shmi_sem_take_back_grants(struct shmi_semaphore *s, shmi_semaphore_share *h, uint64_t name)
{
    uint64_t pool = shmi_sem_pool(s); /* nobody else changes it from here on */
    struct shmi_change c;
    c.n = 0;
    shmi_change_set(&c, &s->w->free, pool + shmi_min(shmi_sem_unaccepted(s, h), s->size - shmi_min(pool, s->size)));
    shmi_change_set(&c, &h->name, name);
    shmi_change_set(&c, &h->permits, shmi_ld64(&h->fast));
    shmi_mon_commit(&s->m, &c);
}

/* The rules. */

SHMI_FN void shmi_sem_account(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint64_t n = shmi_get(&w.n->wanted);
    shmi_participant_id owner = shmi_owner_of(w);
    uint32_t slot = shmi_id_slot(owner);
    struct shmi_change c;
    c.n = 0;
    if (n > shmi_sem_pool(s) || slot < 1 || slot > s->slots) {
        shmi_mon_account(m, w, NULL); /* a peer wrote that */
        return;
    }
    if (!s->moves) {
        shmi_semaphore_share *h = &s->shares[slot - 1];
        if (shmi_get(&h->name) != owner) {
            shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_get(&h->permits) + shmi_fast_permits(shmi_sem_shut(h)) - n);
            shmi_change_set(&c, &h->name, owner);
            shmi_change_set(&c, &h->permits, n);
            shmi_change_set(&c, &h->fast, 0);
            shmi_mon_account(m, w, &c);
            return;
        }
        shmi_change_set(&c, &h->permits, shmi_get(&h->permits) + n);
    } else if (shmi_get(&s->shares[slot - 1].name) == owner) { /* whose wait is queued has inherited the share */
        shmi_change_set(&c, &s->shares[slot - 1].permits, shmi_get(&s->shares[slot - 1].permits) + n);
    }
    shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) - n);
    shmi_mon_account(m, w, &c);
}
SHMI_FN void shmi_sem_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    struct shmi_wait w;
    while (!shmi_is_broken(m) && (w = shmi_fifo_head(m, &s->w->queue)).n != NULL) {
        if (!shmi_mon_waiting(m, w))
            shmi_mon_discard(m, w);
        else if (!shmi_sem_can_take(s, shmi_get(&w.n->wanted)))
            return;
        else if (shmi_mon_end(m, b, w, 0, 0))
            shmi_sem_account(m, w);
    }
}
SHMI_FN void shmi_sem_requeue(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_requeue(m, &((struct shmi_semaphore *)m)->w->queue, w); }
SHMI_FN void shmi_sem_detach(struct shmi_monitor *m, struct shmi_wait w) { shmi_fifo_detach(m, &((struct shmi_semaphore *)m)->w->queue, w); }
SHMI_FN void shmi_sem_discard_dead(struct shmi_monitor *m) { shmi_fifo_discard_dead(m, &((struct shmi_semaphore *)m)->w->queue); }
SHMI_FN void shmi_sem_clear(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint64_t left = s->size;
    uint32_t i;
    shmi_fifo_clear(&s->w->queue);
    if (s->moves)
        return;
    for (i = 0; i < s->slots; i++)
        left -= shmi_min(shmi_sem_total(&s->shares[i]), left);
    shmi_st64(&s->w->free, left);
}
SHMI_FN void shmi_sem_reap(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint32_t i;
    for (i = 0; i < s->slots; i++) {
        shmi_semaphore_share *h = &s->shares[i];
        struct shmi_change c;
        if (s->moves) {
            if (shmi_sem_unaccepted(s, h) > 0 && shmi_mon_gone(m, shmi_name_of(&h->name)))
                shmi_sem_take_back_grants(s, h, shmi_get(&h->name));
            continue;
        }
        if (shmi_sem_total(h) == 0 || !shmi_mon_gone(m, shmi_name_of(&h->name)))
            continue;
        c.n = 0;
        shmi_change_set(&c, &s->w->free, shmi_get(&s->w->free) + shmi_get(&h->permits) + shmi_fast_permits(shmi_sem_shut(h)));
        shmi_change_set(&c, &h->permits, 0);
        shmi_change_set(&c, &h->fast, 0);
        shmi_mon_commit(m, &c);
    }
}
SHMI_FN void shmi_sem_holders(struct shmi_monitor *m)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)m;
    uint32_t i;
    for (i = 0; i < s->slots; i++)
        if (s->moves ? shmi_sem_unaccepted(s, &s->shares[i]) > 0 : shmi_sem_total(&s->shares[i]) > 0)
            shmi_mon_heed(m, shmi_name_of(&s->shares[i].name));
}

static const struct shmi_rules shmi_sem_rules = {
    shmi_sem_resolve, shmi_sem_account, shmi_sem_clear, shmi_sem_requeue, shmi_sem_detach,
    shmi_sem_discard_dead, shmi_sem_reap, shmi_sem_holders, NULL,
};

SHMI_FN void shmi_sem_init(struct shmi_semaphore *s, shmsync_arena *a, const shmi_object *o)
{
    uint64_t size;
    shmi_mon_init(&s->m, a, o, o->body, &shmi_sem_rules);
    s->m.handlers = 1;
    s->w = (shmi_semaphore_words *)shmi_ptr(a, o->body, shmi_semaphore_bytes(a->geo.slots), 8);
    s->shares = (shmi_semaphore_share *)(void *)(s->w + 1);
    s->own = &s->shares[a->my_slot - 1];
    s->slots = a->geo.slots;
    size = shmi_ld64(&s->w->size);
    s->size = size & ~SHMI_SEMAPHORE_TRANSFER;
    s->moves = (size & SHMI_SEMAPHORE_TRANSFER) != 0;
    s->fast = 0;
}
SHMI_FN void *shmi_sem_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_semaphore *s = (struct shmi_semaphore *)shmi_new_thing(sizeof *s);
    (void)arg;
    if (s != NULL)
        shmi_sem_init(s, a, o);
    return s;
}

typedef struct shmi_semaphore_spec {
    uint64_t size, free_;
    uint32_t spin;
} shmi_semaphore_spec;
SHMI_FN void shmi_sem_fill(unsigned char *body, const void *arg)
{
    shmi_semaphore_words *w = (shmi_semaphore_words *)(void *)body;
    const shmi_semaphore_spec *s = (const shmi_semaphore_spec *)arg;
    w->size = s->size;
    w->free = s->free_;
    w->mon.spin = s->spin;
}
SHMI_FN int shmi_open_semaphore(int existing, shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    int moves = opts != NULL && opts->transferable;
    shmi_semaphore_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    if (!existing && n < 1)
        return shmi_fail(EINVAL, "semaphore.open", name, "it takes a number of permits of at least 1, not %lld; shmsync_semaphore_attach opens one that exists", (long long)n);
    if (!existing && moves && opts->initial > n)
        return shmi_fail(EINVAL, "semaphore.open", name, "%lld permits at first of %lld", (long long)opts->initial, (long long)n);
    init.size = (uint64_t)n | (moves ? SHMI_SEMAPHORE_TRANSFER : 0);
    init.free_ = (uint64_t)n;
    if (moves)
        init.free_ = (opts->initial < 0 ? 0 : opts->initial > 0 ? (uint64_t)opts->initial : (uint64_t)n) | SHMI_POOL_OPEN;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, name, shmi_semaphore_bytes(a->geo.slots));
    spec.init = shmi_sem_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_sem_build, NULL, &created, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && ((!existing && (uint64_t)n != out->impl->size) || (moves && !out->impl->moves))) {
        shmsync_semaphore_close(out);
        err = shmi_fail(EINVAL, "semaphore.open", name, "it has another number of permits than %lld, or is not transferable", (long long)n);
    }
    return err;
}
int shmsync_semaphore_open(shmsync_arena *a, const char *name, int64_t n, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_semaphore(0, a, name, n, opts, out));
}
int shmsync_semaphore_attach(shmsync_arena *a, const char *name, const shmsync_semaphore_options *opts, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_semaphore(1, a, name, 0, opts, out));
}
int shmsync_semaphore_at(shmsync_arena *a, shmsync_offset off, shmsync_semaphore *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "semaphore.open", SHMI_KIND_SEMAPHORE, SHMI_VERSION_SEMAPHORE, shmi_semaphore_bytes(a->geo.slots), shmi_sem_build, NULL, &impl);
    out->impl = (struct shmi_semaphore *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_semaphore_offset(const shmsync_semaphore *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->m.o.off;
}
int shmsync_semaphore_close(shmsync_semaphore *s)
{
    SHMI_OPENED(s);
    int err;
    if (s->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_mon_close(&s->impl->m);
    if (err == 0)
        s->impl = NULL;
    return SHMI_TELL(err);
}

/* The rest of acquire, in a call that counts unless it only tries. */
SHMI_FN int shmi_sem_acquire_slow(struct shmi_semaphore *s, uint64_t n, int64_t abs, int try_)
{
    struct shmi_monitor *m = &s->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t outcome = 0;
    int err, again;
    if (try_) {
        if (!shmi_mon_try_enter(m))
            return EBUSY;
    } else {
        err = shmi_mon_enter(m, abs);
        if (err != 0)
            return err;
    }
    shmi_wakes_init(&b);
    do {
        shmi_mon_reap_if_due(m, &b);
        if (s->moves && shmi_get(&s->own->name) != m->a->self) {
            shmi_sem_take_back_grants(s, s->own, m->a->self);
            shmi_sem_resolve(m, &b);
        }
        if (shmi_fifo_empty(&s->w->queue) && n <= s->size && shmi_sem_can_take(s, n)) {
            shmi_sem_take(s, n);
            shmi_sem_reopen(s);
            shmi_mon_leave(m, &b);
            shmi_mon_return_node(m, wait_node);
            return 0;
        }
        if (try_ || n > s->size) {
            shmi_sem_reopen(s);
            shmi_mon_leave(m, &b);
            if (try_)
                return EBUSY;
            while (shmi_now() < abs) { /* there will never be so many */
                if (__atomic_load_n(&m->a->closing, __ATOMIC_SEQ_CST))
                    return shmi_fail(EBADF, "semaphore.acquire", m->queueLock.called, "this process closed the arena");
                shmi_nap(shmi_min((uint64_t)(abs - shmi_now()), 100000000) + 1);
            }
            return ETIMEDOUT;
        }
        err = shmi_mon_wait_node(m, abs, &wait_node, &again);
        if (err != 0) {
            shmi_mon_wake(m, &b);
            return err;
        }
    } while (again);
    shmi_mon_join(m, wait_node, 0, n);
    shmi_mon_leave(m, &b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0 && s->moves) {
        shmi_add64(&s->own->fast, n);
        SHMSYNC_CRASHPOINT("semaphore.acquire.accepted");
    }
    return err;
}
SHMI_FN int shmi_sem_acquire(struct shmi_semaphore *s, int64_t want, int64_t abs, int forever, int try_)
{
    struct shmi_monitor *m = &s->m;
    uint64_t n = (uint64_t)want;
    int err = shmi_use(m->a, "semaphore.acquire");
    if (err != 0)
        return err;
    if (want < 0 || (n > s->size && forever))
        return shmi_fail(EINVAL, "semaphore.acquire", m->queueLock.called, "%lld of %llu permits", (long long)want, (unsigned long long)s->size);
    if (shmi_sem_acquire_fast(s, n))
        return 0;
    if (try_)
        return shmi_sem_acquire_slow(s, n, abs, 1);
    err = shmi_mon_begin(m);
    if (err != 0)
        return err;
    err = shmi_sem_acquire_slow(s, n, abs, 0);
    shmi_mon_finish(m);
    return err;
}
int shmsync_semaphore_acquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_sem_acquire(s->impl, n, 0, 1, 0));
}
int shmsync_semaphore_tryacquire(shmsync_semaphore *s, int64_t n)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_sem_acquire(s->impl, n, 0, 0, 1));
}
int shmsync_semaphore_timedacquire(shmsync_semaphore *s, int64_t n, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_sem_acquire(s->impl, n, ns, 0, 0));
}
int shmsync_semaphore_release(shmsync_semaphore *sem, int64_t n)
{
    SHMI_OPENED(sem);
    struct shmi_semaphore *s = sem->impl;
    struct shmi_wakes b;
    int err = shmi_use(s->m.a, "semaphore.release");
    if (err != 0)
        return SHMI_TELL(err);
    if (n < 0)
        return shmi_fail(EINVAL, "semaphore.release", s->m.queueLock.called, "%lld permits", (long long)n);
    if (shmi_sem_release_fast(s, (uint64_t)n))
        return 0;
    err = shmi_mon_enter(&s->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_sem_give(s, (uint64_t)n)) {
        shmi_sem_reopen(s);
        shmi_mon_leave(&s->m, NULL);
        return shmi_fail(EPERM, "semaphore.release", s->m.queueLock.called, "%lld permits are more than are held", (long long)n);
    }
    shmi_wakes_init(&b);
    if (!shmi_fifo_empty(&s->w->queue))
        shmi_sem_resolve(&s->m, &b);
    else if (!s->moves)
        shmi_sem_open_share(s, (uint64_t)n);
    shmi_sem_reopen(s);
    shmi_mon_leave(&s->m, &b);
    return 0;
}
int64_t shmsync_semaphore_free(const shmsync_semaphore *sem)
{
    SHMI_OPENED_OR(sem, 0);
    struct shmi_semaphore *s = sem->impl;
    uint64_t n = shmi_ld64(&s->w->free) & ~SHMI_POOL_OPEN, marks = shmi_ld64(&s->w->opened);
    uint32_t i;
    for (i = 0; i < s->slots && marks != 0; i++)
        if ((marks & shmi_sem_open_bit(i + 1)) != 0)
            n += shmi_fast_spare(shmi_ld64(&s->shares[i].fast));
    return (int64_t)shmi_min(n, INT64_MAX);
}

SHMI_FN void shmi_repair_semaphore(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_semaphore s;
    if (o->size < shmi_semaphore_bytes(a->geo.slots))
        return;
    shmi_sem_init(&s, a, o);
    shmi_mon_repair(&s.m, dead);
}
#endif

/* ---- RWMutex: prims/rwmutex*.go in C, docs/design/0010-rwmutex.md ---- */

#define SHMI_READER_ONE (UINT64_C(1) << SHMI_READER_READING_SHIFT)
#define SHMI_READER_WAIT (UINT64_C(1) << SHMI_READER_WAITING_SHIFT)
#define SHMI_READER_MOST UINT64_C(0x7fffff)

struct shmi_rwmutex {
    shmsync_arena *a;
    shmi_object o;
    shmi_rwmutex_words *w;
    shmi_rwmutex_line *lines; /* of the slots, from slot 1 */
    uint64_t *mine;           /* this participant's reader word */
    uint32_t slots;
    int release;
    int (*repair)(void *);
    void *repair_arg;
    const char *called;
    shmi_mutex writers; /* its holder closes the gate, writes, and opens the gate */
    shmi_wait_list readers_wake_word, writer_wake_word;
    pthread_mutex_t registry;
    uint32_t waiting, due; /* guarded by: registry; registered in this epoch; let in and not aware of it */
    uint64_t epoch;        /* guarded by: registry; grants so far */
    uint32_t upgradable;   /* SHMI_upNot and its like: the words cannot tell an upgradable hold from a writer between two steps */
    uint32_t stuck;        /* the gate that the last check found closed although nobody reads */
    int64_t looked_readers, looked_writer;
};

SHMI_FN uint64_t shmi_rw_bytes(uint32_t slots) { return sizeof(shmi_rwmutex_words) + (uint64_t)slots * sizeof(shmi_rwmutex_line); }
SHMI_FN uint64_t shmi_rw_reading(uint64_t w) { return w >> SHMI_READER_READING_SHIFT; }
SHMI_FN uint64_t shmi_rw_waiting(uint64_t w) { return w >> SHMI_READER_WAITING_SHIFT & SHMI_READER_MOST; }
SHMI_FN uint64_t shmi_rw_cleared(uint64_t w) { return w & SHMI_READER_GENERATION_MASK; }
SHMI_FN uint64_t shmi_rw_granted(uint64_t w)
{
    return shmi_rw_cleared(w) + ((shmi_rw_reading(w) + shmi_rw_waiting(w)) << SHMI_READER_READING_SHIFT);
}
SHMI_FN shmi_participant_id shmi_rw_name(uint64_t w, uint32_t slot) { return shmi_make_participant_id(slot, (uint32_t)(w & SHMI_READER_GENERATION_MASK)); }

SHMI_FN uint32_t shmi_rw_gate(struct shmi_rwmutex *m) { return shmi_ld32(&m->w->gate); }
SHMI_FN uint32_t shmi_rw_kind(uint32_t g) { return g >> SHMI_GATE_KIND_SHIFT; }
SHMI_FN shmi_participant_id shmi_rw_who(uint32_t g) { return g & SHMI_NAME_MASK; }
SHMI_FN int shmi_rw_taken(uint32_t g)
{
    uint32_t k = shmi_rw_kind(g);
    return shmi_rw_who(g) != 0 && (k == SHMI_GATE_HELD || k == SHMI_GATE_CLOSED || k == SHMI_GATE_RECOVERING);
}
SHMI_FN int shmi_rw_valid(uint32_t g) { return shmi_owner_valid(g) && shmi_rw_kind(g) != SHMI_kindReserved; }
SHMI_FN uint32_t shmi_rw_closed_by_us(struct shmi_rwmutex *m) { return shmi_make_owner(SHMI_GATE_CLOSED, m->a->self); }
SHMI_FN uint32_t shmi_rw_used(struct shmi_rwmutex *m)
{
    uint32_t high = shmi_ld32(&m->w->high);
    return high < m->slots ? high : m->slots;
}

/* Wakes all readers that sleep, and leaves their announcement: only a granter takes that down. */
SHMI_FN void shmi_rw_wake_readers(struct shmi_rwmutex *m)
{
    shmi_wake_word_touch(&m->readers_wake_word);
    shmi_deliver_all(m->a, &m->readers_wake_word);
}

/* Deals with gate g, whose name was found dead; 0: it stays as it is until that is gone. */
SHMI_FN int shmi_rw_mark_owner_dead(struct shmi_rwmutex *m, uint32_t g)
{
    uint32_t next = g;
    if (shmi_rw_taken(g)) {
        next = shmi_make_owner(SHMI_GATE_OWNER_DEAD, shmi_rw_who(g));
        if (shmi_rw_kind(g) == SHMI_GATE_CLOSED)
            next = 0; /* it has written nothing */
        else if (shmi_rw_kind(g) == SHMI_GATE_HELD && m->release)
            next = shmi_gone(m->a, shmi_rw_who(g)) ? 0 : g;
    }
    if (next == g)
        return 0;
    if (!shmi_take_from32(m->a, shmi_rw_who(g), &m->w->gate, g, next, shmi_rw_kind(g) == SHMI_GATE_HELD && next == 0))
        return 1;
    SHMSYNC_CRASHPOINT("rwmutex.owner_dead.marked");
    if (next != 0)
        shmi_st32(&m->w->died, shmi_rw_who(g));
    shmi_rw_wake_readers(m);
    return 1;
}
/* Whether gate g is one that a dead process keeps, since it is not gone. */
SHMI_FN int shmi_rw_kept(struct shmi_rwmutex *m, uint32_t g)
{
    return m->release && shmi_rw_valid(g) && shmi_rw_taken(g) && shmi_rw_kind(g) == SHMI_GATE_HELD && !shmi_current(m->a, shmi_rw_who(g)) &&
           !shmi_gone(m->a, shmi_rw_who(g));
}

SHMI_FN shmi_participant_id shmi_rw_died(struct shmi_rwmutex *m) { return shmi_ld32(&m->w->died) & SHMI_NAME_MASK; }
/* Why a gate will not open by itself, or 0. */
SHMI_FN int shmi_rw_trouble(struct shmi_rwmutex *m, const char *op, uint32_t g)
{
    if (!shmi_rw_valid(g))
        return shmi_fail(EPROTO, op, m->called, "gate %#x", g);
    if (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD)
        return shmi_fail_who(m->a, EOWNERDEAD, op, m->called, shmi_rw_who(g));
    if (g == SHMI_OWNER_NOT_RECOVERABLE)
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->called, shmi_rw_died(m));
    return 0;
}

SHMI_FN shmi_tuning shmi_rw_tuning(struct shmi_rwmutex *m, uint32_t *pays)
{
    shmi_tuning t;
    t.budget = &m->w->writers.spin;
    t.pays = pays;
    t.last_cpu = &m->w->lastCPU;
    t.slot = m->a->my_slot;
    return t;
}

/* The first slot from at on whose participant reads, or 0. */
SHMI_FN uint32_t shmi_rw_first_reader(struct shmi_rwmutex *m, uint32_t at)
{
    uint32_t used = shmi_rw_used(m);
    for (; at <= used; at++) {
        uint64_t w = shmi_ld64(&m->lines[at - 1].state);
        if (shmi_rw_reading(w) != 0 && !shmi_dead(m->a, shmi_rw_name(w, at)))
            return at;
    }
    return 0;
}

/* Wakes the writer that waits for this process's last reader to leave. */
SHMI_FN void shmi_rw_left(struct shmi_rwmutex *m)
{
    if (shmi_wake_word_announced(&m->writer_wake_word)) {
        shmi_tuning t = shmi_rw_tuning(m, &m->w->paysWriter);
        shmi_note_cpu(&t);
        shmi_wake_word_release(m->a, &m->writer_wake_word);
    }
}
/* Ends an unlock of a reader, which has left that reader word. */
SHMI_FN int shmi_rw_runlock_slow(struct shmi_rwmutex *m, uint64_t w)
{
    if (shmi_rw_reading(w) == SHMI_READER_MOST) {
        shmi_add64(m->mine, SHMI_READER_ONE);
        shmi_rw_left(m); /* a writer may have seen what is not there */
        return shmi_fail(EPERM, "rwmutex.rdunlock", m->called, "%s", "");
    }
    SHMSYNC_CRASHPOINT("rwmutex.runlock.left");
    if (shmi_rw_reading(w) == 0)
        shmi_rw_left(m);
    return 0;
}
SHMI_FN void shmi_rw_take_back(struct shmi_rwmutex *m) { shmi_rw_runlock_slow(m, shmi_add64(m->mine, 0 - SHMI_READER_ONE) - SHMI_READER_ONE); }

/* What a reader's change of its process's word is. */
enum { SHMI_rwRegister, SHMI_rwTry, SHMI_rwLeave, SHMI_rwLook };

/* Notes a grant: it lets in all that wait, so it shows by nobody waiting in w although some do. guarded by: registry */
SHMI_FN void shmi_rw_catch_up(struct shmi_rwmutex *m, uint64_t w)
{
    if (m->waiting != 0 && shmi_rw_waiting(w) == 0) {
        m->due += m->waiting;
        m->waiting = 0;
        m->epoch++;
    }
}
/* Changes this process's reader word, after it has caught up with a grant; one that was let in changes nothing. guarded by: registry */
SHMI_FN uint64_t shmi_rw_change(struct shmi_rwmutex *m, int what, uint64_t epoch)
{
    for (;;) {
        uint64_t w = shmi_ld64(m->mine), to = w;
        shmi_rw_catch_up(m, w);
        if (what == SHMI_rwRegister)
            to = w - SHMI_READER_ONE + SHMI_READER_WAIT;
        else if (what == SHMI_rwTry && m->epoch == epoch)
            to = w - SHMI_READER_WAIT + SHMI_READER_ONE;
        else if (what == SHMI_rwLeave && m->epoch == epoch)
            to = w - SHMI_READER_WAIT;
        if (to == w || shmi_cas64(m->mine, w, to))
            return to;
    }
}
/* Whether one that registered in epoch was let in; guarded by: registry. It is true once. */
SHMI_FN int shmi_rw_claim(struct shmi_rwmutex *m, uint64_t epoch)
{
    if (m->epoch == epoch)
        return 0;
    m->due--;
    return 1;
}
/* Makes a waiting thread of one that tries. */
SHMI_FN uint64_t shmi_rw_register(struct shmi_rwmutex *m)
{
    uint64_t w, epoch;
    pthread_mutex_lock(&m->registry);
    w = shmi_rw_change(m, SHMI_rwRegister, 0);
    m->waiting++;
    epoch = m->epoch;
    pthread_mutex_unlock(&m->registry);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.registered");
    if (shmi_rw_reading(w) == 0)
        shmi_rw_left(m);
    return epoch;
}
SHMI_FN int shmi_rw_was_granted(struct shmi_rwmutex *m, uint64_t epoch, int claim)
{
    int in;
    pthread_mutex_lock(&m->registry);
    shmi_rw_catch_up(m, shmi_ld64(m->mine));
    in = claim ? shmi_rw_claim(m, epoch) : m->epoch != epoch;
    pthread_mutex_unlock(&m->registry);
    return in;
}
/* Lets a waiting reader in by itself, since the gate is open; 0 when it was closed meanwhile, and the reader is registered as before. */
SHMI_FN int shmi_rw_enter(struct shmi_rwmutex *m, uint64_t *epoch)
{
    pthread_mutex_lock(&m->registry);
    shmi_rw_change(m, SHMI_rwTry, *epoch);
    if (shmi_rw_claim(m, *epoch)) {
        pthread_mutex_unlock(&m->registry);
        return 1;
    }
    m->waiting--;
    pthread_mutex_unlock(&m->registry);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
    if (shmi_rw_gate(m) == 0)
        return 1;
    *epoch = shmi_rw_register(m);
    return 0;
}
/* Ends a wait; not 0 if the reader was let in before that: then it has a hold. */
SHMI_FN int shmi_rw_give_up(struct shmi_rwmutex *m, uint64_t epoch)
{
    int in;
    SHMSYNC_CRASHPOINT("rwmutex.rlock.leaving");
    pthread_mutex_lock(&m->registry);
    shmi_rw_change(m, SHMI_rwLeave, epoch);
    in = shmi_rw_claim(m, epoch);
    if (!in)
        m->waiting--;
    pthread_mutex_unlock(&m->registry);
    return in;
}

SHMI_FN int shmi_rw_recover(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*repair)(void *), void *arg);

/* Finds what a stopped or dead process kept from the readers of this one. */
SHMI_FN void shmi_rw_look_readers(struct shmi_rwmutex *m)
{
    uint32_t g = shmi_rw_gate(m), due;
    if (!shmi_rw_valid(g) || !shmi_rw_taken(g)) {
        shmi_rw_wake_readers(m);
    } else if (shmi_dead(m->a, shmi_rw_who(g))) {
        shmi_rw_mark_owner_dead(m, g);
    } else if (shmi_rw_kind(g) == SHMI_GATE_CLOSED && shmi_rw_first_reader(m, 1) == 0) {
        /* Nothing keeps the writer from going on; if it was so at the last check too it may be stopped. It writes nothing yet. */
        if (shmi_xchg32(&m->stuck, g) == g && shmi_cas32(&m->w->gate, g, 0)) {
            shmi_rw_wake_readers(m);
            shmi_wake_word_wake_all(m->a, &m->writer_wake_word);
        }
        return;
    } else {
        pthread_mutex_lock(&m->registry);
        shmi_rw_catch_up(m, shmi_ld64(m->mine));
        due = m->due;
        pthread_mutex_unlock(&m->registry);
        if (due > 0)
            shmi_rw_wake_readers(m);
    }
    shmi_st32(&m->stuck, 0);
}

SHMI_FN int shmi_rw_may_read(void *arg)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)arg;
    return shmi_rw_gate(m) == 0 || shmi_rw_waiting(shmi_ld64(m->mine)) == 0;
}

/* Makes a hold of a try that found the gate closed. */
SHMI_COLD int shmi_rw_rlock_slow(struct shmi_rwmutex *m, int64_t abs)
{
    uint64_t epoch;
    int64_t ask = 0, since = 0;
    int err, spun = 0;
    err = shmi_enter(m->a, "rwmutex.rdlock");
    if (err != 0) {
        shmi_rw_take_back(m);
        return err;
    }
    epoch = shmi_rw_register(m);
    for (;;) {
        uint32_t g, v;
        shmi_sleep_spec sleep_spec;
        int r;
        if (shmi_rw_was_granted(m, epoch, 1))
            break;
        g = shmi_rw_gate(m);
        if (g == 0) {
            if (shmi_rw_enter(m, &epoch))
                break;
            continue;
        }
        err = shmi_rw_trouble(m, "rwmutex.rdlock", g);
        if (err != 0) {
            if (shmi_rw_give_up(m, epoch)) {
                err = 0;
                break;
            }
            if (err != EOWNERDEAD || m->repair == NULL)
                break;
            err = shmi_rw_recover(m, "rwmutex.rdlock", abs, m->repair, m->repair_arg);
            if (err != 0)
                break;
            shmi_add64(m->mine, SHMI_READER_ONE);
            epoch = shmi_rw_register(m);
            continue;
        }
        if (shmi_dead(m->a, shmi_rw_who(g))) {
            if (shmi_rw_mark_owner_dead(m, g))
                continue;
            spun = 1;
        }
        if (!spun) {
            shmi_tuning t = shmi_rw_tuning(m, &m->w->pays);
            spun = 1;
            if (!shmi_wake_word_announced(&m->readers_wake_word) && shmi_spin(&t, shmi_rw_may_read, m))
                continue;
        }
        v = shmi_wake_word_announce(&m->readers_wake_word);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.announced");
        g = shmi_rw_gate(m);
        if (!shmi_rw_valid(g) || !shmi_rw_taken(g) || (!shmi_current(m->a, shmi_rw_who(g)) && !shmi_rw_kept(m, g)) || shmi_rw_was_granted(m, epoch, 0))
            continue;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &m->looked_readers;
        sleep_spec.word = m->readers_wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = m->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_rw_who(g);
        if (!shmi_current(m->a, sleep_spec.owner)) { /* nobody tells when it is gone */
            shmi_follow(m->a);
            sleep_spec.bounded = shmi_next_ask(&ask);
            sleep_spec.owner = 0;
        }
        r = shmi_sleep(m->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.woken");
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            if (shmi_check_due(&m->looked_readers))
                shmi_rw_look_readers(m);
        } else if (r == SHMI_LATE) {
            if ((shmi_rw_gate(m) == 0 && shmi_rw_enter(m, &epoch)) || shmi_rw_give_up(m, epoch))
                break;
            err = ETIMEDOUT;
            break;
        } else {
            if (shmi_rw_give_up(m, epoch))
                shmi_rw_take_back(m);
            err = shmi_fail(EBADF, "rwmutex.rdlock", m->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit(m->a);
    if (err == 0)
        SHMSYNC_CRASHPOINT("rwmutex.rlock.acquired");
    return err;
}

SHMI_FN int shmi_rw_rlock(struct shmi_rwmutex *m, int64_t abs)
{
    int err = shmi_use(m->a, "rwmutex.rdlock");
    if (SHMI_UNLIKELY(err != 0))
        return err;
    shmi_add64(m->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
    return SHMI_LIKELY(shmi_rw_gate(m) == 0) ? 0 : shmi_rw_rlock_slow(m, abs);
}

/* Deals with a dead process that keeps the gate; 0: the gate is open. This thread has the writers' mutex. EBUSY: the dead
 * process is not gone. */
SHMI_FN int shmi_rw_resolve_gate(struct shmi_rwmutex *m, const char *op)
{
    for (;;) {
        uint32_t g = shmi_rw_gate(m);
        if (g == 0) {
            return 0;
        } else if (shmi_rw_valid(g) && shmi_rw_taken(g)) {
            /* The process that closes it has the mutex, and we have that. */
            if (!shmi_dead(m->a, shmi_rw_who(g)))
                return shmi_fail(EPROTO, op, m->called, "gate %#x, without the writers' mutex", g);
            if (!shmi_rw_mark_owner_dead(m, g))
                return EBUSY;
        } else {
            return shmi_rw_trouble(m, op, g);
        }
    }
}
/* Keeps readers out from now on. This thread has the writers' mutex. EBUSY: a dead process
 * keeps the gate. */
SHMI_FN int shmi_rw_close_gate(struct shmi_rwmutex *m, const char *op)
{
    int err;
    while ((err = shmi_rw_resolve_gate(m, op)) == 0)
        if (shmi_cas32(&m->w->gate, 0, shmi_rw_closed_by_us(m))) {
            SHMSYNC_CRASHPOINT("rwmutex.lock.closed");
            break;
        }
    return err;
}

/* Calls f, and calls it again after each time that a dead process keeps the gate and is gone then. It waits without the
 * writers' mutex: its process may be stopped, and other writers go on when the dead one is gone. *held says whether this
 * thread has the mutex, as it has after 0. */
SHMI_FN int shmi_rw_until_reclaimed(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*f)(struct shmi_rwmutex *m, const char *op), int *held)
{
    int err;
    *held = 1;
    while ((err = f(m, op)) == EBUSY) {
        uint32_t g = shmi_rw_gate(m);
        if (!shmi_rw_kept(m, g))
            continue;
        shmi_mutex_unlock(&m->writers);
        *held = 0;
        err = shmi_await_gone(m->a, shmi_rw_who(g), op, m->called, abs);
        if (err == 0)
            err = shmi_mutex_lock(&m->writers, abs);
        if (err != 0)
            break;
        *held = 1;
    }
    return err;
}
SHMI_FN int shmi_rw_close_gate_wait(struct shmi_rwmutex *m, const char *op, int64_t abs, int *held)
{
    return shmi_rw_until_reclaimed(m, op, abs, shmi_rw_close_gate, held);
}

/* Lets in all readers that sleep. This thread has the writers' mutex, and has opened the gate: nobody else may grant. */
SHMI_FN void shmi_rw_let_in(struct shmi_rwmutex *m)
{
    shmi_tuning t = shmi_rw_tuning(m, &m->w->pays);
    uint32_t i, used;
    if (!shmi_wake_word_announced(&m->readers_wake_word))
        return; /* a reader that is about to announce looks at the gate after that */
    used = shmi_rw_used(m);
    for (i = 1; i <= used; i++) {
        uint64_t *line = &m->lines[i - 1].state, w;
        do
            w = shmi_ld64(line);
        while (shmi_rw_waiting(w) != 0 && !shmi_cas64(line, w, shmi_rw_granted(w)));
    }
    SHMSYNC_CRASHPOINT("rwmutex.unlock.granted");
    shmi_note_cpu(&t);
    shmi_wake_word_wake_all(m->a, &m->readers_wake_word);
    SHMSYNC_CRASHPOINT("rwmutex.unlock.woken");
}
SHMI_FN void shmi_rw_reopen(struct shmi_rwmutex *m)
{
    if (shmi_cas32(&m->w->gate, shmi_rw_closed_by_us(m), 0))
        shmi_rw_let_in(m);
}

typedef struct shmi_rw_spin {
    struct shmi_rwmutex *m;
    uint32_t slot;
} shmi_rw_spin;
SHMI_FN int shmi_rw_has_left(void *arg)
{
    shmi_rw_spin *s = (shmi_rw_spin *)arg;
    return shmi_rw_reading(shmi_ld64(&s->m->lines[s->slot - 1].state)) == 0;
}

/* Waits until no reader is in, or another process has opened the gate. The caller is within shmi_enter. It goes from
 * slot to slot, and never back. */
SHMI_FN int shmi_rw_drained(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    uint32_t at = shmi_rw_first_reader(m, 1);
    int64_t since = 0;
    int err, spun = 0;
    if (at == 0)
        return 0;
    err = shmi_enter(m->a, op);
    if (err != 0)
        return err;
    for (;;) {
        uint32_t next = shmi_rw_first_reader(m, at), v;
        shmi_sleep_spec sleep_spec;
        uint64_t w;
        int r;
        if (next == 0 || shmi_rw_gate(m) != shmi_rw_closed_by_us(m))
            break;
        spun = spun && next == at;
        at = next;
        if (!spun) {
            shmi_tuning t = shmi_rw_tuning(m, &m->w->paysWriter);
            shmi_rw_spin s;
            s.m = m;
            s.slot = at;
            spun = 1;
            if (shmi_spin(&t, shmi_rw_has_left, &s))
                continue;
        }
        v = shmi_wake_word_announce(&m->writer_wake_word);
        SHMSYNC_CRASHPOINT("rwmutex.lock.announced");
        w = shmi_ld64(&m->lines[at - 1].state);
        if (shmi_rw_reading(w) == 0 || !shmi_current(m->a, shmi_rw_name(w, at)) || shmi_rw_gate(m) != shmi_rw_closed_by_us(m))
            continue;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &m->looked_writer;
        sleep_spec.word = m->writer_wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = m->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_rw_name(w, at);
        if (sleep_spec.owner == m->a->self)
            sleep_spec.owner = 0;
        r = shmi_sleep(m->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("rwmutex.lock.woken");
        if (r == SHMI_LOOK) {
            if (shmi_check_due(&m->looked_writer) && shmi_rw_first_reader(m, 1) == 0)
                shmi_wake_word_wake_all(m->a, &m->writer_wake_word);
        } else if (r == SHMI_LATE) {
            err = shmi_rw_first_reader(m, at) == 0 ? 0 : ETIMEDOUT;
            break;
        } else if (r == SHMI_CLOSED) {
            err = shmi_fail(EBADF, op, m->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit(m->a);
    return err;
}

/* Waits until no reader is in, and then has m. On failure it opens the gate and keeps the writers' mutex. */
SHMI_FN int shmi_rw_drain_gate(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    int err;
    do {
        err = shmi_rw_drained(m, op, abs);
        if (err == 0 && shmi_cas32(&m->w->gate, shmi_rw_closed_by_us(m), m->a->self)) {
            SHMSYNC_CRASHPOINT("rwmutex.lock.acquired");
            return 0;
        }
        if (err == 0)
            err = shmi_rw_close_gate(m, op); /* another process has opened it: we have not run for long */
    } while (err == 0);
    SHMSYNC_CRASHPOINT("rwmutex.lock.leaving");
    shmi_rw_reopen(m);
    return err;
}
/* shmi_rw_drain_gate, which gives the writers' mutex back on failure. */
SHMI_FN int shmi_rw_drain(struct shmi_rwmutex *m, const char *op, int64_t abs)
{
    int err = shmi_rw_drain_gate(m, op, abs);
    if (err != 0)
        shmi_mutex_unlock(&m->writers);
    return err;
}
/* Has m if no reader is in; EBUSY: one is, and the gate is open. This thread has the writers' mutex. */
SHMI_FN int shmi_rw_try_drained(struct shmi_rwmutex *m, const char *op)
{
    /* A look first: a thread that tries in a loop need not close the gate to readers. */
    int err = shmi_rw_first_reader(m, 1) != 0 ? EBUSY : shmi_rw_close_gate(m, op);
    if (err != 0)
        return err;
    if (shmi_rw_first_reader(m, 1) == 0 && shmi_cas32(&m->w->gate, shmi_rw_closed_by_us(m), m->a->self)) {
        SHMSYNC_CRASHPOINT("rwmutex.lock.acquired");
        return 0;
    }
    shmi_rw_reopen(m);
    return EBUSY;
}

/* The rest of lock, within shmi_enter; mutex says that this thread has the writers' mutex. */
SHMI_FN int shmi_rw_lock_slow(struct shmi_rwmutex *m, int64_t abs, int mutex)
{
    int err, held;
    for (;; mutex = 0) {
        if (!mutex) {
            err = shmi_mutex_lock(&m->writers, abs);
            if (err != 0)
                return err;
            SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        }
        err = shmi_rw_close_gate_wait(m, "rwmutex.lock", abs, &held);
        if (err == 0)
            return shmi_rw_drain(m, "rwmutex.lock", abs);
        if (held)
            shmi_mutex_unlock(&m->writers);
        if (err != EOWNERDEAD || m->repair == NULL)
            return err;
        err = shmi_rw_recover(m, "rwmutex.lock", abs, m->repair, m->repair_arg);
        if (err != 0)
            return err;
    }
}

/* A lock that takes no waiting is not within shmi_enter. Any other one is until it is through with what it has to take back. */
SHMI_FN int shmi_rw_lock(struct shmi_rwmutex *m, int64_t abs)
{
    int err, mutex = shmi_mutex_trylock(&m->writers) == 0;
    if (mutex) {
        SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        if (shmi_rw_try_drained(m, "rwmutex.lock") == 0)
            return 0;
    }
    err = shmi_enter(m->a, "rwmutex.lock");
    if (err != 0)
        return err; /* the arena may be gone, and the mutex was given back as after a death */
    err = shmi_rw_lock_slow(m, abs, mutex);
    shmi_exit(m->a);
    return err;
}

/* Opens the gate that this process holds, lets waiting readers in, and keeps the writers' mutex. */
SHMI_FN int shmi_rw_open_gate(struct shmi_rwmutex *m, const char *op)
{
    uint32_t g;
    int err = shmi_use(m->a, op);
    if (err != 0)
        return err;
    if (!shmi_cas32(&m->w->gate, m->a->self, 0)) {
        g = shmi_rw_gate(m);
        return shmi_fail(shmi_rw_valid(g) ? EPERM : EPROTO, op, m->called, "gate %#x", g);
    }
    SHMSYNC_CRASHPOINT("rwmutex.unlock.opened");
    shmi_rw_let_in(m);
    return 0;
}
/* Ends a write hold. */
SHMI_FN int shmi_rw_open(struct shmi_rwmutex *m, const char *op)
{
    int err = shmi_rw_open_gate(m, op);
    return err != 0 ? err : shmi_mutex_unlock(&m->writers);
}

SHMI_FN int shmi_rw_recover(struct shmi_rwmutex *m, const char *op, int64_t abs, int (*repair)(void *), void *arg)
{
    uint32_t recovering = shmi_make_owner(SHMI_GATE_RECOVERING, m->a->self);
    int held, err = shmi_mutex_lock(&m->writers, abs);
    if (err != 0)
        return err;
    for (;;) {
        uint32_t g = shmi_rw_gate(m);
        if (g == SHMI_OWNER_NOT_RECOVERABLE || (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD && shmi_rw_valid(g))) {
            if (shmi_rw_kind(g) == SHMI_GATE_OWNER_DEAD && !shmi_gone(m->a, shmi_rw_who(g))) {
                /* Others are told meanwhile, and do not wait for us. */
                shmi_mutex_unlock(&m->writers);
                err = shmi_await_gone(m->a, shmi_rw_who(g), op, m->called, abs);
                if (err == 0)
                    err = shmi_mutex_lock(&m->writers, abs);
                if (err != 0)
                    return err;
                continue;
            }
            if (shmi_take_from32(m->a, shmi_rw_who(g), &m->w->gate, g, recovering, 1))
                break;
            continue;
        }
        err = shmi_rw_close_gate_wait(m, op, abs, &held);
        if (err == 0) {
            err = shmi_rw_drain(m, op, abs);
            return err != 0 ? err : shmi_rw_open(m, op);
        }
        if (!held)
            return err;
        if (err != EOWNERDEAD && err != ENOTRECOVERABLE) {
            shmi_mutex_unlock(&m->writers);
            return err;
        }
    }
    SHMSYNC_CRASHPOINT("rwmutex.recover.taken");
    if (shmi_call_repair(repair, arg) != 0) {
        shmi_cas32(&m->w->gate, recovering, SHMI_OWNER_NOT_RECOVERABLE);
        shmi_rw_wake_readers(m);
        shmi_mutex_unlock(&m->writers);
        return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->called, shmi_rw_died(m));
    }
    SHMSYNC_CRASHPOINT("rwmutex.recover.repaired");
    shmi_st32(&m->w->died, 0);
    if (shmi_cas32(&m->w->gate, recovering, 0)) {
        SHMSYNC_CRASHPOINT("rwmutex.recover.opened");
        shmi_rw_let_in(m);
    }
    return shmi_mutex_unlock(&m->writers);
}

/* What this process has of an upgradable hold: nothing, the hold, or a call of upgrade under way. */
enum { SHMI_upNot, SHMI_upHeld, SHMI_upUpgrading };

SHMI_FN void shmi_rw_become_upgradable(struct shmi_rwmutex *m)
{
    shmi_st32(&m->upgradable, SHMI_upHeld);
    SHMSYNC_CRASHPOINT("rwmutex.upgradable.acquired");
}
/* The rest of lock_upgradable, within shmi_enter; mutex says that this thread has the writers' mutex. */
SHMI_FN int shmi_rw_lock_upgradable_slow(struct shmi_rwmutex *m, const char *op, int64_t abs, int mutex)
{
    int err, held;
    for (;; mutex = 0) {
        if (!mutex) {
            err = shmi_mutex_lock(&m->writers, abs);
            if (err != 0)
                return err;
            SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        }
        err = shmi_rw_until_reclaimed(m, op, abs, shmi_rw_resolve_gate, &held);
        if (err == 0) {
            shmi_rw_become_upgradable(m);
            return 0;
        }
        if (held)
            shmi_mutex_unlock(&m->writers);
        if (err != EOWNERDEAD || m->repair == NULL)
            return err;
        err = shmi_rw_recover(m, op, abs, m->repair, m->repair_arg);
        if (err != 0)
            return err;
    }
}
SHMI_FN int shmi_rw_lock_upgradable(struct shmi_rwmutex *m, int64_t abs)
{
    const char *op = "rwmutex.lock_upgradable";
    int err, mutex = shmi_mutex_trylock(&m->writers) == 0;
    if (mutex) {
        SHMSYNC_CRASHPOINT("rwmutex.lock.queued");
        if (shmi_rw_resolve_gate(m, op) == 0) {
            shmi_rw_become_upgradable(m);
            return 0;
        }
    }
    err = shmi_enter(m->a, op);
    if (err != 0)
        return err; /* as of lock */
    err = shmi_rw_lock_upgradable_slow(m, op, abs, mutex);
    shmi_exit(m->a);
    return err;
}
/* Takes the upgradable hold of this process, and leaves next in its place; EPERM: there is none. */
SHMI_FN int shmi_rw_end_upgradable(struct shmi_rwmutex *m, const char *op, uint32_t next)
{
    int err = shmi_use(m->a, op);
    if (err != 0)
        return err;
    if (!shmi_cas32(&m->upgradable, SHMI_upHeld, next))
        return shmi_fail(EPERM, op, m->called, "this process has no upgradable hold; gate %#x", shmi_rw_gate(m));
    return 0;
}
SHMI_FN int shmi_rw_upgrade(struct shmi_rwmutex *m, int64_t abs)
{
    const char *op = "rwmutex.upgrade";
    int err = shmi_enter(m->a, op);
    if (err != 0)
        return err;
    err = shmi_rw_end_upgradable(m, op, SHMI_upUpgrading);
    if (err == 0) {
        err = shmi_rw_close_gate(m, op);
        if (err == 0)
            err = shmi_rw_drain_gate(m, op, abs);
        shmi_st32(&m->upgradable, err == 0 ? SHMI_upNot : SHMI_upHeld);
    }
    shmi_exit(m->a);
    return err;
}

SHMI_FN int shmi_rw_repaired(void *arg)
{
    (void)arg;
    return 0;
}
/* What a handle and a reaper have in common. */
SHMI_FN void shmi_rw_view(struct shmi_rwmutex *m, shmsync_arena *a, const shmi_object *o)
{
    memset(m, 0, sizeof *m);
    m->a = a;
    m->o = *o;
    m->called = o->name_len != 0 ? m->o.name : NULL;
    m->w = (shmi_rwmutex_words *)shmi_ptr(a, o->body, shmi_rw_bytes(a->geo.slots), 8);
    m->lines = (shmi_rwmutex_line *)(void *)(m->w + 1);
    m->slots = a->geo.slots;
    m->mine = &m->lines[a->my_slot - 1].state;
    m->release = (shmi_ld32(&m->w->policy) & 0xff) == 1;
    m->readers_wake_word.word = &m->w->wakeReaders;
    m->readers_wake_word.poller = &m->w->pollerReaders;
    m->writer_wake_word.word = &m->w->wakeWriter;
    m->writer_wake_word.poller = &m->w->pollerWriter;
}
SHMI_FN void *shmi_rw_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_rwmutex_options *opts = (const shmsync_rwmutex_options *)arg;
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)shmi_new_thing(sizeof *m);
    uint32_t gen = shmi_id_gen(a->self), high;
    uint64_t w;
    if (m == NULL)
        return NULL;
    shmi_rw_view(m, a, o);
    if (opts != NULL) {
        m->repair = opts->repair;
        m->repair_arg = opts->repair_arg;
    }
    pthread_mutex_init(&m->registry, NULL);
    shmi_mutex_init(&m->writers, a, &m->w->writers, o->off, m->called, 1);
    m->writers.repair = shmi_rw_repaired; /* what a death leaves is told by the gate */
    /* The reader word of our slot becomes our own, and writers look at it. */
    for (w = shmi_ld64(m->mine); (w & SHMI_READER_GENERATION_MASK) != gen; w = shmi_ld64(m->mine))
        if (shmi_cas64(m->mine, w, gen)) {
            shmi_wake_word_release(a, &m->writer_wake_word); /* the dead may have been waited for */
            break;
        }
    do
        high = shmi_ld32(&m->w->high);
    while (high < a->my_slot && !shmi_cas32(&m->w->high, high, a->my_slot));
    /* An upgradable hold outlives the handles. This is the first one: no call of this process is under way. */
    high = shmi_ld32(&m->w->writers.owner);
    if (shmi_rw_gate(m) == 0 && shmi_owner_valid(high) && shmi_owner_name(high) == a->self && shmi_owner_held(high))
        m->upgradable = SHMI_upHeld;
    return m;
}
SHMI_FN void shmi_rw_end(void *handle)
{
    struct shmi_rwmutex *m = (struct shmi_rwmutex *)handle;
    pthread_mutex_destroy(&m->registry);
    shmi_free_thing(m);
}

SHMI_FN void shmi_rw_fill(unsigned char *body, const void *arg)
{
    shmi_rwmutex_words *w = (shmi_rwmutex_words *)(void *)body;
    const shmi_fair_spec *s = (const shmi_fair_spec *)arg;
    w->policy = s->policy;
    w->writers.policy = 1; /* Release */
    w->writers.spin = s->spin;
}
SHMI_FN int shmi_open_rwmutex(int existing, shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    shmi_fair_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    out->impl = NULL;
    err = shmi_no_rollback("rwmutex.open", name, policy, "an rwmutex");
    if (err != 0)
        return err;
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, name, shmi_rw_bytes(a->geo.slots));
    spec.init = shmi_rw_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_rw_build, opts, &created, &impl);
    out->impl = (struct shmi_rwmutex *)impl;
    out->serial = shmi_serial_of(impl);
    if (err == 0 && !created && policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != out->impl->release) {
        shmsync_rwmutex_close(out);
        err = shmi_fail(EINVAL, "rwmutex.open", name, "it has another policy");
    }
    return err;
}
int shmsync_rwmutex_open(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_rwmutex(0, a, name, opts, out));
}
int shmsync_rwmutex_attach(shmsync_arena *a, const char *name, const shmsync_rwmutex_options *opts, shmsync_rwmutex *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_rwmutex(1, a, name, opts, out));
}
int shmsync_rwmutex_at(shmsync_arena *a, shmsync_offset off, shmsync_rwmutex *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "rwmutex.open", SHMI_KIND_RWMUTEX, SHMI_VERSION_RWMUTEX, shmi_rw_bytes(a->geo.slots), shmi_rw_build, NULL, &impl);
    out->impl = (struct shmi_rwmutex *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_rwmutex_offset(const shmsync_rwmutex *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}
int shmsync_rwmutex_close(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_rw_end);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_rwmutex_lock(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_lock(m->impl, 0));
}
int shmsync_rwmutex_timedlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rw_lock(m->impl, ns));
}
int shmsync_rwmutex_trylock(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_mutex_trylock(&m->writers);
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_rw_try_drained(m, "rwmutex.trylock");
    if (err != 0)
        shmi_mutex_unlock(&m->writers);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_unlock(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_open(m->impl, "rwmutex.unlock"));
}
int shmsync_rwmutex_rdlock(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_rlock(m->impl, 0));
}
int shmsync_rwmutex_timedrdlock(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rw_rlock(m->impl, ns));
}
int shmsync_rwmutex_tryrdlock(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_use(m->a, "rwmutex.tryrdlock");
    while (err == 0) {
        uint32_t g = shmi_rw_gate(m);
        if (g != 0) {
            err = shmi_rw_trouble(m, "rwmutex.tryrdlock", g);
            if (err == 0 && (!shmi_dead(m->a, shmi_rw_who(g)) || !shmi_rw_mark_owner_dead(m, g)))
                err = EBUSY;
            continue;
        }
        shmi_add64(m->mine, SHMI_READER_ONE);
        SHMSYNC_CRASHPOINT("rwmutex.rlock.tried");
        if (shmi_rw_gate(m) == 0)
            return 0;
        shmi_rw_take_back(m);
    }
    return SHMI_TELL(err);
}
int shmsync_rwmutex_rdunlock(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    uint64_t w;
    int err = shmi_use(m->a, "rwmutex.rdunlock");
    if (SHMI_UNLIKELY(err != 0))
        return SHMI_TELL(err);
    w = shmi_add64(m->mine, 0 - SHMI_READER_ONE) - SHMI_READER_ONE;
    if (SHMI_UNLIKELY(shmi_rw_gate(m) != 0 || shmi_rw_reading(w) == SHMI_READER_MOST))
        return SHMI_TELL(shmi_rw_runlock_slow(m, w));
    return 0;
}
int shmsync_rwmutex_downgrade(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    uint32_t g = shmi_rw_gate(m);
    int err = shmi_use(m->a, "rwmutex.downgrade");
    if (err != 0)
        return SHMI_TELL(err);
    if (g != m->a->self)
        return shmi_fail(shmi_rw_valid(g) ? EPERM : EPROTO, "rwmutex.downgrade", m->called, "gate %#x", g);
    shmi_add64(m->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.downgrade.added");
    err = shmi_rw_open(m, "rwmutex.downgrade");
    if (err != 0)
        shmi_rw_take_back(m);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_lock_upgradable(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_lock_upgradable(m->impl, 0));
}
int shmsync_rwmutex_timed_lock_upgradable(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rw_lock_upgradable(m->impl, ns));
}
int shmsync_rwmutex_try_lock_upgradable(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_mutex_trylock(&m->writers);
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_rw_resolve_gate(m, "rwmutex.try_lock_upgradable");
    if (err == 0)
        shmi_rw_become_upgradable(m);
    else
        shmi_mutex_unlock(&m->writers);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_unlock_upgradable(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_rw_end_upgradable(m->impl, "rwmutex.unlock_upgradable", SHMI_upNot);
    return SHMI_TELL(err != 0 ? err : shmi_mutex_unlock(&m->impl->writers));
}
int shmsync_rwmutex_upgrade(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_upgrade(m->impl, 0));
}
int shmsync_rwmutex_timed_upgrade(shmsync_rwmutex *m, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rw_upgrade(m->impl, ns));
}
int shmsync_rwmutex_try_upgrade(shmsync_rwmutex *lock)
{
    SHMI_OPENED(lock);
    struct shmi_rwmutex *m = lock->impl;
    int err = shmi_rw_end_upgradable(m, "rwmutex.try_upgrade", SHMI_upUpgrading);
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_rw_try_drained(m, "rwmutex.try_upgrade");
    shmi_st32(&m->upgradable, err == 0 ? SHMI_upNot : SHMI_upHeld);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_downgrade_to_upgradable(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_rw_open_gate(m->impl, "rwmutex.downgrade_to_upgradable");
    if (err == 0)
        shmi_rw_become_upgradable(m->impl);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_downgrade_to_read(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    int err = shmi_rw_end_upgradable(m->impl, "rwmutex.downgrade_to_read", SHMI_upNot);
    if (err != 0)
        return SHMI_TELL(err);
    /* The reader is counted first: the next writer, which takes the mutex after that, sees it. */
    shmi_add64(m->impl->mine, SHMI_READER_ONE);
    SHMSYNC_CRASHPOINT("rwmutex.upgradable.reader_added");
    return SHMI_TELL(shmi_mutex_unlock(&m->impl->writers));
}
int shmsync_rwmutex_recover(shmsync_rwmutex *m, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    int err;
    if (repair == NULL)
        return shmi_fail(EINVAL, "rwmutex.recover", m->impl->called, "without a repair");
    err = shmi_enter(m->impl->a, "rwmutex.recover");
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_rw_recover(m->impl, "rwmutex.recover", 0, repair, arg);
    shmi_exit(m->impl->a);
    return SHMI_TELL(err);
}
int shmsync_rwmutex_state(shmsync_rwmutex *m)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_rw_trouble(m->impl, "rwmutex.state", shmi_rw_gate(m->impl)));
}

/* The reaper's side. */
SHMI_FN void shmi_repair_rwmutex(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_rwmutex m;
    uint32_t slot = shmi_id_slot(dead), g;
    if (o->size < shmi_rw_bytes(a->geo.slots))
        return;
    shmi_rw_view(&m, a, o);
    if (slot >= 1 && slot <= m.slots) {
        uint64_t *line = &m.lines[slot - 1].state, r;
        for (r = shmi_ld64(line); shmi_reaps(a, dead, shmi_rw_name(r, slot)) && r != shmi_rw_cleared(r); r = shmi_ld64(line))
            if (shmi_take_from64(a, shmi_rw_name(r, slot), line, r, shmi_rw_cleared(r), 0)) {
                shmi_wake_word_wake_all(a, &m.writer_wake_word);
                break;
            }
    }
    for (g = shmi_rw_gate(&m); shmi_rw_valid(g) && shmi_rw_taken(g) && shmi_reaps(a, dead, shmi_rw_who(g)); g = shmi_rw_gate(&m))
        if (!shmi_rw_mark_owner_dead(&m, g))
            break;
    shmi_mutex_repair_words(a, &m.w->writers, dead, 1, NULL);
}
SHMI_FN void shmi_wake_rwmutex(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_rwmutex m;
    if (o->size < shmi_rw_bytes(a->geo.slots))
        return;
    shmi_rw_view(&m, a, o);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&m.readers_wake_word))
        shmi_rw_wake_readers(&m);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&m.writer_wake_word))
        shmi_wake_word_wake_all(a, &m.writer_wake_word);
    shmi_mutex_wake_words(a, &m.w->writers, owed);
}

/* ---- SpinLock and RWSpinLock: prims/spinlock*.go and prims/rwspinlock*.go in C ---- */

typedef struct shmi_rwspin_slot {
    uint64_t count; /* holds for reading in bits 0..29, name in bits 32..60 */
    uint8_t pad0_[120];
} shmi_rwspin_slot;
SHMI_ASSERT(sizeof(shmi_rwspin_slot) == 128, "shmi_rwspin_slot");

#define SHMI_SPIN_READ 16u /* not in the state word: a reader's wait */
#define SHMI_SPIN_LOST (SHMI_SPIN_NOT_RECOVERABLE << 29)
#define SHMI_SPIN_OWNER_GONE (SHMI_SPIN_OWNER_DEAD << 29) /* see spinOwnerGone in prims/spinlock_word.go */
#define SHMI_RWSPIN_MOST ((UINT64_C(1) << 30) - 1)

struct shmi_spinlock {
    shmsync_arena *a;
    shmi_object o;
    shmi_spin_words *w;
    shmi_rwspin_slot *slots; /* from slot 1; NULL in a SpinLock */
    uint64_t *mine;
    uint32_t n_slots;
    int release;
    int (*repair)(void *);
    void *repair_arg;
    const char *called;
    shmi_wait_list next, gate, drained;
    int64_t looked, looked_drained;
};

SHMI_FN uint64_t shmi_rwspin_bytes(uint32_t slots) { return sizeof(shmi_spin_words) + (uint64_t)slots * sizeof(shmi_rwspin_slot); }
SHMI_FN uint32_t shmi_spin_state(struct shmi_spinlock *l) { return shmi_ld32(&l->w->state); }
SHMI_FN uint32_t shmi_spin_ours(struct shmi_spinlock *l, uint32_t kind) { return shmi_make_owner(kind, l->a->self); }
SHMI_FN int shmi_spin_held(uint32_t o)
{
    uint32_t k = shmi_owner_kind(o);
    return shmi_owner_name(o) != 0 && (k == SHMI_SPIN_HELD || k == SHMI_SPIN_DRAINING || k == SHMI_SPIN_UPGRADE || k == SHMI_SPIN_RECOVERING || k == SHMI_SPIN_UPGRADING);
}
SHMI_FN int shmi_spin_valid(struct shmi_spinlock *l, uint32_t o)
{
    switch (shmi_owner_kind(o)) {
    case SHMI_SPIN_HELD: return 1;
    case SHMI_SPIN_OWNER_DEAD: return l->slots != NULL || shmi_owner_name(o) != 0;
    case SHMI_SPIN_RECOVERING: return shmi_owner_name(o) != 0;
    case SHMI_SPIN_DRAINING:
    case SHMI_SPIN_UPGRADE:
    case SHMI_SPIN_UPGRADING: return l->slots != NULL && shmi_owner_name(o) != 0;
    case SHMI_SPIN_NOT_RECOVERABLE: return o == SHMI_SPIN_LOST;
    }
    return 0;
}

/* Wakes the waiters for the state word, announced or not: all readers, and one or all of the others. */
SHMI_FN void shmi_spin_wake_waiters(struct shmi_spinlock *l, int all)
{
    if (l->slots != NULL)
        shmi_wake_word_wake_all(l->a, &l->gate);
    if (all)
        shmi_wake_word_wake_all(l->a, &l->next);
    else
        shmi_wake_word_wake_one(l->a, &l->next);
}
/* Whether o, which names a dead process, is released when that is gone. */
SHMI_FN int shmi_spin_released(struct shmi_spinlock *l, uint32_t o)
{
    uint32_t k = shmi_owner_kind(o);
    return l->release && shmi_spin_held(o) && k != SHMI_SPIN_DRAINING && k != SHMI_SPIN_RECOVERING;
}
/* Deals with state word o, whose name was found dead; 0: it stays as it is until that is gone. */
SHMI_FN int shmi_spin_mark_owner_dead(struct shmi_spinlock *l, uint32_t o)
{
    uint32_t next = shmi_make_owner(SHMI_SPIN_OWNER_DEAD, shmi_owner_name(o));
    if (!shmi_spin_held(o))
        return 1;
    if (shmi_owner_kind(o) == SHMI_SPIN_DRAINING) {
        next = 0; /* it has written nothing */
    } else if (shmi_spin_released(l, o)) {
        if (!shmi_gone(l->a, shmi_owner_name(o)))
            return 0;
        next = 0;
    }
    if (!shmi_take_from32(l->a, shmi_owner_name(o), &l->w->state, o, next, shmi_spin_released(l, o)))
        return 1;
    SHMSYNC_CRASHPOINT("spinlock.owner_dead.marked");
    if (next != 0)
        shmi_st32(&l->w->died, shmi_owner_name(o));
    shmi_spin_wake_waiters(l, next != 0);
    return 1;
}
SHMI_FN shmi_participant_id shmi_spin_died(struct shmi_spinlock *l) { return shmi_ld32(&l->w->died) & SHMI_NAME_MASK; }
SHMI_FN int shmi_spin_trouble(struct shmi_spinlock *l, const char *op, uint32_t o)
{
    if (!shmi_spin_valid(l, o))
        return shmi_fail(EPROTO, op, l->called, "state word %#x", o);
    if (o == SHMI_SPIN_LOST)
        return shmi_fail_who(l->a, ENOTRECOVERABLE, op, l->called, shmi_spin_died(l));
    if (shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD)
        return shmi_fail_who(l->a, EOWNERDEAD, op, l->called, shmi_owner_name(o) != 0 ? shmi_owner_name(o) : shmi_spin_died(l));
    return 0;
}
SHMI_FN shmi_tuning shmi_spin_tuning(struct shmi_spinlock *l)
{
    shmi_tuning t;
    t.budget = &l->w->spin;
    t.pays = &l->w->pays;
    t.last_cpu = &l->w->lastCPU;
    t.slot = l->a->my_slot;
    return t;
}
SHMI_FN int shmi_spin_waited(struct shmi_spinlock *l) { return shmi_wake_word_announced(&l->next) || (l->slots != NULL && shmi_wake_word_announced(&l->gate)); }
/* Wakes, after a release, all waiting readers and one of the other waiters. */
SHMI_FN void shmi_spin_pass_on(struct shmi_spinlock *l)
{
    shmi_tuning t = shmi_spin_tuning(l);
    SHMSYNC_CRASHPOINT("spinlock.unlock.before_wake");
    shmi_note_cpu(&t);
    if (l->slots != NULL && shmi_wake_word_announced(&l->gate))
        shmi_wake_word_wake_all(l->a, &l->gate);
    shmi_wake_word_release(l->a, &l->next);
}
/* Gives a hold of this process back, or makes another of it. */
SHMI_FN int shmi_spin_release(struct shmi_spinlock *l, const char *op, uint32_t from, uint32_t to)
{
    int err = shmi_use(l->a, op);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("spinlock.unlock.before_release");
    if (!shmi_cas32(&l->w->state, shmi_spin_ours(l, from), to)) {
        uint32_t o = shmi_spin_state(l);
        return shmi_fail(shmi_spin_valid(l, o) ? EPERM : EPROTO, op, l->called, "state word %#x", o);
    }
    if (to == 0 && shmi_spin_waited(l))
        shmi_spin_pass_on(l);
    return 0;
}

/* ---- The holds for reading of each participant ---- */

SHMI_FN shmi_participant_id shmi_count_name(uint64_t c) { return (shmi_participant_id)(c >> 32) & SHMI_NAME_MASK; }
SHMI_FN uint64_t shmi_make_count(shmi_participant_id n, uint64_t holds) { return (uint64_t)n << 32 | holds; }
SHMI_FN int shmi_count_valid(uint64_t c, uint32_t slot)
{
    return c == 0 || (shmi_id_slot(shmi_count_name(c)) == slot && (c & SHMI_RWSPIN_MOST) != 0 && c == shmi_make_count(shmi_count_name(c), c & SHMI_RWSPIN_MOST));
}
SHMI_FN uint32_t shmi_rwspin_up_to(struct shmi_spinlock *l)
{
    uint32_t top = shmi_ld32(&l->w->top);
    return top < l->n_slots ? top : l->n_slots;
}
SHMI_FN int shmi_rwspin_nobody_reads(void *arg)
{
    struct shmi_spinlock *l = (struct shmi_spinlock *)arg;
    uint32_t i, n = shmi_rwspin_up_to(l);
    for (i = 0; i < n; i++)
        if (shmi_ld64(&l->slots[i].count) != 0)
            return 0;
    return 1;
}
/* A participant that holds the lock for reading, or 0; takes back the holds that the dead have left. */
SHMI_FN int shmi_rwspin_reader(struct shmi_spinlock *l, shmi_participant_id *who)
{
    uint32_t i, n = shmi_rwspin_up_to(l);
    *who = 0;
    for (i = 0; i < n; i++)
        for (;;) {
            uint64_t c = shmi_ld64(&l->slots[i].count);
            shmi_participant_id name = shmi_count_name(c);
            if (c == 0)
                break;
            if (!shmi_count_valid(c, i + 1))
                return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "readers of slot %u: %#llx", i + 1, (unsigned long long)c);
            if (!shmi_dead(l->a, name)) {
                if (shmi_current(l->a, name)) {
                    *who = name;
                    return 0;
                }
                break; /* it has left meanwhile */
            }
            shmi_take_from64(l->a, name, &l->slots[i].count, c, 0, 0);
        }
    return 0;
}
/* Counts one more hold of ours. */
SHMI_FN int shmi_rwspin_count(struct shmi_spinlock *l)
{
    shmi_participant_id self = l->a->self;
    for (;;) {
        uint64_t c = shmi_ld64(l->mine), to = shmi_make_count(self, 1);
        uint32_t top = shmi_ld32(&l->w->top);
        if (top < l->a->my_slot) { /* before we are counted there */
            shmi_cas32(&l->w->top, top, l->a->my_slot);
            continue;
        }
        if (c != 0 && shmi_count_name(c) == self)
            to = c + 1;
        if (!shmi_count_valid(c, l->a->my_slot) || (c & SHMI_RWSPIN_MOST) == SHMI_RWSPIN_MOST || (c != 0 && to != c + 1 && !shmi_covers(self, shmi_count_name(c))))
            return shmi_fail((c & SHMI_RWSPIN_MOST) == SHMI_RWSPIN_MOST ? EINVAL : EPROTO, "rwspinlock.rdlock", l->called, "holds: %#llx", (unsigned long long)c);
        if (shmi_cas64(l->mine, c, to))
            return 0;
    }
}
/* Takes one hold of ours back, and tells the waiter for the last one; 0 when there is none. */
SHMI_FN int shmi_rwspin_exit(struct shmi_spinlock *l)
{
    for (;;) {
        uint64_t c = shmi_ld64(l->mine), to;
        if (c == 0 || shmi_count_name(c) != l->a->self || !shmi_count_valid(c, l->a->my_slot))
            return 0;
        to = (c & SHMI_RWSPIN_MOST) == 1 ? 0 : c - 1;
        if (!shmi_cas64(l->mine, c, to))
            continue;
        if (to == 0 && shmi_wake_word_announced(&l->drained)) {
            SHMSYNC_CRASHPOINT("rwspinlock.runlock.before_wake");
            shmi_wake_word_wake_all(l->a, &l->drained);
        }
        return 1;
    }
}
/* Counts one more hold for reading, provided that nobody has the lock to itself. */
SHMI_FN int shmi_rwspin_enter(struct shmi_spinlock *l, int *in)
{
    int err = shmi_rwspin_count(l);
    *in = 0;
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("rwspinlock.rlock.counted");
    if (shmi_spin_state(l) == 0)
        *in = 1;
    else
        shmi_rwspin_exit(l);
    return 0;
}

/* Moves on from state word o if that takes no waiting. *changed says that o is no longer the word. */
SHMI_FN int shmi_spin_step(struct shmi_spinlock *l, uint32_t o, uint32_t as, int *took, int *changed)
{
    int err;
    *took = *changed = 0;
    if (o == 0) {
        *changed = 1;
        if (as == SHMI_SPIN_READ)
            return shmi_rwspin_enter(l, took);
        *took = shmi_cas32(&l->w->state, 0, shmi_spin_ours(l, as));
        return 0;
    }
    err = shmi_spin_trouble(l, "spinlock.lock", o);
    if (err == 0 && shmi_dead(l->a, shmi_owner_name(o)))
        *changed = shmi_spin_mark_owner_dead(l, o);
    return err;
}
/* Takes the lock as kind if that is possible without waiting: 0, EBUSY, or why not. */
SHMI_FN int shmi_spin_try(struct shmi_spinlock *l, uint32_t as)
{
    int took, changed, err;
    do {
        err = shmi_spin_step(l, shmi_spin_state(l), as, &took, &changed);
        if (took)
            return 0;
    } while (err == 0 && changed);
    return err != 0 ? err : EBUSY;
}

SHMI_FN int shmi_spin_not_held(void *arg) { return !shmi_spin_held(shmi_spin_state((struct shmi_spinlock *)arg)); }
/* Spins while done is 0, and gives the CPU away some times after that. */
SHMI_FN int shmi_spin_while(struct shmi_spinlock *l, int (*done)(void *))
{
    shmi_tuning t = shmi_spin_tuning(l);
    int i;
    if (shmi_spin(&t, done, l))
        return 1;
    for (i = 0; i < 4 && shmi_ld32(&l->w->spin) != 1; i++) {
        int64_t took;
        if (shmi_now() < __atomic_load_n(&shmi_no_yield_until, __ATOMIC_RELAXED))
            return 0;
        took = shmi_yield();
        if (done(l))
            return 1;
        if (took > SHMI_yieldMost) {
            __atomic_store_n(&shmi_no_yield_until, shmi_now() + SHMI_yieldPause * took, __ATOMIC_RELAXED);
            return 0;
        }
    }
    return 0;
}
/* Whether o is a word that a waiter may sleep on: one whose next change wakes it, or one
 * that a dead process keeps until it is gone. */
SHMI_FN int shmi_spin_blocks(struct shmi_spinlock *l, uint32_t o)
{
    return shmi_spin_valid(l, o) && shmi_spin_held(o) &&
           (shmi_current(l->a, shmi_owner_name(o)) || (shmi_spin_released(l, o) && !shmi_gone(l->a, shmi_owner_name(o))));
}

/* Finds what a stopped or dead process kept from the waiters. */
SHMI_FN void shmi_spin_check(struct shmi_spinlock *l)
{
    uint32_t o = shmi_spin_state(l);
    if (o == 0)
        shmi_spin_wake_waiters(l, 0);
    else if (!shmi_spin_valid(l, o) || shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD || o == SHMI_SPIN_LOST)
        shmi_spin_wake_waiters(l, 1);
    else if (shmi_dead(l->a, shmi_owner_name(o)))
        shmi_spin_mark_owner_dead(l, o);
    else
        shmi_wake_word_announce(&l->next); /* the waiter that was woken last may be stopped before it could announce the others again */
}

SHMI_FN int shmi_spin_recover(struct shmi_spinlock *l, int64_t abs, int (*repair)(void *), void *arg);

/* Ends a wait that did not get the lock. A wake may have been meant for it. */
SHMI_FN void shmi_spin_leave(struct shmi_spinlock *l, uint32_t as, int slept)
{
    SHMSYNC_CRASHPOINT("spinlock.lock.leaving");
    if (!slept || as == SHMI_SPIN_READ)
        return;
    shmi_wake_word_announce(&l->next);
    if (!shmi_spin_blocks(l, shmi_spin_state(l)))
        shmi_wake_word_release(l->a, &l->next);
}

/* Takes the lock as kind says, and waits until it can. */
SHMI_COLD int shmi_spin_wait(struct shmi_spinlock *l, uint32_t as, int64_t abs, int may_repair)
{
    shmi_wait_list *wake_word = as == SHMI_SPIN_READ ? &l->gate : &l->next;
    int took, changed, slept = 0, spun = 0, err = shmi_enter(l->a, "spinlock.lock");
    int64_t ask = 0, since = 0;
    if (err != 0)
        return err;
    for (;;) {
        uint32_t o = shmi_spin_state(l), v;
        shmi_sleep_spec sleep_spec;
        int r;
        err = shmi_spin_step(l, o, as, &took, &changed);
        if (took)
            break;
        if (err == EOWNERDEAD && may_repair && l->repair != NULL) {
            err = shmi_spin_recover(l, abs, l->repair, l->repair_arg);
            if (err == 0)
                continue;
        }
        if (err != 0) {
            shmi_spin_leave(l, as, slept);
            break;
        }
        if (changed)
            continue;
        if (!spun) {
            spun = 1;
            if (shmi_current(l->a, shmi_owner_name(o)) && shmi_spin_while(l, shmi_spin_not_held))
                continue;
        }
        v = shmi_wake_word_announce(wake_word);
        SHMSYNC_CRASHPOINT("spinlock.lock.announced");
        o = shmi_spin_state(l);
        if (!shmi_spin_blocks(l, o))
            continue;
        slept = 1;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &l->looked;
        sleep_spec.word = wake_word->word;
        sleep_spec.val = v;
        sleep_spec.object = l->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = shmi_owner_name(o) != l->a->self ? shmi_owner_name(o) : 0;
        if (!shmi_current(l->a, shmi_owner_name(o))) { /* nobody tells when it is gone */
            shmi_follow(l->a);
            sleep_spec.bounded = shmi_next_ask(&ask);
            sleep_spec.owner = 0;
        }
        r = shmi_sleep(l->a, &sleep_spec);
        SHMSYNC_CRASHPOINT("spinlock.lock.woken");
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            if (shmi_check_due(&l->looked))
                shmi_spin_check(l);
        } else if (r == SHMI_LATE && shmi_spin_try(l, as) == 0) {
            err = 0; /* what is there beats the time */
            break;
        } else {
            shmi_spin_leave(l, as, slept);
            err = r == SHMI_LATE ? ETIMEDOUT : shmi_fail(EBADF, "spinlock.lock", l->called, "this process closed the arena");
            break;
        }
    }
    /* Others may be asleep, and the wake that got us here took their announcement down. */
    if (err == 0 && slept && as != SHMI_SPIN_READ)
        shmi_wake_word_announce(wake_word);
    shmi_exit(l->a);
    return err;
}

/* ---- Waiting for readers to leave ---- */

/* What the state word is before, while it lasts, after, and when it failed. */
typedef struct shmi_rwspin_drain {
    uint32_t from, pending, to, back;
} shmi_rwspin_drain;

SHMI_FN shmi_rwspin_drain shmi_drain_of(struct shmi_spinlock *l, uint32_t kind, uint32_t pending, uint32_t to, uint32_t back)
{
    shmi_rwspin_drain d;
    d.from = shmi_spin_ours(l, kind);
    d.pending = shmi_spin_ours(l, pending);
    d.to = shmi_spin_ours(l, to);
    d.back = back;
    return d;
}
SHMI_FN shmi_rwspin_drain shmi_drain_lock(struct shmi_spinlock *l) { return shmi_drain_of(l, SHMI_SPIN_DRAINING, SHMI_SPIN_DRAINING, SHMI_SPIN_HELD, 0); }
SHMI_FN shmi_rwspin_drain shmi_drain_upgrade(struct shmi_spinlock *l)
{
    return shmi_drain_of(l, SHMI_SPIN_UPGRADE, SHMI_SPIN_UPGRADING, SHMI_SPIN_HELD, shmi_spin_ours(l, SHMI_SPIN_UPGRADE));
}
SHMI_FN int shmi_rwspin_turn(struct shmi_spinlock *l, uint32_t from, uint32_t to)
{
    if (from == to || shmi_cas32(&l->w->state, from, to))
        return 0;
    return shmi_fail(EPROTO, "rwspinlock.lock", l->called, "it was %#x and became %#x under its owner", from, shmi_spin_state(l));
}
/* Ends a drain that has failed. */
SHMI_FN void shmi_rwspin_give_up(struct shmi_spinlock *l, const shmi_rwspin_drain *d)
{
    if (!shmi_cas32(&l->w->state, d->pending, d->back))
        return;
    SHMSYNC_CRASHPOINT("rwspinlock.drain.given_up");
    if (d->back == 0) {
        if (shmi_spin_waited(l))
            shmi_spin_pass_on(l);
    } else if (!shmi_spin_held(d->back)) {
        shmi_spin_wake_waiters(l, 1);
    }
}
SHMI_FN int shmi_rwspin_await_readers(struct shmi_spinlock *l, int64_t abs)
{
    int spun = 0, err = shmi_enter(l->a, "rwspinlock.lock");
    int64_t since = 0;
    if (err != 0)
        return err;
    for (;;) {
        shmi_participant_id who = 0;
        shmi_sleep_spec sleep_spec;
        uint32_t v;
        int r;
        if (!spun) {
            spun = 1;
            shmi_spin_while(l, shmi_rwspin_nobody_reads);
        }
        v = shmi_wake_word_announce(&l->drained);
        SHMSYNC_CRASHPOINT("rwspinlock.drain.announced");
        err = shmi_rwspin_reader(l, &who);
        if (who == 0 || err != 0)
            break;
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &l->looked_drained;
        sleep_spec.word = l->drained.word;
        sleep_spec.val = v;
        sleep_spec.object = l->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        sleep_spec.owner = who != l->a->self ? who : 0;
        r = shmi_sleep(l->a, &sleep_spec);
        if (r == SHMI_AGAIN) {
            spun = 0;
        } else if (r == SHMI_LOOK) {
            err = shmi_check_due(&l->looked_drained) ? shmi_rwspin_reader(l, &who) : 0;
            if (err != 0 || who == 0)
                shmi_wake_word_wake_all(l->a, &l->drained);
        } else {
            err = shmi_rwspin_reader(l, &who);
            if (err == 0 && who != 0)
                err = r == SHMI_LATE ? ETIMEDOUT : shmi_fail(EBADF, "rwspinlock.lock", l->called, "this process closed the arena");
            break;
        }
    }
    shmi_exit(l->a);
    return err;
}
/* Waits until no reader is left. When it fails the state word is d->back. */
SHMI_FN int shmi_rwspin_drained(struct shmi_spinlock *l, shmi_rwspin_drain d, int64_t abs)
{
    shmi_participant_id who = 0;
    int err, e;
    SHMSYNC_CRASHPOINT("rwspinlock.drain.claimed");
    err = shmi_rwspin_reader(l, &who);
    if (who == 0 && err == 0)
        return shmi_rwspin_turn(l, d.from, d.to);
    e = shmi_rwspin_turn(l, d.from, d.pending);
    if (e != 0)
        return e;
    if (err == 0)
        err = shmi_rwspin_await_readers(l, abs);
    if (err == 0)
        return shmi_rwspin_turn(l, d.pending, d.to);
    shmi_rwspin_give_up(l, &d);
    return err;
}

/* Has the lock to itself. */
SHMI_FN int shmi_spin_own(struct shmi_spinlock *l, int64_t abs, int may_repair)
{
    int err;
    if (l->slots == NULL)
        return shmi_spin_wait(l, SHMI_SPIN_HELD, abs, may_repair);
    err = shmi_spin_wait(l, SHMI_SPIN_DRAINING, abs, may_repair);
    return err != 0 ? err : shmi_rwspin_drained(l, shmi_drain_lock(l), abs);
}
SHMI_FN int shmi_spin_lock(struct shmi_spinlock *l, int64_t abs)
{
    int err = shmi_use(l->a, "spinlock.lock");
    if (SHMI_UNLIKELY(err != 0))
        return err;
    if (l->slots != NULL || SHMI_UNLIKELY(!shmi_cas32(&l->w->state, 0, l->a->self)))
        err = shmi_spin_own(l, abs, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("spinlock.lock.acquired");
    return err;
}

SHMI_FN int shmi_spin_recover(struct shmi_spinlock *l, int64_t abs, int (*repair)(void *), void *arg)
{
    uint32_t mine = shmi_spin_ours(l, SHMI_SPIN_RECOVERING);
    if (repair == NULL)
        return shmi_fail(EINVAL, "spinlock.recover", l->called, "without a repair");
    for (;;) {
        uint32_t o = shmi_spin_state(l);
        int err = shmi_use(l->a, "spinlock.recover");
        if (err != 0)
            return err;
        if (o != SHMI_SPIN_LOST && shmi_owner_kind(o) != SHMI_SPIN_OWNER_DEAD) {
            err = shmi_spin_own(l, abs, 0);
            if (err == 0)
                return shmi_spin_release(l, "spinlock.recover", SHMI_SPIN_HELD, 0);
            if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
                continue;
            return err;
        }
        if (shmi_owner_kind(o) == SHMI_SPIN_OWNER_DEAD && shmi_owner_name(o) != 0) {
            err = shmi_await_gone(l->a, shmi_owner_name(o), "spinlock.recover", l->called, abs);
            if (err != 0)
                return err;
        }
        if (!shmi_take_from32(l->a, shmi_owner_name(o), &l->w->state, o, mine, 1))
            continue;
        SHMSYNC_CRASHPOINT("spinlock.recover.taken");
        if (l->slots != NULL) {
            if (shmi_owner_name(o) != 0)
                shmi_st32(&l->w->died, shmi_owner_name(o)); /* a report: the process that marked it may have died before it did this */
            /* While this one waits for readers, no word has the ID of the dead participant. */
            err = shmi_rwspin_drained(l, shmi_drain_of(l, SHMI_SPIN_RECOVERING, SHMI_SPIN_RECOVERING, SHMI_SPIN_RECOVERING, o == SHMI_SPIN_LOST ? SHMI_SPIN_LOST : SHMI_SPIN_OWNER_GONE), abs);
            if (err != 0)
                return err;
        }
        if (shmi_call_repair(repair, arg) != 0) {
            shmi_cas32(&l->w->state, mine, SHMI_SPIN_LOST);
            shmi_spin_wake_waiters(l, 1);
            return shmi_fail_who(l->a, ENOTRECOVERABLE, "spinlock.recover", l->called, shmi_spin_died(l));
        }
        SHMSYNC_CRASHPOINT("spinlock.recover.repaired");
        shmi_st32(&l->w->died, 0);
        shmi_cas32(&l->w->state, mine, 0);
        SHMSYNC_CRASHPOINT("spinlock.recover.before_wake");
        if (shmi_spin_waited(l))
            shmi_spin_pass_on(l);
        return 0;
    }
}

/* ---- Handles ---- */

SHMI_FN void shmi_spin_view(struct shmi_spinlock *l, shmsync_arena *a, const shmi_object *o)
{
    int readers = o->kind == SHMI_KIND_RWSPIN_LOCK;
    memset(l, 0, sizeof *l);
    l->a = a;
    l->o = *o;
    l->called = o->name_len != 0 ? l->o.name : NULL;
    l->w = (shmi_spin_words *)shmi_ptr(a, o->body, readers ? shmi_rwspin_bytes(a->geo.slots) : sizeof(shmi_spin_words), 8);
    l->release = (shmi_ld32(&l->w->policy) & 0xff) == 1;
    l->next.word = &l->w->wake;
    l->next.poller = &l->w->poller;
    if (readers) {
        l->slots = (shmi_rwspin_slot *)(void *)(l->w + 1);
        l->n_slots = a->geo.slots;
        l->mine = &l->slots[a->my_slot - 1].count;
        l->gate.word = &l->w->gate;
        l->gate.poller = &l->w->gatePoller;
        l->drained.word = &l->w->drain;
        l->drained.poller = &l->w->drainPoller;
    }
}
SHMI_FN void *shmi_spin_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    const shmsync_spinlock_options *opts = (const shmsync_spinlock_options *)arg;
    struct shmi_spinlock *l = (struct shmi_spinlock *)shmi_new_thing(sizeof *l);
    if (l == NULL)
        return NULL;
    shmi_spin_view(l, a, o);
    if (opts != NULL) {
        l->repair = opts->repair;
        l->repair_arg = opts->repair_arg;
    }
    return l;
}
SHMI_FN void shmi_spin_fill(unsigned char *body, const void *arg)
{
    shmi_spin_words *w = (shmi_spin_words *)(void *)body;
    const shmi_fair_spec *s = (const shmi_fair_spec *)arg;
    w->policy = s->policy;
    w->spin = s->spin;
}
SHMI_FN int shmi_spin_open(int existing, shmsync_arena *a, const char *op, uint32_t kind, uint16_t version, uint64_t size, const char *name, const shmsync_spinlock_options *opts, struct shmi_spinlock **out, uint64_t *serial)
{
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT;
    shmi_fair_spec init;
    shmi_spec spec;
    void *impl;
    int created, err;
    *out = NULL;
    err = shmi_no_rollback(op, name, policy, "a spin lock");
    if (err != 0)
        return err;
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, kind, version, name, size);
    spec.init = shmi_spin_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_mon_open(a, &spec, shmi_spin_build, opts, &created, &impl);
    *out = (struct shmi_spinlock *)impl;
    *serial = shmi_serial_of(impl);
    if (err == 0 && !created && policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != (*out)->release) {
        shmi_unshare(a, (*out)->o.off, shmi_mon_free);
        *out = NULL;
        err = shmi_fail(EINVAL, op, name, "it has another policy");
    }
    return err;
}
int shmsync_spinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(0, a, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_spinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_spinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(1, a, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), name, opts, &out->impl, &out->serial));
}
int shmsync_rwspinlock_open(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(0, a, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, shmi_rwspin_bytes(a->geo.slots), name, opts, &out->impl, &out->serial));
}
int shmsync_rwspinlock_attach(shmsync_arena *a, const char *name, const shmsync_spinlock_options *opts, shmsync_rwspinlock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_spin_open(1, a, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, shmi_rwspin_bytes(a->geo.slots), name, opts, &out->impl, &out->serial));
}
int shmsync_spinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_spinlock *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "spinlock.open", SHMI_KIND_SPIN_LOCK, SHMI_VERSION_SPIN_LOCK, sizeof(shmi_spin_words), shmi_spin_build, NULL, &impl);
    out->impl = (struct shmi_spinlock *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
int shmsync_rwspinlock_at(shmsync_arena *a, shmsync_offset off, shmsync_rwspinlock *out)
{
    SHMI_BEGIN();
    void *impl;
    int err = shmi_mon_at(a, off, "rwspinlock.open", SHMI_KIND_RWSPIN_LOCK, SHMI_VERSION_RWSPIN_LOCK, shmi_rwspin_bytes(a->geo.slots), shmi_spin_build, NULL, &impl);
    out->impl = (struct shmi_spinlock *)impl;
    out->serial = shmi_serial_of(impl);
    return SHMI_TELL(err);
}
shmsync_offset shmsync_spinlock_offset(const shmsync_spinlock *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
shmsync_offset shmsync_rwspinlock_offset(const shmsync_rwspinlock *l)
{
    SHMI_OPENED_OR(l, 0);
    return l->impl->o.off;
}
int shmsync_spinlock_close(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(l->impl->a, l->impl->o.off, shmi_mon_free);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_rwspinlock_close(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err;
    if (l->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(l->impl->a, l->impl->o.off, shmi_mon_free);
    if (err == 0)
        l->impl = NULL;
    return SHMI_TELL(err);
}

int shmsync_spinlock_lock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_lock(l->impl, 0));
}
int shmsync_spinlock_timedlock(shmsync_spinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_spin_lock(l->impl, ns));
}
int shmsync_spinlock_trylock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "spinlock.trylock");
    return SHMI_TELL(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_HELD));
}
int shmsync_spinlock_unlock(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_release(l->impl, "spinlock.unlock", SHMI_SPIN_HELD, 0));
}
int shmsync_spinlock_recover(shmsync_spinlock *l, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_recover(l->impl, 0, repair, arg));
}
int shmsync_spinlock_state(shmsync_spinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_trouble(l->impl, "spinlock.state", shmi_spin_state(l->impl)));
}

int shmsync_rwspinlock_lock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_lock(l->impl, 0));
}
int shmsync_rwspinlock_timedlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_spin_lock(l->impl, ns));
}
int shmsync_rwspinlock_trylock(shmsync_rwspinlock *lock)
{
    SHMI_OPENED(lock);
    struct shmi_spinlock *l = lock->impl;
    shmi_rwspin_drain d = shmi_drain_lock(l);
    shmi_participant_id who = 0;
    int err = shmi_use(l->a, "rwspinlock.trylock");
    if (err == 0)
        err = shmi_rwspin_reader(l, &who);
    if (err == 0 && who != 0)
        err = EBUSY;
    if (err == 0)
        err = shmi_spin_try(l, SHMI_SPIN_DRAINING);
    if (err != 0)
        return SHMI_TELL(err);
    err = shmi_rwspin_reader(l, &who);
    if (err == 0 && who == 0)
        return SHMI_TELL(shmi_rwspin_turn(l, d.from, d.to));
    shmi_rwspin_give_up(l, &d);
    return SHMI_TELL(err != 0 ? err : EBUSY);
}
int shmsync_rwspinlock_unlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_release(l->impl, "rwspinlock.unlock", SHMI_SPIN_HELD, 0));
}
SHMI_FN int shmi_rwspin_rdlock(struct shmi_spinlock *l, int64_t abs)
{
    int in = 0, err = shmi_use(l->a, "rwspinlock.rdlock");
    if (err == 0 && shmi_spin_state(l) == 0)
        err = shmi_rwspin_enter(l, &in);
    if (err == 0 && !in)
        err = shmi_spin_wait(l, SHMI_SPIN_READ, abs, 1);
    if (err == 0)
        SHMSYNC_CRASHPOINT("rwspinlock.rlock.acquired");
    return err;
}
int shmsync_rwspinlock_rdlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_rwspin_rdlock(l->impl, 0));
}
int shmsync_rwspinlock_timedrdlock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rwspin_rdlock(l->impl, ns));
}
int shmsync_rwspinlock_tryrdlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.tryrdlock");
    return SHMI_TELL(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_READ));
}
int shmsync_rwspinlock_rdunlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.rdunlock");
    if (err != 0)
        return SHMI_TELL(err);
    SHMSYNC_CRASHPOINT("rwspinlock.runlock.before_release");
    return SHMI_TELL(shmi_rwspin_exit(l->impl) ? 0 : shmi_fail(EPERM, "rwspinlock.rdunlock", l->impl->called, "%s", ""));
}
SHMI_FN int shmi_rwspin_uplock(struct shmi_spinlock *l, int64_t abs)
{
    int err = shmi_use(l->a, "rwspinlock.uplock");
    if (err != 0 || shmi_spin_try(l, SHMI_SPIN_UPGRADE) == 0)
        return err;
    return shmi_spin_wait(l, SHMI_SPIN_UPGRADE, abs, 1);
}
int shmsync_rwspinlock_uplock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_rwspin_uplock(l->impl, 0));
}
int shmsync_rwspinlock_timeduplock(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rwspin_uplock(l->impl, ns));
}
int shmsync_rwspinlock_tryuplock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    int err = shmi_use(l->impl->a, "rwspinlock.tryuplock");
    return SHMI_TELL(err != 0 ? err : shmi_spin_try(l->impl, SHMI_SPIN_UPGRADE));
}
int shmsync_rwspinlock_upunlock(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_release(l->impl, "rwspinlock.upunlock", SHMI_SPIN_UPGRADE, 0));
}
/* EPERM unless this process holds l as kind says. */
SHMI_FN int shmi_rwspin_has(struct shmi_spinlock *l, const char *op, uint32_t kind)
{
    uint32_t o = shmi_spin_state(l);
    int err = shmi_use(l->a, op);
    if (err == 0 && o != shmi_spin_ours(l, kind))
        err = shmi_fail(shmi_spin_valid(l, o) ? EPERM : EPROTO, op, l->called, "state word %#x", o);
    return err;
}
SHMI_FN int shmi_rwspin_upgrade(struct shmi_spinlock *l, int64_t abs)
{
    int err = shmi_rwspin_has(l, "rwspinlock.upgrade", SHMI_SPIN_UPGRADE);
    return err != 0 ? err : shmi_rwspin_drained(l, shmi_drain_upgrade(l), abs);
}
int shmsync_rwspinlock_upgrade(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_rwspin_upgrade(l->impl, 0));
}
int shmsync_rwspinlock_timedupgrade(shmsync_rwspinlock *l, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(l);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_rwspin_upgrade(l->impl, ns));
}
int shmsync_rwspinlock_tryupgrade(shmsync_rwspinlock *lock)
{
    SHMI_OPENED(lock);
    struct shmi_spinlock *l = lock->impl;
    shmi_rwspin_drain d = shmi_drain_upgrade(l);
    shmi_participant_id who = 0;
    int err = shmi_rwspin_has(l, "rwspinlock.tryupgrade", SHMI_SPIN_UPGRADE);
    if (err == 0)
        err = shmi_rwspin_reader(l, &who);
    if (err == 0)
        err = who != 0 ? EBUSY : shmi_rwspin_turn(l, d.from, d.to);
    return SHMI_TELL(err);
}
/* Counts a hold for reading before the other one is given back, so that no writer comes in between. */
SHMI_FN int shmi_rwspin_become_reader(struct shmi_spinlock *l, const char *op, uint32_t from)
{
    int err = shmi_rwspin_has(l, op, from);
    if (err == 0)
        err = shmi_rwspin_count(l);
    if (err != 0)
        return err;
    SHMSYNC_CRASHPOINT("rwspinlock.downgrade.counted");
    return shmi_spin_release(l, op, from, 0);
}
int shmsync_rwspinlock_downgrade(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_rwspin_become_reader(l->impl, "rwspinlock.downgrade", SHMI_SPIN_HELD));
}
int shmsync_rwspinlock_downgrade_to_read(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_rwspin_become_reader(l->impl, "rwspinlock.downgrade_to_read", SHMI_SPIN_UPGRADE));
}
int shmsync_rwspinlock_downgrade_to_upgradable(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_release(l->impl, "rwspinlock.downgrade_to_upgradable", SHMI_SPIN_HELD, shmi_spin_ours(l->impl, SHMI_SPIN_UPGRADE)));
}
int shmsync_rwspinlock_recover(shmsync_rwspinlock *l, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_recover(l->impl, 0, repair, arg));
}
int shmsync_rwspinlock_state(shmsync_rwspinlock *l)
{
    SHMI_OPENED(l);
    return SHMI_TELL(shmi_spin_trouble(l->impl, "rwspinlock.state", shmi_spin_state(l->impl)));
}

/* The reaper's side. */
SHMI_FN int shmi_spin_whole(shmsync_arena *a, const shmi_object *o)
{
    return o->size >= (o->kind == SHMI_KIND_RWSPIN_LOCK ? shmi_rwspin_bytes(a->geo.slots) : sizeof(shmi_spin_words));
}
SHMI_FN void shmi_repair_spin(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_spinlock l;
    uint32_t slot = shmi_id_slot(dead), s;
    if (!shmi_spin_whole(a, o))
        return;
    shmi_spin_view(&l, a, o);
    if (l.slots != NULL && slot >= 1 && slot <= l.n_slots) {
        uint64_t *count = &l.slots[slot - 1].count, c;
        for (c = shmi_ld64(count); c != 0 && shmi_reaps(a, dead, shmi_count_name(c)); c = shmi_ld64(count))
            if (shmi_take_from64(a, shmi_count_name(c), count, c, 0, 0)) {
                shmi_wake_word_wake_all(a, &l.drained);
                break;
            }
    }
    for (s = shmi_spin_state(&l); shmi_spin_held(s) && shmi_reaps(a, dead, shmi_owner_name(s)); s = shmi_spin_state(&l))
        if (!shmi_spin_mark_owner_dead(&l, s))
            break;
}
SHMI_FN void shmi_wake_spin(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_spinlock l;
    if (!shmi_spin_whole(a, o))
        return;
    shmi_spin_view(&l, a, o);
    if (owed == SHMI_OWED_ALL)
        shmi_wake_word_wake_all(a, &l.next);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&l.next))
        shmi_wake_word_wake_one(a, &l.next);
    if (l.slots == NULL)
        return;
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&l.gate))
        shmi_wake_word_wake_all(a, &l.gate);
    if (owed != SHMI_OWED_ANNOUNCED || shmi_wake_word_announced(&l.drained))
        shmi_wake_word_wake_all(a, &l.drained);
}

/* ---- WaitAny and WaitAll: prims/await*.go in C. The nodes of all waits are slept on at once. ---- */

typedef struct shmi_awaited {
    struct shmi_monitor *m;
    struct shmi_event *token; /* an event with automatic reset */
    shmi_wait_node *wait_node;
} shmi_awaited;

/* Whether it has come, without waiting, and how; an event's token is taken. */
SHMI_FN int shmi_await_reached(const shmsync_awaitable *x, int *err)
{
    *err = 0;
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return shmi_seq_reached(x->sequencer->impl, x->token);
    if (x->kind == SHMSYNC_AWAIT_EVENT) {
        struct shmi_event *e = x->event->impl;
        return e->mode & SHMI_eventAuto ? shmi_event_claim(e) : (int)(shmi_event_load(e) & 1);
    }
    if (x->kind == SHMSYNC_AWAIT_EVENT_RESET) {
        return (shmi_event_load(x->event->impl) & 1) == 0;
    } else {
        struct shmi_future *f = x->future->impl;
        uint64_t s = shmi_future_load(f);
        if ((s & SHMI_FUTURE_SET_MASK) == 0 && shmi_future_over(s))
            *err = shmi_fail_who(f->m.a, EOWNERDEAD, "future.wait", f->m.queueLock.called, shmi_future_producer(s));
        return shmi_future_over(s);
    }
}
/* Begins its wait. No wait node: it has come, or *err says how it has ended; not 0 is an error of the waiting itself. */
SHMI_FN int shmi_await_begin(const shmsync_awaitable *x, int64_t abs, shmi_awaited *w, int *err)
{
    int e;
    *err = 0;
    w->token = NULL;
    w->wait_node = NULL;
    if (x->kind == SHMSYNC_AWAIT_SEQUENCER) {
        w->m = &x->sequencer->impl->m;
        e = shmi_seq_register(x->sequencer->impl, x->token, abs, &w->wait_node);
        if (e == ECANCELED) {
            *err = e;
            e = 0;
        }
        return e;
    }
    if (x->kind != SHMSYNC_AWAIT_FUTURE) {
        struct shmi_event *ev = x->event->impl;
        uint64_t v = shmi_event_load(ev);
        w->m = &ev->q.m;
        if (x->kind == SHMSYNC_AWAIT_EVENT && (ev->mode & SHMI_eventAuto) != 0) {
            w->token = ev;
            return shmi_event_register(ev, 0, abs, &w->wait_node);
        }
        return (v & 1) == (x->kind == SHMSYNC_AWAIT_EVENT) ? 0 : shmi_seq_register(&ev->q, v + 1, abs, &w->wait_node);
    } else {
        struct shmi_future *f = x->future->impl;
        uint64_t outcome = 0;
        w->m = &f->m;
        e = shmi_mon_enter(w->m, abs);
        if (e == 0)
            e = shmi_mon_enqueue(w->m, abs, 0, shmi_future_is_over, &outcome, &w->wait_node);
        if (e == 0 && w->wait_node == NULL && shmi_outcome_result(outcome) == SHMI_futureIsAbandoned)
            *err = shmi_fail_who(f->m.a, EOWNERDEAD, "future.wait", f->m.queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
        return e;
    }
}
/* How a wait ended that was resolved and is chosen. */
SHMI_FN int shmi_await_judge(const shmsync_awaitable *x, shmi_awaited *w)
{
    uint64_t outcome = shmi_mon_collect(w->m, w->wait_node);
    w->wait_node = NULL;
    if (w->token != NULL)
        shmi_event_ack(w->token);
    else if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
        return shmi_outcome_result(outcome) == SHMI_REACHED ? 0 : ECANCELED;
    else if (x->kind == SHMSYNC_AWAIT_FUTURE && shmi_outcome_result(outcome) == SHMI_futureIsAbandoned)
        return shmi_fail_who(w->m->a, EOWNERDEAD, "future.wait", w->m->queueLock.called, shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    return 0;
}
/* Ends a wait that is not chosen. */
SHMI_FN void shmi_await_leave(shmi_awaited *w)
{
    if (w->wait_node == NULL || shmi_mon_give_up(w->m, w->wait_node))
        return;
    shmi_mon_collect(w->m, w->wait_node);
    if (w->token != NULL)
        shmi_event_pass(w->token);
}

/* Sleeps until one of the waits is over, or until then, 100 ms at most. The call has lasted since that time. */
SHMI_FN void shmi_await_sleep(shmsync_arena *a, shmi_awaited *at, size_t n, int64_t since, int64_t until)
{
    shmi_waitv v[SHMSYNC_AWAIT_MOST];
    size_t i;
    int record = shmi_announce_sleep(a, at[0].m->o.off, at[0].wait_node->off, 0, since);
    for (i = 0; i < n; i++) {
        shmi_node *node = at[i].wait_node->node;
        uint32_t w = shmi_node_load(node);
        if (shmi_node_state(w) == SHMI_NodeQueued && shmi_node_swap(node, w, shmi_node_with(w, SHMI_NodeAsleep)))
            w = shmi_node_with(w, SHMI_NodeAsleep);
        if (shmi_node_state(w) != SHMI_NodeAsleep) {
            shmi_retract_sleep(a, record);
            return;
        }
        v[i] = shmi_waitv_of(&node->word, w);
    }
    if (!__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST)) {
        if ((a->caps & SHMI_capWaitV) != 0) {
            shmi_futex_sleepv(v, (unsigned)n, until);
        } else { /* one word at a time: the others are looked at more often */
            int64_t soon = shmi_now() + 2000000;
            shmi_futex_sleep(&at[0].wait_node->node->word, (uint32_t)v[0].val, soon < until ? soon : until);
        }
    }
    shmi_retract_sleep(a, record);
}

/* 0 if the list can be waited for, with *a the arena. */
SHMI_FN int shmi_await_check(const char *op, const shmsync_awaitable *list, size_t n, shmsync_arena **a)
{
    size_t i;
    if (n > SHMSYNC_AWAIT_MOST)
        return shmi_fail(EINVAL, op, NULL, "%zu to wait for", n);
    for (i = 0; i < n; i++) {
        const shmsync_awaitable *x = &list[i];
        int err;
        if (x->kind < SHMSYNC_AWAIT_SEQUENCER || x->kind > SHMSYNC_AWAIT_EVENT_RESET)
            return shmi_fail(EINVAL, op, NULL, "kind %d", x->kind);
        if (x->kind == SHMSYNC_AWAIT_SEQUENCER)
            SHMI_OPENED(x->sequencer);
        else if (x->kind == SHMSYNC_AWAIT_FUTURE)
            SHMI_OPENED(x->future);
        else
            SHMI_OPENED(x->event);
        *a = x->kind == SHMSYNC_AWAIT_SEQUENCER ? x->sequencer->impl->m.a : x->kind == SHMSYNC_AWAIT_FUTURE ? x->future->impl->m.a : x->event->impl->q.m.a;
        err = shmi_use(*a, op);
        if (err != 0)
            return err;
        if (x->kind == SHMSYNC_AWAIT_EVENT_RESET && !(x->event->impl->mode & SHMI_eventBidirectional))
            return shmi_fail(EINVAL, op, x->event->impl->q.m.queueLock.called, "it is not bidirectional");
    }
    return 0;
}
/* Sleeps for a turn until one of n waits may be over: 0, or why there is no more waiting. */
SHMI_FN int shmi_await_turn(shmsync_arena *a, const char *op, shmi_awaited *at, size_t n, int64_t since, int64_t abs)
{
    int64_t now = shmi_now(), until = now + SHMI_CHECK_EVERY;
    size_t i;
    if (__atomic_load_n(&a->closing, __ATOMIC_SEQ_CST))
        return shmi_fail(EBADF, op, NULL, "this process closed the arena");
    if (abs != 0 && now >= abs)
        return ETIMEDOUT;
    shmi_await_sleep(a, at, n, since, abs != 0 && abs < until ? abs : until);
    for (i = 0; i < n; i++)
        shmi_mutex_check(&at[i].m->queueLock);
    return 0;
}

int shmsync_wait_any(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic, size_t *index)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    shmsync_arena *a = NULL;
    size_t i, begun, chosen = SIZE_MAX;
    int64_t abs = 0, since = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0, result = 0;
    *index = SIZE_MAX;
    if (err != 0)
        return SHMI_TELL(err);
    if (n == 0)
        return shmi_fail(EINVAL, "wait_any", NULL, "nothing to wait for");
    err = shmi_await_check("wait_any", list, n, &a);
    if (err != 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (shmi_await_reached(&list[i], &err)) {
            *index = i;
            return SHMI_TELL(err);
        }
    err = shmi_enter(a, "wait_any");
    if (err != 0)
        return SHMI_TELL(err);
    since = shmi_now();
    for (begun = 0; begun < n && chosen == SIZE_MAX && err == 0; begun++) {
        err = shmi_await_begin(&list[begun], abs, &at[begun], &result);
        if (err != 0)
            break;
        if (at[begun].wait_node == NULL)
            chosen = begun;
    }
    while (err == 0 && chosen == SIZE_MAX) {
        for (i = 0; i < n && chosen == SIZE_MAX; i++)
            if (shmi_wait_node_resolved(at[i].wait_node))
                chosen = i;
        if (chosen != SIZE_MAX) {
            result = shmi_await_judge(&list[chosen], &at[chosen]);
            break;
        }
        err = shmi_await_turn(a, "wait_any", at, n, since, abs);
    }
    for (i = 0; i < begun; i++)
        if (i != chosen)
            shmi_await_leave(&at[i]);
    shmi_exit(a);
    *index = chosen;
    return SHMI_TELL(chosen != SIZE_MAX ? result : err);
}

int shmsync_wait_all(const shmsync_awaitable *list, size_t n, const struct timespec *abs_monotonic)
{
    SHMI_BEGIN();
    shmi_awaited at[SHMSYNC_AWAIT_MOST];
    size_t of[SHMSYNC_AWAIT_MOST]; /* where in the list the waits are that are not over */
    int errs[SHMSYNC_AWAIT_MOST];
    shmsync_arena *a = NULL;
    size_t i, left = 0;
    int64_t abs = 0;
    int err = abs_monotonic != NULL ? shmi_deadline(abs_monotonic, &abs) : 0;
    if (err == 0)
        err = shmi_await_check("wait_all", list, n, &a);
    if (err != 0 || n == 0)
        return SHMI_TELL(err);
    for (i = 0; i < n; i++)
        if (!shmi_await_reached(&list[i], &errs[i]))
            of[left++] = i;
    if (left != 0) {
        size_t begun = 0, todo = left, k;
        int64_t since = shmi_now();
        err = shmi_enter(a, "wait_all");
        if (err != 0)
            return SHMI_TELL(err);
        for (i = 0; i < todo && err == 0; i++) {
            err = shmi_await_begin(&list[of[i]], abs, &at[begun], &errs[of[i]]);
            if (err == 0 && at[begun].wait_node != NULL)
                of[begun++] = of[i];
        }
        left = begun;
        while (err == 0) {
            for (i = k = 0; i < left; i++) {
                if (shmi_wait_node_resolved(at[i].wait_node)) {
                    errs[of[i]] = shmi_await_judge(&list[of[i]], &at[i]);
                } else {
                    at[k] = at[i];
                    of[k++] = of[i];
                }
            }
            left = k;
            if (left == 0)
                break;
            err = shmi_await_turn(a, "wait_all", at, left, since, abs);
        }
        for (i = 0; i < left; i++)
            shmi_await_leave(&at[i]);
        shmi_exit(a);
        if (err != 0)
            return SHMI_TELL(err);
    }
    for (i = 0; i < n; i++)
        if (errs[i] != 0)
            return SHMI_TELL(errs[i]);
    return 0;
}

/* ---- MultiLock: prims/multilock*.go in C, docs/design/0007-fair-locks.md ---- */

/* The kinds of a hold that are not, or not quite, those of an owner word. */
enum { SHMI_keyBiased = SHMI_kindBiased, SHMI_keyGranted = SHMI_kindNotRecoverable /* with a name */, SHMI_keyFree = SHMI_kindNotRecoverable + 1, SHMI_keyCached };
enum { SHMI_multiInline = 5, SHMI_multiLogDefault = 6, SHMI_multiLogMost = 16, SHMI_evictEvery = 16 };
#define SHMI_MULTI_HASH UINT64_C(0x9e3779b97f4a7c15)
#define SHMI_HOLD_FAST (UINT64_C(1) << 29)                               /* what a claim takes */
#define SHMI_HOLD_UNLOCK ((uint64_t)(SHMI_keyCached - SHMI_keyBiased) << 29) /* turns biased into cached */
#define SHMI_HOLD_LOCK ((UINT64_C(1) << 32) - SHMI_HOLD_UNLOCK)           /* turns cached into the next biased */
#define SHMI_HOLD_FREE ((uint64_t)SHMI_keyFree << 29)                     /* turns held into free */

/* This process's side of a bucket. */
struct shmi_key_bucket {
    struct shmi_monitor m; /* first */
    struct shmi_multilock *of;
    shmi_multilock_bucket *w;
    uint32_t number;
    uint32_t biased; /* this process has had a biased hold here. Atomic. */
};

struct shmi_multilock {
    shmsync_arena *a;
    shmi_object o;
    int release;  /* policy PolicyRelease */
    uint32_t log; /* logarithm of the number of buckets */
    pthread_mutex_t making;
    struct shmi_key_bucket **all; /* NULL until this process looks at it; atomic */
};

/* Where a key is that is not free: an entry of its bucket, or a node. hold is NULL where there is none. */
struct shmi_key_entry {
    uint64_t *key, *hold, *queue;
    uint64_t off; /* of the node, or 0 */
    shmi_node *n;
};

SHMI_FN uint32_t shmi_hold_owner(uint64_t h) { return (uint32_t)h; }
SHMI_FN uint32_t shmi_hold_kind(uint64_t h) { return shmi_owner_kind((uint32_t)h); }
SHMI_FN uint32_t shmi_hold_name(uint64_t h) { return shmi_owner_name((uint32_t)h); }
SHMI_FN uint32_t shmi_hold_stamp(uint64_t h) { return (uint32_t)(h >> 32); }
SHMI_FN uint64_t shmi_make_hold(uint32_t kind, shmi_participant_id n, uint32_t stamp) { return (uint64_t)stamp << 32 | shmi_make_owner(kind, n); }
/* Whether nobody has the key or waits for it. */
SHMI_FN int shmi_hold_free(uint64_t h) { return h == 0 || shmi_hold_kind(h) >= SHMI_keyFree; }
/* shmi_hold_free of a word that is not fast: the entry is in no use. */
SHMI_FN int shmi_hold_idle(uint64_t h) { return h == 0 || shmi_hold_kind(h) == SHMI_keyFree; }
/* Whether its name may change the word without the queue lock. */
SHMI_FN int shmi_hold_fast(uint64_t h) { return shmi_hold_kind(h) == SHMI_keyBiased || shmi_hold_kind(h) == SHMI_keyCached; }
/* Whether a waiter was handed the key that has not accepted it. */
SHMI_FN int shmi_hold_granted(uint64_t h) { return shmi_hold_kind(h) == SHMI_keyGranted && shmi_hold_name(h) != 0; }
/* Whether a participant has the key to itself, or was handed it. */
SHMI_FN int shmi_hold_taken(uint64_t h) { return shmi_owner_held(shmi_hold_owner(h)) || shmi_hold_granted(h); }
SHMI_FN int shmi_hold_valid(uint64_t h)
{
    if (shmi_hold_kind(h) >= SHMI_keyFree || shmi_hold_granted(h))
        return shmi_hold_name(h) != 0;
    return shmi_owner_valid(shmi_hold_owner(h)) && (shmi_hold_owner(h) != 0 || h == 0);
}
/* The hold when it is let go while others wait. */
SHMI_FN uint64_t shmi_hold_passing(uint64_t h) { return shmi_make_hold(SHMI_kindReserved, shmi_hold_name(h), shmi_hold_stamp(h)); }
/* The hold after its name was found dead, and perhaps gone. */
SHMI_FN uint64_t shmi_hold_owner_died(uint64_t h, int release, int gone)
{
    uint32_t next = shmi_hold_granted(h) ? 0 : shmi_owner_died(shmi_hold_owner(h), release, gone);
    return next != 0 ? (h & ~(uint64_t)UINT32_MAX) | next : shmi_hold_passing(h);
}
/* Whose death made the key what it is. */
SHMI_FN shmi_participant_id shmi_hold_died(uint64_t h)
{
    return shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE ? shmi_hold_stamp(h) & SHMI_NAME_MASK : shmi_hold_name(h);
}
/* How a wait for a key with this hold ends at once; SHMI_lockGranted: it does not. */
SHMI_FN uint32_t shmi_hold_result(uint64_t h)
{
    if (!shmi_hold_valid(h) || shmi_hold_fast(h) || shmi_hold_kind(h) == SHMI_keyFree)
        return SHMI_lockCorrupt; /* in use, and claimed */
    if (shmi_hold_kind(h) == SHMI_kindOwnerDead)
        return SHMI_lockOwnerDead;
    return shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE ? SHMI_lockNotRecoverable : SHMI_lockGranted;
}
SHMI_FN int shmi_key_fail(struct shmi_monitor *m, const char *op, uint64_t key, uint32_t result, shmi_participant_id who)
{
    switch (result) {
    case SHMI_lockGranted: return 0;
    case SHMI_lockOwnerDead: return shmi_fail_who(m->a, EOWNERDEAD, op, m->queueLock.called, who);
    case SHMI_lockNotRecoverable: return shmi_fail_who(m->a, ENOTRECOVERABLE, op, m->queueLock.called, who);
    }
    return shmi_fail(EPROTO, op, m->queueLock.called, "key %llu", (unsigned long long)key);
}

SHMI_FN uint32_t shmi_bucket_of(uint64_t key, uint32_t log) { return (uint32_t)((key ^ key >> 32) * SHMI_MULTI_HASH >> 1 >> (63 - log)); }
SHMI_FN uint64_t shmi_multi_bytes(uint32_t log) { return sizeof(shmi_multilock_head) + ((uint64_t)sizeof(shmi_multilock_bucket) << log); }
SHMI_FN uint64_t shmi_bucket_at(const shmi_object *o, uint32_t i)
{
    return o->body + sizeof(shmi_multilock_head) + (uint64_t)i * sizeof(shmi_multilock_bucket);
}

/* ---- entries ---- */

SHMI_FN struct shmi_key_entry shmi_no_entry(void)
{
    struct shmi_key_entry e;
    memset(&e, 0, sizeof e);
    return e;
}
SHMI_FN struct shmi_key_entry shmi_inline_entry(struct shmi_key_bucket *k, uint32_t i)
{
    struct shmi_key_entry e = shmi_no_entry();
    e.key = &k->w->entries[3 * i];
    e.hold = e.key + 1;
    e.queue = e.key + 2;
    return e;
}
SHMI_FN struct shmi_key_entry shmi_node_entry(uint64_t off, shmi_node *n)
{
    struct shmi_key_entry e;
    e.key = &n->wanted;
    e.hold = &n->stamp;
    e.queue = &n->extra;
    e.off = off;
    e.n = n;
    return e;
}
SHMI_FN int shmi_key_belongs(struct shmi_key_bucket *k, shmi_node *n)
{
    return shmi_get(&n->object) == k->m.o.off && shmi_bucket_of(shmi_get(&n->wanted), k->of->log) == k->number && shmi_get(&n->stamp) != 0;
}
/* Whether a node stands for a key of this bucket. While the queue lock is held, such a node
 * stays one; others may change under the look, which is why it is taken twice. */
SHMI_FN int shmi_key_is_entry(struct shmi_key_bucket *k, shmi_node *n)
{
    uint32_t w = shmi_node_load(n);
    return shmi_node_state(w) == SHMI_NodeIdle && shmi_key_belongs(k, n) && shmi_node_load(n) == w;
}
/* Whether a node is a wait in this bucket. */
SHMI_FN int shmi_key_is_wait(struct shmi_monitor *m, struct shmi_wait w)
{
    uint32_t n = shmi_node_load(w.n);
    return shmi_node_state(n) != SHMI_NodeIdle && shmi_key_belongs((struct shmi_key_bucket *)m, w.n) && ((shmi_node_load(w.n) ^ n) & ~15u) == 0;
}

/* A walk over the entries in use, those with biased holds among them. An entry that it gave may be
 * taken off. Nodes are in the order of their offsets, so that it ends whatever the links
 * are. Without the queue lock it may miss some that change meanwhile. */
struct shmi_key_walk {
    uint32_t i;
    int peek; /* the queue lock is not held */
    uint64_t off, before;
};
SHMI_FN struct shmi_key_walk shmi_walk_spilled(struct shmi_key_bucket *k, int peek)
{
    struct shmi_key_walk v;
    v.i = SHMI_multiInline + 1;
    v.peek = peek;
    v.off = shmi_link_next(shmi_get(&k->w->spilled));
    v.before = 0;
    return v;
}
SHMI_FN struct shmi_key_walk shmi_walk_keys(struct shmi_key_bucket *k, int peek)
{
    struct shmi_key_walk v = shmi_walk_spilled(k, peek);
    v.i = 0;
    return v;
}
SHMI_FN int shmi_next_key(struct shmi_key_bucket *k, struct shmi_key_walk *v, struct shmi_key_entry *e)
{
    shmi_node *n;
    while (v->i < SHMI_multiInline) {
        *e = shmi_inline_entry(k, v->i++);
        if (!shmi_hold_free(shmi_get(e->hold)))
            return 1;
    }
    if (v->i == SHMI_multiInline)
        *v = shmi_walk_spilled(k, v->peek);
    if (v->off == 0)
        return 0;
    n = shmi_node_at(k->m.a, v->off);
    if (n == NULL || v->off <= v->before || !shmi_key_is_entry(k, n)) {
        if (!v->peek)
            shmi_set_broken(&k->m, 1);
        return 0;
    }
    *e = shmi_node_entry(v->off, n);
    v->before = v->off;
    v->off = shmi_link_next(shmi_get(&n->next));
    return 1;
}

/* Sees to it that the stamps that follow are behind that of a hold. */
SHMI_FN void shmi_key_raise(struct shmi_key_bucket *k, uint64_t h)
{
    uint64_t n = shmi_get(&k->w->mon.arrivals);
    int32_t ahead = (int32_t)(shmi_hold_stamp(h) - (uint32_t)n);
    if (ahead > 0)
        shmi_put(&k->w->mon.arrivals, n + (uint64_t)ahead);
}
/* Makes the hold of an entry one that only the holder of the queue lock changes, and gives it. The queue lock
 * is held. It is one step, so that a process that locks and unlocks meanwhile cannot delay it. */
SHMI_FN uint64_t shmi_key_claim(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    uint64_t h;
    shmi_and64(e.hold, ~SHMI_HOLD_FAST);
    SHMSYNC_CRASHPOINT("multilock.claim.claimed");
    h = shmi_get(e.hold);
    shmi_key_raise(k, h);
    return h;
}

/* The entry of a key among those in the bucket itself, or in *was the one in no use where
 * the key was last, with the queue lock held. It claims the key. */
SHMI_FN struct shmi_key_entry shmi_key_seek(struct shmi_key_bucket *k, uint64_t key, struct shmi_key_entry *was)
{
    uint32_t i;
    *was = shmi_no_entry();
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h;
        if (shmi_get(e.key) != key)
            continue;
        h = shmi_get(e.hold);
        if (shmi_hold_fast(h))
            h = shmi_key_claim(k, e);
        if (!shmi_hold_free(h)) {
            *was = shmi_no_entry();
            return e;
        }
        if (h != 0 || was->hold == NULL) /* 0 of an entry that was never used is no key */
            *was = e;
    }
    return shmi_no_entry();
}
/* The entry of a key, with the queue lock held. It claims the key. */
SHMI_FN struct shmi_key_entry shmi_key_find(struct shmi_key_bucket *k, uint64_t key)
{
    struct shmi_key_entry was, e = shmi_key_seek(k, key, &was);
    struct shmi_key_walk v;
    if (e.hold != NULL)
        return e;
    for (v = shmi_walk_spilled(k, 0); shmi_next_key(k, &v, &e);)
        if (shmi_get(e.key) == key)
            return e;
    return shmi_no_entry();
}
/* An entry in no use. They go in turn, so that the keys that they were for have time to come back. */
SHMI_FN struct shmi_key_entry shmi_key_unused(struct shmi_key_bucket *k, uint64_t n)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, (uint32_t)((n % SHMI_multiInline + i) % SHMI_multiInline));
        if (shmi_hold_idle(shmi_get(e.hold)))
            return e;
    }
    return shmi_no_entry();
}
/* An entry for a key that has none, with the queue lock held: where the key was last, one in no
 * use, or one that was kept for another. Now and then that goes first: it may be of a key
 * that nobody wants any more. */
SHMI_FN struct shmi_key_entry shmi_key_room(struct shmi_key_bucket *k, struct shmi_key_entry was)
{
    uint64_t n = shmi_get(&k->w->mon.arrivals);
    uint32_t i;
    if (was.hold != NULL)
        return was;
    if (n % SHMI_evictEvery != 0) {
        was = shmi_key_unused(k, n);
        if (was.hold != NULL)
            return was;
    }
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, (uint32_t)((n / SHMI_evictEvery + i) % SHMI_multiInline));
        if (shmi_hold_kind(shmi_get(e.hold)) == SHMI_keyCached && shmi_hold_free(shmi_key_claim(k, e)))
            return e;
    }
    return shmi_key_unused(k, n);
}
/* An entry for a key that has none, with the queue lock held, or none if that takes more than a look. */
SHMI_FN struct shmi_key_entry shmi_key_vacant(struct shmi_key_bucket *k, uint64_t key)
{
    struct shmi_key_entry was, e = shmi_key_seek(k, key, &was);
    if (e.hold != NULL || shmi_get(&k->w->spilled) != 0)
        return shmi_no_entry();
    return shmi_key_room(k, was);
}

/* The link that leads, or would lead, to the node at off. The head is a link, too. */
SHMI_FN uint64_t *shmi_key_before(struct shmi_key_bucket *k, uint64_t off)
{
    uint64_t *before = &k->w->spilled;
    struct shmi_key_walk v;
    struct shmi_key_entry e;
    for (v = shmi_walk_spilled(k, 0); shmi_next_key(k, &v, &e) && e.off < off;)
        before = &e.n->next;
    return before;
}
SHMI_FN void shmi_key_link(struct shmi_key_bucket *k, uint64_t off, shmi_node *n)
{
    uint64_t *before = shmi_key_before(k, off);
    shmi_put(&n->next, shmi_links(shmi_link_next(shmi_get(before)), 0));
    shmi_put(before, shmi_links(off, 0));
}
/* Makes an entry of a node that this process has claimed. */
SHMI_FN struct shmi_key_entry shmi_key_spill(struct shmi_key_bucket *k, uint64_t off, shmi_node *n, uint64_t key, uint64_t h)
{
    struct shmi_key_entry e = shmi_node_entry(off, n);
    shmi_st64(&n->object, k->m.o.off);
    shmi_st64(e.key, key);
    shmi_st64(e.queue, 0);
    /* From here on the node goes back with the key, not with this process. */
    shmi_put(e.hold, h);
    SHMSYNC_CRASHPOINT("multilock.lock.spilled");
    shmi_key_link(k, off, n);
    return e;
}
/* Makes an entry one in no use, for a key that nobody has or waits for. */
SHMI_FN void shmi_key_free(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    uint64_t h = shmi_get(e.hold), *before;
    if (e.n == NULL) {
        shmi_put(e.hold, shmi_make_hold(SHMI_keyFree, shmi_hold_name(h), shmi_hold_stamp(h)));
        return;
    }
    if (shmi_hold_kind(h) != SHMI_kindReserved)
        shmi_put(e.hold, shmi_hold_passing(h));
    before = shmi_key_before(k, e.off);
    if (shmi_link_next(shmi_get(before)) == e.off)
        shmi_put(before, shmi_links(shmi_link_next(shmi_get(&e.n->next)), 0));
    SHMSYNC_CRASHPOINT("multilock.unlock.unlinked");
    /* The participant that claimed the node may be dead. The node keeps its stamp until it is free, so that no other gives it back. */
    shmi_reap_node(k->m.a, e.off, shmi_node_owner(e.n));
}

/* ---- the queues of keys ---- */

SHMI_FN shmi_list_words shmi_key_queue(struct shmi_key_entry e)
{
    shmi_list_words q;
    uint64_t l = shmi_get(e.queue);
    q.first = shmi_link_next(l);
    q.last = shmi_link_prev(l);
    return q;
}
SHMI_FN void shmi_key_set_queue(struct shmi_key_entry e, shmi_list_words q) { shmi_put(e.queue, shmi_links(q.first, q.last)); }
SHMI_FN struct shmi_wait shmi_key_head(struct shmi_key_bucket *k, struct shmi_key_entry e)
{
    return shmi_mon_node(&k->m, shmi_link_next(shmi_get(e.queue)));
}
SHMI_FN void shmi_multi_detach(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_key_entry e = shmi_key_find((struct shmi_key_bucket *)m, shmi_get(&w.n->wanted));
    if (e.hold != NULL) {
        shmi_list_words q = shmi_key_queue(e);
        shmi_fifo_detach(m, &q, w);
        shmi_key_set_queue(e, q);
    }
}

/* The next hold of this process in the bucket. */
SHMI_FN uint64_t shmi_key_new_hold(struct shmi_key_bucket *k, uint32_t kind)
{
    uint64_t stamp = shmi_get(&k->w->mon.arrivals) + 1;
    shmi_put(&k->w->mon.arrivals, stamp);
    return shmi_make_hold(kind, k->m.a->self, (uint32_t)stamp);
}
/* Takes a key that is free, into an entry that is in no use. Where this process had the
 * key last, it locks and unlocks by CAS from here on: others would pay for that, so the
 * first time is not enough. */
SHMI_FN void shmi_key_take(struct shmi_key_bucket *k, struct shmi_key_entry e, uint64_t key, shmsync_hold *out)
{
    uint32_t kind = SHMI_kindHeld;
    if (shmi_get(e.key) != key) {
        shmi_put(e.key, key);
    } else if (shmi_hold_owner(shmi_get(e.hold)) == shmi_make_owner(SHMI_keyFree, k->m.a->self)) {
        kind = SHMI_keyBiased;
        __atomic_store_n(&k->biased, 1, __ATOMIC_RELAXED);
    }
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = e.hold;
    out->key = key;
    out->hold = shmi_key_new_hold(k, kind);
    shmi_put(e.queue, 0);
    shmi_put(e.hold, out->hold);
    SHMSYNC_CRASHPOINT("multilock.lock.taken");
}

/* Grants a key to the process of a wait that was resolved so. The key was on its way when
 * the wait was resolved, so another word says that this was done: the waiter may have
 * accepted the key since. */
SHMI_FN void shmi_multi_account(struct shmi_monitor *m, struct shmi_wait w)
{
    if (shmi_outcome_result(shmi_get(&w.n->extra)) == SHMI_lockGranted) {
        struct shmi_key_entry e = shmi_key_find((struct shmi_key_bucket *)m, shmi_get(&w.n->wanted));
        if (e.hold != NULL && shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved) {
            shmi_put(e.hold, shmi_make_hold(SHMI_keyGranted, shmi_owner_of(w) & SHMI_NAME_MASK, (uint32_t)shmi_stamp_of(w)));
            SHMSYNC_CRASHPOINT("multilock.grant.granted");
        }
    }
    shmi_mon_account(m, w, NULL);
}

/* Passes a key on that was let go, or makes its entry free, and tells the waiters for a key that cannot be had. */
SHMI_FN void shmi_key_resolve(struct shmi_key_bucket *k, struct shmi_wakes *b, struct shmi_key_entry e)
{
    while (shmi_get(e.queue) != 0) {
        uint64_t h = shmi_get(e.hold);
        uint32_t result = shmi_hold_result(h);
        struct shmi_wait w;
        if (result == SHMI_lockGranted && shmi_hold_kind(h) != SHMI_kindReserved)
            return;
        w = shmi_key_head(k, e);
        if (w.n == NULL)
            break;
        if (!shmi_mon_waiting(&k->m, w)) { /* which has looked whether it lives */
            shmi_mon_discard(&k->m, w);
            continue;
        }
        if (shmi_mon_end(&k->m, b, w, result, result == SHMI_lockOwnerDead || result == SHMI_lockNotRecoverable ? shmi_hold_died(h) : 0))
            shmi_multi_account(&k->m, w);
    }
    if (shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved)
        shmi_key_free(k, e);
}
SHMI_FN void shmi_multi_resolve(struct shmi_monitor *m, struct shmi_wakes *b)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e))
        shmi_key_resolve(k, b, e);
}

SHMI_FN void shmi_multi_relink(shmsync_arena *a, shmi_off off, shmi_node *n, void *arg)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)arg;
    (void)a;
    if (shmi_key_is_entry(k, n)) {
        shmi_put(&n->extra, 0);
        shmi_key_link(k, off, n);
    }
}
/* Makes the list of spilled entries anew, and empties the queues. Locks and unlocks by CAS
 * go on meanwhile: nobody waits for their keys. */
SHMI_FN void shmi_multi_clear(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    uint32_t i;
    shmi_st64(&k->w->spilled, 0);
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        shmi_put(e.queue, 0);
        /* The participant that claimed it may have died before it raised arrivals. */
        if (shmi_hold_owner(h) != SHMI_OWNER_NOT_RECOVERABLE)
            shmi_key_raise(k, h);
    }
    shmi_each_queued(m->a, m->o.off, shmi_multi_relink, k);
}
/* Puts a wait at the end of the queue of its key. There is an entry for each key that is
 * waited for, unless a peer overwrote it: then the key is on its way to a waiter. */
SHMI_FN void shmi_multi_requeue(struct shmi_monitor *m, struct shmi_wait w)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    uint64_t key = shmi_get(&w.n->wanted), off;
    struct shmi_key_entry e = shmi_key_find(k, key);
    shmi_list_words q;
    if (e.hold == NULL) {
        struct shmi_key_entry was;
        uint64_t h;
        shmi_node *n;
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        h = shmi_key_new_hold(k, SHMI_kindReserved);
        if (e.hold != NULL) {
            shmi_put(e.key, key);
            shmi_put(e.queue, 0);
            shmi_put(e.hold, h);
        } else if (shmi_claim_node(m->a, &off, &n) == 0) {
            e = shmi_key_spill(k, off, n, key, h);
        } else {
            return;
        }
    }
    q = shmi_key_queue(e);
    shmi_fifo_requeue(m, &q, w);
    shmi_key_set_queue(e, q);
}
/* Takes off the waits that nobody is there for. A list that bites its own tail is rebuilt. */
SHMI_FN void shmi_multi_discard_dead(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t before = 0;
        struct shmi_wait w = shmi_key_head(k, e);
        while (w.n != NULL) {
            struct shmi_wait next;
            uint64_t s = shmi_stamp_of(w);
            if (s <= before) {
                shmi_set_broken(m, 1);
                return;
            }
            before = s;
            next = shmi_mon_node(m, shmi_link_next(shmi_get(&w.n->next)));
            if (!shmi_mon_waiting(m, w))
                shmi_mon_discard(m, w);
            w = next;
        }
    }
}
SHMI_FN void shmi_multi_reap(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 0);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t h = shmi_get(e.hold);
        if (!shmi_hold_valid(h) || !shmi_hold_taken(h) || !shmi_mon_died(m, shmi_hold_name(h)))
            continue;
        if (shmi_hold_fast(h))
            h = shmi_key_claim(k, e);
        if (shmi_hold_taken(h))
            shmi_put(e.hold, shmi_hold_owner_died(h, k->of->release, !shmi_hold_granted(h) && k->of->release && shmi_mon_gone(m, shmi_hold_name(h))));
    }
}
SHMI_FN void shmi_multi_holders(struct shmi_monitor *m)
{
    struct shmi_key_bucket *k = (struct shmi_key_bucket *)m;
    struct shmi_key_walk v = shmi_walk_keys(k, 1);
    struct shmi_key_entry e;
    while (shmi_next_key(k, &v, &e)) {
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_valid(h) && shmi_hold_taken(h))
            shmi_mon_heed(m, shmi_hold_name(h));
    }
}

static const struct shmi_rules shmi_multi_rules = {
    shmi_multi_resolve, shmi_multi_account, shmi_multi_clear, shmi_multi_requeue, shmi_multi_detach,
    shmi_multi_discard_dead, shmi_multi_reap, shmi_multi_holders, NULL,
};

/* ---- handles ---- */

SHMI_FN void shmi_bucket_init(struct shmi_key_bucket *k, struct shmi_multilock *x, uint32_t i)
{
    shmi_mon_init(&k->m, x->a, &x->o, shmi_bucket_at(&x->o, i), &shmi_multi_rules);
    k->m.one_spins = 1;
    k->m.mine = shmi_key_is_wait;
    k->of = x;
    k->w = (shmi_multilock_bucket *)(void *)k->m.w;
    k->number = i;
    k->biased = 0;
}
/* Makes a bucket that this process looks at for the first time. */
SHMI_COLD int shmi_multi_make_bucket(struct shmi_multilock *x, uint32_t i, struct shmi_key_bucket **out)
{
    struct shmi_key_bucket *k;
    int err = shmi_enter(x->a, "multilock.lock");
    if (err != 0)
        return err;
    pthread_mutex_lock(&x->making);
    k = __atomic_load_n(&x->all[i], __ATOMIC_RELAXED);
    if (k == NULL) {
        k = (struct shmi_key_bucket *)shmi_new_thing(sizeof *k);
        if (k != NULL)
            shmi_bucket_init(k, x, i);
        else
            err = shmi_fail(ENOMEM, "multilock.lock", shmi_called(&x->o), "%s", "");
        __atomic_store_n(&x->all[i], k, __ATOMIC_RELEASE);
    }
    pthread_mutex_unlock(&x->making);
    shmi_exit(x->a);
    *out = k;
    return err;
}
SHMI_FN int shmi_multi_bucket(struct shmi_multilock *x, uint64_t key, struct shmi_key_bucket **out)
{
    uint32_t i = shmi_bucket_of(key, x->log);
    *out = __atomic_load_n(&x->all[i], __ATOMIC_ACQUIRE);
    return SHMI_LIKELY(*out != NULL) ? 0 : shmi_multi_make_bucket(x, i, out);
}

/* What the head of the body says; 0 if it cannot be. */
SHMI_FN int shmi_multi_shape(struct shmi_multilock *x, shmsync_arena *a, const shmi_object *o)
{
    const shmi_multilock_head *head;
    uint32_t n;
    if (o->size < shmi_multi_bytes(0))
        return 0;
    head = (const shmi_multilock_head *)shmi_ptr(a, o->body, sizeof *head, 8);
    memset(x, 0, sizeof *x);
    x->a = a;
    x->o = *o;
    x->release = (shmi_ld32(&head->policy) & 0xff) == 1;
    n = shmi_ld32(&head->buckets) & 0xff;
    x->log = n != 0 ? n - 1 : (uint32_t)SHMI_multiLogDefault;
    return x->log <= SHMI_multiLogMost && o->size >= shmi_multi_bytes(x->log);
}
SHMI_FN void *shmi_multi_new(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_multilock *x = (struct shmi_multilock *)shmi_new_thing(sizeof *x);
    (void)arg;
    if (x == NULL)
        return NULL;
    shmi_multi_shape(x, a, o); /* shmi_multi_handle has seen that it can be */
    x->all = (struct shmi_key_bucket **)shmi_new_thing(sizeof *x->all << x->log);
    if (x->all == NULL) {
        shmi_free_thing(x);
        return NULL;
    }
    pthread_mutex_init(&x->making, NULL);
    return x;
}
SHMI_FN void shmi_multi_end(void *handle)
{
    struct shmi_multilock *x = (struct shmi_multilock *)handle;
    uint32_t i;
    for (i = 0; i < UINT32_C(1) << x->log; i++)
        if (x->all[i] != NULL)
            shmi_free_thing(x->all[i]);
    shmi_free_thing(x->all);
    pthread_mutex_destroy(&x->making);
    shmi_free_thing(x);
}
/* Gives this process's handle on an object that has been opened. policy and log are those asked for; log -1: whatever it has. */
SHMI_FN int shmi_multi_handle(shmsync_arena *a, const shmi_object *o, int policy, int log, shmsync_multilock *out)
{
    struct shmi_multilock x;
    int err = 0;
    if (!shmi_multi_shape(&x, a, o))
        err = shmi_fail(EPROTO, "multilock.open", shmi_called(o), "its body has no room for its buckets");
    else if ((policy != SHMSYNC_POLICY_DEFAULT && (policy == SHMSYNC_POLICY_RELEASE) != x.release) || (log >= 0 && (uint32_t)log != x.log))
        err = shmi_fail(EINVAL, "multilock.open", shmi_called(o), "it has another policy, or other than %u buckets: %u", 1u << (log >= 0 ? log : 0), 1u << x.log);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    err = SHMI_HAND_OUT(out, struct shmi_multilock *, shmi_share(a, o, shmi_multi_new, NULL));
    if (err == 0)
        shmi_ends_with(a, o->off, shmi_multi_end);
    return err;
}

typedef struct shmi_multi_spec {
    uint32_t policy, log, spin;
} shmi_multi_spec;
SHMI_FN void shmi_multi_fill(unsigned char *body, const void *arg)
{
    const shmi_multi_spec *s = (const shmi_multi_spec *)arg;
    shmi_multilock_head *head = (shmi_multilock_head *)(void *)body;
    shmi_multilock_bucket *all = (shmi_multilock_bucket *)(void *)(body + sizeof *head);
    uint32_t i;
    head->policy = s->policy;
    head->buckets = s->log + 1;
    for (i = 0; i < UINT32_C(1) << s->log; i++)
        all[i].mon.spin = s->spin;
}
SHMI_FN int shmi_open_multilock(int existing, shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    int policy = opts != NULL ? opts->policy : SHMSYNC_POLICY_DEFAULT, err, created;
    uint32_t buckets = opts != NULL ? opts->buckets : 0;
    shmi_multi_spec init;
    shmi_spec spec;
    shmi_object o;
    out->impl = NULL;
    err = shmi_no_rollback("multilock.open", name, policy, "a multilock");
    if (err != 0)
        return err;
    if (buckets > UINT32_C(1) << SHMI_multiLogMost)
        return shmi_fail(EINVAL, "multilock.open", name, "%u buckets", buckets);
    init.policy = policy == SHMSYNC_POLICY_RELEASE;
    init.log = SHMI_multiLogDefault;
    if (buckets != 0)
        for (init.log = 0; UINT32_C(1) << init.log < buckets; init.log++) {
        }
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, name, shmi_multi_bytes(init.log));
    spec.any_size = 1;
    spec.init = shmi_multi_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_multi_handle(a, &o, policy, buckets != 0 ? (int)init.log : -1, out);
}
int shmsync_multilock_open(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_multilock(0, a, name, opts, out));
}
int shmsync_multilock_attach(shmsync_arena *a, const char *name, const shmsync_multilock_options *opts, shmsync_multilock *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_multilock(1, a, name, opts, out));
}
int shmsync_multilock_at(shmsync_arena *a, shmsync_offset off, shmsync_multilock *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "multilock.open", SHMI_KIND_MULTI_LOCK, SHMI_VERSION_MULTI_LOCK, shmi_multi_bytes(0), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_multi_handle(a, &o, SHMSYNC_POLICY_DEFAULT, -1, out));
}
shmsync_offset shmsync_multilock_offset(const shmsync_multilock *m)
{
    SHMI_OPENED_OR(m, 0);
    return m->impl->o.off;
}
int shmsync_multilock_close(shmsync_multilock *m)
{
    SHMI_OPENED(m);
    int err;
    if (m->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(m->impl->a, m->impl->o.off, shmi_multi_end);
    if (err == 0)
        m->impl = NULL;
    return SHMI_TELL(err);
}

/* ---- locking ---- */

/* Takes a key by one CAS, if it is kept for this process. The key of an entry changes only
 * after its hold was claimed, and the hold is never the same again. */
SHMI_FN int shmi_key_biased(struct shmi_key_bucket *k, uint64_t key, shmsync_hold *out)
{
    shmi_participant_id self = shmi_self(k->m.a);
    uint32_t i, kept = shmi_make_owner(SHMI_keyCached, self);
    if (self == 0)
        return 0; /* a child of fork: the arena may not even be there */
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_owner(h) != kept || shmi_get(e.key) != key)
            continue;
        if (shmi_cas64(e.hold, h, h + SHMI_HOLD_LOCK)) {
            SHMSYNC_CRASHPOINT("multilock.lock.biased");
            out->in = k;
            out->serial = shmi_serial_of(k);
            out->at = e.hold;
            out->key = key;
            out->hold = h + SHMI_HOLD_LOCK;
            return 1;
        }
    }
    return 0;
}
/* Whether a living participant has the key in a biased hold, without the queue lock: a try leaves it so. */
SHMI_FN int shmi_key_is_biased(struct shmi_key_bucket *k, uint64_t key)
{
    uint32_t i;
    for (i = 0; i < SHMI_multiInline; i++) {
        struct shmi_key_entry e = shmi_inline_entry(k, i);
        uint64_t h = shmi_get(e.hold);
        if (shmi_hold_kind(h) == SHMI_keyBiased && shmi_get(e.key) == key && shmi_get(e.hold) == h)
            return !shmi_dead(k->m.a, shmi_hold_name(h));
    }
    return 0;
}
/* Takes back what the dead have, with the queue lock held. */
SHMI_FN void shmi_key_look_at(struct shmi_key_bucket *k, struct shmi_wakes *b, uint64_t key)
{
    struct shmi_key_entry e = shmi_key_find(k, key);
    uint64_t h = e.hold != NULL ? shmi_get(e.hold) : 0;
    if (shmi_hold_taken(h) && shmi_dead(k->m.a, shmi_hold_name(h))) {
        shmi_mon_reap(&k->m, b);
        return;
    }
    shmi_mon_reap_if_due(&k->m, b);
    e = shmi_key_find(k, key);
    if (e.hold != NULL && shmi_hold_kind(shmi_get(e.hold)) == SHMI_kindReserved)
        shmi_key_resolve(k, b, e);
}
SHMI_FN int shmi_key_accept_in(struct shmi_key_bucket *k, struct shmi_key_entry e, uint64_t key, uint64_t granted, uint64_t held)
{
    if (e.hold == NULL || !shmi_cas64(e.hold, granted, held))
        return shmi_key_fail(&k->m, "multilock.lock", key, SHMI_lockCorrupt, 0);
    SHMSYNC_CRASHPOINT("multilock.lock.accepted");
    return 0;
}
/* Makes this process the holder of a key that one of its waits was granted. A process that
 * dies before this step has not held the key. */
SHMI_FN int shmi_key_accept(struct shmi_key_bucket *k, uint64_t key, uint64_t held)
{
    const uint64_t granted = shmi_make_hold(SHMI_keyGranted, shmi_hold_name(held), shmi_hold_stamp(held));
    uint32_t i;
    int tries, err;
    for (tries = 0; tries < SHMI_acceptTries; tries++) {
        for (i = 0; i < SHMI_multiInline; i++) {
            /* A granted word with this stamp is of this wait, so it needs no look at the key. */
            struct shmi_key_entry e = shmi_inline_entry(k, i);
            if (shmi_get(e.hold) == granted)
                return shmi_key_accept_in(k, e, key, granted, held);
        }
        if (shmi_get(&k->w->spilled) != 0)
            break;
        shmi_pause(SHMI_acceptPause);
    }
    /* The key is spilled, or the granter has resolved the wait and is not through: it runs,
     * or it is stopped or dead. */
    err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return err;
    err = shmi_key_accept_in(k, shmi_key_find(k, key), key, granted, held);
    shmi_mon_leave(&k->m, NULL);
    return err;
}
/* Waits for a key in the wait node, with the queue lock held, which it leaves. */
SHMI_FN int shmi_key_queue_up(struct shmi_key_bucket *k, int64_t abs, uint64_t key, shmi_wait_node *wait_node, struct shmi_wakes *b, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    uint64_t outcome = 0;
    int err;
    shmi_mon_join(m, wait_node, 0, key);
    out->in = k;
    out->serial = shmi_serial_of(k);
    out->at = NULL;
    out->key = key;
    out->hold = shmi_make_hold(SHMI_kindHeld, m->a->self, (uint32_t)shmi_get(&wait_node->node->stamp));
    shmi_mon_leave(m, b);
    err = shmi_mon_await(m, wait_node, abs, &outcome);
    if (err == 0)
        err = shmi_key_fail(m, "multilock.lock", key, shmi_outcome_result(outcome), shmi_outcome_aux(outcome) & SHMI_NAME_MASK);
    return err != 0 ? err : shmi_key_accept(k, key, out->hold);
}
/* The rest of lock, with the queue lock held, which it leaves. The call counts. */
SHMI_FN int shmi_key_lock_slow(struct shmi_key_bucket *k, int64_t abs, uint64_t key, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    shmi_wait_node *wait_node = NULL;
    struct shmi_wakes b;
    uint64_t spare = 0;
    shmi_node *n = NULL;
    int err = 0, again;
    shmi_wakes_init(&b);
    for (;;) {
        struct shmi_key_entry e, was;
        shmi_key_look_at(k, &b, key);
        e = shmi_key_find(k, key);
        if (e.hold != NULL) {
            uint64_t h = shmi_get(e.hold);
            err = shmi_key_fail(m, "multilock.lock", key, shmi_hold_result(h), shmi_hold_died(h));
            if (err != 0)
                break;
            err = shmi_mon_wait_node(m, abs, &wait_node, &again);
            if (err != 0) {
                shmi_mon_wake(m, &b);
                if (spare != 0)
                    shmi_free_node(m->a, spare);
                return err;
            }
            if (again)
                continue;
            err = shmi_key_queue_up(k, abs, key, wait_node, &b, out);
            if (spare != 0)
                shmi_free_node(m->a, spare);
            return err;
        }
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        if (e.hold != NULL) {
            shmi_key_take(k, e, key, out);
            break;
        }
        if (spare != 0) {
            out->in = k;
            out->serial = shmi_serial_of(k);
            out->at = NULL;
            out->key = key;
            out->hold = shmi_key_new_hold(k, SHMI_kindHeld);
            shmi_key_spill(k, spare, n, key, out->hold);
            spare = 0;
            break;
        }
        shmi_mon_leave(m, &b);
        err = shmi_claim_node(m->a, &spare, &n);
        if (err != 0)
            spare = 0;
        else
            err = shmi_mon_enter(m, abs);
        if (err != 0) {
            shmi_mon_return_node(m, wait_node);
            if (spare != 0)
                shmi_free_node(m->a, spare);
            return err;
        }
    }
    shmi_mon_leave(m, &b);
    shmi_mon_return_node(m, wait_node);
    if (spare != 0)
        shmi_free_node(m->a, spare);
    return err;
}
SHMI_FN int shmi_key_lock(struct shmi_multilock *x, uint64_t key, int64_t abs, shmsync_hold *out)
{
    struct shmi_key_bucket *k;
    struct shmi_key_entry e;
    int err = shmi_multi_bucket(x, key, &k);
    if (err == 0) {
        if (__atomic_load_n(&k->biased, __ATOMIC_RELAXED) != 0 && shmi_key_biased(k, key, out))
            return 0;
        err = shmi_mon_enter(&k->m, abs);
    }
    if (err == 0) {
        e = shmi_key_vacant(k, key);
        if (e.hold != NULL) {
            shmi_key_take(k, e, key, out);
            shmi_mon_leave(&k->m, NULL);
            return 0;
        }
        err = shmi_mon_begin(&k->m);
        if (err == 0) {
            err = shmi_key_lock_slow(k, abs, key, out);
            shmi_mon_finish(&k->m);
        }
    }
    if (err != 0)
        memset(out, 0, sizeof *out);
    return err;
}
int shmsync_multilock_lock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_key_lock(m->impl, key, 0, out));
}
int shmsync_multilock_timedlock(shmsync_multilock *m, uint64_t key, shmsync_hold *out, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    memset(out, 0, sizeof *out);
    return SHMI_TELL(err != 0 ? err : shmi_key_lock(m->impl, key, ns, out));
}
/* The rest of trylock, with the queue lock held, which it leaves. */
SHMI_FN int shmi_key_trylock_slow(struct shmi_key_bucket *k, uint64_t key, shmsync_hold *out)
{
    struct shmi_monitor *m = &k->m;
    struct shmi_key_entry e = shmi_key_find(k, key), was;
    struct shmi_wakes b;
    uint64_t off;
    shmi_node *n;
    int err = 0;
    shmi_wakes_init(&b);
    if (e.hold != NULL) {
        shmi_key_look_at(k, &b, key);
        e = shmi_key_find(k, key);
    }
    if (e.hold != NULL) {
        uint64_t h = shmi_get(e.hold);
        err = shmi_key_fail(m, "multilock.trylock", key, shmi_hold_result(h), shmi_hold_died(h));
        if (err == 0)
            err = EBUSY;
    } else {
        shmi_key_seek(k, key, &was);
        e = shmi_key_room(k, was);
        if (e.hold != NULL) {
            shmi_key_take(k, e, key, out);
        } else {
            err = shmi_claim_node(m->a, &off, &n);
            if (err == 0) {
                out->in = k;
                out->serial = shmi_serial_of(k);
                out->key = key;
                out->hold = shmi_key_new_hold(k, SHMI_kindHeld);
                shmi_key_spill(k, off, n, key, out->hold);
            }
        }
    }
    shmi_mon_leave(m, &b);
    return err;
}
int shmsync_multilock_trylock(shmsync_multilock *m, uint64_t key, shmsync_hold *out)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    struct shmi_key_entry e;
    int err;
    memset(out, 0, sizeof *out);
    err = shmi_use(m->impl->a, "multilock.trylock");
    if (err == 0)
        err = shmi_multi_bucket(m->impl, key, &k);
    if (err != 0)
        return SHMI_TELL(err);
    if (shmi_key_biased(k, key, out))
        return 0;
    if (shmi_key_is_biased(k, key) || !shmi_mon_try_enter(&k->m))
        return SHMI_TELL(EBUSY);
    e = shmi_key_vacant(k, key);
    if (e.hold == NULL)
        return SHMI_TELL(shmi_key_trylock_slow(k, key, out));
    shmi_key_take(k, e, key, out);
    shmi_mon_leave(&k->m, NULL);
    return 0;
}

int shmsync_multilock_unlock(const shmsync_hold *hold)
{
    SHMI_BEGIN();
    struct shmi_key_bucket *k = hold->in;
    uint64_t h = hold->hold;
    struct shmi_key_entry e;
    struct shmi_wakes b;
    int err;
    if (k == NULL)
        return shmi_fail(EPERM, "multilock.unlock", NULL, "the hold holds nothing");
    if (!shmi_is_open(k, hold->serial))
        return SHMI_TELL(shmi_closed(__func__));
    if (shmi_hold_kind(h) == SHMI_keyBiased) {
        if (shmi_self(k->m.a) == shmi_hold_name(h) && shmi_cas64(hold->at, h, h + SHMI_HOLD_UNLOCK)) {
            SHMSYNC_CRASHPOINT("multilock.unlock.biased");
            return 0;
        }
        h &= ~SHMI_HOLD_FAST; /* it was claimed */
    }
    err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return SHMI_TELL(err);
    /* The hold is of this key, since its stamp is of this hold alone. */
    if (hold->at != NULL && shmi_get(hold->at) == h && shmi_get(hold->at + 1) == 0) {
        shmi_put(hold->at, h + SHMI_HOLD_FREE);
        shmi_mon_leave(&k->m, NULL);
        return 0;
    }
    e = shmi_key_find(k, hold->key);
    if (e.hold == NULL || shmi_get(e.hold) != h) {
        h = e.hold != NULL ? shmi_get(e.hold) : 0;
        shmi_mon_leave(&k->m, NULL);
        return shmi_fail(shmi_hold_valid(h) ? EPERM : EPROTO, "multilock.unlock", k->m.queueLock.called, "key %llu: hold %#llx", (unsigned long long)hold->key,
                         (unsigned long long)h);
    }
    shmi_put(e.hold, shmi_hold_passing(h));
    SHMSYNC_CRASHPOINT("multilock.unlock.passing");
    shmi_wakes_init(&b);
    shmi_key_resolve(k, &b, e);
    shmi_mon_leave(&k->m, &b);
    return 0;
}

/* ---- many keys ---- */

SHMI_FN int shmi_by_key(const void *x, const void *y)
{
    uint64_t p = ((const shmsync_hold *)x)->key, q = ((const shmsync_hold *)y)->key;
    return p < q ? -1 : p > q;
}
SHMI_FN int shmi_key_lockall(struct shmi_multilock *x, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, int64_t abs)
{
    size_t i, distinct = 0;
    int err;
    *held = 0;
    err = shmi_enter(x->a, "multilock.lock"); /* until those are unlocked that it has taken in vain */
    if (err != 0) {
        memset(out, 0, n * sizeof *out);
        return err;
    }
    for (i = 0; i < n; i++) {
        memset(&out[i], 0, sizeof *out);
        out[i].key = keys[i];
    }
    if (n > 1)
        qsort(out, n, sizeof *out, shmi_by_key);
    for (i = 0; i < n; i++)
        if (i == 0 || out[i].key != out[distinct - 1].key)
            out[distinct++].key = out[i].key;
    for (i = 0; i < distinct && err == 0; i++) {
        err = shmi_key_lock(x, out[i].key, abs, &out[i]);
        if (err == 0)
            SHMSYNC_CRASHPOINT("multilock.lockall.partly");
    }
    if (err == 0) {
        *held = distinct;
    } else {
        for (i--; i > 0; i--)
            shmsync_multilock_unlock(&out[i - 1]); /* it fails where this process closed the arena, and so holds nothing */
        memset(out, 0, n * sizeof *out);
    }
    shmi_exit(x->a);
    return err;
}
int shmsync_multilock_lockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held)
{
    SHMI_OPENED(m);
    return SHMI_TELL(shmi_key_lockall(m->impl, keys, n, out, held, 0));
}
int shmsync_multilock_timedlockall(shmsync_multilock *m, const uint64_t *keys, size_t n, shmsync_hold *out, size_t *held, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(m);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    *held = 0;
    return SHMI_TELL(err != 0 ? err : shmi_key_lockall(m->impl, keys, n, out, held, ns));
}
int shmsync_multilock_unlockall(const shmsync_hold *h, size_t n)
{
    SHMI_BEGIN();
    int first = 0, err;
    while (n > 0) {
        err = shmsync_multilock_unlock(&h[--n]);
        if (first == 0)
            first = err;
    }
    return SHMI_TELL(first);
}

/* ---- after a death ---- */

/* Makes next of a key that this process recovers. */
SHMI_FN int shmi_key_end_recover(struct shmi_key_bucket *k, uint64_t key, uint64_t h, uint64_t next)
{
    struct shmi_key_entry e;
    struct shmi_wakes b;
    int err = shmi_mon_enter(&k->m, 0);
    if (err != 0)
        return err;
    e = shmi_key_find(k, key);
    if (e.hold == NULL || shmi_get(e.hold) != h) {
        shmi_mon_leave(&k->m, NULL);
        return shmi_fail(EPROTO, "multilock.recover", k->m.queueLock.called, "key %llu was overwritten", (unsigned long long)key);
    }
    shmi_put(e.hold, next);
    shmi_wakes_init(&b);
    shmi_key_resolve(k, &b, e);
    shmi_mon_leave(&k->m, &b);
    return 0;
}
int shmsync_multilock_recover(shmsync_multilock *m, uint64_t key, int (*repair)(void *), void *arg)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    shmsync_hold hold;
    int err = shmi_multi_bucket(m->impl, key, &k);
    if (repair == NULL && err == 0)
        err = shmi_fail(EINVAL, "multilock.recover", k->m.queueLock.called, "without a repair");
    while (err == 0) {
        struct shmi_key_entry e;
        uint64_t h;
        err = shmi_mon_enter(&k->m, 0);
        if (err != 0)
            break;
        e = shmi_key_find(k, key);
        h = e.hold != NULL ? shmi_get(e.hold) : 0;
        if ((shmi_hold_kind(h) == SHMI_kindOwnerDead && shmi_hold_name(h) != 0) || shmi_hold_owner(h) == SHMI_OWNER_NOT_RECOVERABLE) {
            shmi_participant_id died = shmi_hold_died(h);
            uint64_t next = shmi_make_hold(SHMI_kindNotRecoverable, 0, died);
            int failed;
            if (shmi_hold_kind(h) == SHMI_kindOwnerDead && !shmi_gone(k->m.a, died)) {
                shmi_mon_leave(&k->m, NULL);
                err = shmi_await_gone(k->m.a, died, "multilock.recover", k->m.queueLock.called, 0);
                continue;
            }
            h = shmi_key_new_hold(k, SHMI_kindRecovering);
            shmi_put(e.hold, h);
            SHMSYNC_CRASHPOINT("multilock.recover.taken");
            shmi_mon_leave(&k->m, NULL);
            failed = shmi_call_repair(repair, arg);
            if (failed == 0) {
                SHMSYNC_CRASHPOINT("multilock.recover.repaired");
                next = shmi_hold_passing(h);
            }
            err = shmi_key_end_recover(k, key, h, next);
            return SHMI_TELL(err != 0 || failed == 0 ? err : shmi_fail_who(k->m.a, ENOTRECOVERABLE, "multilock.recover", k->m.queueLock.called, died));
        }
        err = shmi_key_lock_slow(k, 0, key, &hold);
        if (err == 0)
            return SHMI_TELL(shmsync_multilock_unlock(&hold));
        if (err == EOWNERDEAD || err == ENOTRECOVERABLE)
            err = 0;
    }
    return SHMI_TELL(err);
}
int shmsync_multilock_state(shmsync_multilock *m, uint64_t key)
{
    SHMI_OPENED(m);
    struct shmi_key_bucket *k = NULL;
    struct shmi_key_walk v;
    struct shmi_key_entry e;
    uint64_t h = 0, now;
    int err = shmi_use(m->impl->a, "multilock.state");
    if (err == 0)
        err = shmi_multi_bucket(m->impl, key, &k);
    if (err != 0)
        return SHMI_TELL(err);
    for (v = shmi_walk_keys(k, 1); shmi_next_key(k, &v, &e);) {
        now = shmi_get(e.hold);
        if (!shmi_hold_free(now) && shmi_get(e.key) == key)
            h = now;
    }
    if (h == 0 || shmi_hold_kind(h) == SHMI_keyBiased)
        return 0;
    return SHMI_TELL(shmi_key_fail(&k->m, "multilock.state", key, shmi_hold_result(h), shmi_hold_died(h)));
}

/* Whether a bucket has nothing that a death could have left. */
SHMI_FN int shmi_bucket_quiet(shmi_multilock_bucket *w)
{
    uint32_t i;
    if (shmi_ld32(&w->mon.queueLock.owner) != 0 || shmi_ld32(&w->mon.queueLock.starving) != 0 || shmi_get(&w->spilled) != 0)
        return 0;
    for (i = 0; i < SHMI_multiInline; i++)
        if (!shmi_hold_free(shmi_get(&w->entries[3 * i + 1])))
            return 0;
    return 1;
}
SHMI_FN shmi_multilock_bucket *shmi_bucket_words(struct shmi_multilock *x, uint32_t i)
{
    return (shmi_multilock_bucket *)shmi_ptr(x->a, shmi_bucket_at(&x->o, i), sizeof(shmi_multilock_bucket), 8);
}
/* Takes back what dead has. Every wait is for a key that has an entry, so that a quiet bucket has nothing of it. */
SHMI_FN void shmi_repair_multilock(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_multilock x;
    struct shmi_key_bucket k;
    uint32_t i;
    if (!shmi_multi_shape(&x, a, o))
        return;
    for (i = 0; i < UINT32_C(1) << x.log; i++)
        if (!shmi_bucket_quiet(shmi_bucket_words(&x, i))) {
            shmi_bucket_init(&k, &x, i);
            shmi_mon_repair(&k.m, dead);
        }
}
SHMI_FN void shmi_wake_multilock(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_multilock x;
    uint32_t i;
    if (!shmi_multi_shape(&x, a, o))
        return;
    for (i = 0; i < UINT32_C(1) << x.log; i++)
        shmi_mutex_wake_words(a, &shmi_bucket_words(&x, i)->mon.queueLock, owed);
}

/*
 * SignalWaker, its gates and signals: prims/signal*.go in C, docs/design/0009-signalwaker.md.
 * The gates are the truth; the bits of the signals, the summary and the permits are an index
 * over them, which may say too much, and says too little only within an operation.
 */

#define SHMI_SIGNAL_BITS 64U
#define SHMI_SIGNAL_READY (SHMI_SIGNAL_GATE_SCHEDULED_MASK | SHMI_SIGNAL_GATE_EXECUTING_MASK)
#define SHMI_SIGNAL_EPOCH (UINT64_C(1) << SHMI_SIGNAL_GATE_EPOCH_SHIFT)
#define SHMI_SIGNAL_CHECK 256U /* gates that a look goes through */
#define SHMI_SIGNAL_PASSES 64 /* how often next goes through the summary before it leaves the rest to another */

struct shmi_signalwaker {
    shmsync_arena *a;
    shmi_object o;
    const char *called; /* NULL: anonymous */
    shmi_signal_words *w;
    shmi_signal_line *lines;
    shmi_signal_gate *gates;
    shmi_signal_row *rows; /* by slot - 1 */
    uint32_t n_lines, n_gates, n_rows;
    uint64_t mask; /* the bits of the summary that stand for a signal */
    shmi_wait_list wake_word;
    int counting;
    uint32_t cursor; /* the next slice of gates to look at. Atomic. */
    int64_t looked;
};

SHMI_FN uint64_t shmi_signal_bytes(uint32_t signals, uint32_t rows)
{
    return sizeof(shmi_signal_words) + (uint64_t)signals * (sizeof(shmi_signal_line) + SHMI_SIGNAL_BITS * sizeof(shmi_signal_gate)) +
           (uint64_t)rows * sizeof(shmi_signal_row);
}

/* Views the words of an object; 0 if its head says what its size does not allow. */
SHMI_FN int shmi_signal_view(struct shmi_signalwaker *w, shmsync_arena *a, const shmi_object *o)
{
    shmi_signal_words *head = (shmi_signal_words *)shmi_try_at(a, o->body, sizeof *head, 8);
    uint32_t config, signals, rows;
    if (head == NULL || o->size < sizeof *head)
        return 0;
    config = shmi_ld32(&head->config);
    signals = config & SHMI_SIGNAL_SIGNALS_MASK;
    rows = shmi_ld32(&head->rows);
    if (signals == 0)
        signals = SHMI_SIGNAL_BITS;
    if (signals > SHMI_SIGNAL_BITS || rows != a->geo.slots || o->size < shmi_signal_bytes(signals, rows))
        return 0;
    memset(w, 0, sizeof *w);
    w->a = a;
    w->o = *o;
    w->called = o->name_len != 0 ? w->o.name : NULL;
    w->w = head;
    w->n_lines = signals;
    w->n_gates = signals * SHMI_SIGNAL_BITS;
    w->n_rows = rows;
    w->lines = (shmi_signal_line *)(void *)(head + 1);
    w->gates = (shmi_signal_gate *)(void *)(w->lines + w->n_lines);
    w->rows = (shmi_signal_row *)(void *)(w->gates + w->n_gates);
    w->mask = UINT64_MAX >> (SHMI_SIGNAL_BITS - signals);
    w->wake_word.word = &head->wake;
    w->wake_word.poller = &head->poller;
    w->counting = (config & SHMI_SIGNAL_COUNT_MASK) != 0;
    return 1;
}

SHMI_FN int shmi_signal_popcount(uint64_t v) { return __builtin_popcountll(v); }

int shmsync_nearest_bit(uint64_t bitmap, int start)
{
    uint64_t up, down;
    int above = 64, below = 64;
    if (bitmap == 0 || start >= 64 || start < 0)
        return 64;
    up = bitmap >> start;
    down = bitmap << (63 - start);
    if (up != 0)
        above = __builtin_ctzll(up);
    if (down != 0)
        below = __builtin_clzll(down);
    if (above < below)
        return start + above;
    return below == 64 ? 64 : start - below;
}

/* The word of a gate. */

SHMI_FN shmi_participant_id shmi_gate_executor(uint64_t g) { return (shmi_participant_id)(g & SHMI_SIGNAL_GATE_EXECUTOR_MASK); }
SHMI_FN int shmi_gate_scheduled(uint64_t g) { return (g & SHMI_SIGNAL_GATE_SCHEDULED_MASK) != 0; }
SHMI_FN int shmi_gate_executing(uint64_t g) { return (g & SHMI_SIGNAL_GATE_EXECUTING_MASK) != 0; }
/* Whether it waits for an executor. */
SHMI_FN int shmi_gate_ready(uint64_t g) { return (g & SHMI_SIGNAL_READY) == SHMI_SIGNAL_GATE_SCHEDULED_MASK; }
/* Whether nothing is to be done, and nobody does anything. */
SHMI_FN int shmi_gate_idle(uint64_t g) { return (g & SHMI_SIGNAL_READY) == 0; }
/* The word of the next execution, by n. */
SHMI_FN uint64_t shmi_gate_begun(uint64_t g, shmi_participant_id n)
{
    return ((g + SHMI_SIGNAL_EPOCH) & SHMI_SIGNAL_GATE_EPOCH_MASK) | SHMI_SIGNAL_GATE_EXECUTING_MASK | n;
}
/* The word after an execution; with again it is scheduled whether or not something came meanwhile. */
SHMI_FN uint64_t shmi_gate_finished(uint64_t g, int again)
{
    return (g & (SHMI_SIGNAL_GATE_EPOCH_MASK | SHMI_SIGNAL_GATE_SCHEDULED_MASK)) | (again ? SHMI_SIGNAL_GATE_SCHEDULED_MASK : 0);
}
/* The word after the death of its executor. */
SHMI_FN uint64_t shmi_gate_orphaned(uint64_t g)
{
    return ((g + SHMI_SIGNAL_EPOCH) & SHMI_SIGNAL_GATE_EPOCH_MASK) | SHMI_SIGNAL_GATE_SCHEDULED_MASK;
}

/* ---- Counts of this process ---- */

SHMI_FN shmi_signal_row *shmi_signal_own_row(struct shmi_signalwaker *w) { return &w->rows[w->a->my_slot - 1]; }
/* Counts what an operation does. */
SHMI_FN void shmi_signal_add(struct shmi_signalwaker *w, int stat, uint64_t n)
{
    if (w->counting)
        shmi_add64(&shmi_signal_own_row(w)->stats[stat], n);
}

SHMI_FN uint64_t shmi_row_workers(uint64_t c) { return (c & SHMI_SIGNAL_ROW_WORKERS_MASK) >> SHMI_SIGNAL_ROW_WORKERS_SHIFT; }
SHMI_FN uint64_t shmi_row_sleepers(uint64_t c) { return c >> SHMI_SIGNAL_ROW_SLEEPERS_SHIFT; }
SHMI_FN shmi_participant_id shmi_row_name(uint64_t c) { return (shmi_participant_id)(c & SHMI_SIGNAL_ROW_NAME_MASK); }

/* Counts one up or down, of the sleepers or of the workers; 0 if that cannot be. The count that the
 * slot's previous participant left there is not taken over. */
SHMI_FN int shmi_signal_counter(struct shmi_signalwaker *w, int sleeper, int up)
{
    uint64_t *word = &shmi_signal_own_row(w)->count, one = UINT64_C(1) << (sleeper ? SHMI_SIGNAL_ROW_SLEEPERS_SHIFT : SHMI_SIGNAL_ROW_WORKERS_SHIFT);
    uint64_t most = (sleeper ? SHMI_SIGNAL_ROW_SLEEPERS_MASK : SHMI_SIGNAL_ROW_WORKERS_MASK) / one;
    for (;;) {
        uint64_t old = shmi_ld64(word), c = old, have;
        if (shmi_row_name(c) != w->a->self)
            c = w->a->self;
        have = sleeper ? shmi_row_sleepers(c) : shmi_row_workers(c);
        if (have == (up ? most : 0))
            return 0;
        if (shmi_cas64(word, old, up ? c + one : c - one))
            return 1;
    }
}
SHMI_FN uint64_t shmi_signal_sleepers(struct shmi_signalwaker *w)
{
    uint64_t n = 0;
    uint32_t i;
    for (i = 0; i < w->n_rows; i++) {
        uint64_t c = shmi_ld64(&w->rows[i].count);
        if (c != 0 && shmi_id_slot(shmi_row_name(c)) == i + 1 && shmi_current(w->a, shmi_row_name(c)))
            n += shmi_row_sleepers(c);
    }
    return n;
}

/* ---- Permits ---- */

SHMI_FN shmi_tuning shmi_signal_tuning(struct shmi_signalwaker *w)
{
    shmi_tuning t;
    t.budget = &w->w->spin;
    t.pays = &w->w->pays;
    t.last_cpu = &w->w->lastCPU;
    t.slot = w->a->my_slot;
    return t;
}

/* Wakes up to n waiters, after as many permits were issued. The first wake goes by the
 * announcement; for more of them the number of sleepers is no more than a hint, since each that
 * takes a permit passes the wake on while there are others. */
SHMI_FN void shmi_signal_rouse(struct shmi_signalwaker *w, uint64_t n)
{
    shmi_tuning t = shmi_signal_tuning(w);
    uint64_t sleepers;
    uint32_t k;
    if (!shmi_wake_word_announced(&w->wake_word))
        return;
    shmi_note_cpu(&t);
    shmi_wake_word_release(w->a, &w->wake_word);
    if (n <= 1)
        return;
    sleepers = shmi_signal_sleepers(w);
    for (k = 0; k + UINT64_C(1) < n && k + UINT64_C(1) < sleepers; k++)
        shmi_deliver_one(w->a, &w->wake_word, k);
}
/* Issues n permits, n > 0. */
SHMI_FN void shmi_signal_release(struct shmi_signalwaker *w, uint64_t n)
{
    shmi_add64(&w->w->permits, n);
    SHMSYNC_CRASHPOINT("signal.release.permitted");
    shmi_signal_rouse(w, n);
}
SHMI_FN int shmi_signal_take(struct shmi_signalwaker *w)
{
    for (;;) {
        uint64_t p = shmi_ld64(&w->w->permits);
        if (p == 0)
            return 0;
        if (shmi_cas64(&w->w->permits, p, p - 1))
            return 1;
    }
}
/* The step of a waiter that leaves: its wake has taken the announcement down, for other sleepers as
 * well. So it is put up again; and if there are more permits, a sleeper is woken. */
SHMI_FN void shmi_signal_pass_on(struct shmi_signalwaker *w)
{
    shmi_wake_word_announce(&w->wake_word);
    if (shmi_ld64(&w->w->permits) != 0)
        shmi_wake_word_release(w->a, &w->wake_word);
}
/* Makes sure that there are as many permits as the index has reasons for them: for a permit that
 * a dead process took, or owed, and did nothing with. */
SHMI_FN void shmi_signal_restock(struct shmi_signalwaker *w, uint64_t least)
{
    uint64_t need = (uint64_t)(shmi_signal_popcount(shmi_ld64(&w->w->summary) & w->mask) +
                               shmi_signal_popcount(shmi_ld64(&w->w->status) & (SHMI_SIGNAL_STATUS_YIELD_MASK | SHMI_SIGNAL_STATUS_TASKS_MASK)));
    if (need < least)
        need = least;
    for (;;) {
        uint64_t p = shmi_ld64(&w->w->permits);
        if (p >= need)
            return;
        if (shmi_cas64(&w->w->permits, p, need)) {
            shmi_signal_rouse(w, need - p);
            return;
        }
    }
}

/* ---- The index ---- */

/* If the bit is found set, the process that set it issues the permit, and a process that clears it
 * looks at the signal after that: the queue's bit was set before the look here. */
SHMI_FN int shmi_signal_mark(struct shmi_signalwaker *w, uint32_t i)
{
    uint64_t m = UINT64_C(1) << i;
    if ((shmi_ld64(&w->w->summary) & m) != 0 || (shmi_or64(&w->w->summary, m) & m) != 0)
        return 0;
    SHMSYNC_CRASHPOINT("signal.mark.marked");
    shmi_signal_release(w, 1);
    return 1;
}
/* Takes a signal out of the summary if it has no bits. A bit that is set meanwhile is found by the second check. */
SHMI_FN int shmi_signal_unmark_empty(struct shmi_signalwaker *w, uint32_t i)
{
    uint64_t m = UINT64_C(1) << i;
    int was;
    if (shmi_ld64(&w->lines[i].bits) != 0 || (shmi_ld64(&w->w->summary) & m) == 0)
        return 0;
    was = (shmi_and64(&w->w->summary, ~m) & m) != 0;
    SHMSYNC_CRASHPOINT("signal.unmark.cleared");
    if (shmi_ld64(&w->lines[i].bits) != 0) {
        shmi_signal_mark(w, i);
        return 0;
    }
    return was;
}
SHMI_FN int shmi_signal_mark_status(struct shmi_signalwaker *w, uint64_t m)
{
    if ((shmi_ld64(&w->w->status) & m) != 0 || (shmi_or64(&w->w->status, m) & m) != 0)
        return 0;
    SHMSYNC_CRASHPOINT("signal.status.marked");
    shmi_signal_release(w, 1);
    return 1;
}
SHMI_FN int shmi_signal_unmark_status(struct shmi_signalwaker *w, uint64_t m)
{
    return (shmi_ld64(&w->w->status) & m) != 0 && (shmi_and64(&w->w->status, ~m) & m) != 0;
}

/* Sets the bit of queue q and that of its signal, whatever it finds: the process that set the signal's
 * first bit may be stopped before it came to the summary. */
SHMI_FN void shmi_signal_publish(struct shmi_signalwaker *w, uint32_t q)
{
    shmi_or64(&w->lines[q / SHMI_SIGNAL_BITS].bits, UINT64_C(1) << q % SHMI_SIGNAL_BITS);
    SHMSYNC_CRASHPOINT("signal.publish.bit_set");
    shmi_signal_mark(w, q / SHMI_SIGNAL_BITS);
}
/* Clears the bit of a queue that the caller executes, and the signal's if that was the last. */
SHMI_FN void shmi_signal_clear(struct shmi_signalwaker *w, uint32_t q)
{
    uint64_t *bits = &w->lines[q / SHMI_SIGNAL_BITS].bits, m = UINT64_C(1) << q % SHMI_SIGNAL_BITS;
    if ((shmi_ld64(bits) & m) != 0 && (shmi_and64(bits, ~m) & ~m) == 0)
        shmi_signal_unmark_empty(w, q / SHMI_SIGNAL_BITS);
}
/* Clears a bit whose gate does not wait. The gate may be scheduled, and the bit set for cause, just
 * before it is cleared: so the gate is looked at once more. */
SHMI_FN void shmi_signal_drop(struct shmi_signalwaker *w, uint32_t q)
{
    uint64_t m = UINT64_C(1) << q % SHMI_SIGNAL_BITS, left = shmi_and64(&w->lines[q / SHMI_SIGNAL_BITS].bits, ~m) & ~m;
    SHMSYNC_CRASHPOINT("signal.drop.cleared");
    if (shmi_gate_ready(shmi_ld64(&w->gates[q].word)))
        shmi_signal_publish(w, q);
    else if (left == 0)
        shmi_signal_unmark_empty(w, q / SHMI_SIGNAL_BITS);
}

/* ---- The reap: it makes the index good from the gates ---- */

/* Schedules the queue again if its executor is dead and gone, and sets the bits that a scheduled one must
 * have. dead is the participant that is reaped; 0: a periodic check, which asks for each executor. */
SHMI_FN void shmi_signal_reap_gate(struct shmi_signalwaker *w, uint32_t q, shmi_participant_id dead)
{
    uint64_t *word = &w->gates[q].word, s;
    for (;;) {
        shmi_participant_id n;
        s = shmi_ld64(word);
        n = shmi_gate_executor(s);
        if (shmi_gate_executing(s) && (dead != 0 ? shmi_reaps(w->a, dead, n) || !shmi_current(w->a, n) : shmi_dead(w->a, n)) && shmi_gone(w->a, n)) {
            if (!shmi_take_from64(w->a, n, word, s, shmi_gate_orphaned(s), 1))
                continue;
            SHMSYNC_CRASHPOINT("signal.reap.released");
            shmi_signal_publish(w, q);
        } else if (shmi_gate_ready(s) && (shmi_ld64(&w->lines[q / SHMI_SIGNAL_BITS].bits) & UINT64_C(1) << q % SHMI_SIGNAL_BITS) == 0) {
            shmi_signal_publish(w, q); /* its producer, or the worker that acquired the bit, is in between, or is dead */
        }
        return;
    }
}
/* Frees what dead had reserved, and the bit of what nobody has. */
SHMI_FN void shmi_signal_reap_task(struct shmi_signalwaker *w, uint32_t q, shmi_participant_id dead)
{
    uint32_t *task = &w->gates[q].task, n = shmi_ld32(task);
    uint64_t *bits = &w->lines[q / SHMI_SIGNAL_BITS].tasks, m = UINT64_C(1) << q % SHMI_SIGNAL_BITS;
    if (shmi_reaps(w->a, dead, n & SHMI_NAME_MASK) && shmi_take_from32(w->a, n & SHMI_NAME_MASK, task, n, 0, 0)) {
        SHMSYNC_CRASHPOINT("signal.reap.unreserved");
        n = 0;
    }
    if (n == 0 && (shmi_ld64(bits) & m) != 0)
        shmi_and64(bits, ~m);
}
/* Marks the signals that have bits, and the tasks of a partition that has leaves. */
SHMI_FN void shmi_signal_reap_index(struct shmi_signalwaker *w)
{
    uint32_t i;
    for (i = 0; i < w->n_lines; i++)
        if (shmi_ld64(&w->lines[i].bits) != 0)
            shmi_signal_mark(w, i);
    if (shmi_ld64(&w->w->partition) != 0)
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
}
/* Makes up for what a stopped or dead process owes, ten times a second. */
SHMI_FN void shmi_signal_check(struct shmi_signalwaker *w)
{
    uint32_t q, n;
    if (!shmi_check_due(&w->looked))
        return;
    q = shmi_add32(&w->cursor, 1) * SHMI_SIGNAL_CHECK % w->n_gates;
    for (n = 0; n < SHMI_SIGNAL_CHECK && q < w->n_gates; n++, q++)
        shmi_signal_reap_gate(w, q, 0);
    shmi_signal_reap_index(w);
    shmi_signal_restock(w, 0);
    if (shmi_ld64(&w->w->permits) != 0)
        shmi_wake_word_wake_one(w->a, &w->wake_word);
    shmi_wake_word_announce(&w->wake_word);
}

/* The reaper's side. A worker that finds a bit that is set for nothing clears it, a permit that is too
 * many costs a look. */
SHMI_FN void shmi_repair_signals(shmsync_arena *a, const shmi_object *o, shmi_participant_id dead)
{
    struct shmi_signalwaker w;
    uint32_t q, slot = shmi_id_slot(dead);
    if (!shmi_signal_view(&w, a, o))
        return;
    for (q = 0; q < w.n_gates; q++) {
        shmi_signal_reap_gate(&w, q, dead);
        shmi_signal_reap_task(&w, q, dead);
    }
    shmi_signal_reap_index(&w);
    if (slot >= 1 && slot <= w.n_rows) {
        uint64_t *count = &w.rows[slot - 1].count, c = shmi_ld64(count);
        if (shmi_reaps(a, dead, shmi_row_name(c)))
            shmi_take_from64(a, shmi_row_name(c), count, c, 0, 0);
    }
    /* The dead may have taken a permit and not acted on it, or have set a bit in some leaf and not
     * told the leaf's owner, which looks when it gets up. */
    shmi_signal_restock(&w, shmi_wake_word_announced(&w.wake_word) || shmi_signal_sleepers(&w) > 0);
}
SHMI_FN void shmi_wake_signals(shmsync_arena *a, const shmi_object *o, int owed)
{
    struct shmi_signalwaker w;
    if (!shmi_signal_view(&w, a, o))
        return;
    if (owed == SHMI_OWED_ALL)
        shmi_wake_word_wake_all(a, &w.wake_word);
    else if (owed == SHMI_OWED_ONE || shmi_wake_word_announced(&w.wake_word))
        shmi_wake_word_wake_one(a, &w.wake_word);
}

/* ---- Handles ---- */

typedef struct shmi_signal_spec {
    uint32_t config, rows, spin;
} shmi_signal_spec;
SHMI_FN void shmi_signal_fill(unsigned char *body, const void *arg)
{
    shmi_signal_words *w = (shmi_signal_words *)(void *)body;
    const shmi_signal_spec *s = (const shmi_signal_spec *)arg;
    w->config = s->config;
    w->rows = s->rows;
    w->spin = s->spin;
}
SHMI_FN void *shmi_signal_build(shmsync_arena *a, const shmi_object *o, const void *arg)
{
    struct shmi_signalwaker *w = (struct shmi_signalwaker *)shmi_new_thing(sizeof *w);
    (void)arg;
    if (w != NULL && !shmi_signal_view(w, a, o)) {
        shmi_free_thing(w);
        w = NULL;
    }
    return w;
}
/* Gives this process's handle on an object that has been opened, if it is as asked for. */
SHMI_FN int shmi_signal_handle(shmsync_arena *a, const shmi_object *o, uint32_t signals, shmsync_signalwaker *out)
{
    struct shmi_signalwaker w;
    int err = 0;
    if (!shmi_signal_view(&w, a, o))
        err = shmi_fail(EPROTO, "signalwaker.open", shmi_called(o), "its head says what its size does not allow");
    else if (signals != 0 && signals != w.n_lines)
        err = shmi_fail(EINVAL, "signalwaker.open", shmi_called(o), "it has %u signals, asked for %u", w.n_lines, signals);
    if (err != 0) {
        shmi_close_object(a, o->off);
        return err;
    }
    return SHMI_HAND_OUT(out, struct shmi_signalwaker *, shmi_share(a, o, shmi_signal_build, NULL));
}
SHMI_FN int shmi_open_signalwaker(int existing, shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    uint32_t signals = opts != NULL ? (uint32_t)opts->signals : 0;
    int count = opts != NULL && opts->count, created, err;
    shmi_signal_spec init;
    shmi_spec spec;
    shmi_object o;
    out->impl = NULL;
    if (signals > SHMI_SIGNAL_BITS)
        return shmi_fail(EINVAL, "signalwaker.open", name, "of %d signals: 1 to 64 are possible", opts->signals);
    init.config = (signals != 0 ? signals : SHMI_SIGNAL_BITS) | (count ? (uint32_t)SHMI_SIGNAL_COUNT_MASK : 0);
    init.rows = a->geo.slots;
    init.spin = opts != NULL ? shmi_spin_field(opts->spin_ns) : 0;
    shmi_mon_spec(&spec, SHMI_KIND_SIGNAL_WAKER, SHMI_VERSION_SIGNAL_WAKER, name, shmi_signal_bytes(signals != 0 ? signals : SHMI_SIGNAL_BITS, a->geo.slots));
    spec.any_size = 1;
    spec.init = shmi_signal_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_signal_handle(a, &o, signals, out);
}
int shmsync_signalwaker_open(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_signalwaker(0, a, name, opts, out));
}
int shmsync_signalwaker_attach(shmsync_arena *a, const char *name, const shmsync_signalwaker_options *opts, shmsync_signalwaker *out)
{
    SHMI_BEGIN();
    return SHMI_TELL(shmi_open_signalwaker(1, a, name, opts, out));
}
int shmsync_signalwaker_at(shmsync_arena *a, shmsync_offset off, shmsync_signalwaker *out)
{
    SHMI_BEGIN();
    shmi_object o;
    int err = shmi_object_at(a, off, "signalwaker.open", SHMI_KIND_SIGNAL_WAKER, SHMI_VERSION_SIGNAL_WAKER, sizeof(shmi_signal_words), &o);
    out->impl = NULL;
    return SHMI_TELL(err != 0 ? err : shmi_signal_handle(a, &o, 0, out));
}
shmsync_offset shmsync_signalwaker_offset(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return w->impl->o.off;
}
int shmsync_signalwaker_close(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err;
    if (w->impl == NULL)
        return SHMI_TELL(EBADF);
    err = shmi_unshare(w->impl->a, w->impl->o.off, shmi_mon_free);
    if (err == 0)
        w->impl = NULL;
    return SHMI_TELL(err);
}
int shmsync_signalwaker_signals(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)w->impl->n_lines;
}
int shmsync_signalwaker_queues(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)w->impl->n_gates;
}

/* 0, or ENOTCONN, or EINVAL for what is not one of n. */
SHMI_FN int shmi_signal_use(const struct shmi_signalwaker *w, const char *op, const char *what, int i, uint32_t n)
{
    int err = shmi_use(w->a, op);
    if (err == 0 && SHMI_UNLIKELY(i < 0 || (uint32_t)i >= n))
        err = shmi_fail(EINVAL, op, w->called, "%s %d of %u", what, i, n);
    return err;
}

/* ---- Gates ---- */

int shmsync_signalwaker_gate(const shmsync_signalwaker *w, int queue, shmsync_gate *out)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.gate", "queue", queue, w->impl->n_gates);
    if (err != 0)
        return SHMI_TELL(err);
    out->impl = w->impl;
    out->serial = w->serial;
    out->queue = (uint32_t)queue;
    out->running = 0;
    return 0;
}

int shmsync_gate_schedule(shmsync_gate *g, int *scheduled)
{
    SHMI_OPENED(g);
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    int err = shmi_use(w->a, "gate.schedule");
    if (scheduled != NULL)
        *scheduled = 0;
    /* What was put into the queue by a release store alone is there before the gate is
     * looked at: the executor that has just gone looked at the queue before it went. */
    shmi_full_fence();
    while (err == 0) {
        uint64_t s = shmi_ld64(word);
        if (shmi_gate_scheduled(s))
            break;
        if (shmi_cas64(word, s, s | SHMI_SIGNAL_GATE_SCHEDULED_MASK)) {
            if (shmi_gate_executing(s))
                break; /* its executor finds the flag */
            SHMSYNC_CRASHPOINT("signal.schedule.gated");
            shmi_signal_publish(w, g->queue);
            if (scheduled != NULL)
                *scheduled = 1;
            break;
        }
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
    }
    return SHMI_TELL(err);
}

/* Begins the execution of a scheduled queue. The name goes in with the flag, and before the bit is
 * cleared: a process that dies here has left word that it was the executor. */
SHMI_FN int shmi_gate_begin(shmsync_gate *g)
{
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    for (;;) {
        uint64_t s = shmi_ld64(word), next;
        if (!shmi_gate_ready(s))
            return 0;
        next = shmi_gate_begun(s, w->a->self);
        if (shmi_cas64(word, s, next)) {
            g->running = next;
            shmi_signal_add(w, SHMSYNC_STAT_TASKS_POLLED, 1);
            SHMSYNC_CRASHPOINT("signal.begin.taken");
            shmi_signal_clear(w, g->queue);
            SHMSYNC_CRASHPOINT("signal.begin.cleared");
            return 1;
        }
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
    }
}
int shmsync_gate_begin(shmsync_gate *g)
{
    SHMI_OPENED(g);
    int err = shmi_use(g->impl->a, "gate.begin");
    return SHMI_TELL(err != 0 ? err : shmi_gate_begin(g) ? 0 : EBUSY);
}
int shmsync_gate_trybegin_inline(shmsync_gate *g)
{
    SHMI_OPENED(g);
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word, s, next;
    int err = shmi_use(w->a, "gate.trybegin_inline");
    if (err != 0)
        return SHMI_TELL(err);
    s = shmi_ld64(word);
    if (!shmi_gate_idle(s))
        return SHMI_TELL(EBUSY);
    next = shmi_gate_begun(s, w->a->self);
    if (!shmi_cas64(word, s, next)) {
        shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
        return SHMI_TELL(EBUSY);
    }
    g->running = next;
    shmi_signal_add(w, SHMSYNC_STAT_TASKS_POLLED, 1);
    return 0;
}

SHMI_FN int shmi_gate_finish(shmsync_gate *g, const char *op, int again, int *scheduled)
{
    struct shmi_signalwaker *w = g->impl;
    uint64_t *word = &w->gates[g->queue].word;
    int err = shmi_use(w->a, op);
    *scheduled = 0;
    if (err != 0)
        return err;
    for (;;) {
        uint64_t s = shmi_ld64(word), next;
        if (g->running == 0 || (s & ~SHMI_SIGNAL_GATE_SCHEDULED_MASK) != g->running)
            return shmi_fail(EPERM, op, w->called, "queue %u, by a handle that does not execute it: the gate is %#llx", g->queue, (unsigned long long)s);
        next = shmi_gate_finished(s, again);
        if (!shmi_cas64(word, s, next)) {
            shmi_signal_add(w, SHMSYNC_STAT_CAS_FAILURES, 1);
            continue;
        }
        g->running = 0;
        *scheduled = shmi_gate_scheduled(next);
        if (again)
            shmi_signal_add(w, SHMSYNC_STAT_YIELDED, 1);
        else if (!*scheduled)
            shmi_signal_add(w, SHMSYNC_STAT_COMPLETED, 1);
        if (*scheduled) {
            SHMSYNC_CRASHPOINT("signal.finish.released");
            shmi_signal_publish(w, g->queue);
        }
        return 0;
    }
}
int shmsync_gate_finish(shmsync_gate *g, int *again)
{
    SHMI_OPENED(g);
    int scheduled, err = shmi_gate_finish(g, "gate.finish", 0, &scheduled);
    if (again != NULL)
        *again = scheduled;
    return SHMI_TELL(err);
}
int shmsync_gate_finish_and_schedule(shmsync_gate *g)
{
    SHMI_OPENED(g);
    int scheduled;
    return SHMI_TELL(shmi_gate_finish(g, "gate.finish_and_schedule", 1, &scheduled));
}
int shmsync_gate_state(const shmsync_gate *g, shmsync_gate_info *out)
{
    SHMI_OPENED(g);
    uint64_t s;
    int err = shmi_use(g->impl->a, "gate.state");
    memset(out, 0, sizeof *out);
    if (err != 0)
        return SHMI_TELL(err);
    s = shmi_ld64(&g->impl->gates[g->queue].word);
    out->scheduled = shmi_gate_scheduled(s);
    out->executing = shmi_gate_executing(s);
    out->epoch = (uint32_t)(s >> SHMI_SIGNAL_GATE_EPOCH_SHIFT);
    out->known = out->executing && shmi_who(g->impl->a, shmi_gate_executor(s), &out->executor) == 0;
    return 0;
}

/* Goes once through the signals in active. */
SHMI_FN int shmi_signal_pass(struct shmi_signalwaker *w, uint64_t active, uint32_t near_queue, shmsync_gate *g)
{
    int first = (int)(near_queue / SHMI_SIGNAL_BITS);
    while (active != 0) {
        int i = shmsync_nearest_bit(active, first), start = i == first ? (int)(near_queue % SHMI_SIGNAL_BITS) : 0;
        uint64_t set = shmi_ld64(&w->lines[i].bits);
        active &= ~(UINT64_C(1) << i);
        shmi_signal_add(w, SHMSYNC_STAT_SIGNAL_POLLS, 1);
        if (set == 0)
            shmi_signal_unmark_empty(w, (uint32_t)i);
        while (set != 0) {
            int bit = shmsync_nearest_bit(set, start);
            set &= ~(UINT64_C(1) << bit);
            g->queue = (uint32_t)i * SHMI_SIGNAL_BITS + (uint32_t)bit;
            if (shmi_gate_begin(g))
                return 1;
            shmi_signal_drop(w, g->queue);
        }
    }
    return 0;
}
int shmsync_signalwaker_next(shmsync_signalwaker *waker, int near_queue, shmsync_gate *out)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    shmsync_gate g;
    int passes, err = shmi_signal_use(w, "signalwaker.next", "queue", near_queue, w->n_gates);
    if (err != 0)
        return SHMI_TELL(err);
    g.impl = w;
    g.serial = waker->serial;
    g.queue = 0;
    g.running = 0;
    for (passes = 0; passes < SHMI_SIGNAL_PASSES; passes++) {
        uint64_t active = shmi_ld64(&w->w->summary) & w->mask;
        if (active == 0) {
            shmi_signal_add(w, SHMSYNC_STAT_EMPTY_SCANS, 1);
            return SHMI_TELL(EBUSY);
        }
        if (shmi_signal_pass(w, active, (uint32_t)near_queue, &g)) {
            /* For other scheduled queues, if a worker sleeps and there is no permit: this
             * execution may take for ever. */
            if ((shmi_ld64(&w->w->summary) & w->mask) != 0 && shmi_ld64(&w->w->permits) == 0 && shmi_wake_word_announced(&w->wake_word))
                shmi_signal_release(w, 1);
            *out = g;
            return 0;
        }
        /* The bit was stale, and is cleared away. Something may have been scheduled meanwhile
         * for a signal that was marked all the time, for which there is no permit: look again. */
    }
    shmi_signal_release(w, 1); /* the worker that takes it looks on */
    shmi_signal_add(w, SHMSYNC_STAT_EMPTY_SCANS, 1);
    return SHMI_TELL(EBUSY);
}

/* ---- Waiting for permits ---- */

SHMI_FN int shmi_signal_permitted(void *w) { return shmi_ld64(&((struct shmi_signalwaker *)w)->w->permits) != 0; }

/* The wake word closes the gap between the look at the permits and the sleep: a waiter announces
 * itself in it, looks, and sleeps only while it is what it was; an issuer of a permit looks at the
 * word after that, and changes it if it is announced. */
SHMI_FN int shmi_signal_await(struct shmi_signalwaker *w, int64_t abs)
{
    int64_t since = 0;
    for (;;) {
        uint32_t v = shmi_wake_word_announce(&w->wake_word);
        shmi_sleep_spec sleep_spec;
        int took;
        SHMSYNC_CRASHPOINT("signal.acquire.announced");
        if (shmi_signal_take(w)) {
            SHMSYNC_CRASHPOINT("signal.acquire.taken");
            shmi_signal_pass_on(w);
            return 0;
        }
        if ((shmi_ld64(&w->w->summary) & w->mask) != 0) {
            /* There is something to do, and its permit was taken by another worker, which may have
             * been too early to see that there are waiters, and may take its time. */
            shmi_signal_pass_on(w);
            return 0;
        }
        memset(&sleep_spec, 0, sizeof sleep_spec);
        sleep_spec.looked = &w->looked;
        sleep_spec.word = w->wake_word.word;
        sleep_spec.val = v;
        sleep_spec.object = w->o.off;
        sleep_spec.wanted = v;
        sleep_spec.deadline = abs;
        sleep_spec.since = &since;
        switch (shmi_sleep(w->a, &sleep_spec)) {
        case SHMI_AGAIN:
            SHMSYNC_CRASHPOINT("signal.acquire.woken");
            break;
        case SHMI_LOOK:
            shmi_signal_check(w);
            break;
        case SHMI_LATE: /* which may come with a wake that was meant for another */
            took = shmi_signal_take(w);
            shmi_signal_pass_on(w);
            return took ? 0 : ETIMEDOUT;
        default:
            shmi_signal_pass_on(w);
            return shmi_fail(EBADF, "signalwaker.acquire", w->called, "this process closed the arena");
        }
    }
}
SHMI_FN int shmi_signal_acquire(struct shmi_signalwaker *w, int64_t abs)
{
    shmi_tuning t = shmi_signal_tuning(w);
    int err = shmi_use(w->a, "signalwaker.acquire"), counted;
    if (err != 0 || shmi_signal_take(w))
        return err;
    err = shmi_enter(w->a, "signalwaker.acquire");
    if (err != 0)
        return err;
    if (!shmi_spin(&t, shmi_signal_permitted, w) || !shmi_signal_take(w)) {
        counted = shmi_signal_counter(w, 1, 1);
        shmi_signal_add(w, SHMSYNC_STAT_WAITING, 1);
        err = shmi_signal_await(w, abs);
        if (counted)
            shmi_signal_counter(w, 1, 0);
    }
    shmi_exit(w->a);
    return err;
}
int shmsync_signalwaker_acquire(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_acquire(w->impl, 0));
}
int shmsync_signalwaker_timedacquire(shmsync_signalwaker *w, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(w);
    int64_t ns;
    int err = shmi_deadline(abs_monotonic, &ns);
    return SHMI_TELL(err != 0 ? err : shmi_signal_acquire(w->impl, ns));
}
int shmsync_signalwaker_tryacquire(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryacquire");
    return SHMI_TELL(err != 0 ? err : shmi_signal_take(w->impl) ? 0 : EBUSY);
}
int shmsync_signalwaker_release(shmsync_signalwaker *w, int64_t n)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.release");
    if (err == 0 && n < 0)
        err = shmi_fail(EINVAL, "signalwaker.release", w->impl->called, "%lld permits", (long long)n);
    if (err == 0 && n > 0)
        shmi_signal_release(w->impl, (uint64_t)n);
    return SHMI_TELL(err);
}
uint64_t shmsync_signalwaker_permits(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->permits);
}
int shmsync_signalwaker_sleepers(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return (int)shmi_signal_sleepers(w->impl);
}
int shmsync_signalwaker_workers(const shmsync_signalwaker *waker)
{
    SHMI_OPENED_OR(waker, 0);
    struct shmi_signalwaker *w = waker->impl;
    uint64_t n = 0;
    uint32_t i;
    for (i = 0; i < w->n_rows; i++) {
        uint64_t c = shmi_ld64(&w->rows[i].count);
        if (c != 0 && shmi_current(w->a, shmi_row_name(c)))
            n += shmi_row_workers(c);
    }
    return (int)n;
}
SHMI_FN int shmi_signal_register(struct shmi_signalwaker *w, const char *op, int sleeper, int up)
{
    int err = shmi_use(w->a, op);
    if (err == 0 && !shmi_signal_counter(w, sleeper, up))
        err = shmi_fail(up ? ENOSPC : EPERM, op, w->called, "%s", up ? "too many" : "none is registered");
    return err;
}
int shmsync_signalwaker_register_sleeper(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_register(w->impl, "signalwaker.register_sleeper", 1, 1));
}
int shmsync_signalwaker_unregister_sleeper(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_register(w->impl, "signalwaker.unregister_sleeper", 1, 0));
}
int shmsync_signalwaker_register_worker(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_register(w->impl, "signalwaker.register_worker", 0, 1));
}
int shmsync_signalwaker_unregister_worker(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_register(w->impl, "signalwaker.unregister_worker", 0, 0));
}

/* What users of a SignalWaker do with its index themselves: signals, summary, status, partitions,
 * reservations, counters. prims/signal_bits.go, signal_summary.go, signal_partition.go, signal_tasks.go. */

/* ---- Signals ---- */

int shmsync_signalwaker_signal(const shmsync_signalwaker *w, int i, shmsync_signal *out)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.signal", "signal", i, w->impl->n_lines);
    if (err != 0)
        return SHMI_TELL(err);
    out->impl = w->impl;
    out->serial = w->serial;
    out->index = (uint32_t)i;
    return 0;
}
SHMI_FN uint64_t *shmi_signal_of(const shmsync_signal *s) { return &s->impl->lines[s->index].bits; }
int shmsync_signal_set_mask(const shmsync_signal *s, uint64_t mask, int *was_empty, uint64_t *set)
{
    SHMI_OPENED(s);
    int err = shmi_use(s->impl->a, "signal.set");
    uint64_t old;
    if (err != 0)
        return SHMI_TELL(err);
    old = shmi_or64(shmi_signal_of(s), mask);
    if (was_empty != NULL)
        *was_empty = old == 0;
    if (set != NULL)
        *set = mask & ~old;
    return 0;
}
int shmsync_signal_set(const shmsync_signal *s, int bit, int *was_empty, int *was_set)
{
    SHMI_OPENED(s);
    uint64_t set = 0;
    int err = shmi_signal_use(s->impl, "signal.set", "bit", bit, SHMI_SIGNAL_BITS);
    if (err == 0)
        err = shmsync_signal_set_mask(s, UINT64_C(1) << bit, was_empty, &set);
    if (err == 0 && was_set != NULL)
        *was_set = set != 0;
    return SHMI_TELL(err);
}
int shmsync_signal_acquire(const shmsync_signal *s, int bit, uint64_t *before)
{
    SHMI_OPENED(s);
    uint64_t m, old;
    int err = shmi_signal_use(s->impl, "signal.acquire", "bit", bit, SHMI_SIGNAL_BITS);
    if (err != 0)
        return SHMI_TELL(err);
    m = UINT64_C(1) << bit;
    old = shmi_ld64(shmi_signal_of(s));
    if ((old & m) != 0)
        old = shmi_and64(shmi_signal_of(s), ~m);
    if (before != NULL)
        *before = old;
    if ((old & m) == 0)
        return SHMI_TELL(EBUSY);
    SHMSYNC_CRASHPOINT("signal.bit.acquired");
    return 0;
}
uint64_t shmsync_signal_load(const shmsync_signal *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld64(shmi_signal_of(s));
}

/* ---- Summary and status ---- */

int shmsync_signalwaker_mark(shmsync_signalwaker *w, int i, int *marked)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.mark", "signal", i, w->impl->n_lines);
    int did = err == 0 && shmi_signal_mark(w->impl, (uint32_t)i);
    if (marked != NULL)
        *marked = did;
    return SHMI_TELL(err);
}
int shmsync_signalwaker_mark_mask(shmsync_signalwaker *waker, uint64_t mask, uint64_t *marked)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    uint64_t fresh = 0;
    int err = shmi_use(w->a, "signalwaker.mark_mask");
    if (err == 0 && (mask & ~w->mask) != 0)
        err = shmi_fail(EINVAL, "signalwaker.mark_mask", w->called, "signals %#llx of %u", (unsigned long long)mask, w->n_lines);
    if (err == 0 && mask != 0)
        fresh = mask & ~shmi_or64(&w->w->summary, mask);
    if (fresh != 0) {
        SHMSYNC_CRASHPOINT("signal.mark.marked");
        shmi_signal_release(w, (uint64_t)shmi_signal_popcount(fresh));
    }
    if (marked != NULL)
        *marked = fresh;
    return SHMI_TELL(err);
}
int shmsync_signalwaker_tryunmark_empty(shmsync_signalwaker *w, int i)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.tryunmark_empty", "signal", i, w->impl->n_lines);
    return SHMI_TELL(err != 0 ? err : shmi_signal_unmark_empty(w->impl, (uint32_t)i) ? 0 : EBUSY);
}
int shmsync_signalwaker_tryunmark(shmsync_signalwaker *w, int i)
{
    SHMI_OPENED(w);
    uint64_t *summary = &w->impl->w->summary, m;
    int err = shmi_signal_use(w->impl, "signalwaker.tryunmark", "signal", i, w->impl->n_lines);
    if (err != 0)
        return SHMI_TELL(err);
    m = UINT64_C(1) << i;
    return SHMI_TELL((shmi_ld64(summary) & m) != 0 && (shmi_and64(summary, ~m) & m) != 0 ? 0 : EBUSY);
}
uint64_t shmsync_signalwaker_summary(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->summary) & w->impl->mask;
}

SHMI_FN int shmi_signal_status(struct shmi_signalwaker *w, const char *op, uint64_t m, int *marked)
{
    int err = shmi_use(w->a, op), did = err == 0 && shmi_signal_mark_status(w, m);
    if (marked != NULL)
        *marked = did;
    return err;
}
SHMI_FN int shmi_signal_unmark_tasks(struct shmi_signalwaker *w)
{
    if (!shmi_signal_unmark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK))
        return 0;
    SHMSYNC_CRASHPOINT("signal.tasks.cleared");
    if (shmi_ld64(&w->w->partition) != 0) {
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
        return 0;
    }
    return 1;
}
int shmsync_signalwaker_mark_yield(shmsync_signalwaker *w, int *marked)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_status(w->impl, "signalwaker.mark_yield", SHMI_SIGNAL_STATUS_YIELD_MASK, marked));
}
int shmsync_signalwaker_mark_tasks(shmsync_signalwaker *w, int *marked)
{
    SHMI_OPENED(w);
    return SHMI_TELL(shmi_signal_status(w->impl, "signalwaker.mark_tasks", SHMI_SIGNAL_STATUS_TASKS_MASK, marked));
}
int shmsync_signalwaker_tryunmark_yield(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryunmark_yield");
    return SHMI_TELL(err != 0 ? err : shmi_signal_unmark_status(w->impl, SHMI_SIGNAL_STATUS_YIELD_MASK) ? 0 : EBUSY);
}
int shmsync_signalwaker_tryunmark_tasks(shmsync_signalwaker *w)
{
    SHMI_OPENED(w);
    int err = shmi_use(w->impl->a, "signalwaker.tryunmark_tasks");
    return SHMI_TELL(err != 0 ? err : shmi_signal_unmark_tasks(w->impl) ? 0 : EBUSY);
}
void shmsync_signalwaker_status(const shmsync_signalwaker *w, int *yield, int *tasks)
{
    uint64_t s = shmi_is_open(w->impl, w->serial) ? shmi_ld64(&w->impl->w->status) : 0;
    *yield = (s & SHMI_SIGNAL_STATUS_YIELD_MASK) != 0;
    *tasks = (s & SHMI_SIGNAL_STATUS_TASKS_MASK) != 0;
}

/* ---- Partitions ---- */

int shmsync_signalwaker_sync_partition(shmsync_signalwaker *waker, int start, int end, const shmsync_signalwaker *tree, int *work)
{
    SHMI_OPENED(waker);
    if (tree != NULL)
        SHMI_OPENED(tree);
    struct shmi_signalwaker *w = waker->impl, *t = tree != NULL ? tree->impl : w;
    uint64_t now = 0, old, gone;
    int k, err = shmi_use(w->a, "signalwaker.sync_partition");
    if (work != NULL)
        *work = 0;
    if (err != 0)
        return SHMI_TELL(err);
    if (start < 0 || end < start || end - start > (int)SHMI_SIGNAL_BITS || end > (int)t->n_lines)
        return shmi_fail(EINVAL, "signalwaker.sync_partition", w->called, "partition %d..%d of %u signals", start, end, t->n_lines);
    shmi_signal_add(w, SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, 1);
    for (k = 0; k < end - start; k++)
        if (shmi_ld64(&t->lines[start + k].bits) != 0)
            now |= UINT64_C(1) << k;
    /* First what is new, so that no concurrent look misses it; then what is there no more,
     * each with a second check at its leaf. */
    old = shmi_or64(&w->w->partition, now);
    for (k = 0, gone = old & ~now; gone != 0; k++, gone >>= 1) {
        if ((gone & 1) == 0)
            continue;
        shmi_and64(&w->w->partition, ~(UINT64_C(1) << k));
        SHMSYNC_CRASHPOINT("signal.partition.cleared");
        if (k < end - start && shmi_ld64(&t->lines[start + k].bits) != 0) {
            shmi_or64(&w->w->partition, UINT64_C(1) << k);
            now |= UINT64_C(1) << k;
        }
    }
    if (now != 0) {
        shmi_signal_add(w, SHMSYNC_STAT_LEAF_SUMMARY_HITS, 1);
        shmi_signal_mark_status(w, SHMI_SIGNAL_STATUS_TASKS_MASK);
    } else {
        shmi_signal_unmark_tasks(w);
    }
    if (work != NULL)
        *work = now != 0 || shmi_ld64(&w->w->partition) != 0;
    return 0;
}
int shmsync_signalwaker_mark_leaf(shmsync_signalwaker *w, int k, int *was_empty)
{
    SHMI_OPENED(w);
    uint64_t old;
    int err = shmi_signal_use(w->impl, "signalwaker.mark_leaf", "leaf", k, SHMI_SIGNAL_BITS);
    if (err != 0)
        return SHMI_TELL(err);
    old = shmi_or64(&w->impl->w->partition, UINT64_C(1) << k);
    SHMSYNC_CRASHPOINT("signal.partition.marked");
    shmi_signal_mark_status(w->impl, SHMI_SIGNAL_STATUS_TASKS_MASK);
    if (was_empty != NULL)
        *was_empty = old == 0;
    return 0;
}
int shmsync_signalwaker_clear_leaf(shmsync_signalwaker *w, int k)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.clear_leaf", "leaf", k, SHMI_SIGNAL_BITS);
    uint64_t m;
    if (err != 0)
        return SHMI_TELL(err);
    m = UINT64_C(1) << k;
    if ((shmi_and64(&w->impl->w->partition, ~m) & ~m) == 0)
        shmi_signal_unmark_tasks(w->impl);
    return 0;
}
int shmsync_signalwaker_leaf_has_work(const shmsync_signalwaker *w, int k)
{
    SHMI_OPENED_OR(w, 0);
    if (shmi_use(w->impl->a, "signalwaker.leaf_has_work") != 0 || k < 0 || k >= (int)SHMI_SIGNAL_BITS)
        return 0;
    shmi_signal_add(w->impl, SHMSYNC_STAT_LEAF_SUMMARY_CHECKS, 1);
    return (shmi_ld64(&w->impl->w->partition) >> k & 1) != 0;
}
uint64_t shmsync_signalwaker_partition(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    return shmi_ld64(&w->impl->w->partition);
}

/* ---- Reservations ---- */

/* A number that callers do not have in common, to begin a search with. */
SHMI_FN uint64_t shmi_signal_random(struct shmi_signalwaker *w)
{
    static uint32_t turns;
    uint64_t x = (uint64_t)shmi_now() + ((uint64_t)w->a->self << 32) + UINT64_C(0x9e3779b97f4a7c15) * (shmi_add32(&turns, 1) + UINT64_C(1));
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}
/* Reserves a queue of signal i; -1 if none is free. */
SHMI_FN int shmi_signal_reserve_in(struct shmi_signalwaker *w, uint32_t i, uint32_t turn)
{
    uint64_t *tasks = &w->lines[i].tasks;
    unsigned tries;
    for (tries = 0; tries < 2 * SHMI_SIGNAL_BITS; tries++) {
        uint64_t free_ = ~shmi_ld64(tasks), turned = turn == 0 ? free_ : free_ >> turn | free_ << (64 - turn), m;
        uint32_t bit;
        if (free_ == 0)
            return -1;
        bit = ((uint32_t)__builtin_ctzll(turned) + turn) % SHMI_SIGNAL_BITS;
        m = UINT64_C(1) << bit;
        if ((shmi_or64(tasks, m) & m) != 0)
            continue; /* another was faster */
        SHMSYNC_CRASHPOINT("signal.reserve.indexed");
        /* A bit that was clear for a reserved queue stays set. */
        if (shmi_cas32(&w->gates[i * SHMI_SIGNAL_BITS + bit].task, 0, w->a->self)) {
            SHMSYNC_CRASHPOINT("signal.reserve.taken");
            return (int)bit;
        }
    }
    return -1;
}
int shmsync_signalwaker_reserve(shmsync_signalwaker *waker, int start, int end, int *queue)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    uint32_t k, n, first, turn;
    uint64_t r;
    int err = shmi_use(w->a, "signalwaker.reserve");
    if (err != 0)
        return SHMI_TELL(err);
    if (start < 0 || end < start || end > (int)w->n_lines)
        return shmi_fail(EINVAL, "signalwaker.reserve", w->called, "signals %d..%d of %u", start, end, w->n_lines);
    n = (uint32_t)(end - start);
    r = shmi_signal_random(w);
    first = n != 0 ? (uint32_t)(r >> 32) % n : 0;
    turn = (uint32_t)(r % SHMI_SIGNAL_BITS);
    for (k = 0; k < n; k++) {
        uint32_t i = (uint32_t)start + (first + k) % n;
        int bit = shmi_signal_reserve_in(w, i, turn);
        if (bit >= 0) {
            *queue = (int)(i * SHMI_SIGNAL_BITS) + bit;
            return 0;
        }
    }
    return SHMI_TELL(EBUSY);
}
int shmsync_signalwaker_unreserve(shmsync_signalwaker *waker, int queue)
{
    SHMI_OPENED(waker);
    struct shmi_signalwaker *w = waker->impl;
    int err = shmi_signal_use(w, "signalwaker.unreserve", "queue", queue, w->n_gates);
    if (err != 0)
        return SHMI_TELL(err);
    if (!shmi_cas32(&w->gates[queue].task, w->a->self, 0))
        return shmi_fail(EPERM, "signalwaker.unreserve", w->called, "queue %d, which this process has not reserved", queue);
    SHMSYNC_CRASHPOINT("signal.unreserve.freed");
    shmi_and64(&w->lines[(uint32_t)queue / SHMI_SIGNAL_BITS].tasks, ~(UINT64_C(1) << (uint32_t)queue % SHMI_SIGNAL_BITS));
    return 0;
}
int shmsync_signalwaker_reserved(const shmsync_signalwaker *w)
{
    SHMI_OPENED_OR(w, 0);
    uint32_t i;
    int n = 0;
    for (i = 0; i < w->impl->n_lines; i++)
        n += shmi_signal_popcount(shmi_ld64(&w->impl->lines[i].tasks));
    return n;
}

/* ---- Counters and health ---- */

SHMI_ASSERT(SHMSYNC_STATS == sizeof(((shmi_signal_row *)0)->stats) / sizeof(uint64_t), "SHMSYNC_STATS");

int shmsync_signalwaker_count(shmsync_signalwaker *w, int stat, uint64_t n)
{
    SHMI_OPENED(w);
    int err = shmi_signal_use(w->impl, "signalwaker.count", "counter", stat, SHMSYNC_STATS);
    if (err == 0)
        shmi_add64(&shmi_signal_own_row(w->impl)->stats[stat], n);
    return SHMI_TELL(err);
}
void shmsync_signalwaker_stats(const shmsync_signalwaker *w, uint64_t stats[SHMSYNC_STATS])
{
    uint32_t i;
    int s;
    for (s = 0; s < SHMSYNC_STATS; s++)
        stats[s] = 0;
    if (!shmi_is_open(w->impl, w->serial))
        return;
    for (i = 0; i < w->impl->n_rows; i++)
        for (s = 0; s < SHMSYNC_STATS; s++)
            stats[s] += shmi_ld64(&w->impl->rows[i].stats[s]);
}
void shmsync_signalwaker_health(const shmsync_signalwaker *waker, shmsync_signal_health *out)
{
    struct shmi_signalwaker *w = waker->impl;
    uint32_t i;
    memset(out, 0, sizeof *out);
    if (!shmi_is_open(waker->impl, waker->serial))
        return;
    out->summary = shmsync_signalwaker_summary(waker);
    out->permits = shmsync_signalwaker_permits(waker);
    out->partition = shmsync_signalwaker_partition(waker);
    for (i = 0; i < w->n_lines; i++)
        out->signals += shmi_ld64(&w->lines[i].bits) != 0;
    for (i = 0; i < w->n_gates; i++) {
        uint64_t s = shmi_ld64(&w->gates[i].word);
        if (shmi_gate_executing(s))
            out->executing++;
        else if (shmi_gate_scheduled(s))
            out->scheduled++;
    }
    out->reserved = shmsync_signalwaker_reserved(waker);
    out->sleepers = shmsync_signalwaker_sleepers(waker);
    out->workers = shmsync_signalwaker_workers(waker);
    shmsync_signalwaker_status(waker, &out->yield, &out->tasks);
}
/*
 * Synchronized: a value with its lock. It is prims/synchronized*.go in C: of two copies the
 * lowest bit of current names the valid one, the holder of the lock writes the other, and the
 * store of current + 1 is the commit.
 */

#define SHMI_SYNCHRONIZED_MOST 65536u
enum { SHMI_synchronizedTries = 100, SHMI_synchronizedRounds = 100 };
#define SHMI_SYNCHRONIZED_WAIT 10000000 /* ns */

struct shmi_synchronized {
    shmi_mutex m;
    shmi_synchronized_words *w;
    unsigned char *copies[2];
    size_t size;
};

SHMI_FN uint64_t shmi_synchronized_copy_at(size_t size, int n)
{
    return sizeof(shmi_synchronized_words) + (n != 0 ? (size + 63) & ~UINT64_C(63) : 0);
}

/* The commit. The compiler moves no store of the caller past the fences, and drops none. The
 * store is a release, since a load reads the copy without the lock. */
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

/* A death leaves nothing to repair. It is for a policy that a peer has overwritten. */
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
    shmi_spec spec;
    shmi_synchronized_spec init;
    shmi_object o;
    int err, created;
    out->impl = NULL;
    if (size > SHMI_SYNCHRONIZED_MOST)
        return shmi_fail(EINVAL, "synchronized.open", name, "a value of %zu bytes; the most is %u", size, SHMI_SYNCHRONIZED_MOST);
    memset(&init, 0, sizeof init);
    init.size = size;
    memset(&spec, 0, sizeof spec);
    if (opts != NULL) {
        init.initial = opts->initial;
        init.spin = shmi_spin_field(opts->spin_ns);
        spec.layout = opts->layout;
    }
    spec.kind = SHMI_KIND_SYNCHRONIZED;
    spec.version = SHMI_VERSION_SYNCHRONIZED;
    spec.name = name;
    spec.size = shmi_synchronized_copy_at(size, 1) + size;
    spec.any_layout = spec.layout == 0;
    spec.init = shmi_synchronized_fill;
    spec.arg = &init;
    spec.existing = existing;
    err = shmi_open_object(a, &spec, &o, &created);
    return err != 0 ? err : shmi_synchronized_handle(a, &o, size, out);
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
    SHMI_BEGIN();
    shmi_object o;
    int err;
    out->impl = NULL;
    if (size > SHMI_SYNCHRONIZED_MOST)
        return shmi_fail(EINVAL, "synchronized.open", NULL, "a value of %zu bytes; the most is %u", size, SHMI_SYNCHRONIZED_MOST);
    err = shmi_object_at(a, off, "synchronized.open", SHMI_KIND_SYNCHRONIZED, SHMI_VERSION_SYNCHRONIZED, sizeof(shmi_synchronized_words), &o);
    if (err != 0)
        return SHMI_TELL(err);
    if (o.size != shmi_synchronized_copy_at(size, 1) + size) {
        shmi_close_object(a, off);
        return shmi_fail(EINVAL, "synchronized.open", shmi_called(&o), "it has %llu bytes; with a value of %zu bytes it has %llu",
                         (unsigned long long)o.size, size, (unsigned long long)(shmi_synchronized_copy_at(size, 1) + size));
    }
    return SHMI_TELL(shmi_synchronized_handle(a, &o, size, out));
}
shmsync_offset shmsync_synchronized_offset(const shmsync_synchronized *s)
{
    SHMI_OPENED_OR(s, 0);
    return s->impl->m.o.off;
}

SHMI_FN void shmi_synchronized_end(void *handle) { shmi_free_thing(handle); }
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

/* A lock that is not recoverable was overwritten by a peer: nobody makes it so. */
SHMI_FN int shmi_synchronized_lock(struct shmi_synchronized *x, int64_t deadline)
{
    int err = shmi_mutex_lock(&x->m, deadline);
    return SHMI_LIKELY(err != ENOTRECOVERABLE && err != EOWNERDEAD) ? err
                                                                    : shmi_fail(EPROTO, "synchronized.lock", x->m.called, "its lock says that it is not recoverable");
}

SHMI_FN int shmi_synchronized_begin(struct shmi_synchronized *x, void **copy, int64_t deadline)
{
    uint64_t c;
    int err = shmi_synchronized_lock(x, deadline);
    *copy = NULL;
    if (err != 0)
        return err;
    c = __atomic_load_n(&x->w->current, __ATOMIC_RELAXED); /* the lock orders it */
    if (x->size != 0)
        memcpy(x->copies[(c + 1) & 1], x->copies[c & 1], x->size);
    SHMSYNC_CRASHPOINT("synchronized.update.copied");
    *copy = x->copies[(c + 1) & 1];
    return 0;
}
int shmsync_synchronized_begin(shmsync_synchronized *s, void **copy)
{
    SHMI_OPENED(s);
    return SHMI_TELL(shmi_synchronized_begin(s->impl, copy, 0));
}
int shmsync_synchronized_timedbegin(shmsync_synchronized *s, void **copy, const struct timespec *abs_monotonic)
{
    SHMI_OPENED(s);
    int64_t deadline;
    *copy = NULL;
    if (shmi_deadline(abs_monotonic, &deadline) != 0)
        return shmi_fail(EINVAL, "synchronized.timedbegin", s->impl->m.called, "not a time");
    return SHMI_TELL(shmi_synchronized_begin(s->impl, copy, deadline));
}

/* Whether this process holds the lock: 0, or why not. */
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

int shmsync_synchronized_commit(shmsync_synchronized *s)
{
    SHMI_OPENED(s);
    struct shmi_synchronized *x = s->impl;
    int err = shmi_synchronized_holds(x, "synchronized.commit");
    if (err != 0)
        return SHMI_TELL(err);
    SHMSYNC_CRASHPOINT("synchronized.update.written");
    shmi_commit_store(&x->w->current, __atomic_load_n(&x->w->current, __ATOMIC_RELAXED) + 1);
    SHMSYNC_CRASHPOINT("synchronized.update.committed");
    return SHMI_TELL(shmi_mutex_unlock(&x->m));
}

int shmsync_synchronized_abort(shmsync_synchronized *s)
{
    SHMI_OPENED(s);
    int err = shmi_synchronized_holds(s->impl, "synchronized.abort");
    return SHMI_TELL(err != 0 ? err : shmi_mutex_unlock(&s->impl->m));
}

int shmsync_synchronized_store(shmsync_synchronized *s, const void *src)
{
    SHMI_OPENED(s);
    struct shmi_synchronized *x = s->impl;
    int err = shmi_synchronized_lock(x, 0);
    if (err != 0)
        return SHMI_TELL(err);
    if (x->size != 0)
        memcpy(x->copies[(__atomic_load_n(&x->w->current, __ATOMIC_RELAXED) + 1) & 1], src, x->size);
    SHMSYNC_CRASHPOINT("synchronized.update.copied");
    return SHMI_TELL(shmsync_synchronized_commit(s));
}

/* Reads without the lock: whether dst is one value. */
SHMI_FN int shmi_synchronized_read(struct shmi_synchronized *x, void *dst)
{
    uint64_t c = __atomic_load_n(&x->w->current, __ATOMIC_ACQUIRE);
    memcpy(dst, x->copies[c & 1], x->size);
    shmi_load_fence();
    return __atomic_load_n(&x->w->current, __ATOMIC_RELAXED) == c;
}

/* Reads with the lock, or without it while its holder does not commit. */
SHMI_COLD int shmi_synchronized_load_slow(struct shmi_synchronized *x, void *dst)
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

int shmsync_synchronized_load(const shmsync_synchronized *s, void *dst)
{
    SHMI_OPENED(s);
    struct shmi_synchronized *x = s->impl;
    if (SHMI_UNLIKELY(shmi_self(x->m.a) == 0))
        return shmi_fail(shmi_nameless(x->m.a), "synchronized.load", x->m.called, "%s", "");
    if (x->size == 0)
        return 0;
#ifndef SHMI_NO_FENCES /* the thread sanitizer sees what the lock orders, and nothing else */
    {
        int tries;
        for (tries = 0; tries < SHMI_synchronizedTries; tries++)
            if (SHMI_LIKELY(shmi_synchronized_read(x, dst)))
                return 0;
    }
#endif
    return SHMI_TELL(shmi_synchronized_load_slow(x, dst));
}

uint64_t shmsync_synchronized_commits(const shmsync_synchronized *s)
{
    SHMI_OPENED_OR(s, 0);
    return shmi_ld64(&s->impl->w->current);
}

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
/* Notes that err is what a call of an object returned, and says whether it is lost because of a death. */
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
/* Whether an object was opened, by an _at that gave err. EINVAL: it was deleted, or is of a version that this header does
 * not have. */
SHMI_FN int shmi_recovery_opened(shmi_recovery *r, int err)
{
    if (err != 0 && err != EINVAL)
        shmi_recovery_ended(r, err);
    return err == 0;
}

/* A lock whose holder has died, which nobody has met since then, is lost when somebody has: trylock meets it. A healthy
 * lock is only read: a death with it held would make it owner-dead. */
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

/* The keys that are lost, or whose holder has died, as they are now: *n of them in *keys, which is to be freed. ENOMEM:
 * there are more. */
SHMI_FN int shmi_keys_left(struct shmi_multilock *x, uint64_t **keys, size_t *n)
{
    size_t cap = 0;
    uint32_t i;
    *keys = NULL;
    *n = 0;
    for (i = 0; i < UINT32_C(1) << x->log; i++) {
        struct shmi_key_bucket k;
        struct shmi_key_walk v;
        struct shmi_key_entry e;
        if (shmi_bucket_quiet(shmi_bucket_words(x, i)))
            continue;
        shmi_bucket_init(&k, x, i);
        for (v = shmi_walk_keys(&k, 1); shmi_next_key(&k, &v, &e);) {
            uint64_t h = shmi_get(e.hold);
            if (shmi_hold_free(h) || (shmi_hold_valid(h) && (shmi_hold_kind(h) == SHMI_kindReserved || (shmi_hold_taken(h) && !shmi_dead(x->a, shmi_hold_name(h))))))
                continue;
            if (*n == cap) {
                uint64_t *more = (uint64_t *)realloc(*keys, (cap = 2 * cap + 16) * sizeof **keys);
                if (more == NULL)
                    return ENOMEM;
                *keys = more;
            }
            (*keys)[(*n)++] = shmi_get(e.key);
        }
    }
    return 0;
}
SHMI_FN void shmi_recover_multilock(shmi_recovery *r)
{
    shmsync_multilock x;
    uint64_t *keys;
    size_t n, i;
    if (!shmi_recovery_opened(r, shmsync_multilock_at(r->a, r->lost.offset, &x)))
        return;
    r->lost.has_key = 1;
    shmi_recovery_ended(r, shmi_keys_left(x.impl, &keys, &n));
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

/* What follows has nothing to hold: repair comes first, and then the reset, unless repair has made it usable. */
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
SHMI_RECOVER_COUNT(future, shmsync_future_timedwait(&x, NULL, &past), shmsync_future_reset(&x))
SHMI_RECOVER_COUNT(barrier, shmsync_barrier_timedwait(&x, shmi_get(&x.impl->w->phase), &past), shmsync_barrier_reset(&x, 0, NULL))
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
    if (shmi_self(a) == 0)
        return shmi_fail(shmi_nameless(a), "recover_all", a->label, "%s", "");
    memset(&r, 0, sizeof r);
    memset(&l, 0, sizeof l);
    r.a = a;
    r.repair = repair;
    r.arg = arg;
    r.err = shmi_visit(a, 0, shmi_note_object, &l); /* repair may delete some */
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

/* ---- What the reaper knows of the kinds of objects ---- */

static const shmi_kind_ops shmi_kinds[] = {
    {SHMI_KIND('V', 'A', 'L', 'U'), NULL, NULL, NULL},
    {SHMI_KIND('B', 'L', 'O', 'K'), NULL, NULL, NULL},
    {SHMI_MUTEX_KIND, shmi_mutex_kind_repair, shmi_mutex_kind_wake, shmi_mutex_kind_unfinished},
    {SHMI_FUTEX_KIND, NULL, shmi_futex_kind_wake, NULL},
    {SHMI_KIND_SEQUENCER, shmi_repair_sequencer, shmi_mon_wake_object, NULL},
    {SHMI_KIND_EVENT, shmi_repair_event, shmi_mon_wake_object, NULL},
    {SHMI_KIND_QUEUE, shmi_repair_queue, shmi_mon_wake_object, NULL},
    {SHMI_KIND_WAIT_GROUP, shmi_repair_counter, shmi_wake_counter, NULL},
    {SHMI_KIND_LATCH, shmi_repair_counter, shmi_wake_counter, NULL},
    {SHMI_KIND_ONCE, shmi_repair_once, shmi_wake_once, NULL},
    {SHMI_KIND_BARRIER, shmi_repair_barrier, shmi_mon_wake_object, NULL},
    {SHMI_KIND_FAIR_MUTEX, shmi_repair_fairmutex, shmi_mon_wake_object, NULL},
#if SHMSYNC_LAYOUT_VERSION >= 3
    {SHMI_KIND_SEMAPHORE, shmi_repair_semaphore, shmi_mon_wake_object, NULL},
#endif
    {SHMI_KIND_MULTI_LOCK, shmi_repair_multilock, shmi_wake_multilock, NULL},
    {SHMI_KIND_RWMUTEX, shmi_repair_rwmutex, shmi_wake_rwmutex, NULL},
    {SHMI_KIND_SPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL},
    {SHMI_KIND_RWSPIN_LOCK, shmi_repair_spin, shmi_wake_spin, NULL},
    {SHMI_KIND_SIGNAL_WAKER, shmi_repair_signals, shmi_wake_signals, NULL},
    {SHMI_KIND_SYNCHRONIZED, shmi_mutex_kind_repair, shmi_mutex_kind_wake, NULL},
    {SHMI_KIND_FUTURE, shmi_repair_future, shmi_mon_wake_object, NULL},
    {SHMI_KIND_COND, shmi_repair_cond, shmi_mon_wake_object, NULL},
};

SHMI_FN const shmi_kind_ops *shmi_kind_of(uint32_t kind)
{
    size_t i;
    for (i = 0; i < sizeof shmi_kinds / sizeof shmi_kinds[0]; i++)
        if (shmi_kinds[i].kind == kind)
            return &shmi_kinds[i];
    return NULL;
}

#endif /* SHMSYNC_IMPLEMENTATION */

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* SHMSYNC_H */
