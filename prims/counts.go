package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/arenakernel"
)

// Objects have counters of their operations only in an arena that counts. In other arenas the pointer to the
// counters is nil, so an operation only tests that pointer. The fast paths of a Mutex do not even make that
// test. In an arena that counts, these fast paths work on a word that is never free. So they fail, and the slow
// paths count.

// countsOf returns w if the arena counts, and nil otherwise.
func countsOf(a *arenakernel.Arena, w *countWords) *countWords {
	if a.Counted() {
		return w
	}
	return nil
}

// took counts one acquisition of the object.
func (c *countWords) took() {
	if c != nil {
		c.acquired.Add(1)
	}
}

// holds counts one exclusive acquisition of the object, and records when the hold began.
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

// dates records that a hold begins now. It is for a hold that another process has handed to a waiter.
func (c *countWords) dates() {
	if c != nil {
		c.since.Store(uint64(shmsync.Monotonic()))
	}
}

// add increments one counter. The parameter is a function that returns the address of this counter.
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

// tell returns the counters in the form that the tools use, or nil if the arena does not count.
func (c *countWords) tell() *arenakernel.Counts {
	if c == nil {
		return nil
	}
	return &arenakernel.Counts{
		Acquired: c.acquired.Load(), Contended: c.contended.Load(), SpinsPaid: c.spinsPaid.Load(),
		Slept: c.slept.Load(), Woken: c.woken.Load(), Recovered: c.recovered.Load(),
	}
}

// began returns when the present hold began, or 0 if that is not known.
func (c *countWords) began() int64 {
	if c == nil {
		return 0
	}
	return int64(c.since.Load())
}

// counted prepares a handle on a Mutex for counting, if the arena counts. The fast paths then work on a
// private word that no participant can lock or unlock, so they fail. The slow paths use the owner word, and
// count.
func (m *Mutex) counted() {
	if m.counts = countsOf(m.a, &m.words.counts); m.counts == nil {
		return
	}
	nobodys := ownerNever ^ 1
	m.own = &nobodys
	m.plain, m.biased = uint32(m.name), ownerNever
	atomic.StoreUint32(&m.self, uint32(m.name))
}
