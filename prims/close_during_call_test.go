//go:build linux && crashpoint

package prims_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// TestCloseDuringTheCall checks that a call finishes its work, without a panic or an error, while its handle is
// closed. Each call ends the wait of another goroutine, and that goroutine closes the handle before the call returns.
func TestCloseDuringTheCall(t *testing.T) {
	for name, run := range map[string]func(t *testing.T, a *arena.Arena){
		"latch.arriveandwait": func(t *testing.T, a *arena.Arena) {
			l, err := prims.OpenLatch(a, "x", 1, nil)
			require.NoError(t, err)
			closed := make(chan error, 1)
			crashpoint.ArmFunc("counter.zero.before_wake", 1, func() {
				require.True(t, l.TryWait())
				require.Equal(t, 3, l.Calls(), "the calls of the other waiter and of this one, and the CountDown within this one")
				go func() { closed <- l.Close() }()
				eventually(t, "the handle is being closed", l.String, l.Closing)
			})
			waits := make(chan error, 1)
			go func() { waits <- l.WaitContext(t.Context()) }()
			waiting(t, a, "x", 1)
			require.NoError(t, l.ArriveAndWaitContext(t.Context(), 1))
			require.NoError(t, <-waits)
			require.NoError(t, <-closed)
		},
		"rwmutex.runlock": func(t *testing.T, a *arena.Arena) {
			m, err := prims.OpenRWMutex(a, "x", nil)
			require.NoError(t, err)
			m.RLock()
			closed := make(chan error, 1)
			go func() {
				m.Lock() // waits until RUnlock below
				m.Unlock()
				closed <- m.Close()
			}()
			waiting(t, a, "x", 1)
			crashpoint.ArmFunc("rwmutex.runlock.left", 1, func() { require.NoError(t, <-closed) })
			m.RUnlock()
			require.Panics(t, m.RUnlock, "the handle is closed")
			require.Panics(t, m.RUnlock)
		},
		"rwmutex.tryrlock": func(t *testing.T, a *arena.Arena) {
			m, err := prims.OpenRWMutex(a, "x", nil)
			require.NoError(t, err)
			closed := make(chan error, 1)
			crashpoint.ArmFunc("rwmutex.rlock.tried", 1, func() {
				go func() {
					m.Lock()
					m.Unlock()
					closed <- m.Close()
				}()
				waiting(t, a, "x", 1)
				crashpoint.Disarm()
				crashpoint.ArmFunc("rwmutex.runlock.left", 1, func() { require.NoError(t, <-closed) })
			})
			require.False(t, m.TryRLock())
		},
		"rwmutex.unlock": func(t *testing.T, a *arena.Arena) {
			m, err := prims.OpenRWMutex(a, "x", nil)
			require.NoError(t, err)
			m.Lock()
			again := make(chan *prims.RWMutex, 1)
			read := make(chan error, 1)
			go func() {
				err := m.RLockContext(t.Context())
				m.RUnlock()
				read <- err
				m.Close()
				m, _ := prims.OpenRWMutex(a, "x", nil)
				again <- m
			}()
			waiting(t, a, "x", 1)
			crashpoint.ArmFunc("rwmutex.unlock.opened", 1, func() {
				require.NoError(t, <-read)
				select {
				case x := <-again: // Close has not waited for Unlock
					again <- x
				case <-after(100 * time.Millisecond):
				}
			})
			m.Unlock()
			other := <-again
			require.NotNil(t, other)
			require.Empty(t, other.Left(), "there is no upgradable hold")
			require.Panics(t, func() { other.TryUpgrade() })
		},
		"holds.unlock": func(t *testing.T, a *arena.Arena) {
			x, err := prims.OpenMultiLock(a, "x", nil)
			require.NoError(t, err)
			other, err := prims.OpenMultiLock(a, "x", nil)
			require.NoError(t, err)
			holds := x.LockAll(1, 2, 3)
			closed, first := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := x.LockContext(t.Context(), 3)
				if err == nil {
					err = x.Close()
				}
				closed <- err
			}()
			go func() {
				_, err := other.LockContext(t.Context(), 1)
				first <- err
			}()
			go func() {
				h, err := other.LockContext(t.Context(), 2) // lets the Unlock of key 2 reach the crash point
				if err == nil {
					h.Unlock()
				}
			}()
			waiting(t, a, "x", 3)
			crashpoint.ArmFunc("multilock.unlock.committed", 2, func() { // in the Unlock of key 2
				eventually(t, "the handle is being closed", x.String, x.Closing)
				require.True(t, x.Kept(), "Close would not wait until key 1 is unlocked")
			})
			holds.Unlock()
			require.NoError(t, <-first)
			require.NoError(t, <-closed)
		},
		"future.setall": func(t *testing.T, a *arena.Arena) {
			f, err := prims.OpenFuture(a, "x", nil)
			require.NoError(t, err)
			g, err := prims.OpenFuture(a, "y", nil)
			require.NoError(t, err)
			closed := make(chan error, 1)
			crashpoint.ArmFunc("future.set.decided", 1, func() {
				_, err := f.Wait()
				require.NoError(t, err)
				require.True(t, g.Kept(), "Close would not wait until it is set")
				go func() { closed <- g.Close() }()
				eventually(t, "the handle is being closed", g.String, g.Closing)
			})
			require.Equal(t, 2, prims.SetAll(0, f, g))
			require.NoError(t, <-closed)
		},
	} {
		t.Run(name, func(t *testing.T) {
			defer crashpoint.Disarm()
			run(t, newArena(t, nil))
		})
	}
}
