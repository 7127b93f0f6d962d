package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
)

// waitableWords is the head of the body of a Waitable, 512 bytes. Two copies of the
// user's state follow, each at a multiple of 64 bytes, and then the holds.
type waitableWords struct {
	_   structs.HostLayout
	mon monitorWords
	// current counts the changes of the state; its lowest bit says which copy is
	// valid.
	//   writers: who holds the latch, as a change
	//   readers: who holds the latch
	//   order:   the latch's
	//   futex:   none
	//   crash:   one store makes a change, or the redo log
	current atomic.Uint64
	queue   listWords
	stopped atomic.Uint64 // 1 after Stop; as current
	// holds is how many holds there are, at the end of the body.
	//   writers: the creator
	//   readers: looks
	//   order:   relaxed
	//   futex:   none
	//   crash:   never changes
	holds atomic.Uint64
	_     [88]byte
}

// waitableHold counts the claims of one sort that a participant has not given back.
//
//	writers: who holds the latch
//	readers: the same, looks
//	order:   the latch's
//	futex:   none
//	crash:   taken back for a name that is not current
type waitableHold struct {
	name  atomic.Uint64
	extra atomic.Uint64 // what was claimed
	count atomic.Uint64 // 0: the entry is free
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.current)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.queue)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.stopped)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.holds)-416]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableWords{})-512]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableHold{})-waitableHoldSize]
)

// waitableShape is where the parts of a Waitable with a state of that many bytes are.
type waitableShape struct {
	copies [2]arena.Offset // from the body
	holds  arena.Offset
	count  int // of holds
	size   uint64
}

func waitableShapeOf(state uintptr, holds int) (s waitableShape) {
	each := (arena.Offset(state) + 63) &^ 63
	s.copies[0] = arena.Offset(unsafe.Sizeof(waitableWords{}))
	s.copies[1] = s.copies[0] + each
	s.holds = s.copies[1] + each
	s.count = holds
	s.size = uint64(s.holds) + uint64(holds)*waitableHoldSize
	return s
}

// packExtra makes a word of a value of at most eight bytes without pointers.
func packExtra[E any](e E) (v uint64) {
	*(*E)(unsafe.Pointer(&v)) = e
	return v
}

func unpackExtra[E any](v uint64) E { return *(*E)(unsafe.Pointer(&v)) }

func sizeOf[T any]() uintptr {
	var v T
	return unsafe.Sizeof(v)
}

func waitableBody(b []byte) *waitableWords {
	_ = b[unsafe.Sizeof(waitableWords{})-1]
	return (*waitableWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// initialState puts a new object's state in its place.
func initialState[S any](body []byte, shape waitableShape, s *S) {
	_ = body[shape.copies[0]+arena.Offset(unsafe.Sizeof(*s))-1 : shape.size]
	*(*S)(unsafe.Pointer(&body[shape.copies[0]])) = *s
}
