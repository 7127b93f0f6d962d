package shm

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// TestLostDescriptorSparesOtherFiles: other code of the program closes the descriptor of a segment, and its number then
// refers to another file. Reserve finds the file of the segment by its path, and neither Reserve nor Close touches the
// other file.
func TestLostDescriptorSparesOtherFiles(t *testing.T) {
	name := uniqueName(t)
	path := filepath.Join("/dev/shm", name)
	s, err := Create(name, 4*page, nil, nil)
	require.NoError(t, err)
	other, err := unix.MemfdCreate("other", unix.MFD_CLOEXEC)
	require.NoError(t, err)
	defer unix.Close(other)
	require.NoError(t, unix.Ftruncate(other, 4*page))
	fd := int(s.File().Fd())
	require.NoError(t, unix.Dup3(other, fd, unix.O_CLOEXEC))
	defer unix.Close(fd)

	require.NoError(t, s.Reserve(0, 4*page))
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(other, &st))
	require.Zero(t, st.Blocks, "the other file got memory")
	require.NoError(t, unix.Stat(path, &st))
	require.EqualValues(t, 4*page/512, st.Blocks)

	require.NoError(t, os.Remove(path))
	require.ErrorIs(t, s.Reserve(0, 4*page), unix.ESTALE)
	require.NoError(t, s.Close())
	require.NoError(t, unix.Fstat(fd, &st), "the other file was closed")
}
