//go:build linux

package cinterop

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// deletesInGo attaches to the arena, deletes the object "x", and returns the error.
func deletesInGo(t *testing.T, name string) error {
	t.Helper()
	a, err := arena.Attach(name, nil)
	require.NoError(t, err)
	defer a.Close()
	return a.Delete("x")
}

// A process closes its only handle of an object and keeps a hold. Processes in C and Go can delete the object only
// after the hold has ended. What the process owes to others, such as the count of a WaitGroup, is not a hold.
func TestDeleteOfAHeldObject(t *testing.T) {
	holds := []string{
		"mutex", "rwmutex_read", "rwmutex_write", "rwmutex_upgradable", "spinlock", "rwspinlock_read", "rwspinlock_write",
		"fairmutex", "multilock", "signalwaker", "semaphore", "queue", "synchronized",
	}
	for _, verb := range append(holds, "transferable", "latch", "barrier", "future", "waitgroup") {
		t.Run(verb, func(t *testing.T) {
			name := coreArena(t, 2<<20)
			holder, held, stderr := core(t, program(t, "holders.c"), name, verb)
			ready(t, held, stderr)
			for i := range holds {
				if holds[i] == verb {
					require.ErrorIs(t, deletesInGo(t, name), syscall.EBUSY)
					require.EqualValues(t, int(syscall.EBUSY), deletesInC(t, name, "x"))
					tell(t, holder)
					require.NoError(t, holder.Wait(), "%v", stderr)
					eventually(t, "the hold has ended", name, func() bool { return deletesInC(t, name, "x") == 0 })
					return
				}
			}
			require.Zero(t, deletesInC(t, name, "x"))
		})
	}
}
