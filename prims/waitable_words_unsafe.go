package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// waitableWords is the head of the body of a Waitable, 512 bytes. Two copies of the user's state follow, each
// at a multiple of 64 bytes, and then the array of waitableHold.
type waitableWords struct {
	_   structs.HostLayout
	mon monitorWords
	// current counts the changes of the state; its lowest bit says which copy is
	// valid.
	//   writers: the holder of the queue lock, as a change
	//   readers: the holder of the queue lock; State
	//   order:   release for State; else the queue lock's
	//   futex:   none
	//   crash:   a change takes effect by one store, or by the redo log
	current atomic.Uint64
	queue   listWords
	stopped atomic.Uint64 // 1 after Stop; the same rules as for the field current
	// holds is the length of the array of waitableHold at the end of the body.
	//   writers: the creator
	//   readers: periodic checks
	//   order:   relaxed
	//   futex:   none
	//   crash:   never changes
	holds atomic.Uint64
	// copying is the number of the last change that has begun to write its copy of the state; see State.
	//   writers: the holder of the queue lock, before it writes the copy, and after it
	//   readers: State
	//   order:   before the stores that follow it, and after those that precede it; State reads
	//            after asm.LoadFence
	//   futex:   none
	//   crash:   current or one more; the next change stores it again
	copying atomic.Uint64
	// lostBy is the ID of the participant in which a rule panicked or ended its goroutine, and 0 if none did. While
	// it is not 0, no process calls a rule.
	//   writers: the holder of the queue lock; Recover as part of a change
	//   readers: the holder of the queue lock, Err, periodic checks
	//   order:   release, for lostText
	//   futex:   none
	//   crash:   a process that dies before the store leaves a usable object, and the
	//            rule fails for the next process that runs it; one that dies after the
	//            store leaves waits, which the next holder of the queue lock ends
	lostBy atomic.Uint64
	// lostText is the text of the panic, truncated, and ended by a 0. guarded by: lostBy, which
	// is 0 while the text is written
	lostText [72]byte
}

// waitableHold counts the claims of one participant for one value of E that the participant has not given back.
//
//	writers: the holder of the queue lock
//	readers: the same, periodic checks
//	order:   the queue lock's
//	futex:   none
//	crash:   the reaper takes the claims of a participant that is not current back
type waitableHold struct {
	name  atomic.Uint64
	extra atomic.Uint64 // the value of E for which the claims were made
	count atomic.Uint64 // number of claims that are held
	// The field granted counts the claims that waits of the participant were granted. The holder of the queue
	// lock writes it. The field accepted counts the claims that these waits have accepted. The waits write it
	// without the queue lock. The entry is free when the field count is 0 and the fields granted and accepted
	// are equal.
	granted, accepted atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.current)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.queue)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.stopped)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.holds)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.copying)-424]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.lostBy)-432]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableWords{}.lostText)-440]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableWords{})-512]
	_ = [1]struct{}{}[unsafe.Offsetof(waitableHold{}.accepted)-32]
	_ = [1]struct{}{}[unsafe.Sizeof(waitableHold{})-waitableHoldSize]
)

const waitableLostTextOff = arenakernel.Offset(unsafe.Offsetof(waitableWords{}.lostText))

// waitableShape says where the parts of a Waitable are in its body.
type waitableShape struct {
	copies [2]arenakernel.Offset // offsets in the body
	holds  arenakernel.Offset
	count  int // length of the array of waitableHold
	size   uint64
}

func waitableShapeOf(state uintptr, holds int) (s waitableShape) {
	each := (arenakernel.Offset(state) + 63) &^ 63
	s.copies[0] = arenakernel.Offset(unsafe.Sizeof(waitableWords{}))
	s.copies[1] = s.copies[0] + each
	s.holds = s.copies[1] + each
	s.count = holds
	s.size = uint64(s.holds) + uint64(holds)*waitableHoldSize
	return s
}

// packExtra packs a value of E, which has at most eight bytes and no pointers, into a word.
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

// initialState writes the first value of the state into the body of an object that is being created.
func initialState[S any](body []byte, shape waitableShape, s *S) {
	_ = body[shape.copies[0]+arenakernel.Offset(unsafe.Sizeof(*s))-1 : shape.size]
	*(*S)(unsafe.Pointer(&body[shape.copies[0]])) = *s
}
