//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
)

// freezeGroup puts an agent into a control group of its own, and freezes that group. It returns an error if this user
// may not do so.
func freezeGroup(t *testing.T, a *agent, version int) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	dir := ""
	for line := range strings.Lines(string(mounts)) {
		mount, fs, _ := strings.Cut(line, " - ")
		if version == 2 && strings.HasPrefix(fs, "cgroup2 ") || version == 1 && strings.HasPrefix(fs, "cgroup ") && strings.Contains(fs, "freezer") {
			dir = filepath.Join(strings.Fields(mount)[4], fmt.Sprintf("shmctl test's.%d", os.Getpid()))
		}
	}
	if dir == "" {
		return errors.New("no such hierarchy is mounted")
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	file, freeze, thaw := "freezer.state", "FROZEN", "THAWED"
	if version == 2 {
		file, freeze, thaw = "cgroup.freeze", "1", "0"
	}
	file = filepath.Join(dir, file)
	t.Cleanup(func() { // in control groups of version 1, not even SIGKILL ends a frozen process
		os.WriteFile(file, []byte(thaw), 0)
		syscall.Kill(a.Pid(), syscall.SIGKILL)
		<-a.Done()
		eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil })
	})
	if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(a.Pid())), 0); err != nil {
		return err
	}
	return os.WriteFile(file, []byte(freeze), 0)
}

// TestFrozenHolderIsNamed checks that shmctl reports a holder whose control group is frozen, and prints a command that
// thaws the group.
func TestFrozenHolderIsNamed(t *testing.T) {
	for version := 1; version <= 2; version++ {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			name := testArena(t)
			alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
			alice.does("lock mutex", "ledger")
			bob.begins("lock mutex", "ledger")
			awaitWaits(t, name, 1)
			if err := freezeGroup(t, alice, version); err != nil {
				t.Skipf("needs a control group of version %d that can be frozen: %v", version, err)
			}
			f := awaitFinding(t, diagnose.StoppedHolder, "waits", name)
			require.True(t, f.Trouble)
			require.Contains(t, f.Text, "holds Mutex ledger and is frozen; 1 waits")
			require.Contains(t, f.Command, "echo ")
			_, d := shmctlJSON(t, "ps", name)
			require.Equal(t, "frozen", d.Participants[0].Life)
			_, out, _ := shmctl("waits", "--older=1ms", name)
			require.NotContains(t, out, "LEAKED-HOLD")
			require.NotContains(t, out, "LONG-HOLD")
			dump := filepath.Join(t.TempDir(), "dump")
			soon(t, exitOK, "dump", name, "-o", dump)
			require.NotContains(t, soon(t, exitTrouble, "waits", dump), "$ echo")
			shell := pasted(t)
			shell(t, f.Command)
			eventually(t, "no finding", func() bool {
				code, _, _ := shmctl("waits", name)
				return code == exitOK
			})
			alice.does("unlock mutex", "ledger")
		})
	}
}

// If a process is in another pid namespace, or the arena is a dump, shmctl cannot see the process. Then it does not say
// what the process does.
func TestHolderThatCannotBeSeen(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	awaitFinding(t, diagnose.LeakedHold, "waits", "--older=1ms", name)
	dump := filepath.Join(t.TempDir(), "dump")
	soon(t, exitOK, "dump", name, "-o", dump)
	out := soon(t, exitTrouble, "waits", "--older=1ms", dump)
	require.Contains(t, out, "LONG-HOLD: alice (pid ")
	require.Contains(t, out, "; a dump does not say whether it runs")
	require.NotContains(t, out, "sleeps")
	if out, err := exec.Command("unshare", "--pid", "--fork", "--mount-proc", "true").CombinedOutput(); err != nil {
		t.Skipf("needs unshare --pid --mount-proc: %v: %s", err, out)
	}
	self, err := os.Executable()
	require.NoError(t, err)
	// Without --mount-proc, shmctl is in an inner pid namespace, but sees the /proc of the outer one. There, the pids
	// of the inner namespace belong to other processes.
	for _, flags := range [][]string{{"--pid", "--fork", "--mount-proc"}, {"--pid", "--fork"}} {
		cmd := exec.Command("unshare", append(flags, self, "waits", "--older=1ms", name)...)
		cmd.Env = append(os.Environ(), "SHMCTL_TEST_MAIN=1")
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		require.ErrorAs(t, err, &exit, "%s", text)
		require.Equal(t, exitTrouble, exit.ExitCode(), "%s", text)
		require.Contains(t, string(text), "LONG-HOLD: alice (pid ")
		require.Contains(t, string(text), "its process cannot be seen from here")
		require.NotContains(t, string(text), "sleeps")
		require.NotContains(t, string(text), "$ ")
	}
}

