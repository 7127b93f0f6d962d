package shm

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestOpenBadFile(t *testing.T) {
	write := func(n int) func(string) error {
		return func(path string) error { return os.WriteFile(path, make([]byte, n), 0o600) }
	}
	size := os.Getpagesize()
	for what, c := range map[string]struct {
		make func(path string) error
		want []error
		says string
	}{
		"missing":   {func(string) error { return nil }, []error{fs.ErrNotExist, unix.ENOENT}, "no such file"},
		"empty":     {write(0), []error{ErrIncompatible, unix.EINVAL}, "is empty"},
		"truncated": {write(100), []error{ErrIncompatible, unix.EINVAL}, "is 100 bytes long, less than a page"},
		"odd size":  {write(size + 1), []error{ErrIncompatible, unix.EINVAL}, "not a multiple of the page size"},
		"directory": {func(p string) error { return os.Mkdir(p, 0o700) }, []error{ErrIncompatible, unix.EISDIR}, "not a regular file"},
		"fifo":      {func(p string) error { return unix.Mkfifo(p, 0o600) }, []error{ErrIncompatible}, "not a regular file"},
		"symlink": {func(p string) error {
			return errors.Join(write(size)(p+".target"), os.Symlink(p+".target", p))
		}, []error{ErrIncompatible, unix.ELOOP}, "symbolic link"},
		"socket": {func(p string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
			return errors.Join(err, unix.Bind(fd, &unix.SockaddrUnix{Name: p}), unix.Close(fd))
		}, []error{ErrIncompatible, unix.ENXIO}, "not a regular file"},
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "seg")
			require.NoError(t, c.make(path))
			before, _ := os.Lstat(path)
			s, err := OpenAt(path, nil)
			require.Nil(t, s)
			for _, want := range c.want {
				require.ErrorIs(t, err, want)
			}
			require.ErrorContains(t, err, "open "+path)
			require.ErrorContains(t, err, c.says)
			after, _ := os.Lstat(path)
			if before != nil {
				require.Equal(t, before.Size(), after.Size())
				require.Equal(t, before.ModTime(), after.ModTime())
				_, _, err = OpenOrCreateAt(path, page, nil, nil)
				require.ErrorIs(t, err, c.want[0])
			}
		})
	}
}

func TestOpenBadName(t *testing.T) {
	for _, name := range []string{"", "..", "a/b", "/abs"} {
		_, err := Open(name, nil)
		require.ErrorIs(t, err, syscall.EINVAL)
		_, err = Create(name, page, nil, nil)
		require.ErrorIs(t, err, syscall.EINVAL)
		_, _, err = OpenOrCreate(name, page, nil, nil)
		require.ErrorIs(t, err, syscall.EINVAL)
		require.ErrorIs(t, Remove(name), syscall.EINVAL)
	}
}

func TestOpenForeignOwner(t *testing.T) {
	needRoot(t, "give a file away")
	const uid = 12345
	path := filepath.Join(t.TempDir(), "seg")
	s, err := CreateAt(path, page, greet, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, os.Chown(path, uid, -1))

	_, err = OpenAt(path, nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorIs(t, err, unix.EPERM)
	require.ErrorContains(t, err, path+": is owned by uid 12345")
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = FromFile(f, nil)
	require.ErrorIs(t, err, unix.EPERM)

	s, err = OpenAt(path, &Options{TrustUIDs: []uint32{1, uid}})
	require.NoError(t, err)
	closing(t, s)
	require.True(t, greeted(s))
}

// TestGroupOfANewSegment checks which group a new file gets: the primary group of its creator or, in a directory with the
// setgid bit, the group of the directory. The manual says so, because users that share an arena need a common group.
func TestGroupOfANewSegment(t *testing.T) {
	needRoot(t, "give a directory to a group")
	const gid = 12345
	for _, c := range []struct {
		mode os.FileMode
		want int
	}{{0o700, os.Getegid()}, {0o700 | os.ModeSetgid, gid}} {
		dir := t.TempDir()
		require.NoError(t, os.Chown(dir, -1, gid))
		require.NoError(t, os.Chmod(dir, c.mode))
		s, err := CreateAt(filepath.Join(dir, "seg"), page, greet, &Options{Mode: 0o660})
		require.NoError(t, err)
		closing(t, s)
		var st unix.Stat_t
		require.NoError(t, unix.Stat(filepath.Join(dir, "seg"), &st))
		require.EqualValues(t, c.want, st.Gid)
		require.EqualValues(t, 0o660, st.Mode&0o7777)
	}
}

const nobody = 65534

func init() {
	proctest.Register("open/nobody", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		err := errors.Join(syscall.Setgroups(nil), syscall.Setresgid(nobody, nobody, nobody), syscall.Setresuid(nobody, nobody, nobody))
		if err != nil {
			c.Fatal(err)
		}
		_, err = Open(name, nil)
		if !errors.Is(err, fs.ErrPermission) || !errors.Is(err, unix.EACCES) {
			c.Fatalf("Open without permission: %v", err)
		}
		if text := ": uid 65534 may not read and write this file of uid 0 and gid 0 with mode 0600: permission denied"; !strings.Contains(err.Error(), text) {
			c.Fatalf("Open does not say why: %v", err)
		}
		if _, err := CreateAt("/proc/self/seg", page, nil, nil); err == nil {
			c.Fatal("created a file in /proc")
		}
		// An inherited descriptor needs no permission, and files of root are trusted.
		s, err := FromFile(c.File(0), nil)
		if err != nil {
			c.Fatal(err)
		}
		s.Bytes()[page-1]++
		if _, err := s.Reopen(); !errors.Is(err, fs.ErrPermission) {
			c.Fatalf("Reopen without permission: %v", err)
		}
	})
}

