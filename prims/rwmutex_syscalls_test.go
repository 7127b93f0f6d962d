//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	registerSilent("rwmutex/syscalls", func(a *arena.Arena) (func(string), error) {
		m, err := prims.OpenRWMutex(a, "m", nil)
		return func(how string) {
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			switch how {
			case "uncontended":
				for range 200_000 {
					m.RLock()
					m.RUnlock()
					m.RLockContext(ctx)
					m.TryRLock()
					m.TryLock()
					m.RUnlock()
					m.RUnlock()
					m.Lock()
					m.TryRLock()
					m.Downgrade()
					m.RUnlock()
					m.LockContext(ctx)
					m.Unlock()
					m.TryLock()
					m.Unlock()
					m.LockUpgradable()
					m.TryRLock()
					m.TryUpgrade()
					m.RUnlock()
					m.Upgrade()
					m.DowngradeToUpgradable()
					m.UpgradeContext(ctx)
					m.DowngradeToUpgradable()
					m.DowngradeToRead()
					m.TryLockUpgradable()
					m.RUnlock()
					m.UnlockUpgradable()
				}
			case "a reader waits":
				m.Lock()
				m.RLock() // this call sleeps
			case "an upgrader waits":
				m.RLock()
				m.LockUpgradable()
				m.Upgrade() // this call sleeps
			case "a writer waits":
				m.RLock()
				m.Lock() // this call sleeps
			}
		}, err
	})
}

func TestRWMutexNoSyscalls(t *testing.T) {
	for _, how := range []string{"uncontended", "a reader waits", "a writer waits", "an upgrader waits"} {
		t.Run(how, func(t *testing.T) { silent(t, newArena(t, nil), "rwmutex/syscalls", how, how != "uncontended") })
	}
}
