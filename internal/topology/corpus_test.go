package topology

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// summary returns what was read about a host, as the columns of expected.tsv: packages, nodes, nodes with CPUs, nodes
// with memory, groups by last-level cache, cores, CPUs online, CPUs offline, usable CPUs, and classes.
func (t *Topology) summary() []string {
	withCPUs, withMemory := 0, 0
	for _, n := range t.Nodes {
		if len(n.CPUs) > 0 {
			withCPUs++
		}
		if t.HasMemory(n) {
			withMemory++
		}
	}
	llcs := fmt.Sprint(len(t.LLCs))
	if t.LLCs[0].Level == 0 {
		llcs = "-"
	}
	ids := t.IDs()
	var classes []string
	for _, c := range t.ClassesOf(t.Usable()) {
		classes = append(classes, strings.Replace(string(c), ":", "/", 1)) // the file has this form
	}
	counts := fmt.Sprintf("%d %d %d %d %s %d %d %d %d", len(t.Groups(ids, ByPackage)), len(t.Nodes), withCPUs, withMemory, llcs,
		len(t.Groups(ids, ByCore)), len(ids), len(t.Offline), len(t.Usable()))
	return append(strings.Fields(counts), strings.Join(classes, " "))
}

// TestCorpus checks the topology of each recorded host against the file expected.tsv in the same directory. The first
// column of the file is the name of the recording, and the other columns are the results of summary.
func TestCorpus(t *testing.T) {
	checkCorpus(t, filepath.Join("testdata", "hosts"))
	if dir := os.Getenv("SHMSYNC_TOPOLOGIES"); dir != "" {
		checkCorpus(t, dir)
	}
}

func checkCorpus(t *testing.T, dir string) {
	t.Helper()
	for i, line := range strings.Split(strings.TrimSpace(string(read1(t, filepath.Join(dir, "expected.tsv")))), "\n") {
		f := strings.Split(line, "\t")
		if i == 0 {
			continue
		}
		t.Run(f[0], func(t *testing.T) {
			top, err := Recorded(filepath.Join(dir, f[0]+".tree"))
			require.NoError(t, err)
			require.Equal(t, f[1:11], top.summary(), "%q", top.Notes)
		})
	}
}
