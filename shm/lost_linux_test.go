package shm

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
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

// fewFiles makes every open of a file fail until the function that it returns is called.
func fewFiles(t *testing.T) (restore func()) {
	t.Helper()
	var old unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &old))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: old.Max}))
	return func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &old)) }
}

// TestLostDescriptorWithoutADescriptor: a segment has lost its descriptor, and this process can open no file for a time.
// The error says that, and does not say that the file is gone.
func TestLostDescriptorWithoutADescriptor(t *testing.T) {
	s, err := Create(uniqueName(t), 4*page, nil, nil)
	require.NoError(t, err)
	defer s.Close()
	fd := int(s.File().Fd())
	require.NoError(t, unix.Dup3(0, fd, unix.O_CLOEXEC))
	defer unix.Close(fd)
	restore := fewFiles(t)
	err = s.Reserve(0, 4*page)
	restore()
	require.ErrorIs(t, err, unix.EMFILE)
	require.NotErrorIs(t, err, unix.ESTALE)
	require.NoError(t, s.Reserve(0, 4*page))
}

// TestOverflowUIDIsReadAgain: a process without a free descriptor cannot read the overflow uid, and gets an error.
// Later it has a descriptor and gets the right uid. After that it needs no descriptor to get the uid.
func TestOverflowUIDIsReadAgain(t *testing.T) {
	known := knownOverflowUID.Swap(0)
	defer knownOverflowUID.Store(known)
	restore := fewFiles(t)
	_, err := overflowUID()
	restore()
	require.ErrorIs(t, err, unix.EMFILE)
	uid, err := overflowUID()
	require.NoError(t, err)
	b, err := os.ReadFile("/proc/sys/kernel/overflowuid")
	require.NoError(t, err)
	require.Equal(t, strings.TrimSpace(string(b)), strconv.FormatUint(uint64(uid), 10))
	restore = fewFiles(t)
	again, err := overflowUID()
	restore()
	require.NoError(t, err)
	require.Equal(t, uid, again)
}