// TestAdviceSaysWhoMaySignal checks that the advice names the users who may send a signal, if the user of shmctl may
// not.
func TestAdviceSaysWhoMaySignal(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it runs shmctl as another user")
	}
	name := testArena(t)
	alice, bob := deadlocked(t, name)
	require.NoError(t, os.Chmod("/dev/shm/"+name, 0o644))
	out, err := programOfOthers(t)(65534, "waits", name)
	require.Error(t, err)
	require.Contains(t, out, "; root may do so, or the user 0\n    $ kill ")
	alice.does("lock mutex", "other")
	freeze(t, bob)
	out, err = programOfOthers(t)(65534, "waits", name)
	require.Error(t, err)
	require.Contains(t, out, "  → let it go on; root may do so, or the user 0\n    $ kill -CONT ")
	_, out, _ = shmctl("waits", name)
	require.NotContains(t, out, "may do so")
}

// TestThrottledHolderIsNamed checks that shmctl reports the CPU quota that throttles a holder, and prints a command that
// removes the quota.
func TestThrottledHolderIsNamed(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.begins("burn mutex", "ledger")
	eventually(t, "the hold", func() bool {
		_, d := shmctlJSON(t, "locks", name)
		return len(d.Holds) == 1
	})
	bob.begins("lock mutex", "ledger")
	f := awaitFinding(t, diagnose.LongHold, "waits", "--older=1ns", name)
	require.Contains(t, f.Text, "holds Mutex ledger and runs; 1 waits")
	if err := throttleGroup(t, alice); err != nil {
		t.Skipf("needs a control group with a CPU quota: %v", err)
	}
	eventually(t, "the quota is named", func() bool {
		f = awaitFinding(t, diagnose.LongHold, "waits", "--older=1ns", name)
		return strings.Contains(f.Text, ", 1 % of a CPU, throttles it; 1 waits")
	})
	require.Equal(t, "raise the quota, or remove it", f.Advice)
	require.Regexp(t, "^echo (-1|max) > ", f.Command)
	shell := pasted(t)
	shell(t, f.Command)
	eventually(t, "the quota is gone", func() bool {
		f = awaitFinding(t, diagnose.LongHold, "waits", "--older=1ns", name)
		return !strings.Contains(f.Text, "quota")
	})
}

// throttleGroup moves an agent into a new control group that may use 1 % of a CPU.
func throttleGroup(t *testing.T, a *agent) error {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	err = errors.New("no such hierarchy is mounted")
	for line := range strings.Lines(string(mounts)) {
		mount, fs, _ := strings.Cut(line, " - ")
		files := map[string]string{"cpu.max": "1000 100000"}
		if words := strings.Fields(fs); words[0] == "cgroup" && slices.Contains(strings.Split(words[2], ","), "cpu") {
			files = map[string]string{"cpu.cfs_quota_us": "1000"} // the period is 100 ms
		} else if words[0] != "cgroup2" {
			continue
		}
		dir := filepath.Join(strings.Fields(mount)[4], fmt.Sprintf("shmctl test quota.%d", os.Getpid()))
		if err = os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() {
			syscall.Kill(a.Pid(), syscall.SIGKILL)
			<-a.Done()
			eventually(t, "the group is empty", func() bool { return os.Remove(dir) == nil })
		})
		for file, text := range files {
			err = errors.Join(err, os.WriteFile(filepath.Join(dir, file), []byte(text), 0))
		}
		if err == nil {
			return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(a.Pid())), 0)
		}
	}
	return err
}
