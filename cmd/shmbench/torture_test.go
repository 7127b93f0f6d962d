//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/proctest"
	"github.com/shmsync/shmsync/internal/torture"
)

// runTorture runs a torture and returns its result.
func runTorture(t *testing.T, args ...string) (code int, r torture.Result, errs string) {
	t.Helper()
	code, out, errs := shmbench(t, append([]string{"torture", "--format=json"}, args...)...)
	require.NoError(t, json.Unmarshal([]byte(out), &r), "%s\n%s", out, errs)
	require.Equal(t, torture.Schema, r.Schema)
	return code, r, errs
}

// tortureUntil runs tortures until the function enough returns true for the result of one of them, because on a
// busy machine the processes of a short torture may hardly run. Each torture has to end with the given status. If
// status is exitViolation, a torture may also end with exitOK, because it may not have seen the violation yet.
func tortureUntil(t *testing.T, status int, enough func(r torture.Result) bool, args ...string) (r torture.Result, errs string) {
	t.Helper()
	for a := new(attempts); a.another(); {
		var code int
		code, r, errs = runTorture(t, args...)
		if status == exitViolation && code == exitOK {
			continue
		}
		require.Equal(t, status, code, errs)
		if enough(r) {
			return r, errs
		}
	}
	require.Fail(t, "not seen in any torture", "%+v\n%s", r, errs)
	return r, errs
}

func deaths(r torture.Result) bool { return r.Deaths != 0 }

// violates runs a torture until it finds a violation, and requires that one of the violations has the reason.
func violates(t *testing.T, reason string, args ...string) (errs string) {
	t.Helper()
	r, errs := tortureUntil(t, exitViolation, func(torture.Result) bool { return true }, args...)
	require.Regexp(t, reason, strings.Join(r.Violations, "\n"))
	return errs
}

// Although processes die all the time, the torture finds no violation: nothing is lost, and no process waits for long.
func TestTorture(t *testing.T) {
	duration := proctest.Rounds(3*time.Second, 20*time.Second)
	r, _ := tortureUntil(t, exitOK, func(r torture.Result) bool { return r.Rounds != 0 && deaths(r) }, "--seed=0", "--duration="+duration.String())
	t.Logf("seed %d, %d deaths, turns %v, after a death %v, thread late %v", r.Seed, r.Deaths, r.Wait, r.Inherit, r.Thread)
	require.Equal(t, r.Unjudged, r.Beyond)
	// On a busy machine a job may not run during one torture.
	idle := func(r torture.Result) (names []string) {
		for name, n := range r.Turns {
			if n == 0 {
				names = append(names, name)
			}
		}
		return names
	}
	jobs := idle(r)
	for a := new(attempts); len(jobs) > 0 && a.another(); {
		code, next, errs := runTorture(t, "--seed=0", "--duration=3s", "--only="+strings.Join(jobs, ","))
		require.Equal(t, exitOK, code, errs)
		jobs = idle(next)
	}
	require.Empty(t, jobs)
}

// The promises also hold without the features robust, waitv and membarrier of the kernel. The test disables each of
// them alone, and then all three.
func TestTortureFallbacks(t *testing.T) {
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: it runs a torture for each feature")
	}
	for _, absent := range []string{"robust", "waitv", "membarrier", "robust,waitv,membarrier"} {
		t.Run(absent, func(t *testing.T) {
			t.Setenv("SHMSYNC_DISABLE", absent)
			tortureUntil(t, exitOK, deaths, "--duration=4s")
		})
	}
}

// The data that transactions change, and the data in a Synchronized, are whole after each death of a process in C or Go.
// This also holds if the process dies while it undoes the changes of another dead process. No block is lost.
func TestTortureOfDataInC(t *testing.T) {
	proctest.CCompiler(t)
	duration := proctest.Rounds(3*time.Second, 15*time.Second)
	data := "--only=synchronized,tx,rwtx"
	turnsInC, turnsInGo := map[string]uint64{}, map[string]uint64{}
	var inC int64
	var rollbacks, inside uint64
	enough := func(r torture.Result) bool {
		require.Empty(t, r.NoC)
		require.Equal(t, 1, r.ResideInC)
		inC, rollbacks, inside = inC+r.InC, rollbacks+r.Rollbacks, inside+r.Inside
		all := inC != 0
		for _, job := range []string{"synchronized", "tx", "rwtx"} {
			turnsInC[job] += r.TurnsInC[job]
			turnsInGo[job] += r.Turns[job] - r.TurnsInC[job]
			all = all && turnsInC[job] != 0 && turnsInGo[job] != 0
		}
		return all
	}
	args := []string{"--seed=0", "--duration=" + duration.String(), data}
	tortureUntil(t, exitOK, enough, args...)
	// A death during a rollback is rare, so only the long test waits for one. On a busy machine, victims in C seldom roll
	// back. The test requires such a death only after thirty rollbacks, because then it is almost certain.
	if proctest.Long() {
		until(func() bool {
			if inside == 0 {
				tortureUntil(t, exitOK, enough, args...)
			}
			return inside != 0
		})
		require.True(t, inside != 0 || rollbacks < 30, "%d rollbacks of victims, and no death in one", rollbacks)
	}
	t.Logf("%d victims in C, which began to roll back %d times; %d died in that", inC, rollbacks, inside)
	require.GreaterOrEqual(t, rollbacks, inside)
}

// A torture finds a process in C that changes data without saving them.
func TestTortureSeesTornDataInC(t *testing.T) {
	proctest.CCompiler(t)
	violates(t, "torn: cell", "--duration=30s", "--only=test:unsaved")
}

