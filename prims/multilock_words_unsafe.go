package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// multiLockHead is the head of the body of a MultiLock, 128 bytes. It has the number of buckets. The buckets follow
// it, each a multiLockBucket. In an arena that counts, a [countWords] follows the buckets. See docs/design/0059.
type multiLockHead struct {
	_       structs.HostLayout
	policy  uint32 // the result of Policy.stored. Immutable after init.
	buckets uint32 // bits 0..7: logarithm of the number of buckets, plus 1; 0 means the default. Immutable after init.
	// lastCPU, spin and pays steer the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	// wake and poller are words that a [park.Queue] needs. No goroutine sleeps on wake, because each wait
	// sleeps on its own wait node.
	wake   atomic.Uint32
	poller atomic.Uint64
	_      [96]byte
}

const (
	// multiInline is how many entries a bucket has in its own memory.
	multiInline = 3
	// multiBlockEntries is how many entries an additional block has.
	multiBlockEntries = 4
)

// multiLockBucket is a bucket of a MultiLock, 192 bytes. Each entry is in a cache line of its own.
type multiLockBucket struct {
	_      structs.HostLayout
	commit atomic.Uint64 // see recordCommit
	_      [8]byte
	entry0 multiLockEntry
	_      [16]byte
	entry1 multiLockEntry
	_      [16]byte
	entry2 multiLockEntry
}

// multiLockBlock is an additional block of a MultiLock, with more entries for one bucket. A MultiLock gets the block
// when all entries of the bucket are in use, and keeps it.
type multiLockBlock struct {
	_       structs.HostLayout
	_       [arenakernel.SlotRecordHeader]byte
	bucket  uint32 // the number of the bucket. Immutable after init.
	_       [28]byte
	entries [multiBlockEntries]multiLockEntry
}

// multiLockEntry has a key that is locked or waited for, or that was locked before. It is a small FairMutex.
type multiLockEntry struct {
	_ structs.HostLayout
	// keyLow and keyHigh are recordedWords with the halves of the key.
	//
	//	writers: every process that carries out the record that the commit word names, by CAS; such a record also
	//	         changes the hold word, after these words
	//	readers: all calls; a call without a record reads them after the hold word, and then checks that the hold word
	//	         has not changed
	//	order:   seq-cst
	//	futex:   none
	//	crash:   the next process carries the record out
	keyLow  atomic.Uint64
	keyHigh atomic.Uint64
	hold    atomic.Uint64 // see keyHold
	// accepted names the last grant that a participant has accepted; see fairMutexWords.
	//
	//	bits 0..31   the tag that the hold word had in that grant
	//	bits 32..63  the participant that got the key
	//
	//	writers: a participant that was granted the key, by CAS
	//	readers: Unlock, reapers, tools
	//	order:   seq-cst
	//	futex:   none
	//	crash:   a reaper takes back a grant that was not accepted; the dead participant has never held the key
	accepted atomic.Uint64
	first    atomic.Uint64 // the first and the last wait for the key; see recordQueue
	last     atomic.Uint64
}

// The offsets are ABI. If one of them changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.policy)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.buckets)-4]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.lastCPU)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.spin)-12]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.pays)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.wake)-20]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.poller)-24]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockHead{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.commit)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.entry0)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.entry1)-80]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.entry2)-144]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockBucket{})-192]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBlock{}.bucket)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBlock{}.entries)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockBlock{})-256]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockEntry{}.keyHigh)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockEntry{}.hold)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockEntry{}.accepted)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockEntry{}.first)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockEntry{}.last)-40]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockEntry{})-48]
)

const (
	multiHeadBytes   = unsafe.Sizeof(multiLockHead{})
	multiBucketBytes = unsafe.Sizeof(multiLockBucket{})
	multiBlockBytes  = uint64(unsafe.Sizeof(multiLockBlock{}))
	multiLockSpinOff = arenakernel.Offset(unsafe.Offsetof(multiLockHead{}.spin))
	multiLockWakeOff = arenakernel.Offset(unsafe.Offsetof(multiLockHead{}.wake))
)

// inline returns the entry i of those that the bucket has in its own memory.
func (w *multiLockBucket) inline(i uint32) *multiLockEntry {
	_ = [multiInline]struct{}{}[i]
	// SAFETY: the entries follow each other at a distance of 64 bytes, and i is less than their number.
	return (*multiLockEntry)(unsafe.Add(unsafe.Pointer(&w.entry0), 64*uintptr(i)))
}

// closedBucket takes the place of the words of a bucket in a handle that has ended. Its hold words are not open, so
// every fast path fails.
var closedBucket multiLockBucket

// multiLockBody returns the head of a MultiLock that is being created and that no other process sees yet.
func multiLockBody(b []byte) *multiLockHead {
	_ = b[multiHeadBytes-1]
	return (*multiLockHead)(unsafe.Pointer(unsafe.SliceData(b)))
}

// multiLockBytes returns the size of the body of a MultiLock with that many buckets.
func multiLockBytes(a *arenakernel.Arena, buckets int) uint64 {
	n := uint64(multiHeadBytes) + uint64(buckets)*uint64(multiBucketBytes)
	if a.Counted() {
		n += uint64(unsafe.Sizeof(countWords{}))
	}
	return n
}

// multiBucketAt returns the offset of bucket i.
func multiBucketAt(o arenakernel.Object, i int) arenakernel.Offset {
	return o.Body + arenakernel.Offset(multiHeadBytes) + arenakernel.Offset(i)*arenakernel.Offset(multiBucketBytes)
}
