//go:build linux

package selftest

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/place"
	"github.com/shmsync/shmsync/shm"
)

// fakeSelftester returns a selftester that writes its results to out.
func fakeSelftester(t *testing.T, out *bytes.Buffer) *selftester {
	t.Helper()
	nodes, err := readNodes("/sys")
	require.NoError(t, err)
	o := &Options{Timeout: time.Second, Out: out}
	return &selftester{Options: o, ctx: t.Context(), nodes: nodes, waitLimit: time.Minute}
}

// TestSelftestVerdicts checks that a proof that fails and a proof that is skipped are reported, and that the selftest
// returns the right errors.
func TestSelftestVerdicts(t *testing.T) {
	var out bytes.Buffer
	s := fakeSelftester(t, &out)
	good := proof{"good", func(*selftester) (string, error) { return "fine", nil }}
	bad := proof{"bad", func(*selftester) (string, error) { return "", errors.New("two\nlines") }}
	skips := proof{"skips", func(*selftester) (string, error) { return "", cannot("no %s", "way") }}
	require.NoError(t, s.runAll([]proof{good, skips}))
	require.Equal(t, "RESULT ok good: fine\nRESULT skip skips: no way\nRESULT total: 1 ok, 1 skip, 0 fail\n", out.String())
	require.ErrorIs(t, s.runAll([]proof{good, bad}), ErrFailed)
	require.Contains(t, out.String(), "RESULT fail bad: two lines\nRESULT total: 1 ok, 0 skip, 1 fail\n")
	s.Strict = true
	require.ErrorIs(t, s.runAll([]proof{skips}), ErrSkipped)
}

// TestSelftestAgents checks that a proof fails if an agent prints a wrong line, ends, or prints nothing. An agent that
// still runs must be killed.
func TestSelftestAgents(t *testing.T) {
	s := fakeSelftester(t, new(bytes.Buffer))
	cpus, err := place.AllowedCPUs()
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
			h, err := t.startIn(a, nil, "successor")
			if err != nil {
				return "", err
			}
			if _, err := h.says(t, "waiting"); err != nil {
				return "", err
			}
			t.waitLimit = 100 * time.Millisecond // the proof times out, because nobody kills the victim
			defer func() { t.waitLimit = time.Minute }()
			return h.says(t, "owned")
		},
	} {
		verdict, text := s.prove(proof{"x", run})
		require.Equal(t, "fail", verdict)
		require.Contains(t, text, want)
		require.Empty(t, s.agents)
	}
}

// TestReadNodes checks that nodes without memory, and nodes without CPUs, are recognized.
func TestReadNodes(t *testing.T) {
	allowed, err := place.AllowedCPUs()
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
	write("node0/cpulist", place.JoinInts(allowed[:1])+",4000\n")
	write("node2/cpulist", place.JoinInts(allowed[1:])+"\n")
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
