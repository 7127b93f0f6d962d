//go:build linux

package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// A suite has no more busy workers than the cgroup has CPU time for. But it has cells with two workers even if the
// cgroup has CPU time for only one.
func TestPlansUnderAQuota(t *testing.T) {
	o, cells := defaultPlan(t, topotest.File("hosts/container-one-l3-quota.tree"))
	most := 0
	for _, c := range cells {
		if c.Scenario.Name == "lock" && c.Spreads() {
			most = max(most, c.Slots())
		}
	}
	require.Equal(t, 6, most, "8 cores, and the time of 6")
	require.Contains(t, o.QuotaNote(), "the time of 6.00 CPUs, and it uses 16: ")
	require.Contains(t, o.QuotaNote(), "at most 6 workers")

	o, cells = streamsOf(t, topotest.File("hosts/container-one-l3-quota.tree"), false)
	for _, c := range cells {
		require.LessOrEqual(t, c.Slots(), 6, c.Key())
	}
	require.Empty(t, (&Options{Topology: topotest.Host(t, "two-socket"), CPUs: []int{0, 1}}).QuotaNote())
	o.Topology.Limits.Quota = 0.5
	require.Equal(t, 2, o.busiest(8))
	require.Equal(t, 1, o.busiest(1))
	o.Topology = nil
	require.Equal(t, 8, o.busiest(8))
}
