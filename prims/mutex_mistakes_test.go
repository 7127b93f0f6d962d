//go:build linux

package prims_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// Recover without a repair is the caller's mistake, and changes nothing.
func TestMutexRecoverWithoutRepair(t *testing.T) {
	a := newArena(t, nil)
	m, err := prims.OpenMutex(a, "ledger", nil)
	require.NoError(t, err)
	const message = "shmsync: Recover of mutex ledger without a repair"
	require.PanicsWithValue(t, message, func() { m.Recover(t.Context(), nil) })
	require.True(t, m.TryLock(), "of a healthy lock")
	m.Unlock()

	x := remoteActor(t, a, "dies")
	x.must(t, order{Op: "lock", Object: "ledger"})
	x.proc.Kill(t)
	require.ErrorIs(t, m.LockContext(t.Context()), shmsync.ErrOwnerDead)
	require.PanicsWithValue(t, message, func() { m.Recover(t.Context(), nil) })
	require.ErrorIs(t, m.State().Err, shmsync.ErrOwnerDead)
	require.NoError(t, m.Recover(t.Context(), func() error { return nil }))
	m.Lock()
	m.Unlock()
}

// A policy that there is not is no object, and no other policy.
func TestMutexPolicyMistakes(t *testing.T) {
	a := newArena(t, nil)
	open := func(p prims.Policy) func() {
		return func() { prims.OpenMutex(a, "ledger", &prims.MutexOptions{Policy: p}) }
	}
	for _, p := range []prims.Policy{prims.Release + 1, 1 << 8, 1<<32 - 1} {
		func() {
			defer func() {
				message, _ := recover().(string)
				require.True(t, strings.HasPrefix(message, `shmsync: mutex "ledger": there is no policy `), message)
			}()
			open(p)()
		}()
	}
	for range a.Objects() {
		t.Fatal("there is an object")
	}
	for _, p := range []prims.Policy{0, prims.Report} {
		require.NotPanics(t, open(p))
	}
	require.Panics(t, open(prims.Release+1), "also where the object is there")
}
