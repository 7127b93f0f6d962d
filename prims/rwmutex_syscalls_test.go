//go:build linux

package prims_test

import (
	"context"
	"runtime"
	"syscall"
	"testing"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("rwmutex/syscalls", func(c *proctest.Child) {
		var p struct{ Arena, How string }
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		m, err := prims.OpenRWMutex(a, "m", nil)
		if err != nil {
			c.Fatal(err)
		}
		for !a.Fenced() {
			runtime.Gosched()
		}
		if err := forbid(a); err != nil {
			c.Fatal(err)
		}
		c.Ready()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		switch p.How {
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
			m.RLock() // sleeps
		case "an upgrader waits":
			m.RLock()
			m.LockUpgradable()
			m.Upgrade() // sleeps
		case "a writer waits":
			m.RLock()
			m.Lock() // sleeps
		}
		// Without the Close, which wakes others.
		c.Say(true)
		c.Await()
	})
}

// Where nobody waits there is no system call: the kernel would kill for one.
func TestRWMutexNoSyscalls(t *testing.T) {
	for _, how := range []string{"uncontended", "a reader waits", "a writer waits", "an upgrader waits"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			p := proctest.Start(t, "rwmutex/syscalls", proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
			p.Await(t)
			if how == "uncontended" {
				var done bool
				p.Recv(t, &done)
				p.Kill(t)
				return
			}
			// The trap works.
			p.WaitSignal(t, syscall.SIGSYS)
		})
	}
}
