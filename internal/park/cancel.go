package park

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// A Cancel ends a wait when a context ends. The zero value is for a wait without a context. One blocked call uses a
// Cancel from its first sleep until Stop. The call may sleep several times.
type Cancel struct {
	ctx  context.Context
	word *atomic.Uint32 // becomes 1 when the context ends; the waiter also sleeps on this word
	stop func() bool

	slept bool  // the call has slept at least once
	since int64 // when the call began to wait, CLOCK_MONOTONIC ns; 0 if not known yet
}

// date returns when the call began to wait. A call that is woken and has to wait again keeps this time, and therefore
// its place among the waiters. Before the first sleep, date returns 0, so that a short wait does not read the clock.
// During a long first sleep in the kernel, a periodic check finds out the time; see Arena.StampAnnounced.
func (c *Cancel) date() int64 {
	if c.slept && c.since == 0 {
		c.since = shmsync.Monotonic()
	}
	return c.since
}

// CancelBy returns a Cancel for ctx. ctx may be nil.
func CancelBy(ctx context.Context) Cancel {
	if ctx == nil || ctx.Done() == nil {
		return Cancel{}
	}
	return Cancel{ctx: ctx}
}

// Err returns the error of the context, or nil if the context has not ended.
func (c *Cancel) Err() error {
	if c.ctx == nil {
		return nil
	}
	return c.ctx.Err()
}

// Ends reports whether a wait ends without a wake, because the context has ended or has a deadline.
func (c *Cancel) Ends() bool { return Ends(c.ctx) }

// Ends reports whether ctx has ended or has a deadline. ctx may be nil.
func Ends(ctx context.Context) bool {
	if ctx == nil {
		return false
	}
	_, deadline := ctx.Deadline()
	return deadline || ctx.Err() != nil
}

// arm arranges that the end of the context wakes a thread that sleeps on c.word.
func (c *Cancel) arm() {
	if c.ctx == nil || c.word != nil {
		return
	}
	word := new(atomic.Uint32)
	c.word = word
	c.stop = context.AfterFunc(c.ctx, func() {
		word.Store(1)
		shmsync.Wake(wordPtr(word), 1)
	})
}

// Stop undoes arm.
func (c *Cancel) Stop() {
	if c.stop != nil {
		c.stop()
	}
}
