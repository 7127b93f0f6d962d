package prims

import (
	"math/bits"
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// queueWords is the head of the body of a Queue, 640 bytes; the ring follows, then the slots.
type queueWords struct {
	_        structs.HostLayout
	mon      monitorWords
	capacity uint64        // most items. Immutable after init.
	item     uint64        // bytes of an item. Immutable after init.
	flags    atomic.Uint64 // see queueStoppedFlag
	// returned tells that there may be returned slots: bit 0 says so, the bits above count.
	//   writers: the process that made a slot returned, after that; a Get that found no
	//            returned slot clears bit 0 by CAS
	//   readers: Get
	//   order:   seq-cst: a Get reads it between the state of a slot and its CAS
	//   futex:   none
	//   crash:   the reap of a death writes it once more
	returned atomic.Uint64
	getters  listWords
	putters  listWords
	// tail is a position. All positions before it are filled; it may lag behind.
	//   writers: Put, by a plain store
	//   readers: Put, Len
	//   order:   relaxed: a hint
	//   futex:   none
	//   crash:   any value is consistent that some Put wrote
	tail atomic.Uint64
	_    [56]byte
	// head is a position. No position before it has an item in the queue; it may lag behind.
	// Tags as of tail, with Get in place of Put.
	head atomic.Uint64
	_    [56]byte
	// turns counts what is done with the queue lock held, so that a waiter sees that the
	// holder does not go on.
	//   writers: the holder of the queue lock
	//   readers: processes with waiters
	//   order:   relaxed
	//   futex:   none
	//   crash:   any value is consistent
	turns atomic.Uint64
	_     [56]byte
}

// queueSlot is a place for an item, which comes after it.
type queueSlot struct {
	_     structs.HostLayout
	state atomic.Uint64 // a queueState
	// times is how often the item was leased; valid unless the slot is free.
	//   writers: Put, before the cell of the position names the slot; Lease, once it has the item
	//   readers: Lease, tools
	//   order:   the cell's, the state's
	//   futex:   none
	//   crash:   a Lease that dies before it counts has not returned
	times atomic.Uint64
	// stamp is that of the waiting Put whose item it is, 0 for none.
	//   writers: the granter, before it resolves the wait; the process that makes the slot
	//            free, before that
	//   readers: that Put, which sees to it that its item is in the queue; the replay
	//   order:   the state's
	//   futex:   none
	//   crash:   the process that makes the slot free clears it
	stamp atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.capacity)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.item)-392]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.flags)-400]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.returned)-408]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.getters)-416]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.putters)-432]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.tail)-448]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.head)-512]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.turns)-576]
	_ = [1]struct{}{}[unsafe.Sizeof(queueWords{})-640]
	_ = [1]struct{}{}[unsafe.Sizeof(queueSlot{})-24]
)

const (
	queueHeadBytes = uint64(unsafe.Sizeof(queueWords{}))
	queueSlotBytes = uint64(unsafe.Sizeof(queueSlot{}))
	queueSpare     = 8  // slots beyond the capacity, if that is less than queueSpareBelow
	queueSpareLess = 64 // of these capacities
)

// queueStride is how far apart the slots are for items of that size.
func queueStride(item uint64) uint64 { return queueSlotBytes + (item+7)&^7 }

// queueSlots is how many slots a Queue has: some are spare if it is small, so that stopped Puts
// and Gets, which keep one slot each, leave room for others.
func queueSlots(capacity uint64) uint64 {
	if capacity < queueSpareLess {
		return capacity + queueSpare
	}
	return capacity
}

// queueLapShift is the logarithm of the number of cells: a power of two, at least as many
// as there are slots.
func queueLapShift(slots uint64) uint { return uint(bits.Len64(slots - 1)) }

func queueBytes(capacity, item uint64) uint64 {
	slots := queueSlots(capacity)
	return queueHeadBytes + 8<<queueLapShift(slots) + slots*queueStride(item)
}

// cell is the cell of position p.
func (x *queueCore) cell(p uint64) *atomic.Uint64 {
	// SAFETY: buildQueue has checked that the body has room for all cells.
	return (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(x.words), queueHeadBytes+8*(p&x.mask)))
}

// slot is the slot of that number, nil if there is none.
func (x *queueCore) slot(i uint32) *queueSlot {
	if i-1 >= x.slots { // 0 wraps
		return nil
	}
	// SAFETY: buildQueue has checked that the body has room for all slots.
	return (*queueSlot)(unsafe.Add(unsafe.Pointer(x.words), x.first+uint64(i-1)*x.stride))
}

// queueItem is the item in a slot.
func queueItem[T any](s *queueSlot) *T {
	// SAFETY: OpenQueue has checked that a T has no pointers and is what the slots
	// have room for; slots are at multiples of 8.
	return (*T)(unsafe.Add(unsafe.Pointer(s), queueSlotBytes))
}

// bytes are those of the item in a slot.
func (x *queueCore) bytes(s *queueSlot) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(s), queueSlotBytes)), x.item)
}

// queueStaged is where a waiting Put has its item.
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
	first := uint64(1) << queueLapShift(queueSlots(uint64(capacity)))
	w.tail.Store(first)
	w.head.Store(first)
}

// queueShape reads the immutable words of a Queue and reports whether its body has
// room for what they say.
func queueShape(a *arenakernel.Arena, o arenakernel.Object) (w *queueWords, ok bool) {
	if o.Size < queueHeadBytes {
		return nil, false
	}
	w, err := arenakernel.TryAt[queueWords](a, o.Body)
	if err != nil {
		return nil, false
	}
	ok = w.item <= QueueItemMost && w.capacity > 0 && w.capacity <= queueCapacityMost &&
		o.Size >= queueBytes(w.capacity, w.item)
	return w, ok
}
