//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// Root can reap in an arena of another user, and recover a lock there.
func TestRootRecoversInForeignArena(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it gives a file to another user")
	}
	name := testArena(t)
	a := newAgent(t, name, "alice")
	a.does("lock mutex", "ledger")
	a.Kill(t)
	require.NoError(t, os.Chown("/dev/shm/"+name, 65534, 65534))
	require.Contains(t, soon(t, exitOK, "reap", name), "reaped 1")
	require.Contains(t, soon(t, exitOK, "recover", "/dev/shm/"+name, "ledger"), "can be locked again")
	require.Contains(t, soon(t, exitOK, "recover", name, "ledger"), "was healthy")
}

// The owner of an arena may repair it. If root owns the file, a user whom the mode of the file permits to write may
// repair it, too. Any other user is refused.
func TestUsersThatMayRepair(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as other users")
	}
	shmctlAs := programOfOthers(t)
	for _, c := range []struct {
		name          string
		owner, runsAs int
		mode          os.FileMode
		allowed       bool
	}{
		{"owner", 65534, 65534, 0o600, true},
		{"user beside root", 0, 65534, 0o666, true},
		{"user without permission", 0, 65534, 0o644, false},
		{"user beside another user", 65533, 65534, 0o666, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := testArena(t)
			a := newAgent(t, name, "alice")
			a.does("lock mutex", "ledger")
			a.Kill(t)
			require.NoError(t, os.Chown("/dev/shm/"+name, c.owner, c.owner))
			require.NoError(t, os.Chmod("/dev/shm/"+name, c.mode))
			before := fileBytes(t, name)
			for _, args := range [][]string{{"reap", name}, {"recover", name, "ledger"}, {"set", name, "ledger", "spin=none"}, {"delete", name, "ledger"}} {
				out, err := shmctlAs(c.runsAs, args...)
				if c.allowed {
					require.NoError(t, err, "%v: %s", args, out)
					continue
				}
				var exit *exec.ExitError
				require.ErrorAs(t, err, &exit)
				require.Equal(t, exitError, exit.ExitCode(), "%v: %s", args, out)
				require.Regexp(t, "permission denied|is owned by uid 65533", out)
			}
			if !c.allowed {
				require.Equal(t, before, fileBytes(t, name))
			}
		})
	}
}

// TestAdviceSaysWhoMayRepair checks that shmctl says who may carry out a printed command that joins the arena, if the
// user that runs shmctl may not.
func TestAdviceSaysWhoMayRepair(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as other users")
	}
	shmctlAs := programOfOthers(t)
	for _, lock := range []string{"of the dead", "owner-dead"} {
		name := testArena(t)
		path := "/dev/shm/" + name
		a, verb := newAgent(t, name, "alice"), "shmctl reap "+name
		a.does("lock mutex", "ledger")
		if lock == "owner-dead" {
			newAgent(t, name, "bob") // reaps
			verb = "shmctl recover " + name + " ledger"
		}
		a.Kill(t)
		kind := diagnose.DeadHolder
		if lock == "owner-dead" {
			kind = diagnose.OwnerDead
		}
		f := awaitFinding(t, kind, "waits", name)
		require.Equal(t, verb, f.Command)
		require.NotContains(t, f.Advice, "root may do so", "root runs shmctl")
		for _, c := range []struct {
			owner, runsAs int
			mode          os.FileMode
			who           string
		}{
			{65533, 65534, 0o666, "; root may do so, or the user 65533\n"},
			{0, 65534, 0o644, "; root may do so\n"},
			{65534, 65534, 0o600, ""},
			{65534, 65534, 0o400, "; root may do so\n"},
			{0, 65534, 0o666, ""},
		} {
			require.NoError(t, os.Chown(path, c.owner, c.owner))
			require.NoError(t, os.Chmod(path, c.mode))
			out, _ := shmctlAs(c.runsAs, "waits", name)
			require.Contains(t, out, "\n    $ "+verb+"\n")
			if c.who == "" {
				require.NotContains(t, out, "root may do so")
			} else {
				require.Contains(t, out, c.who)
			}
		}
	}
}

// TestLeakedHoldOfAnotherUser checks that shmctl does not guess that a holder has forgotten to unlock, if this user may
// not see whether the process of the holder waits in another arena.
func TestLeakedHoldOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as another user")
	}
	shmctlAs := programOfOthers(t)
	name := testArena(t)
	require.NoError(t, os.Chmod("/dev/shm/"+name, 0o644))
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	require.Contains(t, awaitFinding(t, diagnose.LeakedHold, "waits", name, "--older=1ns").Text, "it may have forgotten to unlock")
	eventually(t, "a thread of alice may run for a moment", func() bool {
		out, _ := shmctlAs(65534, "waits", name, "--older=1ns")
		require.NotContains(t, out, "forgotten")
		return strings.Contains(out, "; root can see whether it waits in another arena")
	})
}

