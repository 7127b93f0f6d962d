//go:build linux

package peers

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/control"
)

// These are operations of system calls, from linux/futex.h and linux/ipc.h, for which the package x/sys has no names.
const (
	futexUnlockPI = 7
	ipcPrivate    = 0
	ipcRemove     = 0
)

// checkPI returns an error if the kernel has no futexes with priority inheritance.
func checkPI() error {
	word := new(uint32)
	// SAFETY: the call does not change a word that is not locked.
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexUnlockPI, 0, 0, 0, 0)
	runtime.KeepAlive(word)
	if errno == unix.ENOSYS {
		return errors.New("no futexes with priority inheritance")
	}
	return nil
}

// checkSysV returns an error if the kernel has no System V semaphores.
func checkSysV() error {
	id, _, errno := unix.Syscall(unix.SYS_SEMGET, ipcPrivate, 1, 0o600)
	if errno != 0 {
		return fmt.Errorf("no System V semaphores: %w", errno)
	}
	return removeSemaphores(int(id))
}

func removeSemaphores(id int) error {
	_, _, errno := unix.Syscall6(unix.SYS_SEMCTL, uintptr(id), 0, ipcRemove, 0, 0, 0)
	if errno != 0 {
		return os.NewSyscallError("semctl", errno)
	}
	return nil
}

// removeSysV removes System V semaphores, which the kernel would otherwise keep for ever. The helper, a C program, has
// stored their ids in the segment.
func removeSysV(segment *os.File) {
	var left [8]byte // peer_ipc.h declares the same bytes as "struct left"
	if _, err := segment.ReadAt(left[:], control.PeerBytes-64); err != nil {
		return
	}
	if binary.NativeEndian.Uint32(left[:]) == 1 {
		removeSemaphores(int(int32(binary.NativeEndian.Uint32(left[4:]))))
	}
}

// queueAttributes is the structure with which mq_open(2) gets the attributes of a message queue.
type queueAttributes struct {
	flags, most, size, count int
	_                        [4]int
}

// newMessageQueue creates a message queue and removes its name, so that only the descriptor refers to it.
func newMessageQueue(n int) (*os.File, error) {
	name, err := unix.BytePtrFromString(fmt.Sprintf("shmbench-%d-%d", os.Getpid(), n))
	if err != nil {
		return nil, err
	}
	attr := &queueAttributes{most: 4, size: 8}
	// SAFETY: the kernel reads a string that ends in 0 and a structure of eight longs.
	fd, _, errno := unix.Syscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(name)),
		unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600, uintptr(unsafe.Pointer(attr)), 0, 0)
	runtime.KeepAlive(attr)
	if errno != 0 {
		return nil, os.NewSyscallError("mq_open", errno)
	}
	// SAFETY: as above.
	unix.Syscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(name)), 0, 0)
	runtime.KeepAlive(name)
	return os.NewFile(fd, "mqueue"), nil
}

// messageQueues returns a message queue for each direction in which a token passes, and one that serves as a lock.
func messageQueues(*bench.Cell) (files []*os.File, err error) {
	for n := range 3 {
		f, err := newMessageQueue(n)
		if err != nil {
			return files, err
		}
		files = append(files, f)
	}
	return files, nil
}

// checkQueues returns an error if the kernel has no message queues.
func checkQueues() error {
	f, err := newMessageQueue(0)
	if err != nil {
		return fmt.Errorf("no message queues: %w", err)
	}
	return f.Close()
}
