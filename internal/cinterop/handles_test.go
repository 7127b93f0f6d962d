//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process closes its only handle of an object while another thread waits through the handle, or runs a function in a
// call. The object stays open, and no process deletes it, until that call has ended.
func TestCloseBesideAWait(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{
		"mutex", "fairmutex", "spinlock", "rwspinlock", "rwmutex", "rwmutex_write", "rwmutex_upgradable", "multilock", "event",
		"event_auto", "any", "all", "any_future", "all_future", "futex", "sequencer", "future", "waitgroup", "signalwaker", "latch", "barrier", "semaphore",
		"queue", "synchronized", "cond", "once",
		"mutex_recover", "rwmutex_recover", "spinlock_recover", "rwspinlock_recover", "fairmutex_recover", "multilock_recover",
	} {
		t.Run(verb, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			waiter, out, stderr := core(t, program(t, "handles.c"), name, verb)
			ready(t, out, stderr)
			require.Equal(t, int(syscall.EBUSY), deletesInC(t, name, "x"))
			tell(t, waiter)
			ready(t, out, stderr)
			require.Zero(t, deletesInC(t, name, "x"))
			tell(t, waiter)
			require.NoError(t, waiter.Wait(), "%v", stderr)
			sound(t, name)
		})
	}
}
