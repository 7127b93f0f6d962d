package prims

import (
	"context"
	"runtime"
	"time"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/asm"
)

// If the rule of a call takes long, and other processes change the state more often than the rule returns, the call
// could begin its change again for ever. So after yieldAfter attempts, the call stores a time in the word yieldUntil.
// Until that time, calls do not begin a change, in any process. Changes that have begun go on. The time is at most
// yieldMost in the future. So if the process of the slow call is stopped meanwhile, or dies, it delays other calls only
// once, and only by yieldMost. A call whose rule takes longer than yieldMost may still have to begin again often.

const (
	yieldAfter = 16
	yieldLeast = 200 * time.Microsecond
	yieldMost  = 5 * time.Millisecond
	yieldWait  = 1 * time.Second // how long one call waits at most
)

// attempts counts how often one call has begun a change, and remembers when the last attempt began.
type attempts struct {
	n     int
	began int64 // CLOCK_MONOTONIC ns; 0 in the first attempts
	until int64 // what the call has stored in yieldUntil, or 0
}

// again is called before each attempt of a call to change the state.
func (x *waitableCore) again(t *attempts) {
	if t.n++; t.n <= yieldAfter {
		return
	}
	now := shmsync.Monotonic()
	if t.began != 0 {
		long := min(max(2*time.Duration(now-t.began), yieldLeast), yieldMost)
		// Several calls may store a time. The latest time counts.
		if until, was := now+int64(long), int64(x.words.yieldUntil.Load()); was < until || was > now+int64(yieldMost) {
			t.until = until
			x.words.yieldUntil.Store(uint64(until))
		}
	}
	t.began = now
}

// over is called when a call ends. If the call has asked other calls to wait, over ends their wait.
func (x *waitableCore) over(t *attempts) {
	if t.until != 0 {
		x.words.yieldUntil.CompareAndSwap(uint64(t.until), 0)
	}
}

// yield waits until the time in yieldUntil, or until ctx ends. Another call stores that time to keep calls from
// beginning a change.
func (x *waitableCore) yield(ctx context.Context) {
	if x.words.yieldUntil.Load() == 0 {
		return
	}
	for limit := shmsync.Monotonic() + int64(yieldWait); ; {
		// Other calls, or a hostile peer, may store a new time again and again. limit bounds the whole wait.
		now := shmsync.Monotonic()
		ahead := time.Duration(int64(x.words.yieldUntil.Load()) - now)
		switch {
		case ahead <= 0 || ahead > yieldMost || now > limit || ctx.Err() != nil:
			return
		case ahead < yieldLeast/10:
			asm.Pause(64)
		default:
			runtime.Gosched() // the slow call may need the CPU of this thread, for another goroutine
			shmsync.Yield()
		}
	}
}
