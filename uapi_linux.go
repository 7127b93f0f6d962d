package shmsync

// Copied from include/uapi/linux/futex.h and include/uapi/linux/membarrier.h of Linux 6.18;
// golang.org/x/sys/unix has only the system call numbers.
const (
	futexWake       = 1
	futexCmpRequeue = 4
	futexWaitBitset = 9
	futexWakeBitset = 10

	futex2Size32 = 0x02

	membarrierQuery                   = 0
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2

	clockMonotonic = 1
)

// The bits of a word that a robust list names.
const (
	RobustWaiters   uint32 = 0x80000000 // FUTEX_WAITERS: the kernel wakes one sleeper when the owner dies
	RobustOwnerDied uint32 = 0x40000000 // FUTEX_OWNER_DIED: set by the kernel when the owning thread is gone
	RobustTIDMask   uint32 = 0x3fffffff // FUTEX_TID_MASK: the owning thread, in its own pid namespace
)

// WaitVMax is the largest number of words that one WaitV call takes (FUTEX_WAITV_MAX).
const WaitVMax = 128
