package prims

import (
	"sync/atomic"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/park"
)

// tryCheck says when a call that does not wait, such as TryAcquire, has last looked for holders that died. While a
// goroutine waits, the periodic check looks for such holders. A program that makes only calls that do not wait has no
// periodic check, and the processes that watch a dead holder may be stopped. So a call that fails looks for dead
// holders itself, but not more often than the periodic check would. A TryLock needs no tryCheck, because a lock has
// only one holder, which TryLock examines each time.
type tryCheck struct{ last atomic.Int64 } // CLOCK_MONOTONIC ns

// due reports whether the call has to look for holders that died.
func (t *tryCheck) due() bool {
	now, last := shmsync.Monotonic(), t.last.Load()
	return now-last >= int64(park.CheckEvery()) && t.last.CompareAndSwap(last, now)
}
