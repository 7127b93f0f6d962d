package prims

import (
	"structs"
	"sync/atomic"
	"unsafe"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// metWords tell tools the age of the present hold of a mutex or of a spin lock. They store a date: a time at which
// the hold had already begun. The fast path of Lock stores no date, because it does not read the clock. Instead, a
// waiter that goes to sleep stores the date of the hold for which it waits. A waiter that has slept also stores the
// date of its own hold, when it gets the lock. The words share a cache line with the wake word, which the waiter has
// just written.
//
// The date counts for one hold only. metWords.hold identifies that hold by two values: the owner word, and the wake
// word that announces a waiter. If another process locks next, the owner word differs. If the same process locks again,
// the wake word differs, because the release found the announcement and woke a waiter. There is one exception: another
// goroutine of the same process may lock between the release and the wake. Until the wake, tools then show the date of
// the earlier hold.
type metWords struct {
	_ structs.HostLayout
	// since is the CLOCK_MONOTONIC time, in ns, at which a waiter found the lock held. It only grows, except that a
	// waiter replaces a time far in the future. If a waiter is stopped between its stores of since and of hold, other
	// waiters may store a later time in since. That time is still a date of the hold: a time at which the hold had
	// already begun.
	//   writers: waiters, before they sleep
	//   readers: tools, and waiters
	//   order:   seq-cst, against hold
	//   futex:   none
	//   crash:   any value is consistent
	since atomic.Uint64
	// hold identifies the hold to which since belongs. The upper half is the owner word, and the lower half is the
	// wake word.
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

// metFuture is how far in the future a stored date may be, in nanoseconds. A waiter may find a date slightly in the
// future, because another waiter has read the clock later and stored its time first. A date further in the future is
// from before a reboot, or from a faulty peer.
const metFuture = 60e9

// meet stores the date of the hold that the caller has found after it announced itself as a waiter. o is the owner
// word, and v is the announced wake word. meet does nothing for the local lock of a CohortMutex, because no tool
// asks for the age of its hold.
func (x *Mutex) meet(o ownerWord, v uint32) {
	if !x.localLock && o.held() {
		x.words.met.meet(uint32(o), v)
	}
}

// dateHold stores the date of the present hold of x, as a waiter does. A reader of an RWMutex calls it while the writer
// holds the RWMutex, and x with it. To identify the hold, dateHold announces a waiter of x, although there may be none.
// The next Unlock of x may then make a wake in vain.
func (x *Mutex) dateHold() {
	v, o := x.wakeWord.Announce(), ownerWord(x.owner.Load())
	if x.words.met.hold.Load() == uint64(o)<<32|uint64(v) {
		return
	}
	if o.kind() == kindBiased && o.valid() {
		// Without the fence, the holder may release the lock and not see the announcement; see the method sleep in
		// mutex_slow.go.
		if shmsync.Fence() != nil {
			return
		}
		o = ownerWord(x.owner.Load())
	}
	x.meet(o, uint32(v))
}

// meet stores the date of the hold that the caller has found after it announced itself as a waiter. o is the word
// that names the holder, and v is the announced wake word.
func (m *metWords) meet(o, v uint32) {
	hold := uint64(o)<<32 | uint64(v)
	if m.hold.Load() == hold {
		return // another waiter has stored the date of this hold
	}
	now := uint64(shmsync.Monotonic()) // the clock is read after the hold was found, so the hold began before this time
	for range metTries {
		old := m.since.Load()
		if old >= now && old-now < metFuture || m.since.CompareAndSwap(old, now) {
			m.hold.Store(hold)
			return
		}
	}
}

// metTries bounds how often a waiter tries to store the date of a hold while other waiters do the same. If all
// tries fail, the age of the hold may stay unknown.
const metTries = 4

// dateOf returns a time at which the present hold had already begun, or 0 if no such time is known. owner is the
// word that names the holder.
func (m *metWords) dateOf(owner, wake *atomic.Uint32) int64 {
	v, o := wake.Load(), owner.Load()
	hold := m.hold.Load()
	since := m.since.Load()
	if v&1 == 0 || hold != uint64(o)<<32|uint64(v) || hold != m.hold.Load() || o != owner.Load() || v != wake.Load() {
		return 0
	}
	return int64(since)
}

// dateMutex adds to the given holds the time when they began. If no process has recorded that time, dateMutex adds
// the time at which a waiter found the lock held; the hold began then or before.
func (i *inspection) dateMutex(holds []int, a *arenakernel.Arena, w *mutexWords) {
	i.date(holds, countsOf(a, &w.counts))
	for _, h := range holds {
		if i.Holds[h].Since == 0 {
			i.Holds[h].Since = w.met.dateOf(&w.owner, &w.wake)
			i.Holds[h].AtLeast = i.Holds[h].Since != 0
		}
	}
}
