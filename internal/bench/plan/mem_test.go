//go:build linux

package plan

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/topology"
)

// memTestHost is a host of four nodes. Nodes 0 and 1 have CPUs and memory, node 2 has no memory, and node 3 has no
// CPUs.
func memTestHost() *topology.Topology {
	t := &topology.Topology{Limits: topology.Limits{Nodes: []int{0, 1, 2, 3}}}
	for node, cpus := range [][]int{{0, 1}, {2, 3}, {4}, nil} {
		for _, id := range cpus {
			t.CPUs = append(t.CPUs, topology.CPU{ID: id, Core: id, Node: node, Package: node})
		}
		t.Nodes = append(t.Nodes, topology.Node{ID: node, CPUs: cpus, Bytes: 1 << 30})
	}
	t.Nodes[2].Bytes = 0
	return t
}

func TestMemShapes(t *testing.T) {
	host := memTestHost()
	describe := func(o *Options) (list []string) {
		o.Topology = host
		shapes, err := memShapes(o)
		require.NoError(t, err)
		for _, m := range shapes {
			list = append(list, fmt.Sprintf("%d %s %s cpu%d %v", m.Node, m.PolicyName(), bench.HugeName(m.Huge), m.CPU, m.Asked()))
		}
		return list
	}
	all := []int{0, 1, 2, 3, 4}
	require.Equal(t, []string{
		"0 first-touch none cpu0 [0]", "0 bind:0 none cpu0 [0]", "0 bind:1 none cpu0 [1]", "0 bind:3 none cpu0 [3]",
		"0 interleave:0-1,3 none cpu0 [0 1 3]", "0 weighted-interleave:0-1,3 none cpu0 [0 1 3]",
	}, describe(&Options{CPUs: all, Brief: true, Nodes: []int{0}}))
	require.Equal(t, []string{
		"1 preferred-many:0-1 2M cpu3 [0 1]", "2 preferred-many:0-1 2M cpu4 [0 1]",
	}, describe(&Options{CPUs: []int{3, 4}, Mem: []string{"prefer-many:0-1"}, Huge: []string{"2M"}}))
	require.Len(t, describe(&Options{CPUs: all}), 3*6*3)
	require.Equal(t, []string{"2 first-touch thp cpu4 [2]"},
		describe(&Options{CPUs: all, Mem: []string{"first-touch"}, Huge: []string{"thp"}, Nodes: []int{2}}))

	for want, o := range map[string]*Options{
		"no node 2 with memory here (nodes with memory: 0,1,3)": {CPUs: all, Mem: []string{"bind:2"}},
		"no node 9 with memory":                                 {CPUs: all, Mem: []string{"interleave:0,9"}},
		"the mode is none of":                                   {CPUs: all, Mem: []string{"near:1"}},
		"--nodes 3: none of its CPUs is used here":              {CPUs: all, Nodes: []int{3}},
		"--nodes 0: none of its CPUs":                           {CPUs: []int{2}, Nodes: []int{0}},
		"want none, thp, 2M or 1G":                              {CPUs: all, Huge: []string{"4M"}},
	} {
		o.Topology = host
		_, err := memShapes(o)
		require.ErrorContains(t, err, want)
	}
}

// TestMemShapesOfNothing checks that a host that does not describe its nodes counts as a host with one node.
func TestMemShapesOfNothing(t *testing.T) {
	shapes, err := memShapes(&Options{CPUs: []int{5}, Brief: true})
	require.NoError(t, err)
	require.Len(t, shapes, 2)
	require.Equal(t, 5, shapes[1].CPU)
	require.Equal(t, "bind:0", shapes[1].Policy.String())
}
