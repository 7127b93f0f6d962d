//go:build linux && crashpoint

package prims_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func init() {
	proctest.Register("semaphore/impatient", func(c *proctest.Child) {
		var p impatientParams
		c.Params(&p)
		a, err := arena.Attach(p.Arena, nil)
		if err != nil {
			c.Fatal(err)
		}
		s, err := prims.OpenSemaphore(a, "s", 0, nil)
		if err != nil {
			c.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer cancel()
		s.Acquire(ctx, p.N)
	})
}

type impatientParams struct {
	Arena string
	N     int64
}

// impatient is a process that has given up its wait for n permits, and is stopped
// before it could take it off the queue.
func impatient(t *testing.T, a *arena.Arena, n int64) *proctest.Proc {
	p := proctest.Start(t, "semaphore/impatient", proctest.Params(impatientParams{nameOf(a), n}), proctest.Env("SHMSYNC_CRASHPOINT_STOP=park.seat.given_up:1"))
	p.AwaitStop(t)
	return p
}

// Who takes a wait off that was given up is slow to give its node back. The owner
// dies meanwhile, its undertaker does it, and somebody else has the node by then.
func TestSemaphoreNodeIsGivenBackOnce(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 1, nil)
	require.True(t, s.TryAcquire(1))
	owner := impatient(t, a, 1)
	off, n := s.Head()
	require.Equal(t, arena.NodeLeft, n.State())
	dead := n.Owner()

	taker := proctest.Start(t, "semaphore", proctest.Params(nameOf(a)), proctest.Env("SHMSYNC_CRASHPOINT_STOP=arena.node.reclaimed:1"))
	taker.Await(t)
	taker.Send(semOrder{ID: 1, Verb: "release"})
	taker.AwaitStop(t)
	require.Equal(t, dead, n.Owner())
	owner.Kill(t)
	eventually(t, "buried", func() string { return words(a) }, func() bool { return n.Owner() == 0 })
	for again := arena.Offset(0); again != off; {
		var err error
		again, err = a.ClaimNode()
		require.NoError(t, err)
	}
	taker.Cont(t)
	var r semAnswer
	taker.Recv(t, &r)
	require.Empty(t, r.Panic)
	require.Equal(t, a.Self(), n.Owner(), "given back though it is in use")
	require.Equal(t, arena.NodeIdle, n.State())
}

// Who has given up and is stopped holds nobody up that waits behind it.
func TestSemaphorePassesByWhoGaveUp(t *testing.T) {
	a := newArena(t, nil)
	s := newSemaphore(t, a, "s", 2, nil)
	require.True(t, s.TryAcquire(1))
	require.False(t, s.TryAcquire(2), "and sweeps")
	p := impatient(t, a, 2)
	ctx, cancel := context.WithTimeout(context.Background(), patience())
	defer cancel()
	require.NoError(t, s.Acquire(ctx, 1))
	p.Cont(t)
	p.WaitExit(t)
}
