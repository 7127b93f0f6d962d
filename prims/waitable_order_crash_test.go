//go:build linux && crashpoint

package prims_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/crashpoint"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

// openOrdered opens a Waitable in which each wait is queued, in the order of the values, and ends only by Stop.
func openOrdered(a *arena.Arena) (*prims.Waitable[int32, int32], error) {
	return prims.OpenWaitable(a, "ordered", 0, prims.Rules[int32, int32]{
		Claim:  func(*int32, int32) bool { return false },
		Before: func(x, y int32) bool { return x < y },
	}, &prims.WaitableOptions{Spin: -1})
}

// waitMoves is an order to a helper process: give up the wait that the preceding order has begun, and begin a wait
// for the value To.
type waitMoves struct{ To int32 }

func init() {
	proctest.Register("waitable/ordered", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		a, err := arena.Attach(name, &arena.Options{Label: "ordered"})
		if err != nil {
			c.Fatal(err)
		}
		x, err := openOrdered(a)
		if err != nil {
			c.Fatal(err)
		}
		c.Ready()
		giveUp := func() {}
		for {
			var o waitMoves
			c.Recv(&o)
			giveUp()
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan struct{})
			giveUp = func() {
				cancel()
				<-ended
			}
			go func() {
				defer close(ended)
				x.WaitContext(ctx, o.To)
			}()
		}
	})
}

// TestWaitableReapMeetsAWaitTwice: a reap walks along the queue. It remembers some of the nodes that it passes, so that
// its walk ends if a peer has made the queue a circle. The owner of a remembered node gives its wait up, and uses the node
// for its next wait, which is queued further on. The reap still visits the waits behind the node.
func TestWaitableReapMeetsAWaitTwice(t *testing.T) {
	a := newArena(t, nil)
	x, err := openOrdered(a)
	require.NoError(t, err)
	dump := func() string { return words(a) }
	start := func() *proctest.Proc {
		p := proctest.Start(t, "waitable/ordered", proctest.Params(nameOf(a)), proctest.Dump(dump))
		p.Await(t)
		return p
	}
	dead := start()
	id := idOf(a, "ordered")
	moves := start()
	n := 0
	queued := func() {
		n++
		eventually(t, "queued", dump, func() bool { return x.Queued() == n })
	}
	var wg sync.WaitGroup
	wait := func(e int32) {
		wg.Go(func() { x.Wait(e) })
		queued()
	}
	const remembered = 64 // the index of the first node that the reap remembers
	for e := range int32(remembered) {
		wait(e)
	}
	moves.Send(waitMoves{remembered})
	queued()
	wait(remembered + 1)
	wait(remembered + 2)
	dead.Send(waitMoves{remembered + 4})
	queued()
	// The reap passes the crash point twice at each node. The function below runs when the reap is about to read the
	// node in front of the node of the dead process.
	crashpoint.ArmFunc("record.reap.visited", 2*(remembered+3)-1, func() {
		moves.Send(waitMoves{remembered + 3})
		eventually(t, "moved", dump, func() bool { return x.QueuedBehind(remembered+2) == 2 })
	})
	defer crashpoint.Disarm()
	for x.RemoveDead(id) {
	}
	require.Equal(t, n-1, x.Queued())
	dead.Kill(t)
	x.Stop()
	wg.Wait()
}
