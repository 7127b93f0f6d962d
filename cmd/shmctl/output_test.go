//go:build linux

package main

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// A command that cannot write its output fails.
func TestOutputThatCannotBeWritten(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	alice.does("lock mutex", "ledger")
	for _, args := range [][]string{
		{"ls"}, {"ps", name}, {"objects", name}, {"objects", "-o", "name", name}, {"du", name}, {"show", name, "ledger"}, {"locks", name}, {"waits", name},
		{"graph", name}, {"graph", "-f", "dot", name}, {"graph", "-f", "svg", name}, {"top", "-n", "1", name}, {"check", name}, {"metrics", name},
		{"reap", "-n", name}, {"diff", name, name}, {"set", name, "ledger", "spin=none"}, {"recover", "--all", name}, {"ls", "--json"},
		{"completion", "bash"}, {"man"}, {"--version"}, {"--help"}, {"ps", "--help"},
	} {
		var errs strings.Builder
		require.Equal(t, exitError, realMain(args, full, &errs), args)
		require.Contains(t, errs.String(), "no space left on device", args)
	}
}
