//go:build linux

package prims_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	// rwmutex/race makes goroutines use a plain variable, with and without the lock.
	proctest.Register("rwmutex/race", func(c *proctest.Child) {
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
		var wg sync.WaitGroup
		plain := 0
		var sum atomic.Int64 // an atomic, because a second mutex would order the reads before later writes
		read := func(lock func()) {
			wg.Go(func() {
				mine := 0
				for range 300 {
					lock()
					mine += plain
					m.RUnlock()
				}
				sum.Add(int64(mine))
			})
		}
		write := func(lock, unlock func()) {
			wg.Go(func() {
				for range 300 {
					lock()
					plain++
					unlock()
				}
			})
		}
		switch p.How {
		case "guarded":
			read(m.RLock)
			read(func() {
				if m.RLockContext(context.Background()) != nil {
					c.Fatal("RLockContext")
				}
			})
			read(func() {
				for !m.TryRLock() {
				}
			})
			write(m.Lock, m.Unlock)
			write(func() {
				for !m.TryLock() {
				}
			}, func() { m.Downgrade(); sum := plain; _ = sum; m.RUnlock() })
			write(func() {
				m.LockUpgradable()
				sum.Add(int64(plain))
				m.Upgrade()
			}, m.Unlock)
			write(func() {
				for !m.TryLockUpgradable() {
				}
				for !m.TryUpgrade() {
				}
			}, func() {
				m.DowngradeToUpgradable()
				sum.Add(int64(plain))
				m.DowngradeToRead()
				sum.Add(int64(plain))
				m.RUnlock()
			})
		case "upgraders among themselves":
			write(m.LockUpgradable, m.UnlockUpgradable)
			write(m.LockUpgradable, m.UnlockUpgradable)
		case "an upgrader that writes":
			read(m.RLock)
			write(m.LockUpgradable, m.UnlockUpgradable)
		case "a writer that reads":
			read(m.RLock)
			write(m.RLock, m.RUnlock)
		case "two writers that read":
			write(m.RLock, m.RUnlock)
			write(m.RLock, m.RUnlock)
		case "a reader beside":
			read(func() { m.RLock() })
			write(func() {}, func() {})
		}
		wg.Wait()
	})
}

// TestRWMutexRaceDetector: the race detector does not see shared memory, but it reports races on variables of a
// program correctly. A write happens before the next write and the next reads, and reads happen before the next
// write. Reads are not ordered among each other.
func TestRWMutexRaceDetector(t *testing.T) {
	if !race.Enabled {
		proctest.Skip(t, "needs -race", "rwmutex/race")
	}
	for how, code := range map[string]int{
		"guarded": 0, "a writer that reads": raceExit, "two writers that read": raceExit, "a reader beside": raceExit,
		"upgraders among themselves": 0, "an upgrader that writes": raceExit,
	} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			p := proctest.Start(t, "rwmutex/race", proctest.Params(struct{ Arena, How string }{nameOf(a), how}))
			e := p.Wait(t)
			require.Equal(t, code, e.Code, "%v", e)
			if code != 0 {
				require.Contains(t, e.Stderr, "WARNING: DATA RACE")
			}
		})
	}
}
