//go:build linux

package prims_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/prims"
)

// twoOpenings opens a new arena twice. The test closes the first opening, a.
func twoOpenings(t *testing.T) (a, b *arena.Arena) {
	t.Helper()
	name := arenaName(t)
	a, err := arena.Open(name, nil)
	require.NoError(t, err)
	b, err = arena.Open(name, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Close()) })
	return a, b
}

// closing starts a Close of the arena in another goroutine. It returns as soon as the opening refuses new calls and
// new handles.
func closing(t *testing.T, a *arena.Arena) chan error {
	t.Helper()
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	eventually(t, "Close is at work", func() string { return words(a) }, (*arenakernel.Arena)(a).Closing)
	return closed
}

// goesAsFarAsItCan lets another goroutine run until it has sent a result, or for a long time if it
// sends none.
func goesAsFarAsItCan(result <-chan error) {
	for tries := 0; tries < 10000 && len(result) == 0; tries++ {
		runtime.Gosched()
	}
}

// TestCloseEndsTheWaitsOfAFunctionThatItWaitsFor checks a Close of the arena that waits for a function of an Update,
// while this function waits through another handle of the same opening. Close ends that wait, no matter whether it
// closes the handle of the Update or the other handle first.
func TestCloseEndsTheWaitsOfAFunctionThatItWaitsFor(t *testing.T) {
	for kind, open := range handleKinds {
		t.Run(kind, func(t *testing.T) {
			a, b := twoOpenings(t)
			blocks, err := open(b)
			require.NoError(t, err)
			blocks.Block()
			// Close closes the handles in a random order. There are so many pairs that both orders are likely: the
			// handle of the Update first, and the other handle of the pair first.
			const pairs = 8
			ends := make(chan error, pairs)
			for i := range pairs {
				s, err := prims.OpenSynchronized(a, fmt.Sprint("s", i), 0, nil)
				require.NoError(t, err)
				waits, err := open(a)
				require.NoError(t, err)
				go func() {
					ends <- s.Update(func(*int) error { return waits.Wait(context.Background()) })
				}()
			}
			waiting(t, a, "x", pairs)
			closed := closing(t, a)
			require.NoError(t, <-closed)
			for range pairs {
				require.ErrorIs(t, <-ends, shmsync.ErrClosed)
			}
			blocks.Free()
			sound(t, b)
		})
	}
}

// TestCloseWaitsForAHandleThatIsBeingClosed checks that a Close of the arena waits for another goroutine that is
// closing a handle. That goroutine itself waits for the function of an Update, which uses the arena until it returns.
func TestCloseWaitsForAHandleThatIsBeingClosed(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSynchronized(a, "s", 0, nil)
	require.NoError(t, err)
	running, goOn := make(chan struct{}), make(chan struct{})
	updated, closesHandle := make(chan error, 1), make(chan error, 1)
	go func() {
		updated <- s.Update(func(v *int) error {
			close(running)
			<-goOn
			*v = 1
			return nil
		})
	}()
	<-running
	go func() { closesHandle <- s.Close() }()
	eventually(t, "the handle is being closed", func() string { return words(a) }, s.Closing)
	closed := closing(t, a)
	goesAsFarAsItCan(closed)
	require.Empty(t, closed, "Close has returned while an Update used the arena")
	close(goOn)
	require.NoError(t, <-updated)
	require.NoError(t, <-closesHandle)
	require.NoError(t, <-closed)
}

// calledWhileClosing has calls that end the wait of another opening, and do not wait themselves.
var calledWhileClosing = map[string]func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error){
	"event": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenEvent(a, "x", nil)
		require.NoError(t, err)
		y, err := prims.OpenEvent(b, "x", nil)
		require.NoError(t, err)
		return x.Set, func() error { return y.WaitContext(context.Background()) }
	},
	"future": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenFuture(a, "x", nil)
		require.NoError(t, err)
		y, err := prims.OpenFuture(b, "x", nil)
		require.NoError(t, err)
		return func() { x.Set(0) }, func() error { _, err := y.Wait(); return err }
	},
	"latch": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenLatch(a, "x", 1, nil)
		require.NoError(t, err)
		y, err := prims.OpenLatch(b, "x", 1, nil)
		require.NoError(t, err)
		return func() { x.CountDown(1) }, func() error { return y.WaitContext(context.Background()) }
	},
	"waitgroup": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenWaitGroup(a, "x", nil)
		require.NoError(t, err)
		y, err := prims.OpenWaitGroup(b, "x", nil)
		require.NoError(t, err)
		x.Add(1)
		return x.Done, func() error { return y.WaitContext(context.Background()) }
	},
	"lease": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenQueue[int](a, "x", 1, nil)
		require.NoError(t, err)
		y, err := prims.OpenQueue[int](b, "x", 1, nil)
		require.NoError(t, err)
		require.NoError(t, x.Put(1))
		l, err := x.Lease()
		require.NoError(t, err)
		return l.Ack, func() error { return y.Put(2) }
	},
	"shutdown": func(t *testing.T, a, b *arena.Arena) (call func(), waits func() error) {
		x, err := prims.OpenQueue[int](a, "x", 1, nil)
		require.NoError(t, err)
		y, err := prims.OpenQueue[int](b, "x", 1, nil)
		require.NoError(t, err)
		return x.Shutdown, func() error {
			if _, err := y.Get(); !errors.Is(err, shmsync.ErrCanceled) {
				return fmt.Errorf("not cancelled: %w", err)
			}
			return nil
		}
	},
}

