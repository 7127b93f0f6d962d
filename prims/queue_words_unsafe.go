package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueWords is the head of the body of a Queue, 512 bytes; the slots follow.
type queueWords struct {
	_        structs.HostLayout
	mon      monitorWords
	capacity uint64 // number of slots. Immutable after init.
	item     uint64 // bytes of an item. Immutable after init.
	// sequence is the last number that was given to an item.
	//   writers: the holder of the queue lock
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   a number may stay unused
	sequence atomic.Uint64
	ends     atomic.Uint64 // see queuePair
	free     atomic.Uint64 // see queuePair
	// out is the number of slots that are granted or leased; tags as ends.
	out atomic.Uint64
	// stopped is 1 after Shutdown.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   one store; after it the replay ends the waits
	stopped atomic.Uint64
	getters listWords
	putters listWords
	_       [40]byte
}

// queueSlot is a place for an item. The item follows it.
type queueSlot struct {
	_     structs.HostLayout
	state atomic.Uint64 // a queueState
	// seq numbers the items in the order of their Puts; it is valid unless the slot is free.
	//   writers: the holder of the queue lock, before the state
	//   readers: the same
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   the state's
	seq  atomic.Uint64
	next atomic.Uint64 // position of the next slot in the queue, or of the next free one; tags as queueWords.ends
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.capacity)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.item)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.sequence)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.ends)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.free)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.out)-424]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.stopped)-432]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.getters)-440]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.putters)-456]
	_ = [1]struct{}{}[unsafe.Sizeof(queueWords{})-512]
	_ = [1]struct{}{}[unsafe.Sizeof(queueSlot{})-24]
)

const (
	queueHeadBytes = uint64(unsafe.Sizeof(queueWords{}))
	queueSlotBytes = uint64(unsafe.Sizeof(queueSlot{}))
)

// queueStride is the distance between two slots for items of that size.
func queueStride(item uint64) uint64 { return queueSlotBytes + (item+7)&^7 }

// slot returns the slot at position i, or nil if there is none.
func (x *queueCore) slot(i uint32) *queueSlot {
	if i-1 >= x.capacity { // i == 0 wraps
		return nil
	}
	// SAFETY: buildQueue has checked that the body has room for all slots.
	return (*queueSlot)(unsafe.Add(unsafe.Pointer(x.words), queueHeadBytes+uint64(i-1)*x.stride))
}

// queueItem is the item in a slot.
func queueItem[T any](s *queueSlot) *T {
	// SAFETY: OpenQueue has checked that a T has no pointers and is what the slots
	// have room for; slots are at multiples of 8.
	return (*T)(unsafe.Add(unsafe.Pointer(s), queueSlotBytes))
}

// bytes returns the bytes of the item in a slot.
func (x *queueCore) bytes(s *queueSlot) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(s), queueSlotBytes)), x.item)
}

// queueStaged is the item of a waiting Put in its block.
func queueStaged[T any](block []byte) *T {
	var v T
	_ = block[:unsafe.Sizeof(v)]
	// SAFETY: blocks are at multiples of 64, and of the length of a T.
	return (*T)(unsafe.Pointer(unsafe.SliceData(block)))
}

// initQueue fills in the private body of a Queue that is being made.
func initQueue(b []byte, capacity uint32, item uint64, spin uint32) {
	w := (*queueWords)(unsafe.Pointer(unsafe.SliceData(b[:queueHeadBytes])))
	w.capacity, w.item = uint64(capacity), item
	w.mon.spin.Store(spin)
	(&queueCore{words: w, capacity: capacity, item: item, stride: queueStride(item)}).index()
}

// queueShape reads the immutable words of a Queue and reports whether the body is large enough
// for them.
func queueShape(a *arenakernel.Arena, o arenakernel.Object) (w *queueWords, ok bool) {
	if o.Size < queueHeadBytes {
		return nil, false
	}
	w, err := arenakernel.TryAt[queueWords](a, o.Body)
	if err != nil {
		return nil, false
	}
	ok = w.item <= QueueItemMost && w.capacity > 0 && w.capacity <= queueCapacityMost &&
		o.Size >= queueHeadBytes+w.capacity*queueStride(w.item)
	return w, ok
}
