//go:build linux

package arenakernel

import (
	"bytes"
	"crypto/sha256"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/shm"
)

// attempts lists the ways to join an existing file in /dev/shm.
var attempts = map[string]func(name string, opts *Options) (*Arena, error){
	"Open":   Open,
	"Attach": Attach,
	"FromSegment": func(name string, opts *Options) (*Arena, error) {
		seg, err := shm.Open(name, nil)
		if err != nil {
			return nil, err
		}
		return FromSegment(seg, opts)
	},
}

// requireRefused checks three things: no process can join the file, the error names the file and contains each
// text of the parameter says, and the file does not change.
func requireRefused(t *testing.T, name string, opts *Options, kind error, says ...string) {
	t.Helper()
	path := filepath.Join(shm.Dir, name)
	before := fingerprint(t, path)
	for how, attempt := range attempts {
		a, err := attempt(name, opts)
		require.Nil(t, a, how)
		require.ErrorIs(t, err, kind, how)
		var e *shmsync.Error
		require.ErrorAs(t, err, &e, how)
		require.ErrorContains(t, err, name, how)
		for _, s := range says {
			require.ErrorContains(t, err, s, how)
		}
	}
	require.Equal(t, before, fingerprint(t, path), "the file was changed")
	require.Empty(t, attachedNow(path))
}

func fingerprint(t *testing.T, path string) any {
	t.Helper()
	st, err := os.Stat(path)
	require.NoError(t, err)
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	return []any{st.Size(), st.Mode(), sha256.Sum256(b)}
}

// attachedNow returns the lines of /proc/self/maps for the file. After a refused join there must be
// none.
func attachedNow(path string) (lines []string) {
	maps, _ := os.ReadFile("/proc/self/maps")
	for line := range strings.Lines(string(maps)) {
		if strings.Contains(line, path) {
			lines = append(lines, line)
		}
	}
	return lines
}

// newFile makes a file in /dev/shm with those contents.
func newFile(t *testing.T, content []byte) string {
	ta := newTestArena(t, 4)
	require.NoError(t, os.WriteFile(ta.path(), content, 0o600))
	return ta.name
}

func TestFilesThatAreNoArena(t *testing.T) {
	page := os.Getpagesize()
	good := formatted(t, 1<<20, 4)
	for name, c := range badHeaders {
		t.Run(name, func(t *testing.T) {
			b := bytes.Clone(good)
			c.change(b)
			requireRefused(t, newFile(t, b), nil, c.kind, c.says)
		})
	}
	for name, c := range map[string]struct {
		content []byte
		kind    error
		says    string
	}{
		"empty":                {nil, shmsync.ErrIncompatible, "is empty"},
		"one byte":             {[]byte{'x'}, shmsync.ErrIncompatible, "less than a page"},
		"odd size":             {good[:3*page+1], shmsync.ErrIncompatible, "multiple of the page size"},
		"one page":             {good[:page], shmsync.ErrCorrupt, "it was made 1048576 bytes long and is"},
		"truncated":            {good[:len(good)-page], shmsync.ErrCorrupt, "it was made 1048576 bytes long and is"},
		"grown":                {append(bytes.Clone(good), make([]byte, page)...), shmsync.ErrCorrupt, "it was made 1048576 bytes long and is"},
		"a page of zeroes":     {make([]byte, page), shmsync.ErrIncompatible, "not an arena"},
		"a page of other data": {bytes.Repeat([]byte("data"), page/4), shmsync.ErrIncompatible, "not an arena"},
	} {
		t.Run(name, func(t *testing.T) { requireRefused(t, newFile(t, c.content), nil, c.kind, c.says) })
	}
}

