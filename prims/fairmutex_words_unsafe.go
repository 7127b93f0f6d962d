package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// fairMutexWords is the body of a FairMutex, 512 bytes.
type fairMutexWords struct {
	_   structs.HostLayout
	mon monitorWords
	// owner is the holder, in its low half: an ownerWord that is never biased or reserved.
	// The high half is 0.
	//   writers: the holder of the queue lock
	//   readers: the same, tools, periodic checks
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   names a dead participant until a reap; every change is one store
	owner  atomic.Uint64
	policy uint32        // the result of Policy.stored. Immutable after init.
	died   atomic.Uint32 // the participant whose death left the state inconsistent; for tools
	queue  listWords
	_      [96]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.owner)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.policy)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.died)-396]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.queue)-400]
	_ = [1]struct{}{}[unsafe.Sizeof(fairMutexWords{})-512]
)

const fairMutexBytes = unsafe.Sizeof(fairMutexWords{})

// fairMutexBody views the private body of a FairMutex that is being made.
func fairMutexBody(b []byte) *fairMutexWords {
	_ = b[fairMutexBytes-1]
	return (*fairMutexWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// fairMutexAt views the body of a FairMutex.
func fairMutexAt(a *arenakernel.Arena, o arenakernel.Object) *fairMutexWords {
	return arenakernel.At[fairMutexWords](a, o.Body)
}
