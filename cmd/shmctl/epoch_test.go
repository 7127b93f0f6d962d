//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync"
	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/prims"
	"github.com/shmsync/shmsync/shm"
)

// nextEpoch joins an arena that no process is in, as the next process of the application, and leaves it again. It
// returns what its OnFirst got, with the labels of the dead.
func nextEpoch(t *testing.T, name string, f func(a *arena.Arena)) (epoch arena.Epoch, dead []string) {
	t.Helper()
	ran := 0
	a, err := arena.Attach(name, &arena.Options{Label: "next", OnFirst: func(_ *arena.Arena, e arena.Epoch) error {
		epoch = e
		ran++
		return nil
	}})
	require.NoError(t, err)
	require.Equal(t, 1, ran)
	if f != nil {
		f(a)
	}
	require.NoError(t, a.Close())
	for _, d := range epoch.Dead {
		dead = append(dead, d.Label)
	}
	return epoch, dead
}

// TestRepairLeavesTheDeathsToTheApplication checks that a command that joins an arena without participants does not use
// up the deaths: the next OnFirst of the application gets all of them, and the OnFirst after that gets none.
func TestRepairLeavesTheDeathsToTheApplication(t *testing.T) {
	for _, c := range []struct {
		name     string
		commands [][]string
	}{
		{"reap", [][]string{{"reap"}}},
		{"recover", [][]string{{"recover", "ledger"}}},
		{"recover --all", [][]string{{"recover", "--all"}}},
		{"set", [][]string{{"set", "ledger", "spin=none"}}},
		{"delete", [][]string{{"delete", "index"}}},
		{"several", [][]string{{"reap"}, {"set", "ledger", "spin=none"}, {"recover", "ledger"}, {"recover", "--all"}, {"delete", "index"}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := testArena(t)
			alice := newAgent(t, name, "alice")
			alice.does("lock mutex", "ledger")
			alice.does("open mutex", "index")
			alice.Kill(t)
			for _, command := range c.commands {
				soon(t, exitOK, append([]string{command[0], name}, command[1:]...)...)
			}
			epoch, dead := nextEpoch(t, name, nil)
			require.False(t, epoch.Clean)
			require.Equal(t, []string{"alice"}, dead)
			require.EqualValues(t, 2, epoch.Number, "shmctl begins no epoch")
			epoch, dead = nextEpoch(t, name, nil)
			require.True(t, epoch.Clean)
			require.Empty(t, dead)
			require.EqualValues(t, 3, epoch.Number)
		})
	}
}

// TestRepairBesideOthersLeavesTheDeathsToTheApplication is the same for a command that joins while a process is in.
func TestRepairBesideOthersLeavesTheDeathsToTheApplication(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	alice.does("lock mutex", "ledger")
	alice.Kill(t)
	eventually(t, "the lock can be recovered", func() bool {
		code, _, _ := shmctl("recover", name, "ledger")
		_, d := shmctlJSON(t, "locks", name)
		return code == exitOK && len(d.Findings) == 0
	})
	bob.Kill(t)
	soon(t, exitOK, "reap", name)
	epoch, dead := nextEpoch(t, name, nil)
	require.False(t, epoch.Clean)
	require.Equal(t, []string{"alice", "bob"}, dead)
}

