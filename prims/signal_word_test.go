//go:build linux

package prims

import (
	"math/bits"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
)

// TestSignalGateWordTable tries every state of a gate and every transition, with extreme epochs.
func TestSignalGateWordTable(t *testing.T) {
	n := arena.ParticipantID(3 | 7<<11)
	for _, epoch := range []uint64{0, 1, 1<<31 - 1, 1<<32 - 1} {
		base := signalGateWord(epoch << 32)
		require.True(t, base.idle())
		require.True(t, base.valid())
		require.EqualValues(t, epoch, base.epoch())
		s := base.schedule()
		require.True(t, s.ready() && s.valid() && !s.idle())
		require.Equal(t, s, s.schedule())
		for _, from := range []signalGateWord{base, s} {
			e := from.begin(n)
			require.True(t, e.executing() && e.valid() && !e.scheduled() && !e.ready() && !e.idle())
			require.Equal(t, n, e.participant())
			require.Equal(t, uint32(epoch)+1, e.epoch(), "the epoch wraps and touches nothing else")
			es := e.schedule()
			require.True(t, es.executing() && es.scheduled() && !es.ready() && es.valid())
			require.Equal(t, e, es&^gateScheduled, "the word with which Finish compares")
			require.True(t, e.finish(false).idle())
			require.True(t, e.finish(true).ready())
			require.True(t, es.finish(false).ready(), "a Schedule during the execution is not dropped")
			require.Equal(t, e.epoch(), es.finish(false).epoch())
			require.Zero(t, es.finish(true).participant())
			for _, w := range []signalGateWord{e, es} {
				o := w.orphan()
				require.True(t, o.ready() && o.valid())
				require.NotEqual(t, w.epoch(), o.epoch(), "the old executor is fenced out")
				require.NotEqual(t, e, o.begin(n)&^gateScheduled, "even if the old executor is the next one, too")
			}
		}
	}
	for _, w := range []signalGateWord{gateReserved, gateExecuting, 5, gateScheduled | 5} {
		require.False(t, w.valid(), "%v", w)
	}
	require.NotEmpty(t, signalGateWord(0).begin(n).schedule().String())
}

func TestNearestBitTable(t *testing.T) {
	three := uint64(1 | 1<<31 | 1<<63)
	for start, want := range map[int]int{15: 0, 16: 31, 47: 31, 48: 63, 0: 0, 63: 63, 31: 31} {
		require.Equal(t, want, nearestBit(three, start), "from %d", start)
	}
	require.Equal(t, 64, nearestBit(0, 5))
	require.Equal(t, 64, nearestBit(^uint64(0), 64))
	require.Equal(t, 64, nearestBit(^uint64(0), -1))
	r := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		m := r.Uint64() & r.Uint64() & r.Uint64()
		for start := range 64 {
			best := 64
			for b := range 64 {
				d, e := b-start, best-start
				if m>>b&1 != 0 && (best == 64 || max(d, -d) < max(e, -e)) {
					best = b // if two bits are equally near, the lower one comes first
				}
			}
			if got := nearestBit(m, start); got != best {
				t.Fatalf("%#x from %d: %d, want %d", m, start, got, best)
			}
		}
	}
}

func TestSignalCountTable(t *testing.T) {
	c := signalCount(arena.ParticipantID(9|3<<11)) + 5*countWorker + 7*countSleeper
	require.Equal(t, arena.ParticipantID(9|3<<11), c.participant())
	require.Equal(t, 5, c.workers())
	require.Equal(t, 7, c.sleepers())
	all := ^signalCount(0)
	require.Equal(t, maxWorkers, all.workers())
	require.Equal(t, maxSleepers, all.sleepers())
	require.Equal(t, 64, 29+bits.Len(maxWorkers)+bits.Len(maxSleepers))
	for config, want := range map[uint32]int{0: 64, 1: 1, 64: 64, signalCounts: 64, signalCounts | 3: 3} {
		require.Equal(t, want, signalsOf(config))
	}
}
