package topology

import (
	"bytes"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write the golden files")

// trees are the recorded hosts in testdata.
var trees = []string{"two-socket", "nps4", "cpuless", "memoryless", "asymmetric", "hybrid"}

// tree gives the files of a recorded host: each line is the name of one, and a line of it.
func tree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	for line := range strings.Lines(string(read1(t, filepath.Join("testdata", name+".tree")))) {
		name, text, ok := strings.Cut(line, ":")
		if strings.HasPrefix(line, "#") {
			continue
		}
		require.True(t, ok, line)
		if files[name] == nil {
			files[name] = &fstest.MapFile{Mode: 0o666}
		}
		files[name].Data = append(files[name].Data, strings.TrimPrefix(text, " ")...)
	}
	return files
}

// expand writes a tree to a directory.
func expand(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, tree(t, name)))
	return dir
}

func load(t *testing.T, name string) *Topology {
	t.Helper()
	top, err := Read(tree(t, name))
	require.NoError(t, err)
	return top
}

func TestTreesAreRead(t *testing.T) {
	for _, name := range trees {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			require.NoError(t, load(t, name).WriteText(&b))
			golden := filepath.Join("testdata", name+".golden")
			if *update {
				require.NoError(t, os.WriteFile(golden, b.Bytes(), 0o666))
			}
			want, err := os.ReadFile(golden)
			require.NoError(t, err)
			require.Equal(t, string(want), b.String())
		})
	}
}

// The record of a tree holds all that is read of the tree.
func TestRecordKeepsWhatIsRead(t *testing.T) {
	for _, name := range []string{"two-socket", "cpuless", "asymmetric"} {
		dir, again := expand(t, name), filepath.Join(t.TempDir(), "again")
		require.NoError(t, os.WriteFile(filepath.Join(dir, "secret"), []byte("not read"), 0o666))
		status := filepath.Join(dir, "proc", "self", "status")
		require.NoError(t, os.WriteFile(status, append(read1(t, status), "Name:\tprivate\n"...), 0o666))
		require.NoError(t, Record(os.DirFS(dir), again))
		first, err := Recorded(dir)
		require.NoError(t, err)
		second, err := Recorded(again)
		require.NoError(t, err)
		require.Equal(t, first, second, name)
		require.NoFileExists(t, filepath.Join(again, "secret"))
		require.NotContains(t, string(read1(t, filepath.Join(again, "proc", "self", "status"))), "private")
	}
}

func read1(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	require.NoError(t, err)
	return b
}

func TestClasses(t *testing.T) {
	for _, c := range []struct {
		tree string
		a, b int
		want Class
	}{
		{"two-socket", 1, 1, Same}, {"two-socket", 0, 4, SMT}, {"two-socket", 0, 1, SameLLC}, {"two-socket", 0, 2, CrossPackage},
		{"two-socket", 7, 3, SMT}, {"two-socket", 0, 99, CrossPackage},
		{"nps4", 0, 1, SameLLC}, {"nps4", 0, 2, OtherLLC}, {"nps4", 0, 4, SamePackage}, {"nps4", 15, 3, SamePackage},
		{"hybrid", 0, 4, SameLLC}, {"hybrid", 0, 8, OtherLLC}, {"hybrid", 2, 3, SMT},
		{"memoryless", 0, 5, CrossPackage},
	} {
		top := load(t, c.tree)
		require.Equal(t, c.want, top.Class(c.a, c.b), "%s %d %d", c.tree, c.a, c.b)
		require.Equal(t, c.want, top.Class(c.b, c.a), "%s %d %d", c.tree, c.b, c.a)
	}
}

func TestNearest(t *testing.T) {
	top := load(t, "memoryless")
	for node, want := range map[int]int{0: 0, 1: 1, 2: 1, 3: 3, 9: -1} {
		require.Equal(t, want, top.Nearest(node), node)
	}
}

func TestLimitsAreRead(t *testing.T) {
	top := load(t, "asymmetric")
	require.Equal(t, []int{0, 1, 4}, top.Limits.CPUs)
	require.Equal(t, []int{0}, top.Limits.Nodes)
	require.InDelta(t, 1.5, top.Limits.Quota, 1e-9, "of a cgroup above")
	require.Equal(t, int64(4<<30), top.Limits.Memory)
	require.Equal(t, []int{3}, top.Offline)
	require.Empty(t, top.Settings.NoHz)
}

