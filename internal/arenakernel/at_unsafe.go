package arenakernel

import (
	"reflect"
	"strconv"
	"unsafe"

	"github.com/shmsync/shmsync"
)

// At returns a pointer to the T at off. The T must be in a block that Alloc returned, or in an
// object. At panics if T contains pointers, if off is not a multiple of T's alignment, or if no
// block has room for a T at off. For an offset that came from a peer, use [TryAt].
//
// The pointer is valid until the block is freed or the arena is closed.
func At[T any](a *Arena, off Offset) *T {
	p, err := TryAt[T](a, off)
	if err != nil {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": At: " + err.Error())
	}
	return p
}

// TryAt is At for an offset that came from a peer: if the offset is wrong, the error Is
// [shmsync.ErrCorrupt].
func TryAt[T any](a *Arena, off Offset) (*T, error) {
	if err := a.use("arena.at"); err != nil {
		return nil, err
	}
	t := reflect.TypeFor[T]()
	if err := layoutOf(t).err; err != nil {
		panic("shmsync: arena " + strconv.Quote(a.label) + ": " + err.Error())
	}
	size, align := uint64(t.Size()), uint64(t.Align())
	if what := a.room(off, size, align); what != "" {
		return nil, a.fail("arena.at", shmsync.ErrCorrupt, "no "+t.String()+" can be at "+off.String()+": "+what)
	}
	// SAFETY: the method room has checked that the T is aligned and within a block of the arena. The function
	// layoutOf has checked that it has no pointers that the collector would follow.
	return (*T)(a.at(off, size, align)), nil
}

// room returns "" if size bytes at off are within one block that is in use. Otherwise it returns
// the reason why they are not.
func (c *core) room(off Offset, size, align uint64) string {
	if !c.within(off, size, align) {
		return "it is out of the arena or not aligned"
	}
	b, ok := c.holding(off)
	if !ok {
		return "no block is there"
	}
	switch w := b.load(); w.kind() {
	case blockRaw, blockObject, blockLogged:
	case blockFreeing:
		// The object is being deleted while this process visits it. The visit guards the object, so
		// its bytes do not change yet.
	default:
		return "the block there is " + w.String()
	}
	if size > b.size-uint64(off-b.off) {
		return "the block there has no room for it"
	}
	return ""
}

// bodyOf returns the T that is the body of o.
func bodyOf[T any](c *core, o Object) *T {
	// SAFETY: the caller has checked that T has no pointers and that the body,
	// which is aligned to a cache line, has the size of a T.
	return (*T)(c.at(o.Body, uint64(unsafe.Sizeof(*new(T))), 8))
}

// elementsOf returns the n elements of type T that are the body of o.
func elementsOf[T any](c *core, o Object, n int) []T {
	// SAFETY: the caller has checked that T has no pointers and that the body, which is aligned to a
	// cache line, has the size of n elements. The slice has no capacity beyond them.
	return unsafe.Slice((*T)(c.at(o.Body, uint64(n)*uint64(unsafe.Sizeof(*new(T))), 8)), n)
}

// copyValue copies the bytes of a T without pointers. An assignment would not do, because T may
// contain parts that must not be copied according to vet, such as atomic variables.
func copyValue[T any](to, from *T) {
	// SAFETY: both have the size of a T.
	copy(unsafe.Slice((*byte)(unsafe.Pointer(to)), unsafe.Sizeof(*to)), unsafe.Slice((*byte)(unsafe.Pointer(from)), unsafe.Sizeof(*from)))
}

// putValue copies the bytes of *v to the body of an object that is being made.
func putValue[T any](body []byte, v *T) {
	// SAFETY: v has the size of a T, and no pointers that the collector would follow.
	copy(body, unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
}

// SlotRecordAt returns a pointer to the T in a slot record, that is, in the block that an object
// has for the participant in one slot. The argument off is an offset that SlotRecord or
// EachSlotRecord returned for records of the size of a T.
func SlotRecordAt[T any](a *Arena, off Offset) *T {
	// SAFETY: the block at off is as large as a T and aligned to a cache line. Slot records have no
	// pointers that the collector would follow.
	return (*T)(a.at(off, uint64(unsafe.Sizeof(*new(T))), 8))
}
