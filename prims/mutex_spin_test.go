//go:build linux

package prims

import (
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMutexMaySpin checks that no more goroutines spin than maxSpinners allows, and that the count returns to 0.
func TestMutexMaySpin(t *testing.T) {
	v := &mutexVariant{maxSpinners: 2}
	require.True(t, v.beginSpin())
	require.True(t, v.beginSpin())
	require.False(t, v.beginSpin())
	v.endSpin()
	require.True(t, v.beginSpin())
	v.spinners.Store(0)

	var most atomic.Int32
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 20_000 {
				if v.beginSpin() {
					if n := v.spinners.Load(); n > most.Load() {
						most.Store(n)
					}
					v.endSpin()
				}
			}
		})
	}
	all.Wait()
	require.LessOrEqual(t, most.Load(), int32(2))
	require.Zero(t, v.spinners.Load())
}
