package arena

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// Offset is a position in an arena, in bytes from its start. It means the same in
// every process, unlike an address, so processes send each other offsets and store
// them in the arena. 0 is no position. An Offset is a uint64, and its String method
// renders it in hexadecimal.
type Offset = arenakernel.Offset

// MaxAlign is the greatest alignment that Alloc gives.
const MaxAlign = 4096

// Value finds the T of that name, or creates one that is zero. T has no pointers in it; a T
// with pointers is the caller's mistake and panics. A value that exists must have been
// created with a T whose parts have the same sizes, kinds and places; otherwise the error
// Is [shmsync.ErrIncompatible].
//
// The value stays open, and cannot be deleted, until this process leaves the
// arena. Concurrent use of it is up to the caller, as of any variable: use
// atomic fields or a lock of package prims.
func Value[T any](a *Arena, name string) (*T, error) { return arenakernel.Value[T](a.kernel(), name) }

// AttachValue is Value that creates nothing: if there is no value of that name, the
// error Is [fs.ErrNotExist].
func AttachValue[T any](a *Arena, name string) (*T, error) {
	return arenakernel.AttachValue[T](a.kernel(), name)
}

// Slice finds the n elements of that name, or creates n elements that are zero. It is for an array
// whose length is known at run time only, such as one that a configuration says: the object is the
// [Value] of the type [n]T. T has no pointers in it; a T with pointers is the caller's mistake and
// panics. The length and the capacity of the slice are n.
//
// An object of another length or type is an error that Is [shmsync.ErrIncompatible]. An n below 1,
// or a T without a size, is one that Is [fs.ErrInvalid]. Like a Value the elements stay open until
// this process leaves the arena, and concurrent use of them is up to the caller.
//
// In C, shmsync_value_open takes the size, which is n times that of an element.
func Slice[T any](a *Arena, name string, n int) ([]T, error) {
	return arenakernel.Slice[T](a.kernel(), name, n)
}

// AttachSlice is Slice that creates nothing: if there is no object of that name, the
// error Is [fs.ErrNotExist].
func AttachSlice[T any](a *Arena, name string, n int) ([]T, error) {
	return arenakernel.AttachSlice[T](a.kernel(), name, n)
}

// Block finds the bytes of that name, or creates size bytes that are zero. A
// block of another size is an error that Is [shmsync.ErrIncompatible], and a size of 0
// one that Is [fs.ErrInvalid]. Like a Value it stays open until this process leaves the
// arena.
func (a *Arena) Block(name string, size uint64) ([]byte, error) { return a.kernel().Block(name, size) }

// AttachBlock gives the bytes of that name, whatever their number. If there is no block
// of that name, the error Is [fs.ErrNotExist].
func (a *Arena) AttachBlock(name string) ([]byte, error) { return a.kernel().AttachBlock(name) }

// Alloc returns size bytes of the arena, zeroed, at an offset that is a multiple of align
// and of 64. align is 0 or a power of two up to [MaxAlign]; any other value is the caller's
// mistake and panics. The block stays allocated until a process calls Free, also after the
// death of this process: its offset may have been given to others. If this process dies
// inside Alloc, the block goes back.
//
// Without enough room the error Is [shmsync.ErrNoSpace].
func (a *Arena) Alloc(size, align uint64) (Offset, error) { return a.kernel().Alloc(size, align) }

// Free gives back what Alloc gave, in any process. An offset that is not that
// of an allocated block, because it was never one or has been freed, is the
// caller's mistake and panics.
//
// Free synchronizes with the Alloc that hands the block out next.
func (a *Arena) Free(off Offset) { a.kernel().Free(off) }

// At gives the T at off, an offset that Alloc returned or that lies in a block
// of Alloc's or in an object. A T with pointers in it, an offset that is not a
// multiple of T's alignment, or one where no block has room for a T, is the
// caller's mistake and panics; see [TryAt] for offsets that came from a peer.
//
// The pointer is good until the block is freed or the arena is closed.
func At[T any](a *Arena, off Offset) *T { return arenakernel.At[T](a.kernel(), off) }

// TryAt is At for an offset that came from a peer: a wrong one is an error that
// Is [shmsync.ErrCorrupt].
func TryAt[T any](a *Arena, off Offset) (*T, error) { return arenakernel.TryAt[T](a.kernel(), off) }

// Place puts size bytes of the arena from off, such as Alloc gave, on NUMA nodes:
// see [shm.Segment.Place]. The range is widened to whole pages; a block shares its
// first and last page with others unless it was allocated with the alignment, and a
// size that is a multiple, of a page.
//
// The memory of a block exists from its allocation, on the node of the process that
// allocates first in its chunk of 64 KiB, unless the arena or the range has a policy.
// So place a block before others use it: pages that they have mapped move only where
// this process has CAP_SYS_NICE.
func (a *Arena) Place(off Offset, size uint64, p shm.Policy) shm.Placement {
	return a.kernel().Place(off, size, p)
}

// Where tells on which NUMA nodes size bytes of the arena from off are, and which placement
// a process asked for: see [shm.Segment.Where].
func (a *Arena) Where(off Offset, size uint64) ([]shm.Placement, error) {
	return a.kernel().Where(off, size)
}

// LayoutOf gives a fingerprint of T, the same for all types whose values have the same
// numbers at the same places, whatever these are called. A C program passes it to
// shmsync_value_open and shmsync_queue_open, to share a T with Go. A T that cannot live in
// shared memory, since it has pointers in it, is an error.
func LayoutOf[T any]() (fingerprint uint64, err error) { return arenakernel.LayoutOf[T]() }
