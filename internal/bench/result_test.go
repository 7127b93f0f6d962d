//go:build linux

package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFairness(t *testing.T) {
	jain, smallest := fairness([]float64{5, 5, 5, 5})
	require.Equal(t, 1.0, jain)
	require.Equal(t, 1.0, smallest)
	jain, smallest = fairness([]float64{8, 0, 0, 0})
	require.Equal(t, 0.25, jain)
	require.Zero(t, smallest)
	jain, _ = fairness([]float64{0, 0})
	require.Zero(t, jain)
}
