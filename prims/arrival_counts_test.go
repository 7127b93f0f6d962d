//go:build linux

package prims_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/prims"
)

// requireOp checks that err is an *Error with this Op and this cause.
func requireOp(t *testing.T, err error, op string, cause error) {
	t.Helper()
	require.ErrorIs(t, err, cause)
	var e *shmsync.Error
	require.ErrorAs(t, err, &e)
	require.Equal(t, op, e.Op)
}

// TestLatchArrivalSaysWhetherItCounted checks that the Op of an error of ArriveAndWaitContext says whether the call
// has counted the Latch down.
func TestLatchArrivalSaysWhetherItCounted(t *testing.T) {
	a := newArena(t, nil)
	l, other := newLatch(t, a, "l", 3), newLatch(t, a, "l", 3)
	errs := make(chan error)
	go func() { errs <- l.ArriveAndWaitContext(context.Background(), 1) }()
	eventually(t, "it waits", func() string { return words(a) }, func() bool { return other.State().Waiting })
	require.NoError(t, l.Close())
	requireOp(t, <-errs, "latch.wait", shmsync.ErrClosed)
	require.EqualValues(t, 2, other.State().Count)

	requireOp(t, l.ArriveAndWaitContext(context.Background(), 1), "latch.count_down", shmsync.ErrClosed)
	require.EqualValues(t, 2, other.State().Count)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, other.ArriveAndWaitContext(ctx, 1))
	require.EqualValues(t, 1, other.State().Count)
}

// TestBarrierArrivalSaysWhetherItCounted checks that the Op of an error of ArriveAndWaitContext says whether the
// arrival counts. The arrival does not count if the handle is closed while another call runs the completion, and
// ArriveAndWaitContext waits for that.
func TestBarrierArrivalSaysWhetherItCounted(t *testing.T) {
	a := newArena(t, nil)
	completing, goOn := make(chan bool), make(chan bool)
	b := newBarrier(t, a, "b", 2, func() { completing <- true; <-goOn })
	other, third := newBarrier(t, a, "b", 2, nil), newBarrier(t, a, "b", 2, nil)
	errs := make(chan error)
	go func() { errs <- third.ArriveAndWaitContext(context.Background()) }()
	eventually(t, "it waits", func() string { return words(a) }, func() bool { return b.State().Waiting })
	require.NoError(t, third.Close())
	requireOp(t, <-errs, "barrier.wait", shmsync.ErrClosed)
	require.EqualValues(t, 1, b.State().Pending)

	requireOp(t, third.ArriveAndWaitContext(context.Background()), "barrier.arrive", shmsync.ErrClosed)
	require.EqualValues(t, 1, b.State().Pending)

	go func() { errs <- b.ArriveAndWaitContext(context.Background()) }()
	<-completing
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Equal(t, context.Canceled, other.ArriveAndWaitContext(ctx))
	waits := make(chan error)
	go func() { waits <- other.ArriveAndWaitContext(context.Background()) }()
	eventually(t, "it waits", func() string { return words(a) }, func() bool { return queued(a, b.Offset()) == 1 })
	require.NoError(t, other.Close())
	requireOp(t, <-waits, "barrier.arrive", shmsync.ErrClosed)
	goOn <- true
	require.NoError(t, <-errs)
	require.EqualValues(t, 2, b.State().Pending)
	require.Equal(t, prims.BarrierPhase(1), b.State().Phase)
}
