//go:build linux

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The host's own primitives that a report is to have beside the library's.
var wantPeers = map[string][]string{
	"c:pthread": {"uncontended", "lock"}, "c:robust": {"uncontended", "lock", "crash"}, "c:pi": {"uncontended", "lock"},
	"c:robust-pi": {"crash"}, "c:rwlock": {"readers", "rw"}, "c:pthread-spin": {"uncontended", "lock"}, "c:spin": {"lock", "handoff"},
	"c:cond": {"handoff", "wake", "cond"}, "c:barrier": {"barrier"}, "c:sem": {"uncontended", "handoff", "sem"},
	"c:sysv": {"uncontended", "handoff", "sem", "crash"}, "c:mq": {"handoff", "wake", "lock"}, "c:futex": {"handoff", "wake", "lock", "herd"},
	"go:eventfd": {"handoff", "sem"}, "go:pipe": {"handoff", "queue"}, "go:unix": {"handoff", "queue"}, "go:flock": {"lock", "crash"},
	"go:ofd": {"lock", "crash", "multi"}, "go:futex": {"wake", "waiters", "herd"}, "go:futex-requeue": {"herd"},
	"go:futex2": {"wake", "herd"}, "go:futex2-numa": {"wake", "herd"}, "in-process:sync.Mutex": {"uncontended", "lock"},
	"in-process:sync.RWMutex": {"readers", "rw"}, "in-process:chan": {"handoff", "lock", "queue", "sem"}, "in-process:sync.Cond": {"cond"},
}

func TestPeersAreThere(t *testing.T) {
	for name, in := range wantPeers {
		s, err := findSubject(name)
		require.NoError(t, err)
		require.Subset(t, s.Scenarios, in, name)
	}
	names := map[string]bool{}
	for _, s := range subjects {
		require.False(t, names[s.Name()], "%s is there twice", s.Name())
		names[s.Name()] = true
	}
}

// Every one of them runs in each of its scenarios, or says why not.
func TestPeersRun(t *testing.T) {
	requireCC(t)
	code, out, errs := shmbench(t, "peers", "--prim", "c:pi,c:robust-pi,c:pthread-spin,c:sysv,c:mq,go:ofd,go:futex*,in-process:chan",
		"--time=10ms", "--warmup=2ms", "--count=1", "--threads=1", "--place=any", "--kills=2", "--gap=100us", "--permits=2", "--capacity=16",
		"--cs=0", "--think=0", "--format=json")
	require.Equal(t, exitOK, code, errs)
	seen := map[string]bool{}
	for _, c := range parseDocument(t, out).Cells {
		if c.Status == statusSkipped {
			require.NotEmpty(t, c.Reason, c.Key)
		} else {
			require.Equal(t, statusOK, c.Status, c.Key)
			require.NotEmpty(t, c.Summary, c.Key)
		}
		seen[c.Subject] = true
	}
	for _, name := range []string{"c:pi", "c:robust-pi", "c:pthread-spin", "c:sysv", "c:mq", "go:ofd", "go:futex", "go:futex-waitv", "in-process:chan"} {
		require.True(t, seen[name], name)
	}
}

// Semaphores that the kernel would keep for ever are taken away.
func TestSysVSemaphoresAreTakenAway(t *testing.T) {
	requireCC(t)
	if err := checkSysV(); err != nil {
		t.Skip(err)
	}
	count := func() int {
		b, err := os.ReadFile("/proc/sysvipc/sem")
		if err != nil {
			t.Skip(err)
		}
		return strings.Count(string(b), "\n")
	}
	before := count()
	code, _, errs := shmbench(t, "crash", "--prim=c:sysv", "--kills=2", "--count=1", "--place=any", "--strict")
	require.Zero(t, code, errs)
	code, _, errs = shmbench(t, "lock", "--prim=c:sysv", "--time=5ms", "--count=2", "--place=any", "--threads=1", "--strict")
	require.Zero(t, code, errs)
	require.Equal(t, before, count())
}

func TestWakeCurveRuns(t *testing.T) {
	requireCC(t)
	code, out, errs := shmbench(t, "wake", "--prim=c:futex,c:cond,c:sem,go:futex*,go:eventfd,shmsync:semaphore", "--gap=0,300us", "--place=any",
		"--waiters=3", "--time=30ms", "--warmup=2ms", "--count=1", "--format=json")
	require.Equal(t, exitOK, code, errs)
	seen := map[string]int{}
	for _, c := range parseDocument(t, out).Cells {
		seen[c.Scenario+" "+c.Subject]++
		if c.Status == statusSkipped {
			require.Regexp(t, "^go:futex(2|2-numa|-waitv)$", c.Subject, "what is newer than the oldest kernel that is supported")
			require.Regexp(t, "kernel|futex", c.Reason)
			continue
		}
		require.Equal(t, statusOK, c.Status, c.Key)
		require.NotEmpty(t, c.Summary, c.Key)
		if n := c.Reps[0].Metrics["n"]; n >= 2*tailMin { // a busy machine may not come to as many
			require.NotEmpty(t, c.values("p50-ns"), c.Key)
		}
		if c.Scenario == "wake" && c.Params["gap"] == "300us" && len(c.values("slept")) > 0 && strings.HasSuffix(c.Subject, "futex") {
			require.Greater(t, median(c.values("slept")), 0.5, "%s: who has nothing to do sleeps", c.Key)
		}
	}
	for _, name := range loadSubjects["herd"] {
		require.Equal(t, 4, seen["herd "+name], "%s: two gaps, one and all", name)
	}
	for _, name := range []string{"futex", "futex-bitset", "futex-waitv", "futex2", "futex2-numa"} {
		require.Equal(t, 2, seen["wake go:"+name], name)
	}
	require.Equal(t, 2, seen["wake c:futex"])
}

