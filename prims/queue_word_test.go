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
	n, m := arena.ParticipantID(5<<11|3), arena.ParticipantID(7<<11|4)
	require.True(t, queueState(0).valid(), "all-zero memory is free")
	require.False(t, queueState(0).out())
	for _, p := range []uint64{64, 1<<31 - 1, 1 << 31, 1<<40 + 7} {
		put := makeQueueState(queueFull, n, p)
		require.True(t, put.valid())
		require.False(t, put.out())
		require.True(t, put.at(p))
		require.False(t, put.at(p+1))
		for _, k := range []queueSlotKind{queueTaken, queueLeased, queueHanding, queueGiven} {
			s := put.with(k, m)
			require.True(t, s.valid())
			require.True(t, s.out())
			require.False(t, s.at(p), "another has it")
			require.Equal(t, m, s.participant())
			require.Equal(t, put.tag(), s.tag())
			require.Contains(t, s.String(), m.String())
		}
		back := put.with(queueReturned, 0)
		require.True(t, back.valid())
		require.False(t, back.out())
		require.True(t, back.before(makeQueueState(queueReturned, 0, p+5)))
		require.False(t, back.before(back))
		require.True(t, makeQueueState(queueReturned, 0, p-3).before(back))
	}
	for _, s := range []queueState{
		makeQueueState(queueFree, n, 0), makeQueueState(queueFree, 0, 1), makeQueueState(queueFull, 0, 1), makeQueueState(queueTaken, 0, 1),
		makeQueueState(queueLeased, 0, 1), makeQueueState(queueClaimed, n, 1), makeQueueState(queueKinds, n, 1),
	} {
		require.False(t, s.valid(), "%#x", uint64(s))
		require.Contains(t, s.String(), "impossible")
	}
	for range 100_000 {
		s := queueState(rand.Uint64())
		_ = s.String()
		if s != makeQueueState(s.kind(), s.participant(), s.tag()) {
			t.Fatalf("%#x", uint64(s))
		}
	}
}

func TestQueueCell(t *testing.T) {
	c := makeQueueCell(^uint32(0), 3)
	require.EqualValues(t, 3, c.slot())
	require.Equal(t, ^uint32(0), c.lap())
	require.EqualValues(t, 24, queueStride(0))
	require.EqualValues(t, 32, queueStride(1))
	require.EqualValues(t, 32, queueStride(8))
	require.EqualValues(t, 40, queueStride(9))
	for capacity, slots := range map[uint64]uint64{1: 9, 63: 71, 64: 64, 1000: 1000} {
		require.Equal(t, slots, queueSlots(capacity))
		require.GreaterOrEqual(t, uint64(1)<<queueLapShift(slots), slots)
		require.Less(t, uint64(1)<<queueLapShift(slots), 2*slots)
	}
}
