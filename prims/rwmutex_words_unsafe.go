package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// rwmutexWords is the body of an RWMutex. The writers' mutex is a [mutexWords] at the same address, and rwmutexWords
// uses bytes that a Mutex leaves unused. A writer takes the writers' mutex before it closes the gate, and releases
// the mutex after it has opened the gate. A process with an upgradable hold has the mutex, too. The policy of the
// mutex is PolicyRelease, so the mutex is free after the death of its holder. The gate records what the dead writer has
// left. In an arena with counters, the counters of the mutex follow the body.
//
// The gate is the only word that every reader reads. It is in the header of the object, on another cache line than
// the owner word of the mutex. So readers do not become slower when a process locks or unlocks for an upgradable
// hold.
type rwmutexWords struct {
	_     structs.HostLayout
	owner atomic.Uint32 // owner word of the writers' mutex

	wakeReaders   atomic.Uint32 // readers that wait for the gate sleep on it; see park.Word
	wakeWriter    atomic.Uint32 // a writer that waits for readers sleeps on it; see park.Word
	died          atomic.Uint32 // ID of the participant whose death left the state inconsistent; for tools
	lastCPU       atomic.Uint32 // the CPUs of the last releases, see park; a hint
	pays          atomic.Uint32 // how well spinning has paid for readers lately, see park; a hint
	paysWriter    atomic.Uint32 // how well spinning has paid for writers lately
	_             [4]byte
	pollerReaders atomic.Uint64 // head of the list of poller nodes of readers; see arenakernel.EachPollerNode
	pollerWriter  atomic.Uint64 // head of the list of poller nodes of writers
	policy        uint32        // the result of Policy.stored. Immutable after init.
	_             [12]byte
	mutex         [64]byte // the rest of the writers' mutex
}

// rwmutexRecord is a block of the arena with the word that the participant of one slot writes as a reader. It has
// two cache lines to itself, because CPUs fetch lines in pairs.
type rwmutexRecord struct {
	_     structs.HostLayout
	_     [64]byte      // begins with the header of a slot record
	state atomic.Uint64 // see readerWord
	_     [56]byte
}

// The layout is part of the ABI. If an offset changes, this declaration does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.owner)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.wakeReaders)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.wakeWriter)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.died)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.lastCPU)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pays)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.paysWriter)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pollerReaders)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pollerWriter)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.mutex)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.policy)-48]
	_ = [1]struct{}{}[unsafe.Sizeof(rwmutexWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.wake)-unsafe.Offsetof(rwmutexWords{}.mutex)]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.counts)-unsafe.Sizeof(rwmutexWords{})]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexRecord{}.state)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(rwmutexRecord{})-rwmutexRecordBytes]
)

const (
	rwmutexReadersOff = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.wakeReaders))
	rwmutexWriterOff  = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.wakeWriter))
)

// rwmutexRecordBytes is the size of a slot record of an RWMutex.
const rwmutexRecordBytes = 128

// rwmutexBytes is the size of the body of an RWMutex.
func rwmutexBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(mutexBytes)
	}
	return uint64(unsafe.Sizeof(rwmutexWords{}))
}

// rwmutexAll has the gate of an RWMutex, and its body both as rwmutexWords and as the writers' mutex.
type rwmutexAll struct {
	*rwmutexWords
	gate    *atomic.Uint32 // see gateWord
	writers *mutexWords    // its counters exist only in an arena with counters
}

// rwmutexAt returns the words of the RWMutex o.
func rwmutexAt(a *arenakernel.Arena, o arenakernel.Object) (rwmutexAll, error) {
	if o.Size < rwmutexBytes(a) {
		return rwmutexAll{}, &shmsync.Error{Op: "rwmutex.at", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body is too small"}
	}
	// Every block of the arena that is large enough for a header and a body of 128 bytes also has room for a whole
	// mutexWords.
	w, err := arenakernel.TryAt[mutexWords](a, o.Body)
	return rwmutexOf(w, a.WordOfKind(o)), err
}

// rwmutexOf returns the words of an RWMutex whose writers' mutex is w.
func rwmutexOf(w *mutexWords, gate *atomic.Uint32) rwmutexAll {
	// SAFETY: an rwmutexWords is shorter than a mutexWords, and both have the layout of the host.
	return rwmutexAll{(*rwmutexWords)(unsafe.Pointer(w)), gate, w}
}

// raw64 returns the address of w for the functions of package atomic.
func raw64(w *atomic.Uint64) *uint64 { return (*uint64)(unsafe.Pointer(w)) }

// rwmutexBody returns the words of a new RWMutex, except the gate. No other process sees the words yet. The body b
// is in a block of the arena that has room for a whole mutexWords.
func rwmutexBody(b []byte) rwmutexAll {
	_ = b[unsafe.Sizeof(rwmutexWords{})-1]
	return rwmutexOf((*mutexWords)(unsafe.Pointer(unsafe.SliceData(b))), nil)
}
