//go:build linux

package prims

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutexMaySpin: never more than may be, and none is left behind.
func TestMutexMaySpin(t *testing.T) {
	m := &Mutex{maxSpinners: 2}
	require.True(t, m.maySpin())
	require.True(t, m.maySpin())
	require.False(t, m.maySpin())
	m.spinners.Add(-1)
	require.True(t, m.maySpin())
	m.spinners.Store(0)

	var most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20_000 {
				if m.maySpin() {
					if n := m.spinners.Load(); n > most.Load() {
						most.Store(n)
					}
					m.spinners.Add(-1)
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int32(2))
	require.Zero(t, m.spinners.Load())
}
