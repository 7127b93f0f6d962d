//go:build linux

package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/stopstorm"
)

func TestStopstormRuns(t *testing.T) {
	code, out, errs := shmbench(t, "stopstorm", "--prim=event,queue", "--stops=2", "--watch=2ms", "--bound=1m", "--format=json")
	require.Equal(t, exitOK, code, errs)
	var d stopstorm.Document
	require.NoError(t, json.Unmarshal([]byte(out), &d))
	require.Equal(t, stopstorm.Schema, d.Schema)
	require.Len(t, d.Results, 2)
	for _, r := range d.Results {
		require.Equal(t, 2, r.Stops, r.Prim)
	}
}

func TestStopstormSeesAFreeze(t *testing.T) {
	out, errs := violated(t, "stopstorm", "--prim=test:frozen", "--stops=40", "--watch=2ms", "--bound=100ms")
	require.Contains(t, errs, "does not go on: secret")
	require.Contains(t, out, "random stops, 3 processes, bound 100ms")
}

func TestStopstormUsage(t *testing.T) {
	for _, args := range [][]string{{"--prim=nothing"}, {"--procs=2"}, {"--stops=0"}, {"--quota=100"}, {"--procs=3,4"}, {"--format=csv"}, {"-n"}, {"--in=fortran"}, {"--in=c", "--prim=waitable"}} {
		code, _, errs := shmbench(t, append([]string{"stopstorm", "--stops=1", "--watch=1ms"}, args...)...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}
