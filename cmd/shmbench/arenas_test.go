//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/proctest"
)

// With --arena, cells put their memory into the given directory, and leave no file there.
func TestArenaLiesWhereItIsSaid(t *testing.T) {
	proctest.CCompiler(t)
	dir := t.TempDir()
	for _, args := range [][]string{
		{"lock", "--prim=shmsync:mutex,c:robust,go:flock,go:pipe,in-process:sync.Mutex", "--procs=2", "--threads=1"},
		{"crash", "--prim=shmsync:mutex,c:robust", "--kills=2"},
		{"handoff", "--prim=shmsync:futex,c:sysv,go:pipe", "--gap=100us"},
	} {
		code, out, errs := shmbench(t, append(args, "--arena=memfd,"+dir, "--place=any", "--time=10ms", "--warmup=1ms", "--count=1", "--format=json")...)
		require.Zero(t, code, errs)
		there := 0
		for _, c := range parseDocument(t, out).Cells {
			if c.Params["arena"] == bench.ArenaName(dir) {
				there++
			} else {
				require.NotContains(t, c.Params, "arena")
			}
			require.Equal(t, bench.StatusOK, c.Status, c.Key)
		}
		require.Positive(t, there)
	}
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, left)
}
