package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/crashpoint"
)

// logHead is the beginning of an undo log, 64 bytes. The records follow it.
type logHead struct {
	_         structs.HostLayout
	state     atomic.Uint64 // see logState
	size      uint32        // bytes of records. Immutable after init.
	_         [4]byte
	rollbacks atomic.Uint64 // how many transactions were undone after a death; for tools
	highest   atomic.Uint64 // the largest number of bytes of records so far; for tools
	_         [32]byte
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(logHead{}.state)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(logHead{}.size)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(logHead{}.rollbacks)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(logHead{}.highest)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(logHead{})-logHeadBytes]
)

const logHeadBytes = 64

// logBody returns the head of the undo log at the end of a body of a lock that is being created. No other process
// sees the body yet.
func logBody(body []byte, words uint64) *logHead {
	_ = body[words+logHeadBytes-1]
	// SAFETY: the line above checks the length; the body is aligned to 64 bytes, and so are the words.
	return (*logHead)(unsafe.Pointer(&body[words]))
}

// storeLogState stores the state of a log for its transaction. It is not inlined and consists of the store alone. The
// compiler moves no store of its caller across a call, and the store is one instruction. So if a killed thread has
// made this store, it has made all earlier stores. If it has not made this store, it has made none of the later ones.
// See docs/memory-model.md.
//
//go:noinline
func storeLogState(p *uint64, s uint64) { *p = s }

// releaseLogState does what storeLogState does, and is a release. A process without the lock may read the state, find
// that the transaction of a dead process is over, and free the memory of the restored bytes. Without the release, the
// stores that restore these bytes could reach the memory after it was freed.
//
// Only a rollback restores bytes. So the functions of Tx that add a record use storeLogState, and so does a commit
// without blocks. The end of a rollback uses releaseLogState. Both stores of a commit with blocks use it, too,
// because such a commit ends by the same function as a rollback.
//
//go:noinline
func releaseLogState(p *atomic.Uint64, s uint64) {
	storeWord(p, s) // sync(tx.idle): release
}

// txPlace holds the addresses that a transaction uses in this process.
type txPlace struct {
	heap     unsafe.Pointer // the first byte of the heap
	heapSize uintptr
	heapOff  uint64 // the offset of heap in the arena
	records  unsafe.Pointer
	room     uintptr // bytes of records
	state    *uint64
	// Where the lock object begins and ends, as distances from the field heap.
	lock, lockEnd uintptr
}

func placeOf(l *undoLog) txPlace {
	off, n := l.a.Heap()
	return txPlace{
		heap: unsafe.Pointer(unsafe.SliceData(l.a.Bytes(off, n))), heapSize: uintptr(n), heapOff: uint64(off),
		records: unsafe.Pointer(unsafe.SliceData(l.records)), room: uintptr(l.size), state: raw64(&l.head.state),
		lock: uintptr(l.object.Offset - off), lockEnd: uintptr(l.object.Body-off) + uintptr(l.object.Size),
	}
}

// Save copies *p, which is in the arena of the lock, to the undo log, before the caller changes *p. If the
// transaction does not commit, *p gets its present value back. A range that lies within one of the last 8 saved
// ranges is not saved again.
//
// If the log has no room, Save panics. Update recovers this panic and returns an error that Is
// [shmsync.ErrNoSpace]. Save also panics if p is outside of the arena, or if the Update of tx has ended.
func Save[T any](tx *Tx, p *T) { tx.save(unsafe.Pointer(p), unsafe.Sizeof(*p)) }

// SaveSlice does what [Save] does, for the elements of s.
func SaveSlice[T any](tx *Tx, s []T) {
	var t T
	tx.save(unsafe.Pointer(unsafe.SliceData(s)), uintptr(len(s))*unsafe.Sizeof(t))
}

// Set calls [Save] for *p, and then sets *p to v.
func Set[T any](tx *Tx, p *T, v T) {
	tx.save(unsafe.Pointer(p), unsafe.Sizeof(v))
	*p = v
}

// save copies n bytes at p to the undo log.
func (tx *Tx) save(p unsafe.Pointer, n uintptr) {
	if n == 0 {
		return
	}
	at := uintptr(p) - uintptr(tx.place.heap)
	end := at + n
	if at >= tx.place.heapSize || n > tx.place.heapSize-at || at < tx.place.lockEnd && tx.place.lock < end || !tx.open {
		tx.mistake("Save", "of memory that is outside of its arena, or the lock's own")
		return
	}
	k := tx.nSaved
	if end <= tx.within.to && tx.within.from <= at { // false, for example, if a program saves fields in order
		for i := range tx.saved[:min(k, uint(len(tx.saved)))] {
			if r := &tx.saved[i]; r.from <= at && end <= r.to {
				return
			}
		}
	}
	padded := (n + 7) &^ 7
	tail := uintptr(tx.tail)
	if padded+logFooter > tx.place.room-tail {
		tx.full(uint64(n))
		return
	}
	// SAFETY: the records have room bytes, which was checked just now, and p has n bytes in
	// the heap of the arena, which is mapped while an Update goes on.
	to := unsafe.Add(tx.place.records, tail)
	if n == 8 { // one word is the most frequent case; it needs no call
		*(*uint64)(to) = *(*uint64)(p)
	} else {
		copy(unsafe.Slice((*byte)(to), n), unsafe.Slice((*byte)(p), n))
	}
	footer := (*[2]uint64)(unsafe.Add(to, padded))
	footer[0], footer[1] = tx.place.heapOff+uint64(at), uint64(n)|logBytes<<32
	crashpoint.Hit("tx.save.recorded")
	tx.tail = uint32(tail + padded + logFooter)
	tx.nSaved = k + 1
	tx.saved[k%uint(len(tx.saved))] = txRange{at, end}
	tx.within = txRange{min(tx.within.from, at), max(tx.within.to, end)}
	storeLogState(tx.place.state, uint64(tail+padded+logFooter)|tx.active)
	crashpoint.Hit("tx.save.valid")
}

// record appends a record about a block to the log. The record has no saved bytes.
func (tx *Tx) record(off arenakernel.Offset, kind uint64) {
	if logFooter > uint64(tx.log.size)-uint64(tx.tail) {
		tx.full(0)
	}
	// SAFETY: the records have room for the footer, as checked above.
	footer := (*[2]uint64)(unsafe.Add(tx.place.records, tx.tail))
	footer[0], footer[1] = uint64(off), kind<<32
	tx.tail += logFooter
	storeLogState(tx.place.state, uint64(tx.tail)|tx.active)
}

// unrecord removes the last record of the log, which the method record has added.
func (tx *Tx) unrecord() {
	tx.tail -= logFooter
	if tx.tail == 0 {
		storeLogState(tx.place.state, 0)
		return
	}
	storeLogState(tx.place.state, uint64(tx.tail)|tx.active)
}

// storeKind stores the kind of a record. The kind is at a multiple of 4 bytes, so this is a single store, and no
// process sees a part of it.
//
//go:noinline
func storeKind(p *byte, kind uint32) {
	// SAFETY: p points to the last 4 bytes of a footer of 16 bytes, which the caller has found.
	*(*uint32)(unsafe.Pointer(p)) = kind
}
