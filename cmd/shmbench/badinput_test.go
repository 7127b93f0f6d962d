//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
)

// withoutDevShm runs this program on a system without /dev/shm.
func withoutDevShm(t *testing.T, args ...string) (out string) {
	t.Helper()
	if out, err := exec.Command("unshare", "-rm", "true").CombinedOutput(); err != nil {
		t.Skipf("needs unshare -rm, which makes a user and a mount namespace: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	const script = `set -e; touch "$0/null"; mount --bind /dev/null "$0/null"; mount --rbind "$0" /dev; test ! -e /dev/shm; exec "$@"`
	cmd := exec.Command("unshare", append([]string{"-rm", "sh", "-c", script, t.TempDir(), self}, patient(args)...)...)
	cmd.Env = append(os.Environ(), "SHMBENCH_WORKER=1")
	b, err := cmd.CombinedOutput()
	require.NoError(t, err, string(b))
	return string(b)
}

// Measurements need no /dev/shm. A proof of the selftest that needs it says so.
func TestWithoutDevShm(t *testing.T) {
	out := withoutDevShm(t, "selftest", "--only", "arena/named,exclusion")
	require.Regexp(t, `RESULT skip arena/named: .*/dev/shm`, out)
	require.Contains(t, out, "RESULT ok exclusion")
	out = withoutDevShm(t, "uncontended", "--prim=shmsync:mutex", "--time=5ms", "--count=1", "--cc=none")
	require.Contains(t, out, "mutex")
}

// Without a C compiler, or with one that does not work, the peers in C are skipped, with the reason. The peers in Go
// run.
func TestWithoutCompiler(t *testing.T) {
	broken := filepath.Join(t.TempDir(), "cc")
	require.NoError(t, os.WriteFile(broken, []byte("#!/bin/sh\necho no such header >&2\nexit 1\n"), 0o700))
	for cc, reason := range map[string]string{"none": "no C compiler", "/no/such/cc": "no C compiler", broken: "exit status 1"} {
		code, out, errs := shmbench(t, "uncontended", "--prim=c:futex,c:mq,go:flock", "--time=5ms", "--count=1", "--format=json", "--cc="+cc)
		require.Equal(t, exitOK, code, errs)
		require.Contains(t, errs, reason)
		for _, c := range parseDocument(t, out).Cells {
			if c.Subject == "go:flock" {
				require.Equal(t, bench.StatusOK, c.Status)
				continue
			}
			require.Equal(t, bench.StatusSkipped, c.Status)
			require.Contains(t, c.Reason, reason)
		}
	}
}
