//go:build linux

package main

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
)

// changers returns the commands that join an arena, for a file that no process has open.
func changers(path string) [][]string {
	return [][]string{
		{"reap", "--wait=50ms", path}, {"recover", "--all", "--wait=50ms", path}, {"recover", "--wait=50ms", path, "mutex"},
		{"recover", "--wait=50ms", "--key=7", path, "multi"}, {"recover", "--wait=50ms", path, "group"}, {"set", path, "fair", "spin=none"},
		{"delete", path, "semaphore"}, {"delete", path, "queue"}, {"rm", path},
	}
}

// Commands that change an arena also end on a damaged arena, with one of the documented statuses.
func TestScribbledAndChanged(t *testing.T) {
	intact := busy(t)
	self, err := os.Executable()
	require.NoError(t, err)
	for seed := range proctest.Rounds(4, uint64(12)) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := bytes.Clone(intact)
		for range r.IntN(300) {
			scribbleWord(r, b)
		}
		path := filepath.Join(t.TempDir(), "arena")
		require.NoError(t, os.WriteFile(path, b, 0o600))
		for _, args := range changers(path) {
			ctx, stop := context.WithTimeout(t.Context(), limit)
			cmd := exec.CommandContext(ctx, self, args...)
			cmd.Env = append(os.Environ(), "SHMCTL_TEST_MAIN=1")
			out, err := cmd.CombinedOutput()
			require.NoError(t, ctx.Err(), "seed %d: %v hangs\n%s", seed, args, out)
			stop()
			var exit *exec.ExitError
			if errors.As(err, &exit) {
				require.Contains(t, []int{exitError, exitMissing, exitTrouble, exitRefused}, exit.ExitCode(), "seed %d: %v\n%s", seed, args, out)
				require.NotContains(t, string(out), "goroutine ", "seed %d: %v", seed, args)
			} else {
				require.NoError(t, err)
			}
		}
	}
}
