//go:build linux

package prims_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/race"
	"github.com/shmsync/shmsync/prims"
)

// TestFutureZeroedUnderWaiters: a peer makes all words of a Future 0 while goroutines wait. The
// waits must not take 0 for a result.
func TestFutureZeroedUnderWaiters(t *testing.T) {
	for _, rounds := range []int{0, 1, 31, 32, 40} {
		a := newArena(t, nil)
		f, err := prims.OpenFuture(a, "f", nil)
		require.NoError(t, err)
		for range rounds {
			require.True(t, f.Set(9))
			require.True(t, f.Reset())
		}
		x := localHand(a)
		waits := x.blocked(t, task{Op: "wait", Name: "f"})
		sub := x.blocked(t, task{Op: "subscribe", Name: "f"})
		all := x.blocked(t, task{Op: "all", Name: "f", Names: []string{"f"}})
		f.Overwrite(0)
		if rounds == 0 {
			require.True(t, f.Set(5), "an unset Future is as it was")
			require.EqualValues(t, 5, x.wait(t, waits).N)
			require.EqualValues(t, 5, x.wait(t, sub).N)
			require.Empty(t, x.wait(t, all).Err)
			continue
		}
		for _, id := range []int{waits, sub, all} {
			require.Equal(t, []string{"corrupt"}, x.wait(t, id).Is, "after %d rounds", rounds)
		}
		require.NoError(t, f.Close())
	}
}

// TestFutureAbandonedByTheLiving: a peer has overwritten the word of a Future, so that it names a living producer as
// dead. Reset panics with ErrCorrupt, and does not wait for the end of the producer.
func TestFutureAbandonedByTheLiving(t *testing.T) {
	a := newArena(t, nil)
	x := remoteHand(t, a, "x")
	f, err := prims.OpenFuture(a, "f", nil)
	require.NoError(t, err)
	require.True(t, x.must(t, task{Op: "own", Name: "f"}).OK)
	x.must(t, task{Op: "abandon", Name: "f"})
	func() {
		defer func() {
			err, ok := recover().(error)
			require.True(t, ok)
			require.ErrorIs(t, err, shmsync.ErrCorrupt)
		}()
		f.Reset()
		t.Error("Reset has returned and not panicked")
	}()
	// After the death of the producer, the word is true, and Reset succeeds.
	x.proc.Kill(t)
	alone(t, a, 1)
	require.True(t, f.Reset())
	require.True(t, f.Set(3))
}

// TestFutureContradictions: the state and the result contradict each other. The Future is then corrupt: it is not set,
// and its producer does not count as dead.
func TestFutureContradictions(t *testing.T) {
	const over, decided, abandoned = 1, 1 << 33, 1 << 32
	for _, c := range []struct{ state, result uint64 }{
		{over, 0}, {over, decided | 1<<38}, {over, decided | abandoned | 1<<38}, {over, decided | abandoned}, {over | 1<<33, decided},
	} {
		a := newArena(t, nil)
		f, err := prims.OpenFuture(a, "f", nil)
		require.NoError(t, err)
		f.Overwrite(c.state, c.result)
		_, ok := f.IsSet()
		require.False(t, ok, "%#x", c)
		require.ErrorIs(t, f.State().Err, shmsync.ErrCorrupt, "%#x", c)
		require.False(t, f.State().Set)
		require.Equal(t, "future f: overwritten", f.String())
		require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt, "%#x", c)
		// A wait returns the result of its round, if this result is there, even though the state contradicts it.
		want := error(shmsync.ErrCorrupt)
		switch c.result {
		case decided | abandoned:
			want = shmsync.ErrOwnerDead
		case decided:
			want = nil
		}
		_, err = f.Wait()
		require.ErrorIs(t, err, want, "%#x", c)
		require.ErrorIs(t, prims.WaitAll(f), want, "%#x", c)
	}
}

// TestFutureStateOfOneRound: State reads the words of one round. While the Future is set and reset
// all the time, every result that State returns has the errno of its own round.
func TestFutureStateOfOneRound(t *testing.T) {
	a := newArena(t, nil)
	f := newFuture(t, a)
	rounds := 3_000_000
	if race.Enabled || testing.Short() {
		rounds = 100_000
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range rounds {
			f.Set(7)
			f.Reset()
		}
	}()
	for {
		select {
		case <-ended:
			return
		default:
			if st := f.State(); st.Set && st.Errno != 7 || !st.Set && st.Errno != 0 {
				t.Errorf("State returns a state that the Future never had: %+v", st)
				<-ended
			}
		}
	}
}

// TestFutureReachedAfterClose: WaitAny and WaitAll on a closed handle store nothing, because the
// words may belong to another object.
func TestFutureReachedAfterClose(t *testing.T) {
	a := newArena(t, nil)
	f, err := prims.OpenFuture(a, "f", nil)
	require.NoError(t, err)
	defer f.BeginClose()() // Close has ended all calls, and has not returned yet
	f.DecideOnly(5)
	before := f.Word()
	_, err = prims.WaitAny(f)
	require.ErrorIs(t, err, shmsync.ErrClosed)
	require.ErrorIs(t, prims.WaitAll(f), shmsync.ErrClosed)
	require.Equal(t, before, f.Word())
}

// TestFutureIsSetOfTheAbandoned: IsSet does not return the ID of a dead producer as an errno.
func TestFutureIsSetOfTheAbandoned(t *testing.T) {
	f := newFuture(t, newArena(t, nil))
	require.True(t, f.Claim())
	f.ReapProducer()
	e, ok := f.IsSet()
	require.False(t, ok)
	require.Zero(t, e)
}

// TestFutureStateOfADecidedRound: a producer has stored the result of the round and died before the word of the Future
// was changed. State must not report that the producer died without a result.
func TestFutureStateOfADecidedRound(t *testing.T) {
	const dead, decided = 1<<11 | 5, 1 << 33
	f := newFuture(t, newArena(t, nil))
	f.Overwrite(dead << 35)
	require.ErrorIs(t, f.State().Err, shmsync.ErrOwnerDead)
	f.Overwrite(dead<<35, decided|5)
	st := f.State()
	require.NoError(t, st.Err)
	require.False(t, st.Set, "nobody has ended the round")
	e, err := f.Wait()
	require.NoError(t, err)
	require.EqualValues(t, 5, e)
	require.True(t, f.State().Set)
}
