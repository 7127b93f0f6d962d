//go:build linux

package prims_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// TestWaitGroupWaitDuringFold: a Wait reads the words while another process carries out the record
// that folds a share. The Wait does not report corruption.
func TestWaitGroupWaitDuringFold(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	x := gateActor(t, a, "x")
	g.Add(1)
	x.must(t, order{Op: "wg.add", Object: "g", N: 1})
	died, current, err := g.LostWhileFolded(2)
	require.NoError(t, err)
	require.False(t, died)
	require.False(t, current)
	require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrOwnerDead, "the fold was carried out")
}

// TestWaitGroupShareIsBounded checks that the share of a producer never exceeds the counter, although another process
// does more than 2^32 units of the producer's work. After that, the producer does work itself, and its share is exact
// again. When the producer dies, waits report its death.
func TestWaitGroupShareIsBounded(t *testing.T) {
	const most = 1<<31 - 1
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	producer := gateActor(t, a, "producer")
	g.Add(1)
	producer.must(t, order{Op: "wg.add", Object: "g", N: 1})
	g.Done()
	for _, n := range []int{most - 1, most - 1, 3} { // 2^32 units in all
		producer.must(t, order{Op: "wg.add", Object: "g", N: n})
		g.Add(-n)
	}
	require.EqualValues(t, 4, g.ShareOf(2))
	for _, n := range []int{most - 1, most - 1, 2} { // the producer itself does almost 2^32 units
		producer.must(t, order{Op: "wg.add", Object: "g", N: n})
		producer.must(t, order{Op: "wg.add", Object: "g", N: -n})
	}
	producer.must(t, order{Op: "wg.add", Object: "g", N: 2})
	require.EqualValues(t, 3, g.ShareOf(2))
	producer.proc.Kill(t)
	alone(t, a, 1)
	require.ErrorIs(t, g.WaitContext(t.Context()), shmsync.ErrOwnerDead)
}

// TestWaitGroupReapBesideABusyPeer: a reaper folds the share of a dead participant although another
// process changes the counter all the time.
func TestWaitGroupReapBesideABusyPeer(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	g.Add(1)
	busy, dead := gateActor(t, a, "busy"), gateActor(t, a, "dead")
	busy.must(t, order{Op: "wg.add", Object: "g", N: 1})
	dead.must(t, order{Op: "wg.add", Object: "g", N: 3})
	asked := map[int]int{}
	g.Reap(func(slot int) bool {
		if asked[slot]++; slot != 3 && asked[slot] < 100 {
			busy.must(t, order{Op: "wg.add", Object: "g", N: 1})
		}
		return slot == 3
	})
	require.Equal(t, map[int]int{1: 1, 2: 1, 3: 1}, asked)
	require.Zero(t, g.ShareOf(3))
	require.ErrorIs(t, g.State().Err, shmsync.ErrOwnerDead)
}

// TestWaitGroupLateReaperSparesTheLiving: a reaper finds the owner of the whole count dead and is stopped. Meanwhile a
// new participant gets the ID of the owner, and the commit word gets its old value. The reaper does not mark the new
// participant dead when it goes on.
func TestWaitGroupLateReaperSparesTheLiving(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	owner := gateActor(t, a, "owner")
	owner.must(t, order{Op: "wg.add", Object: "g", N: 3})
	g.ReapLate()
	require.NoError(t, g.State().Err)
	require.False(t, g.Reset())
	g.Add(-2)
	owner.must(t, order{Op: "wg.done", Object: "g"})
	require.NoError(t, g.WaitContext(t.Context()))
}

