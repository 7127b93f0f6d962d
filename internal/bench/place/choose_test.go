//go:build linux

package place

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology/topotest"
)

func TestNodesChooseCPUs(t *testing.T) {
	top := topotest.Host(t, "memoryless")
	got, err := OnNodes([]int{0, 2}, top.IDs(), top)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 4, 5}, got)
	for node, want := range map[int]string{3: "no CPUs, only memory", 7: "no node 7, only 0-3"} {
		_, err := OnNodes([]int{node}, top.IDs(), top)
		require.ErrorContains(t, err, want)
	}
	_, err = OnNodes([]int{2}, []int{0, 1}, top)
	require.ErrorContains(t, err, "may use none")
	_, err = OnNodes([]int{0}, []int{0, 1}, nil)
	require.Error(t, err)
}
