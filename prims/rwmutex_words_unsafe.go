package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// rwmutexWords is the first part of the body of an RWMutex. An rwmutexLine for each slot of the
// arena follows, from slot 1 on.
type rwmutexWords struct {
	_ structs.HostLayout
	// writers is the mutex that a writer holds while it closes the gate, writes, and opens the
	// gate. An upgradable holder holds it, too. Its policy is PolicyRelease: the gate says what a
	// death has left.
	writers mutexWords
	_       [64]byte

	// The words that readers read: no process writes them while there are no writers.

	gate atomic.Uint32 // see gateWord
	// high is the highest slot that has ever had the object open.
	//   writers: an opener, by CAS, upwards, before it reads for the first time
	//   readers: writers, which look at the reader words up to this slot
	//   order:   seq-cst, as the reader words
	//   futex:   none
	//   crash:   any value up to the number of slots is right if it is not too low
	high   atomic.Uint32
	policy uint32 // the result of Policy.stored. Immutable after init.
	_      [116]byte

	wakeReaders   atomic.Uint32 // readers that wait for the gate sleep on it; see park.Word
	wakeWriter    atomic.Uint32 // a writer that waits for readers sleeps on it; see park.Word
	died          atomic.Uint32 // ID of the participant whose death left the state inconsistent; for tools
	lastCPU       atomic.Uint32 // which CPUs released last, see park; a hint
	pays          atomic.Uint32 // what spinning has paid readers lately, see park; a hint
	paysWriter    atomic.Uint32 // what spinning has paid writers lately
	pollerReaders atomic.Uint64 // head of the list of poller nodes of readers; see arenakernel.EachPollerNode
	pollerWriter  atomic.Uint64 // head of the list of poller nodes of writers
	_             [88]byte
}

// rwmutexLine is what one participant writes as a reader. It has two cache lines to itself, since
// the CPU fetches the neighbour of a line, too.
type rwmutexLine struct {
	_     structs.HostLayout
	state atomic.Uint64 // see readerWord
	_     [120]byte
}

// The layout is ABI: an offset that moves does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.writers)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.gate)-256]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.high)-260]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.policy)-264]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.wakeReaders)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.wakeWriter)-388]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.died)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.lastCPU)-396]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pays)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.paysWriter)-404]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pollerReaders)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexWords{}.pollerWriter)-416]
	_ = [1]struct{}{}[unsafe.Sizeof(rwmutexWords{})-512]
	_ = [1]struct{}{}[unsafe.Offsetof(rwmutexLine{}.state)-0]
	_ = [1]struct{}{}[unsafe.Sizeof(rwmutexLine{})-128]
)

const (
	rwmutexReadersOff = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.wakeReaders))
	rwmutexWriterOff  = arenakernel.Offset(unsafe.Offsetof(rwmutexWords{}.wakeWriter))
)

// rwmutexBytes is the size of the body of an RWMutex in an arena with that many slots.
func rwmutexBytes(slots int) uint64 {
	return uint64(unsafe.Sizeof(rwmutexWords{})) + uint64(slots)*uint64(unsafe.Sizeof(rwmutexLine{}))
}

// rwmutexAll is the body of an RWMutex whose size was checked.
type rwmutexAll struct {
	*rwmutexWords
	slots int
}

// rwmutexAt views the body of o.
func rwmutexAt(a *arenakernel.Arena, o arenakernel.Object) (rwmutexAll, error) {
	slots := a.MaxParticipants()
	if o.Size < rwmutexBytes(slots) {
		return rwmutexAll{}, &shmsync.Error{Op: "rwmutex.at", Object: objectName(o), Err: shmsync.ErrCorrupt, Detail: "its body is too small"}
	}
	w, err := arenakernel.TryAt[rwmutexWords](a, o.Body)
	return rwmutexAll{w, slots}, err
}

// line is the reader word of a slot, from 1 to the number of slots.
func (w rwmutexAll) line(slot int) *atomic.Uint64 {
	if slot < 1 || slot > w.slots {
		panic("shmsync: a slot out of range")
	}
	// SAFETY: the body is as long as rwmutexBytes says for this many slots,
	// which the code that made w has checked, and is aligned to 64.
	return &(*rwmutexLine)(unsafe.Add(unsafe.Pointer(w.rwmutexWords),
		unsafe.Sizeof(rwmutexWords{})+uintptr(slot-1)*unsafe.Sizeof(rwmutexLine{}))).state
}

// raw64 gives the address that the functions of package atomic take.
func raw64(w *atomic.Uint64) *uint64 { return (*uint64)(unsafe.Pointer(w)) }

// rwmutexBody views the private body of a RWMutex that is being made.
func rwmutexBody(b []byte) *rwmutexWords {
	_ = b[unsafe.Sizeof(rwmutexWords{})-1]
	return (*rwmutexWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
