//go:build linux

package main

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

var resultLine = regexp.MustCompile(`^RESULT (ok|skip|fail) [a-z0-9:,/-]+: .+$|^RESULT total: \d+ ok, \d+ skip, \d+ fail$`)

// Every proof holds here, or says why it cannot be shown.
func TestSelftest(t *testing.T) {
	code, out, errs := shmbench(t, "selftest")
	require.Equal(t, exitOK, code, out+errs)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	for _, line := range lines {
		require.Regexp(t, resultLine, line)
	}
	require.Contains(t, lines[len(lines)-1], " 0 fail")
	for _, name := range []string{"ok exclusion", "ok crash/anywhere", "ok crash/without:robust", "ok wake/bitset", "ok wake/near", "ok place/switched-off", "ok pin"} {
		require.Contains(t, out, "RESULT "+name)
	}
	code, listed, _ := shmbench(t, "selftest", "-n")
	require.Zero(t, code)
	require.Len(t, strings.Fields(listed), len(lines)-1, "-n names what is proven")
}

func TestSelftestOnly(t *testing.T) {
	code, out, _ := shmbench(t, "selftest", "--only", "host,place/absent")
	require.Zero(t, code)
	require.Len(t, strings.Split(strings.TrimSpace(out), "\n"), 3, out)
	for _, pattern := range []string{"no/such", "[", "crash"} {
		code, _, errs := shmbench(t, "selftest", "--only", pattern)
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "--only")
	}
}

// fakeSelftester runs proofs without a command line.
func fakeSelftester(t *testing.T, out *bytes.Buffer) *selftester {
	t.Helper()
	nodes, err := readNodes("/sys")
	require.NoError(t, err)
	s := &session{ctx: t.Context(), common: &common{Timeout: time.Second}, stdout: out, stderr: out}
	return &selftester{session: s, nodes: nodes, patience: 20 * time.Second}
}

// A proof that fails, and one that skips, are told, and have their status.
func TestSelftestVerdicts(t *testing.T) {
	var out bytes.Buffer
	s := fakeSelftester(t, &out)
	good := proof{"good", func(*selftester) (string, error) { return "fine", nil }}
	bad := proof{"bad", func(*selftester) (string, error) { return "", errors.New("two\nlines") }}
	skips := proof{"skips", func(*selftester) (string, error) { return "", cannot("no %s", "way") }}
	require.NoError(t, s.runAll([]proof{good, skips}))
	require.Equal(t, "RESULT ok good: fine\nRESULT skip skips: no way\nRESULT total: 1 ok, 1 skip, 0 fail\n", out.String())
	require.Equal(t, status(exitViolation), s.runAll([]proof{good, bad}))
	require.Contains(t, out.String(), "RESULT fail bad: two lines\nRESULT total: 1 ok, 0 skip, 1 fail\n")
	s.common.Strict = true
	require.Equal(t, status(exitSkipped), s.runAll([]proof{skips}))
}

// A process of a proof that says the wrong thing, ends, or says nothing, fails it; what
// is left of it is ended.
func TestSelftestAgents(t *testing.T) {
	s := fakeSelftester(t, new(bytes.Buffer))
	cpus, err := allowedCPUs()
	require.NoError(t, err)
	for want, run := range map[string]func(t *selftester) (string, error){
		`said "runs", not "flies"`: func(t *selftester) (string, error) {
			a, err := t.start(nil, nil, "pinned", strconv.Itoa(cpus[0]))
			if err != nil {
				return "", err
			}
			return a.says(t, "flies")
		},
		"ended: exit status": func(t *selftester) (string, error) {
			a, err := t.start(nil, nil, "no-such-role")
			if err != nil {
				return "", err
			}
			return a.says(t, "anything")
		},
		`has not said "owned" for`: func(t *selftester) (string, error) {
			a, err := newSelftestArena(shm.Policy{})
			if err != nil {
				return "", err
			}
			defer a.Close()
			v, err := t.startIn(a, nil, "victim")
			if err != nil {
				return "", err
			}
			if _, err := v.says(t, "held"); err != nil {
				return "", err
			}
			h, err := t.startIn(a, nil, "heir")
			if err != nil {
				return "", err
			}
			if _, err := h.says(t, "waiting"); err != nil {
				return "", err
			}
			t.patience = 100 * time.Millisecond // nobody kills the victim
			defer func() { t.patience = 20 * time.Second }()
			return h.says(t, "owned")
		},
	} {
		verdict, text := s.prove(proof{"x", run})
		require.Equal(t, "fail", verdict)
		require.Contains(t, text, want)
		require.Empty(t, s.agents)
	}
}

// Nodes without memory and without CPUs are seen as what they are.
func TestReadNodes(t *testing.T) {
	allowed, err := allowedCPUs()
	require.NoError(t, err)
	sysfs := t.TempDir()
	nodes, err := readNodes(sysfs)
	require.NoError(t, err)
	require.Equal(t, []numaNode{{CPUs: allowed, Memory: true}}, nodes, "a kernel without NUMA")

	write := func(name, text string) {
		file := filepath.Join(sysfs, "devices/system/node", name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	write("online", "0,2-3\n")
	write("has_memory", "0,3\n")
	write("node0/cpulist", joinInts(allowed[:1])+",4000\n")
	write("node2/cpulist", joinInts(allowed[1:])+"\n")
	write("node3/cpulist", "\n")
	nodes, err = readNodes(sysfs)
	require.NoError(t, err)
	require.Len(t, nodes, 3)
	require.Equal(t, numaNode{ID: 0, CPUs: allowed[:1], Memory: true}, nodes[0])
	require.Equal(t, 2, nodes[1].ID)
	require.False(t, nodes[1].Memory)
	require.Equal(t, numaNode{ID: 3, Memory: true}, nodes[2])
	require.Equal(t, "node 3: no CPUs", nodes[2].String())
	require.Contains(t, nodes[1].String(), "no memory")

	s := &selftester{nodes: nodes}
	require.Equal(t, []int{0, 3}, s.withMemory())
	var names []string
	for _, p := range s.proofs() {
		names = append(names, p.name)
	}
	require.Subset(t, names, []string{"place/bind:0", "place/bind:3", "place/no-memory:2", "place/first-touch:0"})
	require.NotContains(t, names, "place/first-touch:3")
	if len(allowed) > 1 {
		require.Subset(t, names, []string{"crash/node0-node2", "crash/node2-node0"})
	}

	write("online", "0-x\n")
	_, err = readNodes(sysfs)
	require.ErrorContains(t, err, "online")
}
