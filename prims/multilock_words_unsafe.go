package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// multiLockHead is the head of the body of a MultiLock, 128 bytes. The multiLockBuckets follow;
// the head has their number.
type multiLockHead struct {
	_       structs.HostLayout
	policy  uint32 // the result of Policy.stored. Immutable after init.
	buckets uint32 // bits 0..7: logarithm of the number of buckets, plus 1; 0 means the default. Immutable after init.
	_       [120]byte
}

// multiInline is how many keys of a bucket can be held without a wait node.
const multiInline = 5

// multiLockBucket is a bucket of a MultiLock with a monitor of its own, 512 bytes.
type multiLockBucket struct {
	_   structs.HostLayout
	mon monitorWords
	// spilled is the link to the first wait node that stands for a key for which entries had no
	// room. These nodes are in the order of their offsets.
	//   writers: the holder of the queue lock
	//   readers: the same, tools
	//   order:   the queue lock's
	//   futex:   none
	//   crash:   made anew from the nodes
	spilled atomic.Uint64
	entries [multiInline]multiLockEntry
}

// multiLockEntry is a key that is not free, or one that was held before. If the bucket has no room
// for an entry, an idle wait node stands for the key: it has the key as what it wants, the hold as
// its stamp, the queue in its extra word, and the link to the next such node of the bucket.
type multiLockEntry struct {
	// key is the key of the hold, or of the last one.
	//   writers: the holder of the queue lock, while the hold says that the entry is in no use
	//   readers: the same, tools, Lock and TryLock without the queue lock
	//   order:   the queue lock's; a reader without the lock reads it after the hold and then compares
	//            the hold again: it is unchanged, or has another stamp
	//   futex:   none
	//   crash:   of no meaning until the hold is written
	key   atomic.Uint64
	hold  atomic.Uint64 // see keyHold
	queue atomic.Uint64 // written by the holder of the queue lock; 0 while the hold is fast; links: next is the first waiter for the key, prev the last; an index of the waits
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

// multiLockBody views the private body of a MultiLock that is being made, with
// that many buckets.
func multiLockBody(b []byte, buckets int) (head *multiLockHead, all []*multiLockBucket) {
	_ = b[multiLockBytes(buckets)-1]
	base := unsafe.Pointer(unsafe.SliceData(b))
	for i := range buckets {
		// SAFETY: b is as long as that many buckets need.
		all = append(all, (*multiLockBucket)(unsafe.Add(base, multiHeadBytes+uintptr(i)*multiBucketBytes)))
	}
	return (*multiLockHead)(base), all
}

// multiLockBytes is the length of the body with that many buckets.
func multiLockBytes(buckets int) uint64 {
	return uint64(multiHeadBytes) + uint64(buckets)*uint64(multiBucketBytes)
}

// multiBucketAt is the offset of a bucket.
func multiBucketAt(o arenakernel.Object, i int) arenakernel.Offset {
	return o.Body + arenakernel.Offset(multiHeadBytes) + arenakernel.Offset(i)*arenakernel.Offset(multiBucketBytes)
}
