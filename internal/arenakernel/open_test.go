//go:build linux

package arenakernel

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestFailedAllocationGivesMemoryBack checks that an allocation that fails for lack of memory leaves the file system as
// it was. The file system has enough memory for the chunks of the span, but then no memory for their block words.
func TestFailedAllocationGivesMemoryBack(t *testing.T) {
	dir := mountSmall(t, "size=16m")
	a, err := Open(filepath.Join(dir, "jobs"), &Options{Size: 64 << 20, MaxParticipants: 8})
	require.NoError(t, err)
	defer a.Close()
	free := func() uint64 {
		var fs unix.Statfs_t
		require.NoError(t, unix.Statfs(dir, &fs))
		return fs.Bavail * uint64(fs.Bsize)
	}
	before := free()
	n := before / chunkSize
	_, err = a.Alloc(n*chunkSize, 0)
	require.ErrorIs(t, err, shmsync.ErrNoSpace)
	require.Equal(t, before, free())
	require.Zero(t, a.Stats().Reserved)
	_, err = a.Alloc((n-n/10)*chunkSize, 0)
	require.NoError(t, err)
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

// sparseFull makes an arena in a file system of its own, and makes a hole of each page of zeros of the file. Then it
// fills the file system up to the last 64 KiB, which are too little for the slots of the arena. It returns the path.
func sparseFull(t *testing.T) (path string) {
	t.Helper()
	dir := mountSmall(t, "size=3m")
	path = filepath.Join(dir, "jobs")
	a, err := Open(path, &Options{Size: 8 << 20, MaxParticipants: 64})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	digHoles(t, path)
	filler, err := os.Create(filepath.Join(dir, "filler"))
	require.NoError(t, err)
	defer filler.Close()
	var fs unix.Statfs_t
	require.NoError(t, unix.Statfs(dir, &fs))
	require.NoError(t, unix.Fallocate(int(filler.Fd()), 0, 0, int64(fs.Bavail)*int64(fs.Bsize)-64<<10))
	return path
}

// digHoles makes a hole of each page of zeros of a file.
func digHoles(t *testing.T, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	page := os.Getpagesize()
	for off := 0; off < len(content); off += page {
		if bytes.Count(content[off:off+page], []byte{0}) == page {
			require.NoError(t, unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(off), int64(page)))
		}
	}
}

// withoutFault calls f. If f accesses a page of a mapped file for which there is no memory, the test fails.
func withoutFault(t *testing.T, f func() error) (err error) {
	t.Helper()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	require.NotPanics(t, func() { err = f() })
	return err
}

// TestRemoveOfASparseFileOnAFullFileSystem: Remove removes the sparse copy of an arena from a full file system. It
// leaves a file that another process has open.
func TestRemoveOfASparseFileOnAFullFileSystem(t *testing.T) {
	t.Run("unused", func(t *testing.T) {
		path := sparseFull(t)
		require.NoError(t, withoutFault(t, func() error { return Remove(path) }))
		require.NoFileExists(t, path)
	})
	t.Run("replaced", func(t *testing.T) {
		path := sparseFull(t)
		var a *Arena
		require.NoError(t, withoutFault(t, func() (err error) {
			a, err = Open(path, &Options{Size: 256 << 10, MaxParticipants: 4, Recreate: RecreateIncompatible})
			return err
		}))
		require.NoError(t, a.Close())
	})
	t.Run("open", func(t *testing.T) {
		path := sparseFull(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		var a Arena
		a.membership = &membership{}
		a.geo = plan(8<<20, 64)
		locked, err := shmsync.LockByte(f, a.lockByte(64)) // the page of this slot is a hole
		require.NoError(t, err)
		require.True(t, locked)
		withPauses(t, func(time.Duration) {
			require.NoError(t, shmsync.UnlockByte(f, a.lockByte(64)))
		})
		require.NoError(t, withoutFault(t, func() error { return Remove(path) }))
		require.NoFileExists(t, path)
	})
	t.Run("no byte lock", func(t *testing.T) {
		path := sparseFull(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		var word [4]byte
		binary.LittleEndian.PutUint32(word[:], uint32(makeSlotWord(phaseLive, 5)))
		_, err = f.WriteAt(word[:], headerSize) // the first page of slots, which is no hole
		require.NoError(t, err)
		withPauses(t, func(time.Duration) {
			binary.LittleEndian.PutUint32(word[:], uint32(makeSlotWord(phaseFree, 5)))
			_, err = f.WriteAt(word[:], headerSize)
			require.NoError(t, err)
		})
		require.NoError(t, withoutFault(t, func() error { return Remove(path) }))
		require.NoFileExists(t, path)
	})
	t.Run("gate", func(t *testing.T) {
		path := sparseFull(t)
		f, err := os.OpenFile(path, os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		locked, err := shmsync.LockByte(f, gateByte)
		require.NoError(t, err)
		require.True(t, locked)
		withPauses(t, func(time.Duration) {
			require.NoError(t, shmsync.UnlockByte(f, gateByte))
		})
		require.NoError(t, withoutFault(t, func() error { return Remove(path) }))
		require.NoFileExists(t, path)
	})
}

// withPauses replaces the pauses of removals. The first pause is a call of f, and later pauses do nothing. The test
// fails if no removal pauses.
func withPauses(t *testing.T, f func(time.Duration)) {
	t.Helper()
	pauses, old := 0, pauseRemoval
	pauseRemoval = func(d time.Duration) {
		if pauses++; pauses == 1 {
			f(d)
		}
	}
	t.Cleanup(func() {
		pauseRemoval = old
		require.Positive(t, pauses)
	})
}

// TestFailedOpenRemovesItsEphemeralArena: an Open that has created an ephemeral arena and then fails removes the arena. It
// leaves an arena that is not ephemeral.
func TestFailedOpenRemovesItsEphemeralArena(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs")
	failure := errors.New("not now")
	opts := &Options{Size: 4 << 20, Lifetime: LifetimeEphemeral, OnFirst: func(*Arena, Epoch) error { return failure }}
	for _, join := range []func(string, *Options) (*Arena, error){Open, Create} {
		_, err := join(path, opts)
		require.ErrorIs(t, err, failure)
		require.NoFileExists(t, path)
	}
	durable := *opts
	durable.Lifetime = LifetimeDurable
	_, err := Create(path, &durable)
	require.ErrorIs(t, err, failure)
	require.FileExists(t, path)
	_, err = Create(path, &durable)
	require.ErrorIs(t, err, fs.ErrExist)
	_, err = Attach(path, &durable)
	require.ErrorIs(t, err, failure)
	require.FileExists(t, path)
}

// TestFailedJoinRemovesItsEphemeralArena: an Open that has created an ephemeral arena and cannot join it removes the
// arena.
func TestFailedJoinRemovesItsEphemeralArena(t *testing.T) {
	path := filepath.Join(t.TempDir(), "jobs")
	failure := errors.New("not now")
	defer func(before func(*shm.Segment) (*os.File, error)) { reopen = before }(reopen)
	reopen = func(*shm.Segment) (*os.File, error) { return nil, failure }
	_, err := Open(path, &Options{Size: 4 << 20, Lifetime: LifetimeEphemeral})
	require.ErrorIs(t, err, failure)
	require.NoFileExists(t, path)
	_, err = Open(path, &Options{Size: 4 << 20})
	require.ErrorIs(t, err, failure)
	require.FileExists(t, path)
}
