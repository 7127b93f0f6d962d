package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/shmsync/shmsync/internal/proctest"
)

func TestParsePlan(t *testing.T) {
	got, err := parsePlan(`# what runs

first 30s / /bin/first
set A=1 B=
second 2m /src/second /bin/second.test -test.run ^(TestA|TestB)$
set A=2
third 1s / /bin/third
`)
	require.NoError(t, err)
	require.Equal(t, []program{
		{name: "first", limit: 30 * time.Second, dir: "/", argv: []string{"/bin/first"}},
		{
			name: "second", limit: 2 * time.Minute, dir: "/src/second",
			argv: []string{"/bin/second.test", "-test.run", "^(TestA|TestB)$"}, env: []string{"A=1", "B="},
		},
		{name: "third", limit: time.Second, dir: "/", argv: []string{"/bin/third"}, env: []string{"A=1", "B=", "A=2"}},
	}, got)

	for text, want := range map[string]string{
		"":                         "no program",
		"# nothing\n":              "no program",
		"a 1s /":                   "line 1: want a name",
		"\na soon / /bin/a":        `line 2: "soon" is no limit`,
		"a 0s / /bin/a":            `"0s" is no limit`,
		"set A\na 1s / /bin/a":     `"A" is no NAME=VALUE`,
		"set =1\na 1s / /bin/a":    `"=1" is no NAME=VALUE`,
		"set A=1 B\na 1s / /bin/a": `"B" is no NAME=VALUE`,
	} {
		_, err := parsePlan(text)
		require.ErrorContains(t, err, want, "%q", text)
	}
}

func TestCounter(t *testing.T) {
	var c counter
	require.Equal(t, "no tests", c.String())
	require.True(t, c.line("hello\n"))
	require.Equal(t, "no tests", c.String())
	for _, line := range []string{"=== RUN   TestA\n", "=== PAUSE TestA\n", "=== CONT  TestA\n"} {
		require.False(t, c.line(line))
	}
	for _, line := range []string{
		"--- PASS: TestA (0.00s)\n",
		"    --- FAIL: TestB/sub (0.00s)\n", // counted with its parent
		"--- FAIL: TestB (0.00s)\n",
		"--- SKIP: TestC (0.00s)\n",
		"--- PASS: TestD (0.00s)\n",
	} {
		require.True(t, c.line(line))
	}
	require.False(t, c.line(""), "after the last line")
	require.Equal(t, "2 passed, 1 skipped, 1 failed", c.String())
}

// envSample is an environment variable that says what TestSample does. The other tests run the test binary with this
// variable, so that TestSample is the program of a plan.
const envSample = "SHMSYNC_VM_SAMPLE"

func TestSample(t *testing.T) {
	switch os.Getenv(envSample) {
	case "", "pass":
		t.Log("all is well")
	case "skip":
		t.Skip("needs another sample")
	case "fail":
		t.Fatal("bad luck")
	case "hang":
		hangForEver()
	case "liar":
		os.Stdout.WriteString("--- FAIL: TestOther (0.00s)\n")
	case "leave":
		// The process that starts here outlives the program, and shares its output.
		_, err := os.StartProcess("/proc/self/exe", []string{"sample", "-test.run=^TestSample$"}, &os.ProcAttr{
			Env:   append(os.Environ(), envSample+"=hang"),
			Files: []*os.File{nil, os.Stdout, os.Stderr},
		})
		require.NoError(t, err)
	}
}

//go:noinline
func hangForEver() { select {} }

