//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/proctest"
)

// A lock cell checks all cache lines that its critical section writes, in Go and in C. It detects a lock that does not
// exclude others.
func TestLinesUnderALock(t *testing.T) {
	proctest.CCompiler(t)
	args := []string{"lock", "--place=any", "--procs=2", "--threads=2", "--time=20ms", "--warmup=2ms", "--count=1", "--think=0", "--format=json"}
	code, out, errs := shmbench(t, append(args, "--prim=shmsync:mutex,c:robust,in-process:sync.Mutex", "--cs=0", "--lines=1,8,512")...)
	require.Zero(t, code, errs)
	require.Len(t, parseDocument(t, out).Cells, 9)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, bench.StatusOK, c.Status, c.Key)
		require.Contains(t, []string{"1", "8", "512"}, c.Params["lines"], c.Key)
	}
	out, _ = violated(t, append(args, "--prim=test:open", "--cs=2us", "--lines=8", "--time=200ms", "--cc=none")...)
	require.Contains(t, out, "under the lock")
}