func init() {
	proctest.Register("open/unmapped", func(c *proctest.Child) {
		var paths []string
		c.Params(&paths)
		own, foreign := paths[0], paths[1]
		s, err := OpenAt(own, nil)
		if err != nil {
			c.Fatal(err)
		}
		s.Bytes()[page-1]++
		if _, err := OpenAt(foreign, nil); !errors.Is(err, unix.EPERM) {
			c.Fatalf("Open of a file of another user: %v", err)
		}
		for i := range 2 {
			f := c.File(i)
			if _, err := FromFile(f, nil); !errors.Is(err, unix.EPERM) {
				c.Fatalf("FromFile for a file of another user: %v", err)
			}
		}
	})
}

// TestUnmappedUserIsNobody: in a user namespace that maps no user, this process and the owners of all files have the same
// uid. The process opens its own files, and no others.
func TestUnmappedUserIsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: it changes the owner of a file", "open/unmapped")
	}
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	proctest.NeedAttr(t, attr, "a user namespace", "open/unmapped")
	own, err := Create(uniqueName(t), page, nil, nil)
	require.NoError(t, err)
	closing(t, own)
	foreign, err := Create(uniqueName(t), page, nil, &Options{Mode: 0o666})
	require.NoError(t, err)
	closing(t, foreign)
	require.NoError(t, os.Chown(foreign.Name(), 12345, -1))
	plain, err := os.OpenFile(foreign.Name(), os.O_RDWR, 0)
	require.NoError(t, err)
	defer plain.Close()
	flagged, err := os.OpenFile(foreign.Name(), os.O_RDWR|unix.O_NOATIME, 0)
	require.NoError(t, err)
	defer flagged.Close()
	proctest.Start(t, "open/unmapped", proctest.Params([]string{own.Name(), foreign.Name()}),
		proctest.Files(plain, flagged), proctest.Attr(attr)).WaitExit(t)
	require.EqualValues(t, 1, own.Bytes()[page-1])
}

func TestOpenNoPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: its process becomes another user", "open/nobody")
	}
	name := uniqueName(t)
	s, err := Create(name, page, nil, nil)
	require.NoError(t, err)
	closing(t, s)
	proctest.Start(t, "open/nobody", proctest.Params(name), proctest.Files(s.File())).WaitExit(t)
	require.EqualValues(t, 1, s.Bytes()[page-1])
}

func TestFromFileBad(t *testing.T) {
	_, err := FromFile(nil, nil)
	require.ErrorIs(t, err, syscall.EINVAL)

	path := filepath.Join(t.TempDir(), "seg")
	require.NoError(t, os.WriteFile(path, make([]byte, page), 0o600))
	f, err := os.Open(path)
	require.NoError(t, err)
	_, err = FromFile(f, nil)
	require.ErrorIs(t, err, fs.ErrPermission)
	require.ErrorContains(t, err, path+": is not open for reading and writing")
	require.NoError(t, f.Close())
	_, err = FromFile(f, nil)
	require.ErrorIs(t, err, os.ErrClosed)

	r, w, err := os.Pipe()
	require.NoError(t, err)
	defer r.Close()
	defer w.Close()
	_, err = FromFile(r, nil)
	require.Error(t, err)
	d, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	require.NoError(t, err)
	defer d.Close()
	_, err = FromFile(d, nil)
	require.ErrorIs(t, err, ErrIncompatible)
}

// TestErrorsEscapeNames: an error about a file whose name has control characters shows them with escapes.
func TestErrorsEscapeNames(t *testing.T) {
	dir := t.TempDir()
	_, err := OpenAt(dir+"/a\n\x1b[2Jb", nil)
	require.EqualError(t, err, `shm: open "`+dir+`/a\n\x1b[2Jb": no such file or directory`)
	_, err = OpenAt(dir+"/plain ü", nil)
	require.EqualError(t, err, "shm: open "+dir+"/plain ü: no such file or directory")
}

// TestRetire: after Retire the addresses can be read and written for a while, but no longer contain the
// bytes of the segment.
func TestRetire(t *testing.T) {
	s, err := CreateMemfd("retired", 4*page, nil, nil)
	require.NoError(t, err)
	f, err := s.Reopen()
	require.NoError(t, err)
	other, err := FromFile(f, nil)
	require.NoError(t, err)
	defer other.Close()
	mem := s.Bytes()
	mem[0], mem[3*page] = 1, 2
	const long = time.Hour
	require.NoError(t, s.Retire(long))
	require.Nil(t, s.Bytes())
	require.NoError(t, s.Close())
	_, err = s.File().Stat()
	require.ErrorIs(t, err, os.ErrClosed)
	require.Zero(t, mem[0])
	require.Zero(t, mem[3*page])
	mem[0] = 3
	require.EqualValues(t, 3, mem[0])
	require.EqualValues(t, 1, other.Bytes()[0])
	require.EqualValues(t, 2, other.Bytes()[3*page])
	require.NoError(t, unmap(mem))
}

func TestCloseTwice(t *testing.T) {
	s, err := CreateMemfd("twice", page, nil, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Nil(t, s.Bytes())
	require.EqualValues(t, page, s.Size())
	require.ErrorIs(t, s.Reserve(0, 1), ErrClosed)
	_, err = s.Reopen()
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.Place(0, 1, Policy{}).Err, ErrClosed)
	_, err = s.File().Stat()
	require.ErrorIs(t, err, os.ErrClosed)
}
