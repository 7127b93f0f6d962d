//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/arena"
	"github.com/shmsync/shmsync/internal/arenakernel"
	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/shm"
)

// An incident is a way in which programs get stuck.
type incident struct {
	name string
	kind string   // kind of the finding that names it
	args []string // the command that finds it, without the arena
	// begin causes the incident. The agents alice, bob and carol have joined the arena.
	begin func(t *testing.T, name string, alice, bob, carol *agent)
	text  string // a part of the output
	ends  bool   // the printed commands end the incident
}

var (
	findNow = []string{"waits"}
	findOld = []string{"waits", "--older", "1ms"} // with the default age, the test would take too long
)

// incidents are the incidents in docs/shmctl.md.
var incidents = []incident{
	{"deadlock", diagnose.Deadlock, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "x")
		bob.does("lock mutex", "y")
		alice.begins("lock mutex", "y")
		bob.begins("lock mutex", "x")
	}, "2 processes wait for each other", true},
	{"deadlock of readers that upgrade", diagnose.Deadlock, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("rlock rw", "table")
		bob.does("rlock rw", "table")
		alice.begins("lock rw", "table")
		bob.begins("lock rw", "table")
	}, "2 processes wait for each other", true},
	{"stopped holder", diagnose.StoppedHolder, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		bob.begins("lock mutex", "ledger")
		awaitWaits(t, name, 1)
		alice.Stop(t)
	}, "holds Mutex ledger and is stopped", true},
	{"dead holder that no process reaps", diagnose.DeadHolder, findNow, func(t *testing.T, name string, alice, bob, carol *agent) {
		alice.does("lock mutex", "ledger")
		bob.Stop(t)
		carol.Stop(t)
		alice.Kill(t)
	}, "holds Mutex ledger and is dead", true},
	{"lock of a dead holder", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		alice.Kill(t)
	}, "Mutex ledger is owner-dead", true},
	{"key of a dead holder", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		bob.does("lock multi", "rows", 1)
		alice.does("lock multi", "rows", 4711)
		alice.Kill(t)
	}, "MultiLock rows is owner-dead", true},
	{"work that a dead process owes", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("add group", "jobs", 2)
		bob.does("open queue", "other")
		alice.Kill(t)
	}, "WaitGroup jobs cannot be completed", true},
	{"latch that a dead process owes", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("claim latch", "start", 2)
		alice.Kill(t)
	}, "Latch start cannot be completed", true},
	{"future of a dead producer", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("claim future", "answer")
		alice.Kill(t)
	}, "Future answer cannot be completed", true},
	{"barrier with a dead party", diagnose.OwnerDead, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("join barrier", "step", 1)
		alice.Kill(t)
	}, "Barrier step cannot be completed", true},
	{"lock that a repair gave up", diagnose.NotRecoverable, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		alice.Kill(t)
		awaitFinding(t, diagnose.OwnerDead, "waits", name)
		bob.does("break mutex", "ledger")
	}, "Mutex ledger is not recoverable", true},
	{"rule that panicked", diagnose.NotRecoverable, findNow, func(t *testing.T, name string, alice, _, _ *agent) {
		alice.does("spoil waitable", "memory")
	}, "Waitable memory is not recoverable", false},
	{"holder in a debugger", diagnose.StoppedHolder, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		bob.begins("lock mutex", "ledger")
		awaitWaits(t, name, 1)
		tracer := proctest.Start(t, "shmctl/tracer", proctest.Params(alice.Pid()))
		var text string
		if tracer.Recv(t, &text); text != "" {
			t.Skip("needs to be allowed to trace a process:", text)
		}
		go func() { // reaps the tracer when it has ended; a zombie would still trace
			<-tracer.Done()
		}()
	}, "is stopped by a debugger", true},
	{"holder in a frozen control group", diagnose.StoppedHolder, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		bob.begins("lock mutex", "ledger")
		awaitWaits(t, name, 1)
		if err := freezeGroup(t, alice, 2); err != nil {
			t.Skipf("needs a control group of version 2 that can be frozen: %v", err)
		}
	}, "holds Mutex ledger and is frozen", true},
	{"holder that runs", diagnose.LongHold, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.begins("burn mutex", "ledger")
		eventually(t, "the hold", func() bool {
			_, d := shmctlJSON(t, "locks", name)
			return len(d.Holds) == 1
		})
		bob.begins("lock mutex", "ledger")
	}, "holds Mutex ledger and runs", true},
	{"lock that is locked twice", diagnose.SelfWait, findOld, func(t *testing.T, name string, alice, _, _ *agent) {
		alice.does("lock mutex", "ledger")
		alice.begins("lock mutex", "ledger")
	}, "waits for itself", true},
	{"lock that was never unlocked", diagnose.LeakedHold, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock mutex", "ledger")
		bob.begins("lock mutex", "ledger")
	}, "holds Mutex ledger, sleeps, and waits for nothing", true},
	{"key that was never unlocked", diagnose.LeakedHold, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock multi", "rows", 4711)
		bob.begins("lock multi", "rows", 4711)
	}, "holds MultiLock rows (4711), sleeps", true},
	{"reader that never left", diagnose.LeakedHold, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("rlock rw", "table")
		bob.begins("lock rw", "table")
	}, "holds RWMutex table for reading, sleeps", true},
	{"holder that waits for something else", diagnose.LongHold, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.begins("then event", "answer")
		awaitWaits(t, name, 1)
		bob.begins("lock mutex", "answer-lock")
	}, "holds Mutex answer-lock, and itself waits for set of answer", false},
	{"barrier that a party never reaches", diagnose.MissingParties, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.begins("wait barrier", "step")
	}, "no process but those that wait has it open", false},
	{"work that is never done", diagnose.MissingParties, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("add group", "jobs", 2)
		bob.begins("wait group", "jobs")
	}, "owes 2", false},
	{"latch that is never counted down", diagnose.MissingParties, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.begins("wait latch", "start")
	}, "Latch start waits for what does not come", false},
	{"event whose setter is stopped", diagnose.MissingParties, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("open event", "start")
		bob.begins("wait event", "start")
		awaitWaits(t, name, 1)
		alice.Stop(t)
		alice.Send(agentOrder{Op: "set event", Name: "start", Later: true}) // alice reads it when she is continued
	}, ", which is stopped; 1 waits", true},
	{"queue whose consumer is stopped", diagnose.FullQueue, findNow, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("open queue", "jobs")
		alice.Stop(t)
		alice.Send(agentOrder{Op: "drain queue", Name: "jobs", Later: true}) // alice reads it when she is continued
		for range 4 {
			bob.does("put queue", "jobs")
		}
		bob.begins("put queue", "jobs")
	}, "alice (pid ", true},
	{"semaphore without permits", diagnose.Exhausted, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("lock semaphore", "workers", 3)
		bob.begins("lock semaphore", "workers", 1)
	}, "Semaphore workers is exhausted (0 of 3 permits free)", true},
	{"permits that no process has", diagnose.Exhausted, findOld, func(t *testing.T, name string, alice, bob, _ *agent) {
		alice.does("take semaphore", "tokens")
		bob.begins("take semaphore", "tokens")
	}, "Semaphore tokens is exhausted", false},
	{"queue that no process reads", diagnose.FullQueue, findOld, func(t *testing.T, name string, alice, _, _ *agent) {
		for range 4 {
			alice.does("put queue", "jobs")
		}
		alice.begins("put queue", "jobs")
	}, "no process takes items", false},
	{"header that cannot be", diagnose.Corrupt, findNow, func(t *testing.T, name string, alice, bob, carol *agent) {
		freeze(t, alice, bob, carol)
		f, err := os.OpenFile(filepath.Join(shm.Dir, name), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff}, 24)
		require.NoError(t, err)
	}, "", false},
	{"bytes that cannot be", diagnose.Corrupt, findNow, func(t *testing.T, name string, alice, bob, carol *agent) {
		alice.does("lock mutex", "ledger")
		for _, a := range []*agent{alice, bob, carol} {
			a.Stop(t)
		}
		ins, err := arenakernel.Inspect(name)
		require.NoError(t, err)
		owner := int64(ins.Objects()[0].Body)
		require.NoError(t, ins.Close())
		f, err := os.OpenFile(filepath.Join(shm.Dir, name), os.O_RDWR, 0)
		require.NoError(t, err)
		defer f.Close()
		_, err = f.WriteAt([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, owner)
		require.NoError(t, err)
	}, "Mutex ledger has impossible bytes", false},
	{"path that does not lead to the byte locks", diagnose.Unlocked, findNow, func(t *testing.T, name string, alice, _, _ *agent) {
		alice.does("lock mutex", "ledger")
		awaitIdentities(t, name)
		view := filepath.Join(shm.Dir, name)
		require.NoError(t, os.WriteFile(view+".new", fileBytes(t, name), 0o600))
		require.NoError(t, os.Rename(view+".new", view)) // like some mounts, a copy has no byte locks
	}, "and 2 more exist, but have no byte lock on this file", false},
}

