package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync/internal/arenakernel"
)

// condWords is the body of a Cond, that is, its memory in the arena, 128 bytes. In an arena that counts operations,
// a [countWords] follows. See docs/design/0058.
type condWords struct {
	_      structs.HostLayout
	commit atomic.Uint64 // see recordCommit
	first  atomic.Uint64 // the ends of the queue; see recordQueue
	last   atomic.Uint64
	// boundary is a recordedWord. It names the node of the first wait that no Broadcast has covered, or is 0 if all
	// queued waits are covered. A covered wait is woken when its turn comes.
	boundary atomic.Uint64
	// flying is a recordedWord. It counts the waits that a Broadcast has woken and whose owners have not locked L
	// again.
	flying atomic.Uint64
	batch  atomic.Uint64 // how many waiters of a Broadcast compete for L at once; 0: condBatch. Immutable after init
	// lastCPU, spin and pays control how long waiters spin, as in mutexWords.
	lastCPU atomic.Uint32
	spin    atomic.Uint32
	pays    atomic.Uint32
	// wake and poller belong to a [park.Queue]. No goroutine sleeps on wake: each wait sleeps on
	// its wait node.
	wake   atomic.Uint32
	poller atomic.Uint64
	_      [56]byte
}

// condCounted is the body of a Cond in an arena that counts operations.
type condCounted struct {
	_      structs.HostLayout
	words  condWords
	counts countWords
}

// The offsets are part of the binary interface. If one of them changes, the package does not compile.
var (
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.first)-8]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.last)-16]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.boundary)-24]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.flying)-32]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.batch)-40]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.lastCPU)-48]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.spin)-52]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.pays)-56]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.wake)-60]
	_ = [1]struct{}{}[unsafe.Offsetof(condWords{}.poller)-64]
	_ = [1]struct{}{}[unsafe.Sizeof(condWords{})-128]
	_ = [1]struct{}{}[unsafe.Offsetof(condCounted{}.counts)-128]
)

const (
	condSpinOff = arenakernel.Offset(unsafe.Offsetof(condWords{}.spin))
	condWakeOff = arenakernel.Offset(unsafe.Offsetof(condWords{}.wake))
)

// condBytes returns the size of the body of a Cond.
func condBytes(a *arenakernel.Arena) uint64 {
	if a.Counted() {
		return uint64(unsafe.Sizeof(condCounted{}))
	}
	return uint64(unsafe.Sizeof(condWords{}))
}

// condAt returns the words of o. counts is nil if the arena does not count operations.
func condAt(a *arenakernel.Arena, o arenakernel.Object) (w *condWords, counts *countWords) {
	if a.Counted() {
		c := arenakernel.At[condCounted](a, o.Body)
		return &c.words, &c.counts
	}
	return arenakernel.At[condWords](a, o.Body), nil
}

// condBody returns the words of a Cond that is being created in b, and that no other process sees yet.
func condBody(b []byte) *condWords {
	_ = b[unsafe.Sizeof(condWords{})-1]
	return (*condWords)(unsafe.Pointer(unsafe.SliceData(b)))
}
