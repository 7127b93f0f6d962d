//go:build linux

package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/diagnose"
	"github.com/shmsync/shmsync/internal/proctest"
)

// lookAndDisturbNothing runs each command that only examines an arena. It checks that neither the bytes of the arena
// nor the memory that its file takes change. The caller stops all other participants first.
func lookAndDisturbNothing(t *testing.T, name string) {
	t.Helper()
	before := fileBytes(t, name)
	blocks := diskBlocks(t, name)
	for _, args := range [][]string{
		{"ps", name}, {"ps", "--gone", name}, {"objects", name}, {"locks", name}, {"waits", name}, {"graph", name}, {"graph", "-f", "dot", name},
		{"graph", "-f", "svg", name}, {"check", name}, {"metrics", name}, {"top", "-n", "2", "-d", "50ms", name}, {"reap", "--dry-run", name},
		{"dump", name, "-o", t.TempDir() + "/d"}, {"ls"}, {"ls", "--all"}, {"du", name}, {"diff", name, name}, {"objects", "-o", "wide", name},
		{"locks", "--older=1ns", name}, {"complete", "--", "show", name, ""},
	} {
		code, out, errs := shmctl(args...)
		require.NotEqual(t, exitError, code, "%v: %s", args, errs)
		if args[0] != "complete" { // there may be no objects
			require.NotEmpty(t, out, args)
		}
		shmctl(append([]string{"--json"}, args...)...)
	}
	require.True(t, bytes.Equal(before, fileBytes(t, name)), "the arena was disturbed")
	require.Equal(t, blocks, diskBlocks(t, name), "the arena takes more memory")
}

// soon runs a command, and requires that it ends in time, and with the wanted exit status.
func soon(t *testing.T, want int, args ...string) string {
	t.Helper()
	start := time.Now()
	code, out, errs := shmctl(args...)
	require.Equal(t, want, code, out+errs)
	took := time.Since(start)
	require.Less(t, took, limit)
	t.Logf("%v in %v\n%s", args, took, out)
	return out
}

// freeze stops the agents, so that no agent changes the arena.
func freeze(t *testing.T, agents ...*agent) {
	for _, a := range agents {
		a.Stop(t)
		t.Cleanup(func() { // a stopped agent ends only after a long time
			select {
			case <-a.Done():
			default:
				a.Cont(t)
			}
		})
	}
}

// TestDeadlockOfThreeIsNamed checks that one command finds the deadlock of three processes, each of which holds a mutex
// and waits for the mutex of the next process.
func TestDeadlockOfThreeIsNamed(t *testing.T) {
	name := testArena(t)
	agents := []*agent{newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")}
	locks := []string{"ledger", "index", "journal"}
	for i, a := range agents {
		a.does("lock mutex", locks[i])
	}
	for i, a := range agents {
		a.begins("lock mutex", locks[(i+1)%3])
	}
	d := awaitDeadlock(t, name, 3)
	require.Len(t, d.Findings, 1)
	f := d.Findings[0]
	require.Equal(t, diagnose.Deadlock, f.Kind)
	require.Equal(t, []string{agents[0].name, agents[1].name, agents[2].name}, f.Participants)
	require.Equal(t, []string{"index", "journal", "ledger"}, f.Objects)
	out := soon(t, exitTrouble, "waits", name)
	require.Contains(t, out, "DEADLOCK: 3 processes wait for each other: alice (pid ")
	for _, who := range []string{"alice", "bob", "carol"} {
		require.Contains(t, out, who+"[")
	}
	for _, format := range []string{"text", "dot", "svg", "json"} {
		require.NotEmpty(t, soon(t, exitTrouble, "graph", "-f", format, name))
	}
	eventually(t, "dated waits", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		return d.Waits[0].AgeNs != nil && d.Waits[1].AgeNs != nil && d.Waits[2].AgeNs != nil
	})
	freeze(t, agents...)
	lookAndDisturbNothing(t, name)

	// The advice is to end one process. Its end resolves the deadlock.
	for _, a := range agents {
		a.Cont(t)
	}
	agents[1].Kill(t)
	eventually(t, "the deadlock is over", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		for _, f := range d.Findings {
			if f.Kind == diagnose.Deadlock {
				return false
			}
		}
		return true
	})
}

