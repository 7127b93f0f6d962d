package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// semaphoreWords is the body of a Semaphore, that is, its memory in the arena, 128 bytes. In an arena that counts
// operations, a [countWords] follows. See docs/design/0056.
type semaphoreWords struct {
	_        structs.HostLayout
	commit   atomic.Uint64 // see recordCommit
	free     atomic.Uint64 // see poolWord
	freeHigh atomic.Uint64 // a recordedWord: free permits divided by 2^31
	first    atomic.Uint64 // the ends of the queue; see recordQueue
	last     atomic.Uint64
	// opened is a recordedWord. It is 1 if any share may be open, that is, may be changed without a record, or may
	// have unused permits.
	opened atomic.Uint64
	// size is the total number of permits, and the mode.
	//
	//	bits 0..62  permits
	//	bit  63     transferable
	//
	// Immutable after init.
	size atomic.Uint64
	// releaser is a hint: the ID of the last participant that released permits by a record.
	releaser atomic.Uint64
	// lastCPU, spin and pays control the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	// wake and poller belong to a [park.Queue]. No goroutine sleeps on the word wake, because each wait of a
	// Semaphore sleeps on its own wait node.
	wake   atomic.Uint32
	poller atomic.Uint64
	_      [40]byte
}

// semaphoreCounted is the body of a Semaphore in an arena that counts operations.
type semaphoreCounted struct {
	_      structs.HostLayout
	words  semaphoreWords
	counts countWords
}

// semaphoreRecord is the slot record of a Semaphore: the share of one participant, and the record of
// the participant's last change. The share has a cache line to itself.
type semaphoreRecord struct {
	_ structs.HostLayout
	_ [32]byte // the header of a slot record
	// head is the version of the record.
	//   writers: the participant of the slot, under a lock of its process, before kinds and entries
	//   readers: every process, after it has read kinds and entries
	//   order:   each store before the next, each load before the next
	//   futex:   none
	//   crash:   a record that the commit word does not name means nothing
	head atomic.Uint64
	// kinds has one byte for each entry: the kind of the word that the entry changes. A byte of 0 ends the list.
	// Writers, readers, order and crash are as for head.
	kinds   atomic.Uint64
	_       [16]byte
	share   semaphoreShare
	entries [recordMost]recordEntry
}

// recordEntry is the change of one word. Writers, readers, order and crash are as for the field head of
// semaphoreRecord.
type recordEntry struct {
	was atomic.Uint64 // the whole word before the change
	to  atomic.Uint64 // low half: the new value; high half: a number that tells words of one kind apart
}

// semaphoreShare has the permits of one participant, on its own cache line. In a transferable semaphore it counts
// granted permits instead; see semaphore_transfer.go. All words except accepted are recordedWords.
type semaphoreShare struct {
	name        atomic.Uint64 // ID of the participant
	permits     atomic.Uint64 // the permits that the participant has, including the spare ones, modulo 2^32
	permitsHigh atomic.Uint64 // the same number, divided by 2^32
	fast        atomic.Uint64 // see fastWord
	// accepted counts the permits of grants that the participant has accepted.
	//   writers: the participant, by atomic addition
	//   readers: everybody who reaps; the next participant of the slot; tools
	//   order:   seq-cst
	//   futex:   none
	//   crash:   permits that were granted and not accepted are free
	accepted atomic.Uint64
	_        [24]byte
}

// The layout is part of the binary interface: if the offset of a field changes, its line here does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.free)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.freeHigh)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.first)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.last)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.opened)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.size)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.releaser)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.lastCPU)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.spin)-68]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.pays)-72]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.wake)-76]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreWords{}.poller)-80]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreCounted{}.counts)-128]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreShare{}.accepted)-32]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreShare{})-64]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.head)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.kinds)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.share)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(semaphoreRecord{}.entries)-128]
	_ = [1]struct{}{}[unsafe.Sizeof(semaphoreRecord{})-semaphoreRecordBytes]
)

const (
	semaphoreRecordBytes = 256
	semaphoreSpinOff     = arenakernel.Offset(unsafe.Offsetof(semaphoreWords{}.spin))
	semaphoreWakeOff     = arenakernel.Offset(unsafe.Offsetof(semaphoreWords{}.wake))
)

// semaphoreBytes returns the size of the body of a Semaphore.
func semaphoreBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(unsafe.Sizeof(semaphoreCounted{}))
	}
	return uint64(unsafe.Sizeof(semaphoreWords{}))
}

// semaphoreAt returns the words of o. counts is nil if the arena does not count operations.
func semaphoreAt(a *arenakernel.Arena, o arenakernel.Object) (w *semaphoreWords, counts *countWords) {
	if a.Counted() {
		c := arenakernel.At[semaphoreCounted](a, o.Body)
		return &c.words, &c.counts
	}
	return arenakernel.At[semaphoreWords](a, o.Body), nil
}

// semaphoreBody returns the words of a Semaphore that is being created in b, and that no other process sees yet.
func semaphoreBody(b []byte) *semaphoreWords {
	_ = b[unsafe.Sizeof(semaphoreWords{})-1]
	return (*semaphoreWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