// TestWaitGroupPeriodComesBack: a participant died long ago, and its share is void, because the counter has another
// period now. The share must stay void when the counter gets the period of the share again, 2^32 tickets later.
func TestWaitGroupPeriodComesBack(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	old := gateActor(t, a, "old")
	living := gateActor(t, a, "living")
	old.must(t, order{Op: "wg.add", Object: "g", N: 1})
	g.Add(1)
	p := g.Period()
	g.Add(-2)
	require.Zero(t, g.State().Count)
	old.proc.Kill(t)
	alone(t, a, 2)
	g.SetTickets(1<<32 + p - 1)
	living.must(t, order{Op: "wg.add", Object: "g", N: 1})
	g.Add(1)
	require.NotEqual(t, p, g.Period())
	require.NoError(t, g.State().Err)
	ended := make(chan error, 1)
	go func() { ended <- g.WaitContext(t.Context()) }()
	living.must(t, order{Op: "wg.done", Object: "g"})
	g.Done()
	require.NoError(t, <-ended)
}

// TestHostileWaitGroupDeadNobody: if the commit word says that a participant died, but names none,
// a wait ends with ErrCorrupt.
func TestHostileWaitGroupDeadNobody(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	for _, word := range []uint64{5<<32 | 2, 5<<32 | 3, 5<<32 | 6, 5<<32 | 7} {
		g.SetCommit(word)
		ctx, cancel := context.WithTimeout(t.Context(), hostileTimeout)
		ended := make(chan error, 1)
		go func() { ended <- g.WaitContext(ctx) }()
		var err error
		select {
		case err = <-ended:
		case <-time.After(time.Minute):
			g.SetCommit(0)
			<-ended
			require.Fail(t, "the wait ignores its context", "%#x", word)
		}
		cancel()
		require.ErrorIs(t, err, shmsync.ErrCorrupt, "%#x", word)
		require.Panics(t, func() { g.Reset() })
		g.SetCommit(0)
	}
}

// TestWaitGroupClaimWhileOthersChange: Claim finds the work that is in no share, while other
// processes add and do work.
func TestWaitGroupClaimWhileOthersChange(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	b := gateActor(t, a, "b")
	x := gateActor(t, a, "x")
	b.must(t, order{Op: "wg.add", Object: "g", N: 1 << 24})
	g.Add(1)
	id := x.start(order{Op: "wg.spin", Object: "g", N: 1 << 25, Token: 1_000_000})
	done := make(chan struct{})
	go func() {
		defer close(done)
		x.wait(t, id)
	}()
	for n := 0; ; n++ {
		select {
		case <-done:
			t.Logf("%d claims", n)
			return
		default:
			require.NotPanics(t, func() { g.Claim(1) }, fmt.Sprint("claim ", n))
		}
	}
}

// TestWaitGroupClaimFailsHalfway: a Claim fails because other processes did some of the work in the
// meantime. This process keeps the units that the Claim has already taken, so that its death is reported.
func TestWaitGroupClaimFailsHalfway(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	p := gateActor(t, a, "p")
	b := gateActor(t, a, "b")
	p.must(t, order{Op: "wg.add", Object: "g", N: 4})
	b.must(t, order{Op: "wg.add", Object: "g", N: 2})
	require.False(t, g.ClaimHalfway(6, func() { b.must(t, order{Op: "wg.add", Object: "g", N: -2}) }))
	require.Zero(t, g.ShareOf(2))
	require.EqualValues(t, 4, g.State().Own)
}

// TestWaitGroupClaimAcrossZero: the counter becomes 0 during a Claim. The units that the Claim has
// already taken no longer count.
func TestWaitGroupClaimAcrossZero(t *testing.T) {
	a := newArena(t, nil)
	g := newWaitGroup(t, a, "g")
	p := gateActor(t, a, "p")
	b := gateActor(t, a, "b")
	p.must(t, order{Op: "wg.add", Object: "g", N: 4})
	b.must(t, order{Op: "wg.add", Object: "g", N: 2})
	require.False(t, g.ClaimHalfway(6, func() {
		b.must(t, order{Op: "wg.add", Object: "g", N: -6})
		g.Add(3)
		b.must(t, order{Op: "wg.add", Object: "g", N: 2})
	}))
	require.EqualValues(t, 3, g.State().Own, "the share has only what another goroutine of this process added")
}
