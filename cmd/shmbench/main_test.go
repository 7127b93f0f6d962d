//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench"
	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/proctest"
)

// TestMain lets the test binary act as the worker that the engine starts.
func TestMain(m *testing.M) {
	if os.Getenv("SHMBENCH_WORKER") != "" {
		os.Exit(realMain(os.Args[1:], os.Stdout, os.Stderr))
	}
	// With -race, a process would otherwise sleep for a second before it exits.
	os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

// shmbench runs the program in this process, and its workers in other processes.
func shmbench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	if testing.Short() && len(args) > 0 && (measures(args[0]) || args[0] == "torture") && !strings.HasPrefix(t.Name(), "TestEveryScenarioRuns") {
		t.Skip("needs a run without -short: with it, only TestEveryScenarioRuns measures")
	}
	t.Setenv("TMPDIR", t.TempDir())
	var out, errs bytes.Buffer
	code = realMain(patient(args), &out, &errs)
	return code, out.String(), errs.String()
}

// patient returns the arguments of shmbench with a longer --timeout, because the default timeout is too short for a
// busy machine. It changes neither a --timeout that the test has set, nor the arguments of a command that does not
// use the flag. A torture does not need a longer timeout, because it does not count the time in which a process had
// no CPU.
func patient(args []string) []string {
	waits := func(arg string) bool {
		return measures(arg) || slices.Contains([]string{"suite", "bars", "selftest", "stopstorm"}, arg)
	}
	if !slices.ContainsFunc(args, waits) || strings.Contains(strings.Join(args, " "), "--timeout") {
		return args
	}
	return append(slices.Clip(args), "--timeout="+proctest.Scale(time.Minute).String())
}

func measures(command string) bool { return commandScenarios[command] != nil }

// measured runs shmbench until the function metric returns true for each cell. On a busy machine the time of a run may
// be too short, so there are several attempts, each with more time.
func measured(t *testing.T, metric func(c report.Cell) bool, args ...string) report.Document {
	t.Helper()
	for length := 30 * time.Millisecond; ; length *= 2 {
		code, out, errs := shmbench(t, append(slices.Clip(args), "--time="+length.String(), "--format=json")...)
		require.Equal(t, exitOK, code, errs)
		d := parseDocument(t, out)
		if !slices.ContainsFunc(d.Cells, func(c report.Cell) bool { return !metric(c) }) || length > 10*time.Second {
			return d
		}
	}
}

// hasSummary reports whether a cell has a value of any metric. It also returns true if the status of the cell is not
// OK.
func hasSummary(c report.Cell) bool { return c.Status != bench.StatusOK || len(c.Summary) != 0 }

// needsCPUs reports whether a cell was skipped because this process may use only one CPU.
func needsCPUs(t *testing.T, c report.Cell) bool {
	t.Helper()
	cpus, err := place.AllowedCPUs()
	require.NoError(t, err)
	return len(cpus) == 1 && c.Status == bench.StatusSkipped && c.Reason == "needs two CPUs"
}

// needsPlacement reports whether a cell was skipped because the system does not let this process place memory.
func needsPlacement(c report.Cell) bool {
	return c.Status == bench.StatusSkipped && strings.HasPrefix(c.Reason, "shm: place ") &&
		(strings.Contains(c.Reason, "(seccomp) forbids mbind") || strings.Contains(c.Reason, "the system has no NUMA placement"))
}

// needsMemory reports whether a cell was skipped because too few NUMA nodes have memory.
func needsMemory(c report.Cell) bool {
	return c.Status == bench.StatusSkipped &&
		regexp.MustCompile(`^(no other node has memory to use|node \d+ of its CPUs has no memory to use|both CPUs have their memory on node \d+, as with home=first)$`).MatchString(c.Reason)
}

// attempts counts the attempts of a test that may fail on a busy machine. Before the test gives up, it makes at least
// ten attempts, and goes on for at least two minutes.
type attempts struct {
	begun time.Time
	made  int
}

// another reports whether there should be another attempt.
func (a *attempts) another() bool {
	if a.made == 0 {
		a.begun = time.Now()
	}
	a.made++
	return a.made <= 10 || time.Since(a.begun) < proctest.Scale(2*time.Minute)
}

