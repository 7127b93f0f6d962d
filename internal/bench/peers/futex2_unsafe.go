//go:build linux

package peers

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// These are flags of the system calls futex_wait and futex_wake, from linux/futex.h. Linux has these calls since 6.7.
// With futex2NUMA, the word after the futex word has the number of a node. The kernel keeps the sleepers in the table
// of that node. If the number is noNode, the kernel replaces it by the node of the first sleeper.
const (
	futex2U32  = 2
	futex2NUMA = 4
	noNode     = 1<<32 - 1
	anyBit     = 1<<32 - 1
	clockMono  = unix.CLOCK_MONOTONIC
)

// futex2 returns two functions that sleep and wake with the system calls futex_wait and futex_wake.
func futex2(flags uintptr) sleeping {
	return sleeping{
		wait: func(w *atomic.Uint32, v uint32) error {
			// SAFETY: w and the word after it, which the kernel uses with futex2NUMA, are in a mapping.
			_, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAIT, uintptr(unsafe.Pointer(w)), uintptr(v), anyBit, flags, 0, clockMono)
			if errno != 0 && errno != unix.EAGAIN && errno != unix.EINTR {
				return fmt.Errorf("futex_wait, flags %#x: %w", flags, errno)
			}
			return nil
		},
		wake: func(w *atomic.Uint32, n int) {
			// SAFETY: as for SYS_FUTEX_WAIT.
			unix.RawSyscall6(unix.SYS_FUTEX_WAKE, uintptr(unsafe.Pointer(w)), anyBit, uintptr(n), flags, 0, 0)
		},
	}
}

// checkFutex2 returns an error if the kernel does not have the system calls futex_wait and futex_wake.
func checkFutex2() error {
	return probeFutex2(futex2U32, "no futex_wake: a kernel before 6.7, or a sandbox")
}

// checkFutexNUMA returns an error if the kernel does not keep the sleepers of each NUMA node in a table of their own.
func checkFutexNUMA() error {
	if err := checkFutex2(); err != nil {
		return err
	}
	return probeFutex2(futex2U32|futex2NUMA, "no futexes of nodes: a kernel before 6.16")
}

func probeFutex2(flags uintptr, why string) error {
	words := new(uint64) // two futex words, with the alignment that the kernel requires
	*words = noNode << 32
	// SAFETY: the words are new, so no thread sleeps on them.
	_, _, errno := unix.RawSyscall6(unix.SYS_FUTEX_WAKE, uintptr(unsafe.Pointer(words)), anyBit, 1, flags, 0, 0)
	runtime.KeepAlive(words)
	switch errno {
	case 0:
		return nil
	case unix.ENOSYS, unix.EPERM, unix.EINVAL:
		return errors.New(why)
	}
	return fmt.Errorf("futex_wake: %w", errno)
}