// Deadlocks through waits for objects other than a mutex are found, too.
func TestDeadlockThroughOtherPrimitives(t *testing.T) {
	for _, c := range []struct{ hold, wait string }{
		{"lock fair", "lock fair"}, {"lock cohort", "lock cohort"}, {"lock rw", "lock rw"}, {"lock rw", "rlock rw"}, {"rlock rw", "lock rw"}, {"ulock rw", "lock rw"}, {"ulock rw", "ulock rw"}, {"lock multi", "lock multi"},
		{"lock semaphore", "lock semaphore"}, {"add group", "wait group"}, {"claim future", "wait future"},
		{"lock rwspin", "lock rwspin"}, {"lock spin", "lock spin"},
	} {
		t.Run(c.hold+", "+c.wait, func(t *testing.T) {
			t.Parallel() // each subtest takes two seconds
			name := testArena(t)
			a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
			a.does("lock mutex", "m", 2)
			b.does(c.hold, "x", 2)
			a.begins(c.wait, "x", 2)
			b.begins("lock mutex", "m")
			d := awaitDeadlock(t, name, 2)
			require.Len(t, d.Findings, 1)
			require.Equal(t, diagnose.Deadlock, d.Findings[0].Kind, d.Findings[0].Text)
			require.Equal(t, []string{a.name, b.name}, d.Findings[0].Participants)
			freeze(t, a, b)
			lookAndDisturbNothing(t, name)
		})
	}
}

// A wait that is not a deadlock is not reported as one.
func TestNoDeadlock(t *testing.T) {
	name := testArena(t)
	a, b, c := newAgent(t, name, "alice"), newAgent(t, name, "bob"), newAgent(t, name, "carol")
	// This is no deadlock: carol does not wait, and can still release a permit.
	a.does("acquire semaphore", "s", 1)
	b.does("acquire semaphore", "s", 1)
	c.does("acquire semaphore", "s", 1)
	a.does("lock mutex", "m")
	b.begins("lock mutex", "m")
	a.begins("acquire semaphore", "s", 1)
	a.begins("lock mutex", "m") // another goroutine of alice holds this mutex
	d := awaitWaits(t, name, 3)
	require.Empty(t, d.Findings)
	out := soon(t, exitOK, "waits", name)
	require.Regexp(t, `(?m)^3 waits(, for up to \S+)?; none is known to be stuck: no cycle, .*; --older 1s examines younger waits, too$`, out)
}

// A stopped process is alive. shmctl says that it is the reason why its waiters do not make progress.
func TestStoppedHolderIsNamed(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	a.does("lock mutex", "ledger")
	b.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	require.Contains(t, soon(t, exitOK, "waits", name), "alice[")
	a.Stop(t)
	out := soon(t, exitTrouble, "waits", name)
	require.Contains(t, out, "STOPPED-HOLDER: alice (pid ")
	require.Contains(t, out, "holds Mutex ledger and is stopped; 1 waits")
	require.Contains(t, out, "kill -CONT ")
	freeze(t, b)
	lookAndDisturbNothing(t, name)
	_, d := shmctlJSON(t, "ps", name)
	require.Equal(t, "stopped", d.Participants[0].Life)
	require.Equal(t, a.Pid(), d.Participants[0].HostPID)
}

// A participant stores its identity in its slot a moment after its join. SIGSTOP or a debugger may stop it before this
// store, for example at the first line after Open. Then shmctl finds the process by its pid and by the file that it has
// open.
func TestStoppedHolderIsNamedBeforeItsSlotSaysWhichProcessItIs(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	a.does("lock mutex", "ledger")
	b.begins("lock mutex", "ledger")
	awaitWaits(t, name, 1)
	eventually(t, "the identity", func() bool {
		_, d := shmctlJSON(t, "ps", name)
		return d.Participants[0].PIDNamespace != 0
	})
	a.Stop(t)
	forgetIdentity(t, name, a.Pid())
	_, d := shmctlJSON(t, "ps", name)
	require.Zero(t, d.Participants[0].PIDNamespace)
	require.Equal(t, "stopped", d.Participants[0].Life)
	require.Equal(t, a.Pid(), d.Participants[0].HostPID)
	out := soon(t, exitTrouble, "waits", name)
	require.Contains(t, out, "STOPPED-HOLDER: alice (pid ")
	require.Contains(t, out, fmt.Sprintf("$ kill -CONT %d\n", a.Pid()))
	a.Cont(t)
}

