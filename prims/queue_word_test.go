//go:build linux

package prims

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// TestQueueStates checks every state of a slot, and the states that follow it.
func TestQueueStates(t *testing.T) {
	n := arena.ParticipantID(5<<11 | 3)
	require.True(t, queueState(0).valid(), "all-zero memory is free")
	require.False(t, queueState(0).out())
	for _, p := range []uint64{0, 16, 1<<31 - 1, 1 << 31, 1<<40 + 5} {
		put := makeQueueState(queueFull, n, p)
		require.True(t, put.valid())
		require.True(t, put.at(p))
		require.True(t, put.at(p+1<<31), "a slot has only the low 31 bits of a position")
		require.False(t, put.at(p+1))
		require.False(t, put.out())
		for _, k := range []queueSlotKind{queueTaken, queueLeased} {
			s := put.with(k, n+1)
			require.True(t, s.valid())
			require.True(t, s.out())
			require.False(t, s.at(p))
			require.Equal(t, n+1, s.participant())
			require.Equal(t, put.tag(), s.tag())
			require.Contains(t, s.String(), (n + 1).String())
		}
		back := put.with(queueReturned, 7)
		require.True(t, back.valid())
		require.Zero(t, back.participant(), "a returned slot has a count in place of a participant")
		require.True(t, back.before(makeQueueState(queueReturned, 0, p+1), p+2))
		require.False(t, makeQueueState(queueReturned, 0, p+1).before(back, p+2))
	}
	for _, s := range []queueState{
		makeQueueState(queueFree, n, 0), makeQueueState(queueFree, 0, 1), makeQueueState(queueClaimed, 0, 0),
		makeQueueState(queueClaimed, n, 1), makeQueueState(queueFull, 0, 1), makeQueueState(queueTaken, 0, 1),
		makeQueueState(queueLeased, 0, 1), makeQueueState(queueKinds, n, 1),
	} {
		require.False(t, s.valid(), "%#x", uint64(s))
		require.Contains(t, s.String(), "impossible")
	}
	for range 100_000 {
		s := queueState(rand.Uint64())
		_ = s.String()
		if s.kind() != queueReturned && s != makeQueueState(s.kind(), s.participant(), s.tag()) {
			t.Fatalf("%#x", uint64(s))
		}
	}
}

// TestQueueCounts checks the word queueReturns and the lease word of a slot.
func TestQueueCounts(t *testing.T) {
	r := queueReturns(0)
	require.False(t, r.some())
	for n := range 5 {
		require.EqualValues(t, n, r.count())
		r = r.told()
		require.True(t, r.some())
		r &^= 1
	}
	require.EqualValues(t, 0, queueReturns(1<<30).count(), "only the bits for which a slot has room")

	w := queueLeaseWord(0)
	for n := range uint32(3) {
		next := w.next()
		require.Equal(t, n+1, next.times())
		require.False(t, next.ended())
		require.True(t, (next | queueLeaseEnded).ended())
		require.NotEqual(t, w, next)
		require.True(t, next.noted())
		require.False(t, (next | queueLeaseEnded).noted())
		require.Zero(t, next.date())
		dated := next | 17<<queueLeaseDate
		require.EqualValues(t, 17, dated.date())
		require.Equal(t, next, dated.undated())
		require.Equal(t, next.next(), dated.next(), "the next lease has no date")
		require.Equal(t, next.fresh(), dated.fresh(), "another item has no date")
		require.Equal(t, next.times(), dated.times())
		w = dated | queueLeaseEnded
	}
	require.False(t, w.fresh().noted(), "an item that was never leased")
	fresh := w.fresh().next()
	require.EqualValues(t, 1, fresh.times())
	require.Greater(t, fresh, w.fresh()&^queueLeaseEnded, "a serial is used once")
	most := queueLeaseTimes.next()
	require.EqualValues(t, 1<<16-1, most.times(), "the count stays at its maximum")
	require.False(t, (queueLeaseEnded - 1).next().ended(), "the serial wraps")
	require.Zero(t, (queueLeaseEnded - 1).next().date(), "the serial wraps")
	require.True(t, (queueLeaseEnded - 1).noted())
}

func TestQueueSizes(t *testing.T) {
	require.EqualValues(t, 16, queueStride(0))
	require.EqualValues(t, 24, queueStride(1))
	require.EqualValues(t, 24, queueStride(8))
	require.EqualValues(t, 32, queueStride(9))
	for capacity, slots := range map[uint64]uint64{1: 9, 8: 16, 9: 17, 63: 71, 64: 64, 1000: 1000, 1 << 30: 1 << 30} {
		require.Equal(t, slots, queueSlots(capacity))
		cells := uint64(1) << queueLapShift(slots)
		require.GreaterOrEqual(t, cells, slots)
		require.Less(t, cells, 2*slots)
	}
	require.EqualValues(t, 320+8*16+9*24, queueBytes(1, 8))
}
