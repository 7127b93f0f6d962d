package shm

import (
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
)

func TestCreateThenOpen(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	eachCreation(t, func(t *testing.T) {
		name := uniqueName(t)
		a, err := Create(name, 3*page+1, greet, &Options{Mode: 0o640})
		require.NoError(t, err)
		closing(t, a)
		wantSize, _ := roundSize(3*page+1, int64(os.Getpagesize()))
		require.Equal(t, wantSize, a.Size())
		require.Equal(t, "/dev/shm/"+name, a.Name())

		b, err := Open(name, nil)
		require.NoError(t, err)
		closing(t, b)
		require.Equal(t, a.Size(), b.Size())
		require.True(t, greeted(b))
		require.Zero(t, b.Bytes()[page])
		a.Bytes()[page] = 42
		require.EqualValues(t, 42, b.Bytes()[page])

		dev, ino := a.ID()
		dev2, ino2 := b.ID()
		require.Equal(t, []uint64{dev, ino}, []uint64{dev2, ino2})
		fi, err := os.Stat(a.Name())
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o640), fi.Mode(), "the umask must not count")
	})
}

func TestCreateDefaultMode(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "seg")
		s, err := CreateAt(path, page, nil, nil)
		require.NoError(t, err)
		closing(t, s)
		fi, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, fs.FileMode(0o600), fi.Mode())
		require.Equal(t, []string{"seg"}, entries(t, filepath.Dir(path)))
		other, err := s.Reopen()
		require.NoError(t, err)
		defer other.Close()
		require.NoError(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB), "creation must leave no lock behind")
		require.Equal(t, unix.EWOULDBLOCK, unix.Flock(int(s.File().Fd()), unix.LOCK_EX|unix.LOCK_NB), "Reopen has an open file description of its own")
	})
}

func TestCreateTaken(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		dir := t.TempDir()
		require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("mine"), 0o600))
		require.NoError(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
		require.NoError(t, os.Symlink("nowhere", filepath.Join(dir, "link")))
		for _, base := range []string{"file", "dir", "link"} {
			_, err := CreateAt(filepath.Join(dir, base), page, greet, nil)
			require.ErrorIs(t, err, fs.ErrExist)
			require.ErrorIs(t, err, unix.EEXIST)
			require.ErrorContains(t, err, filepath.Join(dir, base))
		}
		// Another process takes the name while init runs.
		path := filepath.Join(dir, "late")
		_, err := CreateAt(path, page, func(*Segment) error {
			return os.WriteFile(path, []byte("theirs"), 0o600)
		}, nil)
		require.ErrorIs(t, err, fs.ErrExist)
		for base, want := range map[string]string{"file": "mine", "late": "theirs"} {
			got, err := os.ReadFile(filepath.Join(dir, base))
			require.NoError(t, err)
			require.Equal(t, want, string(got))
		}
		require.Equal(t, []string{"dir", "file", "late", "link"}, entries(t, dir))
	})
}

func TestCreateInitFails(t *testing.T) {
	eachCreation(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "seg")
		why := errors.New("no reason")
		var seen *Segment
		_, err := CreateAt(path, page, func(s *Segment) error { seen = s; return why }, nil)
		require.ErrorIs(t, err, why)
		require.ErrorContains(t, err, path)
		require.Nil(t, seen.Bytes(), "must be closed")
		require.Empty(t, entries(t, filepath.Dir(path)))
		_, created, err := OpenOrCreateAt(path, page, func(*Segment) error { return why }, nil)
		require.ErrorIs(t, err, why)
		require.False(t, created)
		require.Panics(t, func() { CreateAt(path, page, func(s *Segment) error { seen = s; panic("oh") }, nil) })
		require.Nil(t, seen.Bytes(), "must be closed")
		require.Empty(t, entries(t, filepath.Dir(path)))
	})
}

