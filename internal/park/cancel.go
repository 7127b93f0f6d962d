package park

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// Cancel lets the end of a context end a wait. The zero value belongs to a wait that cannot be
// cancelled. A Cancel serves one blocked call, from the call's first sleep until Stop.
type Cancel struct {
	ctx  context.Context
	word *atomic.Uint32 // 1 when the context has ended; slept on
	stop func() bool

	slept bool  // the call has slept before
	since int64 // when the call began to wait, CLOCK_MONOTONIC ns; 0: not known yet
}

// date returns the time at which the call began to wait. A call that is woken in vain and sleeps
// again keeps its first date, and so its place among the waiters. Before the first sleep the date
// is 0, which saves reading the clock for a short wait; a periodic check dates a wait that lasts.
func (c *Cancel) date() int64 {
	if c.slept && c.since == 0 {
		c.since = shmsync.Monotonic()
	}
	return c.since
}

// CancelBy makes a Cancel for ctx, which may be nil.
func CancelBy(ctx context.Context) Cancel {
	if ctx == nil || ctx.Done() == nil {
		return Cancel{}
	}
	return Cancel{ctx: ctx}
}

// Err is the context's error when it has ended.
func (c *Cancel) Err() error {
	if c.ctx == nil {
		return nil
	}
	return c.ctx.Err()
}

// arm makes sure that the end of the context wakes a sleeper on c.word.
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
