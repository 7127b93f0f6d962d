//go:build linux

package prims_test

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/race"
)

// TestSpinLockRaceEdges: the race detector sees the edges of both locks. So it reports no race on plain
// variables that the locks guard.
func TestSpinLockRaceEdges(t *testing.T) {
	if !race.Enabled {
		t.Skip("needs -race")
	}
	a := newArena(t, nil)
	s, rw := newSpin(t, a, nil), newRWSpin(t, a, nil)
	guarded, written, upgraded := 0, 0, 0
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 200 {
				s.Lock()
				guarded++
				s.Unlock()
				switch i % 4 {
				case 0:
					rw.Lock()
					written++
					rw.Downgrade()
					_ = written
					rw.RUnlock()
				case 1:
					rw.RLock()
					_ = written
					rw.RUnlock()
				case 2:
					rw.LockUpgradable()
					upgraded++
					_ = written
					rw.Upgrade()
					written++
					rw.DowngradeToUpgradable()
					upgraded++
					rw.DowngradeToRead()
					_ = written
					rw.RUnlock()
				default:
					if rw.TryLock() {
						written++
						rw.Unlock()
					} else if rw.TryRLock() {
						_ = written
						rw.RUnlock()
					}
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 800, guarded)
	require.Equal(t, 400, upgraded)
}
