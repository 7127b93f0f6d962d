//go:build linux

package prims

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// Every state of a slot, and what becomes of it.
func TestQueueStates(t *testing.T) {
	n := arena.ParticipantID(5<<11 | 3)
	require.True(t, queueState(0).valid(), "all-zero memory is free")
	require.False(t, queueState(0).out())
	for times := range uint32(3) {
		full := makeQueueState(queueFull, 0, times)
		require.True(t, full.valid())
		require.False(t, full.out())
		require.Equal(t, times, full.times())
		given := full.to(queueGet, n)
		require.Equal(t, makeQueueState(queueGiven, n, times), given)
		leased := full.to(queueLease, n)
		require.Equal(t, makeQueueState(queueLeased, n, times+1), leased)
		for _, s := range []queueState{given, leased} {
			require.True(t, s.valid())
			require.True(t, s.out())
			require.Equal(t, n, s.participant())
		}
		require.Equal(t, full, given.back(), "what Get never returned was not delivered")
		require.Equal(t, times+1, leased.back().times())
		require.Contains(t, leased.String(), n.String())
	}
	// The count of leases wraps, and a leased slot is never as if it had none.
	require.True(t, makeQueueState(queueFull, 0, ^uint32(0)).to(queueLease, n).valid())
	for _, s := range []queueState{
		makeQueueState(queueFree, n, 0), makeQueueState(queueFree, 0, 1), makeQueueState(queueFull, n, 0),
		makeQueueState(queueGiven, 0, 1), makeQueueState(queueLeased, 0, 1), makeQueueState(queueLeased, n, 0), makeQueueState(queueKinds, n, 1),
	} {
		require.False(t, s.valid(), "%#x", uint64(s))
		require.Contains(t, s.String(), "impossible")
	}
	for range 100_000 {
		s := queueState(rand.Uint64())
		_ = s.String()
		if s != makeQueueState(s.kind(), s.participant(), s.times()) || s.valid() && s.out() && !s.back().valid() {
			t.Fatalf("%#x", uint64(s))
		}
	}
}

func TestQueuePair(t *testing.T) {
	p := queuePair(makeQueuePair(3, ^uint32(0)))
	require.EqualValues(t, 3, p.low())
	require.Equal(t, ^uint32(0), p.high())
	require.EqualValues(t, 24, queueStride(0))
	require.EqualValues(t, 32, queueStride(1))
	require.EqualValues(t, 32, queueStride(8))
	require.EqualValues(t, 40, queueStride(9))
}