// TestCallsOfAFunctionThatCloseWaitsFor checks that a function of an Update, for which Close waits, can still make
// calls that end waits of other openings. If such a call panicked, the Update would be lost.
func TestCallsOfAFunctionThatCloseWaitsFor(t *testing.T) {
	for kind, open := range calledWhileClosing {
		t.Run(kind, func(t *testing.T) {
			a, b := twoOpenings(t)
			s, err := prims.OpenSynchronized(a, "s", 0, nil)
			require.NoError(t, err)
			call, waits := open(t, a, b)
			waited := make(chan error, 1)
			go func() { waited <- waits() }()
			waiting(t, b, "x", 1)
			running, goOn, updated := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				updated <- s.Update(func(v *int) error {
					close(running)
					<-goOn
					call()
					*v = 1
					return nil
				})
			}()
			<-running
			closed := closing(t, a)
			close(goOn)
			require.NoError(t, <-updated)
			require.NoError(t, <-closed)
			require.NoError(t, <-waited)
			sound(t, b)
		})
	}
}

// TestHandlesOfAFunctionThatCloseWaitsFor checks that a function of an Update, for which Close waits, gets an error
// when it opens a handle, because nobody would close that handle. The function can still unlock a lock that it has
// locked before.
func TestHandlesOfAFunctionThatCloseWaitsFor(t *testing.T) {
	for kind, open := range handleKinds {
		t.Run(kind, func(t *testing.T) {
			a, b := twoOpenings(t)
			s, err := prims.OpenSynchronized(a, "s", 0, nil)
			require.NoError(t, err)
			m, err := prims.OpenMutex(a, "m", nil)
			require.NoError(t, err)
			running, goOn, updated := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				updated <- s.Update(func(*int) error {
					m.Lock()
					defer m.Unlock()
					close(running)
					<-goOn
					_, err := open(a)
					return err
				})
			}()
			<-running
			closed := closing(t, a)
			close(goOn)
			require.ErrorIs(t, <-updated, shmsync.ErrClosed)
			require.NoError(t, <-closed)
			m, err = prims.OpenMutex(b, "m", nil)
			require.NoError(t, err)
			require.True(t, m.TryLock(), "the function has unlocked it: %v", m)
			sound(t, b)
		})
	}
}

// TestClosedCondSaysWhetherItsLockIsHeld checks the error of a wait for a Cond that a Close ends. The Op of the error
// says whether the caller holds the lock of the Cond. After a Close of the Cond, the caller holds the lock. After a
// Close of the arena, the caller does not hold the lock if another opening has it.
func TestClosedCondSaysWhetherItsLockIsHeld(t *testing.T) {
	for _, taken := range []bool{false, true} {
		t.Run(fmt.Sprint("taken ", taken), func(t *testing.T) {
			a, b := twoOpenings(t)
			m, err := prims.OpenMutex(a, "m", nil)
			require.NoError(t, err)
			c, err := prims.OpenCond(a, "x", m, nil)
			require.NoError(t, err)
			other, err := prims.OpenMutex(b, "m", nil)
			require.NoError(t, err)
			ended := make(chan error, 1)
			go func() {
				m.Lock()
				ended <- c.WaitContext(context.Background())
			}()
			waiting(t, b, "x", 1)
			op := "cond.wait"
			if taken {
				other.Lock()
				op = "mutex.lock"
				require.NoError(t, a.Close())
			} else {
				require.NoError(t, c.Close())
			}
			var e *shmsync.Error
			err = <-ended
			require.ErrorAs(t, err, &e)
			require.ErrorIs(t, err, shmsync.ErrClosed)
			require.Equal(t, op, e.Op)
			if !taken {
				m.Unlock()
				require.NoError(t, a.Close())
			} else {
				other.Unlock()
			}
			sound(t, b)
		})
	}
}
