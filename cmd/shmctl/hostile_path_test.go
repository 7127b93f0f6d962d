//go:build linux

package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

// The path of an arena cannot control a terminal. Any user can choose a path, and "ls --all" shows it to root.
func TestPathThatControlsATerminal(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a\x1b[31mb\nc\u202ed\u009be")
	seg, err := shm.CreateAt(path, 1<<20, func(s *shm.Segment) error {
		return arena.Format(s, &arena.Options{MaxParticipants: 8})
	}, nil)
	require.NoError(t, err)
	require.NoError(t, seg.Close())
	alice, _ := newAgent(t, path, "alice"), newAgent(t, path, "bob") // bob reaps
	alice.does("lock mutex", "ledger")
	id, ok := fileIDOf(path)
	require.True(t, ok)
	found := ""
	for _, p := range otherPlaces() {
		if is, ok := fileIDOf(p); ok && is == id {
			found = p
		}
	}
	require.Regexp(t, "^/proc/[0-9]+/fd/[0-9]+$", found)
	alice.Kill(t)
	for _, p := range otherPlaces() { // a path of bob, if alice had it before
		if is, ok := fileIDOf(p); ok && is == id {
			found = p
		}
	}
	awaitFinding(t, diagnose.OwnerDead, "waits", found)
	commands := [][]string{{"ls", "--all"}, {"ls", "--all", "-o", "wide"}, {"ls", "--all", "-o", "name"}, {"show", path, "nothing"}, {"ps", path + "x"},
		{"dump", path, "-o", filepath.Join(t.TempDir(), "d")}, {"diff", path, path}, {"graph", "-f", "dot", path}, {"rm", path}}
	for _, args := range append(commands, lookers(path)...) {
		_, out, errs := shmctl(args...)
		require.NotEmpty(t, out+errs, args)
		text := strings.NewReplacer("\n", "", "\t", "").Replace(out + errs)
		require.Equal(t, diagnose.Clean(text), text, args)
	}
	obey(t, found, 1)
}
