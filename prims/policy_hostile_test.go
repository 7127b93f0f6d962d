//go:build linux

package prims_test

import (
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("policy/holder", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, nil)
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSynchronized(a, "s", page{}, nil)
		if err != nil {
			c.Fatal(err)
		}
		l, err := prims.OpenCohortMutex(a, "cohort", nil)
		if err != nil {
			c.Fatal(err)
		}
		l.Lock()
		c.Fatal(s.Update(func(*page) error {
			c.Ready()
			select {}
		}))
	})
}

// TestHoldsOfALogThatIsNotThereAreTakenBack checks that a reaper takes the holds of a dead process back although a
// peer has stored PolicyRollback in the locks, which have no undo log. Survivors can then use the locks.
func TestHoldsOfALogThatIsNotThereAreTakenBack(t *testing.T) {
	a := newArena(t, nil)
	s, err := prims.OpenSynchronized(a, "s", page{}, nil)
	require.NoError(t, err)
	l, err := prims.OpenCohortMutex(a, "cohort", nil)
	require.NoError(t, err)
	v := proctest.Start(t, "policy/holder", proctest.Params(nameOf(a)), proctest.Dump(func() string { return words(a) }))
	v.Await(t)
	require.True(t, s.State().Held)
	s.OverwritePolicy()
	l.OverwritePolicy()
	v.Signal(t, syscall.SIGKILL)
	v.WaitSignal(t, syscall.SIGKILL)
	alone(t, a, 1)
	require.False(t, s.State().Held)
	require.False(t, l.State().Held)
	require.NoError(t, s.Update((*page).turn))
	require.ErrorIs(t, l.LockContext(t.Context()), shmsync.ErrOwnerDead)
	require.NoError(t, l.Recover(func() error { return nil }))
	l.Lock()
	l.Unlock()
	require.NoError(t, l.Close())
	require.NoError(t, s.Close())
}
