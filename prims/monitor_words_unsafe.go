package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/race"
)

// redoMost is how many words one change of a monitor's state may have at most.
const redoMost = 6

// monitorWords is the head of the body of an object whose waiters queue, 384 bytes. The words of
// the primitive itself follow.
type monitorWords struct {
	_         structs.HostLayout
	queueLock mutexWords
	// arrivals numbers the waits; see arenakernel.Node's stamp.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   a number may stay unused
	arrivals atomic.Uint64
	// redone is how many entries of redo have to be carried out, 0 if none.
	//   writers: the holder of the queue lock
	//   readers: the next holder of the queue lock after a death
	//   order:   the queue lock's; a death leaves a prefix of the program's stores
	//   futex:   none
	//   crash:   the next holder of the queue lock carries the entries out
	redone atomic.Uint64
	redo   [redoMost]redoEntry // written by the holder of the queue lock; the first redone entries are valid
	// lastCPU, spin and pays steer the spinning of waiters, as in mutexWords.
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

// redoEntry is one word of a change: its offset in the arena and its value.
type redoEntry struct {
	at atomic.Uint64
	to atomic.Uint64
}

// listWords are the ends of a queue of nodes: offsets, 0 for none.
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

// storeWord is a plain store of a word that, at this time, only the holder of a queue lock may
// write. Go's atomic store is a locked exchange on amd64, which is slower; storeWord is a move. The
// stores stay in the order of the program, so a death leaves a prefix of them. The redo log relies
// on that.
//
// In an arena of package arenatest, the race detector would report a plain store and an atomic
// load as a race.
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

// offsetIn returns the offset in the arena of a word of an object. base is the queue lock of the
// object, and the parameter at is the offset of the queue lock. The word may lie before base.
func offsetIn(base *mutexWords, at arenakernel.Offset, w *atomic.Uint64) arenakernel.Offset {
	// SAFETY: the pointers are compared as numbers only.
	return at + arenakernel.Offset(uintptr(unsafe.Pointer(w))-uintptr(unsafe.Pointer(base)))
}
