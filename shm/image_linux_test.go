package shm

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestImage: an image contains the bytes that were fetched, and keeps them until Refresh. A store to
// the image does not change the file.
func TestImage(t *testing.T) {
	name := uniqueName(t)
	s, err := Create(name, 4*page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	require.NoError(t, s.Reserve(page, page))
	copy(s.Bytes()[page:], greeting)
	blocks := func() int64 {
		st, err := os.Stat(s.Name())
		require.NoError(t, err)
		return st.Sys().(*syscall.Stat_t).Blocks
	}
	before := blocks()

	m, err := OpenImage(name)
	require.NoError(t, err)
	defer m.Close()
	require.Equal(t, s.Size(), m.Size())
	require.Equal(t, s.Name(), m.Name())
	read := func() string { return string(m.Bytes()[page : page+len(greeting)]) }
	require.Equal(t, string(make([]byte, len(greeting))), read(), "not fetched yet")
	m.Fetch(0, uint64(m.Size()))
	require.Equal(t, greeting, read())
	require.Equal(t, before, blocks(), "holes stay holes")

	s.Bytes()[page] = '!'
	m.Fetch(page, 1)
	require.Equal(t, greeting, read(), "it stays what it was")
	m.Bytes()[page+1] = '?'
	m.Refresh()
	m.Fetch(page, 1)
	require.Equal(t, "!"+greeting[1:], read())
	require.Equal(t, greeting[1], s.Bytes()[page+1])
	m.Fetch(uint64(m.Size()), 1)
	m.Fetch(^uint64(0), ^uint64(0))
	m.Fetch(uint64(m.Size())-1, ^uint64(0))
	require.NoError(t, m.Err())
	_, err = m.File().WriteAt([]byte{1}, 0)
	require.Error(t, err, "the file cannot be written")
}

// TestImageErrors: OpenImage returns an error for a file that cannot be read. If a file becomes
// shorter, the missing bytes are zero, and Err returns an error until Refresh.
func TestImageErrors(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	_, err := OpenImage(path)
	require.ErrorIs(t, err, fs.ErrNotExist)
	_, err = OpenImage(dir)
	require.ErrorIs(t, err, ErrIncompatible)
	_, err = OpenImage("not/../../" + uniqueName(t))
	require.Error(t, err)
	_, err = OpenImage("bad name")
	require.ErrorIs(t, err, syscall.EINVAL)
	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = OpenImage(path)
	require.ErrorIs(t, err, ErrIncompatible)
	link := uniqueName(t)
	require.NoError(t, os.Symlink(path, Dir+"/"+link))
	_, err = OpenImage(link)
	require.ErrorIs(t, err, syscall.ELOOP)

	require.NoError(t, os.WriteFile(path, bytes.Repeat([]byte{7}, 3*page), 0o600))
	m, err := OpenImage(path)
	require.NoError(t, err)
	defer m.Close()
	m.Fetch(0, 1)
	require.NoError(t, os.Truncate(path, page+10))
	m.Fetch(0, 3*page)
	require.Equal(t, byte(7), m.Bytes()[page-1])
	require.Equal(t, byte(7), m.Bytes()[page+9])
	require.Zero(t, m.Bytes()[page+10])
	require.ErrorContains(t, m.Err(), "shorter")
	m.Refresh()
	require.NoError(t, m.Err())
	m.Fetch(0, 1)
	require.NoError(t, m.Err())

	size := int64(1 << 42)
	if os.Getenv("SHMSYNC_EXEC_WRAP") != "" {
		size = 1 << 36 // an emulator needs memory for each page of a mapping
	}
	require.NoError(t, os.Truncate(path, size), "a sparse file of any size can be looked at")
	huge, err := OpenImage(path)
	if err != nil {
		require.ErrorIs(t, err, syscall.ENOMEM) // where the address space is limited
		return
	}
	huge.Fetch(uint64(size/2), 100)
	require.NoError(t, huge.Close())
}

// TestImageReadsNoHoles: an image of a sparse file copies only pieces that have bytes. So the file of another user, which
// may have any size, takes no more memory than its bytes.
func TestImageReadsNoHoles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sparse")
	f, err := os.Create(path)
	require.NoError(t, err)
	const at, size = 1<<30 + 5, 4 << 30
	if err := f.Truncate(size); err != nil {
		t.Skip("needs a file system for files of 4 GiB: ", err)
	}
	_, err = f.WriteAt([]byte("bytes"), at)
	require.NoError(t, err)
	m, err := OpenImage(path)
	require.NoError(t, err)
	defer m.Close()
	for range 2 {
		m.Fetch(0, size)
		require.NoError(t, m.Err())
		require.Equal(t, "\x00bytes\x00", string(m.Bytes()[at-1:at+6]))
		require.Less(t, residentOf(t, m.Bytes()), 8<<20)
		_, err = f.WriteAt([]byte("new"), at)
		require.NoError(t, err)
		require.Equal(t, byte('b'), m.Bytes()[at], "what has been fetched stays the same")
		m.Refresh()
		m.Fetch(at, 3)
		require.Equal(t, "new", string(m.Bytes()[at:at+3]))
		_, err = f.WriteAt([]byte("bytes"), at)
		require.NoError(t, err)
		m.Refresh()
	}
	m.Fetch(0, size)
	require.NoError(t, f.Truncate(size/2))
	m.Refresh()
	m.Fetch(size-imagePiece, imagePiece)
	require.ErrorIs(t, m.Err(), ErrIncompatible, "a file that has become shorter ends before its holes do")
}

// residentOf returns how many bytes of a mapping have memory.
func residentOf(t *testing.T, b []byte) (bytes int) {
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	var from uint64
	_, err = fmt.Sscanf(fmt.Sprintf("%p", b), "0x%x", &from)
	require.NoError(t, err)
	in := false
	for line := range strings.Lines(string(smaps)) {
		var low, high uint64
		var kib int
		if n, _ := fmt.Sscanf(line, "%x-%x ", &low, &high); n == 2 {
			in = low < from+uint64(len(b)) && high > from
		} else if n, _ := fmt.Sscanf(line, "Rss: %d kB", &kib); n == 1 && in {
			bytes += kib << 10
		}
	}
	return bytes
}
