//go:build linux

package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// TestDiff checks that diff reports what changed between two dumps, and between a dump and the present state of the
// arena.
func TestDiff(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	soon(t, exitOK, "dump", name, "-o", one)
	require.Equal(t, "no difference\n", soon(t, exitOK, "diff", one, one))
	code, d := shmctlJSON(t, "diff", one, name)
	require.Equal(t, exitOK, code)
	require.Empty(t, d.Changes)

	bob.does("lock fair", "index")
	bob.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	alice.Stop(t)
	soon(t, exitOK, "dump", name, "-o", two)
	alice.Cont(t)
	_, d = shmctlJSON(t, "diff", one, two)
	what := map[string]change{}
	for _, c := range d.Changes {
		what[c.What] = c
	}
	require.Equal(t, "stopped-holder, ledger", what["finding"].Name)
	require.Equal(t, alice.name, what["participant"].Name)
	require.Contains(t, what["participant"].After, "stopped")
	require.Equal(t, change{"object", "index", "", what["object"].After}, what["object"])
	require.Contains(t, what["object"].After, "FairMutex")
	require.Contains(t, what["wait"].Name, "ledger, bob[")
	out := soon(t, exitOK, "diff", two, one)
	require.Regexp(t, `(?m)^- +object +index`, out)
	require.Regexp(t, `(?m)^~ +participant +`+alice.name, out)

	alice.Kill(t)
	awaitFinding(t, diagnose.OwnerDead, "waits", name)
	_, d = shmctlJSON(t, "diff", one, name)
	require.Contains(t, d.Changes[0].Name, "owner-dead, ledger")
	code, _, _ = shmctl("diff", one, name+"x")
	require.Equal(t, exitMissing, code)
}
