/* Returns the version of the implementation as text, such as "0.1.0". SHMSYNC_VERSION is the version of the header. */
const char *shmsync_version(void);

/* ---- Arenas ---- */

/* The policies of a lock. A policy says what happens to the lock if a process dies while it holds the lock exclusively.
 * The policy is fixed when the object is created. A process is dead when none of its threads runs any more. It is gone
 * when, in addition, none of its system calls can write into the arena any more. */
#define SHMSYNC_POLICY_DEFAULT 0 /* SHMSYNC_POLICY_REPORT for a new object; an existing object keeps its policy */
#define SHMSYNC_POLICY_REPORT 1  /* the lock is owner-dead: calls return EOWNERDEAD until a process recovers it */
#define SHMSYNC_POLICY_RELEASE 2 /* the lock becomes free, as a file lock does, when the process is gone */
#define SHMSYNC_POLICY_ROLLBACK 3 /* the transaction is undone, then the lock becomes free; see shmsync_mutex_begin */

/* The values of kernel_io in shmsync_arena_options. They say which kinds of system calls of this process write into the
 * arena. After the death of the process, other processes get the data that it had locked only when these calls have
 * finished. If a process makes a kind of call that it has not declared, data may be corrupted. */
#define SHMSYNC_KERNEL_IO_SYNCHRONOUS 0  /* finished when their threads return: read, recv, io_uring without O_DIRECT */
#define SHMSYNC_KERNEL_IO_ASYNCHRONOUS 1 /* also io_submit, and processes that share the memory by clone(CLONE_VM) */
#define SHMSYNC_KERNEL_IO_NONE 2         /* no calls: the data passes on as soon as the death is known */

#define SHMSYNC_SPIN_NEVER (-1) /* waiters do not spin before they sleep */

/* An arena that this process has joined. */
typedef struct shmsync_arena shmsync_arena;

/* A position in an arena, the same in every process. 0 is no position. */
typedef uint64_t shmsync_offset;

/* A participant, alive or dead. The slot and the generation identify it. */
typedef struct shmsync_participant {
    uint32_t slot;
    uint32_t generation;
    uint32_t pid;      /* the process ID, in the pid namespace of the participant */
    uint32_t missed;   /* only for shmsync_arena_on_death: deaths without a report since the last report */
    int64_t died_ns;   /* the time of the death, in Unix ns; 0: alive, or not known */
    char label[64];
} shmsync_participant;

/* An epoch begins when a process joins an arena that no participant is in. It ends when no participant is in any more.
 * The struct describes the new epoch to the participant that begins it. */
typedef struct shmsync_epoch {
    uint64_t number; /* from 1; if on_first fails, the next epoch has the same number */
    int clean;       /* not 0: all participants of the last epoch closed the arena, and the file is unchanged since */
    int reboot;      /* not 0: the computer was restarted since the last epoch began; always 0 on a tmpfs */
    const shmsync_participant *dead; /* the participants that died since the last epoch began, the last 192 at most */
    size_t n_dead;
} shmsync_epoch;

/* The values of recreate in shmsync_arena_options: the reasons for which an open replaces an existing arena with a new
 * one. The old data is lost. An open never replaces an arena that a participant is in. */
#define SHMSYNC_RECREATE_INCOMPATIBLE 1u /* the layout, features, size or max_participants of the arena differ */
#define SHMSYNC_RECREATE_CORRUPT 2u      /* the header of the arena is damaged */
#define SHMSYNC_RECREATE_UNCLEAN 4u      /* a participant died since the last epoch began, or the computer went down */

/* The values of lifetime in shmsync_arena_options: what happens to an arena when no participant is in it any more. The
 * last close of an ephemeral arena removes the file. The close first waits for any process that is opening or removing
 * the arena. If this takes more than a second, for example because such a process is stopped, the file stays. */
#define SHMSYNC_LIFETIME_DURABLE 0   /* the arena stays until shmsync_arena_remove or, on a tmpfs, until a reboot */
#define SHMSYNC_LIFETIME_EPHEMERAL 1 /* each epoch begins with an empty arena; the last close removes the file */

