package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// metWords have a date for the present hold of a mutex or of a spin lock, for tools: the hold began
// at that date or before. The fast path of Lock does not read the clock. Instead, a waiter that
// goes to sleep stores the time as the date of the hold that it waits for, and a waiter that has
// slept does so for the hold that it gets. The words share a cache line with the wake word, which
// the waiter has just written.
//
// A hold is identified by the owner word and the wake word, while the wake word is announced. A
// release by another process changes the owner word. A release by the same process changes the wake
// word, because it finds the announcement. So the date of an earlier hold is not taken for that of
// a later hold. There is one exception: if another goroutine of the same process takes the lock
// between the release and the wake, the date of the earlier hold counts until the wake.
type metWords struct {
	_ structs.HostLayout
	// since is the time at which a waiter found the hold, in CLOCK_MONOTONIC ns. It only grows,
	// unless it is in the future. So if a waiter is stopped before it stores hold, the date in
	// since may be too late for the hold, but it is never too early.
	//   writers: waiters, before they sleep
	//   readers: tools, and waiters
	//   order:   seq-cst, against hold
	//   futex:   none
	//   crash:   any value is consistent
	since atomic.Uint64
	// hold identifies that hold: the owner word in the upper half, the wake word in the lower.
	//   writers: waiters, before they sleep
	//   readers: tools, and waiters
	//   order:   seq-cst, after since
	//   futex:   none
	//   crash:   any value is consistent
	hold atomic.Uint64
}

var (
	_ = [1]struct{}{}[unsafe.Offsetof(metWords{}.since)-0]
	_ = [1]struct{}{}[unsafe.Offsetof(metWords{}.hold)-8]
	_ = [1]struct{}{}[unsafe.Sizeof(metWords{})-16]
)

// metFuture is how far in the future a date may be, in nanoseconds. Such a date is from another
// waiter, which read the clock after this waiter. A later date comes from before a reboot, or from
// the mistake of a peer.
const metFuture = 60e9

// meet stores the date of the hold that the caller has found after it announced itself. o is the
// owner word, v the announced wake word. meet does nothing for a queue lock, because no tool asks
// for the age of its hold.
func (x *Mutex) meet(o ownerWord, v uint32) {
	if !x.queueLock && o.held() {
		x.words.met.meet(uint32(o), v)
	}
}

// dateHold stores the date of the present hold, as a waiter does. The caller does not wait for x,
// but for something else that the holder of x has. The next Unlock finds the announcement, and
// tries to wake a waiter even if there is none.
func (x *Mutex) dateHold() {
	v, o := x.wakeWord.Announce(), ownerWord(x.owner.Load())
	if x.words.met.hold.Load() == uint64(o)<<32|uint64(v) {
		return
	}
	if o.kind() == kindBiased && o.valid() {
		// See sleep in mutex_slow.go: without the fence, the holder may release the lock without
		// seeing the announcement.
		if shmsync.Fence() != nil {
			return
		}
		o = ownerWord(x.owner.Load())
	}
	x.meet(o, uint32(v))
}

// meet stores the date of the hold that the caller has found after it announced itself. o is the
// word that names the holder, v the announced wake word.
func (m *metWords) meet(o, v uint32) {
	hold := uint64(o)<<32 | uint64(v)
	if m.hold.Load() == hold {
		return // another waiter has stored its date
	}
	now := uint64(shmsync.Monotonic()) // read after the hold was found, so the hold began before
	for range metTries {
		old := m.since.Load()
		if old >= now && old-now < metFuture || m.since.CompareAndSwap(old, now) {
			m.hold.Store(hold)
			return
		}
	}
}

// metTries bounds how often a waiter tries to store the date of a hold while other waiters do so.
// If all tries fail, the age of the hold may stay unknown.
const metTries = 4

// dateOf returns a time at which the present hold had begun, or 0. owner is the word that names the
// holder.
func (m *metWords) dateOf(owner, wake *atomic.Uint32) int64 {
	v, o := wake.Load(), owner.Load()
	hold := m.hold.Load()
	since := m.since.Load()
	if v&1 == 0 || hold != uint64(o)<<32|uint64(v) || hold != m.hold.Load() || o != owner.Load() || v != wake.Load() {
		return 0
	}
	return int64(since)
}

// dateMutex adds to the given holds the time when they began. If no process has recorded that time,
// it adds the time at which a waiter found the lock held; each hold began then or before.
func (i *inspection) dateMutex(holds []int, a *arenakernel.Arena, w *mutexWords) {
	i.date(holds, countsOf(a, &w.counts))
	for _, h := range holds {
		if i.Holds[h].Since == 0 {
			i.Holds[h].Since = w.met.dateOf(&w.owner, &w.wake)
			i.Holds[h].AtLeast = i.Holds[h].Since != 0
		}
	}
}
