//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/arenatest"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestTryFindsTheDeathOfAHolder: a holder dies while all its watchers are stopped. A program that makes only calls that do
// not wait finds the death by itself.
func TestTryFindsTheDeathOfAHolder(t *testing.T) {
	if !crashpoint.Enabled {
		t.Skip("needs the build tag crashpoint")
	}
	semaphore := func(t *testing.T, a *arena.Arena) *prims.Semaphore {
		s, err := prims.OpenSemaphore(a, "x", 1, nil)
		require.NoError(t, err)
		return s
	}
	queue := func(t *testing.T, a *arena.Arena) *prims.Queue[int64] {
		q, err := prims.OpenQueue[int64](a, "x", 1, nil)
		require.NoError(t, err)
		return q
	}
	event := func(t *testing.T, a *arena.Arena) *prims.Event {
		e, err := prims.OpenEvent(a, "x", &prims.EventOptions{Mode: prims.EventAutoReset})
		require.NoError(t, err)
		return e
	}
	waitable := func(t *testing.T, a *arena.Arena) *prims.Waitable[int64, int64] {
		x, err := prims.OpenWaitable(a, "x", 1, prims.Rules[int64, int64]{
			Claim: func(s *int64, n int64) bool {
				if *s < n {
					return false
				}
				*s -= n
				return true
			},
			Release: func(s *int64, n int64) { *s += n },
		}, nil)
		require.NoError(t, err)
		return x
	}
	type tried struct {
		hold func(t *testing.T, a *arena.Arena)
		try  func(t *testing.T, a *arena.Arena) func() bool
	}
	// locks returns the case of a lock that one participant holds and another one tries to get.
	locks := func(open func(a *arena.Arena) (hold func(), try func() bool, release func(), err error)) tried {
		return tried{
			func(t *testing.T, a *arena.Arena) {
				hold, _, _, err := open(a)
				require.NoError(t, err)
				hold()
			},
			func(t *testing.T, a *arena.Arena) func() bool {
				_, try, release, err := open(a)
				require.NoError(t, err)
				return func() bool {
					got := try()
					if got {
						release()
					}
					return got
				}
			},
		}
	}
	for name, c := range map[string]tried{
		"mutex": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenMutex(a, "x", &prims.MutexOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryLock, m.Unlock, err
		}),
		"cohort mutex": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenCohortMutex(a, "x", &prims.CohortMutexOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryLock, m.Unlock, err
		}),
		"fair mutex": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenFairMutex(a, "x", &prims.FairMutexOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryLock, m.Unlock, err
		}),
		"multi lock": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenMultiLock(a, "x", &prims.MultiLockOptions{Policy: prims.PolicyRelease})
			var got prims.Hold
			return func() { m.Lock(7) }, func() (ok bool) { got, ok = m.TryLock(7); return ok }, func() { got.Unlock() }, err
		}),
		"spin lock": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenSpinLock(a, "x", &prims.SpinLockOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryLock, m.Unlock, err
		}),
		"writer of a spin lock": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenRWSpinLock(a, "x", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryRLock, m.RUnlock, err
		}),
		"reader of a spin lock": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenRWSpinLock(a, "x", &prims.RWSpinLockOptions{Policy: prims.PolicyRelease})
			return m.RLock, m.TryLock, m.Unlock, err
		}),
		"writer": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenRWMutex(a, "x", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
			return m.Lock, m.TryRLock, m.RUnlock, err
		}),
		"reader": locks(func(a *arena.Arena) (func(), func() bool, func(), error) {
			m, err := prims.OpenRWMutex(a, "x", &prims.RWMutexOptions{Policy: prims.PolicyRelease})
			return m.RLock, m.TryLock, m.Unlock, err
		}),
		"semaphore": {
			func(t *testing.T, a *arena.Arena) { require.True(t, semaphore(t, a).TryAcquire(1)) },
			func(t *testing.T, a *arena.Arena) func() bool {
				s := semaphore(t, a)
				return func() bool {
					got := s.TryAcquire(1)
					if got {
						s.Release(1)
					}
					return got
				}
			},
		},
		"queue": {
			func(t *testing.T, a *arena.Arena) {
				q := queue(t, a)
				require.True(t, q.TryPut(1))
				_, ok := q.TryLease()
				require.True(t, ok)
			},
			func(t *testing.T, a *arena.Arena) func() bool {
				q := queue(t, a)
				return func() bool { _, ok := q.TryGet(); return ok }
			},
		},
		"lease": {
			func(t *testing.T, a *arena.Arena) {
				q := queue(t, a)
				require.True(t, q.TryPut(1))
				_, ok := q.TryLease()
				require.True(t, ok)
			},
			func(t *testing.T, a *arena.Arena) func() bool {
				q := queue(t, a)
				return func() bool {
					l, ok := q.TryLease()
					if ok {
						l.Ack()
					}
					return ok
				}
			},
		},
		"waitable": {
			func(t *testing.T, a *arena.Arena) { require.True(t, waitable(t, a).TryWait(1)) },
			func(t *testing.T, a *arena.Arena) func() bool {
				x := waitable(t, a)
				return func() bool {
					got := x.TryWait(1)
					if got {
						x.Release(1)
					}
					return got
				}
			},
		},
		"event": {
			func(t *testing.T, a *arena.Arena) {
				e := event(t, a)
				go e.Wait()
				o, err := objectNamed(a, "x")
				require.NoError(t, err)
				eventually(t, "it waits", func() string { return words(a) }, func() bool { return prims.QueuedAt(a, o) == 1 })
			},
			func(t *testing.T, a *arena.Arena) func() bool {
				e := event(t, a)
				calls := 0
				return func() bool {
					if calls++; calls == 2 {
						e.Set() // while no call has found the death, this token goes to the wait of the dead process
					}
					return e.TryWait()
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := arenatest.New(t, nil)
			victim, survivor := w.JoinVictim("victim"), w.Join("survivor")
			c.hold(t, victim)
			try := c.try(t, survivor)
			require.False(t, try())
			t.Cleanup(crashpoint.Disarm)
			seen, goOn := make(chan struct{}), make(chan struct{})
			crashpoint.ArmFunc("arena.reap.seen", 1, func() { close(seen); <-goOn })
			w.Kill(victim)
			<-seen // the death watcher has not marked the death yet
			t.Cleanup(func() { close(goOn) })
			eventually(t, "the call finds the death", func() string { return words(survivor) }, try)
		})
	}
}
