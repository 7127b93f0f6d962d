//go:build linux

package arenakernel

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

func init() {
	// "path" returns the state of the arena's path, and the state that the metrics report.
	agentOrders["path"] = func(s *agent, o order, a *answer) error {
		a.Text = string(s.arena.PathState()) + " " + string(s.arena.Metrics().Path)
		return nil
	}
	// "chroot" makes the directory Text the root directory of the agent.
	agentOrders["chroot"] = func(s *agent, o order, a *answer) error { return unix.Chroot(o.Text) }
	// "hide" mounts an empty file system over the directory Text, in a new mount namespace. Like "path", it returns the
	// state of the arena's path.
	agentOrders["hide"] = func(s *agent, o order, a *answer) error {
		runtime.LockOSThread() // the thread, with its own mount namespace, ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return err
		}
		if err := unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return err
		}
		if err := unix.Mount("none", o.Text, "tmpfs", 0, ""); err != nil {
			return err
		}
		return agentOrders["path"](s, o, a)
	}
}

// TestMemberNoticesThatItsPathIsGone: a participant can find out that the file of its arena was
// removed, and later that another file is at the path.
func TestMemberNoticesThatItsPathIsGone(t *testing.T) {
	ta := newTestArena(t, 4)
	r := ta.join(t, "member")
	require.Equal(t, "there there", r.must(t, order{Do: "path"}).Text)
	i, err := Inspect(ta.name)
	require.NoError(t, err)
	defer i.Close()
	require.False(t, i.Removed())
	require.NoError(t, shm.Remove(ta.name))
	require.Equal(t, "removed removed", r.must(t, order{Do: "path"}).Text)
	require.True(t, i.Removed())
	a, err := Open(ta.name, &ta.opts)
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, PathThere, a.PathState())
	require.Equal(t, "replaced replaced", r.must(t, order{Do: "path"}).Text)
}

// TestPathInAnotherRootDirectory: a process changes its root directory, and no file is at the path of its arena in the
// new root directory. The process does not report that the file was removed. It still notices a real removal.
func TestPathInAnotherRootDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: it changes the root directory")
	}
	ta := newTestArena(t, 4)
	r := ta.join(t, "member")
	r.must(t, order{Do: "chroot", Text: t.TempDir()})
	require.Equal(t, "none none", r.must(t, order{Do: "path"}).Text)
	require.NoError(t, shm.Remove(ta.name))
	require.Equal(t, "removed removed", r.must(t, order{Do: "path"}).Text)
}

// TestPathInAnotherMountNamespace is TestPathInAnotherRootDirectory for a mount namespace that hides the file.
func TestPathInAnotherMountNamespace(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	proctest.NeedAttr(t, attr, "a mount namespace")
	ta := newTestArena(t, 4)
	r := ta.join(t, "member")
	require.Equal(t, "none none", r.must(t, order{Do: "hide", Text: shm.Dir}).Text)
	require.NoError(t, shm.Remove(ta.name))
	require.Equal(t, "removed removed", r.must(t, order{Do: "path"}).Text)
}

// TestMemfdHasNoPath: an arena in a memfd has no path, so it is never reported as removed.
func TestMemfdHasNoPath(t *testing.T) {
	a := newMemfdArena(t, 4)
	require.Equal(t, PathNone, a.PathState())
	f, err := a.Segment().Reopen()
	require.NoError(t, err)
	i, err := InspectFile(f)
	require.NoError(t, err)
	defer i.Close()
	require.False(t, i.Removed())
}

