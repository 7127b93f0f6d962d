//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestRWMutexAllocations: no call allocates if it does not wait. When the pools are filled, a wait that cannot
// be cancelled does not allocate either.
func TestRWMutexAllocations(t *testing.T) {
	if race.Enabled || crashpoint.Enabled {
		t.Skip("needs a build without the race detector and crash points: their hooks allocate")
	}
	a := newArena(t, nil)
	m := newRWMutex(t, a, nil)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := m.RLocker()
	for name, fn := range map[string]func(){
		"RLock":        func() { m.RLock(); m.RUnlock() },
		"RLockContext": func() { m.RLockContext(ctx); m.RUnlock() },
		"TryRLock":     func() { m.TryRLock(); m.RUnlock() },
		"RLocker":      func() { l.Lock(); l.Unlock() },
		"Lock":         func() { m.Lock(); m.Unlock() },
		"LockContext":  func() { m.LockContext(ctx); m.Unlock() },
		"TryLock":      func() { m.TryLock(); m.Unlock() },
		"Try no":       func() { m.Lock(); m.TryRLock(); m.TryLock(); m.Unlock() },
		"Downgrade":    func() { m.Lock(); m.Downgrade(); m.RUnlock() },
		"Upgradable":   func() { m.LockUpgradable(); m.UnlockUpgradable(); m.TryLockUpgradable(); m.UnlockUpgradable() },
		"Upgrade": func() {
			m.LockUpgradableContext(ctx)
			m.Upgrade()
			m.DowngradeToUpgradable()
			m.TryUpgrade()
			m.Unlock()
		},
		"Upgrade no": func() {
			m.RLock()
			m.LockUpgradable()
			m.TryUpgrade()
			m.DowngradeToRead()
			m.RUnlock()
			m.RUnlock()
		},
	} {
		require.Zero(t, testing.AllocsPerRun(1000, fn), name)
	}
	for _, poller := range []bool{false, true} {
		if poller {
			fillThreads(t, a)
		}
		m := newRWMutex(t, a, &prims.RWMutexOptions{Spin: -1})
		slept := 0
		hammer := func(turns int) {
			var wg sync.WaitGroup
			for i := range 6 {
				wg.Go(func() {
					for range turns {
						if i%2 == 0 {
							m.Lock()
							slept += min(m.Waiters(), 1)
							runtime.Gosched()
							m.Unlock()
						} else {
							m.RLock()
							runtime.Gosched()
							m.RUnlock()
						}
					}
				})
			}
			wg.Wait()
		}
		hammer(200) // fill the pools
		const turns = 2000
		waitsAllocateNothing(t, 6*turns, 0.02, m.String, func() (waited int) {
			slept = 0
			hammer(turns)
			return slept
		})
	}
}
