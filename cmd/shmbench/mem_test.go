//go:build linux

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/shm"
)

// memTestNodes pretends to be a host with two nodes that have both, one without
// memory (2) and one without CPUs (3).
func memTestNodes(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	write("online", "0-3")
	write("has_memory", "0-1,3")
	for node, cpus := range []string{"0-1", "2-3", "4", ""} {
		write(fmt.Sprintf("node%d/cpulist", node), cpus)
	}
	old := sysNodes
	sysNodes = dir
	t.Cleanup(func() { sysNodes = old })
}

func TestMemShapes(t *testing.T) {
	memTestNodes(t)
	describe := func(o *options) (list []string) {
		shapes, err := memShapes(o)
		require.NoError(t, err)
		for _, m := range shapes {
			list = append(list, fmt.Sprintf("%d %s %s cpu%d %v", m.Node, m.policyName(), hugeName(m.Huge), m.CPU, m.asked()))
		}
		return list
	}
	all := []int{0, 1, 2, 3, 4}
	require.Equal(t, []string{
		"0 first-touch none cpu0 [0]", "0 bind:0 none cpu0 [0]", "0 bind:1 none cpu0 [1]", "0 bind:3 none cpu0 [3]",
		"0 interleave:0-1,3 none cpu0 [0 1 3]", "0 weighted-interleave:0-1,3 none cpu0 [0 1 3]",
	}, describe(&options{CPUs: all, Brief: true, Nodes: []int{0}}))
	require.Equal(t, []string{
		"1 preferred-many:0-1 2M cpu3 [0 1]", "2 preferred-many:0-1 2M cpu4 [0 1]",
	}, describe(&options{CPUs: []int{3, 4}, Mem: []string{"prefer-many:0-1"}, Huge: []string{"2M"}}))
	require.Len(t, describe(&options{CPUs: all}), 3*6*3)
	require.Equal(t, []string{"2 first-touch thp cpu4 [2]"},
		describe(&options{CPUs: all, Mem: []string{"first-touch"}, Huge: []string{"thp"}, Nodes: []int{2}}))

	for want, o := range map[string]*options{
		"no node 2 with memory here (nodes with memory: 0,1,3)": {CPUs: all, Mem: []string{"bind:2"}},
		"no node 9 with memory":                                 {CPUs: all, Mem: []string{"interleave:0,9"}},
		"the mode is none of":                                   {CPUs: all, Mem: []string{"near:1"}},
		"--nodes 3: none of its CPUs is used here":              {CPUs: all, Nodes: []int{3}},
		"--nodes 0: none of its CPUs":                           {CPUs: []int{2}, Nodes: []int{0}},
		"want none, thp, 2M or 1G":                              {CPUs: all, Huge: []string{"4M"}},
	} {
		_, err := memShapes(o)
		require.ErrorContains(t, err, want)
	}
}

// TestMemShapesOfNothing: a host that does not describe its nodes is one.
func TestMemShapesOfNothing(t *testing.T) {
	old := sysNodes
	sysNodes = t.TempDir()
	t.Cleanup(func() { sysNodes = old })
	shapes, err := memShapes(&options{CPUs: []int{5}, Brief: true})
	require.NoError(t, err)
	require.Len(t, shapes, 2)
	require.Equal(t, 5, shapes[1].CPU)
	require.Equal(t, "bind:0", shapes[1].Policy.String())
}

func TestMemLink(t *testing.T) {
	const lines = 1000
	words := make([]uint64, lines*memLine)
	link(words, rand.New(rand.NewPCG(1, 2)))
	at := uint64(0)
	for i := range lines {
		require.Equal(t, i == 0, at == 0, "the chain has all lines")
		at = words[at*memLine]
	}
	require.Zero(t, at)
	require.EqualValues(t, lines*(lines-1)/2, sumWords(words))
	require.EqualValues(t, 6, sumWords([]uint64{0, 1, 2, 3, 0}))
}

func TestMemUsage(t *testing.T) {
	for _, args := range [][]string{{"mem", "--mem=bind:900"}, {"mem", "--mem=bind:x"}, {"mem", "--huge=3M"}, {"mem", "--nodes=900"}, {"mem", "--mib=-1"}} {
		code, _, errs := shmbench(t, args...)
		require.Equal(t, exitUsage, code, args)
		require.NotEmpty(t, errs, args)
	}
}

