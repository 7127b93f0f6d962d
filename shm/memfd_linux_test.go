package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestMemfdSeals(t *testing.T) {
	s, err := CreateMemfd("sealed", page+1, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	require.True(t, greeted(s))
	require.Equal(t, "memfd:sealed", s.Name())
	require.Greater(t, s.Size(), int64(page))
	require.ErrorIs(t, s.File().Truncate(0), fs.ErrPermission)
	require.ErrorIs(t, s.File().Truncate(s.Size()+page), fs.ErrPermission)
	_, err = unix.FcntlInt(s.File().Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.ErrorIs(t, err, unix.EPERM)
	fi, err := s.File().Stat()
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o600), fi.Mode())
	require.Equal(t, s.Size(), fi.Size())
}

func TestMemfdBad(t *testing.T) {
	_, err := CreateMemfd("a\x00b", page, nil, nil)
	require.ErrorIs(t, err, unix.EINVAL)
	_, err = CreateMemfd("zero", 0, nil, nil)
	require.ErrorIs(t, err, unix.EINVAL)
	_, err = CreateMemfd("mode", page, nil, &Options{Mode: 0o755})
	require.ErrorIs(t, err, unix.EINVAL)
	why := errors.New("no reason")
	_, err = CreateMemfd("init", page, func(*Segment) error { return why }, nil)
	require.ErrorIs(t, err, why)
}

func TestHugePages(t *testing.T) {
	for _, huge := range []HugePages{Huge2M, Huge1G} {
		t.Run(huge.String(), func(t *testing.T) {
			s, err := CreateMemfd("huge", page, nil, &Options{HugePages: huge})
			if err != nil { // no huge pages, or none of this size
				if os.Getenv("SHMSYNC_EXEC_WRAP") != "" && errors.Is(err, unix.EINVAL) {
					t.Skip("needs a kernel that is not emulated: qemu-user maps no huge pages")
				}
				require.True(t, errors.Is(err, ErrNoSpace) || errors.Is(err, ErrNotSupported), "%v", err)
				require.ErrorContains(t, err, "huge pages")
				if huge == Huge1G {
					t.Skipf("needs a free huge page of 1 GiB: %v", err)
				}
				proctest.Missing(t, "SHMSYNC_NEED_HUGE_PAGES", fmt.Sprintf("needs a free huge page of 2 MiB: %v", err))
			}
			closing(t, s)
			require.Equal(t, s.pageSize, s.Size())
			require.NoError(t, s.Reserve(0, s.Size()))
			s.Bytes()[s.Size()-1] = 1
		})
	}
	s, err := CreateMemfd("thp", 4<<20, nil, &Options{HugePages: HugeTransparent, Populate: true})
	require.NoError(t, err)
	closing(t, s)
	for _, err := range s.Degraded() {
		require.ErrorContains(t, err, "transparent huge pages")
	}
}

func init() {
	proctest.Register("memfd/inherit", func(c *proctest.Child) {
		s, err := FromFile(c.File(0), nil)
		if err != nil {
			c.Fatal(err)
		}
		c.File(0).Close() // the segment has a descriptor of its own
		own, err := s.Reopen()
		if err != nil {
			c.Fatal(err)
		}
		// The child has inherited the open file description of the parent. flock locks belong to a
		// description, so the child has the lock of the parent.
		if err := unix.Flock(int(s.File().Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			c.Fatalf("inherited description: %v", err)
		}
		if err := unix.Flock(int(own.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != unix.EWOULDBLOCK {
			c.Fatalf("reopened description: %v", err)
		}
		c.Say(string(s.Bytes()[:len(greeting)]))
		copy(s.Bytes()[page/2:], "from the child")
		if err := s.Close(); err != nil {
			c.Fatal(err)
		}
	})
}

func TestMemfdInherited(t *testing.T) {
	s, err := CreateMemfd("inherit", page, greet, nil)
	require.NoError(t, err)
	closing(t, s)
	require.NoError(t, unix.Flock(int(s.File().Fd()), unix.LOCK_EX|unix.LOCK_NB))
	p := proctest.Start(t, "memfd/inherit", proctest.Files(s.File()))
	var got string
	p.Recv(t, &got)
	require.Equal(t, greeting, got)
	p.WaitExit(t)
	require.Equal(t, "from the child", string(s.Bytes()[page/2:][:len("from the child")]))
}

func TestFromFileDuplicates(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	require.NoError(t, f.Truncate(page))
	s, err := FromFile(f, nil)
	require.NoError(t, err)
	require.NoError(t, s.Close())
	_, err = f.WriteString("still the caller's")
	require.NoError(t, err)
	require.NoError(t, f.Close())
}
