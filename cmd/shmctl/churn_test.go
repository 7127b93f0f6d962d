//go:build linux

package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

// TestBesideWork checks that shmctl reports no damage, no stuck process and no death while processes work.
func TestBesideWork(t *testing.T) {
	name := testArena(t)
	a, err := arena.Attach(name, &arena.Options{Label: "busy"})
	require.NoError(t, err)
	// Each agent uses only one Mutex. If an agent used both, shmctl could report a deadlock of the agent and the
	// process of the test. Holds belong to processes, not to goroutines. So the wait of one goroutine and the hold of
	// another look like a deadlock if, on a busy machine, neither process runs between two snapshots.
	for k := range 2 {
		newAgent(t, name, fmt.Sprint("other", k)).begins("spin mutex", fmt.Sprint("m", k))
	}
	var stop atomic.Bool
	var wg sync.WaitGroup
	for k := range 3 {
		wg.Go(func() {
			for i := 0; !stop.Load(); i++ {
				object := fmt.Sprintf("temporary %d.%d", k, i%7)
				if s, err := prims.OpenSemaphore(a, object, 1, nil); err == nil {
					s.AcquireContext(context.Background(), 1)
					s.Release(1)
					s.Close()
					a.Delete(object)
				}
				if off, err := a.Alloc(uint64(i%5000), 0); err == nil {
					a.Free(off)
				}
			}
		})
		wg.Go(func() {
			first, err := prims.OpenMutex(a, fmt.Sprintf("m%d", k%2), nil)
			require.NoError(t, err)
			second, err := prims.OpenFairMutex(a, "f", nil)
			require.NoError(t, err)
			for !stop.Load() {
				first.Lock()
				second.Lock()
				//lint:ignore SA2001 the test is that the lock changes hands
				second.Unlock()
				first.Unlock()
			}
		})
	}
	defer func() {
		stop.Store(true)
		wg.Wait()
		require.NoError(t, a.Close())
	}()
	looks := 0
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end) || looks < 5; looks++ {
		for _, args := range [][]string{{"check", name}, {"waits", name}, {"ps", name}, {"graph", name}, {"locks", name}} {
			code, out, errs := shmctl(args...)
			require.Equal(t, exitOK, code, "%v: %s%s", args, out, errs)
		}
	}
	t.Log(looks, "looks")
}