// awaitIdentities waits until the slot of each participant says which process it is. A participant stores this a moment
// after its join.
func awaitIdentities(t *testing.T, name string) {
	t.Helper()
	eventually(t, "the identities", func() bool {
		_, d := shmctlJSON(t, "ps", name)
		return !slices.ContainsFunc(d.Participants, func(p participant) bool { return p.PIDNamespace == 0 })
	})
}

// TestIncidents checks that one command finds each incident, and that the commands in its advice resolve the incident.
func TestIncidents(t *testing.T) {
	shell := pasted(t)
	if !proctest.Long() {
		proctest.LeaveOut(t, "shmctl/tracer") // the sample may lack the incidents that need it
	}
	for _, c := range proctest.Sample(incidents, 5) {
		t.Run(c.name, func(t *testing.T) {
			name := testArena(t)
			var agents []*agent
			for _, label := range []string{"alice", "bob", "carol"} {
				agents = append(agents, newAgent(t, name, label))
			}
			t.Cleanup(func() { // a stopped agent ends only after a long time
				for _, a := range agents {
					syscall.Kill(a.Pid(), syscall.SIGCONT)
				}
			})
			c.begin(t, name, agents[0], agents[1], agents[2])
			args := append([]string{c.args[0], name}, c.args[1:]...)
			f := awaitFinding(t, c.kind, args...)
			require.True(t, f.Trouble)
			start := time.Now()
			code, out, errs := shmctl(args...)
			t.Logf("%v in %v\n%s", args, time.Since(start), out)
			require.Equal(t, exitTrouble, code, out+errs)
			require.Contains(t, out, strings.ToUpper(c.kind)+": ")
			require.Contains(t, out, c.text)
			require.NotEmpty(t, f.Command, f.Text)
			require.Contains(t, out, "\n    $ "+f.Command+"\n")
			require.Equal(t, strings.HasPrefix(f.Command, "kill ") && !strings.HasPrefix(f.Command, "kill -CONT "), f.Force != "", f.Command)
			sameFromInside(t, name, args...)
			shell(t, f.Command)
			if !c.ends {
				return
			}
			// Further advice follows if the first command leaves a problem, such as the owner-dead lock of a process that it has
			// ended.
			for range 4 {
				var left *finding
				eventually(t, "the next finding, or none", func() bool {
					_, d := shmctlJSON(t, args...)
					left = nil
					for i := range d.Findings {
						if left = &d.Findings[i]; left.Kind == c.kind && still(left.Text) == still(f.Text) {
							return false
						}
					}
					return true
				})
				if left == nil {
					return
				}
				f = *left
				require.NotEqual(t, c.kind, f.Kind, f.Text)
				shell(t, f.Command)
			}
			t.Fatal("the advice does not end")
		})
	}
}

