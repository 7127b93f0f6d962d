//go:build linux

package prims_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
)

func newBarrier(t testing.TB, a *arena.Arena, name string, parties int64, completion func()) *prims.Barrier {
	t.Helper()
	b, err := prims.OpenBarrier(a, name, parties, &prims.BarrierOptions{Completion: completion})
	require.NoError(t, err)
	return b
}

// TestBarrierInOneProcess checks phases of goroutines of one process. In the last phases, one goroutine after the other
// drops out. In each phase, the last goroutine that arrives runs the completion once, before any wait ends.
func TestBarrierInOneProcess(t *testing.T) {
	a := newArena(t, nil)
	var b *prims.Barrier
	inside, completions := 0, 0
	b = newBarrier(t, a, "b", 8, func() {
		completions++
		if completions < 50 && (inside != 8 || b.State().Expected != 8) {
			t.Errorf("%d of %d have arrived", inside, b.State().Expected)
		}
		inside = 0
	})
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i := range 8 {
		wg.Go(func() {
			phases := 50 + i
			for p := range phases {
				mu.Lock()
				inside++
				mu.Unlock()
				if p == phases-1 {
					b.ArriveAndDrop()
					return
				}
				b.ArriveAndWait()
			}
		})
	}
	wg.Wait()
	require.Equal(t, 57, completions)
	require.Equal(t, prims.BarrierState{Phase: 57}, b.State())
}

func TestBarrierBetweenProcesses(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 4, nil)
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	for phase := range uint64(3) {
		require.Equal(t, phase, x.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2}).N)
		waiting := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.wait", Object: "plain", Token: phase})
		meeting := gateBlocked(t, a, y, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
		require.Equal(t, int64(1), b.State().Pending)
		stillQueued(t, a, b.Offset(), 2)
		require.EqualValues(t, phase, b.Arrive(1))
		gateSmooth(t, x.wait(t, waiting))
		gateSmooth(t, y.wait(t, meeting))
		b.Wait(prims.BarrierPhase(phase))
		b.Wait(0)
	}
	require.Equal(t, prims.BarrierState{Phase: 3, Pending: 4, Expected: 4, Own: 1}, b.State())
}