// forgetIdentity clears the identity that a participant stores in its slot a moment after its join: the start time of
// its process, its pid namespace and the boot ID. The offsets are from docs/abi.md.
func forgetIdentity(t *testing.T, name string, pid int) {
	t.Helper()
	path := "/dev/shm/" + name
	all, err := os.ReadFile(path)
	require.NoError(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	require.NoError(t, err)
	defer f.Close()
	ns, err := os.Readlink("/proc/self/ns/pid")
	require.NoError(t, err)
	const slotPID, slotStart, slotPIDNS, afterBootID = 12, 24, 32, 64
	le, found := binary.LittleEndian, 0
	for s := 0; s+afterBootID <= len(all); s += 64 {
		slot := all[s:]
		if int(le.Uint32(slot[slotPID:])) != pid || fmt.Sprintf("pid:[%d]", le.Uint64(slot[slotPIDNS:])) != ns {
			continue
		}
		found++
		for _, at := range [][2]int{{slotStart, 16}, {afterBootID - 16, 16}} {
			_, err = f.WriteAt(make([]byte, at[1]), int64(s+at[0]))
			require.NoError(t, err)
		}
	}
	require.Equal(t, 1, found)
}

// For a lock whose holder died under PolicyReport, shmctl names the dead process, and
// recover makes the lock usable.
func TestOwnerDeadIsNamed(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	a.does("lock mutex", "ledger")
	a.Kill(t)
	eventually(t, "owner-dead", func() bool {
		_, d := shmctlJSON(t, "show", name, "ledger")
		return d.Objects[0].Error != ""
	})
	eventually(t, "reaped", func() bool {
		_, d := shmctlJSON(t, "ps", "--gone", name)
		return len(d.Participants) == 1 && len(d.Gone) == 1
	})
	out := soon(t, exitTrouble, "waits", name)
	require.Contains(t, out, "OWNER-DEAD: Mutex ledger is owner-dead: alice (pid ")
	require.Contains(t, out, "shmctl recover "+name+" ledger")
	freeze(t, b)
	lookAndDisturbNothing(t, name)
	b.Cont(t)

	require.Contains(t, soon(t, exitOK, "recover", name, "ledger"), "can be locked again")
	require.Contains(t, soon(t, exitOK, "recover", name, "ledger"), "was healthy")
	soon(t, exitOK, "waits", name)
	b.does("lock mutex", "ledger")
	code, _, errs := shmctl("recover", "--wait=50ms", name, "ledger")
	require.Equal(t, exitRefused, code)
	require.Contains(t, errs, "a process has ledger")
}

// If no living process is left to reap the dead ones, shmctl shows that they are dead, and "shmctl reap" reaps them.
func TestDeadHolderThatNobodyReaps(t *testing.T) {
	name := testArena(t)
	a := newAgent(t, name, "alice")
	a.does("lock mutex", "ledger")
	a.Kill(t)
	_, d := shmctlJSON(t, "ps", name)
	require.Len(t, d.Participants, 1)
	require.Equal(t, "dead", d.Participants[0].Life)
	require.Equal(t, "live", d.Participants[0].State)
	out := soon(t, exitTrouble, "waits", name)
	require.Contains(t, out, "DEAD-HOLDER: alice (pid ")
	lookAndDisturbNothing(t, name)
	out = soon(t, exitTrouble, "reap", "--dry-run", name)
	require.Contains(t, out, "had exclusive of ledger")
	out = soon(t, exitOK, "reap", name)
	require.Contains(t, out, "reaped 1")
	_, d = shmctlJSON(t, "ps", name)
	require.Empty(t, d.Participants)
	require.Contains(t, soon(t, exitOK, "reap", name), "nobody is dead")
	require.Contains(t, soon(t, exitTrouble, "show", name, "ledger"), "owner-dead")
}

// For each kind of object, shmctl shows everything that can be held or waited for.
func TestEveryKindIsShown(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	type seen struct{ mode, want string }
	cases := map[string]seen{}
	add := func(object, mode, want string) { cases[object] = seen{mode, want} }
	for _, k := range []string{"mutex", "cohort", "fair", "spin", "rw", "rwspin"} {
		a.does("lock "+k, k)
		b.begins("lock "+k, k)
		add(k, "exclusive", "lock")
	}
	a.does("ulock rw", "upgradable")
	b.begins("ulock rw", "upgradable")
	add("upgradable", "upgradable", "lock")
	a.does("lock multi", "multi", 7)
	b.begins("lock multi", "multi", 7)
	add("multi", "exclusive 7", "key 7")
	a.does("acquire semaphore", "semaphore", 2)
	b.begins("acquire semaphore", "semaphore", 2)
	add("semaphore", "permits ×2", "permits 2")
	a.does("claim future", "future")
	b.begins("wait future", "future")
	add("future", "producer", "result")
	a.does("add group", "group", 3)
	b.begins("wait group", "group")
	add("group", "owes ×3", "zero")
	b.begins("wait event", "event")
	add("event", "", "set")
	b.begins("wait sequencer", "sequencer", 9)
	add("sequencer", "", "token 9 or more")
	b.begins("wait futex", "futex", 4)
	add("futex", "", "post")
	b.begins("wait latch", "latch")
	add("latch", "", "zero")
	b.begins("get queue", "queue")
	add("queue", "", "item")
	a.does("put queue", "leased", 5)
	a.does("lease queue", "leased")
	b.begins("lease queue", "leased")
	add("leased", "lease 1", "item")
	held := func(object string) {
		eventually(t, object+" is held", func() bool {
			_, d := shmctlJSON(t, "locks", name)
			for _, h := range d.Holds {
				if h.Object == object {
					return true
				}
			}
			return false
		})
	}
	a.begins("do once", "once")
	held("once")
	b.begins("do once", "once")
	add("once", "runner", "done")
	a.does("join barrier", "barrier", 1)
	b.begins("wait barrier", "barrier")
	add("barrier", "party", "phase 0")
	b.begins("wait cond", "cond")
	add("cond", "", "signal")
	a.does("wait waitable", "waitable", 6)
	b.begins("wait waitable", "waitable", 3)
	add("waitable", "claim 6", "claim")
	a.begins("update synchronized", "synchronized")
	held("synchronized")
	b.begins("update synchronized", "synchronized")
	add("synchronized", "exclusive", "lock")
	awaitWaits(t, name, len(cases))
	require.Contains(t, soon(t, exitOK, "show", name, "synchronized"), "0 commits, held by")
	for object, want := range cases {
		code, d := shmctlJSON(t, "show", name, object)
		require.Equal(t, exitOK, code, object)
		require.Len(t, d.Waits, 1, object)
		require.Equal(t, want.want, diagnose.Wants(&d.Waits[0]), object)
		require.Equal(t, b.name, d.Waits[0].Owner, object)
		require.Contains(t, d.Objects[0].OpenBy, b.name, object)
		if want.mode == "" {
			require.Empty(t, d.Holds, object)
			require.Empty(t, d.Waits[0].On, object)
			continue
		}
		require.Len(t, d.Holds, 1, object)
		require.Equal(t, want.mode, what(d.Holds[0].Mode, d.Holds[0].Key, d.Holds[0].Count), object)
		require.Equal(t, a.name, d.Holds[0].Owner, object)
		if object != "leased" && object != "waitable" { // others may supply these
			require.Equal(t, []string{a.name}, d.Waits[0].On, object)
		}
		out := soon(t, exitOK, "show", name, object)
		require.Contains(t, out, "alice[")
		require.Contains(t, out, "bob[")
	}
	freeze(t, a, b)
	lookAndDisturbNothing(t, name)
}

// TestParkedWaitersAreCounted checks that shmctl counts all waiting goroutines of a process. Only a few of many
// goroutines sleep in the kernel. The poller node of the process counts the goroutines that are parked.
func TestParkedWaitersAreCounted(t *testing.T) {
	name := testArena(t)
	a, b := newAgent(t, name, "alice"), newAgent(t, name, "bob")
	a.does("lock mutex", "m")
	b.begins("lock locks", "m", 100)
	eventually(t, "100 goroutines", func() bool {
		_, d := shmctlJSON(t, "waits", name)
		n, dated := uint64(0), true
		for _, w := range d.Waits {
			n += w.Goroutines
			dated = dated && w.AgeNs != nil
		}
		return n == 100 && dated
	})
	require.True(t, strings.Contains(soon(t, exitOK, "waits", "-o", "wide", name), "parked"))
	out := soon(t, exitOK, "waits", name) // one row for all
	require.Regexp(t, `(?m)^bob\[.*  100 `, out)
	require.Equal(t, 1, strings.Count(out, "\nbob["), out)
}

// TestOtherNamespace checks that shmctl finds the process of a participant in another pid namespace, and reports
// whether this process is alive or stopped. The pid in the slot has a meaning only in that namespace.
func TestOtherNamespace(t *testing.T) {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	proctest.NeedAttr(t, attr, "a pid namespace", "shmctl/agent")
	name := testArena(t)
	p := &agent{t: t, Proc: proctest.Start(t, "shmctl/agent", proctest.Params(agentParams{name, "alice"}), proctest.Attr(attr))}
	p.Recv(t, &p.name)
	p.does("lock mutex", "m")
	// A process writes its identity a moment after it has joined.
	eventually(t, "the identity", func() bool {
		_, d := shmctlJSON(t, "ps", name)
		return len(d.Participants) == 1 && d.Participants[0].PIDNamespace != 0
	})
	_, d := shmctlJSON(t, "ps", name)
	require.Len(t, d.Participants, 1)
	require.Equal(t, 1, d.Participants[0].PID)
	require.Equal(t, "alive", d.Participants[0].Life)
	require.Equal(t, p.Pid(), d.Participants[0].HostPID)
	require.Contains(t, soon(t, exitOK, "ps", name), "here)")
	p.Stop(t)
	_, d = shmctlJSON(t, "ps", name)
	require.Equal(t, "stopped", d.Participants[0].Life)
	_, out, _ := shmctl("locks", name)
	require.Contains(t, out, "alice[1] stopped")
	p.Cont(t)
	p.Kill(t)
	_, d = shmctlJSON(t, "ps", name)
	require.Equal(t, "dead", d.Participants[0].Life)
}

// The command that shmctl prints for an owner-dead lock works as printed, even for each key of a MultiLock.
func TestAdviceForOwnerDeadWorksWhenPasted(t *testing.T) {
	name := testArena(t)
	a, _ := newAgent(t, name, "alice"), newAgent(t, name, "bob") // bob reaps
	locks := []string{"mutex", "fair", "cohort", "rw", "spin", "rwspin"}
	for _, lock := range locks {
		a.does("lock "+lock, lock+"1")
	}
	a.does("lock multi", "keys", 7)
	a.does("lock multi", "keys", 9)
	a.Kill(t)
	eventually(t, "reaped", func() bool {
		_, d := shmctlJSON(t, "ps", "--gone", name)
		return len(d.Gone) == 1
	})
	pasted := 0
	for range len(locks) + 2 {
		_, d := shmctlJSON(t, "waits", name)
		if len(d.Findings) == 0 {
			break
		}
		f := d.Findings[0]
		require.Equal(t, diagnose.OwnerDead, f.Kind, f.Text)
		command, found := strings.CutPrefix(f.Command, "shmctl ")
		require.True(t, found, f.Command)
		require.Contains(t, soon(t, exitOK, strings.Fields(command)...), "can be locked again", f.Command)
		pasted++
	}
	require.Equal(t, len(locks)+2, pasted)
	soon(t, exitOK, "waits", name)
}