// sameFromInside requires that Inspector.Diagnose returns the same findings as a command prints, except for ages.
func sameFromInside(t *testing.T, name string, args ...string) {
	t.Helper()
	older := time.Duration(0)
	if i := slices.Index(args, "--older"); i >= 0 {
		var err error
		older, err = time.ParseDuration(args[i+1])
		require.NoError(t, err)
	}
	ins, err := arena.Inspect(name)
	require.NoError(t, err)
	defer ins.Close()
	texts := func(kind, text, advice, command, force string, objects []string, participants any) string {
		return still(fmt.Sprintf("%s: %s\n%s\n%s\n%s\n%q %v", kind, text, advice, command, force, objects, participants))
	}
	var inside, outside []string
	require.Eventually(t, func() bool { // retried: a thread may begin to run or sleep between the reports
		inside, outside = nil, nil
		_, d := shmctlJSON(t, args...)
		for _, f := range d.Findings {
			if f.Trouble {
				outside = append(outside, texts(f.Kind, f.Text, f.Advice, f.Command, f.Force, f.Objects, f.Participants))
			}
		}
		all, err := ins.Diagnose(older)
		require.NoError(t, err)
		for _, f := range all {
			inside = append(inside, texts(f.Kind, f.Text, f.Advice, f.Command, f.Force, f.Objects, f.Participants))
		}
		return len(inside) > 0 && slices.Equal(inside, outside)
	}, limit, 10*time.Millisecond, "Diagnose: %v\nshmctl: %v", &inside, &outside)
}

