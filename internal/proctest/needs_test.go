package proctest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestMissingProgram checks that a test is skipped if its program is missing, and fails if the environment requires the
// program. If no environment variable can require the program, the test fails.
func TestMissingProgram(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for name, need := range programs {
		t.Run(name, func(t *testing.T) {
			ask := func(tb testing.TB) { Program(tb, name) }
			t.Setenv(need, "")
			tb := runFake(t, ask)
			require.True(t, tb.Skipped())
			require.False(t, tb.Failed())
			require.Equal(t, "needs "+name+"\n", tb.output())
			t.Setenv(need, "1")
			tb = runFake(t, ask)
			require.True(t, tb.Failed())
			require.False(t, tb.Skipped())
			require.Contains(t, tb.output(), need+" is set")

			path := filepath.Join(dir, name)
			require.NoError(t, os.WriteFile(path, []byte("#!/bin/sh\n"), 0o700))
			require.Equal(t, path, Program(t, name))
		})
	}
	require.Contains(t, failure(t, func(tb testing.TB) { Program(tb, "cobol") }), "no environment variable requires the program cobol")
}