// TestUnseenProcessOfAnotherUser checks a participant that was stopped before it had stored which process it is. root
// finds the process by its open files. Another user does not, and shmctl says that root sees more.
func TestUnseenProcessOfAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as another user")
	}
	shmctlAs := programOfOthers(t)
	name := testArena(t)
	require.NoError(t, os.Chmod("/dev/shm/"+name, 0o644))
	alice := newAgent(t, name, "alice")
	awaitIdentities(t, name)
	freeze(t, alice)
	out := soon(t, exitOK, "waits", name)
	require.NotContains(t, out, "cannot be seen")
	out, err := shmctlAs(65534, "waits", name)
	require.NoError(t, err, out)
	require.NotContains(t, out, "cannot be seen")

	link, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	var ns uint64
	_, err = fmt.Sscanf(link, "pid:[%d]", &ns)
	require.NoError(t, err)
	before := fileBytes(t, name)
	at := bytes.Index(before, binary.LittleEndian.AppendUint64(nil, ns))
	require.Positive(t, at)
	f, err := os.OpenFile("/dev/shm/"+name, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	_, err = f.WriteAt(make([]byte, 8), int64(at))
	require.NoError(t, err)
	out = soon(t, exitOK, "waits", name)
	require.NotContains(t, out, "cannot be seen")
	out, err = shmctlAs(65534, "waits", name)
	require.NoError(t, err, out)
	require.Contains(t, out, "the process of 1 participant cannot be seen from here, so it may be stopped (root sees more)")
}

// TestRemovalWithoutPermission checks that rm by a user who may not remove the file says so, and who may. It mentions
// --force only if that would remove the file.
func TestRemovalWithoutPermission(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as other users")
	}
	shmctlAs := programOfOthers(t)
	name := testArena(t)
	path := "/dev/shm/" + name // a directory with the sticky bit
	require.NoError(t, os.Chown(path, 65533, 65533))
	for _, mode := range []os.FileMode{0o600, 0o666} {
		require.NoError(t, os.Chmod(path, mode))
		for _, args := range [][]string{{"rm", name}, {"rm", "--force", name}} {
			out, err := shmctlAs(65534, args...)
			require.Error(t, err, out)
			require.Equal(t, "shmctl: remove "+path+": operation not permitted; root may do so, or the user 65533\n", out)
		}
	}
	dir, err := os.MkdirTemp("", "shmctl-test-") // not t.TempDir, whose directory other users cannot read
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	path = filepath.Join(dir, "jobs")
	soon(t, exitOK, "create", "--size=1M", path)
	require.NoError(t, os.Chmod(dir, 0o755))
	out, err := shmctlAs(65534, "rm", path)
	require.Error(t, err, out)
	require.Equal(t, "shmctl: remove "+path+": permission denied; root may do so\n", out)
	require.NoError(t, os.Chown(dir, 65534, 65534))
	out, err = shmctlAs(65534, "rm", path)
	require.Error(t, err, out)
	require.Contains(t, out, "not removed without --force")
	out, err = shmctlAs(65534, "rm", "--force", path)
	require.NoError(t, err, out)
	require.NoFileExists(t, path)
}

// An arena that the user may not read is listed with the reason. Each command that examines an arena gives that
// reason.
func TestUnreadableArenaSaysWhy(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as another user")
	}
	shmctlAs := programOfOthers(t)
	name := testArena(t) // mode 0600, of root
	failsWith := func(want int, args ...string) string {
		out, err := shmctlAs(65534, args...)
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%v: %s", args, out)
		require.Equal(t, want, exit.ExitCode(), "%v: %s", args, out)
		return out
	}
	require.Regexp(t, `(?m)^`+name+` .* permission denied$`, failsWith(exitTrouble, "ls"))
	for _, command := range []string{"ps", "objects", "du", "locks", "waits", "graph", "check", "metrics", "dump"} {
		require.Contains(t, failsWith(exitError, command, name), "permission denied", command)
	}
}

// programOfOthers returns a function that runs shmctl as another user.
func programOfOthers(t *testing.T) func(uid int, args ...string) (string, error) {
	self, err := os.ReadFile("/proc/self/exe")
	require.NoError(t, err)
	dir, err := os.MkdirTemp("", "shmctl-test-") // not t.TempDir, whose directory other users cannot read
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	require.NoError(t, os.Chmod(dir, 0o755))
	program := filepath.Join(dir, "shmctl")
	require.NoError(t, os.WriteFile(program, self, 0o755))
	require.NoError(t, os.Chmod(program, 0o755)) // whatever the umask is
	return func(uid int, args ...string) (string, error) {
		cmd := exec.Command(program, args...)
		cmd.Dir = "/"
		cmd.Env = []string{"SHMCTL_TEST_MAIN=1"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
}
