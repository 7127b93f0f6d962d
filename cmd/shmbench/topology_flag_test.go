//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// A plan for a recorded host uses the CPUs of that host. Nothing is measured.
func TestPlanForAnotherHost(t *testing.T) {
	file := topotest.File("two-by-96.tree")
	code, out, errs := shmbench(t, "handoff", "--topology", file, "--place", "classes", "--prim", "c:futex", "-n", "--cc=none")
	require.Zero(t, code, errs)
	for _, class := range []string{"smt", "llc", "node", "package-12", "remote-32"} {
		require.Contains(t, out, "place="+class+"/")
	}
	code, _, errs = shmbench(t, "handoff", "--topology", file)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "add -n")
	code, _, errs = shmbench(t, "lock", "--topology", "/no/such", "-n")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "is no recorded tree")
}

// The value 0 is refused, instead of selecting the default.
func TestZeroIsRefused(t *testing.T) {
	for _, flag := range []string{"--time", "--count", "--kills", "--timeout"} {
		code, _, errs := shmbench(t, "lock", flag+"=0", "-n")
		require.Equal(t, exitUsage, code, flag)
		require.Contains(t, errs, flag+" 0: give more than 0")
	}
}
