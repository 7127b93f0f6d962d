//go:build linux

package main

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
)

func TestPlaceUsage(t *testing.T) {
	for _, args := range [][]string{{"--place=0+4000"}, {"--place=0+0"}, {"--place=x+y"}, {"--nodes=900"}, {"--nodes=x"}, {"--cpus=4000"}} {
		code, _, errs := shmbench(t, append(args, "handoff", "-n")...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs)
	}
}

// With the placement A+B, the first worker of a cell runs on CPU A, and the second worker on CPU B.
func TestPairsRunWhereTheySay(t *testing.T) {
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	place := fmt.Sprintf("%d+%d", cpus[1], cpus[0])
	code, out, errs := shmbench(t, "handoff", "--prim=go:pipe", "--place="+place, "--time=10ms", "--warmup=1ms", "--count=1", "--gap=1ms", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, place, c.Params["place"])
		require.Equal(t, bench.StatusOK, c.Status, c.Reason)
		require.Len(t, c.Reps[0].Workers, 2)
		require.Equal(t, cpus[1], c.Reps[0].Workers[0].CPU)
		require.Equal(t, cpus[0], c.Reps[0].Workers[1].CPU)
	}

	// A cell is skipped, with a reason, if no pair of the chosen CPUs has the placement of the cell.
	code, out, errs = shmbench(t, "handoff", "--prim=go:pipe", "--place="+bench.PlaceRemote, "--cpus="+strconv.Itoa(cpus[0]), "--time=5ms", "--count=1", "--format=json", "--cc=none")
	require.Zero(t, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, bench.StatusSkipped, c.Status)
		require.Equal(t, "there is one CPU to use", c.Reason)
	}
}