// TestBarrierArriveAndDrop checks that phases after an ArriveAndDrop expect one party less.
func TestBarrierArriveAndDrop(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 3, nil)
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	id := gateBlocked(t, a, y, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
	x.must(t, order{Op: "barrier.drop", Object: "plain"})
	stillQueued(t, a, b.Offset(), 1)
	st := b.State()
	require.Equal(t, []int64{1, 2}, []int64{st.Pending, st.Expected})
	b.ArriveAndWait()
	gateSmooth(t, y.wait(t, id))
	x.proc.Kill(t) // x is no party, so its death breaks no phase
	alone(t, a, 2)
	for range 3 {
		id := gateBlocked(t, a, y, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
		b.ArriveAndWait()
		gateSmooth(t, y.wait(t, id))
	}
	b.ArriveAndDrop()
	y.must(t, order{Op: "barrier.drop", Object: "plain"})
	require.Equal(t, prims.BarrierState{Phase: 5}, b.State())
	require.Panics(t, func() { b.Arrive(1) })
}

// TestBarrierCompletionElsewhere checks that the completion runs in the process that arrives last. Until it returns,
// the other parties wait, and a process that already arrives for the next phase waits, too.
func TestBarrierCompletionElsewhere(t *testing.T) {
	a := newArena(t, nil)
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	b := newBarrier(t, a, "b", 2, func() { t.Error("the completion runs in a process that did not arrive last") })
	x, y := gateActor(t, a, "x"), gateActor(t, a, "y")
	p := b.Arrive(1)
	waiting := make(chan error, 2)
	go func() { waiting <- b.WaitContext(context.Background(), p) }()
	x.must(t, order{Op: "block"})
	id := x.start(order{Op: "barrier.meet", Object: "b"})
	eventually(t, "it completes", b.String, func() bool { return b.State().Completer != nil })
	require.Equal(t, "x", b.State().Completer.Label)
	early := gateBlocked(t, a, y, b.Offset(), order{Op: "barrier.arrive", Object: "b", N: 1})
	gone := y.do(t, order{Op: "barrier.meetctx", Object: "b", Limit: time.Millisecond})
	require.Contains(t, gone.Is, "ctx-deadline")
	require.Empty(t, waiting)
	require.EqualValues(t, 0, tr.Count[3])
	x.must(t, order{Op: "unblock"})
	gateSmooth(t, x.wait(t, id))
	require.NoError(t, <-waiting)
	require.EqualValues(t, 1, y.wait(t, early).N)
	require.EqualValues(t, 1, tr.Count[3])
	require.Equal(t, int64(1), b.State().Pending)
}

// TestBarrierPhases checks two processes that go through many phases. No phase ends before both processes have
// arrived.
func TestBarrierPhases(t *testing.T) {
	phases := proctest.Rounds(5_000, 100_000)
	a := newArena(t, nil)
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	b := newBarrier(t, a, "b", 2, func() { tr.Count[3]++ })
	x := gateActor(t, a, "x")
	id := x.start(order{Op: "barrier.walk", Object: "b", N: phases / 2, Token: 1})
	require.NoError(t, walk(b, tr, 0, phases/2))
	gateSmooth(t, x.wait(t, id))
	require.EqualValues(t, phases, b.State().Phase)
	require.EqualValues(t, phases, tr.Count[3])
}

func TestBarrierMisuse(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 2, nil)
	require.PanicsWithValue(t, "shmsync: Arrive of 3 at barrier plain: more than are expected", func() { b.Arrive(3) })
	require.PanicsWithValue(t, "shmsync: Arrive of 0 at barrier plain", func() { b.Arrive(0) })
	require.PanicsWithValue(t, "shmsync: Wait for phase 1 of barrier plain, which is in phase 0", func() { b.Wait(1) })
	require.PanicsWithValue(t, "shmsync: Register of 0 of barrier plain", func() { b.Register(0) })
	require.PanicsWithValue(t, "shmsync: ResetTo of barrier plain to 0 parties", func() { b.ResetTo(0) })
	require.False(t, b.ResetTo(5), "it is not broken")
	require.False(t, b.Reset(), "it is not broken")
	require.Equal(t, prims.BarrierState{Pending: 2, Expected: 2}, b.State())
	x := gateActor(t, a, "x")
	require.Contains(t, x.do(t, order{Op: "barrier.arrive", Object: "plain", N: 3}).Panic, "more than are expected")
	x.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
}

// TestBarrierDeath checks which phase the death of a party breaks. A party that dies before it arrives breaks the
// present phase if it has registered or was a party in the phase before. A party that dies after its arrival breaks
// the next phase.
func TestBarrierDeath(t *testing.T) {
	for _, how := range []string{"before", "joined", "after", "some of its parties"} {
		t.Run(how, func(t *testing.T) {
			a := newArena(t, nil)
			b := newBarrier(t, a, "plain", 4, nil)
			victim, x := gateActor(t, a, "victim"), gateActor(t, a, "x")
			phase := uint64(0)
			if how == "before" || how == "some of its parties" { // the processes go through phase 0
				victim.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
				b.Arrive(1)
				x.must(t, order{Op: "barrier.meet", Object: "plain"})
				phase = 1
			}
			if how == "joined" {
				victim.must(t, order{Op: "barrier.join", Object: "plain", N: 2})
			}
			id := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
			switch how {
			case "after":
				victim.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
			case "some of its parties":
				victim.must(t, order{Op: "barrier.arrive", Object: "plain", N: 1})
			}
			victim.proc.Kill(t)
			if how == "after" {
				alone(t, a, 2)
				require.NoError(t, b.State().Err)
				b.ArriveAndWait() // ends the phase, because the victim had made its arrivals
				gateSmooth(t, x.wait(t, id))
				phase++
			} else {
				gateRefused(t, x.wait(t, id), "victim")
			}
			// Every wait for the phase fails from now on, and arrivals do not count.
			st := b.State()
			require.ErrorIs(t, st.Err, shmsync.ErrOwnerDead)
			require.Equal(t, "victim", st.Who.Label)
			require.EqualValues(t, phase, st.Phase)
			require.ErrorIs(t, b.ArriveAndWaitContext(t.Context()), shmsync.ErrOwnerDead)
			require.EqualValues(t, phase, b.Arrive(1))
			require.Equal(t, st.Pending, b.State().Pending)
			gateRefused(t, x.do(t, order{Op: "barrier.meet", Object: "plain"}), "victim")
			gateRefused(t, x.do(t, order{Op: "barrier.waitctx", Object: "plain", Token: phase}), "victim")
			require.NoError(t, func() error {
				if phase == 0 {
					return nil
				}
				return b.WaitContext(t.Context(), 0) // phase 0 was over
			}())
			// One process begins a new phase, with fewer parties. A second Reset, by process x, has no effect.
			require.True(t, b.ResetTo(2))
			require.False(t, x.must(t, order{Op: "barrier.reset", Object: "plain", N: 7}).OK)
			st = b.State()
			require.Equal(t, []int64{2, 2}, []int64{st.Pending, st.Expected})
			require.NoError(t, st.Err)
			gateRefused(t, x.do(t, order{Op: "barrier.waitctx", Object: "plain", Token: phase}), "victim") // as before the Reset
			for range 3 {
				id := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
				b.ArriveAndWait()
				gateSmooth(t, x.wait(t, id))
			}
			sound(t, a)
		})
	}
}