// until calls done again and again, and ends when done returns true. On a busy machine, one attempt may not be enough.
func until(done func() bool) {
	for a := new(attempts); a.another() && !done(); {
	}
}

// violated runs shmbench until it detects a violation. On a busy machine, the fault may not happen in time, so there
// are several attempts.
func violated(t *testing.T, args ...string) (stdout, stderr string) {
	t.Helper()
	code := exitOK
	for a := new(attempts); code != exitViolation && a.another(); {
		code, stdout, stderr = shmbench(t, args...)
	}
	require.Equal(t, exitViolation, code, stderr)
	return stdout, stderr
}

func parseDocument(t *testing.T, text string) report.Document {
	t.Helper()
	var d report.Document
	dec := json.NewDecoder(bytes.NewReader([]byte(text)))
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&d))
	require.Equal(t, report.Schema, d.Schema)
	return d
}

func TestBrokenLockIsAViolation(t *testing.T) {
	out, _ := violated(t, "lock", "--prim=test:open", "--place=any", "--threads=2", "--cs=2us", "--think=0",
		"--time=200ms", "--count=1", "--format=json", "--cc=none")
	d := parseDocument(t, out)
	require.Len(t, d.Cells, 1)
	require.Equal(t, bench.StatusViolation, d.Cells[0].Status)
	require.Contains(t, d.Cells[0].Reason, "counter under the lock")
}

func TestStuckLockIsHung(t *testing.T) {
	for limit := 4 * time.Second; ; limit *= 2 {
		code, out, errs := shmbench(t, "lock", "--prim=test:stuck,go:flock", "--place=any", "--threads=1", "--cs=0", "--think=0",
			"--time=20ms", "--count=2", "--timeout="+limit.String(), "--format=json", "--cc=none")
		require.Equal(t, exitCrashed, code, errs)
		byStatus, bySubject := map[string]report.Cell{}, map[string]report.Cell{}
		for _, c := range parseDocument(t, out).Cells {
			byStatus[c.Status], bySubject[c.Subject] = c, c
		}
		if bySubject["go:flock"].Status == bench.StatusHung && limit < time.Minute {
			continue // on a busy machine, the limit may be too short for go:flock, too
		}
		require.Equal(t, "go:flock", byStatus[bench.StatusOK].Subject, "the run goes on")
		hung := byStatus[bench.StatusHung]
		require.Equal(t, "test:stuck", hung.Subject)
		require.Len(t, hung.Reps, 1, "a cell that hung is not run again")
		require.Contains(t, hung.Reps[0].Stacks, "stuckLock")
		require.Contains(t, errs, "stacks are in")
		return
	}
}

func TestCrashedWorkerIsReported(t *testing.T) {
	code, _, errs := shmbench(t, "lock", "--prim=test:crash", "--place=any", "--threads=1", "--time=20ms", "--count=1", "--cc=none")
	require.Equal(t, exitCrashed, code)
	require.Contains(t, errs, "exit status 7")
}

func TestEveryScenarioRuns(t *testing.T) {
	proctest.CCompiler(t)
	// TestLibrarySubjects measures those subjects of the library that this test leaves out.
	args := []string{"--threads=2", "--prim=c:*,go:*,in-process:*,shmsync:mutex,shmsync:futex"}
	if proctest.Long() {
		args[0] = "--threads=1,2"
	}
	for _, command := range proctest.Sample([]string{"uncontended", "handoff", "lock", "crash", "waiters"}, 2) {
		t.Run(command, func(t *testing.T) {
			d := measured(t, hasSummary, append([]string{command, "--warmup=2ms", "--count=1", "--place=any", "--kills=3", "--waiters=20"}, args...)...)
			for _, c := range d.Cells {
				if needsCPUs(t, c) {
					continue
				}
				require.Equal(t, bench.StatusOK, c.Status, c.Key)
				require.NotEmpty(t, c.Summary, c.Key)
			}
		})
	}
}

func TestHogRuns(t *testing.T) {
	code, _, errs := shmbench(t, "handoff", "--prim=go:eventfd", "--place=same", "--hog=1", "--time=10ms", "--count=1", "--cc=none")
	require.Equal(t, exitOK, code, errs)
}

