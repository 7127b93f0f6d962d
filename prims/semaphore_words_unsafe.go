package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// semaphoreWords is the body of a Semaphore. Its queue lock is a [mutexWords] at the same place: this
// struct uses bytes that a Mutex leaves unused. In an arena that counts, the counters of the queue
// lock follow. The other words of a monitor are in the base of the Semaphore, see semaphoreRecord.
type semaphoreWords struct {
	_     structs.HostLayout
	owner atomic.Uint32 // of the queue lock

	// lastCPU, spin and pays steer the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	// size is the total number of permits, and the mode.
	//
	//	bits 0..62  permits
	//	bit  63     transferable
	//
	// Immutable after init.
	size atomic.Uint64
	free atomic.Uint64 // see poolWord
	// opened has a bit for each slot number modulo 64. The bit is set if the share of such a slot
	// may be open.
	//   writers: the holder of the queue lock
	//   readers: the same, periodic checks
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   set before a share is open, cleared after all are closed
	opened atomic.Uint64
	redone atomic.Uint64 // as in monitorWords
	// last is a hint: the last participant that released under the queue lock.
	last  atomic.Uint64
	spin  atomic.Uint32
	pays  atomic.Uint32
	_     [8]byte
	mutex [64]byte // of the queue lock
}

// semaphoreRecord is the slot record of a Semaphore: the share of one participant, which has two
// cache lines to itself, and room for the base. The base is used in one record only, the oldest on
// the list. That record stays where it is until the Semaphore is deleted.
//
// The fields of the base are those of monitorWords, and the queue of the waits. The holder of the
// queue lock guards them, not the participant of the slot. So the death of that participant changes
// nothing there.
type semaphoreRecord struct {
	_         structs.HostLayout
	_         [64]byte // begins with the header of a slot record
	share     semaphoreShare
	redo      [redoMost]redoEntry
	arrivals  atomic.Uint64
	accounted atomic.Uint64
	queue     listWords
}

// semaphoreShare is the permits of one participant, on its own cache line. In a transferable
// semaphore permits and fast are two counts: see semaphore_transfer.go.
//
//	writers: the holder of the queue lock; for fast see fastWord
//	readers: the same, tools, periodic checks
//	order:   the queue lock's
//	futex:   none
//	crash:   permits of a name that is not current are free
type semaphoreShare struct {
	name    atomic.Uint64 // ID of the participant
	permits atomic.Uint64
	fast    atomic.Uint64 // see fastWord
	_       [40]byte
}

// The layout is ABI: an offset that moves does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.owner)-unsafe.Offsetof(mutexWords{}.owner)]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.lastCPU)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.size)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.free)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.opened)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.redone)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.last)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.spin)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.pays)-52]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.wake)-unsafe.Offsetof(semaphoreWords{}.mutex)]
	_ = [1]struct{}{}[unsafe.Offsetof(mutexWords{}.counts)-unsafe.Sizeof(semaphoreWords{})]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreShare{}.fast)-16]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreShare{})-64]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.share)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.redo)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.arrivals)-224]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.accounted)-232]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.queue)-240]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreRecord{})-semaphoreRecordBytes]
)

const (
	semaphoreRecordBytes = 256
	semaphoreSpinOff     = arenakernel.Offset(unsafe.Offsetof(semaphoreWords{}.spin))

	// These are the words of a record that the redo log may name.
	semaphoreShareOff     = arenakernel.Offset(unsafe.Offsetof(semaphoreRecord{}.share))
	semaphoreNameOff      = semaphoreShareOff + arenakernel.Offset(unsafe.Offsetof(semaphoreShare{}.name))
	semaphorePermitsOff   = semaphoreShareOff + arenakernel.Offset(unsafe.Offsetof(semaphoreShare{}.permits))
	semaphoreFastOff      = semaphoreShareOff + arenakernel.Offset(unsafe.Offsetof(semaphoreShare{}.fast))
	semaphoreAccountedOff = arenakernel.Offset(unsafe.Offsetof(semaphoreRecord{}.accounted))
)

// semaphoreBytes is the size of the body of a Semaphore.
func semaphoreBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(mutexBytes)
	}
	return uint64(unsafe.Sizeof(semaphoreWords{}))
}

// semaphoreAt views the body of o, as what it is and as the queue lock. The block has room for a
// whole mutexWords, since no block for a header and a body of 128 bytes is smaller.
func semaphoreAt(a *arenakernel.Arena, o arenakernel.Object) (*semaphoreWords, *mutexWords) {
	w := arenakernel.At[mutexWords](a, o.Body)
	// SAFETY: a semaphoreWords is shorter than a mutexWords, and both have the layout of the host.
	return (*semaphoreWords)(unsafe.Pointer(w)), w
}

// places are the words of the monitor of a Semaphore with that base.
func (w *semaphoreWords) places(queueLock *mutexWords, base *semaphoreRecord) monitorPlaces {
	return monitorPlaces{queueLock, &base.arrivals, &w.redone, &base.accounted, &base.redo, &w.lastCPU, &w.spin, &w.pays}
}

// semaphoreBody views the private body of a Semaphore that is being made.
func semaphoreBody(b []byte) *semaphoreWords {
	_ = b[unsafe.Sizeof(semaphoreWords{})-1]
	return (*semaphoreWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
