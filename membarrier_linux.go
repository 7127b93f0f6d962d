package shmsync

import "golang.org/x/sys/unix"

// RegisterFence makes this process a target of [Fence]. One call in each process is enough. In a process with many
// threads, the call takes milliseconds.
func RegisterFence() error {
	if err := FeatureMembarrier.Check(); err != nil {
		return err
	}
	if _, errno := membarrier(membarrierRegisterGlobalExpedited); errno != 0 {
		return notSupported("membarrier", errno)
	}
	return nil
}

// Fence makes every running thread of every process that has called [RegisterFence] execute a full memory fence.
// When Fence returns, the caller sees all stores that such a thread made before its fence. After its fence, the thread
// sees all stores that the caller made before the call of Fence. Fence is the expensive half of an asymmetric
// store-load pair (Dekker).
func Fence() error {
	if !FeatureMembarrier.Have() {
		return ErrNotSupported
	}
	if _, errno := membarrier(membarrierGlobalExpedited); errno != 0 {
		return notSupported("membarrier", errno)
	}
	return nil
}

func membarrier(cmd int) (int, unix.Errno) {
	r, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, uintptr(cmd), 0, 0)
	return int(r), errno
}