// TestLabelOfMemfdIsNoPath: the label of a memfd has a slash. It is not taken for a path that leads to no file.
func TestLabelOfMemfdIsNoPath(t *testing.T) {
	seg, err := shm.CreateMemfd("service/jobs", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
	require.NoError(t, err)
	again, err := shm.FromFile(seg.File(), nil)
	require.NoError(t, err)
	require.Equal(t, seg.Name(), again.Name())
	require.NoError(t, seg.Close())
	a, err := FromSegment(again, nil)
	require.NoError(t, err)
	defer a.Close()
	require.Equal(t, PathNone, a.PathState())
	require.False(t, a.moved(), "OnDetached would be called")
}

// TestNameOfADescriptorIsNoPath: a program that inherits the descriptor of an arena gives the file a name that looks like
// a path. Only a name that leads to the file is the path of the arena.
func TestNameOfADescriptorIsNoPath(t *testing.T) {
	dir := t.TempDir()
	inFile := func() (*shm.Segment, error) {
		return shm.CreateAt(dir+"/jobs", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
	}
	inMemory := func() (*shm.Segment, error) {
		return shm.CreateMemfd("jobs", 1<<20, func(s *shm.Segment) error { return format(s, 4, false) }, nil)
	}
	for _, c := range []struct {
		make  func() (*shm.Segment, error)
		name  func(fd int) string
		state PathState
	}{
		{inMemory, func(int) string { return "fd/3" }, PathNone},
		{inMemory, func(fd int) string { return fmt.Sprint("/proc/self/fd/", fd) }, PathNone},
		{inFile, func(int) string { return "fd/3" }, PathNone},
		{inFile, func(fd int) string { return fmt.Sprint("/proc/self/fd/", fd) }, PathNone},
		{inFile, func(int) string { return dir + "/jobs" }, PathThere},
	} {
		seg, err := c.make()
		require.NoError(t, err)
		fd, err := unix.FcntlInt(seg.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
		require.NoError(t, err)
		require.NoError(t, seg.Close())
		f := os.NewFile(uintptr(fd), c.name(fd))
		again, err := shm.FromFile(f, nil)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		a, err := FromSegment(again, nil)
		require.NoError(t, err)
		require.Equal(t, c.state, a.PathState(), f.Name())
		require.False(t, a.moved(), "OnDetached would be called")
		require.NoError(t, os.RemoveAll(dir+"/jobs"))
		require.Equal(t, c.state == PathThere, a.moved(), f.Name())
		require.NoError(t, a.Close())
	}
}

// TestRemoveBesideALabelOfMemfd checks that Remove removes the file of an arena whose relative path begins with
// "memfd:", as the label of a memfd does.
func TestRemoveBesideALabelOfMemfd(t *testing.T) {
	t.Chdir(t.TempDir())
	require.NoError(t, os.Mkdir("memfd:d", 0o700))
	a, err := Open("memfd:d/jobs", &Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	require.NoError(t, Remove("memfd:d/jobs"))
	require.NoFileExists(t, "memfd:d/jobs")
}

// TestRelativePathOutlivesChdir: a process opens an arena by a relative path, and then changes its working
// directory, as a daemon does. The path still counts as the path of the arena, and the last Close removes
// the file of an ephemeral arena.
func TestRelativePathOutlivesChdir(t *testing.T) {
	dir := t.TempDir()
	for _, lifetime := range []Lifetime{LifetimeDurable, LifetimeDurable, LifetimeEphemeral} { // the second Open finds the file
		t.Chdir(dir)
		a, err := Open("./jobs", &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: lifetime})
		require.NoError(t, err)
		t.Chdir("/")
		require.Equal(t, PathThere, a.PathState())
		require.False(t, a.moved(), "OnDetached would be called")
		require.NoError(t, a.Close())
		if lifetime == LifetimeDurable {
			require.FileExists(t, dir+"/jobs")
		} else {
			require.NoFileExists(t, dir+"/jobs")
		}
	}
}

// TestRelativePathOutlivesARenamedWorkingDirectory checks that a relative path still counts as the path of an
// arena after its working directory was renamed. This is so even if another directory with another arena has
// got the old name. The last Close removes the file of an ephemeral arena. If the file itself, or a directory
// in the relative path, is renamed, the path no longer leads to the file.
func TestRelativePathOutlivesARenamedWorkingDirectory(t *testing.T) {
	top := t.TempDir()
	opts := &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: LifetimeEphemeral}
	for _, path := range []string{"./jobs", "sub/jobs", "sub/../jobs"} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprint(path, ", another in its place: ", again), func(t *testing.T) {
				dir, moved := top+"/dir", top+"/moved"
				require.NoError(t, os.MkdirAll(dir+"/sub", 0o700))
				defer os.RemoveAll(dir)
				defer os.RemoveAll(moved)
				t.Chdir(dir)
				a, err := Open(path, opts)
				require.NoError(t, err)
				require.NoError(t, os.Rename(dir, moved))
				if again {
					require.NoError(t, os.MkdirAll(dir+"/sub", 0o700))
					other, err := Open(dir+"/"+path, opts)
					require.NoError(t, err)
					defer other.Close()
				}
				require.Equal(t, PathThere, a.PathState())
				require.False(t, a.moved(), "OnDetached would be called")
				for _, name := range []string{filepath.Clean(path), filepath.Dir(path)} {
					if name != "." {
						require.NoError(t, os.Rename(name, "aside"))
						require.NotEqual(t, PathThere, a.PathState(), "%s was renamed", name)
						require.NoError(t, os.Rename("aside", name))
					}
				}
				require.Equal(t, PathThere, a.PathState())
				t.Chdir("/")
				require.NoError(t, a.Close())
				require.NoFileExists(t, moved+"/"+path)
				if again {
					require.FileExists(t, dir+"/"+path)
				}
			})
		}
	}
}

