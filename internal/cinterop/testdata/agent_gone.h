/* Verbs of the agent for tests of what the kernel may write for a process after it was killed. */

#include <sys/wait.h>

#define GONE_PAGE 4096

/* The block NAME: BYTES bytes, and a word after them that counts reads. */
static unsigned char *gone_block(const order *o)
{
    void *p = NULL;
    return shmsync_block_open(arena, o->word[2], (uint64_t)arg(o, 0) + 8, &p) == 0 ? (unsigned char *)p : NULL;
}

static int gone(const order *o, uint64_t *n)
{
    uint64_t bytes = (uint64_t)arg(o, 0), i;
    unsigned char *b;
    if (is(o, "gone.fork")) {
        /* Makes a child by a raw clone, which runs no handlers of forks. The child keeps the byte lock of this
         * process's slot, as a thread does while the kernel is still in one of its system calls. The child ends when
         * the input of this process does. */
        long pid = syscall(SYS_clone, (unsigned long)SIGCHLD, NULL, NULL, NULL, NULL);
        if (pid == 0) {
            char c;
            syscall(SYS_close, 1);
            syscall(SYS_close, 2);
            while (syscall(SYS_read, 0, &c, (size_t)1) > 0) {
            }
            syscall(SYS_exit_group, 0);
        }
        *n = (uint64_t)pid;
        return pid > 0 ? 0 : errno;
    }
    if (is(o, "gone.reopen")) { /* N: another part of the program declares another kernel_io */
        shmsync_arena *again;
        shmsync_arena_options opts;
        memset(&opts, 0, sizeof opts);
        opts.kernel_io = (int)arg(o, 0);
        return shmsync_arena_open(arena->label, &opts, &again);
    }
    if (is(o, "gone.slot")) /* N: the phase of a slot */
        return *n = shmi_slot_phase(shmi_slot_state(arena, (uint32_t)arg(o, 0))), 0;
    if (is(o, "gone.delete"))
        return shmsync_delete(arena, o->word[2]);
    b = gone_block(o);
    if (b == NULL)
        return ENOENT;
    if (is(o, "gone.read")) { /* reads a file into the block, again and again */
        int fd = open(o->word[4], O_RDONLY | O_CLOEXEC);
        while (fd >= 0 && pread(fd, b, bytes, 0) == (ssize_t)bytes)
            shmi_add64((uint64_t *)(void *)(b + bytes), 1);
        return EIO;
    }
    if (is(o, "gone.rounds"))
        return *n = shmi_ld64((uint64_t *)(void *)(b + bytes)), 0;
    if (is(o, "gone.stamp")) { /* the last page first, because a read writes that page last */
        for (i = bytes; i >= GONE_PAGE; i -= GONE_PAGE)
            __atomic_store_n(&b[i - 1], 0, __ATOMIC_RELAXED);
        return 0;
    }
    if (is(o, "gone.check")) { /* how many pages were written after gone.stamp */
        for (i = GONE_PAGE; i <= bytes; i += GONE_PAGE)
            *n += __atomic_load_n(&b[i - 1], __ATOMIC_RELAXED) != 0;
        return 0;
    }
    return ENOSYS;
}
