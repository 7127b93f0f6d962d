package arena

import (
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/shm"
)

// Offset is a position in an arena, in bytes from its start. Unlike an address, an offset means the
// same position in every process. So processes can send each other offsets and store them in the arena.
// The offset 0 stands for no position. An Offset is a uint64, and its String method renders it in
// hexadecimal.
type Offset = arenakernel.Offset

// MaxAlign is the greatest alignment that Alloc can be asked for.
const MaxAlign = 4096

// Value returns the T of that name, or creates a T that is zero. It panics if T contains pointers. A
// value that exists must have been created with a type whose parts have the same sizes, kinds and
// places. Otherwise the error Is [shmsync.ErrIncompatible].
//
// The value stays open until this process leaves the arena. Until then it cannot be deleted. The caller
// synchronizes access to the value, as to any variable: use atomic fields or a lock of package prims.
func Value[T any](a *Arena, name string) (*T, error) { return arenakernel.Value[T](a.kernel(), name) }

// AttachValue is Value for a value that exists. If there is no value of that name, the error Is
// [fs.ErrNotExist].
func AttachValue[T any](a *Arena, name string) (*T, error) {
	return arenakernel.AttachValue[T](a.kernel(), name)
}

// Slice returns the n elements of that name, or creates n elements that are zero. Use it for an
// array whose length is known only at run time, for instance from a configuration. The object is
// the same as the [Value] of the type [n]T. Slice panics if T contains pointers. The length and the
// capacity of the slice are n.
//
// If the object has another length or type, the error Is [shmsync.ErrIncompatible]. If n is below
// 1, or the size of T is 0, the error Is [fs.ErrInvalid]. Like a Value, the elements stay open
// until this process leaves the arena, and the caller synchronizes access to them.
//
// In C, pass n times the size of an element to shmsync_value_open.
func Slice[T any](a *Arena, name string, n int) ([]T, error) {
	return arenakernel.Slice[T](a.kernel(), name, n)
}

// AttachSlice is Slice for an object that exists. If there is no object of that name, the error Is
// [fs.ErrNotExist].
func AttachSlice[T any](a *Arena, name string, n int) ([]T, error) {
	return arenakernel.AttachSlice[T](a.kernel(), name, n)
}

// Block returns the bytes of that name, or creates size bytes that are zero. If the block has another
// size, the error Is [shmsync.ErrIncompatible]. If size is 0, the error Is [fs.ErrInvalid]. Like a
// Value, the block stays open until this process leaves the arena.
func (a *Arena) Block(name string, size uint64) ([]byte, error) { return a.kernel().Block(name, size) }

// AttachBlock returns the bytes of that name. The block may have any size. If there is no block of that
// name, the error Is [fs.ErrNotExist].
func (a *Arena) AttachBlock(name string) ([]byte, error) { return a.kernel().AttachBlock(name) }

// Alloc returns the offset of a block of size bytes, which are zero. The offset is a multiple of align
// and of 64. align is 0 or a power of two up to [MaxAlign]; Alloc panics for any other value. The block
// stays allocated until a process calls Free, even after the death of this process, because other
// processes may know the offset. If this process dies inside Alloc, the block is free again.
//
// If there is not enough room, the error Is [shmsync.ErrNoSpace]. A sixteenth of the heap, 16 MiB at
// most, is headroom, which Alloc and the creation of objects cannot use. So when users have filled the
// arena with their data, processes can still open and recover the objects that exist. docs/deployment.md
// has the limits.
func (a *Arena) Alloc(size, align uint64) (Offset, error) { return a.kernel().Alloc(size, align) }

// Free frees the block at off. Alloc has returned off, in this process or another. Free panics if no
// allocated block begins at off.
//
// Free synchronizes with the next Alloc that returns the block.
func (a *Arena) Free(off Offset) { a.kernel().Free(off) }

// At returns the T at off. off is an offset that Alloc returned, or an offset within an allocated block
// or an object. At panics if T contains pointers, if off is not a multiple of the alignment of T, or if
// no block has room for a T there. Use [TryAt] for an offset that came from another process.
//
// The pointer is valid until the block is freed or the arena is closed.
func At[T any](a *Arena, off Offset) *T { return arenakernel.At[T](a.kernel(), off) }

// TryAt is At for an offset that came from another process. If the offset is wrong, the error Is
// [shmsync.ErrCorrupt].
func TryAt[T any](a *Arena, off Offset) (*T, error) { return arenakernel.TryAt[T](a.kernel(), off) }

// Place puts a range of the arena on NUMA nodes, for example a block that Alloc returned; see [shm.Segment.Place]. The
// range begins at off and has size bytes; Place widens it to whole pages. A block shares its first and last page with
// other blocks, unless both its alignment and its size are multiples of a page.
//
// A block has memory as soon as it is allocated. If neither the arena nor the range has a policy, this memory is on the
// NUMA node of the process that was the first to allocate in the same chunk of 64 KiB. Pages that other processes have
// mapped move only if this process has CAP_SYS_NICE. So place a block before other processes use it.
func (a *Arena) Place(off Offset, size uint64, p shm.Policy) shm.Placement {
	return a.kernel().Place(off, size, p)
}

// Where reports on which NUMA nodes a range of the arena is, and which placement a process requested;
// see [shm.Segment.Where]. The range begins at off and has size bytes.
func (a *Arena) Where(off Offset, size uint64) ([]shm.Placement, error) {
	return a.kernel().Where(off, size)
}

// LayoutOf returns a fingerprint of T. Two types have the same fingerprint if they consist of
// numbers of the same sizes and kinds at the same offsets. The names of types and fields do not
// matter. A C program passes the fingerprint to shmsync_value_open and shmsync_queue_open, to share
// a T with Go. If T contains pointers, its values cannot be in shared memory, and LayoutOf returns
// an error.
func LayoutOf[T any]() (fingerprint uint64, err error) { return arenakernel.LayoutOf[T]() }
