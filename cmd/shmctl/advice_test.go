//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/shm"
)

// obey runs the command of the first finding of an arena, as a user would paste it, until there are no findings. The
// parameter most limits the number of these commands.
func obey(t *testing.T, arenaName string, most int) {
	t.Helper()
	shell := pasted(t)
	for range most {
		_, d := shmctlJSON(t, "waits", arenaName)
		if len(d.Findings) == 0 {
			return
		}
		require.NotEmpty(t, d.Findings[0].Command, d.Findings[0].Text)
		shell(t, d.Findings[0].Command)
	}
	code, out, errs := shmctl("waits", arenaName)
	require.Equal(t, exitOK, code, out+errs)
}

// The printed commands name the object that they are about, even if its name has characters that are special for a
// shell, for the command line of shmctl, or for a terminal.
func TestAdviceNamesAnyObject(t *testing.T) {
	name := testArena(t)
	alice, _ := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
	names := []string{"a b", "it's", `"q"`, "$(exit 9)", "a;b", "-v", "--all", "--", "é", "a\nb", "a?b", "x\x01", "x\x02", "0x40", "12", "*", "~", "ü\xff"}
	for _, object := range names {
		alice.does("lock mutex", object)
	}
	alice.Kill(t)
	eventually(t, "all locks are owner-dead", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		return len(d.Findings) == len(names) && d.Findings[0].Kind == diagnose.OwnerDead
	})
	obey(t, name, len(names))
}

// The printed commands work for an arena at any path, and for an arena without a path: a removed file, or a memfd.
func TestAdviceNamesAnyArena(t *testing.T) {
	for _, c := range []string{"-an arena's $(exit 9)", "removed"} {
		t.Run(c, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), c)
			seg, err := shm.CreateAt(path, 1<<20, func(s *shm.Segment) error {
				return arena.Format(s, &arena.Options{MaxParticipants: 8})
			}, nil)
			require.NoError(t, err)
			require.NoError(t, seg.Close())
			alice, bob := newAgent(t, path, "alice"), newAgent(t, path, "bob")
			alice.does("lock mutex", "ledger")
			alice.does("lock multi", "keys", 7)
			name := path
			if c == "removed" {
				require.NoError(t, os.Remove(path))
				name = openFileOf(t, bob.Pid(), path+deleted)
			}
			alice.Kill(t)
			eventually(t, "two findings", func() bool {
				_, d := shmctlJSON(t, "waits", name)
				return len(d.Findings) == 2 && d.Findings[0].Kind == diagnose.OwnerDead
			})
			obey(t, name, 2)
		})
	}
}

// openFileOf returns the path below /proc of an open file of a process. The parameter link is the name of the file.
func openFileOf(t *testing.T, pid int, link string) string {
	fds, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, fd := range fds {
		if to, err := os.Readlink(fd); err == nil && to == link {
			return fd
		}
	}
	t.Fatal("the process has no open file ", link)
	return ""
}

// TestAdviceEndsAProcessThatStays checks that shmctl also prints a command for a process that SIGTERM does not end.
// This second command ends the process.
func TestAdviceEndsAProcessThatStays(t *testing.T) {
	name := testArena(t)
	alice, bob := deadlocked(t, name)
	alice.does("refuse end", "")
	bob.does("refuse end", "")
	f := awaitFinding(t, diagnose.Deadlock, "waits", name)
	_, out, _ := shmctl("waits", name)
	require.Contains(t, out, "\n    $ "+f.Command+"\n  → if it does not end\n    $ "+f.Force+"\n")
	shell := pasted(t)
	shell(t, f.Command)
	alice.does("lock mutex", "other") // both are still there
	bob.does("lock mutex", "another")
	again := awaitFinding(t, diagnose.Deadlock, "waits", name)
	require.Equal(t, f.Force, again.Force)
	shell(t, again.Force)
	awaitFinding(t, diagnose.OwnerDead, "waits", name)
}

// TestAdviceForDumpOnlyLooks checks that the commands that shmctl prints for a dump only examine the dump: the dump may
// come from another host.
func TestAdviceForDumpOnlyLooks(t *testing.T) {
	name := testArena(t)
	alice, bob, carol := newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")
	alice.does("lock mutex", "of the dead")
	bob.does("lock mutex", "stopped")
	bob.does("lock mutex", "x")
	carol.does("lock mutex", "y")
	bob.begins("lock mutex", "y")
	carol.begins("lock mutex", "x")
	carol.begins("lock mutex", "stopped")
	awaitWaits(t, name, 3)
	alice.Kill(t)
	awaitFinding(t, diagnose.OwnerDead, "waits", name)
	freeze(t, bob, carol)
	dump := filepath.Join(t.TempDir(), "x.shmdump")
	soon(t, exitOK, "dump", name, "-o", dump)
	shell, commands := pasted(t), 0
	for _, args := range [][]string{{"waits", dump}, {"waits", "--older=1ns", dump}, {"show", dump, "of the dead"}} {
		_, d := shmctlJSON(t, args...)
		require.NotEmpty(t, d.Findings)
		for _, f := range d.Findings {
			require.Empty(t, f.Force)
			if f.Command != "" {
				require.Regexp(t, "^shmctl (show|check) ", f.Command)
				shell(t, f.Command)
				commands++
			}
		}
		_, out, _ := shmctl(args...)
		require.False(t, strings.Contains(out, "$ kill") || strings.Contains(out, "$ shmctl re"), out)
	}
	t.Log(commands, "commands")
}

// TestAdviceIfAllSlotsAreTaken checks the advice for a lock of a dead process in an arena in which living participants
// have all slots: shmctl cannot join. The error of a recover, and the advice, say so. When a participant has ended, the
// advice is to recover the lock.
func TestAdviceIfAllSlotsAreTaken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "small")
	soon(t, exitOK, "create", "--size=1M", "--max-participants=2", path)
	alice, bob := newAgent(t, path, "alice"), newAgent(t, path, "bob") // bob reaps
	alice.does("lock mutex", "ledger")
	alice.Kill(t)
	awaitFinding(t, diagnose.OwnerDead, "waits", path)
	carol := newAgent(t, path, "carol")
	f := awaitFinding(t, diagnose.OwnerDead, "waits", path)
	require.Equal(t, "let the application call Recover; shmctl recover needs a slot, and living participants have all 2: end one first", f.Advice)
	require.Equal(t, "shmctl show "+path+" ledger", f.Command)
	shell := pasted(t)
	shell(t, f.Command)
	code, _, errs := shmctl("recover", path, "ledger")
	require.Equal(t, exitRefused, code)
	for _, who := range []*agent{bob, carol} {
		require.Contains(t, errs, fmt.Sprintf("(pid %d, %s)", who.Pid(), who.name))
	}
	require.Contains(t, errs, "shmctl needs a slot, too: end one of them, or let one of them do the work")
	carol.Kill(t)
	eventually(t, "the advice changes", func() bool {
		_, d := shmctlJSON(t, "waits", path)
		f = d.Findings[0]
		return f.Command == "shmctl recover "+path+" ledger"
	})
	require.Equal(t, "let the application call Recover, or, if the data is sound, make it usable", f.Advice)
	shell(t, f.Command)
	soon(t, exitOK, "waits", path)
}
