//go:build linux

package shmsync

import (
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// WaitVEntry is one word of a WaitV call: struct futex_waitv of the kernel.
type WaitVEntry struct {
	val   uint64
	addr  uint64
	flags uint32
	_     uint32
}

// NewWaitVEntry makes an entry that waits on addr while the word there is val. addr must point into mapped memory, or
// to a word of the heap. The entry does not keep a heap word alive, so the caller must do that until the wait has
// returned.
//
//go:nosplit
func NewWaitVEntry(addr *uint32, val uint32) WaitVEntry {
	return WaitVEntry{
		val: uint64(val),
		// SAFETY: heap objects and mappings do not move. Stacks move, but addr must not point to a
		// stack.
		addr:  uint64(uintptr(unsafe.Pointer(addr))),
		flags: futex2Size32,
	}
}

func futexWait(addr *uint32, val, bitset uint32, deadline int64) unix.Errno {
	var ts unix.Timespec
	var tsp *unix.Timespec
	if deadline != 0 {
		ts = timespec(deadline)
		tsp = &ts
	}
	// Use Syscall6 and not RawSyscall6. In a RawSyscall6, a wait without a timeout would keep the garbage collector
	// waiting for this thread for ever.
	_, _, errno := unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWaitBitset,
		uintptr(val), uintptr(unsafe.Pointer(tsp)), 0, uintptr(bitset))
	return errno
}

// timespec converts a deadline other than 0, in nanoseconds of CLOCK_MONOTONIC. The kernel refuses a negative time.
// Therefore a deadline before the boot becomes the first nanosecond after the boot, which has passed as well.
func timespec(deadline int64) unix.Timespec {
	if deadline < 1 {
		deadline = 1
	}
	return unix.NsecToTimespec(deadline)
}

func futexWakeSome(addr *uint32, n int, bitset uint32) (int, unix.Errno) {
	// A wake does not block, so the thread keeps its P.
	r, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexWakeBitset,
		uintptr(n), 0, 0, uintptr(bitset))
	return int(r), errno
}

func futexRequeue(addr *uint32, val uint32, wake int, target *uint32, move int) (int, unix.Errno) {
	r, _, errno := unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(addr)), futexCmpRequeue,
		uintptr(wake), uintptr(move), uintptr(unsafe.Pointer(target)), uintptr(val))
	return int(r), errno
}

func futexWaitV(ws []WaitVEntry, deadline int64) (int, unix.Errno) {
	if len(ws) == 0 || len(ws) > WaitVMax {
		return -1, unix.EINVAL
	}
	var ts unix.Timespec
	var tsp *unix.Timespec
	if deadline != 0 {
		ts = timespec(deadline)
		tsp = &ts
	}
	r, _, errno := unix.Syscall6(unix.SYS_FUTEX_WAITV, uintptr(unsafe.Pointer(unsafe.SliceData(ws))),
		uintptr(len(ws)), 0, uintptr(unsafe.Pointer(tsp)), clockMonotonic, 0)
	runtime.KeepAlive(ws)
	return int(r), errno
}

// RobustList is a list of words that the kernel marks when the thread that registered the list ends. The list is on a
// page of its own, which is mapped shared but which no other process has mapped. The list cannot be in private memory,
// because the out-of-memory reaper of the kernel may discard such memory before the kernel walks the list. It cannot be
// in memory of other processes, because they could overwrite it.
type RobustList struct {
	head *robustHead
	page []byte
	// Register stores here the address of the list that the thread had registered earlier, or 0. Unregister restores
	// that list. A C library registers such a list for its robust mutexes.
	before uintptr
}

// robustHead has the layout of struct robust_list_head of the kernel, followed by the nodes of the list.
type robustHead struct {
	next    uintptr // &nodes[0], or &next when the list is empty
	offset  int64   // distance from a node to its word
	pending uintptr
	_       uintptr
	nodes   [RobustNodes]uintptr
}

// RobustNodes is the number of words that a RobustList can name.
const RobustNodes = 4

// NewRobustList allocates an empty list on its own page.
func NewRobustList() (*RobustList, error) {
	page, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// SAFETY: a page is larger than a robustHead, aligned for it, and stays
	// mapped until Free.
	l := &RobustList{head: (*robustHead)(unsafe.Pointer(unsafe.SliceData(page))), page: page}
	l.Clear()
	return l, nil
}

// Link puts n words on the list. The parameter first points to the first word, and each further word is 8 bytes after
// the previous one. The kernel marks the words in reverse order.
func (l *RobustList) Link(first *uint32, n int) {
	h := l.head
	h.offset = int64(uintptr(unsafe.Pointer(first))) - int64(uintptr(unsafe.Pointer(&h.nodes[0])))
	h.pending = 0
	l.Clear()
	for i := range n {
		h.nodes[i], h.next = h.next, uintptr(unsafe.Pointer(&h.nodes[i]))
	}
}

// Clear takes all words off the list. Call it before the words are unmapped, because the kernel
// stops its walk at the first address that it cannot read.
func (l *RobustList) Clear() {
	l.head.next = uintptr(unsafe.Pointer(&l.head.next))
}

// Register makes l the robust list of the calling thread. The calling goroutine must be locked to its thread. When
// the thread ends for any reason, or the process replaces its program, the kernel puts [RobustOwnerDied] into each
// word of the list that has the thread's ID. If such a word also has [RobustWaiters], the kernel wakes one sleeper
// on the word.
//
// A thread has only one list, so l replaces the list that a C library may have registered. Until Unregister, the
// thread must not lock a robust pthread mutex.
func (l *RobustList) Register() error {
	before, errno := getRobustList()
	if errno != 0 {
		return notSupported("get_robust_list", errno)
	}
	own := uintptr(unsafe.Pointer(l.head))
	if before != own {
		l.before = before
	}
	return setRobustList(own)
}

// Unregister ends the registration of l, and registers the list that the calling thread had before Register. It
// must be called on the thread that registered l. Afterwards l can be freed.
func (l *RobustList) Unregister() error {
	l.Clear()
	return setRobustList(l.before)
}

// Free frees the page of the list. No thread may have the list registered.
func (l *RobustList) Free() error {
	return os.NewSyscallError("munmap", unix.Munmap(l.page))
}

// robustHeadSize is sizeof(struct robust_list_head). The kernel accepts no other size.
const robustHeadSize = 24

func setRobustList(head uintptr) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, head, robustHeadSize, 0)
	if errno != 0 {
		return notSupported("set_robust_list", errno)
	}
	return nil
}

// getRobustList returns the list that the calling thread has registered, or 0.
func getRobustList() (head uintptr, errno unix.Errno) {
	var size uintptr
	_, _, errno = unix.RawSyscall(unix.SYS_GET_ROBUST_LIST, 0,
		uintptr(unsafe.Pointer(&head)), uintptr(unsafe.Pointer(&size)))
	return head, errno
}

// reregisterRobustList registers the current robust list of the calling thread again. It is a probe: the call
// changes nothing, and fails if the kernel does not let the thread register a list.
func reregisterRobustList() unix.Errno {
	head, errno := getRobustList()
	if errno != 0 {
		return errno
	}
	_, _, errno = unix.RawSyscall(unix.SYS_SET_ROBUST_LIST, head, robustHeadSize, 0)
	return errno
}
