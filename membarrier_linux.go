package shmsync

import "golang.org/x/sys/unix"

// RegisterFence makes this process a target of [Fence]. It takes milliseconds
// in a process of many threads and is needed once.
func RegisterFence() error {
	if err := FeatureMembarrier.Check(); err != nil {
		return err
	}
	if _, errno := membarrier(membarrierRegisterGlobalExpedited); errno != 0 {
		return notSupported("membarrier", errno)
	}
	return nil
}

// Fence makes every running thread of every process that called
// [RegisterFence] pass through a full memory fence: what such a thread stored
// before its fence is visible to the caller when Fence returns, and what the
// caller stored before the call is visible to loads that follow the fence. It
// is the expensive half of an asymmetric Dekker protocol.
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