/* The values of flags in every struct of options. If flags is 0, an open finds the object, or creates it if there is
 * none. */
#define SHMSYNC_CREATE_ONLY 1u   /* EEXIST if the name is taken, whatever the kind and the options of the object */
#define SHMSYNC_OPEN_EXISTING 2u /* ENOENT if there is no such object; the _attach functions do the same */

/* The options of an open of an arena. NULL has the same meaning as a struct of zeros, which are the defaults.
 * Initialize the struct with zeros, and then set the fields that you need. Use = {0} or a designated initializer in
 * C11, and = {} in C++17.
 *
 * A new arena takes memory as it fills. Only the slots of participants and the directory of names take their memory at
 * once. The directory takes 1.6 % of a size that is a power of two, and up to 3.2 % of another size.
 *
 * Each struct of options begins with its size, so that a program works with another version of the library. Fields that
 * the program does not know count as 0. If the program sets a field that the library does not know, the open returns
 * EINVAL. */
typedef struct shmsync_arena_options {
    uint32_t struct_size;        /* sizeof of this struct in the program; 0: the size in version 0.1 */
    uint32_t flags;              /* SHMSYNC_CREATE_ONLY, SHMSYNC_OPEN_EXISTING, or 0 */
    uint64_t size;               /* bytes of a new arena, rounded up to 64 KiB; 0: 64 MiB */
    uint32_t max_participants;   /* of a new arena, at most 2047; 0: 128. Each participant takes 2 KiB of size */
    uint32_t mode;               /* permissions of a new arena's file, only bits of 0666; 0: 0600 */
    const char *label;           /* the name of this process in errors and tools; NULL: the program's name */
    const uint32_t *trust_uids;  /* this process also joins files of these users, besides its own user and root */
    size_t n_trust_uids;
    int attach_only;             /* not 0: fail with ENOENT if there is no arena, instead of making one */
    /* SHMSYNC_KERNEL_IO_x. If this process opens the arena several times, one value applies to the process:
     * SHMSYNC_KERNEL_IO_ASYNCHRONOUS if any opening has it, SHMSYNC_KERNEL_IO_NONE if all openings have it, and
     * SHMSYNC_KERNEL_IO_SYNCHRONOUS otherwise */
    int kernel_io;
    /* The library calls on_first in the participant that begins an epoch, before its open returns. No other process is
     * in the arena, and none can join until on_first returns, so on_first may delete and repair anything. If on_first
     * returns an errno, the open fails with that errno, and the next process that joins begins the epoch instead.
     * on_first must use the arena that it is given. If it opens the same arena by its name, or closes the arena, that
     * call returns EDEADLK. */
    int (*on_first)(shmsync_arena *a, const shmsync_epoch *e, void *arg);
    void *on_first_arg;
    uint32_t recreate;           /* SHMSYNC_RECREATE_x, or 0 for never */
    int lifetime;                /* SHMSYNC_LIFETIME_x */
    int64_t gate_timeout_ns;     /* the longest wait for the on_first of another process, then ETIMEDOUT; 0: no limit */
    /* The library calls on_detached once, on its helper thread, when the file of the arena was removed or replaced
     * while this process is in. Processes that open the name afterwards get another arena. on_detached must return
     * quickly, and must not close an arena. A change of the root directory or of the mount namespace of this process
     * does not count as a removal. If this process opens the arena several times, the library calls the first
     * function that was set. The helper thread blocks all signals: see shmsync_arena_on_death. */
    void (*on_detached)(shmsync_arena *a, void *arg);
    void *on_detached_arg;
} shmsync_arena_options;

/* As shmsync_arena_open, for a program whose SHMSYNC_ABI is abi. EPROTONOSUPPORT: the implementation is for another
 * layout. */