func TestThingsThatAreNoFile(t *testing.T) {
	ta := newTestArena(t, 4)
	refused := func(t *testing.T, kind error, says string) {
		for how, attempt := range attempts {
			_, err := attempt(ta.name, nil)
			require.ErrorIs(t, err, kind, how)
			require.ErrorContains(t, err, ta.name, how)
			require.ErrorContains(t, err, says, how)
		}
		require.NoError(t, os.Remove(ta.path()))
	}
	require.NoError(t, os.Mkdir(ta.path(), 0o700))
	refused(t, shmsync.ErrIncompatible, "regular file")
	require.NoError(t, unix.Mkfifo(ta.path(), 0o600))
	refused(t, shmsync.ErrIncompatible, "regular file")
	target := filepath.Join(t.TempDir(), "target")
	require.NoError(t, os.WriteFile(target, formatted(t, 1<<20, 4), 0o600))
	require.NoError(t, os.Symlink(target, ta.path()))
	refused(t, shmsync.ErrIncompatible, "symbolic link")
	_, err := Attach(ta.name, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorContains(t, err, ta.name)
}

func TestNames(t *testing.T) {
	for name, says := range map[string]string{
		"":                       "empty",
		".":                      "directory",
		"..":                     "directory",
		"two words":              `' '`,
		"new\nline":              `'\n'`,
		"nul\x00":                `'\x00'`,
		"größe":                  "only letters",
		strings.Repeat("x", 201): "201 bytes",
	} {
		for how, attempt := range attempts {
			_, err := attempt(name, nil)
			require.ErrorIs(t, err, syscall.EINVAL, "%s %q", how, name)
			require.ErrorContains(t, err, says, how)
		}
		_, err := Create(name, nil)
		require.ErrorIs(t, err, syscall.EINVAL, "%q", name)
	}
	long := newTestArena(t, 4)
	long.name += strings.Repeat("x", 200-len(long.name))
	defer shm.Remove(long.name)
	a, err := Create(long.name, &long.opts)
	require.NoError(t, err)
	require.NoError(t, a.Close())
}

func TestOptionsThatDiffer(t *testing.T) {
	ta := newTestArena(t, 4)
	a, err := Create(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	differ := func(t *testing.T) {
		for how, attempt := range attempts {
			_, err := attempt(ta.name, &Options{MaxParticipants: 5})
			require.ErrorIs(t, err, shmsync.ErrIncompatible, how)
			require.ErrorContains(t, err, "MaxParticipants is 4, asked for 5")
			require.ErrorContains(t, err, ta.name)
			_, err = attempt(ta.name, &Options{Size: 3 << 20})
			require.ErrorIs(t, err, shmsync.ErrIncompatible, how)
			require.ErrorContains(t, err, "Size is 2097152, asked for 3145728")
		}
	}
	t.Run("in the same process", differ)
	require.Equal(t, 1, a.opens)
	// The requested size is rounded before it is compared.
	b, err := Open(ta.name, &Options{Size: 2<<20 - 5, MaxParticipants: 4, Label: "other"})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	for what, o := range map[string]*Options{
		"-1":   {MaxParticipants: -1},
		"2048": {MaxParticipants: MaxSlots + 1},
		"-4":   {Size: -4},
	} {
		_, err := Open(newTestArena(t, 4).name, o)
		require.ErrorIs(t, err, shmsync.ErrIncompatible)
		require.ErrorContains(t, err, what)
	}
	require.NoError(t, a.Close())
	a.opens = 0
	t.Run("in another process", differ)
}

func TestTooSmallForItsParticipants(t *testing.T) {
	ta := newTestArena(t, MaxSlots)
	ta.opts.Size = 1 << 20
	for how, create := range map[string]func(string, *Options) (*Arena, error){"Open": Open, "Create": Create} {
		_, err := create(ta.name, &ta.opts)
		require.ErrorIs(t, err, shmsync.ErrNoSpace, how)
		require.ErrorContains(t, err, "too few for 2047 participants", how)
		require.ErrorContains(t, err, ta.name, how)
		require.NoFileExists(t, ta.path())
	}
}

// mountSmall mounts a tmpfs with the given mount options, which limit its size.
func mountSmall(t *testing.T, options string) string {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a tmpfs")
	}
	dir := filepath.Join(t.TempDir(), "tmpfs")
	require.NoError(t, os.Mkdir(dir, 0o755))
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, options); err != nil {
		t.Skipf("needs a tmpfs of its own, and this process may not mount one: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// TestFullFileSystem: on a full file system, calls return an error. They never cause a fault such as
// SIGBUS.
func TestFullFileSystem(t *testing.T) {
	dir := mountSmall(t, "size=1m")
	path := filepath.Join(dir, "jobs")
	create := func(slots int) (*shm.Segment, error) {
		return shm.CreateAt(path, 16<<20, func(s *shm.Segment) error { return Format(s, &Options{MaxParticipants: slots}) }, nil)
	}
	_, err := create(1000) // the slots take two MiB
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.ErrorContains(t, err, path)
	require.NoFileExists(t, path)

	seg, err := create(8)
	require.NoError(t, err)
	a, err := FromSegment(seg, nil)
	require.NoError(t, err)
	var blocks []Offset
	for {
		off, err := a.Alloc(20000, 0)
		if err != nil {
			require.ErrorIs(t, err, shmsync.ErrNoSpace)
			require.ErrorContains(t, err, path)
			require.ErrorContains(t, err, "shared memory is full")
			break
		}
		copy(a.slice(off, 20000), bytes.Repeat([]byte{1}, 20000))
		blocks = append(blocks, off)
		require.Less(t, len(blocks), 1000)
	}
	require.NotEmpty(t, blocks)
	_, err = a.Alloc(3*chunkSize, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	_, _, err = a.OpenObject(ObjectSpec{Kind: testKind, Name: "big", Size: 200000})
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.NoError(t, a.Check())
	for _, off := range blocks {
		a.Free(off)
	}
	again, err := a.Alloc(20000, 0)
	require.NoError(t, err)
	a.Free(again)
	require.Zero(t, a.Stats().Claimed)
	require.NoError(t, a.Close())
}

// TestSparseCopyOnAFullFileSystem: a sparse copy of an arena cannot be joined if its file system has
// too little room for the parts that every arena has.
func TestSparseCopyOnAFullFileSystem(t *testing.T) {
	dir := mountSmall(t, "size=64k")
	path := filepath.Join(dir, "jobs")
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.Write(formatted(t, 4<<20, 128)[:headerSize])
	require.NoError(t, err)
	require.NoError(t, f.Truncate(4<<20))
	seg, err := shm.OpenAt(path, nil)
	require.NoError(t, err)
	_, err = FromSegment(seg, nil)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.ErrorContains(t, err, path)
}