func TestRun(t *testing.T) {
	self, err := os.Executable()
	require.NoError(t, err)
	sample := func(what string, limit time.Duration) (bool, string) {
		p := program{
			name: what, limit: limit, dir: "/",
			argv: []string{self, "-test.v", "-test.run=^TestSample$"}, env: []string{envSample + "=" + what},
		}
		var out bytes.Buffer
		ok := p.run(&out)
		require.True(t, strings.HasPrefix(out.String(), "RUN "+what+"\n"), out.String())
		return ok, out.String()
	}
	long := proctest.Scale(time.Minute)

	ok, out := sample("pass", long)
	require.True(t, ok, out)
	require.Contains(t, out, "all is well")
	require.Contains(t, out, "RESULT pass ok: 1 passed, 0 skipped, 0 failed, ")

	ok, out = sample("fail", long)
	require.False(t, ok, out)
	require.Contains(t, out, "bad luck")
	require.Contains(t, out, "RESULT fail FAIL: 0 passed, 0 skipped, 1 failed, ")
	require.Contains(t, out, "(exit status 1)")

	ok, out = sample("liar", long)
	require.False(t, ok, out)
	require.Contains(t, out, "(status 0 all the same)")

	// The only test is skipped. A program in which no test passes must not count as a success: its pattern may no
	// longer match any test.
	ok, out = sample("skip", long)
	require.False(t, ok, out)
	require.Contains(t, out, "(no test passed)")

	// On a busy machine, the limit may end before the program has started. In that case, the test tries a longer
	// limit.
	for limit := proctest.Scale(500 * time.Millisecond); limit < 2*long; limit *= 2 {
		ok, out = sample("hang", limit)
		require.False(t, ok, out)
		if strings.Contains(out, "vm.hangForEver") {
			break
		}
	}
	require.Contains(t, out, "RESULT hang FAIL: ")
	require.Contains(t, out, "(not within ")
	require.Contains(t, out, "vm.hangForEver", "the stacks")
}

func TestRunOfNoProgram(t *testing.T) {
	p := program{name: "absent", limit: time.Minute, dir: "/", argv: []string{filepath.Join(t.TempDir(), "absent")}}
	var out bytes.Buffer
	require.False(t, p.run(&out))
	require.Contains(t, out.String(), "RESULT absent FAIL: no tests, ")
}

// TestRunLeavesNobody checks that run reports a program that leaves a process behind. run also kills that process.
func TestRunLeavesNobody(t *testing.T) {
	defer func(d time.Duration) { grace = d }(grace)
	grace = proctest.Scale(500 * time.Millisecond)
	self, err := os.Executable()
	require.NoError(t, err)
	p := program{
		name: "leave", limit: proctest.Scale(time.Minute), dir: "/",
		argv: []string{self, "-test.v", "-test.run=^TestSample$"}, env: []string{envSample + "=leave"},
	}
	var out bytes.Buffer
	require.False(t, p.run(&out))
	require.Contains(t, out.String(), "(it has left processes behind)")
}

func TestFacts(t *testing.T) {
	sys, proc := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"devices/system/cpu/online":           "0-3\n",
		"devices/system/node/online":          "0-10\n",
		"devices/system/node/has_memory":      "0,10\n",
		"devices/system/node/node0/cpulist":   "0-3\n",
		"devices/system/node/node0/distance":  "10 21\n",
		"devices/system/node/node9/cpulist":   "\n",
		"devices/system/node/node9/distance":  "21 10\n",
		"devices/system/node/node10/cpulist":  "\n",
		"devices/system/node/node10/distance": "20 20\n",
	} {
		name = filepath.Join(sys, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(name), 0o700))
		require.NoError(t, os.WriteFile(name, []byte(text), 0o600))
	}
	require.NoError(t, os.WriteFile(filepath.Join(proc, "cmdline"), []byte("quiet\n"), 0o600))
	var out bytes.Buffer
	facts(&out, sys, proc)
	require.Contains(t, out.String(), `MACHINE cpus 0-3
MACHINE nodes 0-10
MACHINE nodes-with-memory 0,10
MACHINE nodes-with-cpus open `)
	require.Contains(t, out.String(), `
MACHINE node0 cpus 0-3, distances 10 21
MACHINE node9 cpus none, distances 21 10
MACHINE node10 cpus none, distances 20 20
MACHINE boot quiet
`)
	require.Contains(t, out.String(), "MACHINE feature ")
	var u unix.Utsname
	require.NoError(t, unix.Uname(&u))
	require.Contains(t, out.String(), "MACHINE kernel "+unix.ByteSliceToString(u.Release[:])+"\n")
}