// Without a gap a wake is still one way, in C as in Go. A busy machine may not come to it
// in time, so there are several attempts.
func TestWakeWithoutAGap(t *testing.T) {
	requireCC(t)
	for _, prim := range []string{"c:futex", "go:futex"} {
		n := 0.0
		for attempt := 0; n == 0 && attempt < 10; attempt++ {
			code, out, errs := shmbench(t, "handoff", "--prim="+prim, "--gap=0", "--place=any", "--time=50ms", "--warmup=1ms", "--count=1", "--format=json")
			require.Equal(t, exitOK, code, errs)
			for _, c := range parseDocument(t, out).Cells {
				if c.Scenario == "wake" {
					require.Equal(t, "0", c.Params["gap"])
					n += c.Reps[0].Metrics["n"]
				}
			}
		}
		require.Positive(t, n, prim)
	}
}

func TestOversubRuns(t *testing.T) {
	requireCC(t)
	code, out, errs := shmbench(t, "oversub", "--prim=shmsync:*,c:robust,c:pthread-spin", "--load=1,3", "--noise=1", "--spin=auto,0,20us", "--time=20ms", "--warmup=5ms", "--count=1", "--format=json")
	require.Equal(t, exitOK, code, errs)
	cpus, err := allowedCPUs()
	require.NoError(t, err)
	spins := map[string]int{}
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, statusOK, c.Status, c.Key)
		require.NotEmpty(t, c.values("ops/s"), c.Key)
		if c.ours() {
			spins[c.Params["spin"]]++
		} else {
			require.Equal(t, "auto", c.Params["spin"], "only the library has a budget")
		}
		if c.Params["load"] == "3" {
			require.Len(t, c.Reps[0].Workers, 3*len(cpus))
		}
	}
	require.Equal(t, map[string]int{"auto": 2, "0": 2, "20us": 2}, spins)
}

func TestOwnCgroups(t *testing.T) {
	unified, cpu := ownCgroups("9:name=systemd:/\n2:cpu,cpuacct:/a/b\n0::/user.slice\nnonsense\n")
	require.Equal(t, "/user.slice", unified)
	require.Equal(t, "/a/b", cpu)
	require.Error(t, writeExisting(filepath.Join(t.TempDir(), "cpu.max"), "1"), "a file that is not the kernel's")
}

// A quota holds the workers back, or the cell says why it cannot.
func TestQuota(t *testing.T) {
	code, out, errs := shmbench(t, "oversub", "--prim=shmsync:mutex", "--load=1", "--spin=auto", "--noise=0", "--quota=0,20", "--cs=10us", "--think=0",
		"--time=400ms", "--warmup=5ms", "--count=1", "--format=json")
	require.Equal(t, exitOK, code, errs)
	cells := parseDocument(t, out).Cells
	require.Len(t, cells, 2)
	for _, c := range cells {
		switch {
		case c.Status == statusSkipped:
			require.Equal(t, "20", c.Params["quota"])
			require.Contains(t, c.Reason, "cgroup")
			t.Skip(c.Reason)
		case c.Params["quota"] == "20":
			cpu := 0.0
			for _, w := range c.Reps[0].Workers {
				cpu += float64(w.UserNs + w.SystemNs)
			}
			require.Less(t, cpu/1e9, 0.25, "20 % of 400 ms, and a period more")
		}
	}
}

// Who is put under a quota is in its cgroup, which goes away.
func TestQuotaIsJoined(t *testing.T) {
	if err := quotaCheck(); err != nil {
		t.Skip(err)
	}
	q, err := newQuota(20)
	require.NoError(t, err)
	cmd := exec.Command("cat")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	require.NoError(t, q.join(cmd.Process.Pid))
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", cmd.Process.Pid))
	require.NoError(t, err)
	require.Contains(t, string(b), filepath.Base(q.dir))
	require.NoError(t, in.Close())
	require.NoError(t, cmd.Wait())
	q.remove()
	require.NoDirExists(t, q.dir)
}

// What a broken herd does is seen. A busy machine may not come to a round in time, so there
// are several attempts.
func TestHerdSeesViolations(t *testing.T) {
	var code int
	var errs string
	for attempt := 0; code == exitOK && attempt < 10; attempt++ {
		code, _, errs = shmbench(t, "wake", "--prim=test:stampede", "--place=any", "--waiters=3", "--wake=1", "--gap=200us", "--time=50ms",
			"--warmup=2ms", "--count=1", "--timeout=2s", "--cc=none")
	}
	require.Equal(t, exitViolation, code, errs)
	require.Contains(t, errs, "rounds")
}