// TestManualListsIncidents checks that the manual lists the incidents of TestIncidents, with the kinds of their
// findings.
func TestManualListsIncidents(t *testing.T) {
	manual, err := os.ReadFile("../../docs/shmctl.md")
	require.NoError(t, err)
	kinds := map[string]bool{}
	for _, c := range incidents {
		require.Contains(t, string(manual), "\n| "+c.name+" | `"+c.kind+"` |")
		kinds[c.kind] = true
	}
	for _, kind := range diagnose.Kinds {
		require.True(t, kinds[kind], "no incident %s", kind)
	}
}

// awaitFinding waits until a command reports a finding of a kind.
func awaitFinding(t *testing.T, kind string, args ...string) (f finding) {
	t.Helper()
	var out string
	require.Eventually(t, func() bool {
		var d document
		_, d = shmctlJSON(t, args...)
		for _, f = range d.Findings {
			if f.Kind == kind {
				return true
			}
		}
		_, out, _ = shmctl(args...)
		return false
	}, limit, 10*time.Millisecond, "no finding %s\n%v", kind, stringer{&out})
	return f
}

// stringer is an argument of a message. Its text is read only when the message is printed, so it is the last text.
type stringer struct{ text *string }

func (s stringer) String() string { return *s.text }

// pasted returns a function that runs a command in a shell, as if the user had pasted it. The shell finds the
// commands of this host, and shmctl.
func pasted(t *testing.T) func(t *testing.T, command string) {
	dir := t.TempDir()
	self, err := os.Executable()
	require.NoError(t, err)
	script := "#!/bin/sh\nSHMCTL_TEST_MAIN=1 exec " + diagnose.Quote(self) + " \"$@\"\n"
	require.NoError(t, os.WriteFile(filepath.Join(dir, "shmctl"), []byte(script), 0o755))
	return func(t *testing.T, command string) {
		t.Helper()
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		t.Logf("$ %s\n%s", command, out)
		if exit, ok := err.(*exec.ExitError); ok && exit.ExitCode() == exitTrouble && strings.HasPrefix(command, "shmctl ") {
			return // the examined arena is still in trouble
		}
		require.NoError(t, err, "%s\n%s", command, out)
	}
}
