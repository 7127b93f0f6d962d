//go:build linux

package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// If the file of an arena was removed while a process was in the arena, shmctl finds the arena through that process.
func TestRemovedFileIsTold(t *testing.T) {
	name := testArena(t)
	newAgent(t, name, "member")
	found := func() (a arenaInfo) {
		_, d := shmctlJSON(t, "ls")
		for _, x := range d.Arenas {
			if x.Removed == shm.Dir+"/"+name {
				require.Empty(t, a.Name, "it is listed once")
				a = x
			}
		}
		return a
	}
	require.Empty(t, found().Name)
	require.NoError(t, shm.Remove(name))
	a := found()
	require.NotEmpty(t, a.Name)
	require.Equal(t, "ok", a.Health)
	require.Equal(t, 1, a.Participants)
	note := removedNote(shm.Dir + "/" + name)
	_, out, _ := shmctl("ls")
	require.Contains(t, out, note)
	code, out, _ := shmctl("check", a.Name)
	require.Equal(t, exitOK, code, "it is a notice, and no trouble")
	require.Contains(t, out, note)
	_, out, _ = shmctl("ls", "--names")
	require.NotContains(t, out, a.Name)
}
