//go:build linux

package report

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/shm"
)

func TestMemPlacementText(t *testing.T) {
	weighted := &bench.MemShape{Policy: shm.Policy{Mode: shm.PolicyWeightedInterleave, Nodes: []int{0, 1, 3}}}
	require.Equal(t, "weighted:0-1,3", weighted.ShortName())
	require.Equal(t, bench.FirstTouch, (&bench.MemShape{}).ShortName())
	p := &bench.Placement{Nodes: []int{0, 1}, Got: map[string]int{"0": 30, "1": 60, "2": 10}}
	require.InDelta(t, 90, p.Heeded(), 1e-9)
	require.Equal(t, "0 30%, 1 60%, 2 10%", gotText(p))
	p = &bench.Placement{Nodes: []int{1}, Got: map[string]int{"1": 8}, Huge: 4 << 20}
	require.Equal(t, "1, 4 MiB huge", gotText(p))
	require.Equal(t, "not known", gotText(&bench.Placement{}))
	require.Equal(t, []int{3}, (&bench.MemShape{Node: 3}).Asked())
	require.Equal(t, []int{1}, (&bench.MemShape{Node: 3, Policy: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{1}}}).Asked())
}

// TestMemFigures checks that cells of two nodes make a figure of the latencies from node to node, and that pages on
// other nodes than requested are highlighted.
func TestMemFigures(t *testing.T) {
	var cells []*Cell
	for _, node := range []string{"0", "1"} {
		for _, memory := range []string{"0", "1"} {
			p := &bench.Placement{Asked: "bind:" + memory, Nodes: []int{int(memory[0] - '0')}, Got: map[string]int{"0": 10}}
			cells = append(cells, &Cell{Subject: "shmsync:arena", Params: map[string]string{"node": node, "mem": "bind:" + memory, "huge": "none"},
				Unit: "chase-ns", Status: bench.StatusOK, Reps: []Repetition{{Status: bench.StatusOK, Metrics: map[string]float64{"chase-ns": 80}, Placement: p}}})
		}
	}
	f := memFigures(cells)
	require.Len(t, f, 2)
	require.Contains(t, string(f[0].SVG), "0 % as asked")
	require.Equal(t, 2, strings.Count(string(f[0].SVG), "stroke-dasharray"))
	require.Equal(t, 4, strings.Count(string(f[1].SVG), "80ns"))
	require.Len(t, memFigures(cells[:1]), 1)
	require.Empty(t, memFigures([]*Cell{{}}))
	require.Len(t, memGroups(bench.ScenarioByName("mem"), cells), 2)
}
