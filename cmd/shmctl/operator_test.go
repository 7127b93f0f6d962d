//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
)

// This child process joins an arena with an OnFirst that never returns.
func init() {
	proctest.Register("shmctl/onfirst", func(c *proctest.Child) {
		var name string
		c.Params(&name)
		_, err := arena.Attach(name, &arena.Options{Label: "migration", OnFirst: func(*arena.Arena, arena.Epoch) error {
			c.Ready()
			select {}
		}})
		c.Fatal(err)
	})
}

// TestJoinersBehindAnOnFirst checks that shmctl names a process whose OnFirst keeps other processes waiting in Open.
// The printed commands continue this process if it is stopped, or end it.
func TestJoinersBehindAnOnFirst(t *testing.T) {
	name := testArena(t)
	first := proctest.Start(t, "shmctl/onfirst", proctest.Params(name), ownGroup)
	first.Await(t)
	soon(t, exitOK, "waits", name)
	joiner := proctest.Start(t, "shmctl/agent", proctest.Params(agentParams{name, "alice"}), ownGroup)
	eventually(t, "the joiner waits", func() bool {
		_, d := shmctlJSON(t, "ps", name)
		return len(d.Participants) == 2 && d.Participants[0].State != d.Participants[1].State && d.Participants[0].HostPID*d.Participants[1].HostPID != 0
	})
	soon(t, exitOK, "waits", name) // the joiner has not waited for long

	first.Stop(t)
	shell := pasted(t)
	f := awaitFinding(t, diagnose.StoppedHolder, "waits", name)
	require.Regexp(t, `^migration \(pid \d+, \d\.1\) runs its OnFirst and is stopped; 1 waits to join, for up to `, f.Text)
	require.Equal(t, fmt.Sprintf("kill -CONT %d", first.Pid()), f.Command)
	shell(t, f.Command)
	eventually(t, "it goes on", func() bool {
		code, _ := shmctlJSON(t, "waits", name)
		return code == exitOK
	})

	f = awaitFinding(t, diagnose.LongHold, "waits", "--older=1ns", name)
	require.Regexp(t, `^migration \(pid \d+, \d\.1\) runs its OnFirst, and (sleeps|runs); 1 waits to join, for up to `, f.Text)
	require.Equal(t, fmt.Sprintf("kill %d", first.Pid()), f.Command)
	shell(t, f.Force)
	var self string
	joiner.Recv(t, &self)
	soon(t, exitOK, "waits", "--older=1ns", name)
	joiner.Kill(t)
}

// TestWriterBehindAReaderIsNotBlamed: alice reads, bob waits to write, and carol waits to read because bob keeps new
// readers out. shmctl reports only alice as the cause, because bob himself waits for alice.
func TestWriterBehindAReaderIsNotBlamed(t *testing.T) {
	name := testArena(t)
	alice, bob, carol := newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")
	alice.does("rlock rw", "table")
	bob.begins("lock rw", "table")
	awaitWaits(t, name, 1)
	carol.begins("rlock rw", "table")
	awaitThat(t, name, "dated waits", 2, func(d document) bool { return d.Waits[0].AgeNs != nil && d.Waits[1].AgeNs != nil })
	awaitFinding(t, diagnose.LeakedHold, "waits", "--older=1ns", name)
	_, d := shmctlJSON(t, "waits", "--older=1ns", name)
	require.Len(t, d.Findings, 1, d.Findings)
	require.Equal(t, []string{alice.name}, d.Findings[0].Participants)
}

// TestDeadlockHidesLeakedHolds checks that a deadlock of two readers, which both wait to write, is the only finding.
// This is also true if the user asks for waits of any age.
func TestDeadlockHidesLeakedHolds(t *testing.T) {
	name := testArena(t)
	agents := []*agent{newAgent(t, name, "alice"), newAgent(t, name, "bob")}
	for _, a := range agents {
		a.does("rlock rw", "table")
	}
	for _, a := range agents {
		a.begins("lock rw", "table")
	}
	awaitDeadlock(t, name, 2)
	awaitThat(t, name, "dated waits", 2, func(d document) bool { return d.Waits[0].AgeNs != nil && d.Waits[1].AgeNs != nil })
	require.Equal(t, diagnose.Deadlock, awaitFinding(t, diagnose.Deadlock, "waits", "--older=1ns", name).Kind)
	_, d := shmctlJSON(t, "waits", "--older=1ns", name)
	for _, f := range d.Findings {
		require.Equal(t, diagnose.Deadlock, f.Kind, f.Text)
	}
}

// TestQueueWithoutConsumers checks the finding about a full queue that no consumer has open. It names the process that
// died last, and its command lists the processes that have left or died.
func TestQueueWithoutConsumers(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "worker")
	bob.does("open queue", "jobs")
	for range 4 {
		alice.does("put queue", "jobs")
	}
	bob.Kill(t)
	alice.begins("put queue", "jobs")
	awaitWaits(t, name, 1)
	var f finding
	eventually(t, "reaped", func() bool {
		f = awaitFinding(t, diagnose.FullQueue, "waits", "--older=1ms", name)
		return strings.Contains(f.Text, "gone")
	})
	require.Regexp(t, `; no process but those that wait has it open; worker \(pid \d+, 2\.1, gone\) was the last to die, .* ago; 1 waits, `, f.Text)
	require.Equal(t, "start a process that takes items; see which ones left or died", f.Advice)
	require.Equal(t, "shmctl ps --gone "+name, f.Command)
	_, out, _ := shmctl(strings.Fields(f.Command)[1:]...)
	require.Contains(t, out, "worker")
}

