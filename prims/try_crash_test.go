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
	for name, c := range map[string]struct {
		hold func(t *testing.T, a *arena.Arena)
		try  func(t *testing.T, a *arena.Arena) func() bool
	}{
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
						e.Set() // this token goes to the wait of the dead process until a call finds the death
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
