//go:build linux

package main

import (
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"

	"github.com/shmsync/shmsync/internal/topology"
)

// expandTree writes a recorded host of internal/topology as files.
func expandTree(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, treeOf(t, name)))
	return dir
}

// treeOf gives its files: each line of a tree is the name of one, and a line of it.
func treeOf(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	tree := fstest.MapFS{}
	for line := range strings.Lines(string(mustRead(t, filepath.Join("..", "..", "internal", "topology", "testdata", name+".tree")))) {
		name, text, _ := strings.Cut(line, ":")
		if strings.HasPrefix(line, "#") {
			continue
		}
		if tree[name] == nil {
			tree[name] = &fstest.MapFile{Mode: 0o666}
		}
		tree[name].Data = append(tree[name].Data, strings.TrimPrefix(text, " ")...)
	}
	return tree
}

func hostOf(t *testing.T, name string) *topology.Topology {
	t.Helper()
	top, err := topology.Read(treeOf(t, name))
	require.NoError(t, err)
	return top
}

func TestTopoShowsRecordedHosts(t *testing.T) {
	for _, name := range []string{"two-socket", "nps4", "cpuless", "memoryless", "asymmetric", "hybrid"} {
		t.Run(name, func(t *testing.T) {
			dir, page, file := expandTree(t, name), filepath.Join(t.TempDir(), "topo.html"), filepath.Join(t.TempDir(), "topo.json")
			code, out, errs := shmbench(t, "topo", "--sysfs", dir, "--html", page, "--out", file)
			require.Zero(t, code, errs)
			golden, err := os.ReadFile(filepath.Join("..", "..", "internal", "topology", "testdata", name+".golden"))
			require.NoError(t, err)
			require.True(t, strings.HasPrefix(out, string(golden)), out)

			code, text, errs := shmbench(t, "topo", "--sysfs", dir, "--format=json")
			require.Zero(t, code, errs)
			kept, err := os.ReadFile(file)
			require.NoError(t, err)
			require.JSONEq(t, text, string(kept))
			var d topoDocument
			require.NoError(t, json.Unmarshal(kept, &d))
			require.Equal(t, topoSchema, d.Schema)
			require.Equal(t, hostOf(t, name), d.Topology)

			// The picture has a box for each core, and says its CPUs.
			b, err := os.ReadFile(page)
			require.NoError(t, err)
			requireWellFormed(t, string(b))
			require.Empty(t, remote.FindAllString(string(b), -1))
			require.Equal(t, len(d.Groups(d.IDs(), topology.ByCore)), strings.Count(string(b), `class="box core`))
			require.Equal(t, len(d.LLCs), strings.Count(string(b), `class="box llc`))
			require.Equal(t, len(d.Nodes), strings.Count(string(b), `class="box node`))
			for _, core := range d.Groups(d.IDs(), topology.ByCore) {
				require.Contains(t, string(b), ">"+topology.JoinCPUs(core)+"</text>")
			}
		})
	}
}

func requireWellFormed(t *testing.T, page string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			require.NoError(t, err)
		}
	}
}

// What is recorded of this host is shown as this host is.
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
	cut := expandTree(t, "nps4")
	require.NoError(t, os.WriteFile(filepath.Join(cut, "sys/devices/system/node/node2/distance"), []byte("10 12"), 0o666))
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"topo", "--sysfs", filepath.Join(t.TempDir(), "nothing")}, "is no recorded tree"},
		{[]string{"topo", "--sysfs", t.TempDir()}, "is no recorded tree"},
		{[]string{"topo", "--sysfs", cut}, "node2/distance: has 2 distances, and 4 nodes are online"},
		{[]string{"topo", "--format", "csv"}, "has no form"},
		{[]string{"topo", "--record", "/proc/no/such"}, "no such file"},
		{[]string{"topo", "--html", filepath.Join(t.TempDir(), "no", "such")}, "no such file"},
	} {
		code, _, errs := shmbench(t, c.args...)
		require.Equal(t, exitUsage, code, c.args)
		require.Contains(t, errs, c.want)
	}
}
