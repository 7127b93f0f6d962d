package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// fairMutexWords is the memory of a FairMutex, 128 bytes. In an arena that counts, a [countWords] follows. See
// docs/design/0057.
type fairMutexWords struct {
	_      structs.HostLayout
	commit atomic.Uint64 // see recordCommit
	owner  atomic.Uint64 // see fairWord
	// accepted names the last grant that a participant has accepted. A grant is a value of the owner word that
	// hands the lock to a participant. The participant holds the lock once it has accepted the grant.
	//
	//	bits 0..31   the tag that the owner word had in that grant
	//	bits 32..63  the participant that got the lock
	//
	//	writers: a participant that was granted the lock, by CAS
	//	readers: Unlock, Recover, reapers, tools
	//	order:   seq-cst
	//	futex:   none
	//	crash:   a reaper takes back a grant that was not accepted; the dead participant has never held the lock
	accepted atomic.Uint64
	first    atomic.Uint64 // the first and the last wait of the queue; see recordQueue
	last     atomic.Uint64
	died     atomic.Uint64 // a recordedWord: the participant whose death left the data inconsistent; 0: none
	policy   uint32        // the result of Policy.stored. Immutable after init.
	// lastCPU, spin and pays steer the spinning of waiters, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	// wake and poller are words that a [park.Queue] needs. No goroutine sleeps on wake, because each wait
	// sleeps on its own wait node.
	wake   atomic.Uint32
	_      [4]byte
	poller atomic.Uint64
	_      [48]byte
}

// fairMutexCounted is the memory of a FairMutex in an arena that counts.
type fairMutexCounted struct {
	_      structs.HostLayout
	words  fairMutexWords
	counts countWords
}

// The offsets are ABI. If one of them changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.owner)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.accepted)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.first)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.last)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.died)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.policy)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.lastCPU)-52]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.spin)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.pays)-60]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.wake)-64]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexWords{}.poller)-72]
	_ = [1]struct{}{}[unsafe.Sizeof(fairMutexWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(fairMutexCounted{}.counts)-128]
)

const (
	fairMutexSpinOff = arenakernel.Offset(unsafe.Offsetof(fairMutexWords{}.spin))
	fairMutexWakeOff = arenakernel.Offset(unsafe.Offsetof(fairMutexWords{}.wake))
)

// fairMutexBytes returns the size of the body of a FairMutex.
func fairMutexBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(unsafe.Sizeof(fairMutexCounted{}))
	}
	return uint64(unsafe.Sizeof(fairMutexWords{}))
}

// fairMutexAt returns the words of the FairMutex o in shared memory. counts is nil if the arena does not count.
func fairMutexAt(a *arenakernel.Arena, o arenakernel.Object) (w *fairMutexWords, counts *countWords) {
	if a.Counted() {
		c := arenakernel.At[fairMutexCounted](a, o.Body)
		return &c.words, &c.counts
	}
	return arenakernel.At[fairMutexWords](a, o.Body), nil
}

// fairMutexBody returns the words of a FairMutex that is being created and that no other process sees yet.
func fairMutexBody(b []byte) *fairMutexWords {
	_ = b[unsafe.Sizeof(fairMutexWords{})-1]
	return (*fairMutexWords)(unsafe.Pointer(unsafe.SliceData(b)))
}

// closedFair replaces the value of the owner word in a handle without fast paths. It has the value of a closed word,
// so every fast path fails.
var closedFair uint32

// value returns the upper half of the owner word, which is its value. A CAS of this half does not change the
// tag in the lower half.
func (w *fairMutexWords) value() *uint32 {
	return (*uint32)(unsafe.Add(unsafe.Pointer(&w.owner), 4))
}
