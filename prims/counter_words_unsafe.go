package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// counterWords is the body of a WaitGroup or a Latch, that is, its memory in the arena, 128 bytes. In an arena that
// counts operations, a [countWords] follows. The share of each participant is in a slot record; see counterSlot.
type counterWords struct {
	_      structs.HostLayout
	commit atomic.Uint64 // see counterWord
	size   atomic.Uint64 // the initial count of a Latch. Immutable after init.
	// tickets hands out numbers, each of them only once. The numbers are the versions of records, and the
	// tickets that identify the times when the counter became 0.
	//   writers: every process that needs a number, by atomic addition
	//   readers: the same
	//   order:   relaxed
	//   futex:   none
	//   crash:   a number may stay unused
	tickets atomic.Uint64
	// count is the counter while the commit word has the logged form. The fields count, period, owed and dead
	// are tagged words.
	//   writers: every process that completes the record that the commit word names, by CAS
	//   readers: every process, after it has completed that record
	//   order:   seq-cst
	//   futex:   none
	//   crash:   the next process completes the record
	count atomic.Uint64
	// period says which shares count, namely those with the same period. Each conversion to the logged form
	// takes a period that no share has. Writers, readers, order and crash are as for count.
	period atomic.Uint64
	// owed is the work that dead participants had undertaken and had not done. Writers, readers, order and crash
	// are as for count.
	owed atomic.Uint64
	// dead is the participant that was the last to die and leave work undone. It has a meaning only while owed is
	// not 0. Writers, readers, order and crash are as for count.
	dead atomic.Uint64
	_    [8]byte

	events atomic.Uint64 // see counterEvents
	// lastCPU, spin and pays are as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	_       [4]byte
	poller  atomic.Uint64 // head of the list of poller nodes; see arenakernel.EachPollerNode
	_       [32]byte
}

// counterCounted is the body of a WaitGroup or a Latch in an arena that counts operations.
type counterCounted struct {
	_      structs.HostLayout
	words  counterWords
	counts countWords
}

// counterSlot is the slot record of a WaitGroup or a Latch, 128 bytes. It has the share of one participant, that is,
// how much work it has undertaken, and the record of its last change. The fields name, period, own and claimed are
// tagged words, with the same writers, readers, order and crash as counterWords.count.
type counterSlot struct {
	_      structs.HostLayout
	_      [32]byte      // the header of a slot record
	name   atomic.Uint64 // ID of the participant
	period atomic.Uint64 // the share counts only if counterWords.period is the same
	own    atomic.Uint64 // work that the participant has undertaken and not done
	// claimed is how much of own the participant got by Claim. Other participants cannot claim this part. A
	// value greater than own means all of own.
	claimed atomic.Uint64
	// head is the version of the record.
	//   writers: the participant of the slot, under its private lock, before the entries
	//   readers: every process, before and after it reads an entry
	//   order:   each store before the next, each load before the next
	//   futex:   none
	//   crash:   a record that the commit word does not name means nothing
	head atomic.Uint64
	// entries are the changes of tagged words. An entry has the index of the word in the upper half and the new
	// value in the lower half. An entry of 0 ends the list. Writers, readers, order and crash are as for head.
	entries [counterEntries]atomic.Uint64
}

const counterEntries = 7

// The indices by which a record names the tagged words of a counter.
const (
	counterCount = 1 + iota
	counterPeriod
	counterOwed
	counterDeadID
)

const (
	counterFirstShare = 8 // the index of the name word in slot 1; each slot has four words
	shareName         = 0
	sharePeriod       = 1
	shareOwn          = 2
	shareClaimed      = 3
)

// shareAt returns the index by which a record names a word of a slot. Slots are numbered from 1.
func shareAt(slot int, which uint32) uint32 { return counterFirstShare + uint32(slot-1)*4 + which }

// slotOf returns the slot record of a slot, or nil if the slot has none.
func (t *counter) slotOf(slot int) *counterSlot {
	if slot == t.slot && t.own != nil {
		return t.own
	}
	return t.slots.at(slot)
}

// recordOf returns the record of a slot. The recordLog calls it.
func (t *counter) recordOf(slot int) (head *atomic.Uint64, entries []atomic.Uint64) {
	s := t.slotOf(slot)
	if s == nil {
		return nil, nil
	}
	return &s.head, s.entries[:]
}

// tagged returns the tagged word with that index, or nil if there is none.
func (t *counter) tagged(index uint32) *atomic.Uint64 {
	switch index {
	case counterCount:
		return &t.words.count
	case counterPeriod:
		return &t.words.period
	case counterOwed:
		return &t.words.owed
	case counterDeadID:
		return &t.words.dead
	}
	if index < counterFirstShare {
		return nil
	}
	i := index - counterFirstShare
	s := t.slotOf(int(i/4) + 1)
	if s == nil {
		return nil
	}
	switch i % 4 {
	case shareName:
		return &s.name
	case sharePeriod:
		return &s.period
	case shareOwn:
		return &s.own
	}
	return &s.claimed
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.commit)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.size)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.tickets)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.count)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.period)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.owed)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.dead)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.events)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.lastCPU)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.spin)-76]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.pays)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(counterWords{}.poller)-88]
	_ = [1]struct{}{}[unsafe.Sizeof(counterWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(counterCounted{}.counts)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.name)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.period)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.own)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.claimed)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.head)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(counterSlot{}.entries)-72]
	_ = [1]struct{}{}[unsafe.Sizeof(counterSlot{})-counterSlotBytes]
)

const (
	// counterSlotBytes is the size of a slot record of a WaitGroup or a Latch.
	counterSlotBytes = 128
	counterEventsOff = arenakernel.Offset(unsafe.Offsetof(counterWords{}.events))
	counterSpinOff   = arenakernel.Offset(unsafe.Offsetof(counterWords{}.spin))
	counterPollerOff = arenakernel.Offset(unsafe.Offsetof(counterWords{}.poller))
)

// counterBytes returns the size of the body of a WaitGroup or a Latch.
func counterBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(unsafe.Sizeof(counterCounted{}))
	}
	return uint64(unsafe.Sizeof(counterWords{}))
}

// counterAt returns the words of o. counts is nil if the arena does not count operations.
func counterAt(a *arenakernel.Arena, o arenakernel.Object) (w *counterWords, counts *countWords) {
	if a.Counted() {
		c := arenakernel.At[counterCounted](a, o.Body)
		return &c.words, &c.counts
	}
	return arenakernel.At[counterWords](a, o.Body), nil
}

// counterBody returns the words of an object that is being made, whose body no other process can
// reach yet.
func counterBody(b []byte) *counterWords {
	_ = b[unsafe.Sizeof(counterWords{})-1]
	return (*counterWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