func TestCreateBadArguments(t *testing.T) {
	dir := t.TempDir()
	for what, c := range map[string]struct {
		path string
		size int64
		opts *Options
		want error
	}{
		"zero size":         {"seg", 0, nil, syscall.EINVAL},
		"negative size":     {"seg", -1, nil, syscall.EINVAL},
		"overflowing size":  {"seg", math.MaxInt64, nil, syscall.EFBIG},
		"executable":        {"seg", page, &Options{Mode: 0o700}, syscall.EINVAL},
		"setuid":            {"seg", page, &Options{Mode: 0o600 | fs.ModeSetuid}, syscall.EINVAL},
		"unknown huge page": {"seg", page, &Options{HugePages: 9}, syscall.EINVAL},
		"named huge page":   {"seg", page, &Options{HugePages: Huge2M}, ErrNotSupported},
		"bad policy":        {"seg", page, &Options{NUMA: Policy{Mode: PolicyBind}}, syscall.EINVAL},
		"no directory":      {"none/seg", page, nil, fs.ErrNotExist},
		"trailing slash":    {"seg/", page, nil, syscall.EINVAL},
		"dot":               {".", page, nil, syscall.EINVAL},
		"temporary name":    {tempName("seg"), page, nil, syscall.EINVAL},
		"NUL":               {"s\x00g", page, nil, syscall.EINVAL},
		"too long":          {strings.Repeat("x", 256), page, nil, syscall.ENAMETOOLONG},
	} {
		t.Run(what, func(t *testing.T) {
			eachCreation(t, func(t *testing.T) {
				path := dir + "/" + c.path
				_, err := CreateAt(path, c.size, nil, c.opts)
				require.ErrorIs(t, err, c.want)
				require.ErrorContains(t, err, printable(path))
				var e *shmsync.Error
				require.ErrorAs(t, err, &e)
				require.Equal(t, "shm.create", e.Op)
				require.Empty(t, entries(t, dir))
			})
		})
	}
}

func TestRemoveKeepsMapping(t *testing.T) {
	name := uniqueName(t)
	s, err := Create(name, page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	require.NoError(t, Remove(name))
	_, err = Open(name, nil)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.ErrorIs(t, Remove(name), fs.ErrNotExist)
	require.True(t, greeted(s))

	again, err := FromFile(s.File(), nil)
	require.NoError(t, err)
	closing(t, again)
	s.Bytes()[1] = 7
	require.EqualValues(t, 7, again.Bytes()[1])
	f, err := s.Reopen()
	require.NoError(t, err)
	require.NoError(t, f.Close())
}

func TestList(t *testing.T) {
	name := uniqueName(t)
	s, err := Create(name, 2*page, nil, &Options{Mode: 0o644})
	require.NoError(t, err)
	closing(t, s)
	odd := uniqueName(t)
	require.NoError(t, os.WriteFile(Dir+"/"+odd, []byte("short"), 0o600))
	link := uniqueName(t)
	require.NoError(t, os.Symlink(name, Dir+"/"+link))

	var found Info
	for info, err := range List() {
		require.NoError(t, err)
		require.NotContains(t, []string{odd, link}, info.Name)
		if info.Name == name {
			found = info
		}
	}
	require.EqualValues(t, 2*page, found.Size)
	require.Equal(t, fs.FileMode(0o644), found.Mode)
	require.EqualValues(t, os.Geteuid(), found.UID)
	require.False(t, found.ModTime.IsZero())
	for range List() {
		break // must not go on
	}
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(dir+"/sub", 0o700))
	for info := range list(dir) {
		require.Fail(t, "a directory is no segment", "%+v", info)
	}
	for _, err := range list("/nonexistent") {
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}

func init() {
	proctest.Register("create/without-proc", func(c *proctest.Child) {
		var dir string
		c.Params(&dir)
		if err := unix.Chroot(dir); err != nil {
			c.Fatal(err)
		}
		runs := 0
		s, err := CreateAt("/seg", page, func(s *Segment) error { runs++; return greet(s) }, nil)
		if err != nil || runs != 1 {
			c.Fatalf("init ran %d times: %v", runs, err)
		}
		_, err = s.Reopen()
		if !errors.Is(err, ErrNotSupported) || !errors.Is(err, fs.ErrNotExist) {
			c.Fatalf("Reopen: %v", err)
		}
	})
}

func TestCreateWithoutProc(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: its process changes its root directory", "create/without-proc")
	}
	dir := t.TempDir()
	proctest.Start(t, "create/without-proc", proctest.Params(dir)).WaitExit(t)
	require.Equal(t, []string{"seg"}, entries(t, dir))
	s, err := OpenAt(dir+"/seg", nil)
	require.NoError(t, err)
	closing(t, s)
	require.True(t, greeted(s))
}
