//go:build linux

package host

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What others took is the busy time of the used CPUs without that of this process and its children.
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