// TestSymbolicLinkIsNoPath: a symbolic link to the file of an arena replaces the file at its path. No process can open
// the arena by this path, because an open follows no link. So the participants learn that the path is gone, and the last
// Close of an ephemeral arena leaves the link alone.
func TestSymbolicLinkIsNoPath(t *testing.T) {
	dir := t.TempDir()
	path := dir + "/jobs"
	a, err := Open(path, &Options{Size: 2 << 20, MaxParticipants: 4, Lifetime: LifetimeEphemeral})
	require.NoError(t, err)
	require.NoError(t, os.Rename(path, dir+"/moved"))
	require.NoError(t, os.Symlink("moved", path))
	_, err = Attach(path, nil)
	require.ErrorIs(t, err, shmsync.ErrIncompatible)
	require.Equal(t, PathReplaced, a.PathState())
	require.True(t, a.moved(), "OnDetached would not be called")
	require.NoError(t, a.Close())
	_, err = os.Lstat(path)
	require.NoError(t, err)
}

// TestPrivateNameIsBesideTheFile checks that the private name of a file during its removal is in the directory
// of the file. In the test, the path of the arena has ".." behind a symbolic link, so filepath.Clean would find
// another directory.
func TestPrivateNameIsBesideTheFile(t *testing.T) {
	top := t.TempDir()
	require.NoError(t, os.MkdirAll(top+"/elsewhere/sub", 0o700))
	require.NoError(t, os.Symlink("elsewhere/sub", top+"/link"))
	path := top + "/link/../jobs" // in the directory elsewhere
	a, err := Open(path, &Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	st, err := os.Stat(path)
	require.NoError(t, err)
	private := fmt.Sprint("/.jobs.", inode(st), removedSuffix)
	require.NoError(t, os.WriteFile(top+private, nil, 0o600))
	require.NoError(t, Remove(path))
	require.NoFileExists(t, top+"/elsewhere/jobs")

	left, err := os.Create(top + "/elsewhere/left")
	require.NoError(t, err)
	defer left.Close()
	st, err = left.Stat()
	require.NoError(t, err)
	private = fmt.Sprint(top, "/elsewhere/.jobs.", inode(st), removedSuffix)
	require.NoError(t, os.Rename(left.Name(), private))
	sweepRemoved(path)
	require.NoFileExists(t, private)
}