// TestRepairLeavesAnUncleanArenaToRecreate checks that RecreateUnclean replaces an arena although shmctl has reaped the
// participant that died in it. After recover, the lock is usable in an arena that is not replaced.
func TestRepairLeavesAnUncleanArenaToRecreate(t *testing.T) {
	for _, command := range []string{"reap", "recover"} {
		name := testArena(t)
		alice := newAgent(t, name, "alice")
		alice.does("lock mutex", "ledger")
		alice.Kill(t)
		args := []string{command, name}
		if command == "recover" {
			args = append(args, "ledger")
		}
		soon(t, exitOK, args...)
		a, err := arena.Open(name, &arena.Options{Recreate: arena.RecreateUnclean})
		require.NoError(t, err)
		m, err := prims.OpenMutex(a, "ledger", nil)
		require.NoError(t, err)
		require.NoError(t, m.LockContext(t.Context()))
		m.Unlock()
		require.NoError(t, a.Close())
	}
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	alice.does("lock mutex", "ledger")
	alice.Kill(t)
	soon(t, exitOK, "reap", name)
	lock := func(a *arena.Arena) error {
		m, err := prims.OpenMutex(a, "ledger", nil)
		require.NoError(t, err)
		err = m.LockContext(t.Context())
		if err == nil {
			m.Unlock()
		}
		return err
	}
	nextEpoch(t, name, func(a *arena.Arena) { require.ErrorIs(t, lock(a), shmsync.ErrOwnerDead) })
	soon(t, exitOK, "recover", name, "ledger")
	nextEpoch(t, name, func(a *arena.Arena) { require.NoError(t, lock(a)) })
	soon(t, exitOK, "rm", name)
}

// TestRepairWithoutByteLocks checks that a command joins where byte locks do not work: there are no epochs, and no OnFirst.
func TestRepairWithoutByteLocks(t *testing.T) {
	name := testArena(t)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.Command(self, "recover", "--all", name)
	cmd.Env = append(os.Environ(), "SHMCTL_TEST_MAIN=1", "SHMSYNC_DISABLE=ofd")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "no lock needs it")
}

// TestJoinIsBounded checks that a command that joins does not wait for ever for the OnFirst of another process. Its error
// names this process, and the command in the error leads to the command that lets this process go on.
func TestJoinIsBounded(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	alice.does("open mutex", "ledger")
	alice.does("lock mutex", "index")
	alice.Kill(t)
	first := proctest.Start(t, "shmctl/onfirst", proctest.Params(name), ownGroup)
	first.Await(t)
	first.Stop(t)
	for _, arenaName := range []string{name, shm.Dir + "/" + name, openFileOf(t, first.Pid(), shm.Dir+"/"+name)} {
		for _, args := range [][]string{{"recover", arenaName, "index"}, {"recover", arenaName, "--all"}, {"set", arenaName, "ledger", "spin=none"}, {"delete", arenaName, "ledger"}} {
			code, _, errs := shmctl(append(args, "--wait=10ms")...)
			require.Equal(t, exitRefused, code, errs)
			require.Contains(t, errs, "migration (pid "+fmt.Sprint(first.Pid()), args)
			require.Contains(t, errs, "not joined within 10ms; shmctl waits ", args)
		}
	}
	f := awaitFinding(t, diagnose.StoppedHolder, "waits", name)
	require.False(t, f.Trouble, "no process waits to join")
	require.Contains(t, f.Text, "runs its OnFirst and is stopped; no process can join meanwhile")

	// SIGTERM ends the wait, whatever its bound is.
	self, err := os.Executable()
	require.NoError(t, err)
	for _, args := range [][]string{{"recover", "--all", name}, {"set", name, "ledger", "spin=none"}} {
		cmd := exec.Command(self, append(args, "--wait=24h")...)
		cmd.Env = append(os.Environ(), "SHMCTL_TEST_MAIN=1")
		var out bytes.Buffer
		cmd.Stderr = &out
		require.NoError(t, cmd.Start())
		eventually(t, "it waits to join", func() bool {
			_, d := shmctlJSON(t, "ps", name)
			return slices.ContainsFunc(d.Participants, func(p participant) bool { return p.Label == "shmctl" && p.State == "pending" })
		})
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, exitError, exit.ExitCode(), out.String())
		require.Contains(t, out.String(), "migration (pid ")
	}

	shell := pasted(t)
	shell(t, f.Command)
	eventually(t, "it goes on", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		return !slices.ContainsFunc(d.Findings, func(f finding) bool { return f.Kind == diagnose.StoppedHolder })
	})
}