// In a round in which all processes die, residents in C are killed, too. New residents then go on with the data.
func TestTortureKillsResidentsInC(t *testing.T) {
	proctest.CCompiler(t)
	for _, residents := range []struct{ number, only string }{
		{"--residents=2", "--only=synchronized,tx,rwtx"},
		{"--residents=3", "--only=mutex,tx"}, // only the third resident is a program in C
	} {
		// In the plan of this seed, all processes die at the end of the first round.
		args := []string{"--seed=" + seedOfDoom, residents.number, residents.only, "--duration=2s"}
		_, plan, _ := shmbench(t, append([]string{"torture", "-n"}, args...)...)
		require.Contains(t, plan, "round 0 of seed "+seedOfDoom+", everybody dies: true")
		tortureUntil(t, exitOK, func(r torture.Result) bool {
			// Later rounds may end in the same way; how many there are depends on the host.
			return r.Rounds != 0 && r.DoomedInC != 0 && r.TurnsInC["tx"] != 0
		}, args...)
	}
}

const seedOfDoom = "1"

// A resident in C finds data that other processes have torn. No other process checks the data.
func TestTortureResidentInCSeesTornData(t *testing.T) {
	proctest.CCompiler(t)
	violates(t, "resident 1 in C: tx: torn: cell", "--duration=60s", "--only=test:unseen")
}

// A torture finds a mistake in the C library: residents undo neither their own changes when they abort, nor the changes
// of dead processes.
func TestTortureSeesMistakeInLibraryOfResidentInC(t *testing.T) {
	cc := proctest.CCompiler(t)
	if !proctest.Long() {
		t.Skip("needs SHMSYNC_TEST_LONG=1: the torture goes on until a process dies in a rollback")
	}
	const undo = "memcpy(shmi_bytes(a, f.off, f.length), l->records + tail, f.length);"
	planted := 0
	var out, errs bytes.Buffer
	var err error
	for a := new(attempts); err == nil && a.another(); { // on a busy machine few processes die
		out.Reset()
		err = torture.Run(t.Context(), &torture.Options{
			Duration: time.Minute, Processes: 4, Residents: 2, Only: []string{"tx"}, Bound: time.Minute, Timeout: time.Minute, CC: cc,
			Format: "json", Out: &out, Log: &errs,
			Plant: func(header string) string {
				planted = strings.Count(header, undo)
				return strings.ReplaceAll(header, undo, "if (!resident) "+undo)
			},
		})
	}
	require.Equal(t, 1, planted)
	require.ErrorIs(t, err, torture.ErrViolation, "%s", &errs)
	var r torture.Result
	require.NoError(t, json.Unmarshal(out.Bytes(), &r))
	require.Regexp(t, "torn: cell|no node at|corrupt", strings.Join(r.Violations, "\n"))
}

// Without a C compiler, the torture runs the same plan with Go programs, and says so.
func TestTortureWithoutCompiler(t *testing.T) {
	for _, cc := range proctest.Sample([]string{"none", "/no/such/cc"}, 1) {
		r, errs := tortureUntil(t, exitOK, deaths, "--duration=1s", "--only=tx", "--cc="+cc)
		require.Contains(t, errs, "shmbench: torture: the programs in C are Go programs instead: no C compiler")
		require.Contains(t, r.NoC, "no C compiler")
		require.Zero(t, r.InC)
		require.Zero(t, r.ResideInC)
	}
	_, _, errs := runTorture(t, "--duration=1s", "--only=mutex", "--cc=none")
	require.NotContains(t, errs, "compiler") // no victim would be in C
}

func TestTortureSeesViolations(t *testing.T) {
	for _, c := range proctest.Sample([]struct{ job, duration, reason string }{
		{"test:open", "20s", "not alone inside|came inside meanwhile"}, // either process may notice the violation
		{"test:lossy", "2s", "one item is gone"},                       // seen when the torture ends
		{"test:panicky", "20s", "panic: shmsync: no"},
	}, 1) {
		t.Run(c.job, func(t *testing.T) {
			errs := violates(t, c.reason, "--duration="+c.duration, "--only="+c.job)
			require.Contains(t, errs, "the plan again: shmbench torture --seed 1")
		})
	}
}

// A torture finds a process that waits for long, unless other programs take its CPU.
func TestTortureSeesWaits(t *testing.T) {
	var code int
	var r torture.Result
	var errs string
	for tries := 0; tries < 3 && r.Judged < 0.5; tries++ {
		code, r, errs = runTorture(t, "--duration=4s", "--only=test:slow", "--processes=1")
		require.NotZero(t, r.Long)
	}
	if r.Judged < 0.5 {
		t.Skipf("needs the CPUs for half of the time; other programs took them for %.0f %%", 100*(1-r.Judged))
	}
	require.Equal(t, exitViolation, code, errs)
	require.Contains(t, strings.Join(r.Violations, "\n"), "goroutine")
	require.NotZero(t, r.Beyond)
}

// A torture finds a process that waits for ever. It prints the words of the objects, and the stacks of the processes.
func TestTortureSeesAHang(t *testing.T) {
	code, r, errs := runTorture(t, "--duration=20s", "--timeout=6s", "--only=mutex,test:stuck")
	require.Equal(t, exitViolation, code, errs)
	require.Contains(t, strings.Join(r.Violations, "\n"), "is at test:stuck for")
	require.Contains(t, r.Dump, `object "mutex-told"`)
	require.Contains(t, r.Dump, `"resident 0"`)
	require.Contains(t, r.Dump, "brokenJob).turn")
}

func TestTortureUsage(t *testing.T) {
	for _, args := range [][]string{{"--only=nothing"}, {"--processes=0"}, {"--residents=9"}} {
		code, _, errs := shmbench(t, append([]string{"torture"}, args...)...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}
