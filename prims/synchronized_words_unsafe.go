package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// synchronizedWords is the head of the body of a Synchronized, 256 bytes. Two copies of the
// value follow, each at a multiple of 64 bytes.
//
//	owner word  current  valid copy  other copy                       meaning                 ended by
//	free        c        c&1         what earlier Updates left there  idle                    Lock
//	held by n   c        c&1         n writes it                      n is in an Update       commit, abort, death
//	held by n   c+1      (c+1)&1     the previous value               n has committed         Unlock, death
//	held by n,  c        c&1         a system call of n may write it  n is dead and not gone  another process, which
//	dead                                                                                      frees the lock when n is gone
//
// The store of current+1 is the commit. If a process dies before the commit, the value is unchanged. A commit swaps the
// roles of the two copies. Only a later holder of the lock writes to the copy that was valid before. So a reader
// without the lock has read a whole value if current is the same before and after it has read the copy. This is the
// seqcount latch of the Linux kernel.
type synchronizedWords struct {
	_    structs.HostLayout
	lock mutexWords // the lock of the value; its policy is PolicyRelease
	// current is the number of commits. Its bit 0 says which of the two copies of the value is valid.
	//   writers: the holder of the lock, one store for each commit
	//   readers: the holder of the lock; Load, without it
	//   order:   release on the store, acquire on the first load of Load; its second load
	//            comes after asm.LoadFence
	//   futex:   none
	//   crash:   the store is the commit: without it the value is unchanged
	current atomic.Uint64
	_       [56]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(synchronizedWords{}.lock)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(synchronizedWords{}.current)-192]
	_ = [1]struct{}{}[unsafe.Sizeof(synchronizedWords{})-256]
)

// synchronizedShape returns the size of the body of a Synchronized, and where in the body the two copies of the
// value begin. The parameter value is the size of the value in bytes.
func synchronizedShape(value uintptr) (copies [2]arenakernel.Offset, size uint64) {
	copies[0] = arenakernel.Offset(unsafe.Sizeof(synchronizedWords{}))
	copies[1] = copies[0] + (arenakernel.Offset(value)+63)&^63
	return copies, uint64(copies[1]) + uint64(value)
}

// initSynchronized initializes the body of a Synchronized that is being created, and that no other process sees
// yet.
func initSynchronized[T any](body []byte, initial *T, opt *SynchronizedOptions) {
	copies, size := synchronizedShape(unsafe.Sizeof(*initial))
	_ = body[:size]
	// SAFETY: the body has room for the words and both copies, and begins at a multiple of 64.
	w := (*synchronizedWords)(unsafe.Pointer(unsafe.SliceData(body)))
	initMutexWords(&w.lock, &MutexOptions{Policy: PolicyRelease, Spin: opt.Spin})
	*(*T)(unsafe.Add(unsafe.Pointer(w), copies[0])) = *initial
}

// storeMark stores v in w by a plain store, unless the race detector would report that. No process but this one has w.
func storeMark(w *atomic.Uintptr, v uintptr) {
	if race.Enabled {
		w.Store(v)
		return
	}
	// SAFETY: an atomic.Uintptr is one uintptr, which the processor stores as a whole.
	*(*uintptr)(unsafe.Pointer(w)) = v
}