// TestBarrierDeathOfStrangers checks that the death of a process breaks no phase if the process has deregistered, has
// missed a whole phase, or has never arrived.
func TestBarrierDeathOfStrangers(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 2, nil)
	left, idle, never := gateActor(t, a, "left"), gateActor(t, a, "idle"), gateActor(t, a, "never")
	idle.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
	left.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
	left.must(t, order{Op: "barrier.leave", Object: "plain"})
	b.Arrive(2)
	p := b.Arrive(1)
	end := make(chan error, 1)
	go func() { end <- b.WaitContext(context.Background(), p) }()
	for _, x := range []*actor{left, idle, never} {
		x.proc.Kill(t)
	}
	alone(t, a, 1)
	require.NoError(t, b.State().Err)
	require.Empty(t, end)
	b.Arrive(1)
	require.NoError(t, <-end)
	require.Equal(t, prims.BarrierPhase(4), b.State().Phase)
}

// TestBarrierFewerParties checks that a process has only as many parties as it made arrivals in the last phase. In
// phase 0, process x arrives twice. In phase 1, it arrives once, because this process arrives in place of its second
// party. So the death of x in phase 2 loses only one party.
func TestBarrierFewerParties(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 3, nil)
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "barrier.arrive", Object: "plain", N: 2})
	b.Arrive(1)
	x.must(t, order{Op: "barrier.arrive", Object: "plain", N: 1})
	b.Arrive(2)
	x.must(t, order{Op: "barrier.arrive", Object: "plain", N: 1}) // x now has only one party, and it has arrived
	x.proc.Kill(t)
	alone(t, a, 1)
	require.NoError(t, b.State().Err)
	require.Equal(t, int64(2), b.State().Own)
	b.Wait(b.Arrive(2))
	require.ErrorIs(t, b.State().Err, shmsync.ErrOwnerDead)
	// Parties that had not arrived in a broken phase are parties of the next phase.
	require.True(t, b.ResetTo(2))
	require.Equal(t, int64(2), b.State().Own)
}

// TestBarrierCompleterDies checks that a phase is broken if the party that arrived last is killed while it runs the
// completion, and that the completion of this phase does not run again.
func TestBarrierCompleterDies(t *testing.T) {
	a := newArena(t, nil)
	tr, err := arena.Value[gateTraces](a, "traces")
	require.NoError(t, err)
	b := newBarrier(t, a, "b", 3, func() { tr.Count[3] += 100 })
	victim, x := gateActor(t, a, "victim"), gateActor(t, a, "x")
	one := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "b"})
	b.Arrive(1)
	victim.must(t, order{Op: "block"})
	victim.start(order{Op: "barrier.meet", Object: "b"})
	eventually(t, "it completes", b.String, func() bool { return b.State().Completer != nil })
	early := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "b"})
	victim.proc.Kill(t)
	gateRefused(t, x.wait(t, one), "victim")
	gateRefused(t, x.wait(t, early), "victim")
	require.ErrorIs(t, b.WaitContext(t.Context(), 0), shmsync.ErrOwnerDead)
	require.True(t, b.ResetTo(2))
	one = gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "b"})
	b.ArriveAndWait()
	gateSmooth(t, x.wait(t, one))
	require.EqualValues(t, 100, tr.Count[3])
}

