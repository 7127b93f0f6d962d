package prims

import (
	"math/bits"
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/park"
)

// queueWords is the head of the body of a Queue, 320 bytes. The ring of cells follows, and then
// the slots.
type queueWords struct {
	_        structs.HostLayout
	flags    atomic.Uint64 // see queueStoppedFlag
	returned atomic.Uint64 // see queueReturns
	items    queueSideWords
	room     queueSideWords

	capacity uint64 // how many items fit. Immutable after init.
	item     uint64 // bytes of an item. Immutable after init.
	// used is the number of a slot. Slots with a greater number were never reserved for an item.
	//   writers: Put, before it claims such a slot, by CAS
	//   readers: reaping, periodic checks, closes, tools
	//   order:   seq-cst, before the claim
	//   futex:   none
	//   crash:   may be greater than needed
	used atomic.Uint64
	spin atomic.Uint32 // as in mutexWords
	_    [4]byte

	returning [4]atomic.Uint64 // see queueReturning

	counts countWords

	// tail is a position, that is, the serial number of a Put. All positions before it are filled. Usually tail
	// itself is filled, too.
	//   writers: Put, by storeWord before it fills a position; a process that finds it wrong
	//   readers: Put, Len
	//   order:   relaxed: a hint
	//   futex:   none
	//   crash:   any value that a Put wrote is consistent
	tail atomic.Uint64
	_    [56]byte
	// head is a position before which no position has an item in the queue. It may be less than the first position
	// with an item.
	//   writers: Get, by storeWord after it has taken an item; a process that finds it wrong
	//   readers: Get, Put, Len
	//   order:   release and acquire: a Put may find by it alone that there is room
	//   futex:   none
	//   crash:   any value that a Get wrote is consistent
	head atomic.Uint64
	_    [56]byte
}

// queueSideWords are the words for the calls that wait for items, or for the calls that wait for room.
type queueSideWords struct {
	_       structs.HostLayout
	wake    atomic.Uint32 // the futex word of the waiters; see park.Word
	lastCPU atomic.Uint32 // as in mutexWords
	pays    atomic.Uint32 // as in mutexWords
	_       [4]byte
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
}

// queueSlot is the head of a place for one item. The item follows it in memory.
type queueSlot struct {
	_     structs.HostLayout
	state atomic.Uint64 // a queueState
	lease atomic.Uint64 // a queueLeaseWord
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.flags)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.returned)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.items)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.room)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.capacity)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.item)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.used)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.spin)-88]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.returning)-96]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.counts)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.tail)-192]
	_ = [1]struct{}{}[unsafe.Offsetof(queueWords{}.head)-256]
	_ = [1]struct{}{}[unsafe.Sizeof(queueWords{})-320]
	_ = [1]struct{}{}[unsafe.Offsetof(queueSideWords{}.poller)-16]
	_ = [1]struct{}{}[unsafe.Sizeof(queueSideWords{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(queueSlot{})-16]
)

const (
	queueHeadBytes = uint64(unsafe.Sizeof(queueWords{}))
	queueSlotBytes = uint64(unsafe.Sizeof(queueSlot{}))
	queueSpare     = 8  // the slots that a small Queue has beyond its capacity; see queueSlots
	queueSpareLess = 64 // a Queue is small if its capacity is less than this
	queueSpinOff   = arenakernel.Offset(unsafe.Offsetof(queueWords{}.spin))
	queueItemsOff  = arenakernel.Offset(unsafe.Offsetof(queueWords{}.items))
	queueRoomOff   = arenakernel.Offset(unsafe.Offsetof(queueWords{}.room))
	queuePollerOff = arenakernel.Offset(unsafe.Offsetof(queueSideWords{}.poller))
)

// queueStride returns the distance between two slots, in bytes, for items of the given size.
func queueStride(item uint64) uint64 { return queueSlotBytes + (item+7)&^7 }

// queueSlots returns how many slots a Queue has. A small Queue has more slots than its capacity, because a Put or a
// Get that is stopped keeps a slot, and other calls need slots meanwhile.
func queueSlots(capacity uint64) uint64 {
	if capacity < queueSpareLess {
		return capacity + queueSpare
	}
	return capacity
}

// queueLapShift returns the binary logarithm of the number of cells. The number of cells is the smallest power of two
// that is not below the number of slots.
func queueLapShift(slots uint64) uint { return uint(bits.Len64(slots - 1)) }

func queueBytes(capacity, item uint64) uint64 {
	slots := queueSlots(capacity)
	return queueHeadBytes + 8<<queueLapShift(slots) + slots*queueStride(item)
}

// cell returns the word of the ring for position p, that is, for the Put with the serial number p.
func (x *queueCore) cell(p uint64) *atomic.Uint64 {
	// SAFETY: buildQueue has checked that the body has room for all cells.
	return (*atomic.Uint64)(unsafe.Add(unsafe.Pointer(x.words), queueHeadBytes+8*(p&x.mask)))
}

// slot returns the slot with number i, or nil if there is none.
func (x *queueCore) slot(i uint32) *queueSlot {
	if i-1 >= x.slots { // i == 0 wraps
		return nil
	}
	// SAFETY: buildQueue has checked that the body has room for all slots.
	return (*queueSlot)(unsafe.Add(unsafe.Pointer(x.words), x.first+uint64(i-1)*x.stride))
}

// queueItem is the item in a slot.
func queueItem[T any](s *queueSlot) *T {
	// SAFETY: OpenQueue has checked that a T has no pointers, and that the slots have room for items of its size.
	// Slots are at multiples of 8.
	return (*T)(unsafe.Add(unsafe.Pointer(s), queueSlotBytes))
}

// queueWakeWord returns the wake word of the calls that wait for items, or of those that wait for room.
func queueWakeWord(a *arenakernel.Arena, w *queueSideWords) park.WakeWord {
	return park.WakeWord{WaitList: park.WaitList{Arena: a, Word: &w.wake, Raw: wordPtr(&w.wake), Poller: &w.poller}}
}

// initQueue fills in the body of a new Queue, which no other process sees yet.
func initQueue(b []byte, capacity uint32, item uint64, spin uint32) {
	w := (*queueWords)(unsafe.Pointer(unsafe.SliceData(b[:queueHeadBytes])))
	w.capacity, w.item = uint64(capacity), item
	w.spin.Store(spin)
	first := uint64(1) << queueLapShift(queueSlots(uint64(capacity)))
	w.tail.Store(first)
	w.head.Store(first)
}

// queueShape has the values in the head of a Queue that never change.
type queueShape struct{ capacity, item uint64 }

// shapeOfQueue reads those words of a Queue that never change, each word once. It reports whether the body has room
// for a Queue with these values.
func shapeOfQueue(a *arenakernel.Arena, o arenakernel.Object) (w *queueWords, s queueShape, ok bool) {
	if o.Size < queueHeadBytes {
		return nil, s, false
	}
	w, err := arenakernel.TryAt[queueWords](a, o.Body)
	if err != nil {
		return nil, s, false
	}
	s = queueShape{loadPlain(&w.capacity), loadPlain(&w.item)}
	ok = s.item <= QueueItemMost && s.capacity > 0 && s.capacity <= queueCapacityMost && o.Size >= queueBytes(s.capacity, s.item)
	return w, s, ok
}

// loadPlain reads a word that never changes unless a peer breaks the rules. The load is atomic, so that the
// compiler cannot read the word twice and get two different values.
func loadPlain(w *uint64) uint64 { return atomic.LoadUint64(w) }
