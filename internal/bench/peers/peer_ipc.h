//go:build ignore

/* Peers in C that need more than memory: System V semaphores and message queues, which the kernel keeps, and the
 * kinds of pthread locks that lock cells measure beside the usual kinds. */
#include <mqueue.h>
#include <sys/ipc.h>
#include <sys/sem.h>

/* The objects that the parent removes after all peers have ended (ipc_unsafe.go reads the same bytes). */
struct left {
	uint32_t semaphores; /* 1: id is valid */
	int32_t id;
};

static struct left *left(void) { return (struct left *)((char *)seg + PEER_BYTES - 64); }

/* System V semaphores: 0 and 1 are the two directions of a token, 2 is a lock, 3 has the permits. The kernel undoes
 * what a process that died did to the lock. */
enum { SYSV_LOCK = 2, SYSV_PERMITS, SYSV_ALL };

static void sysv_op(int n, int op, int undo)
{
	struct sembuf b = { (unsigned short)n, (short)op, undo ? SEM_UNDO : 0 };
	while (semop(left()->id, &b, 1) != 0)
		must("semop", errno == EINTR ? 0 : errno);
}

static void sysv_lock(void) { sysv_op(SYSV_LOCK, -1, 1); }
static void sysv_unlock(void) { sysv_op(SYSV_LOCK, 1, 1); }
PAIRS(sysv_pairs, sysv_lock(), sysv_unlock())

static void setup_sysv(void)
{
	union {
		int val;
	} one = { 1 }, permits = { (int)ctl->permits };
	int id = semget(IPC_PRIVATE, SYSV_ALL, 0600);
	must("semget", id >= 0 ? 0 : errno);
	left()->id = id;
	left()->semaphores = 1;
	must("semctl", semctl(id, SYSV_LOCK, SETVAL, one) == 0 ? 0 : errno);
	must("semctl", semctl(id, SYSV_PERMITS, SETVAL, permits) == 0 ? 0 : errno);
}

/* Message queues, which the parent opens: descriptors 5 and 6 are the two directions of a token. The process that
 * has received the one message of descriptor 7 has the lock. */
enum { MQ_WAY = 5, MQ_LOCK = 7 };

static void mq_put(int fd, uint64_t v)
{
	while (mq_send((mqd_t)fd, (const char *)&v, sizeof v, 0) != 0)
		must("mq_send", errno == EINTR ? 0 : errno);
}

static uint64_t mq_take(int fd)
{
	uint64_t v;
	while (mq_receive((mqd_t)fd, (char *)&v, sizeof v, NULL) != sizeof v)
		must("mq_receive", errno == EINTR ? 0 : errno);
	return v;
}

static void mq_lock(void) { mq_take(MQ_LOCK); }
static void mq_unlock(void) { mq_put(MQ_LOCK, 1); }
PAIRS(mq_pairs, mq_lock(), mq_unlock())

/* A pthread spin lock. */

static void pspin_lock(void) { must("pthread_spin_lock", pthread_spin_lock(&seg->spin)); }
static void pspin_unlock(void) { must("pthread_spin_unlock", pthread_spin_unlock(&seg->spin)); }
PAIRS(pspin_pairs, pthread_spin_lock(&seg->spin), pthread_spin_unlock(&seg->spin))

static void setup_ipc(void)
{
	must("pthread_spin_init", pthread_spin_init(&seg->spin, PTHREAD_PROCESS_SHARED));
	if (sub->lock == sysv_lock)
		setup_sysv();
	if (sub->lock == mq_lock)
		mq_unlock();
}
