//go:build linux

package prims_test

import (
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("replace/hold", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "holder"})
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSemaphore(a, "workers", 2, nil)
		if err != nil {
			c.Fatal(err)
		}
		s.Acquire(2)
		c.Ready()
		c.Await() // until the kill
	})
}

// TestReplace: Replace replaces an object if its parameters differ from those of the call, but only when no living
// process has the object open any more.
func TestReplace(t *testing.T) {
	name := arenaName(t)
	a, err := arena.Create(name, nil)
	require.NoError(t, err)
	defer a.Close()
	p := proctest.Start(t, "replace/hold", proctest.Params(name))
	p.Await(t)
	open := func() (*prims.Semaphore, error) { return prims.OpenSemaphore(a, "workers", 3, nil) }
	_, err = arena.Replace(a, "workers", open)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, "it has 2 permits")
	p.Kill(t)
	alone(t, a, 1)
	s, err := arena.Replace(a, "workers", open)
	require.NoError(t, err)
	require.True(t, s.TryAcquire(3))
	s.Release(3)
	require.NoError(t, s.Close())
	same, err := arena.Replace(a, "workers", open)
	require.NoError(t, err)
	require.Equal(t, s.Offset(), same.Offset(), "an object that fits is left alone")
	sound(t, a)
}

// TestReplaceByRule checks that the function that opens the object decides whether Replace replaces it. The function of
// this test wants a new object if the Queue was shut down.
func TestReplaceByRule(t *testing.T) {
	a, err := arena.Create(arenaName(t), nil)
	require.NoError(t, err)
	defer a.Close()
	open := func() (*prims.Queue[int64], error) {
		q, err := prims.OpenQueue[int64](a, "queue", 8, nil)
		if err != nil || !q.State().Shutdown {
			return q, err
		}
		return nil, errors.Join(fmt.Errorf("%w: it was shut down", shmsync.ErrIncompatible), q.Close())
	}
	q, err := arena.Replace(a, "queue", open)
	require.NoError(t, err)
	require.True(t, q.TryPut(1))
	require.NoError(t, q.Close())
	q, err = arena.Replace(a, "queue", open)
	require.NoError(t, err)
	require.Equal(t, 1, q.Len())
	q.Shutdown()
	_, err = arena.Replace(a, "queue", open) // q has the object open
	require.ErrorIs(t, err, syscall.EBUSY)
	require.NoError(t, q.Close())
	q, err = arena.Replace(a, "queue", open)
	require.NoError(t, err)
	require.True(t, q.TryPut(1))

	never := fmt.Errorf("%w: never", shmsync.ErrIncompatible)
	_, err = arena.Replace(a, "no such name", func() (int, error) { return 0, never })
	require.ErrorIs(t, err, shmsync.ErrIncompatible, "it ends")
}
