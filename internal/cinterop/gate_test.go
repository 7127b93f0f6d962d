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

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/proctest"
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

// An on_first that opens or closes its own arena gets an error, and does not wait for itself.
func TestOnFirstInCDoesNotWaitForItself(t *testing.T) { runGate(t, "itself", unusedName(t)) }

// An open waits for the on_first of another process. If the time limit of the open is the largest number, it does not
// time out.
func TestLongestGateTimeoutInC(t *testing.T) { runGate(t, "no end", unusedName(t)) }

// A child that is forked while another thread removes an arena does not keep the arena gate locked.
func TestForkWhileRemovingInC(t *testing.T) { runGate(t, "fork", unusedName(t)) }

// The last close of an ephemeral arena waits for the gate, but only for a limited time.
func TestLastCloseInCAwaitsTheGate(t *testing.T) { runGate(t, "last", unusedName(t)) }

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