func TestStressUsage(t *testing.T) {
	for _, args := range [][]string{
		{"oversub", "--spin=much"}, {"oversub", "--spin=2s"}, {"oversub", "--load=0"}, {"lock", "--rate=0"}, {"oversub", "--noise=99"},
		{"wake", "--gap=-1s"}, {"suite", "--quick", "--std"}, {"--std", "--full"}, {"lock", "--out=" + t.TempDir() + "/no/such"},
	} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}

// The suites are within their time, by their own account, and say what they will do.
func TestSuitesFitTheirTime(t *testing.T) {
	for _, c := range []struct {
		preset  preset
		atMost  time.Duration
		atLeast int
	}{{quickSuite, time.Minute, 100}, {stdSuite, 10 * time.Minute, 300}} {
		s := &session{common: &common{Timeout: time.Second, Seed: 1, Shuffle: true}}
		o, cells, err := s.suite(c.preset)
		require.NoError(t, err)
		require.Greater(t, len(cells), c.atLeast/2)
		require.Less(t, eta(order(cells, o.Count, false, 0)), c.atMost)
		require.GreaterOrEqual(t, o.Count, 2)
		seen := map[string]bool{}
		for _, cell := range cells {
			require.False(t, seen[cell.key()], cell.key())
			seen[cell.key()] = true
		}
		for _, sc := range scenarios {
			require.Contains(t, strings.Join(outline(cells, o), "\n"), sc.name+" ")
		}
	}
	for flag, want := range map[string]int{"--quick": 3, "--std": 5, "--full": 10} {
		code, out, errs := shmbench(t, "suite", flag, "-n")
		require.Zero(t, code, errs)
		require.Contains(t, out, "repetitions, about ")
		if flag == "--full" {
			require.Contains(t, out, "× 10 repetitions", want)
		}
	}
	// What the user says about time holds.
	s := &session{common: &common{Timeout: time.Second, Seed: 1, Count: 7}}
	o, _, err := s.suite(quickSuite)
	require.NoError(t, err)
	require.Equal(t, 7, o.Count)
	require.Equal(t, quick.time, o.Time)
}

// A host that is slower than planned cuts the repetitions, and not below one of each cell.
func TestSuiteEndsInTime(t *testing.T) {
	s := &session{common: &common{Timeout: 10 * time.Second, Seed: 1, Prim: []string{"go:flock", "go:eventfd"}, CC: "none", Count: 5, Time: time.Millisecond, Place: []string{placeAny}}}
	o, err := s.common.options(quick)
	require.NoError(t, err)
	cells, err := planCells(o, "uncontended")
	require.NoError(t, err)
	sequence := order(cells, o.Count, true, 1)
	e := &engine{cpus: o.CPUs, timeout: o.Timeout, until: time.Now()}
	results := e.run(t.Context(), cells, sequence)
	require.Equal(t, len(sequence)-len(cells), e.cut)
	for _, r := range results {
		require.Len(t, r.Reps, 1)
	}
}

func TestHandoverKinds(t *testing.T) {
	places := map[int]cpuPlace{0: {0, 0}, 1: {0, 0}, 2: {2, 0}, 3: {3, 1}}
	for _, c := range []struct {
		from, to int32
		same     bool
		want     int
	}{{0, 0, true, fromSelf}, {0, 0, false, fromCPU}, {0, 1, false, fromCache}, {1, 2, false, fromNode}, {2, 3, false, fromFar}, {-1, 3, false, fromOther}, {-1, -1, true, fromSelf}} {
		require.Equal(t, c.want, handoverOf(c.from, c.to, c.same, places), c)
	}
	require.Len(t, handoverKinds, fromOther+1)
	require.Len(t, handoverNames, fromOther+1)

	sysfs := t.TempDir()
	write := func(name, text string) {
		file := filepath.Join(sysfs, "devices/system/cpu", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	}
	write("cpu0/cache/index0/level", "1")
	write("cpu0/cache/index0/shared_cpu_list", "0")
	write("cpu0/cache/index3/level", "3")
	write("cpu0/cache/index3/shared_cpu_list", "0-1")
	write("cpu3/cache/index3/level", "3")
	write("cpu3/cache/index3/shared_cpu_list", "2-3")
	write("cpu3/node1/x", "")
	require.Equal(t, map[int]cpuPlace{0: {0, 0}, 3: {2, 1}}, readPlaces(sysfs))
}

// The shares of all hand-overs are one, and a lock that one thread keeps comes from it.
func TestHandoversAreCounted(t *testing.T) {
	code, out, errs := shmbench(t, "lock", "--prim=shmsync:mutex,go:flock", "--place=any", "--threads=1", "--time=30ms", "--count=1", "--cc=none", "--format=json")
	require.Equal(t, exitOK, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		sum := 0.0
		for _, kind := range handoverKinds {
			sum += c.Reps[0].Metrics[kind]
		}
		require.InDelta(t, 1, sum, 1e-9, c.Key)
	}
}
