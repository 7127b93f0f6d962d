package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// eventWords is the body of an Event that is reset by hand, 128 bytes.
type eventWords struct {
	_     structs.HostLayout
	count eventcountWords // its state is an eventState
}

// autoEventWords is the body of an Event with automatic reset. Its queue lock is a [mutexWords] at the
// same place: this struct uses bytes that a Mutex leaves unused. In an arena that counts, the counters
// of the queue lock follow. The other words of a monitor are in the base of the Event, see eventRecord.
type autoEventWords struct {
	_     structs.HostLayout
	owner atomic.Uint32 // of the queue lock

	// lastCPU, spin and pays steer the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	value   atomic.Uint64 // a tokenState
	spin    atomic.Uint32
	mode    atomic.Uint32 // eventAuto; immutable after init. The other Events have 0 here
	// next is nobody while no wait is queued, and anybody otherwise.
	//   writers: the holder of the queue lock
	//   readers: all
	//   order:   seq-cst, against value
	//   futex:   none
	//   crash:   anybody when the queue is rebuilt, until the next holder of the queue lock resolves
	next atomic.Uint64
	// spare is how many tokens came back from the dead and have to be handed out.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   changes together with the token's source or target, by the redo log; void in state taken
	spare  atomic.Uint64
	redone atomic.Uint64 // as in monitorWords
	pays   atomic.Uint32
	_      [12]byte
	mutex  [64]byte // of the queue lock
}

// eventRecord is the slot record of an auto-reset Event: the share of one participant, which has two
// cache lines to itself, and room for the base. The base is used in one record only, the oldest on
// the list. That record stays where it is until the Event is deleted.
//
// The share says how many tokens were handed to waits of the participant, and how many of those it
// has acked. The others come back when it dies.
//
//	writers: the holder of the queue lock; acked: the participant, without it
//	readers: the holder of the queue lock, periodic checks, tools
//	order:   the queue lock's; acked: release and acquire, or the reap's fence
//	futex:   none
//	crash:   the handed - acked tokens of a name that is not current are free
//
// The fields of the base are those of monitorWords, and the queue of the waits. The holder of the
// queue lock guards them, not the participant of the slot. So the death of that participant changes
// nothing there.
type eventRecord struct {
	_         structs.HostLayout
	_         [64]byte      // begins with the header of a slot record
	name      atomic.Uint64 // ID of the participant
	handed    atomic.Uint64
	acked     atomic.Uint64
	_         [40]byte
	redo      [redoMost]redoEntry
	arrivals  atomic.Uint64
	accounted atomic.Uint64
	queue     listWords // waits for the token
}

// The layout is ABI: an offset that moves does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(eventWords{}.count)-0]
	_ = [1]struct{}{}[unsafe.Sizeof(eventWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.owner)-unsafe.Offsetof(mutexWords{}.owner)]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.lastCPU)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.value)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.spin)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.mode)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.next)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.spare)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.redone)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(autoEventWords{}.pays)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.wake)-unsafe.Offsetof(autoEventWords{}.mutex)]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.counts)-unsafe.Sizeof(autoEventWords{})]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.name)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.handed)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.acked)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.redo)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.arrivals)-224]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.accounted)-232]
	_ = [1]struct{}{}[unsafe.Offsetof(eventRecord{}.queue)-240]
	_ = [1]struct{}{}[unsafe.Sizeof(eventRecord{})-eventRecordBytes]
)

const (
	manualEventBytes = uint64(unsafe.Sizeof(eventWords{}))
	eventRecordBytes = 256
	autoEventSpinOff = arenakernel.Offset(unsafe.Offsetof(autoEventWords{}.spin))

	// These are the words of a record that the redo log may name.
	eventNameOff      = arenakernel.Offset(unsafe.Offsetof(eventRecord{}.name))
	eventHandedOff    = arenakernel.Offset(unsafe.Offsetof(eventRecord{}.handed))
	eventAccountedOff = arenakernel.Offset(unsafe.Offsetof(eventRecord{}.accounted))
)

// autoEventBytes is the length of the body of an auto-reset Event.
func autoEventBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(mutexBytes)
	}
	return uint64(unsafe.Sizeof(autoEventWords{}))
}

func eventBytes(a *arenakernel.Arena, mode eventMode) uint64 {
	if mode == eventAuto {
		return autoEventBytes(a)
	}
	return manualEventBytes
}

// autoEventAt views the body of o, as what it is and as the queue lock. The block has room for a
// whole mutexWords, since no block for a header and a body of 128 bytes is smaller.
func autoEventAt(a *arenakernel.Arena, o arenakernel.Object) (*autoEventWords, *mutexWords) {
	w := arenakernel.At[mutexWords](a, o.Body)
	// SAFETY: an autoEventWords is shorter than a mutexWords, and both have the layout of the host.
	return (*autoEventWords)(unsafe.Pointer(w)), w
}

// places are the words of the monitor of an Event with that base.
func (w *autoEventWords) places(queueLock *mutexWords, base *eventRecord) monitorPlaces {
	return monitorPlaces{queueLock, &base.arrivals, &w.redone, &base.accounted, &base.redo, &w.lastCPU, &w.spin, &w.pays}
}

// initEvent fills in the private body of an Event that is being made.
func initEvent(body []byte, mode eventMode, set bool, spin uint32) {
	_ = body[manualEventBytes-1] // each mode has as many bytes, or more
	first := uint64(0)
	if set {
		first = 1 // in each mode
	}
	if mode == eventAuto {
		w := (*autoEventWords)(unsafe.Pointer(unsafe.SliceData(body)))
		w.mode.Store(uint32(mode))
		w.value.Store(first)
		w.spin.Store(spin)
		return
	}
	w := (*eventWords)(unsafe.Pointer(unsafe.SliceData(body)))
	w.count.state.Store(first | uint64(mode)<<eventModeShift)
	w.count.spin.Store(spin)
}
