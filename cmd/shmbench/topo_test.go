//go:build linux

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/bench/madeup"
	"github.com/shmsync/shmsync/internal/bench/report"
	"github.com/shmsync/shmsync/internal/topology"
	"github.com/shmsync/shmsync/internal/topology/topotest"
)

// expandTree writes a recorded host of internal/topology as files.
func expandTree(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, topotest.Tree(t, name)))
	return dir
}

func TestTopoShowsRecordedHosts(t *testing.T) {
	for _, name := range []string{"two-socket", "nps4", "cpuless", "memoryless", "asymmetric", "hybrid"} {
		t.Run(name, func(t *testing.T) {
			dir, page, file := expandTree(t, name), filepath.Join(t.TempDir(), "topo.html"), filepath.Join(t.TempDir(), "topo.json")
			code, out, errs := shmbench(t, "topo", "--topology", dir, "--html", page, "--out", file)
			require.Zero(t, code, errs)
			golden, err := os.ReadFile(topotest.File(name + ".golden"))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(out, string(golden)), out)

			code, text, errs := shmbench(t, "topo", "--topology", dir, "--format=json")
			require.Zero(t, code, errs)
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.JSONEq(t, text, string(kept))
			var d report.TopologyDocument
			require.NoError(t, json.Unmarshal(kept, &d))
			require.Equal(t, report.TopologySchema, d.Schema)
			require.Equal(t, topotest.Host(t, name), d.Topology)

			// The picture has a box for each core, with the numbers of its CPUs.
			b, err := os.ReadFile(page)
			require.NoError(t, err)
			require.NoError(t, madeup.CheckPage(string(b)))
			require.Equal(t, len(d.Groups(d.IDs(), topology.ByCore)), strings.Count(string(b), `class="box core`))
			require.Equal(t, len(d.LLCs), strings.Count(string(b), `class="box llc`))
			require.Equal(t, len(d.Nodes), strings.Count(string(b), `class="box node`))
			for _, core := range d.Groups(d.IDs(), topology.ByCore) {
				require.Contains(t, string(b), ">"+topology.JoinCPUs(core)+"</text>")
			}
		})
	}
}

// A recording of this host's topology is shown like the topology itself.
func TestTopoRecordsThisHost(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "recorded")
	code, _, errs := shmbench(t, "topo", "--record", dir)
	require.Zero(t, code, errs)
	here, err := topology.Host()
	require.NoError(t, err)
	there, err := topology.Recorded(dir)
	require.NoError(t, err)
	require.Equal(t, here.CPUs, there.CPUs)
	require.Equal(t, here.LLCs, there.LLCs)
	require.Equal(t, here.Limits, there.Limits)
	require.Equal(t, here.NodeIDs(), there.NodeIDs())

	code, _, errs = shmbench(t, "topo", "--record", dir)
	require.Equal(t, exitUsage, code)
	require.Contains(t, errs, "files in it already")
}

func TestTopoUsage(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"topo", "--topology", filepath.Join(t.TempDir(), "nothing")}, "is no recorded tree"},
		{[]string{"topo", "--topology", t.TempDir()}, "is no recorded tree"},
		{[]string{"topo", "--format", "csv"}, "has no form"},
		{[]string{"topo", "--record", "/proc/no/such"}, "no such file"},
		{[]string{"topo", "--html", filepath.Join(t.TempDir(), "no", "such")}, "no such file"},
	} {
		code, _, errs := shmbench(t, c.args...)
		require.Equal(t, exitUsage, code, c.args)
		require.Contains(t, errs, c.want)
	}
}
