package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// mutexWords is the body of a Mutex, 192 bytes. The word that every operation writes has two cache lines to
// itself: its own line, and the neighbour line that the CPU prefetches.
type mutexWords struct {
	_     structs.HostLayout
	owner atomic.Uint32 // see ownerWord
	_     [60]byte

	// wake is the futex word of the waiters; see park.Word.
	wake atomic.Uint32
	// starving is the ID of a participant that has waited too long and asks to get the lock at the next release. It
	// is 0 if there is none.
	//   writers: a waiter that has lost for long (CAS 0 to its ID); a process that reserves the lock for
	//            that waiter, and reapers (CAS to 0)
	//   readers: Unlock's slow path
	//   order:   seq-cst, against the owner word
	//   futex:   none
	//   crash:   may name a dead participant; a process that would reserve the lock for it clears the word
	starving atomic.Uint32
	// handoff is the word that starving waiters sleep on. It is increased each time the lock is reserved for one of
	// them.
	//   writers: a process that reserves the lock
	//   readers: starving waiters
	//   order:   seq-cst, against the owner word
	//   futex:   WAIT by starving waiters, which also sleep on the word wake; WAKE all by its writers
	//   crash:   as for the word wake
	handoff atomic.Uint32
	policy  uint32        // the result of Policy.stored. Immutable after init.
	died    atomic.Uint32 // ID of the participant whose death left the state inconsistent; for tools
	spin    atomic.Uint32 // spin budget: 0 adaptive, else ns + 1; set by users, any value is valid
	lastCPU atomic.Uint32 // the CPUs of the last releases that found a waiter, see park; a hint
	pays    atomic.Uint32 // how well spinning has paid lately, see park; a hint
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	handed  atomic.Uint64 // when the lock was last handed to a waiter, CLOCK_MONOTONIC ns; bit 0 is handedLocally; a hint
	met     metWords      // a time at which the present hold had already begun
	counts  countWords    // the counters of the object whose body begins with these words
}

// futexWords is the body of a Futex, 128 bytes.
type futexWords struct {
	_     structs.HostLayout
	state atomic.Uint64 // see futexState
	// lastCPU, spin and pays control how long waiters spin, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [4]byte
	poller  atomic.Uint64
	_       [32]byte
	_       [64]byte
}

// The layout is part of the binary interface: if the offset of a field changes, its line here does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.owner)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.wake)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.starving)-68]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.handoff)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.policy)-76]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.died)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.spin)-84]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.lastCPU)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.pays)-92]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.poller)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.handed)-104]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.met)-112]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.counts)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(mutexWords{})-192]

	_ = [1]struct{}{}[unsafe.Offsetof(futexWords{}.state)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(futexWords{}.lastCPU)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(futexWords{}.spin)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(futexWords{}.pays)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(futexWords{}.poller)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(futexWords{})-128]
)

const (
	mutexBytes    = unsafe.Sizeof(mutexWords{})
	mutexWakeOff  = arenakernel.Offset(unsafe.Offsetof(mutexWords{}.wake))
	mutexHandOff  = arenakernel.Offset(unsafe.Offsetof(mutexWords{}.handoff))
	mutexPolicy   = unsafe.Offsetof(mutexWords{}.policy)
	futexBytes    = unsafe.Sizeof(futexWords{})
	futexStateOff = arenakernel.Offset(unsafe.Offsetof(futexWords{}.state))
)

// wordPtr returns w as the plain pointer that futex calls take.
func wordPtr(w *atomic.Uint32) *uint32 { return (*uint32)(unsafe.Pointer(w)) }

// low returns the half of w on which futex calls can sleep. That half has the low bits, because all machines
// that the library supports are little-endian.
func low(w *atomic.Uint64) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Pointer(w)) }

// mutexBody returns the words of a Mutex that is being created in b, and that no other process sees yet.
func mutexBody(b []byte) *mutexWords {
	_ = b[mutexBytes-1]
	return (*mutexWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// futexBody returns the words of a Futex that is being created in b, and that no other process sees yet.
func futexBody(b []byte) *futexWords {
	_ = b[futexBytes-1]
	return (*futexWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// The fast paths of a closed handle use these words instead of those of the object. Their values make every
// fast path fail. The owner word is neither free nor a hold of any participant, the gate is not open, and the
// reader word belongs to nobody.
var (
	closedOwner  uint32 = 1<<32 - 1
	closedWake   uint32
	closedGate   uint32 = 1<<32 - 1
	closedReader uint64
	closedFutex  atomic.Uint64
	closedCount  atomic.Uint64
	closedOnce   atomic.Uint64
)

func init() { closedCount.Store(uint64(counterLogged)) }

// takeWords makes the fast paths of a handle that is being closed fail. It points the handle's owner word and wake
// word to words that no object uses.
func takeWords(own, wake **uint32) {
	redirect(own, &closedOwner)
	redirect(wake, &closedWake)
}

// redirect changes a pointer of a fast path. The fast path reads the pointer by a plain load. It gets the old or the
// new value, because a pointer is stored in one piece. The race detector must not see this store. An Unlock of an
// RWMutex, for example, tells the detector that it releases the lock, and then reads the pointer. If another
// goroutine gets the lock meanwhile and closes the handle, the detector would report a race, although both values are
// correct.
//
//go:norace
//go:noinline
func redirect[T any](p **T, to *T) { *p = to }

// storeWord stores v in a word that no other goroutine writes at this time. The store is a release: a process that sees
// it also sees everything that this goroutine has done before. Go's atomic store is a locked exchange on amd64. There
// storeWord is a plain move, which is faster, and a release, too. On other processors storeWord is the atomic store.
//
// If a process dies, other processes find all its stores up to some point of its program, and none after that point.
//
// Under the race detector, storeWord stores atomically. Otherwise the detector would report a plain store and an
// atomic load of a word in an arena of package arenatest as a race.
func storeWord(w *atomic.Uint64, v uint64) {
	if race.Enabled || !storesInOrder {
		w.Store(v)
		return
	}
	*(*uint64)(unsafe.Pointer(w)) = v
}