// TestQueueWithALeaseNamesItsHolder checks that the finding about a full queue names the process that has items on
// lease.
func TestQueueWithALeaseNamesItsHolder(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	for range 4 {
		alice.does("put queue", "jobs")
	}
	bob.does("lease queue", "jobs")
	alice.begins("put queue", "jobs")
	awaitWaits(t, name, 1)
	f := awaitFinding(t, diagnose.FullQueue, "waits", "--older=1ms", name)
	require.Regexp(t, `; open in bob \(pid \d+, 2\.1\); bob \(pid \d+, 2\.1\) has items on lease; 1 waits`, f.Text)
}

// TestOldWaitForAnEventIsNoted checks that --older adds a note to an old wait for an Event. The note names the
// processes that may set the Event. Without --older, shmctl reports nothing, because the work may come later.
func TestOldWaitForAnEventIsNoted(t *testing.T) {
	name := testArena(t)
	alice, bob := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	bob.does("open event", "ready")
	alice.begins("wait event", "ready")
	awaitWaits(t, name, 1)
	soon(t, exitOK, "waits", name)
	f := awaitFinding(t, diagnose.MissingParties, "waits", "--older=1ms", name)
	require.False(t, f.Trouble)
	require.Regexp(t, `^Event ready waits for what does not come \(.*\); open in bob \(pid \d+, 2\.1\); 1 waits`, f.Text)
	require.Contains(t, soon(t, exitTrouble, "waits", "--older=1ms", name), "\nnote: Event ready waits")
}

// The waits of dead processes are not counted as waits.
func TestWaitsOfTheDeadAreNotCounted(t *testing.T) {
	name := testArena(t)
	alice := newAgent(t, name, "alice")
	alice.begins("wait event", "ready")
	awaitWaits(t, name, 1)
	alice.Kill(t)
	out := soon(t, exitOK, "waits", name)
	require.Contains(t, out, "alice[")
	require.Contains(t, out, "\nno process is stuck: ")
}

// The command create accepts the same sizes for a path as for a name, and other commands can use what it creates.
func TestCreateOfAnySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "arena")
	soon(t, exitOK, "create", "--size=1100000", "--max-participants=4", path)
	soon(t, exitOK, "check", path)
	a, err := arena.Attach(path, nil)
	require.NoError(t, err)
	require.GreaterOrEqual(t, a.Size(), int64(1_100_000))
	require.NoError(t, a.Close())

	path += ".small" // a size that is refused leaves no file
	code, _, errs := shmctl("create", "--size=1K", path)
	require.Equal(t, exitError, code, errs)
	require.NoFileExists(t, path)
}

// TestViewWithoutByteLocks checks that shmctl does not call a living process dead if the path leads to a copy of the
// file, in which the byte lock of this process is free. Commands that would join such a file refuse it, because they
// would reap the living process. Some mounts show the file of an arena without its byte locks, like a copy.
func TestViewWithoutByteLocks(t *testing.T) {
	name := testArena(t)
	alice, bob, carol := newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")
	alice.does("lock mutex", "ledger")
	bob.begins("lock mutex", "ledger")
	carol.does("lock mutex", "index")
	awaitWaits(t, name, 1)
	awaitIdentities(t, name)
	view := filepath.Join(t.TempDir(), "view")
	require.NoError(t, os.WriteFile(view, fileBytes(t, name), 0o600))

	_, d := shmctlJSON(t, "ps", view)
	require.Len(t, d.Participants, 3)
	for _, p := range d.Participants {
		require.Equal(t, "unknown", p.Life)
		require.NotZero(t, p.HostPID)
	}
	out := soon(t, exitTrouble, "waits", view)
	require.Contains(t, out, "UNLOCKED: ")
	require.Contains(t, out, " and 2 more exist, but have no byte lock on this file")
	require.NotContains(t, out, "DEAD")
	require.NotContains(t, out, "kill")
	require.NotContains(t, out, "shmctl reap")
	require.Contains(t, soon(t, exitOK, "reap", view), "nobody is dead")

	carol.Kill(t) // shmctl reports carol as dead, because her process does not exist any more
	_, d = shmctlJSON(t, "ps", view)
	require.Equal(t, []string{"unknown", "unknown", "dead"}, []string{d.Participants[0].Life, d.Participants[1].Life, d.Participants[2].Life})
	for _, args := range [][]string{{"reap", view}, {"recover", view, "ledger"}, {"recover", "--all", view}, {"set", view, "ledger", "spin=none"}, {"delete", view, "index"}, {"rm", view}} {
		before, err := os.ReadFile(view)
		require.NoError(t, err)
		code, _, errs := shmctl(args...)
		require.Equal(t, exitRefused, code, "%v %s", args, errs)
		require.Regexp(t, "no byte lock on this file|in use by|is open in", errs, args)
		after, err := os.ReadFile(view)
		require.NoError(t, err)
		require.True(t, bytes.Equal(before, after), args)
	}
	alice.Kill(t)
	bob.Kill(t)
	require.Contains(t, soon(t, exitOK, "reap", view), "reaped 3")
}