// TestBarrierCompletionPanics checks that a completion that panics breaks the phase, although its process lives on.
func TestBarrierCompletionPanics(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "panics", 2, nil)
	x := gateActor(t, a, "x")
	end := make(chan error, 1)
	p := b.Arrive(1)
	go func() { end <- b.WaitContext(context.Background(), p) }()
	require.Equal(t, "as told", x.do(t, order{Op: "barrier.meet", Object: "panics"}).Panic)
	err := <-end
	require.ErrorIs(t, err, shmsync.ErrOwnerDead)
	require.ErrorContains(t, err, "its completion panicked")
	require.Equal(t, "x", identityOf(err).Label)
	require.True(t, x.must(t, order{Op: "barrier.reset", Object: "panics"}).OK)
	id := gateBlocked(t, a, x, b.Offset(), order{Op: "barrier.meet", Object: "panics"})
	b.ArriveAndWait()
	gateSmooth(t, x.wait(t, id))
}

// TestBarrierStoppedParty checks that a stopped party counts as alive: no other party goes on without it, and no wait
// reports a death.
func TestBarrierStoppedParty(t *testing.T) {
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 2, nil)
	x := gateActor(t, a, "x")
	x.must(t, order{Op: "barrier.join", Object: "plain", N: 1})
	x.proc.Stop(t)
	p := b.Arrive(1)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	require.Equal(t, context.DeadlineExceeded, b.WaitContext(ctx, p))
	x.proc.Cont(t)
	x.must(t, order{Op: "barrier.meet", Object: "plain"})
	require.NoError(t, b.WaitContext(ctx, p)) // the phase has ended
}

// TestBarrierCancelRace checks waits whose context ends at about the same time as the phase.
func TestBarrierCancelRace(t *testing.T) {
	rounds := proctest.Rounds(2_000, 20_000)
	a := newArena(t, nil)
	b := newBarrier(t, a, "plain", 2, nil)
	for i := range rounds {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(i%60)*time.Microsecond)
		done := make(chan error, 1)
		go func() { done <- b.ArriveAndWaitContext(ctx) }()
		b.ArriveAndWait() // goes on even if the other call is canceled, because its arrival counts
		if err := <-done; err != nil {
			require.Equal(t, context.DeadlineExceeded, err)
		}
		cancel()
		require.EqualValues(t, i+1, b.State().Phase)
	}
	require.Zero(t, queued(a, b.Offset()))
}

// TestBarrierSlotReused checks that a process that gets the slot of a dead party is not a party.
func TestBarrierSlotReused(t *testing.T) {
	a := newArena(t, &arena.Options{Size: 4 << 20, MaxParticipants: 2})
	b := newBarrier(t, a, "plain", 2, nil)
	for range 5 {
		x := gateActor(t, a, "victim")
		x.must(t, order{Op: "barrier.join", Object: "plain", N: 1})
		x.proc.Kill(t)
		alone(t, a, 1)
		require.ErrorIs(t, b.ArriveAndWaitContext(t.Context()), shmsync.ErrOwnerDead)
		require.True(t, b.ResetTo(2))
		y := gateActor(t, a, "next")
		id := gateBlocked(t, a, y, b.Offset(), order{Op: "barrier.meet", Object: "plain"})
		b.ArriveAndWait()
		gateSmooth(t, y.wait(t, id))
		y.must(t, order{Op: "barrier.leave", Object: "plain"})
		y.proc.Kill(t)
		alone(t, a, 1)
		require.NoError(t, b.State().Err)
	}
}