// TestMemRuns measures for a moment: what was asked is what was got, or the cell
// says why it was left out.
func TestMemRuns(t *testing.T) {
	page := filepath.Join(t.TempDir(), "mem.html")
	code, out, errs := shmbench(t, "mem", "--mib=4", "--mem=first-touch,bind", "--time=20ms", "--warmup=2ms", "--count=1",
		"--cc=none", "--format=json", "--html", page)
	require.Equal(t, exitOK, code, errs)
	ran := 0
	for _, c := range parseDocument(t, out).Cells {
		if c.Status == statusSkipped {
			require.NotEmpty(t, c.Reason, c.Key)
			continue
		}
		ran++
		require.Equal(t, statusOK, c.Status, "%s: %s", c.Key, c.Reason)
		for _, m := range []string{"chase-ns", "scan-MB/s", "data-ns"} {
			require.Positive(t, c.Summary[m].Center, c.Key)
		}
		p := c.Reps[0].Placement
		require.NotNil(t, p, c.Key)
		require.Equal(t, c.Params["mem"], p.Asked)
		if p.Note != "" {
			continue // the system does not tell where pages are
		}
		require.InDelta(t, 100, p.heeded(), 1, "%s: %v", c.Key, p)
		require.Zero(t, p.Gone)
	}
	require.Positive(t, ran)
	b, err := os.ReadFile(page)
	require.NoError(t, err)
	require.Contains(t, string(b), "<b>Memory placement asked and got.</b>")
	require.Contains(t, string(b), "as asked")
}

func TestMemTable(t *testing.T) {
	code, out, errs := shmbench(t, "mem", "--mib=4", "--mem=bind", "--huge=none,1G", "--time=20ms", "--warmup=2ms", "--count=1", "--cc=none")
	require.Equal(t, exitOK, code, errs)
	require.Contains(t, out, "asked  ")
	require.Contains(t, out, "node 0")
	for line := range strings.Lines(out) {
		require.LessOrEqual(t, len([]rune(strings.TrimRight(line, "\n"))), tableWidth, line)
	}
}

// TestMemSeesViolations: memory that loses what was written is no memory.
func TestMemSeesViolations(t *testing.T) {
	code, out, errs := shmbench(t, "mem", "--mib=4", "--prim=test:forgetful", "--mem=first-touch", "--huge=none", "--time=200ms", "--warmup=2ms",
		"--count=1", "--format=json", "--cc=none")
	require.Equal(t, exitViolation, code, errs)
	for _, c := range parseDocument(t, out).Cells {
		require.Equal(t, statusViolation, c.Status)
		require.Regexp(t, "chain came back|words add up", c.Reason)
	}
}

func TestMemPlacementText(t *testing.T) {
	weighted := &memShape{Policy: shm.Policy{Mode: shm.PolicyWeightedInterleave, Nodes: []int{0, 1, 3}}}
	require.Equal(t, "weighted:0-1,3", weighted.shortName())
	require.Equal(t, firstTouch, (&memShape{}).shortName())
	p := &placement{Nodes: []int{0, 1}, Got: map[string]int{"0": 30, "1": 60, "2": 10}}
	require.InDelta(t, 90, p.heeded(), 1e-9)
	require.Equal(t, "0 30%, 1 60%, 2 10%", p.got())
	p = &placement{Nodes: []int{1}, Got: map[string]int{"1": 8}, Huge: 4 << 20}
	require.Equal(t, "1, 4 MiB huge", p.got())
	require.Equal(t, "not known", (&placement{}).got())
	require.Equal(t, []int{3}, (&memShape{Node: 3}).asked())
	require.Equal(t, []int{1}, (&memShape{Node: 3, Policy: shm.Policy{Mode: shm.PolicyBind, Nodes: []int{1}}}).asked())
}

// TestMemFigures: two nodes make a matrix, and pages where nobody wanted them stand
// out.
func TestMemFigures(t *testing.T) {
	var cells []*jsonCell
	for _, node := range []string{"0", "1"} {
		for _, memory := range []string{"0", "1"} {
			p := &placement{Asked: "bind:" + memory, Nodes: []int{int(memory[0] - '0')}, Got: map[string]int{"0": 10}}
			cells = append(cells, &jsonCell{Subject: "shmsync:arena", Params: map[string]string{"node": node, "mem": "bind:" + memory, "huge": "none"},
				Unit: "chase-ns", Status: statusOK, Reps: []jsonRep{{Status: statusOK, Metrics: map[string]float64{"chase-ns": 80}, Placement: p}}})
		}
	}
	f := memFigures(cells)
	require.Len(t, f, 2)
	require.Contains(t, string(f[0].SVG), "0 % as asked")
	require.Equal(t, 2, strings.Count(string(f[0].SVG), "stroke-dasharray"))
	require.Equal(t, 4, strings.Count(string(f[1].SVG), "80ns"))
	require.Len(t, memFigures(cells[:1]), 1)
	require.Empty(t, memFigures([]*jsonCell{{}}))
	require.Len(t, memGroups(scenarioByName("mem"), cells), 2)
}
