//go:build linux

package torture

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/include"
)

// Victims in C work at data only. Those that end by themselves do not die in a rollback.
func TestPlanOfVictimsInC(t *testing.T) {
	for _, only := range []uint64{soundJobs, mustJobs("mutex", "tx"), mustJobs("tx", "rwtx")} {
		inC := 0
		for i := range 1000 {
			v := victimOf(1, i, only)
			if !v.c {
				require.Zero(t, v.step)
				continue
			}
			inC++
			require.NotZero(t, v.jobs)
			require.Zero(t, v.jobs&^(only&dataJobs), v)
			if v.outcome >= outcomeExec {
				require.Zero(t, v.step, v)
			}
		}
		if only&^dataJobs == 0 {
			require.InDelta(t, 500, inC, 60)
		} else {
			require.InDelta(t, 125, inC, 40)
		}
	}
}

// The flags give the compiler all names that the source needs.
func TestPageFlags(t *testing.T) {
	names := map[string]bool{}
	for _, f := range pageFlags() {
		name, _, _ := strings.Cut(strings.TrimPrefix(f, "-D"), "=")
		names[name] = true
	}
	used := regexp.MustCompile(`\bPAGE_[A-Z_]+\b`).FindAllString(workerSource, -1)
	require.Greater(t, len(used), 15)
	for _, name := range used {
		require.True(t, names[name], name)
	}
}

// The strictest warnings find nothing in the source.
func TestWorkerCompilesCleanly(t *testing.T) {
	cc, err := exec.LookPath("cc")
	if err != nil {
		require.Empty(t, os.Getenv("SHMSYNC_NEED_CC"), "there is no C compiler")
		t.Skipf("needs a C compiler: %v", err)
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shmsync.h"), []byte(include.Header), 0o600))
	args := slices.Concat([]string{"-std=gnu11", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wpedantic", "-Werror", "-I" + dir}, pageFlags(), []string{"worker.c"})
	out, err := exec.Command(cc, args...).CombinedOutput()
	require.NoError(t, err, string(out))
}
