//go:build linux

package prims_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// TestRWMutexCrowd: any number of goroutines may wait to read, on a few threads. They are let in together. A
// goroutine that gives up does not wake the others.
func TestRWMutexCrowd(t *testing.T) {
	n := proctest.Rounds(2000, 20_000)
	a := newArena(t, nil)
	m := ofRW(t, a)
	writer := remoteActor(t, a, "writer")
	writer.must(t, order{Op: "rwlock", Object: "m"})
	ctx, cancel := context.WithCancel(t.Context())
	var in, gone sync.WaitGroup
	for i := range n {
		if i%2 == 0 {
			in.Go(func() { m.RLock() })
		} else {
			gone.Go(func() {
				if m.RLockContext(ctx) == nil {
					panic("it was let in")
				}
			})
		}
	}
	eventually(t, "all wait", m.String, func() bool { return m.State().Waiting == n })
	threads, err := os.ReadDir("/proc/self/task")
	require.NoError(t, err)
	require.Less(t, len(threads), mostThreads)
	cancel()
	gone.Wait()
	require.Equal(t, n/2, m.State().Waiting)
	writer.must(t, order{Op: "rwunlock", Object: "m"})
	in.Wait()
	require.Equal(t, n/2, m.State().Readers)
	lock := writer.blocked(t, order{Op: "rwlock", Object: "m"})
	for range n / 2 {
		m.RUnlock()
	}
	require.Empty(t, writer.wait(t, lock).Err)
	writer.must(t, order{Op: "rwunlock", Object: "m"})
	nothingLeft(t, a, m)
}
