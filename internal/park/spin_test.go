package park

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
)

// spins returns the word after n spins with the given length and result.
func spins(p payWord, n int, spent int64, success bool) payWord {
	for range n {
		p = p.after(spent, success)
	}
	return p
}

// TestSpinsStayLongBesideNoise checks that an occasional failure, caused by another program on the CPU, does not make
// spins shorter than a hand-over takes. With shorter spins, two processes that hand an object over to each other
// would sleep before each hand-over.
func TestSpinsStayLongBesideNoise(t *testing.T) {
	p := payWord(0)
	require.EqualValues(t, spinMost, p.budget(), "zero memory")
	for range 100 {
		p = spins(p, 200, 300, true)
		require.EqualValues(t, spinMost, p.budget())
		p = spins(p, 1, spinMost, false)
		require.EqualValues(t, spinSome, p.budget(), "after one failure")
	}
	for range 100 { // 5 of 100 fail
		p = spins(p, 19, 300, true)
		p = spins(p, 1, spinSome, false)
		require.GreaterOrEqual(t, p.budget(), int64(spinSome))
	}
}

// TestSpinsBecomeShortWhereTheyFail checks that spins become short if all spins fail, except for one in probeEvery. If
// half of the spins fail, they last no longer than successful spins need.
func TestSpinsBecomeShortWhereTheyFail(t *testing.T) {
	p := spins(payWord(0), spinGiveUp, spinMost, false)
	long := 0
	for range 10 * probeEvery {
		switch p.budget() {
		case spinLeast:
		case spinMost:
			long++
		default:
			t.Fatalf("%d ns after %d failures", p.budget(), p.failures())
		}
		p = spins(p, 1, spinLeast, false)
	}
	require.Equal(t, 10, long)

	p = 0
	for range 200 {
		p = spins(p, 1, 320, true)
		p = spins(p, 1, spinSome, false)
	}
	require.LessOrEqual(t, p.budget(), int64(4*320+spinLeast))
	p = spins(p, 200, 320, true)
	require.EqualValues(t, spinMost, p.budget(), "spins succeed again, so the budget is long")

	p = spins(p, 40, 12_000, true)
	p = spins(p, 1, spinMost, false)
	require.Greater(t, p.budget(), int64(12_000), "the budget covers the time of successful spins")
}

// TestPayWordOfAnyValue checks that the budget stays within its limits, and that a success or a failure changes the
// right fields, whatever value the word had before. The word is a hint and may have any value.
func TestPayWordOfAnyValue(t *testing.T) {
	for _, p := range []payWord{0, 1, 1<<10 - 1, 1<<20 - 1, 1 << 20, 3<<20 | 1<<19, 1<<32 - 1, 0xfff<<20 | 0x155} {
		for _, spent := range []int64{0, 63, 64, spinLeast, spinMost, 1e6, 1 << 40} {
			for _, next := range []payWord{p.after(spent, true), p.after(spent, false), p.afterYield(true), p.afterYield(false)} {
				require.GreaterOrEqual(t, next.budget(), int64(spinLeast))
				require.LessOrEqual(t, next.budget(), int64(spinMost))
			}
			require.Zero(t, p.after(spent, true).failures())
			require.Equal(t, (p.failures()+1)&4095, p.after(spent, false).failures())
			require.Equal(t, p.took(), p.after(spent, false).took())
			require.LessOrEqual(t, p.after(spent, true).share(), p.share())
		}
		require.Equal(t, p.share(), p.afterYield(false).share())
		require.Equal(t, p.took(), p.afterYield(true).took())
	}
}

// TestPollLimit checks that a spin budget that a peer has overwritten does not make a poll long.
func TestPollLimit(t *testing.T) {
	require.EqualValues(t, 0, pollLimit(1, 0))
	require.EqualValues(t, 5000, pollLimit(5001, 0))
	require.EqualValues(t, time.Millisecond, pollLimit(1<<32-1, 0))
	require.EqualValues(t, pollLong, pollLimit(0, 0))
}

// TestNumberOfCPUsIsReadAgainAfterAShortage checks that a failed read gives no answer if it says nothing about the
// machine, for example because the table of descriptors is full. Only an answer is remembered.
func TestNumberOfCPUsIsReadAgainAfterAShortage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "online")
	for text, want := range map[string]uint32{"0\n": 2, "0-3\n": 1, "0,2\n": 1} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		require.Equal(t, want, readOneCPU(path), "%q", text)
	}
	require.Zero(t, readOneCPU(filepath.Dir(path)), "a read that failed for another reason")
	require.NotZero(t, readOneCPU(filepath.Join(t.TempDir(), "none")), "a system without the file")
}

// TestStopDuringAYield checks that a process that was stopped for an hour during a yield yields again after some
// seconds.
func TestStopDuringAYield(t *testing.T) {
	before := noYieldUntil.Load()
	defer noYieldUntil.Store(before)
	require.False(t, noteYield(yieldMost))
	require.Equal(t, before, noYieldUntil.Load(), "the releaser has run")
	for took, pause := range map[time.Duration]time.Duration{
		time.Millisecond: yieldPause * time.Millisecond,
		time.Hour:        10 * time.Second,
	} {
		start := shmsync.Monotonic()
		require.True(t, noteYield(int64(took)))
		require.Greater(t, noYieldUntil.Load(), start)
		require.LessOrEqual(t, noYieldUntil.Load(), shmsync.Monotonic()+int64(pause))
	}
}
