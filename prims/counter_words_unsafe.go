package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// counterWords is the head of the body of a WaitGroup and of a Latch, 640 bytes; a
// counterShare for each slot of the arena follows, from slot 1.
type counterWords struct {
	_    structs.HostLayout
	mon  monitorWords
	size atomic.Uint64 // what a Latch began with. Immutable after init.
	// others is the work that is expected of no participant in particular, less the work
	// that was done for others: signed.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   changed by one store or through the redo log
	others atomic.Uint64
	// owed is what the dead had undertaken and not done, since the counter was 0.
	// The five tags are those of others.
	owed atomic.Uint64
	// dead is the last participant that left such work; 0 while owed is 0. As others.
	dead atomic.Uint64
	// epoch counts how often the counter became 0; that makes all shares void. As others.
	epoch atomic.Uint64
	queue listWords
	_     [72]byte
	// count is others + owed + the shares that are not void.
	//   writers: the holder of the queue lock
	//   readers: Wait, without the queue lock; tools
	//   order:   release when it becomes 0, acquire by a reader without the queue lock
	//   futex:   none
	//   crash:   made anew from what it is the sum of
	count atomic.Uint64
	_     [120]byte
}

// counterShare is what a participant has undertaken and not done.
//
//	writers: the holder of the queue lock
//	readers: the same, tools, periodic checks
//	order:   the queue lock's
//	futex:   none
//	crash:   void unless epoch is the object's; the share of a name that is not
//	         current is owed
type counterShare struct {
	_     structs.HostLayout
	name  atomic.Uint64 // of the participant
	epoch atomic.Uint64
	own   atomic.Uint64
	// claimed is how much of own the participant claimed. It is at most own, and other
	// participants cannot claim it.
	claimed atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.size)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.others)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.owed)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.dead)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.epoch)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.queue)-424]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.count)-512]
	_ = [1]struct{}{}[unsafe.Sizeof(counterWords{})-640]
	_ = [1]struct{}{}[unsafe.Offsetof(counterShare{}.name)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(counterShare{}.epoch)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(counterShare{}.own)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(counterShare{}.claimed)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(counterShare{})-32]
)

// counterBytes is how long the body is in an arena with that many slots.
func counterBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(counterWords{})) + uint64(slots)*uint64(unsafe.Sizeof(counterShare{}))
}

// counterBody views the private body of an object that is being made.
func counterBody(b []byte) *counterWords {
	_ = b[unsafe.Sizeof(counterWords{})-1]
	return (*counterWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// counterShares are the shares of the slots of an arena, from slot 1.
func counterShares(a *arenakernel.Arena, body arenakernel.Offset) []*counterShare {
	s := make([]*counterShare, a.MaxParticipants())
	for i := range s {
		s[i] = arenakernel.At[counterShare](a, body+arenakernel.Offset(unsafe.Sizeof(counterWords{}))+arenakernel.Offset(i)*arenakernel.Offset(unsafe.Sizeof(counterShare{})))
	}
	return s
}