int shmsync_arena_open_abi(const char *name, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi);
/* Joins the arena /dev/shm/NAME, and creates it if there is none. A name with a slash is the path of a file. If a
 * process opens an arena several times, each open returns the same pointer in *out, and the process must close the
 * arena as often. opts may be NULL. An open needs up to five free file descriptors for a moment, and keeps two. EMFILE,
 * ENFILE, ENOLCK, EAGAIN: no more file descriptors, file locks or threads are available now. If an open that has created
 * the arena fails, the arena stays, unless it is ephemeral and no participant is in; with SHMSYNC_CREATE_ONLY, the next
 * open then returns EEXIST. In C, shmsync_arena_open is also a macro, which calls shmsync_arena_open_abi with the
 * SHMSYNC_ABI of the program. The function is for bindings of other languages, and uses the SHMSYNC_ABI of the
 * library. */
int shmsync_arena_open(const char *name, const shmsync_arena_options *opts, shmsync_arena **out);
/* As shmsync_arena_from_fd, for a program whose SHMSYNC_ABI is abi. */
int shmsync_arena_from_fd_abi(int fd, const shmsync_arena_options *opts, shmsync_arena **out, uint32_t abi);
/* Joins the arena in an open file, such as a memfd that was inherited. The caller keeps fd and has to close it. In C,
 * shmsync_arena_from_fd is also a macro, which calls shmsync_arena_from_fd_abi. */
int shmsync_arena_from_fd(int fd, const shmsync_arena_options *opts, shmsync_arena **out);
/* The macros are variadic, because an argument may contain commas in braces. */
#define shmsync_arena_open(...) shmsync_arena_open_abi(__VA_ARGS__, SHMSYNC_ABI)
#define shmsync_arena_from_fd(...) shmsync_arena_from_fd_abi(__VA_ARGS__, SHMSYNC_ABI)
/* Closes one opening of the arena. With the last close, this process leaves the arena: its holds are treated as after
 * its death, the waits of its other threads end with EBADF, and its pointers and handles into the arena become invalid.
 * A call of another thread at that moment may return EBADF although it has taken effect, if its effect lasts: a put, a
 * post, a store or a commit.
 * ENOTCONN: the arena is not open. EDEADLK: a function of the program closes the arena, and the helper thread or
 * another call on the arena runs this function. The result is also EDEADLK if two such closes would wait for each
 * other, for example if the on_death functions of two arenas close each other's arena. Any other errno: this process
 * has left the ephemeral arena, but could not remove its file. */
int shmsync_arena_close(shmsync_arena *a);
/* Removes the file of the arena. EBUSY: a participant is in, so the file stays; shmsync_error names the participant.
 * ENOENT: there is no such file. EINVAL: the file is not an arena. ENOTSUP: there are no byte locks (fcntl with
 * F_OFD_SETLK). */
int shmsync_arena_remove(const char *name);

/* Returns the size of the mapping in bytes, or 0 if the arena is closed. */
uint64_t shmsync_arena_size(const shmsync_arena *a);
/* Returns the address at which this process has mapped the arena, or NULL if the arena is closed. */
void *shmsync_arena_base(const shmsync_arena *a);
/* Lets the helper thread of the library call f for each participant that dies from now on. f must return quickly, and
 * must call nothing that waits. A process has one such function for each arena. A later call replaces the function, or
 * removes it if f is NULL. The arena keeps the last 192 deaths. If this process is stopped while more participants die,
 * the field missed of the next report says how many reports were lost. EDEADLK: the caller is a function that the
 * helper thread runs.
 *
 * The helper thread blocks all signals. If f forks, the child has the signal mask of the thread that opened the arena.
 * posix_spawn and system give a new process the mask of the helper thread: use POSIX_SPAWN_SETSIGMASK, or let another
 * thread start the process. */
int shmsync_arena_on_death(shmsync_arena *a, void (*f)(const shmsync_participant *, void *), void *arg);
/* Describes this process, as a participant, in *out. */
int shmsync_arena_self(shmsync_arena *a, shmsync_participant *out);
/* Calls f for each participant, until f returns a value other than 0. Shortly after a participant has taken its slot,
 * only its slot and generation are known. EBADF: the arena was closed meanwhile. */
