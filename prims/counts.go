package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// A counter of an object is reached through a pointer that is nil in an arena that
// does not count, so that all that this costs there is a look at the pointer, and
// nothing at all on the fast paths of a Mutex: in a counted arena those are led to a
// word that is never free, and so to the slow paths.

// countsOf gives the counters in words, or nil.
func countsOf(a *arenakernel.Arena, w *countWords) *countWords {
	if a.Counted() {
		return w
	}
	return nil
}

// took counts that the object was taken.
func (c *countWords) took() {
	if c != nil {
		c.acquired.Add(1)
	}
}

// holds counts that the object was taken exclusively, and dates that.
func (c *countWords) holds(contended bool) {
	if c == nil {
		return
	}
	c.acquired.Add(1)
	c.since.Store(uint64(shmsync.Monotonic()))
	if contended {
		c.contended.Add(1)
	}
}

// dates dates a hold that was handed to a waiter.
func (c *countWords) dates() {
	if c != nil {
		c.since.Store(uint64(shmsync.Monotonic()))
	}
}

// add adds to the counter that the function which chooses.
func (c *countWords) add(which func(c *countWords) *atomic.Uint64) {
	if c != nil {
		which(c).Add(1)
	}
}

func countContended(c *countWords) *atomic.Uint64 { return &c.contended }
func countSpin(c *countWords) *atomic.Uint64      { return &c.spinsPaid }
func countSleep(c *countWords) *atomic.Uint64     { return &c.slept }
func countWake(c *countWords) *atomic.Uint64      { return &c.woken }
func countRecovery(c *countWords) *atomic.Uint64  { return &c.recovered }

// tell gives the counters for people, or nil.
func (c *countWords) tell() *arenakernel.Counts {
	if c == nil {
		return nil
	}
	return &arenakernel.Counts{
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), SpinsPaid: c.spinsPaid.Load(),
		Slept: c.slept.Load(), Woken: c.woken.Load(), Recovered: c.recovered.Load(),
	}
}

// began is when the present hold began, as far as known.
func (c *countWords) began() int64 {
	if c == nil {
		return 0
	}
	return int64(c.since.Load())
}

// counted makes a handle on a Mutex count, if the arena does. The fast paths work on a
// word that is nobody's, fail, and leave everything to the slow paths, which know the
// owner word.
func (m *Mutex) counted() {
	if m.counts = countsOf(m.a, &m.words.counts); m.counts == nil {
		return
	}
	nobodys := ownerNever ^ 1
	m.own = &nobodys
	m.plain, m.biased = uint32(m.name), ownerNever
	atomic.StoreUint32(&m.self, uint32(m.name))
}
