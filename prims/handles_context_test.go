//go:build linux

package prims_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// TestContextFormsBesideAClose: while a handle is being closed, a call with a context returns an error, and does not
// panic.
func TestContextFormsBesideAClose(t *testing.T) {
	type form struct {
		call  func(context.Context) error
		close func() error
	}
	a := newArena(t, nil)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	holder, err := prims.OpenRWSpinLock(a, "l", nil)
	require.NoError(t, err)
	holder.LockUpgradable()
	runner := newOnce(t, a, "o")
	running, finish := make(chan struct{}), make(chan struct{})
	var ran sync.WaitGroup
	ran.Go(func() {
		runner.Do(func() {
			close(running)
			<-finish
		})
	})
	<-running
	defer func() {
		close(finish)
		ran.Wait()
	}()
	newWaker(t, a, nil).Release(1 << 30)
	for name, open := range map[string]func(t *testing.T) form{
		"once": func(t *testing.T) form {
			o := newOnce(t, a, "o")
			return form{func(ctx context.Context) error { return o.DoContext(ctx, func() {}) }, o.Close}
		},
		"signal waker": func(t *testing.T) form {
			w, err := prims.OpenSignalWaker(a, "w", nil)
			require.NoError(t, err)
			return form{w.AcquireContext, w.Close}
		},
		"rwspinlock": func(t *testing.T) form {
			l, err := prims.OpenRWSpinLock(a, "l", nil)
			require.NoError(t, err)
			return form{l.LockUpgradableContext, l.Close}
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range proctest.Rounds(300, 5_000) {
				x, begun, ended := open(t), make(chan struct{}), make(chan any, 1)
				var closed atomic.Bool
				go func() {
					defer func() { ended <- recover() }()
					x.call(over)
					close(begun)
					for !closed.Load() {
						x.call(over)
					}
				}()
				<-begun
				require.NoError(t, x.close())
				closed.Store(true)
				require.Nil(t, <-ended)
				require.ErrorIs(t, x.call(over), shmsync.ErrClosed)
			}
		})
	}
}