// A tree that lacks files, or whose files make no sense, is refused or read with a note.
func TestBadTrees(t *testing.T) {
	const cpu, node = "sys/devices/system/cpu/", "sys/devices/system/node/"
	for _, c := range []struct{ name, text, want string }{
		{cpu + "online", "", "no CPU is online"},
		{cpu + "online", "0-", "no list of numbers"},
		{cpu + "online", "0-4294967295", "no list of numbers"},
		{cpu + "cpu1/topology/physical_package_id", "one", "no number"},
		{cpu + "cpu1/topology/core_cpus_list", "7", "threads of the core of CPU 1"},
		{cpu + "cpu1/cache/index3/shared_cpu_list", "7", "no list of CPUs with CPU 1"},
		{cpu + "cpu1/cache/index3/size", "big", "no size"},
		{node + "node0/distance", "10", "1 distances, and 2 nodes"},
		{node + "node0/distance", "10 x", "no distance"},
		{node + "node0/cpulist", "0-9", "not online, or of another node"},
		{node + "node0/cpulist", "0", "of no node"},
		{node + "node0/meminfo", "Node 0 MemTotal: lots kB\n", "no size"},
		{"proc/self/status", "Cpus_allowed_list:\tall\n", "no list of numbers"},
		{"sys/fs/cgroup/cpu.max", "fast 100000", "no share of time"},
	} {
		files := tree(t, "two-socket")
		files["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("0::/\n")}
		files[c.name] = &fstest.MapFile{Data: []byte(c.text)}
		_, err := Read(files)
		require.ErrorContains(t, err, c.want, c.name)
	}
	cut := expand(t, "two-socket")
	require.NoError(t, os.WriteFile(filepath.Join(cut, online), nil, 0o666))
	_, err := Recorded(cut)
	require.ErrorContains(t, err, cut+": sys/devices/system/cpu/online: no CPU is online", "which tree")
	_, err = Recorded(t.TempDir())
	require.ErrorContains(t, err, "is no recorded tree")
	_, err = Recorded(filepath.Join(t.TempDir(), "nothing"))
	require.ErrorContains(t, err, "is no recorded tree")
}

// Kernels and containers that say little still have a topology.
func TestLittleIsSaid(t *testing.T) {
	dir := expand(t, "two-socket")
	require.NoError(t, os.RemoveAll(filepath.Join(dir, "sys", "devices", "system", "node")))
	for _, name := range []string{"topology", "cache"} {
		dirs, err := fs.Glob(os.DirFS(dir), "sys/devices/system/cpu/cpu*/"+name)
		require.NoError(t, err)
		require.NotEmpty(t, dirs)
		for _, d := range dirs {
			require.NoError(t, os.RemoveAll(filepath.Join(dir, d)))
		}
	}
	top, err := Recorded(dir)
	require.NoError(t, err)
	require.Len(t, top.Notes, 3)
	require.Len(t, top.Nodes, 1)
	require.Len(t, top.LLCs, 1)
	require.Equal(t, SameLLC, top.Class(0, 7))
	require.NoError(t, top.WriteText(new(bytes.Buffer)))
}

func TestLists(t *testing.T) {
	for text, want := range map[string][]int{"": nil, "0": {0}, "0-3,8": {0, 1, 2, 3, 8}, " 5,7-8\n": {5, 7, 8}} {
		got, err := ParseList(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Equal(t, strings.TrimSpace(text), FormatList(got))
	}
	for _, text := range []string{"x", "1-", "-1", "3-1", "1,,2", "99999999"} {
		_, err := ParseList(text)
		require.Error(t, err, text)
	}
}

func TestSizes(t *testing.T) {
	for bytes, want := range map[int64]string{0: "0 B", 512: "512 B", 32 << 10: "32 kB", 1<<20 + 1<<19: "1.5 MB", 16 << 30: "16 GB", 3 << 40: "3 TB"} {
		require.Equal(t, want, formatSize(bytes))
	}
}

// FuzzTree proves that no bytes of a tree do more than fail.
func FuzzTree(f *testing.F) {
	f.Add("0-1", "0", "10 20", "32K")
	f.Add("0", "0", "10", "32K")
	f.Fuzz(func(t *testing.T, online, cpus, distance, size string) {
		if list, err := ParseList(online); err != nil || len(list) > 100 {
			return
		}
		files := fstest.MapFS{}
		for name, text := range map[string]string{
			"cpu/online": online, "node/online": cpus, "node/node0/cpulist": cpus, "node/node0/distance": distance,
			"cpu/cpu0/cache/index0/size": size, "cpu/cpu0/cache/index0/type": "Data", "cpu/cpu0/cache/index0/level": "1",
			"cpu/cpu0/cache/index0/shared_cpu_list": cpus,
		} {
			files["sys/devices/system/"+name] = &fstest.MapFile{Data: []byte(text)}
		}
		if top, err := Read(files); err == nil {
			require.NoError(t, top.WriteText(new(bytes.Buffer)))
		}
	})
}
