package park

import (
	"context"
	"sync/atomic"

	"github.com/shmsync/shmsync"
)

// Cancel lets the end of a context reach a wait. The zero value belongs to a
// wait that cannot be cancelled. It is used for one blocked call, from its
// first sleep to its end, when Stop is called.
type Cancel struct {
	ctx  context.Context
	word *atomic.Uint32 // 1 when the context has ended; slept on
	stop func() bool

	slept bool  // the call has slept before
	since int64 // since when it waits, CLOCK_MONOTONIC ns; 0: it does not know yet
}

// date gives since when the call waits that is about to sleep: a wake that was none for
// it does not make its wait younger. It is 0 before the first sleep, which the look of
// the process dates if it lasts.
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

// Stop takes the arrangement back.
func (c *Cancel) Stop() {
	if c.stop != nil {
		c.stop()
	}
}