int shmsync_arena_participants(shmsync_arena *a, int (*f)(const shmsync_participant *, void *), void *arg);

/* Allocates zeroed bytes, aligned to 64. The bytes stay allocated when this process dies. ENOSPC: no room. A sixteenth
 * of the heap, 16 MiB at most, is headroom, which shmsync_alloc and the creation of objects cannot use. So processes
 * can still open and recover the existing objects when shmsync_alloc finds no room. */
int shmsync_alloc(shmsync_arena *a, uint64_t size, shmsync_offset *out);
/* Frees bytes that shmsync_alloc returned. EINVAL: the offset was not allocated. */
int shmsync_free(shmsync_arena *a, shmsync_offset off);
/* Returns a pointer to size bytes at an offset, which may have come from a peer. NULL: no block at that offset has so
 * many bytes. */
void *shmsync_at(shmsync_arena *a, shmsync_offset off, uint64_t size);
/* Finds a block of bytes by name, or creates it with zeros, as Arena.Block does in Go. *out points to the bytes. The
 * block stays open until this process leaves the arena. EINVAL: size is 0, or not the size of the existing block. */
int shmsync_block_open(shmsync_arena *a, const char *name, uint64_t size, void **out);
/* As shmsync_block_open, for a new block only. EEXIST: the name is taken. */
int shmsync_block_create(shmsync_arena *a, const char *name, uint64_t size, void **out);
/* Finds an existing block. *out points to its bytes, and *size is their number; size may be NULL. ENOENT: there is
 * no such block. */
int shmsync_block_attach(shmsync_arena *a, const char *name, void **out, uint64_t *size);
/* Finds or creates a Value, the counterpart of arena.Value in Go, as shmsync_block_open does for a block. layout is the
 * fingerprint that arena.LayoutOf returns for the type. If layout is 0, an existing Value may have any type. */
int shmsync_value_open(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out);
/* As shmsync_value_open, for a new Value only. EEXIST: the name is taken. */
int shmsync_value_create(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out);
/* As shmsync_value_open, for an existing Value only. ENOENT: there is none. */
int shmsync_value_attach(shmsync_arena *a, const char *name, uint64_t size, uint64_t layout, void **out);
/* As shmsync_value_open, with the description of the type, which the command shmgen writes into a header. A new
 * value keeps the description, so that shmctl prints the value by field. EINVAL: the existing value has another
 * type; shmsync_error names the field that differs. */
int shmsync_value_open_type(shmsync_arena *a, const char *name, uint64_t size, const char *type, void **out);
/* As shmsync_value_open_type, for an existing Value only. ENOENT: there is none. */
int shmsync_value_attach_type(shmsync_arena *a, const char *name, uint64_t size, const char *type, void **out);
/* Deletes the object of that name, if no process has it open. If a Go program died while it upgraded the object, the
 * new contents may exist under another name. The call removes the new contents as well, even if the object itself is
 * gone. ENOENT: there is no such object. EBUSY: a process has the object open, or has closed it and still holds it.
 * Holds of a CohortMutex or a Waitable, which C does not have, do not count. */
int shmsync_delete(shmsync_arena *a, const char *name);
/* Deletes the object at an offset that an _offset function returned, as shmsync_delete deletes a named object. Only
 * this call deletes an anonymous object. EINVAL: no object is at that offset. */
int shmsync_delete_at(shmsync_arena *a, shmsync_offset off);

/* Describes the last failure of the calling thread in words. The text is never NULL, and is valid until the next
 * failure of the thread. */
const char *shmsync_error(void);
/* Returns the meaning of an errno of this header as text, never NULL. */
const char *shmsync_strerror(int err);
/* Describes the participant whose death caused the last failure of the calling thread. ENOENT: no death caused it, or
 * the participant is not known. */
int shmsync_who_died(shmsync_participant *out);

