package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// redoMost is the largest number of words that one change of a monitor's state may have.
const redoMost = 6

// monitorWords has the words of a monitor, 384 bytes. They are the head of the body of an object whose waiters
// queue. The words of the primitive itself follow.
type monitorWords struct {
	_         structs.HostLayout
	queueLock mutexWords
	// arrivals numbers the waits. The number of a wait is called its stamp; see arenakernel.Node.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   a number may stay unused
	arrivals atomic.Uint64
	// redone is how many entries of the array redo have to be carried out. It is 0 if no change is committed.
	//   writers: the holder of the queue lock
	//   readers: the next holder of the queue lock after a death
	//   order:   the queue lock's; a death leaves a prefix of the program's stores
	//   futex:   none
	//   crash:   the next holder of the queue lock carries the entries out
	redone atomic.Uint64
	redo   [redoMost]redoEntry // written by the holder of the queue lock; the first redone entries are valid
	// The words lastCPU, spin and pays control how long waiters spin, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [4]byte
	// accounted is the stamp of the wait whose change of state was committed last.
	//   writers: the holder of the queue lock, as part of a change
	//   readers: the next holder of the queue lock after a death
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   says whether a resolved node with this stamp is accounted for
	accounted atomic.Uint64
	_         [56]byte
}

// redoEntry is one word of a change: the offset of the word in the arena, and its new value.
type redoEntry struct {
	at atomic.Uint64
	to atomic.Uint64
}

// listWords are the first and the last node of a queue. Each is an offset, or 0 for none.
//
//	writers: the holder of the queue lock
//	readers: the same, tools
//	order:   the queue lock's
//	futex:   none
//	crash:   rebuilt from the nodes
type listWords struct {
	first atomic.Uint64
	last  atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.arrivals)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.redone)-200]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.redo)-208]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.lastCPU)-304]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.spin)-308]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.pays)-312]
	_ = [1]struct{}{}[unsafe.Offsetof(monitorWords{}.accounted)-320]
	_ = [1]struct{}{}[unsafe.Sizeof(monitorWords{})-384]
	_ = [1]struct{}{}[unsafe.Sizeof(redoEntry{})-16]
	_ = [1]struct{}{}[unsafe.Sizeof(listWords{})-16]
)

const monitorBytes = unsafe.Sizeof(monitorWords{})

// storeWord stores v in a word that only the holder of a queue lock may write at this time. Go's atomic store is a
// locked exchange on amd64; storeWord is a plain move, which is faster. The stores of one process become visible in
// the order of its program. So if a process dies, all stores before some point have taken place and none after it.
// The redo log relies on that.
//
// Under the race detector, storeWord stores atomically. Otherwise the detector would report a plain store and an
// atomic load of a word in an arena of package arenatest as a race.
func storeWord(w *atomic.Uint64, v uint64) {
	if race.Enabled {
		w.Store(v)
		return
	}
	*(*uint64)(unsafe.Pointer(w)) = v
}

// monitorPlaces has pointers to the words of a monitor, which need not be next to each other.
type monitorPlaces struct {
	queueLock                   *mutexWords
	arrivals, redone, accounted *atomic.Uint64
	redo                        *[redoMost]redoEntry
	lastCPU, spin, pays         *atomic.Uint32
}

func (w *monitorWords) places() monitorPlaces {
	return monitorPlaces{&w.queueLock, &w.arrivals, &w.redone, &w.accounted, &w.redo, &w.lastCPU, &w.spin, &w.pays}
}

// offsetIn returns the offset in the arena of a word of an object. The parameter base points to the queue lock of
// the object, and the parameter at is the offset of that lock. The word may lie before the queue lock.
func offsetIn(base *mutexWords, at arenakernel.Offset, w *atomic.Uint64) arenakernel.Offset {
	// SAFETY: the pointers are compared as numbers only.
	return at + arenakernel.Offset(uintptr(unsafe.Pointer(w))-uintptr(unsafe.Pointer(base)))
}
