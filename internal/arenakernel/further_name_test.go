//go:build linux

package arenakernel

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// TestOpenReplacesAFurtherNameOfARemovedArena: the file of an arena has two names when the arena is removed by one of
// them. An open by the other name makes a new arena, and Attach finds none.
func TestOpenReplacesAFurtherNameOfARemovedArena(t *testing.T) {
	for _, attach := range []bool{false, true} {
		dir := t.TempDir()
		opts := &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: LifetimeEphemeral}
		a, err := Open(dir+"/jobs", opts)
		require.NoError(t, err)
		require.NoError(t, os.Link(dir+"/jobs", dir+"/further"))
		old, err := os.Open(dir + "/jobs") // while it is open, no other file can get its inode number
		require.NoError(t, err)
		defer old.Close()
		require.NoError(t, a.Close())
		require.NoFileExists(t, dir+"/jobs")
		require.FileExists(t, dir+"/further")
		if attach {
			_, err = Attach(dir+"/further", nil)
			require.ErrorIs(t, err, fs.ErrNotExist)
			continue
		}
		b, err := Open(dir+"/further", opts)
		require.NoError(t, err)
		own, err := old.Stat()
		require.NoError(t, err)
		require.False(t, os.SameFile(own, b.info), "the file of the removed arena")
		require.Equal(t, PathThere, b.PathState())
		require.NoError(t, b.Close())
	}
}

// TestForgedRemovalKeepsTheName: a peer writes into the epoch word that the arena was removed, although a participant is
// in. An open neither joins nor removes the name.
func TestForgedRemovalKeepsTheName(t *testing.T) {
	ta := newTestArena(t, 4)
	ta.join(t, "member")
	seg, err := shm.Open(ta.name, nil)
	require.NoError(t, err)
	defer seg.Close()
	a := &Arena{membership: &membership{seg: seg}}
	a.memory, a.geo = newMemory(seg.Bytes()), plan(uint64(seg.Size()), 4)
	w := a.epochWord()
	a.u64(hdrEpoch).Store(uint64(w.with(epochRemoved)))
	_, err = Open(ta.name, &ta.opts)
	require.Error(t, err)
	require.False(t, errors.Is(err, errMoved))
	require.FileExists(t, ta.path())
	a.u64(hdrEpoch).Store(uint64(w))
}
