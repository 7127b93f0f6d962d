//go:build linux

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOthersOfUsedCPUs checks that Others counts the busy time of the used CPUs, without the time of this process and
// its children.
func TestOthersOfUsedCPUs(t *testing.T) {
	read := func(text string, own float64) Disturbance {
		d := Disturbance{Own: own}
		d.readStat(text, []int{0, 2})
		return d
	}
	before := read("cpu  9 9 9 9\ncpu0 10 0 10 100 5 0 0 0 7 7\ncpu1 900 0 0 0\ncpu2 0 0 0 200 0 0 0 0\nintr 5\n", 50)
	after := read("cpu  9 9 9 9\ncpu0 60 0 30 130 5 0 0 0 9 9\ncpu1 9000 0 0 0\ncpu2 10 0 0 280 0 5 5 0\nintr 5\n", 130)
	require.InDelta(t, 200, after.Total-before.Total, 1e-9)
	require.InDelta(t, (90.0-80)/200, Others(before, after), 1e-9)
	require.Zero(t, Others(before, before))
	require.Zero(t, Others(Disturbance{Total: 1}, Disturbance{Total: 101, Busy: 10, Own: 50}), "no negative time")
}

// TestDirty checks that a round is dirty if other programs took more time than the sampling of ticks can explain, or if
// a quota stopped the run.
func TestDirty(t *testing.T) {
	after := func(total, busy, own, steal float64, throttled int) bool {
		return Dirty(Disturbance{}, Disturbance{Total: total, Busy: busy, Own: own, Steal: steal, Throttled: throttled})
	}
	require.False(t, after(0, 0, 0, 0, 0), "no time has passed")
	require.False(t, after(10000, 8000, 8000, 0, 0))
	require.False(t, after(10000, 8500, 8000, 100, 0))
	require.True(t, after(10000, 8700, 8000, 0, 0))
	require.True(t, after(10000, 8000, 8000, 300, 0))
	require.False(t, after(100, 50, 40, 0, 0), "ten ticks of a hundred may be chance")
	require.True(t, after(10000, 0, 0, 0, 1))
}
