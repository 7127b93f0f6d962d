//go:build linux && crashpoint

package prims_test

import (
	"context"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/prims"
)

// A Close that comes while an Upgrade gives up waits until the gate is open again, so that
// the next handle of the process finds its upgradable hold.
func TestCloseWhileAnUpgradeGivesUp(t *testing.T) {
	a := newArena(t, nil)
	open := func() *prims.RWMutex {
		m, err := prims.OpenRWMutex(a, "x", nil)
		require.NoError(t, err)
		return m
	}
	m := open()
	m.RLock()
	m.LockUpgradable()
	closed := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var next *prims.RWMutex
	crashpoint.ArmFunc("rwmutex.lock.announced", 1, cancel)
	crashpoint.ArmFunc("rwmutex.lock.leaving", 1, func() {
		go func() { closed <- m.Close() }()
		// It gets as far as it can: a Close that does not wait for the Upgrade is through.
		for tries := 0; tries < 10000 && len(closed) == 0; tries++ {
			runtime.Gosched()
		}
		if len(closed) != 0 {
			next = open()
		}
	})
	defer crashpoint.Disarm()
	err := m.UpgradeContext(ctx)
	require.Error(t, err)
	require.NotErrorIs(t, err, shmsync.ErrCorrupt)
	require.NoError(t, <-closed)
	require.Equal(t, 1, crashpoint.HitCount("rwmutex.lock.leaving"))
	if next == nil {
		next = open()
	}
	next.UnlockUpgradable()
	next.RUnlock()
	require.True(t, next.TryLock())
	next.Unlock()
	sound(t, a)
}

// waitlessKinds are the kinds of handles whose waits queue no wait node in a monitor.
var waitlessKinds = map[string]bool{
	"mutex": true, "checked mutex": true, "cohort mutex": true, "spin lock": true, "signal waker": true,
	"rwmutex, written": true, "rwmutex, read": true, "reader/writer spin lock, written": true, "reader/writer spin lock, read": true,
	"futex": true, "futex, with others": true,
}

// A Close that comes while a call queues its wait returns when the call has left: until then
// the call needs the words.
func TestCloseWaitsForACallThatQueuesItsWait(t *testing.T) {
	for kind, open := range handleKinds {
		if waitlessKinds[kind] {
			continue
		}
		t.Run(kind, func(t *testing.T) {
			a := newArena(t, nil)
			holder, err := open(a)
			require.NoError(t, err)
			mine, err := open(a)
			require.NoError(t, err)
			holder.Block()
			closed := make(chan error, 1)
			early := false
			before := crashpoint.HitCount("monitor.queue.linked")
			crashpoint.ArmFunc("monitor.queue.linked", 1, func() {
				go func() { closed <- mine.Close() }()
				// It gets as far as it can: a Close that does not wait for the call is through.
				for tries := 0; tries < 2000 && len(closed) == 0; tries++ {
					runtime.Gosched()
				}
				early = len(closed) != 0
			})
			defer crashpoint.Disarm()
			require.ErrorIs(t, mine.Wait(t.Context()), shmsync.ErrClosed)
			require.NoError(t, <-closed)
			require.False(t, early, "Close has returned while the call used the words")
			require.Equal(t, before+1, crashpoint.HitCount("monitor.queue.linked"))
			holder.Free()
			sound(t, a)
		})
	}
}
