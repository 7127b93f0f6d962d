package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// spinWords is the body of a SpinLock and of an RWSpinLock, that is, its memory in the arena, 128 bytes. The words that
// every operation reads are on one cache line; the words that only waiters and wakers read are on another. A word that
// belongs to an RWSpinLock stays 0 in a SpinLock.
type spinWords struct {
	_     structs.HostLayout
	state atomic.Uint32 // see spinWord
	// drain is the futex word of a call that waits for readers to leave; see park.Word. It belongs to an RWSpinLock.
	// It is on this cache line because each RUnlock reads it.
	drain atomic.Uint32
	_     [8]byte
	// met records a time at which the present hold had already begun. A waiter that sleeps on the word wake stores
	// that time. gateMet records the same; a reader that sleeps on the word gate stores it.
	met     metWords
	gateMet metWords
	_       [16]byte

	// wake is the futex word of the waiters for an exclusive hold; see park.Word.
	wake atomic.Uint32
	// gate is the futex word of the waiting readers. It belongs to an RWSpinLock.
	gate        atomic.Uint32
	policy      uint32        // the result of Policy.stored. Immutable after init.
	died        atomic.Uint32 // ID of the participant whose death left the state inconsistent; for tools
	spin        atomic.Uint32 // spin budget: 0 adaptive, else ns + 1; set by users, any value is valid
	lastCPU     atomic.Uint32 // the CPUs of the last releases that found a waiter, see park; a hint
	pays        atomic.Uint32 // how well spinning has paid lately, see park; a hint
	_           [4]byte
	poller      atomic.Uint64 // head of the list of poller nodes of wake; see arenakernel.EachPollerNode
	gatePoller  atomic.Uint64 // head of the same kind of list for gate
	drainPoller atomic.Uint64 // head of the same kind of list for drain
	_           [8]byte
}

// rwSpinRecord is a slot record of an RWSpinLock: a block of the arena with the count of one participant's readers. It
// has two cache lines to itself, because a CPU that loads a line also prefetches its neighbour.
type rwSpinRecord struct {
	_     structs.HostLayout
	_     [64]byte      // the header of a slot record, and padding
	count atomic.Uint64 // see rwSpinCount
	_     [56]byte
}

// The layout is part of the binary interface: if the offset of a field changes, its line here does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.state)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.drain)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.met)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.gateMet)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.wake)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.gate)-68]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.policy)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.died)-76]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.spin)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.lastCPU)-84]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.pays)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.poller)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.gatePoller)-104]
	_ = [1]struct{}{}[unsafe.Offsetof(spinWords{}.drainPoller)-112]
	_ = [1]struct{}{}[unsafe.Sizeof(spinWords{})-128]

	_ = [1]struct{}{}[unsafe.Offsetof(rwSpinRecord{}.count)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(rwSpinRecord{})-128]
)

const (
	spinBytes    = unsafe.Sizeof(spinWords{})
	spinDrainOff = arenakernel.Offset(unsafe.Offsetof(spinWords{}.drain))
	spinWakeOff  = arenakernel.Offset(unsafe.Offsetof(spinWords{}.wake))
	spinGateOff  = arenakernel.Offset(unsafe.Offsetof(spinWords{}.gate))

	rwSpinRecordBytes = uint64(unsafe.Sizeof(rwSpinRecord{}))
)

// spinBody returns the words of a spin lock that is being created in b, and that no other process sees yet.
func spinBody(b []byte) *spinWords {
	_ = b[spinBytes-1]
	return (*spinWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
