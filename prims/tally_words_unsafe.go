package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/arena"
)

// tallyWords is the head of the body of a WaitGroup and of a Latch, 640 bytes; a
// tallyShare for each slot of the arena follows, from slot 1.
type tallyWords struct {
	_    structs.HostLayout
	mon  monitorWords
	size atomic.Uint64 // what a Latch began with. Immutable after init.
	// others is what is expected of nobody in particular, less what was done for
	// others: signed.
	//   writers: who holds the latch
	//   readers: the same, tools
	//   order:   the latch's
	//   futex:   none
	//   crash:   changed by one store or through the redo log
	others atomic.Uint64
	// owed is what the dead had undertaken and not done, since the counter was 0.
	// The five tags are those of others.
	owed atomic.Uint64
	// dead is the name of who owed that, the last one; 0 while owed is 0. As others.
	dead atomic.Uint64
	// epoch counts how often the counter became 0; that makes all shares void. As others.
	epoch atomic.Uint64
	queue listWords
	_     [72]byte
	// count is others + owed + the shares that are not void.
	//   writers: who holds the latch
	//   readers: Wait, without the latch; tools
	//   order:   release when it becomes 0, acquire by who reads that without the latch
	//   futex:   none
	//   crash:   made anew from what it is the sum of
	count atomic.Uint64
	_     [120]byte
}

// tallyShare is what a participant has undertaken and not done.
//
//	writers: who holds the latch
//	readers: the same, tools, looks
//	order:   the latch's
//	futex:   none
//	crash:   void unless epoch is the object's; what a name has that is not current is owed
type tallyShare struct {
	_     structs.HostLayout
	name  atomic.Uint64 // of the participant
	epoch atomic.Uint64
	own   atomic.Uint64
	// claimed is how much of own the participant claimed, own at most: others cannot
	// claim that.
	claimed atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.size)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.others)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.owed)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.dead)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.epoch)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.queue)-424]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyWords{}.count)-512]
	_ = [1]struct{}{}[unsafe.Sizeof(tallyWords{})-640]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyShare{}.name)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyShare{}.epoch)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyShare{}.own)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(tallyShare{}.claimed)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(tallyShare{})-32]
)

// tallyBytes is how long the body is in an arena with that many slots.
func tallyBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(tallyWords{})) + uint64(slots)*uint64(unsafe.Sizeof(tallyShare{}))
}

// tallyBody views the private body of an object that is being made.
func tallyBody(b []byte) *tallyWords {
	_ = b[unsafe.Sizeof(tallyWords{})-1]
	return (*tallyWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// tallyShares are the shares of the slots of an arena, from slot 1.
func tallyShares(a *arena.Arena, body arena.Offset) []*tallyShare {
	s := make([]*tallyShare, a.MaxParticipants())
	for i := range s {
		s[i] = arena.At[tallyShare](a, body+arena.Offset(unsafe.Sizeof(tallyWords{}))+arena.Offset(i)*arena.Offset(unsafe.Sizeof(tallyShare{})))
	}
	return s
}
