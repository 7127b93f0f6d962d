//go:build linux

package main

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// Root can reap in an arena that another user owns, and recover a lock there.
func TestRootRecoversInForeignArena(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file to another user")
	}
	name := testArena(t)
	a := newAgent(t, name, "alice")
	a.does("lock mutex", "ledger")
	a.Kill(t)
	require.NoError(t, os.Chown("/dev/shm/"+name, 65534, 65534))
	require.Contains(t, soon(t, exitOK, "reap", name), "reaped 1")
	require.Contains(t, soon(t, exitOK, "recover", "/dev/shm/"+name, "ledger"), "can be locked again")
	require.Contains(t, soon(t, exitOK, "recover", name, "ledger"), "was healthy")
}
