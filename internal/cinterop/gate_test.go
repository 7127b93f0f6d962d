//go:build linux

package cinterop

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// runGate runs a verb of gate.c. SIGALRM ends a verb that hangs.
func runGate(t *testing.T, verb, name string) {
	t.Helper()
	runC(t, "gate.c", verb, name)
}

// A peer overwrites the admission word of a joiner in C. The open fails and does not loop.
func TestOpenInCRefusesAForeignAdmission(t *testing.T) {
	name := unusedName(t)
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	runGate(t, "admission", name)
}

// If on_first returns an errno value, the open returns the same value, even if this value has another meaning in an
// open.
func TestErrorOfOnFirstInC(t *testing.T) { runGate(t, "first", unusedName(t)) }

// In Go and in C, RECREATE_CORRUPT replaces an arena whose header is damaged. In Go it also replaces an arena in which
// Check finds damage. In C, which has no Check, it keeps such an arena.
func TestRecreateCorruptInC(t *testing.T) {
	name := unusedName(t)
	path := "/dev/shm/" + name
	damage := func(off int64) {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, off)
		require.NoError(t, err)
	}
	replaced := func(open func()) bool {
		before, err := os.Stat(path)
		require.NoError(t, err)
		held, err := os.Open(path) // no other file gets its inode number
		require.NoError(t, err)
		defer held.Close()
		open()
		after, err := os.Stat(path)
		require.NoError(t, err)
		return !os.SameFile(before, after)
	}
	inGo := func() {
		a, err := arena.Open(name, &arena.Options{Recreate: arena.RecreateCorrupt})
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	inC := func() { runGate(t, "recreate", name) }
	a, err := arena.Create(name, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	t.Cleanup(func() { shm.Remove(name) })
	m, err := prims.OpenMutex(a, "m", nil)
	require.NoError(t, err)
	nameOff := int64(m.Offset()) + 12 // in the header of the object: where its name is
	require.NoError(t, a.Close())
	require.False(t, replaced(inGo))
	require.False(t, replaced(inC))
	damage(nameOff)
	a, err = arena.Open(name, nil)
	require.NoError(t, err)
	require.ErrorIs(t, a.Check(), shmsync.ErrCorrupt)
	require.NoError(t, a.Close())
	require.False(t, replaced(inC))
	require.True(t, replaced(inGo))
	for _, open := range []func(){inGo, inC} {
		damage(80) // the number of slots
		_, err = arena.Open(name, nil)
		require.ErrorIs(t, err, shmsync.ErrCorrupt)
		require.True(t, replaced(open))
	}
}

// An on_first that opens or closes its own arena gets an error, and does not wait for itself.
func TestOnFirstInCDoesNotWaitForItself(t *testing.T) { runGate(t, "itself", unusedName(t)) }

// An open waits for the on_first of another process. Its time limit is the largest number that the option can have. It
// does not time out.
func TestLongestGateTimeoutInC(t *testing.T) { runGate(t, "no end", unusedName(t)) }

// A child that is forked while another thread removes an arena does not keep the arena gate locked.
func TestForkWhileRemovingInC(t *testing.T) { runGate(t, "fork", unusedName(t)) }

// The last close of an ephemeral arena waits for the gate, but only for a limited time.
func TestLastCloseInCAwaitsTheGate(t *testing.T) {
	t.Parallel()
	runGate(t, "last", unusedName(t))
}

// A relative path of a process in C still counts as the path of the arena after a chdir.
func TestRelativePathInCOutlivesChdir(t *testing.T) { runGate(t, "chdir", t.TempDir()) }

// A relative path of a process in C still counts as the path of the arena after its working directory was renamed.
func TestRelativePathInCOutlivesARenamedWorkingDirectory(t *testing.T) {
	runGate(t, "rename", t.TempDir())
}

// A process in C changes its root directory. It does not take the file of its arena for removed, but notices a removal.
func TestPathInAnotherRootDirectoryInC(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: it changes the root directory")
	}
	runGate(t, "chroot", t.TempDir())
}

// A process in C is in a mount namespace that hides the file of its arena. It does not take the file for removed.
func TestPathInAnotherMountNamespaceInC(t *testing.T) {
	proctest.NeedAttr(t, &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}, "a mount namespace")
	runGate(t, "mounts", "/dev/shm/"+unusedName(t))
}

// A symbolic link to the file of an arena replaces this file at its path. A process in C learns that its file is no
// longer at the path.
func TestSymbolicLinkIsNoPathInC(t *testing.T) { runGate(t, "symlink", t.TempDir()) }

// The file of an arena has two names, and the arena is removed by one of them. A process in C that opens the other name
// creates a new arena there.
func TestOpenInCReplacesAFurtherNameOfARemovedArena(t *testing.T) { runGate(t, "further", t.TempDir()) }

// A process in C is in a user namespace that maps no user, so all users look the same to it. The process still opens
// only its own files.
func TestUnmappedUserInCIsNobody(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: it changes the owner of a file")
	}
	attr := &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWUSER}
	proctest.NeedAttr(t, attr, "a user namespace")
	dir, err := os.MkdirTemp("/dev/shm", "unmapped")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"own", "foreign"} {
		a, err := arena.Create(filepath.Join(dir, name), &arena.Options{Size: 2 << 20, MaxParticipants: 4, Mode: 0o666})
		require.NoError(t, err)
		require.NoError(t, a.Close())
	}
	require.NoError(t, os.Chown(filepath.Join(dir, "foreign"), 12345, -1))
	cmd := exec.Command(program(t, "gate.c"), "unmapped", dir)
	cmd.SysProcAttr = attr
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A process in C cannot replace an ephemeral arena of another user in a directory with the sticky bit.
func TestEphemeralArenaOfAnotherUserInC(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: its process becomes another user")
	}
	dir, err := os.MkdirTemp("/dev/shm", "sticky")
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o777|os.ModeSticky))
	a, err := arena.Create(dir+"/jobs", &arena.Options{Size: 2 << 20, MaxParticipants: 4, Mode: 0o666})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	out, err := exec.Command(program(t, "gate.c"), "sticky", dir+"/jobs").CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// A loop over the participants in C ends when the arena is closed meanwhile.
func TestLoopInCEndsWithClose(t *testing.T) { runGate(t, "loop", unusedName(t)) }

// TestDeniedOpenInCSaysWhoseFileItIs checks the error of an open in C by a user without permission. Users that share an
// arena need a common group, and the error shows the group of the file.
func TestDeniedOpenInCSaysWhoseFileItIs(t *testing.T) {
	if os.Geteuid() != 0 {
		proctest.Skip(t, "needs root: its process becomes another user")
	}
	a, err := arena.Create(unusedName(t), &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	defer a.Close()
	path := a.Path()
	require.NoError(t, os.Chown(path, 0, 54321))
	require.NoError(t, os.Chmod(path, 0o660))
	runGate(t, "denied", path)
}

// A process in C that cannot read the boot ID does not conclude that the host has rebooted.
func TestUnknownBootInCIsNoReboot(t *testing.T) {
	path := filepath.Join(proctest.DirNotOn(t, unix.TMPFS_MAGIC, unix.RAMFS_MAGIC), "disk")
	a, err := arena.Create(path, &arena.Options{Size: 2 << 20, MaxParticipants: 4})
	require.NoError(t, err)
	require.NoError(t, a.Close())
	runGate(t, "boot", path)
}