func TestSkippedCells(t *testing.T) {
	args := []string{"uncontended", "--prim=c:futex,go:flock", "--time=5ms", "--count=1", "--cc=none"}
	code, out, _ := shmbench(t, args...)
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "skipped: no C compiler")
	code, _, _ = shmbench(t, append(args, "--strict")...)
	require.Equal(t, exitSkipped, code)
}

func TestUsage(t *testing.T) {
	for line, want := range map[string]string{
		"--cpus=x":                `"x" is no number`,
		"--cpus=4000":             "this host has no CPU 4000",
		"--nodes=900":             "this host has no node 900",
		"--nodes=x":               `"x" is no number`,
		"--place=moon":            "moon",
		"--place=0+4000":          "this host has no CPU 4000",
		"lock --threads=0":        "--threads: 0 is less than 1",
		"lock --threads=1:600":    "--max-cells",
		"lock --prim=no:such":     "no subject of [lock",
		"lock --prim=[":           "--prim",
		"lock --rate=0":           "--rate: 0",
		"nonsense":                "nonsense",
		"--format=xml":            "xml",
		"mem --mem=bind:900":      "no node 900 with memory",
		"mem --mem=bind:x":        "bind:x",
		"mem --huge=3M":           "3M",
		"mem --mib=-1":            "--mib: -1",
		"rw --read=101":           "--read",
		"sem --permits=0":         "--permits",
		"lock --arena=shm":        `--arena "shm": want memfd or the path`,
		"lock --arena=/no/such":   `--arena "/no/such"`,
		"lock --arena=/dev/null":  "/dev/null",
		"lock --arena=/tmp,/tmp/": "two of",
		"crash --role=king":       `--role "king": want holder, waiter or reader`,
		"lock --rate=9 --lines=2": "--lines means nothing",
		"lock --lines=0":          "--lines: 0",
		"lock --lines=513":        "--lines: 513",
		"multi --skew=bent":       "bent",
		"multi --skew=zipf:big":   `--skew "zipf:big": theta`,
		"oversub --spin=much":     `--spin "much"`,
		"wake --gap=-1s":          "is negative",
		"suite --quick --std":     "--quick",
		"compare a b":             "a",
		"bars --only=(":           "--only",
		"selftest --only=no/no":   "no/no",
	} {
		code, out, errs := shmbench(t, strings.Fields(line)...)
		require.Equal(t, exitUsage, code, line)
		require.Empty(t, out, line)
		require.Contains(t, errs, want, line)
		require.True(t, strings.HasPrefix(errs, "shmbench: "), errs)
	}
}

// An environment variable supplies the value of a flag that is not given on the command line. A flag on the command
// line takes precedence.
func TestEnvironmentStandsForFlags(t *testing.T) {
	t.Setenv("SHMBENCH_PRIM", "go:flock")
	t.Setenv("SHMBENCH_PROCS", "5")
	t.Setenv("SHMBENCH_MAX_CELLS", "600")
	code, out, errs := shmbench(t, "lock", "-n", "--threads=2")
	require.Zero(t, code, errs)
	require.Empty(t, errs)
	require.Contains(t, out, "prim=flock/procs=5/")
	require.NotContains(t, out, "by=shmsync")
	code, out, errs = shmbench(t, "lock", "-n", "--procs=3")
	require.Zero(t, code, errs)
	require.NotContains(t, out, "procs=5")
	t.Setenv("SHMBENCH_PROCS", "none")
	code, _, errs = shmbench(t, "lock", "-n")
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "none")
}

func TestDryRunMeasuresNothing(t *testing.T) {
	code, out, _ := shmbench(t, "-n")
	require.Equal(t, exitOK, code)
	require.Contains(t, out, "uncontended/by=in-process/prim=sync.Mutex\n")
	require.Contains(t, out, "repetitions, about")
}

// TestPeerCompilesCleanly compiles the embedded C with the strictest warnings.
func TestPeerCompilesCleanly(t *testing.T) {
	proctest.CCompiler(t)
	out, err := exec.Command("cc", "-O2", "-pthread", "-std=gnu11", "-Wall", "-Wextra", "-Werror",
		`-DPEER_DIGEST=""`, `-DPEER_FLAGS=""`, "-o", t.TempDir()+"/peer", "../../internal/bench/peers/peer.c").CombinedOutput()
	require.NoError(t, err, string(out))
}
