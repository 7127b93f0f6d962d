package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// multiLockHead is the head of the body of a MultiLock, 128 bytes. It has the number of buckets. The buckets follow
// it, each a multiLockBucket.
type multiLockHead struct {
	_       structs.HostLayout
	policy  uint32 // the result of Policy.stored. Immutable after init.
	buckets uint32 // bits 0..7: logarithm of the number of buckets, plus 1; 0 means the default. Immutable after init.
	_       [120]byte
}

// multiInline is how many keys of a bucket have a record in the bucket itself. The records of further keys are in
// wait nodes.
const multiInline = 5

// multiLockBucket is a bucket of a MultiLock with its own monitor, 512 bytes.
type multiLockBucket struct {
	_   structs.HostLayout
	mon monitorWords
	// spilled is the link to the first of the wait nodes that are records of keys for which the entries had no
	// room. These nodes are in the order of their offsets.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   made anew from the nodes
	spilled atomic.Uint64
	entries [multiInline]multiLockEntry
}

// multiLockEntry is the record of a key that is not free, or of a key that was held before. If the bucket has no
// room for another entry, a wait node without a wait is the record of the key. That node has the key in the word
// wanted, the hold in the stamp, and the queue in the extra word, and its next word links the nodes of the bucket.
// The queue is an index of the waits for the key; only the holder of the queue lock writes it.
type multiLockEntry struct {
	// key is the key to which the hold belongs. In an unused entry it is the key that was held last.
	//   writers: the holder of the queue lock, while the hold says that the entry is in no use
	//   readers: the same, tools, Lock and TryLock without the queue lock
	//   order:   the queue lock's; a reader without the lock reads it after the hold and then compares
	//            the hold again: it is unchanged, or has another stamp
	//   futex:   none
	//   crash:   of no meaning until the hold is written
	key   atomic.Uint64
	hold  atomic.Uint64 // see keyHold
	queue atomic.Uint64 // links: next is the first wait for the key, prev the last; 0 while the hold is fast
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.policy)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockHead{}.buckets)-4]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockHead{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.spilled)-384]
	_ = [1]struct{}{}[unsafe.Offsetof(multiLockBucket{}.entries)-392]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockEntry{})-24]
	_ = [1]struct{}{}[unsafe.Sizeof(multiLockBucket{})-512]
)

const (
	multiHeadBytes   = unsafe.Sizeof(multiLockHead{})
	multiBucketBytes = unsafe.Sizeof(multiLockBucket{})
)

// multiLockBody views the body of a MultiLock that is being created, with the given number of
// buckets. No other process sees the body yet.
func multiLockBody(b []byte, buckets int) (head *multiLockHead, all []*multiLockBucket) {
	_ = b[multiLockBytes(buckets)-1]
	base := unsafe.Pointer(unsafe.SliceData(b))
	for i := range buckets {
		// SAFETY: b is long enough for that many buckets.
		all = append(all, (*multiLockBucket)(unsafe.Add(base, multiHeadBytes+uintptr(i)*multiBucketBytes)))
	}
	return (*multiLockHead)(base), all
}

// multiLockBytes is the length of the body of a MultiLock with the given number of buckets.
func multiLockBytes(buckets int) uint64 {
	return uint64(multiHeadBytes) + uint64(buckets)*uint64(multiBucketBytes)
}

// multiBucketAt returns the offset of bucket i.
func multiBucketAt(o arenakernel.Object, i int) arenakernel.Offset {
	return o.Body + arenakernel.Offset(multiHeadBytes) + arenakernel.Offset(i)*arenakernel.Offset(multiBucketBytes)
}
